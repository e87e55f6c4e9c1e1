"""Plans on a GPU, measured: the recorder's program runs them as `convolutions/outcomes.cuh` says of `plans`."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median

from gpusim.common.files import write_table
from gpusim.common.spreadsheet import csv_text, table_rows
from gpusim.lab.record.program import Program


def measure(path: Path, calls: Path, plans: Path, runs: int) -> None:
    """Run plans (a line each, as are their calls) on this machine's GPU; write the printed table with the median times.

    Where a race has two outcomes, one run of the program has either for all its repeats: hence several ``runs``.

    Raises:
        InputError: the program fails, or the table (`.csv.gz`) cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder))
        printed = [list(program.printed("plans", calls, plans)) for _ in range(runs)]
    write_table(path, "".join(medians(printed)))


def medians(runs: Iterable[Iterable[str]]) -> Iterable[str]:
    """Lines of a table that was printed again and again, with the median of each time."""
    titles, *lines = zip(*map(csv.reader, runs), strict=True)
    return csv_text(titles[0], ([_median(*cells) for cells in zip(titles[0], *rows, strict=True)] for rows in lines))


def _median(title: str, *cells: str) -> str:
    """The median of a column of times; of another, which is the same in all runs, the first."""
    return f"{median(map(float, cells)):.6f}" if title.startswith("ms_") else cells[0]


def makespans_us(path: Path) -> dict[tuple[str, str], list[float]]:
    """Measured makespans by the names of the trace and of the plan: one for each turn of CUDA's streams, us.

    Raises:
        InputError: the table cannot be read.
    """
    turns: dict[tuple[str, str], dict[str, float]] = {}
    with table_rows(path) as rows:
        for row in rows:
            turns.setdefault((row["name"], row["plan"]), {})[row["turn"]] = float(row["ms_makespan"]) * 1e3
    return {key: list(found.values()) for key, found in turns.items()}
