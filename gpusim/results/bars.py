"""Policies side by side: a bar for each, with how far off such predictions were.

As in `gpusim.results.plots`, a function draws on given axes, or returns a figure for `save_figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpusim.common.errors import one_line
from gpusim.common.tables import number, shortened
from gpusim.results.error_band import HowWrong
from gpusim.results.plots import COLOURS, GRID, in_words, new_figure, time_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POLICY_CHARACTERS = 44
ERROR_KNOWN, ERROR_UNKNOWN = "with the mean error of such replays, measured on this GPU", "error not known"


class PolicyBar(NamedTuple):
    """A policy in the chart of several: its makespan, what is said of its speedup, and how far off the model was."""

    policy: str
    makespan_us: float
    speedup: str
    how_wrong: HowWrong


def policies(title: str, bars: Sequence[PolicyBar]) -> Figure:
    """The makespans of a trace under several policies, from above, with how far off such predictions were."""
    with new_figure(12.0, 1.7 + 0.46 * len(bars)) as figure:
        axes = figure.add_subplot()
        makespans(bars, axes)
        axes.set_title(one_line(title), loc="left", fontsize=11, fontweight="bold", pad=24)
        legend_above(axes)
        figure.tight_layout()
        return figure


def makespans(bars: Sequence[PolicyBar], axes: Axes) -> None:
    """Draws a bar for each policy: its makespan, labelled with the speedup over serial and the error of the model.

    Where the model's error was measured for such replays, an error bar shows it; other bars are hatched.
    """
    divisor, unit = time_unit(max(bar.makespan_us for bar in bars))
    times = [bar.makespan_us / divisor for bar in bars]
    for row, (bar, time) in enumerate(zip(bars, times, strict=True)):
        band = bar.how_wrong.band
        if band is not None:
            axes.barh(row, time, height=0.62, color=COLOURS[3], label=ERROR_KNOWN)
        else:
            axes.barh(row, time, height=0.62, facecolor="white", edgecolor=COLOURS[0], hatch="////",
                      label=ERROR_UNKNOWN)  # fmt: skip
        end = time
        if band is not None:
            error = time * band["mape_percent"] / 100.0
            axes.errorbar(time, row, xerr=error, color="black", capsize=4, linewidth=1.2)
            end += error
        axes.annotate(_verdict(bar, bars), (end, row), xytext=(6, 0), textcoords="offset points", va="center",
                      fontsize=8.5)  # fmt: skip
    axes.set_xlim(0.0, 1.9 * max(times) or 1.0)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks(range(len(bars)))
    axes.set_yticklabels([shortened(in_words(bar.policy), POLICY_CHARACTERS) for bar in bars], fontsize=9)
    axes.set_xlabel(f"makespan, {unit}")
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def _verdict(bar: PolicyBar, bars: Sequence[PolicyBar]) -> str:
    same = [
        in_words(other.policy)
        for other in bars
        if other is not bar and number(other.makespan_us, 3) == number(bar.makespan_us, 3)
    ]
    text = f"{bar.speedup} serial, {wrong_by(bar.how_wrong)}"
    return one_line(text + (f"; same as {', '.join(same)}" if same else ""))


def wrong_by(how_wrong: HowWrong) -> str:
    """The mean error of such predictions in percent, or why none is known."""
    band = how_wrong.band
    return how_wrong.reason if band is None else f"±{band['mape_percent']:.1f} %"


def legend_above(axes: Axes) -> None:
    """Each label once."""
    handles = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    axes.legend(handles.values(), handles.keys(), fontsize=8.5, frameon=False, loc="lower left",
                bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.1)  # fmt: skip
