"""Replays of traces small enough to work out by hand, to the microsecond.

On the tiny GPU one block of a kernel fills one of four SMs, all blocks take the same time and each launch takes
1 us: a kernel of 8 blocks and 21 us runs two waves of 10 us.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from tiny import convolution, copy, host, kernel, launch, played, run_of, spans, stream, times, tiny, trace

import gpusim
from gpusim import InputError
from gpusim import replay as replayed
from gpusim.model.front_end import turn_wait_us
from gpusim.model.memory import launch_wait_us
from gpusim.policies.interface import Eviction, Grant, Partition, Policy, View
from gpusim.session import Session
from gpusim.trace.kernels import Mix, WarpStalls
from gpusim.trace.operations import Kernel, LoopArrivals, Operation, TimesArrivals

TRACES = Path(__file__).parents[1] / "traces"


def test_one_kernel_runs_in_waves_after_its_launch() -> None:
    result = played("leftover", stream("a", kernel("k", 8, 21.0)))
    run = run_of(result, "k")
    assert (run.ready_us, run.start_us, run.dispatched_us) == (0.0, 1.0, 11.0)
    assert run.end_us == pytest.approx(21.0, rel=1e-12)
    assert (run.waited_us, run.solo_us, run.blocks) == (0.0, 21.0, 8)
    assert run.sharing_us == pytest.approx(0.0, abs=1e-9)
    assert spans(result, "k") == [(sm, 2, 1.0, 21.0) for sm in range(4)]
    assert result.makespan_us == run.end_us


def test_a_partial_wave_takes_as_long_as_a_full_one() -> None:
    result = played("leftover", stream("a", kernel("k", 9, 31.0)))
    assert spans(result, "k") == [(0, 3, 1.0, 31.0), *[(sm, 2, 1.0, 21.0) for sm in (1, 2, 3)]]


def test_a_stream_runs_its_operations_one_after_the_other() -> None:
    operations = (kernel("k", 8, 21.0), copy("c", 5.0), host("h", 2.5), kernel("l", 6, 11.0))
    result = played("leftover", stream("a", *operations))
    assert times(result) == {"k": (0.0, 21.0), "c": (21.0, 26.0), "h": (26.0, 28.5), "l": (28.5, 39.5)}
    assert run_of(result, "l").start_us == pytest.approx(29.5)


def test_operations_wait_for_what_they_depend_on() -> None:
    result = played(
        "leftover",
        stream("a", host("a1", 5.0), host("a2", 5.0, "b1")),
        stream("b", host("b1", 12.0), host("b2", 1.0, "a1")),
        stream("c", host("c1", 1.0, "a2", "b2")),
    )
    assert times(result) == {
        "a1": (0.0, 5.0),
        "b1": (0.0, 12.0),
        "a2": (12.0, 17.0),
        "b2": (12.0, 13.0),
        "c1": (17.0, 18.0),
    }


def test_a_dependency_within_a_stream_says_what_the_stream_says() -> None:
    """A kernel is let start in the instant in which the operation before it ends, so a stands before b."""

    def ends(*depends_on: str) -> dict[str, tuple[float, float]]:
        a = stream("a", host("a1", 5.0), kernel("a2", 1, 6.0, *depends_on))
        b = stream("b", host("b1", 5.0), kernel("b2", 1, 6.0))
        return times(played("leftover", a, b, gpu=tiny(stream_turn_us=0.5)))

    assert ends("a1") == ends()
    assert (ends()["a2"], ends()["b2"]) == ((5.0, 11.0), (5.0, 11.5))


def test_a_copy_engine_takes_one_copy_at_a_time_and_directions_do_not_share() -> None:
    result = played(
        "leftover",
        stream("a", copy("a", 5.0)),
        stream("b", copy("b", 3.0)),
        stream("c", copy("c", 4.0, direction="d2h")),
    )
    assert {name: end for name, (_, end) in times(result).items()} == {"a": 5.0, "b": 8.0, "c": 4.0}


def test_copies_run_beside_kernels() -> None:
    result = played("leftover", stream("a", kernel("k", 8, 21.0)), stream("b", copy("c", 21.0)))
    assert times(result) == {"k": (0.0, 21.0), "c": (0.0, 21.0)}


def test_each_other_stream_with_kernels_delays_the_start_of_a_kernel() -> None:
    """Turns of 0.5 us: b starts beside a, which was let start first; a2 starts beside b, b2 beside nobody."""
    operations = [stream(name, kernel(name, 1, 11.0), kernel(f"{name}2", 1, 6.0)) for name in ("a", "b")]
    result = played("leftover", *operations, gpu=tiny(stream_turn_us=0.5))
    assert times(result) == {"a": (0.0, 11.0), "b": (0.0, 11.5), "a2": (11.0, 17.5), "b2": (11.5, 18.0)}
    assert run_of(result, "b").start_us == pytest.approx(1.5)
    assert run_of(result, "b").waited_us == pytest.approx(0.5)
    alone = played("serial", *operations, gpu=tiny(stream_turn_us=0.5))
    assert alone.makespan_us == pytest.approx(34.0)


def test_kernels_of_a_graph_after_its_first_start_sooner_and_take_no_turns() -> None:
    """First blocks take the 0.75 us longer that a kernel starts sooner; the other stream would cost 0.5 us."""
    a, b = stream("a", kernel("a", 4, 11.0), kernel("a2", 4, 11.0)), stream("b", kernel("b", 1, 1.0))
    gpu = tiny(8, stream_turn_us=0.5)
    sooner = replace(gpu, model=gpu.model.model_copy(update={"graph_latency_us": gpu.model.launch_latency_us - 0.75}))
    runs = played("leftover", a, b, gpu=sooner).kernel_runs
    latencies = [run.start_us - run.ready_us for run in runs if run.stream == "a"]
    assert latencies == pytest.approx([sooner.model.launch_latency_us, sooner.model.graph_latency_us])
    assert [run.end_us for run in runs if run.stream == "a"] == pytest.approx([11.0, 22.0])


def test_a_launch_of_a_graph_waits_for_memory_that_others_use() -> None:
    """A keeps DRAM busy for half of its 10 us; b, of a graph, is let start meanwhile and reads DRAM before."""
    gpu = tiny(8)
    sooner = replace(gpu, model=gpu.model.model_copy(update={"graph_latency_us": 0.25}))
    half = 0.5 * 10.0 * gpu.model.dram_sustained_gb_per_s * 1e3 / 8
    reads = launch(8, 11.0, threads=512).model_copy(update={"mix": Mix(dram_read_bytes=half, dram_write_bytes=0.0)})
    a = stream("a", Kernel(id="a", kind="kernel", kernel=reads))
    first = kernel("first", 1, 2.0, threads=512)
    b = stream("b", first, host("wait", 3.0), kernel("b", 1, 2.0, threads=512))
    result = played("leftover", a, b, gpu=sooner)
    wait_us = launch_wait_us(0.5, 0.0, 0.0)
    assert wait_us == pytest.approx(2 * 0.6 * 0.25)
    assert run_of(result, "b").waited_us == pytest.approx(wait_us)
    assert run_of(result, "b").start_us == pytest.approx(run_of(result, "b").ready_us + 0.25 + wait_us)
    alone = played("leftover", b, gpu=sooner)
    assert run_of(alone, "b").waited_us == pytest.approx(0.0)
    apart = played("leftover", a, b.model_copy(update={"gpu": 1}), gpu=sooner)
    assert run_of(apart, "b").waited_us == pytest.approx(0.0)


def test_a_launch_of_a_graph_delays_blocks_of_other_streams_that_wait_for_data() -> None:
    """b2 and b3 start while a runs: 0.5 us each for the 3/4 of its time in which it waits. b is its stream's first."""
    gpu = tiny(8)
    delayed = replace(gpu, model=gpu.model.model_copy(update={"graph_latency_us": 0.25, "block_delay_us": 0.5}))
    waits = launch(2, 11.0).model_copy(update={"mix": Mix(stalls=WarpStalls(long_scoreboard=3.0, wait=1.0))})
    a = stream("a", Kernel(id="a", kernel=waits))
    b = stream("b", host("wait", 3.0), *(kernel(id, 1, 2.0) for id in ("b", "b2", "b3")))
    result, alone = played("leftover", a, b, gpu=delayed), played("leftover", b, gpu=delayed)
    assert run_of(result, "a").end_us == pytest.approx(11.0 + 2 * 0.75 * 0.5)
    assert [run_of(result, id).end_us for id in ("b", "b2", "b3")] == [
        run_of(alone, id).end_us for id in ("b", "b2", "b3")
    ]
    apart = played("leftover", a, b.model_copy(update={"gpu": 1}), gpu=delayed)
    assert run_of(apart, "a").end_us == pytest.approx(11.0)
    computes = stream("a", kernel("a", 2, 11.0))
    assert run_of(played("leftover", computes, b, gpu=delayed), "a").end_us == pytest.approx(11.0)


