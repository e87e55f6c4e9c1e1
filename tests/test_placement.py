"""Kernels that only wait: a prediction is what a replay gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.placement import run as study
from experiments.rows import from_csv, to_csv
from gpusim.lab.dataset import Dataset

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "placement"
MOST_PERCENT = 3.0  # that predictions of all runs may be off on the mean


def test_where_blocks_go_is_predicted() -> None:
    runs = from_csv(study.Run, STUDY / "result.csv")
    assert study.size(one.error_percent for one in runs) < MOST_PERCENT


def test_cases_are_the_kernels_of_the_recorded_pairs() -> None:
    assert (STUDY / "cases.csv").read_text() == to_csv(study.Case, study.cases_of(Dataset(study.RECORDED, study.GPU)))
    pairs = from_csv(study.Pair, STUDY / "pairs.csv")
    assert [one.pair for one in pairs] == list(study.read_cases())


def test_a_prediction_is_what_a_replay_gives_now() -> None:
    launches = study.read_launches()
    runs = study.runs_together(launches)
    began, replays = study.starts(runs), study.Replays(study.read_cases(), study.measured_alone(launches))
    rows = from_csv(study.Run, STUDY / "result.csv")
    assert [(row.pair, row.run) for row in rows] == list(runs)
    for row in rows[:: len(rows) // 7]:
        started, measured = began[row.pair, row.run], runs[row.pair, row.run]
        assert row.first == study.NAMES[started.first]
        assert row.measured_us == pytest.approx(study.measured_makespan_us(measured), rel=1e-5)
        assert row.predicted_us == pytest.approx(replays.makespan_us(row.pair, started), rel=1e-5)


def launch(stream: int, call: int, start_us: float, end_us: float, streams: int = 2) -> object:
    return study.Launch(0, streams, 0, stream, call, 0, 32, start_us, start_us, end_us, 1, 1)


def test_a_kernel_alone_takes_from_the_end_of_the_one_before() -> None:
    """The first counts with 1.7 us of launch latency: 11.7, 12 and 14 us, of which the median is 12."""
    calls = [(0.0, 10.0), (12.0, 22.0), (24.0, 36.0)]
    alone = study.measured_alone([launch(0, call, *times, streams=1) for call, times in enumerate(calls)])
    assert alone == {(0, 0, 0): study.Alone(12.0, 32)}


def test_how_a_run_began() -> None:
    """A stream that starts 40 us late found no room: it is taken to have been there as late as the others."""
    runs = {
        (0, 0): [launch(0, 0, 0.0, 10.0), launch(1, 0, 0.5, 10.0)],
        (0, 1): [launch(0, 0, 1.5, 10.0), launch(1, 0, 0.0, 10.0)],
        (0, 2): [launch(0, 0, 0.0, 40.0), launch(1, 0, 40.0, 50.0)],
    }
    assert study.starts(runs) == {
        (0, 0): study.Started(0, 0.5),
        (0, 1): study.Started(1, 1.5),
        (0, 2): study.Started(0, 1.0),
    }


def test_how_late_a_kernel_starts_behind_the_last_block_of_another() -> None:
    """Stream 1's second call could start at 11.7; it starts 0.2 us after 0's last block, placed at 20."""
    waves = study.Launch(0, 2, 0, 0, 0, 0, 32, 0.0, 20.0, 40.0, 132, 2)
    calls = [launch(1, 0, 0.0, 10.0), launch(1, 1, 20.2, 30.0), launch(1, 2, 31.7, 40.0)]
    assert list(study.after_last_blocks([waves, *calls])) == [pytest.approx(0.2)]


def test_two_kernels_that_wait_do_not_slow_each_other() -> None:
    """Two calls of 10 us a stream, a block on each SM, b 0.5 us later: 0.5 + 8.3 + 10 us."""
    cases = {0: [study.Case(0, stream, "op", 2, 0, 132, 128, 32, 0, 0, 8.3) for stream in (0, 1)]}
    alone = {(0, stream, 0): study.Alone(10.0, 32) for stream in (0, 1)}
    makespan_us = study.Replays(cases, alone).makespan_us(0, study.Started(0, 0.5))
    assert makespan_us == pytest.approx(18.8, rel=1e-3)
