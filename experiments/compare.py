"""Two ways compared on the same cases: the mean gain, how sure it is, and whether it is more than the model's error.

What is compared are ratios of pairs: the same kernels, module or network under the one and under the other. Cases are
few and chosen, so that another choice would have given another mean; how much another is what resampling shows
(bootstrap, Efron 1979 [M]). Where cases share members, as pairs of eleven kernels do, they are not independent; then
the members are drawn and a case counts as often as the product of its members' counts.

That the mean is sure says nothing about the model. A ratio of two predictions is no more certain than either, so
a difference below the error that was measured of such predictions is a tie [D].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, fsum, log, prod
from random import Random

SEED, RESAMPLES = 1, 2000
CONFIDENCE = 0.95
UNMEASURED = 0.10  # error that an answer is taken to have whose like was never measured, about that of short calls [D]


@dataclass(frozen=True, slots=True)
class Compared:
    """Speedup of one way over another.

    Attributes:
        ratio: geometric mean over the cases; above 1 the first is faster.
        low, high: the confidence interval, at the level `CONFIDENCE`.
        cases: how many.
    """

    ratio: float
    low: float
    high: float
    cases: int

    def verdict(self, error: float | None) -> str:
        """``gain``, ``loss`` or ``tie``; ``gain?`` or ``loss?`` where the like was never measured.

        Args:
            error: of the model, relative: a mean difference below it is a tie, as is one whose interval holds 1. None:
                unknown, and `UNMEASURED` stands for it.
        """
        least, mark = (UNMEASURED, "?") if error is None else (error, "")
        if self.low > 1.0 and self.ratio > 1.0 + least:
            return f"gain{mark}"
        return f"loss{mark}" if self.high < 1.0 and self.ratio < 1.0 / (1.0 + least) else "tie"

    def __str__(self) -> str:
        """Such as ``+12.3 % (+8.1 to +16.0)``; of one case, from which no interval follows, the mean only."""
        mean, low, high = (f"{100 * (value - 1.0):+.1f}" for value in (self.ratio, self.low, self.high))
        return f"{mean} % ({low} to {high})" if self.cases > 1 else f"{mean} %"


def compared(ratios: Mapping[tuple[str, ...], float], seed: int = SEED) -> Compared:
    """Geometric mean of speedups with its confidence interval from a bootstrap.

    Args:
        ratios: the speedup of each case by its members, such as the two kernels of a pair, or one module.
        seed: of the resampling.

    Returns:
        The geometric mean and the percentiles of the resampled means; both are the mean itself where all cases share
        one member.
    """
    logs = {members: log(ratio) for members, ratio in ratios.items()}
    mean = fsum(logs.values()) / len(logs)
    names = sorted({name for members in logs for name in members})
    random, means = Random(seed), list[float]()
    for _ in range(RESAMPLES):
        count = dict.fromkeys(names, 0)
        for name in random.choices(names, k=len(names)):
            count[name] += 1
        weights = [prod(count[name] for name in members) for members in logs]
        total = sum(weights)
        if total:
            means.append(fsum(w * value for w, value in zip(weights, logs.values(), strict=True)) / total)
    means.sort()
    tail = round((1.0 - CONFIDENCE) / 2.0 * len(means))
    low, high = means[tail], means[-1 - tail]
    return Compared(exp(mean), exp(low), exp(high), len(logs))
