"""What each mechanism is worth: the model without one after the other, on every set of measurements.

Huge sets are sampled (`sets.SETS` says how); small ones are scored on all rows. A variant predicts all sets in one
process, and what it predicted is kept in a journal, so that a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache, reduce
from math import fsum
from typing import Any

from experiments.h200_validation.intervals import (
    Differences,
    error_differences,
    interval,
    joined,
    regret_differences,
)
from experiments.h200_validation.sets import DESIGN_SETS, MeasuredSet, at_hand
from experiments.h200_validation.tables import EVERY, write_csv
from experiments.h200_validation.variants import (
    ABLATION,
    DESIGNS,
    HERE,
    MODEL,
    VARIANTS,
    Variant,
    kept,
    present_model,
)
from gpusim.common import fingerprint
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.scores import EXPERIMENTS, Scored, summaries

SCORING = ("validate", "whole_models", "resource_matrix", "scores")  # modules of gpusim.lab that predict and score
OURS = ("variants.py", "patches.py", "mixing_patches.py", "sets.py")
PLAIN = "isolated"  # an experiment of which errors alone are scored, as of those that `EXPERIMENTS` does not have


@dataclass(frozen=True)
class Sample:
    """What of one set is predicted."""

    of: MeasuredSet
    wanted: tuple[Any, ...]


@dataclass(frozen=True)
class Trial:
    """What one process predicts: a variant, by name, on some samples."""

    variant: str
    samples: tuple[Sample, ...]


def ablation() -> None:
    """Score every variant on all sets, and other designs on the main one."""
    lines = [*_scored("off", ABLATION, at_hand()), *_scored("design", (MODEL, *DESIGNS), DESIGN_SETS)]
    write_csv(HERE / "ablation.csv", list(lines[0]), lines)


def _scored(kind: str, variants: Sequence[Variant], sets: Sequence[MeasuredSet]) -> Iterator[dict[str, object]]:
    samples = [Sample(one, one.source.wanted(one.every)) for one in sets]
    trials = [Trial(one.name, tuple(s for s in samples if s.of.takes(one))) for one in variants]
    found = kept(f"ablation-{kind}", trials, identity, answer)
    rows = [
        {sample.of: rows_of(of) for sample, of in zip(trial.samples, answers, strict=True)}
        for trial, answers in zip(trials, found, strict=True)
    ]
    own = rows[variants.index(MODEL)]
    for variant, mine in zip(variants, rows, strict=True):
        yield from lines_of(variant, kind, own | mine, own)


def rows_of(answers: Iterable[Sequence[Any]]) -> list[Scored]:
    """Predictions as a journal holds them."""
    return [Scored(*row) for row in answers]


def identity(trial: Trial) -> str:
    """A hash of everything that can change what comes of a trial."""
    return fingerprint.data([trial.variant, [[_inputs(one.of), one.of.title, one.wanted] for one in trial.samples]])


@cache
def _inputs(of: MeasuredSet) -> str:
    """A hash of all that every prediction of a set depends on."""
    model = fingerprint.sources(*(f"gpusim.lab.{name}" for name in SCORING))
    gpus = [load_gpu(name) for name in dict.fromkeys((of.gpu, of.recorded_on))]
    files = fingerprint.files([*of.source.files(), *(HERE / name for name in OURS)])
    return fingerprint.data([model, gpus, files])


def answer(trial: Trial) -> list[list[list[Any]]]:
    """Predicts, as plain data; patches this process for good, so call it in one that does nothing else after."""
    variant = VARIANTS[trial.variant]
    if variant.patch is not None:
        variant.patch()
    return [
        [list(astuple(row)) for row in one.of.source.scored(one.wanted, variant.constants)] for one in trial.samples
    ]


# ---- scores ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """Errors of some predictions, and how they differ from those of the model."""

    points: int
    mape_percent: float
    bias_percent: float
    differences: Differences
    regret_percent: float | None = None
    regrets: Differences | None = None  # of pairs in green contexts

    def __add__(self, other: Score) -> Score:
        """Of all predictions of both."""
        points = self.points + other.points
        regrets = joined(self.regrets or {}, other.regrets or {}) or None
        return Score(
            points,
            (self.points * self.mape_percent + other.points * other.mape_percent) / points,
            (self.points * self.bias_percent + other.points * other.bias_percent) / points,
            joined(self.differences, other.differences),
            _regret(self, other) if regrets else None,
            regrets,
        )


def _regret(*scores: Score) -> float:
    """The mean regret of all pairs."""
    counts = [sum(map(len, one.regrets.values())) if one.regrets else 0 for one in scores]
    return fsum(count * (one.regret_percent or 0.0) for count, one in zip(counts, scores, strict=True)) / sum(counts)


def scores(rows: Sequence[Scored], own: Sequence[Scored]) -> dict[str, Score]:
    """How rows score, by experiment; ``own``: the same by the model."""
    found = {}
    for name, mine in grouped(rows, lambda row: row.experiment).items():
        known = [row for row in own if row.experiment == name]
        scored_as = name if name in EXPERIMENTS else PLAIN
        for one in summaries([replace(row, experiment=scored_as) for row in mine], {}):
            found[name] = Score(
                one.points,
                one.mape_percent,
                one.bias_percent,
                error_differences(mine, known),
                one.regret_percent,
                None if one.regret_percent is None else regret_differences(mine, known),
            )
    return found


def lines_of(
    variant: Variant,
    kind: str,
    rows: Mapping[MeasuredSet, Sequence[Scored]],
    own: Mapping[MeasuredSet, Sequence[Scored]],
) -> list[dict[str, object]]:
    """Lines of a variant: each experiment of each set that differs, all of each set, and each experiment of all."""
    by = {of: scores(mine, own[of]) for of, mine in rows.items()}
    named = [(of.title, name, score) for of, found in by.items() for name, score in found.items()]
    everything = [
        *(line for line in named if variant == MODEL or any(map(any, line[2].differences.values()))),
        *((name, EVERY, score) for name, score in _summed(named, lambda line: line[0]).items()),
        *((EVERY, name, score) for name, score in _summed(named, lambda line: line[1]).items()),
    ]
    return [_line(variant, kind, *line) for line in everything]


Named = tuple[str, str, Score]  # set, experiment


def _summed(named: Iterable[Named], key: Callable[[Named], str]) -> dict[str, Score]:
    groups: dict[str, list[Score]] = {}
    for line in named:
        groups.setdefault(key(line), []).append(line[2])
    return {name: reduce(Score.__add__, of) for name, of in groups.items()}


def _line(variant: Variant, kind: str, of: str, experiment: str, score: Score) -> dict[str, object]:
    low, high = interval(score.differences) or (None, None)
    regret = score.regret_percent if experiment != EVERY else None
    regret_low, regret_high = interval(score.regrets or {}) or (None, None) if regret is not None else (None, None)
    return {
        "variant": variant.name,
        "kind": kind,
        "title": variant.title,
        "set": of,
        "experiment": experiment,
        "points": score.points,
        "mape_percent": score.mape_percent,
        "low_points": low,
        "high_points": high,
        "bias_percent": score.bias_percent,
        "regret_percent": regret,
        "regret_low_points": regret_low,
        "regret_high_points": regret_high,
        "model": present_model(),
    }
