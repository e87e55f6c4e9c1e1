"""The log of the microbenchmarks: the SM, start and end of every block, and quantities derived from them.

`microbench.cu` writes it, `load_recording` reads it. Nothing here needs a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.common.errors import InputError
from gpusim.common.spreadsheet import recorded_rows
from gpusim.common.tables import counted, grouped

SEGMENTS = 8  # progress stamps that a warp leaves over its life (as in microbench.cu)
SEQUENCE = 12  # kernels that follow one another in a sequence of the gap experiments (as in microbench.cu)
TIMES = ("start_ns", "end_ns", "start_clock", "end_clock")
# One block in blocks.bin: times by the device's timer (ns) and by its SM's clock (cycles, own origin per SM).
BLOCK = np.dtype([*((name, "<u8") for name in TIMES), ("smid", "<u4"), ("block", "<u4")])
COLUMNS = {  # of the tables that it writes
    "device": ("name", "value"),
    "scalars": ("experiment", "case", "rep", "quantity", "value"),
    "launches": ("experiment", "case", "rep", "role", "kernel", "threads", "registers", "shared_bytes", "per_sm",
                 "grid", "first_block", "first_progress"),
}  # fmt: skip
WRITTEN = "a file that microbench wrote"
Row = dict[str, Any]
Table = list[Row]


@dataclass(frozen=True)
class LoggedLaunch:
    """One kernel launch and the log of its blocks."""

    experiment: str  # which part of microbench.cu launched it
    case: str  # the variant within the experiment
    rep: int  # repeat, or place in a sequence of launches
    role: str  # "a", "b" (the later one), "delay" or a stream's name
    kernel: str  # name of the kernel
    threads: int  # a block
    registers: int  # a thread
    shared_bytes: int  # dynamic shared memory of a block
    per_sm: int  # resident blocks an SM that the launch was arranged for; 0 when not arranged
    blocks: NDArray[Any]  # [grid] of BLOCK, in order of block index
    # [grid, warps, SEGMENTS] cycles from the block's start to each eighth of a warp's work, or None
    progress: NDArray[np.uint32] | None = None

    @property
    def life_clocks(self) -> NDArray[np.float64]:
        """Cycles that each block lived: [grid]."""
        return np.asarray(self.blocks["end_clock"] - self.blocks["start_clock"], np.float64)

    @property
    def starts_ns(self) -> NDArray[np.int64]:
        """Start of each block, ns: [grid]."""
        return np.asarray(self.blocks["start_ns"], np.int64)

    @property
    def ends_ns(self) -> NDArray[np.int64]:
        """End of each block, ns: [grid]."""
        return np.asarray(self.blocks["end_ns"], np.int64)

    def by_sm(self) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield each SM that got blocks, with their indices in order of start."""
        order = np.lexsort((self.blocks["start_clock"], self.blocks["smid"]))
        smids = self.blocks["smid"][order]
        edges = np.flatnonzero(np.diff(smids)) + 1
        for part in np.split(order, edges):
            if len(part):
                yield int(self.blocks["smid"][part[0]]), part


@dataclass(frozen=True)
class MicrobenchLog:
    """Everything one run of microbench.cu wrote."""

    device: dict[str, str]  # what the driver says of the device, by name
    scalars: Table  # rows experiment, case, rep, quantity, value
    launches: list[LoggedLaunch]  # in order of launch within each experiment

    @property
    def sm_count(self) -> int:
        """SMs of the device."""
        return int(self.device["sm_count"])

    @property
    def clocks_per_ns(self) -> float:
        """SM clock during the run, cycles a ns."""
        return float(
            np.median(
                [np.median(launch.life_clocks / (launch.ends_ns - launch.starts_ns)) for launch in self.of("timers")]
            )
        )

    def of(self, *experiments: str) -> list[LoggedLaunch]:
        """The launches of some experiments."""
        return [launch for launch in self.launches if launch.experiment in experiments]

    def cases(self, *experiments: str) -> dict[tuple[str, str], list[LoggedLaunch]]:
        """The launches of some experiments by (experiment, case), in order."""
        return grouped(self.of(*experiments), lambda launch: (launch.experiment, launch.case))


