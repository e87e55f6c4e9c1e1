"""Kernels of whole models beside a kernel that reads or writes memory: `python experiments/neighbours/run.py`.

Four models ran as CUDA graphs on 64 SMs of an H100, while a kernel on the other 68 SMs read or wrote memory at a set
pace (`measured.csv.gz`, by record.py). The study predicts how much each kernel of the models slows down, from their
profiles on an H200 (`../shared/h200_models`, beside the project), and how long pairs of models take in two streams
(streams.csv). It writes README.md, result.csv and in_streams.csv beside itself (or to --out DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import fmean, median

from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Run, Study
from gpusim.common.errors import InputError
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.validate import Case
from gpusim.lab.whole_models import ModelPredictor
from gpusim.model.memory import STREAM_QUEUE
from gpusim.session import Session
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix
from gpusim.trace.operations import Kernel, Stream
from gpusim.trace.programs import Program

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.csv.gz"
CODE, CODE_BESIDE, CONSTANTS = HERE / "code.csv", HERE / "code_beside.csv", HERE / "constants.csv"
CONVOLUTION, STREAMS = HERE / "convolution.csv", HERE / "streams.csv"
GAPS, SMALL, IN_FLIGHT = HERE / "gaps.csv", HERE / "small.csv", HERE / "in_flight.csv"
LOST = HERE / "lost.csv"
PROFILES = HERE.parents[2] / "shared" / "h200_models"
GPU, RECORDED_ON = "h100-sxm", "h200"
ALONE = "none"
SAME, OWN = "the same SM", "an SM of its own"  # where the warp of in_flight.cu runs
MODEL_SMS, OTHER_SMS = 64, 68
BLOCKS = 4 * OTHER_SMS  # of the neighbour
CODE_KIB = ("16", "64", "128")  # rows of the table of code
AFTER = (("0", "0"), ("0", "256"), ("1024", "0"), ("1024", "256"))  # KiB of other code and MiB that were read before it
LONG_US = 40_000.0  # the neighbour outlasts any pass
LEAST_US = 5.0  # of a kernel whose own error counts: shorter ones are timed too coarsely
SEARCHED = 8  # kernels among which the next of the same name is looked for
NAME = 40  # characters of a kernel's name that both recordings have
NEIGHBOURS = {  # bytes per µs of DRAM reads, DRAM writes and L2 reads; L2 counts 1.5 sectors for one of DRAM
    "reads 0.6 TB/s": (571e3, 0.0, 857e3),
    "reads 1.1 TB/s": (1104e3, 0.0, 1656e3),
    "reads 1.7 TB/s": (1665e3, 0.0, 2498e3),
    "writes 0.6 TB/s": (0.0, 610e3, 0.0),
    "reads L2": (0.0, 0.0, 3680e3),
    "reads 1.1 TB/s in bursts": (1088e3, 0.0, 1632e3),
}


@dataclass(frozen=True, slots=True)
class Slowed:
    """The kernels of one pass of a model beside a neighbour, over the same pass alone on its SMs.

    Attributes:
        model: name of the model.
        neighbour: what the other kernel does.
        kernels: that both recordings have.
        measured: their time beside the neighbour over their time alone.
        predicted: the same by the model.
        mape_percent: mean absolute error of the kernels of at least `LEAST_US`.
        bias_percent: mean error of these kernels with its sign.
    """

    model: str
    neighbour: str
    kernels: int
    measured: float
    predicted: float
    mape_percent: float
    bias_percent: float


Times = list[tuple[str, float]]  # name and µs of each kernel of a pass, in order


def measured() -> dict[str, dict[str, Times]]:
    """Kernels by model and neighbour."""
    found: dict[str, dict[str, Times]] = {}
    for row in lines(MEASURED):
        found.setdefault(row["model"], {}).setdefault(row["neighbour"], []).append((row["name"], float(row["us"])))
    return found


def neighbour(rates: tuple[float, float, float], device: str = RECORDED_ON) -> Trace:
    """The other kernel, by its `NEIGHBOURS`: all its blocks resident at once, waiting for memory only."""
    read, written, l2_read = (rate * LONG_US / BLOCKS for rate in rates)
    cycles = LONG_US * 1980.0
    mix = Mix(
        issue_cycles=1.0, alu_cycles=1.0, fma_cycles=1.0, tensor_cycles=0.0, lsu_cycles=1.0, l1_cycles=1.0,
        active_cycles_min=cycles, active_cycles_avg=cycles, active_cycles_max=cycles, achieved_warps_per_sm=16.5,
        dram_read_bytes=read, dram_write_bytes=written, l2_read_bytes=l2_read, l2_write_bytes=1.5 * written,
        l2_bytes=l2_read + 1.5 * written,
    )  # fmt: skip
    launch = KernelLaunch(
        name="neighbour", grid=(BLOCKS, 1, 1), block=(256, 1, 1), registers_per_thread=64, duration_us=LONG_US, mix=mix
    )
    stream = Stream(name="other", operations=(Kernel(id="other", kernel=launch),))
    program = Program(name="other", streams=("other",))
    return Trace(version=2, name="other", device=device, streams=(stream,), programs=(program,))


def predicted(session: Session, model: Trace, beside: str) -> Times:
    """The kernels of a pass of a model beside a neighbour, or alone on its SMs."""
    if beside == ALONE:
        result = session.replay(model, f"inter-sm:by=program,sms={MODEL_SMS}")
    else:
        both = merge([model, neighbour(NEIGHBOURS[beside])], ("a", "b"), "beside")
        result = session.replay(both, f"inter-sm:by=program,sms={MODEL_SMS}+{OTHER_SMS}")
    runs = sorted((run for run in result.kernel_runs if run.kernel != "neighbour"), key=lambda run: run.start_us)
    return [(run.kernel, run.end_us - run.start_us) for run in runs]


def matched(one: Times, other: Times) -> Iterator[tuple[int, int]]:
    """Positions of kernels of one name in both, in order: another GPU's library may choose other kernels."""
    at = 0
    for i, (name, _) in enumerate(one):
        for j in range(at, min(at + SEARCHED, len(other))):
            if other[j][0][:NAME] == name[:NAME]:
                yield i, j
                at = j + 1
                break


