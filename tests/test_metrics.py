"""Metrics against closed forms."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import used

from gpusim.results.metrics import (
    geometric_mean,
    largest_slowdown,
    latencies_us,
    metrics,
    percentile,
    sharing,
    times_as_long,
    utilisation,
)
from gpusim.results.result import Result
from gpusim.results.runs import USES, ProgramRun, RequestRun, StreamRun


def stream(name: str, end_us: float, solo_us: float, release_us: float = 0.0) -> StreamRun:
    return StreamRun(name, 0, release_us, release_us, end_us, solo_us)


def result(streams: tuple[StreamRun, ...], **other: object) -> Result:
    empty = Result(
        trace="t",
        gpu="g",
        policy="p",
        makespan_us=max((run.end_us for run in streams), default=0.0),
        kernel_runs=(),
        operation_runs=(),
        request_runs=(),
        stream_runs=streams,
        placements=(),
        usage=used(1.0, ()),
        program_runs=tuple(ProgramRun.of((run,), run.stream, run.priority, run.solo_us) for run in streams),
    )
    return replace(empty, **other)  # type: ignore[arg-type]


def test_streams_that_run_once_by_hand() -> None:
    """Slowdowns 2 and 4, of which the largest is 4; neither STP nor speedup without what they take."""
    once = result((stream("a", end_us=20.0, solo_us=10.0), stream("b", end_us=40.0, solo_us=10.0)))
    found = metrics(once)
    assert list(found)[:3] == ["makespan_us", "slowdown[a]", "slowdown[b]"]
    assert (found["makespan_us"], found["slowdown[a]"], found["slowdown[b]"]) == (40.0, 2.0, 4.0)
    assert largest_slowdown(once) == 4.0
    assert not {"stp", "antt", "fairness", "speedup"} & set(found)
    assert metrics(replace(once, serial_us=60.0))["speedup"] == 1.5


def test_slowdown_counts_from_release() -> None:
    assert stream("a", end_us=130.0, solo_us=10.0, release_us=110.0).slowdown == 2.0
    assert stream("a", end_us=7.0, solo_us=7.0).slowdown == 1.0


def test_nothing_slows_down_what_takes_no_time() -> None:
    assert stream("idle", end_us=5.0, solo_us=0.0).slowdown == 1.0
    assert largest_slowdown(result(())) == 1.0


def test_streams_that_restart_by_hand() -> None:
    """In 40 us a runs 2 passes of 10, b 1 of 10: progress 1/2 and 1/4, STP 3/4, ANTT (2 + 4)/2, fairness 1/2."""
    runs = (stream("a", end_us=20.0, solo_us=10.0), stream("b", end_us=40.0, solo_us=10.0))
    found = metrics(result(runs, passes={"a": 2.0, "b": 1.0}))
    assert list(found)[:6] == ["makespan_us", "stp", "antt", "fairness", "progress[a]", "progress[b]"]
    assert (found["stp"], found["antt"], found["fairness"]) == (0.75, 3.0, 0.5)
    assert (found["progress[a]"], found["progress[b]"]) == (0.5, 0.25)


def test_alone_is_one() -> None:
    assert sharing({"a": 1.0}) == {"stp": 1.0, "antt": 1.0, "fairness": 1.0}


def test_who_makes_no_progress_has_no_fairness() -> None:
    assert sharing({"a": 1e-4})["antt"] == pytest.approx(1e4)
    assert sharing({"a": 0.5, "b": 0.0}) == {"stp": 0.5, "antt": inf, "fairness": 0.0}


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=6))
def test_bounds(shares: list[float]) -> None:
    """No stream runs faster than alone, so STP <= K, ANTT >= 1, fairness in (0, 1]; STP x ANTT >= K (means)."""
    found = sharing({f"s{i}": share for i, share in enumerate(shares)})
    assert 0.0 < found["stp"] <= len(shares) * (1 + 1e-12)
    assert found["antt"] >= 1.0 - 1e-12
    assert 0.0 < found["fairness"] <= 1.0
    assert found["stp"] * found["antt"] >= len(shares) * (1 - 1e-9)


def test_speedup_of_what_takes_no_time_is_1() -> None:
    assert times_as_long(30.0, 20.0) == 1.5
    assert times_as_long(30.0, 0.0) == 1.0
    assert times_as_long(3e-4, 1e-4) == pytest.approx(3.0)


def test_geometric_mean() -> None:
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    assert geometric_mean([5.0]) == pytest.approx(5.0)
    assert geometric_mean([0.0, 8.0]) == 0.0


def test_utilisation_is_the_mean_over_sms_and_makespan() -> None:
    """Two SMs, two bins of 5 us, makespan 8 us: shares of a bin are of its 5 us, so the mean is sum x 5 / (2 x 8)."""
    full, idle = (1.0,) * 7, (0.0,) * 7
    part = (0.5, 0.25, 0.0, 0.0, 0.0, 0.6, 0.0)
    run = result((stream("a", end_us=8.0, solo_us=8.0),), usage=used(5.0, ((full, part), (full, idle))))
    found = utilisation(run)
    assert tuple(found) == USES
    assert found["registers"] == pytest.approx(2.5 * 5 / 16)
    assert found["shared_memory"] == pytest.approx(2.25 * 5 / 16)
    assert found["threads"] == pytest.approx(2.0 * 5 / 16)
    assert found["dram"] == pytest.approx(2.6 * 5 / 16)
    assert metrics(run)["utilisation[dram]"] == found["dram"]


def test_nothing_used_without_time() -> None:
    assert utilisation(result(())) == dict.fromkeys(USES, 0.0)
    short = result((stream("a", end_us=1e-4, solo_us=1e-4),), usage=used(1e-4, (((1.0,) * 7,),)))
    assert utilisation(short) == dict.fromkeys(USES, 1.0)
    assert utilisation(result((), usage=used(1.0, (((1.0,) * 7,),)))) == dict.fromkeys(USES, 0.0)


def test_latencies_of_streams_with_arrivals() -> None:
    """Latencies 3, 1, 2 of one stream; one late request of another; none of the stream that just runs."""
    requests = (
        RequestRun("web", 0, 0.0, 0.0, 3.0),
        RequestRun("web", 1, 4.0, 4.0, 5.0),
        RequestRun("web", 2, 4.5, 5.0, 6.5),
        RequestRun("late", 0, 0.5, 10.0, 14.0),
        RequestRun("plain", 0, 0.0, 0.0, 9.0),
    )
    streams = (stream("web", 6.5, 1.0), stream("late", 14.0, 4.0, 0.5), stream("plain", 9.0, 9.0))
    run = result(streams, request_runs=requests)
    assert latencies_us(run) == {"web": [1.0, 2.0, 3.0], "late": [13.5]}
    found = metrics(run)
    assert found["latency_p50_us[web]"] == 2.0
    assert found["latency_p95_us[web]"] == found["latency_p99_us[web]"] == 3.0
    assert found["latency_p50_us[late]"] == 13.5
    assert not any("plain" in name for name in found if name.startswith("latency"))
    burst = (RequestRun("plain", 0, 0.0, 0.0, 9.0), RequestRun("plain", 1, 0.0, 9.0, 18.0))
    assert latencies_us(result((streams[2],), request_runs=burst)) == {"plain": [9.0, 18.0]}
    assert latencies_us(replace(run, passes={"web": 3.0, "late": 1.0, "plain": 1.0})) == {}  # passes, no arrivals


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 95, 99, 100)] == [50.0, 95.0, 99.0, 100.0]
    assert percentile([5.0], 1) == 5.0
    assert percentile([float(value) for value in range(1, 1001)], 99) == 990.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(1, 100))
def test_percentile_by_its_definition(values: list[float], percent: int) -> None:
    ascending = sorted(values)
    found = percentile(ascending, percent)
    enough = [v for v in ascending if 100 * sum(other <= v for other in ascending) >= percent * len(ascending)]
    assert found == min(enough)
