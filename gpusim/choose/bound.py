"""Lower bounds of the makespan, of one plan and of all plans.

The bound of all plans is the largest of three: the critical path; what streams wait for, whatever streams there are
(`gpusim.choose.lanes_bound`); and the work of all kernels (`gpusim.choose.mixes_bound`). `gpusim.choose.least` has the
least time of one kernel. Before the first block nothing works: at least for the shortest launch latency. A convolution
after others takes longer than recorded, by the bytes that the others touch (`gpusim.model.context`). A bound takes less
of both ends: the least and the most that they can touch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import fsum

from gpusim.choose.lanes_bound import least_in_any_lanes, least_in_lanes
from gpusim.choose.least import KernelBounds, Least, least_of_launches, least_work, less_of, tile_works
from gpusim.choose.mixes_bound import Option, linear_program, one_by_one_us, option_kernel
from gpusim.choose.plan import Plan, PlannedWork
from gpusim.common.tables import summed
from gpusim.hardware.gpu import GPU
from gpusim.model.context import in_context, touched_bytes
from gpusim.model.kernel import KernelModel
from gpusim.session import Session
from gpusim.trace.edit import with_selected
from gpusim.trace.format import Trace
from gpusim.trace.graph import Graph, chains, ordered
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Kernel, Operation, Stream

MOST_OPERATIONS = 2_000  # of a trace whose bound is computed: the time grows with their square
PARTS = ("critical path", "streams", "DRAM", "L2", "mixes on the SMs")


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the makespan."""

    us: float  # the bound
    by: str  # the one of `PARTS` that contributes most to it


