"""Paired comparisons: closed forms, order, ties."""

from __future__ import annotations

from math import exp, log, sqrt
from random import Random
from statistics import stdev

import pytest

from experiments.compare import Compared, compared
from experiments.markdown import filled, table


def test_cases_that_agree_leave_no_doubt() -> None:
    found = compared({(name,): 1.25 for name in "abcd"})
    assert (found.ratio, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))
    assert found.cases == 4


def test_one_case_has_no_interval() -> None:
    assert str(compared({("a", "b"): 1.25})) == "+25.0 %"


def test_the_mean_is_geometric_and_the_interval_holds_it() -> None:
    found = compared({("a",): 2.0, ("b",): 0.5, ("c",): 4.0, ("d",): 1.0})
    assert found.ratio == pytest.approx(4.0**0.25)
    assert 0.5 <= found.low < found.ratio < found.high <= 4.0


def test_the_interval_of_many_cases_is_the_normal_one() -> None:
    """Means of many draws are normal: 1.96 standard errors either way."""
    random = Random(7)
    ratios = {(str(n),): exp(random.gauss(0.1, 0.2)) for n in range(200)}
    logs = [log(value) for value in ratios.values()]
    half = 1.96 * stdev(logs) / sqrt(len(logs))
    found = compared(ratios)
    assert log(found.high / found.ratio) == pytest.approx(half, rel=0.15)
    assert log(found.ratio / found.low) == pytest.approx(half, rel=0.15)


def test_pairs_that_share_a_member_are_not_independent() -> None:
    """All gain is with one of five members: leaving it out is likely, so the interval is wider than of ten cases."""
    names = "abcde"
    pairs = {(a, b): 2.0 if a == "a" else 1.0 for n, a in enumerate(names) for b in names[n + 1 :]}
    alone = {(f"{a}{b}",): ratio for (a, b), ratio in pairs.items()}
    assert compared(pairs).ratio == compared(alone).ratio
    assert compared(pairs).high / compared(pairs).low > compared(alone).high / compared(alone).low
    assert compared(pairs).low == 1.0


def test_order_of_cases_does_not_matter() -> None:
    ratios = {("a", "b"): 1.1, ("a", "c"): 0.9, ("b", "c"): 1.3}
    assert compared(ratios) == compared(dict(reversed(list(ratios.items()))))


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Compared(1.10, 1.05, 1.15, 9), "gain"),
        (Compared(1.10, 0.99, 1.20, 9), "tie"),  # not sure
        (Compared(1.04, 1.03, 1.05, 9), "tie"),  # sure, and below the model's error
        (Compared(0.90, 0.85, 0.95, 9), "loss"),
        (Compared(1 / 1.04, 0.95, 0.97, 9), "tie"),
    ],
)
def test_a_difference_below_the_error_is_a_tie(found: Compared, verdict: str) -> None:
    assert found.verdict(0.05) == verdict


def test_an_unknown_error_is_a_large_one() -> None:
    assert Compared(1.08, 1.05, 1.11, 9).verdict(None) == "tie"
    assert Compared(1.12, 1.05, 1.19, 9).verdict(None) == "gain?"
    assert Compared(0.85, 0.80, 0.90, 9).verdict(None) == "loss?"


def test_in_words() -> None:
    assert str(Compared(1.123, 1.081, 1.16, 9)) == "+12.3 % (+8.1 to +16.0)"


def test_blocks_of_a_document() -> None:
    text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n<!-- begin y -->\n<!-- end y -->\n"
    once = filled(text, {"x": "1", "y": table(["t"], [["2"]])})
    assert (
        once
        == "a\n<!-- begin x -->\n\n1\n\n<!-- end x -->\nb\n<!-- begin y -->\n\n| t |\n|---|\n| 2 |\n\n<!-- end y -->\n"
    )
    assert filled(once, {"x": "1", "y": table(["t"], [["2"]])}) == once
    with pytest.raises(KeyError):
        filled(text, {"x": "1"})
