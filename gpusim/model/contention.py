"""How fast a mix of resident blocks runs: pure functions, no clock, no state, no policy.

Everything is relative to the recording: a kernel's time is 1 where its blocks progress as they did while it was
recorded alone. Kernels share resources on two levels: those of one SM (issue slots, pipes, the L1 and shared-memory
data path) and those of the device (L2, DRAM).

Inside an SM a warp needs, for each instruction, a latency that others do not lengthen and a service demand at the
resource that binds it. The two add between "as squares", where each hides a part of the other, and "one after the
other", such that the recorded time comes out [D]. The counters of the recording give both: warps stalled per issued
instruction sum to warps over issue rate (Little's law), and each stall reason is either latency or waiting for service.

What loads of L2 and DRAM beyond the SM do to a kernel is in `gpusim.model.memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from math import ceil, fsum, inf, sqrt
from operator import mul
from typing import NamedTuple

from gpusim.hardware.gpu import ModelConstants
from gpusim.model import mixing
from gpusim.model.memory import MemoryLoad, memory_that_binds
from gpusim.model.mixing import Use, blocked_slots, burst_length
from gpusim.trace.kernels import ALL_COUNTERS, Mix, WarpStalls

SHARED = ("issue_cycles", "alu_cycles", "fma_cycles", "tensor_cycles", "lsu_cycles", "l1_cycles")
ISSUE, TENSOR, LSU = (SHARED.index(f"{name}_cycles") for name in ("issue", "tensor", "lsu"))
OTHER_PIPES = ("multiply_cycles", "special_cycles", "double_cycles")  # of a scheduler, beside those of `SHARED`
L1_PATH = SHARED.index("l1_cycles")
UNKNOWN = "unknown"  # what binds a kernel whose demands were not counted
FEWEST_TURNS = 1.3  # warps that compete on a scheduler, above which the recorded time tells how their turns add
UNSEEN_SERIAL_SHARE = 0.5  # where they are fewer: halfway between the two ways [D]
UNCOUNTED = 0.02  # how much busier than all counted pipes an SM is, at least, where a pipe was not counted
QUEUED_SHARE = 0.7  # of waits at the long scoreboard that queues of L2 and DRAM can have been where room was left [D]
FULL_QUEUE_STALLS = 0.04  # share of stalls for room in the queue to memory with which it was full throughout [D]
DRAM_LATENCY_CYCLES = 800.0  # idle 700, beside 4.2 TB/s of reads 935 ([V] experiments/h200_microbench, memory.csv)
LEAST_IN_FLIGHT_BYTES = 1536.0  # that a warp reads ahead: 48 a thread, in registers [D]
BUFFERS = 2  # that share a block's shared memory: one is read while the other is filled [D]
LEAST_LSU = 0.02  # busy share of the load/store unit, below which requests of the data path cannot be told
LEAST_HITS = 0.95  # share of its sectors that a kernel finds in L1 and that tells of a set that it keeps there [D]
MOST_HITS = 0.9999  # that the counter of hits can tell
L2_CYCLES = 300.0  # that a read waits longer for L2 than for L1 ([V] 152 ns: experiments/h200_microbench, memory.csv)
LOST_OF_EXCESS = 1.5  # share of its hits that a kernel loses for each L1 by which sets exceed it ([V] single_resource)
SECTORS_OF_A_MISS = 1.5  # that L2 counts for a sector read from DRAM ([V] ReLU and LRN of experiments/h200_validation)
# of each kernel of a mix; `gpusim.engine` puts the compiled one here, where there is one
progress: Callable[[Sequence[Use]], list[float]] = mixing.progress


@dataclass(frozen=True, slots=True)
class WarpDemand:
    """Demand of one kernel's warps on an SM per instruction; times relative to the recorded time per instruction."""

    warps_per_scheduler: float  # of one block; below 1 a block leaves some schedulers of the SM idle
    latency: float  # time that no other warp lengthens; never less than the service demand
    service_demand: float  # time that each competing warp of the scheduler adds at the resource that binds the kernel
    demands: tuple[float, ...]  # time that one instruction holds each shared resource, in the order of `SHARED`
    bound: int  # index into `demands` of the busiest; a pipe of ``others`` may bind sooner, but has no name
    counted: bool = True  # whether all of this comes from counters; else a part of it is assumed
    serial_share: float = 0.0  # how latency and turns add, from 0 (as squares) to 1 (one after the other)
    # whether all its blocks are resident at once when it has the device: none is refilled, so the fullest
    # scheduler of an SM sets the pace. For refilled blocks the mean scheduler does, because they fill free slots.
    one_wave: bool = False
    block_us: float = 0.0  # how long a block lives, as recorded; 0: unknown
    # the same as ``demands`` of `OTHER_PIPES`, and of a pipe that was not counted
    others: tuple[float, ...] = (0.0,) * (len(OTHER_PIPES) + 1)
    cycles: float = 0.0  # of an instruction of one warp, waits included, as recorded; 0: unknown
    burst: float = 1.0  # instructions that a warp issues in a row
    # share of its time at a scheduler that its warps come in bursts, as the recording shows; else 0
    together: float = 0.0
    # issue slots that an instruction takes, such that the recorded use comes out; 0: as in ``demands``
    slots: float = 0.0
    l1_set: float = 0.0  # share of an SM's L1 that the data of one resident block fill
    # share of it that the most blocks filled in the recording, which shows what it lost by that
    l1_filled: float = 0.0
    l1_reused: float = 0.0  # how much longer an instruction takes if L1 keeps none of what its block reads again

    @property
    def resource(self) -> str:
        """Name of the resource that binds, such as ``fma``."""
        return SHARED[self.bound].removesuffix("_cycles")


