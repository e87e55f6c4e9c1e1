"""`gpusim score`: score predictions of co-runs against what real GPUs did."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.commands.arguments import json_flag
from gpusim.commands.validate import FIGURES, figures, only_regret
from gpusim.common.errors import InputError
from gpusim.common.files import require_output
from gpusim.common.tables import Column, counted, number, numbers, print_json, print_table, print_written
from gpusim.lab.names import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusim.lab.scoreboard import Score

DATA = Path("experiments") / "h200_validation" / "data"


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    from gpusim.lab.scoreboard import load, parts, read_predictions, score_of, write_template

    if (args.predictions is None) == (args.template is None):
        raise InputError(None, "PREDICTIONS.csv", "has to be given, or --template", "one of the two")
    if args.template is not None:
        require_output(args.template)
    beside = Path(__file__).resolve().parents[2] / DATA  # of the source tree that this package is in
    default = DATA if DATA.is_dir() or not beside.is_dir() else beside
    if args.data is None and not default.is_dir():
        expected = f"{DATA} of the source tree, which no wheel holds"
        raise InputError(None, "--data", "is not given, and there are no measured datasets here", expected)
    benchmark = [load(part) for part in parts(args.data or default)]
    if args.template is not None:
        write_template(args.template, benchmark)
        conditions = sum(len(one.conditions) for one in benchmark)
        print_written(args.template, f"{args.template}: {counted(conditions, 'condition')}")
        return
    predicted = read_predictions(args.predictions, benchmark)
    scores = [score_of(one, predicted[one.part.name]) for one in benchmark if predicted[one.part.name]]
    show = _print_json if args.json else _print
    show(scores)


def _print(scores: Sequence[Score]) -> None:
    from gpusim.lab.scoreboard import FIT, SCORE, mean_errors

    columns = [Column("dataset"), Column("split"), Column("experiment"), *numbers("predicted", *FIGURES)]
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
    of = [score.part.name, score.part.split]
    rows = [
        [
            *of,
            title(one.experiment),
            f"{score.predicted[one.experiment]} of {score.conditions[one.experiment]}",
            *figures(one),
        ]
        for one in score.summaries
    ]
    if score.choice is not None:
        rows.append([*of, title("choice"), counted(score.choice.points, "module"), *only_regret(score.choice)])
    return rows


def _print_json(scores: Sequence[Score]) -> None:
    from gpusim.lab.scoreboard import FIT, SCORE, mean_errors

    means = {split: mean_errors(scores, split) for split in (SCORE, FIT)}
    datasets = [
        {
            "dataset": score.part.name,
            "split": score.part.split,
            "gpu": score.part.case.gpu,
            "recorded_on": score.part.recorded_on,
            "complete": score.complete,
            "choice_regret_percent": score.choice and score.choice.regret_percent,
            "experiments": [
                asdict(one)
                | {"conditions": score.conditions[one.experiment], "predicted": score.predicted[one.experiment]}
                for one in score.summaries
            ],
        }
        for score in scores
    ]
    ours, baseline = ({split: mean and mean[at] for split, mean in means.items()} for at in (0, 1))
    print_json({"mean_percent": ours, "baseline_mean_percent": baseline, "datasets": datasets})
