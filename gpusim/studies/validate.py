"""Predict what a real GPU did, and say how far off that was: `gpusim validate DATASET`.

A dataset is a folder of CSV files as in experiments/h200_validation: `convolutions.csv` and `kernels.csv.gz` are what
a prediction may use, the outcome files (`sm_curve.csv`, `residency_curve.csv`, `pairs.csv`, `quota.csv`,
`modules.csv`, any of which may be missing) are what it is scored against. Of an outcome file only the columns that
describe the condition reach a prediction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path
from typing import Any

from gpusim.calibrate.kernels import Kernels
from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import csv_text
from gpusim.engine.replay import stream_ends
from gpusim.hardware.gpu import load_gpu
from gpusim.io.dataset import Dataset, Row, time_in
from gpusim.policies.hardware import Leftover, Serial
from gpusim.policies.interface import Grant, Partition, Policy, View
from gpusim.studies.rules import makespan_us
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, ConvolutionShape, LoopArrivals, Stream

SEQUENCE = 10  # calls back to back behind a ms_stream
QUOTA_LEAD_US = 20.0  # b waits this long before the reservation ends (recording/ground_truth.cu)
NO_SHAPE = ConvolutionShape(  # a replay does not look at it
    batch=1,
    in_channels=1,
    in_height=1,
    in_width=1,
    out_channels=1,
    filter_height=1,
    filter_width=1,
    padding=0,
    stride=1,
)
EXPERIMENTS = (
    "sm_curve",
    "residency_curve",
    "streams",
    "streams_b_first",
    "green",
    "quota_a",
    "quota_b",
    "modules_serial",
    "modules_streams",
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing to predict.

    Attributes:
        experiment: one of `EXPERIMENTS`, or ``alone`` and ``quota``.
        key: the identifying columns joined by ``|``, as they stand in the file.
        ops: the ops involved, stream by stream.
        calls: calls of each stream's op; 1 for modules.
        sms: SMs of each stream, or empty.
        blocks: residency limits, or empty.
        release_us: end of the reservation, for ``quota``.
    """

    experiment: str
    key: str
    ops: tuple[tuple[str, ...], ...]
    calls: tuple[int, ...] = (1,)
    sms: tuple[int, ...] = ()
    blocks: tuple[int, ...] = ()
    release_us: float = 0.0


@dataclass(frozen=True, slots=True)
class Scored:
    """One prediction beside its measurement, and what the do-nothing model says; ms."""

    experiment: str
    key: str
    predicted_ms: float
    measured_ms: float
    nothing_ms: float


# ---- conditions and measurements -----------------------------------------------------------------------------------


def conditions(dataset: Dataset) -> list[Condition]:
    """Everything to predict, from the condition columns alone, on gpu_bound ops (modules: every row).

    Raises:
        InputError: more SMs than there are, or there is nothing to predict.
    """
    found: list[Condition] = []
    for name, rows in dataset.outcomes.items():
        for row in rows:
            condition = _condition(dataset, name, row)
            if condition is not None:
                found.append(condition)
    if not found:
        raise InputError(dataset.folder, "outcome files", "hold nothing to predict", "rows with gpu_bound ops")
    return _modules_together(found)


def _condition(dataset: Dataset, name: str, row: Row) -> Condition | None:
    """The condition that a row of an outcome file measured; None where it is not scored."""
    if not _scored(dataset, name, _ops(row)):
        return None
    condition = _CONDITION[name](row)
    most = dataset.gpu.sm_count
    if condition is not None and sum(condition.sms) > most:
        raise InputError(dataset.folder / name, condition.key, f"takes {sum(condition.sms)} SMs", f"at most {most}")
    return condition


def _ops(row: Row) -> list[str]:
    return [op for column in ("op", "a", "b", "ops") if column in row for op in row[column].split()]


def _scored(dataset: Dataset, name: str, ops: Sequence[str]) -> bool:
    return name == "modules.csv" or all(dataset.gpu_bound(op) for op in ops)


def _sm_curve(row: Row) -> Condition:
    return Condition("sm_curve", f"{row['op']}|{row['sms']}", ((row["op"],),), sms=(int(row["sms"]),))


def _residency(row: Row) -> Condition | None:
    if int(row["reserved_smem_bytes"]) < 0:
        return None
    blocks = int(row["blocks_per_sm"])
    return Condition("residency_curve", f"{row['op']}|{row['blocks_per_sm']}", ((row["op"],),), blocks=(blocks,))


