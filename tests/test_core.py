"""The core by itself: when blocks end, against timelines worked out by hand, and their jitter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from cores import (
    array_of,
    ends,
    is_compiled,
    line,
    own_pace,
    plain_core,
    submit,
)

from gpusim.calibrate import kernels
from gpusim.engine import sm_array
from gpusim.engine.launches import below_prime, jitter_factor
from gpusim.lab import bench
from gpusim.results.runs import USES
from gpusim.session import Session

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
