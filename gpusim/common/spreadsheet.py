"""CSV that a spreadsheet shows and never runs.

A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula. Such a text is written with an
apostrophe before it, as is one that begins with an apostrophe itself, so that taking one off gives the text back; a
spreadsheet takes it for plain text. Numbers and every other text are as they are, so that pandas and others read them
as from any CSV file.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import is_file, read_table

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


def records(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """A CSV table of rows by column: empty where a row lacks one; what is in no column is left out."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


@contextmanager
def table_rows(path: str | Path, absent: str | None = None) -> Iterator[csv.DictReader[str]]:
    """Yield the rows of a CSV file by column. Cells that a short row lacks have the value ``absent``.

    Raises:
        InputError: the file cannot be read (`read_table`), or the block comes to a line that is no row.
    """
    reader = csv.DictReader(io.StringIO(read_table(path), newline=""), restval=absent)
    try:
        yield reader
    except csv.Error as error:
        raise InputError(path, f"line {reader.line_num}", f"is no row ({error})", "a table in CSV") from None


def recorded_rows(path: Path, columns: Sequence[str], expected: str) -> list[dict[str, str]]:
    """Return the rows of a recorded table, which has at least some columns; ``expected`` is what makes such a table.

    Raises:
        InputError: the file or a column is missing, or the file holds no table.
    """
    if not is_file(path):
        raise InputError(path, "file", "is missing", expected)
    with table_rows(path, absent="") as reader:
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(path, "header", f"lacks {', '.join(missing)}", f"columns {', '.join(columns)}")
        return list(reader)


def original(cell: str) -> str:
    """The text that was written as this cell."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
