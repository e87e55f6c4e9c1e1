"""What every study does: a page from its template, tables that come back, steps, and work that goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path

import pytest

from experiments.markdown import rendered
from experiments.rows import from_csv, to_csv
from experiments.study import Run, Study


@dataclass(frozen=True)
class Row:
    name: str
    count: int
    us: float


ROWS = [Row("a", 1, 1234.5678), Row("b", 2, nan)]


def test_a_page_has_its_numbers_and_tables() -> None:
    template = "# Title\n\nIt takes {us:,.1f} us.\n\n{table}\n\n{nothing}\n\n* one {us:.0f}\n* two\n\nKept:\n so\n"
    page = rendered(template, {"us": 1234.56, "table": "| a |\n|---|", "nothing": ""})
    assert page == "# Title\n\nIt takes 1,234.6 us.\n\n| a |\n|---|\n\n* one 1235\n* two\n\nKept:\n so\n"


def test_a_paragraph_with_numbers_is_put_into_lines_anew() -> None:
    page = rendered("word " * 30 + "{x}\n\n* " + "word " * 30 + "{x}\n", {"x": "end"})
    paragraph, point = page.split("\n\n")
    assert all(len(line) <= 120 for line in page.splitlines())
    assert paragraph.splitlines()[1].startswith("word") and point.splitlines()[1].startswith("  word")


def test_a_name_that_the_page_lacks_is_an_error() -> None:
    with pytest.raises(KeyError):
        rendered("{x} us", {})


def test_rows_come_back_to_six_digits(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(to_csv(Row, ROWS))
    assert path.read_text() == "name,count,us\na,1,1234.57\nb,2,\n"
    first, second = from_csv(Row, path)
    assert first == Row("a", 1, 1234.57) and second.us != second.us


def test_rows_of_text_come_back_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text(to_csv(("a+b", "c"), [{"a+b": "0.50", "c": ""}]))
    assert from_csv(("a+b", "c"), path) == [{"a+b": "0.50", "c": ""}]


def square(n: int) -> list[int]:
    return [n, n * n]


def made(run: Run) -> Mapping[str, Sequence[Row]]:
    answers = run.answers("result", [3, 1], square, [], [])
    return {"result.csv": [Row(str(n), found[1], 0.5) for n, found in answers.items()]}


def test_a_script_writes_its_tables_and_its_page(tmp_path: Path) -> None:
    folder, out = tmp_path / "study", tmp_path / "out"
    folder.mkdir()
    (folder / "page.md").write_text("Sum: {sum}\n")
    steps = {"measure": (lambda: (folder / "measured").touch(), "measures")}
    study = Study(
        str(folder / "run.py"),
        "Squares: of numbers",
        {"result.csv": Row},
        made,
        lambda rows: {"sum": sum(row.count for row in rows)},
        {"picture.png": lambda rows, path: path.write_text(rows[0].name)},
        steps,
        parallel=True,
    )
    assert study.main(["--out", str(out), "--jobs", "1"]) == 0
    assert (out / "result.csv").read_text() == "name,count,us\n3,9,0.5\n1,1,0.5\n"
    assert (out / "README.md").read_text() == "Sum: 10\n" and (out / "picture.png").read_text() == "3"
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "picture.png", "result.csv"]
    assert study.main(["--measure"]) == 0 and (folder / "measured").exists()
