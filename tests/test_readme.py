"""The README and that of the experiments: their commands and examples are what the repository does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import refresh
from gpusim.cli import build_parser
from gpusim.commands.plot import KINDS

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.release
@pytest.mark.parametrize("document", ["README.md", "experiments/README.md"])
def test_outputs_are_what_the_commands_print(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When this fails after a change of the model or of a table: python docs/refresh.py."""
    assert document in refresh.DOCUMENTS
    printed = refresh.printed

    def elsewhere(arguments: str) -> str:
        """What it prints; its table goes where it is forgotten."""
        if arguments.startswith("sweep "):
            arguments += f" --out {tmp_path / Path(arguments.split()[1]).stem}.csv"
        text: str = printed(arguments)
        return text

    monkeypatch.setattr(refresh, "printed", elsewhere)
    text = (ROOT / document).read_text(encoding="utf-8")
    assert len(refresh.PLACE.findall(text)) >= 3
    assert refresh.refreshed(text) == text


@pytest.mark.parametrize("document", refresh.DOCUMENTS)
def test_every_picture_is_one_that_a_command_draws(document: str) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    drawn = list(refresh.PICTURE.finditer(text))
    for picture in drawn:
        assert (path.parent / picture["link"]).resolve() == ROOT / picture["file"]
        assert (ROOT / picture["file"]).is_file()
        arguments = build_parser("plot").parse_args(picture["arguments"].split())
        assert arguments.kind in KINDS and (ROOT / arguments.source).exists()
    own = [link for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text) if "pictures/" in link]
    assert [picture["link"] for picture in drawn] == own


def test_the_two_commands_that_set_up() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install -e"
    assert f"{install} . && .venv/bin/gpusim replay traces/inception_3a.json.gz\n" in TEXT
    assert f"{install} '.[dev]' && .venv/bin/pytest\n" in TEXT


def test_example_policy_is_the_file() -> None:
    policy = (ROOT / "experiments" / "my_policy.py").read_text(encoding="utf-8")
    assert f"```python\n{policy}```" in TEXT
    assert len(policy.splitlines()) <= 22


def test_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(ROOT / "traces")  # what it writes stays out of the repository
    monkeypatch.chdir(tmp_path)
    example = next(block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "import gpusim\n" in block)
    exec(compile(example, "README.md", "exec"), {})
