"""Make the shipped traces: `python experiments/make_traces.py DATASET… --out traces`.

Each DATASET is a folder as `gpusim record` writes, such as experiments/h200_validation/data, the folder small in it
and experiments/micro_batches/data. The same dataset gives the same traces. What each trace is: traces/README.md.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import load_gpu
from gpusim.io.ncu import trimmed
from gpusim.lab.dataset import Recordings, Row, back_to_back_us
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, taking
from gpusim.trace.operations import (
    Convolution,
    ConvolutionAlgorithm,
    ConvolutionShape,
    MicroBatch,
    Operation,
    Stream,
)

DEVICE = "h200"
INCEPTIONS = ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
INCEPTION_BRANCHES = {
    "1x1": ("1x1",),
    "3x3": ("3x3_reduce", "3x3"),
    "5x5": ("5x5_reduce", "5x5"),
    "pool_proj": ("pool_proj",),
}
SMALL_INCEPTIONS = ("3a", "3b", "4a", "4c", "4e", "5a", "5b")  # recorded at batch 16, too
DIVIDED_INCEPTIONS = ("3a", "4a")  # recorded for micro-batches, too
MICRO_BATCHES = (8, 16, 32, 64)
RESNET_BLOCKS = ("2a", "3a", "4a", "5a")
RESNET_BRANCHES = {"main": ("reduce", "3x3", "expand"), "shortcut": ("shortcut",)}
TRUNK = ("conv1.7x7", "conv2.1x1", "conv2.3x3")


def prose(text: str) -> str:
    """Text with its line breaks removed; a blank line starts a new paragraph."""
    return "\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


SOURCE = prose("""
    Recorded on one NVIDIA H200 (132 SMs, 1980 MHz), cuDNN 9 legacy convolution API, float32 NCHW, forward
""")
FASTEST = prose("""
    Selected is the algorithm with the least time per call, ten calls back to back (ms_stream_run1), any
    math; every other algorithm that cuDNN supports for the shape is an alternative.
""")
COUNTERS = prose("""
    Kernel mixes are Nsight Compute's, each kernel alone; so are durations, scaled to take together what
    the call took back to back without the profiler (but for algorithms with streams of their own and calls
    too short for the GPU to be what takes time); demands per block are averages over the launch; L2 hit
    rates that the counter puts above 100 % are cut to 100.
""")
MODULE_NOTES = prose("""
    {source}, batch {batch}. The convolutions of {network} {module}, one stream per branch. {fastest}
    {counters} Pooling, activation, joining of the branches and host work were not recorded.
""")
MICRO_BATCH_NOTES = prose("""
    {module_notes}

    Every convolution has micro-batches of 8, 16, 32 and 64 images: of the algorithms there those that no other beats in
    both time and workspace, or only by 5 %. An algorithm whose kernels are the same in TF32 as in FMA is there once.
""")
PAIR_NOTES = prose("""
    {source}, batch 128. Two independent convolutions of GoogLeNet's inception 3a: the 3x3 with
    IMPLICIT_PRECOMP_GEMM beside the 5x5 with FFT_TILING, in FP32; every other algorithm that cuDNN
    supports is an alternative. {counters}
""")
GOOGLENET_NOTES = prose("""
    {source}, batch 128. The 57 convolutions of GoogLeNet: a trunk, then nine inception modules, one
    stream per branch; the first convolution of each branch waits for the last of every branch of the
    module before. {fastest} {counters} Pooling, activation, local response normalisation, concatenation,
    the classifier and host work were not recorded and are left out, so this is not the time of a forward
    pass.
