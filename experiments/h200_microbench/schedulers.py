"""Warps on the schedulers of an SM: `python experiments/h200_microbench/schedulers.py`.

Writes the tables of README.md from schedulers.csv of the H200 and of the H100.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gpusim.common import markdown
from gpusim.common.files import write_text

HERE = Path(__file__).resolve().parent
FOLDERS = {"H200": HERE, "H100": HERE.parent / "h100_microbench"}
KERNELS = {"fma": "no barrier", "fma_barrier": "barrier"}

Measured = dict[str, str]


def main() -> int:
    """Writes both."""
    write_page(HERE)
    return 0


def write_page(folder: Path) -> None:
    """README.md with the tables as they are now."""
    write_text(folder / "README.md", readme())


def rows(gpu: str, kernel: str) -> list[Measured]:
    """What a kernel took on a GPU."""
    with (FOLDERS[gpu] / "schedulers.csv").open(newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["kernel"] == kernel]


def readme() -> str:
    """README.md with the tables as they are now."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    return markdown.filled(text, {"one-wave": one_wave(), "refilled": refilled()})


def one_wave() -> str:
    """Blocks that start together: times by the warps of the fullest scheduler."""
    columns = [(gpu, kernel) for gpu in FOLDERS for kernel in KERNELS]
    titles = ["on the fullest scheduler", "warps an SM", *(f"{gpu}, {KERNELS[kernel]}" for gpu, kernel in columns)]
    lines = []
    for warps in range(1, 10):
        of_column = [
            [row for row in rows(*column) if (row["waves"], row["warps_on_fullest_scheduler"]) == ("1", f"{warps}.0")]
            for column in columns
        ]
        totals = sorted({int(row["warps"]) for found in of_column for row in found})
        times = [_spread(float(row["relative_time_per_wave"]) for row in found) for found in of_column]
        lines.append([str(warps), ", ".join(map(str, totals)), *times])
    return markdown.table(titles, lines)


def refilled() -> str:
    """Blocks of two warps, refilled: time per wave by number of waves."""
    waves = ["1", "2", "4", "8", "16"]
    titles = [
        "blocks an SM",
        "warps over four",
        "GPU",
        "kernel",
        *(f"{n} waves" if n != "1" else "1 wave" for n in waves),
    ]
    lines = []
    for blocks in (3, 5):
        for gpu in FOLDERS:
            for kernel, name in KERNELS.items():
                found = {
                    row["waves"]: row["relative_time_per_wave"]
                    for row in rows(gpu, kernel)
                    if (row["warps_a"], row["blocks_a"], row["blocks_b"]) == ("2", str(blocks), "0")
                }
                times = [f"{float(found[n]):.2f}" for n in waves]
                lines.append([str(blocks), f"{2 * blocks / 4:g}", gpu, name, *times])
    return markdown.table(titles, lines)


def _spread(values: Iterable[float]) -> str:
    times = sorted(values)
    return f"{np.median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})"


if __name__ == "__main__":
    raise SystemExit(main())