@dataclass(frozen=True, slots=True)
class Streamed:
    """Passes of two models in two streams, from the first kernel's start to the last one's end."""

    a: str
    na: int
    b: str
    nb: int
    measured_us: float
    predicted_us: float

    @property
    def error_percent(self) -> float:
        """Of the prediction, with its sign."""
        return 100.0 * (self.predicted_us / self.measured_us - 1.0)


def streamed(predictor: ModelPredictor, session: Session) -> Iterator[Streamed]:
    """Every pair of streams.csv."""
    for row in lines(STREAMS):
        na, nb = int(row["na"]), int(row["nb"])
        both = merge([predictor.passes(row["a"], na), predictor.passes(row["b"], nb)], ("a", "b"), "in streams")
        result = session.replay(both, "leftover", keep=())
        yield Streamed(row["a"], na, row["b"], nb, float(row["us"]), result.makespan_us)


def slowed(run: Run) -> dict[str, Iterable[Slowed | Streamed]]:
    """Every model beside every neighbour."""
    if not PROFILES.is_dir():
        raise InputError(PROFILES, "", "is missing", "profiles of the four models, which the project does not ship")
    predictor = ModelPredictor(Case(str(PROFILES), RECORDED_ON))
    session = Session(GPU, RECORDED_ON)
    return {
        "result.csv": [one for model in measured().items() for one in _slowed(predictor, session, *model)],
        "in_streams.csv": list(streamed(predictor, session)),
    }


def _slowed(predictor: ModelPredictor, session: Session, model: str, times: Mapping[str, Times]) -> Iterator[Slowed]:
    trace = predictor.passes(model, 1)
    alone = predicted(session, trace, ALONE)
    pairs = list(matched(times[ALONE], alone))
    before_us = fsum(times[ALONE][i][1] for i, _ in pairs)
    for name in NEIGHBOURS:
        beside = predicted(session, trace, name)
        ratios = [
            (times[ALONE][i][1], times[name][i][1] / times[ALONE][i][1], beside[j][1] / alone[j][1]) for i, j in pairs
        ]
        errors = [100.0 * (guess / real - 1.0) for us, real, guess in ratios if us >= LEAST_US]
        yield Slowed(
            model,
            name,
            len(pairs),
            fsum(us * real for us, real, _ in ratios) / before_us,
            fsum(us * guess for us, _, guess in ratios) / before_us,
            fmean(map(abs, errors)),
            fmean(errors),
        )


