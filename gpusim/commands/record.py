"""`gpusim record`: measure a GPU on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    kinds = parser.add_subparsers(title="what to measure", dest="what", metavar="WHAT", required=True)
    summary = "the constants of the model: launch latency, issue contention, memory bandwidths"
    bench = kinds.add_parser("microbench", help=summary, description=f"Measure {summary}. Needs nvcc and a GPU.")
    bench.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the tables and constants.json")
    bench.add_argument("--counters", action="store_true", help="profile the kernels with Nsight Compute (ncu), too")
    bench.add_argument("--raw", type=Path, metavar="DIR", help="keep the raw logs there")


def run(args: argparse.Namespace) -> int:
    """Measures, writes the tables and prints the constants."""
    from gpusim.common.tables import Column, print_table
    from gpusim.record.microbench import run_microbenchmarks

    result = run_microbenchmarks(args.out, counters=args.counters, raw_dir=args.raw)
    columns = [Column("constant"), Column("value", right=True), Column("unit"), Column("meaning", narrow="break")]
    constants = result["constants"].items()
    print_table(columns, [(name, f"{c['value']:g}", c["unit"], c["meaning"]) for name, c in constants])
    return 0
