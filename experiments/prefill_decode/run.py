"""How many SMs does decode need beside prefill, against its load: a transformer's two phases on one H100.

`python experiments/prefill_decode/run.py [--out DIR] [--jobs N]`

Prefill runs all the time, one pass after the other. Requests for a decode step arrive at random. Each split of the SMs
is replayed at each load, and so are plain streams and streams in which decode has priority. It writes README.md,
result.csv and decode_sms.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, fsum, inf
from pathlib import Path

from matplotlib.ticker import LogLocator, NullLocator

import gpusim
from experiments.markdown import table
from experiments.study import Run, Study
from gpusim.results.metrics import WARM_UP, latencies_us, percentile
from gpusim.results.style import COLOURS, MARKERS, PAGE, Style, legend_below, new_figure, save_figure, styled
from gpusim.session import Session
from gpusim.trace.edit import merge, with_settings_of
from gpusim.trace.format import Trace
from gpusim.trace.operations import LoopArrivals, PoissonArrivals

PROGRAMS = Path(__file__).resolve().parent.parent / "advise" / "programs"
GPU = "h100-sxm"
PREFILL, DECODE = "h100_prefill2", "h100_decode32"
LOADS = (0.2, 0.35, 0.5)  # share of the time in which decode alone would be busy
DECODE_SMS = (20, 36, 52, 68, 84, 100, 116)  # the driver makes groups of 8; decode has the rest
REQUESTS = 100  # of decode
SEEDS = (1, 2, 3)
TARGETS = (3.0, 5.0)  # 95th percentile of decode over a step isolated


@dataclass(frozen=True)
class Row:
    """One way to share the GPU at one load, mean over seeds.

    Attributes:
        load: of decode.
        way: streams, decode first, or an SM split.
        decode_sms: SMs of decode; 132 where it may use all.
        p50_us, p95_us, p99_us: latency of a decode step, without the warm-up.
        prefill_per_s: prefill passes a second meanwhile.
    """

    load: float
    way: str
    decode_sms: int
    p50_us: float
    p95_us: float
    p99_us: float
    prefill_per_s: float


@dataclass(frozen=True)
class Task:
    """What one replay for each seed answers."""

    load: float
    way: str
    decode_sms: int


# ---- replaying


@cache
def _programs() -> tuple[Session, Trace, dict[str, float]]:
    session = Session(GPU)
    trace = merge([gpusim.load_trace(PROGRAMS / f"{name}.json.gz") for name in (PREFILL, DECODE)], NAMES, "both")
    alone = {run.program: run.solo_us for run in session.replay(trace, keep=()).program_runs}
    return session, trace, alone


NAMES = ("prefill", "decode")


def isolated_us(name: str) -> float:
    """A pass by itself on the whole GPU."""
    return _programs()[2][name]


def tasks() -> list[Task]:
    """Every way at every load."""
    sms = gpusim.load_gpu(GPU).sm_count
    ways = [("streams", sms), ("decode first", sms), *((f"{sms - n}+{n} SMs", n) for n in DECODE_SMS)]
    return [Task(load, way, count) for load in LOADS for way, count in ways]


def answer(task: Task) -> Row:
    """The mean over the seeds."""
    found = [_replayed(task, seed) for seed in SEEDS]
    return Row(task.load, task.way, task.decode_sms, *(fsum(of) / len(of) for of in zip(*found, strict=True)))


def _replayed(task: Task, seed: int) -> tuple[float, float, float, float]:
    """Percentiles of decode, us, and prefill passes a second while requests arrive."""
    session, trace, alone = _programs()
    rate = task.load / alone["decode"] * 1e6
    passes = ceil(1.5 * REQUESTS / rate * 1e6 / alone["prefill"])
    settings = {
        "prefill": {"arrivals": LoopArrivals(count=passes), "priority": 0},
        "decode": {
            "arrivals": PoissonArrivals(rate_per_s=rate, count=REQUESTS, seed=seed),
            "priority": int(task.way == "decode first"),
        },
    }
    policy = "leftover"
    if task.way.endswith("SMs"):
        sms = session.gpu.sm_count
        policy = f"green-context:by=program,sms={sms - task.decode_sms}+{task.decode_sms}"
    result = session.replay(with_settings_of(trace, settings, "programs"), policy, keep=())
    streams = {run.program: run.streams for run in result.program_runs}
    until_us = max(run.release_us for run in result.request_runs if run.stream in streams["decode"])
    ended = sum(run.end_us <= until_us for run in result.request_runs if run.stream in streams["prefill"])
    latencies = latencies_us(result, WARM_UP)["decode"]
    p50, p95, p99 = (percentile(latencies, percent) for percent in (50, 95, 99))
    return p50, p95, p99, ended / until_us * 1e6


def rows(run: Run) -> dict[str, list[Row]]:
    """Every way at every load."""
    files = [PROGRAMS / f"{name}.json.gz" for name in (PREFILL, DECODE)]
    found = run.answers("result", tasks(), _answered, files, [GPU])
    return {"result.csv": [Row(*found[task]) for task in tasks()]}


def _answered(task: Task) -> list[object]:
    return list(vars(answer(task)).values())


# ---- the page


def chosen(rows: Iterable[Row], load: float, target: float) -> Row | None:
    """Of the ways that hold a target the one with most prefill; None: none holds it."""
    held = [row for row in rows if row.load == load and row.p95_us <= target * isolated_us("decode")]
    return max(held, key=lambda row: (row.prefill_per_s, -row.decode_sms), default=None)


def fewest(rows: Iterable[Row], load: float, target: float) -> Row | None:
    """The split with fewest SMs for decode that holds a target; None: none holds it."""
    held = [
        row
        for row in rows
        if row.load == load and row.way.endswith("SMs") and row.p95_us <= target * isolated_us("decode")
    ]
    return min(held, key=lambda row: row.decode_sms, default=None)


def _cells(row: Row | None) -> tuple[str, str]:
    return ("none holds it", "-") if row is None else (row.way, f"{row.prefill_per_s:,.0f}")


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    titles = (
        "load of decode",
        "target",
        "fewest SMs for decode",
        "prefill per second",
        "most prefill",
        "prefill per second",
    )
    cells = []
    for load in LOADS:
        for target in TARGETS:
            few, best = fewest(rows, load, target), chosen(rows, load, target)
            cells.append((f"{load:.0%}", f"x{target:g}", *_cells(few), *_cells(best)))
    every = [
        (f"{row.load:.0%}", row.way, f"{row.p50_us:,.0f}", f"{row.p95_us:,.0f}", f"{row.p99_us:,.0f}",
         f"{row.prefill_per_s:,.0f}")
        for row in rows
    ]  # fmt: skip
    few = [(load, fewest(rows, load, TARGETS[-1])) for load in LOADS]
    said = [f"{row.decode_sms} at {load:.0%}" for load, row in few if row is not None]
    return {
        "growth": ", ".join(said) or "none",
        "loosest": f"{TARGETS[-1]:g}",
        "decode_us": isolated_us("decode"),
        "prefill_us": isolated_us("prefill"),
        "alone_per_s": 1e6 / isolated_us("prefill"),
        "requests": REQUESTS,
        "seeds": len(SEEDS),
        "warm_up": 100.0 * WARM_UP,
        "choices": table(titles, cells),
        "every": table(("load", "way", "p50 µs", "p95 µs", "p99 µs", "prefill per second"), every),
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """SMs for decode that hold each target, and the 95th percentile of each way, against load."""
    with styled(Style(PAGE)), new_figure(3.0) as figure:
        left, right = figure.subplots(1, 2)
        for colour, target in zip(COLOURS, TARGETS, strict=False):
            found = [(load, fewest(rows, load, target)) for load in LOADS]
            known = [(load, row.decode_sms) for load, row in found if row is not None]
            left.plot(
                [100.0 * a for a, _ in known], [b for _, b in known], "o-", color=colour,
                label=f"{target:g} times an isolated step",
            )  # fmt: skip
        left.set_xlabel("Load of decode (%)")
        left.set_ylabel("Fewest SMs for decode\nto hold the target")
        left.set_ylim(0, 190)
        left.set_yticks(range(0, 133, 33))
        left.legend(loc="upper left", title="95th percentile at most", alignment="left")
        for colour, marker, way in zip(COLOURS, MARKERS, dict.fromkeys(_shown(rows)), strict=False):
            mine = [row for row in rows if row.way == way]
            load, p95 = [100.0 * row.load for row in mine], [row.p95_us / 1e3 for row in mine]
            right.plot(load, p95, f"{marker}-", color=colour, label=way)
        right.set_yscale("log")
        right.yaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 3.0, 5.0)))
        right.yaxis.set_major_formatter("{x:g}")
        right.yaxis.set_minor_locator(NullLocator())
        right.set_xlabel("Load of decode (%)")
        right.set_ylabel("95th percentile of decode (ms)")
        legend_below(figure, right, 3)
        save_figure(figure, path)


def _shown(rows: Iterable[Row]) -> list[str]:
    """Ways in the picture: no split, and every second one."""
    return [row.way for row in rows if row.decode_sms in (132, 36, 68, 100) and row.p95_us < inf]


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, page, {"decode_sms.png": draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
