"""Use of time by the kernels of a trace: why their warps wait, and how busy they keep the pipes of an SM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from statistics import fmean

from gpusim.common.tables import grouped, short_name
from gpusim.hardware.gpu import GPU
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix

MEMORY, REST = "L1, L2 or DRAM", "not told apart"
STALLS: Mapping[str, tuple[str, ...]] = {  # in words: fields of `WarpStalls`
    "issued": ("selected",),
    "ready, another was chosen": ("not_selected",),
    "a pipe or a queue is full": ("math_pipe_throttle", "mio_throttle", "lg_throttle", "dispatch"),
    "the block's barrier": ("barrier",),
    "shared memory": ("short_scoreboard",),
    MEMORY: ("long_scoreboard",),
    "fixed latency, instruction fetch": ("wait", "no_instruction", "imc_miss"),
}
PIPES: Mapping[str, str] = {  # in words: a field of `Mix`
    "issue slots": "issue_cycles",
    "ALU": "alu_cycles",
    "FMA": "fma_cycles",
    "tensor": "tensor_cycles",
    "load/store": "lsu_cycles",
    "L1": "l1_cycles",
}
ARITHMETIC = "arithmetic"  # of a paper's table, which does not tell pipes apart


@dataclass(frozen=True)
class KernelMix:
    """The launches of kernels of one name; means are over their recorded time."""

    name: str  # short
    launches: int  # how many
    time_us: float  # of all of them, as recorded
    # % of the time of its warps by `STALLS`; where a paper tells only those for memory, these and the rest; empty where
    # nothing is known
    stalls: Mapping[str, float]
    # % of the time that a pipe is busy on the SMs that are active, by `PIPES` or `ARITHMETIC`; those known
    busy: Mapping[str, float]


def kernel_mixes(trace: Trace, recorded_on: GPU) -> list[KernelMix]:
    """Properties of the kernels of a trace, sorted by time."""
    every = (launch for operation in trace.operations() for launch in operation.launches())
    found = [
        KernelMix(
            short_name(name),
            len(launches),
            fsum(launch.duration_us for launch in launches),
            _mean(launches, _stalls),
            _mean(launches, lambda launch: _busy(launch, recorded_on.sm_count)),
        )
        for name, launches in grouped(every, lambda launch: launch.name).items()
    ]
    return sorted(found, key=lambda mix: -mix.time_us)


def _mean(launches: Sequence[KernelLaunch], of: Callable[[KernelLaunch], Mapping[str, float]]) -> dict[str, float]:
    """Means weighted by duration, over the launches for which a quantity was recorded."""
    known = [(launch.duration_us, of(launch)) for launch in launches]
    names = dict.fromkeys(name for _, values in known for name in values)
    having = {name: [(values[name], us) for us, values in known if name in values] for name in names}
    return {name: fmean(*zip(*at, strict=True)) for name, at in having.items()}


def _stalls(launch: KernelLaunch) -> dict[str, float]:
    mix = launch.mix or Mix()
    reasons = mix.stalls
    parts = {}
    if reasons is not None:
        parts = {words: fsum(getattr(reasons, name) or 0.0 for name in names) for words, names in STALLS.items()}
    total = fsum(parts.values())
    if total > 0.0:
        return {words: 100.0 * part / total for words, part in parts.items()}
    if mix.memory_stall_percent is not None:
        return {MEMORY: mix.memory_stall_percent, REST: 100.0 - mix.memory_stall_percent}
    return {}


def _busy(launch: KernelLaunch, sm_count: int) -> dict[str, float]:
    mix, sms = launch.mix or Mix(), launch.recorded_sms or sm_count
    found = {}
    if mix.active_cycles_avg:
        for words, name in PIPES.items():
            cycles = getattr(mix, name)
            if cycles is not None:
                found[words] = 100.0 * cycles * launch.blocks / (sms * mix.active_cycles_avg)
    if not found and mix.alu_utilisation_percent is not None:
        found[ARITHMETIC] = mix.alu_utilisation_percent
    return found
