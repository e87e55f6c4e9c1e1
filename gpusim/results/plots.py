"""Pictures of a replay: who runs where and when, and how much of the GPU is used; and of several: their makespans.

A function draws on given axes, or returns a figure for `save_figure`. The style is in `style.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lcm
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpusim.common.tables import grouped, shortened
from gpusim.results.error_band import HowWrong
from gpusim.results.result import Result
from gpusim.results.runs import USES, OperationRun
from gpusim.results.style import (
    COLOURS,
    GREY,
    GRID,
    HATCHES,
    UNVALIDATED,
    grid,
    in_words,
    ink,
    legend_below,
    new_figure,
    style,
    time_unit,
    titled,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IDLE = "#F2F2F2"
SEVERAL = "#FFFFFF"
LABEL_CHARACTERS = 15  # of a stream's name beside its row
TALL_ROWS = 40  # rows of streams up to which the picture grows
MOST_ROWS = 80  # streams whose rows have names
SM_PANEL_INCHES = 1.9
ROW_INCHES = 0.17  # of a stream, and of a kernel
TIME_STEPS = 1600  # columns of the picture of the SMs
LEAST_SHOWN_PERCENT = 0.2  # of a stack: less cannot be seen
STEPS_OF_BIN = 8  # into which a bin of use is cut to tell whose warps are on an SM
MOST_LANES = 12  # rows of that picture for one SM: 1, 2, 3, 4, 6 or 12 streams on it get equal parts
USE_TITLES = {use: use.replace("_", " ") for use in USES} | {"dram": "DRAM bandwidth", "l2": "L2 bandwidth"}
NAME_SHARE = 0.4  # of a picture's width that names of policies may take
ERROR_KNOWN, ERROR_UNKNOWN = "model error measured", "not validated"
RUNNING, WAITING, IDLE_SM, OTHER = "running", "ready, waiting", "idle SM", "copy or host work"


class TimeAxis(NamedTuple):
    """Display unit of times: the divisor of microseconds, and the name of the unit."""

    divisor: float
    unit: str
    end: float


def gantt(result: Result) -> Figure:
    """Timelines of the streams and, below them, of all SMs; those of SMs are empty without placements."""
    rows = ROW_INCHES * min(max(2, len(result.stream_runs)), TALL_ROWS)
    with new_figure(rows + SM_PANEL_INCHES + 0.9) as figure:
        upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(rows, SM_PANEL_INCHES))
        streams_over_time(result, upper)
        sms_over_time(result, lower)
        upper.set_xlabel("")
        titled(figure, _title(result))
        legend_below(figure, upper, 3)
        return figure


def usage(result: Result) -> Figure:
    """How much of each resource is used over time: the device's mean, and where there is room every SM."""
    columns = 2 if style().wide else 1
    with new_figure(0.62 * len(USES) + 0.6) as figure:
        panels = figure.subplots(len(USES), columns, sharex=True, squeeze=False)
        for row, use in enumerate(USES):
            use_over_time(result, use, panels[row][0])
            if columns > 1:
                use_of_sms(result, use, panels[row][1])
            for axes in panels[row] if row < len(USES) - 1 else ():
                axes.set_xlabel("")
        figure.supylabel("Use (%)", fontsize=style().points)
        titled(figure, _title(result))
        return figure


def occupancy(result: Result) -> Figure:
    """Which streams' warps fill the SMs: over time, mean over the SMs, and below SM by SM, mean over time.

    Without placements nobody's warps can be told apart.
    """
    with new_figure(3.8) as figure:
        upper, lower = figure.subplots(2, 1)
        held = warps_held(result)
        _stack(result, held.mean(axis=1), _edges(result, held.shape[2]), upper)
        _show_time(upper, _time_axis(result))
        occupancy_of_sms(result, held, lower)
        figure.supylabel("Warps held (%)", fontsize=style().points)
        titled(figure, _title(result))
        legend_below(figure, upper, 3)
        return figure


# ---- streams and SMs over time


