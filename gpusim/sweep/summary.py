"""What a sweep shows: each policy over all workloads, and the best policy of each workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpusim.metrics import geometric_mean
from gpusim.sweep.compute import FIGURES
from gpusim.sweep.run import Swept, label_names
from gpusim.sweep.table import Label

CLOSE = 1e-9  # speedups that differ by less are the same


class Row(NamedTuple):
    """A point that did not fail: its labels and figures by name."""

    labels: Mapping[str, Label]
    figures: Mapping[str, float]
    division: str


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """A policy on one GPU, over all workloads and seeds.

    Attributes:
        gpu: its name.
        values: of the quantities that the experiment varies, by name.
        policy: as the experiment names it.
        points: how many did not fail.
        makespan_us: geometric mean.
        speedup: over serial, geometric mean.
        stp: mean.
        fairness: mean.
        best: in how many workloads no other policy was faster.
        undominated: whether no other policy here has more STP or fairness without less of the other.
    """

    gpu: str
    values: Mapping[str, Label]
    policy: str
    points: int
    makespan_us: float
    speedup: float
    stp: float
    fairness: float
    best: int
    undominated: bool


def rows(swept: Swept) -> list[Row]:
    """The points that did not fail, in the order of the table."""
    names = label_names(swept.experiment)
    return [
        Row(
            dict(zip(names, point.labels, strict=True)),
            {name: one for name, one in zip(FIGURES, outcome.figures, strict=True) if one is not None},
            outcome.division,
        )
        for point, outcome in zip(swept.points, swept.outcomes, strict=True)
        if not outcome.error
    ]


def policy_summaries(swept: Swept) -> list[PolicySummary]:
    """Each policy on each GPU, the fastest first on each."""
    varied = swept.experiment.varied
    found: list[PolicySummary] = []
    for on, here in grouped(rows(swept), ("gpu", *varied)).items():
        wins = [row.labels["policy"] for of in by_workload(here) for row in fastest(of)]
        policies = grouped(here, ("policy",))
        merit = {policy: merits(of) for policy, of in policies.items()}
        front = undominated(list(merit.values()))
        several = [
            PolicySummary(
                gpu=str(on[0]),
                values=dict(zip(varied, on[1:], strict=True)),
                policy=str(policy[0]),
                points=len(of),
                makespan_us=geometric_mean([row.figures["makespan_us"] for row in of]),
                speedup=geometric_mean([row.figures["speedup_vs_serial"] for row in of]),
                stp=merit[policy][0],
                fairness=merit[policy][1],
                best=wins.count(policy[0]),
                undominated=kept,
            )
            for (policy, of), kept in zip(policies.items(), front, strict=True)
        ]
        found += sorted(several, key=lambda one: -one.speedup)
    return found


def by_workload(several: Sequence[Row]) -> list[list[Row]]:
    """The rows of each workload on each GPU with each seed: one a policy."""
    names = list(several[0].labels) if several else []
    return list(grouped(several, [name for name in names if name != "policy"]).values())


def fastest(of: Sequence[Row]) -> list[Row]:
    """The fastest of some rows: one, or several that are as fast."""
    best = max(row.figures["speedup_vs_serial"] for row in of)
    return [row for row in of if row.figures["speedup_vs_serial"] >= best * (1.0 - CLOSE)]


def merits(of: Sequence[Row]) -> tuple[float, float]:
    """Mean STP and mean fairness of some rows."""
    stp, fairness = (sum(row.figures[name] for row in of) / len(of) for name in ("stp", "fairness"))
    return stp, fairness


def grouped(several: Iterable[Row], names: Sequence[str]) -> dict[tuple[Label, ...], list[Row]]:
    """Rows by some of their labels, in the order in which these come."""
    found: dict[tuple[Label, ...], list[Row]] = {}
    for row in several:
        found.setdefault(tuple(row.labels[name] for name in names), []).append(row)
    return found


def undominated(merits: Sequence[tuple[float, float]]) -> list[bool]:
    """Of pairs of merits, which no other exceeds in one without less of the other: the Pareto front."""

    def beats(other: tuple[float, float], mine: tuple[float, float]) -> bool:
        gains = [a - b for a, b in zip(other, mine, strict=True)]
        return min(gains) >= -CLOSE and max(gains) > CLOSE

    return [not any(beats(other, mine) for other in merits) for mine in merits]
