"""Metrics against closed forms."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.metrics import latencies_us, metrics, percentile, sharing, utilisation
from gpusim.result import USES, RequestRun, Result, StreamRun, Usage


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
        usage=Usage(1.0, ()),
    )
    return replace(empty, **other)  # type: ignore[arg-type]


def test_two_streams_by_hand() -> None:
    """Progress 1/2 and 1/4: STP 3/4, ANTT (2 + 4)/2, fairness 1/2."""
    found = metrics(result((stream("a", end_us=20.0, solo_us=10.0), stream("b", end_us=40.0, solo_us=10.0))))
    assert found["stp"] == 0.75
    assert found["antt"] == 3.0
    assert found["fairness"] == 0.5
    assert found["makespan_us"] == 40.0
    assert found["progress[a]"] == 0.5
    assert found["progress[b]"] == 0.25


def test_time_counts_from_release() -> None:
    found = sharing(result((stream("a", end_us=130.0, solo_us=10.0, release_us=110.0),)))
    assert found == {"stp": 0.5, "antt": 2.0, "fairness": 1.0}


def test_alone_is_one() -> None:
    assert sharing(result((stream("a", end_us=7.0, solo_us=7.0),))) == {"stp": 1.0, "antt": 1.0, "fairness": 1.0}


def test_stream_without_work_is_left_out() -> None:
    runs = (stream("a", end_us=20.0, solo_us=10.0), stream("idle", end_us=0.0, solo_us=0.0))
    assert sharing(result(runs)) == {"stp": 0.5, "antt": 2.0, "fairness": 1.0}
    assert sharing(result((stream("idle", end_us=5.0, solo_us=0.0),))) == {"stp": 0.0, "antt": 1.0, "fairness": 1.0}


@given(st.lists(st.tuples(st.floats(1.0, 1e6), st.floats(1.0, 1e3)), min_size=1, max_size=6))
def test_bounds(pairs: list[tuple[float, float]]) -> None:
    """No stream runs faster than alone, so STP <= K, ANTT >= 1, fairness in (0, 1]; STP x ANTT >= K (means)."""
    runs = tuple(stream(f"s{i}", solo * stretch, solo) for i, (solo, stretch) in enumerate(pairs))
    found = sharing(result(runs))
    assert 0.0 < found["stp"] <= len(runs) * (1 + 1e-12)
    assert found["antt"] >= 1.0 - 1e-12
    assert 0.0 < found["fairness"] <= 1.0
    assert found["stp"] * found["antt"] >= len(runs) * (1 - 1e-9)


def test_utilisation_is_the_mean_over_sms_and_makespan() -> None:
    """Two SMs, two bins of 5 us, makespan 8 us: shares of a bin are of its 5 us, so the mean is sum x 5 / (2 x 8)."""
    full, idle = (1.0,) * 6, (0.0,) * 6
    part = (0.5, 0.25, 0.0, 0.0, 0.0, 0.6)
    run = result((stream("a", end_us=8.0, solo_us=8.0),), usage=Usage(5.0, ((full, part), (full, idle))))
    found = utilisation(run)
    assert tuple(found) == USES
    assert found["registers"] == pytest.approx(2.5 * 5 / 16)
    assert found["shared_memory"] == pytest.approx(2.25 * 5 / 16)
    assert found["threads"] == pytest.approx(2.0 * 5 / 16)
    assert found["dram"] == pytest.approx(2.6 * 5 / 16)
    assert metrics(run)["utilisation[dram]"] == found["dram"]


def test_nothing_used_without_time() -> None:
    assert utilisation(result(())) == dict.fromkeys(USES, 0.0)


def test_latencies_of_streams_with_arrivals() -> None:
    """Latencies 3, 1, 2 of one stream; one late request of another; none of the stream that just runs."""
    requests = (
        RequestRun("web", 0, 0.0, 0.0, 3.0),
        RequestRun("web", 1, 4.0, 4.0, 5.0),
        RequestRun("web", 2, 4.5, 5.0, 6.5),
        RequestRun("late", 0, 10.0, 10.0, 14.0),
        RequestRun("plain", 0, 0.0, 0.0, 9.0),
    )
    streams = (stream("web", 6.5, 1.0), stream("late", 14.0, 4.0, 10.0), stream("plain", 9.0, 9.0))
    run = result(streams, request_runs=requests)
    assert latencies_us(run) == {"web": [1.0, 2.0, 3.0], "late": [4.0]}
    found = metrics(run)
    assert found["latency_p50_us[web]"] == 2.0
    assert found["latency_p95_us[web]"] == found["latency_p99_us[web]"] == 3.0
    assert found["latency_p50_us[late]"] == 4.0
    assert not any("plain" in name for name in found if name.startswith("latency"))


def test_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 95, 99, 100)] == [50.0, 95.0, 99.0, 100.0]
    assert percentile([5.0], 1) == 5.0


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.integers(1, 100))
def test_percentile_by_its_definition(values: list[float], percent: int) -> None:
    ascending = sorted(values)
    found = percentile(ascending, percent)
    enough = [v for v in ascending if 100 * sum(other <= v for other in ascending) >= percent * len(ascending)]
    assert found == min(enough)
