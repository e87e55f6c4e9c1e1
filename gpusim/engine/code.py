"""Whether the caches still hold the code of a kernel that comes again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence, Set

from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import lost_share


class CachedCode:
    """Tells of each kernel that starts how much of its code the caches have lost since its name came last.

    Any other kernel takes its place in the caches of the SMs on which it runs. Kernels with code that its own program
    lacks take its place in caches that SMs share, and all data that was moved since then takes its place in L2. A
    recording already includes the effect of the program's own kernels. Programs in streams share the code of kernels of
    one name. On SMs of their own (``apart``) they have copies, because each green context loads its kernels itself [D],
    and lose only instructions. Constants are taken to be parameters of a kernel, which are new at each launch and are
    read as fast beside others ([V] experiments/neighbours, constants.csv). In streams they count as lost all the same:
    without that programs in streams come out too short [D]. What is lost also depends on launches of others, which is
    missing (experiments/advise, launches.py).
    ``names`` are those of the kernels of each program.
    """

    def __init__(self, gpu: GPU, apart: bool, names: Sequence[Set[str]]) -> None:
        self._apart = apart
        self._names = names
        self._kept_us = gpu.kept_l2_bytes / gpu.model.dram_sustained_gb_per_s / 1e3
        self._moved = 0.0  # by DRAM, over what L2 keeps
        self._count = 0  # kernels that came
        self._came: OrderedDict[str, int] = OrderedDict()  # when each name came last, the latest at the end
        self._last: defaultdict[int, dict[str, tuple[int, float]]] = defaultdict(dict)  # by program: when, and moved

    def lost_by(self, model: KernelModel, program: int) -> float:
        """Share of its code that is gone as a kernel starts; 0 where its program runs it for the first time."""
        own = self._last[program]
        lost = 0.0
        if model.name in own:
            at, moved = own[model.name]
            lost = lost_share(self._moved - moved)
            lost = lost if lost > 0.0 and self._other_code_since(at, program) else 0.0
            lost *= model.instruction_share if self._apart else 1.0
        self._count += 1
        self._moved += model.blocks * model.dram_share_us / self._kept_us
        self._came[model.name] = self._count
        self._came.move_to_end(model.name)
        own.pop(model.name, None)  # so that the latest is at the end
        own[model.name] = self._count, self._moved
        return lost

    def _other_code_since(self, at: int, program: int) -> bool:
        """Whether a kernel came whose code a program lacks, and one on the program's SMs."""
        if self._apart:
            return self._latest(program) > at and any(self._latest(one) > at for one in self._last if one != program)
        for name in reversed(self._came):
            if self._came[name] <= at:
                return False
            if name not in self._names[program]:
                return True
        return False

    def _latest(self, program: int) -> int:
        """When the last kernel of a program came."""
        return next(reversed(self._last[program].values()))[0]
