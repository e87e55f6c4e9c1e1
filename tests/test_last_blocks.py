"""What the last blocks of a reduction do alone, by the active cycles of the SMs."""

from dataclasses import replace
from typing import Any

import pytest

from gpusim.calibrate.blocks import last_blocks
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.scaling import confined_us
from gpusim.calibrate.transfer import transferred
from gpusim.engine.sm_array import run_alone
from gpusim.hardware.gpu import load_gpu
from gpusim.trace.kernels import KernelLaunch, Mix

GPU = replace(load_gpu("h200"), sm_count=100)
EVEN = Mix(active_cycles_min=980.0, active_cycles_avg=1000.0, active_cycles_max=1020.0)


def reduction(row: int = 2, blocks: int = 400, **counters: Any) -> KernelLaunch:
    """98 SMs active for 980 to 1020 cycles, and two for 5000."""
    mix = EVEN.model_copy(update={"active_cycles_avg": 1080.0, "active_cycles_max": 5000.0} | counters)
    return KernelLaunch(
        name="sum", grid=(row, blocks // row, 1), block=(256, 1, 1), registers_per_thread=32,
        static_shared_memory_bytes=0, dynamic_shared_memory_bytes=0, duration_us=50.0, mix=mix,
    )  # fmt: skip


def test_a_block_of_each_result_goes_on_alone() -> None:
    mix, share = last_blocks(reduction(), GPU)
    assert mix is not None
    assert (mix.active_cycles_avg, mix.active_cycles_max) == (pytest.approx(1000.0), pytest.approx(1020.0))
    assert share == pytest.approx(1.0 - 1020.0 / 5000.0)


@pytest.mark.parametrize(
    "launch",
    [
        reduction(row=40),  # as many SMs may have blocks that are longer from the start
        reduction(blocks=398),  # some SMs have a block less
        reduction(active_cycles_avg=1007.2, active_cycles_max=1360.0),  # a rest of a quarter is short
        reduction(active_cycles_min=1010.0),  # the other SMs would be active for less than the least
        reduction(active_cycles_min=700.0),  # blocks differ in length on all SMs
        reduction(row=25, active_cycles_avg=1030.0),  # far fewer SMs go on than there are last blocks
        reduction(active_cycles_min=None),
        reduction().model_copy(update={"mix": None}),
        reduction().model_copy(update={"block_lengths": (1.0, 2.0)}),
    ],
)
def test_other_kernels_have_none(launch: KernelLaunch) -> None:
    assert last_blocks(launch, GPU) == (launch.mix, 0.0)


def test_what_they_take_does_not_grow_on_fewer_sms() -> None:
    """The SMs are free meanwhile, so it counts as time before the first block; alone the kernel takes its time."""
    model = anchored(reduction(), GPU)
    working_us = 50.0 - GPU.model.launch_latency_us
    last_us = working_us * (1.0 - 1020.0 / 5000.0)
    assert model.latency_us == pytest.approx(GPU.model.launch_latency_us + last_us)
    assert model.latency_us + run_alone(model, GPU)[0] == pytest.approx(50.0)
    even = anchored(reduction(active_cycles_avg=1000.0, active_cycles_max=1020.0), GPU)
    assert confined_us(model, 50, GPU) - 50.0 < 0.5 * (confined_us(even, 50, GPU) - 50.0)


def test_it_takes_longer_on_a_slower_gpu() -> None:
    launch, slower = reduction(), replace(GPU, boost_clock_mhz=GPU.boost_clock_mhz / 2)
    here = anchored(launch, GPU)
    there = transferred(here, launch, GPU, slower, "")
    last_us = here.latency_us - GPU.model.launch_latency_us
    assert there.latency_us == pytest.approx(GPU.model.launch_latency_us + 2.0 * last_us)
