"""A trace as if arithmetic, or memory, had bound the kernels that were not counted: the extremes of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from gpusim.common.tables import number
from gpusim.hardware.gpu import GPU
from gpusim.model.estimate import Assumption as Assumption
from gpusim.model.estimate import assumed, estimable
from gpusim.model.launchable import recorded_part
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, Kernel, Operation

ASSUMPTIONS: tuple[Assumption, ...] = get_args(Assumption)
WORDS: Mapping[Assumption, str] = {"compute": "arithmetic", "memory": "memory"}
MOST_LAUNCHES = 20_000  # of a trace whose extremes are replayed, too


def extremes(trace: Trace, gpu: GPU) -> dict[Assumption, Trace]:
    """The trace under each assumption; empty where the answer does not depend on any."""
    every = list(trace.launches())
    if len(every) > MOST_LAUNCHES:
        return {}
    launches = list(dict.fromkeys(every))
    both = {one: [assumed(launch, recorded_part(launch, gpu), one) for launch in launches] for one in ASSUMPTIONS}
    if len(set(map(tuple, both.values()))) == 1:
        return {}
    return {one: _with(trace, dict(zip(launches, changed, strict=True))) for one, changed in both.items()}


def _with(trace: Trace, changed: Mapping[KernelLaunch, KernelLaunch]) -> Trace:
    streams = [
        stream.model_copy(update={"operations": tuple(_operation(one, changed) for one in stream.operations)})
        for stream in trace.streams
    ]
    return trace.model_copy(update={"streams": tuple(streams)})


def _operation(operation: Operation, changed: Mapping[KernelLaunch, KernelLaunch]) -> Operation:
    if isinstance(operation, Kernel):
        return operation.model_copy(update={"kernel": changed[operation.kernel]})
    if isinstance(operation, Convolution):
        kernels = tuple(changed[launch] for launch in operation.selected.kernels)
        return operation.model_copy(update={"selected": operation.selected.model_copy(update={"kernels": kernels})})
    return operation


def warning(trace: Trace, best: str, span_us: tuple[float, float], winners: Mapping[Assumption, str]) -> str:
    """Note about an answer whose kernels were not all counted, as one line.

    ``best`` is the best policy or setting of the answer, ``span_us`` its least and most makespan over the assumptions,
    and ``winners`` the best under each assumption.
    """
    launches = [launch for operation in trace.operations() for launch in operation.launches()]
    bare = sum(estimable(launch) for launch in launches)
    span = " to ".join(dict.fromkeys(number(us) for us in span_us))
    text = f"{bare:,} of {len(launches):,} kernels have no counters: `{best}` takes {span} µs"
    if set(winners.values()) == {best}:
        return f"{text}, and is best whether arithmetic or memory limits them"
    by = ", ".join(f"`{winner}` for {WORDS[one]}" for one, winner in winners.items())
    return f"{text}, and the best depends on what limits them: {by}"
