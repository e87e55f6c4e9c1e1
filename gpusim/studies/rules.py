"""Replays of a trace under a policy that is not an oracle: fits the kernels, times the streams alone, replays."""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.calibrate.kernels import Kernels, recording_gpu
from gpusim.calibrate.solo import solo_makespans
from gpusim.engine import replay as engine
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Policy
from gpusim.policies.registry import policy_from
from gpusim.results.error_band import was_measured
from gpusim.results.result import Result
from gpusim.studies.workload import require_independent
from gpusim.trace.format import StreamOrder, Trace

ORDER_NOTES: dict[StreamOrder, str] = {
    "inferred": "the source records no waits between streams: their order is inferred from the recorded times, "
    "and speedups marked * rest on that",
    "independent": "streams are taken as independent: what they wait for was not recorded or left out, "
    "and speedups marked * rest on that",
}


def replay_rule(
    trace: Trace,
    gpu: GPU,
    policy: str | Policy | Mapping[int, Policy],
    *,
    kernels: Kernels | None = None,
    solo: Mapping[str, float] | None = None,
    seed: int | None = None,
    restart: bool = False,
    placements: bool = True,
    residents: bool = False,
    recorded_on: GPU | None = None,
) -> Result:
    """As `gpusim.replay`, of a policy that is no oracle, or of one for each GPU of the trace.

    Raises:
        InputError: as `gpusim.replay`.
        Starved: a stream that restarts had not ended once after many turns of all of them.
    """
    device = recorded_on or recording_gpu(trace, gpu)
    kernels = kernels if kernels is not None else Kernels(device, gpu)
    kernels = kernels if seed is None else kernels.seeded(seed)
    chosen = policy_from(policy) if isinstance(policy, str) else policy
    solo = solo if solo is not None else solo_makespans(trace, gpu, kernels)
    if restart:
        require_independent(trace, solo)
    return engine.replay(
        trace,
        gpu,
        chosen,
        kernels,
        solo,
        name=policy if isinstance(policy, str) else "",
        notes=_recording_notes(trace, device, gpu),
        restart=restart,
        placements=placements,
        residents=residents,
    )


def _recording_notes(trace: Trace, device: GPU, gpu: GPU) -> tuple[str, ...]:
    """What a reader should know of the GPU that the kernels were fitted on."""
    notes = []
    if trace.order is not None:
        notes.append(ORDER_NOTES[trace.order])
    if trace.stands_for is not None:
        notes.append(f"recorded on {trace.stands_for}, taken as recorded on {trace.device}: not validated")
    if device.name != trace.device:
        notes.append(f"taken as recorded on {device.name}; the trace says {trace.device}")
    if device != gpu:
        doubt = "" if was_measured(device, gpu) else ": not validated"
        notes.append(f"recorded on {device.name}, replayed on {gpu.name}{doubt}")
        launches = [launch for operation in trace.operations() for launch in operation.launches()]
        estimated = sum(launch.estimated for launch in launches)
        communicating = sum(bool(launch.communicates) for launch in launches)
        if communicating:
            notes.append(f"{communicating} kernels exchange data with other GPUs and keep their recorded durations")
        if estimated:
            counted = f"{estimated} of {len(launches)} kernels have no counters"
            notes.append(f"{counted}: their times on {gpu.name} are estimated")
    return tuple(notes)


def makespan_us(trace: Trace, gpu: GPU, policy: Policy, kernels: Kernels) -> float:
    """Only the makespan of a replay."""
    ends = engine.stream_ends(trace, gpu, policy, kernels)
    return max(ends[stream.name] for stream in trace.streams if stream.operations)
