"""From a timeline to a trace: streams, operations, dependencies, names and notes, as docs/importing.md states."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.common.errors import InputError, faults_of, one_line, quote
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU
from gpusim.io import Order
from gpusim.io.order import dependencies, stream_order
from gpusim.io.timeline import CLOCK_US, Activity, CopyRun, LaunchedKernel, StreamKey, Timeline
from gpusim.model.launchable import lacking as lacking
from gpusim.model.launchable import recorded_part as recorded_part
from gpusim.trace.format import StreamOrder, Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Copy, Kernel, Stream
from gpusim.trace.programs import Program, plain_name

LONGEST_NAME = 2000  # characters of a kernel's name that are kept
LEAST_DURATION_US = 0.5  # of a kernel whose duration was rounded down to 0
MOST_OPERATIONS = 2_000_000

_COMMUNICATION = re.compile(r"(?:void )?(?:nccl|nvshmem)")
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9_./:-]+")


@dataclass(frozen=True)
class GPUTimeline:
    """What one GPU of a profile did, and how it was recorded."""

    path: Path
    format: str
    timeline: Timeline  # as `Timeline.on` gives it, with a kernel at least
    gpu: GPU
    notes: list[str]  # sentences for the trace's notes, before the timeline's remarks
    stands_for: str | None  # the product that the profile names, where ``gpu`` is another
    sms: int | None  # of the process, if it had a part of the GPU


def as_trace(found: GPUTimeline, name: str, order: Order) -> Trace:
    """The trace of a timeline of one GPU, its activities in the order in which they started.

    ``order`` says where the dependencies between streams come from: the recorded waits, these or the recorded times
    where the profile tells no waits, or nowhere.
    """
    path, timeline, gpu = found.path, found.timeline, found.gpu
    activities = timeline.activities
    if len(activities) > MOST_OPERATIONS:
        raise InputError(path, "", f"holds {len(activities)} operations", f"at most {MOST_OPERATIONS}")
    remarks = [*found.notes, *timeline.remarks]
    ids = ids_of(activities)
    known_order = stream_order(timeline, order)
    waits = dependencies(timeline, order, known_order == "inferred")
    builder = _Builder(path, gpu, found.sms)
    streams: dict[StreamKey, list[Kernel | Copy]] = {}
    for n, activity in enumerate(activities):
        before = tuple(ids[other] for other in waits.of.get(n, ()))
        operation = builder.operation(activity, ids[n], before, host_waits=n in waits.by_host)
        streams.setdefault(activity.stream, []).append(operation)
    remarks += _remarks(activities, waits.contradicted, builder.rounded, known_order)
    names = _stream_names(streams)
    programs = _programs(names, name)
    with faults_of(path):
        return Trace(
            version=2 if programs else 1,
            name=_plain(name)[:200] or "imported",
            device=gpu.name,
            stands_for=None if found.stands_for is None else _plain(found.stands_for)[:200],
            order=known_order,
            notes="\n".join(remarks)[: 10**5],
            streams=tuple(Stream(name=names[key], operations=tuple(ops)) for key, ops in streams.items()),
            programs=programs,
        )


class _Builder:
    """Makes operations; equal launches become one object."""

    def __init__(self, path: Path, gpu: GPU, sms: int | None) -> None:
        self.path = path
        self.gpu = gpu
        self.sms = sms
        self.rounded = 0  # kernels whose recorded duration was 0
        self._launches: dict[tuple[LaunchedKernel, float], KernelLaunch] = {}

    def operation(self, activity: Activity, id: str, waits: tuple[str, ...], host_waits: bool) -> Kernel | Copy:
        work, by_host = activity.work, host_waits or None
        try:
            if isinstance(work, LaunchedKernel):
                launch = self._launch(work, activity.duration_us, id)
                return Kernel(id=id, depends_on=waits, host_waits=by_host, kernel=launch)
            return Copy(
                id=id,
                depends_on=waits,
                host_waits=by_host,
                direction=work.direction,
                memory=work.memory or "pinned",
                bytes=work.bytes,
                duration_us=round(activity.duration_us, 3),
            )
        except InputError as fault:
            if fault.path is not None:
                raise
            name = work.name if isinstance(work, LaunchedKernel) else work.what
            raise fault.at(self.path, f"{id} ({quote(name)})", f"{fault.place} {fault.problem}") from None

    def _launch(self, work: LaunchedKernel, duration_us: float, id: str) -> KernelLaunch:
        duration_us = round(duration_us, 3)
        if duration_us <= 0.0:
            duration_us = LEAST_DURATION_US
            self.rounded += 1
        key = work, duration_us
        known = self._launches.get(key)
        if known is None:
            known = self._launches[key] = KernelLaunch(
                name=_plain(work.name)[:LONGEST_NAME] or "unnamed",
                grid=work.grid,
                block=work.block,
                registers_per_thread=work.registers_per_thread,
                static_shared_memory_bytes=work.static_shared_memory_bytes,
                dynamic_shared_memory_bytes=work.dynamic_shared_memory_bytes,
                communicates=True if communicates(work.name) else None,
                duration_us=duration_us,
                recorded_sms=self.sms,
                mix=work.mix,
                work=work.work,
            )
            problem = lacking(known, self.gpu)
            if problem:
                raise InputError(self.path, f"{id} ({quote(known.name)})", problem, "the GPU that it ran on")
        return known


def communicates(name: str) -> bool:
    """Whether the name of a kernel is one of a library that exchanges data between GPUs."""
    return _COMMUNICATION.match(name) is not None


def _plain(text: str) -> str:
    return one_line(text).strip()


# ---- names


def _stream_names(keys: Iterable[StreamKey]) -> dict[StreamKey, str]:
    """One name per stream: `stream7`, with the process, context and green context before it where they differ."""
    keys = list(keys)
    titles = {"process": "process", "context": "context", "green_context": "green"}
    apart = [part for part in titles if len({getattr(key, part) for key in keys}) > 1]
    names: dict[StreamKey, str] = {}
    taken: set[str] = set()
    for key in keys:
        before = [
            plain_name(f"{titles[part]}{getattr(key, part)}") for part in apart if getattr(key, part) not in ("", "0")
        ]
        name = "/".join([*before, plain_name(f"stream{key.number}")])[:180]
        unique, n = name, 1
        while unique in taken:
            n += 1
            unique = f"{name}.{n}"
        taken.add(unique)
        names[key] = unique
    return names


def _programs(names: Mapping[StreamKey, str], name: str) -> tuple[Program, ...]:
    """Programs, one for each process; none where there is only one stream."""
    if len(names) == 1:
        return ()
    processes = grouped(names, lambda key: key.process)
    return tuple(
        Program(
            name=plain_name(name if len(processes) == 1 else f"process{process}"),
            streams=tuple(names[key] for key in keys),
        )
        for process, keys in processes.items()
    )


def ids_of(activities: Sequence[Activity]) -> list[str]:
    """An id an activity: its label, and a number that no other of the label has."""
    seen: Counter[str] = Counter()
    ids = []
    for activity in activities:
        work = activity.work
        plain = "kernel" if isinstance(work, LaunchedKernel) else work.what
        label = _NOT_IN_IDS.sub("_", activity.label)[:150] or plain
        ids.append(f"{label}/{seen[label]}")
        seen[label] += 1
    return ids


# ---- what the notes say


_ORDER_REMARKS: dict[StreamOrder, str] = {
    "inferred": "The profile does not record what streams wait for. Their order is inferred: each operation waits for "
    "what had ended on other streams when it started (--order recorded leaves them independent).",
    "independent": "Streams are taken as independent: what they wait for is not recorded or left out.",
}


def _remarks(
    activities: Sequence[Activity], contradicted: int, rounded: int, known_order: StreamOrder | None
) -> list[str]:
    kernels = [a for a in activities if isinstance(a.work, LaunchedKernel)]
    runs = [a.work for a in kernels if isinstance(a.work, LaunchedKernel)]
    copies = [a.work for a in activities if isinstance(a.work, CopyRun)]
    bare = sum(run.mix is None for run in runs)
    communicating = sum(communicates(run.name) for run in runs)
    of_unknown_memory = sum(copy.direction in ("h2d", "d2h") and copy.memory is None for copy in copies)
    beside = _beside_others(kernels)
    told = (
        (bare, f"Kernels without counters: {bare:,} of {len(kernels):,}; their demand is estimated"),
        (of_unknown_memory, f"Copies of an unknown kind of host memory: {of_unknown_memory:,}, taken as pinned"),
        (
            communicating,
            f"Kernels that exchange data with other GPUs: {communicating:,}; their durations include waiting for these",
        ),
        (beside, f"Kernels that ran beside kernels of other streams: {beside:,}; their durations include interference"),
        (rounded, f"Kernels recorded with 0 us: {rounded:,}, taken as {LEAST_DURATION_US} us"),
        (contradicted, f"Waits between streams that contradict the recorded times: {contradicted:,}, left out"),
    )
    remarks = [f"{sentence}." for count, sentence in told if count]
    if known_order is not None:
        remarks.insert(1 if bare else 0, _ORDER_REMARKS[known_order])
    return [*remarks, "Host time and gaps between kernels are left out."]


def _beside_others(kernels: Sequence[Activity]) -> int:
    """How many kernels overlap with a kernel of another stream by more than the clock is exact.

    A kernel overlaps with all that begin before its end, less those that end before its begin. Those of all streams are
    more than those of its own if one is of another.
    """
    long = [kernel for kernel in kernels if kernel.duration_us > CLOCK_US]
    found = _overlapping(long)
    for own in grouped(range(len(long)), lambda n: long[n].stream).values():
        found[own] -= _overlapping([long[n] for n in own])
    return int((found > 0).sum())


def _overlapping(kernels: Sequence[Activity]) -> npt.NDArray[np.int64]:
    """With how many of some kernels each of them overlaps by more than `CLOCK_US`, itself among them."""
    starts, ends = np.array([(one.start_us, one.end_us) for one in kernels]).reshape(-1, 2).T
    begun = np.searchsorted(np.sort(starts), ends - CLOCK_US, "left")
    found: npt.NDArray[np.int64] = begun - np.searchsorted(np.sort(ends), starts + CLOCK_US, "right")
    return found
