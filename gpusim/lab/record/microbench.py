"""Microbenchmarks of a real GPU: the constants of the model, and how its scheduler behaves.

`microbench.cu` runs kernels of known work and logs every block (`gpusim.lab.record.block_log`). This module builds and
runs it on this machine's GPU, and makes of its log the tables behind the constants of a GPU file. The study
`experiments/h200_microbench` explains each table, and makes more tables of the same log.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.common.files import make_folder, write_text
from gpusim.common.spreadsheet import records
from gpusim.lab.record.block_log import (
    MicrobenchLog,
    Row,
    Table,
    gaps_ns,
    load_recording,
    order_violation_ns,
    refill_delays,
    repeats,
    spread,
)
from gpusim.lab.record.toolchain import build, run

LEAST_CAPABILITY = 8.0  # for asynchronous copies
MEMORY_COLUMNS = ("experiment", "case", "quantity", "median", "lowest", "highest")
NOT_MEMORY = {"launch_rate", "timers", "cluster_room", "schedulers"}  # experiments with scalars of other tables


def write_csv(path: Path, table: Table) -> None:
    """Write a table; its columns are the keys of its rows in order of appearance."""
    write_text(path, records(list(dict.fromkeys(name for row in table for name in row)), table))


def run_microbenchmarks(out_dir: Path, raw_dir: Path | None = None) -> dict[str, Any]:
    """Build the microbenchmarks, run them on this machine's GPU and write tables (CSV) and constants.json.

    Takes seconds of GPU time and about 30 GB of GPU memory where it has them. ``raw_dir`` keeps the raw logs (about 200
    MB). The result has the device as the driver describes it, and each constant's value, unit and meaning.
    """
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "microbench"
        build(Path(__file__).with_suffix(".cu"), program, LEAST_CAPABILITY)
        raw = Path(scratch) if raw_dir is None else raw_dir
        make_folder(raw)
        run([str(program), str(raw)], "microbench")
        recording = load_recording(raw)
        tables = {name: list(make(recording)) for name, make in TABLES.items()}
        make_folder(out_dir)
        for name, table in tables.items():
            write_csv(out_dir / f"{name}.csv", table)
        result = {"device": recording.device, "constants": constants(recording, tables)}
        write_text(out_dir / "constants.json", json.dumps(result, indent=2) + "\n")
        return result


# ---- tables and constants, which need no GPU


def gap_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Gaps between kernels of one sequence, by experiment and case."""
    for (experiment, case), launches in recording.cases("gap_stream", "gap_event", "gap_carveout").items():
        gaps = gaps_ns(launches)
        life = np.median([np.median(launch.life_clocks) for launch in launches]) / recording.clocks_per_ns
        row = {"experiment": experiment, "case": case, "gaps": len(gaps)}
        yield row | spread(gaps, "gap_ns", 0) | {"block_life_ns": round(float(life))}


def turn_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Gaps between kernels of one stream beside others, by number of streams, grid and whether lives are alike."""
    for (_, case), launches in recording.cases("gap_beside").items():
        roles = sorted({launch.role for launch in launches})
        gaps = np.concatenate([gaps_ns([launch for launch in launches if launch.role == role]) for role in roles])
        row = {"case": case, "streams": len(roles), "gaps": len(gaps), "gap_ns_mean": round(float(gaps.mean()))}
        yield row | spread(gaps, "gap_ns", 0)


def start_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Streams released at once, and children that wait for one parent: start of the n-th to start, ns."""
    for (experiment, case), launches in recording.cases("release", "fork").items():
        delays = []
        for group in repeats(launches):
            parent = [launch.ends_ns.max() for launch in group if launch.role == "parent"]
            first = [int(launch.starts_ns.min()) for launch in group if launch.role != "parent"]
            delays.append(sorted(ns - int(parent[0] if parent else min(first)) for ns in first))
        for place, values in enumerate(np.array(delays, np.float64).T, start=1):
            row = {"experiment": experiment, "case": case, "nth_to_start": place, "repeats": len(values)}
            yield row | spread(values, "delay_ns", 0)


