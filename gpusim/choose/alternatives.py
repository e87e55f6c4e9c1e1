"""Another recorded algorithm for convolutions whose own cannot run on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from math import fsum

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import GPU
from gpusim.model.launchable import LAUNCHABLE, lacking
from gpusim.trace.edit import with_operations, with_selected
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Operation

OPTION = "--alternatives fitting"
MOST_NAMED = 3  # convolutions in the note


def fitting(trace: Trace, gpu: GPU) -> tuple[Trace, str]:
    """A trace whose convolutions can run on a GPU, as far as their alternatives allow, and a note on what differs.

    Where no SM can hold a block of some kernel of the selected algorithm, the convolution uses the fastest recorded
    alternative whose kernels all fit.
    """
    changed = {op.id: found for _, op in _unfit(trace, gpu) if (found := _alternative(op, gpu)) is not None}
    if not changed:
        return trace, ""

    def able(op: Operation) -> Operation:
        return with_selected(op, changed[op.id]) if isinstance(op, Convolution) and op.id in changed else op

    named = [f"{id} by {algorithm.algorithm}" for id, algorithm in list(changed.items())[:MOST_NAMED]]
    more = [f"{len(changed) - MOST_NAMED} more"] if len(changed) > MOST_NAMED else []
    note = f"by another algorithm than selected, which fits no SM of {gpu.name}: {', '.join([*named, *more])}"
    return with_operations(trace, able), note


def require_fit(trace: Trace, gpu: GPU) -> None:
    """Refuse the first convolution that cannot run on a GPU, but by one of its alternatives, and name these.

    What has no such alternative is refused by the replay.
    """
    for place, convolution in _unfit(trace, gpu):
        found = _alternative(convolution, gpu)
        if found is not None:
            problem = next(filter(None, (lacking(launch, gpu) for launch in convolution.launches())))
            expected = f"{LAUNCHABLE}: {found.algorithm} could, {OPTION} takes it"
            raise InputError(None, f"{place} ({convolution.id} by {convolution.algorithm})", problem, expected)


def _unfit(trace: Trace, gpu: GPU) -> Iterator[tuple[str, Convolution]]:
    """Each convolution whose selected algorithm cannot run, with its place in the trace."""
    able: dict[int, bool] = {}  # algorithms, by their id: a long trace has few
    for s, stream in enumerate(trace.streams):
        for o, operation in enumerate(stream.operations):
            if not isinstance(operation, Convolution):
                continue
            selected = operation.selected
            if id(selected) not in able:
                able[id(selected)] = fits(selected, gpu)
            if not able[id(selected)]:
                yield f"streams[{s}].operations[{o}]", operation


def _alternative(convolution: Convolution, gpu: GPU) -> ConvolutionAlgorithm | None:
    """The alternative that fits and took least time when recorded, the first listed of equals; None: none fits."""
    able = [algorithm for algorithm in convolution.alternatives if fits(algorithm, gpu)]
    return min(able, key=lambda algorithm: fsum(kernel.duration_us for kernel in algorithm.kernels), default=None)


def fits(algorithm: ConvolutionAlgorithm, gpu: GPU) -> bool:
    """Whether an SM of a GPU holds a block of every kernel of an algorithm."""
    return not any(lacking(launch, gpu) for launch in algorithm.kernels)
