"""The contention model against numbers that were worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from hypothesis import assume, given
from strategies import rounded

from gpusim import load_gpu
from gpusim.model.contention import (
    L2_CYCLES,
    WarpDemand,
    age_shares,
    capped_time,
    chance_older,
    demand_elsewhere,
    full_queue_share,
    hit_wait_share,
    latency_beside,
    memory_stall_share,
    mix_times,
    queued_shares,
    time_at,
    time_parts,
    warp_demand,
)
from gpusim.model.memory import (
    MemoryLoad,
    dram_fullness,
    hit_queue,
    loads_beside,
    memory_free_share,
    memory_slowdown,
    memory_that_binds,
)
from gpusim.trace.kernels import Mix, WarpStalls

H200 = load_gpu("h200")


def test_blocks_in_one_wave_stay_the_older_ones() -> None:
    one_wave, long, short = replace(NARROW, one_wave=True), replace(NARROW, block_us=8.0), replace(NARROW, block_us=2.0)
    assert chance_older(one_wave, long) == 1.0
    assert chance_older(NARROW, long) == 0.5  # its life is unknown
    assert (chance_older(long, short), chance_older(short, long)) == (0.875, 0.125)


# ---- by hand --------------------------------------------------------------------------------------------------------

CONSTANTS = H200.model.model_copy(  # constants that are easy to reckon with
    update={
        "sustained_issue_share": 0.8,
        "waiting_turn_share": 0.5,
    }
)


def recorded(mix: Mix | None, warps: int = 8) -> WarpDemand:
    """A launch of which an SM of 4 schedulers held 2 blocks at a time and ran 10 in all."""
    return warp_demand(mix, warps, 2, 10.0, 4, CONSTANTS)


@pytest.mark.parametrize(
    ("mix", "busy"),
    [(None, 0.5), (Mix(alu_utilisation_percent=20.0), 0.2), (Mix(alu_utilisation_percent=0.0), 0.001)],
)
def test_without_counters_one_number_says_how_busy_an_sm_was(mix: Mix | None, busy: float) -> None:
    """2 warps a scheduler and block: 4 compete, so an instruction holds the issue slots for busy / (0.8 x 4)."""
    kernel = recorded(mix)
    demand = busy / 3.2
    assert kernel.warps_per_scheduler == 2.0
    assert kernel.demands == pytest.approx([demand, *[0.001 / 4.0] * 5])
    assert (kernel.resource, kernel.service_demand, kernel.counted) == ("issue", pytest.approx(demand), False)
    assert kernel.latency == pytest.approx(sqrt(1.0 - 15.0 * demand**2))


def test_counted_cycles_say_how_busy_each_resource_was() -> None:
    """10 blocks on an SM in 10,000 cycles: 300 cycles of each are 0.3, 2000 more than all."""
    mix = Mix(issue_cycles=300.0, alu_cycles=200.0, fma_cycles=600.0, active_cycles_avg=10_000.0)
    kernel = recorded(mix)
    assert kernel.demands == pytest.approx([0.3 / 3.2, 0.2 / 4.0, 0.6 / 4.0, *[0.001 / 4.0] * 3])
    assert (kernel.resource, kernel.service_demand) == ("fma", pytest.approx(0.6 / 4.0))
    assert recorded(mix.model_copy(update={"lsu_cycles": 2000.0})).demands[4] == pytest.approx(1.0 / 4.0)


STALLED = Mix(  # L1 is half busy; of 16 warps in each issued instruction's time 4 wait for service whatever competes
    issue_cycles=100.0,
    l1_cycles=500.0,
    active_cycles_avg=10_000.0,
    stalls=WarpStalls(
        not_selected=1.0,
        math_pipe_throttle=2.0,
        dispatch=0.5,
        mio_throttle=0.25,
        lg_throttle=0.25,
        barrier=4.0,
        short_scoreboard=2.0,
        long_scoreboard=3.0,
        wait=2.0,
        selected=1.0,
    ),
)


def test_latency_is_what_the_stalls_leave() -> None:
    """2 warps compete: barriers and short scoreboards are half waiting for a turn, each half of it another's."""
    kernel = recorded(STALLED, warps=4)
    turns = 4.0 + 0.5 * (0.5 * (4.0 + 2.0) + 0.5**2 * 3.0)
    latency = 1.0 - turns / 20.0  # 2 warps that issue in a tenth of the slots: 20 of an instruction, 16 have reasons
    assert kernel.latency == pytest.approx(latency)
    assert (kernel.service_demand, kernel.serial_share) == (pytest.approx(1.0 - latency), 1.0)  # counted: 0.5 / 2
    assert mix_times([(kernel, 2)]) == [pytest.approx(1.0)]


