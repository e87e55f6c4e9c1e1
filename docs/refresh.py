"""Put into documents what the commands print that they quote: `python docs/refresh.py FILE…` (default: all of them).

A document marks such a place with a comment and a block, which this rewrites:

    <!-- gpusim gpus -->
    ```text
    …
    ```
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ("README.md", "experiments/README.md")
PLACE = re.compile(r"(<!-- gpusim (?P<arguments>[^\n]*?) -->\n+```text\n).*?(```)", re.DOTALL)


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
        path.write_text(refreshed(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
