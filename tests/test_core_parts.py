"""The parts of the core by themselves, as plain Python; `test_core.py` has them together, compiled, too."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from gpusim.engine.first_ends import FirstEnds
from gpusim.engine.history import USES, History
from gpusim.engine.mixes import Mix, Mixes, MixRates


def test_uses_are_shared_among_bins_by_the_time_in_each() -> None:
    history = History(1, 4, array("q", [0, 0, 2, 1]))
    history.book(0, 0.5, 2.0, 3.0, 0.0, 0.0)
    assert list(history.flat[3::USES]) == [0.5, 1.0, 0.0, 0.0]
    assert list(history.flat[4::USES]) == [1.0, 2.0, 0.0, 0.0]
    history.reach(4.0)
    assert (history.width, list(history.flat[3::USES])) == (2.0, [1.5, 0.0, 0.0, 0.0])
    assert list(history.totals()) == [0.0, 0.0, 3.0, 1.5, 3.0, 0.0, 0.0]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([1.0, 2.0, 3.0])), min_size=1, max_size=20))
def test_the_first_end_is_the_least_and_of_equals_that_on_the_first_sm(notes: list[tuple[int, float]]) -> None:
    ends, due = FirstEnds(2, 5), dict[int, float]()
    for sm, at in notes:
        ends.note(1, sm, at)
        due[sm] = at
        assert (ends.first(1), ends.first_sm(1)) == min((at, sm) for sm, at in due.items())
    assert ends.first(0) == 1e300


def test_a_mix_has_a_number_its_neighbours_and_the_rates_it_was_worked_out_with() -> None:
    asked: list[Mix] = []

    def resolve(mix: Mix) -> MixRates:
        asked.append(mix)
        return [[0.5] * count for _, count in mix], 0.25, 0.125

    mixes = Mixes(2, resolve, lambda others, slot: 3 - len(others))
    mixes.clear()
    one = mixes.with_one_more(0, 1)
    two = mixes.with_one_more(one, 1)
    assert mixes.with_one_less(two, 1) == one and mixes.mixes == [(), ((1, 1),), ((1, 2),)]
    assert (mixes.most(0, one), mixes.most(1, one)) == (2, 3)
    assert asked == []
    mixes.work_out(two)
    assert asked == [((1, 2),)]
    assert mixes.part_progress[mixes.part_of(two, 1)] == 1.0 and mixes.part_of(two, 0) == -1
    mixes.forget_slot(1)
    assert mixes.with_one_more(0, 1) not in (one, two)
