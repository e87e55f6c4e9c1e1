"""Kernels of kinds that the model was never fitted to: `python experiments/unseen_kernels/run.py [--out DIR]`.

`ops.py` names PyTorch calls, pairs and sequences of them. It was written before any was measured beside another, and
`gpusim record ops.py --outcomes` recorded them on an H100. `first.csv` has the scores of the model as it was then, and
is never made anew. result.csv has those of today's model: as recorded then (`h100-sxm/first`), with all counters that
the model reads (a second profile), and with scaling points. `causes.py` and `causes` are kernels that load memory in
one way each. `beside.csv` (record_beside.py) has the calls on 64 SMs beside kernels that read memory on the others.

`ops_bf16.py` is a second set: BF16 kernels on an H200 (`h200`, record_bf16.py). Its first scores are in first.csv, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, prod
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.markdown import table
from experiments.neighbours import run as neighbours
from experiments.rows import from_csv, lines
from experiments.study import Run, Study
from experiments.unseen import (
    ALONE,
    FIGURES,
    ISOLATED,
    TOGETHER,
    Score,
    by_name,
    error_cell,
    figures,
    from_curves,
    scores,
    scores_by_bound,
    scores_by_name,
    worst,
)
from experiments.unseen_kernels import reads
from gpusim.common.tables import grouped
from gpusim.lab.dataset import Recordings
from gpusim.lab.names import title
from gpusim.lab.scores import Scored
from gpusim.lab.scoring import Scoring, scoring
from gpusim.lab.validate import Case, score
from gpusim.model.contention import SECTORS_OF_A_MISS
from gpusim.results.style import COLOURS, GREY, legend_below, new_figure, save_figure
from gpusim.trace.edit import merge

HERE = Path(__file__).resolve().parent
GPU = "h100-sxm"
RECORDED, AGAIN = HERE / GPU, HERE / GPU / "again"
CAUSES = HERE / "causes"
FIRST, RESULT, CAUSED, SLOWED = "first.csv", "result.csv", "causes.csv", "slowed.csv"
BESIDE, NOTHING = HERE / "beside.csv", "nothing"  # what was measured beside readers, and its rows without any
REPEATED = 3  # calls that are predicted beside a reader
MODEL = "9dd0b3cf"  # commit of the model of first.csv
SCALING = (32, 72)  # SMs
AS_RECORDED, COUNTED, SCALED_TOO = "as recorded", "all counters", f"all counters, {SCALING[0]} and {SCALING[1]} SMs"
CASES = {
    AS_RECORDED: Case(str(RECORDED), GPU, str(RECORDED / "first"), GPU),
    COUNTED: Case(str(RECORDED), GPU),
    SCALED_TOO: Case(str(RECORDED), GPU, scaling=SCALING),
}
BF16, BF16_CASE, BF16_MODEL = "BF16, H200", Case(str(HERE / "h200"), "h200"), "adf18fb9"
SHOWN = (ISOLATED, "sm_curve", "streams", "streams_b_first", "green", "modules_serial", "modules_streams")
PAIRED = ("streams", "streams_b_first", "green")
OUTCOMES = {"sm_curve": "sm_curve.csv", "pairs": "pairs.csv", "modules": "modules.csv"}
CONV, WGRAD = "conv3d/2x32x16x64/k3/fp16", "wgrad/32x64x56/k3/bf16"  # kernels in clusters
WORST_OPS, WORST_PAIRS, BF16_WORST = 12, 4, 8
FEW_SMS, SOME_SMS, HALF = 8, 32, 64


@dataclass(frozen=True, slots=True)
class Cause:
    """A kernel that loads memory in one way.

    Attributes:
        name: of its op in causes.py.
        gb_per_s: what L2 and DRAM send to all SMs.
        of_an_sm: to each of few SMs, GB/s.
        predicted_of_an_sm: the same as predicted.
        on_8_percent: error on 8 SMs.
        on_32_percent: on 32.
        on_64_percent: on 64.
    """

    name: str
    gb_per_s: float
    of_an_sm: float
    predicted_of_an_sm: float
    on_8_percent: float
    on_32_percent: float
    on_64_percent: float


@dataclass(frozen=True, slots=True)
class Beside:
    """A call again and again on some SMs, beside a kernel that reads memory on the others.

    Attributes:
        call: of ops.py.
        beside: what reads.
        bound: resource that binds its longest kernel there.
        measured: time of the call over its time beside nothing.
        predicted: the same as predicted.
    """

    call: str
    beside: str
    bound: str
    measured: float
    predicted: float


# ---- scores ----------------------------------------------------------------------------------------------------------


def scores_of(recording: str, jobs: int = 1) -> Iterator[Score]:
    """Scores of all groups, from one kind of recording."""
    case = BF16_CASE if recording == BF16 else CASES[recording]
    found = _apart(scoring(case, jobs))
    yield from scores(recording, "all", "", found.rows, found)
    if case.scaling:
        return
    for name, mine in _split_by_curves(found).items():
        yield from scores(recording, "split", name, mine, found)
    yield from scores_by_bound(recording, found)
    yield from scores_by_name(recording, found)


def _apart(found: Scoring) -> Scoring:
    """With the rows of SM curves on all SMs as an experiment of their own."""

    def apart(experiment: str, key: str) -> str:
        on_all = experiment == "sm_curve" and key.endswith(f"|{found.gpu.sm_count}")
        return ISOLATED if on_all else experiment

    rows = [replace(row, experiment=apart(row.experiment, row.key)) for row in found.rows if row.experiment != "solo"]
    named = {(apart(*name), name[1]): ran for name, ran in found.named.items()}
    return replace(found, rows=rows, named=named)


def _split_by_curves(found: Scoring) -> dict[str, list[Scored]]:
    """SM splits predicted from the measured curve of each call: without interference, and with the predicted one."""
    measured, predicted = defaultdict[str, dict[int, float]](dict), defaultdict[str, dict[int, float]](dict)
    for row in found.rows:
        if row.experiment in (ISOLATED, "sm_curve"):
            op, sms = row.key.split("|")
            measured[op][int(sms)], predicted[op][int(sms)] = row.measured_ms, row.predicted_ms
    splits: dict[str, list[Scored]] = {ALONE: [], TOGETHER: []}
    for row in found.rows:
        if row.experiment != "green":
            continue
        a, a_calls, b, b_calls, a_sms, b_sms = row.key.split("|")
        sides = (a, int(a_calls), int(a_sms)), (b, int(b_calls), int(b_sms))
        alone = ([n * _on(curves[op], sms) for op, n, sms in sides] for curves in (measured, predicted))
        for name, one in from_curves(row, *alone).items():
            splits[name].append(one)
    return splits


def _on(curve: Mapping[int, float], sms: int) -> float:
    """Time on so many SMs: its inverse is linear between those that were measured."""
    few, many = max(n for n in curve if n <= sms), min(n for n in curve if n >= sms)
    share = (sms - few) / (many - few) if many > few else 0.0
    return 1.0 / ((1.0 - share) / curve[few] + share / curve[many])


def differences() -> dict[str, float]:
    """Mean absolute difference (%) of two measurements of the same, by experiment."""
    found: dict[str, list[float]] = {}
    for kind, name in OUTCOMES.items():
        column = "ms" if kind == "sm_curve" else "ms_makespan"
        for first, second in zip(lines(RECORDED / name), lines(AGAIN / f"{name}.gz"), strict=True):
            if any(first[key] != second[key] for key in first if not key.startswith("ms")):
                continue  # the recorder took another number of calls for a queue
            percent = 100.0 * abs(float(second[column]) / float(first[column]) - 1.0)
            experiment = f"modules_{first['mode']}" if kind == "modules" else first.get("mode", kind)
            found.setdefault(experiment, []).append(percent)
            if first.get("sms") == "132":
                found.setdefault(ISOLATED, []).append(percent)
    return {experiment: fmean(percents) for experiment, percents in found.items()}


# ---- causes ----------------------------------------------------------------------------------------------------------


def caused() -> Iterator[Cause]:
    """The kernels of causes.py."""
    gpu = gpusim.load_gpu(GPU)
    recordings = Recordings(CAUSES, gpu)
    found = {tuple(row.key.split("|")): row for row in score(Case(str(CAUSES), GPU), experiments=("sm_curve",))}
    for name in dict.fromkeys(name for name, _ in found):
        launches = recordings.op(name).kernels
        sent = fsum((one.mix.l1_read_bytes or 0.0) * one.blocks for one in launches if one.mix is not None)
        on = {int(sms): row for (op, sms), row in found.items() if op == name}
        few = on[FEW_SMS]
        errors = (100.0 * (on[sms].predicted_ms / on[sms].measured_ms - 1.0) for sms in (FEW_SMS, SOME_SMS, HALF))
        yield Cause(
            name,
            sent / on[gpu.sm_count].measured_ms / 1e6,
            *(sent / ms / 1e6 / FEW_SMS for ms in (few.measured_ms, few.predicted_ms)),
            *errors,
        )


# ---- beside readers --------------------------------------------------------------------------------------------------


def beside_readers() -> Iterator[Beside]:
    """Every row of beside.csv, but those beside nothing."""
    session, recordings = gpusim.Session(GPU), Recordings(RECORDED, gpusim.load_gpu(GPU))
    for call, rows in grouped(lines(BESIDE), lambda row: row["call"]).items():
        (nothing,) = (float(row["us"]) for row in rows if row["beside"] == NOTHING)
        own = reads.repeated(call, recordings, REPEATED)
        alone = session.replay(own, f"inter-sm:by=program,sms={neighbours.MODEL_SMS}", keep=())
        longest = max(alone.kernel_runs, key=lambda run: run.end_us - run.start_us)
        for row in rows:
            if row["beside"] != NOTHING:
                both = merge([own, neighbours.neighbour(_rates(row), GPU)], ("a", "b"), "beside")
                result = session.replay(both, f"inter-sm:by=program,sms={neighbours.MODEL_SMS}+{neighbours.OTHER_SMS}")
                ends_us = max(run.end_us for run in result.kernel_runs if run.kernel != "neighbour")
                measured, predicted = float(row["us"]) / nothing, ends_us / alone.makespan_us
                yield Beside(call, row["beside"], longest.bound_by, measured, predicted)


def _rates(row: Mapping[str, str]) -> tuple[float, float, float]:
    """Bytes per µs that the reader reads from DRAM, writes, and reads from L2."""
    rate = float(row["gb_per_s"]) * 1e3
    return (rate, 0.0, SECTORS_OF_A_MISS * rate) if row["beside"].startswith("DRAM") else (0.0, 0.0, rate)


# ---- the page --------------------------------------------------------------------------------------------------------


def page(
    first: Sequence[Score], now: Sequence[Score], causes: Sequence[Cause], slowed: Sequence[Beside]
) -> dict[str, object]:
    """What the page says."""
    then, today = by_name(first), by_name(now)
    of_bf16 = [row for row in first if row.recording == BF16]
    first = [row for row in first if row.recording != BF16]
    every = {experiment: then[AS_RECORDED, experiment, "all", ""] for experiment in SHOWN}
    again = differences()
    rows = [
        (
            title(experiment),
            *figures(one),
            f"{again[experiment]:.1f}",
            *(error_cell(today.get((recording, experiment, "all", ""))) for recording in CASES),
        )
        for experiment, one in every.items()
    ]
    calls = [row for row in first if row.group == "one" and row.experiment == "sm_curve"]
    conv, wgrad = (
        [
            one[recording, "sm_curve", "one", name].mape_percent
            for one, recording in ((then, AS_RECORDED), (today, COUNTED))
        ]
        for name in (CONV, WGRAD)
    )
    regrets = [today[recording, "green", "all", ""].regret_percent for recording in (AS_RECORDED, COUNTED, SCALED_TOO)]
    return _of_bf16(of_bf16, today) | {
        "model": MODEL,
        "calls": len(calls),
        "kernels": len(lines(RECORDED / "kernels.csv.gz")),
        "pairs": sum(row.group == "one" and row.experiment == "green" for row in first),
        "sequences": sum(row.group == "one" and row.experiment == "modules_streams" for row in first),
        "curve": every["sm_curve"].mape_percent,
        "streams": every["streams"].mape_percent,
        "green": every["green"].mape_percent,
        "branches": every["modules_streams"].mape_percent,
        "regret": every["green"].regret_percent,
        "regret_now": regrets[0],
        "regret_counted": regrets[1],
        "regret_scaled": regrets[2],
        "half": _half(calls),
        "split": today[COUNTED, "green", "all", ""].mape_percent,
        "split_alone": today[COUNTED, "green", "split", ALONE].mape_percent,
        "split_together": today[COUNTED, "green", "split", TOGETHER].mape_percent,
        "conv_first": conv[0],
        "conv": conv[1],
        "wgrad_first": wgrad[0],
        "wgrad": wgrad[1],
        "conv_clusters": _clusters(CONV),
        "wgrad_clusters": _clusters(WGRAD),
        "scaling_points": " and ".join(map(str, SCALING)),
        "atomics": max(
            fmean(map(abs, (row.on_8_percent, row.on_32_percent, row.on_64_percent)))
            for row in causes
            if row.name.startswith("add")
        ),
        "scores": table(
            ("experiment", *FIGURES, "measured again %", "today %", "all counters %",
             f"and {SCALING[0]}, {SCALING[1]} SMs %"),
            rows,
        ),
        "bounds": table(("bound by", "calls", *(title(one) for one in ("sm_curve", *PAIRED))), list(_bounds(first))),
        "worst": table(
            ("call", "error %", "bias %", "all counters %", "longest kernels, and what binds them"),
            [
                (f"`{row.name}`", f"{row.mape_percent:.1f}", f"{row.bias_percent:+.1f}",
                 error_cell(today.get((COUNTED, "sm_curve", "one", row.name))), row.why.replace("|", ""))
                for row in worst(first, "sm_curve", WORST_OPS)
            ],
        ),
        "worst_pairs": table(
            ("experiment", "calls", "error %", "bias %", "all counters %"),
            [
                (title(experiment), f"`{row.name}`", f"{row.mape_percent:.1f}", f"{row.bias_percent:+.1f}",
                 error_cell(today.get((COUNTED, experiment, "one", row.name))))
                for experiment in ("streams", "green")
                for row in worst(first, experiment, WORST_PAIRS)
            ],
        ),
        "slowed": table(
            ("the other SMs", "TB/s", "calls", "measured", "predicted", "error %", "bias %", "bound by their SMs",
             "predicted"),
            list(_slowed(slowed)),
        ),
        "beside_calls": len({row.call for row in slowed}),
        "reads": table(reads.TITLES, list(reads.rows())),
        "causes": table(
            ("kernel", "all SMs GB/s", f"an SM of {FEW_SMS} GB/s", "as predicted", f"error on {FEW_SMS} SMs",
             f"on {SOME_SMS}", f"on {HALF}"),
            [
                (f"`{row.name}`", f"{row.gb_per_s:,.0f}", f"{row.of_an_sm:.0f}", f"{row.predicted_of_an_sm:.0f}",
                 *(f"{percent:+.0f} %" for percent in (row.on_8_percent, row.on_32_percent, row.on_64_percent)))
                for row in causes
            ],
        ),
    }  # fmt: skip


def _of_bf16(first: Sequence[Score], today: Mapping[tuple[str, str, str, str], Score]) -> dict[str, object]:
    """What the page says of the second set."""
    then = by_name(first)
    every = {experiment: then[BF16, experiment, "all", ""] for experiment in SHOWN}
    found = {name: sum(row.group == "one" and row.experiment == name for row in first) for name in SHOWN}
    return {
        "bf16_model": BF16_MODEL,
        "bf16_calls": found["sm_curve"],
        "bf16_pairs": found["green"],
        "bf16_sequences": found["modules_streams"],
        "bf16_curve": every["sm_curve"].mape_percent,
        "bf16_streams": every["streams"].mape_percent,
        "bf16_green": every["green"].mape_percent,
        "bf16_branches": every["modules_streams"].mape_percent,
        "bf16_scores": table(
            ("experiment", *FIGURES, "today %"),
            [
                (title(experiment), *figures(one), error_cell(today[BF16, experiment, "all", ""]))
                for experiment, one in every.items()
            ],
        ),
        "bf16_worst": table(
            ("call", "error %", "bias %", "today %", "longest kernels, and what binds them"),
            [
                (f"`{row.name}`", f"{row.mape_percent:.1f}", f"{row.bias_percent:+.1f}",
                 error_cell(today[BF16, "sm_curve", "one", row.name]), row.why.replace("|", ""))
                for row in worst(first, "sm_curve", BF16_WORST)
            ],
        ),
    }  # fmt: skip


def _clusters(op: str) -> str:
    """Blocks and the size of the clusters of a call's longest kernel."""
    found = [row for row in lines(RECORDED / "kernels.csv.gz") if row["op"] == op]
    longest = max(found, key=lambda row: float(row["gpu__time_duration.sum"]))
    size = prod(int(longest[f"launch__cluster_dim_{axis}"]) for axis in "xyz")
    return f"{longest['launch__grid_size']} blocks in clusters of {size}"


