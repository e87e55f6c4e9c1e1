"""How sure the difference between two ways to predict the same rows is: paired intervals of 95 % by bootstrap.

Rows of one op, pair, module or model go wrong together. So these are drawn again and again, each with all its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from gpusim.lab.scores import Scored, residency_ratios

DRAWS = 2000
SEED = 7
FEWEST = 3  # ops, pairs, modules or models to draw from, under which draws say nothing
PERCENTILES = (2.5, 97.5)

Differences = Mapping[str, Sequence[float]]  # by what is drawn, one each row, in percentage points


def error_differences(rows: Sequence[Scored], known: Sequence[Scored]) -> Differences:
    """How much larger the absolute error of each row of one experiment is than that of the same row as known."""
    found: dict[str, list[float]] = {}
    for row, other in _paired(rows, known):
        found.setdefault(drawn_as(row), []).append(_error(row) - _error(other))
    return found


def regret_differences(rows: Sequence[Scored], known: Sequence[Scored]) -> Differences:
    """How much larger the regret of each pair in green contexts is than by the known rows."""
    pairs: dict[str, tuple[list[Scored], list[Scored]]] = {}
    for row, other in zip(rows, known, strict=True):
        mine, others = pairs.setdefault(row.key.rsplit("|", 2)[0], ([], []))
        mine.append(row)
        others.append(other)
    return {pair: [100.0 * (_regret(mine) - _regret(others))] for pair, (mine, others) in pairs.items()}


def interval(differences: Differences) -> tuple[float, float] | None:
    """Ends of where the mean difference over rows lies in 95 of 100 draws; None if there is too little to draw from."""
    if not any(map(any, differences.values())):
        return 0.0, 0.0
    if len(differences) < FEWEST:
        return None
    sums = np.array([sum(of) for of in differences.values()])
    counts = np.array([len(of) for of in differences.values()])
    drawn = np.random.default_rng(SEED).integers(len(sums), size=(DRAWS, len(sums)))
    low, high = np.percentile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), PERCENTILES)
    return float(low), float(high)


def joined(one: Differences, other: Differences) -> dict[str, list[float]]:
    """The differences of both; what has one name is drawn together."""
    return {name: [*one.get(name, ()), *other.get(name, ())] for name in dict.fromkeys((*one, *other))}


def drawn_as(row: Scored) -> str:
    """The op, pair, module, model or microbenchmark of a row."""
    parts = row.key.split("|")
    if row.experiment in ONE_PART or row.experiment.startswith("matrix"):
        return parts[2 if parts[-1] == "b" else 0]  # the second of two models that were measured alone
    return "|".join(parts[:4])


ONE_PART = ("solo", "isolated", "sm_curve", "residency_curve", "modules_serial", "modules_streams")


def _paired(rows: Sequence[Scored], known: Sequence[Scored]) -> list[tuple[Scored, Scored]]:
    if rows and rows[0].experiment == "residency_curve":
        rows, known = residency_ratios(rows), residency_ratios(known)
    return list(zip(rows, known, strict=True))


def _error(row: Scored) -> float:
    return 100.0 * abs(row.predicted_ms / row.measured_ms - 1.0)


def _regret(options: Sequence[Scored]) -> float:
    """Measured time of the split that is predicted best over the best measured time, less 1."""
    return min(options, key=lambda row: row.predicted_ms).measured_ms / min(row.measured_ms for row in options) - 1.0
