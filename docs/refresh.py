"""Rewrite all that documents quote: `python docs/refresh.py FILE…` (default: all, and the pages of the studies).

The page of a study is written by ``write_page(folder)`` of a script beside it, from the tables that ship in that
folder; the study itself, which makes these tables, is not run.

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

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WRITES = "\ndef write_page("
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


def studies() -> dict[str, Path]:
    """The scripts that write the pages of studies, by the name of the study."""
    scripts = sorted((ROOT / "experiments").glob("*/*.py"))
    return {path.parent.name: path for path in scripts if WRITES in path.read_text(encoding="utf-8")}


def write_page(script: Path, folder: Path) -> None:
    """Writes the page of a study from the tables in a folder, in a process of its own: studies share module names."""
    call = f"import {script.stem}; from pathlib import Path; {script.stem}.write_page(Path({str(folder)!r}))"
    path = os.pathsep.join(filter(None, (str(script.parent), str(ROOT), os.environ.get("PYTHONPATH"))))
    subprocess.run([sys.executable, "-c", call], cwd=ROOT, check=True, env=os.environ | {"PYTHONPATH": path})


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrites the pages of the studies and the documents."""
    names = sys.argv[1:] if argv is None else argv
    if not names:
        for script in studies().values():
            write_page(script, script.parent)
    for name in names or DOCUMENTS:
        path = ROOT / name
        text = refreshed(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        for picture in PICTURE.finditer(text):
            printed(picture["arguments"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
