"""Lower bounds of makespans: by hand, and as properties of thousands of replays."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, kernels
from test_choose import GPU, TRACES, every_plan, problems, replayed
from tiny import convolution, launch, stream, trace

from gpusim import load_gpu, load_trace
from gpusim.calibrate.fit import anchored
from gpusim.choose.bound import Bounds, bound_of_trace, displaced_bytes
from gpusim.choose.least import JUMPED, Least, least_of_kernel, least_of_launches, least_work, less_of, tile_works
from gpusim.choose.moves import fastest, first_splits, lane_weights
from gpusim.choose.plan import Plan, PlannedWork, planned_trace
from gpusim.choose.search import select, work_of
from gpusim.engine.launches import jitter_factor
from gpusim.engine.skipping import SKIPPED_WAVES
from gpusim.model.contention import SHARED, WarpDemand, mix_times
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import MemoryLoad
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix
from gpusim.trace.operations import Kernel


def bounded(jitter: float = 0.0, **changed: object) -> KernelModel:
    """Eight blocks on 4 SMs, one at a time on each: 0.3 + 7 x 0.1 = 1 per instruction, so 3 us a block; 1 us to launch.

    Of the resource that binds it a warp takes 0.1, and 8 of them compete.
    """
    known = replace(
        anchored(launch(8, 20.0), GPU),
        unit_us=3.0,
        latency_us=1.0,
        jitter=jitter,
        load=MemoryLoad(0.0, 0.0),
        dram_share_us=0.5,
        l2_share_us=0.25,
        l2_apart_us=0.0,
        demand=WarpDemand(8.0, 0.3, 0.1, (0.05, 0.1, 0.01, 0.01, 0.01, 0.01), 1, serial_share=1.0),
    )
    return replace(known, **changed)


@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.5, 0.7])
def test_the_least_of_a_kernel_is_the_work_of_its_blocks_and_that_of_the_busiest_sm(jitter: float) -> None:
    """Eight blocks on 4 SMs, each as long as the engine makes it: all at full pace, and two on some SM."""
    model = bounded(jitter)
    works = [max(0.0, jitter_factor(model.seed, block, jitter)) for block in range(8)]
    least, work = least_of_kernel(model), sum(works)
    assert tile_works(model).tolist() == pytest.approx(works, rel=1e-12)
    paces = [n / mix_times([(model.demand, n)])[0] for n in range(1, model.blocks_per_sm + 1)]
    on_one_sm = max(sum(sorted(works)[:2]) / max(paces), max(works) / paces[0])
    assert least.alone_us == pytest.approx(1.0 + 3.0 * max(work / 4, on_one_sm))
    assert least.busy_us == pytest.approx((work * 8.0 * 0.1 * 3.0 / 4, work * 0.5, work * 0.25))


def test_the_youngest_block_of_an_sm_takes_longest() -> None:
    """Two blocks an SM: the older has 5/8 of its progress and ends first; then the younger has 2/5 of its work left."""
    model = bounded(blocks_per_sm=2, age_preference=0.4)
    one, two = (mix_times([(model.demand, count)])[0] for count in (1, 2))
    assert least_of_kernel(model, undisturbed=True).alone_us == pytest.approx(1.0 + 3.0 * (0.8 * two + 0.4 * one))
    assert least_of_kernel(model).alone_us == pytest.approx(1.0 + 3.0 * two)  # evicted, blocks may share it evenly


def test_blocks_have_their_ramp_or_wait_for_the_first_to_end() -> None:
    """One at a time on an SM: two in a row and a ramp. With room for all, the work of all SMs is as much later."""
    one, two = (mix_times([(bounded().demand, count)])[0] for count in (1, 2))
    alone = bounded(ramp_work=0.25)
    assert least_of_kernel(alone, undisturbed=True).alone_us == pytest.approx(1.0 + 3.0 * 2.25 * one)
    assert least_of_kernel(alone).alone_us == pytest.approx(1.0 + 3.0 * 2.0 * one)  # evicted, a block starts anew
    beside = bounded(ramp_work=0.25, blocks_per_sm=2)
    assert least_of_kernel(beside, undisturbed=True).alone_us == pytest.approx(1.0 + 3.0 * 1.25 * two)


def test_few_blocks_left_wait_less_for_memory() -> None:
    """Of 6 tiles on 4 SMs two come last: with half the load, DRAM slows them less than the first four."""
    model = bounded(blocks=4, tiles=6, load=MemoryLoad(0.25, 0.0), row=4)
    full, half = (model.slowdown(dram, 0.0, 1.0, 1.0) for dram in (1.0, 0.5))
    us = least_of_kernel(model, undisturbed=True).alone_us - 1.0
    assert max(1.5 * full, 2.0) * 2.0 < us <= 2.0 * (full + half) * (1.0 + 1e-9)


@examples(100)
@given(st.integers(41, 400), st.integers(0, 2**31 - 1), st.floats(0.0, 0.6), st.data())
def test_blocks_that_count_as_mean_ones_leave_the_least_work(
    blocks: int, seed: int, jitter: float, data: st.DataObject
) -> None:
    """Whatever rows of `JUMPED` blocks or more a replay jumps over: waves of a block or more."""
    assert JUMPED == SKIPPED_WAVES
    model = bounded(jitter, blocks=blocks, tiles=blocks, seed=seed)
    works = tile_works(model)
    jumped, at = works.copy(), 0
    while at + JUMPED <= blocks:
        start = data.draw(st.integers(at, blocks - JUMPED))
        at = data.draw(st.integers(start + JUMPED, blocks))
        jumped[start:at] = 1.0
    assert least_work(model, works) <= min(jumped.sum(), works.sum()) * (1.0 + 1e-12)
    assert least_work(model, works) >= blocks * max(0.0, 1.0 - sqrt(3.0) * jitter)


def test_the_least_of_an_operation_is_its_longest_chain_and_all_its_work() -> None:
    """Kernels of 7 and 13 us, then beside one another, and one of 7 us after both: 20 + 7."""
    launches = [launch(8, 20.0, stream) for stream in ("main", "internal0", "internal1", "main")]
    models = [bounded(unit_us=us) for us in (3.0, 3.0, 6.0, 3.0)]
    assert least_of_launches(launches, models) == Least(
        pytest.approx(7.0 + 13.0 + 7.0),
        (pytest.approx(4.8 * (3 + 2)), pytest.approx(4 * 4.0), pytest.approx(4 * 2.0)),
    )


@examples(150, everyday=20)
@given(problems(most=4), st.integers(0, 2**31 - 1), st.data())
def test_no_replay_beats_the_bound(made: Trace, seed: int, data: st.DataObject) -> None:
    """Thousands of random plans in the release profile, whatever the jitter of blocks."""
    session = Session(GPU, seed=seed)
    work = work_of(made, GPU)
    bounds = Bounds(work, session)
    every, any_us = every_plan(work, "all"), bounds.of_any(work).us
    for at in data.draw(st.lists(st.integers(0, len(every) - 1), min_size=20, max_size=20)):
        us = replayed(work, every[at], session)
        assert max(any_us, bounds.of_plan(work, every[at])) <= us * (1.0 + 1e-9)


@examples(300, everyday=50)
@given(st.lists(kernels(max_blocks_x=300), min_size=2, max_size=4), st.sampled_from(["leftover", "even", "inter-sm"]))
def test_no_replay_of_kernels_with_counters_beats_the_bound(launches: list[KernelLaunch], policy: str) -> None:
    """Kernels that different resources of an SM bind may run side by side at full speed."""
    streams = [stream(f"s{n}", Kernel(id=f"k{n}", kernel=one)) for n, one in enumerate(launches)]
    made, session = trace(*streams, device="h200"), Session(load_gpu("h200"))
    bound = bound_of_trace(made, session)
    assert bound is not None and bound.us <= session.makespan_us(made, policy) * (1.0 + 1e-9)


RECORDED = ("inception_3a_b16", "inception_4a", "inception_5b_b16", "resnet50_3a")


@cache
def recorded(name: str) -> Bounds:
    session = Session(load_gpu("h200"))
    return Bounds(work_of(load_trace(TRACES / f"{name}.json.gz"), session.gpu), session)


@st.composite
def recorded_plans(draw: st.DrawFn) -> tuple[Bounds, PlannedWork, list[Plan]]:
    """Some operations of a recording, in any streams, by any algorithms, with any way to share the GPU.

    Many plans of few parts of recordings: the bound of all plans of a part takes longest.
    """
    bounds = recorded(draw(st.sampled_from(RECORDED)))
    work = bounds.work.part(sorted(draw(st.sets(st.sampled_from(bounds.work.graph.ids), min_size=1))))
    return bounds, work, [draw_plan(draw, bounds, work) for _ in range(24)]


def draw_plan(draw: st.DrawFn, bounds: Bounds, work: PlannedWork) -> Plan:
    lanes: list[list[str]] = [[] for _ in range(4)]
    for id in work.graph.ids:
        lanes[draw(st.integers(0, 3))].append(id)
    fast = fastest(work, bounds)  # slow algorithms are far from any bound
    algorithms = {
        id: draw(st.sampled_from([fast[id], fast[id], *sorted(found)])) for id, found in work.algorithms.items()
    }
    plan = Plan(tuple(tuple(lane) for lane in lanes if lane), algorithms)
    if len(plan.lanes) == 1:
        return plan
    policy = draw(st.sampled_from(["leftover", "leftover", "even", "warped-slicer", "inter-sm", "split"]))
    if policy != "split":
        return replace(plan, policy=policy)
    return draw(st.sampled_from(list(first_splits(bounds.session.gpu, plan, lane_weights(bounds, plan)))))


@examples(24, everyday=3)
@given(recorded_plans())
def test_no_replay_of_recorded_kernels_beats_the_bound(given: tuple[Bounds, PlannedWork, list[Plan]]) -> None:
    """A convolution takes longer after others, by as much as these touch: any part of a module, by any algorithms."""
    bounds, work, plans = given
    any_us = bounds.of_any(work).us
    for plan in plans:
        us = replayed(work, plan, bounds.session)
        assert max(any_us, bounds.of_plan(work, plan)) <= us * (1.0 + 1e-9)


@pytest.mark.parametrize("name", RECORDED)
def test_the_least_of_a_convolution_is_no_more_than_that_of_its_kernels_after_others(name: str) -> None:
    """The others by the algorithms that touch most, least, and as recorded."""
    bounds = recorded(name)
    work, session = bounds.work, bounds.session
    for pick in (min, max):
        chosen = {id: pick(found, key=lambda one: displaced_bytes(found[one])) for id, found in work.algorithms.items()}
        played = session.kernels(work.trace).worked_out(planned_trace(work, Plan((work.graph.ids,), chosen)))
        for op in played.operations():
            models = [session.kernels(work.trace).model(one, op.id) for one in op.launches()]
            after = least_of_launches(op.launches(), models, undisturbed=True)
            assert less_of(after, bounds.least(op.id, chosen[op.id])) == bounds.least(op.id, chosen[op.id])


def test_bytes_that_counters_show_displace_as_those_that_the_trace_tells() -> None:
    """Reads of DRAM, and writes that L2 counts one and a half times, of each of four blocks."""
    kernel = launch(4, 20.0).model_copy(update={"mix": Mix(dram_read_bytes=100.0, l2_write_bytes=150.0)})
    counted = convolution("x", [kernel]).selected.model_copy(update={"warm_us": 30.0, "cold_us": 36.0})
    assert displaced_bytes(counted) == displaced_bytes(counted.model_copy(update={"touched_bytes": 800})) == 800.0


def test_kernels_that_different_resources_bind_are_not_added() -> None:
    """FMA binds one and the L1 path the other, each for nine tenths of its time: together they take hardly longer."""
    cycles, gpu = 100.0 * 1980.0, load_gpu("h200")

    def busy(**shares: float) -> KernelLaunch:
        counted = dict.fromkeys(SHARED, 0.0) | {name: share * cycles for name, share in shares.items()}
        mix = Mix(**counted, active_cycles_avg=cycles, achieved_warps_per_sm=4.0)
        return launch(132, 100.0, threads=128).model_copy(update={"mix": mix})

    one, other = busy(fma_cycles=0.9, issue_cycles=0.45), busy(l1_cycles=0.9, issue_cycles=0.1)
    streams = [stream(name, Kernel(id=name, kernel=of)) for name, of in (("a", one), ("b", other))]
    made, session = trace(*streams, device="h200"), Session(gpu)
    bound = bound_of_trace(made, session)
    assert bound is not None and 90.0 < bound.us < session.makespan_us(made, "leftover") < 135.0


def test_a_bound_by_registers_is_above_that_of_any_other_resource() -> None:
    """Blocks that leave room for no other, and wait for latency: 16 on 4 SMs take four turns."""
    wide = [launch(4, 10.0) for _ in range(4)]
    made = trace(*(stream(f"s{n}", convolution(f"c{n}", [one])) for n, one in enumerate(wide)))
    session = Session(GPU)
    work = work_of(made, GPU)
    bound = Bounds(work, session).of_any(work)
    best = select(made, session).best.makespan_us
    assert bound.us <= best * (1.0 + 1e-9)
    assert bound.us >= 0.9 * best
