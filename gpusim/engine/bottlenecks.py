"""Which resource bound each launch: booked for every interval by the mix of residents that it began with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from gpusim.engine.core import Mix, SMArray, slowdown_at
from gpusim.model.contention import binding_at, mix_times
from gpusim.model.kernel import KernelModel

MOST_MIXES = 20_000  # remembered


class Bottlenecks:
    """Books of the launches on the SMs, by slot.

    Args:
        sms: the SMs.
        model: gives the kernel in a slot.
        domain_share: of L2 and DRAM, for each memory domain.
    """

    def __init__(self, sms: SMArray, model: Callable[[int], KernelModel], domain_share: Sequence[float]) -> None:
        self._sms = sms
        self._model = model
        self._domain_share = domain_share
        self._booked_us = 0.0
        self._bound_by: dict[int, str] = {}  # since then
        self._mix_times: dict[tuple[tuple[int, int], ...], list[float]] = {}  # by the kernels, by their ids, and blocks
        self._times_us: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))

    def look(self, slots: Iterable[int]) -> None:
        """An interval begins, with these slots on the SMs."""
        self._bound_by = {slot: self._binding(slot) for slot in slots}

    def book(self) -> None:
        """Time has passed since the last booking, with what was there when it began."""
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
        return binding_at(model.demand, self._times(mix)[at], by_dram, by_l2)

    def _times(self, mix: Mix) -> list[float]:
        """What `mix_times` gives of a mix, worked out once; whoever has the books keeps the kernels alive."""
        key = tuple([(id(self._model(slot)), count) for slot, count in mix])
        times = self._mix_times.get(key)
        if times is None:
            if len(self._mix_times) > MOST_MIXES:
                self._mix_times.clear()
            times = mix_times([(self._model(slot).demand, count) for slot, count in mix])
            self._mix_times[key] = times
        return times
