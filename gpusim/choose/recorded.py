"""A timeline as recorded: how much kernels that overlapped were slowed, and by which contention.

The time of a kernel isolated is the median of the recorded launches of its name, grid and block that ran beside no
other kernel. Where there is none it is not known, and neither is the slowdown. Nor is it of a launch that took much
less beside others, which had other data, nor of a kernel that exchanges data with other GPUs: its recorded durations
include waiting for these.

The excess of a kernel over its isolated time is divided in proportion to the costs that the model expects of the
kernels beside it. Each two are replayed in two streams, in the order in which they started. The cost to a kernel for
each microsecond in which both run is taken to hold as long as both ran when recorded [D].

A kernel may also have started later than usual after it could. That counts where the profile tells when it could start:
when its launch, the work before it in its stream, and the events that its stream waits for were done. It waited for
room as long as kernels ran then that leave it none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, inf
from statistics import median
from typing import Any, NamedTuple

from gpusim.choose.explain import (
    GROUP_COLUMNS,
    LAUNCH,
    LEAST_SLOWED,
    NO_ROOM,
    OTHER,
    TAIL,
    Group,
    added,
    in_groups,
    longest_first,
    overlaps,
    side_by_side,
)
from gpusim.common.tables import grouped, picked, short_name, summed
from gpusim.session import Session
from gpusim.trace.edit import with_operations
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Operation

CLOCK_US = 1.0  # overlaps of less are those of the clock
LEAST_EXPECTED = 0.02  # of what a kernel took longer: costs that add up to less do not explain it [D]
SAME_DATA = 0.8  # of its kind's isolated time: a launch that took less had other data [D]
MOST_LAUNCH_US = 5.0  # later than usual; 1.3 with four streams ([V] experiments/neighbours, gaps.csv)
KernelKind = tuple[str, tuple[int, int, int], tuple[int, int, int]]  # name, grid and block
Beside = list[tuple["Recorded", float]]  # kernels of other streams, and how long each ran meanwhile, us


@dataclass(frozen=True)
class Recorded:
    """A kernel as recorded; times in us."""

    kind: KernelKind  # name, grid and block
    operator: str  # what launched it; empty: not known
    stream: str  # its stream
    start_us: float  # when it started
    took_us: float  # for how long it ran
    ready_us: float | None = None  # when it could start; None: the profile does not tell
    queued: bool = False  # whether work of its stream, or an event, held it back until then, and not its launch

    @property
    def waited_us(self) -> float:
        """From when it could start to its start."""
        return 0.0 if self.ready_us is None else max(0.0, self.start_us - self.ready_us)


@dataclass(frozen=True)
class Overlapped:
    """A kernel that ran or waited beside others."""

    kernel: Recorded  # as recorded
    # its kind's time beside nobody; None: no launch of its kind ran so, it had other data, or waits for other GPUs
    isolated_us: float | None
    late_us: float  # how much later than usual it started after it could
    overlap_us: float  # how long others ran meanwhile
    beside: tuple[str, ...]  # names of the others, the longest beside it first
    expected_us: float  # what the model expects that they cost it while it ran
    # what made the difference, by contention; where the isolated time is not known, as the model expects it
    by_us: Mapping[str, float]

    @property
    def took_us(self) -> float:
        """From when it usually starts to its end."""
        return self.kernel.took_us + self.late_us

    @property
    def slowdown(self) -> float | None:
        """Its time beside others over its isolated time."""
        return None if not self.isolated_us else self.took_us / self.isolated_us

    @property
    def cause(self) -> str:
        """Largest cost; empty: it was not slowed, or the model expects nothing of it."""
        unslowed = self.slowdown is not None and self.slowdown < LEAST_SLOWED
        return "" if unslowed or not self.by_us else max(self.by_us, key=lambda name: self.by_us[name])


def overlapped(kernels: Iterable[Recorded], trace: Trace, session: Session) -> list[Overlapped]:
    """Kernels that ran or waited while kernels of other streams ran, in the order of their starts.

    The trace has the same kernels, as they are modelled; the session is on the GPU of the recording.
    """
    ordered = sorted(kernels, key=lambda one: (one.start_us, one.took_us))
    waiting = {_kind(launch) for launch in trace.launches() if launch.communicates}
    beside = _beside(ordered)
    alone = [one for one, (running, _) in zip(ordered, beside, strict=True) if not running and one.kind not in waiting]
    isolated_us = {kind: median(one.took_us for one in of) for kind, of in grouped(alone, lambda one: one.kind).items()}
    unheld = [one for one, (_, before) in zip(ordered, beside, strict=True) if one.ready_us is not None and not before]
    usual_us = {how: median(one.waited_us for one in of) for how, of in grouped(unheld, lambda one: one.queued).items()}
    launches = _launches(trace, isolated_us)

    @cache
    def pair(first: KernelKind, second: KernelKind) -> tuple[_Costs, _Costs]:
        return _costs(session, trace.device, [launches[first], launches[second]])

    def costs(own: Recorded, other: Recorded) -> _Costs:
        if not (own.kind in launches and other.kind in launches):
            return _Costs(False, {})
        own_first = own.start_us <= other.start_us
        return pair(own.kind, other.kind)[0] if own_first else pair(other.kind, own.kind)[1]

    found = []
    for one, (running, before) in zip(ordered, beside, strict=True):
        late_us = max(0.0, one.waited_us - usual_us.get(one.queued, inf)) if before else 0.0
        if not running and late_us <= CLOCK_US:
            continue
        alone_us, waits = isolated_us.get(one.kind), one.kind in waiting
        if alone_us is not None and one.took_us < SAME_DATA * alone_us:
            alone_us = None
        expected = summed(
            (name, us * rate) for other, us in running if not waits for name, rate in costs(one, other).rates.items()
        )
        no_room_us = min(late_us, fsum(us for other, us in before if costs(one, other).waits))
        launch_us = min(late_us - no_room_us, MOST_LAUNCH_US)
        late = {NO_ROOM: no_room_us, LAUNCH: launch_us, OTHER: late_us - no_room_us - launch_us}
        all_us = added((late, _shared(expected, one.took_us, alone_us)))
        by_us = {} if waits else {name: us for name, us in all_us.items() if us > 0.0}
        names = longest_first((other.kind[0], us) for other, us in (*running, *before))
        overlap_us = min(one.took_us, fsum(us for _, us in running))
        found.append(Overlapped(one, alone_us, late_us, overlap_us, names, fsum(expected.values()), by_us))
    return found


class _Costs(NamedTuple):
    """Costs of one kernel to another beside it in a replay."""

    waits: bool  # whether the other waits for room
    rates: dict[str, float]  # time that it loses then, by contention, over the time in which both run


def _costs(session: Session, device: str, both: Sequence[KernelLaunch]) -> tuple[_Costs, _Costs]:
    """What two kernels cost each other, the first launched first."""
    pair = side_by_side(session, device, both)
    together_us = min(one.run.end_us for one in pair) - max(one.run.start_us for one in pair)
    found = []
    for one in pair:
        waits = one.by_us.get(NO_ROOM, 0.0) > 1.01 * session.gpu.model.stream_turn_us  # which is for launches
        parts = ((TAIL if waits else name, us) for name, us in one.by_us.items() if name != NO_ROOM)
        rates = summed((name, us / together_us) for name, us in parts if together_us > 0.0)
        found.append(_Costs(waits, rates))
    return found[0], found[1]


def _shared(expected: Mapping[str, float], took_us: float, isolated_us: float | None) -> dict[str, float]:
    """The cost of each cause to the kernel: the expected one, scaled to its time beyond the isolated one, if known."""
    whole = fsum(expected.values())
    excess_us = min(whole, took_us) if isolated_us is None else max(0.0, took_us - isolated_us)
    if whole <= LEAST_EXPECTED * excess_us:
        return {OTHER: excess_us}
    return {name: us * excess_us / whole for name, us in expected.items()}


def busy_us(kernels: Iterable[Recorded]) -> float:
    """For how long at least one kernel ran."""
    total, until_us = 0.0, -inf
    for start_us, end_us in sorted((one.start_us, one.start_us + one.took_us) for one in kernels):
        total += max(0.0, end_us - max(start_us, until_us))
        until_us = max(until_us, end_us)
    return total


def isolated(trace: Trace, found: Iterable[Overlapped]) -> Trace:
    """The trace, its kernels that overlapped as long as their kind takes isolated, where that is known."""
    known = {(one.kernel.kind, round(one.kernel.took_us, 3)): one.isolated_us for one in found if one.isolated_us}

    def alone(operation: Operation) -> Operation:
        if not isinstance(operation, Kernel):
            return operation
        launch = operation.kernel
        us = known.get((_kind(launch), launch.duration_us))
        changed = {} if us is None else {"kernel": launch.model_copy(update={"duration_us": us})}
        return operation.model_copy(update=changed)

    return with_operations(trace, alone)


def _launches(trace: Trace, isolated_us: Mapping[KernelKind, float]) -> dict[KernelKind, KernelLaunch]:
    """A launch of each kind, as long as the kind takes isolated, where that is known."""
    found = {_kind(launch): launch for launch in trace.launches()}
    timed = {kind: {"duration_us": isolated_us[kind]} if kind in isolated_us else {} for kind in found}
    return {kind: launch.model_copy(update=timed[kind]) for kind, launch in found.items()}


def _kind(launch: KernelLaunch) -> KernelKind:
    return launch.name, launch.grid, launch.block


def _beside(ordered: Sequence[Recorded]) -> list[tuple[Beside, Beside]]:
    """For each kernel those of other streams that ran while it did, and those that ran while it waited to start."""
    spans = [(one.start_us, one.start_us + one.took_us, at, True) for at, one in enumerate(ordered)]
    late = ((at, one) for at, one in enumerate(ordered) if one.waited_us > 0.0)
    spans += [(one.start_us - one.waited_us, one.start_us, at, False) for at, one in late]
    spans.sort(key=lambda span: span[:3])
    found: list[tuple[Beside, Beside]] = [([], []) for _ in ordered]
    for (start_us, end_us, at, runs), others in zip(spans, overlaps([span[:2] for span in spans]), strict=True):
        noticed_us = min(CLOCK_US, 0.1 * (end_us - start_us))
        for number, us in others.items():
            other = ordered[spans[number][2]]
            if spans[number][3] and us > noticed_us and other.stream != ordered[at].stream:
                found[at][0 if runs else 1].append((other, us))
    return found


def as_json(found: Sequence[Overlapped]) -> dict[str, Any]:
    """The kernels that overlapped, as `gpusim explain --json` prints them for a profile."""
    by_name, by_operator = by_groups(found)
    return {
        "cost_us": added(one.by_us for one in found if one.isolated_us is not None),
        "by_name": [picked(one, *GROUP_COLUMNS) for one in by_name],
        "by_operator": [picked(one, *GROUP_COLUMNS) for one in by_operator],
        "overlapped": [
            {
                "kernel": one.kernel.kind[0],
                "operator": one.kernel.operator or None,
                **picked(one.kernel, "stream", "start_us", "took_us"),
                **picked(one, "late_us", "isolated_us", "slowdown", "overlap_us", "beside"),
                "cause": one.cause or None,
                **picked(one, "expected_us", "by_us"),
            }
            for one in found
        ],
    }


def by_groups(found: Sequence[Overlapped]) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """The kernels that overlapped by name, and those of a known operator by that."""
    known = [one for one in found if one.kernel.operator]
    by_name = in_groups(found, lambda one: short_name(one.kernel.kind[0]))
    return by_name, in_groups(known, lambda one: one.kernel.operator)
