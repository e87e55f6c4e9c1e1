"""What L2 keeps of a call's tensors while others run, measured: `python experiments/l2_kept/run.py [--out DIR]`.

Convolutions of batch 16 ran on an H200 right after themselves, after a kernel that read or wrote some MiB of other
memory, and after one that touched far more than L2 holds (`measured.csv.gz`). How much of what they take longer in the
end they already take longer then is what L2 has lost. The model has a constant for it (`l2_kept_share`, docs/model.md).
It writes README.md, result.csv and lost.png beside itself (or to DIR).

    python experiments/l2_kept/run.py --measure   # measured.csv.gz: needs an NVIDIA GPU, nvcc and cuDNN
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.markdown import table
from experiments.plans import medians, recorded
from experiments.rows import lines
from experiments.study import Run, Study
from gpusim.common.files import write_table
from gpusim.hardware.gpu import GPU
from gpusim.lab.record.toolchain import build, run
from gpusim.model.context import in_context
from gpusim.results.style import COLOURS, GREY, legend_below, new_figure, save_figure
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, Stream

HERE = Path(__file__).resolve().parent
MEASURED, CALLS = HERE / "measured.csv.gz", HERE / "calls.txt"
RUNS = 5  # of the program
LEAST_CAPABILITY = 7.0  # for the waits at a gate
MIB = 2**20


@dataclass(frozen=True, slots=True)
class Lost:
    """What calls have lost after others, of what they lose in the end.

    Attributes:
        others: read or written.
        mib: how much others touched.
        measured_share: of the time that all calls together take longer after the most, what they take longer now.
        predicted_share: the same by the model, each call weighted by what it takes longer in the end.
    """

    others: str
    mib: int
    measured_share: float
    predicted_share: float


# ---- measured --------------------------------------------------------------------------------------------------------


def measure() -> None:
    """Run all calls on this machine's GPU."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "l2_kept"
        build(HERE / "l2_kept.cu", program, LEAST_CAPABILITY, "cudnn", "cuda")
        printed = [run([str(program), str(CALLS)], "the program of calls after others") for _ in range(RUNS)]
    write_table(MEASURED, "".join(medians(text.splitlines() for text in printed)))


def times_us() -> dict[str, dict[str, dict[int, float]]]:
    """Measured times by what others did, call and MiB."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for row in lines(MEASURED):
        found.setdefault(row["others"], {}).setdefault(row["op"], {})[int(row["mib"])] = float(row["ms_call"]) * 1e3
    return found


# ---- predicted -------------------------------------------------------------------------------------------------------


def predicted_share(convolution: Convolution, algorithm: ConvolutionAlgorithm, other_bytes: int, gpu: GPU) -> float:
    """Share of what a call takes longer cold that the model adds where another touches so many bytes; 0 if nothing."""
    if algorithm.warm_us is None or algorithm.cold_us is None or algorithm.cold_us <= algorithm.warm_us:
        return 0.0
    touching = {"touched_bytes": other_bytes, "workspace_bytes": 0, "cold_us": algorithm.warm_us}
    own = convolution.model_copy(update={"selected": algorithm, "alternatives": (), "depends_on": ()})
    other = own.model_copy(update={"id": "other", "selected": algorithm.model_copy(update=touching)})
    stream = Stream(name="all", operations=(own, other))
    found = next(in_context(Trace(version=1, name="two", device=gpu.name, streams=(stream,)), gpu).operations())
    assert isinstance(found, Convolution)
    longer_us = fsum(kernel.duration_us for kernel in found.selected.kernels)
    longer_us -= fsum(kernel.duration_us for kernel in algorithm.kernels) + gpu.model.switch_us
    return longer_us / (algorithm.cold_us - algorithm.warm_us)


def lost(times: Mapping[str, Mapping[str, Mapping[int, float]]], gpu: GPU) -> Iterable[Lost]:
    """What is lost after each size, over all calls."""
    known = recorded(CALLS)
    for others, calls in times.items():
        sizes = sorted(next(iter(calls.values())))
        most = {op: us[sizes[-1]] - us[0] for op, us in calls.items()}
        for mib in sizes:
            measured = fsum(us[mib] - us[0] for us in calls.values())
            predicted = fsum(most[op] * predicted_share(*known[op], mib * MIB, gpu) for op in calls)
            yield Lost(others, mib, measured / fsum(most.values()), predicted / fsum(most.values()))


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Lost]) -> dict[str, object]:
    """What the page says."""
    by = {(row.others, row.mib): row for row in rows}
    cells = [
        (
            f"{mib}",
            *(f"{100.0 * by[others, mib].measured_share:.0f} %" for others in ("read", "written")),
            f"{100.0 * by['read', mib].predicted_share:.0f} %",
        )
        for mib in sorted({row.mib for row in rows})
        if mib
    ]
    return {
        "calls": len(CALLS.read_text().splitlines()),
        "runs": RUNS,
        "shares": table(("MiB of others", "lost where they read", "lost where they write", "as predicted"), cells),
        "points": 100.0 * fmean(abs(row.measured_share - row.predicted_share) for row in rows if row.mib),
    }


def draw(rows: Sequence[Lost], path: Path) -> None:
    """Shares over MiB of others."""
    with new_figure(2.5) as figure:
        axes = figure.subplots()
        for others, colour, marker in (("read", COLOURS[0], "o"), ("written", COLOURS[1], "^")):
            mine = [row for row in rows if row.others == others and row.mib <= 80]
            mib = [row.mib for row in mine]
            axes.plot(mib, [100.0 * row.measured_share for row in mine], marker, color=colour, label=f"others {others}")
        axes.plot(mib, [100.0 * row.predicted_share for row in mine], color=GREY, label="predicted")
        axes.set_xlabel("Memory touched by others in between (MiB)")
        axes.set_ylabel("Cost (% of a cold L2's)")
        legend_below(figure, axes, 3)
        save_figure(figure, path)


def rows(run: Run) -> dict[str, Iterable[Lost]]:
    """What is lost, measured and predicted."""
    return {"result.csv": lost(times_us(), gpusim.load_gpu("h200"))}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Lost},
    rows,
    page,
    {"lost.png": draw},
    {"measure": (measure, "run the calls on this machine's GPU: measured.csv.gz")},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
