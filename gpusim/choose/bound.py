"""Lower bounds of the makespan: the critical path, and the work that all operations ask of one resource.

Everything here is a lower bound of the model's own replays, whatever runs beside what:

* A kernel alone, all its blocks resident as evenly as they fit, makes the most progress that it ever can; others only
  slow it. So it takes at least its launch latency and its blocks at that pace.
* What the blocks on an SM use of its issue slots, of a pipe and of the L1 path never exceeds what these sustain
  (`gpusim.model.mixing.progress`). Kernels that different resources bind may run side by side at full speed.
* Nothing moves more than DRAM and L2 sustain.
* A block takes at least as long as one that has its SM to itself, and holds its registers, shared memory, warps and
  slot for that time; what all hold never exceeds the SMs.
* Before the first block no resource is busy: at least the shortest launch latency.

The work of a block is jittered; a bound takes every block for the shortest that there can be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, fsum, sqrt

from gpusim.choose.graph import Graph, chains, ordered
from gpusim.choose.plan import Plan, Work
from gpusim.model.contention import SHARED, mix_times
from gpusim.model.kernel import KernelModel
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, launch_waits

MOST_OPERATIONS = 2_000  # of a trace whose bound is computed: the time grows with their square
HELD = ("registers", "shared memory", "warps", "block slots")  # what resident blocks hold of an SM
SM_RESOURCES = {"issue": "issue slots", "alu": "ALU", "fma": "FMA", "tensor": "tensor cores", "l1": "L1"}
PARTS = ("critical path", *SM_RESOURCES.values(), "DRAM", "L2", *HELD)
ROUNDS = 150  # of the ascent to the best weights
STEPS = (8.0, 2.0)  # how far a round moves them, at the first and at the last


@dataclass(frozen=True, slots=True)
class Least:
    """Lower bounds for one operation."""

    alone_us: float  # time on an idle GPU
    busy_us: tuple[float, float, float]  # least time for which it keeps all SMs, DRAM and L2 fully busy by itself
    # least time for which it keeps each of `SM_RESOURCES` fully busy on all SMs
    used_us: tuple[float, ...] = field(default=(0.0,) * len(SM_RESOURCES), compare=False)
    # least time for which it holds all of each of `HELD` on all SMs
    held_us: tuple[float, ...] = field(default=(0.0,) * len(HELD), compare=False)
    idle_us: float = field(default=0.0, compare=False)  # least time before its first block runs

    @property
    def resources_us(self) -> tuple[float, ...]:
        """Times that it takes of each resource, in the order of `PARTS` from the second on."""
        return (*self.used_us, *self.busy_us[1:], *self.held_us)


@dataclass(frozen=True, slots=True)
class Bound:
    """A lower bound of the makespan."""

    us: float  # the bound
    by: str  # the one of `PARTS` that contributes most to it


def least_of_kernel(model: KernelModel, capacity: Sequence[int] = (), issue_share: float = 1.0) -> Least:
    """The lower bounds of one launch.

    Args:
        model: the launch.
        capacity: what an SM has of each of `HELD`; empty: what blocks hold is not bounded.
        issue_share: share of the issue slots that kernels sustain; where a pipe binds they may all be busy.
    """
    shortest = max(0.0, 1.0 - sqrt(3.0) * model.jitter)  # of uniform jitter
    blocks = model.blocks * shortest
    demands = model.demand.demands
    warps_us = blocks * model.demand.warps_per_scheduler * model.unit_us / model.sm_count
    used = [demands[SHARED.index(f"{name}_cycles")] for name in SM_RESOURCES]
    used[0] *= issue_share
    block_us = mix_times([(model.demand, 1)])[0] * model.unit_us
    shares = [need / most for need, most in zip(model.need, capacity, strict=True)] if capacity else [0.0] * len(HELD)
    return Least(
        model.latency_us + blocks * model.most_share_us,
        (warps_us * max(demands), blocks * model.dram_share_us, blocks * model.l2_share_us),
        tuple(warps_us * one for one in used),
        tuple(blocks * block_us * share / model.sm_count for share in shares),
        model.latency_us,
    )


def least_of_launches(
    launches: Sequence[KernelLaunch],
    models: Sequence[KernelModel],
    capacity: Sequence[int] = (),
    issue_share: float = 1.0,
) -> Least:
    """The lower bounds of the kernels of one operation; arguments as of `least_of_kernel`."""
    each = [least_of_kernel(model, capacity, issue_share) for model in models]
    ends: list[float] = []
    waiting = list(launch_waits(launches))
    for waits, one in zip(waiting, each, strict=True):
        ends.append(max((ends[at] for at in waits), default=0.0) + one.alone_us)
    sm, dram, l2 = (fsum(one.busy_us[r] for one in each) for r in range(3))
    used = tuple(fsum(one.used_us[r] for one in each) for r in range(len(SM_RESOURCES)))
    held = tuple(fsum(one.held_us[r] for one in each) for r in range(len(HELD)))
    idle = min(one.idle_us for waits, one in zip(waiting, each, strict=True) if not waits)
    return Least(max(ends), (sm, dram, l2), used, held, idle)


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
                gpu, models = self.session.gpu, self.models(id, algorithm)
                self._known[key] = least_of_launches(
                    launches, models, gpu.limits.capacity, gpu.model.sustained_issue_share
                )
            else:
                occupied = self.work.operations[id].occupies(self.session.gpu)
                self._known[key] = Least(occupied.duration_us, (0.0, 0.0, 0.0), idle_us=occupied.duration_us)
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

    Each part is a lower bound, so any weighted mean of them is one, too; and for given weights each operation can be
    minimised independently. The bound is the best over the weights tried (a Lagrangian relaxation).
    """
    options = {id: choices(id) for id in graph.ids}
    chain = _longest_chain(graph, {id: min(one.alone_us for one in found) for id, found in options.items()})
    idle = min(
        (min(one.idle_us for one in options[id]) for id, waits in graph.before.items() if not waits), default=0.0
    )
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
