"""The device on the clock of the simulation: kernels that are ready, a policy that shares it, and its SMs."""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import compress
from math import fsum, inf

import simpy

from gpusim.common.errors import InputError
from gpusim.engine.alone import Alone, KnownRuns
from gpusim.engine.code import CachedCode
from gpusim.engine.grants import NO_LIMITS, held_to, limits_of
from gpusim.engine.history import BINS
from gpusim.engine.holdings import Holdings
from gpusim.engine.launch import Launch
from gpusim.engine.rates import KNOWN_MIXES, Rates
from gpusim.engine.sm_array import domain_of_sm, sm_array
from gpusim.engine.tables import NEVER
from gpusim.hardware.gpu import GPU
from gpusim.model.clock import power_cycle
from gpusim.model.contention import binding
from gpusim.model.front_end import turn_wait_us
from gpusim.model.kernel import KernelModel
from gpusim.policies.checks import Border, ask, named
from gpusim.policies.interface import Grant, KernelView, OperationView, PassView, Policy, View
from gpusim.results.runs import Spans, Usage

MOST_SLOTS = 128  # launches on the SMs at once, where the GPU does not allow fewer
MOST_MIXES = 4_096  # remembered, with tables of some kilobytes each; more are forgotten when the next launch arrives
MOST_VIEWS = 100_000  # kernels of which is remembered what policies see of them, 1 KB each
_VIEWS: dict[object, KernelView] = {}  # of a kernel before it starts, by its identity
DECISIONS = 10_000  # that a policy may make while no block ends
DECISIONS_PER_BLOCK = 10  # that ended: as many more


