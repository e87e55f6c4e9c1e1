"""Lower bounds of the makespan: the critical path, and the work that all operations ask of one resource.

`gpusim.choose.least` has the least time of one kernel. Before the first block no resource is busy: at least for the
shortest launch latency. A convolution after others takes longer than recorded, by the bytes that the
others touch (`gpusim.model.context`). A bound takes less of both ends: the least and the most that they can touch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import exp, fsum

from gpusim.choose.graph import Graph, chains, ordered
from gpusim.choose.least import HELD, SM_RESOURCES, Least, least_of_launches, less_of
from gpusim.choose.plan import Plan, Work
from gpusim.model.context import in_context
from gpusim.model.kernel import KernelModel
from gpusim.session import Session
from gpusim.trace.edit import with_selected
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Stream

MOST_OPERATIONS = 2_000  # of a trace whose bound is computed: the time grows with their square
PARTS = ("critical path", *SM_RESOURCES.values(), "DRAM", "L2", *HELD)
ROUNDS = 150  # of the ascent to the best weights
STEPS = (8.0, 2.0)  # how far a round moves them, at the first and at the last


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the makespan."""

    us: float  # the bound
    by: str  # the one of `PARTS` that contributes most to it


class Bounds:
    """Lower bounds of plans for some work on a GPU; everything is worked out once."""

    def __init__(self, work: Work, session: Session) -> None:
        self.session = session
        self.work = work
        self._kernels = session.kernels(work.trace)
        self._known: dict[tuple[str, str, tuple[int, int] | None], Least] = {}
        self._bytes: dict[str, tuple[int, int]] = {}

    def launches(self, id: str, algorithm: str = "") -> Sequence[KernelLaunch]:
        """The launches of an operation, for a convolution those of an algorithm; none for copies and host work."""
        return self.work.algorithms[id][algorithm].kernels if algorithm else self.work.operations[id].launches()

    def models(self, id: str, algorithm: str = "") -> list[KernelModel]:
        """The models of the kernels of `launches`."""
        return [self._kernels.model(launch, id) for launch in self.launches(id, algorithm)]

    def least(self, id: str, algorithm: str = "", among: Work | None = None) -> Least:
        """The lower bounds of an operation, for a convolution with a given algorithm, in any plan.

        Args:
            id: the operation.
            algorithm: of a convolution.
            among: the work whose plans are replayed; None: all.
        """
        others = self._others(id, among or self.work) if algorithm else None
        key = id, algorithm, others
        if key not in self._known:
            if self.launches(id, algorithm):
                ways = dict.fromkeys(map(tuple, self._played(id, algorithm, others)))
                self._known[key] = reduce(less_of, [self._least_of(id, way) for way in ways])
            else:
                occupied = self.work.operations[id].occupies(self.session.gpu)
                self._known[key] = Least(occupied.duration_us, (0.0, 0.0, 0.0), idle_us=occupied.duration_us)
        return self._known[key]

    def _least_of(self, id: str, launches: Sequence[KernelLaunch]) -> Least:
        gpu, models = self.session.gpu, [self._kernels.model(launch, id) for launch in launches]
        return least_of_launches(launches, models, gpu.limits.capacity, gpu.model.sustained_issue_share)

    def _others(self, id: str, work: Work) -> tuple[int, int] | None:
        """Least and most bytes that the other operations of some work touch; None: there are none."""
        if len(work.operations) == 1:
            return None
        found = [self._touched(other) for other in work.algorithms if other != id]
        return sum(least for least, _ in found), sum(most for _, most in found)

    def _touched(self, id: str) -> tuple[int, int]:
        """Least and most bytes that a convolution touches, by its algorithms."""
        if id not in self._bytes:
            each = [touched_bytes(one) for one in self.work.algorithms[id].values()]
            self._bytes[id] = min(each), max(each)
        return self._bytes[id]

    def _played(self, id: str, algorithm: str, others: tuple[int, int] | None) -> list[Sequence[KernelLaunch]]:
        """The launches of an operation as they are replayed after others that touch the least, and the most."""
        op = self.work.operations[id]
        if others is None or not isinstance(op, Convolution):
            return [self.launches(id, algorithm)]
        chosen, gpu = self.work.algorithms[id][algorithm], self.session.gpu
        traces = [_beside(self.work.trace, with_selected(op, chosen), touched) for touched in others]
        return [in_context(trace, gpu).streams[0].operations[0].launches() for trace in traces]

    def alone_us(self, id: str, algorithm: str = "") -> float:
        """Time of an operation alone, for a convolution with a given algorithm: its kernels one after the other, us."""
        models = self.models(id, algorithm)
        return fsum(model.solo_us for model in models) if models else self.least(id).alone_us

    def memory_bound(self, id: str, algorithm: str = "") -> bool:
        """Whether an operation keeps DRAM or L2 busy longer than the SMs."""
        sm_us, dram_us, l2_us = self.least(id, algorithm).busy_us
        return max(dram_us, l2_us) > sm_us

    def of_plan(self, work: Work, plan: Plan) -> float:
        """A lower bound for one plan of all or part of the work, us."""
        return _bound(work.planned(plan), lambda id: [self.least(id, plan.algorithms.get(id, ""), work)]).us

    def of_any(self, work: Work) -> Bound:
        """A lower bound for all plans of some work, whatever their algorithms, streams, order, partition and memory."""

        def choices(id: str) -> list[Least]:
            return [self.least(id, name, work) for name in work.algorithms.get(id, ("",))]

        parts = [_bound(work.graph.only(block), choices) for block in work.graph.blocks()]
        by_cause: dict[str, float] = {}
        for part in parts:
            by_cause[part.by] = by_cause.get(part.by, 0.0) + part.us
        return Bound(fsum(part.us for part in parts), max(by_cause, key=lambda cause: by_cause[cause]))


