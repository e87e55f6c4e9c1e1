"""Plain streams over channels, by hand: 4 SMs, one block of 1024 threads each, launch latency 1 us."""

from __future__ import annotations

import pytest
from tiny import copy, host, kernel, played, run_of, stream, times, tiny

from gpusim import InputError
from gpusim.engine.host import host_queues
from gpusim.trace.format import Trace
from gpusim.trace.operations import TimesArrivals


def test_streams_of_one_channel_place_in_the_order_of_the_host() -> None:
    streams = (
        stream("a", kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)),
        stream("b", kernel("b", 4, 11.0)),
    )
    # b passes the channel once a2 has placed its blocks, at 12
    assert times(played("leftover:channels=1", *streams)) == {"a1": (0.0, 11.0), "a2": (11.0, 22.0), "b": (0.0, 32.0)}
    # with channels of their own, b is in line before a2 is ready
    apart = {"a1": (0.0, 11.0), "b": (0.0, 21.0), "a2": (11.0, 31.0)}
    assert times(played("leftover:channels=2", *streams)) == apart
    assert times(played("leftover:channels=0", *streams)) == apart
    assert times(played("leftover", *streams)) == apart


def test_the_ninth_stream_waits_for_all_work_of_the_first() -> None:
    streams = [
        stream("s0", kernel("first", 1, 11.0), kernel("second", 1, 11.0)),
        *(stream(f"s{i}", kernel(f"k{i}", 1, 11.0)) for i in range(1, 9)),
    ]
    result = played("leftover", *streams, gpu=tiny(16))
    assert [times(result)[f"k{i}"] for i in range(1, 8)] == [(0.0, 11.0)] * 7
    assert run_of(result, "second").start_us == 12.0
    assert run_of(result, "k8").start_us == 12.0  # at once when the last block of s0 is placed
    assert times(played("leftover:channels=9", *streams, gpu=tiny(16)))["k8"] == (0.0, 11.0)


def test_a_copy_holds_up_the_channel_behind_it() -> None:
    streams = (stream("a", copy("in", 50.0), kernel("a", 1, 11.0)), stream("b", kernel("b", 1, 11.0)))
    result = played("leftover:channels=1", *streams)
    assert run_of(result, "b").start_us == run_of(result, "a").start_us == 51.0


def test_who_leaves_a_channel_goes_to_the_end_of_the_line() -> None:
    streams = [stream(name, kernel(name, blocks, us)) for name, blocks, us in (("a", 8, 21.0), ("c", 4, 11.0))]
    streams.append(stream("b", kernel("b", 4, 11.0)))  # shares a channel with a
    assert times(played("leftover:channels=2", *streams)) == {"a": (0.0, 21.0), "c": (0.0, 31.0), "b": (0.0, 41.0)}


def test_a_channel_knows_no_priority() -> None:
    streams = (
        stream("low", kernel("low", 8, 21.0)),
        stream("other", kernel("other", 4, 11.0)),
        stream("high", kernel("high", 4, 11.0), priority=1),
    )
    # high waits in the channel until low is placed, at 11; then it goes before other
    assert times(played("leftover:channels=2", *streams))["high"] == (0.0, 31.0)
    assert times(played("leftover:channels=2", *streams))["other"] == (0.0, 41.0)
    assert times(played("leftover:channels=3", *streams))["high"] == (0.0, 11.0)


def test_the_host_queues_what_waits_for_nothing_first() -> None:
    """a2 needs b1, so a host can only have queued b1 before it: nobody waits for ever."""
    streams = (
        stream("a", kernel("a1", 1, 11.0), kernel("a2", 1, 11.0, "b1")),
        stream("b", host("wait", 5.0), kernel("b1", 1, 11.0), kernel("b2", 1, 11.0)),
    )
    queues = host_queues(Trace(version=1, name="t", device="h200", streams=streams))
    assert [queue.first for queue in queues] == [{"a1": 0, "a2": 3}, {"wait": 1, "b1": 1, "b2": 2}]
    assert times(played("leftover:channels=1", *streams))["a2"] == (16.0, 27.0)


def test_a_request_queues_when_it_is_released() -> None:
    later = TimesArrivals(kind="times", times_us=(0.0, 40.0))
    streams = (stream("a", kernel("a", 1, 11.0), arrivals=later), stream("b", kernel("b", 1, 11.0)))
    result = played("leftover:channels=1", *streams)
    assert run_of(result, "b").start_us == 1.0  # the second request of a is not queued yet


@pytest.mark.parametrize("text", ["leftover:channels=-1", "leftover:first=z", "leftover:channels=x"])
def test_wrong_parameters_are_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^policy leftover: .*; expected "):
        played(text, stream("a", kernel("a", 1, 11.0)))
