"""A kernel as it is replayed, alone and in mixes: its throughput, loads and times in closed form.

`A` has two blocks of 8 warps on each of 4 SMs. An instruction takes 0.4 + 0.2 = 0.6 where a block is alone on an SM,
and 0.4 + 3 x 0.2 = 1 where two are.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from tiny import launch, tiny

from gpusim.calibrate.fit import anchored
from gpusim.model.contention import WarpDemand, mix_times
from gpusim.model.kernel import loads_at, mix_rates
from gpusim.model.memory import MemoryLoad, MemoryWait, memory_slowdown

TURNS = WarpDemand(2.0, 0.4, 0.2, (0.1, 0.2, 0.05, 0.05, 0.05, 0.06), 1, serial_share=1.0)
A = replace(
    anchored(launch(8, 20.0), tiny()),
    blocks=8,
    blocks_per_sm=2,
    sm_count=4,
    unit_us=2.0,
    load=MemoryLoad(0.05, 0.03, 0.7),
    demand=TURNS,
    resident_share=1.0,
)
B = replace(
    A,
    unit_us=5.0,
    load=MemoryLoad(0.02, 0.07),
    demand=WarpDemand(1.0, 0.5, 0.1, (0.1, 0.05, 0.05, 0.05, 0.05, 0.05), 0, serial_share=1.0),
)


def test_loads_are_blocks_times_progress_times_time_times_the_load_of_one() -> None:
    (a, b) = loads_at([(A, 3), (B, 2)], [0.5, 0.25])
    assert a == pytest.approx((3 * 0.5 * 2.0 * 0.05, 3 * 0.5 * 2.0 * 0.03), rel=1e-12)
    assert b == pytest.approx((2 * 0.25 * 5.0 * 0.02, 2 * 0.25 * 5.0 * 0.07), rel=1e-12)


def test_rates_and_loads_of_a_kernel_alone_on_an_sm() -> None:
    assert mix_rates([(A, 1)]) == ([pytest.approx(1.0 / 1.2)], pytest.approx(0.05 / 0.6), pytest.approx(0.03 / 0.6))
    assert mix_rates([(A, 2)]) == ([pytest.approx(0.5)], pytest.approx(0.1), pytest.approx(0.06))


def test_rates_and_loads_of_two_kernels_on_an_sm() -> None:
    rates, dram, l2 = mix_rates([(A, 1), (B, 2)])
    time_a, time_b = mix_times([(A.demand, 1), (B.demand, 2)])
    assert time_a > mix_times([(A.demand, 1)])[0]
    assert rates == pytest.approx([1.0 / (2.0 * time_a), 1.0 / (5.0 * time_b)])
    assert dram == pytest.approx(0.05 / time_a + 2 * 0.02 / time_b)
    assert l2 == pytest.approx(0.03 / time_a + 2 * 0.07 / time_b)
    assert (dram, l2) == pytest.approx(tuple(map(sum, zip(*loads_at([(A, 1), (B, 2)], rates), strict=True))))


def test_no_rate_is_above_what_its_limit_leaves() -> None:
    rates, dram, _ = mix_rates([(A, 1), (B, 2)], [1.6, 0.0])
    _, time_b = mix_times([(A.demand, 1), (B.demand, 2)])
    assert rates == pytest.approx([1.0 / (2.0 * 1.6), 1.0 / (5.0 * time_b)])
    assert dram == pytest.approx(0.05 / 1.6 + 2 * 0.02 / time_b)


@pytest.mark.parametrize(("blocks", "most", "pace"), [(8, 2, 4 * 2.0), (7, 2, 3 * 2.0 + 1 / 0.6), (3, 1, 3 / 0.6)])
def test_throughput_alone_is_that_of_sms_with_the_most_blocks_and_with_one_less(
    blocks: int, most: int, pace: float
) -> None:
    model = replace(A, blocks=blocks)
    assert (model.most_resident, model.full_pace) == (most, pytest.approx(pace))
    assert model.full_load == MemoryLoad(pytest.approx(0.05 * pace), pytest.approx(0.03 * pace))


def test_the_load_of_a_kernel_alone_is_that_of_its_mean_resident_blocks() -> None:
    """Three quarters of two blocks, each of which takes (0.6 + 1) / 2 per instruction."""
    own = replace(A, resident_share=0.75).own_load
    assert (own.dram, own.l2, own.hits) == pytest.approx((0.05 * 1.5 * 4 / 0.8, 0.03 * 1.5 * 4 / 0.8, 0.7))


@pytest.mark.parametrize(("load", "bound"), [(0.05, 0.375), (0.5, 1.0)])
def test_what_a_kernel_alone_has_under_way_is_that_of_its_mean_resident_blocks_as_far_as_dram_binds_it(
    load: float, bound: float
) -> None:
    model = replace(A, resident_share=0.75, load=MemoryLoad(load, 0.0), wait=MemoryWait(under_way=0.4))
    assert model.wait.own_under_way == pytest.approx(bound * 1.5 * 4 * 0.4)
    assert replace(model, load=MemoryLoad(0.0, 0.0)).wait.own_under_way == 0.0


def test_the_most_of_a_memory_that_a_block_uses_is_its_time_alone_over_the_blocks_at_once() -> None:
    free = replace(A, load=MemoryLoad(0.0, 0.0))
    assert free.most_share_us == pytest.approx(2.0 / 8.0)
    loaded = replace(A, load=MemoryLoad(0.05, 0.0))  # 0.4 of DRAM alone
    assert loaded.most_share_us == pytest.approx(2.0 * sqrt(1.0 + 0.4**2) / 8.0)
    both = replace(A, load=MemoryLoad(0.05, 0.12))  # and 0.96 of L2
    assert both.most_share_us == pytest.approx(2.0 * ((1.0 + 0.4**2) ** 4 + 0.96**8) ** 0.125 / 8.0)


def test_of_one_wave_the_most_is_of_the_blocks_that_do_most() -> None:
    """Blocks of 2 warps: two fill the schedulers as one does, a third makes all wait for another turn."""
    turns = WarpDemand(0.5, 0.5, 0.5, (0.5,), 0, serial_share=1.0, one_wave=True)
    model = replace(A, blocks=12, blocks_per_sm=3, demand=turns, load=MemoryLoad(0.0, 0.0))
    assert model.full_pace == pytest.approx(4 * 3 / 1.0)
    assert model.most_share_us == pytest.approx(2.0 / (4 * 2 / 0.5))
    assert replace(model, demand=replace(turns, one_wave=False)).most_share_us == pytest.approx(2.0 / (4 * 3 / 0.75))


def test_on_tensor_cores_a_kernel_was_recorded_at_their_cycle_and_that_of_its_power() -> None:
    for on_tensor_cores, cycle in ((True, 0.8), (False, 1.25)):
        model = replace(A, on_tensor_cores=on_tensor_cores, held_clock=0.8)
        assert model.slowdown(0.3, 0.2, 1.25, 1.0) == memory_slowdown(0.3, 0.2, model.own_load, cycle)
        assert model.slowdown(0.3, 0.2, 1.0, 1.25) == memory_slowdown(
            0.3, 0.2, model.own_load, 1.25 if cycle > 1 else 1.0
        )
    assert memory_slowdown(0.0, 0.0, A.own_load, 1.25) == pytest.approx(1.25)


def test_a_ramp_takes_as_long_however_many_of_the_first_blocks_share_an_sm() -> None:
    """Four blocks have an SM each as recorded; two that share one progress at 0.6 / 1 of the pace."""
    model = replace(A, blocks=4, ramp_work=0.3)
    assert model.ramps[:2] == pytest.approx((0.3, 0.3 * 0.6 / 1.0))
    for first, ramp in enumerate(model.ramps, 1):
        assert ramp / mix_rates([(model, first)])[0][0] == pytest.approx(0.3 * 1.2)


def test_a_block_keeps_a_resource_busy_for_its_warps_demand_and_time() -> None:
    assert A.busy_us("alu_cycles") == pytest.approx(2.0 * 0.2 * 2.0)
    assert A.busy_us("l1_cycles") == pytest.approx(2.0 * 0.06 * 2.0)
    assert not A.persistent
    assert replace(A, tiles=9).persistent


def test_what_a_block_holds() -> None:
    """1024 threads of 64 registers, and the shared memory that the driver keeps for itself."""
    assert A.need == (65536, 1024, 32, 1)
