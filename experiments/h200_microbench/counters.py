"""The microbenchmarks under Nsight Compute: `python experiments/h200_microbench/counters.py FOLDER`.

Profiles the kernels of the residency experiment, and accesses of known size that hit L2. Writes counters.csv and
memory_counters.csv to a folder. It needs nvcc, a GPU and `ncu`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.io.ncu import STALL_COUNTER, STALLS
from gpusim.lab.record import microbench
from gpusim.lab.record.block_log import LoggedLaunch, Table, load_recording
from gpusim.lab.record.counters import counted_rows
from gpusim.lab.record.toolchain import build, require_ncu, under_ncu

COUNTERS = {
    "gpu__time_duration.sum": "duration_ns",
    "launch__shared_mem_config_size": "shared_memory_config_bytes",
    "sm__warps_active.avg.per_cycle_active": "warps_per_sm",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "issue_percent",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active": "alu_percent",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active": "fma_percent",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active": "lsu_percent",
    "l1tex__throughput.avg.pct_of_peak_sustained_active": "l1_percent",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_percent",
    "smsp__inst_executed.sum": "warp_instructions",
} | {STALL_COUNTER.format(reason): f"stall_{reason}" for reason in STALLS.values() if reason != "imc_miss"}
"""Nsight Compute's metrics of the kernels of the residency experiment, and our short names for them."""


MEMORY_COUNTERS = {
    "gpu__time_duration.sum": "duration_ns",
    "l1tex__m_l1tex2xbar_write_bytes.sum": "l1_to_l2_bytes",
    "l1tex__m_xbar2l1tex_read_bytes.sum": "l2_to_l1_bytes",
    "lts__t_bytes.sum": "l2_bytes",
    "lts__t_sectors.sum": "l2_sectors",
    "lts__t_sectors_op_read.sum": "l2_read_sectors",
    "lts__t_sectors_op_write.sum": "l2_write_sectors",
    "lts__t_sectors_op_red.sum": "l2_red_sectors",
    "lts__t_sectors_op_atom.sum": "l2_atom_sectors",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_percent",
}
"""Nsight Compute's metrics of accesses of known size that hit L2, and our short names for them."""


def counter_table(text: str, launches: Sequence[LoggedLaunch]) -> Table:
    """Read Nsight Compute's CSV (raw page, base units) of `microbench OUT counters`, and what it launched then, last.

    Raises:
        InputError: the CSV does not have a row for each of those launches.
    """
    wanted = [launch for launch in launches if launch.experiment == "counters"]
    return [
        {"kernel": launch.kernel, "k": launch.per_sm, "blocks": len(launch.blocks)} | values
        for launch, values in zip(wanted, _counted(text, COUNTERS, len(wanted)), strict=True)
    ]


def memory_counter_table(text: str, scalars: Table) -> Table:
    """Read Nsight Compute's CSV (raw page, base units) of `microbench OUT memory_counters`, and each launch's bytes.

    Raises:
        InputError: the CSV does not have a row for each of those launches.
    """
    wanted = [row for row in scalars if row["experiment"] == "memory_counters"]
    return [
        {"access": row["case"], "bytes": int(row["value"])} | values
        for row, values in zip(wanted, _counted(text, MEMORY_COUNTERS, len(wanted)), strict=True)
    ]


def _counted(text: str, counters: dict[str, str], launches: int) -> Table:
    """The counters of the last launches that Nsight saw."""
    rows = counted_rows(text)
    if len(rows) < launches:
        raise InputError(None, "Nsight Compute's CSV", f"has {len(rows)} launches", f"at least {launches}")
    return [
        {short: float(row[name].replace(",", "")) for name, short in counters.items() if row.get(name)}
        for row in rows[len(rows) - launches :]
    ]


def record(program: Path, folder: Path) -> dict[str, Table]:
    """Profile the built microbenchmarks, which log into a folder; return both tables by name."""
    command, log = [str(program), str(folder)], folder / "ncu.csv"
    residency = under_ncu([*command, "counters"], log, COUNTERS)
    tables = {"counters": counter_table(residency, load_recording(folder).launches)}
    memory = under_ncu([*command, "memory_counters"], log, MEMORY_COUNTERS, "--kernel-name", "regex:memory_kernel")
    return tables | {"memory_counters": memory_counter_table(memory, load_recording(folder).scalars)}


def main() -> None:
    """Build, profile and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder of the tables")
    args = parser.parse_args()
    require_ncu()
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "microbench"
        build(Path(microbench.__file__).with_suffix(".cu"), program, microbench.LEAST_CAPABILITY)
        for name, table in record(program, Path(scratch)).items():
            microbench.write_csv(args.out / f"{name}.csv", table)


if __name__ == "__main__":
    main()
