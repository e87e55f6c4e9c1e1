"""`gpusim replay`: replay a trace under policies and compare them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import gpusim
from gpusim.commands.arguments import (
    DETAILS,
    arrivals_argument,
    as_options,
    details,
    gpu_arguments,
    json_flag,
    of_program,
    target_argument,
    trace_and_session,
    whole,
    with_settings,
)
from gpusim.common.errors import InputError
from gpusim.common.files import require_new_folder, require_output, require_two_outputs
from gpusim.common.progress import Step, named_steps
from gpusim.common.tables import print_json
from gpusim.results.metrics import DEFAULT_POLICIES

if TYPE_CHECKING:
    from gpusim.choose.targets import Target


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_replay_arguments(
        parser, "a trace (.json, .json.gz) or sample:NAME; several start together, each a program named after its file"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write tables, pictures and the data of a report to this new folder"
    )
    parser.add_argument(
        "--timeline",
        type=Path,
        metavar="FILE",
        help="write a timeline of streams and SMs under every policy, for a viewer such as ui.perfetto.dev: .pftrace "
        "for Perfetto's own format, .json for Chrome's",
    )
    parser.add_argument(
        "--details",
        type=details,
        default=(),
        metavar="LIST",
        help=f"print more tables: a list separated by commas of {', '.join(DETAILS)}; or all",
    )
    target_argument(parser)
    json_flag(parser)


def add_replay_arguments(parser: argparse.ArgumentParser, traces: str) -> None:
    """Declare the arguments that `compared` reads; ``traces`` is the help of the positional argument."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help=traces)
    gpu_arguments(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:key=value,…]",
        help=f"a policy of `gpusim policies`, FILE.py:Class or package.module:Class; repeatable; "
        f"default: {', '.join(DEFAULT_POLICIES)}",
    )
    parser.add_argument(
        "--restart",
        action="store_true",
        help="also replay with every program starting again when it ends, until each has ended once: gives STP, ANTT "
        "and fairness; programs must not wait for each other or have arrivals",
    )
    parser.add_argument(
        "--priority",
        action="append",
        type=of_program("a whole number from 0 to 1000", whole(0, 1000)),
        metavar="PROGRAM=N",
        help="priority of all streams of a program, 0 is the lowest; repeatable",
    )
    arrivals_argument(parser)
    parser.add_argument(
        "--seed", type=whole(0, 2**31 - 1), default=0, help="random seed of block-duration jitter (default 0: fitted)"
    )
    parser.add_argument(
        "--alternatives",
        choices=("selected", "fitting"),
        default="selected",
        help="algorithm of each convolution: the selected one (default); or, where the GPU cannot run it, the fastest "
        "recorded alternative that the GPU can run",
    )


def run(args: argparse.Namespace) -> None:
    """Replay traces under policies, print how these compare, and write what was asked for."""
    if args.out is not None:
        require_new_folder(args.out)
    if args.timeline is not None:
        from gpusim.io.viewer import save_timeline, timeline_format

        timeline_format(args.timeline)
        require_output(args.timeline, args.traces)
    require_two_outputs(args.out, args.timeline)
    with named_steps() as step:
        placements = args.out is not None or args.timeline is not None
        comparison = compared(args, step, placements, residents=args.out is not None, slo=args.slo)
        if args.timeline is not None:
            step(f"writing {args.timeline}")
            save_timeline(args.timeline, comparison.trace, *(entry.result for entry in comparison.entries))
        if args.out is not None:
            from gpusim.commands.replay_folder import write_comparison

            write_comparison(comparison, args.out, step, command_of(args))
    from gpusim.choose.targets import targets_of

    targets = targets_of(args.slo, [program.name for program in comparison.trace.programs])
    if args.json:
        from gpusim.results.comparison import as_json

        return print_json(as_json(comparison) | targets_json(comparison, targets))
    from gpusim.commands.replay_tables import print_comparison

    print_comparison(comparison, args.details, targets)