def test_a_stream_that_waits_for_another_delays_kernels_too() -> None:
    """B has no kernel under way, but the device looks at it in turns of 0.5 us until a2 has ended."""
    a, b = stream("a", kernel("a", 1, 11.0), kernel("a2", 1, 6.0)), stream("b", kernel("b", 1, 11.0, "a2"))
    result = played("leftover", a, b, gpu=tiny(stream_turn_us=0.5))
    assert times(result) == {"a": (0.0, 11.5), "a2": (11.5, 18.0), "b": (18.0, 29.0)}
    assert played("serial", a, b, gpu=tiny(stream_turn_us=0.5)).makespan_us == pytest.approx(28.0)
    apart = played("leftover", a, b.model_copy(update={"gpu": 1}), gpu=tiny(stream_turn_us=0.5))
    assert times(apart) == {"a": (0.0, 11.0), "a2": (11.0, 17.0), "b": (17.0, 28.0)}


def test_a_stream_that_the_host_keeps_back_delays_nobody() -> None:
    """The host has queued nothing of b before a2 has ended, so the device has nothing of b to look at."""
    b = kernel("b", 1, 11.0, "a2").model_copy(update={"host_waits": True})
    a, beside = stream("a", kernel("a", 1, 11.0), kernel("a2", 1, 6.0)), stream("b", b)
    result = played("leftover", a, beside, gpu=tiny(stream_turn_us=0.5))
    assert times(result) == {"a": (0.0, 11.0), "a2": (11.0, 17.0), "b": (17.0, 28.0)}


