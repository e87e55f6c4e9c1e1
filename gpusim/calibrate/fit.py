"""Fit a kernel model to a recorded launch: its blocks, their demands, and the time of one block.

The recording fixes the scale. The launch is replayed once in isolation on the GPU that recorded it. The time of a block
is chosen so that this replay takes the recorded duration. The age preference is chosen so that the mean resident warps
and active SMs of that replay are close to the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod, sqrt
from typing import NamedTuple

from gpusim.calibrate.blocks import cluster_blocks, last_blocks, tiles, waits_for_all
from gpusim.calibrate.carveouts import carveouts, recorded_carveout_bytes, resident_blocks
from gpusim.engine.sm_array import AloneTimes, alone_on, run_alone
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import (
    BUFFERS,
    DRAM_LATENCY_CYCLES,
    LEAST_IN_FLIGHT_BYTES,
    MOST_HITS,
    SECTORS_OF_A_MISS,
    WarpDemand,
    competing_warps,
    fetch_stall_share,
    full_queue_share,
    hit_wait_share,
    instruction_share,
    memory_stall_share,
    missed_share,
    mix_times,
    queued_shares,
    time_at,
    warp_demand,
)
from gpusim.model.context import in_graph, with_active_cycles
from gpusim.model.kernel import KernelModel
from gpusim.model.launchable import launch_footprint
from gpusim.model.memory import (
    IDLE_READ_US,
    MISS_LATENCY,
    MemoryLoad,
    MemoryWait,
    dram_fullness,
    hit_queue,
    loads_beside,
    lost_share,
    memory_slowdown,
    read_ahead,
)
from gpusim.model.occupancy import Footprint, most_resident, waves
from gpusim.trace.kernels import KernelLaunch, Mix

Alone = Callable[[KernelModel], AloneTimes]  # `gpusim.engine.sm_array.alone_on` of the recording GPU
AGE_PREFERENCES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
SPREADS = (0.4, 0.6, 0.8, 1.0)  # of the lengths of blocks along a row: 1 is that of a causal mask
UNEQUAL = 0.1  # how much more active SMs are than recorded, which blocks of equal length do not explain
GOOD_FIT = 0.03  # a misfit small enough to look no further
PARSIMONY = 0.01  # by how much a stronger preference must fit better
LEAST_L1_BYTES = 28 * 1024  # of an SM, at the largest carve-out of its shared memory (228 of 256 KiB on an H100)
START_BOUND = 0.9  # of the blocks that a device can start in a time: who starts more waits for that [D]
BLOCK_ENDS_CYCLES = 2280.0  # of a block that nothing covers: its start and its end ([V] block_floor_us
#   and block_refill_us of experiments/h200_microbench: 0.97 and 0.19 us of a GEMM's block without a main loop)
HELD_BELOW = 0.97  # of the clock of tensor cores: short kernels seem as slow, by what is counted around them [V]
LEAST_CLOCK = 0.5  # of the clock without a power limit: less is no power limit
MOST_REQUEST_BYTES = 512.0  # of a load by a warp: 16 bytes per lane ([V] dram_read4 of experiments/resource_matrix)
DRAM_INTAKE_BYTES = 64.0  # that an SM takes in from DRAM in a cycle, at most ([V] h100_microbench, ahead.csv)
L2_INTAKE_BYTES = 93.0  # the same of what L2 holds ([V] l2_read_sm_gb_per_s of experiments/h200_microbench)
INSTRUCTION_BYTES = 16.0  # of compute capability 7.0 and later [M]
SM_CODE_BYTES = 32 * 1024.0  # of code that SMs hold ([V] experiments/neighbours, code.csv: it comes as soon when lost)
LATENCY_SHARE = 0.8  # of a recorded duration that launch latency may be at most


class Unfitted(NamedTuple):
    """A kernel before the replays that fit it."""

    model: KernelModel
    ramp_us: float  # by which its first blocks take longer
    mix: Mix | None  # its counters, without its last blocks


def anchored(launch: KernelLaunch, gpu: GPU, place: str = "") -> KernelModel:
    """A launch as replayed on the GPU that it was recorded on."""
    model, ramp_us, mix = unfitted(launch, gpu, place)
    recorded, latency = launch.duration_us, model.latency_us
    alone = alone_on(gpu)
    best, makespan = _fitted(model, mix, alone, gpu)
    if ramp_us > 0.0:
        work = ramp_us / (recorded - latency - ramp_us) * makespan / _block_us(best)
        best = replace(best, ramp_work=work)
        makespan = alone(best).makespan_us
    fitted = _starting(replace(best, unit_us=best.unit_us * (recorded - latency) / makespan), recorded - latency, gpu)
    most = fitted.most_share_us
    per_work = launch.blocks / work_blocks(fitted)
    l2_us = min(most, per_work * _l2_us(launch.mix, gpu))
    return replace(
        fitted,
        demand=replace(fitted.demand, block_us=_block_us(fitted)),
        issue_us=per_work * _issue_us(launch, gpu),
        dram_share_us=min(most, per_work * _dram_bytes(launch) / (gpu.model.dram_sustained_gb_per_s * 1e3)),
        l2_share_us=l2_us,
        l2_apart_us=l2_us * _apart(launch.mix, gpu) if fitted.demand.one_wave else 0.0,
    )


def _starting(model: KernelModel, working_us: float, gpu: GPU) -> KernelModel:
    """The kernel with the time that the device and an SM take to start a block.

    If blocks started as fast as the device allows, their lifetime follows from the recorded residency by Little's law.
    It is not the time in which their work would fill the recorded duration. Kernels of one wave have no such limit.
    """
    rates = gpu.model.block_starts_per_us, gpu.model.sm_block_starts_per_us
    if not all(rates) or model.demand.one_wave:
        return model
    starts_us, sm_us = (1.0 / rate for rate in rates)
    each = working_us / model.blocks
    if each * START_BOUND > starts_us:
        pace_us = (1.0 - 1e-9) * model.most_share_us
        limited = replace(model, start_us=min(starts_us, pace_us), sm_start_us=min(sm_us, gpu.sm_count * pace_us))
        # Its recording contradicts limits that would hold it back where it is isolated.
        return limited if run_alone(limited, gpu).makespan_us <= working_us * (1.0 + 1e-9) else model
    residents = model.resident_share * model.most_resident
    life = residents * gpu.sm_count * each / _block_us(replace(model, unit_us=1.0)) * model._time(model.most_resident)
    bound = replace(model, start_us=each, sm_start_us=sm_us, unit_us=life / time_at(model.demand, residents))
    off = working_us / run_alone(bound, gpu).makespan_us  # times scale together
    return replace(bound, start_us=off * each, sm_start_us=off * sm_us, unit_us=off * bound.unit_us)


def unfitted(launch: KernelLaunch, gpu: GPU, place: str = "") -> Unfitted:
    """A launch as `anchored` has it before any replay."""
    blocks_per_sm = resident_blocks(launch, gpu, gpu, place)
    latency, ramp_us = _before_work_us(launch, blocks_per_sm, gpu)
    mix, share = last_blocks(launch, gpu)
    last_us = share * (launch.duration_us - latency - ramp_us)  # the SMs are free: as if it came before the work
    working_us = launch.duration_us - latency - ramp_us - last_us
    others = _active_within(working_us, launch.model_copy(update={"mix": mix}), gpu)
    model = _shape(others, blocks_per_sm, working_us, gpu)
    return Unfitted(replace(model, latency_us=latency + last_us), ramp_us, mix)


def _active_within(working_us: float, launch: KernelLaunch, gpu: GPU) -> KernelLaunch:
    """The launch, with its SMs active no longer than blocks worked, if it is in a graph.

    While a profiler counts, a kernel finds less in the caches than right after the kernel that wrote its input [D].
    """
    mix, longest = launch.mix, working_us * gpu.boost_clock_mhz
    if mix is None or not in_graph(launch) or not mix.active_cycles_max or mix.active_cycles_max <= longest:
        return launch
    return launch.model_copy(update={"mix": with_active_cycles(mix, longest / mix.active_cycles_max)})


def _before_work_us(launch: KernelLaunch, blocks_per_sm: int, gpu: GPU) -> tuple[float, float]:
    """Return the launch delay of the first blocks, and the ramp by which they take longer than later blocks.

    The delay is the launch latency and the load of instructions given in the trace. The ramp is the wait of a block for
    instructions and constants, which caches hold afterwards, and `_cold_us` [D]. All is limited to a large part of the
    recorded time.
    """
    recorded = launch.duration_us
    loading = min(LATENCY_SHARE * recorded, launch.load_us or 0.0)
    first_us = fetch_stall_share(launch.mix) * recorded / _lives(launch, blocks_per_sm, gpu)
    if in_graph(launch):
        first_us += _cold_us(launch, gpu)
    most_us = LATENCY_SHARE * (recorded - loading)
    short = min(1.0, most_us / max(gpu.model.launch_latency_us + first_us, 1e-9))
    return max(0.0, loading + short * gpu.model.launch_latency_us), short * first_us


def _cold_us(launch: KernelLaunch, gpu: GPU) -> float:
    """How much longer first blocks take in a CUDA graph than in the profile: caches hold data and code of others.

    The SMs were active in the graph for longer than a profiler counted. The difference is at most the time by which the
    kernel starts sooner than in a stream. That time counts where it has buffers to fill, or nothing was counted [D].
    """
    sooner_us = -(launch.load_us or 0.0)
    active = launch.mix.active_cycles_max if launch.mix is not None else None
    if not active or _staged_bytes(launch, launch_footprint(launch, gpu)):
        return sooner_us
    uncounted_us = launch.duration_us - (gpu.model.launch_latency_us - sooner_us) - active / gpu.boost_clock_mhz
    return min(sooner_us, max(0.0, uncounted_us))


def _lives(launch: KernelLaunch, blocks_per_sm: int, gpu: GPU) -> float:
    """Blocks that follow one another in the recorded time at each place on an SM, if it holds the most; at least 1."""
    return max(1.0, waves(launch.blocks, blocks_per_sm, gpu.sm_count))


def work_blocks(model: KernelModel) -> float:
    """Work of a kernel that has the device alone, in blocks; those placed at its first instant do the ramp, too."""
    first = min(model.blocks, model.blocks_per_sm * model.sm_count)
    return model.blocks + first * model.ramp_work


def _block_us(model: KernelModel) -> float:
    """Mean time of a thread block where the kernel alone fills all SMs."""
    full = model.full_load
    stretch = memory_slowdown(full.dram, full.l2, model.own_load)
    return model.unit_us * mix_times([(model.demand, model.most_resident)])[0] * stretch


@dataclass(frozen=True, slots=True)
class _Tried:
    """A kernel with some age preference, alone: its makespan and how far that replay is from the recording.

    ``idle`` is how much less, relative, the SMs were active in the recording.
    """

    model: KernelModel
    makespan_us: float
    misfit: float
    idle: float


def _fitted(model: KernelModel, mix: Mix | None, alone: Alone, gpu: GPU) -> tuple[KernelModel, float]:
    """Return the model with the age preference that best fits the recording, and its isolated makespan, us."""
    first, *weakest_first = (replace(model, age_preference=a) for a in _preferences(model, mix))
    held = _best(_tried(first, mix, alone), weakest_first, mix, alone)
    expected = UNEQUAL + gpu.model.launch_latency_us / model.solo_us  # SMs do not start at once
    rows = model.row > 1 and (model.row < model.blocks or model.blocks <= gpu.sm_count)
    if held.idle > expected and rows and not (model.persistent or model.given_lengths):
        unequal = [_tried(replace(held.model, spread=spread), mix, alone) for spread in SPREADS]
        held = min([held, *unequal], key=lambda tried: abs(tried.idle))
    return held.model, held.makespan_us


def _best(held: _Tried, others: Iterable[KernelModel], mix: Mix | None, alone: Alone) -> _Tried:
    """The one held, or another whose misfit is less by more than `PARSIMONY`; below `GOOD_FIT` none is looked for."""
    for model in others:
        if held.misfit < GOOD_FIT:
            break
        tried = _tried(model, mix, alone)
        if tried.misfit < held.misfit - PARSIMONY:
            held = tried
    return held


def _tried(model: KernelModel, mix: Mix | None, alone: Alone) -> _Tried:
    times = alone(model)
    misfit = _misfit(model, mix, times.residents, times.active)
    return _Tried(model, times.makespan_us, misfit, times.active / _active_share(mix) - 1.0)


def _shape(launch: KernelLaunch, blocks_per_sm: int, working_us: float, gpu: GPU) -> KernelModel:
    """The kernel without what its replay alone tells, from a launch whose blocks worked for ``working_us``."""
    foot = launch_footprint(launch, gpu)
    residents = _recorded_residents(launch, foot, blocks_per_sm, gpu)
    carveout = carveouts(launch, gpu, gpu)
    recorded_bytes = recorded_carveout_bytes(launch) or carveout.idle
    kernel = warp_demand(
        launch.mix,
        foot.warps,
        residents,
        launch.blocks / gpu.sm_count,
        gpu.limits.sub_partitions,
        gpu.model,
        one_wave=waves(launch.blocks, blocks_per_sm, gpu.sm_count) <= 1.0,
        shared_bytes_per_warp=launch.shared_memory_per_block_bytes / foot.warps,
        l1_bytes=gpu.limits.shared_memory_per_sm_bytes + LEAST_L1_BYTES - recorded_bytes,
    )
    exposed = _exposed(launch, foot, residents, gpu)
    tiled = tiles(launch, blocks_per_sm, gpu)
    recorded = _Recorded(launch, kernel, residents, working_us, exposed, tiled)
    load, free = _memory(recorded, gpu)
    return KernelModel(
        name=launch.name,
        stream=launch.stream,
        memory_stall_share=memory_stall_share(launch.mix),
        blocks=launch.blocks,
        tiles=tiled,
        in_graph=in_graph(launch),
        late_last=tiled > launch.blocks and waits_for_all(launch, gpu),
        row=launch.grid[0],
        spread=0.0,
        given_lengths=launch.block_lengths or (),
        start_us=0.0,
        sm_start_us=0.0,
        footprint=foot,
        blocks_per_sm=blocks_per_sm,
        sm_count=gpu.sm_count,
        cluster_blocks=cluster_blocks(launch, blocks_per_sm, gpu),
        carveout_bytes=carveout.idle,
        least_carveout_bytes=carveout.least,
        most_carveout_bytes=carveout.most,
        demand=kernel,
        on_tensor_cores=launch.on_tensor_cores(gpu.sm_count),
        held_clock=_held_clock(launch, free, gpu),
        unit_us=free,
        load=load,
        wait=_wait(recorded, gpu)._replace(code=_code_share(launch, foot, blocks_per_sm, gpu)),
        instruction_share=instruction_share(launch.mix),
        resident_share=residents / most_resident(launch.blocks, blocks_per_sm, gpu.sm_count),
        age_preference=0.0,
        jitter=gpu.model.block_jitter,
        latency_us=0.0,
        ramp_work=0.0,
        issue_us=0.0,
        dram_share_us=0.0,
        l2_share_us=0.0,
        l2_apart_us=0.0,
        solo_us=launch.duration_us,
        seed=1,
    )


def _recorded_residents(launch: KernelLaunch, foot: Footprint, blocks_per_sm: int, gpu: GPU) -> float:
    most = float(most_resident(launch.blocks, blocks_per_sm, gpu.sm_count))
    warps = launch.mix.achieved_warps_per_sm if launch.mix is not None else None
    return max(1.0, min(most, warps / foot.warps)) if warps else most


class _Recorded(NamedTuple):
    """How the blocks of a launch worked in its recording."""

    launch: KernelLaunch
    demand: WarpDemand
    residents: float  # of an SM
    working_us: float  # in which blocks worked: not before the first came, nor while these waited for instructions [D]
    exposed: float  # as of `_exposed`
    tiles: int


def _memory(recorded: _Recorded, gpu: GPU) -> tuple[MemoryLoad, float]:
    """Load of one block, and the share of its time left when L2 and DRAM are free.

    Nothing covers the start and the end of a block that is alone on its SM, nor of blocks in one wave, which start and
    end together [D].
    """
    launch, kernel, residents, working_us, exposed, tiled = recorded
    moved = _dram_bytes(launch) + _left_bytes(launch, working_us, gpu)
    dram = moved * launch.blocks / working_us / 1e3 / gpu.model.dram_sustained_gb_per_s
    l2 = _l2_us(launch.mix, gpu) * launch.blocks / (working_us * _active_share(launch.mix))
    competing = max(1.0, residents * kernel.warps_per_scheduler)
    turns = max(competing * max(kernel.demands), _taking_in(launch, working_us, gpu)) if kernel.counted else 0.0
    if kernel.counted and (residents <= 1.0 or kernel.one_wave):  # no other block works meanwhile
        times = tiled / gpu.sm_count if residents <= 1.0 else 1.0
        turns += times * BLOCK_ENDS_CYCLES / gpu.boost_clock_mhz / working_us
    queues = queued_shares(launch.mix, exposed, dram_fullness(dram))
    least_free = max(min(1.0, turns), _time_without_queues(kernel, residents, *queues))
    longer = _reads_longer(launch, gpu)
    dram, l2, free = loads_beside(dram, l2, least_free, full_queue_share(launch.mix), longer)
    dram, l2, early = read_ahead(dram, l2, free, _felt_early(recorded, longer))
    hits_exposed = hit_wait_share(launch.mix) * (exposed if kernel.one_wave and tiled == launch.blocks else 1.0)
    waited, hits = hit_queue(hits_exposed, l2, max(0.0, 1.0 - least_free / free))
    whole, time = residents * gpu.sm_count, time_at(kernel, residents)
    return MemoryLoad(dram * time / whole, l2 * time / whole, hits, early), free * (1.0 - waited)


def _felt_early(recorded: _Recorded, longer: float) -> float:
    """Share of DRAM's load that a kernel feels before DRAM is full.

    Blocks of one wave feel all. A kernel that reads ahead into shared memory feels the exposed share. Other kernels
    have loads of many warps under way. Where reads take ``longer`` than in an idle GPU, fewer loads would keep DRAM as
    busy (Little's law).
    """
    if recorded.demand.one_wave:
        return 1.0
    if recorded.exposed < 1.0:
        return 1.0 if _reads_once(recorded.launch) else recorded.exposed
    return 1.0 / max(1.0, longer)


def _reads_once(launch: KernelLaunch) -> bool:
    """Whether a block reads no more than its shared memory holds, so that it has nothing to read ahead."""
    read = launch.mix.l1_read_bytes if launch.mix is not None else None
    return read is not None and read <= launch.shared_memory_per_block_bytes


def _time_without_queues(kernel: WarpDemand, residents: float, reads: float, throttled: float) -> float:
    """Time of an instruction if the kernel had not waited for queues of L2 and DRAM, over that in the recording.

    Reads would have a shorter latency. The time of an instruction on the SM stays, so less of it would be hidden. It
    counts as 0 without counters. ``reads`` and ``throttled`` are `queued_shares`.
    """
    if not kernel.counted:
        return 1.0 - reads - throttled
    latency = max(kernel.service_demand, kernel.latency - reads)
    return min(1.0, time_at(replace(kernel, latency=latency), residents) - throttled)


def _taking_in(launch: KernelLaunch, working_us: float, gpu: GPU) -> float:
    """Share of ``working_us`` in which an SM can take in all that a kernel reads from DRAM, and from L2."""
    if launch.mix is None:
        return 0.0
    from_dram = launch.mix.dram_read_bytes or 0.0
    from_l2 = max(0.0, (launch.mix.l1_read_bytes or 0.0) - from_dram)
    cycles = (from_dram / DRAM_INTAKE_BYTES + from_l2 / L2_INTAKE_BYTES) * launch.blocks / gpu.sm_count
    return cycles / gpu.boost_clock_mhz / working_us


def _held_clock(launch: KernelLaunch, free: float, gpu: GPU) -> float:
    """Clock that the power limit left a kernel on tensor cores in its recording, over theirs without a limit.

    ``free`` is the share of its time that is left when memory is free. Only this share follows the clock [D].
    """
    mix = launch.mix
    if mix is None or mix.clock_mhz is None or not launch.on_tensor_cores(gpu.sm_count):
        return 1.0
    full_mhz = HELD_BELOW * gpu.boost_clock_mhz * gpu.model.tensor_clock_share
    lost = free * max(0.0, 1.0 - mix.clock_mhz / full_mhz)
    return max(LEAST_CLOCK, 1.0 - lost)


def _reads_longer(launch: KernelLaunch, gpu: GPU) -> float:
    """How many times as long as in an idle GPU the reads of a kernel took in its recording, at least; 0: unknown.

    By Little's law: bytes under way over bytes per cycle.
    """
    mix, under_way = launch.mix, _requested_bytes(launch.mix)
    if mix is None or not (mix.active_cycles_avg and mix.l1_read_bytes and under_way):
        return 0.0
    per_cycle = mix.l1_read_bytes * launch.blocks / gpu.sm_count / mix.active_cycles_avg
    misses = missed_share(mix)
    idle = DRAM_LATENCY_CYCLES * (misses + (1.0 - misses) / MISS_LATENCY)
    return under_way / per_cycle / idle


def _requested_bytes(mix: Mix | None) -> float:
    """Bytes that the loads of an SM have under way in a recording, at least; 0: unknown.

    Each warp at the long scoreboard has at least one request under way, of the mean size [D]: the bytes that L1 was
    asked for, hits too, over instructions of the load/store unit. Some of these move no bytes. The largest size limits
    it, as the bytes include those of other units (TMA).
    """
    if mix is None or not (mix.lsu_cycles and mix.achieved_warps_per_sm and mix.l1_read_bytes):
        return 0.0
    beyond_l1 = mix.l1_read_bytes + (mix.l1_write_bytes or 0.0)
    asked = beyond_l1 / (1.0 - min(MOST_HITS, (mix.l1_hit_percent or 0.0) / 100.0))
    request = min(MOST_REQUEST_BYTES, asked / mix.lsu_cycles)
    return mix.achieved_warps_per_sm * memory_stall_share(mix) * request


def _staged_bytes(launch: KernelLaunch, foot: Footprint) -> float:
    """Bytes that a block reads ahead into shared memory: what its buffers hold; 0 where these are too small."""
    staged = launch.shared_memory_per_block_bytes / BUFFERS
    return staged if staged > LEAST_IN_FLIGHT_BYTES * foot.warps else 0.0


def _exposed(launch: KernelLaunch, foot: Footprint, residents: float, gpu: GPU) -> float:
    """Share of a kernel's waits for reads that their latency takes (0 to 1), and not the service of L2 and DRAM.

    A kernel that stages data in shared memory reads ahead: it waits for a latency only as far as half of that memory
    is less than what it needs in the time of a read [D].
    """
    mix, staged = launch.mix, _staged_bytes(launch, foot)
    if mix is None or not mix.active_cycles_avg or not staged:
        return 1.0
    read = (mix.l2_read_bytes or 0.0) / SECTORS_OF_A_MISS
    needed = read * launch.blocks / gpu.sm_count / mix.active_cycles_avg * DRAM_LATENCY_CYCLES
    return min(1.0, needed / (staged * residents))


def _wait(recorded: _Recorded, gpu: GPU) -> MemoryWait:
    """What of the recorded time was latency of L2 and DRAM; none where no stall reasons tell. Code is left out."""
    launch, kernel, residents = recorded.launch, recorded.demand, recorded.residents
    mix = launch.mix
    if mix is None or mix.stalls is None:
        return MemoryWait()
    read, written = ((moved or 0.0) / SECTORS_OF_A_MISS for moved in (mix.l2_read_bytes, mix.l2_write_bytes))
    others = competing_warps(residents, kernel.warps_per_scheduler, kernel.one_wave) - 1.0
    touched = launch.blocks * (read + written) / gpu.kept_l2_bytes
    ahead, under_way = _under_way(recorded, gpu)
    return MemoryWait(
        share=recorded.exposed * memory_stall_share(mix),
        serial=kernel.latency + kernel.serial_share * others * kernel.service_demand,
        misses=min(lost_share(touched), (mix.dram_read_bytes or 0.0) / max(1.0, read)),
        passing=gpu.model.dram_sustained_gb_per_s * 1e3 * launch.duration_us / gpu.kept_l2_bytes,
        touched=touched,
        ahead=ahead,
        under_way=under_way,
    )


def _under_way(recorded: _Recorded, gpu: GPU) -> tuple[float, float]:
    """`MemoryWait.ahead` and `under_way`: of buffers in shared memory where a kernel has them, else of its loads."""
    launch, residents, mix = recorded.launch, recorded.residents, recorded.launch.mix
    per_us = gpu.model.dram_sustained_gb_per_s * 1e3
    staged = _staged_bytes(launch, launch_footprint(launch, gpu))
    if not staged or mix is None or not mix.l1_read_bytes:
        return 0.0, _requested_bytes(mix) / residents / per_us / IDLE_READ_US
    taken = mix.l1_read_bytes * launch.blocks / gpu.sm_count / recorded.working_us
    return IDLE_READ_US * taken / (staged * residents), min(staged, mix.l1_read_bytes) / per_us / IDLE_READ_US


def _code_share(launch: KernelLaunch, foot: Footprint, blocks_per_sm: int, gpu: GPU) -> float:
    """Share of the recorded time in which a kernel waits for code that its SMs would not hold after others.

    Only the first blocks on an SM fetch short code; of longer code all blocks do [D]. Its length is taken as the
    number of instructions that a warp executes, which is larger where the code has loops.
    """
    mix, share = launch.mix, fetch_stall_share(launch.mix)
    if mix is None or INSTRUCTION_BYTES * (mix.warp_instructions or 0.0) / foot.warps > SM_CODE_BYTES:
        return share
    return share / _lives(launch, blocks_per_sm, gpu)


def _issue_us(launch: KernelLaunch, gpu: GPU) -> float:
    """Time for which a block fills all issue slots of an SM; without the counter, from arithmetic utilisation [D]."""
    mix = launch.mix
    if mix is not None and mix.issue_cycles is not None:
        return mix.issue_cycles / gpu.boost_clock_mhz
    busy = (mix.alu_utilisation_percent or 0.0) / 100.0 if mix is not None else 0.0
    return busy * launch.duration_us * gpu.sm_count / launch.blocks


def _active_share(mix: Mix | None) -> float:
    """Mean active cycles of the SMs over the most: L2 was busy while they were."""
    if mix is None or not mix.active_cycles_avg or not mix.active_cycles_max:
        return 1.0
    return min(1.0, mix.active_cycles_avg / mix.active_cycles_max)


def _l2_us(mix: Mix | None, gpu: GPU) -> float:
    """Time that L2 would be fully busy with one block: by counted throughput, by reads or by atomics."""
    if mix is None:
        return 0.0
    every = mix.l2_bytes or 0.0
    plain = every if mix.l2_read_bytes is None else mix.l2_read_bytes + (mix.l2_write_bytes or 0.0)
    return max(
        (mix.l2_busy_us or 0.0) / gpu.model.l2_sustained_share,
        (mix.l2_read_bytes or 0.0) / (gpu.model.l2_read_gb_per_s * 1e3),
        max(0.0, every - plain) / (gpu.model.l2_atomic_gb_per_s * 1e3),
    )


def _left_bytes(launch: KernelLaunch, working_us: float, gpu: GPU) -> float:
    """Bytes per block that L2 writes back to DRAM in ``working_us``, beyond those counted in the profile.

    At the end of a profile L2 still holds the last writes of the kernel, up to its capacity. In a program later kernels
    evict them, as far as these touch more than the capacity. If the kernel then takes longer than in its profile, DRAM
    writes meanwhile [D].
    """
    mix = launch.mix
    if mix is None or not mix.active_cycles_max:
        return 0.0
    written = (mix.l2_write_bytes or 0.0) / SECTORS_OF_A_MISS
    touched = launch.blocks * ((mix.dram_read_bytes or 0.0) + written)
    longer_us = working_us - mix.active_cycles_max / gpu.boost_clock_mhz
    most = min(gpu.kept_l2_bytes, longer_us * 1e3 * gpu.model.dram_sustained_gb_per_s) / launch.blocks
    left = min(written - (mix.dram_write_bytes or 0.0), most)
    return max(0.0, left) * lost_share(touched / gpu.kept_l2_bytes)


def _apart(mix: Mix | None, gpu: GPU) -> float:
    """How many times as much L2 serves a block where the blocks of one wave do not start together on idle SMs.

    Neighbouring SMs that ask for the same data at one time get it from L2 once. Where they do not, L2 serves all that
    the SMs get, but what clusters share: of square blocks of a product, clusters of k share all but 1/sqrt(k). It is
    0.66 to 0.76 for pairs ([V] experiments/h100_microbench, handover.csv), and at most that without clusters [D].
    """
    if mix is None or mix.cluster is None or not mix.l1_read_bytes or not mix.l2_read_bytes:
        return 1.0
    missed = (SECTORS_OF_A_MISS - 1.0) * (mix.dram_read_bytes or 0.0)
    served = missed + mix.l1_read_bytes / sqrt(max(2, prod(mix.cluster)))
    more = mix.model_copy(update={"l2_read_bytes": max(served, mix.l2_read_bytes)})
    own = _l2_us(mix, gpu)
    return _l2_us(more, gpu) / own if own > 0.0 else 1.0


def _dram_bytes(launch: KernelLaunch) -> float:
    mix = launch.mix
    return (mix.dram_read_bytes or 0.0) + (mix.dram_write_bytes or 0.0) if mix is not None else 0.0


def _preferences(model: KernelModel, mix: Mix | None) -> tuple[float, ...]:
    if mix is None or mix.achieved_warps_per_sm is None or model.most_resident == 1:
        return AGE_PREFERENCES[:1]
    return AGE_PREFERENCES


def _misfit(model: KernelModel, mix: Mix | None, residents: float, active: float) -> float:
    """How far mean resident warps and the active share of the SMs are from the recorded ones."""
    if mix is None or mix.achieved_warps_per_sm is None:
        return 0.0
    misfit = abs(residents * model.footprint.warps / max(mix.achieved_warps_per_sm, 1e-9) - 1.0)
    if mix.active_cycles_avg and mix.active_cycles_max:
        misfit += abs(active * mix.active_cycles_max / mix.active_cycles_avg - 1.0)
    return misfit
