"""Fresh tests of what `gpusim select` recommends: their plans and measurement (`fresh_report.py` has the page).

    python -m experiments.control_worth.fresh TEST   # choose the plans of a test: TEST_plans_GPU.txt

For each workload there are plain streams, the best algorithms in the same streams, and the plan found, as far as they
differ. What the command recommended is named so in the file, which was written before the measurement. Where no plan
is, it recommended plain streams. TEST_answers_GPU.csv has the gains that it printed. Neither is made again when
the model changes.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from math import nan, sqrt
from pathlib import Path
from statistics import median, stdev

from experiments.control_worth.fresh_report import Fresh
from experiments.control_worth.plans import (
    HERE,
    MICRO_BATCHES,
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
from experiments.rows import from_csv, lines, to_csv
from gpusim.choose.chosen import chosen_error
from gpusim.choose.moves import fastest, mean_alone_us
from gpusim.choose.plan import Plan
from gpusim.choose.search import in_streams_of, own_lanes, select
from gpusim.common.files import write_table, write_text
from gpusim.common.tables import grouped
from gpusim.lab.record.program import BuiltProgram
from gpusim.session import Session

Identity = tuple[object, ...]
RESIDUAL = tuple(f"resnet50_{name}" for name in ("2a", "3a", "4a", "5a"))
SMALL = tuple(name for name in MODULES if name.endswith("_b16"))
LARGE = tuple(name for name in MODULES if name not in SMALL)
DIVIDED = tuple(f"inception_{name}_b{batch}" for name in ("3a", "4a") for batch in MICRO_BATCHES)
FIRES = tuple(f"squeezenet_fire{n}" for n in range(2, 10))
ROUNDS = 10
RECOMMENDED = "recommended"
TITLES = ("round", "name", "plan", "turn", "ms_makespan")
CALLS = HERE / "calls.txt"


def pairs(first: Sequence[str], second: Sequence[str], every: int) -> list[str]:
    """Every so many pairs of modules of two groups, but no module with itself at another batch."""
    both = [f"{one}+{other}" for one in first for other in second if one.split("_")[1] != other.split("_")[1]]
    return both[::every]


WORKLOADS = {  # of each test
    "fresh": (
        *MODULES,
        *RESIDUAL,
        *dict.fromkeys(
            "+".join(pair) for pair in (*PAIRS, *combinations(SMALL, 2), *islice(combinations(LARGE, 2), 0, None, 2))
        ),
    ),
    "second": (
        *DIVIDED,
        *FIRES,
        *pairs(DIVIDED[:3], DIVIDED[3:], 1),
        *pairs(DIVIDED, SMALL, 2),
        *pairs(RESIDUAL, SMALL, 2),
        *pairs(FIRES, SMALL, 4),
        *pairs(SMALL, LARGE, 3),
    ),
    "third": (
        *MODULES,
        *RESIDUAL,
        *FIRES,
        *DIVIDED,
        *pairs(RESIDUAL, SMALL, 6),
        *pairs(FIRES, SMALL, 20),
        *pairs(DIVIDED, SMALL, 12),
        *pairs(SMALL, LARGE, 20),
    ),
}
GPUS = {"fresh": "h100-sxm", "second": "h100-sxm", "third": "h200"}  # of each test
TESTS = tuple(WORKLOADS)


def plans_of(test: str) -> Path:
    """The plans of a test, one per line."""
    return HERE / f"{test}_plans_{GPUS[test]}.txt"


def answers_of(test: str) -> Path:
    """What `gpusim select` said of the plans of a test, before they were measured."""
    return HERE / f"{test}_answers_{GPUS[test]}.csv"


def measured_of(test: str) -> Path:
    """The measurement of a test."""
    return HERE / f"{test}_{GPUS[test]}.csv.gz"


@dataclass(frozen=True)
class Answer:
    """What `gpusim select` said of a plan, before it was measured.

    Attributes:
        workload: name of its trace, or of two.
        level: `algorithms`: the best in the same streams; `all`: the plan found.
        recommended: 1 if the command recommended it, else 0.
        predicted_gain, expected_gain: over plain streams, percent.
        limit: by how much one such choice in ten falls short of its expected gain, points.
    """

    workload: str
    level: str
    recommended: int
    predicted_gain: float
    expected_gain: float
    limit: float


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


def write(test: str) -> None:
    """Choose the plans of a test and write them and the answers; their calls are added to those that are there."""
    session = session_on(GPUS[test])
    calls, plans = dict.fromkeys(CALLS.read_text(encoding="utf-8").splitlines()), list[str]()
    answers = list[Answer]()
    for workload in WORKLOADS[test]:
        found = trials(workload, session)
        answers += answers_for(found, session)
        for trial in found:
            line, made = line_of(trial, known(workload, session)[0])
            plans.append(line)
            calls |= dict.fromkeys(made)
        print(f"{workload}: {len(plans)} plans so far", flush=True)
    CALLS.write_text("".join(f"{line}\n" for line in calls), encoding="utf-8")
    plans_of(test).write_text("".join(f"{line}\n" for line in plans), encoding="utf-8")
    write_text(answers_of(test), to_csv(Answer, answers))


def answers_for(found: Sequence[Trial], session: Session) -> list[Answer]:
    """What `gpusim select` says of the plans of a workload, of which plain streams are the first."""
    plain_us, operation_us = expected_us(found[0], session), mean_alone_us(*known(found[0].workload, session))
    made = []
    for trial in found[1:]:
        predicted = gain(plain_us, expected_us(trial, session))
        error = chosen_error(session.gpu.name, operation_us, "plan" if trial.level == "all" else "algorithms")
        assert error is not None
        taken, told = int(trial.name.endswith(RECOMMENDED)), (predicted, error.expected(predicted), error.limit)
        made.append(Answer(trial.workload, trial.level, taken, *told))
    return made


# ---- measured --------------------------------------------------------------------------------------------------------


def rotated(lines: Sequence[str], n: int) -> list[str]:
    """The plans of each workload one after the other, each workload's from its ``n``-th on."""
    of = grouped(lines, lambda line: line.split()[0])
    return [line for mine in of.values() for line in (*mine[n % len(mine) :], *mine[: n % len(mine)])]


