"""Rows of a replay: times, places and use of kernels, operations, requests and streams."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import fsum
from operator import itemgetter
from typing import Any, overload

USES = ("registers", "shared_memory", "threads", "block_slots", "issue_slots", "dram", "l2")
BOUND_TITLES = {  # of what binds a kernel, as people read it
    "issue": "issue slots",
    "alu": "ALU",
    "fma": "FMA",
    "tensor": "tensor cores",
    "lsu": "LSU",
    "l1": "L1",
    "latency": "latency",
    "l2": "L2",
    "dram": "DRAM",
    "unknown": "unknown",
}
LIMITS = (  # to which a policy can hold a kernel
    "SMs",  # only some of them
    "blocks",  # fewer on an SM than fit
    "queues",  # several lines of kernels that do not wait for one another
    "shares",  # of an SM's issue slots, of its L1 data path or of DRAM
    "evictions",  # blocks taken off their SM
    "memory slices",  # parts of L2 and DRAM of its own
    "refuted",  # what a real GPU was measured not to do (`Policy.refuted`)
)


@dataclass(frozen=True, slots=True)
class KernelRun:
    """One kernel launch as replayed; times in us from the start of the replay.

    Attributes:
        stream: the stream of its operation.
        operation: id of its operation.
        request: which arrival of the stream it belongs to, from 0.
        kernel: name.
        index: position among the launches of its operation.
        blocks: thread blocks that ran.
        ready_us: time when all its dependencies had ended.
        start_us: its first block was placed.
        dispatched_us: its last block was placed.
        end_us: its last block ended.
        solo_us: isolated time on the whole GPU, launch latency included.
        bound_by: resource that bound its progress most of the time: issue, alu, fma, tensor, lsu, l1, latency,
            l2 or dram; unknown where its recording lacks the counters that would tell.
        waited_us: time from ready to start beyond the launch latency.
        sharing_us: end - ready - waited - solo: interference on SMs and memory (negative: gained).
    """

    stream: str
    operation: str
    request: int
    kernel: str
    index: int
    blocks: int
    ready_us: float
    start_us: float
    dispatched_us: float
    end_us: float
    solo_us: float
    bound_by: str
    waited_us: float
    sharing_us: float


@dataclass(frozen=True, slots=True)
class OperationRun:
    """One operation as replayed: from when its stream and dependencies let it start to its end."""

    stream: str
    operation: str
    request: int
    kind: str
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class RequestRun:
    """One pass through a stream's operations; a stream without arrivals has one, released at 0."""

    stream: str
    request: int
    release_us: float
    start_us: float
    end_us: float


