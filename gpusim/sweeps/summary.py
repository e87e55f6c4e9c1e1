"""Summary of a sweep: each policy over all workloads, and the best policy of each workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import exp, fsum, inf, isfinite, log, sqrt
from statistics import NormalDist, fmean, stdev
from typing import NamedTuple

from gpusim.common import tables
from gpusim.hardware.gpu import GPU, load_gpu
from gpusim.hardware.what_if import value_of
from gpusim.results.metrics import geometric_mean, undominated
from gpusim.sweeps.compute import ERROR, FIGURES
from gpusim.sweeps.run import Swept, label_names
from gpusim.sweeps.table import Label

CLOSE = 1e-9  # speedups that differ by less are the same
FEWEST = 3  # workloads that an interval is of


class SweptRow(NamedTuple):
    """A point that did not fail: its labels and figures by name."""

    labels: Mapping[str, Label]
    figures: Mapping[str, float]  # without those that are unknown
    division: str


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """A policy on one GPU, over all workloads and seeds."""

    gpu: str  # its name
    values: Mapping[str, Label]  # of the quantities that the experiment varies, by name
    policy: str  # as the experiment names it
    points: int  # how many did not fail
    makespan_us: float  # geometric mean
    speedup: float  # over serial, geometric mean
    largest_slowdown: float  # of a stream, mean
    stp: float | None  # mean; None where streams do not restart
    fairness: float | None  # mean; None where streams do not restart
    best: int  # in how many workloads no other policy had more of the `merit`
    undominated: bool  # whether no other policy here has more of one of the two `merits` without less of the other
    speedup_interval: tuple[float, float] | None  # 95 % of the mean speedup; None of fewer than `FEWEST` workloads
    behind: tuple[float, float | None]  # the best policy's lead in the `merit` and half of its 95 % interval, relative
    model_error_percent: float | None  # mean over the points; None where it is not known for all


def rows(swept: Swept) -> list[SweptRow]:
    """The points that did not fail, in the order of the table."""
    names = label_names(swept.experiment)
    return [
        SweptRow(
            dict(zip(names, point.labels, strict=True)),
            {name: one for name, one in zip(FIGURES, outcome.figures, strict=True) if one is not None},
            outcome.division,
        )
        for point, outcome in zip(swept.points, swept.outcomes, strict=True)
        if not outcome.error
    ]


def policy_summaries(swept: Swept) -> list[PolicySummary]:
    """Return a summary for each policy on each GPU, sorted by `merit` within a GPU."""
    varied, restart = swept.experiment.varied, swept.experiment.restart
    found: list[PolicySummary] = []
    for on, here in grouped(rows(swept), ("gpu", *varied)).items():
        wins = _wins(here, restart)
        policies = grouped(here, ("policy",))
        merit = {policy: merits(of, restart) for policy, of in policies.items()}
        front = undominated([[-one for one in both] for both in merit.values()], CLOSE)
        top = max(merit, key=lambda policy: merit[policy][0])
        several = [
            PolicySummary(
                gpu=str(on[0]),
                values=dict(zip(varied, on[1:], strict=True)),
                policy=str(policy[0]),
                points=len(of),
                makespan_us=geometric_mean(values(of, "makespan_us")),
                speedup=geometric_mean(values(of, "speedup_vs_serial")),
                largest_slowdown=mean(of, "largest_slowdown"),
                stp=mean(of, "stp") if restart else None,
                fairness=mean(of, "fairness") if restart else None,
                best=wins.count(policy[0]),
                undominated=kept,
                speedup_interval=speedup_interval(of),
                behind=behind(of, policies[top], restart),
                model_error_percent=model_error(of),
            )
            for (policy, of), kept in zip(policies.items(), front, strict=True)
        ]
        found += sorted(several, key=lambda one: -(one.speedup if one.stp is None else one.stp))
    return found


def speedup_interval(of: Sequence[SweptRow]) -> tuple[float, float] | None:
    """95 % interval of the geometric mean speedup over serial of workloads, each the mean over its seeds."""
    middle, half = mean_and_interval(_means((row, _log(row.figures["speedup_vs_serial"])) for row in of))
    return None if half is None else (exp(middle - half), exp(middle + half))


def behind(of: Sequence[SweptRow], best: Sequence[SweptRow], restart: bool) -> tuple[float, float | None]:
    """The mean lead of the best policy in the `merit`, paired by workload and seed, and half of its 95 % interval.

    Both are relative, as differences of logarithms: 0.05 is a lead of 5 %. The interval is over workloads.
    """
    name = merit(restart)
    theirs = {_workload_of(row): _log(row.figures[name]) for row in best}
    pairs = ((row, theirs.get(_workload_of(row), -inf) - _log(row.figures[name])) for row in of)
    return mean_and_interval(_means(pairs))


def _log(value: float) -> float:
    return log(value) if value > 0.0 else -inf


def _means(values: Iterable[tuple[SweptRow, float]]) -> list[float]:
    """The mean of the finite values of each workload, over its seeds."""
    finite = ((row, value) for row, value in values if isfinite(value))
    found = tables.grouped(finite, lambda pair: _workload_of(pair[0], seeds=False))
    return [fmean(value for _, value in pairs) for pairs in found.values()]


def _wins(here: Sequence[SweptRow], restart: bool) -> list[Label]:
    """The policy with the largest mean `merit` of each workload, or several equal ones, over seeds that all have."""
    found: list[Label] = []
    for of in tables.grouped(here, partial(_workload_of, seeds=False)).values():
        by_policy = grouped(of, ("policy",))
        known = [{row.labels["seed"]: _log(row.figures[merit(restart)]) for row in rows} for rows in by_policy.values()]
        seeds = set.intersection(*map(set, known))
        means = [fsum(logs[seed] for seed in seeds) for logs in known]
        found += [policy for (policy,), mean in zip(by_policy, means, strict=True) if mean >= max(means) - CLOSE]
    return found


def model_error(of: Sequence[SweptRow]) -> float | None:
    """Mean of the model's errors (%) of some points; None where one of them is not known."""
    errors = [row.figures[ERROR] for row in of if ERROR in row.figures]
    return fmean(errors) if errors and len(errors) == len(of) else None


