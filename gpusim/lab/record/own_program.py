"""Profiles a user's program with Nsight Compute and builds a trace of its kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import make_folder
from gpusim.common.tables import counted
from gpusim.io import source
from gpusim.io.importing import import_profile
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.toolchain import NCU, explain, require_ncu
from gpusim.trace.programs import plain_name

DEVICE_COUNTERS = ("device__attribute_display_name", "device__attribute_multiprocessor_count")


def record_program(command: Sequence[str], folder: Path) -> Iterator[str]:
    """Run a command with every kernel profiled; write ncu's CSV and the trace into a folder.

    The program's own output is not captured. Every kernel runs many times, once for each set of counters, so that the
    run takes far longer than without the profiler.
    """
    require_ncu()
    make_folder(folder)
    script = next((word for word in command if word.endswith(".py")), command[0])
    name = plain_name(Path(script).stem)
    profile = folder / f"{name}.ncu.csv"
    metrics = ",".join((*COUNTERS, *DEVICE_COUNTERS))
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        log = Path(scratch) / "ncu.csv"
        options = ["--target-processes", "all", "--metrics", metrics, "--log-file", str(log)]
        status = subprocess.run([*NCU, *options, *command], check=False).returncode
        said, has_table = _written(log)
        if any("ERR_NVGPUCTRPERM" in line for line in said):
            raise explain("\n".join(said), status, "ncu")
        if status:
            last = next((line for line in reversed(said) if line.startswith("==ERROR==")), "see above")
            raise InputError(
                None, command[0], f"failed with status {status} under ncu ({last})", "a run without errors"
            )
        if not has_table:
            raise InputError(None, command[0], "ran no kernels that ncu saw", "a program that runs kernels on the GPU")
        os.replace(log, profile)
    yield f"{profile}: what ncu counted"
    path, imported = folder / f"{name}.json.gz", import_profile(profile, "ncu")
    imported.trace.save(path)
    for remark in imported.remarks:
        print(remark, file=sys.stderr)
    yield f"{path}: {counted(len(list(imported.trace.operations())), 'kernel')}"


def _written(log: Path) -> tuple[list[str], bool]:
    """The messages in ncu's log, and whether it has a table; of a table, which can exceed memory, no line is kept."""
    said, has_table = [], False
    for line in source.lines(log) if log.exists() else ():
        if line.startswith('"'):
            has_table = True
        else:
            said.append(line)
    return said, has_table
