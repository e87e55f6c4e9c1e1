"""The cost of overlapping for each kernel, by kind of contention, and the gain of another arrangement.

The streams of a trace run as plain CUDA streams would run them. A kernel's time there is taken apart: its time
isolated, its wait until it got room on an SM, its wait for code that the caches had lost, and what sharing SMs and
memory added, by the resource that bound it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import fsum, inf
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from gpusim.choose.moves import split_policy
from gpusim.choose.settings import Setting
from gpusim.common.errors import InputError, quote
from gpusim.common.progress import Step, no_step
from gpusim.common.tables import grouped, picked, short_name, summed
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import UNKNOWN
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import wait_slowdown
from gpusim.policies.interface import Policy
from gpusim.policies.registry import spec_of
from gpusim.results.metrics import times_as_long
from gpusim.results.result import Result
from gpusim.results.runs import BOUND_TITLES, KernelRun
from gpusim.session import ORDER_NOTES, AnyGPU, AnyTrace, CachedCode, Session, opened
from gpusim.trace.format import Trace
from gpusim.trace.independent import shares_nothing
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

JSON_VERSION = 1
GROUP_COLUMNS = ("name", "launches", "isolated_us", "took_us", "slowdown", "by_us")  # of JSON
AS_RECORDED = "leftover"  # plain CUDA streams
NO_ROOM = "no room"  # waited, or other kernels held the SMs
LOST_CODE = "lost code"  # waited for instructions and constants that launches and data of others took from the caches
TAIL = "tail"  # found no room at first, and started while the last blocks of another kernel held SMs
LAUNCH = "launch"  # started a little later than usual, although there was room
OTHER = "not explained"  # the model expects hardly any slowdown
TITLES = BOUND_TITLES | {UNKNOWN: "SMs and memory (no counters)"}  # of causes, as people read them
LEAST_SLOWED = 1.02  # what counts as slowed [D]
LEAST_PERCENT = 0.5  # of a cost, from which on a cause is named: less is printed as 0 %


class Costed(Protocol):
    """A kernel that ran beside others, as replayed or as recorded; times in us."""

    @property
    def isolated_us(self) -> float | None:
        """Its time by itself; None: not known."""

    @property
    def took_us(self) -> float:
        """Its time beside others."""

    @property
    def by_us(self) -> Mapping[str, float]:
        """What made the difference."""


K = TypeVar("K", bound=Costed)


@dataclass(frozen=True)
class Slowed:
    """A kernel as it ran beside others; times in us."""

    run: KernelRun  # when it ran
    isolated_us: float  # its time on the whole GPU by itself, launch included
    took_us: float  # from when it could start to its end
    # what made the difference: ``no room``, ``lost code``, or the resource that bound it while it shared SMs and memory
    by_us: Mapping[str, float]
    beside: tuple[str, ...]  # names of kernels that ran while it did, the longest beside it first

    @property
    def slowdown(self) -> float:
        """Its time beside others over its isolated time."""
        return times_as_long(self.took_us, self.isolated_us)

    @property
    def cause(self) -> str:
        """Largest cost; empty if it was not slowed."""
        if self.slowdown < LEAST_SLOWED or not self.by_us:
            return ""
        return max(self.by_us, key=lambda name: self.by_us[name])


@dataclass(frozen=True)
class Group:
    """Kernels of one name, or of one operator."""

    name: str  # what they share
    launches: int  # how many
    isolated_us: float | None  # of all together, as are the next; None: not known
    took_us: float
    by_us: Mapping[str, float]  # as of `Slowed`, the most first

    @property
    def slowdown(self) -> float | None:
        """Their time beside others over their isolated time."""
        return None if self.isolated_us is None else times_as_long(self.took_us, self.isolated_us)


@dataclass(frozen=True)
class Explanation:
    """Why the kernels of a trace took as long as they did."""

    trace: Trace  # what ran
    gpu: GPU  # where
    makespan_us: float  # of the streams as plain CUDA streams
    kernels: tuple[Slowed, ...]  # all, in the order in which they started
    by_name: tuple[Group, ...]  # the same, together, what overlapping cost most first
    by_operator: tuple[Group, ...]
    arrangements: Mapping[str, float]  # makespan of other policies, us, the shortest first

    @property
    def cost_us(self) -> dict[str, float]:
        """Total cost of each contention over all kernels, us, largest first."""
        return added(one.by_us for one in self.kernels)


def explain(trace: AnyTrace, gpu: Session | AnyGPU | None = None, *, step: Step = no_step) -> Explanation:
    """Take apart what overlapping cost each kernel of a trace; without a GPU on that of the recording.

    Raises:
        InputError: a trace of one stream or without kernels, where nothing overlaps.
    """
    found, session = opened(trace, gpu)
    if shares_nothing(found):
        problem = f"{quote(found.name)} has one stream, so that no kernels overlap"
        raise InputError(None, "trace", problem, "two streams or more with kernels, or a second trace")
    step("replaying the streams as plain CUDA streams")
    result = session.replay(found, AS_RECORDED, keep=())
    kernels = _slowed(result, found, session)
    return Explanation(
        found,
        session.gpu,
        result.makespan_us,
        kernels,
        in_groups(kernels, lambda one: short_name(one.run.kernel)),
        in_groups(kernels, lambda one: operator_of(one.run.operation)),
        other_arrangements(found, session, step),
    )


def other_arrangements(trace: Trace, session: Session, step: Step) -> dict[str, float]:
    """Makespan under other policies than plain streams, us, the shortest first."""
    others = {}
    for policy in ("serial", split_policy(session.gpu), "even", "warped-slicer"):
        step(f"replaying under {policy}")
        with suppress(InputError):  # it cannot divide this GPU between so many streams
            others[policy] = session.makespan_us(trace, policy)
    return dict(sorted(others.items(), key=lambda item: item[1]))


def operator_of(operation: str) -> str:
    """The operator that launched an operation: its id without the numbers that tell its calls apart."""
    parts = operation.split("/")
    while len(parts) > 1 and parts[-1].isdigit():
        parts.pop()
    return "/".join(parts)


def costs_us(trace: Trace, session: Session, way: Setting) -> dict[str, dict[str, float]]:
    """What a setting adds to the isolated times of each program's kernels, by cause, us, the largest first."""
    trace = way.of(trace)
    result = session.replay(trace, way.policy, keep=())
    by_program = grouped(_slowed(result, trace, session, way), lambda one: result.program_of[one.run.stream])
    return {name: added(one.by_us for one in of) for name, of in by_program.items()}


