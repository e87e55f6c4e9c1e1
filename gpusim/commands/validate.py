"""`gpusim validate`: predict measured co-runs, and print the error."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.commands.arguments import as_options, given, json_flag, whole
from gpusim.common.errors import InputError, quote
from gpusim.common.files import require_output
from gpusim.common.spreadsheet import write_csv
from gpusim.common.tables import Column, number, numbers, print_json, print_line, print_rows, print_table
from gpusim.lab.names import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusim.lab.scores import Choice, Summary
    from gpusim.lab.scoring import Miss
    from gpusim.lab.validate import Case

MOST_SCALING_POINTS = 2
WORST = 2  # that are listed for each experiment
FIGURES = ("MAPE %", "median %", "95th %", "bias %", "baseline %", "rank corr.", "regret %")  # of an experiment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "dataset",
        type=Path,
        metavar="DATASET",
        help="a folder like experiments/h200_validation/data or experiments/resource_matrix, or one of whole models "
        "(NAME.kineto.json.gz, NAME.ncu.csv.gz, pairs.csv)",
    )
    parser.add_argument("--gpu", default="h200", metavar="NAME|PATH", help="the GPU it was measured on; default: h200")
    parser.add_argument(
        "--recordings",
        type=Path,
        metavar="FOLDER",
        help="predict from these recordings of the same ops on another GPU, not from those of DATASET; their "
        "isolated times are predicted, too: experiment solo",
    )
    parser.add_argument("--recorded-on", metavar="NAME|PATH", help="the GPU of --recordings")
    parser.add_argument(
        "--scaling",
        type=scaling_points,
        default=(),
        metavar="SMS[,SMS]",
        help="let predictions use the recorded times of sm_curve.csv on these numbers of SMs, such as 32,72; those "
        "rows are not scored, and a second table shows their effect",
    )
    parser.add_argument(
        "--worst",
        type=whole(0),
        default=WORST,
        metavar="N",
        help=f"list the N largest errors of each experiment, with the bounding resource; default: {WORST}",
    )
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="write every prediction beside its measurement")
    json_flag(parser)


def scaling_points(text: str) -> tuple[int, ...]:
    """Different numbers of SMs above 0, separated by commas: `type` of an argument."""
    parts = text.split(",")
    values = tuple(int(part) for part in parts if re.fullmatch(r"[0-9]{1,9}", part) and int(part) > 0)
    if not len(set(values)) == len(values) == len(parts) <= MOST_SCALING_POINTS:
        expected = f"one to {MOST_SCALING_POINTS} different whole numbers above 0, as 32,72"
        raise argparse.ArgumentTypeError(f"is {quote(text)}; expected {expected}")
    return values


def run(args: argparse.Namespace) -> None:
    """Predict, score, print and, where asked, write."""
    from gpusim.lab.resource_matrix import recorded_gpus
    from gpusim.lab.scores import SUMMARY_FIELDS, choice, summaries, write_rows
    from gpusim.lab.scoring import scoring, worst
    from gpusim.lab.validate import score_without_scaling

    if not os.path.isdir(args.dataset):
        raise InputError(args.dataset, "", "is no folder", "one as experiments/h200_validation/data")
    if args.rows is not None:
        read = filter(None, (args.dataset, args.recordings))
        require_output(args.rows, [path for folder in read for path in folder.rglob("*")])
    if folders := recorded_gpus(args.dataset):
        return _run_matrix(args, folders)
    case = _case(args)
    with as_options(recordings="--recordings", recorded_on="--recorded-on", scaling="--scaling"):
        scored = scoring(case)
    found, chosen = summaries(scored.rows, scored.measured), choice(scored.rows)
    without = summaries(score_without_scaling(case, scored.rows), scored.measured) if case.scaling else []
    missed = worst(scored, args.worst)
    if args.rows is not None:
        write_rows(scored.rows, args.rows)
    if args.json:
        scores = [asdict(one) for one in found] + ([asdict(chosen)] if chosen else [])
        content: dict[str, Any] = {"dataset": str(args.dataset), "gpu": args.gpu}
        if case.recordings:
            content |= {"recordings": case.recordings, "recorded_on": case.recorded_on}
        if case.scaling:
            content |= {"scaling": case.scaling, "without_scaling": [asdict(one) for one in without]}
        content |= {"experiments": [dict.fromkeys(SUMMARY_FIELDS) | one for one in scores]}
        print_json(content | {"worst": [asdict(one) for one in missed], "notes": scored.notes})
        return
    _print_scores(found, chosen)
    if without:
        _print_scaling(case.scaling, found, without)
    _print_worst(missed)
    for note in scored.notes:
        print_line(f"Note: {note}.")


def _run_matrix(args: argparse.Namespace, folders: Sequence[Path]) -> None:
    from gpusim.lab.resource_matrix import PLACEMENTS, score_matrix, totals

    if elsewhere := given(args, ("recordings", "recorded_on", "scaling")):
        problem = "is not for the resource matrix, whose folders are named after their GPUs"
        raise InputError(args.dataset, elsewhere[0], problem, "no such option")
    points = score_matrix(folders)
    if args.rows is not None:
        names = ("gpu", "placement", "order", "kernel", "beside", "predicted", "measured")
        write_csv(args.rows, names, ([str(getattr(one, name)) for name in names] for one in points))
    found = totals(points)
    if args.json:
        return print_json({"dataset": str(args.dataset), "matrix": [asdict(one) for one in found]})
    columns = [
        (Column("GPU"), lambda one: one.gpu),
        (Column("kernels on"), lambda one: PLACEMENTS[one.placement]),
        (Column("kernels beside kernels", right=True), lambda one: str(one.kernels)),
        (Column("MAPE %", right=True), lambda one: number(one.mape_percent, 2)),
        (Column("bias %", right=True), lambda one: f"{one.bias_percent:+.2f}"),
        (Column("95th %", right=True), lambda one: number(one.p95_percent, 1)),
        (Column("measured slowdown", right=True), lambda one: number(one.measured, 2)),
        (Column("predicted", right=True), lambda one: number(one.predicted, 2)),
    ]
    print_rows(found, columns)


def _case(args: argparse.Namespace) -> Case:
    from gpusim.lab.validate import Case

    found = given(args, ("recordings", "recorded_on"))
    if len(found) == 1:
        (option,), (missing,) = found, {"--recordings", "--recorded-on"} - set(found)
        raise InputError(None, option, f"is given without {missing}", f"both: {missing} says what {option} leaves open")
    recordings = "" if args.recordings is None else str(args.recordings)
    return Case(str(args.dataset), args.gpu, recordings, args.recorded_on or "", tuple(args.scaling))


def _print_scores(found: Sequence[Summary], chosen: Choice | None) -> None:
    rows = [[title(one.experiment), str(one.points), *figures(one)] for one in found]
    if chosen is not None:
        rows.append([title(chosen.experiment), str(chosen.points), *only_regret(chosen)])
    print_table([Column("experiment"), *numbers("points", *FIGURES)], rows)


def figures(one: Summary) -> list[str]:
    """The cells of `FIGURES`."""
    return [
        number(one.mape_percent, 2),
        number(one.median_percent, 2),
        number(one.p95_percent, 1),
        f"{one.bias_percent:+.2f}",
        number(one.nothing_percent, 1),
        *("" if value is None else f"{value:.2f}" for value in (one.rank_correlation, one.regret_percent)),
    ]


def only_regret(one: Choice) -> list[str]:
    """The cells of `FIGURES` where only the regret is known."""
    return [*[""] * (len(FIGURES) - 1), "" if one.regret_percent is None else f"{one.regret_percent:.2f}"]


def _print_scaling(sms: Sequence[int], found: Sequence[Summary], without: Sequence[Summary]) -> None:
    print(f"\nWith recorded times on {' and '.join(map(str, sms))} SMs, and without, on the same rows: MAPE %")
    known = {one.experiment: one for one in found}
    rows = [
        [title(one.experiment), str(one.points), *(number(by.mape_percent, 2) for by in (one, known[one.experiment]))]
        for one in without
    ]
    print_table([Column("experiment"), *numbers("points", "without", "with")], rows)


def _print_worst(missed: Sequence[Miss]) -> None:
    if not missed:
        return
    print("\nLargest errors of each experiment, and the kernels that take longest there")
    columns = [
        (Column("experiment"), lambda one: title(one.experiment)),
        (Column("what", narrow="break"), lambda one: one.what),
        (Column("points", right=True), lambda one: str(one.points)),
        (Column("MAPE %", right=True), lambda one: number(one.mape_percent)),
        (Column("bias %", right=True), lambda one: f"{one.bias_percent:+.1f}"),
        (Column("why", narrow="break"), lambda one: one.why),
    ]
    print_rows(missed, columns)
