"""Plans for each level of control, as `gpusim record`'s program takes them: `calls.txt` and `plans_GPU.txt`.

    python -m experiments.control_worth.plans GPU     # chosen by the model as it is, for recordings of an H200

A line of `plans_GPU.txt` is a workload, LEVEL:NAME of the plan, how its streams share the GPU, and its steps, as
gpusim/lab/record/convolutions/outcomes.cuh says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice, permutations, product
from math import fsum
from pathlib import Path

import gpusim
from experiments.make_traces import Recorded, convolution, read_dataset
from experiments.plans import call_in
from experiments.study import TRACES
from gpusim.choose.bound import Bounds
from gpusim.choose.descent import algorithm_moves, to_better
from gpusim.choose.judge import Candidate, Judge, started
from gpusim.choose.moves import fastest, first_splits, lane_weights, splits_near
from gpusim.choose.plan import STREAMS, Plan, PlannedWork, launch_order, planned_trace
from gpusim.choose.search import own_lanes, select, work_of
from gpusim.choose.streams import sequential
from gpusim.lab.record.calls import Call
from gpusim.lab.record.shapes import subject
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution, Operation, Stream
from gpusim.training.networks.steps import CONVOLUTION

HERE = Path(__file__).resolve().parent
MODULES = (
    *(f"inception_{name}" for name in ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")),
    *(f"inception_{name}_b16" for name in ("3a", "3b", "4a", "4c", "4e", "5a", "5b")),
)
NETWORKS = {  # trace: network, batch
    "googlenet_b1_forward": ("googlenet", 1),
    "resnet50_b1_forward": ("resnet50", 1),
    "googlenet_b16_forward": ("googlenet", 16),
    "resnet50_b16_forward": ("resnet50", 16),
}
PAIRS = (  # of modules, each a program in one stream
    ("inception_3a", "inception_5b"),
    ("inception_3b", "inception_4d"),
    ("inception_4a", "inception_4e"),
    ("inception_4c", "inception_5a"),
    ("inception_3a_b16", "inception_5b_b16"),
    ("inception_3b_b16", "inception_4c_b16"),
    ("inception_4a_b16", "inception_4e_b16"),
)
MICRO_BATCHES = ("8", "32", "64")  # images, at which inception 3a and 4a are modules of their own
NETWORKS_DATA = HERE.parent / "h200_validation" / "data" / "networks"
WORKLOADS = (*MODULES, *("+".join(pair) for pair in PAIRS), *NETWORKS)
NOTHING, SERIAL = "nothing:streams", "nothing:serial"
TOGETHER, ORDERED, HOST = "all", "ordered", "host"  # how streams are released: see outcomes.cuh
ALGORITHM_REPLAYS, SPLIT_REPLAYS = 80, 30
MOST_ORDERS = 24
URGENT = "priority="


@dataclass(frozen=True)
class Trial:
    """A plan at a level of control.

    Attributes:
        workload: name of its trace, or of two.
        name: level and plan, such as ``order:best``.
        sharing: how its streams are released or share the GPU, as the program is told.
        plan: the plan.
    """

    workload: str
    name: str
    sharing: str
    plan: Plan

    @property
    def level(self) -> str:
        """What of the plan a program must be able to control."""
        return self.name.split(":")[0]

    @property
    def priorities(self) -> tuple[int, ...]:
        """Priority of each stream, 0 the lowest; empty: all are alike."""
        if not self.sharing.startswith(URGENT):
            return ()
        return tuple(map(int, self.sharing.removeprefix(URGENT).split("+")))


# ---- workloads -------------------------------------------------------------------------------------------------------


@cache
def trace_of(workload: str) -> Trace:
    """The trace of a workload; two modules are two programs, each in one stream."""
    first, *others = (_module(name) for name in workload.split("+"))
    if not others:
        return first
    streams = tuple(Stream(name=f"program{n}", operations=_in_a_row(one)) for n, one in enumerate((first, *others)))
    return first.model_copy(update={"name": workload, "streams": streams})


@cache
def _module(name: str) -> Trace:
    """A module: a shipped trace, micro-batches of a shipped trace as a batch of their own, or a fire module."""
    title, _, batch = name.rpartition("_b")
    if name.startswith("squeezenet_"):
        return _fire(name)
    if batch in MICRO_BATCHES:
        return _micro_batch(title, int(batch))
    return gpusim.load_trace(TRACES / f"{name}.json.gz")


def _micro_batch(title: str, batch: int) -> Trace:
    """A module whose whole batch is one micro-batch, by its fastest algorithms; the others are alternatives."""
    whole = gpusim.load_trace(TRACES / f"{title.replace('inception', 'micro_batches')}.json.gz")

    def part(op: Operation) -> Operation:
        assert isinstance(op, Convolution) and op.shape is not None
        (size,) = (one for one in op.micro_batches if one.batch == batch)
        first, *others = sorted(size.algorithms, key=lambda one: fsum(kernel.duration_us for kernel in one.kernels))
        parts = {"selected": first, "alternatives": tuple(others), "micro_batches": ()}
        return op.model_copy(update={**parts, "shape": op.shape.model_copy(update={"batch": batch})})

    streams = (one.model_copy(update={"operations": tuple(map(part, one.operations))}) for one in whole.streams)
    return whole.model_copy(update={"name": f"{title}_b{batch}", "streams": tuple(streams)})


def _fire(name: str) -> Trace:
    """A fire module of SqueezeNet: its squeeze, and then two convolutions in a stream each."""
    layers = {layer: f"{name.replace('_', '/')}.{layer}" for layer in ("squeeze", "expand1x1", "expand3x3")}
    made = {layer: convolution(_networks(), path) for layer, path in layers.items()}
    beside = made["expand3x3"].model_copy(update={"depends_on": (made["squeeze"].id,)})
    streams = (
        Stream(name="expand1x1", operations=(made["squeeze"], made["expand1x1"])),
        Stream(name="expand3x3", operations=(beside,)),
    )
    return Trace(version=1, name=name, device="h200", notes="", streams=streams)


@cache
def _networks() -> Recorded:
    """What was recorded of other networks."""
    return read_dataset(NETWORKS_DATA)


def _in_a_row(trace: Trace) -> tuple[Convolution, ...]:
    """The operations of a trace in topological order."""
    operations = {op.id: op for op in trace.operations()}
    order = sequential(work_of(trace, gpusim.load_gpu("h200")).graph)[0]
    return tuple(op for id in order if isinstance(op := operations[id], Convolution))


@cache
def known(workload: str, session: Session) -> tuple[PlannedWork, Bounds]:
    """The operations of a workload, and their bounds."""
    work = work_of(trace_of(workload), session.gpu)
    return work, Bounds(work, session)


@cache
def session_on(gpu: str) -> Session:
    """A session on a GPU for recordings of the H200."""
    return Session(gpu, cache=True)


# ---- what a plan is expected to take ---------------------------------------------------------------------------------


def starts_us(trial: Trial, session: Session) -> list[float]:
    """Makespan of a plan in each order in which its streams may start, us; one where the program says the order."""
    work, _ = known(trial.workload, session)
    if trial.sharing in (ORDERED, HOST):
        return [session.makespan_us(planned_trace(work, trial.plan), trial.plan.policy)]
    priority_of = dict(zip(trial.plan.lanes, trial.priorities, strict=True)) if trial.priorities else {}
    return [
        session.makespan_us(
            _urgent(planned_trace(work, one), [priority_of.get(lane, 0) for lane in one.lanes]), one.policy
        )
        for one in started(trial.plan, "any")
    ]


def expected_us(trial: Trial, session: Session) -> float:
    """The mean of that."""
    found = starts_us(trial, session)
    return fsum(found) / len(found)


def _urgent(trace: Trace, priorities: Sequence[int]) -> Trace:
    streams = (one.model_copy(update={"priority": us}) for one, us in zip(trace.streams, priorities, strict=True))
    return trace.model_copy(update={"streams": tuple(streams)})


# ---- what each level chooses -----------------------------------------------------------------------------------------


def trials(workload: str, session: Session) -> list[Trial]:
    """The plans to try of a workload: at each level the best that is found, and another."""
    work, bounds = known(workload, session)
    plain = Plan(own_lanes(work), fastest(work, bounds))
    serial = Plan(sequential(work.graph), plain.algorithms)
    try_it = partial(Trial, workload)
    found = [try_it(NOTHING, TOGETHER, plain), try_it(SERIAL, TOGETHER, serial), try_it("host:as-traced", HOST, plain)]
    expect = partial(expected_us, session=session)
    if len(plain.lanes) > 1:
        urgent = sorted((try_it("", _words(p), plain) for p in _priorities(work, bounds, plain)), key=expect)
        found += [
            replace(one, name=f"priorities:{name}") for one, name in zip(urgent, ("best", "second"), strict=False)
        ]
        orders = sorted((try_it("", ORDERED, one) for one in _orders(plain)), key=expect)
        found += [replace(orders[0], name="order:best"), replace(orders[-1], name="order:worst")]
        found.append(replace(orders[0], name="host:best", sharing=HOST))
        for one, name in zip(_splits(work, bounds, plain), ("best", "even"), strict=False):
            found.append(try_it(f"masks:{name}", "+".join(map(str, one.sms)), one))
    for one, name in zip(_algorithms(work, bounds, plain), ("best", "second"), strict=False):
        found.append(try_it(f"algorithms:{name}", TOGETHER, one))
    chosen = _selected(workload, session, plain)
    if chosen is not None:
        found.append(try_it("all:select", "+".join(map(str, chosen.sms)) or TOGETHER, chosen))
    return found


def _words(priorities: Sequence[int]) -> str:
    return URGENT + "+".join(map(str, priorities))


def _priorities(work: PlannedWork, bounds: Bounds, plan: Plan) -> list[tuple[int, ...]]:
    """Two priorities in every way, for many streams one stream before the others."""
    count = len(plan.lanes)
    if count <= 4:
        return [one for one in product((0, 1), repeat=count) if 0 < sum(one) < count]
    return [tuple(int(n == at) for n in range(count)) for at in range(count)]


def _orders(plan: Plan) -> list[Plan]:
    """The plan with its streams in other orders."""
    return [replace(plan, lanes=lanes) for lanes in islice(permutations(plan.lanes), MOST_ORDERS)]


def _splits(work: PlannedWork, bounds: Bounds, plan: Plan) -> list[Plan]:
    """The best SM split that is found, and the even one."""
    judge = Judge(work, bounds, None, SPLIT_REPLAYS, "any")
    gpu = judge.gpu
    firsts = [one for one in first_splits(gpu, plan, lane_weights(bounds, plan)) if judge.launches(one)]
    if not firsts:
        return []
    best = min((judge.replayed(one) for one in firsts), key=lambda one: one.expected_us)
    best = to_better(judge, best, lambda plan: splits_near(gpu, plan), 0)
    others = [one for one in firsts if one.key != best.plan.key]
    return [best.plan, *others[:1]]


def _algorithms(work: PlannedWork, bounds: Bounds, plan: Plan) -> list[Plan]:
    """The best algorithms in the same streams, and the next; without the fastest ones, which need no choice."""
    if all(len(found) == 1 for found in work.algorithms.values()):
        return []
    judge = Judge(work, bounds, None, ALGORITHM_REPLAYS, "any")
    first = judge.replayed(plan)
    to_better(judge, first, partial(algorithm_moves, judge), 0)
    seen: list[Candidate] = sorted(judge.seen, key=lambda one: one.expected_us)
    return [replace(one.plan, lanes=plan.lanes) for one in seen if one.plan.algorithms != plan.algorithms]


def _selected(workload: str, session: Session, plain: Plan) -> Plan | None:
    """The plan that `gpusim select` finds best for what the hardware can be told; None where it is plain streams."""
    if workload in NETWORKS or "+" in workload:
        return None
    found = select(trace_of(workload), session, sharing="hardware").found.plan
    return None if (found.streams, found.algorithms) == (plain.streams, plain.algorithms) and not found.sms else found


# ---- as the program reads them ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Named:
    """A step of a plan: operations that one call makes.

    Attributes:
        ids: of its operations.
        call: the call.
    """

    ids: tuple[str, ...]
    call: Call


def steps_of(workload: str, work: PlannedWork, plan: Plan) -> dict[str, Named]:
    """For each operation the step that it is part of."""
    if workload not in NETWORKS:
        made = {}
        for id, operation in work.operations.items():
            assert isinstance(operation, Convolution)
            made[id] = Named((id,), call_in(workload, operation, plan.algorithms[id]))
        return made
    network, batch = NETWORKS[workload]
    found: dict[str, Named] = {}
    for step in subject(network, batch, False).steps:
        ids = (step.id, *(id for n in range(1, 9) if (id := f"{step.id}.{n}") in work.operations))
        algorithm, math = (step.work.kind, "FMA")
        if step.work.kind == CONVOLUTION:
            algorithm, math = plan.algorithms[step.id].split("/")
        named = Named(ids, Call(workload, step.layer, step.work, algorithm, math))
        found |= dict.fromkeys(ids, named)
    return found


def line_of(trial: Trial, work: PlannedWork) -> tuple[str, list[str]]:
    """A plan as the program reads it, and the lines of its calls."""
    steps = steps_of(trial.workload, work, trial.plan)
    graph = work.planned(trial.plan).reduced()
    lane_of = {id: n for n, lane in enumerate(trial.plan.lanes) for id in lane}
    order = list(dict.fromkeys(steps[id].ids[0] for id in launch_order(work, trial.plan)))
    at = {id: n for n, first in enumerate(order) for id in steps[first].ids}
    words, calls = [trial.workload, trial.name, trial.sharing], []
    for first in order:
        waits = {at[o] for id in steps[first].ids for o in graph.before[id] if lane_of[o] != lane_of[first]}
        words += [str(lane_of[first]), steps[first].call.op, ",".join(map(str, sorted(waits))) or "-"]
        calls.append(steps[first].call.line)
    return " ".join(words), calls


def read(path: Path, session: Session) -> Iterator[Trial]:
    """The plans of a file."""
    for line in path.read_text(encoding="utf-8").splitlines():
        workload, name, sharing, *words = line.split()
        work, _ = known(workload, session)
        lanes: dict[int, list[str]] = {}
        algorithms = {}
        for stream, op in zip(words[::3], words[1::3], strict=True):
            _, layer, direction, algorithm, math = op.split("/")
            id = f"{layer}/{direction}" if workload in NETWORKS else layer
            ids = [one for one in (id, *(f"{id}.{n}" for n in range(1, 9))) if one in work.operations]
            lanes.setdefault(int(stream), []).extend(ids)
            if id in work.algorithms:
                algorithms[id] = f"{algorithm}/{math}"
        sms = tuple(map(int, sharing.split("+"))) if sharing[0].isdigit() else ()
        policy = f"green-context:sms={sharing}" if sms else STREAMS
        plan = Plan(tuple(tuple(lanes[n]) for n in sorted(lanes)), algorithms, policy, sms)
        yield Trial(workload, name, sharing, plan)


def write(gpu: str, folder: Path = HERE) -> None:
    """Choose the plans for a GPU and write them; the calls are added to those that are there."""
    session = session_on(gpu)
    calls = folder / "calls.txt"
    lines = dict.fromkeys(calls.read_text(encoding="utf-8").splitlines() if calls.exists() else ())
    plans = []
    for workload in WORKLOADS:
        work, _ = known(workload, session)
        for trial in trials(workload, session):
            line, made = line_of(trial, work)
            plans.append(line)
            lines |= dict.fromkeys(made)
        print(f"{workload}: {len(plans)} plans so far", flush=True)
    calls.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / f"plans_{gpu}.txt").write_text("".join(f"{line}\n" for line in plans), encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1])
