"""`gpusim report`: a page that compares policies, to open in a browser."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from gpusim.commands.arguments import given
from gpusim.commands.replay import add_replay_arguments, command_of, compared
from gpusim.common.errors import InputError
from gpusim.common.files import require_ending, require_output, write_text
from gpusim.common.progress import named_steps
from gpusim.common.tables import print_written

OF_A_REPLAY = ("gpu", "recorded_on", "what_if", "policy", "restart", "priority", "arrivals", "seed", "no_cache")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_replay_arguments(parser, "a trace, several that start together, or a folder that `gpusim replay --out` wrote")
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="the page to write; it needs no network"
    )


def run(args: argparse.Namespace) -> None:
    """Replay, or read the folder of a replay, and write the page."""
    from gpusim.io.report.content import content_in, content_of
    from gpusim.io.report.page import page

    require_output(args.out, args.traces)
    require_ending(args.out, (".html", ".htm"))
    with named_steps() as step:
        if len(args.traces) == 1 and os.path.isdir(args.traces[0]):
            useless = given(args, OF_A_REPLAY) + ["--alternatives"] * (args.alternatives != "selected")
            if useless:
                problem = "says how to replay, which has been done"
                raise InputError(args.traces[0], useless[0], problem, "a trace, or no such option")
            content = content_in(args.traces[0])
        else:
            content = content_of(compared(args, step, placements=True, residents=True), command_of(args))
        step(f"writing {args.out}")
        write_text(args.out, page(content))
    print_written(args.out, f"{args.out}: the comparison as a page; open it in a browser")
