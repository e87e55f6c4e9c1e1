"""Policies side by side: a bar for each, with how far off such predictions were.

As in `gpusim.results.plots`, a function draws on given axes, or returns a figure for `save_figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from gpusim.common.tables import shortened
from gpusim.results.error_band import HowWrong
from gpusim.results.style import (
    COLOURS,
    UNVALIDATED,
    grid,
    in_words,
    legend_below,
    new_figure,
    style,
    time_unit,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAME_SHARE = 0.4  # of a picture's width that names of policies may take
ERROR_KNOWN, ERROR_UNKNOWN = "model error measured", "not validated"


class PolicyBar(NamedTuple):
    """A policy in the chart of several: its makespan, what is said of its speedup, and how far off the model was."""

    policy: str
    makespan_us: float
    speedup: str
    how_wrong: HowWrong


def policies(title: str, bars: Sequence[PolicyBar]) -> Figure:
    """The makespans of a trace under several policies, with how far off such predictions were."""
    with new_figure(None, 1.1 + 0.24 * len(bars)) as figure:
        axes = figure.subplots()
        makespans(bars, axes)
        titled(figure, title)
        legend_below(figure, axes)
        return figure


def makespans(bars: Sequence[PolicyBar], axes: Axes) -> None:
    """Draws a bar for each policy: its makespan, labelled with the speedup over serial.

    Where the model's error was measured for such replays, an error bar shows it; other bars are hatched.
    """
    divisor, unit = time_unit(max(bar.makespan_us for bar in bars))
    times = [bar.makespan_us / divisor for bar in bars]
    for row, (bar, time) in enumerate(zip(bars, times, strict=True)):
        end, band = time, bar.how_wrong.band
        if band is not None:
            axes.barh(row, time, height=0.62, color=COLOURS[3], label=ERROR_KNOWN)
            error = time * band["mape_percent"] / 100.0
            axes.errorbar(time, row, xerr=error, color="black", capsize=2, linewidth=0.9)
            end += error
        else:
            axes.barh(row, time, height=0.62, facecolor="white", edgecolor=COLOURS[0], hatch=UNVALIDATED,
                      label=ERROR_UNKNOWN)  # fmt: skip
        axes.annotate(bar.speedup, (end, row), xytext=(3, 0), textcoords="offset points", va="center")
    axes.set_xlim(0.0, 1.3 * max(times) or 1.0)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.set_yticks(range(len(bars)))
    letters = int(NAME_SHARE * style().letters)
    axes.set_yticklabels([shortened(in_words(bar.policy), letters) for bar in bars])
    axes.set_xlabel(f"Makespan ({unit})")
    grid(axes, "x")


def wrong_by(how_wrong: HowWrong) -> str:
    """The mean error of such predictions in percent, or why none is known."""
    band = how_wrong.band
    return how_wrong.reason if band is None else f"±{band['mape_percent']:.1f} %"