class TimeParts(NamedTuple):
    """Terms of the squared time of a kernel in a mix, without the memory system; squares add."""

    whole: float  # the square of the time per instruction
    largest: float  # the larger part of that: latency, or waiting for the resource that binds the kernel
    bound_by: str  # name of that part; unknown, and larger than any, where the kernel's demands were not counted


def warp_demand(
    mix: Mix | None,
    warps_per_block: int,
    resident_blocks: float,
    blocks_per_sm: float,
    sub_partitions: int,
    constants: ModelConstants,
    one_wave: bool = False,
    shared_bytes_per_warp: float = 0.0,
    l1_bytes: float = 0.0,
) -> WarpDemand:
    """Return the demand of a kernel's warps on an SM, from its recorded counters.

    Args:
        mix: the recorded counters, or None.
        warps_per_block: warps of one block.
        resident_blocks: mean resident blocks of an SM in the recording.
        blocks_per_sm: blocks of the launch over SMs of the recording GPU: what one SM ran in all.
        sub_partitions: warp schedulers of an SM.
        constants: of the recording GPU.
        one_wave: whether all its blocks were resident at once.
        shared_bytes_per_warp: shared memory of one block over its warps.
        l1_bytes: L1 of an SM beside its shared memory; 0: what it holds is not looked at.

    Returns:
        The busiest resource, counted or not, gives the service demand. With stall reasons in ``mix``: latency is what
        the stalls leave once waiting for service is taken off, and the serial share is such that the recorded time is
        1; where even 1 gives less, the service demand is more than counted; where too few warps compete to tell, it is
        a half.
        Without: what the busiest resource leaves of the time is latency. With no counters at all the kernel is taken to
        keep its SM half busy [D]. No latency is below the service demand: an instruction takes at least as long as it
        holds the resource that binds it.
    """
    per_scheduler = warps_per_block / sub_partitions
    busy = _busy(mix, blocks_per_sm)
    bound = max(range(len(busy)), key=lambda i: busy[i])
    mean = max(1.0, resident_blocks * per_scheduler)
    issue, *pipes = (b / mean for b in busy)
    demands = (issue / constants.sustained_issue_share, *pipes)
    others = tuple(b / mean for b in _busy_elsewhere(mix, blocks_per_sm, busy))
    service_demand, serial_share = max(demands[bound], *others), 0.0
    competing = competing_warps(resident_blocks, per_scheduler, one_wave)
    recorded = _recorded_stalls(mix)
    if mix is not None and recorded is not None:
        if mix.issue_cycles:  # Little's law: what no reason tells is latency
            recorded = recorded[0], max(recorded[1], mean / busy[0])
        path_busy = busy[L1_PATH] if demands[L1_PATH] == max(demands) else 0.0
        hidden = hidden_cycles(mix, shared_bytes_per_warp)
        latency = max(
            service_demand, _latency_share(*recorded, competing, resident_blocks, path_busy, hidden, constants)
        )
        if competing > FEWEST_TURNS:
            service_demand, serial_share = _turns(latency, service_demand, competing)
        else:
            serial_share = UNSEEN_SERIAL_SHARE
    else:
        latency = latency_beside(service_demand, 0.0, competing)
    latency = max(latency, service_demand)
    l1_set, l1_filled, l1_reused = _in_l1(mix, resident_blocks, l1_bytes, recorded[1] if recorded is not None else 0.0)
    demand = WarpDemand(
        per_scheduler,
        latency,
        service_demand,
        demands,
        bound,
        mix is not None and mix.counts(ALL_COUNTERS),
        serial_share,
        one_wave,
        others=others,
        cycles=recorded[1] if recorded is not None else 0.0,
        burst=burst_length(_of(recorded[0].wait)) if recorded is not None else 1.0,
        together=serial_share if competing > FEWEST_TURNS else 0.0,
        l1_set=l1_set,
        l1_filled=l1_filled,
        l1_reused=l1_reused,
    )
    return replace(demand, slots=issue * _time(demand, competing * service_demand))


