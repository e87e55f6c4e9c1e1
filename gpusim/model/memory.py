"""The memory term of the contention model: what loads on L2 and DRAM do to a kernel's time, and the inverse.

This file holds each formula once. The fit, the views of policies and the plain core import it; the build joins it into
the compiled core (`gpusim.engine.compiled`), for which ``memory.pxd`` holds the types.

A memory system at load rho lengthens a kernel's time by (1 + rho^e)^(1/e). The exponent e is 2 for DRAM, whose queues
are felt early, and 8 for L2, which is felt when it is full [D]. A kernel that reads ahead also feels DRAM when it is
full (experiments/h100_microbench, ring.csv). Exponents are powers of two, so only multiplications and square roots
occur, and the result is the same to the bit on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

MOST_BUSY = 0.995  # a counter that reads more than the sustained rate is taken as this busy
LEAST_SHARE = 0.8  # of what L2 and DRAM sustain of streams, that they sustain of other accesses, at least [D]
HIT_QUEUE = 1.5  # how much longer, relative, a hit in L2 takes where L2 is as busy as it can be [D]
MISS_LATENCY = 2.34  # of DRAM over L2, both idle: 355 and 152 ns ([V] experiments/h200_microbench, memory.csv)
CODE_LATENCY = 5.2  # of code that caches have lost, over that as recorded ([V] experiments/neighbours, code_beside.csv)
LOST_TO_LAUNCH = (
    0.26  # of a program's code, by a launch of another: it then takes 2.1 times as long as recorded. Fitted with
)
# `block_delay_us` to whole programs beside kernels that only spin ([V] experiments/advise, beside_spins.csv)
LOST_ON_SMS = 0.3  # of it, by a kernel of another program on the same SMs: about what four pairs of programs lose whose
# kernels take turns ([D]; experiments/advise, interleaved.csv)
STREAM_QUEUE = 1.0  # how much longer, relative, reads from DRAM take where it is as busy as it can be: of a copy on an
# H100 1.10, 1.21 and 1.32 times at 0.36, 0.48 and 0.59 over 0.20 ([V] experiments/single_resource); of lost code beside
# reads 1.26 and 1.86 at 0.34 and 0.82 over 0.04 ([V] experiments/neighbours, code_beside.csv)
IDLE_READ_US = 0.6  # of a copy from an idle DRAM. From a full one it takes as long as DRAM needs for all that is
# under way, and a read of 4 bytes 0.6 times that: 0.36 us where DRAM is idle ([V] h200_microbench, under_way.csv)
HIT_US = 0.152  # of a read that an idle L2 serves ([V] experiments/h200_microbench, memory.csv)
LAUNCH_READS = 2  # of DRAM, one after the other, by a launch of a CUDA graph ([V] launches_under_load.csv)
HALVINGS = 40  # of an interval, after which it is as narrow as it matters


class MemoryLoad(NamedTuple):
    """Load on L2 and DRAM by one resident block that progresses as recorded (1: the whole capacity)."""

    dram: float  # load of DRAM
    l2: float  # load of L2
    # how much longer its kernel takes, relative, for each unit of L2's load, waiting for what L2 holds
    hits: float = 0.0
    # share of DRAM's load that it feels before DRAM is full: what it does not hide by reading ahead
    early: float = 1.0


class MemoryWait(NamedTuple):
    """What of a kernel's time is latency of L2 and DRAM, and what of L2's contents it reads.

    Bytes are relative to those that L2 keeps while others are touched (`l2_kept_share`).
    """

    share: float = 0.0  # of its recorded time, in which its warps wait for data and nothing hides it
    # how much of a short additional wait lengthens its time: 1 where waits and turns add one after the other
    serial: float = 0.0
    misses: float = 0.0  # share of its reads that DRAM served: as counted, but no more than its own data replace in L2
    passing: float = 0.0  # bytes that DRAM moves in its recorded time, if others keep it busy
    touched: float = 0.0  # bytes that it reads and writes itself
    code: float = 0.0  # share of its recorded time, in which its warps wait for instructions and constants
    ahead: float = 0.0  # `IDLE_READ_US` over the time for which its reads are ahead of their use; 0: they are not
    # time that DRAM needs for what a resident block has under way where DRAM binds the kernel, over `IDLE_READ_US`
    under_way: float = 0.0
    own_under_way: float = 0.0  # the same of all its blocks alone on the whole device, as far as DRAM binds it


def lost_share(touched: float) -> float:
    """Share of L2's contents that is gone after others were touched, relative to what it keeps [D] (l2_kept)."""
    return 0.0 if touched < 1.0 else touched - 1.0 if touched < 2.0 else 1.0


