"""The studies of choices: a row of each is what a replay gives. Their pages: tests/test_pages.py.

When one fails after a change of the model: run the study's ``run.py``, then ``experiments/answer/run.py``, and read.
"""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest

from experiments.answer import run as answer
from experiments.inception_choice import report as modules_report
from experiments.inception_choice import run as modules
from experiments.markdown import BLOCK
from experiments.micro_batches import run as micro_batches
from experiments.networks_choice import run as networks
from experiments.networks_choice.report import PLAN, SERIAL, STREAMS, verdict
from experiments.rows import from_csv, to_csv
from experiments.spaa20_27_cases import run as cases
from experiments.spaa20_table2 import run as table_2

STUDIES = Path(__file__).resolve().parent.parent / "experiments"


def test_the_shape_of_table_2() -> None:
    """48,000 / (4 x 25) channels; 4.8e9 / (4 x 25 x 480 x 196) images, near 512."""
    assert table_2.channels() == pytest.approx(480.0)
    assert table_2.images() == pytest.approx(512.0, rel=0.01)


def test_what_no_other_beats_in_both() -> None:
    rows = [
        table_2.Row("", name, name, mb, ms) for name, mb, ms in (("a", 0, 5), ("b", 1, 6), ("c", 2, 3), ("d", 3, 3))
    ]
    assert [row.printed for row in table_2.not_beaten(rows)] == ["a", "c"]


def test_parts_add_up_as_recorded() -> None:
    """What needs no model is what the tables say; every plan that was measured is one of the trace's divisions."""
    calls = micro_batches.recorded()
    sums = micro_batches.chains(calls)
    assert to_csv(micro_batches.Chain, sums) == (STUDIES / "micro_batches" / "sums.csv").read_text()
    best = micro_batches.best_divisions(calls, sums)
    assert to_csv(micro_batches.Best, best) == (STUDIES / "micro_batches" / "divisions.csv").read_text()
    known = from_csv(micro_batches.Planned, STUDIES / "micro_batches" / "result.csv")
    for row, (module, name, work, plan) in zip(known, micro_batches.read_plans(), strict=True):
        assert (row.module, f"{row.limit_mib}-{row.way}") == (module, name)
        assert micro_batches.memory_bytes(work, plan) == row.memory_bytes <= row.limit_mib * micro_batches.MIB


@pytest.mark.release
def test_a_row_of_the_modules_is_what_the_search_gives() -> None:
    task = modules.Task("h200", 16, "4a", "0")
    assert modules.searched(task) == task
    found = modules.Row(*modules.answer(task))
    known = from_csv(modules.Row, STUDIES / "inception_choice" / "result.csv")
    (row,) = [row for row in known if (row.gpu, row.batch, row.module, row.limit) == ("h200", 16, "4a", "0")]
    for way in ("serial", *modules_report.WAYS, "other", "bound"):
        assert found.us(way) == pytest.approx(row.us(way), rel=1e-5), way


def test_steps_of_the_levers_make_the_gain() -> None:
    """Streams 100 to 80; the split at 90 adds nothing, the mix 80 to 75, algorithms 75 to 60, order 60 to 50."""
    times = (100.0, 80.0, 90.0, 75.0, 50.0, 50.0, 60.0, 40.0)
    row = modules.Row("h200", 16, "4a", "none", *times, 1.0, "leftover", 1, 1.0, 1.0, 1.0, 1.0, "")
    steps = row.steps()
    assert list(steps.values()) == pytest.approx([100 / 80, 1.0, 80 / 75, 75 / 60, 60 / 50])
    assert prod(steps.values()) == pytest.approx(row.gain("plan"))


def test_a_limit_that_no_plan_exceeds_is_none() -> None:
    task = modules.Task("h200", 16, "3a", "64")  # its largest workspaces add up to 34 MiB
    assert modules.searched(task).limit == "none"
    assert modules.searched(modules.Task("h200", 128, "3a", "512")).limit == "512"


def test_verdicts_of_networks() -> None:

    def row(way: str, us: float, error: float) -> object:
        return networks.Row("n", way, us, 0.0, "leftover", 2, 1, 1, 0, 10.0, 1, error, "")

    rows = [
        row(SERIAL, 110.0, 5.0),
        row(STREAMS, 100.0, 5.0),
        row(PLAN, 98.0, 0.0),
    ]
    assert verdict(rows, "n", "streams", SERIAL) == "gain"
    assert verdict(rows, "n", PLAN, SERIAL) == "gain?"
    assert verdict(rows, "n", PLAN, STREAMS) == "tie"  # a difference of 2 %, error unknown
    assert verdict([row(SERIAL, 104.0, 5.0), *rows[1:]], "n", "streams", SERIAL) == "tie"


def test_measured_pairs_are_independent_and_known() -> None:
    known = from_csv(cases.Measured, STUDIES / "spaa20_27_cases" / "measured.csv")
    found = cases.measured()
    assert [(row.first, row.second, row.complementary) for row in found] == [
        (row.first, row.second, row.complementary) for row in known
    ]
    for row in found:
        assert row.first.split(".")[0] == row.second.split(".")[0]
        assert not {row.first.split("/")[0], row.second.split("/")[0]} <= {"3a.3x3", "3a.3x3_reduce"}


def test_the_answer_holds_what_the_studies_say() -> None:
    """All but what takes long to work out; tests of a release compare the whole page."""
    text = answer.DOCUMENT.read_text(encoding="utf-8")
    blocks = {place["name"]: place[0] for place in BLOCK.finditer(text)}
    assert set(blocks) == set(answer.BLOCKS)
    for name in ("control", "plans", "streams", "gains", "modules", "memory", "cases", "bars"):
        assert answer.BLOCKS[name]() in blocks[name], name
