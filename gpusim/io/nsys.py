"""CUPTI's activities in SQLite: of `nsys export --type sqlite`, of nvprof and of the Visual Profiler.

Both have the tables that they need, in any version. The tables of nvprof (`.nvvp`, `nvprof -o`) are recalled [M].
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.tables import counted
from gpusim.io import source
from gpusim.io.timeline import (
    CopyRun,
    HostMemory,
    HostSync,
    LaunchedKernel,
    Product,
    Range,
    Span,
    StreamKey,
    Timeline,
    Wait,
)
from gpusim.io.values import Direction, whole

MAGIC = b"SQLite format 3\x00"
REPORTS = (".nsys-rep", ".qdrep")  # of nsys itself, which only it reads
EXPORT_S = 1800  # that an export may take

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
CONCURRENT_KERNELS = "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL"  # only nvprof writes it, mostly beside an empty other
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCS = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
EVENTS = "CUPTI_ACTIVITY_KIND_CUDA_EVENT"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NVTX = "NVTX_EVENTS"
GPUS = "TARGET_INFO_GPU"
OLD_GPUS = "TARGET_INFO_CUDA_GPU"  # until 2021
VISIBLE_GPUS = "TARGET_INFO_CUDA_DEVICE"
NVPROF_GPUS = "CUPTI_ACTIVITY_KIND_DEVICE"
NVPROF_STRINGS = "StringTable"

_GRID = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_NEEDED = ("start", "end", "deviceId", "streamId")  # of any work on a GPU
_OF_WORK = (*_NEEDED, "contextId", "greenContextId", "globalPid", "correlationId")
_DIRECTIONS: dict[int, Direction] = {1: "h2d", 2: "d2h", 3: "h2d", 4: "d2h", 10: "p2p"}
_HOST_TO_HOST = 9
_MIGRATIONS = (11, 12, 13)  # of unified memory
_HOST_MEMORY: dict[int, HostMemory] = {0: "pageable", 1: "pinned"}
_NVPROF_MEMORY: dict[int, HostMemory] = {1: "pageable", 2: "pinned"}  # CUPTI's own numbers
_EVENT_SYNC, _STREAM_WAIT, _STREAM_SYNC, _CONTEXT_SYNC = 1, 2, 3, 4  # CUPTI's kinds of synchronization
_CALL_NUMBERS = re.compile(r"(?:, (?:seq|op_id) = \d+)+$")  # behind names of PyTorch's emit_nvtx
_BACKWARDS = "of kernels, copies or memsets with the end before the start"
_A_GPU_SIDE = (
    "a profile of a program that launches kernels and ends by itself, with no other profiler beside it "
    "(nsys status --environment tells what the machine lacks)"
)
_AN_EXPORT = "a file of nsys export --type sqlite, of a profile with --trace=cuda"


def read(path: Path) -> Timeline:
    """A profile of Nsight Systems."""
    with _database(path) as file:
        try:
            return _Export(path, file).timeline()
        except InputError:
            raise
        except ValueError as error:
            raise InputError(path, "", str(error), _AN_EXPORT) from None


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """The database that an installed nsys makes of a report, for as long as it is looked at."""
    expected = "nsys export --type sqlite FILE, on a machine that has Nsight Systems"
    if not os.path.isfile(path):
        raise InputError(path, "", "is not there", "a report of nsys")
    program = shutil.which("nsys")
    if program is None:
        raise InputError(path, "", "is a report in its tool's own form, and no nsys is installed", expected)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / f"{path.stem}.sqlite"
        command = [program, "export", "--type", "sqlite", "--output", str(made), str(path)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, errors="replace", timeout=EXPORT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(path, "", f"nsys export failed ({one_line(str(error))[:200]})", expected) from None
        if done.returncode or not os.path.isfile(made):
            said = one_line("".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]))
            raise InputError(
                path, "", f"nsys export failed ({said[:200] or done.returncode})", "a whole report"
            ) from None
        try:
            yield made
        except InputError as error:  # the database is gone when somebody reads it
            raise error.at(path if error.path == made else None) from None


def gpu_rows(path: Path) -> list[dict[str, Any]]:
    """Rows about the GPUs of a profile (`GPUS`); empty if it has no such table."""
    with _database(path) as file:
        try:
            return [dict(row) for row in file.execute(f'SELECT * FROM "{GPUS}"')]
        except sqlite3.OperationalError:
            return []


@contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with source.unpacked(path) as plain:
        address = f"{plain.resolve().as_uri()}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                connection.text_factory = lambda data: data.decode("utf-8", "replace")
                connection.row_factory = sqlite3.Row
                yield connection
        except (sqlite3.Error, OverflowError) as error:
            raise InputError(path, "", f"cannot be read ({one_line(str(error))})", _AN_EXPORT) from None


class _Export:
    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path = path
        self.database = database
        self.found = Timeline()
        self.backwards = 0  # activities that end before they start
        self.tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        by_nvprof = CONCURRENT_KERNELS in self.tables
        self.kernels = CONCURRENT_KERNELS if self._count(CONCURRENT_KERNELS) else KERNELS
        self.memory = _NVPROF_MEMORY if by_nvprof else _HOST_MEMORY
        self.strings: dict[Any, Any] = {}
        for table, number in (("StringIds", "id"), (NVPROF_STRINGS, "_id_")):
            self.strings |= dict(self._rows(table, (number, "value")))
        self.visible = self._visible_gpus()

    def timeline(self) -> Timeline:
        if not self._count(self.kernels):
            raise self._no_kernels()
        self._kernels()
        self._copies()
        if self.backwards:
            if not self.found.kernels_by_device():
                problem = f"holds no kernels beside {counted(self.backwards, 'row')} {_BACKWARDS}"
                raise InputError(self.path, self.kernels, problem, _AN_EXPORT)
            self.found.leave_out(self.backwards, "row", _BACKWARDS)
        self._products()
        self._threads()
        self._ranges()
        self._syncs()
        graphs = "of CUDA graphs that were recorded whole (nsys profile --cuda-graph-trace=node records their kernels)"
        self.found.leave_out(self._count(GRAPHS), "run", graphs)
        return self.found

    def _no_kernels(self) -> InputError:
        if GRAPHS in self.tables:
            return InputError(self.path, "", "holds whole CUDA graphs", "nsys profile --cuda-graph-trace=node")
        if any(name.startswith("rocpd") for name in self.tables):
            return source.of_amd(self.path)
        if calls := self._count(CALLS):
            problem = f"holds {calls} CUDA calls and no kernels: the GPU's side was not recorded"
            return InputError(self.path, "", problem, _A_GPU_SIDE)
        problem = "holds no kernels" if KERNELS in self.tables else f"has no table {KERNELS}"
        return InputError(self.path, "", problem, _AN_EXPORT)

    def _rows(self, table: str, columns: Sequence[str], needed: Sequence[str] = ()) -> Iterator[Any]:
        """The columns of a table; NULL for those that this version of nsys does not write, nothing of no table."""
        if table not in self.tables:
            return iter(())
        there = {row[1] for row in self.database.execute(f'PRAGMA table_info("{table}")')}
        missing = [column for column in needed if column not in there]
        if missing:
            raise InputError(self.path, table, f"lacks {', '.join(missing)}", _AN_EXPORT)
        chosen = ", ".join(f'"{column}"' if column in there else f'NULL AS "{column}"' for column in columns)
        return self.database.execute(f'SELECT {chosen} FROM "{table}" ORDER BY rowid')

    def _count(self, table: str) -> int:
        """How many rows a table has; 0 where it is not there."""
        if table not in self.tables:
            return 0
        return int(self.database.execute(f'SELECT COUNT(*) FROM "{table}"').fetchone()[0])

    def _kernels(self) -> None:
        columns = (
            *_OF_WORK, *_GRID, "demangledName", "shortName", "name", "registersPerThread", "staticSharedMemory",
            "dynamicSharedMemory", "graphId", "graphNodeId",
        )  # fmt: skip
        from_graphs = 0
        for row in self._rows(self.kernels, columns, (*_NEEDED, *_GRID)):
            names = [row[column] for column in ("demangledName", "shortName", "name")]
            given = next(filter(None, names), "unnamed")
            name = next((self.strings[one] for one in names if self.strings.get(one)), given)
            gx, gy, gz, bx, by, bz = (_whole(row[column]) for column in _GRID)
            sizes = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
            registers, static, dynamic = (_whole(row[column] or 0) for column in sizes)
            work = LaunchedKernel(one_line(str(name)), (gx, gy, gz), (bx, by, bz), registers, static, dynamic)
            graph, node = row["graphId"], row["graphNodeId"]
            from_graphs += bool(graph or node)
            self._add(row, work, f"graph{_whole(graph)}" if graph else "graph" if node else "")
        if from_graphs:
            self.found.remarks.append(
                f"{counted(from_graphs, 'kernel')} of CUDA graphs: the order is that of their stream."
            )

    def _copies(self) -> None:
        migrations = 0
        for row in self._rows(COPIES, (*_OF_WORK, "bytes", "copyKind", "srcKind", "dstKind"), _NEEDED):
            if row["copyKind"] in _MIGRATIONS:
                migrations += 1
            elif row["copyKind"] != _HOST_TO_HOST:
                direction = _DIRECTIONS.get(row["copyKind"], "d2d")
                memory = self.memory.get(row["dstKind" if direction == "d2h" else "srcKind"])
                self._add(row, CopyRun(direction, _whole(row["bytes"] or 0), memory))
        for row in self._rows(MEMSETS, (*_OF_WORK, "bytes"), _NEEDED):
            self._add(row, CopyRun("memset", _whole(row["bytes"] or 0)))
        waited = "of unified memory; the time that kernels waited for them is in the kernels' durations"
        self.found.leave_out(migrations, "migration", waited)

    def _add(self, row: sqlite3.Row, work: LaunchedKernel | CopyRun, label: str = "") -> None:
        """Add the kernel or copy of a row, whose table has the columns `_OF_WORK`."""
        end, start, order, device = _whole(row["end"]), _whole(row["start"]), row["correlationId"], row["deviceId"]
        duration = (end - start) / 1000
        if duration < 0:
            self.backwards += 1
            return
        context, green = _text(row["contextId"]), _text(row["greenContextId"] or "")
        key = StreamKey(str(row["streamId"]), _text(row["globalPid"]), context, green)
        number = None if order is None else _whole(order)
        process = _whole(key.process or 0) >> 24 & 0xFFFFFF  # of a globalPid: in the 24 bits above the thread's
        gpu = self.visible.get((process, _whole(device)), _whole(device))
        self.found.add(gpu, key, start / 1000, duration, work, number, label)

    def _visible_gpus(self) -> dict[tuple[int, int], int]:
        """Index of a GPU by process and that process's own number for it: CUDA_VISIBLE_DEVICES makes them differ."""
        rows = self._rows(VISIBLE_GPUS, ("pid", "cudaId", "gpuId"))
        return {
            (_whole(pid), _whole(number)): _whole(gpu) for pid, number, gpu in rows if None not in (pid, number, gpu)
        }

    def _products(self) -> None:
        for table, columns in (
            (OLD_GPUS, ("deviceId", "name", "numMultiprocessors", "globalMemorySize", "", "")),
            (GPUS, ("id", "name", "smCount", "totalMemory", "computeMajor", "computeMinor")),
            (NVPROF_GPUS, ("id", "name", "numMultiprocessors", "globalMemorySize", "", "")),
        ):
            for index, name, sms, memory, major, minor in self._rows(table, columns):
                if index is not None:
                    self.found.products[_whole(index)] = Product(
                        None if name is None else str(self.strings.get(name, name)),
                        _whole(sms or 0) or None,
                        None if memory is None else _whole(memory),
                        None if major is None or minor is None else f"{_whole(major)}.{_whole(minor)}",
                    )

    def _threads(self) -> None:
        wanted = {(a.stream.process, a.order) for a in self.found.activities}
        for process, order in self._rows(SYNCS, ("globalPid", "correlationId")):
            wanted.add((_text(process), order))
        for thread, order, start in self._rows(CALLS, ("globalTid", "correlationId", "start")):
            process = "" if thread is None else str(_whole(thread) & ~0xFFFFFF)  # the thread is in the lowest 24 bits
            if order is not None and (process, _whole(order)) in wanted:
                self.found.threads[process, _whole(order)] = str(thread)
                if start is not None:
                    self.found.launched_us[process, _whole(order)] = _whole(start) / 1000

    def _ranges(self) -> None:
        """Ranges of NVTX that have an end; launches are named after the innermost one on their thread."""
        spans: list[Span] = []
        for start, end, text, number, thread in self._rows(NVTX, ("start", "end", "text", "textId", "globalTid")):
            name = text if text is not None else self.strings.get(number)
            if start is None or end is None or not name:
                continue
            one = Range(one_line(str(name)), _whole(start) / 1000, _whole(end) / 1000)
            self.found.ranges.append(one)
            if thread is not None:
                title = _CALL_NUMBERS.sub("", one.name)
                spans.append(Span(one.start_us, one.end_us, str(thread), f"{title}/{len(spans)}"))
        self.found.label_by_nesting(spans)

    def _syncs(self) -> None:
        """Read the waits of streams for events, where nsys recorded which event, and the waits of the host."""
        if SYNCS not in self.tables:
            return
        records = self._records()
        keys = {(a.stream.process, a.stream.context, a.stream.number): a.stream for a in self.found.activities}
        waits = unknown = 0
        columns = ("streamId", "contextId", "globalPid", "correlationId", "syncType", "eventSyncId")
        for stream, context, process, order, kind, event in self._rows(SYNCS, columns):
            if order is None:
                continue
            owner, at = _text(process), _whole(order)
            waiting = keys.get((owner, _text(context), str(stream)))
            record = records.get((owner, event)) if event else None
            source = None if record is None else keys.get((owner, record[0], record[1]))
            thread = self.found.threads.get((owner, at), "")
            if kind == _STREAM_WAIT:
                waits += 1
                unknown += record is None
                if waiting is not None and source is not None and record is not None:
                    self.found.waits.append(Wait(waiting, at, source, record[2]))
            elif kind == _STREAM_SYNC and waiting is not None:
                self.found.syncs.append(HostSync(thread, at, waiting, at))
            elif kind == _CONTEXT_SYNC:
                self.found.syncs.append(HostSync(thread, at, None, at))
            elif kind == _EVENT_SYNC and source is not None and record is not None:
                self.found.syncs.append(HostSync(thread, at, source, record[2]))
        self.found.tells_waits = not waits or unknown < waits
        if unknown:
            self.found.remarks.append(
                f"No event was recorded for {counted(unknown, 'wait')} of streams "
                "(nsys profile --cuda-event-trace=true records events)."
            )

    def _records(self) -> dict[tuple[str, Any], tuple[str, str, int]]:
        """Context, stream and order of each record of an event, by process and its synchronization id."""
        columns = ("globalPid", "eventSyncId", "contextId", "streamId", "correlationId")
        return {
            (_text(process), event): (_text(context), str(stream), _whole(order))
            for process, event, context, stream, order in self._rows(EVENTS, columns)
            if event and order is not None
        }


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _whole(value: Any) -> int:
    number = whole(value)
    if number is None:
        given = "nothing" if value is None else quote(one_line(str(value)))
        raise ValueError(f"has {given} where a whole number should be")
    return number
