"""Kernels of one resource, two in two streams, measured and predicted: `python experiments/single_resource/run.py`.

pairs.cu has copies that keep DRAM, L2 or L1 busy, multiplications in FP32 and FP64 with one to four chains, and kernels
that sleep. Its sizes are those of a published study of interference (Elvinger et al., arXiv 2501.16909), and others
beside them. An H100 ran each kernel isolated, and pairs of them in both orders. Nsight Compute counted each once
(record.py). Here its profile is imported, and each pair is replayed in two streams. Pairs that fit together are also
explained as `gpusim explain` explains a recorded timeline. It writes README.md, result.csv and explained.csv beside
itself (or to --out DIR).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Study
from gpusim.choose.explain import TITLES, side_by_side
from gpusim.choose.recorded import Recorded, overlapped
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import GPU
from gpusim.io.importing import import_profile
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

HERE = Path(__file__).resolve().parent
MEASURED = "h100-sxm"
SIZES = {"published": "published", "other": "beside them"}  # in the names of files, and on the page
WORST = 12
AT_ONCE_US = 10.0  # after the first kernel, a second one starts that waits for no room
APART_US = 1e6  # between kernels that ran alone and those that ran together, in a timeline


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


@dataclass(frozen=True, slots=True)
class Explained:
    """A kernel beside another that fits on the SMs with it, as `gpusim explain` sees a recorded timeline.

    Attributes:
        sizes: published, or other.
        kernel: name and size.
        beside: the other one.
        measured: its time over its isolated time.
        explained: the same with what the model expects of the time in which both ran.
        cause: the contention that costs most; empty: none.
    """

    sizes: str
    kernel: str
    beside: str
    measured: float
    explained: float
    cause: str

    @property
    def error_percent(self) -> float:
        """Of the explained slowdown, with its sign."""
        return 100.0 * (self.explained / self.measured - 1.0)


def launches(sizes: str, session: Session) -> dict[str, KernelLaunch]:
    """The kernels of some sizes from the imported profile; they last as long as without the profiler."""
    profiled = [
        one for one in import_profile(HERE / f"{sizes}_ncu.csv.gz", "ncu").trace.operations() if isinstance(one, Kernel)
    ]
    beyond_us = session.gpu.model.event_overhead_us + session.gpu.model.launch_latency_us
    found = {}
    for row, one in zip(lines(HERE / f"{sizes}_kernels.csv"), profiled, strict=True):
        timed = {"name": row["kernel"], "duration_us": 1e3 * float(row["ms"]) - beyond_us}
        found[row["kernel"]] = one.kernel.model_copy(update=timed)
    return found


def in_streams(names: Sequence[str], known: Mapping[str, KernelLaunch]) -> Trace:
    """Two kernels in two streams."""
    streams = tuple(
        Stream(name=at, operations=(Kernel(id=at, kind="kernel", kernel=known[name]),))
        for at, name in zip("ab", names, strict=True)
    )
    return Trace(version=1, name=" + ".join(names), device=MEASURED, streams=streams)


def pairs(sizes: str, gpu: GPU | str = MEASURED) -> Iterator[Pair]:
    """Every pair of some sizes, predicted."""
    session = Session(gpu, gpu)
    isolated = {row["kernel"]: float(row["ms"]) for row in lines(HERE / f"{sizes}_kernels.csv")}
    known = launches(sizes, session)
    for row in lines(HERE / f"{sizes}_pairs.csv"):
        names = row["first"], row["second"]
        us = session.replay(in_streams(names, known), "leftover", keep=()).makespan_us
        ends = float(row["first_ms"]), float(row["second_ms"])
        yield Pair(sizes, *names, sum(isolated[name] for name in names), max(ends), us / 1e3)


def explained(sizes: str) -> Iterator[Explained]:
    """Each kernel of the pairs of different kernels that fit together, so that both start at once."""
    session = Session(MEASURED, MEASURED)
    known = launches(sizes, session)
    isolated_us = {row["kernel"]: 1e3 * float(row["ms"]) for row in lines(HERE / f"{sizes}_kernels.csv")}
    for row in lines(HERE / f"{sizes}_pairs.csv"):
        names = row["first"], row["second"]
        trace = in_streams(names, known)
        second = side_by_side(session, MEASURED, [known[name] for name in names])[1]
        if names[0] == names[1] or second.run.start_us > AT_ONCE_US:
            continue
        timeline = []
        for name, stream, alone_at_us in zip(names, "ab", (0.0, APART_US), strict=True):
            kind = name, known[name].grid, known[name].block
            took_us = 1e3 * float(row["first_ms" if stream == "a" else "second_ms"])
            timeline.append(Recorded(kind, "", stream, alone_at_us, isolated_us[name]))
            timeline.append(Recorded(kind, "", stream, 2.0 * APART_US + (stream == "b"), took_us))
        for one in overlapped(timeline, trace, session):
            us = isolated_us[one.kernel.kind[0]]
            pair = names if one.kernel.stream == "a" else names[::-1]
            yield Explained(sizes, *pair, one.took_us / us, 1.0 + one.expected_us / us, one.cause)


def page(rows: Sequence[Pair], kernels: Sequence[Explained]) -> dict[str, object]:
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
        "explained": table(
            ("kernel", "beside", "kernels", "measured", "explained", "mean error %", "named"),
            [
                _explained(*loads, of)
                for loads, of in sorted(grouped(kernels, lambda row: (_load(row.kernel), _load(row.beside))).items())
            ],
        ),
        "explained_error": fmean(abs(row.error_percent) for row in kernels),
        "explained_nothing": fmean(abs(100.0 * (1.0 / row.measured - 1.0)) for row in kernels),
        "explained_count": len(kernels),
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
    return " and ".join(sorted({_load(row.first), _load(row.second)}))


def _load(kernel: str) -> str:
    return kernel.split("/")[0].split("_")[0]


def _explained(kernel: str, beside: str, rows: Sequence[Explained]) -> tuple[str, ...]:
    """Kernels of one load beside those of another, and how often which contention was named."""
    named = Counter(TITLES.get(row.cause, row.cause) for row in rows if row.cause)
    causes = ", ".join(f"{cause} {count}" for cause, count in named.most_common())
    slowed = (f"{fmean(values):.2f}" for values in zip(*((row.measured, row.explained) for row in rows), strict=True))
    return kernel, beside, str(len(rows)), *slowed, f"{fmean(abs(row.error_percent) for row in rows):.1f}", causes


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
    {"result.csv": Pair, "explained.csv": Explained},
    lambda _: {
        "result.csv": [pair for sizes in SIZES for pair in pairs(sizes)],
        "explained.csv": [one for sizes in SIZES for one in explained(sizes)],
    },
    page,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
