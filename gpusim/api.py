"""The one call for every policy: rules are replayed, oracles are searched for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from gpusim import oracle
from gpusim.engine import replay as engine
from gpusim.gpu import GPU
from gpusim.metrics import BASELINE
from gpusim.policies.base import Policy
from gpusim.policies.oracles import Oracle
from gpusim.policies.registry import policy_from
from gpusim.result import Result
from gpusim.trace import Trace


def check(trace: Trace, gpu: GPU, policy: str) -> None:
    """Tell what is wrong with a policy for a trace and a GPU before anything is replayed.

    Raises:
        InputError: an unknown policy or parameter, or a value that this trace or GPU cannot have.
    """
    chosen = policy_from(policy)
    if not isinstance(chosen, Oracle):
        chosen.prepare(gpu, [stream.name for stream in trace.streams])


def replay(
    trace: Trace,
    gpu: GPU,
    policy: str | Policy = "leftover",
    *,
    kernels: engine.Kernels | None = None,
    solo: Mapping[str, float] | None = None,
    seed: int | None = None,
    restart: bool = False,
    placements: bool = True,
) -> Result:
    """Replay a trace on a GPU under a policy.

    Args:
        trace: what was recorded.
        gpu: where to replay it.
        policy: a name with parameters, such as ``"inter-sm:sms=64+68"``, or a fresh policy object. The name of an
            oracle replays many divisions and gives the best.
        kernels: from an earlier replay of the same kernels on the same GPUs, to save the time of working them out.
        solo: makespan (us) of each stream alone on the whole GPU, if known.
        seed: of the jitter of blocks; None: that of ``kernels``, 0 by default: as fitted to the recording.
        restart: every stream starts again when it ends, until each has ended once: what STP, ANTT and fairness are
            of (`Result.metrics`). Streams that depend on one another, or have arrivals, cannot.
        placements: keep where the blocks of each launch ran (an oracle always does): most of the memory that a long
            replay takes.

    Raises:
        InputError: a kernel that fits no SM, an unknown policy or parameter, a policy that leaves kernels waiting
            for ever, streams that cannot restart.
    """
    chosen = policy_from(policy) if isinstance(policy, str) else policy
    kernels = kernels if kernels is not None else engine.Kernels(engine.recording_gpu(trace, gpu), gpu)
    kernels = kernels if seed is None else kernels.seeded(seed)
    if isinstance(chosen, Oracle):
        result = oracle.search(trace, gpu, policy, kernels=kernels, solo=solo, restart=restart)
    else:
        result = engine.replay(trace, gpu, policy, kernels=kernels, solo=solo, restart=restart, placements=placements)
    return replace(result, serial_us=partial(_serial_us, trace, gpu, kernels))


def _serial_us(trace: Trace, gpu: GPU, kernels: engine.Kernels) -> float:
    return engine.makespan_us(trace, gpu, policy_from(BASELINE), kernels)
