"""Replays for a trace viewer: tracks of slices that never overlap, counters, and what waits for what.

Each replay is a process. A stream is a track of its kernels, copies and host work, and of the times that its kernels
waited; an SM is a track of the kernels that had blocks there, from the first block's start to the last one's end. Where
several run at once, an SM's kernels or those that a library opened streams of its own for, they take a lane each, which
is a track. `gpusim.io.perfetto` and `gpusim.io.chrome_events` write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path

from gpusim.common.errors import InputError, one_line
from gpusim.common.files import atomic_write
from gpusim.common.tables import short_name
from gpusim.io import chrome_events, perfetto
from gpusim.io.tracks import Counter, Details, Process, Slice, Track
from gpusim.results.plots import in_words
from gpusim.results.runs import KernelRun, OperationRun, Replayed
from gpusim.trace.format import Trace

COUNTERS = {  # of `gpusim.results.runs.USES`, with what a viewer calls them
    "threads": "occupancy (threads)",
    "issue_slots": "issue slots",
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
}
FORMATS = (".pftrace", ".json")
DECIMALS = 3  # of the times and percentages that slices and counters tell


def save_timeline(path: str | Path, trace: Trace, *results: Replayed) -> None:
    """Write replays of a trace for a viewer such as ui.perfetto.dev; the same replays give the same bytes.

    Args:
        path: ends in ``.pftrace`` (Perfetto's own format) or ``.json`` (Chrome's, which most viewers read).
        trace: what was replayed: it says which operations wait for which.
        results: of `gpusim.replay`, with placements for the SMs' tracks.

    Raises:
        InputError: another ending, a file that cannot be written, or no package that writes Perfetto's format.
    """
    ending = timeline_format(path)
    processes = _processes(trace, results)
    writer = perfetto if ending == ".pftrace" else chrome_events
    with atomic_write(path, "wb") as file:
        file.writelines(writer.encoded(processes))


def timeline_format(path: str | Path) -> str:
    """Which of `FORMATS` the ending of a file says.

    Raises:
        InputError: none of them, or its package is not there.
    """
    ending = Path(path).suffix.lower()
    if ending not in FORMATS:
        raise InputError(path, "timeline", "cannot be written to", f"a file that ends in {' or '.join(FORMATS)}")
    if ending == ".pftrace":
        perfetto.require_package(path)
    return ending


def _processes(trace: Trace, results: Sequence[Replayed]) -> list[Process]:
    edges = [(before, op.id) for op in trace.operations() for before in op.depends_on]
    return [_process(result, edges, 1 + i * len(edges)) for i, result in enumerate(results)]


def _process(result: Replayed, edges: Sequence[tuple[str, str]], first: int) -> Process:
    leads_to: dict[str, tuple[int, ...]] = {}
    follows: dict[str, tuple[int, ...]] = {}
    for number, (before, after) in enumerate(edges, first):
        leads_to[before] = (*leads_to.get(before, ()), number)
        follows[after] = (*follows.get(after, ()), number)
    streams: dict[str, list[list[Slice]]] = {run.stream: [] for run in result.stream_runs}
    for (stream, operation, request), parts in _by_operation(result).items():
        groups = [_slices(part) for part in parts]
        if request == 0:
            ends = max(range(len(parts)), key=lambda i: parts[i].end_us)
            begins = min(range(len(parts)), key=lambda i: parts[i].start_us)
            groups[ends][-1] = groups[ends][-1]._replace(leads_to=leads_to.get(operation, ()))
            groups[begins][-1] = groups[begins][-1]._replace(follows=follows.get(operation, ()))
        streams[stream] += groups
    return Process(
        f"{in_words(one_line(result.policy))}: {one_line(result.trace)} on {one_line(result.gpu)}",
        tuple(track for name, groups in streams.items() for track in _lanes(one_line(name), groups)),
        tuple(track for sm, spans in enumerate(_on_sms(result)) for track in _lanes(f"SM {sm}", spans)),
        tuple(_counter(result, use) for use in COUNTERS if use not in result.usage.unknown),
    )


def _by_operation(result: Replayed) -> dict[tuple[str, str, int], list[KernelRun | OperationRun]]:
    """What each operation did: its kernels, or itself where it has none."""
    found: dict[tuple[str, str, int], list[KernelRun | OperationRun]] = {}
    for run in result.kernel_runs:
        found.setdefault((run.stream, run.operation, run.request), []).append(run)
    for op in result.operation_runs:
        found.setdefault((op.stream, op.operation, op.request), [op])
    return found


def _slices(run: KernelRun | OperationRun) -> list[Slice]:
    """A kernel, after the time that it waited; or an operation without kernels."""
    start, end = _ns(run.start_us), _ns(run.end_us)
    if isinstance(run, OperationRun):
        return [Slice(start, end, one_line(run.operation), {"kind": run.kind, "request": run.request})]
    name = one_line(short_name(run.kernel))
    details: Details = {
        "operation": one_line(run.operation),
        "kernel": one_line(run.kernel),
        "request": run.request,
        "blocks": run.blocks,
        "bound by": run.bound_by,
        "alone, us": round(run.solo_us, DECIMALS),
        "waited, us": round(run.waited_us, DECIMALS),
        "sharing, us": round(run.sharing_us, DECIMALS),
    }
    held_up = "waits" if run.waited_us > 0.0 else "launch latency"
    return [Slice(_ns(run.ready_us), start, held_up, {"kernel": name}), Slice(start, end, name, details)]


def _on_sms(result: Replayed) -> list[list[list[Slice]]]:
    """For each SM the kernels that had blocks there, from the first block's start to the last one's end."""
    found: list[list[list[Slice]]] = [[] for _ in range(len(result.usage.shares))]
    for row, (sms, blocks, starts, ends) in result.placements.launches:
        run = result.kernel_runs[row]
        name, operation = one_line(short_name(run.kernel)), one_line(run.operation)
        for sm, count, start, end in zip(sms, blocks, starts, ends, strict=True):
            details: Details = {"operation": operation, "blocks": count}
            found[sm].append([Slice(_ns(start), _ns(end), name, details)])
    return found


def _lanes(name: str, groups: Iterable[Sequence[Slice]]) -> Iterator[Track]:
    """Slices that stay together, on as few tracks as keep them from overlapping; at least one."""
    lanes: list[list[Slice]] = [[]]
    free: list[tuple[int, int]] = [(0, 0)]  # until when each lane is taken
    for group in sorted(groups, key=lambda group: (group[0].start_ns, group[-1].end_ns)):
        if free[0][0] <= group[0].start_ns:
            _, lane = heappop(free)
        else:
            lane = len(lanes)
            lanes.append([])
        lanes[lane] += group
        heappush(free, (group[-1].end_ns, lane))
    for number, slices in enumerate(lanes, 1):
        yield Track(name if number == 1 else f"{name} ({number})", tuple(slices))


def _counter(result: Replayed, use: str) -> Counter:
    end = _ns(result.makespan_us)
    shares = enumerate(result.usage.of_device(use))
    values = ((_ns(i * result.usage.bin_us), round(100.0 * share, DECIMALS)) for i, share in shares)
    return Counter(COUNTERS[use], (*((at, percent) for at, percent in values if at < end), (end, 0.0)))


def _ns(us: float) -> int:
    return round(us * 1e3)
