"""Li et al., seven CNN implementations on a K40c, asked again: `python experiments/li2016/run.py [--out DIR]`.

Writes README.md, result.csv and sweeps.png beside itself (or to DIR) from recordings of an H200
(experiments/h200_validation, and sweeps.csv here, which `record.py` made), from the model's occupancy of a K40c, and
from replays with copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, nan
from pathlib import Path

import gpusim
from experiments.li2016 import more
from experiments.li2016.record import BASIC, DIRECTIONS, SWEEPS, name
from experiments.markdown import table
from experiments.rows import lines
from experiments.study import RECORDED, TRACES, Run, Study
from gpusim.hardware.gpu import GPU
from gpusim.lab.dataset import Dataset
from gpusim.results.style import (
    COLOURS,
    MARKERS,
    PAGE,
    Style,
    grid,
    legend_below,
    new_figure,
    save_figure,
    styled,
    titled,
)
from gpusim.trace.format import Trace
from gpusim.trace.operations import Copy, Kernel, Operation, Stream

HERE = Path(__file__).resolve().parent

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
COPIES = "copies"
BATCHES = 8  # in a replay with copies; the first half fills the pipeline


FFT_STEPS = ("GEMM", "transform", "inverse", "flip, transpose")
NETWORK = TRACES / "googlenet_b128_training.json.gz"
HOW = ("pageable", "pinned", "prefetched")  # copies


@dataclass(frozen=True)
class Row:
    """A number of the table.

    Attributes:
        what: a layer forward, a training iteration by what is swept, or copies.
        shape: the layer, or the shape.
        by: strategy, family of algorithms, or way to copy.
        ms: time.
        memory_mib: tensors and workspace.
        percent: of a batch's time that copies cost.
    """

    what: str
    shape: str
    by: str
    ms: float
    memory_mib: float
    percent: float


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
    return {row["op"]: row for row in lines(HERE / "sweeps.csv")}


def point(shape: str, family: str) -> Point:
    """The fastest of a family in each of the three directions; memory of the direction that needs most."""
    ms, memory = 0.0, 0.0
    for direction in DIRECTIONS:
        found = [sweeps().get(f"li2016/{shape}/{direction}/{algorithm}/FMA") for algorithm in FAMILIES[family]]
        usable = [row for row in found if row is not None and row["supported"] == "True"]
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


def fft_memory() -> list[float]:
    """Memory of the FFT family, MiB, all shapes swept that have it."""
    every = [families["FFT"].memory_mib for what in SWEEPS for _, families in points(what)]
    return [one for one in every if one is not None]


def _range(values: Sequence[float], digits: int = 1, unit: str = "x") -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def _fastest(rows: Sequence[Layer], layer: str) -> str:
    timed = [(row.ms, row.strategy) for row in rows if row.layer == layer and row.ms is not None]
    return min(timed)[1]


def page(table_rows: Sequence[Row]) -> dict[str, object]:
    """What the page says: of copies from the table, of all else from the recordings and the model's K40c."""
    rows = layers()
    transfers = {(row.shape, row.by): row.percent for row in table_rows if row.what == COPIES}
    return {
        "layer_table": layer_table(rows),
        "hotspots": hotspot_table(),
        "occupancy": occupancy_table(),
        "transfers": table(
            ("layer", "pageable", "pinned", "pinned, prefetched"),
            [(layer, *(f"{abs(transfers[layer, how]):.0f}" for how in HOW)) for layer in LAYERS],
        ),
        **sweep_agreement(),
        **layer_agreement(rows),
        **gpu_agreement(transfers),
        **more.page(LAYERS, STRATEGIES, FAMILIES),
    }


