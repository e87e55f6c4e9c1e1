"""`gpusim validate`: predict what a real GPU did, and print how far off that was."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusim.commands.arguments import json_flag


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("dataset", type=Path, metavar="DATASET", help="a folder as experiments/h200_validation/data")
    parser.add_argument("--gpu", default="h200", metavar="NAME|PATH", help="the GPU it was recorded on; default: h200")
    parser.add_argument("--rows", type=Path, metavar="FILE.csv", help="write every prediction beside its measurement")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Predicts, scores, prints and, when asked, writes."""
    from dataclasses import asdict

    from gpusim.common.tables import Column, number, print_json, print_table
    from gpusim.hardware.gpu import load_gpu
    from gpusim.io.dataset import Dataset
    from gpusim.studies.validate import measurements, score, summaries, write_rows

    dataset = Dataset(args.dataset, load_gpu(args.gpu))
    rows = score(dataset, args.gpu)
    found = summaries(rows, measurements(dataset))
    if args.rows is not None:
        write_rows(rows, args.rows)
    if args.json:
        print_json({"dataset": str(args.dataset), "gpu": args.gpu, "experiments": [asdict(one) for one in found]})
        return 0
    columns = [Column("experiment"), *(Column(title, right=True) for title in _NUMBERS)]
    print_table(
        columns,
        [
            (
                one.experiment,
                str(one.points),
                number(one.mape_percent, 2),
                number(one.median_percent, 2),
                number(one.p95_percent, 1),
                f"{one.bias_percent:+.2f}",
                number(one.nothing_percent, 1),
                _known(one.rank_correlation),
                _known(one.regret_percent),
            )
            for one in found
        ],
    )
    return 0


def _known(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


_NUMBERS = ("points", "MAPE %", "median %", "95th %", "bias %", "do-nothing %", "rank corr.", "regret %")
