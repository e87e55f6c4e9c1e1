"""Kernels whose counters are hidden: nothing of them is left, and the table is what is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.hidden_counters import run as study
from experiments.rows import from_csv
from gpusim.lab.scores import Scored, summaries

RESULT = Path(study.__file__).with_name("result.csv")
NAME = "transformer"
CASE = study.SETS[NAME][0]


def _kept(way: str) -> list[study.Errors]:
    known = from_csv(study.Errors, RESULT)
    return [row for row in known if (row.dataset, row.way) == (NAME, way)]


def test_no_counter_is_left() -> None:
    kernels = {op: CASE.load().op(op).kernels for op in CASE.load().calls}
    for way in study.WAYS.keys() - {study.COUNTED}:
        change = study.changed(CASE, way)
        for op, recorded in kernels.items():
            for before, after in zip(recorded, change(op, recorded), strict=True):
                assert before.mix is not None and not before.estimated and after.estimated
                assert after.mix is None or after.mix.estimated
                assert (after.grid, after.duration_us) == (before.grid, before.duration_us)


def test_each_op_has_the_work_of_its_operator() -> None:
    found = study.works(CASE)
    product = found["transformer/qkv/t4096/bf16/gemm", 0]
    assert product is not None and product.flop == 2.0 * 4096 * 1024 * 3072
    assert found["transformer/down/t32/bf16/gemm", 1] is None  # the sum of its parts
    assert sum(work is not None for work in found.values()) == len(CASE.load().calls)


@pytest.mark.release
@pytest.mark.parametrize("way", [study.COUNTED, study.ESTIMATED])
def test_the_table_is_what_is_predicted(way: str) -> None:
    """If this fails: `python experiments/hidden_counters/run.py`."""
    rows = summaries(study.scored((NAME, way)), {})
    assert [one.experiment for one in rows] == [one.experiment for one in _kept(way)]
    for found, known in zip(rows, _kept(way), strict=True):
        assert found.points == known.points and found.mape_percent == pytest.approx(known.mape_percent, abs=0.01)


def test_operators_tell_more_than_nothing() -> None:
    for estimated, nameless in zip(_kept(study.ESTIMATED), _kept(study.NAMELESS), strict=True):
        assert estimated.mape_percent < nameless.mape_percent


def test_inside_by_hand() -> None:
    """Of three measurements one lies between the assumptions, one on the end of them, one beyond."""

    def rows(*predicted: float) -> list[Scored]:
        measured = (2.0, 3.0, 9.0)
        return [Scored("green", str(n), ms, measured[n], 1.0) for n, ms in enumerate(predicted)]

    found = {study.COMPUTE: rows(1.0, 3.0, 8.0), study.MEMORY: rows(4.0, 1.0, 7.0)}
    assert study.inside("green", found) == pytest.approx(200.0 / 3.0)
