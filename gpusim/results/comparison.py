"""Compare policies on one trace: replay it, print the tables, write the results to a folder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from html import escape
from math import fsum, nan
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gpusim.common.files import whole_folder
from gpusim.common.progress import Step, no_step
from gpusim.common.spreadsheet import csv_text
from gpusim.common.tables import (
    Column,
    columns_that_fit,
    counted,
    json_text,
    number,
    print_line,
    print_table,
    short_name,
    shortened,
    told_apart,
)
from gpusim.hardware.gpu import GPU
from gpusim.results.error_band import HowWrong, band_text
from gpusim.results.gains import PARTS
from gpusim.results.metrics import (
    BASELINE,
    LATENCY_PERCENTILES,
    SHARING,
    latencies_us,
    metrics,
    normalised_progress,
    percentile,
    sharing,
    utilisation,
)
from gpusim.results.result import Result
from gpusim.results.runs import USES, KernelRun, ProgramRun, StreamRun, Usage
from gpusim.trace.format import Trace
from gpusim.trace.independent import waits_across_streams

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

JSON_VERSION = 1  # of what `as_json` gives
MOST_POLICIES = 6  # side by side in the tables of streams
MOST_STREAMS = 16
MOST_KERNELS = 12
KERNEL_COLUMNS = tuple(column.name for column in fields(KernelRun))
MOST_PLACED = 20_000  # launches, of which where their blocks ran is kept to tell how wrong an answer may be
ALONE = "one stream: there is nothing to share the GPU with"
DEPENDENT = "streams wait for one another, so what each takes beside the others counts that, too"


@dataclass(frozen=True)
class Entry:
    """One policy's result.

    Attributes:
        result: of the replay, streams run once.
        speedup_vs_serial: makespan of serial over its makespan.
        how_wrong: how far off the model was on measured co-runs of this kind, or why nobody knows.
        restarted: of the replay in which streams restart; None where it was not asked for, or a stream starved.
        notes: what a reader should know of both.
        gain_us: what each of `gpusim.results.gains.PARTS` contributes to the makespan that it saves over serial; None
            where placements were not kept.
    """

    result: Result
    speedup_vs_serial: float
    how_wrong: HowWrong
    restarted: Result | None = None
    notes: tuple[str, ...] = ()
    gain_us: Mapping[str, float] | None = None

    @property
    def sharing(self) -> dict[str, float | None]:
        """STP, ANTT and fairness of the streams that restart; None each where there is no such replay."""
        if self.restarted is None:
            return dict.fromkeys(SHARING)
        return {**sharing(normalised_progress(self.restarted))}


@dataclass(frozen=True)
class Comparison:
    """One trace on one GPU under several policies, best first.

    Attributes:
        trace: what was replayed.
        gpu: on what.
        entries: one a policy, the largest STP first where streams restart, else the least makespan.
        restart: whether they were replayed restarting, too.
        seed: of the jitter of blocks.
        recorded_on: the GPU of the recording, where the trace does not name it.
    """

    trace: Trace
    gpu: GPU
    entries: tuple[Entry, ...]
    restart: bool = False
    seed: int = 0
    recorded_on: GPU | None = None

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each policy, best first.

        Columns: ``policy``, ``makespan_us``, ``speedup`` over serial, ``model_error`` (mean absolute error in percent
        where co-runs of this kind were measured, else NaN), ``model_error_reason`` (why it is not known, else empty),
        and, where streams restart, ``stp``, ``antt`` and ``fairness``.
        """
        import pandas as pd

        rows = []
        for entry in self.entries:
            band, reason = entry.how_wrong
            rows.append(
                {
                    "policy": entry.result.policy,
                    "makespan_us": entry.result.makespan_us,
                    "speedup": entry.speedup_vs_serial,
                    **(entry.sharing if self.restart else {}),
                    "model_error": nan if band is None else band["mape_percent"],
                    "model_error_reason": reason,
                }
            )
        return pd.DataFrame(rows)

    def plot(self) -> Figure:
        """The makespans as bars, with the model's error where it is known: a matplotlib figure."""
        from gpusim.results.bars import PolicyBar, policies

        bars = [
            PolicyBar(entry.result.policy, entry.result.makespan_us, speedup_text(entry, self.trace), entry.how_wrong)
            for entry in self.entries
        ]
        return policies(f"{self.trace.name} on {self.gpu.name}", bars)

    def _repr_html_(self) -> str:
        """The table and the notes, for a notebook."""
        notes = "".join(f"<li>{escape(note)}</li>" for note in notes_told(self))
        return f"<p>{escape(self.trace.name)} on {escape(self.gpu.name)}</p>{self.table.to_html()}<ul>{notes}</ul>"

    def noted(self, note: str) -> Comparison:
        """The same with one more note on every result."""
        entries = (replace(entry, notes=(note, *entry.notes)) for entry in self.entries)
        return replace(self, entries=tuple(entries))


