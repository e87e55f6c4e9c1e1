"""`gpusim bench`: how fast the engine is on this machine."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from gpusim.commands.arguments import json_flag
from gpusim.common.progress import named_steps
from gpusim.common.tables import number, print_json

if TYPE_CHECKING:
    from gpusim.lab.bench import Measurement

# Those that take seconds first, the slowest last.
GROUPS = ("grid", "pairs", "SMs", "trace", "plain core", "streams", "kernels", "chain", "small kernels")
WIDTHS = {  # of the columns: every row is printed as it comes
    "group": 13, "case": 34, "kernels": 9, "blocks": 13, "replays": 7, "fit s": 7, "replay s": 8, "peak MiB": 8,
}  # fmt: skip
TEXTS = ("group", "case")  # the other columns are numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        choices=GROUPS,
        metavar="GROUP",
        help=f"one of {', '.join(GROUPS)}; repeatable; default: all, which takes minutes",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Measure, and print each row as soon as it is measured."""
    from gpusim.lab.bench import measure

    names = [name for name in GROUPS if name in (args.only or GROUPS)]
    with named_steps() as step:
        found = measure(names, step)
        if args.json:
            return print_json([asdict(one) for one in found])
        _print_row(list(WIDTHS))
        _print_row(["-" * width for width in WIDTHS.values()])
        for one in found:
            _print_row(_cells(one))


def _cells(one: Measurement) -> list[str]:
    return [
        one.group,
        one.case,
        f"{one.kernels:,}",
        f"{one.blocks:,}",
        f"{one.replays:,}",
        number(one.fit_s, 3),
        number(one.replay_s, 3),
        number(one.peak_mib, 0),
    ]


def _print_row(cells: Sequence[str]) -> None:
    columns = zip(WIDTHS.items(), cells, strict=True)
    line = "  ".join(cell.ljust(width) if name in TEXTS else cell.rjust(width) for (name, width), cell in columns)
    print(line.rstrip(), flush=True)
