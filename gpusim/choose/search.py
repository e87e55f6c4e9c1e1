"""The search for the best plan: exhaustive where plans are few, else a local search from several starts.

A graph of more than a few plans falls into blocks that can only run one after the other
(`gpusim.trace.graph.Graph.blocks`), such as the modules of a network. Each is searched by itself, and the plan of the
whole runs the best of each: with the blocks as stages this is the dynamic programming of IOS, and as every stage is
given, each is solved once. A block is searched

* completely, where it has no more than `COMPLETE` plans and the replays suffice: replayed are those whose lower bound
  is below the best so far, in the order of their bounds;
* else by descent: from named starts (one stream, the trace's streams, Nimble's, Opara's; the fastest algorithms that
  keep the limit) the best few go on to the first better neighbour until none is better or the replays are used up.
  Neighbours have one other algorithm, an operation or a stream elsewhere, or SMs moved. Plain streams are searched
  first, as if there was nothing else, then SM splits, then mixes, each from the best so far: with more ways to share
  no plan is worse.

The whole is replayed at the end beside the named baselines, and the best of all that was replayed is found: no plan is
worse than a baseline. What is recommended is the last of these steps whose gain over the step before it is sure, as
chosen plans turned out (`gpusim.choose.chosen`): the streams of the trace, or one stream; other algorithms in them; the
plan found. A plan is judged by its mean makespan over the orders in which its streams may start
(`gpusim.choose.judge`). No clock decides anything: the same inputs give the same plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal, get_args

from gpusim.choose import moves
from gpusim.choose.alternatives import fits as runs_on
from gpusim.choose.bound import Bound, Bounds
from gpusim.choose.chosen import ChoiceKind, ChosenError, chosen_error, expected_gain, is_sure, steps_taken
from gpusim.choose.descent import algorithm_moves, descend, to_better
from gpusim.choose.judge import ORDERS, Candidate, Judge, Order, frontier, gain_percent, is_less, key_of
from gpusim.choose.micro_batches import Divided, divided_convolutions
from gpusim.choose.plan import STREAMS, Plan, PlannedWork, planned_trace
from gpusim.choose.streams import (
    Lanes,
    Stage,
    as_lanes,
    greedy_stages,
    ios_stages,
    lanes_of,
    nimble,
    of_units,
    opara,
    sequential,
    stage_waits,
    units,
)
from gpusim.common.errors import InputError, quote
from gpusim.common.numbers import is_whole
from gpusim.common.progress import Step, no_step, require_step
from gpusim.hardware.gpu import GPU
from gpusim.session import AnyGPU, AnyTrace, Session, opened
from gpusim.trace.format import Trace
from gpusim.trace.graph import chains, graph_of
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm

WAYS = ("sequential", "branches", "nimble", "opara", "greedy", "ios")  # to make streams of a graph
MOST_UNITS = 16  # operations of a block that IOS's dynamic programming is asked for
COMPLETE = 2000  # plans of a block that are all looked at, if so many replays are not needed
FEW = 5  # operations, above which a block has more
REPLAYS = 200  # of the search in plain streams; half as many for each further way to share, and for the frontier
SMALL = 12  # operations of a block, above which it gets fewer; one of several blocks gets half
FEWEST_REPLAYS = 12
SPLIT_REPLAYS = 40  # of them for the best SM split, a baseline
STARTS = 3  # plans from which a descent begins
LOWER_LIMITS = 12  # of memory, below that of the best plan, for which good plans are sought, for the frontier
JOINED = 12  # plans of a network that are made of those of its blocks, for as many limits of memory
NEAR_BEST = 0.05  # of the least makespan: what objective `memory` gives away, about half of the model's error
PLAIN = ("streams, fastest", "serial, fastest")  # what a program has without a plan
UNDIVIDED = "whole batches"  # the baseline of what has micro-batches
PlanObjective = Literal["makespan", "memory"]
Divisions = Mapping[str, Sequence[Divided]]  # of convolutions, by id


@dataclass(frozen=True)
class Selection:
    """Result of a search: the best plan, and what to compare it with."""

    work: PlannedWork  # the operations with the algorithms that they could take
    session: Session  # where plans were replayed
    bounds: Bounds  # lower bounds of its plans
    objective: PlanObjective  # what was wanted
    order: Order  # who decides in which order streams start
    best: Candidate  # the recommended plan: the one found, or, where a tie, `simpler`
    found: Candidate  # the plan with the least expected makespan
    plain: Candidate | None  # the better of `PLAIN`; None where neither keeps the limit
    simpler: Candidate | None  # the best algorithms in the same streams, where these gain surely; else `plain`
    error: ChosenError | None  # of choices like the plan found on this GPU; None: none were measured
    simpler_error: ChosenError | None  # of choices of algorithms, as in `simpler`
    bound: Bound  # what no plan beats: any algorithms, streams, order, partition and memory
    baselines: tuple[tuple[str, Candidate], ...]  # named plans, replayed under the same limit, best first
    frontier: tuple[Candidate, ...]  # plans that no other beats in both memory and makespan, by ascending memory
    complete: bool  # whether all plans were looked at, or bounded, so that none of those that can be told is better
    replays: int  # that it took, those of blocks counted like others
    seen: tuple[Candidate, ...]  # all plans of the whole that were replayed, best first
    limit_bytes: int | None  # of the workspaces; None: none
    undivided: Selection | None = None  # what was found without dividing batches, where they can be divided

    def __repr__(self) -> str:
        best = f"streams={len(self.best.plan.lanes)}, expected_us={self.best.expected_us:.1f}"
        return f"Selection(trace={self.work.trace.name!r}, gpu={self.gpu.name!r}, {best})"

    @property
    def gpu(self) -> GPU:
        """Where."""
        return self.session.gpu

    @property
    def gap(self) -> float:
        """How far the plan found is from the bound at most: 0.1 is a tenth longer."""
        return self.found.expected_us / self.bound.us - 1.0 if self.bound.us > 0.0 else 0.0

    @property
    def gain(self) -> float:
        """Predicted gain of the plan found over the better of `PLAIN`, percent; 0 where there is none."""
        return 0.0 if self.plain is None else gain_percent(self.plain, self.found)

    @property
    def expected_gain(self) -> float:
        """Gain of the recommended plan over the better of `PLAIN` to expect, as such choices turned out; percent."""
        error = self.simpler_error if self.best is self.simpler else self.error
        return 0.0 if self.plain is None else expected_gain(gain_percent(self.plain, self.best), error)

    @property
    def slower(self) -> bool:
        """Whether the recommended plan loses more to the better of `PLAIN` than one such choice in ten errs."""
        return self.error is not None and self.expected_gain < -self.error.limit

    @property
    def tie(self) -> bool:
        """Whether the gain of the plan found over `simpler` is not sure."""
        return self.simpler is not None and not is_sure(gain_percent(self.simpler, self.found), self.error)


def in_streams_of(plain: Candidate, seen: Iterable[Candidate]) -> list[Candidate]:
    """Those of some plans that differ from one in plain streams at most by their algorithms."""
    return [one for one in seen if one.plan.streams == plain.plan.streams and one.plan.policy == STREAMS]


def select(
    trace: AnyTrace,
    gpu: AnyGPU | Session | None = None,
    *,
    memory_bytes: int | None = None,
    objective: PlanObjective = "makespan",
    sharing: str = "all",
    streams: str | Lanes = "search",
    order: Order = "any",
    recorded_on: AnyGPU | None = None,
    step: Step = no_step,
) -> Selection:
    """Search for the best plan of a trace: convolution algorithms, streams, launch order and SM partition.

    Args:
        trace: operations with their alternatives; its streams give the dependencies, and are a baseline.
        gpu: the GPU of the plan: a GPU, its name or the path of its file, or a session; None: that of the recording.
        memory_bytes: limit on the sum of workspaces of operations that may run at once; None: no limit.
        objective: ``makespan``; or ``memory``: the least memory whose makespan is within 5 % of the least found.
        sharing: ``streams``: plain streams; ``hardware``: also hardware-supported SM splits; ``all``: also mixes on an
            SM and SMs that move, which no hardware supports.
        streams: ``search``, one of `WAYS` (the streams are as that makes them, the rest is searched), or lanes to keep.
        order: ``any``: the streams start in an order that the program cannot control, as behind one event; a plan is
            judged by the mean over orders. ``host``: the host launches them in the order of the plan.
        recorded_on: the GPU of the recording, if the trace names one that does not ship.
        step: called with the name of each step before it starts.

    Divisions into micro-batches are further algorithms. The result without them is then a start of the search and the
    baseline `UNDIVIDED`.

    Raises:
        InputError: a limit that no plan keeps, a convolution without an algorithm to choose, or streams of requests.
    """
    require_step(step)
    trace, session = opened(trace, gpu, recorded_on)
    if memory_bytes is not None and not is_whole(memory_bytes):
        raise InputError(None, "memory_bytes", f"is {quote(memory_bytes)}", "a number of bytes, 0 or more, or None")
    memory_bytes = None if memory_bytes is None else int(memory_bytes)
    known_of = {"objective": get_args(PlanObjective), "sharing": moves.SHARING, "order": ORDERS}
    for (name, known), value in zip(known_of.items(), (objective, sharing, order), strict=True):
        if not (isinstance(value, str) and value in known):
            raise InputError(None, name, f"is {quote(value)}", f"one of {', '.join(known)}")
    streams = _way_or_lanes(streams)
    divided = divided_convolutions(trace, session)
    sized = objective == "memory"
    work = work_of(trace, session.gpu, memory_bytes, divided, sized=sized)
    search = partial(_select, session, memory_bytes, objective, sharing, streams, order)
    if not divided:
        return search(work, step=step)
    try:
        whole = work_of(trace, session.gpu, memory_bytes, sized=sized)
        undivided = search(whole, step=lambda name: step(f"without dividing batches: {name}"))
    except InputError:  # a limit that only micro-batches keep; any other error the search below meets, too
        undivided = None
    return search(work, step=step, undivided=undivided)


def _select(
    session: Session,
    limit: int | None,
    objective: PlanObjective,
    sharing: str,
    streams: str | Lanes,
    order: Order,
    work: PlannedWork,
    step: Step,
    undivided: Selection | None = None,
) -> Selection:
    bounds, gpu = Bounds(work, session), session.gpu
    step("fitting kernels to their recording")
    bound = bounds.of_any(work)
    whole = Judge(work, bounds, limit, _replays(work), order)
    known = [] if undivided is None else [whole.replayed(one.plan) for one in undivided.frontier]
    judges: list[Judge] = []
    given: Plan | None = None
    complete = False
    few = _few_plans(work, gpu, sharing, order) if streams == "search" else []
    blocks = work.graph.blocks() if streams == "search" and not few else [work.graph.ids]
    if len(blocks) == 1:
        step("searching")
        given = None if streams == "search" else _given(whole, streams, step)
        named, complete = _search(whole, sharing, own_lanes(work), given, few)
    else:
        for n, block in enumerate(blocks, 1):
            step(f"searching block {n} of {len(blocks)}")
            part = work.part(block)
            judges.append(Judge(part, bounds, limit, _replays(part) // 2, order))
            _search(judges[-1], "streams", own_lanes(part), None, _few_plans(part, gpu, "streams", order))
        step("replaying the whole and the baselines")
        named = _baselines(whole, moves.ways_to_share(sharing), own_lanes(work), None, {})
        for plan in _joined_plans([frontier(judge.seen) for judge in judges]):
            whole.replayed(plan)
    if undivided is not None:
        named[UNDIVIDED] = whole.replayed(undivided.best.plan)
    kept = {one.plan.streams for one in known} | ({given.streams} if given is not None else set())
    front = frontier(one for one in whole.seen if given is None or one.plan.streams in kept)
    if not front:
        problem = f"need more workspace than {limit:,} bytes by any algorithms"
        raise InputError(None, "streams", problem, "other streams, or more memory")
    found = best = front[-1]
    plain = min((named[name] for name in PLAIN if name in named), key=lambda one: one.expected_us, default=None)
    inside_error, error = None, None
    if PLAIN[0] in named:  # what chosen plans were measured against
        kinds: tuple[ChoiceKind, ChoiceKind] = ("algorithms", "plan")
        first: tuple[ChoiceKind, ...] = ("order",) if order == "host" else ()
        mean_us = moves.mean_alone_us(work, bounds)
        inside_error, error = (chosen_error(gpu.name, mean_us, *first, kind) for kind in kinds)
    simpler = plain
    if objective == "memory":
        best = next(one for one in front if one.expected_us <= found.expected_us * (1.0 + NEAR_BEST))
    elif streams == "search" and plain is not None:
        same = in_streams_of(plain, whole.seen)
        inside = frontier(one for one in same if limit is None or one.memory_bytes <= limit)[-1]
        if inside is found:
            error = inside_error
        steps = ((inside, inside_error), (found, error))
        taken = steps_taken((gain_percent(plain, one), error) for one, error in steps)
        best = (plain, inside, found)[taken[-1]]
        if 1 in taken and inside is not found:
            simpler = inside
    return Selection(
        work,
        session,
        bounds,
        objective,
        order,
        best,
        found,
        plain,
        simpler,
        error,
        inside_error,
        bound,
        tuple(sorted(named.items(), key=lambda found: found[1].expected_us)),
        tuple(front),
        complete,
        sum(len(judge.seen) for judge in (whole, *judges)),
        tuple(sorted(whole.seen, key=lambda found: found.expected_us)),
        limit,
        undivided,
    )


# ---- what there is to choose


def work_of(
    trace: Trace, gpu: GPU, memory_bytes: int | None = None, divided: Divisions | None = None, *, sized: bool = False
) -> PlannedWork:
    """The operations of a trace with the algorithms that can be chosen on a GPU within a limit, one at least.

    An algorithm can be chosen where each kernel of it fits an SM and, under a limit, its workspace is known to keep it.
    ``memory_bytes`` is the limit of one workspace; None: none. ``divided`` has divisions of the batch of convolutions,
    by id, which are algorithms like the others. ``sized``: only algorithms of known workspace, as under a limit.
    """
    graph, divided = graph_of(trace), divided or {}
    algorithms: dict[str, dict[str, ConvolutionAlgorithm]] = {}
    least: tuple[int, str] = (0, "")
    for s, stream in enumerate(trace.streams):
        for o, op in enumerate(stream.operations):
            if isinstance(op, Convolution):
                able = [one for one in (op.selected, *op.alternatives) if runs_on(one, gpu)]
                able += [one.algorithm for one in divided.get(op.id, ())]
                place = f"streams[{s}].operations[{o}] ({op.id})"
                if not able:
                    raise InputError(None, place, f"no algorithm runs on {gpu.name}", "one whose blocks fit an SM")
                if sized or memory_bytes is not None:
                    able = [one for one in able if one.workspace_bytes is not None]
                    if not able:
                        expected = "workspace_bytes of at least one algorithm, to plan memory"
                        raise InputError(None, place, "no workspace is known", expected)
                if memory_bytes is not None:
                    smallest = min(able, key=lambda one: one.workspace_bytes or 0)
                    least = max(least, (smallest.workspace_bytes or 0, f"{op.id} by {smallest.algorithm}"))
                    able = [one for one in able if (one.workspace_bytes or 0) <= memory_bytes]
                algorithms[op.id] = {one.algorithm: one for one in able}
    if memory_bytes is not None and least[0] > memory_bytes:
        problem = f"{memory_bytes:,} bytes of workspace are too few for any plan"
        raise InputError(None, "memory_bytes", problem, f"at least {least[0]:,}, for {least[1]}")
    divisions = {
        id: {name: one.division for one in found if (name := one.algorithm.algorithm) in algorithms[id]}
        for id, found in divided.items()
    }
    return PlannedWork(trace, graph, {op.id: op for op in trace.operations()}, algorithms, divisions)


def own_lanes(work: PlannedWork) -> Lanes:
    """The streams of its trace, as far as they are of the work."""
    found = (tuple(id for id in lane if id in work.operations) for lane in chains(work.trace))
    return tuple(lane for lane in found if lane)


# ---- the search of one block


def _replays(work: PlannedWork) -> int:
    """Replays that the search of a block may do: fewer for large blocks, whose replays take longer."""
    return max(FEWEST_REPLAYS, REPLAYS * min(SMALL, len(work.operations)) // len(work.operations))


def _search(
    judge: Judge, sharing: str, own: Lanes, given: Plan | None, few: Sequence[Plan]
) -> tuple[dict[str, Candidate], bool]:
    """Search the plans of a block; all of ``few``, if given. Returns the named baselines, and whether all were seen."""
    kinds = moves.ways_to_share(sharing)
    if few:
        named = _baselines(judge, kinds, own, given, {})
        if _complete(judge, few):
            _fill_frontier(judge, given)
            return named, True
    named = {}
    for kind in kinds:
        judge.left = judge.most if kind == kinds[0] else judge.most // 2
        before = len(judge.seen)
        _baselines(judge, [kind], own, given, named)
        starts = _starts(judge, given, before)
        for n, start in enumerate(starts):
            descend(judge, start, kind, given is None, judge.left // (len(starts) - n))
    _fill_frontier(judge, given)
    return named, False


def _starts(judge: Judge, given: Plan | None, before: int) -> list[Candidate]:
    """The fastest few plans that were replayed; the fastest after the first ``before`` is always one of them."""
    able = [
        [one for one in found if given is None or one.plan.streams == given.streams]
        for found in (judge.seen, judge.seen[before:])
    ]
    seen, new = (sorted(found, key=lambda one: one.expected_us) for found in able)
    return seen[:STARTS] if not new or new[0] in seen[:STARTS] else [*seen[: STARTS - 1], new[0]]


def _few_plans(work: PlannedWork, gpu: GPU, sharing: str, order: Order) -> list[Plan]:
    """All plans, those that are judged alike once; none where there are more than `COMPLETE`."""
    ways = moves.all_lanes(work.graph) if len(work.operations) <= FEW else ()
    chosen = (Plan(lanes, algorithms) for lanes in ways for algorithms in moves.all_algorithms(work))
    every = (plan for one in chosen for plan in moves.shared(gpu, one, sharing))
    alike: dict[object, Plan] = {}
    for plan in every:
        alike.setdefault(key_of(plan, order), plan)
        if len(alike) > COMPLETE:
            return []
    return list(alike.values())


def _complete(judge: Judge, plans: Sequence[Plan]) -> bool:
    """Replay every plan that can be the best, within the limit of replays. Returns whether the limit sufficed."""
    best = min(judge.seen, key=lambda one: one.expected_us)
    bounded = sorted(((judge.bounds.of_plan(judge.work, plan), n) for n, plan in enumerate(plans)))
    for bound, n in bounded:
        if not is_less(bound, best.expected_us):
            return True
        if judge.left <= 0:
            return False
        best = judge.better(plans[n], best) or best
    return True


def _baselines(
    judge: Judge, kinds: Iterable[str], own: Lanes, given: Plan | None, found: dict[str, Candidate]
) -> dict[str, Candidate]:
    """Add to those found the named plans with which all others are compared, if they keep the memory limit."""
    for kind in kinds:
        if kind == "streams":
            _add_streams(judge, own, given, found)
        streams = found.get("streams, fastest")
        if streams is None or len(streams.plan.lanes) == 1:
            continue
        if kind == "hardware":
            _best_split(judge, streams.plan, found)
        if kind == "all":
            for name in ("fastest", "as selected"):
                if f"streams, {name}" in found:
                    for policy in moves.MIXES:
                        _add(judge, f"{policy}, {name}", replace(found[f"streams, {name}"].plan, policy=policy), found)
    return found


def _add_streams(judge: Judge, own: Lanes, given: Plan | None, found: dict[str, Candidate]) -> None:
    """Add the named plans in plain streams."""
    work, bounds = judge.work, judge.bounds
    fast = moves.fastest(work, bounds)
    selected = {id: op.algorithm for id, op in work.operations.items() if isinstance(op, Convolution)}
    as_selected = all(name in work.algorithms[id] for id, name in selected.items())
    ways = {"serial": Plan(sequential(work.graph), fast), "streams": Plan(own, fast)}
    if given is None:
        ways["Nimble's streams"] = Plan(nimble(work.graph), fast)
        ways["Opara's streams"] = Plan(opara_lanes(work, bounds, fast), fast)
    else:
        ways["given streams"] = replace(given, algorithms=fast)
    for name, way in ways.items():
        plan = moves.within(work, bounds, way, judge.limit_bytes)
        if plan is not None:
            _add(judge, f"{name}, fastest", plan, found)
        if name in ("serial", "streams") and as_selected:
            _add(judge, f"{name}, as selected", replace(way, algorithms=selected), found)


def _add(judge: Judge, name: str, plan: Plan, found: dict[str, Candidate]) -> None:
    """Add a named plan that keeps the limit and is not among them by another name."""
    if judge.allows(plan) and all(plan.key != other.plan.key for other in found.values()):
        found[name] = judge.replayed(plan)


def _best_split(judge: Judge, plan: Plan, found: dict[str, Candidate]) -> None:
    """Add the best SM split that is found: all where they are few, else by descent from the even and another."""
    every = list(islice(moves.splits(judge.gpu, len(plan.lanes)), SPLIT_REPLAYS + 1))
    few, weights = len(every) <= SPLIT_REPLAYS, moves.lane_weights(judge.bounds, plan)
    split = (moves.with_split(judge.gpu, plan, units) for units in every)
    first = split if few else moves.first_splits(judge.gpu, plan, weights)
    tried = [judge.replayed(one) for one in first if judge.launches(one)]
    if tried and not few:
        best = min(tried, key=lambda one: one.expected_us)
        stop = judge.left - min(SPLIT_REPLAYS, judge.left // 2)
        tried.append(to_better(judge, best, lambda plan: moves.splits_near(judge.gpu, plan), stop))
    if tried:
        found["best SM split, fastest"] = min(tried, key=lambda one: one.expected_us)


def _fill_frontier(judge: Judge, given: Plan | None) -> None:
    """Better plans of less memory: the best one and one stream, changed to keep smaller and smaller limits."""
    work, bounds, limit = judge.work, judge.bounds, judge.limit_bytes
    best = min(judge.seen, key=lambda one: (one.expected_us, one.memory_bytes))
    least = given or Plan(sequential(work.graph), moves.fastest(work, bounds))
    sizes = sorted({one.workspace_bytes or 0 for found in work.algorithms.values() for one in found.values()})
    smaller = [size for size in sizes if size < best.memory_bytes][::-1]
    most = max(1, judge.most // (2 * LOWER_LIMITS))
    for size in smaller[:: max(1, -(-len(smaller) // LOWER_LIMITS))] + smaller[-1:]:
        judge.limit_bytes, judge.left = size, most
        known = [one for one in judge.seen if one.memory_bytes <= size]
        for start in (best.plan, least):
            plan = moves.within(work, bounds, start, size)
            if plan is not None and not known:
                known.append(judge.replayed(plan))
            elif plan is not None:
                found = judge.better(plan, min(known, key=lambda one: one.expected_us))
                known += [found] if found is not None else []
        if known:
            to_better(judge, min(known, key=lambda one: one.expected_us), partial(algorithm_moves, judge), 0)
    judge.limit_bytes = limit


# ---- streams that are given


def _way_or_lanes(streams: object) -> str | Lanes:
    """Check a choice of streams before anything is fitted: ``search``, one of `WAYS`, or lanes."""
    if not isinstance(streams, str):
        return lanes_of(streams)
    if streams not in ("search", *WAYS):
        raise InputError(None, "streams", f"is {quote(streams)}", f"one of search, {', '.join(WAYS)}")
    return streams


def _given(judge: Judge, streams: str | Lanes, step: Step) -> Plan:
    """Return the plan of streams that are made in one way, or given, with the fastest algorithms."""
    work, fast = judge.work, moves.fastest(judge.work, judge.bounds)
    ways: dict[str, Callable[[], Lanes]] = {
        "sequential": lambda: sequential(work.graph),
        "branches": lambda: own_lanes(work),
        "nimble": lambda: nimble(work.graph),
        "opara": lambda: opara_lanes(work, judge.bounds, fast),
    }
    if not isinstance(streams, str):
        plan = Plan(streams, fast)
    elif streams in ways:
        plan = Plan(ways[streams](), fast)
    else:
        step(f"making stages: {streams}")
        stages = _stages(judge, fast, streams)
        plan = Plan(as_lanes(stages), fast, waits=stage_waits(stages))
    if sorted(id for lane in plan.lanes for id in lane) != sorted(work.graph.ids):
        raise InputError(None, "streams", "do not hold every operation once", "each operation in one stream")
    work.planned(plan)
    return plan


def opara_lanes(work: PlannedWork, bounds: Bounds, algorithms: Mapping[str, str]) -> Lanes:
    """Opara's streams and order for operations with some algorithms."""
    asked = {id: bounds.launches(id, algorithms.get(id, "")) for id in work.operations}
    return opara(
        work.graph,
        {id: bounds.memory_bound(id, algorithms.get(id, "")) for id in asked},
        {id: max((one.shared_memory_per_block_bytes for one in found), default=0) for id, found in asked.items()},
    )


