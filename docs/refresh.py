"""Rewrite what documents quote: `python docs/refresh.py FILE…` (default: every document, and the pages of studies).

The page of a study is written from its `page.md` and the tables that ship in its folder. The study itself, which makes
these tables, is not run.

Any other document may hold the output of a command. A comment with the command stands before it:

    <!-- gpusim gpus -->
    ```text
    …
    ```

It may hold a picture that a command draws:

    <!-- gpusim plot stalls traces/inception_3a.json.gz -o docs/pictures/stalls.png -->
    ![…](pictures/stalls.png)

It may also hold a table of `docs/tables.py` between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from docs.tables import with_tables
from experiments.study import Study

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "experiments/README.md", "traces/README.md")  # beside those of docs/
PLACE = re.compile(r"(<!-- gpusim (?P<arguments>[^\n]*?) -->\n+```text\n).*?(```)", re.DOTALL)
PICTURE = re.compile(
    r"<!-- gpusim (?P<arguments>plot [^\n]*? -o (?P<file>[^\n ]+)) -->\n+!\[[^\n]*\]\((?P<link>[^\n]+)\)"
)


def documents() -> list[str]:
    """Every page that people read, but those that studies write, by its path in the repository."""
    return [*PAGES, *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))]


def refreshed(text: str) -> str:
    """A document with its tables and what its commands print now, run in the root of the repository."""
    return PLACE.sub(lambda place: place[1] + printed(place["arguments"]) + place[3], with_tables(text))


def printed(arguments: str) -> str:
    """The standard output of a gpusim command."""
    command = [sys.executable, "-m", "gpusim", *shlex.split(arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def studies() -> dict[str, Study]:
    """The studies that write their page, by name."""
    scripts = sorted((ROOT / "experiments").glob("*/*.py"))
    found = [path for path in scripts if "\nSTUDY = Study(" in path.read_text(encoding="utf-8")]
    return {path.parent.name: import_module(f"experiments.{path.parent.name}.{path.stem}").STUDY for path in found}


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrite the pages of the studies and the documents."""
    names = sys.argv[1:] if argv is None else argv
    if not names:
        for study in studies().values():
            study.write_page(study.folder)
    for name in names or documents():
        path = ROOT / name
        before = path.read_text(encoding="utf-8")
        text = refreshed(before)
        if text != before:
            path.write_text(text, encoding="utf-8")
        for picture in PICTURE.finditer(text):
            printed(picture["arguments"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
