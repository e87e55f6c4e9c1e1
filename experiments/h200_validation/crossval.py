"""Constants fitted on one part of the networks, scored on the other.

Fits start from `START`, not from the constants that ship, and go through `CONSTANTS` one after the other, twice,
keeping of each the value of its grid that scores best on a few ops of the part. Nothing else of the model is fitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum

from experiments.h200_validation.tables import write_csv
from experiments.h200_validation.variants import GPU_NAME, HERE, OWN, Task, predictions, present_model
from gpusim.hardware.gpu import load_gpu
from gpusim.lab.scores import Scored, summaries
from gpusim.lab.validate import Condition, conditions, measurements

Constants = Mapping[str, float]  # of the GPU file's [model]
CONSTANTS: Mapping[str, tuple[float, ...]] = {
    "sustained_issue_share": (0.85, 0.9, 0.95),
    "waiting_turn_share": (0.0, 0.25, 0.5, 0.75, 1.0),
    "dram_sustained_gb_per_s": (4000.0, 4300.0, 4600.0),
    "l2_sustained_share": (0.75, 0.88, 0.97),
    "l2_atomic_gb_per_s": (2000.0, 3000.0, 9000.0),
    "block_jitter": (0.01, 0.02, 0.03),
}
START: Constants = {name: grid[0] for name, grid in CONSTANTS.items()}
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
    shipped = load_gpu(GPU_NAME).model.model_dump()
    found = {"shipped": {name: shipped[name] for name in CONSTANTS}} | {part: fit(part) for part in TRAINING}
    write_csv(
        HERE / "fitted.csv",
        ["constant", "start", *found, "model"],
        [
            {"constant": name, "start": START[name], "model": present_model()} | {by: found[by][name] for by in found}
            for name in CONSTANTS
        ],
    )
    dataset = OWN.load()
    known, measured = conditions(dataset), measurements(dataset)
    scores = [(by, part) for by in found for part in SCORING]
    tasks = [Task("model", OWN, tuple(chosen(known, part, SCORING[part])), found[by]) for by, part in scores]
    lines = [
        {
            "fitted_on": by,
            "scored_on": part,
            "experiment": one.experiment,
            "points": one.points,
            "mape_percent": one.mape_percent,
            "rank_correlation": one.rank_correlation,
            "regret_percent": one.regret_percent,
            "model": present_model(),
        }
        for (by, part), rows in zip(scores, predictions("cross_validation", tasks), strict=True)
        for one in summaries(rows, measured)
    ]
    write_csv(HERE / "cross_validation.csv", list(lines[0]), lines)


def fit(part: str) -> Constants:
    """The constants that score best on a few ops of a part, by coordinate search over coarse grids."""
    wanted = tuple(chosen(conditions(OWN.load()), part, TRAINING[part], FITTED_ON))
    scores: dict[tuple[float, ...], float] = {}
    best = START
    for n in range(ROUNDS):
        for name, grid in CONSTANTS.items():
            trials = {tuple(trial.values()): trial for trial in ({**best, name: value} for value in grid)}
            new = {key: trial for key, trial in trials.items() if key not in scores}
            tasks = [Task("model", OWN, wanted, trial) for trial in new.values()]
            for key, rows in zip(new, predictions(f"fit-{part}-{n}-{name}", tasks), strict=True):
                scores[key] = mean_error(rows)
            best = trials[min(trials, key=scores.__getitem__)]
    return best


def mean_error(rows: Sequence[Scored]) -> float:
    """Mean over the experiments of their mean absolute errors, percent."""
    found = summaries(rows, {})
    return fsum(one.mape_percent for one in found) / len(found)
