"""Lower bounds of one kernel and of one operation: the time that each takes, and the work that it asks of resources.

Everything here holds in the model's own replays, whatever runs beside a kernel and however its blocks are placed:

* An isolated kernel whose blocks are resident as evenly as they fit makes the most progress that it ever can. Other
  kernels only slow it. So it takes at least its launch latency and its blocks' work at that pace.
* A tile is the work of one block at a time. So some block and some SM run at least their share of the tiles, rounded
  up, and no block and no SM is faster than the fastest number of blocks of the kernel makes it.
* What the blocks on an SM use of its issue slots, of a pipe and of the L1 path never exceeds what these sustain
  (`gpusim.model.mixing.progress`). Kernels that different resources bind may run side by side at full speed.
* Nothing moves more than DRAM and L2 sustain.
* A block takes at least as long as one that has its SM to itself, and holds its registers, shared memory, warps and
  slot for that time; what all hold never exceeds the SMs.

The jitter of blocks follows from the kernel's seed, so the work of a launch is known. Only where a replay may jump over
waves (`gpusim.engine.skipping`) it counts some blocks as mean ones. A bound then takes those that give the least work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, sqrt

import numpy as np
import numpy.typing as npt

from gpusim.model.contention import age_shares, mix_times
from gpusim.model.kernel import KernelModel
from gpusim.trace.kernels import KernelLaunch, launch_waits

JUMPED = 40  # least blocks in a row that a replay counts as mean ones (`SKIPPED_WAVES` of `gpusim.engine.skipping`)
PRIME = 2**31 - 1  # of the jitter (`gpusim.engine.launches`)
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Least:
    """Lower bounds for one operation."""

    alone_us: float  # time on an idle GPU
    busy_us: tuple[float, float, float]  # least time for which it keeps all SMs, DRAM and L2 fully busy by itself
    idle_us: float = field(default=0.0, compare=False)  # least time before its first block runs
    # least time of each kernel, where they run one after the other; else of the whole
    steps_us: tuple[float, ...] = field(default=(), compare=False)


def least_of_kernel(model: KernelModel, *, undisturbed: bool = False) -> Least:
    """The lower bounds of one launch.

    Args:
        model: the launch.
        undisturbed: no policy takes its blocks off their SMs, so that the first one does its ramp.
    """
    works = tile_works(model)
    work = least_work(model, works)
    warps_us = work * model.demand.warps_per_scheduler * model.unit_us / model.sm_count
    first_us = _first_us(model, works) if undisturbed else 0.0
    us = model.latency_us + max(work * model.most_share_us, _busiest_us(model, works), first_us)
    busy_us = (warps_us * max(model.demand.demands), work * model.dram_share_us, work * model.l2_share_us)
    return Least(us, busy_us, model.latency_us, (us,))


def tile_works(model: KernelModel) -> Reals:
    """Work of each tile of a launch, in mean blocks; at least 0."""
    tile = np.arange(model.tiles, dtype=np.int64)
    x = _below_prime(model.seed + 1 + tile * 48271)
    x = _below_prime(x * x + 12345)
    x = _below_prime(x * 16807 + tile)
    x = _below_prime(x * x + 67890)
    works: Reals = (1.0 + model.jitter * sqrt(12.0) * (x / PRIME - 0.5)) * (model.blocks / model.tiles)
    if model.lengths:
        works *= np.array(model.lengths)[tile % model.row * len(model.lengths) // model.row]
    return np.maximum(works, 0.0)


def _below_prime(x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return x % PRIME


def may_be_jumped(model: KernelModel) -> bool:
    """Whether a replay may count some blocks of a launch as mean ones."""
    return model.blocks > JUMPED and not model.persistent and not model.lengths


def least_work(model: KernelModel, works: Reals) -> float:
    """Least work of a launch that a replay does, in mean blocks.

    Where blocks in a row, `JUMPED` or more, may count as mean ones, the work is less by what they are above the mean.
    In each stretch of `JUMPED` blocks at most two such rows begin or end, so that is no more than twice the most that
    any blocks in a row of the stretch are above the mean.
    """
    if not may_be_jumped(model):
        return float(works.sum())
    above = np.zeros(-(-len(works) // JUMPED) * JUMPED)
    above[: len(works)] = works - 1.0
    sums = np.cumsum(above.reshape(-1, JUMPED), axis=1)
    before = np.minimum.accumulate(np.minimum(np.hstack([np.zeros((len(sums), 1)), sums[:, :-1]]), 0.0), axis=1)
    shortest = max(0.0, 1.0 - sqrt(3.0) * model.jitter)
    return max(len(works) * shortest, float(works.sum() - 2.0 * np.maximum(sums - before, 0.0).max(axis=1).sum()))


def _busiest_us(model: KernelModel, works: Reals) -> float:
    """Least time of the block and of the SM that run most tiles of a launch, and of its longest tile, us."""
    if may_be_jumped(model):
        return 0.0
    pace, fastest = _paces(model)
    ordered = np.sort(works)
    of_block = max(float(ordered[-1]), float(ordered[: -(-model.tiles // model.blocks)].sum()))
    of_sm = float(ordered[: -(-model.tiles // model.sm_count)].sum())
    return max(of_block / fastest, of_sm / pace) * model.unit_us


def _first_us(model: KernelModel, works: Reals) -> float:
    """Least time of the blocks that are placed first, on one of their SMs, with their ramp, us.

    The first block of the launch is one of them, and the shortest has its SM's throughput with as many others at most.
    """
    pace, fastest = _paces(model)
    ramps = model.ramps or (0.0,) * model.blocks_per_sm
    first, shortest = float(works[0]), float(works.min())
    each = (max((first + ramp) / fastest, n * (shortest + ramp) / pace) for n, ramp in enumerate(ramps, 1))
    return min(each, default=0.0) * model.unit_us


def _paces(model: KernelModel) -> tuple[float, float]:
    """Highest throughput of an SM and of one block on it, by any number of blocks of the kernel; 1 as recorded."""
    counts = range(1, model.blocks_per_sm + 1)
    times = [mix_times([(model.demand, count)])[0] for count in counts]
    pace = max(count / time for count, time in zip(counts, times, strict=True))
    return pace, max(age_shares(n, model.age_preference)[0] / time for n, time in zip(counts, times, strict=True))


def least_of_launches(
    launches: Sequence[KernelLaunch], models: Sequence[KernelModel], *, undisturbed: bool = False
) -> Least:
    """The lower bounds of the kernels of one operation; arguments as of `least_of_kernel`."""
    each = [least_of_kernel(model, undisturbed=undisturbed) for model in models]
    ends: list[float] = []
    waiting = list(launch_waits(launches))
    for waits, one in zip(waiting, each, strict=True):
        ends.append(max((ends[at] for at in waits), default=0.0) + one.alone_us)
    sm, dram, l2 = (fsum(one.busy_us[r] for one in each) for r in range(3))
    idle = min(one.idle_us for waits, one in zip(waiting, each, strict=True) if not waits)
    in_a_row = all(launch.stream == "main" for launch in launches)
    steps = tuple(one.alone_us for one in each) if in_a_row else (max(ends),)
    return Least(max(ends), (sm, dram, l2), idle, steps)


def less_of(one: Least, other: Least) -> Least:
    """What holds wherever one of two lower bounds does."""
    sm, dram, l2 = map(min, one.busy_us, other.busy_us)
    alone, idle = min(one.alone_us, other.alone_us), min(one.idle_us, other.idle_us)
    return Least(alone, (sm, dram, l2), idle, tuple(map(min, one.steps_us, other.steps_us)))
