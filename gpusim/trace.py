"""The trace format, version 1: what ran on a GPU, ready to be replayed.

A trace is a list of streams; a stream is a list of operations in launch order; an operation is a kernel
launch, a convolution (one library call that launches several kernels), a memory copy or host work. Operations
of different streams wait for one another through `depends_on`. Every number has a unit, is finite, not
negative and bounded; unknown fields are refused. What a source cannot know is left out: the field is then
None here, and the contention model says what it assumes instead.

`load_trace` reads a file, `Trace.save` writes one, `trace_schema` is the JSON Schema.
"""

from __future__ import annotations

import gzip
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import ErrorDetails

from gpusim.errors import InputError, quote
from gpusim.files import MAX_BYTES, atomic_write, decompressed, read_bytes

FORMAT_VERSION = 1
# What a trace can have at most; `gpusim schema trace` gives the limit of every number with its unit.
LEAST_DURATION_US = 1e-3  # of a kernel: 1 ns, what profilers count in
MAX_DURATION_US = 1e9  # 17 minutes: far above any kernel, far below overflow
MAX_BLOCKS = 2**31 - 1  # thread blocks of one launch
MAX_BLOCKS_PER_US = (
    20_000  # ten a cycle at 2 GHz: a GPU starts less than one a cycle in each of its at most 12 GPCs [D]
)
MAX_TRAFFIC_BYTES = 10**15
MAX_CYCLES = 1e12
MAX_REQUESTS = 10**6
LEAST_RATE_PER_S = 1e-3  # of requests: a mean gap of MAX_DURATION_US
MAX_STREAMS = 4096  # 32 times the kernels that run at once on any GPU
MAX_ALTERNATIVES = 1000
MAX_LAUNCHES = 10**7  # of one replay, every request counted

# What the text of a trace can have, checked before it is parsed: parsing takes memory for every object and list.
LEAST_BYTES_PER_GROUP = 16  # text for each object or list; the shortest kernels take 22
FREE_GROUPS = 2**12  # brackets beyond that, such as those in names
MAX_KEYS = 64  # of one object; a mix has 28

_ID_PATTERN = r"^[A-Za-z0-9_./:-]+$"
_STREAM_PATTERN = r"^(main|internal(0|[1-9][0-9]?))$"
_NAME_PATTERN = r"^[A-Za-z0-9_./-]+$"


def _about(unit: str, description: str | None = None, **limits: Any) -> Any:
    """A pydantic Field with a unit, a description and limits, for use inside Annotated."""
    return Field(description=description, json_schema_extra={"unit": unit}, **limits)


def _text(description: str, **limits: Any) -> Any:
    """A pydantic Field without a unit: text, a list or another model."""
    return Field(description=description, **limits)


def _fault(problem: str, expected: str, place: str = "") -> InputError:
    """What a validator raises (pydantic takes a ValueError); `place` counts from the validator's own."""
    return InputError(None, place, problem, expected)


def _require_printable(text: str, allowed: str = "") -> str:
    if not text.isprintable():
        strange = [character for character in text if not (character.isprintable() or character in allowed)]
        if strange:
            raise _fault(f"has the unprintable character {strange[0]!r}", "printable text")
    return text