def _stages(judge: Judge, algorithms: Mapping[str, str], way: str) -> list[Stage]:
    """Return the stages of IOS, or what it calls greedy, of some work; a stage's latency is its replay.

    A bias, activation or copy is scheduled with the operation before it.
    """
    work, stages = judge.work, list[Stage]()
    for block in work.graph.blocks():
        part = work.part(block)
        chains = units(part.graph.reduced(), [id for id in block if id not in work.algorithms])
        graph = of_units(part.graph, chains)
        if way == "ios" and len(chains) > MOST_UNITS:
            problem = f"is ios, and {len(chains)} operations have none that is before or after all others"
            raise InputError(None, "streams", problem, f"blocks of at most {MOST_UNITS}")

        def whole(stage: Stage, chains: Mapping[str, Sequence[str]] = chains) -> Stage:
            return tuple(tuple(id for first in group for id in chains[first]) for group in stage)

        def latency_us(stage: Stage, whole: Callable[[Stage], Stage] = whole) -> float:
            lanes = whole(stage)
            ids = [id for lane in lanes for id in lane]
            plan = Plan(lanes, {id: algorithms[id] for id in ids if id in algorithms})
            return judge.session.makespan_us(planned_trace(work.part(ids), plan), plan.policy)

        found = greedy_stages(graph) if way == "greedy" else ios_stages(graph, latency_us)
        stages += [whole(stage) for stage in found]
    return stages


