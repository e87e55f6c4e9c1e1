"""How much longer reads take beside other kernels: closed forms, and properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.model.memory import (
    CODE_LATENCY,
    HIT_QUEUE,
    LOST_ON_SMS,
    LOST_TO_LAUNCH,
    MISS_LATENCY,
    STREAM_QUEUE,
    MemoryWait,
    dram_queue,
    lost_code,
    lost_share,
    wait_slowdown,
)
from tests.strategies import examples

SHARES = st.floats(0.0, 1.0)
MANY = st.floats(0.0, 50.0)
WAITS = st.builds(
    MemoryWait, SHARES, st.floats(0.0, 1.5), SHARES, MANY, st.floats(0.0, 5.0), SHARES, SHARES, SHARES, MANY
)


def test_waits_by_hand() -> None:
    """All of a time that waits for hits takes as long as they do; half of what others replace is read from DRAM."""
    hits = MemoryWait(share=1.0, serial=1.0, misses=0.0, passing=3.0, touched=0.0)
    assert wait_slowdown(0.0, 1.0, 0.0, hits) == pytest.approx(1.0 + HIT_QUEUE)
    assert wait_slowdown(0.5, 0.0, 0.0, hits) == pytest.approx(0.5 + 0.5 * MISS_LATENCY * (1.0 + STREAM_QUEUE / 4.0))
    misses = MemoryWait(share=1.0, serial=1.0, misses=1.0)
    assert wait_slowdown(1.0, 0.0, 0.0, misses) == pytest.approx(1.0 + STREAM_QUEUE)


def test_waits_for_code_by_hand() -> None:
    """Half of a time waits for code, of which the caches have lost a half; DRAM is as busy as it can be, or idle."""
    wait = MemoryWait(serial=1.0, code=0.5)
    assert wait_slowdown(0.0, 0.0, 0.0, wait, 0.5) == pytest.approx(1.0 + 0.25 * (CODE_LATENCY - 1.0))
    busy = CODE_LATENCY * (1.0 + STREAM_QUEUE)
    assert wait_slowdown(0.5, 0.0, 0.5, wait, 0.5) == pytest.approx(1.0 + 0.25 * (busy - 1.0))


def test_reads_wait_for_what_is_under_way_to_a_full_dram_by_hand() -> None:
    """Six times what an idle read takes is under way: reads, and hits behind them, wait for four more than with two."""
    assert [dram_queue(busy, 6.0) for busy in (0.0, 0.5, 1.0)] == pytest.approx([0.0, 0.25, 4.0])
    assert dram_queue(1.0, 2.0) == dram_queue(1.0, 0.5) == 0.0
    misses = MemoryWait(share=1.0, serial=1.0, misses=1.0)
    assert wait_slowdown(1.0, 0.0, 0.0, misses, queue=4.0) == pytest.approx(1.0 + STREAM_QUEUE + 4.0)
    hits = MemoryWait(share=1.0, serial=1.0)
    assert wait_slowdown(1.0, 0.0, 0.0, hits, queue=4.0) == pytest.approx(1.0 + MISS_LATENCY * 4.0)
    known = misses._replace(own_under_way=6.0)  # as in its recording, where it kept DRAM busy alone
    assert wait_slowdown(0.0, 0.0, 1.0, known, queue=4.0) == pytest.approx(1.0)


def test_who_reads_ahead_is_slowed_by_reads_that_come_late_by_hand() -> None:
    """Its reads are ahead by four times what an idle read takes: they come late where they take six or twelve times."""
    ahead = MemoryWait(ahead=0.25)
    assert wait_slowdown(1.0, 0.0, 0.0, ahead, queue=2.0) == pytest.approx(1.0)
    assert wait_slowdown(1.0, 0.0, 0.0, ahead, queue=4.0) == pytest.approx(6.0 / 4.0)
    assert wait_slowdown(1.0, 0.0, 0.0, ahead, queue=10.0) == pytest.approx(12.0 / 4.0)


def test_what_is_lost_of_l2() -> None:
    """Up to what it keeps nothing, from twice as much on all."""
    assert [lost_share(touched) for touched in (0.0, 1.0, 1.25, 2.0, 9.0)] == [0.0, 0.0, 0.25, 1.0, 1.0]


def test_what_is_lost_of_code() -> None:
    """Others moved half as much again as L2 keeps: half is gone from L2, and of the rest what launches take."""
    assert lost_code(0.0, 1.5, 1.0, 0.0, 0.0) == 0.5
    assert lost_code(0.0, 1.5, 0.5, 0.0, 0.0) == 0.25
    assert lost_code(0.0, 1.5, 1.0, 1.0, 1.0) == pytest.approx(0.5 + 0.5 * (LOST_TO_LAUNCH + LOST_ON_SMS))
    assert lost_code(1.5, 0.25, 1.0, 0.0, 0.0) == pytest.approx(0.5), "half of what its own program leaves"
    assert lost_code(2.0, 9.0, 1.0, 0.5, 0.0) == pytest.approx(0.5 * LOST_TO_LAUNCH), "its own program leaves nothing"


@given(SHARES, SHARES, SHARES, WAITS, SHARES, MANY)
@examples(500)
def test_others_never_shorten_a_kernel_and_more_of_them_lengthen_it(
    dram: float, l2: float, own: float, wait: MemoryWait, code_lost: float, queue: float
) -> None:
    dram *= 1.0 - own
    slowed = wait_slowdown(dram, l2, own, wait, code_lost)
    assert slowed >= 1.0 - 1e-12
    assert wait_slowdown(0.0, 0.0, own, wait) == pytest.approx(1.0)
    assert wait_slowdown(dram, l2, own, wait, code_lost, queue=queue) >= slowed - 1e-12
    assert wait_slowdown(dram / 2.0, l2 / 2.0, own, wait, code_lost) <= slowed + 1e-12
    assert wait_slowdown(dram, l2, own, wait, code_lost / 2.0) <= slowed + 1e-12


@given(SHARES, SHARES)
@examples(100)
def test_who_waits_for_nothing_is_not_slowed(dram: float, l2: float) -> None:
    assert wait_slowdown(dram, l2, 0.0, MemoryWait()) == 1.0
