"""The blocks resident on each SM: what they hold, how fast they progress, and when the next one ends.

While the residents of an SM stay, the end of each of its blocks is fixed in its launch's virtual time
(`gpusim.engine.domains`).
"""

from __future__ import annotations

from array import array

from gpusim.engine.domains import Domains
from gpusim.engine.first_ends import FirstEnds
from gpusim.engine.history import History
from gpusim.engine.launches import Launches
from gpusim.engine.mixes import Mix, Mixes
from gpusim.engine.tables import _NEVER, RESOURCES, reals, zeros

FINISHED = 1e-9  # a block with this much work left is done: far above rounding, far below one block's work
ROUNDING = 4e-16  # relative, of the clocks: late in a long replay a short block's end rounds to this


class Residents:
    """Tables with an entry for each SM, and for each place of a block on an SM, oldest first; and the SMs' clock.

    Args:
        sms: number of SMs.
        width: most blocks resident on one SM.
        limits: registers, shared memory bytes, warps and block slots of one SM.
        launches: those whose blocks they are.
        mixes: what is known of mixes of them.
        domains: the memory domains.
        bins: of the usage history.
    """

    def __init__(
        self,
        sms: int,
        width: int,
        limits: tuple[int, int, int, int],
        launches: Launches,
        mixes: Mixes,
        domains: Domains,
        bins: int,
    ) -> None:
        self.sms = sms
        self.width = width
        self.launches = launches
        self.slots = self.launches.slots
        self.mixes = mixes
        self.domains = domains
        self.ends = FirstEnds(self.domains.count * self.slots, sms)
        self.now = 0.0
        self.origin = 0.0  # time of the caller at which the clock showed 0
        self.blocks = 0
        self.limit = array("q", limits)
        self.carveout = array("q", [limits[1]]) * sms
        self.emptied_at = reals(sms, -1.0)  # when the last resident left, since the clock was restarted
        self.count = zeros(sms)
        self.used = zeros(sms * RESOURCES)
        self.mix = zeros(sms)
        self.rated = zeros(sms)  # the mix that its residents have their rates by
        self.recorded_at = reals(sms)  # use is booked up to then
        self.work = reals(sms * width)  # left when its SM was last charged
        self.rate = reals(sms * width)
        self.owner = zeros(sms * width)
        # one entry a slot and SM, in virtual time
        self.charged = reals(self.slots * sms)  # up to which what its blocks there have done is booked
        self.recorded = reals(self.slots * sms)  # up to which use is booked
        self.history = History(sms, bins, self.used)
        # what each SM held when, noted only where that is asked for
        self.noting = False
        self.noted: list[tuple[float, int, Mix]] = []
        self.last_noted: list[Mix] = [()] * sms

    def restart_clock(self, origin: float) -> None:
        """Restart the clock at 0 while no SM holds a block; ``origin`` is that instant in the time of the caller."""
        self.origin = origin
        self.now = 0.0
        for sm in range(self.sms):
            self.emptied_at[sm] = -1.0

    def forget_mixes(self) -> None:
        """Work the mixes on the SMs out anew, and forget all others."""
        for sm in range(self.sms):
            self.charge(sm)
        held = [self.mixes.mixes[self.mix[sm]] if self.count[sm] > 0 else () for sm in range(self.sms)]
        self.mixes.clear()
        self.domains.stale = True
        for sm in range(self.sms):
            self.mix[sm] = self.mixes.number_of(held[sm])
            self.rated[sm] = 0
            self.project(sm)
        self.add_up()

    def add_up(self) -> None:
        """Add up what every domain's SMs ask for and do: what is kept as they change is off by its rounding."""
        domains, mixes = self.domains, self.mixes
        domains.forget_loads()
        for sm in range(self.sms):
            d = domains.of_sm[sm]
            mix = self.rated[sm]
            domains.dram_load[d] += mixes.dram[mix]
            domains.l2_load[d] += mixes.l2[mix]
            for p in range(mixes.first_part[mix], mixes.last_part[mix]):
                domains.progress[d * self.slots + mixes.part_slot[p]] += mixes.part_progress[p]

    # ---- time ----------------------------------------------------------------------------------------------------

    def pass_time(self, to: float) -> None:
        """Advance time; each launch's virtual time advances by that over its slowdown."""
        crosses = self.history.ends_bin(self.origin + self.now, self.origin + to)
        if crosses:
            self.record_all()
        self.domains.pass_time(to - self.now)
        self.now = to
        if crosses:
            self.record_all()

    def work_left(self, sm: int, j: int) -> float:
        """Work that the block at position ``j``, on an SM, has left."""
        slot = self.owner[j]
        passed = self.domains.virtual[self.domains.of_sm[sm] * self.slots + slot] - self.charged[slot * self.sms + sm]
        return self.work[j] - passed * self.rate[j]

    def charge(self, sm: int) -> None:
        """Book the progress and use of an SM's residents, before they change and `project` continues."""
        self.record(sm)
        clocks = self.domains.of_sm[sm] * self.slots
        base = sm * self.width
        for j in range(base, base + self.count[sm]):
            k = self.owner[j]
            self.work[j] -= (self.domains.virtual[clocks + k] - self.charged[k * self.sms + sm]) * self.rate[j]

    def record(self, sm: int) -> None:
        """Add an SM's uses since they were last booked to the history: to several bins by the time in each.

        That is exact: `pass_time` books all SMs before and after it passes the edge of a bin.
        """
        start = self.origin + self.recorded_at[sm]
        end = self.origin + self.now
        self.recorded_at[sm] = self.now
        if self.count[sm] == 0 or end <= start:
            return
        clocks = self.domains.of_sm[sm] * self.slots
        issue = 0.0
        dram = 0.0
        l2 = 0.0
        for p in range(self.mixes.first_part[self.rated[sm]], self.mixes.last_part[self.rated[sm]]):
            k = self.mixes.part_slot[p]
            i = k * self.sms + sm
            done = (self.domains.virtual[clocks + k] - self.recorded[i]) * self.mixes.part_progress[p]
            self.recorded[i] = self.domains.virtual[clocks + k]
            issue += done * self.launches.issue_demand[k]
            dram += done * self.launches.dram_demand[k]
            l2 += done * self.launches.l2_demand[k]
        self.history.book(sm, start, end, issue, dram, l2)

    def record_all(self) -> None:
        """Book the use of every SM up to now."""
        for sm in range(self.sms):
            self.record(sm)

    def project(self, sm: int) -> None:
        """Take over an SM's new mix: its load on its domain, the rates of its residents, and when the first ones end.

        What its residents had done is booked up to now (`charge`).
        """
        was = self.rated[sm]
        mix = self.mix[sm]
        if self.mixes.first_part[mix] < 0:
            self.mixes.work_out(mix)
        self.rated[sm] = mix
        d = self.domains.of_sm[sm]
        clocks = d * self.slots
        self.domains.dram_load[d] += self.mixes.dram[mix] - self.mixes.dram[was]
        self.domains.l2_load[d] += self.mixes.l2[mix] - self.mixes.l2[was]
        for p in range(self.mixes.first_part[was], self.mixes.last_part[was]):
            k = self.mixes.part_slot[p]
            self.domains.progress[clocks + k] -= self.mixes.part_progress[p]
            if self.launches.here[k * self.sms + sm] == 0:
                self.ends.note(clocks + k, sm, _NEVER)
        base = sm * self.width
        for p in range(self.mixes.first_part[mix], self.mixes.last_part[mix]):
            k = self.mixes.part_slot[p]
            self.domains.progress[clocks + k] += self.mixes.part_progress[p]
            self.charged[k * self.sms + sm] = self.domains.virtual[clocks + k]
            self.recorded[k * self.sms + sm] = self.domains.virtual[clocks + k]
            due = _NEVER
            i = self.mixes.part_rates[p]
            for j in range(base, base + self.count[sm]):
                if self.owner[j] == k:
                    self.rate[j] = self.mixes.rates[i]
                    left = self.work[j] / self.mixes.rates[i]
                    due = left if left < due else due
                    i += 1
            self.ends.note(clocks + k, sm, self.domains.virtual[clocks + k] + due)
        if self.noting:
            self.note_mix(sm)

    def note_mix(self, sm: int) -> None:
        """Note the residents of an SM if they have changed."""
        mix = self.mixes.mixes[self.mix[sm]]
        if mix != self.last_noted[sm]:
            self.last_noted[sm] = mix
            self.noted.append((self.origin + self.now, sm, mix))

    # ---- blocks that come and go -------------------------------------------------------------------------------------

    def carveout_for(self, slot: int, sm: int) -> int:
        """Shared memory that an SM is set to for a block of a slot; -1 where it stays at a size that is not for it.

        An SM that passes from one block to another at once keeps its size, as one that holds blocks does.
        """
        present = self.carveout[sm]
        stays = self.count[sm] > 0 or self.emptied_at[sm] == self.now
        if stays and self.launches.least_carveout[slot] <= present <= self.launches.most_carveout[slot]:
            return present
        return self.launches.wanted_carveout[slot] if self.count[sm] == 0 else -1

    def fits(self, slot: int, sm: int) -> bool:
        """Whether one more block of a slot may be resident on an SM."""
        i = slot * self.sms + sm
        if self.launches.here[i] >= self.launches.cap[i] or self.launches.gated[slot] > 0:
            return False
        if self.launches.tenant[slot] >= 0 and self.count[sm] > self.launches.here[i]:
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                if self.launches.tenant[self.owner[j]] != self.launches.tenant[slot]:
                    return False
        u = sm * RESOURCES
        r = slot * RESOURCES
        shared = self.carveout_for(slot, sm)
        if (
            self.used[u] + self.launches.need[r] > self.limit[0]
            or self.used[u + 1] + self.launches.need[r + 1] > shared
            or self.used[u + 2] + self.launches.need[r + 2] > self.limit[2]
            or self.used[u + 3] + self.launches.need[r + 3] > self.limit[3]
        ):
            return False
        return self.launches.here[i] < self.mixes.most(slot, self.mix[sm])

    def room_for(self, slot: int, sm: int) -> int:
        """Number of further blocks of a slot that fit on an SM by its resources, without caps; one `fits`."""
        launches = self.launches
        room = self.mixes.most(slot, self.mix[sm]) - launches.here[slot * self.sms + sm]
        for r in range(RESOURCES):
            need = launches.need[slot * RESOURCES + r]
            if need > 0:
                limit = self.limit[r]
                if r == 1:
                    limit = self.carveout_for(slot, sm)
                fit = (limit - self.used[sm * RESOURCES + r]) // need
                if fit < room:
                    room = fit
        return room

    def share_ramp(self, slot: int, sm: int) -> float:
        """Return the ramp of the next first block of a launch on an SM; those already there get the same ramp."""
        here = self.launches.here[slot * self.sms + sm]
        k = slot * self.width + here
        ramp = self.launches.ramps[k]
        if ramp > 0.0 and here > 0:
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                if self.owner[j] == slot:
                    self.work[j] += ramp - self.launches.ramps[k - 1]
        return ramp

    def start(self, slot: int, sm: int) -> None:
        """Make the next waiting block of a slot resident on an SM (whose progress is booked up to now)."""
        self.launches.waiting[slot] -= 1
        if self.launches.evicted[slot] > 0:
            self.launches.evicted[slot] -= 1
            work = self.launches.saved[slot].pop()
        else:
            work = self.launches.first_work(slot)
            # none has ended
            if self.launches.unfinished[slot] == self.launches.waiting[slot] + self.launches.next_block[slot]:
                work += self.share_ramp(slot, sm)
        if self.count[sm] == 0:
            self.carveout[sm] = self.carveout_for(slot, sm)
        j = sm * self.width + self.count[sm]
        self.work[j] = work
        self.owner[j] = slot
        self.count[sm] += 1
        for r in range(RESOURCES):
            self.used[sm * RESOURCES + r] += self.launches.need[slot * RESOURCES + r]
        self.mix[sm] = self.mixes.with_one_more(self.mix[sm], slot)
        i = slot * self.sms + sm
        if self.launches.here[i] == 0:
            self.launches.sms_used[slot] += 1
        self.launches.here[i] += 1
        if self.launches.start_here[i] < 0.0:
            self.launches.start_here[i] = self.now
        if self.launches.first_start[slot] < 0.0:
            self.launches.first_start[slot] = self.now
        self.launches.resident[slot] += 1
        self.blocks += 1
        self.domains.tensor_blocks[self.domains.of_sm[sm]] += self.launches.on_tensor_cores[slot]
        if self.launches.waiting[slot] == 0:
            self.launches.dispatched_at[slot] = self.now
            self.launches.placed_all = True

    def drop(self, sm: int, j: int) -> None:
        """Remove the block at position ``j`` from an SM, and recompute the rates of the other residents (`project`)."""
        slot = self.owner[j]
        last = sm * self.width + self.count[sm] - 1
        for i in range(j, last):
            self.work[i] = self.work[i + 1]
            self.owner[i] = self.owner[i + 1]
        self.count[sm] -= 1
        if self.count[sm] == 0:
            self.emptied_at[sm] = self.now
        for r in range(RESOURCES):
            self.used[sm * RESOURCES + r] -= self.launches.need[slot * RESOURCES + r]
        self.mix[sm] = self.mixes.with_one_less(self.mix[sm], slot)
        self.launches.here[slot * self.sms + sm] -= 1
        if self.launches.here[slot * self.sms + sm] == 0:
            self.launches.sms_used[slot] -= 1
        self.launches.resident[slot] -= 1
        if self.launches.gated[slot] > 0 and self.launches.resident[slot] == 0:
            self.launches.gated[slot] = 0
            self.launches.placed_all = True  # those that waited may start anywhere
        self.blocks -= 1
        self.domains.tensor_blocks[self.domains.of_sm[sm]] -= self.launches.on_tensor_cores[slot]

    def last_due(self, sm: int, j: int) -> int:
        """Position of the youngest block that is due on an SM, of those up to position ``j``; -1 where none is."""
        clocks = self.domains.of_sm[sm] * self.slots
        while j >= sm * self.width:
            passed = self.domains.virtual[clocks + self.owner[j]] + self.now
            if self.work[j] <= FINISHED + self.rate[j] * passed * ROUNDING:
                return j
            j -= 1
        return -1

    def end_due(self, sm: int, done: list[int]) -> None:
        """End the blocks of an SM that are due, whose progress is booked; launches that end so are added to a list."""
        j = self.last_due(sm, sm * self.width + self.count[sm] - 1)
        while j >= 0:
            slot = self.owner[j]
            i = slot * self.sms + sm
            self.launches.tiles_ran[i] += 1
            if self.launches.shared[slot] > 0 and self.launches.next_tile[slot] < self.launches.all_tiles[slot]:
                self.work[j] = self.launches.next_work(slot)
            else:
                self.launches.ran[i] += 1
                self.launches.end_here[i] = self.now
                if self.launches.late_last[slot] > 0 and self.launches.waiting[slot] > 0:
                    self.launches.gated[slot] = 1
                self.drop(sm, j)
                self.launches.unfinished[slot] -= 1
                if self.launches.unfinished[slot] == 0:
                    done.append(slot)
                    self.launches.retire(slot)
            j = self.last_due(sm, j - 1)

    def evict(self, slot: int, sm: int, blocks: int, extra_work: float, restart: bool) -> None:
        """Evict the youngest blocks of a slot from an SM, as described at `gpusim.engine.core.SMArray.evict`."""
        launches = self.launches
        self.charge(sm)
        base = sm * self.width
        j = base + self.count[sm] - 1
        while blocks > 0 and j >= base:
            if self.owner[j] == slot:
                left = launches.tile_work[slot] if restart else self.work[j]
                launches.saved[slot].append(left + extra_work)
                launches.evicted[slot] += 1
                launches.waiting[slot] += 1
                self.drop(sm, j)
                blocks -= 1
            j -= 1
        self.project(sm)