""")
SPAA20_NOTES = prose("""
    Table 1 of Pourghassemi, Zhang, Lee, Chandramowlishwaran, SPAA'20 (arXiv 2005.13823): two independent
    convolutions of GoogLeNet's first inception module on a Tesla K40 (taken as a K40c), CUDA 10.0, cuDNN
    7.6, each by two algorithms. Selected are the two that the paper would run side by side.

    From the table: the one kernel named for each algorithm, its ALU utilisation and memory stalls, and
    the percent of one SM's registers, shared memory, threads and blocks. The table has no shapes, batch,
    grids, block sizes or durations.

    Worked out: the percents are those of the blocks resident on one SM (65536 registers, 49152 bytes of
    shared memory, 2048 threads, 16 blocks): 19 % of blocks is 3 of 16, so 38 % of threads is 256 per
    block, and so on. All sixteen percents come back after rounding but one: the registers of the 3x3
    PRECOMP_GEMM, printed as 92 %, are 92.6 % with 79 per thread and 91.4 % with 78; 79 is taken, and the
    SM allocates 80 in either case. FFT_TILING's 38 % is 48 registers (37.5 %) or 49 (38.3 %); 48 is
    taken, and shared memory binds first with either. The 70 % of shared memory of the 5x5 PRECOMP_GEMM is
    2136 to 2165 bytes per block; 2152 is taken, and the SM allocates 2304, which is what the kernel of
    that name asks for in our own recording.

    Assumed: inception 3a at batch 128. Grids and block dimensions are those of our own H200 recording,
    for the same shapes, of kernels with the same name and threads per block; for the 3x3 PRECOMP_GEMM,
    whose kernel of 256 threads was not recorded for that shape, those of explicit_convolve_sgemm with the
    same tile (128 filters x 64 pixels, 256 threads, 6400 bytes).

    Durations: flop / (ALU % x 4.29 TFLOP/s). For PRECOMP_GEMM, flop is the direct convolution's. For
    FFT_TILING it is what that algorithm computes (32x32 transforms and complex products): the direct flop
    would make it slower than PRECOMP_GEMM (17.2 ms for the 3x3, 2.99 ms for the 5x5), against the paper's
    own Table 2 (a 5x5: 48 ms against 126 ms) and our recording (this 5x5 on the H200: 0.040 ms against
    0.093 ms). The one kernel that the table lists stands for its whole algorithm. ALU % counts more than
    useful flop, so all four durations are estimates: look at how a conclusion moves with their ratio.

    Unknown and absent: workspace, and every demand per block on pipes, caches and DRAM.