class _Strict(BaseModel):
    """Strict types, no unknown fields, no NaN or infinity, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class _Recurring(_Strict):
    """A part of which a long trace has many that are equal: a file's equal parts are read as one object.

    The context of the validation is a dict of those read so far; without one every part is an object of its own.
    """

    @model_validator(mode="after")
    def _shared(self, info: ValidationInfo) -> Self:
        read: dict[Self, Self] | None = info.context
        return self if read is None else read.setdefault(self, self)


_Waiting = Annotated[float | None, _about("warps/issue", ge=0, le=1e5)]
_Cycles = Annotated[float | None, _about("SM cycles/block", ge=0, le=MAX_CYCLES)]
_ActiveCycles = Annotated[float | None, _about("cycles", ge=0, le=MAX_CYCLES)]
_Traffic = Annotated[float | None, _about("bytes/block", ge=0, le=MAX_TRAFFIC_BYTES)]
_Percent = Annotated[float | None, _about("%", ge=0, le=100)]


class WarpStalls(_Strict):
    """Why warps waited, in warps per issued instruction (Nsight Compute's *_per_issue_active ratios).

    The sum over all reasons is the resident warps of a scheduler divided by its instructions per cycle.
    """

    long_scoreboard: Annotated[_Waiting, _text("waiting for L1TEX (global, local, texture)")] = None
    short_scoreboard: Annotated[_Waiting, _text("waiting for shared memory or special functions")] = None
    barrier: Annotated[_Waiting, _text("waiting at a barrier of the thread block")] = None
    math_pipe_throttle: Annotated[_Waiting, _text("waiting for a busy arithmetic pipe")] = None
    mio_throttle: Annotated[_Waiting, _text("waiting for room in the memory input/output queue")] = None
    lg_throttle: Annotated[_Waiting, _text("waiting for room in the local/global queue")] = None
    wait: Annotated[_Waiting, _text("waiting a fixed instruction latency")] = None
    not_selected: Annotated[_Waiting, _text("ready, but another warp was issued")] = None
    selected: Annotated[_Waiting, _text("issued in this cycle")] = None
    no_instruction: Annotated[_Waiting, _text("waiting for an instruction fetch")] = None
    dispatch: Annotated[_Waiting, _text("held back by the dispatcher")] = None
    imc_miss: Annotated[_Waiting, _text("waiting for the constant cache")] = None


class Mix(_Strict):
    """What one thread block of a kernel asks of an SM and of the memory behind it; every field may be absent.

    Demands are totals per block, averaged over the launch. A demand in SM cycles counts the cycles in which
    the SM's issue slots, a pipe or the L1 data path would be fully busy with that block's work alone:
    counter percent / 100 x mean active cycles of an SM x SMs / blocks [D].
    """

    issue_cycles: Annotated[_Cycles, _text("all issue slots of an SM busy")] = None
    alu_cycles: Annotated[_Cycles, _text("integer and logic pipe busy")] = None
    fma_cycles: Annotated[_Cycles, _text("FP32 multiply-add pipe busy")] = None
    tensor_cycles: Annotated[_Cycles, _text("tensor pipe busy")] = None
    lsu_cycles: Annotated[_Cycles, _text("load/store unit busy")] = None
    l1_cycles: Annotated[_Cycles, _text("L1 and shared-memory data path busy")] = None
    warp_instructions: Annotated[
        float | None, _about("warp instructions/block", "executed instructions", ge=0, le=MAX_CYCLES)
    ] = None
    l1_read_bytes: Annotated[_Traffic, _text("read into L1 from L2")] = None
    l1_write_bytes: Annotated[_Traffic, _text("written from L1 to L2")] = None
    l2_bytes: Annotated[_Traffic, _text("all traffic at L2")] = None
    l2_read_bytes: Annotated[_Traffic, _text("the part of it that is reads")] = None
    l2_write_bytes: Annotated[
        _Traffic, _text("the part of it that is plain writes; what is left are atomics and reductions")
    ] = None
    dram_read_bytes: Annotated[_Traffic, _text("read from DRAM")] = None
    dram_write_bytes: Annotated[_Traffic, _text("written to DRAM")] = None
    l2_busy_us: Annotated[
        float | None,
        _about("us/block", "time that the whole L2 would be fully busy with it alone", ge=0, le=MAX_DURATION_US),
    ] = None
    l1_hit_percent: Annotated[_Percent, _text("sectors found in L1")] = None
    l2_hit_percent: Annotated[_Percent, _text("sectors found in L2")] = None
    achieved_warps_per_sm: Annotated[
        float | None, _about("warps/SM", "mean resident warps of an SM while it was active", ge=0, le=1024)
    ] = None
    active_cycles_min: Annotated[_ActiveCycles, _text("active cycles of the SM that had fewest")] = None
    active_cycles_avg: Annotated[_ActiveCycles, _text("active cycles, mean over the SMs")] = None
    active_cycles_max: Annotated[_ActiveCycles, _text("active cycles of the SM that had most")] = None
    shared_memory_config_bytes: Annotated[
        int | None, _about("bytes/SM", "shared memory the driver configured (the carve-out)", ge=0, le=2**24)
    ] = None
    stalls: Annotated[WarpStalls | None, _text("why warps waited")] = None
    alu_utilisation_percent: Annotated[
        _Percent, _text("arithmetic units busy while alone on the GPU (a paper's table)")
    ] = None
    memory_stall_percent: Annotated[
        _Percent, _text("stalls that wait for memory while alone on the GPU (a paper's table)")
    ] = None


_Extent = Annotated[int, Field(ge=1, le=65535)]


class KernelLaunch(_Recurring):
    """One launch of one kernel, as recorded alone on the trace's device."""

    name: Annotated[str, _text("kernel name as the profiler gives it", min_length=1, max_length=10_000)]
    grid: Annotated[
        tuple[Annotated[int, Field(ge=1, le=2**31 - 1)], _Extent, _Extent],
        _about("thread blocks", f"grid dimensions x, y, z; at most {MAX_BLOCKS_PER_US} blocks a us of the duration"),
    ]
    block: Annotated[
        tuple[
            Annotated[int, Field(ge=1, le=1024)],
            Annotated[int, Field(ge=1, le=1024)],
            Annotated[int, Field(ge=1, le=64)],
        ],
        _about("threads", "block dimensions x, y, z; at most 1024 threads together"),
    ]
    registers_per_thread: Annotated[
        int, _about("registers/thread", "32-bit registers; 0 (unknown) limits nothing", ge=0, le=255)
    ]
    static_shared_memory_bytes: Annotated[
        int, _about("bytes/block", "shared memory known to the compiler", ge=0, le=2**20)
    ] = 0
    dynamic_shared_memory_bytes: Annotated[
        int, _about("bytes/block", "shared memory asked for at launch", ge=0, le=2**20)
    ] = 0
    duration_us: Annotated[
        float, _about("us", "recorded duration, alone on the device", ge=LEAST_DURATION_US, le=MAX_DURATION_US)
    ]
    stream: Annotated[
        str,
        _text(
            "main, or internal0, internal1, …: a stream that the library opens inside its operation",
            pattern=_STREAM_PATTERN,
        ),
    ] = "main"
    mix: Annotated[Mix | None, _text("what a block asks for; absent if the source cannot know")] = None

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

    @property
    def shared_memory_per_block_bytes(self) -> int:
        """Shared memory one block asks for, static and dynamic, in bytes."""
        return self.static_shared_memory_bytes + self.dynamic_shared_memory_bytes

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        return _require_printable(name)

    @field_validator("grid")
    @classmethod
    def _grid(cls, grid: tuple[int, int, int]) -> tuple[int, int, int]:
        blocks = grid[0] * grid[1] * grid[2]
        if blocks > MAX_BLOCKS:
            raise _fault(f"has {blocks} thread blocks", f"at most {MAX_BLOCKS}")
        return grid

    @field_validator("duration_us")
    @classmethod
    def _blocks_can_start(cls, duration_us: float, info: ValidationInfo) -> float:
        x, y, z = info.data.get("grid", (1, 1, 1))
        if x * y * z > MAX_BLOCKS_PER_US * max(1.0, duration_us):
            problem = f"is {duration_us:g} for {x * y * z} thread blocks"
            raise _fault(problem, f"at most {MAX_BLOCKS_PER_US} blocks in each us")
        return duration_us

    @field_validator("block")
    @classmethod
    def _block(cls, block: tuple[int, int, int]) -> tuple[int, int, int]:
        threads = block[0] * block[1] * block[2]
        if threads > 1024:
            raise _fault(f"has {threads} threads", "at most 1024")
        return block


def launch_waits(kernels: Sequence[KernelLaunch]) -> tuple[tuple[int, ...], ...]:
    """For each kernel of one operation, the indices of the earlier kernels of that operation it waits for.

    A recording knows each kernel's stream and the order of launch, not the events between streams, so this
    is a rule [D]: a kernel on `main` waits for the kernel before it on `main` and for every internal kernel
    launched before it (a join); a kernel on `internalN` waits for the last `main` kernel launched before it
    (the fork) and for the kernel before it on its own stream. Kernels on different internal streams do not
    wait for one another. The operation ends when all its kernels have ended.

    Args:
        kernels: the kernels of one operation in launch order.

    Returns:
        One ascending tuple of indices per kernel; waits that follow from others are left out.
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


class _Operation(_Strict):
    """What all operations have in common."""

    id: Annotated[str, _text("unique in the trace", pattern=_ID_PATTERN, max_length=200)]
    kind: Annotated[Literal["kernel", "convolution", "copy", "host"], _text("kind of operation")]
    depends_on: Annotated[
        tuple[str, ...],
        FailFast(),
        _text("ids of operations that must end before this one starts, beside its stream's order"),
    ] = ()

    def launches(self) -> tuple[KernelLaunch, ...]:
        """The kernels this operation launches, in launch order; see `launch_waits` for their order."""
        raise NotImplementedError(f"a {self.kind} does not say what it launches")


class Kernel(_Operation):
    """An operation that is one kernel launch."""

    kind: Annotated[Literal["kernel"], _text("kind of operation")]
    kernel: Annotated[KernelLaunch, _text("the launch; its stream must be main")]

    def launches(self) -> tuple[KernelLaunch, ...]:
        """The one kernel."""
        return (self.kernel,)

    @field_validator("kernel")
    @classmethod
    def _on_main(cls, kernel: KernelLaunch) -> KernelLaunch:
        if kernel.stream != "main":
            raise _fault(f"is on stream {kernel.stream!r}", "stream main")
        return kernel


class Copy(_Operation):
    """A memory copy."""

    kind: Annotated[Literal["copy"], _text("kind of operation")]
    direction: Annotated[Literal["h2d", "d2h", "d2d", "p2p"], _text("host to device, back, …")]
    bytes: Annotated[int, _about("bytes", "bytes copied", ge=0, le=MAX_TRAFFIC_BYTES)]
    duration_us: Annotated[float, _about("us", "recorded duration, alone", ge=0, le=MAX_DURATION_US)]

    def launches(self) -> tuple[KernelLaunch, ...]:
        """None."""
        return ()


class Host(_Operation):
    """Work of the host that the stream waits for."""

    kind: Annotated[Literal["host"], _text("kind of operation")]
    what: Annotated[Literal["allocation", "free", "other"], _text("kind of host work")]
    duration_us: Annotated[float, _about("us", "recorded duration", ge=0, le=MAX_DURATION_US)]

    def launches(self) -> tuple[KernelLaunch, ...]:
        """None."""
        return ()


class ConvolutionShape(_Recurring):
    """The shape of a 2-D convolution, NCHW, one group, no dilation, the same stride both ways."""

    batch: Annotated[int, _about("images", "batch size", ge=1, le=10**6)]
    in_channels: Annotated[int, _about("channels", "input channels", ge=1, le=10**6)]
    in_height: Annotated[int, _about("pixels", "input height", ge=1, le=10**6)]
    in_width: Annotated[int, _about("pixels", "input width", ge=1, le=10**6)]
    out_channels: Annotated[int, _about("channels", "output channels (filters)", ge=1, le=10**6)]
    filter_height: Annotated[int, _about("pixels", "filter height", ge=1, le=10**4)]
    filter_width: Annotated[int, _about("pixels", "filter width", ge=1, le=10**4)]
    padding: Annotated[int, _about("pixels", "zero padding on each side", ge=0, le=10**4)]
    padding_width: Annotated[
        int | None,
        _about("pixels", "zero padding left and right, where it is another than above and below", ge=0, le=10**4),
    ] = None
    stride: Annotated[int, _about("pixels", "step of the filter", ge=1, le=10**4)]

    @property
    def out_height(self) -> int:
        """Output height in pixels."""
        return (self.in_height + 2 * self.padding - self.filter_height) // self.stride + 1

    @property
    def out_width(self) -> int:
        """Output width in pixels."""
        padding = self.padding if self.padding_width is None else self.padding_width
        return (self.in_width + 2 * padding - self.filter_width) // self.stride + 1

    @property
    def flop(self) -> int:
        """Operations of the direct form, 2 per multiply-add; the same in all three directions."""
        filter_taps = self.in_channels * self.filter_height * self.filter_width
        return 2 * self.batch * self.out_channels * self.out_height * self.out_width * filter_taps

    @model_validator(mode="after")
    def _filter_fits(self) -> ConvolutionShape:
        if self.out_height < 1 or self.out_width < 1:
            raise _fault("the filter is larger than the padded input", "a filter that fits")
        return self


class ConvolutionAlgorithm(_Recurring):
    """One way to compute a convolution: its workspace and its kernels."""

    algorithm: Annotated[
        str,
        _text("name, such as IMPLICIT_PRECOMP_GEMM/TF32", pattern=_ID_PATTERN, max_length=200),
    ]
    workspace_bytes: Annotated[
        int | None, _about("bytes", "device memory beside the tensors; absent if unknown", ge=0, le=MAX_TRAFFIC_BYTES)
    ] = None
    kernels: Annotated[
        tuple[KernelLaunch, ...],
        FailFast(),
        _text("its kernels in launch order", json_schema_extra={"minItems": 1}),
    ]

    @field_validator("kernels")
    @classmethod
    def _some(cls, kernels: tuple[KernelLaunch, ...]) -> tuple[KernelLaunch, ...]:
        if not kernels:
            raise _fault("is empty", "at least one kernel")
        return kernels


class Convolution(_Operation):
    """A convolution: one library call, replayed with the algorithm selected."""

    kind: Annotated[Literal["convolution"], _text("kind of operation")]
    shape: Annotated[ConvolutionShape, _text("shape of the tensors")]
    direction: Annotated[Literal["fwd", "bwd_data", "bwd_filter"], _text("forward, or gradient of input or filter")]
    selected: Annotated[ConvolutionAlgorithm, _text("the algorithm that replay runs")]
    alternatives: Annotated[
        tuple[ConvolutionAlgorithm, ...],
        FailFast(),
        _text("other algorithms for the same shape and direction", max_length=MAX_ALTERNATIVES),
    ] = ()

    @property
    def algorithm(self) -> str:
        """Name of the selected algorithm."""
        return self.selected.algorithm

    def launches(self) -> tuple[KernelLaunch, ...]:
        """The kernels of the selected algorithm."""
        return self.selected.kernels

    @model_validator(mode="after")
    def _algorithms_differ(self) -> Convolution:
        seen = {self.selected.algorithm}
        for other in self.alternatives:
            if other.algorithm in seen:
                raise _fault(f"algorithm {other.algorithm!r} given twice", "each algorithm once")
            seen.add(other.algorithm)
        return self


Operation = Annotated[Kernel | Convolution | Copy | Host, Field(discriminator="kind")]


class TimesArrivals(_Strict):
    """Requests at given times."""

    kind: Annotated[Literal["times"], _text("kind of arrivals")]
    times_us: Annotated[
        tuple[Annotated[float, Field(ge=0, le=MAX_DURATION_US)], ...],
        FailFast(),
        _about("us", "arrival times, ascending"),
    ]

    @property
    def requests(self) -> int:
        """How many requests arrive."""
        return len(self.times_us)

    @field_validator("times_us")
    @classmethod
    def _ascending(cls, times: tuple[float, ...]) -> tuple[float, ...]:
        if not 1 <= len(times) <= MAX_REQUESTS:
            raise _fault(f"has {len(times)} requests", f"1 to {MAX_REQUESTS}")
        for before, after in pairwise(times):
            if after < before:
                raise _fault(f"has {after} after {before}", "times that ascend")
        return times


class PoissonArrivals(_Strict):
    """Requests with exponential gaps; the seed makes them repeat."""

    kind: Annotated[Literal["poisson"], _text("kind of arrivals")]
    rate_per_s: Annotated[float, _about("1/s", "mean rate", ge=LEAST_RATE_PER_S, le=1e9)]
    count: Annotated[int, _about("requests", "number of requests", ge=1, le=MAX_REQUESTS)]
    seed: Annotated[int, _text("seed of the random gaps", ge=0, le=2**63 - 1)]

    @property
    def requests(self) -> int:
        """How many requests arrive."""
        return self.count


class LoopArrivals(_Strict):
    """Requests back to back: the next arrives when the one before has ended."""

    kind: Annotated[Literal["loop"], _text("kind of arrivals")]
    count: Annotated[int, _about("requests", "number of requests", ge=1, le=MAX_REQUESTS)]

    @property
    def requests(self) -> int:
        """How many requests arrive."""
        return self.count


Arrivals = Annotated[TimesArrivals | PoissonArrivals | LoopArrivals, Field(discriminator="kind")]


class Stream(_Strict):
    """Operations that run one after the other.

    With `arrivals`, one request is the whole list of operations, run once per arrival and first come, first
    served; such a stream depends on no other and no other on it [D].
    """

    name: Annotated[str, _text("unique in the trace", pattern=_NAME_PATTERN, max_length=200)]
    priority: Annotated[int, _text("0 is the lowest", ge=0, le=1000)] = 0
    operations: Annotated[tuple[Operation, ...], FailFast(), _text("operations in launch order")]
    arrivals: Annotated[Arrivals | None, _text("when requests arrive; absent: once, at time 0")] = None


class Trace(_Strict):
    """A recorded trace, format version 1."""

    version: Annotated[Literal[1], _text("version of this format")]
    name: Annotated[str, _text("name of the trace", min_length=1, max_length=200)]
    device: Annotated[str, _text("GPU it was recorded on, a name of `gpusim gpus`", min_length=1, max_length=200)]
    notes: Annotated[str, _text("where it came from, what was assumed or left out", max_length=10**5)] = ""
    streams: Annotated[
        tuple[Stream, ...],
        FailFast(),
        _text("the streams, the first launched first", max_length=MAX_STREAMS, json_schema_extra={"minItems": 1}),
    ]

    def operations(self) -> Iterator[Kernel | Convolution | Copy | Host]:
        """All operations, stream by stream, in launch order."""
        for stream in self.streams:
            yield from stream.operations

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace; the same trace gives the same bytes.

        Args:
            path: ends in `.gz`: compact JSON, gzip; else: JSON laid out to be read.

        Raises:
            InputError: the file cannot be written.
        """
        content = self.model_dump(mode="json", exclude_none=True)
        if os.fspath(path).endswith(".gz"):
            text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False) + "\n"
            data = _gzip(text.encode())
        else:
            data = (_layout(content) + "\n").encode()
        with atomic_write(Path(path), "wb") as file:
            file.write(data)

    @field_validator("name", "device")
    @classmethod
    def _one_line(cls, text: str) -> str:
        return _require_printable(text)

    @field_validator("notes")
    @classmethod
    def _readable(cls, text: str) -> str:
        return _require_printable(text, allowed="\n\t")

    @model_validator(mode="after")
    def _sound(self) -> Trace:
        _check_names(self)
        _check_launches(self)
        _check_dependencies(self)
        return self


