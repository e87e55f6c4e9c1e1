"""Record kernels of one block beside other kernels: `python experiments/neighbours/record_small.py MODELS.py`.

MODELS.py names efficientnet_b0 and generate as for `gpusim record`. Passes of both run as CUDA graphs in two streams,
and on SMs of their own. Each kernel of efficientnet_b0 that has one block counts for the kernel that ran longest
beside it, from the end of the kernel before it on. It writes small.csv. It needs what record.py needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from experiments.neighbours.record import HERE, SMS
from experiments.neighbours.record_streams import together
from gpusim.common.files import write_table
from gpusim.common.tables import grouped
from gpusim.lab.record.ops_file import made, read_ops
from gpusim.lab.record.torch_gpu import Gpu

PASSES = ("efficientnet_b0", 4), ("generate", 15)
SMALL = {"elementwise": "vectorized_elementwise_kernel<4", "GEMM": "cutlass_80_wmma"}  # what their names hold
BESIDE = {"decode attention": "sdpa", "GEMM": "nvjet", "elementwise": "elementwise_kernel", "norm": "layer_norm"}
TIMES = 6  # profiles of each way to share
LEAST = 10  # kernels in a row of the table

Event = Mapping[str, Any]


def small(kernels: Sequence[Event]) -> Iterator[tuple[str, str, float, float]]:
    """Each kernel of one block: what it is, what ran beside it, how long it waited (µs) and how long it ran (µs)."""
    streams = grouped(kernels, lambda one: one["args"]["stream"])
    for stream, own in streams.items():
        others = [one for other, those in streams.items() if other != stream for one in those]
        for before, one in pairwise(own):
            what = next((kind for kind, name in SMALL.items() if name in one["name"]), None)
            if what is None or one["args"]["grid"] != [1, 1, 1]:
                continue
            free, end = before["ts"] + before["dur"], one["ts"] + one["dur"]
            together = [(min(end, o["ts"] + o["dur"]) - max(free, o["ts"]), o["name"]) for o in others]
            longest, name = max(together, default=(0.0, ""))
            beside = next((kind for kind, part in BESIDE.items() if part in name), "other")
            yield what, beside if longest > 0.0 else "nothing", one["ts"] - free, one["dur"]


def recorded(path: Path) -> Iterator[str]:
    """The lines of small.csv."""
    import torch

    yield "gpu,kernel,sharing,beside,times,wait_us,us\n"
    gpu, ops = Gpu(), read_ops(path)
    models = [made(ops, "MODELS", name) for name, _ in PASSES]  # kept: graphs do not hold their weights
    for sharing, queues in {"streams": (gpu.queue(), gpu.queue()), "SMs": gpu.split(SMS)}.items():
        graphs = [gpu.graph(model, queue) for model, queue in zip(models, queues, strict=True)]
        sides = [(graph, n, queue) for graph, (_, n), queue in zip(graphs, PASSES, queues, strict=True)]
        with TemporaryDirectory() as folder:
            found = [one for _ in range(TIMES) for one in small(together(torch, sides, Path(folder) / "trace.json"))]
        for (what, beside), those in sorted(grouped(found, lambda one: one[:2]).items()):
            if len(those) >= LEAST:
                waits, times = (median(one[at] for one in those) for at in (2, 3))
                yield f"{gpu.name},{what},{sharing},{beside},{len(those)},{waits:.2f},{times:.2f}\n"


def main() -> None:
    """Record both ways to share."""
    write_table(HERE / "small.csv", "".join(recorded(Path(sys.argv[1]))))


if __name__ == "__main__":
    main()