def _slowed(rows: Sequence[Beside]) -> Iterator[tuple[str, ...]]:
    rates = grouped(lines(BESIDE), lambda row: row["beside"])
    for beside, mine in grouped(rows, lambda row: row.beside).items():
        errors = [100.0 * (row.predicted / row.measured - 1.0) for row in mine]
        on_sm = [row for row in mine if row.bound not in ("dram", "l2", "latency")]
        yield (
            beside,
            f"{fmean(float(row['gb_per_s']) for row in rates[beside]) / 1e3:.1f}",
            str(len(mine)),
            *_means(mine),
            f"{fmean(map(abs, errors)):.1f}",
            f"{fmean(errors):+.1f}",
            *_means(on_sm),
        )


def _means(rows: Sequence[Beside]) -> tuple[str, str]:
    return f"{fmean(row.measured for row in rows):.2f}", f"{fmean(row.predicted for row in rows):.2f}"


def _half(calls: Sequence[Score]) -> int:
    """Calls with the largest errors that together have half of all errors."""
    errors = sorted((row.mape_percent for row in calls), reverse=True)
    return next(n for n in range(1, len(errors) + 1) if 2.0 * fsum(errors[:n]) >= fsum(errors))


def _bounds(rows: Sequence[Score]) -> Iterator[tuple[str, ...]]:
    known = by_name(rows)
    for bound in sorted({row.name for row in rows if row.group == "bound"}):
        found = [known.get((AS_RECORDED, experiment, "bound", bound)) for experiment in (ISOLATED, "sm_curve", *PAIRED)]
        yield bound, str(found[0].points if found[0] else 0), *map(error_cell, found[1:])


