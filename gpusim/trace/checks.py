"""Checks of a whole trace: names, sizes, ranks that all come, and dependencies that can be met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import chain

from gpusim.common.errors import InputError, show
from gpusim.trace.fields import MAX_LAUNCHES, fault
from gpusim.trace.operations import Collective, Stream
from gpusim.trace.programs import Program, program_faults, with_settings


def faults(streams: Sequence[Stream], programs: Sequence[Program], version: int) -> Iterator[InputError]:
    """Return the faults of a trace as a whole; those of a later kind only if there are none of an earlier one."""
    for of_a_kind in _by_kind(streams, programs, version):
        sound = True
        for found in of_a_kind:
            sound = False
            yield found
        if not sound:
            return


def _by_kind(streams: Sequence[Stream], programs: Sequence[Program], version: int) -> Iterator[Iterable[InputError]]:
    if version == 1 and programs:
        yield [fault("is given in version 1", "version 2 of the format, which has programs", "programs")]
    yield _names(streams)
    yield program_faults(streams, programs)
    streams = with_settings(streams, programs)
    program_of = {name: p for p, program in enumerate(programs) for name in program.streams}
    home = [program_of.get(stream.name, len(programs) + s) for s, stream in enumerate(streams)]
    yield chain(_launches(streams), _collectives(streams, home))
    yield _dependencies(streams, home)


def _names(streams: Sequence[Stream]) -> Iterator[InputError]:
    """A trace without operations, and streams or operations that share a name."""
    names: dict[str, int] = {}
    ids: dict[str, tuple[int, int]] = {}
    for s, stream in enumerate(streams):
        if stream.name in names:
            yield fault(
                f"{stream.name!r} is also the name of streams[{names[stream.name]}]",
                "unique stream names",
                f"streams[{s}].name",
            )
        names[stream.name] = s
        for o, operation in enumerate(stream.operations):
            if operation.id in ids:
                problem = f"{operation.id!r} is also the id of {_place(*ids[operation.id])}"
                yield fault(problem, "unique ids", f"{_place(s, o)}.id")
            ids[operation.id] = s, o
    if not ids:
        yield fault("has 0 operations", "at least one operation", "streams")


def _place(stream: int, operation: int) -> str:
    return f"streams[{stream}].operations[{operation}]"


def _launches(streams: Sequence[Stream]) -> Iterator[InputError]:
    """The trace has more kernel launches than a replay can hold."""
    launches = sum(
        (1 if stream.arrivals is None else stream.arrivals.requests)
        * sum(len(operation.launches()) for operation in stream.operations)
        for stream in streams
    )
    if launches > MAX_LAUNCHES:
        yield fault(f"launch {launches} kernels, all requests counted", f"at most {MAX_LAUNCHES}", "streams")


def _collectives(streams: Sequence[Stream], home: Sequence[int]) -> Iterator[InputError]:
    """Return a fault if a collective lacks a rank, or has two in one stream or in several programs with requests."""
    parts: dict[str, list[tuple[int, str, Collective]]] = {}
    for s, stream in enumerate(streams):
        for o, operation in enumerate(stream.operations):
            if isinstance(operation, Collective):
                parts.setdefault(operation.name, []).append((s, _place(s, o), operation))
    for name, ranks in parts.items():
        seen: set[int] = set()
        together = len({home[s] for s, _, _ in ranks}) == 1
        for s, place, operation in ranks:
            if operation.ranks != len(ranks):
                problem = f"{operation.ranks}, but {len(ranks)} streams take part in {show(name)}"
                yield fault(
                    problem, f"an operation of that name in each of {operation.ranks} streams", f"{place}.ranks"
                )
            if s in seen:
                yield fault(f"{show(name)} is twice in one stream", "one rank a stream", f"{place}.name")
            if streams[s].arrivals is not None and not together:
                yield fault("is in a stream with arrivals", "streams with arrivals to be independent", place)
            seen.add(s)


def _dependencies(streams: Sequence[Stream], home: Sequence[int]) -> Iterator[InputError]:
    """Dependencies that are unknown, given twice, cyclic, or between requests of several programs."""
    flat = [(s, o, operation) for s, stream in enumerate(streams) for o, operation in enumerate(stream.operations)]
    number = {operation.id: n for n, (_, _, operation) in enumerate(flat)}
    before: list[tuple[int, ...]] = []  # for each, those that must end first: depends_on, and the one before it
    meetings: dict[str, list[int]] = {}
    for n, (s, o, operation) in enumerate(flat):
        waits: dict[int, None] = {}  # in order, each once
        for d, other in enumerate(operation.depends_on):
            where = f"{_place(s, o)}.depends_on[{d}]"
            if other not in number:
                yield fault(f"unknown operation {show(other)}", "the id of an operation here", where)
                continue
            if number[other] in waits:
                yield fault(f"{other!r} given twice", "each dependency once", where)
            if home[flat[number[other]][0]] != home[s]:
                yield from _requests(streams, s, flat[number[other]][0], where)
            waits[number[other]] = None
        if o:
            waits[n - 1] = None
        before.append(tuple(waits))
        if isinstance(operation, Collective):
            meetings.setdefault(operation.name, []).append(n)
    for ranks in meetings.values():  # each rank waits for what any of them waits for
        together = tuple(dict.fromkeys(b for n in ranks for b in before[n]))
        for n in ranks:
            before[n] = together
    cycle = _cycle(before)
    if cycle:
        s, o, _ = flat[cycle[0]]
        names = [operation.id for _, _, operation in (flat[n] for n in cycle)]
        shown = names if len(names) <= 6 else [*names[:5], "…"]
        yield fault(
            "dependency cycle: " + " waits for ".join([*shown, names[0]]),
            "dependencies without a cycle (a stream's order counts)",
            f"{_place(s, o)}.depends_on",
        )


def _requests(streams: Sequence[Stream], stream: int, other: int, where: str) -> Iterator[InputError]:
    for s in (stream, other):
        if streams[s].arrivals is not None:
            yield fault(
                f"crosses streams, and stream {streams[s].name!r} has arrivals",
                "streams with arrivals to be independent",
                where,
            )


def _cycle(before: Sequence[Sequence[int]]) -> list[int]:
    """A cycle if there is one, first an operation that waits across the order of its stream; else nothing."""
    try:
        TopologicalSorter(dict(enumerate(before))).prepare()
        return []
    except CycleError as error:
        cycle: list[int] = error.args[1][:0:-1]  # each waits for the next, the last one for the first
    backwards = next(i for i, n in enumerate(cycle) if cycle[(i + 1) % len(cycle)] != n - 1)
    return cycle[backwards:] + cycle[:backwards]
