"""How much of their code the kernels of a program have lost that runs again and again beside another, on the mean."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from operator import itemgetter
from statistics import fmean
from typing import NamedTuple

from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import lost_code

MOST_RETURNS = 8  # that stand for all of a kind


class Return(NamedTuple):
    """Kernels of one kind that run again."""

    share: float  # of the time in which the kernels of their kind wait for code, 0 to 1
    moved: (
        float  # bytes from and to DRAM for other kernels of the program since the last run, relative to what L2 keeps
    )
    us: float  # time since the last run, the program isolated


class Others(NamedTuple):
    """What another program does per us of an isolated pass of one."""

    foreign: float  # kernels started whose code the one lacks
    moved: float  # by DRAM, relative to what L2 keeps
    graph_launches: float  # launches of CUDA graphs


@dataclass(frozen=True)
class Code:
    """The code of a program that runs again and again."""

    names: Mapping[str, int]  # how often it runs each kernel in a pass
    moved: float  # by DRAM in a pass, relative to what L2 keeps
    graph_launches: int  # kernels of CUDA graphs in a pass
    sms_share: float  # mean share of the SMs for which a kernel has a block
    us: float  # an isolated pass

    def beside(self, other: Code, pace: float, apart: bool) -> Others:
        """What another program does meanwhile.

        Args:
            other: that program.
            pace: its progress over that of this one, each relative to its isolated run.
            apart: each has SMs of its own, and copies of its code.
        """
        foreign = fsum(count for name, count in other.names.items() if apart or name not in self.names)
        return Others(*(each / other.us * pace for each in (foreign, other.moved, other.graph_launches)))

    def mean_lost(self, returns: Sequence[Return], others: Others, from_l2: float, shared_sms: float) -> float:
        """Mean share of their code that kernels of this program have lost, 0 to 1.

        Args:
            returns: kernels that wait for code, as they come again.
            others: what another program does meanwhile.
            from_l2: share of their code that they lose where L2 does, 0 to 1.
            shared_sms: share of their SMs on which the other program's kernels run, 0 to 1.
        """
        after = min(1.0, others.foreign * self.us / fsum(self.names.values()))
        return fsum(
            share
            * lost_code(own, us * others.moved, from_l2 * min(1.0, us * others.foreign), after, after * shared_sms)
            for share, own, us in returns
        )


def code_of(models: Sequence[KernelModel], gpu: GPU, us: float) -> Code:
    """The code of the kernels of a program whose isolated pass takes some time."""
    return Code(
        Counter(model.name for model in models),
        fsum(moved(model, gpu) for model in models),
        sum(model.in_graph for model in models),
        fmean(min(1.0, model.blocks / gpu.sm_count) for model in models),
        us,
    )


def moved(model: KernelModel, gpu: GPU) -> float:
    """What DRAM moves for a kernel, relative to what L2 keeps while others are touched."""
    kept_us = gpu.kept_l2_bytes / gpu.model.dram_sustained_gb_per_s / 1e3
    return model.blocks * model.dram_share_us / kept_us


def returns_of(models: Sequence[KernelModel], gpu: GPU, us: float) -> list[tuple[float, float]]:
    """For each kernel of a pass, the DRAM traffic and the time since its last run: `Return.moved` and `Return.us`."""
    each = [moved(model, gpu) for model in models]
    scale = us / fsum(model.solo_us for model in models)
    last: dict[str, tuple[float, float]] = {}  # moved until it ended, and when it started
    found, done, now = [], 0.0, 0.0
    for at, (model, its) in enumerate(zip([*models, *models], [*each, *each], strict=True)):
        if at >= len(models):  # the second pass
            before, since = last[model.name]
            found.append((done - before, now - since))
        done += its
        last[model.name] = done, now
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
