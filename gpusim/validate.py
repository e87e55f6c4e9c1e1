"""Predict what a real GPU did, and say how far off that was: `gpusim validate DATASET`.

A dataset is a folder of CSV files as in experiments/h200_validation: `convolutions.csv` and `kernels.csv.gz` are what
a prediction may use, the outcome files (`sm_curve.csv`, `residency_curve.csv`, `pairs.csv`, `quota.csv`,
`modules.csv`, any of which may be missing) are what it is scored against. Of an outcome file only the columns that
describe the condition reach a prediction.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpusim.engine.replay import Kernels, makespan_us, stream_ends
from gpusim.errors import InputError
from gpusim.gpu import GPU, load_gpu
from gpusim.io.ncu import REQUIRED, launch_from_counters
from gpusim.occupancy import occupancy
from gpusim.policies.base import Grant, Partition, Policy, View
from gpusim.policies.hardware import Leftover, Serial
from gpusim.trace import (
    Convolution,
    ConvolutionAlgorithm,
    ConvolutionShape,
    KernelLaunch,
    LoopArrivals,
    Stream,
    Trace,
)

Row = Mapping[str, str]

RECORDED_ON = "h200"
SEQUENCE = 10  # calls back to back behind a ms_stream
QUOTA_LEAD_US = 20.0  # b waits this long before the reservation ends (recording/ground_truth.cu)
CONVOLUTION_COLUMNS = ("op", "ms_stream_run1", "ms_stream_run2", "supported", "gpu_bound")
KERNEL_COLUMNS = ("op", "stream", "launch__waves_per_multiprocessor", "launch__block_size", *REQUIRED)
OUTCOMES = {  # file: columns of the condition, columns of the outcome
    "sm_curve.csv": (("op", "sms"), ("ms",)),
    "residency_curve.csv": (("op", "blocks_per_sm", "reserved_smem_bytes"), ("ms",)),
    "pairs.csv": (("a", "na", "b", "nb", "mode", "sms_a", "sms_b"), ("ms_makespan",)),
    "quota.csv": (("a", "kA", "b", "kB", "ms_release"), ("ms_a", "ms_b")),
    "modules.csv": (("module", "selection", "branch", "ops", "mode"), ("ms_makespan",)),
}
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


@dataclass(frozen=True)
class Op:
    """A recorded convolution call: ms of one of many calls back to back, and its kernels."""

    name: str
    ms: float
    gpu_bound: bool
    kernels: tuple[KernelLaunch, ...]


class Dataset:
    """A folder of recordings, read and checked.

    Raises:
        InputError: a missing file or column, an op that is not in convolutions.csv, NaN where a supported op needs a
            number, kernels recorded on another GPU than ``gpu``.
    """

    def __init__(self, folder: str | Path, gpu: GPU) -> None:
        self.folder = Path(folder)
        self.gpu = gpu
        self._calls = self._read_calls()
        self._kernels = self._read_kernels()
        self._ops: dict[str, Op] = {}
        self.outcomes = {name: self._read_outcome(name) for name in OUTCOMES if (self.folder / name).is_file()}
        if not self.outcomes:
            raise InputError(self.folder, "folder", "holds no outcome file", f"one of {', '.join(OUTCOMES)}")

    def op(self, name: str) -> Op:
        """One recorded call.

        Raises:
            InputError: cuDNN does not support it, so it has no times and kernels.
        """
        known = self._ops.get(name)
        if known is None:
            known = self._ops[name] = self._build(name)
        return known

    def gpu_bound(self, name: str) -> bool:
        """Whether the GPU, and not the host, bounds the call: accuracy is scored on these only."""
        return self._calls[name]["gpu_bound"] == "True"

    def _build(self, name: str) -> Op:
        call = self._calls[name]
        path = self.folder / "convolutions.csv"
        if call["supported"] != "True":
            raise InputError(path, name, "is not supported by cuDNN, so it has no times", "a supported op")
        rows = self._kernels.get(name)
        if not rows:
            raise InputError(self.folder / "kernels.csv.gz", name, "has no kernels", "at least one row")
        times = [_number(call, column, path, name) for column in ("ms_stream_run1", "ms_stream_run2")]
        kernels = []
        for i, row in enumerate(rows):
            try:
                kernels.append(launch_from_counters(row, self.gpu.sm_count, row["stream"]))
            except (ValueError, KeyError) as error:
                raise InputError(
                    self.folder / "kernels.csv.gz",
                    f"{name} kernel {i}",
                    f"has a value that is no number: {_first_line(error)}",
                    "Nsight Compute counters in base units",
                ) from error
        return Op(name, sum(times) / len(times), call["gpu_bound"] == "True", tuple(kernels))

    def _read_calls(self) -> dict[str, Row]:
        return {row["op"]: row for row in self._rows("convolutions.csv", CONVOLUTION_COLUMNS)}

    def _read_kernels(self) -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {}
        for row in self._rows("kernels.csv.gz", KERNEL_COLUMNS):
            if row["op"] not in self._calls:
                raise InputError(self.folder / "kernels.csv.gz", row["op"], "is unknown", "an op of convolutions.csv")
            rows.setdefault(row["op"], []).append(row)
        for op, kernels in rows.items():
            self._check_gpu(op, kernels[0])
        return rows

    def _check_gpu(self, op: str, row: Row) -> None:
        """The waves that the profiler counted are grid / (SMs x resident blocks): they tell the GPU."""
        path = self.folder / "kernels.csv.gz"
        waves = _number(row, "launch__waves_per_multiprocessor", path, op)
        fit = occupancy(
            self.gpu,
            threads_per_block=int(_number(row, "launch__block_size", path, op)),
            registers_per_thread=int(_number(row, "launch__registers_per_thread", path, op)),
            shared_memory_per_block=int(_number(row, "launch__shared_mem_per_block_static", path, op))
            + int(_number(row, "launch__shared_mem_per_block_dynamic", path, op)),
        )
        grid = _number(row, "launch__grid_size", path, op)
        expected = grid / (self.gpu.sm_count * max(1, fit.blocks_per_sm))
        if fit.blocks_per_sm == 0 or abs(expected - waves) > 0.02 + 0.02 * waves:
            raise InputError(
                path,
                op,
                f"was recorded with {waves:g} waves per SM, {self.gpu.name} gives {expected:.2f}",
                "the GPU that the dataset was recorded on",
            )

    def _read_outcome(self, name: str) -> list[Row]:
        condition, outcome = OUTCOMES[name]
        rows = list(self._rows(name, (*condition, *outcome)))
        for row in rows:
            for column in ("op", "a", "b", "ops"):
                for op in row[column].split() if column in row else ():
                    if op not in self._calls:
                        raise InputError(self.folder / name, op, "is unknown", "an op of convolutions.csv")
        return rows

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[Row]:
        path = self.folder / name
        if not path.is_file():
            raise InputError(path, "file", "is missing", "a dataset as in experiments/h200_validation")
        try:
            opened = gzip.open(path, "rt", newline="") if name.endswith(".gz") else path.open(newline="")
            with opened as file:
                reader = csv.DictReader(file)
                missing = [column for column in columns if column not in (reader.fieldnames or ())]
                if missing:
                    raise InputError(path, "header", f"lacks {', '.join(missing)}", f"columns {', '.join(columns)}")
                for row in reader:
                    if None in row.values() or None in row:
                        raise InputError(
                            path, f"line {reader.line_num}", "has too few or too many fields", "a full row"
                        )
                    yield row
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(path, "file", f"cannot be read: {_first_line(error)}", "a CSV file") from error


# ---- conditions and measurements -----------------------------------------------------------------------------------


def conditions(dataset: Dataset) -> list[Condition]:
    """Everything to predict, from the condition columns alone, on gpu_bound ops (modules: every row)."""
    found: list[Condition] = []
    for name, rows in dataset.outcomes.items():
        for row in rows:
            condition = _CONDITION[name](row)
            if condition is None:
                continue
            bound = all(dataset.gpu_bound(op) for ops in condition.ops for op in ops)
            if bound or name == "modules.csv":
                found.append(condition)
    return _modules_together(found)


def _sm_curve(row: Row) -> Condition:
    return Condition("sm_curve", f"{row['op']}|{row['sms']}", ((row["op"],),), sms=(int(row["sms"]),))


def _residency(row: Row) -> Condition | None:
    if int(row["reserved_smem_bytes"]) < 0:
        return None
    blocks = int(row["blocks_per_sm"])
    return Condition("residency_curve", f"{row['op']}|{row['blocks_per_sm']}", ((row["op"],),), blocks=(blocks,))


def _pair(row: Row) -> Condition | None:
    mode = row["mode"]
    if mode not in ("streams", "streams_b_first", "green"):
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
            if name == "pairs.csv" and row["mode"] == "alone":
                key = "|".join(row[column] for column in ("a", "na", "b", "nb"))
                found["alone", key] = _number(row, "ms_makespan", dataset.folder / name, key)
            condition = _CONDITION[name](row)
            if condition is None:
                continue
            for experiment, column in _outcome_columns(condition.experiment):
                found[experiment, condition.key] = _number(row, column, dataset.folder / name, condition.key)
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
        each = [sum(self._dataset.op(op).ms for op in ops) for ops in condition.ops]
        if condition.experiment == "sm_curve":
            return {"sm_curve": each[0] * self._gpu.sm_count / condition.sms[0]}
        if condition.experiment == "residency_curve":
            return {"residency_curve": each[0] / condition.blocks[0]}
        if condition.experiment == "quota":
            return {"quota_a": each[0], "quota_b": each[0] + each[1]}
        calls = condition.calls if len(condition.calls) == len(each) else (1,) * len(each)
        return {condition.experiment: sum(ms * n for ms, n in zip(each, calls, strict=True))}

    def _released_together(self, condition: Condition) -> float:
        """Mean makespan over orders in which streams behind one flag start: on the H200 it is not that of enqueuing."""
        count = len(condition.ops)
        orders = [tuple((i + shift) % count for i in range(count)) for shift in range(count)]
        if count > 2:
            orders += [tuple(reversed(order)) for order in orders]
        return sum(self._makespan(condition, _InOrder(order)) for order in orders) / len(orders)

    def _makespan(self, condition: Condition, policy: Policy) -> float:
        return makespan_us(self._trace(condition), self._gpu, policy, self._kernels)

    def _trace(self, condition: Condition) -> Trace:
        names = "abcdefghijklmnop"
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
        target = op.ms * 1e3 - self._gpu.model.event_overhead_us / SEQUENCE
        kernels = op.kernels
        if all(kernel.stream == "main" for kernel in kernels):
            operation = _convolution(_scaled(kernels, target / sum(kernel.duration_us for kernel in kernels)))
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
    shape = ConvolutionShape.model_construct()
    return Convolution.model_construct(
        id="op", kind="convolution", depends_on=(), shape=shape, direction="fwd", selected=selected, alternatives=()
    )


@dataclass
class _Confined(Policy):
    """Each stream on its own SMs, as a green context does: kernels of internal streams are not confined."""

    sms: tuple[int, ...] = ()
    name = "validate-confined"
    summary = "streams on disjoint SMs"

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
    shared_carveout = True

    def partition(self, view: View) -> Partition:
        return Partition(tuple(Grant(kernel.id, blocks_per_sm=self.blocks) for kernel in view.kernels))


@dataclass
class _PriorityEntry(Policy):
    """Stream a is held to so many blocks an SM; stream b waits with priority and enters when the hold ends."""

    blocks: int = 1
    release_us: float = 0.0
    name = "validate-priority"
    summary = "a reservation, then a stream of higher priority"
    shared_carveout = True

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


# ---- scoring -----------------------------------------------------------------------------------------------------------


@cache
def _predictor(folder: str, gpu: str) -> Predictor:
    return Predictor(Dataset(folder, load_gpu(gpu)))


def _predict_one(task: tuple[str, str, Condition]) -> tuple[dict[str, float], dict[str, float]]:
    predictor = _predictor(task[0], task[1])
    return predictor.predict(task[2]), predictor.nothing(task[2])


def score(dataset: Dataset, gpu: str, executor: Executor | None = None) -> list[Scored]:
    """Predict every condition and put it beside its measurement."""
    wanted = conditions(dataset)
    measured = measurements(dataset)
    tasks = [(str(dataset.folder), gpu, condition) for condition in wanted]
    if executor is None:
        with ProcessPoolExecutor() as pool:
            answers = list(pool.map(_predict_one, tasks, chunksize=8))
    else:
        answers = list(executor.map(_predict_one, tasks))
    return [
        Scored(experiment, condition.key, ms, measured[experiment, condition.key], nothing[experiment])
        for condition, (predicted, nothing) in zip(wanted, answers, strict=True)
        for experiment, ms in predicted.items()
    ]


def _number(row: Row, column: str, path: Path, place: str) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(path, place, f"{column} is {row[column] or 'empty'}", "a number")
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
