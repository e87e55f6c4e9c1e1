"""A launch on idle SMs, simulated once: its timeline is the same each time.

A stream of 5,000 launches replays in a quarter of the time so (`gpusim bench --only chain`).

What must be the same to the last bit, whether a launch is stepped through or known: its start, dispatch and end, where
its blocks ran, and what bound it. A policy decides at these times, and a difference in the last bit would put two
events in another order. Therefore the SMs' clock starts from 0 at each launch that finds them idle. Both ways add
the launch's time to its start once, as the event loop does: it waits for the difference. Uses over time are only
equal to rounding, because known ones are added up in another order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial

from gpusim.engine.grants import NO_LIMITS, held_to, limits_of
from gpusim.engine.rates import KNOWN_MIXES, Rates
from gpusim.engine.sm_array import sm_array
from gpusim.engine.tables import NEVER
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.policies.interface import Grant
from gpusim.results.runs import Spans

MOST_KNOWN = 4_096  # launches that are remembered, 10 KB each
MOST_DIVISIONS = 4  # of GPUs into memory domains, for which they are
_Key = tuple[object, ...]  # a kernel and what it is granted


@dataclass(frozen=True, slots=True)
class Alone:
    """The timeline of a launch on idle SMs, in us from when its first blocks are placed."""

    us: float  # its last block ends
    dispatched_us: float  # its last block is placed
    spans: Spans  # where its blocks run
    uses: array[float]  # as `gpusim.engine.core.SMArray.uses`
    bound_by: str  # resource that binds it
    limits: frozenset[str]  # those of `gpusim.results.runs.LIMITS` that its grant holds it to


class IdleSMs:
    """The SMs of a GPU for one launch after another.

    ``domains`` has the memory domain of each SM (None: one has all), ``domain_share`` the share of L2 and DRAM of each.
    """

    def __init__(self, gpu: GPU, domains: list[int] | None = None, domain_share: Sequence[float] = (1.0,)) -> None:
        self.gpu = gpu
        self.models: dict[int, KernelModel] = {}  # of the launch that they run
        self.rates = rates = Rates(KNOWN_MIXES, self.models.__getitem__, (), gpu.sm_count, domain_share)
        self.sms = sm_array(
            gpu, 1, rates.resolve, lambda slot: self.models[slot].footprint, None, domains, domain_share, bins=2
        )


def alone_under(grant: Grant, model: KernelModel, idle: IdleSMs) -> Alone:
    """Replay one launch on idle SMs; to the last bit what `gpusim.engine.device.Device` does with it there.

    The grant is of blocks on at least one SM, and no share or quota.
    """
    sms = idle.sms
    caps, limits = held_to(grant, model.blocks_per_sm, idle.gpu.sm_count)
    idle.models[0] = model
    sms.restart_clock(0.0)
    sms.forget_uses()
    sms.forget_mixes()
    sms.submit(0, model)
    sms.set_caps(0, caps)
    sms.set_dispatch_order([0], [0])
    sms.dispatch()
    sms.look(idle.rates.time_parts)
    sms.advance(NEVER)
    sms.book()
    return Alone(sms.now, sms.dispatched(0), sms.span_columns(0), sms.uses(), sms.most_bound_by(0), limits)


class KnownRuns:
    """Timelines of launches on idle SMs, for one replay: known when an equal launch comes for the second time.

    Later replays use these timelines, too. Each still simulates the first of equal launches, so its result does not
    depend on the replays before it.

    Arguments are as of `IdleSMs`.
    """

    def __init__(self, gpu: GPU, domains: list[int] | None, domain_share: Sequence[float]) -> None:
        self._gpu = gpu
        self._idle = cache(partial(IdleSMs, gpu, domains, domain_share))  # made when first needed
        self._came: set[_Key] = set()  # kernels and grants
        self._known = _simulated(gpu, None if domains is None else tuple(domains), tuple(domain_share))

    def find(self, model: KernelModel, grant: Grant) -> Alone | None:
        """The timeline of a launch; None where it comes for the first time, or its grant has limits or no blocks."""
        if limits_of(grant) != NO_LIMITS:
            return None
        key = model.identity, grant.blocks_per_sm, grant.sms, grant.per_sm
        if key not in self._came:
            if len(self._came) > MOST_KNOWN:
                self._came.clear()
            self._came.add(key)
            return None
        if key not in self._known:
            if not any(held_to(grant, model.blocks_per_sm, self._gpu.sm_count)[0]):
                return None
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            self._known[key] = alone_under(grant, model, self._idle())
        return self._known[key]


@lru_cache(MOST_DIVISIONS)
def _simulated(gpu: GPU, domains: tuple[int, ...] | None, domain_share: tuple[float, ...]) -> dict[_Key, Alone]:
    """The launches on idle SMs that any replay of this process has simulated; arguments as of `IdleSMs`."""
    return {}
