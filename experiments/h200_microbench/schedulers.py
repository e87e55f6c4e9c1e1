"""Warps on the schedulers of an SM: `python experiments/h200_microbench/schedulers.py`.

Writes the tables of README.md from schedulers.csv of the H200 and of the H100.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Study

HERE = Path(__file__).resolve().parent
FOLDERS = {"H200": HERE, "H100": HERE.parent / "h100_microbench"}
KERNELS = {"fma": "no barrier", "fma_barrier": "barrier"}

Measured = dict[str, str]


def measured(gpu: str, kernel: str) -> list[Measured]:
    """What a kernel took on a GPU."""
    return [row for row in lines(FOLDERS[gpu] / "schedulers.csv") if row["kernel"] == kernel]


def page() -> dict[str, object]:
    """What the page says."""
    return {"one_wave": one_wave(), "refilled": refilled()}


def one_wave() -> str:
    """Blocks that start together: times by the warps of the fullest scheduler."""
    columns = [(gpu, kernel) for gpu in FOLDERS for kernel in KERNELS]
    titles = ["on the fullest scheduler", "warps an SM", *(f"{gpu}, {KERNELS[kernel]}" for gpu, kernel in columns)]
    cells = []
    for warps in range(1, 10):
        wanted = ("1", f"{warps}.0")
        of_column = [
            [row for row in measured(*column) if (row["waves"], row["warps_on_fullest_scheduler"]) == wanted]
            for column in columns
        ]
        totals = sorted({int(row["warps"]) for found in of_column for row in found})
        times = [_spread(float(row["relative_time_per_wave"]) for row in found) for found in of_column]
        cells.append([str(warps), ", ".join(map(str, totals)), *times])
    return table(titles, cells)


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
    cells = []
    for blocks in (3, 5):
        for gpu in FOLDERS:
            for kernel, name in KERNELS.items():
                found = {
                    row["waves"]: row["relative_time_per_wave"]
                    for row in measured(gpu, kernel)
                    if (row["warps_a"], row["blocks_a"], row["blocks_b"]) == ("2", str(blocks), "0")
                }
                times = [f"{float(found[n]):.2f}" for n in waves]
                cells.append([str(blocks), f"{2 * blocks / 4:g}", gpu, name, *times])
    return table(titles, cells)


def _spread(values: Iterable[float]) -> str:
    times = sorted(values)
    return f"{np.median(times):.2f} ({times[0]:.2f} to {times[-1]:.2f})"


STUDY = Study(__file__, __doc__, {}, lambda run: {}, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
