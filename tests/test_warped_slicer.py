"""Warped-Slicer's choice against brute force, and what it does to real traces."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.errors import InputError
from gpusim.policies.intra import Resources, fits
from gpusim.policies.registry import policy_from
from gpusim.policies.warped_slicer import Curve, best_sum, kept_points, progress_at, water_fill

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


def value(curves: Sequence[Curve], counts: Sequence[int]) -> list[float]:
    return [progress_at(curve, count) for curve, count in zip(curves, counts, strict=True)]


def brute_force(progress: list[list[float]], needs: list[Resources], score) -> float | None:  # type: ignore[no-untyped-def]
    """Best score over every number of blocks of every kernel, flat and declining parts of the curves included."""
    found = [
        score([max(curve[:count]) / max(curve) for curve, count in zip(progress, counts, strict=True)])
        for counts in product(*(range(1, len(curve) + 1) for curve in progress))
        if fits(ROOM, needs, counts)
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
    counts = water_fill(curves, lambda tried: fits(ROOM, needs, tried))
    best = brute_force(progress, needs, min)
    assert (counts is None) == (best is None)
    if counts is not None:
        assert fits(ROOM, needs, counts)
        assert min(value(curves, counts)) == pytest.approx(best, rel=1e-12)


@given(cases())
def test_the_stp_objective_is_the_best_sum(case: tuple[list[list[float]], list[Resources]]) -> None:
    progress, needs = case
    curves = [kept_points(curve) for curve in progress]
    counts = best_sum(curves, lambda tried: fits(ROOM, needs, tried))
    best = brute_force(progress, needs, sum)
    assert (counts is None) == (best is None)
    if counts is not None:
        assert fits(ROOM, needs, counts)
        assert sum(value(curves, counts)) == pytest.approx(best, rel=1e-12)


@given(cases(max_kernels=8))
def test_neither_objective_beats_the_other_at_its_own(case: tuple[list[list[float]], list[Resources]]) -> None:
    progress, needs = case
    curves = [kept_points(curve) for curve in progress]

    def together(tried: Sequence[int]) -> bool:
        return fits(ROOM, needs, tried)

    fair, fast = water_fill(curves, together), best_sum(curves, together)
    if fair is not None and fast is not None:
        assert min(value(curves, fair)) >= min(value(curves, fast)) - 1e-12


@pytest.mark.parametrize("wrong", ["objective=fast", "curve=flat", "mitigation=all", "loss=1.5", "sample_cycles=0"])
def test_bad_parameters(wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        policy_from(f"warped-slicer:{wrong}")
