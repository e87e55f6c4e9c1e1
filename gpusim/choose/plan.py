"""A plan: the algorithm, the stream, the place in it and the SMs of every operation; and the trace to replay it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from gpusim.choose.micro_batches import Division
from gpusim.common.tables import picked
from gpusim.trace.edit import with_selected
from gpusim.trace.format import Trace
from gpusim.trace.graph import Graph, one_by_one
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Operation, Stream

STREAMS = "leftover"  # the policy of plain CUDA streams


@dataclass(frozen=True)
class Plan:
    """How the operations of a trace are to run."""

    # a stream each, the one that is launched first first: ids of its operations in order
    lanes: tuple[tuple[str, ...], ...]
    algorithms: Mapping[str, str]  # of each convolution, by its id
    policy: str = STREAMS  # how the streams share the GPU, as `gpusim replay --policy` takes it
    # how many SMs each stream has of its own, in a row from SM 0; empty: none has
    sms: tuple[int, ...] = ()
    # additional dependencies: the first operation of each pair waits for the second
    waits: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for equal plans."""
        return self.lanes, tuple(sorted(self.algorithms.items())), self.policy, self.waits

    @property
    def streams(self) -> tuple[object, ...]:
        """A key that is equal for plans with the same streams, in any order, and the same dependencies."""
        return tuple(sorted(self.lanes)), self.waits

    def sm_sets(self) -> tuple[tuple[int, int] | None, ...]:
        """First and last SM of each stream; None where it may use all."""
        if not self.sms:
            return (None,) * len(self.lanes)
        return tuple((end - count, end - 1) for end, count in zip(accumulate(self.sms), self.sms, strict=True))


@dataclass(frozen=True)
class PlannedWork:
    """The operations of a trace, what they wait for, and the algorithms that each may take."""

    trace: Trace  # their trace
    graph: Graph  # what waits for what
    operations: Mapping[str, Operation]  # by id
    # of each convolution those that may be chosen, by name
    algorithms: Mapping[str, Mapping[str, ConvolutionAlgorithm]]
    # of each convolution those of them that do its batch in parts, by name
    divisions: Mapping[str, Mapping[str, Division]] = field(default_factory=dict)

    def planned(self, plan: Plan) -> Graph:
        """Dependencies under a plan, with the order of its streams and its own waits; these may not contradict."""
        return self.graph.with_order((*plan.lanes, *((earlier, later) for later, earlier in plan.waits)))

    def part(self, ids: Sequence[str]) -> PlannedWork:
        """Some of the operations, waiting for nothing outside."""
        kept = set(ids)
        return PlannedWork(
            self.trace,
            self.graph.only(kept),
            {id: op for id, op in self.operations.items() if id in kept},
            {id: found for id, found in self.algorithms.items() if id in kept},
            {id: found for id, found in self.divisions.items() if id in kept},
        )


def planned_trace(work: PlannedWork, plan: Plan, notes: str = "") -> Trace:
    """The trace that runs as planned under the plan's policy: `s0`, `s1`, … are its streams."""
    more: dict[str, list[str]] = {}
    for later, earlier in plan.waits:
        more.setdefault(later, []).append(earlier)
    streams = []
    for n, lane in enumerate(plan.lanes):
        operations, passed = [], set[str]()
        for id in lane:
            op = work.operations[id]
            if isinstance(op, Convolution):
                algorithm = work.algorithms[id][plan.algorithms[id]]
                op = op if algorithm is op.selected else with_selected(op, algorithm)
            own = [other for other in op.depends_on if other in work.operations]  # a replay breaks ties by them
            new = [other for other in (*work.graph.before[id], *more.get(id, ())) if other not in passed]
            waits = dict.fromkeys((*own, *new))
            operations.append(op.model_copy(update={"depends_on": tuple(waits)}))
            passed.add(id)
        streams.append(Stream.model_construct(name=f"s{n}", priority=0, operations=tuple(operations), arrivals=None))
    return work.trace.model_copy(update={"streams": tuple(streams), "notes": notes or work.trace.notes})


# ---- memory


def workspace_bytes(work: PlannedWork, plan: Plan) -> dict[str, int]:
    """Workspace of each operation that has one; what is unknown counts as none."""
    chosen = {id: work.algorithms[id][name].workspace_bytes or 0 for id, name in plan.algorithms.items()}
    return {id: size for id, size in chosen.items() if size}


