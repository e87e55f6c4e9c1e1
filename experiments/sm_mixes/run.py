"""Two cuDNN kernels on the same SMs, measured and predicted: `python experiments/sm_mixes/run.py [--out DIR]`.

Pairs of convolutions of batch 16, of one kernel each, ran in two streams of one green context of an H200
(`mixes.csv.gz`). The context has as many SMs as the kernels have blocks, or a part of that, so all SMs hold the same
mix. It writes README.md, result.csv and progress.png beside itself (or to DIR).

    python experiments/sm_mixes/run.py --measure   # mixes.csv.gz: needs an NVIDIA GPU, nvcc, cuDNN and CUPTI
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, fsum, log, nan
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.markdown import table
from experiments.plans import recorded
from experiments.rows import lines
from experiments.scatter import predicted_over_measured
from experiments.study import Run, Study
from gpusim import Grant, Partition, Policy, Session, View
from gpusim.common.files import write_table
from gpusim.hardware.gpu import GPU
from gpusim.lab.record.toolchain import build, run
from gpusim.model.kernel import KernelModel
from gpusim.trace.kernels import taking
from gpusim.trace.operations import Convolution, Stream

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "mixes.csv.gz"
SMS = (98, 100, 64)  # of the green contexts, each with the calls of `calls_SMS.txt`
COLUMNS = "sms,a,b,stream,start_us,end_us\n"
LEAST_CAPABILITY = 7.0  # for the waits at a gate
WORST = 8  # pairs in a table of its own
Spans = list[tuple[float, float]]  # starts and ends of a stream's kernels, us


@dataclass(frozen=True, slots=True)
class Mix:
    """Two kernels on the same SMs, each in a stream that repeats it.

    Attributes:
        sms: of the green context.
        a, b: the calls.
        a_blocks, b_blocks: of a kernel for each SM.
        fits: whether an SM has room for all these blocks at once.
        a_measured, b_measured: progress while both run: kernels per time, 1 as alone on these SMs.
        a_predicted, b_predicted: the same by the model.
        older_measured, older_predicted: duration of the first kernel of the stream that starts first, 1 as alone: its
            blocks are older than all others. NaN where not all blocks fit.
        us_measured, us_predicted: makespan.
    """

    sms: int
    a: str
    b: str
    a_blocks: float
    b_blocks: float
    fits: int
    a_measured: float
    b_measured: float
    a_predicted: float
    b_predicted: float
    older_measured: float
    older_predicted: float
    us_measured: float
    us_predicted: float


@dataclass
class Together(Policy):
    """All kernels on the first SMs."""

    sms: int = 1
    name = "together"
    summary = "all kernels on the first SMs"

    def shows_sms(self) -> bool:
        """A green context does."""
        return True

    def partition(self, view: View) -> Partition:
        """Every kernel as it comes."""
        return Partition(tuple(Grant(kernel.id, sms=frozenset(range(self.sms))) for kernel in view.kernels))


# ---- measured --------------------------------------------------------------------------------------------------------


def measure() -> None:
    """Run all pairs on this machine's GPU."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "mixes"
        build(HERE / "mixes.cu", program, LEAST_CAPABILITY, "cudnn", "cuda", "cupti")
        found = [run([str(program), str(calls_of(sms)), str(sms)], "the program of mixes") for sms in SMS]
    write_table(MEASURED, COLUMNS + "".join(found))


def calls_of(sms: int) -> Path:
    """The list of the calls that ran on so many SMs."""
    return HERE / f"calls_{sms}.txt"


def timelines() -> dict[tuple[int, str, str], dict[str, Spans]]:
    """The kernels of each stream, by SMs and calls; the second call is empty where the first ran alone."""
    found: dict[tuple[int, str, str], dict[str, Spans]] = {}
    for row in lines(MEASURED):
        streams = found.setdefault((int(row["sms"]), row["a"], row["b"]), {})
        streams.setdefault(row["stream"], []).append((float(row["start_us"]), float(row["end_us"])))
    return found


# ---- predicted -------------------------------------------------------------------------------------------------------


def convolutions(gpu: GPU) -> dict[str, Convolution]:
    """Every call as it was recorded; it finds its own data in L2, as it repeats."""
    calls = {name: call for sms in SMS for name, call in recorded(calls_of(sms)).items()}
    found = {}
    for name, (op, one) in calls.items():
        assert one.warm_us is not None
        kernels = taking(one.kernels, one.warm_us - gpu.model.event_overhead_us)
        repeated = one.model_copy(update={"kernels": kernels, "warm_us": None, "cold_us": None})
        found[name] = op.model_copy(update={"selected": repeated, "alternatives": (), "depends_on": ()})
    return found


def model_of(call: Convolution, session: Session) -> KernelModel:
    """The model of its kernel."""
    trace = gpusim.Trace(name="call", device="h200", streams=(Stream(name="a", operations=(call,)),))
    (kernel,) = call.selected.kernels
    return session.kernels(trace).model(kernel, call.id)


def replayed(calls: Mapping[str, tuple[Convolution, int]], sms: int, session: Session) -> dict[str, Spans]:
    """Starts and ends of the kernels of each stream, which repeats a call so often, from the first start on."""
    streams = tuple(
        Stream(name=name, operations=tuple(op.model_copy(update={"id": f"{name}{i}"}) for i in range(count)))
        for name, (op, count) in calls.items()
    )
    trace = gpusim.Trace(name="mix", device="h200", streams=streams)
    kernels = session.replay(trace, Together(sms)).kernels
    first = kernels.start_us.min()
    return {
        name: [(k.start_us - first, k.end_us - first) for k in kernels[kernels.stream == name].itertuples()]
        for name in calls
    }


