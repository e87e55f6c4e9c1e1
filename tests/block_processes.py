"""The SMs once more, as simple as can be: one simpy process a thread block. Slow, and right by looking at it.

`SlowSMs` takes the place of `gpusim.engine.core.SMArray` and follows the same rules: most-room placement, the head
of each queue before the rest, clusters, carve-outs, caps, tenants, shares by age, tiles of work, and a memory slowdown
that is worked out anew when the load has moved by a step or a domain would serve more than it can. It skips nothing and
groups nothing: every block ends by itself, and a block that may go anywhere is placed by looking at every SM. Kernels
are to be anchored before, on the fast core.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import fsum
from typing import Any
from unittest.mock import patch

import simpy

from gpusim.engine import sm_array
from gpusim.engine.history import BINS
from gpusim.engine.launches import jitter_factor
from gpusim.model.clock import power_cycle
from gpusim.model.contention import TimeParts
from gpusim.model.memory import memory_slowdown, memory_that_binds

AFTER_ENDS = 2  # simpy priority: an SM is refilled when all blocks that end on it at an instant have ended
FINISHED = 1e-9
USES = 7

Mix = tuple[tuple[int, int], ...]


@dataclass(eq=False)
class Block:
    """A resident block: work left when it was last looked at, and the process that waits for its end."""

    slot: int
    work: float
    since: float
    rate: float = 0.0
    process: simpy.Process | None = None


@dataclass(eq=False)
class SM:
    """Residents, oldest first, what they hold, their memory load, and the shared memory it is set to for them."""

    number: int
    domain: int
    blocks: list[Block] = field(default_factory=list)
    used: list[int] = field(default_factory=lambda: [0] * 4)
    load: tuple[float, float] = (0.0, 0.0)
    carveout: int = 0
    emptied_at: float = -1.0  # when the last resident left
    refilling: bool = False


@dataclass(eq=False)
class Launch:
    """A launch: its model, and what became of its blocks."""

    model: Any
    caps: list[int]
    waiting: int
    tenant: int = -1
    next_block: int = 0
    next_tile: int = 0
    gated: bool = False
    tiles_ran: dict[int, int] = field(default_factory=dict)
    resident: int = 0
    ended: int = 0
    saved: list[float] = field(default_factory=list)
    first_start: float = -1.0
    dispatched_at: float = -1.0
    spans: dict[int, tuple[int, float, float]] = field(default_factory=dict)
    bound_by: str | None = None
    bound_us: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))


class SlowSMs:
    """Arguments and methods as those of `gpusim.engine.core.SMArray`; it keeps no history of use."""

    def __init__(
        self,
        sms: int,
        block_slots: int,
        slots: int,
        limits: tuple[int, int, int, int],
        order: list[int],
        domains: list[int],
        capacity: list[float],
        resolve: Callable[[Mix], tuple[list[list[float]], float, float]],
        most_beside: Callable[[Mix, int], int],
        slowdowns: Callable[[int, float, float, float], dict[int, float]] | None,
        tensor_cycle: float,
        load_step: float,
        bins: int = BINS,
        gpcs: Sequence[int] = (),
    ) -> None:
        self.env = simpy.Environment()
        self.origin = self.booked_at = 0.0
        self.bins = bins
        self.limits = limits
        self.order = order
        self.gpcs = gpcs or [0] * sms
        self.resolve = resolve
        self.most_beside = most_beside
        self.slowdowns_of = slowdowns
        self.tensor_cycle = tensor_cycle
        self.load_step = load_step
        self.sms = [SM(number, domain) for number, domain in enumerate(domains)]
        self.launches: dict[int, Launch] = {}
        self.line: list[tuple[int, int]] = []
        self.capacity = capacity
        self.loads = [(0.0, 0.0)] * len(capacity)  # when the slowdown was last worked out
        self.cycles = [1.0] * len(capacity)  # of the SMs, then
        self.power = 0.0  # that all blocks would draw at the full clock, then
        self.factors: list[dict[int, float]] = [{} for _ in capacity]
        self.held_back = [False] * len(capacity)  # for asking for more than there is
        self.stale_rates = False
        self.ungated = False  # blocks that waited for all others of their launch may start
        self.done: list[int] = []
        self.resolved: dict[Mix, tuple[list[list[float]], float, float]] = {}

    # ---- what the engine tells

    def submit(self, slot: int, model: Any, code_lost: float = 0.0) -> None:
        assert code_lost == 0.0, "kernels without counters wait for no code"
        self.launches[slot] = Launch(model, [0] * len(self.sms), model.blocks, next_tile=model.blocks)
        self.stale_rates = True

    def delay(self, us: float) -> None:
        for block in (block for sm in self.sms for block in sm.blocks):
            self._charge(block)
            block.work += block.rate * us * self.launches[block.slot].model.wait.share
            if block.process is not None:
                block.process.interrupt("delay")

    def launch_wait(self, sm: int) -> float:
        assert self.sms[sm].load == (0.0, 0.0), "kernels without counters load no memory"
        return 0.0

    def set_slowdowns(self, slowdowns: Callable[[int, float, float, float], dict[int, float]] | None) -> None:
        self.slowdowns_of = slowdowns

    def set_caps(self, slot: int, caps: list[int]) -> None:
        self.launches[slot].caps = list(caps)

    def set_tenant(self, slot: int, tenant: int) -> None:
        self.launches[slot].tenant = tenant

    def set_dispatch_order(self, slots: list[int], queues: list[int]) -> None:
        self.line = list(zip(slots, queues, strict=True))

    def forget_mixes(self) -> None:
        self.resolved.clear()
        self.stale_rates = True

    def forget_slot(self, slot: int) -> None:
        self.resolved.clear()

    def mix_count(self) -> int:
        return len(self.resolved)

    def evict(self, slot: int, sm: int, blocks: int, extra_work: float, restart: bool = False) -> None:
        launch, here = self.launches[slot], self.sms[sm]
        for block in [b for b in reversed(here.blocks) if b.slot == slot][:blocks]:
            self._charge(block)
            launch.saved.append((launch.model.blocks / launch.model.tiles if restart else block.work) + extra_work)
            launch.waiting += 1
            self._remove(here, block)
            assert block.process is not None
            block.process.interrupt("evicted")

    def restart_clock(self, origin: float) -> None:
        self.env = simpy.Environment()
        self.origin, self.booked_at = origin, 0.0

    def in_one_bin(self, start: float, end: float) -> bool:
        return True

    def add_uses(self, at: float, uses: array[float]) -> None:
        pass

    def uses(self) -> array[float]:
        return array("d")

    def dispatch(self) -> None:
        self._place()
        self._set_rates(self.sms)

    # ---- what the engine calls

    @property
    def now(self) -> float:
        return float(self.env.now)

    @now.setter
    def now(self, value: float) -> None:
        if value > self.env.now:
            self.env.run(until=value)

    def advance(self, until: float) -> int:
        while not self.done or any(sm.refilling for sm in self.sms):  # an end is told once its SM is refilled
            due = self.env.peek()
            if due > until or due == float("inf"):
                if until < 1e300:
                    self.now = until
                return -1
            self.env.step()
        return self.done.pop(0)

    def waiting_blocks(self, slot: int) -> int:
        return self.launches[slot].waiting

    def resident_blocks(self, slot: int) -> int:
        return self.launches[slot].resident

    def unfinished_blocks(self, slot: int) -> int:
        return self.launches[slot].model.blocks - self.launches[slot].ended

    def started_at(self, slot: int) -> float:
        return self.origin + self.launches[slot].first_start if self.launches[slot].first_start >= 0.0 else -1.0

    def dispatched(self, slot: int) -> float:
        return self.origin + self.launches[slot].dispatched_at if self.launches[slot].dispatched_at >= 0.0 else -1.0

    def residents_by_sm(self, slot: int) -> list[int]:
        return [sum(block.slot == slot for block in sm.blocks) for sm in self.sms]

    def fullest_sm(self, slot: int) -> int:
        here = self.residents_by_sm(slot)
        return here.index(max(here)) if max(here) > 0 else -1

    def look(self, time_parts: Callable[[Mix, int], TimeParts]) -> None:
        for slot, launch in self.launches.items():
            if launch.ended < launch.model.blocks:
                sm = self.sms[max(0, self.fullest_sm(slot))]
                time = time_parts(self.mix_of(sm.number) if launch.resident else (), slot)
                dram, l2 = (load / self.capacity[sm.domain] for load in self._load(sm.domain))
                binds = memory_that_binds(time.whole, time.largest, dram, l2, launch.model.own_load)
                launch.bound_by = (time.bound_by, "dram", "l2")[binds]

    def book(self) -> None:
        passed, self.booked_at = self.now - self.booked_at, self.now
        for launch in self.launches.values():
            if launch.bound_by is not None and passed > 0.0:
                launch.bound_us[launch.bound_by] += passed

    def most_bound_by(self, slot: int) -> str:
        times = self.launches[slot].bound_us
        return max(sorted(times), key=times.__getitem__, default="latency")

    def work_left_by_sm(self, slot: int) -> list[float]:
        return [max((self._left(b) for b in sm.blocks if b.slot == slot), default=0.0) for sm in self.sms]

    def work_done_by_sm(self, slot: int) -> list[float]:
        launch = self.launches[slot]
        tile = launch.model.blocks / launch.model.tiles
        return [
            tile * launch.tiles_ran.get(sm.number, 0) + fsum(tile - self._left(b) for b in sm.blocks if b.slot == slot)
            for sm in self.sms
        ]

    def mix_of(self, sm: int) -> Mix:
        owners = [block.slot for block in self.sms[sm].blocks]
        return tuple((slot, owners.count(slot)) for slot in sorted(set(owners)))

    def domain_at(self, sm: int) -> int:
        return self.sms[sm].domain

    def free(self, sm: int) -> tuple[int, ...]:
        here = self.sms[sm]
        shared = here.carveout if here.blocks else self.limits[1]
        limits = (self.limits[0], shared, *self.limits[2:])
        return tuple(limit - used for limit, used in zip(limits, here.used, strict=True))

    def spans(self, slot: int) -> list[tuple[int, int, float, float]]:
        found = sorted(self.launches[slot].spans.items())
        return [(sm, blocks, self.origin + start, self.origin + end) for sm, (blocks, start, end) in found]

    def span_columns(self, slot: int) -> tuple[array[int], array[int], array[float], array[float]]:
        sms, blocks, starts, ends = zip(*self.spans(slot), strict=True)
        return array("i", sms), array("q", blocks), array("d", starts), array("d", ends)

    def usage(self) -> tuple[float, array[float]]:
        return max(1.0, (self.origin + self.now) / (self.bins - 1)), array("d", [0.0]) * (
            len(self.sms) * self.bins * USES
        )

    # ---- placing

    def _heads(self) -> list[int]:
        """Of each queue in line the first with blocks waiting."""
        heads: dict[int, int] = {}
        for slot, queue in self.line:
            if self.launches[slot].waiting > 0:
                heads.setdefault(queue, slot)
        return [slot for slot, queue in self.line if heads.get(queue) == slot]

    def _place(self) -> None:
        """Block by block: the first head that fits anywhere places one where most of its kind would fit."""
        moved = True
        while moved:
            moved = False
            for slot in self._heads():
                if self._together(slot) > 1:
                    self._place_clusters(slot)
                while self._together(slot) == 1 and self.launches[slot].waiting > 0:
                    rooms = [(self._room(slot, self.sms[sm]), -i) for i, sm in enumerate(self.order)]
                    room, place = max(rooms)
                    if room == 0:
                        break
                    self._start(slot, self.sms[self.order[-place]])
                moved = moved or self.launches[slot].waiting == 0

    def _together(self, slot: int) -> int:
        """Blocks that start together: those of a cluster, where the caps leave a GPC with so many SMs."""
        launch = self.launches[slot]
        usable = [gpc for gpc, cap in zip(self.gpcs, launch.caps, strict=True) if cap > 0]
        cluster: int = launch.model.cluster_blocks
        return cluster if any(usable.count(gpc) >= cluster for gpc in set(usable)) else 1

    def _cluster_sms(self, slot: int, gpc: int) -> list[SM]:
        """The SMs of a GPC that the next cluster would start on; none where it does not fit."""
        blocks = min(self.launches[slot].waiting, self._together(slot))
        free = [self.sms[sm] for sm in self.order if self.gpcs[sm] == gpc and self._room(slot, self.sms[sm]) > 0]
        return free[:blocks] if len(free) >= blocks else []

    def _place_clusters(self, slot: int) -> None:
        """Round by round, a cluster on each GPC that has room for it."""
        started = True
        while started:
            started = False
            for gpc in range(max(self.gpcs) + 1):
                for sm in self._cluster_sms(slot, gpc):
                    self._start(slot, sm)
                    started = True

    def _room(self, slot: int, sm: SM) -> int:
        """How many more blocks of a launch an SM has room for; 0 if it may not take another."""
        launch = self.launches[slot]
        own = sum(b.slot == slot for b in sm.blocks)
        if launch.gated:
            return 0
        most = self.most_beside(tuple([pair for pair in self.mix_of(sm.number) if pair[0] != slot]), slot)
        if own >= min(launch.caps[sm.number], most):
            return 0
        model = launch.model
        carveout = self._carveout_for(model, sm)
        if carveout < 0:
            return 0
        if launch.tenant >= 0 and any(self.launches[b.slot].tenant != launch.tenant for b in sm.blocks):
            return 0
        limits = (self.limits[0], carveout, *self.limits[2:])
        held = zip(limits, sm.used, launch.model.need, strict=True)
        return min([most - own, *((limit - used) // need for limit, used, need in held if need > 0)])

    def _carveout_for(self, model: Any, sm: SM) -> int:
        """Shared memory that an SM is set to for a kernel; -1 where it stays at a size that is not for it."""
        suits = model.least_carveout_bytes <= sm.carveout <= model.most_carveout_bytes
        if suits and (sm.blocks or sm.emptied_at == self.now):
            return sm.carveout
        return -1 if sm.blocks else model.carveout_bytes

    def _start(self, slot: int, sm: SM) -> None:
        launch = self.launches[slot]
        launch.waiting -= 1
        if launch.saved:
            work = launch.saved.pop()
        else:
            work = self._work_of(launch, launch.next_block)
            launch.next_block += 1
            if launch.ended == 0:
                work += self._share_ramp(slot, sm)
        sm.carveout = self._carveout_for(launch.model, sm)
        sm.blocks.append(Block(slot, work, self.now))
        sm.used = [used + need for used, need in zip(sm.used, launch.model.need, strict=True)]
        launch.resident += 1
        if launch.first_start < 0:
            launch.first_start = self.now
        if launch.waiting == 0:
            launch.dispatched_at = self.now
        launch.spans.setdefault(sm.number, (0, self.now, self.now))

    def _share_ramp(self, slot: int, sm: SM) -> float:
        """What one more of a launch's first blocks has to do beside its own work; each of those there, too."""
        ramps, beside = self.launches[slot].model.ramps, [block for block in sm.blocks if block.slot == slot]
        if not ramps:
            return 0.0
        for block in beside:
            block.work += ramps[len(beside)] - ramps[len(beside) - 1]
        return ramps[len(beside)]

    def _work_of(self, launch: Launch, tile: int) -> float:
        """Work of a tile, of a block that does its own; in mean blocks."""
        model = launch.model
        work = jitter_factor(model.seed, tile, model.jitter) * (model.blocks / model.tiles)
        lengths = model.lengths
        return work * lengths[tile % model.row * len(lengths) // model.row] if lengths else work

    def _remove(self, sm: SM, block: Block) -> None:
        launch = self.launches[block.slot]
        sm.blocks.remove(block)
        if not sm.blocks:
            sm.emptied_at = self.now
        sm.used = [used - need for used, need in zip(sm.used, launch.model.need, strict=True)]
        launch.resident -= 1
        if launch.gated and launch.resident == 0:
            launch.gated = False
            self.ungated = True

    # ---- progress

    def _life(self, sm: SM, block: Block) -> simpy.events.ProcessGenerator:
        while block.work > FINISHED:
            try:
                yield self.env.timeout(block.work / block.rate)
            except simpy.Interrupt as interrupt:
                if interrupt.cause == "evicted":
                    return
            else:
                self._end_piece(sm, block)
        self._end(sm, block)

    def _end_piece(self, sm: SM, block: Block) -> None:
        """Have a block go on with the next tile of work, where its launch's blocks share them and one is left."""
        launch = self.launches[block.slot]
        launch.tiles_ran[sm.number] = launch.tiles_ran.get(sm.number, 0) + 1
        block.work, block.since = 0.0, self.now
        if launch.next_tile < launch.model.tiles:
            block.work = self._work_of(launch, launch.next_tile)
            launch.next_tile += 1
            self._refill_after_ends(sm)

    def _end(self, sm: SM, block: Block) -> None:
        launch = self.launches[block.slot]
        launch.gated = launch.gated or (launch.model.late_last and launch.waiting > 0)
        self._remove(sm, block)
        launch.ended += 1
        ran, start, _ = launch.spans[sm.number]
        launch.spans[sm.number] = (ran + 1, start, self.now)
        if launch.ended == launch.model.blocks:
            self.done.append(block.slot)
        self._refill_after_ends(sm)

    def _refill_after_ends(self, sm: SM) -> None:
        if not sm.refilling:
            sm.refilling = True
            event = self.env.event()
            event._ok, event._value = True, None
            event.callbacks.append(lambda _: self._refill(sm))
            self.env.schedule(event, priority=AFTER_ENDS)  # type: ignore[arg-type]

    def _refill(self, sm: SM) -> None:
        sm.refilling = False
        heads = self._heads()
        cluster_fits = False
        for slot in heads:
            together = self._together(slot) > 1
            if together and self._room(slot, sm) > 0 and self._cluster_sms(slot, self.gpcs[sm.number]):
                cluster_fits = True
                break
            while not together and self.launches[slot].waiting > 0 and self._room(slot, sm) > 0:
                self._start(slot, sm)
        changed = [sm]
        if cluster_fits or self.ungated or self._heads() != heads:  # the next in line may find room anywhere
            self.ungated = False
            self._place()
            changed = self.sms
        self._set_rates(changed)

    def _left(self, block: Block) -> float:
        return block.work - block.rate * (self.now - block.since)

    def _charge(self, block: Block) -> None:
        block.work = self._left(block)
        block.since = self.now

    def _load(self, domain: int) -> tuple[float, float]:
        loads = [sm.load for sm in self.sms if sm.domain == domain]
        return fsum(dram for dram, _ in loads), fsum(l2 for _, l2 in loads)

    def _starts(self, domain: int, slot: int) -> float:
        """How many times as fast as blocks of a launch can start they would end."""
        model = self.launches[slot].model
        ends, held = 0.0, 0
        for sm in self.sms:
            held += any(block.slot == slot for block in sm.blocks)
            if sm.domain == domain:
                for (other, _), rates in zip(self.mix_of(sm.number), self._resolve(sm)[0], strict=True):
                    ends += fsum(rates) if other == slot else 0.0
        each = max(model.start_us, model.sm_start_us / held) if held else model.start_us
        return ends / self.factors[domain].get(slot, 1.0) * each

    def _served(self, domain: int) -> float:
        """What a domain would serve of DRAM or L2 at its present factors, over what it can."""
        served = [0.0, 0.0]
        for sm in self.sms:
            if sm.domain == domain:
                for (slot, _), rates in zip(self.mix_of(sm.number), self._resolve(sm)[0], strict=True):
                    model = self.launches[slot].model
                    for i, demand in enumerate((model.dram_share_us, model.l2_share_us)):
                        served[i] += demand * fsum(rates) / self.factors[domain].get(slot, 1.0)
        return max(served) / self.capacity[domain]

    def _resolve(self, sm: SM) -> tuple[list[list[float]], float, float]:
        mix = self.mix_of(sm.number)
        if mix not in self.resolved:
            self.resolved[mix] = self.resolve(mix) if mix else ([], 0.0, 0.0)
        return self.resolved[mix]

    def _set_rates(self, changed: list[SM]) -> None:
        """Give every block the rate that its SM's mix and its memory domain's load make it have now."""
        for sm in changed:
            sm.load = self._resolve(sm)[1:]
        updated = set()
        power = self._power()
        if abs(power - self.power) > self.load_step:
            self.power, self.stale_rates = power, True
        for domain, seen in enumerate(self.loads):
            load = self._load(domain)
            cycle = self._cycle(domain)
            moved = any(abs(a - b) > self.load_step for a, b in zip(load, seen, strict=True))
            served = self._served(domain)
            moved = moved or served > 1.0 + 1e-9 or (self.held_back[domain] and served < 1.0 - self.load_step)
            if self.stale_rates or moved or cycle != self.cycles[domain]:
                self.loads[domain] = load
                self.cycles[domain] = cycle
                self.factors[domain] = (self.slowdowns_of or self._slowdowns)(
                    domain, *load, cycle, power_cycle(self.power)
                )
                for slot in self.factors[domain].keys() & self.launches.keys():
                    self.factors[domain][slot] *= max(1.0, self._starts(domain, slot))
                served = self._served(domain)
                self.held_back[domain] = served > 1.0 + 1e-9
                if self.held_back[domain]:
                    self.factors[domain] = {slot: factor * served for slot, factor in self.factors[domain].items()}
                updated.add(domain)
        self.stale_rates = False
        for sm in self.sms:
            if sm in changed or sm.domain in updated:
                self._set_rates_of(sm)

    def _cycle(self, domain: int) -> float:
        """The cycle of a domain's SMs: longer while any of their blocks computes on tensor cores."""
        slots = {block.slot for sm in self.sms if sm.domain == domain for block in sm.blocks}
        return self.tensor_cycle if any(self.launches[slot].model.on_tensor_cores for slot in slots) else 1.0

    def _power(self) -> float:
        """Power that all blocks would draw at the full clock, over the limit; 0 where no kernel is held back by it."""
        models = [self.launches[block.slot].model for sm in self.sms for block in sm.blocks]
        held = any(model.held_clock < 1.0 for model in models)
        return fsum(model.block_power for model in models) if held else 0.0

    def _slowdowns(self, domain: int, dram: float, l2: float, tensor: float, power: float) -> dict[int, float]:
        dram, l2 = max(0.0, dram) / self.capacity[domain], max(0.0, l2) / self.capacity[domain]
        models = {slot: launch.model for slot, launch in self.launches.items()}
        cycles = {slot: model.held_clock if model.on_tensor_cores else tensor for slot, model in models.items()}
        return {slot: memory_slowdown(dram, l2, model.own_load, cycles[slot] * power) for slot, model in models.items()}

    def _set_rates_of(self, sm: SM) -> None:
        rates = {
            slot: list(values) for (slot, _), values in zip(self.mix_of(sm.number), self._resolve(sm)[0], strict=True)
        }
        for block in sm.blocks:
            rate = rates[block.slot].pop(0) / self.factors[sm.domain][block.slot]
            if rate != block.rate:
                self._charge(block)
                block.rate = rate
                if block.process is not None:
                    block.process.interrupt("rate")
            if block.process is None:
                block.process = self.env.process(self._life(sm, block))


@contextmanager
def slow_sms() -> Iterator[None]:
    """Replays inside use one process a block."""
    with patch.object(sm_array, "SMArray", SlowSMs):
        yield
