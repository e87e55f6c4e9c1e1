"""Measuring partitions by epochs, for policies that try and keep what works better."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum

from gpusim.policies.interface import KernelView, Policy, View, parameter

MeasuredKind = tuple[int, str, float]  # stream, kernel and its time alone: a measurement is of all such launches
MeasuredKinds = tuple[MeasuredKind, ...]
SIXTEENTH = 16  # one SM of the 15 or 16 that GPUs of the time had


def kind(kernel: KernelView) -> MeasuredKind:
    """Identity of a kernel: the same kernels return in loops and restarts."""
    return (kernel.stream_index, kernel.name, kernel.solo_us)


def kinds(view: View) -> MeasuredKinds:
    """The kernels that run now."""
    return tuple(kind(kernel) for kernel in view.kernels)


def steady(view: View) -> bool:
    """Whether every kernel still has blocks to place: what is measured while one runs out says little."""
    return all(kernel.waiting for kernel in view.kernels)


@dataclass
class Epochs:
    """Epochs. In the first half SMs change hands; the second half is measured."""

    length_us: float | None  # of an epoch; None: twice the longest time that a block of the kernels takes
    until_us: float = 0.0  # when to look again
    _kernels: tuple[int, ...] = ()
    _half_us: float = 0.0
    _before: dict[int, float] = field(default_factory=dict)

    def forget(self) -> None:
        """Stop the epoch under way and measure nothing, as no kernels share the GPU."""
        self._kernels = ()

    def rates(self, view: View) -> dict[int, float] | None:
        """Progress (blocks/us) of each kernel in the epoch that ends now; None while one runs or starts anew.

        An epoch starts anew when kernels came or went. One in which a kernel ran out of blocks tells nothing.
        """
        ids = tuple(kernel.id for kernel in view.kernels)
        if ids != self._kernels:
            self._kernels = ids
            self._begin(view)
            return None
        if view.now_us < self.until_us - 1e-9:
            return None
        if not self._before:
            self._before = {kernel.id: fsum(view.progress(kernel.id)) for kernel in view.kernels}
            self.until_us = view.now_us + self._half_us
            return None
        done = {kernel.id: fsum(view.progress(kernel.id)) - self._before[kernel.id] for kernel in view.kernels}
        half_us = self._half_us
        self._begin(view)
        return {kernel: blocks / half_us for kernel, blocks in done.items()} if steady(view) else None

    def _begin(self, view: View) -> None:
        blocks = [kernel.blocks_per_sm / view.solo_rate(kernel.id, kernel.blocks_per_sm) for kernel in view.kernels]
        self._half_us = max(blocks) if self.length_us is None else self.length_us / 2.0
        self._before = {}
        self.until_us = view.now_us + self._half_us


@dataclass
class MeasuringPolicy(Policy):
    """A policy that changes something in steps, measures each for an epoch, and keeps or takes back."""

    epoch_us: float | None = parameter(
        None,
        "length of a step, us; its second half is measured; default twice the longest time that a block of the "
        "kernels takes",
        above=0,
    )
    step_sms: int | None = parameter(None, "SMs moved in a step; default a sixteenth of them", least=1)
    _epochs: Epochs = field(default_factory=lambda: Epochs(None), init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._epochs.length_us = self.epoch_us

    def step(self, sms: int) -> int:
        """SMs moved in a step, of a GPU with so many."""
        return self.step_sms or max(1, sms // SIXTEENTH)
