"""`gpusim sweep`: every point of an experiment, on all cores or a cluster, into one table."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.commands.arguments import as_options, drawn_as, json_flag, picture_arguments, require_picture, whole
from gpusim.common.errors import one_line
from gpusim.common.files import require_two_outputs
from gpusim.common.tables import Column, counted, number, numbers, print_json, print_left_out, print_line, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpusim.sweeps.run import SweepPoint, Swept
    from gpusim.sweeps.summary import PolicySummary, SweptRow

MOST_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "An experiment runs the code of the policies that it names. It must be in the folder of the "
        "experiment or below it, installed, or in a folder given with --code-from. What will run is listed first. "
        f"{parser.epilog}"
    )
    parser.add_argument(
        "experiment",
        type=Path,
        metavar="EXPERIMENT.toml",
        help="traces, GPUs, what-ifs of them, policies and seeds; see experiments/*.toml",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="the table, .csv or .parquet; points that it holds already are not computed again; "
        "default: the experiment's name with .csv, beside it",
    )
    parser.add_argument(
        "--code-from",
        type=Path,
        action="append",
        default=[],
        metavar="FOLDER",
        help="the experiment may run policies from this folder and below it, too; repeatable",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--jobs", type=whole(1), metavar="N", help="processes; default: one per core")
    where.add_argument("--cluster", metavar="ADDRESS", help="a dask scheduler, such as tcp://HOST:8786")
    parser.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw speedup against each number of the GPU that varies; if none varies, fairness against STP, or "
        "slowdown against speedup for programs that run once; .png, .svg or .pdf",
    )
    picture_arguments(parser)
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Compute missing points, print a summary and, when asked, draw."""
    from gpusim.sweeps.experiment import load_experiment
    from gpusim.sweeps.run import sweep
    from gpusim.sweeps.workers import cluster, local

    require_picture(args.plot, [args.experiment])
    experiment = load_experiment(args.experiment, args.code_from)
    for code in experiment.code:
        _tell(f"runs the policies in {one_line(str(code))}")
    out = args.out or args.experiment.with_suffix(".csv")
    require_two_outputs(out, args.plot)
    try:
        where = nullcontext(local(args.jobs or os.cpu_count() or 1)) if args.cluster is None else cluster(args.cluster)
        with as_options(out="--out", cluster="--cluster"), _sigterm_as_ctrl_c(), where as (executors, width):
            swept = sweep(experiment, out, executors, width, _tell_what_is_known)
    except KeyboardInterrupt:
        _tell(f"interrupted; what is done is kept in {out}, run it again to go on")
        raise
    if args.plot is not None:  # first: who reads what is printed may stop reading
        from gpusim.sweeps.picture import draw

        with drawn_as(args):
            draw(swept, args.plot)
    if args.json:
        print_json(_as_json(swept))
    else:
        _print(swept)
    sys.stdout.flush()
    _tell_what_came_of_it(swept)
    return 2 if len(swept.failures) == len(swept.points) else 0


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Turn SIGTERM, which batch systems send to jobs over their time limit, into an interrupt."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _as_json(swept: Swept) -> dict[str, Any]:
    from gpusim.sweeps.run import label_names
    from gpusim.sweeps.summary import policy_summaries

    return {
        "experiment": str(swept.experiment.path),
        "table": str(swept.table),
        "points": len(swept.points),
        "computed": swept.computed,
        "failed": len(swept.failures),
        "failures": [
            {**dict(zip(label_names(swept.experiment), point.labels, strict=True)), "error": outcome.error}
            for point, outcome in swept.failures
        ],
        "policies": [asdict(summary) for summary in policy_summaries(swept)],
    }


# ---- on the terminal


def _print(swept: Swept) -> None:
    from gpusim.sweeps.summary import by_workload, policy_summaries, rows

    summaries = policy_summaries(swept)
    if summaries:
        print_table(*_policy_table(swept, summaries[:MOST_ROWS]))
        if any(one.model_error_percent is None for one in summaries[:MOST_ROWS]):
            print_line("not validated: some points have no comparable measured co-run; `gpusim replay` says why")
        print_left_out(len(summaries) - MOST_ROWS)
    for quantity in swept.experiment.varied:
        table = _speedup_table(swept, quantity)
        if table[1]:
            print()
            print_table(*table)
    each = by_workload(rows(swept))
    if not swept.experiment.varied and len(swept.experiment.policies) > 1 and 1 < len(each) <= MOST_ROWS:
        print()
        print_table(*_workload_table(swept, each))


def _tell(text: str) -> None:
    print(one_line(f"gpusim sweep: {text}"), file=sys.stderr)


def _tell_what_is_known(points: Sequence[SweepPoint], known: int) -> None:
    if known:
        _tell(f"{known:,} of {len(points):,} points are in the table already")


