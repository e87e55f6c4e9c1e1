"""Li et al., seven CNN implementations on a K40c, asked again: `python experiments/li2016/run.py [--out DIR]`.

Writes README.md, result.csv and sweeps.png beside itself (or to DIR) from recordings of an H200
(experiments/h200_validation, and sweeps.csv here, which `record.py` made), from the model's occupancy of a K40c, and
from replays with copies.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum
from pathlib import Path

from record import BASIC, DIRECTIONS, SWEEPS, name

import gpusim
from gpusim.common.files import write_text
from gpusim.common.markdown import table as _markdown
from gpusim.hardware.gpu import GPU
from gpusim.lab.dataset import Dataset
from gpusim.results.plots import COLOURS, new_figure, save_figure
from gpusim.trace.format import Trace
from gpusim.trace.operations import Copy, Kernel, Operation, Stream

HERE = Path(__file__).resolve().parent
RECORDED = HERE.parent / "h200_validation" / "data"

LAYERS = ("Conv1", "Conv2", "Conv3", "Conv4", "Conv5")
STRATEGIES = {  # of the forward pass: cuDNN's algorithm that does what the paper's implementations do
    "direct": "IMPLICIT_GEMM",
    "unrolling": "GEMM",
    "unrolling in tiles": "IMPLICIT_PRECOMP_GEMM",
    "FFT": "FFT",
    "FFT in tiles": "FFT_TILING",
    "Winograd": "WINOGRAD_NONFUSED",
}
FAMILIES = {  # of a training iteration: cuDNN names no strategy in its backward algorithms but these
    "GEMM": ("IMPLICIT_GEMM", "IMPLICIT_PRECOMP_GEMM", "GEMM", "ALGO_0", "ALGO_1", "ALGO_3"),
    "FFT": ("FFT", "FFT_TILING"),
    "Winograd": ("WINOGRAD", "WINOGRAD_NONFUSED"),
}

# The paper's Table II, and what its Figure 6 shows of achieved occupancy as its text gives it
TABLE_2 = {  # registers a thread, KB of shared memory a block
    "Caffe": (86, 8.5),
    "cuDNN": (80, 8.4),
    "Torch-cunn": (84, 8.1),
    "Theano-CorrMM": (72, 7.0),
    "cuda-convnet2": (116, 16.0),
    "fbfft": (106, 10.0),
    "Theano-fft": (2, 4.5),
}
ACHIEVED = {"cuDNN": (29, 37), "cuda-convnet2": (14, 22), "Theano-fft": (39, 59)}
MOST_ELSEWHERE = 30  # "less than 30%"
BLOCKS = (64, 128, 256, 512, 1024)  # threads of a block, which the paper does not give
IMAGE_SIZES = {"Conv1": 128, "Conv2": 128, "Conv3": 32, "Conv4": 16, "Conv5": 13}
BATCHES = 8  # in a replay with copies; the first half fills the pipeline


FFT_STEPS = ("GEMM", "transform", "inverse", "flip, transpose")
NETWORK = HERE.parent.parent / "traces" / "googlenet_b128_training.json.gz"


# ---- five layers, as recorded


@dataclass(frozen=True)
class Layer:
    """A layer under a strategy, forward: time and memory, None where cuDNN has it not."""

    layer: str
    strategy: str
    ms: float | None
    workspace_mib: float | None
    memory_mib: float | None


@cache
def recorded() -> Dataset:
    """The recording of the five layers."""
    return Dataset(RECORDED, gpusim.load_gpu("h200"))


def op_name(layer: str, algorithm: str) -> str:
    """An op of the recording."""
    return f"li2016/{layer}/fwd/{algorithm}/FMA"


def layers() -> list[Layer]:
    """Every layer under every strategy."""
    found = []
    for layer in LAYERS:
        for strategy, algorithm in STRATEGIES.items():
            op = op_name(layer, algorithm)
            if op not in recorded().calls or not recorded().supported(op):
                found.append(Layer(layer, strategy, None, None, None))
                continue
            row = recorded().calls[op]
            workspace, tensors = int(row["workspace_bytes"]), int(row["tensor_bytes"])
            found.append(Layer(layer, strategy, recorded().op(op).ms, workspace / 2**20, (workspace + tensors) / 2**20))
    return found


PARTS = {  # of a kernel's name, in this order
    "transform": ("fft2d_r2c", "regular_fft_pad", "vector_fft<0"),
    "inverse": ("fft2d_c2r", "regular_fft_clip", "vector_fft<1"),
    "unrolling": ("im2col",),
    "flip, transpose": ("flip", "transpose", "nchwTo", "ToNchw", "region_transform"),
    "Winograd transform": ("winograd",),
    "GEMM": ("gemm", "convolve", "pointwise_mult_and_sum_complex"),
}


def part_of(kernel: str) -> str:
    """What a kernel does for its convolution, by its name."""
    for part, words in PARTS.items():
        if any(word in kernel for word in words):
            return part
    return "other"


def hotspots(layer: str, algorithm: str) -> dict[str, float]:
    """Share of the kernels' time, percent, by what they do."""
    kernels = recorded().op(op_name(layer, algorithm)).kernels
    total = fsum(kernel.duration_us for kernel in kernels)
    found: dict[str, float] = {}
    for kernel in kernels:
        part = part_of(kernel.name)
        found[part] = found.get(part, 0.0) + 100.0 * kernel.duration_us / total
    return found


