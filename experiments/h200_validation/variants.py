"""The model with one mechanism switched off or built another way, and what each such variant predicts.

A variant patches the package in a process of its own: the package itself has no switch for any of this. What was
predicted is kept in journals under .cache/, each prediction with a hash of everything that can change it (the sources
of the model, the GPU's file, the data, the variant), so that a run that was interrupted goes on where it stopped.

No variant is without what no row of data/ depends on: clusters that were counted, lengths of blocks that are given,
gaps between kernels, pipes that were not counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from experiments.h200_validation import mixing_patches, patches
from experiments.journal import resumed
from gpusim.common import fingerprint
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.lab.dataset import Dataset
from gpusim.lab.scores import Scored
from gpusim.lab.validate import Case, Condition, Predictor, measurements
from gpusim.results.error_band import model_identity
from gpusim.sweeps.workers import local

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
FRAMEWORKS = {  # kernels of PyTorch, where the data are at hand: by GPU
    gpu: Case(str(SHARED / f"{name}_frameworks"), gpu) for name, gpu in (("h200", GPU_NAME), ("h100", OTHER_GPU))
}
SCALING = (32, 72)  # scaling points: SMs on which predictions may use recorded times
MODELS = (Case(str(TRANSFORMER / "models"), OTHER_GPU), Case(str(SHARED / "h200_models"), GPU_NAME))
UNLIMITED = 1e6  # GB/s, or blocks per us
MODELS_ONLY, CALLS_ONLY = "models", "calls"  # sets of whole models; sets of calls of a library


@dataclass(frozen=True)
class Variant:
    """A way to build the model.

    Attributes:
        name: short, for the table.
        title: what is off or different.
        constants: of the GPU file's [model] to replace.
        patch: applied in the process that predicts.
        on: the only kind of sets on which it can change anything, `MODELS_ONLY` or `CALLS_ONLY`; empty: all.
    """

    name: str
    title: str
    constants: Mapping[str, float] = field(default_factory=dict)
    patch: Callable[[], None] | None = None
    on: str = ""


MODEL = Variant("model", "the model")
ABLATION = (
    MODEL,
    Variant("no-age", "old blocks do not go before young ones", patch=patches.no_age),
    Variant("fair-sharing", "what saturates an SM is divided by warps, not by age", patch=mixing_patches.fair_sharing),
    Variant("no-seniority", "of two kernels on an SM either is the older one as often", patch=patches.no_seniority),
    Variant("no-bursts", "no warp issues several instructions in a row", patch=patches.no_bursts),
    Variant("no-operands", "tensor instructions block nobody while their operands are read", patch=patches.no_operands),
    Variant("no-path-wait", "requests of others on the path to L1 take no time", patch=mixing_patches.no_path_wait),
    Variant("no-together", "warps of a kernel do not issue in bursts of all of them", patch=patches.no_together),
    Variant("no-fullest-beside", "beside others the mean scheduler counts, not the fullest",
            patch=mixing_patches.no_fullest_beside_others),
    Variant("no-age-limit", "old blocks may progress faster than alone", patch=patches.no_age_limit),
    Variant("no-jitter", "every block has the same work", {"block_jitter": 0.0}),
    Variant("no-age-no-jitter", "neither age nor jitter", {"block_jitter": 0.0}, patches.no_age),
    Variant("no-sharing", "residents of an SM do not slow one another", patch=mixing_patches.no_sharing),
    Variant("blind-to-others", "blocks of other kernels on an SM cost nothing", patch=mixing_patches.blind_to_others),
    Variant("no-latency", "an SM's throughput does not depend on its residents", patch=patches.in_proportion),
    Variant("no-stall-reasons", "latency is what the busiest pipe leaves; no stalls tell of turns and bursts",
            patch=patches.without_stalls),
    Variant("no-hidden-waits", "waits for DRAM that turns hid are no latency", patch=patches.no_hidden_waits),
    Variant("no-l1-queue", "long scoreboard is never waiting for the L1 path", patch=patches.no_l1_queue),
    Variant("theoretical-residency", "recorded at occupancy, not sm__warps_active",
            patch=patches.theoretical_residency),
    Variant("no-hit-queue", "hits in L2 take as long however full it is", patch=patches.no_hit_queue),
    Variant("no-full-queue", "no stall shows that the queue to L2 was full", patch=patches.no_full_queue),
    Variant("any-queue", "stalls do not limit how long was waited for memory", patch=patches.queues_of_any_length),
    Variant("service-stays-hidden", "free memory saves a kernel all its waits for queues",
            patch=patches.service_stays_hidden),
    Variant("no-intake", "an SM takes in any number of bytes a cycle from L2 and DRAM", patch=patches.no_intake),
    Variant("no-l2", "L2 slows nobody", patch=patches.loads_times(1.0, 0.0)),
    Variant("no-dram", "DRAM slows nobody", patch=patches.loads_times(0.0, 1.0)),
    Variant("no-memory", "neither does", patch=patches.loads_times(0.0, 0.0)),
    Variant("no-l2-reads", "no ceiling of L2 reads", {"l2_read_gb_per_s": UNLIMITED}),
    Variant("no-l2-atomics", "no ceiling of L2 atomics", {"l2_atomic_gb_per_s": UNLIMITED}),
    Variant("no-left-writes", "DRAM writes no more than was counted", patch=patches.no_left_writes),
    Variant("any-memory-part", "memory may have had all of a time in which SMs were busy",
            patch=patches.any_memory_part),
    Variant("no-carveouts", "an SM holds all its shared memory for every kernel", patch=patches.no_carveouts),
    Variant("no-asked-carveouts", "drivers size the carve-out for every kernel", patch=patches.no_asked_carveouts),
    Variant("registers-summed", "several kernels share an SM's registers as a whole", patch=patches.registers_summed),
    Variant("no-tiles", "blocks of persistent kernels share no work", patch=patches.no_tiles),
    Variant("no-late-last", "blocks that wait for an SM of a persistent kernel start as one is free",
            patch=patches.no_late_last),
    Variant("always-late-last", "waiting blocks that are no clusters still find a tile",
            patch=patches.always_late_last),
    Variant("no-differing-sms", "SMs with as many tiles are active equally long", patch=patches.no_differing_sms),
    Variant("no-unequal-blocks", "all blocks of a kernel are as long, but for the jitter",
            patch=patches.no_unequal_blocks),
    Variant("no-last-blocks", "no block of a reduction goes on alone", patch=patches.no_last_blocks),
    Variant("no-reading-once", "blocks whose shared memory holds all that they read read ahead, too",
            patch=patches.no_reading_once),
    Variant("no-start-limits", "any number of blocks starts at once",
            {"block_starts_per_us": 0.0, "sm_block_starts_per_us": 0.0}),
    Variant("no-clusters", "blocks of clusters start by themselves, on any SM", patch=patches.clusters_anywhere),
    Variant("no-launch-latency", "no launch latency", {"launch_latency_us": 0.0}),
    Variant("even-schedulers", "the fullest scheduler of an SM is like the mean one",
            patch=mixing_patches.even_schedulers),
    Variant("no-ramp", "the first blocks of a kernel take no longer than later ones", patch=patches.no_ramp),
    Variant("longer-ramps", "the first blocks take 1 us longer than what they wait for", patch=patches.longer_ramps),
    Variant("first-blocks-as-in-streams", "the first blocks of a kernel in a graph take as long as in a stream",
            patch=patches.first_blocks_as_in_streams, on=MODELS_ONLY),
    Variant("ramps-take-turns", "ramps are lengthened where more of a kernel's blocks share an SM",
            patch=patches.ramps_take_turns),
    Variant("no-clock", "SMs keep their clock beside work on tensor cores", {"tensor_clock_share": 1.0}),
    Variant("no-power-limit", "SMs keep their clock whatever power the GPU draws", patch=patches.no_power_limit),
    Variant("no-read-queues", "reads of an isolated kernel wait only as its loads say", patch=patches.no_read_queues),
    Variant("barriers-of-all", "barriers of a block alone on its SM are waiting for turns",
            patch=patches.barriers_of_all_warps),
    Variant("no-l1-sets", "L1 holds what each kernel read, whatever is beside it", patch=patches.no_sets_in_l1),
    Variant("no-handing-on", "warps that hardly ever stall let others in", patch=mixing_patches.no_handing_on),
    Variant("no-turns", "streams beside a kernel do not delay its start", {"stream_turn_us": 0.0}),
    Variant("no-launch-waits", "launches of CUDA graphs wait for nothing in memory", patch=patches.no_launch_waits,
            on=MODELS_ONLY),
    Variant("no-switch", "a call after another loads no instructions", {"switch_us": 0.0}, on=CALLS_ONLY),
    Variant("never-cold", "L2 keeps the tensors of all calls", patch=patches.never_cold, on=CALLS_ONLY),
    Variant("no-event-overhead", "nothing added from event to event", {"event_overhead_us": 0.0}, on=CALLS_ONLY),
    Variant("no-priority-hold", "waiting blocks of high priority hold nobody back", patch=patches.no_hold,
            on=CALLS_ONLY),
    Variant("no-waits-beside", "reads take as long beside other kernels' traffic as without it",
            patch=patches.no_waits_beside),
    Variant("no-dram-queue", "reads beside others wait for nothing that is under way to a full DRAM",
            patch=patches.no_dram_queue),
    Variant("never-late", "what a kernel reads ahead is there in time, however long reads take",
            patch=patches.never_late),
    Variant("no-head-of-line", "a kernel's blocks start beside an earlier kernel's that wait",
            patch=patches.no_head_of_line, on=CALLS_ONLY),
    Variant("no-code-on-sms", "all blocks fetch lost code again, not only the first", patch=patches.no_code_on_sms,
            on=MODELS_ONLY),
    Variant("no-lost-code", "caches keep the code of every kernel", patch=patches.no_lost_code, on=MODELS_ONLY),
    Variant("all-code-lost", "L2 keeps no constants of a program on SMs of its own", patch=patches.all_code_lost,
            on=MODELS_ONLY),
    Variant("launches-keep-code", "launches of other programs empty no caches of code",
            patch=patches.launches_keep_code, on=MODELS_ONLY),
    Variant("sms-keep-code", "kernels of other programs on the same SMs take the place of no code",
            patch=patches.sms_keep_code, on=MODELS_ONLY),
    Variant("no-block-delay", "launches of CUDA graphs delay no block that runs", {"block_delay_us": 0.0},
            on=MODELS_ONLY),
    Variant("no-reading-ahead", "a kernel waits for the whole latency of all that it reads",
            patch=patches.no_reading_ahead),
    Variant("one-load-under-way", "DRAM is as busy with few loads under way as with many",
            patch=patches.one_load_under_way),
    Variant("no-block-ends", "the start and end of a block alone on its SM may have been waiting for memory",
            patch=patches.no_block_ends),
    Variant("no-borrowing", "kernels without counters get none from another launch of theirs",
            patch=patches.no_borrowing, on=MODELS_ONLY),
    Variant("active-as-counted", "SMs were active in a graph as long as a profiler counted",
            patch=patches.active_as_counted, on=MODELS_ONLY),
    Variant("no-gaps", "kernels follow one another without a gap", {"kernel_gap_us": 0.0}, on=MODELS_ONLY),
    Variant("no-graphs", "kernels of a profile start as in a stream", patch=patches.no_graphs, on=MODELS_ONLY),
    Variant("touched-as-told", "calls touch only what their trace tells", patch=patches.touched_as_told, on=CALLS_ONLY),
    Variant("always-in-step", "L2 serves the blocks of a kernel as in its recording, whenever they start",
            patch=patches.always_in_step),
    Variant("dram-felt-early", "kernels that read ahead feel DRAM before it is full", patch=patches.dram_felt_early),
    Variant("no-lost-contents", "traffic of others takes nothing from L2 that a kernel reads",
            patch=patches.no_lost_contents),
    Variant("no-service-limit", "DRAM and L2 may serve any traffic, and nobody's reads wait for that of others",
            patch=patches.no_service_limit),
    Variant("as-if-heavy", "a kernel of little traffic slows down as much as any other", patch=patches.as_if_heavy),
    Variant("l2-as-counted", "L2 sustains the peak of its counters", {"l2_sustained_share": 1.0}),
    Variant("all-issue-slots", "warps can fill all issue slots of an SM", {"sustained_issue_share": 1.0}),
    Variant("no-waiting-turns", "barriers and short scoreboard are latency", {"waiting_turn_share": 0.0}),
    Variant("stalls-alone", "an instruction takes the sum of its stalls, however seldom it issues",
            patch=patches.stalls_alone),
    Variant("few-warps-hide", "where few warps compete, latency and turns add as squares",
            patch=patches.few_warps_hide),
    Variant("all-waits-queued", "all waits for reads may have been queues of L2 and DRAM",
            patch=patches.all_waits_queued),
    Variant("barriers-not-queued", "warps at barriers wait for no queue of DRAM", patch=patches.barriers_not_queued),
    Variant("no-other-pipes", "integer multiplies, special functions, FP64 and uncounted work fill no pipe",
            patch=patches.no_other_pipes),
    Variant("no-uncounted-pipe", "an SM busier than all its counted pipes has none that was not counted",
            patch=patches.no_uncounted_pipe),
    Variant("no-totals", "what kernels of a mix use together may be more than an SM has",
            patch=mixing_patches.no_totals),
    Variant("counted-clusters", "only launches whose clusters were counted have any", patch=patches.counted_clusters),
    Variant("no-start-bound", "no recording is taken to have been bound by the starts of its blocks",
            patch=patches.no_start_bound),
    Variant("no-sm-starts", "one SM starts as many blocks as the device", {"sm_block_starts_per_us": UNLIMITED}),
    Variant("one-library-stream", "kernels on streams of a library itself run one after the other",
            patch=patches.one_stream_of_a_library, on=CALLS_ONLY),
)  # fmt: skip
DESIGNS = (
    Variant("enqueue-order", "streams start in the order of enqueuing, not the mean over orders",
            patch=patches.enqueue_order),
    Variant("carveouts-as-set", "a kernel joins others where the SM is set to what it would set an idle one to",
            patch=patches.carveouts_as_set),
    Variant("first-is-older", "the kernel that was first on an SM is always the older one",
            patch=patches.first_is_older),
    Variant("tiles-uncounted", "8 tiles a block of all persistent kernels, whatever was counted",
            patch=patches.tiles_uncounted),
    Variant("fixed-point", "in a mix others count by how often they come by, at what binds this kernel",
            patch=mixing_patches.fixed_point),
    Variant("same-resource", "in a mix others count by what they hold of the resource that binds this kernel",
            patch=mixing_patches.same_resource),
    Variant("sum", "latency and turns of every kernel add one after the other", patch=patches.power(1.0)),
    Variant("squares", "latency and turns of every kernel add as squares", patch=patches.power(2.0)),
    Variant("nearly-max", "latency and turns of every kernel hide one another (exponent 8)", patch=patches.power(8.0)),
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
    """Predictions beside measurements, a list for each task.

    Args:
        name: of the journal in which they are kept, and found by a later run.
        tasks: what to predict.
    """
    return [[Scored(*row) for row in rows] for rows in kept(name, tasks, identity, answer)]


T = TypeVar("T")
R = TypeVar("R")


def kept(name: str, tasks: Sequence[T], identity: Callable[[T], str], compute: Callable[[T], R]) -> list[R]:
    """Answers to tasks, each worked out in a fresh process, because patches must not meet.

    Args:
        name: of the journal in which they are kept, and found by a later run.
        tasks: what to work out.
        identity: gives a hash of everything that can change an answer.
        compute: gives plain data, such as JSON has.
    """
    CACHE.mkdir(exist_ok=True)
    identities = [identity(task) for task in tasks]
    journal, wanted = CACHE / f"{name}.part.jsonl", dict(zip(identities, tasks, strict=True))
    found = resumed(journal, wanted, compute, *local(PROCESSES, tasks_per_process=1), doing="predicting")
    return [found[key] for key in identities]


@cache
def loaded(case: Case) -> Dataset:
    """The data of a case, read once."""
    return case.load()


def identity(task: Task) -> str:
    """A hash of everything that can change what comes of a task."""
    return fingerprint.data([_sources(task.case), task.variant, task.constants, task.wanted])


@cache
def _sources(case: Case) -> str:
    """A hash of all that every prediction of a case depends on."""
    model = fingerprint.sources("gpusim.lab.validate", "gpusim.lab.scores")
    gpus = [load_gpu(name) for name in dict.fromkeys((case.gpu, case.recorded_on or case.gpu))]
    files = fingerprint.files([*files_of(case), HERE / "variants.py", HERE / "patches.py"])
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
    more = [case for case in frameworks() if case.gpu == gpu == source]
    return [*QUOTED[gpu, source], *more]


def frameworks() -> list[Case]:
    """The kernels of PyTorch that are at hand."""
    return [case for case in FRAMEWORKS.values() if Path(case.folder).is_dir()]


def models_of(gpu: str) -> list[Case]:
    """The whole models of a GPU that are at hand."""
    return [case for case in MODELS if case.gpu == gpu and Path(case.folder).is_dir()]


@cache
def present_model() -> str:
    """What the model on the recording GPU is known by: another where its sources or constants are others."""
    return model_identity(load_gpu(GPU_NAME))


def data_digest(cases: Sequence[Case]) -> str:
    """A hash of the files of some cases."""
    return fingerprint.files(path for case in cases for path in files_of(case))[:16]


def files_of(case: Case) -> list[Path]:
    """The files that predictions of a case may read."""
    folders = [Path(folder) for folder in (case.folder, case.recordings) if folder]
    return [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]


def gpu_of(constants: Mapping[str, float], name: str = GPU_NAME) -> GPU:
    """A GPU with some constants of the model replaced."""
    gpu = load_gpu(name)
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
