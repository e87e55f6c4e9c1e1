"""How launches begin and share their work, by hand: tiles, unequal blocks, the rate at which blocks start, gaps."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest
from cores import array_of, ends, line, on_every_core, own_pace, submit
from tiny import kernel, launch, stream, tiny, trace

from gpusim.calibrate.blocks import tiles
from gpusim.calibrate.fit import anchored
from gpusim.engine.sm_array import run_alone
from gpusim.hardware.gpu import load_gpu
from gpusim.io.ncu import ELAPSED, HEAVY_PERCENT, PIPES_PERCENT, REQUIRED, clocked, cluster_of, launch_from_counters
from gpusim.model.context import in_context
from gpusim.trace.kernels import Mix
from gpusim.trace.operations import Copy

GPU = tiny(4)


@on_every_core
def test_late_blocks_wait_for_all_of_their_launch_and_do_their_own_tile(core: ModuleType) -> None:
    """4 blocks in 8 tiles of 4 us on 3 SMs: 3 first tiles, 3 others, the last of the pool; then the late one's own."""
    array = array_of(core, 3, rates=own_pace(0.125))
    submit(array, 0, 4, caps=1, pieces=2, late_last=True)
    line(array, 0)
    assert ends(array) == [(0, pytest.approx(16.0))]


@on_every_core
def test_other_late_blocks_take_the_first_sm_that_is_free(core: ModuleType) -> None:
    """The same: two SMs are free at 8 us, while the third does the last of the pool."""
    array = array_of(core, 3, rates=own_pace(0.125))
    submit(array, 0, 4, caps=1, pieces=2)
    line(array, 0)
    assert ends(array) == [(0, pytest.approx(12.0))]


def test_blocks_along_a_row_are_as_long_as_the_trace_says() -> None:
    """A row of 4 blocks of 1, 3, 5 and 7 on 5 SMs: the last takes 10 us, the mean one 40 / 7."""
    uneven = launch(4, 11.0).model_copy(update={"block_lengths": (1.0, 3.0, 5.0, 7.0)})
    gpu = tiny(5)
    model = anchored(uneven, gpu)
    assert model.lengths == (0.25, 0.75, 1.25, 1.75)
    assert run_alone(model, gpu).makespan_us == pytest.approx(10.0)
    assert run_alone(model, gpu).active == pytest.approx(4 / 5 * 4 / 7)
    assert not anchored(uneven, GPU).persistent  # though it has a block for each of 4 SMs
    on_one = replace(gpu, sm_count=1)
    assert run_alone(model, on_one).makespan_us == pytest.approx(4 * 40 / 7)  # the imbalance is no work


def test_the_spread_of_lengths_is_what_keeps_sms_idle() -> None:
    """Two rows of 4 blocks of 0.25 to 1.75 leave 10 SMs active for 16 / 35 of the time."""
    counted = Mix(active_cycles_avg=16.0, active_cycles_max=35.0, achieved_warps_per_sm=32.0)
    rows = launch(8, 101.0).model_copy(update={"grid": (4, 2, 1)})
    assert anchored(rows.model_copy(update={"mix": counted}), tiny(10)).spread == 1.0
    even = counted.model_copy(update={"active_cycles_avg": 27.5})
    assert anchored(rows.model_copy(update={"mix": even}), tiny(10)).spread == 0.0


def test_blocks_end_no_faster_than_they_can_start() -> None:
    """400 blocks of 10 us on 4 SMs; one SM starts one in 20 us at most, all of them one in 4."""
    model = anchored(launch(400, 1001.0), GPU)
    assert run_alone(replace(model, start_us=0.0, sm_start_us=0.0), GPU).makespan_us == pytest.approx(1000.0)
    assert run_alone(replace(model, start_us=4.0), GPU).makespan_us == pytest.approx(1600.0, rel=0.01)
    assert run_alone(replace(model, sm_start_us=20.0), GPU).makespan_us == pytest.approx(2000.0, rel=0.01)


