"""Record two whole models in two streams: `python experiments/neighbours/record_streams.py MODELS.py`.

MODELS.py names models as for `gpusim record`. Passes of two models run as CUDA graphs in two streams, which an event
releases together. PyTorch's profiler gives the time from the start of the first kernel to the end of the last one. It
writes streams.csv. It needs what record.py needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.neighbours.record import kernels_in
from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import OpCall, made, read_ops
from gpusim.lab.record.torch_gpu import Gpu, Queue

HERE = Path(__file__).resolve().parent
HELD_CYCLES = 20_000_000  # in which the host queues all passes
HOLDS = "spin"  # in the name of the kernel that holds the streams
PAIRS = (
    ("convnext_tiny", 4, "generate", 12),
    ("prefill", 4, "generate", 5),
    ("efficientnet_b0", 4, "generate", 15),
    ("mobilenet_v3_large", 4, "prefill", 11),
    ("convnext_tiny", 4, "efficientnet_b0", 3),
    ("convnext_tiny", 4, "mobilenet_v3_large", 4),
    ("efficientnet_b0", 4, "mobilenet_v3_large", 4),
    ("convnext_tiny", 4, "prefill", 9),
    ("mobilenet_v3_large", 4, "generate", 15),
)


def together(torch: Any, sides: Sequence[tuple[OpCall, int, Queue]], scratch: Path) -> list[dict[str, Any]]:
    """The kernels of some passes in each stream, released together, in the order of their starts."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        torch.cuda._sleep(HELD_CYCLES)
        released = torch.cuda.Event()
        released.record()
        for graph, passes, queue in sides:
            queue.stream.wait_event(released)
            with torch.cuda.stream(queue.stream):
                for _ in range(passes):
                    graph()
        torch.cuda.synchronize()
    return [one for one in kernels_in(profiler, scratch) if HOLDS not in one["name"]]


def span_us(kernels: Sequence[dict[str, Any]]) -> float:
    """Time from the first kernel's start to the last one's end."""
    end_us: float = max(one["ts"] + one["dur"] for one in kernels)
    start_us: float = kernels[0]["ts"]
    return end_us - start_us


def recorded(path: Path) -> Iterator[str]:
    """The lines of streams.csv."""
    import torch

    yield "gpu,a,na,b,nb,us\n"
    gpu, ops = Gpu(), read_ops(path)
    queues = gpu.queue(), gpu.queue()
    names = dict.fromkeys(name for a, _, b, _ in PAIRS for name in (a, b))
    models = {name: made(ops, "MODELS", name) for name in names}  # kept: graphs do not hold their weights
    graphs = {name: [gpu.graph(model, queue) for queue in queues] for name, model in models.items()}
    with TemporaryDirectory() as folder:
        for a, na, b, nb in PAIRS:
            sides = (graphs[a][0], na, queues[0]), (graphs[b][1], nb, queues[1])
            us = span_us(together(torch, sides, Path(folder) / "trace.json"))
            print(a, na, b, nb, f"{us:.0f} us", file=sys.stderr)
            yield f"{gpu.name},{a},{na},{b},{nb},{us:.0f}\n"


def main() -> None:
    """Record all pairs."""
    write_table(HERE / "streams.csv", "".join(recorded(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
