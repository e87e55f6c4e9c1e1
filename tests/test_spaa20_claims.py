"""The statistics of SPAA'20's claims, by hand."""

from __future__ import annotations

import pytest

from experiments.spaa20_table2.claims import Algorithm, correlation, fastest, ranks, utilisation_table


def test_equal_values_share_a_rank() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [2.5, 0.0, 2.5, 1.0]


def test_rank_correlation() -> None:
    assert correlation([1.0, 2.0, 9.0], [10.0, 20.0, 21.0]) == pytest.approx(1.0)
    assert correlation([1.0, 2.0, 3.0], [5.0, 4.0, 3.0]) == pytest.approx(-1.0)
    assert correlation([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 2.0, 4.0]) == pytest.approx(0.8)
    assert correlation([1.0, 1.0], [1.0, 2.0]) is None


def test_shares_below_a_half() -> None:
    slow = Algorithm("n", 1, "a", "GEMM/FMA", 2.0, 0.0, 0.4, 0.6)
    fast = Algorithm("n", 1, "a", "FFT/FMA", 1.0, 8.0, 0.7, 0.1)
    assert fastest([slow, fast]) == [fast]
    assert "| all algorithms | FMA | 2 | 50 % | 50 % | 0 % |" in utilisation_table([slow, fast])
