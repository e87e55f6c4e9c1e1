"""From a plan to ever better neighbours, until none is better."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import islice

from gpusim.choose.judge import Candidate, Judge
from gpusim.choose.moves import algorithms_near, fastest, sharing_near, streams_near, within
from gpusim.choose.plan import Plan

NEIGHBOURS = 400  # of a plan that are looked at, of each kind: a large block has many more
Moves = Callable[[Plan], Iterable[Plan]]  # the plans one step away from one


def descend(judge: Judge, best: Candidate, sharing: str, streams: bool, most: int) -> Candidate:
    """Descend from a plan: try one kind of neighbours after the other until none is better."""
    stop = judge.left - most
    kinds: list[Moves] = [
        partial(algorithm_moves, judge),
        partial(sharing_near, judge.gpu, judge.bounds, sharing),
    ]
    if streams:
        kinds.append(partial(stream_moves, judge))
    last: Candidate | None = None
    while last is not best and judge.left > stop:
        last = best
        for moves in kinds:
            best = to_better(judge, best, moves, stop)
    return best


def to_better(judge: Judge, best: Candidate, moves: Moves, stop: int) -> Candidate:
    """To the first better neighbour of a kind until none is better, or so few replays are left."""
    last: Candidate | None = None
    while last is not best:
        last = best
        for plan in islice(moves(best.plan), NEIGHBOURS):
            if judge.left <= stop:
                return best
            best = judge.better(plan, best) or best
            if best is not last:
                break
    return best


def algorithm_moves(judge: Judge, plan: Plan) -> Iterable[Plan]:
    """To another algorithm of one operation; where that breaks the memory limit, of others, too."""
    work, bounds = judge.work, judge.bounds
    near = (within(work, bounds, changed, judge.limit_bytes, [id]) for id, changed in algorithms_near(work, plan))
    return sorted((other for other in near if other is not None), key=lambda other: bounds.of_plan(work, other))


def stream_moves(judge: Judge, plan: Plan) -> Iterator[Plan]:
    """To other streams; where these break the memory limit, with other algorithms."""
    work, bounds = judge.work, judge.bounds
    for other in streams_near(work, judge.gpu, bounds, plan):
        repaired = within(work, bounds, other, judge.limit_bytes)
        if repaired is not None:
            yield repaired
        if judge.limit_bytes is not None:  # fewer at once may let them take faster algorithms
            again = within(work, bounds, replace(other, algorithms=fastest(work, bounds)), judge.limit_bytes)
            if again is not None and again != repaired:
                yield again