def require_targets(trace: gpusim.Trace, slo: Sequence[str], restart: bool) -> None:
    """Refuse targets that a replay of a trace cannot tell of."""
    from gpusim.choose.serving import arriving
    from gpusim.choose.targets import targets_of

    with as_options(targets="--slo"):
        targets = targets_of(slo, [program.name for program in trace.programs])
    if targets and restart:
        raise InputError(None, "--slo", "is of one pass or of requests", "no --restart")
    for target in targets:
        if target.slowdown is not None and target.program in arriving(trace):
            problem = f"is a slowdown, and {target.program} has arrivals"
            raise InputError(None, "--slo", problem, f"a time such as {target.program}=5ms; gpusim advise takes both")


def targets_json(comparison: gpusim.Comparison, targets: Sequence[Target]) -> dict[str, object]:
    """What programs reach of their targets under each policy; nothing without targets."""
    from gpusim.choose.targets import values_of

    reached = {entry.result.policy: values_of(entry.result) for entry in comparison.entries}
    found = [
        {
            "target": str(target),
            "policy": policy,
            "held": target.held(slowdown, latency_us),
            "slowdown": slowdown[target.program],
            "latency_us": latency_us[target.program],
        }
        for target in targets
        for policy, (slowdown, latency_us) in reached.items()
    ]
    return {"targets": found} if found else {}


def command_of(args: argparse.Namespace) -> str:
    """Return the command line of a replay, without targets and the options that write files."""
    words = ["gpusim", "replay", *args.traces]
    for name in ("gpu", "recorded_on", "seed", "alternatives"):
        value = getattr(args, name)
        words += [f"--{name.replace('_', '-')}", str(value)] if value not in (None, 0, "selected") else []
    words += [word for key, value in args.what_if or () for word in ("--what-if", f"{key}={value}")]
    words += [word for policy in args.policy or () for word in ("--policy", policy)]
    words += [word for name, value in args.priority or () for word in ("--priority", f"{name}={value}")]
    words += [word for name, given in args.arrivals or () for word in ("--arrivals", f"{name}={given.text}")]
    return shlex.join([*words, *["--restart"] * args.restart])


def compared(
    args: argparse.Namespace, step: Step, placements: bool, residents: bool, slo: Sequence[str] = ()
) -> gpusim.Comparison:
    """Read the traces and replay them under the policies that the arguments of `add_replay_arguments` name.

    Placements and the contents of each SM are kept on demand, unless the trace is too large to show them.
    """
    from gpusim.choose.alternatives import fitting, require_fit
    from gpusim.choose.bound import bound_of_trace
    from gpusim.choose.serving import growing_queues, running_once

    step(f"reading {' and '.join(args.traces)}")
    with trace_and_session(args, args.traces, args.seed) as (trace, session):
        trace, notes = with_settings(trace, args), [""]
        require_targets(trace, slo, args.restart)
        if args.alternatives == "fitting":
            trace, notes[0] = fitting(trace, session.gpu)
        else:
            require_fit(trace, session.gpu)
        keep: list[Literal["placements", "residents"]] = ["placements"] if placements else []
        if residents:
            from gpusim.io.report.content import residents_shown

            keep += ["residents"] if residents_shown(trace) else []
        policies = args.policy or DEFAULT_POLICIES
        comparison = session.compare(trace, policies, restart=args.restart, keep=keep, step=step)
        step("bounding the makespan")
        bound = bound_of_trace(trace, session)
        alone = growing_queues(trace, session)
        notes += [*alone, *running_once(trace)]
        comparison = _with_requests(comparison, session, not alone, step)
    if bound is not None:
        comparison = replace(comparison, bound_us=bound.us, bound_by=bound.by)
    return comparison.noted(*filter(None, notes))


def _with_requests(
    comparison: gpusim.Comparison, session: gpusim.Session, each_served: bool, step: Step
) -> gpusim.Comparison:
    """Add what only more replays tell of requests: confidence intervals, and queues that grow beside other programs.

    ``each_served``: the GPU serves each program alone.
    """
    from gpusim.choose.serving import growing_together, intervals_us, other_seeds

    trace, entries = comparison.trace, []
    others = list(other_seeds(trace))
    for entry in comparison.entries:
        policy = entry.result.policy
        if others:
            step(f"replaying other arrivals under {policy}")
        growing = growing_together(trace, entry.result) if each_served else ()
        interval_us = intervals_us(others, session, policy, entry.result)
        entries.append(replace(entry, notes=(*entry.notes, *growing), latency_interval_us=interval_us))
    return replace(comparison, entries=tuple(entries))