def trace_schema() -> dict[str, Any]:
    """The JSON Schema of the trace format, with a unit and a description on every field."""
    return Trace.model_json_schema()


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace.

    Args:
        path: a `.json` or `.json.gz` file; gzip is also recognised by its first bytes.

    Raises:
        InputError: one line with the file, the place in it, what is wrong and what was expected.
    """
    return parse_trace(read_bytes(Path(path)), path)


def parse_trace(data: bytes, path: str | os.PathLike[str] | None = None) -> Trace:
    """Read a trace from the bytes of a file, plain or gzip; `path` names the file in errors.

    Raises:
        InputError: as `load_trace`.
    """
    source = None if path is None else Path(path)
    text = _text_of(data, source)
    _check_json(text, source)
    try:
        return Trace.model_validate_json(text, context={})
    except ValidationError as error:
        raise trace_error(error, source) from None


def trace_error(error: ValidationError, path: str | os.PathLike[str] | None = None) -> InputError:
    """The first fault that pydantic found in a trace as a one-line InputError."""
    first = error.errors(include_url=False)[0]
    place, owner = _place(first["loc"])
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, InputError):
        place = ".".join(part for part in (place, raised.place) if part)
        problem, expected = raised.problem, raised.expected
    else:
        problem, expected = _explain(first, owner)
        if first["type"].startswith("union_tag"):
            place += ".kind"
    return InputError(None if path is None else Path(path), place, problem, expected)


# ---- whole-trace checks


def _check_names(trace: Trace) -> None:
    """Refuse a trace without operations, and streams or operations that share a name."""
    streams: dict[str, int] = {}
    ids: dict[str, str] = {}
    for s, stream in enumerate(trace.streams):
        if stream.name in streams:
            raise _fault(
                f"{stream.name!r} is also the name of streams[{streams[stream.name]}]",
                "unique stream names",
                f"streams[{s}].name",
            )
        streams[stream.name] = s
        for o, operation in enumerate(stream.operations):
            place = f"streams[{s}].operations[{o}]"
            if operation.id in ids:
                problem = f"{operation.id!r} is also the id of {ids[operation.id]}"
                raise _fault(problem, "unique ids", f"{place}.id")
            ids[operation.id] = place
    if not ids:
        raise _fault("has 0 operations", "at least one operation", "streams")


def _check_launches(trace: Trace) -> None:
    """Refuse more kernel launches than a replay can keep."""
    launches = sum(
        (1 if stream.arrivals is None else stream.arrivals.requests)
        * sum(len(operation.launches()) for operation in stream.operations)
        for stream in trace.streams
    )
    if launches > MAX_LAUNCHES:
        raise _fault(f"launch {launches} kernels, all requests counted", f"at most {MAX_LAUNCHES}", "streams")


class _Node(NamedTuple):
    id: str
    place: str
    before: tuple[int, ...]  # nodes that must end first: depends_on, and the one before in the stream


def _check_dependencies(trace: Trace) -> None:
    """Refuse dependencies that are unknown, given twice, cyclic, or between requests."""
    flat = [
        (s, f"streams[{s}].operations[{o}]", operation)
        for s, stream in enumerate(trace.streams)
        for o, operation in enumerate(stream.operations)
    ]
    number = {operation.id: n for n, (_, _, operation) in enumerate(flat)}
    nodes: list[_Node] = []
    for n, (s, place, operation) in enumerate(flat):
        before: dict[int, None] = {}  # in order, each once
        for d, other in enumerate(operation.depends_on):
            where = f"{place}.depends_on[{d}]"
            if other not in number:
                raise _fault(f"unknown operation {_show(other)}", "the id of an operation here", where)
            if number[other] in before:
                raise _fault(f"{other!r} given twice", "each dependency once", where)
            if flat[number[other]][0] != s:
                _check_request(trace, s, flat[number[other]][0], where)
            before[number[other]] = None
        if n and flat[n - 1][0] == s:
            before[n - 1] = None
        nodes.append(_Node(operation.id, place, tuple(before)))
    _check_acyclic(nodes)


def _check_request(trace: Trace, stream: int, other: int, where: str) -> None:
    for s in (stream, other):
        if trace.streams[s].arrivals is not None:
            raise _fault(
                f"crosses streams, and stream {trace.streams[s].name!r} has arrivals",
                "streams with arrivals to be independent",
                where,
            )


def _check_acyclic(nodes: Sequence[_Node]) -> None:
    """Kahn's algorithm; what is left over holds a cycle, which the message names."""
    waiting = [len(node.before) for node in nodes]
    after: list[list[int]] = [[] for _ in nodes]
    for n, node in enumerate(nodes):
        for b in node.before:
            after[b].append(n)
    ready = [n for n, count in enumerate(waiting) if count == 0]
    while ready:
        for n in after[ready.pop()]:
            waiting[n] -= 1
            if waiting[n] == 0:
                ready.append(n)
    left = next((n for n, count in enumerate(waiting) if count), None)
    if left is None:
        return
    cycle = _cycle(nodes, waiting, left)
    names = [nodes[n].id for n in cycle]
    shown = names if len(names) <= 6 else [*names[:5], "…"]
    raise _fault(
        "dependency cycle: " + " waits for ".join([*shown, names[0]]),
        "dependencies without a cycle (a stream's order counts)",
        f"{nodes[cycle[0]].place}.depends_on",
    )


