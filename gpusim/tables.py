"""Tables and JSON on standard output: a drawn table on a terminal, aligned plain text elsewhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column: its title, and whether its cells align right (numbers do)."""

    title: str
    right: bool = False


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
    cells = [[column.title for column in columns], *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    lines = [_line(columns, row, widths) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([title, *lines] if title else lines)


def print_json(content: Any) -> None:
    """Prints JSON; a NaN or infinity in it is a defect and raises."""
    print(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))


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
    return "  ".join(cells).rstrip()


def _draw(columns: Sequence[Column], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, style="bold") if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(
            Text(column.title), justify="right" if column.right else "left", overflow="fold", no_wrap=column.right
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)
