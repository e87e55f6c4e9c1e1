"""Programs on one GPU: every way in which hardware lets them share it, replayed, and which of them to set.

Programs run once, for the makespan, and restart until each has ended twice, for STP, ANTT and their slowdowns. The
throughput is the part of STP of the programs without a target: what others do while one keeps its own. Programs with
arrivals are replayed with these instead, and the others restart beside them (`gpusim.choose.serving`). A setting is
recommended if it is the best by the objective among those that keep all targets and under which no queue of requests
grows; if there are none, among those that keep all targets. Settings whose difference from it is within the model's
error are ties; of these the one that asks least of whoever sets it is recommended [D]. Running in turn asks nothing,
and is recommended in a tie only if it also slows the programs no more, on average, than each of the others [D]: it may
slow a short program a hundred times.

A program whose kernels run for a small part of its pass gets priority in a tie with plain streams. Its copies and host
work overlap the kernels of others only if its own kernels do not wait behind these, while the others lose little. It is
the rule of schedulers that run jobs bound by input and output first [D].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress, islice, product
from math import fsum, inf
from os import PathLike
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from gpusim.choose.explain import AS_RECORDED, costs_us
from gpusim.choose.serving import (
    GROWS,
    isolated_us,
    kernels_beside,
    looping,
    not_served,
    once_each,
    other_seeds,
    passes_beside,
    progress_in_loops,
    restarted_progress,
    restarting,
    served,
    slowdowns_of,
    whole_passes,
    with_arrivals,
)
from gpusim.choose.settings import Setting, settings_by, splits_between
from gpusim.choose.settings import settings as every_setting
from gpusim.choose.targets import Target, targets_of
from gpusim.common import fingerprint
from gpusim.common.cores import in_order
from gpusim.common.errors import InputError, expected_one_of, quote
from gpusim.common.progress import Step, no_step, require_step
from gpusim.common.tables import picked
from gpusim.hardware.gpu import GPU
from gpusim.results.error_band import VALIDATED, HowWrong, error_band
from gpusim.results.metrics import SHARING, sharing, undominated
from gpusim.results.result import Result
from gpusim.session import AnyGPU, AnyTrace, Assumption, Session, Starved, opened, warning
from gpusim.trace.edit import merge, select
from gpusim.trace.file import trace_of
from gpusim.trace.format import Trace

if TYPE_CHECKING:
    import pandas as pd

Objective = Literal["makespan", "stp", "antt", "throughput"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
TIE = 0.03  # of two settings, relative: what gains over plain streams are off by in experiments/control_worth [D]
UNMEASURED = 0.1  # by which settings count worse than predicted that nobody measured, beside others [D]
FEW_KERNELS = 0.5  # of a program's pass, below which it is bound by copies or its host [D]
LEADING = 12  # choices that are shown, and replayed under other assumptions
MOST_RESTARTED = 20_000  # kernels in one pass of the longest program: more take minutes, for STP and slowdowns only
R = TypeVar("R")
T = TypeVar("T")
EFFORT = ("in turn", "streams", "priority", "MPS", "SM split", "MIG", "time slices")  # to set, the least first


@dataclass(frozen=True)
class SettingResult:
    """A setting and what it gives."""

    setting: Setting  # what is set
    makespan_us: float  # programs run once, or all their requests
    # of programs that restart; None where one of them starves. With arrivals only antt: the mean of their slowdowns
    stp: float | None
    antt: float | None
    fairness: float | None
    throughput: float | None  # the part of ``stp`` of the programs without a target, or all of it if each has one
    # of each program, over itself alone on the whole GPU: of restarting programs the inverse of their progress, of
    # programs with arrivals the mean latency of a request over the makespan alone, else of one pass
    slowdown: Mapping[str, float]
    latency_us: Mapping[str, float]  # of each program: a pass; with arrivals the 95th percentile of its requests
    # of each program, the time of its kernels by what bound them, in the passes that were replayed
    bound_us: Mapping[str, Mapping[str, float]]
    how_wrong: HowWrong  # how far off the model was on measured co-runs of the kind, or why nobody knows
    # of each program with arrivals: percentiles of its requests' latencies by percent; if they are random, half of the
    # 95 % confidence interval of ``latency_us``, from the spread over their seeds; and the mean latency of the last
    # third of its requests over that of the first
    percentiles_us: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    interval_us: Mapping[str, float] = field(default_factory=dict)
    growth: Mapping[str, float] = field(default_factory=dict)
    doubted: bool = False  # whether nobody measured such a way to share, while others that are compared were

    def counted(self, objective: Objective) -> float:
        """What settings are ranked by: ``cost``, and `UNMEASURED` more where it is doubted."""
        cost = self.cost(objective)
        return cost + UNMEASURED * abs(cost) if self.doubted else cost

    def cost(self, objective: Objective) -> float:
        """Value to minimise; infinite where it is not known."""
        if objective == "makespan":
            return self.makespan_us
        value: float | None = getattr(self, objective)
        if value is None:
            return inf
        return value if objective == "antt" else -value

    @property
    def serves(self) -> bool:
        """Whether no queue of requests grows."""
        return all(value < GROWS for value in self.growth.values())

    @property
    def mean_slowdown(self) -> float:
        """Mean of the programs' slowdowns: ``antt``, and the same of programs that run once."""
        return fmean(self.slowdown.values())

    def over(self, target: Target) -> float:
        """By which factor it misses a target; 1 or less: it is kept."""
        return target.over(self.slowdown, self.latency_us)


