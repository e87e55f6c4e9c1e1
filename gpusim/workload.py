"""Workloads as the papers on GPU sharing run them, made from a trace.

Run once: the trace as it is; every stream runs its operations once, and who ends early leaves the GPU to the others.
Its figure is the makespan, or the speedup over running the streams one after the other.

Restart until the longest ends: every stream starts again when it ends, until each has ended once, so that the streams
share the GPU all the time. Its figures are STP, ANTT and fairness over that time.

Both take as a stream's time alone the same kernels alone on the whole GPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from pydantic import ValidationError

from gpusim.errors import InputError
from gpusim.result import Result
from gpusim.trace import MAX_REQUESTS, LoopArrivals, Stream, Trace, trace_error


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
    passes = {stream: sum(_share(start, end, until) for start, end in spans) for stream, spans in ends.items()}
    solo = {run.stream: run.solo_us / len(ends[run.stream]) for run in result.stream_runs}
    progress = {stream: passes[stream] * solo[stream] / until for stream in passes}
    return Shares(
        until_us=until,
        passes=passes,
        progress=progress,
        stp=sum(progress.values()),
        antt=sum(1.0 / value for value in progress.values()) / len(progress),
        fairness=min(progress.values()) / max(progress.values()),
        restarted=all(spans[-1][1] >= until for spans in ends.values()),
    )


def _share(start: float, end: float, until: float) -> float:
    """Share of a pass that was done by a time."""
    if end <= until:
        return 1.0
    return (until - start) / (end - start) if start < until else 0.0
