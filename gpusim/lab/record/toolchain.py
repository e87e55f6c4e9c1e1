"""The tools that recording needs (a GPU, nvcc, cuDNN, ncu), and a clear error where one is missing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import MAX_BYTES, read_text

FROM_START = ("--profile-from-start", "off")  # the program says from where on ncu is to count
NCU = ("ncu", "--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none")
NO_GPU_STATUS = 3  # with which our programs say that they found none


def compute_capability(least: float) -> str:
    """The first GPU's compute capability, such as "9.0"; at least the one that is needed."""
    command = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    found = ""
    if shutil.which(command[0]) is not None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        found = done.stdout.split("\n")[0].strip() if done.returncode == 0 else ""
    if not re.fullmatch(r"\d+\.\d", found) or float(found) < least:
        problem = f"compute capability {found}" if found else "none found (nvidia-smi lists none)"
        expected = f"an NVIDIA GPU of compute capability {least} or later, with its driver"
        raise InputError(None, "GPU", problem, expected)
    return found


def build(source: Path, program: Path, least_capability: float, *libraries: str, shared: bool = False) -> None:
    """Compile a CUDA program, or a shared library, for this machine's GPU."""
    if shutil.which("nvcc") is None:
        raise InputError(None, "nvcc", "not found on PATH", "the compiler of the CUDA toolkit, 12.5 or later")
    digits = compute_capability(least_capability).replace(".", "")
    chip = digits + "a" if digits == "90" else digits  # with the instructions that no later GPU has
    options = ["-O3", "-std=c++17", f"-gencode=arch=compute_{chip},code=sm_{chip}"]
    options += ["-shared", "-Xcompiler", "-fPIC"] if shared else []
    run(["nvcc", *options, "-o", str(program), str(source), *(f"-l{name}" for name in libraries)], "nvcc")


def require_ncu() -> None:
    """Refuse a machine without Nsight Compute."""
    if shutil.which("ncu") is None:
        raise InputError(None, "ncu", "not found on PATH", "Nsight Compute, as in the CUDA toolkit's bin")


def run(command: Sequence[str], what: str) -> str:
    """Run a command to its end, and return what it printed."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise explain(done.stdout, done.returncode, what)
    return done.stdout


def listed(path: Path, lines: Iterable[str]) -> Path:
    """A file of lines, written for one of our programs to read."""
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def under_ncu(program: Sequence[str], log: Path, metrics: Iterable[str], *options: str) -> str:
    """Run one of our programs under Nsight Compute and return its CSV: raw page, base units."""
    what = ["--print-units", "base", "--metrics", ",".join(metrics), *options, "--log-file", str(log), "-f"]
    run([*NCU, *what, *program], "Nsight Compute")
    return read_text(log, MAX_BYTES)


def explain(output: str, status: int, what: str) -> InputError:
    """Why a program of the toolkit, or one of ours, failed."""
    if status == NO_GPU_STATUS:
        return InputError(None, "GPU", "no usable NVIDIA GPU", "a CUDA device and its driver on this machine")
    if "ERR_NVGPUCTRPERM" in output:
        return InputError(
            None,
            "ncu",
            "may not read the GPU's counters (ERR_NVGPUCTRPERM)",
            "root, or a driver loaded with NVreg_RestrictProfilingToAdminUsers=0",
        )
    if re.search(r"cudnn\w*\.h: No such file|cannot open source file \"cudnn|cannot find -lcudnn", output):
        expected = "cuDNN 9 with its headers; CPATH and LIBRARY_PATH name folders that nvcc does not look in"
        return InputError(None, "cuDNN", "not found by nvcc", expected)
    last = (output.strip().splitlines() or ["no output"])[-1]
    return InputError(None, what, f"failed with status {status} ({last})", "a run without errors")
