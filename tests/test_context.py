"""What operations take after others: a switch of instructions, and what L2 no longer holds."""

from __future__ import annotations

from dataclasses import replace
from math import fsum

import pytest
from tiny import convolution, launch, stream, tiny, trace

from gpusim.calibrate.fit import anchored
from gpusim.engine.alone import IdleSMs, alone_under
from gpusim.engine.sm_array import run_alone
from gpusim.model.contention import mix_times
from gpusim.model.context import in_context
from gpusim.policies.interface import Grant
from gpusim.session import Session
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
from gpusim.trace.operations import Convolution, LoopArrivals

GPU = tiny(switch_us=2.0)
KEPT = GPU.model.l2_kept_share * GPU.l2_bytes


def told(id: str, touched: float, *durations_us: float) -> Convolution:
    """A call that takes 30 us warm and 36 cold from event to event."""
    op = convolution(id, [launch(4, us) for us in durations_us])
    known = {"touched_bytes": int(touched), "warm_us": 30.0, "cold_us": 36.0}
    return op.model_copy(update={"selected": op.selected.model_copy(update=known)})


def durations(op: object) -> list[float]:
    assert isinstance(op, Convolution)
    return [kernel.duration_us for kernel in op.launches()]


def test_calls_in_turn_load_their_instructions_and_wait_for_what_l2_has_lost() -> None:
    """Of what L2 keeps nothing is lost; half as much again takes half of the tensors away, twice as much all."""
    for touched, lost_share in ((1.0, 0.0), (1.5, 0.5), (2.0, 1.0), (3.0, 1.0)):
        half = touched * KEPT / 2.0
        longer = in_context(trace(stream("a", told("x", half, 20.0, 8.0), told("y", half, 10.0))), GPU)
        x, y = (durations(op) for op in longer.operations())
        assert x == pytest.approx([20.0 * (1.0 + lost_share * 6.0 / 28.0) + 2.0, 8.0 * (1.0 + lost_share * 6.0 / 28.0)])
        assert y == pytest.approx([10.0 + lost_share * 6.0 + 2.0])


def test_a_call_loses_to_others_only_what_it_does_not_lose_by_itself() -> None:
    longer = in_context(trace(stream("a", told("x", 3.0 * KEPT, 20.0), told("y", 1.0, 10.0))), GPU)
    assert [durations(op) for op in longer.operations()] == [[22.0], [18.0]]


def test_counters_tell_what_a_call_touches_where_the_trace_does_not() -> None:
    """Reads of DRAM, and writes that L2 counts one and a half times."""
    mix = Mix(dram_read_bytes=KEPT / 8.0, l2_write_bytes=1.5 * KEPT / 8.0)  # of each of four blocks

    def counted(id: str) -> Convolution:
        op = told(id, 0, 20.0)
        kernels = tuple(kernel.model_copy(update={"mix": mix}) for kernel in op.selected.kernels)
        untold = {"touched_bytes": None, "kernels": kernels}
        return op.model_copy(update={"selected": op.selected.model_copy(update=untold)})

    longer = in_context(trace(stream("a", counted("x"), counted("y"))), GPU)
    assert [durations(op) for op in longer.operations()] == [[pytest.approx(28.0)]] * 2


def test_a_call_of_one_kernel_leaves_nothing_in_its_workspace() -> None:
    def lasts(*durations_us: float) -> float:
        op = told("x", KEPT, *durations_us)
        with_workspace = op.selected.model_copy(update={"workspace_bytes": int(KEPT)})
        op = op.model_copy(update={"selected": with_workspace})
        return fsum(durations(next(in_context(trace(stream("a", op, told("y", KEPT, 10.0))), GPU).operations())))

    assert lasts(20.0) == pytest.approx(20.0 + 2.0)
    assert lasts(12.0, 8.0) == pytest.approx(20.0 + 2.0 + 6.0)


def test_a_call_alone_or_repeated_and_calls_of_which_no_warm_time_is_known_take_what_was_recorded() -> None:
    alone = trace(stream("a", told("x", 3 * KEPT, 20.0)))
    assert in_context(alone, GPU) is alone
    loop = stream("a", told("x", 3 * KEPT, 20.0)).model_copy(update={"arrivals": LoopArrivals(kind="loop", count=3)})
    beside = in_context(trace(loop, stream("b", told("y", 0, 20.0))), GPU)
    assert [durations(op) for op in beside.operations()] == [[20.0], [28.0]]
    unknown = trace(stream("a", convolution("x", [launch(4, 20.0)]), convolution("y", [launch(4, 20.0)])))
    assert in_context(unknown, GPU) is unknown


