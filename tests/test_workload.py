"""Workloads that restart: hand-computed shares, and what a policy that gives everyone the same makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpusim import load_gpu, load_trace
from gpusim.engine.replay import Kernels, replay, solo_makespans
from gpusim.errors import InputError
from gpusim.result import RequestRun, Result, StreamRun
from gpusim.trace import Host, Kernel, KernelLaunch, LoopArrivals, Stream, Trace
from gpusim.workload import repeated, restarting, shares, workload, workloads

TRACES = Path(__file__).resolve().parent.parent / "traces"
H200 = load_gpu("h200")


def made(*requests: tuple[str, float, float], solo_us: dict[str, float]) -> Result:
    """A result with these requests (stream, start, end) and nothing else; solo makespans are of all passes."""
    empty = replay(_hosts({"x": 1.0}), H200, "serial")
    counts: dict[str, int] = {}
    runs = []
    for stream, start, end in requests:
        runs.append(RequestRun(stream, counts.get(stream, 0), start, start, end))
        counts[stream] = counts.get(stream, 0) + 1
    ends = {stream: max(end for name, _, end in requests if name == stream) for stream in counts}
    streams = tuple(StreamRun(name, 0, 0.0, 0.0, ends[name], solo_us[name]) for name in counts)
    return replace(empty, request_runs=tuple(runs), stream_runs=streams)


def _hosts(durations: dict[str, float]) -> Trace:
    streams = tuple(
        Stream(name=name, operations=(Host(id=f"{name}0", kind="host", what="other", duration_us=duration),))
        for name, duration in durations.items()
    )
    return Trace(version=1, name="made", device="h200", streams=streams)


def test_shares_by_hand() -> None:
    # a takes 100 alone and ends first at 200; b takes 30 alone: passes of 80, 80, 80, of which the third is half done
    result = made(
        ("a", 0, 200), ("a", 200, 400), ("b", 0, 80), ("b", 80, 160), ("b", 160, 240), solo_us={"a": 200.0, "b": 90.0}
    )
    found = shares(result)
    assert found.until_us == 200
    assert found.passes == {"a": 1.0, "b": 2.5}
    assert found.progress == pytest.approx({"a": 0.5, "b": 2.5 * 30 / 200})
    assert found.stp == pytest.approx(0.875)
    assert found.antt == pytest.approx((2.0 + 1 / 0.375) / 2)
    assert found.fairness == pytest.approx(0.75)
    assert found.restarted


def test_a_stream_that_runs_out_is_noticed() -> None:
    found = shares(made(("a", 0, 200), ("b", 0, 80), solo_us={"a": 100.0, "b": 30.0}))
    assert not found.restarted
    assert found.passes == {"a": 1.0, "b": 1.0}


def test_passes_cover_the_longest() -> None:
    trace = restarting(_hosts({"a": 100.0, "b": 30.0, "c": 99.0}), {"a": 100.0, "b": 30.0, "c": 99.0})
    assert [stream.arrivals.count for stream in trace.streams if stream.arrivals is not None] == [5, 15, 5]
    assert repeated(trace.streams[0], 7).arrivals == LoopArrivals(kind="loop", count=7)


def test_what_cannot_restart() -> None:
    trace = _hosts({"a": 1.0, "b": 1.0})
    with pytest.raises(InputError, match=r"streams\[1\]: takes no time"):
        restarting(trace, {"a": 1.0, "b": 0.0})
    loops = trace.model_copy(update={"streams": tuple(repeated(stream, 2) for stream in trace.streams)})
    with pytest.raises(InputError, match=r"streams\[0\].arrivals: is given"):
        restarting(loops, {"a": 1.0, "b": 1.0})
    googlenet = load_trace(TRACES / "googlenet_forward.json.gz")
    with pytest.raises(InputError, match=r"depends_on.*arrivals"):
        restarting(googlenet, {stream.name: 1.0 for stream in googlenet.streams})


def test_halves_of_the_gpu_give_each_half() -> None:
    launch = load_trace(TRACES / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz").streams[0].operations[0].launches()[0]
    streams = tuple(Stream(name=n, operations=(Kernel(id=n, kind="kernel", kernel=launch),)) for n in ("a", "b"))
    trace = Trace(version=1, name="made", device="h200", streams=streams)
    kernels = Kernels(H200, H200)
    looped = restarting(trace, solo_makespans(trace, H200, kernels))
    found = shares(replay(looped, H200, "inter-sm", kernels=kernels))
    assert found.restarted
    assert found.progress["a"] == pytest.approx(found.progress["b"], rel=1e-6)
    assert 0.8 < found.stp < 1.2


# ---- pairs


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