""")

# ---- the dataset


@dataclass(frozen=True)
class Recorded:
    """The recorded calls.

    Attributes:
        calls: rows of the profiled forward calls of a `network/layer`, in the order of the file.
        dataset: with the kernels of each op.
    """

    calls: Mapping[str, Sequence[Row]]
    dataset: Recordings

    def kernels(self, op: str) -> tuple[KernelLaunch, ...]:
        """The kernels of an op, in launch order."""
        return self.dataset.op(op).kernels


def read_dataset(folder: Path) -> Recorded:
    """Read a dataset as recorded."""
    dataset = Recordings(folder, load_gpu(DEVICE))
    calls: dict[str, list[Row]] = {}
    for op, row in dataset.calls.items():
        if dataset.profiled(op) and row["direction"] == "fwd":
            calls.setdefault(f"{row['network']}/{row['layer']}", []).append(row)
    return Recorded(calls, dataset)


def algorithm_of(recorded: Recorded, call: Row) -> ConvolutionAlgorithm:
    """One call as an algorithm with its kernels, and what it takes warm and cold where that was recorded.

    Profiled kernels that follow one another are scaled to take together what the call takes without the profiler, as
    `gpusim validate` does.
    """
    op = recorded.dataset.op(call["op"])
    timed = op.cold_us is not None
    kernels = op.kernels
    if op.gpu_bound and all(kernel.stream == "main" for kernel in kernels):
        kernels = taking(kernels, trimmed(back_to_back_us(op.ms, recorded.dataset.gpu)))
    return ConvolutionAlgorithm(
        algorithm=f"{call['algorithm']}/{call['math']}",
        workspace_bytes=int(float(call["workspace_bytes"])),
        touched_bytes=op.touched_bytes if timed else None,
        warm_us=trimmed(op.warm_us) if timed else None,
        cold_us=trimmed(op.cold_us) if op.cold_us is not None else None,
        kernels=kernels,
    )


def shape_of(call: Row) -> ConvolutionShape:
    """The shape of a call; images and filters are square."""
    return ConvolutionShape(
        batch=int(call["batch"]),
        in_channels=int(call["in_channels"]),
        in_height=int(call["in_size"]),
        in_width=int(call["in_size"]),
        out_channels=int(call["out_channels"]),
        filter_height=int(call["filter_size"]),
        filter_width=int(call["filter_size"]),
        padding=int(call["padding"]),
        stride=int(call["stride"]),
    )


def convolution(
    recorded: Recorded, layer: str, depends_on: tuple[str, ...] = (), selected: str | None = None
) -> Convolution:
    """A recorded layer such as `googlenet/3a.3x3`, with `selected` (default: the fastest) and the rest."""
    calls = recorded.calls[layer]
    fastest = min(calls, key=lambda call: float(call["ms_stream_run1"]))
    wanted = selected or f"{fastest['algorithm']}/{fastest['math']}"
    algorithms = {found.algorithm: found for found in (algorithm_of(recorded, call) for call in calls)}
    return Convolution(
        id=layer.split("/")[1],
        kind="convolution",
        depends_on=depends_on,
        shape=shape_of(calls[0]),
        direction="fwd",
        selected=algorithms[wanted],
        alternatives=tuple(found for name, found in algorithms.items() if name != wanted),
    )


# ---- traces of recorded networks


def module_trace(
    recorded: Recorded, network: str, title: str, module: str, branches: Mapping[str, Sequence[str]]
) -> Trace:
    """One module, one stream per branch, all free to start at once."""
    batch = recorded.calls[f"{network}/{module}.{next(iter(branches.values()))[0]}"][0]["batch"]
    return Trace(
        version=1,
        name=f"{title}_{module}",
        device=DEVICE,
        notes=MODULE_NOTES.format(
            source=SOURCE,
            batch=batch,
            network=network.removesuffix("16").removesuffix("_b128"),
            module=module,
            fastest=FASTEST,
            counters=COUNTERS,
        ),
        streams=tuple(
            Stream(
                name=name,
                operations=tuple(convolution(recorded, f"{network}/{module}.{layer}") for layer in layers),
            )
            for name, layers in branches.items()
        ),
    )


def micro_batch_trace(recorded: Recorded, module: str) -> Trace:
    """An inception module at batch 128 whose convolutions have micro-batches."""
    once = Recorded({layer: distinct(recorded, calls) for layer, calls in recorded.calls.items()}, recorded.dataset)
    trace = module_trace(once, "googlenet_b128", "inception", module, INCEPTION_BRANCHES)

    def with_micro_batches(op: Operation) -> Operation:
        sizes = tuple(
            MicroBatch(
                batch=batch,
                algorithms=tuple(algorithm_of(once, call) for call in once.calls[f"googlenet_b{batch}/{op.id}"]),
            )
            for batch in MICRO_BATCHES
        )
        return op.model_copy(update={"micro_batches": sizes})

    return trace.model_copy(
        update={
            "name": f"micro_batches_{module}",
            "notes": MICRO_BATCH_NOTES.format(module_notes=trace.notes),
            "streams": tuple(
                stream.model_copy(update={"operations": tuple(with_micro_batches(op) for op in stream.operations)})
                for stream in trace.streams
            ),
        }
    )


def distinct(recorded: Recorded, calls: Sequence[Row]) -> list[Row]:
    """The calls without those in TF32 that run the kernels of the same algorithm in FMA."""

    def runs(call: Row) -> list[tuple[str, tuple[int, int, int]]]:
        return [(kernel.name, kernel.grid) for kernel in recorded.kernels(call["op"])]

    in_fma = {call["algorithm"]: runs(call) for call in calls if call["math"] == "FMA"}
    return [call for call in calls if call["math"] == "FMA" or runs(call) != in_fma.get(call["algorithm"])]


def pair_trace(recorded: Recorded) -> Trace:
    """The two algorithms that the SPAA'20 announcement would like to see side by side."""
    wanted = {"3x3": "IMPLICIT_PRECOMP_GEMM/FMA", "5x5": "FFT_TILING/FMA"}
    return Trace(
        version=1,
        name="pair_3a_3x3_precomp_5x5_fft_tiling",
        device=DEVICE,
        notes=PAIR_NOTES.format(source=SOURCE, counters=COUNTERS),
        streams=tuple(
            Stream(name=layer, operations=(convolution(recorded, f"googlenet/3a.{layer}", selected=algorithm),))
            for layer, algorithm in wanted.items()
        ),
    )


def googlenet_trace(recorded: Recorded) -> Trace:
    """All 57 convolutions: a trunk of three, then nine modules in one stream per branch."""
    trunk = tuple(convolution(recorded, f"googlenet/{layer}") for layer in TRUNK)
    branches: dict[str, list[Convolution]] = {name: [] for name in INCEPTION_BRANCHES}
    joined: tuple[str, ...] = TRUNK[-1:]
    for module in INCEPTIONS:
        for name, layers in INCEPTION_BRANCHES.items():
            for n, layer in enumerate(layers):
                waits = joined if n == 0 else ()
                branches[name].append(convolution(recorded, f"googlenet/{module}.{layer}", waits))
        joined = tuple(f"{module}.{layers[-1]}" for layers in INCEPTION_BRANCHES.values())
    return Trace(
        version=1,
        name="googlenet_forward",
        device=DEVICE,
        notes=GOOGLENET_NOTES.format(source=SOURCE, fastest=FASTEST, counters=COUNTERS),
        streams=(
            Stream(name="trunk", operations=trunk),
            *(Stream(name=name, operations=tuple(found)) for name, found in branches.items()),
        ),
    )


