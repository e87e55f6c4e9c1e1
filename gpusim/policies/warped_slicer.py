"""Warped-Slicer: choose the resident blocks per SM of each kernel from its performance over resident blocks.

Xu, Jeon, Kim, Ro, Annavaram, "Warped-Slicer: efficient intra-SM slicing through dynamic resource partitioning for
GPU multiprogramming", ISCA'16. Objective, water-filling, profiling phase and fallback are implemented from their
description as recalled [M]; the water-filling was checked against brute force (3000 of 3000 random cases; a test
repeats that).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product
from math import fsum, prod, sqrt
from statistics import fmean

from gpusim.policies.interface import Grant, Partition, Policy, View, parameter
from gpusim.policies.spatial import Split, streams_now
from gpusim.policies.tools.measure import MeasuredKind, kind
from gpusim.policies.tools.memory import NO_LIMIT, mitigated, mitigation
from gpusim.policies.tools.mixes import Fits, residents_of, unshared, useful_blocks
from gpusim.policies.tools.notes import Uncounted, splits

ProgressCurve = tuple[tuple[int, float], ...]  # (blocks, normalised progress), ascending, each beating all before it

LOSS_ALLOWED = 1.2  # over the number of kernels: predicted loss of a kernel beyond which SMs are split [M]
SATURATED_DRAM = sqrt(0.5)  # share of the bandwidth served at the load at which demand is supply, at exponent 2
SATURATED_L2 = sqrt(sqrt(sqrt(0.5)))  # the same at exponent 8
MOST_COMBINATIONS = 5000  # of block counts that the search for the best sum tries; beyond, it goes step by step
GAIN = 1e-9  # relative: less than this more progress is rounding, not progress


def kept_points(progress: Sequence[float]) -> ProgressCurve:
    """The points of a curve worth choosing, normalised to its best: those that beat every smaller number of blocks.

    ``progress`` is that of an SM with 1, 2, … blocks of the kernel, in any unit.
    """
    best = max(progress)
    kept: list[tuple[int, float]] = []
    for blocks, value in enumerate(progress, 1):
        if value > 0.0 and (not kept or value > kept[-1][1] * best * (1.0 + GAIN)):
            kept.append((blocks, value / best))
    return tuple(kept)


def water_fill(curves: Sequence[ProgressCurve], fits_together: Fits) -> list[int] | None:
    """Return block counts that make the least normalised progress as large as can be; None where none fit together.

    All kernels start at their first point; the one with the least progress moves to its next point as long as that
    fits, else it stays. At most (points x kernels) steps.
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


def best_sum(curves: Sequence[ProgressCurve], fits_together: Fits) -> list[int] | None:
    """Return block counts with the largest sum of normalised progress (STP by the curves); None as of `water_fill`.

    Every combination is tried where there are few; else the step with the largest gain is taken, again and again [D].
    Of equal sums it is the one whose lower progress is higher.
    """
    if not fits_together([curve[0][0] for curve in curves]):
        return None
    if prod(len(curve) for curve in curves) > MOST_COMBINATIONS:
        return _steepest(curves, fits_together)
    best: list[int] | None = None
    best_score = (-1.0, -1.0)
    for points in product(*curves):
        values = [progress for _, progress in points]
        score = (fsum(values), min(values))
        if score > best_score and fits_together([blocks for blocks, _ in points]):
            best, best_score = [blocks for blocks, _ in points], score
    return best


def _steepest(curves: Sequence[ProgressCurve], fits_together: Fits) -> list[int]:
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


def progress_at(curve: ProgressCurve, blocks: int) -> float:
    """Normalised progress that a curve predicts for a number of blocks: its last point up to there."""
    return max((value for count, value in curve if count <= blocks), default=0.0)


def loss_allowed(kernels: int) -> float:
    """Largest predicted loss of a kernel with which K kernels share SMs: the paper's 1.2 / K [M].

    60 % for two kernels, 30 % for four. A kernel that scales with its SMs keeps 1 / K of its progress in an even SM
    split. For many kernels the rule therefore splits SMs where slicing would have cost less.
    """
    return min(1.0, LOSS_ALLOWED / kernels)