def repeats(launches: Sequence[LoggedLaunch]) -> list[list[LoggedLaunch]]:
    """The launches of each repeat of a case, in order."""
    return [[one for one in launches if one.rep == rep] for rep in sorted({launch.rep for launch in launches})]


def load_recording(folder: Path) -> MicrobenchLog:
    """Read what microbench.cu wrote into a folder."""
    blocks = np.fromfile(_existing(folder / "blocks.bin"), BLOCK)
    progress = np.fromfile(_existing(folder / "progress.bin"), "<u4")
    rows, measured, launched = (
        [row for _, row in recorded_rows(folder / f"{name}.csv", columns, WRITTEN)] for name, columns in COLUMNS.items()
    )
    scalars: Table = [{**row, "rep": int(row["rep"]), "value": float(row["value"])} for row in measured]
    launches = [_launch(folder, row, blocks, progress) for row in launched]
    return MicrobenchLog({row["name"]: row["value"] for row in rows}, scalars, launches)


def _launch(folder: Path, row: dict[str, str], blocks: NDArray[Any], progress: NDArray[np.uint32]) -> LoggedLaunch:
    grid, first, threads = int(row["grid"]), int(row["first_block"]), int(row["threads"])
    if first + grid > len(blocks):
        raise InputError(
            folder / "blocks.bin", "", f"holds {counted(len(blocks), 'block')}", f"at least {first + grid}"
        )
    stamps = None
    if int(row["first_progress"]) >= 0:
        begin, warps = int(row["first_progress"]), threads // 32
        end = begin + grid * warps * SEGMENTS
        if end > len(progress):
            raise InputError(folder / "progress.bin", "", f"holds {counted(len(progress), 'stamp')}", f"at least {end}")
        stamps = progress[begin:end].reshape(grid, warps, SEGMENTS)
    return LoggedLaunch(
        row["experiment"],
        row["case"],
        int(row["rep"]),
        row["role"],
        row["kernel"],
        threads,
        int(row["registers"]),
        int(row["shared_bytes"]),
        int(row["per_sm"]),
        blocks[first : first + grid],
        stamps,
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise InputError(path, "", "is missing", WRITTEN)
    return path


def gaps_ns(launches: Sequence[LoggedLaunch]) -> NDArray[np.float64]:
    """Return gaps between kernels that follow one another: first start minus the end of the one before, ns.

    `rep` numbers launches through all sequences; no gap is counted from one sequence to the next.
    """
    ordered = sorted(launches, key=lambda launch: launch.rep)
    return np.array(
        [
            float(after.starts_ns.min() - before.ends_ns.max())
            for before, after in pairwise(ordered)
            if after.rep % SEQUENCE
        ]
    )


def refill_delays(launch: LoggedLaunch, clocks_per_ns: float) -> NDArray[np.float64]:
    """Delays from the end of a block to the start of the one that takes its place on the SM, ns.

    With k blocks an SM, the j-th block to end on it makes room for the (k + j)-th to start on it.
    """
    delays = [np.empty(0)]
    for _, members in launch.by_sm():
        starts = np.sort(launch.blocks["start_clock"][members]).astype(np.float64)
        ends = np.sort(launch.blocks["end_clock"][members]).astype(np.float64)
        later = max(0, len(members) - launch.per_sm)
        delays.append((starts[launch.per_sm :] - ends[:later]) / clocks_per_ns)
    return np.concatenate(delays)


def order_violation_ns(launch: LoggedLaunch) -> int:
    """The longest time by which a block started before one of smaller index, ns."""
    starts = launch.starts_ns[np.argsort(launch.blocks["block"])]
    return int((np.maximum.accumulate(starts) - starts).max())


def spread(values: NDArray[np.float64], name: str, digits: int = 1) -> Row:
    """Columns of a table: median, 5th and 95th percentile of what was measured."""
    low, middle, high = np.percentile(values, (5, 50, 95))
    return {
        f"{name}_median": round(float(middle), digits),
        f"{name}_p5": round(float(low), digits),
        f"{name}_p95": round(float(high), digits),
    }