def streams_over_time(result: Result, axes: Axes) -> None:
    """Draw one row per stream: a thin bar while a kernel waits, a full one from its first block to its end.

    Copies and host work are hatched.
    """
    axis = _time_axis(result)
    position = {run.stream: i for i, run in enumerate(result.stream_runs)}
    runs, others = grouped(result.kernel_runs, lambda run: run.stream), without_kernels(result)
    for stream, row in position.items():
        colour = stream_colour(row, len(position))
        waits = [(run.ready_us, run.start_us) for run in runs.get(stream, ())]
        works = [(run.start_us, run.end_us) for run in runs.get(stream, ())]
        spans = [(op.start_us, op.end_us) for op in others if op.stream == stream]
        _bars(axes, waits, row, 0.2, axis, facecolor=colour, alpha=0.45)
        _bars(axes, works, row, 0.72, axis, facecolor=colour, edgecolor="white", linewidth=0.3)
        _bars(axes, spans, row, 0.5, axis, facecolor="white", edgecolor=colour, linewidth=0.6, hatch="////")
    axes.bar([0.0], [0.0], width=0.0, color=GREY, label=RUNNING)
    axes.bar([0.0], [0.0], width=0.0, color=GREY, alpha=0.45, label=WAITING)
    axes.bar([0.0], [0.0], width=0.0, facecolor=IDLE, edgecolor=GRID, label=IDLE_SM)
    if others:
        axes.bar([0.0], [0.0], width=0.0, facecolor="white", edgecolor=GREY, hatch="////", label=OTHER)
    named = len(position) <= MOST_ROWS
    axes.set_ylim(len(position) - 0.4, -0.6)
    axes.set_yticks(range(len(position)) if named else [])
    axes.set_yticklabels([shortened(name, LABEL_CHARACTERS) for name in position] if named else [])
    grid(axes, "x")
    _show_time(axes, axis)


def without_kernels(result: Result) -> list[OperationRun]:
    """The operations that launch no kernels, such as copies, from when they could start."""
    launched = {(run.stream, run.operation, run.request) for run in result.kernel_runs}
    return [op for op in result.operation_runs if (op.stream, op.operation, op.request) not in launched]


def _bars(
    axes: Axes, spans: Sequence[tuple[float, float]], row: int, height: float, axis: TimeAxis, **style: Any
) -> None:
    ranges = [(start / axis.divisor, (end - start) / axis.divisor) for start, end in spans if end > start]
    axes.broken_barh(ranges, (row - height / 2.0, height), **style)


def sms_over_time(result: Result, axes: Axes) -> None:
    """Draw one row per SM, in the colours of the streams that have blocks there; streams on one SM share its row."""
    from matplotlib.colors import ListedColormap

    axis = _time_axis(result)
    streams = len(result.stream_runs)
    sms = max(1, result.usage.sms)
    image = sm_image(result, sms)
    colours = ListedColormap([IDLE, *(stream_colour(i, streams) for i in range(streams))])
    axes.imshow(image, cmap=colours, vmin=-1.5, vmax=streams - 0.5, aspect="auto", interpolation="nearest",
                extent=(0.0, axis.end, sms - 0.5, -0.5))  # fmt: skip
    _show_time(axes, axis)
    axes.set_ylabel("SM")


def sm_image(result: Result, sms: int) -> NDArray[np.int16]:
    """Which stream runs on which SM when, for `gantt`: (SM x lanes) x `TIME_STEPS`, -1 where none runs.

    An SM's lanes are split equally among the streams that have blocks on it at that moment, in the order of the trace;
    there are as many lanes as an equal split needs, at most `MOST_LANES`.
    """
    present = _present(result, sms, TIME_STEPS, (result.makespan_us or 1.0) / TIME_STEPS)
    together = present.sum(axis=0, dtype=np.int16)
    lanes = min(MOST_LANES, lcm(*(int(count) for count in np.unique(together) if count > 0)))
    image = np.full((sms, lanes, TIME_STEPS), -1, dtype=np.int16)
    lane = np.arange(lanes, dtype=np.int16)[None, :, None] * together[:, None, :]  # in lanes x streams together
    top = np.zeros_like(together)
    for stream in range(len(present)):
        bottom = top + lanes * present[stream]
        image[(lane >= top[:, None, :]) & (lane < bottom[:, None, :])] = stream
        top = bottom
    return image.reshape(sms * lanes, TIME_STEPS)