def merit(entry: Entry) -> tuple[float, float]:
    """The less, the better."""
    return -round(entry.sharing["stp"] or 0.0, 9), round(entry.result.makespan_us, 6)


def as_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison as `gpusim replay --json` prints it."""
    recorded_on = comparison.recorded_on
    return {
        "version": JSON_VERSION,
        "trace": comparison.trace.name,
        "gpu": comparison.gpu.name,
        "recorded_on": comparison.trace.device if recorded_on is None else recorded_on.name,
        "seed": comparison.seed,
        "results": [_entry_json(entry) for entry in comparison.entries],
    }


def _entry_json(entry: Entry) -> dict[str, Any]:
    result = entry.result
    return {
        "policy": result.policy,
        "makespan_us": result.makespan_us,
        "speedup_vs_serial": entry.speedup_vs_serial,
        "gain_us": entry.gain_us,
        **entry.sharing,
        "error_band": entry.how_wrong.band,
        "error_band_reason": entry.how_wrong.reason or None,
        "streams": {run.stream: {"start_us": run.start_us, "end_us": run.end_us} for run in result.stream_runs},
        "programs": {
            run.program: {
                "start_us": run.start_us,
                "end_us": run.end_us,
                "slowdown": run.slowdown,
                "streams": list(run.streams),
            }
            for run in result.program_runs
        },
        "slowdowns": {run.stream: run.slowdown for run in result.stream_runs},
        "utilisation": utilisation(result),
        "notes": list(entry.notes),
        "kernels": [{name: getattr(run, name) for name in KERNEL_COLUMNS} for run in result.kernel_runs],
    }


# ---- on the terminal


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
    for note in notes_told(comparison):
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
    if shown[0].has_programs and len(shown[0].program_runs) > 1:
        _print_by_policy(*_program_table(shown))
        _print_left_out(len(shown[0].program_runs) - MOST_STREAMS, "programs")
    _print_by_policy(*_stream_table(shown))
    _print_left_out(len(comparison.entries) - len(shown), "policies")
    _print_left_out(len(shown[0].stream_runs) - MOST_STREAMS, "streams")


def shares_nothing(trace: Trace) -> bool:
    """Whether all kernels are in one line, so that policies have nothing to share the GPU between."""
    streams = [stream for stream in trace.streams if stream.operations]
    return len(streams) < 2 and all(launch.stream == "main" for launch in trace.launches())


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


def notes_told(comparison: Comparison) -> list[str]:
    """What a reader should know: each note once; one that is not every policy's begins with the policies."""
    owners: dict[str, list[str]] = {}
    for entry in comparison.entries:
        for note in entry.notes:
            owners.setdefault(note, []).append(entry.result.policy)
    every = len(comparison.entries)
    notes = [note if len(o) == every else f"{', '.join(o)}: {note}" for note, o in owners.items()]
    if comparison.seed:
        notes.insert(0, f"seed {comparison.seed}: the jitter of blocks is another than fitted to the recording")
    of_trace = {ALONE: shares_nothing(comparison.trace), DEPENDENT: waits_across_streams(comparison.trace)}
    return [*(note for note, holds in of_trace.items() if holds), *notes]


def _policy_table(comparison: Comparison) -> tuple[list[Column], list[list[str]]]:
    titles = ("makespan us", "speedup", *(("STP", "ANTT", "fairness") if comparison.restart else ()))
    rows = []
    for entry in comparison.entries:
        found = entry.sharing.values() if comparison.restart else ()
        rows.append(
            [
                entry.result.policy,
                number(entry.result.makespan_us),
                speedup_text(entry, comparison.trace),
                *("" if value is None else number(value, 3) for value in found),
                band_text(entry.how_wrong, comparison.trace, comparison.gpu, comparison.recorded_on),
            ]
        )
    numbers = (Column(title, right=True) for title in titles)
    return [Column("policy", narrow="break"), *numbers, Column("how wrong", narrow="break")], rows


