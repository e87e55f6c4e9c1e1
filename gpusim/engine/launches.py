"""The launches that are active on the SMs, each under its slot: what its blocks need, and what became of them."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from gpusim.engine.tables import RESOURCES, reals, unknown, zeros
from gpusim.model.memory import MemoryLoad, MemoryWait

if TYPE_CHECKING:
    from gpusim.model.kernel import KernelModel

OWN = len(MemoryLoad._fields)  # numbers that `memory_slowdown` knows a launch by
WAIT = len(MemoryWait._fields)  # numbers that `wait_slowdown` knows a launch by
MOST_LENGTHS = 64  # of blocks of unequal length, that a launch may have (MAX_BLOCK_LENGTHS of traces)


def below_prime(x: int) -> int:
    """The remainder of ``x``, less than 2**62 - 1, on division by the prime 2147483647 = 2**31 - 1."""
    x = (x >> 31) + (x & 2147483647)
    return x - 2147483647 if x >= 2147483647 else x


def jitter_factor(seed: int, block: int, jitter: float) -> float:
    """The work of one block over the mean: uniform, standard deviation ``jitter``, the same for the same arguments."""
    # the prime is small enough that no product leaves 62 bits
    x = below_prime(seed + 1 + block * 48271)
    x = below_prime(x * x + 12345)
    x = below_prime(x * 16807 + block)
    x = below_prime(x * x + 67890)
    return 1.0 + jitter * 3.4641016151377544 * (x / 2147483647.0 - 0.5)


class Launches:
    """Tables with an entry for each slot, or for each slot and SM.

    ``slots`` launches can be active at once, ``width`` blocks resident on one SM.
    """

    def __init__(self, sms: int, slots: int, width: int) -> None:
        self.sms = sms
        self.slots = slots
        self.width = width
        self.active = zeros(slots)  # those whose launches have blocks left, in the order in which they came
        self.active_count = 0
        self.placed_all = False  # some launch has placed its last block since somebody looked
        # what their kernels are
        self.described: list[KernelModel | None] = [None] * slots  # the kernel that these tables are of
        self.need = zeros(slots * RESOURCES)
        self.wanted_carveout = zeros(slots)
        self.least_carveout = zeros(slots)
        self.most_carveout = zeros(slots)
        self.cluster = zeros(slots)  # blocks of a cluster
        self.shared = zeros(slots)  # whether its blocks share its work as they go, in tiles
        self.late_last = zeros(slots)  # whether those that wait while some end must let all that run end
        self.tile_work = reals(slots)  # of a mean tile; of a mean block where each does its own work
        self.row = zeros(slots)  # blocks of a row of the grid, along which they are of unequal length
        self.length_count = zeros(slots)  # of these lengths; 0: all are equal
        self.lengths = reals(slots * MOST_LENGTHS)  # over the mean one's
        self.start_us = reals(slots)  # that the device takes to start a block, before it may start the next
        self.sm_start_us = reals(slots)  # the same of one SM
        self.seed = zeros(slots)
        self.jitter = reals(slots)
        self.ramps = reals(slots * width)  # by how many of its first blocks share an SM, from one on
        self.on_tensor_cores = zeros(slots)
        self.held_clock = reals(slots)  # that the power limit left it in the recording, over that without one
        self.block_power = reals(slots)  # of a resident block at the full clock, over the power limit
        self.issue_demand = reals(slots)
        self.dram_demand = reals(slots)
        self.l2_demand = reals(slots)
        self.own = reals(slots * OWN)  # the `MemoryLoad` of its kernel alone
        self.dram_each = reals(slots)  # load of DRAM and L2 by each work per microsecond
        self.l2_each = reals(slots)
        self.wait = reals(slots * WAIT)  # the `MemoryWait` of its kernel
        self.code_lost = reals(slots)  # share of its code that the caches have lost
        # what they are held to
        self.tenant = unknown(slots)
        self.together = zeros(slots)  # blocks that start together: a cluster's, or 1 where no GPC may hold one
        self.cap = zeros(slots * sms)
        # how far they are
        self.waiting = zeros(slots)
        self.resident = zeros(slots)
        self.sms_used = zeros(slots)  # SMs that hold some of its blocks
        self.unfinished = zeros(slots)
        self.next_block = zeros(slots)  # to start anew: a block's first tile is its own
        self.next_tile = zeros(slots)  # beyond the first ones, to be taken by the block that comes next
        self.all_tiles = zeros(slots)
        self.gated = zeros(slots)  # whether its blocks that wait do so now
        self.first_start = reals(slots, -1.0)
        self.dispatched_at = reals(slots, -1.0)
        self.evicted = zeros(slots)
        self.saved: list[list[float]] = [[] for _ in range(slots)]  # work left of blocks that were evicted
        self.carried = reals(slots)  # what is left of a block after the last jump (`Skipping`)
        self.here = zeros(slots * sms)
        self.ran = zeros(slots * sms)
        self.tiles_ran = zeros(slots * sms)
        self.start_here = reals(slots * sms, -1.0)
        self.end_here = reals(slots * sms, -1.0)

    def submit(self, slot: int, model: KernelModel, code_lost: float = 0.0) -> None:
        """Make a launch known under a slot: its blocks wait until its caps and place in line let them in."""
        if self.described[slot] is not model:
            self.described[slot] = model
            self.describe(slot, model)
        if self.unfinished[slot] == 0:
            self.active[self.active_count] = slot
            self.active_count += 1
        blocks = model.blocks
        self.waiting[slot] = blocks
        self.unfinished[slot] = blocks
        self.resident[slot] = 0
        self.sms_used[slot] = 0
        self.together[slot] = self.cluster[slot]
        self.next_block[slot] = 0
        self.next_tile[slot] = blocks
        self.gated[slot] = 0
        self.code_lost[slot] = code_lost
        self.first_start[slot] = -1.0
        self.dispatched_at[slot] = -1.0
        self.carried[slot] = 0.0
        self.evicted[slot] = 0
        self.saved[slot] = []
        self.tenant[slot] = -1
        for i in range(slot * self.sms, (slot + 1) * self.sms):
            self.cap[i] = 0
            self.here[i] = 0
            self.ran[i] = 0
            self.tiles_ran[i] = 0
            self.start_here[i] = -1.0
            self.end_here[i] = -1.0

    def describe(self, slot: int, model: KernelModel) -> None:
        """Fill the tables that describe a slot's kernel."""
        need = model.need
        for r in range(RESOURCES):
            self.need[slot * RESOURCES + r] = need[r]
        self.wanted_carveout[slot] = model.carveout_bytes
        self.least_carveout[slot] = model.least_carveout_bytes
        self.most_carveout[slot] = model.most_carveout_bytes
        self.cluster[slot] = model.cluster_blocks
        self.all_tiles[slot] = model.tiles
        self.shared[slot] = 1 if model.tiles > model.blocks else 0
        self.late_last[slot] = 1 if model.late_last else 0
        self.tile_work[slot] = model.blocks / model.tiles
        self.start_us[slot] = model.start_us
        self.sm_start_us[slot] = model.sm_start_us
        self.row[slot] = model.row
        lengths = model.lengths
        self.length_count[slot] = len(lengths)
        for k in range(len(lengths)):
            self.lengths[slot * MOST_LENGTHS + k] = lengths[k]
        self.seed[slot] = model.seed
        self.jitter[slot] = model.jitter
        ramps = model.ramps
        for k in range(self.width):
            self.ramps[slot * self.width + k] = ramps[k] if k < len(ramps) else 0.0
        self.on_tensor_cores[slot] = 1 if model.on_tensor_cores else 0
        self.held_clock[slot] = model.held_clock
        self.block_power[slot] = model.block_power
        self.issue_demand[slot] = model.issue_us
        self.dram_demand[slot] = model.dram_share_us
        self.l2_demand[slot] = model.l2_share_us
        own = model.own_load
        for i in range(OWN):
            self.own[slot * OWN + i] = own[i]
        self.dram_each[slot] = model.unit_us * model.load.dram
        self.l2_each[slot] = model.unit_us * model.load.l2
        wait = model.wait
        for i in range(WAIT):
            self.wait[slot * WAIT + i] = wait[i]

    def retire(self, slot: int) -> None:
        """Remove a slot from the active ones: its launch has ended."""
        kept = 0
        for i in range(self.active_count):
            if self.active[i] != slot:
                self.active[kept] = self.active[i]
                kept += 1
        self.active_count = kept

    def first_work(self, slot: int) -> float:
        """Work of the next block of a launch to start anew: all of it, or of its own first tile."""
        block = self.next_block[slot]
        self.next_block[slot] += 1
        return self.work_of(slot, block)

    def next_work(self, slot: int) -> float:
        """Take the next tile of a launch whose blocks share tiles, and return its work."""
        tile = self.next_tile[slot]
        self.next_tile[slot] += 1
        return self.work_of(slot, tile)

    def work_of(self, slot: int, tile: int) -> float:
        """Work of one tile, in mean blocks."""
        work = jitter_factor(self.seed[slot], tile, self.jitter[slot]) * self.tile_work[slot]
        if self.length_count[slot] > 0:
            at = tile % self.row[slot] * self.length_count[slot] // self.row[slot]
            work *= self.lengths[slot * MOST_LENGTHS + at]
        return work

    def fullest_sm(self, slot: int) -> int:
        """The SM that holds most blocks of a launch, the first of several; -1 where none holds any."""
        fullest = -1
        most = 0
        for sm in range(self.sms):
            if self.here[slot * self.sms + sm] > most:
                most = self.here[slot * self.sms + sm]
                fullest = sm
        return fullest

    def span_columns(self, slot: int, origin: float) -> tuple[array[int], array[int], array[float], array[float]]:
        """For each SM that ran blocks of a launch, column by column: SMs, blocks run, first starts, last ends.

        Times are later by ``origin``.
        """
        count = 0
        for i in range(slot * self.sms, (slot + 1) * self.sms):
            if self.ran[i] > 0:
                count += 1
        sms, blocks = array("i", bytes(4 * count)), array("i", bytes(4 * count))
        starts, ends = reals(count), reals(count)
        self.fill_spans(slot, origin, sms, blocks, starts, ends)
        return sms, blocks, starts, ends

    def fill_spans(
        self,
        slot: int,
        origin: float,
        sms: array[int],
        blocks: array[int],
        starts: array[float],
        ends: array[float],
    ) -> None:
        """Write the columns of `span_columns`, which are as long as it takes."""
        row = 0
        for sm in range(self.sms):
            i = slot * self.sms + sm
            if self.ran[i] > 0:
                sms[row] = sm
                blocks[row] = self.ran[i]
                starts[row] = origin + self.start_here[i]
                ends[row] = origin + self.end_here[i]
                row += 1