class Bounds:
    """Lower bounds of plans for some work on a GPU; everything is worked out once.

    ``planned``: plans run under policies that let a kernel start when it is ready, and leave its blocks on their SMs.
    """

    def __init__(self, work: PlannedWork, session: Session, *, planned: bool = True) -> None:
        self.session = session
        self.work = work
        self.planned = planned
        self._kernels = session.kernels(work.trace)
        self._known: dict[tuple[str, str, tuple[float, float] | None], Least] = {}
        touched = {id: list(map(displaced_bytes, found.values())) for id, found in work.algorithms.items()}
        self._touched = {id: (min(each), max(each)) for id, each in touched.items()}  # bytes, by its algorithms
        self._turn_us = _sure_turn_us(work, session.gpu)

    def launches(self, id: str, algorithm: str = "") -> Sequence[KernelLaunch]:
        """The launches of an operation, for a convolution those of an algorithm; none for copies and host work."""
        return self.work.algorithms[id][algorithm].kernels if algorithm else self.work.operations[id].launches()

    def models(self, id: str, algorithm: str = "") -> list[KernelModel]:
        """The models of the kernels of `launches`."""
        return [self._kernels.model(launch, id) for launch in self.launches(id, algorithm)]

    def least(self, id: str, algorithm: str = "", among: PlannedWork | None = None) -> Least:
        """The lower bounds of an operation, a convolution's with one algorithm, in any plan of ``among``, or all."""
        others = self._others(id, among or self.work) if algorithm else None
        key = id, algorithm, others
        if key not in self._known:
            if self.launches(id, algorithm):
                ways = dict.fromkeys(map(tuple, self._played(id, algorithm, others)))
                models = [[self._kernels.model(launch, id) for launch in way] for way in ways]
                each = [least_of_launches(*one, undisturbed=self.planned) for one in zip(ways, models, strict=True)]
                self._known[key] = reduce(less_of, each)
            else:
                occupied = self.work.operations[id].occupies(self.session.gpu)
                us = occupied.duration_us
                self._known[key] = Least(us, (0.0, 0.0, 0.0), us, (KernelBounds(us, us, 0.0),))
        return self._known[key]

    def _others(self, id: str, work: PlannedWork) -> tuple[float, float] | None:
        """Least and most bytes that the other operations of some work touch; None: there are none."""
        if len(work.operations) == 1:
            return None
        found = [self._touched[other] for other in work.algorithms if other != id]
        return sum(least for least, _ in found), sum(most for _, most in found)

    def _played(self, id: str, algorithm: str, others: tuple[float, float] | None) -> list[Sequence[KernelLaunch]]:
        """The launches of an operation as they are replayed after others that touch the least, and the most."""
        op = self.work.operations[id]
        if isinstance(op, Kernel) and self.planned:  # alone in its stream, and as in a CUDA graph
            return [op.launches(), _beside(self.work.trace, op, op, self.session.gpu)]
        if others is None or not isinstance(op, Convolution):
            return [self.launches(id, algorithm)]
        chosen, gpu = self.work.algorithms[id][algorithm], self.session.gpu
        own = with_selected(op, chosen)
        return [_beside(self.work.trace, own, _touching(own, touched), gpu) for touched in others]

    def alone_us(self, id: str, algorithm: str = "") -> float:
        """Time of an operation alone, for a convolution with a given algorithm: its kernels one after the other, us."""
        models = self.models(id, algorithm)
        return fsum(model.solo_us for model in models) if models else self.least(id).alone_us

    def memory_bound(self, id: str, algorithm: str = "") -> bool:
        """Whether an operation keeps DRAM or L2 busy longer than the SMs."""
        sm_us, dram_us, l2_us = self.least(id, algorithm).busy_us
        return max(dram_us, l2_us) > sm_us

    def of_plan(self, work: PlannedWork, plan: Plan) -> float:
        """A lower bound for one plan of all or part of the work, us."""
        found = {id: self.least(id, plan.algorithms.get(id, ""), work) for id in work.graph.ids}
        waits, waiting = work.planned(plan), {later for later, _ in plan.waits}
        choices = {id: [one] for id, one in found.items()}
        lanes_us = least_in_lanes(waits, plan.lanes, choices, self._turn_us, bool(plan.sms))
        chain_us = _longest_chain(waits, {id: one.alone_us for id, one in found.items()})[0]
        ready = [one for id, one in found.items() if not work.graph.before[id] and id not in waiting]
        idle = min((one.idle_us for one in ready), default=0.0)
        return max(chain_us, lanes_us, *(idle + fsum(one.busy_us[r] for one in found.values()) for r in (1, 2)))

    def of_any(self, work: PlannedWork) -> Bound:
        """A lower bound for all plans of some work, whatever their algorithms, streams, order, partition and memory."""
        parts = [self._of_block(work, work.graph.only(block)) for block in work.graph.blocks()]
        by_cause = summed((part.by, part.us) for part in parts)
        return Bound(fsum(part.us for part in parts), max(by_cause, key=lambda cause: by_cause[cause]))

    def _of_block(self, work: PlannedWork, graph: Graph) -> Bound:
        """The bound of one block."""
        names = {id: tuple(work.algorithms.get(id, ("",))) for id in graph.ids}
        choices = {id: [self.least(id, name, work) for name in found] for id, found in names.items()}
        chain_us, chain = _longest_chain(graph, {id: min(one.alone_us for one in of) for id, of in choices.items()})
        idle = min((one.idle_us for id in graph.ids if not graph.before[id] for one in choices[id]), default=0.0)
        found = [Bound(chain_us, PARTS[0])]
        if self.planned:
            found.append(Bound(least_in_any_lanes(graph, choices, self._turn_us, self.session.gpu.sm_count), PARTS[1]))
        for r in (1, 2):
            found.append(Bound(idle + fsum(min(one.busy_us[r] for one in of) for of in choices.values()), PARTS[1 + r]))
        enough_us = max(one.us for one in found)
        found.append(Bound(self._mixes_us(work, graph, names, chain, idle, enough_us), PARTS[-1]))
        return max(found, key=lambda one: one.us)

    def _mixes_us(
        self,
        work: PlannedWork,
        graph: Graph,
        names: Mapping[str, Sequence[str]],
        chain: frozenset[str],
        idle: float,
        enough_us: float,
    ) -> float:
        """The least time of the work, after others that touch the least, and the most; 0 if no more than enough."""
        made = [
            {id: [self._option(id, name, work, way) for name in found] for id, found in names.items()}
            for way in (0, -1)
        ]
        # mixes may do the work of the fastest algorithms kernel by kernel
        if idle + one_by_one_us(min(of, key=lambda one: one.alone_us) for of in made[0].values()) <= enough_us:
            return 0.0
        different = made[:1] if _kernels_of(made[0]) == _kernels_of(made[1]) else made
        capacity = self.session.gpu.limits.capacity
        programs = [linear_program(graph, options, capacity, chain, idle, loads=self.planned) for options in different]
        return min(0.0 if one is None else one.bound() for one in programs)

    def _option(self, id: str, name: str, work: PlannedWork, way: int) -> Option:
        least, others = self.least(id, name, work), self._others(id, work) if name else None
        launches = self._played(id, name, others)[way] if self.launches(id, name) else ()
        models = [self._kernels.model(launch, id) for launch in launches]
        kernels = tuple(option_kernel(model, least_work(model, tile_works(model))) for model in models)
        return Option(kernels, least.alone_us, *least.busy_us[1:])


