"""The engine against one simpy process a block (see `oracle`): the same makespans, to within half a per cent.

Small shipped traces and random ones here; every shipped trace, which takes minutes, in benchmarks/.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from block_processes import slow_sms
from cores import array_of, ends, line, own_pace, submit
from hypothesis import Phase, given
from hypothesis import strategies as st
from strategies import examples, traces
from tiny import kernel, stream, tiny
from tiny import trace as made

from gpusim import load_gpu, load_trace
from gpusim.engine import sm_array
from gpusim.hardware.gpu import GPU
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Kernel

TRACES = Path(__file__).resolve().parent.parent / "traces"
POLICIES = ["serial", "leftover", "even", "inter-sm", "smk", "warped-slicer"]
PAIR = "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
TOLERANCE = 0.005


def both(trace: Trace, policy: str, gpu: GPU | None = None) -> tuple[Result, Result]:
    """The trace replayed by the engine, and on the slow SMs."""
    gpu = gpu or load_gpu(trace.device)
    session = Session(gpu, gpu)
    fast = session.replay(trace, policy, keep=["placements"])
    with slow_sms():
        slow = session.replay(trace, policy, keep=["placements"])
    return fast, slow


@pytest.mark.parametrize("processes", [slow_sms, nullcontext], ids=["a process a block", "the core"])
def test_an_end_is_told_once_its_sm_is_refilled(processes: Callable[[], AbstractContextManager[None]]) -> None:
    """One SM for one block at a time: 0 runs to 1, and 1, which has two blocks, from then to 3."""
    with processes():
        array = array_of(sm_array, rates=own_pace(1.0, 1.0))
    submit(array, 0, 1, need=(0, 0, 64, 1))
    submit(array, 1, 2, need=(0, 0, 64, 1))
    line(array, 0, 1)
    assert (array.advance(5.0), array.now, array.resident_blocks(1)) == (0, 1.0, 1)
    assert ends(array) == [(1, 3.0)]


@pytest.mark.parametrize("processes", [slow_sms, nullcontext], ids=["a process a block", "the core"])
def test_an_sm_is_refilled_after_the_clock_started_again(processes: Callable[[], AbstractContextManager[None]]) -> None:
    with processes():
        array = array_of(sm_array, rates=own_pace(1.0))
    for origin, blocks in ((0.0, 1), (10.0, 2)):
        array.restart_clock(origin)
        submit(array, 0, blocks, caps=1)
        line(array, 0)
        assert (array.advance(5.0), array.now) == (0, float(blocks))


@pytest.mark.parametrize("policy", POLICIES)
def test_two_convolutions_take_as_long_as_one_process_a_block(policy: str) -> None:
    fast, slow = both(load_trace(TRACES / "spaa20_table1.json"), policy)
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=TOLERANCE)


@pytest.mark.release
@pytest.mark.parametrize("policy", ["leftover", "even", "smk"])
def test_a_recorded_pair_takes_as_long_as_one_process_a_block(policy: str) -> None:
    fast, slow = both(load_trace(TRACES / PAIR), policy)
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=TOLERANCE)


@pytest.mark.release
def test_an_sm_split_in_which_the_last_wave_matters() -> None:
    """784 blocks, two to an SM, on 64 SMs: six waves and a bit."""
    fast, slow = both(load_trace(TRACES / PAIR), "inter-sm:sms=64+68")
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=TOLERANCE)


@pytest.mark.parametrize("policy", [*POLICIES, "inter-sm:sms=9+11", "time-slicing"])
def test_clusters_and_persistent_kernels_run_as_one_process_a_block(policy: str) -> None:
    """Of 20 SMs two GPCs of 8 hold clusters of three; two kernels share their work, one has clusters for two waves."""
    gpu = replace(tiny(20, jitter=0.02, graph_latency_us=0.25, block_delay_us=0.5), sms_per_gpc=(8, 8, 2, 2))

    def large(id: str, duration_us: float, *grid: int) -> Kernel:
        wide = {"grid": grid, "dynamic_shared_memory_bytes": 200 << 10}
        given = kernel(id, 1, duration_us)
        return given.model_copy(update={"kernel": given.kernel.model_copy(update=wide)})

    streams = [
        stream("a", large("a0", 21.0, 4, 3, 1), kernel("a1", 30, 12.0), large("a2", 15.0, 20, 1, 1)),
        stream("b", kernel("b0", 7, 9.0), large("b1", 21.0, 6, 3, 1), large("b2", 30.0, 4, 3, 1)),
    ]
    fast, slow = both(made(*streams), policy, gpu)
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=1e-9)
    assert _where(fast) == _where(slow)


def _where(result: Result) -> list[tuple[int, int, int, float, float]]:
    """Which SMs ran how many blocks of which launch, from when to when: to within rounding, in which the two differ."""
    return [(at.run, at.sm, at.blocks, round(at.start_us, 6), round(at.end_us, 6)) for at in result.placements]


@examples(25, everyday=4, phases=[Phase.explicit, Phase.generate])  # to shrink what takes seconds takes for ever
@given(trace=traces(max_streams=8, max_operations=3, max_blocks_x=150), policy=st.sampled_from(POLICIES))
def test_random_traces_take_as_long_as_one_process_a_block(trace: Trace, policy: str) -> None:
    fast, slow = both(trace, policy)
    assert fast.makespan_us == pytest.approx(slow.makespan_us, rel=TOLERANCE, abs=1e-9)
    assert [run.kernel for run in fast.kernel_runs] == [run.kernel for run in slow.kernel_runs]
