"""What variants of the model patch in how kernels share an SM. `patches` has the rest, and says how they are called."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from experiments.h200_validation.patches import put
from gpusim.calibrate import fit
from gpusim.model import contention, mixing
from gpusim.model import kernel as kernel_model

FIXED_POINT_ROUNDS = 60


def _put_in_mixing(name: str, value: Any) -> None:
    """Replace a part of how kernels mix, and have the model use that file: the compiled core has a copy of it."""
    put(mixing, name, value)
    put(contention, "progress", mixing.progress)


def _put_mix_times(mix_times: Callable[..., list[float]]) -> None:
    """Replace how residents of an SM slow one another, wherever it is called."""
    for module in (contention, kernel_model, fit):
        put(module, "mix_times", mix_times)


def fair_sharing() -> None:
    """What saturates an SM goes to kernels by their warps, whoever is older; what one leaves goes to the others."""

    def shared(uses: Sequence[mixing.Use]) -> list[float]:
        shares = [1.0] * len(uses)
        for column in zip(*[(use.taken, *use.pipes, use.path) for use in uses], strict=True):
            shares = list(map(min, shares, _by_warps(column, [use.warps for use in uses])))
        return shares

    put(contention, "progress", shared)


def _by_warps(wanted: Sequence[float], warps: Sequence[float]) -> list[float]:
    """Share that each gets of what it wants of a resource, of which no more than 1 can be given."""
    got, left, waiting = [1.0] * len(wanted), 1.0, [i for i, want in enumerate(wanted) if want > 0.0]
    while waiting:
        each = left / math.fsum([warps[i] for i in waiting])
        content = [i for i in waiting if wanted[i] <= each * warps[i]]
        if not content:
            for i in waiting:
                got[i] = each * warps[i] / wanted[i]
            return got
        left -= math.fsum([wanted[i] for i in content])
        waiting = [i for i in waiting if i not in content]
    return got


def no_path_wait() -> None:
    """Requests of others on the path to L1 take no time."""
    _put_in_mixing("_path_waits", lambda uses, shares: [0.0] * len(uses))


def no_fullest_beside_others() -> None:
    """Beside others the mean scheduler counts, not the fullest."""
    _put_in_mixing("_meeting", lambda i, uses: 1.0)


def no_handing_on() -> None:
    """Warps that hardly ever stall let others in after each burst."""
    _put_in_mixing("CHAINED_WARPS", math.inf)


def no_sharing() -> None:
    """Residents of an SM do not slow one another."""
    _put_mix_times(lambda residents, least=(): [1.0] * len(residents))


def blind_to_others() -> None:
    """Blocks of other kernels on an SM cost nothing."""
    known = contention.mix_times
    _put_mix_times(lambda residents, least=(): [known([one])[0] for one in residents])


def fixed_point() -> None:
    """Warps of another kernel count by how often they come by while one instruction of this one runs."""

    def mix_times(residents: Sequence[tuple[contention.WarpDemand, int]], least: Sequence[float] = ()) -> list[float]:
        times = [1.0] * len(residents)
        for _ in range(FIXED_POINT_ROUNDS):
            found = []
            for i, (kernel, count) in enumerate(residents):
                queue = _own_queue(kernel, count)
                for j, (other, others) in enumerate(residents):
                    if j != i:
                        held = other.demands[kernel.bound] * kernel.service_demand / kernel.demands[kernel.bound]
                        queue += others * other.warps_per_scheduler * held * times[i] / times[j]
                found.append(contention._time(kernel, max(kernel.service_demand, queue)))
            times = [(a * b) ** 0.5 for a, b in zip(times, found, strict=True)]
        return times

    _put_mix_times(mix_times)


def _own_queue(kernel: contention.WarpDemand, count: int) -> float:
    """What a kernel's own warps hold of the resource that binds it, as where it has the SM alone."""
    warps = contention.competing_warps(count, kernel.warps_per_scheduler, kernel.one_wave)
    return warps * kernel.service_demand


def same_resource() -> None:
    """Warps of another kernel count by what they hold of the resource that binds this kernel."""

    def mix_times(residents: Sequence[tuple[contention.WarpDemand, int]], least: Sequence[float] = ()) -> list[float]:
        times = []
        for i, (kernel, count) in enumerate(residents):
            scale = kernel.service_demand / kernel.demands[kernel.bound]
            queue = _own_queue(kernel, count)
            for j, (other, others) in enumerate(residents):
                if j != i:
                    queue += scale * others * other.warps_per_scheduler * other.demands[kernel.bound]
            times.append(contention._time(kernel, max(kernel.service_demand, queue)))
        return times

    _put_mix_times(mix_times)


def no_totals() -> None:
    """What kernels of a mix use together may be more than an SM has."""
    _put_in_mixing("_totals", lambda uses, shares: [0.0])


def even_schedulers() -> None:
    """The fullest scheduler has as many warps as the mean one: beside others, too."""
    known = contention.competing_warps
    put(contention, "competing_warps", lambda blocks, warps, one_wave: known(blocks, warps, False))
    no_fullest_beside_others()
