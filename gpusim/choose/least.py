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

from gpusim.model.contention import SHARED, age_shares, mix_times
from gpusim.model.kernel import KernelModel
from gpusim.trace.kernels import KernelLaunch, launch_waits

HELD = ("registers", "shared memory", "warps", "block slots")  # what resident blocks hold of an SM
SM_RESOURCES = {"issue": "issue slots", "alu": "ALU", "fma": "FMA", "tensor": "tensor cores", "l1": "L1"}
JUMPED = 40  # least blocks in a row that a replay counts as mean ones (`SKIPPED_WAVES` of `gpusim.engine.skipping`)
PRIME = 2**31 - 1  # of the jitter (`gpusim.engine.launches`)
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Least:
    """Lower bounds for one operation."""

    alone_us: float  # time on an idle GPU
    busy_us: tuple[float, float, float]  # least time for which it keeps all SMs, DRAM and L2 fully busy by itself
    # least time for which it keeps each of `SM_RESOURCES` fully busy on all SMs
    used_us: tuple[float, ...] = field(default=(0.0,) * len(SM_RESOURCES), compare=False)
    # least time for which it holds all of each of `HELD` on all SMs
    held_us: tuple[float, ...] = field(default=(0.0,) * len(HELD), compare=False)
    idle_us: float = field(default=0.0, compare=False)  # least time before its first block runs

    @property
    def resources_us(self) -> tuple[float, ...]:
        """Times that it takes of each resource, in the order of `PARTS` from the second on."""
        return (*self.used_us, *self.busy_us[1:], *self.held_us)


def least_of_kernel(model: KernelModel, capacity: Sequence[int] = (), issue_share: float = 1.0) -> Least:
    """The lower bounds of one launch.

    Args:
        model: the launch.
        capacity: what an SM has of each of `HELD`; empty: what blocks hold is not bounded.
        issue_share: share of the issue slots that kernels sustain; where a pipe binds they may all be busy.
    """
    works = tile_works(model)
    work = least_work(model, works)
    demands = model.demand.demands
    warps_us = work * model.demand.warps_per_scheduler * model.unit_us / model.sm_count
    used = [demands[SHARED.index(f"{name}_cycles")] for name in SM_RESOURCES]
    used[0] *= issue_share
    block_us = mix_times([(model.demand, 1)])[0] * model.unit_us
    shares = [need / most for need, most in zip(model.need, capacity, strict=True)] if capacity else [0.0] * len(HELD)
    return Least(
        model.latency_us + max(work * model.most_share_us, _busiest_us(model, works)),
        (warps_us * max(demands), work * model.dram_share_us, work * model.l2_share_us),
        tuple(warps_us * one for one in used),
        tuple(work * block_us * share / model.sm_count for share in shares),
        model.latency_us,
    )


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
    counts = range(1, model.blocks_per_sm + 1)
    times = [mix_times([(model.demand, count)])[0] for count in counts]
    pace = max(count / time for count, time in zip(counts, times, strict=True))
    fastest = max(age_shares(n, model.age_preference)[0] / time for n, time in zip(counts, times, strict=True))
    if may_be_jumped(model):
        return 0.0
    ordered = np.sort(works)
    of_block = max(float(ordered[-1]), float(ordered[: -(-model.tiles // model.blocks)].sum()))
    of_sm = float(ordered[: -(-model.tiles // model.sm_count)].sum())
    return max(of_block / fastest, of_sm / pace) * model.unit_us


def least_of_launches(
    launches: Sequence[KernelLaunch],
    models: Sequence[KernelModel],
    capacity: Sequence[int] = (),
    issue_share: float = 1.0,
) -> Least:
    """The lower bounds of the kernels of one operation; arguments as of `least_of_kernel`."""
    each = [least_of_kernel(model, capacity, issue_share) for model in models]
    ends: list[float] = []
    waiting = list(launch_waits(launches))
    for waits, one in zip(waiting, each, strict=True):
        ends.append(max((ends[at] for at in waits), default=0.0) + one.alone_us)
    sm, dram, l2 = (fsum(one.busy_us[r] for one in each) for r in range(3))
    used = tuple(fsum(one.used_us[r] for one in each) for r in range(len(SM_RESOURCES)))
    held = tuple(fsum(one.held_us[r] for one in each) for r in range(len(HELD)))
    idle = min(one.idle_us for waits, one in zip(waiting, each, strict=True) if not waits)
    return Least(max(ends), (sm, dram, l2), used, held, idle)


def less_of(one: Least, other: Least) -> Least:
    """What holds wherever one of two lower bounds does."""
    sm, dram, l2 = map(min, one.busy_us, other.busy_us)
    return Least(
        min(one.alone_us, other.alone_us),
        (sm, dram, l2),
        tuple(map(min, one.used_us, other.used_us)),
        tuple(map(min, one.held_us, other.held_us)),
        min(one.idle_us, other.idle_us),
    )
