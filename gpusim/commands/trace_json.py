"""Output of `gpusim trace show --json`: the content of a trace as data."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum
from typing import Any

from gpusim import occupancy
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch

JSON_VERSION = 1


def as_json(trace: Trace, gpu: GPU | None) -> dict[str, Any]:
    """Programs, streams and kernels of a trace.

    Args:
        trace: what is shown.
        gpu: whose occupancy is told; None: it does not ship.
    """
    streams, by_name = {stream.name: stream for stream in trace.streams}, launches_by_name(trace)
    return {
        "version": JSON_VERSION,
        "trace": trace.name,
        "device": trace.device,
        "stands_for": trace.stands_for,
        "order": trace.order,
        "notes": trace.notes.splitlines(),
        "gpu": None if gpu is None else gpu.name,
        "programs": [
            {
                "name": program.name,
                "streams": list(program.streams),
                "priority": program.priority,
                "requests": 1 if program.arrivals is None else program.arrivals.requests,
                **_kernels(one for name in program.streams for op in streams[name].operations for one in op.launches()),
            }
            for program in trace.programs
        ],
        "streams": [
            {
                "name": stream.name,
                "operations": len(stream.operations),
                "waits": sum(len(operation.depends_on) for operation in stream.operations),
                **_kernels(one for operation in stream.operations for one in operation.launches()),
            }
            for stream in trace.streams
        ],
        "kernels": [
            {"name": name, **_kernels(of), **_occupancy(of, gpu)}
            for name, of in sorted(by_name.items(), key=lambda item: -fsum(one.duration_us for one in item[1]))
        ],
    }


def launches_by_name(trace: Trace) -> dict[str, list[KernelLaunch]]:
    """The kernel launches of a trace by the name of their kernel."""
    launches = (launch for operation in trace.operations() for launch in operation.launches())
    return grouped(launches, lambda launch: launch.name)


def _kernels(launches: Iterable[KernelLaunch]) -> dict[str, Any]:
    known = list(launches)
    return {
        "launches": len(known),
        "kernels_us": fsum(one.duration_us for one in known),
        "estimated": sum(one.estimated for one in known),
    }


def _occupancy(launches: list[KernelLaunch], gpu: GPU | None) -> dict[str, Any]:
    """Of the longest launch."""
    longest = max(launches, key=lambda one: one.duration_us)
    found: dict[str, Any] = {"grid": list(longest.grid), "block": list(longest.block)}
    if gpu is None:
        return found | {"blocks_per_sm": None, "limiter": None}
    blocks, limiter = launch_occupancy(longest, gpu)
    return found | {"blocks_per_sm": blocks, "limiter": limiter}


def launch_occupancy(launch: KernelLaunch, gpu: GPU) -> tuple[int, str]:
    """Resident blocks of a launch on one SM, and what limits them."""
    fit = occupancy(
        gpu,
        threads_per_block=launch.threads_per_block,
        registers_per_thread=launch.registers_per_thread,
        shared_memory_per_block=launch.shared_memory_per_block_bytes,
    )
    return fit.blocks_per_sm, fit.limiter
