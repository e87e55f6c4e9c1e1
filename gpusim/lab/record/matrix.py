"""The resource matrix: kernels that load one resource each, isolated and every pair of them.

`matrix.cu` has the kernels and times them; `matrix.csv` says which of them run, and with how many warps. This module
builds and runs the program on this machine's GPU and writes its tables. With Nsight Compute it also writes the counters
of each kernel (experiments/resource_matrix reads all of it).
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from gpusim.common.errors import InputError
from gpusim.common.files import MAX_BYTES, make_folder, read_text, write_table
from gpusim.common.spreadsheet import records
from gpusim.common.tables import counted
from gpusim.lab.record.counters import COUNTERS, counted_rows
from gpusim.lab.record.toolchain import FROM_START, build, compute_capability, listed, require_ncu, run, under_ncu

LEAST_CAPABILITY = 8.0  # for BF16 and TF32
HOPPER = "9.0"
PLAN = "plan.txt"  # what the program reads
TABLES = ("device", "kernels", "isolated", "pairs")
COUNTED = "counters.csv.gz"
ONLY_RECORDED = "only the counters of a recording are counted"
PROFILED_TOGETHER = 30  # kernels of one run under ncu, so that one that is cut short leaves what was counted before

EXTRA_COUNTERS = {  # beside those of a recording, where the GPU has them: of a base name, which roll-up
    r"sm__pipe_\w+_cycles_active": ".avg.pct_of_peak_sustained_active",
    r"sm__inst_executed_pipe_[a-z0-9]+(_op_[a-z0-9]+)?": ".avg.pct_of_peak_sustained_active",
    r"sm__mio(_inst_issued|_pq_\w+_cycles_active|2rf_writeback_active)": ".avg.pct_of_peak_sustained_active",
    r"(sm|l1tex)__throughput": ".avg.pct_of_peak_sustained_active",
    r"(dram|lts)__throughput": ".avg.pct_of_peak_sustained_elapsed",
    r"l1tex__data_pipe_lsu_wavefronts(_mem_shared)?": ".avg.pct_of_peak_sustained_active",
    r"l1tex__data_bank_conflicts_pipe_lsu_mem_shared": ".sum",
    r"lts__t_sectors_op_(red|atom)": ".sum",
    r"smsp__average_warps_issue_stalled_(?!\w+_not_issued)\w+_per_issue_active": ".ratio",
}


class Cell(NamedTuple):
    """A kernel of the matrix."""

    kernel: str  # its name in matrix.cu
    resource: str  # that it loads
    paired: tuple[int, ...]  # warps per scheduler with which it runs isolated and in pairs
    isolated: tuple[int, ...]  # with which it runs isolated only


def _cells() -> Iterator[Cell]:
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            paired, isolated = (tuple(map(int, row[column].split())) for column in ("paired", "isolated"))
            yield Cell(row["kernel"], row["resource"], paired, isolated)


CELLS = tuple(_cells())
RESOURCES = {cell.kernel: cell.resource for cell in CELLS}


def plan(capability: str, turns: dict[str, int] | None = None) -> list[str]:
    """Return the lines that the program reads; turns, by kernel and warps as `fma1/4`, are calibrated if missing."""
    return [
        f"{cell.kernel} {warps} {(turns or {}).get(f'{cell.kernel}/{warps}', 0)} {int(warps in cell.paired)}"
        for cell in CELLS
        if cell.kernel != "wgmma" or capability == HOPPER
        for warps in sorted(cell.paired + cell.isolated)
    ]


def record_matrix(out_dir: Path, *, counters: bool = False) -> Iterator[str]:
    """Time the matrix on this machine's GPU; yield a line for each file that it has written.

    Takes a minute or two of GPU time, with counters (`ncu` on PATH) about five, and 9 GB of GPU memory.
    """
    if counters:
        require_ncu()
    capability = compute_capability(LEAST_CAPABILITY)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = folder / "matrix"
        build(Path(__file__).with_suffix(".cu"), program, LEAST_CAPABILITY, "cuda")
        make_folder(out_dir)
        said = run([str(program), str(listed(folder / PLAN, plan(capability))), str(folder)], "the resource matrix")
        for name in TABLES:
            path = out_dir / f"{name}.csv.gz"
            write_table(path, read_text(folder / f"{name}.csv", MAX_BYTES))
            yield str(path)
        yield from said.splitlines()
        if counters:
            yield from _profile(program, folder, capability, out_dir / COUNTED)


def _profile(program: Path, folder: Path, capability: str, path: Path) -> Iterator[str]:
    """Count every kernel once, with the turns that were timed; write the table anew whenever it has more rows."""
    with (folder / "kernels.csv").open(newline="", encoding="utf-8") as file:
        turns = {row["kernel"]: int(row["turns"]) for row in csv.DictReader(file)}
    lines, rows = plan(capability, turns), list[dict[str, str]]()
    metrics = [*COUNTERS, *(name for name in _extra_counters() if name not in COUNTERS)]
    for begin in range(0, len(lines), PROFILED_TOGETHER):
        part = lines[begin : begin + PROFILED_TOGETHER]
        try:
            log = _under_ncu(program, folder, part, metrics)
        except InputError as error:
            if len(metrics) == len(COUNTERS):
                raise
            print(f"{error}: {ONLY_RECORDED}", file=sys.stderr)
            metrics = [*COUNTERS]
            log = _under_ncu(program, folder, part, metrics)
        launches = counted_rows(log)
        if len(launches) != len(part):
            raise InputError(
                None,
                "Nsight Compute's CSV",
                f"has {counted(len(launches), 'row')}",
                f"{len(part)}, one for each launch",
            )
        for line, launch in zip(part, launches, strict=True):
            kernel, warps, _, _ = line.split()
            cells = {name: value.replace(",", "") for name, value in launch.items() if name in metrics}
            named = {name: launch[name] for name in ("Kernel Name", "Grid Size", "Block Size")}
            rows.append({"kernel": f"{kernel}/{warps}"} | named | cells)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        write_table(path, records(columns, rows))
    yield f"{path}: {counted(len(metrics), 'counter')} of {counted(len(rows), 'kernel')}"


def _under_ncu(program: Path, folder: Path, lines: Sequence[str], metrics: Sequence[str]) -> str:
    command = [str(program), str(listed(folder / PLAN, lines)), str(folder), "profile"]
    return under_ncu(command, folder / "ncu.csv", metrics, *FROM_START)


def _extra_counters() -> list[str]:
    """The counters of `EXTRA_COUNTERS` that ncu lists for the GPU of this machine; none if it lists none."""
    try:
        queried = run(["ncu", "--query-metrics"], "Nsight Compute")
    except InputError as error:
        print(f"{error}: {ONLY_RECORDED}", file=sys.stderr)
        return []
    names = dict.fromkeys(line.split()[0] for line in queried.splitlines() if line.strip())
    return [
        name + rollup for pattern, rollup in EXTRA_COUNTERS.items() for name in names if re.fullmatch(pattern, name)
    ]
