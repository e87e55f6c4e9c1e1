"""Remaining work of the streams of a trace: the operations left of the passes under way, and the work in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import fsum

from gpusim.engine.launch import Launch
from gpusim.policies.interface import OperationView, PassView
from gpusim.trace.format import Trace
from gpusim.trace.operations import Operation, Stream


@dataclass(slots=True)
class Pass:
    """How far a stream is in its pass under way."""

    release_us: float = 0.0  # when it was released
    position: int = 0  # of the operation under way, or the next; that behind the last where the pass has ended
    launches: list[Launch] = field(default_factory=list)  # of that operation, those handed to the device
    began_us: float | None = None  # when it began to occupy what it occupies; None: not yet, or it launches kernels

    def next(self) -> None:
        """The operation under way has ended."""
        self.position, self.launches, self.began_us = self.position + 1, [], None


def operation_views(
    trace: Trace,
    passes: Mapping[int, Pass],
    now_us: float,
    work_us: Callable[[Operation], float],
    work_done: Callable[[Launch], float],
) -> tuple[OperationView, ...]:
    """The operations that have not ended, as ``View.operations`` gives them.

    ``work_us`` gives the isolated time of an operation, the sum of its kernels'; ``work_done`` gives the share of a
    launch's work that is done.
    """
    left = {op.id for index, at in passes.items() for op in trace.streams[index].operations[at.position :]}
    return tuple(
        view
        for index, at in sorted(passes.items())
        for view in _views_of(trace.streams[index], index, at, left, now_us, work_us, work_done)
    )


def work_from(stream: Stream, work_us: Callable[[Operation], float]) -> list[float]:
    """Work (us) of a stream's pass from each of its operations on, and 0 behind the last."""
    sums = accumulate((work_us(op) for op in reversed(stream.operations)), initial=0.0)
    return list(sums)[::-1]


def pass_view(
    stream: Stream, at: Pass, from_us: Sequence[float], now_us: float, work_done: Callable[[Launch], float]
) -> PassView:
    """A pass under way, as ``View.passes`` gives it.

    ``from_us`` is `work_from` of the stream; ``work_done`` as of `operation_views`.
    """
    left_us = from_us[at.position]
    if at.position < len(stream.operations):
        later_us = from_us[at.position + 1]
        done_us = _done_us(stream.operations[at.position], at, now_us, work_done)
        left_us = max(later_us, left_us - done_us)
    return PassView(at.release_us, from_us[0], left_us)


def _views_of(
    stream: Stream,
    index: int,
    at: Pass,
    left: set[str],
    now_us: float,
    work_us: Callable[[Operation], float],
    work_done: Callable[[Launch], float],
) -> list[OperationView]:
    views: list[OperationView] = []
    for op in stream.operations[at.position :]:
        before = (views[-1].id,) if views else ()
        waits = dict.fromkeys((*before, *(other for other in op.depends_on if other in left)))
        done = _done_us(op, at, now_us, work_done) if not views else 0.0
        views.append(OperationView(op.id, index, max(0.0, work_us(op) - done), tuple(waits), at.release_us))
    return views


def _done_us(op: Operation, at: Pass, now_us: float, work_done: Callable[[Launch], float]) -> float:
    """How much of the operation under way is done, us of its time alone."""
    if not op.launches():
        return now_us - at.began_us if at.began_us is not None else 0.0
    return fsum(launch.model.solo_us * work_done(launch) for launch in at.launches)
