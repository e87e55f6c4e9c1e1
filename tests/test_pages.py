"""Every page with numbers says what its tables say.

A page that differs is written anew, from the tables as they ship, by `python docs/refresh.py`; the tables themselves by
the study's own script, which its page names.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from docs.refresh import studies
from experiments.rows import to_csv
from experiments.study import Run, Study

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ROOT / "experiments"
ELSEWHERE = {
    "h200_validation",  # its tables are also those of docs/model.md: tests/test_h200_validation.py
    "recordings",  # of what was recorded, and no result of the model
}
WRITTEN = studies()


@pytest.mark.release
def test_every_study_with_a_table_writes_its_page() -> None:
    pages = {path.parent.name for path in STUDIES.glob("*/README.md") if "\n|" in path.read_text(encoding="utf-8")}
    assert pages == set(WRITTEN) | ELSEWHERE


@pytest.mark.release
@pytest.mark.parametrize("study", WRITTEN.values(), ids=WRITTEN)
def test_the_page_is_what_the_tables_say(study: Study, tmp_path: Path) -> None:
    """When this fails: `python docs/refresh.py`; after a change of the model the study's own script first."""
    for name in study.tables:
        shutil.copy(study.folder / name, tmp_path)
    study.write_page(tmp_path)
    assert (tmp_path / "README.md").read_text("utf-8") == (study.folder / "README.md").read_text("utf-8")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in study.pictures)


@pytest.mark.release
@pytest.mark.parametrize("name", ["geisler", "li2016", "spaa20_table1", "spaa20_table2"])
def test_the_tables_of_quick_studies_are_what_they_make_now(name: str, tmp_path: Path) -> None:
    """After a change of the model: run the study's script."""
    study = WRITTEN[name]
    for table, rows in study.rows(Run(tmp_path)).items():
        assert to_csv(study.tables[table], rows) == (study.folder / table).read_text("utf-8"), table
