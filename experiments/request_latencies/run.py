"""How well are latencies of requests predicted: they arrive at random beside a program that restarts, on an H200.

`python experiments/request_latencies/run.py [--out DIR] [--jobs N]`

requests.csv.gz has when each request arrived and how long it took, passes.csv the passes of the other program
meanwhile, requests_again.csv.gz another run. This replays the traces of the programs alone with the same arrivals, and
compares. It writes README.md, result.csv and latencies.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import ceil
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.advise.run import PROGRAMS, session_of, setting_named
from experiments.markdown import error_cells, table
from experiments.rows import lines
from experiments.scatter import predicted_over_measured
from experiments.study import Run, Study
from gpusim.common.tables import grouped
from gpusim.results.metrics import WARM_UP, latencies_us, percentile
from gpusim.trace.edit import merge, with_settings_of
from gpusim.trace.operations import LoopArrivals, TimesArrivals

HERE = Path(__file__).resolve().parent
REQUESTS, PASSES = HERE / "requests.csv.gz", HERE / "passes.csv"
AGAIN = HERE / "requests_again.csv.gz"  # another run of the same cases
GPU = "h200"
ALONE = "alone"
BUSY = 0.9  # of the time between requests that one takes itself: from there on a queue grows while they come


@dataclass(frozen=True)
class Case:
    """Requests for program b of a pair beside passes of a.

    Attributes:
        a, b: names of the programs.
        load: share of the time in which b alone would be busy.
        way: streams, b first, an SM split (of a, then of b), or b alone.
    """

    a: str
    b: str
    load: float
    way: str


@dataclass(frozen=True)
class Row:
    """A case, predicted and measured.

    Attributes:
        pair: the names of both programs.
        load, way: as of `Case`.
        busy: what a request takes without a queue over the mean time between requests: the measured median at the
            lowest load in the same way.
        predicted_p50_us, measured_p50_us: median latency, without the warm-up.
        predicted_p95_us, measured_p95_us: 95th percentile.
        predicted_per_s, measured_per_s: passes of a while requests arrive; 0 alone.
    """

    pair: str
    load: float
    way: str
    busy: float
    predicted_p50_us: float
    measured_p50_us: float
    predicted_p95_us: float
    measured_p95_us: float
    predicted_per_s: float
    measured_per_s: float

    @property
    def p50_error_percent(self) -> float:
        """Of the median latency."""
        return 100.0 * (self.predicted_p50_us / self.measured_p50_us - 1.0)

    @property
    def p95_error_percent(self) -> float:
        """Of the 95th percentile."""
        return 100.0 * (self.predicted_p95_us / self.measured_p95_us - 1.0)

    @property
    def passes_error_percent(self) -> float:
        """Of the passes of the other program."""
        return 100.0 * (self.predicted_per_s / self.measured_per_s - 1.0)

    @property
    def kind(self) -> str:
        """How they share, without the numbers."""
        return "SM split" if self.way.endswith("SMs") else self.way


# ---- predicting


def _case(line: Mapping[str, str]) -> Case:
    return Case(line["a"], line["b"], float(line["load"]), line["way"])


@cache
def measured(path: Path = REQUESTS) -> dict[Case, list[tuple[float, float]]]:
    """When each request arrived and how long it took, us."""
    found = grouped(lines(path), _case)
    return {case: [(float(line["arrival_us"]), float(line["latency_us"])) for line in of] for case, of in found.items()}


@cache
def passes_per_s() -> dict[Case, float]:
    """Passes of the other program while requests arrived."""
    return {_case(line): int(line["passes"]) / float(line["us"]) * 1e6 for line in lines(PASSES)}


def answer(case: Case) -> Row:
    """A case, replayed."""
    arrivals = [at for at, _ in measured()[case]]
    took = _latencies_us(case)
    p50, p95, per_s = _replayed(case, arrivals)
    seldom = min((one for one in measured() if replace(one, load=case.load) == case), key=lambda one: one.load)
    busy = percentile(_latencies_us(seldom), 50) * (len(arrivals) - 1) / arrivals[-1]
    return Row(
        f"{case.a} + {case.b}", case.load, case.way, busy,
        p50, percentile(took, 50), p95, percentile(took, 95), per_s, passes_per_s()[case],
    )  # fmt: skip


def _latencies_us(case: Case, path: Path = REQUESTS) -> list[float]:
    """Measured latencies without the warm-up, ascending."""
    took = [us for _, us in measured(path)[case]]
    return sorted(took[int(WARM_UP * len(took)) :])


def _replayed(case: Case, arrivals: Sequence[float]) -> tuple[float, float, float]:
    """Percentiles of the latency of b, us, and passes of a each second while requests arrive."""
    session = session_of(GPU)
    traces = {name: gpusim.load_trace(PROGRAMS / f"{GPU}_{of}.json.gz") for name, of in (("a", case.a), ("b", case.b))}
    if case.way == ALONE:
        del traces["a"]
    settings: dict[str, dict[str, object]] = {
        "b": {"arrivals": TimesArrivals(times_us=tuple(arrivals)), "priority": int(case.way == "b first")}
    }
    if "a" in traces:
        pass_us = session.replay(traces["a"], "leftover", keep=()).makespan_us
        settings["a"] = {"arrivals": LoopArrivals(count=ceil(1.5 * arrivals[-1] / pass_us))}
    split = case.way.endswith(" SMs")
    policy = setting_named(GPU, "SM split", case.way).policy if split else "leftover"
    trace = with_settings_of(merge(list(traces.values()), list(traces), "both"), settings, "programs")
    result = session.replay(trace, policy, keep=())
    latencies = latencies_us(result, WARM_UP)["b"]
    streams = {run.program: run.streams for run in result.program_runs}.get("a", ())
    ended = sum(run.end_us <= arrivals[-1] for run in result.request_runs if run.stream in streams)
    return percentile(latencies, 50), percentile(latencies, 95), ended / arrivals[-1] * 1e6


def rows(run: Run) -> dict[str, list[Row]]:
    """Every case."""
    cases = list(measured())
    files = [REQUESTS, PASSES, *sorted(PROGRAMS.glob(f"{GPU}_*.json.gz"))]
    found = run.answers("result", cases, _answered, files, [GPU])
    return {"result.csv": [Row(*found[case]) for case in cases]}


def _answered(case: Case) -> list[object]:
    return list(vars(answer(case)).values())


# ---- the page


def error_table(rows: Iterable[Row]) -> str:
    """Errors by how they share, where no queue grows."""
    cells = [
        (
            kind,
            str(len(mine)),
            *error_cells([row.p50_error_percent for row in mine])[:2],
            *error_cells([row.p95_error_percent for row in mine])[:2],
            *error_cells([row.passes_error_percent for row in mine if kind != ALONE])[:2],
        )
        for kind, mine in grouped(rows, lambda row: row.kind).items()
    ]
    titles = ("share by", "cases", "median: mean error", "bias", "95th percentile: mean error", "bias",
              "passes of the other: mean error", "bias")  # fmt: skip
    return table(titles, cells)


def case_table(rows: Iterable[Row]) -> str:
    """Every case."""
    cells = [
        (row.pair, f"{row.load:.0%}", row.way, f"{row.measured_p50_us:,.0f}", f"{row.p50_error_percent:+.0f} %",
         f"{row.measured_p95_us:,.0f}", f"{row.p95_error_percent:+.0f} %")
        for row in rows
    ]  # fmt: skip
    return table(("programs", "load", "share by", "median µs", "error", "95th percentile µs", "error"), cells)


def _between_runs(rows: Iterable[Row], percent: float) -> float:
    """Mean size of the difference of a percentile between the two runs, percent."""
    cases = [case for row, case in zip(rows, measured(), strict=True) if row.busy < BUSY and row.way != ALONE]
    first, again = ([percentile(_latencies_us(case, path), percent) for case in cases] for path in (REQUESTS, AGAIN))
    return 100.0 * fmean(abs(b / a - 1.0) for a, b in zip(first, again, strict=True))


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    steady = [row for row in rows if row.busy < BUSY]
    shared = [row for row in steady if row.way != ALONE]
    growing = [row for row in rows if row.busy >= BUSY]
    alone = [row.measured_p50_us - row.predicted_p50_us for row in rows if row.way == ALONE]
    splits = grouped((row for row in steady if row.kind == "SM split"), lambda row: row.load)
    return {
        "pairs": len({row.pair for row in rows}),
        "requests": len(next(iter(measured().values()))),
        "cases": len(shared),
        "p50": fmean(abs(row.p50_error_percent) for row in shared),
        "p50_bias": fmean(row.p50_error_percent for row in shared),
        "p95": fmean(abs(row.p95_error_percent) for row in shared),
        "p95_bias": fmean(row.p95_error_percent for row in shared),
        "passes": fmean(abs(row.passes_error_percent) for row in shared),
        "noise_p50": _between_runs(rows, 50),
        "noise_p95": _between_runs(rows, 95),
        "busy": 100.0 * BUSY,
        "growing": len(growing),
        "growing_p95": fmean(abs(row.p95_error_percent) for row in growing),
        "least_load": f"{min(splits):.0%}",
        "split_least": fmean(row.p95_error_percent for row in splits[min(splits)]),
        "most_load": f"{max(splits):.0%}",
        "split_most": fmean(row.p95_error_percent for row in splits[max(splits)]),
        "launch_least": min(alone),
        "launch_most": max(alone),
        "warm_up": 100.0 * WARM_UP,
        "errors": error_table(steady),
        "all": case_table(rows),
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Predicted 95th percentile against the measured one."""
    points = {
        kind: [(row.measured_p95_us / 1e3, row.predicted_p95_us / 1e3) for row in mine]
        for kind, mine in grouped(rows, lambda row: row.kind).items()
    }
    titles = "Measured 95th percentile (ms)", "Predicted 95th percentile (ms)"
    predicted_over_measured(points, titles, (1, 3, 10, 30, 100), path)


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, page, {"latencies.png": draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
