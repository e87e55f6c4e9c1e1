"""The claim of SPAA'20, Table 1, as a replay: `python experiments/spaa20_table1/run.py [--out DIR]`.

Pourghassemi, Zhang, Lee and Chandramowlishwaran hope that a compute-bound PRECOMP_GEMM beside an FFT_TILING that waits
for memory, both on every SM, hides the stalls of the one behind the work of the other. This asks the model: which mixes
of blocks fit one SM of a K40c, what each policy makes of the pair, and how the answer moves with the one thing that the
table does not tell, the kernels' durations. It writes README.md, result.csv and ratio.png beside itself (or to DIR).
"""

from __future__ import annotations

import argparse
import csv
import io
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from math import fsum
from pathlib import Path

from gpusim.common.files import write_text
from gpusim.common.markdown import table as _markdown
from gpusim.common.tables import number
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.model.launchable import launch_footprint, launch_occupancy
from gpusim.model.occupancy import exceeded
from gpusim.results.plots import COLOURS, new_figure, save_figure
from gpusim.session import Session
from gpusim.trace.file import load_trace
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution

HERE = Path(__file__).resolve().parent
TRACE = HERE.parent.parent / "traces" / "spaa20_table1.json"
K40C_PEAK_FLOP_PER_S = 4.29e12  # at the base clock, as the trace's durations were worked out
ALGORITHMS = {"PRECOMP": "IMPLICIT_PRECOMP_GEMM/FMA", "FFT": "FFT_TILING/FMA"}
FIRST, SECOND = "3x3", "5x5"  # the two convolutions; the first runs PRECOMP_GEMM throughout
INTRA_SM = ("even", "warped-slicer", "smk", "oracle-intra-sm")
INTER_SM = ("inter-sm", "inter-sm:rule=profile", "oracle-inter-sm")
POLICIES = ("serial", "leftover", f"leftover:first={SECOND}", *INTER_SM, *INTRA_SM)
IN_PICTURE = ("oracle-intra-sm", "warped-slicer", f"leftover:first={SECOND}", "leftover", "oracle-inter-sm", "inter-sm")
RATIOS = tuple(2.0 ** (step / 2) for step in range(-11, 5))  # duration of the FFT over that of the PRECOMP
SOME_GAIN = 1.02  # a speedup that we call one
PRINTED_PERCENT = {"PRECOMP": (92, 39, 38, 19), "FFT": (38, 75, 25, 6)}  # registers, shared memory, threads, blocks

RULES = {
    "own flop": "flop of the algorithm itself / (ALU % x 4.29 TFLOP/s), as in the trace",
    "direct flop": "flop of the direct convolution / (ALU % x 4.29 TFLOP/s) for FFT_TILING, too",
}


@dataclass(frozen=True)
class Row:
    """One replay.

    Attributes:
        pair: algorithms of the two convolutions.
        durations: the rule that they are from, or the ratio of the durations.
        policy: as on the command line.
        makespan_us: of the replay.
        speedup: over serial, the same pair and durations.
        slowdown_3x3, slowdown_5x5: of each convolution, its end over its time alone.
        together: work done until the first kernel ends over that time; alone on the GPU a kernel does 1.
    """

    pair: str
    durations: str
    policy: str
    makespan_us: float
    speedup: float
    slowdown_3x3: float
    slowdown_5x5: float
    together: float


# ---- traces


def selected(trace: Trace, second: str) -> Trace:
    """The two convolutions, the second with the algorithm named."""

    def choose(operation: Convolution) -> Convolution:
        everything = (operation.selected, *operation.alternatives)
        chosen = next(a for a in everything if a.algorithm == ALGORITHMS[second])
        others = tuple(a for a in everything if a is not chosen)
        return operation.model_copy(update={"selected": chosen, "alternatives": others})

    return _with_second(trace, choose)


def lasting(trace: Trace, duration_us: float) -> Trace:
    """The same with another duration of the second convolution's kernel."""

    def last(operation: Convolution) -> Convolution:
        kernel = operation.selected.kernels[0].model_copy(update={"duration_us": duration_us})
        return operation.model_copy(update={"selected": operation.selected.model_copy(update={"kernels": (kernel,)})})

    return _with_second(trace, last)