def launch_table(recording: MicrobenchLog) -> Table:
    """Launch rate of empty blocks (blocks a us), and the life of a block without work, alone on its SM."""
    table = [
        {"experiment": "launch_rate", "case": case, "quantity": quantity, "value": round(value, 1)}
        for (_, case, quantity), (value, _, _) in _medians(recording, "launch_rate").items()
    ]
    for (_, case), launches in recording.cases("no_work").items():
        life = np.median(launches[-1].life_clocks) / recording.clocks_per_ns
        table.append({"experiment": "no_work", "case": case, "quantity": "block_life_ns", "value": round(float(life))})
    return table


def _medians(recording: MicrobenchLog, *experiments: str) -> dict[tuple[str, str, str], tuple[float, float, float]]:
    values: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in recording.scalars:
        if row["experiment"] in experiments:
            values[row["experiment"], row["case"], row["quantity"]].append(row["value"])
    return {key: (float(np.median(found)), min(found), max(found)) for key, found in values.items()}


def memory_table(recording: MicrobenchLog) -> Table:
    """Bandwidths (GB/s, 1e9 bytes) and latencies (ns): median, lowest and highest repeat."""
    experiments = sorted({row["experiment"] for row in recording.scalars} - NOT_MEMORY)
    return [
        dict(zip(MEMORY_COLUMNS, (*key, *(round(value, 1) for value in values)), strict=True))
        for key, values in _medians(recording, *experiments).items()
    ]


def refill_table(recording: MicrobenchLog) -> Iterator[Row]:
    """Delay from the end of a block to the start of its successor on the SM; and by how much order is kept."""
    for (_, case), launches in recording.cases("refill").items():
        delays = np.concatenate([refill_delays(launch, recording.clocks_per_ns) for launch in launches])
        worst = max(order_violation_ns(launch) for launch in launches)
        row = {"case": case, "refills": len(delays)} | spread(delays, "delay_ns", 0)
        yield row | {"delay_ns_longest": round(float(delays.max())), "order_violation_ns": worst}


# Each table's name (and file) and the function that makes it.
TABLES: dict[str, Callable[[MicrobenchLog], Iterable[Row]]] = {
    "gaps": gap_table,
    "turns": turn_table,
    "starts": start_table,
    "launch": launch_table,
    "refill": refill_table,
    "memory": memory_table,
}


def _turn_us(turns: Table) -> float:
    """Growth of the mean gap per additional stream, us: least squares through the gap without others."""
    beside = np.array([row["streams"] for row in turns], np.float64) - 1.0
    gaps = np.array([row["gap_ns_mean"] for row in turns], np.float64)
    return float(beside @ (gaps - gaps[beside == 0].mean()) / (beside @ beside)) / 1000