def _pair(row: Row) -> Condition | None:
    mode = row["mode"]
    if mode == "alone":
        return None
    ops, calls = ((row["a"],), (row["b"],)), (int(row["na"]), int(row["nb"]))
    key = "|".join(row[column] for column in ("a", "na", "b", "nb"))
    if mode == "green":
        sms = (int(row["sms_a"]), int(row["sms_b"]))
        return Condition(mode, f"{key}|{row['sms_a']}|{row['sms_b']}", ops, calls, sms=sms)
    return Condition(mode, key, ops, calls)


def _quota(row: Row) -> Condition:
    return Condition(
        "quota",
        "|".join(row[column] for column in ("a", "kA", "b", "kB")),
        ((row["a"],), (row["b"],)),
        (1, 1),
        blocks=(int(row["kA"]), int(row["kB"])),
        release_us=float(row["ms_release"]) * 1e3,
    )


def _module(row: Row) -> Condition:
    return Condition(f"modules_{row['mode']}", f"{row['module']}|{row['selection']}", (tuple(row["ops"].split()),))


_CONDITION: Mapping[str, Callable[[Row], Condition | None]] = {
    "sm_curve.csv": _sm_curve,
    "residency_curve.csv": _residency,
    "pairs.csv": _pair,
    "quota.csv": _quota,
    "modules.csv": _module,
}


def _modules_together(found: Sequence[Condition]) -> list[Condition]:
    """Module rows, one a branch, become one condition a module."""
    together: dict[tuple[str, str], Condition] = {}
    for condition in found:
        name = (condition.experiment, condition.key)
        known = together.get(name)
        if known is None or not condition.experiment.startswith("modules"):
            together[name] = condition
        else:
            ops = known.ops + condition.ops
            together[name] = Condition(condition.experiment, condition.key, ops, (1,) * len(ops))
    return list(together.values())


def measurements(dataset: Dataset) -> dict[tuple[str, str], float]:
    """Measured ms by experiment and key."""
    found: dict[tuple[str, str], float] = {}
    for name, rows in dataset.outcomes.items():
        for row in rows:
            if name == "pairs.csv" and row["mode"] == "alone" and _scored(dataset, name, _ops(row)):
                key = "|".join(row[column] for column in ("a", "na", "b", "nb"))
                found["alone", key] = time_in(row, "ms_makespan", dataset.folder / name, key)
            condition = _condition(dataset, name, row)
            if condition is None:
                continue
            for experiment, column in _outcome_columns(condition.experiment):
                found[experiment, condition.key] = time_in(row, column, dataset.folder / name, condition.key)
    return found


def _outcome_columns(experiment: str) -> tuple[tuple[str, str], ...]:
    if experiment == "quota":
        return (("quota_a", "ms_a"), ("quota_b", "ms_b"))
    column = "ms" if experiment in ("sm_curve", "residency_curve") else "ms_makespan"
    return ((experiment, column),)


# ---- predicting ------------------------------------------------------------------------------------------------------


