"""The fresh test of what `gpusim select` recommends: tables and numbers of the page, all from its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from experiments.control_worth.report import WORSE, interval, longer, mean, met, most_frequent
from experiments.markdown import table
from gpusim.common.tables import grouped


@dataclass(frozen=True)
class Fresh:
    """A plan of the fresh test, predicted and measured.

    Attributes:
        workload: name of its trace, or of two.
        level: `nothing`: plain streams; `algorithms`: the best in the same streams; `all`: the plan found.
        recommended: 1 if `gpusim select` recommended it before it was measured, else 0.
        sharing: SMs of its streams, or `all`.
        predicted_us: expected makespan, the mean over start orders.
        measured_us: mean over turns of CUDA's streams of the median over rounds.
        least_us, most_us: the shortest and the longest turn of any round.
        earlier_us: of the same plan in the earlier measurement; NaN: it was not measured.
        predicted_gain, measured_gain, earlier_gain: over plain streams, percent.
        error: standard error of the measured gain, from the gains of the rounds, points.
        most: most by which earlier choices of its kind fell short of their prediction, points.
    """

    workload: str
    level: str
    recommended: int
    sharing: str
    predicted_us: float
    measured_us: float
    least_us: float
    most_us: float
    earlier_us: float
    predicted_gain: float
    measured_gain: float
    earlier_gain: float
    error: float
    most: float

    @property
    def shortfall(self) -> float:
        """By how much the measured gain is less than the predicted one, points."""
        return self.predicted_gain - self.measured_gain


@dataclass(frozen=True)
class Case:
    """A workload with its plans: plain streams, and algorithms and the plan found where they differ."""

    workload: str
    plain: Fresh
    algorithms: Fresh | None
    found: Fresh | None

    @property
    def plans(self) -> list[Fresh]:
        """All that were measured."""
        return [row for row in (self.plain, self.algorithms, self.found) if row is not None]

    @property
    def recommended(self) -> Fresh:
        """What `gpusim select` recommended."""
        (row,) = (row for row in self.plans if row.recommended)
        return row

    @property
    def best_predicted(self) -> Fresh:
        """The plan that is taken if the error of choices is not considered."""
        return self.found or self.best_inside

    @property
    def best_inside(self) -> Fresh:
        """The algorithms that are taken in the same streams if the error of choices is not considered."""
        return self.algorithms or self.plain

    @property
    def best(self) -> Fresh:
        """The best of all that were measured."""
        return max(self.plans, key=lambda row: row.measured_gain)

    def regret(self, taken: Fresh) -> float:
        """How much longer a plan takes than the best of all that were measured, percent."""
        return longer(self.best.measured_gain, taken.measured_gain)

    @property
    def new(self) -> bool:
        """Whether no plan of `gpusim select` for this workload was measured when the rule was chosen."""
        return "+" in self.workload or not self.workload.startswith("inception")


def cases(rows: Sequence[Fresh]) -> list[Case]:
    """The workloads with their plans."""
    made = []
    for workload, mine in grouped(rows, lambda row: row.workload).items():
        of = {row.level: row for row in mine}
        made.append(Case(workload, of["nothing"], of.get("algorithms"), of.get("all")))
    return made


TAKEN: dict[str, Callable[[Case], Fresh]] = {
    "what `gpusim select` recommended": lambda case: case.recommended,
    "the best algorithms in the same streams, always": lambda case: case.best_inside,
    "the plan found, always": lambda case: case.best_predicted,
}


def choice_table(found: Sequence[Case]) -> str:
    """What is gained by the recommendation, and without considering the error of choices."""
    cells = []
    old, new = [case for case in found if not case.new], [case for case in found if case.new]
    for some, words in ((found, "all"), (old, "modules"), (new, "new")):
        if not some:
            continue
        for title, taken in TAKEN.items():
            rows = [taken(case) for case in some]
            gains = [row.measured_gain for row in rows]
            low, high = interval(gains)
            cells.append(
                [
                    f"{words} ({len(some)})",
                    title,
                    f"{mean([row.predicted_gain for row in rows]):+.1f} %",
                    f"{mean(gains):+.1f} % ({low:+.1f} to {high:+.1f})",
                    f"{min(gains):+.1f} to {max(gains):+.1f} %",
                    str(sum(gain < WORSE for gain in gains)),
                    f"{mean([case.regret(taken(case)) for case in some]):.1f} %",
                ]
            )
    titles = ["workloads", "taken", "predicted", "measured, mean (95 %)", "least to most", "worse than -1 %", "regret"]
    return table(titles, cells)


def case_table(found: Sequence[Case]) -> str:
    """The workloads for which more than plain streams was recommended."""
    cells = []
    for case in found:
        if case.recommended is case.plain:
            continue
        line = [case.workload]
        for row in (case.algorithms, case.found):
            line += ["–"] * 2 if row is None else [f"{row.predicted_gain:+.1f} %", _measured(row)]
        names = {"nothing": "plain streams", "algorithms": "algorithms", "all": "the plan"}
        line += [names[case.recommended.level], f"{case.regret(case.recommended):.1f} %"]
        cells.append(line)
    titles = ["workload", "algorithms: predicted", "measured", "plan found: predicted", "measured"]
    return table([*titles, "recommended", "regret"], cells)


def _measured(row: Fresh) -> str:
    earlier = "" if isnan(row.earlier_gain) else f", earlier {row.earlier_gain:+.1f}"
    return f"{row.measured_gain:+.1f} % (± {row.error:.1f}{earlier})"


def page(rows: Sequence[Fresh]) -> dict[str, object]:
    """What the page says of it."""
    found = cases(rows)
    numbers = _gains(found) | _errors(found, rows) | _again(rows)
    numbers |= {"choices": choice_table(found), "cases": case_table(found), "plans": len(rows)}
    return {f"fresh_{name}": value for name, value in numbers.items()}


def _gains(found: Sequence[Case]) -> dict[str, object]:
    """What recommendations gain, and what the plans found would have."""
    gains = [case.recommended.measured_gain for case in found]
    always = [case.best_predicted.measured_gain for case in found]
    regrets = [case.regret(case.recommended) for case in found]
    left = [
        longer(case.recommended.measured_gain, case.found.measured_gain)
        for case in found
        if case.found is not None and not case.found.recommended
    ]
    worse = sum(gain < WORSE for gain in gains)
    return {
        "workloads": len(found),
        "new": sum(case.new for case in found),
        "mean": mean(gains),
        "worst": min(gains),
        "worse": worse,
        "rate": 100.0 * most_frequent(worse, len(found)),
        "regret": mean(regrets),
        "regret_most": max(regrets),
        "met": met(regrets),
        "always_mean": mean(always),
        "always_worst": min(always),
        "left": len(left),
        "left_worse": sum(one > -WORSE for one in left),
        "left_better": sum(one < WORSE for one in left),
    }


def _errors(found: Sequence[Case], rows: Sequence[Fresh]) -> dict[str, object]:
    """By how much predicted gains are too large."""
    taken = [case.recommended for case in found if case.recommended.level != "nothing"]
    fresh = [row.measured_gain for row in taken if isnan(row.earlier_us)]
    new = [row for row in rows if row.level != "nothing" and isnan(row.earlier_us)]
    plans = [row for row in rows if row.level == "all"]
    short = [row for row in plans if row.shortfall > row.most]
    return {
        "more": len(taken),
        "more_new": len(fresh),
        "more_new_mean": mean(fresh),
        "more_new_worst": min(fresh, default=0.0),
        "more_bias": mean([row.shortfall for row in taken]),
        "more_size": mean([abs(row.shortfall) for row in taken]),
        "all_bias": mean([case.recommended.shortfall for case in found]),
        "all_size": mean([abs(case.recommended.shortfall) for case in found]),
        "new_plans": len(new),
        "new_bias": mean([row.shortfall for row in new]),
        "new_size": mean([abs(row.shortfall) for row in new]),
        "found": len(plans),
        "short": len(short),
        "short_taken": sum(row.recommended for row in short),
        "short_points": max((row.shortfall - row.most for row in short), default=0.0),
    }


def _again(rows: Sequence[Fresh]) -> dict[str, object]:
    """How far apart two measurements of one plan are, on two machines."""
    again = [row for row in rows if row.level != "nothing" and not isnan(row.earlier_us)]
    most = max(again, key=lambda row: abs(row.measured_gain - row.earlier_gain))
    plain = {row.workload: row for row in rows if row.level == "nothing"}
    times = [abs(100.0 * (row.measured_us / row.earlier_us - 1.0)) for row in rows if not isnan(row.earlier_us)]
    return {
        "again": len(again),
        "again_size": mean([abs(row.measured_gain - row.earlier_gain) for row in again]),
        "others_size": mean([abs(row.measured_gain - row.earlier_gain) for row in again if row is not most]),
        "apart": most.workload,
        "apart_now": most.measured_gain,
        "apart_earlier": most.earlier_gain,
        "apart_least_us": plain[most.workload].least_us,
        "apart_most_us": plain[most.workload].most_us,
        "apart_us": plain[most.workload].measured_us,
        "apart_earlier_us": plain[most.workload].earlier_us,
        "times": len(times),
        "times_size": mean(times),
    }
