"""What `gpusim replay` prints of a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import fsum

from gpusim.common.tables import (
    Column,
    columns_that_fit,
    counted,
    number,
    print_line,
    print_table,
    short_name,
    shortened,
    told_apart,
)
from gpusim.results.comparison import Comparison, Entry
from gpusim.results.gains import PARTS
from gpusim.results.metrics import BASELINE, LATENCY_PERCENTILES, latencies_us, percentile
from gpusim.results.result import Result
from gpusim.results.runs import KernelRun, ProgramRun, StreamRun
from gpusim.trace.independent import shares_nothing

MOST_POLICIES = 6  # side by side in the tables of streams
MOST_STREAMS = 16
MOST_KERNELS = 12


def print_comparison(comparison: Comparison) -> None:
    """Prints the tables: policies, programs, streams, latencies of requests, and kernels of the best policy."""
    trace, gpu = comparison.trace, comparison.gpu
    best = comparison.entries[0].result
    programs = f"{counted(len(trace.programs), 'program')}, " if trace.names_programs() else ""
    print_line(
        f"{trace.name} on {gpu.name} ({gpu.title}): "
        f"{programs}{counted(len(trace.streams), 'stream')}, {counted(len(best.operation_runs), 'operation')}, "
        f"{counted(len(best.kernel_runs), 'kernel')}"
    )
    for note in comparison.notes:
        print_line(f"note: {note}")
    print()
    print_table(*_policy_table(comparison))
    shown = [entry.result for entry in comparison.entries[:MOST_POLICIES]]
    alone = shares_nothing(trace)
    if not alone:
        _print_sharing(comparison, shown)
    if latencies_us(best):
        _print_by_policy(*_latency_table(shown))
    if best.kernel_runs:
        print()
        print_table(*(_time_table(best) if alone else _kernel_table(best)))
        if not alone:
            _print_left_out(len(best.kernel_runs) - MOST_KERNELS, "kernels")


def _print_sharing(comparison: Comparison, shown: Sequence[Result]) -> None:
    """Prints where policies save time, and when streams ran."""
    explained = [entry for entry in comparison.entries if entry.gain_us and entry.result.policy != BASELINE]
    if explained:
        print()
        print_table(*_gain_table(explained))
    if shown[0].has_programs:
        _print_by_policy(*_program_table(shown))
        _print_left_out(len(shown[0].program_runs) - MOST_STREAMS, "programs")
    _print_by_policy(*_stream_table(shown))
    _print_left_out(len(comparison.entries) - len(shown), "policies")
    _print_left_out(len(shown[0].stream_runs) - MOST_STREAMS, "streams")


def _print_by_policy(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    """Prints a table with one column per policy, in several parts where the terminal is too narrow."""
    widths = [
        max(len(text) for text in (column.title, *cells))
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True)
    ]
    first = 1
    while first < len(columns):
        last = first + max(1, columns_that_fit([widths[0], *widths[first:]]) - 1)
        print()
        print_table([columns[0], *columns[first:last]], [[row[0], *row[first:last]] for row in rows], title)
        first = last


def _policy_table(comparison: Comparison) -> tuple[list[Column], list[list[str]]]:
    titles = ("makespan us", "speedup", *(("STP", "ANTT", "fairness") if comparison.restart else ()))
    rows = []
    for entry in comparison.entries:
        found = entry.sharing.values() if comparison.restart else ()
        rows.append(
            [
                entry.result.policy,
                number(entry.result.makespan_us),
                entry.speedup,
                *("" if value is None else number(value, 3) for value in found),
                entry.how_wrong.text,
            ]
        )
    numbers = (Column(title, right=True) for title in titles)
    return [Column("policy", narrow="break"), *numbers, Column("how wrong", narrow="break")], rows


def _gain_table(entries: Sequence[Entry]) -> tuple[list[Column], list[list[str]], str]:
    rows = []
    for entry in entries:
        parts = entry.gain_us or {}
        rows.append([entry.result.policy, *(number(us) for us in (fsum(parts.values()), *parts.values()))])
    numbers = (Column(title, right=True) for title in ("saved", *PARTS))
    return [Column("policy", narrow="break"), *numbers], rows, "Makespan saved over serial, and where, us"


def _stream_table(results: Sequence[Result]) -> tuple[list[Column], list[list[str]], str]:
    streams = sorted(results[0].stream_runs, key=lambda run: -run.end_us)[:MOST_STREAMS]
    spans = [{run.stream: _span_text(run) for run in r.stream_runs} for r in results]
    rows = [[run.stream, *(span[run.stream] for span in spans)] for run in streams]
    columns = [Column("stream"), *(Column(result.policy, right=True) for result in results)]
    return columns, rows, "Start and end of each stream, us, and its slowdown"


def _program_table(results: Sequence[Result]) -> tuple[list[Column], list[list[str]], str]:
    programs = sorted(results[0].program_runs, key=lambda run: -run.end_us)[:MOST_STREAMS]
    spans = [{run.program: _span_text(run) for run in r.program_runs} for r in results]
    rows = [[run.program, *(span[run.program] for span in spans)] for run in programs]
    columns = [Column("program"), *(Column(result.policy, right=True) for result in results)]
    return columns, rows, "Start and end of each program, us, and its slowdown"


def _span_text(run: StreamRun | ProgramRun) -> str:
    return f"{number(run.start_us)} – {number(run.end_us)}  {number(run.slowdown, 2)}x"


def _latency_table(results: Sequence[Result]) -> tuple[list[Column], list[list[str]], str]:
    found = [latencies_us(result) for result in results]
    rows = [
        [program, *(" / ".join(number(percentile(f[program], p)) for p in LATENCY_PERCENTILES) for f in found)]
        for program in list(found[0])[:MOST_STREAMS]
    ]
    columns = [Column("program"), *(Column(result.policy, right=True) for result in results)]
    return columns, rows, "Latency of requests, us: " + " / ".join(f"p{p}" for p in LATENCY_PERCENTILES)


def _kernel_table(result: Result) -> tuple[list[Column], list[list[str]], str]:
    costly = sorted(result.kernel_runs, key=lambda run: -(run.waited_us + abs(run.sharing_us)))[:MOST_KERNELS]
    rows = [
        [
            run.operation,
            shortened(short_name(run.kernel), 32),
            number(run.start_us),
            number(run.end_us),
            number(run.solo_us),
            number(run.waited_us),
            number(run.sharing_us),
            run.bound_by,
        ]
        for run in sorted(costly, key=lambda run: (run.start_us, run.ready_us))
    ]
    numbers = (Column(title, right=True) for title in ("start", "end", "alone", "waited", "sharing"))
    columns = [Column("operation", narrow="break"), Column("kernel", narrow="cut"), *numbers, Column("bound by")]
    return columns, rows, f"What waiting and sharing cost each kernel under {result.policy}, us"


def _time_table(result: Result) -> tuple[list[Column], list[list[str]], str]:
    """The kernels that take most time, those of one name together."""
    by_name: dict[str, list[KernelRun]] = {}
    for run in result.kernel_runs:
        by_name.setdefault(short_name(run.kernel), []).append(run)
    times = {name: fsum(run.end_us - run.start_us for run in runs) for name, runs in by_name.items()}
    whole_us = fsum(times.values())
    shown = sorted(by_name, key=lambda name: (-times[name], name))[:MOST_KERNELS]
    rows = [
        [
            text,
            f"{len(by_name[name]):,}",
            number(times[name]),
            f"{100.0 * times[name] / whole_us:.1f} %",
            Counter(run.bound_by for run in by_name[name]).most_common(1)[0][0],
        ]
        for name, text in zip(shown, told_apart(shown, 60), strict=True)
    ]
    numbers = (Column(title, right=True) for title in ("launches", "us", "share"))
    columns = [Column("kernel", narrow="cut"), *numbers, Column("mostly bound by")]
    count = f", the first {MOST_KERNELS} of {len(by_name)}" if len(by_name) > MOST_KERNELS else ""
    return columns, rows, f"Kernels by time under {result.policy}{count}"


def _print_left_out(count: int, what: str) -> None:
    if count > 0:
        print(f"… and {count} more {what}: all of them, for every policy, with --out DIR")