class Predictor:
    """Predicts conditions of a dataset; works out each op once."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._gpu = dataset.gpu
        self._kernels = Kernels(self._gpu, self._gpu)
        self._operations: dict[str, Convolution] = {}

    def predict(self, condition: Condition) -> dict[str, float]:
        """Predicted ms by experiment name (``quota`` gives two)."""
        overhead = self._gpu.model.event_overhead_us
        if condition.experiment == "sm_curve":
            us = self._makespan(condition, _Confined(condition.sms)) + overhead / 3
        elif condition.experiment == "residency_curve":
            us = self._makespan(condition, _Reserved(condition.blocks[0])) + overhead
        elif condition.experiment == "quota":
            policy = _PriorityEntry(condition.blocks[0], condition.release_us)
            ends = stream_ends(self._trace(condition), self._gpu, policy, self._kernels)
            return {"quota_a": (ends["a"] + overhead) / 1e3, "quota_b": (ends["b"] + overhead) / 1e3}
        elif condition.experiment == "green":
            us = self._makespan(condition, _Confined(condition.sms)) + overhead
        elif condition.experiment == "modules_serial":
            us = self._makespan(condition, Serial()) + overhead
        else:
            us = self._released_together(condition) + overhead
        return {condition.experiment: us / 1e3}

    def nothing(self, condition: Condition) -> dict[str, float]:
        """What the do-nothing model of the dataset's README says, ms."""
        each = [fsum(self._dataset.op(op).ms for op in ops) for ops in condition.ops]
        if condition.experiment == "sm_curve":
            return {"sm_curve": each[0] * self._gpu.sm_count / condition.sms[0]}
        if condition.experiment == "residency_curve":
            return {"residency_curve": each[0] / condition.blocks[0]}
        if condition.experiment == "quota":
            return {"quota_a": each[0], "quota_b": each[0] + each[1]}
        calls = condition.calls if len(condition.calls) == len(each) else (1,) * len(each)
        return {condition.experiment: fsum(ms * n for ms, n in zip(each, calls, strict=True))}

    def _released_together(self, condition: Condition) -> float:
        """Mean makespan over orders in which streams behind one flag start: on the H200 it is not that of enqueuing."""
        count = len(condition.ops)
        orders = [tuple((i + shift) % count for i in range(count)) for shift in range(count)]
        if count > 2:
            orders += [tuple(reversed(order)) for order in orders]
        return fsum(self._makespan(condition, _InOrder(order)) for order in orders) / len(orders)

    def _makespan(self, condition: Condition, policy: Policy) -> float:
        return makespan_us(self._trace(condition), self._gpu, policy, self._kernels)

    def _trace(self, condition: Condition) -> Trace:
        names = [chr(ord("a") + i) if i < 26 else f"s{i}" for i in range(len(condition.ops))]
        streams = []
        for i, ops in enumerate(condition.ops):
            operations = tuple(
                self._operation(op).model_copy(update={"id": f"{names[i]}{j}"}) for j, op in enumerate(ops)
            )
            calls = condition.calls[i] if i < len(condition.calls) else 1
            arrivals = LoopArrivals.model_construct(kind="loop", count=calls) if calls > 1 else None
            streams.append(Stream.model_construct(name=names[i], priority=0, operations=operations, arrivals=arrivals))
        return Trace.model_construct(
            version=1, name=condition.key, device=self._gpu.name, notes="", streams=tuple(streams)
        )

    def _operation(self, name: str) -> Convolution:
        """The op with its kernels' durations scaled so that calls back to back take the recorded time."""
        known = self._operations.get(name)
        if known is not None:
            return known
        op = self._dataset.op(name)
        overhead_us = self._gpu.model.event_overhead_us / SEQUENCE
        target = op.ms * 1e3 - overhead_us
        if target <= 0.0:
            path, problem = self._dataset.folder / "convolutions.csv", f"takes {op.ms * 1e3:g} us a call"
            raise InputError(path, name, problem, f"more than {overhead_us:g}, what the events take")
        kernels = op.kernels
        if all(kernel.stream == "main" for kernel in kernels):
            operation = _convolution(_scaled(kernels, target / fsum(kernel.duration_us for kernel in kernels)))
        else:
            factor = 1.0
            for _ in range(3):
                operation = _convolution(_scaled(kernels, factor))
                trace = Trace.model_construct(
                    version=1,
                    name=name,
                    device=self._gpu.name,
                    notes="",
                    streams=(Stream.model_construct(name="a", priority=0, operations=(operation,), arrivals=None),),
                )
                factor *= target / makespan_us(trace, self._gpu, Leftover(), Kernels(self._gpu, self._gpu))
            operation = _convolution(_scaled(kernels, factor))
        self._operations[name] = operation
        return operation


def _scaled(kernels: Sequence[KernelLaunch], factor: float) -> tuple[KernelLaunch, ...]:
    return tuple(kernel.model_copy(update={"duration_us": kernel.duration_us * factor}) for kernel in kernels)


def _convolution(kernels: tuple[KernelLaunch, ...]) -> Convolution:
    selected = ConvolutionAlgorithm.model_construct(algorithm="recorded", workspace_bytes=None, kernels=kernels)
    parts: dict[str, Any] = {"id": "op", "kind": "convolution", "depends_on": (), "direction": "fwd"}
    return Convolution.model_construct(**parts, shape=NO_SHAPE, selected=selected, alternatives=())


