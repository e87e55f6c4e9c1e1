"""Output of `gpusim replay`: one table, a verdict and notes; the other tables on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from math import fsum

from gpusim.choose.serving import SEEDS
from gpusim.choose.targets import Target, values_of
from gpusim.commands.arguments import DETAILS
from gpusim.common.tables import (
    Column,
    columns_that_fit,
    counted,
    grouped,
    number,
    numbers,
    print_line,
    print_table,
    short_name,
    told_apart,
)
from gpusim.results.comparison import ALONE, Comparison, Entry
from gpusim.results.gains import PARTS
from gpusim.results.metrics import BASELINE, LATENCY_PERCENTILES, TARGET_PERCENTILE, WARM_UP, latency_percentiles_us
from gpusim.results.result import Result
from gpusim.results.runs import BOUND_TITLES, KernelRun, ProgramRun, StreamRun
from gpusim.results.verdict import behind, doubts, explained, verdict
from gpusim.trace.independent import shares_nothing

MOST_CHARACTERS = 80  # of a line, where no terminal says
MOST_POLICIES = 6  # side by side in the tables of streams
MOST_STREAMS = 16
MOST_KERNELS = 20  # beyond which those of one name stand together

Table = tuple[list[Column], list[list[str]], str]


def print_comparison(comparison: Comparison, details: Collection[str] = (), targets: Sequence[Target] = ()) -> None:
    """Print the comparison of the policies, the verdict, the notes, and the tables of `DETAILS` that are asked for."""
    trace, gpu = comparison.trace, comparison.gpu
    best = comparison.entries[0].result
    programs = f"{counted(len(trace.programs), 'program')}, " if trace.names_programs() else ""
    counts = f"{counted(len(best.operation_runs), 'operation')}, {counted(len(best.kernel_runs), 'kernel')}"
    _say(f"{trace.name} on {gpu.name} ({gpu.title})")
    _say(f"{programs}{counted(len(trace.streams), 'stream')}, {counts}")
    _print(_policy_table(comparison))
    print()
    _say(verdict(comparison))
    alone = shares_nothing(trace)
    for note in (*comparison.notes, *doubts(comparison)):
        if note != ALONE:
            _say(f"note: {note}")
    shown = [entry.result for entry in comparison.entries[:MOST_POLICIES]]
    if latency_percentiles_us(best):
        _print_by_policy(_latency_table(comparison.entries[:MOST_POLICIES]))
    if targets:
        _print_by_policy(_target_table(shown, targets))
    if alone and best.kernel_runs:
        _print(_time_table(best))
    for name in DETAILS:
        if name in details and not alone:
            PRINTERS[name](comparison, shown)
    print()
    more = "" if details else f"--details {','.join(DETAILS)} or all: where time goes; "
    if alone:
        more = "gpusim advise THIS OTHER: how to share the GPU with another trace; "
    _say(f"{more}--out DIR: all of it as tables and pictures")


def _print_saved(comparison: Comparison, shown: Sequence[Result]) -> None:
    gains = {one.result.policy: one.gain_us.values() for one in comparison.entries if one.gain_us}
    rows = [[name, *map(number, (fsum(parts), *parts))] for name, parts in gains.items() if name != BASELINE]
    if rows:
        columns = [Column("policy", narrow="break"), *numbers("saved", *PARTS)]
        _print((columns, rows, "Makespan saved over serial, and where, µs"))


def _print_streams(comparison: Comparison, shown: Sequence[Result]) -> None:
    _print_by_policy(_span_table("stream", {r.policy: {run.stream: run for run in r.stream_runs} for r in shown}))
    _say_left_out(len(comparison.entries) - len(shown), "policies")
    _say_left_out(len(shown[0].stream_runs) - MOST_STREAMS, "streams")


def _print_programs(comparison: Comparison, shown: Sequence[Result]) -> None:
    if not shown[0].has_programs:
        print()
        _say("Programs: each stream is a program of its own; see --details streams.")
        return
    _print_by_policy(_span_table("program", {r.policy: {run.program: run for run in r.program_runs} for r in shown}))
    _say_left_out(len(shown[0].program_runs) - MOST_STREAMS, "programs")


def _print_kernels(comparison: Comparison, shown: Sequence[Result]) -> None:
    result = explained(comparison).result
    if result.kernel_runs:
        serial_is_best = comparison.entries[0].result.policy == BASELINE != result.policy
        cost = "would cost" if serial_is_best else "cost"
        title = f"What waiting and sharing {cost} kernels under {result.policy}, µs"
        few = len(result.kernel_runs) <= MOST_KERNELS
        _print((_kernel_table if few else _kernel_names_table)(result.kernel_runs, title))


PRINTERS = dict(zip(DETAILS, (_print_saved, _print_streams, _print_kernels, _print_programs), strict=True))


# ---- the tables


def _policy_table(comparison: Comparison) -> Table:
    best = comparison.entries[0]
    titles = ("makespan µs", "speedup", *(("STP", "ANTT", "fairness") if comparison.restart else ("behind",)))
    rows = []
    for entry in comparison.entries:
        sharing = ["" if value is None else number(value, 3) for value in entry.sharing.values()]
        rows.append(
            [
                entry.result.policy,
                number(entry.result.makespan_us),
                entry.speedup,
                *(sharing if comparison.restart else (behind(entry, best),)),
                entry.how_wrong.text.partition(": ")[0],
            ]
        )
    return [Column("policy", narrow="break"), *numbers(*titles), Column("model error", narrow="break")], rows, ""


def _span_table(what: str, runs: Mapping[str, Mapping[str, StreamRun | ProgramRun]]) -> Table:
    """When each stream or program ran; ``runs`` are by policy and name."""
    best = next(iter(runs.values()))
    names = sorted(best, key=lambda name: -best[name].end_us)[:MOST_STREAMS]
    rows = [[name, *(_span_text(of[name]) for of in runs.values())] for name in names]
    return [Column(what), *numbers(*runs)], rows, f"Start and end of each {what}, µs, and its slowdown"


def _span_text(run: StreamRun | ProgramRun) -> str:
    return f"{number(run.start_us)} – {number(run.end_us)}  {number(run.slowdown, 2)}x"


def _latency_table(entries: Sequence[Entry]) -> Table:
    found = [(latency_percentiles_us(entry.result), entry.latency_interval_us) for entry in entries]
    rows = [
        [program, *(_latencies(of[program], spread.get(program)) for of, spread in found)]
        for program in list(found[0][0])[:MOST_STREAMS]
    ]
    columns = [Column("program"), *numbers(*(entry.result.policy for entry in entries))]
    percentiles = " / ".join(f"p{p}" for p in LATENCY_PERCENTILES)
    title = f"Latency of requests, µs: {percentiles}; the first {100 * WARM_UP:.0f} % left out"
    spread = f"; ±: 95 % confidence of the mean p{TARGET_PERCENTILE} of {SEEDS} seeds" if found[0][1] else ""
    return columns, rows, title + spread


def _latencies(of: Mapping[int, float], half_us: float | None) -> str:
    """Percentiles of a program, with the confidence interval of that which targets are of."""
    spread = "" if half_us is None else f" ± {number(half_us)}"
    return " / ".join(number(us) + (spread if percent == TARGET_PERCENTILE else "") for percent, us in of.items())


def _target_table(results: Sequence[Result], targets: Sequence[Target]) -> Table:
    found = [values_of(result) for result in results]
    rows = [
        [str(target), *(f"{'held' if target.held(*of) else 'missed'}, {target.value(*of)}" for of in found)]
        for target in targets
    ]
    return [Column("target"), *numbers(*(result.policy for result in results))], rows, "Targets, and what is reached"


def _kernel_table(runs: Sequence[KernelRun], title: str) -> Table:
    rows = [
        [
            run.operation,
            short_name(run.kernel),
            *(number(us) for us in (run.start_us, run.end_us, run.solo_us, run.waited_us, run.sharing_us)),
            BOUND_TITLES[run.bound_by],
        ]
        for run in sorted(runs, key=lambda run: (run.start_us, run.ready_us))
    ]
    columns = [Column("operation", narrow="break"), Column("kernel", narrow="cut")]
    columns += [*numbers("start", "end", "isolated", "waited", "sharing"), Column("bound by")]
    return columns, rows, title


def _kernel_names_table(runs: Sequence[KernelRun], title: str) -> Table:
    """Print kernels by name, the largest cost of waiting and interference first."""
    by_name = grouped(runs, lambda run: short_name(run.kernel))
    costs = {name: fsum(run.waited_us + abs(run.sharing_us) for run in of) for name, of in by_name.items()}
    times = {name: [(run.solo_us, run.waited_us, run.sharing_us) for run in of] for name, of in by_name.items()}
    cells = {name: [number(fsum(us)) for us in zip(*of, strict=True)] for name, of in times.items()}
    return _named_table(by_name, costs, ("isolated", "waited", "sharing"), cells, title)


def _time_table(result: Result) -> Table:
    """Print the kernels that take most time, one row per name."""
    by_name = grouped(result.kernel_runs, lambda run: short_name(run.kernel))
    times = {name: fsum(run.solo_us + run.sharing_us for run in runs) for name, runs in by_name.items()}
    whole_us = fsum(times.values())
    cells = {name: [number(us), f"{100.0 * us / whole_us:.1f} %"] for name, us in times.items()}
    return _named_table(by_name, times, ("µs", "share"), cells, f"Kernels by time under {result.policy}")


def _named_table(
    by_name: dict[str, list[KernelRun]],
    merit: dict[str, float],
    titles: Sequence[str],
    cells: dict[str, list[str]],
    title: str,
) -> Table:
    """A row for each name of a kernel, most ``merit`` first: its launches, its ``cells``, what binds it most often."""
    names = sorted(by_name, key=lambda name: (-merit[name], name))[:MOST_KERNELS]
    rows = []
    for name, text in zip(names, told_apart(names, 32), strict=True):
        mostly = Counter(run.bound_by for run in by_name[name]).most_common(1)[0][0]
        rows.append([text, f"{len(by_name[name]):,}", *cells[name], BOUND_TITLES[mostly]])
    count = f", the first {len(names)} of {len(by_name)} names" if len(by_name) > len(names) else ""
    columns = [Column("kernel", narrow="cut"), *numbers("launches", *titles), Column("mostly bound by")]
    return columns, rows, title + count


# ---- printing


def _print(table: Table) -> None:
    columns, rows, title = table
    print()
    print_table(columns, rows, title, MOST_CHARACTERS)


def _print_by_policy(table: Table) -> None:
    """Print a table with one column per policy, in several parts where it is too wide."""
    columns, rows, title = table
    widths = [
        max(len(text) for text in (column.title, *cells))
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    first = 1
    while first < len(columns):
        last = first + max(1, columns_that_fit([widths[0], *widths[first:]], MOST_CHARACTERS) - 1)
        _print(([columns[0], *columns[first:last]], [[row[0], *row[first:last]] for row in rows], title))
        first = last


def _say(text: str) -> None:
    print_line(text, MOST_CHARACTERS)


def _say_left_out(count: int, what: str) -> None:
    if count > 0:
        _say(f"… and {count} more {what}: all of them, for every policy, with --out DIR")