def test_a_chain_takes_the_sum_with_and_without_events() -> None:
    chain = trace(stream("a", told("x", KEPT, 20.0, 8.0), told("y", 2 * KEPT, 10.0)))
    session = Session(GPU)
    total = 28.0 + 10.0 + 2 * 2.0 + 2 * 6.0
    assert session.makespan_us(chain, "serial") == pytest.approx(total, rel=1e-9)


def test_a_cold_call_asks_the_sm_for_what_it_asks_warm_and_waits_for_the_rest() -> None:
    counted = Mix(issue_cycles=5000.0, active_cycles_avg=20_000.0, stalls=WarpStalls(wait=3.0, long_scoreboard=1.0))
    op = convolution("x", [launch(4, 20.0).model_copy(update={"mix": counted})])
    known = {"touched_bytes": int(KEPT), "warm_us": 20.0, "cold_us": 30.0}
    op = op.model_copy(update={"selected": op.selected.model_copy(update=known)})
    longer, _ = in_context(trace(stream("a", op, told("y", 2 * KEPT, 10.0))), GPU).operations()
    (kernel,) = longer.launches()
    assert kernel.duration_us == 20.0 * 1.5 + 2.0
    assert kernel.mix == counted.model_copy(
        update={"active_cycles_avg": 30_000.0, "stalls": WarpStalls(wait=3.0, long_scoreboard=1.0 + 0.5 * 4.0)}
    )
    warm, cold = anchored(op.launches()[0], GPU), anchored(kernel, GPU)
    assert cold.busy_us("issue_cycles") == pytest.approx(warm.busy_us("issue_cycles"), rel=0.05)


def test_loading_is_time_without_blocks() -> None:
    model = anchored(launch(4, 20.0).model_copy(update={"load_us": 2.0}), GPU)
    assert model.latency_us == 2.0 + GPU.model.launch_latency_us
    assert model.latency_us + run_alone(model, GPU)[0] == pytest.approx(20.0, rel=1e-12)


def fetching(launched: KernelLaunch) -> KernelLaunch:
    """A launch whose warps waited for instructions and constants a tenth of the time."""
    mix = Mix(stalls=WarpStalls(no_instruction=0.3, imc_miss=0.1, selected=1.0, not_selected=2.6))
    return launched.model_copy(update={"mix": mix})


def test_first_blocks_wait_for_instructions_and_constants_and_the_recorded_time_stays() -> None:
    model = anchored(fetching(launch(8, 20.0)), GPU)  # two waves of four SMs: 1 us latency, 1 us ramp, twice 9 us
    assert model.latency_us + run_alone(model, GPU)[0] == pytest.approx(20.0, rel=1e-12)
    assert model.ramp_work == pytest.approx(1.0 / 9.0, rel=1e-6)


def test_a_ramp_takes_as_long_however_many_of_the_first_blocks_share_an_sm() -> None:
    model = anchored(fetching(launch(4, 20.0, threads=256)), GPU)  # four of its blocks fit on an SM
    times = [mix_times([(model.demand, count)])[0] for count in range(1, 5)]
    assert times[3] > 1.5 * times[0]
    assert model.ramps == pytest.approx([model.ramp_work * times[0] / time for time in times])
    assert replace(model, ramp_work=0.0).ramps == ()


def test_a_limit_on_blocks_saves_no_ramp() -> None:
    """Of a saturated SM, whose four blocks do little more than one: the ramp lasts as long for one."""
    mix = Mix(alu_utilisation_percent=99.0, stalls=WarpStalls(no_instruction=1.0, selected=1.0, not_selected=8.0))
    launched = launch(16, 20.0, threads=256).model_copy(update={"mix": mix})
    gpu = replace(GPU, model=GPU.model.model_copy(update={"block_jitter": 0.0}))
    model = anchored(launched, gpu)
    assert model.most_resident == 4
    assert model.ramp_work > 0.1
    idle = IdleSMs(gpu)
    assert min(alone_under(Grant(0, blocks_per_sm=most), model, idle).us for most in (1, 2, 4)) >= 19.0 - 1e-9
