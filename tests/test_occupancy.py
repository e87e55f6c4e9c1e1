"""Occupancy by hand, against Nsight Compute's own numbers, and as properties."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiny import sm_limits

import gpusim
from gpusim.common.errors import InputError
from gpusim.hardware.compute_capability import CAPABILITIES as KNOWN
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.model import occupancy as module
from gpusim.model.occupancy import Footprint, Occupancy, exceeded, fits, footprint, occupancy, register_blocks

H200 = load_gpu("h200")
K40C = load_gpu("k40c")


def of_capability(compute_capability: str) -> GPU:
    """The H200 with the SMs of another compute capability."""
    return replace(H200, compute_capability=compute_capability, limits=sm_limits(compute_capability))


def blocks(gpu: GPU, threads: int, registers: int, shared: int) -> Occupancy:
    return occupancy(gpu, threads_per_block=threads, registers_per_thread=registers, shared_memory_per_block=shared)


def test_by_hand_on_kepler() -> None:
    # 8 warps; 32 x 80 = 2560 registers a warp, 6 warps a sub-partition, 24 an SM; 8602 -> 8704 bytes.
    assert blocks(K40C, 256, 80, 8602) == Occupancy(
        3, "registers", {"warps": 8, "registers": 3, "shared_memory": 5, "blocks": 16}
    )


def test_by_hand_on_hopper() -> None:
    # 2 warps; 2048 registers a warp, 8 a sub-partition, 32 an SM; 2304 + 1024 = 3328 of 233,472 bytes.
    assert blocks(H200, 64, 64, 2304) == Occupancy(
        16, "registers", {"warps": 32, "registers": 16, "shared_memory": 70, "blocks": 32}
    )
    # The driver's 1024 bytes are there even where the kernel uses none.
    assert blocks(H200, 32, 0, 0).limits == {
        "warps": 64,
        "registers": None,
        "shared_memory": 228,
        "blocks": 32,
    }


def test_what_does_not_limit_is_none() -> None:
    assert blocks(K40C, 32, 0, 0) == Occupancy(
        16, "blocks", {"warps": 64, "registers": None, "shared_memory": None, "blocks": 16}
    )


def test_registers_come_from_sub_partitions() -> None:
    # 192 registers: 6144 a warp, 2 whole warps in 16,384; over the whole SM 10 would fit.
    assert blocks(H200, 32, 192, 0).limits["registers"] == 8


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "limiter"),
    [
        (1025, 16, 0, "warps"),
        (32, 256, 0, "registers"),  # over the compiler's 255
        (1024, 65, 0, "registers"),  # 72 x 1024 registers are more than a block may have
        (992, 65, 0, "registers"),  # 31 warps count as 32 for the launch
        (32, 16, 232_449, "shared_memory"),
    ],
)
def test_what_cannot_launch(threads: int, registers: int, shared: int, limiter: str) -> None:
    result = blocks(H200, threads, registers, shared)
    assert (result.blocks_per_sm, result.limiter, result.limits[limiter]) == (0, limiter, 0)


def test_largest_that_can_launch() -> None:
    assert blocks(H200, 1024, 64, 232_448).blocks_per_sm == 1
    assert blocks(H200, 32, 255, 0).blocks_per_sm == 8


def test_shared_memory_without_an_opt_in_size() -> None:
    assert blocks(of_capability("6.1"), 32, 16, 49_152).limits["shared_memory"] == 2
    assert blocks(of_capability("6.1"), 32, 16, 49_153).limits["shared_memory"] == 0


def test_registers_per_block_of_the_small_pascal() -> None:
    assert blocks(of_capability("6.2"), 512, 64, 0).limits["registers"] == 2
    assert blocks(of_capability("6.2"), 544, 64, 0).limits["registers"] == 0


def test_gp100_has_two_sub_partitions_but_launches_as_if_it_had_four() -> None:
    # 168 registers: 5376 a warp; 6 warps in each half of 32,768, and 3 in each quarter of 16,384.
    assert blocks(of_capability("6.0"), 32, 168, 0).limits["registers"] == 12
    # 14 warps of 136 registers (4352): 7 in each half would hold a block, but 3 in each quarter do not.
    assert blocks(of_capability("6.0"), 448, 136, 0).limits["registers"] == 0
    assert blocks(of_capability("6.0"), 384, 136, 0).limits["registers"] == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("threads_per_block", 0),
        ("threads_per_block", -32),
        ("threads_per_block", 32.0),
        ("threads_per_block", True),
        ("registers_per_thread", -1),
        ("registers_per_thread", None),
        ("shared_memory_per_block", -1),
        ("shared_memory_per_block", "1k"),
        ("shared_memory_per_block", float("nan")),
    ],
)
def test_bad_arguments_are_one_line(name: str, value: object) -> None:
    arguments: dict[str, object] = {
        "threads_per_block": 32,
        "registers_per_thread": 32,
        "shared_memory_per_block": 0,
    }
    for function in (occupancy, footprint):
        with pytest.raises(InputError) as caught:
            function(H200, **(arguments | {name: value}))  # type: ignore[arg-type]
        assert str(caught.value).startswith(f"{name}: is {value!r}; expected a whole number of at least ")


def test_footprint_by_hand() -> None:
    block = footprint(H200, 65, 33, 100)
    assert (block.warps, block.registers, block.shared_memory_bytes, block.need[3]) == (3, 3 * 1280, 1152, 1)
    assert footprint(K40C, 256, 80, 8602).shared_memory_bytes == 8704


def test_mixed_residents_are_summed() -> None:
    wide = footprint(H200, 512, 32, 0)  # 16 warps, 16,384 registers, 1 KiB
    narrow = footprint(H200, 32, 0, 99 * 1024)  # 1 warp, 100 KiB
    assert fits(H200, [])
    assert fits(H200, [(wide, 3), (narrow, 2)])
    assert exceeded(H200, [(wide, 4), (narrow, 1)]) == "warps"
    assert exceeded(H200, [(footprint(H200, 512, 40, 0), 3), (footprint(H200, 32, 160, 0), 1)]) == "registers"
    assert exceeded(H200, [(wide, 1), (narrow, 3)]) == "shared_memory"
    assert exceeded(H200, [(footprint(H200, 32, 0, 0), 33)]) == "blocks"


def test_registers_beside_another_kernel_as_measured() -> None:
    """Blocks that an H200 placed beside one of another kernel; in 7 of 49 cases more fit if registers were summed."""
    rows = pd.read_csv(Path(__file__).parents[1] / "experiments" / "h200_microbench" / "registers.csv")
    summed = 0
    for row in rows.itertuples():
        held = footprint(H200, 32 * row.a_warps, row.a_registers, 0)
        block = footprint(H200, 32 * row.b_warps, row.b_registers, 0)
        room = register_blocks(H200.limits, [(held, 1)], block)
        assert (room, room) == (row.b_blocks_at_least, row.b_blocks_at_most)
        assert fits(H200, [(held, 1), (block, room)])
        assert exceeded(H200, [(held, 1), (block, room + 1)]) == "registers"
        summed += room < row.b_blocks_if_summed
    assert (len(rows), summed) == (2 * 49, 2 * 7)


def test_warps_go_on_where_those_of_others_ended() -> None:
    # A warp of either holds 8192 of the 16,384 registers of a sub-partition. The one that is there holds half of the
    # first, so the next warps go to the second, third, fourth, first, second, third, fourth: then the first is full.
    narrow = footprint(H200, 32, 255, 0)
    assert register_blocks(H200.limits, [(narrow, 1)], narrow) == 7
    # With three there the fourth, first, second, third, fourth: then the first is full.
    assert register_blocks(H200.limits, [(narrow, 3)], narrow) == 5
    assert register_blocks(H200.limits, [(narrow, 1), (narrow, 2)], narrow) == 5


@pytest.mark.parametrize(
    ("block", "count", "resource"),
    [
        (footprint(H200, 512, 0, 0), 4, "warps"),  # 4 x 16 = 64 warps
        (footprint(H200, 256, 64, 0), 4, "registers"),  # 4 x 8 x 2048 = 65,536 registers, 32 warps
        (footprint(H200, 32, 0, 115_712), 2, "shared_memory"),  # 2 x (115,712 + 1024) = 233,472 bytes
        (footprint(H200, 32, 0, 0), 32, "blocks"),
    ],
)
def test_an_exact_fit_fits(block: Footprint, count: int, resource: str) -> None:
    assert exceeded(H200, [(block, count)]) is None
    assert exceeded(H200, [(block, count - 1), (block, 1)]) is None
    assert exceeded(H200, [(block, count), (block, 1)]) == resource


CAPABILITIES = st.sampled_from(list(KNOWN)).map(of_capability)
THREADS = st.integers(1, 1100)
REGISTERS = st.integers(0, 260)
SHARED = st.integers(0, 240_000)


@given(CAPABILITIES, THREADS, REGISTERS, SHARED)
def test_as_many_as_occupancy_says_fit_together(gpu: GPU, threads: int, registers: int, shared: int) -> None:
    result = blocks(gpu, threads, registers, shared)
    assert fits(gpu, [(footprint(gpu, threads, registers, shared), result.blocks_per_sm)])
    assert result.limits[result.limiter] == result.blocks_per_sm


@given(CAPABILITIES, THREADS, REGISTERS)
def test_registers_of_a_kernel_alone_are_those_of_the_rule(gpu: GPU, threads: int, registers: int) -> None:
    most = blocks(gpu, threads, registers, 0).limits["registers"]
    if most:  # None: no limit; 0: it cannot launch
        assert register_blocks(gpu.limits, [], footprint(gpu, threads, registers, 0)) == most


@given(CAPABILITIES, st.lists(st.tuples(THREADS, st.integers(1, 255), st.integers(1, 4)), max_size=3), THREADS)
def test_what_fits_beside_others_never_holds_more_registers_than_there_are(
    gpu: GPU, others: list[tuple[int, int, int]], threads: int
) -> None:
    held = [(footprint(gpu, wide, registers, 0), count) for wide, registers, count in others]
    assume(fits(gpu, held))
    block = footprint(gpu, threads, 40, 0)
    room = register_blocks(gpu.limits, held, block)
    used = sum(other.registers * count for other, count in held)
    assert room == 0 or used + room * block.registers <= gpu.limits.registers_per_sm


@given(CAPABILITIES, THREADS, REGISTERS, SHARED, st.integers(0, 64), st.integers(0, 64), st.integers(0, 9999))
def test_a_larger_block_never_fits_more_often(
    gpu: GPU, threads: int, registers: int, shared: int, more: int, wider: int, larger: int
) -> None:
    small = blocks(gpu, threads, registers, shared).blocks_per_sm
    assert blocks(gpu, threads, registers + more, shared).blocks_per_sm <= small
    assert blocks(gpu, threads + wider, registers, shared).blocks_per_sm <= small
    assert blocks(gpu, threads, registers, shared + larger).blocks_per_sm <= small


def test_every_limit_that_nsight_recorded(shared: Path) -> None:
    launches = pd.read_csv(shared / "h200" / "kernels.csv.gz")
    launches.columns = [name.removeprefix("launch__") for name in launches.columns]
    assert len(launches) == 1903
    for launch in launches.itertuples():
        used = launch.shared_mem_per_block_static + launch.shared_mem_per_block_dynamic
        arguments = (launch.block_size, launch.registers_per_thread, used)
        # Nsight takes the carve-out that the driver chose for the launch, often not the largest.
        carveout = {"shared_memory_per_sm_bytes": launch.shared_mem_config_size}
        as_launched = replace(H200, limits=H200.limits.model_copy(update=carveout))
        assert blocks(as_launched, *arguments).limits == {
            "warps": launch.occupancy_limit_warps,
            "registers": launch.occupancy_limit_registers,
            "shared_memory": launch.occupancy_limit_shared_mem,
            "blocks": launch.occupancy_limit_blocks,
        }
        # The driver never chose one that costs a block.
        resident = blocks(H200, *arguments).blocks_per_sm
        assert launch.grid_size / (132 * resident) == pytest.approx(launch.waves_per_multiprocessor, abs=0.006)


def test_package_names() -> None:
    assert gpusim.load_gpu is load_gpu and gpusim.GPU is GPU and gpusim.InputError is InputError
    assert {"occupancy", "load_gpu"} <= set(dir(gpusim))
    with pytest.raises(AttributeError, match="nothing"):
        gpusim.nothing  # noqa: B018


def test_kernels_without_blocks_cost_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Footprint] = []
    monkeypatch.setattr(module, "register_blocks", lambda limits, others, block: asked.append(block) or 99)
    block = Footprint(warps=4, registers=4096, shared_memory_bytes=1024)
    assert fits(load_gpu("h200"), [(block, 0)] * 60 + [(block, 1)])
    assert asked == [block]
