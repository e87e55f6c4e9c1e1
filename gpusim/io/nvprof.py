"""Profiles of nvprof in Chrome's form; `gpusim.io.gpu_trace` reads its tables."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, one_line
from gpusim.io import chrome
from gpusim.io.timeline import Activity, CopyRun, LaunchedKernel, Product, StreamKey, Timeline
from gpusim.io.values import finite

EPOCH_NS = 1e17  # a time of day above this is in nanoseconds (the year 5138 in microseconds)

_PROCESS = re.compile(r"\[(\d+):(\d+)\]\s*(.*)")  # [device:context] Tesla V100-SXM2-16GB
_ROWS_OF_ALL_GPUS = {"", "Overview", "Compute"}


def read(path: Path) -> Timeline:
    """A profile of nvprof in Chrome's form, as converters write it: a kernel may be in several rows of the picture."""
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
    found.leave_out(lost, "row", "of copies or kernels without a usable stream, grid, size or time")
    return found


def _activity(
    event: Mapping[str, Any], name: str, fields: Mapping[str, Any], is_copy: bool, device: int
) -> Activity | None:
    """One event in the file's own unit of time; None where something of it is missing."""
    start, duration = finite(event.get("ts")), finite(event.get("dur"))
    stream = fields.get("streamid", fields.get("stream", ""))
    work = CopyRun.of(name, "memset" in name.lower(), fields.get("bytes")) if is_copy else _kernel(name, fields)
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


def _kernel(name: str, fields: Mapping[str, Any]) -> LaunchedKernel | None:
    grid = _list_or_text(fields.get("grid", fields.get("gridsize")))
    block = _list_or_text(fields.get("block", fields.get("blocksize")))
    registers = fields.get("registersperthread", fields.get("registers"))
    sizes = fields.get("staticsharedmemory"), fields.get("dynamicsharedmemory")
    return LaunchedKernel.of(name, grid, block, registers, *sizes)


def _fields(args: Any) -> dict[str, Any]:
    """An event's arguments; of their names only the letters, in lower case."""
    given = args if isinstance(args, dict) else {}
    return {re.sub(r"[^a-z]", "", str(name).lower()): value for name, value in given.items()}


def _list_or_text(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value
