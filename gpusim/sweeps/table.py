"""The table of a sweep: one row per point, appended when it is computed, sorted at the end.

A CSV table is its own journal. A Parquet table cannot be appended to, so it has a journal beside it (`….rows.csv`)
until it is written. A truncated row is dropped when the table is opened again. A row with an error is tried again.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import isfinite
from pathlib import Path

from gpusim.common import fingerprint
from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write, read_bytes, unwritable
from gpusim.common.spreadsheet import csv_line, original, write_csv
from gpusim.results.metrics import SHARING
from gpusim.sweeps.compute import FIGURES, MAY_BE_UNKNOWN, Outcome

Label = str | int | float
Cell = str | float  # empty where there is none
Kind = type | tuple[type, ...]
TableRow = tuple[Sequence[Label], str, Outcome]  # labels, identity and what came of the point
OUTCOME = (*FIGURES, "division", "error")
IDENTITY = "identity"
CHECKSUM = "checksum"
CHECKSUM_DIGITS = 16
LOCK_TRIES = 100  # while others begin and end
TEXTS = frozenset({"trace", "pair", "gpu", "policy", "division", "error", IDENTITY, CHECKSUM})
NO_TABLE = "such a table, or a name that is free"
UNEDITED = "a table that nobody edited; a row that is deleted is computed again"
SUFFIXES = (".csv", ".parquet")


class Table:
    """A table in a file, ``.csv`` or ``.parquet``, with columns of labels that say which point a row is of."""

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(path, "out", "is no kind of table", " or ".join(f"FILE{s}" for s in SUFFIXES))
        if path.exists() and not path.is_file():
            raise InputError(path, "out", "is no file", NO_TABLE)
        self._labels = tuple(labels)
        self.path = path
        self._file = Path(os.path.realpath(path))  # the same for all links to it
        self.columns = (*labels, *OUTCOME, IDENTITY, CHECKSUM)
        self._parquet = suffix == ".parquet"
        self._journal = self._file.with_name(f"{self._file.name}.rows.csv") if self._parquet else self._file
        if self._parquet and find_spec("pyarrow") is None:
            raise InputError(None, "out", "pyarrow is not installed", "pip install 'gpusim[parquet]'")

    def held(self) -> list[KnownRow]:
        """Complete rows of earlier runs in the file."""
        rows = _parquet_rows(self._file) if self._parquet and self._file.exists() else []
        return rows + (_rows(self._journal, "line", 2, read_rows(self._journal), str) if self._journal.exists() else [])

    def holds_any(self, held: Iterable[KnownRow], rows: Iterable[Sequence[Label]]) -> bool:
        """Whether one of the held rows is of these points, by any version of the model."""
        asked = {tuple(labels) for labels in rows}
        return any(tuple(row.labels.get(name, "") for name in self._labels) in asked for row in held)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file against other sweeps within the block, where the system supports it."""
        lock = self._file.with_name(f".{self._file.name}.lock")
        descriptor = _lock(lock, self.path)
        try:
            yield
        finally:
            if descriptor is not None:
                lock.unlink(missing_ok=True)  # by who holds it; who has opened it meanwhile notices
                os.close(descriptor)

    @contextmanager
    def appending(self, rows: Iterable[TableRow]) -> Iterator[Callable[[TableRow], None]]:
        """Start the table with known rows, then append others. Each appended row survives the death of this process."""
        write_csv(self._journal, self.columns, map(self._cells, rows))
        with _appended(self._journal):
            file = self._journal.open("ab", buffering=0)
        with file:

            def append(row: TableRow) -> None:
                line = csv_line(self._cells(row)).encode()
                with _appended(self._journal):
                    while line:
                        line = line[file.write(line) :]

            yield append

    def finish(self, rows: Iterable[TableRow]) -> None:
        """Write the whole table in its order."""
        if self._parquet:
            with atomic_write(self._file, "wb") as file:
                file.write(_parquet(self.columns, map(self._cells, rows)))
            self._journal.unlink(missing_ok=True)
        else:
            write_csv(self._file, self.columns, map(self._cells, rows))

    def _cells(self, row: TableRow) -> tuple[Label, ...]:
        labels, identity, outcome = row
        figures = ("" if figure is None else figure for figure in outcome.figures or (None,) * len(FIGURES))
        cells = (*labels, *figures, outcome.division, outcome.error, identity)
        return *cells, _checksum(dict(zip(self.columns, cells, strict=False)))


