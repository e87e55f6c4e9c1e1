"""Which block is placed next, and on which SM: the launches in line, most-room placement, and clusters on GPCs."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain

from gpusim.engine.launches import Launches
from gpusim.engine.residents import Residents
from gpusim.engine.tables import zeros


class Placing:
    """Launches in the order in which they place blocks, and the SMs, in ``order`` where they have equal room.

    ``gpcs`` is the GPC of each SM.
    """

    def __init__(self, residents: Residents, launches: Launches, order: Sequence[int], gpcs: Sequence[int]) -> None:
        self.residents = residents
        self.launches = launches
        self.sms = sms = len(order)
        self.sm_order = array("q", order)
        self.gpc = array("q", gpcs)
        self.gpc_count = max(gpcs) + 1
        sms_of_gpc = [[sm for sm in order if gpcs[sm] == gpc] for gpc in range(self.gpc_count)]
        self.gpc_order = array("q", chain.from_iterable(sms_of_gpc))  # the SMs as in ``order``, GPC by GPC
        self.gpc_begin = array("q", accumulate(map(len, sms_of_gpc), initial=0))  # where each GPC's begin, and the end
        self.full = zeros(self.gpc_count)  # whether it has no room for a cluster
        self.room = zeros(sms)
        self.dirty = zeros(sms)  # SMs that were filled, whose residents get their rates once all are placed
        self.any_dirty = False
        # slots with their queue, in line; open ones may place now
        self.line = zeros(self.launches.slots)
        self.queue = zeros(self.launches.slots)
        self.length = 0
        self.open = zeros(self.launches.slots)
        self.open_count = 0

    def set_line(self, slots: list[int], queues: list[int]) -> None:
        """As `gpusim.engine.core.SMArray.set_dispatch_order`."""
        self.length = len(slots)
        for i in range(len(slots)):
            self.line[i] = slots[i]
            self.queue[i] = queues[i]
        self.launches.placed_all = True

    def set_caps(self, slot: int, caps: list[int]) -> None:
        """As `gpusim.engine.core.SMArray.set_caps`."""
        launches = self.launches
        for sm in range(self.sms):
            launches.cap[slot * self.sms + sm] = caps[sm]
        launches.together[slot] = 1
        for gpc in range(self.gpc_count if launches.cluster[slot] > 1 else 0):
            usable = 0
            for i in range(self.gpc_begin[gpc], self.gpc_begin[gpc + 1]):
                if launches.cap[slot * self.sms + self.gpc_order[i]] > 0:
                    usable += 1
            if usable >= launches.cluster[slot]:
                launches.together[slot] = launches.cluster[slot]

    def place_all(self) -> None:
        """Place all that may be placed now, and give the SMs that were filled their rates."""
        launches = self.launches
        while launches.placed_all:
            launches.placed_all = False
            self.open_heads()
            for i in range(self.open_count):
                self.place_everywhere(self.open[i])

    def open_heads(self) -> None:
        """Find the launches that may place blocks: of each queue in line the first with blocks waiting."""
        launches = self.launches
        self.open_count = 0
        for i in range(self.length):
            if launches.waiting[self.line[i]] == 0:
                continue
            first = True
            for h in range(i):
                if self.queue[h] == self.queue[i] and launches.waiting[self.line[h]] > 0:
                    first = False
            if first:
                self.open[self.open_count] = self.line[i]
                self.open_count += 1

    def place_everywhere(self, slot: int) -> None:
        """Most-room placement: each block goes to the SM with room for most of its kind, ties in device order."""
        residents, launches = self.residents, self.launches
        if launches.together[slot] > 1:
            self.place_clusters(slot)
            return
        top = 0
        for sm in range(self.sms):
            self.room[sm] = residents.room_for(slot, sm) if residents.fits(slot, sm) else 0
            if self.room[sm] > top:
                top = self.room[sm]
        while top > 0 and launches.waiting[slot] > 0:
            for i in range(self.sms):
                sm = self.sm_order[i]
                if self.room[sm] == top and launches.waiting[slot] > 0:
                    self.start_anew(slot, sm)
                    self.room[sm] = top - 1 if residents.fits(slot, sm) else 0
            top -= 1

    def place_clusters(self, slot: int) -> None:
        """Start clusters in rounds, one on each GPC that has room for all of its blocks, an SM each.

        A GPC without room for a whole cluster has none in later rounds.
        """
        for gpc in range(self.gpc_count):
            self.full[gpc] = 0
        found = 1
        while found > 0:
            found = 0
            for gpc in range(self.gpc_count):
                if self.full[gpc] > 0 and self.launches.waiting[slot] >= self.launches.together[slot]:
                    continue
                if not self.fits_cluster(slot, gpc):
                    self.full[gpc] = 1
                    continue
                left = self.launches.together[slot]
                for i in range(self.gpc_begin[gpc], self.gpc_begin[gpc + 1]):
                    sm = self.gpc_order[i]
                    if left > 0 and self.launches.waiting[slot] > 0 and self.residents.fits(slot, sm):
                        self.start_anew(slot, sm)
                        left -= 1
                        found = 1

    def fits_cluster(self, slot: int, gpc: int) -> bool:
        """Whether each of the next cluster's blocks fits on another SM of a GPC."""
        left = self.launches.together[slot]
        if left > self.launches.waiting[slot]:
            left = self.launches.waiting[slot]
        if left == 0:
            return False
        end = self.gpc_begin[gpc + 1]
        for i in range(self.gpc_begin[gpc], end):
            if left > end - i:  # too few SMs are left
                return False
            if self.residents.fits(slot, self.gpc_order[i]):
                left -= 1
                if left == 0:
                    return True
        return False

    def start_anew(self, slot: int, sm: int) -> None:
        """Start a block on an SM whose residents get their rates only once all are placed (`settle`)."""
        if self.dirty[sm] == 0:
            self.residents.charge(sm)
            self.dirty[sm] = 1
            self.any_dirty = True
        self.residents.start(slot, sm)

    def settle(self) -> bool:
        """Give the SMs that were filled their rates; tells whether any was."""
        found = self.any_dirty
        self.any_dirty = False
        for sm in range(self.sms if found else 0):
            if self.dirty[sm] == 1:
                self.dirty[sm] = 0
                self.residents.project(sm)
        return found

    def refill(self, sm: int) -> None:
        """Have the launches that may place blocks fill the room that some left on an SM."""
        for i in range(self.open_count):
            slot = self.open[i]
            if self.launches.together[slot] > 1:
                if self.residents.fits(slot, sm) and self.fits_cluster(slot, self.gpc[sm]):
                    self.launches.placed_all = True  # the cluster starts before what comes after it in line
                    break
                continue
            while self.launches.waiting[slot] > 0 and self.residents.fits(slot, sm):
                self.residents.start(slot, sm)
