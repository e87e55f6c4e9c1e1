"""Tables of sweeps: what is taken over from one is what a sweep wrote, and one sweep writes at a time."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from executors import Here

from gpusim.common.errors import InputError
from gpusim.sweeps import table as tables
from gpusim.sweeps.compute import FIGURES, Outcome
from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import sweep
from gpusim.sweeps.table import KnownRow, Table, TableRow

ROOT = Path(__file__).resolve().parent.parent
TABLE_1 = ROOT / "traces" / "spaa20_table1.json"
LABELS = ("trace", "pair", "gpu", "sm_count", "policy", "seed")
DELETED = "expected a table that nobody edited; a row that is deleted is computed again"
BUSY = "is being written by another sweep"
OTHER = "expected such a table, or a name that is free"

posix = pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")


def row(n: int, **changes: Any) -> TableRow:
    figures = tuple(n + k / 7 for k in range(len(FIGURES)))
    outcome = Outcome(**{"figures": figures, "division": "inter-sm:sms=6+60", **changes})
    return ("t", "a+b", "h200", 66, f"even:n={n}", n), f"{n:064x}", outcome


ROWS = [row(0), row(1, figures=(), error="failed"), row(2, division=""), row(3)]


@pytest.fixture(params=["csv", "parquet"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Table:
    """A table of `ROWS`."""
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    made = Table(tmp_path / f"t.{request.param}", LABELS)
    made.finish(ROWS)
    return made


def edited(table: Table, edit: Callable[[pd.DataFrame], object]) -> None:
    """Changes a table with the tools that others have for it."""
    if table.path.suffix == ".parquet":
        frame = pd.read_parquet(table.path)
        edit(frame)
        frame.to_parquet(table.path, index=False)
    else:
        frame = pd.read_csv(table.path, dtype=str, keep_default_na=False)
        edit(frame)
        frame.to_csv(table.path, index=False, lineterminator="\n")


def put(frame: pd.DataFrame, at: int, name: str, value: object) -> None:
    frame.loc[at, name] = value if pd.api.types.is_float_dtype(frame[name]) else str(value)


def swap(frame: pd.DataFrame, name: str, a: int, b: int) -> None:
    frame.loc[a, name], frame.loc[b, name] = frame.loc[b, name], frame.loc[a, name]


def problem(table: Table) -> str:
    before = table.path.read_bytes()
    with pytest.raises(InputError) as caught:
        table.held()
    assert str(caught.value).startswith(f"{table.path}: ") and table.path.read_bytes() == before
    return str(caught.value)


def test_rows_come_back_as_they_were_written(table: Table) -> None:
    assert table.held() == [
        KnownRow(dict(zip(LABELS, labels, strict=True)), identity, outcome) for labels, identity, outcome in ROWS
    ]
    edited(table, lambda frame: None)
    assert len(table.held()) == len(ROWS), "another program wrote the same"


@pytest.mark.parametrize(
    ("edit", "at"),
    [
        (lambda frame: put(frame, 0, "makespan_us", 0.125), 0),
        (lambda frame: put(frame, 3, FIGURES[-1], 0.125), 3),
        (lambda frame: put(frame, 2, "sm_count", 132.0), 2),
        (lambda frame: frame.__setitem__("policy", frame["policy"].str.replace("n=3", "n=4")), 3),
        (lambda frame: frame.__setitem__("error", ""), 1),
        (lambda frame: frame.__setitem__("division", "even"), 0),
        (lambda frame: swap(frame, "identity", 0, 3), 0),
        (lambda frame: swap(frame, "identity", 1, 2), 1),
        (lambda frame: swap(frame, "makespan_us", 2, 3), 2),
        (lambda frame: swap(frame, "checksum", 2, 3), 2),
        (lambda frame: frame.__setitem__("checksum", ""), 0),
        (lambda frame: frame.insert(0, "mine", "x"), 0),
        (lambda frame: frame.insert(3, "sms_per_tpc", frame.pop("sm_count")), 0),
    ],
)
def test_what_somebody_edited_is_one_line(table: Table, edit: Callable[[pd.DataFrame], object], at: int) -> None:
    edited(table, edit)
    place = f"line {at + 2}" if table.path.suffix == ".csv" else f"row {at + 1}"
    assert f"{place}: is " in problem(table) and problem(table).endswith(DELETED)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None])
def test_figures_that_are_no_numbers_are_one_line(table: Table, value: float | None) -> None:
    figures: Any = ("" if value is None else value, *[1.0] * (len(FIGURES) - 1))
    table.finish([row(0, figures=figures)])  # with a checksum that is right
    assert " is no" in problem(table)


def test_columns_of_text_where_numbers_belong_are_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = Table(tmp_path / "t.parquet", LABELS)
    for name in ("makespan_us", "seed", "identity"):
        table.finish(ROWS)
        frame = pd.read_parquet(table.path)
        frame[name] = range(4) if name == "identity" else frame[name].astype(str)
        frame.to_parquet(table.path, index=False)
        assert "row 1: is no row of a sweep" in problem(table)


def test_parquet_files_of_other_things_are_one_line(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    table = Table(tmp_path / "t.parquet", LABELS)
    pd.DataFrame({"a": [1]}).to_parquet(table.path)
    assert problem(table).endswith(OTHER)
    for content in (b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"):
        table.path.write_bytes(content)
        assert problem(table).endswith(OTHER)


def test_a_parquet_table_of_another_experiment_stays_as_it_is(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    for policy in ("serial", "even"):
        (tmp_path / f"{policy}.toml").write_text(f'traces = ["{TABLE_1}"]\npolicies = ["{policy}"]\n')
    out = tmp_path / "out.parquet"
    sweep(load_experiment(tmp_path / "serial.toml"), out, Here, 1)
    whole = out.read_bytes()
    with pytest.raises(InputError, match="holds 1 rows, none of them of "):
        sweep(load_experiment(tmp_path / "even.toml"), out, Here, 1)
    assert out.read_bytes() == whole
    journal = tmp_path / "new.parquet.rows.csv"  # of a sweep that was killed
    Table(tmp_path / "new.csv", LABELS).finish(ROWS)
    (tmp_path / "new.csv").rename(journal)
    with pytest.raises(InputError, match="holds 4 rows, none of them of"):
        sweep(load_experiment(tmp_path / "even.toml"), tmp_path / "new.parquet", Here, 1)


def test_flipped_bits_of_csv_are_noticed(tmp_path: Path) -> None:
    """Whichever bit flips, the table is refused or gives no row that was not written."""
    table = Table(tmp_path / "t.csv", LABELS)
    table.finish(ROWS)
    written, whole = table.held(), table.path.read_bytes()
    taken = 0
    for at in range(len(whole)):
        table.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            held = table.held()
        except InputError:
            continue
        assert all(one in written for one in held)
        taken += 1
    assert taken < len(whole) / 100, "such as the last newline, and the 17th digit of a number that stays the same"


@pytest.mark.release
def test_flipped_bits_of_parquet_are_noticed(tmp_path: Path) -> None:
    """Flips in what no value depends on, such as statistics, are harmless: the table is written anew."""
    pytest.importorskip("pyarrow")
    table = Table(tmp_path / "t.parquet", LABELS)
    table.finish(ROWS)
    written, whole = table.held(), table.path.read_bytes()
    refused = 0
    for at in range(0, len(whole), 5):
        table.path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        try:
            assert all(one in written for one in table.held())
        except InputError:
            refused += 1
    assert refused > 0


# ---- one at a time


@posix
def test_a_link_to_a_table_does_not_pass_its_lock(table: Table) -> None:
    link = table.path.with_name(f"link{table.path.suffix}")
    link.symlink_to(table.path.name)
    above = table.path.parent / "above"
    above.symlink_to(table.path.parent)
    for other in (link, above / table.path.name, above / link.name):
        with table.locked(), pytest.raises(InputError, match=BUSY), Table(other, LABELS).locked():
            pytest.fail("two at once")
    with Table(link, LABELS).locked(), pytest.raises(InputError, match=BUSY), table.locked():
        pytest.fail("two at once")


def test_a_link_stays_one_and_what_it_leads_to_is_written(table: Table) -> None:
    link = table.path.with_name(f"link{table.path.suffix}")
    link.symlink_to(table.path.name)
    through = Table(link, LABELS)
    with through.appending(ROWS[:1]) as append:
        append(ROWS[1])
        assert not list(table.path.parent.glob("link*rows*"))
    through.finish(ROWS[:2])
    assert link.is_symlink() and len(table.held()) == 2


@posix
def test_a_lock_is_removed_by_nobody_but_who_holds_it(table: Table) -> None:
    lock = table.path.with_name(f".{table.path.name}.lock")
    with table.locked():
        held = lock.stat().st_ino
        with pytest.raises(InputError), table.locked():
            pytest.fail("two at once")
        assert lock.stat().st_ino == held
    assert not lock.exists()


@posix
def test_a_lock_that_was_removed_as_it_was_opened_is_none(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """One sweep ends between another's opening of the lock and its locking it; a third begins: one may go on."""
    import fcntl

    lock = table.path.with_name(f".{table.path.name}.lock")
    real = fcntl.flock

    def first_removed(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        lock.unlink()
        real(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", first_removed)
    with table.locked(), pytest.raises(InputError, match="another sweep"), table.locked():
        pytest.fail("two at once")
    assert not lock.exists()


@posix
def test_a_lock_that_never_stays_is_one_line(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_is_there", lambda path, descriptor: False)
    with pytest.raises(InputError, match=BUSY), table.locked():
        pytest.fail("locked")


@posix
def test_a_link_in_the_locks_place_is_one_line_and_leads_nowhere(table: Table) -> None:
    other = table.path.with_name("other")
    lock = table.path.with_name(f".{table.path.name}.lock")
    lock.symlink_to(other)
    with pytest.raises(InputError, match="cannot be written"), table.locked():
        pytest.fail("locked")
    assert lock.is_symlink() and not other.exists()


@posix
def test_where_there_are_no_locks_a_sweep_goes_on(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def none(descriptor: int, how: int) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", none)
    with table.locked():
        pass


def test_a_checksum_is_of_values_and_not_of_how_they_are_written(tmp_path: Path) -> None:
    table = Table(tmp_path / "t.csv", LABELS)
    table.finish([row(1)])
    head, cells = csv.reader(io.StringIO(table.path.read_text()))
    cells[head.index("makespan_us")] = "1.000"
    with table.path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\r\n").writerows([head, cells])
    assert [one.outcome for one in table.held()] == [row(1)[2]]
    assert len(cells[head.index(tables.CHECKSUM)]) == tables.CHECKSUM_DIGITS
