"""Simultaneous multikernel (SMK): blocks of all kernels on every SM by dominant-resource fairness.

Wang, Yang, Melhem, Childers, Zhang, Guo, "Simultaneous multikernel GPU: multi-tasking throughput processors via
fine-grained sharing", HPCA'16 (results [A], algorithm as recalled [M]). Time of a partial context switch [D]. In the
paper an epoch of warp quotas also ends early, before all quotas are spent [M]; here a round lasts until all are. So
`mode=p+w` costs more here than in the paper, and that it loses to `mode=p` says nothing about the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush

from gpusim.hardware.gpu import GPU
from gpusim.model.occupancy import Footprint, most_resident
from gpusim.policies.interface import Eviction, Grant, KernelView, Partition, Policy, View, parameter
from gpusim.policies.spatial import streams_now
from gpusim.policies.tools.memory import NO_LIMIT, mitigated, mitigation
from gpusim.policies.tools.mixes import Fits, Resources, residents_of, unshared, useful_blocks
from gpusim.policies.tools.notes import Uncounted, fallbacks

BYTES_PER_REGISTER = 4


def dominant_share(needs: Resources, room: Resources, blocks: int) -> float:
    """Largest share of any resource of an SM that some blocks of a kernel hold."""
    return max(blocks * used / total for used, total in zip(needs, room, strict=True))


def drf(needs: Sequence[Resources], room: Resources, most: Sequence[int], fit: Fits) -> list[int]:
    """Return blocks of each kernel on an SM by dominant-resource fairness, at most as many as are worth having.

    One block at a time for the kernel whose dominant share is smallest; one whose next block does not fit gets no more,
    the others go on; of equal shares the first.
    """
    counts = [0] * len(needs)
    growing = [(0.0, i) for i in range(len(needs)) if most[i] > 0]  # a heap: dominant shares, and whose they are
    while growing:
        _, i = heappop(growing)
        counts[i] += 1
        if not fit(counts):
            counts[i] -= 1
        elif counts[i] < most[i]:
            heappush(growing, (dominant_share(needs[i], room, counts[i]), i))
    return counts


def held_bytes(block: Footprint) -> int:
    """Registers and shared memory that a block holds."""
    return block.registers * BYTES_PER_REGISTER + block.shared_memory_bytes


def context_us(kernel: KernelView, gpu: GPU) -> float:
    """Time to save one block, or to restore it, at an SM's share of the DRAM bandwidth."""
    bytes_per_us = gpu.model.dram_sustained_gb_per_s * 1e3 / gpu.sm_count
    return held_bytes(kernel.footprint) / bytes_per_us


def warp_quota(view: View, kernel: KernelView) -> float:
    """Quota of a kernel on an SM, in proportion to its rate alone: what it does of its blocks in a microsecond.

    The paper's quotas count warp instructions; the warps of a kernel that has spent its own wait until all kernels of
    the SM have [M]. Instructions and blocks of one kernel are in proportion. A grid that cannot fill the GPU is alone
    on it with fewer blocks an SM [D].
    """
    blocks = most_resident(kernel.blocks, kernel.blocks_per_sm, view.gpu.sm_count)
    return view.solo_rate(kernel.id, blocks)


