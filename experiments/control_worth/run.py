"""What control over a GPU is worth, level by level: `python experiments/control_worth/run.py [--out DIR]`.

Plans for modules, pairs of programs and networks, each chosen at one level of control (`plans.py`), were run on an
H100: `measured_h100-sxm.csv.gz`. This predicts every plan with the model as it is from recordings of an H200, takes for
each workload and level the plan that it predicts best, and compares its gain over plain streams with the measured one.
What `gpusim select` recommends was measured again, later (`fresh.py`). It prints the main tables and writes README.md,
result.csv, fresh.csv and gains.png beside itself (or to DIR).

    python experiments/control_worth/run.py --measure   # run the plans on this machine's GPU (an H100)
    python experiments/control_worth/run.py --fresh     # run those of the fresh tests
    python experiments/control_worth/run.py --errors    # the error of chosen plans that `gpusim select` prints
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import fsum
from pathlib import Path

from experiments import chosen_errors
from experiments.chosen_errors import Evidence, Point
from experiments.control_worth import expected, fresh, fresh_report, report
from experiments.control_worth.fresh_report import Fresh
from experiments.control_worth.plans import (
    HERE,
    NOTHING,
    WORKLOADS,
    Trial,
    expected_us,
    known,
    read,
    session_on,
)
from experiments.control_worth.report import Row
from experiments.plans import condensed, makespans_us, medians
from experiments.study import Run, Study
from gpusim.choose.chosen import Kind
from gpusim.choose.moves import mean_alone_us
from gpusim.common.files import write_table
from gpusim.common.tables import print_line
from gpusim.lab.record.program import Program
from gpusim.session import Session

GPU = "h100-sxm"
PLANS, CALLS, MEASURED = HERE / f"plans_{GPU}.txt", HERE / "calls.txt", HERE / f"measured_{GPU}.csv.gz"
QUOTAS = ("even", "warped-slicer")  # policies that mix blocks of several streams on an SM
RUNS = 5  # of the program


def all_rows() -> list[Row]:
    """Every plan, predicted and measured; quotas on an SM, which no GPU offers, predicted only."""
    session, measured = session_on(GPU), makespans_us(MEASURED)
    by_workload: dict[str, list[Trial]] = {name: [] for name in WORKLOADS}
    for trial in read(PLANS, session):
        by_workload[trial.workload].append(trial)
    return [row for workload, trials in by_workload.items() for row in _rows(workload, trials, session, measured)]


def _rows(
    workload: str, trials: Sequence[Trial], session: Session, measured: dict[tuple[str, str], list[float]]
) -> Iterable[Row]:
    predicted = {trial.name: expected_us(trial, session) for trial in trials}
    plain = next(trial for trial in trials if trial.name == NOTHING)
    for trial in trials:
        times = measured[workload, trial.name]
        yield _row(trial, predicted[trial.name], times, predicted[NOTHING], measured[workload, NOTHING])
    for policy in QUOTAS if workload not in report.NETWORK_BATCH and len(plain.plan.lanes) > 1 else ():
        trial = replace(plain, name=f"quotas:{policy}", plan=replace(plain.plan, policy=policy))
        yield _row(trial, expected_us(trial, session), [], predicted[NOTHING], measured[workload, NOTHING])


def _row(trial: Trial, us: float, times: Sequence[float], plain_us: float, plain: Sequence[float]) -> Row:
    measured = fsum(times) / len(times) if times else 0.0
    return Row(
        trial.workload,
        trial.level,
        trial.name.split(":")[1],
        trial.sharing,
        us,
        measured,
        min(times, default=0.0),
        max(times, default=0.0),
        report.gain(plain_us, us),
        report.gain(report.mean(plain), measured) if times else 0.0,
        mean_alone_us(*known(trial.workload, session_on(GPU))),
    )


def run_plans() -> None:
    """Run the plans on this machine's GPU."""
    with tempfile.TemporaryDirectory() as folder:
        program = Program(Path(folder))
        printed = [list(program.printed("plans", CALLS, PLANS)) for _ in range(RUNS)]
    write_table(MEASURED, "".join(condensed("".join(medians(printed)).splitlines())))


def write_errors() -> None:
    """Write the error of chosen plans on this GPU for `gpusim select`, from the rows beside the script."""
    chosen_errors.write_errors(GPU, evidence(*STUDY.read()))


def evidence(rows: Sequence[Row], again: Sequence[Fresh]) -> Evidence:
    """Chosen plans that were measured, by kind of choice: those of each level, and those of the fresh tests."""
    levels: dict[str, Kind] = {"all": "plan", "algorithms": "algorithms", "order": "order"}
    made: dict[Kind, list[Point]] = {kind: [] for kind in levels.values()}
    for level, kind in levels.items():
        of_level = (one for one in again if one.level == level)
        made[kind] += [row.point for row in (*report.chosen(rows, level).values(), *of_level)]
    return made


def earlier_us() -> dict[fresh.Identity, float]:
    """Measured makespans of the plans whose streams one flag releases, us."""
    measured = makespans_us(MEASURED)
    found: dict[fresh.Identity, float] = {}
    for trial in read(PLANS, session_on(GPU)):
        found.setdefault(fresh.identity(trial), report.mean(measured[trial.workload, trial.name]))
    return found


def rows(run: Run) -> dict[str, list[Row] | list[Fresh]]:
    """Every plan; prints what each level gains, the plans of `gpusim select`, and their fresh test."""
    found, again = all_rows(), fresh.all_rows(earlier_us())
    known = evidence(found, again)
    tables = [
        report.level_table(found),
        report.select_table(report.recommended(found, known)),
        expected.table_of(known),
    ]
    tables += [fresh_report.choice_table(fresh_report.cases(again, test)) for test in fresh.TESTS]
    for made in tables:
        for line in (*made.splitlines(), ""):
            print_line(line)
    return {"result.csv": found, "fresh.csv": again}


def page(rows: Sequence[Row], again: Sequence[Fresh]) -> dict[str, object]:
    """What the page says."""
    known = evidence(rows, again)
    return report.page(rows, known) | expected.page(known, again) | fresh_report.page(again, fresh.TESTS)


def draw(rows: Sequence[Row], again: Sequence[Fresh], path: Path) -> None:
    """The picture, of the plans of all levels."""
    report.draw(rows, path)


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Row, "fresh.csv": Fresh},
    rows,
    page,
    {"gains.png": draw},
    {
        "measure": (run_plans, "run the plans on this machine's GPU: measured_h100-sxm.csv.gz"),
        "fresh": (fresh.measure, "run the plans of the fresh tests: fresh_h100-sxm.csv.gz, second_h100-sxm.csv.gz"),
        "errors": (write_errors, "write the error of chosen plans that `gpusim select` prints"),
    },
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
