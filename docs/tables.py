"""Tables of pages that are made from the tables of studies: `python docs/refresh.py` writes them between markers.

A page marks such a place with `<!-- begin NAME -->` and `<!-- end NAME -->`, where NAME is one of `TABLES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from experiments.advise.run import STUDY as ADVISE
from experiments.advise.run import error_table
from experiments.markdown import BLOCK, table
from experiments.rows import lines
from experiments.unseen_programs import run as unseen_programs
from gpusim.lab.names import EXPERIMENTS, title
from gpusim.results.runs import BOUND_TITLES

EXPERIMENTS_FOLDER = Path(__file__).resolve().parent.parent / "experiments"
VALIDATION = EXPERIMENTS_FOLDER / "h200_validation"
PARADL = EXPERIMENTS_FOLDER / "paradl"
COPY_BYTES = 128 * 2**20
FITTED = "data"  # the dataset on which the model was fitted

Row = Mapping[str, str]

FAMILIES = {"none": "FP32 kernels", "some": "calls with TF32 kernels (tensor cores)"}
DATASETS = {
    "data": "convolutions, batch 64 and 128",
    "networks": "convolutions of other networks",
    "small": "convolutions, batch 16",
    "layers": "pooling, ReLU, LRN, bias beside convolutions",
    "choices": "modules with random algorithms",
    "h100": "convolutions, batch 64 and 128",
}
PARTS = ("networks", "small", "layers")  # datasets whose calls the families above hold, too
OTHERS = {  # datasets of other kernels
    "transformer": "BF16 kernels of a transformer",
    "h200_frameworks": "kernels of PyTorch",
    "h100_frameworks": "kernels of PyTorch",
    "h200_models": "whole models",
    "transformer models": "whole models",
}
SHARING = {  # title of a column: the experiments that it shows
    "two streams": ("streams", "programs_streams"),
    "branches in streams": ("modules_streams",),
    "SM split": ("green", "programs_green"),
    "blocks of two kernels on one SM": ("quota", "quota_a", "quota_b"),
}
PROGRAMS = "whole programs of new kinds (fresh test, {})"
UNSEEN = {  # what the model had not seen: a study, a recording of it and the group of its scores
    ("unseen_kernels", "as recorded", "all"): ("PyTorch calls of new kinds (fresh test)", "h100-sxm"),
    ("unseen_kernels", "BF16, H200", "all"): ("BF16 kernels of PyTorch (fresh test)", "h200"),
    **{
        ("unseen_programs", one.name, "all"): (PROGRAMS.format(one.name), one.gpu)
        for one in {one.gpu: one for one in unseen_programs.SETS}.values()  # the last of each GPU
    },
}
COUNTED = ("sm_curve", "residency_curve", "streams", "green", "quota_a", "modules_streams")  # in the table of splits


def gpu_of(row: Row) -> str:
    """The GPU of a row, and that of the recordings where it is another."""
    gpu, source = row["gpu"], row["recorded_on"]
    return gpu if gpu == source else f"{gpu}, recorded on {source}"


def errors_by_sharing() -> str:
    """The mean absolute error by kernel family, GPU and kind of sharing."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in lines(VALIDATION / "arithmetic.csv"):
        if row["tensor_cores"] in FAMILIES:
            found.setdefault((FAMILIES[row["tensor_cores"]], gpu_of(row)), []).append(row)
    for row in _scored():
        name = row["dataset"]
        if name in PARTS:
            found.setdefault((f"of these: {DATASETS[name]}", gpu_of(row)), []).append(row)
        elif name in OTHERS:
            found.setdefault((OTHERS[name], gpu_of(row)), []).append(row)
    for (study, recording, group), key in UNSEEN.items():
        first = lines(EXPERIMENTS_FOLDER / study / "first.csv")
        found[key] = [row for row in first if (row["recording"], row["group"]) == (recording, group)]
    titles = ("kernels", "GPU", *SHARING)
    gpus = list(dict.fromkeys(gpu for _, gpu in found))
    mine = sorted(found.items(), key=lambda one: gpus.index(one[0][1]))  # "of these" stands below what it is a part of
    body = [(*key, *(_error(rows, names) for names in SHARING.values())) for key, rows in mine]
    return table(titles, [row for row in body if any(row[2:])])


