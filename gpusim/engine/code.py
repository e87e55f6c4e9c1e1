"""Whether the caches still hold the code of a kernel that comes again."""

from __future__ import annotations

from collections import defaultdict

from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import lost_share


class CachedCode:
    """Tells of each kernel that starts how much of its code the caches have lost since its name came last.

    Kernels of other programs with other code take its place in the caches of the SMs. All data that was moved since
    then takes its place in L2. What a program's own kernels replace, a recording already holds.

    Args:
        gpu: the GPU.
    """

    def __init__(self, gpu: GPU) -> None:
        self._kept_us = max(1.0, gpu.model.l2_kept_share * gpu.l2_bytes) / gpu.model.dram_sustained_gb_per_s / 1e3
        self._moved = 0.0  # by DRAM, over what L2 keeps
        self._names: defaultdict[int, set[str]] = defaultdict(set)  # of the kernels of each program
        self._foreign: defaultdict[int, int] = defaultdict(int)  # kernels that came whose code a program lacks
        self._last: dict[tuple[int, str], tuple[int, float]] = {}  # both when its kernel of this name came

    def lost_by(self, model: KernelModel, program: int) -> float:
        """Share of its code that is gone as a kernel starts; 0 where its program runs it for the first time."""
        key = program, model.name
        foreign, moved = self._last.get(key, (self._foreign[program], self._moved))
        lost = lost_share(self._moved - moved) if self._foreign[program] > foreign else 0.0
        self._names[program].add(model.name)
        for other, names in self._names.items():
            self._foreign[other] += model.name not in names
        self._moved += model.blocks * model.dram_share_us / self._kept_us
        self._last[key] = self._foreign[program], self._moved
        return lost
