"""New traces: a template to edit, or one kernel for each row of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from gpusim.common.errors import InputError, expected_one_of, faults_of, one_line, quote
from gpusim.common.numbers import finite_number, whole_number
from gpusim.common.spreadsheet import table_rows
from gpusim.common.tables import counted
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Operation, Stream
from gpusim.trace.programs import Program

REQUIRED = ("kernel", "blocks", "threads_per_block", "registers_per_thread", "duration_us")
OPTIONAL = {"shared_memory_bytes": "0", "stream": "", "program": ""}  # with what a table without the column means
COLUMNS = (*REQUIRED, *OPTIONAL)
COLUMN_OF = {  # of a field of a launch
    "name": "kernel",
    "grid[0]": "blocks",
    "block[0]": "threads_per_block",
    "dynamic_shared_memory_bytes": "shared_memory_bytes",
}
STREAM = "main"  # of rows that name neither a stream nor a program

N = TypeVar("N", int, float)


def template(device: str) -> Trace:
    """Return a trace, of a GPU by name, that replays as it is: two streams with every required field, for editing."""
    first = uncounted_kernel(
        "first", "gemm", blocks=528, threads=256, registers=128, shared_bytes=32768, duration_us=120.0
    )
    second = uncounted_kernel(
        "second", "copy", blocks=1056, threads=128, registers=32, shared_bytes=0, duration_us=80.0
    )
    notes = "A template: replace its kernels by your own. Durations are those of each isolated kernel on the whole GPU."
    streams = (Stream(name="a", operations=(first,)), Stream(name="b", operations=(second,)))
    return Trace(name="template", device=device, notes=notes, streams=streams)


def from_table(path: str | Path, device: str) -> Trace:
    """Return a trace with one kernel per row of a CSV file, in the order of the rows, with durations on a GPU.

    The table has the columns `REQUIRED`, and those of `OPTIONAL` if it has them: threads and registers per thread of a
    block, its static and dynamic shared memory together, the duration of the kernel alone on the whole GPU in
    microseconds, the stream that it runs on, and the program of that stream. A row without a stream belongs to the
    stream that is named after its program.
    """
    streams: dict[str, list[Operation]] = {}
    program_of: dict[str, str] = {}
    with table_rows(path) as rows:
        columns = list(rows.fieldnames or ())
        for name in REQUIRED:
            if name not in columns:
                expected = f"the columns {', '.join(REQUIRED)}, separated by commas"
                raise InputError(path, "line 1", f"has no column {name}", expected)
        for name in columns:
            if name not in COLUMNS:
                raise InputError(path, "line 1", f"has a column {quote(name)}", expected_one_of(COLUMNS, name))
            if columns.count(name) > 1:
                raise InputError(path, "line 1", f"has the column {name} twice", "each column once")
        for n, row in enumerate(rows):
            place = f"line {rows.line_num}"
            if None in row:
                raise InputError(path, place, "has more values than there are columns", counted(len(columns), "value"))
            cells = {**OPTIONAL, **{name: cell for name, cell in row.items() if cell not in (None, "")}}
            stream, kernel = _row(path, place, f"kernel{n}", cells)
            streams.setdefault(stream, []).append(kernel)
            program = cells["program"].strip()
            if program_of.setdefault(stream, program) != program:
                problem = f"puts stream {quote(stream)} into program {quote(program)}"
                raise InputError(path, place, problem, f"{quote(program_of[stream])}, as before")
    if not streams:
        raise InputError(path, "", "has no rows", "one for each kernel")
    notes = f"From {Path(path).name}: isolated durations, no counters: demand is estimated."
    made = tuple(Stream(name=name, operations=tuple(operations)) for name, operations in streams.items())
    named = dict.fromkeys(program for program in program_of.values() if program)
    with faults_of(path, "program"):
        programs = tuple(
            Program(name=name, streams=tuple(stream for stream in streams if program_of[stream] == name))
            for name in named
        )
        name = one_line(Path(path).stem)[:200] or "table"
        return Trace(name=name, device=device, notes=notes, streams=made, programs=programs)


def _row(path: str | Path, place: str, id: str, cells: Mapping[str, str]) -> tuple[str, Kernel]:
    """The stream and the kernel of a row."""

    def read(column: str, parse: Callable[[str], N], expected: str) -> N:
        try:
            return parse(cells[column].strip())
        except ValueError:
            raise InputError(path, place, f"{column} is {quote(cells[column])}", expected) from None

    for name in REQUIRED:
        if name not in cells:
            raise InputError(path, place, f"has no {name}", "a value in each of " + ", ".join(REQUIRED))
    wholes = ("blocks", "threads_per_block", "registers_per_thread", "shared_memory_bytes")
    blocks, threads, registers, shared_bytes = (read(column, whole_number, "a whole number") for column in wholes)
    duration_us = read("duration_us", finite_number, "a number (us)")
    try:
        kernel = uncounted_kernel(id, cells["kernel"], blocks, threads, registers, shared_bytes, duration_us)
    except InputError as fault:
        column = COLUMN_OF.get(fault.place, fault.place)
        raise fault.at(path, place, f"{column} {fault.problem}") from None
    name = cells["stream"].strip() or cells["program"].strip() or STREAM
    try:
        return Stream(name=name, operations=(kernel,)).name, kernel
    except InputError as fault:
        raise fault.at(path, place, f"stream {fault.problem}") from None


def uncounted_kernel(
    id: str, name: str, blocks: int, threads: int, registers: int, shared_bytes: int, duration_us: float
) -> Kernel:
    """A kernel of which only its launch and its duration are known."""
    launch = KernelLaunch(
        name=name,
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        registers_per_thread=registers,
        dynamic_shared_memory_bytes=shared_bytes,
        duration_us=duration_us,
    )
    return Kernel(id=id, kernel=launch)
