"""Time slices, SMs by need, lent TPCs and kernels that start only beside others that they do not disturb, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from tiny import copy, host, kernel, played, run_of, spans, stream, times, tiny
from views import kernel as seen
from views import view_of

from gpusim import InputError
from gpusim.policies.interface import OperationView, Partition, View
from gpusim.policies.pairing import InterferenceAware, loads
from gpusim.policies.registry import policy_from
from gpusim.policies.sizing import LatencyTarget
from gpusim.policies.time_slicing import (
    IDLE_US,
    RESTORE_US,
    RESTORED_BYTES_PER_US,
    SAVED_BYTES_PER_US,
    STOP_US,
    SWITCH_US,
)
from gpusim.results.result import Result

# One block of `tiny.kernel` fills an SM of four; a wave of 4 us starts 1 us after its kernel.
HELD_BYTES = 1024 * 64 * 4 + 1024
SAVE_US = STOP_US + HELD_BYTES / SAVED_BYTES_PER_US
BACK_US = RESTORE_US + HELD_BYTES / RESTORED_BYTES_PER_US


def sms_of(result: Result, operation: str) -> set[int]:
    return {sm for sm, *_ in spans(result, operation)}


def starts_and_ends(result: Result) -> dict[str, tuple[float, float]]:
    """Of the blocks of every kernel."""
    return {run.operation: (round(run.start_us, 6), round(run.end_us, 6)) for run in result.kernel_runs}


# ---- time slices -----------------------------------------------------------------------------------------------------


def test_a_slice_ends_with_its_time_and_blocks_go_on_where_they_were() -> None:
    """a runs two waves to 9 and 1 us of the third, is saved, and has 3 us of it and its restoring left."""
    result = played(
        "time-slicing:slice_us=10,switch_us=20", stream("a", kernel("a", 12, 25.0)), stream("b", kernel("b", 4, 5.0))
    )
    b_us = 10.0 + 20.0 + SAVE_US
    assert starts_and_ends(result)["b"] == pytest.approx((b_us + 1.0, b_us + 5.0))
    assert run_of(result, "a").end_us == pytest.approx(b_us + 5.0 + 20.0 + BACK_US + 15.0)
    assert f"time-slicing:slice_us=10,switch_us=20: 2 switches between processes took {40.0 + SAVE_US:,.0f} us" in [
        f"{result.policy}: {note}" for note in result.notes
    ]


def test_a_slice_ends_with_its_work() -> None:
    """The switch counts from the end of the last block, though the GPU is known to be idle only later."""
    result = played("time-slicing", stream("a", kernel("a", 4, 5.0)), stream("b", kernel("b", 4, 5.0)))
    assert starts_and_ends(result) == {"a": (1.0, 5.0), "b": (5.0 + SWITCH_US + 1.0, 5.0 + SWITCH_US + 5.0)}
    free = played("time-slicing:switch_us=0", stream("a", kernel("a", 4, 5.0)), stream("b", kernel("b", 4, 5.0)))
    assert starts_and_ends(free) == {"a": (1.0, 5.0), "b": (5.0 + IDLE_US + 1.0, 5.0 + IDLE_US + 5.0)}


def test_a_process_keeps_the_gpu_between_its_kernels() -> None:
    """A memory set of 5 us is shorter than the time after which a process counts as idle, host work of 9 us is not."""
    for operation, kept in ((copy("between", 5.0, direction="memset"), True), (host("between", 9.0), False)):
        a = stream("a", kernel("a1", 4, 5.0), operation, kernel("a2", 4, 5.0))
        result = starts_and_ends(played("time-slicing", a, stream("b", kernel("b", 4, 5.0))))
        assert (result["a2"][0] < result["b"][0]) == kept


def test_slices_go_round() -> None:
    streams = [stream(name, kernel(name, 4, 401.0)) for name in "abc"]
    result = played("time-slicing:slice_us=300", *streams)
    starts = [run_of(result, name).start_us for name in "abc"]
    ends = [run_of(result, name).end_us for name in "abc"]
    turn_us = 300.0 + SWITCH_US + SAVE_US
    assert starts == pytest.approx([1.0 + at * turn_us for at in range(3)])
    left_us = BACK_US + 101.0  # of 400 us, 299 are done in the first slice
    assert ends == pytest.approx([3 * turn_us + left_us + at * (left_us + SWITCH_US) for at in range(3)])


def test_an_arrival_waits_for_the_rest_of_a_slice_and_not_for_more() -> None:
    """The slice begins with the process and not with the arrival, so after 10 us the GPU switches at once."""
    batch = stream("batch", kernel("long", 40, 161.0))
    for arrives_us, gets_us in ((5.0, 10.0), (35.0, 35.0)):
        result = played(
            "time-slicing:slice_us=10", batch, stream("late", host("before", arrives_us), kernel("short", 4, 5.0))
        )
        assert run_of(result, "short").start_us == pytest.approx(gets_us + SWITCH_US + SAVE_US + 1.0)


def test_the_first_slice_begins_with_the_first_process() -> None:
    """Both start 100 us late, and b still waits for a whole slice of a."""
    a = stream("a", host("late", 100.0), kernel("long", 400, 401.0))
    b = stream("b", host("later", 120.0), kernel("short", 4, 5.0))
    result = played("time-slicing:slice_us=300", a, b)
    assert run_of(result, "short").start_us == pytest.approx(400.0 + SWITCH_US + SAVE_US + 1.0)


def test_an_idle_process_loses_the_gpu_at_the_end_of_its_slice() -> None:
    """Host work of 6 us keeps the GPU within a slice, and not beyond its end at 8 us."""
    for slice_us, kept in ((100.0, True), (8.0, False)):
        a = stream("a", kernel("a1", 4, 5.0), host("between", 6.0), kernel("a2", 4, 5.0))
        result = starts_and_ends(played(f"time-slicing:slice_us={slice_us}", a, stream("b", kernel("b", 4, 5.0))))
        assert (result["a2"][0] < result["b"][0]) == kept


def test_a_higher_priority_waits_for_the_slice_unless_it_may_preempt() -> None:
    batch = stream("batch", kernel("long", 12, 25.0))
    urgent = stream("urgent", host("before", 5.0), kernel("short", 4, 5.0), priority=1)
    waits = played("time-slicing:slice_us=10", batch, urgent)
    assert run_of(waits, "short").start_us == pytest.approx(10.0 + SWITCH_US + SAVE_US + 1.0)
    preempts = played("time-slicing:slice_us=10,preempt=true", batch, urgent)
    short_us = 5.0 + SWITCH_US + SAVE_US + 1.0
    assert run_of(preempts, "short").start_us == pytest.approx(short_us)
    assert run_of(preempts, "long").end_us == pytest.approx(short_us + 4.0 + SWITCH_US + BACK_US + 20.0)


def test_a_higher_priority_keeps_the_gpu_beyond_its_slice() -> None:
    """Slices of 10 us end in both of its kernels, which take 25 us; the batch job waits until it has none left."""
    urgent = stream("urgent", kernel("first", 4, 26.0), kernel("second", 4, 26.0), priority=1)
    batch = stream("batch", kernel("long", 4, 5.0))
    result = played("time-slicing:slice_us=10,preempt=true", urgent, batch)
    starts = {"first": (1.0, 26.0), "second": (27.0, 52.0), "long": (52.0 + SWITCH_US + 1.0, 52.0 + SWITCH_US + 5.0)}
    assert starts_and_ends(result) == starts


# ---- SMs by need -----------------------------------------------------------------------------------------------------


def test_right_size_leaves_a_stream_what_it_can_use() -> None:
    """a fills one SM, b would use all four: 1 and 3, where an even split lets b run six waves, not four."""
    streams = (stream("a", kernel("a", 1, 17.0)), stream("b", kernel("b", 12, 13.0)))
    result = played("right-size", *streams)
    assert (sms_of(result, "a"), sms_of(result, "b")) == ({0}, {1, 2, 3})
    assert starts_and_ends(result)["b"] == (1.0, 17.0)
    assert times(played("inter-sm", *streams))["b"][1] > 17.0


def test_right_size_spreads_what_nobody_needs() -> None:
    streams = (stream("a", kernel("a", 1, 5.0)), stream("b", kernel("b", 1, 5.0)))
    result = played("right-size", *streams)
    assert starts_and_ends(result) == {"a": (1.0, 5.0), "b": (1.0, 5.0)}


@pytest.mark.parametrize(("slowdown", "sms"), [(1.0, 3), (2.0, 2), (4.0, 1)])
def test_a_latency_target_takes_no_more_sms_than_it_needs(slowdown: float, sms: int) -> None:
    """8 blocks of 4 us, 9 us alone: 2 SMs take 17 us, within twice that, one 33 us, within four times."""
    urgent = stream("urgent", kernel("short", 8, 9.0), priority=1)
    result = played(f"latency-target:slowdown={slowdown}", urgent, stream("batch", kernel("long", 40, 41.0)))
    assert len(sms_of(result, "short")) == sms
    if slowdown > 1.0:
        assert run_of(result, "short").end_us <= slowdown * 9.0


def test_a_latency_target_reads_no_list_of_operations() -> None:
    """The list grows with the trace, and a decision falls at every kernel: together that would be quadratic."""

    @dataclass
    class Blind(LatencyTarget):
        def partition(self, view: View) -> Partition:
            def never() -> Sequence[OperationView]:
                raise AssertionError("operations were listed")

            return super().partition(view._replace(operations=never))

    streams = [stream("urgent", kernel("a", 8, 9.0), priority=1), stream("batch", kernel("b", 40, 41.0))]
    assert times(played(Blind(), *streams)) == times(played("latency-target", *streams))


def test_without_a_critical_stream_a_latency_target_is_an_even_split() -> None:
    streams = (stream("a", kernel("a", 8, 9.0)), stream("b", kernel("b", 12, 13.0)))
    assert times(played("latency-target", *streams)) == times(played("inter-sm", *streams))


# ---- lent TPCs -------------------------------------------------------------------------------------------------------


def test_tpcs_of_a_stream_without_work_are_lent() -> None:
    """a owns SMs 0 and 1 and has nothing to do for long: b and c get one each beside their own."""
    streams = (
        stream("a", host("idle", 100.0), kernel("a", 4, 5.0)),
        stream("b", kernel("b", 8, 9.0)),
        stream("c", kernel("c", 8, 9.0)),
    )
    result = played("tpc-stealing", *streams)
    assert (sms_of(result, "b"), sms_of(result, "c")) == ({0, 2}, {1, 3})
    assert run_of(result, "a").start_us == 101.0


def test_a_lent_tpc_comes_back_when_the_blocks_on_it_end() -> None:
    """b has all SMs until a comes at 6 and starts at 9, as b's blocks on its SMs end.

    a's four blocks share 32 tiles of 0.5 us: two do 30 of them until 16.5, then the other two start and do their own.
    """
    streams = (stream("a", host("before", 6.0), kernel("a", 4, 5.0)), stream("b", kernel("b", 12, 13.0)))
    result = played("tpc-stealing", *streams)
    assert spans(result, "a") == [(0, 2, 9.0, 17.0), (1, 2, 9.0, 17.0)]
    assert starts_and_ends(result)["b"] == (1.0, 17.0)


def test_tpcs_are_owned_as_asked() -> None:
    streams = (stream("a", kernel("a", 12, 13.0)), stream("b", kernel("b", 4, 5.0)))
    result = played("tpc-stealing:sms=1+3", *streams)
    assert {sm for sm, _, start, _ in spans(result, "a") if start < 5.0} == {0}


# ---- only beside those that it does not disturb ---------------------------------------------------------------------


def granted(policy: InterferenceAware, now_us: float, *dram_loads: float) -> list[int]:
    """Which kernels may run, the first of which does."""
    kernels = [
        seen(i, dram_load=load, started=i == 0, solo_us=100.0, bound_by="dram") for i, load in enumerate(dram_loads)
    ]
    return [grant.kernel for grant in policy.partition(view_of(*kernels, now_us=now_us)).grants]


def test_a_kernel_starts_only_where_no_resource_is_asked_for_too_much() -> None:
    assert granted(InterferenceAware(), 0.0, 0.6, 0.4) == [0, 1]
    assert granted(InterferenceAware(), 0.0, 0.6, 0.5) == [0]
    assert granted(InterferenceAware(limit=1.2), 0.0, 0.6, 0.5) == [0, 1]


def test_a_kernel_that_does_not_fit_is_passed_but_not_for_ever() -> None:
    assert granted(InterferenceAware(), 99.0, 0.6, 0.5, 0.3) == [0, 2]
    assert granted(InterferenceAware(), 100.0, 0.6, 0.5, 0.3) == [0]


def test_a_kernel_without_counters_runs_beside_nobody() -> None:
    known, unknown = seen(0), seen(1, started=False, bound_by="unknown", dram_load=0.0)
    assert [grant.kernel for grant in InterferenceAware().partition(view_of(known, unknown)).grants] == [0]
    result = played("interference-aware", stream("a", kernel("a", 1, 5.0)), stream("b", kernel("b", 1, 5.0)))
    assert starts_and_ends(result) == {"a": (1.0, 5.0), "b": (6.0, 10.0)}


def test_loads() -> None:
    view = seen(0, blocks=264, solo_us=10.0, issue_us=2.0, memory_us=1.0, l2_load=0.3, dram_load=0.4)
    assert loads(view, tiny(sm_count=132)) == pytest.approx((0.4, 0.2, 0.3, 0.4))


# ---- parameters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        *(
            "time-slicing:slice_us=0",
            "time-slicing:slice_us=nan",
            "right-size:tolerance=-1",
            "right-size:tolerance=inf",
        ),
        *("latency-target:slowdown=0.9", "latency-target:slowdown=nan", "interference-aware:limit=0"),
    ],
)
def test_parameters_that_mean_nothing_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected"):
        policy_from(text)


@pytest.mark.parametrize("sms", ["3+3", "1+1+1", "0+4"])
def test_tpcs_that_cannot_be_owned_are_refused(sms: str) -> None:
    with pytest.raises(InputError, match="tpc-stealing"):
        played(f"tpc-stealing:sms={sms}", stream("a", kernel("a", 1, 5.0)), stream("b", kernel("b", 1, 5.0)))
