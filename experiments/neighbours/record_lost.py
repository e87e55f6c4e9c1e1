"""Record kernels of PyTorch beside readers of memory: `python experiments/neighbours/record_lost.py`.

The kernels run on 64 SMs in CUDA graphs. On the other SMs the kernel of neighbours.cu reads memory, evenly or in
bursts. Its data replace those of the kernels in L2, or L2 evicts them first. It writes lost.csv and needs what
record.py needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from experiments.neighbours.record import ALL, EVICTED, HERE, READS, SMS, Neighbour, repeated, timed_beside
from gpusim.common.files import write_table
from gpusim.lab.record.torch_gpu import Gpu

REPEATED = 20  # calls in a graph
NEIGHBOURS = {  # bytes of its set, sleep after each turn (ns), kind, in bursts
    "nothing": None,
    "24 MiB": (24 * 2**20, 600, READS, False),
    "DRAM, evicted first": (ALL, 450, EVICTED, False),
    "DRAM": (ALL, 450, READS, False),
    "DRAM, at most, evicted first": (ALL, 0, EVICTED, False),
    "DRAM, at most": (ALL, 0, READS, False),
    "DRAM, in bursts": (ALL, 4000, READS, True),
}


def kernels(torch: Any) -> dict[str, Callable[[], Callable[[], Any]]]:
    """What makes the inputs of each kernel and returns its call."""

    def random(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)

    def gemm(m: int, k: int, n: int) -> Callable[[], Any]:
        return partial(torch.mm, random(m, k), random(k, n), out=random(m, n))

    def elementwise(mib: int) -> Callable[[], Any]:
        data = random(mib * 2**19)
        return partial(torch.ops.aten.silu.out, data, out=torch.empty_like(data))

    def reduction(mib: int) -> Callable[[], Any]:
        data = random(mib * 512, 1024)
        return partial(torch.sum, data, 1, out=random(mib * 512))

    def gather(mib: int) -> Callable[[], Any]:
        data = random(mib * 2**11, 256)
        rows = torch.randint(0, len(data), (len(data),), device="cuda")
        return partial(torch.index_select, data, 0, rows, out=torch.empty_like(data))

    return {
        "GEMM 1024x2048x5632": partial(gemm, 1024, 2048, 5632),
        "GEMM 2048x2048x2048": partial(gemm, 2048, 2048, 2048),
        "GEMM 512x1024x1024": partial(gemm, 512, 1024, 1024),
        "SiLU, 8 MiB": partial(elementwise, 8),
        "SiLU, 2 MiB": partial(elementwise, 2),
        "sum, 8 MiB": partial(reduction, 8),
        "sum, 2 MiB": partial(reduction, 2),
        "gather, 4 MiB": partial(gather, 4),
    }


def recorded() -> Iterator[str]:
    """The lines of lost.csv."""
    import torch

    yield "gpu,kernel,neighbour,gb_per_s,us\n"
    gpu, neighbour = Gpu(), Neighbour()
    queues = (*gpu.split(SMS), gpu.queue())
    for name, make in kernels(torch).items():
        graph = gpu.graph(partial(repeated, make(), REPEATED), queues[0])
        for title, rate, us in timed_beside(neighbour, queues, NEIGHBOURS, graph, REPEATED):
            yield f'{gpu.name},"{name}","{title}",{rate:.0f},{us:.3f}\n'


def main() -> None:
    """Record all."""
    write_table(HERE / "lost.csv", "".join(recorded()))


if __name__ == "__main__":
    main()
