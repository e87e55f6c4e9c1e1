"""Record whole models beside a kernel that reads or writes memory: `python experiments/neighbours/record.py MODELS.py`.

MODELS.py names models as for `gpusim record`. Each runs as a CUDA graph on 64 SMs, while the kernel of neighbours.cu
runs on the others. It writes measured.csv.gz: every kernel of a pass, as PyTorch's profiler saw it. It needs an NVIDIA
GPU of compute capability 9.0 or later, nvcc and PyTorch.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import made, read_ops
from gpusim.lab.record.toolchain import compute_capability, run
from gpusim.lab.record.torch_gpu import LEAST_CAPABILITY, Gpu, Queue

HERE = Path(__file__).resolve().parent
SMS = 64  # of the model
BLOCKS = 4  # of the neighbour, on each SM
ALL = 2**31  # bytes, far more than L2 holds
PASSES = 4  # in a profile; the first is left out
GRAPHS, WARM = 9, 4  # that `timed` times, and before them
READS, WRITES, EVICTED = range(3)  # kinds of neighbours.cu
NEIGHBOURS = {  # bytes of its set, sleep after each turn (ns; the mean, if not in bursts), kind, in bursts
    "none": None,
    "reads 0.6 TB/s": (ALL, 1500, READS, False),
    "reads 1.1 TB/s": (ALL, 450, READS, False),
    "reads 1.7 TB/s": (ALL, 0, READS, False),
    "writes 0.6 TB/s": (ALL, 1500, WRITES, False),
    "reads L2": (24 * 2**20, 0, READS, False),
    "reads 1.1 TB/s in bursts": (ALL, 4000, READS, True),
}


class Neighbour:
    """The kernel of neighbours.cu."""

    def __init__(self) -> None:
        chip = compute_capability(LEAST_CAPABILITY).replace(".", "")
        with TemporaryDirectory() as scratch:
            built = str(Path(scratch) / "neighbours.so")
            options = ["-O3", "-shared", "-Xcompiler", "-fPIC", f"-arch=sm_{chip}"]
            run(["nvcc", *options, "-o", built, str(HERE / "neighbours.cu")], "nvcc")
            self._library = ctypes.CDLL(built)
        self._call("prepare_neighbour")
        self._began = 0.0

    def begin(self, on: Queue, size: int, sleep_ns: int, kind: int, bursts: bool) -> None:
        """Start it, and wait until it runs."""
        chunk = on.sms * BLOCKS * 16384
        whole = ctypes.c_ulonglong(size // chunk * chunk)
        self._call("begin", ctypes.c_void_p(on.pointer), on.sms * BLOCKS, whole, ctypes.c_uint(sleep_ns), kind, bursts)
        self._began = time.perf_counter()
        time.sleep(0.003)

    def end(self, on: Queue) -> float:
        """Stop it; return what it moved, GB/s."""
        seconds, moved = time.perf_counter() - self._began, ctypes.c_ulonglong()
        self._call("end", ctypes.c_void_p(on.pointer), ctypes.byref(moved))
        return moved.value / seconds / 1e9

    def _call(self, name: str, *arguments: Any) -> None:
        function = getattr(self._library, name)
        function.restype = ctypes.c_char_p
        said = function(*arguments)
        if said:
            raise RuntimeError(f"{name}: {said.decode()}")


def repeated(call: Callable[[], Any], times: int) -> None:
    """Make a call several times."""
    for _ in range(times):
        call()


def timed(graph: Callable[[], Any], on: Queue, calls: int) -> float:
    """Time of each of the calls in a graph, µs: the median over graphs."""
    import torch

    each = []
    with torch.cuda.stream(on.stream):
        for _ in range(WARM + GRAPHS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(on.stream)
            graph()
            end.record(on.stream)
            end.synchronize()
            each.append(begin.elapsed_time(end) * 1e3 / calls)
    return median(each[WARM:])


def timed_beside(
    neighbour: Neighbour,
    queues: tuple[Queue, Queue, Queue],
    settings: Mapping[str, tuple[int, int, int, bool] | None],
    graph: Callable[[], Any],
    calls: int,
) -> Iterator[tuple[str, float, float]]:
    """Yield for each setting of a neighbour its name, the neighbour's GB/s and the time of a call, µs.

    ``queues`` are that of the graph, that of the neighbour, and one that stops it.
    """
    own, rest, other = queues
    for title, setting in settings.items():
        rate = 0.0
        if setting is not None:
            neighbour.begin(rest, *setting)
        us = timed(graph, own, calls)
        time.sleep(0.01)
        if setting is not None:
            rate = neighbour.end(other)
        yield title, rate, us


def kernels_in(profiler: Any, scratch: Path) -> list[dict[str, Any]]:
    """The kernels of a profile, in the order of their starts."""
    profiler.export_chrome_trace(str(scratch))
    events = [event for event in json.loads(scratch.read_text())["traceEvents"] if event.get("cat") == "kernel"]
    return sorted(events, key=lambda one: one["ts"])


def profiled(
    torch: Any, graph: Any, on: Queue, scratch: Path, begin: Callable[[], None], end: Callable[[], float]
) -> tuple[list[tuple[str, float]], float]:
    """Name and time (µs) of each kernel of a pass, the median over the passes, and the neighbour's GB/s.

    The profiler waits for the GPU before it starts and after it stops, so the neighbour runs in between.
    """
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        begin()
        with torch.cuda.stream(on.stream):
            for _ in range(PASSES):
                graph()
        on.stream.synchronize()
        rate = end()
    events = [one for one in kernels_in(profiler, scratch) if not one["name"].startswith("stream(")]
    each = len(events) // PASSES
    passes = [events[each * n : each * (n + 1)] for n in range(1, PASSES)]
    return [(same[0]["name"], median(one["dur"] for one in same)) for same in zip(*passes, strict=True)], rate


def recorded(names: Sequence[str], path: Path) -> Iterator[str]:
    """The lines of measured.csv.gz."""
    import torch

    yield "gpu,model,neighbour,gb_per_s,index,name,us\n"
    gpu, neighbour, ops = Gpu(), Neighbour(), read_ops(path)
    own, rest = gpu.split(SMS)
    other = gpu.queue()
    with TemporaryDirectory() as folder:
        for name in names or list(ops.models):
            graph = gpu.graph(made(ops, "MODELS", name), own)
            for title, setting in NEIGHBOURS.items():
                begin = partial(neighbour.begin, rest, *setting) if setting is not None else lambda: None
                end = partial(neighbour.end, other) if setting is not None else lambda: 0.0
                kernels, rate = profiled(torch, graph, own, Path(folder) / "trace.json", begin, end)
                print(name, title, f"{rate:.0f} GB/s", f"{sum(us for _, us in kernels):.0f} us", file=sys.stderr)
                for index, (kernel, us) in enumerate(kernels):
                    yield f'{gpu.name},{name},"{title}",{rate:.0f},{index},"{kernel[:48]}",{us:.3f}\n'


def main() -> None:
    """Record the models that are named, or all."""
    path, *names = sys.argv[1:]
    write_table(HERE / "measured.csv.gz", "".join(recorded(names, Path(path))))


if __name__ == "__main__":
    main()
