"""Interference of kernels that load one resource each, measured and predicted: `experiments/resource_matrix`.

`gpusim record microbench --matrix --counters` ran every kernel isolated and every pair of them, on the same SMs and on
disjoint halves of the SMs, in both orders. A prediction uses the counters and times of the two kernels isolated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.scaling import confined_us
from gpusim.common.cores import in_order
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import recorded_rows
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.io.ncu import launch_from_counters
from gpusim.lab.dataset import Row
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Host, Kernel, Stream

PAIRS, ISOLATED, COUNTERS = "pairs.csv.gz", "isolated.csv.gz", "counters.csv.gz"
SAME, DISJOINT = "same", "disjoint"
PLACEMENTS = {SAME: "the same SMs", DISJOINT: "disjoint SMs"}


def recorded_gpus(folder: Path) -> list[Path]:
    """The folders of a resource matrix, one GPU each, named after it; none where it holds none."""
    return [
        path
        for path in (folder, *sorted((folder / "data").glob("*")))
        if (path / PAIRS).is_file() and (path / ISOLATED).is_file()
    ]


def score_matrix(folders: Sequence[Path], jobs: int | None = None) -> list[Point]:
    """Every kernel of every pair, predicted and measured; ``folders`` are of one GPU each, named after it."""
    return [point for recorded in in_order(points, folders, jobs) for point in recorded]


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel beside another, measured and predicted."""

    gpu: str  # that was measured
    kernel: str  # name and warps per scheduler
    beside: str  # the other kernel
    placement: str  # same or disjoint SMs
    order: str  # first or second: whether its blocks are the older ones
    shared: float  # part of the kernel's time in which the other one ran
    co_resident: float  # part of its SMs that also had blocks of the other
    measured: float  # its time over its isolated time on the same SMs, the median of the runs
    predicted: float  # the same
    while_both: float  # measured slowdown over the time in which both ran

    @property
    def error_percent(self) -> float:
        """Error of the predicted slowdown."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of the kernels that load one resource beside those that load another."""

    gpu: str  # that was measured
    placement: str  # same or disjoint SMs
    resource: str  # that the kernel loads
    beside: str  # that the other kernel loads
    kernels: int  # kernels beside kernels, in both orders
    measured: float  # mean slowdown
    predicted: float  # the same
    mape_percent: float  # mean absolute error
    bias_percent: float  # mean error with its sign
    p95_percent: float  # 95th percentile of the absolute errors


# ---- measured --------------------------------------------------------------------------------------------------------


class Matrix:
    """The recording of one GPU: the tables of a folder."""

    def __init__(self, folder: Path, gpu: GPU) -> None:
        self.gpu = gpu
        self._isolated = _medians(folder / ISOLATED, ("kernel", "placement"), ("us", "sms", "done_1_us"))
        counted = _table(folder / COUNTERS, ("kernel", "Kernel Name", "launch__grid_size"))
        # each kernel as profiled, with the duration that it has isolated
        self.launches = {row["kernel"]: self._launch(row) for row in counted}
        pairs = _medians(folder / PAIRS, ("first", "second", "placement"), ("first_end_us", "shared_sms"))
        # the medians of the runs of each pair in each order and placement
        self.pairs = {pair: run for pair, run in pairs.items() if {*pair[:2]} <= self.launches.keys()}
        # when the second of a pair can start, after the first: as on the median, since some wait for room
        self.later_us = median(run["second_start_us"] for run in self.pairs.values()) if self.pairs else 0.0

    def us(self, kernel: str, part: str) -> float:
        """Isolated time on all SMs, or on the first or second half of them."""
        return self._isolated[kernel, part]["us"]

    def sms(self, kernel: str, part: str) -> int:
        """SMs that it ran on."""
        return int(self._isolated[kernel, part]["sms"])

    def done_us(self, kernel: str, part: str, done: float) -> float:
        """When a part of its work is done, isolated."""
        times = [0.0, *(us for name, us in self._isolated[kernel, part].items() if name.startswith("done_"))]
        return float(np.interp(done * (len(times) - 1), range(len(times)), times))

    def _launch(self, row: Row) -> KernelLaunch:
        counters = {name: value for name, value in row.items() if value and value != "n/a"}
        launch = launch_from_counters(counters, self.gpu.sm_count)
        us = self.us(row["kernel"], "all") + self.gpu.model.launch_latency_us
        return launch.model_copy(update={"name": row["kernel"], "duration_us": us})


