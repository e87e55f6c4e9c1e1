"""Predict measured co-runs, and score the predictions: `gpusim validate DATASET`.

A dataset is a folder of CSV files as in experiments/h200_validation: a prediction may use `convolutions.csv` and
`kernels.csv.gz`. The outcome files `sm_curve.csv`, `residency_curve.csv`, `pairs.csv`, `quota.csv` and `modules.csv`
score it; any may be missing. Of an outcome file only the columns that describe the condition reach a prediction; the
one exception is asked for by name, scaling points: times of `sm_curve.csv` on one or two numbers of SMs, which are not
scored then. The input of a prediction may also come from the recordings of another GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from statistics import fmean
from typing import Any

from gpusim.calibrate.scaling import shared_out
from gpusim.common.cores import in_order
from gpusim.common.errors import InputError
from gpusim.common.progress import tracked
from gpusim.engine.replay import KernelSource, stream_ends
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.lab.dataset import SEQUENCE, Dataset, Op, Recordings, Row, back_to_back_us, time_in
from gpusim.lab.scores import Scored
from gpusim.model.context import in_context
from gpusim.model.front_end import turn_wait_us
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import footprint, register_blocks
from gpusim.policies.hardware import Leftover, Serial
from gpusim.policies.interface import Grant, KernelView, Partition, Policy, View
from gpusim.policies.spatial import confined, in_a_row
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, taking
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, ConvolutionShape, LoopArrivals, Stream

CURVE_CALLS = 3  # behind a row of sm_curve.csv
SCALED = ("sm_curve", "streams", "green")  # what scaling points are shown to buy
MARKS = 2  # between branches that run one after the other: two events, each as long as `event_overhead_us` [D]
RELEASE_MARKS = 3  # from the release of a stream behind a flag to that of the next, each as long [D]
SLEEPER_REGISTERS = 10  # per thread of the warp that holds a reservation (recording/ground_truth.cu, by its compiler)
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


@dataclass(frozen=True, slots=True)
class Case:
    """Outcomes to predict, and recordings to predict from; by names, so that worker processes can load it."""

    folder: str  # of the dataset with the outcomes
    gpu: str  # name or path of the GPU that they were measured on
    recordings: str = ""  # folder of the recordings of another GPU; empty: those beside the outcomes
    recorded_on: str = ""  # name or path of that GPU
    scaling: tuple[int, ...] = ()  # numbers of SMs at which predictions may use recorded times

    def load(self) -> Dataset:
        """The dataset, read and checked."""
        gpu = load_gpu(self.gpu)
        if not self.recordings:
            return Dataset(self.folder, gpu, scaling=self.scaling)
        source = load_gpu(self.recorded_on)
        return Dataset(self.folder, gpu, Recordings(self.recordings, gpu if source == gpu else source, self.scaling))


@dataclass(frozen=True, slots=True)
class Condition:
    """One measured condition to predict."""

    experiment: str  # one of `gpusim.lab.scores.EXPERIMENTS`, or ``alone`` and ``quota``
    key: str  # the identifying columns joined by ``|``, as they stand in the file
    ops: tuple[tuple[str, ...], ...]  # the ops involved, stream by stream
    calls: tuple[int, ...] = (1,)  # calls of each stream's op; 1 for modules
    sms: tuple[int, ...] = ()  # SMs of each stream, or empty
    blocks: tuple[int, ...] = ()  # residency limits, or empty
    release_us: float = 0.0  # end of the reservation, for ``quota``


# ---- conditions and measurements -----------------------------------------------------------------------------------


def conditions(dataset: Dataset) -> list[Condition]:
    """Everything to predict, from the condition columns alone, on gpu_bound ops (modules: every row).

    What was recorded elsewhere is predicted alone, too: experiment ``solo``.
    """
    found = [Condition("solo", op, ((op,),)) for op in dataset.calls if dataset.elsewhere and dataset.scored(op)]
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
    return name == "modules.csv" or all(dataset.scored(op) for op in ops)


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
    bound = [op for op in dataset.calls if dataset.elsewhere and dataset.scored(op)]
    found = {("solo", op): dataset.op(op).ms for op in bound}
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


def released_together_us(trace: Trace, session: Session, sms: tuple[int, ...] = ()) -> float:
    """Makespan of a trace whose streams one flag releases, as the recorder measures it, us.

    The mean over orders in which the streams start: on the H200 it is not that of enqueuing. Each stream waits for the
    flag and marks its start, which the front end of the GPU does stream by stream. ``sms``: how many each stream has of
    its own (a green context); empty: plain streams.
    """
    count, overhead = len(trace.streams), session.gpu.model.event_overhead_us
    apart_us = RELEASE_MARKS * overhead
    orders = [tuple((i + shift) % count for i in range(count)) for shift in range(count)]
    if count > 2:
        orders += [tuple(reversed(order)) for order in orders]
    return fmean(session.makespan_us(trace, _InOrder(order, apart_us, sms)) for order in orders) + overhead


class Predictor:
    """Predicts conditions of a dataset from its recordings; each op is modelled once."""

    def __init__(self, dataset: Dataset) -> None:
        self._recordings = dataset.recordings
        self._source = dataset.recordings.gpu
        self._gpu = dataset.gpu
        self._session = Session(self._gpu, self._source)
        self._operations: dict[str, Convolution] = {}

    def predict(self, condition: Condition) -> dict[str, float]:
        """Predicted ms by experiment name (``quota`` gives two)."""
        overhead = self._gpu.model.event_overhead_us
        if condition.experiment == "solo":
            us = self._makespan(condition, Leftover()) + overhead / SEQUENCE
        elif condition.experiment == "sm_curve":
            us = self._makespan(condition, Confined(condition.sms)) + overhead / CURVE_CALLS
        elif condition.experiment == "residency_curve":
            us = self._makespan(condition, _Reserved(condition.blocks[0])) + overhead
        elif condition.experiment == "quota":
            trace, policy = self.trace(condition), _PriorityEntry(condition.blocks[0], condition.release_us)
            reserved = _BesideReservation(self._session.kernels(trace), self._gpu)
            ends = stream_ends(in_context(trace, self._gpu), self._gpu, {0: policy}, reserved)
            return {"quota_a": (ends["a"] + overhead) / 1e3, "quota_b": (ends["b"] + overhead) / 1e3}
        elif condition.experiment == "modules_serial":
            us = self._makespan(condition, Serial()) + overhead + (len(condition.ops) - 1) * MARKS * overhead
        else:
            us = released_together_us(self.trace(condition), self._session, condition.sms)
        return {condition.experiment: us / 1e3}

    def nothing(self, condition: Condition) -> dict[str, float]:
        """Return the prediction of the baseline, as the README of the dataset defines it, ms."""
        each = [fsum(self._recordings.op(op).ms for op in ops) for ops in condition.ops]
        if condition.experiment == "sm_curve":
            return {"sm_curve": each[0] * self._gpu.sm_count / condition.sms[0]}
        if condition.experiment == "residency_curve":
            return {"residency_curve": each[0] / condition.blocks[0]}
        if condition.experiment == "quota":
            return {"quota_a": each[0], "quota_b": each[0] + each[1]}
        calls = condition.calls if len(condition.calls) == len(each) else (1,) * len(each)
        return {condition.experiment: fsum(ms * n for ms, n in zip(each, calls, strict=True))}

    def _makespan(self, condition: Condition, policy: Policy) -> float:
        return self._session.makespan_us(self.trace(condition), policy)

    def trace(self, condition: Condition) -> Trace:
        """The trace of a condition: a stream for each of its ops, or for each branch of a module."""
        names = [chr(ord("a") + i) if i < 26 else f"s{i}" for i in range(len(condition.ops))]
        streams = []
        for i, ops in enumerate(condition.ops):
            operations = tuple(
                self._operation(op).model_copy(update={"id": f"{names[i]}{j}"}) for j, op in enumerate(ops)
            )
            calls = condition.calls[i] if i < len(condition.calls) else 1
            streams.append(_stream(names[i], operations, calls))
        return self._traced(condition.key, streams)

    def _traced(self, name: str, streams: Sequence[Stream]) -> Trace:
        return Trace.model_construct(version=1, name=name, device=self._source.name, notes="", streams=tuple(streams))

    def _operation(self, name: str) -> Convolution:
        """The op with its kernels' durations scaled so that calls back to back take the recorded time."""
        known = self._operations.get(name)
        if known is not None:
            return known
        op = self._recordings.op(name)
        target_us = back_to_back_us(op.ms, self._source)
        if target_us <= 0.0:
            path, problem = self._recordings.folder / "convolutions.csv", f"takes {op.ms * 1e3:g} us a call"
            raise InputError(path, name, problem, f"more than {op.ms * 1e3 - target_us:g}, what the events take")
        kernels = op.kernels
        recorded_us = fsum(kernel.duration_us for kernel in kernels)
        if all(kernel.stream == "main" for kernel in kernels):
            scaled = shared_out(taking(kernels, target_us), self._points_us(op), self._source)
        else:
            factor = 1.0
            for _ in range(3):
                operation = _convolution(op, taking(kernels, factor * recorded_us))
                trace = self._traced(name, [_stream("a", (operation,))])
                factor *= target_us / Session(self._source, self._source).makespan_us(trace, Leftover())
            scaled = taking(kernels, factor * recorded_us)
        operation = self._operations[name] = _convolution(op, scaled)
        return operation

    def _points_us(self, op: Op) -> dict[int, float]:
        """Recorded times of an op on some of the SMs, less the overhead of events."""
        overhead_us = self._source.model.event_overhead_us / CURVE_CALLS
        return {sms: ms * 1e3 - overhead_us for sms, ms in op.scaling_ms.items()}


