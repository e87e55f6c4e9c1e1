"""The mixes of residents that SMs pass through: each has a number, its neighbours, and, once an SM runs it, its rates.

A *mix* is how many blocks of each slot are resident on one SM.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusim.engine.tables import joined, reals, unknown, zeros

Mix = tuple[tuple[int, int], ...]  # ((slot, resident blocks), ...) in the order in which they came to the SM
MixRates = tuple[list[list[float]], float, float]  # rates by slot and rank, DRAM load, L2 load
Resolve = Callable[[Mix], MixRates]
MostBeside = Callable[[Mix, int], int]
FIRST_MIXES = 64  # mixes that the tables hold before they grow


class Mixes:
    """Tables with an entry for each mix, each mix and slot, or each *part*: a slot of a mix that is worked out.

    Arguments are as of `gpusim.engine.core.SMArray`.
    """

    def __init__(self, slots: int, resolve: Resolve, most_beside: MostBeside) -> None:
        self.slots = slots
        self.resolve = resolve
        self.most_beside = most_beside
        self.mixes: list[Mix] = []
        self.numbers: dict[Mix, int] = {}
        self.first_valid = zeros(slots)  # mixes with the slot that have lower numbers are of another kernel
        self.after_add = unknown(FIRST_MIXES * slots)
        self.after_drop = unknown(FIRST_MIXES * slots)
        self.most_of = unknown(FIRST_MIXES * slots)  # blocks of a slot, beside the others of a mix
        self.dram = reals(FIRST_MIXES)
        self.l2 = reals(FIRST_MIXES)
        self.first_part = unknown(FIRST_MIXES)  # -1: not worked out yet
        self.last_part = unknown(FIRST_MIXES)
        # the slots of each mix that is worked out, in its order, and their rates, oldest block first
        self.parts = 0
        self.part_slot = zeros(FIRST_MIXES)
        self.part_rates = zeros(FIRST_MIXES)  # where they begin
        self.part_progress = reals(FIRST_MIXES)  # their sum
        self.rates_used = 0
        self.rates = reals(FIRST_MIXES)

    def clear(self) -> None:
        """Forget all mixes; that of no residents is worked out anew and has the number 0."""
        for i in range(len(self.mixes)):
            self.first_part[i] = -1
        for i in range(len(self.mixes) * self.slots):
            self.after_add[i] = -1
            self.after_drop[i] = -1
            self.most_of[i] = -1
        for i in range(self.slots):
            self.first_valid[i] = 0
        self.mixes.clear()
        self.numbers.clear()
        self.parts = 0
        self.rates_used = 0
        self.work_out(self.number_of(()))

    def forget_slot(self, slot: int) -> None:
        """Forget the mixes with a slot that no SM holds."""
        self.first_valid[slot] = len(self.mixes)
        for i in range(len(self.mixes)):
            self.most_of[i * self.slots + slot] = -1

    def number_of(self, mix: Mix) -> int:
        """The number of a mix."""
        known = self.numbers.get(mix)
        if known is not None and known >= max([self.first_valid[slot] for slot, _ in mix], default=0):
            return known
        number = len(self.mixes)
        if number == len(self.dram):
            self.grow(number)
        self.mixes.append(mix)
        self.numbers[mix] = number
        self.first_part[number] = -1
        return number

    def work_out(self, number: int) -> None:
        """Compute the rates and loads of a mix that an SM runs: SMs pass through most mixes without running them."""
        mix = self.mixes[number]
        rates, self.dram[number], self.l2[number] = self.resolve(mix) if mix else ([], 0.0, 0.0)
        self.first_part[number] = self.parts
        for (slot, _), values in zip(mix, rates, strict=True):
            if self.parts == len(self.part_slot):
                self.part_slot = joined(self.part_slot, zeros(self.parts))
                self.part_rates = joined(self.part_rates, zeros(self.parts))
                self.part_progress = joined(self.part_progress, reals(self.parts))
            if self.rates_used + len(values) > len(self.rates):
                self.rates = joined(self.rates, reals(len(self.rates) + len(values)))
            self.part_slot[self.parts] = slot
            self.part_rates[self.parts] = self.rates_used
            self.part_progress[self.parts] = 0.0
            for value in values:
                self.rates[self.rates_used] = value
                self.part_progress[self.parts] += value
                self.rates_used += 1
            self.parts += 1
        self.last_part[number] = self.parts

    def grow(self, held: int) -> None:
        """Double the tables of mixes, which hold ``held`` now."""
        self.after_add = joined(self.after_add, unknown(held * self.slots))
        self.after_drop = joined(self.after_drop, unknown(held * self.slots))
        self.most_of = joined(self.most_of, unknown(held * self.slots))
        self.dram = joined(self.dram, reals(held))
        self.l2 = joined(self.l2, reals(held))
        self.first_part = joined(self.first_part, unknown(held))
        self.last_part = joined(self.last_part, unknown(held))

    def with_one_more(self, number: int, slot: int) -> int:
        """The mix after one block of a slot came."""
        other = self.after_add[number * self.slots + slot]
        if other < self.first_valid[slot]:
            other = self.neighbour(number, slot, 1)
            self.after_add[number * self.slots + slot] = other
        return other

    def with_one_less(self, number: int, slot: int) -> int:
        """The mix after one block of a slot went."""
        other = self.after_drop[number * self.slots + slot]
        if other < 0:
            other = self.neighbour(number, slot, -1)
            self.after_drop[number * self.slots + slot] = other
        return other

    def neighbour(self, number: int, slot: int, change: int) -> int:
        """The mix after one block of a slot came (+1) or went (-1), for the first time."""
        counts = dict(self.mixes[number])
        counts[slot] = counts.get(slot, 0) + change
        if counts[slot] == 0:
            del counts[slot]
        return self.number_of(tuple(counts.items()))

    def most(self, slot: int, number: int) -> int:
        """How many blocks of a slot an SM may hold beside those of others in a mix."""
        known = self.most_of[number * self.slots + slot]
        if known < 0:
            others = tuple([(other, count) for other, count in self.mixes[number] if other != slot])
            known = self.most_beside(others, slot)
            self.most_of[number * self.slots + slot] = known
        return known

    def part_of(self, number: int, slot: int) -> int:
        """The part of a slot in a mix that is worked out; -1 where it has none."""
        for p in range(self.first_part[number], self.last_part[number]):
            if self.part_slot[p] == slot:
                return p
        return -1
