"""Whole programs of kinds that the model was never fitted to: `python experiments/unseen_programs/run.py [--out DIR]`.

`models.py` and `models_second.py` to `models_fifth.py` name PyTorch programs and pairs of them. Each was written before
any of its programs was measured, and `gpusim record FILE --outcomes` recorded it. `first.csv` has
the scores of the model as it was when a set was recorded, and is never made anew. `result.csv` has those of today's
model.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from gpusim.lab.scoring import scoring
from gpusim.lab.validate import Case
from gpusim.lab.whole_models import PASSES, PROFILE

HERE = Path(__file__).resolve().parent
FIRST, RESULT = "first.csv", "result.csv"
SHOWN = (ISOLATED, "sm_curve", "streams", "green")
PAIRED = ("streams", "green")
SLOWER = 0.01  # share of the time of one program after the other
PREDICTED, PLAIN = "setting predicted best", "plain streams"
CHOICES = {
    "SM split predicted best, of all splits": ("green", "all", ""),
    "setting predicted best, of plain streams and all splits": ("settings", "choice", PREDICTED),
    "plain streams, of plain streams and all splits": ("settings", "choice", PLAIN),
}


@dataclass(frozen=True)
class Programs:
    """A set of programs that was recorded once.

    Attributes:
        name: of the set in the tables.
        file: names the programs and their pairs.
        recording: name of the folder.
        gpu: on which they were recorded.
        model: commit of the model whose scores are in first.csv.
    """

    name: str
    file: str
    recording: str
    gpu: str
    model: str

    @property
    def folder(self) -> Path:
        """The recording."""
        return HERE / self.recording / "models"

    @property
    def case(self) -> Case:
        """The recording, as `gpusim validate` takes it."""
        return Case(str(self.folder), self.gpu)


SETS = (
    Programs("first set", "models.py", "h100-sxm", "h100-sxm", "f6abd50d"),
    Programs("second set", "models_second.py", "h200", "h200", "ae8b2599"),
    Programs("third set", "models_third.py", "h200_third", "h200", "8dca8500"),
    Programs("fourth set", "models_fourth.py", "h200_fourth", "h200", "23f702d1"),
    Programs("fifth set", "models_fifth.py", "h200_fifth", "h200", "aa1830ad"),
)
SEEN = SETS[:-1]  # that no rule of the model may be tested on any more; the others are in no error band either


def scores_of(programs: Programs) -> Iterator[Score]:
    """Scores of all groups, and the regret of settings."""
    name, found = programs.name, scoring(programs.case)
    yield from scores(name, "all", "", found.rows, found)
    for split, mine in _split_by_curves(found.rows).items():
        yield from scores(name, "split", split, mine, found)
    for setting, regrets in _regrets(found.rows).items():
        yield Score(name, "settings", "choice", setting, len(regrets), nan, nan, nan, nan, 100.0 * fmean(regrets), "")
    yield from scores_by_name(name, found)


def _split_by_curves(rows: Sequence[Scored]) -> dict[str, list[Scored]]:
    """SM splits from the measured time of each program alone on its SMs: with and without predicted interference."""
    alone = {row.key: row for row in rows if row.experiment == "sm_curve"}
    splits: dict[str, list[Scored]] = {ALONE: [], TOGETHER: []}
    for row in _splits(rows):
        sides = [alone[f"{row.key}|{side}"] for side in "ab"]
        measured, predicted = ([one.measured_ms for one in sides], [one.predicted_ms for one in sides])
        for name, one in from_curves(row, measured, predicted).items():
            splits[name].append(one)
    return splits


def _splits(rows: Iterable[Scored]) -> list[Scored]:
    return [row for row in rows if row.experiment == "green"]


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


Known = Mapping[tuple[str, str, str], Score]  # scores of a set by experiment, group and name


def page(first: Sequence[Score], now: Sequence[Score]) -> dict[str, object]:
    """What the page says."""
    then, today = ({one.name: _known(rows, one) for one in SETS} for rows in (first, now))
    words: dict[str, object] = {"slower": f"{100.0 * SLOWER:g}"}
    for number, programs in enumerate(SETS, 1):
        mine = [row for row in first if row.recording == programs.name]
        about = _about(programs, mine, then[programs.name], today[programs.name])
        words |= {f"{name}{number}": value for name, value in about.items()}
    return {
        **words,
        "scores": table(
            ("set", "experiment", *FIGURES, "today %"),
            [
                (one.name, title(experiment), *figures(then[one.name][key]), error_cell(today[one.name][key]))
                for one in SETS
                for experiment in SHOWN
                for key in [(experiment, "all", "")]
            ],
        ),
        "interference": table(
            ("set", "measured %", "predicted %", "pairs", "slower, measured", "slower, predicted"),
            [
                (
                    one.name,
                    f"{words[f'streams_measured{number}']:+.1f}",
                    f"{words[f'streams_predicted{number}']:+.1f}",
                    *(str(words[f"{name}{number}"]) for name in ("pairs", "slower_measured", "slower_predicted")),
                )
                for number, one in enumerate(SETS[:-1], 1)
            ],
        ),
        "regrets": table(
            ("choice", *(f"{one.name} %, today %" for one in SETS)),
            [
                (choice, *(", ".join(_regret(known[one.name][key]) for known in (then, today)) for one in SETS))
                for choice, key in CHOICES.items()
            ],
        ),
    }


def _regret(row: Score) -> str:
    return f"{row.regret_percent:.1f}"


def _known(rows: Sequence[Score], programs: Programs) -> Known:
    return {(row.experiment, row.group, row.name): row for row in rows if row.recording == programs.name}


def _about(programs: Programs, first: Sequence[Score], then: Known, today: Known) -> dict[str, object]:
    """What the page says of one set."""
    every = {one: then[one, "all", ""] for one in SHOWN}
    names, pairs = worst(first, "sm_curve"), worst(first, "green")
    measured, predicted = _streams(programs, first)
    together = then["green", "split", TOGETHER]
    return {
        "model": programs.model,
        "programs": len(names),
        "pairs": len(pairs),
        "kernels": sum(_kernels(programs.folder, row.name) for row in names),
        "splits": every["sm_curve"].points // len(pairs) // 2,
        "curve": every["sm_curve"].mape_percent,
        "streams": every["streams"].mape_percent,
        "green": every["green"].mape_percent,
        "split_alone": then["green", "split", ALONE].mape_percent,
        "split_together": together.mape_percent,
        "split_together_bias": together.bias_percent,
        "streams_nothing": every["streams"].nothing_percent,
        "streams_measured": 100.0 * fmean(measured),
        "streams_predicted": 100.0 * fmean(predicted),
        "slower_measured": sum(one > SLOWER for one in measured),
        "slower_predicted": sum(one > SLOWER for one in predicted),
        "worst": table(
            ("program", "isolated %", "part of the SMs %", "bias %", "today %", "longest kernel, and what binds it"),
            [
                (f"`{row.name}`", error_cell(then[ISOLATED, "one", row.name]), *_error(row, today), _why(row))
                for row in names
            ],
        ),
        "worst_pairs": table(
            ("pair", "two streams %", "bias %", "today %", "SM split %", "bias %", "today %"),
            [
                (f"`{row.name}`", *(cell for one in PAIRED for cell in _error(then[one, "one", row.name], today)))
                for row in pairs
            ],
        ),
    }


def _streams(programs: Programs, first: Sequence[Score]) -> tuple[list[float], list[float]]:
    """How much longer each pair took in streams than one after the other, as a share: measured and predicted."""
    rows = lines(programs.folder / "pairs.csv")
    ms = {(row["mode"], f"{row['a']} + {row['b']}"): float(row["ms_makespan"]) for row in rows}
    pairs = worst(first, "streams")
    shares = [ms["streams", row.name] / ms["alone", row.name] for row in pairs]
    predicted = [share * (1.0 + row.bias_percent / 100.0) for share, row in zip(shares, pairs, strict=True)]
    return [one - 1.0 for one in shares], [one - 1.0 for one in predicted]


def _error(row: Score, today: Known) -> tuple[str, str, str]:
    """First error and bias, and today's error."""
    return error_cell(row), f"{row.bias_percent:+.1f}", error_cell(today[row.experiment, "one", row.name])


def _why(row: Score) -> str:
    return row.why.replace("|", "")


def _kernels(folder: Path, program: str) -> int:
    """Kernels of one pass."""
    with gzip.open(folder / f"{program}{PROFILE}.gz", "rt", encoding="utf-8") as file:
        return sum(event.get("cat") == "kernel" for event in json.load(file)["traceEvents"]) // PASSES


def rows(run: Run) -> Mapping[str, Iterable[object]]:
    """Scores of today's model; those of the model as it was stay."""
    return {FIRST: from_csv(Score, HERE / FIRST), RESULT: [row for one in SETS for row in scores_of(one)]}


STUDY = Study(__file__, __doc__, {FIRST: Score, RESULT: Score}, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
