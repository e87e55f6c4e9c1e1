"""Ways in which programs can share one GPU on hardware: each as a policy, and as what somebody sets to have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, product
from math import comb
from typing import Literal, get_args

from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.tables import counted
from gpusim.hardware.gpu import GPU
from gpusim.policies.limits import MigProfile, green_sizes, mig_profiles, placeable
from gpusim.trace.edit import with_settings_of
from gpusim.trace.format import Trace

Mechanism = Literal["in turn", "streams", "priority", "SM split", "MPS", "MIG", "time slices"]
MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
MPS_STEP_PERCENT = 10
MOST_SPLITS = 120  # of three programs and more, whose splits are in coarser steps
LEAST_MPS_CAPABILITY = 7  # of which MPS limits clients (NVIDIA's MPS guide: Volta and later) [V]
HIGHEST_PRIORITY = 1  # of two that CUDA streams need to tell programs apart


@dataclass(frozen=True)
class Setting:
    """One way to share the GPU."""

    mechanism: Mechanism  # what of the hardware does it
    setting: str  # its value, as a person would say it
    policy: str  # that replays it
    paste: tuple[str, ...] = ()  # lines that set it up
    priorities: Mapping[str, int] = field(default_factory=dict)  # of programs that do not have the lowest
    parts: tuple[int, ...] = ()  # SMs of each program, where it has SMs of its own

    def __str__(self) -> str:
        return f"{self.mechanism} ({self.setting})" if self.setting else self.mechanism

    def of(self, trace: Trace) -> Trace:
        """The trace with the priorities of this setting, or as it is where that gives none."""
        if not self.priorities:
            return trace
        return with_settings_of(trace, {name: {"priority": n} for name, n in self.priorities.items()}, "priority")


def settings(gpu: GPU, programs: Sequence[str]) -> list[Setting]:
    """Every way to share a GPU that it has, in steps that it can make; programs by name, in the order of the trace."""
    several = len(programs)
    found = [
        Setting("in turn", "one after the other", "serial", ("run one after the other: nothing to set",)),
        Setting("streams", "equal priority", "leftover", ("launch each on CUDA streams of its own",)),
    ]
    found += [
        Setting(
            "priority",
            f"{name} first",
            "leftover",
            (f"torch.cuda.Stream(priority=-1) for {name}, priority=0 for the others",),
            {name: HIGHEST_PRIORITY},
        )
        for name in programs
    ]
    with suppress(InputError):  # a GPU that has no green contexts
        least, multiple = green_sizes(gpu)
        step = _coarse(gpu.sm_count, several, multiple)
        found += [_split(programs, counts) for counts in divisions(gpu.sm_count, several, least, step)]
    if _limits_clients(gpu):
        step = _coarse(100, several, MPS_STEP_PERCENT)  # without limits processes under MPS share as streams do
        found += [_mps(programs, percents) for percents in divisions(100, several, step, step)]
    with suppress(InputError):  # nor MIG
        known = mig_profiles(gpu)
        found += [_mig(programs, profiles, known) for profiles in _instances(known, several)]
    found.append(
        Setting("time slices", "processes without MPS", "time-slicing:by=program", ("a process each, without MPS",))
    )
    return found


def settings_by(gpu: GPU, programs: Sequence[str], mechanisms: Sequence[str]) -> list[Setting]:
    """The settings of some mechanisms that the GPU has, each named once, and running in turn beside them.

    Names of mechanisms may have letters of either case, and ``-`` for the space: ``sm-split``. Those of programs are in
    the order of the trace.
    """
    found = settings(gpu, programs)
    there = list(dict.fromkeys(one.mechanism for one in found))
    known = {name.lower(): name for name in MECHANISMS}
    chosen: list[Mechanism] = []
    for text in mechanisms:
        name = known.get(text.strip().lower().replace("-", " "))
        if name in chosen:
            raise InputError(None, "settings", f"names {name} twice", "each once")
        if name not in there:
            problem = f"names {quote(text)}" if text.strip() else "has an empty name"
            if name is not None:
                problem = f"names {name}, and {gpu.name} has none for {counted(len(programs), 'program')}"
            raise InputError(None, "settings", problem, expected_one_of(there, "" if name else text))
        chosen.append(name)
    return [one for one in found if one.mechanism in ("in turn", *chosen)]


def granted(gpu: GPU) -> dict[str, str]:
    """Partitions that a GPU allows, in words, by mechanism."""
    found = {}
    with suppress(InputError):
        least, multiple = green_sizes(gpu)
        steps = f", in steps of {multiple}" if multiple > 1 else ""
        found["green contexts"] = f"{least} SMs or more{steps}; one may have the rest"
    if _limits_clients(gpu):
        found["MPS"] = "active-thread percentages of each client"
    with suppress(InputError):
        parts = (
            f"{name}: {one.sms} SMs, {one.eighths}/8 of L2 and DRAM, id {one.id}"
            for name, one in mig_profiles(gpu).items()
        )
        found["MIG"] = "; ".join(parts)
    return found


def _limits_clients(gpu: GPU) -> bool:
    """Whether MPS can limit the threads of a process."""
    return int(gpu.compute_capability.split(".")[0]) >= LEAST_MPS_CAPABILITY


def splits_between(gpu: GPU, programs: Sequence[str], split: Setting) -> list[Setting]:
    """The SM splits nearest to one of `settings` in which another program has the SMs that are left.

    `settings` gives them to the last program. On an H200 and two programs the others are 4 SMs away.
    """
    least, multiple = green_sizes(gpu)
    left = gpu.sm_count % multiple
    found = []
    for program, more in product(range(len(programs) - 1), (left, left - multiple) if left else ()):
        counts = list(split.parts)
        counts[program] += more
        counts[-1] -= more
        if min(counts) >= least:
            found.append(_split(programs, tuple(counts), program))
    return found


def _split(programs: Sequence[str], counts: tuple[int, ...], rest: int | None = None) -> Setting:
    """SMs of each program; one of them, by default the last, has those that the others leave."""
    text = "+".join(map(str, counts))
    rest = len(programs) - 1 if rest is None else rest
    (first, sms), *more = [pair for i, pair in enumerate(zip(programs, counts, strict=True)) if i != rest]
    split = "; of the remaining, ".join(f"minCount {n} for {p}" for p, n in ((first, sms), *more))
    last = programs[rest]
    left = f"the remaining {counts[rest]} for {last}"
    paste = [
        f"green contexts: cuDevSmResourceSplitByCount with nbGroups 1 and {split}; {left}",
        f"torch.cuda.green_contexts.GreenContext.create(num_sms={sms}) for {first}",
        f"torch.cuda.ExternalStream on the driver's context for {last}: a second create takes the first SMs again",
    ]
    if len(programs) == 2:
        for prefill, (its, other) in zip(programs, (counts, counts[::-1]), strict=True):
            divisions = f"{{sm_group_num: 3, manual_divisions: [[{its}, {other}, 0]]}}"  # YAML
            paste.append(f"SGLang --enable-pdmux --pdmux-config-path FILE, {prefill} as prefill; in FILE: {divisions}")
    return Setting("SM split", f"{text} SMs", f"green-context:by=program,sms={text}", tuple(paste), parts=counts)


def divisions(whole: int, parts: int, least: int, step: int) -> Iterator[tuple[int, ...]]:
    """Every way to divide something among parts of at least ``least``, all but the last of them multiples of a step."""
    if parts == 1:
        yield from ((whole,),) if whole >= least else ()
        return
    for mine in range(-(-least // step) * step, whole - least * (parts - 1) + 1, step):
        yield from ((mine, *others) for others in divisions(whole - mine, parts - 1, least, step))


def _coarse(whole: int, parts: int, step: int) -> int:
    """Smallest multiple of a step that allows at most `MOST_SPLITS` divisions."""
    return next(n for n in count(step, step) if comb(max(0, whole // n - 1), parts - 1) <= MOST_SPLITS)


def _mps(programs: Sequence[str], percents: tuple[int, ...]) -> Setting:
    text = "+".join(map(str, percents))
    limits = (f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={n} for {p}" for p, n in zip(programs, percents, strict=True))
    paste = ("nvidia-cuda-mps-control -d, then start each program in an environment of its own:", *limits)
    return Setting("MPS", f"{text} %", f"mps:by=program,percent={text}", paste)


def _mig(programs: Sequence[str], profiles: tuple[str, ...], known: Mapping[str, MigProfile]) -> Setting:
    text = "+".join(profiles)
    # those with the fewest places first
    pinned = sorted((known[name] for name in profiles), key=lambda one: len(one.starts))
    ids = ",".join(str(one.id) for one in pinned)
    paste = (
        f"nvidia-smi -mig 1, then nvidia-smi mig -cgi {ids} -C  # compare the ids with nvidia-smi mig -lgip",
        *(
            f"CUDA_VISIBLE_DEVICES=MIG-… of the {p} instance (nvidia-smi -L) for {name}"
            for p, name in zip(profiles, programs, strict=True)
        ),
    )
    return Setting("MIG", text, f"mig:by=program,slices={text}", paste)


def _instances(known: Mapping[str, MigProfile], programs: int) -> list[tuple[str, ...]]:
    """Profiles of each program that fit together, where none could be larger."""
    names = list(known)
    fitting = [one for one in product(names, repeat=programs) if placeable([known[name] for name in one])]

    def larger(profiles: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        for i, name in enumerate(profiles):
            for bigger in names[names.index(name) + 1 :]:
                yield (*profiles[:i], bigger, *profiles[i + 1 :])

    return [profiles for profiles in fitting if not any(one in fitting for one in larger(profiles))]