class _BesideReservation:
    """Kernels on SMs whose shared memory is set to its largest, by a kernel that holds it."""

    def __init__(self, kernels: KernelSource, gpu: GPU) -> None:
        self._kernels = kernels
        self._most = gpu.limits.shared_memory_per_sm_bytes
        self._known: dict[object, KernelModel] = {}  # by the model that it is of

    def model(self, launch: KernelLaunch, place: str) -> KernelModel:
        """As `KernelSource.model`."""
        model = self._kernels.model(launch, place)
        if model.identity not in self._known:
            self._known[model.identity] = replace(model, carveout_bytes=self._most)
        return self._known[model.identity]


def _stream(name: str, operations: tuple[Convolution, ...], calls: int = 1) -> Stream:
    """A stream that runs its operations so many times; what was checked as it was read is not checked again."""
    arrivals = LoopArrivals.model_construct(kind="loop", count=calls) if calls > 1 else None
    return Stream.model_construct(name=name, priority=0, operations=operations, arrivals=arrivals)


def _convolution(op: Op, kernels: tuple[KernelLaunch, ...]) -> Convolution:
    selected = ConvolutionAlgorithm.model_construct(
        algorithm="recorded",
        workspace_bytes=op.workspace_bytes,
        touched_bytes=op.touched_bytes,
        warm_us=op.warm_us,
        cold_us=op.cold_us,
        kernels=kernels,
    )
    parts: dict[str, Any] = {"id": "op", "kind": "convolution", "depends_on": (), "direction": "fwd"}
    return Convolution.model_construct(**parts, shape=NO_SHAPE, selected=selected, alternatives=())


