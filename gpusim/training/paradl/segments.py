"""Pipeline segments: where a network can be cut, and the cuts that minimise the time of the slowest segment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate

from gpusim.training.networks.network import INPUT, Network


def cuts(network: Network) -> list[int]:
    """The positions between layers that a single tensor crosses: a cut at n is before layer n."""
    last_use = {name: n for n, node in enumerate(network.nodes) for name in node.inputs}
    found = []
    for n in range(1, len(network.nodes)):
        crossing = [node.name for node in network.nodes[:n] if last_use.get(node.name, 0) >= n]
        if crossing == [network.nodes[n - 1].name] and last_use[INPUT] < n:
            found.append(n)
    return found


def balancer(costs: Sequence[float], allowed: Sequence[int]) -> Callable[[int], list[int] | None]:
    """Return a function from a number of segments to the best-balanced cuts, None if there are too few positions."""
    before = [0.0, *accumulate(costs)]

    @cache
    def best(begin: int, left: int) -> tuple[float, tuple[int, ...]] | None:
        if left == 1:
            return before[-1] - before[begin], ()
        options = []
        for cut in allowed:
            rest = best(cut, left - 1) if cut > begin else None
            if rest is not None:
                options.append((max(before[cut] - before[begin], rest[0]), (cut, *rest[1])))
        return min(options, default=None)

    def cut_into(parts: int) -> list[int] | None:
        found = best(0, parts) if parts <= len(allowed) + 1 else None
        return None if found is None else list(found[1])

    return cut_into
