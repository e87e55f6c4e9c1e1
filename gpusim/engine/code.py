"""Whether the caches still hold the code of a kernel as it starts beside other programs."""

from __future__ import annotations

from collections.abc import Sequence, Set
from math import fsum
from typing import NamedTuple

from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import lost_code


class _Came(NamedTuple):
    """When a kernel of some name came last, and what DRAM had moved then, relative to what L2 keeps."""

    at: int  # kernels of all programs so far
    own: float  # moved for its program
    others: float  # and for others


class CachedCode:
    """Tells of each kernel that starts how much of its code the caches have lost to other programs.

    A launch of another program empties caches near the SMs. On the same SMs its kernel also takes the place of the code
    there. What DRAM moves for other programs replaces code in L2, as it does data. Replacements by the program's own
    kernels are in its recording already.

    Programs in streams share the code of kernels of one name. On SMs of their own (``apart``) they have copies, because
    each green context loads its kernels itself [D]. There they lose only instructions from L2: constants are taken to
    be parameters of a kernel, which are new at each launch, and are read as fast beside others ([V]
    experiments/neighbours, constants.csv). If all programs run in one stream (``in_turn``), no launch of another stream
    comes between theirs. ``names`` are those of the kernels of each program.
    """

    def __init__(self, gpu: GPU, apart: bool, in_turn: bool, names: Sequence[Set[str]]) -> None:
        self._apart = apart
        self._in_turn = in_turn
        self._names = names
        self._kept_us = gpu.kept_l2_bytes / gpu.model.dram_sustained_gb_per_s / 1e3
        self._sm_count = gpu.sm_count
        self._count = 0  # kernels that came
        self._latest = [0] * len(names)  # by program: when its latest kernel came,
        self._foreign_at = [0] * len(names)  # when the latest foreign one came: another's, of code that it lacks,
        self._foreign_sms = [0.0] * len(names)  # largest share of the SMs that those since its latest had blocks for,
        self._moved = [0.0] * len(names)  # and what DRAM moved for it, relative to what L2 keeps
        self._last: dict[tuple[int, str], _Came] = {}  # by program and name

    def lost_by(self, model: KernelModel, program: int) -> float:
        """Share of its code that is gone as a kernel starts, 0 to 1."""
        lost = self._lost(model, program)
        self._count += 1
        self._latest[program] = self._count
        self._foreign_sms[program] = 0.0
        for other, names in enumerate(self._names):
            if other != program and (self._apart or model.name not in names):
                self._foreign_at[other] = self._count
                self._foreign_sms[other] = max(self._foreign_sms[other], min(1.0, model.blocks / self._sm_count))
        self._moved[program] += model.blocks * model.dram_share_us / self._kept_us
        self._last[program, model.name] = _Came(self._count, self._moved[program], self._moved_by_others(program))
        return lost

    def _lost(self, model: KernelModel, program: int) -> float:
        came = self._last.get((program, model.name))
        own = others = 0.0
        if came is not None and self._foreign_at[program] > came.at:
            own, others = self._moved[program] - came.own, self._moved_by_others(program) - came.others
        after_foreign = 0 < self._latest[program] < self._foreign_at[program]
        return lost_code(
            own,
            others,
            model.instruction_share if self._apart else 1.0,
            launches=after_foreign and not self._in_turn,
            on_sms=self._foreign_sms[program] if after_foreign and not self._apart else 0.0,
        )

    def _moved_by_others(self, program: int) -> float:
        return fsum(moved for other, moved in enumerate(self._moved) if other != program)
