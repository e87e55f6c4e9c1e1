"""What a policy has to say of a replay afterwards, in sentences for the result's notes."""

from __future__ import annotations

from collections.abc import Mapping


def counted(count: int, what: str) -> str:
    """A number of something: ``1 decision``, ``2 decisions``."""
    return f"{count} {what}{'s' * (count != 1)}"


def fallbacks(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Why a policy did something else than its own rule, with the number of decisions in which it did."""
    return tuple(f"{why} ({counted(count, 'decision')})" for why, count in counts.items())
