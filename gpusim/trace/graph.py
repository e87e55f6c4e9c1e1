"""The dependency graph of the operations of a trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from gpusim.common.errors import InputError
from gpusim.trace.format import Trace


@dataclass(frozen=True)
class Graph:
    """Operations and their direct dependencies."""

    # the direct dependencies of each operation; its keys are in topological order
    before: Mapping[str, tuple[str, ...]]

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """The operations in topological order."""
        return tuple(self.before)

    @cached_property
    def _place(self) -> dict[str, int]:
        return {id: at for at, id in enumerate(self.before)}

    @cached_property
    def _earlier(self) -> list[int]:
        """All predecessors of each operation, direct or not, as a bit set."""
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
        """The direct dependents of each operation."""
        found: dict[str, list[str]] = {id: [] for id in self.before}
        for id, waits in self.before.items():
            for other in waits:
                found[other].append(id)
        return {id: tuple(others) for id, others in found.items()}

    def waits_for(self, later: str, earlier: str) -> bool:
        """Whether one operation depends, directly or not, on another."""
        return bool(self._earlier[self._place[later]] >> self._place[earlier] & 1)

    def independent(self, a: str, b: str) -> bool:
        """Whether two operations are independent: neither waits for the other, directly or not."""
        return a != b and not self.waits_for(a, b) and not self.waits_for(b, a)

    def reduced(self) -> Graph:
        """The transitive reduction: without dependencies that follow from others."""
        return Graph(
            {
                id: tuple(o for o in waits if not any(self.waits_for(other, o) for other in waits))
                for id, waits in self.before.items()
            }
        )

    def only(self, ids: Iterable[str]) -> Graph:
        """The subgraph of some operations; all others count as completed."""
        kept = set(ids)
        return Graph({id: tuple(o for o in waits if o in kept) for id, waits in self.before.items() if id in kept})

    def with_order(self, lanes: Iterable[Sequence[str]]) -> Graph:
        """Return the graph in which each operation also depends on the one before it in its stream."""
        waits = {id: dict.fromkeys(others) for id, others in self.before.items()}
        for lane in lanes:
            for earlier, later in pairwise(lane):
                waits[later][earlier] = None
        return ordered({id: tuple(others) for id, others in waits.items()})

    def allows(self, lanes: Iterable[Sequence[str]]) -> bool:
        """Whether lanes can run: their order makes no operation wait, directly or not, for itself."""
        try:
            self.with_order(lanes)
        except InputError:
            return False
        return True

    def blocks(self) -> list[tuple[str, ...]]:
        """The blocks of the graph: every operation of a block depends on all operations of the block before.

        With the operations sorted by their number of predecessors, a block ends wherever all later operations depend on
        all earlier ones.
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
    """Return the graph of operations in any order, each with those that it waits for; a circle is refused."""
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


def one_by_one(before: Mapping[str, Sequence[str]], choose: Callable[[Sequence[str]], str]) -> list[str]:
    """Operations in an order in which they can run: again and again the one that is chosen of those that are ready."""
    sorter, ready, order = TopologicalSorter(before), list[str](), list[str]()
    sorter.prepare()
    while sorter.is_active():
        ready += sorter.get_ready()
        order.append(choose(ready))
        ready.remove(order[-1])
        sorter.done(order[-1])
    return order


def graph_of(trace: Trace) -> Graph:
    """The graph of a trace: an operation depends on its `depends_on` and on the one before it in its stream.

    Refused are streams of requests, which are no graph that runs once, of a second GPU, or of another priority than the
    first.
    """
    before: dict[str, tuple[str, ...]] = {}
    for s, stream in enumerate(trace.streams):
        if stream.priority != trace.streams[0].priority:
            problem = f"is {stream.priority}, that of the first {trace.streams[0].priority}"
            raise InputError(None, f"streams[{s}].priority", problem, "one priority: a plan makes streams of its own")
        if stream.arrivals is not None:
            raise InputError(None, f"streams[{s}].arrivals", "is given", "streams that run once")
        if stream.gpu:
            raise InputError(None, f"streams[{s}].gpu", f"is {stream.gpu}", "streams of one GPU, 0")
        last: tuple[str, ...] = ()
        for op in stream.operations:
            before[op.id] = tuple(dict.fromkeys((*last, *op.depends_on)))
            last = (op.id,)
    return ordered(before)


def chains(trace: Trace) -> tuple[tuple[str, ...], ...]:
    """The operation ids of each stream of a trace; empty streams are left out."""
    return tuple(tuple(op.id for op in stream.operations) for stream in trace.streams if stream.operations)