def test_where_another_resource_binds_long_scoreboard_is_latency() -> None:
    """Issue slots that are busy for 0.44 of the time, of 0.8 that they can be, bind before an L1 path busy for half."""
    kernel = recorded(STALLED.model_copy(update={"issue_cycles": 440.0}), warps=4)
    assert kernel.latency == pytest.approx(1.0 - (4.0 + 0.5 * 0.5 * (4.0 + 2.0)) / 16.0)


@pytest.mark.parametrize(
    ("read_bytes", "shared_bytes_per_warp", "hidden"),
    [
        (280.0, 0.0, 0.0),  # 1.46 of the 1.5 cycles that were seen
        (512.0, 0.0, 800.0 * 5.12 / 1536.0 - 1.5),
        (512.0, 3072.0, 800.0 * 5.12 / 1536.0 - 1.5),  # half of it is what registers hold
        (512.0, 4096.0, 800.0 * 5.12 / 2048.0 - 1.5),
        (2000.0, 0.0, 3.0),  # all turns
    ],
)
def test_waits_for_dram_that_turns_hid_are_latency(
    read_bytes: float, shared_bytes_per_warp: float, hidden: float
) -> None:
    """Of 20 cycles 3 are turns and 10 have no reason; a warp reads 1/100 of the bytes in it, so many at a time."""
    stalls = WarpStalls(selected=1.0, math_pipe_throttle=3.0, wait=4.5, long_scoreboard=1.5)
    read = {"dram_read_bytes": read_bytes, "warp_instructions": 100.0}
    mix = Mix(fma_cycles=600.0, issue_cycles=100.0, active_cycles_avg=10_000.0, stalls=stalls, **read)
    kernel = warp_demand(mix, 4, 2, 10.0, 4, CONSTANTS, shared_bytes_per_warp=shared_bytes_per_warp)
    assert kernel.latency == pytest.approx((17.0 + hidden) / 20.0)


def test_latency_and_turns_add_so_that_the_recorded_time_comes_out() -> None:
    """Of the squared time 0.64 is latency, 3 x 0.3^2 = 0.27 turns; what is missing, 0.09, is 2 x 0.5 x 0.3 share."""
    stalls = WarpStalls(selected=4.0, wait=12.0, math_pipe_throttle=4.0)
    mix = Mix(fma_cycles=600.0, active_cycles_avg=10_000.0, issue_cycles=100.0, stalls=stalls)
    kernel = recorded(mix, warps=4)
    assert (kernel.latency, kernel.service_demand) == (pytest.approx(0.8), pytest.approx(0.3))
    assert kernel.serial_share == pytest.approx(0.3)
    squares, serial = 0.64 + 15.0 * 0.09, 0.8 + 3.0 * 0.3
    assert mix_times([(kernel, 4)]) == [pytest.approx(sqrt(0.7 * squares + 0.3 * serial**2))]


def test_latency_and_turns_that_fill_more_than_the_recorded_time_add_as_squares() -> None:
    mix = STALLED.model_copy(update={"l1_cycles": 1000.0})
    assert recorded(mix, warps=4).serial_share == 0.0


@given(turn=rounded(0.01, 0.9), share=rounded(0, 1), competing=rounded(1, 20))
def test_a_latency_beside_turns_makes_the_time_1(turn: float, share: float, competing: float) -> None:
    latency = latency_beside(turn, share, competing)
    assume(latency > turn)
    kernel = WarpDemand(competing, latency, turn, (turn,), 0, True, share)
    assert mix_times([(kernel, 1)]) == [pytest.approx(1.0)]


def test_where_one_warp_competes_only_cycles_tell_its_service_demand() -> None:
    assert recorded(STALLED, warps=2).service_demand == pytest.approx(0.5)


def test_an_instruction_that_only_waits_for_service_still_takes_its_cycle() -> None:
    """16 warps compete, 10 are counted, of which the one that issues only half the time."""
    stalls = WarpStalls(not_selected=9.5, selected=0.5)
    assert recorded(Mix(stalls=stalls), warps=32).latency == pytest.approx(1.0 / 10.0)


@pytest.mark.parametrize(
    ("mix", "share"),
    [
        (None, 0.0),
        (Mix(), 0.0),
        (Mix(memory_stall_percent=40.0), 0.4),
        (Mix(stalls=WarpStalls(long_scoreboard=3.0, wait=9.0), memory_stall_percent=40.0), 0.25),
        (Mix(stalls=WarpStalls(wait=9.0)), 0.0),
        (Mix(stalls=WarpStalls(wait=0.0), memory_stall_percent=40.0), 0.4),
    ],
)
def test_the_share_of_stalls_that_wait_for_memory(mix: Mix | None, share: float) -> None:
    assert memory_stall_share(mix) == pytest.approx(share)


