"""Microbenchmarks of a real GPU: the constants of the model, and how its scheduler behaves.

`microbench.cu` runs kernels of known work and logs every block (`gpusim.lab.record.block_log`). This module builds and
runs it on this machine's GPU and writes the tables (`gpusim.lab.record.microbench_tables`).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from gpusim.common.files import make_folder, write_text
from gpusim.common.spreadsheet import records
from gpusim.lab.record.block_log import Table, load_recording
from gpusim.lab.record.microbench_tables import constants, summarise
from gpusim.lab.record.toolchain import build, run

LEAST_CAPABILITY = 8.0  # for asynchronous copies


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
        tables = summarise(recording)
        make_folder(out_dir)
        for name, table in tables.items():
            write_csv(out_dir / f"{name}.csv", table)
        result = {"device": recording.device, "constants": constants(recording, tables)}
        write_text(out_dir / "constants.json", json.dumps(result, indent=2) + "\n")
        return result
