"""Traces out of traces: a part of one, several side by side."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from graphlib import TopologicalSorter
from os import PathLike
from typing import Any

from gpusim.common.errors import InputError, expected_one_of, quote, the_first, validating
from gpusim.trace.file import trace_of
from gpusim.trace.format import Trace
from gpusim.trace.operations import Collective, Convolution, ConvolutionAlgorithm, Operation, Stream
from gpusim.trace.programs import Program, name_of_file, plain_name

SHOWN = 8  # names of a trace in an error


def select(
    trace: Trace,
    streams: Sequence[str] = (),
    operations: Sequence[str] = (),
    algorithms: Sequence[str] = (),
    programs: Sequence[str] = (),
) -> Trace:
    """A part of a trace.

    If a dependency is left out, the operation waits for the dependencies of that one.

    Args:
        trace: the whole.
        streams: names or patterns (`branch*`) of the streams that stay; all where empty.
        operations: ids or patterns of the operations that stay; all where empty.
        algorithms: names or patterns; a convolution that has one selects it, the first of them that it has.
        programs: names or patterns of the programs whose streams stay; all where empty.
    """
    _require_known(streams, [stream.name for stream in trace.streams], "streams")
    _require_known(operations, [operation.id for operation in trace.operations()], "operations")
    convolutions = [operation for operation in trace.operations() if isinstance(operation, Convolution)]
    known = [algorithm.algorithm for operation in convolutions for algorithm in _algorithms(operation)]
    _require_known(algorithms, known, "algorithms")
    _require_known(programs, [program.name for program in trace.programs], "programs")
    theirs = {name for program in trace.programs if _matches(program.name, programs) for name in program.streams}
    kept = {
        operation.id
        for stream in trace.streams
        if _matches(stream.name, streams) and stream.name in theirs
        for operation in stream.operations
        if _matches(operation.id, operations)
    }
    waits = _waits_among(trace, kept)
    chosen = []
    for stream in trace.streams:
        stay = [
            _with_algorithm(operation, algorithms).model_copy(update={"depends_on": waits[operation.id]})
            for operation in stream.operations
            if operation.id in kept
        ]
        if stay:
            chosen.append(stream.model_copy(update={"operations": tuple(stay)}))
    if not chosen:
        raise InputError(None, "operations", "none of these is on these streams", "at least one operation")
    return checked(trace.model_copy(update={"streams": tuple(chosen)}))


def merge(traces: Sequence[Trace | str | PathLike[str]], names: Sequence[str] = (), name: str = "") -> Trace:
    """Traces of one GPU side by side: all their streams start together.

    Each is one program, of its name or that of its file, unless it names several programs itself. Names are put before
    the streams and ids where two traces share any.

    Args:
        traces: at least one, each an object or the path of a file.
        names: one for each; none: those of the files, and of traces that are objects.
        name: of the whole; empty: the names, joined.

    Raises:
        InputError: no trace, another number of names, or traces recorded on different GPUs.
    """
    if not (isinstance(traces, list | tuple) and traces):
        raise InputError(None, "traces", f"is {quote(traces)}", "a list of traces, or of the paths of their files")
    found = [trace_of(one) for one in traces]
    names = names or [plain_name(one.name) if isinstance(one, Trace) else name_of_file(one) for one in traces]
    if len(names) != len(found):
        raise InputError(None, "names", f"are {len(names)} for {len(found)} traces", "one for each")
    name = name or "+".join(names)[:200]
    devices = sorted({trace.device for trace in found})
    if len(devices) > 1:
        raise InputError(None, "device", f"traces of {', '.join(devices)}", "traces recorded on one GPU")
    apart, unique = _share_names(found), _unique(names)
    streams = [
        renamed(stream, f"{prefix}/" if apart else "")
        for trace, prefix in zip(found, unique, strict=True)
        for stream in trace.streams
    ]
    notes = "\n".join(f"{prefix}: {trace.notes}" for trace, prefix in zip(found, names, strict=True) if trace.notes)
    first = found[0]
    products = dict.fromkeys(trace.stands_for for trace in found if trace.stands_for is not None)
    orders = [trace.order for trace in found if trace.order is not None]
    whole = first.model_copy(
        update={
            "version": 2,
            "name": name,
            "notes": notes[: 10**5],
            "streams": tuple(streams),
            "programs": _programs_of_all(found, unique, apart),
            "stands_for": " and ".join(products)[:200] or None,
            "order": "inferred" if "inferred" in orders else next(iter(orders), None),
        }
    )
    return checked(whole)


def with_settings_of(trace: Trace, settings: Mapping[str, Mapping[str, Any]], option: str) -> Trace:
    """A trace with other settings of some programs: by name, the ``priority`` or ``arrivals`` of all its streams.

    ``option`` is what gave them, for messages.
    """
    program_of = trace.program_of()
    for name in settings:
        if name not in program_of.values():
            expected = expected_one_of([program.name for program in trace.programs], name)
            raise InputError(None, option, f"names program {quote(name)}", expected)
    streams = tuple(
        stream.model_copy(update=dict(settings.get(program_of[stream.name], {}))) for stream in trace.streams
    )
    return checked(trace.model_copy(update={"version": 2, "streams": streams, "programs": trace.programs}))


def with_operations(trace: Trace, change: Callable[[Operation], Operation]) -> Trace:
    """Return the trace with a function applied to each operation."""
    streams = [one.model_copy(update={"operations": tuple(map(change, one.operations))}) for one in trace.streams]
    return trace.model_copy(update={"streams": tuple(streams)})


def checked(trace: Trace) -> Trace:
    """Return the trace, its rules checked anew; copies of models are not."""
    with validating(Trace):
        return Trace.model_validate(trace.model_dump(), strict=False)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _require_known(patterns: Sequence[str], names: Sequence[str], place: str) -> None:
    for pattern in patterns:
        if not any(_matches(name, [pattern]) for name in names):
            some = the_first(dict.fromkeys(names), SHOWN) or "none: the trace has no such thing"
            raise InputError(None, place, f"{quote(pattern)} matches nothing", f"a name or pattern among {some}")


def _algorithms(operation: Convolution) -> tuple[ConvolutionAlgorithm, ...]:
    return (operation.selected, *operation.alternatives)


def _with_algorithm(operation: Operation, patterns: Sequence[str]) -> Operation:
    if not isinstance(operation, Convolution):
        return operation
    every = _algorithms(operation)
    found = next((one for pattern in patterns for one in every if _matches(one.algorithm, [pattern])), None)
    return operation if found is None else with_selected(operation, found)


def with_selected(convolution: Convolution, algorithm: ConvolutionAlgorithm) -> Convolution:
    """The convolution by another of its algorithms; the one that was selected becomes an alternative."""
    rest = tuple(other for other in _algorithms(convolution) if other is not algorithm)
    return convolution.model_copy(update={"selected": algorithm, "alternatives": rest})


def _waits_among(trace: Trace, kept: set[str]) -> dict[str, tuple[str, ...]]:
    """For each kept operation the last kept one of each other stream that it waits for, also through those left out."""
    place = {op.id: (s, n) for s, stream in enumerate(trace.streams) for n, op in enumerate(stream.operations)}
    ids = {place: id for id, place in place.items()}
    before = {
        op.id: [*op.depends_on, *([stream.operations[n - 1].id] if n else [])]
        for stream in trace.streams
        for n, op in enumerate(stream.operations)
    }
    ends: dict[str, Mapping[int, int]] = {}  # the last kept operation of each stream at or before one
    waits: dict[str, tuple[str, ...]] = {}
    for id in TopologicalSorter(before).static_order():
        latest: dict[int, int] = {}
        for other in before[id]:
            for s, n in ends[other].items():
                latest[s] = max(n, latest.get(s, -1))
        stream, number = place[id]
        if id in kept:
            latest.pop(stream, None)  # its stream's order says it
            waits[id] = tuple(ids[other] for other in sorted(latest.items()))
            latest = {stream: number}
        ends[id] = latest
    return waits


def _share_names(traces: Sequence[Trace]) -> bool:
    """Whether the name of a stream or collective, or an operation's id, occurs in more than one of the traces."""
    names: Counter[str] = Counter()
    for trace in traces:
        collectives = {f"collective {op.name}" for op in trace.operations() if isinstance(op, Collective)}
        streams = {f"stream {stream.name}" for stream in trace.streams}
        names.update(streams | collectives | {op.id for op in trace.operations()})
    return any(count > 1 for count in names.values())