def test_streams_of_another_gpu_delay_nobody() -> None:
    operations = [stream(name, kernel(name, 1, 11.0)) for name in ("a", "b")]
    apart = [operations[0], operations[1].model_copy(update={"gpu": 1})]
    assert times(played("leftover", *apart, gpu=tiny(stream_turn_us=0.5))) == {"a": (0.0, 11.0), "b": (0.0, 11.0)}


def test_a_device_tells_eight_streams_apart() -> None:
    assert [turn_wait_us(others, 0.5) for others in (0, 1, 3, 7, 8, 100)] == [0.0, 0.5, 1.5, 3.5, 3.5, 3.5]


def test_in_green_contexts_half_of_several_other_streams_take_turns() -> None:
    found = [turn_wait_us(others, 1.0, own_sms=True) for others in (0, 1, 2, 3, 7, 100)]
    assert found == [0.0, 0.0, 1.0, 1.5, 3.5, 3.5]
    operations = [stream(name, kernel(name, 1, 11.0)) for name in ("a", "b")]
    result = played("green-context:sms=8+8", *operations, gpu=tiny(16, stream_turn_us=0.5))
    assert times(result) == {"a": (0.0, 11.0), "b": (0.0, 11.0)}


def test_left_over_lets_the_next_kernel_in_once_the_first_has_placed_its_last_block() -> None:
    """A places 4 blocks at 1 and 2 at 11, when B gets the other two SMs; then B has all: 4 at 21, 2 at 31."""
    result = played("leftover", stream("a", kernel("a", 6, 21.0)), stream("b", kernel("b", 8, 21.0)))
    a, b = run_of(result, "a"), run_of(result, "b")
    assert (a.start_us, a.dispatched_us, round(a.end_us, 6)) == (1.0, 11.0, 21.0)
    assert (b.start_us, round(b.dispatched_us, 6), round(b.end_us, 6)) == (11.0, 31.0, 41.0)
    assert (b.waited_us, round(b.sharing_us, 6)) == (10.0, 10.0)
    assert [span[:2] for span in spans(result, "b")] == [(0, 2), (1, 2), (2, 2), (3, 2)]


