"""Errors of predictions against a real GPU, scored as the README of experiments/h200_validation says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean

from gpusim.common.spreadsheet import write_csv
from gpusim.common.tables import grouped

EXPERIMENTS = (
    "solo",
    "isolated",
    "sm_curve",
    "residency_curve",
    "streams",
    "streams_b_first",
    "green",
    "quota_a",
    "quota_b",
    "modules_serial",
    "modules_streams",
    "sharing",
    "matrix_same",
    "matrix_disjoint",
)


@dataclass(frozen=True, slots=True)
class Scored:
    """One prediction, its measurement and the baseline: ms, or the gain of a mix (sharing)."""

    experiment: str
    key: str
    predicted_ms: float
    measured_ms: float
    nothing_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """How far off the predictions of one experiment were, in percent of the measurement."""

    experiment: str  # one of `EXPERIMENTS`
    points: int  # predictions scored
    mape_percent: float  # mean absolute percentage error
    median_percent: float  # median of the absolute errors
    p95_percent: float  # their 95th percentile
    bias_percent: float  # mean error with its sign; positive: predicted too long
    nothing_percent: float  # mean absolute percentage error of the baseline (isolated times, without a model)
    # Spearman's, of predicted and measured speedup over serial; None where there is no serial
    rank_correlation: float | None
    # measured makespan at the SM split predicted best over the best measured, less 1, mean over the pairs; None but for
    # ``green``
    regret_percent: float | None


def summaries(rows: Sequence[Scored], measured: Mapping[tuple[str, str], float]) -> list[Summary]:
    """One summary for each experiment, scored as the dataset's README says.

    ``measured`` is as `measurements` gives it; the times of pairs alone are the serial of the speedup.
    """
    serial = _serial(rows, measured)
    found = []
    for experiment in EXPERIMENTS:
        mine = [row for row in rows if row.experiment == experiment]
        points = residency_ratios(mine) if experiment == "residency_curve" else mine
        if points:
            found.append(_summary(experiment, points, serial))
    return found


def _summary(experiment: str, points: Sequence[Scored], serial: Mapping[tuple[str, str], float]) -> Summary:
    import numpy as np

    errors = np.array([row.predicted_ms / row.measured_ms - 1.0 for row in points])
    nothing = np.array([row.nothing_ms / row.measured_ms - 1.0 for row in points])
    return Summary(
        experiment,
        len(points),
        float(np.mean(np.abs(errors)) * 100),
        float(np.median(np.abs(errors)) * 100),
        float(np.percentile(np.abs(errors), 95) * 100),
        float(np.mean(errors) * 100),
        float(np.mean(np.abs(nothing)) * 100),
        _rank_correlation(points, serial),
        _regret(points) * 100 if experiment == "green" else None,
    )


SUMMARY_FIELDS = tuple(field.name for field in fields(Summary))


@dataclass(frozen=True, slots=True)
class Choice:
    """Quality of the algorithms and modes that the predictions choose for modules."""

    points: int  # modules of which several selections of algorithms were measured
    # measured makespan at the selection and mode (serial or streams) predicted best over the best measured, less 1,
    # mean over the modules
    regret_percent: float
    experiment: str = "choice"


def choice(rows: Sequence[Scored]) -> Choice | None:
    """The choices that all predictions make; None where no module has several selections."""
    of_modules = (row for row in rows if row.experiment in ("modules_serial", "modules_streams"))
    modules = grouped(of_modules, lambda row: row.key.split("|")[0]).values()
    chosen = [found for found in modules if len({row.key for row in found}) > 1]
    if not chosen:
        return None
    return Choice(len(chosen), fmean(map(_regret_of, chosen)) * 100)


def _regret_of(options: Sequence[Scored]) -> float:
    """Measured time of the option that is predicted best over the best measured time, less 1."""
    return min(options, key=lambda row: row.predicted_ms).measured_ms / min(row.measured_ms for row in options) - 1.0


def _serial(rows: Sequence[Scored], measured: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    found = {}
    for row in rows:
        if row.experiment in ("streams", "streams_b_first"):
            found[row.experiment, row.key] = measured.get(("alone", row.key), 0.0)
        elif row.experiment == "modules_streams":
            found[row.experiment, row.key] = measured.get(("modules_serial", row.key), 0.0)
    return found


def residency_ratios(rows: Sequence[Scored]) -> list[Scored]:
    """Residency rows over the same op's row at its largest limit, which is left out itself."""
    of_op = grouped(rows, lambda row: row.key.rpartition("|")[0])
    most = {op: max(mine, key=lambda row: int(row.key.rpartition("|")[2])) for op, mine in of_op.items()}
    bases = [(row, most[row.key.rpartition("|")[0]]) for row in rows]
    return [
        replace(
            row,
            predicted_ms=row.predicted_ms / base.predicted_ms,
            measured_ms=row.measured_ms / base.measured_ms,
            nothing_ms=row.nothing_ms / base.nothing_ms,
        )
        for row, base in bases
        if row is not base
    ]


def _rank_correlation(rows: Sequence[Scored], serial: Mapping[tuple[str, str], float]) -> float | None:
    import pandas as pd

    known = [row for row in rows if serial.get((row.experiment, row.key), 0.0) > 0.0]
    if len(known) < 3:
        return None
    predicted = pd.Series([serial[row.experiment, row.key] / row.predicted_ms for row in known])
    measured = pd.Series([serial[row.experiment, row.key] / row.measured_ms for row in known])
    if predicted.nunique() == 1 or measured.nunique() == 1:  # no rank to compare
        return None
    return float(predicted.rank().corr(measured.rank()))


def _regret(rows: Sequence[Scored]) -> float:
    pairs = grouped(rows, lambda row: row.key.rsplit("|", 2)[0])
    return fmean(map(_regret_of, pairs.values()))


def write_rows(rows: Sequence[Scored], path: Path) -> None:
    """Write ``experiment,key,predicted_ms,measured_ms``, whole or not at all."""
    cells = ((row.experiment, row.key, f"{row.predicted_ms:.6f}", f"{row.measured_ms:.6f}") for row in rows)
    write_csv(path, ("experiment", "key", "predicted_ms", "measured_ms"), cells)
