"""Plans of `gpusim select` on a real GPU: `python experiments/hardware_check/run.py [--out DIR]`.

The plans of `plans.txt` (made by `plans.py` here) were run on an H200 as planned, through streams and green contexts:
`measured.csv.gz`. This predicts every one of them with the model as it is, takes for each module the plan that it
predicts best, and compares its gain over serial with the measured one, and its measured time with that of the best of
all. It writes README.md, result.csv and gains.png beside itself (or to DIR).

    python experiments/hardware_check/run.py --measure   # measured.csv.gz: needs an NVIDIA GPU, nvcc and cuDNN
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import fsum
from pathlib import Path

from matplotlib.axes import Axes

import gpusim
from experiments.chosen_errors import REGRET_PERCENT as ASKED_REGRET
from experiments.chosen_errors import Point, error_of
from experiments.hardware_check.plans import HERE, Tried, read
from experiments.markdown import table
from experiments.plans import makespans_us, measure
from experiments.study import TRACES, Run, Study
from gpusim.choose.bound import Bounds
from gpusim.choose.chosen import ChosenError, expected_gain, is_sure
from gpusim.choose.judge import Judge
from gpusim.choose.moves import mean_alone_us
from gpusim.choose.plan import Plan, PlannedWork, planned_trace
from gpusim.choose.search import work_of
from gpusim.lab.validate import released_together_us
from gpusim.results.style import COLOURS, GREY, legend_below, new_figure, save_figure
from gpusim.session import Session

SERIAL, STREAMS = "serial-fastest", "streams-fastest"
MEASURED = HERE / "measured.csv.gz"
RUNS = 5  # of the program
GAIN_POINTS = 3.0  # asked for: measured gain within so many points of the predicted one, on the mean
REGRET_PERCENT = 2.0


@dataclass(frozen=True)
class Row:
    """A plan, predicted and measured.

    Attributes:
        module: name of the trace.
        plan: name of the plan.
        sharing: streams, or SMs of each stream.
        streams: how many.
        predicted_us: makespan, the mean over orders in which streams start.
        measured_us: the mean over turns of CUDA's streams.
        first_us, least_us, most_us: measured in the first turn, and in the shortest and the longest.
        predicted_gain, measured_gain: of serial with the fastest algorithms over it, as predicted and as measured.
        select_gain: the same as `gpusim select` gives it: the mean over start orders, without the flag.
    """

    module: str
    plan: str
    sharing: str
    streams: int
    predicted_us: float
    measured_us: float
    first_us: float
    least_us: float
    most_us: float
    predicted_gain: float
    measured_gain: float
    select_gain: float


@dataclass(frozen=True)
class Chosen:
    """What following the model gets.

    Attributes:
        row: the plan that is predicted best.
        best_us: the least measured makespan of all plans of the module.
        plans: how many were measured.
    """

    row: Row
    best_us: float
    plans: int

    @property
    def regret_percent(self) -> float:
        """How much longer the plan took than the best of all."""
        return 100.0 * (self.row.measured_us / self.best_us - 1.0)

    @property
    def error_points(self) -> float:
        """Measured gain less predicted gain, in points of percent."""
        return 100.0 * (self.row.measured_gain - self.row.predicted_gain)


# ---- predicting ------------------------------------------------------------------------------------------------------


@cache
def module_of(name: str) -> tuple[PlannedWork, Session]:
    """The operations of a module, and the session that replays them."""
    session = Session("h200", cache=True)
    return work_of(gpusim.load_trace(TRACES / f"{name}.json.gz"), session.gpu), session


def predicted_us(tried: Tried) -> float:
    """Makespan of a plan as it is measured: from event to event, its streams released by one flag."""
    work, session = module_of(tried.module)
    return released_together_us(planned_trace(work, tried.plan), session, tried.plan.sms)


def select_us(tried: Tried) -> float:
    """Makespan of a plan as `gpusim select` judges it: the mean over start orders, without the flag."""
    work, session = module_of(tried.module)
    return Judge(work, Bounds(work, session), None, 1, "any").replayed(tried.plan).expected_us


def operation_us(module: str) -> float:
    """Mean time of an operation of a module alone, us."""
    work, session = module_of(module)
    return mean_alone_us(work, Bounds(work, session))


def sharing_of(plan: Plan) -> str:
    """In words."""
    if plan.sms:
        return f"SM split {'+'.join(map(str, plan.sms))}"
    return "plain streams" if len(plan.lanes) > 1 else "one stream"


def all_rows() -> list[Row]:
    """Every plan that was measured."""
    measured = makespans_us(MEASURED)
    tried = [one for one in read(HERE / "plans.txt") if (one.module, one.name) in measured]
    predicted = {(one.module, one.name): predicted_us(one) for one in tried}
    selected = {(one.module, one.name): select_us(one) for one in tried}
    return [
        Row(
            one.module,
            one.name,
            sharing_of(one.plan),
            len(one.plan.lanes),
            predicted[one.module, one.name],
            mean(measured[one.module, one.name]),
            measured[one.module, one.name][0],
            min(measured[one.module, one.name]),
            max(measured[one.module, one.name]),
            predicted[one.module, SERIAL] / predicted[one.module, one.name],
            mean(measured[one.module, SERIAL]) / mean(measured[one.module, one.name]),
            selected[one.module, SERIAL] / selected[one.module, one.name],
        )
        for one in tried
    ]


def in_the_first_turn(rows: Sequence[Row]) -> list[Row]:
    """As if each plan had run with one assignment of CUDA's streams only."""
    serial_us = {row.module: row.first_us for row in rows if row.plan == SERIAL}
    return [replace(row, measured_us=row.first_us, measured_gain=serial_us[row.module] / row.first_us) for row in rows]


