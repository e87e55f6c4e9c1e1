"""Pictures of a replay: who runs where and when, and how much of the GPU is used.

The same result gives the same bytes: no date, no version, no settings of the user's go into a picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import lcm
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from gpusim.common.errors import InputError, one_line
from gpusim.common.files import atomic_write
from gpusim.common.tables import shortened
from gpusim.results.result import Result
from gpusim.results.runs import USES, KernelRun, OperationRun

if TYPE_CHECKING:
    import numpy as np
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# Most are Okabe and Ito's, which colour-blind readers can tell apart; the first five differ in grey, too.
COLOURS = (
    "#0072B2", "#E69F00", "#D55E00", "#8CCBEA", "#004D35", "#CC79A7", "#009E73", "#7F3C8D", "#B8A800", "#8C564B",
)  # fmt: skip
FORMATS: dict[str, dict[str, Any]] = {  # what of each format's metadata would differ from run to run or version
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
HATCHES = ("", "////", "....", "\\\\\\\\", "++", "oo", "---", "|||", "**", "OO")  # for who reads in grey
IDLE = "#F2F2F2"
SEVERAL = "#FFFFFF"
GRID = "#D8D8D8"
LEGEND_CHARACTERS = 80  # that fit beside the title; where names are longer the rows' own names must do
LABEL_CHARACTERS = 15  # of a stream's name beside its row
TALL_ROWS = 40  # rows of streams up to which the picture grows
MOST_ROWS = 80  # streams whose rows have names
SM_PANEL_INCHES = 6.0
TIME_STEPS = 1600  # columns of the picture of the SMs
LEAST_SHOWN_PERCENT = 0.2  # of a stack: less cannot be seen
STEPS_OF_BIN = 8  # into which a bin of use is cut to tell whose warps are on an SM
MOST_LANES = 12  # rows of that picture for one SM: 1, 2, 3, 4, 6 or 12 streams on it get equal parts
CHARACTER_SHARE = 0.0075  # of the picture's width that a character of a label takes
MILLISECONDS_FROM_US = 10_000.0
UNITS = ("us", "cycles")  # with which the names of parameters end
USE_TITLES = {
    "registers": "registers",
    "shared_memory": "shared memory",
    "threads": "threads",
    "block_slots": "block slots",
    "issue_slots": "issue slots",
    "dram": "DRAM bandwidth",
    "l2": "L2 bandwidth",
}


class TimeAxis(NamedTuple):
    """How times are shown: what divides microseconds, and the unit."""

    divisor: float
    unit: str
    end: float


class Label(NamedTuple):
    """The name of an operation, and where it stands: in one of its kernels, or in its own bar where it has none."""

    stream: str
    text: str
    middle_us: float
    in_kernel: bool


def gantt(result: Result) -> Figure:
    """Who runs where and when: the streams over time, and below them every SM, empty without placements."""
    rows_inches = 0.4 + 0.32 * min(len(result.stream_runs), TALL_ROWS)
    with new_figure(13.0, rows_inches + SM_PANEL_INCHES + 1.3) as figure:
        margins = _margins(figure, left=1.25, right=0.2, bottom=0.65, top=0.5)
        grid = figure.add_gridspec(2, 1, height_ratios=(rows_inches, SM_PANEL_INCHES), hspace=0.05, **margins)
        upper = figure.add_subplot(grid[0])
        lower = figure.add_subplot(grid[1], sharex=upper)
        streams_over_time(result, upper)
        sms_over_time(result, lower)
        upper.set_title(_title(result), loc="left", fontsize=11, fontweight="bold")
        upper.tick_params(labelbottom=False)
        upper.set_xlabel("")
        _stream_legend(upper, [run.stream for run in result.stream_runs])
        return figure


def usage(result: Result) -> Figure:
    """How much of each resource is used over time: left the device's mean, right every SM."""
    with new_figure(13.0, 11.0) as figure:
        margins = _margins(figure, left=0.85, right=0.55, bottom=0.6, top=0.45)
        grid = figure.add_gridspec(len(USES), 2, width_ratios=(1.0, 1.15), hspace=0.24, wspace=0.12, **margins)
        for row, use in enumerate(USES):
            left, right = (figure.add_subplot(grid[row, column]) for column in range(2))
            use_over_time(result, use, left)
            use_of_sms(result, use, right)
            if row < len(USES) - 1:
                for axes in (left, right):
                    axes.tick_params(labelbottom=False)
                    axes.set_xlabel("")
        figure.axes[0].set_title(_title(result), loc="left", fontsize=11, fontweight="bold")
        figure.axes[1].set_title("every SM", loc="left", fontsize=10)
        return figure


