"""Whole programs of kinds that the model was never fitted to: `python experiments/unseen_programs/run.py [--out DIR]`.

`models.py` names PyTorch programs and pairs of them. It was written before any of them ran on a GPU, and
`gpusim record models.py --outcomes` recorded them on an H100. `first.csv` has the scores of the model as it was then,
and is never made anew. `result.csv` has those of today's model.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from statistics import fmean

from experiments.markdown import table
from experiments.rows import from_csv, lines
from experiments.study import Run, Study
from experiments.unseen import (
    ALONE,
    FIGURES,
    ISOLATED,
    TOGETHER,
    Score,
    by_name,
    error_cell,
    figures,
    from_curves,
    scores,
    scores_by_name,
    worst,
)
from gpusim.common.tables import grouped
from gpusim.lab.names import title
from gpusim.lab.scores import Scored
from gpusim.lab.scoring import Scoring, scoring
from gpusim.lab.validate import Case
from gpusim.lab.whole_models import PASSES, PROFILE

HERE = Path(__file__).resolve().parent
GPU = "h100-sxm"
RECORDED = HERE / GPU / "models"
CASE = Case(str(RECORDED), GPU)
FIRST, RESULT = "first.csv", "result.csv"
MODEL = "f6abd50d"  # commit of the model of first.csv
AS_RECORDED = "as recorded"
SHOWN = (ISOLATED, "sm_curve", "streams", "green")
WORST = 3  # pairs of each experiment
SLOWER = 0.01  # share of the time of one program after the other
PREDICTED, PLAIN = "setting predicted best", "plain streams"
CHOICES = {
    "SM split predicted best, of all splits": ("green", "all", ""),
    "setting predicted best, of plain streams and all splits": ("settings", "choice", PREDICTED),
    "plain streams, of plain streams and all splits": ("settings", "choice", PLAIN),
}


def scores_of(found: Scoring) -> Iterator[Score]:
    """Scores of all groups, and the regret of settings."""
    yield from scores(AS_RECORDED, "all", "", found.rows, found)
    for name, mine in _split_by_curves(found.rows).items():
        yield from scores(AS_RECORDED, "split", name, mine, found)
    for name, regrets in _regrets(found.rows).items():
        yield Score(
            AS_RECORDED, "settings", "choice", name, len(regrets), nan, nan, nan, nan, 100.0 * fmean(regrets), ""
        )
    yield from scores_by_name(AS_RECORDED, found)


def _split_by_curves(rows: Sequence[Scored]) -> dict[str, list[Scored]]:
    """SM splits from the measured time of each program alone on its SMs: with and without predicted interference."""
    alone = {row.key: row for row in rows if row.experiment == "sm_curve"}
    splits: dict[str, list[Scored]] = {ALONE: [], TOGETHER: []}
    for row in rows:
        if row.experiment != "green":
            continue
        sides = [alone[f"{row.key}|{side}"] for side in "ab"]
        measured, predicted = ([one.measured_ms for one in sides], [one.predicted_ms for one in sides])
        for name, one in from_curves(row, measured, predicted).items():
            splits[name].append(one)
    return splits


def _regrets(rows: Sequence[Scored]) -> dict[str, list[float]]:
    """Measured time of each pair over that of its best setting, less 1: of plain streams and of what is predicted best.

    The settings are plain streams and all SM splits.
    """
    settings = (row for row in rows if row.experiment in ("streams", "green"))
    regrets: dict[str, list[float]] = {PREDICTED: [], PLAIN: []}
    for mine in grouped(settings, lambda row: tuple(row.key.split("|")[:4])).values():
        least = min(row.measured_ms for row in mine)
        (plain,) = (row for row in mine if row.experiment == "streams")
        for name, row in ((PREDICTED, min(mine, key=lambda row: row.predicted_ms)), (PLAIN, plain)):
            regrets[name].append(row.measured_ms / least - 1.0)
    return regrets


def page(first: Sequence[Score], now: Sequence[Score]) -> dict[str, object]:
    """What the page says."""
    then, today = ({one[1:]: row for one, row in by_name(rows).items()} for rows in (first, now))
    every = {experiment: then[experiment, "all", ""] for experiment in SHOWN}
    programs, pairs = worst(first, "sm_curve"), worst(first, "green")
    measured, predicted = _streams(first)
    largest = dict.fromkeys(row.name for one in ("streams", "green") for row in worst(first, one, WORST))
    return {
        "model": MODEL,
        "programs": len(programs),
        "pairs": len(pairs),
        "kernels": sum(_kernels(row.name) for row in programs),
        "splits": every["green"].points // len(pairs),
        "curve": every["sm_curve"].mape_percent,
        "streams": every["streams"].mape_percent,
        "streams_nothing": every["streams"].nothing_percent,
        "green": every["green"].mape_percent,
        "regret": every["green"].regret_percent,
        "streams_measured": 100.0 * fmean(measured),
        "streams_predicted": 100.0 * fmean(predicted),
        "slower": f"{100.0 * SLOWER:g}",
        "slower_measured": sum(one > SLOWER for one in measured),
        "slower_predicted": sum(one > SLOWER for one in predicted),
        "chosen": then["settings", "choice", PREDICTED].regret_percent,
        "plain": then["settings", "choice", PLAIN].regret_percent,
        "split_alone": then["green", "split", ALONE].mape_percent,
        "split_together": then["green", "split", TOGETHER].mape_percent,
        "split_together_bias": then["green", "split", TOGETHER].bias_percent,
        "scores": table(
            ("experiment", *FIGURES, "today %"),
            [
                (title(experiment), *figures(one), error_cell(today.get((experiment, "all", ""))))
                for experiment, one in every.items()
            ],
        ),
        "regrets": table(
            ("choice", "regret %", "today %"),
            [(words, *(f"{one[key].regret_percent:.1f}" for one in (then, today))) for words, key in CHOICES.items()],
        ),
        "worst": table(
            ("program", "isolated %", "part of the SMs %", "bias %", "today %", "longest kernel, and what binds it"),
            [
                (f"`{row.name}`", error_cell(then[ISOLATED, "one", row.name]), *_error(row, today), _why(row))
                for row in programs
            ],
        ),
        "worst_pairs": table(
            ("pair", "two streams %", "bias %", "today %", "SM split %", "bias %", "today %"),
            [(f"`{row.name}`", *_error(then["streams", "one", row.name], today), *_error(row, today)) for row in pairs],
        ),
        "why": table(
            ("pair", "longest kernel of each, and what binds it"),
            [(f"`{name}`", _why(then["green", "one", name])) for name in largest],
        ),
    }


def _streams(first: Sequence[Score]) -> tuple[list[float], list[float]]:
    """How much longer each pair took in streams than one after the other, as a share: measured and predicted."""
    ms = {(row["mode"], f"{row['a']} + {row['b']}"): float(row["ms_makespan"]) for row in lines(RECORDED / "pairs.csv")}
    pairs = worst(first, "streams")
    shares = [ms["streams", row.name] / ms["alone", row.name] for row in pairs]
    predicted = [share * (1.0 + row.bias_percent / 100.0) for share, row in zip(shares, pairs, strict=True)]
    return [one - 1.0 for one in shares], [one - 1.0 for one in predicted]


def _error(row: Score, today: Mapping[tuple[str, str, str], Score]) -> tuple[str, str, str]:
    """First error and bias, and today's error."""
    return error_cell(row), f"{row.bias_percent:+.1f}", error_cell(today.get((row.experiment, "one", row.name)))


def _why(row: Score) -> str:
    return row.why.replace("|", "")


def _kernels(program: str) -> int:
    """Kernels of one pass."""
    with gzip.open(RECORDED / f"{program}{PROFILE}.gz", "rt", encoding="utf-8") as file:
        return sum(event.get("cat") == "kernel" for event in json.load(file)["traceEvents"]) // PASSES


def rows(run: Run) -> Mapping[str, Iterable[object]]:
    """Scores of today's model; those of the model as it was stay."""
    found = scoring(CASE)
    return {FIRST: from_csv(Score, HERE / FIRST), RESULT: list(scores_of(found))}


STUDY = Study(__file__, __doc__, {FIRST: Score, RESULT: Score}, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
