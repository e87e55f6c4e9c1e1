"""The table of `nsys stats --report cuda_gpu_trace --format csv`: one line for each kernel, copy and memset."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.numbers import MICROSECONDS
from gpusim.io import source
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
    whole,
)

A_GPU_TRACE = "nsys stats --report cuda_gpu_trace --format csv FILE"
NEEDED = ("Start", "Duration", "GrdX", "BlkX", "Strm", "Name")
_UNIT = re.compile(r"(.*?)\s*\(([A-Za-z]+)\)$")
_BYTES = {"B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}

Cells = Mapping[str, str]


def is_table(line: str) -> bool:
    """Whether a line is the header of such a table."""
    return line.lstrip('" ').startswith("Start (") and "GrdX" in line and "Strm" in line


def read(path: Path) -> Timeline:
    """A table of GPU work.

    Raises:
        InputError: columns that are needed are missing, a half-written row, or values that are none.
    """
    found = Timeline()
    for number, row, units in _rows(path):
        try:
            start = _scaled(row["Start"], units["Start"], MICROSECONDS)
            duration = _scaled(row["Duration"], units["Duration"], MICROSECONDS)
            work = _work(row, units)
        except ValueError as error:
            raise InputError(path, f"line {number}", str(error), A_GPU_TRACE) from None
        if work is None:
            continue
        device, name = device_of(row.get("Device", ""))
        found.products.setdefault(device, Product(None if name is None else one_line(name)))
        stream = StreamKey(row["Strm"] or "0", context=row.get("Ctx", ""), green_context=row.get("GreenCtx", ""))
        order = whole(row.get("CorrId")) or len(found.activities)
        found.activities.append(Activity(device, stream, start, duration, work, order))
    found.remarks.append("Sizes of shared memory are those of the table, which rounds them.")
    return found


def _rows(path: Path) -> Iterator[tuple[int, Cells, Cells]]:
    """Number of the line, values by column and units by column; what nsys prints before the table is left out."""
    names: list[str] = []
    units: dict[str, str] = {}
    for number, line in enumerate(source.lines(path), 1):
        if not line.strip() or (not names and not is_table(line)):
            continue
        cells = [cell.strip() for cell in source.cells(path, number, line, A_GPU_TRACE)]
        if not names:
            matches = [_UNIT.match(cell) for cell in cells]
            names = [match[1] if match else cell for match, cell in zip(matches, cells, strict=True)]
            units = {match[1]: match[2] for match in matches if match}
            missing = [name for name in NEEDED if name not in names]
            if missing:
                raise InputError(path, f"line {number}", f"lacks {', '.join(missing)}", A_GPU_TRACE)
        elif len(cells) == len(names):
            yield number, dict(zip(names, cells, strict=True)), units
        else:
            raise InputError(path, f"line {number}", f"has {len(cells)} of {len(names)} fields", "a whole file")
    if not names:
        raise InputError(path, "", "has no header with Start and GrdX", A_GPU_TRACE)


def _work(row: Cells, units: Cells) -> KernelRun | CopyRun | None:
    """A kernel, a copy or a memset; None for a copy that no GPU makes."""
    name = one_line(row["Name"])
    if name.startswith("[CUDA mem"):
        size = round(_scaled(row.get("Bytes") or "0", units.get("Bytes", "B"), _BYTES))
        return copy_run(name, "memset" in name, size, f"{row.get('SrcMemKd', '')} {row.get('DstMemKd', '')}")
    grid, block = (three([row.get(f"{what}{axis}", "") for axis in "XYZ"]) for what in ("Grd", "Blk"))
    registers = count(row.get("Reg/Trd", ""))
    if grid is None or block is None or registers is None:
        raise ValueError(f"{quote(name)} has no grid, block or registers")
    static, dynamic = (
        round(_scaled(row.get(column) or "0", units.get(column, "B"), _BYTES)) for column in ("StcSMem", "DymSMem")
    )
    return KernelRun(name, grid, block, registers, static, dynamic)


def _scaled(text: str, unit: str, scales: Mapping[str, float]) -> float:
    value = finite(text.replace(",", ""))
    if value is None or value < 0.0 or unit not in scales:
        raise ValueError(f"has {quote(text)} in {quote(unit)}")
    return value * scales[unit]
