"""A chain of kernels, one after the other: the makespan under policy `serial` without streams, policy or event loop."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from gpusim.contention import age_shares, memory_stretch
from gpusim.engine.anchor import KernelModel, mix_rates, sm_array
from gpusim.engine.core import Mix, MixRates
from gpusim.gpu import GPU
from gpusim.trace import Convolution, Kernel, KernelLaunch, Trace


def is_chain(trace: Trace) -> bool:
    """Whether serial runs one kernel at a time and nothing else: no copies, host work, arrivals or inner streams."""
    return all(stream.arrivals is None for stream in trace.streams) and all(
        isinstance(op, Kernel | Convolution) and all(launch.stream == "main" for launch in op.launches())
        for op in trace.operations()
    )


def in_order(trace: Trace) -> Iterator[tuple[str, KernelLaunch]]:
    """The launches of a chain with their operations: always of the first stream that can go on."""
    waits: dict[str, int] = {}
    after: dict[str, list[tuple[int, str]]] = {}
    for index, stream in enumerate(trace.streams):
        for op in stream.operations:
            waits[op.id] = len(op.depends_on)
            for other in op.depends_on:
                after.setdefault(other, []).append((index, op.id))
    left = [list(reversed(stream.operations)) for stream in trace.streams]
    ready = [index for index, operations in enumerate(left) if operations and not waits[operations[-1].id]]
    heapify(ready)
    while ready:
        index = heappop(ready)
        op = left[index].pop()
        for launch in op.launches():
            yield op.id, launch
        freed = {index}
        for other, waiting in after.get(op.id, ()):
            waits[waiting] -= 1
            if left[other] and left[other][-1].id == waiting:
                freed.add(other)
        for other in freed:
            if left[other] and not waits[left[other][-1].id]:
                heappush(ready, other)


class Chain:
    """The SMs of a GPU with one launch at a time, on the clock of the event loop.

    They are told what `gpusim.engine.device.Device` tells them, so that every time is the same to the last bit.
    """

    def __init__(self, gpu: GPU) -> None:
        self._sm_count = gpu.sm_count
        self._sms = sm_array(gpu, 1, self._resolve, self._stretch)
        self._model: KernelModel | None = None
        self.now_us = 0.0

    def run(self, model: KernelModel) -> None:
        """Run one launch to its end."""
        sms = self._sms
        sms.now = max(sms.now, self.now_us)
        sms.set_line([], [])
        sms.dispatch()
        self.now_us += model.latency_us
        sms.now = max(sms.now, self.now_us)
        if model is not self._model:
            self._model = model
            sms.forget_mixes()
        sms.submit(
            0,
            model.blocks,
            model.need,
            model.carveout_bytes,
            model.jitter,
            model.seed,
            model.issue_us,
            model.dram_share_us,
        )
        sms.set_caps(0, [model.blocks_per_sm] * self._sm_count)
        sms.set_line([0], [0])
        sms.dispatch()
        sms.advance(float("inf"))
        self.now_us += sms.now - self.now_us

    def _resolve(self, mix: Mix) -> MixRates:
        assert self._model is not None
        (_, count) = mix[0]
        rates, dram, l2 = mix_rates([(self._model, count)])
        return [[rates[0] * share for share in age_shares(count, self._model.age_preference)]], dram, l2

    def _stretch(self, _domain: int, dram: float, l2: float) -> dict[int, float]:
        if self._model is None:
            return {}
        return {0: memory_stretch(max(0.0, dram), max(0.0, l2), self._model.own_load)}