def _in_green_contexts(view: View, sms: tuple[int, ...]) -> Partition:
    """Each stream on SMs of its own, side by side; green contexts do not confine kernels of internal streams."""
    return confined(view, dict(enumerate(in_a_row(sms))), internal=False)


@dataclass
class Confined(Policy):
    """Each stream on its own SMs, as a green context has them."""

    sms: tuple[int, ...] = ()
    name = "validate-confined"
    summary = "streams on disjoint SMs"

    def shows_sms(self) -> bool:
        """A green context does."""
        return True

    def partition(self, view: View) -> Partition:
        """The SMs of each stream."""
        return _in_green_contexts(view, self.sms)


@dataclass
class _InOrder(Policy):
    """Releases streams in a given order, a fixed time apart; no second kernel starts before all are released."""

    order: tuple[int, ...] = ()
    apart_us: float = 0.0
    sms: tuple[int, ...] = ()  # of each stream its own; empty: plain streams
    firsts: dict[int, int] = field(default_factory=dict, init=False)  # kernel that came first, by stream
    name = "validate-in-order"
    summary = "streams behind one flag"

    def shows_sms(self) -> bool:
        """A green context does."""
        return bool(self.sms)

    def partition(self, view: View) -> Partition:
        ordered = sorted(view.kernels, key=lambda k: (k.ready_us, self.order.index(k.stream_index), k.id))
        due_us = [self._due_us(kernel, view) for kernel in ordered]
        begun = tuple(k for k, us in zip(ordered, due_us, strict=True) if k.started or us <= view.now_us)
        wake_us = min((us for us in due_us if us > view.now_us), default=None)
        if self.sms:
            return replace(_in_green_contexts(view._replace(kernels=begun), self.sms), wake_us=wake_us)
        return Partition(tuple(Grant(kernel.id) for kernel in begun), wake_us=wake_us)

    def _due_us(self, kernel: KernelView, view: View) -> float:
        """Return when a kernel may start: no stream starts its second kernel before the last stream has been released.

        The device itself delays a kernel by the turns of streams that run their first kernels or wait for others.
        """
        if self.firsts.setdefault(kernel.stream_index, kernel.id) != kernel.id:
            return (len(self.order) - 1) * self.apart_us
        before = self.order[: self.order.index(kernel.stream_index)]
        ready = {other.stream_index for other in view.kernels}
        first = {other.stream_index for other in view.kernels if self.firsts.get(other.stream_index) == other.id}
        counted = first | (view.unready().keys() - ready)
        turns = sum(stream in counted for stream in before)
        return len(before) * self.apart_us - turn_wait_us(turns, view.gpu.model.stream_turn_us, bool(self.sms))


