"""Output of `gpusim trace show`: the content of a trace as data, and on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import fsum
from shutil import get_terminal_size
from typing import Any

from gpusim.common.tables import (
    Column,
    grouped,
    number,
    numbers,
    picked,
    print_line,
    print_rows,
    print_table,
    told_apart,
)
from gpusim.hardware.gpu import GPU
from gpusim.model.launchable import launch_occupancy
from gpusim.trace.format import Trace
from gpusim.trace.kernels import DRAM_COUNTERS, KernelLaunch
from gpusim.trace.operations import Copy

JSON_VERSION = 1
MOST_KERNELS = 20  # in the table
NAME_WIDTH = 60  # of a kernel where no terminal is wider


def as_json(trace: Trace, gpu: GPU | None) -> dict[str, Any]:
    """Programs, streams and kernels of a trace; without a GPU, as of one that does not ship, no occupancy."""
    streams, by_name = {stream.name: stream for stream in trace.streams}, _by_name(trace)
    return {
        "version": JSON_VERSION,
        "trace": trace.name,
        **picked(trace, "device", "stands_for", "order"),
        "notes": trace.notes.splitlines(),
        "gpu": None if gpu is None else gpu.name,
        "programs": [
            {
                "name": program.name,
                "streams": list(program.streams),
                "priority": program.priority,
                "requests": 1 if program.arrivals is None else program.arrivals.requests,
                **_kernels(one for name in program.streams for op in streams[name].operations for one in op.launches()),
            }
            for program in trace.programs
        ],
        "streams": [
            {
                "name": stream.name,
                "operations": len(stream.operations),
                "waits": sum(len(operation.depends_on) for operation in stream.operations),
                **_kernels(one for operation in stream.operations for one in operation.launches()),
            }
            for stream in trace.streams
        ],
        "kernels": [
            {"name": name, **_kernels(of), **_occupancy(of, gpu)}
            for name, of in sorted(by_name.items(), key=lambda item: -fsum(one.duration_us for one in item[1]))
        ],
    }


def _by_name(trace: Trace) -> dict[str, list[KernelLaunch]]:
    launches = (launch for operation in trace.operations() for launch in operation.launches())
    return grouped(launches, lambda launch: launch.name)


def _kernels(launches: Iterable[KernelLaunch]) -> dict[str, Any]:
    known = list(launches)
    return {
        "launches": len(known),
        "kernels_us": fsum(one.duration_us for one in known),
        "estimated": sum(one.estimated for one in known),
    }


def _occupancy(launches: list[KernelLaunch], gpu: GPU | None) -> dict[str, Any]:
    """Return the occupancy of the longest launch."""
    longest = max(launches, key=lambda one: one.duration_us)
    found: dict[str, Any] = {"grid": list(longest.grid), "block": list(longest.block)}
    fit = None if gpu is None else launch_occupancy(longest, gpu)
    return found | {"blocks_per_sm": fit and fit.blocks_per_sm, "limiter": fit and fit.limiter}


# ---- on the terminal


def print_trace(trace: Trace, gpu: GPU | None) -> None:
    """Print what `gpusim trace show` prints below its first line; arguments as of `as_json`."""
    content = as_json(trace, gpu)
    for line in content["notes"]:
        print_line(f"  {line}")
    print()
    if trace.names_programs():
        columns = [
            (Column("program", narrow="break"), lambda one: one["name"]),
            (Column("streams", right=True), lambda one: str(len(one["streams"]))),
            (Column("kernels", right=True), lambda one: str(one["launches"])),
            (Column("kernels µs", right=True), lambda one: number(one["kernels_us"])),
            (Column("priority", right=True), lambda one: "mixed" if one["priority"] is None else str(one["priority"])),
            (Column("requests", right=True), lambda one: str(one["requests"])),
        ]
        print_rows(content["programs"], columns)
        print()
    _show_streams(trace, content["streams"])
    print()
    _show_kernels(trace, gpu)


def _show_streams(trace: Trace, known: Sequence[Mapping[str, Any]]) -> None:
    rows = []
    for stream, of in zip(trace.streams, known, strict=True):
        copied = sum(operation.bytes for operation in stream.operations if isinstance(operation, Copy))
        moved = _moved_mb([launch for operation in stream.operations for launch in operation.launches()])
        counts = (str(of["operations"]), str(of["launches"]), number(of["kernels_us"]), moved, number(copied / 1e6))
        rows.append((stream.name, *counts, str(of["waits"]), str(of["estimated"])))
    titles = ("operations", "kernels", "kernels µs", "DRAM MB", "copied MB", "waits", "estimated")
    print_table([Column("stream", narrow="break"), *numbers(*titles)], rows)


def _show_kernels(trace: Trace, gpu: GPU | None) -> None:
    by_name = _by_name(trace)
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
    fits = ((launch_occupancy(launch, gpu), launch.registers_per_thread == 0) for launch in launches)
    seen = Counter((fit.blocks_per_sm, fit.limiter, unknown) for fit, unknown in fits)
    (blocks, limiter, unknown), count = seen.most_common(1)[0]
    text = f"at most {blocks}, registers unknown" if unknown else f"{blocks}, {limiter.replace('_', ' ')}"
    return text + ("" if count == len(launches) else " (most)")


def _demand(launches: list[KernelLaunch]) -> str:
    """Counters that all launches of a kernel have, and how many launches have an estimate instead."""
    estimated = sum(launch.estimated for launch in launches)
    if estimated == len(launches):
        return "estimated"
    lacking = [launch.uncounted for launch in launches if launch.uncounted and not launch.estimated]
    some = "" if len(lacking) == len(launches) else f" ({len(lacking)} of {len(launches)} launches)"
    names = ", ".join(dict.fromkeys(name for names in lacking for name in names))
    text = f"partly, without {names}{some}" if lacking else "counted"
    return text + (f"; {estimated} of {len(launches)} estimated" if estimated else "")


def _moved_mb(launches: list[KernelLaunch]) -> str:
    """DRAM traffic of kernels, reads and writes, MB; a lower bound where some have no counters."""
    counted = [(launch.blocks, getattr(launch.mix, counter, None)) for launch in launches for counter in DRAM_COUNTERS]
    moved = [blocks * of_block for blocks, of_block in counted if of_block is not None]
    if launches and not moved:
        return "unknown"
    return ("> " if len(moved) < len(DRAM_COUNTERS) * len(launches) else "") + number(fsum(moved) / 1e6)
