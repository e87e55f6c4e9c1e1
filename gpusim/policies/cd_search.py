"""CD-Search: classify kernels by their demand for bandwidth off the SM, then search an SM split from there.

Zhao, Wang, Eeckhout, "Classification-driven search for effective SM partitioning in multitasking GPUs", ICS'18:
classification by an off-SM bandwidth model, a performance and a power mode [A]; the rules below as recalled [M] and
completed [D].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum

from gpusim.common.tables import counted
from gpusim.policies.interface import KernelView, Partition, View, parameter
from gpusim.policies.spatial import Split, confined, even_counts, layout, streams_now
from gpusim.policies.tools.measure import MeasuredKinds, MeasuringPolicy, kinds, steady
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.notes import Uncounted


@dataclass
class Walk:
    """SM counts of one set of kernels, on the way from the even split."""

    counts: list[int]  # SMs of each stream present; less than all in power mode
    givers: list[int]  # streams that may give SMs, by position
    takers: list[int]  # streams that get them; none: the SMs are turned off
    # measured progress (blocks/us) of each stream at the even split; None: not measured yet
    start: list[float] | None = None
    undo: list[int] | None = None  # counts before the last step
    _last: int = -1

    @property
    def searching(self) -> bool:
        """Whether there is a step left to try or to judge."""
        return bool(self.givers) or self.undo is not None

    def measured(self, progress: Sequence[float], drop: float, step: int) -> None:
        """Judge the last step by each stream's progress, and take the next.

        A step after which a giver is more than ``drop`` (relative) below its start is taken back, and that stream
        gives no more.
        """
        if self.start is None:
            self.start = list(progress)
        elif self.undo is not None:
            if progress[self._last] < (1.0 - drop) * self.start[self._last]:
                self.counts = self.undo
                self.givers.remove(self._last)
            self.undo = None
        self._take(step)

    def _take(self, step: int) -> None:
        self.givers = [i for i in self.givers if self.counts[i] > step]
        if not self.givers:
            return
        self._last = max(self.givers, key=lambda i: (self.counts[i], -i))
        self.undo = list(self.counts)
        self.counts[self._last] -= step
        if self.takers:
            self.counts[min(self.takers, key=lambda i: (self.counts[i], i))] += step


@dataclass
class CDSearch(MeasuringPolicy):
    """An SM split that takes SMs from kernels which off-SM bandwidth holds back, as long as they do not mind."""

    name = "cd-search"
    validated_as = ("green", "sm_curve")
    family = "inter-sm"
    summary = (
        "SM split that moves SMs step by step from memory-bound to compute-bound kernels as long as the former keep "
        "their speed, or turns them off (Zhao et al., ICS'18)"
    )
    mode: str = parameter(
        "performance",
        "performance (SMs go to compute-bound kernels) or power (SMs are turned off)",
        one_of=("performance", "power"),
    )
    drop: float = parameter(0.03, "loss of speed, relative, at which a step is taken back", least=0, below=1)
    _walks: dict[MeasuredKinds, Walk] = field(default_factory=dict, init=False, repr=False)
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _uncounted: Uncounted = field(default_factory=Uncounted, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Judge the step that ends and take the next; a stream that is alone gets everything."""
        streams = list(streams_now(view).values())
        sms = view.gpu.sm_count
        if len(streams) < 2:
            self._epochs.forget()
            return unshared(view)
        if len(streams) > sms:
            return self._split.evenly(view)
        key = kinds(view)
        if key not in self._walks:
            self._walks[key] = self._walk(streams, sms)
        walk = self._walks[key]
        rates = self._epochs.rates(view)
        if rates is not None and walk.searching:
            progress = [fsum(rates[kernel.id] for kernel in kernels) for kernels in streams]
            walk.measured(progress, self.drop, self.step(sms))
        wake = self._epochs.until_us if walk.searching and steady(view) else None
        counts = {kernels[0].stream_index: count for kernels, count in zip(streams, walk.counts, strict=True)}
        self._split.held = layout(counts, self._split.held, sms)
        mine = {stream: frozenset(held) for stream, held in self._split.held.items()}
        return Partition(confined(view, mine, drain=True).grants, wake_us=wake)

    def notes(self) -> tuple[str, ...]:
        """For how many sets of kernels there was nothing to move or no time to, and whether counters were missing."""
        fixed = sum(walk.start is None and not walk.givers for walk in self._walks.values())
        kept = f"even SM split kept for {counted(fixed, 'set')} of kernels: nobody to take SMs from, or to give them to"
        begun = sum(walk.searching for walk in self._walks.values())
        cut = f"the search was cut short for {counted(begun, 'set')} of kernels"
        uncounted = self._uncounted.notes("these counted as compute-bound")
        return (*((kept,) if fixed else ()), *((cut,) if begun else ()), *uncounted, *self._split.notes())

    def _walk(self, streams: Sequence[Sequence[KernelView]], sms: int) -> Walk:
        """Where the search starts: who gives SMs, and who gets them."""
        self._uncounted.ask(kernel for kernels in streams for kernel in kernels)
        memory = [i for i, kernels in enumerate(streams) if any(memory_bound(kernel) for kernel in kernels)]
        compute = [i for i in range(len(streams)) if i not in memory]
        counts = even_counts(sms, len(streams))
        if self.mode == "power":
            return Walk(counts, memory, [])
        return Walk(counts, memory if compute else [], compute)


def memory_bound(kernel: KernelView) -> bool:
    """Whether a kernel at an even split demands no less off-SM bandwidth than an even share of it [M/D].

    With 1/K of the SMs its demand is 1/K of that on all of them, so K cancels.
    """
    return max(kernel.dram_load, kernel.l2_load) >= 1.0
