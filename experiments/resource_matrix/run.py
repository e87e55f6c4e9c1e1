"""What kernels that load one resource each do to one another, measured and predicted.

`python experiments/resource_matrix/run.py [--out DIR]`

`gpusim record microbench --matrix --counters` ran kernels that load one resource each, isolated and every pair of them,
on the same SMs and on disjoint halves of the SMs, in both orders (`data/GPU/`). Each pair is replayed here from the
counters and times of its two kernels isolated. It writes README.md, result.csv.gz, by_resource.csv and heat_GPU.png
beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean, median

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import gpusim
from experiments.markdown import table
from experiments.study import Run, Study
from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.scaling import confined_us
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import recorded_rows
from gpusim.hardware.gpu import GPU
from gpusim.io.ncu import launch_from_counters
from gpusim.lab.record.matrix import RESOURCES
from gpusim.results.plots import new_figure, save_figure
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Host, Kernel, Stream

DATA = Path(__file__).resolve().parent / "data"
GPUS = ("h200", "h100-sxm")
SAME, DISJOINT = "same", "disjoint"
PLACEMENTS = {SAME: "the same SMs", DISJOINT: "disjoint SMs"}
WORST = 20
MOST_SHOWN = 4.0  # slowdown, in the heat map

Row = dict[str, str]


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel beside another, measured and predicted.

    Attributes:
        gpu: that was measured.
        kernel: name and warps per scheduler.
        beside: the other kernel.
        placement: same or disjoint SMs.
        order: first or second: whether its blocks are the older ones.
        shared: part of the kernel's time in which the other one ran.
        co_resident: part of its SMs that also had blocks of the other.
        measured: its time over its isolated time on the same SMs, the median of the runs.
        predicted: the same.
        while_both: measured slowdown over the time in which both ran.
    """

    gpu: str
    kernel: str
    beside: str
    placement: str
    order: str
    shared: float
    co_resident: float
    measured: float
    predicted: float
    while_both: float

    @property
    def error_percent(self) -> float:
        """Error of the predicted slowdown."""
        return 100.0 * (self.predicted / self.measured - 1.0)

    @property
    def resources(self) -> tuple[str, str]:
        """What the kernel and the other one load."""
        return _resource(self.kernel), _resource(self.beside)


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of the kernels that load one resource beside those that load another.

    Attributes:
        gpu: that was measured.
        placement: same or disjoint SMs.
        resource: that the kernel loads.
        beside: that the other kernel loads.
        kernels: kernels beside kernels, in both orders.
        measured: mean slowdown.
        predicted: the same.
        mape_percent: mean absolute error.
        bias_percent: mean error with its sign.
        p95_percent: 95th percentile of the absolute errors.
    """

    gpu: str
    placement: str
    resource: str
    beside: str
    kernels: int
    measured: float
    predicted: float
    mape_percent: float
    bias_percent: float
    p95_percent: float


def _resource(kernel: str) -> str:
    return RESOURCES[kernel.split("/")[0]]


# ---- measured --------------------------------------------------------------------------------------------------------


class Matrix:
    """What was recorded on one GPU.

    Args:
        folder: its tables.
        gpu: the GPU.
    """

    def __init__(self, folder: Path, gpu: GPU) -> None:
        self.gpu = gpu
        self._isolated: dict[tuple[str, str], list[Row]] = {}
        for row in _table(folder / "isolated.csv.gz", ("kernel", "placement", "us", "sms", "done_1_us")):
            self._isolated.setdefault((row["kernel"], row["placement"]), []).append(row)
        counted = _table(folder / "counters.csv.gz", ("kernel", "Kernel Name", "launch__grid_size"))
        self._launches = {row["kernel"]: self._launch(row) for row in counted}
        self._pairs = _table(folder / "pairs.csv.gz", ("first", "second", "placement", "first_end_us", "shared_sms"))

    def launch(self, kernel: str) -> KernelLaunch:
        """A kernel as profiled, with the duration that it has isolated."""
        return self._launches[kernel]

    def us(self, kernel: str, part: str) -> float:
        """Isolated time on all SMs, or on the first or second half of them."""
        return median(float(row["us"]) for row in self._isolated[kernel, part])

    def sms(self, kernel: str, part: str) -> int:
        """SMs that it ran on."""
        return int(self._isolated[kernel, part][0]["sms"])

    def done_us(self, kernel: str, part: str, done: float) -> float:
        """When a part of its work is done, isolated."""
        rows = self._isolated[kernel, part]
        steps = [name for name in rows[0] if name.startswith("done_")]
        times = [0.0, *(median(float(row[name]) for row in rows) for name in steps)]
        return float(np.interp(done, np.linspace(0.0, 1.0, len(times)), times))

    def pairs(self) -> list[tuple[str, str, str, Row]]:
        """Each pair in each order and placement, with the medians of its runs."""
        found = []
        for (first, second, placement), rows in groupby(
            self._pairs, lambda row: (row["first"], row["second"], row["placement"])
        ):
            runs = list(rows)
            if first in self._launches and second in self._launches:
                numbers = [name for name in runs[0] if name not in ("first", "second", "placement", "run")]
                middle = {name: str(median(float(run[name]) for run in runs)) for name in numbers}
                found.append((first, second, placement, middle))
        return found

    def _launch(self, row: Row) -> KernelLaunch:
        counters = {name: value for name, value in row.items() if value and value != "n/a"}
        launch = launch_from_counters(counters, self.gpu.sm_count)
        us = self.us(row["kernel"], "all") + self.gpu.model.launch_latency_us
        return launch.model_copy(update={"name": row["kernel"], "duration_us": us})


def _table(path: Path, columns: tuple[str, ...]) -> list[Row]:
    return recorded_rows(path, columns, "what gpusim record microbench --matrix --counters writes")


# ---- predicted -------------------------------------------------------------------------------------------------------


def points(folder: Path) -> list[Point]:
    """Every kernel of every pair that was recorded on a GPU, which the folder is named after."""
    return list(_points(Matrix(folder, gpusim.load_gpu(folder.name))))


def _points(matrix: Matrix) -> Iterator[Point]:
    kernels, session = Kernels(matrix.gpu, matrix.gpu), Session(matrix.gpu, matrix.gpu)
    alone: dict[tuple[str, int], float] = {}

    def alone_us(kernel: str, sms: int) -> float:
        if (kernel, sms) not in alone:
            model = kernels.model(matrix.launch(kernel), kernel)
            alone[kernel, sms] = confined_us(model, sms, matrix.gpu) - model.latency_us
        return alone[kernel, sms]

    pairs = matrix.pairs()
    for first, second, placement, run in tracked(pairs, len(pairs), matrix.gpu.name):
        parts = ("all", "all") if placement == SAME else ("first", "second")
        sms = [matrix.sms(kernel, part) for kernel, part in zip((first, second), parts, strict=True)]
        starts = 0.0, float(run["second_start_us"])
        ends = float(run["first_end_us"]), float(run["second_end_us"])
        overlap = max(0.0, min(ends) - max(starts))
        predicted = predicted_us(matrix, session, (first, second), starts[1], placement, sms)
        for i, (kernel, beside, order) in enumerate(((first, second, "first"), (second, first, "second"))):
            us = ends[i] - starts[i]
            before, after = (
                matrix.done_us(kernel, parts[i], float(run[f"{order}_done_{at}"])) for at in ("before", "after")
            )
            yield Point(
                matrix.gpu.name,
                kernel,
                beside,
                placement,
                order,
                overlap / us,
                float(run["shared_sms"]) / float(run[f"{order}_sms"]),
                us / matrix.us(kernel, parts[i]),
                predicted[i] / alone_us(kernel, sms[i]),
                overlap / (after - before) if after > before else 1.0,
            )


def predicted_us(
    matrix: Matrix, session: Session, pair: tuple[str, str], later_us: float, placement: str, sms: Sequence[int]
) -> tuple[float, float]:
    """Times of two kernels, from the first block's start to the last one's end.

    Args:
        matrix: what was recorded.
        session: where they are replayed.
        pair: the kernels, the first the older.
        later_us: that the second is there.
        placement: same or disjoint SMs.
        sms: of each, where these are disjoint.
    """
    late = Host(id="late", kind="host", what="other", duration_us=max(0.0, later_us))
    launches = [
        Kernel(id=name, kind="kernel", kernel=matrix.launch(kernel)) for name, kernel in zip("ab", pair, strict=True)
    ]
    streams = (Stream(name="a", operations=(launches[0],)), Stream(name="b", operations=(late, launches[1])))
    trace = Trace(version=1, name=" + ".join(pair), device=matrix.gpu.name, streams=streams)
    policy = "leftover" if placement == SAME else f"inter-sm:sms={sms[0]}+{sms[1]}"
    result = session.replay(trace, policy, keep=())
    times = {row.stream: row.end_us - row.start_us for row in result.kernels.itertuples()}
    return times["a"], times["b"]


# ---- scores ----------------------------------------------------------------------------------------------------------


def errors_of(name: tuple[str, str, str, str], rows: Sequence[Point]) -> Errors:
    """The errors of some kernels; ``name``: the first four columns."""
    errors = [row.error_percent for row in rows]
    sizes = [abs(error) for error in errors]
    mean = fmean(row.measured for row in rows), fmean(row.predicted for row in rows)
    return Errors(*name, len(rows), *mean, fmean(sizes), fmean(errors), float(np.percentile(sizes, 95)))


def by_resource(rows: Iterable[Point]) -> list[Errors]:
    """The errors of each pair of resources, the largest first within a GPU and placement."""
    groups: dict[tuple[str, str, str, str], list[Point]] = {}
    for row in rows:
        groups.setdefault((row.gpu, row.placement, *row.resources), []).append(row)
    found = [errors_of(name, mine) for name, mine in groups.items()]
    return sorted(found, key=lambda one: (GPUS.index(one.gpu), one.placement != SAME, -one.mape_percent))


def totals(rows: Sequence[Point]) -> list[Errors]:
    """The errors of each GPU and placement."""
    names = dict.fromkeys((row.gpu, row.placement) for row in rows)
    return [
        errors_of((*name, "all", "all"), [row for row in rows if (row.gpu, row.placement) == name]) for name in names
    ]


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Point], errors: Sequence[Errors]) -> dict[str, object]:
    """What the page says."""
    summary = [(one.gpu, PLACEMENTS[one.placement], str(one.kernels), *_percents(one)) for one in totals(rows)]
    worst = [
        (
            one.gpu,
            PLACEMENTS[one.placement],
            one.resource,
            one.beside,
            f"{one.measured:.2f}",
            f"{one.predicted:.2f}",
            *_percents(one),
        )
        for one in sorted(errors, key=lambda one: -one.mape_percent * one.kernels)[:WORST]
    ]
    titles = ("mean error", "bias", "95th percentile")
    return {
        "totals": table(("GPU", "kernels on", "kernels beside kernels", *titles), summary),
        "worst": WORST,
        "worst_table": table(
            ("GPU", "kernels on", "kernel loads", "other loads", "measured", "predicted", *titles), worst
        ),
    }


def _percents(one: Errors) -> tuple[str, str, str]:
    return f"{one.mape_percent:.1f} %", f"{one.bias_percent:+.1f} %", f"{one.p95_percent:.0f} %"


def draw(gpu: str, rows: Sequence[Point], _: Sequence[Errors], path: Path) -> None:
    """Slowdowns of every kernel (row) beside every other (column), measured beside predicted; mean of both orders."""
    with new_figure(13.0, 12.0) as figure:
        _draw(figure, [row for row in rows if row.gpu == gpu])
        save_figure(figure, path)


def _draw(figure: Figure, rows: Sequence[Point]) -> None:
    names = sorted({row.kernel for row in rows}, key=_place)
    axes = figure.subplots(2, 2, squeeze=False)
    for line, (placement, words) in zip(axes, PLACEMENTS.items(), strict=True):
        mine = [row for row in rows if row.placement == placement]
        for one, kind in zip(line, ("measured", "predicted"), strict=True):
            slowdowns: dict[tuple[str, str], list[float]] = {}
            for row in mine:
                slowdowns.setdefault((row.kernel, row.beside), []).append(getattr(row, kind))
            image = one.imshow(_grid(names, slowdowns), cmap="magma_r", vmin=1.0, vmax=MOST_SHOWN)
            one.set_title(f"{kind}, on {words}", fontsize=9)
            one.set_xticks(range(len(names)), names, rotation=90, fontsize=4)
            one.set_yticks(range(len(names)), names, fontsize=4)
            figure.colorbar(image, ax=one, shrink=0.6, label="slowdown of the kernel at the left")
    figure.tight_layout()


def _place(kernel: str) -> tuple[int, int]:
    name, warps = kernel.split("/")
    return list(RESOURCES).index(name), int(warps)


def _grid(names: Sequence[str], slowdowns: Mapping[tuple[str, str], Sequence[float]]) -> NDArray[np.float64]:
    return np.array([[fmean(slowdowns.get((a, b), [np.nan])) for b in names] for a in names])


def rows(run: Run) -> dict[str, list[Point] | list[Errors]]:
    """Every kernel of every pair, and the errors of each pair of resources."""
    with ProcessPoolExecutor(run.jobs) as pool:
        found = [point for recorded in pool.map(points, [DATA / gpu for gpu in GPUS]) for point in recorded]
    for one in totals(found):
        mean, bias, most = _percents(one)
        where = f"{one.gpu}, {PLACEMENTS[one.placement]}"
        print(f"{where}: mean error {mean} (bias {bias}, 95th percentile {most}), {one.kernels} kernels beside kernels")
    return {"result.csv.gz": found, "by_resource.csv": by_resource(found)}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv.gz": Point, "by_resource.csv": Errors},
    rows,
    page,
    {f"heat_{gpu}.png": partial(draw, gpu) for gpu in GPUS},
    parallel=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