def latency_beside(service_demand: float, serial_share: float, competing: float) -> float:
    """Latency with which an instruction takes a time of 1 beside ``competing`` warps; at least 0."""
    others = competing - 1.0
    squares = (competing * competing - 1.0) * service_demand * service_demand
    half = serial_share * others * service_demand
    return max(0.0, sqrt(max(0.0, half * half + 1.0 - squares + 2.0 * half * service_demand)) - half)


def _turns(latency: float, least: float, competing: float) -> tuple[float, float]:
    """Service demand and serial share with which an instruction takes a time of 1.

    ``least`` is the service demand that was counted, no more than the latency of the instruction. More than one warp
    competes for service.
    """
    others = competing - 1.0
    if latency + others * least <= 1.0:  # not even one after the other do they fill the time
        return (1.0 - latency) / others, 1.0
    missing = 1.0 - latency * latency - (competing * competing - 1.0) * least * least
    return least, missing / (2.0 * (latency - least) * others * least) if missing > 0.0 else 0.0


def demand_elsewhere(
    demand: WarpDemand,
    warps_per_scheduler: float,
    clock: float,
    lanes: float,
    source: ModelConstants,
    target: ModelConstants,
) -> WarpDemand:
    """Return the demand of a kernel's warps on an SM of another GPU.

    Latency keeps its cycles, so it scales with the clock, but is no less than the service demand. That at a pipe keeps
    its operations, so it scales with the clock and the FP32 lanes of an SM [D]. ``clock`` is the clock of the recording
    GPU over that of the other, ``lanes`` the same of the FP32 operations that an SM can start in a second;
    ``warps_per_scheduler`` is of one block on the other GPU.
    """
    service_demand = demand.service_demand * lanes
    return replace(
        demand,
        warps_per_scheduler=warps_per_scheduler,
        latency=max(demand.latency * clock, service_demand),
        service_demand=service_demand,
        demands=tuple(one * lanes for one in demand.demands),
        others=tuple(one * lanes for one in demand.others),
        slots=demand.slots * lanes,
    )


def mix_times(residents: Sequence[tuple[WarpDemand, int]], least: Sequence[float] = ()) -> list[float]:
    """Time per instruction of each kernel of a mix on one SM, relative to its recording.

    Args:
        residents: kernels with their resident blocks (at least 1 each), the one that was there first at the start.
        least: what no time may fall below, one each (`capped_time`); empty: no such limit.

    Returns:
        One time each. For one kernel with m warps a scheduler: sqrt(latency^2 + (m^2 - 1) service_demand^2) where its
        serial share is 0, latency + (m - 1) service_demand where it is 1. Beside others that over its progress there
        (`gpusim.model.mixing`).
    """
    filled = fsum([kernel.l1_set * count for kernel, count in residents])
    alone = [_time_alone(kernel, count, filled) for kernel, count in residents]
    if len(residents) > 1:
        uses = [use_of(kernel, count, time) for (kernel, count), time in zip(residents, alone, strict=True)]
        alone = [time / share for time, share in zip(alone, _mixed(residents, uses), strict=True)]
    return [max(time, floor) for time, floor in zip(alone, least, strict=True)] if least else alone


