"""Hypothesis strategies for traces that others replay: small, and every kernel fits an SM of an H200."""

from __future__ import annotations

from functools import cache
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from gpusim.trace.fields import MAX_BLOCKS_PER_US
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
from gpusim.trace.operations import (
    Convolution,
    ConvolutionAlgorithm,
    ConvolutionShape,
    Copy,
    Host,
    Kernel,
    LoopArrivals,
    PoissonArrivals,
    Stream,
    TimesArrivals,
)

H200_SMS = 132
H200_CLOCK_MHZ = 1980
MAX_SHARED_BYTES = 232448  # opt-in limit of a block, static and dynamic together
MAX_STATIC_BYTES = 49152

FEWEST, ALL = 3, 100  # examples; ALL is what the profile `release` has


def examples(most: int, everyday: int | None = None, **more: Any) -> settings:
    """Settings of a property test: so many examples before a release, and the profile's share of them every day.

    Where an example takes long, every day has `everyday` of them.
    """
    share = settings.default.max_examples / ALL
    count = int(most * share) if everyday is None or share >= 1 else everyday
    return settings(max_examples=max(FEWEST, count), **more)


AnyOperation = Kernel | Convolution | Copy | Host


@cache
def rounded(low: float, high: float) -> st.SearchStrategy[float]:
    """Floats of at most three decimals, which print short."""
    return st.integers(round(low * 1000), round(high * 1000)).map(lambda n: n / 1000)


# Strategies that are made once: to make and check one in each of many draws takes longer than the draws.
PERCENT = st.none() | rounded(0, 100)
BUSY_SHARES = st.fixed_dictionaries(
    {f"{name}_cycles": st.none() | rounded(0, 0.95) for name in ("issue", "alu", "fma", "tensor", "lsu", "l1")}
)
BYTES_PER_CYCLE = st.fixed_dictionaries(
    dict.fromkeys(
        (
            "l1_read_bytes",
            "l1_write_bytes",
            "l2_bytes",
            "l2_read_bytes",
            "l2_write_bytes",
            "dram_read_bytes",
            "dram_write_bytes",
        ),
        st.none() | rounded(0, 20),
    )
)
ACTIVE_SHARE = st.none() | rounded(0.3, 1)
OTHER_COUNTERS = st.fixed_dictionaries(
    {
        "l1_hit_percent": PERCENT,
        "l2_hit_percent": PERCENT,
        "achieved_warps_per_sm": st.none() | rounded(1, 64),
        "stalls": st.none()
        | st.builds(WarpStalls, **dict.fromkeys(WarpStalls.model_fields, st.none() | rounded(0, 20))),
        "alu_utilisation_percent": PERCENT,
        "memory_stall_percent": PERCENT,
    }
)
BLOCK_SHAPES = st.sampled_from([(32, 1, 1), (8, 8, 1), (128, 1, 1), (8, 32, 1), (384, 1, 1), (16, 8, 8)]) | st.tuples(
    st.integers(1, 1024), st.just(1), st.just(1)
)
SHAPES = st.builds(
    ConvolutionShape,
    batch=st.integers(1, 128),
    in_channels=st.integers(1, 512),
    in_height=st.integers(7, 64),
    in_width=st.integers(7, 64),
    out_channels=st.integers(1, 512),
    filter_height=st.integers(1, 7),
    filter_width=st.integers(1, 7),
    padding=st.integers(0, 3),
    stride=st.integers(1, 2),
)


@st.composite
def mixes(draw: st.DrawFn, duration_us: float, blocks: int) -> Mix:
    """A mix that can be: no pipe of the H200 is busy for longer than the kernel lasts."""
    cycles = duration_us * H200_CLOCK_MHZ
    cycles_per_block = cycles * min(blocks, H200_SMS) / blocks
    rates = draw(BUSY_SHARES) | draw(BYTES_PER_CYCLE)
    counted = {name: None if rate is None else rate * cycles_per_block for name, rate in rates.items()}
    share = draw(ACTIVE_SHARE)
    if share is not None:
        counted |= {"active_cycles_max": cycles, "active_cycles_avg": share * cycles}
    return Mix(**counted, **draw(OTHER_COUNTERS))


@cache
def dynamic_shared_bytes(most: int) -> st.SearchStrategy[int]:
    return st.sampled_from([0, 0, 8704, 33280]) | st.integers(0, most)


