"""Nsight Compute counters, under Nsight's own metric names, as kernel launches of a trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf
from typing import Any

from gpusim.io.timeline import whole
from gpusim.trace.fields import MAX_CLOCK_MHZ
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls

Counters = Mapping[str, str]  # metric name to its value as text, base units (ns, bytes, %)

BUSY_PERCENT = {  # of the cycles in which an SM was active
    "issue_cycles": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "alu_cycles": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "fma_cycles": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_cycles": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "lsu_cycles": "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "l1_cycles": "l1tex__throughput.avg.pct_of_peak_sustained_active",
}
PIPES_PERCENT = {  # the same, where they were counted
    "special_cycles": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "double_cycles": "sm__pipe_shared_cycles_active.avg.pct_of_peak_sustained_active",
    "sm_cycles": "sm__throughput.avg.pct_of_peak_sustained_active",
}
LEAST_SM_PERCENT = "sm__throughput.avg.pct_of_peak_sustained_elapsed"  # of all cycles, so no more than of active ones
HEAVY_PERCENT = "sm__pipe_fmaheavy_cycles_active.avg.pct_of_peak_sustained_active"
TOTALS = {  # of the launch
    "warp_instructions": "smsp__inst_executed.sum",
    "l1_read_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "l1_write_bytes": "l1tex__m_l1tex2xbar_write_bytes.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
    "dram_write_bytes": "dram__bytes_write.sum",
}
SECTOR_BYTES = 32
SECTORS = {  # of the launch
    "l2_read_bytes": "lts__t_sectors_op_read.sum",
    "l2_write_bytes": "lts__t_sectors_op_write.sum",
}
AS_COUNTED = {
    "l1_hit_percent": "l1tex__t_sector_hit_rate.pct",
    "l2_hit_percent": "lts__t_sector_hit_rate.pct",
    "achieved_warps_per_sm": "sm__warps_active.avg.per_cycle_active",
    "active_cycles_min": "sm__cycles_active.min",
    "active_cycles_avg": "sm__cycles_active.avg",
    "active_cycles_max": "sm__cycles_active.max",
}
STALLS = {name: name for name in WarpStalls.model_fields} | {"dispatch": "dispatch_stall"}
STALL_COUNTER = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
TELLING_STALLS = ("selected", "not_selected", "long_scoreboard")  # without these the others tell nothing
DURATION = "gpu__time_duration.sum"
L2_SECTORS = "lts__t_sectors.sum"  # what ncu --set full has for lts__t_bytes.sum
L2_BUSY_PERCENT = "lts__throughput.avg.pct_of_peak_sustained_elapsed"
ELAPSED = "sm__cycles_elapsed.max"
SHARED_MEMORY_CONFIG = "launch__shared_mem_config_size"
REQUIRED = (
    "Kernel Name",
    "Grid Size",
    "Block Size",
    "launch__grid_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    SHARED_MEMORY_CONFIG,
    DURATION,
    L2_BUSY_PERCENT,
    *BUSY_PERCENT.values(),
    *TOTALS.values(),
    *SECTORS.values(),
    *AS_COUNTED.values(),
    *(STALL_COUNTER.format(part) for part in STALLS.values()),
)


def trimmed(value: float) -> float:
    """The value to seven significant digits: more than the counters mean, and short to print."""
    return float(f"{value:.7g}")


def dimensions(text: str) -> tuple[int, int, int]:
    """Three numbers out of text such as `(3136, 4, 1)`."""
    x, y, z = (int(number) for number in re.findall(r"\d+", text))
    return x, y, z


def mix_from_counters(counters: Counters, sm_count: int) -> Mix | None:
    """Return the demand per block of one launch, averaged over it, as far as it was counted; None where nothing was."""
    blocks = int(counters["launch__grid_size"])
    fields: dict[str, Any] = {}
    if "sm__cycles_active.avg" in counters:
        sm_cycles_per_block = float(counters["sm__cycles_active.avg"]) * sm_count / blocks
        pipes = BUSY_PERCENT | PIPES_PERCENT
        busy = {name: float(counters[counter]) for name, counter in pipes.items() if counter in counters}
        if LEAST_SM_PERCENT in counters:
            busy.setdefault("sm_cycles", float(counters[LEAST_SM_PERCENT]))
        if HEAVY_PERCENT in counters and "fma_cycles" in busy:  # fma counts the mean of the two halves
            busy["multiply_cycles"] = max(0.0, 2.0 * (float(counters[HEAVY_PERCENT]) - busy["fma_cycles"]))
        fields |= {name: trimmed(percent / 100 * sm_cycles_per_block) for name, percent in busy.items()}
    fields |= {name: trimmed(float(counters[c]) / blocks) for name, c in TOTALS.items() if c in counters}
    fields |= {
        name: trimmed(float(counters[c]) * SECTOR_BYTES / blocks) for name, c in SECTORS.items() if c in counters
    }
    fields |= {name: trimmed(float(counters[c])) for name, c in AS_COUNTED.items() if c in counters}
    for name in ("l1_hit_percent", "l2_hit_percent"):
        if name in fields:
            fields[name] = 100.0 if 100.0 < fields[name] < inf else fields[name]  # the counter does that
    if L2_SECTORS in counters:
        fields.setdefault("l2_bytes", trimmed(float(counters[L2_SECTORS]) * SECTOR_BYTES / blocks))
    if L2_BUSY_PERCENT in counters and DURATION in counters:
        l2_busy = float(counters[L2_BUSY_PERCENT]) / 100
        fields["l2_busy_us"] = trimmed(l2_busy * float(counters[DURATION]) / 1000 / blocks)
    if SHARED_MEMORY_CONFIG in counters:
        fields["shared_memory_config_bytes"] = int(counters[SHARED_MEMORY_CONFIG])
    cluster = cluster_of(counters)
    if cluster is not None:
        fields["cluster"] = cluster
    stalls = {name: STALL_COUNTER.format(part) for name, part in STALLS.items()}
    if all(stalls[name] in counters for name in TELLING_STALLS):
        counted = {name: trimmed(float(counters[c])) for name, c in stalls.items() if c in counters}
        fields["stalls"] = WarpStalls(**counted)
    return Mix(**fields) if fields.keys() - {"shared_memory_config_bytes", "cluster"} else None


def clocked(mix: Mix, counters: Counters, duration_us: float) -> Mix:
    """The demand with the SM clock of a recording: cycles that Nsight Compute counted over a time without it.

    A duration that Nsight Compute recorded itself tells no clock, because it may lock the clock meanwhile.
    """
    cycles = float(counters.get(ELAPSED) or 0.0)
    if not 0.0 < cycles < inf:
        return mix
    return mix.model_copy(update={"clock_mhz": trimmed(min(MAX_CLOCK_MHZ, cycles / duration_us))})


def cluster_of(counters: Counters) -> tuple[int, int, int] | None:
    """Dimensions of a launch's clusters; 1, 1, 1 of one without, None where they were not counted."""
    sizes = [whole(counters.get(f"launch__cluster_dim_{axis}")) for axis in "xyz"]
    if None in sizes:
        return None
    x, y, z = (max(1, size or 0) for size in sizes)
    return x, y, z


def launch_from_counters(counters: Counters, sm_count: int, stream: str = "main") -> KernelLaunch:
    """One profiled launch; the shared memory that the driver reserves is left out.

    A counter without a value was not counted: not every GPU has all.
    """
    counters = {counter: value for counter, value in counters.items() if value}
    return KernelLaunch(
        name=counters["Kernel Name"],
        grid=dimensions(counters["Grid Size"]),
        block=dimensions(counters["Block Size"]),
        registers_per_thread=int(counters["launch__registers_per_thread"]),
        static_shared_memory_bytes=int(counters["launch__shared_mem_per_block_static"]),
        dynamic_shared_memory_bytes=int(counters["launch__shared_mem_per_block_dynamic"]),
        duration_us=trimmed(float(counters[DURATION]) / 1000),
        stream=stream,
        mix=mix_from_counters(counters, sm_count),
    )
