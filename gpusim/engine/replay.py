"""Replay a trace on a GPU under a policy: streams, their operations and what these wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import chain, repeat
from math import fsum, inf
from typing import Protocol

import simpy

from gpusim.common.errors import InputError
from gpusim.common.progress import watcher
from gpusim.common.tables import counted
from gpusim.engine.device import Device
from gpusim.engine.host import host_queues, release_times, unready
from gpusim.engine.launch import Launch
from gpusim.engine.remaining import Pass, operation_views, pass_view, work_from
from gpusim.engine.several_gpus import EachGPU, merged, notes_of_all, parts, together
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.policies.checks import name_of, named
from gpusim.policies.interface import OperationView, PassView, Policy
from gpusim.results.result import Result
from gpusim.results.runs import KernelRun, OperationRun, Placements, ProgramRun, RequestRun, StreamRun
from gpusim.trace.format import Trace
from gpusim.trace.kernels import DRAM_COUNTERS, ISSUE_COUNTERS, L2_COUNTERS, KernelLaunch, launch_waits
from gpusim.trace.operations import Kernel, Occupied, Operation, Stream

CALM = 2  # passes in a row that nothing disturbs, the last of which finds the caches as later ones do
TURNS_PER_SM = 2.0
"""Turns for each SM of the GPU in which a pass of a program that restarts is to end.