def draw(
    first: Sequence[Score], now: Sequence[Score], causes: Sequence[Cause], slowed: Sequence[Beside], path: Path
) -> None:
    """Errors of the calls on a part of the SMs, ranked."""
    with new_figure(2.7) as figure:
        axes = figure.subplots()
        today = by_name(now)
        of_calls = (row for row in first if row.group == "one" and row.experiment == "sm_curve")
        calls = [row for row in of_calls if row.recording != BF16]
        ranked = sorted(calls, key=lambda row: -row.mape_percent)
        counted = [today[COUNTED, "sm_curve", "one", row.name].mape_percent for row in ranked]
        axes.bar(range(len(ranked)), [row.mape_percent for row in ranked], color=GREY, label="as recorded first")
        axes.plot(range(len(ranked)), counted, "o", markersize=3, color=COLOURS[0], label="today, all counters")
        axes.set_xlabel("Calls, by error")
        axes.set_ylabel("Error on part of the SMs (%)")
        legend_below(figure, axes, 2)
        save_figure(figure, path)


def rows(run: Run) -> Mapping[str, Iterable[object]]:
    """Scores of today's model; those of the model as it was stay."""
    found = [score for recording in (*CASES, BF16) for score in scores_of(recording, run.jobs)]
    return {FIRST: from_csv(Score, HERE / FIRST), RESULT: found, CAUSED: list(caused()), SLOWED: list(beside_readers())}


STUDY = Study(
    __file__,
    __doc__,
    {FIRST: Score, RESULT: Score, CAUSED: Cause, SLOWED: Beside},
    rows,
    page,
    {"errors.png": draw},
    parallel=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
