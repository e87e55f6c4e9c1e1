"""What ships: sample traces, and what builds, tests and releases the package."""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import gpusim
from gpusim import cli
from gpusim.common import files
from gpusim.common.errors import InputError
from gpusim.trace import file
from gpusim.trace.file import SAMPLES, load_trace

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_is_a_trace_that_ships(name: str) -> None:
    assert load_trace(f"sample:{name}") == load_trace(ROOT / "traces" / f"{name}.json.gz")


def test_an_installed_package_has_samples_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gpusim" / "samples").mkdir(parents=True)
    monkeypatch.setattr(files, "__file__", str(tmp_path / "gpusim" / "common" / "files.py"))
    assert file.sample("inception_3a") == tmp_path / "gpusim" / "samples" / "inception_3a.json.gz"


def test_a_sample_that_there_is_not() -> None:
    with pytest.raises(InputError, match=r"sample:inception: is no sample; expected .*did you mean inception_3a"):
        gpusim.replay("sample:inception")


def test_several_samples_are_programs_named_after_them(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["replay", "sample:inception_3a", "sample:inception_3a", "--policy", "leftover", "--json"]
    assert cli.main(argv) == 0
    assert '"trace": "inception_3a+inception_3a' in capsys.readouterr().out


def test_setup_ships_the_samples() -> None:
    tree = ast.parse((ROOT / "setup.py").read_text(encoding="utf-8"))
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    assert ast.literal_eval(values["SAMPLES"]) == SAMPLES


def test_each_wheel_is_tried_with_commands_that_there_are() -> None:
    wheels = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    commands = [shlex.split(line)[1:] for line in wheels["test-command"] if line.startswith("gpusim ")]
    assert [cli.build_parser(argv[0]).parse_args(argv).command for argv in commands] == ["replay", "report", "bench"]


def test_tests_that_an_installed_package_leaves_out_exist() -> None:
    script = (ROOT / ".ci" / "wheel").read_text(encoding="utf-8")
    left_out = re.findall(r"--(?:ignore|deselect)=([^\s:]+)(?:::(\w+))?", script)
    assert len(left_out) >= 2
    for path, name in left_out:
        assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")


def test_three_pythons_on_three_systems() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    systems, pythons = (re.findall(rf"{key}: \[(.*)\]", text)[0].split(", ") for key in ("system", "python"))
    assert len(systems) == len(pythons) == 3
    least = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert pythons[0].strip('"') == least.removeprefix(">=")
