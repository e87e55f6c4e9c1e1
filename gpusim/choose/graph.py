"""What waits for what: the operations of a trace as a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from gpusim.common.errors import InputError
from gpusim.trace.format import Trace


@dataclass(frozen=True)
class Graph:
    """Operations and the operations that each waits for.

    Attributes:
        before: for each operation those that it waits for; in an order in which they can run.
    """

    before: Mapping[str, tuple[str, ...]]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The operations, in an order in which they can run."""
        return tuple(self.before)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {id: at for at, id in enumerate(self.before)}

    @cached_property
    def _earlier(self) -> list[int]:
        """For each operation, as the bits of a number, all that must have ended before it can start."""
        found: list[int] = []
        for waits in self.before.values():
            bits = 0
            for other in waits:
                at = self._place[other]
                bits |= found[at] | 1 << at
            found.append(bits)
        return found

    @cached_property
    def after(self) -> Mapping[str, tuple[str, ...]]:
        """For each operation those that wait for it."""
        found: dict[str, list[str]] = {id: [] for id in self.before}
        for id, waits in self.before.items():
            for other in waits:
                found[other].append(id)
        return {id: tuple(others) for id, others in found.items()}

    def waits_for(self, later: str, earlier: str) -> bool:
        """Whether one operation waits for another, however indirectly."""
        return bool(self._earlier[self._place[later]] >> self._place[earlier] & 1)

    def independent(self, a: str, b: str) -> bool:
        """Whether two operations may run at once."""
        return a != b and not self.waits_for(a, b) and not self.waits_for(b, a)

    def reduced(self) -> Graph:
        """The graph without waits that follow from others (its transitive reduction)."""
        return Graph(
            {
                id: tuple(o for o in waits if not any(self.waits_for(other, o) for other in waits))
                for id, waits in self.before.items()
            }
        )

    def only(self, ids: Iterable[str]) -> Graph:
        """The part of the graph that some operations are; what is not among them counts as ended."""
        kept = set(ids)
        return Graph({id: tuple(o for o in waits if o in kept) for id, waits in self.before.items() if id in kept})

    def with_order(self, lanes: Iterable[Sequence[str]]) -> Graph:
        """The graph with operations that also wait for the one before them in their lane.

        Raises:
            InputError: the lanes run against the graph.
        """
        waits = {id: dict.fromkeys(others) for id, others in self.before.items()}
        for lane in lanes:
            for earlier, later in pairwise(lane):
                waits[later][earlier] = None
        return ordered({id: tuple(others) for id, others in waits.items()})

    def blocks(self) -> list[tuple[str, ...]]:
        """The operations in parts that can only run one after the other: every one waits for all of the part before.

        Sorted by how many others must have ended before them, a part ends wherever all that follow wait for all that
        came.
        """
        by_depth = sorted(range(len(self.ids)), key=lambda at: (self._earlier[at].bit_count(), at))
        common, shared = -1, [0] * len(by_depth)  # what all from here on wait for
        for n in range(len(by_depth) - 1, -1, -1):
            common &= self._earlier[by_depth[n]]
            shared[n] = common
        found: list[list[int]] = []
        behind = 0
        for n, at in enumerate(by_depth):
            if not found or shared[n] & behind == behind:
                found.append([])
            found[-1].append(at)
            behind |= 1 << at
        return [tuple(self.ids[at] for at in sorted(block)) for block in found]


def ordered(before: Mapping[str, Sequence[str]]) -> Graph:
    """A graph of operations in any order.

    Args:
        before: for each operation those that it waits for.

    Raises:
        InputError: an operation waits for one that is not there, or operations wait for one another in a circle.
    """
    for id, waits in before.items():
        for other in waits:
            if other not in before:
                raise InputError(None, id, f"waits for {other}", "an operation of the graph")
    place = {id: at for at, id in enumerate(before)}
    sorter = TopologicalSorter(before)
    try:
        sorter.prepare()
    except CycleError as error:
        circle = " waits for ".join(error.args[1][::-1])
        raise InputError(None, "graph", f"a cycle: {circle}", "operations that can run one after the other") from None
    order: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready(), key=place.__getitem__)
        order += ready
        sorter.done(*ready)
    return Graph({id: tuple(dict.fromkeys(before[id])) for id in order})


def graph_of(trace: Trace) -> Graph:
    """The operations of a trace; each waits for what it depends on and for the one before it in its stream.

    Raises:
        InputError: a stream of requests: they are no graph that runs once.
    """
    before: dict[str, tuple[str, ...]] = {}
    for s, stream in enumerate(trace.streams):
        if stream.arrivals is not None:
            raise InputError(None, f"streams[{s}].arrivals", "is given", "streams that run once")
        last: tuple[str, ...] = ()
        for op in stream.operations:
            before[op.id] = tuple(dict.fromkeys((*last, *op.depends_on)))
            last = (op.id,)
    return ordered(before)


def chains(trace: Trace) -> tuple[tuple[str, ...], ...]:
    """The streams of a trace, as the ids of their operations; empty ones are left out."""
    return tuple(tuple(op.id for op in stream.operations) for stream in trace.streams if stream.operations)
