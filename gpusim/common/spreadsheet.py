"""CSV that a spreadsheet shows and never runs.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula. Such a text is written with an
apostrophe before it, as is one that begins with an apostrophe itself, so that taking one off gives the text back; a
spreadsheet takes it for plain text. Numbers and every other text are as they are, so that pandas and others read them
as from any CSV file.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf, nan
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write, read_table
from gpusim.common.numbers import finite_number

FORMULA = ("=", "+", "-", "@", "'", "\t", "\r")


def csv_line(cells: Iterable[object]) -> str:
    """A line of a CSV file, its newline included."""
    text = io.StringIO()
    harmless = [f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA) else cell for cell in cells]
    csv.writer(text, lineterminator="\r\n").writerow(harmless)  # so that it quotes both
    return text.getvalue().removesuffix("\r\n") + "\n"


def csv_text(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Iterable[str]:
    """The lines of a CSV file."""
    yield csv_line(columns)
    yield from map(csv_line, rows)


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Write a CSV file, whole or not at all."""
    with atomic_write(path) as file:
        file.writelines(csv_text(columns, rows))


def records(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A CSV table of rows by column: empty where a row lacks one; what is in no column is left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextmanager
def table_rows(path: str | Path) -> Iterator[csv.DictReader[str]]:
    """Yield the rows of a CSV file by column. Cells that a short row lacks are None."""
    text = read_table(path).removeprefix("\ufeff")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        yield reader
    except csv.Error as error:
        raise InputError(path, f"line {reader.line_num}", f"is no row ({error})", "a table in CSV") from None


def recorded_rows(path: Path, columns: Sequence[str], expected: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the rows of a table, one at least, each with its line as a place for messages.

    It must have some columns, and as many fields in each row; ``expected`` is what makes such a table.
    """
    if not os.path.isfile(path):
        raise InputError(path, "file", "is missing", expected)
    with table_rows(path) as reader:
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(path, "header", f"lacks {', '.join(missing)}", f"columns {', '.join(columns)}")
        place = ""
        for row in reader:
            place = f"line {reader.line_num}"
            if None in row or None in row.values():
                raise InputError(path, place, "has too few or too many fields", "a full row")
            yield place, row
        if not place:
            raise InputError(path, "file", "has no rows below its header", "at least one row")


def number_in(
    row: Mapping[str, str], column: str, path: str | Path, place: str, least: float = -inf, most: float = inf
) -> float:
    """A field of a row as a finite number from ``least`` to ``most``."""
    try:
        value = finite_number(row[column])
    except ValueError:
        value = nan
    if not least <= value <= most:
        expected = "a number" if least == -inf else f"a number from {least:g} to {most:g}"
        raise InputError(path, place, f"{column} is {row[column] or 'empty'}", expected)
    return value


def count_in(row: Mapping[str, str], column: str, least: int, path: str | Path, place: str) -> int:
    """A field of a row as a whole number of at most nine digits, ``least`` or more."""
    text = row[column]
    if not re.fullmatch(r"-?[0-9]{1,9}", text) or int(text) < least:
        raise InputError(path, place, f"{column} is {text or 'empty'}", f"a whole number of at least {least}")
    return int(text)


def original(cell: str) -> str:
    """The text that was written as this cell."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
