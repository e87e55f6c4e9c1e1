"""Benchmarks of the engine: time and memory of replays as traces, grids, streams, SMs and kernels grow.

Every case runs in a process of its own, so that its peak memory is its own. Times are of the engine alone, on one core,
with kernels fitted to their recording beforehand; that fit, once for each kernel, is a column of its own. The recorded
traces are those of the source tree, or the samples of an installed package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

from gpusim.common.cores import LocalPool
from gpusim.common.progress import Step, no_step
from gpusim.engine import sm_array
from gpusim.engine.compiled import plain_core
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.session import Keep, Session
from gpusim.trace.file import load_trace, sample_folder
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, LoopArrivals, Stream

GOOGLENET = "googlenet_forward.json.gz"
PAIR = "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
MODULE = "inception_3a.json.gz"
POLICY = "leftover"
PLACEMENTS: tuple[Keep, ...] = ("placements",)
SMALL_BLOCKS = 600  # most blocks of a small kernel
QUICK_S = 0.5  # a replay that takes less is timed several times, and the least counts
REPEATS = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time of one case."""

    group: str  # what grows
    case: str  # how large it is
    replays: int  # how many replays `replay_s` is of
    kernels: int  # kernel launches of one replay
    blocks: int  # thread blocks of one replay
    fit_s: float  # time to fit the kernels to their recording
    replay_s: float  # engine time of the replays, streams alone included
    peak_mib: float  # most memory that the process held


def groups() -> dict[str, tuple[Callable[[Any], Measurement], Sequence[object]]]:
    """The benchmarks by group: the function that runs one case, and the sizes of the cases."""
    return {
        "trace": (time_trace, [path.name for path in shipped()]),
        "grid": (time_grid, (1, 10, 100, 1000)),
        "streams": (time_streams, (2, 4, 8, 16, 32, 64, 1000)),
        "SMs": (time_sms, (15, 33, 66, 132, 264, 528, 1056)),
        "kernels": (time_kernels, (100, 1_000, 10_000, 100_000)),
        "small kernels": (time_small_kernels, (100_000, 1_000_000)),
        "chain": (time_chain, (100_000, 1_000_000)),
        "pairs": (time_pairs, (1000,)),
        "plain core": (time_plain_core, (MODULE,)),
    }


def measure(names: Sequence[str], step: Step = no_step) -> Iterator[Measurement]:
    """Run the cases of some groups, one after the other; ``step`` is told each before it begins."""
    known = groups()
    cases = [(name, known[name][0], size) for name in names for size in known[name][1]]
    for n, (name, time, size) in enumerate(cases, 1):
        step(f"measuring {name}, case {n} of {len(cases)}")
        pool = LocalPool(1)
        try:
            measured = pool.submit(time, size).result()
        finally:
            pool.shutdown(wait=False)
        step("")
        yield measured


def shipped() -> list[Path]:
    """The trace files that ship."""
    return sorted(path for pattern in ("*.json", "*.json.gz") for path in sample_folder().glob(pattern))


def recorded(name: str) -> Trace:
    """A trace that ships."""
    return load_trace(sample_folder() / name)


def time_trace(name: str) -> Measurement:
    """A recorded trace."""
    trace = recorded(name)
    return _timed("trace", name.removesuffix(".gz").removesuffix(".json"), trace, load_gpu(trace.device))


def time_grid(factor: int) -> Measurement:
    """One kernel, with its grid and its duration multiplied."""
    launch = _launches(PAIR)[0]
    x, y, z = launch.grid
    grown = launch.model_copy(update={"grid": (x * factor, y, z), "duration_us": launch.duration_us * factor})
    return _timed("grid", f"x{factor}", _made([[grown]]), load_gpu("h200"))


def time_streams(count: int) -> Measurement:
    """A number of streams of four kernels each."""
    return _timed("streams", str(count), _made(_spread(count, 4)), load_gpu("h200"))


def time_sms(count: int) -> Measurement:
    """Four streams of two kernels each on a GPU with a given number of SMs."""
    gpu = replace(load_gpu("h200"), name=f"{count} SMs", sm_count=count, sms_per_tpc=1)
    return _timed("SMs", str(count), _made(_spread(4, 2)), gpu)