@contextmanager
def _appended(path: Path) -> Iterator[None]:
    """Raise an OSError of the block as an InputError, which says that the rows written so far are kept."""
    try:
        yield
    except OSError as error:
        expected = "room for it; what is done is kept, run it again to go on"
        raise InputError(path, "", f"cannot be written ({error.strerror or error})", expected) from None


def _lock(lock: Path, path: Path) -> int | None:
    """A file descriptor that holds an exclusive lock until closed; None on systems and file systems without locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    for _ in range(LOCK_TRIES):
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                break
            return None
        if _is_there(lock, descriptor):
            return descriptor
        os.close(descriptor)  # who held it has removed it since it was opened here
    raise InputError(path, "", "is being written by another sweep", "one at a time")


def _is_there(path: Path, descriptor: int) -> bool:
    """Whether a path still leads to the opened file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


@dataclass(frozen=True, slots=True)
class KnownRow:
    """A row of an earlier run."""

    labels: Mapping[str, Cell]  # which point it is of, by the names of the columns
    identity: str  # of the point
    outcome: Outcome  # what came of it


def _known_row(path: Path, place: str, cells: Mapping[str, Cell]) -> KnownRow:
    """Return a row whose checksum is right."""
    if cells[CHECKSUM] != _checksum({name: cell for name, cell in cells.items() if name != CHECKSUM}):
        raise InputError(path, place, "is not as a sweep wrote it (its checksum is of another row)", UNEDITED)
    may_lack = (*SHARING, *MAY_BE_UNKNOWN)
    figures = tuple(
        None if cells[name] == "" and name in may_lack else float(cells[name])
        for name in (() if cells["error"] else FIGURES)
    )
    if not all(figure is None or isfinite(figure) for figure in figures):
        raise ValueError("a figure is no number")
    outcome = Outcome(figures, str(cells["division"]), str(cells["error"]))
    labels = {name: cell for name, cell in cells.items() if name not in (*OUTCOME, IDENTITY, CHECKSUM)}
    return KnownRow(labels, str(cells[IDENTITY]), outcome)


def _checksum(cells: Mapping[str, Label]) -> str:
    """A hash of a row's cells by the names of their columns, the same for all ways to write a number."""
    values = {name: cell if name in TEXTS or cell == "" else float(cell) for name, cell in cells.items()}
    return fingerprint.data(values)[:CHECKSUM_DIGITS]


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """Return the complete rows of a CSV table."""
    data = read_bytes(path)
    whole = data[: data.rfind(b"\n") + 1]
    try:
        reader = csv.DictReader(io.StringIO(whole.decode("utf-8")), strict=True)
        if data and not {*OUTCOME, IDENTITY, CHECKSUM} <= set(reader.fieldnames or ()):
            raise InputError(path, "line 1", "is not that of a sweep's table", NO_TABLE)
        return [
            {name: original(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in reader
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(path, "", f"is no table of a sweep ({error})", UNEDITED) from None


def _rows(path: Path, what: str, first: int, rows: Iterable[Mapping[str, object]], number: Kind) -> list[KnownRow]:
    """Check the rows of a table: the columns in `TEXTS` hold text, all others numbers of one type."""
    found = []
    for n, row in enumerate(rows, first):
        try:
            cells = {name: _cell(name, cell, number) for name, cell in row.items()}
            found.append(_known_row(path, f"{what} {n}", cells))
        except InputError:
            raise
        except (TypeError, ValueError):
            raise InputError(path, f"{what} {n}", "is no row of a sweep", UNEDITED) from None
    return found


def _cell(name: str, cell: object, number: Kind) -> Cell:
    if cell is None or cell == "":
        return ""
    if not isinstance(cell, str if name in TEXTS else number):
        raise TypeError(f"{name} is of another type")
    return str(cell) if name in TEXTS else float(str(cell))


# ---- Parquet


def _parquet(columns: Sequence[str], rows: Iterable[Sequence[Label]]) -> bytes:
    import pandas as pd

    kinds = {name: "string" if name in TEXTS else "int64" if name == "seed" else "float64" for name in columns}
    cells = [[None if cell == "" else cell for cell in row] for row in rows]
    frame = pd.DataFrame(cells, columns=list(columns)).astype(kinds)
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _parquet_rows(path: Path) -> list[KnownRow]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    data = read_bytes(path)
    try:
        table = ParquetFile(io.BytesIO(data)).read()
        if not {*OUTCOME, IDENTITY, CHECKSUM} <= set(table.column_names):
            raise ValueError("columns are missing")
        rows = table.to_pylist()
    except (OSError, ValueError, ArrowException):
        raise InputError(path, "", "is no table of a sweep", NO_TABLE) from None
    return _rows(path, "row", 1, rows, (int, float))
