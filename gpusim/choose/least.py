"""Lower bounds of one kernel and of one operation: the time that each takes, and the work that it asks of resources.

Everything here holds in the model's own replays, whatever runs beside a kernel and however its blocks are placed:

* Other kernels only slow a kernel down. So the rate of its blocks has an upper limit, which depends on how many of them
  an SM holds, and on the load of all of them on L2 and DRAM. A kernel takes at least its launch latency and the least
  time in which states of the GPU do its work (`_Pace`).
* Some SM runs at least the mean number of blocks of all SMs. The block that starts there last is the youngest until it
  ends. Before it started, one of the places on the SM had run its share of the other blocks.
* A tile is the work of one block at a time. So some block runs at least its share of the tiles, rounded up.
* What the blocks on an SM use of its issue slots, of a pipe and of the L1 path never exceeds what these sustain
  (`gpusim.model.mixing.progress`). Kernels that different resources bind may run side by side at full speed.
* Nothing moves more than DRAM and L2 sustain.
* A block that starts before any of its launch has ended has a ramp (`_Pace.ramp`); the others wait for that end.
* A block takes at least as long as one that has its SM to itself, and holds its registers, shared memory, warps and
  slot for that time; what all hold never exceeds the SMs.

The jitter of blocks follows from the kernel's seed, so the work of a launch is known. Only where a replay may jump over
waves (`gpusim.engine.skipping`) it counts some blocks as mean ones. A bound then takes those that give the least work.
A jump lasts for a wave at least, and begins with more than `JUMPED` blocks waiting for each resident one. So it passes
a wave of few blocks, and all others take what they take with any number of them resident.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, inf, sqrt
from typing import NamedTuple

import numpy as np

from gpusim.choose.simplex import Reals, maximum
from gpusim.model.clock import power_cycle
from gpusim.model.contention import age_shares, mix_times
from gpusim.model.kernel import KernelModel
from gpusim.trace.kernels import KernelLaunch, launch_waits

JUMPED = 40  # least blocks in a row that a replay counts as mean ones (`SKIPPED_WAVES` of `gpusim.engine.skipping`)
# lower ends of the ranges of throughput, over the highest
RANGES = (0.0, 0.4, 0.6, 0.7, 0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995)
PRIME = 2**31 - 1  # of the jitter (`gpusim.engine.launches`)


class KernelBounds(NamedTuple):
    """Lower bounds for one kernel of an operation; for all of them where they do not run one after the other."""

    us: float  # least time
    wait_us: float  # of it before the blocks
    # for which its blocks keep all SMs busy if they share none with other kernels: on fewer SMs longer, in proportion;
    # 0 for blocks that no stream confines to its SMs
    spread_us: float


@dataclass(frozen=True, slots=True)
class Least:
    """Lower bounds for one operation."""

    alone_us: float  # time on an idle GPU
    busy_us: tuple[float, float, float]  # least time for which it keeps all SMs, DRAM and L2 fully busy by itself
    idle_us: float = field(default=0.0, compare=False)  # least time before its first block runs
    steps: tuple[KernelBounds, ...] = field(default=(), compare=False)


def least_of_kernel(model: KernelModel, *, undisturbed: bool = False) -> Least:
    """The lower bounds of one launch.

    ``undisturbed``: no policy takes its blocks off their SMs, so that the first one does its ramp.
    """
    works = tile_works(model)
    work = least_work(model, works)
    warps_us = work * model.demand.warps_per_scheduler * model.unit_us / model.sm_count
    pace = _Pace(model)
    us = model.latency_us + _blocks_us(model, works, work, pace, undisturbed=undisturbed)
    busy_us = (warps_us * max(model.demand.demands), work * model.dram_share_us, work * model.l2_share_us)
    return Least(us, busy_us, model.latency_us, (KernelBounds(us, model.latency_us, pace.spread_us(work)),))


def tile_works(model: KernelModel) -> Reals:
    """Work of each tile of a launch, in mean blocks; at least 0."""
    tile = np.arange(model.tiles, dtype=np.int64)
    x = (model.seed + 1 + tile * 48271) % PRIME
    x = (x * x + 12345) % PRIME
    x = (x * 16807 + tile) % PRIME
    x = (x * x + 67890) % PRIME
    works: Reals = (1.0 + model.jitter * sqrt(12.0) * (x / PRIME - 0.5)) * (model.blocks / model.tiles)
    if model.lengths:
        works *= np.array(model.lengths)[tile % model.row * len(model.lengths) // model.row]
    return np.maximum(works, 0.0)


def may_be_jumped(model: KernelModel) -> bool:
    """Whether a replay may count some blocks of a launch as mean ones."""
    return model.blocks > JUMPED and not model.persistent and not model.lengths


def least_work(model: KernelModel, works: Reals) -> float:
    """Least work of a launch that a replay does, in mean blocks.

    A jump counts `JUMPED` blocks in a row or more as mean ones. If their work is above the mean, the excess is lost. At
    most two such rows begin or end in a stretch of `JUMPED` blocks. So each stretch loses at most twice the largest
    excess of any of its blocks in a row.
    """
    if not may_be_jumped(model):
        return float(works.sum())
    above = np.zeros(-(-len(works) // JUMPED) * JUMPED)
    above[: len(works)] = works - 1.0
    sums = np.cumsum(above.reshape(-1, JUMPED), axis=1)
    before = np.minimum.accumulate(np.minimum(np.hstack([np.zeros((len(sums), 1)), sums[:, :-1]]), 0.0), axis=1)
    shortest = max(0.0, 1.0 - sqrt(3.0) * model.jitter)
    return max(len(works) * shortest, float(works.sum() - 2.0 * np.maximum(sums - before, 0.0).max(axis=1).sum()))


def _blocks_us(model: KernelModel, works: Reals, work: float, pace: _Pace, *, undisturbed: bool) -> float:
    """Lower bound on the makespan of a launch's blocks, us; ``works``: of each tile, ``work``: least in total."""
    ordered = np.sort(works)
    in_a_row = float(ordered[: -(-model.tiles // model.blocks)].sum())  # of the block that runs most tiles
    longest = max(in_a_row, float(ordered[-1]))
    if not undisturbed:
        return pace.least_us(_Share(work, first=0.0 if may_be_jumped(model) else longest))
    ramp, late_us = pace.ramp(float(ordered[0]))
    on_one_sm_us = _on_one_sm_us(model, ordered, work, pace, ramp)
    if may_be_jumped(model):
        of_blocks = min(pace.least_jumped_us(work), on_one_sm_us)
    else:
        of_blocks = max(pace.least_us(_Share(work, first=longest + ramp)), on_one_sm_us)
    return max(of_blocks, pace.least_us(_Share(work)) + late_us)


def _on_one_sm_us(model: KernelModel, ordered: Reals, work: float, pace: _Pace, ramp: float) -> float:
    """Least time of the SM that runs most blocks or tiles of a launch, us; it runs at least the mean of all SMs."""
    if model.persistent:
        tiles = -(-model.tiles // min(model.blocks, model.sm_count))  # one after the other where SMs hold one block
        in_a_row = float(ordered[:tiles].sum())
        return pace.least_us(_Share(work, first=in_a_row + ramp)) if model.blocks_per_sm == 1 else 0.0
    fewest = -(-model.blocks // model.sm_count)
    found = inf
    for count in range(fewest, max(fewest, model.blocks_per_sm) + 1):
        before = -(-count // model.blocks_per_sm) - 1  # blocks that one place ran before the last block started
        first, on_sm = float(ordered[:before].sum()), float(ordered[:count].sum()) + ramp
        found = min(found, pace.least_us(_Share(work, first, float(ordered[0]), on_sm, count)))
    return found


@dataclass(frozen=True, slots=True)
class _Share:
    """Work that must be done while a launch runs, in mean blocks, and by whom."""

    all: float  # by all SMs
    first: float = 0.0  # by blocks in a row, before the last block on their SM starts
    last: float = 0.0  # by the block that starts last on that SM: it is the youngest there until it ends
    sm: float = 0.0  # by that SM
    most: int = sys.maxsize  # blocks that ever run on it


class _Pace:
    """How fast a launch works, in any state of the GPU: a linear program gives the least time of some work.

    A state is how many of its blocks one SM holds, and a range of the throughput of all SMs together. What the launch
    itself loads L2 and DRAM at the lower end slows it, and so does its power; all else only slows it more. The upper
    end limits the work. The dual of the program has a price for each kind of work. Any prices that earn no more than 1
    per us in any state prove that the work takes as long as it is worth.
    """

    def __init__(self, model: KernelModel) -> None:
        self.model, self.times = model, block_times(model)
        paces = [count / time for count, time in enumerate(self.times, 1)]
        self.best = max(paces)  # of an SM
        most = model.sm_count * _concave_at(paces, model.blocks / model.sm_count)
        low = most * np.array(RANGES)
        self.high = np.append(low[1:], most)
        self.slowdown = np.array([self._slowdown(float(one)) for one in low]) * model.unit_us
        self.whole = self.high / self.slowdown  # of all SMs, blocks per us

    def _slowdown(self, throughput: float) -> float:
        """By its own loads at a throughput, and by the power of as many blocks as that takes at least."""
        model = self.model
        power = throughput * min(self.times) * model.block_power if model.held_clock < 1.0 else 0.0
        dram, l2 = throughput * model.load.dram, throughput * model.load.l2
        return model.slowdown(dram, l2, 1.0, power_cycle(power))

    def least_us(self, share: _Share) -> float:
        """The least time of some work, us."""
        states = []
        for count, time in enumerate(self.times[: share.most], 1):
            shares = age_shares(count, self.model.age_preference, max(1.0, time / self.times[0]))
            # others slow the SM where all SMs together do no more than it could
            on_sm = np.minimum(count / time, self.high) / self.slowdown
            none = np.zeros(len(on_sm))
            if count < share.most:
                states.append(np.column_stack([self.whole, on_sm * shares[0] / count, none, on_sm]))
            states.append(np.column_stack([self.whole, none, on_sm * shares[-1] / count, on_sm]))
        asked = np.array([share.all, share.first, share.last, share.sm])
        return _least_us(np.vstack(states), asked)

    def spread_us(self, work: float) -> float:
        """The least time in which all SMs together can do some work, us."""
        return work * float(self.slowdown[0]) / self.best / self.model.sm_count

    def ramp(self, shortest: float) -> tuple[float, float]:
        """Return what ramps add, at least: to the work of one SM or block, and to the time of all SMs, us.

        Blocks have a ramp if they start before any has ended. A block or SM that starts later waits for that end. While
        it does, the block that ends first does its ramp and the ``shortest`` work.

        Until that end, an SM with n blocks works at n ramps, which take it as long whatever n is (`KernelModel.ramps`),
        or it holds none. So either all SMs together are late by a ramp, or a block has ended sooner, and before that
        end all work was ramps at most. An SM may have held fewer blocks before, and then have worked faster: its pace
        counts as the highest of all numbers up to n.
        """
        if not self.model.ramps:
            return 0.0, 0.0
        ramps, paces = np.array(self.model.ramps), np.arange(1, len(self.times) + 1) / np.array(self.times)
        preference, first = self.model.age_preference, self.times[0]
        oldest = [age_shares(n, preference, max(1.0, t / first))[0] / t for n, t in enumerate(self.times, 1)]
        until_end = float(((shortest + ramps) / np.maximum.accumulate(oldest)).min())
        whole = float(ramps[0]) * self.times[0] * float((paces / np.maximum.accumulate(paces)).min())
        return min(float(ramps.min()), until_end / self.times[0]), min(whole, until_end) * float(self.slowdown[0])

    def least_jumped_us(self, work: float) -> float:
        """The least time where a replay jumps over waves: for one wave at least, of few blocks of the launch."""
        few = self.model.blocks / (JUMPED + 2)  # resident while it jumps, at most
        wave_us = min(self.times) * float(self.slowdown[0])
        return wave_us + max(0.0, work - few) / float(self.whole.max())


def _least_us(states: Reals, asked: Reals) -> float:
    """Least time of some work of each kind; ``states`` has how much of it each state does per us."""
    of_each = states.max(axis=0)
    kinds = (asked > 0.0) & (of_each > 0.0)
    if not kinds.any():
        return 0.0
    rates, worth = states[:, kinds] / of_each[kinds], asked[kinds] / of_each[kinds]
    prices = maximum(worth / worth.max(), rates, np.ones(len(rates)))
    earned = float((rates @ prices).max())
    return float(worth @ prices) / earned if earned > 0.0 else float(worth.max())


def _concave_at(paces: Sequence[float], mean: float) -> float:
    """Highest mean throughput of SMs that hold so many blocks on the mean, each any number of them."""
    points = list(enumerate((0.0, *paces)))
    within = [(a, b) for a in points for b in points if a[0] <= mean < b[0]]
    between = (a[1] + (b[1] - a[1]) * (mean - a[0]) / (b[0] - a[0]) for a, b in within)
    return max(*(pace for count, pace in points if count <= mean), *between, 0.0)


def block_times(model: KernelModel) -> list[float]:
    """Time of a block on an SM that holds 1, 2, … blocks of the kernel and no others; 1 as recorded."""
    return [mix_times([(model.demand, count)])[0] for count in range(1, model.blocks_per_sm + 1)]


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
    steps = tuple(step for one in each for step in one.steps) if in_a_row else (KernelBounds(max(ends), 0.0, 0.0),)
    return Least(max(ends), (sm, dram, l2), idle, steps)


def less_of(one: Least, other: Least) -> Least:
    """What holds wherever one of two lower bounds does."""
    sm, dram, l2 = map(min, one.busy_us, other.busy_us)
    alone, idle = min(one.alone_us, other.alone_us), min(one.idle_us, other.idle_us)
    steps = tuple(KernelBounds(*map(min, a, b)) for a, b in zip(one.steps, other.steps, strict=True))
    return Least(alone, (sm, dram, l2), idle, steps)
