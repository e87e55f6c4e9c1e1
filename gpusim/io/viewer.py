"""Replays for a trace viewer: tracks of slices that do not overlap, counters, and dependencies.

Each replay is a process. A stream is a track of its kernels, their waits, copies and host work, named after its program
and itself. An SM is a track of the kernels that had blocks there, from the start of the first block to the end of the
last. Kernels that overlap on an SM, or on streams that a library opened, take one lane each, which is a track.
`gpusim.io.perfetto` and `gpusim.io.chrome_events` write the files.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappush, heapreplace
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.common.errors import InputError, one_line, quote
from gpusim.common.files import atomic_write, path_of
from gpusim.common.tables import short_name
from gpusim.hardware.gpu import gpu_names, load_gpu
from gpusim.io import chrome_events, perfetto
from gpusim.io.tracks import Counter, Details, Kineto, Label, Process, Slice, Track
from gpusim.results.runs import KernelRun, OperationRun, Replayed
from gpusim.results.style import in_words
from gpusim.trace.file import trace_of
from gpusim.trace.format import Trace
from gpusim.trace.operations import Copy

COUNTERS = {  # of `gpusim.results.runs.USES`: the name in a viewer
    "threads": "occupancy (threads)",
    "issue_slots": "issue slots",
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
}
FORMATS = (".pftrace", ".json")
FIRST_STREAM = 7  # the number of PyTorch's first stream
COPIES = {  # names that profilers give them
    "h2d": "Memcpy HtoD ({host} -> Device)",
    "d2h": "Memcpy DtoH (Device -> {host})",
    "d2d": "Memcpy DtoD (Device -> Device)",
    "p2p": "Memcpy PtoP (Device -> Device)",
    "memset": "Memset (Device)",
}
DECIMALS = 3  # of the times and percentages that slices and counters tell


def save_timeline(path: str | Path, trace: Trace | str | Path, *results: Replayed) -> None:
    """Write replays of a trace for a viewer such as ui.perfetto.dev; the same replays give the same bytes.

    Args:
        path: ends in ``.pftrace`` (Perfetto's own format) or ``.json`` (Chrome's, which most viewers read).
        trace: the replayed trace, or the path of its file; it has the dependencies.
        results: of `gpusim.replay`, with placements for the SMs' tracks.

    Raises:
        InputError: another ending, or a file that cannot be written.
    """
    ending = timeline_format(path)
    of = trace_of(trace)
    known = {operation.id for operation in of.operations()}
    if not results:
        raise InputError(None, "results", "there is none", "results of gpusim.replay")
    for one in results:
        if not isinstance(one, Replayed):
            raise InputError(None, "results", f"holds {quote(one)}", "results of gpusim.replay")
        if strange := next((run.operation for run in one.operation_runs if run.operation not in known), ""):
            raise InputError(None, "results", f"has operation {quote(strange)}", f"a replay of trace {quote(of.name)}")
    edges = [(before, op.id) for op in of.operations() for before in op.depends_on]
    work = _GPUWork(of)
    processes = (_process(result, edges, 1 + i * len(edges), work) for i, result in enumerate(results))
    writer = perfetto if ending == ".pftrace" else chrome_events
    with atomic_write(path, "wb") as file:
        file.writelines(writer.encoded(processes))


def timeline_format(path: str | Path) -> str:
    """Which of `FORMATS` the ending of a file says."""
    ending = path_of(path, "timeline").suffix.lower()
    if ending not in FORMATS:
        raise InputError(path, "timeline", "cannot be written to", f"a file that ends in {' or '.join(FORMATS)}")
    return ending


class _GPUWork:
    """Kernels and copies of a trace, as PyTorch's profiler would write them."""

    def __init__(self, trace: Trace) -> None:
        self._operations = {op.id: op for op in trace.operations()}
        self._streams = {stream.name: number for number, stream in enumerate(trace.streams, FIRST_STREAM)}
        self._correlation = 0

    def of(self, run: KernelRun | OperationRun) -> Kineto | None:
        """Category and arguments; None of the host's work."""
        operation = self._operations.get(run.operation)
        self._correlation += 1
        where: Kineto = {"stream": self._streams.get(run.stream, 0), "correlation": self._correlation}
        if isinstance(run, KernelRun) and operation is not None:
            launch = operation.launches()[run.index]
            return {
                "cat": "kernel",
                **where,
                "grid": list(launch.grid),
                "block": list(launch.block),
                "registers per thread": launch.registers_per_thread,
                "shared memory": launch.shared_memory_per_block_bytes,
            }
        if isinstance(operation, Copy):
            ends = COPIES[operation.direction].format(host=operation.memory.capitalize())
            category = "gpu_memset" if operation.direction == "memset" else "gpu_memcpy"
            return {"cat": category, **where, "bytes": operation.bytes, "copy": ends}
        return None


