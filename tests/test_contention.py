"""The contention model: what must hold of it whatever its constants are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import ceil, sqrt
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import mixes, rounded
from tiny import shipped_traces

from gpusim import GPU, load_gpu, load_trace
from gpusim.calibrate.blocks import is_persistent
from gpusim.calibrate.fit import _before_work_us, _shape
from gpusim.calibrate.transfer import transferred
from gpusim.hardware.what_if import what_if
from gpusim.model.contention import (
    FEWEST_TURNS,
    SHARED,
    UNKNOWN,
    WarpDemand,
    age_shares,
    binding,
    competing_warps,
    mix_times,
    warp_demand,
)
from gpusim.model.kernel import KernelModel
from gpusim.model.launchable import launch_occupancy
from gpusim.model.memory import (
    MOST_BUSY,
    MemoryLoad,
    l2_busy_at,
    loads_beside,
    memory_free_share,
    memory_slowdown,
    read_ahead,
)
from gpusim.trace.kernels import ALL_COUNTERS, KernelLaunch, Mix, WarpStalls

H200 = load_gpu("h200")
TRACES = Path(__file__).resolve().parent.parent / "traces"


LIVES_US = st.sampled_from([0.0, 1.0, 1.125, 1.25, 1.5, 40.0])  # of a block; 0: unknown


@st.composite
def sharings(draw: st.DrawFn) -> WarpDemand:
    """What some recording would give."""
    warps = draw(st.integers(1, 32))
    residents = draw(st.integers(1, max(1, 64 // warps)))
    mix = draw(st.none() | mixes(duration_us=100.0, blocks=1000))
    demand = warp_demand(mix, warps, residents, 1000 / H200.sm_count, 4, H200.model, one_wave=draw(st.booleans()))
    return replace(demand, block_us=draw(LIVES_US))


@st.composite
def saturating(draw: st.DrawFn) -> WarpDemand:
    """Counters that give a latency below the time that an instruction holds its pipe: few warps, and all for a pipe."""
    warps = draw(st.integers(1, 8))
    busy, blocks_per_sm, active_cycles = draw(rounded(0.5, 1)), 1000 / H200.sm_count, 2e5
    stalls = st.none() | st.builds(WarpStalls, math_pipe_throttle=rounded(1, 20), selected=st.just(1.0))
    mix = Mix(
        issue_cycles=draw(rounded(0, 0.5)) * active_cycles / blocks_per_sm,
        fma_cycles=busy * active_cycles / blocks_per_sm,
        active_cycles_avg=active_cycles,
        stalls=draw(stalls),
    )
    demand = warp_demand(mix, warps, draw(st.integers(1, 8)), blocks_per_sm, 4, H200.model)
    return replace(demand, block_us=draw(LIVES_US))


residents = st.lists(st.tuples(sharings(), st.integers(1, 8)), min_size=1, max_size=4)
loads = st.builds(MemoryLoad, rounded(0, 1.2), rounded(0, 1.2), st.just(0.0), rounded(0, 1))


def shaped(launch: KernelLaunch, gpu: GPU) -> KernelModel:
    """A launch as modelled before it is replayed alone."""
    blocks_per_sm = launch_occupancy(launch, gpu).blocks_per_sm
    return _shape(launch, blocks_per_sm, launch.duration_us - sum(_before_work_us(launch, blocks_per_sm, gpu)), gpu)


# ---- one SM ---------------------------------------------------------------------------------------------------------


@given(kernel=sharings(), count=st.integers(1, 32))
def test_one_kernel_alone_has_a_closed_form(kernel: WarpDemand, count: int) -> None:
    warps = max(1.0, count * kernel.warps_per_scheduler)
    warps = ceil(warps) if kernel.one_wave else warps
    squares = kernel.latency**2 + (warps**2 - 1) * kernel.service_demand**2
    serial = kernel.latency + (warps - 1) * kernel.service_demand
    expected = sqrt((1.0 - kernel.serial_share) * squares + kernel.serial_share * serial**2)
    assert mix_times([(kernel, count)]) == [pytest.approx(expected, rel=1e-9)]


def warps_of(per_scheduler: float, one_wave: bool, demand: float = 0.5) -> WarpDemand:
    """Warps that wait for nothing but their turns."""
    return WarpDemand(per_scheduler, demand, demand, (demand,), 0, serial_share=1.0, one_wave=one_wave)


@pytest.mark.parametrize(
    ("blocks", "warps", "turns"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (4, 2, 2), (5, 2, 3), (1, 6, 2), (2, 6, 3)]
)
def test_blocks_in_one_wave_go_at_the_pace_of_the_fullest_scheduler(blocks: int, warps: int, turns: int) -> None:
    assert mix_times([(warps_of(warps / 4, one_wave=True), blocks)]) == [0.5 * turns]
    assert mix_times([(warps_of(warps / 4, one_wave=False), blocks)]) == [max(0.5, 0.5 * blocks * warps / 4)]


@given(kernel=sharings())
def test_warps_that_compete_are_linear_between_whole_numbers_of_blocks(kernel: WarpDemand) -> None:
    per = kernel.warps_per_scheduler
    assert competing_warps(2.5, per, False) == max(1.0, 2.5 * per)
    assert competing_warps(2.5, per, True) == (max(1, ceil(2 * per)) + max(1, ceil(3 * per))) / 2
    assert competing_warps(3.0, per, True) == max(1, ceil(3 * per))


@given(mix=residents, more=sharings(), count=st.integers(1, 8))
def test_company_never_speeds_a_kernel_up(mix: list[tuple[WarpDemand, int]], more: WarpDemand, count: int) -> None:
    """It may relieve one of another, so that is said of a kernel that had its SM alone."""
    for kernel in mix:
        assert mix_times([kernel, (more, count)])[0] >= mix_times([kernel])[0] * (1 - 1e-9)


def test_the_older_kernel_takes_what_it_takes_alone() -> None:
    full = WarpDemand(1.0, 0.25, 0.25, (0.25, 0.0, 0.0, 0.0, 0.0, 0.0), 0, one_wave=True)
    first, second = mix_times([(full, 4), (full, 4)])
    assert first == pytest.approx(1.01)
    assert second == pytest.approx(101.0)


def test_kernels_whose_blocks_are_replaced_have_the_mean_of_both_orders() -> None:
    full = WarpDemand(1.0, 0.25, 0.25, (0.25, 0.0, 0.0, 0.0, 0.0, 0.0), 0, block_us=3.0)
    assert mix_times([(full, 4), (full, 4)]) == pytest.approx([2.0, 2.0])


@given(kernel=sharings() | saturating(), count=st.integers(1, 8))
def test_an_sm_does_more_with_more_blocks_or_as_much(kernel: WarpDemand, count: int) -> None:
    """Blocks over time: sharing costs each block something, the SM as a whole at most rounding.

    Of blocks in one wave this is so for schedulers that are equally full: one warp more can make all wait for it.
    """
    kernel = replace(kernel, one_wave=False)
    assert (count + 1) / mix_times([(kernel, count + 1)])[0] >= count / mix_times([(kernel, count)])[0] * (1 - 1e-9)


@given(mix=st.lists(st.tuples(sharings() | saturating(), st.integers(1, 8)), min_size=1, max_size=4))
def test_no_resource_of_an_sm_is_busier_than_it_can_be(mix: list[tuple[WarpDemand, int]]) -> None:
    """Issue slots as counted, and pipes: over the time of an instruction they sum to 1 at most."""
    taken = zip(mix, mix_times(mix), strict=True)
    held = [((kernel.slots, *kernel.demands[1:]), n * kernel.warps_per_scheduler / time) for (kernel, n), time in taken]
    use = [[warps * demand for demand in demands] for demands, warps in held]
    assert len(mix) == 1 or max(sum(of) for of in zip(*use, strict=True)) <= 1.0 + 1e-9


@given(kernel=saturating())
def test_no_latency_is_below_the_time_that_an_instruction_holds_its_pipe(kernel: WarpDemand) -> None:
    assert kernel.latency >= kernel.service_demand >= max(kernel.demands)
    assert mix_times([(kernel, 1)])[0] >= kernel.service_demand


@pytest.mark.parametrize("path", shipped_traces(TRACES), ids=lambda path: path.name.split(".")[0])
def test_no_recorded_kernel_exceeds_what_an_sm_sustains(path: Path) -> None:
    trace = load_trace(path)
    gpu = load_gpu(trace.device)
    slower = what_if(gpu, {"fp32_lanes_per_sm": "x0.25"})
    for launch in {launch: None for op in trace.operations() for launch in op.launches()}:
        model = shaped(launch, gpu)
        for kernel in (model.demand, transferred(model, launch, gpu, slower, "").demand):
            counts = range(1, model.blocks_per_sm + 1)
            even = [n for n in counts if not kernel.one_wave or (n * kernel.warps_per_scheduler).is_integer()]
            paces = [count / mix_times([(kernel, count)])[0] for count in even or [model.blocks_per_sm]]
            assert all(more >= fewer * (1.0 - 1e-12) for fewer, more in pairwise(paces))
            assert paces[-1] * kernel.warps_per_scheduler * max(kernel.demands) <= 1.0 + 1e-9


@pytest.mark.parametrize(("fma_busy", "free"), [(0.9, 0.9), (0.09, memory_free_share(0.6, 0.0))])
def test_what_kept_an_sm_busy_was_no_waiting_for_memory(fma_busy: float, free: float) -> None:
    """10 blocks per SM, in two waves of 1980 cycles or 1 us. A pipe can be busy throughout, DRAM is for 0.6 of that."""
    cycles, dram = 1980.0, 0.6 * H200.model.dram_sustained_gb_per_s * 1e3 / 1320
    none = dict.fromkeys(ALL_COUNTERS, 0.0) | {"stalls": WarpStalls(), "achieved_warps_per_sm": 8.0}
    counted = {"fma_cycles": fma_busy * cycles / 10, "dram_read_bytes": dram}
    mix = Mix(**{**none, **counted, "active_cycles_avg": cycles, "active_cycles_max": cycles})
    duration_us = H200.model.launch_latency_us + 1.0
    launch = KernelLaunch(
        name="k", grid=(1320, 1, 1), block=(64, 1, 1), registers_per_thread=200, duration_us=duration_us, mix=mix
    )
    assert shaped(launch, H200).unit_us == pytest.approx(free)


@pytest.mark.parametrize(("blocks", "persistent"), [(132, True), (120, False), (126, False), (130, False), (60, False)])
def test_a_persistent_kernel_that_is_in_no_clusters_takes_all_sms(blocks: int, persistent: bool) -> None:
    launch = KernelLaunch(name="k", grid=(blocks, 1, 1), block=(384, 1, 1), registers_per_thread=168, duration_us=50.0)
    assert is_persistent(launch, 1, H200) == persistent
    assert not is_persistent(launch, 2, H200)


@given(kernel=sharings(), floor=rounded(0, 50))
def test_a_limit_is_kept(kernel: WarpDemand, floor: float) -> None:
    assert mix_times([(kernel, 2)], [floor]) == [max(floor, mix_times([(kernel, 2)])[0])]


@given(mix=st.none() | mixes(duration_us=100.0, blocks=1000), warps=st.integers(1, 32), residents=st.integers(1, 4))
def test_progress_is_as_recorded_where_residents_are_as_recorded(mix: object, warps: int, residents: int) -> None:
    """Within what the stalls leave open: latency and service demands are read from them and must make up one time."""
    kernel = warp_demand(mix, warps, residents, 1000 / H200.sm_count, 4, H200.model)  # type: ignore[arg-type]
    assert kernel.latency > 0.0 and kernel.service_demand > 0.0
    assert 0.0 <= kernel.serial_share <= 1.0 + 1e-9
    turns = residents * warps / 4 > FEWEST_TURNS
    if turns and kernel.serial_share > 0.0 and kernel.latency > kernel.service_demand:
        assert mix_times([(kernel, residents)])[0] == pytest.approx(1.0)
    assert all(demand >= 0.0 for demand in kernel.demands)
    issue, *pipes = kernel.demands
    busy = [issue * H200.model.sustained_issue_share, *pipes]
    assert busy[kernel.bound] == pytest.approx(max(busy))  # the busiest binds, whatever each sustains
    assert len(kernel.demands) == len(SHARED)


# ---- memory ---------------------------------------------------------------------------------------------------------


@given(dram=rounded(0, 3), l2=rounded(0, 3), own=loads)
def test_memory_never_speeds_up(dram: float, l2: float, own: MemoryLoad) -> None:
    assert memory_slowdown(dram, l2, own) >= 1.0 - 1e-12
    assert memory_slowdown(0.0, 0.0, own) == 1.0
    assert memory_slowdown(dram + 0.1, l2, own) >= memory_slowdown(dram, l2, own) * (1 - 1e-12)
    assert memory_slowdown(dram, l2 + 0.1, own) >= memory_slowdown(dram, l2, own) * (1 - 1e-12)


@given(dram=rounded(0, 3), l2=rounded(0, 3))
def test_who_asks_for_nothing_is_not_slowed(dram: float, l2: float) -> None:
    assert memory_slowdown(dram, l2, MemoryLoad(0.0, 0.0)) == 1.0


@given(dram=rounded(0, 0.98), l2=rounded(0, 0.98))
def test_a_slowdown_is_taken_off_again(dram: float, l2: float) -> None:
    """A recording shows how busy memory was: load over slowdown; from that comes the time without it."""
    free = memory_free_share(dram, l2)
    assume(free > 0.021)  # below that a floor takes over
    own = MemoryLoad(dram / free, l2 / free)
    assert memory_slowdown(own.dram, own.l2, own) * free == pytest.approx(1.0, rel=1e-6)


@given(dram=rounded(0, 1.2), l2=rounded(0, 1.2), least=rounded(0, 1))
def test_memory_has_no_more_of_a_recorded_time_than_the_sm_leaves(dram: float, l2: float, least: float) -> None:
    own = MemoryLoad(*loads_beside(dram, l2, least)[:2])
    free = loads_beside(dram, l2, least)[2]
    assert free >= least * (1.0 - 1e-9)
    assert own.dram * free <= min(dram, MOST_BUSY) + 1e-12 and own.l2 * free <= min(l2, MOST_BUSY) + 1e-12
    if free > 0.021:
        assert memory_slowdown(own.dram, own.l2, own) * free == pytest.approx(1.0, rel=1e-6)


@given(dram=rounded(0.3, 0.98), early=rounded(0, 0.9))
def test_who_reads_ahead_waited_as_long_in_the_recording(dram: float, early: float) -> None:
    """The shape of the queue changes, and not the recorded time; DRAM sustains at least 0.8 of streams."""
    free = memory_free_share(dram, 0.0)
    load, l2, felt = read_ahead(dram / free, 0.0, free, early)
    assert l2 == 0.0 and felt in (early, 1.0)
    assert dram / free * (1.0 - 1e-9) <= load <= dram / free / 0.8
    own = MemoryLoad(load, 0.0, early=felt)
    assert memory_slowdown(load, 0.0, own) * free == pytest.approx(1.0, rel=1e-6)
    assert memory_slowdown(load / 4.0, 0.0, own) <= memory_slowdown(
        dram / free / 4.0, 0.0, MemoryLoad(dram / free, 0.0)
    ) * (1.0 + 1e-6)


def test_reading_ahead_by_hand() -> None:
    assert read_ahead(2.0, 0.5, 0.4, 1.0) == (2.0, 0.5, 1.0)  # nothing is read ahead
    assert read_ahead(0.5, 0.0, 0.5, 0.0) == (0.5, 0.0, 1.0)  # a DRAM that would sustain less than 0.8 was not full
    dram, l2, felt = read_ahead(2.2, 0.0, 0.4, 0.0)
    assert (dram, l2, felt) == (pytest.approx((2.5**8 - 1.0) ** 0.125), 0.0, 0.0)


def test_what_memory_leaves_is_as_counted_where_the_sm_leaves_more() -> None:
    free = memory_free_share(0.6, 0.8)
    assert loads_beside(0.6, 0.8, free) == (0.6 / free, 0.8 / free, free)
    assert loads_beside(0.6, 0.8, 1.0) == (
        pytest.approx(0.0, abs=1e-6),
        pytest.approx(0.0, abs=1e-6),
        pytest.approx(1.0),
    )


def test_a_counter_above_what_can_be_sustained_counts_as_that() -> None:
    for dram, l2 in ((1.0, 0.0), (0.0, 1.0)):
        *_, free = loads_beside(2.0 * dram, 2.0 * l2, 0.0)
        assert free == memory_free_share(MOST_BUSY * dram, MOST_BUSY * l2) > 0.0


@given(waited=rounded(0, 0.9))
def test_l2_is_as_busy_as_leaves_what_did_not_wait_for_it(waited: float) -> None:
    assert memory_free_share(0.0, l2_busy_at(waited)) == pytest.approx(1.0 - waited, rel=1e-6)


def test_a_full_queue_shows_that_l2_was_busier_than_its_counters_say() -> None:
    dram, l2, free = loads_beside(0.0, 0.9, 0.0, full_share=0.4)
    assert (dram, free) == (0.0, pytest.approx(0.6))
    assert l2 == pytest.approx(l2_busy_at(0.4) / 0.6)
    assert loads_beside(0.0, 0.9, 0.8, full_share=0.4)[2] == pytest.approx(0.8)  # the SMs were busy so long
    by_hand = pytest.approx(loads_beside(0.0, 0.75, 0.0))
    assert loads_beside(0.0, 0.6, 0.0, full_share=0.4) == by_hand  # L2 sustains 0.8 of streams
    least = l2_busy_at(0.01)
    assert least < 0.75 and loads_beside(0.0, 0.75, 0.0, full_share=0.01) == loads_beside(0.0, 0.75, 0.0)


# ---- the rest -------------------------------------------------------------------------------------------------------


@given(count=st.integers(1, 32), preference=rounded(0, 0.5), most=rounded(1, 8))
def test_shares_by_age_sum_to_the_blocks_and_fall_with_age(count: int, preference: float, most: float) -> None:
    shares = age_shares(count, preference, most)
    assert sum(shares) == pytest.approx(count) and max(shares) <= most * (1.0 + 1e-9)
    assert all(older >= younger > 0.0 for older, younger in pairwise(shares))
    assert age_shares(count, 0.0) == pytest.approx([1.0] * count)


@given(mix=residents, dram=rounded(0, 2), l2=rounded(0, 2), own=loads)
def test_something_binds_every_kernel(
    mix: list[tuple[WarpDemand, int]], dram: float, l2: float, own: MemoryLoad
) -> None:
    known = {"latency", "l2", "dram", *(name.removesuffix("_cycles") for name in SHARED)}
    for i, (kernel, _) in enumerate(mix):
        assert (binding(mix, i, dram, l2, own) in known) == kernel.counted
        assert binding(mix, i, dram, l2, own) in known | {UNKNOWN}


def test_what_binds_is_what_takes_longest() -> None:
    busy = WarpDemand(2.0, 0.1, 0.5, (0.1, 0.1, 0.5, 0.0, 0.0, 0.0), 2)
    idle = WarpDemand(2.0, 1.0, 0.01, (0.01, 0.0, 0.0, 0.0, 0.0, 0.0), 0)
    nothing = MemoryLoad(0.0, 0.0)
    assert binding([(busy, 4)], 0, 0.0, 0.0, nothing) == "fma"
    assert binding([(idle, 1)], 0, 0.0, 0.0, nothing) == "latency"
    assert binding([(idle, 1)], 0, 2.0, 0.0, MemoryLoad(2.0, 0.0)) == "dram"
    assert binding([(idle, 1)], 0, 0.0, 2.0, MemoryLoad(0.0, 2.0)) == "l2"
