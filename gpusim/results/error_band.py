"""The model error of a replay: the error on measured co-runs that shared a GPU in the same way.

`gpusim/results/validated.json` holds the mean absolute error of the model on measured co-runs. It has an error for each
GPU, each GPU of the recordings, each kind of experiment and each class of call lengths, with the identity of the model.
A replay gets such an error only if a comparable case was measured. The GPU was shared in the same way, the kernels have
counters of the same recording GPU, and their lengths and bounding resources were measured. Whole programs of many
kernels have separate errors. `python experiments/h200_validation/run.py --bands` writes the file.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from gpusim.common import fingerprint
from gpusim.common.tables import summed
from gpusim.hardware.gpu import GPU, gpu_names, load_gpu
from gpusim.results.result import Result
from gpusim.trace.format import Trace
from gpusim.trace.kernels import ALL_COUNTERS, KernelLaunch

VALIDATED = Path(__file__).with_name("validated.json")
SOURCES = (  # that a prediction and its score come from
    "gpusim.calibrate",
    "gpusim.engine",
    "gpusim.hardware.compute_capability",
    "gpusim.hardware.gpcs",
    "gpusim.hardware.gpu",
    "gpusim.lab.dataset",
    "gpusim.io.ncu",
    "gpusim.model",
    "gpusim.policies.hardware",
    "gpusim.policies.interface",
    "gpusim.policies.spatial",
    "gpusim.policies.tools.mixes",
    "gpusim.session",
    "gpusim.lab.scores",
    "gpusim.lab.validate",
    "gpusim.lab.whole_models",
    "gpusim.trace.kernels",
    "gpusim.trace.operations",
)
MOST_STREAMS = 4  # at once that were measured: the branches of an inception module
SHARED_US = 1e-6  # shorter than that two streams are not side by side
HANDOVER = 0.01  # of the SMs' time: a split in which streams meet on an SM for no longer is one all the same [D]
STALE = "not validated for this version"

_Span = tuple[str, float, float]  # of a launch: its stream, from when until when (us)

SHARING = {  # experiment: how its kernels have the GPU
    "modules_serial": "in streams",
    "streams": "in streams",
    "modules_streams": "in streams",
    "sm_curve": "on a part of the SMs",
    "green": "on a part of the SMs",
    "quota": "mixed on an SM",
}
TITLES = {  # of the experiments, as people read them
    "modules_serial": "branches one by one",
    "streams": "two calls in streams",
    "modules_streams": "branches in streams",
    "sm_curve": "calls on part of the SMs",
    "green": "SM split",
    "quota": "two kernels on one SM",
    "programs_serial": "programs one by one",
    "programs_streams": "programs in streams",
    "programs_sm_curve": "program on part of the SMs",
    "programs_green": "programs, SM split",
}
OF_PROGRAMS = {  # the experiment of whole programs that shared the GPU as one of calls did
    "modules_serial": "programs_serial",
    "streams": "programs_streams",
    "modules_streams": "programs_streams",
    "sm_curve": "programs_sm_curve",
    "green": "programs_green",
}
SHARING |= {of_programs: SHARING[of_calls] for of_calls, of_programs in OF_PROGRAMS.items()}
FEWEST_KERNELS = 40  # of a stream, from which on it is a whole program: the models that were measured have 48 to 386
CLASSES = {  # resource that binds a kernel: what was counted of it
    "issue": ("issue_cycles", "alu_cycles", "fma_cycles"),
    "l1": ("lsu_cycles", "l1_cycles"),
    "tensor": ("tensor_cycles",),
}
BINDS = 0.5  # share of its time for which a resource is busy that binds a kernel; below it latency does [D]
UNCOUNTED = "unknown"
PROGRAMS_HAVE = ("copy",)  # operations without kernels of programs that were measured: copies on the device
UNMEASURED = {  # limits, of `gpusim.results.runs.LIMITS`, that no experiment had
    "memory slices": "memory slices",
    "evictions": "evicted blocks",
    "shares": "shares of throughput",
    "time slices": "time slices",
}


class ErrorBand(NamedTuple):
    """The error that was found when predictions of this kind were scored."""

    experiment: str
    mape_percent: float


class HowWrong(NamedTuple):
    """The model error of a result: a band and the GPUs that it was measured on, or why there is none."""

    band: ErrorBand | None
    reason: str
    where: str = ""
    of_kernels: bool = False  # whether there is none because of the kernels, and not of the way to share

    @property
    def plain(self) -> dict[str, object] | None:
        """The band as plain data, for JSON; None where there is none."""
        return None if self.band is None else self.band._asdict()

    @property
    def percent(self) -> float | None:
        """Mean absolute error; None where it is not known."""
        return None if self.band is None else self.band.mape_percent

    @property
    def brief(self) -> str:
        """The error in percent, or why none is known."""
        return self.reason if self.band is None else f"±{self.band.mape_percent:.1f} %"

    @property
    def text(self) -> str:
        """The same with the experiment and the GPUs that it is of."""
        of = "" if self.band is None else f" ({TITLES[self.band.experiment]}, {self.where.removeprefix('on ')})"
        return self.brief + of


@dataclass(frozen=True, slots=True)
class Calls:
    """Properties of the work that decide whether a comparable case was measured."""

    call_us: float  # mean time of a library call (an operation), its kernels' recorded durations summed
    kinds: frozenset[str]  # what binds its kernels, as `kind_of` says
    bound: str = ""  # what binds the kernels that take most of the time


def calls_of(calls: Iterable[tuple[Sequence[KernelLaunch], int]], gpu: GPU) -> Calls:
    """Size and kinds of some calls, at least one: the kernels of each, and how often it is made."""
    known = list(calls)
    took = summed((kind_of(one, gpu), times * one.duration_us) for launches, times in known for one in launches)
    bound = max(took, key=lambda kind: (took[kind], kind))
    return Calls(fsum(took.values()) / sum(times for _, times in known), frozenset(took), bound)


def kind_of(launch: KernelLaunch, gpu: GPU) -> str:
    """The busiest resource of a kernel on the GPU that recorded it; latency where none is busy for half of its time."""
    mix = launch.mix
    if mix is None or not mix.counts(ALL_COUNTERS):
        return UNCOUNTED
    cycles = max((mix.active_cycles_avg or 0.0) * gpu.sm_count / launch.blocks, 1e-9)
    busy = {name: max(getattr(mix, counter) for counter in counters) / cycles for name, counters in CLASSES.items()}
    busy["l2"] = (mix.l2_busy_us or 0.0) * launch.blocks / launch.duration_us
    dram = (mix.dram_read_bytes or 0.0) + (mix.dram_write_bytes or 0.0)
    busy["dram"] = dram * launch.blocks / launch.duration_us / 1e3 / gpu.dram_bandwidth_gb_per_s
    most = max(busy, key=lambda name: (busy[name], name))
    return most if busy[most] >= BINDS else "latency"


# ---- what was measured -----------------------------------------------------------------------------------------------


def model_identity(gpu: GPU, recorded_on: GPU | None = None) -> str:
    """A hash of the sources and of the values of the GPU, and of that which recorded, that can change a prediction."""
    moved = [] if recorded_on in (None, gpu) else [recorded_on]
    return fingerprint.data([fingerprint.modules(*SOURCES), gpu, *moved])[:16]


def measured_errors(experiment: str) -> dict[str, tuple[float, float]]:
    """The least and most mean absolute error (%) of an experiment over its classes of size, by GPU.

    Of recordings of another GPU the name is as ``h100-sxm from h200``. Errors of another version of the model are left
    out.
    """
    found = {}
    for name, by_recording in _validated().items():
        for source, measured in by_recording.items():
            mine = [band for band in measured["bands"] if band["experiment"] == experiment and band["bound"] is None]
            errors = [band["mape_percent"] for band in mine]
            if errors and measured["model"] == model_identity(load_gpu(name), load_gpu(source)):
                found[name if source == name else f"{name} from {source}"] = (min(errors), max(errors))
    return found


def span(least: float, most: float, sign: str = "") -> str:
    """From the one error to the other, with one digit, or once where both are printed alike."""
    return " to ".join(dict.fromkeys((f"{sign}{least:.1f}", f"{sign}{most:.1f}")))


def was_measured(recorded_on: GPU, gpu: GPU) -> bool:
    """Whether co-runs on a GPU were predicted from recordings of another, and scored."""
    return all(map(_ships, (recorded_on, gpu))) and recorded_on.name in _validated().get(gpu.name, {})


def _validated() -> dict[str, dict[str, dict[str, Any]]]:
    content: dict[str, dict[str, dict[str, Any]]] = json.loads(VALIDATED.read_text(encoding="utf-8"))
    return content


# ---- what a replay did -----------------------------------------------------------------------------------------------


def error_band(result: Result, trace: Trace, gpu: GPU, recorded_on: GPU | None = None) -> HowWrong:
    """The error that was measured of replays like this one; else, in a few words, why there is none."""
    source, never = _source(trace, gpu, recorded_on)
    if source is None:
        return _never(never)
    measured = _validated()[gpu.name][source.name]
    experiment, never = experiment_of(result)
    if never:
        return _never(never)
    shared, programs = SHARING[experiment], are_programs(trace)
    if programs:
        experiment = OF_PROGRAMS.get(experiment, "")
    mine = [band for band in measured["bands"] if band["experiment"] == experiment]
    if programs and not mine:
        return _never(f"whole programs {shared}")
    if measured["model"] != model_identity(gpu, source):
        return HowWrong(None, STALE)
    times = Counter(run.operation for run in result.operation_runs)
    work = calls_of([(op.launches(), times[op.id]) for op in trace.operations() if op.launches()], source)
    unmeasured = sorted(work.kinds - set(measured["kinds"][shared]))
    if UNCOUNTED in unmeasured:
        return _never(f"kernels without counters {shared}", of_kernels=True)
    if unmeasured:
        return _never(f"kernels bound by {' and '.join(unmeasured)} {shared}", of_kernels=True)
    fitting = [band for band in mine if band["from_us"] <= work.call_us <= band["to_us"]]
    if not fitting:
        shorter = not mine or work.call_us < mine[-1]["to_us"]
        return _never(f"calls {'shorter' if shorter else 'longer'} than any measured", of_kernels=True)
    band = next((band for band in fitting if band["bound"] == work.bound), fitting[0])
    where = f"on {gpu.name}" if source.name == gpu.name else f"from {source.name} on {gpu.name}"
    return HowWrong(ErrorBand(experiment, band["mape_percent"]), "", where)


def are_programs(trace: Trace) -> bool:
    """Whether every stream is a whole program: many kernels, each an operation."""
    return all(
        sum(operation.kind == "kernel" for operation in stream.operations) >= FEWEST_KERNELS for stream in trace.streams
    )


def experiment_of(result: Result) -> tuple[str, str]:
    """The experiment that shared a GPU as a replay did; or, second, what of it was in none."""
    limits = result.limits
    unmeasured = [words for limit, words in UNMEASURED.items() if limit in limits]
    if unmeasured:
        return "", unmeasured[0]
    at_once = streams_at_once(result)
    if at_once > MOST_STREAMS:
        return "", f"{at_once} streams at once"
    if at_once < 2:
        if "blocks" in limits:
            return "", "fewer blocks per SM of one kernel"
        return ("sm_curve" if "SMs" in limits else "modules_serial"), ""
    if not limits & {"SMs", "blocks"}:
        if "queues" in limits:
            return "", "processes without limits on their SMs"
        return ("streams" if len(result.stream_runs) <= 2 else "modules_streams"), ""
    if not result.placements:
        return "", "where blocks ran was not kept"
    mixed = streams_on_an_sm(result)
    if mixed < 2:
        return "green", ""
    if "blocks" not in limits:
        shared = streams_on_an_sm(result, result.program_of) < 2
        return "", "several streams of a program on the same SMs" if shared else "SM sets that overlap"
    return ("quota", "") if mixed == 2 else ("", f"{mixed} streams mixed on an SM")


def streams_at_once(result: Result) -> int:
    """The most streams that had blocks on the GPU at once."""
    spans = ((run.stream, run.start_us, run.end_us) for run in result.kernel_runs)
    return _most(_at_once(spans))


def streams_on_an_sm(result: Result, owners: Mapping[str, str] = MappingProxyType({})) -> int:
    """The most streams that had blocks on one SM at once; 1 where those were handovers (`HANDOVER`).

    Streams of one owner count as one.
    """
    by_sm: dict[int, list[_Span]] = {}
    for row, (sms, _, starts, ends) in result.placements.launches:
        stream = result.kernel_runs[row].stream
        stream = owners.get(stream, stream)
        for sm, start, end in zip(sms, starts, ends, strict=True):
            by_sm.setdefault(sm, []).append((stream, start, end))
    most, mixed_us, busy_us = 1, 0.0, 0.0
    for spans in by_sm.values():
        pieces = list(_at_once(spans))
        most = max(most, _most(pieces))
        mixed_us += fsum(us for us, streams in pieces if streams > 1)
        busy_us += fsum(us for us, streams in pieces if streams > 0)
    return most if mixed_us > HANDOVER * busy_us else 1


def _at_once(spans: Iterable[_Span]) -> Iterator[tuple[float, int]]:
    """How many streams have a span at once: pieces of time (us), and the number in each."""
    changes: list[tuple[float, int, str]] = []
    for stream, start, end in spans:
        changes += (start, 1, stream), (end, -1, stream)
    changes.sort()
    held: dict[str, int] = {}
    count, before = 0, 0.0
    for time, change, stream in changes:
        if time > before:
            yield time - before, count
            before = time
        had = held.get(stream, 0)
        held[stream] = has = had + change
        count += (has > 0) - (had > 0)


def _most(pieces: Iterable[tuple[float, int]]) -> int:
    return max((streams for us, streams in pieces if us > SHARED_US), default=0)


def _source(trace: Trace, gpu: GPU, recorded_on: GPU | None) -> tuple[GPU | None, str]:
    """The GPU that recorded a trace, if predictions from it were validated on ``gpu``; else None, and what was not."""
    by_recording = _validated().get(gpu.name)
    if by_recording is None:
        return None, f"nothing measured on {gpu.name}"
    if not _ships(gpu):
        return None, f"not {gpu.name} as it ships"
    if trace.stands_for is not None:
        return None, f"recorded on {trace.stands_for}"
    if trace.recorded_sms():
        return None, "recorded on a part of the SMs"
    if trace.order is not None:
        return None, "streams in inferred order" if trace.order == "inferred" else "streams taken as independent"
    name = trace.device if recorded_on is None else recorded_on.name
    if name not in by_recording or not (recorded_on is None or _ships(recorded_on)):
        return None, f"recorded on {name}"
    within = PROGRAMS_HAVE if are_programs(trace) else ()
    others = sorted({op.kind for op in trace.operations() if not (op.launches() or op.kind in within)})
    if others:
        return None, f"operations of kind {' and '.join(others)}"
    if any(stream.gpu > 0 for stream in trace.streams):
        return None, "several GPUs"
    if not within and not all(launch.counts(ALL_COUNTERS) for launch in trace.launches()):
        return None, "kernels without counters"
    if within and any(all(launch.estimated for launch in of) for of in trace.launches_by_program().values()):
        return None, "programs without counters"
    return load_gpu(name), ""


def _ships(gpu: GPU) -> bool:
    return gpu.name in gpu_names() and load_gpu(gpu.name) == gpu


def _never(why: str, of_kernels: bool = False) -> HowWrong:
    return HowWrong(None, f"not validated: {why}", of_kernels=of_kernels)
