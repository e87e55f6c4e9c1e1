"""A statistical simulation of one warp scheduler, warp by warp: the oracle of `gpusim.model.mixing`.

Instructions are drawn by the shares of their classes. A warp waits for the latency of its last instruction (scoreboard)
and for the pipe of its next one. The scheduler goes on with the warp that it issued last, else takes the oldest that
is ready (greedy, then oldest).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import NamedTuple

from gpusim.model.mixing import Use


class Class(NamedTuple):
    """A class of instructions.

    Attributes:
        share: of all instructions of the kernel.
        latency: cycles after which the warp can issue its next one.
        pipe: 0, 1 or 2.
        holds: cycles in which the pipe takes no other instruction.
    """

    share: float
    latency: int
    pipe: int = 0
    holds: int = 1


class OracleKernel(NamedTuple):
    """A kernel: its warps on the scheduler, and its classes of instructions, whose shares sum to 1."""

    warps: int
    classes: tuple[Class, ...]


def issued(kernels: Sequence[OracleKernel], cycles: int = 20_000, seed: int = 1) -> list[int]:
    """Instructions that each kernel issues; the kernels in order of age, the oldest first."""
    draw = random.Random(seed)
    owner = [k for k, kernel in enumerate(kernels) for _ in range(kernel.warps)]
    following = [_drawn(kernels[k], draw) for k in owner]
    ready = [draw.randrange(8) for _ in owner]
    pipe_free = [0, 0, 0]
    count = [0] * len(kernels)
    last = 0
    for now in range(cycles):
        for warp in (last, *range(len(owner))):
            one = following[warp]
            if ready[warp] <= now and pipe_free[one.pipe] <= now:
                ready[warp] = now + one.latency
                pipe_free[one.pipe] = now + one.holds
                count[owner[warp]] += 1
                following[warp] = _drawn(kernels[owner[warp]], draw)
                last = warp
                break
    return count


def use_of(kernel: OracleKernel, cycles: int = 20_000) -> Use:
    """What the kernel uses of the scheduler alone, as counters would tell."""
    (count,) = issued([kernel], cycles)
    rate = count / cycles
    pipes = tuple(min(1.0, rate * sum(c.share * c.holds for c in kernel.classes if c.pipe == p)) for p in range(3))
    stalled = sum(c.share for c in kernel.classes if c.latency > 1)
    burst = 1.0 / stalled if stalled else 30.0
    return Use(issue=rate, pipes=pipes, cycles=kernel.warps / rate, burst=burst, warps=kernel.warps)


def _drawn(kernel: OracleKernel, draw: random.Random) -> Class:
    at = draw.random()
    for one in kernel.classes:
        at -= one.share
        if at < 0.0:
            return one
    return kernel.classes[-1]
