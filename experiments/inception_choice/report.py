"""The tables, the picture and the text of the study; every number in them is from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.common.markdown import bullet, page, table, wrapped
from gpusim.results.compare import CONFIDENCE, UNMEASURED, Compared, compared
from gpusim.results.metrics import geometric_mean
from gpusim.results.plots import COLOURS, new_figure, save_figure

if TYPE_CHECKING:
    from run import Row

NO_LIMIT = "none"
LIMITS = ("0", "64", "512", NO_LIMIT)  # of workspace, MiB
GROUPS = (("h200", 128), ("h200", 16), ("k40c", 128))
LEVERS = ("streams", "splits", "mixes", "algorithms", "order")
WAYS = ("streams", "split", "mix", "hardware", "plan")  # of a row, beside serial
BATCHES = (128, 16)


def chosen(rows: Sequence[Row], gpu: str, batch: int, limit: str = NO_LIMIT) -> list[Row]:
    """Rows of one group."""
    return [row for row in rows if (row.gpu, row.batch, row.limit) == (gpu, batch, limit)]


def compare(rows: Sequence[Row], way: str, over: str) -> tuple[Compared, str]:
    """One way against another over some modules, and the verdict."""
    ratios = {(row.module,): row.gain(way, over) for row in rows if row.us(way) > 0.0 and row.us(over) > 0.0}
    found = compared(ratios)
    errors = [error_of(row, way, over) for row in rows]
    known = [error for error in errors if error > 0.0]
    return found, found.verdict(fsum(known) / len(known) / 100.0 if len(known) == len(errors) else None)


def error_of(row: Row, *ways: str) -> float:
    """The larger error of some ways, percent; 0 where the like of one was never measured."""
    kinds = {"serial": row.error_serial, "streams": row.error_streams, "plan": row.error_plan}
    errors = [kinds.get(way, row.error_hardware if way == "hardware" else 0.0) for way in ways]
    return max(errors) if all(errors) else 0.0


COMPARISONS = (
    ("streams", "serial"),
    ("split", "streams"),
    ("mix", "streams"),
    ("hardware", "serial"),
    ("hardware", "streams"),
    ("plan", "hardware"),
)
NAMES = {
    "serial": "serial",
    "streams": "a stream a branch",
    "split": "best SM split",
    "mix": "best mix on an SM",
    "hardware": "best plan for the hardware",
    "plan": "best plan of all",
}

INTRODUCTION = """\
What is there to gain in an inception module, its six convolutions in four branches, and by which lever? `gpusim select`
searches; this counts, of all plans that it replayed, the best of each kind. Everything is against *serial*: one stream,
each convolution by its fastest algorithm, which is what frameworks do. The traces select other algorithms for some; so
speedups of the same modules in [experiments/README.md](../README.md), which are over serial as selected, differ."""

KINDS = """\
* *streams*: a stream a branch, the same algorithms.
* *split*: these streams, each on SMs of its own: the best split found in steps of what the GPU can be told (of a TPC on
  a K40c, which cannot be told), or one that moves.
* *mix*: these streams, blocks of all on every SM, as `even` or `warped-slicer` divide it; no hardware can be told to.
* *hardware*: the best plan of any algorithms and streams in plain streams or an SM split that the GPU makes.
* *plan*: the best of all.
* *bound*: no plan can gain more, whatever it is ([docs/choose.md](../../docs/choose.md))."""

READING = f"""\
Intervals are of {100 * CONFIDENCE:.0f} %, by resampling the modules. *gain* and *loss* are differences that the
interval leaves no doubt of and that exceed the error that was measured of the like (`gpusim replay` prints it); all
else is a *tie*. A *?* marks a difference that nothing confirms, as its like was never measured, but that is more than
{100 * UNMEASURED:.0f} %."""

LEVERS_TEXT = """\
Each lever beside those before it: what it adds to the best so far, mean over the modules. Another order would share the
gain otherwise: what algorithms add, a mix may have had. *Algorithms*: any, in the trace's own streams. *Order*: other
streams, and another order of launch."""

MEMORY_TEXT = """\
Mean gain of the best plan over serial by the fastest algorithms of all, whatever these need; then the mean workspace
of the best plan. With no workspace at all, IMPLICIT_GEMM and the like are left."""

CAVEATS = """\
* The search is not complete for modules of this size; better plans may exist, down to the bound.
* The H200's kernels were recorded on it. The K40c's numbers take these kernels as they are there, less those that fit
  no SM of it: cuDNN would run others, and nothing was validated on a K40c.
