"""A convolution's batch in parts, one after the other: faster algorithms then fit a workspace, which all parts reuse.

The method is that of µ-cuDNN (Oyama, Ben-Nun, Hoefler, Matsuoka, CLUSTER'18 [A]; its code, github.com/spcl/ucudnn [V]):
dynamic programming over the images finds the divisions of a batch that no other beats in time and workspace. µ-cuDNN
measures the time of each call. Here it is the time of the recorded kernels on the GPU of the replay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import fsum, gcd

from gpusim.choose.alternatives import fits
from gpusim.common.tables import grouped
from gpusim.model.context import with_cold_caches
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm

MOST_DIVISIONS = 8  # of a convolution, from which a search chooses


@dataclass(frozen=True, slots=True)
class BatchPart:
    """Some images by an algorithm."""

    batch: int  # how many images
    algorithm: str  # its name
    us: float  # what they take after other images
    workspace_bytes: int  # of the call


@dataclass(frozen=True, slots=True)
class Division:
    """A batch in parts that run one after the other and reuse one workspace."""

    parts: tuple[BatchPart, ...]  # the largest first

    @property
    def us(self) -> float:
        """Sum of the parts."""
        return fsum(part.us for part in self.parts)

    @property
    def workspace_bytes(self) -> int:
        """That of the part that needs most."""
        return max(part.workspace_bytes for part in self.parts)

    @property
    def counted(self) -> list[tuple[int, BatchPart]]:
        """How often each part occurs, and the part."""
        return [(len(list(same)), part) for part, same in groupby(self.parts)]

    @property
    def name(self) -> str:
        """As an algorithm is named: `2x64:FFT_TILING/FMA`, or `1x64:FFT/FMA-4x16:GEMM/FMA`."""
        return "-".join(f"{count}x{part.batch}:{part.algorithm}" for count, part in self.counted)


# ---- the dynamic programming


def front(batch: int, parts: Sequence[BatchPart]) -> list[Division]:
    """Return the divisions of a batch that no other beats in both time and workspace, by ascending workspace.

    A division is made of any of the parts, each any number of times; one of the whole batch is a division.
    """
    found: list[Division] = []
    for limit in sorted({part.workspace_bytes for part in parts}):
        able = grouped((part for part in parts if part.workspace_bytes <= limit), lambda part: part.batch)
        division = _fastest(batch, [min(of, key=lambda part: part.us) for of in able.values()])
        if division is not None and (not found or division.us < found[-1].us):
            found.append(division)
    return found


def _fastest(batch: int, parts: Sequence[BatchPart]) -> Division | None:
    """The division that takes least time, of equals the one of fewest parts; None where no parts make the batch.

    With T(0) = 0 it is T(n) = min over the parts p of T(n - batch of p) + time of p.
    """
    step = gcd(batch, *(part.batch for part in parts))
    best: list[tuple[float, int, BatchPart | None] | None] = [(0.0, 0, None)]
    for images in range(step, batch + 1, step):
        reached = [
            (before[0] + part.us, before[1] + 1, part)
            for part in parts
            if part.batch <= images and (before := best[(images - part.batch) // step]) is not None
        ]
        best.append(min(reached, key=lambda one: one[:2], default=None))
    chosen: list[BatchPart] = []
    last = best[-1]
    while last is not None and last[2] is not None:
        chosen.append(last[2])
        last = best[(batch - sum(part.batch for part in chosen)) // step]
    return Division(tuple(sorted(chosen, key=lambda part: (-part.batch, part.algorithm)))) if chosen else None


# ---- of a trace


@dataclass(frozen=True, slots=True)
class Divided:
    """A batch divided into micro-batches, as one algorithm that can be replayed."""

    algorithm: ConvolutionAlgorithm  # the kernels of all parts in their order
    division: Division  # the parts


def divided_convolutions(trace: Trace, session: Session) -> dict[str, list[Divided]]:
    """Return the best divisions of each convolution of a trace that has micro-batches, by ascending workspace.

    Those that no other division and no algorithm for the whole batch beats in both time and workspace, at most
    `MOST_DIVISIONS` of them.
    """
    return {
        op.id: _divided(op, trace, session)
        for op in trace.operations()
        if isinstance(op, Convolution) and op.micro_batches
    }


def _divided(op: Convolution, trace: Trace, session: Session) -> list[Divided]:
    kernels = session.kernels(trace)
    parts = [
        BatchPart(
            batch, name, fsum(kernels.model(launch, op.id).solo_us for launch in call.kernels), call.workspace_bytes
        )
        for (batch, name), call in _calls(op).items()
        if call.workspace_bytes is not None and fits(call, session.gpu)
    ]
    divisions = [division for division in front(op.shape.batch, parts) if len(division.parts) > 1]
    last, most = len(divisions) - 1, MOST_DIVISIONS - 1
    if last > most:  # evenly spread, the first and the last among them
        divisions = [divisions[n * last // most] for n in range(MOST_DIVISIONS)]
    return [Divided(in_a_row(op, division), division) for division in divisions]


def _calls(op: Convolution) -> dict[tuple[int, str], ConvolutionAlgorithm]:
    """All that a division may be made of. What reads a part of the batch finds it cold: no call before it read it."""
    whole = {(op.shape.batch, one.algorithm): one for one in (op.selected, *op.alternatives)}
    return whole | {
        (fewer.batch, one.algorithm): with_cold_caches(one)
        for fewer in op.micro_batches or ()
        for one in fewer.algorithms
    }


def in_a_row(op: Convolution, division: Division) -> ConvolutionAlgorithm:
    """The calls of a division, one after the other, as one algorithm of a convolution that has its micro-batches."""
    known = _calls(op)
    calls = [known[part.batch, part.algorithm] for part in division.parts]
    workspace_bytes, tensors = division.workspace_bytes, op.selected.touched_bytes
    cold = [call.cold_us for call in calls if call.cold_us is not None]
    cold_us = fsum(cold) if len(cold) == len(calls) else None
    return ConvolutionAlgorithm(
        algorithm=division.name,
        workspace_bytes=workspace_bytes,
        touched_bytes=None if tensors is None else tensors - (op.selected.workspace_bytes or 0) + workspace_bytes,
        warm_us=cold_us,
        cold_us=cold_us,
        kernels=tuple(launch for call in calls for launch in call.kernels),
    )
