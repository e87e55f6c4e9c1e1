"""Isolated times: streams and operations alone on the whole GPU, the reference of slowdown, STP, ANTT and fairness."""

from __future__ import annotations

from math import fsum

from gpusim.engine.host import release_times
from gpusim.engine.replay import KernelSource, operation_end
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Leftover
from gpusim.trace.format import Trace
from gpusim.trace.operations import Operation, Stream


class Isolated:
    """Isolated times on a GPU; an operation whose kernels run on several streams is replayed once.

    Args:
        gpu: where.
        kernels: as replayed there.
    """

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

    def operation_us(self, trace: Trace, op: Operation) -> float:
        """Time of an operation of a trace: the sum of its kernels' isolated times where they run one by one."""
        launches = op.launches()
        if not launches:
            return op.occupies(self._gpu).duration_us
        models = [self._kernels.model(launch, op.id) for launch in launches]
        if all(launch.stream == "main" for launch in launches):
            return fsum(model.solo_us for model in models)
        key = tuple((id(model), launch.stream) for model, launch in zip(models, launches, strict=True))
        if key not in self._known:
            self._known[key] = operation_end(trace, op, self._gpu, Leftover(), self._kernels)
        return self._known[key]
