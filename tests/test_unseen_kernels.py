"""Kernels that the model has never seen: the first scores stay, today's are what the model gives."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from experiments.rows import from_csv, lines, to_csv
from experiments.unseen import ALONE, ISOLATED, TOGETHER, Score
from experiments.unseen_kernels import run as study
from gpusim import load_gpu
from gpusim.io.ncu import ELAPSED, HEAVY_PERCENT, PIPES_PERCENT
from gpusim.lab.dataset import Dataset
from gpusim.lab.scores import Scored
from gpusim.lab.scoring import Scoring
from gpusim.lab.validate import Predictor, conditions, measurements

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "unseen_kernels"
LSTM, NORM = "lstm/16x64x512/fp16", "layer_norm/6007x3001/fp32"


def _named(recording: str, experiment: str, name: str, table: str = study.RESULT) -> Score:
    rows = from_csv(Score, STUDY / table)
    (row,) = (one for one in rows if (one.recording, one.experiment, one.name) == (recording, experiment, name))
    return row


def test_todays_scores_are_what_the_model_gives_now() -> None:
    dataset = study.CASES[study.COUNTED].load()
    predictor, measured = Predictor(dataset), measurements(dataset)
    found = [one for one in conditions(dataset) if one.experiment == "sm_curve" and one.ops == ((NORM,),)][:-1]
    assert all(one.sms != (132,) for one in found) and len(found) == 13
    errors = [predictor.predict(one)["sm_curve"] / measured["sm_curve", one.key] - 1.0 for one in found]
    row = _named(study.COUNTED, "sm_curve", NORM)
    assert row.mape_percent == pytest.approx(100.0 * sum(map(abs, errors)) / len(errors), rel=1e-5)


@pytest.mark.parametrize(
    ("recording", "ops", "folder", "calls", "pairs", "sequences"),
    [
        (study.AS_RECORDED, "ops.py", study.RECORDED, 46, 52, 11),
        (study.BF16, "ops_bf16.py", Path(study.BF16_CASE.folder), 26, 39, 6),
    ],
)
def test_the_first_scores_are_of_all_that_was_measured(
    recording: str, ops: str, folder: Path, calls: int, pairs: int, sequences: int
) -> None:
    """Of every call, pair and sequence that a file names, and of no scaling points."""
    every = from_csv(Score, STUDY / study.FIRST)
    assert {row.recording for row in every} == {study.AS_RECORDED, study.BF16}
    rows = [row for row in every if row.recording == recording]
    points = {row.experiment: row.points for row in rows if row.group == "all"}
    assert points == {
        "isolated": calls,
        "sm_curve": calls * 13,
        "streams": pairs,
        "streams_b_first": pairs,
        "green": pairs * 8,
        "modules_serial": sequences,
        "modules_streams": sequences,
    }
    (table,) = (
        node.value
        for node in ast.parse((STUDY / ops).read_text("utf-8")).body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "OPS"
    )
    assert isinstance(table, ast.Dict)
    named = [ast.literal_eval(key) for key in table.keys if key is not None]
    assert named == [row["op"] for row in lines(folder / "convolutions.csv")]
    assert set(named) == {row.name for row in rows if row.group == "one" and row.experiment == "sm_curve"}


def test_the_second_profile_has_all_counters_of_the_same_kernels() -> None:
    first, second = (lines(folder / "kernels.csv.gz") for folder in (study.RECORDED / "first", study.RECORDED))
    same = ("op", "index_in_op", "stream", "Kernel Name", "Grid Size", "Block Size")
    assert [[row[name] for name in same] for row in first] == [[row[name] for name in same] for row in second]
    added = {*PIPES_PERCENT.values(), HEAVY_PERCENT, ELAPSED, *(f"launch__cluster_dim_{axis}" for axis in "xyz")}
    assert second[0].keys() - first[0].keys() == added


def test_kernels_on_streams_of_a_library_have_a_reason() -> None:
    """The longest kernel of the recurrent network runs on a stream that cuDNN opened."""
    kernels = Dataset(study.RECORDED, study.CASES[study.AS_RECORDED].load().gpu).op(LSTM).kernels
    assert max(kernels, key=lambda kernel: kernel.duration_us).stream == "internal0"
    assert "l1 binds, 32 blocks" in _named(study.AS_RECORDED, "sm_curve", LSTM, study.FIRST).why


def test_times_on_all_sms_stand_apart() -> None:
    rows = [Scored("sm_curve", f"call|{sms}", 1.0, 1.0, 1.0) for sms in (13, 132)]
    gpu = load_gpu("h100-sxm")
    found = study._apart(Scoring(rows, {}, gpu, gpu, {("sm_curve", row.key): ("call",) for row in rows}))
    assert [row.experiment for row in found.rows] == ["sm_curve", ISOLATED]
    assert found.named == {("sm_curve", "call|13"): ("call",), (ISOLATED, "call|132"): ("call",)}


def test_half_of_all_errors() -> None:
    scores = [Score("", "", "", "", 1, mape, 0.0, 0.0, 0.0, 0.0, "") for mape in (1.0, 6.0, 1.0, 4.0)]
    assert study._half(scores) == 1
    assert study._half(scores[:1] + scores[2:]) == 1
    assert study._half(scores[:1] * 5) == 3


def test_a_split_by_measured_curves_keeps_the_predicted_interference() -> None:
    """Two calls of a on 48 SMs, half-way between points, take 8 ms; the model has 4, and 5 beside b."""
    curves = {32: (6.0, 3.0), 64: (3.0, 1.5), 84: (2.0, 1.0)}
    rows = [
        Scored("sm_curve", f"{op}|{sms}", predicted, ms, 1.0) for op in "ab" for sms, (ms, predicted) in curves.items()
    ]
    rows.append(Scored("green", "a|2|b|1|48|84", 5.0, 10.0, 1.0))
    gpu = load_gpu("h200")
    found = study._split_by_curves(Scoring(rows, {}, gpu, gpu))
    assert [row.predicted_ms for row in found[ALONE]] == pytest.approx([8.0])
    assert [row.predicted_ms for row in found[TOGETHER]] == pytest.approx([10.0])


def test_every_call_beside_a_reader_is_relative_to_nothing() -> None:
    """Times of beside.csv over those beside nothing."""
    rows = from_csv(study.Beside, STUDY / study.SLOWED)
    measured = [row for row in lines(study.BESIDE) if row["beside"] != study.NOTHING]
    assert [(row.call, row.beside) for row in rows] == [(row["call"], row["beside"]) for row in measured]
    nothing = {row["call"]: float(row["us"]) for row in lines(study.BESIDE) if row["beside"] == study.NOTHING}
    assert rows[0].measured == pytest.approx(float(measured[0]["us"]) / nothing[rows[0].call], rel=1e-5)


@pytest.mark.release
def test_tables_of_single_kernels_are_what_the_model_gives_now() -> None:
    for name, kind, found in (
        (study.SLOWED, study.Beside, study.beside_readers()),
        (study.CAUSED, study.Cause, study.caused()),
    ):
        assert to_csv(kind, found) == (STUDY / name).read_text("utf-8")