def bound_of_trace(trace: Trace, session: Session) -> Bound | None:
    """A lower bound on the makespan of a trace as it is, under any policy that keeps the order of its streams.

    Returns:
        None for several GPUs, streams of requests and traces of over `MOST_OPERATIONS` operations.
    """
    trace = session.kernels(trace).worked_out(trace)  # kernels as long as they take after the others
    operations = {op.id: op for op in trace.operations()}
    if len(operations) > MOST_OPERATIONS or any(stream.gpu or stream.arrivals for stream in trace.streams):
        return None
    waits = ordered({id: op.depends_on for id, op in operations.items()})
    bounds = Bounds(Work(trace, waits.with_order(chains(trace)), operations, {}), session)
    return bounds.of_any(bounds.work) if operations else None


def touched_bytes(algorithm: ConvolutionAlgorithm) -> int:
    """Bytes by which an algorithm displaces what others have in L2 (`gpusim.model.context`); 0 if it does not count."""
    unused = algorithm.workspace_bytes if len(algorithm.kernels) == 1 else None
    return 0 if algorithm.warm_us is None else max(0, (algorithm.touched_bytes or 0) - (unused or 0))


def _beside(trace: Trace, op: Convolution, touched: int) -> Trace:
    """A trace of a convolution, and of another one that touches so many bytes."""
    other = op.selected.model_copy(update={"touched_bytes": touched, "workspace_bytes": None})
    operations = (op, op.model_copy(update={"id": f"beside {op.id}", "selected": other}))
    stream = Stream.model_construct(name="s0", priority=0, operations=operations, arrivals=None)
    return trace.model_copy(update={"streams": (stream,)})


def _bound(graph: Graph, choices: Callable[[str], Sequence[Least]]) -> Bound:
    """The lower bound over all choices of one alternative for each operation.

    Each part is a lower bound, so any weighted mean of them is one, too; and for given weights each operation can be
    minimised independently. The bound is the best over the weights tried (a Lagrangian relaxation).
    """
    options = {id: choices(id) for id in graph.ids}
    chain = _longest_chain(graph, {id: min(one.alone_us for one in found) for id, found in options.items()})
    first = (one for id, waits in graph.before.items() if not waits for one in options[id])
    idle = min((one.idle_us for one in first), default=0.0)
    parts = [
        [(one.alone_us if id in chain else 0.0, *one.resources_us) for one in found] for id, found in options.items()
    ]
    corners = [fsum(min(one[part] for one in found) for found in parts) for part in range(len(PARTS))]
    each = [us + idle * (part > 0) for part, us in enumerate(corners)]
    us, by = max((us, -part) for part, us in enumerate(each))
    if all(len(found) == 1 for found in parts):
        return Bound(us, PARTS[-by])
    return max(Bound(us, PARTS[-by]), _best_weighted(parts, each, idle), key=lambda one: one.us)


def _best_weighted(parts: Sequence[Sequence[tuple[float, ...]]], each: Sequence[float], idle: float) -> Bound:
    """The largest weighted bound that an ascent finds: a part that is large in what is chosen gains weight."""
    whole = max(each) or 1.0
    logs = [STEPS[0] * us / whole for us in each]
    best = Bound(0.0, PARTS[0])
    for n in range(ROUNDS):
        powers = [exp(one - max(logs)) for one in logs]
        total = fsum(powers)
        weights = [one / total for one in powers]
        chosen = [min(found, key=lambda one: _product(weights, one)) for found in parts]
        sums = [fsum(one[part] for one in chosen) + idle * (part > 0) for part in range(len(weights))]
        us = _product(weights, sums)
        if us > best.us:
            best = Bound(us, PARTS[max(range(len(PARTS)), key=lambda part: weights[part])])
        step = STEPS[0] + (STEPS[1] - STEPS[0]) * n / ROUNDS
        logs = [one + step / (n + 1) ** 0.5 * part / whole for one, part in zip(logs, sums, strict=True)]
    return best


def _product(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _longest_chain(graph: Graph, us: Mapping[str, float]) -> frozenset[str]:
    """The operations of the critical path."""
    ends: dict[str, float] = {}
    for id, waits in graph.before.items():
        ends[id] = max((ends[other] for other in waits), default=0.0) + us[id]
    chain: list[str] = []
    waits = tuple(ends)
    while waits:
        chain.append(max(waits, key=lambda id: ends[id]))
        waits = graph.before[chain[-1]]
    return frozenset(chain)
