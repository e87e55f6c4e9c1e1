"""Operations of a stream: kernels, convolutions, copies, host work, communication; and arrivals of requests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, cast

from pydantic import (
    FailFast,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from gpusim.hardware.gpu import GPU
from gpusim.hardware.host_costs import HostService
from gpusim.trace.fields import (
    ID_PATTERN,
    LEAST_RATE_PER_S,
    MAX_ALGORITHM_NAME,
    MAX_ALTERNATIVES,
    MAX_DURATION_US,
    MAX_GPUS,
    MAX_MICRO_BATCHES,
    MAX_PART_NAME,
    MAX_PARTS,
    MAX_REQUESTS,
    MAX_STREAMS,
    MAX_TRAFFIC_BYTES,
    NAME_PATTERN,
    Duration,
    Passing,
    Recurring,
    Strict,
    described,
    fault,
    measured,
)
from gpusim.trace.kernels import KernelLaunch


@dataclass(frozen=True, slots=True)
class Occupied:
    """Time that an operation takes, on a resource that serves one operation at a time or on none."""

    duration_us: float  # how long
    resource: str = ""  # name of what of its GPU it occupies alone, such as `copy engine h2d`; empty: nothing
    meeting: str = ""  # it begins when all of this name can begin; empty: as soon as it can


class Operation(Strict):
    """Base class of operations. A new kind is a subclass in this file; no other file knows the kinds."""

    id: Annotated[str, described("unique in the trace", pattern=ID_PATTERN, max_length=200)]
    kind: Annotated[str, described("kind of operation")]
    depends_on: Annotated[
        tuple[str, ...],
        FailFast(),
        described("ids of operations that must end before this one starts, beside its stream's order"),
    ] = ()
    host_waits: Annotated[
        bool | None,
        described("the host waits for depends_on before it queues this operation; null: its stream waits, on the GPU"),
    ] = None

    def launches(self) -> tuple[KernelLaunch, ...]:
        """Return the kernels in launch order, or none; `launch_waits` has their dependencies."""
        return ()

    def occupies(self, gpu: GPU) -> Occupied:
        """Return the resource and time of an operation without kernels.

        Raises:
            InputError: it has no duration, and the file of the GPU has none for such an operation.
        """
        raise NotImplementedError(f"operations of kind {self.kind} launch kernels")

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a kind without both `launches` and `occupies`."""
        super().__init_subclass__(**options)
        if cls.launches is Operation.launches and cls.occupies is Operation.occupies:
            raise TypeError(f"{cls.__name__} has neither launches() nor occupies()")


class Kernel(Operation):
    """An operation that is one kernel launch."""

    kind: Annotated[Literal["kernel"], described("kind of operation")] = "kernel"
    kernel: Annotated[KernelLaunch, described("the launch; its stream must be main")]

    def launches(self) -> tuple[KernelLaunch, ...]:
        """The one kernel."""
        return (self.kernel,)

    @field_validator("kernel")
    @classmethod
    def _on_main(cls, kernel: KernelLaunch) -> KernelLaunch:
        if kernel.stream != "main":
            raise fault(f"is on stream {kernel.stream!r}", "stream main")
        return kernel


class ConvolutionShape(Recurring):
    """The shape of a 2-D convolution in NCHW layout: one group, no dilation, equal strides in height and width."""

    batch: Annotated[int, measured("images", "batch size", ge=1, le=10**6)]
    in_channels: Annotated[int, measured("channels", "input channels", ge=1, le=10**6)]
    in_height: Annotated[int, measured("pixels", "input height", ge=1, le=10**6)]
    in_width: Annotated[int, measured("pixels", "input width", ge=1, le=10**6)]
    out_channels: Annotated[int, measured("channels", "output channels (filters)", ge=1, le=10**6)]
    filter_height: Annotated[int, measured("pixels", "filter height", ge=1, le=10**4)]
    filter_width: Annotated[int, measured("pixels", "filter width", ge=1, le=10**4)]
    padding: Annotated[int, measured("pixels", "zero padding on each side", ge=0, le=10**4)]
    padding_width: Annotated[
        int | None,
        measured("pixels", "zero padding left and right, where it is another than above and below", ge=0, le=10**4),
    ] = None
    stride: Annotated[int, measured("pixels", "step of the filter", ge=1, le=10**4)]

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
            raise fault("the filter is larger than the padded input", "a filter that fits")
        return self