@dataclass
class _Confined(Policy):
    """Each stream on its own SMs, as a green context does: kernels of internal streams are not confined."""

    sms: tuple[int, ...] = ()
    name = "validate-confined"
    summary = "streams on disjoint SMs"

    def shows_sms(self) -> bool:
        """A green context does."""
        return True

    def partition(self, view: View) -> Partition:
        firsts = [sum(self.sms[:i]) for i in range(len(self.sms))]
        grants = []
        for kernel in view.kernels:
            i = kernel.stream_index
            mine = frozenset(range(firsts[i], firsts[i] + self.sms[i]))
            grants.append(Grant(kernel.id, sms=None if kernel.internal else mine, queue=i))
        return Partition(tuple(grants))


@dataclass
class _InOrder(Policy):
    """Plain streams whose first kernels arrive in a given order."""

    order: tuple[int, ...] = ()
    name = "validate-in-order"
    summary = "plain streams"

    def partition(self, view: View) -> Partition:
        ordered = sorted(view.kernels, key=lambda k: (k.ready_us, self.order.index(k.stream_index), k.id))
        return Partition(tuple(Grant(kernel.id) for kernel in ordered))


@dataclass
class _Reserved(Policy):
    """At most so many blocks of any kernel on an SM, and the largest carve-out: a reservation of shared memory."""

    blocks: int = 1
    name = "validate-reserved"
    summary = "a reservation on every SM"

    def partition(self, view: View) -> Partition:
        return Partition(tuple(Grant(kernel.id, blocks_per_sm=self.blocks) for kernel in view.kernels))


@dataclass
class _PriorityEntry(Policy):
    """Stream a is held to so many blocks an SM; stream b waits with priority and enters when the hold ends."""

    blocks: int = 1
    release_us: float = 0.0
    name = "validate-priority"
    summary = "a reservation, then a stream of higher priority"

    def partition(self, view: View) -> Partition:
        waits = self.release_us - QUOTA_LEAD_US
        if view.now_us < waits - 1e-9:
            first = tuple(Grant(k.id, blocks_per_sm=self.blocks) for k in view.kernels if k.stream_index == 0)
            return Partition(first, wake_us=waits)
        ordered = sorted(view.kernels, key=lambda kernel: -kernel.stream_index)
        if view.now_us < self.release_us - 1e-9:
            held = tuple(Grant(kernel.id, blocks_per_sm=0) for kernel in ordered)
            return Partition(held, wake_us=self.release_us)
        return Partition(tuple(Grant(kernel.id) for kernel in ordered))


# ---- scoring -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Summary:
    """How far off the predictions of one experiment were, in percent of the measurement.

    Attributes:
        experiment: one of `EXPERIMENTS`.
        points: predictions scored.
        mape_percent: mean absolute percentage error.
        median_percent: median of the absolute errors.
        p95_percent: their 95th percentile.
        bias_percent: mean error with its sign; positive: predicted too long.
        nothing_percent: mean absolute percentage error of the do-nothing model.
        rank_correlation: Spearman's, of predicted and measured speedup over serial; None where there is no serial.
        regret_percent: measured makespan at the SM split predicted best over the best measured, less 1, mean over
            the pairs; None but for ``green``.
    """

    experiment: str
    points: int
    mape_percent: float
    median_percent: float
    p95_percent: float
    bias_percent: float
    nothing_percent: float
    rank_correlation: float | None
    regret_percent: float | None


def score(dataset: Dataset, gpu: str, executor: Executor | None = None) -> list[Scored]:
    """Predict every condition and put it beside its measurement, in the order of the files.

    Args:
        dataset: read for the GPU.
        gpu: name or path of that GPU, from which worker processes load it.
        executor: where to predict; None: a process for each core.
    """
    wanted = conditions(dataset)
    measured = measurements(dataset)
    tasks = [(str(dataset.folder), gpu, condition) for condition in wanted]
    if executor is None:
        with ProcessPoolExecutor() as pool:
            answers = list(tracked(pool.map(_predict_one, tasks, chunksize=8), len(tasks), "predicting"))
    else:
        answers = list(executor.map(_predict_one, tasks))
    return [
        Scored(experiment, condition.key, ms, measured[experiment, condition.key], nothing[experiment])
        for condition, (predicted, nothing) in zip(wanted, answers, strict=True)
        for experiment, ms in predicted.items()
    ]


