"""The SMs of a GPU as replays use them, and one launch alone on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from math import fsum
from operator import sub
from typing import NamedTuple

from gpusim.engine.compiled import tell_if_plain
from gpusim.engine.core import SMArray
from gpusim.engine.domains import Slowdowns
from gpusim.engine.history import BINS
from gpusim.engine.mixes import Mix, MixRates, Resolve
from gpusim.engine.tables import NEVER
from gpusim.hardware.compute_capability import SMLimits
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel, mix_rates
from gpusim.model.occupancy import Footprint, register_blocks
from gpusim.policies.interface import Domains

SoloRates = tuple[float, float, float]  # of a block of a launch that has its SM alone (1/us), and its memory loads
# Change of a domain's load after which its slowdown is worked out anew. Just over 0.02: as 50 equal blocks become 49,
# the load changes by just that, and rounding would decide.
LOAD_STEP = 0.020001
MOST_ANSWERS = 100_000  # on how many blocks of a kernel fit beside others, that are remembered


class AloneTimes(NamedTuple):
    """A launch alone on the whole GPU."""

    makespan_us: float  # from its first block's start to its last one's end
    residents: float  # mean resident blocks of an SM while it was active
    active: float  # the SMs' mean active share of the makespan


def sm_array(
    gpu: GPU,
    slots: int,
    resolve: Resolve,
    footprint: Callable[[int], Footprint],
    slowdowns: Slowdowns | None = None,
    domains: list[int] | None = None,
    capacity: Sequence[float] = (1.0,),
    bins: int = BINS,
) -> SMArray:
    """The SMs of a GPU, empty; `SMArray` says of what; by default one memory domain has all.

    ``footprint`` gives that of a block of the launch in a slot.
    """
    tell_if_plain()
    limits = gpu.limits

    most = _register_blocks(limits)

    def most_beside(others: Mix, slot: int) -> int:
        return most(tuple([(footprint(other), count) for other, count in others]), footprint(slot))

    domains = domains if domains is not None else [0] * gpu.sm_count
    return SMArray(
        gpu.sm_count,
        limits.max_blocks_per_sm,
        slots,
        limits.capacity,
        list(range(gpu.sm_count)),
        domains,
        list(capacity),
        resolve,
        most_beside,
        slowdowns,
        gpu.model.tensor_cycle,
        LOAD_STEP,
        bins,
        gpu.gpc_of_sm,
    )


@cache
def _register_blocks(limits: SMLimits) -> Callable[[tuple[tuple[Footprint, int], ...], Footprint], int]:
    """`register_blocks` of an SM, each answer worked out once for all replays of this process."""
    return lru_cache(MOST_ANSWERS)(partial(register_blocks, limits))


def domain_of_sm(domains: Domains, gpu: GPU) -> list[int] | None:
    """For each SM the number of its memory domain; None: all share all."""
    if domains is None:
        return None
    of_sm = [0] * gpu.sm_count
    for number, (sms, _) in enumerate(domains):
        for sm in sms:
            of_sm[sm] = number
    return of_sm


def run_alone(model: KernelModel, gpu: GPU) -> AloneTimes:
    """Isolated time of one launch, without launch latency; the fit needs nothing else."""
    return alone_on(gpu)(model)


def alone_on(gpu: GPU) -> Callable[[KernelModel], AloneTimes]:
    """Function that replays one launch as `run_alone` does, on the same SMs again and again.

    The launch may have another seed, ramp and age preference each time: what does not change is worked out once.
    """
    known: dict[int, SoloRates] = {}  # by resident blocks
    launch: KernelModel  # as it is now

    def resolve(mix: Mix) -> MixRates:
        count = mix[0][1]
        if count not in known:
            (rate,), dram, l2 = mix_rates([(launch, count)])
            known[count] = rate, dram, l2
        rate, dram, l2 = known[count]
        return [launch.by_age(count, rate)], dram, l2

    array = sm_array(gpu, 1, resolve, lambda slot: launch.footprint, bins=2)

    def replayed(model: KernelModel) -> AloneTimes:
        nonlocal launch
        launch = model
        array.restart_clock(0.0)
        array.forget_uses()
        array.forget_slot(0)
        array.submit(0, model)
        array.set_caps(0, [model.blocks_per_sm] * gpu.sm_count)
        array.set_dispatch_order([0], [0])
        array.dispatch()
        array.advance(NEVER)
        _, _, starts, ends = array.span_columns(0)
        held, active = array.block_time(), fsum(map(sub, ends, starts))
        return AloneTimes(array.now, held / active, active / gpu.sm_count / array.now)

    return replayed
