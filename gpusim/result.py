"""What a replay gives: runs as plain rows, and the same as DataFrames for whoever wants to compute."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    import pandas as pd

USES = ("registers", "shared_memory", "threads", "block_slots", "issue_slots", "dram")


@dataclass(frozen=True, slots=True)
class KernelRun:
    """One kernel launch as replayed; times in us from the start of the replay.

    Attributes:
        stream: the stream of its operation.
        operation: id of its operation.
        request: which arrival of the stream it belongs to, from 0.
        kernel: name.
        index: position among the launches of its operation.
        blocks: thread blocks that ran: those of the launch, or as many as a persistent kernel launched on its SMs.
        ready_us: everything that it waits for had ended.
        start_us: its first block was placed.
        dispatched_us: its last block was placed.
        end_us: its last block ended.
        solo_us: what it takes alone on the whole GPU, launch latency included.
        bound_by: resource that bound its progress most of the time: issue, alu, fma, tensor, lsu, l1, latency,
            l2 or dram.
        waited_us: time from ready to start beyond the launch latency.
        sharing_us: end - ready - waited - solo: what sharing SMs and memory cost it (negative: gained).
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
        start_us: its first block was placed, or its first copy or host work began.
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
class Placement:
    """Blocks of one kernel launch on one SM; `run` is the position of its row among the kernels."""

    run: int
    sm: int
    blocks: int
    start_us: float
    end_us: float


Spans = tuple["array[int]", "array[int]", "array[float]", "array[float]"]  # SMs, blocks, starts, ends


class Placements(Sequence[Placement]):
    """Placements launch by launch, kept as columns of numbers: a trace of many kernels has millions of them."""

    def __init__(self, spans: Iterable[tuple[int, Spans]]) -> None:
        """Takes for each launch its row among the kernels, and where its blocks ran."""
        self._spans = tuple(spans)
        self._ends = list(accumulate(len(columns[0]) for _, columns in self._spans))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Placement]:
        for run, columns in self._spans:
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
        run, (sms, blocks, starts, ends) = self._spans[launch]
        row -= self._ends[launch] - len(sms)
        return Placement(run, sms[row], blocks[row], starts[row], ends[row])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Placements) and self._spans == other._spans

    def __hash__(self) -> int:
        return hash(tuple(self._ends))

    def __repr__(self) -> str:
        return f"Placements({self._spans!r})"


class Shares(Sequence[tuple[tuple[float, ...], ...]]):
    """Shares of use by SM, bin and use, kept flat; an SM reads as a tuple of bins, a bin as a tuple of uses."""

    def __init__(self, sms: int, bins: int, stride: int, flat: array[float], scale: tuple[float, ...]) -> None:
        """Takes the numbers SM by SM, ``stride`` bins each of which ``bins`` count, and a factor for each use."""
        self._sms, self._bins, self._stride, self._flat, self._scale = sms, bins, stride, flat, scale
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
            first = sm * self._stride * uses
            self._read[sm] = tuple(
                tuple(x * s for x, s in zip(self._flat[b : b + uses], self._scale, strict=True))
                for b in range(first, first + self._bins * uses, uses)
            )
        return self._read[sm]

    def totals(self) -> list[float]:
        """For each use the sum over all SMs and bins."""
        uses = len(self._scale)
        return [sum(self._flat[use::uses]) * self._scale[use] for use in range(uses)]

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
            for DRAM the SM's share of the device's bandwidth times the number of SMs, so that the mean over the
            SMs is the device's.
    """

    bin_us: float
    shares: Sequence[Sequence[Sequence[float]]]

    def totals(self) -> list[float]:
        """For each of `USES` the sum of its shares over all SMs and bins."""
        if isinstance(self.shares, Shares):
            return self.shares.totals()
        return [sum(row[use] for bins in self.shares for row in bins) for use in range(len(USES))]


@dataclass(frozen=True)
class Result:
    """One trace replayed on one GPU under one policy.

    Where streams restart, a replay ends when each of them has ended once; `kernel_runs`, `operation_runs` and
    `request_runs` are those that had ended by then.

    Attributes:
        makespan_us: when the last operation ended; where streams restart, when each had ended once.
        notes: what a reader should know of how it came about.
        division: of an oracle, the division that it found, as a policy; else empty.
        passes: where streams restart, how often each ran by then; None where they run once. A pass under way counts
            by the share of its work that is done. Its work is that of its kernels, each weighted by its time alone
            and done as far as its blocks are (those that still run, by what they have done), and the time of its
            copies and host work.
        serial_us: gives the makespan of the same under serial, run once; None where that is not known.
    """

    trace: str
    gpu: str
    policy: str
    makespan_us: float
    kernel_runs: tuple[KernelRun, ...]
    operation_runs: tuple[OperationRun, ...]
    request_runs: tuple[RequestRun, ...]
    stream_runs: tuple[StreamRun, ...]
    placements: Sequence[Placement]
    usage: Usage
    notes: tuple[str, ...] = field(default=())
    division: str = ""
    passes: Mapping[str, float] | None = None
    serial_us: Callable[[], float] | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which has no kernels to replay serial with."""
        return {**self.__dict__, "serial_us": None}

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """One row a kernel launch, columns as `KernelRun`."""
        return _frame(KernelRun, self.kernel_runs)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """One row an operation, columns as `OperationRun`."""
        return _frame(OperationRun, self.operation_runs)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row a request, columns as `RequestRun` and `latency_us`."""
        frame = _frame(RequestRun, self.request_runs)
        frame["latency_us"] = frame["end_us"] - frame["release_us"]
        return frame

    @cached_property
    def streams(self) -> pd.DataFrame:
        """One row a stream, indexed by its name, columns as `StreamRun` and `slowdown`."""
        frame = _frame(StreamRun, self.stream_runs).set_index("stream")
        frame["slowdown"] = [run.slowdown for run in self.stream_runs]
        return frame

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Speedup, slowdowns, utilisation; STP, ANTT, fairness where streams restart; see `gpusim.metrics`."""
        from gpusim.metrics import metrics

        return metrics(self)


def _frame(row: type[Any], rows: tuple[Any, ...]) -> pd.DataFrame:
    import pandas as pd

    names = [column.name for column in fields(row)]
    return pd.DataFrame({name: [getattr(r, name) for r in rows] for name in names}, columns=names)
