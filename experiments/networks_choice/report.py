"""The tables, the picture and the text of the study; every number in them is from its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.compare import UNMEASURED, Compared, compared
from experiments.markdown import table
from gpusim.results.style import COLOURS, GREY, HATCHES, PAGE, Style, legend_below, new_figure, save_figure, styled

PLAN = "the plan"
SERIAL, STREAMS, SPLIT = "serial, fastest", "streams, fastest", "best SM split, fastest"
MIXES = ("even, fastest", "warped-slicer, fastest")
WAYS = {"streams": (STREAMS,), "SM split": (SPLIT, "inter-sm, fastest"), "mix on an SM": MIXES, PLAN: (PLAN,)}


@dataclass(frozen=True)
class Row:
    """A network under one way to run it.

    Attributes:
        network: name of the trace.
        way: a baseline of `gpusim select`, or `report.PLAN`: the best that was found.
        makespan_us: of its replay.
        memory_mib: workspaces that may be live at once.
        policy: how streams share the GPU.
        streams: how many.
        operations, convolutions: of the network.
        alternatives: algorithms beside the recorded ones, of all convolutions.
        bound_us: no plan is faster.
        replays: of the search.
        error: of the model where its like was measured, percent; 0: never.
        why: there is none.
    """

    network: str
    way: str
    makespan_us: float
    memory_mib: float
    policy: str
    streams: int
    operations: int
    convolutions: int
    alternatives: int
    bound_us: float
    replays: int
    error: float
    why: str


def of_way(rows: Sequence[Row], network: str, way: str) -> Row | None:
    """The best of a way for a network."""
    mine = [row for row in rows if row.network == network and row.way in WAYS.get(way, (way,))]
    return min(mine, key=lambda row: row.makespan_us, default=None)


def gain(rows: Sequence[Row], network: str, way: str, over: str = SERIAL) -> float | None:
    """How many times as fast as another; None where there is none."""
    one, other = of_way(rows, network, way), of_way(rows, network, over)
    return other.makespan_us / one.makespan_us if one and other else None


def networks(rows: Sequence[Row]) -> list[str]:
    """In their order."""
    return list(dict.fromkeys(row.network for row in rows))


def verdict(rows: Sequence[Row], network: str, way: str, over: str) -> str:
    """``gain``, ``loss`` or ``tie`` against another way; with a ``?`` where the like was never measured."""
    one, other, found = of_way(rows, network, way), of_way(rows, network, over), gain(rows, network, way, over)
    if one is None or other is None or found is None:
        return ""
    known = one.error > 0.0 and other.error > 0.0
    return Compared(found, found, found, 1).verdict(max(one.error, other.error) / 100.0 if known else None)


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    return {
        "networks": network_table(rows),
        "choices": choice_table(rows),
        "verdicts": verdict_table(rows),
        "unmeasured": 100 * UNMEASURED,
        "streams_over_serial": mean_gain(rows, "streams", SERIAL),
        "plan_over_serial": mean_gain(rows, PLAN, SERIAL),
        "plan_over_streams": mean_gain(rows, PLAN, STREAMS),
    }


def network_table(rows: Sequence[Row]) -> str:
    """A line a network."""
    titles = ["network", "serial µs", *WAYS, "bound", "the plan shares by", "model error"]
    cells = []
    for name in networks(rows):
        plan, serial = of_way(rows, name, PLAN), of_way(rows, name, SERIAL)
        assert plan is not None and serial is not None
        cells.append(
            [
                f"`{name}`",
                f"{serial.makespan_us:,.0f}",
                *(_gain(gain(rows, name, way)) for way in WAYS),
                _gain(serial.makespan_us / plan.bound_us),
                f"{plan.streams} streams, `{plan.policy}`",
                f"±{plan.error:.1f} %" if plan.error else plan.why,
            ]
        )
    return table(titles, cells)


def _gain(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}x"


def choice_table(rows: Sequence[Row]) -> str:
    """What there was to choose."""
    cells = []
    for name in networks(rows):
        row = next(row for row in rows if row.network == name)
        words = str(row.alternatives) if row.alternatives else "none: the recording has the fastest algorithm only"
        cells.append([f"`{name}`", str(row.operations), str(row.convolutions), words, str(row.replays)])
    return table(["network", "operations", "convolutions", "other algorithms", "replays"], cells)


def verdict_table(rows: Sequence[Row]) -> str:
    """Streams against serial, and the plan against streams."""
    cells = [
        [
            f"`{name}`",
            *(
                f"{_percent(gain(rows, name, way, over))} {verdict(rows, name, way, over)}"
                for way, over in (("streams", SERIAL), (PLAN, SERIAL), (PLAN, STREAMS))
            ),
        ]
        for name in networks(rows)
    ]
    return table(["network", "streams over serial", "the plan over serial", "the plan over streams"], cells)


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * (value - 1):+.1f} %:"


def mean_gain(rows: Sequence[Row], way: str, over: str) -> Compared:
    """How many times as fast as another a way is, over all networks."""
    ratios = {(name,): found for name in networks(rows) if (found := gain(rows, name, way, over)) is not None}
    return compared(ratios)


def draw(rows: Sequence[Row], path: Path) -> None:
    """Gain over serial of each way."""
    names = networks(rows)
    with styled(Style(PAGE)), new_figure(3.4) as figure:
        axes = figure.add_subplot()
        height = 0.8 / len(WAYS)
        for i, way in enumerate(WAYS):
            place = [at + (i - (len(WAYS) - 1) / 2) * height for at in range(len(names))]
            gains = [gain(rows, name, way) for name in names]
            shown = [100 * (one - 1) if one else 0.0 for one in gains]
            axes.barh(place, shown, height, color=COLOURS[i], hatch=HATCHES[i], edgecolor="white", label=way)
        bound = [next(row.bound_us for row in rows if row.network == name) for name in names]
        serial = [of_way(rows, name, SERIAL) for name in names]
        most = [100 * (one.makespan_us / us - 1) if one else 0.0 for one, us in zip(serial, bound, strict=True)]
        axes.vlines(most, [n - 0.4 for n in range(len(names))], [n + 0.4 for n in range(len(names))],
                    color="#333333", label="no plan gains more")  # fmt: skip
        axes.axvline(0.0, color=GREY, linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel("Gain over one stream (%)")
        legend_below(figure, axes, 3)
        save_figure(figure, path)
