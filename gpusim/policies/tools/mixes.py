"""What policies that put blocks of several kernels on one SM have in common: pure arithmetic on a view."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.common.errors import expected_one_of
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Grant, KernelView, Partition, View
from gpusim.policies.tools.values import wrong

Resources = tuple[int, int, int, int]  # registers, shared memory bytes, warps, block slots


def capacity(gpu: GPU) -> Resources:
    """What one SM has; shared memory at its largest carve-out."""
    return gpu.limits.capacity


def need(kernel: KernelView) -> Resources:
    """What one resident block of a kernel holds."""
    return kernel.footprint.need


def fits(room: Resources, needs: Sequence[Resources], counts: Sequence[int]) -> bool:
    """Whether ``counts`` blocks of each kernel are within ``room`` together."""
    return all(
        sum(count * each[r] for each, count in zip(needs, counts, strict=True)) <= room[r] for r in range(len(room))
    )


def useful_blocks(kernel: KernelView, sms: int) -> int:
    """Most blocks of a kernel worth keeping on one of ``sms`` SMs: its occupancy, or all it has left spread out."""
    left = kernel.waiting + kernel.resident
    return max(1, min(kernel.blocks_per_sm, -(-left // sms)))


def one_of(policy: str, key: str, value: str, known: Sequence[str]) -> None:
    """Refuse a parameter with none of the values that it can have.

    Raises:
        InputError: says so.
    """
    if value not in known:
        raise wrong(policy, f"{key}={value} is unknown", expected_one_of(known, value))


def unshared(view: View) -> Partition:
    """All kernels in order of becoming ready, each as much as fits: for a stream that has the GPU to itself."""
    return Partition(tuple(Grant(kernel.id) for kernel in view.kernels))