def chosen(rows: Iterable[Row]) -> list[Chosen]:
    """For each module the plan that is predicted best."""
    by_module: dict[str, list[Row]] = {}
    for row in rows:
        by_module.setdefault(row.module, []).append(row)
    return [
        Chosen(min(found, key=lambda row: row.predicted_us), min(row.measured_us for row in found), len(found))
        for found in by_module.values()
    ]


@dataclass(frozen=True)
class Choice:
    """What `gpusim select` would choose of the plans that were measured for a module, against plain streams.

    Attributes:
        module: name of the trace.
        predicted, measured: gain of the plan that it expects to be best over plain streams, percent.
        regret: how much longer plain streams took than the best of all plans, percent.
        chosen_regret: the same of the plan.
    """

    module: str
    predicted: float
    measured: float
    regret: float
    chosen_regret: float


def choices(rows: Iterable[Row]) -> list[Choice]:
    """For each module what `gpusim select` would choose of the measured plans."""
    by_module: dict[str, list[Row]] = {}
    for row in rows:
        by_module.setdefault(row.module, []).append(row)
    return [_choice(found) for found in by_module.values()]


def _choice(found: Sequence[Row]) -> Choice:
    streams = next(row for row in found if row.plan == STREAMS)
    plan = max(found, key=lambda row: row.select_gain)
    least = min(row.measured_us for row in found)
    return Choice(
        plan.module,
        100.0 * (plan.select_gain / streams.select_gain - 1.0),
        100.0 * (plan.measured_gain / streams.measured_gain - 1.0),
        100.0 * (streams.measured_us / least - 1.0),
        100.0 * (plan.measured_us / least - 1.0),
    )


