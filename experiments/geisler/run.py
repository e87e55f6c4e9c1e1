"""Geisler's MPI + CUDA training, replayed and questioned: `python experiments/geisler/run.py [--out DIR]`.

Writes README.md, result.csv and savings.png beside itself (or to DIR) from the figures of his paper, from what
`step.cu` measured on an H200 (step.csv, kernels.csv) and from `gpus/h200.toml`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from statistics import fmean

from experiments.geisler.step import (
    IMAGES,
    RANKS,
    STEPS,
    Times,
    kept,
    on_device,
    on_one_gpu,
    overlapped,
    pooled,
    products,
    step_trace,
    two_streams,
)
from experiments.markdown import table
from experiments.rows import lines
from experiments.study import Run, Study
from gpusim import load_gpu, replay
from gpusim.results.style import COLOURS, PAGE, Style, legend_below, new_figure, save_figure, styled
from gpusim.trace.format import Trace
from gpusim.trace.operations import Host

HERE = Path(__file__).resolve().parent

# What the paper prints, seconds
CASES_S = {1: (116.96, 41.343, 106.929), 2: (26.0598, 10.543, 26.4188), 3: (25.2335, 9.834, 2.89346)}  # section 1.2
SERIAL_S, MPI_S, MPI_CUDA_S = CASES_S[1]
GEMMS_S = {  # section 1.1: GEMM1 and GEMM2, whose sizes are not given
    "beginner_GEMM": (0.5718, 0.0103521),
    "naive_advanced_GEMM": (1.0723, 0.00900078),
    "advanced_GEMM": (0.197803, 0.00804114),
    "CUBLAS": (0.046957, 0.0044651),
}
PROFILE_S = {"h2d": 2.166, "d2h": 0.469, "kernel": 4.25, "cpu": 219.85}  # section 2.2, current implementation
ORIGINAL_S = {"h2d": 2.223, "d2h": 0.448, "kernel": 13.61, "cpu": 269.83}
GEMM_S = {"allocation": 0.1209, "free": 0.2126, "kernel": 0.2149}  # section 2.1, advanced_GEMM

HIDDEN = 100
RUN_STEPS = 3000  # the paper gives none; nothing but the unit of a step hangs on it
GUESS = "k80"  # the paper does not name its GPU
LARGE = 1000  # neurons, the larger of the two networks that were measured
NO_WORK, OTHER_WORK, SLICED = "no other CPU work", "other CPU work", "time slices"

WHAT_IFS: dict[str, Callable[[Trace], Trace]] = {
    "as written": lambda trace: trace,
    "memory allocated once": kept,
    "and data stay on the GPU": on_device,
    "and copies overlap": overlapped,
    "and two streams a rank": two_streams,
}
MEASURED: dict[str, tuple[str, Callable[[Trace], Trace]]] = {  # variants of step.cu
    "as_written": ("as written", lambda trace: trace),
    "pool": ("stream-ordered pool", pooled),
    "kept": ("memory allocated once", kept),
    "on_device": ("and data stay on the GPU", on_device),
    "overlapped": ("and copies overlap", overlapped),
}


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes:
        machine: the paper's, with GPUs of its ranks' own, or one H200.
        neurons: of the hidden layer.
        ranks: processes.
        variant: what was changed.
        predicted_us: on the paper's machine without CPU work of its own.
        predicted_most_us: there with the most CPU work of its own; elsewhere nothing.
        measured_us: on the H200, under MPS where there are several ranks; elsewhere nothing.
    """

    machine: str
    neurons: int
    ranks: int
    variant: str
    predicted_us: float
    predicted_most_us: float
    measured_us: float

    @property
    def ratio(self) -> float:
        """Prediction over measurement."""
        return self.predicted_us / self.measured_us


@dataclass(frozen=True)
class Part:
    """What a replayed step of rank 0 is made of.

    Attributes:
        case: which step.
        part: kind of work, or ``step``: all of it.
        us: how long.
    """

    case: str
    part: str
    us: float


# ---- the machine of the paper