def _tell_what_came_of_it(swept: Swept) -> None:
    from gpusim.sweeps.summary import without_effect

    for sentence in without_effect(swept):
        _tell(sentence)
    if swept.dropped:
        _tell(f"removed {counted(swept.dropped, 'row')} of other points from the table")
    if swept.failures:
        point, outcome = swept.failures[0]
        what = " ".join(str(label) for label in point.labels if label != "")
        _tell(f"{len(swept.failures):,} of {len(swept.points):,} points failed; the first, {what}: {outcome.error}")
    are = "is" if len(swept.points) == 1 else "are"
    _tell(f"{counted(len(swept.points), 'point')}, {swept.computed:,} of them computed now, {are} in {swept.table}")


def _policy_table(swept: Swept, summaries: Sequence[PolicySummary]) -> tuple[list[Column], list[list[str]]]:
    varied, restart = swept.experiment.varied, swept.experiment.restart
    named = {one.policy: _parameters(one.policy) for one in summaries}
    keys = list(dict.fromkeys(key for _, parameters in named.values() for key in parameters))
    columns = [Column("gpu"), *numbers(*varied), *(Column(name, narrow="break") for name in ("policy", *keys))]
    sharing = ("STP", "fairness") if restart else ()
    titles = ("points", "speedup", "95 %", "slowdown", *sharing, "behind best", "most STP" if restart else "fastest")
    columns += [*numbers(*titles, "model error"), Column("Pareto-optimal")]
    cells = []
    for one in summaries:
        name, parameters = named[one.policy]
        given = [*(f"{one.values[name]:,}" for name in varied), name, *(parameters.get(key, "") for key in keys)]
        interval = [number(bound, 3) for bound in one.speedup_interval or ()]
        shared = [number(value, 3) for value in (one.stp, one.fairness) if value is not None]
        error = "not validated" if one.model_error_percent is None else f"±{number(one.model_error_percent)} %"
        mine = [
            f"{one.points:,}",
            f"{number(one.speedup, 3)}x",
            "–".join(interval),
            f"{number(one.largest_slowdown, 2)}x",
        ]
        rank = [_behind(one.behind), f"{one.best:,}", error, "yes" if one.undominated else ""]
        cells.append([one.gpu, *given, *mine, *shared, *rank])
    told = [at for at in range(len(columns)) if any(row[at] for row in cells)]  # of few points there is no interval
    return [columns[at] for at in told], [[row[at] for at in told] for row in cells]


def _behind(lead: tuple[float, float | None]) -> str:
    """How far a policy is behind the best one, with its 95 % interval."""
    mean, half = lead
    if not mean and not half:
        return "best"
    return f"{100.0 * mean:.1f}" + ("" if half is None else f" ± {100.0 * half:.1f}") + " %"


def _parameters(policy: str) -> tuple[str, dict[str, str]]:
    """A policy's name and its parameters as the experiment gives them."""
    from gpusim.policies.registry import split_name

    name, text = split_name(policy)
    pairs = (part.partition("=") for part in text.split(",") if part)
    return name, {key: value for key, _, value in pairs}


def _speedup_table(swept: Swept, quantity: str) -> tuple[list[Column], list[list[str]], str]:
    """Speedup against a varied quantity of the GPU, the others as the GPU has them: a column for each policy."""
    from gpusim.sweeps.summary import speedups_over

    found: dict[tuple[str, float], dict[str, float]] = {}
    speedups = speedups_over(swept, quantity)
    columns = dict.fromkeys(policy for _, policy in speedups)
    for (gpu, policy), by_value in speedups.items():
        for value, speedup in by_value.items():
            found.setdefault((gpu.name, value), {})[policy] = speedup
    cells = [
        [name, f"{value:,.10g}", *(f"{number(of[policy], 3)}x" if policy in of else "" for policy in columns)]
        for (name, value), of in sorted(found.items(), key=lambda one: one[0])
    ]
    titles = [Column("gpu"), *numbers(quantity, *columns)]
    return titles, cells, f"Speedup over serial against {quantity}, other quantities as the GPU has them"


def _workload_table(swept: Swept, each: Sequence[Sequence[SweptRow]]) -> tuple[list[Column], list[list[str]], str]:
    """Return the best policy of each workload, by STP where programs restart, and the division of each oracle."""
    from gpusim.sweeps.run import label_names
    from gpusim.sweeps.summary import best_of

    several = [name for name in label_names(swept.experiment) if len({of[0].labels[name] for of in each}) > 1]
    names = [name for name in several if name != "policy"]
    oracles = list(dict.fromkeys(str(row.labels["policy"]) for of in each for row in of if row.division))
    restart = swept.experiment.restart
    cells = []
    for of in each:
        best = best_of(of, restart)[0]
        found = {str(row.labels["policy"]): f"{_merit(row, restart)} {row.division}" for row in of}
        labels = (str(best.labels[name]) for name in names)
        shown = (found.get(name, "") for name in oracles)
        cells.append([*labels, str(best.labels["policy"]), _merit(best, restart), *shown])
    titles = ("policy with most STP", "STP") if restart else ("fastest policy", "speedup")
    columns = [*map(Column, (*names, titles[0])), *numbers(titles[1])]
    columns += [Column(name, narrow="break") for name in oracles]
    return columns, cells, "Each workload"


def _merit(row: SweptRow, restart: bool) -> str:
    from gpusim.sweeps.summary import merit

    return f"{row.figures[merit(restart)]:.3f}" + "x" * (not restart)
