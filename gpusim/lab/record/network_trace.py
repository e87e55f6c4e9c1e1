"""Builds the trace of a recorded network: its steps, their dependencies, and their streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial

from gpusim.common.errors import InputError, faults_of
from gpusim.hardware.gpu import GPU
from gpusim.io.ncu import launch_from_counters, trimmed
from gpusim.io.products import recording_gpu
from gpusim.io.timeline import Product
from gpusim.lab.dataset import back_to_back_us
from gpusim.lab.record.calls import Call
from gpusim.lab.record.recording import Recording
from gpusim.trace.format import Trace
from gpusim.trace.kernels import taking
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, ConvolutionShape, Kernel, Stream
from gpusim.training.networks.steps import CONVOLUTION, CallWork, Step

PARAMETERS = "parameters"  # the stream of the gradients of parameters


def network_trace(recording: Recording, name: str, steps: Sequence[Step], calls: Iterable[Call], notes: str) -> Trace:
    """Return the trace of a pass: every step, each convolution with its fastest algorithm that is profiled.

    A convolution is an operation, with the other profiled algorithms as its alternatives; of another layer each kernel
    is one. A step without kernels is refused.
    """
    gpu = _gpu(recording)
    ranked = recording.ranked(calls)
    profiled = {found[0].work: [call for call in found if recording.kernels(call)] for found in ranked}
    algorithm = cache(partial(_algorithm, recording, gpu))
    last: dict[str, str] = {}  # id of the operation that ends a step
    streams: dict[str, list[Convolution | Kernel]] = {}
    with faults_of(recording.folder):
        for placed in placements(steps):
            step = placed.step
            if not profiled.get(step.work):
                raise InputError(None, step.id, "has no recorded kernels", "a recording that ran to its end")
            waits = tuple(last[id] for id in placed.waits)
            made = _operations(step, waits, [algorithm(call) for call in profiled[step.work]])
            last[step.id] = made[-1].id
            streams.setdefault(placed.stream, []).extend(made)
        return Trace(
            version=1,
            name=name,
            device=gpu.name,
            notes=notes,
            streams=tuple(Stream(name=stream, operations=tuple(ops)) for stream, ops in streams.items()),
        )


def _gpu(recording: Recording) -> GPU:
    device = recording.about().get("device")
    if not isinstance(device, dict):
        raise InputError(recording.folder / "recording.json", "device", "missing", "what gpusim record wrote")
    memory, sms = device.get("memory_bytes"), device.get("sm_count")
    product = Product(device.get("name"), int(sms) if sms else None, int(memory) if memory else None)
    return recording_gpu(product, None, recording.folder)


def _algorithm(recording: Recording, gpu: GPU, call: Call) -> ConvolutionAlgorithm:
    kernels = tuple(launch_from_counters(row, gpu.sm_count, row["stream"]) for row in recording.kernels(call))
    timing = recording.timing(call)
    if timing["gpu_bound"] == "True" and all(kernel.stream == "main" for kernel in kernels):
        ms = (float(timing["ms_stream_run1"]) + float(timing["ms_stream_run2"])) / 2.0
        kernels = taking(kernels, trimmed(back_to_back_us(ms, gpu)))
    return ConvolutionAlgorithm(
        algorithm=f"{call.algorithm}/{call.math}",
        workspace_bytes=int(timing["workspace_bytes"]),
        touched_bytes=int(timing["tensor_bytes"]) + int(timing["workspace_bytes"]),
        warm_us=trimmed(float(timing["ms_warm"]) * 1e3),
        cold_us=trimmed(float(timing["ms_cold"]) * 1e3),
        kernels=kernels,
    )


def _operations(
    step: Step, waits: tuple[str, ...], algorithms: Sequence[ConvolutionAlgorithm]
) -> Sequence[Convolution | Kernel]:
    selected, *others = algorithms
    if step.work.kind == CONVOLUTION:
        return [
            Convolution(
                id=step.id,
                depends_on=waits,
                shape=_shape(step.work),
                direction=step.work.direction,  # type: ignore[arg-type]  # checked as it is built
                selected=selected,
                alternatives=tuple(others),
            )
        ]
    return [
        Kernel(id=f"{step.id}.{n}" if n else step.id, depends_on=() if n else waits, kernel=launch)
        for n, launch in enumerate(selected.kernels)
    ]


def _shape(work: CallWork) -> ConvolutionShape:
    down, across = work.padding
    return ConvolutionShape(
        batch=work.batch,
        in_channels=work.channels,
        in_height=work.height,
        in_width=work.width,
        out_channels=work.out_channels,
        filter_height=work.kernel[0],
        filter_width=work.kernel[1],
        padding=down,
        padding_width=None if across == down else across,
        stride=work.stride,
    )


# ---- streams


@dataclass(frozen=True)
class Placed:
    """A step, the stream it runs in, and the steps of other streams that it waits for."""

    step: Step
    stream: str
    waits: tuple[str, ...]


@dataclass
class _Open:
    """A stream under construction: its last step, and all steps that have ended by then."""

    name: str
    tail: str = ""
    ended: frozenset[str] = field(default_factory=frozenset)


def placements(steps: Sequence[Step]) -> list[Placed]:
    """Assign a stream to each branch, and one to the gradients of parameters.

    A step goes on in the stream of a step that it waits for, if nothing followed there yet; else in a stream whose last
    step must have ended anyway; else a new stream opens. So the streams add no order to what the graph has, but for
    that of the gradients of parameters, which run in the order of the backward pass.
    """
    branches: list[_Open] = []
    parameters = _Open(PARAMETERS)
    ended: dict[str, frozenset[str]] = {}  # by step: it and all that it waited for
    placed = []
    for step in steps:
        before = frozenset().union(*(ended[id] for id in step.after))
        stream = parameters if step.of_parameters else _stream_for(step, before, branches)
        known = stream.ended
        placed.append(Placed(step, stream.name, _needed(step.after, ended, known)))
        ended[step.id] = before | known | {step.id}
        stream.tail, stream.ended = step.id, ended[step.id]
    return placed


def _stream_for(step: Step, before: frozenset[str], branches: list[_Open]) -> _Open:
    for stream in branches:
        if stream.tail in step.after:
            return stream
    for stream in branches:
        if stream.tail in before:
            return stream
    branches.append(_Open(f"branch{len(branches)}"))
    return branches[-1]


def _needed(after: Sequence[str], ended: Mapping[str, frozenset[str]], known: frozenset[str]) -> tuple[str, ...]:
    """The dependencies of a step that do not follow from its stream or from one another."""
    return tuple(
        id
        for id in dict.fromkeys(after)
        if id not in known and not any(id in ended[other] for other in after if other != id)
    )
