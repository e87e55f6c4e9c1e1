"""Record how long copies keep a stream from its next kernel: `python experiments/copies/record.py`.

A stream runs a short kernel and a copy in turns, as a CUDA graph and launched one by one; and the kernel alone.
copies.csv has the time of a turn, measured from event to event, and the time that PyTorch's profiler gives the copy. It
needs an NVIDIA GPU of compute capability 9.0 or later, PyTorch and nvcc.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import Call
from gpusim.lab.record.torch_gpu import Gpu, Queue

HERE = Path(__file__).resolve().parent
TURNS = 60
REPEATS = 9
SIZES = (4, 1 << 16, 1 << 20, 1 << 22)


def copies(torch: Any) -> Iterator[tuple[str, int, Call]]:
    """Copies by direction and size in bytes; the host's memory is pinned."""
    for size in SIZES:
        host = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
        here, there = (torch.zeros(size, dtype=torch.uint8, device="cuda") for _ in range(2))
        for direction, to, source in (("h2d", here, host), ("d2h", host, here), ("d2d", there, here)):
            yield direction, size, partial(to.copy_, source, non_blocking=True)


def profiled_us(gpu: Gpu, call: Call, queue: Queue) -> float:
    """Mean time of a copy in a profile, us; 0 where it has none."""
    with TemporaryDirectory() as scratch:
        events = gpu.profile(call, queue, 1, Path(scratch) / "profile.json")
    found = [event["dur"] for event in events if event.get("cat") == "gpu_memcpy"]
    return fmean(found) if found else 0.0


def recorded(gpu: Gpu, torch: Any) -> Iterator[str]:
    """The lines of copies.csv."""
    queue, x = gpu.queue(), torch.zeros(128, device="cuda")
    yield "gpu,launched,direction,bytes,turn_us,profiled_us\n"
    for direction, size, copy in (("none", 0, lambda: None), *copies(torch)):

        def turns(copy: Call = copy) -> None:
            for _ in range(TURNS):
                x.add_(1)
                copy()

        for launched, call in (("graph", gpu.graph(turns, queue)), ("stream", turns)):
            ends_ms = [gpu.ends_ms([([call], queue)])[0] for _ in range(REPEATS)]
            profile = profiled_us(gpu, call, queue)
            line = f"{gpu.name},{launched},{direction},{size},{median(ends_ms) * 1e3 / TURNS:.3f},{profile:.3f}\n"
            print(line, end="", file=sys.stderr)
            yield line


def main() -> None:
    """Record the table."""
    import torch

    out = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    write_table(out / "copies.csv", "".join(recorded(Gpu(), torch)))


if __name__ == "__main__":
    main()
