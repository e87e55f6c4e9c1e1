"""Streams as independent programs: which wait for one another, and whether they can restart."""

from __future__ import annotations

from collections.abc import Mapping
from math import fsum

from gpusim.common.errors import InputError
from gpusim.trace.fields import MAX_REQUESTS
from gpusim.trace.format import Trace
from gpusim.trace.operations import Collective


def shares_nothing(trace: Trace) -> bool:
    """Whether all kernels are in one line, so that policies have nothing to share the GPU between."""
    streams = [stream for stream in trace.streams if stream.operations]
    return len(streams) < 2 and all(launch.stream == "main" for launch in trace.launches())


def waits_across_streams(trace: Trace) -> set[str]:
    """Ids of the operations that wait for one of another stream, collectives among them."""
    home = {op.id: stream.name for stream in trace.streams for op in stream.operations}
    return {
        op.id
        for op in trace.operations()
        if isinstance(op, Collective) or any(home[other] != home[op.id] for other in op.depends_on)
    }


def require_independent(trace: Trace, isolated_us: Mapping[str, float]) -> None:
    """Refuse a trace whose streams cannot restart as the independent programs that STP is of.

    Args:
        trace: what was recorded.
        isolated_us: makespan (us) of each stream alone on the whole GPU.

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
        if fsum(isolated_us.values()) >= MAX_REQUESTS * isolated_us[stream.name]:
            problem = f"takes {isolated_us[stream.name]:g} us alone"
            expected = f"over a {MAX_REQUESTS:,}th of all streams together, as it is to restart"
            raise InputError(None, place, problem, expected)
