"""Kernels of whole programs on a part of the SMs: the table is of today's model, and figures are sums of rows."""

from __future__ import annotations

from math import fsum
from pathlib import Path

import pytest

from experiments.program_kernels import run as study
from experiments.rows import from_csv
from gpusim import Session, load_gpu

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "program_kernels"
QUICK = "letters_fp32"


def test_predictions_are_what_the_model_gives_now() -> None:
    gpu = load_gpu(study.GPU)
    trace = dict(study.programs())[QUICK]
    sms = study.SMS[-1]
    us = study.predicted_us(trace, Session(gpu, gpu), sms)
    measured = {
        point.kernel for point in from_csv(study.Point, study.MEASURED) if (point.program, point.sms) == (QUICK, sms)
    }
    mine = [row for row in from_csv(study.Curve, STUDY / study.RESULT) if (row.program, row.sms) == (QUICK, sms)]
    assert sum(row.launches for row in mine) == len(measured) == len(study.launches_of(trace))
    assert fsum(row.launches * row.predicted_us for row in mine) == pytest.approx(fsum(us), rel=1e-4)


def test_a_kernel_that_was_measured_on_a_part_of_the_sms_gets_that_time() -> None:
    trace = dict(study.programs())[QUICK]
    points = [study.Point(QUICK, study.POINT_SMS, at, 1, us) for at, us in ((0, 7.0), (2, 9.0))]
    told = study.launches_of(study.with_measured(trace, points))
    assert [launch.scaling and launch.scaling[0].duration_us for launch in told[:3]] == [7.0, None, 9.0]
    assert all(launch.scaling is None for launch in told[3:])
    assert study.launches_of(study.with_measured(trace, ())) == study.launches_of(trace)


def test_points_make_other_numbers_of_sms_better() -> None:
    rows = from_csv(study.Curve, STUDY / study.RESULT)
    for sms in set(study.SMS) - {study.POINT_SMS}:
        mine = [row for row in rows if row.sms == sms]
        assert study.error_percent(mine, "with_point_us") < study.error_percent(mine)


def test_a_kernel_on_all_sms_takes_its_recorded_time() -> None:
    gpu = load_gpu(study.GPU)
    trace = dict(study.programs())[QUICK]
    runs = Session(gpu, gpu).replay(trace, "leftover").kernel_runs
    recorded = [launch.duration_us for launch in study.launches_of(trace)]
    assert [run.end_us - run.ready_us - gpu.model.kernel_gap_us for run in runs] == pytest.approx(recorded, rel=1e-6)


def test_each_kernel_is_of_one_kind() -> None:
    rows = from_csv(study.Curve, STUDY / study.RESULT)
    *kinds, (everything, every) = study.kinds(rows, load_gpu(study.GPU).sm_count)
    assert everything == "all"
    assert sum(len(mine) for _, mine in kinds) == len(every) == len(rows)


def test_an_error_weighs_a_kernel_by_its_time_and_launches() -> None:
    def row(launches: int, measured_us: float, predicted_us: float) -> study.Curve:
        return study.Curve("p", "k", 1, launches, 1.0, 16, measured_us, predicted_us, 0.0, 0.0, 0.0)

    rows = [row(2, 10.0, 12.0), row(1, 20.0, 15.0)]
    assert study.error_percent(rows) == pytest.approx(100.0 * (2 * 2.0 + 5.0) / 40.0)
    assert study.bias_percent(rows) == pytest.approx(100.0 * (24.0 + 15.0 - 40.0) / 40.0)
    assert study.error_percent(rows, "in_streams_us") == pytest.approx(100.0)
