"""Memory that launches share: loads, slowdowns and domains, on the core by itself."""

from __future__ import annotations

from array import array
from types import ModuleType
from typing import Any

import pytest
from cores import (
    array_of,
    ends,
    is_compiled,
    line,
    on_every_core,
    own_pace,
    slow_anew,
    submit,
)
from hypothesis import given
from hypothesis import strategies as st

from gpusim.engine import core as used_core
from gpusim.model.memory import MemoryLoad, MemoryWait, memory_slowdown, memory_that_binds

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


def beside_streams(core: ModuleType) -> Any:
    """Two SMs whose blocks are slowed only by waiting for reads."""
    return array_of(
        core,
        2,
        rates=own_pace(1.0, 1.0),
        load=lambda mix: (sum(n for _, n in mix), 0.0),
        capacity=[1.0],
        slowdowns=lambda *loads: dict.fromkeys(range(2), 1.0),
    )


READER = MemoryWait(share=1.0, serial=1.0, misses=1.0)  # waits for DRAM all the time
STREAMS = MemoryWait(under_way=6.0)  # keeps under way what DRAM serves in six times that of an idle read


def test_a_reader_waits_for_what_is_under_way_to_a_full_dram(core: ModuleType) -> None:
    """Reads take 1 + 1 + 4 times as long, as DRAM serves as much however long the reader, which moves little, waits."""
    array = beside_streams(core)
    submit(array, 0, 8, caps=[1, 0], dram=1.0, load_dram=1.0, wait=STREAMS)
    submit(array, 1, 1, caps=[0, 1], wait=READER)
    line(array, 0, 1, queues=[0, 1])
    assert ends(array) == [(1, pytest.approx(6.0)), (0, 8.0)]


def test_a_full_dram_stays_full_while_readers_wait(core: ModuleType) -> None:
    """Both move half of what DRAM serves. The reader waits while DRAM serves 0.98 of what it does with no queue."""
    array = beside_streams(core)
    submit(array, 0, 8, caps=[1, 0], dram=0.5, load_dram=1.0, wait=STREAMS)
    submit(array, 1, 1, caps=[0, 1], dram=0.5, wait=READER)
    line(array, 0, 1, queues=[0, 1])
    without = 2.0 / 1.25
    most = 0.5 / (0.98 * (0.5 + 0.5 / without) - 0.5)
    (_, end), *_ = ends(array)
    assert (without + most) / 2.0 < end <= most


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


@on_every_core
def test_a_delay_lengthens_what_waits_for_data(core: ModuleType) -> None:
    """Blocks of 4 us; after two of them a delay of 3 us, of which one feels all, one a third and one nothing."""
    array = array_of(core, 3, rates=own_pace(0.25, 0.25, 0.25))
    for slot, share in enumerate((1.0, 1.0 / 3.0, 0.0)):
        submit(array, slot, 1, caps=[int(sm == slot) for sm in range(3)], wait=MemoryWait(share=share))
    line(array, 0, 1, 2, queues=[0, 1, 2])
    assert array.advance(2.0) < 0
    array.delay(3.0)
    assert ends(array) == [(2, pytest.approx(4.0)), (1, pytest.approx(5.0)), (0, pytest.approx(7.0))]
