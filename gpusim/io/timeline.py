"""A timeline of GPU activity, as profilers export it, and its conversion to a trace.

A reader of a format returns a `Timeline`: kernels, copies and memsets with their stream and times, and the host calls
that order them. `as_trace` decides what becomes a stream, an operation and a dependency; docs/importing.md states it.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.numbers import finite_number, whole_number
from gpusim.hardware.gpu import GPU
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix
from gpusim.trace.operations import Copy, Kernel, Stream

Direction = Literal["h2d", "d2h", "d2d", "p2p"]

LONGEST_NAME = 2000  # characters of a kernel's name that are kept
LEAST_DURATION_US = 0.5  # of a kernel whose duration was rounded down to 0
CLOCK_US = 1.0  # recorded times are that exact: older profilers write whole microseconds
MOST_OPERATIONS = 2_000_000

_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_./:-]+")
_BETWEEN_BRACKETS_AND_COMMAS = re.compile(r"""[^\s,;x()\[\]{}'"]+""")
_NOT_IN_STREAMS = re.compile(r"[^A-Za-z0-9_.-]+")


class StreamKey(NamedTuple):
    """What identifies a stream of a GPU; parts that a format does not give are empty."""

    number: str
    process: str = ""
    context: str = ""
    green_context: str = ""


@dataclass(frozen=True, slots=True)
class KernelRun:
    """A kernel as launched; shared memory in bytes a block. A format that knows only the sum gives it as dynamic."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers_per_thread: int
    static_shared_memory_bytes: int
    dynamic_shared_memory_bytes: int
    mix: Mix | None = None


@dataclass(frozen=True, slots=True)
class CopyRun:
    """A memory copy, or a memset: a copy on the device of the bytes it sets."""

    what: Literal["memcpy", "memset"]
    direction: Direction
    bytes: int


@dataclass(frozen=True, slots=True)
class Activity:
    """One thing that a GPU did.

    Attributes:
        device: index of the GPU.
        stream: its stream.
        start_us: when it started, on any clock.
        duration_us: how long it took.
        work: what it was.
        order: grows with the launches of a process (the correlation id, where there is one).
        label: what the host called it for, the beginning of the operation's id; may be empty.
    """

    device: int
    stream: StreamKey
    start_us: float
    duration_us: float
    work: KernelRun | CopyRun
    order: int
    label: str = ""

    @property
    def end_us(self) -> float:
        """When it ended."""
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream that waits for an event of another: what was launched on `source` before `recorded`."""

    stream: StreamKey
    order: int
    source: StreamKey
    recorded: int


@dataclass(frozen=True, slots=True)
class HostSync:
    """A host thread that waits for a stream, or for all (None), before it launches on.

    Attributes:
        thread: that waits.
        order: of the call.
        stream: whose work is waited for.
        recorded: what was launched before it is waited for: the record of an event, else the call's own order.
    """

    thread: str
    order: int
    stream: StreamKey | None
    recorded: int


@dataclass(frozen=True, slots=True)
class Product:
    """What a profile says of a GPU; None where it does not."""

    name: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None


@dataclass(slots=True)
class Timeline:
    """A profile as read.

    Attributes:
        activities: in any order.
        waits: of streams for events.
        syncs: of host threads.
        threads: the host thread of each launch, by process and order.
        products: the GPUs, by index.
        remarks: what a reader left out or took for granted, a sentence each.
    """

    activities: list[Activity] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    syncs: list[HostSync] = field(default_factory=list)
    threads: dict[tuple[str, int], str] = field(default_factory=dict)
    products: dict[int, Product] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def kernels_by_device(self) -> dict[int, int]:
        """How many kernels each GPU ran, by index."""
        return dict(sorted(Counter(a.device for a in self.activities if isinstance(a.work, KernelRun)).items()))

    def on(self, device: int) -> Timeline:
        """What one GPU did, in the order in which it started."""
        chosen = [a for a in self.activities if a.device == device]
        chosen.sort(key=_position)
        return replace(self, activities=chosen)


def as_trace(timeline: Timeline, path: Path, name: str, gpu: GPU, notes: Sequence[str]) -> Trace:
    """The trace of a timeline of one GPU, its activities in the order in which they started.

    Args:
        timeline: as `Timeline.on` gives it.
        path: the profile, for errors.
        name: of the trace.
        gpu: that the profile was recorded on.
        notes: sentences for the trace's notes, before the timeline's remarks.

    Raises:
        InputError: no kernel, too many operations, or a kernel that no trace can hold.
    """
    activities = timeline.activities
    if not any(isinstance(a.work, KernelRun) for a in activities):
        raise InputError(path, "", "holds no kernels", "a profile of a program that ran kernels on the GPU")
    if len(activities) > MOST_OPERATIONS:
        raise InputError(path, "", f"holds {len(activities)} operations", f"at most {MOST_OPERATIONS}")
    remarks = [*notes, *timeline.remarks]
    ids = _ids(activities)
    dependencies, contradicted = _dependencies(timeline)
    builder = _Builder(path)
    streams: dict[StreamKey, list[Kernel | Copy]] = {}
    for n, activity in enumerate(activities):
        waits = tuple(ids[before] for before in dependencies.get(n, ()))
        streams.setdefault(activity.stream, []).append(builder.operation(activity, ids[n], waits))
    remarks += _remarks(activities, contradicted, builder.rounded)
    names = _stream_names(streams)
    try:
        return Trace(
            version=1,
            name=_plain(name)[:200] or "imported",
            device=gpu.name,
            notes="\n".join(remarks)[: 10**5],
            streams=tuple(Stream(name=names[key], operations=tuple(ops)) for key, ops in streams.items()),
        )
    except InputError as fault:
        raise InputError(path, fault.place, fault.problem, fault.expected) from None


class _Builder:
    """Makes operations; equal launches become one object."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rounded = 0  # kernels whose recorded duration was 0
        self._launches: dict[tuple[Any, ...], KernelLaunch] = {}

    def operation(self, activity: Activity, id: str, waits: tuple[str, ...]) -> Kernel | Copy:
        work = activity.work
        try:
            if isinstance(work, KernelRun):
                launch = self._launch(work, activity.duration_us)
                return Kernel(id=id, kind="kernel", depends_on=waits, kernel=launch)
            return Copy(
                id=id,
                kind="copy",
                depends_on=waits,
                direction=work.direction,
                bytes=work.bytes,
                duration_us=_microseconds(activity.duration_us),
            )
        except InputError as fault:
            name = work.name if isinstance(work, KernelRun) else work.what
            problem = f"{fault.place} {fault.problem}"
            raise InputError(self.path, f"{id} ({quote(name)})", problem, fault.expected) from None

    def _launch(self, work: KernelRun, duration_us: float) -> KernelLaunch:
        duration_us = _microseconds(duration_us)
        if duration_us <= 0.0:
            duration_us = LEAST_DURATION_US
            self.rounded += 1
        key = (
            work.name,
            work.grid,
            work.block,
            work.registers_per_thread,
            work.static_shared_memory_bytes,
            work.dynamic_shared_memory_bytes,
            duration_us,
            work.mix,
        )
        known = self._launches.get(key)
        if known is None:
            known = self._launches[key] = KernelLaunch(
                name=_plain(work.name)[:LONGEST_NAME] or "unnamed",
                grid=work.grid,
                block=work.block,
                registers_per_thread=work.registers_per_thread,
                static_shared_memory_bytes=work.static_shared_memory_bytes,
                dynamic_shared_memory_bytes=work.dynamic_shared_memory_bytes,
                duration_us=duration_us,
                mix=work.mix,
            )
        return known


# ---- values as profilers write them


def finite(value: Any) -> float | None:
    """A finite number, given as one or as text in plain digits such as "12.5"; None for anything else."""
    if isinstance(value, bool | bytes):
        return None
    try:
        number = finite_number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def whole(value: Any) -> int | None:
    """A whole number, given as `finite` takes it; None for anything else."""
    if type(value) is int:
        return value
    if isinstance(value, str):
        with suppress(ValueError):
            return whole_number(value)  # a float keeps 15 digits
    number = finite(value)
    return None if number is None or number != int(number) else int(number)


def count(value: Any) -> int | None:
    """A whole number of at least 0, and 0 for nothing or an empty text; None for anything else."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return 0
    number = whole(value)
    return None if number is None or number < 0 else number


def three(value: Any) -> tuple[int, int, int] | None:
    """Three extents of at least 1 from a list or a text such as `[3136,4,1]`; None where it holds no such extents."""
    parts = _BETWEEN_BRACKETS_AND_COMMAS.findall(value) if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or len(parts) != 3:
        return None
    numbers = [whole(part) for part in parts]
    x, y, z = numbers
    return (x, y, z) if x and y and z and min(x, y, z) > 0 else None


_KINDS: tuple[tuple[str, Direction], ...] = (
    (r"h(?:ost)?\W*to\W*(?:d|a)|htod|htoa", "h2d"),
    (r"(?:device|array|d|a)\W*to\W*h|dtoh|atoh", "d2h"),
    (r"p(?:eer)?\W*to\W*p|ptop", "p2p"),
)


def copy_direction(name: str) -> Direction | None:
    """The direction that the name of a copy tells; None for a copy that no GPU makes (host to host)."""
    lower = name.lower()
    if re.search(r"htoh|host\W*to\W*host", lower):
        return None
    return next((direction for pattern, direction in _KINDS if re.search(pattern, lower)), "d2d")


def copy_run(name: str, is_memset: bool, size_bytes: int) -> CopyRun | None:
    """A copy, by the direction that its name tells, or a memset; None for a copy that no GPU makes."""
    if is_memset:
        return CopyRun("memset", "d2d", size_bytes)
    direction = copy_direction(name)
    return None if direction is None else CopyRun("memcpy", direction, size_bytes)


def _microseconds(value: float) -> float:
    return round(value, 3)


def _plain(text: str) -> str:
    return one_line(text).strip()


# ---- names


def _stream_names(keys: Iterable[StreamKey]) -> dict[StreamKey, str]:
    """A name a stream: `stream7`, with the process, context and green context before it where they differ."""
    keys = list(keys)
    parts = {part: len({getattr(key, part) for key in keys}) > 1 for part in ("process", "context", "green_context")}
    names: dict[StreamKey, str] = {}
    taken: set[str] = set()
    for key in keys:
        before = [
            f"{title}{_NOT_IN_STREAMS.sub('_', getattr(key, part))}"
            for part, title in (("process", "process"), ("context", "context"), ("green_context", "green"))
            if parts[part] and getattr(key, part) not in ("", "0")
        ]
        name = "/".join([*before, f"stream{_NOT_IN_STREAMS.sub('_', key.number)}"])[:180]
        unique, n = name, 1
        while unique in taken:
            n += 1
            unique = f"{name}.{n}"
        taken.add(unique)
        names[key] = unique
    return names


def _ids(activities: Sequence[Activity]) -> list[str]:
    """An id an activity: its label, and a number that no other of the label has."""
    seen: Counter[str] = Counter()
    ids = []
    for activity in activities:
        work = activity.work
        plain = "kernel" if isinstance(work, KernelRun) else work.what
        label = _NOT_IN_IDS.sub("_", activity.label)[:150] or plain
        ids.append(f"{label}/{seen[label]}")
        seen[label] += 1
    return ids


# ---- order


def _position(activity: Activity) -> tuple[float, int]:
    return (activity.start_us, activity.order)


def _dependencies(timeline: Timeline) -> tuple[dict[int, list[int]], int]:
    """For each activity the activities of other streams that it waits for; and how many waits the times contradict.

    The last activity launched on the source before the event was recorded is waited for by the first one that the
    waiting stream launched after. A host that waits orders what its thread launches after by what it waited for: all
    of a stream that was launched before the call or, for an event, before the record.
    A wait for what ended later than the waiter started, in the recording, cannot have been one and is left out.
    """
    activities = timeline.activities
    launched: dict[StreamKey, list[tuple[int, int]]] = defaultdict(list)  # order, number of the activity
    by_thread: dict[tuple[StreamKey, str], list[tuple[int, int]]] = defaultdict(list)
    for n, activity in enumerate(activities):
        launched[activity.stream].append((activity.order, n))
        thread = timeline.threads.get((activity.stream.process, activity.order))
        if thread is not None:
            by_thread[activity.stream, thread].append((activity.order, n))
    for queue in (*launched.values(), *by_thread.values()):
        queue.sort()
    found: set[tuple[int, int]] = set()  # waiter, waited for
    for wait in timeline.waits:
        if wait.source != wait.stream:
            found |= _edge(launched.get(wait.stream, []), wait.order, launched.get(wait.source, []), wait.recorded)
    if len(launched) > 1:
        for sync in timeline.syncs:
            for source in launched if sync.stream is None else (sync.stream,):
                for (stream, thread), queue in by_thread.items():
                    if thread == sync.thread and stream != source and stream.process == source.process:
                        found |= _edge(queue, sync.order, launched.get(source, []), sync.recorded)
    return _needed(activities, found)


def _edge(queue: list[tuple[int, int]], after: int, source: list[tuple[int, int]], before: int) -> set[tuple[int, int]]:
    """The first of a queue launched after with the last of the source launched before, where both are there."""
    waiter = bisect_right(queue, after, key=itemgetter(0))
    waited = bisect_left(source, before, key=itemgetter(0)) - 1
    return {(queue[waiter][1], source[waited][1])} if waiter < len(queue) and waited >= 0 else set()


def _needed(activities: Sequence[Activity], edges: Iterable[tuple[int, int]]) -> tuple[dict[int, list[int]], int]:
    """Edges less those that the recorded times contradict and those that others between the streams imply."""
    needed: dict[int, list[int]] = defaultdict(list)
    latest: dict[tuple[StreamKey, StreamKey], int] = {}
    contradicted = 0
    for waiter, waited in sorted(edges, key=lambda edge: (edge[0], -edge[1])):
        if waited >= waiter or activities[waited].end_us > activities[waiter].start_us + CLOCK_US:
            contradicted += 1
            continue
        pair = (activities[waiter].stream, activities[waited].stream)
        if latest.get(pair, -1) < waited:
            latest[pair] = waited
            needed[waiter].append(waited)
    return dict(needed), contradicted


# ---- what the notes say


def _remarks(activities: Sequence[Activity], contradicted: int, rounded: int) -> list[str]:
    kernels = [a for a in activities if isinstance(a.work, KernelRun)]
    unknown = sum(isinstance(a.work, KernelRun) and a.work.mix is None for a in kernels)
    remarks = []
    if unknown:
        remarks.append(
            f"{unknown} of {len(kernels)} kernels have no counters: what their blocks ask of the GPU is estimated."
        )
    beside = _beside_others(kernels)
    if beside:
        remarks.append(f"{beside} kernels ran beside kernels of other streams: their durations include that.")
    if rounded:
        remarks.append(f"{rounded} kernels were recorded with 0 us and are taken as {LEAST_DURATION_US} us.")
    if contradicted:
        remarks.append(f"{contradicted} waits between streams contradict the recorded times and are left out.")
    remarks.append("Host time and gaps between kernels are left out.")
    return remarks


def _beside_others(kernels: Sequence[Activity]) -> int:
    """How many kernels overlap with a kernel of another stream by more than the clock is exact.

    Kernels come in the order in which they started, so one sweep finds those that began beside another, and one from
    the end those that another began beside.
    """
    kernels = [kernel for kernel in kernels if kernel.duration_us > CLOCK_US]
    beside = set()
    latest = second = (-math.inf, StreamKey(""))  # the last ends so far, of two streams
    for n, kernel in enumerate(kernels):
        end_us = second[0] if latest[1] == kernel.stream else latest[0]
        if min(end_us, kernel.end_us) - kernel.start_us > CLOCK_US:
            beside.add(n)
        own = (kernel.end_us, kernel.stream)
        if latest[1] == kernel.stream:
            latest = max(latest, own)
        elif own > latest:
            latest, second = own, latest
        else:
            second = max(second, own)
    next_us = math.inf  # when the next kernel of another stream starts
    for n in range(len(kernels) - 2, -1, -1):
        kernel, following = kernels[n], kernels[n + 1]
        if following.stream != kernel.stream:
            next_us = following.start_us
        if kernel.end_us - next_us > CLOCK_US:
            beside.add(n)
    return len(beside)


def with_mixes(timeline: Timeline, mixes: Mapping[int, Mix | None]) -> Timeline:
    """The timeline with demands for some of its kernels, by number."""
    activities = list(timeline.activities)
    for n, mix in mixes.items():
        work = activities[n].work
        if isinstance(work, KernelRun):
            activities[n] = replace(activities[n], work=replace(work, mix=mix))
    return replace(timeline, activities=activities)
