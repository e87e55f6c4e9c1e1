"""Notes of a policy on a replay, in sentences."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpusim.common.tables import counted
from gpusim.policies.interface import KernelView


@dataclass
class Uncounted:
    """Kernels whose counters a rule needs, and those that have none."""

    _asked: set[int] = field(default_factory=set)
    _without: set[int] = field(default_factory=set)

    def ask(self, kernels: Iterable[KernelView]) -> None:
        """Note that a decision rests on what these kernels demand."""
        for kernel in kernels:
            self._asked.add(kernel.id)
            if not kernel.counted:
                self._without.add(kernel.id)

    def notes(self, consequence: str) -> tuple[str, ...]:
        """Return a note on the kernels without counters, if there were any."""
        if not self._without:
            return ()
        asked = counted(len(self._asked), "kernel")
        return (f"{len(self._without)} of {asked} that shared the GPU had no counters: {consequence}",)


def not_used(sms: int, of: int) -> tuple[str, ...]:
    """A note on SMs that a division gives nobody, if there are any."""
    return (f"{sms} of {of} SMs are in no part",) if sms else ()


def fallbacks(counts: Mapping[str, int]) -> tuple[str, ...]:
    """Why a policy did something else than its own rule, with the number of decisions in which it did."""
    return tuple(f"{why} ({counted(count, 'decision')})" for why, count in counts.items())


def splits(counts: Mapping[str, int], decisions: int) -> tuple[str, ...]:
    """Why a policy split the SMs instead of mixing kernels on each, and in how many of its decisions."""
    return tuple(f"SMs split in {count} of {counted(decisions, 'decision')}: {why}" for why, count in counts.items())
