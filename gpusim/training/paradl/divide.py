"""Layers that a strategy divides between ranks, and the kind of division.

Filter and channel parallelism divide convolutions and fully connected layers (filter all but the last, channel all but
the first and the last); all others run whole on every rank. Spatial parallelism divides layers by rows as long as the
rows of input and output are multiples of the ranks. The first other layer, and all after it, run whole on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpusim.training.networks import layers
from gpusim.training.networks.layers import Layer
from gpusim.training.networks.network import INPUT, Network, Node

WHOLE, FILTER, CHANNEL, ROWS = "whole", "filter", "channel", "rows"  # what a layer is divided into


@dataclass(frozen=True, slots=True)
class Halo:
    """Rows of neighbouring ranks that a layer's windows need."""

    above: int  # rows of the rank above
    below: int  # rows of the rank below


def by_filter(network: Network) -> frozenset[str]:
    """Layers that filter parallelism divides."""
    return frozenset(node.name for node in _weighted(network)[:-1])


def by_channel(network: Network) -> frozenset[str]:
    """Layers that channel parallelism divides: the first has too few channels."""
    return frozenset(node.name for node in _weighted(network)[1:-1])


def by_rows(network: Network, ranks: int) -> Mapping[str, Halo]:
    """Layers that spatial parallelism divides, each with its halo."""
    found: dict[str, Halo] = {}
    for node in network.nodes:
        halo = _halo(network, node, ranks)
        if halo is not None and all(name == INPUT or name in found for name in node.inputs):
            found[node.name] = halo
    return found


def _weighted(network: Network) -> list[Node]:
    return [node for node in network.nodes if isinstance(node.layer, layers.ConvolutionLayer | layers.Linear)]


def _halo(network: Network, node: Node, ranks: int) -> Halo | None:
    """The halo of a layer; None where its rows cannot be divided evenly between the ranks."""
    rows, out = network.inputs(node)[0].height, network.shapes[node.name].height
    if rows % ranks or out % ranks:
        return None
    window = _window(node.layer)
    if window is None:
        return None
    size, stride, padding = window
    above, below = max(padding, 0), max(size - stride - padding, 0)
    return Halo(above, below) if rows == out * stride and max(above, below) <= rows // ranks else None


def _window(layer: Layer) -> tuple[int, int, int] | None:
    """Height, stride and padding of a layer's windows; None for layers whose outputs need all rows."""
    match layer:
        case layers.ConvolutionLayer() | layers.Pooling():
            return layer.kernel[0], layer.stride, layer.padding[0]
        case layers.ReLU() | layers.BatchNormalisation() | layers.Addition() | layers.Concatenation():
            return 1, 1, 0
    return None
