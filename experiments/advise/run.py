"""Is the way to share a GPU that `gpusim advise` recommends the best: whole programs, measured.

`python experiments/advise/run.py [--out DIR] [--jobs N]`

Pairs of programs ran on an H200 and an H100 in every way that measured.csv names. This predicts each of them with
`gpusim.advise` from the traces of the programs alone (`programs/`), and compares: the makespan, and the end of each
program. It writes README.md, result.csv and makespans.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from math import fsum, nan
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes

import gpusim
from experiments.markdown import error_cells, table
from experiments.rows import from_csv, lines
from experiments.study import Run, Study
from gpusim.choose.advise import TIE, advise
from gpusim.choose.settings import Mechanism, Setting, settings
from gpusim.common.tables import grouped, number
from gpusim.results.style import COLOURS, GREY, PAGE, Style, legend_below, new_figure, save_figure, styled
from gpusim.session import Session
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "measured.csv"
PROGRAMS = HERE / "programs"
BESIDE = HERE / "recording" / "kernels_beside.csv"
GPUS = {"h200": "h200", "h100": "h100-sxm"}  # of measured.csv: its name in gpus/
# programs of the H200 that others recorded, and whose pairs they measured first, without priorities
BY_OTHERS = ("convnext_tiny", "efficientnet_b0", "generate", "mobilenet_v3_large", "prefill")
IN_TURN = "in turn"  # of which each program was measured alone, so that a_us and b_us are no ends of one run
IN_PROCESSES: tuple[Mechanism, ...] = ("MPS", "time slices")  # measured with two processes, host time included
REGRET_PERCENT, MOST_REGRET_PERCENT, ERROR_PERCENT, BIAS_PERCENT = 1.5, 4.0, 5.0, 2.0  # asked for


@dataclass(frozen=True)
class Measured:
    """Two programs that shared a GPU in one way, or each alone in its part of it.

    Attributes:
        gpu: h200 or h100.
        a, b: names of the programs.
        passes_a, passes_b: how often each ran, one pass after the other.
        mechanism: as `gpusim.choose.settings.Setting.mechanism`; isolated: each alone on its SMs; isolated process:
            each alone, its process beside an idle one.
        setting: as `Setting.setting`, programs called a and b.
        a_us, b_us: from the start of both to the end of each; alone and in turn: the isolated time of each.
        makespan_us: to the end of both.
    """

    gpu: str
    a: str
    passes_a: int
    b: str
    passes_b: int
    mechanism: str
    setting: str
    a_us: float
    b_us: float
    makespan_us: float

    @property
    def pair(self) -> Pair:
        """Which programs ran."""
        return Pair(self.gpu, self.a, self.passes_a, self.b, self.passes_b)


@dataclass(frozen=True, order=True)
class Pair:
    """Two programs on a GPU, each some passes long."""

    gpu: str
    a: str
    passes_a: int
    b: str
    passes_b: int

    @property
    def name(self) -> str:
        """In short."""
        return f"{self.passes_a} {self.a} + {self.passes_b} {self.b}"


@dataclass(frozen=True)
class Row:
    """A pair under one setting, predicted and measured.

    Attributes:
        gpu: h200 or h100.
        pair: the programs and their passes.
        mechanism, setting: how they share the GPU.
        predicted_us, measured_us: makespan.
        recommended: yes: `gpusim.advise` recommends this one of those that were measured for this pair.
        predicted_a_us, predicted_b_us, measured_a_us, measured_b_us: from the start of both programs to the end of
            each, if each runs once; NaN in turn.
    """

    gpu: str
    pair: str
    mechanism: str
    setting: str
    predicted_us: float
    measured_us: float
    recommended: str
    predicted_a_us: float
    predicted_b_us: float
    measured_a_us: float
    measured_b_us: float

    @property
    def error_percent(self) -> float:
        """Of the predicted makespan."""
        return 100.0 * (self.predicted_us / self.measured_us - 1.0)

    @property
    def end_errors_percent(self) -> tuple[float, ...]:
        """Of the predicted end of each program, first that of the program that ended first; empty in turn."""
        if self.mechanism == IN_TURN:
            return ()
        ends = [(self.measured_a_us, self.predicted_a_us), (self.measured_b_us, self.predicted_b_us)]
        return tuple(100.0 * (predicted_us / measured_us - 1.0) for measured_us, predicted_us in sorted(ends))


@dataclass(frozen=True)
class Chosen:
    """What following the advice gets.

    Attributes:
        row: the recommended setting.
        best: the setting with the least measured makespan.
        streams: the setting of plain streams.
        in_turn: one program after the other.
    """

    row: Row
    best: Row
    streams: Row
    in_turn: Row

    @property
    def regret_percent(self) -> float:
        """How much longer the recommended setting took than the best of all."""
        return 100.0 * (self.row.measured_us / self.best.measured_us - 1.0)

    @property
    def streams_regret_percent(self) -> float:
        """The same of plain streams, which need no advice."""
        return 100.0 * (self.streams.measured_us / self.best.measured_us - 1.0)


# ---- predicting


def measured() -> dict[Pair, list[Measured]]:
    """All that was measured, by pair."""
    found: dict[Pair, list[Measured]] = {}
    for one in from_csv(Measured, MEASURED):
        found.setdefault(one.pair, []).append(one)
    return found


def repeated(trace: Trace, passes: int) -> Trace:
    """A program of one stream, several times one after the other."""
    (stream,) = trace.streams
    operations = tuple(
        operation.model_copy(update={"id": f"{operation.id}.{n}"})
        for n in range(passes)
        for operation in stream.operations
    )
    return trace.model_copy(update={"streams": (stream.model_copy(update={"operations": operations}),)})


def together(pair: Pair) -> Trace:
    """Both programs, called a and b."""
    traces = [
        repeated(gpusim.load_trace(PROGRAMS / f"{pair.gpu}_{name}.json.gz"), passes)
        for name, passes in ((pair.a, pair.passes_a), (pair.b, pair.passes_b))
    ]
    return merge(traces, ["a", "b"], pair.name)


@cache
def session_of(gpu: str) -> Session:
    """The session of a GPU, by its name in measured.csv."""
    return Session(GPUS[gpu])


def setting_of(one: Measured) -> Setting | None:
    """What was set; None: each program ran alone."""
    return None if one.mechanism.startswith("isolated") else setting_named(one.gpu, one.mechanism, one.setting)


def setting_named(gpu: str, mechanism: str, setting: str) -> Setting:
    """A setting of programs a and b by its columns in measured.csv."""
    if mechanism == "SM split" or (mechanism == "MPS" and setting != "100+100 %"):
        policy = "green-context:by=program,sms=" if mechanism == "SM split" else "mps:by=program,percent="
        return Setting(mechanism, setting, policy + setting.split(" ")[0])  # type: ignore[arg-type]
    if mechanism == "MPS":
        return Setting("MPS", setting, "leftover")
    known = settings(session_of(gpu).gpu, ["a", "b"])
    return next(way for way in known if (way.mechanism, way.setting) == (mechanism, setting))


def answer(pair: Pair) -> list[Row]:
    """Every setting of a pair that was measured, predicted."""
    ways = [way for one in measured()[pair] if (way := setting_of(one)) is not None]
    known = {(one.mechanism, one.setting): one for one in measured()[pair]}
    trace, session = together(pair), session_of(pair.gpu)
    advice = advise([trace], session, jobs=1, ways=ways)
    found = []
    for one in advice.choices:
        way = one.setting
        ran = known[way.mechanism, way.setting]
        ends = (nan,) * 4 if way.mechanism == IN_TURN else (*ends_us(trace, session, way), ran.a_us, ran.b_us)
        best = "yes" if one is advice.best else ""
        values = (way.mechanism, way.setting, one.makespan_us, ran.makespan_us, best)
        found.append(Row(pair.gpu, pair.name, *values, *ends))
    return found


def ends_us(trace: Trace, session: Session, way: Setting) -> tuple[float, float]:
    """When each of two programs ends if both start at once and run once."""
    a, b = session.replay(way.of(trace), way.policy, keep=()).program_runs
    return a.end_us, b.end_us


def rows(run: Run) -> dict[str, list[Row]]:
    """Every pair under every setting."""
    pairs = list(measured())
    files = [MEASURED, *sorted(PROGRAMS.glob("*.json.gz"))]
    found = run.answers("result", pairs, _answered, files, GPUS.values())
    return {"result.csv": [Row(*one) for pair in pairs for one in found[pair]]}


def _answered(pair: Pair) -> list[list[object]]:
    return [list(vars(row).values()) for row in answer(pair)]


# ---- the page


def chosen(rows: Iterable[Row]) -> list[Chosen]:
    """For each pair what is recommended, and what was best; of settings of one process."""
    by_pair: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.mechanism not in IN_PROCESSES:
            by_pair.setdefault((row.gpu, row.pair), []).append(row)
    return [
        Chosen(
            next(row for row in found if row.recommended),
            min(found, key=lambda row: row.measured_us),
            next(row for row in found if row.mechanism == "streams"),
            next(row for row in found if row.mechanism == "in turn"),
        )
        for found in by_pair.values()
    ]


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return fsum(found) / len(found)


def error_table(rows: Sequence[Row]) -> str:
    """Errors of makespans and of the ends of single programs, by GPU and mechanism."""
    groups = sorted(grouped(rows, lambda row: (row.gpu, row.mechanism)).items())
    cells = [
        (
            GPUS[gpu],
            mechanism,
            str(len(mine)),
            *error_cells([row.error_percent for row in mine]),
            str(len(ends) or ""),
            *error_cells(ends),
        )
        for (gpu, mechanism), mine in groups
        for ends in [[error for row in mine for error in row.end_errors_percent]]
    ]
    of_each = ("mean error", "bias", "range")
    return table(("GPU", "share by", "makespans", *of_each, "ends of programs", *of_each), cells)


def choice_table(found: Iterable[Chosen]) -> str:
    """What is recommended for each pair, and what it takes."""
    titles = ("GPU", "programs", "recommended", "measured µs", "best measured", "measured µs", "regret",
              "regret of plain streams", "measured gain over in turn")  # fmt: skip
    cells = [
        (
            GPUS[one.row.gpu],
            one.row.pair,
            f"{one.row.mechanism}, {one.row.setting}",
            number(one.row.measured_us),
            f"{one.best.mechanism}, {one.best.setting}",
            number(one.best.measured_us),
            f"{one.regret_percent:.1f} %",
            f"{one.streams_regret_percent:.1f} %",
            f"{one.in_turn.measured_us / one.row.measured_us:.2f}x",
        )
        for one in found
    ]
    return table(titles, cells)


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    found = chosen(rows)
    regrets = [one.regret_percent for one in found]
    streams = [one.streams_regret_percent for one in found]
    of_one = [row for row in rows if row.mechanism not in IN_PROCESSES]
    errors = [row.error_percent for row in of_one]
    values: dict[str, object] = {
        "pairs": len(found),
        "settings": len(of_one),
        "tie": 100.0 * TIE,
        "regret": fmean(regrets),
        "most": max(regrets),
        "streams_regret": fmean(streams),
        "streams_most": max(streams),
        "in_turn": _mean(100.0 * (one.in_turn.measured_us / one.best.measured_us - 1.0) for one in found),
        "error": _mean(map(abs, errors)),
        "bias": _mean(errors),
        "asked_regret": REGRET_PERCENT,
        "asked_most": MOST_REGRET_PERCENT,
        "asked_error": ERROR_PERCENT,
        "asked_bias": BIAS_PERCENT,
        "choices": choice_table(found),
        "errors": error_table(rows),
    }
    values |= _of_ends(of_one) | _of_last(rows, found)
    values |= {f"prefill_{sms}": slowed("prefill1", "decode32", sms) for sms in (16, 48, 80)}
    for gpu in GPUS:
        mine = [one.regret_percent for one in found if one.row.gpu == gpu]
        values |= {f"{gpu}_pairs": len(mine), f"{gpu}_regret": fmean(mine), f"{gpu}_most": max(mine)}
    return values


def _of_ends(rows: Iterable[Row]) -> dict[str, object]:
    """What the page says of the ends of single programs: of all, and of the program of each pair that ended first."""
    found = [row.end_errors_percent for row in rows if row.end_errors_percent]
    ends, first = [error for errors in found for error in errors], [errors[0] for errors in found]
    return {
        "ends": len(ends),
        "end_error": _mean(map(abs, ends)),
        "end_bias": _mean(ends),
        "first_error": _mean(map(abs, first)),
        "first_bias": _mean(first),
    }


def slowed(a: str, b: str, sms: int) -> float:
    """How many times as long the kernels of ``a`` take on so many SMs beside ``b`` on the others, as measured."""
    rows = [row for row in lines(BESIDE) if (row["a"], row["b"], row["sms_a"], row["program"]) == (a, b, str(sms), "a")]
    alone, beside = (fsum(int(row["launches"]) * float(row[us]) for row in rows) for us in ("alone_us", "beside_us"))
    return beside / alone


def _of_last(rows: Sequence[Row], found: Iterable[Chosen]) -> dict[str, object]:
    """What the page says of the pairs of the H200 that were measured last."""
    shared = [row for row in rows if row.gpu == "h200" and row.mechanism == "priority"]
    last = {row.pair for row in shared if not {*row.pair.split()} & {*BY_OTHERS}}
    regrets = [one.regret_percent for one in found if one.row.gpu == "h200" and one.row.pair in last]
    errors = [row.error_percent for row in rows if row.gpu == "h200" and row.pair in last]
    return {
        "last_pairs": len(last),
        "last_regret": fmean(regrets),
        "last_most": max(regrets),
        "last_error": _mean(map(abs, errors)),
        "last_bias": _mean(errors),
    }


def draw(rows: Sequence[Row], path: Path) -> None:
    """Predicted makespan over the measured one, by setting."""
    with styled(Style(PAGE)), new_figure(3.2) as figure:
        axes = figure.subplots()
        _draw(rows, axes)
        legend_below(figure, axes)
        save_figure(figure, path)


def _draw(rows: Sequence[Row], axes: Axes) -> None:
    mechanisms = list(dict.fromkeys(row.mechanism for row in rows))
    for gpu, marker, aside in (("h200", "o", -0.12), ("h100", "^", 0.12)):
        mine = [row for row in rows if row.gpu == gpu]
        axes.scatter(
            [mechanisms.index(row.mechanism) + aside for row in mine],
            [row.error_percent for row in mine],
            s=10, marker=marker, alpha=0.7, linewidths=0, color=COLOURS[gpu == "h100"], label=GPUS[gpu],
        )  # fmt: skip
    axes.axhline(0.0, color=GREY, linewidth=0.8)
    axes.set_xticks(range(len(mechanisms)), mechanisms)
    axes.set_ylabel("Error of the predicted makespan (%)")


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, page, {"makespans.png": draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
