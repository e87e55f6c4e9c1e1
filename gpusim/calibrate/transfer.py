"""A kernel on another GPU than it was recorded on: demands stay, rates and limits are the target's. Not validated."""

from __future__ import annotations

from dataclasses import replace

from gpusim.calibrate.fit import carveout
from gpusim.calibrate.launchable import fitting_occupancy
from gpusim.engine.sm_array import run_alone
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import MemoryLoad, demand_elsewhere
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import footprint
from gpusim.trace.kernels import KernelLaunch


def transferred(model: KernelModel, launch: KernelLaunch, source: GPU, target: GPU, place: str) -> KernelModel:
    """The kernel on another GPU.

    `demand_elsewhere` says what its warps demand of an SM; memory loads scale with the sustained bandwidth of DRAM and,
    on another chip and for want of a better number, L2's with it too [D].

    Raises:
        InputError: no SM of the target holds a block.
    """
    fit = fitting_occupancy(launch, target, place)
    foot = footprint(
        target, launch.threads_per_block, launch.registers_per_thread, launch.shared_memory_per_block_bytes
    )
    clock = source.boost_clock_mhz / target.boost_clock_mhz
    lanes = clock * source.fp32_lanes_per_sm / target.fp32_lanes_per_sm
    bandwidth = source.model.dram_sustained_gb_per_s / target.model.dram_sustained_gb_per_s
    l2_bandwidth = bandwidth if source.architecture != target.architecture else 1.0
    demand = demand_elsewhere(
        model.demand, foot.warps / target.limits.sub_partitions, clock, lanes, source.model, target.model
    )
    moved = replace(
        model,
        footprint=foot,
        blocks_per_sm=fit.blocks_per_sm,
        sm_count=target.sm_count,
        carveout_bytes=carveout(launch, foot, fit.blocks_per_sm, target),
        demand=demand,
        load=MemoryLoad(model.load.dram * bandwidth, model.load.l2 * l2_bandwidth),
        issue_us=model.issue_us * lanes,
        dram_share_us=model.dram_share_us * bandwidth,
        l2_share_us=model.l2_share_us * l2_bandwidth,
        latency_us=min(model.latency_us, target.model.launch_latency_us),
    )
    return replace(moved, solo_us=moved.latency_us + run_alone(moved, target)[0])
