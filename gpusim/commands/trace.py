"""`gpusim trace`: new traces, what is in one, parts of one, several side by side, other files, whether one is sound."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import islice

import gpusim
from gpusim.commands.arguments import as_options, gpu_from, json_flag, parts_of, read_trace, told_with, trace_from
from gpusim.common.errors import InputError, quote
from gpusim.common.files import TRACE_ENDINGS, require_ending, require_output
from gpusim.common.tables import print_json, print_line, print_written

MOST_FAULTS = 20  # of one trace that `check` tells
A_TRACE = "a trace (.json, .json.gz) or sample:NAME"
MERGED = "sample:inception_3a sample:googlenet_forward -o both.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    def added(name: str, what: str, example: str) -> argparse.ArgumentParser:
        description = f"{what[0].upper()}{what[1:]}."
        example = f"Example: gpusim trace {name} {example}"
        return actions.add_parser(name, help=what, description=description, epilog=example, allow_abbrev=False)

    new = added("new", "write a template that replays, or one kernel for each row of a table", "-o trace.json")
    new.add_argument(
        "--from",
        dest="table",
        metavar="TABLE.csv",
        help="columns kernel, blocks, threads_per_block, registers_per_thread, duration_us, and if need be "
        "shared_memory_bytes, stream and program",
    )
    new.add_argument("--gpu", metavar="NAME|PATH", default="h200", help="GPU that the durations are of; default: h200")
    show = added(
        "show",
        "print programs, streams, kernels by time, what limits occupancy and what is estimated",
        "sample:inception_3a",
    )
    show.add_argument("trace", metavar="TRACE", help=A_TRACE)
    show.add_argument("--gpu", metavar="NAME|PATH", help="whose occupancy is shown; default: the trace's own")
    json_flag(show)
    select = added(
        "select",
        "write a part of a trace, or the trace with other algorithms",
        "sample:inception_3a --stream 3x3 -o part.json",
    )
    select.add_argument("trace", metavar="TRACE", help=A_TRACE)
    for option, what in (
        ("program", "programs"),
        ("stream", "streams"),
        ("operation", "operations"),
        ("algorithm", "algorithms to select"),
    ):
        select.add_argument(
            f"--{option}", action="append", default=[], metavar="NAME", help=f"{what}: a name or a pattern; repeatable"
        )
    merge = added("merge", "write traces side by side, each a program named after its file", MERGED)
    merge.add_argument("traces", nargs="+", metavar="TRACE", help=A_TRACE)
    points = added(
        "points",
        "write a trace with its kernels' times on a part of the SMs, of further profiles of the program",
        "whole.json.gz part.json.gz -o trace.json.gz",
    )
    points.add_argument("trace", metavar="TRACE", help="an imported profile (.json, .json.gz)")
    points.add_argument(
        "parts",
        nargs="+",
        metavar="PART",
        help="the same on a part of the SMs, imported with --sms; one or two",
    )
    convert = added("convert", "write the same trace as .json or .json.gz", "sample:inception_3a -o trace.json")
    convert.add_argument("trace", metavar="TRACE", help=A_TRACE)
    for action in (new, select, merge, points, convert):
        action.add_argument("-o", "--out", required=True, metavar="FILE", help="the trace to write (.json, .json.gz)")
    check = added(
        "check", "print whether traces are sound and their kernels can run on their GPU", "sample:inception_3a"
    )
    check.add_argument("traces", nargs="+", metavar="TRACE", help=A_TRACE)


def run(args: argparse.Namespace) -> int:
    from gpusim.trace.edit import select

    if args.action == "check":
        return _check(args.traces)
    if args.action == "new":
        return _new(args.table, args.gpu, args.out)
    if args.action == "points":
        return _points(args.trace, args.parts, args.out)
    paths = args.traces if args.action == "merge" else [args.trace]
    if args.action != "show":
        require_output(args.out, paths)
        require_ending(args.out, TRACE_ENDINGS)
    trace = trace_from(paths)
    if args.action == "show":
        from gpusim.io.trace_page import as_json, print_trace

        gpu = _own_gpu(trace) if args.gpu is None else gpu_from(args.gpu)
        if args.json:
            print_json(as_json(trace, gpu))
        else:
            parts = ", ".join(map(str, trace.recorded_sms()))
            on = f"{parts} SMs of {trace.device}" if parts else trace.device
            print_line(f"{trace.name}, recorded on {on}: {', '.join(parts_of(trace))}")
            print_trace(trace, gpu)
        return 0
    if args.action == "select":
        with as_options(streams="--stream", operations="--operation", algorithms="--algorithm", programs="--program"):
            trace = select(trace, args.stream, args.operation, args.algorithm, args.program)
    trace.save(args.out)
    print_written(args.out, f"{args.out}: {', '.join(parts_of(trace))}")
    return 0


def _new(table: str | None, gpu: str, out: str) -> int:
    from gpusim.trace.new import from_table, template

    require_output(out, [] if table is None else [table])
    require_ending(out, TRACE_ENDINGS)
    device = gpu_from(gpu).name
    trace = template(device) if table is None else from_table(table, device)
    for fault in _impossible(trace, out if table is None else table):
        raise fault
    trace.save(out)
    print_written(out, f"{out}: {', '.join(parts_of(trace))}; replay it with gpusim replay {out}")
    return 0


def _points(path: str, parts: list[str], out: str) -> int:
    from gpusim.trace.points import with_points

    require_output(out, [path, *parts])
    require_ending(out, TRACE_ENDINGS)
    traces = [read_trace(one) for one in (path, *parts)]
    with told_with([path, *parts]):
        trace = with_points(traces[0], traces[1:])
    launches = trace.launches()
    scaled = sum(launch.scaling is not None for launch in launches)
    trace.save(out)
    print_written(out, f"{out}: {scaled:,} of {len(launches):,} kernels with times on a part of the SMs")
    return 0


def _check(paths: list[str]) -> int:
    from gpusim.hardware.gpu import gpu_names
    from gpusim.trace.every_fault import every_fault

    status = 0
    for path in paths:
        try:
            trace = read_trace(path)
        except InputError as error:
            faults = every_fault(path, error)
        else:
            faults = _impossible(trace, path)
        found = list(islice(faults, MOST_FAULTS + 1))
        for fault in found[:MOST_FAULTS]:
            print(fault, file=sys.stderr)
        if len(found) > MOST_FAULTS:
            print(InputError(path, "", f"has more than these {MOST_FAULTS} faults"), file=sys.stderr)
        if found:
            status = 2
            continue
        known = trace.device in gpu_names()
        unknown = "" if known else f"; {trace.device} does not ship: whether its SMs hold a block was not checked"
        print_line(f"{path}: sound, {', '.join(parts_of(trace))}{unknown}")
    return status


def _impossible(trace: gpusim.Trace, path: str) -> Iterator[InputError]:
    """A device that is another name of a GPU that ships, and kernels that cannot run on the GPU of the trace."""
    from gpusim.io.conversion import lacking, recorded_part
    from gpusim.io.products import same_gpu

    gpu = _own_gpu(trace)
    meant = same_gpu(trace.device) if gpu is None else None
    if meant is not None:
        yield InputError(path, "device", f"is {quote(trace.device)}", f"{meant}, its name in `gpusim gpus`")
    gpu = gpusim.load_gpu(meant) if meant is not None else gpu
    if gpu is None:
        return
    for s, stream in enumerate(trace.streams):
        for o, operation in enumerate(stream.operations):
            for launch in operation.launches():
                place = f"streams[{s}].operations[{o}]"
                try:
                    recorded_part(launch, gpu, place)
                except InputError as fault:
                    yield fault.at(path, fault.place, fault.problem)
                problem = lacking(launch, gpu)
                if problem:
                    yield InputError(path, place, problem, "kernels that ran on the GPU of the trace")


def _own_gpu(trace: gpusim.Trace) -> gpusim.GPU | None:
    from gpusim.hardware.gpu import gpu_names

    return gpusim.load_gpu(trace.device) if trace.device in gpu_names() else None
