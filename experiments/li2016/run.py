"""Li et al., seven CNN implementations on a K40c, asked again: `python experiments/li2016/run.py [--out DIR]`.

Writes README.md, result.csv and sweeps.png beside itself (or to DIR) from recordings of an H200
(experiments/h200_validation, and sweeps.csv here, which `record.py` made), from the model's occupancy of a K40c, and
from replays with copies.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path

from record import BASIC, SWEEPS, name

import gpusim
from gpusim.common.files import atomic_write
from gpusim.hardware.gpu import GPU
from gpusim.io.dataset import Dataset
from gpusim.results.plots import COLOURS, new_figure, save_figure
from gpusim.trace.format import Trace
from gpusim.trace.operations import Copy, Kernel, Operation, Stream

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "h200_validation" / "data"

LAYERS = ("Conv1", "Conv2", "Conv3", "Conv4", "Conv5")
STRATEGIES = {  # of the forward pass: cuDNN's algorithm that does what the paper's implementations do
    "direct": "IMPLICIT_GEMM",
    "unrolling": "GEMM",
    "unrolling in tiles": "IMPLICIT_PRECOMP_GEMM",
    "FFT": "FFT",
    "FFT in tiles": "FFT_TILING",
    "Winograd": "WINOGRAD_NONFUSED",
}
FAMILIES = {  # of a training iteration: cuDNN names no strategy in its backward algorithms but these
    "GEMM": ("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "ALGO_0", "ALGO_1", "ALGO_3"),
    "FFT": ("FFT", "FFT_TILING"),
    "Winograd": ("WINOGRAD", "WINOGRAD_NONFUSED"),
}
DIRECTIONS = ("fwd", "bwd_data", "bwd_filter")

# The paper's Table II, and what its Figure 6 shows of achieved occupancy as its text gives it
TABLE_2 = {  # registers a thread, KB of shared memory a block
    "Caffe": (86, 8.5),
    "cuDNN": (80, 8.4),
    "Torch-cunn": (84, 8.1),
    "Theano-CorrMM": (72, 7.0),
    "cuda-convnet2": (116, 16.0),
    "fbfft": (106, 10.0),
    "Theano-fft": (2, 4.5),
}
ACHIEVED = {"cuDNN": (29, 37), "cuda-convnet2": (14, 22), "Theano-fft": (39, 59)}
MOST_ELSEWHERE = 30  # "less than 30%"
BLOCKS = (64, 128, 256, 512, 1024)  # threads of a block, which the paper does not give
IMAGE_SIZES = {"Conv1": 128, "Conv2": 128, "Conv3": 32, "Conv4": 16, "Conv5": 13}
BATCHES = 4  # in a replay with copies


# ---- five layers, as recorded


@dataclass(frozen=True)
class Layer:
    """A layer under a strategy, forward: time and memory, None where cuDNN has it not."""

    layer: str
    strategy: str
    ms: float | None
    workspace_mib: float | None
    memory_mib: float | None


@cache
def recorded() -> Dataset:
    """The recording of the five layers."""
    return Dataset(RECORDED, gpusim.load_gpu("h200"))


def op_name(layer: str, algorithm: str) -> str:
    """An op of the recording."""
    return f"li2016/{layer}/fwd/{algorithm}/FMA"


def layers() -> list[Layer]:
    """Every layer under every strategy."""
    found = []
    for layer in LAYERS:
        for strategy, algorithm in STRATEGIES.items():
            op = op_name(layer, algorithm)
            if op not in recorded().calls or not recorded().supported(op):
                found.append(Layer(layer, strategy, None, None, None))
                continue
            row = recorded().calls[op]
            workspace, tensors = int(row["workspace_bytes"]), int(row["tensor_bytes"])
            found.append(Layer(layer, strategy, recorded().op(op).ms, workspace / 2**20, (workspace + tensors) / 2**20))
    return found


PARTS = {  # of a kernel's name, in this order
    "transform": ("fft2d_r2c",),
    "inverse": ("fft2d_c2r",),
    "unrolling": ("im2col",),
    "flip, transpose": ("flip", "transpose", "nchwTo", "ToNchw", "region_transform"),
    "Winograd transform": ("winograd",),
    "GEMM": ("gemm", "convolve"),
}


def part_of(kernel: str) -> str:
    """What a kernel does for its convolution, by its name."""
    for part, words in PARTS.items():
        if any(word in kernel for word in words):
            return part
    return "other"


def hotspots(layer: str, algorithm: str) -> dict[str, float]:
    """Share of the kernels' time, percent, by what they do."""
    kernels = recorded().op(op_name(layer, algorithm)).kernels
    total = fsum(kernel.duration_us for kernel in kernels)
    found: dict[str, float] = {}
    for kernel in kernels:
        part = part_of(kernel.name)
        found[part] = found.get(part, 0.0) + 100.0 * kernel.duration_us / total
    return found


