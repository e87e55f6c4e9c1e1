"""Layers of a convolutional network: output shape and parameters of each.

All numbers are for one sample. A new kind of layer is one class that answers the two questions of `Layer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

from gpusim.common.errors import InputError

Pair = tuple[int, int]  # height, width


@dataclass(frozen=True, slots=True)
class Shape:
    """Channels, height and width of one sample's tensor; a vector has height and width 1."""

    channels: int
    height: int
    width: int

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return self.channels * self.height * self.width


class Layer:
    """A layer: a function from tensors to a tensor. A subclass overrides what differs from `ReLU`."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        """Return the output shape: by default that of the one input."""
        (given,) = inputs
        return given

    def parameters(self, inputs: Sequence[Shape]) -> int:
        """Learned numbers: weights, biases, scales."""
        return 0


@dataclass(frozen=True, slots=True)
class ConvolutionLayer(Layer):
    """A 2-D convolution."""

    out_channels: int  # filters
    kernel: Pair  # height and width of a filter
    stride: int = 1  # of both directions
    padding: Pair = (0, 0)  # zeros above and below, and left and right
    bias: bool = True  # adds one number a filter

    def output(self, inputs: Sequence[Shape]) -> Shape:
        (given,) = inputs
        return Shape(self.out_channels, *_windows(given, self.kernel, self.stride, self.padding, ceil=False))

    def parameters(self, inputs: Sequence[Shape]) -> int:
        return self.out_channels * (inputs[0].channels * prod(self.kernel) + self.bias)


@dataclass(frozen=True, slots=True)
class Pooling(Layer):
    """Max or average pooling; with ``ceil`` a last, partial window counts, too."""

    kind: Literal["max", "average"]
    kernel: Pair
    stride: int = 1
    padding: Pair = (0, 0)
    ceil: bool = False

    def output(self, inputs: Sequence[Shape]) -> Shape:
        (given,) = inputs
        return Shape(given.channels, *_windows(given, self.kernel, self.stride, self.padding, self.ceil))


@dataclass(frozen=True, slots=True)
class ReLU(Layer):
    """Negative values become 0."""


@dataclass(frozen=True, slots=True)
class LocalResponseNormalisation(Layer):
    """Each value over a norm of its neighbours in ``size`` channels."""

    size: int = 5


@dataclass(frozen=True, slots=True)
class BatchNormalisation(Layer):
    """Each channel to mean 0 and variance 1 over the batch, then a learned scale and shift."""

    def parameters(self, inputs: Sequence[Shape]) -> int:
        return 2 * inputs[0].channels


@dataclass(frozen=True, slots=True)
class Concatenation(Layer):
    """Tensors of one height and width, channel after channel."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        first = inputs[0]
        if any((other.height, other.width) != (first.height, first.width) for other in inputs):
            raise InputError(None, "concatenation", f"of {_texts(inputs)}", "tensors of one height and width")
        return Shape(sum(shape.channels for shape in inputs), first.height, first.width)


@dataclass(frozen=True, slots=True)
class Addition(Layer):
    """The sum of tensors of one shape."""

    def output(self, inputs: Sequence[Shape]) -> Shape:
        if len(set(inputs)) != 1:
            raise InputError(None, "addition", f"of {_texts(inputs)}", "tensors of one shape")
        return inputs[0]


@dataclass(frozen=True, slots=True)
class Linear(Layer):
    """A fully connected layer with bias."""

    out_features: int

    def output(self, inputs: Sequence[Shape]) -> Shape:
        return Shape(self.out_features, 1, 1)

    def parameters(self, inputs: Sequence[Shape]) -> int:
        return self.out_features * (inputs[0].elements + 1)


def _windows(given: Shape, kernel: Pair, stride: int, padding: Pair, ceil: bool) -> Pair:
    """How many windows fit down and across."""
    counts = []
    for size, window, pad in zip((given.height, given.width), kernel, padding, strict=True):
        room = size + 2 * pad - window
        if room < 0:
            raise InputError(None, "window", f"of {window} on {size} rows or columns", "one that fits with its padding")
        count = (-(-room // stride) if ceil else room // stride) + 1
        if ceil and (count - 1) * stride >= size + pad:  # a window that begins beyond the data is none
            count -= 1
        counts.append(count)
    return counts[0], counts[1]


def _texts(shapes: Sequence[Shape]) -> str:
    return ", ".join(f"{s.channels}x{s.height}x{s.width}" for s in shapes)
