"""Charts: time over SM splits and residency, and what kernels spend their time on.

As in `gpusim.results.plots`, a function draws on given axes, or returns a figure for `save_figure`. Hatches, markers
and line styles keep everything distinguishable without colour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import fsum
from typing import Any, TypeVar

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from gpusim.common.errors import one_line
from gpusim.common.tables import number, shortened
from gpusim.lab.curves import UNDIVIDED, Curve, SplitCurve
from gpusim.lab.kernel_mix import ARITHMETIC, PIPES, REST, STALLS, KernelMix
from gpusim.results.error_band import HowWrong
from gpusim.results.style import (
    COLOURS,
    COLUMN,
    GREY,
    HATCHES,
    grid,
    ink,
    legend_below,
    new_figure,
    style,
    time_unit,
    titled,
)

AnyCurve = TypeVar("AnyCurve", bound=Curve)

NO_COUNTERS = "no counters"
PREDICTED, MEASURED = "predicted", "measured"
MOST_KERNELS = 14
DARKEST_PERCENT = 130.0  # of the grey of a table: no number is lost in black
MOST_TICKS = 16
NAME_CHARACTERS = 20  # of a kernel's beside its row, per 3.35 inches
IN_PROPORTION = "in proportion to blocks"
UNDIVIDED_STYLES = dict(zip(UNDIVIDED.values(), ("--", ":"), strict=True))
STALL_COLOURS = ("#004D35", "#8CCBEA", "#E69F00", "#CC79A7", "#B8A800", "#0072B2", "#D8D8D8", "#FFFFFF")


# ---- curves


def split(curve: SplitCurve) -> Figure:
    """Makespan of two streams against the SMs that each has."""
    return _curve_figure(curve, makespan_over_split, 3.4)


def makespan_over_split(curve: SplitCurve, axes: Axes) -> None:
    """Draw makespan over the SMs of the first stream, those of the second above, on a logarithmic axis of time.

    Horizontal lines: both streams one after the other, and together on undivided SMs; measured ones are thick.
    """
    divisor, unit = time_unit(max(curve.predicted_us.values()))
    _points(axes, _over(curve.predicted_us, divisor), _over(curve.measured_us, divisor), curve.how_wrong)
    for words, us in curve.undivided_us.items():
        axes.axhline(us / divisor, color=COLOURS[2], linewidth=0.9, linestyle=UNDIVIDED_STYLES[words],
                     label=f"{words}, {PREDICTED}")  # fmt: skip
    for words, us in curve.measured_undivided_us.items():
        axes.axhline(us / divisor, color="black", linewidth=1.8, alpha=0.55, linestyle=UNDIVIDED_STYLES[words],
                     label=f"{words}, {MEASURED}")  # fmt: skip
    best = min(curve.predicted_us, key=lambda sms: curve.predicted_us[sms])
    axes.plot([best], [curve.predicted_us[best] / divisor], "D", markersize=6, color=COLOURS[0],
              label=f"{PREDICTED} best: {best} + {curve.sm_count - best} SMs")  # fmt: skip
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda time, _: f"{time:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, curve.sm_count)
    first, second = (one_line(shortened(name, style().letters - 12)) for name in curve.streams)
    axes.set_xlabel(f"SMs of {first}")
    axes.set_ylabel(f"Makespan ({unit}, log)")

    def of_the_other(sms: Any) -> Any:
        return curve.sm_count - sms

    above = axes.secondary_xaxis("top", functions=(of_the_other, of_the_other))
    above.set_xlabel(f"SMs of {second}")


def residency(curve: Curve) -> Figure:
    """Time of a call against the blocks that an SM may hold."""
    return _curve_figure(curve, time_over_residency, 2.7)


def time_over_residency(curve: Curve, axes: Axes) -> None:
    """Draw the time over that with as many blocks as fit: predicted, measured, and in proportion to the blocks."""
    most = max(curve.predicted_us)
    whole_us = curve.predicted_us[most]
    measured = _over(curve.measured_us, curve.measured_us[most]) if curve.measured_us else {}
    predicted = _over(curve.predicted_us, whole_us)
    _points(axes, predicted, measured, curve.how_wrong)
    blocks = sorted(predicted)
    axes.plot(blocks, [most / n for n in blocks], ":", color=GREY, label=IN_PROPORTION)
    axes.set_xticks(blocks if len(blocks) <= MOST_TICKS else [1, *range(4, most + 1, 4)])
    axes.set_ylim(0.0, 1.25 * max([*predicted.values(), *measured.values()]))
    axes.set_xlabel("Most blocks of a kernel per SM")
    divisor, unit = time_unit(whole_us)
    axes.set_ylabel(f"Time relative to {most} blocks\n({number(whole_us / divisor)} {unit} predicted)")


def _points(
    axes: Axes, predicted: Mapping[int, float], measured: Mapping[int, float], how_wrong: HowWrong | None
) -> None:
    """Draw predicted points on a line with a band of the model's error, and measured points as open squares."""
    numbers = sorted(predicted)
    values = [predicted[n] for n in numbers]
    axes.plot(numbers, values, "-", marker="o", markersize=2.5, color=COLOURS[0], label=PREDICTED)
    if how_wrong is not None and how_wrong.percent is not None:
        part, label = how_wrong.percent / 100.0, f"{how_wrong.brief}, model error"
        axes.fill_between(numbers, [v * (1.0 - part) for v in values], [v * (1.0 + part) for v in values],
                          linewidth=0.0, color=COLOURS[3], alpha=0.45, label=label)  # fmt: skip
    if measured:
        at = sorted(measured)
        axes.plot(at, [measured[n] for n in at], "s", markersize=5.5, markerfacecolor="none", markeredgecolor="black",
                  markeredgewidth=0.9, label=MEASURED)  # fmt: skip
    grid(axes)


