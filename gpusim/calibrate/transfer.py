"""A kernel on another GPU than it was recorded on: demands stay, rates and limits are the target's.

Validated from an H200 to an H100 (`gpusim validate --recordings`), two GPUs of one chip; between chips it is [D].
"""

from __future__ import annotations

from dataclasses import replace

from gpusim.calibrate.carveouts import carveouts, resident_blocks
from gpusim.calibrate.fit import work_blocks
from gpusim.engine.sm_array import run_alone
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import demand_elsewhere
from gpusim.model.kernel import KernelModel
from gpusim.model.launchable import launch_footprint
from gpusim.model.occupancy import waves
from gpusim.trace.kernels import KernelLaunch


def transferred(model: KernelModel, launch: KernelLaunch, source: GPU, target: GPU, place: str) -> KernelModel:
    """The kernel on another GPU.

    `demand_elsewhere` says what its warps demand of an SM. Load of DRAM scales with the bandwidth that it sustains,
    that of L2, on the same chip, with the reads that it sustains: H200 and H100 have the same ratio of reads, writes
    and reductions, and of the time that a kernel keeps L2 busy (experiments/h100_microbench). Of another chip too few
    constants are known, so L2 scales with DRAM there [D]. The latencies of idle L2 and DRAM, and the read rate of
    one SM, are equal on both GPUs. Bytes from DRAM are the recorded ones: with 50 MiB of L2 for 60 a kernel moves 2 %
    more of them (median of 541; those with 20 to 40 MB of tensors 3 to 4 MB more, about 1 us of DRAM).
    """
    blocks_per_sm = resident_blocks(launch, target, source, place)
    foot = launch_footprint(launch, target)
    clock = source.boost_clock_mhz / target.boost_clock_mhz
    lanes = clock * source.fp32_lanes_per_sm / target.fp32_lanes_per_sm
    bandwidth = source.model.dram_sustained_gb_per_s / target.model.dram_sustained_gb_per_s
    same_chip = source.architecture == target.architecture
    l2_bandwidth = source.model.l2_read_gb_per_s / target.model.l2_read_gb_per_s if same_chip else bandwidth
    kept = source.kept_l2_bytes / target.kept_l2_bytes
    demand = demand_elsewhere(
        model.demand, foot.warps / target.limits.sub_partitions, clock, lanes, source.model, target.model
    )
    loading = min(model.latency_us, launch.load_us or 0.0)
    launching = min(model.latency_us - loading, source.model.launch_latency_us)
    last_us = model.latency_us - loading - launching  # by the last blocks
    carveout = carveouts(launch, target, source)
    moved = replace(
        model,
        footprint=foot,
        blocks_per_sm=blocks_per_sm,
        sm_count=target.sm_count,
        carveout_bytes=carveout.idle,
        least_carveout_bytes=carveout.least,
        most_carveout_bytes=carveout.most,
        demand=replace(demand, one_wave=waves(launch.blocks, blocks_per_sm, target.sm_count) <= 1.0),
        load=model.load._replace(dram=model.load.dram * bandwidth, l2=model.load.l2 * l2_bandwidth),
        wait=model.wait._replace(
            passing=model.wait.passing * kept / bandwidth,
            touched=model.wait.touched * kept,
            under_way=model.wait.under_way * bandwidth,
        ),
        issue_us=model.issue_us * lanes,
        dram_share_us=model.dram_share_us * bandwidth,
        l2_share_us=model.l2_share_us * l2_bandwidth,
        l2_apart_us=model.l2_apart_us * l2_bandwidth,
        latency_us=loading + min(launching, target.model.launch_latency_us) + last_us * clock,
    )
    per_work = work_blocks(model) / work_blocks(moved)  # where more blocks do a ramp they move no more bytes
    moved = replace(
        moved,
        issue_us=moved.issue_us * per_work,
        dram_share_us=moved.dram_share_us * per_work,
        l2_share_us=moved.l2_share_us * per_work,
        l2_apart_us=moved.l2_apart_us * per_work,
    )
    return replace(moved, solo_us=moved.latency_us + run_alone(moved, target)[0])