def occupancy(result: Result) -> Figure:
    """Which streams' warps fill the SMs: over time, mean over the SMs, and below SM by SM, mean over time.

    Without placements nobody's warps can be told apart.
    """
    with new_figure(13.0, 7.6) as figure:
        margins = _margins(figure, left=0.85, right=0.2, bottom=0.6, top=0.85)
        upper, lower = figure.subplots(2, 1, gridspec_kw={"hspace": 0.3, **margins})
        held = warps_held(result)
        occupancy_over_time(result, held, upper)
        occupancy_of_sms(result, held, lower)
        upper.set_title(_title(result), loc="left", fontsize=11, fontweight="bold", pad=28)
        handles, labels = upper.get_legend_handles_labels()
        upper.legend(handles, labels, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=min(8, len(labels) or 1),
                     fontsize=8.5, frameon=False, borderaxespad=0.2)  # fmt: skip
        return figure


# ---- streams and SMs over time


def streams_over_time(result: Result, axes: Axes) -> None:
    """Draws a row a stream: a thin bar while a kernel is ready and waits, a full one from its first block to its end.

    Copies and host work are hatched.
    """
    axis = _time_axis(result)
    position = {run.stream: i for i, run in enumerate(result.stream_runs)}
    runs: dict[str, list[KernelRun]] = {stream: [] for stream in position}
    for run in result.kernel_runs:
        runs[run.stream].append(run)
    for stream, row in position.items():
        colour = stream_colour(row, len(position))
        waits = [(run.ready_us, run.start_us) for run in runs[stream]]
        works = [(run.start_us, run.end_us) for run in runs[stream]]
        _bars(axes, waits, row, 0.24, axis, facecolor=colour, alpha=0.35)
        _bars(axes, works, row, 0.72, axis, facecolor=colour, edgecolor="white", linewidth=0.4)
    others = _without_kernels(result)
    for stream, row in position.items():
        spans = [(op.start_us, op.end_us) for op in others if op.stream == stream]
        colour = stream_colour(row, len(position))
        _bars(axes, spans, row, 0.5, axis, facecolor="white", edgecolor=colour, linewidth=0.8, hatch="////")
    for label in operation_labels(result):
        row = position[label.stream]
        ground = stream_colour(row, len(position)) if label.in_kernel else "white"
        axes.text(label.middle_us / axis.divisor, row, label.text, ha="center", va="center", fontsize=7.5,
                  color=ink(ground))  # fmt: skip
    named = len(position) <= MOST_ROWS
    axes.set_ylim(len(position) - 0.4, -0.6)
    axes.set_yticks(range(len(position)) if named else [])
    size = 8.5 if len(position) <= TALL_ROWS else 7.0
    axes.set_yticklabels([shortened(name, LABEL_CHARACTERS) for name in position] if named else [], fontsize=size)
    axes.grid(axis="x", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)
    _show_time(axes, axis)


def operation_labels(result: Result) -> list[Label]:
    """The names of operations that fit into their longest kernel, or into their bar where they launch none."""
    longest: dict[tuple[str, int], KernelRun] = {}
    for run in result.kernel_runs:
        known = longest.get((run.operation, run.request))
        if known is None or run.end_us - run.start_us > known.end_us - known.start_us:
            longest[run.operation, run.request] = run
    named: list[KernelRun | OperationRun] = [*longest.values(), *_without_kernels(result)]
    room = result.makespan_us * CHARACTER_SHARE
    return [
        Label(run.stream, run.operation, (run.start_us + run.end_us) / 2.0, isinstance(run, KernelRun))
        for run in named
        if run.end_us - run.start_us > room * (len(run.operation) + 1)
    ]


