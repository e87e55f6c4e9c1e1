"""A picture of a sweep: what a change of the GPU makes of the speedups, or else who gains and who pays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.hardware.gpu import load_gpu
from gpusim.hardware.what_if import value_of
from gpusim.results.plots import COLOURS, GRID, in_words, new_figure, save_figure
from gpusim.sweep.run import Swept
from gpusim.sweep.summary import SweptRow, against, grouped, merits, rows, undominated, values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANEL_INCHES = 4.6
HEIGHT_INCHES = 4.4
STYLES = ("-", "--", ":", "-.")  # a GPU each
MARKERS = "osD^vP*X<>"  # a policy each
DOT_AREA, RING_AREA = 70.0, 110.0  # of a policy's mean, and what each further one at the same place adds
QUANTITIES = {  # of `gpusim.hardware.what_if.QUANTITIES`, in words with their units
    "sm_count": "SMs",
    "sms_per_tpc": "SMs of a TPC",
    "boost_clock_mhz": "boost clock, MHz",
    "fp32_lanes_per_sm": "FP32 lanes of an SM",
    "dram_bandwidth_gb_per_s": "DRAM bandwidth, GB/s",
    "max_warps_per_sm": "warps that an SM holds",
    "max_blocks_per_sm": "blocks that an SM holds",
    "registers_per_sm": "registers of an SM",
    "shared_memory_per_sm_bytes": "shared memory of an SM, bytes",
    "shared_memory_per_block_optin_bytes": "shared memory that a block may have, bytes",
}


def draw(swept: Swept, path: str | Path) -> None:
    """Draws a sweep, in the format that the file's ending says.

    An experiment that varies GPUs has a panel for each quantity: speedup over serial (geometric mean over workloads
    and seeds) against that quantity over what the GPU has, the others as they are, a line a policy and GPU. Any other
    has a panel for each GPU: STP against fairness where streams restart, else speedup against the largest slowdown of a
    stream; a dot a point, a large one for a policy's mean (a ring about another where both are), and a line along the
    means that no other policy dominates.

    Raises:
        InputError: the file cannot be written.
    """
    several, varied = rows(swept), swept.experiment.varied
    policies = list(dict.fromkeys(str(row.labels["policy"]) for row in several))
    panels = list(varied) or list(dict.fromkeys(str(row.labels["gpu"]) for row in several)) or [""]
    with new_figure(PANEL_INCHES * len(panels) + 2.2, HEIGHT_INCHES) as figure:
        axes: list[Axes] = []
        for n in range(len(panels)):
            axes.append(figure.add_subplot(1, len(panels), n + 1, sharey=axes[0] if axes else None))
        for n, (panel, axis) in enumerate(zip(panels, axes, strict=True)):
            axis.grid(color=GRID, linewidth=0.6)
            axis.set_axisbelow(True)
            if varied:
                _draw_lines(axis, swept, several, panel, policies)
            else:
                here = [row for row in several if row.labels["gpu"] == panel]
                _draw_merits(axis, here, panel, policies, swept.experiment.restart)
            if n:
                axis.set_ylabel("")
        figure.subplots_adjust(left=0.75 / figure.get_figwidth(), right=1 - 2.3 / figure.get_figwidth(), wspace=0.22,
                               bottom=0.13, top=0.91)  # fmt: skip
        handles = {label: line for axis in axes for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
        figure.legend(handles.values(), handles.keys(), loc="center right", frameon=False, fontsize=8)
        save_figure(figure, path)


def _draw_lines(axis: Axes, swept: Swept, several: Sequence[SweptRow], quantity: str, policies: Sequence[str]) -> None:
    gpus = {gpu.name: gpu for gpu in swept.experiment.gpus} or {
        name: load_gpu(name) for name in dict.fromkeys(str(row.labels["gpu"]) for row in several)
    }
    others = [name for name in swept.experiment.varied if name != quantity]
    for (gpu, policy), of in grouped(several, ("gpu", "policy")).items():
        own = gpus[str(gpu)]
        found = against(of, quantity, {name: value_of(own, name) for name in others})
        if not found:
            continue
        means = {float(value) / value_of(own, quantity): speedup for value, speedup in found.items()}
        n, style = policies.index(str(policy)), STYLES[list(gpus).index(str(gpu)) % len(STYLES)]
        label = in_words(str(policy)) + (f" on {gpu}" if len(gpus) > 1 else "")
        axis.plot(sorted(means), [means[factor] for factor in sorted(means)], style, marker=MARKERS[n % len(MARKERS)],
                  markersize=4, color=COLOURS[n % len(COLOURS)], label=label)  # fmt: skip
    if not axis.lines:
        nothing = "no point has the other numbers\nas the GPU has them"
        axis.text(0.5, 0.5, nothing, transform=axis.transAxes, ha="center", fontsize=8)
    axis.axvline(1.0, color="black", linewidth=0.8, linestyle=":")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda factor, _: f"x{factor:g}")
    axis.set_title(QUANTITIES[quantity], fontsize=9)
    axis.set_xlabel("times what the GPU has")
    axis.set_ylabel("speedup over serial")


def _draw_merits(axis: Axes, several: Sequence[SweptRow], gpu: str, policies: Sequence[str], restart: bool) -> None:
    done, paid = ("stp", "fairness") if restart else ("speedup_vs_serial", "largest_slowdown")
    means: dict[str, tuple[float, float]] = {}
    places = Counter[tuple[float, float]]()  # where policies stand, as far as can be seen
    for (policy,), of in grouped(several, ("policy",)).items():
        gain, fate = means[str(policy)] = merits(of, restart)
        n = policies.index(str(policy))
        colour, marker = COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)]
        axis.scatter(values(of, paid), values(of, done), s=7, color=colour, alpha=0.35, linewidths=0)
        place = (round(gain, 3), round(abs(fate), 3))
        ring = places[place]
        axis.scatter([abs(fate)], [gain], s=DOT_AREA + ring * RING_AREA, marker=marker, zorder=3,
                     facecolors="none" if ring else colour, edgecolors=colour if ring else "black",
                     linewidths=1.6 if ring else 0.7, label=in_words(str(policy)))  # fmt: skip
        places[place] += 1
    kept = undominated(list(means.values()))
    front = sorted((abs(fate), gain) for (gain, fate), keep in zip(means.values(), kept, strict=True) if keep)
    axis.plot(*zip(*front, strict=True), color="black", linewidth=1.0, linestyle="--", zorder=2, label="Pareto front")
    axis.set_title(gpu, fontsize=9)
    axis.set_xlabel("fairness (smallest over largest progress)" if restart else "largest slowdown of a stream")
    axis.set_ylabel("STP (streams' worth of work at once)" if restart else "speedup over serial")
