"""A policy that knows the whole program: `gpusim replay TRACE --policy experiments/critical_path.py:CriticalPath`."""

from collections.abc import Sequence
from dataclasses import dataclass
from graphlib import TopologicalSorter

from gpusim.policies.interface import Grant, OperationView, Partition, Policy, View


@dataclass
class CriticalPath(Policy):
    """Kernels with most work on the longest chain behind them place their blocks first."""

    name = "critical-path"
    summary = "what the longest chain of operations waits for places its blocks first (list scheduling)"

    def partition(self, view: View) -> Partition:
        """Decide anew whenever a kernel becomes ready or ends."""
        chain_us = longest_chains(view.operations())
        order = sorted(view.kernels, key=lambda kernel: (-chain_us[kernel.operation], kernel.id))
        return Partition(tuple(Grant(kernel.id) for kernel in order))


def longest_chains(operations: Sequence[OperationView]) -> dict[str, float]:
    """For each operation the work left (us) of the longest chain from it to an end, its own included."""
    by_id = {operation.id: operation for operation in operations}
    chains = {operation.id: operation.left_us for operation in operations}
    first_to_last = TopologicalSorter({operation.id: operation.waits_for for operation in operations}).static_order()
    for id in reversed(list(first_to_last)):
        for before in by_id[id].waits_for:
            chains[before] = max(chains[before], by_id[before].left_us + chains[id])
    return chains
