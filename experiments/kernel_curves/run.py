"""How long each kernel of a call takes on some of the SMs, measured and predicted.

`python experiments/kernel_curves/run.py [--out DIR]`

`gpusim validate` scores SM curves of whole calls, in which what the model has too long of one kernel may hide what
it has too short of another. Here every kernel of the recorded calls of h200_validation was timed by itself, on 8 to
132 SMs of an H200 (`measured.csv.gz`), and is predicted by the model as it is. It writes README.md, result.csv and
errors.png beside itself (or to DIR).

    python experiments/kernel_curves/run.py --measure  # on a machine with an NVIDIA GPU, nvcc, cuDNN and CUPTI
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum
from pathlib import Path
from statistics import fmean, median
from typing import cast

from matplotlib.axes import Axes

import gpusim
from experiments.markdown import table
from experiments.rows import from_csv, to_csv
from experiments.study import RECORDED, Run, Study
from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.scaling import confined_us
from gpusim.common.files import write_table
from gpusim.common.progress import tracked
from gpusim.hardware.gpu import GPU
from gpusim.lab.dataset import Op, Recordings
from gpusim.lab.record.calls import Call
from gpusim.lab.record.program import BuiltProgram
from gpusim.lab.record.toolchain import run
from gpusim.results.style import COLOURS, GREY, MARKERS, legend_below, new_figure, save_figure
from gpusim.training.networks.steps import CONVOLUTION, CallWork, Direction

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.csv.gz"
DATASETS = {"h200": RECORDED, "networks": RECORDED / "networks", "small": RECORDED / "small"}
SMS = (8, 16, 24, 32, 48, 64, 72, 80, 96, 104, 112, 120, 128, 132)  # as the recorder's sm_curve has them
FILLS = "_Z4fillPfmj"  # the kernel with which the recorder fills the tensors of a call, before it runs
LEAST_US = 5.0  # of shorter kernels the gap is a large part
GAP_US = 1.1  # between kernels in a row, by this clock: calls of one kernel back to back less its time, the median
SHOWN_SMS = (8, 32, 64, 96, 120)  # of which both tables have errors
FAMILIES = 16  # in the table
TICKS_US = (10, 100, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel's time on some of the SMs.

    Attributes:
        dataset: of recordings.
        op: the call.
        kernel: its place in the call, from 0.
        sms: of a green context; all of the GPU's where it has none.
        us: median duration.
    """

    dataset: str
    op: str
    kernel: int
    sms: int
    us: float


@dataclass(frozen=True, slots=True)
class Curve:
    """A kernel's SM curve, measured and predicted.

    Attributes:
        dataset: of recordings.
        op: the call.
        kernel: its place in the call.
        name: of the kernel.
        us: measured on all SMs, which its prediction there takes, too.
        error_percent: mean absolute error on fewer SMs.
        on_8_percent: error of the prediction on 8 SMs.
        on_32_percent: on 32.
        on_64_percent: on 64.
        on_96_percent: on 96.
        on_120_percent: on 120.
    """

    dataset: str
    op: str
    kernel: int
    name: str
    us: float
    error_percent: float
    on_8_percent: float
    on_32_percent: float
    on_64_percent: float
    on_96_percent: float
    on_120_percent: float


# ---- measuring -------------------------------------------------------------------------------------------------------


def calls(recordings: Recordings) -> list[str]:
    """The calls whose kernels all run on the caller's stream, so that a green context holds them."""
    names = [name for name, row in recordings.calls.items() if row["gpu_bound"] == "True" and recordings.profiled(name)]
    return [name for name in names if all(kernel.stream == "main" for kernel in recordings.op(name).kernels)]


