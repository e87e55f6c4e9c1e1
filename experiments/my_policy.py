"""A policy of one's own: `gpusim replay TRACE --policy experiments/my_policy.py:ShortestFirst:most=2`."""

from dataclasses import dataclass

from gpusim.policies.interface import Grant, Partition, Policy, View


@dataclass
class ShortestFirst(Policy):
    """Kernels that are short alone place their blocks first; the others take what room is left."""

    name = "shortest-first"
    summary = "short kernels place their blocks before long ones"
    most: int | None = None  # blocks of one kernel on an SM: a parameter, as most=2

    def partition(self, view: View) -> Partition:
        """Decide anew whenever a kernel becomes ready or ends."""
        line = sorted(view.kernels, key=lambda kernel: (kernel.solo_us, kernel.id))
        return Partition(tuple(Grant(kernel.id, blocks_per_sm=self.most) for kernel in line))
