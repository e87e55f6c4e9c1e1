"""Estimated demand of kernels without counters, from the FLOP and bytes of the operator, or from the kernel's name.

A kernel's time, its FLOP and its bytes say how busy arithmetic and DRAM were at least. Where neither was busy for most
of the time something else bound it, and what that was is an assumption: arithmetic, or memory. Replays take the
estimate; `assumed` gives both extremes, between which an answer may lie.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from gpusim.hardware.gpu import GPU
from gpusim.trace.kernels import Arithmetic, KernelLaunch, Mix

Assumption = Literal["compute", "memory"]
Operation = Literal["product", "attention", "streamed"]

KNOWN = 0.6  # share of its time for which a resource is busy, from which on it is what binds [D]
BOUND = 0.85  # the same of a kernel of which it is assumed [D]
MOST = 0.95  # the same, of any kernel
UNSEEN = 0.8  # the same of arithmetic, where it is not known what binds [D]
UNSEEN_DRAM = 0.4  # the same of DRAM [D]
TENSOR_ISSUE = 0.2  # issue slots of a kernel whose tensor cores are always busy [D]
STREAMED_ISSUE = 0.35  # issue slots of a kernel that streams from DRAM all the time [D]
FMA_ISSUE = 1.15  # issue slots for each multiply-add [D]
L2_OF_TRAFFIC = 1.3  # bytes at L2 for each that is read or written [D]
KEPT = 0.5  # of what a launch touches, that L2 may hold from before or after it [D]
KEPT_OF_L2 = 1.0 / 3.0  # of L2's capacity, at most [D]
TENSOR_FLOP_PER_CYCLE = {  # of an SM, of 16 bits; those of 8 bits are twice as many, of TF32 half [M]
    "7.0": 1024,
    "7.5": 1024,
    "8.0": 2048,
    "8.6": 512,
    "8.9": 1024,
    "9.0": 4096,
}
OF_16_BIT: Mapping[Arithmetic, float] = {"8-bit": 2.0, "16-bit": 1.0, "32-bit": 0.5}  # rate of tensor cores
NAMES: tuple[tuple[Operation, re.Pattern[str]], ...] = (  # of kernels of libraries: only which operation it is
    ("attention", re.compile(r"flash|fmha|sdpa|attention", re.IGNORECASE)),
    ("product", re.compile(r"gemm|nvjet|xmma|cutlass|conv|winograd|implicit|wgrad|dgrad", re.IGNORECASE)),
    (
        "streamed",
        re.compile(
            r"elementwise|vectorized|copy|reduce|norm|softmax|gather|scatter|cat_|pool|dropout|relu|silu|gelu|add_|scan|"
            r"transpose|nchw|nhwc|fill|adam|index|embedding",
            re.IGNORECASE,
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class Use:
    """How busy a kernel keeps the GPU, as far as is known without counters."""

    arithmetic: float  # share of its time in which the SMs' arithmetic is busy, 0 to 1
    dram: float  # the same of DRAM
    on_tensor_cores: bool  # whether the arithmetic is that of tensor cores
    read_share: float = 0.5  # share of its traffic that is reads
    hits: float = 1.0  # bytes at L2 for each of DRAM, at least 1

    @property
    def settled(self) -> bool:
        """Whether it is known what binds the kernel."""
        return max(self.arithmetic, self.dram) >= KNOWN


def operation_of(name: str) -> Operation | None:
    """Which operation a kernel of a known library is, by its name; None where that says nothing."""
    return next((operation for operation, pattern in NAMES if pattern.search(name)), None)


def estimable(launch: KernelLaunch) -> bool:
    """Whether nothing of a launch was counted, so that its demands can only be estimated."""
    mix = launch.mix
    return mix is None or (not mix.estimated and mix.alu_utilisation_percent is None and launch.estimated)


def use_of(launch: KernelLaunch, gpu: GPU) -> Use | None:
    """How busy a launch keeps the GPU that recorded it; None where neither its operator nor its name tells anything."""
    work = launch.work
    if work is None:
        operation = operation_of(launch.name)
        if operation is None:
            return None
        return Use(0.0, BOUND, False) if operation == "streamed" else Use(0.0, 0.0, True)
    seconds = max(launch.duration_us - gpu.model.launch_latency_us, 0.5 * launch.duration_us) / 1e6
    moved = work.read_bytes + work.write_bytes
    missed = moved - min(KEPT * moved, KEPT_OF_L2 * gpu.l2_bytes)
    dram = min(MOST, missed / seconds / 1e9 / gpu.dram_bandwidth_gb_per_s)
    plain = work.flop / seconds / 1e12 / gpu.fp32_peak_tflops
    tensor = _tensor_share(work.flop / seconds, work.arithmetic, gpu)
    on_tensor_cores = tensor is not None and (work.arithmetic in ("8-bit", "16-bit") or plain > 1.0)
    on_tensor_cores &= operation_of(launch.name) != "streamed"
    arithmetic = tensor if on_tensor_cores and tensor is not None else plain
    if moved <= 0.0:
        return Use(min(MOST, arithmetic), 0.0, on_tensor_cores)
    return Use(min(MOST, arithmetic), dram, on_tensor_cores, work.read_bytes / moved, moved / missed)


def _tensor_share(flop_per_s: float, arithmetic: Arithmetic, gpu: GPU) -> float | None:
    """Share of its time that tensor cores take for so many FLOP a second; None where the GPU has none for them."""
    rate = TENSOR_FLOP_PER_CYCLE.get(gpu.compute_capability)
    if rate is None or arithmetic not in OF_16_BIT:
        return None
    return flop_per_s / (rate * OF_16_BIT[arithmetic] * gpu.sm_count * gpu.boost_clock_mhz * 1e6)


def filled(launch: KernelLaunch, gpu: GPU) -> KernelLaunch:
    """A launch with the demands that it is estimated to have; as it is where it was counted, or nothing tells them."""
    if not estimable(launch):
        return launch
    use = use_of(launch, gpu)
    if use is None:
        return launch
    if not use.settled:
        use = replace(use, arithmetic=max(UNSEEN, use.arithmetic), dram=max(UNSEEN_DRAM, use.dram))
    return _with(launch, use, gpu)


def assumed(launch: KernelLaunch, gpu: GPU, assumption: Assumption) -> KernelLaunch:
    """A launch as if arithmetic, or memory, had bound it while it was recorded, where that is not known."""
    if not estimable(launch) or launch.communicates:
        return launch
    use = use_of(launch, gpu)
    if use is not None and launch.work is not None and use.settled:
        return _with(launch, use, gpu)
    tensor, known = use is not None and use.on_tensor_cores, launch.work is not None and use is not None
    least = (use.arithmetic, use.dram) if known and use is not None else (0.0, 0.0)
    arithmetic, dram = (BOUND, least[1]) if assumption == "compute" else (least[0], BOUND)
    return _with(launch, Use(arithmetic, dram, tensor, use.read_share if use is not None else 0.5), gpu)


def _with(launch: KernelLaunch, use: Use, gpu: GPU) -> KernelLaunch:
    """A launch whose blocks keep the GPU so busy."""
    working_us = max(launch.duration_us - gpu.model.launch_latency_us, 0.5 * launch.duration_us)
    cycles = working_us * gpu.boost_clock_mhz
    per_block = cycles * gpu.sm_count / launch.blocks
    issue = min(MOST, use.arithmetic * (TENSOR_ISSUE if use.on_tensor_cores else FMA_ISSUE) + STREAMED_ISSUE * use.dram)
    moved = use.dram * working_us * gpu.dram_bandwidth_gb_per_s * 1e3 / launch.blocks
    read, written = moved * use.read_share, moved * (1.0 - use.read_share)
    mix = Mix(
        estimated=True,
        issue_cycles=issue * per_block,
        tensor_cycles=use.arithmetic * per_block if use.on_tensor_cores else 0.0,
        fma_cycles=0.0 if use.on_tensor_cores else use.arithmetic * per_block,
        active_cycles_avg=cycles,
        active_cycles_max=cycles,
        dram_read_bytes=read,
        dram_write_bytes=written,
        l2_bytes=L2_OF_TRAFFIC * use.hits * moved,
        l2_read_bytes=L2_OF_TRAFFIC * use.hits * read,
        l2_write_bytes=L2_OF_TRAFFIC * use.hits * written,
    )
    return launch.model_copy(update={"mix": mix})
