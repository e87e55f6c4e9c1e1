"""`gpusim completion`: scripts that a shell can read and that complete what there is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpusim import cli
from gpusim.commands.completion import SHELLS

pytest.importorskip("shtab")


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_it_knows_commands_options_and_names(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for word in (*(command.name for command in cli.COMMANDS), "recorded-on", "warped-slicer", "h100-pcie", "fitting"):
        assert word in text, word


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_it(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    path = tmp_path / "script"
    path.write_text(script(shell, capsys), encoding="utf-8")
    subprocess.run([shell, "-n", str(path)], check=True)


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash here")
    path = tmp_path / "script"
    path.write_text(script("bash", capsys), encoding="utf-8")
    ask = f"""
        source {path}
        complete_words() {{
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_gpusim; echo "${{COMPREPLY[@]}}"
        }}
        complete_words gpusim repl
        complete_words gpusim replay --gpu h100
        complete_words gpusim replay --policy warp
    """
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["replay"],
        ["h100-pcie", "h100-sxm"],
        ["warped-slicer"],
    ]