def errors_by_dataset() -> str:
    """Every experiment of every dataset: points, error of the model and of the baseline, 95th percentile, bias."""
    titles = ("dataset", "GPU", "experiment", "points", "error %", "95th percentile %", "bias %", "baseline %")
    body = [
        (
            f"`{row['dataset']}`",
            gpu_of(row),
            title(row["experiment"]),
            row["points"],
            f"{float(row['mape_percent']):.1f}",
            f"{float(row['p95_percent']):.1f}",
            f"{float(row['bias_percent']):+.1f}",
            f"{float(row['nothing_percent']):.1f}" if row["nothing_percent"] else "",
        )
        for row in _scored()
    ]
    return table(titles, body)


def errors_by_resource() -> str:
    """The error of each kind of sharing by the resource that bounds the kernels."""
    rows = lines(VALIDATION / "resources.csv")
    if not rows:
        return "This table is empty until the next validation."
    titles = ("GPU", "experiment", "bound by", "points", "error %", "95th percentile %", "bias %")
    body = [
        (
            gpu_of(row),
            title(row["experiment"]),
            BOUND_TITLES[row["bound_by"]],
            row["points"],
            f"{float(row['mape_percent']):.1f}",
            f"{float(row['p95_percent']):.1f}",
            f"{float(row['bias_percent']):+.1f}",
        )
        for row in rows
    ]
    return table(titles, body)


def errors_of_programs() -> str:
    """The error of the makespan of two whole programs, by GPU and way of sharing."""
    (rows,) = ADVISE.read()
    return error_table(rows)


def training_accuracy() -> str:
    """The accuracy of the extended oracle of training strategies, by GPUs, and that of the equations alone."""
    measured, without = lines(PARADL / "accuracy.csv"), lines(PARADL / "without.csv")
    found: dict[str, list[float]] = {}
    for row in measured:
        found.setdefault(row["ranks"], []).append(float(row["accuracy_percent"]))
    body = [("extended oracle", ranks, len(of), f"{fmean(of):.1f}") for ranks, of in found.items()]
    alone = float(without[-1]["accuracy_percent"])
    body.append(("equations of ParaDL alone", " and ".join(found), len(measured), f"{alone:.1f}"))
    return table(("prediction", "H200s", "points", "accuracy %"), [tuple(map(str, row)) for row in body])


def two_copies() -> str:
    """The time of two pinned copies at once over that of one, by their directions and GPU."""
    ways = {"h2d_beside_h2d": "the same direction", "h2d_beside_d2h": "two directions"}
    body = []
    for gpu in ("h200", "h100"):
        us = {(row["call"], int(row["bytes"])): float(row["us"]) for row in _host(gpu)}
        one = us["h2d_pinned", 2 * COPY_BYTES] / 2.0
        body += [(gpu, words, f"{us[call, COPY_BYTES] / one:.2f}") for call, words in ways.items()]
    return table(("GPU", "two copies of 128 MiB", "time over one copy"), body)


def _host(gpu: str) -> list[dict[str, str]]:
    return lines(EXPERIMENTS_FOLDER / f"{gpu}_microbench" / "host.csv")


def _benchmark() -> list[Row]:
    """The rows of the datasets that `gpusim score` has."""
    folders = {FITTED, *(path.parent.name for path in VALIDATION.glob("data/*/convolutions.csv"))}
    return [row for row in _scored() if row["dataset"] in folders]