class Device:
    """Runs launches on the SMs of a GPU as a policy shares them.

    Args:
        env: the simulation.
        gpu: the GPU.
        policy: one policy object, used by this device only.
        streams: names of the trace's streams.
        busy_streams: gives the streams that still have work.
        unready: as ``View.unready``.
        keep_spans: note where the blocks of each launch ran.
        operations: as ``View.operations``.
        gpu_of: of each stream, which of the GPUs that ``gpu`` is, of equal parts of its SMs
            (`gpusim.engine.several_gpus`); empty: it is one.
        keep_residents: note what each SM holds whenever that changes.
        passes: as ``View.passes``.
        program_of: the program of each stream, by its position; empty: all are of one.
        code_of: names of the kernels of each program; empty: there is one.
    """

    def __init__(
        self,
        env: simpy.Environment,
        gpu: GPU,
        policy: Policy,
        streams: Sequence[str],
        busy_streams: Callable[[], tuple[str, ...]],
        unready: Callable[[], Mapping[int, tuple[float, int]]] = dict,
        keep_spans: bool = True,
        operations: Callable[[], Sequence[OperationView]] = tuple,
        gpu_of: Sequence[int] = (),
        keep_residents: bool = False,
        passes: Callable[[], Mapping[int, PassView]] = dict,
        program_of: Sequence[int] = (),
        code_of: Sequence[Set[str]] = (),
    ) -> None:
        self._env = env
        self._keep_spans = keep_spans
        self._gpu = gpu
        self._policy = policy
        self._busy_streams = busy_streams
        self._answers = (  # the fields of a `View` from ``residents`` on
            self._residents,
            self._solo_rate,
            self._mix_rates,
            self._blocks_done,
            self._progress,
            unready,
            operations,
            passes,
        )
        self._border = border = Border(policy, gpu)
        ask(policy, policy.prepare, gpu, streams)
        self._shows_sms = border.shows_sms(ask(policy, policy.shows_sms))
        domains = border.memory_domains(ask(policy, policy.memory_domains, gpu, streams))
        self._gpu_of = gpu_of or [0] * len(streams)
        self._gpus = gpus = 1 + max(self._gpu_of, default=0)
        self._domain_share = [share * gpus for _, share in domains] if domains else [1.0]
        self._slot_count = min(MOST_SLOTS, gpu.limits.max_resident_grids)
        self._domain_of_sm = domain_of_sm(domains, gpu)
        self._launches: dict[int, Launch] = {}  # ready or running, by id
        self._ends: dict[int, simpy.Event] = {}  # of these
        self._slots: dict[int, Launch] = {}  # on the SMs, by slot
        self._rates = rates = Rates(KNOWN_MIXES, self._model, self._slots, gpu.sm_count, self._domain_share)
        self._sms = sm_array(
            gpu,
            self._slot_count,
            rates.resolve,
            lambda slot: self._model(slot).footprint,
            None,
            self._domain_of_sm,
            self._domain_share,
        )
        self.residents = Holdings(self._sms, gpu.sm_count) if keep_residents else None
        self._first: tuple[int, Launch] | None = None  # on SMs that hold nothing yet, with its slot
        self._under_way = [defaultdict[tuple[int, str], int](int) for _ in range(gpus)]  # let start, by their stream
        in_turn = policy.single_stream
        self._code = CachedCode(gpu, self._shows_sms, in_turn, code_of) if code_of and not domains else None
        self._program_of = program_of
        self._known_runs = KnownRuns(gpu, self._domain_of_sm, self._domain_share)
        self._last_model: list[KernelModel | None] = [None] * self._slot_count
        self._free_slots = set(range(self._slot_count))
        self._unused = 0  # slots from here on have held no launch yet
        self._slots_of: defaultdict[object, list[int]] = defaultdict(list)  # that held a kernel last, by its identity
        self._grants: dict[int, Grant] = {}
        self._held: dict[int, Grant] = {}  # what the SMs hold launches to, by slot, in the order of placing blocks
        self._known_sms: dict[bytes, array[int]] = {}  # lists of the SMs that launches ran on
        self._late: deque[Launch] = deque()  # past their launch latency, waiting for a slot
        self._next_id = 0
        self._deciding = False
        self._decisions = 0
        self._decisions_allowed = DECISIONS
        self._blocks_ended = 0  # of launches that have ended
        self._ending = False  # a launch has ended on the SMs, and will as soon as the simulation has come as far
        self._looked = True  # the SMs have looked at what binds launches since blocks were placed
        self._wake_us = NEVER
        self.waiting_streams: set[int] = set()  # of the trace, those that wait for operations of others
        met = {"memory slices"} if domains is not None and len(domains) > gpus else set[str]()
        if policy.sharing_limit and len(streams) > 1:
            met.add(policy.sharing_limit)
        self.limits = met  # of `gpusim.results.runs.LIMITS`, met so far

    def launch(
        self,
        model: KernelModel,
        stream: str,
        stream_index: int,
        priority: int,
        queued: tuple[float, int] = (0.0, 0),
        operation: str = "",
    ) -> tuple[Launch, simpy.Event]:
        """Hand a kernel to the device, now that all it waits for has ended; the event tells its end."""
        launch = Launch(self._next_id, model, stream, stream_index, priority, queued, self._env.now, operation)
        self._next_id += 1
        self._launches[launch.id] = launch
        self._ends[launch.id] = end = self._env.event()
        self._deciding = True
        return launch, end

    def usage(self) -> Usage:
        """Use of every SM so far."""
        width, flat = self._sms.usage()
        full = (
            *self._gpu.limits.capacity,
            1.0,
            self._gpus / self._gpu.sm_count,
            self._gpus / self._gpu.sm_count,
        )
        bins = min(BINS, int((self._sms.origin + self._sms.now) / width) + 1)
        return Usage(width, self._gpu.sm_count, bins, flat, tuple(1.0 / (width * most) for most in full))

    # ---- time ----------------------------------------------------------------------------------------------------

    def run(self, until: simpy.Event | None = None) -> None:
        """Run the simulation to an event, or until nothing is left to happen.

        When all of an instant has happened the policy decides, if it is to; then the SMs run up to the next event.
        """
        env = self._env
        while until is None or until.callbacks is not None:  # not processed yet
            horizon = env.peek()
            if horizon > env.now:
                if self._deciding:
                    self._decide()
                    continue
                self._advance(horizon)
                if horizon == inf and env.peek() == inf:
                    if self._slots:
                        continue
                    return
            env.step()

    def _advance(self, horizon: float) -> None:
        """Let time pass on the SMs up to the next event; a launch that ends before makes an event of its own."""
        if self._first is not None:
            if self._run_known(horizon):
                return
            self._begin()
        if not self._slots or self._ending:
            return
        if not self._looked:
            self._looked = True
            self._sms.look(self._rates.time_parts)
        before = self._sms.now
        slot = self._sms.advance(horizon - self._sms.origin)
        if slot >= 0:
            self._end_in_time(slot)
        elif horizon >= NEVER and self._sms.now == before:
            stuck = ", ".join(launch.model.name[:40] for launch in self._slots.values())
            raise InputError(None, named(self._policy), f"leaves blocks of {stuck} waiting for ever")

    def _end_in_time(self, slot: int) -> None:
        """End a launch that has ended on the SMs, when the simulation has come as far."""
        wait = self._sms.origin + self._sms.now - self._env.now
        if wait > 0.0:
            self._ending = True
            self._after(wait, lambda _: self._end(slot))
        else:
            self._end(slot)

    def _after(self, delay: float, call: Callable[[simpy.Event], None]) -> None:
        timeout = self._env.timeout(delay)
        assert timeout.callbacks is not None
        timeout.callbacks.append(call)

    def _end(self, slot: int) -> None:
        self._ending = False
        self._sms.book()
        if self.residents is not None:
            self.residents.take({slot: launch.id for slot, launch in self._slots.items()})
        launch = self._slots.pop(slot)
        launch.bound_by = self._sms.most_bound_by(slot)
        launch.start_us = self._sms.started_at(slot)
        launch.dispatched_us = self._sms.dispatched(slot)
        launch.end_us = self._sms.origin + self._sms.now
        launch.spans = self._spans(slot) if self._keep_spans else None
        self._ended(launch, slot)
        if self._slots:  # others may end at the same instant
            other = self._sms.advance(self._env.now - self._sms.origin)
            if other >= 0:
                self._end_in_time(other)

    def _ended(self, launch: Launch, slot: int) -> None:
        self._blocks_ended += launch.model.blocks
        del self._launches[launch.id]
        launch.view = None
        self._grants.pop(launch.id, None)
        self._held.pop(slot, None)
        self._count_under_way(launch, -1)
        self._free_slots.add(slot)
        if self._late:
            self._arrive(self._late.popleft())
        self._ends.pop(launch.id).succeed()
        self._deciding = True

    def _spans(self, slot: int) -> Spans:
        """Where the blocks of a launch ran; launches that ran on the same SMs share the list of them."""
        sms, blocks, starts, ends = self._sms.span_columns(slot)
        return self._known_sms.setdefault(sms.tobytes(), sms), blocks, starts, ends

    # ---- deciding --------------------------------------------------------------------------------------------------

    def _wake(self, at_us: float) -> None:
        if self._wake_us == at_us:
            self._wake_us = NEVER
            self._deciding = True

    def _decide(self) -> None:
        self._deciding = False
        self._begin()
        if not self._launches:
            return
        self._require_progress()
        answer = ask(self._policy, self._policy.partition, self._view())
        partition, self._grants = self._border.partition(answer, self._launches, self._env.now, self._grants)
        for grant in partition.grants:
            launch = self._launches[grant.kernel]
            if not launch.admitted:
                launch.admitted = True
                wait_us = self._memory_wait_us(launch, grant) if launch.model.in_graph else self._turn_wait_us(launch)
                self._after(launch.model.latency_us + wait_us, partial(self._arrive, launch))
                self._count_under_way(launch, 1)
        if partition.evictions:
            self.limits.add("evictions")
        for eviction in partition.evictions:
            slot = self._launches[eviction.kernel].slot
            if slot is not None:
                work = float(eviction.cost_us) / self._launches[eviction.kernel].model.unit_us
                self._sms.evict(slot, eviction.sm, eviction.blocks, work, eviction.restart)
        if partition.wake_us is not None and partition.wake_us < self._wake_us:
            self._wake_us = at = partition.wake_us
            self._after(max(0.0, at - self._env.now), lambda _: self._wake(at))
        if self._slots:
            granted = self._granted()
            if self._rates.limits or granted != self._held or list(granted) != list(self._held):
                self._hold(granted)
            self._place()

    def _turn_wait_us(self, launch: Launch) -> float:
        """Delay by the front end of a launch that may start and is in no CUDA graph."""
        gpu, own = self._gpu_of[launch.stream_index], _lane(launch)
        under_way = self._under_way[gpu]
        beside = len(under_way) - (own in under_way)
        if self.waiting_streams and not self._policy.single_stream:
            waiting = ((stream, "main") for stream in self.waiting_streams if self._gpu_of[stream] == gpu)
            beside += sum(lane != own and lane not in under_way for lane in waiting)
        return turn_wait_us(beside, self._gpu.model.stream_turn_us, self._shows_sms)

    def _memory_wait_us(self, launch: Launch, grant: Grant) -> float:
        """Delay of a launch of a CUDA graph that may start, by the memory traffic of the launches on the SMs."""
        if not self._slots:
            return 0.0
        if self._domain_of_sm is None:
            return self._sms.launch_wait(0)
        caps, _ = held_to(grant, launch.model.blocks_per_sm, self._gpu.sm_count)
        return self._sms.launch_wait(caps.index(max(caps)))

    def _count_under_way(self, launch: Launch, change: int) -> None:
        under_way, lane = self._under_way[self._gpu_of[launch.stream_index]], _lane(launch)
        under_way[lane] += change
        if not under_way[lane]:
            del under_way[lane]

    def _require_progress(self) -> None:
        """Refuse a policy that decides again and again while no block ends, because it evicts or waits for ever."""
        self._decisions += 1
        if self._decisions <= self._decisions_allowed:
            return
        left = sum(self._sms.unfinished_blocks(slot) for slot in self._slots)
        ended = self._blocks_ended + sum(launch.model.blocks for launch in self._slots.values()) - left
        self._decisions_allowed = DECISIONS + DECISIONS_PER_BLOCK * ended
        if self._decisions > self._decisions_allowed:
            raise InputError(
                None,
                named(self._policy),
                f"has decided {self._decisions} times by {self._env.now:g} us, while {ended} blocks ended",
                f"fewer decisions (wake_us), and blocks that are left to end; at most {DECISIONS} decisions and "
                f"{DECISIONS_PER_BLOCK} more for each block that ended",
            )

    def _arrive(self, launch: Launch, _: simpy.Event | None = None) -> None:
        """The launch latency has passed: the SMs may take blocks."""
        self._begin()
        if not self._free_slots:  # as many kernels run as the GPU takes at once
            self._late.append(launch)
            return
        if launch.model.scattered is not None:
            launch.model = launch.model.starting(self._room(launch))
        model = launch.model
        if self._code is not None:
            lost = self._code.lost_by(model, self._program_of[launch.stream_index])
            launch.code_lost = lost if model.wait.code > 0.0 and not launch.of_call else 0.0
        slot = self._slot_for(model)
        self._first = slot, launch
        if self._slots or self.residents is not None:
            self._begin()

    def _room(self, launch: Launch) -> int:
        """Blocks of a launch that can start at once where it is alone on the SMs that it is granted, else 0."""
        grant = self._grants.get(launch.id)
        if grant is None:
            return 0
        caps, _ = held_to(grant, launch.model.blocks_per_sm, self._gpu.sm_count)
        held = [self._sms.residents_by_sm(slot) for slot in self._slots]
        return 0 if any(map(any, compress(zip(*held, strict=True), caps))) else sum(caps)

    def _begin(self) -> None:
        """Have the SMs take the blocks of the launch that has arrived, if there is one that they have not seen."""
        if self._first is None:
            return
        (slot, launch), self._first = self._first, None
        if not self._slots:
            self._sms.restart_clock(self._env.now)
        elif launch.model.in_graph and self._domain_of_sm is None:
            self._sms.delay(self._gpu.model.block_delay_us)
        launch.slot = slot
        self._slots[slot] = launch
        if self._sms.mix_count() > MOST_MIXES:
            self._forget_mixes()
        self._sms.submit(slot, launch.model, launch.code_lost)
        self._hold(self._granted())
        self._place()

    # ---- a launch that has the SMs to itself -------------------------------------------------------------------------

    def _known_run(self, horizon: float) -> Alone | None:
        """Outcome of a launch that has arrived, where an equal one ran in isolation before.

        None where something else happens before its end, and where it needs more than one bin of the usage history:
        how its uses are shared among several is not known.
        """
        assert self._first is not None
        launch = self._first[1]
        grant = self._grants.get(launch.id)
        known = None if grant is None or launch.code_lost > 0.0 else self._known_runs.find(launch.model, grant)
        if known is None:
            return None
        start, end = self._env.now, self._env.now + known.us
        return known if start + (end - start) < horizon and self._sms.in_one_bin(start, end) else None

    def _run_known(self, horizon: float) -> bool:
        """Run the launch that has arrived without the SMs, where that is known; else False."""
        known = self._known_run(horizon)
        if known is None:
            return False
        assert self._first is not None
        (slot, launch), self._first = self._first, None
        start = self._env.now
        self._after(start + known.us - start, lambda _: self._end_known(launch, slot, known, start))
        return True

    def _end_known(self, launch: Launch, slot: int, known: Alone, start: float) -> None:
        end = start + known.us
        self._sms.add_uses(start, known.uses)
        self._sms.restart_clock(end)
        self.limits |= known.limits
        launch.start_us, launch.dispatched_us, launch.end_us = start, start + known.dispatched_us, end
        launch.bound_by = known.bound_by
        launch.spans, launch.spans_shared = (known.spans, True) if self._keep_spans else (None, False)
        self._ended(launch, slot)

    def _slot_for(self, model: KernelModel) -> int:
        """A free slot: one that held the same kernel last, what is known of its mixes stays; else one that held none.

        Of several the first.
        """
        free = self._free_slots
        same = [slot for slot in self._slots_of.get(model.identity, ()) if slot in free]
        slot = min(same or (free if self._unused == self._slot_count else [self._unused]))
        free.remove(slot)
        self._unused = max(self._unused, slot + 1)
        last, self._last_model[slot] = self._last_model[slot], model
        if last is not model:
            if last is not None:
                self._slots_of[last.identity].remove(slot)
                self._sms.forget_slot(slot)
            self._slots_of[model.identity].append(slot)
        return slot

    def _hold(self, granted: dict[int, Grant]) -> None:
        """Hold the launches on the SMs to what they are granted, and let them place blocks in that order."""
        before, self._held = self._held, granted
        self._limit(self._held)
        queues = [grant.queue for grant in self._held.values()]
        if len(set(queues)) > 1:
            self.limits.add("queues")
        for slot, grant in self._held.items():
            known = before.get(slot)
            if known is None or (known is not grant and known != grant):
                self._cap(slot, grant)
        self._sms.set_dispatch_order(list(self._held), queues)

    def _granted(self) -> dict[int, Grant]:
        """Grants of the launches on the SMs, by slot, in their order of placement."""
        return {
            slot: grant for grant in self._grants.values() if (slot := self._launches[grant.kernel].slot) is not None
        }

    def _place(self) -> None:
        self._sms.book()
        self._sms.dispatch()
        self._looked = False

    def _cap(self, slot: int, grant: Grant) -> None:
        caps, met = held_to(grant, self._slots[slot].model.blocks_per_sm, self._gpu.sm_count)
        self.limits |= met
        self._sms.set_caps(slot, caps)
        self._sms.set_tenant(slot, -1 if grant.tenant is None else grant.tenant)

    def _limit(self, grants: Mapping[int, Grant]) -> None:
        """Take over the shares and quotas that grants, by slot, are limited to."""
        limits = {slot: held for slot, grant in grants.items() if (held := limits_of(grant)) is not NO_LIMITS}
        if limits != self._rates.limits:
            self._rates.limits = limits
            self._sms.set_slowdowns(partial(self._rates.slowdowns, self._sms) if limits else None)
            self._forget_mixes()

    def _forget_mixes(self) -> None:
        self._rates.forget_mixes()
        self._sms.forget_mixes()

    # ---- what policies see ------------------------------------------------------------------------------------------

    def _view(self) -> View:
        kernels = tuple([self._kernel_view(launch) for launch in self._launches.values()])
        return View(self._env.now, self._gpu, kernels, self._busy_streams(), *self._answers)

    def _kernel_view(self, launch: Launch) -> KernelView:
        model, slot, view = launch.model, launch.slot, launch.view
        waiting = model.blocks if slot is None else self._sms.waiting_blocks(slot)
        resident = 0 if slot is None else self._sms.resident_blocks(slot)
        if view is not None:
            if view.waiting != waiting or view.resident != resident or view.started != launch.admitted:
                launch.view = view = view.later(waiting, resident, launch.admitted)
            return view
        launch.view = view = _view_of(model)._replace(
            id=launch.id,
            stream=launch.stream,
            stream_index=launch.stream_index,
            internal=launch.internal,
            priority=launch.priority,
            ready_us=launch.ready_us,
            waiting=waiting,
            resident=resident,
            started=launch.admitted,
            queued=launch.queued,
            operation=launch.operation,
        )
        return view

    def _residents(self, kernel: int) -> Sequence[int]:
        slot = self._launches[kernel].slot
        return [0] * self._gpu.sm_count if slot is None else self._sms.residents_by_sm(slot)

    def _blocks_done(self, kernel: int) -> int:
        launch = self._launches[kernel]
        return 0 if launch.slot is None else launch.model.blocks - self._sms.unfinished_blocks(launch.slot)

    def _progress(self, kernel: int) -> Sequence[float]:
        slot = self._launches[kernel].slot
        if slot is None:
            return [0.0] * self._gpu.sm_count
        # delayed blocks may have more left than all
        return [max(0.0, done) for done in self._sms.work_done_by_sm(slot)]

    def work_done(self, launch: Launch) -> float:
        """Share of a launch's work that is done (0 to 1). Running blocks count in part."""
        if launch.end_us >= 0.0:
            return 1.0
        if launch.slot is None:
            return 0.0
        return min(1.0, max(0.0, fsum(self._sms.work_done_by_sm(launch.slot)) / launch.model.blocks))

    def _solo_rate(self, kernel: int, blocks_per_sm: int, sms: int | None = None) -> float:
        return self._mix_rates(((kernel, blocks_per_sm),), sms)[0]

    def _mix_rates(self, residents: Sequence[tuple[int, int]], sms: int | None = None) -> Sequence[float]:
        models = [(self._launches[kernel].model, count) for kernel, count in residents]
        rates, dram, l2 = KNOWN_MIXES.rates(models)
        tensor_cycle = self._gpu.model.tensor_cycle if any(model.on_tensor_cores for model, _ in models) else 1.0
        everywhere = float(self._gpu.sm_count if sms is None else sms)
        held = any(model.held_clock < 1.0 for model, _ in models)
        power = power_cycle(everywhere * fsum(count * model.block_power for model, count in models) if held else 0.0)
        slowed = [
            count * rate / model.slowdown(dram * everywhere, l2 * everywhere, tensor_cycle, power)
            for (model, count), rate in zip(models, rates, strict=True)
        ]
        of_dram = [rate * model.dram_share_us for (model, _), rate in zip(models, slowed, strict=True)]
        of_l2 = [rate * model.l2_share_us for (model, _), rate in zip(models, slowed, strict=True)]
        excess = max(1.0, everywhere * fsum(of_dram), everywhere * fsum(of_l2))
        return [rate / excess for rate in slowed]

    def _model(self, slot: int) -> KernelModel:
        model = self._last_model[slot]
        assert model is not None
        return model


