"""How kernels mix on one SM: what each progresses beside the others, relative to having the SM alone.

At a resource that all residents together saturate, the older kernel takes what it takes alone and the younger ones get
the rest. Four things bend that rule, each seen in experiments/resource_matrix:

* A warp that can go on issuing goes on: every other warp waits until it stalls (greedy, then oldest). Warps of one
  kernel that rarely stall hand the scheduler to each other for a long time.
* An instruction of the tensor cores reads its operands over several cycles, in which nothing else issues.
* A request of the path to L1 and shared memory waits for the one that is being served, whoever is older.
* Blocks that are replaced are older at some times and younger at others: a kernel then gets the mean of both.

Everything here is a share of one SM's time; a statistical simulation of one scheduler, warp by warp, is the oracle of
these rules in tests/scheduler_oracle.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, fsum
from typing import NamedTuple

ROUNDS = 3  # in which what kernels leave to one another settles
LEAST_LEFT = 0.01  # of a resource, to younger kernels, at least ([V] experiments/single_resource: a copy is starved)
LONGEST_BURST = 30.0  # instructions that a warp issues in a row, at most
CHAINED_WARPS = 2.0  # on a scheduler, at least
# that a warp waits for two warps or more that hand the longest bursts on ([V] chase_dram/1 of the matrix)
CHAINED_CYCLES = 600.0
STALL_CYCLES = 3.0  # that a warp waits for a result of the arithmetic pipes ([V] fma1: 4 cycles an instruction)
OPERAND_SLOTS = 2.2  # issue slots that a tensor instruction blocks beside its own, at most ([V] mma beside fma)


class Use(NamedTuple):
    """Use of an SM by one kernel whose resident blocks have it to themselves."""

    issue: float  # share of the issue slots
    pipes: tuple[float, ...]  # share of each pipe that belongs to a scheduler
    operands: float = 0.0  # share of the issue slots that its tensor instructions block beside their own
    path: float = 0.0  # share of the L1 and shared-memory data path
    visit: float = 1.0  # time of the path that one of its requests takes, in any unit
    cycles: float = 0.0  # of an instruction of one warp, waits included; 0: unknown
    burst: float = 1.0  # instructions that a warp issues in a row
    together: float = 0.0  # how far its warps issue in bursts of all of them (0 to 1): then nobody else does
    warps: float = 1.0  # on the mean scheduler
    slowest_counts: bool = False  # whether a block is as slow as its warp on the fullest scheduler

    @property
    def taken(self) -> float:
        """Share of the issue slots that others cannot use."""
        return min(1.0, self.issue + self.operands)


def burst_length(wait: float) -> float:
    """Instructions that a warp issues in a row, by its stalls for fixed latencies per instruction."""
    return min(LONGEST_BURST, max(1.0, STALL_CYCLES / wait)) if wait > 0.0 else 1.0


def blocked_slots(issue: float, tensor: float) -> float:
    """Share of the issue slots that tensor instructions block while their operands are read."""
    return min(max(0.0, tensor - issue), OPERAND_SLOTS * issue)


def progress(uses: Sequence[Use]) -> list[float]:
    """Progress of each kernel, 1 as if it had the SM to itself; kernels in order of age, the oldest first.

    `gpusim.choose.mixes_array` does the same for arrays of mixes, and a test holds it to this.
    """
    count = len(uses)
    shares = [1.0] * count
    if count < 2:
        return shares
    issue, together = [use.issue for use in uses], [use.together for use in uses]
    mixed = [_Mixed(i, uses) for i in range(count)]
    for _ in range(ROUNDS):
        for i in range(count - 1, -1, -1):
            shares[i] = 1.0 / (1.0 + _stretch(i, mixed[i], issue, together, shares))
        waits = _path_waits(uses, shares)
        shares = [1.0 / (1.0 / share + wait) for share, wait in zip(shares, waits, strict=True)]
    over = max(1.0, *_totals(uses, shares))
    return [share / over for share in shares]


class _Mixed:
    """What mixing does to a kernel, as far as it does not depend on the progress of any."""

    def __init__(self, i: int, uses: Sequence[Use]) -> None:
        mine = uses[i]
        self.issue = mine.issue
        self.taken = mine.taken
        self.cycles = mine.cycles
        self.burst = mine.burst
        self.blocks = mine.operands > 0.0  # whether its instructions block issue slots beside their own
        self.meet = _meeting(i, uses)
        # its use of each pipe that it uses at all, and that of each older kernel
        self.pipes = [(one, [use.pipes[r] for use in uses[:i]]) for r, one in enumerate(mine.pipes) if i and one > 0.0]
        self.delays = [_delay(use, mine) for use in uses]  # by each kernel
        # stretch with which it gets an equal share of the issue slots
        self.equal = max(0.0, self.taken + fsum([use.issue for j, use in enumerate(uses) if j != i]) - 1.0)


def _delay(use: Use, mine: Use) -> float:
    """Mean cycles that a warp waits until the warp of another kernel that was issuing as it came stalls.

    Warps that rarely stall hand the scheduler to each other, and to other kernels' warps only if these rarely stall.
    """
    chained = use.burst == LONGEST_BURST > mine.burst and use.warps >= CHAINED_WARPS
    return CHAINED_CYCLES if chained else use.burst - 0.5


def _meeting(i: int, uses: Sequence[Use]) -> float:
    """Warps of others on the fullest scheduler beside a kernel's own, over those on the mean scheduler."""
    mine = uses[i]
    if not mine.slowest_counts:
        return 1.0
    others = fsum([use.warps for j, use in enumerate(uses) if j != i])
    fullest = ceil(others + mine.warps - 1e-9)
    return max(0.0, fullest - max(1.0, mine.warps)) / others