A turn is what all streams take one after the other. A stream that has one SM of n and no more ends within about n times
what it takes alone; this is twice that.
"""


class Starved(InputError):
    """A policy leaves a stream behind for as long as the others restart."""


class KernelSource(Protocol):
    """Gives the kernels of a trace as they are to be replayed."""

    def model(self, launch: KernelLaunch, place: str) -> KernelModel:
        """The model of one launch; where no SM holds a block of it, ``place`` says for the error where it stands."""


def replay(
    trace: Trace,
    gpu: GPU,
    policies: Mapping[int, Policy],
    kernels: KernelSource,
    isolated_us: Mapping[str, float],
    programs_us: Mapping[str, float],
    *,
    restart: int = 0,
    keep: Collection[str] = (),
    only_disturbed: bool = False,
) -> Result:
    """Replay a trace.

    Args:
        trace: what ran, its kernels as long as they take after the others (`gpusim.model.context`).
        gpu: where to replay it.
        policies: a fresh one for each GPU of the trace.
        kernels: those of the trace on that GPU.
        isolated_us: makespan (us) of each stream alone on the whole GPU.
        programs_us: the same of each program.
        restart: how often each program is to end, all of which start again whenever their streams have ended
            (`Result.passes`); 0: programs run once.
        keep: ``placements``, ``residents`` or both: what the result holds of them.
        only_disturbed: whether passes of a loop are counted, not replayed, where nothing else has work before they end.
            They take as long as the first such passes, which are replayed; only their requests are in the result. The
            policy has to do the same whenever a program has the GPUs to itself. Programs that restart, and those of
            several streams, are replayed in full.

    Raises:
        InputError: a kernel that fits no SM, or a policy that leaves kernels waiting for ever.
        Starved: a program that restarts had not ended so often after as many times `TURNS_PER_SM` turns of all of them
            for each SM.
    """
    on_gpus = parts(trace, gpu)
    runs = []
    for part in on_gpus:
        turn_us = fsum(isolated_us[stream.name] for stream in part.trace.streams)
        limit_us = restart * TURNS_PER_SM * gpu.sm_count * turn_us if restart else None
        runs.append(
            _Replay(
                part.trace, gpu, [policies[at] for at in part.gpus], kernels, limit_us, keep, restart, only_disturbed
            )
        )
        runs[-1].run()
    if restart:  # those of other GPUs keep running until the last stream has ended so often
        until_us = max(run.env.now for run in runs)
        for run in runs:
            run.go_on(until_us)
    results = [run.result(isolated_us) for run in runs]
    result = merged(trace, gpu, on_gpus, results)
    of_stream = {run.stream: run for run in result.stream_runs}
    return replace(
        result,
        policy=name_of(next(iter(policies.values()))),
        notes=notes_of_all(policies),
        program_runs=tuple(
            ProgramRun.of([of_stream[name] for name in one.streams], one.name, one.priority, programs_us[one.name])
            for one in trace.programs
        ),
    )


def stream_ends(trace: Trace, gpu: GPU, policies: Mapping[int, Policy], kernels: KernelSource) -> dict[str, float]:
    """Only the end of each stream in a replay, us; arguments as for `replay`."""
    ends = dict.fromkeys((stream.name for stream in trace.streams), 0.0)
    for part in parts(trace, gpu):
        run = _Replay(part.trace, gpu, [policies[at] for at in part.gpus], kernels)
        run.run()
        for request in run.requests:
            ends[request.stream] = max(ends[request.stream], request.end_us)
    return ends


def operation_end(trace: Trace, op: Operation, gpu: GPU, policy: Policy, kernels: KernelSource) -> float:
    """When an operation of a trace ends that has the GPU to itself from 0 on (us), whatever it waits for."""
    alone = op.model_copy(update={"depends_on": ()})
    stream = trace.streams[0].model_copy(update={"operations": (alone,), "arrivals": None, "gpu": 0})
    run = _Replay(trace.model_copy(update={"streams": (stream,)}), gpu, [policy], kernels)
    run.run()
    return run.requests[0].end_us


@dataclass(slots=True)
class _Timed:
    """A copy or work on the host from when it began, with where it stands in the trace."""

    stream: str
    request: int
    start_us: float
    duration_us: float


@dataclass(slots=True)
class _Together:
    """A program of several streams, which begin each pass together."""

    streams: list[int]  # their positions
    awaited: list[str]  # ids of their operations that others wait for
    ranks: Counter[str]  # how many of its ranks meet in each collective
    # of the streams whose pass has ended, the event that tells them to begin the next
    ended: dict[int, simpy.Event] = field(default_factory=dict)


class _Replay:
    """One replay of GPUs that wait for one another, each with its policy.

    With a time limit (us) programs restart until each has ended ``rounds`` times.
    """

    def __init__(
        self,
        trace: Trace,
        gpu: GPU,
        policies: Sequence[Policy],
        kernels: KernelSource,
        limit_us: float | None = None,
        keep: Collection[str] = (),
        rounds: int = 1,
        only_disturbed: bool = False,
    ) -> None:
        self.trace = trace
        self.gpu = gpu
        self.policy = policies[0]
        self.kernels = kernels
        self.env = simpy.Environment()
        self.busy = tuple(stream.name for stream in trace.streams if stream.operations)  # have work left
        names = [stream.name for stream in trace.streams]
        self.queues = host_queues(trace)
        gpu_of = [stream.gpu for stream in trace.streams]
        gpus = len(policies)
        program_of = self._program_of(names)
        self.device = Device(
            self.env,
            together(gpu, gpus),
            EachGPU(policies, gpu, gpu_of) if gpus > 1 else self.policy,
            names,
            lambda: self.busy,
            lambda: unready(self.queues, self.env.now),
            "placements" in keep,
            self._operation_views,
            gpu_of,
            "residents" in keep,
            self._pass_views,
            program_of,
            self._kernel_names(program_of) if len(set(program_of)) > 1 else (),
        )
        self.work_from: dict[int, list[float]] = {}  # by the position of a stream, once a policy has asked
        self.passes: dict[int, Pass] = {}  # under way, by the position of their stream
        self.resources: dict[str, simpy.Resource] = {}
        idle = [op.occupies(gpu) for op in trace.operations() if not op.launches()]
        self.missing = Counter(work.meeting for work in idle if work.meeting)
        self.meetings: dict[str, simpy.Event] = {}
        awaited = {other for op in trace.operations() for other in op.depends_on}
        self.ended = {operation: self.env.event() for operation in awaited}
        self.together = self._programs()
        self.calls = {op.id for op in trace.operations() if not isinstance(op, Kernel)}
        self.branching = {  # operations that launch kernels on streams that a library opens itself
            op.id for op in trace.operations() if any(launch.stream != "main" for launch in op.launches())
        }
        self.limit_us = limit_us
        self.rounds = rounds
        self.only_disturbed = only_disturbed and limit_us is None
        self.counted_to_us = 0.0  # the last pass that was only counted ended then
        self.releases_us: dict[int, float] = {}  # of the next request, by the position of a stream that waits for it
        self.unended = {stream.name for stream in trace.streams}
        self.all_ended = self.env.event()
        self.launches: list[Launch] = []  # handed to the device, in that order
        self.timed: list[_Timed] = []
        self.operations: list[OperationRun] = []
        self.requests: list[RequestRun] = []
        self.watcher = watcher()
        self.all_operations = sum(
            len(s.operations) * len(q.releases) for s, q in zip(trace.streams, self.queues, strict=True)
        )
        self.done = 0  # operations, of those awaited: where streams restart, those of their first passes

    def run(self) -> None:
        for index, stream in enumerate(self.trace.streams):
            self.env.process(self._stream(index, stream))
        if self.limit_us is not None:
            self.device.run(until=self.env.any_of([self.all_ended, self.env.timeout(self.limit_us)]))
            if self.unended:
                names = ", ".join(stream.name for stream in self.trace.streams if stream.name in self.unended)
                often = counted(self.rounds, "time") if self.rounds > 1 else "once"
                problem = f"streams {names} did not end {often} in {self.limit_us:g} us while the others restarted"
                raise Starved(None, named(self.policy), problem, "a policy that leaves none behind")
            return
        self.device.run()
        if self.busy:
            raise InputError(
                None,
                named(self.policy),
                f"leaves streams {', '.join(self.busy)} waiting for ever",
                "a policy that runs all",
            )

    def go_on(self, until_us: float) -> None:
        """Let streams restart until a time, if that has not passed."""
        if until_us > self.env.now:
            self.device.run(until=self.env.timeout(until_us - self.env.now))

    # ---- streams ---------------------------------------------------------------------------------------------------

    def _stream(self, index: int, stream: Stream) -> simpy.events.ProcessGenerator:
        queue = self.queues[index]
        releases = release_times(stream) if self.limit_us is None else chain((0.0,), repeat(None))
        calm = 0  # passes in a row that nothing disturbed
        calm_us: list[float] = []  # how long the first of such a row took, the last of them as all later ones
        for request, release in enumerate(releases):
            if request and index in self.together:
                yield self._next_pass(index)
            if release is not None and release > self.env.now:
                self.releases_us[index] = release
                yield self.env.timeout(release - self.env.now)
                del self.releases_us[index]
            start = self.env.now
            calm_until = self._calm_until(index) if release is None and self.only_disturbed else start
            if len(calm_us) == CALM and start + (pass_us := calm_us[min(calm, CALM - 1)]) <= calm_until:
                yield self.env.timeout(pass_us)
                self.counted_to_us = self.env.now
                self.requests.append(RequestRun(stream.name, request, start, start, self.env.now))
                self.done += len(stream.operations)
                calm += 1
                continue
            queue.begin(request, start if release is None else release)
            self.passes[index] = Pass(start if release is None else release)
            for op in stream.operations:
                yield from self._operation(index, stream, op, request)
                self.passes[index].next()
            del self.passes[index]
            self.requests.append(
                RequestRun(stream.name, request, start if release is None else release, start, self.env.now)
            )
            if self.env.now > calm_until:
                calm = 0
            else:
                if len(calm_us) == calm < CALM:
                    calm_us.append(self.env.now - start)
                calm += 1
            if request + 1 >= self.rounds:
                self.unended.discard(stream.name)
            if not self.unended and not self.all_ended.triggered:
                self.all_ended.succeed()
        self.busy = tuple(name for name in self.busy if name != stream.name)

    def _calm_until(self, index: int) -> float:
        """When a request of another stream comes next; now where one has work, or a program has several streams."""
        if self.passes or index in self.together:
            return self.env.now
        return min(self.releases_us.values(), default=inf)

    def _program_of(self, names: Sequence[str]) -> list[int]:
        """The position of each stream's program; one after the last for streams of traces that were not checked."""
        place = {program.name: at for at, program in enumerate(self.trace.programs)}
        program_of = self.trace.program_of()
        return [place[program_of[name]] if name in program_of else len(place) for name in names]

    def _kernel_names(self, program_of: Sequence[int]) -> list[set[str]]:
        code_of: list[set[str]] = [set() for _ in range(len(self.trace.programs) + 1)]
        for program, stream in zip(program_of, self.trace.streams, strict=True):
            code_of[program] |= {launch.name for op in stream.operations for launch in op.launches()}
        return code_of

    def _programs(self) -> dict[int, _Together]:
        place = {stream.name: index for index, stream in enumerate(self.trace.streams)}
        found: dict[int, _Together] = {}
        for program in self.trace.programs:
            if len(program.streams) > 1:
                streams = sorted(place[name] for name in program.streams)
                ops = [op for index in streams for op in self.trace.streams[index].operations]
                idle = [op.occupies(self.gpu).meeting for op in ops if not op.launches()]
                ranks = Counter(meeting for meeting in idle if meeting)
                found |= dict.fromkeys(streams, _Together(streams, [op.id for op in ops if op.id in self.ended], ranks))
        return found

    def _next_pass(self, index: int) -> simpy.Event:
        """A stream's pass has ended; the event is that those of all streams of its program have."""
        program = self.together[index]
        program.ended[index] = begin = self.env.event()
        if len(program.ended) == len(program.streams):
            self.ended |= {op: self.env.event() for op in program.awaited}
            self.missing |= program.ranks
            for meeting in program.ranks:
                self.meetings.pop(meeting, None)
            events, program.ended = program.ended, {}
            for at in program.streams:
                events[at].succeed()
        return begin

    def _operation(self, index: int, stream: Stream, op: Operation, request: int) -> simpy.events.ProcessGenerator:
        if waits := [self.ended[name] for name in op.depends_on if not self.ended[name].triggered]:
            if not op.host_waits:
                self.device.waiting_streams.add(index)
            yield self.env.all_of(waits)
            self.device.waiting_streams.discard(index)
        start = self.env.now
        launches = op.launches()
        if op.id in self.branching:
            yield from self._branches(index, stream, op.id, launches, request)
        elif launches:
            for at, launch in enumerate(launches):
                yield self._launch(index, stream, op.id, launch, request, at)
        else:
            yield from self._occupied(index, stream, op.occupies(self.gpu), request)
        self.operations.append(OperationRun(stream.name, op.id, request, op.kind, start, self.env.now))
        if self.watcher is not None and (self.limit_us is None or request == 0):
            self.done += 1
            self.watcher(self.done / self.all_operations)
        if op.id in self.ended and not self.ended[op.id].triggered:
            self.ended[op.id].succeed()

    def _occupied(self, index: int, stream: Stream, work: Occupied, request: int) -> simpy.events.ProcessGenerator:
        if work.meeting:
            yield self._all_here(work.meeting)
        resource = f"gpu {stream.gpu} {work.resource}"
        with self.resource(resource).request() if work.resource else nullcontext() as granted:
            if granted is not None:
                yield granted
            self.timed.append(_Timed(stream.name, request, self.env.now, work.duration_us))
            self.passes[index].began_us = self.env.now
            yield self.env.timeout(work.duration_us)

    def _all_here(self, meeting: str) -> simpy.Event:
        """One more is there; the event is that the last of them is."""
        self.missing[meeting] -= 1
        everybody = self.meetings.setdefault(meeting, self.env.event())
        if not self.missing[meeting]:
            everybody.succeed()
        return everybody

    def resource(self, name: str) -> simpy.Resource:
        """A resource that serves one operation at a time, such as a copy engine."""
        return self.resources.setdefault(name, simpy.Resource(self.env, 1))

    def _branches(
        self, index: int, stream: Stream, operation: str, launches: Sequence[KernelLaunch], request: int
    ) -> simpy.events.ProcessGenerator:
        waits = launch_waits(launches)
        ends = [self.env.event() for _ in launches]
        for at, launch in enumerate(launches):
            before = [ends[i] for i in waits[at]]
            self.env.process(self._branch(index, stream, operation, launch, request, at, before, ends[at]))
        yield self.env.all_of(ends)

    def _branch(
        self,
        index: int,
        stream: Stream,
        operation: str,
        launch: KernelLaunch,
        request: int,
        at: int,
        waits: Sequence[simpy.Event],
        end: simpy.Event,
    ) -> simpy.events.ProcessGenerator:
        if waits:
            yield self.env.all_of(waits)
        yield self._launch(index, stream, operation, launch, request, at)
        end.succeed()

    def _launch(
        self, index: int, stream: Stream, operation: str, launch: KernelLaunch, request: int, at: int
    ) -> simpy.Event:
        """Hand a launch to the device; the event tells its end."""
        model = self.kernels.model(launch, operation)
        queued = self.queues[index].hand_over(operation, at, internal=model.stream != "main")
        handed, end = self.device.launch(model, stream.name, index, stream.priority, queued, operation)
        self.passes[index].launches.append(handed)
        handed.request, handed.index, handed.of_call = request, at, operation in self.calls
        self.launches.append(handed)
        return end

    # ---- what came out ---------------------------------------------------------------------------------------------

    def result(self, isolated_us: Mapping[str, float]) -> Result:
        ended = [launch for launch in self.launches if launch.end_us >= 0.0]
        run_of = {launch.id: i for i, launch in enumerate(ended)}
        passes = None if self.limit_us is None else self._passes()
        last_us = max([self.counted_to_us, *(op.end_us for op in self.operations)])
        return Result(
            trace=self.trace.name,
            gpu=self.gpu.name,
            policy="",
            makespan_us=last_us if passes is None else self.env.now,
            kernel_runs=tuple([_kernel_run(launch) for launch in ended]),
            operation_runs=tuple(self.operations),
            request_runs=tuple(self.requests),
            stream_runs=self._stream_runs(isolated_us),
            placements=_placements(ended),
            usage=replace(self.device.usage(), unknown=self._unknown_uses()),
            limits=frozenset(self.device.limits),
            residents=None if self.device.residents is None else self.device.residents.held(run_of),
            passes=passes,
        )

    def _unknown_uses(self) -> frozenset[str]:
        launches = self.trace.launches()
        needed = {"issue_slots": ISSUE_COUNTERS, "dram": DRAM_COUNTERS, "l2": L2_COUNTERS}
        return frozenset(use for use, fields in needed.items() if not all(one.counts(fields) for one in launches))

    def _passes(self) -> dict[str, float]:
        """Completed passes of each program so far; see `gpusim.results.runs.Replayed.passes`."""
        ended = Counter(request.stream for request in self.requests)
        whole = {program.name: min(ended[name] for name in program.streams) for program in self.trace.programs}
        program_of = self.trace.program_of()
        done = dict.fromkeys(whole, 0.0)
        for launch in self.launches:
            program = program_of[launch.stream]
            if launch.request == whole[program]:
                done[program] += launch.model.solo_us * self.device.work_done(launch)
        for timed in self.timed:
            program = program_of[timed.stream]
            if timed.request == whole[program]:
                done[program] += min(timed.duration_us, self.env.now - timed.start_us)
        work_us = self._program_work_us()
        return {name: count + min(1.0, done[name] / work_us[name]) for name, count in whole.items()}

    def _program_work_us(self) -> dict[str, float]:
        """Work of one pass of each program: what its kernels take alone, its copies and host work, added."""
        operations = {stream.name: stream.operations for stream in self.trace.streams}
        return {
            program.name: fsum(self._work_us(op) for name in program.streams for op in operations[name])
            for program in self.trace.programs
        }

    def _work_us(self, op: Operation) -> float:
        if launches := op.launches():
            return fsum(self.kernels.model(launch, op.id).solo_us for launch in launches)
        return op.occupies(self.gpu).duration_us

    def _operation_views(self) -> Sequence[OperationView]:
        return operation_views(self.trace, self.passes, self.env.now, self._work_us, self.device.work_done)

    def _pass_views(self) -> Mapping[int, PassView]:
        return {index: self._pass_view(index, at) for index, at in sorted(self.passes.items())}

    def _pass_view(self, index: int, at: Pass) -> PassView:
        stream = self.trace.streams[index]
        if index not in self.work_from:
            self.work_from[index] = work_from(stream, self._work_us)
        return pass_view(stream, at, self.work_from[index], self.env.now, self.device.work_done)

    def _stream_runs(self, isolated_us: Mapping[str, float]) -> tuple[StreamRun, ...]:
        requests: dict[str, list[RequestRun]] = {stream.name: [] for stream in self.trace.streams}
        starts: dict[str, list[float]] = {stream.name: [] for stream in self.trace.streams}
        for request in self.requests:
            if self.limit_us is None or not requests[request.stream]:
                requests[request.stream].append(request)
        for timed in self.timed:
            starts[timed.stream].append(timed.start_us)
        for launch in self.launches:
            starts[launch.stream].append(launch.start_us)
        releases = {name: min((request.release_us for request in of), default=0.0) for name, of in requests.items()}
        return tuple(
            StreamRun(
                stream.name,
                stream.priority,
                releases[stream.name],
                min(starts[stream.name], default=releases[stream.name]),
                max((request.end_us for request in requests[stream.name]), default=0.0),
                isolated_us[stream.name],
            )
            for stream in self.trace.streams
        )


def _placements(ended: Sequence[Launch]) -> Placements:
    """Where the blocks of launches ran that have ended, in the order of their rows."""
    return Placements(
        ((run, launch.spans) for run, launch in enumerate(ended) if launch.spans is not None),
        {run: launch.start_us for run, launch in enumerate(ended) if launch.spans_shared},
    )


def _kernel_run(launch: Launch) -> KernelRun:
    model = launch.model
    waited = launch.start_us - launch.ready_us - model.latency_us
    return KernelRun(
        stream=launch.stream,
        operation=launch.operation,
        request=launch.request,
        kernel=model.name,
        index=launch.index,
        blocks=model.blocks,
        ready_us=launch.ready_us,
        start_us=launch.start_us,
        dispatched_us=launch.dispatched_us,
        end_us=launch.end_us,
        solo_us=model.solo_us,
        bound_by=launch.bound_by,
        waited_us=max(0.0, waited),
        sharing_us=launch.end_us - launch.ready_us - max(0.0, waited) - model.solo_us,
    )