def sweep_agreement() -> dict[str, object]:
    """What the sweeps say, and whether the paper says so."""
    sizes, filters, small, large = gains("size"), gains("filters"), gains("kernel", 3, 6), gains("kernel", 8)
    fft, gemm = (_growth(family) for family in ("FFT", "GEMM"))
    strides = [value for value, one in points("stride") if one["FFT"].ms is not None]
    few, many = _explicit(64), _explicit(256)
    return {
        "sizes": _range(sizes),
        "fig3b": _yes(min(sizes) > 1),
        "filters": _range(filters),
        "fig3c": _yes(min(filters) > 1),
        "small": _range([1 / gain for gain in small]),
        "fig3d_small": _yes(max(small) < 1),
        "large": _range(large),
        "fig3d_large": _yes(min(large) > 1),
        "at_7": gains("kernel", 7, 7)[0],
        "fft": fft,
        "gemm": gemm,
        "fig3d_growth": _yes(fft < 2 < gemm),
        "few": 1 / few,
        "many": 1 / many,
        "fig3c_unrolled": _yes(few > 1 > many),
        "strides": ", ".join(map(str, strides)),
        "fig3e": _yes(strides == [1]),
        "memory": _range(memory_ratios()),
        "fig5_fft": _yes(min(memory_ratios()) > 1),
        "fft_memory": f"{min(fft_memory()):,.0f} to {max(fft_memory()):,.0f} MiB",
        "fig5_fft_range": _yes(min(fft_memory()) > 1632 and max(fft_memory()) < 10866),
        **batch_agreement(),
    }


def batch_agreement() -> dict[str, object]:
    """What Fig. 3a says of batches, and what was recorded of it: filters of 11 at two batches, forward."""
    sums = {
        family: min(_forward(name(BASIC), one) for one in names if _swept(name(BASIC), one))
        for family, names in FAMILIES.items()
        if family != "Winograd"
    }
    conv1 = {row.strategy: row.ms for row in layers() if row.layer == "Conv1" and row.ms is not None}
    of_gemm, of_fft = (min(ms for name, ms in conv1.items() if ("FFT" in name) == is_fft) for is_fft in (False, True))
    at_64, at_128 = sums["GEMM"] / sums["FFT"], of_gemm / of_fft
    return {"at_64": at_64, "at_128": at_128, "fig3a": _yes(min(at_64, at_128) > 1)}


def layer_agreement(rows: Sequence[Layer]) -> dict[str, object]:
    """What Table I's layers say, and whether the paper says so."""
    winners = {layer: _fastest(rows, layer) for layer in LAYERS}
    unrolled = [hotspots(layer, "GEMM")["GEMM"] for layer in LAYERS]
    steps = [fsum(hotspots(layer, "FFT").get(part, 0.0) for part in FFT_STEPS) for layer in LAYERS]
    direct = [row.workspace_mib or 0.0 for row in rows if row.strategy == "direct"]
    most_memory = [layer for layer in LAYERS if _most_memory(rows, layer).startswith("FFT")]
    return {
        "winners": "; ".join(f"{layer} {winner}" for layer, winner in winners.items()),
        "no_single": _yes(len(set(winners.values())) > 1),
        "unrolled": _range(unrolled, 0, " %"),
        "fig4_gemm": _yes(min(unrolled) > 75),
        "steps": _range(steps, 0, " %"),
        "fig4_fft": _yes(min(steps) > 50),
        "direct": max(direct),
        "fig5_direct": _yes(not any(direct)),
        "most_memory": len(most_memory),
        "layers": len(LAYERS),
        "fig5_unrolled": _yes(len(most_memory) == len(LAYERS)),
    }


def gpu_agreement(transfers: Mapping[tuple[str, str], float]) -> dict[str, object]:
    """What a training iteration, a K40c's SMs and copies say, and whether the paper says so."""
    room = {name: max(theoretical(name, threads) for threads in BLOCKS) for name in TABLE_2}
    beyond = [name for name, (_, high) in ACHIEVED.items() if room[name] < high]
    warps = round(room["cuda-convnet2"] * 0.64)
    hidden = [layer for layer in LAYERS if transfers[layer, "prefetched"] < 1.0]
    pinned = [transfers[layer, "pageable"] - transfers[layer, "pinned"] for layer in LAYERS]
    layers_share = convolution_percent()
    return {
        "layers_share": layers_share,
        "fig2": _yes(layers_share > 80),
        "beyond": f"not in {', '.join(beyond)}" if beyond else "in all three of which the text gives a range",
        "fig6": _yes(not beyond),
        "warps": warps,
        "warps_agree": _yes(abs(warps - 17) <= 1),
        "hidden": ", ".join(hidden) or "none",
        "fig7": _yes(len(hidden) == len(LAYERS)),
        "pinned": _range(pinned, 0, " points"),
        "pinned_agree": _yes(min(pinned) > 0),
    }


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