def in_streams(trace: Trace, session: Session, streams: str | Lanes) -> Candidate:
    """A trace in plain streams made in one of `WAYS`, or given, each convolution by its fastest algorithm."""
    work = work_of(trace, session.gpu)
    judge = Judge(work, Bounds(work, session), None, 1, "any")
    return judge.replayed(_given(judge, _way_or_lanes(streams), no_step))


# ---- the whole


def _joined_plans(fronts: Sequence[Sequence[Candidate]]) -> Iterator[Plan]:
    """Plans of the whole for descending memory limits: the best plan of each block within the limit."""
    limits = sorted({one.memory_bytes for front in fronts for one in front}, reverse=True)
    limits = [limit for limit in limits if all(front[0].memory_bytes <= limit for front in fronts)]
    every = max(1, -(-len(limits) // JOINED))
    for limit in (*limits[::every], *limits[-1:]):
        yield joined([[one for one in front if one.memory_bytes <= limit][-1] for front in fronts])


def joined(blocks: Sequence[Candidate]) -> Plan:
    """Join the plans of consecutive blocks, all in plain streams, into one plan.

    Streams go on from block to block. Where all wait for the same operation, the one that has waited longest goes on
    first in a replay: so the streams of a block go on in those of the blocks before in the order in which they ended.
    """
    lanes: list[tuple[str, ...]] = [()] * max(len(block.plan.lanes) for block in blocks)
    waiting = list(range(len(lanes)))  # the longest first
    for block in blocks:
        taken = waiting[: len(block.plan.lanes)]
        for at, lane in zip(taken, block.plan.lanes, strict=True):
            lanes[at] += lane
        by_end = sorted(zip(block.ends_us, range(len(taken)), taken, strict=True))
        waiting = [*waiting[len(taken) :], *(at for _, _, at in by_end)]
    algorithms = {id: name for block in blocks for id, name in block.plan.algorithms.items()}
    return Plan(tuple(lanes), algorithms)
