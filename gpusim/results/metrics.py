"""Speedup, slowdown, STP, ANTT, fairness, utilisation and latency of one replay, from its result alone.

Programs that run once have a makespan and its speedup over serial. Each program and stream has a slowdown: its time
from release to end, waiting included, over its isolated makespan.

Programs that restart share the GPU all the time. Eyerman and Eeckhout (IEEE Micro 2008) define STP and ANTT for these
[V]. The normalised progress NP of a program is its passes times its isolated makespan over the elapsed time. For K
programs:

    STP = sum of NP (at most K), ANTT = mean of 1 / NP (1 at best), fairness = smallest NP / largest NP (0 to 1)

Time-sharing has STP 1. Fairness as smallest over largest progress is from memory [M]. Programs that run once have none
of the three, because waiting for a program that has ended would count as sharing.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from math import ceil, fsum, inf
from statistics import fmean

from gpusim.results.runs import USES, Replayed

LATENCY_PERCENTILES = (50, 95, 99)
WARM_UP = 0.1  # of a program's requests, the first: they meet an empty GPU and are left out of percentiles [D]
TARGET_PERCENTILE = 95  # of latencies of requests: what settings are compared by, and what a target is of
BASELINE = "serial"  # the policy that speedups are over
DEFAULT_POLICIES = (BASELINE, "leftover", "inter-sm", "even", "warped-slicer")  # compared where none is named
SHARING = ("stp", "antt", "fairness")


def metrics(result: Replayed) -> dict[str, float | None]:
    """All figures of one replay.

    Returns:
        makespan_us; ``utilisation[USE]`` for each of `gpusim.results.runs.USES`, as `utilisation`; for each program
        with arrivals ``latency_p50_us[PROGRAM]``, ``latency_p95_us[PROGRAM]`` and ``latency_p99_us[PROGRAM]``, as
        `latency_percentiles_us`. Of programs that run once: speedup over serial, where the result can
        tell, ``slowdown[STREAM]``, and where a program is more than one stream of its name
        ``program_slowdown[PROGRAM]``. Of programs that restart: stp, antt and fairness, and ``progress[PROGRAM]``,
        as `normalised_progress`.
    """
    found: dict[str, float | None] = {"makespan_us": result.makespan_us}
    if result.passes is not None:
        progress = normalised_progress(result)
        found |= sharing(progress)
        found |= {f"progress[{program}]": share for program, share in progress.items()}
    else:
        if result.serial_us is not None:
            found["speedup"] = times_as_long(result.serial_us, result.makespan_us)
        found |= {f"slowdown[{run.stream}]": run.slowdown for run in result.stream_runs}
        if result.has_programs:
            found |= {f"program_slowdown[{run.program}]": run.slowdown for run in result.program_runs}
    found |= {f"utilisation[{use}]": share for use, share in utilisation(result).items()}
    for program, latencies in latency_percentiles_us(result).items():
        found |= {f"latency_p{percent}_us[{program}]": us for percent, us in latencies.items()}
    return found


def normalised_progress(result: Replayed) -> dict[str, float]:
    """Return for each restarting program its passes times its isolated makespan, over the elapsed time."""
    assert result.passes is not None, "programs that ran once"
    return {run.program: result.passes[run.program] * run.solo_us / result.makespan_us for run in result.program_runs}


def sharing(progress: Mapping[str, float]) -> dict[str, float]:
    """STP, ANTT and fairness (`SHARING`) of programs that all keep running, by the normalised progress of each.

    1 is as if it had the GPU to itself, and at least one is above 0. One of 0 makes ANTT infinite and fairness 0.
    """
    shares = list(progress.values())
    return {
        "stp": fsum(shares),
        "antt": fmean(1.0 / share if share > 0.0 else inf for share in shares),
        "fairness": min(shares) / max(shares),
    }


def largest_slowdown(result: Replayed) -> float:
    """Return the slowdown of the program that is slowed most; 1 without programs."""
    return max((run.slowdown for run in result.program_runs), default=1.0)


def times_as_long(us: float, as_us: float) -> float:
    """One time over another, which is a speedup or a slowdown; 1 where the other is 0."""
    return us / as_us if as_us > 0.0 else 1.0


def geometric_mean(values: Sequence[float]) -> float:
    """Of values of at least 0; 0 where one of them is."""
    return 0.0 if min(values) <= 0.0 else statistics.geometric_mean(values)


def undominated(costs: Sequence[Sequence[float]], close: float = 0.0) -> list[bool]:
    """Which of some rows of costs are Pareto-optimal: no other row has less of one and no more of any.

    Costs that differ by no more than ``close`` are the same.
    """

    def beats(other: Sequence[float], mine: Sequence[float]) -> bool:
        pairs = list(zip(other, mine, strict=True))
        return all(a <= b + close for a, b in pairs) and any(a < b - close for a, b in pairs)

    return [not any(beats(other, mine) for other in costs) for mine in costs]


def utilisation(result: Replayed) -> dict[str, float | None]:
    """Return the utilisation of each of `USES` (0 to 1), mean over all SMs and the makespan; None: unknown."""
    sms = result.usage.sms
    if result.makespan_us <= 0.0 or not sms:
        return dict.fromkeys(USES, 0.0)
    scale = result.usage.bin_us / (sms * result.makespan_us)
    unknown = result.usage.unknown
    totals = zip(USES, result.usage.totals(), strict=True)
    return {use: None if use in unknown else total * scale for use, total in totals}


def requests_us(result: Replayed) -> dict[str, list[tuple[float, float]]]:
    """Times of release and end of every request of each program, in the order of the requests.

    A request of a loop is released when the one before it ends; it has ended when all streams of the program have ended
    it.
    """
    found: dict[str, dict[int, tuple[float, float]]] = {run.program: {} for run in result.program_runs}
    for run in result.request_runs:
        of = found[result.program_of[run.stream]]
        release_us, end_us = of.get(run.request, (run.release_us, run.end_us))
        of[run.request] = min(release_us, run.release_us), max(end_us, run.end_us)
    return {program: [of[request] for request in sorted(of)] for program, of in found.items()}


def latencies_us(result: Replayed, warm_up: float = 0.0) -> dict[str, list[float]]:
    """Time from release to end of every request, ascending, for each program with arrivals.

    A program counts as one with arrivals when it has several requests, or one that is released after 0. Programs that
    restart have no arrivals. ``warm_up`` is the share of each program's requests, the first, that are left out: they
    met an empty GPU.
    """
    if result.passes is not None:
        return {}
    return {
        program: sorted(end - release for release, end in requests[int(warm_up * len(requests)) :])
        for program, requests in requests_us(result).items()
        if len(requests) > 1 or any(release for release, _ in requests)
    }


def latency_percentiles_us(result: Replayed) -> dict[str, dict[int, float]]:
    """`LATENCY_PERCENTILES` of `latencies_us` by program, each by its percent; the first `WARM_UP` is left out."""
    return {
        program: {percent: percentile(of, percent) for percent in LATENCY_PERCENTILES}
        for program, of in latencies_us(result, WARM_UP).items()
    }


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest of some ascending values that at least ``percent`` of them do not exceed (nearest rank)."""
    return ascending[max(0, ceil(len(ascending) * percent / 100.0) - 1)]
