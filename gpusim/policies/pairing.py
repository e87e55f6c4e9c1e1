"""Kernels side by side only where they should not get in one another's way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Grant, KernelView, Partition, Policy, View, parameter
from gpusim.policies.spatial import streams_now
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.notes import Uncounted

Loads = tuple[float, float, float, float]  # shares of issue slots, of SMs' data paths, of L2's and of DRAM's bandwidth


def loads(kernel: KernelView, gpu: GPU) -> Loads:
    """Use of each resource of the GPU by an isolated kernel, as a share of the total."""
    sm_us = kernel.solo_us * gpu.sm_count
    return (
        kernel.blocks * kernel.issue_us / sm_us,
        kernel.blocks * kernel.memory_us / sm_us,
        kernel.l2_load,
        kernel.dram_load,
    )


@dataclass
class InterferenceAware(Policy):
    """A kernel starts beside others only while no resource is asked for more than there is.

    Kernels are looked at in order of arrival. One that would not fit is passed by others, but no longer than it would
    take alone. A kernel without counters runs beside nobody.
    """

    name = "interference-aware"
    summary = (
        "a kernel starts beside others only if together they use no more issue slots, data path, L2 and DRAM bandwidth "
        "than there is (a shadow of Elvinger et al., SoCC'25, who measure interference; the rule is ours)"
    )
    limit: float = parameter(1.0, "largest sum of the kernels' shares of any one resource", above=0)
    _refused: bool = field(default=False, init=False, repr=False)
    _uncounted: Uncounted = field(default_factory=Uncounted, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Keep what runs, add what fits."""
        if len(streams_now(view)) < 2:
            return unshared(view)
        chosen = [kernel for kernel in view.kernels if kernel.started]
        for kernel in view.kernels:
            if kernel.started:
                continue
            if self._fit([*chosen, kernel], view.gpu):
                chosen.append(kernel)
                continue
            self._refused = True
            if view.now_us - kernel.ready_us >= kernel.solo_us:
                break  # it has been passed for long enough
        chosen.sort(key=lambda kernel: kernel.id)
        return Partition(tuple(Grant(kernel.id, queue=kernel.stream_index) for kernel in chosen))

    def notes(self) -> tuple[str, ...]:
        """Whether everything fitted, and whether counters were missing."""
        uncounted = self._uncounted.notes("these ran beside nobody")
        return uncounted if self._refused else ("no kernel had to wait for others: no resource was asked for too much",)

    def _fit(self, kernels: Sequence[KernelView], gpu: GPU) -> bool:
        """Whether kernels may run side by side; one stream's own always may."""
        if len({kernel.stream_index for kernel in kernels}) < 2:
            return True
        self._uncounted.ask(kernels)
        if not all(kernel.counted for kernel in kernels):
            return False
        together = map(sum, zip(*(loads(kernel, gpu) for kernel in kernels), strict=True))
        return all(share <= self.limit for share in together)
