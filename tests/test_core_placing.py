"""Which SM gets which block, and who may place blocks, on the core by itself."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from cores import (
    Mix,
    array_of,
    ends,
    line,
    own_pace,
    submit,
)

from gpusim.engine.bindings import BINDING
from gpusim.model.contention import SHARED, UNKNOWN

NEVER = 1e300


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


def test_an_sm_that_passes_to_a_waiting_block_at_once_keeps_its_carveout(core: ModuleType) -> None:
    def array() -> Any:
        found = array_of(core, 1, (1000, 100, 64, 32), rates=own_pace(1.0, 0.5, 1.0))
        submit(found, 0, 1, need=(0, 80, 1, 1), carveout=100)
        submit(found, 1, 1, need=(0, 30, 1, 1), carveout=40)
        submit(found, 2, 1, need=(0, 60, 1, 1), carveout=60)
        return found

    handed = array()
    line(handed, 0, 1, 2, queues=[0, 1, 2])
    assert ends(handed) == [(0, 1.0), (2, 2.0), (1, 3.0)]  # the third joins the second
    idle = array()
    line(idle, 0)
    assert idle.advance(5.0) == 0
    idle.advance(5.0)
    line(idle, 1, 2, queues=[0, 1])
    assert [idle.residents_by_sm(slot) for slot in (1, 2)] == [[1], [0]]
    assert idle.free(0)[1] == 40 - 30


def test_a_kernel_of_which_a_carveout_was_asked_joins_others_only_with_that_one(core: ModuleType) -> None:
    for set_to, residents in ((40, [1]), (60, [0])):
        array = array_of(core, 1, (1000, 100, 64, 32), rates=own_pace(1.0, 1.0))
        submit(array, 0, 1, need=(0, 10, 1, 1), carveout=set_to)
        submit(array, 1, 1, need=(0, 10, 1, 1), carveout=40, most_carveout=40)
        line(array, 0, 1, queues=[0, 1])
        assert array.residents_by_sm(1) == residents


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
