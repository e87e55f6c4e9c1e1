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
from plans import HERE, TRACES, Tried, read

import gpusim
from gpusim.choose.plan import Plan, Work, planned_trace
from gpusim.choose.search import work_of
from gpusim.commands.arguments import measuring_options
from gpusim.common.files import write_text
from gpusim.common.rows import from_csv, to_csv
from gpusim.lab.record.plans import makespans_us, measure
from gpusim.lab.validate import released_together_us
from gpusim.results.plots import COLOURS, new_figure, save_figure
from gpusim.session import Session

SERIAL = "serial-fastest"
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
        select_gain: the same as `gpusim select` gives it, whose replays know no flag: all streams start at once.
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
def _module(name: str) -> tuple[Work, Session]:
    session = Session("h200")
    return work_of(gpusim.load_trace(TRACES / f"{name}.json.gz"), session.gpu), session


def predicted_us(tried: Tried) -> float:
    """Makespan of a plan as it is measured: from event to event, its streams released by one flag."""
    work, session = _module(tried.module)
    return released_together_us(planned_trace(work, tried.plan), session, tried.plan.sms)


def select_us(tried: Tried) -> float:
    """Makespan of a plan as `gpusim select` judges it."""
    work, session = _module(tried.module)
    return session.makespan_us(planned_trace(work, tried.plan), tried.plan.policy)


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


# ---- the page --------------------------------------------------------------------------------------------------------


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean."""
    return fsum(values) / len(values)


def error_lines(rows: Iterable[Row]) -> list[str]:
    """How far off predicted makespans are, by batch and way of sharing."""
    errors: dict[tuple[int, str], list[float]] = {}
    for row in rows:
        batch = 16 if row.module.endswith("_b16") else 128
        way = "SM split" if row.sharing.startswith("SM split") else row.sharing
        errors.setdefault((batch, way), []).append(100.0 * (row.predicted_us / row.measured_us - 1.0))
    return [
        f"| {batch} | {way} | {len(found)} | {mean([abs(error) for error in found]):.1f} % | {mean(found):+.1f} % |"
        for (batch, way), found in sorted(errors.items())
    ]


def readme(rows: Sequence[Row]) -> str:
    """The page."""
    found = chosen(rows)
    modules = [
        f"| {one.row.module} | {one.plans} | {one.row.sharing} | {one.row.predicted_gain:.3f}x | "
        f"{one.row.measured_gain:.3f}x | {one.error_points:+.1f} | {one.regret_percent:.1f} % | "
        f"{one.row.select_gain:.3f}x |"
        for one in found
    ]
    predicted, gained, told = (
        mean([getattr(one.row, name) for one in found]) for name in ("predicted_gain", "measured_gain", "select_gain")
    )
    promised = 100.0 * (told - gained)
    points = mean([abs(one.error_points) for one in found])
    bias = mean([one.error_points for one in found])
    regret = mean([one.regret_percent for one in found])
    error = mean([100.0 * abs(row.predicted_us / row.measured_us - 1.0) for row in rows])
    first = chosen(in_the_first_turn(rows))
    first_bias, first_regret = mean([one.error_points for one in first]), mean([one.regret_percent for one in first])
    spread = mean([100.0 * (row.most_us / row.least_us - 1.0) for row in rows if row.most_us > row.least_us])
    met = "met" if abs(bias) <= GAIN_POINTS else "missed"
    met_regret = "met" if regret < REGRET_PERCENT else "missed"
    return f"""\
# Plans of `gpusim select` on a real H200

Generated by `python experiments/hardware_check/run.py`; do not edit. Every plan: `result.csv`.