def test_a_launch_of_as_many_blocks_as_can_start_lives_by_littles_law() -> None:
    """1000 blocks start in 1000 us, as fast as can be; as 2 were resident on 4 SMs, each lived for 2 us."""
    gpu = tiny(4, block_starts_per_us=1.0, sm_block_starts_per_us=1.0)
    counted = Mix(achieved_warps_per_sm=32.0)
    model = anchored(launch(1000, 1001.0).model_copy(update={"mix": counted}), gpu)
    assert model.start_us == pytest.approx(1.0)
    assert model.unit_us == pytest.approx(4.0)  # an SM holds one
    assert run_alone(model, gpu).makespan_us == pytest.approx(1000.0, rel=0.01)


@pytest.mark.parametrize(
    ("cycles", "expected"),
    [
        ((50.0, 95.5, 100.0), 256),
        ((75.0, 96.2, 100.0), 512),
        ((None, 97.0, 100.0), 8 * 132),
        ((10.0, 97.0, 100.0), 132),
    ],
)
def test_tiles_by_the_active_cycles_of_sms(cycles: tuple[float | None, float, float], expected: int) -> None:
    """Of 132 blocks two tiles each but of 8; four each but of 16; unknown; one each. SMs differ by 0.03 of a tile."""
    names = ("active_cycles_min", "active_cycles_avg", "active_cycles_max")
    counted = launch(132, 100.0).model_copy(update={"mix": Mix(**dict(zip(names, cycles, strict=True)))})
    assert tiles(counted, 1, load_gpu("h200")) == expected


def test_a_profile_counts_no_gaps_between_kernels() -> None:
    sooner = {"kernel_gap_us": 0.5, "graph_latency_us": GPU.model.launch_latency_us - 0.25}
    gpu = replace(GPU, model=GPU.model.model_copy(update=sooner))
    two = trace(stream("a", kernel("x", 4, 11.0), kernel("y", 4, 11.0)))
    found = [op.launches()[0] for op in in_context(two, gpu).streams[0].operations]
    assert [(each.duration_us, each.load_us) for each in found] == [(11.5, 0.0), (11.5, -0.25)]
    one = trace(stream("a", kernel("x", 4, 11.0)))
    assert in_context(one, gpu) is one
    assert in_context(two, GPU) is two


def test_a_profile_counts_only_the_time_in_which_bytes_move() -> None:
    gpu = replace(GPU, model=GPU.model.model_copy(update={"copy_gap_us": 6.0, "memset_gap_us": 2.0}))
    ways = (("h2d", 4), ("d2h", 4), ("d2d", 4), ("memset", 4), ("memset", 4096), ("memset", 4097))
    timed = [Copy(id=f"{way}{size}", direction=way, bytes=size, duration_us=1.0) for way, size in ways]
    untimed = Copy(id="untimed", direction="h2d", bytes=4)
    found = in_context(trace(stream("a", *timed, untimed, kernel("x", 4, 11.0))), gpu).streams[0].operations
    assert [op.duration_us for op in found if isinstance(op, Copy)] == [7.0, 7.0, 1.0, 3.0, 3.0, 1.0, None]


def test_clusters_that_were_counted() -> None:
    names = [f"launch__cluster_dim_{axis}" for axis in "xyz"]
    assert cluster_of(dict(zip(names, ("2", "1", "1"), strict=True))) == (2, 1, 1)
    assert cluster_of(dict.fromkeys(names, "0")) == (1, 1, 1)
    assert cluster_of(dict.fromkeys(names, "")) is None
    assert cluster_of({}) is None


def test_a_counter_without_a_value_was_not_counted() -> None:
    """Of the pipes, older GPUs have some only; the recorder leaves their cells empty."""
    shapes = {"Kernel Name": "a", "Grid Size": "(4, 1, 1)", "Block Size": "(32, 1, 1)"}
    counted = dict.fromkeys(REQUIRED, "1") | shapes | {"launch__registers_per_thread": "32"}
    without = dict.fromkeys((*PIPES_PERCENT.values(), HEAVY_PERCENT, ELAPSED, "launch__cluster_dim_x"), "")
    found = launch_from_counters(counted | without, 132)
    assert found == launch_from_counters(counted, 132)
    assert found.mix is not None and found.mix.special_cycles is None and found.mix.cluster is None
    assert clocked(found.mix, counted | without, 1.0).clock_mhz is None
