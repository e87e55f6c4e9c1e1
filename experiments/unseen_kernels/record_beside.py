"""Record calls beside a kernel that reads memory: `python experiments/unseen_kernels/record_beside.py`.

The calls of ops.py run on 64 SMs in CUDA graphs, again and again. On the other SMs the kernel of
../neighbours/neighbours.cu reads DRAM or L2. It writes beside.csv and needs what ../neighbours/record.py needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from experiments.neighbours.record import ALL, READS, SMS, Neighbour
from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import made, read_ops
from gpusim.lab.record.torch_gpu import Gpu

HERE = Path(__file__).resolve().parent
SHORTEST_US = 2000.0  # of a graph: it holds as many calls as take this long
GRAPHS, WARM = 9, 4  # that are timed, and before them
HELD = 16 * 2**20  # bytes that L2 holds of a reader
NEIGHBOURS = {  # bytes of its set, sleep after each turn (ns), kind, four times as many bytes under way
    "nothing": None,
    "L2, paced": (HELD, 600, READS, False),
    "L2, at most": (HELD, 0, READS, False),
    "L2, four reads": (HELD, 0, READS, True),
    "DRAM, paced": (ALL, 450, READS, False),
    "DRAM, at most": (ALL, 0, READS, False),
    "DRAM, four reads": (ALL, 0, READS, True),
}


def timed(torch: Any, graph: Any, stream: Any, calls: int) -> float:
    """Time of a call, µs: the median over graphs."""
    each = []
    with torch.cuda.stream(stream):
        for _ in range(WARM + GRAPHS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph()
            end.record(stream)
            end.synchronize()
            each.append(begin.elapsed_time(end) * 1e3 / calls)
    return median(each[WARM:])


def recorded() -> Iterator[str]:
    """The lines of beside.csv."""
    import torch

    yield "gpu,call,beside,gb_per_s,us\n"
    gpu, neighbour = Gpu(), Neighbour()
    own, rest = gpu.split(SMS)
    other = gpu.queue()
    ops = read_ops(HERE / "ops.py")
    for name in ops.ops:
        try:
            call = made(ops, "OPS", name)

            def repeated(times: int, call: Any = call) -> None:
                for _ in range(times):
                    call()

            once = timed(torch, gpu.graph(partial(repeated, 4), own), own.stream, 4)
            calls = max(4, min(200, round(SHORTEST_US / once)))
            graph = gpu.graph(partial(repeated, calls), own)
            for title, setting in NEIGHBOURS.items():
                rate = 0.0
                if setting is not None:
                    neighbour.begin(rest, *setting)
                us = timed(torch, graph, own.stream, calls)
                time.sleep(0.005)
                if setting is not None:
                    rate = neighbour.end(other)
                yield f'{gpu.name},{name},"{title}",{rate:.0f},{us:.3f}\n'
        except Exception as error:
            print(name, repr(error)[:300], flush=True)


def main() -> None:
    """Record all."""
    write_table(HERE / "beside.csv", "".join(recorded()))


if __name__ == "__main__":
    main()