def _curve_figure(curve: AnyCurve, draw: Callable[[AnyCurve, Axes], None], height: float) -> Figure:
    """A curve with its title and legend, which also says why no error is known where there is none."""
    with new_figure(height) as figure:
        axes = figure.subplots()
        draw(curve, axes)
        titled(figure, curve.title)
        why = curve.how_wrong.reason if curve.how_wrong is not None else ""
        legend_below(figure, axes, 2 if style().wide else 1, title=one_line(f"model error: {why}") if why else None)
        return figure


def _over(times: Mapping[int, float], divisor: float) -> dict[int, float]:
    return {n: time / divisor for n, time in times.items()}


# ---- kernels


def stalls(trace: str, mixes: Sequence[KernelMix]) -> Figure:
    """Why the warps of kernels wait, and beside it how busy they keep an SM; those that take most time."""
    shown = mixes[:MOST_KERNELS]
    beside = style().wide
    with new_figure((1.7 + 0.3 * len(shown)) if beside else 2.4 + 0.55 * len(shown)) as figure:
        if beside:
            left, right = figure.subplots(1, 2, sharey=True, width_ratios=(1.5, 1.0))
        else:
            left, right = figure.subplots(2, 1)
        stall_reasons(shown, left)
        pipes_busy(shown, right)
        if not beside:
            right.set_yticks(left.get_yticks(), [label.get_text() for label in left.get_yticklabels()])
            right.tick_params(labelleft=True)
        more = len(mixes) - len(shown)
        titled(figure, f"Kernels of {trace} by time" + (f", {len(shown)} of {len(mixes)}" if more else ""))
        legend_below(figure, left, 3 if beside else 1, title="What a warp does or waits for")
        return figure


def stall_reasons(mixes: Sequence[KernelMix], axes: Axes) -> None:
    """Draw one bar per kernel, from 0 to 100 % of the time of its warps, divided by `STALLS`."""
    for n, words in enumerate((*STALLS, REST)):
        rows = [row for row, mix in enumerate(mixes) if mix.stalls.get(words)]
        before = [fsum(list(mixes[row].stalls.values())[: list(mixes[row].stalls).index(words)]) for row in rows]
        if rows:
            colour = STALL_COLOURS[n]
            axes.barh(rows, [mixes[row].stalls[words] for row in rows], left=before, height=0.7, facecolor=colour,
                      edgecolor=ink(colour), linewidth=0.4, hatch=HATCHES[n], label=words)  # fmt: skip
    for row, mix in enumerate(mixes):
        if not mix.stalls:
            axes.barh(row, 100.0, height=0.7, facecolor="none", edgecolor=GREY, linestyle=":", label=NO_COUNTERS)
    axes.set_xlim(0.0, 100.0)
    axes.set_ylim(len(mixes) - 0.4, -0.6)
    axes.set_yticks(range(len(mixes)))
    axes.set_yticklabels([_kernel_label(mix) for mix in mixes])
    axes.set_xlabel("Time of a warp (%)")


def _kernel_label(mix: KernelMix) -> str:
    divisor, unit = time_unit(mix.time_us)
    launches = f", {mix.launches} launches" if mix.launches > 1 else ""
    letters = int(NAME_CHARACTERS * max(1.0, style().width / COLUMN))
    return f"{one_line(shortened(mix.name, letters))}\n{number(mix.time_us / divisor)} {unit}{launches}"


def pipes_busy(mixes: Sequence[KernelMix], axes: Axes) -> None:
    """Draw a heat map of the utilisation of each of `PIPES`, % of the cycles in which the SMs are active."""
    names = [name for name in (*PIPES, ARITHMETIC) if any(name in mix.busy for mix in mixes)] or ["issue slots"]
    busy = np.array([[mix.busy.get(name, np.nan) for name in names] for mix in mixes]).reshape(-1, len(names))
    axes.imshow(busy, cmap="Greys", vmin=0.0, vmax=DARKEST_PERCENT, aspect="auto")
    for row, column in np.ndindex(busy.shape):
        value = busy[row, column]
        text = "?" if np.isnan(value) else f"{value:.0f}"
        axes.text(column, row, text, ha="center", va="center", color="white" if value > 65.0 else "black")
    axes.set_xticks(range(len(names)))
    axes.set_xticklabels([name.replace("/", "/\n").replace(" ", "\n") for name in names], rotation=90)
    axes.set_xlabel("Busy (% of active cycles)")
    axes.tick_params(left=False, labelleft=False)
