"""Times of streams alone: the reference of slowdown, STP, ANTT and fairness."""

from __future__ import annotations

from math import fsum

from gpusim.calibrate.kernels import Kernels
from gpusim.engine.context import in_context
from gpusim.engine.host import release_times
from gpusim.engine.replay import operation_end, work_out
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Leftover
from gpusim.trace.format import Trace
from gpusim.trace.operations import Operation, Stream


def solo_makespans(trace: Trace, gpu: GPU, kernels: Kernels) -> dict[str, float]:
    """Time from release to end of each stream alone on the whole GPU, its dependencies on others dropped.

    Caches are as they are beside the other streams (`in_context`).
    """
    kernels, trace = kernels.seeded(0), in_context(trace, gpu)
    work_out(trace, kernels)
    return {stream.name: _solo_makespan(trace, stream, gpu, kernels) for stream in trace.streams}


def operations_us(trace: Trace, gpu: GPU, kernels: Kernels) -> dict[str, float]:
    """How long each operation takes alone on the whole GPU, by id."""
    kernels = kernels.seeded(0)
    work_out(trace, kernels)
    return {op.id: _alone_us(trace, op, gpu, kernels) for stream in trace.streams for op in stream.operations}


def _solo_makespan(trace: Trace, stream: Stream, gpu: GPU, kernels: Kernels) -> float:
    once = fsum(_alone_us(trace, op, gpu, kernels) for op in stream.operations)
    releases, end = release_times(stream), 0.0
    for release in releases:
        end = max(end, release or 0.0) + once
    return end - (releases[0] or 0.0)


def _alone_us(trace: Trace, op: Operation, gpu: GPU, kernels: Kernels) -> float:
    """Time of an operation on an idle GPU: the sum of its kernels' times alone."""
    launches = op.launches()
    if not launches:
        return op.occupies(gpu).duration_us
    models = [kernels.model(launch, op.id) for launch in launches]
    if all(launch.stream == "main" for launch in launches):
        return fsum(model.solo_us for model in models)
    key = tuple((model.identity, launch.stream) for model, launch in zip(models, launches, strict=True))
    if key not in kernels.alone_us:
        kernels.alone_us[key] = operation_end(trace, op, gpu, Leftover(), kernels)
    return kernels.alone_us[key]
