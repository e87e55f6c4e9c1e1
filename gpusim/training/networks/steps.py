"""A pass through a network as steps: calls of a library, each with the steps that it waits for.

Forward a layer is one step, but for a convolution's bias (a step of its own) and a concatenation (a copy for each
part). Backward a gradient that several layers give is summed up in steps between; gradients of parameters are steps
that nothing waits for. Loss, dropout and the update of the parameters are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Literal

from gpusim.training.networks import layers
from gpusim.training.networks.layers import Layer, Pair, Shape
from gpusim.training.networks.network import INPUT, Network, Node

CONVOLUTION, CONCATENATION = "CONVOLUTION", "CONCAT"
Direction = Literal["fwd", "bwd", "bwd_data", "bwd_filter"]


@dataclass(frozen=True, slots=True)
class CallWork:
    """Work of a call; calls of equal work are the same to a library."""

    # CONVOLUTION, or which layer: MAX_POOL, AVERAGE_POOL, RELU, LRN, BATCH_NORM, BATCH_NORM_INFERENCE, BIAS, ADD,
    # CONCAT (a copy into the whole, backward out of it), TO_NHWC, TO_NCHW
    kind: str
    direction: Direction  # fwd or bwd; of a convolution's gradients bwd_data or bwd_filter
    batch: int  # samples
    channels: int  # of the input; of a concatenation of the part
    height: int  # of the input, pixels
    width: int  # of the input, pixels
    out_channels: int  # of the output; of a concatenation of the whole
    kernel: Pair = (1, 1)  # height and width of a filter or window
    padding: Pair = (0, 0)  # zeros above and below, and left and right
    stride: int = 1  # of both directions


@dataclass(frozen=True, slots=True)
class Step:
    """A call in its place."""

    id: str  # layer/direction, unique in a pass
    layer: str  # whose it is
    work: CallWork  # what it computes
    after: tuple[str, ...]  # ids of the steps that it waits for
    of_parameters: bool = False  # it gives a gradient of parameters, which no other step waits for


def forward(network: Network, batch: int) -> list[Step]:
    """The forward pass of inference, in an order in which it can run."""
    steps = _Pass(network, batch, training=False)
    steps.forward()
    return steps.steps


def training_iteration(network: Network, batch: int) -> list[Step]:
    """The forward pass, then the backward pass from the gradient of the last layer's output."""
    steps = _Pass(network, batch, training=True)
    steps.forward()
    steps.backward()
    return steps.steps


