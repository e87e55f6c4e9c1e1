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

from collections.abc import Iterable
from dataclasses import dataclass
from math import fsum, inf

from gpusim.results.runs import Replayed

Interval = tuple[float, float]  # start and end, us
LaunchKey = tuple[str, str, int, int]  # stream, operation, request and index: the same under every policy
PARTS = ("gaps", "tails", "waiting", "sharing", "rate")


@dataclass(frozen=True)
class SMTime:
    """How the SMs of one replay spent their time; times are means over the SMs, us, and add up to the makespan.

    Attributes:
        gaps_us, tails_us, waiting_us, busy_us: as the module says; busy is sharing and rate together.
        spans: for each SM when it held blocks of which launch, by start.
        sharing: launches of which blocks were ever on an SM together with another's.
    """

    gaps_us: float
    tails_us: float
    waiting_us: float
    busy_us: float
    spans: tuple[list[tuple[float, float, LaunchKey]], ...]
    sharing: frozenset[LaunchKey]

    def busy_with_us(self, launches: frozenset[LaunchKey]) -> float:
        """Time that SMs held blocks of some launches, mean over the SMs."""
        held = (merged(span for span in spans if span[2] in launches) for spans in self.spans)
        return fsum(end - start for of_one in held for start, end in of_one) / max(1, len(self.spans))


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
    keys = [(run.stream, run.operation, run.request, run.index) for run in result.kernel_runs]
    spans: tuple[list[tuple[float, float, LaunchKey]], ...] = tuple([] for _ in range(len(result.usage.shares)))
    ran: list[Interval] = []
    for row, (sms, _, starts, ends) in result.placements.launches:
        at_once = starts and max(starts) <= min(ends)  # on all its SMs at some time, so that these make one interval
        ran += [(min(starts), max(ends))] if at_once else zip(starts, ends, strict=True)
        for sm, start, end in zip(sms, starts, ends, strict=True):
            spans[sm].append((start, end, keys[row]))
    sharing: set[LaunchKey] = set()
    for on_one in spans:
        on_one.sort()
        sharing |= overlapping(on_one)
    held = [merged(on_one) for on_one in spans]
    running = union(ran)
    placing = common(running, union((run.start_us, run.dispatched_us) for run in result.kernel_runs))
    count = max(1, len(spans))
    busy = fsum(end - start for of_one in held for start, end in of_one) / count
    waiting = length(placing) - fsum(length(common(placing, of_one)) for of_one in held) / count
    gaps = result.makespan_us - length(running)
    return SMTime(gaps, length(running) - busy - waiting, waiting, busy, spans, frozenset(sharing))


def overlapping(spans: Iterable[tuple[float, float, LaunchKey]]) -> set[LaunchKey]:
    """Launches of which a span on an SM overlaps with one of another launch; spans by start."""
    found: set[LaunchKey] = set()
    present: list[tuple[float, LaunchKey]] = []  # until when
    last = -inf
    for start, end, key in spans:
        present = [span for span in present if span[0] > start] if start < last else []
        if present and end > start and (others := {other for _, other in present if other != key}):
            found |= others | {key}
        present.append((end, key))
        if end > last:
            last = end
    return found


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The union of some intervals, as disjoint intervals in ascending order."""
    return merged(sorted(intervals))


def merged(spans: Iterable[Interval | tuple[float, float, LaunchKey]]) -> list[Interval]:
    """The `union` of spans that are sorted by start; the launches of the spans are not looked at."""
    found: list[Interval] = []
    first = last = -inf
    for span in spans:
        start, end = span[0], span[1]
        if start > last:
            if last > first:
                found.append((first, last))
            first, last = start, end
        elif end > last:
            last = end
    if last > first:
        found.append((first, last))
    return found


def common(some: list[Interval], others: list[Interval]) -> list[Interval]:
    """The intersection of two unions; all three are disjoint intervals in ascending order."""
    found: list[Interval] = []
    i = j = 0
    while i < len(some) and j < len(others):
        (start, end), (other_start, other_end) = some[i], others[j]
        if end <= other_end:
            i += 1
        else:
            j += 1
            end = other_end
        if other_start > start:
            start = other_start
        if end > start:
            found.append((start, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    """The total length of disjoint intervals, us."""
    return fsum(end - start for start, end in intervals)
