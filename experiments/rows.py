"""Rows of studies as CSV: dataclasses of text, whole numbers and reals."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import astuple, fields
from math import isnan
from pathlib import Path
from typing import Any

from gpusim.common.files import read_table

Kind = type | tuple[str, ...]  # a dataclass; or the names of columns, whose rows are text by column
DIGITS = 6
_KINDS: dict[str, Callable[[str], Any]] = {"int": int, "float": lambda cell: float(cell or "nan"), "str": str}


def to_csv(kind: Kind, rows: Iterable[Any]) -> str:
    """A header and a line for each row: reals to `DIGITS` digits, or to the kind's own `DIGITS`; NaN is empty."""
    text, digits = io.StringIO(), getattr(kind, "DIGITS", DIGITS)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(kind if isinstance(kind, tuple) else [column.name for column in fields(kind)])
    for row in rows:
        cells = row.values() if isinstance(kind, tuple) else astuple(row)
        writer.writerow([_cell(value, digits) for value in cells])
    return text.getvalue()


def _cell(value: object, digits: int) -> object:
    if isinstance(value, float):
        return "" if isnan(value) else f"{value:.{digits}g}"
    return value


def from_csv(kind: Kind, path: Path) -> list[Any]:
    """What `to_csv` wrote, compressed where its name ends in .gz; columns that the dataclass lacks are left out.

    Raises:
        InputError: as `read_table`.
    """
    if isinstance(kind, tuple):
        return lines(path)
    columns = {column.name: _KINDS[str(column.type)] for column in fields(kind)}
    return [kind(**{name: read(line[name]) for name, read in columns.items()}) for line in lines(path)]


def lines(path: Path) -> list[dict[str, str]]:
    """The lines of a table by column, compressed where its name ends in .gz.

    Raises:
        InputError: as `read_table`.
    """
    return list(csv.DictReader(io.StringIO(read_table(path), newline="")))