def _cycle(nodes: Sequence[_Node], waiting: Sequence[int], start: int) -> list[int]:
    """One cycle among the nodes still waiting, first an operation that waits across the stream order."""
    path: list[int] = []
    position: dict[int, int] = {}
    n = start
    while n not in position:
        position[n] = len(path)
        path.append(n)
        n = next(b for b in nodes[n].before if waiting[b])
    cycle = path[position[n] :]
    backwards = next(i for i, m in enumerate(cycle) if cycle[(i + 1) % len(cycle)] != m - 1)
    return cycle[backwards:] + cycle[:backwards]


# ---- reading a file


def _text_of(data: bytes, source: Path | None) -> str:
    """The JSON text of a file's bytes."""
    if data[:2] == b"\x1f\x8b" or (source is not None and source.suffix == ".gz"):
        data = decompressed(data, source)
    if len(data) > MAX_BYTES:
        raise InputError(source, "", "is too large", f"at most {MAX_BYTES:,} bytes of JSON")
    if not data.strip():
        raise InputError(source, "", "is empty", "a trace in JSON")
    if data.count(b"{") + data.count(b"[") > FREE_GROUPS + len(data) // LEAST_BYTES_PER_GROUP:
        problem = f"has more than one object or list in {LEAST_BYTES_PER_GROUP} bytes"
        raise InputError(source, "", problem, "a trace in JSON")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        problem = f"byte {error.start} is not UTF-8 text"
        raise InputError(source, "", problem, "a trace in JSON, UTF-8 or gzip of it") from None