# ---- Table 1 of the SPAA'20 announcement

K40C_PEAK_FLOP_PER_S = 4.29e12  # 15 SMs x 192 lanes x 2 x 745 MHz


@dataclass(frozen=True)
class TableRow:
    """A row of Table 1, and one block of its kernel as worked out from it.

    Attributes:
        layer: layer of inception 3a.
        algorithm: cuDNN's name.
        kernel: the one kernel that the table lists.
        percent: registers, shared memory, threads and blocks of one SM in use, as printed.
        alu_percent: ALU utilisation, as printed.
        stall_percent: memory stalls, as printed.
        resident: blocks on an SM: `percent["blocks"]` of 16.
        registers: registers per thread.
        shared_bytes: shared memory per block.
        recorded: op and start of the name of the H200 recording that gives grid and block dimensions.
    """

    layer: str
    algorithm: str
    kernel: str
    percent: Mapping[str, int]
    alu_percent: float
    stall_percent: float
    resident: int
    registers: int
    shared_bytes: int
    recorded: tuple[str, str]


def percents(registers: int, shared: int, threads: int, blocks: int) -> dict[str, int]:
    """The four resource columns of the table."""
    return {"registers": registers, "shared": shared, "threads": threads, "blocks": blocks}


TABLE_1 = (
    TableRow(
        layer="3x3",
        algorithm="IMPLICIT_PRECOMP_GEMM/FMA",
        kernel="implicit_convolve_sgemm",
        percent=percents(92, 39, 38, 19),
        alu_percent=70,
        stall_percent=0.47,
        resident=3,
        registers=79,
        shared_bytes=6400,
        recorded=("googlenet/3a.3x3/fwd/GEMM/FMA", "explicit_convolve_sgemm<float, int, 128, 6, 7"),
    ),
    TableRow(
        layer="3x3",
        algorithm="FFT_TILING/FMA",
        kernel="fft2d_c2r_32x32",
        percent=percents(38, 75, 25, 6),
        alu_percent=30,
        stall_percent=15.2,
        resident=1,
        registers=48,
        shared_bytes=36864,
        recorded=("googlenet/3a.3x3/fwd/FFT_TILING/FMA", "fft2d_c2r_32x32"),
    ),
    TableRow(
        layer="5x5",
        algorithm="IMPLICIT_PRECOMP_GEMM/FMA",
        kernel="implicit_convolve_sgemm",
        percent=percents(100, 70, 50, 100),
        alu_percent=60,
        stall_percent=0.03,
        resident=16,
        registers=64,
        shared_bytes=2152,
        recorded=(
            "googlenet/3a.5x5/fwd/IMPLICIT_GEMM/FMA",
            "implicit_convolve_sgemm<float, float, 1024, 5, 5",
        ),
    ),
    TableRow(
        layer="5x5",
        algorithm="FFT_TILING/FMA",
        kernel="fft2d_c2r_32x32",
        percent=percents(38, 75, 25, 6),
        alu_percent=20,
        stall_percent=16.5,
        resident=1,
        registers=48,
        shared_bytes=36864,
        recorded=("googlenet/3a.5x5/fwd/FFT_TILING/FMA", "fft2d_c2r_32x32"),
    ),
)


