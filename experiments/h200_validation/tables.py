"""The tables of this study as CSV and, between markers, in README.md, evidence.md and docs/model.md."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import fsum
from pathlib import Path

from experiments.h200_validation.evidence import cells_table, values_table
from experiments.h200_validation.variants import GPU_NAME, HERE, ROOT, present_model
from experiments.markdown import filled
from experiments.rows import lines as read_csv
from gpusim.common.errors import InputError
from gpusim.common.files import atomic_write, write_text
from gpusim.hardware.gpu import ModelConstants, load_gpu
from gpusim.lab.dataset import Dataset
from gpusim.lab.names import title
from gpusim.lab.scores import EXPERIMENTS, Scored, residency_ratios
from gpusim.lab.validate import SCALED

DOCUMENTS = (HERE / "README.md", HERE / "evidence.md", ROOT / "docs" / "model.md")
MATRIX = "resource_matrix"  # as a dataset
WORST = 8  # ops or rows listed per experiment
EVERY = "all"  # sets, or experiments, in a line of ablation.csv
SHORT = {  # titles of columns
    "solo": "on another GPU",
    "isolated": "isolated",
    "sm_curve": "part of the SMs",
    "residency_curve": "limited blocks",
    "streams": "two streams",
    "streams_b_first": "second first",
    "green": "SM split",
    "quota_a": "one SM, first",
    "quota_b": "one SM, second",
    "modules_serial": "one stream",
    "modules_streams": "branches",
    "matrix_same": "microbenchmarks, same SMs",
    "matrix_disjoint": "disjoint SMs",
    "matrix_streams": "in two streams",
    "makespan_streams": "pairs of programs in streams, makespan",
    "makespan_green": "on SM splits",
    "makespan_mps": "under MPS",
    "end_streams": "in streams, end of each",
    "end_green": "on SM splits, end of each",
    "end_mps": "under MPS, end of each",
    "slowdown_streams": "restarting programs in streams",
    "slowdown_green": "on SM splits, restarting",
}
TARGETS = {  # MAPE in percent that the project set out to reach on these rows
    "sm_curve": 3.5,
    "residency_curve": 7.0,
    "streams": 2.5,
    "streams_b_first": 2.5,
    "green": 4.0,
    "quota_a": 6.0,
    "quota_b": 6.0,
    "modules_streams": 3.0,
}
LITTLE = 0.1  # percentage points, below which a mechanism gains next to nothing
BOLD = 0.1  # of the model's own score, by which a variant's is off that is set in bold
INTERVALS = (
    "In brackets: the paired interval of 95 % of the difference to the model, in points, by a bootstrap over ops, "
    "pairs, modules or models with all their rows; none where there are fewer than three. ≈: it includes 0. "
)
READ_AS = "Bold: off by more than a tenth of the model's own. ·: as the model."

Line = Mapping[str, str]


def write_csv(path: Path, columns: Sequence[str], lines: Sequence[Mapping[str, object]]) -> None:
    """Write lines, reals to six digits, None as nothing."""
    with atomic_write(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([cell(line[column]) for column in columns] for line in lines)


def cell(value: object) -> str:
    """A value as the tables have it."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


# ---- what is missed most ---------------------------------------------------------------------------------------------


def misses(dataset: Dataset, rows: Sequence[Scored]) -> None:
    """Write the ops, pairs and modules of each experiment with the largest mean absolute error."""
    lines: list[dict[str, object]] = []
    for experiment in EXPERIMENTS:
        mine = [row for row in rows if row.experiment == experiment]
        mine = residency_ratios(mine) if experiment == "residency_curve" else mine
        groups: dict[str, list[float]] = {}
        for row in mine:
            parts = row.key.split("|")
            what = parts[0] if experiment in ("sm_curve", "residency_curve") else "|".join(parts[:4])
            groups.setdefault(what, []).append((row.predicted_ms / row.measured_ms - 1.0) * 100.0)
        worst = sorted(groups, key=lambda what: -_mean_absolute(groups[what]))[:WORST]
        lines += [
            {
                "experiment": experiment,
                "what": what,
                "points": len(groups[what]),
                "mape_percent": _mean_absolute(groups[what]),
                "bias_percent": fsum(groups[what]) / len(groups[what]),
                "kernels": _kernels(dataset, what),
            }
            for what in worst
        ]
    write_csv(HERE / "misses.csv", list(lines[0]), lines)


def _mean_absolute(errors: Sequence[float]) -> float:
    return fsum(map(abs, errors)) / len(errors)