def lost_to_others(own: float, others: float) -> float:
    """Share of what L2 holds of a kernel's data that others replace; they and it touch so much over what L2 keeps."""
    held = 1.0 - lost_share(own)
    return 1.0 - (1.0 - lost_share(own + others)) / held if held > 0.0 else 0.0


def lost_code(own: float, others: float, from_l2: float, launches: float, on_sms: float) -> float:
    """Share of its code that a kernel has lost to other programs, 0 to 1.

    Args:
        own: what DRAM moved for its own program since it came last, relative to what L2 keeps.
        others: the same for others.
        from_l2: share of its code that it loses where L2 does, 0 to 1.
        launches: share of the kernel's launches that follow one of another program, 0 to 1.
        on_sms: the same, times the share of the SMs on which the other program's kernel ran.
    """
    lost = from_l2 * lost_to_others(own, others)
    return lost + (1.0 - lost) * (LOST_TO_LAUNCH * launches + LOST_ON_SMS * on_sms)


def dram_queue(busy: float, under_way: float) -> float:
    """How much longer a read takes because DRAM is full, relative to one from an idle DRAM.

    By Little's law, reads take as long as DRAM needs for all that is under way: `STREAM_QUEUE` tells part of that.

    Args:
        busy: share of the time in which DRAM is busy.
        under_way: time that it needs for what is under way, over `IDLE_READ_US`.
    """
    more = under_way - 1.0 - STREAM_QUEUE
    return busy * busy * busy * busy * more if more > 0.0 else 0.0


def launch_wait_us(dram: float, l2: float, queue: float) -> float:
    """Delay of a launch of a CUDA graph by the memory traffic of others, us: its reads wait as copies do [D].

    Args:
        dram: share of the time in which DRAM is busy.
        l2: the same of L2.
        queue: as of `dram_queue`.
    """
    return HIT_US * HIT_QUEUE * l2 + LAUNCH_READS * IDLE_READ_US * (STREAM_QUEUE * dram * dram + queue)


def wait_slowdown(
    dram: float,
    l2: float,
    own_dram: float,
    wait: Sequence[float],
    code_lost: float = 0.0,
    at: int = 0,
    queue: float = 0.0,
) -> float:
    """Factor by which other kernels lengthen a kernel's time, because its reads take longer.

    Reads from L2 and from DRAM take longer the busier these are; where DRAM is full, reads from L2 wait behind others'.
    Traffic of other kernels with DRAM also replaces the kernel's data in L2: DRAM then serves reads that L2 served in
    the recording. It also serves instructions and constants, where other code ran since the kernel ran last. A kernel
    that reads ahead is slowed by reads that take longer than they are ahead.

    Args:
        dram: share of the time in which others keep DRAM busy, 0 to 1.
        l2: the same of L2.
        own_dram: share of the time in which the kernel itself keeps DRAM busy.
        wait: a `MemoryWait`.
        code_lost: share of its code that the caches have lost, 0 to 1.
        at: where it begins in ``wait``; the core keeps those of all launches in one table.
        queue: as of `dram_queue`, by all kernels.
    """
    share = wait[at]
    serial = wait[at + 1]
    recorded = wait[at + 2]
    misses = recorded + (1.0 - recorded) * lost_to_others(wait[at + 4], wait[at + 3] * dram)
    own_queue = dram_queue(own_dram, wait[at + 8])
    own_queue = own_queue if own_queue < queue else queue
    read = 1.0 + STREAM_QUEUE * (own_dram + dram) * (own_dram + dram) + queue
    own_read = 1.0 + STREAM_QUEUE * own_dram * own_dram + own_queue
    before = (1.0 - recorded) * (1.0 + MISS_LATENCY * own_queue) + recorded * MISS_LATENCY * own_read
    now = (1.0 - misses) * (1.0 + HIT_QUEUE * l2 + MISS_LATENCY * queue) + misses * MISS_LATENCY * read
    longer = share * (now / before - 1.0) + wait[at + 5] * code_lost * (CODE_LATENCY * read - 1.0)
    ahead = wait[at + 6] * read
    own_ahead = wait[at + 6] * own_read
    late = (ahead if ahead > 1.0 else 1.0) / (own_ahead if own_ahead > 1.0 else 1.0) - 1.0
    return math.sqrt(1.0 + longer * (2.0 * serial + longer)) + late


