"""Two claims of SPAA'20 on all algorithms that were recorded on an H200: low utilisation, and workspace against time.

The paper profiles "numerous convolutions" on a K40 and gives no numbers: efficiency and DRAM utilisation are "not high
enough (e.g. less than 50 %)", and there is "no strong correlation between the execution time and workspace memory".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from pathlib import Path
from statistics import median

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import RECORDED
from gpusim.hardware.gpu import load_gpu

HALF = 0.5
FOLDERS = (RECORDED, RECORDED / "small", RECORDED / "networks", RECORDED / "choices")
FEWEST = 4  # algorithms of a convolution, for a correlation among them


@dataclass(frozen=True)
class Algorithm:
    """An algorithm of a forward convolution, as recorded on an H200.

    Attributes:
        network: and its batch.
        batch: images.
        layer: the convolution.
        algorithm: cuDNN's name and the arithmetic.
        ms: of a call.
        workspace_mb: 10^6 bytes.
        efficiency: operations of the direct convolution over what the arithmetic can do in that time, 0 to 1 and more.
        dram: mean share of DRAM's bandwidth that its kernels use, 0 to 1.
    """

    network: str
    batch: int
    layer: str
    algorithm: str
    ms: float
    workspace_mb: float
    efficiency: float
    dram: float


def recorded() -> list[Algorithm]:
    """Every profiled algorithm of every forward convolution."""
    gpu = load_gpu("h200")
    peaks = {"FMA": gpu.fp32_peak_tflops, "TF32": gpu.tensor_tf32_tflops}
    found: dict[str, Algorithm] = {}
    for folder in FOLDERS:
        dram = _dram(folder)
        for line in lines(folder / "convolutions.csv"):
            op = line["op"]
            if line["supported"] != "True" or op not in dram or line["direction"] != "fwd":
                continue
            ms = (float(line["ms_stream_run1"]) + float(line["ms_stream_run2"])) / 2
            peak = (peaks[line["math"]] or 0.0) * 1e9  # operations a millisecond
            found[op] = Algorithm(
                line["network"],
                int(line["batch"]),
                line["layer"],
                f"{line['algorithm']}/{line['math']}",
                ms,
                float(line["workspace_bytes"]) / 1e6,
                float(line["flop"]) / (ms * peak),
                dram[op],
            )
    return list(found.values())


def _dram(folder: Path) -> dict[str, float]:
    """Mean DRAM utilisation of each profiled op, over the time of its kernels."""
    times: dict[str, list[tuple[float, float]]] = {}
    for line in lines(folder / "kernels.csv.gz"):
        busy = float(line["gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"]) / 100.0
        times.setdefault(line["op"], []).append((float(line["gpu__time_duration.sum"]), busy))
    return {op: fsum(ns * busy for ns, busy in found) / fsum(ns for ns, _ in found) for op, found in times.items()}


# ---- statistics ------------------------------------------------------------------------------------------------------


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value; equal ones have the mean of their ranks."""
    order = sorted(range(len(values)), key=lambda at: values[at])
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for at in order[start:end]:
            found[at] = (start + end - 1) / 2.0
        start = end
    return found


def correlation(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where one of the two is the same throughout."""
    a, b = ranks(x), ranks(y)
    mean = (len(a) - 1) / 2.0
    spread = sqrt(fsum((one - mean) ** 2 for one in a) * fsum((one - mean) ** 2 for one in b))
    return fsum((one - mean) * (other - mean) for one, other in zip(a, b, strict=True)) / spread if spread else None


def by_layer(rows: Sequence[Algorithm]) -> dict[tuple[str, int, str], list[Algorithm]]:
    """The algorithms of each convolution."""
    found: dict[tuple[str, int, str], list[Algorithm]] = {}
    for row in rows:
        found.setdefault((row.network, row.batch, row.layer), []).append(row)
    return found


def fastest(rows: Sequence[Algorithm]) -> list[Algorithm]:
    """The fastest algorithm of each convolution."""
    return [min(found, key=lambda row: row.ms) for found in by_layer(rows).values()]


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Algorithm]) -> dict[str, object]:
    """What the page says of both claims."""
    within = [
        found
        for mine in by_layer(rows).values()
        if len(mine) >= FEWEST
        and (found := correlation([row.ms for row in mine], [row.workspace_mb for row in mine])) is not None
    ]
    pooled = correlation([row.ms for row in rows], [row.workspace_mb for row in rows])
    return {
        "algorithms": len(rows),
        "convolutions": len(by_layer(rows)),
        "low": utilisation_table(rows),
        "both_low": 100 * _share(fastest(rows), lambda row: row.efficiency < HALF and row.dram < HALF),
        "pooled": pooled or 0.0,
        "within": median(within),
        "layers": len(within),
        "negative": sum(one < 0.0 for one in within),
        "strong": sum(abs(one) > HALF for one in within),
    }


def _share(rows: Sequence[Algorithm], of: Callable[[Algorithm], bool]) -> float:
    return sum(map(of, rows)) / len(rows)


def utilisation_table(rows: Sequence[Algorithm]) -> str:
    """How many algorithms use less than half of the arithmetic, of DRAM, and of both."""
    cells = []
    for words, mine in (("all algorithms", list(rows)), ("the fastest of each convolution", fastest(rows))):
        for math in ("FMA", "TF32", ""):
            some = [row for row in mine if row.algorithm.endswith(math)]
            if some:
                low, dram, both = (
                    f"{100 * _share(some, of):.0f} %"
                    for of in (
                        lambda row: row.efficiency < HALF,
                        lambda row: row.dram < HALF,
                        lambda row: row.efficiency < HALF and row.dram < HALF,
                    )
                )
                cells.append([words, math or "either", str(len(some)), low, dram, both])
    return table(["", "arithmetic", "algorithms", "efficiency < 50 %", "DRAM < 50 %", "both"], cells)
