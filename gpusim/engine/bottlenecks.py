"""Which resource bound each launch: booked for every interval by the mix of residents that it began with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from gpusim.engine.core import SMArray, slowdown_at
from gpusim.engine.rates import KnownMixes
from gpusim.model.contention import binding_at
from gpusim.model.kernel import KernelModel


class Bottlenecks:
    """Books of the launches on the SMs, by slot.

    Args:
        sms: the SMs.
        mixes: what is known of mixes.
        model: gives the kernel in a slot.
        domain_share: of L2 and DRAM, for each memory domain.
    """

    def __init__(
        self, sms: SMArray, mixes: KnownMixes, model: Callable[[int], KernelModel], domain_share: Sequence[float]
    ) -> None:
        self._sms = sms
        self._mixes = mixes
        self._model = model
        self._domain_share = domain_share
        self._booked_us = 0.0
        self._bound_by: dict[int, str] = {}  # since then
        self._times_us: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))

    def look(self, slots: Iterable[int]) -> None:
        """Begin an interval: find what bounds the launches in these slots, all that the SMs know."""
        self._bound_by = {slot: self._binding(slot) for slot in slots}

    def book(self) -> None:
        """Book the time since the last booking to what bound each launch when the interval began."""
        passed = self._sms.now - self._booked_us
        self._booked_us = self._sms.now
        if passed > 0.0:
            for slot, resource in self._bound_by.items():
                self._times_us[slot][resource] += passed

    def ended(self, slot: int) -> str:
        """The resource that bound the launch in a slot most of its time; its book is closed."""
        self._bound_by.pop(slot, None)
        times = self._times_us.pop(slot, defaultdict(float))
        return max(sorted(times), key=lambda resource: times[resource], default="latency")

    def _binding(self, slot: int) -> str:
        fullest = self._sms.fullest_sm(slot)
        model = self._model(slot)
        mix = self._sms.mix_of(fullest) if fullest >= 0 else ((slot, model.most_resident),)
        at = [other for other, _ in mix].index(slot)
        sm = max(0, fullest)
        dram, l2 = self._sms.load_at(sm)
        share, own = self._domain_share[self._sms.domain_at(sm)], model.own_load
        by_dram = slowdown_at(dram / share, 0.0, own.dram, own.l2, 1.0)
        by_l2 = slowdown_at(0.0, l2 / share, own.dram, own.l2, 1.0)
        times = self._mixes.times([(self._model(other), count) for other, count in mix])
        return binding_at(model.demand, times[at], by_dram, by_l2)
