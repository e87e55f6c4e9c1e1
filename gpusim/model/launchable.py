"""Whether a GPU can launch a kernel: how many of its blocks one SM holds, and the refusal where that is none."""

from __future__ import annotations

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import GPU
from gpusim.model.occupancy import Footprint, Occupancy, footprint, occupancy
from gpusim.trace.kernels import KernelLaunch

LAUNCHABLE = "a kernel that this GPU can launch"


def launch_occupancy(launch: KernelLaunch, gpu: GPU) -> Occupancy:
    """Resident blocks of a launch on one SM, and what limits them."""
    return occupancy(
        gpu,
        threads_per_block=launch.threads_per_block,
        registers_per_thread=launch.registers_per_thread,
        shared_memory_per_block=launch.shared_memory_per_block_bytes,
    )


def recorded_part(launch: KernelLaunch, gpu: GPU, place: str = "") -> GPU:
    """The GPU of a recording as a launch had it: with the SMs of its process.

    ``place`` says where in the trace it stands; empty: its name does.
    """
    sms = launch.recorded_sms
    if sms is not None and sms > gpu.sm_count:
        problem = f"is {sms}, {gpu.name} has {gpu.sm_count}"
        raise InputError(None, f"{place or launch.name[:60]}.recorded_sms", problem, "at most all SMs")
    return gpu.part(sms)


def launch_footprint(launch: KernelLaunch, gpu: GPU) -> Footprint:
    """Return the resources of an SM that a resident block of a launch holds."""
    return footprint(gpu, launch.threads_per_block, launch.registers_per_thread, launch.shared_memory_per_block_bytes)


def fitting_occupancy(launch: KernelLaunch, gpu: GPU, place: str) -> Occupancy:
    """The occupancy of a launch that the GPU can run; one of which no SM holds a block is refused.

    ``place`` says where in the trace it stands; empty: its name does.
    """
    fit = launch_occupancy(launch, gpu)
    if fit.blocks_per_sm == 0:
        raise InputError(None, place or f"kernel {launch.name[:60]}", lacking(launch, gpu), LAUNCHABLE)
    return fit


def lacking(launch: KernelLaunch, gpu: GPU) -> str:
    """What an SM of a GPU lacks for a block of a launch, in words; empty where it holds one."""
    fit = launch_occupancy(launch, gpu)
    return "" if fit.blocks_per_sm else f"a block asks for more {fit.limiter.replace('_', ' ')} than {gpu.name} has"
