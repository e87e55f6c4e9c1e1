"""Tables and JSON on standard output: a drawn table on a terminal, aligned plain text elsewhere."""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO, TypeVar

from gpusim.common.errors import one_line

K = TypeVar("K")
T = TypeVar("T")

GAP = "  "  # between columns
LEAST_WIDTH = 8  # characters that a narrowed column keeps
LEAST_TEXT = 7  # that any column of text keeps where even that is too wide
_json = json.JSONEncoder(indent=2, ensure_ascii=False, allow_nan=False).iterencode


class Column(NamedTuple):
    """A column."""

    title: str  # what stands above it
    right: bool = False  # align its cells to the right, as numbers are
    # what to do where a terminal is too narrow: break its cells over lines, or cut the middle out of them and break
    # what would then look alike; other columns stay as they are
    narrow: Literal["", "break", "cut"] = ""


def numbers(*titles: str) -> list[Column]:
    """Columns of numbers."""
    return [Column(title, right=True) for title in titles]


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items by a key of theirs, in the order in which they come."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def summed(parts: Iterable[tuple[K, float]]) -> dict[K, float]:
    """Sums of numbers by key, in the order in which the keys come."""
    found: dict[K, float] = {}
    for key, part in parts:
        found[key] = found.get(key, 0.0) + part
    return found


def connected(items: Iterable[K], pairs: Iterable[tuple[K, K]]) -> list[list[K]]:
    """Groups of items that pairs join, however indirectly: the groups and their members in the order of the items."""
    group = {item: {item} for item in items}
    for one, other in pairs:
        fewer, more = sorted((group[one], group[other]), key=len)
        if fewer is not more:
            more |= fewer
            group.update(dict.fromkeys(fewer, more))
    return list(grouped(group, lambda item: id(group[item])).values())


def counted(count: int, what: str) -> str:
    """A number of something: ``1 decision``, ``2 decisions``."""
    return f"{count:,} {what}{'s' * (count != 1)}"


def columns_that_fit(widths: Sequence[int], most: int) -> int:
    """How many of some columns, the first of them always, fit side by side; ``most``: as for `print_table`."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else most
    taken = list(accumulate(width + len(GAP) for width in widths))
    return max(1, sum(width - len(GAP) <= room for width in taken))


def print_table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "", most: int | None = None
) -> None:
    """Print a table with a title above unless it is empty; ``most`` is as for `print_line`."""
    terminal = sys.stdout.isatty()
    room = shutil.get_terminal_size().columns if terminal else most
    if title:
        print_line(title, most)
    heads: Sequence[Sequence[str]] = [[column.title for column in columns]]
    if room is not None:
        # only on a terminal a title of several words may take several lines
        kept = columns if terminal else [column._replace(title=column.title.replace(" ", "_")) for column in columns]
        widths = _widths(kept, rows, room - len(GAP) * (len(columns) - 1))
        heads = _lines_of(heads[0], widths, terminal) if terminal else heads
        cut = _cut(columns, rows, widths, apart=terminal)
        rows = [line for row in cut for line in _lines_of(row, widths, terminal)]
    cells = [[one_line(cell) for cell in row] for row in (*heads, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [_line(columns, row, widths) for row in cells]
    lines.insert(len(heads), GAP.join(("─" if terminal else "-") * width for width in widths))
    print("\n".join(lines))


def print_rows(items: Iterable[T], columns: Sequence[tuple[Column, Callable[[T], str]]], title: str = "") -> None:
    """Print a table with a row for each item; each column comes with what makes its cell."""
    print_table([column for column, _ in columns], [[cell(item) for _, cell in columns] for item in items], title)


def print_line(text: str, most: int | None = None, file: TextIO | None = None) -> None:
    """Print a line of text, without anything that a terminal would obey.

    Where no terminal says how wide it is, the line is broken after ``most`` characters; None: never.
    """
    file = sys.stdout if file is None else file
    line, width = one_line(text), shutil.get_terminal_size().columns if file.isatty() else most
    print(line if width is None else _broken(line, width), file=file)


def print_written(path: str | Path, *lines: str) -> None:
    """Print which file was written; on standard error if the file is a device, such as /dev/stdout."""
    for line in lines:
        print_line(line, file=sys.stderr if str(path).startswith("/dev/") else None)


def print_left_out(count: int, what: str = "") -> None:
    """Say that a table leaves out some rows, if it does; ``what`` they are."""
    if count > 0:
        print_line(f"… and {count:,} more{what and f' {what}'} (--json has all)")


def print_json(content: Any) -> None:
    """Print JSON, part by part; a NaN or infinity in it is a defect and raises."""
    sys.stdout.writelines(map(_printable, _json(content)))
    print()


def picked(one: object, *names: str) -> dict[str, Any]:
    """Some attributes of an object by name, as JSON has them."""
    return {name: getattr(one, name) for name in names}


def json_text(content: Any) -> str:
    """JSON, indented; what is not printable in it is escaped."""
    return "".join(map(_printable, _json(content)))


def _printable(text: str) -> str:
    """Return JSON with unprintable characters escaped."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def number(value: float, decimals: int = 1) -> str:
    """A number with thousands separated and no negative zero."""
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0.0 else text


