"""Effect of a policy's grant on a kernel: blocks on each SM, and limits."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.policies.interface import Grant

Limits = tuple[float | None, float | None, float | None, float | None]  # shares of issue slots, L1, DRAM; quota
NO_LIMITS: Limits = (None, None, None, None)


def caps_of(grant: Grant, blocks_per_sm: int, sms: int) -> list[int]:
    """Most blocks on each SM that a grant allows a kernel, at most ``blocks_per_sm``."""
    if grant.per_sm is not None:
        return [min(cap, blocks_per_sm) for cap in grant.per_sm]
    most = blocks_per_sm if grant.blocks_per_sm is None else min(grant.blocks_per_sm, blocks_per_sm)
    if grant.sms is None:
        return [most] * sms
    return [most if sm in grant.sms else 0 for sm in range(sms)]


def limits_of(grant: Grant) -> Limits:
    """Shares of issue slots, L1 and DRAM and the quota that a grant holds its kernel to; None: no limit."""
    issue, l1, dram, quota = grant.issue_share, grant.l1_share, grant.dram_share, grant.quota
    if issue is l1 is dram is quota is None:
        return NO_LIMITS
    return _limit(issue), _limit(l1), _limit(dram), _limit(quota)


def _limit(value: float | None) -> float | None:
    """A limit that a policy may have given in another precision."""
    return None if value is None else float(value)


def limits_met(grant: Grant, caps: Sequence[int], blocks_per_sm: int) -> set[str]:
    """Which of `gpusim.results.runs.LIMITS` a grant holds its kernel to; one that may place nothing only waits."""
    found = {"shares"} if limits_of(grant) != NO_LIMITS else set[str]()
    if grant.blocks_per_sm is None and grant.sms is None and grant.per_sm is None:
        return found
    different = set(caps)
    if different == {0}:
        return set()
    if 0 in different:
        found.add("SMs")
    if any(0 < cap < blocks_per_sm for cap in different):
        found.add("blocks")
    return found
