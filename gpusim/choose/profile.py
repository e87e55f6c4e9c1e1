"""Resources and memory that an isolated operation uses, as in Table 1 of SPAA'20, and complementary operations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from gpusim.hardware.gpu import GPU
from gpusim.model.contention import SHARED
from gpusim.model.kernel import KernelModel

STATIC = ("registers", "shared memory", "warps", "block slots")  # what resident blocks hold of an SM
PIPES = tuple(name.removesuffix("_cycles") for name in SHARED)  # issue slots, pipes, the L1 and shared-memory data path
DYNAMIC = (*PIPES, "L2", "DRAM")  # what running blocks keep busy
BUSY = 0.5  # of a resource: what is used more is scarce


@dataclass(frozen=True, slots=True)
class Profile:
    """Resources that isolated kernels use on a GPU; for several a mean over their time."""

    alone_us: float  # time of the kernels one after the other
    held: tuple[float, ...]  # share of an SM of each of `STATIC` that all resident blocks hold
    busy: tuple[float, ...]  # of each of `DYNAMIC` the share of the time for which it is busy
    memory_stalls: float  # share of the warps' stalls that wait for memory
    counted: bool  # whether counters of all kernels were recorded; else `busy` is assumed

    def share(self, name: str) -> float:
        """The share used of one resource of `STATIC` or `DYNAMIC`."""
        return (self.held + self.busy)[(*STATIC, *DYNAMIC).index(name)]


def profile(models: Sequence[KernelModel], gpu: GPU) -> Profile:
    """The profile of kernels that run one after another: the mean of theirs, weighted by their time alone."""
    total = fsum(model.solo_us for model in models)

    def mean(shares: Sequence[Sequence[float]]) -> tuple[float, ...]:
        return tuple(
            fsum(model.solo_us * of_one[n] for model, of_one in zip(models, shares, strict=True)) / total
            for n in range(len(shares[0]))
        )

    limits = [zip(model.need, gpu.limits.capacity, strict=True) for model in models]
    held = [[one.blocks_per_sm * need / most for need, most in of] for one, of in zip(models, limits, strict=True)]
    busy = [
        [
            *(model.blocks * model.busy_us(name) / model.sm_count / model.solo_us for name in SHARED),
            model.blocks * model.l2_share_us / model.solo_us,
            model.blocks * model.dram_share_us / model.solo_us,
        ]
        for model in models
    ]
    (stalls,) = mean([[model.memory_stall_share] for model in models])
    return Profile(total, mean(held), mean(busy), stalls, all(model.demand.counted for model in models))


def complements(a: Profile, b: Profile) -> list[str]:
    """Resources that one of two kernels uses most of and the other leaves mostly free, so that the two complement.

    A resource counts where one takes more than half of it, the other no more than half, and both together no more than
    there is.
    """
    shares = {name: (a.share(name), b.share(name)) for name in (*STATIC, *DYNAMIC)}
    return [name for name, both in shares.items() if max(both) > BUSY >= min(both) and sum(both) <= 1.0]


def contended(a: Profile, b: Profile) -> list[str]:
    """Resources of the running blocks that two together ask for more than there is of."""
    return [name for name in DYNAMIC if a.share(name) + b.share(name) > 1.0]
