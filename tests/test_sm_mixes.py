"""Two kernels on the same SMs: the study's rows are what the model gives, and its measures are as their names say."""

from __future__ import annotations

from itertools import islice
from math import isnan
from pathlib import Path

import pytest

from experiments.rows import from_csv
from experiments.sm_mixes import run as study
from gpusim import Session

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "sm_mixes"
FIRST = 12  # rows that a test makes anew
MOST_OFF = 0.10  # of the progress, mean size: what the study prints is less


def test_predictions_are_what_the_model_gives_now() -> None:
    known = from_csv(study.Mix, STUDY / "result.csv")
    for row, found in zip(known, islice(study.mixes(Session("h200")), FIRST), strict=False):
        assert (row.sms, row.a, row.b, row.fits) == (found.sms, found.a, found.b, found.fits)
        for name in ("a_measured", "b_measured", "a_predicted", "b_predicted", "us_measured", "us_predicted"):
            assert getattr(row, name) == pytest.approx(getattr(found, name), rel=1e-4)


def test_progress_counts_kernels_until_the_first_stream_ends() -> None:
    long, short = [(0.0, 10.0), (10.0, 30.0)], [(1.0, 20.0)]
    assert study.progress(long, short, 10.0) == pytest.approx((1.0 + 0.5) * 10.0 / 20.0)
    assert study.progress(short, long, 19.0) == pytest.approx(19.0 / 20.0)
    alone = [(0.0, 9.0), (10.0, 19.0), (20.0, 29.0)]
    assert study.period_us(alone) == 10.0
    assert study.progress(alone, [(0.0, 29.0)], 10.0) == pytest.approx(30.0 / 29.0)


def test_every_pair_of_a_list_was_measured() -> None:
    known = {(row.sms, row.a, row.b) for row in from_csv(study.Mix, STUDY / "result.csv")}
    for sms in study.SMS:
        names = [line.split()[0] for line in study.calls_of(sms).read_text().splitlines()]
        assert {(sms, a, b) for a in names for b in names} <= known


def test_kernels_that_do_not_fit_have_no_older_one() -> None:
    rows = from_csv(study.Mix, STUDY / "result.csv")
    assert all(isnan(row.older_measured) == isnan(row.older_predicted) == (not row.fits) for row in rows)
    off = [
        abs(p / m - 1.0)
        for row in rows
        for m, p in ((row.a_measured, row.a_predicted), (row.b_measured, row.b_predicted))
    ]
    assert sum(off) / len(off) < MOST_OFF
