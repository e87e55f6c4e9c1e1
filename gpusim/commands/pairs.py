"""`gpusim pairs`: independent convolutions and algorithms that complement each other."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gpusim.commands.arguments import gpu_arguments, json_flag, trace_and_session
from gpusim.common.progress import named_steps
from gpusim.common.tables import (
    Column,
    counted,
    number,
    numbers,
    print_json,
    print_left_out,
    print_line,
    print_table,
    shortened,
)

if TYPE_CHECKING:
    from gpusim.choose.pairs import Pairs

MOST_CASES = 20
NAME_WIDTH = 24


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="a trace whose convolutions list their alternatives")
    gpu_arguments(parser)
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    from gpusim.choose.pairs import as_json, pairs

    with named_steps() as step, trace_and_session(args, [args.trace]) as (trace, session):
        found = pairs(trace, session, step=step)
    if args.json:
        return print_json(as_json(found))
    _print(found)


def _print(found: Pairs) -> None:
    from gpusim.choose.pairs import as_json

    if not found.independent:
        print_line(f"{found.trace} on {found.gpu}: no two convolutions that are independent, so there are no pairs")
        return
    counts = as_json(found)
    combinations = [counted(counts[f"{of}_combinations"], "combination") for of in ("complementary", "gaining")]
    print_line(
        f"{found.trace} on {found.gpu}: {counts['complementary_pairs']} of {found.independent} pairs of independent "
        f"convolutions have algorithms that complement each other, in {combinations[0]}"
    )
    print_line(
        f"replayed side by side: {counted(counts['gaining_pairs'], 'pair')} ({combinations[1]}) faster "
        f"than one after the other by the same algorithms, {counts['faster_than_serial_fastest']} than by the "
        f"fastest ones, {counts['faster_than_streams_fastest']} than the fastest ones in two streams"
    )
    print_line(
        "rule: each holds most of what the other holds less of, a block of each fits an SM together, one computes "
        "(over half busy), the other does less and waits more for memory (docs/choose.md)"
    )
    if not found.cases:
        return
    rows = []
    for case in found.cases[:MOST_CASES]:
        for side in case.sides:
            resource, share = side.holds
            shares = [f"{resource} {100 * share:.0f} %", f"{100 * side.computes:.0f} %"]
            stalls = f"{100 * side.memory_stalls:.1f} %"
            operation = shortened(side.operation, NAME_WIDTH)
            rows.append([operation, side.algorithm, *shares, stalls, number(side.alone_us)])
        rows[-2] += [number(case.together_us), f"{case.gain:.3f}x", f"{case.gain_over_fastest:.3f}x", case.policy]
        rows[-1] += [""] * 4
    columns = [Column("operation", narrow="cut"), Column("algorithm", narrow="break")]
    columns += numbers("holds", "computes", "memory stalls", "isolated µs", "both µs", "gain", "over fastest")
    columns += [Column("policy")]
    print()
    print_table(columns, rows, "Side by side: gain over one after the other, by the same and by the fastest algorithms")
    print_left_out(len(found.cases) - MOST_CASES)
