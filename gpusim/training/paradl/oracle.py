"""The oracle: the time of an iteration under each strategy, the possible strategies, and the best one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from math import ceil, fsum

import numpy as np
import numpy.typing as npt

from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.tables import counted
from gpusim.training.networks.layers import Linear
from gpusim.training.networks.network import INPUT, Network, Node
from gpusim.training.paradl import equations
from gpusim.training.paradl.cluster import Cluster
from gpusim.training.paradl.divide import CHANNEL, FILTER, ROWS, WHOLE, Halo, by_channel, by_filter, by_rows
from gpusim.training.paradl.equations import DELTA
from gpusim.training.paradl.layers import BatchCurve, LayerTimes, sizes
from gpusim.training.paradl.segments import balancer, cuts

STRATEGIES = ("data", "spatial", "pipeline", "filter", "channel", "data+filter", "data+spatial")
MICRO_BATCHES = 4  # S of a pipeline
Array = npt.NDArray[np.int_]


@dataclass(frozen=True, slots=True)
class Projection:
    """An iteration under a strategy."""

    strategy: str  # its name
    ranks: int  # GPUs
    width: int  # how many of them divide a layer; 1: layers are not divided
    batch: int  # samples of an iteration, over all ranks
    computation_us: float  # of the slowest rank
    communication_us: float  # not overlapped with computation
    memory_bytes: float  # of the rank that needs most

    @property
    def iteration_us(self) -> float:
        """Computation and communication, one after the other."""
        return self.computation_us + self.communication_us


class Impossible(InputError):
    """More ranks than a strategy can use for a network and batch."""


def fastest(found: Iterable[Projection | Impossible], memory_limit_bytes: float) -> Projection | None:
    """The fastest projection that is possible and fits the memory of a GPU; None where there is none."""
    fitting = [each for each in found if isinstance(each, Projection) and each.memory_bytes <= memory_limit_bytes]
    return min(fitting, key=lambda each: each.iteration_us, default=None)


class ParadlOracle:
    """Projects iterations of a network on a cluster.

    ``gamma`` is the share of the values and gradients of all layers that is held at once. ``copies``: also count the
    local copies that dividing and gathering tensors takes [D].
    """

    def __init__(
        self, network: Network, times: LayerTimes, cluster: Cluster, gamma: float = 1.0, copies: bool = True
    ) -> None:
        self.network, self.times, self.cluster, self.gamma = network, times, cluster, gamma
        self.sizes = sizes(network)
        self.us_per_byte = 1e-3 / cluster.gpu.model.dram_sustained_gb_per_s if copies else 0.0
        for once in ("_messages", "_sums", "_named", "_rows", "_pair", "_counts", "_layer_us", "_balancer"):
            setattr(self, once, cache(getattr(self, once)))  # each worked out once

    def project(self, strategy: str, ranks: int, batch: int) -> Projection:
        """An iteration of ``batch`` samples on ``ranks`` GPUs; `Impossible` where the strategy cannot use so many."""
        if strategy not in STRATEGIES:
            expected = expected_one_of(STRATEGIES, strategy)
            raise InputError(None, "strategy", f"unknown strategy {quote(strategy)}", expected)
        if strategy == "pipeline":
            return self._pipeline(ranks, batch)
        width = self._width(strategy, ranks)
        groups = ranks // width
        if groups > batch:
            raise Impossible(
                None,
                strategy,
                f"{counted(groups, 'group')} of ranks for {counted(batch, 'sample')}",
                f"at most {batch}",
            )
        return self._divided(strategy, ranks, width, batch, ceil(batch / groups))

    def project_all(self, ranks: int, batch: int) -> list[Projection | Impossible]:
        """Every strategy, in the order of `STRATEGIES`."""
        found: list[Projection | Impossible] = []
        for strategy in STRATEGIES:
            try:
                found.append(self.project(strategy, ranks, batch))
            except Impossible as reason:
                found.append(reason)
        return found

    # ---- data parallelism between groups, within which layers are divided

    def _width(self, strategy: str, ranks: int) -> int:
        """How many ranks divide a layer: all or none; in a hybrid, those of a node if two groups or more remain."""
        if strategy == "data":
            return 1
        if not strategy.startswith("data+"):
            return ranks
        within = [n for n in range(2, min(self.cluster.gpus_per_node, ranks - 1) + 1) if ranks % n == 0]
        if not within:
            node = self.cluster.gpus_per_node
            problem = f"{ranks} ranks are no groups of ranks of a node, which has {counted(node, 'GPU')}"
            raise Impossible(None, strategy, problem, "nodes of 2 GPUs or more" if node < 2 else "4 ranks, 6, 8, …")
        return max(within)

    def _divided(self, strategy: str, ranks: int, width: int, batch: int, samples: int) -> Projection:
        how = {"filter": FILTER, "channel": CHANNEL, "spatial": ROWS}.get(strategy.removeprefix("data+"), WHOLE)
        self._require_divisible(strategy, how, width)
        divided, whole = self._pair(how, width)
        divided_us = sum(divided.at(samples)) if divided else 0.0
        whole_us = sum(whole.at(samples)) if whole else 0.0
        W, elements = self._sums(how, width)
        local = self.parameters - W + (W / width if how in (FILTER, CHANNEL) else W)
        update_us = self.times.update_us(self.parameters) * local / self.parameters
        within_us, copied = self._within(how, width, samples, W)
        across_us = equations.data_us(ranks // width, local, self.cluster.links(ranks))
        copied += 2 * local * DELTA * (ranks > width)
        return Projection(
            strategy,
            ranks,
            width,
            batch,
            equations.computation_us(divided_us, whole_us, update_us) + copied * self.us_per_byte,
            within_us + across_us,
            equations.memory_bytes(samples * elements, local, self.gamma),
        )

    def _within(self, how: str, p: int, B: float, W: float) -> tuple[float, float]:
        """Communication within a group, us, and the bytes read and written to concatenate and slice tensors."""
        links = self.cluster.links(p)
        if how in (FILTER, CHANNEL):
            y, x = self._messages(how)
            cost, gathered = (equations.filter_us, y) if how == FILTER else (equations.channel_us, x)
            return cost(p, B, y, x, links), 2 * B * DELTA * float(gathered.sum()) * (1 + 1 / p)
        if how == ROWS:
            halos, last, touched = self._halos(p)
            copied = 2 * B * DELTA * (2 * touched / p + sum(last) * (1 + 1 / p)) + 2 * W * DELTA
            return equations.spatial_us(p, B, W, halos, last, links), copied
        return 0.0, 0.0

    def _messages(self, how: str) -> tuple[Array, Array]:
        """Elements of the outputs that divided layers exchange, and of the inputs whose gradients they exchange."""
        nodes = [node for node in self.network.nodes if node.name in self._named(how, 2)]
        inner = [node for node in nodes if INPUT not in node.inputs]
        return np.array([self.sizes[n.name].y for n in nodes]), np.array([self.sizes[n.name].x for n in inner])

    def _halos(self, p: int) -> tuple[list[int], list[int], int]:
        """Elements of halos, of tensors gathered at the end of the divided layers, and of inputs that have halos."""
        halos = self._rows(p)
        sent, touched = [], 0
        for node in self.network.nodes:
            halo = halos.get(node.name)
            if halo is not None and (halo.above or halo.below):
                shape = self.network.inputs(node)[0]
                sent.append((halo.above + halo.below) * shape.width * shape.channels)
                touched += shape.elements
        read = {name for node in self.network.nodes if node.name not in halos for name in node.inputs if name in halos}
        read |= {self.network.nodes[-1].name} & set(halos)
        return sent, [self.sizes[name].y for name in sorted(read)], touched

    def _sums(self, how: str, width: int) -> tuple[float, float]:
        """Parameters of the divided layers, and elements of a sample's inputs and outputs that a rank has."""
        named = self._named(how, width)
        parts = {name: width if how == ROWS and name in named else 1 for name in self.sizes}
        held = fsum((size.x + size.y) / parts[name] for name, size in self.sizes.items())
        return sum(self.sizes[name].w for name in named), held

    def _named(self, how: str, width: int) -> frozenset[str]:
        if how == FILTER:
            return by_filter(self.network)
        if how == CHANNEL:
            return by_channel(self.network)
        return frozenset(self._rows(width)) if how == ROWS else frozenset()

    def _rows(self, width: int) -> Mapping[str, Halo]:
        """Layers whose rows are divided, each with its halo."""
        return by_rows(self.network, width)

    def _pair(self, how: str, width: int) -> tuple[BatchCurve | None, BatchCurve | None]:
        """Times of the divided layers' parts, and of the other layers."""
        named = self._named(how, width)
        others = [name for name in self.sizes if name not in named]
        divided = self.times.curve(named, how, width) if named else None
        return divided, self.times.curve(others, WHOLE, 1) if others else None

    def _require_divisible(self, strategy: str, how: str, width: int) -> None:
        """Refuse ranks that cannot divide a layer into parts of equal size."""
        if width == 1 and not strategy.startswith("data"):
            raise Impossible(None, strategy, "1 rank divides nothing", "2 ranks or more")
        if how == ROWS and self.network.nodes[0].name not in self._rows(width):
            (shape, *_) = self.network.inputs(self.network.nodes[0])
            problem = f"{width} ranks cannot divide the {shape.height} rows of layer {self.network.nodes[0].name}"
            raise Impossible(None, strategy, problem, "ranks that divide its rows in and out")
        for name, count in self._counts(how) if how in (FILTER, CHANNEL) else ():
            if count % width:
                what = "filters" if how == FILTER else "channels"
                problem = f"{width} ranks cannot divide the {count} {what} of layer {name}"
                raise Impossible(None, strategy, problem, f"a number that divides them, at most {count}")

    def _counts(self, how: str) -> list[tuple[str, int]]:
        return [(node.name, self._count(node, how)) for node in self.network.nodes if node.name in self._named(how, 0)]

    def _count(self, node: Node, how: str) -> int:
        given = self.network.inputs(node)[0]
        if how == FILTER:
            return self.network.shapes[node.name].channels
        return given.elements if isinstance(node.layer, Linear) else given.channels

    # ---- pipeline

    def _pipeline(self, p: int, batch: int) -> Projection:
        S = MICRO_BATCHES
        if batch < S:
            raise Impossible(
                None, "pipeline", f"{counted(batch, 'sample')} cannot make {S} micro-batches", f"{S} samples or more"
            )
        if p < 2:
            raise Impossible(None, "pipeline", "1 rank is no pipeline", "2 ranks or more")
        samples = batch / S
        where = self._balancer(samples)(p)
        if where is None:
            most = len(self._cuts) + 1
            raise Impossible(None, "pipeline", f"{p} ranks for {most} segments of layers", f"at most {most}")
        names = [node.name for node in self.network.nodes]
        edges = [0, *where, len(names)]
        segments = [names[a:b] for a, b in pairwise(edges)]
        us = self._layer_us(samples)
        forward_us, backward_us = (max(fsum(us[name][way] for name in part) for part in segments) for way in (0, 1))
        parameters = [sum(self.sizes[name].w for name in part) for part in segments]
        update_us = self.times.update_us(self.parameters) * max(parameters) / self.parameters
        held = [
            equations.memory_bytes(batch * sum(self.sizes[name].x + self.sizes[name].y for name in part), w, self.gamma)
            for part, w in zip(segments, parameters, strict=True)
        ]
        crossing = max(self.sizes[names[at - 1]].y for at in where)
        return Projection(
            "pipeline",
            p,
            p,
            batch,
            equations.pipeline_computation_us(p, S, forward_us, backward_us, update_us),
            equations.pipeline_us(p, S, batch, crossing, self.cluster.links(p)),
            max(held),
        )

    def _layer_us(self, samples: float) -> dict[str, tuple[float, float]]:
        return {name: curve.at(samples) for name, curve in self._each_curve.items()}

    @cached_property
    def _each_curve(self) -> dict[str, BatchCurve]:
        return {name: self.times.curve([name], WHOLE, 1) for name in self.sizes}

    def _balancer(self, samples: float) -> Callable[[int], list[int] | None]:
        costs = [fsum(self._layer_us(samples)[node.name]) for node in self.network.nodes]
        return balancer(costs, self._cuts)

    @cached_property
    def _cuts(self) -> list[int]:
        return cuts(self.network)

    @cached_property
    def parameters(self) -> int:
        """W of the whole network."""
        return sum(size.w for size in self.sizes.values())
