"""The studies of choices: a row of each is what a replay gives. Their pages: tests/test_pages.py.

When one fails after a change of the model: run the study's ``run.py``, then ``experiments/answer/run.py``, and read.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from types import ModuleType

import pytest
from scripts import script

from experiments.markdown import BLOCK
from experiments.rows import from_csv

STUDIES = Path(__file__).resolve().parent.parent / "experiments"


@pytest.fixture(scope="module")
def answer() -> ModuleType:
    return script(STUDIES / "answer" / "run.py", "answer")


def test_the_shape_of_table_2(answer: ModuleType) -> None:
    """48,000 / (4 x 25) channels; 4.8e9 / (4 x 25 x 480 x 196) images, near 512."""
    study = answer.study("spaa20_table2")
    assert study.channels() == pytest.approx(480.0)
    assert study.images() == pytest.approx(512.0, rel=0.01)


def test_what_no_other_beats_in_both(answer: ModuleType) -> None:
    study = answer.study("spaa20_table2")
    rows = [study.Row("", name, name, mb, ms) for name, mb, ms in (("a", 0, 5), ("b", 1, 6), ("c", 2, 3), ("d", 3, 3))]
    assert [row.printed for row in study.not_beaten(rows)] == ["a", "c"]


def test_parts_add_up_as_recorded(answer: ModuleType) -> None:
    """What needs no model is what the tables say; every plan that was measured is one of the trace's divisions."""
    run = answer.study("micro_batches")
    calls = run.recorded()
    sums = run.chains(calls)
    assert run.to_csv(run.Chain, sums) == (STUDIES / "micro_batches" / "sums.csv").read_text()
    best = run.best_divisions(calls, sums)
    assert run.to_csv(run.Best, best) == (STUDIES / "micro_batches" / "divisions.csv").read_text()
    known = from_csv(run.Planned, STUDIES / "micro_batches" / "result.csv")
    for row, (module, name, work, plan) in zip(known, run.read_plans(), strict=True):
        assert (row.module, f"{row.limit_mib}-{row.way}") == (module, name)
        assert run.memory_bytes(work, plan) == row.memory_bytes <= row.limit_mib * run.MIB


def test_a_row_of_the_modules_is_what_the_search_gives(answer: ModuleType) -> None:
    run = answer.study("inception_choice")
    task = run.Task("h200", 16, "4a", "0")
    assert run.searched(task) == task
    found = run.Row(*run.answer(task))
    known = from_csv(run.Row, STUDIES / "inception_choice" / "result.csv")
    (row,) = [row for row in known if (row.gpu, row.batch, row.module, row.limit) == ("h200", 16, "4a", "0")]
    for way in ("serial", *run.report.WAYS, "other", "bound"):
        assert found.us(way) == pytest.approx(row.us(way), rel=1e-5), way


def test_steps_of_the_levers_make_the_gain(answer: ModuleType) -> None:
    """Streams 100 to 80; the split at 90 adds nothing, the mix 80 to 75, algorithms 75 to 60, order 60 to 50."""
    run = answer.study("inception_choice")
    times = (100.0, 80.0, 90.0, 75.0, 50.0, 50.0, 60.0, 40.0)
    row = run.Row("h200", 16, "4a", "none", *times, 1.0, "leftover", 1, 1.0, 1.0, 1.0, 1.0, "")
    steps = row.steps()
    assert list(steps.values()) == pytest.approx([100 / 80, 1.0, 80 / 75, 75 / 60, 60 / 50])
    assert prod(steps.values()) == pytest.approx(row.gain("plan"))


def test_a_limit_that_no_plan_exceeds_is_none(answer: ModuleType) -> None:
    run = answer.study("inception_choice")
    task = run.Task("h200", 16, "3a", "64")  # its largest workspaces add up to 34 MiB
    assert run.searched(task).limit == "none"
    assert run.searched(run.Task("h200", 128, "3a", "512")).limit == "512"


def test_verdicts_of_networks(answer: ModuleType) -> None:
    run = answer.study("networks_choice")
    report = run.report

    def row(way: str, us: float, error: float) -> object:
        return run.Row("n", way, us, 0.0, "leftover", 2, 1, 1, 0, 10.0, 1, error, "")

    rows = [row(report.SERIAL, 110.0, 5.0), row(report.STREAMS, 100.0, 5.0), row(report.PLAN, 98.0, 0.0)]
    assert report.verdict(rows, "n", "streams", report.SERIAL) == "gain"
    assert report.verdict(rows, "n", report.PLAN, report.SERIAL) == "gain?"
    assert report.verdict(rows, "n", report.PLAN, report.STREAMS) == "tie"  # a difference of 2 %, error unknown
    assert report.verdict([row(report.SERIAL, 104.0, 5.0), *rows[1:]], "n", "streams", report.SERIAL) == "tie"


def test_measured_pairs_are_independent_and_known(answer: ModuleType) -> None:
    run = answer.study("spaa20_27_cases")
    known = from_csv(run.Measured, STUDIES / "spaa20_27_cases" / "measured.csv")
    found = run.measured()
    assert [(row.first, row.second, row.complementary) for row in found] == [
        (row.first, row.second, row.complementary) for row in known
    ]
    for row in found:
        assert row.first.split(".")[0] == row.second.split(".")[0]
        assert not {row.first.split("/")[0], row.second.split("/")[0]} <= {"3a.3x3", "3a.3x3_reduce"}


def test_the_answer_holds_what_the_studies_say(answer: ModuleType) -> None:
    """All but what takes minutes to work out."""
    text = answer.DOCUMENT.read_text(encoding="utf-8")
    blocks = {place["name"]: place[0] for place in BLOCK.finditer(text)}
    assert set(blocks) == set(answer.BLOCKS)
    for name in ("gains", "modules", "levers", "memory", "networks", "cases", "bars"):
        assert answer.BLOCKS[name]() in blocks[name], name


def test_the_policy_study_renders_from_its_rows(answer: ModuleType) -> None:
    run = answer.study("policy_study")
    rows = from_csv(run.Row, STUDIES / "policy_study" / "result.csv")
    claims = run.report._claims_text(rows)
    assert claims.count("\n") == 1 + len(run.report.CLAIMS)
    ranked = run.report._rank_table(rows, "h200")
    assert ranked.count("\n") == 1 + len(run.report.replayed(rows, "h200"))
    few = [row for row in rows if row.policy in ("leftover", "inter-sm")]  # as when others are new
    assert "`inter-sm`" in run.report._rank_table(few, "k40c")