# ---- occupancy


def theoretical(implementation: str, threads: int) -> float:
    """Occupancy of a K40c (percent) by the paper's registers and shared memory, for a block of so many threads."""
    registers, shared_kb = TABLE_2[implementation]
    gpu = gpusim.load_gpu("k40c")
    fits = gpusim.occupancy(
        gpu, threads_per_block=threads, registers_per_thread=registers, shared_memory_per_block=round(shared_kb * 1024)
    )
    return 100.0 * fits.blocks_per_sm * -(-threads // gpu.limits.warp_size) / gpu.limits.max_warps_per_sm


def achieved(implementation: str) -> tuple[float, float]:
    """Percent that the paper measured: at least and at most, as far as its text says."""
    return ACHIEVED.get(implementation, (0, MOST_ELSEWHERE))


# ---- transfers


def copied(layer: str, how: str) -> Trace:
    """Batches of one layer, each with a copy of its images from the host before the fastest FP32 algorithm's kernels.

    Args:
        layer: of the paper's Table I.
        how: ``none``; ``pageable`` or ``pinned``: one after the other in one stream; ``prefetched``: pinned, in a
            stream of their own, one batch ahead.
    """
    algorithms = [a for a in STRATEGIES.values() if recorded().supported(op_name(layer, a))]
    op = min((recorded().op(op_name(layer, a)) for a in algorithms), key=lambda op: op.ms)
    images = int(recorded().calls[op.name]["in_channels"]) * IMAGE_SIZES[layer] ** 2 * 4 * 128
    main: list[Operation] = []
    copies: list[Operation] = []
    for b in range(BATCHES):
        waits = (f"b{b - 2}.k{len(op.kernels) - 1}",) if how == "prefetched" and b > 1 else ()
        memory = "pageable" if how == "pageable" else "pinned"
        copy = Copy.model_validate(
            {"id": f"b{b}.copy", "kind": "copy", "direction": "h2d", "memory": memory, "bytes": images}
            | {"depends_on": waits}
        )
        (copies if how == "prefetched" else main).append(copy)
        for k, kernel in enumerate(op.kernels):
            before = (copy.id,) if how == "prefetched" and k == 0 else ()
            launch = kernel.model_copy(update={"stream": "main"})
            main.append(Kernel(id=f"b{b}.k{k}", kind="kernel", depends_on=before, kernel=launch))
    if how == "none":
        main = [one for one in main if not isinstance(one, Copy)]
    streams = [Stream(name="main", operations=tuple(main))]
    if copies:
        streams.append(Stream(name="copies", operations=tuple(copies)))
    return Trace(version=1, name=f"{layer}_{how}", device="h200", streams=tuple(streams))


def transfer_percent(layer: str, how: str, gpu: GPU) -> float:
    """Share of a batch's time, percent, by which copies lengthen it, once batches follow one another."""
    times = [_batch_us(copied(layer, h), gpu) for h in (how, "none")]
    return 100.0 * (times[0] - times[1]) / times[0]


def _batch_us(trace: Trace, gpu: GPU) -> float:
    result = gpusim.replay(trace, gpu, "leftover", keep=())
    ends = [0.0] * BATCHES
    for run in result.operation_runs:
        batch = int(run.operation[1:].split(".")[0])
        ends[batch] = max(ends[batch], run.end_us)
    return (ends[-1] - ends[BATCHES // 2 - 1]) / (BATCHES - BATCHES // 2)


# ---- sweeps


@dataclass(frozen=True)
class Point:
    """A training iteration of one shape under a family of algorithms; None where a direction has none of them."""

    shape: str
    family: str
    ms: float | None
    memory_mib: float | None


@cache
def sweeps() -> dict[str, Mapping[str, str]]:
    """Rows of sweeps.csv by op."""
    with open(HERE / "sweeps.csv", encoding="utf-8", newline="") as file:
        return {row["op"]: row for row in csv.DictReader(file)}


def point(shape: str, family: str) -> Point:
    """The fastest of a family in each of the three directions; memory of the direction that needs most."""
    ms, memory = 0.0, 0.0
    for direction in DIRECTIONS:
        rows = [sweeps().get(f"li2016/{shape}/{direction}/{algorithm}/FMA") for algorithm in FAMILIES[family]]
        usable = [row for row in rows if row is not None and row["supported"] == "True"]
        if not usable:
            return Point(shape, family, None, None)
        fastest = min(usable, key=lambda row: float(row["ms_stream_run1"]))
        ms += float(fastest["ms_stream_run1"])
        memory = max(memory, (int(fastest["workspace_bytes"]) + int(fastest["tensor_bytes"])) / 2**20)
    return Point(shape, family, ms, memory)


def points(what: str) -> list[tuple[int, dict[str, Point]]]:
    """A sweep: for each value every family; values that were not recorded are left out."""
    found = []
    for value in SWEEPS[what]:
        shape = name(BASIC | {what: value})
        if any(op.startswith(f"li2016/{shape}/bwd_filter/") for op in sweeps()):
            found.append((value, {family: point(shape, family) for family in FAMILIES}))
    return found


# ---- what it shows


def convolution_percent() -> float:
    """Share of convolutions in the kernels' time of a recorded training iteration of GoogLeNet."""
    trace = gpusim.load_trace(NETWORK)
    times = [(op.kind, fsum(one.duration_us for one in op.launches())) for op in trace.operations()]
    return 100.0 * fsum(us for kind, us in times if kind == "convolution") / fsum(us for _, us in times)


def gains(what: str, least: int = 0, most: int = 10**9) -> list[float]:
    """How many times as fast as GEMM the FFT family is, for the values of a sweep in a range."""
    found = []
    for value, families in points(what):
        gemm, fft = families["GEMM"].ms, families["FFT"].ms
        if gemm is not None and fft is not None and least <= value <= most:
            found.append(gemm / fft)
    return found


def memory_ratios() -> list[float]:
    """Memory of the FFT family over that of the GEMM family, all shapes swept that have both."""
    found = []
    for what in SWEEPS:
        for _, families in points(what):
            gemm, fft = families["GEMM"].memory_mib, families["FFT"].memory_mib
            if gemm is not None and fft is not None:
                found.append(fft / gemm)
    return found


def _range(values: Sequence[float], digits: int = 1, unit: str = "x") -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def _fastest(rows: Sequence[Layer], layer: str) -> str:
    timed = [(row.ms, row.strategy) for row in rows if row.layer == layer and row.ms is not None]
    return min(timed)[1]


def agreement(rows: Sequence[Layer], transfers: Mapping[tuple[str, str], float]) -> list[tuple[str, str, str, str]]:
    """What the paper says, what comes out here, whether they agree, and why."""
    sizes, filters, small, large = gains("size"), gains("filters"), gains("kernel", 3, 6), gains("kernel", 8)
    fft, gemm = (_growth(family) for family in ("FFT", "GEMM"))
    strides = [value for value, one in points("stride") if one["FFT"].ms is not None]
    winners = {layer: _fastest(rows, layer) for layer in LAYERS}
    unrolled = [hotspots(layer, "GEMM")["GEMM"] for layer in LAYERS]
    steps = [fsum(hotspots(layer, "FFT").get(part, 0.0) for part in FFT_STEPS) for layer in LAYERS]
    direct = [row.workspace_mib for row in rows if row.strategy == "direct"]
    most_memory = [layer for layer in LAYERS if _most_memory(rows, layer).startswith("FFT")]
    room = {name: max(theoretical(name, threads) for threads in BLOCKS) for name in TABLE_2}
    beyond = [name for name, (_, high) in ACHIEVED.items() if room[name] < high]
    warps = round(room["cuda-convnet2"] * 0.64)
    hidden = [layer for layer in LAYERS if transfers[layer, "prefetched"] < 1.0]
    pinned = [transfers[layer, "pageable"] - transfers[layer, "pinned"] for layer in LAYERS]
    few, many = _explicit(64), _explicit(256)
    layers_share = convolution_percent()
    return [
        (
            "fig. 2: convolutions take 86 % of GoogLeNet's time",
            f"{layers_share:.0f} %",
            _yes(layers_share > 80),
            "a training iteration of batch 128, each convolution by its fastest algorithm, TF32 allowed: convolutions "
            "have got faster by more than the layers between them",
        ),
        (
            "fig. 3b: FFT is 1.4 to 9.7x as fast at any input size, filter 11",
            _range(sizes),
            _yes(min(sizes) > 1),
            "the fastest FFT of cuDNN over its fastest GEMM, a training iteration, batch 64",
        ),
        (
            "fig. 3c: FFT is 1.19 to 5.1x as fast at any number of filters",
            _range(filters),
            _yes(min(filters) > 1),
            "32 to 256 filters; the paper goes to 512",
        ),
        (
            "fig. 3d: below a filter of 7 GEMM is faster, by 1.21 to 2.62x",
            _range([1 / gain for gain in small]),
            _yes(max(small) < 1),
            "filters of 3 and 5",
        ),
        (
            "fig. 3d: above 7 FFT is faster, by 1.15 to 19x",
            _range(large),
            _yes(min(large) > 1),
            f"filters of 9 to 15; at 7 itself {gains('kernel', 7, 7)[0]:.1f}x",
        ),
        (
            "fig. 3d: FFT's time hardly depends on the filter",
            f"grows {fft:.1f}x, GEMM's {gemm:.0f}x",
            _yes(fft < 2 < gemm),
            "filters of 3 to 15",
        ),
        (
            "fig. 3c: with over 160 filters explicit unrolling is slightly faster than cuDNN's",
            f"{1 / few:.2f}x as fast with 64, {1 / many:.2f}x with 256",
            _yes(few > 1 > many),
            "forward: cuDNN's GEMM against its IMPLICIT_PRECOMP_GEMM",
        ),
        (
            "fig. 3e: FFT needs a stride of 1",
            f"is there for {', '.join(map(str, strides))} of 1, 2, 3, 4",
            _yes(strides == [1]),
            "as cuDNN supports it",
        ),
        (
            "no single implementation is the fastest",
            "; ".join(f"{layer} {winner}" for layer, winner in winners.items()),
            _yes(len(set(winners.values())) > 1),
            "Table I's layers, forward; Winograd came after the paper",
        ),
        (
            "fig. 4: GEMM takes 80 to 87 % of unrolling",
            _range(unrolled, 0, " %"),
            _yes(min(unrolled) > 75),
            "Table I's layers, forward",
        ),
        (
            "fig. 4: GEMM, transforms, inverse and transposes are most of FFT",
            _range(steps, 0, " %"),
            _yes(min(steps) > 50),
            "likewise",
        ),
        (
            "fig. 5: direct convolution needs least memory",
            f"a workspace of {max(one for one in direct if one is not None):.0f}",
            _yes(not any(direct)),
            "IMPLICIT_GEMM, which reads its windows in place",
        ),
        (
            "fig. 5: FFT needs more than unrolling and direct convolution",
            f"{_range(memory_ratios())} of GEMM's",
            _yes(min(memory_ratios()) > 1),
            "all shapes swept, the fastest of each family",
        ),
        (
            "… also than explicit unrolling",
            f"in {len(most_memory)} of {len(LAYERS)} layers",
            _yes(len(most_memory) == len(LAYERS)),
            "Table I's, forward: cuDNN's GEMM unrolls a whole batch at once; the paper's need not",
        ),
        (
            "table II, fig. 6: less is achieved than registers and shared memory allow",
            f"not in {', '.join(beyond)}" if beyond else "in all three of which the text gives a range",
            _yes(not beyond),
            "for the best size of a block, which the paper does not give",
        ),
        (
            "116 registers leave cuda-convnet2 17 warps of 64",
            str(warps),
            _yes(abs(warps - 17) <= 1),
            "registers come in units of 256 for a warp, and each part of an SM has a quarter of them",
        ),
        (
            "fig. 7: copies that are prefetched cost almost nothing",
            f"hidden in {', '.join(hidden) or 'none'}",
            _yes(len(hidden) == len(LAYERS)),
            "an H200 does the deeper layers, forward only, before their input has come",
        ),
        (
            "pinned memory lessens the cost",
            f"by {_range(pinned, 0, ' points')}",
            _yes(min(pinned) > 0),
            "of the share of a batch's time",
        ),
    ]


def _growth(family: str) -> float:
    """Longest over shortest time of a family in the sweep of filter sizes."""
    times = [ms for _, families in points("kernel") if (ms := families[family].ms) is not None]
    return max(times) / min(times)


def _yes(agrees: bool) -> str:
    return "yes" if agrees else "no"


def _explicit(filters: int) -> float:
    """How many times as long as cuDNN's tiles unrolling takes, forward."""
    shape = name(BASIC | {"filters": filters})
    return _forward(shape, "GEMM") / _forward(shape, "IMPLICIT_PRECOMP_GEMM")


def _forward(shape: str, algorithm: str) -> float:
    return float(sweeps()[f"li2016/{shape}/fwd/{algorithm}/FMA"]["ms_stream_run1"])


def _most_memory(rows: Sequence[Layer], layer: str) -> str:
    return max((row.memory_mib, row.strategy) for row in rows if row.layer == layer and row.memory_mib is not None)[1]


TEXT = """# Li et al.: seven CNN implementations, asked again

    python experiments/li2016/run.py

Li, Zhang, Huang, Wang and Zheng (ICPP 2016) compare seven implementations of convolution on a Tesla K40c: which is
fastest for which shape, where its time goes, what it needs of memory, registers and the bus. Their implementations
are of three strategies, direct, unrolling (GEMM) and FFT. cuDNN has an algorithm for each, and Winograd's: those
were recorded on an H200, and stand here for the strategies.

## What they say, and what is found here

{agreement}

Times and memory of an H200 are measured, those of the sweeps by `record.py` (FP32, no tensor cores; three input
channels, which the paper does not give). Occupancies are of the model's K40c. Shares of copies are replayed, from the
measured kernels of a layer and the measured copies of gpus/h200.toml. Not recorded: other batch sizes than 64 in the
sweeps (the paper: 32 to 512), over 256 filters, and the backward passes of Table I's layers. Speedups agree where they
have the same sign; how large they are is another GPU's and another decade's.

## Table I's layers, forward

{layers}

Time in ms / workspace in MiB. An empty cell: cuDNN has no such algorithm for the shape.

![sweeps](sweeps.png)

## Where the time goes

{hotspots}

Percent of the kernels' time, forward.

## Occupancy of a K40c

{occupancy}

Percent of 64 warps that registers a thread and shared memory a block of the paper's Table II leave room for, by the
size of a block, which the table does not give.

## Copies

{transfers}

Percent of a batch's time that copying its images from the host costs, each layer with its fastest FP32 algorithm,
forward only. In a network only the first layer has its input from the host; the paper, too, measures each layer by
itself.
"""


def report(rows: Sequence[Layer], transfers: Mapping[tuple[str, str], float]) -> str:
    """The page."""
    cells = {(row.layer, row.strategy): row for row in rows}
    return TEXT.format(
        agreement=_markdown(("the paper", "here", "agree", "why"), agreement(rows, transfers)),
        layers=_markdown(
            ("layer", *STRATEGIES), [(layer, *(_cell(cells[layer, s]) for s in STRATEGIES)) for layer in LAYERS]
        ),
        hotspots=_markdown(
            ("layer", "algorithm", *PARTS),
            [
                (layer, algorithm, *(f"{found[part]:.0f}" if part in found else "" for part in PARTS))
                for layer in LAYERS
                for algorithm in ("GEMM", "FFT", "FFT_TILING", "WINOGRAD_NONFUSED")
                if recorded().supported(op_name(layer, algorithm))
                for found in [hotspots(layer, algorithm)]
            ],
        ),
        occupancy=_markdown(
            ("implementation", "registers", "shared KB", *(f"{n} threads" for n in BLOCKS), "paper: achieved"),
            [
                (
                    name,
                    str(registers),
                    f"{shared:g}",
                    *(f"{theoretical(name, threads):.1f}" for threads in BLOCKS),
                    f"{achieved(name)[0]} to {achieved(name)[1]}" if name in ACHIEVED else f"under {MOST_ELSEWHERE}",
                )
                for name, (registers, shared) in TABLE_2.items()
            ],
        ),
        transfers=_markdown(
            ("layer", "pageable", "pinned", "pinned, prefetched"),
            [(layer, *(f"{abs(transfers[layer, how]):.0f}" for how in HOW)) for layer in LAYERS],
        ),
    )


HOW = ("pageable", "pinned", "prefetched")


def _cell(row: Layer) -> str:
    return "" if row.ms is None or row.workspace_mib is None else f"{row.ms:.2f} / {row.workspace_mib:,.0f}"


def table_csv(rows: Sequence[Layer], transfers: Mapping[tuple[str, str], float]) -> str:
    """Layers, sweeps and transfers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["what", "shape", "by", "ms", "memory_mib", "percent"])
    for row in rows:
        if row.ms is not None:
            writer.writerow(["forward", row.layer, row.strategy, f"{row.ms:.6g}", f"{row.memory_mib:.6g}", ""])
    for what in SWEEPS:
        for _, families in points(what):
            for family, one in families.items():
                if one.ms is not None:
                    writer.writerow(
                        [f"training, by {what}", one.shape, family, f"{one.ms:.6g}", f"{one.memory_mib:.6g}", ""]
                    )
    for (layer, how), percent in transfers.items():
        writer.writerow(["copies", layer, how, "", "", f"{percent:.4g}"])
    return text.getvalue()


def draw(path: Path) -> None:
    """Time and memory of a training iteration against what is swept."""
    labels = {"kernel": "filter size", "size": "input size", "filters": "filters", "stride": "stride"}
    with new_figure(11.0, 5.6) as figure:
        for column, (what, label) in enumerate(labels.items()):
            for row, unit in enumerate(("ms", "memory_mib")):
                axes = figure.add_subplot(2, 4, 1 + column + 4 * row)
                for colour, family in zip(COLOURS, FAMILIES, strict=False):
                    some = [(v, getattr(f[family], unit)) for v, f in points(what) if f[family].ms is not None]
                    axes.plot(*zip(*some, strict=True) if some else ((), ()), marker="o", markersize=3.5, color=colour,
                              label=family)  # fmt: skip
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
                axes.yaxis.set_minor_formatter(lambda value, _: "")
                axes.grid(color="#D8D8D8", linewidth=0.6)
                axes.set_xlabel(label)
                if column == 0:
                    axes.set_ylabel("ms" if unit == "ms" else "MiB")
                    axes.legend(fontsize=8)
        figure.subplots_adjust(left=0.07, right=0.98, bottom=0.1, top=0.9, wspace=0.3, hspace=0.35)
        figure.suptitle("A training iteration of a layer, H200, FP32: (64, 128, 64, 11, 1) but for one", fontsize=10)
        save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the study and writes what it shows."""
    parser = argparse.ArgumentParser(description="Li et al., seven CNN implementations, asked again")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this file)")
    write_page(parser.parse_args(argv).out)
    return 0


def write_page(folder: Path) -> None:
    """The table, README.md and the picture."""
    rows, gpu = layers(), gpusim.load_gpu("h200")
    transfers = {(layer, how): transfer_percent(layer, how, gpu) for layer in LAYERS for how in HOW}
    for file_name, text in (("README.md", report(rows, transfers)), ("result.csv", table_csv(rows, transfers))):
        write_text(folder / file_name, text)
    draw(folder / "sweeps.png")


if __name__ == "__main__":
    raise SystemExit(main())
