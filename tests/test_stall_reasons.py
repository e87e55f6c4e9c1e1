"""Stall reasons with all blocks on an SM and with one: shares by hand, and the table is what was counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.rows import from_csv
from experiments.stall_reasons import run as study

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "stall_reasons"


def test_the_table_is_what_was_counted() -> None:
    known = from_csv(study.Waits, STUDY / "result.csv")
    for row, found in zip(known, study.waits(study.counted()), strict=True):
        assert (row.op, row.reason) == (found.op, found.reason)
        assert row.one_cycles == pytest.approx(found.one_cycles, abs=1e-4)
        assert row.hidden_cycles == pytest.approx(found.hidden_cycles, abs=1e-4)


@pytest.mark.parametrize(("alone", "share"), [(0.0, 4.0 / 3.0), (0.5, 1.0), (1.25, 0.5), (2.0, 0.0), (3.5, -1.0)])
def test_a_share_is_what_goes_over_what_goes_of_the_warps(alone: float, share: float) -> None:
    """Of 4 competing warps 3 go; what is waited falls from 2 cycles. A kernel of which no warps go does not count."""
    rows = [
        study.Waits("a", "barrier", 4.0, 1.0, 2.0, alone, 0.0),
        study.Waits("b", "barrier", 1.2, 1.0, 9.0, 9.0, 0.0),
    ]
    assert study.waiting_share(rows) == pytest.approx(share)


def test_others_turns_are_most_of_what_the_model_takes_them_for() -> None:
    """Barriers and short scoreboard vanish as others leave; long scoreboard grows."""
    rows = from_csv(study.Waits, STUDY / "result.csv")
    partly = [row for row in rows if row.reason in ("barrier", "short_scoreboard")]
    assert 0.7 < study.waiting_share(partly) < 1.0
    assert study.waiting_share([row for row in rows if row.reason == "long_scoreboard"]) < 0.0
    assert study.waiting_share([row for row in rows if row.reason == "not_selected"]) > 1.0
