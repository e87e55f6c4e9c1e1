"""Geisler's MPI + CUDA training, replayed and questioned: `python experiments/geisler/run.py [--out DIR]`.

Writes README.md, result.csv and savings.png beside itself (or to DIR) from the figures of his paper, from what
`step.cu` measured on an H200 (step.csv, kernels.csv) and from `gpus/h200.toml`.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from step import (
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

from gpusim import load_gpu, replay
from gpusim.common.files import write_text
from gpusim.common.markdown import table as _markdown
from gpusim.results.plots import new_figure, save_figure
from gpusim.trace.format import Trace
from gpusim.trace.operations import Host

HERE = Path(__file__).resolve().parent

# What the paper prints, seconds
SERIAL_S, MPI_S, MPI_CUDA_S = 116.96, 41.343, 106.929  # section 1.2, case 1
PROFILE_S = {"h2d": 2.166, "d2h": 0.469, "kernel": 4.25, "cpu": 219.85}  # section 2.2, current implementation
ORIGINAL_S = {"h2d": 2.223, "d2h": 0.448, "kernel": 13.61, "cpu": 269.83}
GEMM_S = {"allocation": 0.1209, "free": 0.2126, "kernel": 0.2149}  # section 2.1, advanced_GEMM

HIDDEN = 100
RUN_STEPS = 3000  # the paper gives none; nothing but the unit of a step hangs on it
GUESS = "k80"  # the paper does not name its GPU

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
class Saving:
    """A what-if on the machine of the paper: ms of a step with the least and the most CPU work of its own."""

    name: str
    least_ms: float
    most_ms: float


@dataclass(frozen=True)
class Prediction:
    """A step on an H200, us, predicted and measured."""

    hidden: int
    ranks: int
    variant: str
    predicted_us: float
    measured_us: float
    together_us: float | None  # measured under MPS


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


def savings() -> list[Saving]:
    """Every what-if at both ends of what is not known."""
    ends = [step_trace(GUESS, HIDDEN, paper_times(other_s)) for other_s in (0.0, MPI_S)]
    found = []
    for name, change in WHAT_IFS.items():
        least, most = (step_us(change(trace), GUESS) / 1e3 for trace in ends)
        found.append(Saving(name, least, most))
    for name, policy in (("one GPU, in turns", "serial"), ("one GPU, under MPS", "mps")):
        least, most = (step_us(on_one_gpu(on_device(trace)), GUESS, policy) / 1e3 for trace in ends)
        found.append(Saving(f"data stay, {name}", least, most))
    return found


# ---- an H200


def read(name: str) -> list[dict[str, str]]:
    """A table that was measured."""
    with open(HERE / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def h200_trace(hidden: int, ranks: int) -> Trace:
    """The step of so many ranks on one H200: bytes without durations, but for the kernels'."""
    kernels = tuple(float(row["us"]) for row in read("kernels.csv") if int(row["hidden"]) == hidden)
    trace = step_trace("h200", hidden, Times(kernels=kernels, launch=True), ranks)
    return on_one_gpu(trace)


def predictions() -> list[Prediction]:
    """Every variant that was measured."""
    together = {(row["ranks"], row["hidden"], row["variant"]): float(row["step_us"]) for row in read("step_mps.csv")}
    found = []
    for row in read("step.csv"):
        name, change = MEASURED[row["variant"]]
        hidden, ranks = int(row["hidden"]), int(row["ranks"])
        predicted = step_us(change(h200_trace(hidden, ranks)), "h200")
        key = (row["ranks"], row["hidden"], row["variant"])
        found.append(Prediction(hidden, ranks, name, predicted, float(row["step_us"]), together.get(key)))
    return found


# ---- what it shows