def _view_of(model: KernelModel) -> KernelView:
    """What policies see of a kernel, whoever launches it; worked out once for all replays of this process."""
    known = _VIEWS.get(model.identity)
    if known is not None:
        return known
    if len(_VIEWS) > MOST_VIEWS:
        _VIEWS.clear()
    own, full = model.own_load, model.full_load
    known = _VIEWS[model.identity] = KernelView(
        id=0,
        stream=model.stream,
        stream_index=0,
        internal=False,
        priority=0,
        ready_us=0.0,
        waiting=model.blocks,
        resident=0,
        started=False,
        name=model.name,
        blocks=model.blocks,
        footprint=model.footprint,
        blocks_per_sm=model.blocks_per_sm,
        solo_us=model.solo_us,
        bound_by=binding([(model.demand, model.most_resident)], 0, full.dram, full.l2, own),
        dram_load=own.dram,
        l2_load=own.l2,
        issue_us=model.busy_us("issue_cycles"),
        memory_us=model.busy_us("l1_cycles"),
        dram_us=model.dram_share_us,
        l2_us=model.unit_us * model.load.l2,
        memory_stall_share=model.memory_stall_share,
        latency_us=model.latency_us,
    )
    return known


def _lane(launch: Launch) -> tuple[int, str]:
    """Return the queue of a launch: its stream, or the internal stream of a library."""
    return launch.stream_index, launch.model.stream
