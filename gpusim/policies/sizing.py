"""SM splits that give a stream no more SMs than it needs: within a tolerance of its isolated time, or by a deadline.

The ideas are from the papers' abstracts [A]; the searches, which ask the model where the papers ask profiles, are ours
[D].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum, inf

from gpusim.common.tables import counted
from gpusim.policies.inference import NONE_CRITICAL
from gpusim.policies.interface import KernelView, Partition, PassView, Policy, View, parameter
from gpusim.policies.spatial import Split, even_counts, proportional_counts, streams_now, time_on
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.notes import fallbacks
from gpusim.policies.tools.programs import Divides

LATE = 1.0 + 1e-6  # of a deadline: from there on a pass has missed it by more than rounding


def sms_needed(view: View, kernels: Sequence[KernelView], slowdown: float, most: int) -> int:
    """The fewest SMs, at most ``most``, on which kernels take no longer than ``slowdown`` times as on all SMs.

    The time is of the remaining work of each kernel, isolated, one after the other.
    """

    def time_us(sms: int) -> float:
        return fsum(time_on(view, kernel, sms) for kernel in kernels)

    allowed_us = slowdown * time_us(view.gpu.sm_count)
    return next((sms for sms in range(1, most) if time_us(sms) <= allowed_us), most)


@dataclass
class RightSize(Policy):
    """Each stream gets the fewest SMs on which its kernels take little longer than on all.

    SMs that nobody needs are spread evenly. Where the sizes exceed the GPU, all shrink in proportion.
    """

    name = "right-size"
    summary = (
        "SM split: each stream has the fewest SMs on which its kernels are within a tolerance of their time on all "
        "SMs; SM sets never overlap (a shadow of KRISP, Chow et al., HPCA'23, and LithOS, Coppock et al., SOSP'25)"
    )
    family = "inter-sm"
    tolerance: float = parameter(0.05, "additional time, relative to that on all SMs", least=0, below=inf)
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _fell_back: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Size every stream that has kernels."""
        return self._split.share(view, lambda streams: self._counts(view, streams))

    def notes(self) -> tuple[str, ...]:
        """How often the GPU was too small for the sizes, and whether streams waited for SMs of their own."""
        return (*fallbacks(self._fell_back), *self._split.notes())

    def _counts(self, view: View, streams: list[list[KernelView]]) -> list[int]:
        all_sms = view.gpu.sm_count
        sizes = [sms_needed(view, kernels, 1.0 + self.tolerance, all_sms) for kernels in streams]
        spare = all_sms - sum(sizes)
        if spare < 0:
            self._fell_back["sizes shrunk: streams need more SMs within the tolerance than there are"] += 1
            return proportional_counts(all_sms, sizes)
        return [size + more for size, more in zip(sizes, even_counts(spare, len(sizes)), strict=True)]


PassKey = tuple[int, float]  # position of a stream, and when its pass was released


@dataclass
class Deadlines:
    """The passes of latency-critical streams, and which of them end later than they should."""

    slowdown: float  # time that a pass may take from its release, over its work
    _known: set[PassKey] = field(default_factory=set)
    _late: set[PassKey] = field(default_factory=set)

    def budget(self, now_us: float, of: PassView) -> float:
        """Slowdown that the remaining work of a pass may have and still be in time."""
        return (self._end_us(of) - now_us) / of.left_us if of.left_us > 0.0 else inf

    def look(self, view: View, passes: Mapping[int, PassView]) -> float | None:
        """Note the passes that miss their deadline even if the remaining work runs isolated; return when to look again.

        That is as soon as another pass is late if it has not ended by then; None: no need.
        """
        self._known.update(
            (kernel.stream_index, passes[kernel.stream_index].release_us)
            for kernel in view.kernels
            if kernel.priority > 0
        )
        ends = []
        for stream, of in passes.items():
            key, end_us = (stream, of.release_us), self._end_us(of) * LATE
            if key in self._known and key not in self._late:
                if view.now_us + of.left_us > end_us:
                    self._late.add(key)
                elif view.now_us < end_us:
                    ends.append(end_us)
        return min(ends, default=None)

    def notes(self) -> tuple[str, ...]:
        """How many passes were late, if any were."""
        if not self._late:
            return ()
        late = f"{len(self._late):,} of {counted(len(self._known), 'latency-critical request')}"
        return (f"target missed: {late} took more than {self.slowdown:g} times its isolated time",)

    def _end_us(self, of: PassView) -> float:
        return of.release_us + self.slowdown * of.alone_us


@dataclass
class LatencyTarget(Divides):
    """Streams of priority above 0 get the fewest SMs that end their pass in time; the others share the rest evenly.

    A pass is in time if it ends within ``slowdown`` times its isolated time, from its release. The remaining work of a
    pass is assumed to slow down on fewer SMs as the current kernels do.
    """

    name = "latency-target"
    summary = (
        "SM split: latency-critical streams (priority above 0) have the fewest SMs that hold a latency target, the "
        "others the rest (a shadow of Bullet, Lin et al., 2025; the rule is ours)"
    )
    family = "inter-sm"
    slowdown: float = parameter(1.25, "latency target, relative to the isolated pass", least=1)
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _deadlines: Deadlines = field(default_factory=lambda: Deadlines(1.0), init=False, repr=False)
    _met_critical: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._deadlines.slowdown = self.slowdown

    def partition(self, view: View) -> Partition:
        """Size the critical streams by their remaining work and the time left for it."""
        passes = view.passes()
        look_us = self._deadlines.look(view, passes)
        if len(streams_now(view)) < 2:
            shared = unshared(view)
        else:
            shared = self._split.share(view, lambda streams: self._counts(view, streams, passes))
        return replace(shared, wake_us=look_us if self._met_critical else None)

    def notes(self) -> tuple[str, ...]:
        """Whether there was a target to hold, whether it was held, and whether streams waited for SMs of their own."""
        none = () if self._met_critical else (NONE_CRITICAL,)
        return (*none, *self._deadlines.notes(), *self._split.notes())

    def _counts(self, view: View, streams: list[list[KernelView]], passes: Mapping[int, PassView]) -> list[int]:
        """SMs of each stream; every other gets one at least."""
        counts = [0] * len(streams)
        urgent = [i for i, kernels in enumerate(streams) if kernels[0].priority > 0]
        self._met_critical |= bool(urgent)
        free = view.gpu.sm_count
        for rank, i in enumerate(sorted(urgent, key=lambda i: -streams[i][0].priority)):
            most = free - (len(streams) - rank - 1)
            budget = self._deadlines.budget(view.now_us, passes[streams[i][0].stream_index])
            counts[i] = sms_needed(view, streams[i], budget, most)
            free -= counts[i]
        rest = [i for i in range(len(streams)) if not counts[i]] or urgent
        for i, more in zip(rest, even_counts(free, len(rest)), strict=True):
            counts[i] += more
        return counts