def shortened(text: str, width: int) -> str:
    """The text, at most ``width`` characters of it: from a longer one the middle is left out."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def told_apart(texts: Sequence[str], width: int) -> list[str]:
    """Each text shortened to ``width`` characters; longer where different texts would then look alike."""
    short = {text: shortened(text, width) for text in texts}
    while len(set(short.values())) < len(short):
        width += width // 4 + 1
        counts = Counter(short.values())
        short = {text: shortened(text, width) if counts[one] > 1 else one for text, one in short.items()}
    return [short[text] for text in texts]


def short_name(kernel: str) -> str:
    """A kernel's name without return type, namespaces and template arguments; those where the name says nothing."""
    text = re.sub(r"\(anonymous namespace\)::|^void ", "", kernel)
    base, _, arguments = text.split("(", 1)[0].partition("<")
    base = base.split("::")[-1]
    return (arguments.rpartition(">")[0] if base in ("Kernel", "Kernel2") else "") or base or kernel


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column.right else cell.ljust(width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    ]
    return GAP.join(cells).rstrip()


def _cut(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], widths: Sequence[int], apart: bool
) -> Iterator[tuple[str, ...]]:
    """The rows, long cells without their middle where a column allows that; ``apart``: different ones stay so."""
    by_column: list[list[str]] = []
    for i, (column, width) in enumerate(zip(columns, widths, strict=True)):
        texts = [one_line(row[i]) for row in rows]
        if column.narrow == "cut":
            texts = told_apart(texts, width) if apart else [shortened(text, width) for text in texts]
        by_column.append(texts)
    return zip(*by_column, strict=True)


def _lines_of(row: Sequence[str], widths: Sequence[int], anywhere: bool) -> list[tuple[str, ...]]:
    """A row as one or more lines whose cells fit their columns; other arguments as of `_broken`."""
    cells = (_broken(text, width, anywhere).split("\n") for text, width in zip(row, widths, strict=True))
    return list(zip_longest(*cells, fillvalue=""))


def _widths(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int) -> list[int]:
    """How wide each column is drawn, so that all of them fit where they can; no number is narrowed.

    What does not fit takes less for titles of several words first, then for columns that may be narrowed, then for
    titles and texts whatever they are, always the widest.
    """
    cells = [max((len(one_line(row[i])) for row in rows), default=1) for i in range(len(columns))]
    words = [max(map(len, column.title.split()), default=1) for column in columns]
    texts = [cell if column.right else min(cell, LEAST_TEXT) for column, cell in zip(columns, cells, strict=True)]
    floors = (
        [max(cell, word) for cell, word in zip(cells, words, strict=True)],
        [min(c, LEAST_WIDTH) if column.narrow else 0 for column, c in zip(columns, cells, strict=True)],
        texts,
    )
    widths = [max(cell, len(column.title)) for column, cell in zip(columns, cells, strict=True)]
    for least in floors:
        while sum(widths) > room:
            wide = [i for i in range(len(columns)) if least[i] and widths[i] > least[i]]
            if not wide:
                break
            widths[max(wide, key=lambda i: widths[i])] -= 1
    return widths


def _broken(text: str, width: int, anywhere: bool = False) -> str:
    """A text in lines of a width: broken at blanks, and words that are too long where they have a sign.

    ``anywhere``: what is still too long is broken wherever the line ends.
    """
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    parts = (part for line in lines for part in ([line] if len(line) <= width else _word_parts(line, width)))
    return "\n".join(piece for part in parts for piece in (textwrap.wrap(part, width) if anywhere else [part]))


def _word_parts(word: str, width: int) -> list[str]:
    parts = [""]
    for piece in re.findall(r"[^:+/=_-]*[:+/=_-]|[^:+/=_-]+", word):
        if parts[-1] and len(parts[-1] + piece) > width:
            parts.append("")
        parts[-1] += piece
    return parts
