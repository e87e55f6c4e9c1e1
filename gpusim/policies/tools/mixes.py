"""Shared arithmetic of policies that put blocks of several kernels on one SM: pure functions of a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gpusim.hardware.gpu import GPU
from gpusim.model.occupancy import fits
from gpusim.policies.interface import Grant, KernelView, Partition, View

Resources = tuple[int, int, int, int]  # registers, shared memory bytes, warps, block slots
Fits = Callable[[Sequence[int]], bool]  # whether so many blocks of each kernel fit on an SM together


def residents_of(gpu: GPU, kernels: Sequence[KernelView]) -> Fits:
    """Whether so many blocks of each of some kernels can be resident on one SM, at its largest carve-out."""
    footprints = [kernel.footprint for kernel in kernels]
    known: dict[tuple[int, ...], bool] = {}

    def fit(counts: Sequence[int]) -> bool:
        key = tuple(counts)
        if key not in known:
            known[key] = fits(gpu, zip(footprints, key, strict=True))
        return known[key]

    return fit


def useful_blocks(kernel: KernelView, sms: int) -> int:
    """Most blocks of a kernel worth keeping on one of ``sms`` SMs: its occupancy, or all it has left spread out."""
    left = kernel.waiting + kernel.resident
    return max(1, min(kernel.blocks_per_sm, -(-left // sms)))


def unshared(view: View) -> Partition:
    """All kernels in order of becoming ready, each as much as fits: for a stream that has the GPU to itself."""
    return Partition(tuple(Grant(kernel.id) for kernel in view.kernels))
