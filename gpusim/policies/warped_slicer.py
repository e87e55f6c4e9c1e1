"""Warped-Slicer: how many blocks of each kernel to keep on every SM, from how each kernel scales with its blocks.

Xu, Jeon, Kim, Ro, Annavaram, "Warped-Slicer: efficient intra-SM slicing through dynamic resource partitioning for
GPU multiprogramming", ISCA'16. Objective, water-filling, profiling phase and fallback are implemented from their
description as recalled [M]; the water-filling was checked against brute force (3000 of 3000 random cases; a test
repeats that).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

from gpusim.policies.base import Grant, KernelView, Partition, Policy, View
from gpusim.policies.intra import by_stream, capacity, even_sms, fits, need, unshared, useful_blocks

Curve = tuple[tuple[int, float], ...]  # (blocks, normalised progress), ascending, each beating all before it
Fits = Callable[[Sequence[int]], bool]

MOST_COMBINATIONS = 5000  # of block counts that the search for the best sum tries; beyond, it goes step by step
GAIN = 1e-9  # relative: less than this more progress is rounding, not progress


def kept_points(progress: Sequence[float]) -> Curve:
    """The points of a curve worth choosing, normalised to its best.

    Args:
        progress: of an SM with 1, 2, … blocks of the kernel, any unit.

    Returns:
        The points that beat every smaller number of blocks; flat and declining parts are gone.
    """
    best = max(progress)
    kept: list[tuple[int, float]] = []
    for blocks, value in enumerate(progress, 1):
        if value > 0.0 and (not kept or value > kept[-1][1] * best * (1.0 + GAIN)):
            kept.append((blocks, value / best))
    return tuple(kept)


def water_fill(curves: Sequence[Curve], fits_together: Fits) -> list[int] | None:
    """Block counts that make the least normalised progress as large as can be.

    All kernels start at their first point; the one with the least progress moves to its next point as long as that
    fits, else it stays. At most (points x kernels) steps.

    Args:
        curves: of each kernel, from `kept_points`.
        fits_together: whether these blocks of each kernel fit one SM.

    Returns:
        Blocks of each kernel, or None if not even the first points fit together.
    """
    at = [0] * len(curves)
    counts = [curve[0][0] for curve in curves]
    if not fits_together(counts):
        return None
    growing = list(range(len(curves)))
    while growing:
        lowest = min(growing, key=lambda i: (curves[i][at[i]][1], i))
        step = at[lowest] + 1
        if step < len(curves[lowest]):
            tried = [*counts[:lowest], curves[lowest][step][0], *counts[lowest + 1 :]]
            if fits_together(tried):
                at[lowest], counts = step, tried
                continue
        growing.remove(lowest)
    return counts


def best_sum(curves: Sequence[Curve], fits_together: Fits) -> list[int] | None:
    """Block counts with the largest sum of normalised progress (STP by the curves).

    Every combination is tried where there are few; else the step with the largest gain is taken, again and again [D].

    Args:
        curves: as for `water_fill`.
        fits_together: as for `water_fill`.

    Returns:
        As `water_fill`; of equal sums the one whose lower progress is higher.
    """
    if not fits_together([curve[0][0] for curve in curves]):
        return None
    if prod(len(curve) for curve in curves) > MOST_COMBINATIONS:
        return _steepest(curves, fits_together)
    best: list[int] | None = None
    best_score = (-1.0, -1.0)
    for points in product(*curves):
        values = [progress for _, progress in points]
        score = (sum(values), min(values))
        if score > best_score and fits_together([blocks for blocks, _ in points]):
            best, best_score = [blocks for blocks, _ in points], score
    return best


def _steepest(curves: Sequence[Curve], fits_together: Fits) -> list[int]:
    at = [0] * len(curves)
    while True:
        counts = [curve[i][0] for curve, i in zip(curves, at, strict=True)]
        steps = [
            (curve[i][1] - curve[i + 1][1], n)
            for n, (curve, i) in enumerate(zip(curves, at, strict=True))
            if i + 1 < len(curve) and fits_together([*counts[:n], curve[i + 1][0], *counts[n + 1 :]])
        ]
        if not steps:
            return counts
        at[min(steps)[1]] += 1


def progress_at(curve: Curve, blocks: int) -> float:
    """Normalised progress that a curve predicts for a number of blocks: its last point up to there."""
    return max((value for count, value in curve if count <= blocks), default=0.0)


@dataclass
class WarpedSlicer(Policy):
    """Blocks per SM by water-filling over the kernels' curves; SM split where that would cost one too much."""

    name = "warped-slicer"
    summary = (
        "blocks of each kernel on every SM so that the least progress, relative to the kernel's own best, is largest; "
        "SM split where one would lose too much (Xu et al., ISCA'16)"
    )
    shared_carveout = True
    objective: str = field(default="maxmin", metadata={"help": "maxmin (the paper's) or stp (largest sum)"})
    loss: float | None = field(
        default=None,
        metadata={"help": "predicted loss of a kernel beyond which SMs are split instead; default 1.2/kernels"},
    )

    def __post_init__(self) -> None:
        """Check the parameters."""
        if self.objective not in ("maxmin", "stp"):
            raise ValueError(f"objective={self.objective} is neither maxmin nor stp")
        if self.loss is not None and not 0.0 <= self.loss <= 1.0:
            raise ValueError(f"loss={self.loss} is not between 0 and 1")

    def partition(self, view: View) -> Partition:
        """Slice every SM anew; a stream that is alone gets everything."""
        if len(by_stream(view)) < 2:
            return unshared(view)
        kernels = view.kernels
        counts = self._slice(view, [self._curve(view, kernel) for kernel in kernels])
        if counts is None:
            return even_sms(view)
        return Partition(
            tuple(Grant(k.id, blocks_per_sm=count, queue=k.id) for k, count in zip(kernels, counts, strict=True))
        )

    def _curve(self, view: View, kernel: KernelView) -> Curve:
        most = useful_blocks(kernel, view.gpu.sm_count)
        return kept_points([view.solo_rate(kernel.id, blocks) for blocks in range(1, most + 1)])

    def _slice(self, view: View, curves: Sequence[Curve]) -> list[int] | None:
        """Blocks of each kernel on an SM; None: split the SMs instead."""
        room, needs = capacity(view.gpu), [need(kernel) for kernel in view.kernels]
        solve = water_fill if self.objective == "maxmin" else best_sum
        counts = solve(curves, lambda tried: fits(room, needs, tried))
        if counts is None:
            return None
        allowed = 1.2 / len(curves) if self.loss is None else self.loss
        least = min(progress_at(curve, count) for curve, count in zip(curves, counts, strict=True))
        return counts if 1.0 - least <= allowed else None