def constants(recording: MicrobenchLog, tables: dict[str, Table]) -> dict[str, Row]:
    """The constants that the model can use, each with value, unit and meaning."""
    sms = recording.sm_count
    memory = {(r["experiment"], r["case"], r["quantity"]): r["median"] for r in tables["memory"]}

    def rate(experiment: str, case: str) -> float:
        return float(memory[experiment, case, "stream_gb_per_s"])

    def gap(experiment: str, case: str) -> float:
        return next(
            float(r["gap_ns_median"]) / 1000
            for r in tables["gaps"]
            if (r["experiment"], r["case"]) == (experiment, case)
        )

    work_free = [r["value"] for r in tables["launch"] if r["experiment"] == "no_work" and r["case"].startswith("gemm")]
    empty = next(r["value"] for r in tables["launch"] if r["case"] == "empty/threads=128/shared_bytes=0")
    forks = [r["delay_ns_median"] for r in tables["starts"] if r["experiment"] == "fork"]
    refill = float(np.median([r["delay_ns_median"] for r in tables["refill"]]))
    life = "life_us=5/written_bytes=0"
    found: list[tuple[str, float, str, str]] = [
        ("sm_clock_mhz", recording.clocks_per_ns * 1000, "MHz", "SM clock during the run"),
        ("kernel_gap_us", gap("gap_stream", f"grid={sms}/{life}"), "us",
         "end of a kernel's last block to the first start of the next in its stream, queued ahead"),
        ("kernel_gap_full_us", gap("gap_stream", f"grid={10 * sms}/{life}"), "us",
         "the same when ten blocks an SM end together"),
        ("event_gap_us", gap("gap_event", f"grid={sms}"), "us", "the same across streams, by an event"),
        ("stream_turn_us", _turn_us(tables["turns"]), "us",
         "what the gap between kernels of a stream grows by for each other stream that has kernels"),
        ("fork_step_us", float(np.mean(np.diff(forks))) / 1000, "us",
         "from one child stream's start to the next's, when several wait for one event"),
        ("block_refill_us", refill / 1000, "us", "end of a block to the start of its successor on the SM"),
        ("block_launch_per_us", empty, "1/us", "blocks that the device can start, near-empty blocks of 128 threads"),
        ("block_floor_us", float(np.median(work_free)) / 1000, "us",
         "life of a GEMM block without a main loop, alone on its SM"),
        ("dram_read_gb_per_s", rate("dram_bandwidth", f"read/sms={sms}/warps=32"), "GB/s", "sustained, all SMs"),
        ("dram_write_gb_per_s", rate("dram_bandwidth", f"write/sms={sms}/warps=32"), "GB/s", "sustained, all SMs"),
        ("dram_copy_gb_per_s", rate("dram_bandwidth", f"copy/sms={sms}/warps=32"), "GB/s",
         "sustained, all SMs, bytes read plus written"),
        ("dram_read_sm_gb_per_s", rate("dram_bandwidth", "read/sms=8/warps=32") / 8, "GB/s", "one SM of eight"),
        ("l2_read_gb_per_s", rate("l2_bandwidth", f"read/sms={sms}/warps=32"), "GB/s", "L2 hits, all SMs"),
        ("l2_write_gb_per_s", rate("l2_bandwidth", f"write/sms={sms}/warps=32"), "GB/s", "into L2, all SMs"),
        ("l2_read_sm_gb_per_s", rate("l2_bandwidth", "read/sms=8/warps=32") / 8, "GB/s", "L2 hits, one SM of eight"),
        ("write_sm_gb_per_s", rate("l2_bandwidth", "write/sms=8/warps=32") / 8, "GB/s", "stores, one SM of eight"),
        ("l2_red_gb_per_s", rate("l2_bandwidth", f"red/sms={sms}/warps=16"), "GB/s",
         "32-bit float reductions into L2 without return, coalesced, bytes of operands, all SMs"),
        ("l2_atom_gb_per_s", rate("l2_bandwidth", f"atom/sms={sms}/warps=16"), "GB/s", "the same with return"),
        ("red_sm_gb_per_s", rate("l2_bandwidth", "red/sms=8/warps=16") / 8, "GB/s", "reductions, one SM of eight"),
        ("atom_sm_gb_per_s", rate("l2_bandwidth", "atom/sms=8/warps=16") / 8, "GB/s",
         "atomics with return, one SM of eight"),
        ("l2_latency_ns", memory["l2_latency", "idle", "latency_ns"], "ns", "dependent load that hits L2"),
        ("dram_latency_ns", memory["dram_latency", "beside_read/warps=1", "latency_ns"], "ns",
         "dependent load from DRAM, device lightly loaded"),
        ("dram_latency_loaded_ns", memory["dram_latency", "beside_read/warps=32", "latency_ns"], "ns",
         "the same beside reads at full bandwidth"),
    ]  # fmt: skip
    return {name: {"value": float(f"{value:.4g}"), "unit": unit, "meaning": text} for name, value, unit, text in found}
