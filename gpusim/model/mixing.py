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
    shares = [1.0] * len(uses)
    if len(uses) < 2:
        return shares
    meets = [_meeting(i, uses) for i in range(len(uses))]
    for _ in range(ROUNDS):
        for i in reversed(range(len(uses))):
            shares[i] = 1.0 / (1.0 + _stretch(i, uses, shares, meets[i]))
        waits = [_path_wait(i, uses, shares) for i in range(len(uses))]
        shares = [1.0 / (1.0 / share + wait) for share, wait in zip(shares, waits, strict=True)]
    over = max(1.0, *_totals(uses, shares))
    return [share / over for share in shares]


def _totals(uses: Sequence[Use], shares: Sequence[float]) -> list[float]:
    columns = zip(*[(use.issue, *use.pipes, use.path) for use in uses], strict=True)
    return [fsum([use * share for use, share in zip(column, shares, strict=True)]) for column in columns]


def _stretch(i: int, uses: Sequence[Use], shares: Sequence[float], meet: float) -> float:
    """Relative increase of a kernel's instruction time because others occupy the schedulers; ``meet``: `_meeting`."""
    mine = uses[i]
    others = [(use, share * meet, j < i) for j, (use, share) in enumerate(zip(uses, shares, strict=True)) if j != i]
    older = [(use, share) for use, share, is_older in others if is_older]
    younger = [(use, share) for use, share, is_older in others if not is_older]
    taken = fsum([use.issue * share for use, share in older])
    in_bursts = fsum([use.issue * share * use.together for use, share in older])
    waits = mine.issue + (in_bursts / taken if taken > 0.0 else 0.0) * (1.0 - mine.issue)
    stretch = _beside(waits, taken)
    for r, pipe in enumerate(mine.pipes if older else ()):
        stretch = max(stretch, _beside(pipe, fsum([use.pipes[r] * share for use, share in older])))
    stretch += fsum([use.issue * share * use.together for use, share in younger])
    if mine.cycles > 0.0:
        stretch = max(stretch, _bursts(older, mine) / mine.burst / mine.cycles)
        stretch += _bursts(younger, mine) / mine.burst / mine.cycles
    if mine.operands > 0.0:  # whoever else can issue goes before an instruction that blocks, down to an equal share
        used = fsum([use.issue * share for use, share, _ in others])
        equal = max(0.0, mine.taken + fsum([use.issue for use, _, _ in others]) - 1.0)
        stretch = max(stretch, min(_beside(mine.taken, used), equal))
    return stretch


def _bursts(others: Sequence[tuple[Use, float]], mine: Use) -> float:
    """Mean cycles that a warp waits until the warp of another kernel that was issuing as it came stalls.

    Warps that rarely stall hand the scheduler to each other, and to other kernels' warps only if these rarely stall.
    """
    waits = [
        CHAINED_CYCLES if use.burst == LONGEST_BURST > mine.burst and use.warps >= CHAINED_WARPS else use.burst - 0.5
        for use, _ in others
    ]
    return fsum([use.issue * share * wait for (use, share), wait in zip(others, waits, strict=True)])


def _meeting(i: int, uses: Sequence[Use]) -> float:
    """Warps of others on the fullest scheduler beside a kernel's own, over those on the mean scheduler."""
    mine = uses[i]
    if not mine.slowest_counts:
        return 1.0
    others = fsum([use.warps for j, use in enumerate(uses) if j != i])
    fullest = ceil(others + mine.warps - 1e-9)
    return max(0.0, fullest - max(1.0, mine.warps)) / others


def _beside(used: float, taken: float) -> float:
    """Increase of the time at a resource that others occupy in part."""
    return used / max(LEAST_LEFT, 1.0 - taken) - used


def _path_wait(i: int, uses: Sequence[Use], shares: Sequence[float]) -> float:
    """Relative increase of a kernel's time by requests of others in the path to L1.

    A request waits for the rest of the one being served, which is half of it on the mean.
    """
    mine = uses[i]
    if mine.path == 0.0:
        return 0.0
    met = [
        min(1.0, use.path * share) * use.visit
        for j, (use, share) in enumerate(zip(uses, shares, strict=True))
        if j != i
    ]
    return mine.path * fsum(met) / mine.visit / 2.0
