"""Methods that assign the operations of a graph to streams. Each returns lanes, in the order of their launch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from gpusim.common.errors import InputError, quote
from gpusim.common.tables import connected
from gpusim.trace.graph import Graph, one_by_one, ordered

T = TypeVar("T")

Lanes = tuple[tuple[str, ...], ...]
MOST_GROUPS = 8  # of a stage, as IOS has by default
MOST_IN_GROUP = 3  # operations, as IOS has by default


def lanes_of(streams: object) -> Lanes:
    """Check and convert a list of streams, each a list of ids of operations."""
    if not isinstance(streams, list | tuple):
        raise InputError(None, "streams", f"is {quote(streams)}", "a name, or for each stream a list of ids")
    for lane in streams:
        if not (isinstance(lane, list | tuple) and all(isinstance(id, str) for id in lane)):
            raise InputError(None, "streams", f"holds {quote(lane)}", "for each stream a list of ids of operations")
    return tuple(map(tuple, streams))


def sequential(graph: Graph) -> Lanes:
    """One stream, in topological order."""
    return (graph.ids,)


def nimble(graph: Graph) -> Lanes:
    """Nimble's streams (Kwon et al., NeurIPS'20): operations that may run at once do, with few waits between streams.

    Chains by a maximum matching of the graph without waits that follow from others; then, again by matching, chains of
    which one always ends before the other begins share a stream, as its code does [V].
    """
    reduced = graph.reduced()
    matched = _matching({id: reduced.after[id] for id in graph.ids})
    followers = set(matched.values())
    found = [_followed(id, matched) for id in graph.ids if id not in followers]
    later = {
        a: [b for b in range(len(found)) if a != b and graph.waits_for(found[b][0], found[a][-1])]
        for a in range(len(found))
    }
    joined = _matching(later)
    behind = set(joined.values())
    return tuple(
        tuple(id for chain in _followed(first, joined) for id in found[chain])
        for first in range(len(found))
        if first not in behind
    )


def _followed(first: T, after: Mapping[T, T]) -> list[T]:
    found = [first]
    while found[-1] in after:
        found.append(after[found[-1]])
    return found


def _matching(choices: Mapping[T, Sequence[T]]) -> dict[T, T]:
    """A maximum matching of a bipartite graph, by augmenting paths."""
    first_of: dict[T, T] = {}

    def take(first: T, tried: set[T]) -> bool:
        for second in choices[first]:
            if second not in tried:
                tried.add(second)
                if second not in first_of or take(first_of[second], tried):
                    first_of[second] = first
                    return True
        return False

    for first in choices:
        take(first, set())
    return {first: second for second, first in first_of.items()}


def opara(graph: Graph, memory_bound: Mapping[str, bool], demand: Mapping[str, float]) -> Lanes:
    """Return Opara's streams and launch order (Chen et al.) [V].

    An operation goes on in the stream of the first operation that it waits for and that nothing follows yet, else in a
    new one. Launched are, in turn, the memory-bound and the compute-bound operation that is ready and demands least: in
    Opara's code the shared memory of a block.
    """
    memory_next = True

    def choose(ready: Sequence[str]) -> str:
        nonlocal memory_next
        alike = [id for id in ready if memory_bound[id] == memory_next] or ready
        chosen = min(alike, key=lambda id: demand[id])
        memory_next = not memory_bound[chosen]
        return chosen

    return _continued(graph, one_by_one(graph.before, choose))


def _continued(graph: Graph, order: Sequence[str]) -> Lanes:
    """Append each operation to the stream that ends with its first such predecessor, or open a new stream."""
    lanes: list[list[str]] = []
    for id in order:
        open_lane = next((lane for other in graph.before[id] for lane in lanes if lane[-1] == other), None)
        if open_lane is None:
            lanes.append([id])
        else:
            open_lane.append(id)
    return tuple(map(tuple, lanes))


Stage = tuple[tuple[str, ...], ...]  # groups that run side by side


def ios_stages(graph: Graph, latency_us: Callable[[Stage], float]) -> tuple[Stage, ...]:
    """Return IOS's stages (Ding et al., MLSys'21): the least sum of stage times, by dynamic programming.

    A stage is an ending of the remaining graph: no remaining operation outside it waits for one in it. Operations of a
    stage that wait for one another form a group. Groups run side by side, and the operations of a group one after the
    other [V]. The limits are those of IOS. A stage ends before the next begins.
    """
    known: dict[frozenset[str], tuple[float, tuple[Stage, ...]]] = {frozenset(): (0.0, ())}
    latencies_us: dict[frozenset[str], float] = {}

    def best(left: frozenset[str]) -> tuple[float, tuple[Stage, ...]]:
        if left not in known:
            options = []
            for ending in _endings(graph, left, MOST_GROUPS * MOST_IN_GROUP):
                stage = groups(graph, ending)
                if len(stage) <= MOST_GROUPS and max(map(len, stage)) <= MOST_IN_GROUP:
                    before_us, before = best(left - ending)
                    if ending not in latencies_us:
                        latencies_us[ending] = latency_us(stage)
                    options.append((before_us + latencies_us[ending], (*before, stage)))
            known[left] = min(options, key=lambda found: found[0])
        return known[left]

    return best(frozenset(graph.ids))[1]


def _endings(graph: Graph, left: frozenset[str], most: int) -> list[frozenset[str]]:
    """The non-empty endings of the operations left: sets that no other operation left depends on."""
    found = [frozenset[str]()]
    for id in reversed([id for id in graph.ids if id in left]):
        needed = left.intersection(graph.after[id])
        found += [ending | {id} for ending in found if needed <= ending and len(ending) < most]
    return found[1:]


def groups(graph: Graph, ids: frozenset[str]) -> Stage:
    """The connected components of some operations: dependent operations are in the same group."""
    pairs = ((id, other) for id in ids for other in graph.before[id] if other in ids)
    return tuple(map(tuple, connected((id for id in graph.ids if id in ids), pairs)))


def greedy_stages(graph: Graph) -> tuple[Stage, ...]:
    """IOS's greedy baseline: a stage is every operation that is ready, each in a group of its own."""
    stages, left = list[Stage](), list(graph.ids)
    while left:
        ready = [id for id in left if not any(other in left for other in graph.before[id])]
        stages.append(tuple((id,) for id in ready))
        left = [id for id in left if id not in ready]
    return tuple(stages)


