"""What a fit makes of a recording, step by step and by hand: memory, issue slots, who goes first, and seeds.

The GPU has 4 SMs. A launch takes 1 us; a block of 1024 threads has an SM to itself.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny import launch, tiny

from gpusim.calibrate.fit import (
    BLOCK_ENDS_CYCLES,
    DRAM_INTAKE_BYTES,
    L2_INTAKE_BYTES,
    _active_within,
    _before_work_us,
    _felt_early,
    _fitted,
    _issue_us,
    _l2_us,
    _left_bytes,
    _misfit,
    _preferences,
    _Recorded,
    _recorded_residents,
    _shape,
    anchored,
    work_blocks,
)
from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.transfer import transferred
from gpusim.engine.sm_array import AloneTimes
from gpusim.model.contention import QUEUED_SHARE, time_at
from gpusim.model.kernel import KernelModel
from gpusim.model.launchable import launch_footprint
from gpusim.model.memory import IDLE_READ_US, MemoryWait
from gpusim.trace.kernels import ALL_COUNTERS, KernelLaunch, Mix, WarpStalls

L2_LIMITS = {
    "l2_sustained_share": 0.8,
    "l2_read_gb_per_s": 5000.0,
    "l2_atomic_gb_per_s": 2000.0,
}
GPU = tiny(**L2_LIMITS)
CYCLES = 19_800.0  # of the 10 us in which blocks work
ENDS = BLOCK_ENDS_CYCLES / CYCLES  # of the time of one block per SM
WAITS = 0.6  # of its warps, that are for memory
COUNTED = Mix(
    **{**dict.fromkeys(ALL_COUNTERS, 0.0), "stalls": WarpStalls(long_scoreboard=6.0, selected=1.0, wait=3.0)},
).model_copy(
    update={
        "active_cycles_avg": CYCLES,
        "active_cycles_max": CYCLES,
        "active_cycles_min": 0.0,
        "achieved_warps_per_sm": 32.0,
    }
)


def counted(blocks: int = 4, duration_us: float = 11.0, threads: int = 1024, **counters: object) -> KernelLaunch:
    """A launch with all counters, 0 but for those given."""
    mix = COUNTED.model_copy(update=counters)
    return launch(blocks, duration_us, threads=threads).model_copy(update={"mix": mix})


def without_queues(model: KernelModel, residents: float) -> float:
    """Time of an instruction whose reads wait for no queue, over that in the recording."""
    demand = model.demand
    latency = max(demand.service_demand, demand.latency - QUEUED_SHARE * WAITS)
    return min(1.0, time_at(replace(demand, latency=latency), residents))


# ---- memory


@pytest.mark.parametrize("active", [1.0, 0.8])
@pytest.mark.parametrize(("fma", "limited"), [(0.3, False), (0.8, True)])
def test_what_is_left_without_waiting_for_hits_in_l2_is_at_least_what_the_sm_took(
    active: float, fma: float, limited: bool
) -> None:
    """L2 is half busy while the SMs are active and holds all that is read: a hit waits 1.5 times its load longer."""
    cycles = active * CYCLES
    told = {"active_cycles_avg": cycles, "fma_cycles": fma * cycles, "l2_read_bytes": 1.0}
    model = _shape(counted(**told, l2_busy_us=0.5 * 10.0 * active * 0.8 / 4), 1, 10.0, GPU)
    free = (1.0 - 0.5**8) ** 0.125
    busy = 0.5 / free
    waited = WAITS * 1.5 * busy / (1.0 + 1.5 * busy)
    taken = max(fma + ENDS, without_queues(model, 1.0))
    assert (waited > 1.0 - taken / free) == limited
    assert model.unit_us == pytest.approx(taken if limited else free * (1.0 - waited), rel=1e-9)
    waited = 1.0 - model.unit_us / free
    assert model.load.hits == pytest.approx(waited / (1.0 - waited) / busy, rel=1e-9)
    assert model.own_load.l2 == pytest.approx(busy, rel=1e-9)


def test_an_sm_takes_in_no_more_than_its_bytes_of_a_cycle() -> None:
    """Four blocks on four SMs: 0.3 of the time at DRAM's rate, 0.4 at that of L2, and the ends of a block."""
    cycles = 10.0 * GPU.boost_clock_mhz
    from_dram, from_l2 = 0.3 * DRAM_INTAKE_BYTES * cycles, 0.4 * L2_INTAKE_BYTES * cycles
    told = {"dram_read_bytes": from_dram, "l1_read_bytes": from_dram + from_l2, "l2_read_bytes": 1.0}
    model = _shape(counted(**told, l2_busy_us=10.0), 1, 10.0, GPU)
    assert model.unit_us == pytest.approx(0.7 + ENDS, rel=1e-6)


