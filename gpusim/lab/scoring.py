"""Scores of `gpusim validate`: every kind of folder in one form, and the kernels with the largest errors.

A folder of calls (`gpusim.lab.dataset`) or of whole models (`gpusim.lab.whole_models`) becomes a `Scoring`: rows, and
for each row which kernels ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import fsum
from pathlib import Path
from statistics import fmean

from gpusim.common import tables
from gpusim.common.errors import InputError, the_first
from gpusim.common.spreadsheet import table_rows
from gpusim.common.tables import counted, short_name, shortened
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.lab import whole_models
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.scores import EXPERIMENTS, Scored, residency_ratios
from gpusim.lab.validate import Case, Condition, conditions, measurements, score
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

NAMED_COUNTERS = 3  # of those that are missing, that a note names

Named = Mapping[tuple[str, str], tuple[str, ...]]  # experiment and key of a row: the ops or models that ran


@dataclass(frozen=True)
class Scoring:
    """A folder, predicted and measured."""

    rows: Sequence[Scored]  # every prediction beside its measurement
    # measured times that are not predicted, such as those of pairs in turn, by experiment and key
    measured: Mapping[tuple[str, str], float]
    gpu: GPU  # where it was measured
    recorded_on: GPU  # the GPU of the recordings
    named: Named = field(default_factory=dict)  # what ran in each row
    kernels: Callable[[str], Sequence[KernelLaunch]] = lambda name: ()  # the kernels of one call or pass of what ran
    notes: tuple[str, ...] = ()  # what a reader should know of the recordings


@dataclass(frozen=True, slots=True)
class Miss:
    """Largest errors of one experiment, and their causes."""

    experiment: str  # which
    what: str  # the ops, models or module
    points: int  # its rows
    mape_percent: float  # their mean absolute error
    bias_percent: float  # their mean error with its sign
    why: str  # of what takes longest there, what binds it and which counters it lacks


# ---- every kind of folder --------------------------------------------------------------------------------------------


def scoring(case: Case, jobs: int | None = None) -> Scoring:
    """Predict and measure a folder, whatever it holds; one of calls by so many processes (None: one per core)."""
    folder = Path(case.folder)
    if not whole_models.holds_models(folder):
        return _of_calls(case, jobs)
    for name in ("recordings", "recorded_on", "scaling"):
        if getattr(case, name):
            raise InputError(folder, name, "is not for whole models", "no such option")
    return _of_models(case)


def _of_models(case: Case) -> Scoring:
    rows, gpu = whole_models.score_models(case), load_gpu(case.gpu)
    known = whole_models.predictor(case)
    named = {(row.experiment, row.key): whole_models.models_of(row) for row in rows}
    notes = [
        note
        for model in dict.fromkeys(model for models in named.values() for model in models)
        if (note := _uncounted(model, known.launches(model)))
    ]
    return Scoring(rows, whole_models.measured_alone(rows), gpu, gpu, named, known.launches, tuple(notes))


def _uncounted(model: str, launches: Sequence[KernelLaunch]) -> str:
    """Note about kernels of a model without counters; empty if all have counters."""
    bare = [launch.duration_us for launch in launches if launch.estimated]
    if not bare:
        return ""
    share = 100.0 * fsum(bare) / fsum(launch.duration_us for launch in launches)
    return f"{model}: {len(bare)} of {len(launches)} kernels have no counters ({share:.0f} % of the time)"


def _of_calls(case: Case, jobs: int | None) -> Scoring:
    dataset = case.load()
    rows, recordings = score(case, jobs=jobs), dataset.recordings
    ran = ((one, tuple(dict.fromkeys(op for ops in one.ops for op in ops))) for one in conditions(dataset))
    names = {name: ops for one, ops in ran for name in row_names(one)}
    return Scoring(
        rows,
        measurements(dataset),
        dataset.gpu,
        recordings.gpu,
        names,
        lambda op: recordings.op(op).kernels,
        tuple(filter(None, [missing_counters(recordings.folder)])),
    )


def row_names(condition: Condition) -> list[tuple[str, str]]:
    """Experiment and key of the rows that a condition gives."""
    names = ("quota_a", "quota_b") if condition.experiment == "quota" else (condition.experiment,)
    return [(name, condition.key) for name in names]


def missing_counters(folder: Path) -> str:
    """Which counters a recording lacks that `gpusim record` writes today; empty where none."""
    path = folder / "kernels.csv.gz"
    with table_rows(path if path.is_file() else folder / "kernels.csv") as rows:
        lacking = [counter for counter in COUNTERS if counter not in (rows.fieldnames or ())]
    if not lacking:
        return ""
    return (
        f"the recording lacks {counted(len(lacking), 'counter')} that gpusim record writes today, and is scored "
        f"without: {the_first(lacking, NAMED_COUNTERS)}"
    )


# ---- what is missed most ---------------------------------------------------------------------------------------------


def worst(found: Scoring, count: int) -> list[Miss]:
    """The ops, pairs, models and modules with the largest mean absolute error: so many of each experiment."""
    known = Reasons(found)
    misses = []
    for experiment in EXPERIMENTS:
        groups = sorted(grouped(found, experiment).items(), key=lambda group: (-fmean(map(abs, group[1])), group[0]))
        misses += [
            Miss(experiment, what, len(errors), fmean(map(abs, errors)), fmean(errors), known.of(names))
            for (what, names), errors in groups[:count]
        ]
    return misses


def grouped(found: Scoring, experiment: str) -> dict[tuple[str, tuple[str, ...]], list[float]]:
    """Errors (%) of one experiment, by the work that ran."""
    mine = [row for row in found.rows if row.experiment == experiment]
    groups: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for row in residency_ratios(mine) if experiment == "residency_curve" else mine:
        names = found.named.get((experiment, row.key), ())
        what = " ".join(row.key.split("|")) if not names or experiment.startswith("modules") else " + ".join(names)
        groups.setdefault((what, names), []).append(100.0 * (row.predicted_ms / row.measured_ms - 1.0))
    return groups


class Reasons:
    """Resource that bounds the longest kernel, and the counters that its recording lacks."""

    def __init__(self, found: Scoring) -> None:
        self._found = found
        self._session = Session(found.gpu, found.recorded_on)
        self._bound_by = cache(self._replayed)

    def of(self, names: Sequence[str]) -> str:
        """Return why some ops or models may be missed, by the longest kernel of each of the longest two."""
        longest = sorted(map(self._longest, names), key=lambda one: -one[1].duration_us)
        return "; ".join(dict.fromkeys(self._of_kernel(*one) for one in longest[:2]))

    def bound_by(self, name: str) -> str:
        """Resource that bounds the longest kernel of an op or model."""
        return self._bound_by(self._longest(name)[1])

    def _longest(self, name: str) -> tuple[float, KernelLaunch]:
        """The kernel of an op or model that takes most of its time over all its launches, and that share."""
        launches = self._found.kernels(name)
        times = tables.grouped(launches, lambda launch: launch.name)
        most = max(times.values(), key=lambda one: fsum(launch.duration_us for launch in one))
        whole = fsum(launch.duration_us for launch in launches)
        return fsum(launch.duration_us for launch in most) / whole, max(most, key=lambda one: one.duration_us)

    def _of_kernel(self, share: float, launch: KernelLaunch) -> str:
        part = "" if share > 0.995 else f" ({100.0 * share:.0f} % of the time)"
        name = shortened(short_name(launch.name), 40)
        lacks = launch.uncounted
        missing = "; no counters" if launch.estimated else f"; without {', '.join(lacks)}" if lacks else ""
        return f"{name}{part}: {self._bound_by(launch)} binds, {counted(launch.blocks, 'block')}{missing}"

    def _replayed(self, launch: KernelLaunch) -> str:
        """Resource that bounds a kernel in isolation."""
        alone = launch.model_copy(update={"stream": "main"})  # also one on a stream that its library opened
        stream = Stream(name="a", operations=(Kernel(id="kernel", kind="kernel", kernel=alone),))
        trace = Trace(version=1, name="kernel", device=self._found.recorded_on.name, streams=(stream,))
        return self._session.replay(trace, "leftover", keep=()).kernel_runs[0].bound_by
