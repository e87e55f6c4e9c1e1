"""The table of a sweep: a row a point, appended as they come, sorted when all are there.

A CSV table is its own journal. A Parquet table, which nobody can append to, has one beside it (`….rows.csv`) until it
is written. A row that was cut off is dropped when the table is opened again; one with an error is tried again.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import FileIO
from math import isfinite, isnan
from pathlib import Path

from gpusim.errors import InputError
from gpusim.files import atomic_write, read_bytes, unwritable
from gpusim.sweep.compute import FIGURES, MAY_BE_UNKNOWN, Outcome

Label = str | int | float
TableRow = tuple[Sequence[Label], str, Outcome]  # labels, identity and what came of the point
OUTCOME = (*FIGURES, "division", "error")
IDENTITY = "identity"
TEXTS_AND_SEED = {"trace": "string", "pair": "string", "gpu": "string", "policy": "string", "seed": "int64"}
SUFFIXES = (".csv", ".parquet")


class Table:
    """A table in a file.

    Args:
        path: ``.csv`` or ``.parquet``.
        labels: names of the columns that say which point a row is of.

    Raises:
        InputError: another kind of file, or Parquet without what writes it.
    """

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            raise InputError(path, "--out", "is no kind of table", " or ".join(f"FILE{s}" for s in SUFFIXES))
        if path.exists() and not path.is_file():
            raise InputError(path, "--out", "is no file", "such a table, or a name that is free")
        self._labels = tuple(labels)
        self.path = path
        self.columns = (*labels, *OUTCOME, IDENTITY)
        self._parquet = suffix == ".parquet"
        self._journal = path.with_name(f"{path.name}.rows.csv") if self._parquet else path
        if self._parquet:
            _require_pyarrow()

    def known(self) -> dict[str, Outcome]:
        """What the file holds from before, by identity; nothing of points that failed.

        Raises:
            InputError: the file is there and is no table of a sweep.
        """
        found = _outcomes(self._journal) if self._journal.exists() else {}
        if self._parquet and self.path.exists():
            found = _parquet_outcomes(self.path) | found
        return {identity: outcome for identity, outcome in found.items() if not outcome.error}

    def strange_rows(self, rows: Iterable[tuple[Label, ...]]) -> int:
        """How many rows the file holds, if none of them is of these points, by any version of the model; else 0."""
        if self._parquet or not self.path.exists():
            return 0
        held = read_rows(self.path)
        asked = {tuple(str(label) for label in labels) for labels in rows}
        mine = any(tuple(row.get(name, "") for name in self._labels) in asked for row in held)
        return 0 if mine else len(held)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other sweeps out of the file for as long as this takes, where the system can.

        Raises:
            InputError: another is at it.
        """
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            file = lock.open("a")
        except OSError as error:
            raise unwritable(self.path, error) from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(self.path, "", "is being written by another sweep", "one at a time") from None
            except OSError:  # a file system without locks
                pass
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)

    @contextmanager
    def appending(self, rows: Iterable[TableRow]) -> Iterator[Callable[[TableRow], None]]:
        """Begin the table with rows that are known, then append others, each there even if this process dies next.

        Raises:
            InputError: the file cannot be written.
        """
        self._write_csv(self._journal, rows)
        with _opened(self._journal) as file:

            def append(row: TableRow) -> None:
                _write(self._journal, file, _line(_cells(*row)).encode())

            yield append

    def finish(self, rows: Iterable[TableRow]) -> None:
        """Write the whole table in its order.

        Raises:
            InputError: the file cannot be written.
        """
        if self._parquet:
            with atomic_write(self.path, "wb") as file:
                file.write(_parquet(self._labels, rows))
            self._journal.unlink(missing_ok=True)
        else:
            self._write_csv(self.path, rows)

    def _write_csv(self, path: Path, rows: Iterable[TableRow]) -> None:
        with atomic_write(path, "w") as file:
            file.write(_line(self.columns))
            for row in rows:
                file.write(_line(_cells(*row)))


def _opened(path: Path) -> FileIO:
    try:
        return path.open("ab", buffering=0)
    except OSError as error:
        raise _no_room(path, error) from None


def _write(path: Path, file: FileIO, line: bytes) -> None:
    try:
        while line:
            line = line[file.write(line) :]
    except OSError as error:
        raise _no_room(path, error) from None


def _no_room(path: Path, error: OSError) -> InputError:
    expected = "room for it; what is done is kept, run it again to go on"
    return InputError(path, "", f"cannot be written ({error.strerror or error})", expected)


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The whole rows of a CSV table, one that was cut off left out.

    Raises:
        InputError: it cannot be read, or is no table of a sweep.
    """
    data = read_bytes(path)
    whole = data[: data.rfind(b"\n") + 1]
    try:
        reader = csv.DictReader(io.StringIO(whole.decode("utf-8")), strict=True)
        if data and not {*OUTCOME, IDENTITY} <= set(reader.fieldnames or ()):
            raise InputError(path, "line 1", "is not that of a sweep's table", "such a table, or a name that is free")
        return list(reader)
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(path, "", f"is no table of a sweep ({error})", "a table that nobody edited") from None


def _outcomes(path: Path) -> dict[str, Outcome]:
    found = {}
    for n, row in enumerate(read_rows(path), 2):
        try:
            figures = () if row["error"] else tuple(_figure(name, row[name]) for name in FIGURES)
            if not all(figure is None or isfinite(figure) for figure in figures):
                raise ValueError
            found[row[IDENTITY]] = Outcome(figures, row["division"], row["error"])
        except (TypeError, ValueError):
            raise InputError(path, f"line {n}", "is no row of a sweep", "a table that nobody edited") from None
    return found


def _figure(name: str, text: str) -> float | None:
    return None if text == "" and name in MAY_BE_UNKNOWN else float(text)


def _cells(labels: Sequence[Label], identity: str, outcome: Outcome) -> tuple[Label, ...]:
    return (*labels, *(outcome.figures or ("",) * len(FIGURES)), outcome.division, outcome.error, identity)


def _line(cells: Iterable[Label]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


# ---- Parquet


def _require_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise InputError(None, "--out", "pyarrow is not installed", "pip install 'gpusim[parquet]'") from None


def _parquet(labels: Sequence[str], rows: Iterable[TableRow]) -> bytes:
    import pandas as pd

    cells = [[None if cell == "" else cell for cell in _cells(*row)] for row in rows]
    kinds = {name: TEXTS_AND_SEED.get(name, "float64") for name in labels}
    kinds |= dict.fromkeys(FIGURES, "float64") | dict.fromkeys(("division", "error", IDENTITY), "string")
    frame = pd.DataFrame(cells, columns=list(kinds)).astype(kinds)
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return buffer.getvalue()


def _parquet_outcomes(path: Path) -> dict[str, Outcome]:
    import pandas as pd

    try:
        frame = pd.read_parquet(path)
        rows: list[Mapping[str, object]] = frame[[*OUTCOME, IDENTITY]].to_dict("records")  # type: ignore[assignment]
    except (OSError, ValueError, KeyError):
        raise InputError(path, "", "is no table of a sweep", "such a table, or a name that is free") from None
    return {
        str(row[IDENTITY]): Outcome(tuple(_known(float(str(row[name]))) for name in FIGURES), _text(row["division"]))
        for row in rows
        if not _text(row["error"])
    }


def _known(figure: float) -> float | None:
    return None if isnan(figure) else figure


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