def progress(of: Spans, other: Spans, period_us: float) -> float:
    """Kernels while both streams run, over those that would have run alone."""
    until = min(of[-1][1], other[-1][1])
    done = fsum(min(1.0, (until - start) / (end - start)) for start, end in of if start < until)
    return done * period_us / until


def period_us(alone: Spans) -> float:
    """Time from start to start of a call that runs alone."""
    return (alone[-1][0] - alone[0][0]) / (len(alone) - 1)


def duration_us(alone: Spans) -> float:
    """Time of its kernel."""
    return fmean(end - start for start, end in alone)


def mixes(session: Session) -> Iterator[Mix]:
    """All pairs."""
    measured, known = timelines(), convolutions(session.gpu)
    model_by = {name: model_of(call, session) for name, call in known.items()}
    alone = {(sms, a): spans["a"] for (sms, a, b), spans in measured.items() if not b}
    predicted = {
        (sms, a): replayed({"a": (known[a], len(spans))}, sms, session)["a"] for (sms, a), spans in alone.items()
    }
    for (sms, a, b), real in measured.items():
        if not b:
            continue
        first, second = sorted("ab", key=lambda name: real[name][0][0])
        call = {"a": a, "b": b}
        model = replayed({name: (known[call[name]], len(real[name])) for name in (first, second)}, sms, session)
        models = [model_by[a], model_by[b]]
        blocks = models[0].blocks / sms, models[1].blocks / sms
        needed = [sum(ceil(n) * m.need[r] for n, m in zip(blocks, models, strict=True)) for r in range(4)]
        fits = all(n <= most for n, most in zip(needed, session.gpu.limits.capacity, strict=True))
        older = [
            (spans[first][0][1] - spans[first][0][0]) / duration_us(by[sms, call[first]])
            for spans, by in ((real, alone), (model, predicted))
        ]
        a_measured, b_measured, a_predicted, b_predicted = (
            progress(spans[x], spans[y], period_us(by[sms, call[x]]))
            for spans, by in ((real, alone), (model, predicted))
            for x, y in ("ab", "ba")
        )
        older_measured, older_predicted = older if fits else (nan, nan)
        us_measured, us_predicted = (max(spans["a"][-1][1], spans["b"][-1][1]) for spans in (real, model))
        yield Mix(
            sms, a, b, *blocks, int(fits), a_measured, b_measured, a_predicted, b_predicted,
            older_measured, older_predicted, us_measured, us_predicted,
        )  # fmt: skip


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Mix]) -> dict[str, object]:
    """What the page says."""
    cells = []
    for title, mine in (*((f"{sms} SMs", [r for r in rows if r.sms == sms]) for sms in SMS), ("all", list(rows))):
        off = [log(p / m) for r in mine for m, p in ((r.a_measured, r.a_predicted), (r.b_measured, r.b_predicted))]
        longer = [100.0 * (row.us_predicted / row.us_measured - 1.0) for row in mine]
        cells.append(
            (
                title,
                f"{len(mine)}",
                f"{100.0 * fmean(map(abs, off)):.1f}",
                f"{fmean(map(abs, longer)):.1f}",
                f"{fmean(longer):+.1f}",
            )
        )
    fit = [row for row in rows if row.fits]
    worst = sorted(rows, key=lambda row: -abs(row.us_predicted / row.us_measured - 1.0))[:WORST]
    return {
        "pairs": len(rows),
        "errors": table(("SMs", "pairs", "progress, mean % off", "makespan, mean % off", "bias %"), cells),
        "fit": len(fit),
        "older_measured": fmean(row.older_measured for row in fit),
        "older_predicted": fmean(row.older_predicted for row in fit),
        "older_off": 100.0 * fmean(abs(log(row.older_predicted / row.older_measured)) for row in fit),
        "alike": len([row for row in fit if row.a == row.b]),
        "alike_measured": fmean(row.a_measured + row.b_measured for row in fit if row.a == row.b),
        "alike_predicted": fmean(row.a_predicted + row.b_predicted for row in fit if row.a == row.b),
        "worst": table(
            ("a", "b", "progress of a", "of b", "predicted of a", "of b", "makespan % off"),
            [
                (
                    _short(row.a),
                    _short(row.b),
                    *(f"{x:.2f}" for x in (row.a_measured, row.b_measured, row.a_predicted, row.b_predicted)),
                    f"{100.0 * (row.us_predicted / row.us_measured - 1.0):+.0f}",
                )
                for row in worst
            ],
        ),
    }


def _short(call: str) -> str:
    """A call without its module."""
    _, id, _, algorithm = call.split("/", 3)
    return f"`{id}` {algorithm}"


def draw(rows: Sequence[Mix], path: Path) -> None:
    """Progress, predicted over measured."""
    points = {
        f"{sms} SMs": [
            (100.0 * m, 100.0 * p)
            for r in rows
            if r.sms == sms
            for m, p in ((r.a_measured, r.a_predicted), (r.b_measured, r.b_predicted))
        ]
        for sms in SMS
    }
    titles = ("Progress, measured (% of alone)", "Progress, predicted (% of alone)")
    predicted_over_measured(points, titles, (20, 30, 50, 70, 100), path)


def rows(run: Run) -> dict[str, Iterable[Mix]]:
    """All pairs, measured and predicted."""
    return {"result.csv": mixes(Session("h200"))}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Mix},
    rows,
    page,
    {"progress.png": draw},
    {"measure": (measure, "run the pairs on this machine's GPU: mixes.csv.gz")},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
