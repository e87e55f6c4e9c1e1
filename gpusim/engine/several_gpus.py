"""Several equal GPUs: each has SMs, L2, DRAM and copy engines of its own, its own streams and its own policy [D].

GPUs whose streams wait for one another, in collectives, by dependencies or as one program, are replayed together, as
one array of SMs. Others are replayed by themselves: to the last bit nothing on one depends on what another runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeVar

from gpusim.common.tables import connected
from gpusim.engine.by_program import ByProgram
from gpusim.hardware.gpu import GPU
from gpusim.policies.checks import Border, ask, name_of, notes_of
from gpusim.policies.interface import (
    Domains,
    Eviction,
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
from gpusim.policies.tools.programs import Divides
from gpusim.policies.tools.values import deepcopied, for_streams
from gpusim.results.result import Result
from gpusim.results.runs import Contents, Placements, Usage
from gpusim.trace.format import Trace

T = TypeVar("T")


class Part(NamedTuple):
    """GPUs that wait for one another, and what runs on them."""

    gpus: tuple[int, ...]  # their numbers in the trace, ascending
    trace: Trace  # their streams, with the GPUs numbered from 0


def parts(trace: Trace, gpu: GPU) -> list[Part]:
    """A trace divided into GPUs that can be replayed by themselves; those without streams are in none."""
    gpus = sorted({stream.gpu for stream in trace.streams})
    if gpus == [0]:
        return [Part((0,), trace)]
    found: list[Part] = []
    for group in _coupled(trace, gpu, gpus):
        streams = tuple(
            stream.model_copy(update={"gpu": group.index(stream.gpu)})
            for stream in trace.streams
            if stream.gpu in group
        )
        found.append(Part(group, trace.model_copy(update={"streams": streams})))
    return found


def _coupled(trace: Trace, gpu: GPU, gpus: Sequence[int]) -> list[tuple[int, ...]]:
    """GPUs that wait for one another, however indirectly, or have streams of one program."""
    home = {op.id: stream.gpu for stream in trace.streams for op in stream.operations}
    gpu_of = {stream.name: stream.gpu for stream in trace.streams}
    pairs = [(gpu_of[one], gpu_of[other]) for program in trace.programs for one, other in pairwise(program.streams)]
    met: dict[str, int] = {}
    for stream in trace.streams:
        for op in stream.operations:
            pairs += [(stream.gpu, home[other]) for other in op.depends_on]
            if not op.launches() and (meeting := op.occupies(gpu).meeting):
                pairs.append((stream.gpu, met.setdefault(meeting, stream.gpu)))
    return list(map(tuple, connected(gpus, pairs)))


def policies_of(policy: Policy, trace: Trace) -> dict[int, Policy]:
    """A policy object for each GPU that has streams: copies, but for the first if it can be the policy itself."""
    program_of = trace.program_of()
    by_program = isinstance(policy, Divides) and policy.by_program(len(trace.programs))
    names: dict[int, list[str]] = {}
    for stream in trace.streams:
        names.setdefault(stream.gpu, []).append(program_of[stream.name] if by_program else stream.name)
    everybody = (
        [program.name for program in trace.programs] if by_program else [stream.name for stream in trace.streams]
    )
    first, *others = sorted(names)
    copies = {gpu: for_streams(deepcopied(policy), everybody, names[gpu]) for gpu in others}
    found = {first: for_streams(policy, everybody, names[first]), **copies}
    return {gpu: ByProgram(one, trace.programs) for gpu, one in found.items()} if by_program else found


def notes_of_all(policies: Mapping[int, Policy]) -> tuple[str, ...]:
    """Notes of the policies of all GPUs after the replay, with the GPU where they differ."""
    notes = {gpu: notes_of(policy) for gpu, policy in policies.items()}
    if len(set(notes.values())) == 1:
        return next(iter(notes.values()))
    return tuple(f"GPU {gpu}: {note}" for gpu, mine in notes.items() for note in mine)


def together(gpu: GPU, count: int) -> GPU:
    """The SMs of ``count`` GPUs, those of the first before those of the second."""
    if count == 1:
        return gpu
    limits = gpu.limits.model_copy(update={"max_resident_grids": gpu.limits.max_resident_grids * count})
    gpcs = Counter(gpu.gpc_of_sm)
    own = tuple(gpcs[gpc] for gpc in sorted(gpcs))  # over again for each GPU, so that no cluster is on two
    return replace(gpu, sm_count=gpu.sm_count * count, sms_per_gpc=own, limits=limits)


def merged(trace: Trace, gpu: GPU, on_gpus: Sequence[Part], results: Sequence[Result]) -> Result:
    """Joint result of all GPUs of a trace.

    SM ``i`` of GPU ``g`` becomes SM ``g`` times the SMs of a GPU plus ``i``.
    """
    if len(results) == 1 and on_gpus[0].trace is trace:
        return results[0]
    sms = [[at * gpu.sm_count + sm for at in part.gpus for sm in range(gpu.sm_count)] for part in on_gpus]
    rows = sorted(
        ((run.ready_us, part, row) for part, one in enumerate(results) for row, run in enumerate(one.kernel_runs))
    )
    row_of: list[dict[int, int]] = [{} for _ in results]
    for at, (_, part, row) in enumerate(rows):
        row_of[part][row] = at
    streams = {run.stream: run for one in results for run in one.stream_runs}
    passes = {name: count for one in results if one.passes is not None for name, count in one.passes.items()}
    names = [stream.name for stream in trace.streams]
    count = (1 + max(stream.gpu for stream in trace.streams)) * gpu.sm_count
    return replace(
        results[0],
        makespan_us=max(one.makespan_us for one in results),
        kernel_runs=tuple(results[part].kernel_runs[row] for _, part, row in rows),
        operation_runs=tuple(sorted((run for one in results for run in one.operation_runs), key=attrgetter("end_us"))),
        request_runs=tuple(sorted((run for one in results for run in one.request_runs), key=attrgetter("end_us"))),
        stream_runs=tuple(streams[name] for name in names),
        placements=Placements.joined(one.placements.moved(sms[part], row_of[part]) for part, one in enumerate(results)),
        usage=Usage.joined(count, [(one.usage, sms[part]) for part, one in enumerate(results)]),
        limits=frozenset().union(*(one.limits for one in results)),
        residents=_residents(count, sms, results, row_of),
        passes=None if results[0].passes is None else {one.name: passes[one.name] for one in trace.programs},
    )


def _residents(
    count: int, sms: Sequence[Sequence[int]], results: Sequence[Result], row_of: Sequence[Mapping[int, int]]
) -> tuple[Contents, ...] | None:
    if results[0].residents is None:
        return None
    found: list[Contents] = [()] * count
    for part, one in enumerate(results):
        for sm, held in zip(sms[part], one.residents or (), strict=True):
            found[sm] = tuple((at, tuple((row_of[part][row], blocks) for row, blocks in mix)) for at, mix in held)
    return tuple(found)


class EachGPU(Policy):
    """A policy for each of several GPUs. Each policy sees only its GPU and the streams on it.

    A policy is asked when a kernel of its GPU is ready or has ended, or when it wants to be; until then its last
    answer holds.
    """

    summary = "a policy on each of several GPUs"

    def __init__(self, policies: Sequence[Policy], gpu: GPU, gpu_of: Sequence[int]) -> None:
        self.name = name_of(policies[0])  # type: ignore[misc]
        self.sharing_limit = policies[0].sharing_limit  # type: ignore[misc]
        self.single_stream = policies[0].single_stream  # type: ignore[misc]
        self._gpu = gpu
        self._gpu_of = gpu_of
        self._policies = policies
        self._borders = [Border(one, gpu) for one in policies]
        self._place = [sum(other == g for other in gpu_of[:at]) for at, g in enumerate(gpu_of)]  # among its GPU's
        self._streams: list[list[str]] = []
        self._met: list[tuple[int, ...] | None] = [None] * len(policies)  # kernels at the last decision, by id
        self._held = [Partition(())] * len(policies)  # what was decided then

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
        """Last decision of each policy for its GPU."""
        evictions = tuple(
            replace(eviction, sm=eviction.sm + at * self._gpu.sm_count)
            for at in range(len(self._policies))
            for eviction in self._decide(view, at)
        )
        wakes = [held.wake_us for held in self._held if held.wake_us is not None]
        grants = tuple(grant for held in self._held for grant in held.grants)
        return Partition(grants, evictions, min(wakes, default=None))

    def _decide(self, view: View, at: int) -> tuple[Eviction, ...]:
        """Ask the policy of one GPU, if its turn has come, and return the blocks that it evicts."""
        kernels = tuple(kernel for kernel in view.kernels if self._gpu_of[kernel.stream_index] == at)
        met, wake_us = tuple(kernel.id for kernel in kernels), self._held[at].wake_us
        if met == self._met[at] and (wake_us is None or view.now_us < wake_us):
            return ()
        self._met[at] = met
        answer = self._answer(view, tuple(map(self._here, kernels)), at) if kernels else Partition(())
        self._held[at] = replace(answer, grants=tuple(self._grant(grant, at) for grant in answer.grants), evictions=())
        return answer.evictions

    def _answer(self, view: View, kernels: tuple[KernelView, ...], at: int) -> Partition:
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
