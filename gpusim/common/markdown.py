"""Pages of studies: tables, paragraphs, and blocks between markers that a command writes anew."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

WIDTH = 120
BLOCK = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(row) + " |" for row in (titles, *rows)]
    lines.insert(1, "|" + "---|" * len(titles))
    return "\n".join(lines)


def wrapped(text: str) -> str:
    """One paragraph in lines."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_on_hyphens=False, break_long_words=False)


def bullet(text: str) -> str:
    """One point of a list."""
    return textwrap.fill(
        " ".join(f"* {text}".split()), WIDTH, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )


def page(parts: Sequence[str]) -> str:
    """Headings, paragraphs and tables, each apart from the next."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """A document with the text of each block, from ``<!-- begin NAME -->`` to ``<!-- end NAME -->``, replaced.

    Raises:
        KeyError: a block of the document that there is nothing for.
    """
    return BLOCK.sub(lambda place: f"{place[1]}\n{blocks[place['name']]}\n\n{place[3]}", text)
