"""Lower bound of the makespan by the work of all kernels: the least time in which mixes of blocks on the SMs do it.

At any instant each SM holds a *mix*: some blocks of kernels of which none waits for another. The model gives the
progress of each kernel there (`gpusim.model.contention`). Give each kernel a price for its work. If no state of the GPU
earns more than 1 per us, then all work takes at least as long as it is worth. Any prices give a valid bound. The best
ones are the dual of a linear program: the least time of mixes that do all the work.

* Each operation takes the algorithm that is worth least.
* The loads of L2 and DRAM fall into ranges. In each range kernels are slowed at least as by its lower ends, and all
  SMs together load them at most as by its upper ends.
* The time for which DRAM and L2 serve the work, and the critical path, have prices, too.

"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import factorial, fsum, inf

import numpy as np

from gpusim.choose.least import block_times
from gpusim.choose.mixes_array import MixArrays
from gpusim.choose.simplex import Reals, maximum
from gpusim.common.tables import grouped
from gpusim.model.contention import chance_older, mix_times, use_of
from gpusim.model.kernel import KernelModel
from gpusim.trace.graph import Graph

MOST_MIXES = 400_000  # in every order of their kernels; where there are more, the bound has no mixes
ALL, POWERS = (1, 2, 3, 4, 6, 8, 12, 16, 24), (1, 2, 4, 8, 16)  # numbers of blocks in a mix, beside the most [D]
SMALL = 0.01  # of all work: kernels of less have no price, and are in no mix [D]
NO_SMALLER = 1.5  # how much more SM time an algorithm takes that is left out where it saves nothing else, nor room
# The same where its blocks take less room, and the numbers of blocks; the first with no more than `MOST_MIXES` [D].
TRIED = ((5.0, ALL), (5.0, POWERS), (3.0, ALL), (3.0, POWERS), (2.0, POWERS))
ROUNDS = 60  # in which violated constraints join the program
ADDED = 8  # of them in a round, for each range of loads
NEAR = 300  # mixes, near which other numbers of blocks are looked at
DRAM_LOADS = (0.0, 0.4, 0.8)  # lower ends of ranges
L2_LOADS = (0.0, 0.5, 0.65, 0.75, 0.85, 0.95, 1.05, 1.3)
LATE_LOAD = 0.021  # by which loads may move before slowdowns follow (`LOAD_STEP` of `gpusim.engine.sm_array`)
CLOSE = 1e-3  # relative: a bound so near to that of the program is not improved
MARGIN = 1e-7
MANY = 3000  # constraints, above which those leave the program that are loose
LOOSE = 0.1  # a constraint that is so far from binding leaves the program
ENDLESS = 1e6  # a load that is none
BlockMix = tuple[tuple[int, int], ...]  # kernels with their blocks


@dataclass(frozen=True)
class OptionKernel:
    """A kernel of an option, with the progress of an SM by its number of blocks, relative to the best number."""

    model: KernelModel
    us: float  # least time of its work with the best number of blocks on all SMs
    best: float  # blocks per us of one SM
    paces: tuple[float, ...]  # with 1, 2, ... blocks

    @property
    def demand(self) -> float:
        """Blocks at once on all SMs with the best number, over the time of one."""
        return self.best * self.model.unit_us * self.model.sm_count


def option_kernel(model: KernelModel, work: float) -> OptionKernel:
    """A kernel and a lower bound of the time in which all SMs do its work; ``work`` is in mean blocks."""
    rates = [count / (time * model.unit_us) for count, time in enumerate(block_times(model), 1)]
    best = max(rates)
    return OptionKernel(model, work / best / model.sm_count, best, tuple(rate / best for rate in rates))


@dataclass(frozen=True)
class Option:
    """One algorithm of an operation."""

    kernels: tuple[OptionKernel, ...]  # its kernels
    alone_us: float  # least time on an idle GPU
    dram_us: float  # least time for which it keeps DRAM busy
    l2_us: float  # the same of L2

    @property
    def sms_us(self) -> float:
        """Least time of its kernels with the best number of blocks on all SMs."""
        return fsum(one.us for one in self.kernels)


def one_by_one_us(options: Iterable[Option]) -> float:
    """Time of some work kernel by kernel, each with its best number of blocks on all SMs; or of DRAM or L2."""
    sms_us, dram_us, l2_us = 0.0, 0.0, 0.0
    for option in options:
        for one in option.kernels:
            load = one.model.load
            sms_us += one.us * one.model.slowdown(one.demand * load.dram, one.demand * load.l2, 1.0, 1.0)
        dram_us, l2_us = dram_us + option.dram_us, l2_us + option.l2_us
    return max(sms_us, dram_us, l2_us)


def linear_program(
    graph: Graph,
    options: Mapping[str, Sequence[Option]],
    capacity: Sequence[int],
    chain: frozenset[str],
    idle_us: float,
    *,
    loads: bool,
) -> LinearProgram | None:
    """The program that bounds the time of all operations, each by one of its options; None: there are too many mixes.

    ``capacity`` is that of an SM (`SMLimits.capacity`). The operations of ``chain`` run one after the other. The first
    block runs after ``idle_us`` at least, that of the chain, too. ``loads``: whether all SMs share L2 and DRAM, and no
    policy limits the demand of a kernel.
    """
    in_chain = [id in chain for id in graph.ids]
    for dominated, counts in TRIED:
        kernels, op_of, of_option = _kernels(graph, options, dominated)
        mixes = _mixes(graph, kernels, op_of, capacity, counts)
        if mixes:
            return LinearProgram(kernels, of_option, mixes, capacity, in_chain, idle_us, loads)
    return None


def _kernels(
    graph: Graph, options: Mapping[str, Sequence[Option]], dominated: float
) -> tuple[list[OptionKernel], list[int], list[list[tuple[Option, list[int]]]]]:
    """Return the large kernels, the operation of each, and for each operation its options with their large kernels."""
    found = [_not_dominated(options[id], dominated) for id in graph.ids]
    small_us = SMALL * fsum(min((option.sms_us for option in of), default=0.0) for of in found)
    kernels, op_of = list[OptionKernel](), list[int]()
    of_option: list[list[tuple[Option, list[int]]]] = []
    for o, of in enumerate(found):
        of_option.append([])
        for option in of:
            large = [one for one in option.kernels if one.us > small_us]
            of_option[-1].append((option, list(range(len(kernels), len(kernels) + len(large)))))
            kernels += large
            op_of += [o] * len(large)
    return kernels, op_of, of_option


def _not_dominated(options: Sequence[Option], dominated: float) -> list[Option]:
    """Options without those that need much more SM time than another, and no less of anything else [D].

    One whose blocks are smaller than the other's may join mixes in which the other has no room.
    """

    def is_dominated(option: Option, other: Option) -> bool:
        mine, its = (max((len(one.paces) for one in of.kernels), default=0) for of in (option, other))
        more = option.alone_us >= other.alone_us and option.dram_us >= other.dram_us and option.l2_us >= other.l2_us
        return more and option.sms_us > (dominated if mine > its else NO_SMALLER) * other.sms_us

    return [one for one in options if not any(is_dominated(one, other) for other in options)]


def _mixes(
    graph: Graph, kernels: Sequence[OptionKernel], op_of: Sequence[int], capacity: Sequence[int], counts: Sequence[int]
) -> list[BlockMix]:
    """All mixes that fit on an SM; none where there are too many."""
    found: list[BlockMix] = []
    rows = 0
    free = [{b for b, other in enumerate(graph.ids) if graph.independent(id, other)} for id in graph.ids]

    def extend(mix: BlockMix, room: Sequence[int], allowed: set[int], first: int) -> bool:
        nonlocal rows
        for k in range(first, len(kernels)):
            model, op = kernels[k].model, op_of[k]
            if op not in allowed:
                continue
            most = min(model.blocks_per_sm, *(r // n for r, n in zip(room, model.need, strict=True) if n))
            for count in dict.fromkeys((*(n for n in counts if n < most), *([most] if most > 0 else ()))):
                found.append((*mix, (k, count)))
                left = [r - n * count for r, n in zip(room, model.need, strict=True)]
                rows += factorial(len(found[-1]))
                if rows > MOST_MIXES or not extend(found[-1], left, allowed & free[op], k + 1):
                    return False
        return True

    return found if extend((), capacity, set(range(len(graph.ids))), 0) else []


def progress_in(kernels: Sequence[OptionKernel], mixes: Sequence[BlockMix]) -> tuple[Reals, list[BlockMix]]:
    """What each kernel does in each mix, relative to its best blocks, in every order in which they can have come.

    A row for each mix and order, and the mix of each row.
    """
    found: list[Reals] = []
    of_row: list[BlockMix] = []
    older = np.array([[chance_older(a.model.demand, b.model.demand) for b in kernels] for a in kernels])
    for size, alike in sorted(grouped(mixes, len).items()):
        known = sorted({pair for mix in alike for pair in mix})
        alone = [(kernels[k].model.demand, count) for k, count in known]
        uses = [use_of(*one, mix_times([one])[0]) for one in alone]
        paces = np.array([kernels[k].paces[count - 1] for k, count in known])
        place_of = {pair: n for n, pair in enumerate(known)}
        at = np.array([[place_of[pair] for pair in mix] for mix in alike]).T
        members = np.array([k for k, _ in known])[at]
        by_order = {order: MixArrays(uses, at[list(order)]).progress() for order in permutations(range(size))}
        for order, progress in by_order.items():
            backwards = by_order[order[::-1]][::-1]
            pairs = [older[members[a], members[b]] for a, b in combinations(order, 2)]
            first = np.mean(pairs, axis=0) if pairs else 1.0
            rows = np.zeros((len(alike), len(kernels)))
            values = (first * progress + (1.0 - first) * backwards) * paces[at[list(order)]]
            np.put_along_axis(rows, members[list(order)].T, values.T, axis=1)
            found.append(rows)
            of_row += alike
    return np.vstack(found), of_row


# ---- the program


class LinearProgram:
    """Maximise the worth of all operations, such that no state of the GPU earns more than 1.

    Variables: the price of each kernel, the worth of each operation; of DRAM's, L2's and the chain's time; and for each
    range of loads what one SM earns at most, and prices of the loads of DRAM and L2.
    """

    def __init__(
        self,
        kernels: Sequence[OptionKernel],
        of_option: Sequence[Sequence[tuple[Option, Sequence[int]]]],
        mixes: Sequence[BlockMix],
        capacity: Sequence[int],
        in_chain: Sequence[bool],
        idle_us: float,
        loads: bool,
    ) -> None:
        self.of_kernel, self.capacity, self.mixes = kernels, capacity, set(mixes)
        self.done, self.of_row = progress_in(kernels, mixes)
        self.kernels, self.of_option = len(kernels), of_option
        ranges = list(product(_ranges(DRAM_LOADS), _ranges(L2_LOADS))) if loads else [((0.0, inf), (0.0, inf))]
        self.ends = [(dram[1], l2[1]) for dram, l2 in ranges]
        slowdown = [[one.model.slowdown(dram[0], l2[0], 1.0, 1.0) for one in kernels] for dram, l2 in ranges]
        self.slowdown = np.array(slowdown)
        self.dram = np.array([one.model.load.dram * one.demand for one in kernels])
        self.l2 = np.array([one.model.load.l2 * one.demand for one in kernels])
        self.scale = fsum(one.us for one in kernels) or 1.0
        self.rest = self.kernels + len(of_option)  # where DRAM, L2 and the chain begin
        self.width = self.rest + 3 + 3 * len(ranges)
        self.idle = idle_us / self.scale
        self.prices = np.zeros(self.width)
        self.costs = [
            (o, self._cost(of, option, in_chain[o])) for o, found in enumerate(of_option) for option, of in found
        ]

    def _cost(self, of: Sequence[int], option: Option, in_chain: bool) -> Reals:
        """Worth of an option, as factors of the variables."""
        cost = np.zeros(self.width)
        for k in of:
            cost[k] = self.of_kernel[k].us / self.scale
        chain_us = option.alone_us if in_chain else 0.0
        cost[self.rest : self.rest + 3] = np.array([option.dram_us, option.l2_us, chain_us]) / self.scale
        return cost

    def _of_range(self, at: int) -> slice:
        """Where the variables of a range are."""
        return slice(self.rest + 3 + 3 * at, self.rest + 6 + 3 * at)

    def _row(self, at: int, done: Reals) -> Reals:
        """A constraint: an SM with a mix earns in a range, less its loads, at most as much as the best mix."""
        row = np.zeros(self.width)
        row[: self.kernels] = done / self.slowdown[at]
        row[self._of_range(at)] = -1.0, -float(done @ self.dram), -float(done @ self.l2)
        return row

    def _fixed(self) -> tuple[list[Reals], Reals]:
        """The constraints of options, of ranges, and their limits."""
        rows = []
        for o, cost in self.costs:
            rows.append(-cost)
            rows[-1][self.kernels + o] = 1.0
        for at, ends in enumerate(self.ends):
            rows.append(np.zeros(self.width))
            rows[-1][self.rest : self.rest + 3] = 1.0
            rows[-1][self._of_range(at)] = 1.0, *(min(end, ENDLESS) for end in ends)
        return rows, np.array([*[0.0] * len(self.costs), *[1.0] * len(self.ends)])

    def bound(self) -> float:
        """The best bound that is found, us; ``prices`` are its prices."""
        rows, limits = self._fixed()
        best_of_each = self.done[np.unique(self.done.argmax(axis=0))]
        rows += [self._row(at, done) for at in range(len(self.ends)) for done in best_of_each]
        target = np.zeros(self.width)
        target[self.kernels : self.rest] = 1.0
        target[self.rest + 2] = -self.idle
        best = 0.0
        for _ in range(ROUNDS):
            prices = maximum(target, np.array(rows), np.append(limits, np.zeros(len(rows) - len(limits))))
            values = self._values(prices)
            earned = self._earned(prices, values)
            if self._worth(prices) > best * earned:
                best, self.prices = self._worth(prices) / earned, prices / earned
            if best >= (1.0 - CLOSE) * float(target @ prices):
                if not self._look_between():
                    break
                best = 0.0  # it did not know those mixes
            if len(rows) > MANY:
                rows = [row for n, row in enumerate(rows) if n < len(limits) or row @ prices > -LOOSE]
            rows += self._violated(prices, values)
        earned = self._earned(self.prices, self._values(self.prices))  # of mixes that came last, too
        self.prices = self.prices / max(1.0, earned)
        return (self._worth(self.prices) + self.idle) * self.scale

    def _look_between(self) -> bool:
        """Look at further numbers of blocks near the mixes that earn most; tells whether one earns more than 1."""
        each = [self.in_range(at, self.prices) for at in range(len(self.ends))]
        time = float(self.prices[self.rest : self.rest + 3].sum())
        values = np.max([self.done @ of_kernel + loads + time for of_kernel, _, loads in each], axis=0)
        most = np.argpartition(-values, min(NEAR, len(values) - 1))[:NEAR]
        near = dict.fromkeys(mix for n in most for mix in self._neighbours(self.of_row[n]))
        new = [mix for mix in near if mix not in self.mixes]
        if not new:
            return False
        self.mixes.update(new)
        done, of_row = progress_in(self.of_kernel, new)
        self.done, self.of_row = np.vstack([self.done, done]), self.of_row + of_row
        return self._earned(self.prices, self._values(self.prices)) > 1.0 + CLOSE

    def _neighbours(self, mix: BlockMix) -> Iterator[BlockMix]:
        """The mix with other numbers of blocks of one kernel, as far as they fit."""
        for n, (k, _) in enumerate(mix):
            others = (*mix[:n], *mix[n + 1 :])
            for count in range(1, self._most(k, others) + 1):
                yield (*mix[:n], (k, count), *mix[n + 1 :])

    def _most(self, k: int, others: BlockMix) -> int:
        """Blocks of a kernel that fit beside others."""
        held = np.sum([np.array(self.of_kernel[i].model.need) * count for i, count in others], axis=0)
        left = np.array(self.capacity) - held
        model = self.of_kernel[k].model
        return min(model.blocks_per_sm, *(int(r // n) for r, n in zip(left, model.need, strict=True) if n))

    def _worth(self, prices: Reals) -> float:
        """The objective: the sum of the least worth of each operation, less the idle time of the chain at its price."""
        least: dict[int, float] = {}
        for o, cost in self.costs:
            least[o] = min(least.get(o, inf), float(cost @ prices))
        return fsum(least.values()) - float(prices[self.rest + 2]) * self.idle

    def _values(self, prices: Reals) -> Reals:
        """Earnings of each mix in each range, without the prices of time and of loads."""
        values: Reals = np.array([self.in_range(at, prices)[0] for at in range(len(self.ends))]) @ self.done.T
        return values

    def _earned(self, prices: Reals, values: Reals) -> float:
        """The most that any state earns."""
        most = 0.0
        for at, of_mix in enumerate(values):
            most = max(most, float(of_mix.max()) + self.in_range(at, prices)[2])
        return most + float(prices[self.rest : self.rest + 3].sum())

    def _violated(self, prices: Reals, values: Reals) -> list[Reals]:
        """Constraints that the prices violate."""
        found: list[Reals] = []
        for at, of_mix in enumerate(values):
            limit = self.in_range(at, prices)[1] + MARGIN
            top = np.argpartition(-of_mix, min(ADDED, len(of_mix) - 1))[:ADDED]
            found += [self._row(at, self.done[n]) for n in top if of_mix[n] > limit]
        return found

    def in_range(self, at: int, prices: Reals) -> tuple[Reals, float, float]:
        """The price of each kernel in a range, the loads off; what an SM may earn; and what the loads are worth."""
        earns, *load = prices[self._of_range(at)]
        dram, l2 = (price if end < inf else 0.0 for price, end in zip(load, self.ends[at], strict=True))
        of_kernel: Reals = prices[: self.kernels] / self.slowdown[at] - dram * self.dram - l2 * self.l2
        return (
            of_kernel,
            float(earns),
            fsum(p * end for p, end in zip((dram, l2), self.ends[at], strict=True) if p > 0.0),
        )


def _ranges(lower: Sequence[float]) -> list[tuple[float, float]]:
    """Ranges of a load, from their lower ends; the load that slowdowns are by may be late."""
    return list(zip(lower, [*(end + LATE_LOAD for end in lower[1:]), inf], strict=True))