@dataclass(frozen=True, slots=True)
class StreamRun:
    """One stream as replayed.

    Attributes:
        stream: its name.
        priority: of the trace.
        release_us: its first request was released.
        start_us: its first block was placed, or its first copy or host work began; its release, where it has none.
        end_us: its last operation ended; where streams restart, for the first time.
        solo_us: its makespan alone on the whole GPU, from release to end, once.
    """

    stream: str
    priority: int
    release_us: float
    start_us: float
    end_us: float
    solo_us: float

    @property
    def slowdown(self) -> float:
        """Time from release to end (waiting counts) over the solo makespan; 1 where that takes no time."""
        return (self.end_us - self.release_us) / self.solo_us if self.solo_us > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """One program as replayed; times as of `StreamRun`.

    Attributes:
        program: its name.
        streams: names of its streams.
        priority: of its streams; None where they differ.
        release_us: its first request was released.
        start_us: the first of its streams started.
        end_us: the last of its streams ended; where programs restart, for the first time.
        solo_us: its makespan alone on the whole GPU, its streams beside one another, from release to end, once.
    """

    program: str
    streams: tuple[str, ...]
    priority: int | None
    release_us: float
    start_us: float
    end_us: float
    solo_us: float

    @staticmethod
    def of(streams: Sequence[StreamRun], name: str, priority: int | None, solo_us: float) -> ProgramRun:
        """The program of some streams."""
        return ProgramRun(
            name,
            tuple(run.stream for run in streams),
            priority,
            min(run.release_us for run in streams),
            min(run.start_us for run in streams),
            max(run.end_us for run in streams),
            solo_us,
        )

    @property
    def slowdown(self) -> float:
        """Time from release to end (waiting counts) over the makespan alone; 1 where that takes no time."""
        return (self.end_us - self.release_us) / self.solo_us if self.solo_us > 0.0 else 1.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Blocks of one kernel launch on one SM; `run` is the position of its row among the kernels."""

    run: int
    sm: int
    blocks: int
    start_us: float
    end_us: float


Spans = tuple["array[int]", "array[int]", "array[float]", "array[float]"]  # SMs, blocks, starts, ends


class Placements(Sequence[Placement]):
    """Placements launch by launch, kept as columns of numbers: a trace of many kernels has millions of them.

    Launches with equal outcomes may share their columns, with times from the start of each.
    """

    def __init__(self, spans: Iterable[tuple[int, Spans]], from_us: Mapping[int, float] | None = None) -> None:
        """Takes for each launch its row among the kernels, and where its blocks ran.

        Args:
            spans: rows and columns.
            from_us: of rows whose columns have times from the start of the launch, that start.
        """
        self._spans = tuple(spans)
        self._from_us = from_us or {}
        self._ends = list(accumulate(len(columns[0]) for _, columns in self._spans))

    @property
    def launches(self) -> Iterator[tuple[int, Spans]]:
        """Of each launch its index among the kernel runs, and where its blocks ran, column by column."""
        return ((run, self._in_replay(run, columns)) for run, columns in self._spans)

    def moved(self, sms: Sequence[int], rows: Mapping[int, int]) -> Placements:
        """Return the same placements with other numbers of SMs and rows, given for each old number."""
        known: dict[int, array[int]] = {}  # launches share lists of SMs
        for _, columns in self._spans:
            known.setdefault(id(columns[0]), array("i", [sms[sm] for sm in columns[0]]))
        spans = [(rows[run], (known[id(columns[0])], *columns[1:])) for run, columns in self._spans]
        return Placements(spans, {rows[run]: start for run, start in self._from_us.items()})

    @staticmethod
    def joined(several: Iterable[Placements]) -> Placements:
        """Several as one, in the order of their rows."""
        several = list(several)
        spans = sorted((one for each in several for one in each._spans), key=itemgetter(0))
        return Placements(spans, {run: start for each in several for run, start in each._from_us.items()})

    def _in_replay(self, run: int, columns: Spans) -> Spans:
        """Columns with times from the start of the replay."""
        start = self._from_us.get(run)
        return columns if start is None else (*columns[:2], later(columns[2], start), later(columns[3], start))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Placement]:
        for run, columns in self.launches:
            for sm, blocks, start, end in zip(*columns, strict=True):
                yield Placement(run, sm, blocks, start, end)

    @overload
    def __getitem__(self, at: int) -> Placement: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Placement, ...]: ...
    def __getitem__(self, at: int | slice) -> Placement | tuple[Placement, ...]:
        if isinstance(at, slice):
            return tuple(self)[at]
        row = range(len(self))[at]
        launch = bisect_right(self._ends, row)
        run, columns = self._spans[launch]
        sms, blocks, starts, ends = self._in_replay(run, columns)
        row -= self._ends[launch] - len(sms)
        return Placement(run, sms[row], blocks[row], starts[row], ends[row])

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Placements)
            and self._ends == other._ends
            and all(mine == its for mine, its in zip(self.launches, other.launches, strict=True))
        )

    def __hash__(self) -> int:
        return hash(tuple(self._ends))

    def __repr__(self) -> str:
        return f"Placements({tuple(self.launches)!r})"


def later(times: array[float], by_us: float) -> array[float]:
    """Return the times, each shifted by a given amount."""
    return array("d", [by_us + at for at in times])


class Shares(Sequence[tuple[tuple[float, ...], ...]]):
    """Shares of use by SM, bin and use, kept flat; an SM reads as a tuple of bins, a bin as a tuple of uses."""

    def __init__(self, sms: int, bins: int, flat: array[float], scale: tuple[float, ...]) -> None:
        """Take the numbers bin by bin and SM by SM, and a factor for each use. The first ``bins`` count."""
        self._sms, self._bins, self._flat, self._scale = sms, bins, flat, scale
        self._read: dict[int, tuple[tuple[float, ...], ...]] = {}

    def __len__(self) -> int:
        return self._sms

    @overload
    def __getitem__(self, at: int) -> tuple[tuple[float, ...], ...]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[tuple[tuple[float, ...], ...], ...]: ...
    def __getitem__(self, at: int | slice) -> tuple[Any, ...]:
        if isinstance(at, slice):
            return tuple(self[sm] for sm in range(self._sms)[at])
        sm = range(self._sms)[at]
        if sm not in self._read:
            uses = len(self._scale)
            rows = range(sm * uses, self._bins * self._sms * uses, self._sms * uses)
            self._read[sm] = tuple(
                tuple(x * s for x, s in zip(self._flat[row : row + uses], self._scale, strict=True)) for row in rows
            )
        return self._read[sm]

    @staticmethod
    def joined(sms: int, several: Sequence[tuple[Shares, Sequence[int], int]]) -> Shares:
        """Several as one.

        Args:
            sms: how many SMs that has; those of which there is nothing are idle.
            several: of each its SMs' numbers in the whole, and how many of its bins make one: at least once 1.
        """
        import numpy as np

        uses = len(several[0][0]._scale)
        bins = max(-(-shares._bins // times) for shares, _, times in several)
        whole = np.zeros((bins, sms, uses))
        for shares, numbers, times in several:
            flat = np.frombuffer(shares._flat)[: shares._bins * shares._sms * uses]
            padded = np.zeros((bins * times, shares._sms, uses))
            padded[: shares._bins] = flat.reshape(shares._bins, shares._sms, uses)
            whole[:, list(numbers)] = padded.reshape(bins, times, shares._sms, uses).sum(axis=1)
        scale = next(shares._scale for shares, _, times in several if times == 1)
        return Shares(sms, bins, array("d", whole.tobytes()), scale)

    def means(self, use: int) -> list[float]:
        """For each bin the share of one use, mean over the SMs."""
        uses = len(self._scale)
        row = self._sms * uses
        of_all = (self._flat[b * row + use : (b + 1) * row : uses] for b in range(self._bins))
        return [fsum(one) * self._scale[use] / self._sms for one in of_all]

    def totals(self) -> list[float]:
        """For each use the sum over all SMs and bins."""
        uses = len(self._scale)
        return [fsum(self._flat[use::uses]) * self._scale[use] for use in range(uses)]

    def __eq__(self, other: object) -> bool:
        mine = (self._sms, self._bins, self._flat, self._scale)
        return isinstance(other, Shares) and mine == (other._sms, other._bins, other._flat, other._scale)

    def __hash__(self) -> int:
        return hash((self._sms, self._bins, self._scale))

    def __repr__(self) -> str:
        return f"Shares({self._sms}, {self._bins}, {self._flat!r}, {self._scale!r})"


@dataclass(frozen=True, slots=True)
class Usage:
    """Use of every SM over time.

    Attributes:
        bin_us: width of a bin.
        shares: for each SM, each bin and each of `USES`, the share of what there is of it that was used
            (SM x bin x use): registers, shared memory, threads (in warps), block slots and issue slots of the SM;
            for DRAM and L2 the SM's share of the bandwidth that the device sustains times the number of SMs, so that
            the mean over the SMs is the device's.
        unknown: those of `USES` that some kernel's recording lacks the counters for: their shares mean nothing.
    """

    bin_us: float
    shares: Sequence[Sequence[Sequence[float]]]
    unknown: frozenset[str] = frozenset()

    @staticmethod
    def joined(sms: int, several: Sequence[tuple[Usage, Sequence[int]]]) -> Usage:
        """The use of several devices as one of ``sms`` SMs: each with the numbers of its SMs."""
        widest = max(usage.bin_us for usage, _ in several)
        shares = [
            (usage.shares, numbers, round(widest / usage.bin_us))
            for usage, numbers in several
            if isinstance(usage.shares, Shares)
        ]
        unknown = frozenset[str]().union(*(usage.unknown for usage, _ in several))
        return Usage(widest, Shares.joined(sms, shares), unknown)

    def of_device(self, use: str) -> list[float]:
        """For each bin the share of one of `USES` that was used, mean over the SMs."""
        at, sms = USES.index(use), len(self.shares)
        if isinstance(self.shares, Shares):
            return self.shares.means(at)
        bins = len(self.shares[0]) if sms else 0
        return [fsum(self.shares[sm][b][at] for sm in range(sms)) / sms for b in range(bins)]

    def totals(self) -> list[float]:
        """For each of `USES` the sum of its shares over all SMs and bins."""
        if isinstance(self.shares, Shares):
            return self.shares.totals()
        return [fsum(row[use] for bins in self.shares for row in bins) for use in range(len(USES))]


Contents = tuple[tuple[float, tuple[tuple[int, int], ...]], ...]
"""Content of one SM: since when (us), and for each resident kernel its row among the kernels and its blocks."""


@dataclass(frozen=True, repr=False)
class Replayed:
    """One trace replayed on one GPU under one policy.

    Where programs restart, a replay ends when each of them has ended once; `kernel_runs`, `operation_runs` and
    `request_runs` are those that had ended by then.

    Attributes:
        makespan_us: when the last operation ended; where programs restart, when each had ended once.
        notes: remarks on the replay, such as departures from the rule of the policy.
        division: of an oracle, the division that it found, as a policy; else empty.
        passes: where programs restart, how often each ran by then; None where they run once. An unfinished pass counts
            by the share of its work that is done. The work of a kernel is its isolated time, done in proportion to its
            blocks; running blocks count in part. Copies and host work count by their time.
        serial_us: makespan of the same under serial; None where streams restart, or it is not known.
        limits: names of `LIMITS` that the policy applied; none: the kernels shared as the hardware does.
        residents: of each SM what it held from when, ending with nothing; None where that was not asked for.
        program_runs: one for each program; where none are given every stream is one.
    """

    trace: str
    gpu: str
    policy: str
    makespan_us: float
    kernel_runs: tuple[KernelRun, ...]
    operation_runs: tuple[OperationRun, ...]
    request_runs: tuple[RequestRun, ...]
    stream_runs: tuple[StreamRun, ...]
    placements: Placements
    usage: Usage
    notes: tuple[str, ...] = field(default=())
    division: str = ""
    passes: Mapping[str, float] | None = None
    serial_us: float | None = None
    limits: frozenset[str] = frozenset()
    residents: tuple[Contents, ...] | None = None
    program_runs: tuple[ProgramRun, ...] = ()

    def __post_init__(self) -> None:
        """Make one program per stream if none are given."""
        if not self.program_runs:
            runs = (ProgramRun.of((one,), one.stream, one.priority, one.solo_us) for one in self.stream_runs)
            object.__setattr__(self, "program_runs", tuple(runs))

    @property
    def has_programs(self) -> bool:
        """Whether there are several programs, and any of them is more than the stream of its name."""
        return len(self.program_runs) > 1 and any(run.streams != (run.program,) for run in self.program_runs)

    @property
    def stream_titles(self) -> dict[str, str]:
        """Titles of streams in pictures, by name; with the program in front where that differs."""
        shown = self.program_runs if self.has_programs else ()
        program_of = {stream: run.program for run in shown for stream in run.streams}
        titles = {}
        for run in self.stream_runs:
            program = program_of.get(run.stream, run.stream)
            told = run.stream == program or run.stream.startswith(f"{program}/")
            titles[run.stream] = run.stream if told else f"{program}: {run.stream}"
        return titles

    def __repr__(self) -> str:
        """Return the trace, policy and makespan, without the rows."""
        name = type(self).__name__
        return f"{name}(trace={self.trace!r}, policy={self.policy!r}, makespan_us={self.makespan_us:.1f})"
