"""`gpusim replay`: replay a trace under policies and compare them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.commands.arguments import gpu_from, json_flag
from gpusim.common.errors import InputError, one_line

if TYPE_CHECKING:
    from gpusim.hardware.gpu import GPU
    from gpusim.studies.comparison import Comparison
    from gpusim.trace.format import Trace

DEFAULT_POLICIES = ("serial", "leftover", "inter-sm", "even", "warped-slicer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument("trace", metavar="TRACE", help="a trace (.json, .json.gz)")
    parser.add_argument(
        "--gpu", metavar="NAME|PATH", help="a GPU of `gpusim gpus`, or a GPU file; default: the trace's own"
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:key=value,…]",
        help=f"a policy of `gpusim policies`, FILE.py:Class or package.module:Class; may be given several times; "
        f"default: {', '.join(DEFAULT_POLICIES)}",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="replay once more, every stream starting again when it ends until each has ended once, for STP, ANTT "
        "and fairness; refused where streams depend on one another or have arrivals",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="write tables and pictures to this new folder")
    parser.add_argument("--no-cache", action="store_true", help="fit every kernel anew, and keep no fit for later runs")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Replays, compares, prints and, when asked, writes."""
    from gpusim.common.files import require_new_folder
    from gpusim.common.tables import print_json
    from gpusim.trace.file import load_trace

    if args.out is not None:
        require_new_folder(args.out)
    trace = load_trace(args.trace)
    try:
        policies = args.policy or list(DEFAULT_POLICIES)
        comparison = _compared(
            trace, _gpu(trace, args.gpu), policies, args.restart, args.out is not None, not args.no_cache
        )
    except InputError as error:
        if error.path is None and error.place.startswith(("streams[", "device")):  # what the trace says
            raise InputError(args.trace, error.place, error.problem, error.expected) from None
        raise
    from gpusim.studies.comparison import as_json, print_comparison, write_comparison

    if args.out is not None:
        write_comparison(comparison, args.out)
    if args.json:
        print_json(as_json(comparison))
    else:
        print_comparison(comparison)
    return 0


def _gpu(trace: Trace, name: str | None) -> GPU:
    from gpusim.hardware.gpu import load_shipped_gpu

    return load_shipped_gpu(trace.device) if name is None else gpu_from(name)


def _compared(trace: Trace, gpu: GPU, policies: list[str], restart: bool, placements: bool, cache: bool) -> Comparison:
    from gpusim.calibrate.cache import user_fits
    from gpusim.studies.comparison import compare

    fits = user_fits() if cache else None
    if not sys.stderr.isatty():
        return compare(trace, gpu, policies, restart=restart, placements=placements, fits=fits)
    try:
        return compare(trace, gpu, policies, _show_progress, restart, placements, fits)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _show_progress(policy: str, number: int, count: int) -> None:
    print(f"\r\x1b[Kreplaying under {one_line(policy)} ({number} of {count})", end="", file=sys.stderr, flush=True)
