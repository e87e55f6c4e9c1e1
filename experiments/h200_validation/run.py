"""How far off the model is on a real H200: `python experiments/h200_validation/run.py [--all]`.

Without flags: predicts all of data/, writes accuracy.csv, misses.csv, the pictures, and gpusim/validated.json, which
`gpusim replay` quotes. `--ablation` scores the model with one mechanism after the other switched off (ablation.csv),
`--cross-validation` fits its constants on one part of the networks and scores them on the other
(cross_validation.csv, fitted.csv), `--all` does everything. Every run then writes the tables into README.md and
docs/model.md. What was predicted is kept under .cache/, so a run that was interrupted goes on where it stopped, and
what is unchanged is not predicted again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path

from crossval import cross_validate
from pictures import draw_scatter, draw_staircases
from tables import documents, misses, write_csv
from variants import (
    ABLATION,
    CACHE,
    DATA,
    DESIGNS,
    GPU_NAME,
    HERE,
    ROOT,
    Variant,
    cached,
    kept,
    run_variant,
)

from gpusim.files import atomic_write
from gpusim.gpu import load_gpu
from gpusim.io.dataset import Dataset
from gpusim.validate import Condition, Scored, Summary, conditions, measurements, summaries

STRIDES = {"sm_curve": 6, "residency_curve": 3, "streams": 5, "streams_b_first": 5, "green": 5}  # of others: 2
PARTS = os.cpu_count() or 1


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for and refreshes the documents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--ablation", action="store_true", help="the model without one mechanism after the other")
    parser.add_argument("--cross-validation", action="store_true", help="constants fitted on one part of the networks")
    parser.add_argument("--all", action="store_true", help="accuracy, ablation and cross-validation")
    parser.add_argument("--documents", action="store_true", help="only put the tables at hand into the documents")
    args = parser.parse_args(argv)
    CACHE.mkdir(exist_ok=True)
    plain = not (args.ablation or args.cross_validation or args.documents)
    if plain or args.all:
        accuracy()
    if args.ablation or args.all:
        ablation()
    if args.cross_validation or args.all:
        cross_validate()
    documents()
    return 0


# ---- accuracy --------------------------------------------------------------------------------------------------------


def accuracy() -> None:
    """Predict everything; write the table, what is missed most, the pictures and what replays quote."""
    dataset = Dataset(DATA, load_gpu(GPU_NAME))
    rows = everything(dataset)
    found = summaries(rows, measurements(dataset))
    write_csv(HERE / "accuracy.csv", [field.name for field in fields(Summary)], [asdict(one) for one in found])
    misses(dataset, rows)
    validated = {GPU_NAME: {one.experiment: round(one.mape_percent, 2) for one in found}}
    with atomic_write(ROOT / "gpusim" / "validated.json") as file:
        file.write(json.dumps(validated, indent=2) + "\n")
    draw_scatter(rows, found, HERE / "accuracy.png")
    draw_staircases(rows, HERE / "staircases.png")


def everything(dataset: Dataset) -> list[Scored]:
    """Rows of the model on all conditions, one part of the ops a process."""
    wanted = conditions(dataset)
    parts = {f"all{i}of{PARTS}": part for i, part in enumerate(by_op(wanted, PARTS))}
    paths = {name: cached("model", name) for name in parts}
    run_all([("model", paths[name], part) for name, part in parts.items()])
    rows = {(row.experiment, row.key): row for path in paths.values() for row in kept(path)}
    return [rows[name] for condition in wanted for name in row_names(condition)]


def row_names(condition: Condition) -> list[tuple[str, str]]:
    """Experiment and key of the rows that a condition gives."""
    names = ("quota_a", "quota_b") if condition.experiment == "quota" else (condition.experiment,)
    return [(name, condition.key) for name in names]


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


def run_all(tasks: Sequence[tuple[str, Path, list[Condition]]]) -> None:
    """Predict what is not kept yet, each task in a fresh process: patches must not meet."""
    left = [task for task in tasks if not task[1].is_file()]
    with ProcessPoolExecutor(PARTS, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for name in pool.map(run_variant, left):
            print(f"predicted: {name}", file=sys.stderr, flush=True)


# ---- ablation --------------------------------------------------------------------------------------------------------


def sample(wanted: Sequence[Condition]) -> list[Condition]:
    """Every so many-th op, pair or module: what the variants are scored on."""
    groups: dict[str, dict[str, int]] = {}
    found = []
    for condition in wanted:
        stride = STRIDES.get(condition.experiment, 2)
        key = "|".join(condition.key.split("|")[: 4 if len(condition.ops) > 1 else 1])
        known = groups.setdefault("pairs" if len(condition.ops) > 1 else condition.experiment, {})
        if known.setdefault(key, len(known)) % stride == 0:
            found.append(condition)
    return found


def ablation() -> None:
    """Score every variant on the sample."""
    dataset = Dataset(DATA, load_gpu(GPU_NAME))
    wanted = sample(conditions(dataset))
    variants = (*ABLATION, *DESIGNS)
    paths = [(variant, cached(variant.name, f"sample{len(wanted)}")) for variant in variants]
    run_all([(variant.name, path, wanted) for variant, path in paths])
    measured = measurements(dataset)
    lines = [line for variant, path in paths for line in variant_lines(variant, kept(path), measured)]
    write_csv(HERE / "ablation.csv", list(lines[0]), lines)


def variant_lines(
    variant: Variant, rows: Sequence[Scored], measured: Mapping[tuple[str, str], float]
) -> list[dict[str, object]]:
    """One line an experiment: how a variant scores."""
    kind = "design" if variant in DESIGNS else "off"
    return [
        {
            "variant": variant.name,
            "kind": kind,
            "title": variant.title,
            "experiment": one.experiment,
            "points": one.points,
            "mape_percent": one.mape_percent,
            "bias_percent": one.bias_percent,
            "rank_correlation": one.rank_correlation,
            "regret_percent": one.regret_percent,
        }
        for one in summaries(rows, measured)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
