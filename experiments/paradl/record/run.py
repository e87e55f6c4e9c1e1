"""`python -m experiments.paradl.record WHAT --out DIR`: one process per GPU, tables in DIR.

collectives: all-reduce, all-gather, reduce-scatter and send/receive by size. blocks: all-reduce by its number of thread
blocks. layers: forward and backward of every
layer on one GPU, whole and divided. training: iterations of every strategy, after layers, whose table says where to cut
a pipeline. kernels: which kernels NCCL runs. check: divided training gives what one rank gives.
"""

from __future__ import annotations

import argparse
import csv
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from experiments.paradl.record.measure import called_us, cleared, held_bytes, peak_bytes, replayed_us
from experiments.paradl.record.model import Model
from experiments.paradl.record.steps import Overlapped, Pipeline, Step, Training, data
from experiments.paradl.record.work import flop
from gpusim.training.networks.layers import ConvolutionLayer, Linear, Pooling
from gpusim.training.networks.network import Network, Node
from gpusim.training.networks.zoo import network
from gpusim.training.paradl.divide import CHANNEL, FILTER, ROWS, WHOLE, Halo, by_channel, by_filter, by_rows
from gpusim.training.paradl.segments import balancer, cuts

BATCHES = {"resnet50": (32, 64, 128, 256), "vgg16": (16, 32, 64, 128), "alexnet": (64, 128, 256, 512)}
MICRO = 4  # micro-batches of a pipeline
SIZES = tuple(2**power for power in range(10, 30))  # bytes: 1 KiB to 512 MiB
STRATEGIES = ("data", "spatial", "filter", "channel", "pipeline", "data+filter", "data+spatial")
CHANNELS = (1, 2, 4, 8, 16, 32)  # thread blocks of a collective
LAYER_COLUMNS = ("network", "layer", "divided", "parts", "batch", "forward_us", "backward_us")
TRAINING_COLUMNS = ("network", "strategy", "ranks", "width", "batch", "called_us", "replayed_us", "peak_bytes")
Row = Sequence[object]


