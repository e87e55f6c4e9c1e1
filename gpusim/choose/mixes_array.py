"""Progress of kernels in many mixes at once: `gpusim.model.mixing.progress` for arrays of mixes of equal size."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpusim.choose.simplex import Reals
from gpusim.model.mixing import CHAINED_CYCLES, CHAINED_WARPS, LEAST_LEFT, LONGEST_BURST, ROUNDS, Use

Places = npt.NDArray[np.int64]


class MixArrays:
    """Arrays with a row for each place in a mix, the oldest kernel first, and a column for each mix.

    ``mixes`` has the same shape. It tells which of ``uses``, of kernels that have an SM to themselves, are in them.
    """

    def __init__(self, uses: Sequence[Use], mixes: Places) -> None:
        def each(name: str) -> Reals:
            return np.array([float(getattr(use, name)) for use in uses])[mixes]

        self.issue, self.operands, self.path, self.visit = map(each, ("issue", "operands", "path", "visit"))
        self.cycles, self.burst, self.together, self.taken = map(each, ("cycles", "burst", "together", "taken"))
        self.pipes = np.array([use.pipes for use in uses]).T[:, mixes]  # for each pipe as the others
        self.warps = each("warps")
        self.meet = self._meet(self.warps, each("slowest_counts"))
        self.shares = np.ones(mixes.shape)

    def progress(self) -> Reals:
        """Progress of each kernel of each mix, 1 as if it had the SM to itself."""
        if len(self.shares) == 1:
            return self.shares
        for _ in range(ROUNDS):
            for i in reversed(range(len(self.shares))):
                self.shares[i] = 1.0 / (1.0 + self._stretch(i))
            met = np.minimum(1.0, self.path * self.shares) * self.visit
            waits = self.path * (met.sum(axis=0) - met) / self.visit / 2.0
            self.shares = 1.0 / (1.0 / self.shares + waits)
        totals = [(self.issue * self.shares).sum(axis=0), (self.path * self.shares).sum(axis=0)]
        pipes = (self.pipes * self.shares).sum(axis=1).max(axis=0)
        shares: Reals = self.shares / np.maximum(1.0, np.maximum(pipes, np.maximum(*totals)))
        return shares

    def _meet(self, warps: Reals, slowest_counts: Reals) -> Reals:
        """Warps of others on the fullest scheduler beside a kernel's own, over those on the mean scheduler."""
        total = warps.sum(axis=0)
        others = total - warps
        fullest = np.ceil(total - 1e-9)
        with np.errstate(divide="ignore", invalid="ignore"):
            met = np.maximum(0.0, fullest - np.maximum(1.0, warps)) / others
        meet: Reals = np.where(slowest_counts > 0.0, met, 1.0)
        return meet

    def _stretch(self, i: int) -> Reals:
        """Relative increase of a kernel's instruction time because others occupy the schedulers."""
        met = self.shares * self.meet[i]
        issued = self.issue * met
        taken = issued[:i].sum(axis=0)  # by the older ones
        in_bursts = (issued * self.together)[:i].sum(axis=0)
        mine = self.issue[i]
        in_bursts = np.divide(in_bursts, taken, out=np.zeros_like(taken), where=taken > 0.0)
        stretch = _beside(mine + in_bursts * (1.0 - mine), taken)
        held = (self.pipes * met)[:, :i].sum(axis=1)
        stretch = np.maximum(stretch, _beside(self.pipes[:, i], held).max(axis=0))
        stretch += (issued * self.together)[i + 1 :].sum(axis=0)
        bursts = issued * self._burst_waits(i)
        cycles = self.burst[i] * self.cycles[i]
        for_older, for_younger = bursts[:i].sum(axis=0), bursts[i + 1 :].sum(axis=0)
        stretch = np.maximum(stretch, np.divide(for_older, cycles, out=np.zeros_like(cycles), where=cycles > 0.0))
        stretch += np.divide(for_younger, cycles, out=np.zeros_like(cycles), where=cycles > 0.0)
        used = issued.sum(axis=0) - issued[i]
        equal = np.maximum(0.0, self.taken[i] + self.issue.sum(axis=0) - mine - 1.0)
        blocked = np.maximum(stretch, np.minimum(_beside(self.taken[i], used), equal))
        result: Reals = np.where(self.operands[i] > 0.0, blocked, stretch)
        return result

    def _burst_waits(self, i: int) -> Reals:
        """Cycles that a warp of one kernel waits for a warp of another that already issues."""
        chained = (self.burst == LONGEST_BURST) & (self.burst[i] < LONGEST_BURST)
        waits: Reals = np.where(chained & (self.warps >= CHAINED_WARPS), CHAINED_CYCLES, self.burst - 0.5)
        return waits


def _beside(used: Reals, taken: Reals) -> Reals:
    """Increase of the time at a resource that others occupy in part."""
    result: Reals = used / np.maximum(LEAST_LEFT, 1.0 - taken) - used
    return result
