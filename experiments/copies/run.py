"""How much longer a copy or a memset keeps its stream than a profile says: `python experiments/copies/run.py`.

A stream ran a short kernel and a copy in turns on an H200 (`copies.csv`), or two kernels with a memset between them
(`memsets.csv`). It writes README.md, result.csv and result_memsets.csv beside itself (or to --out DIR).

    python experiments/copies/record.py   # measures: needs an NVIDIA GPU, PyTorch and nvcc
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Run, Study
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu
from gpusim.model.context import MOST_SET_BYTES

HERE = Path(__file__).resolve().parent
GPU = "h200"
WAYS = {"graph": "CUDA graph", "stream": "launched one by one"}
SIZED = "add_128"  # the kernel around memsets of several sizes
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


@dataclass(frozen=True, slots=True)
class BetweenKernels:
    """A memset between two kernels of a CUDA graph.

    Attributes:
        first: kernel before it.
        second: kernel after it.
        bytes: that it sets.
        profiled_us: its time in a profile.
        longer_us: what a turn of both kernels and it takes beyond that and a turn of the kernels alone.
    """

    first: str
    second: str
    bytes: int
    profiled_us: float
    longer_us: float


def memsets() -> Iterator[BetweenKernels]:
    """Every row of memsets.csv."""
    for row in lines(HERE / "memsets.csv"):
        profiled = float(row["profiled_us"])
        longer = float(row["turn_us"]) - float(row["plain_us"]) - profiled
        yield BetweenKernels(row["first"], row["second"], int(row["bytes"]), profiled, round(longer, 3))


def page(rows: Sequence[Copied], sets: Sequence[BetweenKernels]) -> dict[str, object]:
    """What the page says."""
    least = min(row.bytes for row in sets)
    by_first = grouped([row for row in sets if row.bytes == least], lambda row: row.first)
    small = [row.longer_us for mine in by_first.values() for row in mine]
    large = [row for row in sets if row.bytes > MOST_SET_BYTES]
    model = load_gpu(GPU).model
    host = [row.longer_us for row in rows if row.direction != "d2d"]
    device = [row.longer_us for row in rows if row.direction == "d2d" and row.launched == "graph"]
    return {
        "host": f"{fmean(host):.1f}",
        "least": f"{min(host):.1f}",
        "most": f"{max(host):.1f}",
        "device": f"{fmean(device):.1f}",
        "constant": f"{model.copy_gap_us:g}",
        "memset": f"{fmean(small):.1f}",
        "memset_least": f"{min(small):.1f}",
        "memset_most": f"{max(small):.1f}",
        "memset_large": f"{fmean(row.longer_us for row in large):.1f}",
        "memset_large_bytes": f"{min(row.bytes for row in large):,}",
        "memset_bytes": f"{MOST_SET_BYTES:,}",
        "memset_constant": f"{model.memset_gap_us:g}",
        "memsets": table(
            ("kernel before \\ after", *grouped(sets, lambda row: row.second)),
            [(first, *(f"{row.longer_us:.1f}" for row in mine)) for first, mine in by_first.items()],
        ),
        "sizes": table(
            ("bytes", "beyond its profile, µs", "in a profile, µs"),
            [
                (f"{row.bytes:,}", f"{row.longer_us:.1f}", f"{row.profiled_us:.1f}")
                for row in sets
                if row.first == row.second == SIZED
            ],
        ),
        "longer": table(
            ("copy", "launched", *(f"{size:,} bytes, µs" for size in grouped(rows, lambda row: row.bytes))),
            [
                (DIRECTIONS[direction], WAYS[launched], *(f"{row.longer_us:.1f} ({row.profiled_us:.1f})" for row in of))
                for (direction, launched), of in grouped(rows, lambda row: (row.direction, row.launched)).items()
            ],
        ),
    }


def rows(_: Run) -> Mapping[str, Iterable[object]]:
    """Both tables."""
    return {"result.csv": list(copied()), "result_memsets.csv": list(memsets())}


STUDY = Study(__file__, __doc__, {"result.csv": Copied, "result_memsets.csv": BetweenKernels}, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
