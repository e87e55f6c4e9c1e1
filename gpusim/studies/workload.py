"""Workloads made from a trace: all of it, pairs of its streams, or pairs of independent operations.

Two streams, or two operations of different streams, run beside each other and without the rest. Any of them may run
once or restart until the longest ends: see `gpusim.results.metrics` for what is reported of either.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import fsum
from typing import Literal, assert_never

from gpusim.common.errors import InputError
from gpusim.trace.fields import MAX_REQUESTS
from gpusim.trace.format import Trace
from gpusim.trace.operations import Collective

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
                both = a.launches() and b.launches()
                if both and a.id not in earlier[b.id] and b.id not in earlier[a.id]:
                    found.append((a.id, b.id))
    return found


def _waited_for(trace: Trace) -> dict[str, set[str]]:
    """For each operation, all that must end before it starts: earlier ones of its stream, and dependencies."""
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


# ---- streams as independent programs


def waits_across_streams(trace: Trace) -> set[str]:
    """Ids of the operations that wait for one of another stream, collectives among them."""
    home = {op.id: stream.name for stream in trace.streams for op in stream.operations}
    return {
        op.id
        for op in trace.operations()
        if isinstance(op, Collective) or any(home[other] != home[op.id] for other in op.depends_on)
    }


def require_independent(trace: Trace, solo: Mapping[str, float]) -> None:
    """Refuse a trace whose streams cannot restart as the independent programs that STP is of.

    Args:
        trace: what was recorded.
        solo: makespan (us) of each stream alone on the whole GPU.

    Raises:
        InputError: a stream that waits for another, has arrivals, or takes no time, or so little that it would
            restart over `MAX_REQUESTS` times while the others take a turn.
    """
    waits = waits_across_streams(trace)
    for n, stream in enumerate(trace.streams):
        place = f"streams[{n}]"
        if stream.arrivals is not None:
            raise InputError(None, f"{place}.arrivals", "is given", "none, for a stream that restarts when it ends")
        for at, op in enumerate(stream.operations):
            if op.id in waits:
                expected = "streams that do not wait for one another, as they are to restart"
                if trace.order == "inferred":
                    expected += " (gpusim import --order none leaves inferred waits out)"
                if isinstance(op, Collective):
                    raise InputError(None, f"{place}.operations[{at}]", "waits for other ranks", expected)
                raise InputError(None, f"{place}.operations[{at}].depends_on", "is on another stream", expected)
        if fsum(solo.values()) >= MAX_REQUESTS * solo[stream.name]:
            problem = f"takes {solo[stream.name]:g} us alone"
            expected = f"over a {MAX_REQUESTS:,}th of all streams together, as it is to restart"
            raise InputError(None, place, problem, expected)
