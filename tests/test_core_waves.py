"""Many waves in one step, and what SMs held meanwhile, on the core by itself."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from cores import (
    array_of,
    ends,
    line,
    own_pace,
    plain_core,
    slow_anew,
    submit,
)

from gpusim.engine.launches import jitter_factor
from gpusim.results.runs import USES

# ---- steady updates -----------------------------------------------------------------------------------------------


def count_resolves(core: ModuleType, blocks: int, jitter: float = 0.0) -> tuple[float, Any]:
    array = array_of(core, 4, rates=own_pace(0.125))
    submit(array, 0, blocks, caps=2, jitter=jitter)
    line(array, 0)
    found = ends(array)
    assert [slot for slot, _ in found] == [0]
    assert sum(span[1] for span in array.spans(0)) == blocks
    assert array.unfinished_blocks(0) == array.waiting_blocks(0) == array.resident_blocks(0) == 0
    return found[0][1], array


def test_a_long_launch_takes_its_waves(core: ModuleType) -> None:
    assert count_resolves(core, 8 * 10**6)[0] == pytest.approx(8.0e6, rel=1e-12)
    assert count_resolves(core, 8 * 10**6 + 1)[0] == pytest.approx(8.0e6 + 8.0, rel=1e-12)


def test_a_long_launch_with_jitter_takes_the_mean(core: ModuleType) -> None:
    end, array = count_resolves(core, 8 * 10**6, jitter=0.02)
    assert end == pytest.approx(8.0e6, rel=1e-4)
    assert array.block_time() == pytest.approx(8 * end, rel=1e-4)
    assert [span[1] for span in array.spans(0)] == [pytest.approx(2e6, rel=1e-3)] * 4


def test_what_is_slowed_on_its_way_still_takes_its_waves(core: ModuleType) -> None:
    """Four and a half of 1000 waves of 8 us, then the rest at half the pace: steady updates begin amid the change."""
    array = array_of(core, 4, rates=own_pace(0.125))
    submit(array, 0, 8_000, caps=2, issue=0.25)
    line(array, 0)
    assert ends(array, 36.0) == []
    slow_anew(array, 2.0)
    assert ends(array) == [(0, pytest.approx(36.0 + 995.5 * 16.0, rel=1e-12))]
    assert [span[1] for span in array.spans(0)] == [2_000] * 4
    _, flat = array.usage()
    assert array.block_time() == pytest.approx(8 * array.now)
    assert sum(flat[4::7]) == pytest.approx(8_000 * 0.25)


def test_waves_beside_blocks_that_run_on_are_jumped_over(core: ModuleType) -> None:
    """A million blocks of 8 us beside two that take a million us, slowed to half."""
    array = array_of(core, 2, rates=own_pace(0.125, 2e-6), slowdowns=lambda *_: {0: 1.0, 1: 2.0})
    submit(array, 0, 10**6, caps=2, issue=0.25)
    submit(array, 1, 2, caps=1, issue=1e5)
    line(array, 0, 1, queues=[0, 1])
    assert ends(array, 7.5e5) == []
    assert array.work_left_by_sm(1) == [pytest.approx(0.25)] * 2
    assert array.waiting_blocks(0) == pytest.approx(10**6 - 4 * 7.5e5 / 8.0, abs=8)
    assert ends(array) == [(1, pytest.approx(1e6, rel=1e-12)), (0, pytest.approx(2e6, rel=1e-6))]
    _, flat = array.usage()
    assert sum(flat[4::7]) == pytest.approx(0.25 * 10**6 + 2e5, rel=1e-9)
    width, flat = array.usage()
    half = [sum(flat[14 * b + 4 : 14 * b + 14 : 7]) for b in range(int(1e6 / width))]
    assert half == [pytest.approx((0.125 + 0.2) * width, rel=1e-3)] * len(half)  # of 4 blocks and of 2


def test_few_steps_do_for_many_waves_beside_blocks_that_run_on() -> None:
    steps = 0

    class Counting(plain_core().SMArray):  # type: ignore[misc, name-defined]  # a module that is loaded by path
        def complete(self, sm: int) -> None:
            nonlocal steps
            steps += 1
            super().complete(sm)

    counting = ModuleType("counting")
    counting.SMArray = Counting  # type: ignore[attr-defined]
    array = array_of(counting, 2, rates=own_pace(0.125, 2e-6))
    submit(array, 0, 10**6, caps=2)
    submit(array, 1, 2, caps=1, pieces=4)
    line(array, 0, 1, queues=[0, 1])
    assert [slot for slot, _ in ends(array)] == [1, 0]
    assert steps < 1_000


def test_steady_updates_are_in_the_history_wherever_they_stop(core: ModuleType) -> None:
    array = array_of(core, 4, rates=own_pace(0.125))
    submit(array, 0, 80_000, caps=2)
    line(array, 0)
    assert ends(array, 1000.0) == []
    assert array.now == 1000.0
    assert array.block_time() == pytest.approx(8 * 1000.0)


def test_steady_updates_are_in_the_bins_of_their_time_though_the_slowdown_changed_after(core: ModuleType) -> None:
    """Blocks of 8 us, each of 8 units; from 1001 to 1004 us the one that runs then is slowed to a quarter."""
    array = array_of(core, 1, rates=own_pace(0.125))
    submit(array, 0, 8_000, caps=1, issue=8.0)
    line(array, 0)
    assert ends(array, 600.0) == []
    assert array.usage()[0] == 8.0  # 128 bins
    assert ends(array, 1001.0) == []
    slow_anew(array, 4.0)
    assert ends(array, 1004.0) == []
    width, history = array.usage()
    assert width == 8.0
    assert list(history[4 :: len(USES)])[:127] == pytest.approx([8.0] * 125 + [1.0 + 3.0 * 0.25, 0.0])


def test_who_is_looked_at_more_often_than_its_blocks_end_is_stepped_through(core: ModuleType) -> None:
    """Blocks of 1 and of 64 us; every 50 us somebody looks. After 1000 us the sixteenth of 64 has run for 40."""
    array = array_of(core, 2, rates=own_pace(1.0, 1.0 / 64.0))
    submit(array, 0, 100_000, caps=[1, 0])
    submit(array, 1, 1_000, caps=[0, 1])
    line(array, 0, 1, queues=[0, 1])
    for look in range(50, 1001, 50):
        assert ends(array, float(look)) == []
    assert array.work_left_by_sm(1) == [0.0, 1.0 - 40.0 / 64.0]
    assert [array.waiting_blocks(slot) for slot in (0, 1)] == [100_000 - 1_001, 1_000 - 16]
    assert ends(array) == [(1, pytest.approx(64_000.0, rel=1e-12)), (0, pytest.approx(100_000.0, rel=1e-12))]


@pytest.mark.parametrize("sms", [6, 49])
def test_blocks_of_a_long_launch_are_all_counted_on_sms_of_which_each_runs_a_part_that_is_rounded(
    core: ModuleType, sms: int
) -> None:
    array = array_of(core, sms, rates=own_pace(0.125))
    submit(array, 0, 1000 * sms, caps=1)
    line(array, 0)
    assert ends(array) == [(0, pytest.approx(8000.0, rel=1e-12))]
    assert [span[1] for span in array.spans(0)] == [1000] * sms


def test_a_launch_of_few_waves_takes_what_each_of_its_blocks_takes(core: ModuleType) -> None:
    array = array_of(core, 1, rates=own_pace(0.125))
    submit(array, 0, 40, caps=1, jitter=0.1, seed=3)
    line(array, 0)
    total = sum(8.0 * jitter_factor(3, block, 0.1) for block in range(40))
    assert ends(array) == [(0, pytest.approx(total, rel=1e-12))]
    assert total != pytest.approx(320.0, rel=1e-3)


@pytest.mark.parametrize("step", [7.0, 33.25, 1000.0])
def test_looking_in_between_changes_nothing_that_matters(core: ModuleType, step: float) -> None:
    """A policy that wants to be woken, or a request that arrives, cuts steady updates short."""
    array = array_of(core, 4, rates=own_pace(0.125, 0.09))
    submit(array, 0, 4_000, caps=2)
    submit(array, 1, 4_000, caps=1)
    line(array, 0, 1, queues=[0, 1])
    found: list[tuple[int, float]] = []
    while len(found) < 2:
        found += ends(array, array.now + step)
    assert found[0] == (0, pytest.approx(4_000 / 8 / 0.125, rel=1e-3))
    assert found[1] == (1, pytest.approx(4_000 / 4 / 0.09, rel=1e-3))


def test_usage_is_what_residents_hold(core: ModuleType) -> None:
    array = array_of(core, 2, (100, 200, 64, 32), rates=own_pace(0.5))
    submit(array, 0, 3, caps=1, need=(50, 100, 16, 1), carveout=200, issue=0.25, dram=0.5)
    line(array, 0)
    assert ends(array) == [(0, 4.0)]
    width, flat = array.usage()
    uses = [[flat[(b * 2 + sm) * 7 + i] for i in range(7)] for sm in range(2) for b in range(128)]
    busy = [[width * x for x in (50, 100, 16, 1, 0.125, 0.25, 0.0)]] * 4
    assert width == 1.0
    assert uses[:5] == [*busy, [0.0] * 7]
    assert uses[128:133] == [*busy[:2], *[[0.0] * 7] * 3]


def test_a_bin_has_what_was_done_in_it_though_the_slowdown_changed_within_others(core: ModuleType) -> None:
    """A block of 8 us that is slowed to a quarter from 2.5 to 6.5 us, while another one runs elsewhere."""
    array = array_of(
        core,
        2,
        rates=own_pace(0.125, 1.0),
        load=lambda mix: (1.0 if mix and mix[0][0] == 1 else 0.0, 0.0),
        slowdowns=lambda domain, dram, l2, *cycles: {0: 4.0 if dram else 1.0, 1: 4.0},
    )
    submit(array, 0, 1, caps=[1, 0], issue=8.0)
    line(array, 0)
    assert array.advance(2.5) == -1
    submit(array, 1, 1, caps=[0, 1])
    line(array, 0, 1)
    assert ends(array) == [(1, 6.5), (0, 11.0)]
    width, history = array.usage()
    assert width == 1.0
    used = list(history[4 :: 2 * len(USES)])[:12]
    assert used == pytest.approx([1.0, 1.0, 0.625, 0.25, 0.25, 0.25, 0.625, 1.0, 1.0, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("stops", "look", "used"),
    [
        ((2.5, 3.0), 3.5, [1.0, 1.0, 1.0, 0.125, 0.0]),  # at the edge of a bin
        ((2.25, 2.5), 4.5, [1.0, 1.0, 0.625, 0.25, 0.125, 0.0]),  # amid one, which is left in one step
    ],
)
def test_a_bin_has_what_was_done_in_it_wherever_the_slowdown_changed(
    core: ModuleType, stops: tuple[float, float], look: float, used: list[float]
) -> None:
    """A block of 64 us that is slowed to a quarter from the second stop on."""
    array = array_of(core, 1, rates=own_pace(1.0 / 64.0))
    submit(array, 0, 1, caps=1, issue=64.0)
    line(array, 0)
    assert [ends(array, stop) for stop in stops] == [[], []]
    slow_anew(array, 4.0)
    assert ends(array, look) == []
    width, history = array.usage()
    assert width == 1.0
    assert list(history[4 :: len(USES)])[: len(used)] == pytest.approx(used, rel=1e-12)


def test_usage_folds_and_keeps_its_sum(core: ModuleType) -> None:
    array = array_of(core, 1, rates=own_pace(0.001))
    submit(array, 0, 5, caps=2)
    line(array, 0)
    assert ends(array) == [(0, pytest.approx(3000.0))]
    width, flat = array.usage()
    assert width == 32.0
    assert sum(flat[3::7]) == pytest.approx(5000.0)


def test_short_blocks_end_late_in_a_long_replay(core: ModuleType) -> None:
    """At 10^6 us the clock is coarser than what such a block has left of its work."""
    array = array_of(core, 1, rates=own_pace(50.0))
    array.now = 1e6
    submit(array, 0, 64, caps=2)
    line(array, 0)
    assert ends(array) == [(0, pytest.approx(1e6 + 32 / 50.0))]
