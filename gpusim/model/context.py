"""Effect of earlier operations on the time of an operation, relative to its recording.

A call is recorded while it repeats itself: its tensors are then in L2 as far as they fit, its instructions and
constants in the caches of the SMs. Where other operations ran in between they are not. A trace may say of a call how
long it takes warm and cold, and how many bytes it touches; calls of which it says nothing take what was recorded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import fsum

from gpusim.hardware.gpu import GPU, ModelConstants
from gpusim.model.contention import SECTORS_OF_A_MISS
from gpusim.model.memory import lost_to_others
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, ScalingPoint, WarpStalls
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Copy, Host, Kernel, Operation, Stream

MOST_LENGTHENED = 100_000  # launches that are remembered
MOST_SET_BYTES = 4096  # of a memset that is no kernel of its own ([V] experiments/copies: 4,096 are, 8,192 are not)


def in_context(trace: Trace, gpu: GPU) -> Trace:
    """A trace, itself where it tells no warm durations, with its kernels as long as they take after the others.

    The trace is taken to run again and again, as measurements do: an operation that is not alone then runs after
    others. It loads its instructions anew (`switch_us`). What all operations of a GPU touch beyond what L2 keeps
    (`l2_kept_share`) takes as much of that away: from twice as much on nothing is left [D]. An operation takes as much
    longer as it took cold over warm, for the part of its tensors that is gone.
    """
    trace = _of_graphs(trace, gpu.model)
    gpus = {stream.gpu for stream in trace.streams}
    longer = {at: _longer_on([stream for stream in trace.streams if stream.gpu == at], gpu) for at in gpus}
    if not any(longer.values()):
        return trace
    return trace.model_copy(update={"streams": tuple(_in_context(one, longer[one.gpu]) for one in trace.streams)})


def _of_graphs(trace: Trace, constants: ModelConstants) -> Trace:
    """Return a trace with kernels as in a CUDA graph, and what profiles leave out, in streams of several operations.

    Profilers count a kernel from its start, which is a gap after the end of that before it; a call of a library is
    recorded with all that it takes. In a graph kernels after a stream's first one start sooner than in a stream.
    Of a copy between host and device, and of a small memset, they count only the time in which bytes move ([V]
    experiments/copies).
    """
    load_us = constants.graph_latency_us - constants.launch_latency_us
    if constants.kernel_gap_us == constants.copy_gap_us == constants.memset_gap_us == load_us == 0.0:
        return trace
    streams = tuple(_of_graph(stream, constants, load_us) for stream in trace.streams)
    same = all(new is old for new, old in zip(streams, trace.streams, strict=True))
    return trace if same else trace.model_copy(update={"streams": streams})


def _of_graph(stream: Stream, constants: ModelConstants, load_us: float) -> Stream:
    if len(stream.operations) == 1 and stream.arrivals is None:
        return stream
    if not any(isinstance(op, Kernel) for op in stream.operations):
        return stream

    first = next((op for op in stream.operations if not isinstance(op, Host)), None)

    def later(op: Operation) -> Operation:
        if isinstance(op, Kernel):
            sooner_us = 0.0 if op is first else load_us
            return op.model_copy(update={"kernel": _longer(op.kernel, 1.0, constants.kernel_gap_us, sooner_us)})
        if isinstance(op, Copy) and op.duration_us is not None:
            return op.model_copy(update={"duration_us": op.duration_us + _gap_us(op, constants)})
        return op

    return stream.model_copy(update={"operations": tuple(map(later, stream.operations))})


def _gap_us(copy: Copy, constants: ModelConstants) -> float:
    """How long a copy keeps its stream beyond its time in a profile."""
    if copy.direction in ("h2d", "d2h"):
        return constants.copy_gap_us
    return constants.memset_gap_us if copy.direction == "memset" and copy.bytes <= MOST_SET_BYTES else 0.0


def in_graph(kernel: KernelLaunch) -> bool:
    """Whether a kernel of `in_context` starts sooner than in a stream, as in a CUDA graph."""
    return (kernel.load_us or 0.0) < 0.0


def _longer_on(streams: Sequence[Stream], gpu: GPU) -> Mapping[int, ConvolutionAlgorithm]:
    """Map each algorithm with a recorded warm duration, by its id, to its longer form on a GPU with these streams."""
    operations = [op for stream in streams for op in stream.operations]
    told = [op.selected for op in operations if isinstance(op, Convolution) and op.selected.warm_us is not None]
    if not told or len(operations) == 1:
        return {}
    different = {id(one): one for one in told}  # a network that repeats has few
    touched = {key: touched_bytes(one) / gpu.kept_l2_bytes for key, one in different.items()}
    total = fsum(touched[id(one)] for one in told)
    lost = {key: lost_to_others(own, total - own) for key, own in touched.items()}
    return {key: _lengthened(one, gpu.model.switch_us, lost[key]) for key, one in different.items()}


def _in_context(stream: Stream, longer: Mapping[int, ConvolutionAlgorithm]) -> Stream:
    if not longer or _repeats_itself(stream):
        return stream
    return stream.model_copy(update={"operations": tuple(_after_others(op, longer) for op in stream.operations)})


def with_cold_caches(algorithm: ConvolutionAlgorithm) -> ConvolutionAlgorithm:
    """An algorithm where L2 holds nothing that it reads: as much longer as it took cold over warm, if a trace tells."""
    return _lengthened(algorithm, 0.0, 1.0) if _missing_us(algorithm) > 0.0 else algorithm


def _repeats_itself(stream: Stream) -> bool:
    """Whether a stream runs one operation over and over."""
    return len(stream.operations) == 1 and stream.arrivals is not None


def _after_others(op: Operation, longer: Mapping[int, ConvolutionAlgorithm]) -> Operation:
    """An operation with its algorithm as it is after others, found by the id of what was recorded."""
    if not isinstance(op, Convolution) or op.selected.warm_us is None:
        return op
    return op.model_copy(update={"selected": longer[id(op.selected)]})


def touched_bytes(algorithm: ConvolutionAlgorithm) -> float:
    """Bytes of the tensors, and of the workspace if one kernel writes it for the next [D]; else what counters show."""
    if algorithm.touched_bytes is None:
        return fsum(map(_moved_bytes, algorithm.kernels))
    unused = algorithm.workspace_bytes if len(algorithm.kernels) == 1 else None
    return max(0, algorithm.touched_bytes - (unused or 0))


def _moved_bytes(kernel: KernelLaunch) -> float:
    """Bytes that a kernel reads from DRAM with empty caches, as counters are recorded, and that it writes to L2."""
    mix = kernel.mix
    if mix is None:
        return 0.0
    return kernel.blocks * ((mix.dram_read_bytes or 0.0) + (mix.l2_write_bytes or 0.0) / SECTORS_OF_A_MISS)


def _lengthened(selected: ConvolutionAlgorithm, switch_us: float, lost: float) -> ConvolutionAlgorithm:
    """An algorithm that loads its instructions first, and whose kernels wait for what L2 has lost, in proportion."""
    recorded = fsum(kernel.duration_us for kernel in selected.kernels)
    factor = 1.0 + lost * _missing_us(selected) / recorded
    switches = (switch_us, *(0.0 for _ in selected.kernels[1:]))
    kernels = tuple(_longer(one, factor, us, us) for one, us in zip(selected.kernels, switches, strict=True))
    return selected.model_copy(update={"kernels": kernels})


def _missing_us(algorithm: ConvolutionAlgorithm) -> float:
    """Additional time of a cold call over a warm one."""
    if algorithm.warm_us is None or algorithm.cold_us is None:
        return 0.0
    return max(0.0, algorithm.cold_us - algorithm.warm_us)


@lru_cache(MOST_LENGTHENED)
def _longer(kernel: KernelLaunch, factor: float, more_us: float, load_us: float) -> KernelLaunch:
    """A kernel that takes a factor and ``more_us`` longer, and waits ``load_us`` longer for its first block.

    The same object for the same arguments: what is known of a kernel is found by it.
    """

    def longer(part: KernelLaunch | ScalingPoint) -> dict[str, float]:
        return {"duration_us": part.duration_us * factor + more_us}

    points = kernel.scaling and tuple(point.model_copy(update=longer(point)) for point in kernel.scaling)
    loading = (kernel.load_us or 0.0) + load_us
    mix = kernel.mix and _waiting_longer(kernel.mix, factor)
    return kernel.model_copy(update={**longer(kernel), "load_us": loading, "scaling": points, "mix": mix})


def _waiting_longer(mix: Mix, factor: float) -> Mix:
    """Demand of a block that waits longer for memory: the same work in more cycles."""
    longer = with_active_cycles(mix, factor)
    if mix.stalls is None:
        return longer
    reasons = [getattr(mix.stalls, reason) or 0.0 for reason in WarpStalls.model_fields]
    waiting = (mix.stalls.long_scoreboard or 0.0) + (factor - 1.0) * fsum(reasons)
    return longer.model_copy(update={"stalls": mix.stalls.model_copy(update={"long_scoreboard": waiting})})


def with_active_cycles(mix: Mix, factor: float) -> Mix:
    """The counters of a kernel whose SMs were active a factor as long."""
    cycles = {name: getattr(mix, name) for name in ("active_cycles_min", "active_cycles_avg", "active_cycles_max")}
    return mix.model_copy(update={name: counted and counted * factor for name, counted in cycles.items()})
