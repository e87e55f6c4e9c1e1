"""Resources and memory that an isolated operation uses, as in Table 1 of SPAA'20, and complementary operations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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

    # share of an SM of each of `STATIC` that all resident blocks hold; of each of `DYNAMIC` the share of the time for
    # which it is busy
    used: Mapping[str, float]
    memory_stalls: float  # share of the warps' stalls that wait for memory


def profile(models: Sequence[KernelModel], gpu: GPU) -> Profile:
    """The profile of kernels that run one after another: the mean of theirs, weighted by their time alone."""
    total, each = fsum(model.solo_us for model in models), [_used(model, gpu) for model in models]

    def mean(shares: Iterable[float]) -> float:
        return fsum(model.solo_us * share for model, share in zip(models, shares, strict=True)) / total

    used = {name: mean(one[name] for one in each) for name in (*STATIC, *DYNAMIC)}
    return Profile(used, mean(model.memory_stall_share for model in models))


def _used(model: KernelModel, gpu: GPU) -> dict[str, float]:
    """What one kernel uses of each resource."""
    limits = zip(STATIC, model.need, gpu.limits.capacity, strict=True)
    held = {name: model.blocks_per_sm * need / most for name, need, most in limits}
    pipes = {
        name: model.blocks * model.busy_us(counter) / model.sm_count / model.solo_us
        for name, counter in zip(PIPES, SHARED, strict=True)
    }
    memory = {"L2": model.l2_share_us, "DRAM": model.dram_share_us}
    return held | pipes | {name: model.blocks * us / model.solo_us for name, us in memory.items()}


def complements(a: Profile, b: Profile) -> list[str]:
    """Resources that one of two kernels uses most of and the other leaves mostly free, so that the two complement.

    A resource counts where one takes more than half of it, the other no more than half, and both together no more than
    there is.
    """
    shares = {name: (share, b.used[name]) for name, share in a.used.items()}
    return [name for name, both in shares.items() if max(both) > BUSY >= min(both) and sum(both) <= 1.0]


def contended(a: Profile, b: Profile) -> list[str]:
    """Resources of the running blocks that two together ask for more than there is of."""
    return [name for name in DYNAMIC if a.used[name] + b.used[name] > 1.0]
