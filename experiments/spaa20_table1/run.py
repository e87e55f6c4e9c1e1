"""The claim of SPAA'20, Table 1, as a replay: `python experiments/spaa20_table1/run.py [--out DIR]`.

Pourghassemi, Zhang, Lee and Chandramowlishwaran hope that a compute-bound PRECOMP_GEMM beside an FFT_TILING that waits
for memory, both on every SM, hides the stalls of the one behind the work of the other. This asks the model: which mixes
of blocks fit one SM of a K40c, what each policy makes of the pair, and how the answer moves with the one thing that the
table does not tell, the kernels' durations. It writes README.md, result.csv and ratio.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from experiments.markdown import table
from experiments.study import TRACES, Run, Study
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.model.launchable import launch_footprint, launch_occupancy
from gpusim.model.occupancy import exceeded
from gpusim.results.style import COLOURS, GREY, LINES, MARKERS, grid, legend_below, new_figure, save_figure
from gpusim.session import Session
from gpusim.trace.file import load_trace
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution

TRACE = TRACES / "spaa20_table1.json"
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

RULES = ("own flop", "direct flop")  # by which durations are worked out


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


def rows(run: Run) -> dict[str, list[Row]]:
    """Both pairs under both rules of duration, then the wanted pair at every ratio."""
    trace = load_trace(TRACE)
    gpu = load_gpu(trace.device)
    gemms, mixed = selected(trace, "PRECOMP"), selected(trace, "FFT")
    found = rows_of(gemms, gpu, "PRECOMP + PRECOMP", "own flop")
    found += rows_of(mixed, gpu, "PRECOMP + FFT", "own flop")
    found += rows_of(lasting(mixed, direct_us(mixed)), gpu, "PRECOMP + FFT", "direct flop")
    for ratio in RATIOS:
        scaled = lasting(mixed, ratio * launch(mixed, 0).duration_us)
        found += rows_of(scaled, gpu, "PRECOMP + FFT", f"ratio {ratio:.4f}")
    return {"result.csv": found}


def best(rows: Sequence[Row], policies: Sequence[str]) -> Row:
    """The row with the least makespan among some policies."""
    return min((row for row in rows if row.policy in policies), key=lambda row: row.makespan_us)


# ---- what it shows


@dataclass(frozen=True)
class Hope:
    """The wanted pair, PRECOMP + FFT, under one rule.

    Attributes:
        framework_us: what a framework takes, PRECOMP_GEMM for both and one after the other.
        serial: one after the other.
        intra: under the best intra-SM partition.
        inter: under the best SM split.
    """

    framework_us: float
    serial: Row
    intra: Row
    inter: Row

    @property
    def over_framework(self) -> float:
        """How many times as fast as the framework one after the other is."""
        return self.framework_us / self.serial.makespan_us

    @property
    def intra_over_framework(self) -> float:
        """How many times as fast as the framework the best intra-SM partition is."""
        return self.framework_us / self.intra.makespan_us


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    trace = load_trace(TRACE)
    gpu = load_gpu(trace.device)
    gemms = [row for row in rows if row.pair == "PRECOMP + PRECOMP"]
    framework_us = best(gemms, ["serial"]).makespan_us
    mixed = {rule: _mixed(rows, rule) for rule in RULES}
    own, direct = hopes = [
        Hope(framework_us, best(found, ["serial"]), best(found, INTRA_SM), best(found, INTER_SM))
        for found in mixed.values()
    ]
    least, most = printed_shared_percent(2, 1)
    ratios = rule_ratios()
    peaks = [(best(_at_ratio(rows, ratio), INTRA_SM), ratio) for ratio in RATIOS]
    peak, peak_ratio = max(peaks, key=lambda found: found[0].speedup)
    return {
        "mixes_fft": _mix_table(gpu, trace, "FFT"),
        "mixes_precomp": _mix_table(gpu, trace, "PRECOMP"),
        "least": least,
        "most": most,
        "gemms": _policy_table(gemms),
        "own_table": _policy_table(mixed["own flop"]),
        "direct_table": _policy_table(mixed["direct flop"]),
        "framework": framework_us,
        "top": best(gemms, POLICIES),
        "own": own,
        "direct": direct,
        "works": _which(hope.intra.together > SOME_GAIN for hope in hopes),
        "times": " and ".join(dict.fromkeys(f"{hope.intra.together:.2f}" for hope in hopes)),
        "some_gain": 100 * (SOME_GAIN - 1),
        "gains": _which(hope.intra.speedup > SOME_GAIN for hope in hopes),
        "sooner": _which(hope.intra_over_framework > SOME_GAIN for hope in hopes),
        "own_ratio": ratios["own flop"],
        "direct_ratio": ratios["direct flop"],
        "peak": peak,
        "peak_ratio": peak_ratio,
        "ratios": _ratio_table(rows),
    }


def _mix_table(gpu: GPU, trace: Trace, second: str) -> str:
    chosen = selected(trace, second)
    titles = ["PRECOMP 3x3", f"{second} 5x5", "registers %", "shared memory %", "warps %", "slots %", ""]
    return table(titles, mixes(gpu, launch(chosen, 0), launch(chosen, 1)))


def _policy_table(rows: Sequence[Row]) -> str:
    ordered = sorted(rows, key=lambda row: round(row.makespan_us, 3))
    cells = [
        [
            f"`{row.policy}`",
            f"{row.makespan_us:,.0f}",
            *(f"{value:.3f}" for value in (row.speedup, row.together, row.slowdown_3x3, row.slowdown_5x5)),
        ]
        for row in ordered
    ]
    return table(["policy", "makespan µs", "speedup", "together", "slowdown 3x3", "slowdown 5x5"], cells)


def _mixed(rows: Sequence[Row], durations: str) -> list[Row]:
    return [row for row in rows if (row.pair, row.durations) == ("PRECOMP + FFT", durations)]


def _at_ratio(rows: Sequence[Row], ratio: float) -> list[Row]:
    return _mixed(rows, f"ratio {ratio:.4f}")


def _which(holds: Iterable[bool]) -> str:
    held = [rule for rule, holding in zip(RULES, holds, strict=True) if holding]
    return "both rules" if len(held) == len(RULES) else f"the rule '{held[0]}' only" if held else "neither rule"


def _ratio_table(rows: Sequence[Row]) -> str:
    leftover = [policy for policy in POLICIES if policy.startswith("leftover")]
    cells = []
    for ratio in RATIOS:
        found = [best(_at_ratio(rows, ratio), policies) for policies in (INTRA_SM, INTER_SM, leftover)]
        cells.append([f"{ratio:.3f}", *(f"{row.speedup:.3f} `{row.policy}`" for row in found)])
    return table(["ratio", "intra-SM", "SM split", "leftover"], cells)


def rule_ratios() -> dict[str, float]:
    """Duration of the FFT over that of the PRECOMP by each rule."""
    mixed = selected(load_trace(TRACE), "FFT")
    first = launch(mixed, 0).duration_us
    return dict(zip(RULES, (launch(mixed, 1).duration_us / first, direct_us(mixed) / first), strict=True))


def draw(rows: Sequence[Row], path: Path) -> None:
    """Speedup over serial against the ratio of the durations, a line a policy."""
    with new_figure(3.3) as figure:
        axes = figure.subplots()
        for i, policy in enumerate(IN_PICTURE):
            speedups = [
                next(row.speedup for row in rows if (row.durations, row.policy) == (f"ratio {ratio:.4f}", policy))
                for ratio in RATIOS
            ]
            wide = 3.5 if i == 0 else 1.0  # the first lies under the second, and shows
            axes.plot(RATIOS, speedups, marker=MARKERS[i], markersize=3, linewidth=wide, color=COLOURS[i], label=policy)
        for line, (durations, ratio) in zip(LINES[1:], rule_ratios().items(), strict=False):
            axes.axvline(ratio, color=GREY, linewidth=1.0, linestyle=line, label=f"ratio by {durations}")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        ticks = RATIOS[1::3]
        axes.set_xticks(ticks, [f"{ratio:.3g}" for ratio in ticks])
        axes.set_xlabel("Duration of FFT_TILING over PRECOMP_GEMM")
        axes.set_ylabel("Speedup over serial")
        grid(axes)
        legend_below(figure, axes)
        save_figure(figure, path)


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, page, {"ratio.png": draw})

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