def call_line(recordings: Recordings, name: str) -> str:
    """A call as the recorder reads it."""
    row = recordings.calls[name]
    size, filter_size, padding = (int(row[column]) for column in ("in_size", "filter_size", "padding"))
    work = CallWork(
        CONVOLUTION,
        cast(Direction, row["direction"]),
        int(row["batch"]),
        int(row["in_channels"]),
        size,
        size,
        int(row["out_channels"]),
        (filter_size, filter_size),
        (padding, padding),
        int(row["stride"]),
    )
    return Call(row["network"], row["layer"], work, row["algorithm"], row["math"]).line


def measure() -> None:
    """Time the kernels of all calls on this machine's GPU."""
    gpu = gpusim.load_gpu("h200")
    points: list[Point] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = BuiltProgram(folder)
        os.environ["CUDA_INJECTION64_PATH"] = str(built_library(folder))
        os.environ["KERNEL_TIMELINE"] = str(folder / "timeline")
        for dataset, path in DATASETS.items():
            recordings = Recordings(path, gpu)
            names = calls(recordings)
            (folder / "calls").write_text("".join(f"{call_line(recordings, one)}\n" for one in names))
            (folder / "conditions").write_text("".join(f"{one}\n" for one in names))
            printed = program.printed("sm_curve", folder / "calls", folder / "conditions")
            for _ in tracked(printed, 1 + len(names) * len(SMS), dataset):
                pass
            lines = (folder / "timeline").read_text().splitlines()
            points += points_of(dataset, [recordings.op(one) for one in names], lines)
    write_table(MEASURED, to_csv(Point, points))


def built_library(folder: Path) -> Path:
    """`timeline.cpp` as a library that CUDA loads into a program."""
    library = folder / "libtimeline.so"
    cuda = Path(shutil.which("nvcc") or "nvcc").resolve().parent.parent
    places = [place for place in (cuda / "extras" / "CUPTI" / "lib64", cuda / "lib64") if place.is_dir()]
    found = [word for place in places for word in (f"-L{place}", "-Xlinker", f"-rpath={place}")]
    include = f"-I{cuda / 'extras' / 'CUPTI' / 'include'}"
    shared = ["-shared", "-Xcompiler", "-fPIC", "-std=c++17"]
    run(["nvcc", *shared, include, *found, "-o", str(library), str(HERE / "timeline.cpp"), "-lcupti"], "nvcc")
    return library


def points_of(dataset: str, ops: Sequence[Op], lines: Iterable[str]) -> Iterator[Point]:
    """What a timeline tells of the calls, which ran one after the other, each after its tensors were filled.

    Every call runs in as many contexts as there are SM counts, all its kernels in order, again and again. A call whose
    kernels are not those of its recording is left out.
    """
    ran = sorted((tuple(line.split("\t")) for line in lines), key=lambda fields: int(fields[0]))
    groups = [list(found) for filling, found in groupby(ran, lambda fields: fields[5] == FILLS) if not filling]
    contexts = sorted({int(fields[2]) for fields in ran})
    sms_in = dict(zip((*contexts[1:], contexts[0]), SMS, strict=True))  # the first context is of all SMs
    for op, group in zip(ops, groups, strict=True):
        kernels = [(str(kernel.blocks), str(kernel.threads_per_block)) for kernel in op.kernels]
        found: dict[int, list[list[tuple[str, ...]]]] = {}
        for context, sms in sms_in.items():
            own = [fields for fields in group if int(fields[2]) == context]
            ran_there = [own[at : at + len(kernels)] for at in range(0, len(own), len(kernels))]
            if all([(fields[3], fields[4]) for fields in call] == kernels for call in ran_there) and ran_there:
                found[sms] = ran_there
        for at in range(len(kernels)):
            for sms in sorted(found):
                us = median([int(call[at][1]) - int(call[at][0]) for call in found[sms]]) / 1e3
                yield Point(dataset, op.name, at, sms, us)


# ---- predicting ------------------------------------------------------------------------------------------------------


