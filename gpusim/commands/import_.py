"""`gpusim import`: make a trace of a profile."""

from __future__ import annotations

import argparse
import os
from typing import get_args

import gpusim
from gpusim.commands.arguments import as_options, gpu_from, parts_of, whole
from gpusim.commands.part import OPTIONS, part_arguments, part_from
from gpusim.common.errors import InputError
from gpusim.common.files import TRACE_ENDINGS, require_ending, require_output
from gpusim.common.progress import estimated, named_steps
from gpusim.common.tables import print_written
from gpusim.io import FORMATS, Order

ORDERS = get_args(Order)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="[FORMAT] FILE",
        help=f"a profile, after its format ({', '.join(FORMATS)}) or without: PyTorch's JSON, ncu --csv --page raw, "
        ".ncu-rep, an SQLite export or a report of nsys, JAX's .xplane.pb or trace.json, "
        "nvprof --print-gpu-trace --csv or nvprof's Chrome JSON; gzip will do; several: one of each rank, a GPU each",
    )
    parser.add_argument("-o", "--out", required=True, metavar="TRACE", help="the trace to write (.json, .json.gz)")
    parser.add_argument("--gpu", metavar="NAME|PATH", help="the GPU it was recorded on; default: the profile's")
    parser.add_argument("--counters", metavar="FILE", help="ncu's profile of the same program, for counters")
    parser.add_argument(
        "--order",
        choices=ORDERS,
        default=ORDERS[0],
        help="order between streams: the recorded waits; inferred from the times where the profile has none "
        "(default); or none",
    )
    parser.add_argument(
        "--sms",
        type=whole(1),
        metavar="N",
        help="SMs of the process, if it had a part of the GPU: under an MPS percentage, or in a green context",
    )
    part_arguments(parser)


def run(args: argparse.Namespace) -> None:
    """Import the profile, write the trace, and print the decisions."""
    from gpusim.hardware.gpu import gpu_names

    format = args.files.pop(0) if args.files[0] in FORMATS and len(args.files) > 1 else None
    for at, name in enumerate(args.files):
        if name in FORMATS and not os.path.isfile(name):
            problem = f"{name} is given {'after a file' if at or format else 'without a file'}"
            raise InputError(None, "FORMAT", problem, "one format before all files" if at else "[FORMAT] FILE")
    require_output(args.out, (file for file in (*args.files, args.counters) if file is not None))
    require_ending(args.out, TRACE_ENDINGS)
    gpu = None if args.gpu is None else gpu_from(args.gpu)
    with named_steps() as step:
        with estimated(step, f"importing {', '.join(args.files)}"):
            files = args.files if len(args.files) > 1 else args.files[0]
            with as_options(gpu="--gpu", sms="--sms", **OPTIONS):
                part = part_from(args)
                made = gpusim.import_profile(files, format, gpu, args.counters, args.device, args.order, part, args.sms)
        trace = made.trace
        step(f"writing {args.out}")
        trace.save(args.out)
    held = ", ".join(reversed(parts_of(trace)))
    device = trace.device if trace.stands_for is None else f"{trace.stands_for}, taken as {trace.device}"
    remarks = list(made.remarks)
    if trace.device not in gpu_names():
        remarks.append(f"Give --recorded-on {args.gpu} to every command that reads this trace.")
    lines = (f"  {remark}" for remark in remarks)
    print_written(args.out, f"{args.out}: {held}, recorded on {device}", *lines)
