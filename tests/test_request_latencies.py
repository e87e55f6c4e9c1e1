"""Latencies of requests, measured: what the study makes of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from experiments.request_latencies import run as study
from experiments.rows import from_csv
from gpusim.results.metrics import percentile

ROW = study.Row("p + q", 0.2, "streams", 0.5, 110.0, 100.0, 150.0, 200.0, 10.0, 8.0)


def test_errors_are_over_what_was_measured() -> None:
    assert ROW.p50_error_percent == pytest.approx(10.0)
    assert ROW.p95_error_percent == pytest.approx(-25.0)
    assert ROW.passes_error_percent == pytest.approx(25.0)
    split = replace(ROW, way="32+100 SMs", predicted_p95_us=300.0)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in study.error_table([ROW, split]).splitlines()]
    assert cells[2:] == [
        ["streams", "1", "10.0 %", "+10.0 %", "25.0 %", "-25.0 %", "25.0 %", "+25.0 %"],
        ["SM split", "1", "10.0 %", "+10.0 %", "50.0 %", "+50.0 %", "25.0 %", "+25.0 %"],
    ]


def test_every_case_that_was_measured_has_a_row() -> None:
    rows = from_csv(study.Row, study.STUDY.folder / "result.csv")
    cases = study.measured()
    assert [(row.pair, row.load, row.way) for row in rows] == [(f"{c.a} + {c.b}", c.load, c.way) for c in cases]
    for row, (case, requests) in zip(rows, cases.items(), strict=True):
        took = sorted(us for _, us in requests[20:])  # 10 % of 200
        assert len(requests) == 200 and row.measured_p95_us == pytest.approx(percentile(took, 95))
        assert (row.measured_per_s > 0.0) == (case.way != study.ALONE)


def test_both_runs_are_of_the_same_cases() -> None:
    first, again = study.measured(), study.measured(study.AGAIN)
    assert first.keys() == again.keys() and first != again
    assert all(len(requests) == len(again[case]) for case, requests in first.items())


def test_requests_of_a_case_arrive_at_its_load() -> None:
    """Gaps are random, so 200 of them differ from their mean by a few percent."""
    alone = {case.b: requests for case, requests in study.measured().items() if case.way == study.ALONE}
    for case, requests in study.measured().items():
        pass_us = min(us for _, us in alone[case.b])
        gap_us = requests[-1][0] / (len(requests) - 1)
        assert pass_us / gap_us == pytest.approx(case.load, rel=0.15)


@pytest.mark.release
def test_a_row_is_what_a_replay_gives_now() -> None:
    """After a change of the model: run the study's script."""
    case = next(case for case in study.measured() if case.way == study.ALONE)
    old = from_csv(study.Row, study.STUDY.folder / "result.csv")[list(study.measured()).index(case)]
    new = study.answer(case)
    assert (new.predicted_p50_us, new.predicted_p95_us) == pytest.approx(
        (old.predicted_p50_us, old.predicted_p95_us), rel=1e-4
    )