def _time_alone(kernel: WarpDemand, count: int, filled: float = 0.0) -> float:
    """Time per instruction of a kernel whose blocks have an SM alone, but for its L1, filled by sets of others too."""
    warps = competing_warps(count, kernel.warps_per_scheduler, kernel.one_wave)
    excess = filled - max(1.0, kernel.l1_filled, count * kernel.l1_set)
    time, longer = _time(kernel, warps * kernel.service_demand), 0.0
    if excess > 0.0:
        longer = min(1.0, LOST_OF_EXCESS * excess) * kernel.l1_reused
    return sqrt(time * time + longer * (2.0 * kernel.latency + longer)) if longer > 0.0 else time


def _in_l1(mix: Mix | None, resident_blocks: float, l1_bytes: float, cycles: float) -> tuple[float, float, float]:
    """Return `WarpDemand.l1_set`, `l1_filled` and `l1_reused` of a kernel; ``cycles`` is the time of an instruction.

    A kernel that finds most of its sectors in L1 has read each of them once from L2: that is its set. What it writes
    fills as much of L1 as it reads for each byte [D]. Where that exceeds L1, it read them again, because the set is
    larger than L1. Any other kernel, by its counters, may as well bypass L1: it fills nothing, and its hits are taken
    to be of sectors that it has just read.
    """
    hit = min(MOST_HITS, _of(mix.l1_hit_percent) / 100.0) if mix is not None else 0.0
    if mix is None or not l1_bytes or not mix.l1_read_bytes or hit < LEAST_HITS:
        return 0.0, 0.0, 0.0
    asked, written = mix.l1_read_bytes / (1.0 - hit), _of(mix.l1_write_bytes)
    most = ceil(resident_blocks - 1e-9)
    filled = most * mix.l1_read_bytes * (1.0 + written / asked) / l1_bytes
    if filled > 1.0:
        filled = 1.0 + (1.0 - hit) / LOST_OF_EXCESS
    if not cycles or not mix.warp_instructions:
        return filled / most, filled, 0.0
    reads = _of(mix.lsu_cycles) / mix.warp_instructions * asked / (asked + written)
    return filled / most, filled, hit * reads * L2_CYCLES / cycles


def use_of(kernel: WarpDemand, count: int, time: float) -> Use:
    """Return the use of an SM by an isolated kernel, where an instruction takes ``time``."""
    warps = count * kernel.warps_per_scheduler / time
    demands = [min(1.0, warps * one) for one in kernel.demands]
    tensor = blocked_slots(demands[ISSUE], demands[TENSOR])
    pipes = (*demands[ISSUE + 1 : LSU], *[min(1.0, warps * one) for one in kernel.others])
    return Use(
        issue=min(1.0, warps * (kernel.slots or kernel.demands[ISSUE])),
        pipes=pipes,
        operands=tensor,
        path=demands[L1_PATH],
        visit=demands[L1_PATH] / max(demands[LSU], LEAST_LSU),
        cycles=kernel.cycles * time,
        burst=kernel.burst,
        together=kernel.together,
        warps=count * kernel.warps_per_scheduler,
        slowest_counts=kernel.one_wave or kernel.warps_per_scheduler >= 1.0,
    )


def _mixed(residents: Sequence[tuple[WarpDemand, int]], uses: Sequence[Use]) -> list[float]:
    """Progress of each kernel of a mix, the mean over who is older."""
    pairs = [(one, other) for i, (one, _) in enumerate(residents) for other, _ in residents[i + 1 :]]
    in_order = fsum([chance_older(one, other) for one, other in pairs]) / len(pairs)
    shares = progress(uses)
    if in_order == 1.0:
        return shares
    turned = reversed(progress(uses[::-1]))
    return [in_order * one + (1.0 - in_order) * other for one, other in zip(shares, turned, strict=True)]


