"""How much longer a copy keeps its stream than a profile says: `python experiments/copies/run.py`.

A stream ran a short kernel and a copy in turns on an H200 (`copies.csv`). It writes README.md and result.csv beside
itself (or to --out DIR).

    python experiments/copies/record.py   # measures: needs an NVIDIA GPU, PyTorch and nvcc
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Study
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu

HERE = Path(__file__).resolve().parent
GPU = "h200"
WAYS = {"graph": "CUDA graph", "stream": "launched one by one"}
DIRECTIONS = {"h2d": "host to device", "d2h": "device to host", "d2d": "on the device"}


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy between kernels of a stream.

    Attributes:
        launched: as a CUDA graph, or one by one.
        direction: h2d, d2h or d2d.
        bytes: copied.
        profiled_us: time of the copy in a profile.
        longer_us: what a turn of kernel and copy takes beyond that and a turn of the kernel alone.
    """

    launched: str
    direction: str
    bytes: int
    profiled_us: float
    longer_us: float


def copied() -> Iterator[Copied]:
    """Every row of copies.csv that has a copy."""
    rows = lines(HERE / "copies.csv")
    alone = {row["launched"]: float(row["turn_us"]) for row in rows if row["direction"] == "none"}
    for row in rows:
        if row["direction"] != "none":
            profiled = float(row["profiled_us"])
            longer = float(row["turn_us"]) - alone[row["launched"]] - profiled
            yield Copied(row["launched"], row["direction"], int(row["bytes"]), profiled, round(longer, 3))


def page(rows: Sequence[Copied]) -> dict[str, object]:
    """What the page says."""
    host = [row.longer_us for row in rows if row.direction != "d2d"]
    device = [row.longer_us for row in rows if row.direction == "d2d" and row.launched == "graph"]
    return {
        "host": f"{fmean(host):.1f}",
        "least": f"{min(host):.1f}",
        "most": f"{max(host):.1f}",
        "device": f"{fmean(device):.1f}",
        "constant": f"{load_gpu(GPU).model.copy_gap_us:g}",
        "longer": table(
            ("copy", "launched", *(f"{size:,} bytes, µs" for size in grouped(rows, lambda row: row.bytes))),
            [
                (DIRECTIONS[direction], WAYS[launched], *(f"{row.longer_us:.1f} ({row.profiled_us:.1f})" for row in of))
                for (direction, launched), of in grouped(rows, lambda row: (row.direction, row.launched)).items()
            ],
        ),
    }


STUDY = Study(__file__, __doc__, {"result.csv": Copied}, lambda _: {"result.csv": list(copied())}, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
