"""`gpusim score`: predictions of anybody, scored by hand, checked, and told apart from what the GPU did."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import dataset_sample as sample
import pytest

from gpusim import cli
from gpusim.commands import score as score_command
from gpusim.common.errors import InputError
from gpusim.lab.dataset import OUTCOMES
from gpusim.lab.scoreboard import (
    DESCRIPTION,
    Measured,
    load,
    mean_errors,
    parts,
    read_predictions,
    score_of,
    write_template,
)

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A benchmark with a dataset for fitting, one of the same GPU and one of another for scoring."""
    root = sample.build(tmp_path_factory.mktemp("benchmark") / "data")
    sample.build(root / "networks")
    sample.curves(root / "h100", sample.ON_H100, [sample.STAIRCASE])
    return root


@pytest.fixture(scope="module")
def datasets(folder: Path) -> list[Measured]:
    return [load(part) for part in parts(folder)]


def written(path: Path, rows: list[dict[str, object]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def perfect(datasets: list[Measured], factor: float = 1.0) -> list[dict[str, object]]:
    """Predictions that are the measured times, times a factor."""
    return [
        {"dataset": one.part.name, "experiment": place[0], "key": place[1], "predicted_ms": factor * ms}
        for one in datasets
        for place, ms in one.measured_ms.items()
        if place in one.conditions
    ]


def test_the_folder_is_for_fitting_and_those_in_it_are_for_scoring(folder: Path) -> None:
    found = [(part.name, part.split, part.case.gpu, part.recorded_on) for part in parts(folder)]
    assert found == [
        ("data", "fit", "h200", "h200"),
        ("h100", "score", "h100-sxm", "h100-sxm"),
        ("h100-from-h200", "score", "h100-sxm", "h200"),
        ("networks", "score", "h200", "h200"),
    ]


def test_a_prediction_that_is_right_has_no_error_and_one_that_is_twice_as_long_has_100_percent(
    datasets: list[Measured], tmp_path: Path
) -> None:
    for factor, percent in ((1.0, 0.0), (2.0, 100.0)):
        path = written(tmp_path / "p.csv", perfect(datasets, factor))
        predicted = read_predictions(path, datasets)
        scores = [score_of(one, predicted[one.part.name]) for one in datasets]
        assert all(score.complete for score in scores)
        for score in scores:
            for summary in score.summaries:
                ratio = summary.experiment == "residency_curve"  # relative to the same call's own row
                assert summary.mape_percent == pytest.approx(0.0 if ratio else percent, abs=1e-9)
                assert summary.regret_percent in (None, pytest.approx(0.0))


def test_the_template_is_the_baseline(folder: Path, datasets: list[Measured], tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "template.csv"
    assert cli.main(["score", "--template", str(path), "--data", str(folder)]) == 0
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    assert len(rows) == sum(len(one.conditions) for one in datasets)
    assert set(rows[0]) == {"dataset", "experiment", "key", "predicted_ms", *DESCRIPTION}
    capsys.readouterr()
    assert cli.main(["score", str(path), "--data", str(folder), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["mean_percent"]["score"] == pytest.approx(content["baseline_mean_percent"]["score"], rel=1e-4)
    experiments = [one for dataset in content["datasets"] for one in dataset["experiments"]]
    assert all(one["mape_percent"] == pytest.approx(one["nothing_percent"], abs=0.01) for one in experiments)
    assert all(one["regret_percent"] is None for one in experiments if one["experiment"] == "green")


def test_the_template_does_not_change_with_what_the_gpu_did(folder: Path, tmp_path: Path) -> None:
    """Times in outcome files are multiplied by 3; the template has the same bytes."""
    changed = sample.build(tmp_path / "data")
    for name in OUTCOMES:
        for path in changed.glob(name):
            sample.edit(path, lambda row: row.update({c: str(3 * float(v)) for c, v in row.items() if c in TIMES}))
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    write_template(one, [load(parts(folder)[0])])
    write_template(other, [load(parts(changed)[0])])
    assert one.read_bytes() == other.read_bytes()


TIMES = ("ms", "ms_a", "ms_b", "ms_makespan")


def test_the_table_names_what_is_missing(
    folder: Path, datasets: list[Measured], tmp_path: Path, capsys: Capture
) -> None:
    rows = [row for row in perfect(datasets) if row["dataset"] == "networks" and row["experiment"] == "sm_curve"]
    path = written(tmp_path / "p.csv", rows[:1])
    assert cli.main(["score", str(path), "--data", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "1 of 3" in out and "Scoring split: mean error 0.00 %" in out
    assert "Not every condition of networks has a prediction" in out


def test_the_mean_counts_each_experiment_once(datasets: list[Measured]) -> None:
    one = next(one for one in datasets if one.part.name == "networks")
    places = [place for place in one.conditions if place[0] in ("sm_curve", "modules_serial")]
    wrong = {"sm_curve": 1.2, "modules_serial": 1.4}
    score = score_of(one, {place: wrong[place[0]] * one.measured_ms[place] for place in places})
    means = mean_errors([score], "score")
    assert means is not None and means[0] == pytest.approx(30.0)
    assert mean_errors([score], "fit") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dataset": "network"}, "did you mean networks?"),
        ({"key": "nothing"}, "has no 'sm_curve|nothing'"),
        ({"predicted_ms": "-1"}, "predicted_ms is '-1'"),
        ({"predicted_ms": "nan"}, "predicted_ms is 'nan'"),
        ({"predicted_ms": ""}, "is empty in every row"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_line(
    datasets: list[Measured], tmp_path: Path, change: dict[str, object], message: str
) -> None:
    row = next(row for row in perfect(datasets) if row["experiment"] == "sm_curve" and row["dataset"] == "networks")
    path = written(tmp_path / "p.csv", [row | change])
    with pytest.raises(InputError, match=r".*") as error:
        read_predictions(path, datasets)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_condition_twice_and_a_missing_column_are_refused(datasets: list[Measured], tmp_path: Path) -> None:
    row = perfect(datasets)[0]
    with pytest.raises(InputError, match="again"):
        read_predictions(written(tmp_path / "p.csv", [row, row]), datasets)
    with pytest.raises(InputError, match="lacks predicted_ms"):
        read_predictions(written(tmp_path / "q.csv", [{k: v for k, v in row.items() if k != "predicted_ms"}]), datasets)


@pytest.mark.parametrize(
    "arguments", [[], ["p.csv", "--template", "t.csv"], ["--template", "t.csv", "--data", "nowhere"]]
)
def test_bad_usage_is_one_line(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["score", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "t.csv").exists()


def test_without_the_source_tree_the_datasets_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(score_command, "__file__", str(tmp_path / "site-packages" / "gpusim" / "commands" / "score.py"))
    assert cli.main(["score", "--template", "t.csv"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("--data: is not given") and "of the source tree" in line and line.count("\n") == 1
