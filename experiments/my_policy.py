"""A policy of your own: `gpusim replay TRACE --policy experiments/my_policy.py:ShortestFirst:most=2`."""

from dataclasses import dataclass

from gpusim.policies.interface import Grant, Partition, Policy, View


@dataclass
class ShortestFirst(Policy):
    """Short kernels place their blocks first; the others use the room that is left."""

    name = "shortest-first"
    summary = "short kernels place their blocks before long ones"
    most: int | None = None  # most blocks of a kernel per SM: a parameter, as most=2

    def partition(self, view: View) -> Partition:
        """Decide whenever a kernel becomes ready or ends."""
        order = sorted(view.kernels, key=lambda kernel: (kernel.solo_us, kernel.id))
        return Partition(tuple(Grant(kernel.id, blocks_per_sm=self.most) for kernel in order))
