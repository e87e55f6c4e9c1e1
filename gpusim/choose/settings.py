"""Ways in which programs can share one GPU on hardware: each as a policy, and as what somebody sets to have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import GPU
from gpusim.policies.limits import green_sizes, mig_profiles, placeable
from gpusim.trace.edit import with_settings_of
from gpusim.trace.format import Trace

Mechanism = Literal["in turn", "streams", "priority", "SM split", "MPS", "MIG", "time slices"]
MPS_STEP_PERCENT = 10
MOST_SPLITS = 120  # of three programs and more, whose splits are in coarser steps
MIG_PROFILE_IDS = {"1g": 19, "2g": 14, "3g": 9, "4g": 5, "7g": 0}  # of nvidia-smi mig -lgip, A100 and later [M]
HIGHEST_PRIORITY = 1  # of two that CUDA streams need to tell programs apart


@dataclass(frozen=True)
class Setting:
    """One way to share the GPU.

    Attributes:
        mechanism: what of the hardware does it.
        setting: its value, as a person would say it.
        policy: that replays it.
        paste: lines that set it up.
        priorities: of programs that do not have the lowest.
        parts: SMs of each program, where it has SMs of its own.
    """

    mechanism: Mechanism
    setting: str
    policy: str
    paste: tuple[str, ...] = ()
    priorities: Mapping[str, int] = field(default_factory=dict)
    parts: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.mechanism} ({self.setting})" if self.setting else self.mechanism

    def of(self, trace: Trace) -> Trace:
        """The trace with the priorities of this setting, or as it is where that gives none."""
        if not self.priorities:
            return trace
        return with_settings_of(trace, {name: {"priority": n} for name, n in self.priorities.items()}, "priority")


def settings(gpu: GPU, programs: Sequence[str]) -> list[Setting]:
    """Every way to share a GPU that it has, in steps that it can make.

    Args:
        gpu: what is shared.
        programs: their names, in the order of the trace.
    """
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
    found += [_split(programs, counts) for counts in _splits(gpu, len(programs))]
    found += [_mps(programs, percents) for percents in _percentages(len(programs))]
    found += [_mig(programs, profiles) for profiles in _instances(gpu, len(programs))]
    found.append(
        Setting("time slices", "processes without MPS", "time-slicing:by=program", ("a process each, without MPS",))
    )
    return found


def _split(programs: Sequence[str], counts: tuple[int, ...]) -> Setting:
    text = "+".join(map(str, counts))
    *others, last = programs
    *granted, rest = counts
    split = "; of the remaining, ".join(f"minCount {n} for {p}" for p, n in zip(others, granted, strict=True))
    paste = [
        f"green contexts: cuDevSmResourceSplitByCount with nbGroups 1 and {split}; the remaining {rest} for {last}",
        f"torch.cuda.green_contexts.GreenContext.create(num_sms={counts[0]}) for {programs[0]}",
        f"torch.cuda.ExternalStream on the driver's context for {last}: GreenContext.create takes the first SMs again",
    ]
    if len(programs) == 2:
        divisions = f"sm_group_num: 3, manual_divisions: [[{counts[0]}, {rest}, 0]]"
        paste.append(f"SGLang --enable-pdmux --pdmux-config-path FILE, {programs[0]} as prefill: {divisions}")
    return Setting("SM split", f"{text} SMs", f"green-context:by=program,sms={text}", tuple(paste), parts=counts)


def _splits(gpu: GPU, programs: int) -> Iterator[tuple[int, ...]]:
    """SMs of each program, in the sizes that green contexts have; the last has the rest."""
    try:
        least, multiple = green_sizes(gpu)
    except InputError:
        return
    step = multiple
    while _compositions(gpu.sm_count // step, programs) > MOST_SPLITS:
        step += multiple
    sizes = range(-(-least // step) * step, gpu.sm_count - least * (programs - 1) + 1, step)
    for counts in product(sizes, repeat=programs - 1):
        rest = gpu.sm_count - sum(counts)
        if rest >= least:
            yield (*counts, rest)


def _compositions(units: int, parts: int) -> int:
    """Number of ways to divide units among parts, at least one for each."""
    ways = 1
    for i in range(1, parts):
        ways = ways * (units - i) // i
    return ways


def _mps(programs: Sequence[str], percents: tuple[int, ...]) -> Setting:
    text = "+".join(map(str, percents))
    paste = tuple(f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={n} for {p}" for p, n in zip(programs, percents, strict=True))
    return Setting("MPS", f"{text} %", f"mps:by=program,percent={text}", paste)


def _percentages(programs: int) -> Iterator[tuple[int, ...]]:
    """Limits that overlap nowhere, in steps; without limits processes under MPS share as streams do."""
    step = MPS_STEP_PERCENT
    while _compositions(100 // step, programs) > MOST_SPLITS:
        step += MPS_STEP_PERCENT
    for counts in product(range(step, 100, step), repeat=programs - 1):
        rest = 100 - sum(counts)
        if rest >= step:
            yield (*counts, rest)


def _mig(programs: Sequence[str], profiles: tuple[str, ...]) -> Setting:
    text = "+".join(profiles)
    ids = ",".join(str(MIG_PROFILE_IDS[name]) for name in profiles)
    paste = (
        f"nvidia-smi mig -cgi {ids} -C  # ids of the manual, checked on no GPU: compare nvidia-smi mig -lgip",
        *(f"{name}: instance {p}" for p, name in zip(profiles, programs, strict=True)),
    )
    return Setting("MIG", text, f"mig:by=program,slices={text}", paste)


def _instances(gpu: GPU, programs: int) -> Iterator[tuple[str, ...]]:
    """Profiles of each program that fit together, where none could be larger."""
    try:
        known = mig_profiles(gpu)
    except InputError:
        return
    names = list(known)

    def fits(profiles: Sequence[str]) -> bool:
        return placeable([known[name] for name in profiles])

    for profiles in product(names, repeat=programs):
        larger = (
            (*profiles[:i], bigger, *profiles[i + 1 :])
            for i, name in enumerate(profiles)
            for bigger in names[names.index(name) + 1 :]
        )
        if fits(profiles) and not any(fits(one) for one in larger):
            yield profiles
