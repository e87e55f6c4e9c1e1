"""Measure processes under MPS on this machine's GPU: `python experiments/mps/record.py DIR`.

`rates.csv` has the rate of FMA-bound kernels of one to four processes with percentages. `calls.csv` has the time of
PyTorch calls in a process with a percentage, and in a green context of about as many SMs. It starts and stops the MPS
daemon, so nobody else may use the GPU.
"""

import csv
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDERS = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mps_log"}
PERCENTAGES = (100, 90, 75, 70, 60, 50, 40, 30, 25, 20, 10, 5)
TOGETHER = ((50, 50), (30, 70), (40, 60), (20, 80), (10, 90), (60, 60), (80, 80), (100, 50), (100, 100), (30, 30),
            (30, 30, 40), (25, 25, 25, 25))  # fmt: skip
CALLED_AT = (100, 85, 73, 61, 49, 37, 30, 25, 19, 10)
GREEN_SMS = (112, 96, 80, 64, 48, 40, 32, 24, 16)
READY_S, MEASURED_S = 1.6, 0.8
REPEATS, CALLS = 7, 20


def percentage(percent: int) -> dict[str, str]:
    """The environment of a process with a percentage."""
    return os.environ | FOLDERS | {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}


def rates(program: Path, percents: tuple[int, ...]) -> Iterator[tuple[str, int, float]]:
    """Kernels per second of processes that run together."""
    start = time.monotonic() + READY_S
    command = [str(program), f"{start}", f"{start + MEASURED_S}"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, env=percentage(one), text=True) for one in percents]
    for percent, process in zip(percents, started, strict=True):
        yield "+".join(map(str, percents)), percent, float(process.communicate()[0])


def calls_us(torch: Any, stream: Any) -> dict[str, float]:
    """Time of each call on a stream, back to back, us."""

    def normal(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda").to(torch.bfloat16)

    big, square, row, weights = normal(1 << 26), normal(2048, 2048), normal(16, 4096), normal(4096, 16384)
    query, keys = normal(32, 16, 1, 128), normal(32, 16, 1024, 128)
    made: dict[str, Callable[[], Any]] = {
        "copy of 128 MiB": big.clone,
        "sum of 128 MiB": big.sum,
        "gemm/2048x2048x2048": lambda: square @ square,
        "gemm/16x16384x4096": lambda: row @ weights,
        "attention/32x16x1of1024x128": lambda: torch.nn.functional.scaled_dot_product_attention(query, keys, keys),
    }
    with torch.cuda.stream(stream):
        return {name: _us(torch, stream, call) for name, call in made.items()}


def _us(torch: Any, stream: Any, call: Callable[[], Any]) -> float:
    times = []
    for _ in range(REPEATS):
        call()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        stream.synchronize()
        torch.cuda._sleep(2_000_000)  # cycles, in which the host queues the calls
        start.record(stream)
        for _ in range(CALLS):
            call()
        end.record(stream)
        stream.synchronize()
        times.append(1e3 * start.elapsed_time(end) / CALLS)
    return median(times)


def in_green_contexts() -> Iterator[tuple[str, int, str, float]]:
    """Calls in green contexts of several sizes, and on the whole GPU."""
    import torch

    from gpusim.lab.record.torch_gpu import Gpu

    gpu = Gpu()
    for queue in (gpu.queue(), *(gpu.split(sms)[0] for sms in GREEN_SMS)):
        for name, us in calls_us(torch, queue.stream).items():
            yield "green context", queue.sms, name, us


def under_mps() -> Iterator[tuple[str, int, str, float]]:
    """Calls in processes with percentages; with each the number of SMs that CUDA tells the process."""
    for percent in CALLED_AT:
        command = [sys.executable, __file__, "--one"]
        said = subprocess.run(command, env=percentage(percent), capture_output=True, text=True, check=True).stdout
        sms, found = json.loads(said)
        for name, us in found.items():
            yield "MPS", sms, name, us


def write(path: Path, columns: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> None:
    """Write a table as it is measured."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        for row in rows:
            writer.writerow([f"{cell:.3f}" if isinstance(cell, float) else cell for cell in row])


def one() -> None:
    """Print the SMs and the times of calls in this process."""
    import torch

    sms = torch.cuda.get_device_properties(0).multi_processor_count
    print(json.dumps([sms, calls_us(torch, torch.cuda.Stream())]))


def main(folder: Path) -> None:
    """Green contexts first, without MPS."""
    program = folder / "rate"
    subprocess.run(["nvcc", "-O2", "-o", str(program), str(HERE / "rate.cu")], check=True)
    green = list(in_green_contexts())
    for name in FOLDERS.values():
        Path(name).mkdir(exist_ok=True)
    subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | FOLDERS, check=True)
    try:
        groups = [(percent,) for percent in PERCENTAGES] + list(TOGETHER)
        rows = (row for percents in groups for row in rates(program, percents))
        write(folder / "rates.csv", ("percents", "percent", "kernels_per_s"), rows)
        calls = (row for found in (green, under_mps()) for row in found)
        write(folder / "calls.csv", ("context", "sms", "call", "us"), calls)
    finally:
        subprocess.run(["nvidia-cuda-mps-control"], env=os.environ | FOLDERS, input="quit\n", text=True, check=True)
        program.unlink()


if __name__ == "__main__":
    if sys.argv[1] == "--one":
        one()
    else:
        main(Path(sys.argv[1]))
