"""Pairs of whole programs, measured: what the study makes of them."""

from __future__ import annotations

import csv
from math import isnan
from pathlib import Path

import pytest

from experiments.advise import run as study
from experiments.rows import from_csv, lines
from gpusim.choose.settings import Setting
from gpusim.session import Session

RECORDED = Path(__file__).resolve().parents[2] / "shared" / "h200_models" / "pairs.csv"


def row(mechanism: str, measured_us: float, recommended: str = "", predicted_us: float = 1.0) -> study.Row:
    return study.Row("h200", "1 a + 1 b", mechanism, "", predicted_us, measured_us, recommended, 8.0, 3.0, 10.0, 4.0)


def test_regret_is_over_the_best_that_was_measured() -> None:
    (found,) = study.chosen([row("in turn", 20.0), row("streams", 12.0), row("SM split", 11.0, "yes"), row("MPS", 9.0)])
    assert found.regret_percent == pytest.approx(0.0), "what processes took is another measurement"
    (found,) = study.chosen([row("in turn", 20.0), row("streams", 12.0, "yes"), row("SM split", 10.0)])
    assert found.regret_percent == pytest.approx(20.0)
    assert found.streams_regret_percent == pytest.approx(20.0)


def test_every_setting_that_was_measured_has_a_row() -> None:
    rows = from_csv(study.Row, study.HERE / "result.csv")
    measured = [one for runs in study.measured().values() for one in runs if study.setting_of(one) is not None]
    assert len(rows) == len(measured)
    known = {(one.gpu, one.pair.name, one.mechanism, one.setting): one.makespan_us for one in measured}
    assert {(r.gpu, r.pair, r.mechanism, r.setting): r.measured_us for r in rows} == pytest.approx(known)


def test_a_row_has_the_ends_of_programs_that_ran_together() -> None:
    """The program that ends last ends with the makespan; of what was measured each is the median of several runs."""
    known = {
        (one.gpu, pair.name, one.mechanism, one.setting): one for pair, runs in study.measured().items() for one in runs
    }
    for one in from_csv(study.Row, study.HERE / "result.csv"):
        ends = one.predicted_a_us, one.predicted_b_us, one.measured_a_us, one.measured_b_us
        if one.mechanism == "in turn":
            assert all(map(isnan, ends))
            assert one.end_errors_percent == ()
            continue
        ran = known[one.gpu, one.pair, one.mechanism, one.setting]
        assert max(ends[:2]) == pytest.approx(one.predicted_us, rel=1e-5)
        assert ends[2:] == pytest.approx((ran.a_us, ran.b_us), rel=1e-5)
        assert max(ends[2:]) == pytest.approx(one.measured_us, rel=0.01)


def test_errors_are_of_makespans_and_of_the_end_of_each_program() -> None:
    """Program a is predicted to end at 8 of 10, b at 3 of 4; b ended first, so its error comes first."""
    assert row("streams", 10.0).end_errors_percent == pytest.approx((-25.0, -20.0))
    text = study.error_table([row("streams", 10.0, predicted_us=9.0), row("in turn", 10.0, predicted_us=11.0)])
    in_turn, streams = ([cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()[2:])
    assert in_turn == ["h200", "in turn", "1", "10.0 %", "+10.0 %", "+10 to +10 %", "", "", "", ""]
    assert streams[2:6] == ["1", "10.0 %", "-10.0 %", "-10 to -10 %"]
    assert streams[6:] == ["2", "22.5 %", "-22.5 %", "-25 to -20 %"]


def test_ends_are_of_programs_that_run_once() -> None:
    """Two programs alike on equal parts of the SMs end together, but for the GPCs; the one with priority ends first."""
    pair = next(pair for pair in study.measured() if pair.a == pair.b == "prefill")
    trace, session = study.together(pair), Session("h200")
    way = Setting("SM split", "64+64 SMs", "green-context:by=program,sms=64+64")
    a_us, b_us = study.ends_us(trace, session, way)
    assert a_us == pytest.approx(b_us, rel=5e-3)
    assert max(a_us, b_us) == session.makespan_us(trace, way.policy)
    for first in ("a", "b"):
        way = Setting("priority", f"{first} first", "leftover", priorities={first: 1})
        a_us, b_us = study.ends_us(trace, session, way)
        assert (a_us < b_us) == (first == "a")


def test_a_program_runs_its_passes_one_after_the_other() -> None:
    pair = next(pair for pair in study.measured() if pair.a == "prefill" and pair.b == "generate")
    trace = study.together(pair)
    assert [program.name for program in trace.programs] == ["a", "b"]
    once = study.gpusim.load_trace(study.PROGRAMS / "h200_prefill.json.gz")
    assert len(trace.streams[0].operations) == pair.passes_a * len(once.streams[0].operations)


@pytest.mark.release
def test_a_row_is_what_advise_gives_now() -> None:
    """After a change of the model: run the study's script."""
    pair = next(pair for pair in study.measured() if pair.a == "prefill" and pair.b == "prefill")
    known = [one for one in from_csv(study.Row, study.HERE / "result.csv") if one.pair == pair.name]
    for old, new in zip(known, study.answer(pair), strict=True):
        assert (new.mechanism, new.setting, new.recommended) == (old.mechanism, old.setting, old.recommended)
        assert new.predicted_us == pytest.approx(old.predicted_us, rel=1e-4)
        assert new.end_errors_percent == pytest.approx(old.end_errors_percent, rel=1e-4, abs=1e-2)


@pytest.mark.skipif(not RECORDED.exists(), reason="the recording is not here")
def test_the_pairs_of_the_recorded_models_are_as_measured() -> None:
    with RECORDED.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    pairs = {(line["a"], line["b"]) for line in lines}
    mine = [
        one
        for pair, runs in study.measured().items()
        for one in runs
        if (pair.a, pair.b) in pairs and one.gpu == "h200" and one.mechanism != "priority"  # measured later
    ]
    theirs = [1e3 * float(line["ms_makespan"]) for line in lines]
    assert sorted(one.makespan_us for one in mine) == pytest.approx(sorted(theirs), abs=0.06)


def test_what_a_program_loses_beside_another_is_of_its_launches() -> None:
    """Of `prefill1` on 48 SMs, by hand: each kernel as often as it was launched alone."""
    rows = [row for row in lines(study.BESIDE) if (row["a"], row["sms_a"], row["program"]) == ("prefill1", "48", "a")]
    alone = sum(float(row["alone_us"]) * int(row["launches"]) for row in rows)
    beside = sum(float(row["beside_us"]) * int(row["launches"]) for row in rows)
    assert study.slowed("prefill1", "decode32", 48) == pytest.approx(beside / alone) == pytest.approx(1.34, abs=0.005)
    assert sum(int(row["launches"]) for row in rows) == 96  # two passes of 48 kernels


def test_no_kernel_beside_another_program_is_counted_twice() -> None:
    rows = lines(study.BESIDE)
    cases = [tuple(row[name] for name in ("a", "b", "sms_a", "program", "kernel", "grid")) for row in rows]
    assert len(set(cases)) == len(cases) == 280