@dataclass(frozen=True)
class Recommended:
    """What `gpusim select` recommends for a module, by the error of its choices for the other modules of the batch."""

    choice: Choice
    error: ChosenError

    @property
    def taken(self) -> bool:
        """Whether the plan is recommended over plain streams."""
        return is_sure(self.choice.predicted, self.error)

    @property
    def expected(self) -> float:
        """Expected gain of what is recommended over plain streams, percent."""
        return expected_gain(self.choice.predicted, self.error) if self.taken else 0.0

    @property
    def measured(self) -> float:
        """Measured gain of what is recommended over plain streams, percent."""
        return self.choice.measured if self.taken else 0.0

    @property
    def regret(self) -> float:
        """How much longer what is recommended took than the best plan measured, percent."""
        return self.choice.chosen_regret if self.taken else self.choice.regret


def recommended(rows: Iterable[Row]) -> list[Recommended]:
    """What is recommended for each module: the error of chosen plans is that of the other modules of its batch."""
    found = choices(rows)
    return [Recommended(one, _error_of_others(one, found)) for one in found]


def _error_of_others(choice: Choice, found: Sequence[Choice]) -> ChosenError:
    alike = [one for one in found if one.module.endswith("_b16") == choice.module.endswith("_b16")]
    return error_of([(o.predicted, o.measured) for o in alike if o is not choice and o.predicted > 0.0])


def choice_table(found: Sequence[Recommended]) -> str:
    """What `gpusim select` would choose, and recommend, for each module."""
    titles = [
        "module",
        "predicted over plain streams",
        "measured",
        "expected, as others turned out",
        "one in ten falls short by",
        "recommended",
        "regret of the recommendation",
    ]
    cells = [
        [
            one.choice.module,
            f"{one.choice.predicted:+.1f} %",
            f"{one.choice.measured:+.1f} %",
            f"{expected_gain(one.choice.predicted, one.error):+.1f} %",
            f"{one.error.limit:.1f} points",
            "the plan" if one.taken else "plain streams (tie)",
            f"{one.regret:.1f} %",
        ]
        for one in found
    ]
    return table(titles, cells)


# ---- the page --------------------------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return fsum(values) / len(values)


def error_table(rows: Iterable[Row]) -> str:
    """How far off predicted makespans are, by batch and way of sharing."""
    errors: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        batch = 16 if row.module.endswith("_b16") else 128
        way = "SM split" if row.sharing.startswith("SM split") else row.sharing
        errors.setdefault((batch, way), []).append(100.0 * (row.predicted_us / row.measured_us - 1.0))
    cells = [
        (str(batch), way, str(len(found)), f"{mean([abs(error) for error in found]):.1f} %", f"{mean(found):+.1f} %")
        for (batch, way), found in sorted(errors.items())
    ]
    return table(("batch", "sharing", "plans", "mean error", "bias"), cells)


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    found, first = chosen(rows), chosen(in_the_first_turn(rows))
    predicted, gained, told = (
        mean([getattr(one.row, name) for one in found]) for name in ("predicted_gain", "measured_gain", "select_gain")
    )
    bias, regret = mean([one.error_points for one in found]), mean([one.regret_percent for one in found])
    return {
        "modules": len(found) // 2,
        "runs": RUNS,
        "by_module": module_table(found, predicted, gained, told),
        "gain_points": GAIN_POINTS,
        "met": "met" if abs(bias) <= GAIN_POINTS else "missed",
        "bias": bias,
        "regret_percent": REGRET_PERCENT,
        "met_regret": "met" if regret < REGRET_PERCENT else "missed",
        "regret": regret,
        "promised": 100.0 * (told - gained),
        "spread": mean([100.0 * (row.most_us / row.least_us - 1.0) for row in rows if row.most_us > row.least_us]),
        "first_bias": mean([one.error_points for one in first]),
        "first_regret": mean([one.regret_percent for one in first]),
        "plans": len(rows),
        "error": mean([100.0 * abs(row.predicted_us / row.measured_us - 1.0) for row in rows]),
        "errors": error_table(rows),
        "choices": choice_table(recommended(rows)),
        **choice_means(recommended(rows)),
    }


