"""The tables, the picture and the text of the study; every number in them is from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path

from experiments.compare import CONFIDENCE, UNMEASURED, Compared, compared
from experiments.markdown import bullet, table
from gpusim.results.metrics import geometric_mean
from gpusim.results.style import COLOURS, GREY, HATCHES, PAGE, Style, legend_below, new_figure, save_figure, styled

NO_LIMIT = "none"
LIMITS = ("0", "64", "512", NO_LIMIT)  # of workspace, MiB
GROUPS = (("h200", 128), ("h200", 16), ("k40c", 128))
LEVERS = ("streams", "splits", "mixes", "algorithms", "order")
WAYS = ("streams", "split", "mix", "hardware", "plan")  # of a row, beside serial
BATCHES = (128, 16)


@dataclass(frozen=True)
class Row:
    """What was found for a module on a GPU within a limit; times are of the replays.

    Attributes:
        gpu, batch, module: which.
        limit: of workspaces that may be live at once, MiB; `NO_LIMIT`.
        serial_us: one stream, each convolution by its fastest algorithm within the limit.
        streams_us: one stream per branch, likewise.
        split_us: the same streams and algorithms, the best SM split; 0: none.
        mix_us: the same, the best mix of blocks on every SM.
        hardware_us: the best plan of all in plain streams or an SM split that the GPU makes.
        plan_us: the best plan of all.
        other_us: the best with the trace's own streams and any algorithms.
        bound_us: no plan is faster.
        memory_mib: workspace of the best plan.
        policy: how it shares the GPU.
        changed: convolutions that it runs by another than the fastest algorithm.
        error_serial, error_streams, error_hardware, error_plan: of the model where its like was measured, percent;
            0: never.
        why: it has none for the best plan.
    """

    gpu: str
    batch: int
    module: str
    limit: str
    serial_us: float
    streams_us: float
    split_us: float
    mix_us: float
    hardware_us: float
    plan_us: float
    other_us: float
    bound_us: float
    memory_mib: float
    policy: str
    changed: int
    error_serial: float
    error_streams: float
    error_hardware: float
    error_plan: float
    why: str

    def us(self, way: str) -> float:
        """Time by one of `report.WAYS` or serial."""
        return float(getattr(self, f"{way}_us"))

    def gain(self, way: str, over: str = "serial") -> float:
        """How many times as fast."""
        return self.us(over) / self.us(way) if self.us(way) > 0.0 else 0.0

    def steps(self) -> dict[str, float]:
        """What each lever adds to those before it: how many times as fast."""
        kinds = (self.serial_us, self.streams_us, self.split_us, self.mix_us, self.other_us, self.plan_us)
        best, gains = kinds[0], []
        for us in kinds[1:]:
            now = min(best, us) if us > 0.0 else best
            gains.append(best / now)
            best = now
        return dict(zip(LEVERS, gains, strict=True))


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
    "streams": "one stream per branch",
    "split": "best SM split",
    "mix": "best mix on an SM",
    "hardware": "best plan for the hardware",
    "plan": "best plan of all",
}


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    groups = {f"{gpu}_{batch}": gain_table(chosen(rows, gpu, batch)) for gpu, batch in GROUPS}
    return groups | {
        "confidence": 100 * CONFIDENCE,
        "unmeasured": 100 * UNMEASURED,
        "comparisons": comparison_table(rows),
        "levers": lever_table(rows),
        "memory": memory_table(rows),
        "verdict": verdict(rows),
    }


def gain_table(rows: Sequence[Row]) -> str:
    """A line a module, and the mean."""
    titles = ["module", "serial µs", *WAYS, "bound", "best shares by", "other algorithms", "MiB", "model error"]
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
    """Gain over serial of each way, one panel per group."""
    with styled(Style(PAGE)), new_figure(5.0) as figure:
        for n, (gpu, batch) in enumerate(GROUPS):
            mine = chosen(rows, gpu, batch)
            axes = figure.add_subplot(len(GROUPS), 1, n + 1)
            width = 0.8 / len(WAYS)
            for i, way in enumerate(WAYS):
                place = [at + (i - (len(WAYS) - 1) / 2) * width for at in range(len(mine))]
                gains = [100 * (row.gain(way) - 1) if row.gain(way) else 0.0 for row in mine]
                axes.bar(place, gains, width, color=COLOURS[i], hatch=HATCHES[i], edgecolor="white", label=NAMES[way])
            bound = [100 * (row.gain("bound") - 1) for row in mine]
            axes.hlines(bound, [n - 0.4 for n in range(len(mine))], [n + 0.4 for n in range(len(mine))],
                        color="#333333", label="no plan gains more")  # fmt: skip
            axes.axhline(0.0, color=GREY, linewidth=0.8)
            axes.set_xticks(range(len(mine)), [row.module for row in mine])
            axes.set_ylabel("Gain over serial (%)")
            axes.set_title(f"{gpu}, batch {batch}")
        legend_below(figure, axes, 3)
        save_figure(figure, path)