def _process(result: Replayed, edges: Sequence[tuple[str, str]], first: int, work: _GPUWork) -> Process:
    return Process(
        f"{in_words(one_line(result.policy))}: {one_line(result.trace)} on {one_line(result.gpu)}",
        _streams(result, edges, first, work),
        _on_sms(result),
        tuple(_counter(result, use) for use in COUNTERS if use not in result.usage.unknown),
        one_line(load_gpu(result.gpu).title if result.gpu in gpu_names() else result.gpu),
        result.usage.sms,
    )


def _streams(result: Replayed, edges: Sequence[tuple[str, str]], first: int, work: _GPUWork) -> Iterator[Track]:
    """Yield the tracks of each stream: its kernels, copies and host work."""
    leads_to: dict[str, list[int]] = {}
    follows: dict[str, list[int]] = {}
    for number, (before, after) in enumerate(edges, first):
        leads_to.setdefault(before, []).append(number)
        follows.setdefault(after, []).append(number)
    titles = result.stream_titles
    for name, operations in _by_operation(result).items():
        groups: list[list[Slice]] = []
        for (operation, request), parts in operations.items():
            made = [_slices(part, work) for part in parts]
            if request == 0:
                ends = max(range(len(parts)), key=lambda i: parts[i].end_us)
                begins = min(range(len(parts)), key=lambda i: parts[i].start_us)
                made[ends][-1] = made[ends][-1]._replace(leads_to=leads_to.get(operation, ()))
                made[begins][-1] = made[begins][-1]._replace(follows=follows.get(operation, ()))
            groups += made
        groups.sort(key=lambda group: (group[0].start_ns, group[-1].end_ns))
        lanes: dict[int, list[Slice]] = {0: []}
        for lane, group in zip(_lanes((group[0].start_ns, group[-1].end_ns) for group in groups), groups, strict=True):
            lanes.setdefault(lane, []).extend(group)
        for lane, slices in lanes.items():
            yield Track(_lane_name(one_line(titles[name]), lane), slices)


def _by_operation(result: Replayed) -> dict[str, dict[tuple[str, int], list[KernelRun | OperationRun]]]:
    """Return the runs of each operation of each stream: its kernels, or itself where it has none."""
    found: dict[str, dict[tuple[str, int], list[KernelRun | OperationRun]]]
    found = {run.stream: {} for run in result.stream_runs}
    for run in result.kernel_runs:
        found[run.stream].setdefault((run.operation, run.request), []).append(run)
    for op in result.operation_runs:
        found[op.stream].setdefault((op.operation, op.request), [op])
    return found


