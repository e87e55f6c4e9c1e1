"""The gain of kernels that share an SM, predicted and measured: `python experiments/h200_microbench/sharing.py`.

The folder, and that of the H100, holds `sharing.csv`, progress of blocks of two kernels that share an SM;
`residency.csv`, progress of k blocks of one kernel; and `counters.csv`, the counters of each kernel. A prediction uses
only the counters at the largest number of blocks of each kernel, as recordings have them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError
from gpusim.common.spreadsheet import count_in, number_in, recorded_rows
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.lab.dataset import Row
from gpusim.lab.scores import Scored, Summary, summaries
from gpusim.model.contention import WarpDemand, mix_times, warp_demand
from gpusim.trace.kernels import Mix, WarpStalls

SHARING, COUNTERS, RESIDENCY = "sharing.csv", "counters.csv", "residency.csv"
PIPES = ("issue", "alu", "fma", "lsu", "l1")  # that counters.csv counts; tensor cores are idle
STEADY_WAVES = "6"  # of the rows of residency.csv in which blocks are refilled as they end


def score_sharing(folder: Path, gpu: GPU) -> list[Scored]:
    """The gain of every mix: progress of each kernel over that of as many blocks of it alone, summed; 1 is none.

    Raises:
        InputError: a missing file or column, or a number that is none.
    """
    demands = _demands(folder, gpu)
    alone = _progress_alone(folder)
    rows = []
    for row in _rows(folder / SHARING, ("experiment", "a", "blocks_a", "b", "blocks_b", "case", "rate_a", "rate_b")):
        if row["experiment"] != "corun":
            continue
        mix = [(row[name], count_in(row, f"blocks_{name}", 1, folder / SHARING, row["case"])) for name in "ab"]
        if not all(kernel in demands and (kernel, blocks) in alone for kernel, blocks in mix):
            continue
        rates = [number_in(row, f"rate_{name}", folder / SHARING, row["case"]) for name in "ab"]
        measured = fsum(rate / alone[one] for rate, one in zip(rates, mix, strict=True))
        rows.append(Scored("sharing", row["case"], _gain([(demands[k], n) for k, n in mix]), measured, 1.0))
    return rows


def _gain(residents: list[tuple[WarpDemand, int]]) -> float:
    times = mix_times(residents)
    return fsum(mix_times([one])[0] / time for one, time in zip(residents, times, strict=True))


def _demands(folder: Path, gpu: GPU) -> dict[str, WarpDemand]:
    """Demand of the warps of each kernel on an SM, from the counters at the largest number of its blocks."""
    path = folder / COUNTERS
    fullest: dict[str, Row] = {}
    for row in _rows(path, ("kernel", "k", "blocks", "duration_ns", "warps_per_sm", *(f"{p}_percent" for p in PIPES))):
        known = fullest.get(row["kernel"])
        if known is None or count_in(row, "k", 1, path, row["kernel"]) > int(known["k"]):
            fullest[row["kernel"]] = row
    warps = _warps(folder)
    for kernel in fullest:
        if kernel not in warps:
            raise InputError(folder / RESIDENCY, kernel, "is missing", f"each kernel of {COUNTERS}")
    return {kernel: _demand(row, warps[kernel], path, gpu) for kernel, row in fullest.items()}


def _demand(row: Row, warps: int, path: Path, gpu: GPU) -> WarpDemand:
    blocks_per_sm = count_in(row, "blocks", 1, path, row["kernel"]) / gpu.sm_count
    cycles = number_in(row, "duration_ns", path, row["kernel"]) * gpu.boost_clock_mhz / 1e3
    busy: dict[str, Any] = {
        f"{pipe}_cycles": number_in(row, f"{pipe}_percent", path, row["kernel"]) / 100.0 * cycles / blocks_per_sm
        for pipe in PIPES
    }
    columns = {name: f"stall_{name}" for name in WarpStalls.model_fields}
    stalls = {name: number_in(row, column, path, row["kernel"]) for name, column in columns.items() if column in row}
    resident_warps = number_in(row, "warps_per_sm", path, row["kernel"])
    mix = Mix(active_cycles_avg=cycles, active_cycles_max=cycles, achieved_warps_per_sm=resident_warps,
              stalls=WarpStalls(**stalls), **busy)  # fmt: skip
    return warp_demand(mix, warps, resident_warps / warps, blocks_per_sm, gpu.limits.sub_partitions, gpu.model)


def _progress_alone(folder: Path) -> Mapping[tuple[str, int], float]:
    """Rate of each of k resident blocks of a kernel, relative to a block that has its SM alone."""
    path = folder / RESIDENCY
    return {
        (row["kernel"], k): number_in(row, "throughput", path, row["kernel"]) / k
        for row in _rows(path, ("kernel", "k", "waves", "throughput"))
        if row["waves"] == STEADY_WAVES
        for k in [count_in(row, "k", 1, path, row["kernel"])]
    }


def _warps(folder: Path) -> dict[str, int]:
    path = folder / RESIDENCY
    rows = _rows(path, ("kernel", "threads"))
    return {row["kernel"]: count_in(row, "threads", 1, path, row["kernel"]) // 32 for row in rows}


def _rows(path: Path, columns: tuple[str, ...]) -> Sequence[Row]:
    return [row for _, row in recorded_rows(path, columns, "a folder as experiments/h200_microbench")]


def summary(folder: Path, gpu: str) -> Summary:
    """The errors over all mixes that were recorded on a GPU."""
    (found,) = summaries(score_sharing(folder, load_gpu(gpu)), {})
    return found


if __name__ == "__main__":
    HERE = Path(__file__).resolve().parent
    for folder, gpu in ((HERE, "h200"), (HERE.parent / "h100_microbench", "h100-sxm")):
        found = summary(folder, gpu)
        errors = f"mean error {found.mape_percent:.1f} %, bias {found.bias_percent:+.1f} %"
        print(f"{gpu}: {errors} of {found.points} mixes; no gain at all: {found.nothing_percent:.1f} %")
