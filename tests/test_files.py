"""The one-line error and the file that is whole or not there."""

from __future__ import annotations

import codecs
import os
import pickle
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, field_validator

from gpusim.common.errors import InputError, quote, validating
from gpusim.common.files import (
    atomic_write,
    read_bytes,
    read_table,
    read_text,
    read_toml,
    require_new_folder,
    require_output,
    whole_folder,
    write_table,
)


def test_error_reads_file_place_problem_expected() -> None:
    error = InputError("a.json", "streams[0].name", "has ''", "letters")
    assert str(error) == "a.json: streams[0].name: has ''; expected letters"
    assert str(InputError(None, "--gpu", "unknown GPU 'x'")) == "--gpu: unknown GPU 'x'"


def test_a_name_of_any_length_is_cut() -> None:
    assert len(str(InputError("x" * 100_000, "y" * 100_000, "z" * 100_000, "less"))) < 1500


def test_error_survives_pickling() -> None:
    error = pickle.loads(pickle.dumps(InputError(Path("a"), "b", "c", "d")))
    assert (error.path, error.place, error.problem, error.expected) == (Path("a"), "b", "c", "d")


@given(st.text(), st.text(), st.text(), st.text())
def test_error_is_one_printable_line(path: str, place: str, problem: str, expected: str) -> None:
    line = str(InputError(path, place, problem, expected))
    assert line.isprintable()
    line.encode("utf-8")


def test_quote_is_short_even_of_what_python_will_not_print() -> None:
    assert quote("x" * 1000).endswith("...") and len(quote("x" * 1000)) == 60
    assert quote(10**5000) == "a int too large to print"


class _Inner(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    count: int

    @field_validator("count")
    @classmethod
    def _even(cls, count: int) -> int:
        if count % 2:
            raise InputError(None, "", f"is {count}", "an even number")
        return count


class _Outer(BaseModel):
    items: list[_Inner]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"items": [{"count": "two"}]}, "f: items[0].count: is 'two'; expected a whole number"),
        ({"items": [{"count": 2}, {"count": 3}]}, "f: items[1].count: is 3; expected an even number"),
        ({"items": [{"count": 2, "size": 1}]}, "f: items[0].size: unknown key; expected no such key here"),
        ({"items": [{}]}, "f: items[0].count: missing; expected this key"),
    ],
)
def test_pydantic_errors_name_their_place(content: object, line: str) -> None:
    with pytest.raises(InputError) as caught, validating(None, "f"):
        _Outer.model_validate(content)
    assert str(caught.value) == line


def test_write_appears_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    with atomic_write(path) as file:
        file.write("a\nµ\n")
        assert not path.exists()
    assert path.read_bytes() == "a\nµ\n".encode()
    assert os.listdir(tmp_path) == ["out.csv"]


def test_failed_write_keeps_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path, "wb") as file:
        file.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["out.bin"]


def test_write_follows_links_and_keeps_permissions(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    with atomic_write(link) as file:
        file.write("new")
    assert link.is_symlink() and target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_write_to_a_device_does_not_replace_it() -> None:
    with atomic_write(os.devnull) as file:
        file.write("x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_unwritable_place_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "folder", tmp_path, "a\0b"):
        with pytest.raises(InputError, match="cannot be written"), atomic_write(path):
            pass
    assert os.listdir(tmp_path) == []


def test_error_about_another_file_is_not_ours(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_write(tmp_path / "out"):
        (tmp_path / "missing").read_bytes()


def test_reading_what_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path, "a\0b"):
        with pytest.raises(InputError, match="cannot be read"):
            read_bytes(path)
    (tmp_path / "latin").write_bytes(b"abc\xe9")
    with pytest.raises(InputError, match="latin: byte 3: is not UTF-8"):
        read_text(tmp_path / "latin")


def test_folder_appears_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    with whole_folder(folder) as inside:
        (inside / "a.txt").write_text("a")
        assert not folder.exists()
    assert (folder / "a.txt").read_text() == "a"
    assert os.listdir(folder.parent) == ["out"]


def test_folder_that_fails_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"out: cannot be written \(No space left"),
        whole_folder(tmp_path / "out") as _,
    ):
        raise OSError(28, "No space left on device")
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "out") as inside:
        (inside / "a.txt").write_text("a")
        raise ZeroDivisionError
    assert os.listdir(tmp_path) == []


def test_folder_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with whole_folder(tmp_path / "empty") as inside:
        (inside / "a.txt").write_text("a")
    with pytest.raises(InputError, match="exists and is not empty"):
        require_new_folder(tmp_path / "empty")
    with pytest.raises(InputError, match="exists and is no folder"), whole_folder(tmp_path / "empty" / "a.txt"):
        pass
    assert os.listdir(tmp_path) == ["empty"]
    with pytest.raises(InputError, match="cannot be written"), whole_folder(tmp_path / "empty" / "a.txt" / "b"):
        pass


@pytest.mark.parametrize("name", ["table.csv", "table.csv.gz"])
def test_a_table_that_was_written_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_table(path, "µ,b\n1,2\n")
    assert read_table(path) == "µ,b\n1,2\n"
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == name.endswith(".gz")


def test_the_mark_before_a_text_of_windows_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_bytes(codecs.BOM_UTF8 + b"a = 1")
    assert read_text(path) == "a = 1" and read_toml(path, "settings") == {"a": 1}
    path.write_bytes(codecs.BOM_UTF8 + b"\xff")
    with pytest.raises(InputError, match="is not UTF-8"):
        read_text(path)


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    read, link = tmp_path / "a.json", tmp_path / "b.json"
    read.write_text("{}")
    link.symlink_to(read)
    require_output(tmp_path / "c.json", [read])
    with pytest.raises(InputError, match=r"b\.json: is read as well as written; expected another file"):
        require_output(link, [tmp_path / "x", read])
    with pytest.raises(InputError, match="cannot be written"):
        require_output(tmp_path / "none" / "c.json")
    with pytest.raises(InputError, match="Is a directory"):
        require_output(tmp_path, [tmp_path])
    with pytest.raises(InputError, match="No such file or directory"):
        require_output(tmp_path / ("n" * 300) / "c.json")
    require_output(tmp_path / ("n" * 300))  # refused when it is written
