"""SPAA'20's 27 cases, counted: `python experiments/spaa20_27_cases/run.py [--out DIR] [--jobs N]`.

Pairs of independent convolutions of GoogLeNet with algorithms that complement one another, by the rule of `gpusim
pairs`, on a K40c and an H200; how many of them gain when replayed, and when measured. It writes README.md, cases.csv,
measured.csv and cases.png beside itself (or to DIR). A run that was cut off goes on where it was (*.part.jsonl).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import gpusim
from experiments.rows import lines
from experiments.spaa20_27_cases import report
from experiments.spaa20_27_cases.report import Case, Count, Measured
from experiments.study import RECORDED, TRACES, Run, Study
from gpusim.calibrate.kernels import Kernels
from gpusim.choose.pairs import Pairs, complementary, pairs
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm

TRACE = TRACES / "googlenet_forward.json.gz"
MEASURED = RECORDED / "pairs.csv"
GPUS = ("k40c", "h200")


def answer(gpu: str) -> list[Any]:
    """The count and the cases of a GPU as plain data."""
    found = pairs(gpusim.load_trace(TRACE), gpusim.load_gpu(gpu))
    return [found.independent, [list(astuple(case)) for case in cases(found)]]


def cases(found: Pairs) -> Iterator[Case]:
    """As rows."""
    for case in found.cases:
        a, b = case.sides
        yield Case(
            found.gpu,
            a.operation,
            b.operation,
            a.algorithm,
            b.algorithm,
            a.holds[0],
            b.holds[0],
            case.combinations,
            case.gaining,
            case.policy,
            case.together_us,
            case.serial_us,
            case.serial_fastest_us,
            case.streams_fastest_us,
        )


# ---- measured --------------------------------------------------------------------------------------------------------


def algorithms(trace: Trace) -> dict[str, tuple[Convolution, ConvolutionAlgorithm]]:
    """Every algorithm of every convolution, by operation and algorithm."""
    return {
        f"{op.id}/{one.algorithm}": (op, one)
        for op in trace.operations()
        if isinstance(op, Convolution)
        for one in (op.selected, *op.alternatives)
    }


def measured() -> list[Measured]:
    """Measured pairs of independent forward convolutions of GoogLeNet; the lines of a pair once each, in file order."""
    trace, gpu = gpusim.load_trace(TRACE), gpusim.load_gpu("h200")
    known, kernels = algorithms(trace), Kernels(gpu, gpu)
    branch = {op.id: stream.name for stream in trace.streams for op in stream.operations}
    times: dict[tuple[str, str, str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line in lines(MEASURED):
        names = [_in_trace(line[side]) for side in ("a", "b")]
        if all(name in known for name in names):
            times[(*names, line["na"], line["nb"])][line["mode"]].append(float(line["ms_makespan"]))
    found = []
    for (a, b, _, _), modes in times.items():
        (first, mine), (second, its) = known[a], known[b]
        if first.id.split(".")[0] != second.id.split(".")[0] or branch[first.id] == branch[second.id]:
            continue  # one waits for the other
        longest = [max(one.kernels, key=lambda kernel: kernel.duration_us) for one in (mine, its)]
        models = [kernels.model(kernel, name) for kernel, name in zip(longest, (a, b), strict=True)]
        alone = sum(modes["alone"]) / len(modes["alone"])
        streams = min((*modes["streams"], *modes["streams_b_first"]))
        split = min(modes["green"], default=0.0)
        found.append(Measured(a, b, int(complementary(*models, gpu)), alone, streams, split))
    return found


def _in_trace(op: str) -> str:
    """``googlenet/3a.1x1/fwd/GEMM/FMA`` as ``3a.1x1/GEMM/FMA``; what is not a forward one of GoogLeNet as nothing."""
    network, layer, direction, algorithm, math = op.split("/")
    return f"{layer}/{algorithm}/{math}" if (network, direction) == ("googlenet", "fwd") else ""


def rows(run: Run) -> dict[str, list[Any]]:
    """The cases and counts of each GPU, and the measured pairs."""
    answers = run.answers("cases", GPUS, answer, [Path(__file__), TRACE], GPUS)
    return {
        "cases.csv": [Case(*row) for _, cases in answers.values() for row in cases],
        "counts.csv": [Count(gpu, independent) for gpu, (independent, _) in answers.items()],
        "measured.csv": measured(),
    }


STUDY = Study(
    __file__,
    __doc__,
    {"cases.csv": Case, "counts.csv": Count, "measured.csv": Measured},
    rows,
    report.page,
    {"cases.png": report.draw},
    parallel=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