def speedup_text(entry: Entry, trace: Trace) -> str:
    """A speedup over serial, marked where it rests on an order that is not known."""
    return f"{number(entry.speedup_vs_serial, 3)}x{speedup_mark(entry, trace)}"


def speedup_mark(entry: Entry, trace: Trace) -> str:
    """A star behind a speedup over serial that rests on an order between streams which was not recorded."""
    return "" if trace.order is None or entry.result.policy == BASELINE else "*"


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


# ---- in a folder


def write_comparison(
    comparison: Comparison, folder: str | Path, step: Step = no_step, more: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Writes results.json, and a folder a policy with its tables (CSV) and pictures (PNG); all of it or nothing.

    Args:
        comparison: with placements.
        folder: a new one.
        step: told the name of each step before it.
        more: texts of other files beside results.json, by name.

    Raises:
        InputError: the folder exists and is not empty, or cannot be written.
    """
    with whole_folder(folder) as root:
        names = folder_names([entry.result.policy for entry in comparison.entries])
        content = as_json(comparison)
        for entry, name, row in zip(comparison.entries, names, content["results"], strict=True):
            step(f"drawing {entry.result.policy}")
            (root / name).mkdir()
            _write_result(entry.result, root / name)
            if entry.restarted is not None:
                _write_restarted(entry.restarted, root / name / "restart.csv")
            row |= {"folder": name, "metrics": metrics(entry.result)}
            del row["kernels"]  # a table of their own
        for name, text in more.items():
            (root / name).write_text(text, encoding="utf-8")
        (root / "results.json").write_text(json_text(content) + "\n", encoding="utf-8")


def folder_names(policies: Sequence[str]) -> list[str]:
    """A distinct folder name for each policy."""
    names: list[str] = []
    for policy in policies:
        name = re.sub(r"[^A-Za-z0-9=+.,_-]+", "_", policy).strip("._") or "policy"
        taken = [other for other in names if other == name or re.fullmatch(re.escape(name) + r"~\d+", other)]
        names.append(f"{name}~{len(taken) + 1}" if taken else name)
    return names


def _write_result(result: Result, folder: Path) -> None:
    from gpusim.results.plots import gantt, save_figure, usage

    rows = ([getattr(run, name) for name in KERNEL_COLUMNS] for run in result.kernel_runs)
    _write_csv(folder / "kernels.csv", KERNEL_COLUMNS, rows)
    stream_columns = [*(column.name for column in fields(StreamRun)), "slowdown"]
    rows = ([getattr(run, name) for name in stream_columns] for run in result.stream_runs)
    _write_csv(folder / "streams.csv", stream_columns, rows)
    if result.has_programs:
        program_columns = [*(column.name for column in fields(ProgramRun) if column.name != "streams"), "slowdown"]
        rows = ([getattr(run, name) for name in program_columns] for run in result.program_runs)
        _write_csv(folder / "programs.csv", program_columns, rows)
    _write_csv(folder / "usage.csv", ["sm", "start_us", "end_us", *USES], _usage_rows(result))
    save_figure(gantt(result), folder / "gantt.png")
    save_figure(usage(result), folder / "usage.png")


def _write_restarted(result: Result, path: Path) -> None:
    passes, progress = result.passes or {}, normalised_progress(result)
    rows = ([name, result.makespan_us, count, progress[name]] for name, count in passes.items())
    _write_csv(path, ["program", "until_us", "passes", "normalised_progress"], rows)


def _usage_rows(result: Result) -> Iterable[list[object]]:
    """The device (mean over the SMs) and then each SM, bin by bin; shares from 0 to 1, blank where unknown."""
    usage = result.usage
    sms = len(usage.shares)
    bins = len(usage.shares[0]) if sms else 0
    for b, means in enumerate(zip(*(usage.of_device(use) for use in USES), strict=True)):
        yield ["device", b * usage.bin_us, (b + 1) * usage.bin_us, *_share_cells(means, usage)]
    for sm in range(sms):
        for b in range(bins):
            yield [sm, b * usage.bin_us, (b + 1) * usage.bin_us, *_share_cells(usage.shares[sm][b], usage)]


def _share_cells(shares: Sequence[float], usage: Usage) -> list[str]:
    return ["" if use in usage.unknown else f"{share:.6g}" for use, share in zip(USES, shares, strict=True)]


def _write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(csv_text(columns, rows))
