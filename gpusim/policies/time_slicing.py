"""One process at a time: what a GPU does with processes that share it without MPS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusim.policies.interface import Eviction, Grant, KernelView, Partition, View, parameter
from gpusim.policies.smk import context_us
from gpusim.policies.spatial import streams_now
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.programs import Divides, divided_by


@dataclass
class TimeSlicing(Divides):
    """Every stream is a process of its own; one has the whole GPU for a slice of time, then the next.

    A slice ends early when its process has no kernel left; one that arrives waits for the rest of the slice. At the end
    of a slice all blocks are saved to memory, each SM its own one after the other, before the next process starts; they
    are restored when theirs comes again. Measured and refuted: the GPU does not yield when the process that has it is
    idle (experiments/geisler).
    """

    name = "time-slicing"
    summary = (
        "streams as processes without MPS: each has the whole GPU for a time slice, and its blocks are saved at the "
        "end; with preempt=true a higher priority starts at once (GPreempt, Fan et al., ATC'25)"
    )
    refuted = "four processes on an H200 took 5.3 ms where it says 0.8 ms (experiments/geisler)"
    single_stream = True
    slice_us: float = parameter(2000.0, "longest time that a stream keeps the GPU from others", above=0)
    preempt: bool = parameter(False, "a stream of higher priority gets the GPU at once and keeps it")
    by: str | None = divided_by(None)
    _holder: int = field(default=-1, init=False, repr=False)
    _until_us: float | None = field(default=None, init=False, repr=False)  # end of the slice; None: nobody waits
    _saved_us: float = field(default=0.0, init=False, repr=False)  # when all that left is saved
    _switches: int = field(default=0, init=False, repr=False)
    _unequal: bool = field(default=False, init=False, repr=False)  # streams of several priorities have met

    def partition(self, view: View) -> Partition:
        """Keep the process that has the GPU, or save its blocks and take the next."""
        present = streams_now(view)
        if len(present) < 2 and view.now_us >= self._saved_us:
            self._holder, self._until_us = next(iter(present), self._holder), None
            return unshared(view)
        chosen = self._chosen(view, present)
        evictions: tuple[Eviction, ...] = ()
        if chosen != self._holder:
            evictions = self._save(view, present.get(self._holder, ()))
            self._holder, self._until_us = chosen, max(view.now_us, self._saved_us) + self.slice_us
        elif self._until_us is None or view.now_us >= self._until_us:  # the first to have to share it, or to keep it
            self._until_us = view.now_us + self.slice_us
        if view.now_us < self._saved_us:
            return Partition((), evictions, wake_us=self._saved_us)
        grants = tuple(Grant(kernel.id) for kernel in present[chosen])
        return Partition(grants, evictions, wake_us=self._until_us)

    def notes(self) -> tuple[str, ...]:
        """Report the number of context switches that saved blocks, and whether no stream was preempted."""
        found = [f"{self._switches} switches between processes saved blocks"] if self._switches else []
        if self.preempt and not self._unequal:
            found.append("no kernels of several priorities met: there was nobody to preempt")
        return tuple(found)

    def _chosen(self, view: View, present: dict[int, list[KernelView]]) -> int:
        """The stream that has the GPU now."""
        among = list(present)
        if self.preempt:
            priority = {stream: max(kernel.priority for kernel in kernels) for stream, kernels in present.items()}
            self._unequal |= len(set(priority.values())) > 1
            among = [stream for stream in among if priority[stream] == max(priority.values())]
        if self._holder in among and (self._until_us is None or view.now_us < self._until_us):
            return self._holder
        return min(among, key=lambda stream: (stream <= self._holder, stream))

    def _save(self, view: View, kernels: Sequence[KernelView]) -> tuple[Eviction, ...]:
        """Take all blocks of a process off the SMs."""
        found = [
            Eviction(kernel.id, sm, held, context_us(kernel, view.gpu))
            for kernel in kernels
            for sm, held in enumerate(view.residents(kernel.id))
            if held
        ]
        per_sm = [0.0] * view.gpu.sm_count
        for eviction in found:
            per_sm[eviction.sm] += eviction.blocks * eviction.cost_us
        self._saved_us = view.now_us + max(per_sm)
        self._switches += bool(found)
        return tuple(found)