class _Pass:
    """Collector of steps; `made` names the steps that make the output of a layer."""

    def __init__(self, network: Network, batch: int, training: bool) -> None:
        self.network = network
        self.batch = batch
        self.training = training
        self.made: dict[str, tuple[str, ...]] = {INPUT: ()}
        self.steps: list[Step] = []

    def forward(self) -> None:
        for node in self.network.nodes:
            self.made[node.name] = self._forward(node)

    def backward(self) -> None:
        last = self.network.nodes[-1].name
        gradients: dict[str, list[tuple[str, ...]]] = {node.name: [] for node in self.network.nodes}
        gradients[last] = [self.made[last]]
        for node in reversed(self.network.nodes):
            if gradients[node.name]:
                gradient = self._sum(node, gradients[node.name])
                for name, given in self._backward(node, gradient):
                    if name != INPUT:
                        gradients[name].append(given)

    def _add(
        self, layer: str, work: CallWork, after: Sequence[str], suffix: str = "", of_parameters: bool = False
    ) -> str:
        step = Step(f"{layer}/{suffix or work.direction}", layer, work, tuple(after), of_parameters)
        self.steps.append(step)
        return step.id

    def _forward(self, node: Node) -> tuple[str, ...]:
        shapes = self.network.inputs(node)
        after = [step for name in node.inputs for step in self.made[name]]
        match node.layer:
            case layers.Concatenation():
                return tuple(
                    self._add(f"{node.name}.{n}", self._part(node, shape, "fwd"), self.made[name])
                    for n, (name, shape) in enumerate(zip(node.inputs, shapes, strict=True))
                )
            case layers.Addition():
                for n in range(len(shapes) - 1):
                    layer = node.name if n == 0 else f"{node.name}.{n}"
                    after = [self._add(layer, self._simple("ADD", shapes[0], "fwd"), after)]
                return tuple(after)
        made = self._add(node.name, self._work(node.layer, shapes[0], "fwd"), after)
        if _has_bias(node.layer):
            made = self._add(f"{node.name}.bias", self._simple("BIAS", self.network.shapes[node.name], "fwd"), [made])
        return (made,)

    def _backward(self, node: Node, gradient: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
        """Add the steps of a layer; return the gradients of what it reads as (name, steps that make it)."""
        shapes = self.network.inputs(node)
        match node.layer:
            case layers.Concatenation():
                return [
                    (name, (self._add(f"{node.name}.{n}", self._part(node, shape, "bwd"), gradient),))
                    for n, (name, shape) in enumerate(zip(node.inputs, shapes, strict=True))
                ]
            case layers.Addition():
                return [(name, gradient) for name in node.inputs]
            case layers.ConvolutionLayer() | layers.Linear():
                return self._backward_convolution(node, gradient)
        work = self._work(node.layer, shapes[0], "bwd")
        return [(node.inputs[0], (self._add(node.name, work, gradient),))]

    def _backward_convolution(self, node: Node, gradient: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
        (shape,), (read,) = self.network.inputs(node), node.inputs
        if _has_bias(node.layer):
            bias = self._simple("BIAS", self.network.shapes[node.name], "bwd")
            self._add(f"{node.name}.bias", bias, gradient, of_parameters=True)
        self._add(node.name, self._work(node.layer, shape, "bwd_filter"), gradient, of_parameters=True)
        if read == INPUT:
            return []
        return [(read, (self._add(node.name, self._work(node.layer, shape, "bwd_data"), gradient),))]

    def _sum(self, node: Node, gradients: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """One gradient out of those that the readers of a layer give."""
        total, *others = gradients
        for n, other in enumerate(others):
            work = self._simple("ADD", self.network.shapes[node.name], "fwd")
            total = (self._add(f"{node.name}.sum{n}", work, [*total, *other], suffix="bwd"),)
        return total

    def _work(self, layer: Layer, shape: Shape, direction: Direction) -> CallWork:
        given = (self.batch, shape.channels, shape.height, shape.width)
        match layer:
            case layers.ConvolutionLayer(channels, kernel, stride, padding):
                return CallWork(CONVOLUTION, direction, *given, channels, kernel, padding, stride)
            case layers.Linear(features):
                return CallWork(CONVOLUTION, direction, self.batch, shape.elements, 1, 1, features)
            case layers.Pooling():
                kind = "MAX_POOL" if layer.kind == "max" else "AVERAGE_POOL"
                padding = _whole_padding(layer, shape)
                return CallWork(kind, direction, *given, shape.channels, layer.kernel, padding, layer.stride)
            case layers.ReLU():
                return self._simple("RELU", shape, direction)
            case layers.LocalResponseNormalisation():
                return self._simple("LRN", shape, direction)
            case layers.BatchNormalisation():
                return self._simple("BATCH_NORM" if self.training else "BATCH_NORM_INFERENCE", shape, direction)
        raise NotImplementedError(f"steps of a {type(layer).__name__}")

    def _simple(self, kind: str, shape: Shape, direction: Direction) -> CallWork:
        return CallWork(kind, direction, self.batch, shape.channels, shape.height, shape.width, shape.channels)

    def _part(self, node: Node, part: Shape, direction: Direction) -> CallWork:
        whole = self.network.shapes[node.name]
        return CallWork(CONCATENATION, direction, self.batch, part.channels, part.height, part.width, whole.channels)


def _has_bias(layer: Layer) -> bool:
    return isinstance(layer, layers.Linear) or (isinstance(layer, layers.ConvolutionLayer) and layer.bias)


def _whole_padding(layer: layers.Pooling, shape: Shape) -> Pair:
    """The least padding with which as many whole windows fit as the layer has: libraries know no ``ceil``."""
    out = layer.output([shape])
    sizes = zip((shape.height, shape.width), (out.height, out.width), layer.kernel, layer.padding, strict=True)
    down, across = (
        next(pad for pad in count(least) if (size + 2 * pad - window) // layer.stride + 1 >= windows)
        for size, windows, window, least in sizes
    )
    return down, across
