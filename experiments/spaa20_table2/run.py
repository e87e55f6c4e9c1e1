"""SPAA'20, Table 2, beside an H200: `python experiments/spaa20_table2/run.py [--out DIR]`.

Workspace against time of every algorithm of one convolution: the paper's on a Tesla K40, ours as recorded on an H200.
It writes README.md, result.csv, algorithms.csv and table2.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.markdown import bullet, table
from experiments.rows import lines
from experiments.spaa20_table2 import claims
from experiments.study import RECORDED, Run, Study
from gpusim.results.style import COLOURS, GREY, PAGE, Style, legend_below, new_figure, save_figure, styled

PAPER = "K40"
OURS = {"H200, batch 128": (RECORDED, "googlenet"), "H200, batch 16": (RECORDED / "small", "googlenet16")}
LAYER = "4a.5x5"
FILTER, IMAGE = 5, 14
NOTHING = 1e-4  # MB: where the picture has no workspace


@dataclass(frozen=True)
class Row:
    """An algorithm of the convolution.

    Attributes:
        where: the paper's K40, or our recording.
        printed: what the table calls it; for ours cuDNN's name and the arithmetic.
        algorithm: what it is.
        workspace_mb: 10^6 bytes.
        ms: of a call.
    """

    where: str
    printed: str
    algorithm: str
    workspace_mb: float
    ms: float


TABLE_2 = (  # [V]; the second name is worked out, as the page says
    Row(PAPER, "GEMM", "IMPLICIT_GEMM", 0.0, 58.0),
    Row(PAPER, "IMPLICIT GEMM", "IMPLICIT_PRECOMP_GEMM", 0.048, 59.0),
    Row(PAPER, "PRECOMP GEMM", "GEMM", 4800.0, 126.0),
    Row(PAPER, "WINOGRAD NONFUSED", "WINOGRAD_NONFUSED", 691.0, 46.0),
    Row(PAPER, "FFT", "FFT", 2200.0, 36.0),
    Row(PAPER, "FFT TILING", "FFT_TILING", 1100.0, 48.0),
)


def recorded() -> list[Row]:
    """Every algorithm that was recorded for our convolution, at both batches; mean of two runs of ten calls."""
    rows = []
    for where, (folder, network) in OURS.items():
        found = {
            line["op"]: line
            for line in lines(folder / "convolutions.csv")
            if line["op"].startswith(f"{network}/{LAYER}/fwd/") and line["supported"] == "True"
        }
        for op, line in found.items():
            algorithm, math = op.split("/")[3:]
            ms = (float(line["ms_stream_run1"]) + float(line["ms_stream_run2"])) / 2
            rows.append(Row(where, f"{algorithm}/{math}", algorithm, float(line["workspace_bytes"]) / 1e6, ms))
    return rows


def not_beaten(rows: Sequence[Row]) -> list[Row]:
    """Those than which no other is both faster and smaller, by workspace."""
    best: list[Row] = []
    for row in sorted(rows, key=lambda row: (row.workspace_mb, row.ms)):
        if not best or row.ms < best[-1].ms:
            best.append(row)
    return best


def at(rows: Sequence[Row], where: str) -> list[Row]:
    """Rows of one place."""
    return [row for row in rows if row.where == where]


def channels() -> float:
    """Input channels at which an index of 4 bytes for each element of a filter takes the 48 KB of the table."""
    return TABLE_2[1].workspace_mb * 1e6 / (4 * FILTER**2)


def images() -> float:
    """Images of 14 x 14 whose unrolled windows, as many channels, take the 4.8 GB of the table."""
    return TABLE_2[2].workspace_mb * 1e6 / (4 * FILTER**2 * channels() * IMAGE**2)


def page(rows: Sequence[Row], algorithms: Sequence[claims.Algorithm]) -> dict[str, object]:
    """What the page says."""
    large, small = (_table(at(rows, where), ["algorithm"]) for where in OURS)
    return {
        "paper": _table(at(rows, PAPER), ["printed", "is"]),
        "channels": channels(),
        "images": images(),
        "b128": large,
        "b16": small,
        "findings": _findings(rows),
        **claims.page(algorithms),
    }


def _table(rows: Sequence[Row], first: Sequence[str]) -> str:
    fastest, kept = min(row.ms for row in rows), not_beaten(rows)
    cells = [
        [
            *(row.printed, row.algorithm)[: len(first)],
            _mb(row),
            f"{row.ms:,.0f}" if row.ms >= 10 else f"{row.ms:.4f}",
            f"{row.ms / fastest:.2f}",
            "no other is faster with less" if row in kept else "",
        ]
        for row in sorted(rows, key=lambda row: row.workspace_mb)
    ]
    return table([*first, "workspace", "ms", "over the fastest", ""], cells)


def _mb(row: Row) -> str:
    small = row.workspace_mb < 0.1
    return f"{1000 * row.workspace_mb:,.0f} KB" if small and row.workspace_mb else f"{row.workspace_mb:,.0f} MB"


def _findings(rows: Sequence[Row]) -> str:
    found = []
    for where in (PAPER, *OURS):
        mine = at(rows, where)
        small = min(mine, key=lambda row: (row.workspace_mb, row.ms))
        fast = min(mine, key=lambda row: row.ms)
        chain = " → ".join(f"{row.algorithm} ({_mb(row)})" for row in not_beaten(mine))
        found.append(
            f"{where}: the fastest is {fast.printed} with {_mb(fast)}; without workspace one waits "
            f"{small.ms / fast.ms:.2f} times as long. Worth having, by workspace: {chain}."
        )
    for where in (PAPER, *OURS):
        of = {row.algorithm: row for row in at(rows, where) if not row.printed.endswith("TF32")}
        if "FFT" in of and "WINOGRAD_NONFUSED" in of:
            fft, winograd = of["FFT"], of["WINOGRAD_NONFUSED"]
            words = "less" if fft.ms < winograd.ms else "more"
            found.append(
                f"{where}: FFT takes {100 * abs(1 - fft.ms / winograd.ms):.0f} % {words} time than WINOGRAD_NONFUSED, "
                f"and {fft.workspace_mb - winograd.workspace_mb:,.0f} MB more."
            )
        else:
            found.append(f"{where}: FFT was not recorded, so it cannot be compared with WINOGRAD_NONFUSED.")
    found.append(
        "DIRECT and WINOGRAD are not supported for this layer, in the paper's cuDNN and in ours; GEMM (unrolling) was "
        "not recorded for it."
    )
    return "\n".join(map(bullet, found))


def draw(rows: Sequence[Row], _: Sequence[claims.Algorithm], path: Path) -> None:
    """Time against workspace, a panel a place; the line joins those than which none is faster with less."""
    names = list(dict.fromkeys(_label(row) for row in rows))
    look = dict(zip(names, zip([*COLOURS, "#777777", "#111111"], "os^Dv<>Pp", strict=False), strict=False))
    with styled(Style(PAGE)), new_figure(2.7) as figure:
        panels = figure.subplots(1, 3)
        for where, axes in zip((PAPER, *OURS), panels, strict=True):
            mine = at(rows, where)
            kept = not_beaten(mine)
            place = [max(row.workspace_mb, NOTHING) for row in kept]
            axes.step(place, [row.ms for row in kept], where="post", color=GREY, linewidth=0.8)
            for row in mine:
                colour, marker = look[_label(row)]
                x = max(row.workspace_mb, NOTHING)
                axes.plot(x, row.ms, marker, color=colour, markersize=5, label=_label(row))
            axes.set_xscale("log")
            axes.set_xlim(NOTHING / 2, 2e4)
            axes.set_xticks([NOTHING, 1.0, 1000.0], ["none", "1 MB", "1 GB"])
            axes.minorticks_off()
            axes.set_ylim(0.0, 1.15 * max(row.ms for row in mine))
            axes.set_xlabel("Workspace")
            axes.set_title(where)
            for row in rows if axes is panels[0] else ():  # one legend for all panels
                axes.plot([], [], look[_label(row)][1], color=look[_label(row)][0], markersize=5, label=_label(row))
        panels[0].plot([], [], color=GREY, label="Pareto front")
        panels[0].set_ylabel("Time (ms)")
        legend_below(figure, panels[0], 4)
        save_figure(figure, path)


def _label(row: Row) -> str:
    return f"{row.algorithm} TF32" if row.printed.endswith("TF32") else row.algorithm


def rows(run: Run) -> dict[str, list[Any]]:
    """The paper's and ours, and every recorded algorithm."""
    return {"result.csv": [*TABLE_2, *recorded()], "algorithms.csv": claims.recorded()}


TABLES = {"result.csv": Row, "algorithms.csv": claims.Algorithm}
STUDY = Study(__file__, __doc__, TABLES, rows, page, {"table2.png": draw})

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