def time_kernels(count: int) -> Measurement:
    """At least that many kernels: the convolutions of GoogLeNet, repeated in their five streams."""
    trace = recorded(GOOGLENET)
    once = trace.kernel_count()
    return _timed("kernels", f"{count:,}", repeated(trace, -(-count // once)), load_gpu(trace.device))


def time_small_kernels(count: int) -> Measurement:
    """Kernels of up to `SMALL_BLOCKS` blocks, in four streams that repeat theirs."""
    launches = [launch for launch in _launches(GOOGLENET) if launch.blocks <= SMALL_BLOCKS]
    return _time_looped("small kernels", [launches[stream::4] for stream in range(4)], count)


def time_chain(count: int) -> Measurement:
    """The kernels of GoogLeNet in one stream that repeats them."""
    return _time_looped("chain", [_launches(GOOGLENET)], count)


def time_plain_core(name: str) -> Measurement:
    """A recorded trace on plain core.py, as where nothing is compiled."""
    trace = recorded(name)
    with patch.object(sm_array, "SMArray", plain_core("gpusim_plain_core").SMArray):
        return _timed("plain core", name.split(".")[0], trace, load_gpu(trace.device))


def time_pairs(count: int) -> Measurement:
    """Replays of two convolutions, each under another split of the SMs."""
    trace, gpu = recorded(PAIR), load_gpu("h200")
    policies = [f"inter-sm:sms={n}+{gpu.sm_count - n}" for n in range(1, gpu.sm_count)]
    session, fit_s = _fitted(trace, gpu)
    start = perf_counter()
    for i in range(count):
        session.replay(trace, policies[i % len(policies)], keep=PLACEMENTS)
    return _measurement("pairs", f"{count:,}", trace, fit_s, perf_counter() - start, replays=count)


def repeated(trace: Trace, times: int) -> Trace:
    """A trace whose streams run all their operations so many times, each time with the same dependencies."""
    streams = []
    for stream in trace.streams:
        operations = [
            op.model_copy(update={"id": f"{op.id}/{i}", "depends_on": tuple(f"{other}/{i}" for other in op.depends_on)})
            for i in range(times)
            for op in stream.operations
        ]
        streams.append(stream.model_copy(update={"operations": tuple(operations)}))
    return trace.model_copy(update={"streams": tuple(streams)})


def peak_mib() -> float:
    """Most memory that this process has held, MiB; 0 where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _launches(name: str) -> list[KernelLaunch]:
    trace = recorded(name)
    return [launch for op in trace.operations() for launch in op.launches() if launch.stream == "main"]


def _spread(streams: int, each: int) -> list[list[KernelLaunch]]:
    """Streams of some kernels each, from all over GoogLeNet."""
    launches = _launches(GOOGLENET)
    return [[launches[(each * stream + i) * 7 % len(launches)] for i in range(each)] for stream in range(streams)]


def _made(streams: list[list[KernelLaunch]]) -> Trace:
    made = tuple(
        Stream(
            name=f"s{s}",
            operations=tuple(Kernel(id=f"s{s}k{k}", kind="kernel", kernel=launch) for k, launch in enumerate(launches)),
        )
        for s, launches in enumerate(streams)
    )
    return Trace(version=1, name="made", device="h200", streams=made)


def _time_looped(group: str, streams: list[list[KernelLaunch]], count: int) -> Measurement:
    """Streams that repeat theirs until there were at least so many kernels, without where their blocks ran."""
    made = _made(streams)
    passes = -(-count // sum(len(launches) for launches in streams))
    loop = LoopArrivals(kind="loop", count=passes)
    looped = made.model_copy(update={"streams": tuple(s.model_copy(update={"arrivals": loop}) for s in made.streams)})
    found = _timed(group, f"{count:,}", looped, load_gpu("h200"), keep=())
    return replace(found, kernels=found.kernels * passes, blocks=found.blocks * passes)


def _fitted(trace: Trace, gpu: GPU) -> tuple[Session, float]:
    start = perf_counter()
    session = Session(gpu)
    session.isolated_us(trace)
    return session, perf_counter() - start


def _timed(group: str, case: str, trace: Trace, gpu: GPU, keep: Sequence[Keep] = PLACEMENTS) -> Measurement:
    session, fit_s = _fitted(trace, gpu)
    best = float("inf")
    for _ in range(REPEATS):
        start = perf_counter()
        session.replay(trace, POLICY, keep=keep)
        best = min(best, perf_counter() - start)
        if best > QUICK_S:
            break
    return _measurement(group, case, trace, fit_s, best)


def _measurement(group: str, case: str, trace: Trace, fit_s: float, replay_s: float, replays: int = 1) -> Measurement:
    launches = [launch for op in trace.operations() for launch in op.launches()]
    blocks = sum(launch.blocks for launch in launches)
    return Measurement(group, case, replays, len(launches), blocks, fit_s, replay_s, peak_mib())