def agreement() -> list[tuple[str, str, str, str]]:
    """What the paper says, what comes out here, whether they agree, and why."""
    low, high = (step_trace(GUESS, HIDDEN, paper_times(other_s)) for other_s in (0.0, MPI_S))
    parts = breakdown(low, GUESS)
    cpu = 100.0 * (parts["allocation"] + parts["free"]) / parts["step"]
    copies = parts["h2d"] + parts["d2h"]
    of_others = breakdown(high, GUESS)
    memory = 100.0 * (of_others["allocation"] + of_others["free"]) / of_others["step"]
    multiplied = products(HIDDEN)
    ratio = sum(sum(p.sizes.values()) for p in multiplied) / sum(p.sizes["c"] for p in multiplied)
    paper_ratio = PROFILE_S["h2d"] / PROFILE_S["d2h"]
    gemm = sum(GEMM_S.values()) / GEMM_S["kernel"]
    whole = [step_us(trace, GUESS) / step_us(kept(trace), GUESS) for trace in (high, low)]
    slower = ORIGINAL_S["kernel"] - PROFILE_S["kernel"]
    fewer = sum(ORIGINAL_S.values()) - sum(PROFILE_S.values())
    by_size = PROFILE_S["kernel"] * (GEMM_S["allocation"] + GEMM_S["free"]) / GEMM_S["kernel"]
    return [
        (
            "97 % of the time is spent in CPU operations, 3 % on the GPU",
            f"{cpu:.1f} %, {100.0 - cpu:.1f} %",
            "yes",
            "put in, and back out: the replay adds no time where ranks do the same",
        ),
        (
            "copies take less time than kernels",
            f"{copies / 1e3:.2f} ms against {parts['kernel'] / 1e3:.2f} ms a step",
            "yes",
            "put in, likewise",
        ),
        (
            f"copies to the GPU take {paper_ratio:.1f} times those back",
            f"{ratio:.1f} times the bytes",
            "yes",
            f"of a network 784-{HIDDEN}-10, {IMAGES} images a rank and all three matrices copied in: the sizes are "
            "ours, the paper gives none",
        ),
        (
            "without allocating and freeing a product is over 2x as fast",
            f"{gemm:.2f}x",
            "yes",
            "the profile of one product, allocations taken out",
        ),
        (
            "allocating and freeing is largely responsible for the CPU's time",
            f"{memory:.0f} to {cpu:.0f} % of the run",
            "yes",
            f"the same 4 ranks without a GPU take {MPI_S} s with all products on the CPU, so no more than that is "
            "other work",
        ),
        (
            "… as the profile of one product shows",
            f"by its ratio to the kernel {by_size:.1f} s of {PROFILE_S['cpu']} s",
            "no",
            "the products of a training step are small: what counts is the number of calls, not their bytes",
        ),
        (
            f"a kernel 3x as fast took the profile from {sum(ORIGINAL_S.values()):.0f} to "
            f"{sum(PROFILE_S.values()):.0f} s",
            f"the kernel explains {slower:.1f} of {fewer:.1f} s",
            "no",
            "the rest is CPU work that was taken out at the same time, as section 1.2 says",
        ),
        (
            "allocating once could make the whole faster, by how much is not said",
            f"{whole[0]:.1f}x to {whole[1]:.0f}x",
            "-",
            f"the ends: {MPI_S} s of other CPU work, or none",
        ),
    ]


def error_percent(rows: Sequence[Prediction]) -> float:
    """Mean absolute error of predictions against what was measured, under MPS where there are several ranks."""
    return fsum(100.0 * abs(row.predicted_us / _truth(row) - 1.0) for row in rows) / len(rows)


def _truth(row: Prediction) -> float:
    return row.together_us if row.ranks > 1 and row.together_us is not None else row.measured_us


