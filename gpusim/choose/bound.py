"""Lower bounds of the makespan: the critical path, and the work that all operations ask of one resource.

Everything here is a lower bound of the model's own replays, whatever runs beside what:

* A kernel alone, all its blocks resident as evenly as they fit, makes the most progress that it ever can; others only
  slow it. So it takes at least its launch latency and its blocks at that pace.
* Warps take turns at a scheduler (`gpusim.model.contention.mix_times`), so that what the blocks on an SM hold of the
  resource that binds each, added over all kernels, never exceeds the SM.
* Nothing moves more than DRAM and L2 sustain.

The work of a block is jittered; a bound takes every block for the shortest that there can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import fsum, sqrt

from gpusim.choose.graph import Graph, chains, ordered
from gpusim.choose.plan import Plan, Work
from gpusim.model.kernel import KernelModel
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, launch_waits

PARTS = ("critical path", "SMs", "DRAM", "L2")
MOST_OPERATIONS = 2_000  # of a trace whose bound is worked out: it takes time by their square
STEPS = 8  # of a weight from 0 to 1
WEIGHTS = tuple(
    (a / STEPS, b / STEPS, c / STEPS, (STEPS - a - b - c) / STEPS)
    for a, b, c in product(range(STEPS + 1), repeat=3)
    if a + b + c <= STEPS
)
CORNERS = tuple(weights for weights in WEIGHTS if max(weights) == 1.0)


@dataclass(frozen=True, slots=True)
class Least:
    """Lower bounds for one operation."""

    alone_us: float  # time on an idle GPU
    busy_us: tuple[float, float, float]  # least time for which it keeps all SMs, DRAM and L2 fully busy


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the makespan."""

    us: float  # the bound
    by: str  # the one of `PARTS` that contributes most to it


def least_of_kernel(model: KernelModel) -> Least:
    """The lower bounds of one launch."""
    shortest = max(0.0, 1.0 - sqrt(3.0) * model.jitter)  # of uniform jitter
    blocks = model.blocks * shortest
    sm_us = blocks * model.demand.warps_per_scheduler * max(model.demand.demands) * model.unit_us / model.sm_count
    return Least(
        model.latency_us + blocks * model.most_share_us,
        (sm_us, blocks * model.dram_share_us, blocks * model.l2_share_us),
    )


def least_of_launches(launches: Sequence[KernelLaunch], models: Sequence[KernelModel]) -> Least:
    """The lower bounds of the kernels of one operation."""
    each = [least_of_kernel(model) for model in models]
    ends: list[float] = []
    for waits, one in zip(launch_waits(launches), each, strict=True):
        ends.append(max((ends[at] for at in waits), default=0.0) + one.alone_us)
    sm, dram, l2 = (fsum(one.busy_us[r] for one in each) for r in range(3))
    return Least(max(ends), (sm, dram, l2))


class Bounds:
    """Lower bounds of plans for some work on a GPU; everything is worked out once."""

    def __init__(self, work: Work, session: Session) -> None:
        self.session = session
        self.work = work
        self._kernels = session.kernels(work.trace)
        self._known: dict[tuple[str, str], Least] = {}

    def launches(self, id: str, algorithm: str = "") -> Sequence[KernelLaunch]:
        """The launches of an operation, for a convolution those of an algorithm; none for copies and host work."""
        return self.work.algorithms[id][algorithm].kernels if algorithm else self.work.operations[id].launches()

    def models(self, id: str, algorithm: str = "") -> list[KernelModel]:
        """The models of the kernels of `launches`."""
        return [self._kernels.model(launch, id) for launch in self.launches(id, algorithm)]

    def least(self, id: str, algorithm: str = "") -> Least:
        """The lower bounds of an operation, for a convolution with a given algorithm."""
        key = id, algorithm
        if key not in self._known:
            launches = self.launches(id, algorithm)
            if launches:
                self._known[key] = least_of_launches(launches, self.models(id, algorithm))
            else:
                occupied = self.work.operations[id].occupies(self.session.gpu)
                self._known[key] = Least(occupied.duration_us, (0.0, 0.0, 0.0))
        return self._known[key]

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
        return _bound(work.planned(plan), lambda id: [self.least(id, plan.algorithms.get(id, ""))]).us

    def of_any(self, work: Work) -> Bound:
        """A lower bound for all plans of some work, whatever their algorithms, streams, order, partition and memory."""
        parts = [
            _bound(work.graph.only(block), lambda id: [self.least(id, name) for name in work.algorithms.get(id, ("",))])
            for block in work.graph.blocks()
        ]
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


def _bound(graph: Graph, choices: Callable[[str], Sequence[Least]]) -> Bound:
    """The lower bound over all choices of one alternative for each operation.

    Each of the four parts is a lower bound, so any weighted mean of them is one, too; and for given weights each
    operation can be minimised independently. The bound is the best over the weights tried (a Lagrangian relaxation).
    """
    options = {id: choices(id) for id in graph.ids}
    chain = _longest_chain(graph, {id: min(one.alone_us for one in found) for id, found in options.items()})
    parts = [[(one.alone_us if id in chain else 0.0, *one.busy_us) for one in found] for id, found in options.items()]
    many = any(len(found) > 1 for found in options.values())
    us, weights = max((_weighted(parts, weights), weights) for weights in (WEIGHTS if many else CORNERS))
    return Bound(us, PARTS[max(range(len(PARTS)), key=lambda part: weights[part])])


def _weighted(parts: Sequence[Sequence[tuple[float, ...]]], weights: Sequence[float]) -> float:
    return fsum(min(sum(w * part for w, part in zip(weights, one, strict=True)) for one in found) for found in parts)


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
