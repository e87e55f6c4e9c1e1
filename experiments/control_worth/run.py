"""What control over a GPU is worth, level by level: `python experiments/control_worth/run.py [--out DIR]`.

Plans for modules, pairs of programs and networks, each chosen at one level of control (`plans.py`), were run on an
H100: `measured_h100-sxm.csv.gz`. This predicts every plan with the model as it is from recordings of an H200, takes for
each workload and level the plan that it predicts best, and compares its gain over plain streams with the measured one.
What `gpusim select` recommends was measured again, later, on an H100 and an H200 (`fresh.py`). It prints the main
tables and writes README.md, result.csv, fresh.csv, kernels.csv and gains.png beside itself (or to DIR).
`kernels.csv` has pairs of BF16 kernels that were measured for experiments/unseen_kernels.

    python experiments/control_worth/run.py --measure   # run the plans on this machine's GPU (an H100)
    python experiments/control_worth/run.py --fresh     # run those of the first fresh test; --second, --third (an H200)
    python experiments/control_worth/run.py --errors    # the error of chosen plans that `gpusim select` prints
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from math import fsum
from pathlib import Path

from experiments import chosen_errors
from experiments.chosen_errors import Evidence
from experiments.control_worth import expected, fresh, fresh_report, kernels, programs, report
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
from experiments.hardware_check import run as hardware_check
from experiments.plans import condensed, makespans_us, medians
from experiments.study import Run, Study
from gpusim.choose.chosen import ChoiceKind
from gpusim.choose.moves import mean_alone_us
from gpusim.common.files import write_table
from gpusim.common.tables import print_line
from gpusim.lab.record.program import BuiltProgram
from gpusim.session import Session

GPU, OTHER_GPU = "h100-sxm", "h200"
PLANS, CALLS, MEASURED = HERE / f"plans_{GPU}.txt", HERE / "calls.txt", HERE / f"measured_{GPU}.csv.gz"
QUOTAS = ("even", "warped-slicer")  # policies that mix blocks of several streams on an SM
RUNS = 5  # of the program
KINDS: dict[str, ChoiceKind] = {"all": "plan", "algorithms": "algorithms", "order": "order"}  # of choice, by level


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
        program = BuiltProgram(Path(folder))
        printed = [list(program.printed("plans", CALLS, PLANS)) for _ in range(RUNS)]
    write_table(MEASURED, "".join(condensed("".join(medians(printed)).splitlines())))


def write_errors() -> None:
    """Write the error of chosen plans on each GPU for `gpusim select`, from the tables of the studies."""
    found, again, _ = STUDY.read()
    chosen_errors.write_errors(evidence(found, again))


def evidence(rows: Sequence[Row], again: Sequence[Fresh]) -> dict[str, Evidence]:
    """Chosen plans that were measured, by GPU."""
    return {gpu: evidence_of(gpu, rows, again) for gpu in (GPU, OTHER_GPU)}


def evidence_of(gpu: str, rows: Sequence[Row], again: Sequence[Fresh]) -> Evidence:
    """Chosen plans that were measured on a GPU, by kind of choice: an error belongs to the GPU that showed it.

    On the H100 these are the choices of each level and of the fresh tests; on the H200 those of its fresh test and of
    experiments/hardware_check.
    """
    if gpu == GPU:
        earlier = {level: [row.point for row in report.chosen(rows, level).values()] for level in KINDS}
    else:
        earlier = {"all": hardware_check.points(*hardware_check.STUDY.read())}
    return {
        kind: [*earlier.get(level, ()), *(row.point for row in again if (row.gpu, row.level) == (gpu, level))]
        for level, kind in KINDS.items()
    }


def earlier_us() -> dict[fresh.Identity, float]:
    """Measured makespans of the plans whose streams one flag releases, on the H100, us."""
    measured = makespans_us(MEASURED)
    found: dict[fresh.Identity, float] = {}
    for trial in read(PLANS, session_on(GPU)):
        found.setdefault(fresh.identity(trial), report.mean(measured[trial.workload, trial.name]))
    return found


def rows(run: Run) -> dict[str, list[Row] | list[Fresh]]:
    """Every plan; prints what each level gains, the plans of `gpusim select`, and their fresh test."""
    found, again = all_rows(), fresh.all_rows({GPU: earlier_us()})
    known = evidence(found, again)
    tables = [
        report.level_table(found),
        report.select_table(report.recommended(found, known[GPU])),
        *map(expected.table_of, known.values()),
    ]
    tables += [fresh_report.choice_table(fresh_report.cases(again, test)) for test in fresh.TESTS]
    for made in tables:
        for line in (*made.splitlines(), ""):
            print_line(line)
    return {"result.csv": found, "fresh.csv": again, "kernels.csv": list(kernels.rows())}


def page(rows: Sequence[Row], again: Sequence[Fresh], of_kernels: Sequence[Row]) -> dict[str, object]:
    """What the page says."""
    known = evidence(rows, again)
    here, other = (expected.page(known[gpu], [row for row in again if row.gpu == gpu]) for gpu in (GPU, OTHER_GPU))
    numbers = report.page(rows, known[GPU]) | fresh_report.page(again, fresh.TESTS) | programs.page() | here
    numbers |= kernels.page(of_kernels) | report.size_of_errors([*rows, *of_kernels], kernels.LEVELS)
    return numbers | {f"{OTHER_GPU}_{name}": value for name, value in other.items()}


def draw(rows: Sequence[Row], again: Sequence[Fresh], of_kernels: Sequence[Row], path: Path) -> None:
    """The picture, of the plans of all levels."""
    report.draw(rows, path)


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Row, "fresh.csv": Fresh, "kernels.csv": Row},
    rows,
    page,
    {"gains.png": draw},
    {
        "measure": (run_plans, "run the plans on this machine's GPU: measured_h100-sxm.csv.gz"),
        **{
            test: (partial(fresh.measure, test), f"run the plans of the {test} test: {fresh.measured_of(test).name}")
            for test in fresh.TESTS
        },
        "errors": (write_errors, "write the error of chosen plans that `gpusim select` prints"),
    },
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