def choice_means(found: Sequence[Recommended]) -> dict[str, object]:
    """Means over the modules of what is chosen and of what is recommended."""
    errors = [one.choice.predicted - one.choice.measured for one in found]
    taken = [one.expected - one.measured for one in found]
    regret = mean([one.regret for one in found])
    return {
        "chosen_predicted": mean([one.choice.predicted for one in found]),
        "chosen_measured": mean([one.choice.measured for one in found]),
        "chosen_bias": mean(errors),
        "chosen_size": mean([abs(error) for error in errors]),
        "recommended": sum(one.taken for one in found),
        "recommended_expected": mean([one.expected for one in found]),
        "recommended_measured": mean([one.measured for one in found]),
        "recommended_bias": mean(taken),
        "recommended_size": mean([abs(error) for error in taken]),
        "recommended_worst": min(one.measured for one in found),
        "recommended_regret": regret,
        "asked_regret": ASKED_REGRET,
        "met_asked": "met" if regret <= ASKED_REGRET else "missed",
    }


def module_table(found: Sequence[Chosen], predicted: float, gained: float, told: float) -> str:
    """The plan that is predicted best for each module, and the means."""
    titles = ("module", "plans", "predicted best", "predicted gain", "measured gain", "difference, points", "regret",
              "`gpusim select`")  # fmt: skip
    cells = [
        (
            one.row.module,
            str(one.plans),
            one.row.sharing,
            f"{one.row.predicted_gain:.3f}x",
            f"{one.row.measured_gain:.3f}x",
            f"{one.error_points:+.1f}",
            f"{one.regret_percent:.1f} %",
            f"{one.row.select_gain:.3f}x",
        )
        for one in found
    ]
    bias = mean([one.error_points for one in found])
    points = mean([abs(one.error_points) for one in found])
    regret = mean([one.regret_percent for one in found])
    means = (f"{predicted:.3f}x", f"{gained:.3f}x", f"{bias:+.1f} (mean size {points:.1f})", f"{regret:.1f} %")
    return table(titles, [*cells, ("mean", "", "", *means, f"{told:.3f}x")])


def draw(rows: Sequence[Row], path: Path) -> None:
    """Measured gain over predicted gain."""
    with new_figure(3.2) as figure:
        axes = figure.subplots()
        _draw(rows, axes)
        legend_below(figure, axes, 3)
        save_figure(figure, path)


def _draw(rows: Sequence[Row], axes: Axes) -> None:
    for colour, marker, label, small in (
        (COLOURS[0], "o", "batch 128", False),
        (COLOURS[1], "^", "batch 16", True),
    ):
        mine = [row for row in rows if row.module.endswith("_b16") == small]
        x, y = [row.predicted_gain for row in mine], [row.measured_gain for row in mine]
        axes.scatter(x, y, s=8, color=colour, marker=marker, label=label, alpha=0.75, linewidths=0)
    most = max(max(row.predicted_gain, row.measured_gain) for row in rows)
    least = min(min(row.predicted_gain, row.measured_gain) for row in rows)
    axes.plot([least, most], [least, most], color=GREY, linewidth=0.8, linestyle="--", label="as predicted")
    axes.set_xlabel("Predicted speedup over serial")
    axes.set_ylabel("Measured speedup over serial")


def run_plans() -> None:
    """Run the plans on this machine's GPU."""
    measure(MEASURED, HERE / "calls.txt", HERE / "plans.txt", RUNS)


def rows(run: Run) -> dict[str, list[Row]]:
    """Every plan, predicted and measured."""
    return {"result.csv": all_rows()}


def points(rows: Iterable[Row]) -> list[Point]:
    """What `gpusim select` would choose of the measured plans, among those that tell the error of choices."""
    return [Point(one.module, operation_us(one.module), one.predicted, one.measured) for one in choices(rows)]


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Row},
    rows,
    page,
    {"gains.png": draw},
    {"measure": (run_plans, "run the plans on this machine's GPU: measured.csv.gz")},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
