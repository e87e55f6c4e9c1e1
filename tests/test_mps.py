"""Processes under MPS: rates of the recorded file by hand, and calls paired with those of green contexts."""

from __future__ import annotations

import pytest

from experiments.mps import run as study


def test_shared_sms_count_in_equal_parts() -> None:
    """60 + 60 % are 78 SMs each, of which 24 are of both: 66; their rates are half of that of the whole GPU."""
    found = {(row.percents, row.percent): row for row in study.rates()}
    assert found["60+60", 60].sms == pytest.approx(54 + 24 / 2)
    assert found["60+60", 60].measured_sms == pytest.approx(66.0, rel=0.01)
    assert found["30+70", 30].sms == 38.0 and found["30+70", 70].sms == 92.0
    assert found["100", 100].measured_sms == 132.0


def test_calls_are_compared_at_as_many_sms() -> None:
    found = {(row.call, row.sms): row for row in study.calls()}
    assert {sms for _, sms in found} == {132, 112, 96, 80, 64, 48, 32, 24}
    gemm = found[study.GEMM, 96]
    assert gemm.mps_us == pytest.approx(34.587) and gemm.green_us == pytest.approx(44.272)


def test_the_tables_are_those_of_the_recorded_files() -> None:
    rates, calls = study.STUDY.read()
    assert [row.percents for row in rates] == [row.percents for row in study.rates()]
    assert [row.measured_sms for row in rates] == pytest.approx([row.measured_sms for row in study.rates()], rel=1e-5)
    assert [row.mps_us for row in calls] == [row.mps_us for row in study.calls()]
