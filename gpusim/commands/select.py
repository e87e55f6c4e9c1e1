"""`gpusim select`: an algorithm for each convolution, streams, order and partition."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusim.commands.arguments import (
    as_options,
    gpu_arguments,
    json_flag,
    memory_size,
    require_picture,
    trace_and_session,
)
from gpusim.common.errors import InputError
from gpusim.common.files import TRACE_ENDINGS, require_ending, require_output
from gpusim.common.progress import named_steps
from gpusim.common.tables import picked, print_json, print_line
from gpusim.results.style import save_figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="a trace whose convolutions list their alternatives, and micro-batches where batches may be divided",
    )
    gpu_arguments(parser)
    parser.add_argument(
        "--memory",
        type=memory_size,
        metavar="SIZE",
        help="limit on the workspaces that are live at once, such as 512MiB; default: no limit",
    )
    parser.add_argument(
        "--objective",
        choices=("makespan", "memory"),
        default="makespan",
        help="makespan (default): the least makespan; memory: the least memory whose makespan is within 5 %% of it",
    )
    parser.add_argument(
        "--sharing",
        choices=("streams", "hardware", "all"),
        default="all",
        help="streams: plain streams only; hardware: also SM splits in the sizes that the GPU makes; all (default): "
        "also blocks of several kernels on one SM, and SM splits that change, which no hardware supports",
    )
    parser.add_argument(
        "--streams",
        choices=("search", "sequential", "branches", "nimble", "opara", "greedy", "ios"),
        default="search",
        help="how operations get streams: search (default); sequential: one stream; branches: the streams of the "
        "trace; nimble, opara, ios and greedy: by the rules of these papers",
    )
    parser.add_argument(
        "--order",
        choices=("any", "host"),
        default="any",
        help="start order of streams: any (default): one event releases them, and plans are compared by the mean over "
        "orders; host: the host launches in the order of the plan",
    )
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="write the plan as a trace (.json, .json.gz)")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw memory against time (.png, .svg, .pdf)")
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Search, print and, where asked, write."""
    from gpusim.choose.report import as_json, frontier_figure, plan_trace, print_selection
    from gpusim.choose.search import select

    if args.out is not None:
        require_output(args.out, [args.trace])
        require_ending(args.out, TRACE_ENDINGS)
    require_picture(args.plot, [args.trace])
    with named_steps() as step:
        with trace_and_session(args, [args.trace]) as (trace, session):
            if args.memory is not None and args.memory > session.gpu.memory_bytes:
                problem = f"{args.memory:,} bytes are more than {session.gpu.name} has"
                raise InputError(None, "--memory", problem, f"at most {session.gpu.memory_bytes:,}")
            wanted = picked(args, "objective", "sharing", "streams", "order")
            with as_options(memory_bytes="--memory", streams="--streams"):
                selection = select(trace, session, memory_bytes=args.memory, **wanted, step=step)
        if args.out is not None:
            plan_trace(selection).save(args.out)
        if args.plot is not None:
            save_figure(frontier_figure(selection), args.plot)
    if args.json:
        return print_json(as_json(selection))
    print_selection(selection)
    if args.out is not None:
        policy = selection.best.plan.policy
        print_line(f"written: {args.out}; replay it with gpusim replay {args.out} --policy {policy}")
    if args.plot is not None:
        print_line(f"written: {args.plot}")
