"""`gpusim advise`: how two or more programs should share a GPU, and what to set."""

from __future__ import annotations

import argparse
from pathlib import Path

from gpusim.commands.arguments import (
    arrivals_argument,
    as_options,
    gpu_arguments,
    json_flag,
    require_picture,
    target_argument,
    trace_and_session,
    whole,
    with_settings,
)
from gpusim.common.errors import InputError
from gpusim.common.progress import named_steps
from gpusim.common.tables import print_json, print_line
from gpusim.results.style import save_figure

OBJECTIVES = ("makespan", "stp", "antt", "throughput")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="a trace or a profile for each program, or a trace of several programs",
    )
    gpu_arguments(parser)
    parser.add_argument(
        "--objective",
        choices=OBJECTIVES,
        help="makespan (default): the least makespan, programs run once; else they restart: stp: the largest STP; antt "
        "(default with --arrivals): the least ANTT; throughput (default with --slo): the largest STP of the programs "
        "without a target; beside --arrivals other programs restart until the last request arrives",
    )
    target_argument(parser)
    arrivals_argument(parser)
    parser.add_argument(
        "--settings",
        metavar="NAME,NAME",
        help="compare only these settings, beside running in turn: some of streams, priority, sm-split, mps, mig and "
        "time-slices; default: all that the GPU has",
    )
    parser.add_argument("--jobs", type=whole(1), help="processes; default: one per core")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw slowdown against slowdown (.png, .svg, .pdf)")
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Replay every setting, and print which is best and why."""
    from gpusim.choose.advice_page import as_json, print_advice, slowdowns
    from gpusim.choose.advise import advise

    require_picture(args.plot, args.traces)
    args.restart, args.priority = False, None
    with named_steps() as step, trace_and_session(args, args.traces, profiles=True) as (trace, session):
        if len(trace.programs) < 2:
            raise InputError(
                args.traces[0], "", "holds one program", "a trace or a profile for each of two programs or more"
            )
        kinds = None if args.settings is None else args.settings.split(",")
        programs = [with_settings(trace, args)]
        with as_options(targets="--slo", settings="--settings", arrivals="--arrivals", objective="--objective"):
            advice = advise(programs, session, args.objective, args.slo, jobs=args.jobs, settings=kinds, step=step)
        if args.plot is not None:
            save_figure(slowdowns(advice), args.plot)
    if args.json:
        return print_json(as_json(advice))
    print_advice(advice)
    if args.plot is not None:
        print_line(f"written: {args.plot}")
