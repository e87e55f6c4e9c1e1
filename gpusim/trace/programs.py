"""Programs: the streams of a trace that belong together, such as those of one process.

Restarts, requests, priorities and slowdowns belong to programs. A trace that names no programs has one for all streams
that depend on each other, however indirectly, and one for every other stream.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

from pydantic import FailFast, Field, WrapValidator

from gpusim.common.errors import InputError, expected_one_of
from gpusim.common.tables import connected
from gpusim.trace.fields import MAX_STREAMS, NAME_PATTERN, Strict, described, fault
from gpusim.trace.operations import Arrivals, Collective, Stream


def _or_stream(value: Any, read: Any) -> Any:
    """The name of a stream, or in Python the stream itself."""
    return value if isinstance(value, Stream) else read(value)


class Program(Strict):
    """Streams of one process: they start and restart together, and together they are one request.

    Python objects may be made of the streams themselves; a trace then takes these over and keeps their names.
    """

    name: Annotated[str, described("unique in the trace", pattern=NAME_PATTERN, max_length=200)]
    streams: Annotated[
        tuple[Annotated[str, Field(max_length=200), WrapValidator(_or_stream)], ...],
        FailFast(),
        described("names of its streams, each in no other program", min_length=1, max_length=MAX_STREAMS),
    ]
    priority: Annotated[
        int | None, described("of all its streams, 0 is the lowest; absent: each stream has its own", ge=0, le=1000)
    ] = None
    arrivals: Annotated[
        Arrivals | None, described("when requests of all its streams together arrive; absent: once, at time 0")
    ] = None


def plain_name(text: str) -> str:
    """Return a text as a name of a program or stream: other characters become ``_``."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", text)[:200] or "program"


def name_of_file(path: str | PathLike[str]) -> str:
    """Return the name of a program after its file: without endings and unusual characters."""
    return plain_name(re.sub(r"^sample:|(\.trace)?(\.json)?(\.gz)?$", "", Path(path).name))[:60]


def programs_of(streams: Sequence[Stream], given: Sequence[Program]) -> tuple[Program, ...]:
    """Return the programs of a trace. Every stream is in exactly one.

    They are the given programs, without streams that are no longer there, then for each other stream one of its name.
    Where none is given: one for all streams that wait for one another, named after the first of them. Priority and
    arrivals are those of its streams; the priority of streams that differ is None.
    """
    by_name = {stream.name: stream for stream in streams}
    groups = [(one.name, [name for name in one.streams if name in by_name]) for one in given]
    groups = [(name, members) for name, members in groups if members]
    if groups:
        taken = {name for _, members in groups for name in members}
        groups += [(stream.name, [stream.name]) for stream in streams if stream.name not in taken]
    else:
        groups = [(members[0], members) for members in _waiting_for_one_another(streams)]
    return tuple(_program(name, [by_name[member] for member in members]) for name, members in groups)


def _program(name: str, streams: Sequence[Stream]) -> Program:
    priorities = {stream.priority for stream in streams}
    return Program.model_construct(
        name=name,
        streams=tuple(stream.name for stream in streams),
        priority=priorities.pop() if len(priorities) == 1 else None,
        arrivals=streams[0].arrivals,
    )


def _waiting_for_one_another(streams: Sequence[Stream]) -> list[list[str]]:
    """Names of streams that depend on one another or meet in collectives, those of the first stream first."""
    awaited = {other for stream in streams for op in stream.operations for other in op.depends_on}
    home = {op.id: s for s, stream in enumerate(streams) for op in stream.operations if op.id in awaited}
    met: dict[str, int] = {}

    def joined() -> Iterator[tuple[int, int]]:
        for s, stream in enumerate(streams):
            for op in stream.operations:
                yield from ((s, home.get(other, s)) for other in op.depends_on)
                if isinstance(op, Collective):
                    yield s, met.setdefault(op.name, s)

    return [[streams[s].name for s in members] for members in connected(range(len(streams)), joined())]


def with_settings(streams: Sequence[Stream], programs: Sequence[Program]) -> tuple[Stream, ...]:
    """Return streams with the priority and the arrivals that programs give all their streams."""
    given: dict[str, dict[str, Any]] = {}
    for program in programs:
        settings = {"priority": program.priority, "arrivals": program.arrivals}
        for name in program.streams:
            given[name] = {key: value for key, value in settings.items() if value is not None}
    return tuple(
        stream.model_copy(update=given[stream.name]) if given.get(stream.name) else stream for stream in streams
    )


def program_faults(streams: Sequence[Stream], programs: Sequence[Program]) -> Iterator[InputError]:
    """Return the faults of the programs that a trace names."""
    place_of = {stream.name: s for s, stream in enumerate(streams)}
    owner: dict[str, int] = {}
    names: dict[str, int] = {}
    for p, program in enumerate(programs):
        if program.name in names:
            problem = f"{program.name!r} is also the name of programs[{names[program.name]}]"
            yield fault(problem, "unique program names", f"programs[{p}].name")
        names[program.name] = p
        for n, name in enumerate(program.streams):
            place = f"programs[{p}].streams[{n}]"
            if name not in place_of:
                yield fault(f"names stream {name!r}", expected_one_of(place_of, name), place)
            elif name in owner:
                yield fault(f"{name!r} is also in programs[{owner[name]}]", "each stream once", place)
            else:
                yield from _settings_faults(program, p, streams[place_of[name]], place_of[name])
            owner[name] = p
    for stream in streams:
        if stream.name in names and stream.name not in owner:
            problem = f"{stream.name!r} is also the name of a stream in no program, which is one by itself"
            yield fault(problem, "unique program names", f"programs[{names[stream.name]}].name")


def _settings_faults(program: Program, p: int, stream: Stream, s: int) -> Iterator[InputError]:
    """Return the settings in which a stream contradicts its program."""
    if program.priority is not None and stream.priority not in (0, program.priority):
        expected = f"{program.priority}, the priority of programs[{p}], or none here"
        yield fault(f"is {stream.priority}", expected, f"streams[{s}].priority")
    if stream.arrivals is not None and stream.arrivals != program.arrivals:
        whose = "other" if program.arrivals is not None else "no"
        if program.arrivals is not None or len(program.streams) > 1:
            problem = f"is given, and program {program.name!r} has {whose} arrivals"
            yield fault(problem, f"arrivals in programs[{p}]", f"streams[{s}].arrivals")