def _with_second(trace: Trace, change: Callable[[Convolution], Convolution]) -> Trace:
    first, second = trace.streams
    assert (first.name, second.name) == (FIRST, SECOND)
    operation = second.operations[0]
    assert isinstance(operation, Convolution)
    changed = second.model_copy(update={"operations": (change(operation),)})
    return trace.model_copy(update={"streams": (first, changed)})


def launch(trace: Trace, stream: int) -> KernelLaunch:
    """The one kernel of a stream."""
    return trace.streams[stream].operations[0].launches()[0]


def direct_us(trace: Trace) -> float:
    """Duration of the second convolution's kernel if it computed the direct convolution's flop."""
    operation = trace.streams[1].operations[0]
    assert isinstance(operation, Convolution)
    mix = launch(trace, 1).mix
    assert mix is not None and mix.alu_utilisation_percent is not None
    return operation.shape.flop / (mix.alu_utilisation_percent / 100 * K40C_PEAK_FLOP_PER_S) * 1e6


# ---- what fits an SM


def mixes(gpu: GPU, first: KernelLaunch, second: KernelLaunch) -> list[list[str]]:
    """A row for each mix: blocks of each, percent of the SM's resources, and what it exceeds.

    Listed are the largest mixes that fit and the smallest of at least one each that do not.
    """
    feet = [launch_footprint(launch, gpu) for launch in (first, second)]
    most = [launch_occupancy(launch, gpu).blocks_per_sm for launch in (first, second)]

    def over(a: int, b: int) -> str | None:
        return exceeded(gpu, [(feet[0], a), (feet[1], b)])

    listed = []
    for a in range(most[0] + 1):
        for b in range(most[1] + 1):
            largest = (a == most[0] or over(a + 1, b)) and (b == most[1] or over(a, b + 1))
            smallest = a > 0 and b > 0 and not (over(a - 1, b) or over(a, b - 1))
            if (over(a, b) is None and largest) or (over(a, b) is not None and smallest):
                listed.append((a, b))
    rows = []
    for a, b in listed:
        used = [
            (a * mine + b * its) / most_of_all
            for mine, its, most_of_all in zip(feet[0].need, feet[1].need, gpu.limits.capacity, strict=True)
        ]
        stops = over(a, b)
        verdict = "fits" if stops is None else f"exceeds {stops.replace('_', ' ')}"
        rows.append([str(a), str(b), *(f"{100 * share:.1f}" for share in used), verdict])
    return rows


def printed_shared_percent(first_blocks: int, second_blocks: int) -> tuple[float, float]:
    """Least and most shared memory (percent) of a mix that the table's rounded percentages allow."""
    bounds = []
    for half in (-0.5, 0.5):
        first = (PRINTED_PERCENT["PRECOMP"][1] + half) / 3  # three blocks are resident: 19 % of 16
        second = PRINTED_PERCENT["FFT"][1] + half  # one is: 6 % of 16
        bounds.append(first_blocks * first + second_blocks * second)
    return bounds[0], bounds[1]


# ---- replays


def rows_of(trace: Trace, gpu: GPU, pair: str, durations: str, policies: Sequence[str] = POLICIES) -> list[Row]:
    """One row a policy; serial must be among them."""
    session = Session(gpu, gpu)
    results = {policy: session.replay(trace, policy) for policy in policies}
    serial_us = results["serial"].makespan_us
    return [
        Row(
            pair=pair,
            durations=durations,
            policy=policy,
            makespan_us=result.makespan_us,
            speedup=serial_us / result.makespan_us,
            together=together([run.end_us for run in result.stream_runs], fsum(session.isolated_us(trace).values())),
            **{f"slowdown_{run.stream}": run.slowdown for run in result.stream_runs},
        )
        for policy, result in results.items()
    ]


def together(ends_us: Sequence[float], solo_us: float) -> float:
    """Work done until the first of two kernels ends, in time alone on the GPU, over that time.

    What is left then takes as long as the second still runs, for it has the GPU to itself.

    Args:
        ends_us: when each ends.
        solo_us: what both take alone, added.
    """
    first, last = min(ends_us), max(ends_us)
    return (solo_us - (last - first)) / first


