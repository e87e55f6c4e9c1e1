"""Rows of studies as CSV: dataclasses of text, whole numbers and reals."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TypeVar

from gpusim.common.files import read_table

T = TypeVar("T")
DIGITS = 6
_KINDS: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str}


def to_csv(kind: type[T], rows: Iterable[T]) -> str:
    """A header and a line a row, reals to `DIGITS` digits."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in fields(kind)])  # type: ignore[arg-type]
    for row in rows:
        cells = astuple(row)  # type: ignore[call-overload]
        writer.writerow([f"{value:.{DIGITS}g}" if isinstance(value, float) else value for value in cells])
    return text.getvalue()


def from_csv(kind: type[T], path: Path) -> list[T]:
    """What `to_csv` wrote, compressed where its name ends in .gz; columns that the dataclass lacks are left out.

    Raises:
        InputError: as `read_table`.
    """
    columns = {column.name: _KINDS[str(column.type)] for column in fields(kind)}  # type: ignore[arg-type]
    lines = csv.DictReader(io.StringIO(read_table(path), newline=""))
    return [kind(**{name: read(line[name]) for name, read in columns.items()}) for line in lines]
