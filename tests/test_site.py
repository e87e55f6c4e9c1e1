"""The site: its tutorials run, its navigation has every page, its words are in the glossary."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import threading
import tomllib
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from itertools import pairwise
from pathlib import Path

import browser as chromium
import pytest

from gpusim.cli import main

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


def test_why_the_split_of_the_example_loses_is_in_its_table() -> None:
    page = (ROOT / "docs/explanation/why-a-split-loses.md").read_text("utf-8")
    names = re.findall(r"^policy +(saved .*)$", page, re.M)[0].split()
    (streams, split) = (
        dict(zip(names, map(float, re.findall(rf"^{policy} +(-?\d.*\d)$", page, re.M)[0].split()), strict=True))
        for policy in ("leftover", "inter-sm")
    )
    lost = {part: streams[part] - split[part] for part in names}
    assert 0.5 < split["saved"] / streams["saved"] < 0.65
    assert lost["tails"] > 0.0 and split["waiting"] < 0.0
    assert 0.0 < -lost["rate"] < lost["tails"] + lost["waiting"]


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
    for path in (ROOT / "docs").rglob("*.md"):  # no line of a text is taken for an item, and no list begins anew in it
        if "build" not in path.parts:
            lists = len(re.findall(r"^ *1\. ", path.read_text("utf-8"), re.M))
            html = (site / path.relative_to(ROOT / "docs").with_suffix(".html")).read_text("utf-8")
            assert html.partition('<div class="footnote">')[0].count("<ol>") == lists, path
            items = re.findall(r"^ *(\d+)\. ", path.read_text("utf-8"), re.M)
            assert all(int(b) in (1, int(a) + 1) for a, b in pairwise(["0", *items])), path


def test_the_page_in_a_browser_needs_no_more_than_its_build_fetches(capsys: pytest.CaptureFixture[str]) -> None:
    """Its policies compare as the command has them, with all other packages out of reach."""
    fetched = re.findall(r"--platform any (.+)$", (ROOT / "docs/try/build.sh").read_text("utf-8"), re.M)[0].split()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    others = {re.split(r"[^\w-]", requirement)[0] for requirement in project["dependencies"]} - {*fetched}
    modules = [module for module, packages in packages_distributions().items() if others & {*packages}]
    assert len(modules) >= len(others)
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({modules}));"
        "sys.path.insert(0, 'docs/try');"
        "from replay import compared; steps = [];"
        "print(compared('sample:inception_3a', ['serial', 'leftover'], steps.append), len(steps), sep='\\n');"
        "print(compared('sample:inception_3a', ['serail'], steps.append))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert main(["replay", "sample:inception_3a", "--policy", "serial", "--policy", "leftover"]) == 0
    table = capsys.readouterr().out.partition("\n\nPlain streams")[0]
    assert table.count("\n") == 6 and done.stdout.startswith(f"{table}\n\nPlain streams (leftover) save")
    assert "\n3\npolicy serail: no such policy; expected one of" in done.stdout


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing."""

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_the_page_replays_in_a_browser(browser: chromium.Browser, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "try"
    if not (page / "build" / "wheels.txt").is_file():
        pytest.skip("needs docs/try/build.sh")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(page))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}/index.html")
        browser.wait_for("document.querySelector('#state').textContent === 'Ready.'")
        browser.value("document.querySelector('#sample').selectedIndex = 1")
        browser.click("#run")
        browser.wait_for("document.querySelector('#state').textContent.startsWith('Done')")
        server.shutdown()
    sample = browser.value("document.querySelector('#sample').value")
    assert main(["replay", f"sample:{sample}", "--policy", "serial", "--policy", "leftover"]) == 0
    table = capsys.readouterr().out.partition("\n\nPlain streams")[0]
    assert table.count("\n") == 6 and browser.text("#output").startswith(table)
    assert all(url.startswith("http://127.0.0.1:") for url in browser.requests)
