"""CosmoFlow, the paper's three-dimensional network, by ParaDL's formulas: communication and memory of an iteration.

No layer of it was recorded, so computation is left out. Five convolutions of 3x3x3 filters, each followed by a pooling
that halves its three dimensions, and three dense layers [M].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from experiments.markdown import table
from gpusim.training.paradl.cluster import load_cluster
from gpusim.training.paradl.equations import channel_us, data_us, filter_us, memory_bytes, spatial_us

COLUMNS = ("size", "ranks", "batch", "strategy", "communication_ms", "memory_gb")
INPUTS, CHANNELS, DENSE = 4, (16, 32, 64, 128, 256), (128, 64, 4)
FILTER = 3  # in each dimension; it reads one plane of a neighbour's part on either side
SIZES = (128, 256, 512)  # of an input in each dimension
RANKS = (4, 8, 16)
CLUSTER, MEMORY_GB = "abci", 16  # the paper's nodes of V100s, and the memory of one


@dataclass(frozen=True)
class Layer:
    """A layer: elements of its input and output (one sample), parameters, and elements of one plane of its input."""

    x: int
    y: int
    w: int
    plane: int


def layers(size: int) -> tuple[list[Layer], list[Layer], list[Layer]]:
    """Convolutions, poolings and dense layers for an input of ``size`` in each dimension."""
    convolutions, poolings, dense = [], [], []
    channels = INPUTS
    for filters in CHANNELS:
        weights = filters * (channels * FILTER**3 + 1)
        convolutions.append(Layer(channels * size**3, filters * size**3, weights, channels * size**2))
        poolings.append(Layer(filters * size**3, filters * (size // 2) ** 3, 0, 0))
        channels, size = filters, size // 2
    values = channels * size**3
    for outputs in DENSE:
        dense.append(Layer(values, outputs, (values + 1) * outputs, 0))
        values = outputs
    return convolutions, poolings, dense


def rows() -> Iterator[tuple[object, ...]]:
    """Each strategy on each number of ranks, with the smallest batch that it can divide."""
    for size in SIZES:
        for ranks in RANKS:
            for strategy, batch, us, held in projected(size, ranks):
                yield size, ranks, batch, strategy, f"{us / 1e3:.2f}", f"{held / 1e9:.2f}"


def projected(size: int, p: int) -> Iterator[tuple[str, int, float, float]]:
    """Strategies that can divide the network among ``p`` ranks: batch, communication (us), memory of a rank (bytes).

    The batch is one sample a rank under data parallelism and one sample under the others. Spatial parallelism divides
    the depth of the convolutions and poolings. Filter and channel parallelism divide all convolutions but the first,
    whose input has four channels.
    """
    links = load_cluster(CLUSTER).links(p)
    convolutions, poolings, dense = layers(size)
    every = [*convolutions, *poolings, *dense]
    parameters, whole = fsum(one.w for one in every), fsum(one.x + one.y for one in every)
    yield "data", p, data_us(p, parameters, links), memory_bytes(whole, parameters)
    if size // 2 ** (len(CHANNELS) - 1) % (2 * p) == 0:
        halos = [2 * one.plane for one in convolutions]
        us = spatial_us(p, 1, parameters, halos, [poolings[-1].y], links)
        ends = fsum(one.x + one.y for one in dense)
        yield "spatial", 1, us, memory_bytes((whole - ends) / p + ends, parameters)
    divided = convolutions[1:]
    kept = parameters - fsum(one.w for one in divided) * (1 - 1 / p)
    if CHANNELS[0] % p == 0:
        y, x = [one.y for one in divided], [one.x for one in divided]
        without = whole - fsum(one.y for one in divided) * (1 - 1 / p)
        yield "filter", 1, filter_us(p, 1, y, x, links), memory_bytes(without, kept)
        without = whole - fsum(one.x for one in divided) * (1 - 1 / p)
        yield "channel", 1, channel_us(p, 1, y, x, links), memory_bytes(without, kept)


def values(found: Sequence[Mapping[str, str]]) -> dict[str, object]:
    """What the page says of it."""
    strategies = list(dict.fromkeys(row["strategy"] for row in found))
    cells = {(row["size"], row["ranks"], row["strategy"]): row for row in found}
    lines = [
        [
            f"{size}³",
            str(ranks),
            *(
                f"{row['communication_ms']} / {row['memory_gb']}"
                if (row := cells.get((str(size), str(ranks), one)))
                else ""
                for one in strategies
            ),
        ]
        for size in SIZES
        for ranks in RANKS
    ]
    most = [row for row in found if row["size"] == str(SIZES[-1])]
    fitting = sorted({row["strategy"] for row in most if float(row["memory_gb"]) <= MEMORY_GB})
    parameters = fsum(one.w for part in layers(SIZES[0]) for one in part)
    a_sample = memory_bytes(fsum(one.x + one.y for part in layers(SIZES[-1]) for one in part), 0.0)
    return {
        "cosmoflow": table(["input", "ranks", *strategies], lines),
        "cosmoflow_parameters": f"{parameters / 1e6:.1f}",
        "cosmoflow_sample": f"{a_sample / 1e9:.0f}",
        "cosmoflow_fitting": " and ".join(fitting) or "no strategy",
        "cosmoflow_gb": MEMORY_GB,
    }