def lost_table() -> str:
    """Times of kernels whose data L2 holds, beside readers, over their times beside nothing."""
    kernels = grouped(lines(LOST), lambda row: row["kernel"])
    beside = [row["neighbour"] for row in next(iter(kernels.values()))[1:]]
    cells = []
    for kernel, (alone, *others) in kernels.items():
        cells.append((kernel, *(f"{float(row['us']) / float(alone['us']):.2f}" for row in others)))
    pace = ("TB/s", *(f"{fmean(float(of[n]['gb_per_s']) for of in kernels.values()) / 1e3:.1f}" for n in range(1, 7)))
    return table(("the kernel", *beside), [pace, *cells])


def gaps_table() -> str:
    """Gaps between kernels of a stream, the mean over grids and lives of blocks."""
    gaps: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in lines(GAPS):
        gaps.setdefault((row["gpu"], row["streams"]), {}).setdefault(row["kind"], []).append(float(row["gap_us_mean"]))
    cells = [(*case, *(f"{fmean(kinds[kind]):.2f}" for kind in ("plain", "graph"))) for case, kinds in gaps.items()]
    return table(("GPU", "streams", "plain streams, µs", "CUDA graphs, µs"), cells)


def code_table() -> str:
    """Time of a kernel of straight code by what ran before it."""
    us = {(row["code_kib"], row["other_kib"], row["read_mib"]): float(row["us"]) for row in lines(CODE)}
    cells = [(f"{kib} KiB", *(f"{us[kib, *after]:.1f}" for after in AFTER)) for kib in CODE_KIB]
    return table(("code", "itself", "256 MiB of data", "1 MiB of other code", "both"), cells)


def code_beside() -> tuple[str, float]:
    """A table of lost code beside a kernel that reads memory, and how much longer code waits if L2 has lost it."""
    found: dict[str, dict[tuple[str, str], dict[str, str]]] = {}  # after 1 MiB of other code; by MiB of own data
    for row in lines(CODE_BESIDE):
        if (row["code_kib"], row["other_kib"]) == ("128", "1024"):
            found.setdefault(row["read_mib"], {})[row["neighbour"], row["sleep_ns"]] = row
        elif (row["code_kib"], row["other_kib"], row["read_mib"], row["neighbour"]) == ("64", "0", "0", "none"):
            fetched_us = 2.0 * float(row["us"])  # of as much code, fetched ahead
    after, after_data = found["0"], found["256"]
    waits = {at: float(row["us"]) - fetched_us for at, row in after.items()}
    full = load_gpu(GPU).model.dram_sustained_gb_per_s
    queues = {at: 1.0 + STREAM_QUEUE * (float(row["gb_per_s"]) / full) ** 2 for at, row in after.items()}
    slowest = next(at for at in after if at[0] == "reads DRAM")
    cells = [
        (
            *(at[0], f"{float(row['gb_per_s']) / 1e3:.2f}", f"{float(row['us']):.1f}"),
            *(f"{float(after_data[at]['us']):.1f}", f"{waits[at] / waits[slowest]:.2f}"),
            f"{queues[at] / queues[slowest]:.2f}" if at[0] == "reads DRAM" else "",
        )
        for at, row in after.items()
    ]
    titles = ("the neighbour", "TB/s", "µs", "after 256 MiB of own data, µs", "wait for code", "1 + δ²")
    return table(titles, cells), waits[slowest] / waits["none", "0"]


def convolution_table() -> str:
    """Median time of one depthwise convolution by what ran before it."""
    runs = grouped(lines(CONVOLUTION), lambda row: row["when"])
    cells = [(when, str(len(of)), f"{median(float(row['us']) for row in of):.0f}") for when, of in runs.items()]
    return table(("the convolution", "times", "median µs"), cells)


def constants_table() -> str:
    """Cycles in which blocks read constants, by the neighbour and by what ran before on their SMs."""
    found: dict[tuple[str, str], dict[tuple[str, str], str]] = {}
    for row in lines(CONSTANTS):
        rate = f"{float(row['gb_per_s']) / 1e3:.1f}" if row["neighbour"] != "none" else ""
        at = row["neighbour"], row["sleep_ns"] if rate else ""
        found.setdefault(at, {})[row["reads"], row["others"]] = row["cycles"]
        found[at]["rate", ""] = rate
    titles = [(reads, others) for reads in ("none", "parameters", "constants") for others in ("0", "8")]
    heads = [f"{reads}, after {'itself' if others == '0' else 'others'}" for reads, others in titles]
    cells = [(name, by["rate", ""], *(by[title] for title in titles)) for (name, _), by in found.items()]
    return table(("the neighbour", "TB/s", *heads), cells)


