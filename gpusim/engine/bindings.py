"""Bounding resource of each launch over time: what its blocks on the fullest SM wait for most, or memory."""

from __future__ import annotations

from collections.abc import Callable

from gpusim.engine.domains import Domains
from gpusim.engine.launches import OWN, Launches
from gpusim.engine.mixes import Mix, Mixes
from gpusim.engine.tables import joined, reals, unknown
from gpusim.model.memory import memory_that_binds

BINDING = ("alu", "dram", "fma", "issue", "l1", "l2", "latency", "lsu", "tensor", "unknown")  # of equals the first
BINDINGS, DRAM_BINDS, L2_BINDS = len(BINDING), BINDING.index("dram"), BINDING.index("l2")
FIRST_PARTS = 64  # parts of mixes that the tables hold before they grow

PartsOfTime = Callable[[Mix, int], tuple[float, float, str]]  # gives `gpusim.model.contention.TimeParts`


class Bindings:
    """Tables with an entry for each slot, and what times are made of: of slots alone, then of each part of a mix."""

    def __init__(self, launches: Launches, mixes: Mixes, domains: Domains) -> None:
        self.launches = launches
        self.mixes = mixes
        self.domains = domains
        slots = self.launches.slots
        self.bound_by = unknown(slots)  # what bounds its launch, a position in `BINDING`; -1: not looked at yet
        self.bound_time = reals(slots * BINDINGS)  # how long each has bound it
        self.booked_at = 0.0  # time is booked up to then
        self.whole = reals(slots + FIRST_PARTS)
        self.largest = reals(slots + FIRST_PARTS)
        self.largest_is = unknown(slots + FIRST_PARTS)  # a position in `BINDING`; -1: not worked out yet

    def forget(self) -> None:
        """Forget what times are made of: slots have other kernels, parts are of other mixes."""
        for i in range(len(self.largest_is)):
            self.largest_is[i] = -1

    def look(self, slot: int, number: int, domain: int, time_parts: PartsOfTime) -> None:
        """Find what bounds a launch now.

        Args:
            slot: of the launch.
            number: of the mix on the SM that holds most of it; -1 where none holds any.
            domain: the memory domain.
            time_parts: as of `gpusim.engine.core.SMArray.look`.
        """
        part = self.mixes.part_of(number, slot) if number >= 0 else -1
        known = slot if part < 0 else self.launches.slots + part
        while known >= len(self.largest_is):
            held = len(self.largest_is)
            self.whole = joined(self.whole, reals(held))
            self.largest = joined(self.largest, reals(held))
            self.largest_is = joined(self.largest_is, unknown(held))
        if self.largest_is[known] < 0:
            mix = self.mixes.mixes[number] if number >= 0 else ()
            self.whole[known], self.largest[known], name = time_parts(mix, slot)
            self.largest_is[known] = BINDING.index(name)
        binds = memory_that_binds(
            self.whole[known],
            self.largest[known],
            self.domains.dram_load[domain] / self.domains.capacity[domain],
            self.domains.l2_load[domain] / self.domains.capacity[domain],
            self.launches.own,
            slot * OWN,
        )
        self.bound_by[slot] = DRAM_BINDS if binds == 1 else L2_BINDS if binds == 2 else self.largest_is[known]

    def book(self, now: float) -> None:
        """Book the time since the last booking to what bound each launch when it was last looked at."""
        passed = now - self.booked_at
        self.booked_at = now
        if passed > 0.0:
            for slot in range(self.launches.slots):
                if self.bound_by[slot] >= 0:
                    self.bound_time[slot * BINDINGS + self.bound_by[slot]] += passed

    def most(self, slot: int) -> str:
        """Resource that bound an ended launch for the longest time, or latency; its times are dropped."""
        most = 0.0
        found = "latency"
        for i in range(BINDINGS):
            if self.bound_time[slot * BINDINGS + i] > most:
                most = self.bound_time[slot * BINDINGS + i]
                found = BINDING[i]
            self.bound_time[slot * BINDINGS + i] = 0.0
        self.bound_by[slot] = -1
        return found
