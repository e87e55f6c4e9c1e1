"""The core by itself: where blocks go and when they end, against timelines worked out by hand."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cores import Mix, array_of, core_name, cores, ends, is_compiled, line, on_every_core, own_pace, plain_core, submit
from hypothesis import given
from hypothesis import strategies as st

from gpusim.calibrate import kernels
from gpusim.engine import core as used_core
from gpusim.engine import sm_array
from gpusim.engine.bindings import BINDING
from gpusim.engine.launches import below_prime, jitter_factor
from gpusim.lab import bench
from gpusim.model.contention import SHARED, UNKNOWN
from gpusim.model.memory import MemoryLoad, memory_slowdown, memory_that_binds
from gpusim.results.runs import USES
from gpusim.session import Session

NEVER = 1e300


@pytest.fixture(params=cores(), ids=core_name)
def core(request: pytest.FixtureRequest) -> ModuleType:
    module: ModuleType = request.param
    return module


LOADS = st.floats(0.0, 1e3)


@pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here")
@given(LOADS, LOADS, LOADS, LOADS, st.floats(1.0, 2.0), LOADS)
def test_the_compiled_core_has_the_memory_term_of_the_model(
    dram: float, l2: float, own_dram: float, own_l2: float, cycle: float, hits: float
) -> None:
    own = MemoryLoad(own_dram, own_l2, hits)
    table = array("d", [9.0, *own])
    slowdown = used_core.memory_slowdown(dram, l2, table, cycle, 1)
    assert slowdown == memory_slowdown(dram, l2, own, cycle) == memory_slowdown(dram, l2, table, cycle, 1)
    binds = used_core.memory_that_binds(cycle, own_l2, dram, l2, table, 1)
    assert binds == memory_that_binds(cycle, own_l2, dram, l2, own)


# ---- where blocks go ------------------------------------------------------------------------------------------------

PASCAL = (65536, 65536, 64, 32)  # 2048 threads, 64 warps, 32 blocks
TURING = (65536, 65536, 32, 16)  # 1024 threads, 32 warps, 16 blocks
EVENS_THEN_ODDS = [*range(0, 68, 2), *range(1, 68, 2)]


def placed(core: ModuleType, sms: int, limits: Any, order: list[int], busy: Any, threads: int, blocks: int) -> Any:
    """The SM of each block in the order of placement; `busy` is (threads of a resident block, its SMs)."""
    before = [0] * sms
    where = []
    for count in range(1, blocks + 1):
        array = array_of(core, sms, limits, order=order)
        resident_threads, resident_sms = busy
        caps = [int(sm in resident_sms) for sm in range(sms)]
        submit(array, 0, len(resident_sms), caps=caps, need=(0, 0, -(-resident_threads // 32), 1))
        submit(array, 1, count, need=(0, 0, -(-threads // 32), 1))
        line(array, 0, 1)
        assert array.residents_by_sm(0) == caps
        now = array.residents_by_sm(1)
        where.append(next(sm for sm in range(sms) if now[sm] > before[sm]))
        before = now
    return where


@pytest.mark.parametrize(
    ("resident_threads", "threads", "published"),
    [
        (256, 160, [0, 0, 1]),
        (1024, 32, [0, 0, 1]),  # block slots bind
        (1024, 33, [0, 0, 0]),  # warps bind
    ],
)
def test_most_room_on_five_sms(core: ModuleType, resident_threads: int, threads: int, published: list[int]) -> None:
    busy = (resident_threads, [1, 2, 3, 4])
    assert placed(core, 5, PASCAL, list(range(5)), busy, threads, 3) == published


@pytest.mark.parametrize(
    ("threads", "published"), [(33, [67] * 8 + [0]), (32, [67, 0, 2, 4, 6, 8, 10, 12])], ids=["33", "32"]
)
def test_most_room_on_68_sms(core: ModuleType, threads: int, published: list[int]) -> None:
    busy = (512, list(range(67)))
    assert placed(core, 68, TURING, EVENS_THEN_ODDS, busy, threads, len(published)) == published


def test_alone_it_looks_like_round_robin(core: ModuleType) -> None:
    array = array_of(core, 4)
    submit(array, 0, 10)
    line(array, 0)
    assert array.residents_by_sm(0) == [3, 3, 2, 2]


def test_registers_and_shared_memory_make_room(core: ModuleType) -> None:
    array = array_of(core, 2, (100, 100, 64, 32))
    submit(array, 0, 1, need=(60, 10, 1, 1), caps=[1, 0], carveout=100)
    submit(array, 1, 3, need=(20, 30, 1, 1), carveout=100)
    line(array, 0, 1)
    # room for 100/30 = 3 on the empty SM, for 40/20 = 2 on the other: one there, then one on each
    assert array.residents_by_sm(1) == [1, 2]
    assert array.free(0) == (20, 60, 62, 30)
    assert array.free(1) == (60, 40, 62, 30)


def test_an_idle_sm_is_set_to_the_carveout_of_the_first_comer(core: ModuleType) -> None:
    array = array_of(core, 1, (1000, 100, 64, 32), rates=own_pace(1.0, 0.5, 1.0, 1.0))
    submit(array, 0, 1, need=(0, 10, 1, 1), carveout=40)
    submit(array, 1, 1, need=(0, 10, 1, 1), carveout=40)
    submit(array, 2, 1, need=(0, 10, 1, 1), carveout=60)
    line(array, 0, 1, 2, queues=[0, 1, 2])
    assert [array.residents_by_sm(slot) for slot in (0, 1, 2)] == [[1], [1], [0]]
    assert array.free(0)[1] == 40 - 20
    assert ends(array) == [(0, 1.0), (1, 2.0), (2, 3.0)]  # 2 comes once the SM has been empty


def test_a_kernel_joins_others_where_the_carveout_is_what_it_needs_though_less_than_it_would_set(
    core: ModuleType,
) -> None:
    array = array_of(core, 1, (1000, 100, 64, 32), rates=own_pace(1.0, 1.0))
    submit(array, 0, 1, need=(0, 10, 1, 1), carveout=40)
    submit(array, 1, 1, need=(0, 10, 1, 1), carveout=60, least_carveout=30)
    line(array, 0, 1, queues=[0, 1])
    assert [array.residents_by_sm(slot) for slot in (0, 1)] == [[1], [1]]
    assert array.free(0)[1] == 40 - 20


def test_the_first_blocks_of_a_launch_take_longer(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(0.5))
    submit(array, 0, 5, caps=1, ramps=(0.25,))
    line(array, 0)
    assert ends(array) == [(0, 2.5 + 2.0 + 2.0)]  # two at once with 0.25 of a block more, two, one
    assert array.spans(0) == [(0, 3, 0.0, 6.5), (1, 2, 0.0, 4.5)]


@pytest.mark.parametrize(("caps", "end"), [(3, 2.0 * 1.125 + 2.0), (2, 2.0 * 1.25 + 2.0), (1, 2.0 * 1.5 + 3 * 2.0)])
def test_how_much_longer_depends_on_how_many_share_an_sm(core: ModuleType, caps: int, end: float) -> None:
    array = array_of(core, 1, rates=own_pace(0.5))
    submit(array, 0, 4, caps=caps, ramps=(0.5, 0.25, 0.125))
    line(array, 0)
    assert ends(array) == [(0, end)]


# ---- when blocks end ------------------------------------------------------------------------------------------------


def test_waves(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(0.5))
    submit(array, 0, 7, caps=2)
    line(array, 0)
    assert array.next_due() == 2.0
    assert ends(array) == [(0, 4.0)]
    assert array.started_at(0) == 0.0
    assert array.dispatched(0) == 2.0
    assert array.block_time() == 14.0
    assert array.spans(0) == [(0, 4, 0.0, 4.0), (1, 3, 0.0, 4.0)]
    assert [list(column) for column in array.span_columns(0)] == [[0, 1], [4, 3], [0.0, 0.0], [4.0, 4.0]]


def test_a_clock_that_starts_again_tells_times_of_the_caller(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(0.5))
    for origin in (0.0, 10.0, 100.5):
        array.restart_clock(origin)
        submit(array, 0, 3, caps=1)
        assert (array.started_at(0), array.dispatched(0)) == (-1.0, -1.0)
        line(array, 0)
        assert ends(array) == [(0, 4.0)]  # on its own clock
        assert (array.started_at(0), array.dispatched(0)) == (origin, origin + 2.0)
        assert array.spans(0) == [(0, 2, origin, origin + 4.0), (1, 1, origin, origin + 2.0)]
        assert [list(column) for column in array.span_columns(0)][2:] == [[origin] * 2, [origin + 4.0, origin + 2.0]]
    width, history = array.usage()
    slots_of_the_first_sm = list(history[3 :: 2 * len(USES)])
    assert width == 1.0
    assert {at: held for at, held in enumerate(slots_of_the_first_sm) if held} == {
        **dict.fromkeys((0, 1, 2, 3, 10, 11, 12, 13, 101, 102, 103), 1.0),
        **dict.fromkeys((100, 104), 0.5),
    }


def test_uses_that_are_known_are_added_to_the_bin_of_their_time(core: ModuleType) -> None:
    known = array_of(core, 2, rates=own_pace(0.5))
    submit(known, 0, 3, caps=1, need=(10, 20, 2, 1), issue=0.25)
    line(known, 0)
    assert ends(known) == [(0, 4.0)]
    uses = known.uses()
    assert list(uses[: len(USES)]) == [40.0, 80.0, 8.0, 4.0, 0.5, 0.0, 0.0]
    array = array_of(core, 2)
    assert array.in_one_bin(3.0, 3.5)
    assert not array.in_one_bin(3.0, 7.0)
    assert array.in_one_bin(993.0, 999.0)  # 128 bins, by then of 8 us
    array.add_uses(993.0, uses)
    width, history = array.usage()
    assert width == 8.0
    assert history[(124 * 2 + 1) * len(USES) + 3] == 2.0
    assert sum(history) == sum(uses)


def test_a_history_that_is_forgotten_begins_anew(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(0.005))
    assert array.usage()[0] == 1.0
    for _ in range(2):
        array.restart_clock(0.0)
        array.forget_uses()
        submit(array, 0, 3, caps=1)
        line(array, 0)
        assert ends(array) == [(0, 400.0)]
        width, history = array.usage()
        assert (width, history[3], sum(history[3 :: len(USES)])) == (4.0, 4.0, 600.0)
    array.forget_uses()
    width, history = array.usage()
    assert (width, sum(history)) == (1.0, 0.0)


def test_a_slot_that_is_forgotten_gets_new_rates_alone_and_beside_others(core: ModuleType) -> None:
    paces = [1.0, 0.25]
    array = array_of(core, 1, rates=lambda mix: [paces[slot] for slot, _ in mix])
    for pace in (1.0, 0.5, 2.0):
        paces[0] = pace
        array.forget_slot(0)
        submit(array, 0, 1)
        line(array, 0)
        start = array.now
        assert ends(array) == [(0, start + 1.0 / pace)]
    mixes = array.mix_count()
    submit(array, 1, 1)
    line(array, 1)
    start = array.now
    for pace in (1.0, 0.5):
        paces[0] = pace
        array.forget_slot(0)
        submit(array, 0, 1)
        line(array, 1, 0)
        before = array.now
        assert ends(array, before + 1.0 / pace) == [(0, before + 1.0 / pace)]
    assert ends(array) == [(1, start + 4.0)]
    assert array.mix_count() > mixes
    array.forget_mixes()
    assert array.mix_count() == 1  # the empty one


def test_a_slot_that_another_launch_gets_starts_from_nothing(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(0.5))
    for start, caps in ((0.0, [1, 1]), (2.0, [1, 0])):
        submit(array, 0, sum(caps), caps=caps)
        assert (array.started_at(0), array.dispatched(0), array.spans(0)) == (-1.0, -1.0, [])
        line(array, 0)
        assert ends(array) == [(0, start + 2.0)]
        assert (array.started_at(0), array.dispatched(0)) == (start, start)
        assert array.spans(0) == [(sm, 1, start, start + 2.0) for sm in range(2) if caps[sm]]


def test_processor_sharing(core: ModuleType) -> None:
    array = array_of(core)
    submit(array, 0, 1)
    line(array, 0)
    assert ends(array, 0.5) == []
    assert array.now == 0.5
    submit(array, 1, 1)
    line(array, 0, 1)
    assert ends(array) == [(0, 1.5), (1, 2.0)]


def test_three_arrivals_share_one_sm(core: ModuleType) -> None:
    """Work 4, 4 and 2 that come at 0, 2 and 4 to one server shared equally."""
    works = {0: 4, 1: 4, 2: 2}
    array = array_of(core, rates=lambda mix: [1.0 / works[slot] / sum(n for _, n in mix) for slot, _ in mix])
    submit(array, 0, 1)
    line(array, 0)
    assert ends(array, 2.0) == []
    submit(array, 1, 1)
    line(array, 0, 1)
    assert ends(array, 4.0) == []
    submit(array, 2, 1)
    line(array, 0, 1, 2)
    # at 4: 1, 3 and 2 left, a third each; 0 ends at 7; 2 and 1 left, a half each: 9 and 10
    assert ends(array) == [
        (0, pytest.approx(7.0, abs=1e-12)),
        (2, pytest.approx(9.0, abs=1e-12)),
        (1, pytest.approx(10.0, abs=1e-12)),
    ]


def test_an_sm_that_shares_one_pace_is_busy_until_all_work_is_done(core: ModuleType) -> None:
    """With 100 blocks it goes through more mixes than its tables hold at first, down as well as up."""
    array = array_of(core, limits=(65536, 65536, 100, 100))
    submit(array, 0, 100, caps=100, jitter=0.1, seed=3)
    line(array, 0)
    work = [jitter_factor(3, block, 0.1) for block in range(100)]
    assert array.next_due() == pytest.approx(100.0 * min(work))
    assert ends(array) == [(0, pytest.approx(sum(work)))]


def test_old_blocks_go_before_young_ones(core: ModuleType) -> None:
    array = array_of(core, rates=own_pace(1.0), shares=lambda count: [1.0] if count == 1 else [1.5, 0.5])
    submit(array, 0, 3, caps=2)
    line(array, 0)
    # a ends at 2/3 with b at 1/3; c joins and b is oldest: it ends at 2/3 + 4/9 with c at 2/9; c goes on alone
    assert array.next_due() == pytest.approx(2 / 3)
    assert ends(array) == [(0, pytest.approx(2 / 3 + 4 / 9 + 7 / 9))]


def test_two_sms_do_not_share(core: ModuleType) -> None:
    array = array_of(core, 2)
    submit(array, 0, 1, caps=[1, 0])
    submit(array, 1, 2, caps=[0, 2])
    line(array, 0, 1)
    assert ends(array) == [(0, 1.0), (1, 2.0)]


def test_launches_that_end_together_come_in_order_of_their_sms(core: ModuleType) -> None:
    array = array_of(core, 2)
    submit(array, 0, 1, caps=[0, 1])
    submit(array, 1, 1, caps=[1, 0])
    line(array, 0, 1)
    assert ends(array) == [(1, 1.0), (0, 1.0)]


# ---- who may place blocks -------------------------------------------------------------------------------------------


def test_of_blocks_that_end_together_that_of_the_first_sm_ends_first(core: ModuleType) -> None:
    array = array_of(core, 4, rates=own_pace(0.5))
    submit(array, 0, 3, caps=[0, 1, 0, 0])
    line(array, 0)
    array.set_caps(0, [1, 1, 0, 0])  # a block comes to SM 0 after that on SM 1, at the same instant
    line(array, 0)
    assert ends(array) == [(0, 4.0)]
    assert array.spans(0) == [(0, 2, 0.0, 4.0), (1, 1, 0.0, 2.0)]


def test_the_head_of_the_line_holds_the_rest_back(core: ModuleType) -> None:
    """B would fit at once, but waits until A, which has 3 blocks for 2 SMs, has placed its last at 1."""
    array = array_of(core, 2, (100, 100, 64, 32), rates=own_pace(1.0, 1.0))
    submit(array, 0, 3, need=(60, 0, 1, 1))
    submit(array, 1, 1, need=(40, 0, 1, 1))
    line(array, 0, 1)
    assert array.residents_by_sm(1) == [0, 0]
    assert sorted(ends(array)) == [(0, 2.0), (1, 2.0)]
    assert array.started_at(1) == 1.0


def test_queues_do_not_hold_one_another_back(core: ModuleType) -> None:
    array = array_of(core, 2, (100, 100, 64, 32), rates=own_pace(1.0, 1.0))
    submit(array, 0, 3, need=(60, 0, 1, 1))
    submit(array, 1, 1, need=(40, 0, 1, 1))
    line(array, 0, 1, queues=[0, 1])
    assert ends(array) == [(1, 1.0), (0, 2.0)]


def test_the_order_of_the_line_is_the_order_of_placing(core: ModuleType) -> None:
    for order in ([0, 1], [1, 0]):
        array = array_of(core, rates=own_pace(1.0, 1.0))
        submit(array, 0, 2, need=(0, 0, 64, 1))
        submit(array, 1, 2, need=(0, 0, 64, 1))
        line(array, *order)
        assert ends(array) == [(order[0], 2.0), (order[1], 4.0)]


def test_a_new_line_takes_the_turn_of_the_old(core: ModuleType) -> None:
    array = array_of(core, rates=own_pace(1.0, 1.0))
    submit(array, 0, 3, need=(0, 0, 64, 1))
    submit(array, 1, 1, need=(0, 0, 64, 1))
    line(array, 0, 1)
    assert ends(array, 0.5) == []
    line(array, 1, 0)
    assert ends(array) == [(1, 2.0), (0, 4.0)]


def test_who_is_left_out_of_the_line_places_no_more(core: ModuleType) -> None:
    array = array_of(core, rates=own_pace(1.0, 1.0))
    submit(array, 0, 3, caps=1)
    line(array, 0)
    assert ends(array, 1.5) == []
    line(array)
    assert ends(array, 5.0) == []
    assert (array.waiting_blocks(0), array.resident_blocks(0), array.unfinished_blocks(0)) == (1, 0, 1)
    line(array, 0)
    assert ends(array) == [(0, 6.0)]


def test_masks_and_caps(core: ModuleType) -> None:
    array = array_of(core, 4, rates=own_pace(1.0, 1.0))
    submit(array, 0, 6, caps=[2, 1, 0, 0])
    submit(array, 1, 6, caps=[0, 0, 1, 2])
    line(array, 0, 1, queues=[0, 1])
    assert array.residents_by_sm(0) == [2, 1, 0, 0]
    assert array.residents_by_sm(1) == [0, 0, 1, 2]
    assert sorted(ends(array)) == [(0, 2.0), (1, 2.0)]
    assert [span[:2] for span in array.spans(0)] == [(0, 4), (1, 2)]


def test_an_sm_of_a_tenant_drains_before_another_comes(core: ModuleType) -> None:
    """Slots 0 and 2 are of one tenant, 1 of another, 3 of none: 1 waits for 0 and 2, then the rest of 0 for 1."""
    array = array_of(core, rates=own_pace(0.5, 0.25, 1.0, 1.0))
    for slot, blocks in enumerate((2, 1, 1, 1)):
        submit(array, slot, blocks, caps=1)
    for slot, tenant in enumerate((0, 1, 0, -1)):
        array.set_tenant(slot, tenant)
    line(array, 0, 1, 2, 3, queues=[0, 1, 2, 3])
    assert [array.resident_blocks(slot) for slot in range(4)] == [1, 0, 1, 1]
    assert sorted(ends(array, 1.5)) == [(2, 1.0), (3, 1.0)]
    line(array, 1, 0, queues=[0, 1])
    assert ends(array) == [(1, 6.0), (0, 8.0)]


def test_beside_others_no_more_blocks_start_than_they_leave_room_for(core: ModuleType) -> None:
    """Slot 1 has room for three blocks of an empty SM, for one beside slot 0; the SM that is empty comes first."""
    array = array_of(core, 2, rates=own_pace(1.0, 1.0), most_beside=lambda others, slot: 1 if others and slot else 3)
    submit(array, 0, 1, caps=[1, 0])
    submit(array, 1, 5)
    line(array, 0, 1, queues=[0, 1])
    assert array.residents_by_sm(1) == [1, 3]
    assert ends(array) == [(0, 1.0), (1, 2.0)]


def test_a_slot_with_another_kernel_may_have_other_room(core: ModuleType) -> None:
    room = {0: 3}
    array = array_of(core, rates=own_pace(1.0), most_beside=lambda others, slot: room[slot])
    submit(array, 0, 3)
    line(array, 0)
    assert ends(array) == [(0, 1.0)]
    room[0] = 1
    array.forget_slot(0)
    submit(array, 0, 3)
    line(array, 0)
    assert ends(array) == [(0, 4.0)]


def test_residents_above_a_lowered_cap_run_to_their_end(core: ModuleType) -> None:
    array = array_of(core, rates=own_pace(1.0))
    submit(array, 0, 6, caps=3)
    line(array, 0)
    array.set_caps(0, [1])
    assert array.residents_by_sm(0) == [3]
    assert ends(array) == [(0, 4.0)]  # 3 at once, then 1 + 1 + 1


def test_a_raised_cap_lets_more_in_with_the_next_line(core: ModuleType) -> None:
    array = array_of(core, rates=own_pace(1.0))
    submit(array, 0, 4, caps=1)
    line(array, 0)
    assert ends(array, 0.5) == []
    array.set_caps(0, [3])
    line(array, 0)
    assert array.residents_by_sm(0) == [3]
    assert ends(array) == [(0, 2.0)]  # one is done at 1 and the fourth takes its place


def test_eviction_takes_the_youngest_and_keeps_what_they_had_left(core: ModuleType) -> None:
    array = array_of(core, rates=own_pace(1.0, 1.0))
    submit(array, 0, 3, need=(0, 0, 16, 1))
    line(array, 0)
    assert ends(array, 0.25) == []
    submit(array, 1, 1, need=(0, 0, 48, 1))
    array.evict(0, 0, 2, 0.5)
    line(array, 1, 0)
    assert (array.residents_by_sm(0), array.waiting_blocks(0), array.residents_by_sm(1)) == ([1], 2, [1])
    # the one that stayed ends at 1 and the two others need 0.75 + 0.5: one from 1 on, one from 1.25, when 1 has gone
    assert ends(array) == [(1, 1.25), (0, 2.5)]
    assert array.spans(0)[0][1] == 3


def test_eviction_takes_no_more_than_there_are(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(1.0, 1.0))
    submit(array, 0, 2, caps=1)
    line(array, 0)
    array.evict(0, 0, 9, 0.0)
    array.evict(1, 1, 9, 0.0)
    assert array.residents_by_sm(0) == [0, 1]
    array.dispatch()
    assert ends(array) == [(0, 1.0)]


def test_nothing_to_run_ends_at_once(core: ModuleType) -> None:
    array = array_of(core)
    assert array.advance(float("inf")) == -1
    assert array.advance(NEVER) == -1
    assert array.now == 0.0
    submit(array, 0, 1, caps=0)
    line(array, 0)
    assert array.advance(float("inf")) == -1
    assert array.advance(3.0) == -1
    assert array.now == 3.0


def test_the_fullest_sm_is_the_first_of_several(core: ModuleType) -> None:
    array = array_of(core, 3)
    submit(array, 0, 5, caps=[1, 2, 2])
    submit(array, 1, 1)
    line(array, 0)
    assert array.residents_by_sm(0) == [1, 2, 2]
    assert (array.fullest_sm(0), array.fullest_sm(1)) == (1, -1)


@pytest.mark.parametrize("sms", [1, 2, 3, 5, 8, 13])
def test_of_blocks_that_end_at_once_that_on_the_first_sm_does_first(core: ModuleType, sms: int) -> None:
    array = array_of(core, sms)
    blocks = sms + sms // 2
    submit(array, 0, blocks, caps=1)
    line(array, 0)
    assert ends(array) == [(0, 2.0 if sms > 1 else 1.0)]
    assert [ran for _, ran, _, _ in array.spans(0)] == [2] * (sms // 2) + [1] * (sms - sms // 2)


def test_what_binds_a_launch_is_told_of_its_fullest_sm(core: ModuleType) -> None:
    array = array_of(
        core,
        3,
        rates=own_pace(1.0, 1.0),
        load=lambda mix: (len(mix) / 4, 0.0),
        domains=[0, 1, 1],
        capacity=[0.5, 0.5],
        slowdowns=lambda domain, dram, l2, *cycles: dict.fromkeys(range(3), 2.0),
    )
    submit(array, 0, 3, caps=[1, 2, 0], own_dram=9.0)
    submit(array, 1, 1, caps=[0, 0, 1], own_dram=9.0)
    submit(array, 2, 1, own_dram=9.0)
    line(array, 0, 1)
    # DRAM takes 1 of the time of 0, a load of 1/4 + 1/4 on what serves 1/2; of that of 2, which no SM holds, the 1/4 on
    # what serves as much of the first SM
    made_of = {0: (1.0, 0.99, "fma"), 1: (1.0, 1.01, "fma"), 2: (1.0, 0.26, "lsu")}
    asked = []

    def time_parts(mix: Mix, slot: int) -> tuple[float, float, str]:
        asked.append((mix, slot))
        return made_of[slot]

    array.look(time_parts)
    assert asked == [(((0, 2),), 0), (((1, 1),), 1), ((), 2)]
    array.look(time_parts)
    assert len(asked) == 3
    array.advance(0.5)
    array.book()
    assert [array.most_bound_by(slot) for slot in range(3)] == ["dram", "fma", "lsu"]


def test_a_launch_is_bound_by_what_bound_it_longest_and_of_equals_by_the_first_by_name(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(0.1, 0.1))
    submit(array, 0, 2)
    submit(array, 1, 2)
    line(array, 0, 1)
    binds = iter(["fma", "lsu", "tensor", "lsu", "issue", "alu"])  # first of 0, then of 1
    for time in (1.0, 2.0, 4.0):
        array.forget_mixes()
        array.look(lambda mix, slot: (1.0, 1.0, next(binds)))
        array.advance(time)
        array.book()
    assert [array.most_bound_by(slot) for slot in (0, 1)] == ["issue", "alu"]
    array.advance(5.0)
    array.book()
    assert array.most_bound_by(0) == "latency"  # its book was closed


def test_the_core_knows_all_that_may_bind_a_launch() -> None:
    names = {name.removesuffix("_cycles") for name in SHARED} | {"latency", "dram", "l2", UNKNOWN}
    assert tuple(sorted(names)) == BINDING


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_memory_stretches_what_it_serves(core: ModuleType) -> None:
    array = array_of(
        core,
        2,
        rates=own_pace(1.0, 1.0),
        load=lambda mix: (sum(n for slot, n in mix if slot == 0) / 2, 0.0),
        slowdowns=lambda domain, dram, l2, *cycles: {0: 1.0 + dram, 1: 1.0},
    )
    submit(array, 0, 2, caps=1)
    submit(array, 1, 2, caps=1)
    line(array, 0, 1)
    assert array.load_at(1) == (1.0, 0.0)
    assert sorted(ends(array)) == [(0, 2.0), (1, 1.0)]


def test_memory_is_freed_by_who_leaves(core: ModuleType) -> None:
    array = array_of(
        core,
        2,
        rates=own_pace(1.0, 0.5),
        load=lambda mix: (sum(n for _, n in mix) / 2, 0.0),
        slowdowns=lambda domain, dram, l2, *cycles: dict.fromkeys(range(2), 1.0 + dram),
    )
    submit(array, 0, 1, caps=[1, 0])
    submit(array, 1, 1, caps=[0, 1])
    line(array, 0, 1)
    # both twice as slow until 2, when the first is done and the second has half left, at 1.5 times its time of 2
    assert ends(array) == [(0, 2.0), (1, 3.5)]


def test_memory_domains_are_apart(core: ModuleType) -> None:
    array = array_of(
        core,
        4,
        rates=own_pace(1.0, 1.0),
        domains=[0, 0, 1, 1],
        load=lambda mix: (sum(n for _, n in mix), 0.0),
        slowdowns=lambda domain, dram, l2, *cycles: dict.fromkeys(
            range(2), max(1.0, (2.0 if domain == 0 else 4.0) * dram)
        ),
    )
    submit(array, 0, 1, caps=[1, 0, 0, 0])
    submit(array, 1, 2, caps=[0, 0, 1, 1])
    line(array, 0, 1)
    assert [array.domain_at(sm) for sm in range(4)] == [0, 0, 1, 1]
    assert (array.load_at(0), array.load_at(3)) == ((1.0, 0.0), (2.0, 0.0))
    assert ends(array) == [(0, 2.0), (1, 8.0)]


@pytest.mark.parametrize(("dram", "l2"), [(0.8, 0.1), (0.1, 0.8), (0.8, 0.8)])
def test_a_domain_serves_no_more_than_it_can(core: ModuleType, dram: float, l2: float) -> None:
    """Two blocks that ask for 0.8 of one domain each take 1.6 times as long; one alone in its domain does not."""
    array = array_of(core, 4, rates=own_pace(1.0, 0.5), domains=[0, 0, 1, 1], capacity=[1.0, 1.0])
    submit(array, 0, 2, caps=[1, 1, 0, 0], dram=dram, l2=l2)
    submit(array, 1, 1, caps=[0, 0, 1, 0], dram=dram, l2=l2)
    line(array, 0, 1, queues=[0, 1])
    assert ends(array) == [(0, pytest.approx(1.6)), (1, 2.0)]


def test_a_domain_that_has_half_serves_half(core: ModuleType) -> None:
    array = array_of(core, 2, rates=own_pace(1.0, 1.0), domains=[0, 1], capacity=[0.5, 0.25])
    submit(array, 0, 1, caps=[1, 0], dram=0.75)
    submit(array, 1, 1, caps=[0, 1], l2=1.0)
    line(array, 0, 1, queues=[0, 1])
    assert ends(array) == [(0, 1.5), (1, 4.0)]


def test_who_comes_at_the_same_load_is_counted_by_what_it_is_served(core: ModuleType) -> None:
    """The load stands still, what is served does not: 0.5 until 1, then 1.5 where there is 1."""
    array = array_of(core, 1, rates=own_pace(1.0, 1.0), load=lambda mix: (1.0, 0.0), capacity=[1.0])
    submit(array, 0, 1, need=(0, 0, 64, 1), dram=0.5)
    submit(array, 1, 1, need=(0, 0, 64, 1), dram=1.5)
    line(array, 0, 1)
    assert ends(array) == [(0, 1.0), (1, pytest.approx(2.5))]


def test_what_is_served_grows_again_when_others_leave(core: ModuleType) -> None:
    array = array_of(
        core, 2, rates=own_pace(1.0, 0.5), load=lambda mix: (sum(n for _, n in mix) / 2, 0.0), capacity=[1.0]
    )
    submit(array, 0, 1, caps=[1, 0], dram=1.0)
    submit(array, 1, 1, caps=[0, 1], dram=2.0)
    line(array, 0, 1, queues=[0, 1])
    # both ask for 1: half the pace until 2, when the first is done and the second has half left, at full pace
    assert ends(array) == [(0, pytest.approx(2.0)), (1, pytest.approx(3.0))]


def test_who_comes_later_is_slowed_by_the_load_of_others(core: ModuleType) -> None:
    """The load does not move when slot 1 comes; that alone is slowed by it, by sqrt(2)."""
    array = array_of(core, 2, rates=own_pace(0.25, 1.0), load=lambda mix: (float(mix[0][0] == 0), 0.0), capacity=[1.0])
    array.set_slowdowns(None)
    submit(array, 0, 1, caps=[1, 0])
    line(array, 0)
    assert ends(array, 1.0) == []
    submit(array, 1, 1, caps=[0, 1], own_dram=1.0)
    line(array, 1)
    assert ends(array) == [(1, pytest.approx(1.0 + 2**0.5)), (0, 4.0)]


@pytest.mark.parametrize(
    ("load", "end"),
    [
        (0.25, 1.0 + (1.0 - 0.5 / 2.25) * 2.0 / 0.5),  # slowed by 2.25 until 1, by 2 from then on
        (0.015, 2.015 / 0.5),  # less than the step of 0.02: slowed by 2.015 to the end
    ],
)
def test_a_load_that_hardly_moves_changes_nothing(core: ModuleType, load: float, end: float) -> None:
    array = array_of(
        core,
        2,
        rates=own_pace(0.5, 1.0),
        load=lambda mix: (sum((1.0, load)[slot] for slot, _ in mix), 0.0),
        slowdowns=lambda domain, dram, l2, *cycles: {0: 1.0 + dram, 1: 1.0},
    )
    submit(array, 0, 1, caps=[1, 0])
    submit(array, 1, 1, caps=[0, 1])
    line(array, 0, 1, queues=[0, 1])
    assert ends(array) == [(1, 1.0), (0, pytest.approx(end))]


def slow_anew(array: Any, *factors: float) -> None:
    """From now on slot k is slowed by ``factors[k]``; a launch that may place no block makes the array ask."""
    array.set_slowdowns(lambda domain, dram, l2, *cycles: dict(enumerate(factors)))
    submit(array, len(factors), 1, caps=0)
    array.dispatch()


def test_a_block_slowed_on_its_way_keeps_what_it_has_done(core: ModuleType) -> None:
    """Slot 0, alone on its SM, runs at 1/8 beside slot 1 until 1, at 1/4, at 1/16 beside slot 2 from 2.5 to 3.5."""
    array = array_of(
        core,
        4,
        rates=own_pace(0.25, 1.0, 1.0),
        domains=[0, 0, 1, 1],
        load=lambda mix: (sum({0: 0, 1: 1, 2: 3}[slot] for slot, _ in mix), 0.0),
        slowdowns=lambda domain, dram, l2, *cycles: {0: 1.0 + domain * dram, 1: 1.0, 2: 1.0},
    )
    submit(array, 0, 1, caps=[0, 0, 1, 0], issue=4.0, dram=2.0, l2=1.0)
    submit(array, 1, 1, caps=[0, 0, 0, 1])
    line(array, 0, 1, queues=[0, 1])
    assert ends(array, 2.5) == [(1, 1.0)]
    assert array.work_left_by_sm(0) == array.work_done_by_sm(0) == [0.0, 0.0, 0.5, 0.0]
    submit(array, 2, 1, caps=[0, 0, 0, 1])
    line(array, 2)
    assert ends(array, 4.0) == [(2, 3.5)]
    assert array.work_left_by_sm(0) == [0.0, 0.0, 0.3125, 0.0]
    assert array.work_done_by_sm(0) == [0.0, 0.0, 0.6875, 0.0]
    assert array.next_due() == 5.25
    assert ends(array) == [(0, 5.25)]
    width, flat = array.usage()
    uses = [list(flat[(b * 4 + 2) * 7 + 3 : (b * 4 + 2) * 7 + 7]) for b in range(7)]
    held = [1.0, 1.0, 1.0, 1.0, 1.0, 0.25, 0.0]
    work = [0.125, 0.25, 0.15625, 0.15625, 0.25, 0.0625, 0.0]
    assert width == 1.0
    assert uses == [[n, 4.0 * done, 2.0 * done, done] for n, done in zip(held, work, strict=True)]


@on_every_core
@given(phases=st.lists(st.tuples(st.floats(0.01, 1.0), st.floats(0.5, 4.0)), max_size=5))
def test_progress_is_time_over_slowdown_summed(core: ModuleType, phases: list[tuple[float, float]]) -> None:
    """Two blocks at 3/4 and 1/4 of their SM's pace; the slowdown is 2 for good before either ends."""
    array = array_of(core, rates=own_pace(0.0625), shares=lambda count: [1.0] if count == 1 else [1.5, 0.5])
    submit(array, 0, 2, caps=2, issue=2.0, l2=3.0)
    line(array, 0)
    done, factor = 0.0, 1.0
    for passed, after in (*phases, (0.25, 2.0)):
        assert ends(array, array.now + passed) == []
        done += 0.0625 * passed / factor
        slow_anew(array, factor := after)
    assert array.work_left_by_sm(0) == [pytest.approx(1.0 - 0.5 * done)]
    assert array.work_done_by_sm(0) == [pytest.approx(2.0 * done)]
    first = array.now + (1.0 - 1.5 * done) * 2.0 / (1.5 * 0.0625)
    assert array.next_due() == pytest.approx(first)
    assert ends(array) == [(0, pytest.approx(first + (2.0 / 3.0) * 2.0 / 0.0625))]
    _, flat = array.usage()
    assert array.block_time() == pytest.approx(first + array.now)
    assert [sum(flat[use::7]) for use in (4, 5, 6)] == pytest.approx([2.0 * 2.0, 0.0, 2.0 * 3.0])