class ConvolutionAlgorithm(Recurring):
    """One way to compute a convolution: its workspace and its kernels."""

    algorithm: Annotated[
        str,
        described("name, such as IMPLICIT_PRECOMP_GEMM/TF32", pattern=ID_PATTERN, max_length=MAX_ALGORITHM_NAME),
    ]
    workspace_bytes: Annotated[
        int | None, measured("bytes", "device memory beside the tensors; absent if unknown", ge=0, le=MAX_TRAFFIC_BYTES)
    ] = None
    touched_bytes: Annotated[
        int | None,
        measured("bytes", "device memory it reads or writes, each byte once: tensors and workspace", ge=0,
                 le=MAX_TRAFFIC_BYTES),
    ] = None  # fmt: skip
    warm_us: Annotated[
        Duration,
        described("duration where it repeats itself, as its kernels were recorded; absent if recorded otherwise"),
    ] = None
    cold_us: Annotated[
        Duration, described("duration, measured in the same way, where L2 holds nothing that it reads")
    ] = None
    kernels: Annotated[
        tuple[KernelLaunch, ...],
        FailFast(),
        described("its kernels in launch order", json_schema_extra={"minItems": 1}),
    ]

    @field_validator("kernels")
    @classmethod
    def _some(cls, kernels: tuple[KernelLaunch, ...]) -> tuple[KernelLaunch, ...]:
        if not kernels:
            raise fault("is empty", "at least one kernel")
        return kernels


class MicroBatch(Strict):
    """A convolution on fewer images than its batch, with the recorded algorithms for that size."""

    batch: Annotated[int, measured("images", "images of one call", ge=1, le=10**6)]
    algorithms: Annotated[
        tuple[ConvolutionAlgorithm, ...],
        FailFast(),
        described("algorithms of known workspace for so many images", min_length=1, max_length=MAX_ALTERNATIVES),
    ]

    @field_validator("algorithms")
    @classmethod
    def _follow_one_another(cls, algorithms: tuple[ConvolutionAlgorithm, ...]) -> tuple[ConvolutionAlgorithm, ...]:
        _require_different(algorithms)
        for one in algorithms:
            if len(one.algorithm) > MAX_PART_NAME:
                raise fault(f"a name has {len(one.algorithm)} characters", f"at most {MAX_PART_NAME}")
            if one.workspace_bytes is None:
                raise fault(f"{one.algorithm!r} has no workspace_bytes", "what the calls on a batch's parts all reuse")
            if one.kernels[0].stream != "main":
                problem = f"{one.algorithm!r} begins on stream {one.kernels[0].stream!r}"
                raise fault(problem, "stream main, on which it waits for the call before it")
        return algorithms


