"""Warped-Slicer's choice against brute force, and what it does to real traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import tiny
from views import H200, kernel, view_of, within

from gpusim.common.errors import InputError
from gpusim.model.occupancy import Footprint
from gpusim.policies import warped_slicer
from gpusim.policies.interface import Grant, Partition
from gpusim.policies.registry import policy_from
from gpusim.policies.tools.mixes import Resources
from gpusim.policies.warped_slicer import (
    ProgressCurve,
    WarpedSlicer,
    _layout,
    _points,
    _sampled_curves,
    _Sampling,
    best_sum,
    kept_points,
    loss_allowed,
    progress_at,
    water_fill,
)

ROOM: Resources = (64, 64, 64, 32)


@st.composite
def cases(draw: st.DrawFn, max_kernels: int = 3) -> tuple[list[list[float]], list[Resources]]:
    """Progress against blocks of 2 to `max_kernels` kernels, and what a block of each holds."""
    kernels = draw(st.integers(2, max_kernels))
    progress = [
        draw(st.lists(st.integers(1, 1000).map(lambda n: n / 100), min_size=1, max_size=8)) for _ in range(kernels)
    ]
    needs = [(draw(st.integers(0, 40)), draw(st.integers(0, 40)), draw(st.integers(1, 32)), 1) for _ in range(kernels)]
    return progress, needs


def value(curves: Sequence[ProgressCurve], counts: Sequence[int]) -> list[float]:
    return [progress_at(curve, count) for curve, count in zip(curves, counts, strict=True)]


def brute_force(progress: list[list[float]], needs: list[Resources], score) -> float | None:  # type: ignore[no-untyped-def]
    """Best score over every number of blocks of every kernel, flat and declining parts of the curves included."""
    found = [
        score([max(curve[:count]) / max(curve) for curve, count in zip(progress, counts, strict=True)])
        for counts in product(*(range(1, len(curve) + 1) for curve in progress))
        if within(ROOM, needs)(counts)
    ]
    return max(found, default=None)


def test_kept_points_drop_flat_and_declining_parts() -> None:
    assert kept_points([1.0, 2.0, 2.0, 1.5, 4.0]) == ((1, 0.25), (2, 0.5), (5, 1.0))
    assert kept_points([3.0]) == ((1, 1.0),)


def test_progress_between_points_is_that_of_the_lower_one() -> None:
    curve = ((1, 0.25), (4, 1.0))
    assert [progress_at(curve, blocks) for blocks in (0, 1, 3, 4, 9)] == [0.0, 0.25, 0.25, 1.0, 1.0]


def test_water_filling_by_hand() -> None:
    # 8 slots; a: 0.25 0.5 0.75 1, b: 0.1 … 1: a1 b1 -> b grows to 3 (0.3), a to 2, b to 5 (0.5), a to 3: full
    a = kept_points([1.0, 2.0, 3.0, 4.0])
    b = kept_points([float(n) for n in range(1, 11)])
    assert water_fill([a, b], lambda counts: sum(counts) <= 8) == [3, 5]
    assert water_fill([a, b], lambda counts: sum(counts) <= 1) is None


@given(cases())
def test_water_filling_is_max_min(case: tuple[list[list[float]], list[Resources]]) -> None:
    progress, needs = case
    curves = [kept_points(curve) for curve in progress]
    counts = water_fill(curves, within(ROOM, needs))
    best = brute_force(progress, needs, min)
    assert (counts is None) == (best is None)
    if counts is not None:
        assert within(ROOM, needs)(counts)
        assert min(value(curves, counts)) == pytest.approx(best, rel=1e-12)


@given(cases())
def test_the_stp_objective_is_the_best_sum(case: tuple[list[list[float]], list[Resources]]) -> None:
    progress, needs = case
    curves = [kept_points(curve) for curve in progress]
    counts = best_sum(curves, within(ROOM, needs))
    best = brute_force(progress, needs, sum)
    assert (counts is None) == (best is None)
    if counts is not None:
        assert within(ROOM, needs)(counts)
        assert sum(value(curves, counts)) == pytest.approx(best, rel=1e-12)


@given(cases(max_kernels=8))
def test_neither_objective_beats_the_other_at_its_own(case: tuple[list[list[float]], list[Resources]]) -> None:
    progress, needs = case
    curves = [kept_points(curve) for curve in progress]

    def together(tried: Sequence[int]) -> bool:
        return within(ROOM, needs)(tried)

    fair, fast = water_fill(curves, together), best_sum(curves, together)
    if fair is not None and fast is not None:
        assert min(value(curves, fair)) >= min(value(curves, fast)) - 1e-12


def test_points_without_progress_or_gain_are_dropped() -> None:
    assert kept_points([0.0, 2.0, 2.0 * (1.0 + 1e-10), 2.0 * (1.0 + 1e-8)]) == ((2, pytest.approx(1.0)), (4, 1.0))
    assert kept_points([0.0, 0.5]) == ((2, 1.0),)


def test_water_filling_goes_on_with_the_others_when_one_is_full() -> None:
    a, b = kept_points([1.0, 9.0, 10.0]), kept_points([1.0, 2.0, 3.0, 4.0, 10.0])
    # of equal progress the first goes on; a's third block does not fit beside b's at 6 in all, b's next two do
    assert water_fill([a, a], lambda counts: sum(counts) <= 3) == [2, 1]
    assert water_fill([a, b], lambda counts: counts[0] <= 1 and sum(counts) <= 6) == [1, 5]
    # who starts with more than one block may not fit
    assert water_fill([((2, 1.0),), ((1, 1.0),)], lambda counts: sum(counts) <= 2) is None


def test_of_equal_sums_the_fairer() -> None:
    a = ((1, 0.25), (2, 0.5), (3, 0.75), (4, 1.0))
    assert best_sum([a, a], lambda counts: sum(counts) <= 4) == [2, 2]
    assert best_sum([a, a], lambda counts: sum(counts) <= 3) == [1, 2]  # as fair: the first
    assert best_sum([a, a], lambda counts: sum(counts) <= 1) is None
    assert best_sum([((1, 0.9), (2, 1.0)), ((1, 0.1), (2, 1.0))], lambda counts: sum(counts) <= 3) == [1, 2]


@pytest.mark.parametrize(("most", "counts"), [(9, [1, 3]), (8, [3, 1])])
def test_steps_where_there_are_many_combinations(most: int, counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    # of nine combinations the best has b's 0.9; step by step a's 0.2 goes first, and then its 0.12 before b's 0.1
    monkeypatch.setattr(warped_slicer, "MOST_COMBINATIONS", most)
    a, b = ((1, 0.2), (2, 0.4), (3, 0.52)), ((1, 0.1), (2, 0.2), (3, 0.9))
    assert best_sum([a, b], lambda tried: sum(tried) <= 4) == counts


@pytest.mark.parametrize(("kernels", "loss"), [(1, 1.0), (2, 0.6), (3, 0.4), (4, 0.3), (8, 0.15)])
def test_the_loss_allowed_is_the_papers(kernels: int, loss: float) -> None:
    assert loss_allowed(kernels) == pytest.approx(loss, rel=1e-12)


# ---- what it makes of a view -----------------------------------------------------------------------------------------

SMALL = tiny(7)
CLOCK = SMALL.boost_clock_mhz


def by_table(*tables: Sequence[float]):  # type: ignore[no-untyped-def]
    return lambda number, blocks: tables[number][blocks - 1]


def granted(partition: Partition) -> list[int | None]:
    return [grant.blocks_per_sm for grant in partition.grants]


def is_split(partition: Partition) -> bool:
    return all(grant.sms is not None and grant.tenant is not None for grant in partition.grants)


@pytest.mark.parametrize(
    ("loss", "first", "sliced"),
    [
        (None, 0.45, True),  # a loses 0.55
        (None, 0.39, False),  # 0.61
        (0.5, 0.5, True),
        (0.5, 0.49, False),
        (0.0, 1.0, True),
        (1.0, 0.01, True),
    ],
)
def test_sms_are_split_where_one_would_lose_too_much(loss: float | None, first: float, sliced: bool) -> None:
    # a gets one block: its second does not fit beside the one of b, which takes half of an SM and more
    wide = Footprint(warps=4, registers=40_000, shared_memory_bytes=1024)
    a, b = kernel(0, footprint=replace(wide, registers=20_000)), kernel(1, footprint=wide)
    view = view_of(a, b, solo_rate=by_table([first, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]))
    partition = WarpedSlicer(loss=loss).partition(view)
    assert is_split(partition) is not sliced
    if sliced:
        assert granted(partition) == [1, 1]
        assert [grant.queue for grant in partition.grants] == [0, 1]


def test_sms_are_split_where_blocks_do_not_fit_together() -> None:
    wide = Footprint(warps=4, registers=40_000, shared_memory_bytes=1024)
    view = view_of(kernel(0, footprint=wide), kernel(1, footprint=wide))
    assert is_split(WarpedSlicer(loss=1.0).partition(view))


def test_no_more_points_than_blocks_are_left() -> None:
    few = kernel(0, waiting=132, resident=133, blocks=1000)  # 3 on some SM
    view = view_of(few, kernel(1), gpu=H200)
    assert granted(WarpedSlicer(loss=1.0).partition(view)) == [2, 2]
    few = kernel(0, waiting=100, resident=32, blocks=1000)
    assert granted(WarpedSlicer(loss=1.0).partition(view_of(few, kernel(1), gpu=H200))) == [1, 3]


def test_objectives_differ() -> None:
    rates = by_table([1.0, 1.1, 1.2, 1.25], [1.0, 2.0, 3.0, 4.0])
    view = view_of(kernel(0), kernel(1), solo_rate=rates)
    assert granted(WarpedSlicer().partition(view)) == [1, 3]  # 0.8 and 0.75
    rates = by_table([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 5.0])
    view = view_of(kernel(0), kernel(1), solo_rate=rates)
    assert granted(WarpedSlicer(objective="maxmin").partition(view)) == [2, 2]
    assert granted(WarpedSlicer(objective="stp", loss=1.0).partition(view)) == [1, 3]


def test_mitigation_limits_what_is_sliced() -> None:
    view = view_of(kernel(0, memory_us=0.3), kernel(1, memory_us=0.5))
    shares = [grant.l1_share for grant in WarpedSlicer(mitigation="qbmi").partition(view).grants]
    assert shares == [0.5, 0.5]  # 2 blocks/us each: 0.6 and 1.0 asked for
    assert all(grant.l1_share is None for grant in WarpedSlicer().partition(view).grants)


# ---- profiling -------------------------------------------------------------------------------------------------------


def test_which_sm_samples_what() -> None:
    view = view_of(kernel(0, blocks_per_sm=3), kernel(1, blocks_per_sm=2), gpu=SMALL)
    assert _layout(view) == {0: (1, 2, 3, 0, 0, 0, 0), 1: (0, 0, 0, 1, 2, 1, 2)}
    view = view_of(kernel(0, waiting=7, resident=7), kernel(4), kernel(5), gpu=tiny(6))
    assert _layout(view) == {0: (1, 2, 0, 0, 0, 0), 4: (0, 0, 1, 2, 0, 0), 5: (0, 0, 0, 0, 1, 2)}


def sampled(
    a: Mapping[str, float], b: Mapping[str, float], held: Sequence[int] = (1, 2, 3), pace: float = 1.0
) -> list[ProgressCurve]:
    """Seven SMs for 10 us: a ran 4, 6 and 9 blocks on SMs of 1, 2 and 3, b 1, 3, 2 and 5 on SMs of 1, 2, 1 and 2.

    With another ``pace`` so many times as much.
    """
    layout = {0: (1, 2, 3, 0, 0, 0, 0), 1: (0, 0, 0, 1, 2, 1, 2)}
    before = {0: [1.0] * 7, 1: [2.0] * 7}
    done = {0: [4.0, 6.0, 9.0, 0.0, 0.0, 0.0, 0.0], 1: [0.0, 0.0, 0.0, 1.0, 3.0, 2.0, 5.0]}
    progress = {number: [before[number][0] + pace * blocks for blocks in done[number]] for number in done}
    residents = {0: [*held, 0, 0, 0, 0], 1: list(layout[1])}
    kernels = kernel(0, blocks_per_sm=3, **a), kernel(1, blocks_per_sm=2, **b)
    view = view_of(*kernels, residents=residents, progress=progress, gpu=SMALL)
    return _sampled_curves(view, _Sampling((0, 1), layout, 10.0, before), 10.0)


A = ((1, pytest.approx(4 / 9)), (2, pytest.approx(6 / 9)), (3, 1.0))
B = ((1, pytest.approx(1.5 / 4)), (2, 1.0))


def test_curves_are_what_sms_did() -> None:
    assert sampled({}, {}) == [A, B]
    assert sampled({}, {}, pace=0.01) == [A, B]  # parts of a block


def test_a_point_of_a_curve_is_the_mean_of_its_sms() -> None:
    """Three SMs ran 1 block at a time, one ran 3; a number of blocks that none ran is no point."""
    assert _points([(1, 0.25), (1, 0.5), (1, 0.75), (3, 2.0)], 1.5, 0.0) == ((1, 0.25), (3, 1.0))
    assert _points([(1, 0.25), (3, 0.5)], 2.0, 0.0) == ((1, 0.5), (3, 1.0))


@pytest.mark.parametrize("memory", ["dram_us", "l2_us"])
def test_curves_are_corrected_where_memory_is_saturated(memory: str) -> None:
    # a ran 19 blocks, b 11; mean of the sampled SMs: 12 blocks over 7 SMs
    mean = 12 / 7
    corrected = [4 * (1 + 0.5 * (mean / 1 - 1)), 6 * (1 + 0.5 * (mean / 2 - 1)), 9 * (1 + 0.5 * (mean / 3 - 1))]
    assert corrected == pytest.approx([5.428571, 5.571429, 7.071429])
    best = max(corrected)
    share = {"dram_us": 2**-0.5, "l2_us": 2**-0.125}[memory]
    for over, expected in ((1.001, [(n, pytest.approx(v / best)) for n, v in enumerate(corrected, 1)]), (0.999, A)):
        # a asks for 9/10 of what saturates, b for the rest
        demand = over * share * 10.0
        a = {"memory_stall_share": 0.5, memory: 0.9 * demand / 19}
        assert sampled(a, {memory: 0.1 * demand / 11}) == [tuple(expected), B]  # b waits for no memory


def test_curves_are_corrected_for_each_by_its_own_stalls() -> None:
    mean = 12 / 7
    a, b = sampled({"dram_us": 1.0, "memory_stall_share": 0.0}, {"memory_stall_share": 1.0})
    assert a == A
    assert b == ((1, pytest.approx(1.5 * mean / (4 * mean / 2))), (2, 1.0))


def test_sms_that_do_not_hold_what_they_were_to_sample_do_not_count() -> None:
    assert sampled({}, {}, held=(1, 1, 3))[0] == ((1, pytest.approx(4 / 9)), (3, 1.0))
    assert sampled({}, {}, held=(0, 0, 0)) == [(), B]
    assert sampled({}, {}, held=(1, 0, 0))[0] == ((1, 1.0),)
    # the mean is that of SMs that count: 7 blocks on 5 SMs
    a = sampled({"dram_us": 1.0, "memory_stall_share": 1.0}, {}, held=(1, 0, 0))[0]
    assert a == ((1, 1.0),)
    a = sampled({"dram_us": 1.0, "memory_stall_share": 0.5}, {}, held=(1, 2, 0))[0]
    mean = 9 / 6
    low, high = 4 * (1 + 0.5 * (mean - 1)), 6 * (1 + 0.5 * (mean / 2 - 1))
    assert a == ((1, pytest.approx(low / max(low, high))), *(((2, 1.0),) if high > low else ()))


def test_a_profiling_phase_step_by_step() -> None:
    policy = WarpedSlicer(curve="profiled", warmup_cycles=20_000, sample_cycles=5_000)
    kernels = kernel(0, blocks_per_sm=3), kernel(1, blocks_per_sm=2)
    layout = {0: (1, 2, 3, 0, 0, 0, 0), 1: (0, 0, 0, 1, 2, 1, 2)}
    warm_us, sample_us = 20_000 / CLOCK, 5_000 / CLOCK

    def at(now_us: float, done: float = 0.0) -> Partition:
        residents = {number: list(blocks) for number, blocks in layout.items()}
        progress = {number: [done * blocks for blocks in layout[number]] for number in layout}
        return policy.partition(view_of(*kernels, now_us=now_us, residents=residents, progress=progress, gpu=SMALL))

    sampling = tuple(Grant(n, queue=n, tenant=n, per_sm=layout[n]) for n in layout)
    assert at(100.0) == Partition(sampling, wake_us=100.0 + warm_us)
    assert at(101.0, 3.0) == Partition(sampling, wake_us=100.0 + warm_us)
    began = 100.0 + warm_us
    assert at(began, 5.0) == Partition(sampling, wake_us=began + sample_us)
    assert at(began + 0.5 * sample_us, 6.0) == Partition(sampling, wake_us=began + sample_us)
    assert granted(at(began + sample_us, 7.0)) == [2, 2]  # by curves of 1/3, 2/3, 1 and 1/2, 1
    assert granted(at(began + sample_us + 1.0)) == [2, 2]

    # the same kernels in new launches are known; another is not
    kernels = kernels[0]._replace(id=7), kernels[1]
    layout = {7: layout[0], 1: layout[1]}
    assert granted(at(200.0)) == [2, 2]
    kernels = kernels[0]._replace(name="other"), kernels[1]
    assert at(300.0).wake_us == 300.0 + warm_us
    # and while it is profiled, who comes starts a phase for all
    kernels = (*kernels, kernel(2))
    partition = at(301.0)
    assert len(partition.grants) == 3 and partition.wake_us == 301.0 + warm_us


def test_a_kernel_that_no_sm_could_sample_is_not_tried_again() -> None:
    policy = WarpedSlicer(curve="profiled", warmup_cycles=0, sample_cycles=1)
    kernels = kernel(0), kernel(1)

    def at(now_us: float) -> Partition:
        return policy.partition(view_of(*kernels, now_us=now_us, gpu=SMALL))  # no SM holds anything

    assert at(0.0).wake_us == 1 / CLOCK
    assert is_split(at(1 / CLOCK)) and is_split(at(50.0))
    kernels = kernel(0), kernel(5)
    assert at(60.0).wake_us == 60.0 + 1 / CLOCK


def test_who_is_alone_meanwhile_ends_the_phase() -> None:
    policy = WarpedSlicer(curve="profiled")
    both = kernel(0), kernel(1)
    policy.partition(view_of(*both, gpu=SMALL))
    assert policy.partition(view_of(both[0], now_us=1.0, gpu=SMALL)) == Partition((Grant(0),))
    assert policy.partition(view_of(*both, now_us=2.0, gpu=SMALL)).wake_us == 2.0 + 20_000 / CLOCK


# ---- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        *("objective=fast", "curve=flat", "mitigation=all", "sample_cycles=0"),
        *("loss=1.5", "loss=-0.1", "warmup_cycles=-1"),
    ],
)
def test_bad_parameters(wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        policy_from(f"warped-slicer:{wrong}")


@pytest.mark.parametrize("right", ["loss=0", "loss=1", "warmup_cycles=0", "sample_cycles=1", "objective=stp"])
def test_parameters_at_their_edge(right: str) -> None:
    policy_from(f"warped-slicer:{right}")


def test_a_curve_is_worked_out_once_until_fewer_blocks_are_left() -> None:
    asked: list[tuple[int, int]] = []

    def rate(number: int, blocks: int) -> float:
        asked.append((number, blocks))
        return float(blocks)

    policy = policy_from("warped-slicer")
    both = kernel(0), kernel(1)
    policy.partition(view_of(*both, solo_rate=rate))
    assert asked == [(number, blocks) for number in (0, 1) for blocks in (1, 2, 3, 4)]
    policy.partition(view_of(*both, solo_rate=rate))
    assert len(asked) == 8
    policy.partition(view_of(both[0], kernel(1, waiting=200), solo_rate=rate))  # two on an SM are all that is left
    assert asked[8:] == [(1, 1), (1, 2)]