@dataclass
class _Sampling:
    """A profiling phase: blocks of each kernel on each SM, and each SM's progress when the sample began."""

    kernels: tuple[int, ...]
    layout: dict[int, tuple[int, ...]]
    until_us: float
    before: dict[int, list[float]] | None = None


@dataclass
class WarpedSlicer(Policy):
    """Blocks per SM by water-filling over the kernels' curves; SM split where that would cost one too much.

    A kernel that the same stream launches again is not profiled again [D].
    """

    name = "warped-slicer"
    validated_as = ("quota", "green")
    family = "intra-sm"
    summary = (
        "blocks of each kernel on every SM so that the least progress, relative to the kernel's own best, is largest; "
        "SM split where one would lose too much (Xu et al., ISCA'16)"
    )
    objective: str = parameter("maxmin", "maxmin (the paper's) or stp (largest sum)", one_of=("maxmin", "stp"))
    curve: str = parameter(
        "oracle",
        "oracle (from the model) or profiled (SMs run 1, 2, … blocks of one kernel for a while)",
        one_of=("oracle", "profiled"),
    )
    loss: float | None = parameter(
        None,
        "predicted loss of a kernel beyond which SMs are split instead; default 1.2 / kernels, the paper's",
        least=0,
        most=1,
    )
    mitigation: str = mitigation()
    warmup_cycles: int = parameter(20_000, "before sampling, SM clock cycles (profiled)", least=0)
    sample_cycles: int = parameter(5_000, "sampled, SM clock cycles (profiled)", least=1)
    _profiled: dict[MeasuredKind, ProgressCurve] = field(default_factory=dict, init=False, repr=False)
    _oracle: dict[tuple[int, int], ProgressCurve] = field(default_factory=dict, init=False, repr=False)
    _in_vain: set[int] = field(default_factory=set, init=False, repr=False)
    _sampling: _Sampling | None = field(default=None, init=False, repr=False)
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _fell_back: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _sampled: Uncounted = field(default_factory=Uncounted, init=False, repr=False)
    _mitigated: Uncounted = field(default_factory=Uncounted, init=False, repr=False)
    _decisions: int = field(default=0, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Slice every SM anew; a stream that is alone gets everything."""
        if len(streams_now(view)) < 2:
            self._sampling = None
            return unshared(view)
        self._decisions += 1
        if self.curve == "oracle":
            sought = [(kernel.id, useful_blocks(kernel, view.gpu.sm_count)) for kernel in view.kernels]
            self._oracle = {
                (id, most): self._oracle.get((id, most))
                or kept_points([view.solo_rate(id, blocks) for blocks in range(1, most + 1)])
                for id, most in sought
            }
            return self._sliced(view, list(self._oracle.values()))
        if any(kind(kernel) not in self._profiled and kernel.id not in self._in_vain for kernel in view.kernels):
            return self._sample(view)
        return self._as_profiled(view)

    def notes(self) -> tuple[str, ...]:
        """How often SMs were split instead of sliced, and why; and whether counters were missing."""
        return (
            *splits(self._fell_back, self._decisions),
            *self._sampled.notes("their samples count as if memory had not been saturated"),
            *self._mitigated.notes(NO_LIMIT),
            *self._split.notes(),
        )

    def _as_profiled(self, view: View) -> Partition:
        """Slice by the samples of each kernel; empty if no SM sampled it."""
        return self._sliced(view, [self._profiled.get(kind(kernel), ()) for kernel in view.kernels])

    def _sliced(self, view: View, curves: Sequence[ProgressCurve]) -> Partition:
        counts = self._slice(view, curves)
        if counts is None:
            return self._split.evenly(view)
        grants = [Grant(k.id, count, queue=k.id) for k, count in zip(view.kernels, counts, strict=True)]
        return Partition(tuple(mitigated(view, grants, self.mitigation, self._mitigated)))

    def _slice(self, view: View, curves: Sequence[ProgressCurve]) -> list[int] | None:
        """Blocks of each kernel on an SM; None: split the SMs instead."""
        if not all(curves):
            self._fell_back["no SM came to sample one of the kernels"] += 1
            return None
        solve = water_fill if self.objective == "maxmin" else best_sum
        counts = solve(curves, residents_of(view.gpu, view.kernels))
        if counts is None:
            self._fell_back["the kernels do not fit together on an SM"] += 1
            return None
        allowed = loss_allowed(len(curves)) if self.loss is None else self.loss
        least = min(progress_at(curve, count) for curve, count in zip(curves, counts, strict=True))
        if 1.0 - least <= allowed:
            return counts
        self._fell_back[f"slicing would cost a kernel more than the {100.0 * allowed:.0f} % allowed"] += 1
        return None

    def _sample(self, view: View) -> Partition:
        """Go on with the profiling phase, or start it when other kernels run than those it was for."""
        ids = tuple(kernel.id for kernel in view.kernels)
        cycles_per_us = view.gpu.boost_clock_mhz
        sample_us = self.sample_cycles / cycles_per_us
        if self._sampling is None or self._sampling.kernels != ids:
            self._sampling = _Sampling(ids, _layout(view), view.now_us + self.warmup_cycles / cycles_per_us)
        sampling = self._sampling
        if view.now_us >= sampling.until_us - 1e-9:
            if sampling.before is not None:
                self._sampling = None
                self._sampled.ask(view.kernels)
                for kernel, curve in zip(view.kernels, _sampled_curves(view, sampling, sample_us), strict=True):
                    if curve:
                        self._profiled[kind(kernel)] = curve
                    else:
                        self._in_vain.add(kernel.id)
                return self._as_profiled(view)
            sampling.before = {kernel: list(view.progress(kernel)) for kernel in ids}
            sampling.until_us = view.now_us + sample_us
        grants = [
            Grant(kernel, queue=kernel, tenant=n, per_sm=targets)
            for n, (kernel, targets) in enumerate(sampling.layout.items())
        ]
        return Partition(tuple(grants), wake_us=sampling.until_us)


def _layout(view: View) -> dict[int, tuple[int, ...]]:
    """The SMs in equal parts, one for each kernel. In each part the first SM runs 1 block, the next 2, and so on."""
    sms, kernels = view.gpu.sm_count, view.kernels
    layout = {}
    for n, kernel in enumerate(kernels):
        first, last = n * sms // len(kernels), (n + 1) * sms // len(kernels)
        most = useful_blocks(kernel, sms)
        layout[kernel.id] = tuple((sm - first) % most + 1 if first <= sm < last else 0 for sm in range(sms))
    return layout


def _sampled_curves(view: View, sampling: _Sampling, sample_us: float) -> list[ProgressCurve]:
    """Curves from what SMs did that held just what they were to sample; empty where no SM did.

    Where memory was saturated, an SM with few blocks got less than its even share of the bandwidth while sampling, one
    with many more. Its sample counts (1 + phi psi) times [M/D]. phi is the kernel's share of stalls that wait
    for memory; psi is the mean number of blocks of the sampled SMs over its own, less 1. If the memory was not
    saturated, each SM had the bandwidth that it demanded.
    """
    before = sampling.before or {}
    samples: list[list[tuple[int, float]]] = []
    dram_us = l2_us = 0.0
    for kernel in view.kernels:
        held = view.residents(kernel.id)
        done = [now - then for now, then in zip(view.progress(kernel.id), before[kernel.id], strict=True)]
        dram_us += fsum(done) * kernel.dram_us
        l2_us += fsum(done) * kernel.l2_us
        targets = enumerate(sampling.layout[kernel.id])
        samples.append([(target, max(0.0, done[sm])) for sm, target in targets if target and held[sm] == target])
    blocks = [target for found in samples for target, _ in found]
    mean = fmean(blocks) if blocks else 0.0
    saturated = dram_us >= SATURATED_DRAM * sample_us or l2_us >= SATURATED_L2 * sample_us
    return [
        _points(found, mean, kernel.memory_stall_share if saturated else 0.0)
        for kernel, found in zip(view.kernels, samples, strict=True)
    ]


def _points(samples: Sequence[tuple[int, float]], mean_blocks: float, stall_share: float) -> ProgressCurve:
    """The curve of a kernel from (blocks, progress) of the SMs that sampled it."""
    most = max((target for target, _ in samples), default=0)
    progress = []
    for blocks in range(1, most + 1):
        found = [done for target, done in samples if target == blocks]
        corrected = 1.0 + stall_share * (mean_blocks / blocks - 1.0)
        progress.append(corrected * fsum(found) / len(found) if found else 0.0)
    return kept_points(progress) if any(progress) else ()