def fft_flop(shape: ConvolutionShape, tile: int = 32) -> float:
    """Operations of the convolution by 2-D FFT of tiles, where one tile holds the whole padded output [D].

    Transforms of input, filter and output planes at 2.5 N log2 N (real, N points), and a complex multiply-add
    (8 operations) for each of tile x (tile/2 + 1) frequencies.
    """
    points = tile * tile
    planes = shape.batch * shape.in_channels + shape.in_channels * shape.out_channels + shape.batch * shape.out_channels
    products = tile * (tile // 2 + 1) * shape.batch * shape.in_channels * shape.out_channels
    return planes * 2.5 * points * math.log2(points) + 8 * products


def table_algorithm(recorded: Recorded, row: TableRow, shape: ConvolutionShape) -> ConvolutionAlgorithm:
    """A row of the table as an algorithm of one kernel on the K40c."""
    op, name = row.recorded
    like = next(kernel for kernel in recorded.kernels(op) if name in kernel.name)
    flop = fft_flop(shape) if row.algorithm.startswith("FFT") else shape.flop
    seconds = flop / (row.alu_percent / 100 * K40C_PEAK_FLOP_PER_S)
    return ConvolutionAlgorithm(
        algorithm=row.algorithm,
        kernels=(
            KernelLaunch(
                name=row.kernel,
                grid=like.grid,
                block=like.block,
                registers_per_thread=row.registers,
                static_shared_memory_bytes=row.shared_bytes,
                duration_us=trimmed(seconds * 1e6),
                mix=Mix(alu_utilisation_percent=row.alu_percent, memory_stall_percent=row.stall_percent),
            ),
        ),
    )


def spaa20_trace(recorded: Recorded) -> Trace:
    """Two convolutions on a K40c from the percentages of a paper's table."""
    selected = {"3x3": "IMPLICIT_PRECOMP_GEMM/FMA", "5x5": "FFT_TILING/FMA"}
    streams = []
    for layer, wanted in selected.items():
        shape = shape_of(recorded.calls[f"googlenet/3a.{layer}"][0])
        found = {row.algorithm: table_algorithm(recorded, row, shape) for row in TABLE_1 if row.layer == layer}
        operation = Convolution(
            id=f"3a.{layer}",
            kind="convolution",
            shape=shape,
            direction="fwd",
            selected=found[wanted],
            alternatives=tuple(other for name, other in found.items() if name != wanted),
        )
        streams.append(Stream(name=layer, operations=(operation,)))
    return Trace(version=1, name="spaa20_table1", device="k40c", notes=SPAA20_NOTES, streams=tuple(streams))


# ---- all of them


def all_traces(recorded: Recorded) -> Iterator[tuple[str, Trace]]:
    """File names and traces."""
    if any(layer.startswith("googlenet16/") for layer in recorded.calls):
        yield from small_traces(recorded)
    elif any(layer.startswith("googlenet_b128/") for layer in recorded.calls):
        for module in DIVIDED_INCEPTIONS:
            trace = micro_batch_trace(recorded, module)
            yield f"{trace.name}.json.gz", trace
    else:
        yield from large_traces(recorded)


def small_traces(recorded: Recorded) -> Iterator[tuple[str, Trace]]:
    """Inception modules at batch 16."""
    for module in SMALL_INCEPTIONS:
        trace = module_trace(recorded, "googlenet16", "inception", module, INCEPTION_BRANCHES)
        trace = trace.model_copy(update={"name": f"{trace.name}_b16"})
        yield f"{trace.name}.json.gz", trace


def large_traces(recorded: Recorded) -> Iterator[tuple[str, Trace]]:
    """Modules at batch 128 and 64, whole GoogLeNet's convolutions, and the pair of the paper's table."""
    for module in INCEPTIONS:
        trace = module_trace(recorded, "googlenet", "inception", module, INCEPTION_BRANCHES)
        yield f"{trace.name}.json.gz", trace
    for block in RESNET_BLOCKS:
        trace = module_trace(recorded, "resnet50", "resnet50", block, RESNET_BRANCHES)
        yield f"{trace.name}.json.gz", trace
    for trace in (pair_trace(recorded), googlenet_trace(recorded)):
        yield f"{trace.name}.json.gz", trace
    yield "spaa20_table1.json", spaa20_trace(recorded)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write every trace; returns the exit code."""
    parser = argparse.ArgumentParser(description="Make the shipped traces from a recorded dataset.")
    parser.add_argument("dataset", type=Path, nargs="+", help="folder with convolutions.csv and kernels.csv.gz")
    parser.add_argument("--out", type=Path, required=True, help="folder to write the traces to")
    options = parser.parse_args(arguments)
    try:
        traces = [made for folder in options.dataset for made in all_traces(read_dataset(folder))]
        options.out.mkdir(parents=True, exist_ok=True)
        for name, trace in traces:
            trace.save(options.out / name)
            size = (options.out / name).stat().st_size
            launches = [len(operation.launches()) for operation in trace.operations()]
            print(f"{options.out / name}: {len(launches)} operations, {sum(launches)} kernels, {size} bytes")
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
