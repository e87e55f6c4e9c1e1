"""Errors of bad input: the closest of the names that there are is suggested, on the same one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim import cli
from gpusim.common.errors import InputError, closest, expected_one_of
from gpusim.hardware.gpu import gpu_names

ROOT = Path(__file__).parents[1]
TABLE_1 = ROOT / "traces" / "spaa20_table1.json"
H200 = (ROOT / "gpus" / "h200.toml").read_text(encoding="utf-8")
EXPERIMENT = f'traces = ["{TABLE_1}"]\npolicies = ["serial"]\n'


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err.rstrip()


@pytest.mark.parametrize(
    ("option", "given", "meant"),
    [
        ("--policy", "lefover", "leftover"),
        ("--policy", "warpedslicer", "warped-slicer"),
        ("--policy", "SMK", "smk"),
        ("--policy", "leftover:fist=5x5", "first"),
        ("--policy", "leftover:first=5x6", "5x5"),
        ("--policy", "inter-sm:rule=evem", "even"),
        ("--policy", "oracle-inter-sm:objective=spt", "stp"),
    ],
)
def test_a_name_on_the_command_line(option, given, meant, capsys):
    assert refused(capsys, "replay", str(TABLE_1), option, given).endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("given", "nearest"),
    [
        ("h2000", "h200"),
        ("rtx-4090", "rtx4090"),
        ("a100", "a100-40 or a100-80"),
        ("H100", "h100-pcie or h100-sxm"),
    ],
)
def test_a_gpu_on_the_command_line(given, nearest, capsys):
    assert refused(capsys, "replay", str(TABLE_1), "--gpu", given).endswith(f"; the nearest is {nearest}")


@pytest.mark.parametrize(
    ("was", "becomes", "place", "meant"),
    [
        (
            '"registers_per_thread"',
            '"register_per_thread"',
            "kernels[0].register_per_thread",
            "registers_per_thread",
        ),
        ('"streams"', '"streems"', "streems", "streams"),
        ('"kind": "convolution"', '"kind": "convolutoin"', "kind", "convolution"),
        ('"device": "k40c"', '"device": "k40"', "device", "k40c"),
    ],
)
def test_a_key_or_name_in_a_trace(was, becomes, place, meant, tmp_path, capsys):
    text = TABLE_1.read_text(encoding="utf-8")
    assert was in text
    path = tmp_path / "t.json"
    path.write_text(text.replace(was, becomes), encoding="utf-8")
    line = refused(capsys, "replay", str(path))
    assert f"{place}: " in line and line.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("addition", "place", "meant"),
    [
        ("sm_counts = { value = 1 }", "sm_counts", "sm_count"),
        ("model.launch_latency_ms = { value = 1, source = 'a' }", "model.launch_latency_ms", "launch_latency_us"),
        ("limits.register_per_sm = { value = 1, source = 'a' }", "limits.register_per_sm", "registers_per_sm"),
        ("limits.registers_per_sm = { value = 1, sauce = 'a' }", "limits.registers_per_sm.sauce", "source"),
        (
            "tensor_fp16_tflops = { value = 1, source = 'a', varified = true }",
            "tensor_fp16_tflops.varified",
            "verified",
        ),
    ],
)
def test_a_key_in_a_gpu_file(addition, place, meant, tmp_path, capsys):
    plain = H200.split("\n[", 1)[0].splitlines()
    kept = [line for line in plain if not line.startswith(f"{addition.split()[0]} ")]
    path = tmp_path / "mine.toml"
    path.write_text("\n".join([addition, *kept]) + "\n", encoding="utf-8")
    line = refused(capsys, "occupancy", f"--gpu={path}", "--threads=32", "--registers=8", "--shared-memory=0")
    assert f"{path}: {place}: unknown key; expected one of " in line and line.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize(
    ("text", "place", "meant"),
    [
        (EXPERIMENT + "seed = [0]", "seed", "seeds"),
        (EXPERIMENT + "gpus = ['h2000']", "gpus[0]", "h200"),
        (EXPERIMENT + "[[parameters]]\nsm_counts = [1]", "parameters[0].sm_counts", "sm_count"),
        (EXPERIMENT.replace('"serial"', '"sreial"'), "policies[0]", "serial"),
    ],
)
def test_a_key_or_name_in_an_experiment(text, place, meant, tmp_path, capsys):
    path = tmp_path / "e.toml"
    path.write_text(text, encoding="utf-8")
    line = refused(capsys, "sweep", str(path))
    assert line.startswith(f"{path}: {place}: ") and line.endswith(f"; did you mean {meant}?")


def test_nothing_is_suggested_where_nothing_is_close():
    assert closest("tpu", gpu_names()) == ""
    assert expected_one_of(("a", "b"), "zebra", "or a file") == "one of a, b, or a file"
    assert expected_one_of((), "zebra") == "none"


def test_a_very_long_name_takes_no_time():
    assert closest("x" * 10**6, gpu_names()) == ""


def test_what_a_file_holds_is_not_quoted_whole(tmp_path):
    wrong = str(InputError(tmp_path / "a.csv", "line 2", f"has {'9' * 3000} as ms", "a number"))
    assert len(wrong) < len(str(tmp_path)) + 500
    assert wrong.startswith(f"{tmp_path}/a.csv: line 2: has 99") and wrong.endswith("99 as ms; expected a number")
