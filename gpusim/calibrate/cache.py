"""Fits kept between runs: a kernel that was fitted to its recording once is not fitted again.

A fit is kept (`gpusim.common.kept`) under a hash of the launch, the GPU that it was recorded on, and the sources of the
fit and of all that it imports. Only the numbers that the fit found are kept; the rest follows from the launch and the
GPU. Where a number is none that a fit of this launch can find, the fit counts as absent, whoever wrote it.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256

from gpusim.calibrate.fit import AGE_PREFERENCES, SPREADS, unfitted
from gpusim.calibrate.scaling import LOADS, RAMPS
from gpusim.common import fingerprint
from gpusim.common.kept import Kept, user_kept
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import waves
from gpusim.trace.kernels import KernelLaunch

OF_MODEL = (
    *("unit_us", "age_preference", "spread", "ramp_work", "start_us", "sm_start_us"),
    *("issue_us", "dram_share_us", "l2_share_us", "l2_apart_us"),
)
OF_LOAD = ("dram", "l2")
OF_DEMAND = ("latency", "service_demand", "block_us")
MOST_START_US = 10.0  # of a block
MOST_OFF = 10.0  # factor by which a time that a fit found may be off its estimate from the recording


def user_fits() -> Fits | None:
    """The fits of this user; None as of `user_kept`."""
    kept = user_kept("fits")
    return None if kept is None else Fits(kept)


class Fits:
    """The fits that are kept somewhere."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._gpus: dict[GPU, str] = {}  # and the sources, as hashes

    def find(self, launch: KernelLaunch, gpu: GPU) -> KernelModel | None:
        """The fit of a launch recorded on a GPU, as it was kept; None where there is none."""
        try:
            return _model(self._kept.find(self._key(launch, gpu)), launch, gpu)
        except (TypeError, KeyError):
            return None

    def keep(self, launch: KernelLaunch, gpu: GPU, model: KernelModel) -> None:
        """Keep a fit, where that is possible."""
        self._kept.keep(self._key(launch, gpu), _numbers(model))

    def _key(self, launch: KernelLaunch, gpu: GPU) -> str:
        if gpu not in self._gpus:
            self._gpus[gpu] = fingerprint.data(gpu) + fingerprint.sources("gpusim.calibrate.scaling")
        described = json.dumps(launch, default=vars, sort_keys=True)  # a serializer would first have to be built
        return sha256((self._gpus[gpu] + described).encode()).hexdigest()


def _numbers(model: KernelModel) -> dict[str, float]:
    parts = ((model, OF_MODEL), (model.load, OF_LOAD), (model.demand, OF_DEMAND))
    return {name: getattr(part, name) for part, names in parts for name in names}


def _model(kept: dict[str, float], launch: KernelLaunch, gpu: GPU) -> KernelModel | None:
    """The model of a launch with the numbers that were kept; None where no fit of it can have found one of them."""
    model, ramp_us, _ = unfitted(launch, gpu)
    if any(type(kept[name]) is not type(number) for name, number in _numbers(model).items()):
        return None
    of_lists = {"age_preference": AGE_PREFERENCES, "spread": (0.0, *SPREADS)}
    if not all(kept[name] in values for name, values in of_lists.items()):
        return None
    if not all(least <= kept[name] <= most for name, (least, most) in _limits(kept, model, ramp_us, launch).items()):
        return None
    return replace(
        model,
        **{name: kept[name] for name in OF_MODEL},  # type: ignore[arg-type]
        load=model.load._replace(**{name: kept[name] for name in OF_LOAD}),
        demand=replace(model.demand, **{name: kept[name] for name in OF_DEMAND}),  # type: ignore[arg-type]
    )


def _limits(
    kept: dict[str, float], model: KernelModel, ramp_us: float, launch: KernelLaunch
) -> dict[str, tuple[float, float]]:
    """Least and most of each number that a fit of a launch can find, from its model before the fit.

    Only scaling points change the loads, the turns and the ramp that the counters give.
    """
    working_us = launch.duration_us - model.latency_us
    block_us = working_us / max(1.0, waves(model.blocks, model.blocks_per_sm, model.sm_count))
    lives = block_us / MOST_OFF, block_us * MOST_OFF
    most_share_us = MOST_OFF * working_us / model.blocks
    demand, load = model.demand, model.load
    limits = {
        "unit_us": (lives[0] / MOST_OFF, lives[1]),  # memory may be most of a block's time
        "block_us": lives,
        "ramp_work": (0.0, MOST_OFF * ramp_us / block_us),
        "start_us": (0.0, MOST_START_US),
        "sm_start_us": (0.0, MOST_START_US),
        "issue_us": (0.0, most_share_us * model.sm_count),
        "dram_share_us": (0.0, most_share_us),
        "l2_share_us": (0.0, most_share_us),
        "l2_apart_us": (0.0, MOST_OFF * most_share_us),
    }
    if launch.scaling is None:
        given = {"dram": load.dram, "l2": load.l2, "latency": demand.latency, "service_demand": demand.service_demand}
        return limits | {name: (value, value) for name, value in given.items()}
    most_load, most_time = max(LOADS), max(1.0, *demand.demands)
    return limits | {
        "dram": (0.0, load.dram * most_load),
        "l2": (0.0, load.l2 * most_load),
        "service_demand": (demand.demands[demand.bound], most_time),
        "latency": (kept["service_demand"], most_time),
        "ramp_work": (0.0, max(RAMPS) * limits["ramp_work"][1]),
    }
