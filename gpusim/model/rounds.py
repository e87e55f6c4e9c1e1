"""Kernels of an SM that wait for one another: each makes its quota of progress in a round, then waits for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, inf

from gpusim.model.kernel import KernelModel, loads_at, mix_rates


def round_rates(
    residents: Sequence[tuple[KernelModel, int]], quotas: Sequence[float | None], least: Sequence[float] = ()
) -> tuple[list[float], float, float]:
    """The result of `mix_rates` as a mean over a round.

    A round has as many phases as kernels with a quota, the progress of each in a round, in blocks: in each phase, those
    that have not spent theirs share the SM as `mix_rates` says, and who waits takes nothing. A kernel without a quota
    runs in every phase.
    """
    progress = [0.0] * len(residents)  # of one block of each
    round_us = 0.0
    running = list(range(len(residents)))
    while any(quotas[i] is not None for i in running):
        rates = mix_rates([residents[i] for i in running], [least[i] for i in running] if least else ())[0]
        rate_of = dict(zip(running, rates, strict=True))
        spent_us = {
            i: max(0.0, quota / residents[i][1] - progress[i]) / rate_of[i]
            for i in running
            if (quota := quotas[i]) is not None
        }
        phase_us = min(spent_us.values())
        for i in running:
            progress[i] += phase_us * rate_of[i]
        round_us += phase_us
        running = [i for i in running if spent_us.get(i, inf) > phase_us]
    means = [done / round_us for done in progress]
    dram, l2 = zip(*loads_at(residents, means), strict=True)
    return means, fsum(dram), fsum(l2)