def benchmark_splits() -> str:
    """The datasets of the benchmark, their split and how many conditions each kind of co-run has."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for row in _benchmark():
        found.setdefault((_part(row), gpu_of(row)), {})[row["experiment"]] = row["points"]
    titles = ("dataset", "split", "GPU", "what", *(EXPERIMENTS[name] for name in COUNTED), "two runs differ %")
    body = [
        (
            f"`{name}`",
            "fit" if name == FITTED else "score",
            gpu,
            DATASETS.get(name.split("-")[0], ""),
            *(points.get(experiment, "") for experiment in COUNTED),
            _repeated(VALIDATION / "data" / ("" if name == FITTED else name.split("-")[0])),
        )
        for (name, gpu), points in found.items()
    ]
    return table(titles, body)


def _repeated(folder: Path) -> str:
    """The mean difference of the two measurements of each call of a dataset, percent."""
    runs = [(row["ms_stream_run1"], row["ms_stream_run2"]) for row in lines(folder / "convolutions.csv")]
    return f"{fmean(100.0 * abs(float(one) / float(other) - 1.0) for one, other in runs if one and other):.1f}"


def benchmark_scores() -> str:
    """The mean error of gpusim and of the baseline on each experiment and split; means are those of `gpusim score`."""
    columns = [
        (split, predictor, column)
        for split in ("score", "fit")
        for predictor, column in (("gpusim", "mape_percent"), ("baseline", "nothing_percent"))
    ]
    rows = {
        split: [row for row in _benchmark() if (row["dataset"] == FITTED) == (split == "fit")]
        for split in ("score", "fit")
    }
    titles = ("experiment", *(f"{split}: {predictor}" for split, predictor, _ in columns))
    body = [
        (words, *(_mean([row for row in rows[split] if row["experiment"] == name], key) for split, _, key in columns))
        for name, words in EXPERIMENTS.items()
    ]
    body.append(("**mean**", *(_mean(rows[split], key) for split, _, key in columns)))
    return table(titles, body)


def _mean(rows: Sequence[Row], column: str) -> str:
    return f"{fmean(float(row[column]) for row in rows):.1f}" if rows else ""


def benchmark_choices() -> str:
    """How much longer the choices by the model take than the best measured ones, by dataset."""
    rows = [row for row in lines(VALIDATION / "datasets.csv") if row["regret_percent"] and not row["scaling"]]
    kinds = {"green": "SM split of a pair", "choice": "algorithms and streams of a module"}
    titles = ("dataset", "GPU", "choice", "points", "regret %")
    body = [
        (f"`{_part(row)}`", gpu_of(row), kinds[row["experiment"]], row["points"], f"{float(row['regret_percent']):.1f}")
        for row in rows
        if row["experiment"] in kinds
    ]
    return table(titles, body)


def _part(row: Row) -> str:
    """Name of a dataset as `gpusim score` has it."""
    source = "" if row["gpu"] == row["recorded_on"] else f"-from-{row['recorded_on']}"
    return f"{row['dataset']}{source}"


def _scored() -> list[Row]:
    """The rows of all datasets that have an error, without those that used scaling points."""
    rows = lines(VALIDATION / "datasets.csv")
    return [row for row in rows if row["mape_percent"] and not row["scaling"]]


def _error(rows: Sequence[Row], experiments: Sequence[str]) -> str:
    """The mean error of some experiments, weighted by their points; empty where there is none."""
    mine = [row for row in rows if row["experiment"] in experiments]
    points = sum(int(row["points"]) for row in mine)
    total = sum(int(row["points"]) * float(row["mape_percent"]) for row in mine)
    return f"{total / points:.1f}" if points else ""


TABLES: Mapping[str, Callable[[], str]] = {
    "errors-by-sharing": errors_by_sharing,
    "errors-by-dataset": errors_by_dataset,
    "errors-by-resource": errors_by_resource,
    "errors-of-programs": errors_of_programs,
    "training-accuracy": training_accuracy,
    "two-copies": two_copies,
    "benchmark-splits": benchmark_splits,
    "benchmark-scores": benchmark_scores,
    "benchmark-choices": benchmark_choices,
}


def with_tables(text: str) -> str:
    """A document with the tables of this module; blocks of other names stay."""
    return BLOCK.sub(
        lambda place: f"{place[1]}\n{TABLES[place['name']]()}\n\n{place[3]}" if place["name"] in TABLES else place[0],
        text,
    )
