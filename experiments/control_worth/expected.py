"""What gain to expect of a chosen plan, and how much it must be: ways compared on workloads that are left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, fsum, sqrt
from statistics import stdev

from experiments.chosen_errors import Evidence, Point, error_of
from experiments.control_worth.fresh_report import Case, Fresh, cases
from experiments.control_worth.report import WORSE, longer, mean
from experiments.markdown import table
from gpusim.choose.chosen import ONE_IN_TEN, ChoiceKind, length_of

KINDS: dict[ChoiceKind, str] = {"algorithms": "algorithms", "plan": "plans"}
LARGE = 5.0  # percent: a predicted gain that may be recommended
Gains = Sequence[tuple[float, float]]  # predicted and measured, percent


def groups(evidence: Evidence) -> dict[tuple[ChoiceKind, str], list[Point]]:
    """Chosen plans that are predicted to gain, by kind of choice and length of operations."""
    return {
        (kind, length): [one for one in evidence[kind] if one.predicted > 0.0 and length_of(one.operation_us) == length]
        for kind in KINDS
        for length in ("long", "short")
    }


def others(point: Point, points: Sequence[Point]) -> Gains:
    """The gains of plans for other workloads."""
    return [one.gains for one in points if one.workload != point.workload]


def as_predicted(predicted: float, known: Gains) -> float:
    """The predicted gain itself."""
    return predicted


def less_the_mean(predicted: float, known: Gains) -> float:
    """The predicted gain less the mean shortfall of other choices."""
    return predicted - mean([one - measured for one, measured in known])


def share_of_it(predicted: float, known: Gains) -> float:
    """The share of the predicted gain that other choices gained."""
    return error_of(known).expected(predicted)


WAYS: dict[str, Callable[[float, Gains], float]] = {
    "as predicted": as_predicted,
    "less the mean shortfall": less_the_mean,
    "a share of it": share_of_it,
}


def table_of(evidence: Evidence) -> str:
    """How far off each way is, of workloads that are left out."""
    cells, off = [], list[tuple[float, list[float]]]()
    for (kind, length), points in groups(evidence).items():
        error = error_of([one.gains for one in points])
        mine = [
            (one.predicted, [way(one.predicted, others(one, points)) - one.measured for way in WAYS.values()])
            for one in points
        ]
        known = [f"{error.share:.2f}", f"{error.limit:.1f} points"]
        cells.append(
            [f"{KINDS[kind]}, {length} operations", str(len(points)), *known, *_errors([row for _, row in mine])]
        )
        off += mine
    large = [row for predicted, row in off if predicted > LARGE]
    cells.append([f"all predicted to gain more than {LARGE:g} %", str(len(large)), "", "", *_errors(large)])
    return table(["choices", "plans", "share", "one in ten falls short by", *WAYS], cells)


def _errors(rows: Sequence[Sequence[float]]) -> list[str]:
    """Mean, mean size and root mean square of the errors of each way."""
    return [_spread(off) for off in zip(*rows, strict=True)]


def _spread(off: Sequence[float]) -> str:
    root = sqrt(fsum(one * one for one in off) / len(off))
    return f"{mean(off):+.1f} ({mean([abs(one) for one in off]):.1f}, {root:.1f})"


# ---- how much a gain must be -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """When a step is taken: its predicted gain (percent) and the gains of other choices decide."""

    words: str
    taken: Callable[[float, Gains], bool]


def _shortfalls(known: Gains) -> list[float]:
    return sorted(predicted - measured for predicted, measured in known)


def _beyond_quantile(share: float) -> Callable[[float, Gains], bool]:
    return lambda predicted, known: predicted > _shortfalls(known)[ceil(share * len(known)) - 1]


def _beyond_deviations(count: float) -> Callable[[float, Gains], bool]:
    return lambda predicted, known: predicted > mean(_shortfalls(known)) + count * stdev(_shortfalls(known))


def _beyond_expected(count: float) -> Callable[[float, Gains], bool]:
    def taken(predicted: float, known: Gains) -> bool:
        error = error_of(known)
        return error.expected(predicted) > count * error.size

    return taken


ONE_IN_TWENTY = 1.6449
RULES = (
    Rule("never", lambda predicted, known: False),
    Rule("always", lambda predicted, known: True),
    Rule(
        "predicted gain over the largest shortfall", lambda predicted, known: predicted > max(0.0, *_shortfalls(known))
    ),
    Rule("predicted gain over the shortfall of one in ten, counted", _beyond_quantile(0.9)),
    Rule("predicted gain over the shortfall of one in ten, normal", _beyond_deviations(ONE_IN_TEN)),
    Rule("expected gain over the shortfall of one in ten, normal", _beyond_expected(ONE_IN_TEN)),
    Rule("expected gain over the shortfall of one in twenty, normal", _beyond_expected(ONE_IN_TWENTY)),
)


def rule_table(evidence: Evidence, found: Sequence[Case]) -> str:
    """What each rule would recommend in the fresh tests, by the evidence from other workloads."""
    known = groups(evidence)
    cells = []
    for rule in RULES:
        taken = [_taken(rule, case, known) for case in found]
        gains = [row.measured_gain for row in taken]
        cells.append(
            [
                rule.words,
                str(sum(row.level != "nothing" for row in taken)),
                f"{mean(gains):+.2f} %",
                f"{min(gains):+.1f} %",
                str(sum(gain < WORSE for gain in gains)),
                f"{mean([case.regret(row) for case, row in zip(found, taken, strict=True)]):.2f} %",
            ]
        )
    return table(["a step is taken", "recommended", "measured gain", "worst", "worse than -1 %", "regret"], cells)


def _taken(rule: Rule, case: Case, known: dict[tuple[ChoiceKind, str], list[Point]]) -> Fresh:
    taken = case.plain
    for kind, row in _steps(case):
        points = others(row.point, known[kind, length_of(row.operation_us)])
        if rule.taken(longer(row.predicted_gain, taken.predicted_gain), points):
            taken = row
    return taken


def _steps(case: Case) -> Iterator[tuple[ChoiceKind, Fresh]]:
    if case.algorithms is not None:
        yield "algorithms", case.algorithms
    if case.found is not None:
        yield "plan", case.found


def page(evidence: Evidence, rows: Sequence[Fresh]) -> dict[str, object]:
    """What the page says of it."""
    tests = dict.fromkeys(row.test for row in rows)
    found = [case for test in tests for case in cases(rows, test)]
    long = groups(evidence)["plan", "long"]
    return {
        "long_share": error_of([one.gains for one in long]).share,
        "large_gain": LARGE,
        "expected": table_of(evidence),
        "rules": rule_table(evidence, found),
        "rule_workloads": len(found),
    }
