"""The counters of Nsight Compute that a recording holds, under its own names, and the rows of its CSV."""

from __future__ import annotations

import csv

from gpusim.io.ncu import ELAPSED, HEAVY_PERCENT, PIPES_PERCENT, REQUIRED

COUNTERS = (
    *(counter for counter in REQUIRED if " " not in counter),  # the others Nsight Compute always writes
    "launch__block_size",
    "launch__shared_mem_per_block_driver",
    *(f"launch__occupancy_limit_{limit}" for limit in ("blocks", "registers", "shared_mem", "warps")),
    "launch__waves_per_multiprocessor",
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
