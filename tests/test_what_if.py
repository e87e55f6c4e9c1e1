"""GPUs with other numbers: what follows from a change, what is refused, and that it tells on a replay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim import load_gpu, load_trace, replay
from gpusim.common.errors import InputError
from gpusim.hardware.gpu import GPU
from gpusim.hardware.what_if import QUANTITIES, value_of, what_if
from gpusim.model.occupancy import occupancy

H200, K40C, V100 = load_gpu("h200"), load_gpu("k40c"), load_gpu("v100")
TRACES = Path(__file__).resolve().parent.parent / "traces"


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_once_what_it_has_is_the_same_gpu(quantity: str) -> None:
    for gpu in (H200, K40C, V100):
        assert what_if(gpu, {quantity: "x1"}) == gpu
        assert what_if(gpu, {quantity: value_of(gpu, quantity)}) == gpu
    assert what_if(H200, {}) == H200


def test_numbers_factors_and_other_gpus() -> None:
    half = replace(H200, sm_count=66, name="h200 with sm_count=66")
    assert what_if(H200, {"sm_count": np.int64(66)}) == half
    assert what_if(H200, {"sm_count": 66}) == half == what_if("h200", {"sm_count": "x0.5"})
    assert what_if(K40C, {"sm_count": "x0.5"}).sm_count == 8  # 7.5 of them there cannot be
    assert what_if(H200, {"sm_count": "x0.25"}).sm_count == 32  # 33 are no whole TPCs
    assert what_if(H200, {"shared_memory_per_sm_bytes": "x0.3"}).limits.shared_memory_per_sm_bytes == 68 * 1024
    assert what_if(H200, {"max_warps_per_sm": "x0.25"}).limits.max_threads_per_block == 512
    assert what_if(K40C, {"boost_clock_mhz": "x0.5"}).boost_clock_mhz == K40C.boost_clock_mhz / 2
    assert what_if(K40C, {"max_blocks_per_sm": "h200"}).limits.max_blocks_per_sm == 32


def test_sustained_bandwidth_follows_the_peak() -> None:
    twice = what_if(H200, {"dram_bandwidth_gb_per_s": 9600})
    assert twice.model.dram_sustained_gb_per_s == 2 * H200.model.dram_sustained_gb_per_s
    assert what_if(H200, {"sm_count": 66}).model == H200.model


def test_threads_follow_warps_and_a_block_has_no_more_registers_than_there_are() -> None:
    assert what_if(H200, {"max_warps_per_sm": 32}).limits.max_threads_per_sm == 1024
    half = what_if(H200, {"registers_per_sm": "x0.5"}).limits
    assert (half.registers_per_sm, half.registers_per_block) == (32768, 32768)
    twice = what_if(H200, {"registers_per_sm": "x2"}).limits
    assert (twice.registers_per_sm, twice.registers_per_block) == (131072, 65536)


def test_a_k40c_with_the_shared_memory_of_an_h200() -> None:
    limits = what_if(K40C, {"shared_memory_per_sm_bytes": "h200"}).limits
    assert limits.shared_memory_per_sm_bytes == 228 * 1024
    assert limits.shared_memory_carveouts_kib == (16, 32, 48, 228)
    assert limits.shared_memory_per_block_optin_bytes == 228 * 1024  # a block of a K40c could have all of an SM


def test_a_block_that_could_not_have_the_whole_sm_still_cannot() -> None:
    limits = what_if(load_gpu("p100"), {"shared_memory_per_sm_bytes": "x2"}).limits
    assert (limits.shared_memory_per_sm_bytes, limits.shared_memory_per_block_optin_bytes) == (131072, 49152)


def test_a_block_that_could_have_the_whole_sm_still_can() -> None:
    assert what_if(H200, {"shared_memory_per_sm_bytes": 100 * 1024}).limits.shared_memory_carveouts_kib[-2:] == (
        64,
        100,
    )
    for kib in (100, 456):
        limits = what_if(H200, {"shared_memory_per_sm_bytes": kib * 1024}).limits
        assert limits.shared_memory_per_block_optin_bytes == (kib - 1) * 1024
    small = what_if(K40C, {"shared_memory_per_sm_bytes": 32 * 1024}).limits
    assert (small.shared_memory_per_block_optin_bytes, small.shared_memory_per_block_default_bytes) == (32768, 32768)
    both = {"shared_memory_per_sm_bytes": 100 * 1024, "shared_memory_per_block_optin_bytes": 64 * 1024}
    assert what_if(H200, both).limits.shared_memory_per_block_optin_bytes == 64 * 1024


def test_more_shared_memory_holds_more_blocks() -> None:
    asked = {"threads_per_block": 64, "registers_per_thread": 32, "shared_memory_per_block": 16 * 1024}
    larger = what_if(K40C, {"shared_memory_per_sm_bytes": "x4"})
    assert occupancy(K40C, **asked).blocks_per_sm == 3
    assert occupancy(larger, **asked).blocks_per_sm == 12


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"l2_bytes": 1}, "l2_bytes: cannot be changed; expected one of sm_count, "),
        ({"sm_count": 33}, "sm_count: 33 SMs do not make whole TPCs; expected a multiple of sms_per_tpc, 2, or "),
        ({"sm_count": 0}, "sm_count: is 0; expected "),
        ({"sm_count": 10**400}, "sm_count: is 1000000000"),
        ({"sm_count": 2.5}, "sm_count: is 2.5; expected "),
        ({"sm_count": True}, "sm_count: is True; expected a number"),
        ({"sm_count": "x-1"}, "sm_count: is 'x-1'; expected a number, xFACTOR such as x0.5, or the name of a GPU"),
        ({"sm_count": "twice"}, "sm_count: is 'twice'; expected a number, xFACTOR such as x0.5, or the name of a GPU"),
        ({"registers_per_sm": 65537}, "registers_per_sm: 65537 does not divide into sub-partitions; expected "),
        ({"shared_memory_per_sm_bytes": 1000}, "shared_memory_per_sm_bytes: is 1000; expected a multiple of 1024"),
        ({"dram_bandwidth_gb_per_s": float("nan")}, "dram_bandwidth_gb_per_s: is nan; expected a number"),
    ],
)
def test_what_no_gpu_can_have(changes: dict[str, float | str], expected: str) -> None:
    with pytest.raises(InputError) as error:
        what_if(H200, changes)
    assert str(error.value).startswith(expected)


def test_it_tells_on_a_replay() -> None:
    trace = load_trace(TRACES / "inception_3a.json.gz")
    makespans = {
        changed: replay(trace, what_if(H200, {changed: factor}), "leftover").makespan_us
        for changed, factor in (
            ("sm_count", "x0.5"), ("dram_bandwidth_gb_per_s", "x0.5"), ("boost_clock_mhz", "x0.5"),
            ("fp32_lanes_per_sm", "x0.5"), ("max_blocks_per_sm", 1),
        )
    }  # fmt: skip
    today = replay(trace, H200, "leftover").makespan_us
    assert all(makespan > today for makespan in makespans.values()), makespans


def test_l2_keeps_its_bandwidth_where_only_that_of_dram_changes() -> None:
    trace = load_trace(TRACES / "inception_3a.json.gz")
    many = replay(trace, what_if(H200, {"dram_bandwidth_gb_per_s": "x100"}), "leftover")
    assert "l2" in {run.bound_by for run in many.kernel_runs}
    assert "dram" not in {run.bound_by for run in many.kernel_runs}


def test_the_limits_of_a_gpu_are_changed_as_its_docstring_says() -> None:
    gpu = load_gpu("h200")
    assert GPU.__doc__ is not None and "limits.model_copy(update=" in GPU.__doc__
    changed = replace(gpu, limits=gpu.limits.model_copy(update={"registers_per_sm": 2 * 65536}))
    assert changed == replace(what_if(gpu, {"registers_per_sm": "x2"}), name="h200")
