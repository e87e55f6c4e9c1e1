"""nvprof: `--print-gpu-trace --csv`, units in a row or behind each number, and its profiles as Chrome JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, one_line
from gpusim.common.numbers import MICROSECONDS
from gpusim.io import chrome, source
from gpusim.io.timeline import (
    Activity,
    CopyRun,
    KernelRun,
    Product,
    StreamKey,
    Timeline,
    copy_run,
    count,
    device_of,
    finite,
    three,
)

COLUMNS = ("Start", "Duration", "Grid X", "Block X", "Name")
_EXTENTS = tuple(f"{what} {axis}" for what in ("Grid", "Block") for axis in "XYZ")
LONGEST_CELL = 200  # characters of a number
EPOCH_NS = 1e17  # a time of day above this is in nanoseconds (the year 5138 in microseconds)

_BYTES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}  # nvprof's kilobyte has 1024
_NUMBER_WITH_UNIT = re.compile(r"\s*([-+0-9.,eE]+?)\s*([A-Za-z]*)\s*$")
_PROCESS = re.compile(r"\[(\d+):(\d+)\]\s*(.*)")  # [device:context] Tesla V100-SXM2-16GB
_ROWS_OF_ALL_GPUS = {"", "Overview", "Compute"}
_A_GPU_TRACE = "the output of nvprof --print-gpu-trace --csv"

Cells = Mapping[str, str]


def read_csv(path: Path) -> Timeline:
    """A GPU trace in CSV.

    Raises:
        InputError: another output of nvprof, a half-written row, or values that are none.
    """
    found = Timeline()
    products: dict[int, Product] = {}
    others = 0
    for line, row, units in _rows(path):
        name = one_line(row["Name"]).strip()
        if not name.startswith("[CUDA mem") and not any(row.get(extent, "").strip() for extent in _EXTENTS):
            others += 1
            continue
        try:
            start = _scaled(row["Start"], units.get("Start", ""), MICROSECONDS)
            duration = _scaled(row["Duration"], units.get("Duration", ""), MICROSECONDS)
            work = _work_of_row(name, row, units)
        except ValueError as error:
            raise InputError(path, f"line {line}", str(error), _A_GPU_TRACE) from None
        if work is None:
            continue
        device, name_of_gpu = device_of(row.get("Device", ""))
        products.setdefault(device, Product(name_of_gpu))
        stream = StreamKey(row.get("Stream", "") or "0", context=row.get("Context", ""))
        order = len(found.activities)
        found.activities.append(Activity(device, stream, start, duration, work, order))
    found.products = products
    if others:
        found.remarks.append(
            f"{others} rows that are no kernel, copy or memset (unified memory, markers) are left out."
        )
    return found


def _rows(path: Path) -> Iterator[tuple[int, Cells, Cells]]:
    """Number of the line, values by column and units by column, after nvprof's own lines (==PID== …)."""
    header: list[str] | None = None
    units: dict[str, str] = {}
    for number, line in enumerate(source.lines(path), 1):
        if not line.strip() or line.startswith("==") or (header is None and not line.lstrip('" ').startswith("Start")):
            continue
        cells = source.cells(path, number, line, _A_GPU_TRACE)
        if header is None:
            header = [cell.strip() for cell in cells]
            missing = [column for column in COLUMNS if column not in header]
            if missing:
                raise InputError(path, f"line {number}", f"lacks {', '.join(missing)}", _A_GPU_TRACE)
            continue
        if [cell.strip() for cell in cells] == header:
            raise InputError(path, f"line {number}", "begins another process", "one a file: nvprof --log-file %p.csv")
        if not units and cells[0].strip() in MICROSECONDS:
            units = dict(zip(header, (cell.strip() for cell in cells), strict=False))
            continue
        if len(cells) == len(header):
            yield number, dict(zip(header, cells, strict=True)), units
        elif finite(cells[0].rstrip("smun ")) is not None:  # else the program printed it in between
            raise InputError(path, f"line {number}", f"has {len(cells)} of {len(header)} fields", "a whole file")
    if header is None:
        raise InputError(path, "", "has no header with Start and Duration", _A_GPU_TRACE)


def _work_of_row(name: str, row: Cells, units: Cells) -> KernelRun | CopyRun | None:
    if name.startswith("[CUDA mem"):
        size = round(_scaled(row.get("Size", "") or "0", units.get("Size", ""), _BYTES))
        return _copy(name, size, f"{row.get('SrcMemType', '')} {row.get('DstMemType', '')}")
    grid = three([row.get(f"Grid {axis}", "") for axis in "XYZ"])
    block = three([row.get(f"Block {axis}", "") for axis in "XYZ"])
    if grid is None or block is None:
        raise ValueError("has no grid or block")
    static, dynamic = (
        round(_scaled(row.get(column) or "0", units.get(column, ""), _BYTES))
        for column in ("Static SMem", "Dynamic SMem")
    )
    cell = row.get("Registers Per Thread", "")[:LONGEST_CELL]
    registers = count(cell)
    if registers is None:
        raise ValueError(f"has {cell!r} registers"[:80])
    return KernelRun(re.sub(r"\[\d+\]$", "", name).rstrip(), grid, block, registers, static, dynamic)


