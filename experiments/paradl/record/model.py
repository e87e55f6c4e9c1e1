"""A network of `gpusim.training.networks` in PyTorch, each layer whole or divided between the ranks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from experiments.paradl.record.split import Gathered, Shared, Summed, Taken, WithHalo, part
from gpusim.training.networks.layers import (
    Addition,
    BatchNormalisation,
    Concatenation,
    ConvolutionLayer,
    Linear,
    LocalResponseNormalisation,
    Pooling,
    ReLU,
)
from gpusim.training.networks.network import INPUT, Network, Node
from gpusim.training.paradl.divide import CHANNEL, FILTER, ROWS, WHOLE, Halo, by_channel, by_filter, by_rows


class Model:
    """The layers from ``begin`` to ``end`` with their parameters, which are the same on every machine and division.

    Attributes:
        parameters: of every layer that has some.
    """

    def __init__(
        self, network: Network, division: str, group: Any, device: Any, begin: int = 0, end: int | None = None
    ) -> None:
        self.network, self.group, self.device = network, group, device
        self.nodes = network.nodes[begin:end]
        self.halos: dict[str, Halo] = {}
        self.how: dict[str, str] = {}
        if division == FILTER:
            self.how = dict.fromkeys(by_filter(network), FILTER)
        elif division == CHANNEL:
            self.how = dict.fromkeys(by_channel(network), CHANNEL)
        elif division == ROWS:
            self.halos = dict(by_rows(network, dist.get_world_size(group)))
            self.how = dict.fromkeys(self.halos, ROWS)
        seeds = {node.name: n for n, node in enumerate(network.nodes)}
        self.parameters = {node.name: self._made(node, seeds[node.name]) for node in self.nodes}

    @property
    def leaves(self) -> list[Any]:
        """All parameters, one after the other."""
        return [leaf for leaves in self.parameters.values() for leaf in leaves]

    def divided(self, node: Node) -> str:
        """Return the kind of division of a layer."""
        return self.how.get(node.name, WHOLE)

    def forward(self, x: Any) -> Any:
        """The output of the last layer; the input is whole on every rank."""
        if self.nodes and self.divided(self.nodes[0]) == ROWS:
            x = part(x, 2, self.group)
        made = {name: x for node in self.nodes for name in node.inputs if name == INPUT or name not in self._names()}
        whole: dict[str, Any] = {}
        for node in self.nodes:
            if self.divided(node) == ROWS:
                given = [made[name] for name in node.inputs]
            else:
                given = [self._whole(name, made, whole) for name in node.inputs]
            made[node.name] = self.layer(node, given, self.parameters[node.name])
        return self._whole(self.nodes[-1].name, made, whole)

    def layer(self, node: Node, given: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """The output of one layer."""
        x = given[0]
        halo = self.halos.get(node.name)
        match node.layer:
            case ConvolutionLayer() as layer:
                down, across = layer.padding
                if halo is not None:
                    x, down = self._haloed(x, halo, 0.0), 0
                return self._divided(
                    node, x, parameters, lambda x, w, b: F.conv2d(x, w, b, layer.stride, (down, across))
                )
            case Linear():
                return self._divided(node, x.flatten(1), parameters, F.linear)
            case Pooling() as layer:
                down, across = layer.padding
                if halo is not None:
                    x, down = self._haloed(x, halo, -torch.inf if layer.kind == "max" else 0.0), 0
                pool = F.max_pool2d if layer.kind == "max" else F.avg_pool2d
                return pool(x, layer.kernel, layer.stride, (down, across), ceil_mode=layer.ceil)
            case ReLU():
                return F.relu(x)
            case BatchNormalisation():
                return F.batch_norm(x, None, None, *parameters, training=True)
            case LocalResponseNormalisation() as layer:
                return F.local_response_norm(x, layer.size)
            case Addition():
                return x + given[1]
            case Concatenation():
                return torch.cat(tuple(given), 1)
        raise NotImplementedError(f"{type(node.layer).__name__} in PyTorch")

    def _divided(self, node: Node, x: Any, parameters: Sequence[Any], compute: Any) -> Any:
        weight, bias = (*parameters, None)[:2]
        match self.divided(node):
            case "filter":
                if x.requires_grad:
                    x = Shared.apply(x, self.group)
                return Gathered.apply(compute(x, weight, bias), 1, self.group)
            case "channel":
                y = Summed.apply(compute(Taken.apply(x, 1, self.group), weight, None), self.group)
                return y if bias is None else y + bias.view(-1, *([1] * (y.dim() - 2)))
        return compute(x, weight, bias)

    def _haloed(self, x: Any, halo: Halo, fill: float) -> Any:
        return WithHalo.apply(x, halo.above, halo.below, fill, self.group) if halo.above or halo.below else x

    def _names(self) -> set[str]:
        return {node.name for node in self.nodes}

    def _whole(self, name: str, made: dict[str, Any], whole: dict[str, Any]) -> Any:
        if self.how.get(name) != ROWS:
            return made[name]
        if name not in whole:
            whole[name] = Gathered.apply(made[name], 2, self.group)
        return whole[name]

    def _made(self, node: Node, seed: int) -> list[Any]:
        """Return the part of a layer's parameters that this rank keeps."""
        (given, *_) = self.network.inputs(node)
        match node.layer:
            case ConvolutionLayer() as layer:
                shape: tuple[int, ...] = (layer.out_channels, given.channels, *layer.kernel)
                biases = layer.bias
            case Linear() as layer:
                shape, biases = (layer.out_features, given.elements), True
            case BatchNormalisation():
                return [self._leaf(torch.ones(given.channels)), self._leaf(torch.zeros(given.channels))]
            case _:
                return []
        generator = torch.Generator(device=self.device).manual_seed(seed)
        weight = torch.randn(shape, generator=generator, device=self.device) * (2 / prod(shape[1:])) ** 0.5
        bias = [torch.zeros(shape[0])] if biases else []
        how = self.divided(node)
        if how == FILTER:
            return [self._leaf(part(tensor, 0, self.group)) for tensor in (weight, *bias)]
        if how == CHANNEL:
            return [self._leaf(part(weight, 1, self.group)), *map(self._leaf, bias)]
        return [self._leaf(tensor) for tensor in (weight, *bias)]

    def _leaf(self, tensor: Any) -> Any:
        return tensor.detach().to(self.device).clone(memory_format=torch.contiguous_format).requires_grad_()
