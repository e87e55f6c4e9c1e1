"""What a policy has to say of a replay afterwards, in sentences for the result's notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpusim.common.tables import counted
from gpusim.policies.interface import KernelView


@dataclass
class Uncounted:
    """The kernels of which a rule asked for counters, and those of them that have none."""

    _asked: set[int] = field(default_factory=set)
    _without: set[int] = field(default_factory=set)

    def ask(self, kernels: Iterable[KernelView]) -> None:
        """Note that a decision rests on what these kernels demand."""
        for kernel in kernels:
            self._asked.add(kernel.id)
            if not kernel.counted:
                self._without.add(kernel.id)

    def notes(self, consequence: str) -> tuple[str, ...]:
        """What the rule did with kernels without counters, if there were any."""
        if not self._without:
            return ()
        asked = counted(len(self._asked), "kernel")
        return (f"{len(self._without)} of {asked} that shared the GPU had no counters: {consequence}",)


def not_used(sms: int, of: int) -> tuple[str, ...]:
    """A note on SMs that a division gives nobody, if there are any."""
    return (f"{sms} of {of} SMs are in no part",) if sms else ()


def fallbacks(counts: Mapping[str, int], of: int | None = None) -> tuple[str, ...]:
    """Why a policy did something else than its own rule, and how often.

    Args:
        counts: for each reason the decisions in which it did.
        of: decisions that it made, where it followed its rule in the others; None: that is not counted.
    """
    if of is None:
        return tuple(f"{why} ({counted(count, 'decision')})" for why, count in counts.items())
    return tuple(f"{why} ({count:,} of {counted(of, 'decision')})" for why, count in counts.items())
