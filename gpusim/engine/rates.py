"""How fast the kernels on the SMs progress: in mixes, and held to the limits of their grants."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from gpusim.engine.core import SMArray
from gpusim.engine.grants import NO_LIMITS, Limits
from gpusim.engine.mixes import Mix, MixRates
from gpusim.model.contention import TimeParts, capped_time, mix_times, time_parts
from gpusim.model.kernel import KernelModel, loads_at, mix_rates
from gpusim.model.rounds import round_rates

MOST_MIXES = 100_000  # that are remembered by their kernels, half a kilobyte each
T = TypeVar("T")
KernelMix = list[tuple[KernelModel, int]]  # kernels with their resident blocks on one SM


class KnownMixes:
    """Rates and times of mixes without limits, each worked out once.

    They depend on the kernels only, so all replays of a process share `KNOWN_MIXES`.
    """

    def __init__(self) -> None:
        self._rates: dict[tuple[tuple[object, int], ...], tuple[list[float], float, float]] = {}
        self._times: dict[tuple[tuple[object, int], ...], list[float]] = {}
        self._by_age: dict[tuple[tuple[object, int], ...], MixRates] = {}

    def rates(self, mix: KernelMix) -> tuple[list[float], float, float]:
        """`mix_rates` without limits."""
        return _known(self._rates, mix, mix_rates)

    def rates_by_age(self, mix: KernelMix) -> MixRates:
        """The same with the rates of each kernel's blocks, the oldest first."""
        return _known(self._by_age, mix, self._work_out_by_age)

    def _work_out_by_age(self, mix: KernelMix) -> MixRates:
        return _by_age(mix, *self.rates(mix))

    def times(self, mix: KernelMix) -> list[float]:
        """`mix_times` without limits."""
        return _known(self._times, mix, _times_of)


KNOWN_MIXES = KnownMixes()


def _known(known: dict[tuple[tuple[object, int], ...], T], mix: KernelMix, work_out: Callable[[KernelMix], T]) -> T:
    key = tuple([(model.identity, count) for model, count in mix])
    found = known.get(key)
    if found is None:
        if len(known) > MOST_MIXES:
            known.clear()
        found = known[key] = work_out(mix)
    return found


def _by_age(mix: KernelMix, rates: Sequence[float], dram: float, l2: float) -> MixRates:
    """The rates of a mix with those of each kernel divided among its blocks, the oldest first."""
    divided = [model.by_age(count, rate) for (model, count), rate in zip(mix, rates, strict=True)]
    return divided, dram, l2


def _times_of(mix: KernelMix) -> list[float]:
    return mix_times([(model.demand, count) for model, count in mix])


class Rates:
    """Rates of mixes, as the grants of their kernels let them be.

    ``model`` gives the kernel in a slot; ``slots`` are those in use.
    """

    def __init__(
        self,
        mixes: KnownMixes,
        model: Callable[[int], KernelModel],
        slots: Collection[int],
        sm_count: int,
        domain_share: Sequence[float],
    ) -> None:
        self._mixes = mixes
        self._model = model
        self._slots = slots
        self._sm_count = sm_count
        self._domain_share = domain_share
        self.limits: dict[int, Limits] = {}
        self._mix_loads: dict[Mix, list[tuple[float, float]]] = {}  # DRAM and L2 load of each kernel of a mix

    def forget_mixes(self) -> None:
        """Drop the known memory loads of mixes: limits or kernels of slots have changed."""
        self._mix_loads.clear()

    def resolve(self, mix: Mix) -> MixRates:
        """The result of `gpusim.engine.mixes.Resolve`: progress by slot and age, and memory loads."""
        residents = [(self._model(slot), count) for slot, count in mix]
        if not self.limits:
            return self._mixes.rates_by_age(residents)
        return _by_age(residents, *self._limited_rates(mix, residents))

    def time_parts(self, mix: Mix, slot: int) -> TimeParts:
        """Return the parts of the time of a slot's kernel in a mix without limits; with no mix, in isolation."""
        model = self._model(slot)
        met = mix or ((slot, model.most_resident),)
        times = self._mixes.times([(self._model(other), count) for other, count in met])
        return time_parts(model.demand, times[[other for other, _ in met].index(slot)])

    def _limited_rates(self, mix: Mix, residents: KernelMix) -> tuple[list[float], float, float]:
        """`mix_rates` while grants limit somebody to a share or a quota."""
        least = self._least_times(mix)
        quotas = [self.limits.get(slot, NO_LIMITS)[3] for slot, _ in mix]
        if len(mix) > 1 and any(quotas):
            rates, dram, l2 = round_rates(residents, quotas, least)
        else:
            rates, dram, l2 = mix_rates(residents, least) if least else self._mixes.rates(residents)
        self._mix_loads[mix] = loads_at(residents, rates)
        return rates, dram, l2

    def _least_times(self, mix: Mix) -> list[float]:
        """Limits for `mix_times`, so that no launch takes more of an SM than its share."""
        if not any(slot in self.limits for slot, _ in mix):
            return []
        limits = [self.limits.get(slot, NO_LIMITS) for slot, _ in mix]
        return [
            capped_time(self._model(slot).demand, count, issue, memory)
            for (slot, count), (issue, memory, _, _) in zip(mix, limits, strict=True)
        ]

    def slowdowns(
        self, sms: SMArray, domain: int, dram: float, l2: float, tensor_cycle: float, power_cycle: float
    ) -> dict[int, float]:
        """The factors by which slots are slowed in a memory domain, as the SMs ask for them while there are limits."""
        share = self._domain_share[domain]
        held = self._held_back(sms, domain)
        for asked_dram, asked_l2, factor in held.values():
            dram -= asked_dram * (1.0 - 1.0 / factor)
            l2 -= asked_l2 * (1.0 - 1.0 / factor)
        dram, l2 = max(0.0, dram) / share, max(0.0, l2) / share
        factors = {slot: self._model(slot).slowdown(dram, l2, tensor_cycle, power_cycle) for slot in self._slots}
        for slot, (_, _, factor) in held.items():
            factors[slot] = max(factors[slot], factor)
        paced = [slot for slot, limits in self.limits.items() if limits[3] and sms.resident_blocks(slot)]
        slowest = max((factors[slot] for slot in paced), default=1.0)
        return factors | dict.fromkeys(paced, slowest)  # who waits for the others is as late as the latest of them

    def _held_back(self, sms: SMArray, domain: int) -> dict[int, tuple[float, float, float]]:
        """Slots that ask for more DRAM than their share: DRAM and L2 load asked for, and the factor it is over."""
        whole = self._domain_share[domain]
        limits = {slot: share * whole for slot, (_, _, share, _) in self.limits.items() if share is not None}
        if not limits:
            return {}
        asked = {slot: (0.0, 0.0) for slot in limits}
        for sm in range(self._sm_count):
            mix = sms.mix_of(sm)
            if not mix or sms.domain_at(sm) != domain:
                continue
            for (slot, _), (dram, l2) in zip(mix, self._mix_loads[mix], strict=True):
                if slot in asked:
                    asked[slot] = (asked[slot][0] + dram, asked[slot][1] + l2)
        over = {slot: dram * self._served(slot) / limits[slot] for slot, (dram, _) in asked.items()}
        return {slot: (*asked[slot], factor) for slot, factor in over.items() if factor > 1.0}

    def _served(self, slot: int) -> float:
        """What DRAM serves a kernel over the load that it puts on DRAM: more where it hides some of its waits."""
        model = self._model(slot)
        load = model.unit_us * model.load.dram
        return model.dram_share_us / load if load > 0.0 else 1.0