def _check_json(text: str, source: Path | None) -> None:
    """Refuse what is not JSON, duplicate keys (JSON readers drop one silently) and another version.

    Nothing of the content is kept but the outermost object: a long trace is a hundred times as large when read.
    """
    outermost: dict[str, Any] = {}
    repeated = False

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal outermost, repeated
        outermost = dict(pairs)
        repeated |= len(outermost) != len(pairs)
        return _AN_OBJECT

    content = _parsed(text, source, unique)
    if repeated:
        _refuse_repeated(text, source)
    if content is not _AN_OBJECT:
        raise InputError(source, "", f"is {_show(content)}", "an object with version, name, device, …")
    if "version" not in outermost:
        raise InputError(source, "version", "missing", f"{FORMAT_VERSION}, the version of the trace format")
    version = outermost["version"]
    if type(version) is not int or version != FORMAT_VERSION:
        expected = f"{FORMAT_VERSION}, the only trace format this gpusim reads"
        raise InputError(source, "version", f"is {_show(version)}", expected)


_AN_OBJECT: dict[str, Any] = {}  # stands for every object that is not kept


def _parsed(text: str, source: Path | None, hook: Callable[[list[tuple[str, Any]]], Any]) -> Any:
    try:
        return json.loads(text, object_pairs_hook=hook)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno} column {error.colno}"
        raise InputError(source, place, f"is not JSON ({error.msg})", "a trace in JSON") from None
    except RecursionError:
        raise InputError(source, "", "is nested too deeply", "a trace in JSON") from None
    except ValueError:
        raise InputError(source, "", "has a number with too many digits", "a trace in JSON") from None


