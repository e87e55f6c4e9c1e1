"""Pictures of a sweep: speedup against a changed quantity of the GPU, or throughput against fairness."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from gpusim.common.tables import shortened
from gpusim.hardware.what_if import value_of
from gpusim.results.style import (
    COLOURS,
    GREY,
    LINES,
    MARKERS,
    grid,
    in_words,
    legend_below,
    new_figure,
    save_figure,
    style,
)
from gpusim.sweeps.run import Swept
from gpusim.sweeps.summary import SweptRow, grouped, mean_and_interval, policy_summaries, rows, speedups_over, values

PANEL_INCHES = 1.5  # height of a panel of lines
ROW_INCHES = 0.19  # of a policy
QUANTITIES = {  # of `gpusim.hardware.what_if.QUANTITIES`, in words
    "sm_count": "SMs",
    "sms_per_tpc": "SMs per TPC",
    "boost_clock_mhz": "boost clock",
    "fp32_lanes_per_sm": "FP32 lanes per SM",
    "dram_bandwidth_gb_per_s": "DRAM bandwidth",
    "max_warps_per_sm": "warps per SM",
    "max_blocks_per_sm": "blocks per SM",
    "registers_per_sm": "registers per SM",
    "shared_memory_per_sm_bytes": "shared memory per SM",
    "shared_memory_per_block_optin_bytes": "shared memory per block",
}


def draw(swept: Swept, path: str | Path) -> None:
    """Draw a sweep, in the format that the file's ending says.

    An experiment that changes GPUs has one panel per quantity. It shows speedup over serial (geometric mean over
    workloads and seeds) against the relative quantity, with one line per policy and GPU. Any other experiment has one
    row per policy: STP and fairness where programs restart, else speedup and the largest slowdown. Each point is a dot.
    The mean has its 95 % interval, and is filled where the policy is Pareto-optimal.
    """
    save_figure(_lines(swept) if swept.experiment.varied else _merits(swept), path)


def _lines(swept: Swept) -> Figure:
    varied = swept.experiment.varied
    columns = min(len(varied), 4 if style().wide else 2)
    down = -(-len(varied) // columns)
    with new_figure(PANEL_INCHES * down + 1.0) as figure:
        panels = figure.subplots(down, columns, sharey=True, squeeze=False).flatten()
        for quantity, axes in zip(varied, panels, strict=False):
            _draw_lines(axes, swept, quantity)
        for axes in panels[len(varied) :]:
            axes.remove()
        for axes in panels[max(0, len(varied) - columns) : len(varied)]:
            axes.set_xlabel("Times the GPU's own")
        figure.supylabel("Speedup over serial", fontsize=style().points)
        legend_below(figure, panels[0], 4 if style().wide else 2)
        return figure


def _draw_lines(axes: Axes, swept: Swept, quantity: str) -> None:
    speedups = speedups_over(swept, quantity)
    policies = list(dict.fromkeys(policy for _, policy in speedups))
    gpus = [gpu.name for gpu in swept.experiment.gpus] or list(dict.fromkeys(gpu.name for gpu, _ in speedups))
    for (gpu, policy), found in speedups.items():
        times = [value / value_of(gpu, quantity) for value in found]
        n, line = policies.index(policy), LINES[gpus.index(gpu.name) % len(LINES)]
        axes.plot(times, list(found.values()), line, marker=MARKERS[n % len(MARKERS)], markersize=3,
                  color=COLOURS[n % len(COLOURS)])  # fmt: skip
    for n, policy in enumerate(policies):
        axes.plot([], [], linestyle="none", marker=MARKERS[n % len(MARKERS)], color=COLOURS[n % len(COLOURS)],
                  label=in_words(policy))  # fmt: skip
    for line, name in zip(LINES, gpus if len(gpus) > 1 else (), strict=False):
        axes.plot([], [], line, color=GREY, label=name)
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(LogLocator(base=2, numticks=8))
    axes.xaxis.set_major_formatter(lambda factor, _: f"×{factor:g}" if factor >= 1.0 else f"×1/{1.0 / factor:g}")
    axes.set_title(QUANTITIES[quantity])
    grid(axes)


def _merits(swept: Swept) -> Figure:
    restart, several = swept.experiment.restart, rows(swept)
    gpus = list(dict.fromkeys(str(row.labels["gpu"]) for row in several)) or [""]
    most = max(1, len(swept.experiment.policies))
    with new_figure((ROW_INCHES * most + 0.55) * len(gpus) + 0.5) as figure:
        panels = figure.subplots(len(gpus), 2, sharex="col", sharey="row", squeeze=False)
        for gpu, (gain, fate) in zip(gpus, panels, strict=True):
            pareto = {one.policy: one.undominated for one in policy_summaries(swept) if one.gpu == gpu}
            here = [row for row in several if row.labels["gpu"] == gpu]
            _draw_merits(gain, here, "stp" if restart else "speedup_vs_serial", pareto)
            _draw_merits(fate, here, "fairness" if restart else "largest_slowdown", pareto)
            if len(gpus) > 1:
                gain.set_title(gpu)
        panels[-1][0].set_xlabel("STP" if restart else "Speedup over serial")
        panels[-1][1].set_xlabel("Fairness" if restart else "Largest slowdown")
        legend_below(figure, panels[0][0], 3 if style().wide else 2)
        return figure


def _two_lines(policy: str, letters: int) -> str:
    """A policy in words, its parameters on a second line."""
    name, _, parameters = in_words(policy).partition(", ")
    return "\n".join(shortened(line, letters) for line in (name, parameters) if line)


def _draw_merits(axes: Axes, several: Sequence[SweptRow], figure: str, pareto: dict[str, bool]) -> None:
    """Draw a row for each policy: its points, and their mean with its 95 % interval."""
    names = list(pareto)
    for (policy,), of in grouped(several, ("policy",)).items():
        row, found = names.index(str(policy)), values(of, figure)
        axes.plot(found, [row] * len(found), "|", color=COLOURS[3], markersize=5, label="one point")
        mean, half = mean_and_interval(found)
        axes.errorbar([mean], [row], xerr=half or 0.0, fmt="none", ecolor="black", elinewidth=0.9, capsize=1.5)
        filled = pareto[str(policy)]
        axes.plot([mean], [row], "D", color="black", markerfacecolor="black" if filled else "white", markersize=4,
                  label="mean, Pareto-optimal" if filled else "mean, dominated")  # fmt: skip
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.locator_params(axis="x", nbins=4 if style().wide else 3)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.6g}")
    letters = int(0.45 * style().letters)
    axes.set_yticks(range(len(names)), [_two_lines(name, letters) for name in names], linespacing=0.9)
    grid(axes, "x")
