"""Scaling points of a program: its kernels' times in a recording on a part of the SMs, beside that on all of them."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from gpusim.common.errors import InputError, quote
from gpusim.common.tables import counted
from gpusim.trace.edit import checked, with_operations
from gpusim.trace.file import trace_of
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, ScalingPoint
from gpusim.trace.operations import Kernel, Operation


def with_points(trace: Trace | str | PathLike[str], parts: Sequence[Trace | str | PathLike[str]]) -> Trace:
    """A profile's trace, its kernels with their times on a part of the SMs, as `KernelLaunch.scaling`.

    A kernel gets the time of the kernel at its place in a part, if that has the same name, grid and block: a library
    may choose another one for fewer SMs. Points that it had stay.

    Args:
        trace: of the whole program, an object or the path of a file.
        parts: one or two of the same program, each of a process that had a part of the SMs (`gpusim import --sms`).

    Raises:
        InputError: a part on all SMs, on several numbers of SMs, or with other streams or another number of kernels; a
            trace that no profile gave; more points of a kernel than two.
    """
    if not (isinstance(parts, list | tuple) and parts):
        raise InputError(None, "parts", f"is {quote(parts)}", "a list of traces, or of the paths of their files")
    whole = trace_of(trace)
    for part in map(trace_of, parts):
        whole = _with(whole, part)
    return checked(whole)


def _with(whole: Trace, part: Trace) -> Trace:
    """A trace with the points of one part."""
    sms = _sms_of(part)
    theirs = iter(_pairs(whole, part))

    def pointed(operation: Operation) -> Operation:
        if not isinstance(operation, Kernel):
            return operation
        mine, other = next(theirs)
        if (mine.name, mine.grid, mine.block) != (other.name, other.grid, other.block):
            return operation
        return with_point(operation, ScalingPoint(sms=sms, duration_us=other.duration_us))

    return with_operations(whole, pointed)


def with_point(operation: Kernel, point: ScalingPoint) -> Kernel:
    """A kernel with one scaling point more."""
    launch = operation.kernel
    scaling = (*(launch.scaling or ()), point)
    return operation.model_copy(update={"kernel": launch.model_copy(update={"scaling": scaling})})


def _sms_of(part: Trace) -> int:
    """The SMs that a part was recorded on."""
    found = {launch.recorded_sms for launch in part.launches()}
    if len(found) == 1 and (sms := found.pop()) is not None:
        return sms
    known = ", ".join(map(str, part.recorded_sms()))
    problem = f"{part.name} was recorded on {f'{known} SMs and others' if known else 'all SMs'}"
    raise InputError(None, "recorded_sms", problem, "the profile of a process on one part of them: gpusim import --sms")


def _pairs(whole: Trace, part: Trace) -> list[tuple[KernelLaunch, KernelLaunch]]:
    """The kernels at the same places, stream by stream."""
    mine, theirs = ([_kernels(one, stream.operations) for stream in one.streams] for one in (whole, part))
    if len(mine) != len(theirs):
        raise InputError(None, "streams", f"are {len(mine)}, those of {part.name} {len(theirs)}", "the same program")
    found: list[tuple[KernelLaunch, KernelLaunch]] = []
    for stream, own, other in zip(whole.streams, mine, theirs, strict=True):
        if len(own) != len(other):
            problem = f"has {counted(len(own), 'kernel')}, in {part.name} {len(other)}"
            raise InputError(None, f"stream {stream.name}", problem, "the same program")
        found += zip(own, other, strict=True)
    return found


def _kernels(trace: Trace, operations: Sequence[Operation]) -> list[KernelLaunch]:
    """The kernels of a stream."""
    for operation in operations:
        if operation.launches() and not isinstance(operation, Kernel):
            raise InputError(None, operation.id, f"is a {operation.kind} of {trace.name}", "kernels, as of a profile")
    return [operation.kernel for operation in operations if isinstance(operation, Kernel)]
