"""The clock of the SMs falls while any of them computes on tensor cores: what is then beside takes longer.

The GPU by hand has 4 SMs, whose clock falls to four fifths.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from statistics import fmean, median

import pytest
from tiny import kernel, launch, played, stream, times, tiny

from gpusim import load_gpu
from gpusim.calibrate.fit import HELD_BELOW, anchored
from gpusim.hardware.gpu import GPU
from gpusim.model.clock import power_cycle
from gpusim.model.front_end import turn_wait_us
from gpusim.model.kernel import OTHER_POWER
from gpusim.model.memory import MemoryLoad, memory_slowdown
from gpusim.trace.kernels import Mix
from gpusim.trace.operations import Kernel

MICROBENCH = Path(__file__).resolve().parent.parent / "experiments" / "h200_microbench"


def slowing() -> GPU:
    return tiny(tensor_clock_share=0.8)


def on_tensor_cores(id: str, blocks: int, duration_us: float, busy: float = 0.5) -> Kernel:
    """A kernel whose blocks keep the tensor pipe of their SM busy for a share of the time, and little else."""
    cycles = duration_us * 1980.0
    mix = Mix(issue_cycles=0.01 * cycles, tensor_cycles=busy * cycles, active_cycles_avg=cycles * blocks / 4)
    plain = kernel(id, blocks, duration_us)
    return plain.model_copy(update={"kernel": plain.kernel.model_copy(update={"mix": mix})})


def test_a_kernel_beside_tensor_cores_takes_as_much_longer_as_the_clock_falls() -> None:
    """A runs 20 us on its own SM; of b's 30 us 20 are at the slow clock, which do the work of 16."""
    result = played(
        "leftover", stream("a", on_tensor_cores("a", 1, 21.0)), stream("b", kernel("b", 1, 31.0)), gpu=slowing()
    )
    assert times(result) == {"a": (0.0, 21.0), "b": (0.0, 35.0)}


def test_alone_and_one_after_the_other_all_take_their_recorded_times() -> None:
    operations = stream("a", on_tensor_cores("a", 1, 21.0)), stream("b", kernel("b", 1, 31.0))
    assert played("serial", *operations, gpu=slowing()).makespan_us == pytest.approx(52.0)


def test_two_on_tensor_cores_do_not_slow_one_another() -> None:
    result = played(
        "leftover",
        stream("a", on_tensor_cores("a", 1, 21.0)),
        stream("b", on_tensor_cores("b", 1, 31.0)),
        gpu=slowing(),
    )
    assert times(result) == {"a": (0.0, 21.0), "b": (0.0, 31.0)}


def test_a_gpu_that_gives_no_share_keeps_its_clock() -> None:
    operations = stream("a", on_tensor_cores("a", 1, 21.0)), stream("b", kernel("b", 1, 31.0))
    result = played("leftover", *operations, gpu=tiny(tensor_clock_share=1.0))
    assert times(result) == {"a": (0.0, 21.0), "b": (0.0, 31.0)}
    assert load_gpu("k40c").model.tensor_clock_share == 1.0


LIMITED = tiny(tensor_clock_share=1.0)


def held(id: str, blocks: int, duration_us: float) -> Kernel:
    """A kernel whose blocks fill the GPU with work on tensor cores, recorded at four fifths of their clock."""
    cycles = duration_us * 1980.0
    mix = Mix(tensor_cycles=0.95 * cycles, active_cycles_avg=cycles, clock_mhz=0.8 * HELD_BELOW * 1980.0)
    plain = kernel(id, blocks, duration_us)
    return plain.model_copy(update={"kernel": plain.kernel.model_copy(update={"mix": mix})})


def test_on_fewer_sms_the_power_limit_leaves_a_kernel_its_clock() -> None:
    """Four SMs ask for 1 / 0.8^3 = 1.95 of the limit, two for 0.98: there each block takes 0.8 of its time."""
    one = stream("a", held("a", 4, 21.0))
    assert played("leftover", one, gpu=LIMITED).makespan_us == pytest.approx(21.0, rel=1e-9)
    assert played("mps:percent=50", one, gpu=LIMITED).makespan_us == pytest.approx(1.0 + 2 * 20.0 * 0.8, rel=1e-9)


def test_what_runs_beside_a_kernel_that_the_power_limit_holds_back_has_its_clock() -> None:
    """Two of its blocks ask for 0.98 of the limit, and two others for 0.375: the cube root of 1.35 longer."""
    model = anchored(held("a", 4, 21.0).kernel, LIMITED)
    assert model.held_clock == pytest.approx(0.8)
    assert model.block_power == pytest.approx(0.8**-3 / 4)
    assert anchored(launch(4, 21.0), LIMITED).block_power == pytest.approx(OTHER_POWER / 4)
    assert power_cycle(2 * model.block_power + 2 * OTHER_POWER / 4) == pytest.approx(1.3516 ** (1 / 3), rel=1e-4)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 1.2, 2.0, 8.0])
