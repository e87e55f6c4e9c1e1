"""What launches wait for beside other kernels: `python experiments/h200_microbench/launches.py` prints it.

launches_under_load.cu wrote launches_under_load.csv. The wait of the model (`gpusim.model.memory.launch_wait_us`) is
beside the measured ones. other_launches.cu wrote other_launches.csv: launches beside those of another stream. And
delayed_blocks.cu wrote delayed_blocks.csv: blocks that run while another stream launches kernels.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, linear_regression

from experiments.rows import lines
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu
from gpusim.model.memory import IDLE_READ_US, dram_queue, launch_wait_us

HERE = Path(__file__).resolve().parent
NEIGHBOUR = ("neighbour", "blocks", "kib_under_way_per_block", "sleep_ns")
KERNEL = ("launches", "kernel", "kernel_blocks", "spin_ns")
NOBODY = ("none", "0", "0", "0")
SHOWN = (  # of graphs: the title of the column, and the kernel
    ("empty", ("graph", "empty", "1", "0")),
    ("5 us", ("graph", "empty", "1", "5000")),
    ("5 us, 100 blocks", ("graph", "empty", "100", "5000")),
    ("stream, empty", ("stream", "empty", "1", "0")),
)


def gaps_us() -> dict[tuple[str, ...], dict[tuple[str, ...], float]]:
    """Time from kernel to kernel, us, by the neighbour and by the kernel."""
    found: dict[tuple[str, ...], dict[tuple[str, ...], float]] = {}
    for row in lines(HERE / "launches_under_load.csv"):
        of = found.setdefault(tuple(row[name] for name in NEIGHBOUR), {})
        of[tuple(row[name] for name in KERNEL)] = int(row["ns"]) / 1e3
    return found


def bandwidths() -> dict[tuple[str, ...], float]:
    """What each neighbour reads beside empty kernels in a graph, GB/s."""
    return {
        tuple(row[name] for name in NEIGHBOUR): float(row["gb_per_s"])
        for row in lines(HERE / "launches_under_load.csv")
        if tuple(row[name] for name in KERNEL) == SHOWN[0][1]
    }


def modelled_us(neighbour: tuple[str, ...], gb_per_s: float) -> float:
    """The wait of a launch in a graph, by the model, us."""
    constants = load_gpu("h200").model
    what, blocks, kib, sleep_ns = neighbour
    dram = min(1.0, gb_per_s / constants.dram_sustained_gb_per_s) if what == "reads DRAM" else 0.0
    under_way_us = int(blocks) * int(kib) * 1024 / constants.dram_sustained_gb_per_s / 1e3 if sleep_ns == "0" else 0.0
    queue = dram_queue(dram, under_way_us / IDLE_READ_US)
    return launch_wait_us(dram, min(1.0, gb_per_s / constants.l2_read_gb_per_s), queue)


def errors_us() -> list[float]:
    """Of each neighbour the modelled wait less the mean of those measured after kernels of 5 us in a graph, us."""
    gaps, reads = gaps_us(), bandwidths()
    alone = gaps[NOBODY]
    after_work = [kernel for _, kernel in SHOWN[1:3]]
    return [
        modelled_us(one, reads[one]) - fmean(of[kernel] - alone[kernel] for kernel in after_work)
        for one, of in gaps.items()
        if one != NOBODY
    ]


def table() -> Iterator[str]:
    """Gaps beside each neighbour, and how much longer they are than alone, measured and modelled."""
    gaps, reads = gaps_us(), bandwidths()
    alone = gaps[NOBODY]
    yield " " * 43 + "".join(f"{title:>24}" for title, _ in SHOWN) + f"{'model':>8}"
    yield f"{'neighbour':<12}{'blocks':>7}{'KiB each':>9}{'GB/s':>7}{'':8}" + f"{'us':>14}{'longer':>10}" * len(SHOWN)
    for one, of in gaps.items():
        cells = "".join(f"{of[kernel]:14.2f}{of[kernel] - alone[kernel]:10.2f}" for _, kernel in SHOWN)
        who = f"{one[0]:<12}{one[1]:>7}{one[2]:>9}{reads[one]:7.0f}{'sleeps' if one[3] != '0' else '':>8}"
        yield f"{who}{cells}{modelled_us(one, reads[one]):8.2f}"


def summary() -> str:
    """Error of the modelled waits."""
    found = errors_us()
    return (
        f"modelled less measured after kernels of 5 us: {fmean(map(abs, found)):.2f} us on the mean, "
        f"bias {fmean(found):+.2f}; {len(found)} neighbours"
    )


def beside_launches() -> Iterator[str]:
    """How much longer kernels take while another stream launches kernels that only spin, us for each kernel."""
    rows = lines(HERE / "other_launches.csv")
    spins = list(dict.fromkeys(row["spin_ns"] for row in rows))
    yield f"{'kernel':<22}{'different':>10}{'blocks':>8}{'works, us':>11}{'alone, us':>11}" + "".join(
        f"{f'spins {int(ns) / 1e3:g} us':>14}" for ns in spins
    )
    of: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in rows:
        of.setdefault((row["kernel"], row["kernels"], row["blocks"], row["works_ns"]), []).append(row)
    for (name, kernels, blocks, works_ns), pair in of.items():
        longer = "".join(f"{(int(row['beside_ns']) - int(row['alone_ns'])) / 1e3:+14.2f}" for row in pair)
        alone = int(pair[0]["alone_ns"]) / 1e3
        yield f"{name:<22}{kernels:>10}{blocks:>8}{int(works_ns) / 1e3:11g}{alone:11.2f}{longer}"


def delayed_blocks() -> Iterator[str]:
    """How much later a long kernel ends for each launch beside it, us: the slope over more and more launches."""
    yield f"{'kernel of 100 blocks':<40}{'us':>8}{'graph beside':>16}{'stream beside':>16}"
    for kernel, of in grouped(lines(HERE / "delayed_blocks.csv"), lambda row: row["kernel"]).items():
        slopes = ""
        for others in ("graph", "stream"):
            points = [(int(row["launches_beside"]), int(row["ns"]) / 1e3) for row in of if row["others"] == others]
            slopes += f"{linear_regression(*zip(*points, strict=True)).slope:16.2f}"
        yield f"{kernel:<40}{min(int(row['ns']) for row in of) / 1e3:8.0f}{slopes}"


if __name__ == "__main__":
    print("\n".join((*table(), "", summary(), "", *beside_launches(), "", *delayed_blocks())))
