"""Outcomes that `gpusim validate` scores: the calls of a recording on some SMs, in pairs, and in streams.

The conditions follow from the recording. Every convolution runs on several numbers of SMs, and those of one kernel with
reserved shared memory. Independent convolutions run in pairs and with quotas. The branches between a fork and a join
of the network run in streams. Long lists are thinned evenly.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write
from gpusim.common.progress import tracked
from gpusim.common.tables import counted
from gpusim.lab.record.calls import Call
from gpusim.lab.record.program import BuiltProgram
from gpusim.lab.record.recording import Recording, Row
from gpusim.lab.record.shapes import Subject
from gpusim.training.networks.network import INPUT, Network
from gpusim.training.networks.steps import CONVOLUTION, CallWork, Step

T = TypeVar("T")

MOST = 60  # conditions of an experiment
QUEUE_MS = 0.5  # that a queue of a pair lasts about
MOST_IN_QUEUE = 10
RELEASED_MS = 0.06  # after a's start: see quota in outcomes.cuh
LIMITS = ("blocks", "registers", "shared_mem", "warps")


def measure_outcomes(
    recording: Recording, program: BuiltProgram, wanted: Subject, calls: Sequence[Call]
) -> Iterator[str]:
    """Measure the experiments whose files are missing; yield a line of progress for each."""
    fastest = {
        found[0].work: found[0]
        for found in recording.ranked(calls)
        if found[0].work.kind == CONVOLUTION and recording.kernels(found[0])
    }
    independent = list(_independent(wanted.steps, fastest))
    conditions: dict[str, Iterable[str]] = {
        "sm_curve": (call.op for call in fastest.values()),
        "residency": _residencies(recording, fastest.values()),
        "pairs": _pairs(recording, independent),
        "quota": _quotas(recording, independent),
        "modules": _modules(wanted.network, wanted.steps, fastest),
    }
    for experiment, listed in conditions.items():
        path = recording.folder / f"{experiment}{'_curve' * (experiment == 'residency')}.csv"
        if path.is_file():
            continue
        lines = thinned(list(listed))
        if not lines:
            yield f"{path}: nothing here to measure"
            continue
        printed = program.lines(experiment, list(fastest.values()), *lines)
        rows = list(csv.reader(tracked(printed, len(lines), experiment)))
        if not rows:
            raise InputError(None, "the recorder", f"measured no {experiment}", "lines of CSV")
        with atomic_write(path) as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        yield f"{path}: {counted(len(rows) - 1, 'row')} of {counted(len(lines), 'condition')}"


def thinned(items: Sequence[T]) -> list[T]:
    """A selection of at most `MOST` items, evenly spread."""
    return [items[i * len(items) // MOST] for i in range(MOST)] if len(items) > MOST else list(items)


def _single_kernel(recording: Recording, call: Call) -> Row | None:
    kernels = recording.kernels(call)
    return kernels[0] if len(kernels) == 1 else None


def _limits(kernel: Row) -> dict[str, float]:
    return {limit: float(kernel[f"launch__occupancy_limit_{limit}"]) for limit in LIMITS}


def _resident(kernel: Row) -> int:
    return int(min(_limits(kernel).values()))


def _shared_bytes(kernel: Row) -> int:
    """Shared memory of a block, including the driver's reservation."""
    parts = ("static", "dynamic", "driver")
    return sum(int(float(kernel[f"launch__shared_mem_per_block_{part}"])) for part in parts)


def _residencies(recording: Recording, calls: Iterable[Call]) -> Iterator[str]:
    for call in calls:
        kernel = _single_kernel(recording, call)
        if kernel is not None and _resident(kernel) > 1:
            yield f"{call.op} {_shared_bytes(kernel)} {_resident(kernel)}"


def _independent(steps: Sequence[Step], fastest: dict[CallWork, Call]) -> Iterator[tuple[Call, Call]]:
    """Independent pairs of convolutions, each pair of calls once.

    Only convolutions that are near each other in order are paired: the others would rarely run at the same time.
    """
    ended: dict[str, frozenset[str]] = {}
    seen: set[tuple[str, str]] = set()
    recent: list[Step] = []
    for step in steps:
        ended[step.id] = frozenset({step.id}).union(*(ended[id] for id in step.after))
        if step.work not in fastest:
            continue
        for other in recent:
            pair = fastest[other.work], fastest[step.work]
            ops = pair[0].op, pair[1].op
            if other.id not in ended[step.id] and ops not in seen:
                seen.add(ops)
                yield pair
        recent = [*recent[-5:], step]


def _pairs(recording: Recording, independent: Iterable[tuple[Call, Call]]) -> Iterator[str]:
    for pair in independent:
        counts = [
            min(MOST_IN_QUEUE, max(1, round(QUEUE_MS / float(recording.timing(call)["ms_stream_run1"]))))
            for call in pair
        ]
        yield f"{pair[0].op} {counts[0]} {pair[1].op} {counts[1]}"


def _quotas(recording: Recording, independent: Iterable[tuple[Call, Call]]) -> Iterator[str]:
    """Pairs of one kernel each: a held to half of its blocks, b with what fits beside, so that neither can grow."""
    for a, b in independent:
        kernel_a, kernel_b = _single_kernel(recording, a), _single_kernel(recording, b)
        if kernel_a is None or kernel_b is None:
            continue
        if float(recording.timing(a)["ms_single_run1"]) < 2 * RELEASED_MS:
            continue
        limits_a, limits_b = _limits(kernel_a), _limits(kernel_b)
        held = _resident(kernel_a) // 2
        beside = int(min(limits_b[limit] * (1 - held / limits_a[limit]) for limit in LIMITS))
        full = any((held + 1) / limits_a[limit] + beside / limits_b[limit] > 1 for limit in LIMITS)
        if held and beside and full:
            yield f"{a.op} {_shared_bytes(kernel_a)} {held} {b.op} {_shared_bytes(kernel_b)} {beside}"


def _modules(network: Network | None, steps: Sequence[Step], fastest: dict[CallWork, Call]) -> Iterator[str]:
    """Modules to measure: joins whose branches, back to their common fork, have convolutions on at least two."""
    if network is None:
        return
    nodes = {node.name: node for node in network.nodes}
    readers = [name for node in network.nodes for name in node.inputs]
    forward = {step.layer: step.work for step in steps if step.work.direction == "fwd"}
    for join in network.nodes:
        branches = []
        for name in join.inputs:
            ops: list[str] = []
            while name != INPUT and readers.count(name) == 1 and len(nodes[name].inputs) == 1:
                call = fastest.get(forward[name]) if name in forward else None
                ops = ([call.op] if call is not None else []) + ops
                name = nodes[name].inputs[0]
            branches.append(ops)
        branches = [ops for ops in branches if ops]
        if len(branches) > 1:
            yield f"{join.name} fastest " + " , ".join(" ".join(ops) for ops in branches)
