"""The sets of measurements that the ablation scores, and how each is predicted with some constants replaced.

A set whose files are not at hand is left out: `../shared` is no part of the repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path
from typing import Any, Protocol

from experiments.advise import run as advise
from experiments.h200_validation.variants import (
    CALLS_ONLY,
    DATASETS,
    FRAMEWORKS,
    GPU_NAME,
    MODELS,
    MODELS_ONLY,
    OTHER_GPU,
    OWN,
    QUOTED,
    ROOT,
    SHARED,
    Variant,
    files_of,
    gpu_of,
    scored,
)
from experiments.latency_targets import run as latency_targets
from experiments.neighbours import run as study
from experiments.single_resource import run as single_resource
from experiments.unseen_kernels import run as unseen_kernels
from experiments.unseen_programs import run as unseen_programs
from gpusim.choose import settings
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.lab.dataset import Dataset, Recordings
from gpusim.lab.resource_matrix import Matrix, matrix_points
from gpusim.lab.scores import Scored
from gpusim.lab.validate import Case, Condition, conditions
from gpusim.lab.whole_models import ModelCondition, ModelPredictor, model_conditions
from gpusim.session import Session
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace

MATRICES = ROOT / "experiments" / "resource_matrix" / "data"
BENCHMARKS = "benchmarks"  # sets of kernels that load one resource each: any variant may change something there
LONG = frozenset({"efficientnet_b0"})  # the whole model of most kernels, which takes a third of the time of all
BESIDE = ("model", "neighbour")  # what names one such condition; those of pairs have more
FINER = {  # how many times as many as pairs are predicted of experiments that take less time
    "solo": 4,
    "sm_curve": 4,
    "residency_curve": 8,
    "quota": 4,
    "modules_serial": 4,
    "modules_streams": 4,
}
SHARED_BY = {"streams": "streams", "priority": "streams", "SM split": "green", "MPS": "mps"}  # mechanisms of programs
SAME_EITHER_WAY = "streams_b_first"  # predicted as `streams` is: the mean over both orders
Constants = Mapping[str, float]


class Source(Protocol):
    """Measurements of one kind."""

    @property
    def folder(self) -> str:
        """Where they are, or what they are predicted from."""

    def files(self) -> list[Path]:
        """All that a prediction reads."""

    def wanted(self, every: int) -> tuple[Any, ...]:
        """What to predict: every so many-th op, pair, module, condition or setting."""

    def scored(self, wanted: Sequence[Any], constants: Constants) -> list[Scored]:
        """Predictions beside measurements, worked out in this process."""


@dataclass(frozen=True)
class Calls:
    """Calls of a library, in a folder as `gpusim validate` reads it."""

    case: Case
    both_orders: bool = False  # also the rows of pairs with the second one first

    @property
    def folder(self) -> str:
        """As of `Source`."""
        return self.case.folder

    def files(self) -> list[Path]:
        """As of `Source`."""
        return files_of(self.case)

    def wanted(self, every: int) -> tuple[Condition, ...]:
        """As of `Source`; of `FINER` experiments so many times as many."""
        known = [one for one in conditions(self.case.load()) if self.both_orders or one.experiment != SAME_EITHER_WAY]
        return tuple(sample(known, every))

    def scored(self, wanted: Sequence[Condition], constants: Constants) -> list[Scored]:
        """As of `Source`."""
        return scored(self._dataset(constants), wanted)

    def _dataset(self, constants: Constants) -> Dataset:
        case = self.case
        if not constants:
            return case.load()
        gpu = gpu_of(constants, case.gpu)
        if not case.recordings:
            return Dataset(case.folder, gpu, scaling=case.scaling)
        source = gpu_of(constants, case.recorded_on)
        return Dataset(case.folder, gpu, Recordings(case.recordings, source, case.scaling))


@dataclass(frozen=True)
class WholeModels:
    """Whole models side by side, from their profiles."""

    case: Case

    @property
    def folder(self) -> str:
        """As of `Source`."""
        return self.case.folder

    def files(self) -> list[Path]:
        """As of `Source`."""
        return _files_in(self.folder)

    def wanted(self, every: int) -> tuple[ModelCondition, ...]:
        """As of `Source`, of each experiment, without `LONG` models where some are left out."""
        by: dict[str, list[ModelCondition]] = {}
        for one in model_conditions(self.case):
            if every == 1 or not LONG & set(one.models):
                by.setdefault(one.experiment, []).append(one)
        return tuple(one for of in by.values() for one in _every(of, every))

    def scored(self, wanted: Sequence[ModelCondition], constants: Constants) -> list[Scored]:
        """As of `Source`."""
        known = _profiles(self.case, tuple(constants.items()))
        return [
            Scored(one.experiment, one.key, known.predict_ms(one), one.measured_ms, known.nothing_ms(one))
            for one in wanted
        ]


class _Profiles(ModelPredictor):
    """The predictor of whole models on a GPU with other constants."""

    def __init__(self, case: Case, gpu: GPU) -> None:
        super().__init__(case)
        self._gpu, self._session = gpu, Session(gpu, gpu)

    def on(self, gpu: GPU) -> Session:
        """A session on another GPU; what was fitted is shared."""
        return self._session.on(gpu)


@cache
def _profiles(case: Case, constants: tuple[tuple[str, float], ...]) -> _Profiles:
    """A predictor for all sets of this process."""
    return _Profiles(case, gpu_of(dict(constants), case.gpu))


@dataclass(frozen=True)
class Neighbours:
    """Whole models on an H100 from profiles of an H200: pairs in streams, and each beside traffic of memory."""

    folder: str  # of the profiles

    def files(self) -> list[Path]:
        """As of `Source`."""
        return [Path(study.__file__), study.STREAMS, study.MEASURED, *_files_in(self.folder)]

    def wanted(self, every: int) -> tuple[tuple[str, ...], ...]:
        """As of `Source`: rows of streams.csv, then models with the neighbours of each; `LONG` ones as above."""
        left_out = LONG if every > 1 else frozenset[str]()
        rows = [row for row in study.lines(study.STREAMS) if not left_out & {row["a"], row["b"]}]
        pairs = [(row["a"], row["na"], row["b"], row["nb"], row["us"]) for row in rows]
        beside = [(model, other) for model in study.measured() if model not in left_out for other in study.NEIGHBOURS]
        return (*_every(pairs, every), *_every(beside, every))

    def scored(self, wanted: Sequence[tuple[str, ...]], constants: Constants) -> list[Scored]:
        """As of `Source`; of a model beside traffic its slowdown, as of microbenchmarks on disjoint SMs."""
        known = _profiles(Case(self.folder, study.RECORDED_ON), tuple(constants.items()))
        session, measured = known.on(gpu_of(constants, study.GPU)), study.measured()
        found = []
        for one in wanted:
            if len(one) == len(BESIDE):
                model, other = one
                slowdown = _slowdown(session, known.passes(model, 1), other, measured[model])
                found.append(Scored("matrix_disjoint", "|".join(one), *slowdown, 1.0))
                continue
            a, na, b, nb, us = one
            both = merge([known.passes(a, int(na)), known.passes(b, int(nb))], ("a", "b"), "in streams")
            ms = session.makespan_us(both, "leftover") / 1e3
            found.append(Scored("streams", "|".join(one[:4]), ms, float(us) / 1e3, ms))
        return found


def _slowdown(session: Session, model: Trace, other: str, times: Mapping[str, study.Times]) -> tuple[float, float]:
    """Time of the kernels of a pass beside a kernel of memory traffic over their time alone, predicted and measured."""
    alone, beside = (study.predicted(session, model, one) for one in (study.ALONE, other))
    pairs = list(study.matched(times[study.ALONE], alone))
    us = [times[study.ALONE][i][1] for i, _ in pairs]
    predicted = fsum(one * beside[j][1] / alone[j][1] for one, (_, j) in zip(us, pairs, strict=True))
    return predicted / fsum(us), fsum(times[other][i][1] for i, _ in pairs) / fsum(us)


@dataclass(frozen=True)
class Microbenchmarks:
    """Pairs of kernels that load one resource each."""

    folder: str
    gpu: str

    def files(self) -> list[Path]:
        """As of `Source`."""
        return _files_in(self.folder)

    def wanted(self, every: int) -> tuple[tuple[str, ...], ...]:
        """As of `Source`."""
        return _every(list(Matrix(Path(self.folder), load_gpu(self.gpu)).pairs), every)

    def scored(self, wanted: Sequence[tuple[str, ...]], constants: Constants) -> list[Scored]:
        """As of `Source`."""
        matrix = Matrix(Path(self.folder), gpu_of(constants, self.gpu))
        matrix.pairs = {pair: matrix.pairs[pair] for pair in wanted}
        found = []
        for one in matrix_points(matrix):
            key = f"{one.kernel}|{one.beside}|{one.order}"
            found.append(Scored(f"matrix_{one.placement}", key, one.predicted, one.measured, 1.0))
        return found


@dataclass(frozen=True)
class StreamsOfMicrobenchmarks:
    """Pairs of kernels that load one resource each, in two streams on an H100 (experiments/single_resource)."""

    folder: str = str(Path(single_resource.__file__).parent)

    def files(self) -> list[Path]:
        """As of `Source`."""
        return [Path(single_resource.__file__), *sorted(Path(self.folder).glob("*_*.*"))]

    def wanted(self, every: int) -> tuple[str, ...]:
        """As of `Source`; a sample is of sizes that belong together."""
        return _every(list(single_resource.SIZES), every)

    def scored(self, wanted: Sequence[str], constants: Constants) -> list[Scored]:
        """As of `Source`."""
        gpu = gpu_of(constants, single_resource.MEASURED)
        return [
            Scored("matrix_streams", f"{one.first}|{one.second}", one.predicted_ms, one.measured_ms, one.serial_ms)
            for sizes in wanted
            for one in single_resource.pairs(sizes, gpu)
        ]


@dataclass(frozen=True)
class PairsOfPrograms:
    """Pairs of whole programs that each run once (experiments/advise): makespans, and the end of each program."""

    gpu: str  # as the study names it
    folder: str = str(advise.PROGRAMS)

    def files(self) -> list[Path]:
        """As of `Source`."""
        scripts = [Path(advise.__file__), Path(latency_targets.__file__), Path(settings.__file__)]
        programs = sorted(Path(self.folder).glob(f"{self.gpu}_*"))
        return [*scripts, advise.MEASURED, latency_targets.MEASURED, *programs]

    def wanted(self, every: int) -> tuple[advise.Measured, ...]:
        """As of `Source`: every so many-th setting of all pairs; time slices and programs in turn are left out."""
        shared = [one for one in self._measured() if one.gpu == self.gpu and one.mechanism in SHARED_BY]
        return _every(shared, every)

    def scored(self, wanted: Sequence[advise.Measured], constants: Constants) -> list[Scored]:
        """As of `Source`."""
        session = _session(advise.GPUS[self.gpu], tuple(constants.items()))
        found = []
        for pair, mine in grouped(wanted, lambda one: one.pair).items():
            trace = advise.together(pair)
            for one in mine:
                name = "|".join(map(str, (one.a, one.passes_a, one.b, one.passes_b, one.mechanism, one.setting)))
                for what, of, predicted, measured in self._values(trace, session, one):
                    experiment = f"{what}_{SHARED_BY[one.mechanism]}"
                    found.append(Scored(experiment, f"{name}|{of}", predicted, measured, predicted))
        return found

    def _measured(self) -> list[advise.Measured]:
        return [one for runs in advise.measured().values() for one in runs]

    def _values(self, trace: Trace, session: Session, one: advise.Measured) -> Iterator[tuple[str, str, float, float]]:
        """What is scored of a run: the quantity, the program, and its predicted and its measured value."""
        a_us, b_us = advise.ends_us(trace, session, _setting_of(one))
        yield "makespan", "both", max(a_us, b_us) / 1e3, one.makespan_us / 1e3
        yield "end", "a", a_us / 1e3, one.a_us / 1e3
        yield "end", "b", b_us / 1e3, one.b_us / 1e3


@dataclass(frozen=True)
class RestartingPrograms(PairsOfPrograms):
    """Pairs of whole programs that restart (experiments/latency_targets): the slowdown of each program."""

    def _measured(self) -> list[advise.Measured]:
        return [one for runs in latency_targets.mean_passes().values() for one in runs]

    def _values(self, trace: Trace, session: Session, one: advise.Measured) -> Iterator[tuple[str, str, float, float]]:
        alone = latency_targets.mean_passes()[one.pair][0]
        a, b = latency_targets.slowdowns(trace, session, _setting_of(one))
        yield "slowdown", "a", a, one.a_us / alone.a_us
        yield "slowdown", "b", b, one.b_us / alone.b_us


@cache
def _session(gpu: str, constants: tuple[tuple[str, float], ...]) -> Session:
    """A session for all pairs of programs of this process, which share what was fitted."""
    changed = gpu_of(dict(constants), gpu)
    return Session(changed, changed)


def _setting_of(one: advise.Measured) -> settings.Setting:
    return advise.setting_named(one.gpu, one.mechanism, one.setting)


def sample(wanted: Sequence[Condition], every: int) -> list[Condition]:
    """Conditions of every so many-th op, pair or module; of `FINER` experiments so many times as many."""
    groups: dict[str, dict[str, int]] = {}
    found = []
    for condition in wanted:
        stride = max(1, every // FINER.get(condition.experiment, 1))
        pair = len(condition.ops) > 1
        key = "|".join(condition.key.split("|")[: 4 if pair else 1])
        known = groups.setdefault("pairs" if pair else condition.experiment, {})
        if known.setdefault(key, len(known)) % stride == 0:
            found.append(condition)
    return found


def _files_in(folder: str) -> list[Path]:
    return [path for path in sorted(Path(folder).iterdir()) if path.is_file()]


def _every(of: Sequence[Any], every: int) -> tuple[Any, ...]:
    return tuple(of[min(every, len(of)) // 2 :: every])


@dataclass(frozen=True)
class MeasuredSet:
    """Measurements that a table shows as one.

    Attributes:
        name: as tables name it.
        gpu: that was measured.
        recorded_on: GPU of the recordings.
        source: where they are.
        every: so many-th op, pair, module, condition or setting is predicted; 1: all.
        kind: `CALLS_ONLY`, `MODELS_ONLY` or `BENCHMARKS`.
    """

    name: str
    gpu: str
    recorded_on: str
    source: Source
    every: int
    kind: str = CALLS_ONLY

    @property
    def title(self) -> str:
        """Name and GPUs."""
        where = self.gpu if self.gpu == self.recorded_on else f"{self.gpu} from {self.recorded_on}"
        return f"{self.name}, {where}"

    def takes(self, variant: Variant) -> bool:
        """Whether a variant can change a prediction."""
        return self.kind == BENCHMARKS or variant.on in ("", self.kind)


def _calls(name: str, case: Case, every: int) -> MeasuredSet:
    return MeasuredSet(name, case.gpu, case.recorded_on or case.gpu, Calls(case), every)


def _models(name: str, case: Case, every: int) -> MeasuredSet:
    return MeasuredSet(name, case.gpu, case.gpu, WholeModels(case), every, MODELS_ONLY)


def _matrix(gpu: str) -> MeasuredSet:
    return MeasuredSet("resource_matrix", gpu, gpu, Microbenchmarks(str(MATRICES / gpu), gpu), 23, BENCHMARKS)


def _programs(name: str, source: PairsOfPrograms, every: int) -> MeasuredSet:
    gpu = advise.GPUS[source.gpu]
    return MeasuredSet(name, gpu, gpu, source, every, MODELS_ONLY)


_OF_H100 = QUOTED[OTHER_GPU, OTHER_GPU]
SETS = (
    *(_calls(Path(case.folder).name, case, every) for case, every in zip(DATASETS, (80, 44, 25, 25, 80), strict=True)),
    _calls("frameworks", FRAMEWORKS[GPU_NAME], 12),
    _calls("h100", _OF_H100[0], 100),
    _calls("transformer", _OF_H100[1], 1),
    _calls("frameworks", FRAMEWORKS[OTHER_GPU], 12),
    _calls("unseen kernels, BF16", unseen_kernels.BF16_CASE, 6),
    _calls("h100", QUOTED[OTHER_GPU, GPU_NAME][0], 90),
    _models("transformer models", MODELS[0], 8),
    _models("models", MODELS[1], 20),
    MeasuredSet("neighbours", OTHER_GPU, GPU_NAME, Neighbours(str(SHARED / "h200_models")), 4, MODELS_ONLY),
    _matrix(GPU_NAME),
    _matrix(OTHER_GPU),
    *(_models(f"unseen programs, {one.name}", one.case, 40) for one in unseen_programs.SEEN[1:]),
    MeasuredSet("single_resource", OTHER_GPU, OTHER_GPU, StreamsOfMicrobenchmarks(), 1, BENCHMARKS),
    *(_programs("pairs of programs", PairsOfPrograms(gpu), 7) for gpu in advise.GPUS),
    _programs("restarting programs", RestartingPrograms(latency_targets.GPU), 3),
)
DESIGN_SETS = (MeasuredSet("data", GPU_NAME, GPU_NAME, Calls(OWN, both_orders=True), 40),)


def at_hand() -> tuple[MeasuredSet, ...]:
    """The sets whose files are there."""
    return tuple(one for one in SETS if Path(one.source.folder).is_dir())
