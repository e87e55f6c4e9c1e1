"""How fast the engine is, against what it must reach on two cores.

pytest -m benchmark tests/benchmarks/test_speed.py

The same cases as `gpusim bench`, which prints them all, each in a process of its own.
"""

from __future__ import annotations

from time import perf_counter

import pytest
from block_processes import slow_sms
from pytest_benchmark.fixture import BenchmarkFixture

from gpusim.lab import bench
from gpusim.lab.bench import Measurement
from gpusim.session import Session

MOST_MIB = 1024


def one(group: str, case: str) -> Measurement:
    return next(found for found in bench.measure([group]) if found.case == case)


@pytest.mark.parametrize("name", [path.name for path in bench.shipped()])
def test_replay_of_a_shipped_trace(benchmark: BenchmarkFixture, name: str) -> None:
    trace = bench.recorded(name)
    session = Session(trace.device)
    session.isolated_us(trace)
    benchmark(session.replay, trace, "leftover", keep=["placements"])
    assert benchmark.stats.stats.min < 0.3


def test_a_grid_a_hundred_times_larger_costs_at_most_twice_as_much() -> None:
    found = {m.case: m for m in bench.measure(["grid"])}
    assert found["x100"].replay_s <= 2 * found["x1"].replay_s
    assert found["x1000"].replay_s <= 2 * found["x1"].replay_s


@pytest.mark.parametrize("group", ["streams", "SMs"])
def test_growth_in_streams_and_sms(group: str) -> None:
    found = list(bench.measure([group]))
    assert max(m.replay_s for m in found) < 2.0
    assert max(m.peak_mib for m in found) < MOST_MIB


def test_a_hundred_thousand_kernels() -> None:
    found = one("kernels", "100,000")
    assert found.replay_s < 60.0
    assert found.peak_mib < MOST_MIB


def test_a_thousand_pairs() -> None:
    (found,) = bench.measure(["pairs"])
    assert found.replay_s < 60.0
    assert found.peak_mib < MOST_MIB


def test_a_hundred_times_faster_than_one_process_a_block() -> None:
    trace = bench.recorded(bench.MODULE)
    session = Session(trace.device)
    session.isolated_us(trace)
    with slow_sms():
        start = perf_counter()
        session.replay(trace, bench.POLICY, keep=("placements",))
        slow_s = perf_counter() - start
    assert slow_s >= 100 * one("trace", "inception_3a").replay_s
