"""Scaling points: a kernel's times on other numbers of SMs, and what they say about it.

A recording on the whole GPU leaves two things in doubt: how much of a kernel's time is L2's and DRAM's, which few SMs
load less, and how much is latency, which neighbours on an SM do not lengthen. The counters give both an estimate
(`gpusim.calibrate.fit`); one or two times of the same kernel on a part of the SMs correct it, by one factor each. What
does not shrink on more SMs may also be the start of the first blocks. The recorded duration on the whole GPU stays what
it is. With no points nothing changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import fsum, log

from gpusim.calibrate.fit import anchored
from gpusim.common.errors import InputError
from gpusim.engine.sm_array import run_alone
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import WarpDemand, competing_warps, latency_beside
from gpusim.model.kernel import KernelModel
from gpusim.trace.kernels import KernelLaunch, ScalingPoint

# factors tried on the load of L2 and DRAM
LOADS = (0.0, 0.25, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4, 1.6, 2.0, 3.0)
MOST_COUNTED = 1.25  # a larger factor is tried only while memory is no busier than `NOT_FULL` [D]
NOT_FULL = 0.8
TURNS = (0.3, 0.5, 0.7, 0.85, 1.0, 1.15, 1.3, 1.6)  # with it, on what each competing warp adds to an instruction's time
RAMPS = (0.0, 0.5, 2.0, 4.0)  # or, with it, on what the first blocks have to do before their work
BELIEF = 0.006  # misfit that a factor of e must make good: counters are believed where points tell little [D]


def fitted(launch: KernelLaunch, gpu: GPU, place: str = "") -> KernelModel:
    """The model of a launch on the GPU that it was recorded on, corrected by its scaling points."""
    model = anchored(launch, gpu, place)
    if launch.scaling is None:
        return model
    for point in launch.scaling:
        if point.sms >= gpu.sm_count:
            had = "its recording" if launch.recorded_sms else gpu.name
            problem = f"is of {point.sms} SMs, {had} has {gpu.sm_count}"
            raise InputError(None, f"{place or launch.name[:60]}.scaling", problem, "fewer than all SMs")
    return _through(model, launch.scaling, gpu)


def confined_us(model: KernelModel, sms: int, gpu: GPU) -> float:
    """Time of a kernel alone on some of the SMs, us."""
    started = model.starting(model.blocks_per_sm * sms)
    return model.latency_us + run_alone(started, gpu.part(sms))[0]


def shared_out(launches: Sequence[KernelLaunch], points_us: Mapping[int, float], gpu: GPU) -> tuple[KernelLaunch, ...]:
    """Divide the times of a whole call among its kernels, as scaling points of each, in proportion to modelled times.

    The kernels are on one stream. ``points_us`` has times of the call by number of SMs, or nothing.
    """
    if not points_us:
        return tuple(launches)
    models = [anchored(launch, gpu) for launch in launches]
    shares: list[list[ScalingPoint]] = [[] for _ in models]
    for sms, us in sorted(points_us.items()):
        parts = [confined_us(model, sms, gpu) for model in models]
        for share, part in zip(shares, parts, strict=True):
            share.append(ScalingPoint(sms=sms, duration_us=us * part / fsum(parts)))
    return tuple(
        launch.model_copy(update={"scaling": tuple(share)}) for launch, share in zip(launches, shares, strict=True)
    )


def _through(model: KernelModel, points: Sequence[ScalingPoint], gpu: GPU) -> KernelModel:
    """The kernel with the pair of factors, on load and turns or on load and ramp, that fits its points best."""
    busy = max(model.own_load.dram, model.own_load.l2)
    loads = [load for load in LOADS if load <= MOST_COUNTED or load * busy <= NOT_FULL]
    pairs = [(load, turn, 1.0) for load, turn in product(loads, TURNS)]
    if model.ramp_work > 0.0:
        pairs += [(load, 1.0, ramp) for load, ramp in product(loads, RAMPS)]
    best, least = model, _misfit(model, points, gpu)
    for factors in pairs:
        doubt = _doubt(*factors)
        if 0.0 < doubt < least:
            changed = _changed(model, gpu, *factors)
            misfit = _misfit(changed, points, gpu) + doubt
            if misfit < least:
                best, least = changed, misfit
    return best


def _changed(model: KernelModel, gpu: GPU, load: float = 1.0, turn: float = 1.0, ramp: float = 1.0) -> KernelModel:
    """The kernel with other loads, turns and ramp, as long alone on the whole GPU as before."""
    residents = model.resident_share * model.most_resident
    changed = replace(
        model,
        load=model.load._replace(dram=model.load.dram * load, l2=model.load.l2 * load),
        demand=_with_turns(model.demand, turn, residents),
        ramp_work=model.ramp_work * ramp,
        dram_share_us=0.0,  # the slowdown that comes with the load is all that holds it back alone
        l2_share_us=0.0,
    )
    recorded, now = model.solo_us - model.latency_us, run_alone(changed, gpu)[0]
    changed = replace(changed, unit_us=changed.unit_us * recorded / now)
    most = changed.most_share_us
    return replace(
        changed, dram_share_us=min(most, model.dram_share_us), l2_share_us=min(most, model.l2_share_us * load)
    )


def _with_turns(demand: WarpDemand, factor: float, residents: float) -> WarpDemand:
    """Scale the service demand, with the latency that keeps the time of an instruction at the recorded residency at 1.

    The service demand is at most that time, and at least the time for which the busiest resource is held.
    """
    competing = competing_warps(residents, demand.warps_per_scheduler, demand.one_wave)
    if factor == 1.0 or competing == 1.0:
        return demand
    turn = max(min(demand.service_demand * factor, 1.0 / competing), *demand.demands, *demand.others)
    latency = max(turn, latency_beside(turn, demand.serial_share, competing))
    return replace(demand, latency=latency, service_demand=turn)


def _misfit(model: KernelModel, points: Sequence[ScalingPoint], gpu: GPU) -> float:
    return fsum(log(confined_us(model, point.sms, gpu) / point.duration_us) ** 2 for point in points)


def _doubt(*factors: float) -> float:
    """The penalty of departing from the counters."""
    return BELIEF * BELIEF * fsum(log(max(factor, 0.1)) ** 2 for factor in factors)