def _table(path: Path, columns: Sequence[str]) -> Sequence[Row]:
    expected = "what gpusim record microbench --matrix --counters writes"
    return [row for _, row in recorded_rows(path, columns, expected)]


def _medians(path: Path, names: Sequence[str], columns: Sequence[str]) -> dict[tuple[str, ...], dict[str, float]]:
    """Medians of the columns of a table over the rows with the same names; ``columns``: some that it must have."""
    import pandas as pd

    table = pd.DataFrame(_table(path, (*names, *columns))).set_index([*names]).astype(float)
    found: dict[Any, dict[Any, float]] = table.groupby(level=[*names], sort=False).median().to_dict("index")
    return found


# ---- predicted -------------------------------------------------------------------------------------------------------


def points(folder: Path) -> list[Point]:
    """Every kernel of every pair that was recorded on a GPU, which the folder is named after."""
    return list(matrix_points(Matrix(folder, load_gpu(folder.name))))


def matrix_points(matrix: Matrix) -> Iterator[Point]:
    """Every kernel of every pair of a recording."""
    kernels, session = Kernels(matrix.gpu, matrix.gpu), Session(matrix.gpu, matrix.gpu)

    @cache
    def alone_us(kernel: str, sms: int) -> float:
        model = kernels.model(matrix.launches[kernel], kernel)
        return confined_us(model, sms, matrix.gpu) - model.latency_us

    for (first, second, placement), run in tracked(matrix.pairs.items(), len(matrix.pairs), matrix.gpu.name):
        parts = ("all", "all") if placement == SAME else ("first", "second")
        sms = [matrix.sms(kernel, part) for kernel, part in zip((first, second), parts, strict=True)]
        starts = 0.0, run["second_start_us"]
        ends = run["first_end_us"], run["second_end_us"]
        overlap = max(0.0, min(ends) - max(starts))
        predicted = predicted_us(matrix, session, (first, second), placement, sms)
        for i, (kernel, beside, order) in enumerate(((first, second, "first"), (second, first, "second"))):
            us = ends[i] - starts[i]
            before, after = (matrix.done_us(kernel, parts[i], run[f"{order}_done_{at}"]) for at in ("before", "after"))
            yield Point(
                matrix.gpu.name,
                kernel,
                beside,
                placement,
                order,
                overlap / us,
                run["shared_sms"] / run[f"{order}_sms"],
                us / matrix.us(kernel, parts[i]),
                predicted[i] / alone_us(kernel, sms[i]),
                overlap / (after - before) if after > before else 1.0,
            )


def predicted_us(
    matrix: Matrix, session: Session, pair: tuple[str, str], placement: str, sms: Sequence[int]
) -> tuple[float, float]:
    """Times of two kernels, the first the older, from the first block's start to the last one's end.

    ``sms`` are those of each, where they are disjoint.
    """
    late = Host(id="late", kind="host", what="other", duration_us=max(0.0, matrix.later_us))
    launches = [
        Kernel(id=name, kind="kernel", kernel=matrix.launches[kernel]) for name, kernel in zip("ab", pair, strict=True)
    ]
    streams = (Stream(name="a", operations=(launches[0],)), Stream(name="b", operations=(late, launches[1])))
    trace = Trace(version=1, name=" + ".join(pair), device=matrix.gpu.name, streams=streams)
    policy = "leftover" if placement == SAME else f"inter-sm:sms={sms[0]}+{sms[1]}"
    result = session.replay(trace, policy, keep=())
    times = {run.stream: run.end_us - run.start_us for run in result.kernel_runs}
    return times["a"], times["b"]


# ---- scores ----------------------------------------------------------------------------------------------------------


def errors_of(name: tuple[str, str, str, str], rows: Sequence[Point]) -> Errors:
    """The errors of some kernels; ``name``: the first four columns."""
    errors = [row.error_percent for row in rows]
    sizes = [abs(error) for error in errors]
    mean = fmean(row.measured for row in rows), fmean(row.predicted for row in rows)
    return Errors(*name, len(rows), *mean, fmean(sizes), fmean(errors), float(np.percentile(sizes, 95)))


def totals(rows: Sequence[Point]) -> list[Errors]:
    """The errors of each GPU and placement."""
    groups = grouped(rows, lambda row: (row.gpu, row.placement))
    return [errors_of((*name, "all", "all"), mine) for name, mine in groups.items()]