@dataclass(frozen=True)
class Advice:
    """Recommended setting for some programs on one GPU."""

    trace: Trace  # the programs side by side
    gpu: GPU  # what they share
    objective: Objective  # what is best
    targets: tuple[Target, ...]  # what programs are to keep
    # of every setting, the best first; then those under which a queue grows, and those that miss a target
    choices: tuple[SettingResult, ...]
    best: SettingResult  # the one to set
    assumption: str = ""  # what kernels without counters may change of that; empty where all were counted
    first: str = ""  # the program that has few kernels, and priority in a tie; empty: none, or several
    # why programs do not restart, so that slowdowns are of one pass and there is no STP; empty: they do
    unequal: str = ""
    # what the best setting adds to the isolated times of each program's kernels, by cause; empty in turn
    cost_us: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __repr__(self) -> str:
        best = f"{self.best.setting.mechanism}: {self.best.setting.setting}"
        return f"Advice(trace={self.trace.name!r}, gpu={self.gpu.name!r}, best={best!r})"

    @property
    def free(self) -> tuple[str, ...]:
        """The programs whose throughput counts."""
        return _free(self.trace, self.targets)

    def meets(self, choice: SettingResult) -> bool:
        """Whether a choice keeps all targets."""
        return all(choice.over(target) <= 1.0 for target in self.targets)

    def eligible(self, choice: SettingResult) -> bool:
        """Whether a choice keeps all targets, and serves all requests if some choice does both."""
        return self.meets(choice) and (choice.serves or not self.best.serves)

    def ties(self, choice: SettingResult) -> bool:
        """Whether a choice is eligible, and the model cannot tell it from the best one."""
        near = _ties(choice.counted(self.objective), self.choices[0].counted(self.objective))
        return near and self.eligible(choice)

    @cached_property
    def pareto(self) -> tuple[SettingResult, ...]:
        """The choices than which no other slows every program less."""
        kept = undominated([[one.slowdown[name] for name in self.best.slowdown] for one in self.choices])
        return tuple(compress(self.choices, kept))

    @cached_property
    def leading(self) -> tuple[SettingResult, ...]:
        """The first `LEADING` choices, the best of each mechanism, and the one to set."""
        best = [*{one.setting.mechanism: one for one in reversed(self.choices)}.values(), self.best]
        return tuple(one for at, one in enumerate(self.choices) if at < LEADING or one in best)

    @cached_property
    def competitor(self) -> SettingResult | None:
        """The best eligible choice of another mechanism."""
        others = (one for one in self.choices if one.setting.mechanism != self.best.setting.mechanism)
        return next(filter(self.eligible, others), None)

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row for each choice, the best first; a column ``slowdown[PROGRAM]`` for each program."""
        import pandas as pd

        rows = [
            {
                **picked(one.setting, "mechanism", "setting"),
                **picked(one, "makespan_us", "stp", "antt"),
                **{f"slowdown[{name}]": value for name, value in one.slowdown.items()},
                "model_error": one.how_wrong.percent,
                "meets_slo": self.meets(one),
                "serves": one.serves,
                "tie": self.ties(one),
            }
            for one in self.choices
        ]
        return pd.DataFrame(rows).astype({"model_error": float})


def advise(
    programs: Sequence[AnyTrace],
    gpu: Session | AnyGPU | None = None,
    objective: Objective | None = None,
    targets: Sequence[str | Target] = (),
    *,
    recorded_on: AnyGPU | None = None,
    jobs: int | None = None,
    settings: Sequence[str] | None = None,
    ways: Sequence[Setting] | None = None,
    step: Step = no_step,
) -> Advice:
    """Replay programs under every way to share the GPU, and recommend one.

    Args:
        programs: one trace, or path of a file, per program; or one trace with several programs.
        gpu: the GPU: a `GPU`, its name or the path of its file, or a `Session`; None: the GPU of the recording.
        objective: ``makespan`` (smallest), ``stp`` (largest), ``antt`` (smallest) or ``throughput`` of the programs
            without a target (largest). The default is makespan, with targets throughput, and with arrivals antt.
        targets: of programs, as ``decode=x1.2`` or ``decode=5ms``.
        recorded_on: the GPU of the recording, if the trace names one that does not ship.
        jobs: processes; None: one per core.
        settings: kinds of settings to compare beside running in turn, as ``["MPS", "MIG"]``; None: all kinds that the
            GPU has.
        ways: single settings to compare, and nothing beside them (`gpusim.choose.settings.settings` makes them); None:
            every setting of the kinds.
        step: called with the name of each step before it starts.

    Raises:
        InputError: fewer than two programs, programs recorded on different GPUs, a target of no program, a target
            that no setting keeps, arrivals faster than the GPU can serve, a kind of settings that the GPU lacks.
    """
    require_step(step)
    trace, session = opened(_together(programs), gpu, recorded_on)
    if not (jobs is None or (isinstance(jobs, int) and jobs >= 1)):
        raise InputError(None, "jobs", f"is {quote(jobs)}", "a number of processes of at least 1, or None")
    names = [program.name for program in trace.programs]
    if len(names) < 2:
        raise InputError(None, "programs", f"{quote(trace.name)} is one program", "two or more to share a GPU")
    if not (isinstance(targets, list | tuple) and all(isinstance(one, str | Target) for one in targets)):
        raise InputError(None, "targets", f"is {quote(targets)}", "a list such as ['prefill=x1.2', 'decode=5ms']")
    wanted = targets_of(targets, names)
    if objective is not None and not (isinstance(objective, str) and objective in OBJECTIVES):
        raise InputError(None, "objective", f"is {quote(objective)}", expected_one_of(OBJECTIVES, str(objective)))
    compared = _compared(session.gpu, names, settings, ways)
    chosen: Objective = objective or ("throughput" if wanted else "makespan")
    step("fitting kernels to their recording")
    alone = isolated_us(trace, session)
    if with_arrivals(trace):
        for problem in not_served(trace, alone):
            raise InputError(None, "arrivals", problem, "an interval above the isolated time, or a lower rate")
        trace = trace if objective == "makespan" else restarting(trace, alone)
        restarted = looping(trace)
        if objective == "stp" or (objective == "throughput" and not restarted):
            problem = f"{objective} is for programs that restart; programs with arrivals do not"
            raise InputError(None, "objective", problem, "antt or makespan, or no arrivals")
        chosen = objective or ("throughput" if wanted and restarted else "antt")
    unequal = _unequal(trace, alone) if chosen == "makespan" and not wanted else ""
    free = _free(trace, wanted)
    shared = _Shared(trace, session, alone, free, not unequal)
    replayed = partial(_replayed, partial(_choice, shared), jobs=jobs, step=step)
    choices = list(replayed(compared))
    if ways is None and (split := _best_split(choices, chosen, wanted)):
        choices += replayed(splits_between(session.gpu, names, split))
    advice = _advice(trace, session.gpu, chosen, wanted, choices, _with_few_kernels(trace, session, alone))
    way = advice.best.setting
    costs = {} if way.mechanism == "in turn" else costs_us(trace, session, way)
    return replace(advice, assumption=_assumption(advice, session, jobs, step), unequal=unequal, cost_us=costs)


def _compared(
    gpu: GPU, programs: Sequence[str], kinds: Sequence[str] | None, ways: Sequence[Setting] | None
) -> Sequence[Setting]:
    """The settings to compare: those of some kinds, single ones, or all."""
    if kinds is not None and ways is not None:
        raise InputError(None, "settings", "is given with ways", "one of them")
    if kinds is not None:
        if not (isinstance(kinds, list | tuple) and kinds and all(isinstance(one, str) for one in kinds)):
            raise InputError(None, "settings", f"is {quote(kinds)}", "a list such as ['MPS', 'MIG']")
        return settings_by(gpu, programs, kinds)
    if ways is None:
        return every_setting(gpu, programs)
    if not (isinstance(ways, list | tuple) and all(isinstance(one, Setting) for one in ways)):
        raise InputError(None, "ways", f"is {quote(ways)}", "a list of gpusim.choose.settings.Setting")
    if not ways:
        raise InputError(None, "ways", "names no setting", "one or more of gpusim.choose.settings.settings")
    return ways


def _assumption(advice: Advice, session: Session, jobs: int | None, step: Step) -> str:
    """Effect of kernels without counters on an advice, as one line; empty if all were counted."""
    best, objective = advice.best, advice.objective
    spans, winners = [best.makespan_us], dict[Assumption, str]()
    ways = [choice.setting for choice in advice.leading if advice.eligible(choice)]
    assumed = {
        assumption: _Shared(other, session, isolated_us(other, session), advice.free)
        for assumption, other in session.extremes(advice.trace).items()
    }
    replays = _replayed(partial(_cost, objective, assumed), [*product(assumed, ways)], jobs, step)
    for assumption, shared in assumed.items():
        costs = list(islice(replays, len(ways)))
        mine, least = costs[ways.index(best.setting)], min(costs)
        winners[assumption] = str(best.setting if _ties(mine, least) else ways[costs.index(least)])
        spans.append(mine if objective == "makespan" else _choice(shared, best.setting).makespan_us)
    if not winners:
        return ""
    return warning(advice.trace, str(best.setting), (min(spans), max(spans)), winners)


def _free(trace: Trace, targets: Sequence[Target]) -> tuple[str, ...]:
    """The programs whose throughput counts: those without a target, or all; beside requests only those that restart."""
    names = looping(trace) or [program.name for program in trace.programs]
    held = {target.program for target in targets}
    return tuple(name for name in names if name not in held) or tuple(names)


def _together(programs: Sequence[AnyTrace]) -> Trace:
    """One trace of all programs."""
    if isinstance(programs, Trace | str | PathLike):  # one, which may hold several programs
        programs = [programs]
    if not isinstance(programs, list | tuple):
        raise InputError(None, "programs", f"is {quote(programs)}", "a list of traces, or of the paths of their files")
    traces = [trace_of(one) for one in programs]
    if not traces:
        raise InputError(None, "programs", "there is none", "two or more to share a GPU")
    if len(traces) == 1:
        return traces[0]
    return merge(traces)


def _with_few_kernels(trace: Trace, session: Session, alone_us: Mapping[str, float]) -> str:
    """The program whose kernels run for less than `FEW_KERNELS` of its pass; empty: none, several, or arrivals."""
    if with_arrivals(trace):
        return ""
    kernels = session.kernels(trace)
    program_of = trace.program_of()
    us = dict.fromkeys(alone_us, 0.0)
    for stream in trace.streams:
        launched = ((launch, op.id) for op in stream.operations for launch in op.launches())
        us[program_of[stream.name]] += fsum(kernels.model(*one).solo_us for one in launched)
    few = [name for name, whole_us in alone_us.items() if us[name] < FEW_KERNELS * whole_us]
    return few[0] if len(few) == 1 else ""


def _unequal(trace: Trace, alone_us: Mapping[str, float]) -> str:
    """Why programs do not restart, in words: too many kernels in one pass of the longest; empty: they do."""
    if with_arrivals(trace):
        return ""
    if kernels_beside(trace, alone_us) <= MOST_RESTARTED:
        return ""
    passes = passes_beside(alone_us)
    longest, shortest = (pick(passes, key=lambda name: passes[name]) for pick in (min, max))
    return f"{longest} takes as long as {passes[shortest]:,.0f} passes of {shortest}"


# ---- replays


@dataclass(frozen=True)
class _Shared:
    """Shared input of all settings."""

    trace: Trace  # the programs
    session: Session  # where they are replayed
    alone_us: Mapping[str, float]  # isolated time of a pass of each, us
    free: tuple[str, ...]  # the programs whose throughput counts
    restarts: bool = True  # whether programs without arrivals are replayed once more, restarting

    @cached_property
    def asked(self) -> str:
        """A hash of everything else that the results depend on, besides the trace and the session."""
        return fingerprint.data([self.alone_us, self.free, self.restarts, fingerprint.files([VALIDATED])])

    @cached_property
    def seeds(self) -> list[Trace]:
        """The trace with other random arrivals, made once: a session knows a trace by its object."""
        return list(other_seeds(self.trace))


def _replayed(replay: Callable[[T], R], ways: Sequence[T], jobs: int | None, step: Step) -> Iterator[R]:
    """Every setting replayed, on as many cores as there are; the order is that of the settings."""
    for at, found in enumerate(in_order(replay, ways, jobs), 1):
        step(f"{at} of {len(ways)} settings replayed")
        yield found


def _kept(shared: _Shared, way: Setting, what: str, kind: type[R], replay: Callable[[], R]) -> R:
    """A result of replays under a setting, as kept for the user or replayed now."""
    asked = fingerprint.data([what, way, shared.asked])
    return shared.session.kept(shared.trace, way.policy, asked, "gpusim.choose.advise", kind, replay)


def _choice(shared: _Shared, way: Setting) -> SettingResult:
    """Result of a setting, or as kept."""
    return _kept(shared, way, "result", SettingResult, partial(_replayed_choice, shared, way))


def _in_turn(shared: _Shared, way: Setting) -> SettingResult:
    """Result of whole passes, one after the other: nothing of one runs beside the other."""
    trace, session, alone_us = shared.trace, shared.session, shared.alone_us
    once = once_each(trace)
    one_by_one = session.replay(once, way.policy, keep=["placements"])
    given: dict[str, Any] = dict.fromkeys((*SHARING, "throughput"))
    if with_arrivals(trace):
        passes = Session(session.gpu, session.gpu)
        traces = [whole_passes(one, alone_us, session.gpu) for one in (trace, *shared.seeds)]
        runs = [passes.replay(one, way.policy, keep=(), only_disturbed=True) for one in traces]
        given |= served(trace, runs, alone_us, shared.free)
    else:
        makespan_us = fsum(alone_us.values())
        given |= _shares(shared, {name: alone / makespan_us for name, alone in alone_us.items()})
        given["slowdown"] = {name: makespan_us / alone for name, alone in alone_us.items()}
        given |= {"makespan_us": makespan_us, "latency_us": dict.fromkeys(alone_us, makespan_us)}
    return SettingResult(
        setting=way, bound_us=_bound_us(one_by_one), how_wrong=_error_of_passes(shared, once, one_by_one), **given
    )


def _error_of_passes(shared: _Shared, trace: Trace, one_by_one: Result) -> HowWrong:
    """The model error of whole passes: the largest of the programs, whose own streams run beside one another."""
    gpu, source = shared.session.gpu, shared.session.recorded_on
    if all(len(one.streams) == 1 for one in trace.programs):
        return error_band(one_by_one, trace, gpu, source)
    alone = [select(trace, programs=[one.name]) for one in trace.programs]
    ways = [AS_RECORDED if len(one.streams) > 1 else "serial" for one in trace.programs]
    results = [shared.session.replay(one, way, keep=["placements"]) for one, way in zip(alone, ways, strict=True)]
    errors = [error_band(result, one, gpu, source) for result, one in zip(results, alone, strict=True)]
    return max(errors, key=lambda error: inf if error.percent is None else error.percent)


def _replayed_choice(shared: _Shared, way: Setting) -> SettingResult:
    """Result of a setting."""
    if way.mechanism == "in turn":
        return _in_turn(shared, way)
    trace, session, alone_us = way.of(shared.trace), shared.session, shared.alone_us
    once = session.replay(trace, way.policy, keep=["placements"], only_disturbed=True)
    given: dict[str, Any] = {"makespan_us": once.makespan_us, **dict.fromkeys((*SHARING, "throughput"))}
    if with_arrivals(trace):
        runs = [once, *(session.replay(way.of(one), way.policy, keep=(), only_disturbed=True) for one in shared.seeds)]
        given |= served(trace, runs, alone_us, shared.free)
    else:
        slowdown = {run.program: run.slowdown for run in once.program_runs}
        if shared.restarts:
            progress = dict.fromkeys(alone_us, 0.0)
            with suppress(Starved):
                progress = _progress(shared, way)
                given |= _shares(shared, progress)
            slowdown = slowdowns_of(progress)
        given |= {"slowdown": slowdown, "latency_us": {name: alone_us[name] * slowdown[name] for name in slowdown}}
    return SettingResult(
        setting=way,
        bound_us=_bound_us(once),
        how_wrong=error_band(once, trace, session.gpu, session.recorded_on),
        **given,
    )


def _progress(shared: _Shared, way: Setting) -> dict[str, float]:
    """Normalised progress of each program where all start again whenever they end."""
    trace = way.of(shared.trace)
    if way.mechanism == "time slices":
        return progress_in_loops(trace, shared.session, way.policy, shared.alone_us)
    return restarted_progress(trace, shared.session, way.policy, shared.alone_us)


def _shares(shared: _Shared, progress: Mapping[str, float]) -> dict[str, float]:
    """STP, ANTT, fairness and throughput by the normalised progress of each program."""
    return sharing(progress) | {"throughput": fsum(progress[name] for name in shared.free)}


def _cost(objective: Objective, assumed: Mapping[Assumption, _Shared], task: tuple[Assumption, Setting]) -> float:
    """`SettingResult.cost` of a setting under an assumption, or as kept."""
    shared, way = assumed[task[0]], task[1]
    return _kept(shared, way, objective, float, partial(_replayed_cost, objective, shared, way))


def _replayed_cost(objective: Objective, shared: _Shared, way: Setting) -> float:
    """The same, without the replays that it does not need."""
    if way.mechanism == "in turn" or with_arrivals(shared.trace):
        return _choice(shared, way).cost(objective)
    trace, session = way.of(shared.trace), shared.session
    if objective == "makespan":
        return session.makespan_us(trace, way.policy)
    with suppress(Starved):
        found = _shares(shared, _progress(shared, way))
        return found["antt"] if objective == "antt" else -found[objective]
    return inf


def _bound_us(result: Result) -> dict[str, dict[str, float]]:
    """Return, for each program, the time of its kernels by the resource that bound them, the largest first."""
    found: dict[str, dict[str, float]] = {run.program: {} for run in result.program_runs}
    for run in result.kernel_runs:
        mine = found[result.program_of[run.stream]]
        mine[run.bound_by] = mine.get(run.bound_by, 0.0) + run.end_us - run.start_us
    return {name: dict(sorted(of.items(), key=lambda item: (-item[1], item[0]))) for name, of in found.items()}


# ---- the choice


def _ties(cost: float, least: float) -> bool:
    return cost <= least + TIE * abs(least)


def _misses(one: SettingResult, targets: Sequence[Target]) -> float:
    return max(map(one.over, targets), default=1.0)


def _rank(one: SettingResult, objective: Objective, targets: Sequence[Target]) -> tuple[bool, bool, float]:
    """The less, the better: first settings that keep all targets, of these those under which no queue grows."""
    return _misses(one, targets) > 1.0, not one.serves, one.counted(objective)


def _best_split(choices: Sequence[SettingResult], objective: Objective, targets: Sequence[Target]) -> Setting | None:
    """The best SM split of some choices; None: they have none."""
    splits = [one for one in choices if one.setting.parts]
    if not splits:
        return None
    return min(splits, key=lambda one: _rank(one, objective, targets)).setting


def _advice(
    trace: Trace,
    gpu: GPU,
    objective: Objective,
    targets: tuple[Target, ...],
    choices: Sequence[SettingResult],
    first: str,
) -> Advice:
    """The choices in order, and the one to set, where one program may come first in a tie."""
    misses = partial(_misses, targets=targets)

    def effort(one: SettingResult) -> int:
        return EFFORT.index(one.setting.mechanism)

    if any(one.how_wrong.band for one in choices):
        choices = [replace(one, doubted=not (one.how_wrong.band or one.how_wrong.of_kernels)) for one in choices]
    ordered = sorted(choices, key=lambda one: (*_rank(one, objective, targets), effort(one)))
    keeping = [one for one in ordered if misses(one) <= 1.0]
    if not keeping:
        closest = min(ordered, key=misses)
        reached = " and ".join(
            f"{one.program}={one.reached(closest.slowdown, closest.latency_us)}"
            for one in targets
            if closest.over(one) > 1.0
        )
        expected = f"{reached} or more, as {closest.setting} gives"
        raise InputError(None, "targets", f"no setting keeps {' and '.join(map(str, targets))}", expected)
    keeping = [one for one in keeping if one.serves] or keeping
    least = keeping[0].counted(objective)
    tied = [one for one in keeping if _ties(one.counted(objective), least)]
    least_slowed = min(one.mean_slowdown for one in tied)
    candidates = [one for one in tied if one.setting.mechanism != "in turn" or _ties(one.mean_slowdown, least_slowed)]
    best = min(candidates, key=lambda one: (effort(one), one.counted(objective)))
    if best.setting.mechanism == "streams":
        best = next((one for one in tied if [*one.setting.priorities] == [first]), best)
    return Advice(trace, gpu, objective, targets, tuple(ordered), best, first=first)
