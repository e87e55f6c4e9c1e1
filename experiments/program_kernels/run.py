"""How long each kernel of a whole program takes on some of the SMs, measured and predicted.

`python experiments/program_kernels/run.py [--out DIR]`

The programs ran as CUDA graphs on 16 to 96 SMs of an H200 (`measured.csv.gz`, by `record.py`): those of three sets of
unseen_programs, and one of advise. Each kernel is predicted from the profile of its program, recorded on all SMs, by
the model as it is and without two of its rules; and from its time on 32 SMs besides. It writes README.md, result.csv.gz
and errors.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from math import fsum
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.advise.run import PROGRAMS
from experiments.h200_validation.variants import MODEL, VARIANTS, kept
from experiments.markdown import table
from experiments.rows import from_csv, lines
from experiments.study import Run, Study
from experiments.unseen_programs.run import SETS
from gpusim.common import fingerprint
from gpusim.common.tables import grouped, short_name
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.whole_models import PROFILE, ModelPredictor
from gpusim.results.style import COLOURS, GREY, MARKERS, legend_below, new_figure, save_figure
from gpusim.session import Session
from gpusim.trace.edit import with_operations
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, ScalingPoint
from gpusim.trace.operations import Kernel, Operation
from gpusim.trace.points import with_point

HERE = Path(__file__).resolve().parent
MEASURED, RESULT = HERE / "measured.csv.gz", "result.csv.gz"
GPU = "h200"
OTHERS = ("efficientnet_b0",)  # programs of advise
SMS = (96, 64, 32, 16)
IN_STREAMS, FELT_EARLY = "first-blocks-as-in-streams", "one-load-under-way"  # variants of the ablation
WITH_POINT, POINT_SMS = "with a scaling point", 32  # the model, told each kernel's time on so many SMs
DRAWN_SMS = 32
SHORT_US, LONG_US = 2.0, 8.0  # recorded times that divide kernels
FEW_BLOCKS = 4  # per SM, at most
WORST = 12  # kernels in the table
TICKS_US = (1, 10, 100)
NAME_LENGTH = 60


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel's time on some of the SMs: ``kernel`` is its place in a pass of its program, from 0."""

    program: str
    sms: int
    kernel: int
    launches: int
    us: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Launches of one kernel with one grid in a pass of a program, on some of the SMs: mean times.

    Attributes:
        program: it.
        name: of the kernel, short.
        blocks: of a launch.
        launches: in a pass, that were measured.
        recorded_us: on all SMs, by the profile.
        sms: how many SMs it had.
        measured_us: there.
        predicted_us: by the model.
        in_streams_us: by the model in which first blocks take as long as in a stream.
        felt_early_us: by the model in which kernels without buffers feel DRAM early, whatever they have under way.
        with_point_us: by the model, told the time on `POINT_SMS` SMs.
    """

    program: str
    name: str
    blocks: int
    launches: int
    recorded_us: float
    sms: int
    measured_us: float
    predicted_us: float
    in_streams_us: float
    felt_early_us: float
    with_point_us: float


# ---- predicting ------------------------------------------------------------------------------------------------------


def measured() -> dict[tuple[str, int], list[Point]]:
    """The kernels of each program on each number of SMs."""
    return grouped(from_csv(Point, MEASURED), lambda point: (point.program, point.sms))


def programs() -> Iterator[tuple[str, Trace]]:
    """Names and single passes of all programs that were measured."""
    wanted = dict.fromkeys(name for name, _ in measured())
    for one in SETS:
        known = ModelPredictor(one.case)
        names = (name for name in wanted if (one.folder / f"{name}{PROFILE}.gz").is_file())
        yield from ((name, known.passes(name, 1)) for name in names)
    yield from ((name, gpusim.load_trace(PROGRAMS / f"{GPU}_{name}.json.gz")) for name in OTHERS)


def launches_of(trace: Trace) -> list[KernelLaunch]:
    """The kernels of a program of one stream, in order."""
    return [launch for operation in trace.operations() for launch in operation.launches()]


def predicted_us(trace: Trace, session: Session, sms: int) -> list[float]:
    """Time of each kernel of a program on some of the SMs, as a profiler counts it: without the gap before it."""
    runs = session.replay(trace, f"inter-sm:by=program,sms={sms}").kernel_runs
    return [run.end_us - run.ready_us - session.gpu.model.kernel_gap_us for run in runs]


def with_measured(trace: Trace, points: Iterable[Point]) -> Trace:
    """A program whose kernels have their times on `POINT_SMS` SMs, as far as they were measured."""
    us, places = {point.kernel: point.us for point in points}, count()

    def told(operation: Operation) -> Operation:
        at = next(places) if isinstance(operation, Kernel) else None
        if not isinstance(operation, Kernel) or at not in us:
            return operation
        return with_point(operation, ScalingPoint(sms=POINT_SMS, duration_us=us[at]))

    return with_operations(trace, told)


def predictions(variant: str) -> dict[str, dict[str, list[float]]]:
    """Predicted times by a variant of the model, by program and SM count, in a process that does nothing else after."""
    patch = VARIANTS[variant].patch if variant != WITH_POINT else None
    if patch is not None:
        patch()
    gpu, points = load_gpu(GPU), measured() if variant == WITH_POINT else {}
    session, found = Session(gpu, gpu), {}
    for name, plain in programs():
        trace = with_measured(plain, points.get((name, POINT_SMS), ()))
        found[name] = {str(sms): predicted_us(trace, session, sms) for sms in SMS}
    return found


def identity(variant: str) -> str:
    """A hash of everything that predictions depend on."""
    files = [MEASURED, *sorted(PROGRAMS.glob(f"{GPU}_*")), *(path for one in SETS for path in one.folder.iterdir())]
    ours = [HERE.parent / "h200_validation" / name for name in ("variants.py", "patches.py")]
    known = [fingerprint.sources("gpusim.lab.whole_models"), fingerprint.files([*files, *ours]), load_gpu(GPU)]
    return fingerprint.data([*known, variant])


def curves() -> Iterator[Curve]:
    """All kernels that were measured, launches with one name and grid together."""
    variants = (MODEL.name, IN_STREAMS, FELT_EARLY, WITH_POINT)
    predicted = kept("program_kernels", variants, identity, predictions)
    points = measured()
    for name, trace in programs():
        launches = launches_of(trace)
        for sms in SMS:
            us = {point.kernel: point.us for point in points[name, sms]}
            times = [one[name][str(sms)] for one in predicted]
            kinds_of = {at: (launches[at].name, launches[at].grid) for at in us}
            for group in grouped(us, kinds_of.__getitem__).values():
                first, size = launches[group[0]], len(group)
                recorded = fsum(launches[at].duration_us for at in group) / size
                means = [fsum(one[at] for at in group) / size for one in (us, *times)]
                kernel = short_name(first.name)[:NAME_LENGTH]
                yield Curve(name, kernel, first.blocks, size, recorded, sms, *means)


def over_passes_percent() -> list[float]:
    """How much longer the kernels and gaps of a pass take than the pass did when its set was recorded, in percent."""
    gap_us = load_gpu(GPU).model.kernel_gap_us
    passes_us = {case: fsum(point.us + gap_us for point in mine) for case, mine in measured().items()}
    found = []
    for one in SETS:
        rows = [row for row in lines(one.folder / "pairs.csv") if row["mode"] == "alone_green"]
        for row, side in product(rows, "ab"):
            us = passes_us.get((row[side], int(row[f"sms_{side}"])))
            if us is not None:
                found.append(100.0 * (us * int(row[f"n{side}"]) / (1e3 * float(row[f"ms_{side}"])) - 1.0))
    return found


# ---- the page --------------------------------------------------------------------------------------------------------


def error_percent(rows: Sequence[Curve], predicted: str = "predicted_us") -> float:
    """Sizes of the errors of all launches over their measured time, in percent."""
    wrong = fsum(row.launches * abs(getattr(row, predicted) - row.measured_us) for row in rows)
    return 100.0 * wrong / fsum(row.launches * row.measured_us for row in rows)


def bias_percent(rows: Sequence[Curve]) -> float:
    """Predicted less measured time of all launches over their measured time, in percent."""
    measured = fsum(row.launches * row.measured_us for row in rows)
    return 100.0 * (fsum(row.launches * row.predicted_us for row in rows) / measured - 1.0)


def kinds(rows: Sequence[Curve], gpu_sms: int) -> Iterator[tuple[str, list[Curve]]]:
    """Kernels by recorded time and blocks, each kind with its title; then all."""
    short, long, few = f"{SHORT_US:g}", f"{LONG_US:g}", FEW_BLOCKS * gpu_sms
    times = {
        f"under {short} µs": (0.0, SHORT_US),
        f"{short} to {long} µs": (SHORT_US, LONG_US),
        f"over {long} µs": (LONG_US, float("inf")),
    }
    for title, (least, most) in times.items():
        timed = [row for row in rows if least <= row.recorded_us < most]
        yield f"{title}, up to {FEW_BLOCKS} blocks per SM", [row for row in timed if row.blocks <= few]
        yield f"{title}, more blocks", [row for row in timed if row.blocks > few]
    yield "all", list(rows)


def page(rows: Sequence[Curve]) -> Mapping[str, object]:
    """What the page says."""
    sms = load_gpu(GPU).sm_count
    by_sms = {count: [row for row in rows if row.sms == count] for count in SMS}
    worst = sorted(by_sms[DRAWN_SMS], key=lambda row: -row.launches * abs(row.predicted_us - row.measured_us))[:WORST]
    longer = over_passes_percent()
    of_kinds = [dict(kinds(of, sms)) for of in by_sms.values()]
    by_kind = []
    for title in of_kinds[0]:
        mine = [of[title] for of in of_kinds]
        errors = (f"{error_percent(one):.1f} ({bias_percent(one):+.1f})" for one in mine)
        by_kind.append((title, str(sum(row.launches for row in mine[-1])), *errors))
    return {
        "programs": len({row.program for row in rows}),
        "kernels": sum(row.launches for row in by_sms[SMS[-1]]),
        "kinds": table(("recorded time and blocks", "kernels", *(f"{count} SMs" for count in SMS)), by_kind),
        "rules": table(
            ("model", *(f"{count} SMs" for count in SMS)),
            [
                (title, *(f"{error_percent(one, predicted):.1f}" for one in by_sms.values()))
                for title, predicted in (
                    ("today's", "predicted_us"),
                    ("first blocks in graphs take as long as in a stream", "in_streams_us"),
                    ("kernels without buffers feel DRAM early", "felt_early_us"),
                )
            ],
        ),
        "point": POINT_SMS,
        "points": table(
            ("predicted from", *(f"{sms} SMs" for sms in SMS if sms != POINT_SMS)),
            [
                (title, *(f"{error_percent(of, by):.1f}" for sms, of in by_sms.items() if sms != POINT_SMS))
                for title, by in (
                    ("the profile of all SMs", "predicted_us"),
                    (f"that, and times on {POINT_SMS} SMs", "with_point_us"),
                )
            ],
        ),
        "drawn": DRAWN_SMS,
        "slower": fmean(longer),
        "slowest": max(longer),
        "worst": table(
            ("program", "kernel", "launches", "blocks", "recorded µs", "measured µs", "predicted µs"),
            [
                (
                    row.program,
                    f"`{row.name}`",
                    str(row.launches),
                    f"{row.blocks:,}",
                    *(f"{us:.1f}" for us in (row.recorded_us, row.measured_us, row.predicted_us)),
                )
                for row in worst
            ],
        ),
    }


def draw(rows: Sequence[Curve], path: Path) -> None:
    """Errors over the recorded time, a point for launches with one name and grid."""
    few = FEW_BLOCKS * load_gpu(GPU).sm_count
    with new_figure(2.7) as figure:
        axes = figure.subplots()
        for colour, marker, title, wanted in zip(
            COLOURS, MARKERS, (f"up to {FEW_BLOCKS} blocks per SM", "more blocks"), (True, False), strict=False
        ):
            mine = [row for row in rows if row.sms == DRAWN_SMS and (row.blocks <= few) is wanted]
            errors = [100.0 * (row.predicted_us / row.measured_us - 1.0) for row in mine]
            us = [row.recorded_us for row in mine]
            axes.scatter(us, errors, s=6, color=colour, marker=marker, label=title, alpha=0.7, linewidths=0)
        axes.axhline(0.0, color=GREY, linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xticks(TICKS_US, [f"{us:,}" for us in TICKS_US])
        axes.set_xlabel("Recorded on all 132 SMs (µs)")
        axes.set_ylabel(f"Error on {DRAWN_SMS} SMs (%)")
        legend_below(figure, axes, 2)
        save_figure(figure, path)


def rows(run: Run) -> Mapping[str, Iterable[object]]:
    """All kernels with their predictions."""
    return {RESULT: curves()}


STUDY = Study(__file__, __doc__, {RESULT: Curve}, rows, page, {"errors.png": draw})

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
