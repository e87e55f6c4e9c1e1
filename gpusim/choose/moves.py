"""The search space: how to enumerate plans, the neighbours of a plan, and the plans to start from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations, product
from math import fsum
from statistics import fmean

from gpusim.choose.bound import Bounds
from gpusim.choose.plan import STREAMS, Plan, PlannedWork, most_live, workspace_bytes
from gpusim.choose.settings import divisions
from gpusim.choose.streams import Lanes
from gpusim.hardware.gpu import GPU
from gpusim.policies.limits import green_sizes
from gpusim.policies.spatial import even_counts, proportional_counts
from gpusim.trace.graph import Graph

SHARING = ("streams", "hardware", "all")  # plain streams; and SM splits; and what no hardware can be told
MIXES = ("even", "warped-slicer", "inter-sm")  # blocks of several kernels on an SM, SMs that move


def ways_to_share(sharing: str) -> tuple[str, ...]:
    """Moves that a kind of sharing allows: itself, and those before it in `SHARING`."""
    return SHARING[: SHARING.index(sharing) + 1]


# ---- SM splits


def split_policy(gpu: GPU) -> str:
    """The policy that confines streams to SMs: green contexts on GPUs that have them."""
    return "green-context" if float(gpu.compute_capability) >= 6.0 else "inter-sm"


def split_step(gpu: GPU) -> tuple[int, int]:
    """The least number of SMs in a partition, and the step in which it grows: those of green contexts, or one TPC."""
    return green_sizes(gpu) if split_policy(gpu) == "green-context" else (gpu.sms_per_tpc, gpu.sms_per_tpc)


def with_split(gpu: GPU, plan: Plan, units: Sequence[int]) -> Plan:
    """Return the plan with SMs of its own for every stream, in units of `split_step`; the last gets the rest, too."""
    _, step = split_step(gpu)
    sms = [step * count for count in units]
    sms[-1] += gpu.sm_count - sum(sms)
    return replace(plan, policy=f"{split_policy(gpu)}:sms={'+'.join(map(str, sms))}", sms=tuple(sms))


def split_units(gpu: GPU, plan: Plan) -> tuple[int, ...]:
    """The partition sizes of a plan, in the units of `with_split`."""
    _, step = split_step(gpu)
    units = [count // step for count in plan.sms]
    units[-1] = gpu.sm_count // step - sum(units[:-1])
    return tuple(units)


def splits(gpu: GPU, streams: int) -> Iterator[tuple[int, ...]]:
    """Return every SM split between some streams, in units of the partition granularity."""
    least, step = split_step(gpu)
    return divisions(gpu.sm_count // step, streams, -(-least // step), 1)


def splits_near(gpu: GPU, plan: Plan) -> Iterator[Plan]:
    """The plan with one unit moved from one stream to another."""
    least, step = split_step(gpu)
    units = split_units(gpu, plan)
    for giver, taker in permutations(range(len(units)), 2):
        if (units[giver] - 1) * step >= least:
            moved = [count - (n == giver) + (n == taker) for n, count in enumerate(units)]
            yield with_split(gpu, plan, moved)


def first_splits(gpu: GPU, plan: Plan, weights: Sequence[float]) -> Iterator[Plan]:
    """The even split, and the split in proportion to the weights."""
    least, step = split_step(gpu)
    units, streams, fewest = gpu.sm_count // step, len(plan.lanes), -(-least // step)
    if 1 < streams <= units // fewest:
        shares = proportional_counts(units - (fewest - 1) * streams, [max(1, round(1000 * w)) for w in weights])
        for counts in (even_counts(units, streams), [count + fewest - 1 for count in shares]):
            yield with_split(gpu, plan, counts)


def shared(gpu: GPU, plan: Plan, sharing: str) -> Iterator[Plan]:
    """The plan under each sharing policy that its streams can use."""
    plan = replace(plan, policy=STREAMS, sms=())
    yield plan
    if len(plan.lanes) > 1 and sharing != "streams":
        for units in splits(gpu, len(plan.lanes)):
            yield with_split(gpu, plan, units)
        if sharing == "all":
            yield from (replace(plan, policy=policy) for policy in MIXES)


# ---- streams


def all_lanes(graph: Graph) -> Iterator[Lanes]:
    """Every way to put the operations into streams, in every order in which they can run and be launched."""

    def place(lanes: Lanes, rest: Sequence[str]) -> Iterator[Lanes]:
        if not rest:
            yield lanes
            return
        for grown in _placed(lanes, rest[0]):
            if graph.only([*graph.ids[: len(graph.ids) - len(rest)], rest[0]]).allows(grown):
                yield from place(grown, rest[1:])

    return place((), graph.ids)


def _placed(lanes: Lanes, id: str) -> Iterator[Lanes]:
    """All ways to insert one more operation into the lanes."""
    for n, lane in enumerate(lanes):
        for at in range(len(lane) + 1):
            yield (*lanes[:n], (*lane[:at], id, *lane[at:]), *lanes[n + 1 :])
    for n in range(len(lanes) + 1):
        yield (*lanes[:n], (id,), *lanes[n:])


def lanes_near(graph: Graph, lanes: Lanes) -> Iterator[Lanes]:
    """Neighbouring lanes: two exchanged, two joined, one cut in two, or one operation moved."""
    for a, b in combinations(range(len(lanes)), 2):
        order = list(lanes)
        order[a], order[b] = order[b], order[a]
        yield tuple(order)
    for a, b in permutations(range(len(lanes)), 2):
        joined = [lane for n, lane in enumerate(lanes) if n != b]
        joined[a - (b < a)] = lanes[a] + lanes[b]
        yield tuple(joined)
    for n, lane in enumerate(lanes):
        for at in range(1, len(lane)):
            yield (*lanes[:n], lane[:at], lane[at:], *lanes[n + 1 :])
    for id in graph.ids:
        without = tuple(rest for lane in lanes if (rest := tuple(one for one in lane if one != id)))
        yield from _placed(without, id)


# ---- algorithms


def all_algorithms(work: PlannedWork) -> Iterator[dict[str, str]]:
    """Every combination of algorithms."""
    for names in product(*work.algorithms.values()):
        yield dict(zip(work.algorithms, names, strict=True))


def fastest(work: PlannedWork, bounds: Bounds) -> dict[str, str]:
    """For each convolution, the algorithm that is fastest alone."""
    return {id: min(found, key=lambda name: bounds.alone_us(id, name)) for id, found in work.algorithms.items()}


def mean_alone_us(work: PlannedWork, bounds: Bounds) -> float:
    """Mean time of an operation alone by its fastest algorithm, us."""
    fast = fastest(work, bounds)
    return fmean(bounds.alone_us(id, fast.get(id, "")) for id in work.operations)


def algorithms_near(work: PlannedWork, plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Plans that differ in the algorithm of one operation, each with that operation."""
    for id, found in work.algorithms.items():
        for name in found:
            if plan.algorithms[id] != name:
                yield id, replace(plan, algorithms={**plan.algorithms, id: name})