def _refuse_repeated(text: str, source: Path | None) -> NoReturn:
    """Name the first object to end that has a key twice, and where it is."""
    repeated: list[tuple[dict[str, Any], str]] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(pairs) > MAX_KEYS:
            raise InputError(source, "", f"has an object of {len(pairs)} keys", f"at most {MAX_KEYS}")
        found = dict(pairs)
        if len(found) != len(pairs) and not repeated:
            key, _ = Counter(key for key, _ in pairs).most_common(1)[0]
            repeated.append((found, key))
        return found

    content = _parsed(text, source, unique)
    owner, key = repeated[0]
    raise InputError(source, _find(content, owner), f"key {_show(key)} given twice", "each key once")


def _find(content: Any, wanted: Any) -> str:
    """The path of the object `wanted` inside JSON content, such as `streams[0].operations[3]`."""
    stack: list[tuple[Any, str]] = [(content, "")]
    while stack:
        value, place = stack.pop()
        if value is wanted:
            return place
        if isinstance(value, dict):
            stack.extend((child, _join(place, key)) for key, child in value.items())
        elif isinstance(value, list):
            stack.extend((child, f"{place}[{n}]") for n, child in enumerate(value))
    return ""


# ---- wording of errors

_TAGGED: dict[str, type[_Strict]] = {
    "kernel": Kernel,
    "convolution": Convolution,
    "copy": Copy,
    "host": Host,
    "times": TimesArrivals,
    "poisson": PoissonArrivals,
    "loop": LoopArrivals,
}
_NESTED: dict[str, type[_Strict]] = {
    "streams": Stream,
    "kernel": KernelLaunch,
    "kernels": KernelLaunch,
    "mix": Mix,
    "stalls": WarpStalls,
    "shape": ConvolutionShape,
    "selected": ConvolutionAlgorithm,
    "alternatives": ConvolutionAlgorithm,
}
_LIMITS = {
    "greater_than": "a number > {gt:.12g}",
    "greater_than_equal": "a number >= {ge:.12g}",
    "less_than": "a number < {lt:.12g}",
    "less_than_equal": "a number <= {le:.12g}",
    "too_long": "at most {max_length} of them",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "string_type": "text",
    "tuple_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "literal_error": "{expected}",
}
_KINDS = {"operations": "kernel, convolution, copy, host", "arrivals": "times, poisson, loop"}
_PATTERNS = {
    _STREAM_PATTERN: "main, internal0, internal1, …",
    _ID_PATTERN: "letters, digits, _ . / - :",
    _NAME_PATTERN: "letters, digits, _ . / -",
}


