"""What of Li et al. needs no more than other studies recorded: Fig. 2, 3a and 6; and formulas: Fig. 5 and 7."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path

import gpusim
from experiments.markdown import table
from experiments.rows import lines
from experiments.study import RECORDED, TRACES
from gpusim.trace.operations import Convolution

TIMES = Path(gpusim.__file__).parent / "training" / "paradl" / "layers" / "h200.csv.gz"  # of layers in PyTorch
BATCH = 64
WARPS, SCHEDULERS = 64, 4  # of an SM
MODULES = ("3a", "3b", "4a", "4c", "4e", "5a", "5b")  # of GoogLeNet, recorded at batches 16 and 128
CHANNELS, FLOAT_BYTES = 3, 4
BASIC = (64, 128, 64, 11)  # the paper's batch, input size, filters, filter size; stride 1
RANGES = (range(32, 513, 32), range(32, 257, 16), range(32, 513, 16))  # of the first three, as the paper varies them
OCCUPANCY, ISSUE = "sm__warps_active.avg.per_cycle_active", "smsp__issue_active.avg.pct_of_peak_sustained_active"


def convolution_percent(network: str) -> float:
    """Share of convolutions in the layers of a training iteration in PyTorch, forward and backward, percent."""
    of_all = of_convolutions = 0.0
    for line in lines(TIMES):
        if line["network"] != network or line["divided"] != "whole" or int(line["batch"]) != BATCH:
            continue
        us = float(line["forward_us"]) + float(line["backward_us"])
        of_all += us if line["layer"] != "update" else 0.0
        if line["layer"].startswith("conv") and "." not in line["layer"]:
            of_convolutions += us
    return 100.0 * of_convolutions / of_all


def counters(layers: Sequence[str], strategies: dict[str, str]) -> list[list[str]]:
    """Achieved occupancy and instructions a cycle of each strategy in each layer, kernels weighted by their time."""
    kernels: dict[str, list[tuple[float, float, float]]] = {}
    for line in lines(RECORDED / "kernels.csv.gz"):
        if line["op"].startswith("li2016/"):
            ns, warps, issue = (float(line[name]) for name in ("gpu__time_duration.sum", OCCUPANCY, ISSUE))
            kernels.setdefault(line["op"], []).append((ns, 100.0 * warps / WARPS, SCHEDULERS * issue / 100.0))
    cells = []
    for strategy, algorithm in strategies.items():
        line_of = [strategy]
        for layer in layers:
            found = kernels.get(f"li2016/{layer}/fwd/{algorithm}/FMA", [])
            total = fsum(ns for ns, _, _ in found)
            occupancy, ipc = (fsum(one[0] * one[at] for one in found) / total if total else 0.0 for at in (1, 2))
            line_of.append(f"{occupancy:.0f} % / {ipc:.1f}" if total else "")
        cells.append(line_of)
    return cells


def fft_gains(batch: int, families: dict[str, Sequence[str]]) -> list[float]:
    """How many times as fast as GEMM FFT is in GoogLeNet's 5x5 layers, forward, without tensor cores."""
    found = []
    for module in MODULES:
        trace = gpusim.load_trace(TRACES / f"inception_{module}{'' if batch == 128 else f'_b{batch}'}.json.gz")
        (op,) = [op for op in trace.operations() if isinstance(op, Convolution) and op.id == f"{module}.5x5"]
        us = {
            one.algorithm: fsum(kernel.duration_us for kernel in one.kernels) for one in (op.selected, *op.alternatives)
        }
        gemm, fft = ([us[f"{name}/FMA"] for name in families[of] if f"{name}/FMA" in us] for of in ("GEMM", "FFT"))
        if gemm and fft:
            found.append(min(gemm) / min(fft))
    return found


def tensor_mib(batch: int, size: int, filters: int, filter_size: int, copies: int) -> float:
    """Memory of a layer's input, output and filters at stride 1; twice that with their gradients (``copies`` of 2)."""
    outputs = batch * filters * (size - filter_size + 1) ** 2
    inputs = batch * CHANNELS * size**2
    return copies * FLOAT_BYTES * (inputs + outputs + filters * CHANNELS * filter_size**2) / 2**20


def tensor_range(copies: int) -> tuple[float, float]:
    """Least and most of `tensor_mib` in the paper's sweeps of batch, input size and filters."""
    shapes = [(*BASIC[:at], value, *BASIC[at + 1 :]) for at, values in enumerate(RANGES) for value in values]
    found = [tensor_mib(*shape, copies=copies) for shape in shapes]
    return min(found), max(found)


def flop_per_image_byte(layer: str) -> float:
    """Operations of a layer of Table I, forward, for each byte of its input."""
    (row,) = [
        row for row in lines(RECORDED / "convolutions.csv") if row["op"] == f"li2016/{layer}/fwd/IMPLICIT_GEMM/FMA"
    ]
    size = int(row["batch"]) * int(row["in_channels"]) * int(row["in_size"]) ** 2
    return float(row["flop"]) / (FLOAT_BYTES * size)


def page(layers: Sequence[str], strategies: dict[str, str], families: dict[str, Sequence[str]]) -> dict[str, object]:
    """What the page says of all these."""
    few, many = (fft_gains(batch, families) for batch in (16, 128))
    (low, high), (_, with_gradients) = tensor_range(1), tensor_range(2)
    per_byte = {layer: flop_per_image_byte(layer) for layer in layers}
    least = min(per_byte, key=lambda layer: per_byte[layer])
    others = [value for layer, value in per_byte.items() if layer != least]
    shares = {name: convolution_percent(name) for name in ("alexnet", "vgg16")}
    return {
        "alexnet": shares["alexnet"],
        "vgg16": shares["vgg16"],
        "fig2_others": "yes" if all(share > 80.0 for share in shares.values()) else "no",
        "batch_16": f"{min(few):.1f} to {max(few):.1f}x",
        "batch_128": f"{min(many):.1f} to {max(many):.1f}x",
        "tensors_low": low,
        "tensors_high": high,
        "gradients": with_gradients,
        "fig5_ranges": "yes" if 0.8 < high / 2076 < 1.0 and 0.8 < with_gradients / 3810 < 1.0 else "no",
        "per_byte": f"{per_byte[least]:,.0f} in {least}, {min(others):,.0f} to {max(others):,.0f} elsewhere",
        "fig7_outlier": "yes" if least == "Conv2" else "no",
        "counters": table(["strategy", *layers], counters(layers, strategies)),
    }
