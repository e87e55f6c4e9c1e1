"""Times on a part of the SMs: what they tell of a kernel, and what they leave as it was."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from functools import cache
from math import e, exp, fsum, log, prod
from pathlib import Path

import pytest
import tiny

from experiments.h100_microbench import constants
from gpusim import load_gpu, load_trace
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.scaling import (
    LOADS,
    MOST_COUNTED,
    NOT_FULL,
    RAMPS,
    TURNS,
    _changed,
    _doubt,
    _misfit,
    _through,
    _with_turns,
    confined_us,
    fitted,
    shared_out,
)
from gpusim.calibrate.transfer import transferred
from gpusim.common.errors import InputError
from gpusim.engine.sm_array import run_alone
from gpusim.model.contention import WarpDemand, latency_beside, mix_times
from gpusim.model.memory import MemoryWait
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, ScalingPoint

ROOT = Path(__file__).resolve().parents[1]
H200 = load_gpu("h200")


@cache
def launches() -> tuple[KernelLaunch, ...]:
    """A change of layout, bound by DRAM, and a GEMM on tensor cores, each with a quarter of its blocks."""
    trace = load_trace(ROOT / "traces" / "inception_3a.json.gz")
    op = next(op for op in trace.operations() if op.id == "3a.3x3")
    return tuple(quarter(launch) for launch in op.launches())


def quarter(launch: KernelLaunch) -> KernelLaunch:
    """A quarter of the blocks in a quarter of the time: a fit is as hard and takes less."""
    x, y, z = launch.grid
    grid = (x, y, z // 4) if z > 1 else (-(-x // 4), y, z)
    part = prod(grid) / prod(launch.grid)
    return launch.model_copy(update={"grid": grid, "duration_us": launch.duration_us * part})


def with_points(launch: KernelLaunch, **us: float) -> KernelLaunch:
    points = tuple(ScalingPoint(sms=int(sms[2:]), duration_us=time) for sms, time in us.items())
    return launch.model_copy(update={"scaling": points})


def test_without_points_the_fit_is_that_of_the_recording() -> None:
    assert fitted(launches()[0], H200) == anchored(launches()[0], H200)


def test_points_that_say_what_the_model_says_change_nothing() -> None:
    model = anchored(launches()[0], H200)
    told = with_points(launches()[0], on32=confined_us(model, 32, H200), on72=confined_us(model, 72, H200))
    assert fitted(told, H200) == model


@pytest.mark.parametrize("factor", [0.5, 1.25])
def test_points_find_the_loads_of_a_kernel(factor: float) -> None:
    """Times of the kernel as it would be with other loads: the fit comes near them beside the points, too."""
    model = anchored(launches()[0], H200)
    other = _changed(model, H200, load=factor)
    assert other.load == model.load._replace(dram=model.load.dram * factor, l2=model.load.l2 * factor)
    told = {f"on{sms}": confined_us(other, sms, H200) for sms in (32, 72)}
    found = fitted(with_points(launches()[0], **told), H200)
    for sms in (16, 32, 48, 72, 96):
        truth = confined_us(other, sms, H200)
        assert abs(confined_us(found, sms, H200) / truth - 1.0) < 0.03
    assert abs(confined_us(model, 16, H200) / confined_us(other, 16, H200) - 1.0) > 0.04


@pytest.mark.parametrize("factor", [load for load in LOADS if 0.0 < load <= MOST_COUNTED and load != 1.0])
def test_a_load_that_is_off_by_a_factor_that_is_tried_is_found_to_the_bit(factor: float) -> None:
    other = _changed(anchored(launches()[0], H200), H200, load=factor)
    told = {f"on{sms}": confined_us(other, sms, H200) for sms in (24, 80)}
    assert fitted(with_points(launches()[0], **told), H200) == other


@pytest.mark.parametrize("busy", [0.2, 1.0])
def test_loads_far_above_the_counted_ones_are_for_memory_that_is_not_full(busy: float) -> None:
    model = anchored(launches()[0], H200)
    factor = busy / model.own_load.dram
    model = replace(model, load=model.load._replace(dram=model.load.dram * factor, l2=0.0))
    assert model.own_load.dram == pytest.approx(busy)
    other = _changed(model, H200, load=3.0)
    points = tuple(ScalingPoint(sms=sms, duration_us=confined_us(other, sms, H200)) for sms in (24, 80))
    found = _through(model, points, H200)
    assert (found == other) == (3.0 * busy <= NOT_FULL)
    assert found.load.dram <= model.load.dram * (3.0 if 3.0 * busy <= NOT_FULL else MOST_COUNTED) * (1.0 + 1e-9)


@pytest.mark.parametrize("factor", RAMPS)
def test_a_ramp_that_is_off_is_found(factor: float) -> None:
    """No other factors fit better than the right one, so what is found is off by no more than the doubt about that."""
    model = replace(anchored(launches()[0], H200), ramp_work=1.0)
    other = _changed(model, H200, ramp=factor)
    assert other.ramp_work == factor
    points = tuple(ScalingPoint(sms=sms, duration_us=confined_us(other, sms, H200)) for sms in (24, 80))
    assert _misfit(_through(model, points, H200), points, H200) <= _doubt(1.0, 1.0, factor)


# On each of 8 SMs a block of 8 warps, so 2 on a scheduler; on 4 SMs there are 4, on 2 SMs 8.
FEW = tiny.tiny(8)
FREE = replace(
    anchored(tiny.launch(8, 20.0, threads=256), FEW),
    demand=WarpDemand(2.0, latency_beside(0.2, 0.5, 2.0), 0.2, (0.01,), 0, serial_share=0.5),
)


@pytest.mark.parametrize("factor", [turn for turn in TURNS if turn != 1.0])
def test_turns_that_are_off_by_a_factor_that_is_tried_are_found_to_the_bit(factor: float) -> None:
    other = _changed(FREE, FEW, turn=factor)
    points = tuple(ScalingPoint(sms=sms, duration_us=confined_us(other, sms, FEW)) for sms in (2, 4))
    assert _through(FREE, points, FEW) == other
    assert other.demand.service_demand == pytest.approx(0.2 * factor)


@pytest.mark.parametrize(("load", "turn"), [(0.4, 0.5), (0.6, 1.6), (1.25, 0.7)])
def test_a_load_and_turns_that_are_both_off_are_found_together(load: float, turn: float) -> None:
    """No pair fits better than the right one, so what is found is off by no more than the doubt about that."""
    model = anchored(launches()[2], H200)
    other = _changed(model, H200, load, turn)
    told = with_points(launches()[2], **{f"on{sms}": confined_us(other, sms, H200) for sms in (24, 80)})
    found = fitted(told, H200)
    assert told.scaling is not None
    assert _misfit(found, told.scaling, H200) <= _doubt(load, turn)


@pytest.mark.parametrize(("factor", "turn"), [(0.5, 0.1), (0.01, 0.01), (2.0, 0.4), (3.0, 0.5)])
def test_turns_are_no_less_than_the_busiest_resource_and_fill_the_time_at_most(factor: float, turn: float) -> None:
    """Two warps compete, so 0.5 each fills it; the recorded time stays 1."""
    changed = _with_turns(FREE.demand, factor, 1.0)
    assert changed.service_demand == turn
    assert changed.latency == max(turn, latency_beside(turn, 0.5, 2.0))
    assert mix_times([(changed, 1)]) == [pytest.approx(1.0)]


def test_where_none_competes_or_nothing_changes_turns_stay() -> None:
    assert _with_turns(FREE.demand, 1.0, 1.0) is FREE.demand
    alone = replace(FREE.demand, warps_per_scheduler=0.5)
    assert _with_turns(alone, 2.0, 2.0) is alone


def test_a_misfit_is_the_sum_of_squares_of_logarithms() -> None:
    """Both factors by e are held against a kernel as a misfit of 0.006 in one point is; below a tenth no load is."""
    points = [
        ScalingPoint(sms=sms, duration_us=confined_us(FREE, sms, FEW) / exp(off)) for sms, off in ((2, 1), (4, -2))
    ]
    assert _misfit(FREE, points, FEW) == pytest.approx(1.0 + 4.0)
    assert _doubt(e, 1.0) == _doubt(1.0 / e, 1.0) == _doubt(1.0, e) == pytest.approx(0.006**2)
    assert _doubt(e, e * e) == pytest.approx((1.0 + 4.0) * 0.006**2)
    assert _doubt(0.0, 1.0) == _doubt(0.1, 1.0) == pytest.approx(0.006**2 * log(10.0) ** 2)


def test_a_kernel_with_another_load_takes_as_long_alone_and_moves_at_most_what_it_can() -> None:
    model = anchored(launches()[0], H200)
    for factor in (0.0, 0.5, 3.0):
        other = _changed(model, H200, load=factor)
        assert other.latency_us + run_alone(other, H200)[0] == pytest.approx(model.solo_us, rel=2e-3)
        assert other.dram_share_us == min(model.dram_share_us, other.most_share_us)
        assert other.l2_share_us == min(model.l2_share_us * factor, other.most_share_us)


def test_what_a_kernel_has_under_way_alone_follows_its_load() -> None:
    """DRAM binds it in the recording, and at half of its load for 0.64 of the time."""
    model = replace(anchored(launches()[0], H200), wait=MemoryWait(under_way=0.1))
    half = _changed(model, H200, load=0.5)
    assert model.own_load.dram > 1.0 and half.own_load.dram == pytest.approx(0.641, abs=1e-3)
    assert half.wait.own_under_way == pytest.approx(half.own_load.dram * model.wait.own_under_way)


def test_the_time_on_all_sms_stays() -> None:
    model = anchored(launches()[0], H200)
    found = fitted(with_points(launches()[0], on32=0.8 * confined_us(model, 32, H200)), H200)
    assert found != model
    assert found.latency_us + run_alone(found, H200)[0] == pytest.approx(found.solo_us, rel=1e-6)
    assert found.demand.latency >= found.demand.service_demand >= max(found.demand.demands)


def test_replays_use_points() -> None:
    launch = launches()[0]
    told = with_points(launch, on32=0.8 * confined_us(anchored(launch, H200), 32, H200))
    kernels = Kernels(H200, H200)
    assert kernels.model(told, "") == fitted(told, H200) != kernels.model(launch, "")


def test_a_call_is_shared_out_among_its_kernels() -> None:
    """In proportion to what each takes there by the model; together the time of the call."""
    made = shared_out(launches(), {32: 500.0, 72: 300.0}, H200)
    assert shared_out(launches(), {}, H200) == launches()
    for i, (sms, us) in enumerate(((32, 500.0), (72, 300.0))):
        points = [launch.scaling[i] for launch in made if launch.scaling]
        assert [point.sms for point in points] == [sms] * len(launches())
        assert fsum(point.duration_us for point in points) == pytest.approx(us)
        parts = [confined_us(anchored(launch, H200), sms, H200) for launch in launches()]
        ratios = [point.duration_us / part for point, part in zip(points, parts, strict=True)]
        assert ratios == pytest.approx([ratios[0]] * len(ratios))


def test_a_point_on_all_sms_is_refused() -> None:
    with pytest.raises(InputError, match=r"scaling: is of 132 SMs, h200 has 132; expected fewer than all SMs"):
        fitted(with_points(launches()[0], on132=50.0), H200, "streams[0].operations[0]")


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ([], "scaling"),
        ([{"sms": 0, "duration_us": 1.0}], "sms"),
        ([{"sms": 8, "duration_us": -1.0}], "duration_us"),
        ([{"sms": 8, "duration_us": 1.0}] * 2, "gives 8 SMs twice"),
        ([{"sms": i, "duration_us": 1.0} for i in (1, 2, 3)], "scaling"),
    ],
)
def test_points_that_cannot_be(points: list[dict[str, float]], said: str) -> None:
    trace = tiny.trace(tiny.stream("a", tiny.convolution("op", (launches()[0],))))
    content = trace.model_dump(mode="json", exclude_none=True)
    content["streams"][0]["operations"][0]["selected"]["kernels"][0]["scaling"] = points
    with pytest.raises(ValueError, match=said):
        Trace.model_validate_json(json.dumps(content))


# ---- an H100


def test_the_constants_of_an_h100_are_what_the_microbenchmarks_say() -> None:
    """If this fails: `python experiments/h100_microbench/constants.py`."""
    assert (ROOT / "gpus" / "h100-sxm.toml").read_text(encoding="utf-8") == constants.gpu_file()
    model = tomllib.loads((ROOT / "gpus" / "h100-sxm.toml").read_text(encoding="utf-8"))["model"]
    assert model["l2_read_gb_per_s"]["value"] == round(H200.model.l2_read_gb_per_s * 8266 / 9567)
    assert all(entry["source"] for entry in model.values())


def test_loads_move_by_what_each_memory_sustains() -> None:
    h100, launch = load_gpu("h100-sxm"), launches()[0]
    model = anchored(launch, H200)
    moved = transferred(model, launch, H200, h100, "")
    dram = H200.model.dram_sustained_gb_per_s / h100.model.dram_sustained_gb_per_s
    l2 = H200.model.l2_read_gb_per_s / h100.model.l2_read_gb_per_s
    assert (moved.load.dram, moved.load.l2) == (model.load.dram * dram, model.load.l2 * l2)
    assert 1.1 < l2 < 1.2 < 1.4 < dram
    assert moved.demand == model.demand  # the SMs and their clock are the same
    other_chip = replace(h100, name="other", architecture="AD102")
    assert transferred(model, launch, H200, other_chip, "").load.l2 == model.load.l2 * dram
