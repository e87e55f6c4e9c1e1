"""Tables and JSON on standard output: a drawn table on a terminal, aligned plain text elsewhere."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from gpusim.errors import one_line

GAP = "  "  # between columns
LEAST_WIDTH = 8  # characters that a narrowed column keeps


class Column(NamedTuple):
    """A column.

    Attributes:
        title: what stands above it.
        right: align its cells to the right, as numbers are.
        narrow: what to do where a terminal is too narrow: break its cells over lines, or cut what has no blank in
            it; other columns stay as they are.
    """

    title: str
    right: bool = False
    narrow: Literal["", "break", "cut"] = ""


def columns_that_fit(widths: Sequence[int]) -> int:
    """How many of some columns, the first of them always, fit side by side: all where nobody watches."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    taken = list(accumulate(width + len(GAP) for width in widths))
    return max(1, sum(width - len(GAP) <= room for width in taken))


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Prints a table.

    Args:
        columns: the columns.
        rows: one text a column each.
        title: a line above; none when empty.
    """
    if sys.stdout.isatty():
        _draw(columns, rows, title)
    else:
        print(plain_table(columns, rows, title))


def plain_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str = "") -> str:
    """The table as aligned lines of text, never broken."""
    cells = [[one_line(cell) for cell in row] for row in ([column.title for column in columns], *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [_line(columns, row, widths) for row in cells]
    lines.insert(1, GAP.join("-" * width for width in widths))
    return "\n".join([one_line(title), *lines] if title else lines)


def print_line(text: str) -> None:
    """Prints a line of text, whatever names are in it: nothing that a terminal would obey."""
    print(one_line(text))


def print_json(content: Any) -> None:
    """Prints JSON; a NaN or infinity in it is a defect and raises."""
    print(json_text(content))


def json_text(content: Any) -> str:
    """JSON, indented; what is not printable in it is escaped."""
    text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    return "\n".join(line if line.isprintable() else _escaped(line) for line in text.split("\n"))


def _escaped(line: str) -> str:
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in line)


def number(value: float, decimals: int = 1) -> str:
    """A number with thousands separated and no negative zero."""
    text = f"{value:,.{decimals}f}"
    return text.removeprefix("-") if float(text.replace(",", "")) == 0.0 else text


def shortened(text: str, width: int) -> str:
    """The text, its middle left out where it is longer than ``width``."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        cell.rjust(width) if column.right else cell.ljust(width)
        for column, cell, width in zip(columns, row, widths, strict=True)
    ]
    return GAP.join(cells).rstrip()


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=Text(one_line(title), style="bold") if title else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, len(GAP) - 1, 0, 0),  # and the box has a blank between columns
        collapse_padding=True,
        pad_edge=False,
        show_edge=False,
    )
    for column in columns:
        table.add_column(
            Text(one_line(column.title)),
            justify="right" if column.right else "left",
            no_wrap=not column.narrow,
            overflow="fold" if column.narrow == "break" else "ellipsis",
            min_width=LEAST_WIDTH if column.narrow else None,
        )
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    Console().print(table)
