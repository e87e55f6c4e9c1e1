"""Work of layers, by which a pipeline is balanced where no layer was measured."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from gpusim.training.networks.layers import (
    Addition,
    BatchNormalisation,
    Concatenation,
    ConvolutionLayer,
    Layer,
    Linear,
    LocalResponseNormalisation,
    Pooling,
    Shape,
)


def flop(layer: Layer, inputs: Sequence[Shape]) -> int:
    """Floating-point operations of a layer's forward pass of one sample; a multiply-add is two."""
    out, given = layer.output(inputs).elements, inputs[0]
    match layer:
        case ConvolutionLayer():
            return 2 * out * given.channels * prod(layer.kernel)
        case Linear():
            return 2 * out * given.elements
        case Pooling():
            return out * prod(layer.kernel)
        case LocalResponseNormalisation():
            return out * (2 * layer.size + 2)
        case BatchNormalisation():
            return 4 * out
        case Addition():
            return (len(inputs) - 1) * out
        case Concatenation():
            return 0
    return out
