"""The carve-out of an SM: how much of its L1 is shared memory, as a kernel sets it and needs it."""

from __future__ import annotations

from typing import NamedTuple

from gpusim.hardware.gpu import GPU
from gpusim.model.launchable import fitting_occupancy, launch_footprint, launch_occupancy
from gpusim.trace.kernels import KernelLaunch

SIZED_BY_DRIVER = 7.0  # compute capability from which the driver sizes the carve-out by the kernel [M]


class Carveouts(NamedTuple):
    """Shared memory to which SMs are set, bytes."""

    idle: int  # for a kernel, where they are idle
    least: int  # where its blocks join others
    most: int


def carveouts(launch: KernelLaunch, gpu: GPU, recorded_on: GPU) -> Carveouts:
    """Carve-outs for a kernel on a GPU, from its recording on one.

    The carve-out of an SM stays while blocks run. A kernel joins them where it holds as many of the kernel's blocks
    as could be resident otherwise (experiments/h200_microbench, `carveout.csv`); an idle SM is often set to more, which
    the recording tells. Where it does not, a driver sizes the carve-out by the kernel; before compute capability 7.0
    SMs keep the largest unless a program asks for another [M]. If the recording has less, the program asked for that:
    the kernel then joins others only where the SM is set to just as much (`carveout.csv`, experiments/resource_matrix).
    """
    asked, recorded = _asked_bytes(launch, gpu, recorded_on), recorded_carveout_bytes(launch)
    if asked is not None:
        return Carveouts(asked, asked, asked)
    sizes, wanted = _sizes(gpu), _wanted_bytes(launch, gpu)
    least = wanted if wanted < sizes[-1] else max(sizes[-2:][0], _block_bytes(launch, gpu))
    default = wanted if float(gpu.compute_capability) >= SIZED_BY_DRIVER else sizes[-1]
    return Carveouts(min(max(wanted, recorded or default), sizes[-1]), least, most=sizes[-1])


def resident_blocks(launch: KernelLaunch, gpu: GPU, recorded_on: GPU, place: str = "") -> int:
    """Most resident blocks of a kernel on an SM: no more than the carve-out holds that its program asked for.

    Raises:
        InputError: none fits; ``place`` says where in the trace the launch stands.
    """
    most, asked = fitting_occupancy(launch, gpu, place).blocks_per_sm, _asked_bytes(launch, gpu, recorded_on)
    return most if asked is None else min(most, asked // _block_bytes(launch, gpu))


def recorded_carveout_bytes(launch: KernelLaunch) -> int | None:
    """Shared memory that SMs were set to in the recording; None where it does not tell."""
    return launch.mix.shared_memory_config_bytes if launch.mix is not None else None


def _asked_bytes(launch: KernelLaunch, gpu: GPU, recorded_on: GPU) -> int | None:
    """The carve-out that a program asked for: where the recording has less than a driver gives, but room for a block.

    A GPU without that size gives the next one.
    """
    recorded = recorded_carveout_bytes(launch)
    if recorded is None or not 0 < _block_bytes(launch, recorded_on) <= recorded < _wanted_bytes(launch, recorded_on):
        return None
    return _smallest(gpu, max(recorded, _block_bytes(launch, gpu)))


def _wanted_bytes(launch: KernelLaunch, gpu: GPU) -> int:
    """The smallest size that holds as many blocks as could be resident otherwise, or the largest."""
    return _smallest(gpu, _block_bytes(launch, gpu) * launch_occupancy(launch, gpu).blocks_per_sm)


def _smallest(gpu: GPU, needed_bytes: int) -> int:
    sizes = _sizes(gpu)
    return min((size for size in sizes if size >= needed_bytes), default=sizes[-1])


def _block_bytes(launch: KernelLaunch, gpu: GPU) -> int:
    return launch_footprint(launch, gpu).shared_memory_bytes


def _sizes(gpu: GPU) -> list[int]:
    return [kib * 1024 for kib in gpu.limits.shared_memory_carveouts_kib]
