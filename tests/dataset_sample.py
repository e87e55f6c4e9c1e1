"""A few rows of the recorded dataset as a dataset of its own, and ways to spoil it."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

RECORDED = Path(__file__).resolve().parent.parent / "experiments" / "h200_validation" / "data"
ON_H100 = RECORDED / "h100"
STAIRCASE = "googlenet/4a.3x3/fwd/IMPLICIT_PRECOMP_GEMM/FMA"
KEPT_SMS = ("8", "96", "132")
RESIDENCY = "googlenet/4e.1x1/fwd/IMPLICIT_GEMM/FMA"
MODULES = ("res5a",)
SELECTION = "implicit"

Row = dict[str, str]


def read(path: Path) -> list[Row]:
    """Rows of a CSV file, gzipped or not."""
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, rows: Sequence[Row]) -> None:
    """The columns are those of the first row."""
    with gzip.open(path, "wt", newline="") if path.suffix == ".gz" else path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def edit(path: Path, change: Callable[[Row], None]) -> None:
    """Change every row of a file in place."""
    rows = read(path)
    for row in rows:
        change(row)
    write(path, rows)


def build(folder: Path, recorded: Path = RECORDED) -> Path:
    """Write the sample: a staircase, a residency curve, one pair in all modes, a quota row and a module."""
    kept = {
        "sm_curve.csv": [r for r in _of(recorded, "sm_curve.csv", op=STAIRCASE) if r["sms"] in KEPT_SMS],
        "residency_curve.csv": _of(recorded, "residency_curve.csv", op=RESIDENCY),
        "pairs.csv": _pair(recorded),
        "quota.csv": read(recorded / "quota.csv")[:1],
        "modules.csv": [r for r in _of(recorded, "modules.csv", selection=SELECTION) if r["module"] in MODULES],
    }
    return _written(folder, recorded, kept)


def curves(folder: Path, recorded: Path, ops: Sequence[str]) -> Path:
    """Write nothing but the SM curves of some ops."""
    rows = [row for row in read(recorded / "sm_curve.csv") if row["op"] in ops]
    return _written(folder, recorded, {"sm_curve.csv": rows})


def _written(folder: Path, recorded: Path, kept: dict[str, list[Row]]) -> Path:
    """The outcomes, and the recordings of their ops."""
    ops = {op for rows in kept.values() for r in rows for c in ("op", "a", "b", "ops") for op in r.get(c, "").split()}
    kept["convolutions.csv"] = [r for r in read(recorded / "convolutions.csv") if r["op"] in ops]
    kept["kernels.csv.gz"] = [r for r in read(recorded / "kernels.csv.gz") if r["op"] in ops]
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in kept.items():
        assert rows, name
        write(folder / name, rows)
    return folder


def _of(recorded: Path, name: str, **wanted: str) -> list[Row]:
    return [row for row in read(recorded / name) if all(row[column] == value for column, value in wanted.items())]


def _pair(recorded: Path) -> list[Row]:
    """The first pair of one-kernel ops that was measured in green contexts."""
    kernels: dict[str, int] = {}
    for row in read(recorded / "kernels.csv.gz"):
        kernels[row["op"]] = kernels.get(row["op"], 0) + 1
    bound = {row["op"] for row in read(recorded / "convolutions.csv") if row["gpu_bound"] == "True"}
    simple = {op for op in bound if kernels.get(op) == 1}
    rows = read(recorded / "pairs.csv")
    a, b = next((r["a"], r["b"]) for r in rows if r["mode"] == "green" and {r["a"], r["b"]} <= simple)
    return [row for row in rows if (row["a"], row["b"]) == (a, b)]