def paper_times(other_s: float) -> Times:
    """Times of a rank's step in the paper, if its CPU's own work is so long in the whole run (s).

    The profile's shares are applied to the run's time; what is left of the CPU's is allocating and freeing, in the
    ratio of the profile of one product. Copies go by bytes, kernels by flop.
    """
    step_us = MPI_CUDA_S / RUN_STEPS * 1e6
    share = {name: seconds / sum(PROFILE_S.values()) for name, seconds in PROFILE_S.items()}
    multiplied = products(HIDDEN)
    flop = sum(product.flop for product in multiplied)
    bytes_in = sum(sum(product.sizes.values()) for product in multiplied)
    bytes_out = sum(product.sizes["c"] for product in multiplied)
    other_us = other_s / RUN_STEPS * 1e6
    memory_us = step_us * share["cpu"] - other_us
    calls = 3 * len(multiplied)
    both = GEMM_S["allocation"] + GEMM_S["free"]
    return Times(
        kernels=tuple(step_us * share["kernel"] * product.flop / flop for product in multiplied),
        allocation=memory_us * GEMM_S["allocation"] / both / calls,
        free=memory_us * GEMM_S["free"] / both / calls,
        h2d_per_byte=step_us * share["h2d"] / bytes_in,
        d2h_per_byte=step_us * share["d2h"] / bytes_out,
        other=other_us,
    )


def step_us(trace: Trace, gpu: str, policy: str = "leftover") -> float:
    """How long a step takes."""
    return replay(trace, load_gpu(gpu), policy, keep=()).makespan_us / STEPS


def breakdown(trace: Trace, gpu: str) -> dict[str, float]:
    """What a step of rank 0 is made of, us: by kind of work, what a step has beyond it, and the whole step."""
    result = replay(trace, load_gpu(gpu), "leftover", keep=())
    kinds = {op.id: op.what if isinstance(op, Host) else getattr(op, "direction", op.kind) for op in trace.operations()}
    found: dict[str, float] = {}
    for run in result.operation_runs:
        if run.stream == "rank0":
            found[kinds[run.operation]] = found.get(kinds[run.operation], 0.0) + (run.end_us - run.start_us) / STEPS
    return found | {"step": result.makespan_us / STEPS}


def savings() -> list[Step]:
    """Every what-if at both ends of what is not known."""
    ends = [step_trace(GUESS, HIDDEN, paper_times(other_s)) for other_s in (0.0, MPI_S)]
    found = []
    for name, change in WHAT_IFS.items():
        found.append(Step("paper", HIDDEN, RANKS, name, *(step_us(change(trace), GUESS) for trace in ends), nan))
    for name, policy in (("one GPU, in turns", "serial"), ("one GPU, under MPS", "mps")):
        both = (step_us(on_one_gpu(on_device(trace)), GUESS, policy) for trace in ends)
        found.append(Step("paper", HIDDEN, RANKS, f"data stay, {name}", *both, nan))
    return found


# ---- an H200


def measured(name: str) -> dict[tuple[int, int, str], dict[str, str]]:
    """A table of steps by neurons, ranks and variant."""
    return {(int(row["hidden"]), int(row["ranks"]), MEASURED[row["variant"]][0]): row for row in lines(HERE / name)}


def h200_trace(hidden: int, ranks: int) -> Trace:
    """The step of so many ranks on one H200: bytes without durations, but for the kernels'."""
    kernels = tuple(float(row["us"]) for row in lines(HERE / "kernels.csv") if int(row["hidden"]) == hidden)
    trace = step_trace("h200", hidden, Times(kernels=kernels, launch=True), ranks)
    return on_one_gpu(trace)


def predictions() -> list[Step]:
    """Every variant that was measured."""
    together, changes = measured("step_mps.csv"), dict(MEASURED.values())
    found = []
    for (hidden, ranks, name), alone in measured("step.csv").items():
        predicted_us = step_us(changes[name](h200_trace(hidden, ranks)), "h200")
        row = together.get((hidden, ranks, name), alone) if ranks > 1 else alone
        found.append(Step("h200", hidden, ranks, name, predicted_us, nan, float(row["step_us"])))
    return found


def parts() -> list[Part]:
    """What the paper's step is made of at both ends, and steps of ranks without MPS."""
    found = [
        Part(case, part, us)
        for case, other_s in ((NO_WORK, 0.0), (OTHER_WORK, MPI_S))
        for part, us in breakdown(step_trace(GUESS, HIDDEN, paper_times(other_s)), GUESS).items()
    ]
    changes = dict(MEASURED.values())
    sliced = [
        Part(_sliced(*key), key[2], step_us(changes[key[2]](h200_trace(*key[:2])), "h200", "time-slicing"))
        for key in measured("step.csv")
        if key[1] > 1
    ]
    return [*found, *sliced]


def _sliced(neurons: int, ranks: int, *_: str) -> str:
    """The case of some ranks without MPS."""
    return f"{SLICED}, {neurons} neurons, {ranks} ranks"


# ---- what it shows


