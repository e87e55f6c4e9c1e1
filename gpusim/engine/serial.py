"""A chain of operations, one after the other: the makespan under policy `serial`, mostly without an event loop."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from gpusim.engine.alone import alone_under
from gpusim.engine.replay import KernelSource, operation_end
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Serial
from gpusim.policies.interface import Grant
from gpusim.trace.format import Trace
from gpusim.trace.operations import Operation

MOST_LEFT = 16  # replays of one operation, which refer to themselves: 1 MB each, but too few objects for Python to look


def is_chain(trace: Trace) -> bool:
    """Whether serial runs one operation at a time, each of kernels: no copies, arrivals or second GPU."""
    return all(stream.arrivals is None and stream.gpu == 0 for stream in trace.streams) and all(
        op.launches() for op in trace.operations()
    )


def in_order(trace: Trace) -> Iterator[Operation]:
    """The operations of a chain as serial runs them: always of the first stream that can go on."""
    waits: dict[str, int] = {}
    after: dict[str, list[tuple[int, str]]] = {}
    for index, stream in enumerate(trace.streams):
        for op in stream.operations:
            waits[op.id] = len(op.depends_on)
            for other in op.depends_on:
                after.setdefault(other, []).append((index, op.id))
    left = [list(reversed(stream.operations)) for stream in trace.streams]
    ready = [index for index, operations in enumerate(left) if operations and not waits[operations[-1].id]]
    heapify(ready)
    while ready:
        index = heappop(ready)
        op = left[index].pop()
        yield op
        freed = {index}
        for stream_index, waiting in after.get(op.id, ()):
            waits[waiting] -= 1
            if left[stream_index] and left[stream_index][-1].id == waiting:
                freed.add(stream_index)
        for stream_index in freed:
            if left[stream_index] and not waits[left[stream_index][-1].id]:
                heappush(ready, stream_index)


def chain_us(trace: Trace, gpu: GPU, kernels: KernelSource) -> float:
    """The makespan of a chain under serial, to the last bit that of the event loop."""
    known_us: dict[int, float] = {}  # of each model alone, by its id: the kernels keep them alive
    now, replays = 0.0, 0
    for op in in_order(trace):
        launches = op.launches()
        if any(launch.stream != "main" for launch in launches):  # some of them may run side by side
            now = operation_end(trace, op, gpu, Serial(), kernels, now)
            replays += 1
            if replays % MOST_LEFT == 0:
                gc.collect(0)
            continue
        for launch in launches:
            model = kernels.model(launch, op.id)
            if id(model) not in known_us:
                known_us[id(model)] = alone_under(Grant(0), model, gpu).us
            start = now + model.latency_us
            now = start + ((start + known_us[id(model)]) - start)
    return now
