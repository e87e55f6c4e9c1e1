"""Counters that kernels borrow from counted launches of the same kernel in the same profile."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import pytest
from profiles import written
from test_import_kineto import kernel, write
from test_import_ncu import raw_page

from gpusim.calibrate.assumptions import warning
from gpusim.calibrate.fit import anchored
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.io.borrowing import borrow
from gpusim.io.importing import import_profile
from gpusim.io.timeline import Activity, LaunchedKernel, StreamKey
from gpusim.model.estimate import estimable
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls

H200 = load_gpu("h200")
LATENCY_US = H200.model.launch_latency_us
FILL = 8 * H200.sm_count  # blocks of 256 threads that an H200 holds at once
MIX = Mix(
    issue_cycles=400.0, alu_cycles=80.0, fma_cycles=90.0, tensor_cycles=0.0, lsu_cycles=50.0, l1_cycles=60.0,
    l2_bytes=9e3, l2_read_bytes=6e3, l2_write_bytes=3e3, l2_busy_us=0.001, dram_read_bytes=5e3, dram_write_bytes=2e3,
    l1_hit_percent=20.0, l2_hit_percent=30.0, achieved_warps_per_sm=40.0, active_cycles_min=15e3,
    active_cycles_avg=16e3, active_cycles_max=17e3, cluster=(2, 1, 1),
    stalls=WarpStalls(selected=1.0, not_selected=0.5, long_scoreboard=9.0),
)  # fmt: skip


def run(blocks: int, working_us: float, name: str = "k", registers: int = 32) -> Activity:
    """A kernel that takes so long after the launch latency."""
    work = LaunchedKernel(name, (blocks, 1, 1), (256, 1, 1), registers, 0, 0)
    return Activity(0, StreamKey("7"), 0.0, working_us + LATENCY_US, work, 0)


def only(activities: Sequence[Activity], counted: dict[int, Mix], gpu: GPU = H200) -> Mix:
    """The demand that the one kernel without counters borrows from a launch with another grid."""
    lent = borrow(activities, counted, gpu)
    assert not lent.same
    (mix,) = lent.other.values()
    return mix


def test_a_launch_with_the_same_grid_lends_its_counters_as_they_are() -> None:
    lent = borrow([run(FILL, 10), run(FILL, 10)], {0: MIX}, H200)
    assert (lent.same, lent.other) == ({1: MIX}, {})


def test_the_time_of_l2_follows_the_borrower_s_own_time() -> None:
    lent = borrow([run(FILL, 10), run(FILL, 20)], {0: MIX}, H200)
    busy_us = lent.same[1].l2_busy_us
    assert busy_us == pytest.approx(0.001 * (20 + LATENCY_US) / (10 + LATENCY_US))
    assert lent.same[1] == MIX.model_copy(update={"l2_busy_us": busy_us})


def test_of_equal_grids_the_nearest_in_time_lends_then_the_nearest_in_order() -> None:
    mixes = [MIX.model_copy(update={"issue_cycles": float(n)}) for n in range(5)]
    times = [10, 30, 30, 12, 30, 11, 29, 100, 1]
    lent = borrow([run(FILL, us) for us in times], dict(enumerate(mixes)), H200).same
    assert [lent[n].issue_cycles for n in (5, 6, 7, 8)] == [3.0, 4.0, 4.0, 0.0]
    between = borrow([run(FILL, 30) for _ in range(6)], {0: mixes[0], 2: mixes[2], 5: mixes[4]}, H200).same
    assert {n: mix.issue_cycles for n, mix in between.items()} == {1: 0.0, 3: 2.0, 4: 4.0}


def test_an_equal_grid_lends_before_another_grid() -> None:
    other = MIX.model_copy(update={"issue_cycles": 1.0})
    lent = borrow([run(FILL, 90), run(FILL + 2, 10), run(FILL, 10)], {0: MIX, 1: other}, H200)
    assert (lent.same[2].issue_cycles, lent.other) == (400.0, {})


@pytest.mark.parametrize("stranger", [{"name": "other"}, {"registers": 40}])
def test_another_kernel_lends_nothing(stranger: dict[str, str | int]) -> None:
    lent = borrow([run(FILL, 10), run(FILL, 10, **stranger)], {0: MIX}, H200)  # type: ignore[arg-type]
    assert (lent.same, lent.other) == ({}, {})


def test_another_grid_keeps_the_work_of_a_block_and_scales_what_depends_on_time() -> None:
    mix = only([run(FILL, 10), run(3 * FILL, 30)], {0: MIX})
    assert mix == MIX.model_copy(
        update={
            "estimated": True, "active_cycles_min": None, "l1_hit_percent": None, "l2_hit_percent": None,
            "active_cycles_avg": 48e3, "active_cycles_max": 51e3,
        }
    )  # fmt: skip


def test_blocks_that_take_far_longer_do_as_much_more_work() -> None:
    kept, more, less = (only([run(FILL, 10), run(2 * FILL, us)], {0: MIX}) for us in (39, 60, 5))
    assert kept.issue_cycles == 400.0
    assert (more.issue_cycles, more.dram_read_bytes) == pytest.approx((1200.0, 15e3))
    assert (less.issue_cycles, less.dram_read_bytes) == pytest.approx((100.0, 1250.0))
    assert more.stalls == MIX.stalls


def test_more_than_a_trace_can_hold_is_not_borrowed() -> None:
    lent = borrow([run(FILL, 10), run(2 * FILL, 1e9), run(2 * FILL, 20)], {0: MIX}, H200)
    assert lent.other.keys() == {2}


def test_a_grid_that_leaves_sms_idle_has_fewer_active_cycles_and_warps() -> None:
    mix = only([run(FILL, 10), run(H200.sm_count // 2, 10)], {0: MIX})
    assert (mix.active_cycles_avg, mix.active_cycles_max) == pytest.approx((8e3, 17e3))
    assert mix.achieved_warps_per_sm == pytest.approx(40.0 / 8)


def test_a_cluster_that_does_not_divide_the_grid_is_left_out() -> None:
    assert only([run(FILL, 10), run(FILL + 2, 10)], {0: MIX}).cluster == (2, 1, 1)
    assert only([run(FILL, 10), run(FILL + 1, 10)], {0: MIX}).cluster is None


def test_of_other_grids_the_nearest_in_blocks_and_time_lends() -> None:
    near, far = MIX, MIX.model_copy(update={"issue_cycles": 1.0})
    assert only([run(2 * FILL, 20), run(16 * FILL, 160), run(FILL, 10)], {0: near, 1: far}).issue_cycles == 400.0
    # as many blocks, but each takes 64 times as long: the other is nearer
    assert only([run(2 * FILL, 1280), run(4 * FILL, 40), run(FILL, 10)], {0: far, 1: near}).issue_cycles == 400.0


def test_what_was_not_counted_is_not_borrowed() -> None:
    mix = only([run(FILL, 10), run(2 * FILL, 20)], {0: Mix(issue_cycles=5.0)})
    assert mix == Mix(issue_cycles=5.0, estimated=True)


def test_zero_times_and_empty_grids_borrow_nothing() -> None:
    lent = borrow([run(FILL, 10), run(FILL, -LATENCY_US), run(0, 10)], {0: MIX}, H200)
    assert (lent.same, lent.other) == ({}, {})


def test_stall_reasons_that_were_borrowed_set_the_wait_of_a_kernel() -> None:
    """An estimate from another grid is no count, and its stall reasons reach the model all the same."""
    mix = only([run(FILL, 10), run(2 * FILL, 20)], {0: MIX})
    assert not mix.counts(("issue_cycles",))
    launch = KernelLaunch(
        name="k", grid=(2 * FILL, 1, 1), block=(256, 1, 1), registers_per_thread=32, duration_us=20.0, mix=mix
    )
    assert launch.estimated
    assert not estimable(launch)
    bare = launch.model_copy(update={"mix": mix.model_copy(update={"stalls": None})})
    assert anchored(launch, H200).wait.share > 0.5 > anchored(bare, H200).wait.share


def profile(folder: Path) -> Trace:
    """One kernel counted of four: one with its grid, one with another, one that was never counted."""
    h200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 141 * 10**9}
    launched = (("gemm", 264), ("gemm", 264), ("gemm", 528), ("strange", 264))
    events = [
        kernel(name, 100 * n, 10.0 + 5.0 * (blocks > 264), order=n, grid=[blocks, 1, 1])
        for n, (name, blocks) in enumerate(launched)
    ]
    counters = written(folder / "counters.csv", raw_page([{"Kernel Name": "gemm"}, {"Kernel Name": "unseen"}]))
    return import_profile(
        write(folder / "timeline.json", events, deviceProperties=[h200]),
        counters=counters,
    ).trace


def test_the_import_borrows_and_says_so(tmp_path: Path) -> None:
    """Counters of one launch serve all with its grid: they join before any is borrowed."""
    trace = profile(tmp_path)
    launches = [operation.launches()[0] for operation in trace.operations()]
    assert [launch.estimated for launch in launches] == [False, False, True, True]
    assert [estimable(launch) for launch in launches] == [False, False, False, True]
    assert launches[2].mix is not None
    assert launches[2].mix.dram_read_bytes == 10_000.0
    assert "2 of 4 kernels got counters from counters.csv; 2 got none" in trace.notes
    assert (
        "Of the kernels that got none, 1 have an estimate from a launch of the same kernel with another grid."
        in trace.notes
    )
    assert "Kernels without counters: 1 of 4;" in trace.notes


def test_the_warning_counts_only_kernels_whose_bound_is_assumed(tmp_path: Path) -> None:
    text = warning(profile(tmp_path), "leftover", (1.0, 2.0), {"compute": "leftover", "memory": "leftover"})
    assert text.startswith("1 of 4 kernels have no counters")


def test_a_trace_with_borrowed_counters_is_written_and_replayed(tmp_path: Path) -> None:
    trace = profile(tmp_path)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(trace.model_dump_json(exclude_none=True).encode()))
    assert Session("h200").replay(path, "leftover").makespan_us > 10.0
