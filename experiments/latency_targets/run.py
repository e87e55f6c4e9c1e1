"""Do settings that are predicted to hold a latency target hold it: two programs that restart, measured on an H200.

`python experiments/latency_targets/run.py [--out DIR] [--jobs N]`

Each of two programs starts again whenever it ends. measured.csv has the time of a pass of each, alone and in every way
to share the GPU. This predicts the same with `gpusim.advise` from the traces of the programs alone, and follows the
prediction for some targets. It writes README.md, result.csv and slowdowns.png beside itself (or to DIR).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, nan
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.advise.run import PROGRAMS, Measured, Pair, session_of, setting_named
from experiments.markdown import error_cells, table
from experiments.rows import lines
from experiments.scatter import predicted_over_measured
from experiments.study import Run, Study
from gpusim.choose.advise import advise
from gpusim.choose.serving import restarted_progress, slowdowns_of
from gpusim.choose.settings import Setting
from gpusim.common.tables import grouped
from gpusim.session import Session, Starved
from gpusim.trace.edit import merge
from gpusim.trace.format import Trace

MEASURED = Path(__file__).resolve().parent / "measured.csv"
GPU = "h200"
TARGETS = (1.2, 1.5, 2.0, 3.0)  # slowdowns of the program that has a target
WITHIN = 0.02  # of a target, that passes may take longer and still hold it: runs differ by as much


@dataclass(frozen=True)
class Row:
    """A program that restarts beside another one that does.

    Attributes:
        pair: the names of both.
        mechanism, setting: how they share the GPU, as `gpusim.choose.settings.Setting` has them.
        program: a or b, the first or the second of the pair.
        predicted, measured: slowdown, the mean time of a pass over that alone on the whole GPU.
        measured_p95: the 95th percentile of its passes over the same.
    """

    pair: str
    mechanism: str
    setting: str
    program: str
    predicted: float
    measured: float
    measured_p95: float

    @property
    def error_percent(self) -> float:
        """Of the predicted slowdown."""
        return 100.0 * (self.predicted / self.measured - 1.0)


@dataclass(frozen=True)
class Followed:
    """A target of one program, and the setting that keeps it in which the other program progresses most.

    Attributes:
        pair, program: whose target it is.
        target: the largest slowdown.
        possible: whether any setting holds the target, as measured.
        setting: the one chosen by the predictions; None: none keeps the target.
        over: measured slowdown over the target in that setting.
        kept: what the other program's measured progress there is of the most in any setting that holds the target.
    """

    pair: str
    program: str
    target: float
    possible: bool
    setting: str | None
    over: float = 0.0
    kept: float = 0.0

    @property
    def held(self) -> bool:
        """Whether the target is held, as measured."""
        return self.setting is not None and self.over <= 1.0 + WITHIN


# ---- predicting


def measured() -> dict[str, list[Mapping[str, str]]]:
    """The lines of what was measured, by pair; the first of each is alone."""
    return grouped(lines(MEASURED), lambda line: f"{line['a']} + {line['b']}")


def mean_passes() -> dict[Pair, list[Measured]]:
    """Mean times of a pass of each program, by pair, as experiments/advise has its times; the first are isolated."""
    found = [
        Measured(
            GPU, line["a"], 1, line["b"], 1, line["mechanism"], line["setting"],
            a_us=float(line["a_mean_us"]), b_us=float(line["b_mean_us"]), makespan_us=nan,
        )
        for line in lines(MEASURED)
    ]  # fmt: skip
    return grouped(found, lambda one: one.pair)


def slowdowns(trace: Trace, session: Session, way: Setting) -> tuple[float, float]:
    """Predicted slowdowns of two programs that restart, as `gpusim.advise` has them but on time slices."""
    with suppress(Starved):
        progress = restarted_progress(way.of(trace), session, way.policy, session.programs_us(trace))
        a, b = slowdowns_of(progress).values()
        return a, b
    return inf, inf


def answer(pair: str) -> list[Row]:
    """Both programs of a pair in every setting that was measured."""
    alone, *shared = measured()[pair]
    ways = [setting_named(GPU, line["mechanism"], line["setting"]) for line in shared]
    traces = [gpusim.load_trace(PROGRAMS / f"{GPU}_{name}.json.gz") for name in pair.split(" + ")]
    advice = advise([merge(traces, ["a", "b"], pair)], session_of(GPU), "antt", jobs=1, ways=ways)
    predicted = {(one.setting.mechanism, one.setting.setting): one.slowdown for one in advice.choices}
    found = []
    for line in shared:
        how = line["mechanism"], line["setting"]
        for program in ("a", "b"):
            mean, p95 = (
                float(line[f"{program}_{of}_us"]) / float(alone[f"{program}_mean_us"]) for of in ("mean", "p95")
            )
            found.append(Row(pair, *how, program, predicted[how][program], mean, p95))
    return found


def rows(run: Run) -> dict[str, list[Row]]:
    """Every pair in every setting."""
    pairs = list(measured())
    files = [MEASURED, *sorted(PROGRAMS.glob(f"{GPU}_*.json.gz"))]
    found = run.answers("result", pairs, _answered, files, [GPU])
    return {"result.csv": [Row(*one) for pair in pairs for one in found[pair]]}


def _answered(pair: str) -> list[list[object]]:
    return [list(vars(row).values()) for row in answer(pair)]


# ---- the page


def followed(rows: Iterable[Row]) -> list[Followed]:
    """Each target of each program of each pair, followed."""
    found = []
    for pair, mine in grouped(rows, lambda row: row.pair).items():
        for program, other in (("a", "b"), ("b", "a")):
            own, others = ({row.setting: row for row in mine if row.program == which} for which in (program, other))
            found += [_follow(pair, program, target, own, others) for target in TARGETS]
    return found


def _follow(pair: str, program: str, target: float, own: Mapping[str, Row], others: Mapping[str, Row]) -> Followed:
    keeping = [setting for setting, row in own.items() if row.predicted <= target]
    holding = [setting for setting, row in own.items() if row.measured <= target * (1.0 + WITHIN)]
    if not keeping:
        return Followed(pair, program, target, bool(holding), None)
    chosen = min(keeping, key=lambda setting: others[setting].predicted)
    least = min((others[setting].measured for setting in holding), default=others[chosen].measured)
    over, kept = own[chosen].measured / target, least / others[chosen].measured
    return Followed(pair, program, target, bool(holding), chosen, over, kept)


def error_table(rows: Sequence[Row]) -> str:
    """Errors of slowdowns by mechanism."""
    cells = [
        (
            mechanism,
            str(len(mine)),
            *error_cells([row.error_percent for row in mine]),
            f"{100.0 * (fmean(row.measured_p95 / row.measured for row in mine) - 1.0):.1f} %",
        )
        for mechanism, mine in grouped(rows, lambda row: row.mechanism).items()
    ]
    titles = ("share by", "slowdowns", "mean error", "bias", "range", "95th percentile of passes over their mean")
    return table(titles, cells)


def target_table(found: Iterable[Followed]) -> str:
    """How often targets were held, by target."""
    cells = []
    for target, mine in grouped(found, lambda one: one.target).items():
        given = [one for one in mine if one.setting is not None]
        held = [one for one in given if one.held]
        cells.append(
            (f"x{target:g}", str(sum(one.possible for one in mine)), str(len(given)), str(len(held)),
             f"{100.0 * (max((one.over for one in given), default=nan) - 1.0):+.1f} %",
             f"{100.0 * _mean(one.kept for one in held):.1f} %")
        )  # fmt: skip
    titles = ("target", "held by some setting", "predicted to be held by some", "held by the chosen one",
              "worst slowdown, relative to the target",
              "the other program's progress, relative to the best setting that holds the target")  # fmt: skip
    return table(titles, cells)


def _mean(values: Iterable[float]) -> float:
    """Mean; not a number of nothing."""
    found = list(values)
    return fmean(found) if found else nan


def _opposite(rows: Iterable[Row]) -> int:
    """In how many pairs one program is predicted too slow in streams and the other too fast."""
    streams = grouped((row for row in rows if row.mechanism == "streams"), lambda row: row.pair)
    return sum(a.error_percent * b.error_percent < 0.0 for a, b in streams.values())


def page(rows: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    every = followed(rows)
    found = [one for one in every if one.setting is not None]
    late = [one for one in found if not one.held]
    errors = [row.error_percent for row in rows]
    few = [row.error_percent for row in rows if _on_few_sms_beside_decode(row)]
    return {
        "pairs": len({row.pair for row in rows}),
        "slowdowns": len(rows),
        "error": fmean(map(abs, errors)),
        "bias": fmean(errors),
        "all_targets": len(every),
        "possible": sum(one.possible for one in every),
        "targets": len(found),
        "held": len(found) - len(late),
        "within": 100.0 * WITHIN,
        "late": 100.0 * (_mean(one.over for one in late) - 1.0),
        "most_late": 100.0 * (max((one.over for one in late), default=nan) - 1.0),
        "kept": 100.0 * _mean(one.kept for one in found if one.held),
        "few": len(few),
        "few_bias": fmean(few),
        "opposite": _opposite(rows),
        "errors": error_table(rows),
        "by_target": target_table(every),
    }


def _on_few_sms_beside_decode(row: Row) -> bool:
    decode = "decode" in row.pair.split(" + ")[1]
    return decode and row.program == "a" and row.setting in ("16+116 SMs", "32+100 SMs", "48+84 SMs")


def draw(rows: Sequence[Row], path: Path) -> None:
    """Predicted slowdown against the measured one."""
    points = {
        mechanism: [(row.measured, row.predicted) for row in mine]
        for mechanism, mine in grouped(rows, lambda row: row.mechanism).items()
    }
    predicted_over_measured(points, ("Measured slowdown", "Predicted slowdown"), (1, 2, 3, 5, 10), path)


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, page, {"slowdowns.png": draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
