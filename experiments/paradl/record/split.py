"""Tensors partitioned across ranks: autograd functions whose forward and backward passes run the collectives."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class Shared(torch.autograd.Function):
    """A tensor replicated on every rank; the backward pass sums the gradients."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        """The identity."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """All-reduce."""
        gradient = gradient.contiguous()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Summed(torch.autograd.Function):
    """The sum of the ranks' partial sums."""

    @staticmethod
    def forward(ctx: Any, x: Any, group: Any) -> Any:
        """All-reduce."""
        x = x.contiguous()
        dist.all_reduce(x, group=group)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """The identity."""
        return gradient, None


class Gathered(torch.autograd.Function):
    """A tensor gathered from the parts that the ranks hold along a dimension."""

    @staticmethod
    def forward(ctx: Any, x: Any, dim: int, group: Any) -> Any:
        """All-gather."""
        ctx.dim, ctx.group = dim, group
        return gathered(x, dim, group)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Slices this rank's part."""
        return part(gradient, ctx.dim, ctx.group).contiguous(), None, None


class Taken(torch.autograd.Function):
    """This rank's part along a dimension of a replicated tensor."""

    @staticmethod
    def forward(ctx: Any, x: Any, dim: int, group: Any) -> Any:
        """Slices this rank's part of the tensor."""
        ctx.dim, ctx.group = dim, group
        return part(x, dim, group).contiguous()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """All-gather."""
        return gathered(gradient, ctx.dim, ctx.group), None, None


class WithHalo(torch.autograd.Function):
    """This rank's rows with those of its neighbours that a window needs; ``fill`` at the borders of the image."""

    @staticmethod
    def forward(ctx: Any, x: Any, above: int, below: int, fill: float, group: Any) -> Any:
        """Exchanges rows with both neighbours."""
        ctx.above, ctx.below, ctx.group = above, below, group
        rows = x.shape[2]
        top = torch.full_like(x[:, :, :above], fill).contiguous()
        bottom = torch.full_like(x[:, :, :below], fill).contiguous()
        exchange(x[:, :, rows - above :], x[:, :, :below], top, bottom, group)
        return torch.cat((top, x, bottom), 2)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Sends the neighbours the gradients of their rows."""
        above, below = ctx.above, ctx.below
        rows = gradient.shape[2] - above - below
        own = gradient[:, :, above : above + rows].contiguous()
        from_below = torch.zeros_like(own[:, :, :above]).contiguous()  # of my last rows
        from_above = torch.zeros_like(own[:, :, :below]).contiguous()  # of my first rows
        exchange(gradient[:, :, above + rows :], gradient[:, :, :above], from_above, from_below, ctx.group)
        if above:
            own[:, :, rows - above :] += from_below
        if below:
            own[:, :, :below] += from_above
        return own, None, None, None, None


def part(x: Any, dim: int, group: Any) -> Any:
    """This rank's part of a tensor along a dimension, a view."""
    return x.chunk(dist.get_world_size(group), dim)[dist.get_rank(group)]


def gathered(x: Any, dim: int, group: Any) -> Any:
    """All ranks' parts along a dimension, put together."""
    ranks = dist.get_world_size(group)
    parts = x.new_empty((ranks, *x.shape))
    dist.all_gather_into_tensor(parts.view(-1), x.contiguous().view(-1), group=group)
    return torch.cat(parts.unbind(0), dim)


def exchange(down: Any, up: Any, from_above: Any, from_below: Any, group: Any) -> None:
    """Sends to the rank below and to the one above, and receives from both; empty tensors are left out."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    calls, kept = [], []
    for tensor, target, peer in ((down, dist.isend, rank + 1), (up, dist.isend, rank - 1)):
        if tensor.numel() and 0 <= peer < ranks:
            kept.append(tensor.contiguous())
            calls.append(dist.P2POp(target, kept[-1], dist.get_global_rank(group, peer), group))
    for tensor, peer in ((from_above, rank - 1), (from_below, rank + 1)):
        if tensor.numel() and 0 <= peer < ranks:
            calls.append(dist.P2POp(dist.irecv, tensor, dist.get_global_rank(group, peer), group))
    for call in dist.batch_isend_irecv(calls) if calls else []:
        call.wait()
