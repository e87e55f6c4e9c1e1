"""Workloads made from a trace: all of it, pairs of its streams, or pairs of independent operations.

Two streams, or two operations of different streams, co-run without the rest of the trace. They run once, or restart
until the longest ends. `gpusim.results.metrics` defines the metrics of both.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Literal, assert_never

from gpusim.trace.format import Trace
from gpusim.trace.graph import chains, ordered

WorkloadKind = Literal["trace", "stream-pairs", "operation-pairs"]


def workloads(trace: Trace, kind: WorkloadKind) -> list[tuple[str, ...]]:
    """The workloads of a kind in a trace, as `workload` takes them: no names, two streams or the ids of two operations.

    The operations are every two kernels or convolutions of different streams that do not depend on each other, however
    indirectly.
    """
    if kind == "trace":
        return [()]
    if kind == "stream-pairs":
        return list(combinations([stream.name for stream in trace.streams], 2))
    if kind == "operation-pairs":
        return _operation_pairs(trace)
    assert_never(kind)


def workload(trace: Trace, kind: WorkloadKind, names: tuple[str, ...]) -> Trace:
    """Return one of the `workloads` of a trace, without dependencies on the rest.

    Each of two operations has its own stream and runs once, without arrivals. Two streams or two operations are
    separate programs unless they depend on each other, whatever their program in the trace.
    """
    if kind == "trace":
        return trace
    whole_streams = kind == "stream-pairs"
    kept = {
        stream.name: [op for op in stream.operations if (stream.name if whole_streams else op.id) in names]
        for stream in trace.streams
    }
    ids = {op.id for operations in kept.values() for op in operations}
    streams = []
    for stream in trace.streams:
        operations = [
            op.model_copy(update={"depends_on": tuple(other for other in op.depends_on if other in ids)})
            for op in kept[stream.name]
        ]
        if operations or (whole_streams and stream.name in names):
            arrivals = stream.arrivals if whole_streams else None
            streams.append(stream.model_copy(update={"operations": tuple(operations), "arrivals": arrivals}))
    return trace.model_copy(update={"version": 1, "streams": tuple(streams)})


def _operation_pairs(trace: Trace) -> list[tuple[str, ...]]:
    graph = ordered({op.id: op.depends_on for op in trace.operations()}).with_order(chains(trace))
    launching = [[op.id for op in stream.operations if op.launches()] for stream in trace.streams]
    pairs = (pair for of_two in combinations(launching, 2) for pair in product(*of_two))
    return [pair for pair in pairs if graph.independent(*pair)]
