"""STP, ANTT, fairness, utilisation and latency of one replay, from its result alone.

With NP the normalised progress of a stream, its makespan alone on the whole GPU over its time from release to end
(waiting counts), for K streams:

    STP = sum of NP (at most K), ANTT = mean of 1 / NP (1 at best), fairness = smallest NP / largest NP (0 to 1)

STP and ANTT are Eyerman and Eeckhout's (IEEE Micro 2008) [V]; fairness is from memory [M]. A stream that takes no time
alone has no progress to normalise and is left out of the three.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, log

from gpusim.result import USES, Result

LATENCY_PERCENTILES = (50, 95, 99)
BASELINE = "serial"  # the policy that speedups are over


def metrics(result: Result) -> dict[str, float | None]:
    """All figures of one replay.

    Args:
        result: of `gpusim.replay`.

    Returns:
        makespan_us; stp, antt and fairness; ``progress[STREAM]``, the normalised progress of each stream;
        ``utilisation[USE]`` for each of `gpusim.result.USES`, as `utilisation`; and for each stream with arrivals
        ``latency_p50_us[STREAM]``, ``latency_p95_us[STREAM]`` and ``latency_p99_us[STREAM]``, as `latencies_us`
        and `percentile`.
    """
    found: dict[str, float | None] = {"makespan_us": result.makespan_us, **sharing(result)}
    found |= {f"progress[{run.stream}]": run.progress for run in result.stream_runs}
    found |= {f"utilisation[{use}]": share for use, share in utilisation(result).items()}
    for stream, latencies in latencies_us(result).items():
        for percent in LATENCY_PERCENTILES:
            found[f"latency_p{percent}_us[{stream}]"] = percentile(latencies, percent)
    return found


def sharing(result: Result) -> dict[str, float]:
    """Returns stp, antt and fairness; 0, 1 and 1 where no stream takes any time alone."""
    progress = [run.progress for run in result.stream_runs if run.solo_us > 0.0]
    if not progress:
        return {"stp": 0.0, "antt": 1.0, "fairness": 1.0}
    return {
        "stp": sum(progress),
        "antt": sum(1.0 / share for share in progress) / len(progress),
        "fairness": min(progress) / max(progress),
    }


def speedup(baseline_us: float, makespan_us: float) -> float:
    """Makespan of the baseline over another; 1 where that takes no time."""
    return baseline_us / makespan_us if makespan_us > 0.0 else 1.0


def geometric_mean(values: Sequence[float]) -> float:
    """Of values of at least 0; 0 where one of them is."""
    if min(values) <= 0.0:
        return 0.0
    return exp(sum(log(value) for value in values) / len(values))


def utilisation(result: Result) -> dict[str, float | None]:
    """How much of each of `USES` was used (0 to 1): mean over all SMs and the whole makespan; None: unknown."""
    shares = result.usage.shares
    if result.makespan_us <= 0.0 or not shares:
        return dict.fromkeys(USES, 0.0)
    scale = result.usage.bin_us / (len(shares) * result.makespan_us)
    unknown = result.usage.unknown
    totals = zip(USES, result.usage.totals(), strict=True)
    return {use: None if use in unknown else total * scale for use, total in totals}


def latencies_us(result: Result) -> dict[str, list[float]]:
    """Time from release to end of every request, ascending, for each stream with arrivals.

    A stream counts as one with arrivals when it has several requests, or one that is released after 0. A request
    of a loop is released when the one before it ends.
    """
    found: dict[str, list[float]] = {run.stream: [] for run in result.stream_runs}
    arrives = dict.fromkeys(found, False)
    for request in result.request_runs:
        found[request.stream].append(request.end_us - request.release_us)
        arrives[request.stream] |= request.request > 0 or request.release_us > 0.0
    return {stream: sorted(latencies) for stream, latencies in found.items() if arrives[stream]}


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest of some values that at least ``percent`` of them do not exceed (nearest rank).

    Args:
        ascending: at least one value, in ascending order.
        percent: above 0 and at most 100.
    """
    return ascending[max(0, ceil(len(ascending) * percent / 100.0) - 1)]
