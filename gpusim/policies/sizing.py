"""SM splits that give a stream no more SMs than it needs: within a tolerance of its time alone, or by a deadline.

The ideas are from the papers' abstracts [A]; the searches, which ask the model where the papers ask profiles, are ours
[D].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import fsum

from gpusim.policies.inference import NONE_CRITICAL
from gpusim.policies.interface import KernelView, Partition, Policy, View
from gpusim.policies.spatial import Split, even_counts, proportional_counts, streams_now, time_on
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.values import wrong


def fewest_sms(most: int, fast_enough: Callable[[int], bool]) -> int:
    """The fewest SMs, from 1 to ``most``, that are fast enough; ``most`` where none are."""
    return next((sms for sms in range(1, most) if fast_enough(sms)), most)


def sms_needed(view: View, kernels: Sequence[KernelView], slowdown: float, most: int) -> int:
    """The fewest SMs, at most ``most``, on which kernels take no longer than ``slowdown`` times as on all SMs.

    Counted is what is left of each kernel, alone, one after the other.
    """

    def time_us(sms: int) -> float:
        return fsum(time_on(view, kernel, sms) for kernel in kernels)

    allowed_us = slowdown * time_us(view.gpu.sm_count)
    return fewest_sms(most, lambda sms: time_us(sms) <= allowed_us)


@dataclass
class RightSize(Policy):
    """Each stream gets the fewest SMs on which its kernels take hardly longer than on all.

    SMs that nobody needs are spread evenly. Where the sizes exceed the GPU, all shrink in proportion.
    """

    name = "right-size"
    summary = (
        "SM split: each stream has the fewest SMs within a tolerance of its kernels' time on all (KRISP, Chow et al., "
        "HPCA'23; LithOS, Coppock et al., SOSP'25)"
    )
    family = "inter-sm"
    tolerance: float = field(default=0.05, metadata={"help": "time over that on all SMs, as a share of it"})
    _split: Split = field(default_factory=Split, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not 0.0 <= self.tolerance < float("inf"):
            raise wrong(self.name, f"tolerance={self.tolerance} is no share", "0 or more")

    def partition(self, view: View) -> Partition:
        """Size every stream that has kernels."""
        return self._split.share(view, lambda streams: self._counts(view, streams))

    def notes(self) -> tuple[str, ...]:
        """Whether streams waited for SMs of their own."""
        return self._split.notes()

    def _counts(self, view: View, streams: list[list[KernelView]]) -> list[int]:
        all_sms = view.gpu.sm_count
        sizes = [sms_needed(view, kernels, 1.0 + self.tolerance, all_sms) for kernels in streams]
        spare = all_sms - sum(sizes)
        if spare < 0:
            return proportional_counts(all_sms, sizes)
        return [size + more for size, more in zip(sizes, even_counts(spare, len(sizes)), strict=True)]


@dataclass
class LatencyTarget(Policy):
    """Streams of priority above 0 get the fewest SMs that end their pass in time; the others share the rest evenly.

    In time is within ``slowdown`` times what the pass takes alone, from its release. What is still to come of a pass is
    taken to slow down on fewer SMs as the kernels at hand do.
    """

    name = "latency-target"
    summary = (
        "SM split: latency-critical streams (priority above 0) have the fewest SMs that hold a latency target, the "
        "others the rest (after Nexus, Shen et al., SOSP'19, and Bullet, Lin et al., 2025)"
    )
    family = "inter-sm"
    slowdown: float = field(default=1.25, metadata={"help": "latency to hold, over that of the pass alone"})
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _alone_us: dict[tuple[int, float], float] = field(default_factory=dict, init=False, repr=False)
    _met_critical: bool = field(default=False, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters."""
        if not self.slowdown >= 1.0:
            raise wrong(self.name, f"slowdown={self.slowdown} is below 1", "1 or more")

    def partition(self, view: View) -> Partition:
        """Size the critical streams by what they have left and how long they have for it."""
        budgets = self._budgets(view)
        if len(streams_now(view)) < 2:
            return unshared(view)
        return self._split.share(view, lambda streams: self._counts(view, streams, budgets))

    def notes(self) -> tuple[str, ...]:
        """Whether there was no target to hold, and whether streams waited for SMs of their own."""
        return (*(() if self._met_critical else (NONE_CRITICAL,)), *self._split.notes())

    def _budgets(self, view: View) -> dict[int, float]:
        """For each stream with work: how much longer than alone what is left of its pass may take, a factor."""
        left_us: dict[tuple[int, float], float] = {}
        for operation in view.operations():
            work = (operation.stream_index, operation.release_us)
            left_us[work] = left_us.get(work, 0.0) + operation.left_us
        found = {}
        for (stream, release_us), left in left_us.items():
            alone_us = self._alone_us.setdefault((stream, release_us), left)
            deadline_us = release_us + self.slowdown * alone_us
            found[stream] = (deadline_us - view.now_us) / left if left > 0.0 else float("inf")
        return found

    def _counts(self, view: View, streams: list[list[KernelView]], budgets: dict[int, float]) -> list[int]:
        """SMs of each stream; every other gets one at least."""
        counts = [0] * len(streams)
        urgent = [i for i, kernels in enumerate(streams) if kernels[0].priority > 0]
        self._met_critical |= bool(urgent)
        free = view.gpu.sm_count
        for rank, i in enumerate(sorted(urgent, key=lambda i: -streams[i][0].priority)):
            most = free - (len(streams) - rank - 1)
            counts[i] = sms_needed(view, streams[i], budgets[streams[i][0].stream_index], most)
            free -= counts[i]
        rest = [i for i in range(len(streams)) if not counts[i]] or urgent
        for i, more in zip(rest, even_counts(free, len(rest)), strict=True):
            counts[i] += more
        return counts
