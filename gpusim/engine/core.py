"""The SMs of a device and the blocks resident on them, advanced from one block's end to the next.

These files are plain Python. Where a C compiler is at hand the build joins and compiles them
(`gpusim.engine.compiled`), and they run a hundred times faster. The two give the same bits, which a test asserts.

The core knows resources, residents, rates and time; it knows no policy and no trace. The caller hands in a
function that gives the progress of every block of a mix of residents. It may also hand in the slowdown by the shared
memory system; the default is `gpusim.model.memory.memory_slowdown`. The core itself limits the service of a
memory domain: if its blocks demand more than it can serve, all of them slow down by the excess.

Parts: `launches` (the launch of each slot), `mixes` (rates of residents), `domains` (L2 and DRAM, virtual time),
`residents` (blocks on SMs), `placing` (the next block, and its SM). `skipping` jumps over waves, `bindings` books the
bounding resource of a launch, and `history` books use over time. They know the caller's time only by
`Residents.origin`.

The caller may restart the SMs' clock from 0 while the SMs are empty (`SMArray.restart_clock`). The events until they
are empty again are then the same to the last bit, whenever they happen. Reports of a launch are in the caller's time.

Vocabulary: a *slot* is the number under which a kernel launch is known here while it is active; a *mix* is how many
blocks of each slot are resident on one SM; a block's *work* is 1 (times its jitter), or blocks share
the *tiles* of their launch; its *rate* is work per microsecond of its slot's virtual time; a *domain* is a set of SMs
that share one L2 and DRAM (all of them, except under MIG); a *clock* is the number of a domain and a slot.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusim.engine.bindings import Bindings, PartsOfTime
from gpusim.engine.domains import Domains, Slowdowns
from gpusim.engine.history import BINS
from gpusim.engine.launches import Launches
from gpusim.engine.mixes import Mix, Mixes, MostBeside, Resolve
from gpusim.engine.placing import Placing
from gpusim.engine.residents import Residents
from gpusim.engine.skipping import Skipping
from gpusim.engine.tables import _NEVER

if TYPE_CHECKING:
    from gpusim.model.kernel import KernelModel


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
        order: Sequence[int],
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
        self.slots = slots
        self.launches = Launches(sms, slots, block_slots)
        self.mixes = Mixes(slots, resolve, most_beside)
        self.domains = Domains(self.launches, domains, capacity, slowdowns, tensor_cycle, load_step)
        self.residents = Residents(sms, block_slots, limits, self.launches, self.mixes, self.domains, bins)
        self.placing = Placing(self.residents, self.launches, order, gpcs or [0] * sms)
        self.skipping = Skipping(self.residents)
        self.bindings = Bindings(self.launches, self.mixes, self.domains)
        self.history = self.residents.history
        self.next_clock = 0
        self.stable = 0  # blocks in a row that one of their own launch replaced
        self.done: list[int] = []  # slots of launches that have ended, to be told
        self.forget_mixes()

    @property
    def now(self) -> float:
        """Time of the SMs' clock."""
        return self.residents.now

    @now.setter
    def now(self, value: float) -> None:
        self.residents.now = value

    @property
    def origin(self) -> float:
        """Time of the caller at which the clock showed 0."""
        return self.residents.origin

    # ---- what the engine tells -----------------------------------------------------------------------------------

    def submit(self, slot: int, model: KernelModel, code_lost: float = 0.0) -> None:
        """Make a launch known under a slot: its blocks wait until its caps and place in line let them in."""
        self.launches.submit(slot, model, code_lost)
        for d in range(self.domains.count):
            self.domains.virtual[d * self.slots + slot] = 0.0
        self.domains.stale = True
        self.residents.add_up()

    def forget_mixes(self) -> None:
        """Drop all remembered mixes but those on the SMs now: needed when their rates are others."""
        self.residents.forget_mixes()
        self.bindings.forget()

    def forget_slot(self, slot: int) -> None:
        """Drop the remembered mixes with a slot that no SM holds: needed when it gets another kernel."""
        self.mixes.forget_slot(slot)
        self.bindings.largest_is[slot] = -1

    def set_slowdowns(self, slowdowns: Slowdowns | None) -> None:
        """Give another function for ``slowdowns``, or None; it is asked from the next change on."""
        self.domains.slowdowns_of = slowdowns

    def set_caps(self, slot: int, caps: list[int]) -> None:
        """Most resident blocks of a slot on each SM; residents above a lowered cap run to their end.

        Where no GPC has as many SMs that may hold any as its cluster has blocks, each of its blocks starts by itself.
        """
        self.placing.set_caps(slot, caps)

    def set_tenant(self, slot: int, tenant: int) -> None:
        """Let blocks of a slot share an SM only with blocks of the same tenant; -1 removes the restriction.

        An SM that holds blocks of another tenant takes none until these have ended.
        """
        self.launches.tenant[slot] = tenant

    def set_dispatch_order(self, slots: list[int], queues: list[int]) -> None:
        """Set the order of placement; of each queue only the first launch with waiting blocks may place any."""
        self.placing.set_line(slots, queues)

    def evict(self, slot: int, sm: int, blocks: int, extra_work: float, restart: bool = False) -> None:
        """Evict the youngest blocks of a slot from an SM; each waits again, with what it had left plus ``extra_work``.

        With ``restart`` what it had done is lost: it has a mean tile of work to do, all of an ordinary block's.
        """
        self.residents.evict(slot, sm, blocks, extra_work, restart)
        self.launches.placed_all = True

    def note_residents(self) -> None:
        """From now on note the residents of each SM whenever they change, for `take_noted`."""
        self.residents.noting = True

    def restart_clock(self, origin: float) -> None:
        """Restart the clock at 0 while no SM holds a block; ``origin`` is that instant in the time of the caller."""
        self.residents.restart_clock(origin)
        self.bindings.booked_at = 0.0

    def forget_uses(self) -> None:
        """Empty the usage history."""
        self.history.clear()

    def in_one_bin(self, start: float, end: float) -> bool:
        """Whether one bin of the usage history, widened to hold ``end``, has all between two times of the caller."""
        return self.history.in_one_bin(start, end)

    def add_uses(self, at: float, uses: array[float]) -> None:
        """Add to the bin that has a time of the caller what was used there, as `uses` gives it."""
        self.history.add(at, uses)

    def dispatch(self) -> None:
        """Place all that may be placed now."""
        self.placing.place_all()
        self.settle()

    # ---- what the engine asks -----------------------------------------------------------------------------------

    def advance(self, until: float) -> int:
        """Run to the end of the next launch that ends by ``until`` and give its slot, else to ``until`` and give -1."""
        residents, domains = self.residents, self.domains
        if self.done:
            return self.done.pop(0)
        while True:
            due = self.next_due()
            if due > until or due >= _NEVER:
                if until < _NEVER and until > residents.now:
                    residents.pass_time(until)
                return -1
            residents.pass_time(due)
            clock = self.next_clock
            due = residents.ends.first(clock)
            passed = domains.virtual[clock]
            domains.virtual[clock] = due if due > passed else passed  # but for rounding they are equal
            self.complete(residents.ends.first_sm(clock))
            if self.launches.placed_all:
                self.dispatch()
            if domains.stale:
                self.settle()
            if self.done:
                return self.done.pop(0)
            if self.stable > 2 * residents.blocks:
                self.skip(until)

    def next_due(self) -> float:
        """When the next block ends, if nothing changes before; of equals that on the first SM."""
        domains, ends = self.domains, self.residents.ends
        first = _NEVER
        for i in range(self.launches.active_count):
            for d in range(domains.count):
                clock = d * self.slots + self.launches.active[i]
                due = ends.first(clock)
                if due >= _NEVER:
                    continue
                left = due - domains.virtual[clock]
                due = self.residents.now + (left if left > 0.0 else 0.0) * domains.slowdown[clock]
                if due < first or (due == first and ends.first_sm(clock) < ends.first_sm(self.next_clock)):
                    first = due
                    self.next_clock = clock
        return first

    def complete(self, sm: int) -> None:
        """End the blocks of an SM that are due, and refill it if any left it."""
        self.residents.charge(sm)
        before = self.residents.mix[sm]
        self.residents.end_due(sm, self.done)
        if self.residents.mix[sm] != before:
            self.placing.refill(sm)
        self.residents.project(sm)
        if self.residents.mix[sm] == before:
            self.stable += 1
        else:
            self.stable = 0
            self.domains.watch(self.domains.of_sm[sm])

    def settle(self) -> None:
        """Give the SMs that were filled their rates, and every launch its slowdown where the memory load has moved."""
        if self.placing.settle():
            self.stable = 0
        for d in range(self.domains.count):
            self.domains.watch(d)
        self.domains.update()

    def skip(self, until: float) -> None:
        """Jump over a time in which every launch only replaces blocks by its own, where that is long enough."""
        self.stable = 0
        self.skipping.skip(until)

    def mix_count(self) -> int:
        """Number of mixes in the tables, including those dropped."""
        return len(self.mixes.mixes)

    def waiting_blocks(self, slot: int) -> int:
        """Blocks of a launch not yet placed."""
        return self.launches.waiting[slot]

    def resident_blocks(self, slot: int) -> int:
        """Blocks of a launch resident on all SMs."""
        return self.launches.resident[slot]

    def unfinished_blocks(self, slot: int) -> int:
        """Blocks of a launch waiting or resident."""
        return self.launches.unfinished[slot]

    def started_at(self, slot: int) -> float:
        """When the first block was placed; -1 before that."""
        start = self.launches.first_start[slot]
        return self.residents.origin + start if start >= 0.0 else -1.0

    def dispatched(self, slot: int) -> float:
        """When the last block was placed; -1 before that."""
        at = self.launches.dispatched_at[slot]
        return self.residents.origin + at if at >= 0.0 else -1.0

    def residents_by_sm(self, slot: int) -> list[int]:
        """Resident blocks of a launch on each SM."""
        return [self.launches.here[slot * self.sms + sm] for sm in range(self.sms)]

    def fullest_sm(self, slot: int) -> int:
        """The SM that holds most blocks of a launch, the first of several; -1 where none holds any."""
        return self.launches.fullest_sm(slot)

    def work_left_by_sm(self, slot: int) -> list[float]:
        """Most work (blocks) that a resident of a launch has left, of its tile, on each SM; 0 where none is."""
        residents = self.residents
        left = [0.0] * self.sms
        for sm in range(self.sms):
            for j in range(sm * residents.width, sm * residents.width + residents.count[sm]):
                if residents.owner[j] == slot:
                    left[sm] = max(left[sm], residents.work_left(sm, j))
        return left

    def work_done_by_sm(self, slot: int) -> list[float]:
        """Work (blocks) of a launch done on each SM: the tiles that ended there, and what its residents have done."""
        residents = self.residents
        tile = self.launches.tile_work[slot]
        done = [tile * self.launches.tiles_ran[slot * self.sms + sm] for sm in range(self.sms)]
        for sm in range(self.sms):
            for j in range(sm * residents.width, sm * residents.width + residents.count[sm]):
                if residents.owner[j] == slot:
                    done[sm] += tile - residents.work_left(sm, j)
        return done

    def mix_of(self, sm: int) -> Mix:
        """Residents of one SM by slot."""
        mix: Mix = self.mixes.mixes[self.residents.mix[sm]]
        return mix

    def domain_at(self, sm: int) -> int:
        """Memory domain of one SM."""
        return self.domains.of_sm[sm]

    def load_at(self, sm: int) -> tuple[float, float]:
        """DRAM and L2 load of the memory domain that one SM is in."""
        domain = self.domains.of_sm[sm]
        return self.domains.dram_load[domain], self.domains.l2_load[domain]

    def delay(self, us: float) -> None:
        """Let running blocks end later, by the share of some time for which they wait for data."""
        self.domains.delay(us)

    def launch_wait(self, sm: int) -> float:
        """Delay of a launch of a CUDA graph by the present traffic of the memory domain of an SM, us."""
        return self.domains.launch_wait(self.domains.of_sm[sm])

    def free(self, sm: int) -> tuple[int, int, int, int]:
        """Registers, shared memory bytes, warps and block slots that nobody holds on one SM."""
        residents = self.residents
        registers, shared, warps, slots = (residents.used[sm * 4 + r] for r in range(4))
        limit = residents.limit
        set_to = residents.carveout[sm] if residents.count[sm] > 0 else limit[1]
        return limit[0] - registers, set_to - shared, limit[2] - warps, limit[3] - slots

    def span_columns(self, slot: int) -> tuple[array[int], array[int], array[float], array[float]]:
        """The columns of `spans`: SMs, blocks run, first starts, last ends."""
        return self.launches.span_columns(slot, self.residents.origin)

    def spans(self, slot: int) -> list[tuple[int, int, float, float]]:
        """(SM, blocks run, first start, last end) for each SM that ran blocks of a launch."""
        return list(zip(*self.span_columns(slot), strict=True))

    def take_noted(self) -> list[tuple[float, int, Mix]]:
        """Changes of residents since the last call, by time: when (us), on which SM, and what it held from then on."""
        noted, self.residents.noted = self.residents.noted, []
        return noted

    def usage(self) -> tuple[float, array[float]]:
        """Bin width (us), and the resource use of each SM in each bin, integrated over time (unit x us)."""
        self.residents.record_all()
        return self.history.width, self.history.copy()

    def uses(self) -> array[float]:
        """Resource use of each SM, integrated over all time (unit x us)."""
        self.residents.record_all()
        return self.history.totals()

    def block_time(self) -> float:
        """Resident blocks of all SMs integrated over time (block x us)."""
        self.residents.record_all()
        return self.history.block_time()

    def look(self, time_parts: PartsOfTime) -> None:
        """Begin an interval: find what bounds each launch by the mix on the SM that holds most of it, and its memory.

        While no SM holds any of it the mix is empty, and the memory that of the first SM.

        Args:
            time_parts: gives what the time of a slot's launch is made of in a mix, or alone where that is empty.
        """
        for i in range(self.launches.active_count):
            slot = self.launches.active[i]
            sm = self.launches.fullest_sm(slot)
            number = self.residents.rated[sm] if sm >= 0 else -1
            self.bindings.look(slot, number, self.domains.of_sm[sm if sm >= 0 else 0], time_parts)

    def book(self) -> None:
        """Book the time since the last booking to what bound each launch when the interval began."""
        self.bindings.book(self.residents.now)

    def most_bound_by(self, slot: int) -> str:
        """Resource that bound an ended launch for the longest time, or latency; its times are dropped."""
        return self.bindings.most(slot)
