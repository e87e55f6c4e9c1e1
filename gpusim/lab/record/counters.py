"""The counters of Nsight Compute that a recording holds, under its own names, and the rows of its CSV."""

from __future__ import annotations

import csv

from gpusim.io.ncu import ELAPSED, HEAVY_PERCENT, PIPES_PERCENT

STALLED = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALL_REASONS = (
    "long_scoreboard", "short_scoreboard", "barrier", "math_pipe_throttle", "mio_throttle", "lg_throttle", "wait",
    "not_selected", "selected", "no_instruction", "dispatch_stall",
)  # fmt: skip
COUNTERS = (
    "launch__grid_size",
    "launch__block_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_per_block_driver",
    "launch__shared_mem_config_size",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__waves_per_multiprocessor",
    "gpu__time_duration.sum",
    "sm__cycles_active.avg",
    "sm__cycles_active.min",
    "sm__cycles_active.max",
    "sm__warps_active.avg.per_cycle_active",
    "smsp__inst_executed.sum",
    "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "l1tex__throughput.avg.pct_of_peak_sustained_active",
    "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1tex__m_l1tex2xbar_write_bytes.sum",
    "lts__t_bytes.sum",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "lts__t_sector_hit_rate.pct",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    *map(STALLED.format, (*STALL_REASONS, "imc_miss")),
    "l1tex__t_sector_hit_rate.pct",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    *PIPES_PERCENT.values(),
    HEAVY_PERCENT,
    ELAPSED,
    *(f"launch__cluster_dim_{axis}" for axis in "xyz"),
)


def counted_rows(log: str) -> list[dict[str, str]]:
    """Counters of Nsight Compute, one row per launch or range, from its CSV (raw page); none where it has no table."""
    lines = log.splitlines()
    header = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    return list(csv.DictReader(lines[header:]))[1:] if header is not None else []  # below the names stand their units
