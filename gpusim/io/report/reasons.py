"""Reasons why an SM takes no more blocks of a kernel: a full resource, the policy or the carve-out.

The carve-out of an SM depends on the first kernel that came to it while it was idle. That is not looked up here: shared
memory counts as full where the largest carve-out would be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpusim.hardware.gpu import GPU
from gpusim.model.launchable import launch_footprint, launch_occupancy
from gpusim.model.occupancy import Footprint, exceeded
from gpusim.trace.kernels import KernelLaunch

FULL = ("registers", "shared memory", "threads", "block slots")
POLICY = "the policy, or the carve-out that the SM is set to"
REASONS = (*FULL, POLICY)
LIMITERS = {"registers": 0, "shared_memory": 1, "warps": 2, "blocks": 3}  # as `Occupancy` calls them

Residents = tuple[tuple[int, int], ...]  # row of a kernel and its blocks


class Hold(NamedTuple):
    """Resources of one resident block of a kernel, and the limit of resident blocks."""

    footprint: Footprint  # what one block holds
    blocks_per_sm: int  # most resident blocks of this kernel alone
    limiter: int  # which of `FULL` that is for


def hold(launch: KernelLaunch, gpu: GPU) -> Hold:
    """Resources that a resident block of a launch holds on a GPU."""
    fit = launch_occupancy(launch, gpu)
    return Hold(launch_footprint(launch, gpu), fit.blocks_per_sm, LIMITERS[fit.limiter])


def why_no_more(mix: Residents, holds: Sequence[Hold], gpu: GPU) -> tuple[int, ...]:
    """For each kernel that an SM holds why it takes no further block of it, if there is one: a place in `REASONS`."""
    return tuple(_reason([(holds[other], count) for other, count in mix], at, gpu) for at in range(len(mix)))


def _reason(residents: Sequence[tuple[Hold, int]], at: int, gpu: GPU) -> int:
    of, blocks = residents[at]
    one_more = [(hold.footprint, count + (n == at)) for n, (hold, count) in enumerate(residents)]
    exceeds = exceeded(gpu, one_more)
    if exceeds is not None:
        return LIMITERS[exceeds]
    return of.limiter if blocks >= of.blocks_per_sm else REASONS.index(POLICY)
