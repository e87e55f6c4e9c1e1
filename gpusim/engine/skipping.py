"""Jumps over a time in which every launch only replaces blocks by its own."""

from __future__ import annotations

from gpusim.engine.residents import Residents
from gpusim.engine.tables import reals, zeros

SKIPPED_WAVES = 40  # a launch skips no fewer: what its last wave may be off by is then within 0.5 % of the whole


class Skipping:
    """Tables with an entry for each slot."""

    def __init__(self, residents: Residents) -> None:
        self.residents = residents
        self.throughput = reals(self.residents.slots)
        self.jumped = zeros(self.residents.slots)  # whether the jump under way passes over waves of its launch

    def skip(self, until: float) -> None:
        """Jump over a time, leaving two waves of each launch, or none of it.

        The state after the jump is the state before it, later. That is exact in the mean: the launch that sets the
        length skips whole waves, the others carry what is left of a block to their next jump. Which SM runs the last
        few blocks may differ, so a launch that has not many waves to go is not jumped over: the jump ends before the
        first of its blocks does, and those just progress.
        """
        residents = self.residents
        launches, domains, mixes = residents.launches, residents.domains, residents.mixes
        length = until - residents.now
        least_waves = 1
        for i in range(launches.active_count):
            slot = launches.active[i]
            self.throughput[slot] = domains.throughput(slot)
            self.jumped[slot] = 0
            resident = launches.resident[slot]
            if resident == 0:
                continue
            spare = (launches.waiting[slot] - 2 * resident) // resident * resident
            alike = launches.shared[slot] == 0 and launches.length_count[slot] == 0
            if alike and spare >= SKIPPED_WAVES * resident and launches.evicted[slot] == 0:
                self.jumped[slot] = 1
                if spare / self.throughput[slot] < length:
                    length = spare / self.throughput[slot]
            else:
                least_waves = SKIPPED_WAVES
                for clock in range(slot, domains.count * residents.slots, residents.slots):
                    left = (residents.ends.first(clock) - domains.virtual[clock]) * domains.slowdown[clock]
                    if left < length:
                        length = left
        jumps = 0
        for i in range(launches.active_count):
            slot = launches.active[i]
            if self.jumped[slot] > 0:
                jumps += 1
                if length * self.throughput[slot] < least_waves * launches.resident[slot]:
                    return
        if jumps == 0:
            return
        residents.record_all()
        for i in range(launches.active_count):
            slot = launches.active[i]
            if self.jumped[slot] > 0:
                run = length * self.throughput[slot] + launches.carried[slot]
                self.skip_blocks(slot, int(run + 1e-6), residents.now + length)
                launches.carried[slot] = run - int(run + 1e-6)
            else:
                for clock in range(slot, domains.count * residents.slots, residents.slots):
                    domains.virtual[clock] += length / domains.slowdown[clock]
        residents.now += length
        for sm in range(residents.sms):  # as if virtual time had passed while the blocks jumped over stayed as they are
            mix = residents.rated[sm]
            for p in range(mixes.first_part[mix], mixes.last_part[mix]):
                slot = mixes.part_slot[p]
                if self.jumped[slot] > 0:
                    clock = domains.of_sm[sm] * residents.slots + slot
                    residents.recorded[slot * residents.sms + sm] -= length / domains.slowdown[clock]
        residents.record_all()

    def skip_blocks(self, slot: int, blocks: int, end: float) -> None:
        """Count ``blocks`` of a slot as run by ``end``, shared among the SMs by their rates."""
        residents = self.residents
        launches, domains, mixes = residents.launches, residents.domains, residents.mixes
        launches.waiting[slot] -= blocks
        launches.unfinished[slot] -= blocks
        launches.next_block[slot] += blocks
        share = 0.0
        given = 0
        for sm in range(residents.sms):
            p = mixes.part_of(residents.rated[sm], slot)
            if p >= 0:
                clock = domains.of_sm[sm] * residents.slots + slot
                share += mixes.part_progress[p] / domains.slowdown[clock] / self.throughput[slot]
            total = int(share * blocks + 0.5)
            if total > given:
                launches.ran[slot * residents.sms + sm] += total - given
                launches.tiles_ran[slot * residents.sms + sm] += total - given
                launches.end_here[slot * residents.sms + sm] = end
            given = total  # in the end all: shares sum to 1 but for rounding
