"""Programs whose requests arrive: the load that the GPU can serve, latencies, and programs beside them.

A program without arrivals beside others with arrivals restarts until the last request has arrived. Its normalised
progress is that of its passes that end by then. Between requests that are far apart its passes are counted, not
replayed. It does not restart where a replay would still take minutes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil, fsum, inf, sqrt
from statistics import fmean, stdev
from typing import Any

from gpusim.choose.targets import passes_us
from gpusim.hardware.gpu import GPU
from gpusim.policies.time_slicing import SLICE_US
from gpusim.results.metrics import (
    LATENCY_PERCENTILES,
    TARGET_PERCENTILE,
    normalised_progress,
    percentile,
    requests_us,
)
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.edit import with_settings_of
from gpusim.trace.fields import LEAST_DURATION_US, MAX_REQUESTS
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Arrivals, Kernel, LoopArrivals, PoissonArrivals, Stream, TimesArrivals
from gpusim.trace.programs import Program

ROUNDS = 2  # passes of each program that restarts, at least: in the first, programs start together [D]
MOST_TWICE = 3_000  # kernels in one pass of the longest program: of more, each program ends once, which takes less time
SLICES = 8  # for which each program has work, where its progress on time slices is judged
MOST_BESIDE = 50_000  # kernels of programs that restart beside requests, in one replay: more take many seconds
SLOWED = 2.0  # times as long as in isolation, about, that requests take beside others
LATE = 1.5  # times the expected time, by which all random requests have arrived
GROWS = 2.0  # times the mean latency of the first third, from which on that of the last third says: the queue grows [D]
SEEDS = 3  # of random arrivals that a setting is replayed with
SEED_STEP = 1000  # between two of them: more than there are programs
T_95 = 4.303  # Student's t, two-sided 95 %, for the mean over `SEEDS`


def with_arrivals(trace: Trace) -> bool:
    """Whether requests of some program arrive."""
    return any(one.arrivals is not None for one in trace.programs)


def arriving(trace: Trace) -> list[str]:
    """The programs whose requests arrive at times of their own."""
    return [one.name for one in trace.programs if isinstance(one.arrivals, PoissonArrivals | TimesArrivals)]


def looping(trace: Trace) -> list[str]:
    """The programs whose next request arrives when the one before has ended."""
    return [one.name for one in trace.programs if isinstance(one.arrivals, LoopArrivals)]


def once_each(trace: Trace) -> Trace:
    """The trace with one pass of each program."""
    once = {one.name: {"arrivals": None} for one in trace.programs if one.arrivals is not None}
    return with_settings_of(trace, once, "programs") if once else trace


def isolated_us(trace: Trace, session: Session) -> dict[str, float]:
    """Isolated time of one pass of each program."""
    return session.programs_us(once_each(trace))


def whole_passes(trace: Trace, alone_us: Mapping[str, float], gpu: GPU) -> Trace:
    """A trace whose programs have one operation each, which takes as long as an isolated pass.

    Under `serial` no pass begins before the one before has ended, and they begin in the order of their release.
    """
    streams = [
        Stream(name=one.name, arrivals=one.arrivals, operations=(_whole_pass(one, alone_us[one.name], gpu),))
        for one in trace.programs
    ]
    return Trace(version=1, name=trace.name, device=gpu.name, streams=tuple(streams))


def _whole_pass(program: Program, us: float, gpu: GPU) -> Kernel:
    gap_us = 0.0 if program.arrivals is None else gpu.model.kernel_gap_us  # which replays add to kernels with arrivals
    duration_us = max(us - gap_us, LEAST_DURATION_US)
    launch = KernelLaunch(
        name=program.name, grid=(1, 1, 1), block=(32, 1, 1), registers_per_thread=16, duration_us=duration_us
    )
    return Kernel(id=program.name, kernel=launch)


def launches_of(trace: Trace) -> dict[str, int]:
    """Kernels of one pass of each program."""
    return {name: len(launches) for name, launches in trace.launches_by_program().items()}


def restarting(trace: Trace, alone_us: Mapping[str, float]) -> Trace:
    """The trace with programs without arrivals restarting until the last request arrives; itself where they do not."""
    last_us = max((_arrived_us(one.arrivals) for one in trace.programs), default=0.0)
    passes = {
        one.name: 1 + ceil(last_us / alone_us[one.name])
        for one in trace.programs
        if one.arrivals is None and alone_us[one.name] > 0.0
    }
    if (
        not passes
        or max(passes.values()) > MAX_REQUESTS
        or _kernels_beside_requests(trace, passes, alone_us) > MOST_BESIDE
    ):
        return trace
    loops = {name: {"arrivals": LoopArrivals(count=count)} for name, count in passes.items()}
    return with_settings_of(trace, loops, "programs")


def _kernels_beside_requests(trace: Trace, passes: Mapping[str, int], alone_us: Mapping[str, float]) -> float:
    """Kernels of programs that restart ``passes`` times at most, in those passes that a replay would not only count.

    Only the passes of one program of one stream are counted, and of these those that are not beside requests.
    """
    kernels = launches_of(trace)
    loops = [one for one in trace.programs if one.name in passes or isinstance(one.arrivals, LoopArrivals)]
    if len(loops) > 1 or len(loops[0].streams) > 1:
        return fsum(kernels[name] * most for name, most in passes.items())
    own_us = alone_us[loops[0].name]
    requests = [(one.arrivals.requests, alone_us[one.name]) for one in trace.programs if one.arrivals is not None]
    beside = fsum(count * (SLOWED * us / own_us + 1) for count, us in requests)
    return fsum(kernels[name] * min(most, beside) for name, most in passes.items())


def slowdowns_of(progress: Mapping[str, float]) -> dict[str, float]:
    """Slowdown of each program that restarts, by its normalised progress; infinite where it makes none."""
    return {name: 1.0 / share if share > 0.0 else inf for name, share in progress.items()}


def passes_beside(alone_us: Mapping[str, float]) -> dict[str, float]:
    """Isolated passes of each program in the time of one of the longest."""
    longest_us = max(alone_us.values())
    return {name: longest_us / us if us > 0.0 else 1.0 for name, us in alone_us.items()}


def kernels_beside(trace: Trace, alone_us: Mapping[str, float]) -> float:
    """Kernels of all programs in the time of one isolated pass of the longest."""
    kernels, passes = launches_of(trace), passes_beside(alone_us)
    return fsum(kernels[name] * passes[name] for name in passes)


def restarted_progress(trace: Trace, session: Session, policy: str, alone_us: Mapping[str, float]) -> dict[str, float]:
    """Normalised progress of programs that start again whenever they end, until each has ended `ROUNDS` times."""
    rounds = ROUNDS if kernels_beside(trace, alone_us) <= MOST_TWICE else 1
    return normalised_progress(session.replay(trace, policy, restart=rounds, keep=()))


def progress_in_loops(trace: Trace, session: Session, policy: str, alone_us: Mapping[str, float]) -> dict[str, float]:
    """Normalised progress of programs that start again whenever they end, on time slices of the GPU.

    A replay with restarts ends when each program has ended, which may be in its first slice. Here each has work for
    `SLICES` of them, and counts until the first has no more. A pass that is under way then counts by its time.
    Programs with longer passes, or too many kernels for that, restart as elsewhere.
    """
    counts = {name: ceil(SLICES * SLICE_US / us) for name, us in alone_us.items() if us > 0.0}
    kernels = launches_of(trace)
    if min(counts.values(), default=1) == 1 or sum(kernels[name] * counts[name] for name in counts) > MOST_BESIDE:
        return restarted_progress(trace, session, policy, alone_us)
    loops = {name: {"arrivals": LoopArrivals(count=count)} for name, count in counts.items()}
    result = session.replay(with_settings_of(trace, loops, "programs"), policy, keep=())
    until_us = min(run.end_us for run in result.program_runs)
    passes = {
        name: fsum(min(1.0, (until_us - from_us) / (to_us - from_us)) for from_us, to_us in of if from_us < until_us)
        for name, of in requests_us(result).items()
    }
    return {name: passes[name] * us / until_us for name, us in alone_us.items()}


def _arrived_us(arrivals: Arrivals | None) -> float:
    """When all requests have arrived; 0 where one waits for the other, or there is one."""
    if isinstance(arrivals, PoissonArrivals):
        return LATE * arrivals.count / arrivals.rate_per_s * 1e6
    return arrivals.times_us[-1] if isinstance(arrivals, TimesArrivals) else 0.0


def not_served(trace: Trace, alone_us: Mapping[str, float]) -> Iterator[str]:
    """Each program whose requests come faster than it alone on the whole GPU can serve, in words."""
    for program in trace.programs:
        interval_us = _interval_us(program.arrivals)
        if interval_us < alone_us[program.name]:
            yield (
                f"requests of {program.name} come every {interval_us:g} µs and take {alone_us[program.name]:g} µs "
                "in isolation: the queue grows"
            )


def growing_queues(trace: Trace, session: Session) -> list[str]:
    """Sentences on programs whose requests come faster than the GPU can serve, so that latency has no steady value."""
    return list(not_served(trace, isolated_us(trace, session))) if with_arrivals(trace) else []


def running_once(trace: Trace) -> list[str]:
    """Notes on programs without arrivals beside programs with arrivals: a replay runs them once."""
    if not with_arrivals(trace):
        return []
    names = (one.name for one in trace.programs if one.arrivals is None)
    return [f"{name} has no arrivals and runs once, from the start; gpusim advise lets it restart" for name in names]


def growing_together(trace: Trace, result: Result) -> Iterator[str]:
    """Sentences on programs whose requests wait longer and longer beside the other programs of a replay."""
    requests = requests_us(result)
    for name in arriving(trace):
        yield from growing(name, _growth(requests[name]))


def growing(program: str, growth: float) -> list[str]:
    """Sentence on a program whose queue grows, from `GROWS` on; ``growth``: as `SettingResult.growth` of advise."""
    if growth < GROWS:
        return []
    return [
        f"{program}: its last requests take {growth:.1f} times as long as its first: in this way the programs together "
        "ask more than the GPU serves, the queue grows, and latencies have no steady value"
    ]


def _interval_us(arrivals: Arrivals | None) -> float:
    """Mean time between two requests; infinite where one waits for the other, or there is one."""
    if isinstance(arrivals, PoissonArrivals):
        return 1e6 / arrivals.rate_per_s
    if isinstance(arrivals, TimesArrivals) and len(arrivals.times_us) > 1:
        return (arrivals.times_us[-1] - arrivals.times_us[0]) / (len(arrivals.times_us) - 1)
    return inf


# ---- what a replay of requests gives


def _at_random(trace: Trace) -> dict[str, PoissonArrivals]:
    """The random arrivals, by program."""
    return {one.name: one.arrivals for one in trace.programs if isinstance(one.arrivals, PoissonArrivals)}


def other_seeds(trace: Trace) -> Iterator[Trace]:
    """The trace with other arrivals of the same rates; none where no arrivals are random."""
    random = _at_random(trace)
    for n in range(1, SEEDS if random else 1):
        others = {
            name: {"arrivals": of.model_copy(update={"seed": of.seed + n * SEED_STEP})} for name, of in random.items()
        }
        yield with_settings_of(trace, others, "arrivals")


def intervals_us(others: Sequence[Trace], session: Session, policy: str, result: Result) -> dict[str, float]:
    """Half of the 95 % confidence interval of the 95th percentile of latency, of each program with random arrivals.

    It is of the mean over ``result`` and replays of the same trace with other arrivals.
    """
    if not others:
        return {}
    runs = [passes_us(one) for one in (result, *(session.replay(other, policy, keep=()) for other in others))]
    return {name: _half_width(us) for name, us in _at_target(runs, _at_random(others[0])).items()}


def _at_target(runs: Sequence[Mapping[str, Sequence[float]]], programs: Iterable[str]) -> dict[str, list[float]]:
    """The percentile that targets are of, in each of some replays, by program; ``runs``: of each replay `passes_us`."""
    return {name: [percentile(of[name], TARGET_PERCENTILE) for of in runs] for name in programs}


def served(trace: Trace, runs: Sequence[Result], alone_us: Mapping[str, float], free: Sequence[str]) -> dict[str, Any]:
    """What `gpusim.choose.advise.SettingResult` holds of requests: means over some replays.

    Each replay has arrivals of its own. ``free`` are the programs whose throughput counts.
    """
    of_requests, restarted = arriving(trace), looping(trace)
    others = [name for name in alone_us if name not in restarted]
    requests = [requests_us(one) for one in runs]
    latencies = [passes_us(one) for one in runs]
    at_target = _at_target(latencies, others)
    slowdown = {name: fmean(fmean(of[name]) for of in latencies) / alone_us[name] for name in others}
    last_us = [max((of[name][-1][0] for name in of_requests), default=inf) for of in requests]  # when all have arrived
    progress = {
        name: fmean(_progress(of[name], alone_us[name], us) for of, us in zip(requests, last_us, strict=True))
        for name in restarted
    }
    slowdown |= {name: 1.0 / share for name, share in progress.items()}
    return {
        "makespan_us": fmean(max(of[name][-1][1] for name in others or restarted) for of in requests),
        "antt": fmean(slowdown.values()),
        "slowdown": {name: slowdown[name] for name in alone_us},
        "latency_us": {
            name: fmean(at_target[name]) if name in at_target else alone_us[name] * slowdown[name] for name in alone_us
        },
        "percentiles_us": {
            name: {p: fmean(percentile(of[name], p) for of in latencies) for p in LATENCY_PERCENTILES}
            for name in of_requests
        },
        "interval_us": {name: _half_width(at_target[name]) for name in of_requests} if len(runs) > 1 else {},
        "growth": {name: fmean(_growth(of[name]) for of in requests) for name in of_requests},
        "throughput": fsum(progress[name] for name in free) if progress else None,
    }


Requests = Sequence[tuple[float, float]]  # release and end of each


def _progress(passes: Requests, alone_us: float, until_us: float) -> float:
    """Normalised progress by the passes that end by a time; by the first where none does."""
    ends = [end for _, end in passes if end <= until_us] or [passes[0][1]]
    return len(ends) * alone_us / ends[-1]


def _growth(requests: Requests) -> float:
    """Mean latency of the last third of a program's requests over that of the first; 1 of fewer than three."""
    latencies = [end - release for release, end in requests]
    third = len(latencies) // 3
    return fmean(latencies[-third:]) / fmean(latencies[:third]) if third else 1.0


def _half_width(values: Sequence[float]) -> float:
    """Half of the 95 % confidence interval of a mean over `SEEDS`."""
    return T_95 * stdev(values) / sqrt(len(values))
