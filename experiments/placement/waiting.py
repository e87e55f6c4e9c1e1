"""Kernels that only wait, in the place of those of pairs of cuDNN calls: what to run, what ran, and as traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import median
from typing import NamedTuple

import gpusim
from experiments import study
from experiments.rows import from_csv
from gpusim.lab.dataset import Dataset, back_to_back_us
from gpusim.lab.validate import Condition, conditions
from gpusim.model.launchable import launch_occupancy
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls, taking
from gpusim.trace.operations import Host, Kernel, Stream

HERE = Path(__file__).resolve().parent
RECORDED = study.RECORDED / "small"
CASES, MEASURED = HERE / "cases.csv", HERE / "measured.csv.gz"
GPU = gpusim.load_gpu("h200")
NAMES = "ab"  # of the streams
LEAST_BLOCK_US = 0.6  # of a recorded kernel that takes hardly longer than its launch
MOST_REGISTERS = 255  # that a trace may say of a thread; allocated are 256


@dataclass(frozen=True)
class Case:
    """A kernel that only waits, in the place of one of a cuDNN call.

    Attributes:
        pair: number of the pair, in the order of pairs.csv.
        stream: of the pair, 0 or 1.
        op: the call.
        calls: how many of them the stream makes.
        kernel: number of the kernel within the call.
        blocks: of its grid.
        threads: of a block.
        registers: a thread, as allocated: in units of 8.
        shared_memory_bytes: of a block.
        shared_memory_config_bytes: what the driver set SMs to for the recorded kernel.
        block_us: how long each block is to hold its SM.
    """

    pair: int
    stream: int
    op: str
    calls: int
    kernel: int
    blocks: int
    threads: int
    registers: int
    shared_memory_bytes: int
    shared_memory_config_bytes: int
    block_us: float


@dataclass(frozen=True)
class Launch:
    """A launch as placement.cu logs it.

    Attributes:
        pair: number of the pair.
        streams: that ran: 1, alone, or both.
        run: number of the run.
        stream: that it is of, 0 or 1.
        call: of the stream.
        kernel: of the call.
        registers: a thread, as allocated.
        start_us: its first block started; from the first block of the run.
        last_us: its last block started.
        end_us: its last block ended.
        sms: that got blocks.
        most_blocks: that one SM got.
    """

    pair: int
    streams: int
    run: int
    stream: int
    call: int
    kernel: int
    registers: int
    start_us: float
    last_us: float
    end_us: float
    sms: int
    most_blocks: int


class Alone(NamedTuple):
    """A kernel as measured with its stream alone: its duration with its launch latency, and registers a thread."""

    duration_us: float
    registers: int


class Started(NamedTuple):
    """Which stream of a run began first, and how much later the other was there."""

    first: int
    later_us: float


# ---- what to run -----------------------------------------------------------------------------------------------------


def plain_pairs(dataset: Dataset) -> list[Condition]:
    """The pairs that ran in plain streams, of calls that open no streams of their own."""
    pairs = [condition for condition in conditions(dataset) if condition.experiment == "streams"]
    return [pair for pair in pairs if all(_in_one_stream(dataset, op) for (op,) in pair.ops)]


def _in_one_stream(dataset: Dataset, op: str) -> bool:
    return all(kernel.stream == "main" for kernel in dataset.op(op).kernels)


def cases_of(dataset: Dataset) -> Iterator[Case]:
    """The kernels of all such pairs of a dataset."""
    for number, pair in enumerate(plain_pairs(dataset)):
        for stream, ((name,), calls) in enumerate(zip(pair.ops, pair.calls, strict=True)):
            op = dataset.op(name)
            for index, launch in enumerate(taking(op.kernels, back_to_back_us(op.ms, GPU))):
                yield _case(number, stream, name, calls, index, launch)


def _case(pair: int, stream: int, op: str, calls: int, index: int, launch: KernelLaunch) -> Case:
    waves = ceil(launch.blocks / (GPU.sm_count * launch_occupancy(launch, GPU).blocks_per_sm))
    config = launch.mix.shared_memory_config_bytes if launch.mix is not None else None
    return Case(
        pair,
        stream,
        op,
        calls,
        index,
        launch.blocks,
        launch.threads_per_block,
        -(-launch.registers_per_thread // 8) * 8,
        launch.shared_memory_per_block_bytes,
        config or 0,
        max(LEAST_BLOCK_US, (launch.duration_us - GPU.model.launch_latency_us) / waves),
    )


def read_cases() -> dict[int, list[Case]]:
    """The kernels of each pair."""
    found: dict[int, list[Case]] = {}
    for case in from_csv(Case, CASES):
        found.setdefault(case.pair, []).append(case)
    return found


# ---- what ran --------------------------------------------------------------------------------------------------------


def read_launches() -> list[Launch]:
    """All launches that were measured."""
    return from_csv(Launch, MEASURED)


def runs_together(launches: Sequence[Launch]) -> dict[tuple[int, int], list[Launch]]:
    """The launches of each run of both streams, by pair and run."""
    found: dict[tuple[int, int], list[Launch]] = {}
    for launch in launches:
        if launch.streams == len(NAMES):
            found.setdefault((launch.pair, launch.run), []).append(launch)
    return found


def measured_alone(launches: Sequence[Launch]) -> dict[tuple[int, int, int], Alone]:
    """Each kernel by pair, stream and number: from the end of the one before to its own, the median over its launches.

    The first of a stream has none before it; it counts with the model's launch latency.
    """
    times: dict[tuple[int, int, int], list[float]] = {}
    registers: dict[tuple[int, int, int], int] = {}
    ended_us: dict[tuple[int, int, int], float] = {}  # the launch before, by pair, stream and run
    for launch in launches:
        if launch.streams == 1:
            name, run = (launch.pair, launch.stream, launch.kernel), (launch.pair, launch.stream, launch.run)
            times.setdefault(name, []).append(launch.end_us - ended_us.get(run, -GPU.model.launch_latency_us))
            registers[name], ended_us[run] = launch.registers, launch.end_us
    return {name: Alone(median(found), registers[name]) for name, found in times.items()}


def measured_makespan_us(launches: Sequence[Launch]) -> float:
    """Of a run, from its first block to its last."""
    return max(launch.end_us for launch in launches)


def later_us(launches: Sequence[Launch]) -> float:
    """How much later than the first block of a run the first one of the other stream started."""
    return max(min(launch.start_us for launch in launches if launch.stream == stream) for stream in range(len(NAMES)))


def first_stream(launches: Sequence[Launch]) -> int:
    """The stream of the first block of a run."""
    return min(launches, key=lambda launch: launch.start_us).stream


# ---- as traces -------------------------------------------------------------------------------------------------------


def trace_of(cases: Sequence[Case], alone: Mapping[tuple[int, int, int], Alone], started: Started) -> Trace:
    """A pair as measured kernel by kernel, its streams begun as in a run."""
    streams = tuple(_stream(stream, cases, alone, started) for stream in range(len(NAMES)))
    return Trace(version=1, name=f"pair {cases[0].pair}", device=GPU.name, streams=streams)


def _stream(
    stream: int, cases: Sequence[Case], alone: Mapping[tuple[int, int, int], Alone], started: Started
) -> Stream:
    mine = [case for case in cases if case.stream == stream]
    launches = [_waiting(case, alone[case.pair, case.stream, case.kernel]) for case in mine]
    kernels = [
        Kernel(id=launch_id(stream, call, case.kernel), kind="kernel", kernel=launch)
        for call in range(mine[0].calls)
        for case, launch in zip(mine, launches, strict=True)
    ]
    late = Host(id=f"{NAMES[stream]}.late", kind="host", what="other", duration_us=started.later_us)
    return Stream(name=NAMES[stream], operations=tuple(kernels) if stream == started.first else (late, *kernels))


def launch_id(stream: int, call: int, kernel: int) -> str:
    """Name of a launch in a trace."""
    return f"{NAMES[stream]}.{call}.{kernel}"


def _waiting(case: Case, alone: Alone) -> KernelLaunch:
    """A kernel of which the counters say that its warps wait, for nothing that others could take away."""
    cycles = alone.duration_us * GPU.boost_clock_mhz
    mix = Mix(
        issue_cycles=1.0,
        active_cycles_avg=cycles,
        active_cycles_max=cycles,
        shared_memory_config_bytes=case.shared_memory_config_bytes,
        stalls=WarpStalls(wait=1.0),
    )
    return KernelLaunch(
        name=f"{case.op} {case.kernel}",
        grid=(case.blocks, 1, 1),
        block=(case.threads, 1, 1),
        registers_per_thread=min(alone.registers, MOST_REGISTERS),
        dynamic_shared_memory_bytes=case.shared_memory_bytes,
        duration_us=alone.duration_us,
        mix=mix,
    )