def test_left_over_holds_back_what_would_fit_now() -> None:
    """The small kernel C could run beside B at once, but A and then B are before it in the line."""
    result = played(
        "leftover",
        stream("a", kernel("a", 8, 21.0, threads=512 + 256)),
        stream("b", kernel("b", 8, 21.0)),
        stream("c", kernel("c", 1, 5.0, threads=32)),
    )
    assert run_of(result, "c").start_us >= run_of(result, "b").dispatched_us >= run_of(result, "a").dispatched_us


def test_blocks_go_where_registers_of_each_scheduler_leave_most_room() -> None:
    """Beside a warp of 5376 registers a scheduler has three warps of 3072, the SM six blocks of two; summed, seven.

    Of an idle SM's ten places four are taken before SMs with room for six are as good.
    """

    def of_registers(id: str, blocks: int, threads: int, registers: int, duration_us: float) -> Kernel:
        made = kernel(id, blocks, duration_us, threads=threads)
        return made.model_copy(update={"kernel": made.kernel.model_copy(update={"registers_per_thread": registers})})

    wide, narrow = of_registers("a1", 3, 128, 168, 41.0), of_registers("b1", 4, 64, 96, 11.0)
    result = played("leftover", stream("a", wide), stream("b", host("wait", 5.0), narrow))
    assert [sm for sm, *_ in spans(result, "a1")] == [0, 1, 2]
    assert [(sm, blocks) for sm, blocks, *_ in spans(result, "b1")] == [(3, 4)]


def test_serial_runs_stream_after_stream() -> None:
    result = played(
        "serial", stream("a", kernel("a", 8, 21.0), kernel("a2", 8, 21.0)), stream("b", kernel("b", 8, 21.0))
    )
    ends = {run.operation: round(run.end_us, 6) for run in result.kernel_runs}
    assert ends == {"a": 21.0, "a2": 42.0, "b": 63.0}


def test_a_higher_priority_takes_the_next_sm_that_frees() -> None:
    """B is ready at 5 and waits for running blocks only; A goes on when B has placed its last."""
    result = played(
        "leftover",
        stream("low", kernel("a", 12, 31.0)),
        stream("high", host("h", 5.0), kernel("b", 8, 21.0), priority=1),
    )
    b, a = run_of(result, "b"), run_of(result, "a")
    assert (b.ready_us, b.start_us, round(b.end_us, 6)) == (5.0, 11.0, 31.0)
    assert (a.start_us, round(a.dispatched_us, 6), round(a.end_us, 6)) == (1.0, 41.0, 51.0)


def test_first_goes_before_its_equals() -> None:
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 8, 21.0)))
    result = played("leftover:first=b", *streams)
    assert [round(run.end_us, 6) for run in result.kernel_runs] == [41.0, 21.0]


def test_kernels_of_a_library_fork_and_join() -> None:
    """main, then two at once on streams of the library's own, then main: each of the two fills two of four SMs."""
    launches = (
        launch(8, 21.0),
        launch(2, 11.0, "internal0"),
        launch(2, 11.0, "internal1"),
        launch(8, 21.0),
    )
    result = played("leftover", stream("a", convolution("c", launches)))
    starts = [round(run_of(result, "c", i).ready_us, 6) for i in range(4)]
    ends = [round(run_of(result, "c", i).end_us, 6) for i in range(4)]
    assert starts == [0.0, 21.0, 21.0, 32.0]
    assert ends == [21.0, 32.0, 32.0, 53.0]
    assert times(result) == {"c": (0.0, 53.0)}


def test_a_loop_runs_back_to_back() -> None:
    result = played("leftover", stream("a", kernel("k", 8, 21.0), arrivals=LoopArrivals(kind="loop", count=3)))
    found = [(round(r.release_us, 6), round(r.end_us, 6)) for r in result.request_runs]
    assert found == [(0.0, 21.0), (21.0, 42.0), (42.0, 63.0)]