TEXT = """# Geisler: MPI + CUDA training, and what its allocations and copies cost

    python experiments/geisler/run.py

Taylor Geisler trains a network of two layers with 4 MPI processes and a GPU each. Every matrix product allocates three
matrices on the GPU, copies them in, multiplies, copies the result out and frees them. With the GPUs the training is no
faster than on one CPU (106.9 against 117.0 s), and the report says why and what it would try next. Here his step is a
trace of ranks (`step.py`: host work, copies, kernels, and collectives in which ranks wait for one another), replayed
with a GPU a rank; what he would have tried are changes of that trace.

## What he says, and what the replay says

{agreement}

The paper gives neither the sizes of the network, nor the number of steps, nor the GPU. Assumed: 784-{hidden}-10, a
batch of 800, {steps} steps, a K80. The steps move no ratio below, the GPU only those where ranks share one; of the
sizes hangs how copies and kernels divide among the products, but their sums are his.

## What he could not try: his machine

Shares of his profile, applied to his run. How much of the CPU's time is not allocating and freeing he does not say:
the first column takes none, the second {mpi} s, as long as the whole run without GPUs, which had all products on the
CPU. The truth is between.

{savings}

* Allocating once is nearly all there is to gain. Then copies and kernels are so short that the CPU's own work decides.
* Data that stay, overlap and a second stream a rank save the GPU's part, of which he had 3 %.
* Four ranks on one GPU (data stay): in turns they wait for one another's kernels; under MPS less so, for one kernel
  leaves SMs to the others. What changing turns costs is not in it; below it is measured, and it is much.

![ms of a step](savings.png)

## The same step on an H200: predicted and measured

`step.cu` is his step, small, on one H200: 1, 2 and 4 ranks (processes) on the one GPU, under MPS and without. The
prediction takes the bytes of each copy and allocation, what `gpusim record host` measured of such calls on an H200
(`[host]` in gpus/h200.toml, from experiments/h200_microbench/host.csv), and each kernel's time alone
(kernels.csv). Kernels of several ranks share the GPU as plain streams do, which is what MPS makes of them.

{h200}

Mean absolute error: {pinned:.0f} % where copies are pinned and overlap; {once:.0f} % where memory is kept or pooled;
{resident:.0f} % where data stay on the GPU; {written:.0f} % as written.

* **As written** is predicted too slow for small matrices. The table's allocation maps new memory (33 us); his step's
  matrices take {small_us:.0f} us, perhaps for they find room in memory that is mapped already. With {large} neurons
  they take {large_us:.0f} us, and the prediction fits better.
* **Pageable copies** are measured one at a time, until the last byte has arrived. In a row they take less than their
  sum, perhaps for the next is staged while the last still moves. Of several ranks each stages its own, so they do not
  wait for one another as pinned ones do: a pageable copy occupies no engine here. That rule was found with these rows
  of two and four ranks, so they are no test of it.
* **Four ranks' allocations** hold one another up ({four_us:.0f} us each with {large} neurons), which the model does not
  know: there it predicts too fast.
* **Without MPS**, GPU time is sliced between processes: four ranks took {least_slower:.1f} to {most_slower:.1f} times
  as long as under MPS. Policy `time-slicing` was measured here and failed: four ranks with kept memory and {hidden}
  neurons took {unshared:,.0f} us, where it says {sliced:,.0f} us. It gives the GPU on as soon as a process has no
  kernel ready, and the GPU does not.

## What to make of it

On an H200 his step is bound by pageable copies ({copies:.0f} % of one rank's step with {hidden} neurons, measured),
then by allocating and freeing ({memory:.0f} %). Each change makes it faster, measured and predicted:

{saved}

The order is right, the gains are too large: allocations were cheaper than their prediction. Under MPS one GPU does four
ranks' overlapped steps in {four:.1f} times the time of one rank's.
"""


def report(savings_rows: Sequence[Saving], rows: Sequence[Prediction]) -> str:
    """The page."""
    of = {(row.hidden, row.ranks, row.variant): row for row in rows}
    first = of[HIDDEN, 1, "as written"]
    names = [name for name, _ in MEASURED.values()]

    written = {(row["ranks"], row["hidden"]): row for row in read("step_mps.csv") if row["variant"] == "as_written"}
    alone = next(row for row in read("step.csv") if row["variant"] == "as_written")

    def percent(*parts: str) -> float:
        return 100.0 * sum(float(alone[part]) for part in parts) / float(alone["step_us"])

    def allocation_us(row: Mapping[str, str]) -> float:
        return float(row["allocation_us"]) / (3 * len(products(HIDDEN)))

    slower = [row.measured_us / _truth(row) for row in rows if row.ranks == 4]
    return TEXT.format(
        agreement=_markdown(("the paper", "here", "agree", "why"), agreement()),
        hidden=HIDDEN,
        large=1000,
        steps=f"{RUN_STEPS:,}",
        mpi=MPI_S,
        savings=_markdown(
            ("a step", "no other CPU work, ms", "speedup", f"{MPI_S} s of it, ms", "speedup"),
            [
                (
                    row.name,
                    f"{row.least_ms:.2f}",
                    f"{savings_rows[0].least_ms / row.least_ms:.1f}x",
                    f"{row.most_ms:.2f}",
                    f"{savings_rows[0].most_ms / row.most_ms:.1f}x",
                )
                for row in savings_rows
            ],
        ),
        h200=_markdown(
            ("neurons", "ranks", "variant", "predicted us", "measured us", "error", "measured without MPS us"),
            [
                (
                    str(row.hidden),
                    str(row.ranks),
                    row.variant,
                    f"{row.predicted_us:,.0f}",
                    f"{_truth(row):,.0f}",
                    f"{100.0 * (row.predicted_us / _truth(row) - 1.0):+.0f} %",
                    f"{row.measured_us:,.0f}",
                )
                for row in rows
            ],
        ),
        pinned=error_percent([row for row in rows if row.variant == names[4]]),
        once=error_percent([row for row in rows if row.variant in names[1:3]]),
        resident=error_percent([row for row in rows if row.variant == names[3]]),
        written=error_percent([row for row in rows if row.variant == names[0]]),
        small_us=allocation_us(alone),
        large_us=allocation_us(written["1", "1000"]),
        four_us=allocation_us(written["4", "1000"]),
        least_slower=min(slower),
        most_slower=max(slower),
        unshared=of[HIDDEN, 4, names[1]].measured_us,
        sliced=step_us(kept(h200_trace(HIDDEN, 4)), "h200", "time-slicing"),
        copies=percent("h2d_us", "d2h_us"),
        memory=percent("allocation_us", "free_us"),
        saved=_markdown(
            ("variant", "measured", "predicted"),
            [
                (name, f"{first.measured_us / row.measured_us:.1f}x", f"{first.predicted_us / row.predicted_us:.1f}x")
                for name in names[1:]
                for row in [of[HIDDEN, 1, name]]
            ],
        ),
        four=_truth(of[HIDDEN, 4, names[4]]) / _truth(of[HIDDEN, 1, names[4]]),
    )


