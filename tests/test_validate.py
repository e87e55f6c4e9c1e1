"""Scores by hand, predictions that no outcome can move, and a bound on how far off the model may get."""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import dataset_sample as sample
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import kernel, stream, tiny, trace

from experiments.h200_microbench.sharing import score_sharing, summary
from gpusim import cli, replay
from gpusim.common.errors import InputError
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.dataset import OUTCOMES, Dataset
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.scores import EXPERIMENTS, Scored, residency_ratios, summaries, write_rows
from gpusim.lab.scoring import Scoring, missing_counters, worst
from gpusim.lab.validate import Case, _InOrder, _Reserved, conditions, measurements, released_together_us, score
from gpusim.session import Session
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

ELSEWHERE = {  # experiments of two GPUs, of microbenchmarks, of whole models
    "solo", "sharing", "isolated", "matrix_same", "matrix_disjoint",
}  # fmt: skip
GENEROUS_PERCENT = {  # the sample's rows are few: a guard against breakage, not the accuracy of the model
    "sm_curve": 8.0,
    "residency_curve": 15.0,
    "streams": 15.0,
    "streams_b_first": 15.0,
    "green": 20.0,
    "quota_a": 30.0,
    "quota_b": 30.0,
    "modules_serial": 8.0,
    "modules_streams": 12.0,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample.build(tmp_path_factory.mktemp("dataset"))


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[Scored]:
    return _score(folder)


def _score(folder: Path) -> list[Scored]:
    return score(Case(str(folder), "h200"), jobs=1)


def _rows(experiment: str, *points: tuple[str, float, float]) -> list[Scored]:
    return [Scored(experiment, key, predicted, measured, 2.0 * measured) for key, predicted, measured in points]


def test_streams_behind_a_flag_start_one_mark_after_the_other() -> None:
    """Streams are released as long after each other as three commands of 1 us take; an event more ends it."""
    gpu = tiny(event_overhead_us=1.0)
    two = trace(stream("a", kernel("a", 1, 11.0)), stream("b", kernel("b", 1, 21.0)))
    assert released_together_us(two, Session(gpu)) == pytest.approx((24.0 + 21.0) / 2 + 1.0)
    one = trace(stream("a", kernel("a", 1, 11.0)))
    assert released_together_us(one, Session(gpu)) == pytest.approx(12.0)


@pytest.mark.parametrize(("registers", "allowed", "resident"), [(128, 8, 7), (128, 3, 3), (120, 8, 8), (255, 4, 3)])
def test_a_warp_that_holds_a_reservation_has_registers(registers: int, allowed: int, resident: int) -> None:
    """Blocks of 2 warps on 4 schedulers with 16,384 registers each, of one of which the sleeping warp has 512."""
    gpu = tiny(1)
    launch = KernelLaunch(
        name="k", grid=(64, 1, 1), block=(64, 1, 1), registers_per_thread=registers, duration_us=100.0
    )
    one = trace(stream("a", Kernel(id="a", kind="kernel", depends_on=(), kernel=launch)))
    held = replay(one, gpu, _Reserved(allowed), keep=["residents"]).residents
    assert held is not None
    assert max(blocks for _, mix in held[0] for _, blocks in mix) == resident


def begun(order: tuple[int, ...], sms: tuple[int, ...], *streams: Stream) -> dict[str, float]:
    """When each kernel starts behind a flag: released 3 us apart, turns of 0.5 us, a launch of 1 us; 64 SMs."""
    gpu = tiny(64, stream_turn_us=0.5)
    result = replay(trace(*streams), gpu, _InOrder(order, 3.0, sms))
    return {run.operation: round(run.start_us, 6) for run in result.kernel_runs}


def test_streams_are_released_in_order_and_no_second_kernel_comes_before_the_last_of_them() -> None:
    """Each kernel runs for 1 us, so that none is under way when the next stream is released."""
    streams = [stream(name, kernel(f"{name}0", 1, 2.0), kernel(f"{name}1", 1, 2.0)) for name in "abc"]
    found = begun((0, 1, 2), (), *streams)
    assert [found[name] for name in ("a0", "b0", "c0")] == [1.0, 4.0, 7.0]
    assert found["a1"] == 7.5  # let start at 6, as c0 is, beside which it takes a turn
    assert begun((2, 0, 1), (), *streams)["c0"] == 1.0


def test_a_stream_takes_its_turn_once() -> None:
    """The first kernel of a runs on, for which b's is late by a turn, which its release includes."""
    streams = [stream("a", kernel("a0", 1, 30.0)), stream("b", kernel("b0", 1, 2.0))]
    assert begun((0, 1), (), *streams) == {"a0": 1.0, "b0": 4.0}


def test_in_green_contexts_streams_are_released_as_far_apart() -> None:
    """Of four streams whose kernels run on each is late by half a turn for each before it, if there are several."""
    streams = [stream(name, kernel(f"{name}0", 1, 30.0)) for name in "abcd"]
    assert begun((0, 1, 2, 3), (16, 16, 16, 16), *streams) == {"a0": 1.0, "b0": 4.0, "c0": 7.0, "d0": 10.0}


# ---- scores by hand ----------------------------------------------------------------------------------------------


def test_errors_by_hand() -> None:
    """Errors of +10, -20, 0 and +50 %: mean absolute 20, median 15, bias 10, 95th of (0, 10, 20, 50) is 45.5."""
    found = summaries(_rows("sm_curve", ("a", 1.1, 1.0), ("b", 1.6, 2.0), ("c", 3.0, 3.0), ("d", 1.5, 1.0)), {})[0]
    assert found.points == 4
    assert found.mape_percent == pytest.approx(20.0)
    assert found.median_percent == pytest.approx(15.0)
    assert found.bias_percent == pytest.approx(10.0)
    assert found.p95_percent == pytest.approx(45.5)
    assert found.nothing_percent == pytest.approx(100.0)
    assert found.rank_correlation is None and found.regret_percent is None


def test_residency_is_scored_as_a_ratio() -> None:
    """Over the op's own row at its largest limit, which is not scored itself; a constant factor cancels."""
    rows = _rows("residency_curve", ("x|1", 8.0, 4.4), ("x|2", 4.0, 2.0), ("x|10", 2.0, 1.0), ("y|3", 7.0, 1.0))
    assert [(row.key, row.predicted_ms, row.measured_ms) for row in residency_ratios(rows)] == [
        ("x|1", 4.0, 4.4),
        ("x|2", 2.0, 2.0),
    ]
    found = summaries(rows, {})[0]
    assert found.points == 2
    assert found.mape_percent == pytest.approx(100 * (0.4 / 4.4) / 2)


def test_residency_of_one_row_each_is_no_experiment() -> None:
    assert summaries(_rows("residency_curve", ("x|1", 1.0, 1.0), ("y|4", 1.0, 2.0)), {}) == []


def test_regret_by_hand() -> None:
    """Pair 1: the split predicted best takes 12, the best measured 10: 20 %. Pair 2: none. Mean 10 %."""
    rows = _rows(
        "green",
        ("a|1|b|1|32|100", 5.0, 12.0),
        ("a|1|b|1|64|68", 6.0, 10.0),
        ("a|2|b|1|32|100", 9.0, 9.0),
        ("a|2|b|1|64|68", 3.0, 4.0),
    )
    assert summaries(rows, {})[0].regret_percent == pytest.approx(10.0)


def test_rank_correlation_by_hand_with_ties() -> None:
    """Speedups predicted 1, 2, 2, 4 and measured 1, 3, 2, 4: ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4: 4.5 / sqrt(22.5)."""
    rows = _rows("streams", ("a", 1.0, 1.0), ("b", 0.5, 1 / 3), ("c", 0.5, 0.5), ("d", 0.25, 0.25))
    measured = {("alone", key): 1.0 for key in "abcd"}
    assert summaries(rows, measured)[0].rank_correlation == pytest.approx(4.5 / 22.5**0.5)


def test_rank_correlation_is_of_speedup_and_not_of_time() -> None:
    """The longer pair has the larger speedup, in both."""
    rows = _rows("modules_streams", ("a", 8.0, 8.0), ("b", 1.0, 1.0), ("c", 2.0, 2.0))
    measured = {("modules_serial", "a"): 24.0, ("modules_serial", "b"): 1.0, ("modules_serial", "c"): 4.0}
    assert summaries(rows, measured)[0].rank_correlation == pytest.approx(1.0)
    assert summaries(rows, {})[0].rank_correlation is None  # without serial times there is no speedup


def test_no_rank_where_all_is_equal() -> None:
    rows = _rows("streams", ("a", 1.0, 1.0), ("b", 1.0, 2.0), ("c", 1.0, 3.0))
    assert summaries(rows, {("alone", key): 1.0 for key in "abc"})[0].rank_correlation is None


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=30))
def test_bounds_of_the_scores(pairs: Sequence[tuple[float, float]]) -> None:
    found = summaries(_rows("green", *((f"a|1|b|1|{i}|0", p, m) for i, (p, m) in enumerate(pairs))), {})[0]
    assert abs(found.bias_percent) <= found.mape_percent + 1e-9
    assert found.regret_percent is not None and found.regret_percent >= 0.0
    assert found.median_percent <= found.p95_percent + 1e-9