def test_a_block_of_fewer_warps_than_schedulers_takes_of_a_pipe_what_it_holds_it() -> None:
    """One warp competes with none: the pipe was busy for 0.8 of the time, though no other warp waited for it."""
    told = counted(threads=32, fma_cycles=0.8 * CYCLES, l2_read_bytes=1.0, l2_busy_us=0.5 * 10.0 * 0.8 / 4)
    assert _shape(told, 1, 10.0, GPU).unit_us == pytest.approx(0.8 + ENDS, rel=1e-9)


def test_what_reads_have_under_way_by_hand() -> None:
    """Buffers of half of its shared memory, where that is enough for a warp; else a read of each warp that waits."""
    per_read = GPU.model.dram_sustained_gb_per_s * 1e3 * IDLE_READ_US  # bytes that DRAM serves meanwhile
    few = counted(threads=128, l1_read_bytes=1e6, lsu_cycles=1000.0, achieved_warps_per_sm=4.0)
    ahead = few.model_copy(update={"static_shared_memory_bytes": 32 * 1024})
    requested = min(512.0, 1e6 / 1000.0) * 4.0 * WAITS
    assert (wait := _wait_of(few)).ahead == 0.0
    assert wait.under_way == pytest.approx(requested / per_read)
    wait = _wait_of(ahead)
    assert wait.under_way == pytest.approx(16 * 1024 / per_read)
    assert wait.ahead == pytest.approx(IDLE_READ_US * 1e6 * 4 / GPU.sm_count / 10.0 / (16 * 1024))
    assert _wait_of(counted().model_copy(update={"mix": None})) == MemoryWait()


def _wait_of(launch: KernelLaunch) -> MemoryWait:
    """Of one block an SM, on DRAM that it keeps free."""
    return _shape(launch, 1, 10.0, GPU).wait


def test_what_is_under_way_takes_longer_on_a_slower_dram() -> None:
    launch = counted(threads=128, l1_read_bytes=1e6, lsu_cycles=1000.0, achieved_warps_per_sm=4.0)
    slower = tiny(name="slower", **{**L2_LIMITS, "dram_sustained_gb_per_s": GPU.model.dram_sustained_gb_per_s / 2.0})
    here = anchored(launch, GPU)
    there = transferred(here, launch, GPU, slower, "")
    assert there.wait.under_way == pytest.approx(2.0 * here.wait.under_way) and here.wait.under_way > 0.0


def test_nothing_covers_the_ends_of_blocks_in_one_wave() -> None:
    """Two waves of blocks of 512 threads cover one another, so that L2 leaves what the SM took: 0.8 of a pipe."""
    for blocks, ends in ((16, 0.0), (8, ENDS)):
        told = {"fma_cycles": 3.2 / blocks * CYCLES, "l2_read_bytes": 1.0, "l2_busy_us": 0.5 * 10.0 * 0.8 / blocks}
        model = _shape(counted(blocks, threads=512, **told), 2, 10.0, GPU)
        assert model.unit_us == pytest.approx(min(1.0, max(0.8 + ends, without_queues(model, 2.0))), rel=1e-9)


