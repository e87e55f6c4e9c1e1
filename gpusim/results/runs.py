"""Rows of a replay: times, places and use of kernels, operations, requests and streams."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum, prod
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

USES = ("registers", "shared_memory", "threads", "block_slots", "issue_slots", "dram", "l2")
BOUND_TITLES = {  # of what binds a kernel, as people read it
    **{"issue": "issue slots", "tensor": "tensor cores", "latency": "latency", "unknown": "unknown"},
    **{name: name.upper() for name in ("alu", "fma", "lsu", "l1", "l2", "dram")},
}
LIMITS = (  # to which a policy can hold a kernel
    "SMs",  # only some of them
    "blocks",  # fewer on an SM than fit
    "queues",  # several lines of kernels that do not wait for one another
    "shares",  # of an SM's issue slots, of its L1 data path or of DRAM
    "evictions",  # blocks taken off their SM
    "memory slices",  # parts of L2 and DRAM of its own
    "time slices",  # the whole GPU for one process at a time
)


class KernelRun(NamedTuple):
    """One kernel launch as replayed; times in us from the start of the replay."""

    stream: str  # the stream of its operation
    operation: str  # id of its operation
    request: int  # which arrival of the stream it belongs to, from 0
    kernel: str  # name
    index: int  # type: ignore[assignment]  # position among the launches of its operation
    blocks: int  # thread blocks that ran
    ready_us: float  # time when all its dependencies had ended
    start_us: float  # its first block was placed
    dispatched_us: float  # its last block was placed
    end_us: float  # its last block ended
    solo_us: float  # isolated time on the whole GPU, launch latency included
    # resource that bound its progress most of the time: issue, alu, fma, tensor, lsu, l1, latency, l2 or dram;
    # unknown where its recording lacks the counters that would tell
    bound_by: str
    waited_us: float  # time from ready to start beyond the launch latency
    sharing_us: float  # end - ready - waited - solo: interference on SMs and memory (negative: gained)


class OperationRun(NamedTuple):
    """One operation as replayed: from when its stream and dependencies let it start to its end."""

    stream: str
    operation: str
    request: int
    kind: str
    start_us: float
    end_us: float


class RequestRun(NamedTuple):
    """One pass through a stream's operations; a stream without arrivals has one, released at 0."""

    stream: str
    request: int
    release_us: float
    start_us: float
    end_us: float

    @property
    def latency_us(self) -> float:
        """Time from release to end."""
        return self.end_us - self.release_us


class StreamRun(NamedTuple):
    """One stream as replayed."""

    stream: str  # its name
    priority: int  # of the trace
    release_us: float  # its first request was released
    start_us: float  # its first block was placed, or its first copy or host work began; its release, where it has none
    end_us: float  # its last operation ended; where streams restart, for the first time
    solo_us: float  # its makespan alone on the whole GPU, from release to end, once

    @property
    def slowdown(self) -> float:
        """Time from release to end (waiting counts) over the solo makespan; 1 where that takes no time."""
        return (self.end_us - self.release_us) / self.solo_us if self.solo_us > 0.0 else 1.0


class ProgramRun(NamedTuple):
    """One program as replayed; times as of `StreamRun`."""

    program: str  # its name
    streams: tuple[str, ...]  # names of its streams
    priority: int | None  # of its streams; None where they differ
    release_us: float  # its first request was released
    start_us: float  # the first of its streams started
    end_us: float  # the last of its streams ended; where programs restart, for the first time
    solo_us: float  # its makespan alone on the whole GPU, its streams beside one another, from release to end, once

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


class Placements:
    """Placements launch by launch, kept as columns of numbers: a trace of many kernels has millions of them.

    Launches with equal outcomes may share their columns, with times from the start of each.
    """

    def __init__(self, spans: Iterable[tuple[int, Spans]], from_us: Mapping[int, float] | None = None) -> None:
        """Take the row and columns of each launch; times of rows in ``from_us`` count from that start of the launch."""
        self._spans = tuple(spans)
        self._from_us = from_us or {}

    @property
    def launches(self) -> Iterator[tuple[int, Spans]]:
        """Of each launch its index among the kernel runs, and where its blocks ran, column by column."""
        for run, (sms, blocks, starts, ends) in self._spans:
            start = self._from_us.get(run)
            if start is not None:
                starts, ends = later(starts, start), later(ends, start)
            yield run, (sms, blocks, starts, ends)

    def moved(self, sms: Sequence[int], rows: Mapping[int, int]) -> Placements:
        """Return the placements with SMs and rows renumbered; the arguments give the new number of each old one."""
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

    def __len__(self) -> int:
        return sum(len(columns[0]) for _, columns in self._spans)

    def __iter__(self) -> Iterator[Placement]:
        for run, columns in self.launches:
            for sm, blocks, start, end in zip(*columns, strict=True):
                yield Placement(run, sm, blocks, start, end)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placements) and tuple(self.launches) == tuple(other.launches)

    def __repr__(self) -> str:
        return f"Placements({tuple(self.launches)!r})"


def later(times: array[float], by_us: float) -> array[float]:
    """Return the times, each shifted by a given amount."""
    return array("d", [by_us + at for at in times])