def _place(loc: tuple[int | str, ...]) -> tuple[str, type[_Strict]]:
    """Pydantic's location as `streams[0].operations[3].kernel.grid`, and the model that has its last name.

    Pydantic puts the tag of a union (kernel, copy, poisson, …) into the location; the file has no such level.
    """
    place = ""
    owner: type[_Strict] = Trace
    model: type[_Strict] = Trace
    for n, part in enumerate(loc):
        if isinstance(part, int):
            place += f"[{part}]"
        elif _is_tag(loc, n):
            model = _TAGGED.get(part, model)
        else:
            place, owner = _join(place, part), model
            model = _NESTED.get(part, model)
    return place, owner


def _is_tag(loc: tuple[int | str, ...], n: int) -> bool:
    in_operation = n > 1 and loc[n - 2] == "operations" and isinstance(loc[n - 1], int)
    return in_operation or (n > 0 and loc[n - 1] == "arrivals")


def _explain(error: ErrorDetails, owner: type[_Strict]) -> tuple[str, str]:
    """What was wrong and what was expected, in the words of an InputError."""
    kind, context = error["type"], error.get("ctx", {})
    names = [part for part in error["loc"] if isinstance(part, str)]
    field = owner.model_fields.get(names[-1]) if names else None
    extra = field.json_schema_extra if field is not None else None
    suffix = f" ({extra['unit']})" if isinstance(extra, dict) and "unit" in extra else ""
    if kind == "missing":
        if field is None or isinstance(error["loc"][-1], int):
            return "missing", "a value here"
        return "missing", f"{field.description}{suffix}"
    if kind == "extra_forbidden":
        return "is an unknown field", "one of " + ", ".join(owner.model_fields)
    if kind == "union_tag_not_found":
        return "missing", "one of " + _KINDS[names[-1]]
    if kind == "union_tag_invalid":
        return f"is {_show(context['tag'])}", "one of " + str(context["expected_tags"]).replace("'", "")
    if kind == "json_invalid":
        return f"is not JSON ({context['error']})", "a trace in JSON"
    problem = f"is {_show(error['input'])}"
    if kind == "string_pattern_mismatch":
        return problem, _PATTERNS.get(str(context["pattern"]), f"text like {context['pattern']}")
    if kind in _LIMITS:
        return problem, _LIMITS[kind].format(**context) + suffix
    return problem, error["msg"].replace("\n", " ") + suffix


def _join(place: str, key: str) -> str:
    plain = key.isidentifier() and len(key) <= 60
    return f"{place}.{key}".lstrip(".") if plain else f"{place}[{_show(key)}]"


def _show(value: Any) -> str:
    """A value on one short line: lists and objects by size, the rest as JSON writes it."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return quote(value)


# ---- writing a file


def _gzip(data: bytes) -> bytes:
    """Gzip with no file name and no time in it, so that the same data gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as file:
        file.write(data)
    return buffer.getvalue()


_line = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def _layout(value: Any, indent: str = "", width: int = 110) -> str:
    """JSON that a person can read: what fits on a line stays on one, the rest is broken and indented."""
    line = _line(value)
    if len(indent) + len(line) <= width or not isinstance(value, dict | list) or not value:
        return line
    inner = indent + "  "
    if isinstance(value, dict):
        items = [f"{_line(key)}: {_layout(item, inner, width)}" for key, item in value.items()]
        opening, closing = "{", "}"
    else:
        items = [_layout(item, inner, width) for item in value]
        opening, closing = "[", "]"
    body = f",\n{inner}".join(items)
    return f"{opening}\n{inner}{body}\n{indent}{closing}"