def summaries(rows: Sequence[Scored], measured: Mapping[tuple[str, str], float]) -> list[Summary]:
    """One summary an experiment, scored as the dataset's README says.

    Args:
        rows: all predictions.
        measured: as `measurements` gives them; the times of pairs alone are the serial of the speedup.
    """
    serial = _serial(rows, measured)
    found = []
    for experiment in EXPERIMENTS:
        mine = [row for row in rows if row.experiment == experiment]
        points = residency_ratios(mine) if experiment == "residency_curve" else mine
        if points:
            found.append(_summary(experiment, points, serial))
    return found


def _summary(experiment: str, points: Sequence[Scored], serial: Mapping[tuple[str, str], float]) -> Summary:
    import numpy as np

    errors = np.array([row.predicted_ms / row.measured_ms - 1.0 for row in points])
    nothing = np.array([row.nothing_ms / row.measured_ms - 1.0 for row in points])
    return Summary(
        experiment,
        len(points),
        float(np.mean(np.abs(errors)) * 100),
        float(np.median(np.abs(errors)) * 100),
        float(np.percentile(np.abs(errors), 95) * 100),
        float(np.mean(errors) * 100),
        float(np.mean(np.abs(nothing)) * 100),
        _rank_correlation(points, serial),
        _regret(points) * 100 if experiment == "green" else None,
    )


def _serial(rows: Sequence[Scored], measured: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Measured serial time of every pair and module run in streams."""
    found = {}
    for row in rows:
        if row.experiment in ("streams", "streams_b_first"):
            found[row.experiment, row.key] = measured.get(("alone", row.key), 0.0)
        elif row.experiment == "modules_streams":
            found[row.experiment, row.key] = measured.get(("modules_serial", row.key), 0.0)
    return found


def residency_ratios(rows: Sequence[Scored]) -> list[Scored]:
    """Residency rows over the same op's row at its largest limit, which is left out itself."""
    most: dict[str, tuple[int, Scored]] = {}
    for row in rows:
        op, blocks = row.key.rsplit("|", 1)
        if op not in most or int(blocks) > most[op][0]:
            most[op] = (int(blocks), row)
    ratios = []
    for row in rows:
        base = most[row.key.rsplit("|", 1)[0]][1]
        if row is base:
            continue
        ratios.append(
            Scored(
                row.experiment,
                row.key,
                row.predicted_ms / base.predicted_ms,
                row.measured_ms / base.measured_ms,
                row.nothing_ms / base.nothing_ms,
            )
        )
    return ratios


def _rank_correlation(rows: Sequence[Scored], serial: Mapping[tuple[str, str], float]) -> float | None:
    import pandas as pd

    known = [row for row in rows if serial.get((row.experiment, row.key), 0.0) > 0.0]
    if len(known) < 3:
        return None
    predicted = pd.Series([serial[row.experiment, row.key] / row.predicted_ms for row in known])
    measured = pd.Series([serial[row.experiment, row.key] / row.measured_ms for row in known])
    if predicted.nunique() == 1 or measured.nunique() == 1:  # no rank to compare
        return None
    return float(predicted.rank().corr(measured.rank()))


def _regret(rows: Sequence[Scored]) -> float:
    pairs: dict[str, list[Scored]] = {}
    for row in rows:
        pairs.setdefault(row.key.rsplit("|", 2)[0], []).append(row)
    regrets = [
        min(splits, key=lambda row: row.predicted_ms).measured_ms / min(row.measured_ms for row in splits) - 1.0
        for splits in pairs.values()
    ]
    return fsum(regrets) / len(regrets)


def write_rows(rows: Sequence[Scored], path: Path) -> None:
    """Write ``experiment,key,predicted_ms,measured_ms``, whole or not at all."""
    with atomic_write(path) as file:
        cells = ((row.experiment, row.key, f"{row.predicted_ms:.6f}", f"{row.measured_ms:.6f}") for row in rows)
        file.writelines(csv_text(("experiment", "key", "predicted_ms", "measured_ms"), cells))


@cache
def _predictor(folder: str, gpu: str) -> Predictor:
    return Predictor(Dataset(folder, load_gpu(gpu)))


def _predict_one(task: tuple[str, str, Condition]) -> tuple[dict[str, float], dict[str, float]]:
    predictor = _predictor(task[0], task[1])
    return predictor.predict(task[2]), predictor.nothing(task[2])
