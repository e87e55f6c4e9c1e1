"""A rank's training step as Geisler's code does it, as a trace, and the what-ifs: each a trace made of that trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Collective, Copy, Host, Kernel, Operation, Stream

TILE, REAL_BYTES = 32, 4
PIXELS, DIGITS, BATCH, RANKS = 784, 10, 800, 4
IMAGES = BATCH // RANKS  # of a rank
STEPS = 4  # in a trace
PRODUCTS = ("W1 X", "W2 a1", "gradient of W2", "gradient of a1", "gradient of W1")
NEEDED = ("p1.in_a", "p1.in_b", "p2.in_a", "p3.out", "p5.out")  # W1, images, W2 in; both gradients out


@dataclass(frozen=True)
class Product:
    """One matrix product, C = A B + C: C is m x n, A m x k, B k x n."""

    m: int
    n: int
    k: int

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes of each matrix."""
        return {"a": REAL_BYTES * self.m * self.k, "b": REAL_BYTES * self.k * self.n, "c": REAL_BYTES * self.m * self.n}

    @property
    def flop(self) -> int:
        """Two a multiply-add."""
        return 2 * self.m * self.n * self.k

    def launch(self, duration_us: float) -> KernelLaunch:
        """Its kernel: blocks of 32 x 32 threads, two tiles in shared memory; the registers are a guess."""
        return KernelLaunch(
            name="advanced_GEMM",
            grid=(-(-self.n // TILE), -(-self.m // TILE), 1),
            block=(TILE, TILE, 1),
            registers_per_thread=32,
            static_shared_memory_bytes=2 * TILE * TILE * REAL_BYTES,
            duration_us=duration_us,
        )


def products(hidden: int) -> tuple[Product, ...]:
    """The five of a training step of a network of two layers."""
    return (
        Product(hidden, IMAGES, PIXELS),
        Product(DIGITS, IMAGES, hidden),
        Product(DIGITS, hidden, IMAGES),
        Product(hidden, IMAGES, DIGITS),
        Product(hidden, PIXELS, IMAGES),
    )


@dataclass(frozen=True)
class Times:
    """What parts of a step take, us; None: what the GPU's file says.

    Attributes:
        kernels: of each product.
        allocation, free: of one matrix.
        h2d_per_byte, d2h_per_byte: of copies.
        other: of the CPU's own work in a step, communication included.
        launch: whether the host's time for a launch counts by itself.
    """

    kernels: tuple[float, ...]
    allocation: float | None = None
    free: float | None = None
    h2d_per_byte: float | None = None
    d2h_per_byte: float | None = None
    other: float = 0.0
    launch: bool = False


def step_trace(device: str, hidden: int, times: Times, ranks: int = RANKS) -> Trace:
    """`STEPS` steps of every rank, each with a GPU of its own."""
    streams = tuple(
        Stream(name=f"rank{r}", gpu=r, operations=tuple(_rank(f"r{r}", ranks, products(hidden), times)))
        for r in range(ranks)
    )
    return Trace(version=1, name="geisler", device=device, streams=streams)


def _rank(name: str, ranks: int, multiplied: tuple[Product, ...], times: Times) -> Iterator[Operation]:
    weights = multiplied[0].sizes["a"] + multiplied[1].sizes["a"]
    for s in range(STEPS):
        at = f"{name}.s{s}"
        if times.other:
            yield Host(id=f"{at}.cpu", kind="host", what="other", duration_us=times.other)
        if ranks > 1:
            yield _meeting(f"{at}.scatter", f"s{s}.scatter", "scatter", ranks, multiplied[0].sizes["b"])
        for p, (product, kernel_us) in enumerate(zip(multiplied, times.kernels, strict=True), 1):
            yield from _multiply(f"{at}.p{p}", product, kernel_us, times)
        if ranks > 1:
            yield _meeting(f"{at}.reduce", f"s{s}.reduce", "all_reduce", ranks, weights)


def _meeting(id: str, name: str, what: str, ranks: int, sent: int) -> Collective:
    """Its own time is in the CPU's work: what counts here is that ranks wait for the last."""
    content = {"id": id, "kind": "collective", "name": name, "what": what, "ranks": ranks, "bytes": sent}
    return Collective.model_validate(content | {"duration_us": 0.0})


def _multiply(id: str, product: Product, kernel_us: float, times: Times) -> Iterator[Operation]:
    sizes = product.sizes

    def copied(name: str, direction: str, size: int, per_byte: float | None) -> Copy:
        duration_us = None if per_byte is None else per_byte * size
        content = {"id": f"{id}.{name}", "kind": "copy", "direction": direction, "bytes": size, "memory": "pageable"}
        return Copy.model_validate(content | {"duration_us": duration_us})

    for of, size in sizes.items():
        yield Host(id=f"{id}.malloc_{of}", kind="host", what="allocation", bytes=size, duration_us=times.allocation)
    for of, size in sizes.items():
        yield copied(f"in_{of}", "h2d", size, times.h2d_per_byte)
    if times.launch:
        yield Host(id=f"{id}.launch", kind="host", what="launch")
    yield Kernel(id=f"{id}.gemm", kind="kernel", kernel=product.launch(kernel_us))
    yield copied("out", "d2h", sizes["c"], times.d2h_per_byte)
    for of, size in sizes.items():
        yield Host(id=f"{id}.free_{of}", kind="host", what="free", bytes=size, duration_us=times.free)


# ---- what-ifs


def _each(trace: Trace, change: Callable[[Operation], Operation | None]) -> Trace:
    """A trace with every operation changed, or left out."""
    streams = []
    for stream in trace.streams:
        kept = tuple(new for op in stream.operations if (new := change(op)) is not None)
        streams.append(stream.model_copy(update={"operations": kept}))
    return _checked(trace, streams)


def _checked(trace: Trace, streams: list[Stream]) -> Trace:
    return Trace(version=1, name=trace.name, device=trace.device, streams=tuple(streams))


def kept(trace: Trace) -> Trace:
    """Memory is allocated once, before the first step."""
    return _each(trace, lambda op: None if isinstance(op, Host) and op.what in ("allocation", "free") else op)


def pooled(trace: Trace) -> Trace:
    """Memory comes from a stream-ordered pool (cudaMallocAsync) that keeps what is given back."""

    def change(op: Operation) -> Operation:
        if isinstance(op, Host) and op.what in ("allocation", "free"):
            return op.model_copy(update={"what": f"pool_{op.what}", "duration_us": None})
        return op

    return _each(trace, change)


def on_device(trace: Trace) -> Trace:
    """Memory is kept, and what one product leaves for the next stays on the GPU."""

    def change(op: Operation) -> Operation | None:
        return op if not isinstance(op, Copy) or op.id.split(".", 2)[2] in NEEDED else None

    return _each(kept(trace), change)


def overlapped(trace: Trace) -> Trace:
    """On the device, and the next step's images arrive in pinned memory while this step's products run."""
    trace = on_device(trace)
    streams: list[Stream] = []
    for r, stream in enumerate(trace.streams):
        images, rest = [], []
        for op in stream.operations:
            at, s, part = op.id.split(".", 2)
            if isinstance(op, Copy):
                op = op.model_copy(update={"memory": "pinned"})
            if part == "p1.in_b":  # into the buffer that the step before last has read
                step = int(s[1:])
                waits = (f"{at}.s{step - 2}.p5.gemm",) if step > 1 else ()
                images.append(op.model_copy(update={"depends_on": waits}))
            elif part == "p1.gemm":
                rest.append(op.model_copy(update={"depends_on": (f"{at}.{s}.p1.in_b",)}))
            else:
                rest.append(op)
        streams.append(stream.model_copy(update={"operations": tuple(rest)}))
        streams.append(Stream(name=f"images{r}", gpu=stream.gpu, operations=tuple(images)))
    return _checked(trace, streams)


def two_streams(trace: Trace) -> Trace:
    """On the device, overlapped, and the gradient of W2, for which nobody waits, in a stream of its own."""
    trace = overlapped(trace)
    streams: list[Stream] = []
    for stream in trace.streams:
        if not stream.name.startswith("rank"):
            streams.append(stream)
            continue
        side, rest = [], []
        for op in stream.operations:
            before, part = op.id.rsplit(".p", 1) if ".p" in op.id else (op.id, "")
            if part.startswith("3."):
                waits = (f"{before}.p2.gemm",) if part == "3.gemm" else ()
                side.append(op.model_copy(update={"depends_on": waits}))
            elif part == "5.out":
                rest.append(op.model_copy(update={"depends_on": (f"{before}.p3.out",)}))
            else:
                rest.append(op)
        streams.append(stream.model_copy(update={"operations": tuple(rest)}))
        side_name = stream.name.replace("rank", "side")
        streams.append(Stream(name=side_name, gpu=stream.gpu, operations=tuple(side)))
    return _checked(trace, streams)


def on_one_gpu(trace: Trace) -> Trace:
    """All ranks share one GPU."""
    return _checked(trace, [stream.model_copy(update={"gpu": 0}) for stream in trace.streams])