@pytest.mark.parametrize(("blocks", "waits"), [(3, False), (8, True)])
def test_reading_ahead_hides_slower_hits_in_one_wave(blocks: int, waits: bool) -> None:
    """L2 is half busy; a block has room for far more than it reads in the latency of DRAM."""
    told = {"l2_read_bytes": 1.0, "l2_busy_us": 0.5 * 10.0 * 0.8 / blocks}
    plain = counted(blocks, **told)
    staged = plain.model_copy(update={"dynamic_shared_memory_bytes": 110 * 1024})
    assert _shape(plain, 1, 10.0, GPU).load.hits > 0.1
    assert (_shape(staged, 1, 10.0, GPU).load.hits > 0.1) == waits


@pytest.mark.parametrize(
    ("blocks", "exposed", "read_bytes", "longer", "early"),
    [
        (8, 1.0, 1e6, 4.0, 0.25),
        (8, 1.0, 1e6, 0.5, 1.0),  # its loads do not keep DRAM busy
        (4, 1.0, 1e6, 4.0, 1.0),  # one wave
        (8, 0.25, 1e6, 1.0, 0.25),
        (8, 0.25, 1e3, 1.0, 1.0),  # shared memory holds all that it reads
    ],
)
def test_who_has_many_loads_under_way_or_reads_ahead_feels_dram_late(
    blocks: int, exposed: float, read_bytes: float, longer: float, early: float
) -> None:
    one = counted(blocks, l1_read_bytes=read_bytes).model_copy(update={"dynamic_shared_memory_bytes": 110 * 1024})
    recorded = _Recorded(one, _shape(one, 1, 10.0, GPU).demand, 1.0, 10.0, exposed, blocks)
    assert _felt_early(recorded, longer) == early


def test_a_kernel_that_was_not_fully_counted_can_have_waited_all_the_time() -> None:
    """What its pipes took is not known, so they hold nothing of its time."""
    partly = counted(fma_cycles=0.9 * CYCLES, lsu_cycles=None, l2_read_bytes=1.0, l2_busy_us=0.5 * 10.0 * 0.8 / 4)
    free = (1.0 - 0.5**8) ** 0.125
    busy = 0.5 / free
    assert _shape(partly, 1, 10.0, GPU).unit_us == pytest.approx(free * (1.0 - WAITS * 1.5 * busy / (1.0 + 1.5 * busy)))


@pytest.mark.parametrize(("waits", "free"), [(1.0, 0.8), (0.5, 1.0 - 0.7 * 0.5)])
def test_a_kernel_waited_for_dram_no_longer_than_its_warps_did(waits: float, free: float) -> None:
    """DRAM was busy for 0.6 or, where that leaves less than the warps' waits allow, for less; two waves of 10 us.

    All are writes: SMs of this GPU could not take in so much.
    """
    busy = 0.6 if waits == 1.0 else 0.99
    stalls = WarpStalls(long_scoreboard=10.0 * waits, wait=10.0 * (1.0 - waits))
    moved = busy * 10.0 * GPU.model.dram_sustained_gb_per_s * 1e3 / 8
    model = _shape(counted(8, dram_read_bytes=0.0, dram_write_bytes=moved, stalls=stalls), 1, 10.0, GPU)
    assert model.unit_us == pytest.approx(free, rel=2e-6), "the least use of pipes takes the rest"
    felt = (1.0 - free * free) ** 0.5
    assert model.own_load.dram == pytest.approx(felt / free, rel=5e-6)
    assert model.load.dram == pytest.approx(felt / free / 4, rel=1e-5)