def test_requests_wait_for_the_one_before() -> None:
    arrivals = TimesArrivals(kind="times", times_us=(2.0, 10.0, 100.0))
    result = played("leftover", stream("a", kernel("k", 8, 21.0), arrivals=arrivals))
    found = [(r.release_us, round(r.start_us, 6), round(r.end_us, 6)) for r in result.request_runs]
    assert found == [(2.0, 2.0, 23.0), (10.0, 23.0, 44.0), (100.0, 100.0, 121.0)]
    assert list(result.requests["latency_us"].round(6)) == [21.0, 34.0, 21.0]


# ---- policies of our own, to see what the engine does with a decision ----------------------------------------------


@dataclass
class Split(Policy):
    """Streams on SMs of their own; blocks a SM may hold."""

    name = "split"
    summary = "for tests"
    sms: dict[str, frozenset[int]] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)

    def partition(self, view: View) -> Partition:
        return Partition(
            tuple(
                Grant(k.id, blocks_per_sm=self.blocks.get(k.stream), sms=self.sms.get(k.stream), queue=k.stream_index)
                for k in view.kernels
            )
        )


def test_a_mask_keeps_a_kernel_on_its_sms() -> None:
    policy = Split(sms={"a": frozenset({0}), "b": frozenset({1, 2, 3})})
    result = played(policy, stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 9, 31.0)))
    assert times(result) == {"a": (0.0, 81.0), "b": (0.0, 31.0)}
    assert [span[:2] for span in spans(result, "a")] == [(0, 8)]
    assert [span[:2] for span in spans(result, "b")] == [(1, 3), (2, 3), (3, 3)]


def test_a_cap_is_kept() -> None:
    """Four small blocks would fit an SM; with one at a time a kernel of 8 takes two turns on 4 SMs."""
    result = played(Split(blocks={"a": 1}), stream("a", kernel("a", 8, 21.0, threads=256)))
    run = run_of(result, "a")
    assert [span[1] for span in spans(result, "a")] == [2, 2, 2, 2]
    assert run.dispatched_us > run.start_us


@dataclass
class Preempting(Policy):
    """Takes the blocks of the first stream off SM 0 when the second has a kernel, and gives that the SM."""

    name = "preempting"
    summary = "for tests"
    cost_us: float = 0.0
    done: bool = False

    def partition(self, view: View) -> Partition:
        second = [k for k in view.kernels if k.stream_index == 1]
        first = [k for k in view.kernels if k.stream_index == 0]
        evictions: tuple[Eviction, ...] = ()
        if second and first and not self.done and view.now_us > 0.0:
            self.done = True
            evictions = (Eviction(first[0].id, 0, 1, self.cost_us),)
        masks = [Grant(k.id, sms=frozenset({0}), queue=1) for k in second]
        others = frozenset({1, 2, 3}) if second else None
        return Partition((*masks, *(Grant(k.id, sms=others) for k in first)), evictions)


@pytest.mark.parametrize(("cost_us", "end"), [(0.0, 27.0), (2.0, 29.0)])
def test_an_evicted_block_comes_back_with_what_it_had_left(cost_us: float, end: float) -> None:
    """A runs 4 + 4 blocks of 10 us from 1 on; B is ready at 5 and has SM 0 from 6 to 16.

    The evicted block has 6 us left and is the first to go on: on SM 1 from 11 to 17 and, if eviction has a cost,
    longer. Two more start at 11, one at 16 when SM 0 frees, the last when the evicted one has ended.
    """
    result = played(
        Preempting(cost_us=cost_us),
        stream("a", kernel("a", 8, 21.0)),
        stream("b", host("h", 5.0), kernel("b", 1, 11.0)),
    )
    a, b = run_of(result, "a"), run_of(result, "b")
    assert (b.ready_us, b.start_us, round(b.end_us, 6)) == (5.0, 6.0, 16.0)
    assert round(a.end_us, 6) == end
    assert sum(span[1] for span in spans(result, "a")) == 8


@dataclass
class Waking(Policy):
    """Gives one SM until a time, then all."""

    name = "waking"
    summary = "for tests"
    at_us: float = 15.0

    def partition(self, view: View) -> Partition:
        early = view.now_us < self.at_us
        grants = tuple(Grant(k.id, sms=frozenset({0}) if early else None) for k in view.kernels)
        return Partition(grants, wake_us=self.at_us if early else None)