def _slowed(result: Result, trace: Trace, session: Session, way: Setting | None = None) -> tuple[Slowed, ...]:
    """Each kernel of a replay as plain CUDA streams, or under a setting, beside the others, by its start."""
    runs = sorted(result.kernel_runs, key=lambda run: (run.start_us, run.ready_us))
    spans_us = [(run.start_us, run.end_us) for run in runs]
    beside = overlaps(spans_us)
    found = []
    keeps_code = way is not None and way.mechanism == "MIG"  # each instance has a part of L2 to itself
    policy = spec_of(AS_RECORDED if way is None else way.policy).make()
    waited = [0.0] * len(runs) if keeps_code else _waited_for_code_us(trace, session, runs, beside, policy)
    for run, others, code_us in zip(runs, beside, waited, strict=True):
        parts = {NO_ROOM: run.waited_us, LOST_CODE: code_us, run.bound_by: run.sharing_us - code_us}
        by_us = {name: us for name, us in parts.items() if us > 0.0}
        names = longest_first((runs[other].kernel, us) for other, us in others.items())
        found.append(Slowed(run, run.solo_us, run.end_us - run.ready_us, by_us, names))
    return tuple(found)


def side_by_side(session: Session, device: str, both: Sequence[KernelLaunch]) -> tuple[Slowed, Slowed]:
    """Two kernels in two streams, the first launched first, each as it ran beside the other.

    ``device`` is the GPU of the recording.
    """
    streams = tuple(Stream(name=str(at), operations=(Kernel(id=str(at), kernel=one),)) for at, one in enumerate(both))
    trace = Trace(version=1, name="pair", device=device, streams=streams)
    result = session.replay(trace, AS_RECORDED, keep=())
    first, second = sorted(_slowed(result, trace, session), key=lambda one: one.run.stream)
    return first, second


def overlaps(spans_us: Sequence[tuple[float, float]]) -> list[dict[int, float]]:
    """For each kernel, the index of each other that ran while it did, and for how long both ran; sorted by start."""
    found: list[dict[int, float]] = [{} for _ in spans_us]
    for at, (_, end_us) in enumerate(spans_us):
        for other in range(at + 1, len(spans_us)):
            start_us, other_end_us = spans_us[other]
            if start_us >= end_us:
                break
            if (common_us := min(end_us, other_end_us) - start_us) > 0.0:
                found[at][other] = found[other][at] = common_us
    return found


def _waited_for_code_us(
    trace: Trace, session: Session, runs: Sequence[KernelRun], beside: Sequence[Mapping[int, float]], policy: Policy
) -> list[float]:
    """Return how much longer each kernel took because its code had to come again, us, at most what sharing added.

    The replay keeps no record of lost code. This function follows the kernels in the order in which they came, as the
    engine does. It compares the wait of each with and without its lost code, beside the same traffic of others.

    ``runs`` are sorted by their start; ``beside`` tells of each the others that ran while it did, by index, and for how
    long (us), under a ``policy``.
    """
    if len(trace.programs) < 2 or any(stream.gpu for stream in trace.streams):
        return [0.0] * len(runs)
    kernels, launches = session.kernels(trace), {op.id: op.launches() for op in trace.operations()}
    models = [kernels.model(launches[run.operation][run.index], run.operation) for run in runs]
    lost = _lost(trace, session, runs, models, policy)
    busy_us = [(one.blocks * one.dram_share_us, one.blocks * one.l2_share_us) for one in models]

    def served(by: int, during: int, us: float) -> tuple[float, float]:
        """Share of one kernel's time in which another keeps DRAM and L2 busy."""
        scale = us / (_span_us(runs[by]) * _span_us(runs[during]))
        return busy_us[by][0] * scale, busy_us[by][1] * scale

    found = []
    for at, (run, model, gone) in enumerate(zip(runs, models, lost, strict=True)):
        if gone * model.wait.code <= 0.0 or run.sharing_us <= 0.0:
            found.append(0.0)
            continue
        others = [served(by, at, us) for by, us in beside[at].items()]
        dram, l2 = (min(1.0, sum(one[which] for one in others)) for which in (0, 1))
        own = min(1.0 - dram, busy_us[at][0] / _span_us(run))
        kept, again = (wait_slowdown(dram, l2, own, model.wait, share) for share in (0.0, gone))
        found.append(min(run.sharing_us, _span_us(run) * (1.0 - kept / again)))
    return found


