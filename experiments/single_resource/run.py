"""Kernels of one resource, two in two streams, measured and predicted: `python experiments/single_resource/run.py`.

pairs.cu has copies that keep DRAM, L2 or L1 busy, multiplications in FP32 and FP64 with one to four chains, and kernels
that sleep. Its sizes are those of a published study of interference (Elvinger et al., arXiv 2501.16909), and others
beside them. An H100 ran each kernel isolated, and pairs of them in both orders. Nsight Compute counted each once
(record.py). Here its profile is imported, and each pair is replayed in two streams. It writes README.md and result.csv
beside itself (or to --out DIR).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Study
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU
from gpusim.io.importing import import_profile
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Kernel, Stream

HERE = Path(__file__).resolve().parent
MEASURED = "h100-sxm"
SIZES = {"published": "published", "other": "beside them"}  # in the names of files, and on the page
WORST = 12


@dataclass(frozen=True, slots=True)
class Pair:
    """Two kernels in two streams.

    Attributes:
        sizes: published, or other.
        first: launched first: name and size.
        second: launched second.
        serial_ms: sum of their isolated times.
        measured_ms: from the start of the first to the end of both.
        predicted_ms: the same.
    """

    sizes: str
    first: str
    second: str
    serial_ms: float
    measured_ms: float
    predicted_ms: float

    @property
    def error_percent(self) -> float:
        """Of the prediction, with its sign."""
        return 100.0 * (self.predicted_ms / self.measured_ms - 1.0)


def pairs(sizes: str, gpu: GPU | str = MEASURED) -> Iterator[Pair]:
    """Every pair of some sizes, predicted from the imported profile; kernels last as long as without the profiler."""
    session = Session(gpu, gpu)
    rows = list(lines(HERE / f"{sizes}_kernels.csv"))
    isolated = {row["kernel"]: float(row["ms"]) for row in rows}
    profiled = [
        one for one in import_profile(HERE / f"{sizes}_ncu.csv.gz", "ncu").trace.operations() if isinstance(one, Kernel)
    ]
    beyond_us = session.gpu.model.event_overhead_us + session.gpu.model.launch_latency_us
    launches = {}
    for row, one in zip(rows, profiled, strict=True):
        timed = {"name": row["kernel"], "duration_us": 1e3 * float(row["ms"]) - beyond_us}
        launches[row["kernel"]] = one.kernel.model_copy(update=timed)
    for row in lines(HERE / f"{sizes}_pairs.csv"):
        names = row["first"], row["second"]
        streams = tuple(
            Stream(name=at, operations=(Kernel(id=at, kind="kernel", kernel=launches[name]),))
            for at, name in zip("ab", names, strict=True)
        )
        trace = Trace(version=1, name=" + ".join(names), device=MEASURED, streams=streams)
        us = session.replay(trace, "leftover", keep=()).makespan_us
        ends = float(row["first_ms"]), float(row["second_ms"])
        yield Pair(sizes, *names, sum(isolated[name] for name in names), max(ends), us / 1e3)


def page(rows: Sequence[Pair]) -> dict[str, object]:
    """What the page says."""
    worst = sorted(rows, key=lambda row: -abs(row.error_percent))[:WORST]
    titles = ("one after the other, ms", "measured, ms", "predicted, ms")
    return {
        "totals": table(
            ("sizes", "pairs", "mean error %", "median error %", "mean error of the sum of isolated times %"),
            [_total(words, [row for row in rows if row.sizes == sizes]) for sizes, words in SIZES.items()],
        ),
        "kinds": table(
            (
                "kernels",
                *(f"{what}, {words}" for words in SIZES.values() for what in ("pairs", "mean error %", "bias %")),
            ),
            [
                (name, *(cell for sizes in SIZES for cell in _errors([row for row in of if row.sizes == sizes])))
                for name, of in grouped(rows, _kinds).items()
            ],
        ),
        "worst_count": WORST,
        "worst": table(
            ("first", "second", *titles, "error %"),
            [
                (
                    row.first,
                    row.second,
                    *(f"{ms:.2f}" for ms in (row.serial_ms, row.measured_ms, row.predicted_ms)),
                    f"{row.error_percent:+.0f}",
                )
                for row in worst
            ],
        ),
    }


def _kinds(row: Pair) -> str:
    """What the kernels of a pair load."""
    return " and ".join(sorted({kernel.split("/")[0].split("_")[0] for kernel in (row.first, row.second)}))


def _errors(rows: Sequence[Pair]) -> tuple[str, str, str]:
    errors = [row.error_percent for row in rows]
    return str(len(rows)), f"{fmean(map(abs, errors)):.1f}", f"{fmean(errors):+.1f}"


def _total(words: str, rows: Sequence[Pair]) -> tuple[str, ...]:
    errors = [abs(row.error_percent) for row in rows]
    serial = [abs(100.0 * (row.serial_ms / row.measured_ms - 1.0)) for row in rows]
    return words, str(len(rows)), f"{fmean(errors):.1f}", f"{median(errors):.1f}", f"{fmean(serial):.0f}"


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Pair},
    lambda _: {"result.csv": [pair for sizes in SIZES for pair in pairs(sizes)]},
    page,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
