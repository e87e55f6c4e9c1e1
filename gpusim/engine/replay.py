"""Replay a trace on a GPU under a policy: streams, their operations and what these wait for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat
from typing import assert_never

import simpy

from gpusim.engine.anchor import KernelModel, anchored
from gpusim.engine.arrivals import host_queues, release_times, unready
from gpusim.engine.device import Device, Launch, placements
from gpusim.engine.serial import Chain, in_order, is_chain
from gpusim.engine.transfer import transferred
from gpusim.errors import InputError, quote
from gpusim.gpu import GPU, gpu_names, load_gpu
from gpusim.policies.base import Policy
from gpusim.policies.checks import name_of, named
from gpusim.policies.hardware import Serial
from gpusim.policies.registry import policy_from
from gpusim.result import KernelRun, OperationRun, RequestRun, Result, StreamRun
from gpusim.trace import Convolution, Copy, Host, Kernel, KernelLaunch, Stream, Trace, launch_waits
from gpusim.workload import require_independent

Operation = Kernel | Convolution | Copy | Host

SEED_STEP = 1_000_003  # between the jitter seeds of two replay seeds
SEEDS = 2**31
MOST_TURNS = 32  # in which a stream that restarts is to end once: a turn is what all streams take one after the other


class Starved(InputError):
    """A policy leaves a stream behind for as long as the others restart."""


class Kernels:
    """The kernels of a trace as replayed on one GPU, each worked out once; usable for many replays.

    Args:
        device: the GPU that they were recorded on.
        gpu: the GPU to replay them on.
        seed: of the jitter of their blocks; 0: that of the fit to the recording.
        like: kernels recorded on the same device, whose fits are taken over and added to.
    """

    def __init__(self, device: GPU, gpu: GPU, seed: int = 0, like: Kernels | None = None) -> None:
        self.seed = seed
        self._device = device
        self._gpu = gpu
        self._anchored: dict[KernelLaunch, KernelModel] = {} if like is None else like._anchored
        self._by_seed: dict[int, Kernels] = {seed: self}
        self._models: dict[int, tuple[KernelLaunch, KernelModel]] = {}
        self._same: dict[KernelLaunch, KernelModel] = {}
        self.alone_us: dict[tuple[object, ...], float] = {}  # operations alone, by their kernels

    def model(self, launch: KernelLaunch, place: str) -> KernelModel:
        """The model of one launch.

        Raises:
            InputError: no SM of the GPU holds a block of it; ``place`` says where in the trace it stands.
        """
        known = self._models.get(id(launch))
        if known is not None:
            return known[1]
        model = self._same.get(launch)
        if model is None:
            model = self._anchored.get(launch)
            if model is None:
                model = self._anchored[launch] = anchored(launch, self._device, place)
            if self._gpu is not self._device:
                model = transferred(model, self._device, self._gpu, place)
            if self.seed != 0:
                model = replace(model, seed=(model.seed + SEED_STEP * self.seed) % SEEDS)
            self._same[launch] = model
        self._models[id(launch)] = (launch, model)
        return model

    def seeded(self, seed: int) -> Kernels:
        """The same kernels with other jitter."""
        if seed not in self._by_seed:
            other = Kernels(self._device, self._gpu, seed, self)
            other._by_seed = self._by_seed
            self._by_seed[seed] = other
        return self._by_seed[seed]


def replay(
    trace: Trace,
    gpu: GPU,
    policy: str | Policy = "leftover",
    *,
    kernels: Kernels | None = None,
    solo: Mapping[str, float] | None = None,
    seed: int | None = None,
    restart: bool = False,
    placements: bool = True,
) -> Result:
    """Replay a trace.

    Args:
        trace: what was recorded.
        gpu: where to replay it.
        policy: a name with parameters, such as ``"inter-sm:sms=64+68"``, or a fresh policy object.
        kernels: from an earlier replay of the same kernels on the same GPUs, to save the time of working them out.
        solo: makespan (us) of each stream alone on the whole GPU, if known.
        seed: of the jitter of blocks; None: that of ``kernels``, 0 by default: as fitted to the recording. What kernels
            take alone stays as it is.
        restart: every stream starts again when it ends, until each has ended once (`gpusim.result.Result.passes`).
        placements: keep where the blocks of each launch ran, which is most of the memory that a long replay takes.

    Raises:
        InputError: a kernel that fits no SM, an unknown policy, a policy that leaves kernels waiting for ever, a
            trace whose recording GPU is not known; streams that cannot restart
            (`gpusim.workload.require_independent`).
        Starved: a stream that restarts had not ended once after `MOST_TURNS` turns of all of them.
    """
    device = recording_gpu(trace, gpu)
    kernels = kernels if kernels is not None else Kernels(device, gpu)
    kernels = kernels if seed is None else kernels.seeded(seed)
    chosen = policy_from(policy) if isinstance(policy, str) else policy
    if solo is None:
        solo = solo_makespans(trace, gpu, kernels)
    if restart:
        require_independent(trace, solo)
    run = _Replay(trace, gpu, chosen, kernels, MOST_TURNS * sum(solo.values()) if restart else None, placements)
    run.run()
    return run.result(solo, policy if isinstance(policy, str) else name_of(chosen), device)


def recording_gpu(trace: Trace, gpu: GPU) -> GPU:
    """The GPU that a trace was recorded on: ``gpu`` itself where it is that one, else one that ships.

    Raises:
        InputError: the trace names a GPU that neither ships nor is ``gpu``.
    """
    if trace.device in gpu_names():
        device = load_gpu(trace.device)
        return gpu if device == gpu else device
    if trace.device != gpu.name:
        raise InputError(
            None, "device", f"is {quote(trace.device)}", f"one of {', '.join(gpu_names())}, or the GPU replayed on"
        )
    return gpu


def makespan_us(trace: Trace, gpu: GPU, policy: Policy, kernels: Kernels) -> float:
    """Only the makespan of a replay."""
    if type(policy) is Serial and is_chain(trace):
        return _chain_us(trace, gpu, kernels)
    return max(stream_ends(trace, gpu, policy, kernels).values())


def _chain_us(trace: Trace, gpu: GPU, kernels: Kernels) -> float:
    """The makespan of a chain under serial."""
    work_out(trace, kernels)
    chain = Chain(gpu)
    for op, launch in in_order(trace):
        chain.run(kernels.model(launch, op))
    return chain.now_us


def stream_ends(trace: Trace, gpu: GPU, policy: Policy, kernels: Kernels) -> dict[str, float]:
    """Only the end of each stream in a replay, us."""
    run = _Replay(trace, gpu, policy, kernels)
    run.run()
    ends = dict.fromkeys((stream.name for stream in trace.streams), 0.0)
    for request in run.requests:
        ends[request.stream] = max(ends[request.stream], request.end_us)
    return ends


def solo_makespans(trace: Trace, gpu: GPU, kernels: Kernels) -> dict[str, float]:
    """Time from release to end of each stream alone on the whole GPU, its dependencies on others dropped."""
    kernels = kernels.seeded(0)
    work_out(trace, kernels)
    return {stream.name: _solo_makespan(trace, stream, gpu, kernels) for stream in trace.streams}


def work_out(trace: Trace, kernels: Kernels) -> None:
    """Have every kernel of a trace worked out.

    Raises:
        InputError: one that fits no SM, with its place in the trace.
    """
    for index, stream in enumerate(trace.streams):
        for at, op in enumerate(stream.operations):
            for launch in op.launches():
                kernels.model(launch, f"streams[{index}].operations[{at}] ({op.id})")


def _solo_makespan(trace: Trace, stream: Stream, gpu: GPU, kernels: Kernels) -> float:
    once = sum(_alone_us(trace, stream, op, gpu, kernels) for op in stream.operations)
    releases, end = release_times(stream), 0.0
    for release in releases:
        end = max(end, release or 0.0) + once
    return end - (releases[0] or 0.0)


def _alone_us(trace: Trace, stream: Stream, op: Operation, gpu: GPU, kernels: Kernels) -> float:
    """How long an operation takes on an idle GPU: of kernels one after the other, each its own time alone."""
    if isinstance(op, Copy | Host):
        return op.duration_us
    if not isinstance(op, Kernel | Convolution):
        assert_never(op)
    models = [kernels.model(launch, op.id) for launch in op.launches()]
    if all(launch.stream == "main" for launch in op.launches()):
        return sum(model.solo_us for model in models)
    key = tuple((id(model), launch.stream) for model, launch in zip(models, op.launches(), strict=True))
    if key not in kernels.alone_us:
        one = stream.model_copy(update={"operations": (op.model_copy(update={"depends_on": ()}),), "arrivals": None})
        run = _Replay(trace.model_copy(update={"streams": (one,)}), gpu, policy_from("leftover"), kernels)
        run.run()
        kernels.alone_us[key] = run.requests[0].end_us
    return kernels.alone_us[key]


@dataclass(slots=True)
class _Pending:
    """A kernel launch handed to the device, with where it stands in the trace."""

    launch: Launch
    operation: str
    request: int
    index: int


@dataclass(slots=True)
class _Timed:
    """A copy or work on the host from when it began, with where it stands in the trace."""

    stream: str
    request: int
    start_us: float
    duration_us: float


class _Replay:
    """One replay; with a time limit (us) streams restart until each has ended once."""

    def __init__(
        self,
        trace: Trace,
        gpu: GPU,
        policy: Policy,
        kernels: Kernels,
        limit_us: float | None = None,
        keep_placements: bool = False,
    ) -> None:
        self.trace = trace
        self.gpu = gpu
        self.policy = policy
        self.kernels = kernels
        self.env = simpy.Environment()
        self.busy = {stream.name: len(stream.operations) > 0 for stream in trace.streams}
        names = [stream.name for stream in trace.streams]
        self.queues = host_queues(trace)
        self.device = Device(
            self.env,
            gpu,
            policy,
            names,
            lambda: tuple(name for name in names if self.busy[name]),
            lambda: unready(self.queues, self.env.now),
            keep_placements,
        )
        self.copy_engines = {direction: simpy.Resource(self.env, 1) for direction in ("h2d", "d2h", "d2d", "p2p")}
        self.ended: dict[str, simpy.Event] = {op.id: self.env.event() for op in trace.operations()}
        self.limit_us = limit_us
        self.unended = {stream.name for stream in trace.streams}
        self.all_ended = self.env.event()
        self.pending: list[_Pending] = []
        self.timed: list[_Timed] = []
        self.operations: list[OperationRun] = []
        self.requests: list[RequestRun] = []
        work_out(trace, kernels)

    def run(self) -> None:
        for index, stream in enumerate(self.trace.streams):
            self.env.process(self._stream(index, stream))
        if self.limit_us is not None:
            self.env.run(until=self.env.any_of([self.all_ended, self.env.timeout(self.limit_us)]))
            if self.unended:
                names = ", ".join(stream.name for stream in self.trace.streams if stream.name in self.unended)
                problem = f"did not end once in {self.limit_us:g} us while the others restarted"
                raise Starved(None, f"streams {names}", problem, "a policy that leaves none behind")
            return
        self.env.run()
        waiting = [name for name, busy in self.busy.items() if busy]
        if waiting:
            raise InputError(
                None,
                named(self.policy),
                f"leaves streams {', '.join(waiting)} waiting for ever",
                "a policy that runs all",
            )

    # ---- streams ---------------------------------------------------------------------------------------------------

    def _stream(self, index: int, stream: Stream) -> simpy.events.ProcessGenerator:
        queue = self.queues[index]
        releases = release_times(stream) if self.limit_us is None else chain((0.0,), repeat(None))
        for request, release in enumerate(releases):
            if release is not None and release > self.env.now:
                yield self.env.timeout(release - self.env.now)
            start = self.env.now
            queue.begin(request, start if release is None else release)
            for op in stream.operations:
                yield from self._operation(index, stream, op, request)
            self.requests.append(
                RequestRun(stream.name, request, start if release is None else release, start, self.env.now)
            )
            self.unended.discard(stream.name)
            if not self.unended and not self.all_ended.triggered:
                self.all_ended.succeed()
        self.busy[stream.name] = False

    def _operation(self, index: int, stream: Stream, op: Operation, request: int) -> simpy.events.ProcessGenerator:
        waits = [self.ended[name] for name in op.depends_on if not self.ended[name].processed]
        if waits:
            yield self.env.all_of(waits)
        start = self.env.now
        if isinstance(op, Copy):
            with self.copy_engines[op.direction].request() as engine:
                yield engine
                self._begin(stream, op, request)
                yield self.env.timeout(op.duration_us)
        elif isinstance(op, Host):
            self._begin(stream, op, request)
            yield self.env.timeout(op.duration_us)
        elif isinstance(op, Kernel | Convolution):
            yield from self._launches(index, stream, op, request)
        else:
            assert_never(op)
        self.operations.append(OperationRun(stream.name, op.id, request, op.kind, start, self.env.now))
        if not self.ended[op.id].triggered:
            self.ended[op.id].succeed()

    def _launches(
        self, index: int, stream: Stream, op: Kernel | Convolution, request: int
    ) -> simpy.events.ProcessGenerator:
        launches = op.launches()
        if all(launch.stream == "main" for launch in launches):
            for at in range(len(launches)):
                yield self._launch(index, stream, op, request, at).done
            return
        waits = launch_waits(launches)
        ends = [self.env.event() for _ in launches]
        for at in range(len(launches)):
            self.env.process(self._branch(index, stream, op, request, at, [ends[i] for i in waits[at]], ends[at]))
        yield self.env.all_of(ends)

    def _branch(
        self,
        index: int,
        stream: Stream,
        op: Kernel | Convolution,
        request: int,
        at: int,
        waits: Sequence[simpy.Event],
        end: simpy.Event,
    ) -> simpy.events.ProcessGenerator:
        if waits:
            yield self.env.all_of(waits)
        yield self._launch(index, stream, op, request, at).done
        end.succeed()

    def _launch(self, index: int, stream: Stream, op: Kernel | Convolution, request: int, at: int) -> Launch:
        model = self.kernels.model(op.launches()[at], op.id)
        queued = self.queues[index].hand_over(op.id, at, internal=model.launch.stream != "main")
        turn = 0 if self.limit_us is None else request
        launch = self.device.launch(model, stream.name, index, stream.priority, queued, turn)
        self.pending.append(_Pending(launch, op.id, request, at))
        return launch

    def _begin(self, stream: Stream, op: Copy | Host, request: int) -> None:
        self.timed.append(_Timed(stream.name, request, self.env.now, op.duration_us))

    # ---- what came out ---------------------------------------------------------------------------------------------

    def result(self, solo: Mapping[str, float], policy: str, device: GPU) -> Result:
        rows = sorted((p for p in self.pending if p.launch.end_us >= 0.0), key=lambda p: p.launch.id)
        run_of = {p.launch.id: i for i, p in enumerate(rows)}
        notes = (
            () if device == self.gpu else (f"recorded on {device.name}, replayed on {self.gpu.name}: not validated",)
        )
        passes = None if self.limit_us is None else self._passes()
        return Result(
            trace=self.trace.name,
            gpu=self.gpu.name,
            policy=policy,
            makespan_us=max((op.end_us for op in self.operations), default=0.0) if passes is None else self.env.now,
            kernel_runs=tuple(_kernel_run(p) for p in rows),
            operation_runs=tuple(self.operations),
            request_runs=tuple(self.requests),
            stream_runs=self._stream_runs(solo),
            placements=placements(sorted(self.device.finished, key=lambda launch: launch.id), run_of),
            usage=self.device.usage(),
            notes=notes,
            passes=passes,
        )

    def _passes(self) -> dict[str, float]:
        """How often each stream has run by now; see `gpusim.result.Result.passes`."""
        whole = Counter(request.stream for request in self.requests)
        done = dict.fromkeys(self.busy, 0.0)
        for pending in self.pending:
            stream = pending.launch.stream
            if pending.request == whole[stream]:
                done[stream] += pending.launch.model.solo_us * self.device.work_done(pending.launch)
        for timed in self.timed:
            if timed.request == whole[timed.stream]:
                done[timed.stream] += min(timed.duration_us, self.env.now - timed.start_us)
        return {s.name: whole[s.name] + min(1.0, done[s.name] / self._pass_us(s)) for s in self.trace.streams}

    def _pass_us(self, stream: Stream) -> float:
        """Work of one pass: what each of its kernels takes alone, each copy and all host work, added."""
        return sum(
            op.duration_us
            if isinstance(op, Copy | Host)
            else sum(self.kernels.model(launch, op.id).solo_us for launch in op.launches())
            for op in stream.operations
        )

    def _stream_runs(self, solo: Mapping[str, float]) -> tuple[StreamRun, ...]:
        requests: dict[str, list[RequestRun]] = {stream.name: [] for stream in self.trace.streams}
        starts: dict[str, list[float]] = {stream.name: [] for stream in self.trace.streams}
        for request in self.requests:
            if self.limit_us is None or not requests[request.stream]:
                requests[request.stream].append(request)
        for op in self.operations:
            if op.kind in ("copy", "host"):
                starts[op.stream].append(op.start_us)
        for pending in self.pending:
            starts[pending.launch.stream].append(pending.launch.start_us)
        return tuple(
            StreamRun(
                stream.name,
                stream.priority,
                min((request.release_us for request in requests[stream.name]), default=0.0),
                min(starts[stream.name], default=0.0),
                max((request.end_us for request in requests[stream.name]), default=0.0),
                solo[stream.name],
            )
            for stream in self.trace.streams
        )


def _kernel_run(pending: _Pending) -> KernelRun:
    launch = pending.launch
    model = launch.model
    waited = launch.start_us - launch.ready_us - model.latency_us
    return KernelRun(
        stream=launch.stream,
        operation=pending.operation,
        request=pending.request,
        kernel=model.launch.name,
        index=pending.index,
        blocks=model.blocks,
        ready_us=launch.ready_us,
        start_us=launch.start_us,
        dispatched_us=launch.dispatched_us,
        end_us=launch.end_us,
        solo_us=model.solo_us,
        bound_by=max(sorted(launch.bound_us), key=lambda r: launch.bound_us[r], default="latency"),
        waited_us=max(0.0, waited),
        sharing_us=launch.end_us - launch.ready_us - max(0.0, waited) - model.solo_us,
    )
