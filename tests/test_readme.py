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


QUOTED = [
    (document, place["arguments"], place[0])
    for document in refresh.DOCUMENTS
    for place in refresh.PLACE.finditer((ROOT / document).read_text(encoding="utf-8"))
]


@pytest.mark.release
@pytest.mark.parametrize(("document", "arguments", "block"), QUOTED, ids=[f"{at}-{words}" for at, words, _ in QUOTED])
def test_an_output_is_what_the_command_prints(document: str, arguments: str, block: str, tmp_path: Path) -> None:
    """When this fails after a change of the model or of a table: python docs/refresh.py."""
    elsewhere = f" --out {tmp_path / 'table.csv'}" if arguments.startswith("sweep ") else ""
    assert f"```text\n{refresh.printed(arguments + elsewhere)}```" in block, document


def test_both_documents_quote_commands() -> None:
    quoted = [document for document, _, _ in QUOTED]
    assert quoted.count("README.md") >= 3 and quoted.count("experiments/README.md") >= 3


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
