"""Several equal GPUs as one array of SMs: each has L2, DRAM and copy engines of its own, and its own streams [D]."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TypeVar

from gpusim.hardware.gpu import GPU
from gpusim.policies.checks import Border, ask, name_of
from gpusim.policies.interface import (
    Domains,
    Grant,
    KernelView,
    MixRates,
    OperationView,
    Partition,
    PassView,
    Policy,
    SoloRate,
    View,
)

T = TypeVar("T")


def together(gpu: GPU, count: int) -> GPU:
    """The SMs of ``count`` GPUs, those of the first before those of the second."""
    if count == 1:
        return gpu
    limits = gpu.limits.model_copy(update={"max_resident_grids": gpu.limits.max_resident_grids * count})
    gpcs = Counter(gpu.gpc_of_sm)
    own = tuple(gpcs[gpc] for gpc in sorted(gpcs))  # over again for each GPU, so that no cluster is on two
    return replace(gpu, sm_count=gpu.sm_count * count, sms_per_gpc=own, limits=limits)


class EachGPU(Policy):
    """Every GPU shared by a policy object of its own, which sees that GPU and its streams only.

    Args:
        policy: the first GPU's object; the others get copies of it.
        gpu: one of the GPUs.
        gpu_of: for each stream of the trace, its GPU.
    """

    summary = "a policy on each of several GPUs"

    def __init__(self, policy: Policy, gpu: GPU, gpu_of: Sequence[int]) -> None:
        self.name = name_of(policy)  # type: ignore[misc]
        self.refuted = policy.refuted  # type: ignore[misc]
        self.single_stream = policy.single_stream  # type: ignore[misc]
        self._gpu = gpu
        self._gpu_of = gpu_of
        self._policies = [policy, *(deepcopy(policy) for _ in range(max(gpu_of)))]
        self._borders = [Border(one, gpu) for one in self._policies]
        self._place = [sum(other == g for other in gpu_of[:at]) for at, g in enumerate(gpu_of)]  # among its GPU's
        self._streams: list[list[str]] = []

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Each with the streams of its GPU."""
        self._streams = [
            [name for name, g in zip(streams, self._gpu_of, strict=True) if g == at]
            for at in range(len(self._policies))
        ]
        for policy, mine in zip(self._policies, self._streams, strict=True):
            ask(policy, policy.prepare, self._gpu, mine)

    def shows_sms(self) -> bool:
        """As the policy says."""
        return self._borders[0].shows_sms(ask(self._policies[0], self._policies[0].shows_sms))

    def memory_domains(self, gpu: GPU, streams: Sequence[str]) -> Domains:
        """Each GPU's own."""
        found = []
        for at, (policy, border) in enumerate(zip(self._policies, self._borders, strict=True)):
            own = border.memory_domains(ask(policy, policy.memory_domains, self._gpu, self._streams[at]))
            for sms, share in own or [(frozenset(range(self._gpu.sm_count)), 1.0)]:
                found.append((self._moved(sms, at), share / len(self._policies)))
        return found

    def partition(self, view: View) -> Partition:
        """What each decides for its GPU."""
        answers = [self._decision(view, at) for at in range(len(self._policies))]
        wakes = [answer.wake_us for answer in answers if answer.wake_us is not None]
        return Partition(
            tuple(self._grant(grant, at) for at, answer in enumerate(answers) for grant in answer.grants),
            tuple(
                replace(eviction, sm=eviction.sm + at * self._gpu.sm_count)
                for at, answer in enumerate(answers)
                for eviction in answer.evictions
            ),
            min(wakes, default=None),
        )

    def _decision(self, view: View, at: int) -> Partition:
        kernels = tuple(self._here(kernel) for kernel in view.kernels if self._gpu_of[kernel.stream_index] == at)
        if not kernels:
            return Partition(())
        policy, first, most = self._policies[at], at * self._gpu.sm_count, self._gpu.sm_count
        own = View(
            now_us=view.now_us,
            gpu=self._gpu,
            kernels=kernels,
            streams=tuple(name for name in view.streams if name in self._streams[at]),
            residents=_part(view.residents, first, most),
            solo_rate=_solo_rate(view.solo_rate, most),
            mix_rates=_mix_rates(view.mix_rates, most),
            blocks_done=view.blocks_done,
            progress=_part(view.progress, first, most),
            unready=lambda: self._unready(view, at),
            operations=lambda: self._operations(view, at),
            passes=lambda: self._passes(view, at),
        )
        answer = ask(policy, policy.partition, own)
        return self._borders[at].partition(answer, {kernel.id for kernel in kernels}, view.now_us, {})[0]

    def _here(self, kernel: KernelView) -> KernelView:
        return kernel._replace(stream_index=self._place[kernel.stream_index])

    def _unready(self, view: View, at: int) -> Mapping[int, tuple[float, int]]:
        return {self._place[s]: queued for s, queued in view.unready().items() if self._gpu_of[s] == at}

    def _operations(self, view: View, at: int) -> Sequence[OperationView]:
        return tuple(
            replace(op, stream_index=self._place[op.stream_index])
            for op in view.operations()
            if self._gpu_of[op.stream_index] == at
        )

    def _passes(self, view: View, at: int) -> Mapping[int, PassView]:
        return {self._place[s]: one for s, one in view.passes().items() if self._gpu_of[s] == at}

    def _moved(self, sms: frozenset[int], at: int) -> frozenset[int]:
        return frozenset(sm + at * self._gpu.sm_count for sm in sms)

    def _grant(self, grant: Grant, at: int) -> Grant:
        sms = frozenset(range(self._gpu.sm_count)) if grant.sms is None else grant.sms
        per_sm = grant.per_sm
        if per_sm is not None:
            before, after = at * len(per_sm), (len(self._policies) - 1 - at) * len(per_sm)
            per_sm = (*(0,) * before, *per_sm, *(0,) * after)
        queue = grant.queue * len(self._policies) + at
        return replace(grant, sms=self._moved(sms, at), per_sm=per_sm, queue=queue)


def _part(of_all: Callable[[int], Sequence[T]], first: int, most: int) -> Callable[[int], Sequence[T]]:
    return lambda kernel: of_all(kernel)[first : first + most]


def _solo_rate(of_all: SoloRate, most: int) -> SoloRate:
    return lambda kernel, blocks_per_sm, sms=None: of_all(kernel, blocks_per_sm, most if sms is None else sms)


def _mix_rates(of_all: MixRates, most: int) -> MixRates:
    return lambda residents, sms=None: of_all(residents, most if sms is None else sms)