# ---- conditions and keys -------------------------------------------------------------------------------------------


def test_keys_are_the_identifying_columns(folder: Path) -> None:
    shapes = {
        "sm_curve": r"[^|]+\|\d+",
        "residency_curve": r"[^|]+\|\d+",
        "streams": r"[^|]+\|\d+\|[^|]+\|\d+",
        "streams_b_first": r"[^|]+\|\d+\|[^|]+\|\d+",
        "green": r"[^|]+\|\d+\|[^|]+\|\d+\|\d+\|\d+",
        "quota": r"[^|]+\|\d+\|[^|]+\|\d+",
        "modules_serial": r"res5a\|implicit",
        "modules_streams": r"res5a\|implicit",
    }
    found = conditions(Dataset(folder, load_gpu("h200")))
    assert {condition.experiment for condition in found} == set(shapes)
    for condition in found:
        assert re.fullmatch(shapes[condition.experiment], condition.key)
    curve = [condition for condition in found if condition.experiment == "sm_curve"]
    assert [condition.key for condition in curve] == [f"{sample.STAIRCASE}|{sms}" for sms in sample.KEPT_SMS]


def test_a_reservation_of_nothing_is_not_scored(folder: Path) -> None:
    reserved = [r for r in sample.read(folder / "residency_curve.csv") if int(r["reserved_smem_bytes"]) >= 0]
    found = [c for c in conditions(Dataset(folder, load_gpu("h200"))) if c.experiment == "residency_curve"]
    assert [c.blocks for c in found] == [(int(r["blocks_per_sm"]),) for r in reserved]


