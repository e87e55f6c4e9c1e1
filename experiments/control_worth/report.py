"""The tables, the picture and the numbers of the study; every number is from its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb, fsum
from pathlib import Path
from random import Random

from matplotlib.axes import Axes

from experiments.chosen_errors import REGRET_PERCENT, Evidence, Point, error_without
from experiments.markdown import table
from gpusim.choose.chosen import ChosenError, expected_gain, steps_taken
from gpusim.common.tables import grouped
from gpusim.results.style import COLOURS, GREY, MARKERS, legend_below, new_figure, save_figure

LEVELS = {  # what of a plan a program must be able to control
    "priorities": "priorities of streams",
    "order": "order in which streams start",
    "masks": "SM split (green contexts)",
    "algorithms": "algorithm of each convolution",
    "all": "streams, algorithms and SMs (`gpusim select`)",
    "quotas": "quotas on an SM (no GPU offers them)",
}
MEASURED_LEVELS = tuple(level for level in LEVELS if level != "quotas")
WITHIN = {"all": ("algorithms", "masks", "all")}  # levels that a level includes: what `gpusim select` can print
SHORT = {"masks": "SM split", "all": "`gpusim select`"}  # titles of columns; the other levels have their own names
NETWORK_BATCH = ("googlenet_b1_forward", "resnet50_b1_forward", "googlenet_b16_forward", "resnet50_b16_forward")
KINDS = ("modules, batch 128", "modules, batch 16", "pairs of programs", "networks")
SEED, RESAMPLES = 1, 4000
TAIL = 0.025
HALVINGS = 40
CHANCE = 0.05  # below which a gain is significant
WORSE = -1.0  # percent, below which a plan counts as worse than plain streams


@dataclass(frozen=True)
class Row:
    """A plan, predicted and measured.

    Attributes:
        workload: name of its trace, or of two.
        level: what of the plan a program must be able to control.
        plan: name of the plan at that level.
        sharing: how its streams are released or share the GPU, as the recorder's program is told.
        predicted_us: expected makespan, the mean over start orders.
        measured_us: mean over turns of CUDA's streams; 0: not measured.
        least_us, most_us: the shortest and the longest turn.
        predicted_gain, measured_gain: over plain streams, percent.
        operation_us: mean time of an operation of the workload alone.
    """

    workload: str
    level: str
    plan: str
    sharing: str
    predicted_us: float
    measured_us: float
    least_us: float
    most_us: float
    predicted_gain: float
    measured_gain: float
    operation_us: float

    @property
    def point(self) -> Point:
        """The plan among those that tell the error of choices."""
        return Point(self.workload, self.operation_us, self.predicted_gain, self.measured_gain)

    @property
    def kind(self) -> str:
        """One of `KINDS`."""
        if self.workload in NETWORK_BATCH:
            return KINDS[3]
        if "+" in self.workload:
            return KINDS[2]
        return KINDS[1] if self.workload.endswith("_b16") else KINDS[0]


@dataclass(frozen=True)
class Choice:
    """What the model chooses for a workload at one level; plain streams where it predicts no gain.

    Attributes:
        workload: its name.
        kind: one of `KINDS`.
        predicted, measured: gain over plain streams of what is chosen, percent.
        best: largest measured gain of any plan of the level, plain streams among them, percent.
    """

    workload: str
    kind: str
    predicted: float
    measured: float
    best: float

    @property
    def regret(self) -> float:
        """How much longer what is chosen takes than the best plan, percent."""
        return longer(self.best, self.measured)


def mean(values: Sequence[float]) -> float:
    """Arithmetic mean; 0 of none."""
    return fsum(values) / len(values) if values else 0.0


def plans_at(rows: Sequence[Row], level: str) -> dict[str, list[Row]]:
    """For each workload that has plans of a level these, and those of the levels within it."""
    able = {row.workload for row in rows if row.level == level}
    levels = WITHIN.get(level, (level,))
    return grouped((one for one in rows if one.level in levels and one.workload in able), lambda one: one.workload)


def chosen(rows: Sequence[Row], level: str) -> dict[str, Row]:
    """For each workload the plan of a level that is predicted best, where it is predicted to gain."""
    best = {name: max(mine, key=lambda row: row.predicted_gain) for name, mine in plans_at(rows, level).items()}
    return {name: row for name, row in best.items() if row.predicted_gain > 0.0}


def choices(rows: Sequence[Row], level: str) -> list[Choice]:
    """The choice of the model for each workload that has plans of a level."""
    taken, found = chosen(rows, level), []
    for workload, mine in plans_at(rows, level).items():
        predicted, measured = gains_of(taken.get(workload))
        most = max(0.0, *(row.measured_gain for row in mine))
        found.append(Choice(workload, mine[0].kind, predicted, measured, most))
    return found


def gains_of(row: Row | None) -> tuple[float, float]:
    """Predicted and measured gain of a plan over plain streams, percent; None: of plain streams."""
    return (0.0, 0.0) if row is None else (row.predicted_gain, row.measured_gain)


def gain(plain_us: float, us: float) -> float:
    """Gain of a plan over plain streams, percent."""
    return 100.0 * (plain_us / us - 1.0)


def longer(best: float, taken: float) -> float:
    """How much longer a plan takes than another, of their gains over plain streams; all in percent."""
    return 100.0 * ((100.0 + best) / (100.0 + taken) - 1.0)


# ---- how sure --------------------------------------------------------------------------------------------------------


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval of 95 % of a mean, by resampling the values."""
    random = Random(SEED)
    means = sorted(mean(random.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(TAIL * RESAMPLES)], means[-1 - int(TAIL * RESAMPLES)]


def sign_flip(values: Sequence[float]) -> float:
    """How likely a mean so far from 0 is where each value could as well have the other sign (two-sided)."""
    random, most = Random(SEED), abs(fsum(values)) * (1.0 - 1e-12)
    as_far = sum(
        abs(fsum(value if random.random() < 0.5 else -value for value in values)) >= most for _ in range(RESAMPLES)
    )
    return (1 + as_far) / (1 + RESAMPLES)


def holm(found: Sequence[float]) -> list[float]:
    """Probabilities corrected for as many comparisons, by Holm's method [M]."""
    corrected, least = [0.0] * len(found), 0.0
    for rank, at in enumerate(sorted(range(len(found)), key=lambda at: found[at])):
        least = max(least, min(1.0, (len(found) - rank) * found[at]))
        corrected[at] = least
    return corrected


def most_frequent(seen: int, of: int) -> float:
    """The highest rate of an event with which so few are seen in ``of`` cases one time in twenty (Clopper, Pearson)."""
    low, high = seen / of, 1.0
    for _ in range(HALVINGS):
        rate = (low + high) / 2.0
        as_few = fsum(comb(of, n) * rate**n * (1.0 - rate) ** (of - n) for n in range(seen + 1))
        low, high = (rate, high) if as_few > 2.0 * TAIL else (low, rate)
    return low


# ---- the page --------------------------------------------------------------------------------------------------------


def chances(rows: Sequence[Row], levels: Sequence[str] = MEASURED_LEVELS) -> dict[str, float]:
    """How likely a mean gain so far from 0 is by chance, for each level, corrected for their number."""
    found = [[one.measured for one in choices(rows, level)] for level in levels]
    return dict(zip(levels, holm([sign_flip(gains) for gains in found]), strict=True))


def significant(rows: Sequence[Row], levels: Sequence[str] = MEASURED_LEVELS) -> str:
    """Sentence on the levels whose mean gain is significant."""
    sure = {level: p for level, p in chances(rows, levels).items() if p < CHANCE}
    named = " and ".join(f"of {level} (p {p:.3f})" for level, p in sure.items())
    if not sure:
        return "No mean is significant after Holm's correction: all levels tie with plain streams."
    return f"Only the mean {named} is significant after Holm's correction; the other levels tie with plain streams."


def level_titles() -> list[str]:
    """Titles of the columns of `level_cells`."""
    titles = ["level of control", "plans measured", "predicted", "measured, mean (95 %)", "least to most", "p (Holm)"]
    return [*titles, "best measured", "regret", "all plans: predicted less measured, points"]


def level_cells(rows: Sequence[Row], levels: Sequence[str] = MEASURED_LEVELS) -> list[list[str]]:
    """What each level gains, over all workloads that have it."""
    cells = []
    for level, p in chances(rows, levels).items():
        found = choices(rows, level)
        measured = [one.measured for one in found]
        plans = [row for mine in plans_at(rows, level).values() for row in mine]
        errors = [row.predicted_gain - row.measured_gain for row in plans]
        low, high = interval(measured)
        cells.append(
            [
                LEVELS[level],
                str(len(plans)),
                f"{mean([one.predicted for one in found]):+.1f} %",
                f"{mean(measured):+.1f} % ({low:+.1f} to {high:+.1f})",
                f"{min(measured):+.1f} to {max(measured):+.1f} %",
                f"{p:.3f}" if p < 1.0 else "1",
                f"{mean([one.best for one in found]):+.1f} %",
                f"{mean([one.regret for one in found]):.1f} %",
                f"{mean(errors):+.1f} (mean size {mean([abs(error) for error in errors]):.1f})",
            ]
        )
    return cells


def size_of_errors(rows: Iterable[Row], levels: Sequence[str]) -> dict[str, object]:
    """How far off predicted gains are at some levels, over all plans: how many there are, and points."""
    errors = [abs(row.predicted_gain - row.measured_gain) for row in rows if row.level in levels]
    return {"steered": len(errors), "steered_size": mean(errors)}


def of_pairs(name: str, rows: Sequence[Row], levels: Sequence[str]) -> dict[str, object]:
    """What the page says of pairs that were measured at some levels: the table is ``NAMEs``."""
    gains = {f"{name}_{level}": mean([one.measured for one in choices(rows, level)]) for level in levels}
    return {
        f"{name}s": table(level_titles(), level_cells(rows, levels)),
        f"{name}_pairs": len({row.workload for row in rows}),
        f"{name}_plans": len(rows),
        f"{name}_significant": significant(rows, levels),
        **gains,
    }


def level_table(rows: Sequence[Row]) -> str:
    """What each level gains, and what quotas are predicted to gain."""
    quotas = [one.predicted for one in choices(rows, "quotas")]
    unmeasured = [LEVELS["quotas"], "0", f"{mean(quotas):+.1f} %", *["not measured"] * 6]
    return table(level_titles(), [*level_cells(rows), unmeasured])


def kind_table(rows: Sequence[Row], of: Callable[[Choice], float]) -> str:
    """Mean gain of what is chosen by kind of workload and level."""
    cells = []
    for kind in KINDS:
        line = [kind]
        for level in MEASURED_LEVELS:
            found = [of(one) for one in choices(rows, level) if one.kind == kind]
            line.append(f"{mean(found):+.1f} % ({min(found):+.1f} to {max(found):+.1f})" if found else "–")
        cells.append(line)
    return table(["workloads", *(SHORT.get(level, level) for level in MEASURED_LEVELS)], cells)


def network_gains(rows: Sequence[Row]) -> dict[str, tuple[float, float]]:
    """Predicted and measured gain of plain streams over one stream by network, percent."""
    found = {}
    for name in NETWORK_BATCH:
        serial, plain = _without_control(rows, name)
        pairs = (serial.predicted_us, plain.predicted_us), (serial.measured_us, plain.measured_us)
        predicted, measured = (100.0 * (one / other - 1.0) for one, other in pairs)
        found[name] = predicted, measured
    return found


def _without_control(rows: Sequence[Row], name: str) -> tuple[Row, Row]:
    """A network in one stream, and in plain streams."""
    mine = {row.plan: row for row in rows if row.workload == name and row.level == "nothing"}
    return mine["serial"], mine["streams"]


def network_table(rows: Sequence[Row]) -> str:
    """Plain streams over one stream in networks."""
    cells = []
    for name, gains in network_gains(rows).items():
        both = _without_control(rows, name)
        us = [f"{us:,.0f}" for row in both for us in (row.predicted_us, row.measured_us)]
        cells.append([f"`{name}`", *us, *(f"{gain:+.1f} %" for gain in gains)])
    titles = ["network", "one stream: predicted µs", "measured", "streams: predicted µs", "measured"]
    return table([*titles, "streams gain: predicted", "measured"], cells)


@dataclass(frozen=True)
class Recommended:
    """What `gpusim select` recommends for a module, by the error of its choices for other workloads.

    Attributes:
        workload: the module.
        plan: the plan predicted best of those that the command can print; None: plain streams are.
        error: of such plans.
        inside: the best algorithms in the same streams; None where none are predicted to gain.
        inside_error: of such algorithms.
        best: largest measured gain of any plan of the module that the command can print, percent.
        best_of_all: the same of any plan, with priorities and start orders, percent.
    """

    workload: str
    plan: Row | None
    error: ChosenError | None
    inside: Row | None
    inside_error: ChosenError | None
    best: float
    best_of_all: float

    @property
    def taken(self) -> Row | None:
        """What is recommended over plain streams: algorithms, or the plan; None: neither."""
        steps = [(self.inside, self.inside_error)]
        if self.plan is not self.inside:
            steps.append((self.plan, self.error))
        able = [(row, error) for row, error in steps if row is not None]
        taken = steps_taken((row.predicted_gain, error) for row, error in able)
        return (None, *(row for row, _ in able))[taken[-1]]

    @property
    def words(self) -> str:
        """The same in words."""
        if self.taken is None:
            return "plain streams (tie)"
        return "algorithms only" if self.taken is self.inside else "the plan"

    @property
    def expected(self) -> float:
        """Expected gain of what is recommended, percent."""
        error = self.inside_error if self.taken is self.inside else self.error
        return expected_gain(self.gains[0], error)

    @property
    def gains(self) -> tuple[float, float]:
        """Predicted and measured gain of what is recommended, percent."""
        return gains_of(self.taken)

    @property
    def regret(self) -> float:
        """How much longer what is recommended takes than the best measured plan that the command can print, percent."""
        return longer(self.best, self.gains[1])

    @property
    def regret_of_all(self) -> float:
        """The same against the best of all measured plans, percent."""
        return longer(self.best_of_all, self.gains[1])


def recommended(rows: Sequence[Row], evidence: Evidence) -> list[Recommended]:
    """What is recommended for each module, by the evidence from other workloads."""
    found, algorithms = chosen(rows, "all"), chosen(rows, "algorithms")
    made = []
    for choice in choices(rows, "all"):
        name = choice.workload
        mine = [one for one in rows if one.workload == name]
        most = max(one.measured_gain for one in mine if one.level in MEASURED_LEVELS)
        errors = {kind: error_without(name, mine[0].operation_us, points) for kind, points in evidence.items()}
        plan, inside = found.get(name), algorithms.get(name)
        steps = plan, errors["plan"], inside, errors["algorithms"]
        made.append(Recommended(name, *steps, choice.best, max(choice.best, most)))
    return made


def select_table(found: Sequence[Recommended]) -> str:
    """The plans of `gpusim select`."""
    cells = [
        [
            one.workload,
            *(f"{gain:+.1f} %" for gain in gains_of(one.plan)),
            one.words,
            f"{one.expected:+.1f} %",
            f"{one.gains[1]:+.1f} %",
            f"{one.best:+.1f} %",
            f"{one.regret:.1f} %",
            f"{one.best_of_all:+.1f} %",
            f"{one.regret_of_all:.1f} %",
        ]
        for one in found
    ]
    titles = ["module", "plan: predicted", "measured", "recommended", "expected", "measured"]
    return table([*titles, "best that it can print", "regret", "best of all", "regret"], cells)


def page(rows: Sequence[Row], evidence: Evidence) -> dict[str, object]:
    """What the page says."""
    found = recommended(rows, evidence)
    plans = [gains_of(one.plan) for one in found]
    errors = [predicted - measured for predicted, measured in plans]
    taken = [one.expected - one.gains[1] for one in found]
    return {
        "workloads": len({row.workload for row in rows}),
        "plans": sum(row.measured_us > 0.0 for row in rows),
        "levels": level_table(rows),
        "kinds": kind_table(rows, lambda one: one.measured),
        "best": kind_table(rows, lambda one: one.best),
        "networks": network_table(rows),
        "select": select_table(found),
        "select_predicted": mean([predicted for predicted, _ in plans]),
        "select_measured": mean([measured for _, measured in plans]),
        "select_bias": mean(errors),
        "select_size": mean([abs(error) for error in errors]),
        "taken": sum(one.words == "the plan" for one in found),
        "taken_inside": sum(one.words == "algorithms only" for one in found),
        "modules": len(found),
        "taken_measured": mean([one.gains[1] for one in found]),
        "taken_bias": mean(taken),
        "taken_size": mean([abs(error) for error in taken]),
        "taken_worst": min(one.gains[1] for one in found),
        "taken_worse": sum(one.gains[1] < WORSE for one in found),
        "rate_most": 100.0 * most_frequent(sum(one.gains[1] < WORSE for one in found), len(found)),
        "taken_regret": mean([one.regret for one in found]),
        "taken_regret_of_all": mean([one.regret_of_all for one in found]),
        "asked_regret": REGRET_PERCENT,
        "met_regret": met([one.regret for one in found]),
        "met_regret_of_all": met([one.regret_of_all for one in found]),
        "significant": significant(rows),
        "worse": sum(measured < WORSE for _, measured in plans),
        **_order_numbers(rows),
        **{f"{level}_gain": mean([one.measured for one in choices(rows, level)]) for level in MEASURED_LEVELS},
        **{f"{level}_plans": sum(row.level == level for row in rows) for level in MEASURED_LEVELS},
        "quotas_gain": mean([one.predicted for one in choices(rows, "quotas")]),
    }


def met(regrets: Sequence[float]) -> str:
    """Whether the mean regret is what was asked for."""
    return "met" if mean(regrets) <= REGRET_PERCENT else "missed"


def _order_numbers(rows: Sequence[Row]) -> dict[str, object]:
    """What start orders do, measured: by a flag for each stream, and launched by the host."""
    host = {(row.workload, row.plan): row for row in rows if row.level == "host"}
    order = {(row.workload, row.plan): row for row in rows if row.level == "order"}
    both = [name for name, plan in order if plan == "worst"]
    best_over_worst = [100.0 * (order[n, "worst"].measured_us / order[n, "best"].measured_us - 1.0) for n in both]
    predicted = [100.0 * (order[n, "worst"].predicted_us / order[n, "best"].predicted_us - 1.0) for n in both]
    by_host = [n for n, plan in host if plan == "best"]
    over_traced = [100.0 * (host[n, "as-traced"].measured_us / host[n, "best"].measured_us - 1.0) for n in by_host]
    low, high = interval(over_traced)
    return {
        "order_spread": mean(best_over_worst),
        "order_spread_predicted": mean(predicted),
        "host_loss": mean([row.measured_gain for row in host.values()]),
        "host_plans": len(host),
        "host_over_traced": f"{mean(over_traced):+.1f} % ({low:+.1f} to {high:+.1f})",
    }


# ---- the picture -----------------------------------------------------------------------------------------------------


def draw(rows: Sequence[Row], path: Path) -> None:
    """Measured over predicted gain of every plan, by level."""
    with new_figure(3.3) as figure:
        axes = figure.subplots()
        _draw(rows, axes)
        legend_below(figure, axes, 3)
        save_figure(figure, path)


def _draw(rows: Sequence[Row], axes: Axes) -> None:
    for n, level in enumerate(MEASURED_LEVELS):
        mine = [row for row in rows if row.level == level]
        x, y = [row.predicted_gain for row in mine], [row.measured_gain for row in mine]
        axes.scatter(
            x,
            y,
            s=10,
            color=COLOURS[n],
            marker=MARKERS[n],
            alpha=0.75,
            label=LEVELS[level].split(" (")[0],
            linewidths=0,
        )
    ends = [-55.0, 35.0]
    axes.plot(ends, ends, color=GREY, linewidth=0.8, linestyle="--", label="as predicted")
    axes.set_xlabel("Predicted gain over plain streams (%)")
    axes.set_ylabel("Measured gain on an H100 (%)")
