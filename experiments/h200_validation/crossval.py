"""Constants fitted on one part of the networks, scored on the other.

Fits start from `START`, not from the constants that ship, and go through `CONSTANTS` one after the other, twice,
keeping of each the value of its grid that scores best on a few ops of the part. Nothing else of the model is fitted.
"""

from __future__ import annotations

import csv
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import fsum
from pathlib import Path

from tables import write_csv
from variants import CACHE, DATA, GPU_NAME, HERE, cached, gpu_of, keep, kept, scored, sources

from gpusim.common.files import atomic_write
from gpusim.hardware.gpu import load_gpu
from gpusim.io.dataset import Dataset
from gpusim.studies.scores import summaries
from gpusim.studies.validate import Condition, conditions, measurements

CONSTANTS: Mapping[str, tuple[float, ...]] = {
    "launch_ramp_us": (0.0, 1.2, 2.3, 3.5),
    "sustained_issue_share": (0.85, 0.9, 0.95),
    "barrier_turn_share": (0.0, 0.5, 1.0),
    "short_scoreboard_turn_share": (0.0, 0.5, 0.75, 1.0),
    "long_scoreboard_turn_share": (0.0, 0.5, 1.0),
    "dram_sustained_gb_per_s": (4000.0, 4300.0, 4600.0),
    "l2_sustained_share": (0.85, 0.97, 1.1),
    "l2_read_gb_per_s": (4500.0, 6000.0, 9000.0),
    "l2_write_gb_per_s": (3500.0, 4400.0, 5000.0, 9000.0),
    "l2_atomic_gb_per_s": (2000.0, 3000.0, 9000.0),
    "block_jitter": (0.01, 0.02, 0.03),
}
START = {name: grid[0] for name, grid in CONSTANTS.items()}
ROUNDS = 2
TRAINING = {"googlenet": 9, "others": 2}  # every so many-th op of a part is fitted on
SCORING = {"googlenet": 3, "others": 1}  # and scored on
FITTED_ON = ("sm_curve", "residency_curve")


def part_of(condition: Condition) -> str:
    """The part that all ops of a condition are from: googlenet, others (ResNet-50 and Li's shapes), else mixed."""
    parts = {"googlenet" if op.startswith("googlenet/") else "others" for ops in condition.ops for op in ops}
    return parts.pop() if len(parts) == 1 else "mixed"


def chosen(wanted: Sequence[Condition], part: str, stride: int, experiments: Sequence[str] = ()) -> list[Condition]:
    """Conditions of every so many-th op or pair of a part."""
    known: dict[str, dict[str, int]] = {}
    found = []
    for condition in wanted:
        if part_of(condition) != part or (experiments and condition.experiment not in experiments):
            continue
        pair = len(condition.ops) > 1
        key = "|".join(condition.key.split("|")[: 4 if pair else 1])
        numbers = known.setdefault("pair" if pair else condition.experiment, {})
        whole = condition.experiment.startswith(("modules", "quota"))
        if numbers.setdefault(key, len(numbers)) % stride == 0 or whole:
            found.append(condition)
    return found


def cross_validate() -> None:
    """Fit on each part, score on both, beside the constants that ship."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        fitted = dict(zip(TRAINING, pool.map(fit, TRAINING), strict=True))
        shipped = load_gpu(GPU_NAME).model.model_dump()
        found = {"shipped": {name: shipped[name] for name in CONSTANTS}} | fitted
        tasks = [(by, constants, part) for by, constants in found.items() for part in SCORING]
        lines = [line for lines in pool.map(score_part, tasks) for line in lines]
    write_csv(
        HERE / "fitted.csv",
        ["constant", "start", *found],
        [{"constant": name, "start": START[name]} | {by: found[by][name] for by in found} for name in CONSTANTS],
    )
    write_csv(HERE / "cross_validation.csv", list(lines[0]), lines)


def score_part(task: tuple[str, Mapping[str, float], str]) -> list[dict[str, object]]:
    """Score constants on a part of the networks. Task: who fitted them, the constants, the part."""
    by, constants, part = task
    dataset = Dataset(DATA, gpu_of(constants))
    name = "-".join(f"{constants[key]:g}" for key in CONSTANTS)
    path = cached(f"fit-{name}", part)
    if not path.is_file():
        keep(scored(dataset, chosen(conditions(dataset), part, SCORING[part])), path)
    return [
        {
            "fitted_on": by,
            "scored_on": part,
            "experiment": one.experiment,
            "points": one.points,
            "mape_percent": one.mape_percent,
            "rank_correlation": one.rank_correlation,
            "regret_percent": one.regret_percent,
        }
        for one in summaries(kept(path), measurements(dataset))
    ]


def fit(part: str) -> dict[str, float]:
    """The constants that score best on a few ops of a part, by coordinate search over coarse grids."""
    path = CACHE / f"fit-{part}-{sources()}.csv"
    known = read_scores(path)
    dataset = Dataset(DATA, load_gpu(GPU_NAME))
    wanted = chosen(conditions(dataset), part, TRAINING[part], FITTED_ON)
    best = dict(START)

    def score(constants: Mapping[str, float]) -> float:
        key = tuple(constants.values())
        if key not in known:
            trial = Dataset(DATA, gpu_of(constants))
            found = summaries(scored(trial, wanted), {})
            known[key] = fsum(one.mape_percent for one in found) / len(found)
            write_scores(path, known)
        return known[key]

    for _ in range(ROUNDS):
        for name, grid in CONSTANTS.items():
            best = min(({**best, name: value} for value in grid), key=score)
    return best


def read_scores(path: Path) -> dict[tuple[float, ...], float]:
    """Scores of an earlier, interrupted fit."""
    if not path.is_file():
        return {}
    with path.open(newline="") as file:
        rows = [[float(cell) for cell in row] for row in csv.reader(file)]
    return {tuple(row[:-1]): row[-1] for row in rows}


def write_scores(path: Path, known: Mapping[tuple[float, ...], float]) -> None:
    """Keep the scores so far."""
    with atomic_write(path) as file:
        csv.writer(file, lineterminator="\n").writerows([*key, score] for key, score in known.items())
