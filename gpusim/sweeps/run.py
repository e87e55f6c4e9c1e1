"""A sweep: compute the missing points of an experiment, and write all points into a table."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.common import fingerprint
from gpusim.common.errors import InputError, quote
from gpusim.common.files import path_of
from gpusim.hardware.gpu import GPU, load_shipped_gpu, recorded_by
from gpusim.hardware.what_if import amount, value_of, what_if
from gpusim.io.importing import no_trace
from gpusim.policies.registry import policy_from
from gpusim.sweeps.compute import Outcome, Task, compute, failed, model_version, packed
from gpusim.sweeps.experiment import Experiment, Source, load_experiment
from gpusim.sweeps.table import Label, Table, TableRow
from gpusim.sweeps.workers import Executors, computed, local
from gpusim.sweeps.workload import workloads
from gpusim.trace.file import load_trace

if TYPE_CHECKING:
    import pandas as pd

MAX_POINTS = 10**6  # of one table


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """One row of the table to come."""

    labels: tuple[Label, ...]  # a value for each of `label_names`
    identity: str  # a hash of everything that can change what comes of it
    task: Task | None  # what computes it; None where it failed before, as with a trace that cannot be read
    error: str = ""  # why it did; else empty


@dataclass(frozen=True, slots=True)
class Swept:
    """A finished sweep."""

    experiment: Experiment  # that was run
    table: Path  # its file
    points: tuple[SweepPoint, ...]  # rows, in the order of the table
    outcomes: tuple[Outcome, ...]  # of the points, in the same order
    computed: int  # how many of them were computed now; the others were in the table
    dropped: int  # rows of the table from before that were of no point of this experiment

    def __repr__(self) -> str:
        return f"Swept(table={str(self.table)!r}, points={len(self.points)}, failed={len(self.failures)})"

    @property
    def frame(self) -> pd.DataFrame:
        """The rows of the table, one per point: labels, outcome, identity and checksum."""
        import pandas as pd

        return pd.read_parquet(self.table) if self.table.suffix == ".parquet" else pd.read_csv(self.table)

    @property
    def failures(self) -> list[tuple[SweepPoint, Outcome]]:
        """The points that failed."""
        return [(point, outcome) for point, outcome in zip(self.points, self.outcomes, strict=True) if outcome.error]


def label_names(experiment: Experiment) -> tuple[str, ...]:
    """Names of the columns that say which point a row is of."""
    return ("trace", "pair", "gpu", *experiment.varied, "policy", "seed")


def points(experiment: Experiment) -> tuple[SweepPoint, ...]:
    """All points of an experiment in the order of its table, each once."""
    found: dict[tuple[tuple[Label, ...], str], SweepPoint] = {}
    for point in (point for source in experiment.sources for point in _points_of(experiment, source)):
        found[point.labels, point.identity] = point
        if len(found) > MAX_POINTS:
            raise InputError(experiment.path, "", f"has more than {MAX_POINTS:,} points", "several experiments")
    if not found:
        raise InputError(experiment.path, "workload", f"no trace has {experiment.workload}", "traces that have some")
    return tuple(found.values())


def sweep(
    experiment: Experiment | str | Path,
    out: str | Path | None = None,
    executors: Executors | None = None,
    width: int = 1,
    begun: Callable[[Sequence[SweepPoint], int], None] | None = None,
) -> Swept:
    """Compute the points of an experiment that a table lacks.

    Args:
        experiment: the experiment, or the path of its TOML file.
        out: the table, ``.csv`` or ``.parquet``; points that it holds are not computed again. None: beside the
            experiment, with its name and ``.csv``.
        executors: where to compute (`gpusim.sweeps.workers`); None: one process per core of this machine.
        width: points to hand out at a time; not used where ``executors`` is None.
        begun: called before the first point, with all points and the number that the table already holds.

    Raises:
        InputError: the experiment names something that does not exist, or the table cannot be read or written. The
            table keeps the points computed before.
    """
    if not isinstance(experiment, Experiment):
        experiment = load_experiment(path_of(experiment, "experiment"))
    for name, called in (("executors", executors), ("begun", begun)):
        if called is not None and not callable(called):
            raise InputError(None, name, f"is {quote(called)}", "a function, or None")
    if type(width) is not int or width < 1:
        raise InputError(None, "width", f"is {quote(width)}", "a number of points of at least 1")
    if executors is None:
        executors, width = local(os.cpu_count() or 1)
    table = Table(path_of(experiment.path.with_suffix(".csv") if out is None else out, "out"), label_names(experiment))
    _try_policies(experiment)
    wanted = points(experiment)
    with table.locked():
        held = table.held()
        known = {row.identity: row.outcome for row in held if not row.outcome.error}
        labels = {point.identity: point.labels for point in wanted}
        found = {identity: outcome for identity, outcome in known.items() if identity in labels}
        dropped = len(known) - len(found)
        if held and not found and not table.holds_any(held, (point.labels for point in wanted)):
            problem = f"holds {len(held)} rows, none of them of {experiment.path}"
            raise InputError(table.path, "", problem, "the table of this experiment, or a name that is free")
        tasks = {point.identity: point.task for point in wanted if point.task}
        missing = len(tasks.keys() - found.keys())
        if begun is not None:
            begun(wanted, len(found))
        rows = partial(_rows, wanted, found)
        with table.appending(rows()) as append, closing(computed(tasks, found, compute, executors, width)) as coming:
            for identity, answer in coming:
                outcome = failed(answer) if isinstance(answer, Exception) else answer
                append((labels[identity], identity, outcome))
                found[identity] = outcome
        table.finish(rows())
        ended = tuple(outcome for _, _, outcome in rows())
        return Swept(experiment, table.path, wanted, ended, missing, dropped)


def _try_policies(experiment: Experiment) -> None:
    """Construct each policy that the loader did not try. This runs its code."""
    for policy in experiment.policies:
        if policy.code is None:
            continue
        try:
            with redirect_stdout(sys.stderr):
                policy_from(policy.text)
        except InputError as error:
            raise error.at(experiment.path, f"policies {policy.label}") from None
        except Exception:  # a defect of a policy costs its points
            continue


def _rows(wanted: Sequence[SweepPoint], found: Mapping[str, Outcome]) -> Iterator[TableRow]:
    for point in wanted:
        if point.task is None:
            yield point.labels, point.identity, failed(point.error)
        elif point.identity in found:
            yield point.labels, point.identity, found[point.identity]


def _points_of(experiment: Experiment, source: Source) -> Iterator[SweepPoint]:
    try:
        trace = load_trace(source.path)
        gpus = experiment.gpus or (load_shipped_gpu(trace.device),)
    except InputError as error:
        wrong = no_trace(source.path, error)
        for gpu, changes in product(experiment.gpus or (None,), experiment.parameters):
            yield from _impossible(experiment, source, gpu, changes, wrong)
        return
    version, content, parts = model_version(), packed(trace), workloads(trace, experiment.workload)
    for gpu, changes in product(gpus, experiment.parameters):
        try:
            device = recorded_by(trace.device, gpu)
            varied = replace(what_if(gpu, changes), name=gpu.name)  # columns of their own have what differs
        except InputError as error:
            yield from _impossible(experiment, source, gpu, changes, error)
            continue
        values = [value_of(varied, quantity) for quantity in experiment.varied]
        for names, policy, seed in product(parts, experiment.policies, experiment.seeds):
            labels: tuple[Label, ...] = (source.label, "+".join(names), gpu.name, *values, policy.label, seed)
            what = content, experiment.workload, names, device, varied
            task = Task(version, *what, policy.text, policy.source, seed, experiment.restart)
            yield SweepPoint(labels, identity(task, policy.label), task)


def _impossible(
    experiment: Experiment, source: Source, gpu: GPU | None, changes: Mapping[str, float | str], error: InputError
) -> Iterator[SweepPoint]:
    """Return the points of a trace that are invalid on this GPU; without a known GPU, on the GPU of the trace."""
    problem = str(error.at(source.label))
    of_gpu: list[Label] = [""] * (1 + len(experiment.varied))
    if gpu is not None:
        of_gpu = [gpu.name, *(amount(gpu, name, changes.get(name, "x1")) for name in experiment.varied)]
    for policy, seed in product(experiment.policies, experiment.seeds):
        labels = (source.label, "", *of_gpu, policy.label, seed)
        yield SweepPoint(labels, fingerprint.data([*labels, *changes.items(), problem]), None, problem)


def identity(task: Task, policy: str) -> str:
    """Hash everything that can change the result of a task; the location of its files does not count."""
    gpus = [_gpu_hash(task.device), _gpu_hash(task.gpu)]
    return fingerprint.data(
        [task.model, task.trace.digest, task.kind, task.restart, task.names, *gpus, policy, task.source, task.seed]
    )


_gpu_hash: Callable[[GPU], str] = cache(fingerprint.data)
