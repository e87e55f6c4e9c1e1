"""A small network trained one step by every strategy: `python tests/divided_training.py RANKS`, on a CPU with PyTorch.

Prints by strategy the largest difference of a parameter from what one rank gives, over the largest parameter.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from experiments.paradl.record import run
from gpusim.training.networks.layers import Addition, ConvolutionLayer, Linear, Pooling, ReLU, Shape
from gpusim.training.networks.network import Builder, Network


def small(name: str = "small") -> Network:
    """Every kind of window: overlapping, strided, of one pixel; two layers read the same; no batch normalisation."""
    net = Builder(name, Shape(4, 16, 16))
    net.add("c1", ConvolutionLayer(8, (3, 3), 1, (1, 1)))
    net.add("r1", ReLU())
    net.add("c2", ConvolutionLayer(8, (3, 3), 1, (1, 1), bias=False))
    net.add("sum", Addition(), "c2", "r1")
    net.add("p2", Pooling("max", (3, 3), 2, (1, 1)))
    net.add("c3", ConvolutionLayer(8, (1, 1), 2))
    net.add("c4", ConvolutionLayer(12, (3, 3), 2, (1, 1)))
    net.add("fc5", Linear(16))
    net.add("r5", ReLU())
    net.add("classifier", Linear(10))
    return net.network()


def checked(rank: int, ranks: int, folder: str) -> None:
    """One rank's part; rank 0 writes what was found."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=ranks)
    run.network = small
    strategies = ",".join((*run.STRATEGIES, "overlapped"))
    args = argparse.Namespace(networks="small", batches="8", strategies=strategies, out=Path(folder))
    found = {row[1]: row[4] for row in run._check(args, torch.device("cpu"))}
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        ranks = int(sys.argv[1])
        torch.multiprocessing.spawn(checked, (ranks, folder), nprocs=ranks)
        print(Path(folder, "found.json").read_text(encoding="utf-8"))