def case_table() -> str:
    """His three grading cases: times, and how many times as fast as the serial program."""
    cells = []
    for case, (serial, mpi, cuda) in CASES_S.items():
        times = [f"{seconds:.2f} s" for seconds in (serial, mpi, cuda)]
        cells.append([str(case), *times, f"{serial / mpi:.1f}x", f"{serial / cuda:.1f}x"])
    return table(["case", "serial", "MPI", "MPI + CUDA", "MPI gains", "MPI + CUDA gains"], cells)


def gemm_table() -> str:
    """His four matrix products at two sizes: times, and how many times as long as his best."""
    best = GEMMS_S["advanced_GEMM"]
    cells = []
    for name, times in GEMMS_S.items():
        ratios = [f"{one / other:.2f}x" for one, other in zip(times, best, strict=True)]
        cells.append([f"`{name}`", *(f"{1e3 * seconds:.2f} ms" for seconds in times), *ratios])
    return table(["kernel", "GEMM1", "GEMM2", "over advanced: GEMM1", "GEMM2"], cells)


def page(steps: Sequence[Step], made_of: Sequence[Part]) -> dict[str, object]:
    """What the page says."""
    us = {(one.case, one.part): one.us for one in made_of}
    paper, rows = split(steps)
    of = {(row.neurons, row.ranks, row.variant): row for row in rows}
    names = [name for name, _ in MEASURED.values()]
    multiplied = products(HIDDEN)
    written = {key: row for key, row in measured("step_mps.csv").items() if key[2] == names[0]}
    unshared = measured("step.csv")
    alone = unshared[HIDDEN, 1, names[0]]

    def cpu_percent(case: str) -> float:
        return 100.0 * (us[case, "allocation"] + us[case, "free"]) / us[case, "step"]

    def percent(*kinds: str) -> float:
        return 100.0 * sum(float(alone[kind]) for kind in kinds) / float(alone["step_us"])

    def allocation_us(row: Mapping[str, str]) -> float:
        return float(row["allocation_us"]) / (3 * len(multiplied))

    def error_percent(*variants: str) -> float:
        return fmean(100.0 * abs(row.ratio - 1.0) for row in rows if row.variant in variants)

    slower = [float(unshared[key]["step_us"]) / row.measured_us for key, row in of.items() if row.ranks == 4]
    sliced = {
        key: 100.0 * (us[_sliced(*key), key[2]] / float(row["step_us"]) - 1.0)
        for key, row in unshared.items()
        if key[1] > 1
    }
    before, after = paper[0], paper[1]
    return {
        "cpu": cpu_percent(NO_WORK),
        "gpu": 100.0 - cpu_percent(NO_WORK),
        "copies_ms": (us[NO_WORK, "h2d"] + us[NO_WORK, "d2h"]) / 1e3,
        "kernel_ms": us[NO_WORK, "kernel"] / 1e3,
        "paper_ratio": PROFILE_S["h2d"] / PROFILE_S["d2h"],
        "ratio": sum(sum(p.sizes.values()) for p in multiplied) / sum(p.sizes["c"] for p in multiplied),
        "images": IMAGES,
        "gemm": sum(GEMM_S.values()) / GEMM_S["kernel"],
        "memory": cpu_percent(OTHER_WORK),
        "by_size": PROFILE_S["kernel"] * (GEMM_S["allocation"] + GEMM_S["free"]) / GEMM_S["kernel"],
        "cpu_s": PROFILE_S["cpu"],
        "original_s": sum(ORIGINAL_S.values()),
        "profile_s": sum(PROFILE_S.values()),
        "slower": ORIGINAL_S["kernel"] - PROFILE_S["kernel"],
        "fewer": sum(ORIGINAL_S.values()) - sum(PROFILE_S.values()),
        "whole_least": before.predicted_most_us / after.predicted_most_us,
        "whole_most": before.predicted_us / after.predicted_us,
        "hidden": HIDDEN,
        "large": LARGE,
        "steps": RUN_STEPS,
        "mpi": MPI_S,
        "savings": saving_table(paper),
        "cases": case_table(),
        "gemms": gemm_table(),
        "fewer_calls": CASES_S[2][2] / CASES_S[3][2],
        "case_3": CASES_S[3][0] / CASES_S[3][2],
        "predictions": prediction_table(rows),
        "pinned": error_percent(names[4]),
        "once": error_percent(*names[1:3]),
        "resident": error_percent(names[3]),
        "written": error_percent(names[0]),
        "small_us": allocation_us(alone),
        "large_us": allocation_us(written[LARGE, 1, names[0]]),
        "four_us": allocation_us(written[LARGE, 4, names[0]]),
        "least_slower": min(slower),
        "most_slower": max(slower),
        "sliced_copied": fmean(error for key, error in sliced.items() if key[2] not in names[3:]),
        "sliced_kept": fmean(error for key, error in sliced.items() if key[2] in names[3:]),
        "copied": percent("h2d_us", "d2h_us"),
        "allocated": percent("allocation_us", "free_us"),
        "saved": saved_table(of, names),
        "four": of[HIDDEN, 4, names[4]].measured_us / of[HIDDEN, 1, names[4]].measured_us,
    }


