"""Records a network or a list of shapes: times every call, profiles the chosen ones, and builds a trace."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.progress import tracked
from gpusim.common.tables import counted
from gpusim.lab.record.calls import Call, calls_of
from gpusim.lab.record.network_trace import network_trace
from gpusim.lab.record.outcomes import measure_outcomes
from gpusim.lab.record.program import PROFILED_TOGETHER, BuiltProgram
from gpusim.lab.record.recording import Recording
from gpusim.lab.record.shapes import Subject, subject
from gpusim.training.networks.steps import CONCATENATION

PASSES = {
    "forward": "the forward pass with the layers between the convolutions; batch normalisation as in inference",
    "training": "a training iteration, forward and backward, with the layers between the convolutions",
}
NOTES = """{network}, batch {batch}: {what}.
Recorded with gpusim record on one {gpu}, cuDNN {cudnn} (legacy API), float32 NCHW.
What waits for what is the network's graph. One stream a branch; gradients of parameters in a stream of their own.
Each convolution runs the algorithm that was fastest with cold caches; the fully connected layer is a convolution of one
pixel. Calls of equal shape were recorded once.
Counters: Nsight Compute, one kernel at a time, caches not flushed.
Left out: loss, dropout, the update of the parameters, the input's copy, host time."""
COPIED = "The parts of a concatenation are copied by a kernel of the recorder's own, copy_rows."


@dataclass(frozen=True)
class Order:
    """A request to record a network."""

    what: str  # a network, or a file of shapes
    batch: int  # samples
    training: bool  # a training iteration, not the forward pass alone
    maths: tuple[str, ...]  # of convolutions
    all_algorithms: bool  # also profile convolutions' algorithms that are not the fastest
    outcomes: bool = False  # also measure what `gpusim validate` scores


def record(order: Order, folder: Path) -> Iterator[str]:
    """Record missing rows; yields a line of progress for each step."""
    wanted = subject(order.what, order.batch, order.training)
    calls = calls_of(wanted.name, wanted.steps, order.maths)
    recording = Recording(folder)
    with tempfile.TemporaryDirectory() as scratch:
        program = BuiltProgram(Path(scratch))
        about: dict[str, object] = {"what": wanted.name, "batch": order.batch}
        if not (folder / "recording.json").exists():
            about["device"] = program.device()
        recording.describe(about)
        _time(recording, program, calls)
        supported = sum(len(found) for found in recording.ranked(calls))
        yield f"{folder}: {counted(len(calls), 'call')} timed, {len(calls) - supported} not supported"
        chosen = _to_profile(recording, calls, order.all_algorithms)
        _profile(recording, program, chosen)
        yield f"{folder}: {len(chosen) - len(recording.unprofiled(chosen))} of {counted(len(chosen), 'call')} profiled"
        if order.outcomes:
            yield from measure_outcomes(recording, program, wanted, calls)
    if wanted.network is not None:
        yield _write_trace(recording, wanted, order, calls)


def _write_trace(recording: Recording, wanted: Subject, order: Order, calls: Sequence[Call]) -> str:
    passes = "training" if order.training else "forward"
    name = f"{wanted.name}_b{order.batch}_{passes}"
    device = recording.about()["device"]
    notes = NOTES.format(
        network=wanted.name, batch=order.batch, what=PASSES[passes], gpu=device["name"], cudnn=device["cudnn"]
    )
    if any(step.work.kind == CONCATENATION for step in wanted.steps):
        notes += f"\n{COPIED}"
    path = recording.folder / f"{name}.json.gz"
    trace = network_trace(recording, name, wanted.steps, calls, notes)
    trace.save(path)
    operations = sum(len(stream.operations) for stream in trace.streams)
    return f"{path}: {counted(operations, 'operation')} in {counted(len(trace.streams), 'stream')}"


def _time(recording: Recording, program: BuiltProgram, calls: Sequence[Call]) -> None:
    untimed = recording.untimed(calls)
    for call, measured in tracked(program.time(untimed), len(untimed), "timing"):
        recording.add_timing(call, measured)
    if recording.has_journal:
        recording.write_calls()


def _to_profile(recording: Recording, calls: Sequence[Call], all_algorithms: bool) -> list[Call]:
    """The fastest call of each work, then, if asked for, the others."""
    ranked = recording.ranked(calls)
    if not ranked:
        raise InputError(None, "cuDNN", "supports none of the calls", "a GPU and a cuDNN that do")
    return [found[0] for found in ranked] + [call for found in ranked if all_algorithms for call in found[1:]]


def _profile(recording: Recording, program: BuiltProgram, calls: Sequence[Call]) -> None:
    unprofiled = recording.unprofiled(calls)
    runs = -(-len(unprofiled) // PROFILED_TOGETHER)
    for rows in tracked(program.profile(unprofiled), runs, "profiling"):
        recording.add_kernels(rows)
        recording.write_calls()