def _span_us(run: KernelRun) -> float:
    return run.end_us - run.start_us


def _lost(
    trace: Trace, session: Session, runs: Sequence[KernelRun], models: Sequence[KernelModel], policy: Policy
) -> list[float]:
    """Share of its code that each kernel had lost; calls of libraries have none, as in the engine."""
    program_of = {stream: at for at, one in enumerate(trace.programs) for stream in one.streams}
    names: list[set[str]] = [set() for _ in trace.programs]
    for run in runs:
        names[program_of[run.stream]].add(run.kernel)
    calls = {op.id for op in trace.operations() if not isinstance(op, Kernel)}
    cached = CachedCode(session.gpu, policy.shows_sms(), policy.single_stream, names)
    lost = [0.0] * len(runs)
    for at in sorted(range(len(runs)), key=lambda i: runs[i].ready_us + models[i].latency_us):
        gone = cached.lost_by(models[at], program_of[runs[at].stream])
        lost[at] = 0.0 if runs[at].operation in calls else gone
    return lost


def longest_first(beside: Iterable[tuple[str, float]]) -> tuple[str, ...]:
    """Short names of kernels that ran beside one, the longest together with it first."""
    together = summed((short_name(kernel), us) for kernel, us in beside)
    return tuple(sorted(together, key=lambda name: -together[name]))


def in_groups(kernels: Iterable[K], name_of: Callable[[K], str]) -> tuple[Group, ...]:
    """Kernels of each name together, what overlapping cost most first; those of unknown isolated times apart, last."""
    made = []
    for (name, known), of in grouped(kernels, lambda one: (name_of(one), one.isolated_us is not None)).items():
        isolated_us = fsum(one.isolated_us or 0.0 for one in of) if known else None
        made.append(Group(name, len(of), isolated_us, fsum(one.took_us for one in of), added(one.by_us for one in of)))
    return tuple(sorted(made, key=lambda one: inf if one.isolated_us is None else one.isolated_us - one.took_us))


def added(several: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """Sums by name, the largest first."""
    parts = grouped((part for one in several for part in one.items()), itemgetter(0))
    sums = {name: fsum(us for _, us in of) for name, of in parts.items()}
    return dict(sorted(sums.items(), key=lambda item: (-item[1], item[0])))


def in_shares(by_us: Mapping[str, float], most: int, whole_us: float | None = None) -> str:
    """The largest parts of a time, each with its share of the whole, without those under half a percent.

    ``whole_us``: None: the sum of the parts. Empty: there is none.
    """
    whole = fsum(by_us.values()) if whole_us is None else whole_us
    percent = {name: 100.0 * us / whole for name, us in by_us.items()} if whole > 0.0 else {}
    shown = [(name, share) for name, share in percent.items() if share >= LEAST_PERCENT][:most]
    return ", ".join(f"{TITLES.get(name, name)} {share:.0f} %" for name, share in shown)


def arrangements_json(makespan_us: float, arrangements: Mapping[str, float]) -> list[dict[str, Any]]:
    """Makespan and gain over plain streams of each other arrangement."""
    return [
        {"policy": policy, "makespan_us": us, "gain": times_as_long(makespan_us, us)}
        for policy, us in arrangements.items()
    ]


def order_note(trace: Trace) -> str:
    """What the source of a trace leaves open of the order between streams; empty where it tells it."""
    return "" if trace.order is None else ORDER_NOTES[trace.order]


def as_json(found: Explanation) -> dict[str, Any]:
    """The explanation as `gpusim explain --json` prints it."""
    return {
        "version": JSON_VERSION,
        "trace": found.trace.name,
        "gpu": found.gpu.name,
        **({"order": note} if (note := order_note(found.trace)) else {}),
        "makespan_us": found.makespan_us,
        "cost_us": found.cost_us,
        "arrangements": arrangements_json(found.makespan_us, found.arrangements),
        "by_name": [picked(group, *GROUP_COLUMNS) for group in found.by_name],
        "by_operator": [picked(group, *GROUP_COLUMNS) for group in found.by_operator],
        "kernels": [
            {
                **picked(one.run, "stream", "operation", "kernel", "start_us", "end_us"),
                **picked(one, "isolated_us", "took_us", "slowdown"),
                "cause": one.cause or None,
                **picked(one, "by_us", "beside"),
            }
            for one in found.kernels
        ],
    }