@dataclass
class SMK(Policy):
    """Dominant-resource fairness on every SM; blocks are switched out when a newcomer's share is taken."""

    name = "smk"
    family = "intra-sm"
    summary = (
        "blocks of all kernels on every SM by dominant-resource fairness, partial context switch for newcomers, "
        "warp quotas in proportion to solo rates (Wang et al., HPCA'16)"
    )
    mode: str = parameter("p+w", "p (partition only) or p+w (and warp quotas)", one_of=("p", "p+w"))
    preempt: str = parameter(
        "switch",
        "switch (blocks above their share are saved and go on later) or drain",
        one_of=("switch", "drain"),
    )
    mitigation: str = mitigation()
    _saving_until_us: dict[int, float] = field(default_factory=dict, init=False, repr=False)  # by SM
    _without_room: int = field(default=0, init=False, repr=False)
    _uncounted: Uncounted = field(default_factory=Uncounted, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Share every SM anew; a stream that is alone gets everything."""
        if len(streams_now(view)) < 2:
            self._saving_until_us = {}
            return unshared(view)
        kernels = view.kernels
        most = [useful_blocks(kernel, view.gpu.sm_count) for kernel in kernels]
        needs = [kernel.footprint.need for kernel in kernels]
        counts = drf(needs, view.gpu.limits.capacity, most, residents_of(view.gpu, kernels))
        grants = [
            Grant(kernel.id, count, queue=kernel.id, quota=warp_quota(view, kernel) if self.mode == "p+w" else None)
            for kernel, count in zip(kernels, counts, strict=True)
            if count > 0
        ]
        self._without_room += len(grants) < len(kernels)
        grants = mitigated(view, grants, self.mitigation, self._uncounted)
        if self.preempt == "drain":
            return Partition(tuple(grants))
        coming = [kernel.ready_us + kernel.latency_us for kernel in kernels]
        evictions = evicted(view, counts, [at <= view.now_us for at in coming])
        self._save(view, evictions)
        wakes = [at for at in (*coming, *self._saving_until_us.values()) if at > view.now_us]
        beside = self._beside(view, grants, evictions)
        return Partition(tuple(beside), tuple(evictions), min(wakes, default=None))

    def notes(self) -> tuple[str, ...]:
        """How often a kernel waited as no block of it fitted an SM beside the others, and whether counters lacked."""
        waited = "a kernel waited: an SM has no room for a block of it beside the others' shares"
        fell_back = {waited: self._without_room} if self._without_room else {}
        return (*fallbacks(fell_back), *self._uncounted.notes(NO_LIMIT))

    def _save(self, view: View, evictions: Sequence[Eviction]) -> None:
        """Note until when SMs save the blocks that leave them, one after the other."""
        saving = {sm: until for sm, until in self._saving_until_us.items() if until > view.now_us}
        cost_us = {kernel.id: context_us(kernel, view.gpu) for kernel in view.kernels}
        for eviction in evictions:
            start = saving.get(eviction.sm, view.now_us)
            saving[eviction.sm] = start + eviction.blocks * cost_us[eviction.kernel]
        self._saving_until_us = saving

    def _beside(self, view: View, grants: Sequence[Grant], evictions: Sequence[Eviction]) -> list[Grant]:
        """Limit grants on SMs that save preempted blocks to the resident blocks, because their room is not free yet."""
        if not self._saving_until_us:
            return list(grants)
        left = Counter((eviction.kernel, eviction.sm) for eviction in evictions for _ in range(eviction.blocks))
        shaped = []
        for grant in grants:
            most, held = grant.blocks_per_sm or 0, view.residents(grant.kernel)
            per_sm = tuple(
                min(most, have - left[grant.kernel, sm]) if sm in self._saving_until_us else most
                for sm, have in enumerate(held)
            )
            shaped.append(replace(grant, per_sm=per_sm))
        return shaped


def evicted(view: View, counts: Sequence[int], arrived: Sequence[bool]) -> list[Eviction]:
    """Return blocks to switch out so that every kernel that has arrived has its counts on every SM.

    Each is restored later. On each SM blocks leave one at a time, from the kernel with the largest dominant share among
    those above their number, until the missing blocks of the others fit.
    """
    kernels = view.kernels
    needs, room, fit = [k.footprint.need for k in kernels], view.gpu.limits.capacity, residents_of(view.gpu, kernels)
    here = [view.residents(kernel.id) for kernel in kernels]
    waiting = [kernel.waiting if there else 0 for kernel, there in zip(kernels, arrived, strict=True)]
    found: list[Eviction] = []
    for sm in range(view.gpu.sm_count):
        lacking = [i for i, left in enumerate(waiting) if left and here[i][sm] < counts[i]]
        if not lacking:
            continue
        held = [residents[sm] for residents in here]
        missing = [0] * len(kernels)
        for i in lacking:
            missing[i] = min(counts[i] - held[i], waiting[i])
            waiting[i] -= missing[i]
        keep = list(held)
        while not fit([have + lack for have, lack in zip(keep, missing, strict=True)]):
            above = [i for i, have in enumerate(keep) if have > counts[i]]
            if not above:
                break
            keep[max(above, key=lambda i: (dominant_share(needs[i], room, keep[i]), -i))] -= 1
        found.extend(
            Eviction(kernel.id, sm, have - kept, context_us(kernel, view.gpu))
            for kernel, have, kept in zip(kernels, held, keep, strict=True)
            if kept < have
        )
    return found