def test_only_gpu_bound_ops_are_scored_but_every_module(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "dataset"))
    sample.edit(copy / "convolutions.csv", lambda row: row.update(gpu_bound="False"))
    found = conditions(Dataset(copy, load_gpu("h200")))
    assert {condition.experiment for condition in found} == {"modules_serial", "modules_streams"}


def test_every_recorded_outcome_has_its_condition() -> None:
    dataset = Dataset(sample.RECORDED, load_gpu("h200"))
    measured = measurements(dataset)
    names = {
        (name, condition.key)
        for condition in conditions(dataset)
        for name in (("quota_a", "quota_b") if condition.experiment == "quota" else (condition.experiment,))
    }
    assert names == {name for name in measured if name[0] != "alone"}
    assert {name for name, _ in names} == set(EXPERIMENTS) - ELSEWHERE


# ---- predictions -----------------------------------------------------------------------------------------------------


def test_accuracy_on_the_sample(rows: Sequence[Scored], folder: Path) -> None:
    found = summaries(rows, measurements(Dataset(folder, load_gpu("h200"))))
    assert [one.experiment for one in found] == [name for name in EXPERIMENTS if name not in ELSEWHERE]
    for one in found:
        assert one.mape_percent < GENEROUS_PERCENT[one.experiment], one.experiment


def test_a_staircase_falls_with_more_sms(rows: Sequence[Scored]) -> None:
    curve = [row.predicted_ms for row in rows if row.experiment == "sm_curve"]
    assert curve == sorted(curve, reverse=True)


