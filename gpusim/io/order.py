"""Waits between the streams of a profile: as recorded, or inferred from the recorded times."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from gpusim.common.tables import grouped
from gpusim.io import Order
from gpusim.io.timeline import CLOCK_US, Activity, StreamKey, Timeline
from gpusim.trace.format import StreamOrder


class Waits(NamedTuple):
    """Activities that each activity waits for, by number."""

    of: dict[int, list[int]]  # for each that waits, those of other streams that it waits for
    # those that the host launched only after such a wait of its own, so that their streams did not wait; so are those
    # whose order is inferred [D]
    by_host: frozenset[int]
    contradicted: int  # how many waits the recorded times contradict


def stream_order(timeline: Timeline, order: Order) -> StreamOrder | None:
    """Whether waits between streams are inferred or left out; None where the profile has them, or no stream waits."""
    streams = {activity.stream for activity in timeline.activities}
    if len({stream.process for stream in streams}) == len(streams):
        return None  # a process has one stream: nothing waits for anything beside its stream's order
    if order == "none":
        return "independent"
    if timeline.tells_waits:
        return None
    return "inferred" if order == "inferred" and not timeline.one_at_a_time else "independent"


def dependencies(timeline: Timeline, order: Order, inferred: bool) -> Waits:
    """Dependencies of the activities of a timeline on other streams."""
    if order == "none":
        return Waits({}, frozenset(), 0)
    on_gpu, by_host = _recorded_waits(timeline)
    needed, contradicted = _needed(timeline.activities, on_gpu | by_host)
    if inferred:
        kept = {(n, before) for n, waits in needed.items() for before in waits}
        by_host |= _ended_before(timeline.activities) - on_gpu
        needed, _ = _needed(timeline.activities, kept | by_host)
    kept_back = (n for n, waits in needed.items() if any((n, before) in by_host for before in waits))
    return Waits(needed, frozenset(kept_back), contradicted)


def ready(timeline: Timeline) -> Iterator[tuple[float | None, bool]]:
    """When each activity of one GPU could start (us), and whether more than its launch held it back; None: not told."""
    activities, waits = timeline.activities, dependencies(timeline, "recorded", False).of
    launches = Counter(_launch(one) for one in activities)  # those of a CUDA graph have one together
    stream_end_us: dict[StreamKey, float] = {}
    for at, one in enumerate(activities):
        own_us, launched_us = stream_end_us.get(one.stream, -math.inf), timeline.launched_us.get(_launch(one))
        if launched_us is None or not timeline.tells_waits or launches[_launch(one)] > 1:
            yield None, False
        else:
            held_us = max([own_us, *(activities[other].end_us for other in waits.get(at, ()))])
            yield max(held_us, launched_us), held_us > launched_us
        stream_end_us[one.stream] = one.end_us


def _launch(one: Activity) -> tuple[str, int]:
    return one.stream.process, one.order


def _ended_before(activities: Sequence[Activity]) -> set[tuple[int, int]]:
    """The order that the recorded times show: pairs of an activity and one that had ended before it started.

    Only activities of one process and different streams make a pair, and a pair that others imply is left out: what
    ended before another activity started that also had ended, that activity has waited for.
    """
    by_process = grouped(range(len(activities)), lambda n: activities[n].stream.process)
    found: set[tuple[int, int]] = set()
    for numbers in by_process.values():
        ends = sorted(numbers, key=lambda n: (activities[n].end_us, n))
        ended = 0
        last_start_us = -math.inf  # of those that have ended
        open_ends: list[int] = []  # of those, the ones that ended no earlier than that
        for n in numbers:
            start_us = activities[n].start_us
            while ended < len(ends) and ends[ended] < n and activities[ends[ended]].end_us <= start_us:
                last_start_us = max(last_start_us, activities[ends[ended]].start_us)
                open_ends.append(ends[ended])
                ended += 1
            open_ends = [m for m in open_ends if activities[m].end_us >= last_start_us]
            found.update((n, m) for m in open_ends if m < n and activities[m].stream != activities[n].stream)
    return found


def _recorded_waits(timeline: Timeline) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Pairs of an activity and one of another stream that it waits for, as recorded: waits on the GPU, of the host.

    The last activity launched on the source before the event was recorded is waited for by the first one that the
    waiting stream launched after. After a wait of the host, later launches of its thread wait, too: for everything
    that was launched on the stream before the call or, for an event, before the record.
    """
    activities = timeline.activities
    launched: dict[StreamKey, list[tuple[int, int]]] = defaultdict(list)  # order, number of the activity
    by_thread: dict[tuple[StreamKey, str], list[tuple[int, int]]] = defaultdict(list)
    for n, activity in enumerate(activities):
        launched[activity.stream].append((activity.order, n))
        thread = timeline.threads.get((activity.stream.process, activity.order))
        if thread is not None:
            by_thread[activity.stream, thread].append((activity.order, n))
    for queue in (*launched.values(), *by_thread.values()):
        queue.sort()
    on_gpu: set[tuple[int, int]] = set()  # waiter, waited for
    by_host: set[tuple[int, int]] = set()
    for wait in timeline.waits:
        if wait.source != wait.stream:
            on_gpu |= _edge(launched.get(wait.stream, []), wait.order, launched.get(wait.source, []), wait.recorded)
    if len(launched) > 1:
        for sync in timeline.syncs:
            for source in launched if sync.stream is None else (sync.stream,):
                for (stream, thread), queue in by_thread.items():
                    if thread == sync.thread and stream != source and stream.process == source.process:
                        by_host |= _edge(queue, sync.order, launched.get(source, []), sync.recorded)
    return on_gpu, by_host


def _edge(queue: list[tuple[int, int]], after: int, source: list[tuple[int, int]], before: int) -> set[tuple[int, int]]:
    """The first of a queue launched after with the last of the source launched before, where both are there."""
    waiter = bisect_right(queue, after, key=itemgetter(0))
    waited = bisect_left(source, before, key=itemgetter(0)) - 1
    return {(queue[waiter][1], source[waited][1])} if waiter < len(queue) and waited >= 0 else set()


def _needed(activities: Sequence[Activity], edges: Iterable[tuple[int, int]]) -> tuple[dict[int, list[int]], int]:
    """Edges less those that the recorded times contradict and those that others between the streams imply.

    A wait for what ended later than the waiter started, in the recording, cannot have been one and is left out; the
    second value counts these.
    """
    needed: dict[int, list[int]] = defaultdict(list)
    latest: dict[tuple[StreamKey, StreamKey], int] = {}
    contradicted = 0
    for waiter, waited in sorted(edges, key=lambda edge: (edge[0], -edge[1])):
        if waited >= waiter or activities[waited].end_us > activities[waiter].start_us + CLOCK_US:
            contradicted += 1
            continue
        pair = (activities[waiter].stream, activities[waited].stream)
        if latest.get(pair, -1) < waited:
            latest[pair] = waited
            needed[waiter].append(waited)
    return dict(needed), contradicted