def _without_kernels(result: Result) -> list[OperationRun]:
    """The operations that launch no kernels, such as copies, from when they could start."""
    launched = {(run.stream, run.operation, run.request) for run in result.kernel_runs}
    return [op for op in result.operation_runs if (op.stream, op.operation, op.request) not in launched]


def _bars(
    axes: Axes, spans: Sequence[tuple[float, float]], row: int, height: float, axis: TimeAxis, **style: Any
) -> None:
    ranges = [(start / axis.divisor, (end - start) / axis.divisor) for start, end in spans if end > start]
    axes.broken_barh(ranges, (row - height / 2.0, height), **style)


def sms_over_time(result: Result, axes: Axes) -> None:
    """Draws a row an SM, in the colours of the streams that have blocks there; streams on one SM share its row."""
    from matplotlib.colors import ListedColormap

    axis = _time_axis(result)
    streams = len(result.stream_runs)
    sms = max(1, len(result.usage.shares))
    image = sm_image(result, sms)
    colours = ListedColormap([IDLE, *(stream_colour(i, streams) for i in range(streams))])
    axes.imshow(image, cmap=colours, vmin=-1.5, vmax=streams - 0.5, aspect="auto", interpolation="nearest",
                extent=(0.0, axis.end, sms - 0.5, -0.5))  # fmt: skip
    _show_time(axes, axis)
    axes.set_ylabel("SM", fontsize=9)
    axes.text(1.0, -0.07, "thin bar: ready and waiting, full bar: running; streams on one SM at once share its row",
              transform=axes.transAxes, ha="right", va="top", fontsize=8, color="#555555")  # fmt: skip


def sm_image(result: Result, sms: int) -> NDArray[np.int16]:
    """Which stream runs on which SM when, for `gantt`.

    Returns:
        (SM x lanes) x `TIME_STEPS`: position of the stream, -1 where none runs. An SM's lanes are split equally
        among the streams that have blocks on it at that moment, in the order of the trace; there are as many lanes
        as an equal split needs, at most `MOST_LANES`.
    """
    import numpy as np

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
    import numpy as np

    position = {run.stream: i for i, run in enumerate(result.stream_runs)}
    present = np.zeros((len(position), sms, steps), dtype=bool)
    for placed in result.placements:
        first = min(steps - 1, int(placed.start_us / step_us))
        last = max(first + 1, round(placed.end_us / step_us))
        present[position[result.kernel_runs[placed.run].stream], placed.sm, first:last] = True
    return present


# ---- occupancy


def warps_held(result: Result) -> NDArray[np.float64]:
    """Which stream holds an SM's warps when, for `occupancy`.

    Returns:
        (streams + 1) x SM x bin of `Usage`: per cent of the SM's warps that a stream holds where it is alone on the SM,
        and in the last row those that several streams hold there at once: how many are whose is not recorded. A bin in
        which that changes is divided in proportion to time.
    """
    import numpy as np

    percent = _of_use(result, "threads")
    sms, bins = percent.shape
    present = _present(result, sms, bins * STEPS_OF_BIN, result.usage.bin_us / STEPS_OF_BIN)
    together = present.sum(axis=0)
    alone = present & (together == 1)
    parts = np.concatenate((alone, (together > 1)[None])).reshape(-1, sms, bins, STEPS_OF_BIN).sum(axis=3)
    busy = np.maximum(1, parts.sum(axis=0))
    held: NDArray[np.float64] = percent * (parts / busy).astype(np.float64)
    return held


def occupancy_over_time(result: Result, held: NDArray[np.float64], axes: Axes) -> None:
    """Draw achieved occupancy over time: resident warps (`warps_held`), % of the maximum, mean of all SMs, stacked."""
    edges = _edges(result, held.shape[2])
    _stack(result, held.mean(axis=1), edges, axes)
    _show_time(axes, _time_axis(result))
    axes.set_ylabel("warps held, % of those\nthat the SMs can hold", fontsize=8.5)


