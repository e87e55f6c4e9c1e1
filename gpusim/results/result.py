"""Result of a replay: its rows, the rows as DataFrames, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gpusim.results.metrics import metrics
from gpusim.results.runs import KernelRun, OperationRun, ProgramRun, Replayed, RequestRun, StreamRun

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Result(Replayed):
    """One trace replayed on one GPU under one policy: `gpusim.results.runs.Replayed`, DataFrames and metrics."""

    @cached_property
    def kernels(self) -> pd.DataFrame:
        """Table with one row per kernel launch; columns as `KernelRun`."""
        return _frame(KernelRun, self.kernel_runs)

    @cached_property
    def operations(self) -> pd.DataFrame:
        """Table with one row per operation; columns as `OperationRun`."""
        return _frame(OperationRun, self.operation_runs)

    @cached_property
    def requests(self) -> pd.DataFrame:
        """Table with one row per request; columns as `RequestRun`, and `latency_us`."""
        return _frame(RequestRun, self.request_runs, "latency_us")

    @cached_property
    def streams(self) -> pd.DataFrame:
        """Table with one row per stream, indexed by its name; columns as `StreamRun`, and `slowdown`."""
        return _frame(StreamRun, self.stream_runs, "slowdown").set_index("stream")

    @cached_property
    def programs(self) -> pd.DataFrame:
        """Table with one row per program, indexed by its name; columns as `ProgramRun`, and `slowdown`."""
        return _frame(ProgramRun, self.program_runs, "slowdown").set_index("program")

    @cached_property
    def metrics(self) -> Mapping[str, float | None]:
        """Speedup, slowdowns, utilisation; STP, ANTT, fairness where programs restart; see `gpusim.results.metrics`."""
        return metrics(self)


def _frame(row: type[Any], rows: tuple[Any, ...], *properties: str) -> pd.DataFrame:
    import pandas as pd

    names = [*row._fields, *properties]
    return pd.DataFrame({name: [getattr(r, name) for r in rows] for name in names}, columns=names)