def _slices(run: KernelRun | OperationRun, work: _GPUWork) -> list[Slice]:
    """A kernel, after the time that it waited; or an operation without kernels."""
    start, end = _ns(run.start_us), _ns(run.end_us)
    if isinstance(run, OperationRun):
        name = one_line(run.operation)
        details: Details = {"kind": run.kind, "request": run.request}
        kineto = work.of(run)
        if kineto is None:
            return [Slice(start, end, Label(name, details))]
        return [Slice(start, end, Label(str(kineto["copy"]), {"operation": name, **details}, kineto))]
    name = one_line(short_name(run.kernel))
    details = {
        "operation": one_line(run.operation),
        "kernel": one_line(run.kernel),
        "request": run.request,
        "blocks": run.blocks,
        "bound by": run.bound_by,
        "isolated, us": round(run.solo_us, DECIMALS),
        "waited, us": round(run.waited_us, DECIMALS),
        "sharing, us": round(run.sharing_us, DECIMALS),
    }
    held_up = "waits" if run.waited_us > 0.0 else "launch latency"
    return [
        Slice(_ns(run.ready_us), start, Label(held_up, {"kernel": name})),
        Slice(start, end, Label(name, details, work.of(run))),
    ]


def _on_sms(result: Replayed) -> Iterator[Track]:
    """Yield the tracks of each SM: kernels with blocks there, from the first block's start to the last one's end.

    Slices of all SMs at once would take gigabytes. What they are made of is therefore kept in columns.
    """
    counts = np.zeros(result.usage.sms, np.int64)
    for _, (sms, *_) in result.placements.launches:
        counts[sms] += 1
    *begins, count = accumulate(counts.tolist(), initial=0)  # how many slices there are on the SMs before each
    starts, ends = np.empty(count, np.int64), np.empty(count, np.int64)
    numbers = np.empty(count, np.int32)  # of labels
    labels: list[Label] = []
    free = np.array(begins)
    for row, (sms, blocks, starts_us, ends_us) in result.placements.launches:
        run = result.kernel_runs[row]
        name, operation = one_line(short_name(run.kernel)), one_line(run.operation)
        number = {}
        for different in dict.fromkeys(blocks):
            number[different] = len(labels)
            labels.append(Label(name, {"operation": operation, "blocks": different}))
        places = free[sms]
        starts[places], ends[places] = _all_ns(starts_us), _all_ns(ends_us)
        numbers[places] = [number[here] for here in blocks]
        free[sms] += 1
    for sm, (begin, end) in enumerate(zip(begins, free.tolist(), strict=True)):
        in_time = begin + np.lexsort((ends[begin:end], starts[begin:end]))
        lanes = np.array(list(_lanes(zip(starts[in_time].tolist(), ends[in_time].tolist(), strict=True))), np.int64)
        for lane in range(1 + lanes.max(initial=0)):
            here = in_time[lanes == lane]
            columns = starts[here].tolist(), ends[here].tolist(), numbers[here].tolist()
            rows = zip(*columns, strict=True)
            yield Track(
                _lane_name(f"SM {sm}", lane), (Slice(start, stop, labels[number]) for start, stop, number in rows)
            )


def _lanes(spans: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield the lane of each span, in ascending order; on a lane none overlap, and there are as few lanes as can be."""
    free: list[tuple[int, int]] = [(0, 0)]  # until when each lane is taken
    for start, end in spans:
        if free[0][0] <= start:
            lane = free[0][1]
            heapreplace(free, (end, lane))
        else:
            lane = len(free)
            heappush(free, (end, lane))
        yield lane


def _lane_name(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name


def _counter(result: Replayed, use: str) -> Counter:
    end = _ns(result.makespan_us)
    shares = enumerate(result.usage.of_device(use))
    values = ((_ns(i * result.usage.bin_us), round(100.0 * share, DECIMALS)) for i, share in shares)
    return Counter(COUNTERS[use], (*((at, percent) for at, percent in values if at < end), (end, 0.0)))


def _ns(us: float) -> int:
    return round(us * 1e3)


def _all_ns(us: array[float]) -> npt.NDArray[np.int64]:
    return np.rint(np.frombuffer(us) * 1e3).astype(np.int64)
