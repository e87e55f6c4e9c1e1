"""Policies that decide as they go: no work is lost, a stream alone has the GPU, and each follows its rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import Phase, given
from hypothesis import strategies as st
from strategies import examples, traces
from views import kernel, view_of, within

from gpusim import load_gpu, load_trace
from gpusim.common.errors import InputError
from gpusim.model.occupancy import Footprint
from gpusim.policies.cd_search import Walk
from gpusim.policies.inference import Orion, critical_sms, occupancy_together, sms_wanted
from gpusim.policies.interface import Grant, Partition, Policy, View
from gpusim.policies.maestro import INTRA, SPATIAL, Config, Search, moved_counts, neighbours
from gpusim.policies.registry import policy_from
from gpusim.policies.smk import context_us, drf, evicted
from gpusim.policies.tools.memory import fair_shares
from gpusim.policies.tools.mixes import Resources
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream, TimesArrivals

TRACES = Path(__file__).resolve().parent.parent / "traces"
H200 = load_gpu("h200")
FOUND_NOT_SHRUNK = [Phase.explicit, Phase.generate]  # a replay is too slow to shrink a trace by
DYNAMIC = [
    "warped-slicer",
    "warped-slicer:objective=stp,loss=1",
    "warped-slicer:curve=profiled,warmup_cycles=2000,sample_cycles=500",
    "warped-slicer:mitigation=qbmi",
    "warped-slicer:mitigation=dmil",
    "smk",
    "smk:mode=p,preempt=drain",
    "smk:mitigation=dmil",
    "maestro",
    "maestro:epoch_us=3,eps=0,step_sms=1",
    "cd-search",
    "cd-search:mode=power,drop=0.5,epoch_us=5",
    "orion",
    "orion:sms=40,duration_us=20",
    "reef",
]


# ---- nothing is lost -------------------------------------------------------------------------------------------------


@examples(12, phases=FOUND_NOT_SHRUNK)
@given(trace=traces(max_streams=8, with_arrivals=True))
def test_no_work_is_lost(trace: Trace) -> None:
    session = Session(H200)
    requests = {stream.name: stream_requests(stream) for stream in trace.streams}
    launches = sum(requests[stream.name] * len(op.launches()) for stream in trace.streams for op in stream.operations)
    for policy in DYNAMIC:
        result = session.replay(trace, policy, keep=["placements"])
        assert len(result.kernel_runs) == launches, policy
        blocks = [0] * launches
        for placement in result.placements:
            blocks[placement.run] += placement.blocks
        assert blocks == [run.blocks for run in result.kernel_runs], policy
        times = [(run.ready_us, run.start_us, run.dispatched_us, run.end_us) for run in result.kernel_runs]
        assert all(list(one) == sorted(one) for one in times), policy
        ended = {name: len([r for r in result.request_runs if r.stream == name]) for name in requests}
        assert ended == requests, policy


def stream_requests(stream: Stream) -> int:
    arrivals = stream.arrivals
    if arrivals is None:
        return 1
    return len(arrivals.times_us) if arrivals.kind == "times" else arrivals.count


@examples(12, phases=FOUND_NOT_SHRUNK)
@given(trace=traces(max_streams=1, with_arrivals=True))
def test_a_stream_alone_is_as_under_serial(trace: Trace) -> None:
    session = Session(H200)
    serial = session.replay(trace, "serial")
    for policy in DYNAMIC:
        other = session.replay(trace, policy)
        assert other.kernel_runs == serial.kernel_runs, policy
        assert other.placements == serial.placements, policy


@pytest.mark.parametrize("policy", DYNAMIC)
def test_the_same_replay_twice_gives_the_same(policy: str) -> None:
    trace = load_trace(TRACES / "inception_3b.json.gz")
    session = Session(H200)
    assert session.replay(trace, policy) == session.replay(trace, policy)


@pytest.mark.parametrize(
    "wrong",
    [
        *("smk:mode=w", "smk:preempt=flush", "smk:mitigation=all"),
        *("maestro:epoch_us=0", "maestro:eps=-1", "maestro:step_sms=0"),
        *("cd-search:mode=fast", "cd-search:drop=1", "orion:sms=-1", "orion:duration_us=0"),
    ],
)
def test_bad_parameters(wrong: str) -> None:
    name, _, parameter = wrong.partition(":")
    with pytest.raises(InputError, match=f"{name}: {parameter}"):
        policy_from(wrong)


# ---- two kernels, one of which comes later ---------------------------------------------------------------------------


def launch_of(file: str, operation: str, index: int = 0) -> KernelLaunch:
    trace = load_trace(TRACES / file)
    return next(op for op in trace.operations() if op.id == operation).launches()[index]


def stream_of(
    name: str, launch: KernelLaunch, *, times: int = 1, at_us: float | None = None, priority: int = 0
) -> Stream:
    operations = tuple(Kernel(id=f"{name}{n}", kind="kernel", kernel=launch) for n in range(times))
    arrivals = TimesArrivals(kind="times", times_us=(at_us,)) if at_us is not None else None
    return Stream(name=name, priority=priority, operations=operations, arrivals=arrivals)


def run(policy: str | Policy, *streams: Stream) -> Result:
    trace = Trace(version=1, name="made", device="h200", streams=streams)
    return Session(H200).replay(trace, policy, keep=["placements"])


def first_run(result: Result, stream: str):  # type: ignore[no-untyped-def]
    return next(run for run in result.kernel_runs if run.stream == stream)


ISSUE_BOUND = launch_of("pair_3a_3x3_precomp_5x5_fft_tiling.json.gz", "3a.3x3")
MEMORY_BOUND = launch_of("googlenet_forward.json.gz", "conv2.3x3", 3)


def test_smk_switches_blocks_out_for_a_newcomer() -> None:
    streams = stream_of("a", ISSUE_BOUND), stream_of("b", MEMORY_BOUND, at_us=20.0)
    switch, drain = run("smk:mode=p", *streams), run("smk:mode=p,preempt=drain", *streams)
    later = first_run(switch, "b")
    saved_us = (32768 * 4 + 34304) / (
        H200.model.dram_sustained_gb_per_s * 1e3 / H200.sm_count
    )  # one block of a, of two
    launched_us = H200.model.launch_latency_us  # the first kernel of a pass starts as in a stream
    assert later.start_us == pytest.approx(later.ready_us + launched_us + saved_us, rel=1e-12)
    assert first_run(drain, "b").start_us > later.start_us + 20.0


def test_reef_kills_best_effort_blocks_and_runs_them_again() -> None:
    streams = stream_of("be", ISSUE_BOUND), stream_of("rt", MEMORY_BOUND, at_us=100.0, priority=1)
    reef, leftover = run("reef", *streams), run("leftover", *streams)
    urgent = first_run(reef, "rt")
    assert urgent.end_us - urgent.ready_us == pytest.approx(urgent.solo_us, rel=0.01)
    assert first_run(leftover, "rt").end_us > urgent.end_us + 50.0
    assert first_run(reef, "be").end_us >= first_run(leftover, "be").solo_us + urgent.solo_us


def test_orion_holds_back_a_kernel_that_would_fill_the_gpu() -> None:
    streams = stream_of("rt", ISSUE_BOUND, priority=1), stream_of("be", MEMORY_BOUND)
    result = run("orion", *streams)
    assert first_run(result, "be").start_us >= first_run(result, "rt").end_us


def test_orion_lets_a_small_kernel_of_another_class_start() -> None:
    assert MEMORY_BOUND.mix is not None
    mix = MEMORY_BOUND.mix.model_copy(update={"dram_read_bytes": 600_000.0})  # 64 blocks in 10 us: 3.8 TB/s
    small = MEMORY_BOUND.model_copy(update={"grid": (64, 1, 1), "duration_us": 10.0, "mix": mix})
    result = run("orion", stream_of("rt", ISSUE_BOUND, priority=1), stream_of("be", small))
    assert first_run(result, "be").ready_us == 0.0
    held = run("orion:sms=4", stream_of("rt", ISSUE_BOUND, priority=1), stream_of("be", small))
    assert first_run(held, "be").start_us >= first_run(held, "rt").end_us > first_run(result, "be").start_us


# ---- shares of an SM and of DRAM -------------------------------------------------------------------------------------


@dataclass
class Limited(Policy):
    """All kernels as they fit, each with the limits given for its stream."""

    name = "limited"
    summary = "for this test"
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def partition(self, view: View) -> Partition:
        return Partition(
            tuple(
                Grant(k.id, max(1, k.blocks_per_sm // 2), queue=k.id, **self.limits.get(k.stream, {}))
                for k in view.kernels
            )
        )


def test_an_issue_share_holds_a_kernel_at_its_share() -> None:
    free, held = (
        run(Limited(limits={"a": limit}), stream_of("a", ISSUE_BOUND)) for limit in ({}, {"issue_share": 0.2})
    )
    busy = free.metrics["utilisation[issue_slots]"]
    sustained = held.metrics["utilisation[issue_slots]"]
    assert sustained < 0.2 < busy
    assert held.makespan_us / free.makespan_us == pytest.approx(busy / sustained, rel=0.02)


def test_a_dram_share_holds_a_kernel_at_its_share() -> None:
    result = run(Limited(limits={"a": {"dram_share": 0.3}}), stream_of("a", MEMORY_BOUND))
    assert result.metrics["utilisation[dram]"] == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("limit", [{"dram_share": 0.2}, {"issue_share": 0.1}, {"l1_share": 0.1}])
def test_what_one_kernel_may_not_take_speeds_up_the_other(limit: Mapping[str, float]) -> None:
    streams = stream_of("a", MEMORY_BOUND, times=3), stream_of("b", MEMORY_BOUND)
    free, held = run(Limited(), *streams), run(Limited(limits={"a": limit}), *streams)
    assert first_run(held, "b").end_us < first_run(free, "b").end_us
    assert first_run(held, "a").end_us > first_run(free, "a").end_us


def test_fair_shares_by_hand() -> None:
    assert fair_shares([0.2, 0.9, 0.9]) == pytest.approx([0.2, 0.4, 0.4])
    assert fair_shares([0.2, 0.3]) == pytest.approx([0.2, 0.3])
    assert fair_shares([2.0, 2.0, 2.0, 2.0]) == pytest.approx([0.25] * 4)
    assert fair_shares([]) == []


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_fair_shares_are_max_min(demands: list[float]) -> None:
    shares = fair_shares(demands)
    assert sum(shares) == pytest.approx(min(1.0, sum(demands)))
    assert all(share <= demand for share, demand in zip(shares, demands, strict=True))
    most = max(shares)
    short = [share for share, demand in zip(shares, demands, strict=True) if share < demand - 1e-12]
    assert all(share == pytest.approx(most) for share in short)


# ---- rules, by hand --------------------------------------------------------------------------------------------------


def shared_out(needs: list[Resources], room: Resources, most: list[int]) -> list[int]:
    return drf(needs, room, most, within(room, needs))


def test_drf_gives_the_example_of_the_paper_that_named_it() -> None:
    # Ghodsi et al., NSDI'11: 9 CPUs and 18 GB; A takes 1 CPU and 4 GB, B 3 CPUs and 1 GB: 3 and 2
    assert shared_out([(1, 4, 0, 0), (3, 1, 0, 0)], (9, 18, 1, 1), [9, 9]) == [3, 2]


def test_drf_goes_on_with_the_others() -> None:
    assert shared_out([(60, 0, 0, 1), (10, 0, 0, 1)], (100, 1, 1, 32), [9, 9]) == [1, 4]
    assert shared_out([(60, 0, 0, 1), (50, 0, 0, 1)], (100, 1, 1, 32), [9, 9]) == [1, 0]
    assert shared_out([(1, 0, 0, 1), (1, 0, 0, 1)], (100, 1, 1, 32), [2, 9]) == [2, 9]


def test_smk_takes_off_only_what_the_newcomer_lacks() -> None:
    full = [4] * H200.sm_count
    view = view_of(kernel(0, resident=4 * H200.sm_count), kernel(1, waiting=3), residents={0: full})
    found = evicted(view, [2, 2], [True, True])
    assert [(e.kernel, e.sm, e.blocks) for e in found] == [(0, 0, 2), (0, 1, 1)]  # 3 blocks: 2 on the first SM, then 1
    assert found[0].cost_us == context_us(view.kernels[0], H200)
    assert evicted(view, [2, 2], [True, False]) == []


def test_the_cost_of_a_context_switch() -> None:
    held = 16384 * 4 + 17408
    per_sm = H200.model.dram_sustained_gb_per_s * 1e3 / H200.sm_count
    assert context_us(kernel(0), H200) == pytest.approx(held / per_sm)


def test_reef_stacks_blocks_on_as_few_sms_as_hold_as_many_layers() -> None:
    assert critical_sms(120, 132) == (1, 120)
    assert critical_sms(132, 132) == (1, 132)
    assert critical_sms(300, 132) == (3, 100)


def test_reef_takes_the_larger_of_each_resource() -> None:
    small = kernel(0, footprint=Footprint(warps=1, registers=1024, shared_memory_bytes=100_000))
    assert occupancy_together(kernel(1), small, H200) == 233_472 // 100_000
    assert occupancy_together(kernel(1), kernel(2), H200) == 4


def test_orion_counts_the_sms_that_a_kernel_fills() -> None:
    assert sms_wanted(kernel(0, blocks=9, blocks_per_sm=4)) == 3


# ---- searches, on functions that are known ---------------------------------------------------------------------------


@given(st.integers(-3, 3), st.floats(0.01, 0.1))
def test_maestro_climbs_to_the_top_of_a_hill(top: int, slope: float) -> None:
    def stp(config: Config) -> float:
        right = sum(1 if taker == 1 else -1 for _, taker in config.moves)
        return 1.2 - slope * abs(right - top) if config.mode == INTRA else 1.1 - slope * abs(top) - 0.5

    search = Search(2, [Config(SPATIAL), Config(INTRA)], Config(SPATIAL))
    for _ in range(40):
        if not search.trials:
            break
        search.measured(stp(search.current), gain=0.001)
    assert search.trials == [] and search.best.mode == INTRA
    assert stp(search.best) == pytest.approx(1.2)


def test_maestro_drops_what_cannot_be() -> None:
    search = Search(2, [Config(SPATIAL), Config(INTRA)], Config(SPATIAL))
    for _ in range(10):
        search.measured(-1.0, gain=0.01)
    assert search.current == Config(SPATIAL) and not search.trials


def test_steps_of_maestro() -> None:
    assert neighbours(Config(SPATIAL), 2) == [Config(SPATIAL, ((0, 1),)), Config(SPATIAL, ((1, 0),))]
    assert neighbours(Config(SPATIAL, ((1, 0),)), 2) == [Config(SPATIAL, ((1, 0), (1, 0)))]
    assert moved_counts([66, 66], [(0, 1), (0, 1)], 8) == [50, 82]
    assert moved_counts([8, 8], [(0, 1)], 8) is None


def test_cd_search_takes_sms_until_the_giver_minds() -> None:
    # the giver keeps its speed down to 40 SMs; steps of 8 from 66: 58, 50, 42, 34 is too few
    walk = Walk([66, 66], givers=[0], takers=[1])
    for _ in range(20):
        walk.measured([min(1.0, walk.counts[0] / 40), walk.counts[1]], drop=0.01, step=8)
    assert walk.counts == [42, 90]
    assert not walk.searching


def test_cd_search_turns_sms_off_where_nobody_takes_them() -> None:
    walk = Walk([66, 66], givers=[0, 1], takers=[])
    for _ in range(40):
        walk.measured([min(1.0, count / 50) for count in walk.counts], drop=0.01, step=8)
    assert walk.counts == [50, 50]
    assert not walk.searching


def test_orion_tests_each_best_effort_kernel_by_itself() -> None:
    """Two kernels of 60 SMs each start beside a critical one that leaves 100: the paper tests one by one."""
    urgent = kernel(0, blocks=8, priority=1, bound_by="fma")
    small = [kernel(n, blocks=240, blocks_per_sm=4, bound_by="dram", started=False) for n in (1, 2)]
    view = view_of(urgent, *small)
    assert [grant.kernel for grant in Orion(sms=100).partition(view).grants] == [0, 1, 2]
    assert [grant.kernel for grant in Orion(sms=60).partition(view).grants] == [0]  # fewer than the threshold
    same = kernel(3, blocks=240, blocks_per_sm=4, bound_by="fma", started=False)
    other = kernel(4, blocks=8, priority=1, bound_by="dram")
    assert [grant.kernel for grant in Orion().partition(view_of(urgent, other, same)).grants] == [0, 4]
