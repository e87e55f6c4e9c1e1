"""Whole models side by side, predicted from their profiles as a user would: `gpusim validate FOLDER`.

A folder holds `NAME.kineto.json.gz`, two passes of a model as PyTorch's profiler saw them, `NAME.ncu.csv.gz`, one pass
with Nsight Compute's counters (it may be missing), and `pairs.csv`: what the GPU took when ``na`` passes of model ``a``
ran with ``nb`` passes of model ``b``. Modes: ``alone`` (each by itself), ``streams``, ``green`` (disjoint SMs) and
``alone_green`` (each on its SMs, nothing on the others). Model ``a`` has the SMs of lower numbers. Only the
profiles and the conditions reach a prediction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from math import fsum
from pathlib import Path

from gpusim.common.cores import in_order
from gpusim.common.errors import InputError
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import count_in, recorded_rows
from gpusim.common.tables import summed
from gpusim.hardware.gpu import load_gpu
from gpusim.io.importing import import_profile
from gpusim.lab.dataset import Row, time_in
from gpusim.lab.scores import Scored
from gpusim.lab.validate import Case
from gpusim.session import Session
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Host, Operation, Stream
from gpusim.trace.programs import Program

PAIRS = "pairs.csv"
PROFILE = ".kineto.json"
COUNTERS = (".ncu.csv.gz", ".ncu.csv", ".ncu-rep")
PASSES = 2  # of a model in its profile
MODES = ("alone", "streams", "green", "alone_green")
COLUMNS = ("a", "na", "b", "nb", "mode", "sms_a", "sms_b", "ms_a", "ms_b", "ms_makespan")
MOST_PASSES = 10_000
A_FOLDER = "a folder of whole models, as gpusim record OPS.py writes"


@dataclass(frozen=True, slots=True)
class ModelCondition:
    """One measured condition."""

    experiment: str  # isolated, sm_curve, streams or green
    key: str  # the identifying columns joined by ``|``; of isolated and sm_curve with ``a`` or ``b`` behind them
    models: tuple[str, ...]  # the models that run
    passes: tuple[int, ...]  # of each
    sms: tuple[int, ...]  # SMs of each; empty: the whole GPU
    measured_ms: float  # what the GPU took
    idle_sms: int = 0  # SMs of lower numbers, on which nothing runs


def holds_models(folder: Path) -> bool:
    """Whether a folder holds profiles of whole models."""
    return folder.is_dir() and any(folder.glob(f"*{PROFILE}*"))


def model_conditions(case: Case) -> list[ModelCondition]:
    """Everything that was measured, in the order of the file."""
    path = Path(case.folder) / PAIRS
    most, seen = load_gpu(case.gpu).sm_count, dict[tuple[str, str], ModelCondition]()
    for place, row in recorded_rows(path, COLUMNS, A_FOLDER):
        for one in _conditions_of(row, path, place, most):
            if (one.experiment, one.key) in seen:
                raise InputError(path, place, f"measures {one.key} again", "each once")
            seen[one.experiment, one.key] = one
    return list(seen.values())


def _conditions_of(row: Row, path: Path, place: str, most: int) -> Iterator[ModelCondition]:
    """The conditions that a row measured: one, or one for each of its models."""
    if row["mode"] not in MODES:
        raise InputError(path, place, f"mode is {row['mode'] or 'empty'}", f"one of {', '.join(MODES)}")
    models = row["a"], row["b"]
    for model in models:
        _profile(path.parent, model)
    na, nb = (count_in(row, column, 1, path, place) for column in ("na", "nb"))
    sms = (count_in(row, "sms_a", 1, path, place), count_in(row, "sms_b", 1, path, place))
    for column, count in (("na", na), ("nb", nb)):
        if count > MOST_PASSES:
            raise InputError(path, place, f"{column} is {count}", f"at most {MOST_PASSES} passes")
    apart = row["mode"] in ("green", "alone_green")
    if apart and sum(sms) > most:
        raise InputError(path, place, f"takes {sum(sms)} SMs", f"at most {most}")
    key = "|".join(row[column] for column in ("a", "na", "b", "nb"))
    key += f"|{sms[0]}|{sms[1]}" if apart else ""
    if row["mode"] in ("streams", "green"):
        ms = time_in(row, "ms_makespan", path, key)
        yield ModelCondition(row["mode"], key, models, (na, nb), sms if apart else (), ms)
        return
    for i, side in enumerate("ab"):
        ms = time_in(row, f"ms_{side}", path, key)
        experiment = "sm_curve" if apart else "isolated"
        own = (sms[i],) if apart else ()
        idle = sms[0] if apart and side == "b" else 0
        yield ModelCondition(experiment, f"{key}|{side}", (models[i],), ((na, nb)[i],), own, ms, idle)


def _profile(folder: Path, model: str) -> Path:
    found = [folder / f"{model}{PROFILE}{ending}" for ending in ("", ".gz")]
    known = next((path for path in found if model and path.is_file()), None)
    if known is None:
        raise InputError(folder / PAIRS, model or "an empty name", "has no profile", f"a file {found[-1].name}")
    return known


class ModelPredictor:
    """Predicts conditions from imported profiles; each model is imported once, each kernel fitted once."""

    def __init__(self, case: Case) -> None:
        self._folder = Path(case.folder)
        self._gpu = load_gpu(case.gpu)
        self._session = Session(self._gpu, self._gpu)
        self._profiled: dict[str, Trace] = {}

    def profiled(self, model: str) -> Trace:
        """A model as imported: all passes of its profile."""
        if model not in self._profiled:
            path = _profile(self._folder, model)
            counters = (self._folder / f"{model}{ending}" for ending in COUNTERS)
            trace = import_profile(path, "kineto", self._gpu, next(filter(Path.is_file, counters), None)).trace
            for stream in trace.streams:
                _require_equal_passes(stream, path)
            self._profiled[model] = trace
        return self._profiled[model]

    def launches(self, model: str) -> tuple[KernelLaunch, ...]:
        """The kernels of one pass."""
        each = [stream.operations[: len(stream.operations) // PASSES] for stream in self.profiled(model).streams]
        return tuple(launch for operation in chain(*each) for launch in operation.launches())

    def predict_ms(self, condition: ModelCondition) -> float:
        """The predicted time of a condition."""
        traces = [self.passes(model, n) for model, n in zip(condition.models, condition.passes, strict=True)]
        sms = condition.sms
        if condition.idle_sms:
            traces, sms = [_idle(traces[0].device), *traces], (condition.idle_sms, *sms)
        trace = traces[0] if len(traces) == 1 else merge(traces, ("a", "b"), condition.key[:200])
        split = "+".join(map(str, sms))
        policy = f"inter-sm:by=program,sms={split}" if condition.sms else "leftover"
        return self._session.makespan_us(trace, policy) / 1e3

    def nothing_ms(self, condition: ModelCondition) -> float:
        """Return the baseline: kernels one after the other, scaled by the share of the SMs."""
        us = fsum(
            n * fsum(launch.duration_us for launch in self.launches(model))
            for model, n in zip(condition.models, condition.passes, strict=True)
        )
        part = self._gpu.sm_count / condition.sms[0] if len(condition.sms) == 1 else 1.0
        return us * part / 1e3

    def passes(self, model: str, count: int) -> Trace:
        """So many passes of a model, one after the other: those of its profile in turn."""
        trace = self.profiled(model)
        streams = [
            stream.model_copy(update={"operations": tuple(_repeated(trace, stream, count))}) for stream in trace.streams
        ]
        program = Program(name="model", streams=tuple(stream.name for stream in streams))
        return trace.model_copy(update={"version": 2, "streams": tuple(streams), "programs": (program,)})


def _idle(device: str) -> Trace:
    """A program that does nothing on its SMs."""
    nothing = Stream(name="idle", operations=(Host(id="nothing", what="other", duration_us=0.0),))
    program = Program(name="idle", streams=(nothing.name,))
    return Trace(version=2, name="idle", device=device, streams=(nothing,), programs=(program,))


def _require_equal_passes(stream: Stream, path: Path) -> None:
    """Refuse a stream whose operations are not the same in each pass."""
    each, rest = divmod(len(stream.operations), PASSES)
    launched = [[(one.name, one.grid) for one in operation.launches()] for operation in stream.operations]
    if rest or any(launched[:each] != launched[each * i : each * (i + 1)] for i in range(PASSES)):
        raise InputError(path, stream.name, "does not hold two equal passes", "a profile of two passes of one model")


def _repeated(trace: Trace, stream: Stream, count: int) -> Iterator[Operation]:
    """The operations of a stream in so many passes; a pass waits for the end of that before it, on every stream."""
    each = len(stream.operations) // PASSES
    home = {op.id: n // max(1, len(s.operations) // PASSES) for s in trace.streams for n, op in enumerate(s.operations)}
    for number in range(count):
        ends = [f"{_last(other, number - 1)}.{number - 1}" for other in trace.streams if number and other is not stream]
        for n, operation in enumerate(stream.operations[(number % PASSES) * each :][:each]):
            before = [f"{one}.{number}" for one in operation.depends_on if home[one] == number % PASSES]
            waits = (*before, *(ends if n == 0 else ()))
            yield operation.model_copy(update={"id": f"{operation.id}.{number}", "depends_on": waits})


def _last(stream: Stream, number: int) -> str:
    each = len(stream.operations) // PASSES
    return stream.operations[(number % PASSES + 1) * each - 1].id


def score_models(case: Case, jobs: int | None = None) -> list[Scored]:
    """Predict every condition and put it beside its measurement, in the order of the file.

    ``jobs``: processes; None: one per core.
    """
    wanted, known = model_conditions(case), predictor(case)
    for model in dict.fromkeys(chain(*(one.models for one in wanted))):
        known.profiled(model)
    predicted = tracked(in_order(known.predict_ms, wanted, jobs), len(wanted), "predicting")
    return [
        Scored(one.experiment, one.key, ms, one.measured_ms, known.nothing_ms(one))
        for one, ms in zip(wanted, predicted, strict=True)
    ]


def measured_alone(rows: Sequence[Scored]) -> Mapping[tuple[str, str], float]:
    """Measured time of each pair one after the other, ms, as `gpusim.lab.scores.summaries` asks for it."""
    isolated = (row for row in rows if row.experiment == "isolated")
    return summed((("alone", row.key.rpartition("|")[0]), row.measured_ms) for row in isolated)


def models_of(row: Scored) -> tuple[str, ...]:
    """The models that ran in a row."""
    a, _, b, _, *rest = row.key.split("|")
    sides = {"a": (a,), "b": (b,)}
    return sides.get(rest[-1], (a, b)) if rest else (a, b)


@cache
def predictor(case: Case) -> ModelPredictor:
    """Return the predictor of a case in this process."""
    return ModelPredictor(case)