def _copy(name: str, size: int, ends: str) -> CopyRun | None:
    return copy_run(name, "memset" in name.lower(), size, ends)


def _scaled(text: str, unit: str, scales: Mapping[str, float]) -> float:
    """A number in the unit of its column, or in that behind it."""
    match = _NUMBER_WITH_UNIT.match(text[:LONGEST_CELL])
    value = finite(match[1].replace(",", "")) if match else None
    scale = scales.get((match[2] or unit) if match else "")
    if value is None or value < 0 or (scale is None and value > 0):
        raise ValueError(f"has {text!r} in {unit!r}"[:80])
    return value * (scale or 1.0)


def read_json(path: Path) -> Timeline:
    """A profile of nvprof in Chrome's form, as converters write it: a kernel may be in several rows of the picture.

    Raises:
        InputError: not whole JSON, or PyTorch's.
    """
    found = Timeline()
    seen: dict[tuple[float, str, str], Activity] = {}  # by start, name and stream
    lost = 0
    streamless = False
    for member, event in chrome.members(path):
        if member != chrome.EVENTS or not isinstance(event, dict) or event.get("ph") != "X":
            continue
        if str(event.get("cat", "")).lower() == "kernel":
            raise InputError(path, "", "is a profile of PyTorch", "gpusim import kineto, or no format at all")
        fields = _fields(event.get("args"))
        name = one_line(str(event.get("name", "")))
        is_copy = name.lower().startswith(("memcpy", "memset", "[cuda mem"))
        if not is_copy and not fields.keys() & {"grid", "gridsize"}:
            continue  # a call of the host
        if not is_copy and not fields.keys() & {"stream", "streamid"}:
            fields["stream"] = "0"
            streamless = True
        row = _PROCESS.match(str(event.get("pid", "")))
        if row and (title := row[3].strip()) not in _ROWS_OF_ALL_GPUS:
            found.products.setdefault(int(row[1]), Product(title))
        activity = _activity(event, name, fields, is_copy, int(row[1]) if row else 0)
        if activity is None:
            lost += 1
            continue
        key = (activity.start_us, name, activity.stream.number)
        if row or key not in seen:  # rows of a GPU tell which it was
            seen[key] = activity
    found.activities = _in_microseconds(sorted(seen.values(), key=lambda activity: activity.start_us))
    if streamless:
        found.remarks.append("Kernels name no stream: they are taken as of one.")
    if lost:
        found.remarks.append(f"{lost} copies or kernels without a usable stream, grid, size or time are left out.")
    return found


def _activity(
    event: Mapping[str, Any], name: str, fields: Mapping[str, Any], is_copy: bool, device: int
) -> Activity | None:
    """One event in the file's own unit of time; None where something of it is missing."""
    start, duration = finite(event.get("ts")), finite(event.get("dur"))
    stream = fields.get("streamid", fields.get("stream", ""))
    size = count(fields.get("bytes"))
    work = _kernel(name, fields) if not is_copy else None if size is None else _copy(name, size, "")
    if start is None or duration is None or duration < 0 or work is None or stream in ("", None):
        return None
    return Activity(device, StreamKey(str(stream)), start, duration, work, 0)


def _in_microseconds(activities: list[Activity]) -> list[Activity]:
    """Activities from 0 on, numbered in their order; converters write microseconds or nvprof's nanoseconds."""
    origin = activities[0].start_us if activities else 0.0
    scale = 1e-3 if origin > EPOCH_NS else 1.0
    return [
        replace(a, start_us=(a.start_us - origin) * scale, duration_us=a.duration_us * scale, order=order)
        for order, a in enumerate(activities)
    ]


def _kernel(name: str, fields: Mapping[str, Any]) -> KernelRun | None:
    grid = three(_list_or_text(fields.get("grid", fields.get("gridsize"))))
    block = three(_list_or_text(fields.get("block", fields.get("blocksize"))))
    registers = count(fields.get("registersperthread", fields.get("registers")))
    static, dynamic = count(fields.get("staticsharedmemory")), count(fields.get("dynamicsharedmemory"))
    if grid is None or block is None or registers is None or static is None or dynamic is None:
        return None
    return KernelRun(name, grid, block, registers, static, dynamic)


def _fields(args: Any) -> dict[str, Any]:
    """An event's arguments; of their names only the letters, in lower case."""
    given = args if isinstance(args, dict) else {}
    return {re.sub(r"[^a-z]", "", str(name).lower()): value for name, value in given.items()}


def _list_or_text(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value