@dataclass
class _Reserved(Policy):
    """At most so many blocks of any kernel on an SM: a warp sleeps there that holds shared memory, and registers."""

    blocks: int = 1
    name = "validate-reserved"
    summary = "a reservation on every SM"

    def partition(self, view: View) -> Partition:
        return Partition(tuple(Grant(kernel.id, blocks_per_sm=self._most(view.gpu, kernel)) for kernel in view.kernels))

    def _most(self, gpu: GPU, kernel: KernelView) -> int:
        sleeper = footprint(gpu, gpu.limits.warp_size, SLEEPER_REGISTERS, 0)
        return min(self.blocks, max(1, register_blocks(gpu.limits, [(sleeper, 1)], kernel.footprint)))


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


def score(case: Case, experiments: Collection[str] | None = None, jobs: int | None = None) -> list[Scored]:
    """Predict every condition, or those of some experiments, beside its measurement, in the order of the files.

    ``jobs``: processes; None: one per core.
    """
    dataset = case.load()
    wanted = [one for one in conditions(dataset) if experiments is None or one.experiment in experiments]
    predictor, measured = Predictor(dataset), measurements(dataset)
    predicted = tracked(in_order(predictor.predict, wanted, jobs), len(wanted), "predicting")
    return [
        Scored(experiment, one.key, ms, measured[experiment, one.key], predictor.nothing(one)[experiment])
        for one, times in zip(wanted, predicted, strict=True)
        for experiment, ms in times.items()
    ]


def score_without_scaling(case: Case, rows: Sequence[Scored]) -> list[Scored]:
    """The rows of `SCALED` experiments predicted again without the scaling points of the case."""
    keys = {(row.experiment, row.key) for row in rows}
    found = score(replace(case, scaling=()), experiments=SCALED)
    return [row for row in found if (row.experiment, row.key) in keys]
