"""Kernels of one resource, two in two streams, measured and predicted: `python experiments/single_resource/run.py`.

pairs.cu has copies that keep DRAM, L2 or L1 busy, multiplications in FP32 and FP64 with one to four chains, and kernels
that sleep. Its sizes are those of a published study of interference (Elvinger et al., arXiv 2501.16909). An H100 ran
each kernel isolated, and pairs of them in both orders. Nsight Compute counted each once. Here its profile is imported,
and each pair is replayed in two streams. It writes README.md and result.csv beside itself (or to --out DIR).

    python experiments/single_resource/run.py --measure   # on a machine with an NVIDIA GPU, nvcc and ncu
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Study
from gpusim.common.files import MAX_BYTES, read_text, write_table
from gpusim.common.tables import grouped
from gpusim.io.importing import import_profile
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.own_program import DEVICE_COUNTERS
from gpusim.lab.record.toolchain import FROM_START, build, counted, require_ncu, run
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Kernel, Stream

HERE = Path(__file__).resolve().parent
KERNELS, PAIRS, PROFILE = HERE / "kernels.csv", HERE / "pairs.csv", HERE / "ncu.csv.gz"
GPU = "h100-sxm"
LEAST_CAPABILITY = 7.0
BUSIEST = "sm__throughput.avg.pct_of_peak_sustained_active"
WORST = 12


@dataclass(frozen=True, slots=True)
class Pair:
    """Two kernels in two streams.

    Attributes:
        first: launched first: name and size.
        second: launched second.
        serial_ms: sum of their isolated times.
        measured_ms: from the start of the first to the end of both.
        predicted_ms: the same.
    """

    first: str
    second: str
    serial_ms: float
    measured_ms: float
    predicted_ms: float

    @property
    def error_percent(self) -> float:
        """Of the prediction, with its sign."""
        return 100.0 * (self.predicted_ms / self.measured_ms - 1.0)


def measure() -> None:
    """Time the kernels and their pairs on this machine's GPU, and count each kernel."""
    require_ncu()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        program = folder / "pairs"
        build(HERE / "pairs.cu", program, LEAST_CAPABILITY)
        run([str(program), str(folder)], "the kernels")
        log = counted(
            [str(program), str(folder), "profile"],
            folder / "ncu.csv",
            (*COUNTERS, *DEVICE_COUNTERS, BUSIEST),
            *FROM_START,
        )
        for path in (KERNELS, PAIRS):
            write_table(path, read_text(folder / path.name, MAX_BYTES))
        write_table(PROFILE, log)


def pairs() -> Iterator[Pair]:
    """Every pair, predicted from the imported profile; a kernel has the duration that was timed without a profiler."""
    session = Session(GPU, GPU)
    rows = list(lines(KERNELS))
    isolated = {row["kernel"]: float(row["ms"]) for row in rows}
    profiled = [one for one in import_profile(PROFILE, "ncu").trace.operations() if isinstance(one, Kernel)]
    beyond_us = session.gpu.model.event_overhead_us + session.gpu.model.launch_latency_us
    launches = {}
    for row, one in zip(rows, profiled, strict=True):
        timed = {"name": row["kernel"], "duration_us": 1e3 * float(row["ms"]) - beyond_us}
        launches[row["kernel"]] = one.kernel.model_copy(update=timed)
    for row in lines(PAIRS):
        names = row["first"], row["second"]
        streams = tuple(
            Stream(name=at, operations=(Kernel(id=at, kind="kernel", kernel=launches[name]),))
            for at, name in zip("ab", names, strict=True)
        )
        trace = Trace(version=1, name=" + ".join(names), device=GPU, streams=streams)
        us = session.replay(trace, "leftover", keep=()).makespan_us
        ends = float(row["first_ms"]), float(row["second_ms"])
        yield Pair(*names, sum(isolated[name] for name in names), max(ends), us / 1e3)


def kind(kernel: str) -> str:
    """What a kernel loads."""
    return kernel.split("/")[0].split("_")[0]


def page(rows: Sequence[Pair]) -> dict[str, object]:
    """What the page says."""
    errors = [abs(row.error_percent) for row in rows]
    groups = grouped(rows, lambda row: " and ".join(sorted({kind(row.first), kind(row.second)})))
    summary = [
        (
            name,
            str(len(of)),
            f"{fmean(abs(one.error_percent) for one in of):.1f}",
            f"{fmean(one.error_percent for one in of):+.1f}",
        )
        for name, of in groups.items()
    ]
    worst = sorted(rows, key=lambda row: -abs(row.error_percent))[:WORST]
    return {
        "pairs": len(rows),
        "mean": fmean(errors),
        "median": median(errors),
        "serial": fmean(abs(100.0 * (row.serial_ms / row.measured_ms - 1.0)) for row in rows),
        "kinds": table(("kernels", "pairs", "mean error %", "bias %"), summary),
        "worst_count": WORST,
        "worst": table(
            ("first", "second", "one after the other, ms", "measured, ms", "predicted, ms", "error %"),
            [
                (
                    row.first,
                    row.second,
                    f"{row.serial_ms:.2f}",
                    f"{row.measured_ms:.2f}",
                    f"{row.predicted_ms:.2f}",
                    f"{row.error_percent:+.0f}",
                )
                for row in worst
            ],
        ),
    }


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Pair},
    lambda _: {"result.csv": list(pairs())},
    page,
    steps={"measure": (measure, "time and count the kernels on this machine's GPU")},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