def test_predictions_do_not_read_the_outcomes(rows: Sequence[Scored], folder: Path, tmp_path: Path) -> None:
    """Other outcomes, the same predictions to the byte."""
    copy = Path(shutil.copytree(folder, tmp_path / "dataset"))
    random_ms = random.Random(1)
    for name, (_, outcome) in OUTCOMES.items():
        columns = {*outcome, "ms_end"}
        sample.edit(
            copy / name,
            lambda row, c=columns: row.update({k: f"{random_ms.uniform(0.1, 9):.3f}" for k in c & set(row)}),
        )
    scrambled = _score(copy)
    assert _written(scrambled, tmp_path, "predicted_ms") == _written(rows, tmp_path, "predicted_ms")
    assert _written(scrambled, tmp_path, "measured_ms") != _written(rows, tmp_path, "measured_ms")


def _written(rows: Sequence[Scored], folder: Path, column: str) -> list[tuple[str, str, str]]:
    path = folder / "written.csv"
    write_rows(rows, path)
    with path.open(newline="") as file:
        return [(row["experiment"], row["key"], row[column]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("name", ["sm_curve.csv", "pairs.csv"])
def test_a_prediction_stands_alone(name: str, rows: Sequence[Scored], folder: Path, tmp_path: Path) -> None:
    """Without an outcome file the others are predicted as before."""
    copy = Path(shutil.copytree(folder, tmp_path / "dataset"))
    (copy / name).unlink()
    left = _score(copy)
    keys = {(row.experiment, row.key) for row in left}
    assert 0 < len(left) < len(rows)
    assert [row for row in rows if (row.experiment, row.key) in keys] == left


# ---- the command -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def short(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the sample only what is quick."""
    copy = Path(shutil.copytree(folder, tmp_path_factory.mktemp("short") / "dataset"))
    for name in ("modules.csv", "pairs.csv", "residency_curve.csv"):
        (copy / name).unlink()
    return copy


def test_command_prints_a_table(short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.csv"
    assert cli.main(["validate", str(short), "--rows", str(path)]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert err == "" and lines[0].split()[:3] == ["experiment", "points", "MAPE"]
    table = lines[2 : lines.index("")]
    names = ["part of the SMs", "two kernels on one SM, first", "two kernels on one SM, second"]
    assert [line.split("  ")[0] for line in table] == names
    assert len({len(line) for line in lines[1:2]}) == 1
    written = list(csv.reader(path.open(newline="")))
    assert written[0] == ["experiment", "key", "predicted_ms", "measured_ms"]
    assert [row[0] for row in written[1:]] == ["sm_curve"] * 3 + ["quota_a", "quota_b"]
    assert all(float(row[2]) > 0 and float(row[3]) > 0 for row in written[1:])


def test_command_prints_json(short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(short), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["gpu"] == "h200"
    assert {one["experiment"]: one["points"] for one in said["experiments"]} == {
        "sm_curve": 3,
        "quota_a": 1,
        "quota_b": 1,
    }


def test_command_says_what_is_missed_most_and_why(short: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(short), "--json", "--worst", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["experiment"] for one in said["worst"]] == ["sm_curve", "quota_a", "quota_b"]
    curve = said["worst"][0]
    assert (curve["what"], curve["points"]) == (sample.STAIRCASE, 3)
    assert re.fullmatch(r"\S+: (fma|issue|latency|l1|lsu|alu|l2|dram) binds, 392 blocks", curve["why"])
    (experiment,) = [one for one in said["experiments"] if one["experiment"] == "sm_curve"]
    assert curve["mape_percent"] == pytest.approx(experiment["mape_percent"])
    assert cli.main(["validate", str(short), "--worst", "0"]) == 0
    assert "Largest errors" not in capsys.readouterr().out


def test_worst_names_the_counters_that_a_kernel_lacks(folder: Path) -> None:
    gpu = load_gpu("h200")
    recorded = Dataset(folder, gpu).op(sample.STAIRCASE).kernels[0]
    assert recorded.mix is not None
    partly = recorded.model_copy(update={"mix": recorded.mix.model_copy(update={"dram_read_bytes": None})})
    launches = {"partly": partly, "bare": recorded.model_copy(update={"mix": None})}
    rows = [Scored("sm_curve", f"{name}|8", 3.0, 2.0, 1.0) for name in launches]
    named = {("sm_curve", f"{name}|8"): (name,) for name in launches}
    found = Scoring(rows, {}, gpu, gpu, named, lambda name: (launches[name],))
    whys = {one.what: one.why for one in worst(found, 2)}
    assert whys["partly"].endswith("; without dram_read_bytes") and whys["bare"].endswith("; no counters")
    assert "unknown binds" in whys["bare"]


def test_worst_names_a_kernel_on_a_stream_of_a_library(folder: Path) -> None:
    gpu = load_gpu("h200")
    recorded = Dataset(folder, gpu).op(sample.STAIRCASE).kernels[0].model_copy(update={"stream": "internal0"})
    rows, named = [Scored("sm_curve", "own|8", 3.0, 2.0, 1.0)], {("sm_curve", "own|8"): ("own",)}
    (miss,) = worst(Scoring(rows, {}, gpu, gpu, named, lambda name: (recorded,)), 1)
    assert miss.why.endswith(" binds, 392 blocks")


def test_worst_first_and_no_more_than_asked() -> None:
    gpu = load_gpu("h200")
    rows = _rows("green", ("near", 1.1, 1.0), ("far", 0.5, 1.0), ("nearest", 1.0, 1.0))
    missed = worst(Scoring(rows, {}, gpu, gpu), 2)
    assert [(one.what, round(one.mape_percent), round(one.bias_percent)) for one in missed] == [
        ("far", 50, -50),
        ("near", 10, 10),
    ]


def test_counters_of_today_that_a_recording_lacks_are_said(short: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(short, tmp_path / "older"))
    lacking = "lts__t_sector_hit_rate.pct"
    with gzip.open(copy / "kernels.csv.gz", "rt") as file:
        text = file.read()
    with gzip.open(copy / "kernels.csv.gz", "wt") as file:
        file.write(text.replace(lacking, "other", 1))
    before, after = missing_counters(short), missing_counters(copy)
    assert before != after and after.startswith("the recording lacks ")
    everything = tmp_path / "everything"
    everything.mkdir()
    with gzip.open(everything / "kernels.csv.gz", "wt") as file:
        file.write(",".join(("op", *COUNTERS)) + "\n")
    assert missing_counters(everything) == ""


def test_rows_that_cannot_be_written(short: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(short), "--rows", str(tmp_path / "none" / "rows.csv")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "rows.csv" in err
    assert not (tmp_path / "none").exists()


def test_gains_on_one_sm_are_scored_against_the_microbenchmarks() -> None:
    found = summary(Path(__file__).parent.parent / "experiments" / "h200_microbench", "h200")
    assert found.points == 266
    assert found.mape_percent < 15.0 < found.nothing_percent


def test_microbenchmarks_without_counters_are_refused(tmp_path: Path) -> None:
    source = Path(__file__).parent.parent / "experiments" / "h200_microbench"
    (tmp_path / "sharing.csv").write_bytes((source / "sharing.csv").read_bytes())
    with pytest.raises(InputError, match=r"counters\.csv"):
        score_sharing(tmp_path, load_gpu("h200"))


@pytest.mark.parametrize(
    ("file", "change", "says"),
    [
        ("residency.csv", lambda text: text.replace("kernel,", "name,", 1), "header: lacks kernel"),
        (
            "residency.csv",
            lambda text: "\n".join(text.splitlines()[:2]),
            "is missing; expected each kernel of counters.csv",
        ),
        ("residency.csv", lambda text: text.splitlines()[0] + "\n", "has no rows below its header"),
        ("residency.csv", lambda text: text.replace(",", ',"', 4), "residency.csv"),
    ],
)
def test_microbenchmarks_that_are_damaged(tmp_path: Path, file: str, change: Callable[[str], str], says: str) -> None:
    source = Path(__file__).parent.parent / "experiments" / "h200_microbench"
    for name in ("sharing.csv", "counters.csv", "residency.csv"):
        text = (source / name).read_text()
        (tmp_path / name).write_text(change(text) if name == file else text)
    with pytest.raises(InputError, match=re.escape(says)):
        score_sharing(tmp_path, load_gpu("h200"))