* A mix of TF32 or FFT kernels on an SM was never measured; those gains are the model's word alone.
* Pooling, bias and activation are not in these traces; [networks_choice](../networks_choice/README.md) has them."""


def readme(rows: Sequence[Row]) -> str:
    """The text of README.md."""
    parts = [
        "# Inception modules: what streams, splits, mixes, algorithms and order gain",
        "Generated by `python experiments/inception_choice/run.py`; do not edit. All rows: `result.csv`.",
        wrapped(INTRODUCTION),
        KINDS,
        "![gains](gains.png)",
    ]
    for gpu, batch in GROUPS:
        title = f"{'H200' if gpu == 'h200' else 'K40c, never validated'}, batch {batch}"
        parts += [f"## {title}", gain_table(chosen(rows, gpu, batch))]
    parts += ["## Which differences are more than the model's error", wrapped(READING)]
    parts += [comparison_table(rows), "## Which lever gives what", wrapped(LEVERS_TEXT), lever_table(rows)]
    parts += ["## Within how much workspace", wrapped(MEMORY_TEXT), memory_table(rows)]
    return page([*parts, "## What to make of it", verdict(rows), CAVEATS])


def gain_table(rows: Sequence[Row]) -> str:
    """A line a module, and the mean."""
    titles = ["module", "serial us", *WAYS, "bound", "best shares by", "other algorithms", "MiB", "how wrong"]
    cells = [
        [
            row.module,
            f"{row.serial_us:,.0f}",
            *(_gain(row.gain(way)) for way in (*WAYS, "bound")),
            f"`{row.policy}`",
            str(row.changed),
            f"{row.memory_mib:,.0f}",
            f"±{row.error_plan:.1f} %" if row.error_plan else row.why,
        ]
        for row in rows
    ]
    means = [_gain(geometric_mean([row.gain(way) for row in rows if row.gain(way)] or [1.0])) for way in WAYS]
    bound = _gain(geometric_mean([row.gain("bound") for row in rows]))
    return table(titles, [*cells, ["mean", "", *means, bound, "", "", "", ""]])


def _gain(value: float) -> str:
    return f"{value:.3f}x" if value else "–"


def comparison_table(rows: Sequence[Row]) -> str:
    """Paired comparisons."""
    titles = ["", *(f"{gpu} b{batch}" for gpu, batch in GROUPS)]
    cells = []
    for way, over in COMPARISONS:
        found = [compare(chosen(rows, gpu, batch), way, over) for gpu, batch in GROUPS]
        cells.append([f"{NAMES[way]} over {NAMES[over]}", *(f"{one}: {word}" for one, word in found)])
    return table(titles, cells)


def mean_steps(rows: Sequence[Row]) -> dict[str, float]:
    """What each lever adds, mean over some modules."""
    return {lever: geometric_mean([row.steps()[lever] for row in rows]) for lever in LEVERS}


def lever_table(rows: Sequence[Row]) -> str:
    """A line a GPU and batch."""
    cells = []
    for gpu, batch in GROUPS:
        mine = chosen(rows, gpu, batch)
        steps = [f"{100 * (gain - 1):+.1f} %" for gain in mean_steps(mine).values()]
        cells.append([f"{gpu}, batch {batch}", *steps, _gain(geometric_mean([row.gain("plan") for row in mine]))])
    return table(["", *LEVERS, "all"], cells)


def memory_table(rows: Sequence[Row]) -> str:
    """A line a batch on the H200."""
    cells = []
    for batch in BATCHES:
        free = {row.module: row for row in chosen(rows, "h200", batch)}
        for limit in LIMITS:
            mine = chosen(rows, "h200", batch, limit)
            serial = geometric_mean([free[row.module].serial_us / row.serial_us for row in mine])
            gain = geometric_mean([free[row.module].serial_us / row.plan_us for row in mine])
            used = fsum(row.memory_mib for row in mine) / len(mine)
            words = "no limit" if limit == NO_LIMIT else f"{limit} MiB"
            cells.append([str(batch), words, _gain(serial), _gain(gain), f"{used:,.0f}"])
    return table(["batch", "limit", "serial", "best plan", "MiB used"], cells)


def verdict(rows: Sequence[Row]) -> str:
    """What follows, from the rows."""
    lines = []
    for gpu, batch in GROUPS:
        mine = chosen(rows, gpu, batch)
        steps = mean_steps(mine)
        most = max(LEVERS, key=lambda lever: steps[lever])
        streams, plan = compare(mine, "streams", "serial"), compare(mine, "plan", "serial")
        left = geometric_mean([row.plan_us / row.bound_us for row in mine])
        text = (
            f"{gpu}, batch {batch}: streams {streams[0]}, {streams[1]}; the best plan {plan[0]}, {plan[1]}. Most of "
            f"it is from {most}. The bound leaves room for at most {100 * (left - 1):.0f} % more."
        )
        lines.append(bullet(text))
    return "\n".join(lines)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Gain over serial of each way, a panel a group."""
    with new_figure(12.0, 7.5) as figure:
        for n, (gpu, batch) in enumerate(GROUPS):
            mine = chosen(rows, gpu, batch)
            axes = figure.add_subplot(len(GROUPS), 1, n + 1)
            width = 0.8 / len(WAYS)
            for i, way in enumerate(WAYS):
                place = [at + (i - (len(WAYS) - 1) / 2) * width for at in range(len(mine))]
                gains = [100 * (row.gain(way) - 1) if row.gain(way) else 0.0 for row in mine]
                axes.bar(place, gains, width, color=COLOURS[i], label=NAMES[way])
            bound = [100 * (row.gain("bound") - 1) for row in mine]
            axes.hlines(bound, [n - 0.4 for n in range(len(mine))], [n + 0.4 for n in range(len(mine))],
                        color="#333333", label="no plan gains more")  # fmt: skip
            axes.axhline(0.0, color="#555555", linewidth=0.8)
            axes.set_xticks(range(len(mine)), [row.module for row in mine])
            axes.set_ylabel("gain over serial, %")
            axes.set_title(f"{gpu}, batch {batch}", loc="left")
            if n == 0:
                axes.legend(ncols=6, fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0.12, 1.22))
        figure.tight_layout()
        save_figure(figure, path)
