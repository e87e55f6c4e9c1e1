"""Record how long copies and memsets keep a stream from its next kernel: `python experiments/copies/record.py`.

A stream runs a short kernel and a copy in turns, as a CUDA graph and launched one by one; and the kernel alone.
copies.csv has the time of a turn, measured from event to event, and the time that PyTorch's profiler gives the copy.
memsets.csv has turns of two kernels in a CUDA graph, with and without a memset between them. It needs an NVIDIA GPU of
compute capability 9.0 or later, PyTorch and nvcc.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import OpCall
from gpusim.lab.record.torch_gpu import Gpu, Queue

HERE = Path(__file__).resolve().parent
TURNS = 60
REPEATS = 9
SIZES = (4, 1 << 16, 1 << 20, 1 << 22)
LEAST_SET_BYTES = 4  # a semaphore, which most libraries set
SET_SIZES = (64, 1 << 10, 1 << 12, 1 << 13, 1 << 16, 1 << 20)
BEFORE = ("add_128", "add_1m", "add_16m")  # kernels before a memset


def copies(torch: Any) -> Iterator[tuple[str, int, OpCall]]:
    """Copies by direction and size in bytes; the host's memory is pinned."""
    for size in SIZES:
        host = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
        here, there = (torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(2))
        for direction, to, source in (("h2d", here, host), ("d2h", host, here), ("d2d", there, here)):
            yield direction, size, partial(to.copy_, source, non_blocking=True)


def memset(torch: Any, size: int) -> OpCall:
    """A memset of the driver, on the current stream: PyTorch sets memory with a kernel of its own."""
    driver, there = ctypes.CDLL("libcuda.so.1"), torch.zeros(size, dtype=torch.uint8, device="cuda")

    def call() -> None:
        pointer, stream = ctypes.c_void_p(there.data_ptr()), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        driver.cuMemsetD8Async(pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size), stream)

    return call


def kernels(torch: Any) -> dict[str, OpCall]:
    """Kernels around a memset; each call runs one."""

    def zeros(*shape: int) -> Any:
        return torch.zeros(shape, device="cuda")

    adds = {"add_128": zeros(128), "add_1m": zeros(1 << 20), "add_16m": zeros(1 << 24)}
    rows, wide, short = zeros(4096, 1024), zeros(4096, 4096), zeros(128, 4096)
    return {name: partial(x.add_, 1) for name, x in adds.items()} | {
        "softmax": partial(torch.softmax, rows, -1),
        "mean_rows": partial(torch.mean, wide, 1, out=zeros(4096)),
        "gemm": partial(torch.mm, short, wide, out=zeros(128, 4096)),
    }


def around_memsets(gpu: Gpu, torch: Any) -> Iterator[str]:
    """The lines of memsets.csv."""
    queue, calls = gpu.queue(), kernels(torch)
    yield "gpu,first,second,bytes,plain_us,turn_us,profiled_us\n"
    semaphores = [(first, second, LEAST_SET_BYTES) for first in BEFORE for second in calls]
    for first, second, size in [*semaphores, *(("add_128", "add_128", size) for size in SET_SIZES)]:
        before, between, after = calls[first], memset(torch, size), calls[second]
        plain, turn = (gpu.graph(partial(turns, *of), queue) for of in ((before, after), (before, between, after)))
        times = turn_us(gpu, plain, queue), turn_us(gpu, turn, queue), profiled_us(gpu, turn, queue)
        yield f"{gpu.name},{first},{second},{size},{','.join(f'{us:.3f}' for us in times)}\n"


def turns(*calls: OpCall) -> None:
    """The calls in turns."""
    for _ in range(TURNS):
        for call in calls:
            call()


def turn_us(gpu: Gpu, call: OpCall, queue: Queue) -> float:
    """Time of one of the turns of a call, us."""
    return median(gpu.ends_ms([([call], queue)])[0] for _ in range(REPEATS)) * 1e3 / TURNS


def profiled_us(gpu: Gpu, call: OpCall, queue: Queue) -> float:
    """Mean time of a copy or a memset in a profile, us; 0 where it has none."""
    with TemporaryDirectory() as scratch:
        events = gpu.profile(call, queue, 1, Path(scratch) / "profile.json")
    found = [event["dur"] for event in events if event.get("cat") in ("gpu_memcpy", "gpu_memset")]
    return fmean(found) if found else 0.0


def recorded(gpu: Gpu, torch: Any) -> Iterator[str]:
    """The lines of copies.csv."""
    queue, x = gpu.queue(), torch.zeros(128, device="cuda")
    yield "gpu,launched,direction,bytes,turn_us,profiled_us\n"
    for direction, size, copy in (("none", 0, lambda: None), *copies(torch)):
        in_turns = partial(turns, partial(x.add_, 1), copy)
        for launched, call in (("graph", gpu.graph(in_turns, queue)), ("stream", in_turns)):
            times = turn_us(gpu, call, queue), profiled_us(gpu, call, queue)
            line = f"{gpu.name},{launched},{direction},{size},{','.join(f'{us:.3f}' for us in times)}\n"
            print(line, end="", file=sys.stderr)
            yield line


def main() -> None:
    """Record the table."""
    import torch

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    gpu = Gpu()
    write_table(out / "memsets.csv", "".join(around_memsets(gpu, torch)))
    write_table(out / "copies.csv", "".join(recorded(gpu, torch)))


if __name__ == "__main__":
    main()
