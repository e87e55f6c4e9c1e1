"""A launch alone on idle SMs, worked out once: the same as stepping through it, every time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, traces
from strategies import kernels as launches
from tiny import kernel, tiny

from gpusim import load_gpu, load_trace
from gpusim.calibrate.kernels import Kernels
from gpusim.engine import alone
from gpusim.engine.device import Device
from gpusim.engine.sm_array import alone_on, run_alone
from gpusim.hardware.gpu import GPU
from gpusim.lab.bench import repeated
from gpusim.results.result import Result
from gpusim.results.runs import USES
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Stream

H200 = load_gpu("h200")
WHAT_IF = replace(H200, name="40 SMs", sm_count=40, sms_per_tpc=2)
SESSIONS = {gpu.name: Session(gpu, H200) for gpu in (H200, WHAT_IF)}
POLICIES = ("serial", "leftover", "even", "inter-sm", "smk", "warped-slicer", "green-context", "mig", "time-slicing")
TRACES = Path(__file__).resolve().parent.parent / "traces"


@contextmanager
def every_launch_stepped_through() -> Iterator[None]:
    with patch.object(Device, "_known_run", lambda self, horizon: None):
        yield


@contextmanager
def counted(of: Any, name: str) -> Iterator[list[Any]]:
    """What a function is called with, as it is called."""
    calls: list[Any] = []
    function = getattr(of, name)

    def counting(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    with patch.object(of, name, counting):
        yield calls


def run(session: Session, trace: Trace, policy: str, **options: Any) -> Result:
    return session.replay(trace, policy, keep=["placements"], **options)


def assert_same(mine: Result, stepped: Result) -> None:
    """To the last bit; use over time to rounding: it is added up in another order."""
    for name in ("makespan_us", "kernel_runs", "operation_runs", "request_runs", "stream_runs", "placements"):
        assert getattr(mine, name) == getattr(stepped, name), name
    assert (mine.limits, mine.notes, mine.passes) == (stepped.limits, stepped.notes, stepped.passes)
    assert mine.usage.bin_us == stepped.usage.bin_us
    for use in USES:
        assert mine.usage.of_device(use) == pytest.approx(stepped.usage.of_device(use), rel=1e-9, abs=1e-12)


@examples(60)
@given(
    trace=traces(max_streams=3, max_operations=4, max_blocks_x=300),
    policy=st.sampled_from(POLICIES),
    gpu=st.sampled_from([H200, WHAT_IF]),
    times=st.integers(2, 5),
)
def test_random_traces(trace: Trace, policy: str, gpu: GPU, times: int) -> None:
    policy = "inter-sm" if policy in ("mig", "green-context") and gpu is WHAT_IF else policy
    trace, session = repeated(trace, times), SESSIONS[gpu.name]
    mine = run(session, trace, policy)
    with every_launch_stepped_through():
        assert_same(mine, run(session, trace, policy))


@examples(30)
@given(
    launch=launches(max_blocks_x=20_000),  # some skip waves
    gpu=st.sampled_from([H200, WHAT_IF]),
    variants=st.lists(st.tuples(st.sampled_from((0.0, 0.1, 0.4)), st.integers(1, 3), st.sampled_from((0.0, 0.5)))),
)
def test_a_launch_replayed_on_the_same_sms_again(
    launch: KernelLaunch, gpu: GPU, variants: list[tuple[float, int, float]]
) -> None:
    model, again = Kernels(H200, gpu).model(launch, ""), alone_on(gpu)
    for age, seed, ramp in [(0.0, 1, 0.0), *variants]:
        varied = replace(model, age_preference=age, seed=seed, ramp_work=ramp)
        assert again(varied) == run_alone(varied, gpu)


@pytest.mark.parametrize("policy", ["serial", "leftover", "inter-sm:sms=40+92", "mig:slices=3g+4g", "mps:percent=30"])
def test_a_shipped_pair_again_and_again(policy: str) -> None:
    trace = repeated(load_trace(TRACES / "spaa20_table1.json").model_copy(update={"device": "h200"}), 20)
    session = SESSIONS[H200.name]
    with counted(alone, "alone_under") as worked_out:
        mine = run(session, trace, policy)
    assert worked_out or policy not in ("serial", "inter-sm:sms=40+92")
    with every_launch_stepped_through():
        assert_same(mine, run(session, trace, policy))


def chain(times: int) -> Trace:
    """A stream of three kernels that repeats them."""
    three = tuple(kernel(f"k{i}", 4 + i, 10.0 + i) for i in range(3))
    once = Trace(version=1, name="chain", device="tiny", streams=(Stream(name="s", operations=three),))
    return repeated(once, times)


def test_streams_that_restart() -> None:
    gpu = tiny(jitter=0.1)
    trace = chain(3)
    trace = trace.model_copy(update={"streams": (*trace.streams, Stream(name="t", operations=(kernel("t", 9, 50.0),)))})
    session = Session(gpu)
    for policy in ("serial", "leftover", "inter-sm"):
        mine = run(session, trace, policy, restart=True)
        with every_launch_stepped_through():
            assert_same(mine, run(session, trace, policy, restart=True))


@pytest.mark.parametrize("policy", ["serial", "leftover", "even"])
def test_a_chain_is_stepped_through_once_a_kernel_and_where_bins_end(policy: str) -> None:
    gpu = tiny(jitter=0.1)
    alone._simulated.cache_clear()  # other tests may have had these kernels on such a GPU
    with counted(Device, "_cap") as stepped, counted(alone, "alone_under") as worked_out:
        result = run(Session(gpu), chain(1000), policy)
    assert len(result.kernel_runs) == 3000
    assert len(worked_out) == 3
    # a launch spans two bins of the usage history where one ends in it: 128 bins, of which half are passed again each
    # time their width doubles, from 1 us to that of a launch every launch, then ten times
    assert len(stepped) < 64 * 12
    columns = {id(spans) for _, spans in result.placements._spans}
    assert len(columns) == 3 + len(stepped)  # memory: launches that were not stepped through share theirs


def test_the_same_launch_takes_as_long_whenever_it_runs() -> None:
    gpu = tiny(jitter=0.1)
    result = run(Session(gpu), chain(50), "serial")
    for index in range(3):
        lengths = {(run.end_us - run.start_us) for run in result.kernel_runs[index::3]}
        assert max(lengths) - min(lengths) < 1e-11
