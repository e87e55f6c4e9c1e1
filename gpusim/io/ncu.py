"""Nsight Compute counters, under Nsight's own metric names, as kernel launches of a trace."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import inf

from gpusim.trace import KernelLaunch, Mix, WarpStalls

Counters = Mapping[str, str]  # metric name to its value as text, base units (ns, bytes, %)

BUSY_PERCENT = {  # of the cycles in which an SM was active
    "issue_cycles": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "alu_cycles": "sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active",
    "fma_cycles": "sm__pipe_fma_cycles_active.avg.pct_of_peak_sustained_active",
    "tensor_cycles": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "lsu_cycles": "sm__inst_executed_pipe_lsu.avg.pct_of_peak_sustained_active",
    "l1_cycles": "l1tex__throughput.avg.pct_of_peak_sustained_active",
}
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
REQUIRED = (
    "Kernel Name",
    "Grid Size",
    "Block Size",
    "launch__grid_size",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__shared_mem_config_size",
    "gpu__time_duration.sum",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed",
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


def mix_from_counters(counters: Counters, sm_count: int) -> Mix:
    """Demand per block of one launch, averaged over it.

    Args:
        counters: all of `REQUIRED`.
        sm_count: SMs of the GPU that was profiled.
    """
    blocks = int(counters["launch__grid_size"])
    sm_cycles_per_block = float(counters["sm__cycles_active.avg"]) * sm_count / blocks
    fields = {
        name: trimmed(float(counters[counter]) / 100 * sm_cycles_per_block) for name, counter in BUSY_PERCENT.items()
    }
    fields |= {name: trimmed(float(counters[counter]) / blocks) for name, counter in TOTALS.items()}
    fields |= {name: trimmed(float(counters[counter]) * SECTOR_BYTES / blocks) for name, counter in SECTORS.items()}
    fields |= {name: trimmed(float(counters[counter])) for name, counter in AS_COUNTED.items()}
    if 100.0 < fields["l2_hit_percent"] < inf:  # the counter does that
        fields["l2_hit_percent"] = 100.0
    l2_busy = float(counters["lts__throughput.avg.pct_of_peak_sustained_elapsed"]) / 100
    fields["l2_busy_us"] = trimmed(l2_busy * float(counters["gpu__time_duration.sum"]) / 1000 / blocks)
    stalls = {name: trimmed(float(counters[STALL_COUNTER.format(part)])) for name, part in STALLS.items()}
    return Mix.model_validate(
        {
            **fields,
            "shared_memory_config_bytes": int(counters["launch__shared_mem_config_size"]),
            "stalls": WarpStalls.model_validate(stalls),
        }
    )


def launch_from_counters(counters: Counters, sm_count: int, stream: str = "main") -> KernelLaunch:
    """One profiled launch; the shared memory that the driver reserves is left out."""
    return KernelLaunch(
        name=counters["Kernel Name"],
        grid=dimensions(counters["Grid Size"]),
        block=dimensions(counters["Block Size"]),
        registers_per_thread=int(counters["launch__registers_per_thread"]),
        static_shared_memory_bytes=int(counters["launch__shared_mem_per_block_static"]),
        dynamic_shared_memory_bytes=int(counters["launch__shared_mem_per_block_dynamic"]),
        duration_us=trimmed(float(counters["gpu__time_duration.sum"]) / 1000),
        stream=stream,
        mix=mix_from_counters(counters, sm_count),
    )
