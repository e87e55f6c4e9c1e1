"""The SMs of a device and the blocks resident on them, advanced from one block's end to the next.

This file is plain Python. Where a C compiler is at hand the build compiles it (``core.pxd`` holds the types) and
it runs a hundred times faster; the two give the same bits, which a test asserts. It knows resources, residents,
rates and time; it knows no policy and no trace. The progress of every block of a mix of residents comes from a
function that the caller hands in, and so may the slowdown that the shared memory system adds to it; without one that
is `gpusim.model.memory.memory_slowdown`. What these leave undone it does itself: a memory domain that would serve more
than it can slows all its blocks by as much as that is over.

Every launch has a clock of its own in each memory domain, its *virtual time*, which runs slower than the SMs' by as
much as the domain slows the launch. While the residents of an SM stay, the end of each of its blocks is fixed in
virtual time; a change of the slowdowns concerns the clocks, and no SM.

The SMs' clock starts again, from 0, whenever the caller says so while the SMs hold nothing (`SMArray.restart_clock`):
what happens until they hold nothing again is then the same, to the last bit, whenever it happens. What it reports of a
launch is in the time of the caller.

Vocabulary: a *slot* is the number under which a kernel launch is known here while it is active; a *mix* is how many
blocks of each slot are resident on one SM; a block's *work* is 1 (times its jitter), in one *piece* or several, its
*rate* is work per microsecond of its slot's virtual time; a *domain* is a set of SMs that share one L2 and DRAM (all of
them, except under MIG); a *clock* is the number of a domain and a slot.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from gpusim.model.memory import MemoryLoad, memory_slowdown, memory_that_binds

if TYPE_CHECKING:
    from gpusim.model.kernel import KernelModel

RESOURCES = 4  # registers, shared memory, warps, block slots: in this order wherever four numbers stand together
USES = 7  # those, issue slots, DRAM and L2: what the usage history holds
ISSUE_USE, DRAM_USE, L2_USE = 4, 5, 6  # places of the last three
BINS = 128  # bins of the usage history, an even number; their width doubles when the history outgrows them
FIRST_MIXES = 64  # mixes that the tables hold before they grow
SKIPPED_WAVES = 40  # a launch skips no fewer: what its last wave may be off by is then within 0.5 % of the whole
FINISHED = 1e-9  # a block with this much work left is done: far above rounding, far below one block's work
SLACK = 1e-9  # relative, of what a memory domain can serve: rounding is no excess
OWN = len(MemoryLoad._fields)  # numbers that `memory_slowdown` knows a launch by
ROUNDING = 4e-16  # relative, of the clocks: late in a long replay a short block's end rounds to this
BINDING = ("alu", "dram", "fma", "issue", "l1", "l2", "latency", "lsu", "tensor", "unknown")  # of equals the first
BINDINGS, DRAM_BINDS, L2_BINDS = len(BINDING), BINDING.index("dram"), BINDING.index("l2")
NEVER = 1e300
_NEVER = NEVER  # the same, which the build makes a number of C

Mix = tuple[tuple[int, int], ...]  # ((slot, resident blocks), ...) in ascending order of slot
MixRates = tuple[list[list[float]], float, float]  # rates by slot and rank, DRAM load, L2 load
Resolve = Callable[[Mix], MixRates]
Slowdowns = Callable[[int, float, float, float], dict[int, float]]
MostBeside = Callable[[Mix, int], int]
PartsOfTime = Callable[[Mix, int], tuple[float, float, str]]  # gives `gpusim.model.contention.TimeParts`


def zeros(count: int) -> array[int]:
    """Integers, all 0."""
    return array("q", [0]) * count  # by far the quickest way to make a long one


def reals(count: int, value: float = 0.0) -> array[float]:
    """Reals, all the same."""
    return array("d", [value]) * count


def unknown(count: int) -> array[int]:
    """Integers, all -1."""
    return array("q", [-1]) * count


def joined(first: array[Any], second: array[Any]) -> array[Any]:
    """Two arrays of one type, one after the other."""
    both = array(second.typecode)
    both.frombytes(memoryview(first).cast("B"))
    both.extend(second)
    return both


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


class SMArray:
    """Resident blocks of every SM, their progress, and the clock.

    Args:
        sms: number of SMs.
        block_slots: most blocks resident on one SM.
        slots: most kernel launches active at once.
        limits: registers, shared memory bytes, warps and block slots of one SM.
        order: SMs in the order in which equal room is filled.
        domains: memory domain of each SM.
        capacity: what each memory domain can serve of DRAM and L2, 1 being all that the device can.
        resolve: gives, for a mix, the rate (work/us) of the blocks of each slot in order of age, and the load that
            the mix puts on DRAM and L2 when nothing lengthens it (1 = all that the domain can serve).
        most_beside: gives how many blocks of a slot an SM may hold beside a mix of others, where sums of what they
            need do not tell.
        slowdowns: gives, for a domain, its DRAM and L2 load and the cycle of its SMs, the factor by which the blocks of
            each slot in use are slowed (above 0); None: `memory_slowdown` of each.
        tensor_cycle: cycle of the SMs of a domain while they hold blocks that compute on tensor cores, over that
            otherwise.
        load_step: a domain's slowdown is worked out anew when its load has moved by this much.
        bins: of the usage history, an even number.
        gpcs: GPC of each SM: all blocks of a cluster are on SMs of one. None: all SMs are in one.
    """

    def __init__(
        self,
        sms: int,
        block_slots: int,
        slots: int,
        limits: tuple[int, int, int, int],
        order: list[int],
        domains: list[int],
        capacity: list[float],
        resolve: Resolve,
        most_beside: MostBeside,
        slowdowns: Slowdowns | None,
        tensor_cycle: float,
        load_step: float,
        bins: int = BINS,
        gpcs: Sequence[int] = (),
    ) -> None:
        self.sms = sms
        self.width = block_slots
        self.slots = slots
        self.now = 0.0
        self.origin = 0.0  # time of the caller at which the clock showed 0
        self.resolve = resolve
        self.most_beside = most_beside
        self.slowdowns_of = slowdowns
        self.tensor_cycle = tensor_cycle
        self.load_step = load_step
        self.bins = bins
        self.limit = array("q", limits)
        self.carveout = array("q", [limits[1]]) * sms
        self.sm_order = array("q", order)
        self.domain = array("q", domains)
        self.gpc = array("q", gpcs or [0] * sms)
        self.gpc_count = max(self.gpc) + 1
        sms_of_gpc = [[sm for sm in order if self.gpc[sm] == gpc] for gpc in range(self.gpc_count)]
        self.gpc_order = array("q", chain.from_iterable(sms_of_gpc))  # the SMs as in ``order``, GPC by GPC
        self.gpc_begin = array("q", accumulate(map(len, sms_of_gpc), initial=0))  # where each GPC's begin, and the end
        self.domain_count = domain_count = len(capacity)
        self.capacity = array("d", capacity)
        # one entry an SM
        self.count = zeros(sms)
        self.used = zeros(sms * RESOURCES)
        self.mix = zeros(sms)
        self.rated = zeros(sms)  # the mix that its residents have their rates by
        self.recorded_at = reals(sms)  # use is booked up to then
        self.room = zeros(sms)
        self.dirty = zeros(sms)
        # of a tree over the SMs: node 1 is its root, node i has the children 2 i and 2 i + 1, the last half are the SMs
        self.nodes = 2
        while self.nodes < 2 * sms:
            self.nodes *= 2
        # one entry a resident block: SM by SM, oldest first
        self.work = reals(sms * block_slots)  # left when its SM was last charged
        self.rate = reals(sms * block_slots)
        self.owner = zeros(sms * block_slots)
        # one entry a slot
        self.active = zeros(slots)  # those whose launches have blocks left, in the order in which they came
        self.active_count = 0
        self.need = zeros(slots * RESOURCES)
        self.wanted_carveout = zeros(slots)
        self.least_carveout = zeros(slots)
        self.waiting = zeros(slots)
        self.resident = zeros(slots)
        self.unfinished = zeros(slots)
        self.cluster = zeros(slots)  # blocks of a cluster
        self.together = zeros(slots)  # blocks that start together: a cluster's, or 1 where no GPC may hold one
        self.pieces = zeros(slots)  # that a block's work is in
        self.next_piece = zeros(slots)
        self.all_pieces = zeros(slots)
        self.seed = zeros(slots)
        self.tenant = unknown(slots)
        self.on_tensor_cores = zeros(slots)
        self.jitter = reals(slots)
        self.ramps = reals(slots * block_slots)  # by how many of its first blocks share an SM, from one on
        self.issue_demand = reals(slots)
        self.dram_demand = reals(slots)
        self.l2_demand = reals(slots)
        self.own = reals(slots * OWN)  # the `MemoryLoad` of its kernel alone
        self.first_start = reals(slots, -1.0)
        self.dispatched_at = reals(slots, -1.0)
        self.throughput = reals(slots)
        self.carried = reals(slots)
        self.jumped = zeros(slots)  # whether the jump under way (`skip`) passes over waves of its launch
        self.evicted = zeros(slots)
        self.saved: list[list[float]] = [[] for _ in range(slots)]
        self.bound_by = unknown(slots)  # what bounds its launch, a position in `BINDING`; -1: not looked at yet
        self.bound_time = reals(slots * BINDINGS)  # how long each has bound it
        self.booked_at = 0.0  # time is booked up to then
        # one entry a slot and SM
        self.cap = zeros(slots * sms)
        self.here = zeros(slots * sms)
        self.ran = zeros(slots * sms)
        self.pieces_ran = zeros(slots * sms)
        self.start_here = reals(slots * sms, -1.0)
        self.end_here = reals(slots * sms, -1.0)
        self.charged = reals(slots * sms)  # virtual time up to which what its blocks there have done is booked
        self.recorded = reals(slots * sms)  # virtual time up to which use is booked
        # placing order: slots with their queue; open ones may place now
        self.dispatch_order = zeros(slots)
        self.order_queue = zeros(slots)
        self.order_length = 0
        self.open = zeros(slots)
        self.open_count = 0
        self.reopen = False
        # memory domains
        self.dram_load = reals(domain_count)
        self.l2_load = reals(domain_count)
        self.dram_seen = reals(domain_count)
        self.l2_seen = reals(domain_count)
        self.held_back = zeros(domain_count)  # whether its blocks were slowed as it would have served too much
        self.tensor_blocks = zeros(domain_count)  # resident blocks that compute on tensor cores
        self.tensor_seen = zeros(domain_count)  # whether there were any
        # one entry a clock, or a clock and node of a tree over the SMs
        self.virtual = reals(domain_count * slots)
        self.slowdown = reals(domain_count * slots, 1.0)  # how much slower virtual time runs
        self.progress = reals(domain_count * slots)  # work per microsecond of virtual time, of all blocks in the domain
        self.first_due = reals(domain_count * slots * self.nodes, _NEVER)
        self.first_sm = array("q", [*range(-(self.nodes // 2), self.nodes // 2)]) * (domain_count * slots)
        self.next_clock = 0
        self.stale_rates = False
        # how steady things are
        self.stable = 0
        self.residents = 0
        self.done: list[int] = []
        # usage history
        self.bin_width = 1.0
        self.bins_per_us = 1.0
        self.history = reals(self.bins * sms * USES)  # bin by bin, for most of what is noted is of the same time
        # what each SM held when, noted only where that is asked for
        self.noting = False
        self.noted: list[tuple[float, int, Mix]] = []
        self.last_noted: list[Mix] = [()] * sms
        # mixes: one entry a mix, or a mix and slot
        self.first_valid = zeros(slots)
        self.mixes: list[Mix] = []
        self.mix_ids: dict[Mix, int] = {}
        self.after_add = unknown(FIRST_MIXES * slots)
        self.after_drop = unknown(FIRST_MIXES * slots)
        self.most_of = unknown(FIRST_MIXES * slots)  # blocks of a slot, beside the others of a mix
        self.mix_dram = reals(FIRST_MIXES)
        self.mix_l2 = reals(FIRST_MIXES)
        self.first_part = unknown(FIRST_MIXES)  # -1: not worked out yet
        self.last_part = unknown(FIRST_MIXES)
        # the slots of each mix that is worked out, in ascending order, and their rates, oldest block first
        self.parts = 0
        self.part_slot = zeros(FIRST_MIXES)
        self.part_rates = zeros(FIRST_MIXES)  # where they begin
        self.part_progress = reals(FIRST_MIXES)  # their sum
        self.rates_used = 0
        self.rates = reals(FIRST_MIXES)
        # what the time of each slot is made of as no SM holds it, then that of each part of a mix
        self.whole_time = reals(slots + FIRST_MIXES)
        self.largest_time = reals(slots + FIRST_MIXES)
        self.largest_is = unknown(slots + FIRST_MIXES)  # a position in `BINDING`; -1: not worked out yet
        self.forget_mixes()

    # ---- mixes -------------------------------------------------------------------------------------------------

    def forget_mixes(self) -> None:
        """Drop all remembered mixes but those on the SMs now: needed when their rates are others."""
        for sm in range(self.sms):
            self.charge(sm)
        for i in range(len(self.mixes)):
            self.first_part[i] = -1
        for i in range(len(self.mixes) * self.slots):
            self.after_add[i] = -1
            self.after_drop[i] = -1
            self.most_of[i] = -1
        for i in range(self.slots):
            self.first_valid[i] = 0
        self.mixes.clear()
        self.mix_ids.clear()
        self.parts = 0
        self.rates_used = 0
        self.stale_rates = True
        self.work_out(self.intern(()))
        for sm in range(self.sms):
            mix: dict[int, int] = {}
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                mix[self.owner[j]] = mix.get(self.owner[j], 0) + 1
            self.mix[sm] = self.intern(tuple(sorted(mix.items())))
            self.rated[sm] = 0
            self.project(sm)
        self.add_up()

    def forget_slot(self, slot: int) -> None:
        """Drop the remembered mixes with a slot that no SM holds: needed when it gets another kernel."""
        self.first_valid[slot] = len(self.mixes)
        for i in range(len(self.mixes)):
            self.most_of[i * self.slots + slot] = -1
        self.largest_is[slot] = -1

    def mix_count(self) -> int:
        """Mixes in the tables, dropped ones included."""
        return len(self.mixes)

    def intern(self, mix: Mix) -> int:
        """The number of a mix."""
        known = self.mix_ids.get(mix)
        if known is not None and known >= max([self.first_valid[slot] for slot, _ in mix], default=0):
            return known
        number = len(self.mixes)
        if number == len(self.mix_dram):
            self.grow_mixes(number)
        self.mixes.append(mix)
        self.mix_ids[mix] = number
        self.first_part[number] = -1
        return number

    def work_out(self, number: int) -> None:
        """Have a mix's rates and loads worked out: most mixes that an SM passes through it never runs."""
        mix = self.mixes[number]
        rates, self.mix_dram[number], self.mix_l2[number] = self.resolve(mix) if mix else ([], 0.0, 0.0)
        self.first_part[number] = self.parts
        for (slot, _), values in zip(mix, rates, strict=True):
            if self.parts == len(self.part_slot):
                self.part_slot = joined(self.part_slot, zeros(self.parts))
                self.part_rates = joined(self.part_rates, zeros(self.parts))
                self.part_progress = joined(self.part_progress, reals(self.parts))
                self.whole_time = joined(self.whole_time, reals(self.parts))
                self.largest_time = joined(self.largest_time, reals(self.parts))
                self.largest_is = joined(self.largest_is, unknown(self.parts))
            if self.rates_used + len(values) > len(self.rates):
                self.rates = joined(self.rates, reals(len(self.rates) + len(values)))
            self.part_slot[self.parts] = slot
            self.part_rates[self.parts] = self.rates_used
            self.part_progress[self.parts] = 0.0
            self.largest_is[self.slots + self.parts] = -1
            for value in values:
                self.rates[self.rates_used] = value
                self.part_progress[self.parts] += value
                self.rates_used += 1
            self.parts += 1
        self.last_part[number] = self.parts

    def grow_mixes(self, held: int) -> None:
        """Double the tables of mixes, which hold ``held`` now."""
        self.after_add = joined(self.after_add, unknown(held * self.slots))
        self.after_drop = joined(self.after_drop, unknown(held * self.slots))
        self.most_of = joined(self.most_of, unknown(held * self.slots))
        self.mix_dram = joined(self.mix_dram, reals(held))
        self.mix_l2 = joined(self.mix_l2, reals(held))
        self.first_part = joined(self.first_part, unknown(held))
        self.last_part = joined(self.last_part, unknown(held))

    def neighbour(self, mix: int, slot: int, change: int) -> int:
        """The mix after one block of a slot came (+1) or went (-1), for the first time."""
        counts = dict(self.mixes[mix])
        counts[slot] = counts.get(slot, 0) + change
        if counts[slot] == 0:
            del counts[slot]
        other = self.intern(tuple(sorted(counts.items())))
        if change > 0:
            self.after_add[mix * self.slots + slot] = other
        else:
            self.after_drop[mix * self.slots + slot] = other
        return other

    def find_most(self, slot: int, mix: int) -> int:
        """How many blocks of a slot an SM may hold beside those of others in a mix, for the first time."""
        others = tuple([(other, count) for other, count in self.mixes[mix] if other != slot])
        most = self.most_beside(others, slot)
        self.most_of[mix * self.slots + slot] = most
        return most

    # ---- what the engine tells -----------------------------------------------------------------------------------

    def submit(self, slot: int, model: KernelModel) -> None:
        """Make a launch known under a slot: its blocks wait until its caps and place in line let them in."""
        blocks = model.blocks
        if self.unfinished[slot] == 0:
            self.active[self.active_count] = slot
            self.active_count += 1
        for d in range(self.domain_count):
            self.virtual[d * self.slots + slot] = 0.0
        self.wanted_carveout[slot] = model.carveout_bytes
        self.least_carveout[slot] = model.least_carveout_bytes
        need = model.need
        for r in range(RESOURCES):
            self.need[slot * RESOURCES + r] = need[r]
        self.waiting[slot] = blocks
        self.unfinished[slot] = blocks
        self.resident[slot] = 0
        self.cluster[slot] = model.cluster_blocks
        self.together[slot] = model.cluster_blocks
        self.pieces[slot] = model.pieces
        self.next_piece[slot] = 0
        self.all_pieces[slot] = blocks * self.pieces[slot]
        self.seed[slot] = model.seed
        self.jitter[slot] = model.jitter
        ramps = model.ramps
        for k in range(self.width):
            self.ramps[slot * self.width + k] = ramps[k] if k < len(ramps) else 0.0
        self.on_tensor_cores[slot] = 1 if model.on_tensor_cores else 0
        self.issue_demand[slot] = model.issue_us
        self.dram_demand[slot] = model.dram_share_us
        self.l2_demand[slot] = model.l2_share_us
        own = model.own_load
        for i in range(OWN):
            self.own[slot * OWN + i] = own[i]
        self.first_start[slot] = -1.0
        self.dispatched_at[slot] = -1.0
        self.carried[slot] = 0.0
        self.evicted[slot] = 0
        self.saved[slot] = []
        self.tenant[slot] = -1
        self.stale_rates = True
        for sm in range(self.sms):
            i = slot * self.sms + sm
            self.cap[i] = 0
            self.here[i] = 0
            self.ran[i] = 0
            self.pieces_ran[i] = 0
            self.start_here[i] = -1.0
            self.end_here[i] = -1.0
        self.add_up()

    def set_slowdowns(self, slowdowns: Slowdowns | None) -> None:
        """Give another function for ``slowdowns``, or None; it is asked from the next change on."""
        self.slowdowns_of = slowdowns

    def set_caps(self, slot: int, caps: list[int]) -> None:
        """Most resident blocks of a slot on each SM; residents above a lowered cap run to their end."""
        for sm in range(self.sms):
            self.cap[slot * self.sms + sm] = caps[sm]
        self.together[slot] = 1
        for gpc in range(self.gpc_count if self.cluster[slot] > 1 else 0):
            usable = 0
            for i in range(self.gpc_begin[gpc], self.gpc_begin[gpc + 1]):
                if self.cap[slot * self.sms + self.gpc_order[i]] > 0:
                    usable += 1
            if usable >= self.cluster[slot]:
                self.together[slot] = self.cluster[slot]

    def set_tenant(self, slot: int, tenant: int) -> None:
        """Let blocks of a slot share an SM only with blocks of the same tenant; -1 removes the restriction.

        An SM that holds blocks of another tenant takes none until these have ended.
        """
        self.tenant[slot] = tenant

    def set_dispatch_order(self, slots: list[int], queues: list[int]) -> None:
        """Who places blocks before whom; of each queue only the first with blocks waiting may place any."""
        self.order_length = len(slots)
        for i in range(len(slots)):
            self.dispatch_order[i] = slots[i]
            self.order_queue[i] = queues[i]
        self.reopen = True

    def evict(self, slot: int, sm: int, blocks: int, extra_work: float, restart: bool = False) -> None:
        """Take the youngest blocks of a slot off an SM; each waits again, with what it had left plus ``extra_work``.

        With ``restart`` what it had done is lost: it has a mean piece of work to do, all of an ordinary block's.
        """
        self.charge(sm)
        base = sm * self.width
        j = base + self.count[sm] - 1
        while blocks > 0 and j >= base:
            if self.owner[j] == slot:
                left = 1.0 / self.pieces[slot] if restart else self.work[j]
                self.saved[slot].append(left + extra_work)
                self.evicted[slot] += 1
                self.waiting[slot] += 1
                self.drop(sm, j)
                blocks -= 1
            j -= 1
        self.project(sm)
        self.reopen = True

    def note_residents(self) -> None:
        """From now on note what each SM holds whenever that changes, for `take_noted`."""
        self.noting = True

    def restart_clock(self, origin: float) -> None:
        """Set the clock of SMs that hold nothing to 0, which is ``origin`` in the time of the caller."""
        self.origin = origin
        self.now = 0.0
        self.booked_at = 0.0

    def forget_uses(self) -> None:
        """Empty the usage history."""
        self.bin_width = 1.0
        self.bins_per_us = 1.0
        for i in range(self.sms * self.bins * USES):
            self.history[i] = 0.0

    def in_one_bin(self, start: float, end: float) -> bool:
        """Whether one bin of the usage history, widened to hold ``end``, has all between two times of the caller."""
        while end >= self.bin_width * self.bins:
            self.fold()
        return int(start / self.bin_width) == int(end / self.bin_width)

    def add_uses(self, at: float, uses: array[float]) -> None:
        """Add to the bin that has a time of the caller what was used there, as `uses` gives it."""
        b = int(at / self.bin_width)
        for sm in range(self.sms):
            for u in range(USES):
                self.history[(b * self.sms + sm) * USES + u] += uses[sm * USES + u]

    def dispatch(self) -> None:
        """Place all that may be placed now."""
        while self.reopen:
            self.reopen = False
            self.open_heads()
            for i in range(self.open_count):
                self.place_everywhere(self.open[i])
        self.settle()

    # ---- what the engine asks -----------------------------------------------------------------------------------

    def advance(self, until: float) -> int:
        """Run to the end of the next launch that ends by ``until`` and give its slot, else to ``until`` and give -1."""
        if self.done:
            return self.done.pop(0)
        while True:
            due = self.next_due()
            if due > until or due >= _NEVER:
                if until < _NEVER and until > self.now:
                    self.pass_time(until)
                return -1
            self.pass_time(due)
            clock = self.next_clock
            root = clock * self.nodes + 1
            due = self.first_due[root]
            passed = self.virtual[clock]
            self.virtual[clock] = due if due > passed else passed  # but for rounding they are equal
            self.complete(self.first_sm[root])
            if self.reopen:
                self.dispatch()
            if self.stale_rates:
                self.settle()
            if self.done:
                return self.done.pop(0)
            if self.stable > 2 * self.residents:
                self.skip(until)

    def next_due(self) -> float:
        """When the next block ends, if nothing changes before; of equals that on the first SM."""
        first = _NEVER
        for i in range(self.active_count):
            for d in range(self.domain_count):
                clock = d * self.slots + self.active[i]
                due = self.first_due[clock * self.nodes + 1]
                if due >= _NEVER:
                    continue
                left = due - self.virtual[clock]
                due = self.now + (left if left > 0.0 else 0.0) * self.slowdown[clock]
                sm = self.first_sm[clock * self.nodes + 1]
                if due < first or (due == first and sm < self.first_sm[self.next_clock * self.nodes + 1]):
                    first = due
                    self.next_clock = clock
        return first

    def waiting_blocks(self, slot: int) -> int:
        """Blocks of a launch not yet placed."""
        return self.waiting[slot]

    def resident_blocks(self, slot: int) -> int:
        """Blocks of a launch resident on all SMs."""
        return self.resident[slot]

    def unfinished_blocks(self, slot: int) -> int:
        """Blocks of a launch waiting or resident."""
        return self.unfinished[slot]

    def started_at(self, slot: int) -> float:
        """When the first block was placed; -1 before that."""
        return self.origin + self.first_start[slot] if self.first_start[slot] >= 0.0 else -1.0

    def dispatched(self, slot: int) -> float:
        """When the last block was placed, or those that waited had nothing left to do; -1 before that."""
        return self.origin + self.dispatched_at[slot] if self.dispatched_at[slot] >= 0.0 else -1.0

    def residents_by_sm(self, slot: int) -> list[int]:
        """Resident blocks of a launch on each SM."""
        return [self.here[slot * self.sms + sm] for sm in range(self.sms)]

    def fullest_sm(self, slot: int) -> int:
        """The SM that holds most blocks of a launch, the first of several; -1 where none holds any."""
        fullest = -1
        most = 0
        for sm in range(self.sms):
            if self.here[slot * self.sms + sm] > most:
                most = self.here[slot * self.sms + sm]
                fullest = sm
        return fullest

    def work_left_by_sm(self, slot: int) -> list[float]:
        """Most work (blocks) that a resident of a launch has left, of its piece, on each SM; 0 where none is."""
        left = [0.0] * self.sms
        for sm in range(self.sms):
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                if self.owner[j] == slot:
                    left[sm] = max(left[sm], self.work_left(sm, j))
        return left

    def work_done_by_sm(self, slot: int) -> list[float]:
        """Work (blocks) of a launch done on each SM: the pieces that ended there, and what its residents have done."""
        piece = 1.0 / self.pieces[slot]
        done = [piece * self.pieces_ran[slot * self.sms + sm] for sm in range(self.sms)]
        for sm in range(self.sms):
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                if self.owner[j] == slot:
                    done[sm] += piece - self.work_left(sm, j)
        return done

    def mix_of(self, sm: int) -> Mix:
        """Residents of one SM by slot."""
        return self.mixes[self.mix[sm]]

    def domain_at(self, sm: int) -> int:
        """Memory domain of one SM."""
        return self.domain[sm]

    def load_at(self, sm: int) -> tuple[float, float]:
        """DRAM and L2 load of the memory domain that one SM is in."""
        return self.dram_load[self.domain[sm]], self.l2_load[self.domain[sm]]

    def free(self, sm: int) -> tuple[int, int, int, int]:
        """Registers, shared memory bytes, warps and block slots that nobody holds on one SM."""
        u = sm * RESOURCES
        return (
            self.limit[0] - self.used[u],
            (self.carveout[sm] if self.count[sm] > 0 else self.limit[1]) - self.used[u + 1],
            self.limit[2] - self.used[u + 2],
            self.limit[3] - self.used[u + 3],
        )

    def span_columns(self, slot: int) -> tuple[array[int], array[int], array[float], array[float]]:
        """What `spans` gives, column by column: SMs, blocks run, first starts, last ends."""
        count = 0
        for sm in range(self.sms):
            if self.ran[slot * self.sms + sm] > 0:
                count += 1
        sms, blocks = array("i", bytes(4 * count)), array("i", bytes(4 * count))
        starts, ends = reals(count), reals(count)
        self.fill_spans(slot, sms, blocks, starts, ends)
        return sms, blocks, starts, ends

    def fill_spans(
        self, slot: int, sms: array[int], blocks: array[int], starts: array[float], ends: array[float]
    ) -> None:
        """Write the columns of `span_columns`, which are as long as it takes."""
        row = 0
        for sm in range(self.sms):
            i = slot * self.sms + sm
            if self.ran[i] > 0:
                sms[row] = sm
                blocks[row] = self.ran[i]
                starts[row] = self.origin + self.start_here[i]
                ends[row] = self.origin + self.end_here[i]
                row += 1

    def spans(self, slot: int) -> list[tuple[int, int, float, float]]:
        """(SM, blocks run, first start, last end) for each SM that ran blocks of a launch."""
        return list(zip(*self.span_columns(slot), strict=True))

    def take_noted(self) -> list[tuple[float, int, Mix]]:
        """Changes of residents since the last call, by time: when (us), on which SM, and what it held from then on."""
        noted, self.noted = self.noted, []
        return noted

    def usage(self) -> tuple[float, array[float]]:
        """Bin width (us) and, bin by bin and SM by SM, the uses integrated over time (unit x us)."""
        self.record_all()
        return self.bin_width, joined(self.history, reals(0))

    def uses(self) -> array[float]:
        """SM by SM, the uses integrated over all time (unit x us)."""
        found = reals(self.sms * USES)
        self.record_all()
        for sm in range(self.sms):
            for b in range(self.bins):
                for u in range(USES):
                    found[sm * USES + u] += self.history[(b * self.sms + sm) * USES + u]
        return found

    def block_time(self) -> float:
        """Resident blocks of all SMs integrated over time (block x us)."""
        total = 0.0
        self.record_all()
        for sm in range(self.sms):
            for b in range(self.bins):
                total += self.history[(b * self.sms + sm) * USES + 3]
        return total

    # ---- what binds launches ---------------------------------------------------------------------------------------

    def look(self, time_parts: PartsOfTime) -> None:
        """Begin an interval: find what bounds each launch by the mix on the SM that holds most of it, and its memory.

        While no SM holds any of it the mix is empty, and the memory that of the first SM.

        Args:
            time_parts: gives what the time of a slot's launch is made of in a mix, or alone where that is empty.
        """
        for i in range(self.active_count):
            slot = self.active[i]
            sm = self.fullest_sm(slot)
            known = self.time_in(slot, sm)
            if self.largest_is[known] < 0:
                mix = self.mixes[self.rated[sm]] if sm >= 0 else ()
                self.whole_time[known], self.largest_time[known], name = time_parts(mix, slot)
                self.largest_is[known] = BINDING.index(name)
            self.bound_by[slot] = self.binding_at(slot, known, self.domain[sm if sm >= 0 else 0])

    def time_in(self, slot: int, sm: int) -> int:
        """Where it stands what the time of a launch is made of on an SM, or on none (-1)."""
        if sm >= 0:
            for p in range(self.first_part[self.rated[sm]], self.last_part[self.rated[sm]]):
                if self.part_slot[p] == slot:
                    return self.slots + p
        return slot

    def binding_at(self, slot: int, known: int, domain: int) -> int:
        """`gpusim.model.contention.binding_at` of a launch, by what its time is made of and the load of its domain."""
        binds = memory_that_binds(
            self.whole_time[known],
            self.largest_time[known],
            self.dram_load[domain] / self.capacity[domain],
            self.l2_load[domain] / self.capacity[domain],
            self.own,
            slot * OWN,
        )
        if binds == 0:
            return self.largest_is[known]
        return DRAM_BINDS if binds == 1 else L2_BINDS

    def book(self) -> None:
        """Book the time since the last booking to what bound each launch when the interval began."""
        passed = self.now - self.booked_at
        self.booked_at = self.now
        if passed > 0.0:
            for slot in range(self.slots):
                if self.bound_by[slot] >= 0:
                    self.bound_time[slot * BINDINGS + self.bound_by[slot]] += passed

    def most_bound_by(self, slot: int) -> str:
        """What bound a launch that has ended most of its time, latency if nothing was booked; its book is closed."""
        most = 0.0
        found = "latency"
        for i in range(BINDINGS):
            if self.bound_time[slot * BINDINGS + i] > most:
                most = self.bound_time[slot * BINDINGS + i]
                found = BINDING[i]
            self.bound_time[slot * BINDINGS + i] = 0.0
        self.bound_by[slot] = -1
        return found

    # ---- one SM ---------------------------------------------------------------------------------------------------

    def work_left(self, sm: int, j: int) -> float:
        """Work that the block at position ``j``, on an SM, has left."""
        slot = self.owner[j]
        passed = self.virtual[self.domain[sm] * self.slots + slot] - self.charged[slot * self.sms + sm]
        return self.work[j] - passed * self.rate[j]

    def charge(self, sm: int) -> None:
        """Book what an SM's residents have done and used: before they change, which `project` then takes over."""
        self.record(sm)
        clocks = self.domain[sm] * self.slots
        base = sm * self.width
        for p in range(self.first_part[self.rated[sm]], self.last_part[self.rated[sm]]):
            k = self.part_slot[p]
            passed = self.virtual[clocks + k] - self.charged[k * self.sms + sm]
            for j in range(base, base + self.count[sm]):
                if self.owner[j] == k:
                    self.work[j] -= passed * self.rate[j]

    def record(self, sm: int) -> None:
        """Add an SM's uses since they were last booked to the history: to several bins by the time in each.

        That is exact: `pass_time` books all SMs before and after it passes the edge of a bin.
        """
        start = self.origin + self.recorded_at[sm]
        end = self.origin + self.now
        self.recorded_at[sm] = self.now
        if self.count[sm] == 0 or end <= start:
            return
        clocks = self.domain[sm] * self.slots
        issue = 0.0
        dram = 0.0
        l2 = 0.0
        for p in range(self.first_part[self.rated[sm]], self.last_part[self.rated[sm]]):
            k = self.part_slot[p]
            i = k * self.sms + sm
            done = (self.virtual[clocks + k] - self.recorded[i]) * self.part_progress[p]
            self.recorded[i] = self.virtual[clocks + k]
            issue += done * self.issue_demand[k]
            dram += done * self.dram_demand[k]
            l2 += done * self.l2_demand[k]
        while end >= self.bin_width * self.bins:
            self.fold()
        length = end - start
        b = int(start * self.bins_per_us)  # exact: a width is a power of two
        while start < end:
            edge = (b + 1) * self.bin_width
            part = (edge if edge < end else end) - start
            if part > 0.0:
                row = (b * self.sms + sm) * USES
                for u in range(RESOURCES):
                    self.history[row + u] += part * self.used[sm * RESOURCES + u]
                part /= length
                self.history[row + ISSUE_USE] += part * issue
                self.history[row + DRAM_USE] += part * dram
                self.history[row + L2_USE] += part * l2
            start = edge
            b += 1

    def record_all(self) -> None:
        """Book the use of every SM up to now."""
        for sm in range(self.sms):
            self.record(sm)

    def pass_time(self, to: float) -> None:
        """Set the clock of the SMs, and those of the launches as much on as their slowdowns leave."""
        b = int((self.origin + self.now) * self.bins_per_us)
        crosses = self.origin + to >= (b + 1) * self.bin_width
        if crosses:
            self.record_all()
        for i in range(self.active_count):
            for d in range(self.domain_count):
                clock = d * self.slots + self.active[i]
                self.virtual[clock] += (to - self.now) / self.slowdown[clock]
        self.now = to
        if crosses:
            self.record_all()

    def fold(self) -> None:
        """Halve the resolution of the usage history."""
        row = self.sms * USES
        for b in range(self.bins):
            for i in range(row):
                if 2 * b < self.bins:
                    self.history[b * row + i] = self.history[2 * b * row + i] + self.history[(2 * b + 1) * row + i]
                else:
                    self.history[b * row + i] = 0.0
        self.bin_width *= 2.0
        self.bins_per_us *= 0.5

    def project(self, sm: int) -> None:
        """Take over an SM's new mix: its load on its domain, the rates of its residents, and when the first ones end.

        What its residents had done is booked up to now (`charge`).
        """
        was = self.rated[sm]
        mix = self.mix[sm]
        if self.first_part[mix] < 0:
            self.work_out(mix)
        self.rated[sm] = mix
        d = self.domain[sm]
        clocks = d * self.slots
        self.dram_load[d] += self.mix_dram[mix] - self.mix_dram[was]
        self.l2_load[d] += self.mix_l2[mix] - self.mix_l2[was]
        for p in range(self.first_part[was], self.last_part[was]):
            k = self.part_slot[p]
            self.progress[clocks + k] -= self.part_progress[p]
            if self.here[k * self.sms + sm] == 0:
                self.note_due(clocks + k, sm, _NEVER)
        base = sm * self.width
        for p in range(self.first_part[mix], self.last_part[mix]):
            k = self.part_slot[p]
            self.progress[clocks + k] += self.part_progress[p]
            self.charged[k * self.sms + sm] = self.virtual[clocks + k]
            self.recorded[k * self.sms + sm] = self.virtual[clocks + k]
            due = _NEVER
            i = self.part_rates[p]
            for j in range(base, base + self.count[sm]):
                if self.owner[j] == k:
                    self.rate[j] = self.rates[i]
                    left = self.work[j] / self.rates[i]
                    due = left if left < due else due
                    i += 1
            self.note_due(clocks + k, sm, self.virtual[clocks + k] + due)
        if self.noting:
            self.note_mix(sm)

    def note_mix(self, sm: int) -> None:
        """Note what an SM holds now, where it is not what it held."""
        mix = self.mixes[self.mix[sm]]
        if mix != self.last_noted[sm]:
            self.last_noted[sm] = mix
            self.noted.append((self.origin + self.now, sm, mix))

    def note_due(self, clock: int, sm: int, due: float) -> None:
        """Note when the first block of a clock's launch on an SM ends, and so on which SM the first of all does."""
        root = clock * self.nodes
        node = self.nodes // 2 + sm
        self.first_due[root + node] = due
        while node > 1:  # C does it without a branch, which none could predict
            other = self.first_due[root + (node ^ 1)]
            on_other = self.first_sm[root + (node ^ 1)]
            sm += ((other < due) | ((other == due) & node & 1)) * (on_other - sm)
            due = other if other < due else due
            node >>= 1
            self.first_due[root + node] = due
            self.first_sm[root + node] = sm

    def fits(self, slot: int, sm: int) -> bool:
        """Whether one more block of a slot may be resident on an SM."""
        i = slot * self.sms + sm
        if self.here[i] >= self.cap[i]:
            return False
        if self.tenant[slot] >= 0 and self.count[sm] > self.here[i]:
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                if self.tenant[self.owner[j]] != self.tenant[slot]:
                    return False
        u = sm * RESOURCES
        r = slot * RESOURCES
        shared = self.wanted_carveout[slot]
        if self.count[sm] > 0:
            if self.carveout[sm] < self.least_carveout[slot]:
                return False
            shared = self.carveout[sm]
        if (
            self.used[u] + self.need[r] > self.limit[0]
            or self.used[u + 1] + self.need[r + 1] > shared
            or self.used[u + 2] + self.need[r + 2] > self.limit[2]
            or self.used[u + 3] + self.need[r + 3] > self.limit[3]
        ):
            return False
        most = self.most_of[self.mix[sm] * self.slots + slot]
        if most < 0:
            most = self.find_most(slot, self.mix[sm])
        return self.here[i] < most

    def room_for(self, slot: int, sm: int) -> int:
        """How many more blocks of a slot, of which one `fits`, fit on an SM by its resources (the caps aside)."""
        room = self.most_of[self.mix[sm] * self.slots + slot] - self.here[slot * self.sms + sm]
        for r in range(RESOURCES):
            need = self.need[slot * RESOURCES + r]
            if need > 0:
                limit = self.limit[r]
                if r == 1:
                    limit = self.carveout[sm] if self.count[sm] > 0 else self.wanted_carveout[slot]
                fit = (limit - self.used[sm * RESOURCES + r]) // need
                if fit < room:
                    room = fit
        return room

    def take_piece(self, slot: int, sm: int) -> float:
        """The work of the next piece of a launch, taken on an SM.

        Blocks that wait when the last of several pieces a block is taken have nothing to do: they end there at once.
        """
        piece = self.next_piece[slot]
        self.next_piece[slot] += 1
        if self.pieces[slot] > 1 and self.next_piece[slot] == self.all_pieces[slot]:
            idle = self.waiting[slot] - self.evicted[slot]
            if idle > 0:
                self.ran[slot * self.sms + sm] += idle
                self.end_here[slot * self.sms + sm] = self.now
                self.unfinished[slot] -= idle
                self.waiting[slot] -= idle
                self.reopen = True
                if self.waiting[slot] == 0:
                    self.dispatched_at[slot] = self.now
        return jitter_factor(self.seed[slot], piece, self.jitter[slot]) / self.pieces[slot]

    def share_ramp(self, slot: int, sm: int) -> float:
        """What one more of a launch's first blocks on an SM has to do beside its own work; each of those there, too."""
        k = slot * self.width + self.here[slot * self.sms + sm]
        ramp = self.ramps[k]
        if ramp > 0.0 and self.here[slot * self.sms + sm] > 0:
            for j in range(sm * self.width, sm * self.width + self.count[sm]):
                if self.owner[j] == slot:
                    self.work[j] += ramp - self.ramps[k - 1]
        return ramp

    def start(self, slot: int, sm: int) -> None:
        """Make the next waiting block of a slot resident on an SM (whose progress is booked up to now)."""
        self.waiting[slot] -= 1
        if self.evicted[slot] > 0:
            self.evicted[slot] -= 1
            work = self.saved[slot].pop()
        else:
            work = self.take_piece(slot, sm)
            if self.first_start[slot] < 0.0 or self.first_start[slot] == self.now:
                work += self.share_ramp(slot, sm)
        if self.count[sm] == 0:
            self.carveout[sm] = self.wanted_carveout[slot]
        j = sm * self.width + self.count[sm]
        self.work[j] = work
        self.owner[j] = slot
        self.count[sm] += 1
        for r in range(RESOURCES):
            self.used[sm * RESOURCES + r] += self.need[slot * RESOURCES + r]
        mix = self.after_add[self.mix[sm] * self.slots + slot]
        if mix < self.first_valid[slot]:
            mix = self.neighbour(self.mix[sm], slot, 1)
        self.mix[sm] = mix
        i = slot * self.sms + sm
        self.here[i] += 1
        if self.start_here[i] < 0.0:
            self.start_here[i] = self.now
        if self.first_start[slot] < 0.0:
            self.first_start[slot] = self.now
        self.resident[slot] += 1
        self.residents += 1
        self.tensor_blocks[self.domain[sm]] += self.on_tensor_cores[slot]
        if self.waiting[slot] == 0:
            self.dispatched_at[slot] = self.now
            self.reopen = True

    def drop(self, sm: int, j: int) -> None:
        """Take the block at position ``j`` off an SM, whose residents get their rates anew (`project`)."""
        slot = self.owner[j]
        last = sm * self.width + self.count[sm] - 1
        for i in range(j, last):
            self.work[i] = self.work[i + 1]
            self.owner[i] = self.owner[i + 1]
        self.count[sm] -= 1
        for r in range(RESOURCES):
            self.used[sm * RESOURCES + r] -= self.need[slot * RESOURCES + r]
        mix = self.after_drop[self.mix[sm] * self.slots + slot]
        if mix < 0:
            mix = self.neighbour(self.mix[sm], slot, -1)
        self.mix[sm] = mix
        self.here[slot * self.sms + sm] -= 1
        self.resident[slot] -= 1
        self.residents -= 1
        self.tensor_blocks[self.domain[sm]] -= self.on_tensor_cores[slot]

    def complete(self, sm: int) -> None:
        """End the blocks of an SM that are due, and refill it if any left it."""
        self.charge(sm)
        before = self.mix[sm]
        clocks = self.domain[sm] * self.slots
        base = sm * self.width
        j = base + self.count[sm] - 1
        while j >= base:
            slot = self.owner[j]
            if self.work[j] <= FINISHED + self.rate[j] * (self.virtual[clocks + slot] + self.now) * ROUNDING:
                i = slot * self.sms + sm
                self.pieces_ran[i] += 1
                if self.pieces[slot] > 1 and self.next_piece[slot] < self.all_pieces[slot]:
                    self.work[j] = self.take_piece(slot, sm)
                else:
                    self.ran[i] += 1
                    self.end_here[i] = self.now
                    self.drop(sm, j)
                    self.unfinished[slot] -= 1
                    if self.unfinished[slot] == 0:
                        self.done.append(slot)
                        self.retire(slot)
            j -= 1
        if self.mix[sm] != before:
            self.refill(sm)
        self.project(sm)
        if self.mix[sm] == before:
            self.stable += 1
        else:
            self.stable = 0
            self.watch(self.domain[sm])

    def refill(self, sm: int) -> None:
        """Have the launches that may place blocks fill the room that some left on an SM."""
        for i in range(self.open_count):
            slot = self.open[i]
            if self.together[slot] > 1:
                if self.fits(slot, sm) and self.fits_cluster(slot, self.gpc[sm]):
                    self.reopen = True  # the cluster starts before what comes after it in line
                    break
                continue
            while self.waiting[slot] > 0 and self.fits(slot, sm):
                self.start(slot, sm)

    def retire(self, slot: int) -> None:
        """Take a slot whose launch has ended out of those that are active."""
        kept = 0
        for i in range(self.active_count):
            if self.active[i] != slot:
                self.active[kept] = self.active[i]
                kept += 1
        self.active_count = kept

    # ---- all SMs --------------------------------------------------------------------------------------------------

    def open_heads(self) -> None:
        """Find the launches that may place blocks: of each queue in line the first with blocks waiting."""
        self.open_count = 0
        for i in range(self.order_length):
            if self.waiting[self.dispatch_order[i]] == 0:
                continue
            first = True
            for h in range(i):
                if self.order_queue[h] == self.order_queue[i] and self.waiting[self.dispatch_order[h]] > 0:
                    first = False
            if first:
                self.open[self.open_count] = self.dispatch_order[i]
                self.open_count += 1

    def place_everywhere(self, slot: int) -> None:
        """Most-room placement: each block goes to the SM with room for most of its kind, ties in device order."""
        if self.together[slot] > 1:
            self.place_clusters(slot)
            return
        top = 0
        for sm in range(self.sms):
            self.room[sm] = self.room_for(slot, sm) if self.fits(slot, sm) else 0
            if self.room[sm] > top:
                top = self.room[sm]
        while top > 0 and self.waiting[slot] > 0:
            for i in range(self.sms):
                sm = self.sm_order[i]
                if self.room[sm] == top and self.waiting[slot] > 0:
                    self.start_anew(slot, sm)
                    self.room[sm] = top - 1 if self.fits(slot, sm) else 0
            top -= 1

    def place_clusters(self, slot: int) -> None:
        """Start clusters in rounds, one on each GPC that has room for all of its blocks, an SM each."""
        found = 1
        while found > 0:
            found = 0
            for gpc in range(self.gpc_count):
                if not self.fits_cluster(slot, gpc):
                    continue
                left = self.together[slot]
                for i in range(self.gpc_begin[gpc], self.gpc_begin[gpc + 1]):
                    sm = self.gpc_order[i]
                    if left > 0 and self.waiting[slot] > 0 and self.fits(slot, sm):
                        self.start_anew(slot, sm)
                        left -= 1
                        found = 1

    def fits_cluster(self, slot: int, gpc: int) -> bool:
        """Whether each of the next cluster's blocks fits on another SM of a GPC."""
        left = self.together[slot] if self.together[slot] < self.waiting[slot] else self.waiting[slot]
        if left == 0:
            return False
        end = self.gpc_begin[gpc + 1]
        for i in range(self.gpc_begin[gpc], end):
            if left > end - i:  # too few SMs are left
                return False
            if self.fits(slot, self.gpc_order[i]):
                left -= 1
                if left == 0:
                    return True
        return False

    def start_anew(self, slot: int, sm: int) -> None:
        """`start` on an SM whose residents get their rates only once all are placed (`settle`)."""
        if self.dirty[sm] == 0:
            self.charge(sm)
            self.dirty[sm] = 1
        self.start(slot, sm)

    def settle(self) -> None:
        """Give the SMs that were filled their rates, and every launch its slowdown where the memory load has moved."""
        for sm in range(self.sms):
            if self.dirty[sm] == 1:
                self.dirty[sm] = 0
                self.project(sm)
                self.stable = 0
        for d in range(self.domain_count):
            self.watch(d)
        if self.stale_rates:
            self.stale_rates = False
            for d in range(self.domain_count):
                self.update_slowdowns(d)

    def watch(self, domain: int) -> None:
        """Note when a domain's load has moved far enough to matter, its clock has, or what it serves no longer fits.

        That is more than it can; or, where its blocks were slowed for that, less of it than they might have.
        """
        served = self.served(domain)
        if (
            served > 1.0 + SLACK
            or (self.held_back[domain] > 0 and served < 1.0 - self.load_step)
            or (self.tensor_blocks[domain] > 0) != (self.tensor_seen[domain] > 0)
            or abs(self.dram_load[domain] - self.dram_seen[domain]) > self.load_step
            or abs(self.l2_load[domain] - self.l2_seen[domain]) > self.load_step
        ):
            self.stale_rates = True

    def add_up(self) -> None:
        """Add up what every domain's SMs ask for and do: what is kept as they change is off by its rounding."""
        for d in range(self.domain_count):
            self.dram_load[d] = 0.0
            self.l2_load[d] = 0.0
            for i in range(self.active_count):
                self.progress[d * self.slots + self.active[i]] = 0.0
        for sm in range(self.sms):
            d = self.domain[sm]
            mix = self.rated[sm]
            self.dram_load[d] += self.mix_dram[mix]
            self.l2_load[d] += self.mix_l2[mix]
            for p in range(self.first_part[mix], self.last_part[mix]):
                self.progress[d * self.slots + self.part_slot[p]] += self.part_progress[p]

    def update_slowdowns(self, domain: int) -> None:
        """Recompute the memory slowdown of every launch in a domain."""
        dram = self.dram_load[domain]
        l2 = self.l2_load[domain]
        self.dram_seen[domain] = dram
        self.l2_seen[domain] = l2
        self.tensor_seen[domain] = self.tensor_blocks[domain] > 0
        cycle = self.tensor_cycle if self.tensor_seen[domain] else 1.0
        clocks = domain * self.slots
        if self.slowdowns_of is None:
            dram = (dram if dram > 0.0 else 0.0) / self.capacity[domain]
            l2 = (l2 if l2 > 0.0 else 0.0) / self.capacity[domain]
            for i in range(self.active_count):
                slot = self.active[i]
                own_cycle = 1.0 if self.on_tensor_cores[slot] > 0 else cycle
                self.slowdown[clocks + slot] = memory_slowdown(dram, l2, self.own, own_cycle, slot * OWN)
        else:
            for slot, factor in self.slowdowns_of(domain, dram, l2, cycle).items():
                self.slowdown[clocks + slot] = factor
        served = self.served(domain)
        self.held_back[domain] = served > 1.0 + SLACK
        if self.held_back[domain] > 0:
            for i in range(self.active_count):
                self.slowdown[clocks + self.active[i]] *= served

    def served(self, domain: int) -> float:
        """What a domain serves of DRAM or L2 over what it can, whichever is more."""
        dram = 0.0
        l2 = 0.0
        for i in range(self.active_count):
            slot = self.active[i]
            progress = self.progress[domain * self.slots + slot] / self.slowdown[domain * self.slots + slot]
            dram += progress * self.dram_demand[slot]
            l2 += progress * self.l2_demand[slot]
        return (l2 if l2 > dram else dram) / self.capacity[domain]

    def skip(self, until: float) -> None:
        """Jump over a time in which every launch only replaces blocks by its own, leaving two waves of each, or none.

        The state after the jump is the state before it, later. That is exact in the mean: the launch that sets the
        length skips whole waves, the others carry what is left of a block to their next jump. Which SM runs the last
        few blocks may differ, so a launch that has not many waves to go is not jumped over: the jump ends before the
        first of its blocks does, and those just progress.
        """
        self.stable = 0
        length = until - self.now
        least_waves = 1
        for i in range(self.active_count):
            slot = self.active[i]
            self.throughput[slot] = 0.0
            self.jumped[slot] = 0
            for clock in range(slot, self.domain_count * self.slots, self.slots):
                self.throughput[slot] += self.progress[clock] / self.slowdown[clock]
            if self.resident[slot] == 0:
                continue
            spare = (self.waiting[slot] - 2 * self.resident[slot]) // self.resident[slot] * self.resident[slot]
            if spare >= SKIPPED_WAVES * self.resident[slot] and self.evicted[slot] == 0 and self.pieces[slot] == 1:
                self.jumped[slot] = 1
                if spare / self.throughput[slot] < length:
                    length = spare / self.throughput[slot]
            else:
                least_waves = SKIPPED_WAVES
                for clock in range(slot, self.domain_count * self.slots, self.slots):
                    left = (self.first_due[clock * self.nodes + 1] - self.virtual[clock]) * self.slowdown[clock]
                    if left < length:
                        length = left
        jumps = 0
        for i in range(self.active_count):
            slot = self.active[i]
            if self.jumped[slot] > 0:
                jumps += 1
                if length * self.throughput[slot] < least_waves * self.resident[slot]:
                    return
        if jumps == 0:
            return
        self.record_all()
        for i in range(self.active_count):
            slot = self.active[i]
            if self.jumped[slot] > 0:
                run = length * self.throughput[slot] + self.carried[slot]
                self.skip_blocks(slot, int(run + 1e-6), self.now + length)
                self.carried[slot] = run - int(run + 1e-6)
            else:
                for clock in range(slot, self.domain_count * self.slots, self.slots):
                    self.virtual[clock] += length / self.slowdown[clock]
        self.now += length
        for sm in range(self.sms):  # as if virtual time had passed while the blocks jumped over stayed as they are
            for p in range(self.first_part[self.rated[sm]], self.last_part[self.rated[sm]]):
                slot = self.part_slot[p]
                if self.jumped[slot] > 0:
                    clock = self.domain[sm] * self.slots + slot
                    self.recorded[slot * self.sms + sm] -= length / self.slowdown[clock]
        self.record_all()

    def skip_blocks(self, slot: int, blocks: int, end: float) -> None:
        """Count ``blocks`` of a slot as run by ``end``, shared among the SMs by their rates."""
        self.waiting[slot] -= blocks
        self.unfinished[slot] -= blocks
        self.next_piece[slot] += blocks
        share = 0.0
        given = 0
        for sm in range(self.sms):
            for p in range(self.first_part[self.rated[sm]], self.last_part[self.rated[sm]]):
                if self.part_slot[p] == slot:
                    clock = self.domain[sm] * self.slots + slot
                    share += self.part_progress[p] / self.slowdown[clock] / self.throughput[slot]
            total = int(share * blocks + 0.5)
            if total > given:
                self.ran[slot * self.sms + sm] += total - given
                self.pieces_ran[slot * self.sms + sm] += total - given
                self.end_here[slot * self.sms + sm] = end
            given = total  # in the end all: shares sum to 1 but for rounding
