"""`gpusim replay`: replay a trace under policies and compare them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.commands.arguments import gpu_arguments, json_flag, trace_and_gpus, whole
from gpusim.results.metrics import DEFAULT_POLICIES

if TYPE_CHECKING:
    from gpusim.common.progress import Step
    from gpusim.hardware.gpu import GPU
    from gpusim.studies.comparison import Comparison
    from gpusim.trace.format import Trace


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    add_replay_arguments(parser, "a trace (.json, .json.gz); streams of several start together")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write tables, pictures and what a report needs to this new folder"
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="write a timeline of streams and SMs for a viewer such as ui.perfetto.dev: .pftrace for Perfetto's own "
        "format, .json for Chrome's",
    )
    json_flag(parser)


def add_replay_arguments(parser: argparse.ArgumentParser, traces: str) -> None:
    """Declare what is replayed, on what and how (`compared` does it); ``traces`` is the positional argument's help."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help=traces)
    gpu_arguments(parser)
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
    parser.add_argument(
        "--seed", type=whole(0, 2**31 - 1), default=0, help="of the jitter of blocks; 0, the default: as fitted"
    )
    parser.add_argument(
        "--alternatives",
        choices=("selected", "fitting"),
        default="selected",
        help="the algorithm of each convolution: the selected one, the default, or, where the GPU cannot run that, the "
        "fastest recorded alternative that it can",
    )


def run(args: argparse.Namespace) -> None:
    """Replays traces under policies, prints how these compare, and writes what was asked for."""
    from gpusim.common.files import require_new_folder, require_output
    from gpusim.common.progress import named_steps
    from gpusim.common.tables import print_json
    from gpusim.studies.comparison import as_json, print_comparison, write_comparison

    if args.out is not None:
        require_new_folder(args.out)
    if args.timeline is not None:
        from gpusim.io.viewer import save_timeline, timeline_format

        timeline_format(args.timeline)
        require_output(args.timeline, args.traces)
    with named_steps() as step:
        placements = args.out is not None or args.timeline is not None
        comparison = compared(args, step, placements, residents=args.out is not None)
        if args.timeline is not None:
            step(f"writing {args.timeline}")
            save_timeline(args.timeline, comparison.trace, *(entry.result for entry in comparison.entries))
        if args.out is not None:
            from gpusim.studies.report.content import FILE, content_of, content_text

            write_comparison(comparison, args.out, step, {FILE: content_text(content_of(comparison))})
    if args.json:
        print_json(as_json(comparison))
    else:
        print_comparison(comparison)


def compared(args: argparse.Namespace, step: Step, placements: bool, residents: bool) -> Comparison:
    """Read and replay what the arguments of `add_replay_arguments` say.

    Placements are kept where asked for, and what each SM held, unless the trace is too large for that to be shown.

    Raises:
        InputError: something in the arguments or in what they name is wrong.
    """
    step(f"reading {' and '.join(args.traces)}")
    with trace_and_gpus(args, args.traces) as (trace, gpu, recorded_on):
        return _compared(trace, gpu, recorded_on, args, step, placements, residents)


def _compared(
    trace: Trace,
    gpu: GPU,
    recorded_on: GPU | None,
    args: argparse.Namespace,
    step: Step,
    placements: bool,
    residents: bool,
) -> Comparison:
    from gpusim.calibrate.cache import user_fits
    from gpusim.studies.alternatives import fitting, require_fit
    from gpusim.studies.comparison import compare

    note = ""
    if args.alternatives == "fitting":
        trace, note = fitting(trace, gpu)
    else:
        require_fit(trace, gpu)
    if residents:
        from gpusim.studies.report.content import residents_shown

        residents = residents_shown(trace)
    comparison = compare(
        trace,
        gpu,
        args.policy or DEFAULT_POLICIES,
        step,
        args.restart,
        placements,
        args.seed,
        recorded_on,
        None if args.no_cache else user_fits(),
        residents,
    )
    return comparison.noted(note) if note else comparison