def study(trace: Trace, gpu: GPU) -> list[Row]:
    """Both pairs under both rules of duration, then the wanted pair at every ratio."""
    gemms, mixed = selected(trace, "PRECOMP"), selected(trace, "FFT")
    rows = rows_of(gemms, gpu, "PRECOMP + PRECOMP", "own flop")
    rows += rows_of(mixed, gpu, "PRECOMP + FFT", "own flop")
    rows += rows_of(lasting(mixed, direct_us(mixed)), gpu, "PRECOMP + FFT", "direct flop")
    for ratio in RATIOS:
        scaled = lasting(mixed, ratio * launch(mixed, 0).duration_us)
        rows += rows_of(scaled, gpu, "PRECOMP + FFT", f"ratio {ratio:.4f}")
    return rows


def best(rows: Sequence[Row], policies: Sequence[str]) -> Row:
    """The row with the least makespan among some policies."""
    return min((row for row in rows if row.policy in policies), key=lambda row: row.makespan_us)


# ---- what it shows


def report(trace: Trace, gpu: GPU, rows: Sequence[Row]) -> str:
    """The text of README.md: all numbers are from this run."""
    mixed = selected(trace, "FFT")
    parts = [
        "# SPAA'20, Table 1, as a replay",
        "Generated by `python experiments/spaa20_table1/run.py`; do not edit. Rows of every replay: `result.csv`.",
        INTRODUCTION,
        "## Which mixes fit one SM of a K40c",
        _mixes_text(gpu, trace),
        "## What each policy makes of the two pairs",
        POLICIES_INTRODUCTION.format(rules="\n".join(f"* {name}: {text}" for name, text in RULES.items())),
    ]
    for pair, durations in (
        ("PRECOMP + PRECOMP", "own flop"),
        ("PRECOMP + FFT", "own flop"),
        ("PRECOMP + FFT", "direct flop"),
    ):
        chosen = [row for row in rows if (row.pair, row.durations) == (pair, durations)]
        parts += [f"### {pair}, {durations}", _policy_table(chosen)]
    parts += ["## Does the hope hold?", _hope_text(rows), "## How the answer moves with the ratio of the durations"]
    parts += [_ratio_text(rows, mixed), "## What to make of it", CAVEATS]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = """\
Pourghassemi, Zhang, Lee and Chandramowlishwaran (SPAA'20) profile two independent convolutions of GoogLeNet's first
inception module on a Tesla K40. With PRECOMP_GEMM, a 3x3 and a 5x5, one after the other exhausts the SMs. They hope
that FFT_TILING for the 5x5, which waits for memory, fits beside PRECOMP_GEMM on every SM, so that an intra-SM
partition hides the stalls of the one behind the work of the other and both end sooner. The table has percentages of an
SM, ALU utilisation and stalls, but no durations; `traces/spaa20_table1.json` says in its notes what was worked out."""

POLICIES_INTRODUCTION = """\
Durations by two rules, for the table has none:

{rules}

*Speedup* is over serial with the same pair and durations. *Together* is the work done until the first kernel ends, in
time alone on the GPU, over that time: above 1, running side by side does more than taking turns. *Slowdown* is when a
convolution ends over its time alone, waiting counted."""

CAVEATS = """\
* The two durations are estimates, and with them all of the above; the section on the ratio shows what depends on them.
* The table knows no bytes: the model lets the kernels share issue slots by their ALU utilisation and counts the rest
  of their time as latency that others do not lengthen. What two kernels take from each other at L1, L2 and DRAM is
  missing, so the gains are upper bounds.
* The contention model was checked against an H200, never against a K40c (`gpusim validate`, docs/model.md)."""