def occupancy_of_sms(result: Result, held: NDArray[np.float64], axes: Axes) -> None:
    """Draws the achieved occupancy of each SM, % over the makespan, streams stacked; see `occupancy_over_time`."""
    import numpy as np

    sms = held.shape[1]
    share = result.usage.bin_us / result.makespan_us if result.makespan_us > 0.0 else 0.0
    means = held.sum(axis=2) * share
    _stack(result, means, np.arange(sms + 1) - 0.5, axes)
    axes.set_ylim(0.0, min(105.0, 1.15 * float(means.sum(axis=0).max()) or 105.0))
    axes.set_xlim(-0.5, sms - 0.5)
    axes.set_xlabel("SM")
    axes.set_ylabel("warps held, % of the SM's,\nmean over the makespan", fontsize=8.5)


def _stack(result: Result, parts: NDArray[np.float64], edges: NDArray[np.float64], axes: Axes) -> None:
    import numpy as np

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
    axes.tick_params(labelsize=8.5)
    axes.grid(axis="y", color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


# ---- use over time


def use_over_time(result: Result, use: str, axes: Axes) -> None:
    """Draws how much of one of `gpusim.results.runs.USES` is used over time, mean over the SMs, %."""
    axes.set_ylabel(f"{USE_TITLES[use]}\n% of the device", fontsize=8.5)
    if not _known(result, use, axes):
        return
    percent = _of_use(result, use)
    edges, device = _edges(result, percent.shape[1]), percent.mean(axis=0)
    mean = float(device.sum()) * result.usage.bin_us / result.makespan_us if result.makespan_us > 0.0 else 0.0
    axes.stairs(device, edges, fill=True, color=COLOURS[0], alpha=0.3)
    axes.stairs(device, edges, color=COLOURS[0], linewidth=1.1)
    axes.axhline(mean, color="#444444", linewidth=0.8, linestyle="--")
    axes.set_title(f"mean {mean:.0f} %", loc="right", fontsize=8.5, pad=3)
    axes.set_ylim(0.0, 105.0)
    axes.set_yticks([0, 50, 100])
    axes.grid(color=GRID, linewidth=0.6)
    axes.set_axisbelow(True)


def use_of_sms(result: Result, use: str, axes: Axes) -> None:
    """Draws how much of one of `gpusim.results.runs.USES` each SM uses over time, %, as colours with a colour bar."""
    if not _known(result, use, axes):
        return
    percent = _of_use(result, use)
    edges = _edges(result, percent.shape[1])
    of_sm = use not in ("dram", "l2")
    top = 100.0 if of_sm else max(100.0, float(percent.max()))
    axes.set_ylabel("SM", fontsize=8.5)
    picture = axes.imshow(percent, cmap="viridis", vmin=0.0, vmax=top, aspect="auto", interpolation="nearest",
                          extent=(0.0, float(edges[-1]), percent.shape[0] - 0.5, -0.5))  # fmt: skip
    axes.set_xlim(0.0, _time_axis(result).end)
    bar = axes.figure.colorbar(picture, ax=axes, pad=0.015, fraction=0.045)
    bar.set_label("% of its SM" if of_sm else "% of an even share", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _of_use(result: Result, use: str) -> NDArray[np.float64]:
    """How much of one of `USES` every SM uses in each bin, % (SM x bin)."""
    import numpy as np

    shares = np.array(result.usage.shares, dtype=float)
    if shares.ndim != 3:
        shares = np.zeros((1, 1, len(USES)))
    return shares[:, :, USES.index(use)] * 100.0


def _edges(result: Result, bins: int) -> NDArray[np.float64]:
    """Where the bins of use begin and end on the axis of time."""
    import numpy as np

    return np.arange(bins + 1, dtype=np.float64) * (result.usage.bin_us / _time_axis(result).divisor)


def _known(result: Result, use: str, axes: Axes) -> bool:
    """Whether a use was counted; the axes of time are drawn either way, and say so where it was not."""
    _show_time(axes, _time_axis(result))
    axes.tick_params(labelsize=8.5)
    if use not in result.usage.unknown:
        return True
    axes.text(0.5, 0.5, "unknown: not counted for every kernel", transform=axes.transAxes, ha="center", va="center",
              fontsize=8.5, color="#555555")  # fmt: skip
    axes.set_yticks([])
    return False


# ---- what all pictures share


def stream_colour(position: int, streams: int) -> Any:
    """The colour of a stream by its position in the trace: the same in every picture."""
    if streams <= len(COLOURS):
        return COLOURS[position]
    import matplotlib

    return matplotlib.colormaps["turbo"](0.05 + 0.9 * position / (streams - 1))


def ink(colour: Any) -> str:
    """White or black, whichever reads better on a colour."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.62 else "black"


def time_unit(us: float) -> tuple[float, str]:
    """What divides microseconds where times are about that long, and the unit."""
    return (1e3, "ms") if us >= MILLISECONDS_FROM_US else (1.0, "us")


def _time_axis(result: Result) -> TimeAxis:
    end = result.makespan_us or 1.0
    divisor, unit = time_unit(end)
    return TimeAxis(divisor, unit, end / divisor)


def _show_time(axes: Axes, axis: TimeAxis) -> None:
    axes.set_xlim(0.0, axis.end)
    axes.set_xlabel(f"time, {axis.unit}")


def _title(result: Result) -> str:
    return one_line(f"{result.trace} on {result.gpu} under {in_words(result.policy)}")


def in_words(policy: str) -> str:
    """A policy with its parameters: ``maestro:epoch_us=50,eps=0.1`` as ``maestro, epoch 50 us, eps 0.1``."""
    head, equals, _ = policy.partition("=")
    name = head.rpartition(":")[0]
    if not equals or not name:
        return policy
    pairs = (part.partition("=") for part in policy[len(name) + 1 :].split(","))
    return ", ".join([name, *(_parameter_in_words(key, value) for key, _, value in pairs)])


def _parameter_in_words(key: str, value: str) -> str:
    what, _, unit = key.rpartition("_")
    if unit in UNITS:
        key, value = what, f"{value} {unit}"
    return f"{key.replace('_', ' ')} {value}"


def _stream_legend(axes: Axes, streams: Sequence[str]) -> None:
    """Names the colours beside the title where they fit; the rows of the streams have names in any case."""
    from matplotlib.patches import Patch

    if not streams or sum(len(stream) + 6 for stream in streams) > LEGEND_CHARACTERS:
        return
    handles = [Patch(color=stream_colour(i, len(streams)), label=stream) for i, stream in enumerate(streams)]
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(handles), fontsize=8.5,
                frameon=False, borderaxespad=0.2)  # fmt: skip


def _margins(figure: Figure, left: float, right: float, bottom: float, top: float) -> dict[str, float]:
    """Where the plots of a figure begin and end, from margins in inches."""
    width, height = figure.get_size_inches()
    return {"left": left / width, "right": 1.0 - right / width, "bottom": bottom / height, "top": 1.0 - top / height}


@contextmanager
def _own_settings() -> Iterator[None]:
    """Matplotlib's own settings, whatever the user's are; a ``$`` in a name is a ``$``, and an SVG's ids stay."""
    import matplotlib

    with matplotlib.rc_context({**matplotlib.rcParamsDefault, "text.parse_math": False, "svg.hashsalt": "gpusim"}):
        yield


@contextmanager
def new_figure(width: float, height: float) -> Iterator[Figure]:
    """A figure (inches) to draw on while the context lasts, with matplotlib's own settings."""
    from matplotlib.figure import Figure

    with _own_settings():
        yield Figure(figsize=(width, height), dpi=110, facecolor="white")


def save_figure(figure: Figure, path: str | Path) -> None:
    """Writes a figure in the format that the file's ending says, with nothing in it that differs from run to run.

    Raises:
        InputError: another ending than those of `FORMATS`, or the file cannot be written.
    """
    ending = picture_format(path)
    with _own_settings(), atomic_write(path, "wb") as file:
        figure.savefig(file, format=ending, metadata=FORMATS[ending])


def picture_format(path: str | Path) -> str:
    """Which of `FORMATS` the ending of a file says.

    Raises:
        InputError: none of them.
    """
    ending = Path(path).suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        raise InputError(Path(path), "picture", "cannot be drawn to", f"a file that ends in .{', .'.join(FORMATS)}")
    return ending