class Convolution(Operation):
    """A convolution: one library call, replayed with the algorithm selected."""

    kind: Annotated[Literal["convolution"], described("kind of operation")] = "convolution"
    shape: Annotated[ConvolutionShape, described("shape of the tensors")]
    direction: Annotated[Literal["fwd", "bwd_data", "bwd_filter"], described("forward, or gradient of input or filter")]
    selected: Annotated[ConvolutionAlgorithm, described("the algorithm that replay runs")]
    alternatives: Annotated[
        tuple[ConvolutionAlgorithm, ...],
        FailFast(),
        described("other algorithms for the same shape and direction", max_length=MAX_ALTERNATIVES),
    ] = ()
    micro_batches: Annotated[
        tuple[MicroBatch, ...] | None,
        described(
            "the same convolution on fewer images, with which `gpusim select` may do its batch in parts",
            min_length=1,
            max_length=MAX_MICRO_BATCHES,
        ),
    ] = None

    @property
    def algorithm(self) -> str:
        """Name of the selected algorithm."""
        return self.selected.algorithm

    def launches(self) -> tuple[KernelLaunch, ...]:
        """The kernels of the selected algorithm."""
        return self.selected.kernels

    @field_validator("micro_batches")
    @classmethod
    def _make_the_batch(
        cls, micro_batches: tuple[MicroBatch, ...] | None, info: ValidationInfo
    ) -> tuple[MicroBatch, ...] | None:
        sizes, shape = [one.batch for one in micro_batches or ()], info.data.get("shape")
        if not sizes or shape is None:
            return micro_batches
        named = " and ".join(map(str, sizes))
        for size in sizes:
            if sizes.count(size) > 1:
                raise fault(f"{size} images given twice", "each size once")
            if size >= shape.batch:
                raise fault(f"has {size} images for a batch of {shape.batch}", "fewer than the batch")
        step = gcd(shape.batch, *sizes)
        if shape.batch // step > MAX_PARTS:
            problem = f"{named} images divide a batch of {shape.batch} into as many as {shape.batch // step} parts"
            raise fault(problem, f"at most {MAX_PARTS}")
        reached = [True] + [False] * (shape.batch // step)
        for at in range(1, len(reached)):
            reached[at] = any(size // step <= at and reached[at - size // step] for size in sizes)
        if not reached[-1]:
            raise fault(f"no parts of {named} images make {shape.batch}", "sizes that add up to the batch")
        return micro_batches

    @model_validator(mode="after")
    def _algorithms_differ(self) -> Convolution:
        _require_different((self.selected, *self.alternatives))
        return self


def _require_different(algorithms: Sequence[ConvolutionAlgorithm]) -> None:
    seen: set[str] = set()
    for one in algorithms:
        if one.algorithm in seen:
            raise fault(f"algorithm {one.algorithm!r} given twice", "each algorithm once")
        seen.add(one.algorithm)


def _on_host(duration_us: float | None, gpu: GPU, operation: str, service: HostService, bytes_moved: int) -> float:
    """Return a recorded duration, or the measured duration of such an operation on a GPU."""
    return gpu.host_us(service, bytes_moved, f"operation {operation}") if duration_us is None else duration_us


class Copy(Operation):
    """A memory copy, or a memset on the device."""

    kind: Annotated[Literal["copy"], described("kind of operation")] = "copy"
    direction: Annotated[Literal["h2d", "d2h", "d2d", "p2p", "memset"], described("host to device, back, …")]
    memory: Annotated[Literal["pinned", "pageable"], described("of the host")] = "pinned"
    bytes: Annotated[int, measured("bytes", "bytes copied", ge=0, le=MAX_TRAFFIC_BYTES)]
    duration_us: Annotated[Passing, described("recorded duration, alone; absent: what the GPU's file says")] = None

    def occupies(self, gpu: GPU) -> Occupied:
        """The copy engine of its direction, which takes one copy at a time; with pageable memory time alone.

        A memset counts as a copy on the device.

        From pageable memory the host first copies into a pinned buffer, about six times slower than the engine. The
        copy waits for that, and copies of other processes do not [D] (experiments/geisler).
        """
        by_host = self.direction in ("h2d", "d2h")
        on_device = "d2d" if self.direction == "memset" else self.direction
        service = cast(HostService, f"{self.direction}_{self.memory}" if by_host else on_device)
        duration_us = _on_host(self.duration_us, gpu, self.id, service, self.bytes)
        pageable = by_host and self.memory == "pageable"
        return Occupied(duration_us, "" if pageable else f"copy engine {on_device}")


class Host(Operation):
    """Host work that the stream waits for."""

    kind: Annotated[Literal["host"], described("kind of operation")] = "host"
    what: Annotated[
        Literal["allocation", "free", "pool_allocation", "pool_free", "launch", "other"],
        described("kind of host work; from a pool: stream-ordered, as cudaMallocAsync"),
    ]
    bytes: Annotated[int, measured("bytes", "of an allocation or free", ge=0, le=MAX_TRAFFIC_BYTES)] = 0
    duration_us: Annotated[Passing, described("recorded duration; absent: what the GPU's file says")] = None

    def occupies(self, gpu: GPU) -> Occupied:
        """Time alone."""
        if self.what == "other":
            assert self.duration_us is not None
            return Occupied(self.duration_us)
        return Occupied(_on_host(self.duration_us, gpu, self.id, self.what, self.bytes))

    @model_validator(mode="after")
    def _known(self) -> Host:
        if self.what == "other" and self.duration_us is None:
            raise fault("other host work without duration_us", "how long it takes")
        return self


class Collective(Operation):
    """One rank of a collective. All ranks begin when the last of them is ready."""

    kind: Annotated[Literal["collective"], described("kind of operation")] = "collective"
    name: Annotated[str, described("of the communication, the same for all ranks", pattern=ID_PATTERN, max_length=200)]
    what: Annotated[
        Literal[
            "barrier", "broadcast", "scatter", "gather", "reduce", "all_reduce", "all_gather", "reduce_scatter",
            "all_to_all",
        ],
        described("pattern of the communication"),
    ]  # fmt: skip
    ranks: Annotated[int, measured("ranks", "that take part, each in a stream of its own", ge=2, le=MAX_STREAMS)]
    bytes: Annotated[int, measured("bytes", "that this rank sends or receives", ge=0, le=MAX_TRAFFIC_BYTES)]
    duration_us: Annotated[
        float, measured("us", "recorded duration, from when all ranks are there", ge=0, le=MAX_DURATION_US)
    ]

    def occupies(self, gpu: GPU) -> Occupied:
        """Time, from when the last rank arrives, and no resource."""
        return Occupied(self.duration_us, meeting=self.name)


if TYPE_CHECKING:
    _AnyOperation = Operation
else:  # read as the class whose kind it names
    _AnyOperation = Annotated[Union[tuple(Operation.__subclasses__())], Field(discriminator="kind")]  # noqa: UP007


class TimesArrivals(Strict):
    """Requests at given times."""

    kind: Annotated[Literal["times"], described("kind of arrivals")] = "times"
    times_us: Annotated[
        tuple[Annotated[float, Field(ge=0, le=MAX_DURATION_US)], ...],
        FailFast(),
        measured("us", "arrival times, ascending"),
    ]

    @property
    def requests(self) -> int:
        """How many requests arrive."""
        return len(self.times_us)

    @field_validator("times_us")
    @classmethod
    def _ascending(cls, times: tuple[float, ...]) -> tuple[float, ...]:
        if not 1 <= len(times) <= MAX_REQUESTS:
            raise fault(f"has {len(times)} requests", f"1 to {MAX_REQUESTS}")
        for before, after in pairwise(times):
            if after < before:
                raise fault(f"has {after} after {before}", "times that ascend")
        return times


class PoissonArrivals(Strict):
    """Requests with exponential gaps; the seed makes them repeat."""

    kind: Annotated[Literal["poisson"], described("kind of arrivals")] = "poisson"
    rate_per_s: Annotated[float, measured("1/s", "mean rate", ge=LEAST_RATE_PER_S, le=1e9)]
    count: Annotated[int, measured("requests", "number of requests", ge=1, le=MAX_REQUESTS)]
    seed: Annotated[int, described("seed of the random gaps", ge=0, le=2**63 - 1)]

    @property
    def requests(self) -> int:
        """How many requests arrive."""
        return self.count


class LoopArrivals(Strict):
    """A closed loop of one request: the next arrives when the previous one has ended."""

    kind: Annotated[Literal["loop"], described("kind of arrivals")] = "loop"
    count: Annotated[int, measured("requests", "number of requests", ge=1, le=MAX_REQUESTS)]

    @property
    def requests(self) -> int:
        """How many requests arrive."""
        return self.count


Arrivals = Annotated[TimesArrivals | PoissonArrivals | LoopArrivals, Field(discriminator="kind")]


class Stream(Strict):
    """Operations that run one after the other.

    With `arrivals`, one request is the whole list of operations, run once per arrival and first come, first served.
    Such a stream has no dependencies on other programs, in either direction [D].
    """

    name: Annotated[str, described("unique in the trace", pattern=NAME_PATTERN, max_length=200)]
    priority: Annotated[int, described("0 is the lowest", ge=0, le=1000)] = 0
    gpu: Annotated[int, measured("GPUs", "number of its GPU among several equal ones, from 0", ge=0, lt=MAX_GPUS)] = 0
    operations: Annotated[tuple[_AnyOperation, ...], FailFast(), described("operations in launch order")]
    arrivals: Annotated[Arrivals | None, described("when requests arrive; absent: once, at time 0")] = None

    @model_serializer(mode="wrap")
    def _brief(self, written: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The stream as it is written: without the number of its GPU where that is 0."""
        content: dict[str, Any] = written(self)
        if not self.gpu:
            content.pop("gpu", None)
        return content
