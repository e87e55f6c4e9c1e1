"""One point of a sweep: its inputs, its identity and the outcome of its replay.

The identity of a point is a hash of everything that can change its result: the trace and the part of it, the GPU, the
GPU of the recording, the policy, the seed, and the sources of the model. Of a user's policy it includes the sources. A
file counts without its imports; a module counts with its imports from its own package.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial

from gpusim.common import fingerprint
from gpusim.common.errors import InputError, described, one_line
from gpusim.hardware.gpu import GPU
from gpusim.policies.registry import code_of
from gpusim.results.error_band import VALIDATED, error_band
from gpusim.results.metrics import SHARING, largest_slowdown, normalised_progress, sharing, utilisation
from gpusim.results.runs import USES
from gpusim.session import Keep, Session
from gpusim.sweeps.workers import WorkerDied
from gpusim.sweeps.workload import WorkloadKind, workload
from gpusim.trace.file import parse_trace
from gpusim.trace.format import Trace

ERROR = "model_error_percent"
MAY_BE_UNKNOWN = (*(f"utilisation_{use}" for use in USES), ERROR)
FIGURES = ("makespan_us", "speedup_vs_serial", "largest_slowdown", *SHARING, *MAY_BE_UNKNOWN)
"""Numbers of a point: as in `gpusim.results.metrics`, the makespan of serial over that of the policy, and `ERROR`.

`SHARING` is of programs that restart, None where the experiment does not ask for that; all others are of one run.
`ERROR` is the mean absolute error (%) that was measured for co-runs of this kind, None where there is none.
"""

KEEP: tuple[Keep, ...] = ("serial", "placements")  # the latter to tell which error applies
MOST_CHARACTERS = 500  # of an error
KEPT = 16  # traces on GPUs that a process keeps, kernels worked out
PARTS = 64  # workloads of each of them that it keeps


@dataclass(frozen=True, slots=True)
class Packed:
    """A trace for other processes, independent of the layout and name of its file."""

    content: bytes = field(repr=False, compare=False)  # the trace as JSON, compressed
    digest: str  # a hash of that JSON


@dataclass(frozen=True, slots=True)
class Task:
    """Input of a worker process, which computes one point. The only file it reads is that of a user's policy."""

    model: str  # `model_version` of the process that sends the point
    trace: Packed  # what was recorded
    kind: WorkloadKind  # of workload
    names: tuple[str, ...]  # which of them (`gpusim.sweeps.workload`)
    device: GPU  # the GPU that the trace was recorded on
    gpu: GPU  # the GPU to replay it on
    policy: str  # with its parameters
    source: str  # `policy_source` of it
    seed: int  # of the jitter of blocks
    restart: bool = False  # replay it with streams that restart, too


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a point."""

    # one for each of `FIGURES`, None where it is unknown or does not apply; empty where the point failed
    figures: tuple[float | None, ...]
    division: str = ""  # of an oracle: what it found
    error: str = ""  # why it failed; empty where it did not


def failed(error: str | BaseException) -> Outcome:
    """Outcome of a point that failed, with a reason or an exception."""
    text = str(error) if isinstance(error, (str, InputError, WorkerDied)) else described(error)
    return Outcome((), "", one_line(text)[:MOST_CHARACTERS])


def compute(task: Task) -> Outcome:
    """Replay a point. An error becomes its outcome, and is not raised."""
    if task.model != model_version():
        return failed("the worker has other sources of gpusim; expected the same on all machines")
    try:
        if policy_source(task.policy) != task.source:
            return failed("the policy's code is not what it was when the sweep began; expected the same for all points")
        return _outcome(task)
    except (Exception, SystemExit) as error:  # a defect of a policy or of ours costs this point and not the sweep
        return failed(error)


def model_version() -> str:
    """Hash of the sources that results depend on, and of the measured errors."""
    return fingerprint.data([fingerprint.sources(__name__, "gpusim.policies"), fingerprint.files([VALIDATED])])


def packed(trace: Trace) -> Packed:
    """A trace for a `Task`."""
    bare = trace.model_copy(update={"name": "swept", "notes": ""})  # what a replay does not read
    text = bare.model_dump_json(exclude_none=True).encode()
    return Packed(zlib.compress(text), hashlib.sha256(text).hexdigest())


def policy_source(text: str) -> str:
    """Hash of the code of a policy, without running it; empty for a policy of gpusim."""
    code = code_of(text)
    if code is None:
        return ""
    return fingerprint.sources(code.module) if code.module else fingerprint.files([code.file])


@lru_cache(maxsize=KEPT)
def _on(trace: Packed, device: GPU, gpu: GPU) -> tuple[Session, Callable[[WorkloadKind, tuple[str, ...]], Trace]]:
    """Return a session of a trace on a GPU, and its workloads. The kernels are fitted on the GPU of the recording."""
    session = Session(device, device) if gpu == device else _on(trace, device, device)[0].on(gpu)
    return session, lru_cache(PARTS)(partial(workload, _unpacked(trace)))


@lru_cache(maxsize=KEPT)
def _unpacked(trace: Packed) -> Trace:
    return parse_trace(zlib.decompress(trace.content))


def _outcome(task: Task) -> Outcome:
    fitted, workload_of = _on(task.trace, task.device, task.gpu)
    trace, session = workload_of(task.kind, task.names), fitted.seeded(task.seed)
    result = session.replay(trace, task.policy, keep=KEEP)
    shared: Mapping[str, float | None] = dict.fromkeys(SHARING)
    if task.restart:
        shared = sharing(normalised_progress(session.replay(trace, task.policy, restart=True, keep=())))
    gained, used = result.metrics["speedup"], utilisation(result)
    error = error_band(result, trace, task.gpu, task.device).percent
    figures = result.makespan_us, gained, largest_slowdown(result), *shared.values(), *used.values(), error
    return Outcome(figures, result.division)