def test_who_is_slowed_on_its_way_is_served_less(core: ModuleType) -> None:
    """0.8 of what a domain serves until 0.5; then two that ask for as much share it, until the first is done at 1.3."""
    array = array_of(core, 2, rates=own_pace(1.0, 1.0), load=lambda mix: (float(len(mix)), 0.0), capacity=[1.0])
    submit(array, 0, 1, caps=[1, 0], dram=0.8)
    line(array, 0)
    assert ends(array, 0.5) == []
    submit(array, 1, 1, caps=[0, 1], dram=0.8)
    line(array, 1)
    assert ends(array) == [(0, pytest.approx(1.3)), (1, pytest.approx(1.8))]


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
    submit(array, 0, 16_000, caps=2)
    submit(array, 1, 16_000, caps=1)
    line(array, 0, 1, queues=[0, 1])
    found: list[tuple[int, float]] = []
    while len(found) < 2:
        found += ends(array, array.now + step)
    assert found[0] == (0, pytest.approx(16_000 / 8 / 0.125, rel=1e-3))
    assert found[1] == (1, pytest.approx(16_000 / 4 / 0.09, rel=1e-3))


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


# ---- jitter ---------------------------------------------------------------------------------------------------------


def test_the_remainder_without_a_division() -> None:
    prime = 2**31 - 1
    most = (prime - 1) ** 2 + 67890
    for x in (0, 1, prime - 1, prime, prime + 1, 2 * prime, prime * prime - prime, most, *range(7, most, most // 1000)):
        assert below_prime(x) == x % prime


def test_jitter_is_uniform_with_the_deviation_asked_for() -> None:
    factors = [jitter_factor(3, block, 0.02) for block in range(20_000)]
    mean = sum(factors) / len(factors)
    deviation = (sum((f - mean) ** 2 for f in factors) / len(factors)) ** 0.5
    assert mean == pytest.approx(1.0, abs=1e-3)
    assert deviation == pytest.approx(0.02, rel=0.03)
    assert max(factors) <= 1.0 + 0.02 * 3**0.5 and min(factors) >= 1.0 - 0.02 * 3**0.5
    assert jitter_factor(3, 7, 0.02) == factors[7]
    assert jitter_factor(4, 7, 0.02) != factors[7]


def test_neighbouring_blocks_are_not_alike() -> None:
    draw = [jitter_factor(1, block, 1.0) - 1.0 for block in range(20_000)]
    for lag in (1, 2, 132):
        pairs = list(zip(draw, draw[lag:], strict=False))
        assert abs(sum(a * b for a, b in pairs) / len(pairs)) < 0.03


def test_a_compiled_core_is_what_runs_where_one_was_built() -> None:
    folder = [path.suffix for path in __import__("pathlib").Path(plain_core().__file__).parent.glob("core.*")]
    assert is_compiled() == any(suffix in (".so", ".pyd") for suffix in folder)


def test_the_benchmark_of_the_plain_core_replays_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(bench, "_timed", lambda *_: ran.append(sm_array.SMArray))
    monkeypatch.setattr(bench, "plain_core", lambda _: plain_core())
    bench.time_plain_core(bench.PAIR)
    assert ran == [plain_core().SMArray]
    assert sm_array.SMArray is not plain_core().SMArray or not is_compiled()


def test_the_benchmark_fits_the_kernels_that_it_replays_first(monkeypatch: pytest.MonkeyPatch) -> None:
    did: list[str] = []
    for place, name in ((kernels, "fitted"), (Session, "replay")):
        monkeypatch.setattr(place, name, telling(did, name, getattr(place, name)))
    trace = Path(__file__).parents[1] / "traces" / "inception_5a_b16.json.gz"
    bench.time_trace(str(trace))  # after others its kernels take longer than recorded
    first = did.index("replay")
    assert set(did[:first]) == {"fitted"} and set(did[first:]) == {"replay"}


def telling(did: list[str], name: str, function: Callable[..., object]) -> Callable[..., object]:
    def told(*args: object, **named: object) -> object:
        did.append(name)
        return function(*args, **named)

    return told
