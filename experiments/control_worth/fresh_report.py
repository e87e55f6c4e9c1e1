"""The fresh tests of what `gpusim select` recommends: tables and numbers of the page, all from their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

from experiments.chosen_errors import Point
from experiments.control_worth.report import WORSE, interval, longer, mean, met, most_frequent
from experiments.markdown import table
from gpusim.common.tables import grouped

GAIN_POINTS, BIAS_POINTS = 3.0, 1.5  # asked for, of expected less measured gains of recommendations: size and mean


@dataclass(frozen=True)
class Fresh:
    """A plan of the fresh test, predicted and measured.

    Attributes:
        test: name of the test.
        gpu: on which it was measured.
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
        operation_us: mean time of an operation of the workload alone.
        told_gain, told_expected: the predicted and the expected gain that `gpusim select` gave before the measurement,
            percent; NaN: not kept, or plain streams.
        told_limit: by how much one such choice in ten fell short of its expected gain, as was known then, points.
    """

    test: str
    gpu: str
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
    operation_us: float
    told_gain: float
    told_expected: float
    told_limit: float

    @property
    def point(self) -> Point:
        """The plan among those that tell the error of choices."""
        return Point(self.workload, self.operation_us, self.predicted_gain, self.measured_gain)

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
    def group(self) -> str:
        """Which workloads of its test it belongs to."""
        pair = "+" in self.workload
        if self.plain.test == "fresh":
            return "new" if pair or not self.workload.startswith("inception") else "modules"
        return "pairs" if pair else "modules"


def cases(rows: Sequence[Fresh], test: str) -> list[Case]:
    """The workloads of a test with their plans."""
    made = []
    for workload, mine in grouped((row for row in rows if row.test == test), lambda row: row.workload).items():
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
    for words, some in {"all": found, **grouped(found, lambda case: case.group)}.items():
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
            line += ["–"] * 2 if row is None else [_predicted(row), _measured(row)]
        names = {"nothing": "plain streams", "algorithms": "algorithms", "all": "the plan"}
        line += [names[case.recommended.level], f"{case.regret(case.recommended):.1f} %"]
        cells.append(line)
    titles = ["workload", "algorithms: predicted", "measured", "plan found: predicted", "measured"]
    return table([*titles, "recommended", "regret"], cells)


def _predicted(row: Fresh) -> str:
    if isnan(row.told_gain):
        return f"{row.predicted_gain:+.1f} %"
    return f"{row.told_gain:+.1f} %, expected {row.told_expected:+.1f}"


def _measured(row: Fresh) -> str:
    earlier = "" if isnan(row.earlier_gain) else f", earlier {row.earlier_gain:+.1f}"
    return f"{row.measured_gain:+.1f} % (± {row.error:.1f}{earlier})"


def page(rows: Sequence[Fresh], tests: Sequence[str]) -> dict[str, object]:
    """What the page says of them."""
    numbers: dict[str, object] = {}
    for test in tests:
        mine = [row for row in rows if row.test == test]
        found = cases(rows, test)
        made = _gains(found) | _errors(found, mine)
        made |= {"choices": choice_table(found), "cases": case_table(found), "plans": len(mine)}
        if any(not isnan(row.earlier_us) for row in mine):
            made |= _again(mine)
        if any(not isnan(row.told_gain) for row in mine):
            made |= _told(found, mine)
        numbers |= {f"{test}_{name}": value for name, value in made.items()}
    return numbers


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
        "new": sum(case.group == "new" for case in found),
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
    }


def _told(found: Sequence[Case], rows: Sequence[Fresh]) -> dict[str, object]:
    """How the gains turned out that `gpusim select` gave before the measurement."""
    taken = [case.recommended for case in found if case.recommended.level != "nothing"]
    off = [row.told_expected - row.measured_gain for row in taken]
    everywhere = [*off, *[0.0] * (len(found) - len(taken))]
    plans = [row for row in rows if row.level != "nothing"]
    return {
        "told": mean([row.told_gain for row in taken]),
        "told_expected": mean([row.told_expected for row in taken]),
        "told_measured": mean([row.measured_gain for row in taken]),
        "told_predicted_bias": mean([row.told_gain - row.measured_gain for row in taken]),
        "told_predicted_size": mean([abs(row.told_gain - row.measured_gain) for row in taken]),
        "told_bias": mean(off),
        "told_size": mean([abs(one) for one in off]),
        "told_all_bias": mean(everywhere),
        "told_all_size": mean([abs(one) for one in everywhere]),
        "told_met": _met(off),
        "told_all_met": _met(everywhere),
        "gain_points": GAIN_POINTS,
        "bias_points": BIAS_POINTS,
        "told_plans": len(plans),
        "told_short": sum(map(_fell_short, plans)),
        "told_losses": sum(row.measured_gain < 0.0 for row in taken),
        "told_short_taken": sum(map(_fell_short, taken)),
    }


def _met(off: Sequence[float]) -> str:
    """Whether expected gains were as near the measured ones as was asked for."""
    near = mean([abs(one) for one in off]) <= GAIN_POINTS and abs(mean(off)) <= BIAS_POINTS
    return "met" if near else "missed"


def _fell_short(row: Fresh) -> bool:
    """Whether a plan fell shorter of its expected gain than one in ten was to."""
    return row.told_expected - row.measured_gain > row.told_limit


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
