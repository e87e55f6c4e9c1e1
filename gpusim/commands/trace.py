"""`gpusim trace`: new traces, what is in one, parts of one, several side by side, other files, whether one is sound."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import fsum
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

from gpusim.commands.arguments import gpu_from, json_flag, read_trace, trace_from
from gpusim.common.errors import InputError, quote
from gpusim.common.files import TRACE_ENDINGS, require_ending, require_output
from gpusim.common.tables import Column, counted, number, numbers, print_json, print_line, print_table, told_apart

if TYPE_CHECKING:
    from gpusim.hardware.gpu import GPU
    from gpusim.trace.format import Trace
    from gpusim.trace.kernels import KernelLaunch

MOST_FAULTS = 20  # of one trace that `check` tells
MOST_KERNELS = 20  # in the table of `show`
NAME_WIDTH = 60  # of a kernel where no terminal is wider


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser("new", help="a template that replays, or one kernel for each row of a table")
    new.add_argument(
        "--from",
        dest="table",
        metavar="TABLE.csv",
        help="columns kernel, blocks, threads_per_block, registers_per_thread, duration_us, and if need be "
        "shared_memory_bytes, stream and program",
    )
    new.add_argument("--gpu", metavar="NAME|PATH", default="h200", help="GPU that the durations are of; default: h200")
    show = actions.add_parser(
        "show", help="programs, streams, kernels by time, what limits occupancy, what is estimated"
    )
    show.add_argument("trace", metavar="TRACE")
    show.add_argument("--gpu", metavar="NAME|PATH", help="whose occupancy is shown; default: the trace's own")
    json_flag(show)
    select = actions.add_parser("select", help="a part of a trace, or other algorithms")
    select.add_argument("trace", metavar="TRACE")
    for option, what in (
        ("program", "programs"),
        ("stream", "streams"),
        ("operation", "operations"),
        ("algorithm", "algorithms to select"),
    ):
        select.add_argument(
            f"--{option}", action="append", default=[], metavar="NAME", help=f"{what}: a name or a pattern; repeatable"
        )
    merge = actions.add_parser("merge", help="traces side by side, each a program named after its file")
    merge.add_argument("traces", nargs="+", metavar="TRACE")
    convert = actions.add_parser("convert", help="the same trace in another file: .json or .json.gz")
    convert.add_argument("trace", metavar="TRACE")
    for action in (new, select, merge, convert):
        action.add_argument("-o", "--out", required=True, metavar="FILE", help="the trace to write (.json, .json.gz)")
    check = actions.add_parser("check", help="whether traces are sound and their kernels can run on their GPU")
    check.add_argument("traces", nargs="+", metavar="TRACE")


def run(args: argparse.Namespace) -> int:
    """Runs the action that the arguments name."""
    from gpusim.trace.edit import select

    if args.action == "check":
        return _check(args.traces)
    if args.action == "new":
        return _new(args.table, args.gpu, args.out)
    paths = args.traces if args.action == "merge" else [args.trace]
    if args.action != "show":
        require_output(args.out, paths)
        require_ending(args.out, TRACE_ENDINGS)
    trace = trace_from(paths)
    if args.action == "show":
        gpu = _own_gpu(trace) if args.gpu is None else gpu_from(args.gpu)
        if args.json:
            from gpusim.commands.trace_json import as_json

            print_json(as_json(trace, gpu))
        else:
            _show(trace, gpu)
        return 0
    if args.action == "select":
        trace = select(trace, args.stream, args.operation, args.algorithm, args.program)
    trace.save(args.out)
    print_line(f"{args.out}: {_size(trace)}")
    return 0


def _new(table: str | None, gpu: str, out: str) -> int:
    from gpusim.trace.new import from_table, template

    require_output(out, [] if table is None else [table])
    require_ending(out, TRACE_ENDINGS)
    device = gpu_from(gpu).name
    trace = template(device) if table is None else from_table(table, device)
    trace.save(out)
    print_line(f"{out}: {_size(trace)}; replay it with gpusim replay {out}")
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
        print_line(f"{path}: sound, {_size(trace)}{unknown}")
    return status


def _impossible(trace: Trace, path: str) -> Iterator[InputError]:
    """A device that is another name of a GPU that ships, and kernels that cannot run on the GPU of the trace."""
    from gpusim.commands.trace_json import launch_occupancy
    from gpusim.hardware.gpu import load_gpu
    from gpusim.io.products import same_gpu

    gpu = _own_gpu(trace)
    meant = same_gpu(trace.device) if gpu is None else None
    if meant is not None:
        yield InputError(path, "device", f"is {quote(trace.device)}", f"{meant}, its name in `gpusim gpus`")
    gpu = load_gpu(meant) if meant is not None else gpu
    if gpu is None:
        return
    for s, stream in enumerate(trace.streams):
        for o, operation in enumerate(stream.operations):
            for launch in operation.launches():
                blocks, limiter = launch_occupancy(launch, gpu)
                if blocks == 0:
                    place = f"streams[{s}].operations[{o}]"
                    problem = f"a block asks for more {limiter.replace('_', ' ')} than {gpu.name} has"
                    yield InputError(path, place, problem, "kernels that ran on the GPU of the trace")


def _size(trace: Trace) -> str:
    operations = sum(len(stream.operations) for stream in trace.streams)
    kernels = sum(len(operation.launches()) for operation in trace.operations())
    return f"{counted(len(trace.streams), 'stream')}, {counted(operations, 'operation')}, {counted(kernels, 'kernel')}"


def _show(trace: Trace, gpu: GPU | None) -> None:
    from gpusim.commands.trace_json import as_json

    content = as_json(trace, gpu)
    print_line(f"{trace.name}, recorded on {trace.device}: {_size(trace)}")
    for line in content["notes"]:
        print_line(f"  {line}")
    print()
    if trace.names_programs():
        rows = [
            (
                program["name"],
                str(len(program["streams"])),
                str(program["launches"]),
                number(program["kernels_us"]),
                "mixed" if program["priority"] is None else str(program["priority"]),
                str(program["requests"]),
            )
            for program in content["programs"]
        ]
        titles = ("streams", "kernels", "kernels µs", "priority", "requests")
        print_table([Column("program", narrow="break"), *numbers(*titles)], rows)
        print()
    _show_streams(trace, content["streams"])
    print()
    _show_kernels(trace, gpu)


def _show_streams(trace: Trace, known: Sequence[Mapping[str, Any]]) -> None:
    from gpusim.trace.operations import Copy

    rows = []
    for stream, of in zip(trace.streams, known, strict=True):
        copied = sum(operation.bytes for operation in stream.operations if isinstance(operation, Copy))
        rows.append(
            (
                stream.name,
                str(of["operations"]),
                str(of["launches"]),
                number(of["kernels_us"]),
                _moved_mb([launch for operation in stream.operations for launch in operation.launches()]),
                number(copied / 1e6),
                str(of["waits"]),
                str(of["estimated"]),
            )
        )
    titles = ("operations", "kernels", "kernels µs", "DRAM MB", "copied MB", "waits", "estimated")
    print_table([Column("stream", narrow="break"), *numbers(*titles)], rows)


def _show_kernels(trace: Trace, gpu: GPU | None) -> None:
    from gpusim.commands.trace_json import launches_by_name

    by_name = launches_by_name(trace)
    times = {name: fsum(launch.duration_us for launch in launches) for name, launches in by_name.items()}
    whole_us = fsum(launch.duration_us for launches in by_name.values() for launch in launches)
    shown = sorted(by_name, key=lambda name: (-times[name], name))[:MOST_KERNELS]
    width = max(NAME_WIDTH, get_terminal_size().columns)
    rows = [
        (
            text,
            str(len(by_name[name])),
            number(times[name]),
            f"{100 * times[name] / whole_us:.1f} %",
            "?" if gpu is None else _limits(by_name[name], gpu),
            _demand(by_name[name]),
        )
        for name, text in zip(shown, told_apart(shown, width), strict=True)
    ]
    more = len(by_name) - len(rows)
    title = f"Kernels by time{f', the first {MOST_KERNELS} of {len(by_name)}' if more else ''}"
    limited = "blocks per SM, limited by" + ("" if gpu is None else f" ({gpu.name})")
    columns = [Column("kernel", narrow="cut"), *numbers("launches", "µs", "share")]
    print_table([*columns, Column(limited, narrow="break"), Column("demand", narrow="break")], rows, title)


def _limits(launches: list[KernelLaunch], gpu: GPU) -> str:
    """The most common fit of a kernel's launches; at most that where the registers, which may limit, are unknown."""
    from gpusim.commands.trace_json import launch_occupancy

    seen = Counter((*launch_occupancy(launch, gpu), launch.registers_per_thread == 0) for launch in launches)
    (blocks, limiter, unknown), count = seen.most_common(1)[0]
    text = f"at most {blocks}, registers unknown" if unknown else f"{blocks}, {limiter.replace('_', ' ')}"
    return text + ("" if count == len(launches) else " (most)")


def _demand(launches: list[KernelLaunch]) -> str:
    """Counters that all launches of a kernel have."""
    if all(launch.estimated for launch in launches):
        return "estimated"
    lacking = [launch.uncounted for launch in launches if launch.uncounted]
    if not lacking:
        return "counted"
    some = "" if len(lacking) == len(launches) else f" ({len(lacking)} launches)"
    return f"partly, without {', '.join(dict.fromkeys(name for names in lacking for name in names))}{some}"


def _moved_mb(launches: list[KernelLaunch]) -> str:
    """DRAM traffic of kernels, reads and writes, MB; a lower bound where some have no counters."""
    from gpusim.trace.kernels import DRAM_COUNTERS

    moved = [
        launch.blocks * of_block
        for launch in launches
        for counter in DRAM_COUNTERS
        if launch.mix is not None and (of_block := getattr(launch.mix, counter)) is not None
    ]
    if launches and not moved:
        return "unknown"
    return ("> " if len(moved) < len(DRAM_COUNTERS) * len(launches) else "") + number(fsum(moved) / 1e6)


def _own_gpu(trace: Trace) -> GPU | None:
    from gpusim.hardware.gpu import gpu_names, load_gpu

    return load_gpu(trace.device) if trace.device in gpu_names() else None