def _kernels(dataset: Dataset, what: str) -> str:
    """Names of the longest kernel of each op in a key."""
    names = []
    for part in what.split("|"):
        if part.count("/") == 4:
            try:
                kernels = dataset.op(part).kernels
            except InputError:
                continue
            names.append(max(kernels, key=lambda kernel: kernel.duration_us).name[:60])
    return " + ".join(names)


# ---- documents -------------------------------------------------------------------------------------------------------


def documents() -> None:
    """Put the tables into the documents."""
    for path in DOCUMENTS:
        text = refreshed(path.read_text(encoding="utf-8"))
        write_text(path, text)


def refreshed(text: str) -> str:
    """A document with its tables as they are now."""
    return filled(text, {name: table() for name, table in TABLES.items()})


def markdown(titles: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A markdown table; the first ``left`` columns aligned left."""
    rule = ["---" if i < left else "--:" for i in range(len(titles))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *rows))


def accuracy_table() -> str:
    """The accuracy of the model on all rows."""
    titles = ("experiment", "points", "MAPE %", "aim %", "median %", "95th %", "bias %", "baseline %", "rank corr.",
              "regret %")  # fmt: skip
    rows = []
    for line in read_csv(HERE / "accuracy.csv"):
        aim = TARGETS.get(line["experiment"])
        rows.append(
            (
                title(line["experiment"]),
                line["points"],
                _number(line["mape_percent"], 2),
                "" if aim is None else f"{aim:g}",
                _number(line["median_percent"], 2),
                _number(line["p95_percent"], 1),
                _number(line["bias_percent"], 2),
                _number(line["nothing_percent"], 1),
                _number(line["rank_correlation"], 2),
                _number(line["regret_percent"], 2),
            )
        )
    return markdown(titles, rows)


def ablation_table(kind: str) -> str:
    """MAPE of each variant on all sets, one column per experiment, and the regret, with intervals."""
    lines = _lines_of(kind)
    by = _by_variant(line for line in lines if line["set"] == EVERY)
    shown = [name for name in SHORT if name in by["model"]]
    titles = ("variant", "", *(SHORT[name] for name in shown), "regret")
    rows = []
    for variant, of in by.items():
        cells = [_beside(of, by["model"], name) for name in shown]
        regret = _beside(of, by["model"], "green", "regret_")
        rows.append((f"`{variant}`", next(iter(of.values()))["title"], *cells, regret))
    columns = _by_variant(line for line in lines if EVERY in (line["set"], line["experiment"]))
    idle = idle_sentences(columns) if kind == "off" else []
    return "\n\n".join([*age_of("--ablation", lines), markdown(titles, rows, left=2), INTERVALS + READ_AS, *idle])


def sets_table() -> str:
    """MAPE of each variant on each set, all experiments together, with the intervals of the differences."""
    lines = [line for line in _lines_of("off") if line["experiment"] == EVERY]
    by = _by_variant(lines, "set")
    sets = list(by["model"])
    rows = [(f"`{variant}`", *(_beside(of, by["model"], name) for name in sets)) for variant, of in by.items()]
    counts = ("points", *(by["model"][name]["points"] for name in sets))
    return "\n\n".join([*age_of("--ablation", lines), markdown(("variant", *sets), [counts, *rows])])


def _lines_of(kind: str) -> list[Line]:
    return [line for line in read_csv(HERE / "ablation.csv") if line["kind"] == kind]


def _by_variant(lines: Iterable[Line], *columns: str) -> dict[str, dict[str, Line]]:
    """Lines of each variant by some columns; by default the experiment, after its set if the line is of one."""
    by: dict[str, dict[str, Line]] = {}
    for line in lines:
        named = [line[column] for column in columns or ("set", "experiment")]
        name = " ".join(named if columns or line["set"] != EVERY else named[1:])
        by.setdefault(line["variant"], {})[name] = line
    return by


def idle_sentences(by: Mapping[str, Mapping[str, Line]]) -> list[str]:
    """Say which variants cost next to nothing, and which nothing for sure; lines by variant and column."""
    known = by["model"]
    worse = {
        variant: [line for name, line in of.items() if max(_gains(line, known[name])) >= LITTLE]
        for variant, of in by.items()
        if of is not known
    }
    idle = [variant for variant, of in worse.items() if not of]
    unsure = [variant for variant, of in worse.items() if of and not any(map(_surely_worse, of))]
    return [
        f"On these samples no column, of sets or of kinds of measurements, is worse by {LITTLE:g} points or more "
        f"without one of these: {_listed(idle)}.",
        f"Without one of these some are, but none for sure: {_listed(unsure)}.",
    ]


def _listed(variants: Sequence[str]) -> str:
    return ", ".join(f"`{variant}`" for variant in variants) or "none"


def _gains(line: Line, known: Line) -> list[float]:
    """By how many points a variant is worse than the model, in error and, where there is one, in regret."""
    columns = [name for name in ("mape_percent", "regret_percent") if line[name]]
    return [float(line[name]) - float(known[name]) for name in columns]


def _surely_worse(line: Line) -> bool:
    """Whether the interval of a difference, in error or in regret, is above 0."""
    return any(float(line[name]) > 0.0 for name in ("low_points", "regret_low_points") if line[name])


def age_of(option: str, lines: Sequence[Line]) -> list[str]:
    """A paragraph about a stored table that is of another model than that of the present sources; else none."""
    models = {line.get("model", "") for line in lines}
    if models == {present_model()}:
        return []
    named = ", ".join(f"`{model}`" for model in sorted(models - {""}))
    which = f" (identity {named})" if named else ", made before tables named their model"
    return [
        f"**Of an earlier version of the model{which}.** What has changed since is not in this table; "
        f"`run.py {option}` makes it anew."
    ]


def _beside(of: Mapping[str, Line], model: Mapping[str, Line], name: str, kind: str = "") -> str:
    """A cell: the number, and from and to where its difference to the model's lies; a dot where it is the model's.

    ``kind`` is ``regret_`` for the regret, else that of the error.
    """
    if name not in of:
        return ""
    column = f"{kind or 'mape_'}percent"
    value, known = float(of[name][column]), float(model[name][column])
    if of is model:
        return f"{value:.2f}"
    ends = [of[name].get(f"{kind}{end}_points") or "" for end in ("low", "high")]
    if of[name][column] == model[name][column] and not any(map(float, filter(None, ends))):
        return "·"
    off = f"**{value:.2f}**" if abs(value - known) > BOLD * known else f"{value:.2f}"
    if "" in ends:
        return off
    low, high = map(float, ends)
    unsure = low <= 0.0 <= high
    return f"{f'≈ {value:.2f}' if unsure else off} ({low:+.2f} to {high:+.2f})"


def cross_validation_table() -> str:
    """Scores of each part of the networks under constants fitted on itself, on the other, and those that ship."""
    lines = read_csv(HERE / "cross_validation.csv")
    cells: dict[tuple[str, str], dict[str, Line]] = {}
    for line in lines:
        cells.setdefault((line["scored_on"], line["experiment"]), {})[line["fitted_on"]] = line
    rows = []
    for (part, experiment), of in cells.items():
        other = "others" if part == "googlenet" else "googlenet"
        named = (of[part], of[other], of["shipped"])
        errors = (_number(line["mape_percent"], 2) for line in named)
        rows.append((part, title(experiment), named[0]["points"], *errors))
    for part in dict.fromkeys(line["scored_on"] for line in lines):
        other = "others" if part == "googlenet" else "googlenet"
        of = cells.get((part, "green"), {})
        if of:
            regrets = (_number(of[by]["regret_percent"], 2) for by in (part, other, "shipped"))
            rows.append((part, "regret (SM split)", "", *regrets))
    titles = ("scored on", "experiment", "points", "fitted there", "fitted on the other", "shipped")
    return "\n\n".join([*age_of("--cross-validation", lines), markdown(titles, rows, left=2)])


def fitted_table() -> str:
    """The constants that each part of the networks gives."""
    lines = read_csv(HERE / "fitted.csv")
    titles = ("constant", "start", "shipped", "fitted on GoogLeNet", "fitted on the others")
    columns = ("start", "shipped", "googlenet", "others")
    rows = [(f"`{line['constant']}`", *(line[by] for by in columns)) for line in lines]
    return "\n\n".join([*age_of("--cross-validation", lines), markdown(titles, rows)])


def datasets_table() -> str:
    """Errors on every dataset: a table for each GPU, with the bias, the 95th percentile and the regret of choices."""
    gpus: dict[tuple[str, str], list[Line]] = {}
    for line in read_csv(HERE / "datasets.csv"):
        gpus.setdefault((line["gpu"], line["recorded_on"]), []).append(line)
    titles = ("dataset", "experiment", "points", "MAPE %", "bias %", "95th %", "rank corr.", "regret %")
    tables = []
    for (gpu, source), mine in gpus.items():
        rows = []
        for line in mine:
            choices = (_number(line["rank_correlation"], 2), _number(line["regret_percent"], 2))
            rows.append((line["dataset"], title(line["experiment"]), line["points"], *_errors(line), *choices))
        heading = f"**{gpu}**" if gpu == source else f"**{gpu}, from recordings of {source}**"
        tables.append(f"{heading}\n\n{markdown(titles, rows, left=2)}")
    return "\n\n".join(tables)


def _errors(line: Line) -> tuple[str, ...]:
    """Mean error, bias and 95th percentile of a line."""
    return tuple(_number(line[f"{name}_percent"], digits) for name, digits in (("mape", 2), ("bias", 2), ("p95", 1)))


def resources_table() -> str:
    """Errors of each experiment by the resource that binds the kernels that take most of the time."""
    rows = []
    for line in read_csv(HERE / "resources.csv"):
        gpu, source = line["gpu"], line["recorded_on"]
        where = gpu if gpu == source else f"{gpu} from {source}"
        rows.append((where, title(line["experiment"]), line["bound_by"], line["points"], *_errors(line)))
    return markdown(("GPU", "experiment", "bound by", "points", "MAPE %", "bias %", "95th %"), rows, left=3)


def arithmetic_table() -> str:
    """MAPE and bias of each experiment without kernels on tensor cores and with some."""
    of: dict[tuple[str, str, str], dict[str, Line]] = {}
    for line in read_csv(HERE / "arithmetic.csv"):
        of.setdefault((line["gpu"], line["recorded_on"], line["experiment"]), {})[line["tensor_cores"]] = line
    rows = []
    for (gpu, source, experiment), by in of.items():
        cells = [
            _number(by[which][column], digits) if which in by else ""
            for which in ("none", "some")
            for column, digits in (("points", 0), ("mape_percent", 2), ("bias_percent", 2))
        ]
        rows.append((gpu if gpu == source else f"{gpu} from {source}", title(experiment), *cells))
    titles = ("GPU", "experiment", "without: points", "MAPE %", "bias %", "with: points", "MAPE %", "bias %")
    return markdown(titles, rows, left=2)


def scaling_table() -> str:
    """MAPE without and with scaling points, on the same rows."""
    lines = read_csv(HERE / "scaling.csv")
    of: dict[tuple[str, str], dict[str, Line]] = {}
    for line in lines:
        if line["experiment"] in SCALED:
            which = "with" if line["scaling"] else "without"
            of.setdefault((line["dataset"], line["experiment"]), {})[which] = line
    rows = [
        (dataset, title(name), by["with"]["points"], *(_number(by[w]["mape_percent"], 2) for w in ("without", "with")))
        for (dataset, name), by in of.items()
    ]
    titles = ("dataset", "experiment", "points", "without", "with")
    return "\n\n".join([*age_of("--scaling", lines), markdown(titles, rows, left=2)])


def constants_table() -> str:
    """The constants of the model, from their definitions and the GPU's file."""
    import tomllib

    file = tomllib.loads((ROOT / "gpus" / f"{GPU_NAME}.toml").read_text(encoding="utf-8"))["model"]
    model = load_gpu(GPU_NAME).model
    rows = []
    for name, info in ModelConstants.model_fields.items():
        extra = info.json_schema_extra
        unit = str(extra["unit"]) if isinstance(extra, dict) else ""
        source = file[name]["source"] if name in file else "default, unverified"
        rows.append((f"`{name}`", f"{getattr(model, name):g}", unit, info.description or "", source))
    return markdown(("constant", "value", "unit", "meaning", "from"), rows, left=5)


def misses_table() -> str:
    """What is missed most."""
    lines = [line for line in read_csv(HERE / "misses.csv") if line["experiment"] != "modules_serial"]
    rows = []
    counted: dict[str, int] = {}
    for line in lines:
        counted[line["experiment"]] = counted.get(line["experiment"], 0) + 1
        if counted[line["experiment"]] <= WORST // 2:
            what = line["what"].replace("|", " \\| ").replace("googlenet/", "")
            errors = (_number(line[column], 1) for column in ("mape_percent", "bias_percent"))
            rows.append((title(line["experiment"]), what, line["points"], *errors))
    titles = ("experiment", "op, pair or module (googlenet/ left out)", "points", "MAPE %", "bias %")
    return markdown(titles, rows, left=2)


def _number(text: str, digits: int) -> str:
    return f"{float(text):.{digits}f}" if text else ""


TABLES: Mapping[str, Callable[[], str]] = {
    "accuracy": accuracy_table,
    "misses": misses_table,
    "ablation": lambda: ablation_table("off"),
    "ablation-sets": sets_table,
    "designs": lambda: ablation_table("design"),
    "cross-validation": cross_validation_table,
    "fitted": fitted_table,
    "constants": constants_table,
    "values": values_table,
    "cells": cells_table,
    "datasets": datasets_table,
    "scaling": scaling_table,
    "arithmetic": arithmetic_table,
    "resources": resources_table,
}
