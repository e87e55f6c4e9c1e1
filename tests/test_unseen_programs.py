"""Programs that the model has never seen: the first scores stay, today's are what the model gives."""

from __future__ import annotations

import ast
import random
from itertools import chain
from pathlib import Path

import pytest

from experiments.rows import from_csv, lines
from experiments.unseen import ALONE, TOGETHER, Score
from experiments.unseen_programs import run as study
from gpusim.lab.scores import Scored
from gpusim.lab.whole_models import model_conditions, predictor

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "unseen_programs"
QUICK = {
    "first set": "recommender_fp32",
    "second set": "retrieval_fp16",
    "third set": "database_query_fp64",
    "fourth set": "letters_fp32",
    "fifth set": "beam_search_fp16",
}
EVERYDAY = ("first set", "fourth set")  # of which a score is worked out every day; of all before a release
POINTS = {
    "first set": {"isolated": 24, "sm_curve": 120, "streams": 12, "green": 60},
    "second set": {"isolated": 28, "sm_curve": 140, "streams": 14, "green": 70},
    "third set": {"isolated": 20, "sm_curve": 100, "streams": 10, "green": 50},
    "fourth set": {"isolated": 18, "sm_curve": 90, "streams": 9, "green": 45},
    "fifth set": {"isolated": 20, "sm_curve": 100, "streams": 10, "green": 50},
}
sets = pytest.mark.parametrize("programs", study.SETS, ids=lambda one: one.name)


def _literal(programs: study.Programs, name: str) -> ast.expr:
    """What the file of a set assigns to a name; it cannot be imported without PyTorch."""
    for node in ast.parse((STUDY / programs.file).read_text("utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if value is not None and any(isinstance(one, ast.Name) and one.id == name for one in targets):
            return value
    raise KeyError(name)


def _measured(programs: study.Programs) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["a"], row["b"]) for row in lines(programs.folder / "pairs.csv")))


@sets
def test_what_was_measured_is_what_the_file_names(programs: study.Programs) -> None:
    """All programs, each beside the next of a random order, and two beside the one half of the order away."""
    table, seed = _literal(programs, "MODELS"), ast.literal_eval(_literal(programs, "SEED"))
    assert isinstance(table, ast.Dict)
    order = [ast.literal_eval(key) for key in table.keys if key is not None]
    random.Random(seed).shuffle(order)
    half = len(order) // 2
    pairs = [*zip(order, order[1:] + order[:1], strict=True), (order[0], order[half]), (order[2], order[2 + half])]
    assert sorted(_measured(programs)) == sorted(pairs)


@sets
@pytest.mark.parametrize("table", [study.FIRST, study.RESULT])
def test_the_scores_are_of_all_that_was_measured(programs: study.Programs, table: str) -> None:
    rows = [row for row in from_csv(Score, STUDY / table) if row.recording == programs.name]
    points = {row.experiment: row.points for row in rows if row.group == "all"}
    assert points == POINTS[programs.name]
    pairs = _measured(programs)
    named = {row.name for row in rows if row.group == "one"}
    assert named == {" + ".join(pair) for pair in pairs} | set(chain(*pairs))


@pytest.mark.parametrize(
    "programs",
    [one if one.name in EVERYDAY else pytest.param(one, marks=pytest.mark.release) for one in study.SETS],
    ids=lambda one: one.name,
)
def test_todays_scores_are_what_the_model_gives_now(programs: study.Programs) -> None:
    case, quick = programs.case, QUICK[programs.name]
    wanted = [one for one in model_conditions(case) if one.experiment == "isolated" and one.models == (quick,)]
    errors = [100.0 * (predictor(case).predict_ms(one) / one.measured_ms - 1.0) for one in wanted]
    rows = from_csv(Score, STUDY / study.RESULT)
    key = programs.name, "isolated", "one", quick
    (row,) = (one for one in rows if (one.recording, one.experiment, one.group, one.name) == key)
    assert row.points == len(errors)
    assert row.bias_percent == pytest.approx(sum(errors) / len(errors), rel=1e-5)


def test_regrets_are_of_the_best_of_streams_and_splits() -> None:
    """Measured 12 in streams, 10 and 11 on two splits, of which the model prefers the second."""
    rows = [
        Scored("streams", "a|1|b|2", 9.0, 12.0, 0.0),
        Scored("green", "a|1|b|2|32|100", 9.5, 10.0, 0.0),
        Scored("green", "a|1|b|2|64|68", 8.0, 11.0, 0.0),
        Scored("isolated", "a|1|b|2|a", 1.0, 1.0, 0.0),
    ]
    found = study._regrets(rows)
    assert found[study.PREDICTED] == pytest.approx([0.1])
    assert found[study.PLAIN] == pytest.approx([0.2])


def test_a_split_by_measured_times_keeps_the_predicted_interference() -> None:
    """The longer side takes 8 ms; the model has 4, and 5 beside the other."""
    split = "a|1|b|2|32|100"
    rows = [
        Scored("green", split, 5.0, 10.0, 0.0),
        Scored("sm_curve", f"{split}|a", 4.0, 8.0, 0.0),
        Scored("sm_curve", f"{split}|b", 3.0, 6.0, 0.0),
    ]
    found = study._split_by_curves(rows)
    assert [row.predicted_ms for row in found[ALONE]] == pytest.approx([8.0])
    assert [row.predicted_ms for row in found[TOGETHER]] == pytest.approx([10.0])
