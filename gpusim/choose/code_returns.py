"""How much of their code the kernels of a program have lost that runs again and again beside another, on the mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from operator import itemgetter
from typing import NamedTuple

from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import lost_share

MOST_RETURNS = 8  # that stand for all of a kind


class Return(NamedTuple):
    """Kernels that come again."""

    share: float  # of the time in which the kernels of their kind wait for code, 0 to 1
    moved: float  # by DRAM for other kernels of the program since they came last, relative to what L2 keeps
    us: float  # since then, the program isolated


@dataclass(frozen=True)
class Code:
    """The code of a program that runs again and again."""

    names: Mapping[str, int]  # how often it runs each kernel in a pass
    moved: float  # by DRAM in a pass, relative to what L2 keeps
    us: float  # an isolated pass

    def replaced_by(self, other: Code, pace: float) -> tuple[float, float]:
        """Kernels that only another program has, and its DRAM traffic relative to what L2 keeps, per us of this one.

        ``pace``: progress of the other program over that of this one, each relative to its isolated run.
        """
        kernels = fsum(count for name, count in other.names.items() if name not in self.names)
        return kernels / other.us * pace, other.moved / other.us * pace


def mean_lost(returns: Sequence[Return], kernels: float, moved: float) -> float:
    """Mean share of their code that kernels have lost, 0 to 1, beside what another program does per us of theirs."""
    return fsum(share * min(1.0, us * kernels) * lost_share(own + us * moved) for share, own, us in returns)


def code_of(models: Sequence[KernelModel], gpu: GPU, us: float) -> Code:
    """The code of the kernels of a program whose isolated pass takes some time."""
    return Code(Counter(model.name for model in models), fsum(moved(model, gpu) for model in models), us)


def moved(model: KernelModel, gpu: GPU) -> float:
    """What DRAM moves for a kernel, relative to what L2 keeps while others are touched."""
    kept_us = gpu.kept_l2_bytes / gpu.model.dram_sustained_gb_per_s / 1e3
    return model.blocks * model.dram_share_us / kept_us


def returns_of(models: Sequence[KernelModel], gpu: GPU, us: float) -> list[tuple[float, float, bool]]:
    """Of each kernel of a pass, how it comes again: `Return.moved`, `Return.us`, and after another of the program."""
    each = [moved(model, gpu) for model in models]
    scale = us / fsum(model.solo_us for model in models)
    last: dict[str, tuple[int, float, float]] = {}  # position, moved until it ended, and when it started
    found, done, now = [], 0.0, 0.0
    for at, (model, its) in enumerate(zip([*models, *models], [*each, *each], strict=True)):
        if at >= len(models):  # the second pass
            came, before, since = last[model.name]
            found.append((done - before, now - since, at - came > 1))
        done += its
        last[model.name] = at, done, now
        now += model.solo_us * scale
    return found


def few(returns: Iterable[Return]) -> tuple[Return, ...]:
    """At most `MOST_RETURNS` that stand for all: neighbours in time become their mean."""
    known = sorted(returns, key=lambda one: (one.us, one.moved))
    each, bins, so_far = fsum(one.share for one in known) / MOST_RETURNS, list[int](), 0.0
    for one in known:
        bins.append(int(so_far / each))
        so_far += one.share
    together = grouped(zip(bins, known, strict=True), itemgetter(0)).values()
    return tuple(_mean([one for _, one in of]) for of in together)


def _mean(several: Sequence[Return]) -> Return:
    share = fsum(one.share for one in several)
    return Return(
        share,
        fsum(one.share * one.moved for one in several) / share,
        fsum(one.share * one.us for one in several) / share,
    )
