"""SPAA'20, Table 1: what fits, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.spaa20_table1 import run as study
from gpusim.hardware.gpu import load_gpu
from gpusim.trace.file import load_trace

FOLDER = Path(__file__).resolve().parent.parent / "experiments" / "spaa20_table1"


def test_one_of_each_fits_and_two_beside_one_exceed_shared_memory() -> None:
    """2 x 6,400 + 36,864 = 49,664 of 49,152 bytes, 101.04 %; registers 2 x 20,480 + 24,576 = 65,536 just fit."""
    trace = study.selected(load_trace(study.TRACE), "FFT")
    rows = study.mixes(load_gpu("k40c"), study.launch(trace, 0), study.launch(trace, 1))
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        ("1", "1", "fits"),
        ("2", "1", "exceeds shared memory"),
        ("3", "0", "fits"),
    ]
    assert rows[1][2:4] == ["100.0", "101.0"]


def test_rounding_of_the_table_cannot_make_two_beside_one_fit() -> None:
    """2 / 3 of 38.5 to 39.5 % and 74.5 to 75.5 %."""
    assert study.printed_shared_percent(2, 1) == pytest.approx((2 / 3 * 38.5 + 74.5, 2 / 3 * 39.5 + 75.5))
    assert study.printed_shared_percent(2, 1)[0] > 100.0 > study.printed_shared_percent(1, 1)[1]


def test_direct_rule() -> None:
    """2,569,011,200 flop at 20 % of 4.29 TFLOP/s."""
    trace = study.selected(load_trace(study.TRACE), "FFT")
    assert study.direct_us(trace) == pytest.approx(2994.2, abs=0.1)
    assert study.launch(study.lasting(trace, 7.0), 1).duration_us == 7.0


def test_work_done_together() -> None:
    """In turns: 1. Perfectly side by side: 2. The first at full speed, the other at half: 1.5."""
    assert study.together([4.0, 10.0], 10.0) == 1.0
    assert study.together([5.0, 5.0], 10.0) == 2.0
    assert study.together([4.0, 10.0], 4.0 + 8.0) == 1.5
