"""Independence of programs: dependencies between them, and whether they can restart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import fsum

from gpusim.common.errors import InputError
from gpusim.trace.fields import MAX_REQUESTS
from gpusim.trace.format import Trace
from gpusim.trace.operations import Collective


def shares_nothing(trace: Trace) -> bool:
    """Whether kernels never run at the same time. A policy then has nothing to share."""
    streams = [stream for stream in trace.streams if stream.operations]
    return len(streams) < 2 and all(launch.stream == "main" for launch in trace.launches())


def waits_across_streams(trace: Trace) -> set[str]:
    """Ids of the operations that wait for an operation of another stream, collectives included."""
    home = {op.id: stream.name for stream in trace.streams for op in stream.operations}
    return {
        op.id
        for op in trace.operations()
        if isinstance(op, Collective) or any(home[other] != home[op.id] for other in op.depends_on)
    }


def waits_across_programs(trace: Trace) -> dict[str, str]:
    """Of each operation that waits for one of another program, by its id, where it says so.

    That is its ``depends_on``, or, of a collective with ranks in several programs, nowhere in particular.
    """
    program_of = trace.program_of()
    home = {op.id: program_of[stream.name] for stream in trace.streams for op in stream.operations}
    collectives = [op for op in trace.operations() if isinstance(op, Collective)]
    met = {(op.name, home[op.id]) for op in collectives}
    programs = Counter(name for name, _ in met)
    found = {op.id: "depends_on" for op in trace.operations() if any(home[o] != home[op.id] for o in op.depends_on)}
    return {op.id: "" for op in collectives if programs[op.name] > 1} | found


def require_independent(trace: Trace, programs_us: Mapping[str, float]) -> None:
    """Refuse a trace whose programs cannot restart independently, as STP requires.

    No program may wait for another, have arrivals, or take no time, or so little that it would restart over
    `MAX_REQUESTS` times while the others take a turn.
    """
    waits = waits_across_programs(trace)
    place = {stream.name: f"streams[{n}]" for n, stream in enumerate(trace.streams)}
    for stream in trace.streams:
        if stream.arrivals is not None:
            expected = "none, for a program that restarts when it ends"
            raise InputError(None, f"{place[stream.name]}.arrivals", "is given", expected)
        for at, op in enumerate(stream.operations):
            if op.id in waits:
                where = ".".join(filter(None, (f"{place[stream.name]}.operations[{at}]", waits[op.id])))
                expected = "programs that do not wait for one another, as they are to restart"
                raise InputError(None, where, "waits for another program", expected)
    for program in trace.programs:
        if fsum(programs_us.values()) >= MAX_REQUESTS * programs_us[program.name]:
            problem = f"takes {programs_us[program.name]:g} us in isolation"
            expected = f"over a {MAX_REQUESTS:,}th of all programs together, as it is to restart"
            raise InputError(None, place[program.streams[0]], problem, expected)
