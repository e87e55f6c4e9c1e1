"""Counters for kernels that a profiler left out, from counted launches of the same kernel in the same profile.

A name only recognises the same kernel again. No demand is derived from it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import Any

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import GPU
from gpusim.io.ncu import trimmed
from gpusim.io.timeline import Activity, LaunchedKernel
from gpusim.model.occupancy import most_resident, occupancy
from gpusim.trace.kernels import Mix

Kind = tuple[Any, ...]
Grid = tuple[int, int, int]

SAME_WORK = 2.0  # ratio of the times of two launches' blocks up to which their blocks do the same work [D]
WORK = (  # fields of a mix that are work of a block
    *("issue_cycles", "alu_cycles", "fma_cycles", "tensor_cycles", "lsu_cycles", "l1_cycles"),
    *("multiply_cycles", "special_cycles", "double_cycles", "sm_cycles", "warp_instructions"),
    *("l1_read_bytes", "l1_write_bytes", "l2_bytes", "l2_read_bytes", "l2_write_bytes", "l2_busy_us"),
    *("dram_read_bytes", "dram_write_bytes"),
)
OF_THE_GRID = ("active_cycles_min", "l1_hit_percent", "l2_hit_percent")  # what another grid does not share


@dataclass(frozen=True)
class TimelineKernel:
    """A kernel of a timeline."""

    number: int  # index of the activity on the timeline
    work: LaunchedKernel  # the launch
    duration_us: float  # recorded time on the timeline, above 0
    gpu: GPU  # the GPU that ran it

    @property
    def kind(self) -> Kind:
        """What launches of one kernel have in common, whatever their grid."""
        work = self.work
        shared = work.static_shared_memory_bytes, work.dynamic_shared_memory_bytes
        return work.name, work.block, work.registers_per_thread, *shared

    @cached_property
    def blocks(self) -> int:
        """Thread blocks of the launch."""
        x, y, z = self.work.grid
        return x * y * z

    @cached_property
    def working_us(self) -> float:
        """Time in which blocks run: the duration less the launch latency, at least half of it [D]."""
        return max(self.duration_us - self.gpu.model.launch_latency_us, 0.5 * self.duration_us)

    @cached_property
    def blocks_per_sm(self) -> int:
        """Blocks that one SM holds, at least 1."""
        x, y, z = self.work.block
        fit = occupancy(
            self.gpu,
            threads_per_block=x * y * z,
            registers_per_thread=self.work.registers_per_thread,
            shared_memory_per_block=self.work.static_shared_memory_bytes + self.work.dynamic_shared_memory_bytes,
        )
        return max(1, fit.blocks_per_sm)

    @cached_property
    def most_resident(self) -> int:
        """Most blocks on one SM at once."""
        return most_resident(self.blocks, self.blocks_per_sm, self.gpu.sm_count)

    @cached_property
    def block_us(self) -> float:
        """Mean time of one block."""
        return self.working_us * min(1.0, self.blocks_per_sm * self.gpu.sm_count / self.blocks)

    @property
    def busy_sms(self) -> float:
        """Share of the SMs that get a block."""
        return min(1.0, self.blocks / self.gpu.sm_count)

    def distance(self, other: TimelineKernel) -> tuple[bool, float, int]:
        """How far another launch of the same kernel is from this one; the nearest lends its counters.

        Launches with the same grid come first, those nearest in time before others. Then come those that are
        nearest in blocks and in the time of a block, by the sum of both ratios. Ties go to the nearest in order.
        """
        ratios = _ratio(self.blocks, other.blocks) + _ratio(self.block_us, other.block_us)
        return other.work.grid != self.work.grid, ratios, abs(self.number - other.number)


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Demands that kernels borrow, by the index of the activity on the timeline."""

    same: Mapping[int, Mix]  # counters of a launch with the same grid
    other: Mapping[int, Mix]  # estimates from the counters of a launch with another grid


