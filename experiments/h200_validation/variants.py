"""The model with one mechanism switched off or built another way, and what each such variant predicts.

A variant patches the package in a process of its own: the package itself has no switch for any of this. What was
predicted is kept in journals under .cache/, each prediction with a hash of everything that can change it (the sources
of the model, the GPU's file, the data, the variant), so that a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from experiments.journal import resumed
from gpusim.calibrate import fit
from gpusim.common import fingerprint
from gpusim.engine import sm_array
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.lab import validate
from gpusim.lab.dataset import Dataset
from gpusim.lab.scores import Scored
from gpusim.lab.validate import Case, Condition, Predictor, measurements
from gpusim.lab.whole_models import ModelCase
from gpusim.model import contention, context, memory
from gpusim.model import kernel as kernel_model
from gpusim.policies.interface import Partition, View
from gpusim.sweep.workers import local
from gpusim.trace.kernels import KernelLaunch

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATA = HERE / "data"
CACHE = HERE / ".cache"
PROCESSES = os.cpu_count() or 1
GPU_NAME = "h200"
OTHER_GPU = "h100-sxm"
TRANSFORMER = ROOT / "experiments" / "recordings" / "transformer" / OTHER_GPU
SHARED = ROOT.parent / "shared"  # measurements beside the repository, which are no part of it
OWN = Case(str(DATA), GPU_NAME)
OTHER = str(DATA / "h100")
DATASETS = (OWN, *(Case(str(DATA / name), GPU_NAME) for name in ("networks", "small", "layers", "choices")))
QUOTED = {  # the GPU and that of the recordings: what is scored
    (GPU_NAME, GPU_NAME): DATASETS,
    (OTHER_GPU, OTHER_GPU): (Case(OTHER, OTHER_GPU), Case(str(TRANSFORMER), OTHER_GPU)),
    (OTHER_GPU, GPU_NAME): (Case(OTHER, OTHER_GPU, str(DATA), GPU_NAME),),
}
SCALING = Case(str(DATA), GPU_NAME, scaling=(32, 72))
FRAMEWORKS = {  # kernels of PyTorch, where the data are at hand: by GPU
    gpu: Case(str(SHARED / f"{name}_frameworks"), gpu) for name, gpu in (("h200", GPU_NAME), ("h100", OTHER_GPU))
}
MODELS = (ModelCase(str(TRANSFORMER / "models"), OTHER_GPU), ModelCase(str(SHARED / "h200_models"), GPU_NAME))
UNLIMITED = 1e6  # GB/s
FIXED_POINT_ROUNDS = 60


@dataclass(frozen=True)
class Variant:
    """A way to build the model.

    Attributes:
        name: short, for the table.
        title: what is off or different.
        constants: of the GPU file's [model] to replace.
        patch: applied in the process that predicts.
    """

    name: str
    title: str
    constants: Mapping[str, float] = field(default_factory=dict)
    patch: Callable[[], None] | None = None


# ---- patches -------------------------------------------------------------------------------------------------------


def _put(module: Any, name: str, value: Any) -> None:
    """Replace what must be there: a patch of nothing would score as the model itself."""
    if not hasattr(module, name):
        raise AttributeError(f"{module} has no {name} to patch")
    setattr(module, name, value)


def _put_mix_times(mix_times: Callable[..., list[float]]) -> None:
    """Replace how residents of an SM slow one another, wherever it is called."""
    _put(contention, "mix_times", mix_times)
    _put(kernel_model, "mix_times", mix_times)


def _no_age() -> None:
    _put(fit, "AGE_PREFERENCES", fit.AGE_PREFERENCES[:1])


def _no_seniority() -> None:
    _put(contention, "chance_older", lambda first, second: 0.5)


def _no_hit_queue() -> None:
    _put(memory, "HIT_QUEUE", 0.0)


def _no_full_queue() -> None:
    """L2 is as busy as its counters say, and the queue to it never full."""
    _put(contention, "FULL_QUEUE_STALLS", math.inf)


def _queues_of_any_length() -> None:
    """Stall reasons do not limit how much of a recorded time was waiting for memory."""
    _put(fit, "queued_share", lambda mix: 1.0)


def _no_hidden_waits() -> None:
    _put(contention, "DRAM_LATENCY_CYCLES", 0.0)


def _no_queue_for_the_l1_path() -> None:
    """Long scoreboard is latency, whatever binds."""
    known = contention._latency_share

    def latency_share(mix: Any, total: float, competing: float, path_busy: float, *rest: Any) -> float:
        return known(mix, total, competing, 0.0, *rest)

    _put(contention, "_latency_share", latency_share)


def _one_seed() -> None:
    _put(fit, "JITTER_SEEDS", fit.JITTER_SEEDS[:1])


def _no_age_no_seeds() -> None:
    _no_age()
    _one_seed()


def _no_sharing() -> None:
    _put_mix_times(lambda residents, least=(): [1.0] * len(residents))


def _blind_to_others() -> None:
    known = contention.mix_times
    _put_mix_times(lambda residents, least=(): [known([one])[0] for one in residents])


def _in_proportion() -> None:
    known = fit.warp_demand

    def warp_demand(mix: Any, warps: int, residents: float, *rest: Any, **more: Any) -> contention.WarpDemand:
        kernel = known(mix, warps, residents, *rest, **more)
        demand = 1.0 / max(1.0, residents * kernel.warps_per_scheduler)
        return replace(kernel, latency=demand, service_demand=demand)

    _put(fit, "warp_demand", warp_demand)


def _even_schedulers() -> None:
    known = fit.warp_demand
    _put(fit, "warp_demand", lambda *args, **more: known(*args, **{**more, "one_wave": False}))


def _no_ramp() -> None:
    _put(fit, "fetch_stall_share", lambda mix: 0.0)


def _longer_ramps() -> None:
    known = fit._before_work_us

    def before_work_us(launch: KernelLaunch, *rest: Any) -> tuple[float, float]:
        latency_us, ramp_us = known(launch, *rest)
        return latency_us, max(ramp_us, min(ramp_us + 1.0, fit.LATENCY_SHARE * launch.duration_us - latency_us))

    _put(fit, "_before_work_us", before_work_us)


def _ramps_take_turns() -> None:
    _put(kernel_model.KernelModel, "_ramps", lambda model: (model.ramp_work,) * model.blocks_per_sm)


def _without_stalls() -> None:
    known = fit.warp_demand

    def warp_demand(mix: Any, *rest: Any, **more: Any) -> contention.WarpDemand:
        return known(mix if mix is None else mix.model_copy(update={"stalls": None}), *rest, **more)

    _put(fit, "warp_demand", warp_demand)


def _power(p: float) -> Callable[[], None]:
    """Latency and service demands of every kernel add with one exponent."""

    def patch() -> None:
        known = fit.warp_demand

        def warp_demand(mix: Any, warps: int, residents: float, *rest: Any, **more: Any) -> contention.WarpDemand:
            kernel = known(mix, warps, residents, *rest, **more)
            competing = max(1.0, residents * kernel.warps_per_scheduler)
            if competing > 1.3:
                left = max(0.0, 1.0 - kernel.latency**p)
                demand = max(kernel.demands[kernel.bound], (left / (competing**p - 1.0)) ** (1.0 / p))
                kernel = replace(kernel, service_demand=demand)
            return kernel

        def time(kernel: contention.WarpDemand, queue: float) -> float:
            return float(max(kernel.latency**p + queue**p - kernel.service_demand**p, 1e-12) ** (1.0 / p))

        _put(fit, "warp_demand", warp_demand)
        _put(contention, "_time", time)

    return patch


def _fixed_point() -> None:
    """Warps of another kernel count by how often they come by while one instruction of this one runs."""

    def mix_times(residents: Sequence[tuple[contention.WarpDemand, int]], least: Sequence[float] = ()) -> list[float]:
        times = [1.0] * len(residents)
        for _ in range(FIXED_POINT_ROUNDS):
            found = []
            for i, (kernel, count) in enumerate(residents):
                queue = count * kernel.warps_per_scheduler * kernel.service_demand
                for j, (other, others) in enumerate(residents):
                    if j != i:
                        held = other.demands[kernel.bound] * kernel.service_demand / kernel.demands[kernel.bound]
                        queue += others * other.warps_per_scheduler * held * times[i] / times[j]
                found.append(contention._time(kernel, max(kernel.service_demand, queue)))
            times = [(a * b) ** 0.5 for a, b in zip(times, found, strict=True)]
        return times

    _put_mix_times(mix_times)


def _same_resource() -> None:
    """Warps of another kernel count by what they hold of the resource that binds this kernel."""

    def mix_times(residents: Sequence[tuple[contention.WarpDemand, int]], least: Sequence[float] = ()) -> list[float]:
        times = []
        for i, (kernel, count) in enumerate(residents):
            scale = kernel.service_demand / kernel.demands[kernel.bound]
            queue = count * kernel.warps_per_scheduler * kernel.service_demand
            for j, (other, others) in enumerate(residents):
                if j != i:
                    queue += scale * others * other.warps_per_scheduler * other.demands[kernel.bound]
            times.append(contention._time(kernel, max(kernel.service_demand, queue)))
        return times

    _put_mix_times(mix_times)


def _memory(dram: float, l2: float) -> Callable[[], None]:
    """What blocks ask of DRAM and of L2 is multiplied by 0 or 1."""

    def patch() -> None:
        dram_bytes, l2_us = fit._dram_bytes, fit._l2_us
        _put(fit, "_dram_bytes", lambda launch: dram * dram_bytes(launch))
        _put(fit, "_l2_us", lambda mix, gpu: l2 * l2_us(mix, gpu))

    return patch


def _any_part_of_the_time() -> None:
    """What keeps an SM busy does not limit how much of a recorded time was waiting for memory."""
    known = memory.loads_beside
    _put(fit, "loads_beside", lambda dram_busy, l2_busy, least_free, full: known(dram_busy, l2_busy, 0.0, full))


def _no_carveouts() -> None:
    """Every SM holds all its shared memory for every kernel."""
    _put(fit, "carveouts", lambda launch, foot, blocks_per_sm, gpu: (gpu.limits.shared_memory_per_sm_bytes, 0))


def _carveouts_as_set() -> None:
    """A kernel joins others only where the SM is set to what an idle one would be set to for it."""
    known = fit.carveouts

    def carveouts(*arguments: Any) -> tuple[int, int]:
        set_to, _ = known(*arguments)
        return set_to, set_to

    _put(fit, "carveouts", carveouts)


def _registers_summed() -> None:
    _put(sm_array, "register_blocks", lambda limits, others, block: limits.max_blocks_per_sm)


def _never_cold() -> None:
    known = context._lengthened
    _put(context, "_lengthened", lambda selected, switch_us, lost_share: known(selected, switch_us, 0.0))


def _nothing_persistent() -> None:
    _put(fit, "is_persistent", lambda launch, blocks_per_sm, gpu: False)


def _clusters_anywhere() -> None:
    known = fit._shape
    _put(fit, "_shape", lambda *launch: replace(known(*launch), cluster_blocks=1))


def _theoretical_residency() -> None:
    def residents(launch: Any, foot: Any, blocks_per_sm: int, gpu: GPU) -> float:
        return float(min(blocks_per_sm, -(-launch.blocks // gpu.sm_count)))

    _put(fit, "_recorded_residents", residents)


def _enqueue_order() -> None:
    def released(self: Predictor, condition: Condition) -> float:
        order = list(range(len(condition.ops)))
        if condition.experiment == "streams_b_first":
            order.reverse()
        overhead = self._gpu.model.event_overhead_us
        in_order = validate._InOrder(tuple(order), validate.RELEASE_MARKS * overhead, condition.sms)
        return self._makespan(condition, in_order) + overhead

    _put(Predictor, "_released_together", released)


def _no_head_of_line() -> None:
    known = validate._InOrder.partition

    def partition(self: Any, view: View) -> Partition:
        found, stream = known(self, view), {kernel.id: kernel.stream_index for kernel in view.kernels}
        return replace(found, grants=tuple(replace(one, queue=stream[one.kernel]) for one in found.grants))

    _put(validate._InOrder, "partition", partition)


def _no_hold() -> None:
    known = validate._PriorityEntry.partition

    def partition(self: Any, view: View) -> Partition:
        found = known(self, view)
        of = {kernel.id: kernel.stream_index for kernel in view.kernels}
        return replace(found, grants=tuple(replace(grant, queue=of[grant.kernel]) for grant in found.grants))

    _put(validate._PriorityEntry, "partition", partition)


MODEL = Variant("model", "the model")
ABLATION = (
    MODEL,
    Variant("no-age", "old blocks do not go before young ones", patch=_no_age),
    Variant("no-seniority", "who is older on an SM does not matter", patch=_no_seniority),
    Variant("no-tail-seed", "the recorded tail does not choose the seed of the jitter", patch=_one_seed),
    Variant("no-jitter", "every block has the same work", {"block_jitter": 0.0}),
    Variant("no-age-no-jitter", "neither age nor jitter", {"block_jitter": 0.0}, _no_age_no_seeds),
    Variant("no-sharing", "residents of an SM do not slow one another", patch=_no_sharing),
    Variant("blind-to-others", "blocks of other kernels on an SM cost nothing", patch=_blind_to_others),
    Variant("no-latency", "an SM's throughput does not depend on its residents", patch=_in_proportion),
    Variant("no-stall-reasons", "latency is what the busiest pipe leaves; stall reasons unread", patch=_without_stalls),
    Variant("no-hidden-waits", "waits for DRAM that turns hid are no latency", patch=_no_hidden_waits),
    Variant("no-l1-queue", "long scoreboard is never waiting for the L1 path", patch=_no_queue_for_the_l1_path),
    Variant("theoretical-residency", "recorded at occupancy, not sm__warps_active", patch=_theoretical_residency),
    Variant("no-hit-queue", "hits in L2 take as long however full it is", patch=_no_hit_queue),
    Variant("no-full-queue", "no stall shows that the queue to L2 was full", patch=_no_full_queue),
    Variant("any-queue", "stalls do not limit how long was waited for memory", patch=_queues_of_any_length),
    Variant("no-l2", "L2 slows nobody", patch=_memory(1.0, 0.0)),
    Variant("no-dram", "DRAM slows nobody", patch=_memory(0.0, 1.0)),
    Variant("no-memory", "neither does", patch=_memory(0.0, 0.0)),
    Variant(
        "no-l2-rates",
        "no ceilings of L2 reads and writes",
        {"l2_read_gb_per_s": UNLIMITED, "l2_write_gb_per_s": UNLIMITED},
    ),
    Variant("no-l2-atomics", "no ceiling of L2 atomics", {"l2_atomic_gb_per_s": UNLIMITED}),
    Variant("any-memory-part", "memory may have had all of a time in which SMs were busy", patch=_any_part_of_the_time),
    Variant("no-carveouts", "an SM holds all its shared memory for every kernel", patch=_no_carveouts),
    Variant("registers-summed", "several kernels share an SM's registers as a whole", patch=_registers_summed),
    Variant("no-persistent", "persistent kernels are like others", patch=_nothing_persistent),
    Variant("no-clusters", "blocks of clusters start by themselves, on any SM", patch=_clusters_anywhere),
    Variant("no-launch-latency", "no launch latency", {"launch_latency_us": 0.0}),
    Variant("even-schedulers", "an SM's warps spread evenly over its schedulers", patch=_even_schedulers),
    Variant("no-ramp", "the first blocks of a kernel take no longer than later ones", patch=_no_ramp),
    Variant("longer-ramps", "the first blocks take 1 us longer than what they wait for", patch=_longer_ramps),
    Variant("ramps-take-turns", "ramps are lengthened where more of a kernel's blocks share an SM",
            patch=_ramps_take_turns),
    Variant("no-clock", "SMs keep their clock beside work on tensor cores", {"tensor_clock_share": 1.0}),
    Variant("no-turns", "streams beside a kernel do not delay its start", {"stream_turn_us": 0.0}),
    Variant("no-switch", "a call after another loads no instructions", {"switch_us": 0.0}),
    Variant("never-cold", "L2 keeps the tensors of all calls", patch=_never_cold),
    Variant("no-event-overhead", "nothing added from event to event", {"event_overhead_us": 0.0}),
    Variant("no-priority-hold", "waiting blocks of high priority hold nobody back", patch=_no_hold),
    Variant("no-head-of-line", "a kernel's blocks start beside an earlier kernel's that wait", patch=_no_head_of_line),
)  # fmt: skip
DESIGNS = (
    Variant("enqueue-order", "streams start in the order of enqueuing, not the mean over orders", patch=_enqueue_order),
    Variant("carveouts-as-set", "a kernel joins others where the SM is set to what it would set an idle one to",
            patch=_carveouts_as_set),
    Variant("fixed-point", "in a mix others count by how often they come by, at what binds this kernel",
            patch=_fixed_point),
    Variant("same-resource", "in a mix others count by what they hold of the resource that binds this kernel",
            patch=_same_resource),
    Variant("sum", "latency and turns of every kernel add one after the other", patch=_power(1.0)),
    Variant("squares", "latency and turns of every kernel add as squares", patch=_power(2.0)),
    Variant("nearly-max", "latency and turns of every kernel hide one another (exponent 8)", patch=_power(8.0)),
)  # fmt: skip
VARIANTS = {variant.name: variant for variant in (*ABLATION, *DESIGNS)}


# ---- predicting ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """What one process predicts.

    Attributes:
        variant: name of one in `VARIANTS`.
        case: the data.
        wanted: conditions of it.
        constants: of the GPU file's [model] to replace, beside those that the variant replaces.
    """

    variant: str
    case: Case
    wanted: tuple[Condition, ...]
    constants: Mapping[str, float] = field(default_factory=dict)


def predictions(name: str, tasks: Sequence[Task]) -> list[list[Scored]]:
    """Predictions beside measurements, a list a task; each task in a fresh process, because patches must not meet.

    Args:
        name: of the journal in which they are kept, and found by a later run.
        tasks: what to predict.
    """
    CACHE.mkdir(exist_ok=True)
    identities = [identity(task) for task in tasks]
    journal, wanted = CACHE / f"{name}.part.jsonl", dict(zip(identities, tasks, strict=True))
    found = resumed(journal, wanted, answer, *local(PROCESSES, tasks_per_process=1), doing="predicting")
    return [[Scored(*row) for row in found[key]] for key in identities]


def identity(task: Task) -> str:
    """A hash of everything that can change what comes of a task."""
    return fingerprint.data([_sources(task.case), task.variant, task.constants, task.wanted])


@cache
def _sources(case: Case) -> str:
    """A hash of all that every prediction of a case depends on."""
    model = fingerprint.sources("gpusim.lab.validate", "gpusim.lab.scores")
    gpus = [load_gpu(name) for name in dict.fromkeys((case.gpu, case.recorded_on or case.gpu))]
    files = fingerprint.files([*_files_of(case), HERE / "variants.py"])
    return fingerprint.data([model, gpus, files, case.scaling])


def answer(task: Task) -> list[list[Any]]:
    """Predicts, as plain data; patches this process for good, so call it in one that does nothing else after."""
    variant = VARIANTS[task.variant]
    if variant.patch is not None:
        variant.patch()
    constants = {**variant.constants, **task.constants}
    dataset = Dataset(task.case.folder, gpu_of(constants)) if constants else task.case.load()
    return [list(astuple(row)) for row in scored(dataset, task.wanted)]


def cases_of(gpu: str, source: str) -> list[Case]:
    """What is predicted for a GPU from recordings of another or itself, with what is at hand beside the repository."""
    more = FRAMEWORKS[gpu]
    return [*QUOTED[gpu, source], *([more] if gpu == source and Path(more.folder).is_dir() else [])]


def models_of(gpu: str) -> list[ModelCase]:
    """The whole models of a GPU that are at hand."""
    return [case for case in MODELS if case.gpu == gpu and Path(case.folder).is_dir()]


def data_digest(cases: Sequence[Case]) -> str:
    """A hash of the files of some cases."""
    return fingerprint.files(path for case in cases for path in _files_of(case))[:16]


def _files_of(case: Case) -> list[Path]:
    folders = [Path(folder) for folder in (case.folder, case.recordings) if folder]
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]


def gpu_of(constants: Mapping[str, float]) -> GPU:
    """The recording GPU with some constants of the model replaced."""
    gpu = load_gpu(GPU_NAME)
    model = type(gpu.model).model_validate({**gpu.model.model_dump(), **constants})
    return replace(gpu, model=model)


def scored(dataset: Dataset, wanted: Sequence[Condition]) -> list[Scored]:
    """Predictions beside measurements, worked out in this process."""
    predictor, measured = Predictor(dataset), measurements(dataset)
    rows = []
    for condition in wanted:
        nothing = predictor.nothing(condition)
        for experiment, ms in predictor.predict(condition).items():
            rows.append(Scored(experiment, condition.key, ms, measured[experiment, condition.key], nothing[experiment]))
    return rows
