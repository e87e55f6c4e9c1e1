"""A GPU small enough to follow by hand, kernels of which one block fills an SM, and traces made of them."""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from gpusim import load_gpu, replay
from gpusim.hardware.compute_capability import CAPABILITIES, SMLimits
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Policy
from gpusim.results.result import Result
from gpusim.results.runs import USES, KernelRun, Usage
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, ConvolutionShape, Copy, Host, Kernel
from gpusim.trace.operations import Stream as TraceStream

LATENCY_US = 1.0
Operation = Kernel | Convolution | Copy | Host


def sm_limits(compute_capability: str) -> SMLimits:
    """The limits of an SM of a compute capability."""
    return SMLimits.model_validate(CAPABILITIES[compute_capability])


def tiny(sm_count: int = 4, latency_us: float = LATENCY_US, jitter: float = 0.0, **constants: float) -> GPU:
    """An H200 of few SMs whose blocks all take the same time."""
    h200 = load_gpu("h200")
    simple = {"launch_latency_us": latency_us, "graph_latency_us": latency_us, "block_jitter": jitter}
    simple |= {
        "stream_turn_us": 0.0,
        "block_delay_us": 0.0,
        "kernel_gap_us": 0.0,
        "copy_gap_us": 0.0,
        "memset_gap_us": 0.0,
    }
    model = h200.model.model_copy(update={**simple, **constants})
    return replace(h200, name="tiny", sm_count=sm_count, sms_per_tpc=1, model=model)


def launch(blocks: int, duration_us: float, stream: str = "main", threads: int = 1024) -> KernelLaunch:
    """A kernel with 64 registers a thread: at 1024 threads one block has an SM to itself."""
    return KernelLaunch(
        name=f"k{blocks}",
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        registers_per_thread=64,
        duration_us=duration_us,
        stream=stream,
    )


def kernel(id: str, blocks: int, duration_us: float, *depends_on: str, threads: int = 1024) -> Kernel:
    return Kernel(id=id, kind="kernel", depends_on=depends_on, kernel=launch(blocks, duration_us, threads=threads))


def copy(id: str, duration_us: float, *depends_on: str, direction: Any = "h2d") -> Copy:
    return Copy(id=id, kind="copy", direction=direction, bytes=1, duration_us=duration_us, depends_on=depends_on)


def host(id: str, duration_us: float, *depends_on: str) -> Host:
    return Host(id=id, kind="host", what="other", duration_us=duration_us, depends_on=depends_on)


def convolution(id: str, launches: Sequence[KernelLaunch], *depends_on: str) -> Convolution:
    shape = ConvolutionShape(
        batch=1,
        in_channels=1,
        in_height=8,
        in_width=8,
        out_channels=1,
        filter_height=1,
        filter_width=1,
        padding=0,
        stride=1,
    )
    selected = ConvolutionAlgorithm(algorithm="FFT", kernels=tuple(launches))
    return Convolution(
        id=id, kind="convolution", shape=shape, direction="fwd", selected=selected, depends_on=depends_on
    )


def stream(name: str, *operations: Operation, priority: int = 0, arrivals: Any = None) -> TraceStream:
    return TraceStream(name=name, priority=priority, operations=operations, arrivals=arrivals)


def trace(*streams: TraceStream, device: str = "tiny") -> Trace:
    return Trace(version=1, name="by hand", device=device, streams=streams)


def played(policy: str | Policy, *streams: TraceStream, gpu: GPU | None = None) -> Result:
    return replay(trace(*streams), gpu or tiny(), policy)


def times(result: Result) -> dict[str, tuple[float, float]]:
    """Start and end of every operation, rounded to a nanosecond's thousandth."""
    return {run.operation: (round(run.start_us, 6), round(run.end_us, 6)) for run in result.operation_runs}


def run_of(result: Result, operation: str, index: int = 0) -> KernelRun:
    return next(run for run in result.kernel_runs if (run.operation, run.index) == (operation, index))


def spans(result: Result, operation: str, index: int = 0) -> list[tuple[int, int, float, float]]:
    """(SM, blocks, start, end) of one launch."""
    at = result.kernel_runs.index(run_of(result, operation, index))
    return [(p.sm, p.blocks, round(p.start_us, 6), round(p.end_us, 6)) for p in result.placements if p.run == at]


def shipped_traces(folder: Path) -> list[Path]:
    """The traces that ship, but for whole recorded passes of networks: fitting their kernels takes long."""
    return sorted(
        path for path in folder.glob("*.json*") if re.search(r"_b\d+_(forward|training)\.", path.name) is None
    )


@cache
def session_on(device: str) -> Session:
    """A session for the traces that ship: each of their kernels is fitted once for all tests."""
    return Session(device)


def used(bin_us: float, shares: Sequence[Sequence[Sequence[float]]]) -> Usage:
    """Use of some SMs by SM, bin and use."""
    flat = array("d", (share for bins in zip(*shares, strict=True) for one in bins for share in one))
    return Usage(bin_us, len(shares), len(shares[0]) if shares else 0, flat, (1.0,) * len(USES))
