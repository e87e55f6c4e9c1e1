"""What a replay gives: runs as plain rows, and the same as DataFrames for whoever wants to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any

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
        blocks: thread blocks.
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
        end_us: its last operation ended.
        solo_us: its makespan alone on the whole GPU, from release to end.
    """

    stream: str
    priority: int
    release_us: float
    start_us: float
    end_us: float
    solo_us: float

    @property
    def progress(self) -> float:
        """Normalised progress: solo makespan over the time from release to end (waiting counts)."""
        taken = self.end_us - self.release_us
        return self.solo_us / taken if taken > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Placement:
    """Blocks of one kernel launch on one SM; `run` is the position of its row among the kernels."""

    run: int
    sm: int
    blocks: int
    start_us: float
    end_us: float


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
    shares: tuple[tuple[tuple[float, ...], ...], ...]


@dataclass(frozen=True)
class Result:
    """One trace replayed on one GPU under one policy."""

    trace: str
    gpu: str
    policy: str
    makespan_us: float
    kernel_runs: tuple[KernelRun, ...]
    operation_runs: tuple[OperationRun, ...]
    request_runs: tuple[RequestRun, ...]
    stream_runs: tuple[StreamRun, ...]
    placements: tuple[Placement, ...]
    usage: Usage
    notes: tuple[str, ...] = field(default=())

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
        """One row a stream, indexed by its name, columns as `StreamRun` and `progress`."""
        frame = _frame(StreamRun, self.stream_runs).set_index("stream")
        frame["progress"] = [run.progress for run in self.stream_runs]
        return frame

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """STP, ANTT, fairness, utilisation and, with arrivals, latency percentiles; see `gpusim.metrics`."""
        from gpusim.metrics import metrics

        return metrics(self)


def _frame(row: type[Any], rows: tuple[Any, ...]) -> pd.DataFrame:
    import pandas as pd

    names = [column.name for column in fields(row)]
    return pd.DataFrame({name: [getattr(r, name) for r in rows] for name in names}, columns=names)