def test_a_policy_is_asked_again_when_it_wants() -> None:
    """SM 0 runs a block to 11 and one to 21; at 15 three more SMs join: 3 blocks to 25, one at 21, two at 25."""
    result = played(Waking(), stream("a", kernel("k", 8, 21.0)))
    assert spans(result, "k") == [(0, 3, 1.0, 31.0), (1, 2, 15.0, 35.0), (2, 2, 15.0, 35.0), (3, 1, 15.0, 25.0)]


@dataclass
class Watching(Policy):
    """Lets all kernels start, and keeps what it sees."""

    name = "watching"
    summary = "for tests"
    seen: list[View] = field(default_factory=list)

    def partition(self, view: View) -> Partition:
        self.seen.append(view)
        return Partition(tuple(Grant(k.id) for k in view.kernels))


def test_every_field_of_a_view_has_its_own_value() -> None:
    """The engine builds views by position, so each field is compared by name."""
    session, watching, shipped = Session("h200"), Watching(), gpusim.load_trace(TRACES / "inception_3a.json.gz")
    session.replay(shipped, watching)
    kernels = session.kernels(shipped)
    models = [kernels.model(launch, "") for launch in kernels.worked_out(shipped).launches()]
    known = {(model.name, model.solo_us): model for model in models}
    seen = {(shown.name, shown.solo_us): shown for view in watching.seen for shown in view.kernels}
    assert set(seen) == set(known)
    for one, shown in seen.items():
        model = known[one]
        of_model = {
            "blocks": model.blocks,
            "footprint": model.footprint,
            "blocks_per_sm": model.blocks_per_sm,
            "dram_load": model.own_load.dram,
            "l2_load": model.own_load.l2,
            "issue_us": model.busy_us("issue_cycles"),
            "memory_us": model.busy_us("l1_cycles"),
            "dram_us": model.dram_share_us,
            "l2_us": model.unit_us * model.load.l2,
            "memory_stall_share": model.memory_stall_share,
            "latency_us": model.latency_us,
        }
        assert {column: getattr(shown, column) for column in of_model} == of_model
        assert len({value for value in of_model.values() if isinstance(value, float)}) > 6  # they tell fields apart
    for view in watching.seen:
        asked = view.residents, view.solo_rate, view.mix_rates, view.blocks_done, view.progress
        assert [one.__name__.strip("_") for one in asked] == list(View._fields[4:9])


@dataclass
class Withdrawing(Policy):
    """Stream s places blocks before the others, but from 11.5 us on only while they have none on the SMs."""

    name = "withdrawing"
    summary = "for tests"

    def partition(self, view: View) -> Partition:
        late = view.now_us >= 11.5
        full = any(kernel.resident for kernel in view.kernels)
        may = [k for k in view.kernels if not (late and full and k.stream == "s")]
        return Partition(
            tuple(Grant(k.id) for k in sorted(may, key=lambda k: k.stream)), wake_us=None if late else 11.5
        )


def test_a_launch_whose_grant_was_withdrawn_before_it_arrived_holds_up_nobody() -> None:
    """At 12 c takes the slot that a left at 11, but not its place before d, which begins when b ends."""
    first = stream("s", kernel("a", 4, 11.0), kernel("c", 4, 11.0))
    result = played(Withdrawing(), first, stream("t", kernel("b", 8, 21.0)), stream("u", kernel("d", 4, 11.0)))
    assert {op: run_of(result, op).start_us for op in "abcd"} == {"a": 1.0, "b": 11.0, "c": 41.0, "d": 31.0}


def test_registers_of_nobody_are_used_when_nothing_runs() -> None:
    result = played("leftover", stream("a", host("h", 10.0), kernel("k", 8, 21.0)))
    shares = result.usage.shares
    assert len(shares) == 4
    bins = [i for i in range(len(shares[0])) if (i + 1) * result.usage.bin_us <= 11.0]
    assert all(value == 0.0 for sm in shares for i in bins for value in sm[i])


def test_usage_says_what_was_held() -> None:
    """Two waves of one block a SM, which holds all registers and half the warps, from 1 to 21."""
    result = played("leftover", stream("a", kernel("k", 8, 21.0)))
    for sm in result.usage.shares:
        held = [sum(bin_[i] for bin_ in sm) * result.usage.bin_us for i in range(4)]
        assert held == pytest.approx([20.0, 20.0 * 1024 / 233472, 10.0, 20.0 / 32])


