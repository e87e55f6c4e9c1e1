"""What a policy sees, made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpusim import load_gpu
from gpusim.hardware.gpu import GPU
from gpusim.model.occupancy import Footprint
from gpusim.policies.interface import KernelView, View
from gpusim.policies.tools.mixes import Fits, Resources

H200 = load_gpu("h200")


def kernel(number: int, **changes: object) -> KernelView:
    """A kernel of 128 threads with 128 registers each and 16 KiB of shared memory; 4 blocks fit an SM."""
    usual: dict[str, object] = {
        "stream": f"s{number}",
        "stream_index": number,
        "internal": False,
        "priority": 0,
        "name": "k",
        "blocks": 1000,
        "waiting": 1000,
        "resident": 0,
        "footprint": Footprint(warps=4, registers=16384, shared_memory_bytes=17408),
        "blocks_per_sm": 4,
        "ready_us": 0.0,
        "started": True,
        "solo_us": 100.0,
        "bound_by": "fma",
        "dram_load": 0.1,
    }
    return KernelView(id=number, **(usual | changes))  # type: ignore[arg-type]


def view_of(
    *kernels: KernelView,
    residents: Mapping[int, Sequence[int]] | None = None,
    progress: Mapping[int, Sequence[float]] | None = None,
    now_us: float = 0.0,
    gpu: GPU = H200,
    solo_rate: Callable[[int, int], float] = lambda number, blocks: float(blocks),
) -> View:
    """What a policy sees of kernels whose progress alone is `solo_rate`, by default in proportion to their blocks."""
    held, done = residents or {}, progress or {}
    return View(
        now_us=now_us,
        gpu=gpu,
        kernels=kernels,
        streams=tuple(k.stream for k in kernels),
        residents=lambda number: held.get(number, [0] * gpu.sm_count),
        solo_rate=lambda number, blocks, sms=None: solo_rate(number, blocks),
        mix_rates=lambda mix, sms=None: [float(blocks) for _, blocks in mix],
        blocks_done=lambda number: 0,
        progress=lambda number: done.get(number, [0.0] * gpu.sm_count),
    )


def within(room: Resources, needs: Sequence[Resources]) -> Fits:
    """Whether so many blocks of each kernel are within ``room`` by what they need, summed."""

    def fit(counts: Sequence[int]) -> bool:
        return all(
            sum(count * each[r] for each, count in zip(needs, counts, strict=True)) <= most
            for r, most in enumerate(room)
        )

    return fit
