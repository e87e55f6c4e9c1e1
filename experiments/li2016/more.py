"""What of Li et al. needs no more than what was recorded for other studies: Fig. 2's networks, Fig. 6's counters."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path

import gpusim
from experiments.markdown import table
from experiments.rows import lines
from experiments.study import RECORDED

TIMES = Path(gpusim.__file__).parent / "training" / "paradl" / "layers" / "h200.csv.gz"  # of layers in PyTorch
BATCH = 64
WARPS, SCHEDULERS = 64, 4  # of an SM
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


def page(layers: Sequence[str], strategies: dict[str, str]) -> dict[str, object]:
    """What the page says of both."""
    shares = {name: convolution_percent(name) for name in ("alexnet", "vgg16")}
    return {
        "alexnet": shares["alexnet"],
        "vgg16": shares["vgg16"],
        "fig2_others": "yes" if all(share > 80.0 for share in shares.values()) else "no",
        "counters": table(["strategy", *layers], counters(layers, strategies)),
    }
