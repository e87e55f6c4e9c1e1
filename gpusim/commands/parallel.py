"""`gpusim parallel`: the cost of a training iteration on many GPUs under each parallelisation strategy."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING

import gpusim
from gpusim.commands.arguments import as_options, json_flag, share, told_with, trace_from, whole
from gpusim.common.tables import Column, counted, number, numbers, print_json, print_line, print_rows, print_table

if TYPE_CHECKING:
    from gpusim.training.networks.network import Network
    from gpusim.training.paradl.cluster import Cluster
    from gpusim.training.paradl.layers import LayerTimes
    from gpusim.training.paradl.oracle import Impossible, ParadlOracle, Projection

MEASURED_RANKS = (2, 4)
MEASURED_BATCHES = {"alexnet": (64, 512), "resnet50": (32, 256), "vgg16": (16, 128)}  # the least and the most
MEASURED = "only 2 and 4 H200s were measured, with alexnet, resnet50 and vgg16 at some batches (experiments/paradl)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", metavar="NETWORK", help="a network by name, such as resnet50")
    parser.add_argument("--ranks", required=True, type=whole(1, 10**6), metavar="N", help="number of GPUs")
    parser.add_argument(
        "--batch", type=whole(1, 10**9), default=256, metavar="N", help="samples per iteration (default: 256)"
    )
    parser.add_argument("--strategy", default="all", metavar="NAME", help="a strategy by name, or all (default)")
    parser.add_argument(
        "--cluster", default="h200", metavar="NAME|FILE", help="h200 (default), h100, abci, or a cluster file"
    )
    parser.add_argument(
        "--layers",
        metavar="FILE",
        help="times of layers: a CSV, or a recorded training trace; default: those that ship",
    )
    parser.add_argument(
        "--scaling",
        choices=("strong", "weak"),
        help="predict for 1, 2, 4, … ranks: strong keeps the samples per iteration, weak the samples per rank",
    )
    parser.add_argument(
        "--gamma",
        type=share,
        default=1.0,
        metavar="SHARE",
        help="share of activations and gradients that is held at once (default: 1)",
    )
    json_flag(parser)


def run(args: argparse.Namespace) -> None:
    """Print the projections, and the best that fits the memory of a GPU."""
    from gpusim.training.networks.zoo import network
    from gpusim.training.paradl.cluster import load_cluster
    from gpusim.training.paradl.oracle import ParadlOracle

    with as_options(cluster="--cluster"):
        net, cluster = network(args.network), load_cluster(args.cluster)
    oracle = ParadlOracle(net, _times(args.layers, net, cluster), cluster, args.gamma)
    points = [(args.ranks, args.batch)]
    if args.scaling:
        counts = sorted({*(2**n for n in range(args.ranks.bit_length())), args.ranks})
        points = [(ranks, args.batch * (ranks if args.scaling == "weak" else 1)) for ranks in counts]
    found = [
        (ranks, batch, _projected(oracle, args.strategy, ranks, batch, bool(args.scaling))) for ranks, batch in points
    ]
    if args.json:
        content = {"version": 1, "network": net.name, "cluster": cluster.name, "gpu": cluster.gpu.name}
        print_json(content | {"points": [_plain(cluster, *point) for point in found]})
    elif args.scaling:
        _print_scaling(net, cluster, args.scaling, found, recorded=args.layers is not None)
    else:
        _print_strategies(net, cluster, *found[0], recorded=args.layers is not None)


def _times(path: str | None, net: Network, cluster: Cluster) -> LayerTimes:
    from gpusim.training.paradl.layers import measured_times, read_times, traced_times

    gpu = cluster.gpu
    if path is None:
        with as_options(layers="--layers"):
            return measured_times(net, gpu.name)
    if path.endswith((".csv", ".csv.gz")):
        return read_times(path, net, gpu.name)
    trace = trace_from([path])
    with told_with([path]):
        return traced_times(net, trace, gpusim.Session(gpu).operations_us(trace), gpu.name)


def _projected(
    oracle: ParadlOracle, strategy: str, ranks: int, batch: int, several: bool
) -> list[Projection | Impossible]:
    from gpusim.training.paradl.oracle import Impossible

    if strategy == "all":
        return oracle.project_all(ranks, batch)
    try:
        with as_options(strategy="--strategy"):
            return [oracle.project(strategy, ranks, batch)]
    except Impossible as reason:
        if not several:
            raise
        return [reason]


def _plain(cluster: Cluster, ranks: int, batch: int, found: list[Projection | Impossible]) -> dict[str, object]:
    from gpusim.training.paradl.oracle import Impossible, fastest

    best = fastest(found, cluster.gpu.memory_bytes)
    return {
        "ranks": ranks,
        "batch": batch,
        "best": None if best is None else best.strategy,
        "strategies": [
            {"strategy": each.place, "impossible": f"{each.problem}; expected {each.expected}"}
            if isinstance(each, Impossible)
            else asdict(each)
            | {"iteration_us": each.iteration_us, "fits": each.memory_bytes <= cluster.gpu.memory_bytes}
            for each in found
        ],
    }


def _print_strategies(
    net: Network, cluster: Cluster, ranks: int, batch: int, found: list[Projection | Impossible], recorded: bool
) -> None:
    from gpusim.training.paradl.oracle import Impossible, Projection, fastest

    possible = sorted((each for each in found if isinstance(each, Projection)), key=lambda each: each.iteration_us)
    columns = [
        (Column("strategy"), lambda each: each.strategy),
        (Column("groups x ranks", right=True), lambda each: f"{each.ranks // each.width}x{each.width}"),
        (Column("computation µs", right=True), lambda each: number(each.computation_us, 0)),
        (Column("communication µs", right=True), lambda each: number(each.communication_us, 0)),
        (Column("iteration µs", right=True), lambda each: number(each.iteration_us, 0)),
        (Column("samples/s", right=True), lambda each: number(1e6 * batch / each.iteration_us, 0)),
        (Column("GiB", right=True), lambda each: number(each.memory_bytes / 2**30, 1)),
    ]
    title = f"{net.name} on {ranks} GPUs of {cluster.name} ({cluster.title}), {counted(batch, 'sample')} an iteration"
    print_rows(possible, columns, title)
    for each in found:
        if isinstance(each, Impossible):
            print_line(f"not possible: {each}")
    best = fastest(found, cluster.gpu.memory_bytes)
    memory = f"the {number(cluster.gpu.memory_bytes / 2**30, 0)} GiB of a GPU"
    too_large = [each.strategy for each in possible if each.memory_bytes > cluster.gpu.memory_bytes]
    if too_large:
        print_line(f"do not fit: {', '.join(too_large)}: more than {memory}")
    print_line(f"best: {best.strategy}" if best else "none can run")
    if recorded or not _measured(net, cluster, ranks, batch):
        print_line(f"note: {MEASURED}; this time is not validated")


def _measured(net: Network, cluster: Cluster, ranks: int, batch: int) -> bool:
    """Whether iterations like this one were measured, of layers with the times that ship."""
    least, most = MEASURED_BATCHES.get(net.name, (inf, 0.0))
    return cluster.name == "h200" and ranks in MEASURED_RANKS and least <= batch <= most


def _print_scaling(
    net: Network,
    cluster: Cluster,
    scaling: str,
    found: list[tuple[int, int, list[Projection | Impossible]]],
    recorded: bool,
) -> None:
    from gpusim.training.paradl.oracle import Impossible, fastest

    def name(each: Projection | Impossible) -> str:
        return each.place if isinstance(each, Impossible) else each.strategy

    columns = [*numbers("ranks", "samples", *map(name, found[0][2])), Column("best")]
    rows = []
    for ranks, batch, each in found:
        times = ["-" if isinstance(one, Impossible) else number(one.iteration_us / 1e3, 2) for one in each]
        best = fastest(each, cluster.gpu.memory_bytes)
        rows.append((str(ranks), str(batch), *times, best.strategy if best else "-"))
    print_table(columns, rows, f"{net.name} on GPUs of {cluster.name}, {scaling} scaling: ms of an iteration")
    print_line("best: of those that fit the memory of a GPU; -: not possible, or none fits")
    some = not recorded and any(_measured(net, cluster, ranks, batch) for ranks, batch, _ in found)
    print_line(f"note: {MEASURED}; {'the other' if some else 'these'} times are not validated")
