"""Effect of a policy's grant on a kernel: blocks on each SM, and limits."""

from __future__ import annotations

from functools import lru_cache

from gpusim.policies.interface import Grant

Limits = tuple[float | None, float | None, float | None, float | None]  # shares of issue slots, L1, DRAM; quota
NO_LIMITS: Limits = (None, None, None, None)


def held_to(grant: Grant, blocks_per_sm: int, sms: int) -> tuple[list[int], frozenset[str]]:
    """Most blocks on each SM that a grant allows a kernel, and which of `gpusim.results.runs.LIMITS` it so meets."""
    caps, met = _caps(grant.per_sm, grant.blocks_per_sm, grant.sms, blocks_per_sm, sms)
    return caps, met | {"shares"} if limits_of(grant) != NO_LIMITS and any(caps) else met


@lru_cache(4096)  # kernel after kernel has the same SMs
def _caps(
    per_sm: tuple[int, ...] | None, most: int | None, on: frozenset[int] | None, blocks_per_sm: int, sms: int
) -> tuple[list[int], frozenset[str]]:
    given = per_sm or [blocks_per_sm if most is None else most] * sms
    caps = [min(cap, blocks_per_sm) if per_sm or on is None or sm in on else 0 for sm, cap in enumerate(given)]
    met = {"SMs": 0 in caps and any(caps), "blocks": any(0 < cap < blocks_per_sm for cap in caps)}
    return caps, frozenset(limit for limit in met if met[limit])  # one that may place nothing only waits


def limits_of(grant: Grant) -> Limits:
    """Shares of issue slots, L1 and DRAM and the quota that a grant holds its kernel to; None: no limit."""
    issue, l1, dram, quota = grant.issue_share, grant.l1_share, grant.dram_share, grant.quota
    if issue is l1 is dram is quota is None:
        return NO_LIMITS
    return _limit(issue), _limit(l1), _limit(dram), _limit(quota)


def _limit(value: float | None) -> float | None:
    """A limit that a policy may have given in another precision."""
    return None if value is None else float(value)