def measure(test: str) -> None:
    """Run the plans of a test on this machine's GPU: in each round all of them, in another order."""
    plans, printed = plans_of(test).read_text(encoding="utf-8").splitlines(), list[dict[str, str]]()
    with tempfile.TemporaryDirectory() as folder:
        program, path = BuiltProgram(Path(folder)), Path(folder) / "plans.txt"
        for n in range(ROUNDS):
            path.write_text("".join(f"{line}\n" for line in rotated(plans, n)), encoding="utf-8")
            rows = csv.DictReader(condensed(program.printed("plans", CALLS, path)))
            printed += [{"round": str(n), **row} for row in rows]
    write_table(measured_of(test), to_csv(TITLES, printed))


def measured_us(test: str) -> dict[tuple[str, str], list[list[float]]]:
    """Measured makespans by workload and plan: for each round one for each turn of CUDA's streams, us."""
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in lines(measured_of(test)):
        rounds = found.setdefault((row["name"], row["plan"]), {})
        rounds.setdefault(row["round"], []).append(float(row["ms_makespan"]) * 1e3)
    return {key: list(rounds.values()) for key, rounds in found.items()}


# ---- scored ----------------------------------------------------------------------------------------------------------


def all_rows(earlier_us: Mapping[str, Mapping[Identity, float]]) -> list[Fresh]:
    """Every plan of each test, predicted and measured.

    Args:
        earlier_us: makespans of plans in the earlier measurement on a GPU, us.
    """
    return [row for test in TESTS for row in _rows(test, earlier_us.get(GPUS[test], {}))]


def _rows(test: str, earlier_us: Mapping[Identity, float]) -> Iterator[Fresh]:
    session, times = session_on(GPUS[test]), measured_us(test)
    made: list[Answer] = from_csv(Answer, answers_of(test)) if answers_of(test).exists() else []
    answers = {(one.workload, one.level): one for one in made}
    for workload, mine in grouped(read(plans_of(test), session), lambda trial: trial.workload).items():
        operation_us = mean_alone_us(*known(workload, session))
        plain, predicted_us = times[workload, NOTHING], expected_us(mine[0], session)
        earlier_plain_us = earlier_us.get(identity(mine[0]), nan)
        steps = [trial for trial in mine if trial.name.endswith(RECOMMENDED)] or mine[:1]
        for trial in mine:
            us, rounds = expected_us(trial, session), times[workload, trial.name]
            gains = [gain(mean(first), mean(one)) for first, one in zip(plain, rounds, strict=True)]
            answer = answers.get((workload, trial.level))
            told = (answer.predicted_gain, answer.expected_gain, answer.limit) if answer else (nan, nan, nan)
            yield Fresh(
                test,
                GPUS[test],
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
                operation_us,
                *told,
            )


def identity(trial: Trial) -> Identity:
    """A key that is equal for equal plans of a workload, their streams in any order."""
    return trial.workload, trial.sharing, trial.plan.streams, tuple(sorted(trial.plan.algorithms.items()))


def _middle(rounds: Sequence[Sequence[float]]) -> float:
    """Mean over turns of the median over rounds."""
    return mean([median(turn) for turn in zip(*rounds, strict=True)])


if __name__ == "__main__":
    write(sys.argv[1])