def chance_older(first: WarpDemand, second: WarpDemand) -> float:
    """Chance that a block of the kernel that was first on an SM is older than one of another there.

    Blocks in one wave are not replaced, so they stay the older ones. Of blocks that are, those that live longer are
    older on the mean: ages are anything up to the lives, so a share of the shorter life over twice the longer is not.
    """
    if first.one_wave:
        return 1.0
    if first.block_us <= 0.0 or second.block_us <= 0.0:
        return 0.5
    if first.block_us < second.block_us:
        return first.block_us / second.block_us / 2.0
    return 1.0 - second.block_us / first.block_us / 2.0


def competing_warps(blocks: float, warps_per_scheduler: float, one_wave: bool) -> float:
    """Competing warps on a scheduler, at least 1, for a mean number of blocks of one kernel on an SM.

    Those of the mean scheduler; of blocks in one wave those of the fullest, linear between whole numbers of blocks.
    """
    if not one_wave:
        return max(1.0, blocks * warps_per_scheduler)
    low = int(blocks)
    at_low, above = (max(1.0, ceil(count * warps_per_scheduler)) for count in (low, low + 1))
    return at_low + (blocks - low) * (above - at_low)


def time_at(kernel: WarpDemand, residents: float) -> float:
    """Time per instruction at a mean number of resident blocks, relative to the recording: linear in between."""
    low = int(residents)
    time = mix_times([(kernel, low)])[0]
    return time + (residents - low) * (mix_times([(kernel, low + 1)])[0] - time) if residents > low else time


def capped_time(kernel: WarpDemand, blocks: int, issue_share: float | None, l1_share: float | None) -> float:
    """Least time per instruction, relative to its recording, of a kernel that may use only a share of an SM.

    ``blocks`` are on the SM. The shares, over 0, are the most of the SM's issue slots and of its L1 and shared-memory
    data path that it may take; None: no limit. At that time it takes just that; 0 without a limit.
    """
    warps = blocks * kernel.warps_per_scheduler
    caps = (("issue_cycles", issue_share), ("l1_cycles", l1_share))
    return max([warps * kernel.demands[SHARED.index(name)] / share for name, share in caps if share], default=0.0)


def binding(residents: Sequence[tuple[WarpDemand, int]], index: int, dram: float, l2: float, own: MemoryLoad) -> str:
    """Resource that bounds one kernel of a mix (as for `mix_times`), by the largest part of its time.

    ``dram`` and ``l2`` are their loads, ``own`` the load of the kernel alone, as for
    `gpusim.model.memory.memory_slowdown`. It is latency, issue, alu, fma, tensor, lsu, l1, l2 or dram; unknown where
    its demands were not counted.
    """
    parts = time_parts(residents[index][0], mix_times(residents)[index])
    return (parts.bound_by, "dram", "l2")[memory_that_binds(parts.whole, parts.largest, dram, l2, own)]


def time_parts(kernel: WarpDemand, time: float) -> TimeParts:
    """The parts of the square of a kernel's time per instruction in its mix (`mix_times`)."""
    if not kernel.counted:
        return TimeParts(time * time, inf, UNKNOWN)
    latency, own, squared = kernel.latency * kernel.latency, kernel.service_demand * kernel.service_demand, time * time
    by_itself, waiting = latency - own, squared - latency + own
    if by_itself >= waiting:
        return TimeParts(squared, by_itself, "latency")
    return TimeParts(squared, waiting, kernel.resource)


@lru_cache(maxsize=10_000)
def age_shares(count: int, preference: float, most: float = inf) -> tuple[float, ...]:
    """How ``count`` co-resident blocks of one kernel split their SM's progress, oldest first; they sum to ``count``.

    Warp schedulers prefer old warps once they are saturated (seen on the H200: greedy, then oldest). Each block
    gets a share of ``1 - preference`` times that of the next older one, but at most ``most``, which is 1 or more.
    """
    weights = [*accumulate([1.0 - preference] * (count - 1), mul, initial=1.0)]
    for held in range(count):  # so many of the oldest blocks have the most
        scale = (count - held * most if held else count) / fsum(weights[held:])
        if scale * weights[held] <= most:
            return (*[most] * held, *[scale * weight for weight in weights[held:]])
    return (1.0,) * count


def _time(kernel: WarpDemand, queue: float) -> float:
    """Time of an instruction, if it and those that are served before it hold the binding resource for ``queue``."""
    latency, own = kernel.latency, kernel.service_demand
    both = 2.0 * kernel.serial_share * (latency - own) * (queue - own)
    return sqrt(latency * latency + both + queue * queue - own * own)


