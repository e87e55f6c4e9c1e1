"""Plans that ran on a GPU: a prediction is what a replay gives."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from experiments.hardware_check import run as study
from experiments.plans import call_in
from experiments.rows import from_csv
from gpusim import load_gpu, load_trace
from gpusim.choose.search import select
from gpusim.trace.operations import Convolution

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "hardware_check"


def test_every_plan_has_a_row() -> None:
    assert len(from_csv(study.Row, STUDY / "result.csv")) == len((STUDY / "plans.txt").read_text().splitlines())


def test_a_prediction_is_what_a_replay_gives_now() -> None:
    rows = {(row.module, row.plan): row for row in from_csv(study.Row, STUDY / "result.csv")}
    measured = study.makespans_us(study.MEASURED)
    for tried in study.read(STUDY / "plans.txt"):
        row = rows[tried.module, tried.name]
        assert row.measured_us == pytest.approx(fmean(measured[tried.module, tried.name]), rel=1e-4)
        if tried.module == "inception_4a_b16" and tried.name in ("serial-fastest", "streams-fastest"):
            assert row.predicted_us == pytest.approx(study.predicted_us(tried), rel=1e-4)


@pytest.mark.release
def test_the_page_tells_what_select_promises_of_a_plan() -> None:
    module = "inception_4a_b16"
    rows = {row.plan: row for row in from_csv(study.Row, STUDY / "result.csv") if row.module == module}
    selection = select(load_trace(study.TRACES / f"{module}.json.gz"), load_gpu("h200"), sharing="streams")
    named = dict(selection.baselines)
    gain = named["serial, fastest"].expected_us / named["streams, fastest"].expected_us
    assert rows["streams-fastest"].select_gain == pytest.approx(gain, rel=1e-4)


def test_what_following_the_model_gets() -> None:
    """Predicted best is b: 1.5 predicted and 1.2 measured are 30 points; a would have taken 90, b takes 100."""

    def row(plan: str, predicted_us: float, measured_us: float) -> object:
        gains = 150.0 / predicted_us, 120.0 / measured_us
        return study.Row("m", plan, "", 1, predicted_us, *[measured_us] * 4, *gains, 1.0)

    (found,) = study.chosen([row("serial", 150.0, 120.0), row("a", 110.0, 90.0), row("b", 100.0, 100.0)])
    assert found.row.plan == "b" and found.plans == 3
    assert found.error_points == pytest.approx(-30.0)
    assert found.regret_percent == pytest.approx(100.0 / 9.0)


def test_what_one_turn_says() -> None:
    """In the first turn alone a takes 80 of 100, so gains 1.25; on the mean of its turns 90."""
    rows = [
        study.Row("m", "serial-fastest", "", 1, 100.0, 100.0, 100.0, 100.0, 100.0, 1.0, 1.0, 1.0),
        study.Row("m", "a", "", 2, 90.0, 90.0, 80.0, 80.0, 100.0, 100.0 / 90.0, 100.0 / 90.0, 1.0),
    ]
    serial, a = study.in_the_first_turn(rows)
    assert (serial.measured_us, serial.measured_gain) == (100.0, 1.0)
    assert (a.measured_us, a.measured_gain) == (80.0, 1.25) and a.predicted_gain == rows[1].predicted_gain


def test_calls_to_run_are_those_of_the_trace() -> None:
    trace = load_trace(study.TRACES / "inception_3a_b16.json.gz")
    convolutions = {op.id: op for op in trace.operations() if isinstance(op, Convolution)}
    lines = [line for line in (STUDY / "calls.txt").read_text().splitlines() if line.startswith(f"{trace.name}/")]
    assert len(lines) > len(convolutions)
    for line in lines:
        module, layer, _, algorithm = line.split()[0].split("/", 3)
        assert call_in(module, convolutions[layer], algorithm).line == line
        narrow = convolutions[layer].shape.model_copy(update={"padding_width": 3, "in_width": 200})
        changed = convolutions[layer].model_copy(update={"shape": narrow})
        assert call_in(module, changed, algorithm).work.padding == (narrow.padding, 3)
        half = call_in(module, convolutions[layer], algorithm, 8)
        assert half.line.split()[2] == "8" and half.op == line.split()[0]


def test_what_is_measured_goes_beside_the_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        study.STUDY.main(["--measure", "--out", str(tmp_path)])
    assert refused.value.code == 2
    assert capsys.readouterr().err.endswith("--measure: writes beside the script; expected no --out\n")
