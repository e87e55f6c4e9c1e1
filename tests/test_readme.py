"""README and pages: their commands, examples, tables, pictures and links are what the repository does."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest

from docs import refresh, tables
from gpusim.cli import COMMANDS, build_parser
from gpusim.commands.plot import KINDS

ROOT = Path(__file__).resolve().parent.parent
PAGES = refresh.documents()
EVIDENCE = "experiments/h200_validation/evidence.md"
STUDIES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "experiments").glob("*/README.md"))
ELSEWHERE = {"docs/model.md", "docs/answer.md"}  # whose tables studies write


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


README = text_of("README.md")
QUOTED = [(page, place["arguments"], place[0]) for page in PAGES for place in refresh.PLACE.finditer(text_of(page))]


@pytest.mark.release
@pytest.mark.parametrize(("page", "arguments", "block"), QUOTED, ids=[f"{at}-{words}" for at, words, _ in QUOTED])
def test_an_output_is_what_the_command_prints(page: str, arguments: str, block: str, tmp_path: Path) -> None:
    """When this fails after a change of the model or of a table: python docs/refresh.py."""
    elsewhere = f" --out {tmp_path / 'table.csv'}" if arguments.startswith("sweep ") else ""
    assert f"```text\n{refresh.printed(arguments + elsewhere)}```" in block, page


def test_pages_quote_commands() -> None:
    quoted = [page for page, _, _ in QUOTED]
    assert "README.md" in quoted and quoted.count("experiments/README.md") >= 3
    assert sum(page.startswith("docs/") for page in quoted) >= 4


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page not in ELSEWHERE and tables.BLOCK.search(text_of(page))]
)
def test_tables_of_pages_are_those_of_the_studies(page: str) -> None:
    """When this fails after a validation: python docs/refresh.py."""
    assert tables.with_tables(text_of(page)) == text_of(page)
    assert {place["name"] for place in tables.BLOCK.finditer(text_of(page))} <= set(tables.TABLES)


@pytest.mark.parametrize("page", PAGES)
def test_every_picture_is_one_that_a_command_draws(page: str) -> None:
    path = ROOT / page
    text = text_of(page)
    drawn = list(refresh.PICTURE.finditer(text))
    for picture in drawn:
        assert (path.parent / picture["link"]).resolve() == ROOT / picture["file"]
        assert (ROOT / picture["file"]).is_file()
        arguments = build_parser("plot").parse_args(picture["arguments"].split())
        assert arguments.kind in KINDS and (ROOT / arguments.source).exists()
    own = [link for link in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text) if "pictures/" in link]
    assert [picture["link"] for picture in drawn] == own


# ---- links and commands ----------------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, *STUDIES, EVIDENCE, "docs/tutorials"])
def test_links_lead_somewhere(page: str) -> None:
    paths = sorted((ROOT / page).glob("*.ipynb")) if (ROOT / page).is_dir() else [ROOT / page]
    for path in paths:
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", path.read_text("utf-8"), flags=re.DOTALL)):
            file, _, anchor = link.partition("#")
            if "://" in link or link.startswith("mailto:"):
                continue
            target = Path(os.path.normpath(path.parent / file)) if file else path
            assert target.exists(), f"{path.relative_to(ROOT)} links to {link}"
            if anchor and target.suffix == ".md":
                assert anchor in anchors(target.read_text("utf-8")), f"{path.relative_to(ROOT)} links to {link}"


SHELL = re.compile(r"^[ ]*```sh\n(.*?)^[ ]*```", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if "```sh" in text_of(page)])
def test_commands_of_pages_have_the_options_that_they_use(page: str) -> None:
    known = {command.name for command in COMMANDS}
    for block in SHELL.findall(text_of(page)):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "--" in words:  # a program of the reader's own follows
                words = words[: words.index("--")]
            if not words or words[0] != "gpusim":
                continue
            assert words[1] in known, line
            if not {"…", "COMMAND", "SHELL"} & set(words):
                options = set(re.findall(r"--[a-z-]+", build_help(words[1])))
                assert {word.partition("=")[0] for word in words if word.startswith("--")} <= options, line


def build_help(command: str) -> str:
    parser = build_parser(command)
    subparsers = next(action for action in parser._actions if action.dest == "command")
    chosen = subparsers.choices[command]  # type: ignore[index,call-overload]
    nested = [action.choices for action in chosen._actions if action.nargs == "A..."]
    return chosen.format_help() + "".join(sub.format_help() for subs in nested for sub in subs.values())


# ---- the README ------------------------------------------------------------------------------------------------------


def test_the_two_commands_that_set_up() -> None:
    install = "python3 -m venv .venv && .venv/bin/pip install -e"
    assert f"{install} . && .venv/bin/gpusim replay traces/inception_3a.json.gz\n" in README
    assert f"{install} '.[dev]' && .venv/bin/pytest\n" in README


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 130


def test_the_readme_shows_two_programs_that_ship_beside_each_other() -> None:
    command = next(line for line in README.splitlines() if line.startswith("gpusim replay traces/transformer_prefill"))
    args = build_parser("replay").parse_args(shlex.split(command, comments=True)[1:])
    assert len(args.traces) == 2 and all((ROOT / trace).is_file() for trace in args.traces)
    assert "](experiments/prefill_decode/decode_sms.png)" in README


def test_example_policy_is_the_file() -> None:
    policy = (ROOT / "experiments" / "my_policy.py").read_text(encoding="utf-8")
    assert f"```python\n{policy}```" in text_of("docs/how-to/write-a-policy.md")
    assert len(policy.splitlines()) <= 22


@pytest.mark.parametrize(
    "page", [page for page in PAGES if re.search(r"^```python\n(?:.*\n)*?import gpusim\n", text_of(page), re.MULTILINE)]
)
def test_python_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "traces").symlink_to(ROOT / "traces")  # what it writes stays out of the repository
    monkeypatch.chdir(tmp_path)
    for example in re.findall(r"^```python\n(.*?)^```", text_of(page), re.DOTALL | re.MULTILINE):
        if "import gpusim\n" in example:
            exec(compile(example, page, "exec"), {})
