"""Rewrite all that documents quote: `python docs/refresh.py FILE…` (default: all, and the pages of the studies).

The page of a study is written from its `page.md` and the tables that ship in its folder; the study itself, which makes
these tables, is not run.

Any other document quotes what commands print and draw. It marks such a place with a comment and a block:

    <!-- gpusim gpus -->
    ```text
    …
    ```

or with a picture that the command draws:

    <!-- gpusim plot stalls traces/inception_3a.json.gz -o docs/pictures/stalls.png -->
    ![…](pictures/stalls.png)
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from experiments.study import Study

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "experiments/README.md", "docs/pictures.md")
PLACE = re.compile(r"(<!-- gpusim (?P<arguments>[^\n]*?) -->\n+```text\n).*?(```)", re.DOTALL)
PICTURE = re.compile(
    r"<!-- gpusim (?P<arguments>plot [^\n]*? -o (?P<file>[^\n ]+)) -->\n+!\[[^\n]*\]\((?P<link>[^\n]+)\)"
)


def refreshed(text: str) -> str:
    """A document with its blocks as the commands print them now, run in the root of the repository."""
    return PLACE.sub(lambda place: place[1] + printed(place["arguments"]) + place[3], text)


def printed(arguments: str) -> str:
    """What a gpusim command prints."""
    command = [sys.executable, "-m", "gpusim", *shlex.split(arguments)]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, encoding="utf-8").stdout


def studies() -> dict[str, Study]:
    """The studies with a page that is written, by name."""
    scripts = sorted((ROOT / "experiments").glob("*/*.py"))
    found = [path for path in scripts if "\nSTUDY = Study(" in path.read_text(encoding="utf-8")]
    return {path.parent.name: import_module(f"experiments.{path.parent.name}.{path.stem}").STUDY for path in found}


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrites the pages of the studies and the documents."""
    names = sys.argv[1:] if argv is None else argv
    if not names:
        for study in studies().values():
            study.write_page(study.folder)
    for name in names or DOCUMENTS:
        path = ROOT / name
        text = refreshed(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        for picture in PICTURE.finditer(text):
            printed(picture["arguments"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
