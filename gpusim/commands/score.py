"""`gpusim score`: score predictions of co-runs against what real GPUs did."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.commands.arguments import json_flag
from gpusim.common.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusim.lab.scoreboard import Score
    from gpusim.lab.scores import Summary

DATA = Path("experiments") / "h200_validation" / "data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "predictions",
        nargs="?",
        type=Path,
        metavar="PREDICTIONS.csv",
        help="a CSV file with the columns dataset, experiment, key and predicted_ms",
    )
    parser.add_argument(
        "--template",
        type=Path,
        metavar="FILE.csv",
        help="write every condition to predict, with the baseline as its prediction",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="the measured datasets; default: experiments/h200_validation/data of this folder or of the source tree",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Write the template, or print the scores."""
    from gpusim.common.files import require_output
    from gpusim.lab.scoreboard import load, parts, read_predictions, score_of, write_template

    if (args.predictions is None) == (args.template is None):
        raise InputError(None, "PREDICTIONS.csv", "has to be given, or --template", "one of the two")
    if args.template is not None:
        require_output(args.template)
    benchmark = [load(part) for part in parts(args.data or _data())]
    if args.template is not None:
        write_template(args.template, benchmark)
        print(f"{sum(len(one.conditions) for one in benchmark)} conditions are in {args.template}")
        return
    predicted = read_predictions(args.predictions, benchmark)
    scores = [score_of(one, predicted[one.part.name]) for one in benchmark if predicted[one.part.name]]
    if args.json:
        _print_json(scores)
    else:
        _print(scores)


def _data() -> Path:
    """The datasets in the current folder, or in the source tree that this package is in."""
    beside = Path(__file__).resolve().parents[2] / DATA
    return DATA if DATA.is_dir() or not beside.is_dir() else beside


def _print(scores: Sequence[Score]) -> None:
    from gpusim.common.tables import Column, number, print_table
    from gpusim.lab.scoreboard import FIT, SCORE, mean_errors

    columns = [Column(title) for title in ("dataset", "split", "experiment")]
    columns += [Column(title, right=True) for title in _NUMBERS]
    print_table(columns, [row for score in scores for row in _rows(score)])
    for split, said in ((SCORE, "Scoring"), (FIT, "Fitting")):
        means = mean_errors(scores, split)
        if means is not None:
            ours, baseline = (number(mean, 2) for mean in means)
            print(f"\n{said} split: mean error {ours} %, baseline {baseline} %")
    missing = [score.part.name for score in scores if not score.complete]
    if missing:
        print(f"\nNot every condition of {', '.join(missing)} has a prediction; such scores are not comparable.")


def _rows(score: Score) -> list[list[str]]:
    from gpusim.common.tables import number
    from gpusim.lab.names import title

    rows = []
    for one in score.summaries:
        given, wanted = score.predicted[one.experiment], score.conditions[one.experiment]
        rows.append(
            [
                *(score.part.name, score.part.split, title(one.experiment), f"{given} of {wanted}"),
                *(number(value, 2) for value in (one.mape_percent, one.median_percent)),
                *(number(one.p95_percent, 1), f"{one.bias_percent:+.2f}", number(one.nothing_percent, 1)),
                *(_known(value) for value in (one.rank_correlation, one.regret_percent)),
            ]
        )
    if score.choice is not None:
        points = f"{score.choice.points} modules"
        row = [
            score.part.name,
            score.part.split,
            title("choice"),
            points,
            *[""] * 6,
            _known(score.choice.regret_percent),
        ]
        rows.append(row)
    return rows


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _print_json(scores: Sequence[Score]) -> None:
    from gpusim.common.tables import print_json
    from gpusim.lab.scoreboard import FIT, SCORE, mean_errors

    means = {split: mean_errors(scores, split) for split in (SCORE, FIT)}
    content: dict[str, Any] = {
        "mean_percent": {split: None if mean is None else mean[0] for split, mean in means.items()},
        "baseline_mean_percent": {split: None if mean is None else mean[1] for split, mean in means.items()},
        "datasets": [
            {
                "dataset": score.part.name,
                "split": score.part.split,
                "gpu": score.part.case.gpu,
                "recorded_on": score.part.recorded_on,
                "complete": score.complete,
                "choice_regret_percent": None if score.choice is None else score.choice.regret_percent,
                "experiments": [_as_json(score, one) for one in score.summaries],
            }
            for score in scores
        ],
    }
    print_json(content)


def _as_json(score: Score, one: Summary) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(one), "conditions": score.conditions[one.experiment], "predicted": score.predicted[one.experiment]}


_NUMBERS = (
    "predicted",
    "MAPE %",
    "median %",
    "95th %",
    "bias %",
    "baseline %",
    "rank corr.",
    "regret %",
)
