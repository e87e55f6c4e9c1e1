"""Records what Li et al. sweep, on this machine's GPU: `python experiments/li2016/record.py FOLDER`.

Every algorithm of cuDNN in all three directions, FP32, timed around the paper's basic configuration. Needs what
`gpusim record` needs but Nsight Compute.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from pathlib import Path

from gpusim.lab.record.calls import ALGORITHMS, Call
from gpusim.lab.record.program import BuiltProgram
from gpusim.training.networks.steps import CONVOLUTION, CallWork, Direction

DIRECTIONS: tuple[Direction, ...] = ("fwd", "bwd_data", "bwd_filter")
CHANNELS = 3  # the paper gives none; its first layers see images
BASIC = {"batch": 64, "size": 128, "filters": 64, "kernel": 11, "stride": 1}
SWEEPS = {  # the paper's Figures 3 and 5, (d), (e), (b), (c) and (a)
    "kernel": (3, 5, 7, 9, 11, 13, 15),
    "stride": (1, 2, 3, 4),
    "size": (32, 64, 96, 128, 192, 256),
    "filters": (32, 64, 128, 160, 256, 512),
    "batch": (32, 64, 128, 256, 512),
}


def name(shape: dict[str, int]) -> str:
    """A configuration as the paper writes it, b-i-f-k-s."""
    return "-".join(str(value) for value in shape.values())


def calls_of(shape: dict[str, int]) -> list[Call]:
    """Every algorithm in every direction."""
    calls = []
    for direction in DIRECTIONS:
        work = CallWork(
            CONVOLUTION, direction, shape["batch"], CHANNELS, shape["size"], shape["size"], shape["filters"],
            (shape["kernel"], shape["kernel"]), (0, 0), shape["stride"],
        )  # fmt: skip
        calls += [Call("li2016", name(shape), work, algorithm, "FMA") for algorithm in ALGORITHMS[direction]]
    return calls


def main(folder: Path) -> None:
    """Times."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {name(BASIC | {what: value}): BASIC | {what: value} for what, values in SWEEPS.items() for value in values}
    with tempfile.TemporaryDirectory() as scratch:
        program = BuiltProgram(Path(scratch))
        with open(folder / "sweeps.csv", "w", encoding="utf-8", newline="") as file:
            table: csv.DictWriter[str] | None = None
            for _, row in program.time([call for shape in shapes.values() for call in calls_of(shape)]):
                if table is None:
                    table = csv.DictWriter(file, row, restval="", lineterminator="\n")
                    table.writeheader()
                table.writerow(row)
                file.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