@pytest.mark.parametrize(
    ("kept", "longer_us", "left"),
    [(6.0, 9.0, 4.0), (3.0, 9.0, 3.0), (3.0, 2.0, 2.0), (8.0, 9.0, 2.0), (12.0, 9.0, 0.0), (3.0, -1.0, 0.0)],
)
def test_dram_writes_what_a_profile_left_in_l2_while_the_kernel_takes_longer(
    kept: float, longer_us: float, left: float
) -> None:
    """In units of what DRAM moves in 1 us: 8 were read, 4 written, and all were left in L2."""
    unit = GPU.model.dram_sustained_gb_per_s * 1e3
    gpu = replace(GPU, l2_bytes=round(kept * unit / GPU.model.l2_kept_share))
    told = counted(dram_read_bytes=2.0 * unit, l2_write_bytes=1.5 * unit)
    working_us = CYCLES / GPU.boost_clock_mhz + longer_us
    assert _left_bytes(told, working_us, gpu) * 4 / unit == pytest.approx(left, abs=1e-6)
    uncounted = counted(l2_write_bytes=1.5 * unit, active_cycles_max=None)
    assert _left_bytes(uncounted, working_us, gpu) == 0.0


@pytest.mark.parametrize(
    ("counters", "us"),
    [
        ({"l2_busy_us": 2.0}, 2.0 / 0.8),
        ({"l2_read_bytes": 10e6}, 2.0),
        ({"l2_write_bytes": 9e6}, 0.0),
        ({"l2_bytes": 30e6, "l2_read_bytes": 10e6, "l2_write_bytes": 9e6}, 11.0 / 2.0),
        ({"l2_bytes": 19e6, "l2_read_bytes": 10e6, "l2_write_bytes": 9e6}, 2.0),
        ({"l2_bytes": 30e6, "l2_write_bytes": 9e6}, 0.0),  # the rest may be reads
        ({"l2_bytes": 30e6}, 0.0),
        ({}, 0.0),
    ],
)
def test_l2_is_busy_by_whichever_of_its_limits_is_nearest(counters: dict[str, float], us: float) -> None:
    assert _l2_us(Mix(**counters), GPU) == pytest.approx(us)


def test_a_kernel_without_counters_is_taken_to_use_no_l2() -> None:
    assert _l2_us(None, GPU) == 0.0


def test_a_ramp_takes_its_part_of_what_blocks_ask_for() -> None:
    """Two waves of 4 blocks; the first four have a ramp of 1/9 of their work: 8 blocks do the work of 8 + 4/9."""
    stalls = WarpStalls(no_instruction=0.3, imc_miss=0.1, selected=1.0, not_selected=2.6)
    one = counted(8, 20.0, stalls=stalls, dram_read_bytes=1e6, l2_read_bytes=3e6, issue_cycles=990.0)
    model = anchored(one, GPU)
    assert work_blocks(model) == pytest.approx(8.0 + 4.0 / 9.0, rel=1e-6)
    per_work = 8.0 / (8.0 + 4.0 / 9.0)
    assert model.dram_share_us == pytest.approx(per_work * 1e6 / (GPU.model.dram_sustained_gb_per_s * 1e3), rel=1e-6)
    assert model.l2_share_us == pytest.approx(per_work * 3e6 / 5e6, rel=1e-6)
    assert model.issue_us == pytest.approx(per_work * 990.0 / GPU.boost_clock_mhz, rel=1e-6)


# ---- issue slots, residents, and the time before work


def test_issue_slots_by_their_counter_else_by_the_arithmetic_utilisation() -> None:
    one = launch(8, 20.0)
    by_counter = Mix(issue_cycles=990.0, alu_utilisation_percent=25.0)
    assert _issue_us(one.model_copy(update={"mix": by_counter}), GPU) == 990.0 / GPU.boost_clock_mhz
    by_alu = one.model_copy(update={"mix": Mix(alu_utilisation_percent=25.0)})
    assert _issue_us(by_alu, GPU) == pytest.approx(0.25 * 20.0 * 4 / 8)
    assert _issue_us(one.model_copy(update={"mix": Mix()}), GPU) == _issue_us(one, GPU) == 0.0