def memory_slowdown(dram: float, l2: float, own: Sequence[float], cycle: float = 1.0, at: int = 0) -> float:
    """Factor by which a memory system at a load, and a longer cycle of the SMs, lengthen a kernel's time.

    Args:
        dram: load of DRAM, demand of all residents over what it sustains.
        l2: load of L2, the same.
        own: a `MemoryLoad`: the load that this kernel alone puts on them where it fills the whole device. A kernel of
            little traffic slows down little, and none waits longer for hits than as it was recorded [D].
        cycle: of the SMs, over their cycle when the kernel was recorded: it lengthens what is left of the time when
            memory is free.
        at: where the kernel's load begins in ``own``; the core keeps those of all launches in one table.
    """
    own_dram = own[at]
    own_l2 = own[at + 1]
    hits = own[at + 2]
    d = dram * (own_dram if own_dram < dram else dram)
    t = l2 * (own_l2 if own_l2 < l2 else l2)
    early = own[at + 3]
    inner = (cycle * cycle + early * d) * (cycle * cycle + early * d)
    late = (1.0 - early * early * early * early) * d * d * d * d
    most = own_l2 if own_l2 < 1.0 else 1.0
    waited = 1.0 + hits * (l2 if l2 < most else most)
    return waited * math.sqrt(math.sqrt(math.sqrt(inner * inner + late + t * t * t * t)))


def memory_that_binds(whole: float, largest: float, dram: float, l2: float, own: Sequence[float], at: int = 0) -> int:
    """Whether waiting for memory is the largest part of a kernel's time: 1 for DRAM, 2 for L2, 0 for neither.

    Args:
        whole: the square of its time on the SM (`gpusim.model.contention.TimeParts`).
        largest: the largest part of that.
        dram: load of DRAM.
        l2: load of L2.
        own: as of `memory_slowdown`.
        at: as of `memory_slowdown`.
    """
    by_dram = memory_slowdown(dram, 0.0, own, 1.0, at)
    by_l2 = memory_slowdown(0.0, l2, own, 1.0, at)
    of_dram = whole * (by_dram * by_dram - 1.0)
    of_l2 = whole * (by_l2 * by_l2 - 1.0)
    if largest >= of_dram and largest >= of_l2:
        return 0
    return 1 if of_dram >= of_l2 else 2


def memory_free_share(dram_busy: float, l2_busy: float) -> float:
    """Share of a recorded time that is left when L2 and DRAM are free, from how busy each was (0 to 1).

    The inverse of `memory_slowdown` for a kernel alone: busy = load / slowdown.
    """
    l4 = l2_busy * l2_busy * l2_busy * l2_busy
    rest = math.sqrt(math.sqrt(1.0 - l4 * l4))
    return math.sqrt(max(rest - dram_busy * dram_busy, 0.0004))


def dram_fullness(busy: float) -> float:
    """How far DRAM was full in a recording, 0 to 1, from how busy it was, relative to streams.

    It may sustain as little as `LEAST_SHARE` of streams, and is not full below that [D].
    """
    return max(0.0, min(1.0, busy) - LEAST_SHARE) / (1.0 - LEAST_SHARE)


