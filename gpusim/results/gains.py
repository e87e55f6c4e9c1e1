"""Where the gain of a policy over serial comes from: the time of every SM by state, under both policies.

At every instant an SM is in one of five states, so that the means of their times over the SMs add up to the makespan:

    gaps     no SM of the device holds a block: launch latency, copies, host work, no request
    tails    this SM holds no block, another does, and every kernel that has started has placed its last block
    waiting  this SM holds no block although a kernel that has started has blocks to place: the policy keeps it off
    sharing  this SM holds blocks of a launch that shares an SM with another launch, now or ever, under either policy
    rate     this SM holds blocks of a launch that never does

A state contributes serial's time in it less the policy's time in it. Busy SMs do the same work under both policies, so
the last two states differ by speed. Kernels on one SM hide each other's latency, or slow each other down. Kernels on
their own SMs run faster where an SM holds more of their blocks, and slower where other kernels load L2 and DRAM. The
decomposition is designed here [D].
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from gpusim.results.runs import Replayed

if TYPE_CHECKING:
    from gpusim.results.intervals import Indices, Times

LaunchKey = tuple[str, str, int, int]  # stream, operation, request and index: the same under every policy
PARTS = ("gaps", "tails", "waiting", "sharing", "rate")


@dataclass(frozen=True)
class SMTime:
    """Time of the SMs of one replay by state. Times are means over the SMs, us, and add up to the makespan."""

    gaps_us: float  # as the module says, as the next two
    tails_us: float
    waiting_us: float
    busy_us: float  # sharing and rate together
    launches: list[LaunchKey]  # all of them
    on_sm: list[tuple[Times, Indices]]  # of each SM: when it held blocks, by start, and their launches
    sharing: frozenset[LaunchKey]  # launches whose blocks shared an SM with another launch's at any time

    def busy_with_us(self, launches: frozenset[LaunchKey]) -> float:
        """Time that SMs held blocks of some launches, mean over the SMs."""
        from gpusim.results.intervals import covered_us

        chosen = [key in launches for key in self.launches]
        return fsum(covered_us(self.on_sm, chosen)) / max(1, len(self.on_sm))


def gain_us(serial: SMTime | None, policy: SMTime | None) -> dict[str, float] | None:
    """Return the contribution of each of `PARTS` to the makespan that a policy saves over serial, us (below 0: lost).

    They add up to the difference of the makespans. None where either is not known.
    """
    if serial is None or policy is None:
        return None
    together = serial.sharing | policy.sharing
    before, after = serial.busy_with_us(together), policy.busy_with_us(together)
    return {
        "gaps": serial.gaps_us - policy.gaps_us,
        "tails": serial.tails_us - policy.tails_us,
        "waiting": serial.waiting_us - policy.waiting_us,
        "sharing": before - after,
        "rate": (serial.busy_us - before) - (policy.busy_us - after),
    }


def sm_time(result: Replayed) -> SMTime | None:
    """Return the time of the SMs by state; None where placements were not kept."""
    if result.kernel_runs and not result.placements:
        return None
    from gpusim.results.intervals import by_sm, common, lengths, merged, overlapping, union

    runs = [result.kernel_runs[row] for row, _ in result.placements.launches]
    keys = [(run.stream, run.operation, run.request, run.index) for run in runs]
    on_sm = by_sm(result)
    running = union(*(spans for spans, _ in on_sm))
    placing = common(running, union(*([[run.start_us], [run.dispatched_us]] for run in runs)))
    sharing: set[int] = set()
    busy_us, placed_us = list[float](), list[float]()  # of each SM: with blocks, and that while others wait
    for spans, owners in on_sm:
        sharing |= overlapping(spans, owners)
        held = merged(spans)
        busy_us += lengths(held)
        placed_us.append(fsum(lengths(common(placing, held))))
    count = max(1, len(on_sm))
    ran, busy = fsum(lengths(running)), fsum(busy_us) / count
    waiting = fsum(lengths(placing)) - fsum(placed_us) / count
    gaps = result.makespan_us - ran
    return SMTime(gaps, ran - busy - waiting, waiting, busy, keys, on_sm, frozenset(keys[at] for at in sharing))
