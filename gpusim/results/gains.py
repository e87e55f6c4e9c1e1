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

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf
from operator import sub

from gpusim.results.runs import Replayed, Spans

Interval = tuple[float, float]  # start and end, us
LaunchKey = tuple[str, str, int, int]  # stream, operation, request and index: the same under every policy
Stay = tuple[float, float, LaunchKey]  # start and end of blocks on an SM, us, and their launch
PARTS = ("gaps", "tails", "waiting", "sharing", "rate")


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch as it ran: when it had blocks waiting to be placed, and the SMs that ran them."""

    key: LaunchKey
    start_us: float
    dispatched_us: float
    columns: Spans

    @property
    def whole(self) -> Interval:
        """From the first to the last of it."""
        _, _, starts, ends = self.columns
        return min(self.start_us, min(starts, default=inf)), max(self.dispatched_us, max(ends, default=-inf))

    @property
    def ran(self) -> Iterable[Interval]:
        """When it had blocks on the device; of one that had some on all its SMs at some time that is one interval."""
        _, _, starts, ends = self.columns
        if starts and max(starts) <= min(ends):
            return [(min(starts), max(ends))]
        return zip(starts, ends, strict=True)


Episode = Sequence[Launched]
"""Launches that follow one another without a gap; mostly one, as launches that wait for one another leave gaps."""


@dataclass(frozen=True)
class SMTime:
    """Time of the SMs of one replay by state. Times are means over the SMs, us, and add up to the makespan.

    Attributes:
        gaps_us, tails_us, waiting_us, busy_us: as the module says; busy is sharing and rate together.
        sms: how many there are.
        episodes: all launches.
        sharing: those of which blocks were ever on an SM together with another's.
    """

    gaps_us: float
    tails_us: float
    waiting_us: float
    busy_us: float
    sms: int
    episodes: Sequence[Episode]
    sharing: frozenset[LaunchKey]

    def busy_with_us(self, launches: frozenset[LaunchKey]) -> float:
        """Time that SMs held blocks of some launches, mean over the SMs."""
        chosen = ([launch for launch in episode if launch.key in launches] for episode in self.episodes)
        return fsum(us for some in chosen for us in held_us(some)) / max(1, self.sms)


def gain_us(serial: SMTime | None, policy: SMTime | None) -> dict[str, float] | None:
    """Return the contribution of each of `PARTS` to the makespan that a policy saves over serial, us (below 0: lost).

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
    """Return the time of the SMs by state; None where placements were not kept."""
    if result.kernel_runs and not result.placements:
        return None
    episodes = list(_episodes(result))
    running_us: list[float] = []
    placing_us: list[float] = []
    busy_us: list[float] = []
    placed_us: list[list[float]] = [[] for _ in range(result.usage.sms)]  # of each SM: with blocks while others wait
    sharing: set[LaunchKey] = set()
    for episode in episodes:
        running = union(interval for launch in episode for interval in launch.ran)
        placing = common(running, union((launch.start_us, launch.dispatched_us) for launch in episode))
        running_us += lengths(running)
        placing_us += lengths(placing)
        if len(episode) == 1 and not placing:
            busy_us += held_us(episode)
            continue
        for sm, spans in by_sm(episode).items():
            if len(episode) > 1:
                sharing |= overlapping(spans)
            held = merged(spans)
            busy_us += lengths(held)
            placed_us[sm] += lengths(common(placing, held))
    count = max(1, len(placed_us))
    ran, busy = fsum(running_us), fsum(busy_us) / count
    waiting = fsum(placing_us) - fsum(map(fsum, placed_us)) / count
    gaps = result.makespan_us - ran
    return SMTime(gaps, ran - busy - waiting, waiting, busy, len(placed_us), episodes, frozenset(sharing))


def _episodes(result: Replayed) -> Iterator[Episode]:
    """All launches of a replay, in the order in which they began."""
    launched = []
    for row, columns in result.placements.launches:
        run = result.kernel_runs[row]
        key = (run.stream, run.operation, run.request, run.index)
        launched.append(Launched(key, run.start_us, run.dispatched_us, columns))
    episode: list[Launched] = []
    latest = -inf
    for (start, end), launch in sorted(((one.whole, one) for one in launched), key=lambda pair: pair[0]):
        if start > latest and episode:
            yield episode
            episode = []
        episode.append(launch)
        latest = max(latest, end)
    if episode:
        yield episode


def by_sm(launches: Iterable[Launched]) -> Mapping[int, list[Stay]]:
    """Return the spans of some launches on each SM, by start."""
    found = defaultdict[int, list[Stay]](list)
    for launch in launches:
        sms, _, starts, ends = launch.columns
        for sm, start, end in zip(sms, starts, ends, strict=True):
            found[sm].append((start, end, launch.key))
    for spans in found.values():
        spans.sort()
    return found


def held_us(launches: Sequence[Launched]) -> Iterable[float]:
    """Times for which SMs held blocks of some launches, us."""
    if len(launches) == 1:
        sms, _, starts, ends = launches[0].columns
        if len(set(sms)) == len(sms):
            return map(sub, ends, starts)
    return [us for spans in by_sm(launches).values() for us in lengths(merged(spans))]


def overlapping(spans: Iterable[Stay]) -> set[LaunchKey]:
    """Return the launches whose spans overlap with those of another launch on an SM; spans by start."""
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


def merged(spans: Iterable[Interval | Stay]) -> list[Interval]:
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


def lengths(intervals: Iterable[Interval]) -> list[float]:
    """The length of each interval, us."""
    return [end - start for start, end in intervals]