`plans.py` searches {len(found) // 2} inception modules of GoogLeNet, at batch 128 and 16, for an algorithm of each
convolution, streams, order and SM split. The baselines, the best plans and some of the others were run on an H200 as
planned, on CUDA streams, with green contexts where a stream has SMs of its own (`measured.csv.gz`; of {RUNS} runs of
the program, ten of each plan, the median of medians; all streams released by one flag; the makespan is of runs without
time stamps between steps, which hold up all streams). In which order a flag lets streams start depends on which of
CUDA's streams has which work, and mostly stays the same from run to run. A plan has no say in it, so the streams of a
plan take turns on those of CUDA, and its makespan is the mean of the turns. Here each plan is predicted with the model
as it is, run as it was measured: behind the flag, the mean over orders of the start. Of the plans measured, the one
predicted best is what a user of the model would run: its gain is over one stream with the fastest algorithms, its
regret what it takes more than the best of all plans measured. The last column is its gain as `gpusim select` prints it,
which replays a program whose streams start at once.

| module | plans | predicted best | predicted gain | measured gain | difference, points | regret | `gpusim select` |
|---|---|---|---|---|---|---|---|
{chr(10).join(modules)}
| mean | | | {predicted:.3f}x | {gained:.3f}x | {bias:+.1f} (of sizes: {points:.1f}) | {regret:.1f} % | {told:.3f}x |

Asked for were a measured gain within {GAIN_POINTS:g} points of the predicted one on the mean ({met}: {bias:+.1f}) and a
regret under {REGRET_PERCENT:g} % ({met_regret}: {regret:.1f} %). `gpusim select` promises {promised:.1f} points more
than was measured; what it is off by more than the prediction of the run as measured is due to the flag.

Of a plan in plain streams the longest turn takes {spread:.1f} % more than the shortest on the mean. With each plan
measured in its first turn alone the difference would be {first_bias:+.1f} points and the regret {first_regret:.1f} %:
the best of many plans is then one that met a good order.

Over all {len(rows)} plans the predicted makespan is off by {error:.1f} % on the mean. The search prefers plans for
which the model is too hopeful, so these errors are larger than those of co-runs that nobody chose
([h200_validation](../h200_validation/README.md)):

| batch | sharing | plans | mean error | bias |
|---|---|---|---|---|
{chr(10).join(error_lines(rows))}

![Predicted and measured gain of every plan](gains.png)
"""


def draw(rows: Sequence[Row], path: Path) -> None:
    """Measured gain over predicted gain."""
    with new_figure(6.4, 5.2) as figure:
        _draw(rows, figure.subplots())
        save_figure(figure, path)


def _draw(rows: Sequence[Row], axes: Axes) -> None:
    for colour, marker, label, small in (
        (COLOURS[0], "o", "batch 128", False),
        (COLOURS[1], "^", "batch 16", True),
    ):
        mine = [row for row in rows if row.module.endswith("_b16") == small]
        x, y = [row.predicted_gain for row in mine], [row.measured_gain for row in mine]
        axes.scatter(x, y, s=22, color=colour, marker=marker, label=label, alpha=0.75)
    most = max(max(row.predicted_gain, row.measured_gain) for row in rows)
    least = min(min(row.predicted_gain, row.measured_gain) for row in rows)
    axes.plot([least, most], [least, most], color="#888888", linewidth=1.0, linestyle="--", label="as predicted")
    axes.set_xlabel("predicted gain over serial, fastest algorithms (x)")
    axes.set_ylabel("measured gain on an H200 (x)")
    axes.legend(frameon=False)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or predict and write the page."""
    options = measuring_options(__doc__, HERE, "run the plans on this machine's GPU: measured.csv.gz", arguments)
    if options.measure:
        measure(MEASURED, HERE / "calls.txt", HERE / "plans.txt", RUNS)
        return
    write_text(options.out / "result.csv", to_csv(Row, all_rows()))
    write_page(options.out)


def write_page(folder: Path) -> None:
    """README.md and the picture from the table in a folder."""
    rows = from_csv(Row, folder / "result.csv")
    write_text(folder / "README.md", readme(rows))
    draw(rows, folder / "gains.png")


if __name__ == "__main__":
    main()
