"""What policies that put blocks of several kernels on one SM have in common: pure arithmetic on a view."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.gpu import GPU
from gpusim.policies.base import Grant, KernelView, Partition, View

Resources = tuple[int, int, int, int]  # registers, shared memory bytes, warps, block slots


def capacity(gpu: GPU) -> Resources:
    """What one SM has; shared memory at its largest carve-out."""
    limits = gpu.limits
    return (
        limits.registers_per_sm,
        limits.shared_memory_per_sm_bytes,
        limits.max_warps_per_sm,
        limits.max_blocks_per_sm,
    )


def need(kernel: KernelView) -> Resources:
    """What one resident block of a kernel holds."""
    f = kernel.footprint
    return (f.registers, f.shared_memory_bytes, f.warps, f.slots)


def fits(room: Resources, needs: Sequence[Resources], counts: Sequence[int]) -> bool:
    """Whether ``counts`` blocks of each kernel are within ``room`` together."""
    return all(
        sum(count * each[r] for each, count in zip(needs, counts, strict=True)) <= room[r] for r in range(len(room))
    )


def useful_blocks(kernel: KernelView, sms: int) -> int:
    """Most blocks of a kernel worth keeping on one of ``sms`` SMs: its occupancy, or all it has left spread out."""
    left = kernel.waiting + kernel.resident
    return max(1, min(kernel.blocks_per_sm, -(-left // sms)))


def one_of(name: str, value: str, known: Sequence[str]) -> None:
    """Refuse a parameter with none of the values that it can have.

    Raises:
        ValueError: says so.
    """
    if value not in known:
        raise ValueError(f"{name}={value} is none of {', '.join(known)}")


def by_stream(view: View) -> dict[str, list[KernelView]]:
    """Ready and running kernels of each stream, streams in the order of the trace."""
    found: dict[str, list[KernelView]] = {}
    for kernel in sorted(view.kernels, key=lambda k: (k.stream_index, k.id)):
        found.setdefault(kernel.stream, []).append(kernel)
    return found


def unshared(view: View) -> Partition:
    """All kernels in order of becoming ready, each as much as fits: for a stream that has the GPU to itself."""
    return Partition(tuple(Grant(kernel.id) for kernel in view.kernels))


def even_sms(view: View) -> Partition:
    """Spatial multitasking: each stream with kernels now has an equal share of the SMs, its own line on them [D]."""
    streams = by_stream(view)
    sms, start = view.gpu.sm_count, 0
    grants: list[Grant] = []
    for n, kernels in enumerate(streams.values()):
        count = sms // len(streams) + (1 if n < sms % len(streams) else 0)
        mine = frozenset(range(start, start + count)) if count else frozenset(range(sms))
        start += count
        grants.extend(Grant(kernel.id, sms=mine, queue=n) for kernel in kernels)
    return Partition(tuple(grants))
