"""Every page with numbers says what its tables say.

A page that differs is written anew, from the tables as they ship, by `python docs/refresh.py`; the tables themselves by
the study's own script, which its page names.
"""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from scripts import script

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "experiments"
ELSEWHERE = {
    "h200_validation",  # its tables are also those of docs/model.md: tests/test_h200_validation.py
    "recordings",  # of what was recorded, and no result of the model
}
refresh = script(ROOT / "docs" / "refresh.py", "refresh_pages")
WRITTEN = refresh.studies()


def test_every_study_with_a_table_writes_its_page() -> None:
    pages = {path.parent.name for path in STUDIES.glob("*/README.md") if "\n|" in path.read_text(encoding="utf-8")}
    assert pages == set(WRITTEN) | ELSEWHERE


@pytest.mark.parametrize("name", WRITTEN)
def test_the_page_is_what_the_tables_say(name: str, tmp_path: Path) -> None:
    """When this fails: `python docs/refresh.py`; after a change of the model the study's own script first."""
    for path in (*STUDIES.glob(f"{name}/*.csv"), *STUDIES.glob(f"{name}/*.csv.gz")):
        shutil.copy(path, tmp_path)
    refresh.write_page(WRITTEN[name], tmp_path)
    for path in [tmp_path / "README.md", *tmp_path.glob("*.csv")]:
        assert path.read_text(encoding="utf-8") == (STUDIES / name / path.name).read_text(encoding="utf-8"), path.name
    assert all(path.stat().st_size > 10_000 for path in tmp_path.glob("*.png"))


def rows(name: str) -> list[dict[str, str]]:
    with (STUDIES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_readme_quotes_the_scores_of_paradl() -> None:
    """The equations alone, all cases; the extended oracle on two H200s and on four."""
    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    alone = next(row["accuracy_percent"] for row in rows("paradl/without") if row["without"] == "all of them")
    accuracy = rows("paradl/accuracy")
    two, four = (
        fmean(float(row["accuracy_percent"]) for row in accuracy if row["ranks"] == ranks) for ranks in ("2", "4")
    )
    said = re.search(
        r"equations alone are ([0-9.]+) % right.* extended oracle is ([0-9.]+) % right on two and ([0-9.]+) % on four",
        text,
    )
    assert said is not None
    assert said.groups() == (alone, f"{two:.1f}", f"{four:.1f}")