@dataclass(frozen=True)
class Usage:
    """Use of every SM over time."""

    bin_us: float  # width of a bin
    sms: int  # how many there are
    bins: int  # how many there are
    flat: array[float]  # use by bin, SM and use (`USES`), in this order; more bins than count may follow
    scale: tuple[float, ...]  # for each use the factor that makes a share of a number in ``flat``
    # those of `USES` that some kernel's recording lacks the counters for: their shares mean nothing
    unknown: frozenset[str] = frozenset()

    @property
    def table(self) -> NDArray[np.float64]:
        """Use by bin, SM and use: ``flat`` in its shape, without the bins that do not count."""
        import numpy as np

        shape = self.bins, self.sms, len(self.scale)
        return np.array(self.flat)[: prod(shape)].reshape(shape)

    @cached_property
    def shares(self) -> list[list[list[float]]]:
        """The used share of each of `USES`, for each SM and each bin of time.

        Registers, shared memory, threads (in warps), block slots and issue slots are those of the SM. For DRAM and L2
        it is the SM's share of the device's sustained bandwidth, times the number of SMs. The mean over the SMs is
        then that of the device.
        """
        found: list[list[list[float]]] = (self.table * self.scale).swapaxes(0, 1).tolist()
        return found

    @staticmethod
    def joined(sms: int, several: Sequence[tuple[Usage, Sequence[int]]]) -> Usage:
        """The use of several devices as one of ``sms`` SMs: each with the numbers of its SMs; the others are idle."""
        import numpy as np

        widest = max((usage for usage, _ in several), key=lambda usage: usage.bin_us)
        uses = len(widest.scale)
        times = [round(widest.bin_us / usage.bin_us) for usage, _ in several]  # bins of each that make one
        bins = max(-(-usage.bins // n) for (usage, _), n in zip(several, times, strict=True))
        whole = np.zeros((bins, sms, uses))
        for (usage, numbers), n in zip(several, times, strict=True):
            padded = np.zeros((bins * n, usage.sms, uses))
            padded[: usage.bins] = usage.table
            whole[:, list(numbers)] = padded.reshape(bins, n, usage.sms, uses).sum(axis=1)
        unknown = frozenset[str]().union(*(usage.unknown for usage, _ in several))
        return Usage(widest.bin_us, sms, bins, array("d", whole.tobytes()), widest.scale, unknown)

    def of_device(self, use: str) -> list[float]:
        """For each bin the share of one of `USES` that was used, mean over the SMs."""
        at = USES.index(use)
        return [fsum(one) * self.scale[at] / self.sms for one in self.table[:, :, at].tolist()]

    def totals(self) -> list[float]:
        """For each of `USES` the sum of its shares over all SMs and bins."""
        uses = len(self.scale)
        return [fsum(self.flat[use::uses]) * self.scale[use] for use in range(uses)]


# Content of one SM: since when (us), and for each resident kernel its row among the kernels and its blocks.
Contents = tuple[tuple[float, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True, repr=False)
class Replayed:
    """One trace replayed on one GPU under one policy.

    Where programs restart, a replay ends when each of them has ended as often as was asked; `kernel_runs`,
    `operation_runs` and `request_runs` are those that had ended by then.
    """

    trace: str
    gpu: str
    policy: str
    makespan_us: float  # when the last operation ended; where programs restart, when each had ended so often
    kernel_runs: tuple[KernelRun, ...]
    operation_runs: tuple[OperationRun, ...]
    request_runs: tuple[RequestRun, ...]
    stream_runs: tuple[StreamRun, ...]
    placements: Placements
    usage: Usage
    notes: tuple[str, ...] = ()  # remarks on the replay, such as departures from the rule of the policy
    division: str = ""  # of an oracle, the division that it found, as a policy; else empty
    # where programs restart, how often each ran by then; None where they run once. An unfinished pass counts by the
    # share of its work that is done. The work of a kernel is its isolated time, done in proportion to its blocks;
    # running blocks count in part. Copies and host work count by their time.
    passes: Mapping[str, float] | None = None
    serial_us: float | None = None  # makespan of the same under serial; None where streams restart, or it is not known
    limits: frozenset[str] = frozenset()  # those of `LIMITS` that the policy applied; none: shared as the hardware does
    residents: tuple[Contents, ...] | None = None  # what each SM held from when, ending with nothing, if asked for
    program_runs: tuple[ProgramRun, ...] = ()  # one for each program

    @property
    def has_programs(self) -> bool:
        """Whether there are several programs, and any of them is more than the stream of its name."""
        return len(self.program_runs) > 1 and any(run.streams != (run.program,) for run in self.program_runs)

    @cached_property
    def program_of(self) -> dict[str, str]:
        """The program of each stream, by name."""
        return {stream: run.program for run in self.program_runs for stream in run.streams}

    @property
    def stream_titles(self) -> dict[str, str]:
        """Titles of streams in pictures, by name; with the program in front where that differs."""
        titles = {run.stream: run.stream for run in self.stream_runs}
        for stream in titles if self.has_programs else ():
            program = self.program_of[stream]
            if stream != program and not stream.startswith(f"{program}/"):
                titles[stream] = f"{program}: {stream}"
        return titles

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(trace={self.trace!r}, policy={self.policy!r}, makespan_us={self.makespan_us:.1f})"
