"""Whole models: from profiles to scores, as a user would, and what can be wrong with such a folder."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from experiments.recordings.transformer import traces as transformer
from gpusim import cli, load_trace
from gpusim.common.errors import InputError
from gpusim.lab.scores import Scored, summaries
from gpusim.lab.validate import Case
from gpusim.lab.whole_models import (
    ModelPredictor,
    holds_models,
    measured_alone,
    model_conditions,
    models_of,
    score_models,
)

HEADER = "a,na,b,nb,mode,sms_a,sms_b,ms_a,ms_b,ms_makespan"
ROWS = (
    "one,2,two,3,alone,132,132,0.2,0.3,0.5",
    "one,2,two,3,streams,132,132,0.4,0.45,0.45",
    "one,2,two,3,green,64,68,0.41,0.5,0.5",
    "one,2,two,3,alone_green,64,68,0.4,0.5,0",
)
KERNEL_US = 50.0


def profile(kernels: int, us: float = KERNEL_US, passes: int = 2) -> dict[str, Any]:
    """So many kernels in each pass on one stream."""
    events = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": f"k{n % kernels}",
            "ts": n * us,
            "dur": us,
            "args": {
                "device": 0,
                "stream": 7,
                "correlation": n + 1,
                "grid": [132 * 16, 1, 1],
                "block": [256, 1, 1],
                "registers per thread": 32,
                "shared memory": 0,
            },
        }
        for n in range(kernels * passes)
    ]
    return {"schemaVersion": 1, "traceEvents": events}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pairs.csv").write_text("\n".join((HEADER, *ROWS)) + "\n")
    (tmp_path / "one.kineto.json").write_text(json.dumps(profile(2)))
    with gzip.open(tmp_path / "two.kineto.json.gz", "wt") as file:
        json.dump(profile(3), file)
    return tmp_path


def _case(folder: Path) -> Case:
    return Case(str(folder), "h200")


def _score(folder: Path) -> list[Scored]:
    return score_models(_case(folder), jobs=1)


def test_conditions_and_their_keys(folder: Path) -> None:
    assert holds_models(folder) and not holds_models(folder / "none")
    found = [(one.experiment, one.key, one.models, one.passes, one.sms, one.measured_ms)
             for one in model_conditions(_case(folder))]  # fmt: skip
    both, split = "one|2|two|3", "one|2|two|3|64|68"
    assert found == [
        ("isolated", f"{both}|a", ("one",), (2,), (), 0.2),
        ("isolated", f"{both}|b", ("two",), (3,), (), 0.3),
        ("streams", both, ("one", "two"), (2, 3), (), 0.45),
        ("green", split, ("one", "two"), (2, 3), (64, 68), 0.5),
        ("sm_curve", f"{split}|a", ("one",), (2,), (64,), 0.4),
        ("sm_curve", f"{split}|b", ("two",), (3,), (68,), 0.5),
    ]


def test_passes_run_one_after_the_other(folder: Path) -> None:
    """Two kernels a pass, of 50 us each: two passes are 0.2 ms; 2 waves of blocks, on 64 SMs 4.1."""
    found = {(row.experiment, row.key): row.predicted_ms for row in _score(folder)}
    assert found["isolated", "one|2|two|3|a"] == pytest.approx(0.2, rel=0.03)
    assert found["isolated", "one|2|two|3|b"] == pytest.approx(0.45, rel=0.03)
    assert 0.2 * 4.1 / 2 < found["sm_curve", "one|2|two|3|64|68|a"] < 0.2 * 5 / 2
    assert max(0.2, 0.45) < found["green", "one|2|two|3|64|68"] < 0.45 * 132 / 68 * 1.1


def test_second_model_alone_has_the_later_sms(folder: Path) -> None:
    """Of 12 clusters of 8 blocks 11 fit on SMs 32 to 131 of an H200, which have other parts of GPCs than 0 to 99."""
    events = profile(1)["traceEvents"]
    for event in events:
        event["args"] |= {"grid": [12, 8, 1], "shared memory": 180_000}
    (folder / "two.kineto.json.gz").unlink()
    (folder / "two.kineto.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    (folder / "pairs.csv").write_text(
        f"{HEADER}\ntwo,1,two,1,alone_green,100,32,1,1,0\ntwo,1,two,1,alone_green,32,100,1,1,0\n"
    )
    first, _, _, second = model_conditions(_case(folder))
    predictor = ModelPredictor(_case(folder))
    assert (first.sms, first.idle_sms, second.sms, second.idle_sms) == ((100,), 0, (100,), 32)
    assert predictor.predict_ms(first) == pytest.approx(KERNEL_US / 1e3, rel=0.05)
    assert predictor.predict_ms(second) == pytest.approx(2 * KERNEL_US / 1e3, rel=0.1)


def test_passes_of_a_profile_come_in_turn(folder: Path) -> None:
    """The second pass of the profile is slower, so of three passes one is."""
    events = profile(2)["traceEvents"]
    for event in events[2:]:
        event["dur"] = 2 * KERNEL_US
    (folder / "one.kineto.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    trace = ModelPredictor(_case(folder)).passes("one", 3)
    times = [operation.launches()[0].duration_us for operation in trace.operations()]
    assert times == [50.0, 50.0, 100.0, 100.0, 50.0, 50.0]


def test_streams_of_a_model_wait_for_the_pass_before(folder: Path) -> None:
    events = profile(4)["traceEvents"]
    for n, event in enumerate(events):
        event["args"]["stream"] = 7 + n % 2
    (folder / "one.kineto.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    predictor = ModelPredictor(_case(folder))
    first, second = predictor.passes("one", 2).streams
    assert second.operations[1].id in first.operations[2].depends_on
    assert first.operations[1].id in second.operations[2].depends_on
    alone = predictor.predict_ms(model_conditions(_case(folder))[0])
    assert alone == pytest.approx(2 * 4 * KERNEL_US / 1e3, rel=0.05)


def test_scores_by_hand(folder: Path) -> None:
    rows = _score(folder)
    assert measured_alone(rows) == {("alone", "one|2|two|3"): 0.5}
    assert {models_of(row) for row in rows if row.experiment == "green"} == {("one", "two")}
    assert [models_of(row) for row in rows if row.experiment == "sm_curve"] == [("one",), ("two",)]
    found = {one.experiment: one for one in summaries(rows, measured_alone(rows))}
    assert {name: one.points for name, one in found.items()} == {
        "isolated": 2,
        "sm_curve": 2,
        "streams": 1,
        "green": 1,
    }
    assert found["green"].regret_percent == 0.0


def test_predictions_do_not_read_what_was_measured(folder: Path) -> None:
    before = [row.predicted_ms for row in _score(folder)]
    text = (folder / "pairs.csv").read_text()
    (folder / "pairs.csv").write_text(text.replace("0.45", "45").replace("0.41", "41").replace("0.2,", "20,"))
    assert [row.predicted_ms for row in _score(folder)] == before


def test_command(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["validate", str(folder), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [one["experiment"] for one in said["experiments"]] == ["isolated", "sm_curve", "streams", "green"]
    assert "one: 2 of 2 kernels have no counters (100 % of the time)" in said["notes"]
    assert all("no counters" in one["why"] for one in said["worst"])
    assert cli.main(["validate", str(folder), "--scaling", "32"]) == 2
    assert "--scaling: is not for whole models" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text.replace(",mode,", ",how,"), "header: lacks mode"),
        (lambda text: text.replace("green", "split"), "mode is split; expected one of alone, streams, green"),
        (lambda text: text.replace("one,2,two,3,green", "one,2,else,3,green"), "else: has no profile"),
        (lambda text: text.replace("2,two,3,streams", "0,two,3,streams"), "na is 0"),
        (lambda text: text.replace("2,two,3,streams", "99999,two,3,streams"), "na is 99999; expected at most 10000"),
        (lambda text: text.replace("green,64,68", "green,64,69", 1), "takes 133 SMs; expected at most 132"),
        (lambda text: text.replace("132,0.4,0.45,0.45", "132,0.4,0.45,no"), "ms_makespan is no"),
        (lambda text: text + ROWS[1] + "\n", "measures one|2|two|3 again"),
        (lambda text: HEADER + "\n", "has no rows below its header"),
    ],
)
def test_damaged_measurements(folder: Path, change: Callable[[str], str], says: str) -> None:
    path = folder / "pairs.csv"
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError) as caught:
        model_conditions(_case(folder))
    assert says in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize("passes", [1, 3])
def test_profiles_of_other_than_two_passes(folder: Path, passes: int) -> None:
    (folder / "one.kineto.json").write_text(json.dumps(profile(3, passes=passes)))
    with pytest.raises(InputError, match="does not hold two equal passes"):
        _score(folder)


def test_without_measurements(folder: Path) -> None:
    (folder / "pairs.csv").unlink()
    with pytest.raises(InputError, match=r"pairs.csv: file: is missing"):
        model_conditions(_case(folder))


def test_the_script_makes_the_traces_of_the_transformer(tmp_path: Path) -> None:
    shipped = Path(__file__).parent.parent / "traces"
    assert transformer.main(["--out", str(tmp_path)]) == 0
    for name in transformer.MODELS:
        trace = load_trace(tmp_path / f"{name}.json.gz")
        assert trace == load_trace(shipped / f"{name}.json.gz") and trace.device == "h100-sxm"
        assert not any(launch.estimated for launch in trace.launches())
