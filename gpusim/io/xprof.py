"""The profiler of JAX and TensorFlow (XProf): ``.xplane.pb``, and the ``trace.json.gz`` that is made of it.

Both hold one row of events for each stream of a GPU, whose details are texts such as ``regs:32 static_shared:0
dynamic_shared:0 grid:8,1,1 block:256,1,1``. The messages of the first are those of OpenXLA's xplane.proto [M].
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpusim.common.errors import InputError, one_line
from gpusim.io import chrome, source
from gpusim.io.timeline import CopyRun, LaunchedKernel, Product, Range, StreamKey, Timeline
from gpusim.io.values import count, finite, whole

A_PROFILE = "an .xplane.pb or a trace.json.gz of jax.profiler or tf.profiler, of an NVIDIA GPU"
ENDINGS = (".pb", ".xplane")  # of a file, one after the other
_FIELDS = {  # of the messages: name, number and type of each, with a star where there are several
    "Space": "planes 1 Plane*",
    "Plane": "name 2 bytes, lines 3 Line*, event_metadata 4 Entry*, stat_metadata 5 Entry*, stats 6 Stat*",
    "Line": "name 2 bytes, timestamp_ns 3 int64, events 4 Event*",
    "Event": "metadata_id 1 int64, offset_ps 2 int64, duration_ps 3 int64, stats 4 Stat*",
    "Stat": "metadata_id 1 int64, double 2 double, uint64 3 uint64, int64 4 int64, text 5 bytes, reference 7 uint64",
    "Entry": "value 2 Metadata",
    "Metadata": "id 1 int64, name 2 bytes",
}
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
            found.add(int(gpu[1]), key, event.start_us, event.duration_us, work, order, _label(event, order))
    if not found.kernels_by_device():
        raise InputError(path, "", "holds no kernels", A_PROFILE)
    found.leave_out(left_out, "event", "of streams without a grid or a size")
    return found


def _work(path: Path, event: _Event) -> LaunchedKernel | CopyRun | None:
    details = {name: str(event.args.get(f"{name}_details", "")) for name in ("kernel", "memcpy", "memset")}
    values = dict(_DETAIL.findall(" ".join(details.values()).replace("\n", " ")))
    if "private_mem" in values:
        raise source.of_amd(path)
    if details["memcpy"] or details["memset"]:
        ends = f"{values.get('kind_src', '')} {values.get('kind_dst', '')}"
        name = event.name.replace("2", "to")  # MemcpyH2D
        return CopyRun.of(name, bool(details["memset"]), count(values.get("size")) or 0, ends)
    grid, block, registers = (values.get(key) for key in ("grid", "block", "regs"))
    sizes = values.get("static_shared"), values.get("dynamic_shared", values.get("shm"))
    static, dynamic = (count(size) or 0 for size in sizes)
    return LaunchedKernel.of(one_line(event.name), grid, block, registers, static, dynamic)


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
    """The events of a trace.json; the names of its processes and threads may come before or after them."""
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


def messages() -> Mapping[str, type[Any]]:
    """The classes of the messages of `_FIELDS`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message_factory import GetMessages

    file = FileDescriptorProto(name="gpusim/xplane.proto", package="gpusim")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind in map(str.split, fields.split(", ")):
            one = message.field.add(name=field, number=int(number))
            one.label = one.LABEL_REPEATED if kind.endswith("*") else one.LABEL_OPTIONAL
            if kind.islower():
                one.type = one.Type.Value(f"TYPE_{kind.upper()}")
            else:
                one.type_name = f".gpusim.{kind.removesuffix('*')}"
    return {name.rpartition(".")[2]: made for name, made in GetMessages([file]).items()}


def _of_xplane(path: Path, found: Timeline) -> Iterator[_Event]:
    """The events of an .xplane.pb; what it tells of the GPUs goes to the timeline."""
    from google.protobuf.message import DecodeError

    space = messages()["Space"]()
    try:
        space.ParseFromString(b"".join(source.chunks(path)))
    except DecodeError:
        raise InputError(path, "", "cannot be read (it is no protobuf message, or is cut short)", A_PROFILE) from None
    for plane in space.planes:
        yield from _plane(path, plane, found)


def _plane(path: Path, plane: Any, found: Timeline) -> Iterator[_Event]:
    name = _text(plane.name)
    event_names, stat_names = (
        {entry.value.id: _text(entry.value.name) for entry in entries}
        for entries in (plane.event_metadata, plane.stat_metadata)
    )
    told = _stats(plane.stats, stat_names)
    gpu = _GPU.match(name)
    if gpu is not None and plane.lines:
        if "amd" in str(told.get("device_vendor", "")).lower():
            raise source.of_amd(path)
        names = ("memory_size", "compute_cap_major", "compute_cap_minor")
        found.products[int(gpu[1])] = Product.of(None, whole(told.get("core_count")) or None, *map(told.get, names))
    for line in plane.lines:
        for event in line.events:
            start_us = line.timestamp_ns / 1e3 + event.offset_ps / 1e6
            called = event_names.get(event.metadata_id, "")
            stats = _stats(event.stats, stat_names)
            yield _Event(name, _text(line.name), called, start_us, event.duration_ps / 1e6, stats)


def _stats(stats: Iterable[Any], names: Mapping[int, str]) -> dict[str, Any]:
    """Values by name: a number, a text, or a text that stands among the names."""
    found: dict[str, Any] = {}
    for stat in stats:
        for field, value in stat.ListFields():
            if field.name == "reference":
                value = names.get(value, "")
            if field.name != "metadata_id":
                found[names.get(stat.metadata_id, "")] = _text(value) if isinstance(value, bytes) else value
    return found


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
