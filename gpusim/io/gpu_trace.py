"""Tables of GPU work in CSV, one line for each kernel, copy and memset.

``nsys stats --report cuda_gpu_trace --format csv`` has units in its header, ``nvprof --print-gpu-trace --csv`` in a row
below it or behind each number. Columns of nsys are read under nvprof's names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusim.common.errors import InputError, one_line
from gpusim.common.numbers import MICROSECONDS
from gpusim.io import source
from gpusim.io.timeline import CopyRun, LaunchedKernel, Product, StreamKey, Timeline
from gpusim.io.values import count, device_of, finite, three, whole

A_GPU_TRACE = "nsys stats --report cuda_gpu_trace --format csv FILE"
OF_NVPROF = "the output of nvprof --print-gpu-trace --csv"
LONGEST_CELL = 200  # characters of a number
_NEEDED_OF_NSYS = ("Start", "Duration", "GrdX", "BlkX", "Strm", "Name")
_NEEDED_OF_NVPROF = ("Start", "Duration", "Grid X", "Block X", "Name")
_EXTENTS = tuple(f"{what} {axis}" for what in ("Grid", "Block") for axis in "XYZ")
_NAMES = {
    **{extent.replace("Grid ", "Grd").replace("Block ", "Blk"): extent for extent in _EXTENTS},
    "Reg/Trd": "Registers Per Thread", "StcSMem": "Static SMem", "DymSMem": "Dynamic SMem", "Bytes": "Size",
    "SrcMemKd": "SrcMemType", "DstMemKd": "DstMemType", "Ctx": "Context", "Strm": "Stream",
}  # fmt: skip
_BYTES_OF_NSYS = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_BYTES_OF_NVPROF = {"B": 1.0, "KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30}  # its kilobyte has 1024
_UNIT_IN_TITLE = re.compile(r"(.*?)\s*\(([A-Za-z]+)\)$")
_NUMBER_WITH_UNIT = re.compile(r"\s*([-+0-9.,eE]+?)\s*([A-Za-z]*)\s*$")

Cells = Mapping[str, str]


def is_of_nsys(line: str) -> bool:
    """Whether a line is the header of nsys's table."""
    return line.lstrip('" ').startswith("Start (") and "GrdX" in line and "Strm" in line


def read(path: Path) -> Timeline:
    """A table of GPU work."""
    found = Timeline()
    others, of_nsys = 0, False
    for line, row, units, of_nsys in _rows(path):
        name = one_line(row["Name"])
        if not name.startswith("[CUDA mem") and not any(row.get(extent) for extent in _EXTENTS):
            others += 1
            continue
        try:
            start = _scaled(row["Start"], units.get("Start", ""), MICROSECONDS)
            duration = _scaled(row["Duration"], units.get("Duration", ""), MICROSECONDS)
            work = _work(name, row, units, _BYTES_OF_NSYS if of_nsys else _BYTES_OF_NVPROF)
        except ValueError as error:
            raise InputError(path, f"line {line}", str(error), A_GPU_TRACE if of_nsys else OF_NVPROF) from None
        if work is None:
            continue
        device, product = device_of(row.get("Device", ""))
        found.products.setdefault(device, Product(None if product is None else one_line(product)))
        stream = StreamKey(
            row.get("Stream") or "0", context=row.get("Context", ""), green_context=row.get("GreenCtx", "")
        )
        found.add(device, stream, start, duration, work, whole(row.get("CorrId")) or None)
    found.leave_out(others, "row", "of no kernel, copy or memset (unified memory, markers)")
    if of_nsys:
        found.remarks.append("Sizes of shared memory are those of the table, which rounds them.")
    return found


def _rows(path: Path) -> Iterator[tuple[int, Cells, Cells, bool]]:
    """Number of the line, values and units by column, and whether nsys wrote the table, without lines before it."""
    names: list[str] = []
    units: dict[str, str] = {}
    expected, of_nsys = OF_NVPROF, False
    for number, line in enumerate(source.lines(path), 1):
        if not line.strip() or line.startswith("==") or (not names and not line.lstrip('" ').startswith("Start")):
            continue
        place = f"line {number}"
        cells = [cell.strip() for cell in source.cells(path, number, line, expected)]
        if not names:
            header, of_nsys = cells, is_of_nsys(line)
            expected = A_GPU_TRACE if of_nsys else OF_NVPROF
            matches = [_UNIT_IN_TITLE.match(cell) for cell in cells]
            titles = [(match[1], match[2]) if match else (cell, "") for match, cell in zip(matches, cells, strict=True)]
            needed = _NEEDED_OF_NSYS if of_nsys else _NEEDED_OF_NVPROF
            missing = [name for name in needed if name not in dict(titles)]
            if missing:
                raise InputError(path, place, f"lacks {', '.join(missing)}", expected)
            names = [_NAMES.get(title, title) for title, _ in titles]
            units = {name: unit for name, (_, unit) in zip(names, titles, strict=True) if unit}
        elif cells == header:
            raise InputError(path, place, "begins another process", "one process per file: nvprof --log-file %p.csv")
        elif not units and cells[0] in MICROSECONDS:
            units = dict(zip(names, cells, strict=False))
        elif len(cells) == len(names):
            yield number, dict(zip(names, cells, strict=True)), units, of_nsys
        elif of_nsys or finite(cells[0].rstrip("smun ")) is not None:  # else the program printed it in between
            raise InputError(path, place, f"has {len(cells)} of {len(names)} fields", "a whole file")
    if not names:
        raise InputError(path, "", "has no header with Start and Duration", expected)


def _work(name: str, row: Cells, units: Cells, scales: Mapping[str, float]) -> LaunchedKernel | CopyRun | None:
    """A kernel, a copy or a memset; None for a copy that no GPU makes."""

    def size(column: str) -> int:
        return round(_scaled(row.get(column) or "0", units.get(column, ""), scales))

    if name.startswith("[CUDA mem"):
        ends = f"{row.get('SrcMemType', '')} {row.get('DstMemType', '')}"
        return CopyRun.of(name, "memset" in name.lower(), size("Size"), ends)
    grid, block = (three([row.get(f"{what} {axis}", "") for axis in "XYZ"]) for what in ("Grid", "Block"))
    if grid is None or block is None:
        raise ValueError("has no grid or block")
    cell = row.get("Registers Per Thread", "")[:LONGEST_CELL]
    registers = count(cell)
    if registers is None:
        raise ValueError(f"has {cell!r} registers"[:80])
    plain = re.sub(r"\[\d+\]$", "", name).rstrip()
    return LaunchedKernel(plain, grid, block, registers, size("Static SMem"), size("Dynamic SMem"))


def _scaled(text: str, unit: str, scales: Mapping[str, float]) -> float:
    """A number in the unit of its column, or in that behind it."""
    match = _NUMBER_WITH_UNIT.match(text[:LONGEST_CELL])
    value = finite(match[1].replace(",", "")) if match else None
    scale = scales.get((match[2] or unit) if match else "")
    if value is None or value < 0 or (scale is None and value > 0):
        raise ValueError(f"has {text!r} in {unit!r}"[:80])
    return value * (scale or 1.0)
