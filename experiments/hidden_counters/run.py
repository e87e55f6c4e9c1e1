"""How far off kernels without counters are predicted: `python experiments/hidden_counters/run.py [--out DIR]`.

Kernels that were recorded with counters are predicted again without them. What is left is what any profiler gives:
name, grid, block, registers, shared memory and duration; of one set also the operator with the sizes of its inputs. It
writes README.md, result.csv and errors.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from experiments.h200_validation.variants import DATA, FRAMEWORKS, SHARED, TRANSFORMER
from experiments.markdown import table
from experiments.study import Run, Study
from gpusim.hardware.gpu import load_gpu
from gpusim.io.importing import import_profile
from gpusim.lab.names import title
from gpusim.lab.scores import Scored, summaries
from gpusim.lab.validate import Case, Condition, Predictor, conditions, measurements
from gpusim.model.estimate import assumed, filled
from gpusim.results.style import COLOURS, HATCHES, PAGE, Style, grid, legend_below, new_figure, save_figure, styled
from gpusim.trace.kernels import KernelLaunch, Work

EXPERIMENTS = ("sm_curve", "streams", "green")
COUNTED, ESTIMATED, NAMELESS = "counted", "estimated", "half busy"
COMPUTE, MEMORY = "arithmetic binds", "memory binds"
WAYS = {
    COUNTED: "with its counters",
    ESTIMATED: "estimated from the operator, or from the name where no operator is known",
    "names": "estimated from the name alone",
    NAMELESS: "with every kernel taken to keep its SM half busy, as where nothing tells its operation",
    COMPUTE: "as if arithmetic bound what is not known",
    MEMORY: "as if memory bound what is not known",
}
OPERATORS = "operators.json.gz"
SETS: Mapping[str, tuple[Case, int]] = {  # what is predicted, every so many-th condition of each experiment
    "transformer": (Case(str(TRANSFORMER), "h100-sxm"), 1),
    "layers": (Case(str(DATA / "layers"), "h200"), 5),
    "small": (Case(str(DATA / "small"), "h200"), 8),
    "h200_frameworks": (FRAMEWORKS["h200"], 3),
    "h100_frameworks": (FRAMEWORKS["h100-sxm"], 3),
}

Launches = tuple[KernelLaunch, ...]


@dataclass(frozen=True, slots=True)
class Errors:
    """Errors of one way to predict an experiment of one set.

    Attributes:
        dataset: the set.
        gpu: that it was measured on.
        way: one of `WAYS`.
        experiment: of `gpusim validate`.
        points: predictions.
        mape_percent: mean absolute error.
        bias_percent: mean error with its sign.
        p95_percent: 95th percentile of the absolute errors.
        within_percent: of the estimate, how many measurements lie between the two assumptions; else 0.
    """

    dataset: str
    gpu: str
    way: str
    experiment: str
    points: int
    mape_percent: float
    bias_percent: float
    p95_percent: float
    within_percent: float


def hidden(launch: KernelLaunch, work: Work | None) -> KernelLaunch:
    """A launch as a profiler without counters records it, with its operator's work where that is known."""
    return launch.model_copy(update={"mix": None, "work": work})


@cache
def works(case: Case) -> dict[tuple[str, int], Work | None]:
    """The work of each kernel of each op, by its place in the op, from a profile of one call of each op in turn."""
    path = Path(case.folder) / OPERATORS
    if not path.is_file():
        return {}
    gpu = load_gpu(case.gpu)
    recorded = case.load().recordings
    launches = list(import_profile(path, "kineto", gpu).trace.launches())
    found = {}
    for op in recorded.calls:
        for place, launch in enumerate(recorded.op(op).kernels):
            profiled = launches.pop(0)
            assert profiled.grid == launch.grid, f"{op}: the profile has other kernels"
            found[op, place] = profiled.work
    return found


def changed(case: Case, way: str) -> Callable[[str, Launches], Launches]:
    """What a way makes of the kernels of an op."""
    gpu, known = load_gpu(case.gpu), works(case)
    of_each: Mapping[str, Callable[[KernelLaunch], KernelLaunch]] = {
        ESTIMATED: lambda launch: filled(launch, gpu),
        "names": lambda launch: filled(launch.model_copy(update={"work": None}), gpu),
        NAMELESS: lambda launch: launch.model_copy(update={"name": "kernel", "work": None}),
        COMPUTE: lambda launch: assumed(launch, gpu, "compute"),
        MEMORY: lambda launch: assumed(launch, gpu, "memory"),
    }

    def change(op: str, kernels: Launches) -> Launches:
        bare = [hidden(launch, known.get((op, place))) for place, launch in enumerate(kernels)]
        return tuple(map(of_each[way], bare))

    return change


