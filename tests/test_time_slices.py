"""Processes that share a GPU without MPS, measured: what the study makes of them."""

from __future__ import annotations

import pytest

from experiments.rows import from_csv
from experiments.time_slices import run as study
from gpusim.common.tables import grouped
from gpusim.policies import time_slicing
from gpusim.policies.time_slicing import SAVED_BYTES_PER_US, SLICE_US, STOP_US, SWITCH_US

PAIR = study.PairRow("1 p + 1 q", "a", 90.0, 100.0, 110.0, 100.0, 132.0, 120.0)


def test_errors_are_of_the_makespan_and_of_each_end() -> None:
    assert (PAIR.predicted_us, PAIR.measured_us) == (132.0, 120.0)
    assert PAIR.error_percent == pytest.approx(10.0) and PAIR.end_errors_percent == pytest.approx((10.0, 10.0))
    cells = [cell.strip() for cell in study.program_table([PAIR]).splitlines()[2].split("|")[1:-1]]
    assert cells == ["1 p + 1 q", "a", "120", "+10.0 %", "+10.0 %", "+10.0 %", "20", "42"]


def test_turns_of_processes_follow_one_another() -> None:
    """No process runs while another has the GPU: within 2 us, as the timer of the GPU is read now and then."""
    for case in study.recorded():
        assert min(study.switches_us(case), default=0.0) > -2.0, case


@pytest.mark.parametrize("case", ["long x3", "4 blocks; 128 threads; 50 KiB; 96 registers x2"])
def test_a_replay_of_endless_processes_goes_round_as_the_gpu_did(case: str) -> None:
    """A slice, a switch, and the saving of the blocks; restoring them is part of the slice."""
    row = study.endless_row(case)
    saving_us = STOP_US + row.context_bytes / SAVED_BYTES_PER_US
    assert row.predicted_us == pytest.approx(SLICE_US + SWITCH_US + saving_us, abs=0.01)
    assert row.measured_us == pytest.approx(row.predicted_us, abs=8.0)
    assert row.measured_turn_us == pytest.approx(row.predicted_turn_us, abs=8.0)
    stored = {one.case: one for one in from_csv(study.Row, study.STUDY.folder / "result.csv")}
    assert stored[case].predicted_us == pytest.approx(row.predicted_us, rel=1e-4)


def test_constants_of_the_policy_are_those_of_the_turns() -> None:
    """Times within 2 us, rates within 2 %."""
    rows = from_csv(study.Row, study.STUDY.folder / "result.csv")
    for name, value in study.constants(rows).items():
        within = 0.02 * value if "BYTES" in name else 2.0
        assert getattr(time_slicing, name) == pytest.approx(value, abs=within), name


def test_a_pair_of_programs_is_replayed_as_stored() -> None:
    """After a change of the model: run the study's script."""
    pair, lines = next(iter(grouped(study.lines(study.PROGRAM_TIMES), study._pair).items()))
    stored = from_csv(study.PairRow, study.STUDY.folder / "whole_programs.csv")[0]
    row = study._pair_row(pair, lines[0], lines[1])
    assert (row.pair, row.first) == (stored.pair, stored.first)
    assert row.predicted_us == pytest.approx(stored.predicted_us, rel=1e-4)


def test_only_requests_that_never_wait_for_one_another_are_replayed() -> None:
    """The others were launched when the one before had ended, which depends on what is to be predicted."""
    assert not study.never_waits("50 us every 1 ms beside long")
    stored = [one.case for one in from_csv(study.Request, study.STUDY.folder / "requests.csv")]
    assert stored == [case for case in study.recorded() if study.never_waits(case)] != []


def test_every_pair_is_first_both_ways() -> None:
    stored = from_csv(study.PairRow, study.STUDY.folder / "whole_programs.csv")
    assert [one.first for one in stored] == ["a", "b"] * (len(stored) // 2)
    assert len({one.pair for one in stored}) == len(stored) / 2
