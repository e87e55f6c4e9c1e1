"""Kernel launches as recorded: grid, block, resources, duration, and what a block demands."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from gpusim.trace.fields import (
    LEAST_DURATION_US,
    MAX_BLOCK_LENGTHS,
    MAX_BLOCKS,
    MAX_BLOCKS_PER_US,
    MAX_CLOCK_MHZ,
    MAX_CLUSTER_BLOCKS,
    MAX_CYCLES,
    MAX_DURATION_US,
    MAX_FLOP,
    MAX_SCALING_POINTS,
    MAX_SCALING_SMS,
    MAX_TRAFFIC_BYTES,
    STREAM_PATTERN,
    ActiveCycles,
    Cycles,
    Passing,
    Percent,
    Recurring,
    Strict,
    Traffic,
    Waiting,
    described,
    fault,
    measured,
    require_printable,
)


class WarpStalls(Strict):
    """Why warps waited, in warps per issued instruction (Nsight Compute's *_per_issue_active ratios).

    The sum over all reasons is the resident warps of a scheduler divided by its instructions per cycle.
    """

    long_scoreboard: Annotated[Waiting, described("waiting for L1TEX (global, local, texture)")] = None
    short_scoreboard: Annotated[Waiting, described("waiting for shared memory or special functions")] = None
    barrier: Annotated[Waiting, described("waiting at a barrier of the thread block")] = None
    math_pipe_throttle: Annotated[Waiting, described("waiting for a busy arithmetic pipe")] = None
    mio_throttle: Annotated[Waiting, described("waiting for room in the memory input/output queue")] = None
    lg_throttle: Annotated[Waiting, described("waiting for room in the local/global queue")] = None
    wait: Annotated[Waiting, described("waiting a fixed instruction latency")] = None
    not_selected: Annotated[Waiting, described("ready, but another warp was issued")] = None
    selected: Annotated[Waiting, described("issued in this cycle")] = None
    no_instruction: Annotated[Waiting, described("waiting for an instruction fetch")] = None
    dispatch: Annotated[Waiting, described("held back by the dispatcher")] = None
    imc_miss: Annotated[Waiting, described("waiting for the constant cache")] = None


_ClusterExtent = Annotated[int, Field(ge=1, le=MAX_CLUSTER_BLOCKS)]


class Mix(Strict):
    """Demand of one thread block on an SM and on the memory behind it; every field may be absent.

    Demands are totals per block, averaged over the launch. A demand in SM cycles counts the cycles in which
    the SM's issue slots, a pipe or the L1 data path would be fully busy with that block's work alone:
    counter percent / 100 x mean active cycles of an SM x SMs / blocks [D].
    """

    issue_cycles: Annotated[Cycles, described("all issue slots of an SM busy")] = None
    alu_cycles: Annotated[Cycles, described("integer and logic pipe busy")] = None
    fma_cycles: Annotated[Cycles, described("FP32 multiply-add pipe busy")] = None
    tensor_cycles: Annotated[Cycles, described("tensor pipe busy")] = None
    lsu_cycles: Annotated[Cycles, described("load/store unit busy")] = None
    l1_cycles: Annotated[Cycles, described("L1 and shared-memory data path busy")] = None
    multiply_cycles: Annotated[
        Cycles, described("half of the FMA pipe that multiplies integers, beyond the other half")
    ] = None
    special_cycles: Annotated[Cycles, described("special function unit busy")] = None
    double_cycles: Annotated[Cycles, described("pipe of FP64, packed FP16 and tensor instructions busy")] = None
    sm_cycles: Annotated[Cycles, described("busiest part of the SM busy")] = None
    warp_instructions: Annotated[
        float | None, measured("warp instructions/block", "executed instructions", ge=0, le=MAX_CYCLES)
    ] = None
    l1_read_bytes: Annotated[Traffic, described("read into L1 from L2")] = None
    l1_write_bytes: Annotated[Traffic, described("written from L1 to L2")] = None
    l2_bytes: Annotated[Traffic, described("all traffic at L2")] = None
    l2_read_bytes: Annotated[Traffic, described("the part of it that is reads")] = None
    l2_write_bytes: Annotated[
        Traffic, described("the part of it that is plain writes; what is left are atomics and reductions")
    ] = None
    dram_read_bytes: Annotated[Traffic, described("read from DRAM")] = None
    dram_write_bytes: Annotated[Traffic, described("written to DRAM")] = None
    l2_busy_us: Annotated[
        float | None,
        measured("us/block", "time that the whole L2 would be fully busy with it alone", ge=0, le=MAX_DURATION_US),
    ] = None
    l1_hit_percent: Annotated[Percent, described("sectors found in L1")] = None
    l2_hit_percent: Annotated[Percent, described("sectors found in L2")] = None
    achieved_warps_per_sm: Annotated[
        float | None, measured("warps/SM", "mean resident warps of an SM while it was active", ge=0, le=1024)
    ] = None
    active_cycles_min: Annotated[ActiveCycles, described("active cycles of the SM that had fewest")] = None
    active_cycles_avg: Annotated[ActiveCycles, described("active cycles, mean over the SMs")] = None
    active_cycles_max: Annotated[ActiveCycles, described("active cycles of the SM that had most")] = None
    clock_mhz: Annotated[
        float | None,
        measured(
            "MHz", "clock of the SMs over the recorded duration, from cycles; absent: unknown", gt=0, le=MAX_CLOCK_MHZ
        ),
    ] = None
    shared_memory_config_bytes: Annotated[
        int | None, measured("bytes/SM", "shared memory the driver configured (the carve-out)", ge=0, le=2**24)
    ] = None
    cluster: Annotated[
        tuple[_ClusterExtent, _ClusterExtent, _ClusterExtent] | None,
        measured("thread blocks", "dimensions x, y, z of a thread block cluster; 1, 1, 1: none; absent: unknown"),
    ] = None
    stalls: Annotated[WarpStalls | None, described("why warps waited")] = None
    alu_utilisation_percent: Annotated[
        Percent, described("arithmetic units busy while alone on the GPU (a paper's table)")
    ] = None
    memory_stall_percent: Annotated[
        Percent, described("stalls that wait for memory while alone on the GPU (a paper's table)")
    ] = None

    estimated: Annotated[
        bool | None, described("true: nothing of this was counted, all of it is estimated; absent: it was counted")
    ] = None

    def counts(self, fields: Sequence[str]) -> bool:
        """Whether all given counters were recorded. Stall reasons are one of them, ``stalls``."""
        return not self.estimated and all(getattr(self, name) is not None for name in fields)


ISSUE_COUNTERS = ("issue_cycles",)  # of a mix: without them its use of issue slots is an estimate, or unknown
TENSOR_SHARE = 0.04  # of its time that a kernel on tensor cores keeps their pipe busy: of others counted up to 0.03
DRAM_COUNTERS = ("dram_read_bytes", "dram_write_bytes")  # without them its use of DRAM is unknown
L2_COUNTERS = ("l2_bytes", "l2_read_bytes", "l2_write_bytes", "l2_busy_us")  # the same of L2
ALL_COUNTERS = (  # without one of them what binds it is a guess, and how far off the model is was never measured
    *ISSUE_COUNTERS,
    *("alu_cycles", "fma_cycles", "tensor_cycles", "lsu_cycles", "l1_cycles"),
    *L2_COUNTERS,
    *DRAM_COUNTERS,
    *("achieved_warps_per_sm", "active_cycles_avg", "active_cycles_max", "stalls"),
)
_Extent = Annotated[int, Field(ge=1, le=65535)]


class ScalingPoint(Strict):
    """Time of a launch that owns some of the SMs, as in a green context."""

    sms: Annotated[int, measured("SMs", "fewer than the device has", ge=1, le=MAX_SCALING_SMS)]
    duration_us: Annotated[
        float, measured("us", "duration, alone on these SMs", ge=LEAST_DURATION_US, le=MAX_DURATION_US)
    ]


Arithmetic = Literal["8-bit", "16-bit", "32-bit", "64-bit"]


class Work(Strict):
    """The least FLOP and bytes of the operator of a launch, from the sizes of its inputs."""

    flop: Annotated[float, measured("FLOP", "floating-point operations", ge=0, le=MAX_FLOP)]
    read_bytes: Annotated[float, measured("bytes", "size of its inputs", ge=0, le=MAX_TRAFFIC_BYTES)]
    write_bytes: Annotated[float, measured("bytes", "size of its outputs", ge=0, le=MAX_TRAFFIC_BYTES)]
    arithmetic: Annotated[Arithmetic, described("size of the numbers that it computes with")]


class KernelLaunch(Recurring):
    """One launch of one kernel, as recorded in isolation on the GPU of the trace."""

    name: Annotated[str, described("kernel name as the profiler gives it", min_length=1, max_length=10_000)]
    grid: Annotated[
        tuple[Annotated[int, Field(ge=1, le=2**31 - 1)], _Extent, _Extent],
        measured("thread blocks", f"grid dimensions x, y, z; at most {MAX_BLOCKS_PER_US} blocks a us of the duration"),
    ]
    block: Annotated[
        tuple[
            Annotated[int, Field(ge=1, le=1024)],
            Annotated[int, Field(ge=1, le=1024)],
            Annotated[int, Field(ge=1, le=64)],
        ],
        measured("threads", "block dimensions x, y, z; at most 1024 threads together"),
    ]
    registers_per_thread: Annotated[
        int, measured("registers/thread", "32-bit registers; 0 (unknown) limits nothing", ge=0, le=255)
    ]
    static_shared_memory_bytes: Annotated[
        int, measured("bytes/block", "shared memory known to the compiler", ge=0, le=2**20)
    ] = 0
    dynamic_shared_memory_bytes: Annotated[
        int, measured("bytes/block", "shared memory asked for at launch", ge=0, le=2**20)
    ] = 0
    duration_us: Annotated[
        float, measured("us", "recorded duration, alone on the device", ge=LEAST_DURATION_US, le=MAX_DURATION_US)
    ]
    stream: Annotated[
        str,
        described(
            "main, or internal0, internal1, …: a stream that the library opens inside its operation",
            pattern=STREAM_PATTERN,
        ),
    ] = "main"
    load_us: Annotated[
        Passing,
        described("first part of the duration, in which instructions and constants are loaded and no block runs"),
    ] = None
    block_lengths: Annotated[
        tuple[Annotated[float, Field(gt=0, le=MAX_CYCLES)], ...] | None,
        measured(
            "1",
            "how long blocks take along a row (x) of the grid, relative to one another, each for an equal part of the "
            "row: 1, 3, 5, 7 of attention with a causal mask; absent: all as long, or as the counters show",
            min_length=1,
            max_length=MAX_BLOCK_LENGTHS,
        ),
    ] = None
    recorded_sms: Annotated[
        int | None,
        measured(
            "SMs",
            "those of its process in the recording, where it had a part of the GPU: under an MPS percentage, or in a "
            "green context; absent: all",
            ge=1,
            le=MAX_SCALING_SMS,
        ),
    ] = None
    communicates: Annotated[
        bool | None,
        described("true: it exchanges data with other GPUs, whose link sets its duration; absent: it does not"),
    ] = None
    mix: Annotated[Mix | None, described("what a block asks for; absent if the source cannot know")] = None
    work: Annotated[
        Work | None, described("of its operator, where the profile tells; without counters its demands follow from it")
    ] = None
    scaling: Annotated[
        tuple[ScalingPoint, ...] | None,
        described(
            "what it takes on one or two other numbers of SMs; with them a replay knows better what bounds it",
            min_length=1,
            max_length=MAX_SCALING_POINTS,
        ),
    ] = None

    def on_tensor_cores(self, sm_count: int) -> bool:
        """Whether the counters show work on the tensor cores of the recording GPU."""
        mix = self.mix
        if mix is None or not mix.tensor_cycles or not mix.active_cycles_avg:
            return False
        return mix.tensor_cycles * self.blocks > TENSOR_SHARE * mix.active_cycles_avg * sm_count

    @property
    def blocks(self) -> int:
        """Thread blocks of the launch."""
        x, y, z = self.grid
        return x * y * z

    @property
    def threads_per_block(self) -> int:
        """Threads of one block."""
        x, y, z = self.block
        return x * y * z

    def counts(self, fields: Sequence[str]) -> bool:
        """Whether all given fields of its mix were recorded, such as `DRAM_COUNTERS`."""
        return self.mix is not None and self.mix.counts(fields)

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Names of `ALL_COUNTERS` that the recording lacks."""
        return ALL_COUNTERS if self.mix is None else tuple(c for c in ALL_COUNTERS if not self.mix.counts((c,)))

    @property
    def estimated(self) -> bool:
        """Whether the recording has no counters, so that the demand of its blocks is an estimate."""
        return self.uncounted == ALL_COUNTERS

    @property
    def shared_memory_per_block_bytes(self) -> int:
        """Shared memory of one block, static and dynamic, in bytes."""
        return self.static_shared_memory_bytes + self.dynamic_shared_memory_bytes

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return require_printable(name)

    @field_validator("grid")
    @classmethod
    def _grid(cls, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        blocks = grid[0] * grid[1] * grid[2]
        if blocks > MAX_BLOCKS:
            raise fault(f"has {blocks} thread blocks", f"at most {MAX_BLOCKS}")
        return grid

    @field_validator("duration_us")
    @classmethod
    def _blocks_can_start(cls, duration_us: float, info: ValidationInfo) -> float:
        x, y, z = info.data.get("grid", (1, 1, 1))
        if x * y * z > MAX_BLOCKS_PER_US * max(1.0, duration_us):
            problem = f"is {duration_us:g} for {x * y * z} thread blocks"
            raise fault(problem, f"at most {MAX_BLOCKS_PER_US} blocks in each us")
        return duration_us

    @field_validator("scaling")
    @classmethod
    def _scaling(cls, points: tuple[ScalingPoint, ...] | None) -> tuple[ScalingPoint, ...] | None:
        sms = [point.sms for point in points or ()]
        if len(set(sms)) < len(sms):
            raise fault(f"gives {sms[0]} SMs twice", "each number of SMs once")
        return points

    @field_validator("block")
    @classmethod
    def _block(cls, block: tuple[int, int, int]) -> tuple[int, int, int]:
        threads = block[0] * block[1] * block[2]
        if threads > 1024:
            raise fault(f"has {threads} threads", "at most 1024")
        return block


def launch_waits(kernels: Sequence[KernelLaunch]) -> tuple[tuple[int, ...], ...]:
    """Return for each kernel of one operation the earlier kernels that it waits for, both in launch order.

    A recording has the stream of each kernel and the launch order, but not the events between streams. The rule is [D]:
    a kernel on `main` waits for the kernel before it on `main` and for every internal kernel launched before it (a
    join); a kernel on `internalN` waits for the last `main` kernel launched before it (the fork) and for the kernel
    before it on its own stream. Kernels on different internal streams do not wait for one another. The operation ends
    when all its kernels have ended. Waits that follow from others are left out.
    """
    waits: list[tuple[int, ...]] = []
    last_main: int | None = None
    open_internal: dict[str, int] = {}  # last kernel of each internal stream since the last main kernel
    for index, kernel in enumerate(kernels):
        if kernel.stream == "main":
            before = open_internal.values() if open_internal else () if last_main is None else (last_main,)
            waits.append(tuple(sorted(before)))
            last_main, open_internal = index, {}
        else:
            previous = open_internal.get(kernel.stream, last_main)
            waits.append(() if previous is None else (previous,))
            open_internal[kernel.stream] = index
    return tuple(waits)


def taking(launches: Sequence[KernelLaunch], duration_us: float) -> tuple[KernelLaunch, ...]:
    """Return kernels that run one after the other, with their durations scaled to a given sum."""
    factor = duration_us / fsum(launch.duration_us for launch in launches)
    return tuple(launch.model_copy(update={"duration_us": launch.duration_us * factor}) for launch in launches)
