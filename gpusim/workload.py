"""Workloads as the papers on GPU sharing run them, made from a trace.

Pairs: two streams of a trace, or two operations of different streams that may run at once, beside each other and
without the rest.

Run once: the trace as it is; every stream runs its operations once, and who ends early leaves the GPU to the others.
Its figure is the makespan, or the speedup over running the streams one after the other.

Restart until the longest ends: every stream starts again when it ends, until each has ended once, so that the streams
share the GPU all the time. Its figures are STP, ANTT and fairness over that time.

Both take as a stream's time alone the same kernels alone on the whole GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import ceil, fsum
from typing import Literal, assert_never

from pydantic import ValidationError

from gpusim.errors import InputError
from gpusim.result import Result
from gpusim.trace import MAX_REQUESTS, Convolution, Kernel, LoopArrivals, Stream, Trace, trace_error

WorkloadKind = Literal["trace", "stream-pairs", "operation-pairs"]


def workloads(trace: Trace, kind: WorkloadKind) -> list[tuple[str, ...]]:
    """The workloads of a kind in a trace.

    Args:
        trace: what was recorded.
        kind: ``trace``: all of it; ``stream-pairs``: every two streams; ``operation-pairs``: every two kernels or
            convolutions of different streams of which neither waits for the other, however indirectly.

    Returns:
        The names that `workload` takes: none, two streams or the ids of two operations.
    """
    if kind == "trace":
        return [()]
    if kind == "stream-pairs":
        return list(combinations([stream.name for stream in trace.streams], 2))
    if kind == "operation-pairs":
        return _operation_pairs(trace)
    assert_never(kind)


def workload(trace: Trace, kind: WorkloadKind, names: tuple[str, ...]) -> Trace:
    """One of the `workloads` of a trace, waiting for nothing outside it.

    Of two operations each is alone in its stream and runs once, without that stream's arrivals.
    """
    if kind == "trace":
        return trace
    kept = {
        stream.name: [op for op in stream.operations if (stream.name if kind == "stream-pairs" else op.id) in names]
        for stream in trace.streams
    }
    ids = {op.id for operations in kept.values() for op in operations}
    streams = []
    for stream in trace.streams:
        operations = [
            op.model_copy(update={"depends_on": tuple(other for other in op.depends_on if other in ids)})
            for op in kept[stream.name]
        ]
        if operations or stream.name in names:
            arrivals = stream.arrivals if kind == "stream-pairs" else None
            streams.append(stream.model_copy(update={"operations": tuple(operations), "arrivals": arrivals}))
    return trace.model_copy(update={"streams": tuple(streams)})


def _operation_pairs(trace: Trace) -> list[tuple[str, ...]]:
    earlier = _waited_for(trace)
    found: list[tuple[str, ...]] = []
    for first, second in combinations(trace.streams, 2):
        for a in first.operations:
            for b in second.operations:
                both = isinstance(a, Kernel | Convolution) and isinstance(b, Kernel | Convolution)
                if both and a.id not in earlier[b.id] and b.id not in earlier[a.id]:
                    found.append((a.id, b.id))
    return found


def _waited_for(trace: Trace) -> dict[str, set[str]]:
    """For each operation all that end before it may start: those before it in its stream, and what it depends on."""
    direct = {
        op.id: {*op.depends_on, *(before.id for before in stream.operations[max(0, n - 1) : n])}
        for stream in trace.streams
        for n, op in enumerate(stream.operations)
    }
    found: dict[str, set[str]] = {}
    stack = list(direct)
    while stack:
        op = stack[-1]
        missing = [other for other in direct[op] if other not in found]
        if op in found or not missing:
            found.setdefault(op, direct[op].union(*(found[other] for other in direct[op])))
            stack.pop()
        else:
            stack.extend(missing)
    return found


@dataclass(frozen=True)
class Shares:
    """What streams that restart made of the GPU until each of them had ended once.

    Attributes:
        until_us: when the last of them ended for the first time.
        passes: how often each stream ran until then; what was under way counts by the time that it had run.
        progress: normalised progress of each stream: passes times the time of one alone, over `until_us`.
        stp: sum of the progress.
        antt: mean of the inverses.
        fairness: smallest over largest progress.
        restarted: whether every stream had work all the time; else some ran out of passes, and what is here is what
            they did with those they had.
    """

    until_us: float
    passes: Mapping[str, float]
    progress: Mapping[str, float]
    stp: float
    antt: float
    fairness: float
    restarted: bool


def repeated(stream: Stream, passes: int) -> Stream:
    """A stream that runs its operations so many times, one pass after the other."""
    return stream.model_copy(update={"arrivals": LoopArrivals(kind="loop", count=passes)})


def restarting(trace: Trace, solo_us: Mapping[str, float], slowdown: float | None = None) -> Trace:
    """A trace whose streams restart until the longest has surely ended once.

    Args:
        trace: streams that do not depend on one another and have no arrivals.
        solo_us: makespan of each stream alone, above 0 (`gpusim.engine.replay.solo_makespans`).
        slowdown: how many times longer than alone the longest may take; default: 1.5 times the number of streams.

    Returns:
        The same streams, each with as many passes as it could run alone in that time; see `shares` for what to make
        of a replay of it.

    Raises:
        InputError: dependencies between streams, arrivals, or a stream that takes no time.
    """
    slowdown = 1.5 * len(trace.streams) if slowdown is None else slowdown
    longest = max(solo_us[stream.name] for stream in trace.streams)
    streams = []
    for n, stream in enumerate(trace.streams):
        if stream.arrivals is not None:
            raise InputError(None, f"streams[{n}].arrivals", "is given", "none: the stream is to restart when it ends")
        if solo_us[stream.name] <= 0.0:
            raise InputError(None, f"streams[{n}]", "takes no time", "operations that take some")
        passes = min(MAX_REQUESTS, ceil(slowdown * longest / solo_us[stream.name]))
        streams.append(repeated(stream, max(2, passes)).model_dump())
    try:
        return Trace.model_validate({**trace.model_dump(), "streams": streams}, strict=False)
    except ValidationError as error:
        raise trace_error(error) from None


def shares(result: Result) -> Shares:
    """What a replay of a trace made by `restarting` says.

    Args:
        result: of the replay; the solo makespans in it are those of all passes.
    """
    ends: dict[str, list[tuple[float, float]]] = {run.stream: [] for run in result.stream_runs}
    for request in result.request_runs:
        ends[request.stream].append((request.start_us, request.end_us))
    until = max(spans[0][1] for spans in ends.values())
    passes = {stream: fsum(_share(start, end, until) for start, end in spans) for stream, spans in ends.items()}
    solo = {run.stream: run.solo_us / len(ends[run.stream]) for run in result.stream_runs}
    progress = {stream: passes[stream] * solo[stream] / until for stream in passes}
    return Shares(
        until_us=until,
        passes=passes,
        progress=progress,
        stp=fsum(progress.values()),
        antt=fsum(1.0 / value for value in progress.values()) / len(progress),
        fairness=min(progress.values()) / max(progress.values()),
        restarted=all(spans[-1][1] >= until for spans in ends.values()),
    )


def _share(start: float, end: float, until: float) -> float:
    """Share of a pass that was done by a time."""
    if end <= until:
        return 1.0
    return (until - start) / (end - start) if start < until else 0.0