def table_csv(savings_rows: Sequence[Saving], rows: Sequence[Prediction]) -> str:
    """All numbers: the what-ifs on the paper's machine, then the predictions."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["machine", "neurons", "ranks", "variant", "predicted_us", "predicted_most_us", "measured_us"])
    for saving in savings_rows:
        most = f"{saving.most_ms * 1e3:.6g}"
        writer.writerow(["paper", HIDDEN, RANKS, saving.name, f"{saving.least_ms * 1e3:.6g}", most, ""])
    for row in rows:
        writer.writerow(
            ["h200", row.hidden, row.ranks, row.variant, f"{row.predicted_us:.6g}", "", f"{_truth(row):.6g}"]
        )
    return text.getvalue()


def draw(savings_rows: Sequence[Saving], rows: Sequence[Prediction], path: Path) -> None:
    """A step on the paper's machine, both ends, and on an H200, predicted and measured."""
    with new_figure(11.0, 4.4) as figure:
        paper, h200 = figure.subplots(1, 2)
        names = [row.name for row in savings_rows]
        paper.barh(names, [row.most_ms for row in savings_rows], color="#B8C4D6", label=f"{MPI_S} s of other CPU work")
        paper.barh(names, [row.least_ms for row in savings_rows], color="#2F6DB5", label="none")
        paper.invert_yaxis()
        paper.set_xlabel("ms of a step")
        paper.set_title("The paper's machine, 4 ranks", loc="left", fontsize=10)
        paper.legend(fontsize=8, loc="lower right")
        for ranks, marker in ((1, "o"), (2, "s"), (4, "^")):
            some = [row for row in rows if row.ranks == ranks]
            h200.plot(
                [_truth(row) for row in some],
                [row.predicted_us for row in some],
                marker=marker,
                linestyle="",
                label=f"{ranks} ranks" if ranks > 1 else "1 rank",
            )
        ends = (90.0, 6000.0)
        h200.plot(ends, ends, color="black", linewidth=0.8)
        h200.set_xscale("log")
        h200.set_yscale("log")
        for axis in (h200.xaxis, h200.yaxis):
            axis.set_major_formatter(lambda value, _: f"{value:,g}")
            axis.set_minor_formatter(lambda value, _: "")
        figure.subplots_adjust(left=0.24, right=0.98, bottom=0.13, top=0.92, wspace=0.2)
        h200.set_xlabel("us of a step, measured")
        h200.set_ylabel("predicted")
        h200.set_title("An H200, every variant", loc="left", fontsize=10)
        h200.legend(fontsize=8)
        save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the study and writes what it shows."""
    parser = argparse.ArgumentParser(description="Geisler's MPI + CUDA training, replayed")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this file)")
    write_page(parser.parse_args(argv).out)
    return 0


def write_page(folder: Path) -> None:
    """The table, README.md and the picture."""
    savings_rows, rows = savings(), predictions()
    for name, text in (("README.md", report(savings_rows, rows)), ("result.csv", table_csv(savings_rows, rows))):
        write_text(folder / name, text)
    draw(savings_rows, rows, folder / "savings.png")


if __name__ == "__main__":
    raise SystemExit(main())
