"""The tables, the picture and the text of the study; every number in them is from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.compare import UNMEASURED, Compared, compared
from experiments.markdown import table
from gpusim.choose.judge import is_less
from gpusim.results.error_band import measured_errors
from gpusim.results.style import COLOURS, GREY, LINES, PAGE, Style, legend_below, new_figure, save_figure, styled

PAPER = 27
MOST = 12  # cases in a table
NOISE = 0.003  # of a measurement, relative: the mean difference of two runs


@dataclass(frozen=True)
class Case:
    """Two independent convolutions with algorithms that complement one another.

    Attributes:
        gpu: where.
        first, second: the convolutions.
        first_by, second_by: the algorithms that are best together of those that complement one another.
        first_holds, second_holds: what each holds most of on an SM.
        combinations, gaining: pairs of algorithms that complement one another; those that gain side by side.
        policy: under which they are best together.
        together_us: their makespan then.
        serial_us: one after the other by the same algorithms.
        serial_fastest_us, streams_fastest_us: by the fastest algorithms, one after the other and in two streams.
    """

    gpu: str
    first: str
    second: str
    first_by: str
    second_by: str
    first_holds: str
    second_holds: str
    combinations: int
    gaining: int
    policy: str
    together_us: float
    serial_us: float
    serial_fastest_us: float
    streams_fastest_us: float


@dataclass(frozen=True)
class Count:
    """A GPU's count.

    Attributes:
        gpu: where.
        independent: pairs of convolutions that do not wait for one another.
    """

    gpu: str
    independent: int


@dataclass(frozen=True)
class Measured:
    """Two independent convolutions of GoogLeNet that were measured side by side on an H200.

    Attributes:
        first, second: operation and algorithm.
        complementary: whether they are by the rule: 1 or 0.
        alone_ms: one after the other.
        streams_ms: in two streams, the better of both orders.
        split_ms: on disjoint SMs, the best split measured; 0: none was.
    """

    first: str
    second: str
    complementary: int
    alone_ms: float
    streams_ms: float
    split_ms: float

    @property
    def gain(self) -> float:
        """Of the better of streams and split over one after the other: 1.1 is a tenth faster."""
        return self.alone_ms / min(ms for ms in (self.streams_ms, self.split_ms) if ms > 0.0)


def faster(case: Case) -> dict[str, bool]:
    """Than which way the best combination is, by more than rounding."""
    others = {"same": case.serial_us, "serial": case.serial_fastest_us, "streams": case.streams_fastest_us}
    return {name: is_less(case.together_us, us) for name, us in others.items()}


def beyond_error(case: Case, over_us: float, error: float) -> bool:
    """Whether it is faster by more than the model's error."""
    return over_us / case.together_us > 1.0 + error


def error() -> tuple[float, str]:
    """The largest error of two streams on an H200, relative, and in words."""
    found = measured_errors("streams").get("h200")
    if found is None:
        return UNMEASURED, f"{100 * UNMEASURED:.0f} % (this version of the model was not scored)"
    return found[1] / 100.0, f"the model's largest error for two streams ({found[1]:.1f} %)"


def page(cases: Sequence[Case], counts: Sequence[Count], measured: Sequence[Measured]) -> dict[str, object]:
    """What the page says."""
    limit, words = error()
    ours = [case for case in cases if case.gpu == "h200"]
    return {
        "counts": count_table(cases, counts),
        "k40c_gain": gain_over_same(cases, "k40c"),
        "h200_gain": gain_over_same(cases, "h200"),
        "error": words,
        "same": len([case for case in ours if beyond_error(case, case.serial_us, limit)]),
        "serial": len([case for case in ours if beyond_error(case, case.serial_fastest_us, limit)]),
        "streams": len([case for case in ours if beyond_error(case, case.streams_fastest_us, limit)]),
        "k40c_best": _case_table([case for case in cases if case.gpu == "k40c"]),
        "h200_best": _case_table(ours),
        "pairs": len(measured),
        "complementary": sum(row.complementary for row in measured),
        "noise": 100 * NOISE,
        "measured": measured_table(measured),
        "listed": complementary_table(measured),
    }


def count_table(cases: Sequence[Case], counts: Sequence[Count]) -> str:
    """The count of each GPU, and the paper's."""
    titles = ["GPU", "independent pairs", "cases", "combinations", "gain: same", "gain: serial", "gain: streams"]
    cells = [["K40, the paper", "", str(PAPER), "", "", "", ""]]
    for count in counts:
        mine = [case for case in cases if case.gpu == count.gpu]
        wins = [sum(faster(case)[name] for case in mine) for name in ("same", "serial", "streams")]
        combinations = sum(case.combinations for case in mine)
        cells.append([count.gpu, *map(str, (count.independent, len(mine), combinations, *wins))])
    return table(titles, cells)