def bound_of_trace(trace: Trace, session: Session) -> Bound | None:
    """A lower bound on the makespan of a trace as it is, under any policy that keeps the order of its streams.

    None for several GPUs, streams of requests and traces of over `MOST_OPERATIONS` operations.
    """
    trace = session.kernels(trace).worked_out(trace)  # kernels as long as they take after the others
    operations = {op.id: op for op in trace.operations()}
    if len(operations) > MOST_OPERATIONS or any(stream.gpu or stream.arrivals for stream in trace.streams):
        return None
    waits = ordered({id: op.depends_on for id, op in operations.items()})
    bounds = Bounds(PlannedWork(trace, waits.with_order(chains(trace)), operations, {}), session, planned=False)
    return bounds.of_any(bounds.work) if operations else None


def displaced_bytes(algorithm: ConvolutionAlgorithm) -> float:
    """Bytes of other operations in L2 that an algorithm displaces; 0 if `in_context` does not count it."""
    return 0.0 if algorithm.warm_us is None else touched_bytes(algorithm)


def _touching(op: Convolution, touched: float) -> Convolution:
    """A convolution that touches so many bytes."""
    selected = op.selected.model_copy(update={"touched_bytes": touched, "workspace_bytes": None})
    return op.model_copy(update={"selected": selected})


def _beside(trace: Trace, op: Operation, other: Operation, gpu: GPU) -> Sequence[KernelLaunch]:
    """The launches of an operation as they are replayed in a stream with another one, which gets another id."""
    operations = (op, other.model_copy(update={"id": f"beside {op.id}"}))
    stream = Stream.model_construct(name="s0", priority=0, operations=operations, arrivals=None)
    return in_context(trace.model_copy(update={"streams": (stream,)}), gpu).streams[0].operations[0].launches()


def _sure_turn_us(work: PlannedWork, gpu: GPU) -> float:
    """What kernels wait for each other stream, us; 0 where that is not sure.

    A stream that does work of the host does not count, and kernels of a CUDA graph do not wait. Of kernels that end
    together the first does not wait for the others: so do kernels without jitter, and equal ones.
    """
    launched = [
        dict.fromkeys(launch for one in work.algorithms[id].values() for launch in one.kernels)
        if id in work.algorithms
        else dict.fromkeys(op.launches())
        for id, op in work.operations.items()
    ]
    every = [launch for launches in launched for launch in launches]
    unsure = any(op.host_waits or isinstance(op, Kernel) for op in work.operations.values()) or not all(launched)
    return 0.0 if unsure or gpu.model.block_jitter == 0.0 or len(set(every)) < len(every) else gpu.model.stream_turn_us


def _kernels_of(options: Mapping[str, Sequence[Option]]) -> list[object]:
    return [one.model.identity for found in options.values() for option in found for one in option.kernels]


def _longest_chain(graph: Graph, us: Mapping[str, float]) -> tuple[float, frozenset[str]]:
    """The length of the critical path, and its operations."""
    ends: dict[str, float] = {}
    for id, waits in graph.before.items():
        ends[id] = max((ends[other] for other in waits), default=0.0) + us[id]
    chain: list[str] = []
    waits = tuple(ends)
    while waits:
        chain.append(max(waits, key=lambda id: ends[id]))
        waits = graph.before[chain[-1]]
    return max(ends.values(), default=0.0), frozenset(chain)
