"""Microbenchmarks of a real GPU: the constants of the model, and how its scheduler behaves.

`microbench.cu` runs kernels of known work and logs every block (`gpusim.lab.record.block_log`). This module builds and
runs it on this machine's GPU and writes the tables (`gpusim.lab.record.microbench_tables`), with counters also those of
Nsight Compute (`gpusim.lab.record.microbench_counters`).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from gpusim.common.files import make_folder, write_text
from gpusim.common.spreadsheet import records
from gpusim.lab.record.block_log import Recording, Table, load_recording
from gpusim.lab.record.microbench_counters import COUNTERS, MEMORY_COUNTERS, counter_table, memory_counter_table
from gpusim.lab.record.microbench_tables import constants, summarise
from gpusim.lab.record.toolchain import build, counted, require_ncu, run

LEAST_CAPABILITY = 8.0  # for asynchronous copies


def _record_counters(program: Path, folder: Path) -> dict[str, Table]:
    command, log = [str(program), str(folder)], folder / "ncu.csv"
    residency = counted([*command, "counters"], log, COUNTERS)
    tables = {"counters": counter_table(residency, load_recording(folder).launches)}
    memory = counted([*command, "memory_counters"], log, MEMORY_COUNTERS, "--kernel-name", "regex:memory_kernel")
    return tables | {"memory_counters": memory_counter_table(memory, load_recording(folder).scalars)}


def build_microbench(folder: Path) -> Path:
    """Compiles microbench.cu for this machine's GPU and returns the program.

    Raises:
        InputError: there is no CUDA compiler or no GPU, or the compiler fails.
    """
    program = folder / "microbench"
    build(Path(__file__).with_suffix(".cu"), program, LEAST_CAPABILITY)
    return program


def write_csv(path: Path, table: Table) -> None:
    """Writes a table; its columns are the keys of its rows in order of appearance."""
    write_text(path, records(list(dict.fromkeys(name for row in table for name in row)), table))


def write_results(out_dir: Path, recording: Recording, tables: dict[str, Table]) -> dict[str, Any]:
    """Write every table as NAME.csv and the constants as constants.json; return the content of the latter."""
    for name, table in tables.items():
        write_csv(out_dir / f"{name}.csv", table)
    result = {"device": recording.device, "constants": constants(recording, tables)}
    write_text(out_dir / "constants.json", json.dumps(result, indent=2) + "\n")
    return result


def run_microbenchmarks(out_dir: Path, *, counters: bool = False, raw_dir: Path | None = None) -> dict[str, Any]:
    """Build the microbenchmarks, run them on this machine's GPU and write tables (CSV) and constants.json.

    Takes seconds of GPU time and about 30 GB of GPU memory where it has them. With counters Nsight Compute (`ncu` on
    PATH) profiles the kernels of the residency experiment, too. ``raw_dir`` keeps the raw logs (about 200 MB).

    Returns:
        `device`: the device as the driver describes it; `constants`: by name, each value, unit and meaning.

    Raises:
        InputError: no CUDA compiler, no GPU, no `ncu` when counters are asked for, or one of them fails.
    """
    if counters:
        require_ncu()
    with tempfile.TemporaryDirectory() as scratch:
        program = build_microbench(Path(scratch))
        raw = Path(scratch) if raw_dir is None else raw_dir
        make_folder(raw)
        run([str(program), str(raw)], "microbench")
        recording = load_recording(raw)
        tables = summarise(recording)
        if counters:
            with tempfile.TemporaryDirectory() as profile:
                tables |= _record_counters(program, Path(profile))
        make_folder(out_dir)
        return write_results(out_dir, recording, tables)
