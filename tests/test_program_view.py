"""What a policy sees of the program: the operations left, who waits for whom, the work in them; by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny import convolution, copy, host, kernel, launch, played, stream, times, tiny, trace

from gpusim import replay
from gpusim.policies.hardware import Leftover
from gpusim.policies.interface import OperationView, Partition, PassView, View
from gpusim.trace.operations import LoopArrivals, TimesArrivals

CRITICAL_PATH = f"{Path(__file__).parent.parent / 'experiments' / 'critical_path.py'}:CriticalPath"


@dataclass
class Watching(Leftover):
    """Plain streams; notes what is left whenever it decides."""

    seen: dict[float, dict[str, OperationView]] = field(default_factory=dict)
    passes: dict[float, dict[int, PassView]] = field(default_factory=dict)
    launched_by: dict[int, str] = field(default_factory=dict)

    def partition(self, view: View) -> Partition:
        self.seen[round(view.now_us, 6)] = {operation.id: operation for operation in view.operations()}
        self.passes[round(view.now_us, 6)] = dict(view.passes())
        self.launched_by |= {one.id: one.operation for one in view.kernels}
        return super().partition(view)


def left_us(watching: Watching, now_us: float) -> dict[str, float]:
    return {id: round(operation.left_us, 6) for id, operation in watching.seen[now_us].items()}


def test_work_left_is_that_of_kernels_under_way_and_to_come() -> None:
    """k runs 1 to 21 in two waves of 10; at 15 l becomes ready on another stream, after 14 of k's 20 us of blocks."""
    watching = Watching()
    played(
        watching,
        stream("a", kernel("k", 8, 21.0), kernel("m", 4, 11.0)),
        stream("b", host("h", 15.0), kernel("l", 4, 11.0)),
    )
    assert left_us(watching, 0.0) == {"k": 21.0, "m": 11.0, "h": 15.0, "l": 11.0}
    assert left_us(watching, 15.0) == {"k": 6.3, "m": 11.0, "l": 11.0}
    assert left_us(watching, 21.0) == {"m": 11.0, "l": 11.0}
    assert watching.launched_by == {0: "k", 1: "l", 2: "m"}


def test_passes_are_the_sums_of_their_operations() -> None:
    """At every decision, of streams that restart by arrivals, on two GPUs."""
    watching = Watching()
    streams = [
        stream("a", host("h", 3.0), kernel("k", 8, 21.0), copy("c", 5.0), kernel("m", 4, 11.0)),
        stream("b", kernel("l", 4, 11.0), host("i", 15.0), arrivals=TimesArrivals(kind="times", times_us=(2.0, 9.0))),
        stream("c", kernel("n", 4, 11.0)).model_copy(update={"gpu": 1}),
    ]
    played(watching, *streams)
    assert len(watching.seen) > 4
    whole = {"a": 3.0 + 21.0 + 5.0 + 11.0, "b": 11.0 + 15.0}
    for now, operations in watching.seen.items():
        found: dict[int, float] = {}
        for one in operations.values():
            found[one.stream_index] = found.get(one.stream_index, 0.0) + one.left_us
        assert {stream: one.left_us for stream, one in watching.passes[now].items()} == pytest.approx(found)
        for stream_index, one in watching.passes[now].items():
            assert one.alone_us == pytest.approx(whole["ab"[stream_index]])
            releases = {other.release_us for other in operations.values() if other.stream_index == stream_index}
            assert releases == {one.release_us}


def test_time_left_of_copies_counts_from_when_they_have_the_engine() -> None:
    """c1 has the copy engine from 0 to 8, c2 from 8 to 16; k is ready at 5, ends at 16."""
    watching = Watching()
    played(
        watching,
        stream("a", copy("c1", 8.0)),
        stream("b", copy("c2", 8.0)),
        stream("c", host("h", 5.0), kernel("k", 4, 11.0), kernel("l", 4, 11.0)),
    )
    assert left_us(watching, 5.0) == {"c1": 3.0, "c2": 8.0, "k": 11.0, "l": 11.0}
    assert left_us(watching, 16.0) == {"l": 11.0}


