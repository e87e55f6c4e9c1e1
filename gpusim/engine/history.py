"""How much of each SM was used over time, in bins whose width doubles when they no longer hold all."""

from __future__ import annotations

from array import array

from gpusim.engine.tables import RESOURCES, joined, reals

USES = 7  # the resources, issue slots, DRAM and L2
ISSUE_USE, DRAM_USE, L2_USE = 4, 5, 6  # places of the last three
BINS = 128  # an even number


class History:
    """Uses integrated over time (unit x us), bin by bin and SM by SM: most of what is booked is of the same time.

    Args:
        sms: number of SMs.
        bins: an even number.
        held: what the residents of each SM hold of its resources; it is read as it is when use is booked.
    """

    def __init__(self, sms: int, bins: int, held: array[int]) -> None:
        self.sms = sms
        self.bins = bins
        self.held = held
        self.width = 1.0  # us
        self.per_us = 1.0
        self.flat = reals(bins * sms * USES)

    def clear(self) -> None:
        """Begin anew."""
        self.width = 1.0
        self.per_us = 1.0
        for i in range(self.sms * self.bins * USES):
            self.flat[i] = 0.0

    def reach(self, end: float) -> None:
        """Widen the bins until they hold a time."""
        while end >= self.width * self.bins:
            self.fold()

    def fold(self) -> None:
        """Halve the resolution."""
        row = self.sms * USES
        for b in range(self.bins):
            for i in range(row):
                if 2 * b < self.bins:
                    self.flat[b * row + i] = self.flat[2 * b * row + i] + self.flat[(2 * b + 1) * row + i]
                else:
                    self.flat[b * row + i] = 0.0
        self.width *= 2.0
        self.per_us *= 0.5

    def in_one_bin(self, start: float, end: float) -> bool:
        """Whether one bin, widened to hold ``end``, has all between two times."""
        self.reach(end)
        return int(start / self.width) == int(end / self.width)

    def ends_bin(self, start: float, end: float) -> bool:
        """Whether the bin of a time ends by another."""
        b = int(start * self.per_us)  # exact: a width is a power of two
        return end >= (b + 1) * self.width

    def book(self, sm: int, start: float, end: float, issue: float, dram: float, l2: float) -> None:
        """Add the use of an SM between two times to the bins, in proportion to the time in each."""
        self.reach(end)
        length = end - start
        b = int(start * self.per_us)
        while start < end:
            edge = (b + 1) * self.width
            part = (edge if edge < end else end) - start
            if part > 0.0:
                row = (b * self.sms + sm) * USES
                for u in range(RESOURCES):
                    self.flat[row + u] += part * self.held[sm * RESOURCES + u]
                part /= length
                self.flat[row + ISSUE_USE] += part * issue
                self.flat[row + DRAM_USE] += part * dram
                self.flat[row + L2_USE] += part * l2
            start = edge
            b += 1

    def add(self, at: float, uses: array[float]) -> None:
        """Add to the bin that has a time what was used there, as `totals` gives it."""
        b = int(at / self.width)
        for i in range(self.sms * USES):
            self.flat[b * self.sms * USES + i] += uses[i]

    def totals(self) -> array[float]:
        """Resource use of each SM, integrated over all time (unit x us)."""
        found = reals(self.sms * USES)
        for i in range(self.sms * USES):
            for b in range(self.bins):
                found[i] += self.flat[b * self.sms * USES + i]
        return found

    def block_time(self) -> float:
        """Resident blocks of all SMs integrated over time (block x us)."""
        total = 0.0
        for sm in range(self.sms):
            for b in range(self.bins):
                total += self.flat[(b * self.sms + sm) * USES + 3]
        return total

    def copy(self) -> array[float]:
        """All of it, which stays as it is."""
        return joined(self.flat, reals(0))
