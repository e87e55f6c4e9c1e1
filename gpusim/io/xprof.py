"""The profiler of JAX and TensorFlow (XProf): ``.xplane.pb``, and the ``trace.json.gz`` that is made of it.

Both hold one row of events for each stream of a GPU, whose details are texts such as ``regs:32 static_shared:0
dynamic_shared:0 grid:8,1,1 block:256,1,1``. The messages of the first are those of OpenXLA's xplane.proto [M].
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from struct import unpack
from typing import Any, NamedTuple

from gpusim.common.errors import InputError, one_line
from gpusim.io import chrome, source, wire
from gpusim.io.timeline import (
    Activity,
    CopyRun,
    KernelRun,
    Product,
    Range,
    StreamKey,
    Timeline,
    copy_run,
    count,
    finite,
    three,
    whole,
)

A_PROFILE = "an .xplane.pb or a trace.json.gz of jax.profiler or tf.profiler, of an NVIDIA GPU"
ENDINGS = (".pb", ".xplane")  # of a file, one after the other
_PLANES, _NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _STATS_OF_PLANE = 1, 2, 3, 4, 5, 6  # numbers of fields
_TIMESTAMP_NS, _EVENTS = 3, 4
_METADATA, _OFFSET_PS, _DURATION_PS, _STATS_OF_EVENT = 1, 2, 3, 4
_DOUBLE, _SIGNED, _TEXT, _REFERENCE = 2, 4, 5, 7
_PLANE = re.compile(rb"/(?:host|device):")
_GPU = re.compile(r"/device:GPU:(\d+)")
_STREAM = re.compile(r"Stream #(\d+)")
_DETAIL = re.compile(r"(\w+):(\S+)")
_PYTHON_CALL = "$"  # what the profiler puts before the name of one


class _Event(NamedTuple):
    plane: str  # such as /device:GPU:0
    line: str  # the row: of a GPU Stream #7(Compute), of the host a thread
    name: str
    start_us: float
    duration_us: float
    args: Mapping[str, Any]


def is_xplane(head: bytes) -> bool:
    """Whether a file begins as an .xplane.pb: its first plane, and within it the name of one."""
    return head[:1] == b"\n" and b"\x12" in head[:24] and _PLANE.search(head) is not None


def is_json(text: bytes) -> bool:
    """Whether the beginning of a JSON file is of this profiler: rows of a process that is a GPU or its host."""
    return re.search(rb'"name"\s*:\s*"/(?:host:CPU|device:GPU:\d+)', text) is not None


def read(path: Path) -> Timeline:
    """A profile of JAX or TensorFlow."""
    found = Timeline()
    left_out = 0
    events = _of_xplane(path, found) if is_xplane(source.head(path)) else _of_json(path)
    for event in events:
        gpu = _GPU.match(event.plane)
        if gpu is None:
            _host(event, found)
        elif (stream := _STREAM.match(event.line)) is not None:
            work = _work(path, event)
            if work is None:
                left_out += 1
                continue
            order = whole(event.args.get("correlation_id"))
            order = len(found.activities) if order is None else order
            key = StreamKey(stream[1], context=str(event.args.get("context_id", "")).removeprefix("$$"))
            found.activities.append(
                Activity(int(gpu[1]), key, event.start_us, event.duration_us, work, order, _label(event, order))
            )
    if not found.kernels_by_device():
        raise InputError(path, "", "holds no kernels", A_PROFILE)
    if left_out:
        found.remarks.append(f"{left_out} events of streams without a grid or a size are left out.")
    return found


def _work(path: Path, event: _Event) -> KernelRun | CopyRun | None:
    details = {name: str(event.args.get(f"{name}_details", "")) for name in ("kernel", "memcpy", "memset")}
    values = dict(_DETAIL.findall(" ".join(details.values()).replace("\n", " ")))
    if "private_mem" in values:
        raise source.of_amd(path)
    if details["memcpy"] or details["memset"]:
        ends = f"{values.get('kind_src', '')} {values.get('kind_dst', '')}"
        name = event.name.replace("2", "to")  # MemcpyH2D
        return copy_run(name, bool(details["memset"]), count(values.get("size")) or 0, ends)
    grid, block, registers = three(values.get("grid")), three(values.get("block")), count(values.get("regs"))
    if grid is None or block is None or registers is None:
        return None
    static, dynamic = count(values.get("static_shared")) or 0, count(values.get("dynamic_shared", values.get("shm")))
    return KernelRun(one_line(event.name), grid, block, registers, static, dynamic or 0)


def _label(event: _Event, order: int) -> str:
    """The operator: where in the program it is, else the name that XLA gave it."""
    names = (str(event.args.get(name, "")) for name in ("name", "hlo_op", "tf_op"))
    found = next((one for one in names if one and not one.startswith("XlaModule")), "")
    return f"{found}/{order}" if found else ""


def _host(event: _Event, found: Timeline) -> None:
    """Calls that launched work, steps, and annotations."""
    order = whole(event.args.get("correlation_id"))
    if order is not None:
        found.threads["", order] = event.line
        found.launched_us["", order] = event.start_us
    elif not event.name.startswith(_PYTHON_CALL):
        step = whole(event.args.get("step_num"))
        names = (one_line(event.name), *([] if step is None else [f"ProfilerStep#{step}"]))
        found.ranges += [Range(name, event.start_us, event.start_us + event.duration_us) for name in names]


# ---- JSON


def _of_json(path: Path) -> Iterator[_Event]:
    """The events of a trace.json; it names its processes and threads before or after these."""
    planes: dict[Any, str] = {}
    lines: dict[Any, str] = {}
    events: list[tuple[str, str, str, float, float, dict[str, Any]]] = []
    for member, event in chrome.members(path):
        if member != chrome.EVENTS or not isinstance(event, dict):
            continue
        args = event["args"] if isinstance(event.get("args"), dict) else {}
        pid, tid = str(event.get("pid")), str(event.get("tid"))
        if event.get("ph") == "M" and event.get("name") == "process_name":
            planes[pid] = str(args.get("name", ""))
        elif event.get("ph") == "M" and event.get("name") == "thread_name":
            lines[pid, tid] = str(args.get("name", ""))
        elif event.get("ph") == "X":
            start, duration = finite(event.get("ts")), finite(event.get("dur", 0))
            if start is not None and duration is not None and duration >= 0.0:
                events.append((pid, tid, str(event.get("name", "")), start, duration, args))
    for pid, tid, name, start, duration, args in events:
        yield _Event(planes.get(pid, ""), lines.get((pid, tid), ""), name, start, duration, args)


# ---- protobuf


def _of_xplane(path: Path, found: Timeline) -> Iterator[_Event]:
    """The events of an .xplane.pb; what it tells of the GPUs goes to the timeline."""
    try:
        for number, plane in wire.fields(b"".join(source.chunks(path))):
            if number == _PLANES:
                yield from _plane(path, wire.as_bytes(plane), found)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(path, "", f"cannot be read ({error})", A_PROFILE) from None


def _plane(path: Path, content: bytes, found: Timeline) -> Iterator[_Event]:
    parts: dict[int, list[bytes]] = defaultdict(list)
    for number, value in wire.fields(content):
        if isinstance(value, bytes):
            parts[number].append(value)
    name = b"".join(parts[_NAME][:1]).decode(errors="replace")
    event_names, stat_names = _names(parts[_EVENT_NAMES]), _names(parts[_STAT_NAMES])
    told = _stats(parts[_STATS_OF_PLANE], stat_names)
    gpu = _GPU.match(name)
    if gpu is not None and parts[_LINES]:
        if "amd" in str(told.get("device_vendor", "")).lower():
            raise source.of_amd(path)
        major, minor = whole(told.get("compute_cap_major")), whole(told.get("compute_cap_minor"))
        capability = None if major is None or minor is None else f"{major}.{minor}"
        sms = whole(told.get("core_count")) or None
        found.products[int(gpu[1])] = Product(None, sms, whole(told.get("memory_size")), capability)
    for line in parts[_LINES]:
        fields = list(wire.fields(line))
        title = next((wire.as_bytes(value).decode(errors="replace") for n, value in fields if n == _NAME), "")
        start_ns = next((wire.as_number(value) for n, value in fields if n == _TIMESTAMP_NS), 0)
        for event in (wire.as_bytes(value) for n, value in fields if n == _EVENTS):
            of_event = list(wire.fields(event))
            numbers = {n: value for n, value in of_event if isinstance(value, int)}
            stats = [wire.as_bytes(value) for n, value in of_event if n == _STATS_OF_EVENT]
            start_us = start_ns / 1e3 + numbers.get(_OFFSET_PS, 0) / 1e6
            duration_us = numbers.get(_DURATION_PS, 0) / 1e6
            called = event_names.get(numbers.get(_METADATA, 0), "")
            yield _Event(name, title, called, start_us, duration_us, _stats(stats, stat_names))


def _names(entries: list[bytes]) -> dict[int, str]:
    """The names of a map from numbers to metadata, whose first field is its number and second its name."""
    found = {}
    for entry in entries:
        metadata = dict(wire.fields(wire.as_bytes(dict(wire.fields(entry)).get(2, b""))))
        found[wire.as_number(metadata.get(1, 0))] = wire.as_bytes(metadata.get(2, b"")).decode(errors="replace")
    return found


def _stats(entries: list[bytes], names: Mapping[int, str]) -> dict[str, Any]:
    """Values by name: a number, a text, or a text that stands among the names."""
    found: dict[str, Any] = {}
    for entry in entries:
        stat = dict(wire.fields(entry))
        name = names.get(wire.as_number(stat.pop(1, 0)), "")
        for kind, value in stat.items():
            if kind == _REFERENCE:
                found[name] = names.get(wire.as_number(value), "")
            elif kind == _DOUBLE:
                found[name] = unpack("<d", wire.as_bytes(value))[0]
            elif kind == _TEXT:
                found[name] = wire.as_bytes(value).decode(errors="replace")
            elif kind == _SIGNED and isinstance(value, int):
                found[name] = value - (1 << 64) if value >> 63 else value
            elif isinstance(value, int):
                found[name] = value
    return found
