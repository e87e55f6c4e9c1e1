"""TPCs that have an owner and are lent while it does not need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import IN_ORDER, Partition, Policy, View, parameter
from gpusim.policies.spatial import confined, even_counts, in_a_row, sm_counts, streams_now
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.notes import not_used
from gpusim.policies.tools.values import for_each, wrong


@dataclass
class TpcStealing(Policy):
    """Every stream owns TPCs; while it has no block waiting, its TPCs are lent to streams that have some.

    A TPC comes back as soon as the blocks that run there end: a kernel can be stopped between any two blocks [D].
    LithOS cuts it into slices of several blocks, whose end the owner waits for; cutting costs nothing here. Tally cuts
    kernels, too, but its best-effort work runs where and while no other does: nobody owns TPCs there.
    """

    name = "tpc-stealing"
    summary = (
        "SM split by TPC: the TPCs of a stream without waiting blocks are lent to others, and return when the blocks "
        "there end; kernels can stop between any two blocks (a shadow of LithOS, Coppock et al., SOSP'25)"
    )
    family = "inter-sm"
    sms: str | None = parameter(
        None, "SMs that each stream owns, in the order of the trace, as 64+68; default even", of_streams=IN_ORDER
    )
    _owned: list[list[int]] = field(default_factory=list, init=False, repr=False)  # TPCs of each stream
    _unused: tuple[str, ...] = field(default=(), init=False, repr=False)

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Give each stream its TPCs, the first ones to the first stream."""
        tpcs = gpu.sm_count // gpu.sms_per_tpc
        if len(streams) > tpcs:
            raise wrong(self.name, f"has {for_each('TPC', tpcs, streams)}", "no more streams than TPCs")
        counts = even_counts(tpcs, len(streams))
        if self.sms is not None:
            asked = sm_counts(self.name, self.sms, gpu, streams, by=False)
            odd = next((sms for sms in asked if sms % gpu.sms_per_tpc), None)
            if odd is not None:
                raise wrong(self.name, f"sms={self.sms} cuts a TPC", f"multiples of {gpu.sms_per_tpc} SMs")
            counts = [sms // gpu.sms_per_tpc for sms in asked]
        self._owned = [sorted(part) for part in in_a_row(counts)]
        self._unused = not_used(gpu.sm_count - sum(counts) * gpu.sms_per_tpc, gpu.sm_count)

    def partition(self, view: View) -> Partition:
        """Give each stream its own TPCs, and streams with waiting blocks the idle TPCs of others."""
        present = streams_now(view)
        if len(present) < 2:
            return unshared(view)
        held = {stream: list(self._owned[stream]) for stream in present}
        wanting = [stream for stream, kernels in present.items() if any(kernel.waiting for kernel in kernels)]
        idle = [tpc for stream, tpcs in enumerate(self._owned) if stream not in wanting for tpc in tpcs]
        wanting.sort(key=lambda stream: (-present[stream][0].priority, stream))
        for i, tpc in enumerate(idle if wanting else ()):
            held[wanting[i % len(wanting)]].append(tpc)
        width = view.gpu.sms_per_tpc
        sms = {
            stream: frozenset(tpc * width + i for tpc in tpcs for i in range(width)) for stream, tpcs in held.items()
        }
        return confined(view, sms, drain=True)

    def notes(self) -> tuple[str, ...]:
        """Whether SMs are nobody's while several streams share the GPU."""
        return self._unused