def sample(case: Case, step: int) -> list[Condition]:
    """Every so many-th condition of each experiment that is looked at."""
    found = conditions(case.load())
    return [one for name in EXPERIMENTS for one in [one for one in found if one.experiment == name][::step]]


def scored(task: tuple[str, str]) -> list[Scored]:
    """The conditions of a set, predicted in one way."""
    name, way = task
    case, step = SETS[name]
    dataset = case.load()
    if way != COUNTED:
        dataset.change_kernels(changed(case, way))
    predictor, measured = Predictor(dataset), measurements(dataset)
    return [
        Scored(experiment, one.key, ms, measured[experiment, one.key], predictor.nothing(one)[experiment])
        for one in sample(case, step)
        for experiment, ms in predictor.predict(one).items()
    ]


def errors(name: str, found: Mapping[str, Sequence[Scored]]) -> Iterator[Errors]:
    """The errors of every way to predict a set."""
    case = SETS[name][0]
    for way, rows in found.items():
        for one in summaries(rows, {}):
            within = inside(one.experiment, found) if way == ESTIMATED else 0.0
            scores = one.mape_percent, one.bias_percent, one.p95_percent
            yield Errors(name, case.gpu, way, one.experiment, one.points, *scores, within)


def inside(experiment: str, found: Mapping[str, Sequence[Scored]]) -> float:
    """Share of the measurements that lie between the predictions of the two assumptions, in percent."""
    both = [
        sorted((one.predicted_ms, other.predicted_ms, one.measured_ms))[1] == one.measured_ms
        for one, other in zip(found[COMPUTE], found[MEMORY], strict=True)
        if one.experiment == experiment
    ]
    return 100.0 * sum(both) / len(both)


def rows(run: Run) -> dict[str, list[Errors]]:
    """Every set that is at hand, in every way."""
    names = [name for name, (case, _) in SETS.items() if Path(case.folder).is_dir()]
    tasks = [(name, way) for name in names for way in WAYS if way != "names" or works(SETS[name][0])]
    with ProcessPoolExecutor(run.jobs) as pool:
        found = dict(zip(tasks, pool.map(scored, tasks), strict=True))
    return {
        "result.csv": [
            line
            for name in names
            for line in errors(name, {way: found[name, way] for way in WAYS if (name, way) in found})
        ]
    }


# ---- the page --------------------------------------------------------------------------------------------------------


def page(found: Sequence[Errors]) -> dict[str, object]:
    """What the page says."""
    ways = list(dict.fromkeys(row.way for row in found))
    cells: dict[tuple[str, str], dict[str, Errors]] = {}
    for row in found:
        cells.setdefault((row.dataset, row.experiment), {})[row.way] = row
    lines = []
    for (dataset, experiment), by in cells.items():
        estimate = by[ESTIMATED]
        shown = [f"{by[way].mape_percent:.1f} ({by[way].bias_percent:+.1f})" if way in by else "" for way in ways]
        within = f"{estimate.within_percent:.0f}"
        lines.append((dataset, estimate.gpu, experiment, str(estimate.points), *shown, within))
    titles = ("set", "GPU", "experiment", "points", *ways, "within the range %")
    return {
        "ways": table(("column", "kernels are predicted"), list(WAYS.items())),
        "errors": table(titles, lines),
        "shared": f"`../{SHARED.name}`",
    }


def draw(found: Sequence[Errors], path: Path) -> None:
    """Mean error of each way, by set and experiment."""
    groups = list(dict.fromkeys((row.dataset, row.experiment) for row in found))
    ways = [way for way in (COUNTED, ESTIMATED, NAMELESS) if any(row.way == way for row in found)]
    with styled(Style(PAGE)), new_figure(3.6) as figure:
        axes = figure.subplots()
        for n, way in enumerate(ways):
            sizes = {(row.dataset, row.experiment): row.mape_percent for row in found if row.way == way}
            places = [at + 0.27 * (n - 1) for at in range(len(groups))]
            axes.bar(
                places,
                [sizes[group] for group in groups],
                0.25,
                color=COLOURS[n],
                hatch=HATCHES[n],
                edgecolor="white",
                label=way,
            )
        names = [f"{dataset}, {title(experiment)}" for dataset, experiment in groups]
        axes.set_xticks(range(len(groups)), names, rotation=45, ha="right")
        axes.set_ylabel("Mean absolute error (%)")
        grid(axes, "y")
        legend_below(figure, axes, 3)
        save_figure(figure, path)


STUDY = Study(__file__, __doc__, {"result.csv": Errors}, rows, page, {"errors.png": draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