def _present(result: Result, sms: int, steps: int, step_us: float) -> NDArray[np.bool_]:
    """Whether a stream has blocks on an SM in a step of time (stream x SM x step)."""
    position = {run.stream: i for i, run in enumerate(result.stream_runs)}
    present = np.zeros((len(position), sms, steps), dtype=bool)
    for placed in result.placements:
        first = min(steps - 1, int(placed.start_us / step_us))
        last = max(first + 1, round(placed.end_us / step_us))
        present[position[result.kernel_runs[placed.run].stream], placed.sm, first:last] = True
    return present


# ---- occupancy


def warps_held(result: Result) -> NDArray[np.float64]:
    """Which stream holds an SM's warps when, for `occupancy`: (streams + 1) x SM x bin of `Usage`.

    It is per cent of the SM's warps that a stream holds where it is alone on the SM, and in the last row those that
    several streams hold there at once: how many are whose is not recorded. A bin in which that changes is divided in
    proportion to time.
    """
    percent = _of_use(result, "threads")
    sms, bins = percent.shape
    present = _present(result, sms, bins * STEPS_OF_BIN, result.usage.bin_us / STEPS_OF_BIN)
    together = present.sum(axis=0)
    alone = present & (together == 1)
    parts = np.concatenate((alone, (together > 1)[None])).reshape(-1, sms, bins, STEPS_OF_BIN).sum(axis=3)
    busy = np.maximum(1, parts.sum(axis=0))
    held: NDArray[np.float64] = percent * (parts / busy).astype(np.float64)
    return held


def occupancy_of_sms(result: Result, held: NDArray[np.float64], axes: Axes) -> None:
    """Draw the achieved occupancy of each SM: resident warps over the makespan, % of its most, streams stacked."""
    sms = held.shape[1]
    share = result.usage.bin_us / result.makespan_us if result.makespan_us > 0.0 else 0.0
    means = held.sum(axis=2) * share
    _stack(result, means, np.arange(sms + 1) - 0.5, axes)
    axes.set_ylim(0.0, min(105.0, 1.15 * float(means.sum(axis=0).max()) or 105.0))
    axes.set_xlim(-0.5, sms - 0.5)
    axes.set_xlabel("SM")


def _stack(result: Result, parts: NDArray[np.float64], edges: NDArray[np.float64], axes: Axes) -> None:
    streams = [run.stream for run in result.stream_runs]
    base = np.zeros(parts.shape[1])
    for i, part in enumerate(parts):
        if part.max(initial=0.0) < LEAST_SHOWN_PERCENT:
            continue
        several = i == len(streams)
        label = "several streams on an SM" if several else shortened(streams[i], LABEL_CHARACTERS)
        colour = SEVERAL if several else stream_colour(i, len(streams))
        axes.stairs(base + part, edges, baseline=base, fill=True, facecolor=colour, edgecolor=ink(colour),
                    linewidth=0.0, hatch=HATCHES[i % len(HATCHES)] if not several else "xxx", label=label)  # fmt: skip
        base = base + part
    axes.set_ylim(0.0, 105.0)
    grid(axes, "y")


# ---- use over time


def use_over_time(result: Result, use: str, axes: Axes) -> None:
    """Draw how much of one of `gpusim.results.runs.USES` is used over time, mean over the SMs, %."""
    axes.set_title(USE_TITLES[use], pad=2)
    if not _known(result, use, axes):
        return
    percent = _of_use(result, use)
    edges, device = _edges(result, percent.shape[1]), percent.mean(axis=0)
    mean = float(device.sum()) * result.usage.bin_us / result.makespan_us if result.makespan_us > 0.0 else 0.0
    axes.stairs(device, edges, fill=True, color=COLOURS[0], alpha=0.3)
    axes.stairs(device, edges, color=COLOURS[0], linewidth=0.9)
    axes.axhline(mean, color="#444444", linewidth=0.8, linestyle="--")
    axes.set_title(f"mean {mean:.0f} %", loc="right", pad=2)
    axes.set_ylim(0.0, 105.0)
    axes.set_yticks([0, 50, 100])
    grid(axes)


