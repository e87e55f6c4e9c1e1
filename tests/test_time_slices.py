"""Processes that share a GPU without MPS, measured: what the study makes of them."""

from __future__ import annotations

import pytest

from experiments.rows import from_csv
from experiments.time_slices import run as study
from gpusim.policies.time_slicing import SLICE_US, STOP_US, SWITCH_US

BOTH = study.Both("1 p + 1 q", "a", 90.0, 100.0, 110.0, 100.0, 132.0, 120.0)


def test_errors_are_of_the_makespan_and_of_each_end() -> None:
    assert (BOTH.predicted_us, BOTH.measured_us) == (132.0, 120.0)
    assert BOTH.error_percent == pytest.approx(10.0) and BOTH.end_errors_percent == pytest.approx((10.0, 10.0))
    cells = [cell.strip() for cell in study.program_table([BOTH]).splitlines()[2].split("|")[1:-1]]
    assert cells == ["1 p + 1 q", "a", "120", "+10.0 %", "+10.0 %", "+10.0 %", "20", "42"]


def test_turns_of_processes_follow_one_another() -> None:
    """No process runs while another has the GPU: within 2 us, as the timer of the GPU is read now and then."""
    for case in study.recorded():
        assert min(study.switches_us(case), default=0.0) > -2.0, case


def test_a_replay_of_endless_processes_goes_round_as_the_gpu_did() -> None:
    row = study.always("long x3")
    assert row.predicted_us == pytest.approx(SLICE_US + SWITCH_US + STOP_US, abs=2.0)
    assert row.error_percent == pytest.approx(0.0, abs=1.0)
    stored = {one.case: one for one in from_csv(study.Row, study.STUDY.folder / "result.csv")}
    assert stored["long x3"].predicted_us == pytest.approx(row.predicted_us, rel=1e-4)


def test_only_requests_that_never_wait_for_one_another_are_replayed() -> None:
    """The others were launched when the one before had ended, which depends on what is to be predicted."""
    assert not study.never_waits("50 us every 1 ms beside long")
    stored = [one.case for one in from_csv(study.Request, study.STUDY.folder / "requests.csv")]
    assert stored == [case for case in study.recorded() if study.never_waits(case)] != []


def test_every_pair_is_first_both_ways() -> None:
    stored = from_csv(study.Both, study.STUDY.folder / "whole_programs.csv")
    assert [one.first for one in stored] == ["a", "b"] * (len(stored) // 2)
    assert len({one.pair for one in stored}) == len(stored) / 2