def small_table() -> str:
    """Medians of kernels of one block by what runs beside them, in streams and on SMs of their own."""
    found: dict[tuple[str, str], dict[str, tuple[str, str]]] = {}
    for row in lines(SMALL):
        found.setdefault((row["kernel"], row["beside"]), {})[row["sharing"]] = row["wait_us"], row["us"]
    cells = [(*what, *by["streams"], *by["SMs"]) for what, by in found.items() if what[1] != "other"]
    heads = ("the kernel", "beside", "waits, streams", "runs, streams", "waits, SMs", "runs, SMs")
    return table(heads, cells)


def in_flight() -> tuple[str, float]:
    """A table of reads beside a kernel by how many bytes that has in flight, and how much longer they take at most."""
    found: dict[tuple[str, int], dict[tuple[int, str], dict[str, str]]] = {}
    for row in lines(IN_FLIGHT):
        at = row["reads"], int(row["in_flight_bytes_per_sm"]) // 1024
        found.setdefault(at, {})[int(row["sms"]), row["where"]] = row
    cells = []
    for (reads, kib), by in found.items():
        if not kib:
            cells.append((reads, "nothing", "", *(row["ns"] for row in by.values()), "", "", "", ""))
            continue
        same, own, half = by[132, SAME], by[131, OWN], by[66, OWN]
        rates = (f"{float(row['gb_per_s']) / 1e3:.2f}" for row in (same, half))
        cells.append((reads, f"{kib}", next(rates), same["ns"], own["ns"], same["own_ns"], next(rates), half["ns"]))
    heads = ("reads", "KiB in flight per SM", "TB/s", "ns, the same SM", "ns, an SM of its own", "ns of its own reads")
    ns = [float(row["ns"]) for row in lines(IN_FLIGHT) if row["reads"] == "DRAM"]
    return table((*heads, "on 66 SMs, TB/s", "ns, an SM of its own"), cells), max(ns) / ns[0]


def streams_table(pairs: Sequence[Streamed]) -> str:
    """Measured and predicted times of models in streams."""
    cells = [
        (
            f"{pair.na} of {pair.a}, {pair.nb} of {pair.b}",
            f"{pair.measured_us / 1e3:.2f}",
            f"{pair.predicted_us / 1e3:.2f}",
            f"{pair.error_percent:+.1f}",
        )
        for pair in pairs
    ]
    return table(("passes", "measured ms", "predicted ms", "error %"), cells)


def page(rows: Sequence[Slowed], pairs: Sequence[Streamed]) -> dict[str, object]:
    """Tables and numbers of the page."""
    cells = [
        (
            row.model, row.neighbour, f"{row.measured:.2f}", f"{row.predicted:.2f}",
            f"{row.mape_percent:.1f}", f"{row.bias_percent:+.1f}",
        )
        for row in rows
    ]  # fmt: skip
    beside, longer = code_beside()
    reads, reads_longer = in_flight()
    heads = ("model", "the neighbour", "measured", "predicted", "MAPE %", "bias %")
    return {
        "slowed": table(heads, cells),
        "lost": lost_table(),
        "code": code_table(),
        "code_beside": beside,
        "code_longer": f"{longer:.1f}",
        "constants": constants_table(),
        "gaps": gaps_table(),
        "convolution": convolution_table(),
        "small": small_table(),
        "in_flight": reads,
        "reads_longer": f"{reads_longer:.1f}",
        "streams": streams_table(pairs),
        "streams_mape": f"{fmean(abs(pair.error_percent) for pair in pairs):.1f}",
        "streams_bias": f"{fmean(pair.error_percent for pair in pairs):+.1f}",
        "mape": f"{fmean(row.mape_percent for row in rows):.1f}",
        "nothing": f"{fmean(100.0 * abs(1.0 / row.measured - 1.0) for row in rows):.1f}",
        "totals": f"{fmean(100.0 * abs(row.predicted / row.measured - 1.0) for row in rows):.1f}",
        "sms": MODEL_SMS,
        "others": OTHER_SMS,
        "least": f"{LEAST_US:g}",
    }


STUDY = Study(__file__, __doc__, {"result.csv": Slowed, "in_streams.csv": Streamed}, slowed, page, {})

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