def use_of_sms(result: Result, use: str, axes: Axes) -> None:
    """Draw how much of one of `gpusim.results.runs.USES` each SM uses over time, %, as colours with a colour bar."""
    if not _known(result, use, axes):
        return
    percent = _of_use(result, use)
    edges = _edges(result, percent.shape[1])
    of_sm = use not in ("dram", "l2")
    top = 100.0 if of_sm else max(100.0, float(percent.max()))
    axes.set_ylabel("SM")
    picture = axes.imshow(percent, cmap="viridis", vmin=0.0, vmax=top, aspect="auto", interpolation="nearest",
                          extent=(0.0, float(edges[-1]), percent.shape[0] - 0.5, -0.5))  # fmt: skip
    axes.set_xlim(0.0, _time_axis(result).end)
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.015, fraction=0.045)
    bar.set_label("%" if of_sm else "% of even")


def _of_use(result: Result, use: str) -> NDArray[np.float64]:
    """Utilisation of a resource (one of `USES`) on each SM in each time bin, % (SM x bin)."""
    of, at = result.usage, USES.index(use)
    if not of.sms * of.bins:
        return np.zeros((1, 1))
    return np.ascontiguousarray(of.table[:, :, at].T) * of.scale[at] * 100.0


def _edges(result: Result, bins: int) -> NDArray[np.float64]:
    """Where the bins of use begin and end on the axis of time."""
    return np.arange(bins + 1, dtype=np.float64) * (result.usage.bin_us / _time_axis(result).divisor)


def _known(result: Result, use: str, axes: Axes) -> bool:
    """Whether a use was counted; the axes of time are drawn either way, and say so where it was not."""
    _show_time(axes, _time_axis(result))
    if use not in result.usage.unknown:
        return True
    axes.set_title("unknown", loc="right", pad=2)
    axes.set_yticks([])
    return False


# ---- policies side by side


class PolicyBar(NamedTuple):
    """A policy in the chart of several: its makespan, what is said of its speedup, and how far off the model was."""

    policy: str
    makespan_us: float
    speedup: str
    how_wrong: HowWrong


def policies(title: str, bars: Sequence[PolicyBar]) -> Figure:
    """The makespans of a trace under several policies, with how far off such predictions were."""
    with new_figure(1.1 + 0.24 * len(bars)) as figure:
        axes = figure.subplots()
        makespans(bars, axes)
        titled(figure, title)
        legend_below(figure, axes)
        return figure


def makespans(bars: Sequence[PolicyBar], axes: Axes) -> None:
    """Draw a bar for each policy: its makespan, labelled with the speedup over serial.

    Where the model's error was measured for such replays, an error bar shows it; other bars are hatched.
    """
    divisor, unit = time_unit(max(bar.makespan_us for bar in bars))
    times = [bar.makespan_us / divisor for bar in bars]
    for row, (bar, time) in enumerate(zip(bars, times, strict=True)):
        end, percent = time, bar.how_wrong.percent
        if percent is not None:
            axes.barh(row, time, height=0.62, color=COLOURS[3], label=ERROR_KNOWN)
            error = time * percent / 100.0
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


# ---- what all pictures share


def stream_colour(position: int, streams: int) -> Any:
    """The colour of a stream by its position in the trace: the same in every picture."""
    if streams <= len(COLOURS):
        return COLOURS[position]
    import matplotlib

    return matplotlib.colormaps["turbo"](0.05 + 0.9 * position / (streams - 1))


def _time_axis(result: Result) -> TimeAxis:
    end = result.makespan_us or 1.0
    divisor, unit = time_unit(end)
    return TimeAxis(divisor, unit, end / divisor)


def _show_time(axes: Axes, axis: TimeAxis) -> None:
    axes.set_xlim(0.0, axis.end)
    axes.set_xlabel(f"Time ({axis.unit})")


def _title(result: Result) -> str:
    return f"{result.trace} on {result.gpu} under {in_words(result.policy)}"