NARROW = WarpDemand(1.0, 0.8, 0.2, (0.1, 0.2, 0.0, 0.0, 0.0, 0.1), 1)
WIDE = WarpDemand(2.0, 0.9, 0.6, (0.0, 0.0, 0.3, 0.0, 0.0, 0.2), 2)


def test_time_between_whole_numbers_of_blocks_is_linear() -> None:
    two, three = (mix_times([(NARROW, blocks)])[0] for blocks in (2, 3))
    assert [time_at(NARROW, blocks) for blocks in (2.0, 2.25, 3.0)] == pytest.approx(
        [two, 0.75 * two + 0.25 * three, three]
    )


def test_a_share_of_an_sm_takes_its_time() -> None:
    """2 blocks of WIDE are 4 warps, each with 0.2 at L1; 3 of NARROW 3 warps with 0.1 at issue and at L1."""
    assert capped_time(WIDE, 2, None, None) == 0.0
    assert capped_time(WIDE, 2, 0.5, 0.25) == pytest.approx(4 * 0.2 / 0.25)
    assert capped_time(NARROW, 3, 0.5, 0.75) == pytest.approx(3 * 0.1 / 0.5)
    assert capped_time(NARROW, 3, 0.5, None) == pytest.approx(3 * 0.1 / 0.5)


def test_demand_on_another_gpu() -> None:
    """Cycles of latency at 3/2 of the clock, operations on a half or on five times the lanes of an SM."""
    there = demand_elsewhere(NARROW, 4.0, 1.5, 0.5, CONSTANTS, CONSTANTS)
    assert there == WarpDemand(4.0, pytest.approx(1.2), 0.1, (0.05, 0.1, 0.0, 0.0, 0.0, 0.05), 1)
    assert (
        demand_elsewhere(NARROW, 1.0, 0.5, 5.0, CONSTANTS, CONSTANTS).latency == 1.0
    )  # no less than the service demand


@pytest.mark.parametrize(
    ("dram", "l2", "own", "eighth_power"),
    [
        (1.0, 0.0, MemoryLoad(1.0, 0.0), 16.0),  # sqrt(2)
        (0.0, 1.0, MemoryLoad(0.0, 1.0), 2.0),
        (1.0, 1.0, MemoryLoad(1.0, 1.0), 17.0),
        (2.0, 0.0, MemoryLoad(0.5, 0.0), 16.0),  # load x own
        (0.5, 0.0, MemoryLoad(2.0, 0.0), 1.25**4),  # load x load: no more is there
        (0.0, 2.0, MemoryLoad(0.0, 0.5), 2.0),
        (0.0, 0.5, MemoryLoad(0.0, 2.0), 1.0 + 0.25**4),
        (2.0, 0.0, MemoryLoad(0.5, 0.0, early=0.0), 2.0),  # felt when it is full, as L2 is
        (2.0, 0.0, MemoryLoad(0.5, 0.0, early=0.5), 1.5**4 + 1.0 - 0.5**4),
    ],
)
def test_memory_slowdown_by_hand(dram: float, l2: float, own: MemoryLoad, eighth_power: float) -> None:
    assert memory_slowdown(dram, l2, own) ** 8 == pytest.approx(eighth_power)


@pytest.mark.parametrize(
    ("l2", "longer"),
    [(0.0, 1.0), (0.2, 1.1), (0.4, 1.2), (0.8, 1.2), (3.0, 1.2)],  # no longer than at its own load
)
def test_hits_take_longer_as_l2_fills(l2: float, longer: float) -> None:
    own, without = MemoryLoad(0.0, 0.4, 0.5), MemoryLoad(0.0, 0.4)
    assert memory_slowdown(0.0, l2, own) == pytest.approx(longer * memory_slowdown(0.0, l2, without))


def test_a_full_l2_is_full() -> None:
    own = MemoryLoad(0.0, 5.0, 0.5)
    assert memory_slowdown(0.0, 2.0, own) == pytest.approx(1.5 * memory_slowdown(0.0, 2.0, MemoryLoad(0.0, 5.0)))