def as_lanes(stages: Sequence[Stage]) -> Lanes:
    """Stages as the fewest streams that hold their concurrent groups; `stage_waits` keeps the stages apart."""
    widest = max(map(len, stages))
    return tuple(tuple(id for stage in stages for id in (stage[n] if n < len(stage) else ())) for n in range(widest))


def stage_waits(stages: Sequence[Stage]) -> tuple[tuple[str, str], ...]:
    """Dependencies between stages: the first of each group waits for the last of each group of the stage before."""
    return tuple((group[0], other[-1]) for earlier, later in pairwise(stages) for group in later for other in earlier)


def units(graph: Graph, joins: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return chains of operations that are scheduled as one, such as a convolution with its bias, each under its first.

    An operation in ``joins`` belongs to the one before it, where it waits for no other and no other waits for that.
    """
    found: dict[str, list[str]] = {}
    unit: dict[str, str] = {}
    for id, waits in graph.before.items():
        alone = len(waits) == 1 and len(graph.after[waits[0]]) == 1
        unit[id] = unit[waits[0]] if alone and id in joins else id
        found.setdefault(unit[id], []).append(id)
    return {first: tuple(ids) for first, ids in found.items()}


def of_units(graph: Graph, chains: Mapping[str, Sequence[str]]) -> Graph:
    """The graph of scheduling units, each named after its first operation."""
    unit = {id: first for first, ids in chains.items() for id in ids}
    before = {
        first: tuple(dict.fromkeys(unit[other] for id in ids for other in graph.before[id] if unit[other] != first))
        for first, ids in chains.items()
    }
    return ordered(before)
