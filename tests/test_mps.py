"""Processes under MPS: rates of the recorded file by hand, and calls paired with those of green contexts."""

from __future__ import annotations

import pytest

import gpusim
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


def test_programs_are_predicted_from_both_recordings_as_in_the_table() -> None:
    """`decode32` at 30 %: 8 passes, 8.52 ms of kernels there; from the whole GPU it seems a fifth longer."""
    _, _, found = study.STUDY.read()
    assert len(found) == 3 * 3 * 3  # three pairs under three settings: each program alone, and both together
    (mine,) = (row for row in found if (row.programs, row.percents) == ("8 decode32", "30"))
    assert mine.measured_us == pytest.approx(8787.2)
    made = study._ran([("decode32", 8, "30")], mine.measured_us)
    assert made.whole_us == pytest.approx(mine.whole_us, rel=1e-5)
    assert made.own_us == pytest.approx(mine.own_us, rel=1e-5)
    assert made.whole_percent == pytest.approx(100.0 * (mine.whole_us / 8787.2 - 1.0), rel=1e-4)
    recorded = gpusim.load_trace(study.HERE / "programs" / "decode32_30.json.gz")
    assert {launch.recorded_sms for launch in recorded.launches()} == {38}
    kernels_us = 8 * sum(launch.duration_us for op in recorded.operations() for launch in op.launches())
    assert kernels_us == pytest.approx(8518.7, rel=1e-4) and kernels_us < made.own_us < 1.03 * kernels_us


def test_the_tables_are_those_of_the_recorded_files() -> None:
    rates, calls, _ = study.STUDY.read()
    assert [row.percents for row in rates] == [row.percents for row in study.rates()]
    assert [row.measured_sms for row in rates] == pytest.approx([row.measured_sms for row in study.rates()], rel=1e-5)
    assert [row.mps_us for row in calls] == [row.mps_us for row in study.calls()]
