"""Profiles of several ranks of a job, a GPU each: their collectives are matched, and become meetings [D].

A kernel that exchanges data with other GPUs runs from its start until all ranks are there and the data are exchanged.
Of a collective that several profiles hold, the shortest recorded duration is the exchange, because the last rank hardly
waits. In the trace all ranks meet in a barrier that takes no time, and their kernels then take that duration.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from gpusim.common.errors import InputError
from gpusim.io.conversion import communicates, ids_of
from gpusim.io.timeline import LaunchedKernel, Timeline
from gpusim.trace.edit import renamed
from gpusim.trace.fields import MAX_GPUS
from gpusim.trace.format import Trace
from gpusim.trace.operations import Collective, Operation, Stream
from gpusim.trace.programs import Program, plain_name

Key = tuple[str, int]  # what tells a collective apart, and which of these in the order in which they started


class Meeting(NamedTuple):
    """A collective that several ranks hold."""

    name: str
    ranks: int
    duration_us: float  # of the exchange


def meetings(timelines: Sequence[Timeline]) -> list[dict[int, Meeting]]:
    """For each rank the collectives that another has too, by the number of the activity.

    Collectives are matched by communicator and sequence number, as far as the profile tells, and else by the name of
    the kernel; of several such, by their order.
    """
    if len(timelines) > MAX_GPUS:
        raise InputError(None, "ranks", f"are {len(timelines)}", f"at most {MAX_GPUS}")
    if len({timeline.one_at_a_time for timeline in timelines}) > 1:
        problem = "are profiles of Nsight Compute and of timelines"
        raise InputError(None, "ranks", problem, "a timeline of each rank; counters are added to one timeline")
    of_rank = [_collectives(timeline) for timeline in timelines]
    durations: dict[Key, list[float]] = defaultdict(list)
    for timeline, found in zip(timelines, of_rank, strict=True):
        for key, n in found.items():
            durations[key].append(timeline.activities[n].duration_us)
    shared = [key for key, of in durations.items() if len(of) > 1]
    met = {key: Meeting(f"meeting/{i}", len(durations[key]), min(durations[key])) for i, key in enumerate(shared)}
    return [{n: met[key] for key, n in found.items() if key in met} for found in of_rank]


def _collectives(timeline: Timeline) -> dict[Key, int]:
    seen: Counter[str] = Counter()
    found: dict[Key, int] = {}
    for n, activity in enumerate(timeline.activities):
        if isinstance(activity.work, LaunchedKernel) and communicates(activity.work.name):
            what = activity.work.meets or activity.work.name
            found[what, seen[what]] = n
            seen[what] += 1
    return found


def without_waiting(timeline: Timeline, met: Mapping[int, Meeting]) -> Timeline:
    """The timeline, its kernels that meet others as long as the exchange takes."""
    activities = list(timeline.activities)
    for n, meeting in met.items():
        activities[n] = replace(activities[n], duration_us=meeting.duration_us)
    return replace(timeline, activities=activities)


def joined(traces: Sequence[Trace], timelines: Sequence[Timeline], met: Sequence[Mapping[int, Meeting]]) -> Trace:
    """One trace of all ranks: a program, whose streams are on as many GPUs of one kind as there are ranks."""
    devices = sorted({trace.device for trace in traces})
    if len(devices) > 1:
        raise InputError(None, "ranks", f"were recorded on {', '.join(devices)}", "ranks on equal GPUs")
    told = [timeline.rank for timeline in timelines]
    numbers = list(range(len(told))) if None in told or len(set(told)) < len(told) else told
    lines = [trace.notes.splitlines() for trace in traces]
    everywhere = {line for line in lines[0] if all(line in other for other in lines)}
    streams: list[Stream] = []
    notes = [f"Each rank: {line}" for line in lines[0] if line in everywhere]
    matched = kernels = 0
    for gpu, (trace, timeline, meets, rank) in enumerate(zip(traces, timelines, met, numbers, strict=True)):
        ids = ids_of(timeline.activities)
        prefix = f"rank{rank}/"
        by_id = {f"{prefix}{ids[n]}": meeting for n, meeting in meets.items()}
        streams += [_meeting(renamed(stream, prefix), by_id, gpu) for stream in trace.streams]
        notes += [f"rank{rank}: {line}" for line in trace.notes.splitlines() if line not in everywhere]
        matched += len(by_id)
        kernels += len(_collectives(timeline))
    line = f"{matched} of {kernels} kernels that exchange data meet those of the other ranks, without waiting for them"
    if not matched:
        line += ". To share one GPU, programs are imported one by one, and replayed together"
    name = f"{traces[0].name} and {len(traces) - 1} more"
    known = {trace.order for trace in traces} - {None}
    return Trace(
        version=2,
        name=name[:200],
        device=traces[0].device,
        stands_for=traces[0].stands_for,
        order="inferred" if "inferred" in known else next(iter(known), None),
        notes="\n".join([f"Imported from the profiles of {len(traces)} ranks.", f"{line}.", *notes])[: 10**5],
        streams=tuple(streams),
        programs=(Program(name=plain_name(traces[0].name), streams=tuple(stream.name for stream in streams)),),
    )


def _meeting(stream: Stream, by_id: Mapping[str, Meeting], gpu: int) -> Stream:
    """A stream of a GPU with a barrier before each kernel that meets others."""
    operations: list[Operation] = []
    for operation in stream.operations:
        meeting = by_id.get(operation.id)
        if meeting is None:
            operations.append(operation)
            continue
        operations.append(
            Collective(
                id=f"{operation.id}/ranks",
                depends_on=operation.depends_on,
                host_waits=operation.host_waits,
                name=meeting.name,
                what="barrier",
                ranks=meeting.ranks,
                bytes=0,
                duration_us=0.0,
            )
        )
        operations.append(operation.model_copy(update={"depends_on": (), "host_waits": None}))
    return stream.model_copy(update={"operations": tuple(operations), "gpu": gpu})
