"""One process at a time: what a GPU does with processes that share it without MPS.

Times and rates are of an H200 with driver 580; experiments/time_slices has each beside its measurement [V]. `IDLE_US`
is assumed [D].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusim.policies.interface import Eviction, Grant, KernelView, Partition, View, parameter
from gpusim.policies.smk import held_bytes
from gpusim.policies.spatial import streams_now
from gpusim.policies.tools.programs import Divides, divided_by

SLICE_US = 2**21 / 1e3  # longest time that a process keeps the GPU from others
SWITCH_US = 137.5  # from the end of the last block of a process until the first block of the next starts
STOP_US = 3.0  # to stop blocks that still run, beside their saving
SAVED_BYTES_PER_US = 11.1e3  # of registers and shared memory that an SM saves
RESTORE_US = 13.0  # to start stopped blocks again, beside their restoring; part of the slice of their process
RESTORED_BYTES_PER_US = 10.6e3  # as `SAVED_BYTES_PER_US`; likewise part of the slice
# A process loses the GPU when it has had nothing to run for so long. That is longer than a memory set between kernels,
# which is not a kernel here, and shorter than a host needs to launch the next one [D].
IDLE_US = 8.0


@dataclass
class TimeSlicing(Divides):
    """Every stream is a process of its own; one has the whole GPU for a slice of time, then the next.

    A slice starts when the process gets the GPU, and ends early when it has no kernel to run. A process that arrives
    waits for the rest of the slice, or gets the GPU at once if the slice is over. Blocks that still run are saved to
    memory, and are restored when the turn of their process comes again.
    """

    name = "time-slicing"
    summary = (
        "streams as processes without MPS: each has the whole GPU for a time slice, and its blocks are saved at the "
        "end; with preempt=true a higher priority starts at once (GPreempt, Fan et al., ATC'25)"
    )
    single_stream = True
    sharing_limit = "time slices"
    slice_us: float = parameter(SLICE_US, "longest time that a stream keeps the GPU from others", above=0)
    switch_us: float = parameter(
        SWITCH_US,
        "time of a switch to another stream, beside saving blocks; the stream before counts as idle after 8 us",
        least=0,
    )
    preempt: bool = parameter(False, "a stream of higher priority gets the GPU at once and keeps it")
    by: str | None = divided_by(None)
    _holder: int | None = field(default=None, init=False, repr=False)  # who has the GPU, or gets it next; None: nobody
    _from_us: float = field(default=0.0, init=False, repr=False)  # when it gets the GPU; until then nobody has it
    _idle_from_us: float | None = field(default=None, init=False, repr=False)  # since when it has nothing to run
    _switches: int = field(default=0, init=False, repr=False)
    _switching_us: float = field(default=0.0, init=False, repr=False)  # time in which nobody had the GPU
    _unequal: bool = field(default=False, init=False, repr=False)  # streams of several priorities have met

    def partition(self, view: View) -> Partition:
        """Keep the process that has the GPU, or save its blocks and take the next."""
        if view.now_us < self._from_us:
            return Partition((), wake_us=self._from_us)
        present = streams_now(view)
        entitled = self._entitled(present)
        if self._holder is None:
            self._holder, self._from_us = min(entitled), view.now_us
        holder = self._holder
        if holder in present:
            self._idle_from_us = None
        elif self._idle_from_us is None:
            self._idle_from_us = view.now_us
        others = entitled - {holder}
        loses_us = self._loses_us(holder in entitled, view.now_us) if others else None
        if loses_us is not None and view.now_us >= loses_us:
            next_one = min(others, key=lambda stream: (stream <= holder, stream))
            return self._switch(view, present.get(holder, []), next_one, present[next_one])
        return _granted(present.get(holder, []), loses_us)

    def notes(self) -> tuple[str, ...]:
        """Report the number of switches and the time that they took, and whether no stream was preempted."""
        found = []
        if self._switches:
            found.append(f"{self._switches} switches between processes took {self._switching_us:,.0f} us")
        if self.preempt and not self._unequal:
            found.append("no kernels of several priorities met: there was nobody to preempt")
        return tuple(found)

    def _switch(self, view: View, old: Sequence[KernelView], stream: int, new: Sequence[KernelView]) -> Partition:
        """Give the GPU to a stream with its kernels, after the blocks of the old ones are saved."""
        evictions, saving_us = _saved(view, old)
        lost_us = view.now_us if self._idle_from_us is None else self._idle_from_us
        self._holder, self._idle_from_us = stream, None
        self._from_us = max(view.now_us, lost_us + self.switch_us + saving_us)
        self._switches += 1
        self._switching_us += self._from_us - lost_us
        if self._from_us > view.now_us:
            return Partition((), evictions, wake_us=self._from_us)
        return _granted(new)

    def _entitled(self, present: Mapping[int, Sequence[KernelView]]) -> set[int]:
        """The streams that may have the GPU: all that have something to run, or those of the highest priority."""
        if not self.preempt:
            return set(present)
        priority = {stream: max(kernel.priority for kernel in kernels) for stream, kernels in present.items()}
        self._unequal |= len(set(priority.values())) > 1
        return {stream for stream, its in priority.items() if its == max(priority.values())}

    def _loses_us(self, entitled: bool, now_us: float) -> float:
        """When the process that has the GPU loses it to another: after its slice, or when it was idle for some time."""
        if self._idle_from_us is None:
            return self._from_us + self.slice_us if entitled else now_us
        return min(self._from_us + self.slice_us, self._idle_from_us + IDLE_US)


def _granted(kernels: Sequence[KernelView], wake_us: float | None = None) -> Partition:
    return Partition(tuple(Grant(kernel.id) for kernel in kernels), wake_us=wake_us)


def _saved(view: View, kernels: Sequence[KernelView]) -> tuple[tuple[Eviction, ...], float]:
    """Evict all blocks of a process, and return the time that it takes: all SMs save at the same time."""
    resident = {kernel.id: view.residents(kernel.id) for kernel in kernels if kernel.resident}
    if not resident:
        return (), 0.0
    each = {kernel.id: held_bytes(kernel.footprint) for kernel in kernels}
    held = [sum(each[id] * blocks[sm] for id, blocks in resident.items()) for sm in range(view.gpu.sm_count)]
    evictions = tuple(
        Eviction(id, sm, count, RESTORE_US + held[sm] / RESTORED_BYTES_PER_US)
        for id, blocks in resident.items()
        for sm, count in enumerate(blocks)
        if count
    )
    return evictions, STOP_US + max(held) / SAVED_BYTES_PER_US