@pytest.mark.parametrize(("warps", "residents"), [(12.0, 1.5), (4.0, 1.0), (100.0, 3.0), (0.0, 3.0), (None, 3.0)])
def test_mean_residents_are_between_one_and_the_most(warps: float | None, residents: float) -> None:
    """Blocks of 8 warps, 12 of them on 4 SMs."""
    one = counted(12, threads=256, achieved_warps_per_sm=warps)
    assert _recorded_residents(one, launch_footprint(one, GPU), 4, GPU) == residents


@pytest.mark.parametrize(
    ("duration_us", "load_us", "blocks", "before", "first"),
    [
        (20.0, None, 8, 1.0, 1.0),  # a tenth of the 10 us that a block lives
        (20.0, None, 2, 1.0, 2.0),  # a wave that is not full lives as long as one that is
        (20.0, 3.0, 8, 4.0, 1.0),
        (20.0, 40.0, 8, 16.0 + 1.0, 1.0),  # loading takes four fifths at most
        (5.0, 40.0, 8, 4.0 + 0.8 * 0.8, 0.8 * 0.2),  # and both together four fifths of the rest
        (1.0, None, 8, 0.8 / 1.05, 0.8 * 0.05 / 1.05),
        (20.0, -0.75, 8, 0.25, 1.0 + 0.75),  # in a graph: in all as long as in a stream
    ],
)
def test_launch_and_first_instructions_take_no_more_than_most_of_the_time(
    duration_us: float, load_us: float | None, blocks: int, before: float, first: float
) -> None:
    """A tenth of the warps' time is waiting for instructions."""
    stalls = WarpStalls(no_instruction=0.3, imc_miss=0.1, selected=1.0, not_selected=2.6)
    one = counted(blocks, duration_us, stalls=stalls).model_copy(update={"load_us": load_us})
    assert _before_work_us(one, 1, GPU) == pytest.approx((before, first))


@pytest.mark.parametrize(
    ("counted_us", "shared_bytes", "longer_us"),
    [
        (19.5, 0, 0.25),
        (18.0, 0, 0.75),  # no more than it starts sooner than in a stream
        (19.9, 0, 0.0),  # the SMs were active longer than the graph leaves
        (19.5, 110 * 1024, 0.75),  # it fills buffers in shared memory first
        (None, 0, 0.75),
    ],
)
def test_first_blocks_in_a_graph_take_longer_by_what_the_profile_did_not_count(
    counted_us: float | None, shared_bytes: int, longer_us: float
) -> None:
    """In a graph a kernel of 20 us starts after 0.25 us, and not 1."""
    cycles = counted_us and counted_us * GPU.boost_clock_mhz
    one = counted(8, 20.0, active_cycles_max=cycles)
    one = one.model_copy(update={"load_us": -0.75, "dynamic_shared_memory_bytes": shared_bytes})
    assert _before_work_us(one, 1, GPU) == pytest.approx((0.25, longer_us))


@pytest.mark.parametrize(
    ("load_us", "counted_us", "expected_us"),
    [(-0.75, 20.0, 10.0), (-0.75, 5.0, 5.0), (None, 20.0, 20.0)],
)
def test_in_a_graph_sms_are_active_no_longer_than_blocks_worked(
    load_us: float | None, counted_us: float, expected_us: float
) -> None:
    """Blocks worked for 10 us; the mean SM was active half as long as the longest."""
    longest, expected = counted_us * GPU.boost_clock_mhz, expected_us * GPU.boost_clock_mhz
    one = counted(8, active_cycles_avg=longest / 2.0, active_cycles_max=longest)
    mix = _active_within(10.0, one.model_copy(update={"load_us": load_us}), GPU).mix
    assert mix is not None
    assert mix.active_cycles_avg == pytest.approx(expected / 2.0)
    assert mix.active_cycles_max == pytest.approx(expected)


# ---- who goes first, and how the tail falls


MODEL = anchored(launch(8, 20.0, threads=256), GPU)  # two blocks of 8 warps on each SM