@st.composite
def kernels(draw: st.DrawFn, stream: str = "main", max_blocks_x: int = 2000) -> KernelLaunch:
    """A launch of which at least one block fits an SM of compute capability 9.0."""
    block = draw(BLOCK_SHAPES)
    threads = block[0] * block[1] * block[2]
    warps_rounded = -(-threads // 128) * 4  # warps, rounded up to the four sub-partitions
    most_registers = min(255, 65536 // warps_rounded // 256 * 8)
    static = draw(st.sampled_from([0, 0, 1024, 2304, 16640, MAX_STATIC_BYTES]))
    dynamic = draw(dynamic_shared_bytes(MAX_SHARED_BYTES - static))
    grid = (draw(st.integers(1, max_blocks_x)), draw(st.integers(1, 3)), draw(st.integers(1, 2)))
    blocks = grid[0] * grid[1] * grid[2]
    duration_us = draw(rounded(-(-blocks // MAX_BLOCKS_PER_US), 2000))
    return KernelLaunch(
        name=draw(st.sampled_from(["gemm", "fft2d_r2c", "void winograd<float, 3>(int)"])),
        grid=grid,
        block=block,
        registers_per_thread=draw(st.integers(1, most_registers)),
        static_shared_memory_bytes=static,
        dynamic_shared_memory_bytes=dynamic,
        duration_us=duration_us,
        stream=stream,
        mix=draw(mixes(duration_us, blocks)) if draw(st.booleans()) else None,
    )


@st.composite
def algorithms(
    draw: st.DrawFn, name: str = "FFT_TILING/FMA", max_kernels: int = 4, max_blocks_x: int = 2000
) -> ConvolutionAlgorithm:
    """An algorithm whose kernels may run on streams of the library's own."""
    streams = st.sampled_from(["main", "main", "internal0", "internal1"])
    count = draw(st.integers(1, max_kernels))
    return ConvolutionAlgorithm(
        algorithm=name,
        workspace_bytes=draw(st.none() | st.integers(0, 10**9)),
        kernels=tuple(draw(kernels(draw(streams), max_blocks_x)) for _ in range(count)),
    )


@st.composite
def operations(
    draw: st.DrawFn, id: str = "op", depends_on: tuple[str, ...] = (), max_blocks_x: int = 2000
) -> AnyOperation:
    """One operation of any kind."""
    kind = draw(st.sampled_from(["kernel", "kernel", "convolution", "copy", "host"]))
    if kind == "kernel":
        return Kernel(id=id, kind="kernel", depends_on=depends_on, kernel=draw(kernels("main", max_blocks_x)))
    if kind == "copy":
        return Copy(
            id=id,
            kind="copy",
            depends_on=depends_on,
            direction=draw(st.sampled_from(["h2d", "d2h", "d2d", "p2p"])),
            bytes=draw(st.integers(0, 10**9)),
            duration_us=draw(rounded(0, 500)),
        )
    if kind == "host":
        return Host(
            id=id,
            kind="host",
            depends_on=depends_on,
            what=draw(st.sampled_from(["allocation", "free", "other"])),
            duration_us=draw(rounded(0, 500)),
        )
    others = draw(st.sampled_from([(), ("IMPLICIT_GEMM/FMA",), ("IMPLICIT_GEMM/FMA", "GEMM/FMA")]))
    return Convolution(
        id=id,
        kind="convolution",
        depends_on=depends_on,
        shape=draw(SHAPES),
        direction=draw(st.sampled_from(["fwd", "bwd_data", "bwd_filter"])),
        selected=draw(algorithms(max_blocks_x=max_blocks_x)),
        alternatives=tuple(draw(algorithms(name)) for name in others),
    )


def arrivals() -> st.SearchStrategy[TimesArrivals | PoissonArrivals | LoopArrivals]:
    """Any kind of arrivals, a few requests."""
    times = st.lists(rounded(0, 5000), min_size=1, max_size=4).map(lambda found: tuple(sorted(found)))
    return st.one_of(
        st.builds(TimesArrivals, kind=st.just("times"), times_us=times),
        st.builds(
            PoissonArrivals,
            kind=st.just("poisson"),
            rate_per_s=rounded(1, 10_000),
            count=st.integers(1, 4),
            seed=st.integers(0, 2**32),
        ),
        st.builds(LoopArrivals, kind=st.just("loop"), count=st.integers(1, 4)),
    )


@st.composite
def traces(
    draw: st.DrawFn,
    max_streams: int = 8,
    max_operations: int = 12,
    with_arrivals: bool = False,
    max_blocks_x: int = 2000,
) -> Trace:
    """A trace of 1 to `max_streams` streams whose operations depend only on ones drawn before them."""
    stream_count = draw(st.integers(1, max_streams))
    operation_count = draw(st.integers(1, max_operations))
    names = [f"branch{n}" for n in range(stream_count)]
    arriving = {name: draw(st.none() | arrivals()) if with_arrivals else None for name in names}
    lists: dict[str, list[AnyOperation]] = {name: [] for name in names}
    connected: list[str] = []  # ids of operations in streams without arrivals
    for n in range(operation_count):
        name = draw(st.sampled_from(names))
        depends_on: tuple[str, ...] = ()
        if arriving[name] is None and connected:
            depends_on = tuple(draw(st.lists(st.sampled_from(connected), unique=True, max_size=3)))
        operation = draw(operations(f"op{n}", depends_on, max_blocks_x))
        lists[name].append(operation)
        if arriving[name] is None:
            connected.append(operation.id)
    return Trace(
        version=1,
        name="random",
        device="h200",
        notes=draw(st.sampled_from(["", "drawn\nby hypothesis"])),
        streams=tuple(
            Stream(
                name=name,
                priority=draw(st.integers(0, 2)),
                operations=tuple(lists[name]),
                arrivals=arriving[name],
            )
            for name in names
        ),
    )
