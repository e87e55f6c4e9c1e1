"""A fresh test of what `gpusim select` recommends: its plans and their measurement (`fresh_report.py` has the page).

    python -m experiments.control_worth.fresh   # choose the plans: fresh_plans_h100-sxm.txt

For each workload there are plain streams, the best algorithms in the same streams, and the plan found, as far as they
differ. What the command recommended is named so in the file, which was written before the measurement. Where no plan
is, it recommended plain streams.
"""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations, islice
from math import nan, sqrt
from pathlib import Path
from statistics import median, stdev

from experiments.control_worth.fresh_report import Fresh
from experiments.control_worth.plans import (
    HERE,
    MODULES,
    NOTHING,
    PAIRS,
    TOGETHER,
    Trial,
    expected_us,
    known,
    line_of,
    read,
    session_on,
    trace_of,
)
from experiments.control_worth.report import gain, mean
from experiments.plans import condensed
from experiments.rows import lines, to_csv
from gpusim.choose.chosen import chosen_error
from gpusim.choose.moves import fastest, mean_alone_us
from gpusim.choose.plan import Plan
from gpusim.choose.search import in_streams_of, own_lanes, select
from gpusim.common.files import write_table
from gpusim.common.tables import grouped
from gpusim.lab.record.program import Program
from gpusim.session import Session

Identity = tuple[object, ...]
GPU = "h100-sxm"
RESIDUAL = tuple(f"resnet50_{name}" for name in ("2a", "3a", "4a", "5a"))
SMALL = tuple(name for name in MODULES if name.endswith("_b16"))
LARGE = tuple(name for name in MODULES if name not in SMALL)
MORE_PAIRS = (*combinations(SMALL, 2), *islice(combinations(LARGE, 2), 0, None, 2))
WORKLOADS = (*MODULES, *RESIDUAL, *dict.fromkeys("+".join(pair) for pair in (*PAIRS, *MORE_PAIRS)))
ROUNDS = 10
RECOMMENDED = "recommended"
TITLES = ("round", "name", "plan", "turn", "ms_makespan")
CALLS, PLANS, MEASURED = HERE / "calls.txt", HERE / f"fresh_plans_{GPU}.txt", HERE / f"fresh_{GPU}.csv.gz"


def trials(workload: str, session: Session) -> list[Trial]:
    """Plain streams, the best algorithms in them, and the plan found, as far as they differ."""
    work, bounds = known(workload, session)
    plain = Plan(own_lanes(work), fastest(work, bounds))
    found = select(trace_of(workload), session, sharing="hardware")
    assert found.plain is not None and found.plain.plan.streams == plain.streams
    made = [Trial(workload, NOTHING, TOGETHER, plain)]
    inside = in_streams_of(found.plain, found.seen)[0]
    if inside.plan.algorithms != plain.algorithms:
        lanes = inside.plan if inside is found.found else Plan(plain.lanes, inside.plan.algorithms)
        made.append(Trial(workload, f"algorithms:{_named(inside is found.best)}", TOGETHER, lanes))
    if found.found is not inside:
        plan = found.found.plan
        sharing = "+".join(map(str, plan.sms)) or TOGETHER
        made.append(Trial(workload, f"all:{_named(found.found is found.best)}", sharing, plan))
    return made


def _named(recommended: bool) -> str:
    return RECOMMENDED if recommended else "found"


def write(folder: Path = HERE) -> None:
    """Choose the plans and write them; their calls are added to those that are there."""
    session = session_on(GPU)
    calls, plans = dict.fromkeys(CALLS.read_text(encoding="utf-8").splitlines()), list[str]()
    for workload in WORKLOADS:
        for trial in trials(workload, session):
            line, made = line_of(trial, known(workload, session)[0])
            plans.append(line)
            calls |= dict.fromkeys(made)
        print(f"{workload}: {len(plans)} plans so far", flush=True)
    (folder / CALLS.name).write_text("".join(f"{line}\n" for line in calls), encoding="utf-8")
    (folder / PLANS.name).write_text("".join(f"{line}\n" for line in plans), encoding="utf-8")


# ---- measured --------------------------------------------------------------------------------------------------------


def rotated(lines: Sequence[str], n: int) -> list[str]:
    """The plans of each workload one after the other, each workload's from its ``n``-th on."""
    of = grouped(lines, lambda line: line.split()[0])
    return [line for mine in of.values() for line in (*mine[n % len(mine) :], *mine[: n % len(mine)])]


def measure() -> None:
    """Run the plans on this machine's GPU: in each round all of them, in another order than in the round before."""
    plans, printed = PLANS.read_text(encoding="utf-8").splitlines(), list[dict[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        program, path = Program(Path(folder)), Path(folder) / "plans.txt"
        for n in range(ROUNDS):
            path.write_text("".join(f"{line}\n" for line in rotated(plans, n)), encoding="utf-8")
            rows = csv.DictReader(condensed(program.printed("plans", CALLS, path)))
            printed += [{"round": str(n), **row} for row in rows]
    write_table(MEASURED, to_csv(TITLES, printed))


def measured_us() -> dict[tuple[str, str], list[list[float]]]:
    """Measured makespans by workload and plan: for each round one for each turn of CUDA's streams, us."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in lines(MEASURED):
        rounds = found.setdefault((row["name"], row["plan"]), {})
        rounds.setdefault(row["round"], []).append(float(row["ms_makespan"]) * 1e3)
    return {key: list(rounds.values()) for key, rounds in found.items()}


# ---- scored ----------------------------------------------------------------------------------------------------------


def all_rows(earlier_us: Mapping[Identity, float]) -> list[Fresh]:
    """Every plan, predicted and measured.

    Args:
        earlier_us: makespans of plans in the earlier measurement, us.
    """
    session, times, made = session_on(GPU), measured_us(), list[Fresh]()
    for workload, mine in grouped(read(PLANS, session), lambda trial: trial.workload).items():
        operation_us = mean_alone_us(*known(workload, session))
        plain, predicted_us = times[workload, NOTHING], expected_us(mine[0], session)
        earlier_plain_us = earlier_us.get(identity(mine[0]), nan)
        steps = [trial for trial in mine if trial.name.endswith(RECOMMENDED)] or mine[:1]
        for trial in mine:
            us, rounds = expected_us(trial, session), times[workload, trial.name]
            gains = [gain(mean(first), mean(one)) for first, one in zip(plain, rounds, strict=True)]
            choice = chosen_error(GPU, operation_us, "plan" if trial.level == "all" else "algorithms")
            assert choice is not None
            made.append(
                Fresh(
                    workload,
                    trial.level,
                    int(trial in steps),
                    trial.sharing,
                    us,
                    _middle(rounds),
                    min(map(min, rounds)),
                    max(map(max, rounds)),
                    earlier_us.get(identity(trial), nan),
                    gain(predicted_us, us),
                    gain(_middle(plain), _middle(rounds)),
                    gain(earlier_plain_us, earlier_us.get(identity(trial), nan)),
                    stdev(gains) / sqrt(len(gains)),
                    choice.most,
                )
            )
    return made


def identity(trial: Trial) -> Identity:
    """A key that is equal for equal plans of a workload, their streams in any order."""
    return trial.workload, trial.sharing, trial.plan.streams, tuple(sorted(trial.plan.algorithms.items()))


def _middle(rounds: Sequence[Sequence[float]]) -> float:
    """Mean over turns of the median over rounds."""
    return mean([median(turn) for turn in zip(*rounds, strict=True)])


if __name__ == "__main__":
    write()
