"""A chain of kernels, one after the other: the makespan under policy `serial` without streams, policy or event loop."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from gpusim.engine.context import in_context
from gpusim.engine.core import Mix, MixRates
from gpusim.engine.replay import KernelSource, work_out
from gpusim.engine.sm_array import sm_array, submit
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import age_shares
from gpusim.model.kernel import KernelModel, mix_rates
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch


def is_chain(trace: Trace) -> bool:
    """Whether serial runs one kernel at a time and nothing else: no copies, arrivals, inner streams or second GPU."""
    return all(stream.arrivals is None and stream.gpu == 0 for stream in trace.streams) and all(
        op.launches() and all(launch.stream == "main" for launch in op.launches()) for op in trace.operations()
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
        for stream_index, waiting in after.get(op.id, ()):
            waits[waiting] -= 1
            if left[stream_index] and left[stream_index][-1].id == waiting:
                freed.add(stream_index)
        for stream_index in freed:
            if left[stream_index] and not waits[left[stream_index][-1].id]:
                heappush(ready, stream_index)


class Chain:
    """The SMs of a GPU with one launch at a time, on the clock of the event loop.

    They are told what `gpusim.engine.device.Device` tells them, so that every time is the same to the last bit.
    """

    def __init__(self, gpu: GPU) -> None:
        self._sm_count = gpu.sm_count
        self._sms = sm_array(gpu, 1, self._resolve)
        self._model: KernelModel | None = None  # the last one; the caller keeps them alive
        self._rates: dict[tuple[int, int], MixRates] = {}  # by model and resident blocks
        self.now_us = 0.0

    def run(self, model: KernelModel) -> None:
        """Run one launch to its end."""
        sms = self._sms
        sms.now = max(sms.now, self.now_us)
        sms.set_dispatch_order([], [])
        sms.dispatch()
        self.now_us += model.latency_us
        sms.now = max(sms.now, self.now_us)
        if model is not self._model:
            self._model = model
            sms.forget_mixes()
        submit(sms, 0, model)
        sms.set_caps(0, [model.blocks_per_sm] * self._sm_count)
        sms.set_dispatch_order([0], [0])
        sms.dispatch()
        sms.advance(float("inf"))
        self.now_us += sms.now - self.now_us

    def _resolve(self, mix: Mix) -> MixRates:
        assert self._model is not None
        model, ((_, count),) = self._model, mix
        known = self._rates.get((id(model), count))
        if known is None:
            rates, dram, l2 = mix_rates([(model, count)])
            known = [[rates[0] * share for share in age_shares(count, model.age_preference)]], dram, l2
            self._rates[(id(model), count)] = known
        return known


def chain_us(trace: Trace, gpu: GPU, kernels: KernelSource) -> float:
    """The makespan of a chain under serial."""
    trace = in_context(trace, gpu)
    work_out(trace, kernels)
    chain = Chain(gpu)
    for op, launch in in_order(trace):
        chain.run(kernels.model(launch, op))
    return chain.now_us
