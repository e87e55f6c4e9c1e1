"""What the studies of kernels and programs that the model has never seen have in common: scores by group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import nan

from gpusim.common.tables import grouped
from gpusim.lab.scores import Scored, summaries
from gpusim.lab.scoring import Reasons, Scoring

ISOLATED = "isolated"
ALONE, TOGETHER = "measured curves", "measured curves and predicted interference"


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of some predictions.

    Attributes:
        recording: what they were made from.
        experiment: as of `gpusim.lab.scores`, and the rows on all SMs apart.
        group: all; those of calls whose longest kernel one resource binds; those of one call, program, pair or
            sequence; SM splits predicted from measured curves.
        name: of that resource, call, program, pair or sequence, or what else is predicted.
        points: predictions.
        mape_percent: mean absolute error.
        bias_percent: mean error; positive: predicted too long.
        p95_percent: 95th percentile of the absolute errors.
        nothing_percent: mean absolute error of the baseline.
        regret_percent: of the SM splits that are predicted best; NaN elsewhere.
        why: of a call, program or pair, its longest kernels and what binds them.
    """

    recording: str
    experiment: str
    group: str
    name: str
    points: int
    mape_percent: float
    bias_percent: float
    p95_percent: float
    nothing_percent: float
    regret_percent: float
    why: str


# ---- scores ----------------------------------------------------------------------------------------------------------


def scores(
    recording: str, group: str, name: str, rows: Sequence[Scored], found: Scoring, why: str = ""
) -> Iterator[Score]:
    """The score of each experiment among some rows."""
    for one in summaries(rows, found.measured):
        figures = one.mape_percent, one.bias_percent, one.p95_percent, one.nothing_percent
        regret = nan if one.regret_percent is None else one.regret_percent
        yield Score(recording, one.experiment, group, name, one.points, *figures, regret, why)


def scores_by_bound(recording: str, found: Scoring) -> Iterator[Score]:
    """Scores by the resource that binds the longest kernel of what ran."""
    known = Reasons(found)
    bounds = {name: known.bound_by(name) for name in sorted({one for names in found.named.values() for one in names})}
    for bound in sorted(set(bounds.values())):
        mine = [row for row in found.rows if any(bounds[name] == bound for name in _ran(found, row))]
        yield from scores(recording, "bound", bound, mine, found)


def scores_by_name(recording: str, found: Scoring) -> Iterator[Score]:
    """Scores of each call, program, pair and sequence."""
    known = Reasons(found)
    for name, mine in grouped(found.rows, lambda row: _what(found, row)).items():
        yield from scores(recording, "one", name, mine, found, known.of(_ran(found, mine[0])))


def _ran(found: Scoring, row: Scored) -> tuple[str, ...]:
    """The calls or programs that ran."""
    return found.named[row.experiment, row.key]


def _what(found: Scoring, row: Scored) -> str:
    return row.key.split("|")[0] if row.experiment.startswith("modules") else " + ".join(_ran(found, row))


def from_curves(split: Scored, measured: Sequence[float], predicted: Sequence[float]) -> dict[str, Scored]:
    """An SM split predicted from the measured time of each side alone on its SMs, ms.

    Args:
        split: with the predicted interference.
        measured: time of each side alone.
        predicted: the same as predicted.

    Returns:
        Without interference, and with the predicted one.
    """
    alone = max(measured)
    together = alone * split.predicted_ms / max(predicted)
    return {ALONE: replace(split, predicted_ms=alone), TOGETHER: replace(split, predicted_ms=together)}


# ---- tables ----------------------------------------------------------------------------------------------------------


def by_name(rows: Sequence[Score]) -> dict[tuple[str, str, str, str], Score]:
    """Scores by recording, experiment, group and name."""
    return {(row.recording, row.experiment, row.group, row.name): row for row in rows}


def error_cell(row: Score | None) -> str:
    """The mean absolute error in a table."""
    return "" if row is None else f"{row.mape_percent:.1f}"


def figures(row: Score) -> tuple[str, ...]:
    """Points, error, bias, 95th percentile and the baseline in a table."""
    return (
        str(row.points),
        f"**{row.mape_percent:.1f}**",
        f"{row.bias_percent:+.1f}",
        f"{row.p95_percent:.1f}",
        f"{row.nothing_percent:.1f}",
    )


FIGURES = ("points", "error %", "bias %", "95th percentile %", "baseline %")


def worst(rows: Sequence[Score], experiment: str, count: int | None = None) -> list[Score]:
    """The calls, programs or pairs with the largest mean errors: all or so many."""
    mine = [row for row in rows if row.group == "one" and row.experiment == experiment]
    return sorted(mine, key=lambda row: -row.mape_percent)[:count]
