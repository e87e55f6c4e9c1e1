"""Pages of studies: templates whose numbers and tables are filled in, and blocks of documents that are written anew."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean

WIDTH = 120
BLOCK = re.compile(r"(<!-- begin (?P<name>[\w-]+) -->\n).*?(<!-- end (?P=name) -->)", re.DOTALL)
ALONE = re.compile(r"\{\w+\}")


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(row) + " |" for row in (titles, *rows)]
    lines.insert(1, "|" + "---|" * len(titles))
    return "\n".join(lines)


def error_cells(errors: Sequence[float]) -> tuple[str, str, str]:
    """Cells of some errors in percent: their mean size, their bias and their range; empty where there are none."""
    if not errors:
        return "", "", ""
    spread = f"{min(errors):+.0f} to {max(errors):+.0f} %"
    return f"{fmean(map(abs, errors)):.1f} %", f"{fmean(errors):+.1f} %", spread


def wrapped(text: str, indent: str = "") -> str:
    """One paragraph in lines, those behind the first indented."""
    words = " ".join(text.split())
    return textwrap.fill(words, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def bullet(text: str) -> str:
    """One point of a list."""
    return wrapped(f"* {text}", "  ")


def rendered(template: str, values: Mapping[str, object]) -> str:
    """A page: a template with a value for each name in braces, in the syntax of `str.format`.

    A paragraph that is a name alone is the value as it is, and is left out where that is empty. Paragraphs and points
    of lists with values within them are put into lines anew.
    """
    paragraphs = [_rendered(one, values) for one in template.strip("\n").split("\n\n")]
    return "\n\n".join(one for one in paragraphs if one) + "\n"


def _rendered(paragraph: str, values: Mapping[str, object]) -> str:
    text = paragraph.format(**values)
    if "{" not in paragraph or ALONE.fullmatch(paragraph) or paragraph.startswith(("#", "|", "!")):
        return text.strip("\n")
    if paragraph.startswith("* "):
        return "\n".join(bullet(point) for point in text[2:].split("\n* "))
    return wrapped(text)


def filled(text: str, blocks: Mapping[str, str]) -> str:
    """A document with the text of each block, from ``<!-- begin NAME -->`` to ``<!-- end NAME -->``, replaced.

    Raises:
        KeyError: a block of the document that there is nothing for.
    """
    return BLOCK.sub(lambda place: f"{place[1]}\n{blocks[place['name']]}\n\n{place[3]}", text)
