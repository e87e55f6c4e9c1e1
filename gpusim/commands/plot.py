"""`gpusim plot`: a picture of a trace, of its replays, or of a dataset's measurements beside their predictions."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import gpusim
from gpusim.commands.arguments import (
    as_options,
    changed,
    drawn_as,
    gpu_from,
    picture_arguments,
    require_picture,
    told_with,
    trace_from,
    what_if_argument,
)
from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.progress import named_steps
from gpusim.common.tables import print_written
from gpusim.results.metrics import DEFAULT_POLICIES
from gpusim.results.style import save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpusim.lab.dataset import Dataset

POLICY = "leftover"  # of pictures of one replay


def add_arguments(parser: argparse.ArgumentParser) -> None:
    width = max(map(len, KINDS))
    kinds = "\n".join(f"  {name:<{width}}  {kind.summary}" for name, kind in KINDS.items())
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = f"""kinds:
{kinds}

SOURCE is a trace; for split and residency it may be a folder of measurements, as experiments/h200_validation/data:
then the picture shows measurements beside predictions.

Examples:
  gpusim plot gantt sample:inception_3a --policy even -o gantt.png
  gpusim plot policies sample:inception_3a --policy serial --policy leftover --policy smk -o policies.svg
  gpusim plot split sample:inception_3a --stream 3x3 --stream 5x5 -o split.pdf"""
    parser.add_argument("kind", metavar="KIND", help="one of the kinds below")
    parser.add_argument("source", metavar="SOURCE", help="a trace (.json, .json.gz), or a folder of measurements")
    parser.add_argument(
        "-o", "--out", type=Path, required=True, metavar="FILE", help="the picture to write: .png, .svg or .pdf"
    )
    parser.add_argument("--gpu", metavar="NAME|PATH", help="default: the GPU of the recording; of measurements h200")
    what_if_argument(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:key=value,…]",
        help=f"for gantt, usage and occupancy one, default {POLICY}; for policies several, default "
        f"{', '.join(DEFAULT_POLICIES)}",
    )
    parser.add_argument(
        "--stream", action="append", default=[], metavar="NAME", help="only this stream of the trace; repeatable"
    )
    parser.add_argument(
        "--operation",
        action="append",
        default=[],
        metavar="NAME",
        help="for residency the operation; of a folder of measurements its op, and for split two ops",
    )
    picture_arguments(parser)


def run(args: argparse.Namespace) -> None:
    kind = KINDS.get(args.kind)
    if kind is None:
        raise InputError(None, "KIND", f"is {quote(args.kind)}", expected_one_of(KINDS, args.kind))
    for option, used in (("policy", kind.policies), ("operation", kind.operations)):
        if getattr(args, option) and not used:
            raise InputError(None, f"--{option}", f"is of no use for {args.kind}", "only what changes the picture")
    require_picture(args.out, [args.source])
    with told_with([args.source]), drawn_as(args):
        save_figure(kind.draw(args), args.out)
    print_written(args.out, f"{args.out}: {kind.summary}")


# ---- what is drawn


def _of_replay(args: argparse.Namespace) -> Figure:
    """Draw one replay by the function of `gpusim.results.plots` that has the name of the kind."""
    from gpusim.results import plots

    named = args.policy or [POLICY]
    if len(named) > 1:
        raise InputError(None, "--policy", f"{len(named)} are given", "one for this picture")
    figure: Figure = getattr(plots, args.kind)(gpusim.replay(*_trace(args), named[0]))
    return figure


def _policies(args: argparse.Namespace) -> Figure:
    trace, gpu = _trace(args)
    with named_steps() as step:
        return gpusim.Session(gpu, cache=True).compare(trace, args.policy or DEFAULT_POLICIES, step=step).plot()


def _split(args: argparse.Namespace) -> Figure:
    from gpusim.lab.charts import split
    from gpusim.lab.curves import split_of_dataset, split_of_trace

    if os.path.isdir(args.source):
        with as_options(operation="--operation"):
            return split(split_of_dataset(_dataset(args), args.operation))
    if args.operation:
        raise InputError(
            None, "--operation", "is of no use for the split of a trace", "--stream, of which two are split"
        )
    trace, gpu = _trace(args)
    with as_options(streams="--stream"):
        return split(split_of_trace(trace, gpu))


def _residency(args: argparse.Namespace) -> Figure:
    from gpusim.lab.charts import residency
    from gpusim.lab.curves import residency_of_dataset, residency_of_trace

    if os.path.isdir(args.source):
        with as_options(operation="--operation"):
            return residency(residency_of_dataset(_dataset(args), args.operation))
    if len(args.operation) > 1:
        raise InputError(None, "--operation", f"{len(args.operation)} are given", "one")
    trace, gpu = _trace(args)
    with as_options(operation="--operation"):
        return residency(residency_of_trace(trace, gpu, args.operation[0] if args.operation else None))


def _stalls(args: argparse.Namespace) -> Figure:
    from gpusim.hardware.gpu import recorded_by
    from gpusim.lab.charts import stalls
    from gpusim.lab.kernel_mix import kernel_mixes

    trace, gpu = _trace(args)
    return stalls(trace.name, kernel_mixes(trace, recorded_by(trace.device, gpu)))


class Kind(NamedTuple):
    """A kind of picture: its function, what it shows, and whether it takes policies and operations."""

    draw: Callable[[argparse.Namespace], Figure]
    summary: str
    policies: bool = False
    operations: bool = False


KINDS = {
    "gantt": Kind(_of_replay, "which stream runs where and when: streams and SMs over time", policies=True),
    "occupancy": Kind(_of_replay, "whose warps fill the SMs, over time and SM by SM", policies=True),
    "usage": Kind(_of_replay, "how much of each resource is used, over time and SM by SM", policies=True),
    "policies": Kind(
        _policies, "makespans under several policies, with the error where it was measured", policies=True
    ),
    "split": Kind(_split, "makespan of two streams over the SMs that each has", operations=True),
    "residency": Kind(_residency, "time of an operation over the blocks that an SM may hold", operations=True),
    "stalls": Kind(_stalls, "why the warps of each kernel wait, and how busy it keeps the pipes of an SM"),
}


# ---- from what


def _trace(args: argparse.Namespace) -> tuple[gpusim.Trace, gpusim.GPU]:
    from gpusim.choose.alternatives import require_fit
    from gpusim.hardware.gpu import load_shipped_gpu
    from gpusim.trace.edit import select

    trace = trace_from([args.source])
    if args.stream:
        with as_options(streams="--stream"):
            trace = select(trace, args.stream)
    gpu = gpu_from(args.gpu) if args.gpu is not None else load_shipped_gpu(trace.device)
    gpu = changed(gpu, args.what_if)
    require_fit(trace, gpu)
    return trace, gpu


def _dataset(args: argparse.Namespace) -> Dataset:
    from gpusim.lab.dataset import Dataset

    for option, instead in (("stream", "--operation"), ("what_if", "a trace")):
        if getattr(args, option):
            raise InputError(None, f"--{option.replace('_', '-')}", "is of no use for measurements", instead)
    return Dataset(args.source, gpu_from(args.gpu or "h200"))