def most_live(graph: Graph, sizes: Mapping[str, int]) -> tuple[int, tuple[str, ...]]:
    """Return the most bytes that can be live at once under any timing, and the operations that hold them.

    An operation's bytes are live while it runs. Operations run at once where neither waits for the other: this is the
    heaviest such set, by branch and bound.
    """
    best: tuple[int, tuple[str, ...]] = (0, ())

    def extend(held: int, chosen: tuple[str, ...], free: Sequence[str]) -> None:
        nonlocal best
        if held > best[0]:
            best = held, chosen
        for n, (id, most) in enumerate(zip(free, _most_from(graph, sizes, free), strict=True)):
            if held + most <= best[0]:
                return
            extend(held + sizes[id], (*chosen, id), [o for o in free[n + 1 :] if graph.independent(id, o)])

    place = {id: at for at, id in enumerate(graph.ids)}
    extend(0, (), sorted(sizes, key=place.__getitem__))
    return best


def _most_from(graph: Graph, sizes: Mapping[str, int], ids: Sequence[str]) -> list[int]:
    """Upper bounds of live memory: for each position of a topological order, of the operations from there on.

    These are covered with chains, from the end; of a chain only the largest can be live.
    """
    bounds, heads, largest = [], list[str](), list[int]()
    for id in reversed(ids):
        chain = next((n for n, head in enumerate(heads) if graph.waits_for(head, id)), len(heads))
        heads[chain : chain + 1] = [id]
        largest[chain : chain + 1] = [max(sizes[id], sum(largest[chain : chain + 1]))]
        bounds.append(sum(largest))
    return bounds[::-1]


def unknown_workspaces(work: PlannedWork, plan: Plan) -> list[str]:
    """The convolutions of a plan whose algorithm has a workspace that is not known, by id."""
    return [id for id, name in plan.algorithms.items() if work.algorithms[id][name].workspace_bytes is None]


def memory_bytes(work: PlannedWork, plan: Plan) -> int:
    """Device memory for the workspaces of a plan, as far as they are known, sufficient under any timing."""
    return most_live(work.planned(plan), workspace_bytes(work, plan))[0]


def tensor_bytes(work: PlannedWork) -> int | None:
    """Bytes of the tensors of all convolutions, which no plan changes: filters, outputs, and inputs from outside.

    Four bytes a number, as in float32; None where there is no convolution.
    """
    convolutions = {id: op.shape for id, op in work.operations.items() if isinstance(op, Convolution)}
    total = 0
    for shape in convolutions.values():
        total += 4 * shape.out_channels * shape.in_channels * shape.filter_height * shape.filter_width
        total += 4 * shape.batch * shape.out_channels * shape.out_height * shape.out_width
    read = {
        (shape.batch, shape.in_channels, shape.in_height, shape.in_width)
        for id, shape in convolutions.items()
        if not work.graph.before[id]
    }
    total += sum(4 * n * c * h * w for n, c, h, w in read)
    return total if convolutions else None


# ---- for programs


def launch_order(work: PlannedWork, plan: Plan) -> list[str]:
    """Operations in the order in which a host launches them.

    The first operation of each stream in the order of the streams, then the second, as far as what they wait for has
    been launched: with it the streams start in their order.
    """
    place = {id: (at, n) for n, lane in enumerate(plan.lanes) for at, id in enumerate(lane)}
    return one_by_one(work.planned(plan).before, lambda ready: min(ready, key=place.__getitem__))


def as_steps(work: PlannedWork, plan: Plan) -> list[dict[str, Any]]:
    """The plan for a framework: one entry for each operation, in the order of launch (`launch_order`)."""
    graph = work.planned(plan).reduced()
    place = {id: (n, at) for n, lane in enumerate(plan.lanes) for at, id in enumerate(lane)}
    sets = plan.sm_sets()
    steps = []
    for id in launch_order(work, plan):
        stream, at = place[id]
        algorithm = work.algorithms[id][plan.algorithms[id]] if id in plan.algorithms else None
        division = work.divisions.get(id, {}).get(plan.algorithms.get(id, ""))
        sms, counted = sets[stream], [] if division is None else division.counted
        steps.append(
            {
                "operation": id,
                "algorithm": algorithm and algorithm.algorithm,
                "workspace_bytes": algorithm and algorithm.workspace_bytes,
                "micro_batches": [{"count": n, **picked(part, "batch", "algorithm")} for n, part in counted] or None,
                "stream": f"s{stream}",
                "place": at,
                "sms": sms and list(sms),
                "waits_for": [o for o in graph.before[id] if place[o][0] != stream],
            }
        )
    return steps