def _mixes_text(gpu: GPU, trace: Trace) -> str:
    columns = ["PRECOMP 3x3", "{} 5x5", "registers %", "shared memory %", "warps %", "slots %", ""]
    texts = []
    for second in ("FFT", "PRECOMP"):
        chosen = selected(trace, second)
        table = mixes(gpu, launch(chosen, 0), launch(chosen, 1))
        texts.append(_markdown([name.format(second) for name in columns], table))
    least, most = printed_shared_percent(2, 1)
    printed = (
        f"By the table's own rounded percentages, two PRECOMP_GEMM blocks and one of FFT_TILING need {least:.1f} to\n"
        f"{most:.1f} % of the shared memory: more than there is, however they were rounded. What fits has one block\n"
        "of each: the mix of every policy that keeps blocks of both on an SM. An SM of a K40c holds it where it is\n"
        "set to its largest shared memory, as it is unless a program asks for another size."
    )
    head = (
        "Sums of what the resident blocks allocate against the SM's totals: the largest mixes that fit, and the\n"
        "smallest with a block of each that do not."
    )
    return "\n\n".join([head, *texts, printed])


def _policy_table(rows: Sequence[Row]) -> str:
    ordered = sorted(rows, key=lambda row: round(row.makespan_us, 3))
    cells = [
        [
            f"`{row.policy}`",
            number(row.makespan_us, 0),
            *(f"{value:.3f}" for value in (row.speedup, row.together, row.slowdown_3x3, row.slowdown_5x5)),
        ]
        for row in ordered
    ]
    return _markdown(["policy", "makespan us", "speedup", "together", "slowdown 3x3", "slowdown 5x5"], cells)


def _hope_text(rows: Sequence[Row]) -> str:
    gemms = [row for row in rows if row.pair == "PRECOMP + PRECOMP"]
    framework = best(gemms, ["serial"]).makespan_us
    top = best(gemms, POLICIES)
    lines = [
        "* What a framework does, PRECOMP_GEMM for both and one after the other: "
        f"{number(framework, 0)} us. The best policy for that pair, `{top.policy}`, makes {top.speedup:.3f}x."
    ]
    for rule in RULES:
        found = _mixed(rows, rule)
        serial, intra, inter = best(found, ["serial"]), best(found, INTRA_SM), best(found, INTER_SM)
        lines.append(
            f"* {rule}: FFT_TILING for the 5x5 alone, still serial, takes {number(serial.makespan_us, 0)} us, "
            f"{framework / serial.makespan_us:.3f}x of the framework's speed. The best intra-SM partition "
            f"(`{intra.policy}`) takes {number(intra.makespan_us, 0)} us: {intra.speedup:.3f}x of serial, "
            f"{framework / intra.makespan_us:.3f}x of the framework's. The best SM split (`{inter.policy}`) makes "
            f"{inter.speedup:.3f}x of serial. While both run, the intra-SM partition does {intra.together:.2f} times "
            f"what taking turns does."
        )
    return "\n".join([*(_wrapped(line, "  ") for line in lines), "", _wrapped(_verdict(rows, framework))])


def _mixed(rows: Sequence[Row], durations: str) -> list[Row]:
    return [row for row in rows if (row.pair, row.durations) == ("PRECOMP + FFT", durations)]


def _verdict(rows: Sequence[Row], framework: float) -> str:
    intra = [best(_mixed(rows, rule), INTRA_SM) for rule in RULES]
    works = [row.together > SOME_GAIN for row in intra]
    gains = [row.speedup > SOME_GAIN for row in intra]
    sooner = [framework / row.makespan_us > SOME_GAIN for row in intra]
    times = " and ".join(dict.fromkeys(f"{row.together:.2f}" for row in intra))
    return (
        f"Running both on every SM does more than taking turns under {_which(works)}: {times} times as much while both "
        f"run. Whether it shows in the makespan depends on the durations: against serial with the "
        f"same algorithms it gains more than {100 * (SOME_GAIN - 1):.0f} % under {_which(gains)}; against PRECOMP_GEMM "
        f"for both, one after the other, under {_which(sooner)}."
    )


def _which(holds: Sequence[bool]) -> str:
    if all(holds):
        return "both rules"
    return next((f"the rule '{rule}' only" for rule, held in zip(RULES, holds, strict=True) if held), "neither rule")