def test_operations_wait_for_those_before_them_and_those_they_depend_on() -> None:
    watching = Watching()
    played(
        watching,
        stream("a", kernel("k", 4, 11.0), kernel("m", 4, 11.0)),
        stream("b", kernel("l", 4, 11.0, "k"), kernel("n", 4, 11.0, "k", "m")),
    )
    waits = {now: {id: op.waits_for for id, op in seen.items()} for now, seen in watching.seen.items()}
    assert waits[0.0] == {"k": (), "m": ("k",), "l": ("k",), "n": ("l", "k", "m")}
    assert waits[11.0] == {"m": (), "l": (), "n": ("l", "m")}
    assert {op.stream_index for op in watching.seen[0.0].values()} == {0, 1}


def test_the_kernels_of_a_library_call_are_one_operation() -> None:
    """Two kernels, one behind the other; the first ends at 11."""
    watching = Watching()
    played(watching, stream("a", convolution("c", [launch(4, 11.0), launch(8, 21.0)])))
    assert (left_us(watching, 0.0), left_us(watching, 11.0)) == ({"c": 32.0}, {"c": 21.0})


def test_only_the_pass_under_way_is_shown_with_its_release() -> None:
    """A request at 0 that takes to 22, one at 5 that waits for it, one at 100."""
    watching = Watching()
    arrivals = TimesArrivals(kind="times", times_us=(0.0, 5.0, 100.0))
    played(watching, stream("a", kernel("k", 4, 11.0), kernel("l", 4, 11.0), arrivals=arrivals))
    releases = {now: [(op.id, op.release_us) for op in seen.values()] for now, seen in watching.seen.items()}
    assert releases[11.0] == [("l", 0.0)]
    assert releases[22.0] == [("k", 5.0), ("l", 5.0)]
    assert releases[100.0] == [("k", 100.0), ("l", 100.0)]


def test_a_stream_that_starts_again_stays_in_the_order_of_the_trace() -> None:
    watching = Watching()
    played(
        watching,
        stream("a", kernel("k", 4, 11.0), arrivals=LoopArrivals(kind="loop", count=3)),
        stream("b", kernel("l", 16, 41.0)),
    )
    assert all(list(seen) in (["k", "l"], ["k"], ["l"], []) for seen in watching.seen.values())


def test_the_critical_path_first_beats_plain_order_where_it_must() -> None:
    """Stream b's first kernel stands before 30 us of host work and another kernel; plain order takes a's first.

    A kernel of 4 blocks fills the 4 SMs for 10 us. Plain: a 1 to 11, b1 to 21, host to 51, b2 to 62. The critical path
    first: b1 1 to 11, a to 21 while the host works to 41, b2 to 52.
    """
    streams = (
        stream("a", kernel("a", 4, 11.0)),
        stream("b", kernel("b1", 4, 11.0), host("h", 30.0), kernel("b2", 4, 11.0)),
    )
    plain, critical = played("leftover", *streams), replay(trace(*streams), tiny(), CRITICAL_PATH)
    assert times(plain) == {"a": (0.0, 11.0), "b1": (0.0, 21.0), "h": (21.0, 51.0), "b2": (51.0, 62.0)}
    assert times(critical) == {"b1": (0.0, 11.0), "a": (0.0, 21.0), "h": (11.0, 41.0), "b2": (41.0, 52.0)}


def test_the_critical_path_runs_through_other_streams() -> None:
    """What waits for b is on c: the same as one stream."""
    streams = (stream("a", kernel("a", 4, 11.0)), stream("b", kernel("b", 4, 11.0)), stream("c", host("h", 30.0, "b")))
    assert times(played("leftover", *streams))["h"] == (21.0, 51.0)
    assert times(replay(trace(*streams), tiny(), CRITICAL_PATH))["h"] == (11.0, 41.0)
