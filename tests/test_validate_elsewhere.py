"""Predictions from recordings of another GPU, with scaling points, and the choices that predictions make."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import dataset_sample as sample
import pytest

from gpusim import cli
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.dataset import OUTCOMES, Dataset, Recordings
from gpusim.lab.scores import Scored, choice, summaries
from gpusim.lab.validate import Case, conditions, measurements, score

H100 = "h100-sxm"
CURVES = (  # bound by L2's writes, by L2's reads on tensor cores, and by its pipes
    "li2016/Conv2/fwd/IMPLICIT_GEMM/FMA",
    "googlenet/4e.3x3_reduce/bwd_filter/ALGO_1/TF32",
    sample.STAIRCASE,
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """SM curves of three ops on an H100, and the recordings of the same on an H200."""
    base = tmp_path_factory.mktemp("two")
    return sample.curves(base / "h100", sample.ON_H100, CURVES), sample.curves(base / "h200", sample.RECORDED, CURVES)


def _score(case: Case) -> list[Scored]:
    return score(case, jobs=1)


def _elsewhere(folders: tuple[Path, Path], **more: tuple[int, ...]) -> Case:
    return Case(str(folders[0]), H100, str(folders[1]), "h200", **more)


# ---- another GPU


@pytest.fixture(scope="module")
def moved(folders: tuple[Path, Path]) -> list[Scored]:
    return _score(_elsewhere(folders))


def test_times_alone_are_predicted_of_what_was_recorded_elsewhere(
    folders: tuple[Path, Path], moved: Sequence[Scored]
) -> None:
    """Nearer than the times of the recordings as they are, which are the baseline."""
    solo = summaries([row for row in moved if row.experiment == "solo"], {})[0]
    assert [row.key for row in moved if row.experiment == "solo"] == list(_gpu_bound(folders))
    assert solo.points == 3
    assert solo.mape_percent < 0.5 * solo.nothing_percent


def _gpu_bound(folders: tuple[Path, Path]) -> list[str]:
    rows = sample.read(folders[0] / "convolutions.csv")
    return [row["op"] for row in rows if row["gpu_bound"] == "True"]


def test_an_op_is_scored_that_the_gpu_bounds_on_both(folders: tuple[Path, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders[1], tmp_path / "h200"))
    sample.edit(copy / "convolutions.csv", lambda row: row.update(gpu_bound=str(row["op"] != sample.STAIRCASE)))
    found = conditions(_elsewhere((folders[0], copy)).load())
    assert {op for one in found for ops in one.ops for op in ops} == set(CURVES) - {sample.STAIRCASE}


def test_without_other_recordings_nothing_is_predicted_alone(folders: tuple[Path, Path]) -> None:
    found = conditions(Dataset(folders[0], load_gpu(H100)))
    assert {one.experiment for one in found} == {"sm_curve"}


def test_predictions_read_neither_outcomes_nor_the_recordings_beside_them(
    folders: tuple[Path, Path], moved: Sequence[Scored], tmp_path: Path
) -> None:
    """With everything measured on the H100 doubled, the same predictions to the bit."""
    copy = Path(shutil.copytree(folders[0], tmp_path / "h100"))
    doubled = {"convolutions.csv": "ms_stream_run1 ms_stream_run2", "sm_curve.csv": "ms"}
    for name, columns in doubled.items():
        for column in columns.split():
            sample.edit(copy / name, lambda row, c=column: row.update({c: str(2.0 * float(row[c] or "nan"))}))
    other = _score(_elsewhere((copy, folders[1])))
    assert [row.predicted_ms for row in other] == [row.predicted_ms for row in moved]
    assert [row.measured_ms for row in other] == [2.0 * row.measured_ms for row in moved]


@pytest.fixture(scope="module")
def own(folders: tuple[Path, Path]) -> list[Scored]:
    return _score(Case(str(folders[1]), "h200"))


def test_recordings_of_the_same_gpu_are_not_moved(folders: tuple[Path, Path], own: Sequence[Scored]) -> None:
    """From recordings in another folder the prediction is what it is from those beside the outcomes."""
    same = _score(Case(str(folders[1]), "h200", str(folders[1]), "h200"))
    assert [row for row in same if row.experiment != "solo"] == own


def test_recordings_need_no_outcomes(folders: tuple[Path, Path], tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folders[1], tmp_path / "h200"))
    for name in OUTCOMES:
        (copy / name).unlink(missing_ok=True)
    assert conditions(_elsewhere((folders[0], copy)).load())


def test_a_whole_sample_of_an_h100(tmp_path: Path) -> None:
    """Every kind of outcome, with its own recordings: a guard against breakage."""
    folder = sample.build(tmp_path / "h100", sample.ON_H100)
    found = summaries(_score(Case(str(folder), H100)), measurements(Dataset(folder, load_gpu(H100))))
    assert {one.experiment for one in found} >= {"sm_curve", "streams", "green", "quota_a", "modules_streams"}
    assert all(one.mape_percent < 30.0 for one in found)


# ---- scaling points


@pytest.fixture(scope="module")
def scaled(folders: tuple[Path, Path]) -> list[Scored]:
    return _score(Case(str(folders[1]), "h200", scaling=(32, 72)))


def test_scaling_points_are_inputs_and_not_scored(own: Sequence[Scored], scaled: Sequence[Scored]) -> None:
    """And they make what is scored better."""
    without = {row.key: row for row in own}
    assert not {row.key.split("|")[1] for row in scaled} & {"32", "72"}
    assert len(scaled) == len(without) - 2 * len(CURVES)
    better, plain = (summaries(rows, {})[0] for rows in (scaled, [without[row.key] for row in scaled]))
    assert better.mape_percent < plain.mape_percent


def test_of_the_curve_only_the_scaling_points_reach_a_prediction(
    folders: tuple[Path, Path], scaled: Sequence[Scored], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(folders[1], tmp_path / "h200"))
    sample.edit(
        copy / "sm_curve.csv",
        lambda row: row.update(ms=row["ms"] if row["sms"] in ("32", "72") else str(3.0 * float(row["ms"]))),
    )
    other = _score(Case(str(copy), "h200", scaling=(32, 72)))
    assert [row.predicted_ms for row in other] == [row.predicted_ms for row in scaled]


def test_scaling_points_of_another_gpu_are_those_of_its_recordings(folders: tuple[Path, Path]) -> None:
    """All outcomes are scored then."""
    case = _elsewhere(folders, scaling=(32,))
    dataset = case.load()
    assert set(dataset.recordings.op(sample.STAIRCASE).scaling_ms) == {32}
    assert sum(one.sms == (32,) for one in conditions(dataset)) == len(CURVES)


# ---- choices


def _rows(*points: tuple[str, str, float, float]) -> list[Scored]:
    return [Scored(f"modules_{mode}", key, predicted, measured, 1.0) for mode, key, predicted, measured in points]


def test_choice_by_hand() -> None:
    """Module x: predicted best is b in streams, 12 measured where a in serial takes 10: 20 %; y: the best. Mean 10."""
    rows = _rows(
        ("serial", "x|a", 9.0, 10.0),
        ("streams", "x|a", 8.0, 11.0),
        ("streams", "x|b", 7.0, 12.0),
        ("serial", "y|a", 3.0, 4.0),
        ("serial", "y|b", 5.0, 6.0),
    )
    found = choice(rows)
    assert found is not None and found.points == 2
    assert found.regret_percent == pytest.approx(10.0)


def test_one_selection_is_no_choice() -> None:
    assert choice(_rows(("serial", "x|a", 9.0, 10.0), ("streams", "x|a", 8.0, 11.0))) is None
    assert choice([]) is None


# ---- the command


def _says(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, object]:
    assert cli.main(["validate", *map(str, argv), "--json"]) == 0
    said: dict[str, object] = json.loads(capsys.readouterr().out)
    return said


@pytest.fixture
def one(folders: tuple[Path, Path], tmp_path: Path) -> tuple[Path, Path]:
    """Of the folders only the op that is quick."""
    ops = (sample.RESIDENCY,)
    return sample.curves(tmp_path / "h100", sample.ON_H100, ops), sample.curves(tmp_path / "h200", sample.RECORDED, ops)


def test_command_across_gpus(one: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    said = _says(capsys, one[0], "--gpu", H100, "--recordings", one[1], "--recorded-on", "h200", "--rows", rows)
    assert (said["gpu"], said["recorded_on"], said["recordings"]) == (H100, "h200", str(one[1]))
    assert [(row["experiment"], row["points"]) for row in said["experiments"]] == [("solo", 1), ("sm_curve", 14)]
    with rows.open(newline="") as file:
        assert [row["experiment"] for row in csv.DictReader(file)] == ["solo"] + ["sm_curve"] * 14


def test_command_with_scaling_points(
    one: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)  # in this process, so that a kernel is fitted once
    assert cli.main(["validate", str(one[1]), "--scaling", "32,72"]) == 0
    tables = capsys.readouterr().out.split("\n\n")
    assert tables[1].splitlines()[0] == "With recorded times on 32 and 72 SMs, and without, on the same rows: MAPE %"
    assert re.split(r"  +", tables[1].splitlines()[3])[:2] == ["part of the SMs", "12"]
    said = _says(capsys, one[1], "--scaling", "32")
    assert said["scaling"] == [32]
    assert [(row["experiment"], row["points"]) for row in said["without_scaling"]] == [("sm_curve", 13)]


def test_command_scores_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = sample.build(tmp_path / "h200")
    for name in OUTCOMES:
        if name != "modules.csv":
            (folder / name).unlink()
    rows = sample.read(folder / "modules.csv")
    sample.write(folder / "modules.csv", rows + [{**row, "selection": "again"} for row in rows])
    assert cli.main(["validate", str(folder)]) == 0
    last = capsys.readouterr().out.partition("\n\n")[0].splitlines()[-1]
    name, points, regret = re.split(r"  +", last)
    assert (name, points) == ("choice of algorithms and streams", "1") and float(regret) >= 0.0
    said = _says(capsys, folder)["experiments"][-1]
    assert (said["experiment"], said["points"], said["mape_percent"]) == ("choice", 1, None)


def _drop_op(folder: Path) -> None:
    for name in ("convolutions.csv", "kernels.csv.gz", "sm_curve.csv"):
        rows = sample.read(folder / name)
        sample.write(folder / name, [{**row, "op": "net/layer/fwd/OTHER/FMA"} for row in rows])


BAD: dict[str, tuple[Sequence[str], Callable[[Path], None], Sequence[str]]] = {
    "no GPU of the recordings": (("--recordings", "{h200}"), lambda _: None, ("--recordings", "--recorded-on")),
    "no recordings": (("--recorded-on", "h200"), lambda _: None, ("--recorded-on", "--recordings")),
    "other ops": (
        ("--recordings", "{h200}", "--recorded-on", "h200"),
        _drop_op,
        ("sm_curve.csv", sample.RESIDENCY, "does not record"),
    ),
    "recorded on another GPU": (
        ("--recordings", "{h200}", "--recorded-on", H100),
        lambda _: None,
        ("h200/kernels.csv.gz", "DRAM peak of 48", "h100-sxm has 3350"),
    ),
    "measured on another GPU": (
        ("--recordings", "{h200}", "--recorded-on", "h200", "--gpu", "h200"),
        lambda _: None,
        ("h100/kernels.csv.gz", "DRAM peak of 33", "h200 has 4800"),
    ),
    "a GPU of neither": (
        ("--recordings", "{h200}", "--recorded-on", "h200", "--gpu", "a100-40"),
        lambda _: None,
        ("kernels.csv.gz", "waves per SM", "a100-40 gives"),
    ),
    "no such GPU": (("--recordings", "{h200}", "--recorded-on", "h2OO"), lambda _: None, ("unknown GPU 'h2OO'",)),
    "recordings that are none": (
        ("--recordings", "{h200}/none", "--recorded-on", "h200"),
        lambda _: None,
        ("convolutions.csv", "missing"),
    ),
    "points not in the file": (("--scaling", "32,71"), lambda _: None, ("sm_curve.csv", "no row of 71 SMs")),
    "all SMs as a point": (("--scaling", "132"), lambda _: None, ("sm_curve.csv", "132 SMs are no part of h100-sxm")),
    "no curve": (
        ("--recordings", "{h200}", "--recorded-on", "h200", "--scaling", "32"),
        lambda folder: (folder / "sm_curve.csv").unlink(),
        ("sm_curve.csv", "missing"),
    ),
    "three points": (("--scaling", "32,64,72"), lambda _: None, ("--scaling", "one to 2")),
    "a point twice": (("--scaling", "32,32"), lambda _: None, ("--scaling", "different")),
    "no number": (("--scaling", "32,many"), lambda _: None, ("--scaling", "32,many")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(
    case: str, one: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, spoil, said = BAD[case]
    spoil(one[1])
    rows = tmp_path / "rows.csv"
    options = [word.format(h200=one[1]) for word in argv]
    gpu = [] if "--gpu" in options else ["--gpu", H100]
    try:
        status = cli.main(["validate", str(one[0]), *gpu, *options, "--rows", str(rows)])
    except SystemExit as error:
        status = int(error.code or 0)
    out, err = capsys.readouterr()
    assert status == 2 and out == "" and not rows.exists()
    assert err.count("\n") == 1, err
    for words in said:
        assert words in err


def test_only_the_recordings_of_the_ops_are_needed(folders: tuple[Path, Path]) -> None:
    """Recordings may be of more ops than were measured elsewhere."""
    whole = Recordings(folders[1], load_gpu("h200"))
    assert Dataset(folders[0], load_gpu(H100), whole).elsewhere
