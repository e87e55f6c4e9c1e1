"""`gpusim.replay`: one call for all policies; for an oracle it searches the best division."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from os import PathLike

from gpusim.calibrate.kernels import Kernels, recording_gpu
from gpusim.common.errors import InputError, quote
from gpusim.engine.several_gpus import policies_of
from gpusim.hardware.gpu import GPU, gpu_of, load_shipped_gpu
from gpusim.policies.interface import Policy
from gpusim.policies.oracles import Oracle
from gpusim.policies.registry import policy_from
from gpusim.results.metrics import BASELINE
from gpusim.results.result import Result
from gpusim.studies import oracle
from gpusim.studies.rules import makespan_us, replay_rule
from gpusim.trace.file import trace_of
from gpusim.trace.format import Trace


def check(trace: Trace, gpu: GPU, policy: str) -> None:
    """Tell what is wrong with a policy for a trace and a GPU before anything is replayed.

    Raises:
        InputError: an unknown policy or parameter, or a value that this trace or GPU cannot have.
    """
    chosen = policy_from(policy)
    if not isinstance(chosen, Oracle):
        for at, one in policies_of(chosen, trace).items():
            one.prepare(gpu, [stream.name for stream in trace.streams if stream.gpu == at])


def given(
    trace: Trace | str | PathLike[str],
    gpu: GPU | str | PathLike[str] | None,
    recorded_on: GPU | str | PathLike[str] | None,
) -> tuple[Trace, GPU, GPU | None]:
    """A trace, a GPU and the GPU of the recording, each given as such, by name or by path.

    Args:
        trace: the trace.
        gpu: where to replay it; None: the GPU of the recording.
        recorded_on: None: as the trace says.

    Raises:
        InputError: one of them is nothing of the kind, or its file is wrong.
    """
    found = trace_of(trace)
    device = None if recorded_on is None else gpu_of(recorded_on)
    return found, gpu_of(gpu) if gpu is not None else device or load_shipped_gpu(found.device), device


def replay(
    trace: Trace | str | PathLike[str],
    gpu: GPU | str | PathLike[str] | None = None,
    policy: str | Policy = "leftover",
    *,
    kernels: Kernels | None = None,
    solo: Mapping[str, float] | None = None,
    seed: int | None = None,
    restart: bool = False,
    placements: bool = True,
    residents: bool = False,
    recorded_on: GPU | str | PathLike[str] | None = None,
) -> Result:
    """Replay a trace on a GPU under a policy.

    Args:
        trace: what was recorded, or the path of its file.
        gpu: where to replay it: a GPU, its name or the path of its file; None: that of the recording.
        policy: a name with parameters, such as ``"inter-sm:sms=64+68"``, or a fresh policy object. The name of an
            oracle replays many divisions and gives the best.
        kernels: from an earlier replay of the same kernels on the same GPUs, to save the time of working them out.
        solo: makespan (us) of each stream alone on the whole GPU, if known.
        seed: of the jitter of blocks; None: that of ``kernels``, 0 by default: as fitted to the recording.
        restart: every stream starts again when it ends, until each has ended once: what STP, ANTT and fairness are
            of (`Result.metrics`). Streams that depend on one another, or have arrivals, cannot.
        placements: keep where the blocks of each launch ran (an oracle always does): most of the memory that a long
            replay takes.
        residents: keep what each SM held over time, `Result.residents`.
        recorded_on: the GPU that the trace was recorded on; None: what the trace says, a GPU that ships or ``gpu``.

    Raises:
        InputError: a kernel that fits no SM, an unknown policy or parameter, a policy that leaves kernels waiting
            for ever, streams that cannot restart.
    """
    trace, gpu, recorded_on = given(trace, gpu, recorded_on)
    chosen = policy_from(policy) if isinstance(policy, str) else policy
    kernels = kernels if kernels is not None else Kernels(recorded_on or recording_gpu(trace, gpu), gpu)
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**31):
        raise InputError(None, "seed", f"is {quote(seed)}", f"a whole number from 0 to {2**31 - 1}, or None")
    kernels = kernels if seed is None else kernels.seeded(seed)
    run = oracle.search if isinstance(chosen, Oracle) else partial(replay_rule, placements=placements)
    result = run(
        trace,
        gpu,
        policy,
        kernels=kernels,
        solo=solo,
        restart=restart,
        residents=residents,
        recorded_on=recorded_on,
    )
    return replace(result, serial_us=partial(_serial_us, trace, gpu, kernels))


def _serial_us(trace: Trace, gpu: GPU, kernels: Kernels) -> float:
    return makespan_us(trace, gpu, policy_from(BASELINE), kernels)
