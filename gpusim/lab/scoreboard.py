"""The open co-run benchmark: score any predictor on the measured datasets, as `gpusim score` does.

The benchmark is a folder such as experiments/h200_validation/data. The folder itself is the split for fitting. Every
folder in it that holds recordings is for scoring. A predictor may read the recordings of each call in isolation and the
description of a condition. The measured times of co-runs are for scoring only.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from statistics import fmean

from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.spreadsheet import recorded_rows, write_csv
from gpusim.common.tables import grouped
from gpusim.lab.scores import Choice, Scored, Summary, choice, summaries
from gpusim.lab.validate import Case, Condition, Predictor, conditions, measurements

FIT, SCORE = "fit", "score"
RECORDED_GPU = "h200"  # that of the folder itself
GPU_OF = {"h100": "h100-sxm"}  # by the beginning of the name of a folder, where it is another
COLUMNS = ("dataset", "experiment", "key", "predicted_ms")
DESCRIPTION = ("gpu", "recorded_on", "split", "ops", "calls", "sms", "blocks")
MOST_MS = 1e9

Place = tuple[str, str]  # an experiment and a key


@dataclass(frozen=True, slots=True)
class BenchmarkPart:
    """One dataset of the benchmark."""

    name: str  # of the dataset in files of predictions
    split: str  # ``fit`` or ``score``
    case: Case  # what is predicted, and from which recordings

    @property
    def recorded_on(self) -> str:
        """Name of the GPU whose recordings a predictor may read."""
        return self.case.recorded_on or self.case.gpu


@dataclass(frozen=True, slots=True)
class Measured:
    """A dataset with the measured time and the baseline of each condition."""

    part: BenchmarkPart  # which dataset
    # what to predict, by experiment and key; ``quota`` counts as its two experiments
    conditions: Mapping[Place, Condition]
    measured_ms: Mapping[Place, float]  # by experiment and key
    baseline_ms: Mapping[Place, float]  # sum of isolated times, scaled by SMs or blocks, by experiment and key


@dataclass(frozen=True, slots=True)
class Score:
    """The scores of a predictor on one dataset."""

    part: BenchmarkPart  # which dataset
    summaries: tuple[Summary, ...]  # one for each experiment with a prediction
    conditions: Mapping[str, int]  # for each experiment, how many conditions there are
    predicted: Mapping[str, int]  # for each experiment, how many of them have a prediction
    # quality of the choices between algorithms and modes; None without all predictions that it needs
    choice: Choice | None

    @property
    def complete(self) -> bool:
        """Whether every condition of the dataset has a prediction."""
        return self.predicted == self.conditions


def parts(folder: Path) -> list[BenchmarkPart]:
    """The datasets of the benchmark in a folder, the one for fitting first.

    A dataset of another GPU counts twice: predicted from its own recordings, and from those of the folder itself.
    """
    if not _holds_recordings(folder):
        raise InputError(folder, "folder", "holds no convolutions.csv", "a folder as experiments/h200_validation/data")
    found = [BenchmarkPart(folder.name, FIT, Case(str(folder), RECORDED_GPU))]
    for inner in sorted(path for path in folder.iterdir() if _holds_recordings(path)):
        gpu = next((gpu for start, gpu in GPU_OF.items() if inner.name.startswith(start)), RECORDED_GPU)
        found.append(BenchmarkPart(inner.name, SCORE, Case(str(inner), gpu)))
        if gpu != RECORDED_GPU and (inner / "sm_curve.csv").is_file():
            case = Case(str(inner), gpu, str(folder), RECORDED_GPU)
            found.append(BenchmarkPart(f"{inner.name}-from-{RECORDED_GPU}", SCORE, case))
    return found


def _holds_recordings(path: Path) -> bool:
    return os.path.isfile(path / "convolutions.csv")


def load(part: BenchmarkPart) -> Measured:
    """Read a dataset, and work out the baseline of each condition."""
    dataset = part.case.load()
    predictor, measured = Predictor(dataset), measurements(dataset)
    asked: dict[Place, Condition] = {}
    baseline: dict[Place, float] = {}
    for condition in conditions(dataset):
        for experiment, ms in predictor.nothing(condition).items():
            asked[experiment, condition.key] = condition
            baseline[experiment, condition.key] = ms
    return Measured(part, asked, measured, baseline)


# ---- files -----------------------------------------------------------------------------------------------------------


def read_predictions(path: Path, benchmark: Sequence[Measured]) -> dict[str, dict[Place, float]]:
    """Read a file of predictions: ms by dataset, experiment and key; other columns are ignored."""
    known = {one.part.name: one for one in benchmark}
    found: dict[str, dict[Place, float]] = {name: {} for name in known}
    for line, row in recorded_rows(path, COLUMNS, "what `gpusim score --template FILE.csv` writes"):
        if row["dataset"] not in known:
            raise InputError(path, line, f"dataset is {quote(row['dataset'])}", expected_one_of(known, row["dataset"]))
        place = (row["experiment"], row["key"])
        if place not in known[row["dataset"]].conditions:
            problem = f"{row['dataset']} has no {quote('|'.join(place))}"
            raise InputError(path, line, problem, "a condition that `gpusim score --template FILE.csv` writes")
        if not row["predicted_ms"]:
            continue
        if place in found[row["dataset"]]:
            raise InputError(path, line, f"predicts {quote('|'.join(place))} again", "each condition once")
        found[row["dataset"]][place] = _ms(path, line, row["predicted_ms"])
    if not any(found.values()):
        raise InputError(path, "predicted_ms", "is empty in every row", "at least one prediction")
    return found


def _ms(path: Path, line: str, text: str) -> float:
    try:
        ms = float(text)
    except ValueError:
        ms = float("nan")
    if not (isfinite(ms) and 0.0 < ms <= MOST_MS):
        raise InputError(path, line, f"predicted_ms is {quote(text)}", "a time in ms above 0")
    return ms


def write_template(path: Path, benchmark: Iterable[Measured]) -> None:
    """Write every condition with its description, the baseline as its prediction; no measured time is in it."""
    write_csv(path, (*COLUMNS, *DESCRIPTION), (row for one in benchmark for row in _template(one)))


def _template(one: Measured) -> Iterator[tuple[str, ...]]:
    part = one.part
    for (experiment, key), condition in one.conditions.items():
        yield (
            *(part.name, experiment, key, f"{one.baseline_ms[experiment, key]:.6f}"),
            *(part.case.gpu, part.recorded_on, part.split),
            ";".join(" ".join(ops) for ops in condition.ops),
            *("+".join(map(str, numbers)) for numbers in (condition.calls, condition.sms, condition.blocks)),
        )


# ---- scores ----------------------------------------------------------------------------------------------------------


def score_of(one: Measured, predicted_ms: Mapping[Place, float]) -> Score:
    """The scores of predictions of one dataset; conditions without a prediction are left out and counted."""
    rows = [
        Scored(experiment, key, predicted_ms[experiment, key], one.measured_ms[experiment, key], baseline)
        for (experiment, key), baseline in one.baseline_ms.items()
        if (experiment, key) in predicted_ms
    ]
    wanted, given = (Counter(experiment for experiment, _ in places) for places in (one.conditions, predicted_ms))
    modules = {"modules_serial", "modules_streams"} & wanted.keys()
    whole = bool(modules) and all(given.get(name) == wanted[name] for name in modules)
    chosen = choice(rows) if whole else None
    found = [
        replace(summary, regret_percent=None) if summary.experiment == "green" and _undecided(rows) else summary
        for summary in summaries(rows, one.measured_ms)
    ]
    return Score(one.part, tuple(found), wanted, given, chosen)


def _undecided(rows: Iterable[Scored]) -> bool:
    """Whether all SM splits of some pair are predicted alike, so that the predictions choose none."""
    splits = grouped((row for row in rows if row.experiment == "green"), lambda row: row.key.rsplit("|", 2)[0])
    return any(len(of) > 1 and len({row.predicted_ms for row in of}) == 1 for of in splits.values())


def mean_errors(scores: Iterable[Score], split: str) -> tuple[float, float] | None:
    """The mean over all experiments of a split of the error and of the baseline's error, %; None where none is scored.

    Each experiment of each dataset counts once, however many conditions it has.
    """
    mine = [summary for score in scores if score.part.split == split for summary in score.summaries]
    if not mine:
        return None
    return fmean(one.mape_percent for one in mine), fmean(one.nothing_percent for one in mine)
