"""The site: its tutorials run, its navigation has every page, its words are in the glossary."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))


def test_there_are_six_tutorials_without_outputs() -> None:
    assert len(TUTORIALS) >= 6
    for path in TUTORIALS:
        cells = json.loads(path.read_text("utf-8"))["cells"]
        assert not any(cell.get("outputs") for cell in cells), f"{path.name} is stored with its outputs"


@pytest.mark.release
@pytest.mark.parametrize("path", TUTORIALS, ids=[path.stem for path in TUTORIALS])
def test_a_tutorial_runs(path: Path) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": path.parent}}).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    listed = set(re.findall(r"([\w/-]+\.(?:md|ipynb))", navigation))
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*") if path.suffix in (".md", ".ipynb")}
    pages = {page for page in pages if not page.startswith("try/build/")}  # what docs/try/build.sh downloads
    assert pages <= listed


@pytest.mark.release
def test_the_site_builds(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    environment = {"GPUSIM_DOCS_EXECUTE": "false", "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    site = tmp_path / "site"
    for page, words in {
        "reference/command-line.html": ("gpusim replay", "--policy", "gpusim trace merge"),
        "reference/python.html": ("gpusim.replay", "gpusim.Policy.partition"),
        "reference/trace-format.html": ("duration_us", "Convolution"),
        "reference/gpu-format.html": ("sm_count",),
        "studies/h200_validation.html": ("MAPE",),
        "explanation/errors.html": ("which-error-applies-to-my-case",),
    }.items():
        html = (site / page).read_text("utf-8")
        assert all(word in html for word in words), page