def test_time_lost_to_hits_by_hand() -> None:
    """Half of the time waits for hits, which take 1 + 1.5 x 0.5 times as long: 0.5 x 0.75 / 1.75 of it would not be."""
    waited, hits = hit_queue(0.5, 0.5, most=1.0)
    assert waited == pytest.approx(0.5 * 0.75 / 1.75)
    assert hits == pytest.approx(waited / (1.0 - waited) / 0.5)
    assert hit_queue(0.5, 0.5, most=0.1) == (0.1, pytest.approx(0.1 / 0.9 / 0.5))  # the SMs were busy the rest
    assert hit_queue(0.5, 7.0, most=1.0)[0] == pytest.approx(0.5 * 1.5 / 2.5)
    assert hit_queue(0.0, 0.5, most=1.0) == hit_queue(0.5, 0.0, most=1.0) == (0.0, 0.0)


@given(share=rounded(0, 1), l2=rounded(0, 3), most=rounded(0, 0.9))
def test_at_the_recorded_load_hits_lengthen_by_what_was_taken_off(share: float, l2: float, most: float) -> None:
    waited, hits = hit_queue(share, l2, most)
    assert 0.0 <= waited <= most
    own = MemoryLoad(0.0, l2, hits)
    longer = memory_slowdown(0.0, l2, own) / memory_slowdown(0.0, l2, MemoryLoad(0.0, l2))
    assert (1.0 - waited) * longer == pytest.approx(1.0)


def test_what_stalls_tell_of_queues_and_hits_by_hand() -> None:
    stalls = WarpStalls(long_scoreboard=4.0, mio_throttle=1.5, barrier=2.5, wait=2.0)
    assert queued_shares(Mix(stalls=stalls)) == pytest.approx((0.7 * 0.4, 0.15))
    assert queued_shares(None) == queued_shares(Mix()) == (1.0, 0.0)
    assert queued_shares(Mix(stalls=stalls), exposed=0.5) == pytest.approx((0.85 * 0.4, 0.15))
    behind = (
        1.0 + 0.5 * 0.4 * 2.5 / 7.5
    )  # half of its waits read ahead, DRAM was full to 0.4: barriers are like the rest
    assert queued_shares(Mix(stalls=stalls), exposed=0.5, full=0.4) == pytest.approx((0.85 * 0.4 * behind, 0.15))
    assert queued_shares(Mix(stalls=WarpStalls(barrier=1.0)), exposed=0.5, full=1.0) == (0.0, 0.0)
    assert [dram_fullness(busy) for busy in (0.0, 0.8, 0.9, 1.0, 1.3)] == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.0])
    assert full_queue_share(Mix(stalls=stalls)) == full_queue_share(None) == full_queue_share(Mix()) == 0.0
    half = stalls.model_copy(update={"lg_throttle": 0.2, "mio_throttle": 1.3})  # of 0.4 in 10
    assert queued_shares(Mix(stalls=half)) == pytest.approx((0.85 * 0.4, 0.15))
    assert full_queue_share(Mix(stalls=half)) == pytest.approx(0.5 * (0.85 * 4.0 + 0.2) / 10.0)
    full = stalls.model_copy(update={"lg_throttle": 1.0, "mio_throttle": 0.5})
    assert queued_shares(Mix(stalls=full)) == pytest.approx((0.4, 0.15))
    assert full_queue_share(Mix(stalls=full)) == pytest.approx(0.5), "the MIO queue is not that to memory"
    counted = Mix(stalls=stalls, l2_read_bytes=600.0, dram_read_bytes=100.0)  # 150 of 600 sectors are of misses
    assert hit_wait_share(counted) == pytest.approx(0.4 * 0.75)
    assert hit_wait_share(counted.model_copy(update={"dram_read_bytes": 500.0})) == 0.0
    assert hit_wait_share(counted.model_copy(update={"l2_read_bytes": None})) == hit_wait_share(None) == 0.0
    idle = WarpStalls(long_scoreboard=0.0)
    assert hit_wait_share(Mix(stalls=idle, l2_read_bytes=600.0, memory_stall_percent=50.0)) == 0.0


def test_of_a_recorded_time_memory_leaves_a_fiftieth_at_least() -> None:
    assert memory_free_share(1.0, 1.0) == pytest.approx(0.02)


def test_each_younger_block_gets_a_share_less() -> None:
    assert age_shares(3, 0.5) == pytest.approx([12 / 7, 6 / 7, 3 / 7])