def split(steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Those on the paper's machine, and those on an H200."""
    return [one for one in steps if one.machine == "paper"], [one for one in steps if one.machine == "h200"]


def saving_table(paper: Sequence[Step]) -> str:
    """What each change of his machine's step would save."""
    titles = ("a step", "no other CPU work, ms", "speedup", f"{MPI_S} s of it, ms", "speedup")
    cells = []
    for row in paper:
        cell = [row.variant]
        for us, first in (
            (row.predicted_us, paper[0].predicted_us),
            (row.predicted_most_us, paper[0].predicted_most_us),
        ):
            cell += [f"{us / 1e3:.2f}", f"{first / us:.1f}x"]
        cells.append(cell)
    return table(titles, cells)


def prediction_table(rows: Sequence[Step]) -> str:
    """Every step on an H200, predicted and measured."""
    unshared = measured("step.csv")
    titles = ("neurons", "ranks", "variant", "predicted µs", "measured µs", "error", "measured without MPS µs")
    cells = [
        (
            str(row.neurons),
            str(row.ranks),
            row.variant,
            f"{row.predicted_us:,.0f}",
            f"{row.measured_us:,.0f}",
            f"{100.0 * (row.ratio - 1.0):+.0f} %",
            f"{float(unshared[row.neurons, row.ranks, row.variant]['step_us']):,.0f}",
        )
        for row in rows
    ]
    return table(titles, cells)


def saved_table(of: Mapping[tuple[int, int, str], Step], names: Sequence[str]) -> str:
    """What each change of one rank's step gains on an H200."""
    first = of[HIDDEN, 1, names[0]]
    cells = []
    for name in names[1:]:
        row = of[HIDDEN, 1, name]
        measured_gain = first.measured_us / row.measured_us
        cells.append((name, f"{measured_gain:.1f}x", f"{first.predicted_us / row.predicted_us:.1f}x"))
    return table(("variant", "measured", "predicted"), cells)


def draw(steps: Sequence[Step], _: Sequence[Part], path: Path) -> None:
    """A step on the paper's machine, both ends, and on an H200, predicted and measured."""
    with styled(Style(PAGE)), new_figure(2.9) as figure:
        paper, h200 = figure.subplots(1, 2)
        least, rows = split(steps)
        names = [row.variant for row in least]
        most_ms = [row.predicted_most_us / 1e3 for row in least]
        paper.barh(names, most_ms, color=COLOURS[3], hatch="....", label=f"{MPI_S} s of other CPU work")
        paper.barh(names, [row.predicted_us / 1e3 for row in least], color=COLOURS[0], label="no other CPU work")
        paper.invert_yaxis()
        paper.set_xlabel("Time per step (ms)")
        paper.set_title("The paper's machine, 4 ranks")
        for colour, ranks, marker in zip(COLOURS, (1, 2, 4), "os^", strict=False):
            some = [row for row in rows if row.ranks == ranks]
            h200.plot(
                [row.measured_us for row in some],
                [row.predicted_us for row in some],
                marker=marker,
                linestyle="",
                color=colour,
            )
            label = f"{ranks} ranks" if ranks > 1 else "1 rank"
            paper.plot([], [], marker, color=colour, label=label)
        ends = (90.0, 6000.0)
        h200.plot(ends, ends, color="black", linewidth=0.8)
        h200.set_xscale("log")
        h200.set_yscale("log")
        for axis in (h200.xaxis, h200.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
            axis.set_minor_formatter(lambda value, _: "")
        h200.set_xlabel("Measured time per step (µs)")
        h200.set_ylabel("Predicted (µs)")
        h200.set_title("An H200, every variant")
        legend_below(figure, paper, 5)
        save_figure(figure, path)


def rows(run: Run) -> dict[str, list[Step] | list[Part]]:
    """The what-ifs on the paper's machine, then the predictions; and what steps are made of."""
    return {"result.csv": [*savings(), *predictions()], "parts.csv": parts()}


STUDY = Study(__file__, __doc__, {"result.csv": Step, "parts.csv": Part}, rows, page, {"savings.png": draw})

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