def _swept(shape: str, algorithm: str) -> bool:
    return sweeps().get(f"li2016/{shape}/fwd/{algorithm}/FMA", {"supported": ""})["supported"] == "True"


def _forward(shape: str, algorithm: str) -> float:
    return float(sweeps()[f"li2016/{shape}/fwd/{algorithm}/FMA"]["ms_stream_run1"])


def _most_memory(rows: Sequence[Layer], layer: str) -> str:
    return max((row.memory_mib, row.strategy) for row in rows if row.layer == layer and row.memory_mib is not None)[1]


def layer_table(rows: Sequence[Layer]) -> str:
    """Time and workspace of every layer under every strategy."""
    cells = {(row.layer, row.strategy): row for row in rows}
    return table(("layer", *STRATEGIES), [(layer, *(_cell(cells[layer, s]) for s in STRATEGIES)) for layer in LAYERS])


def hotspot_table() -> str:
    """What the kernels of every layer do."""
    cells = [
        (layer, algorithm, *(f"{found[part]:.0f}" if part in found else "" for part in PARTS))
        for layer in LAYERS
        for algorithm in ("GEMM", "FFT", "FFT_TILING", "WINOGRAD_NONFUSED")
        if recorded().supported(op_name(layer, algorithm))
        for found in [hotspots(layer, algorithm)]
    ]
    return table(("layer", "algorithm", *PARTS), cells)


def occupancy_table() -> str:
    """Occupancy of a K40c by the paper's table."""
    cells = [
        (
            name,
            str(registers),
            f"{shared:g}",
            *(f"{theoretical(name, threads):.1f}" for threads in BLOCKS),
            f"{achieved(name)[0]} to {achieved(name)[1]}" if name in ACHIEVED else f"under {MOST_ELSEWHERE}",
        )
        for name, (registers, shared) in TABLE_2.items()
    ]
    threads = (f"{n} threads" for n in BLOCKS)
    return table(("implementation", "registers", "shared KB", *threads, "paper: achieved"), cells)


def _cell(row: Layer) -> str:
    return "" if row.ms is None or row.workspace_mib is None else f"{row.ms:.2f} / {row.workspace_mib:,.0f}"


def rows(run: Run) -> dict[str, list[Row]]:
    """Layers, sweeps and copies."""
    gpu = gpusim.load_gpu("h200")
    found = [
        Row("forward", row.layer, row.strategy, row.ms, row.memory_mib, nan) for row in layers() if row.ms is not None
    ]
    found += [
        Row(f"training, by {what}", one.shape, family, one.ms, one.memory_mib, nan)
        for what in SWEEPS
        for _, families in points(what)
        for family, one in families.items()
        if one.ms is not None
    ]
    copies = [(layer, how) for layer in LAYERS for how in HOW]
    found += [Row(COPIES, *one, nan, nan, float(f"{transfer_percent(*one, gpu):.4g}")) for one in copies]
    return {"result.csv": found}


def draw(_: Sequence[Row], path: Path) -> None:
    """Time and memory of a training iteration against what is swept."""
    labels = {"kernel": "Filter size", "size": "Input size", "filters": "Filters", "stride": "Stride"}
    with styled(Style(PAGE)), new_figure(3.6) as figure:
        panels = figure.subplots(2, 4, sharex="col")
        for column, (what, label) in enumerate(labels.items()):
            for row, unit in enumerate(("ms", "memory_mib")):
                axes = panels[row][column]
                for colour, marker, family in zip(COLOURS, MARKERS, FAMILIES, strict=False):
                    some = [(v, getattr(f[family], unit)) for v, f in points(what) if f[family].ms is not None]
                    axes.plot(*zip(*some, strict=True) if some else ((), ()), marker=marker, markersize=3, color=colour,
                              label=family)  # fmt: skip
                axes.set_yscale("log")
                axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
                axes.yaxis.set_minor_formatter(lambda value, _: "")
                grid(axes)
                axes.set_xlabel(label if row else "")
                if column == 0:
                    axes.set_ylabel("Time (ms)" if unit == "ms" else "Memory (MiB)")
        titled(figure, "A training iteration of a layer on an H200 in FP32: (64, 128, 64, 11, 1) but for one")
        legend_below(figure, panels[0][0], 4)
        save_figure(figure, path)


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, page, {"sweeps.png": draw})

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