def test_the_cycle_is_the_cube_root_of_the_power(power: float) -> None:
    assert power_cycle(power) == pytest.approx(max(1.0, power) ** (1 / 3), rel=1e-12)


@pytest.mark.parametrize(("busy", "expected"), [(0.0, False), (0.03, False), (0.06, True), (0.9, True)])
def test_what_counts_as_work_on_tensor_cores(busy: float, expected: bool) -> None:
    assert on_tensor_cores("a", 4, 21.0, busy).kernel.on_tensor_cores(4) is expected
    assert anchored(on_tensor_cores("a", 4, 21.0, busy).kernel, slowing()).on_tensor_cores is expected
    assert not anchored(launch(4, 21.0), slowing()).on_tensor_cores


def test_what_waits_for_memory_does_not_wait_longer() -> None:
    own = MemoryLoad(2.0, 0.0)
    assert memory_slowdown(2.0, 0.0, own, 1.25) == pytest.approx((1.25**2 + 4.0) ** 0.5)
    assert memory_slowdown(0.0, 0.0, own, 1.25) == pytest.approx(1.25)


def rows(name: str) -> list[dict[str, str]]:
    with (MICROBENCH / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_share_is_what_was_measured() -> None:
    whole = [row for row in rows("clock") if row["load"] in ("tf32", "fp16", "int8") and int(row["blocks"]) >= 16]
    assert all(row["sms_slow"] == row["sms_seen"] for row in whole)
    lowest = [int(row["mhz_lowest"]) for row in whole]
    share = load_gpu("h200").model.tensor_clock_share
    assert share == pytest.approx(sorted(lowest)[len(lowest) // 2] / 1980.0, rel=0.005)


def test_a_launch_beside_delays_running_blocks_by_what_the_page_says() -> None:
    """In the median of the rows, in streams made in a row; the gaps between kernels stay as they are alone."""
    delays: dict[str, list[float]] = {"plain": [], "green": []}
    calls: dict[str, list[float]] = {}
    by_spin: dict[str, list[float]] = {}
    gaps: dict[tuple[str, str], list[float]] = {}
    for row in rows("launches_beside"):
        gaps.setdefault((row["call"], row["streams"]), []).append(float(row["gap_us_median"]))
        if row["spin_us"]:
            later_us = float(row["later_us_per_launch"])
            delays[row["streams"]].append(later_us)
            if row["streams"] == "plain":
                calls.setdefault(row["call"], []).append(later_us)
                by_spin.setdefault(row["spin_us"], []).append(later_us)
    said = (MICROBENCH / "page.md").read_text(encoding="utf-8")
    least, most = (pick(median(found) for found in calls.values()) for pick in (min, max))
    assert f"by {median(delays['plain']):.2f} µs in the median of all rows" in said
    assert f"by {least:.2f} to {most:.2f} in those of one call" in said
    assert f"in green contexts by {median(delays['green']):.2f}." in said
    assert f"does so ({median(by_spin['0']):.2f}), and one of 12 µs ({median(by_spin['12']):.2f})" in said
    assert max(abs(gap - alone) for alone, *others in gaps.values() for gap in others) < 0.205


def test_turns_of_streams_are_those_of_cudnn_calls_and_of_own_kernels_half_as_long() -> None:
    """Of cuDNN by least squares through the gap alone, each gap of a row counted; own streams were made in a row."""
    gaps = [(int(r["streams_beside"]), int(r["gaps"]), float(r["gap_us_mean"])) for r in rows("stream_gaps")]
    alone = [(count, gap) for beside, count, gap in gaps if beside == 0]
    least = sum(count * gap for count, gap in alone) / sum(count for count, _ in alone)
    slope = sum(c * b * (g - least) for b, c, g in gaps) / sum(c * b * b for b, c, _ in gaps)
    turn_us = load_gpu("h200").model.stream_turn_us
    assert turn_us == pytest.approx(slope, abs=0.05)
    own = json.loads((MICROBENCH / "constants.json").read_text())["constants"]["stream_turn_us"]["value"]
    assert 0.5 * turn_us == pytest.approx(own, abs=0.05)
    gap_us = [
        fmean(float(r["gap_ns_mean"]) / 1e3 for r in rows("turns") if int(r["streams"]) == n) for n in range(1, 6)
    ]
    for others, found in enumerate(gap_us):
        assert turn_wait_us(others, turn_us, own_sms=True) == pytest.approx(found - gap_us[0], abs=0.15)