@pytest.mark.parametrize(
    ("most", "shares"),
    [
        (1.5, [1.5, 1.0, 0.5]),  # the oldest is held back, and the others share 1.5 as 2 to 1
        (1.2, [1.2, 1.2, 0.6]),  # of the 1.8 that the oldest leaves the next one would get as much
        (1.1, [1.1, 1.1, 0.8]),
        (1.0, [1.0, 1.0, 1.0]),
        (2.0, [12 / 7, 6 / 7, 3 / 7]),
    ],
)
def test_no_block_gets_more_than_the_most(most: float, shares: list[float]) -> None:
    assert age_shares(3, 0.5, most) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("time", "dram", "l2", "bound"),
    [
        (0.55, 0.0, 0.0, "latency"),  # 0.55^2 - 0.16 = 0.1425 of waiting
        (0.60, 0.0, 0.0, "fma"),  # 0.20
        (0.60, 0.5, 0.0, "fma"),  # 0.36 x 0.5 = 0.18 of DRAM
        (0.60, 0.6, 0.0, "dram"),  # 0.216
        (0.60, 0.0, 4.8, "fma"),  # 0.36 x ((1 + 4.8)^(1/4) - 1) = 0.199 of L2
        (0.60, 0.0, 4.9, "l2"),  # 0.201
    ],
)
def test_the_largest_part_of_a_time_binds(time: float, dram: float, l2: float, bound: str) -> None:
    """0.5^2 - 0.3^2 = 0.16 of the squared time is latency; loads are given to the power of 2 and 8."""
    kernel = WarpDemand(1.0, 0.5, 0.3, (0.0, 0.0, 0.3, 0.0, 0.0, 0.0), 2)
    load = MemoryLoad(dram**0.5, l2**0.125)
    parts = time_parts(kernel, time)
    binds = memory_that_binds(parts.whole, parts.largest, load.dram, load.l2, load)
    assert (parts.bound_by, "dram", "l2")[binds] == bound


def test_sets_that_l1_holds_for_one_kernel_only_cost_reads_of_l2() -> None:
    """Each of 100,000 instructions of which a tenth read: 64 of 96 KiB, read once, and all of them 99 times more."""
    mix = Mix(
        issue_cycles=1e5, lsu_cycles=1e4, active_cycles_avg=1e6, warp_instructions=1e5, l1_read_bytes=65536.0,
        l1_write_bytes=0.0, l1_hit_percent=99.0, stalls=WarpStalls(selected=1.0, wait=9.0),
    )  # fmt: skip
    fits, none = (warp_demand(mix, 4, 1, 1.0, 4, H200.model, one_wave=True, l1_bytes=size) for size in (98304.0, 0.0))
    assert fits.l1_set == pytest.approx(65536 / 98304)
    assert fits.l1_reused == pytest.approx(0.99 * 0.1 * L2_CYCLES / 10.0)
    alone = mix_times([(none, 1), (none, 1)])[0]
    lost = mix_times([(fits, 1), (fits, 1)])[0]
    assert mix_times([(fits, 1)]) == mix_times([(none, 1)])
    assert lost > alone * (1.0 + 0.4 * fits.l1_reused)  # they exceed L1 by a third, so half of the hits are lost


def test_a_pipe_that_was_not_counted_can_bind() -> None:
    stalls = WarpStalls(selected=1.0, math_pipe_throttle=3.0, wait=1.0)
    mix = Mix(issue_cycles=5e5, active_cycles_avg=1e6, stalls=stalls, warp_instructions=1e6)
    busy = mix.model_copy(update={"sm_cycles": 1e6})
    unknown, pipe = (warp_demand(one, 16, 1, 1.0, 4, H200.model, one_wave=True) for one in (mix, busy))
    assert pipe.service_demand == pytest.approx(1.0 / 4)
    assert pipe.serial_share < 0.2 < unknown.serial_share


def test_dram_is_as_busy_as_reads_took_longer() -> None:
    """Reads of streams take 1 + load² times as long. Other reads load DRAM up to 1/0.8 times as much as counted."""
    seen = loads_beside(0.4, 0.0, 0.0)
    assert loads_beside(0.4, 0.0, 0.0, longer=1.0 + 0.45**2) == pytest.approx(loads_beside(0.45, 0.0, 0.0))
    assert loads_beside(0.4, 0.0, 0.0, longer=9.0) == pytest.approx(loads_beside(0.5, 0.0, 0.0))  # at most 0.4/0.8
    assert loads_beside(0.4, 0.0, 0.0, longer=1.1) == seen  # its counters say more
    assert loads_beside(0.0, 0.3, 0.0, longer=9.0) == loads_beside(0.0, 0.3, 0.0)  # no traffic of DRAM
    assert loads_beside(0.9, 0.0, 0.0, longer=9.0) == loads_beside(1.0, 0.0, 0.0)  # no more than all of it
    assert loads_beside(0.4, 0.0, 0.95, longer=9.0)[2] == pytest.approx(0.95)  # no less is left than the SMs took
