"""A timeline as recorded: how much kernels that overlapped were slowed, from launches of their kind that did not.

The time of a kernel isolated is the median of the recorded launches of its name, grid and block that ran beside no
other kernel. Where there is none it is not known, and neither is the slowdown. Nor is it of a kernel that exchanges
data with other GPUs: its recorded durations include waiting for these. The model says which resource two kernels
contend for [D].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gpusim.choose.explain import LEAST_SLOWED, overlaps
from gpusim.choose.interference import contended
from gpusim.common.tables import grouped, picked, short_name, summed
from gpusim.model.kernel import KernelModel
from gpusim.session import Session
from gpusim.trace.edit import with_operations
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Operation

CLOCK_US = 1.0  # overlaps of less are those of the clock
Kind = tuple[str, tuple[int, int, int], tuple[int, int, int]]  # name, grid and block


@dataclass(frozen=True)
class Recorded:
    """A kernel as recorded; times in us."""

    kind: Kind  # name, grid and block
    operator: str  # what launched it; empty: not known
    stream: str  # its stream
    start_us: float  # when it started
    took_us: float  # for how long it ran


@dataclass(frozen=True)
class Overlapped:
    """A kernel that ran beside others."""

    kernel: Recorded  # as recorded
    # its kind's time beside nobody; None: no launch of its kind ran so, or it waits for other GPUs
    isolated_us: float | None
    overlap_us: float  # how long others ran meanwhile
    beside: tuple[str, ...]  # names of the others, the longest beside it first
    cause: str  # what it and the first of them contend for; empty: it was not slowed, or nothing that the model knows

    @property
    def slowdown(self) -> float | None:
        """Recorded time over the time isolated."""
        return None if not self.isolated_us else self.kernel.took_us / self.isolated_us


def overlapped(kernels: Iterable[Recorded], trace: Trace, session: Session) -> list[Overlapped]:
    """The kernels that ran beside kernels of other streams, in the order in which they started.

    The trace has the same kernels, as they are modelled; the session is on the GPU of the recording.
    """
    ordered = sorted(kernels, key=lambda one: (one.start_us, one.took_us))
    models = _models(trace, session)
    waiting = {_kind(launch) for launch in trace.launches() if launch.communicates}
    spans_us = [(one.start_us, one.start_us + one.took_us) for one in ordered]
    beside = [_beside(ordered, at, others) for at, others in enumerate(overlaps(spans_us))]
    alone = grouped((one for one, others in zip(ordered, beside, strict=True) if not others), lambda one: one.kind)
    found = []
    for one, others in ((one, others) for one, others in zip(ordered, beside, strict=True) if others):
        longest = max(others, key=lambda kind: others[kind])
        pair = models.get(one.kind), models.get(longest)
        names = tuple(dict.fromkeys(short_name(kind[0]) for kind in sorted(others, key=lambda kind: -others[kind])))
        waits = one.kind in waiting
        isolated = median(same.took_us for same in alone[one.kind]) if one.kind in alone and not waits else None
        slowed = not waits and (isolated is None or one.took_us >= LEAST_SLOWED * isolated)
        cause = contended(session.gpu, pair[0], pair[1]) if slowed and pair[0] and pair[1] else ""
        found.append(Overlapped(one, isolated, min(one.took_us, sum(others.values())), names, cause))
    return found


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


def _models(trace: Trace, session: Session) -> dict[Kind, KernelModel]:
    kernels, found = session.kernels(trace), dict[Kind, KernelModel]()
    for operation in trace.operations():
        for launch in operation.launches():
            if _kind(launch) not in found:
                found[_kind(launch)] = kernels.model(launch, operation.id)
    return found


def _kind(launch: KernelLaunch) -> Kind:
    return launch.name, launch.grid, launch.block


def _beside(ordered: Sequence[Recorded], at: int, common_us: Mapping[int, float]) -> dict[Kind, float]:
    """Return how long kernels of other streams ran beside one, by kind."""
    own = ordered[at]
    noticed_us = min(CLOCK_US, 0.1 * own.took_us)
    others = ((ordered[other], us) for other, us in common_us.items() if us > noticed_us)
    return summed((other.kind, us) for other, us in others if other.stream != own.stream)


def as_json(found: Iterable[Overlapped]) -> list[dict[str, Any]]:
    """The output of `gpusim explain --json` for a profile."""
    return [
        {
            "kernel": one.kernel.kind[0],
            "operator": one.kernel.operator or None,
            **picked(one.kernel, "stream", "start_us", "took_us"),
            **picked(one, "isolated_us", "slowdown", "overlap_us", "beside"),
            "cause": one.cause or None,
        }
        for one in found
    ]
