"""A picture that studies have in common: predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from gpusim.results.style import COLOURS, GREY, MARKERS, PAGE, Style, legend_below, new_figure, save_figure, styled


def predicted_over_measured(
    points: Mapping[str, Sequence[tuple[float, float]]], titles: tuple[str, str], ticks: Sequence[int], path: Path
) -> None:
    """Write predictions against measurements on logarithmic axes, with the line where both are equal.

    Args:
        points: measured and predicted values, by what the legend says of them.
        titles: of the axis of what was measured, and of that of what was predicted.
        ticks: of both axes.
        path: of the picture.
    """
    with styled(Style(PAGE)), new_figure(3.6) as figure:
        axes = figure.subplots()
        for number, (name, mine) in enumerate(points.items()):
            measured, predicted = zip(*mine, strict=True)
            axes.scatter(
                measured, predicted, s=14, marker=MARKERS[number], color=COLOURS[number], alpha=0.7, linewidths=0,
                label=name,
            )  # fmt: skip
        ends = [end(measured for mine in points.values() for measured, _ in mine) for end in (min, max)]
        axes.plot(ends, ends, color=GREY, linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel=titles[0], ylabel=titles[1])
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_ticks(ticks, [str(tick) for tick in ticks])
            axis.set_ticks([], minor=True)
        legend_below(figure, axes)
        save_figure(figure, path)
