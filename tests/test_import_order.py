"""An order between streams that was not recorded: what a replay, its JSON and a report say of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.cli import main
from gpusim.hardware.gpu import load_gpu
from gpusim.io.importing import import_profile
from gpusim.io.report.content import content_of
from gpusim.session import Session, compare
from gpusim.trace.edit import merge
from gpusim.trace.file import load_trace

INFERRED = "their order is inferred from the recorded times"
GPU = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 150 * 10**9}


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Two kernels on two streams, the second after the first, without a record of why."""
    events = [
        {
            "ph": "X", "cat": "kernel", "name": f"k{n}", "pid": 0, "tid": 7 + n, "ts": 100 * n, "dur": 90,
            "args": {
                "device": 0, "stream": 7 + n, "correlation": n, "grid": [132, 1, 1], "block": [256, 1, 1],
                "registers per thread": 32, "shared memory": 0,
            },
        }
        for n in range(2)
    ]  # fmt: skip
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [GPU], "traceEvents": events}))
    return path


def imported(profile: Path, *options: str) -> Path:
    out = profile.with_name("trace.json.gz")
    assert main(["import", str(profile), "-o", str(out), *options]) == 0
    return out


def test_replay_marks_a_speedup_that_rests_on_an_inferred_order(
    profile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = imported(profile)
    capsys.readouterr()
    assert main(["replay", str(path), "--policy", "serial", "--policy", "leftover", "--no-cache"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert INFERRED in " ".join(lines)
    assert "note: not validated: streams in inferred order" in lines
    rows = [line for line in lines if line.startswith(("serial", "leftover"))]
    assert {line.split()[0]: "x*" in line for line in rows} == {"serial": False, "leftover": True}


def test_json_and_report_say_it(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = imported(profile)
    capsys.readouterr()
    assert main(["replay", str(path), "--policy", "leftover", "--json", "--no-cache"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert any(INFERRED in note for note in row["notes"])
    assert (row["error_band"], row["error_band_reason"]) == (None, "not validated: streams in inferred order")
    comparison = compare(load_trace(path), load_gpu("h200"), ["serial", "leftover"])
    content = content_of(comparison)
    assert any(INFERRED in note for note in content.notes)
    assert {policy.policy: policy.speedup_mark for policy in content.policies} == {"serial": "", "leftover": "*"}
    assert ["x*" in text.get_text() for text in comparison.plot().axes[0].texts].count(True) == 1


def test_a_profile_of_one_process_is_one_program(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for order in ("inferred", "none"):
        path = imported(profile, "--order", order)
        capsys.readouterr()
        assert main(["replay", str(path), "--policy", "leftover", "--restart", "--no-cache", "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["results"]
        assert list(row["programs"]) == ["profile"]


@pytest.mark.parametrize("order", ["recorded", "none"])
def test_streams_taken_as_independent_are_said_to_be(
    profile: Path, order: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = imported(profile, "--order", order)
    capsys.readouterr()
    assert main(["replay", str(path), "--policy", "leftover", "--json", "--no-cache"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert any(note.startswith("streams are taken as independent") for note in row["notes"])
    assert row["error_band_reason"] == "not validated: streams taken as independent"


def test_traces_side_by_side_keep_what_was_not_recorded(profile: Path) -> None:
    inferred = import_profile(profile).trace
    independent = import_profile(profile, order="none").trace
    sound = inferred.model_copy(update={"order": None})
    titan = sound.model_copy(update={"stands_for": "NVIDIA TITAN Xp"})

    def merged(*traces: Any) -> Any:
        return merge(traces, [f"part{n}" for n in range(len(traces))], "whole")

    assert [merged(sound, other).order for other in (sound, independent, inferred)] == [None, "independent", "inferred"]
    assert (merged(sound, sound).stands_for, merged(sound, titan, titan).stands_for) == (None, "NVIDIA TITAN Xp")


@pytest.mark.release
def test_profile_of_a_training_step_keeps_its_recorded_time(shared: Path) -> None:
    """The all-reduces of this profile ran after the backward kernels that they wait for: it was busy for 157.5 ms."""
    path = shared / "traces" / "public" / "hta_nccl_data.json.gz"
    if not path.is_file():
        pytest.skip("needs ../shared/traces/public/hta_nccl_data.json.gz")
    us = Session(load_gpu("a100-40")).makespan_us(import_profile(path).trace, "leftover")
    assert us == pytest.approx(157_500, rel=0.025)