def curves(points: Iterable[Point], gpu: GPU) -> Iterator[Curve]:
    """The kernels that were measured on all SM counts, and take `LEAST_US` on all SMs, with their predictions."""
    recordings = {dataset: Recordings(path, gpu) for dataset, path in DATASETS.items()}
    kernels = Kernels(gpu, gpu)
    for (dataset, op, at), found in groupby(points, lambda point: (point.dataset, point.op, point.kernel)):
        measured = {point.sms: point.us for point in found}
        if tuple(measured) != SMS or measured[gpu.sm_count] < LEAST_US:
            continue
        recorded = recordings[dataset].op(op).kernels[at]
        launch = recorded.model_copy(update={"duration_us": measured[gpu.sm_count] + GAP_US})
        model = kernels.model(launch, op)
        errors = {sms: 100.0 * ((confined_us(model, sms, gpu) - GAP_US) / measured[sms] - 1.0) for sms in SMS[:-1]}
        error = fmean(map(abs, errors.values()))
        shown = (errors[sms] for sms in SHOWN_SMS)
        yield Curve(dataset, op, at, launch.name, measured[gpu.sm_count], error, *shown)


def family(name: str) -> str:
    """A kernel's name without its parameters, and of generated GEMMs without their tiles."""
    plain = name.removeprefix("void ").split("(")[0].split("<")[0].split("::")[-1]
    return plain.split("_tilesize")[0].split("_execute")[0]


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Curve]) -> dict[str, object]:
    """What the page says."""
    families: dict[str, list[Curve]] = {}
    for row in rows:
        families.setdefault(family(row.name), []).append(row)
    ranked = sorted(families.items(), key=lambda item: -fsum(row.error_percent for row in item[1]))
    by_family = [
        (
            f"`{name}`",
            str(len(found)),
            f"{fmean(row.error_percent for row in found):.1f} %",
            *(f"{fmean(getattr(row, f'on_{sms}_percent') for row in found):+.0f} %" for sms in SHOWN_SMS),
        )
        for name, found in ranked[:FAMILIES]
    ]
    by_set = [
        (dataset, str(len(mine)), f"{fmean(row.error_percent for row in mine):.2f} %")
        for dataset in DATASETS
        for mine in [[row for row in rows if row.dataset == dataset]]
    ]
    return {
        "least_us": LEAST_US,
        "gap_us": GAP_US,
        "families": FAMILIES,
        "by_set": table(("recordings", "kernels", "mean error"), by_set),
        "by_family": table(("family", "kernels", "mean error", *(f"{sms} SMs" for sms in SHOWN_SMS)), by_family),
    }


def draw(rows: Sequence[Curve], path: Path) -> None:
    """Errors on 8 SMs over the time on all, a point a kernel."""
    with new_figure(2.7) as figure:
        axes = figure.subplots()
        _draw(rows, axes)
        legend_below(figure, axes, 3)
        save_figure(figure, path)


def _draw(rows: Sequence[Curve], axes: Axes) -> None:
    for colour, marker, dataset in zip(COLOURS, MARKERS, DATASETS, strict=False):
        mine = [row for row in rows if row.dataset == dataset]
        us, errors = [row.us for row in mine], [row.on_8_percent for row in mine]
        axes.scatter(us, errors, s=6, color=colour, marker=marker, label=dataset, alpha=0.7, linewidths=0)
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.set_xscale("log")
    axes.set_xticks(TICKS_US, [f"{us:,}" for us in TICKS_US])
    axes.set_xlabel("Measured on all 132 SMs (µs)")
    axes.set_ylabel("Error on 8 SMs (%)")


def rows(run: Run) -> dict[str, Iterable[Curve]]:
    """The kernels that were measured, with their predictions."""
    return {"result.csv": curves(from_csv(Point, MEASURED), gpusim.load_gpu("h200"))}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Curve},
    rows,
    page,
    {"errors.png": draw},
    {"measure": (measure, "time the kernels on this machine's GPU: measured.csv.gz")},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
