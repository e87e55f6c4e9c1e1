"""A network: named layers, each with the layers or the input that it reads, in an order in which they can run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gpusim.common.errors import InputError, faults_of, quote
from gpusim.training.networks.layers import Layer, Shape

INPUT = "input"  # the name under which layers read what the network is given


@dataclass(frozen=True, slots=True)
class Node:
    """A layer in its place: its name, and the names that it reads."""

    name: str
    layer: Layer
    inputs: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """A graph of layers."""

    name: str  # what it is called
    input: Shape  # shape of one sample
    nodes: tuple[Node, ...]  # layers, each after all that it reads

    def __post_init__(self) -> None:
        known = {INPUT}
        for node in self.nodes:
            unknown = [name for name in node.inputs if name not in known]
            if unknown or not node.inputs:
                problem = f"reads {quote(unknown[0])}" if unknown else "reads nothing"
                raise InputError(None, f"layer {node.name}", problem, "layers before it")
            if node.name in known:
                raise InputError(None, f"layer {node.name}", "is there twice", "one layer of a name")
            known.add(node.name)

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """The output of every layer for one sample, by name; the network's input under `INPUT`."""
        found = {INPUT: self.input}
        for node in self.nodes:
            with faults_of(place=f"{self.name}: layer {node.name}"):
                found[node.name] = node.layer.output([found[name] for name in node.inputs])
        return found

    def inputs(self, node: Node) -> Sequence[Shape]:
        """The input shapes of a layer."""
        return [self.shapes[name] for name in node.inputs]


class Builder:
    """Builds a network layer by layer; `add` returns the name by which later layers refer to a layer's output."""

    def __init__(self, name: str, input: Shape) -> None:
        self._name = name
        self._input = input
        self._nodes: list[Node] = []

    def add(self, name: str, layer: Layer, *inputs: str) -> str:
        """Add a layer that reads ``inputs``, or the layer before it."""
        before = self._nodes[-1].name if self._nodes else INPUT
        self._nodes.append(Node(name, layer, inputs or (before,)))
        return name

    def network(self) -> Network:
        """The network of the layers added so far."""
        return Network(self._name, self._input, tuple(self._nodes))