# ---- occupancy


def theoretical(implementation: str, threads: int) -> float:
    """Occupancy of a K40c (percent) by the paper's registers and shared memory, for a block of so many threads."""
    registers, shared_kb = TABLE_2[implementation]
    gpu = gpusim.load_gpu("k40c")
    fits = gpusim.occupancy(
        gpu, threads_per_block=threads, registers_per_thread=registers, shared_memory_per_block=round(shared_kb * 1024)
    )
    return 100.0 * fits.blocks_per_sm * -(-threads // gpu.limits.warp_size) / gpu.limits.max_warps_per_sm


def achieved(implementation: str) -> tuple[float, float]:
    """Percent that the paper measured: at least and at most, as far as its text says."""
    return ACHIEVED.get(implementation, (0, MOST_ELSEWHERE))


# ---- transfers


def copied(layer: str, how: str) -> Trace:
    """Batches of one layer, each with a copy of its images from the host before the fastest FP32 algorithm's kernels.

    Args:
        layer: of the paper's Table I.
        how: ``none``; ``pageable`` or ``pinned``: one after the other in one stream; ``prefetched``: pinned, in a
            stream of their own, one batch ahead.
    """
    algorithms = [a for a in STRATEGIES.values() if recorded().supported(op_name(layer, a))]
    op = min((recorded().op(op_name(layer, a)) for a in algorithms), key=lambda op: op.ms)
    images = int(recorded().calls[op.name]["in_channels"]) * IMAGE_SIZES[layer] ** 2 * 4 * 128
    main: list[Operation] = []
    copies: list[Operation] = []
    for b in range(BATCHES):
        waits = (f"b{b - 2}.k{len(op.kernels) - 1}",) if how == "prefetched" and b > 1 else ()
        memory = "pageable" if how == "pageable" else "pinned"
        copy = Copy.model_validate(
            {"id": f"b{b}.copy", "kind": "copy", "direction": "h2d", "memory": memory, "bytes": images}
            | {"depends_on": waits}
        )
        (copies if how == "prefetched" else main).append(copy)
        for k, kernel in enumerate(op.kernels):
            before = (copy.id,) if how == "prefetched" and k == 0 else ()
            launch = kernel.model_copy(update={"stream": "main"})
            main.append(Kernel(id=f"b{b}.k{k}", kind="kernel", depends_on=before, kernel=launch))
    if how == "none":
        main = [one for one in main if not isinstance(one, Copy)]
    streams = [Stream(name="main", operations=tuple(main))]
    if copies:
        streams.append(Stream(name="copies", operations=tuple(copies)))
    return Trace(version=1, name=f"{layer}_{how}", device="h200", streams=tuple(streams))


def transfer_percent(layer: str, how: str, gpu: GPU) -> float:
    """Share of the time, percent, by which copies lengthen the batches."""
    times = [gpusim.replay(copied(layer, h), gpu, "leftover", placements=False).makespan_us for h in (how, "none")]
    return 100.0 * (times[0] - times[1]) / times[0]


# ---- sweeps


@dataclass(frozen=True)
class Point:
    """A training iteration of one shape under a family of algorithms; None where a direction has none of them."""

    shape: str
    family: str
    ms: float | None
    memory_mib: float | None


@cache
def sweeps() -> dict[str, Mapping[str, str]]:
    """Rows of sweeps.csv by op."""
    with open(HERE / "sweeps.csv", encoding="utf-8", newline="") as file:
        return {row["op"]: row for row in csv.DictReader(file)}


def point(shape: str, family: str) -> Point:
    """The fastest of a family in each of the three directions; memory of the direction that needs most."""
    ms, memory = 0.0, 0.0
    for direction in DIRECTIONS:
        rows = [sweeps().get(f"li2016/{shape}/{direction}/{algorithm}/FMA") for algorithm in FAMILIES[family]]
        usable = [row for row in rows if row is not None and row["supported"] == "True"]
        if not usable:
            return Point(shape, family, None, None)
        fastest = min(usable, key=lambda row: float(row["ms_stream_run1"]))
        ms += float(fastest["ms_stream_run1"])
        memory = max(memory, (int(fastest["workspace_bytes"]) + int(fastest["tensor_bytes"])) / 2**20)
    return Point(shape, family, ms, memory)


def points(what: str) -> list[tuple[int, dict[str, Point]]]:
    """A sweep: for each value every family; values that were not recorded are left out."""
    found = []
    for value in SWEEPS[what]:
        shape = name(BASIC | {what: value})
        if any(op.startswith(f"li2016/{shape}/bwd_filter/") for op in sweeps()):
            found.append((value, {family: point(shape, family) for family in FAMILIES}))
    return found