def _stretch(i: int, mine: _Mixed, issue: list[float], together: list[float], shares: list[float]) -> float:
    """Relative increase of a kernel's instruction time because others occupy the schedulers."""
    met = [share * mine.meet for share in shares]
    issued = _products(issue, met)
    bursts = _products(issued, together)
    taken = _sum(issued[:i])
    waits = mine.issue + (_sum(bursts[:i]) / taken if taken > 0.0 else 0.0) * (1.0 - mine.issue)
    stretch = _longer(waits, taken)
    for pipe, others in mine.pipes:
        stretch = max(stretch, _longer(pipe, _sum(_products(others, met))))
    stretch += _sum(bursts[i + 1 :])
    if mine.cycles > 0.0:
        delays = _products(issued, mine.delays)
        stretch = max(stretch, _sum(delays[:i]) / mine.burst / mine.cycles)
        stretch += _sum(delays[i + 1 :]) / mine.burst / mine.cycles
    if mine.blocks:  # whoever else can issue goes before an instruction that blocks, down to an equal share
        used = _sum(issued[:i] + issued[i + 1 :])
        stretch = max(stretch, min(_longer(mine.taken, used), mine.equal))
    return stretch


def _longer(used: float, taken: float) -> float:
    """Increase of the time at a resource that others occupy in part."""
    left = max(LEAST_LEFT, 1.0 - taken)
    return used / left - used


def _path_waits(uses: Sequence[Use], shares: list[float]) -> list[float]:
    """Relative increase of each kernel's time by requests of others in the path to L1.

    A request waits for the rest of the one being served, which is half of it on the mean.
    """
    met = [min(1.0, use.path * share) * use.visit for use, share in zip(uses, shares, strict=True)]
    return [
        use.path * _sum(met[:i] + met[i + 1 :]) / use.visit / 2.0 if use.path > 0.0 else 0.0
        for i, use in enumerate(uses)
    ]


def _totals(uses: Sequence[Use], shares: list[float]) -> list[float]:
    """Use of each resource by all kernels."""
    columns = zip(*[(use.issue, *use.pipes, use.path) for use in uses], strict=True)
    return [_sum(_products(list(column), shares)) for column in columns]


def _products(one: list[float], other: list[float]) -> list[float]:
    """Products of the first values of two lists, as many as the first list has."""
    return [one[i] * other[i] for i in range(len(one))]


def _sum(values: list[float]) -> float:
    """The sum, rounded once: of up to two values any sum is."""
    count = len(values)
    if count == 2:
        return values[0] + values[1]
    if count == 1:
        return values[0]
    return fsum(values)