def speedups_over(swept: Swept, quantity: str) -> dict[tuple[GPU, str], dict[float, float]]:
    """Geometric mean speedup of each policy on each GPU by the value of a quantity, the others as the GPU has them."""
    own = {gpu.name: gpu for gpu in swept.experiment.gpus}
    others = [name for name in swept.experiment.varied if name != quantity]
    found = {}
    for (name, policy), of in grouped(rows(swept), ("gpu", "policy")).items():
        gpu = own.get(str(name)) or load_gpu(str(name))
        here = [row for row in of if all(row.labels[other] == value_of(gpu, other) for other in others)]
        by_value = {float(value): part for (value,), part in grouped(here, (quantity,)).items()}
        found[gpu, str(policy)] = {
            value: geometric_mean(values(part, "speedup_vs_serial")) for value, part in sorted(by_value.items())
        }
    return found


def mean_and_interval(sample: Sequence[float]) -> tuple[float, float | None]:
    """The mean of some values, and half of its 95 % interval by Student's t; None of fewer than `FEWEST`."""
    mean, several = fsum(sample) / max(1, len(sample)), len(sample) >= FEWEST
    return mean, student_t(len(sample) - 1) * stdev(sample) / sqrt(len(sample)) if several else None


def _workload_of(row: SweptRow, seeds: bool = True) -> tuple[Label, ...]:
    """What a row is of beside its policy; ``seeds``: its seed, too."""
    return tuple(label for name, label in row.labels.items() if name != "policy" and (seeds or name != "seed"))


def student_t(freedom: int) -> float:
    """97.5th percentile of Student's t for at least two degrees of freedom, by Cornish and Fisher's expansion."""
    z, n = NormalDist().inv_cdf(0.975), freedom
    terms = (
        z,
        (z**3 + z) / (4 * n),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3),
    )
    return fsum(terms)


def by_workload(several: Sequence[SweptRow]) -> list[list[SweptRow]]:
    """Group the rows by workload, GPU and seed. A group has one row per policy."""
    return list(tables.grouped(several, _workload_of).values())


def merit(restart: bool) -> str:
    """Return the name of the metric that ranks policies: STP where programs restart, else speedup over serial."""
    return "stp" if restart else "speedup_vs_serial"


def best_of(of: Sequence[SweptRow], restart: bool) -> list[SweptRow]:
    """Return the rows of a workload with the largest `merit`: one, or several equal ones."""
    found = values(of, merit(restart))
    least = max(found) * (1.0 - CLOSE)
    return [row for row, value in zip(of, found, strict=True) if value >= least]


def values(of: Sequence[SweptRow], name: str) -> list[float]:
    """Return the value of a metric in each row; every row must have it."""
    return [row.figures[name] for row in of]


def mean(of: Sequence[SweptRow], name: str) -> float:
    """Return the mean of a metric over rows that all have it."""
    return fmean(values(of, name))


def merits(of: Sequence[SweptRow], restart: bool) -> tuple[float, float]:
    """Return two merits of a policy, larger is better: throughput, and fairness to the slowest stream.

    They are mean STP and mean fairness; of streams that run once, mean speedup (geometric), and the mean of the largest
    slowdown below 0.
    """
    if restart:
        return mean(of, "stp"), mean(of, "fairness")
    return geometric_mean(values(of, "speedup_vs_serial")), -mean(of, "largest_slowdown")


def grouped(several: Iterable[SweptRow], names: Sequence[str]) -> dict[tuple[Label, ...], list[SweptRow]]:
    """Group rows that agree in some labels, in the order of the first row of each group."""
    return tables.grouped(several, lambda row: tuple(row.labels[name] for name in names))


def without_effect(swept: Swept) -> list[str]:
    """Return one sentence for each set of values of a quantity that give the same makespans in every replay."""
    found = []
    for (gpu,), here in grouped(rows(swept), ("gpu",)).items():
        for quantity in swept.experiment.varied:
            others = [name for name in label_names(swept.experiment) if name != quantity]
            alike: dict[frozenset[tuple[Label, ...]], list[str]] = {}
            for (value,), of in grouped(here, (quantity,)).items():
                outcomes = ((*(row.labels[o] for o in others), f"{row.figures['makespan_us']:.9g}") for row in of)
                alike.setdefault(frozenset(outcomes), []).append(f"{value:,}")
            same = (values for values in alike.values() if len(values) > 1)
            found += [f"{quantity} {' and '.join(values)} give the same makespans on {gpu}" for values in same]
    return found
