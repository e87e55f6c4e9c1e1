"""Put into documents what the commands print and draw that they quote: `python docs/refresh.py FILE…` (default: all).

A document marks such a place with a comment and a block, which this rewrites:

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
from pathlib import Path

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


def main(argv: Sequence[str] | None = None) -> int:
    """Rewrites the documents."""
    for name in (sys.argv[1:] if argv is None else argv) or DOCUMENTS:
        path = ROOT / name
        text = refreshed(path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
        for picture in PICTURE.finditer(text):
            printed(picture["arguments"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
