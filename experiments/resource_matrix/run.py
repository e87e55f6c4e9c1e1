"""What kernels that load one resource each do to one another, measured and predicted.

`python experiments/resource_matrix/run.py [--out DIR]`

`gpusim record microbench --matrix --counters` ran kernels that load one resource each, isolated and every pair of them,
on the same SMs and on disjoint halves of the SMs, in both orders (`data/GPU/`). Each pair is replayed here from the
counters and times of its two kernels isolated. It writes README.md, result.csv.gz, by_resource.csv and heat_GPU.png
beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from experiments.markdown import table
from experiments.study import Run, Study
from gpusim.lab.record.matrix import RESOURCES
from gpusim.lab.resource_matrix import PLACEMENTS, SAME, Errors, Point, errors_of, score_matrix, totals
from gpusim.results.style import PAGE, Style, new_figure, save_figure, styled

DATA = Path(__file__).resolve().parent / "data"
GPUS = ("h200", "h100-sxm")
WORST = 20
MOST_SHOWN = 4.0  # slowdown, in the heat map
OTHER_PIPES = ("FP16", "integer multiply", "integer ALU", "special functions")  # in the heat map one label


# ---- the page --------------------------------------------------------------------------------------------------------


def page(rows: Sequence[Point], errors: Sequence[Errors]) -> dict[str, object]:
    """What the page says."""
    summary = [(one.gpu, PLACEMENTS[one.placement], str(one.kernels), *_percents(one)) for one in totals(rows)]
    worst = [
        (
            one.gpu,
            PLACEMENTS[one.placement],
            one.resource,
            one.beside,
            f"{one.measured:.2f}",
            f"{one.predicted:.2f}",
            *_percents(one),
        )
        for one in sorted(errors, key=lambda one: -one.mape_percent * one.kernels)[:WORST]
    ]
    titles = ("mean error", "bias", "95th percentile")
    return {
        "totals": table(("GPU", "kernels on", "kernels beside kernels", *titles), summary),
        "worst": WORST,
        "worst_table": table(
            ("GPU", "kernels on", "kernel loads", "other loads", "measured", "predicted", *titles), worst
        ),
    }


def _percents(one: Errors) -> tuple[str, str, str]:
    return f"{one.mape_percent:.1f} %", f"{one.bias_percent:+.1f} %", f"{one.p95_percent:.0f} %"


def draw(gpu: str, rows: Sequence[Point], _: Sequence[Errors], path: Path) -> None:
    """Slowdowns of every kernel (row) beside every other (column), measured beside predicted; mean of both orders."""
    with styled(Style(PAGE)), new_figure(6.6) as figure:
        _draw(figure, [row for row in rows if row.gpu == gpu])
        save_figure(figure, path)


def _draw(figure: Figure, rows: Sequence[Point]) -> None:
    names = sorted({row.kernel for row in rows}, key=_place)
    axes = figure.subplots(2, 2, squeeze=False, sharex=True, sharey=True)
    loads = [RESOURCES[name.split("/")[0]] for name in names]
    resources = ["other pipes" if one in OTHER_PIPES else one for one in loads]
    groups = {one: [at for at, name in enumerate(resources) if name == one] for one in dict.fromkeys(resources)}
    middles = [fmean(places) for places in groups.values()]
    for line, (placement, words) in zip(axes, PLACEMENTS.items(), strict=True):
        mine = [row for row in rows if row.placement == placement]
        for one, kind in zip(line, ("measured", "predicted"), strict=True):
            slowdowns: dict[tuple[str, str], list[float]] = {}
            for row in mine:
                slowdowns.setdefault((row.kernel, row.beside), []).append(getattr(row, kind))
            image = one.imshow(_grid(names, slowdowns), cmap="magma_r", vmin=1.0, vmax=MOST_SHOWN)
            one.set_title(f"{kind}, on {words}")
            one.set_xticks(middles, groups, rotation=90)
            one.set_yticks(middles, groups)
    figure.colorbar(image, ax=axes, shrink=0.5, label="Slowdown of the kernel at the left")


def _place(kernel: str) -> tuple[int, int]:
    name, warps = kernel.split("/")
    return list(RESOURCES).index(name), int(warps)


def _grid(names: Sequence[str], slowdowns: Mapping[tuple[str, str], Sequence[float]]) -> NDArray[np.float64]:
    return np.array([[fmean(slowdowns.get((a, b), [np.nan])) for b in names] for a in names])


def by_resource(rows: Iterable[Point]) -> list[Errors]:
    """The errors of each pair of resources, the largest first within a GPU and placement."""
    groups: dict[tuple[str, str, str, str], list[Point]] = {}
    for row in rows:
        groups.setdefault((row.gpu, row.placement, _resource(row.kernel), _resource(row.beside)), []).append(row)
    found = [errors_of(name, mine) for name, mine in groups.items()]
    gpus = list(dict.fromkeys(one.gpu for one in found))
    return sorted(found, key=lambda one: (gpus.index(one.gpu), one.placement != SAME, -one.mape_percent))


def _resource(kernel: str) -> str:
    return RESOURCES[kernel.split("/")[0]]


def rows(run: Run) -> dict[str, list[Point] | list[Errors]]:
    """Every kernel of every pair, and the errors of each pair of resources."""
    found = score_matrix([DATA / gpu for gpu in GPUS], run.jobs)
    for one in totals(found):
        mean, bias, most = _percents(one)
        where = f"{one.gpu}, {PLACEMENTS[one.placement]}"
        print(f"{where}: mean error {mean} (bias {bias}, 95th percentile {most}), {one.kernels} kernels beside kernels")
    return {"result.csv.gz": found, "by_resource.csv": by_resource(found)}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv.gz": Point, "by_resource.csv": Errors},
    rows,
    page,
    {f"heat_{gpu}.png": partial(draw, gpu) for gpu in GPUS},
    parallel=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