def within(
    work: PlannedWork, bounds: Bounds, plan: Plan, limit_bytes: int | None, keep: Iterable[str] = ()
) -> Plan | None:
    """Return the plan with algorithms of less workspace where it exceeds a limit; None where no algorithms keep it.

    Repeatedly looks at the set of concurrent operations that needs the most workspace, and changes the algorithm that
    saves memory at the least cost in time per byte. The algorithms of the convolutions in ``keep`` stay.
    """
    if limit_bytes is None:
        return plan
    kept, graph = set(keep), work.planned(plan)
    while True:
        most, live = most_live(graph, workspace_bytes(work, plan))
        if most <= limit_bytes:
            return plan
        options = []
        for id in live:
            known = work.algorithms[id]
            now = known[plan.algorithms[id]]
            for name, other in known.items():
                saved = (now.workspace_bytes or 0) - (other.workspace_bytes or 0)
                if saved > 0 and id not in kept:
                    costs = max(0.0, bounds.alone_us(id, name) - bounds.alone_us(id, now.algorithm))
                    needed = min(saved, most - limit_bytes)
                    options.append((costs / needed, -saved, id, name))
        if not options:
            return None
        _, _, id, name = min(options)
        plan = replace(plan, algorithms={**plan.algorithms, id: name})


def streams_near(work: PlannedWork, gpu: GPU, bounds: Bounds, plan: Plan) -> Iterator[Plan]:
    """Plans with neighbouring streams; where the number of streams changes, the SMs are split again."""
    seen = {plan.lanes}
    for lanes in lanes_near(work.graph, plan.lanes):
        if lanes in seen or not work.graph.allows(lanes):
            continue
        seen.add(lanes)
        other = replace(plan, lanes=lanes)
        if not plan.sms:
            yield other
        elif len(lanes) == len(plan.lanes):
            yield with_split(gpu, other, split_units(gpu, plan))
        else:
            yield from first_splits(gpu, other, lane_weights(bounds, other))


def sharing_near(gpu: GPU, bounds: Bounds, sharing: str, plan: Plan) -> Iterator[Plan]:
    """Plans with one unit of SMs moved between streams, or with another sharing policy."""
    if plan.sms:
        yield from splits_near(gpu, plan)
    plain = replace(plan, policy=STREAMS, sms=())
    if plan.policy != STREAMS:
        yield plain
    if sharing != "streams" and len(plan.lanes) > 1:
        if not plan.sms:
            yield from first_splits(gpu, plain, lane_weights(bounds, plain))
        if sharing == "all":
            yield from (replace(plain, policy=policy) for policy in MIXES if policy != plan.policy)


def lane_weights(bounds: Bounds, plan: Plan) -> list[float]:
    """For each stream, the sum of the isolated times of its operations, us."""
    return [fsum(bounds.alone_us(id, plan.algorithms.get(id, "")) for id in lane) for lane in plan.lanes]
