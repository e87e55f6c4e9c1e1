"""Warps on the schedulers of an SM, as measured: the fullest scheduler sets how long a wave takes."""

from __future__ import annotations

import csv
import importlib.util
from pathlib import Path
from statistics import median

import pytest

EXPERIMENTS = Path(__file__).resolve().parent.parent / "experiments"
KERNELS = pytest.mark.parametrize("kernel", ["fma", "fma_barrier"])

Blocks = tuple[int, int, int, int]
"""Warps a block and blocks an SM of one kernel, then those of the other."""


@pytest.fixture(params=["h200", "h100"])
def measured(request: pytest.FixtureRequest) -> list[dict[str, str]]:
    with (EXPERIMENTS / f"{request.param}_microbench" / "schedulers.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def times(measured: list[dict[str, str]], kernel: str, waves: int = 1) -> dict[Blocks, float]:
    """Time per wave over that of a warp alone."""
    return {
        (int(row["warps_a"]), int(row["blocks_a"]), int(row["warps_b"]), int(row["blocks_b"])): float(
            row["relative_time_per_wave"]
        )
        for row in measured
        if (row["kernel"], row["waves"]) == (kernel, str(waves))
    }


def turns(blocks: Blocks) -> int:
    """Warps of the SM over its four schedulers, rounded up."""
    return -(-(blocks[0] * blocks[1] + blocks[2] * blocks[3]) // 4)


def test_warps_are_placed_evenly(measured: list[dict[str, str]]) -> None:
    one_wave = [row for row in measured if row["waves"] == "1"]
    assert len(one_wave) == 216
    assert all(float(row["warps_on_fullest_scheduler"]) == int(row["warps_over_4_rounded_up"]) for row in one_wave)


@KERNELS
def test_a_wave_takes_as_long_as_the_fullest_scheduler_has_warps(measured: list[dict[str, str]], kernel: str) -> None:
    """Up to four warps a scheduler: 4 % less at most; more only with a barrier, in few cases of uneven blocks."""
    over = {blocks: time / turns(blocks) for blocks, time in times(measured, kernel).items() if turns(blocks) <= 4}
    assert len(over) == 84
    assert min(over.values()) > 0.95
    assert median(over.values()) == pytest.approx(0.975, abs=0.005)
    longer = {blocks for blocks, share in over.items() if share > 1.03}
    assert len(longer) <= (9 if kernel == "fma_barrier" else 0)
    assert all(blocks[0] in (3, 5, 6) for blocks in longer)
    assert max(over.values()) < 1.2


@KERNELS
@pytest.mark.parametrize(
    ("some", "full"),
    [((2, 3, 0, 0), (2, 4, 0, 0)), ((6, 1, 0, 0), (4, 2, 0, 0)), ((2, 1, 4, 1), (4, 2, 0, 0))],
    ids=["3 blocks of 2 warps as 4", "a block of 6 as two of 4", "2 beside 4 of another kernel as two of 4"],
)
def test_turns_that_are_not_full_take_as_long(
    measured: list[dict[str, str]], kernel: str, some: Blocks, full: Blocks
) -> None:
    found = times(measured, kernel)
    assert found[some] == pytest.approx(found[full], rel=0.02)


@KERNELS
@pytest.mark.parametrize("blocks", [3, 5])
def test_refilled_blocks_take_the_mean_of_the_schedulers(
    measured: list[dict[str, str]], kernel: str, blocks: int
) -> None:
    case = (2, blocks, 0, 0)
    assert times(measured, kernel, waves=16)[case] == pytest.approx(2 * blocks / 4, rel=0.03)
    assert times(measured, kernel)[case] == pytest.approx(turns(case), rel=0.04)


def test_the_tables_of_the_page_are_those_of_the_measurements() -> None:
    """If this fails: `python experiments/h200_microbench/schedulers.py`."""
    folder = EXPERIMENTS / "h200_microbench"
    spec = importlib.util.spec_from_file_location("schedulers", folder / "schedulers.py")
    assert spec is not None and spec.loader is not None
    schedulers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(schedulers)
    assert (folder / "README.md").read_text(encoding="utf-8") == schedulers.readme()