def _ratio_text(rows: Sequence[Row], mixed: Trace) -> str:
    at = {durations: ratio for durations, ratio in _rule_ratios(mixed).items()}
    cells = []
    peak = ("", 0.0)
    for ratio in RATIOS:
        found = [row for row in rows if row.durations == f"ratio {ratio:.4f}"]
        intra, inter = best(found, INTRA_SM), best(found, INTER_SM)
        left = best(found, [policy for policy in POLICIES if policy.startswith("leftover")])
        cells.append([f"{ratio:.3f}", *(f"{row.speedup:.3f} `{row.policy}`" for row in (intra, inter, left))])
        peak = max(peak, (f"{ratio:.2f}", intra.speedup), key=lambda entry: entry[1])
    head = (
        "The duration of the 5x5's FFT_TILING over that of the 3x3's PRECOMP_GEMM is "
        + " and ".join(f"{ratio:.3f} by the rule '{durations}'" for durations, ratio in at.items())
        + f". Best speedup over serial at other ratios, grids unchanged; an intra-SM partition gains most, "
        f"{peak[1]:.3f}x, at a ratio of {peak[0]}."
    )
    table = _markdown(["ratio", "intra-SM", "SM split", "leftover"], cells)
    return f"{_wrapped(head)}\n\n{table}\n\n![speedup over serial against the ratio of the durations](ratio.png)"


def _rule_ratios(mixed: Trace) -> dict[str, float]:
    first = launch(mixed, 0).duration_us
    return {"own flop": launch(mixed, 1).duration_us / first, "direct flop": direct_us(mixed) / first}


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 120, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def table_csv(rows: Sequence[Row]) -> str:
    """The rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = [column.name for column in fields(Row)]
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow([f"{value:.6g}" if isinstance(value, float) else value for value in values])
    return text.getvalue()


def draw(rows: Sequence[Row], mixed: Trace, path: Path) -> None:
    """Speedup over serial against the ratio of the durations, a line a policy."""
    with new_figure(9.0, 5.2) as figure:
        axes = figure.add_subplot()
        for i, policy in enumerate(IN_PICTURE):
            speedups = [
                next(row.speedup for row in rows if (row.durations, row.policy) == (f"ratio {ratio:.4f}", policy))
                for ratio in RATIOS
            ]
            wide = 4.5 if i == 0 else 1.6  # the first lies under the second, and shows
            axes.plot(RATIOS, speedups, marker="o", markersize=3.5, linewidth=wide, color=COLOURS[i], label=policy)
        for durations, ratio in _rule_ratios(mixed).items():
            axes.axvline(ratio, color="#555555", linewidth=1.0, linestyle="--")
            axes.text(ratio, 0.97, f"{durations} ", rotation=90, va="top", ha="right", fontsize=8.5, color="#555555",
                      transform=axes.get_xaxis_transform())  # fmt: skip
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = RATIOS[1::2]
        axes.set_xticks(ticks, [f"{ratio:.3g}" for ratio in ticks])
        axes.set_xlabel("duration of 5x5 FFT_TILING / duration of 3x3 PRECOMP_GEMM")
        axes.set_ylabel("speedup over serial")
        axes.set_title("PRECOMP_GEMM beside FFT_TILING on a K40c, as the model has it", loc="left", fontsize=11)
        axes.grid(color="#D8D8D8", linewidth=0.6)
        axes.legend(fontsize=8.5, loc="upper left", bbox_to_anchor=(0.27, 0.99))
        save_figure(figure, path)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the study and writes what it shows."""
    parser = argparse.ArgumentParser(description="SPAA'20, Table 1, as a replay")
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to (default: beside this file)")
    write_page(parser.parse_args(argv).out)
    return 0


def write_page(folder: Path) -> None:
    """The table, README.md and the picture."""
    trace = load_trace(TRACE)
    gpu = load_gpu(trace.device)
    rows = study(trace, gpu)
    for name, text in (("README.md", report(trace, gpu, rows)), ("result.csv", table_csv(rows))):
        write_text(folder / name, text)
    draw(rows, selected(trace, "FFT"), folder / "ratio.png")


if __name__ == "__main__":
    raise SystemExit(main())