# ---- what cannot be replayed ----------------------------------------------------------------------------------------


@dataclass
class Stubborn(Policy):
    """Grants nothing, or nothing that helps."""

    name = "stubborn"
    summary = "for tests"
    how: str = "nothing"

    def partition(self, view: View) -> Partition:
        if self.how == "nothing":
            return Partition(())
        if self.how == "no SM":
            return Partition(tuple(Grant(k.id, sms=frozenset()) for k in view.kernels))
        if self.how == "no block":
            return Partition(tuple(Grant(k.id, blocks_per_sm=0) for k in view.kernels))
        if self.how == "twice":
            return Partition(tuple(Grant(k.id) for k in view.kernels for _ in range(2)))
        return Partition((Grant(99),))


@pytest.mark.parametrize("how", ["nothing", "no SM", "no block", "twice", "another"])
def test_a_policy_that_runs_nothing_is_an_error(how: str) -> None:
    with pytest.raises(InputError) as error:
        played(Stubborn(how=how), stream("a", kernel("k", 8, 21.0)), stream("b", kernel("l", 8, 21.0)))
    assert "\n" not in str(error.value)


def test_a_kernel_that_fits_no_sm_is_an_error() -> None:
    limits = tiny().limits.model_copy(update={"registers_per_sm": 32768, "registers_per_block": 32768})
    small = replace(tiny(), limits=limits)
    with pytest.raises(
        InputError, match=r"streams\[0\].operations\[1\].*a block asks for more registers than tiny has"
    ):
        replayed(trace(stream("a", host("h", 1.0), kernel("k", 8, 21.0))), small)


def test_more_kernels_than_the_gpu_runs_at_once_wait() -> None:
    streams = [stream(f"s{n}", kernel(f"k{n}", 8, 21.0)) for n in range(140)]
    result = played("leftover", *streams)
    assert [round(run.end_us, 6) for run in result.kernel_runs] == [21.0 + 20.0 * n for n in range(140)]


def test_a_trace_of_another_gpu_must_say_which() -> None:
    with pytest.raises(InputError, match="device"):
        replayed(trace(stream("a", kernel("k", 8, 21.0)), device="nowhere"), tiny())


# ---- alone ----------------------------------------------------------------------------------------------------------


def test_alone_means_without_the_others_and_what_they_hold_up() -> None:
    made = trace(
        stream("a", kernel("a", 8, 21.0)),
        stream("b", host("h", 3.0), kernel("b", 8, 21.0, "a")),
        stream("c", host("c", 4.0), arrivals=TimesArrivals(kind="times", times_us=(10.0, 11.0))),
    )
    gpu = tiny()
    solo = Session(gpu).isolated_us(made)
    assert {name: round(us, 6) for name, us in solo.items()} == {"a": 21.0, "b": 24.0, "c": 8.0}
    result = replayed(made, gpu)
    assert result.stream_runs[1].slowdown == pytest.approx(42.0 / 24.0)


def test_without_placements_the_rest_is_the_same() -> None:
    made, gpu = trace(stream("a", kernel("k", 9, 31.0)), stream("b", kernel("l", 6, 11.0))), tiny()
    whole, bare = replayed(made, gpu), replayed(made, gpu, keep=())
    assert len(whole.placements) > 0
    assert len(bare.placements) == 0
    assert (bare.kernel_runs, bare.usage) == (whole.kernel_runs, whole.usage)


def test_a_kind_of_operation_says_what_it_occupies() -> None:
    with pytest.raises(TypeError, match=r"Barrier has neither launches\(\) nor occupies\(\)"):

        class Barrier(Operation):
            """Says nothing of it."""


def test_a_stream_without_operations_starts_at_its_release_and_is_no_part_of_the_makespan() -> None:
    late = stream("late", arrivals=TimesArrivals(kind="times", times_us=(1000.0,)))
    result = replayed(trace(stream("a", kernel("a", 4, 10.0)), late), tiny(), "leftover")
    assert (result.makespan_us, result.metrics["speedup"]) == (pytest.approx(10.0), 1.0)
    run = result.stream_runs[1]
    assert (run.release_us, run.start_us, run.end_us) == (1000.0, 1000.0, 1000.0)
