"""Workloads made from a trace: pairs of streams and of operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim import InputError, load_trace
from gpusim.sweeps.workload import workload, workloads
from gpusim.trace.format import Trace
from gpusim.trace.independent import require_independent, waits_across_streams
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Host, Kernel, LoopArrivals, Stream

TRACES = Path(__file__).resolve().parent.parent / "traces"


def _waiting() -> Trace:
    """Two branches between a first and a last kernel, and a stream that waits for nothing."""

    def kernel(id: str, *depends_on: str) -> Kernel:
        launch = KernelLaunch(name="k", grid=(8, 1, 1), block=(64, 1, 1), registers_per_thread=32, duration_us=10.0)
        return Kernel(id=id, kind="kernel", kernel=launch, depends_on=depends_on)

    host = Host(id="h", kind="host", what="other", duration_us=5.0)
    streams = (
        Stream(name="trunk", operations=(kernel("first"), kernel("left", "first"), kernel("last", "right"))),
        Stream(name="branch", operations=(kernel("right", "first"), kernel("after", "last"))),
        Stream(name="free", operations=(host, kernel("alone")), arrivals=LoopArrivals(kind="loop", count=2)),
        Stream(name="empty", operations=()),
    )
    return Trace(version=1, name="waiting", device="h200", streams=streams)


def test_the_whole_trace_is_one_workload() -> None:
    trace = _waiting()
    assert workloads(trace, "trace") == [()]
    assert workload(trace, "trace", ()) is trace


def test_pairs_of_operations_are_those_that_may_run_at_once() -> None:
    pairs = workloads(_waiting(), "operation-pairs")
    assert pairs == [
        ("left", "right"),
        ("first", "alone"),
        ("left", "alone"),
        ("last", "alone"),
        ("right", "alone"),
        ("after", "alone"),
    ]


def test_a_pair_of_operations_waits_for_nothing_else() -> None:
    pair = workload(_waiting(), "operation-pairs", ("last", "alone"))
    assert [(s.name, [op.id for op in s.operations], s.arrivals) for s in pair.streams] == [
        ("trunk", ["last"], None),
        ("free", ["alone"], None),
    ]
    assert all(op.depends_on == () for op in pair.operations())


def test_a_stream_with_the_name_of_an_operation_of_a_pair_is_left_out() -> None:
    trace = _waiting()
    free = trace.streams[2].model_copy(update={"name": "right"})
    named = trace.model_copy(update={"streams": (*trace.streams[:2], free, trace.streams[3])})
    assert [stream.name for stream in workload(named, "operation-pairs", ("left", "right")).streams] == [
        "trunk",
        "branch",
    ]


def test_pairs_of_streams_keep_what_they_wait_for_in_each_other() -> None:
    trace = _waiting()
    assert ("trunk", "branch") in workloads(trace, "stream-pairs")
    assert len(workloads(trace, "stream-pairs")) == 6
    pair = workload(trace, "stream-pairs", ("trunk", "branch"))
    assert {op.id: op.depends_on for op in pair.operations()}["last"] == ("right",)
    beside = workload(trace, "stream-pairs", ("trunk", "free"))
    assert {op.id: op.depends_on for op in beside.operations()}["last"] == ()
    assert beside.streams[1].arrivals is not None


def test_a_module_has_a_pair_for_every_two_convolutions_of_different_branches() -> None:
    trace = load_trace(TRACES / "inception_3a.json.gz")
    branches = [len(stream.operations) for stream in trace.streams]
    expected = sum(a * b for n, a in enumerate(branches) for b in branches[n + 1 :])
    assert len(workloads(trace, "operation-pairs")) == expected == 13


def test_no_pair_of_a_network_is_of_two_modules() -> None:
    pairs = workloads(load_trace(TRACES / "googlenet_forward.json.gz"), "operation-pairs")
    assert pairs and {a.split(".")[0] == b.split(".")[0] for a, b in pairs} == {True}


def _hosts(durations: dict[str, float]) -> Trace:
    streams = tuple(
        Stream(name=name, operations=(Host(id=f"{name}0", kind="host", what="other", duration_us=duration),))
        for name, duration in durations.items()
    )
    return Trace(version=1, name="made", device="h200", streams=streams)


def test_who_waits_across_streams() -> None:
    assert waits_across_streams(_waiting()) == {"last", "right", "after"}


def test_a_stream_that_would_restart_too_often_is_no_program() -> None:
    """Of b with 1 us a turn of both holds as many passes as they take us: a million are too many."""
    free = _hosts({"a": 9.0, "b": 1.0})
    require_independent(free, {"a": 999_998.0, "b": 1.0})
    with pytest.raises(InputError, match=r"^streams\[1\]: takes 1 us in isolation; expected over a 1,000,000th of all"):
        require_independent(free, {"a": 999_999.0, "b": 1.0})


def test_who_waits_within_its_stream_alone_may_restart() -> None:
    operations = [
        Host(id=name, kind="host", what="other", duration_us=1.0, depends_on=waits)
        for name, waits in (("x", ()), ("y", ("x",)))
    ]
    trace = Trace(version=1, name="made", device="h200", streams=(Stream(name="s", operations=tuple(operations)),))
    assert waits_across_streams(trace) == set()
    require_independent(trace, {"s": 2.0})
