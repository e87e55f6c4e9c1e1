"""Isolated times, the reference of slowdown, STP, ANTT and fairness: programs, streams, operations alone on the GPU."""

from __future__ import annotations

from math import fsum

from gpusim.engine.host import release_times
from gpusim.engine.replay import KernelSource, operation_end, stream_ends
from gpusim.engine.several_gpus import policies_of
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Leftover
from gpusim.trace.format import Trace
from gpusim.trace.operations import Operation, Stream
from gpusim.trace.programs import Program


class Isolated:
    """Isolated times on a GPU; an operation whose kernels run on several streams is replayed once."""

    def __init__(self, gpu: GPU, kernels: KernelSource) -> None:
        self._gpu = gpu
        self._kernels = kernels
        self._known: dict[tuple[object, ...], float] = {}  # operations, by their models and streams

    def stream_us(self, trace: Trace, stream: Stream) -> float:
        """Time from release to end of a stream, its dependencies on others dropped."""
        once = fsum(self.operation_us(trace, op) for op in stream.operations)
        releases, end = release_times(stream), 0.0
        for release in releases:
            end = max(end, release or 0.0) + once
        return end - (releases[0] or 0.0)

    def program_us(self, trace: Trace, program: Program) -> float:
        """Time from release to end of a program of several streams, its dependencies on others dropped."""
        streams = [stream for stream in trace.streams if stream.name in program.streams]
        mine = {op.id for stream in streams for op in stream.operations}
        waiting = tuple(_waiting_for(stream, mine) for stream in streams)
        alone = trace.model_copy(update={"streams": waiting, "programs": (program,)})
        ends = stream_ends(alone, self._gpu, policies_of(Leftover(), alone), self._kernels)
        return max(ends.values()) - (release_times(streams[0])[0] or 0.0)

    def operation_us(self, trace: Trace, op: Operation) -> float:
        """Time of an operation of a trace: the sum of its kernels' isolated times where they run one by one."""
        launches = op.launches()
        if not launches:
            return op.occupies(self._gpu).duration_us
        models = [self._kernels.model(launch, op.id) for launch in launches]
        if all(launch.stream == "main" for launch in launches):
            return fsum(model.solo_us for model in models)
        key = tuple((model.identity, launch.stream) for model, launch in zip(models, launches, strict=True))
        if key not in self._known:
            self._known[key] = operation_end(trace, op, self._gpu, Leftover(), self._kernels)
        return self._known[key]


def _waiting_for(stream: Stream, operations: set[str]) -> Stream:
    """A stream that waits for some operations only."""
    if all(operations.issuperset(op.depends_on) for op in stream.operations):
        return stream
    waits = [tuple(other for other in op.depends_on if other in operations) for op in stream.operations]
    copies = (op.model_copy(update={"depends_on": on}) for op, on in zip(stream.operations, waits, strict=True))
    return stream.model_copy(update={"operations": tuple(copies)})
