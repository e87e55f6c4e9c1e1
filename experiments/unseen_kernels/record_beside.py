"""Record calls beside a kernel that reads memory: `python experiments/unseen_kernels/record_beside.py`.

The calls of ops.py run on 64 SMs in CUDA graphs, again and again. On the other SMs the kernel of
../neighbours/neighbours.cu reads DRAM or L2. It writes beside.csv and needs what ../neighbours/record.py needs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from experiments.neighbours.record import ALL, READS, SMS, Neighbour, repeated, timed, timed_beside
from gpusim.common.errors import InputError
from gpusim.common.files import write_table
from gpusim.lab.record.ops_file import made, read_ops
from gpusim.lab.record.torch_gpu import Gpu

HERE = Path(__file__).resolve().parent
SHORTEST_US = 2000.0  # of a graph: it holds as many calls as take this long
FEWEST, MOST = 4, 200  # calls in a graph
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


def recorded() -> Iterator[str]:
    """The lines of beside.csv, without calls that a CUDA graph cannot hold."""
    yield "gpu,call,beside,gb_per_s,us\n"
    gpu, neighbour, ops = Gpu(), Neighbour(), read_ops(HERE / "ops.py")
    queues = (*gpu.split(SMS), gpu.queue())
    for name in ops.ops:
        call = made(ops, "OPS", name)
        try:
            few = gpu.graph(partial(repeated, call, FEWEST), queues[0])
        except (InputError, RuntimeError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        calls = max(FEWEST, min(MOST, round(SHORTEST_US / timed(few, queues[0], FEWEST))))
        graph = gpu.graph(partial(repeated, call, calls), queues[0])
        for title, rate, us in timed_beside(neighbour, queues, NEIGHBOURS, graph, calls):
            yield f'{gpu.name},{name},"{title}",{rate:.0f},{us:.3f}\n'


def main() -> None:
    """Record all."""
    write_table(HERE / "beside.csv", "".join(recorded()))


if __name__ == "__main__":
    main()