def borrow(activities: Sequence[Activity], counted: Mapping[int, Mix], gpu: GPU) -> Borrowed:
    """Demands of kernels without counters, as far as the same kernel was counted elsewhere.

    The same kernel has the same name, block, registers and shared memory.

    ``counted`` has the demands of the counted kernels, by the index of the activity.
    """
    runs = [
        TimelineKernel(n, one.work, one.duration_us, gpu)
        for n, one in enumerate(activities)
        if isinstance(one.work, LaunchedKernel) and one.duration_us > 0.0 and min(*one.work.grid, *one.work.block) > 0
    ]
    lenders: dict[Kind, dict[Grid, list[TimelineKernel]]] = defaultdict(lambda: defaultdict(list))
    for run in sorted((run for run in runs if run.number in counted), key=_time_and_order):
        lenders[run.kind][run.work.grid].append(run)
    same, other = dict[int, Mix](), dict[int, Mix]()
    for run in runs:
        if run.number in counted or run.kind not in lenders:
            continue
        grids = lenders[run.kind]
        offers = [grids[run.work.grid]] if run.work.grid in grids else grids.values()
        lender = min((one for offer in offers for one in _nearest(run, offer)), key=run.distance)
        mix = counted[lender.number]
        if lender.work.grid == run.work.grid:
            same[run.number] = _of_same_grid(mix, run, lender)
        else:
            with suppress(InputError):  # a time so far off that no trace can hold the work
                other[run.number] = _of_other_grid(mix, run, lender)
    return Borrowed(same, other)


def _time_and_order(run: TimelineKernel) -> tuple[float, int]:
    return run.block_us, run.number


def _nearest(run: TimelineKernel, lenders: Sequence[TimelineKernel]) -> Iterator[TimelineKernel]:
    """Those of one grid that may be nearest to a launch: in time, and among equal times in order."""
    at = bisect_left(lenders, run.block_us, key=lambda one: one.block_us)
    for us in {one.block_us: None for one in lenders[max(0, at - 1) : at + 1]}:
        found = bisect_left(lenders, (us, run.number), key=_time_and_order)
        yield from lenders[max(0, found - 1) : found + 1]


def _ratio(one: float, other: float) -> float:
    """How far apart two positive numbers are, on a logarithmic scale."""
    return abs(log(one / other))


def _of_same_grid(mix: Mix, run: TimelineKernel, lender: TimelineKernel) -> Mix:
    """The counters as they are; the time of L2 in proportion to the time, as for the launch that was counted."""
    if not mix.l2_busy_us:
        return mix
    return mix.model_copy(update={"l2_busy_us": trimmed(mix.l2_busy_us * run.duration_us / lender.duration_us)})


def _of_other_grid(mix: Mix, run: TimelineKernel, lender: TimelineKernel) -> Mix:
    """Return the demand of a block in a launch with another grid.

    Its work stays the same if the time of a block is within a factor of `SAME_WORK`. Otherwise the block is assumed to
    work at the same pace [D]. Active cycles follow the time and the share of the SMs that get a block, resident warps
    the most blocks that an SM holds. Hit rates and the least active cycles do not carry over.
    """
    slower = run.block_us / lender.block_us
    longer = run.working_us / lender.working_us
    factors = dict.fromkeys(WORK, 1.0 if 1.0 / SAME_WORK < slower < SAME_WORK else slower)
    factors["active_cycles_max"] = longer
    factors["active_cycles_avg"] = longer * run.busy_sms / lender.busy_sms
    factors["achieved_warps_per_sm"] = run.most_resident / lender.most_resident
    known = {name: getattr(mix, name) for name in factors}
    update: dict[str, Any] = {
        name: trimmed(known[name] * by) for name, by in factors.items() if known[name] is not None
    }
    update |= dict.fromkeys(OF_THE_GRID)
    if mix.cluster is not None and any(n % size for n, size in zip(run.work.grid, mix.cluster, strict=True)):
        update["cluster"] = None
    return Mix(**dict(mix) | update | {"estimated": True})