def fetch_stall_share(mix: Mix | None) -> float:
    """Share of a kernel's stalls that wait for an instruction or a constant (0 to 1); 0 where none tell."""
    recorded = _recorded_stalls(mix)
    if recorded is None:
        return 0.0
    stalls, total = recorded
    return (_of(stalls.no_instruction) + _of(stalls.imc_miss)) / total


def instruction_share(mix: Mix | None) -> float:
    """Share of `fetch_stall_share` that is for instructions, not for constants (0 to 1); 1 where no stalls tell."""
    recorded = _recorded_stalls(mix)
    fetches = fetch_stall_share(mix)
    if recorded is None or fetches == 0.0:
        return 1.0
    stalls, total = recorded
    return _of(stalls.no_instruction) / total / fetches


def memory_stall_share(mix: Mix | None) -> float:
    """Share of a kernel's stalls that wait for memory (0 to 1), by its recorded counters; 0 where none tell."""
    recorded = _recorded_stalls(mix)
    if recorded is not None:
        stalls, total = recorded
        return _of(stalls.long_scoreboard) / total
    return 0.0 if mix is None else _of(mix.memory_stall_percent) / 100.0


def queued_shares(mix: Mix | None, exposed: float = 1.0, full: float = 0.0) -> tuple[float, float]:
    """Most of a kernel's recorded time that it can have waited for queues of L2 and DRAM (0 to 1), by its stalls.

    Two parts: waits for reads, which count as latency, and throttles, which do not. 1 and 0 where no stalls tell.
    Throttles are such queues throughout. So is the long scoreboard while the queue is full, and as far as the kernel
    reads ahead of the latency [D]: ``exposed`` is the share of its waits that the latency takes. Where DRAM was full
    (``full``, 0 to 1), warps of a kernel that reads ahead wait at barriers for what its other stalls wait for [D].
    """
    recorded = _recorded_stalls(mix)
    if recorded is None:
        return 1.0, 0.0
    stalls, total = recorded
    throttled = (_of(stalls.lg_throttle) + _of(stalls.mio_throttle)) / total
    ahead, others = 1.0 - exposed, total - _of(stalls.barrier)
    at_barriers = full * ahead * _of(stalls.barrier) / others if others > 0.0 else 0.0
    return (1.0 + at_barriers) * _queued_reads(stalls, total, ahead), throttled


def full_queue_share(mix: Mix | None) -> float:
    """Share of a kernel's recorded time that it waited for L2 while the queue to it was full (0 to 1), by its stalls.

    0 where none tell.
    """
    recorded = _recorded_stalls(mix)
    if recorded is None:
        return 0.0
    stalls, total = recorded
    return _queue_fullness(stalls, total) * (_queued_reads(stalls, total) + _waits_for_room(stalls, total))


def _queued_reads(stalls: WarpStalls, total: float, ahead: float = 0.0) -> float:
    """Most of a kernel's recorded time that its reads can have waited in the queues of L2 and DRAM."""
    queued = QUEUED_SHARE + (1.0 - QUEUED_SHARE) * min(1.0, _queue_fullness(stalls, total) + ahead)
    return queued * _of(stalls.long_scoreboard) / total


def _queue_fullness(stalls: WarpStalls, total: float) -> float:
    """Share of a kernel's time in which the queue to memory is taken to have been full (0 to 1) [D]."""
    return min(1.0, _waits_for_room(stalls, total) / FULL_QUEUE_STALLS)


def _waits_for_room(stalls: WarpStalls, total: float) -> float:
    """Share of a kernel's time in which its warps waited for room in the queue to memory."""
    return _of(stalls.lg_throttle) / total


def hit_wait_share(mix: Mix | None) -> float:
    """Share of a kernel's recorded time in which its warps waited for reads that L2 held (0 to 1), by its counters.

    Waits at the long scoreboard are taken to be for hits and misses as there are of either [D]; 0 where no stalls tell.
    """
    if mix is None or _recorded_stalls(mix) is None or not mix.l2_read_bytes:
        return 0.0
    return memory_stall_share(mix) * (1.0 - missed_share(mix))


