"""What a policy has to say of a replay afterwards, in sentences for the result's notes."""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.common.tables import counted


def fallbacks(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Why a policy did something else than its own rule, with the number of decisions in which it did."""
    return tuple(f"{why} ({counted(count, 'decision')})" for why, count in counts.items())


def splits(counts: Mapping[str, int], decisions: int) -> tuple[str, ...]:
    """Why a policy split the SMs instead of mixing kernels on each, and in how many of its decisions."""
    return tuple(f"SMs split in {count} of {counted(decisions, 'decision')}: {why}" for why, count in counts.items())
