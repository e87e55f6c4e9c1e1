"""Which resource bound each launch: booked for every interval by the mix of residents that it began with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from gpusim.engine.core import Mix, SMArray
from gpusim.engine.rates import KnownMixes
from gpusim.model.contention import TimeOnSM, binding_at, time_on_sm
from gpusim.model.kernel import KernelModel


class Bottlenecks:
    """Books of the launches on the SMs, by slot.

    Args:
        sms: the SMs.
        mixes: what is known of mixes.
        model: gives the kernel in a slot.
    """

    def __init__(self, sms: SMArray, mixes: KnownMixes, model: Callable[[int], KernelModel]) -> None:
        self._sms = sms
        self._mixes = mixes
        self._model = model
        self._times: dict[tuple[int, Mix], TimeOnSM] = {}  # of each slot in each mix
        self._booked_us = 0.0
        self._bound_by: dict[int, str] = {}  # since then
        self._times_us: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))

    def look(self, slots: Iterable[int]) -> None:
        """Begin an interval: find what bounds the launches in these slots, all that the SMs know."""
        self._bound_by = {}
        for slot in slots:
            mix, by_dram, by_l2 = self._sms.met_by(slot)
            time = self._times.get((slot, mix)) or self._work_out(slot, mix)
            self._bound_by[slot] = binding_at(time, by_dram, by_l2)

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
        times: dict[str, float] = self._times_us.pop(slot, defaultdict(float))
        return max(sorted(times), key=times.__getitem__, default="latency")

    def forget_mixes(self) -> None:
        """A slot has another kernel, or there are too many."""
        self._times.clear()

    def _work_out(self, slot: int, mix: Mix) -> TimeOnSM:
        """What the time of the launch in a slot is made of in a mix; of one that no SM holds, alone."""
        model = self._model(slot)
        met = mix or ((slot, model.most_resident),)
        times = self._mixes.times([(self._model(other), count) for other, count in met])
        own = times[[other for other, _ in met].index(slot)]
        self._times[slot, mix] = found = time_on_sm(model.demand, own)
        return found
