"""One training iteration of each strategy: forward, backward, exchange of gradients, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from experiments.paradl.record.model import Model
from experiments.paradl.record.split import part
from gpusim.training.networks.network import Network
from gpusim.training.paradl.divide import CHANNEL, FILTER, ROWS, WHOLE

RATE = 1e-3  # of learning
BUCKET_BYTES = 25 * 2**20  # as DistributedDataParallel has them
DIVISIONS = {"filter": FILTER, "channel": CHANNEL, "spatial": ROWS}
Step = Callable[[], None]


class Training:
    """A network under data parallelism, within whose groups layers may be divided.

    Attributes:
        model: what this rank computes.
    """

    def __init__(self, network: Network, strategy: str, batch: int, width: int, device: Any) -> None:
        """Builds it: groups of ``width`` neighbouring ranks divide layers, each group has a share of the batch."""
        self.groups = _groups(width)
        self.network = network
        within, across = self.groups
        self.copies = dist.get_world_size(across)
        self.model = Model(network, DIVISIONS.get(strategy.removeprefix("data+"), WHOLE), within, device)
        samples, labels = data(network, batch, device)
        self.x, self.labels = part(samples, 0, across).contiguous(), part(labels, 0, across).contiguous()

    def backward(self) -> None:
        """Forward and backward, each parameter's gradient in its ``grad``."""
        for leaf in self.model.leaves:
            leaf.grad = None
        F.cross_entropy(self.model.forward(self.x), self.labels).backward()

    def step(self) -> None:
        """One iteration."""
        self.backward()
        self.exchange()
        self.update()

    def exchange(self) -> None:
        """Sums gradients: of rows within a group, then of samples across groups."""
        within, across = self.groups
        rows = [
            leaf
            for node in self.model.nodes
            if self.model.divided(node) == ROWS
            for leaf in self.model.parameters[node.name]
        ]
        if rows:
            _all_reduce(rows, within)
        if self.copies > 1:
            _all_reduce(self.model.leaves, across)

    def update(self) -> None:
        """Gradient descent."""
        leaves = self.model.leaves
        with torch.no_grad():
            torch._foreach_add_(leaves, [leaf.grad for leaf in leaves], alpha=-RATE / self.copies)


class Overlapped(Training):
    """Data parallelism that exchanges gradients in buckets while the backward pass goes on."""

    def __init__(self, network: Network, batch: int, device: Any, group: Any) -> None:
        """Builds it; collectives run in ``group``."""
        super().__init__(network, "data", batch, 1, device)
        self.group = group
        self.buckets: list[list[Any]] = [[]]
        for leaf in reversed(self.model.leaves):
            if self.buckets[-1] and sum(other.numel() * 4 for other in self.buckets[-1]) >= BUCKET_BYTES:
                self.buckets.append([])
            self.buckets[-1].append(leaf)
        self.missing: list[int] = []
        self.pending: list[tuple[Any, Any, list[Any]]] = []
        for number, bucket in enumerate(self.buckets):
            for leaf in bucket:
                leaf.register_post_accumulate_grad_hook(lambda _, number=number: self._arrived(number))

    def step(self) -> None:
        """One iteration."""
        self.missing = [len(bucket) for bucket in self.buckets]
        self.backward()
        for work, flat, bucket in self.pending:
            work.wait()
            _spread(flat, bucket)
        self.pending.clear()
        self.update()

    def _arrived(self, number: int) -> None:
        self.missing[number] -= 1
        if self.missing[number] == 0:
            bucket = self.buckets[number]
            flat = torch.cat([leaf.grad.view(-1) for leaf in bucket])
            self.pending.append((dist.all_reduce(flat, group=self.group, async_op=True), flat, bucket))


class Pipeline:
    """A network in consecutive segments, a rank each, through which micro-batches pass: all forward, then all back."""

    def __init__(self, network: Network, batch: int, micro: int, cuts: Sequence[int], device: Any) -> None:
        """Builds this rank's segment, for ``micro`` micro-batches; ``cuts`` are where segments begin, but the first."""
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        edges = [0, *cuts, len(network.nodes)]
        begin, end = edges[self.rank], edges[self.rank + 1]
        self.model = Model(network, WHOLE, None, device, begin, end)
        samples, labels = data(network, batch, device)
        self.samples, self.labels = samples.chunk(micro), labels.chunk(micro)
        self.given = None
        if self.rank:
            shape = network.shapes[network.nodes[begin - 1].name]
            self.given = (batch // micro, shape.channels, shape.height, shape.width)
        self.micro, self.device = micro, device

    def step(self) -> None:
        """One iteration."""
        for leaf in self.model.leaves:
            leaf.grad = None
        passed, sent = [], []
        for n in range(self.micro):
            x = self.samples[n] if self.given is None else self._received(self.given, self.rank - 1)
            x.requires_grad_(self.given is not None)
            y = self.model.forward(x)
            if self.rank == self.ranks - 1:
                y = F.cross_entropy(y, self.labels[n]) / self.micro
            else:
                sent.append(self._sent(y.detach(), self.rank + 1))
            passed.append((x, y))
        for x, y in passed:
            if self.rank == self.ranks - 1:
                y.backward()
            else:
                y.backward(self._received(y.shape, self.rank + 1))
            if self.rank:
                sent.append(self._sent(x.grad, self.rank - 1))
        for call, _ in sent:
            call.wait()
        if leaves := self.model.leaves:  # a segment may have layers without parameters alone
            with torch.no_grad():
                torch._foreach_add_(leaves, [leaf.grad for leaf in leaves], alpha=-RATE)

    def _received(self, shape: Any, rank: int) -> Any:
        x = torch.empty(tuple(shape), device=self.device)
        dist.recv(x, rank)
        return x

    def _sent(self, x: Any, rank: int) -> tuple[Any, Any]:
        x = x.contiguous()
        return dist.isend(x, rank), x


def data(network: Network, batch: int, device: Any) -> tuple[Any, Any]:
    """Random samples and labels, the same on every rank."""
    generator = torch.Generator(device=device).manual_seed(batch)
    shape, last = network.input, network.shapes[network.nodes[-1].name]
    samples = torch.randn(batch, shape.channels, shape.height, shape.width, generator=generator, device=device)
    return samples, torch.randint(last.channels, (batch,), generator=generator, device=device)


@cache
def _groups(width: int) -> tuple[Any, Any]:
    """This rank's group of ``width`` neighbours, and its group of the ranks at the same place of every such group."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    neighbours = [range(at, at + width) for at in range(0, ranks, width)]
    same = [range(at, ranks, width) for at in range(width)]
    within, across = ({members: dist.new_group([*members]) for members in sets} for sets in (neighbours, same))
    return (
        next(group for members, group in within.items() if rank in members),
        next(group for members, group in across.items() if rank in members),
    )


def _all_reduce(leaves: Sequence[Any], group: Any) -> None:
    flat = torch.cat([leaf.grad.view(-1) for leaf in leaves])
    dist.all_reduce(flat, group=group)
    _spread(flat, leaves)


def _spread(flat: Any, leaves: Sequence[Any]) -> None:
    for leaf, gradient in zip(leaves, flat.split([leaf.numel() for leaf in leaves]), strict=True):
        leaf.grad = gradient.view_as(leaf)
