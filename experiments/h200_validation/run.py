"""How far off the model is on a real H200: `python experiments/h200_validation/run.py [--all]`.

Without flags: predicts data/ and writes accuracy.csv, misses.csv and the pictures; then does what `--bands` does
alone: predicts data/ and the datasets in it, those of the H100 from its own recordings and from the H200's, BF16
kernels and whole models (experiments/recordings/transformer, and ../shared where it is there), calls and programs of
new kinds (experiments/unseen_kernels, unseen_programs), and writes gpusim/results/validated.json, which `gpusim replay`
quotes, datasets.csv, resources.csv and arithmetic.csv, without the new kinds.
`--matrix` puts the errors of experiments/resource_matrix, as its tables are, into datasets.csv. `--scaling` predicts
data/ and kernels of PyTorch with two scaling points and writes scaling.csv.
`--ablation` scores the model with one mechanism after the other switched off (ablation.csv) on all sets of
measurements, whole models and the resource matrix among them; of huge sets on a sample (sets.py). `--cross-validation`
fits its constants on one part of the networks and scores them on the other (cross_validation.csv, fitted.csv),
`--all` does everything. Every run then writes the tables into README.md, evidence.md and docs/model.md. What was
predicted is kept under .cache/, so a run that was interrupted goes on where it stopped, and what is unchanged is not
predicted again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, fields, replace
from functools import cache
from math import fsum
from pathlib import Path

import numpy as np

from experiments.h200_validation.ablation import ablation
from experiments.h200_validation.bands import bands
from experiments.h200_validation.crossval import cross_validate
from experiments.h200_validation.pictures import draw_scatter, draw_staircases
from experiments.h200_validation.tables import MATRIX, cell, documents, misses, write_csv
from experiments.h200_validation.variants import (
    HERE,
    MODELS,
    OWN,
    PROCESSES,
    QUOTED,
    SCALING,
    TRANSFORMER,
    Task,
    cases_of,
    data_digest,
    frameworks,
    loaded,
    models_of,
    predictions,
    present_model,
)
from experiments.rows import lines as read_csv
from experiments.unseen_kernels import run as unseen_kernels
from experiments.unseen_programs import run as unseen_programs
from gpusim.common.files import write_text
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.dataset import Dataset
from gpusim.lab.scores import SUMMARY_FIELDS, Scored, Summary, choice, summaries
from gpusim.lab.scoring import row_names
from gpusim.lab.validate import Case, Condition, conditions, measurements
from gpusim.lab.whole_models import measured_alone, predictor, score_models
from gpusim.lab.whole_models import models_of as models_of_row
from gpusim.results.error_band import OF_PROGRAMS, VALIDATED, Calls, calls_of, model_identity

UNSEEN_CALLS, UNSEEN_PROGRAMS = unseen_kernels.CASES[unseen_kernels.COUNTED], unseen_programs.SEEN
QUOTED_AS = {"quota_a": "quota", "quota_b": "quota", "streams_b_first": "streams"}  # experiments that share alike


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for and refreshes the documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--ablation", action="store_true", help="the model without one mechanism after the other")
    parser.add_argument("--cross-validation", action="store_true", help="constants fitted on one part of the networks")
    parser.add_argument("--bands", action="store_true", help="only what replays quote: gpusim/results/validated.json")
    parser.add_argument("--matrix", action="store_true", help="the resource matrix's errors: datasets.csv")
    parser.add_argument("--scaling", action="store_true", help="what two scaling points buy: scaling.csv")
    parser.add_argument("--all", action="store_true", help="all of these")
    parser.add_argument("--documents", action="store_true", help="only put the tables at hand into the documents")
    args = parser.parse_args(argv)
    steps = (args.ablation, args.cross_validation, args.documents, args.bands, args.scaling, args.matrix)
    plain = not any(steps)
    if plain or args.all:
        accuracy()
    if plain or args.all or args.bands:
        write_bands()
    if plain or args.all or args.bands or args.matrix:
        add_matrix()
    if args.scaling or args.all:
        scaling()
    if args.ablation or args.all:
        ablation()
    if args.cross_validation or args.all:
        cross_validate()
    documents()
    return 0


# ---- accuracy --------------------------------------------------------------------------------------------------------


def accuracy() -> None:
    """Predict data/; write the table, what is missed most and the pictures."""
    rows, dataset = everything(OWN), loaded(OWN)
    found = summaries(rows, measurements(dataset))
    write_csv(HERE / "accuracy.csv", [field.name for field in fields(Summary)], [asdict(one) for one in found])
    misses(dataset, rows)
    draw_scatter(rows, found, HERE / "accuracy.png")
    draw_staircases(rows, HERE / "staircases.png")


def write_bands() -> None:
    """Predict all datasets and whole models; write what replays quote, and the tables of all of them."""
    content: dict[str, dict[str, object]] = {}
    lines: list[dict[str, object]] = []
    resources: list[dict[str, object]] = []
    every: list[Case] = []
    for (gpu, source), quoted in QUOTED.items():
        cases = cases_of(gpu, source)
        points = [point for case in cases for point in scored_work(case)]
        points += [point for case in models_of(gpu) if gpu == source for point in program_work(case)]
        unseen = unseen_work(gpu) if gpu == source else []
        model = model_identity(load_gpu(gpu), load_gpu(source))
        sizes = [(name, work, abs(error)) for name, work, error in (*points, *unseen)]
        content.setdefault(gpu, {})[source] = {"model": model, "data": data_digest(quoted), **bands(sizes)}
        lines += [{"gpu": gpu, "recorded_on": source} | line for line in arithmetic_lines(points)]
        resources += [{"gpu": gpu, "recorded_on": source} | line for line in resource_lines([*points, *unseen])]
        every += cases
    write_text(VALIDATED, json.dumps(content, indent=1) + "\n")
    errors = score_lines([*every, UNSEEN_CALLS], models=(*MODELS, *(one.case for one in UNSEEN_PROGRAMS)))
    for name, table in (("datasets", errors), ("arithmetic", lines), ("resources", resources)):
        write_csv(HERE / f"{name}.csv", list(table[0]), table)


def add_matrix() -> None:
    """Put the errors of the resource matrix, as its table has them, into the table of all datasets."""
    from experiments.resource_matrix.run import STUDY

    points, _ = STUDY.read()
    known = [line for line in read_csv(HERE / "datasets.csv") if line["dataset"] != MATRIX]
    for gpu in dict.fromkeys(point.gpu for point in points):
        rows = [
            Scored(
                f"matrix_{one.placement}", f"{one.kernel}|{one.beside}|{one.order}", one.predicted, one.measured, 1.0
            )
            for one in points
            if one.gpu == gpu
        ]
        about = {"dataset": MATRIX, "gpu": gpu, "recorded_on": gpu, "scaling": ""}
        known += [about | {name: cell(value) for name, value in asdict(one).items()} for one in summaries(rows, {})]
    write_csv(HERE / "datasets.csv", list(known[0]), known)


def resource_lines(points: Sequence[tuple[str, Calls, float]]) -> list[dict[str, object]]:
    """Errors of each experiment by the resource that binds the kernels that take most of the time."""
    found: dict[tuple[str, str], list[float]] = {}
    for experiment, work, error in points:
        found.setdefault((experiment, work.bound), []).append(error)
    return [
        {
            "experiment": experiment,
            "bound_by": bound,
            "points": len(errors),
            "mape_percent": fsum(map(abs, errors)) / len(errors),
            "bias_percent": fsum(errors) / len(errors),
            "p95_percent": percentile(errors),
        }
        for (experiment, bound), errors in sorted(found.items())
    ]


def percentile(errors: Sequence[float]) -> float:
    """The 95th percentile of the sizes of some errors."""
    return float(np.percentile(np.abs(errors), 95))


def arithmetic_lines(points: Sequence[tuple[str, Calls, float]]) -> list[dict[str, object]]:
    """Errors of each experiment, apart for work without kernels on tensor cores and with some."""
    found: dict[tuple[str, bool], list[float]] = {}
    for experiment, work, error in points:
        found.setdefault((experiment, "tensor" in work.kinds), []).append(error)
    return [
        {
            "experiment": experiment,
            "tensor_cores": "some" if tensor else "none",
            "points": len(errors),
            "mape_percent": fsum(map(abs, errors)) / len(errors),
            "bias_percent": fsum(errors) / len(errors),
        }
        for (experiment, tensor), errors in sorted(found.items())
    ]


def scaling() -> None:
    """Predict data/ and kernels of PyTorch without scaling points and with them; write the table of what they buy."""
    cases = [OWN, *frameworks()]
    scaled = [replace(case, scaling=SCALING) for case in cases]
    keys = {(row.experiment, row.key) for case in scaled for row in everything(case)}
    lines = [line | {"model": present_model()} for line in score_lines([*cases, *scaled], keys)]
    write_csv(HERE / "scaling.csv", list(lines[0]), lines)


def score_lines(
    cases: Sequence[Case], keys: Collection[tuple[str, str]] | None = None, models: Sequence[Case] = ()
) -> list[dict[str, object]]:
    """A line for each experiment of each case, of all rows or of those with some keys; of whole models all rows."""
    lines = []
    for case in cases:
        rows = [row for row in everything(case) if keys is None or (row.experiment, row.key) in keys]
        made = [*summaries(rows, measurements(loaded(case))), *filter(None, [choice(rows)])]
        about = {"dataset": name_of(case.folder), "gpu": case.gpu, "recorded_on": case.recorded_on or case.gpu}
        about["scaling"] = " ".join(map(str, case.scaling))
        lines += [about | dict.fromkeys(SUMMARY_FIELDS) | asdict(one) for one in made]
    for model in models:
        if Path(model.folder).is_dir():
            rows = models_scored(model)
            about = {"dataset": name_of(model.folder), "gpu": model.gpu, "recorded_on": model.gpu, "scaling": ""}
            lines += [about | asdict(one) for one in summaries(rows, measured_alone(rows))]
    return lines


def name_of(folder: str) -> str:
    """A dataset's name: its folder's, with that of the subject where the folder is named after a GPU or its models."""
    path = Path(folder)
    for one in UNSEEN_PROGRAMS:
        if path == one.folder:
            return f"unseen_programs, {one.name}"
    if path == Path(UNSEEN_CALLS.folder):
        return path.parent.name
    if TRANSFORMER in (path, path.parent):
        return "transformer models" if path.name == "models" else "transformer"
    return path.name


@cache
def models_scored(case: Case) -> list[Scored]:
    """Rows of whole models."""
    return score_models(case)


def unseen_work(gpu: str) -> list[tuple[str, Calls, float]]:
    """The same of kernels and programs of new kinds that were recorded on a GPU."""
    calls = scored_work(UNSEEN_CALLS) if gpu == UNSEEN_CALLS.gpu else []
    return [*calls, *(point for one in UNSEEN_PROGRAMS if one.gpu == gpu for point in program_work(one.case))]


def program_work(case: Case) -> list[tuple[str, Calls, float]]:
    """Experiment, work and error in percent of every row of whole models."""
    known, gpu = predictor(case), load_gpu(case.gpu)
    found = []
    for row in models_scored(case):
        made = [((launch,), 1) for model in models_of_row(row) for launch in known.launches(model)]
        experiment = OF_PROGRAMS["modules_serial" if row.experiment == "isolated" else row.experiment]
        found.append((experiment, calls_of(made, gpu), 100.0 * (row.predicted_ms / row.measured_ms - 1.0)))
    return found


def scored_work(case: Case) -> list[tuple[str, Calls, float]]:
    """Experiment, work and error in percent (above 0: predicted too long) of everything scored in a case."""
    dataset = loaded(case)
    work = {name: work_in(dataset, condition) for condition in conditions(dataset) for name in row_names(condition)}
    return [
        (
            QUOTED_AS.get(row.experiment, row.experiment),
            work[row.experiment, row.key],
            100.0 * (row.predicted_ms / row.measured_ms - 1.0),
        )
        for row in everything(case)
    ]


def work_in(dataset: Dataset, condition: Condition) -> Calls:
    """The calls of a condition, as recorded."""
    calls = condition.calls if len(condition.calls) == len(condition.ops) else (1,) * len(condition.ops)
    recordings = dataset.recordings
    made = [(recordings.op(op).kernels, n) for ops, n in zip(condition.ops, calls, strict=True) for op in ops]
    return calls_of(made, recordings.gpu)


@cache
def everything(case: Case) -> list[Scored]:
    """Rows of the model on all conditions of a case, one part of the ops a process."""
    wanted = conditions(loaded(case))
    name = "-".join((Path(case.folder).name, case.gpu, case.recorded_on or case.gpu, *map(str, case.scaling)))
    found = predictions(name, [Task("model", case, tuple(part)) for part in by_op(wanted, PROCESSES) if part])
    rows = {(row.experiment, row.key): row for part in found for row in part}
    return [rows[name] for condition in wanted for name in row_names(condition)]


def by_op(wanted: Sequence[Condition], count: int) -> list[list[Condition]]:
    """Conditions in so many parts of about equal work; conditions of the same first op stay together."""
    parts: list[list[Condition]] = [[] for _ in range(count)]
    groups: dict[str, list[Condition]] = {}
    for condition in wanted:
        groups.setdefault(condition.ops[0][0], []).append(condition)
    work = [0.0] * count
    for group in sorted(groups.values(), key=lambda group: -sum(map(effort, group))):
        least = work.index(min(work))
        parts[least] += group
        work[least] += sum(map(effort, group))
    return parts


def effort(condition: Condition) -> float:
    """Rough relative time to predict a condition."""
    return 10.0 * len(condition.ops) if len(condition.ops) > 1 else 1.0


if __name__ == "__main__":
    raise SystemExit(main())