def gain_over_same(cases: Sequence[Case], gpu: str) -> Compared:
    """Over one after the other by the same algorithms, over all cases of a GPU."""
    return compared({(case.first, case.second): case.serial_us / case.together_us for case in cases if case.gpu == gpu})


def _case_table(cases: Sequence[Case]) -> str:
    titles = [
        "convolutions",
        "algorithms",
        "hold most of",
        "µs together",
        "over the same",
        "over serial, fastest",
        "by",
    ]
    ranked = sorted(cases, key=lambda case: -case.serial_fastest_us / case.together_us)
    cells = [
        [
            f"{case.first} + {case.second}",
            f"{case.first_by} + {case.second_by}",
            f"{case.first_holds} + {case.second_holds}",
            f"{case.together_us:,.0f}",
            f"{case.serial_us / case.together_us:.3f}x",
            f"{case.serial_fastest_us / case.together_us:.3f}x",
            f"`{case.policy}`",
        ]
        for case in ranked[:MOST]
    ]
    return table(titles, cells)


def measured_table(measured: Sequence[Measured]) -> str:
    """What the GPU did with pairs that are cases and pairs that are not."""
    cells = []
    for name, kind in (("complementary", 1), ("not", 0)):
        rows = [row for row in measured if row.complementary == kind]
        if rows:
            mean = compared({(row.first, row.second): row.gain for row in rows})
            best = max(rows, key=lambda row: row.gain)
            gaining = sum(row.gain > 1.0 + NOISE for row in rows)
            cells.append(
                [name, str(len(rows)), str(gaining), str(mean), f"{best.gain:.3f}x {best.first} + {best.second}"]
            )
    return table(["pairs", "measured", "gain", "mean (95 %)", "best"], cells)


def complementary_table(measured: Sequence[Measured]) -> str:
    """The measured pairs that are cases; nothing where there are none."""
    listed = [
        [row.first, row.second, f"{row.alone_ms:.3f}", f"{row.streams_ms:.3f}", _ms(row.split_ms), f"{row.gain:.3f}x"]
        for row in sorted(measured, key=lambda row: -row.gain)
        if row.complementary
    ]
    return table(["first", "second", "one after the other ms", "streams", "best split", "gain"], listed) * bool(listed)


def _ms(ms: float) -> str:
    return f"{ms:.3f}" if ms else "–"


def draw(cases: Sequence[Case], _: Sequence[Count], measured: Sequence[Measured], path: Path) -> None:
    """Each case: gain over the same and over the fastest algorithms; and the measured pairs."""
    with styled(Style(PAGE)), new_figure(2.9) as figure:
        gpus = list(dict.fromkeys(case.gpu for case in cases))
        panels = figure.subplots(1, len(gpus) + 1)
        for n, gpu in enumerate(gpus):
            mine = [case for case in cases if case.gpu == gpu]
            axes = panels[n]
            for i, (label, us) in enumerate(
                (
                    ("over the same algorithms, serial", lambda case: case.serial_us),
                    ("over the fastest, serial", lambda case: case.serial_fastest_us),
                    ("over the fastest, two streams", lambda case: case.streams_fastest_us),
                )
            ):
                gains = sorted((us(case) / case.together_us for case in mine), reverse=True)
                axes.plot(range(1, len(gains) + 1), gains, LINES[i], color=COLOURS[i], label=label)
            axes.axhline(1.0, color=GREY, linewidth=0.8)
            axes.axvline(PAPER, color=GREY, linestyle=":", linewidth=1.0, label=f"{PAPER} cases, as in the paper")
            axes.set_xlabel("Cases, best first")
            axes.set_title(f"{gpu}, replayed")
        axes = panels[-1]
        for i, (name, kind) in enumerate((("complementary", 1), ("not", 0))):
            gains = sorted((row.gain for row in measured if row.complementary == kind), reverse=True)
            shares = [n / max(1, len(gains) - 1) for n in range(len(gains))]
            dot = "." if len(gains) == 1 else ""
            axes.plot(shares, gains, LINES[i], marker=dot, color=COLOURS[3 + i])
            label = f"measured pairs, {name} ({len(gains)})"
            panels[0].plot([], [], LINES[i], marker=dot, color=COLOURS[3 + i], label=label)
        axes.axhline(1.0, color=GREY, linewidth=0.8)
        axes.set_xlabel("Share of the pairs, best first")
        axes.set_title("h200, measured")
        panels[0].set_ylabel("Speedup")
        legend_below(figure, panels[0], 2)
        save_figure(figure, path)
