"""Memory domains: sets of SMs that share one L2 and DRAM, their loads, and how much they slow each launch.

Every launch has a clock of its own in each domain, its *virtual time*, which runs slower than the SMs' by as much as
the domain slows the launch. A change of the slowdowns concerns the clocks, and no SM.
"""

from __future__ import annotations

from collections.abc import Callable

from gpusim.engine.launches import OWN, WAIT, Launches
from gpusim.engine.tables import reals, zeros
from gpusim.model.clock import power_cycle
from gpusim.model.memory import MemoryWait, dram_queue, launch_wait_us, memory_slowdown, wait_slowdown

Slowdowns = Callable[[int, float, float, float, float], dict[int, float]]
SLACK = 1e-9  # relative, of what a domain can serve: rounding is no excess
STAYS_BUSY = 0.98  # of what DRAM serves without `dram_queue`: the queue grows no further where it would serve less [D]
QUEUE_HALVINGS = 6  # of the longest queue, after which its length no longer matters
UNDER_WAY = MemoryWait._fields.index("under_way")


class Domains:
    """Tables with an entry for each domain, or for each *clock*: a domain and a slot.

    ``of_sm`` is the domain of each SM; other arguments are as of `gpusim.engine.core.SMArray`.
    """

    def __init__(
        self,
        launches: Launches,
        of_sm: list[int],
        capacity: list[float],
        slowdowns: Slowdowns | None,
        tensor_cycle: float,
        load_step: float,
    ) -> None:
        self.launches = launches
        self.slots = self.launches.slots
        self.count = count = len(capacity)
        self.of_sm = zeros(len(of_sm))
        for sm, domain in enumerate(of_sm):
            self.of_sm[sm] = domain
        self.capacity = reals(count)
        for domain, share in enumerate(capacity):
            self.capacity[domain] = share
        self.slowdowns_of = slowdowns
        self.tensor_cycle = tensor_cycle
        self.load_step = load_step
        self.dram_load = reals(count)
        self.l2_load = reals(count)
        self.dram_seen = reals(count)  # when slowdowns were last worked out
        self.l2_seen = reals(count)
        self.held_back = zeros(count)  # whether its blocks were slowed as it would have served too much
        self.tensor_blocks = zeros(count)  # resident blocks that compute on tensor cores
        self.tensor_seen = zeros(count)  # whether there were any
        self.power_seen = 0.0  # when slowdowns were last worked out
        self.power_cycle = 1.0  # of the SMs under the power limit, over that without one
        self.virtual = reals(count * self.slots)
        self.slowdown = reals(count * self.slots, 1.0)  # how much slower virtual time runs
        self.progress = reals(count * self.slots)  # work per microsecond of virtual time, of all blocks in the domain
        self.dram_served = 0.0  # what a domain serves, when it was last worked out
        self.l2_served = 0.0
        self.beside = reals(self.slots)  # how much others slow each active launch, while that is worked out
        self.stale = False  # some slowdown is to be worked out anew

    def forget_loads(self) -> None:
        """Reset the loads of all domains to zero before they are summed again."""
        for d in range(self.count):
            self.dram_load[d] = 0.0
            self.l2_load[d] = 0.0
            for i in range(self.launches.active_count):
                self.progress[d * self.slots + self.launches.active[i]] = 0.0

    def pass_time(self, passed: float) -> None:
        """Advance every launch's virtual time by the time that passed over its slowdown."""
        for i in range(self.launches.active_count):
            for d in range(self.count):
                clock = d * self.slots + self.launches.active[i]
                self.virtual[clock] += passed / self.slowdown[clock]

    def delay(self, us: float) -> None:
        """Let running blocks end later, by the share of some time for which they wait for data."""
        launches = self.launches
        for i in range(launches.active_count):
            slot = launches.active[i]
            waiting = launches.wait[slot * WAIT]
            for clock in range(slot, self.count * self.slots, self.slots):
                self.virtual[clock] -= us * waiting / self.slowdown[clock]

    def watch(self, domain: int) -> None:
        """Note when a domain's load has moved far enough to matter, its clock has, or what it serves no longer fits.

        That is more than it can; or, where its blocks were slowed for that, less of it than they might have.
        """
        served = self.served(domain)
        if (
            served > 1.0 + SLACK
            or (self.held_back[domain] > 0 and served < 1.0 - self.load_step)
            or (self.tensor_blocks[domain] > 0) != (self.tensor_seen[domain] > 0)
            or abs(self.power() - self.power_seen) > self.load_step
            or abs(self.dram_load[domain] - self.dram_seen[domain]) > self.load_step
            or abs(self.l2_load[domain] - self.l2_seen[domain]) > self.load_step
        ):
            self.stale = True

    def update(self) -> None:
        """Recompute the slowdown of every launch in every domain, where any is stale."""
        if self.stale:
            self.stale = False
            self.power_seen = self.power()
            self.power_cycle = power_cycle(self.power_seen)
            for d in range(self.count):
                self.update_domain(d)

    def power(self) -> float:
        """Power that all blocks would draw at the full clock, over the limit; 0 where no launch is held back by it."""
        launches = self.launches
        total = 0.0
        held = 1.0
        for i in range(launches.active_count):
            slot = launches.active[i]
            if launches.resident[slot] > 0:
                total += launches.resident[slot] * launches.block_power[slot]
                held = launches.held_clock[slot] if launches.held_clock[slot] < held else held
        return total if held < 1.0 else 0.0

    def cycle_of(self, slot: int, domain: int) -> float:
        """Cycle of the SMs of a domain over that in a launch's recording."""
        if self.launches.on_tensor_cores[slot] > 0:
            return self.launches.held_clock[slot] * self.power_cycle
        return self.tensor_cycle * self.power_cycle if self.tensor_seen[domain] > 0 else self.power_cycle

    def update_domain(self, domain: int) -> None:
        """Recompute the slowdown of every launch in a domain."""
        launches = self.launches
        dram = self.dram_load[domain]
        l2 = self.l2_load[domain]
        self.dram_seen[domain] = dram
        self.l2_seen[domain] = l2
        self.tensor_seen[domain] = self.tensor_blocks[domain] > 0
        tensor_cycle = self.tensor_cycle if self.tensor_seen[domain] > 0 else 1.0
        clocks = domain * self.slots
        if self.slowdowns_of is None:
            dram = (dram if dram > 0.0 else 0.0) / self.capacity[domain]
            l2 = (l2 if l2 > 0.0 else 0.0) / self.capacity[domain]
            for i in range(launches.active_count):
                slot = launches.active[i]
                own_cycle = self.cycle_of(slot, domain)
                self.slowdown[clocks + slot] = memory_slowdown(dram, l2, launches.own, own_cycle, slot * OWN)
        else:
            for slot, factor in self.slowdowns_of(domain, dram, l2, tensor_cycle, self.power_cycle).items():
                self.slowdown[clocks + slot] = factor
        for i in range(launches.active_count):
            self.slowdown[clocks + launches.active[i]] *= self.start_queue(domain, launches.active[i])
        self.look_at_others(domain)
        served = self.served(domain)
        self.held_back[domain] = served > 1.0 + SLACK
        for i in range(launches.active_count):
            if self.held_back[domain] > 0:
                self.slowdown[clocks + launches.active[i]] *= served
            if self.beside[i] > self.slowdown[clocks + launches.active[i]]:
                self.slowdown[clocks + launches.active[i]] = self.beside[i]

    def look_at_others(self, domain: int) -> None:
        """Slowdown of each launch in a domain by reads that take longer beside others, or after other code.

        What is under way to a full DRAM makes reads wait. Kernels that wait ask for less: the queue is as long as it
        can be with DRAM as busy.
        """
        launches = self.launches
        for i in range(launches.active_count):
            self.beside[i] = 0.0
        if launches.active_count == 0:
            return
        if launches.active_count == 1 and launches.code_lost[launches.active[0]] == 0.0:
            return
        self.served(domain)
        self.wait_beside(domain, 0.0)
        if launches.active_count == 1:
            return
        longest = dram_queue(self.dram_served if self.dram_served < 1.0 else 1.0, self.under_way(domain))
        if longest <= 0.0:
            return
        least = STAYS_BUSY * self.served_beside(domain)
        self.wait_beside(domain, longest)
        if self.served_beside(domain) >= least:
            return
        low = 0.0
        for _ in range(QUEUE_HALVINGS):
            middle = (low + longest) / 2.0
            self.wait_beside(domain, middle)
            if self.served_beside(domain) < least:
                longest = middle
            else:
                low = middle
        self.wait_beside(domain, low)

    def wait_beside(self, domain: int, queue: float) -> None:
        """Slowdown of each launch in a domain beside the others, with some `dram_queue`."""
        launches = self.launches
        dram = self.dram_served
        l2 = self.l2_served
        most_dram = dram if dram > 1.0 else 1.0
        most_l2 = l2 if l2 > 1.0 else 1.0
        for i in range(launches.active_count):
            slot = launches.active[i]
            clock = domain * self.slots + slot
            progress = self.progress[clock] / self.slowdown[clock] / self.capacity[domain]
            own_dram = progress * launches.dram_demand[slot]
            longer = wait_slowdown(
                (dram - own_dram) / most_dram,
                (l2 - progress * launches.l2_demand[slot]) / most_l2,
                own_dram / most_dram,
                launches.wait,
                launches.code_lost[slot],
                slot * WAIT,
                queue,
            )
            self.beside[i] = 0.0
            if longer > 1.0:
                work = self.progress[clock] / self.capacity[domain]
                own_cycle = self.cycle_of(slot, domain)
                dram_load = work * launches.dram_each[slot]
                l2_load = work * launches.l2_each[slot]
                self.beside[i] = longer * memory_slowdown(dram_load, l2_load, launches.own, own_cycle, slot * OWN)

    def under_way(self, domain: int) -> float:
        """Time that the DRAM of a domain needs for what kernels have under way, as far as it binds them."""
        launches = self.launches
        total = 0.0
        for i in range(launches.active_count):
            slot = launches.active[i]
            every = 0.0
            for d in range(self.count):
                every += self.progress[d * self.slots + slot]
            if every > 0.0:
                here = self.progress[domain * self.slots + slot]
                load = here * launches.dram_each[slot] / self.capacity[domain]
                blocks = launches.resident[slot] * here / every
                total += blocks * (load if load < 1.0 else 1.0) * launches.wait[slot * WAIT + UNDER_WAY]
        return total / self.capacity[domain]

    def served_beside(self, domain: int) -> float:
        """Service of the DRAM of a domain with launches as slow as they are beside the others."""
        dram = 0.0
        for i in range(self.launches.active_count):
            clock = domain * self.slots + self.launches.active[i]
            slowed = self.slowdown[clock]
            slowed = self.beside[i] if self.beside[i] > slowed else slowed
            dram += self.progress[clock] / slowed * self.launches.dram_demand[self.launches.active[i]]
        return dram

    def start_queue(self, domain: int, slot: int) -> float:
        """How many times as fast as blocks can start those of a launch would end; 1 where they can."""
        launches = self.launches
        each = launches.start_us[slot]
        if launches.sms_used[slot] > 0 and launches.sm_start_us[slot] > each * launches.sms_used[slot]:
            each = launches.sm_start_us[slot] / launches.sms_used[slot]
        clock = domain * self.slots + slot
        queue = self.progress[clock] / self.slowdown[clock] * each
        return queue if queue > 1.0 else 1.0

    def served(self, domain: int) -> float:
        """Service of DRAM and of L2 relative to the capacity of the domain, noted; returns the larger."""
        dram = 0.0
        l2 = 0.0
        for i in range(self.launches.active_count):
            slot = self.launches.active[i]
            done = self.progress[domain * self.slots + slot] / self.slowdown[domain * self.slots + slot]
            dram += done * self.launches.dram_demand[slot]
            l2 += done * self.launches.l2_demand[slot]
        self.dram_served = dram / self.capacity[domain]
        self.l2_served = l2 / self.capacity[domain]
        return self.l2_served if self.l2_served > self.dram_served else self.dram_served

    def launch_wait(self, domain: int) -> float:
        """Delay of a launch of a CUDA graph by the present traffic of a domain, us."""
        self.served(domain)
        dram = self.dram_served if self.dram_served < 1.0 else 1.0
        l2 = self.l2_served if self.l2_served < 1.0 else 1.0
        return launch_wait_us(dram, l2, dram_queue(dram, self.under_way(domain)))

    def throughput(self, slot: int) -> float:
        """Work of a launch per microsecond, of all its blocks."""
        total = 0.0
        for clock in range(slot, self.count * self.slots, self.slots):
            total += self.progress[clock] / self.slowdown[clock]
        return total