def _unique(names: Sequence[str]) -> list[str]:
    """The names, those that occur twice with numbers behind them, so that all differ."""
    count, taken, found = Counter(names), set(names), list[str]()
    for n, name in enumerate(names, 1):
        numbered = (f"{name}.{number}" for number in itertools.count(n))
        found.append(name if count[name] == 1 else next(one for one in numbered if one not in taken))
        taken.add(found[-1])
    return found


def _programs_of_all(traces: Sequence[Trace], names: Sequence[str], apart: bool) -> tuple[Program, ...]:
    """Programs of several traces under unique names; if ``apart``, streams get the name of their trace as a prefix."""
    every = [(name, one) for trace, name in zip(traces, names, strict=True) for one in _programs(trace, name)]
    count = Counter(program.name for _, program in every)
    found = []
    for of_trace, program in every:
        name = program.name if count[program.name] == 1 else f"{of_trace}/{program.name}"
        streams = tuple(f"{of_trace}/{stream}" if apart else stream for stream in program.streams)
        found.append(program.model_copy(update={"name": name, "streams": streams}))
    return tuple(found)


def _programs(trace: Trace, name: str) -> tuple[Program, ...]:
    """Return the programs of a trace: if it has one, or names none, one of this name with all of its streams.

    Several streams for which requests arrive are programs of their own.
    """
    if len(trace.programs) == 1:
        return (trace.programs[0].model_copy(update={"name": name}),)
    if trace.version == 2 or any(stream.arrivals is not None for stream in trace.streams):
        return trace.programs
    return (Program(name=name, streams=tuple(stream.name for stream in trace.streams)),)


def renamed(stream: Stream, prefix: str) -> Stream:
    """A stream with a prefix before its name, the ids of its operations and those that they wait for."""
    operations = tuple(
        operation.model_copy(
            update={
                "id": f"{prefix}{operation.id}",
                "depends_on": tuple(f"{prefix}{other}" for other in operation.depends_on),
                **({"name": f"{prefix}{operation.name}"} if isinstance(operation, Collective) else {}),
            }
        )
        for operation in stream.operations
    )
    return stream.model_copy(update={"name": f"{prefix}{stream.name}", "operations": operations})