def missed_share(mix: Mix) -> float:
    """Share of a kernel's reads at L2 that DRAM served; 0 where no counters tell."""
    return min(1.0, SECTORS_OF_A_MISS * _of(mix.dram_read_bytes) / mix.l2_read_bytes) if mix.l2_read_bytes else 0.0


def _busy(mix: Mix | None, blocks_per_sm: float) -> list[float]:
    """How busy each shared resource of an SM was in the recording (0 to 1), in the order of `SHARED`."""
    if mix is not None and mix.active_cycles_avg and mix.issue_cycles is not None:
        cycles = [getattr(mix, name) or 0.0 for name in SHARED]
        return [min(1.0, max(c * blocks_per_sm / mix.active_cycles_avg, 1e-3)) for c in cycles]
    known = mix.alu_utilisation_percent if mix is not None else None
    return [(50.0 if known is None else max(known, 0.1)) / 100.0] + [1e-3] * (len(SHARED) - 1)


def _busy_elsewhere(mix: Mix | None, blocks_per_sm: float, busy: Sequence[float]) -> list[float]:
    """How busy each of `OTHER_PIPES` was, and one that was not counted: at most as busy as the SM [D]."""
    if mix is None or not mix.active_cycles_avg:
        return [0.0] * (len(OTHER_PIPES) + 1)
    cycles = [_of(getattr(mix, name)) for name in (*OTHER_PIPES, "sm_cycles")]
    *pipes, sm = [min(1.0, c * blocks_per_sm / mix.active_cycles_avg) for c in cycles]
    return [*pipes, sm if sm > max(*busy, *pipes) + UNCOUNTED else 0.0]


def _recorded_stalls(mix: Mix | None) -> tuple[WarpStalls, float] | None:
    """Why a kernel's warps waited, and the sum of all reasons; None where nothing tells."""
    if mix is None or mix.stalls is None:
        return None
    total = fsum(getattr(mix.stalls, reason) or 0.0 for reason in WarpStalls.model_fields)
    return (mix.stalls, total) if total > 0.0 else None


def _latency_share(
    stalls: WarpStalls,
    total: float,
    competing: float,
    resident: float,
    path_busy: float,
    hidden: float,
    constants: ModelConstants,
) -> float:
    """Share of an instruction's time that is latency, by the stall reasons.

    Not selected, dispatch and the throttles are waiting for service. So are most of barriers and short scoreboard, and
    long scoreboard where the L1 path binds: the busier the path, the larger its part.

    Args:
        stalls: the stall reasons, per issued instruction.
        total: their sum.
        competing: warps that compete for service.
        resident: mean resident blocks of an SM: a block alone waits at barriers for its own warps.
        path_busy: how busy the L1 path was where it is what binds; else 0.
        hidden: cycles that count as waiting for service, and in which an isolated warp would wait for memory.
        constants: of the recording GPU.
    """
    others = 1.0 - 1.0 / competing
    turns = (
        _of(stalls.not_selected)
        + _of(stalls.math_pipe_throttle)
        + _of(stalls.dispatch)
        + _of(stalls.mio_throttle)
        + _of(stalls.lg_throttle)
        + others
        * (
            constants.waiting_turn_share * _of(stalls.short_scoreboard)
            + path_busy * path_busy * _of(stalls.long_scoreboard)
        )
        + (1.0 - 1.0 / resident) * constants.waiting_turn_share * _of(stalls.barrier)
    )
    return min(1.0, max(1.0, total - max(0.0, turns - hidden)) / total)


def hidden_cycles(mix: Mix, shared_bytes_per_warp: float) -> float:
    """Cycles of an instruction that an isolated warp waits for DRAM, and that service of other warps hides.

    A warp waits once for what it reads ahead [D]: in half of its share of the shared memory, or in registers. The
    long scoreboard that the recording shows is not hidden. 0 where counters do not tell.
    """
    if mix.stalls is None or not mix.warp_instructions:
        return 0.0
    in_flight = max(LEAST_IN_FLIGHT_BYTES, shared_bytes_per_warp / BUFFERS)
    waits = DRAM_LATENCY_CYCLES * _of(mix.dram_read_bytes) / in_flight / mix.warp_instructions
    return max(0.0, waits - _of(mix.stalls.long_scoreboard))


def _of(value: float | None) -> float:
    return value or 0.0
