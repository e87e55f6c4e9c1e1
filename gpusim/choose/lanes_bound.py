"""Lower bound of the makespan by waiting: streams wait for one another, for launch latencies and at the front end.

A stream whose operations are not all done has a kernel under way or waits for another stream. So until then it delays
each kernel that starts in another stream (`gpusim.model.front_end`). Two things are taken optimistically:

* Operations that one event releases start at one instant, and the first of them need not wait for the others.
* A later start may wait for fewer streams. So a kernel gets the best of all times from its own on.

The ends of streams are lower bounds at any time, and give higher ones in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations, product
from math import fsum, inf

import numpy as np

from gpusim.choose.least import KernelBounds, Least
from gpusim.choose.simplex import Reals
from gpusim.model.front_end import CHANNELS, turn_wait_us
from gpusim.trace.graph import Graph

MOST_LANED = 6  # operations whose streams are all looked at
ITERATIONS = 6  # in which the ends of streams settle
Lanes = Sequence[Sequence[str]]
Choices = Mapping[str, Sequence[Least]]  # what each operation takes by each algorithm


def least_in_any_lanes(graph: Graph, choices: Choices, turn_us: float, sms: int) -> float:
    """The least of `least_in_lanes` over all streams, with SMs of their own or not; 0 for over `MOST_LANED` operations.

    ``turn_us``: `stream_turn_us` of the GPU.
    """
    if len(graph.ids) > MOST_LANED:
        return 0.0
    least = {id: min(fsum(step.us for step in one.steps) for one in choices[id]) for id in graph.ids}
    split = _Split(graph, choices, least, sms)
    least_us = sum(least.values())  # in one stream
    for parts in _partitions(graph.ids):
        if len(parts) > 1 and max(sum(least[id] for id in part) for part in parts) < least_us:
            for lanes in filter(graph.allows, product(*map(permutations, parts))):  # in any order in which they can run
                waits = graph.with_order(lanes)
                least_us = min(least_us, least_in_lanes(waits, lanes, choices, turn_us, False, least_us))
                split_us = split.least_us(lanes, least_us)
                if split_us < least_us:
                    own_us = least_in_lanes(waits, lanes, choices, turn_us, True, least_us)
                    least_us = min(least_us, max(own_us, split_us))
    return least_us


class _Split:
    """Least makespans of streams that divide the SMs; ``least``: of each operation on all of them."""

    def __init__(self, graph: Graph, choices: Choices, least: Mapping[str, float], sms: int) -> None:
        self.on_sms = {id: np.min([_on_sms(one, sms) for one in choices[id]], axis=0) for id in graph.ids}
        self.heads: dict[str, float] = {}  # what each operation waits for, at least
        for id, waits in graph.before.items():
            self.heads[id] = max((self.heads[other] + least[other] for other in waits), default=0.0)
        self.tails: dict[str, float] = {}  # what comes after it
        for id in reversed(graph.ids):
            self.tails[id] = max((self.tails[other] + least[other] for other in graph.after[id]), default=0.0)
        self.known: dict[tuple[str, ...], Reals] = {}

    def least_us(self, lanes: Lanes, enough_us: float) -> float:
        """The least makespan of some streams, whatever SMs each has; no higher bound than `enough_us` is sought."""
        times: Reals = np.array([self._of_lane(tuple(lane)) for lane in lanes])
        late = int(times.shape[1]) - len(times)  # times that may be longer: each stream has one SM more than these
        return min(enough_us, float(np.sort(times, axis=None)[-1 - late])) if late >= 0 else enough_us

    def _of_lane(self, lane: tuple[str, ...]) -> Reals:
        """The least makespan for a stream on 1, 2, … SMs: what it waits for, some of it, and what waits for that."""
        if lane not in self.known:
            ends = [np.zeros(1)]
            for n, id in enumerate(lane):
                start = np.maximum(ends[-1], self.heads[id]) if n else self.heads[id]
                ends.append(start + self.on_sms[id])
            self.known[lane] = np.max([end + self.tails[id] for end, id in zip(ends[1:], lane, strict=True)], axis=0)
        return self.known[lane]


def _on_sms(one: Least, sms: int) -> Reals:
    """Least time of an operation that has 1, 2, … of some SMs to itself."""
    us = np.zeros(sms)
    for step in one.steps:
        us += np.maximum(step.us, step.wait_us + step.spread_us * sms / np.arange(1, sms + 1))
    return us


def least_in_lanes(
    waits: Graph, lanes: Lanes, choices: Choices, turn_us: float, own_sms: bool, enough_us: float = inf
) -> float:
    """The least makespan of operations in some streams, each with SMs of its own or not.

    ``waits`` has the order of the streams, too. ``turn_us``: `stream_turn_us` of the GPU. No higher bound than
    ``enough_us`` is sought.
    """
    lane = {id: n for n, ids in enumerate(lanes) for id in ids}
    beside: dict[str, list[int]] = {}  # the streams that surely delay an operation if they have work when it starts
    for id, others in waits.before.items():
        released = {lane[other] for earlier in others for other in waits.after[earlier]}
        beside[id] = [n for n in range(len(lanes)) if n not in released] if others else []
    ends = [0.0] * len(lanes)
    for _ in range(ITERATIONS):
        done: dict[str, float] = {}
        for id, others in waits.before.items():
            start = max((done[other] for other in others), default=0.0)
            first = [ends[n] for n in beside[id]]
            later = [end for n, end in enumerate(ends) if n != lane[id]]
            done[id] = min(_end(start, one.steps, first, later, turn_us, own_sms) for one in choices[id])
        before, ends = ends, [max(done[id] for id in ids) for ids in lanes]
        if turn_us == 0.0 or len(lanes) > CHANNELS or ends == before or max(ends) >= enough_us:
            break
    return max(ends)


def _end(
    now: float, steps: Sequence[KernelBounds], first: Sequence[float], later: Sequence[float], turn_us: float, own: bool
) -> float:
    """When kernels that run one after the other from some time on end, at least."""
    for n, step in enumerate(steps):
        now = _start(now, later if n else first, turn_us, own) + step.us
    return now


def _start(ready: float, ends: Sequence[float], turn_us: float, own: bool) -> float:
    """When a kernel's launch latency begins, at least, where other streams end at some times."""
    times = [ready, *(end for end in ends if end > ready)] if turn_us > 0.0 else [ready]
    return min(at + turn_wait_us(sum(end > at for end in ends), turn_us, own) for at in times)


def _partitions(ids: Sequence[str]) -> Iterator[list[tuple[str, ...]]]:
    """Every way to put operations into streams."""
    if not ids:
        yield []
        return
    for parts in _partitions(ids[1:]):
        for n, part in enumerate(parts):
            yield [*parts[:n], (ids[0], *part), *parts[n + 1 :]]
        yield [(ids[0],), *parts]