@pytest.mark.parametrize(
    ("residents", "active", "averaged", "misfit"),
    [(2.5, 0.8, None, 0.25), (1.5, 0.8, None, 0.25), (2.0, 0.7, 800.0, 0.125), (2.5, 0.9, 800.0, 0.25 + 0.125)],
)
def test_a_misfit_is_the_relative_error_of_warps_and_of_the_active_share(
    residents: float, active: float, averaged: float | None, misfit: float
) -> None:
    mix = Mix(achieved_warps_per_sm=16.0, active_cycles_avg=averaged, active_cycles_max=1000.0)
    assert _misfit(MODEL, mix, residents, active) == pytest.approx(misfit)


def test_nothing_recorded_is_no_misfit_and_leaves_nothing_to_choose() -> None:
    assert _misfit(MODEL, None, 2.5, 0.8) == _misfit(MODEL, Mix(active_cycles_avg=1.0), 2.5, 0.8) == 0.0
    assert _preferences(MODEL, None) == _preferences(MODEL, Mix()) == (0.0,)
    mix = Mix(achieved_warps_per_sm=16.0)
    assert _preferences(replace(MODEL, blocks_per_sm=1), mix) == (0.0,)
    assert _preferences(MODEL, mix) == (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)


@pytest.mark.parametrize(
    ("misfits", "chosen", "tried"),
    [
        ({0.0: 0.02}, 0.0, 1),  # good enough at once
        ({0.02: 0.192, 0.05: 0.18, 0.1: 0.02}, 0.1, 4),  # the first that is good enough
        ({0.02: 0.191}, 0.0, 6),  # hardly better, so it stays at the weakest
        ({0.02: 0.1, 0.1: 0.085, 0.4: 0.08}, 0.1, 6),
    ],
)
def test_the_weakest_preference_that_fits(misfits: dict[float, float], chosen: float, tried: int) -> None:
    """0.2 is the misfit of all others; a change must better it by more than 0.01, and below 0.03 none is looked for."""
    asked = []

    def alone(model: KernelModel) -> AloneTimes:
        asked.append(model.age_preference)
        return AloneTimes(100.0 + model.age_preference, 1.0 + misfits.get(asked[-1], 0.2), 1.0)

    found, makespan_us = _fitted(MODEL, Mix(achieved_warps_per_sm=8.0), alone, GPU)
    assert (found.age_preference, found.seed, makespan_us) == (chosen, 1, 100.0 + chosen)
    assert len(asked) == tried


@pytest.mark.parametrize(
    ("blocks", "row", "spread"), [(16, 1, 0.0), (16, 8, 0.6), (16, 16, 0.0), (GPU.sm_count, GPU.sm_count, 0.6)]
)
def test_only_rows_of_several_blocks_show_blocks_of_unequal_length(blocks: int, row: int, spread: float) -> None:
    """Of a single row only where each block has an SM; the SMs were active for 0.7 of the time on the mean."""
    mix = Mix(achieved_warps_per_sm=8.0, active_cycles_avg=700.0, active_cycles_max=1000.0)

    def alone(model: KernelModel) -> AloneTimes:
        return AloneTimes(100.0, 1.0, 1.0 - model.spread / 2.0)

    found, _ = _fitted(replace(MODEL, blocks=blocks, tiles=blocks, row=row), mix, alone, GPU)
    assert found.spread == spread


# ---- seeds of a replay


@pytest.mark.parametrize(
    ("seed", "of_jitter"), [(0, 1), (1, 1_000_004), (2, 2_000_007), (3000, 3_000_009_001 - 2_147_483_648)]
)
def test_a_replays_seed_moves_every_kernels_by_a_prime_within_31_bits(seed: int, of_jitter: int) -> None:
    one = launch(8, 20.0)
    assert anchored(one, GPU).seed == 1
    assert Kernels(GPU, GPU, seed=seed).model(one, "").seed == of_jitter
    assert Kernels(GPU, GPU).seeded(seed).model(one, "") == replace(anchored(one, GPU), seed=of_jitter)
