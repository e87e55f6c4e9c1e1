"""Maestro: hill climbing by measurement over how to share the GPU, on the SMs or on every SM.

Park, Park, Mahlke, "Dynamic resource management for efficient utilization of multitasking GPUs", ASPLOS'17: direct
measurement of partitions, spatial and SMK both [A]; epochs, neighbours and the rule to keep one as recalled [M] and
completed [D]. The rate of a kernel alone is taken from the model, where the paper needs a sample of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from math import fsum

from gpusim.common.tables import counted
from gpusim.policies.interface import Grant, KernelView, Partition, View, parameter
from gpusim.policies.smk import drf
from gpusim.policies.spatial import Split, even_counts, streams_now
from gpusim.policies.tools.measure import MeasuredKinds, MeasuringPolicy, kinds, steady
from gpusim.policies.tools.mixes import residents_of, unshared, useful_blocks

SPATIAL, INTRA = "spatial", "intra"

Move = tuple[int, int]  # who gives and who takes, as positions among the streams present


@dataclass(frozen=True)
class Config:
    """A way to share: the mode, and steps away from its even start (equal SMs, or dominant-resource fairness)."""

    mode: str
    moves: tuple[Move, ...] = ()


@dataclass
class Search:
    """Hill climbing over configurations for one set of kernels."""

    streams: int  # how many share
    trials: list[Config]  # configurations to measure next, the first one now
    best: Config  # of those measured
    best_stp: float = -1.0  # its measured STP
    climbing: bool = False  # whether the start configurations have been measured and neighbours are tried
    split_only: bool = False  # whether blocks of all on every SM, as they would start, cannot be

    @property
    def current(self) -> Config:
        """The partition to run now."""
        return self.trials[0] if self.trials else self.best

    def measured(self, stp: float, gain: float) -> None:
        """Take note of the STP of the current configuration (below 0: it cannot be) and go on to the next.

        A neighbour replaces the best when its STP is more than ``gain`` above it, and the search goes on from there,
        in the same direction first.
        """
        if not self.trials:
            return
        tried = self.trials.pop(0)
        self.split_only |= stp < 0.0 and tried == Config(INTRA)
        needed = self.best_stp * (1.0 + gain) if self.climbing else self.best_stp
        if stp >= 0.0 and stp > needed:
            self.best, self.best_stp = tried, stp
            if self.climbing:
                self.trials = neighbours(tried, self.streams)
        if not self.trials and not self.climbing:
            self.climbing = True
            self.trials = neighbours(self.best, self.streams)


def neighbours(config: Config, streams: int) -> list[Config]:
    """One step from everyone to everyone else, the direction of the last step first and its reverse left out."""
    moves = list(permutations(range(streams), 2))
    if config.moves:
        last = config.moves[-1]
        moves = [last, *(m for m in moves if m not in (last, (last[1], last[0])))]
    return [Config(config.mode, (*config.moves, move)) for move in moves]


def moved_counts(start: Sequence[int], moves: Sequence[Move], step: int) -> list[int] | None:
    """Counts after some steps; None where someone would have to give its last."""
    counts = list(start)
    for giver, taker in moves:
        counts[giver] -= step
        counts[taker] += step
        if counts[giver] < 1:
            return None
    return counts


@dataclass
class Maestro(MeasuringPolicy):
    """Hill climbing over partitions: one step per epoch, kept if the measured STP is higher."""

    name = "maestro"
    validated_as = ("quota", "green")
    summary = (
        "hill climbing by measured STP, one step per epoch, over the SM split or over blocks per SM, whichever starts "
        "better (Park et al., ASPLOS'17)"
    )
    eps: float = parameter(0.01, "gain in STP, relative, that a step must show to be kept", least=0)
    _searches: dict[MeasuredKinds, Search] = field(default_factory=dict, init=False, repr=False)
    _split: Split = field(default_factory=Split, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Measure the epoch that ends, and go on to the next; a stream that is alone gets everything."""
        streams = streams_now(view)
        if len(streams) < 2:
            self._epochs.forget()
            return unshared(view)
        even = Config(SPATIAL)
        search = self._searches.setdefault(kinds(view), Search(len(streams), [even, Config(INTRA)], even))
        rates = self._epochs.rates(view)
        if rates is not None:
            search.measured(fsum(rates[kernel.id] / _alone(view, kernel) for kernel in view.kernels), self.eps)
        while search.trials and self._grants(view, search.current) is None:
            search.measured(-1.0, self.eps)
        grants = self._grants(view, search.current)
        wake = self._epochs.until_us if search.trials and steady(view) else None
        return Partition(grants or self._split.evenly(view).grants, wake_us=wake)

    def notes(self) -> tuple[str, ...]:
        """The partitions that measured best, and the progress of the searches."""
        started = [search for search in self._searches.values() if search.best_stp >= 0.0]
        spatial = sum(search.best.mode == SPATIAL for search in started)
        unfinished = sum(bool(search.trials) for search in self._searches.values())
        found = (
            (spatial, "an SM split measured best"),
            (len(started) - spatial, "blocks of all on every SM measured best"),
            (sum(search.split_only for search in self._searches.values()), "one block of each does not fit an SM"),
            (unfinished, "the search was cut short"),
        )
        told = (f"{what} for {counted(count, 'set')} of kernels" for count, what in found if count)
        return (*told, *self._split.notes())

    def _grants(self, view: View, config: Config) -> tuple[Grant, ...] | None:
        """The partition of a configuration; None where it cannot be."""
        streams = streams_now(view)
        if config.mode == SPATIAL:
            sms = view.gpu.sm_count
            even = even_counts(sms, len(streams))
            counts = moved_counts(even, config.moves, self.step(sms)) if len(streams) <= sms else None
            return None if counts is None else self._split.share(view, lambda _: counts).grants
        blocks = _blocks(view, list(streams.values()), config.moves)
        if blocks is None:
            return None
        return tuple(Grant(kernel.id, blocks[kernel.id], queue=kernel.id) for kernel in view.kernels)


def _alone(view: View, kernel: KernelView) -> float:
    """Predicted throughput of a kernel alone on the GPU, blocks/us."""
    blocks = useful_blocks(kernel, view.gpu.sm_count)
    return view.solo_rate(kernel.id, blocks) * view.gpu.sm_count


def _blocks(view: View, streams: Sequence[Sequence[KernelView]], moves: Sequence[Move]) -> dict[int, int] | None:
    """Blocks of each kernel on an SM: dominant-resource fairness, then step by step one block more for who takes.

    Who gives loses as many blocks as that takes. None where a kernel would have none, or a step cannot be.
    """
    kernels = list(view.kernels)
    most = [useful_blocks(kernel, view.gpu.sm_count) for kernel in kernels]
    fit = residents_of(view.gpu, kernels)
    counts = drf([kernel.footprint.need for kernel in kernels], view.gpu.limits.capacity, most, fit)
    position = {kernel.id: n for n, kernel in enumerate(kernels)}
    heads = [position[of_stream[0].id] for of_stream in streams]
    for giver, taker in moves:
        gives, takes = heads[giver], heads[taker]
        counts[takes] += 1
        counts[gives] -= 1
        while counts[gives] > 0 and not fit(counts):
            counts[gives] -= 1
        if counts[takes] > most[takes]:
            return None
    return {k.id: count for k, count in zip(kernels, counts, strict=True)} if min(counts) > 0 else None