def l2_busy_at(waited: float) -> float:
    """L2 load at which a kernel waits for L2 for a share of its time: the inverse of `memory_free_share`."""
    free2 = (1.0 - waited) * (1.0 - waited)
    return math.sqrt(math.sqrt(math.sqrt(1.0 - free2 * free2 * free2 * free2)))


def loads_beside(
    dram_busy: float, l2_busy: float, least_free: float, full_share: float = 0.0, longer: float = 0.0
) -> tuple[float, float, float]:
    """Demand on L2 and DRAM in a recording, from how busy each was.

    Args:
        dram_busy: of the recorded time, 0 to 1 and more, where a counter reads more than what is sustained.
        l2_busy: the same.
        least_free: share of the recorded time that the SMs alone took. Where the two would leave less, the kernel
            cannot have waited that long: it hides their latency, and both count less, by one factor [D].
        full_share: share of the recorded time that it waited while the queue to L2 was full. L2 then served all that it
            could, though its counters, which are relative to streams, may say less: it counts as busy enough to keep
            the kernel waiting so long, where it sustains `LEAST_SHARE` of streams or more. Else the SM's own path
            filled the queue [D].
        longer: how many times as long as in an idle GPU its reads took, at least. DRAM counts as busy enough for that,
            where it sustains `LEAST_SHARE` of streams or more [D].

    Returns:
        Loads of DRAM and L2 when neither lengthens anything, and the share of the time that is left then.
    """
    full = min(l2_busy / LEAST_SHARE, l2_busy_at(full_share))
    queued = min(dram_busy / LEAST_SHARE, math.sqrt(max(0.0, longer - 1.0) / STREAM_QUEUE))
    dram, l2 = min(max(dram_busy, queued), MOST_BUSY), max(min(l2_busy, MOST_BUSY), full)
    felt, free = 1.0, memory_free_share(dram, l2)
    if free < least_free:
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            felt = (low + high) / 2.0
            if memory_free_share(felt * dram, felt * l2) < least_free:
                high = felt
            else:
                low = felt
        felt = low
        free = memory_free_share(felt * dram, felt * l2)
    return felt * dram / free, felt * l2 / free, free


def read_ahead(dram: float, l2: float, free: float, early: float) -> tuple[float, float, float]:
    """Loads of a kernel that reads ahead, and the share of DRAM's load that it feels early.

    It hides that reads take longer until DRAM is full. So DRAM was full in the recording, though its counters, which
    are relative to streams, may say less: both loads count more by one factor, with which they lengthen its time as
    before. Where DRAM would sustain less than `LEAST_SHARE` of streams, it was not full, and all stays [D].

    Args:
        dram: its load of DRAM, felt early.
        l2: its load of L2.
        free: share of its recorded time that is left when neither lengthens it.
        early: `MemoryLoad.early`, where DRAM was full.
    """

    def lengthens(more: float) -> float:
        load = MemoryLoad(more * dram, more * l2, early=early)
        return memory_slowdown(load.dram, load.l2, load)

    low, high = 0.0, 1.0 / LEAST_SHARE
    if early >= 1.0 or lengthens(high) * free < 1.0:
        return dram, l2, 1.0
    for _ in range(HALVINGS):
        more = (low + high) / 2.0
        low, high = (low, more) if lengthens(more) * free > 1.0 else (more, high)
    return low * dram, low * l2, early


def hit_queue(share: float, l2: float, most: float) -> tuple[float, float]:
    """Time that a kernel waited in the recording because hits in L2 take longer as L2 fills.

    Args:
        share: of its time that it waited for hits.
        l2: its load of L2.
        most: of its time that it can have waited longer.

    Returns:
        The share of its time that is lost so, and `MemoryLoad.hits`: how much longer it takes, relative, for each unit
        of L2's load, with which a load of ``l2`` lengthens it by just that.
    """
    busy = min(1.0, l2)
    waited = min(most, share * HIT_QUEUE * busy / (1.0 + HIT_QUEUE * busy))
    return waited, waited / (1.0 - waited) / busy if waited > 0.0 else 0.0