def main() -> None:
    """Starts one process for each GPU."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("collectives", "blocks", "layers", "training", "kernels", "check"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", default=",".join(BATCHES))
    parser.add_argument("--strategies", default=",".join((*STRATEGIES, "overlapped")))
    parser.add_argument("--batches", help="instead of the usual ones")
    parser.add_argument("--parts", default="1,2", help="into how many parts layers are divided, for layers")
    parser.add_argument("--eager", action="store_true", help="no replays of captured iterations")
    parser.add_argument("--ranks", type=int, default=max(torch.cuda.device_count(), 1))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_run, (args, port), nprocs=args.ranks)


def _run(rank: int, args: argparse.Namespace, port: int) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", rank)
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=args.ranks, device_id=device if backend == "nccl" else None)
    tables: dict[str, Callable[[], tuple[Sequence[str], Iterator[Row]]]] = {
        "collectives": lambda: (("collective", "ranks", "bytes", "us"), _collectives(device)),
        "blocks": lambda: (("blocks", "ranks", "bytes", "us"), _blocks(device)),
        "layers": lambda: (LAYER_COLUMNS, _layers(args, device)),
        "training": lambda: (TRAINING_COLUMNS, _training(args, device)),
        "kernels": lambda: (
            ("collective", "ranks", "bytes", "kernel", "grid", "block", "registers", "shared_memory", "us"),
            _kernels(device),
        ),
        "check": lambda: (("network", "strategy", "ranks", "width", "largest_difference"), _check(args, device)),
    }
    columns, rows = tables[args.what]()
    _write(args.out / f"{args.what}.csv", columns, rows, own=args.what == "layers")
    dist.destroy_process_group()


def _write(path: Path, columns: Sequence[str], rows: Iterator[Row], own: bool) -> None:
    """Writes rows as they come, those of rank 0; where each rank has its ``own``, into a file each."""
    if own and dist.get_rank():
        path = path.with_stem(f"{path.stem}.{dist.get_rank()}")
    keeps = own or dist.get_rank() == 0
    with open(path if keeps else os.devnull, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in rows:
            writer.writerow(row)
            file.flush()


# ---- collectives


def _collectives(device: Any) -> Iterator[Row]:
    ranks = dist.get_world_size()
    for size in SIZES:
        for name, work in _calls(size, device).items():
            calls = 20 if size <= 2**24 else 4
            yield name, ranks, size, round(_slowest(replayed_us(work, calls, 9), device), 3)
        cleared()


def _blocks(device: Any) -> Iterator[Row]:
    for blocks in CHANNELS:
        group = _group(blocks)
        for size in (2**22, 25 * 2**20, 2**27, 2**29):
            whole = torch.rand(size // 4, device=device)
            took = replayed_us(partial(dist.all_reduce, whole, group=group), 4, 9)
            yield blocks, dist.get_world_size(), size, round(_slowest(took, device), 3)


def _calls(size: int, device: Any) -> dict[str, Step]:
    """Collectives of ``size`` bytes: of the whole tensor for all-reduce, all-gather and reduce-scatter."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    whole = torch.rand(size // 4 // ranks * ranks, device=device)
    own = torch.rand(whole.numel() // ranks, device=device)
    other = torch.empty_like(whole)

    def pass_on() -> None:
        calls = [
            dist.P2POp(dist.isend, whole, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, other, (rank - 1) % ranks),
        ]
        if rank == 0 and ranks == 2:
            calls = calls[:1]
        elif ranks == 2:
            calls = calls[1:]
        for call in dist.batch_isend_irecv(calls):
            call.wait()

    return {
        "all-reduce": lambda: dist.all_reduce(whole),
        "all-gather": lambda: dist.all_gather_into_tensor(whole, own),
        "reduce-scatter": lambda: dist.reduce_scatter_tensor(own, whole),
        "send-receive": pass_on,
    }


def _slowest(value: float, device: Any) -> float:
    found = torch.tensor(value, device=device, dtype=torch.float64)
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return float(found)


# ---- layers


def _layers(args: argparse.Namespace, device: Any) -> Iterator[Row]:
    """Every layer alone; the batches are divided among the ranks."""
    at = 0
    for net in map(network, args.networks.split(",")):
        batches = _batches(args, net.name)
        smaller = sorted({size for batch in batches for size in (batch, batch // 2, batch // MICRO)})
        jobs = []
        for parts in map(int, args.parts.split(",")):
            if parts == 1:
                jobs += [(WHOLE, 1, size) for size in smaller]
            else:
                jobs += [(how, parts, size) for how in (FILTER, CHANNEL, ROWS) for size in batches]
        for how, parts, size in sorted(jobs, key=lambda job: -job[2]):
            if at % dist.get_world_size() == dist.get_rank():
                yield from _layer_rows(net, how, parts, size, device)
                cleared()
            at += 1


def _layer_rows(net: Network, how: str, parts: int, batch: int, device: Any) -> Iterator[Row]:
    """Return one row per layer under one way of partitioning; identical layers are measured once."""
    halos: Mapping[str, Halo] = by_rows(net, parts) if how == ROWS else {}
    names: dict[str, Iterable[str]] = {FILTER: by_filter(net), CHANNEL: by_channel(net), ROWS: halos}
    names[WHOLE] = [node.name for node in net.nodes]
    among = set(names[how])
    model = Model(net, WHOLE, None, device)
    known: dict[object, tuple[float, float]] = {}
    for node in net.nodes:
        if node.name in among:
            shapes = [_input_shape(net, node, n, how, parts, batch, halos) for n in range(len(node.inputs))]
            first = "input" in node.inputs
            key = (node.layer, *shapes, first)
            if key not in known:
                known[key] = _layer_us(model, node, shapes, how, parts, first, device)
            yield net.name, node.name, how, parts, batch, *(round(us, 3) for us in known[key])
    if how == WHOLE:
        yield net.name, "loss", how, parts, batch, *(round(us, 3) for us in _loss_us(net, batch, device))
        if batch == min(_usual(net.name)):
            yield net.name, "update", how, parts, batch, 0.0, round(_update_us(model), 3)


def _input_shape(
    net: Network, node: Node, n: int, how: str, parts: int, batch: int, halos: Mapping[str, Halo]
) -> tuple[int, ...]:
    shape = net.inputs(node)[n]
    channels, rows = shape.channels, shape.height
    if how == CHANNEL:
        if isinstance(node.layer, Linear):
            return batch, shape.elements // parts, 1, 1
        channels //= parts
    if how == ROWS:
        rows = rows // parts + halos[node.name].above + halos[node.name].below
    return batch, channels, rows, shape.width


def _layer_us(
    model: Model, node: Node, shapes: list[tuple[int, ...]], how: str, parts: int, first: bool, device: Any
) -> tuple[float, float]:
    inputs = [torch.randn(shape, device=device).requires_grad_(not first) for shape in shapes]
    parameters = [
        tensor.detach().clone().requires_grad_() for tensor in _divided(model.parameters[node.name], node, how, parts)
    ]
    layer = node.layer
    if how == ROWS and isinstance(layer, ConvolutionLayer | Pooling):  # halo rows are in the input already
        node = replace(node, layer=replace(layer, padding=(0, layer.padding[1])))

    def forward() -> Any:
        return model.layer(node, inputs, parameters)

    wanted = [tensor for tensor in (*inputs, *parameters) if tensor.requires_grad]
    gradient = torch.randn_like(forward())
    forward_us = replayed_us(forward, 3, 5)
    if not wanted:
        return forward_us, 0.0
    both = replayed_us(lambda: torch.autograd.grad(forward(), wanted, gradient), 3, 5)
    return forward_us, max(both - forward_us, 0.0)


def _divided(parameters: Sequence[Any], node: Node, how: str, parts: int) -> list[Any]:
    if how == FILTER:
        return [tensor.chunk(parts, 0)[0] for tensor in parameters]
    if how == CHANNEL:
        return [tensor.chunk(parts, 1)[0] if n == 0 else tensor for n, tensor in enumerate(parameters)]
    return list(parameters)


def _loss_us(net: Network, batch: int, device: Any) -> tuple[float, float]:
    _, labels = data(net, batch, device)
    logits = torch.randn(batch, net.shapes[net.nodes[-1].name].channels, device=device, requires_grad=True)
    forward_us = replayed_us(lambda: F.cross_entropy(logits, labels), 5, 7)
    both = replayed_us(lambda: torch.autograd.grad(F.cross_entropy(logits, labels), [logits]), 5, 7)
    return forward_us, max(both - forward_us, 0.0)


def _update_us(model: Model) -> float:
    leaves = model.leaves
    gradients = [torch.zeros_like(leaf) for leaf in leaves]
    with torch.no_grad():
        return replayed_us(lambda: torch._foreach_add_(leaves, gradients, alpha=-1e-3), 5, 7)


# ---- training


def _training(args: argparse.Namespace, device: Any) -> Iterator[Row]:
    ranks = dist.get_world_size()
    for net in map(network, args.networks.split(",")):
        for batch in _batches(args, net.name):
            for strategy, width, make in _trainings(args, net, batch, device):
                cleared()
                before = held_bytes()
                training = make()
                cleared()
                called = called_us(training.step, 6)
                peak = peak_bytes() - before
                replayed = 0.0 if args.eager else replayed_us(training.step, 1, 6)
                found = [round(_slowest(value, device), 1) for value in (called, replayed, peak)]
                yield net.name, strategy, ranks, width, batch, *found
                del training


def _trainings(
    args: argparse.Namespace, net: Network, batch: int, device: Any
) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Strategies with the ranks that divide a layer, each as what makes it."""
    ranks = dist.get_world_size()
    for strategy in args.strategies.split(","):
        if strategy == "overlapped":
            yield from _overlapped(net, batch, device)
        elif strategy == "pipeline":
            places = _cuts(args.out / "layers.csv", net, batch, ranks)
            if places is not None:
                yield strategy, ranks, partial(Pipeline, net, batch, MICRO, places, device)
        else:
            for width in _widths(strategy, ranks):
                if strategy.removeprefix("data+") != "spatial" or by_rows(net, width):
                    yield strategy, width, partial(Training, net, strategy, batch, width, device)


def _widths(strategy: str, ranks: int) -> list[int]:
    """Numbers of ranks a layer may be partitioned over: all, or in a hybrid strategy those that leave equal groups."""
    if strategy == "data":
        return [1]
    return [n for n in range(2, ranks) if ranks % n == 0] if strategy.startswith("data+") else [ranks] * (ranks > 1)


def _overlapped(net: Network, batch: int, device: Any) -> Iterator[tuple[str, int, Callable[[], Any]]]:
    """Data parallelism with overlap: as NCCL has it, at a higher priority, and with few to many thread blocks."""
    yield "overlapped", 1, partial(Overlapped, net, batch, device, None)
    if device.type == "cuda":
        yield "overlapped:priority", 1, partial(_overlapped_by, net, batch, device, None, True)
        if batch == sorted(_usual(net.name))[-2]:
            for blocks in CHANNELS:
                yield f"overlapped:blocks={blocks}", 1, partial(_overlapped_by, net, batch, device, blocks)


def _overlapped_by(
    net: Network, batch: int, device: Any, blocks: int | None, high_priority: bool = False
) -> Overlapped:
    return Overlapped(net, batch, device, _group(blocks, high_priority))


def _group(blocks: int | None, high_priority: bool = False) -> Any:
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=high_priority)
    if blocks is not None:
        options.config.min_ctas = options.config.max_ctas = blocks
    return dist.new_group(pg_options=options)


def _cuts(table: Path, net: Network, batch: int, ranks: int) -> list[int] | None:
    """Where the measured layers say that segments are balanced; without a table by their operations."""
    costs = {node.name: float(flop(node.layer, net.inputs(node))) for node in net.nodes}
    tables = sorted(table.parent.glob("layers*.csv"))
    for path in tables:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if (row["network"], row["divided"], row["batch"]) == (net.name, WHOLE, str(batch // MICRO)):
                    costs[row["layer"]] = float(row["forward_us"]) + float(row["backward_us"])
    return balancer([costs[node.name] for node in net.nodes], cuts(net))(ranks) if ranks > 1 else None


def _usual(name: str) -> tuple[int, ...]:
    return BATCHES.get(name, (32, 64))


def _batches(args: argparse.Namespace, name: str) -> tuple[int, ...]:
    return tuple(map(int, args.batches.split(","))) if args.batches else _usual(name)


# ---- kernels of NCCL


def _kernels(device: Any) -> Iterator[Row]:
    """The kernels of collectives, from the profiler, in a run of its own because profiling slows others."""
    from torch.profiler import ProfilerActivity, profile

    ranks = dist.get_world_size()
    for size in (2**20, 25 * 2**20, 2**27, 2**29):
        for name, work in _calls(size, device).items():
            for _ in range(3):
                work()
            torch.cuda.synchronize()
            dist.barrier()
            with profile(activities=[ProfilerActivity.CUDA]) as recorded:
                for _ in range(3):
                    work()
                torch.cuda.synchronize()
            yield from ((name, ranks, size, *found) for found in _launches(recorded))


def _launches(recorded: Any) -> Iterator[Row]:
    import json
    import tempfile

    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        recorded.export_chrome_trace(file.name)
        events = json.loads(Path(file.name).read_text(encoding="utf-8"))["traceEvents"]
    for event in events:
        if event.get("cat") == "kernel" and "nccl" in event["name"].lower():
            told = event["args"]
            shape = ["x".join(map(str, told[key])) for key in ("grid", "block")]
            yield event["name"], *shape, told["registers per thread"], told["shared memory"], event["dur"]


# ---- check


def _check(args: argparse.Namespace, device: Any) -> Iterator[Row]:
    """The largest difference of an updated parameter from one rank's, over the largest parameter."""
    ranks = dist.get_world_size()
    for net in map(network, args.networks.split(",")):
        for batch in _batches(args, net.name):
            alone = _alone(net, batch, device)
            for strategy, width, make in _trainings(args, net, batch, device):
                training = make()
                training.step()
                differences = [
                    float((mine - _mine(whole, mine, training)).detach().abs().max() / whole.abs().max())
                    for name, leaves in training.model.parameters.items()
                    for mine, whole in zip(leaves, alone[name], strict=True)
                ]
                difference = max(differences, default=0.0)  # a segment may have no parameters
                yield net.name, strategy, ranks, width, _slowest(difference, device)


def _alone(net: Network, batch: int, device: Any) -> dict[str, list[Any]]:
    from experiments.paradl.record.steps import RATE

    model = Model(net, WHOLE, None, device)
    samples, labels = data(net, batch, device)
    F.cross_entropy(model.forward(samples), labels).backward()
    return {name: [(leaf - RATE * leaf.grad).detach() for leaf in leaves] for name, leaves in model.parameters.items()}


def _mine(whole: Any, mine: Any, training: Any) -> Any:
    if whole.shape == mine.shape:
        return whole
    dim = next(d for d in range(whole.dim()) if whole.shape[d] != mine.shape[d])
    return whole.chunk(whole.shape[dim] // mine.shape[dim], dim)[dist.get_rank(training.groups[0])]
