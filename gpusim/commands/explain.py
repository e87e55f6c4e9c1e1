"""`gpusim explain`: what overlapping cost each kernel, by which contention, and what another arrangement would gain."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpusim.commands.arguments import gpu_arguments, json_flag, trace_and_session

if TYPE_CHECKING:
    from gpusim.choose.explain import Explanation, Group

MOST_ROWS = 15
NAME_WIDTH = 60
SHOWN_CAUSES = 2
SAME = 0.02  # of two makespans, relative: what the model cannot tell apart, as in gpusim.choose.advise


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the arguments."""
    parser.add_argument(
        "traces", nargs="+", metavar="TRACE", help="a trace of several streams; several traces run side by side"
    )
    gpu_arguments(parser)
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Explains and prints."""
    from gpusim.choose.explain import as_json, explain
    from gpusim.common.progress import named_steps
    from gpusim.common.tables import print_json

    with named_steps() as step, trace_and_session(args, args.traces) as (trace, session):
        found = explain(trace, session, step=step)
    if args.json:
        print_json(as_json(found))
    else:
        _print(found)


def _print(found: Explanation) -> None:
    from gpusim.choose.explain import LEAST_SLOWED
    from gpusim.common.tables import counted, number, print_line

    slowed = [one for one in found.kernels if one.slowdown >= LEAST_SLOWED]
    print_line(
        f"{found.trace.name} on {found.gpu.name}: {counted(len(found.kernels), 'kernel')} in "
        f"{counted(len(found.trace.streams), 'stream')} take {number(found.makespan_us)} us; "
        f"overlapping slowed {len(slowed)} of them"
    )
    total = sum(found.cost_us.values())
    if total > 0.0:
        print_line(f"what it cost them, {number(total)} us together: {_causes(found.cost_us, len(found.cost_us))}")
    for line in _gains(found):
        print_line(line)
    print()
    _print_groups("kernel", found.by_name)
    operators = [group for group in found.by_operator if group.launches > 1]
    if operators and len(found.by_operator) < len(found.kernels):
        print()
        _print_groups("operator", found.by_operator)


def _gains(found: Explanation) -> list[str]:
    """What other arrangements would gain or lose."""
    from gpusim.common.tables import number

    lines = []
    policy, us = next(iter(found.arrangements.items()))
    if us < found.makespan_us * (1.0 - SAME):
        lines.append(f"{policy} would take {number(us)} us: {found.makespan_us / us:.2f}x as fast")
    else:
        lines.append(f"no other arrangement is faster; the next, {policy}, takes {number(us)} us")
    serial = found.arrangements.get("serial")
    if serial is not None and policy != "serial":
        lines.append(f"one stream after the other takes {number(serial)} us")
    return lines


def _print_groups(title: str, groups: Sequence[Group]) -> None:
    from gpusim.common.tables import Column, number, print_line, print_table, told_apart

    shown = groups[:MOST_ROWS]
    rows = [
        (
            name,
            str(group.launches),
            number(group.isolated_us),
            number(group.took_us),
            f"{group.slowdown:.2f}x",
            _causes(group.by_us, SHOWN_CAUSES),
        )
        for group, name in zip(shown, told_apart([group.name for group in shown], NAME_WIDTH), strict=True)
    ]
    numbers = (Column(name, right=True) for name in ("launches", "isolated us", "took us", "slowed"))
    columns = [Column(title, narrow="cut"), *numbers, Column("by", narrow="break")]
    print_table(columns, rows, f"What overlapping cost, by {title}")
    if len(groups) > len(shown):
        print_line(f"… and {len(groups) - len(shown)} more (--json has all)")


def _causes(by_us: Mapping[str, float], most: int) -> str:
    total = sum(by_us.values())
    return ", ".join(f"{name} {us / total:.0%}" for name, us in list(by_us.items())[:most]) if total > 0.0 else ""
