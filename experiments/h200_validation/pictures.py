"""Predicted beside measured: one scatter per experiment, and how a few ops scale with SMs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpusim.lab.names import call_in_words, title
from gpusim.lab.scores import Scored, Summary, residency_ratios
from gpusim.results.style import COLOURS, GREY, PAGE, Style, legend_below, new_figure, save_figure, styled

BAND = 0.1  # of the grey band about the diagonal
STAIRCASES = (
    "googlenet/4a.3x3/fwd/IMPLICIT_PRECOMP_GEMM/FMA",
    "googlenet/4b.3x3/fwd/IMPLICIT_PRECOMP_GEMM/TF32",
    "googlenet/3a.3x3/bwd_data/ALGO_1/FMA",
    "googlenet/4e.1x1/bwd_filter/ALGO_1/TF32",
    "googlenet/4a.5x5/fwd/IMPLICIT_PRECOMP_GEMM/TF32",
    "li2016/Conv2/fwd/IMPLICIT_PRECOMP_GEMM/FMA",
)


def draw_scatter(rows: Sequence[Scored], found: Sequence[Summary], path: Path) -> None:
    """Predicted against measured, both relative to the baseline, one panel per experiment."""
    with styled(Style(PAGE)), new_figure(7.4) as figure:
        grid = figure.subplots(3, 3)
        for axes, one in zip(grid.flat, found, strict=False):
            mine = [row for row in rows if row.experiment == one.experiment]
            mine = residency_ratios(mine) if one.experiment == "residency_curve" else mine
            x = [row.measured_ms / row.nothing_ms for row in mine]
            y = [row.predicted_ms / row.nothing_ms for row in mine]
            ends = (0.97 * min(*x, *y), 1.03 * max(*x, *y))
            axes.fill_between(
                ends, [e * (1 - BAND) for e in ends], [e * (1 + BAND) for e in ends], color="#EEEEEE", linewidth=0,
                label=f"within {100 * BAND:.0f} %",
            )  # fmt: skip
            axes.plot(ends, ends, color=GREY, linewidth=0.8, label="exact")
            axes.scatter(x, y, s=5, color=COLOURS[0], alpha=0.4, linewidths=0)
            axes.set(xlim=ends, ylim=ends, aspect="equal")
            axes.set_title(f"{title(one.experiment)}\n{one.mape_percent:.1f} %, {one.points} points")
        for axes in grid[-1]:
            axes.set_xlabel("Measured / baseline")
        for axes in grid[:, 0]:
            axes.set_ylabel("Predicted / baseline")
        legend_below(figure, grid[0, 0])
        save_figure(figure, path)


def draw_staircases(rows: Sequence[Scored], path: Path) -> None:
    """SM time of a call (time x SMs) over that measured on the whole GPU, of a few ops: 1 is perfect scaling."""
    with styled(Style(PAGE)), new_figure(4.0) as figure:
        grid = figure.subplots(2, 3, sharey=True)
        for axes, op in zip(grid.flat, STAIRCASES, strict=True):
            points = sorted(
                (int(row.key.rsplit("|", 1)[1]), row.measured_ms, row.predicted_ms)
                for row in rows
                if row.experiment == "sm_curve" and row.key.rsplit("|", 1)[0] == op
            )
            sms = [point[0] for point in points]
            whole = points[-1][0] * points[-1][1]
            measured = [n * ms / whole for n, ms, _ in points]
            predicted = [n * ms / whole for n, _, ms in points]
            axes.axhline(1.0, color="#CCCCCC", linewidth=0.8, zorder=0)
            axes.plot(sms, predicted, color=COLOURS[0], label="predicted")
            axes.plot(sms, measured, "s", color=COLOURS[2], markersize=3.5, markerfacecolor="none", label="measured")
            axes.set_xticks([8, 32, 64, 96, 132])
            axes.set_title(call_in_words(op, "\n"))
        for axes in grid[-1]:
            axes.set_xlabel("SMs")
        for axes in grid[:, 0]:
            axes.set_ylabel("Relative SM time")
        legend_below(figure, grid[0, 0])
        save_figure(figure, path)
