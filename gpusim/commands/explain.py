"""`gpusim explain`: what overlapping cost each kernel, by which contention, and what another arrangement would gain."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import gpusim
from gpusim.commands.arguments import as_options, gpu_arguments, gpu_from, json_flag, trace_and_session
from gpusim.commands.part import OPTIONS, part_arguments, part_from
from gpusim.common.errors import InputError
from gpusim.common.progress import named_steps
from gpusim.common.tables import Column, counted, number, print_json, print_left_out, print_line, print_rows, told_apart

if TYPE_CHECKING:
    from gpusim.choose.explain import Explanation, Group
    from gpusim.choose.recorded import Overlapped, Recorded
    from gpusim.io.part import Part

MOST_ROWS = 15
NAME_WIDTH = 60
SHOWN_CAUSES = 2
UNKNOWN = "?"  # instead of an isolated time and a slowdown


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traces",
        nargs="+",
        metavar="TRACE",
        help="a trace of several streams, or several traces or profiles, which run side by side; or one profile of "
        "PyTorch or nsys, whose kernels are explained as they overlapped when recorded",
    )
    parser.add_argument(
        "--counters", metavar="FILE", help="ncu's profile of the same program as the one profile, for counters"
    )
    gpu_arguments(parser)
    part_arguments(parser)
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    from gpusim.choose.explain import as_json, explain
    from gpusim.io.importing import profile_format

    if len(args.traces) == 1 and profile_format(args.traces[0]) in ("kineto", "nsys", "nvprof"):
        return _explain_profile(args)
    if args.counters is not None:
        raise InputError(None, "--counters", "is for one profile only", "one profile, or traces that have counters")
    if part_from(args) or args.device is not None:
        problem = "a part and --device are for one profile only"
        raise InputError(None, "options", problem, "one profile, or traces made by gpusim import of a part")
    with named_steps() as step, trace_and_session(args, args.traces, profiles=True) as (trace, session):
        found = explain(trace, session, step=step)
    if args.json:
        return print_json(as_json(found))
    _print(found)


def _explain_profile(args: argparse.Namespace) -> None:
    from gpusim.choose.explain import AS_RECORDED, arrangements_json, other_arrangements
    from gpusim.choose.recorded import as_json, busy_us, isolated, overlapped

    path = Path(args.traces[0])
    if args.what_if:
        raise InputError(None, "--what-if", "is of no use for kernels as they were recorded", "a trace")
    if args.gpu and args.recorded_on:
        raise InputError(None, "--recorded-on", "is the same as --gpu for a profile", "one of the two")
    name = args.gpu or args.recorded_on
    gpu = None if name is None else gpu_from(name)
    with as_options(gpu="--gpu", **OPTIONS):
        part = part_from(args)
        trace = gpusim.import_profile(path, None, gpu, args.counters, args.device, part=part).trace
        kernels = recorded(path, part, args.device)
    session = gpusim.Session(gpu or gpu_from(trace.device), cache=not args.no_cache)
    found = overlapped(kernels, trace, session)
    if not found:
        raise InputError(
            path, "", "holds no kernels that overlapped", "a profile in which streams ran side by side, or two traces"
        )
    with named_steps() as step:
        step("replaying the streams as plain CUDA streams")
        alone = isolated(trace, found)
        makespan_us = session.makespan_us(alone, AS_RECORDED)
        others = other_arrangements(alone, session, step)
    if args.json:
        replayed = {"makespan_us": makespan_us, "arrangements": arrangements_json(makespan_us, others)}
        replayed["recorded_busy_us"] = busy_us(kernels)
        head = {"version": 1, "profile": path.name, "gpu": trace.device}
        print_json({**head, **replayed, **as_json(found)})
    else:
        _print_recorded(path.name, trace.device, len(kernels), found)
        print()
        took = f"when recorded, kernels ran for {number(busy_us(kernels))} µs; "
        took += f"replayed as plain streams it takes {number(makespan_us)} µs"
        for line in (took, *_gains(makespan_us, others)):
            print_line(line)


def recorded(path: Path, part: Part | None = None, device: int | None = None) -> list[Recorded]:
    """The kernels of a part of a profile as they ran."""
    from gpusim.choose.explain import operator_of
    from gpusim.choose.recorded import Recorded
    from gpusim.io.importing import timeline_of
    from gpusim.io.order import ready
    from gpusim.io.timeline import LaunchedKernel

    timeline = timeline_of(path, part, device)
    return [
        Recorded(
            (one.work.name, one.work.grid, one.work.block),
            operator_of(one.label) if one.label else "",
            one.stream.number,
            one.start_us,
            one.duration_us,
            *could_start,
        )
        for one, could_start in zip(timeline.activities, ready(timeline), strict=True)
        if isinstance(one.work, LaunchedKernel)
    ]


def _print_recorded(name: str, gpu: str, kernels: int, found: Sequence[Overlapped]) -> None:
    from gpusim.choose.explain import added
    from gpusim.choose.recorded import by_groups

    known = [one for one in found if one.isolated_us is not None]
    extra = fsum(one.took_us - (one.isolated_us or 0.0) for one in known)
    print_line(f"{name} on {gpu}: {len(found)} of {kernels} kernels ran beside kernels of other streams when recorded")
    if known:
        change = f"{number(abs(extra))} µs {'longer' if extra >= 0.0 else 'shorter'}"
        print_line(f"{len(known)} of them also ran by themselves; overlapping made these {change} together")
        expected = fsum(one.expected_us for one in known)
        print_line(f"for the time in which they ran beside others, the model expects {number(expected)} µs")
    else:
        print_line("none of these kernels also ran by itself, so how much overlapping slowed them is unknown")
    _print_cost("those that took longer took", added(one.by_us for one in known))
    print()
    by_name, by_operator = by_groups(found)
    _print_groups("kernel", by_name)
    if by_operator:
        print()
        _print_groups("operator", by_operator)
    if len(known) < len(found):
        print_line(
            f"{UNKNOWN}: the isolated time is unknown: the kernel never ran by itself, had other data when it did, or "
            "exchanges data with other GPUs, and its times include waiting for these; the model alone says what it "
            "contended for"
        )


def _print(found: Explanation) -> None:
    from gpusim.choose.explain import LEAST_SLOWED, order_note

    slowed = [one for one in found.kernels if one.slowdown >= LEAST_SLOWED]
    print_line(
        f"{found.trace.name} on {found.gpu.name}: {counted(len(found.kernels), 'kernel')} in "
        f"{counted(len(found.trace.streams), 'stream')} take {number(found.makespan_us)} µs; "
        f"overlapping slowed {len(slowed)} of them"
    )
    _print_cost("they took", found.cost_us)
    for line in _gains(found.makespan_us, found.arrangements):
        print_line(line)
    if note := order_note(found.trace):
        print_line(f"Note: {note}.")
    if not slowed:
        return
    print()
    _print_groups("kernel", [one for one in found.by_name if (one.slowdown or 0.0) >= LEAST_SLOWED])
    operators = [group for group in found.by_operator if group.launches > 1]
    if operators and 1 < len(found.by_operator) < len(found.kernels):
        print()
        _print_groups("operator", found.by_operator)


def _print_cost(what: str, cost_us: Mapping[str, float]) -> None:
    from gpusim.choose.explain import in_shares

    total = fsum(cost_us.values())
    if total > 0.0:
        print_line(f"{what} {number(total)} µs longer together: {in_shares(cost_us, len(cost_us))}")


def _gains(makespan_us: float, arrangements: Mapping[str, float]) -> list[str]:
    from gpusim.choose.advise import TIE

    policy, us = next(iter(arrangements.items()))
    beyond = f" by more than {100 * TIE:.0f} %, which the model cannot tell apart" if us < makespan_us else ""
    *names, last = (f"`{name}`" for name in arrangements)
    lines = [f"none of {', '.join(names)} and {last} is faster{beyond}; the best of them takes {number(us)} µs"]
    if us < makespan_us * (1.0 - TIE):
        lines = [f"`{policy}` would take {number(us)} µs: {makespan_us / us:.2f}x as fast"]
    serial = arrangements.get("serial")
    if serial is not None and policy != "serial":
        lines.append(f"one stream after the other (`serial`) takes {number(serial)} µs")
    return lines


def _print_groups(title: str, groups: Sequence[Group]) -> None:
    from gpusim.choose.explain import in_shares

    shown = groups[:MOST_ROWS]
    columns = [
        (Column(title, narrow="cut"), lambda one: one[0]),
        (Column("launches", right=True), lambda one: str(one[1].launches)),
        (Column("isolated µs", right=True), lambda one: _known(one[1].isolated_us)),
        (Column("took µs", right=True), lambda one: number(one[1].took_us)),
        (Column("slowed", right=True), lambda one: UNKNOWN if one[1].slowdown is None else f"{one[1].slowdown:.2f}x"),
        (Column("by", narrow="break"), lambda one: in_shares(one[1].by_us, SHOWN_CAUSES)),
    ]
    width = max(NAME_WIDTH, get_terminal_size().columns)  # which the table cuts to what fits
    named = list(zip(told_apart([group.name for group in shown], width), shown, strict=True))
    print_rows(named, columns, f"What overlapping cost, by {title}")
    print_left_out(len(groups) - len(shown))


def _known(us: float | None) -> str:
    return UNKNOWN if us is None else number(us)
