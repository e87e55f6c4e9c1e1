"""Where a policy's gain over serial comes from: what every SM was doing, under one against under the other.

At every instant an SM is in one of five states, so that the means of their times over the SMs add up to the makespan:

    gaps     no SM of the device holds a block: launch latency, copies, host work, no request
    tails    this SM holds no block, another does, and every kernel that has started has placed its last block
    waiting  this SM holds no block although a kernel that has started has blocks to place: the policy keeps it off
    sharing  this SM holds blocks of a launch that shares an SM with another launch, now or ever, under either policy
    rate     this SM holds blocks of a launch that never does

Serial's time in a state less the policy's is what that state contributes to the gain. Busy SMs do the same work under
both, so the last two are about how fast: kernels on one SM hide one another's latencies, or slow one another; those
on SMs of their own run faster where these hold more of their blocks, slower where others load L2 and DRAM. The
decomposition is designed here [D].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.results.runs import Replayed

LaunchKey = tuple[str, str, int, int]  # stream, operation, request and index: the same under every policy
Times = npt.NDArray[np.float64]  # us
PARTS = ("gaps", "tails", "waiting", "sharing", "rate")


class Intervals(NamedTuple):
    """Times from and until, in ascending order of the former."""

    starts: Times
    ends: Times

    def where(self, wanted: npt.NDArray[np.bool_]) -> Intervals:
        """Some of them."""
        return Intervals(self.starts[wanted], self.ends[wanted])

    def lengths(self) -> list[float]:
        """How long each is, us."""
        found: list[float] = (self.ends - self.starts).tolist()
        return found


@dataclass(frozen=True)
class SMTime:
    """How the SMs of one replay spent their time; times are means over the SMs, us, and add up to the makespan.

    Attributes:
        gaps_us, tails_us, waiting_us, busy_us: as the module says; busy is sharing and rate together.
        launches: all that ran.
        spans: for each SM when it held blocks, and of which launch, by its position among ``launches``.
        sharing: launches of which blocks were ever on an SM together with another's.
    """

    gaps_us: float
    tails_us: float
    waiting_us: float
    busy_us: float
    launches: Sequence[LaunchKey]
    spans: Sequence[tuple[Intervals, npt.NDArray[np.intp]]]
    sharing: frozenset[LaunchKey]

    def busy_with_us(self, launches: frozenset[LaunchKey]) -> float:
        """Time that SMs held blocks of some launches, mean over the SMs."""
        wanted = np.array([launch in launches for launch in self.launches], dtype=bool)
        held = [union(spans.where(wanted[of])) for spans, of in self.spans]
        return fsum(length for of_one in held for length in of_one.lengths()) / max(1, len(self.spans))


def gain_us(serial: SMTime | None, policy: SMTime | None) -> dict[str, float] | None:
    """What each of `PARTS` contributes to the makespan that a policy saves over serial, us (below 0: lost).

    Args:
        serial: `sm_time` of the trace under serial.
        policy: of the same trace on the same GPU under the policy, streams run once.

    Returns:
        The contributions, which add up to the difference of the makespans; None where either is not known.
    """
    if serial is None or policy is None:
        return None
    together = serial.sharing | policy.sharing
    before, after = serial.busy_with_us(together), policy.busy_with_us(together)
    return {
        "gaps": serial.gaps_us - policy.gaps_us,
        "tails": serial.tails_us - policy.tails_us,
        "waiting": serial.waiting_us - policy.waiting_us,
        "sharing": before - after,
        "rate": (serial.busy_us - before) - (policy.busy_us - after),
    }


def sm_time(result: Replayed) -> SMTime | None:
    """How the SMs of a replay spent their time; None where placements were not kept."""
    if result.kernel_runs and not result.placements:
        return None
    launches = [(run.stream, run.operation, run.request, run.index) for run in result.kernel_runs]
    spans = _spans_by_sm(result)
    sharing = {row for on_one, rows in spans for row in rows[overlapping(on_one)].tolist()}
    held = [union(on_one) for on_one, _ in spans]
    running = union(_in_order(*(np.concatenate([[], *column]) for column in zip(*held, strict=True))))
    placing = common(running, union(intervals((run.start_us, run.dispatched_us) for run in result.kernel_runs)))
    count = max(1, len(spans))
    busy = fsum(length for of_one in held for length in of_one.lengths()) / count
    waiting = fsum(placing.lengths()) - fsum(fsum(common(placing, of_one).lengths()) for of_one in held) / count
    ran = fsum(running.lengths())
    shared = frozenset(launches[row] for row in sharing)
    return SMTime(result.makespan_us - ran, ran - busy - waiting, waiting, busy, launches, spans, shared)


def _spans_by_sm(result: Replayed) -> list[tuple[Intervals, npt.NDArray[np.intp]]]:
    """For each SM when it held blocks, and of which row of the kernels."""
    kept = list(result.placements.launches)
    sms, starts, ends = (np.concatenate([[], *(columns[at] for _, columns in kept)]) for at in (0, 2, 3))
    rows = np.repeat([row for row, _ in kept], [len(columns[0]) for _, columns in kept]).astype(np.intp)
    order = np.lexsort((starts, sms))
    first = np.searchsorted(sms[order], range(len(result.usage.shares) + 1))
    return [(Intervals(starts[of], ends[of]), rows[of]) for of in (order[i:j] for i, j in pairwise(first))]


def intervals(pairs: Iterable[tuple[float, float]]) -> Intervals:
    """Times from and until, given in any order."""
    columns = np.array(list(pairs), dtype=np.float64).reshape(-1, 2)
    return _in_order(columns[:, 0], columns[:, 1])


def _in_order(starts: Times, ends: Times) -> Intervals:
    order = np.argsort(starts, kind="stable")
    return Intervals(starts[order], ends[order])


def overlapping(spans: Intervals) -> npt.NDArray[np.intp]:
    """Positions of those that overlap with another; one that takes no time does not."""
    lasting = np.flatnonzero(spans.ends > spans.starts)
    starts, ends = spans.starts[lasting], spans.ends[lasting]
    meets = np.zeros(len(lasting), dtype=bool)
    meets[1:] |= np.maximum.accumulate(ends)[:-1] > starts[1:]
    meets[:-1] |= ends[:-1] > starts[1:]
    return lasting[meets]


def union(spans: Intervals) -> Intervals:
    """The time that at least one of some intervals covers, as disjoint intervals."""
    if not len(spans.starts):
        return spans
    reached = np.maximum.accumulate(spans.ends)
    apart = spans.starts[1:] > reached[:-1]
    found = Intervals(spans.starts[np.append(True, apart)], reached[np.append(apart, True)])
    return found.where(found.ends > found.starts)


def common(some: Intervals, others: Intervals) -> Intervals:
    """The time that both cover; either as from `union`, and so is the result."""
    first = np.searchsorted(some.ends, others.starts, side="right")  # of some, that ends after another's start
    count = np.searchsorted(some.starts, others.ends, side="left") - first
    other = np.repeat(np.arange(len(count)), count)
    mine = np.arange(len(other)) - np.repeat(np.cumsum(count) - count - first, count)
    return Intervals(
        np.maximum(some.starts[mine], others.starts[other]), np.minimum(some.ends[mine], others.ends[other])
    )
