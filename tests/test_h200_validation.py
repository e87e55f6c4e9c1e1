"""The study's documents say what its tables say, and its sampling and search do what they claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.advise import run as advise
from experiments.h200_validation import (
    ablation,
    crossval,
    intervals,
    mixing_patches,
    patches,
    run,
    sets,
    tables,
    variants,
)
from experiments.latency_targets import run as latency_targets
from experiments.rows import from_csv
from gpusim.calibrate import fit
from gpusim.common import fingerprint
from gpusim.hardware.gpu import load_gpu
from gpusim.lab import validate
from gpusim.lab.scores import Scored
from gpusim.lab.validate import Condition
from gpusim.results.error_band import VALIDATED, Calls, model_identity
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls

COMMAND = "python experiments/h200_validation/run.py --bands"


def test_documents_hold_the_tables() -> None:
    """If this fails: `python experiments/h200_validation/run.py --documents`."""
    for path in tables.DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert tables.refreshed(text) == text, path


def test_what_replays_quote_is_of_these_sources_and_data() -> None:
    """Which other sources predict is another model: nobody knows yet how wrong it is."""
    quoted = json.loads(VALIDATED.read_text(encoding="utf-8"))
    pairs = {(gpu, source) for gpu, by_recording in quoted.items() for source in by_recording}
    assert pairs == set(variants.QUOTED), f"run `{COMMAND}`"
    for (gpu, source), cases in variants.QUOTED.items():
        now = {"model": model_identity(load_gpu(gpu), load_gpu(source)), "data": variants.data_digest(cases)}
        known = {name: quoted[gpu][source][name] for name in now}
        assert known == now, f"sources or data changed: run `{COMMAND}`"


def test_a_patch_of_nothing_is_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        patches.put(validate, "no_such_thing", 1)


def test_variants_replace_constants_that_exist() -> None:
    for variant in variants.VARIANTS.values():
        gpu = variants.gpu_of(variant.constants)
        for name, value in variant.constants.items():
            assert getattr(gpu.model, name) == value
    assert len(variants.VARIANTS) == len(variants.ABLATION) + len(variants.DESIGNS)


def test_the_sample_keeps_every_so_many_th_op() -> None:
    wanted = [Condition("sm_curve", f"op{i}|{sms}", ((f"op{i}",),), sms=(sms,)) for i in range(13) for sms in (8, 16)]
    finer = sets.FINER["sm_curve"]
    kept = {condition.key.split("|")[0] for condition in sets.sample(wanted, 5 * finer)}
    assert kept == {"op0", "op5", "op10"}
    assert len(sets.sample(wanted, 5 * finer)) == 2 * len(kept)
    assert sets.sample(wanted, 1) == wanted


QUICK = (  # to read, and at hand
    "small",
    "transformer",
    "transformer models",
    "resource_matrix",
    "pairs of programs",
    "restarting programs",
)


def test_sets_at_hand_have_something_to_predict(monkeypatch: pytest.MonkeyPatch) -> None:
    titles = [one.title for one in sets.SETS]
    assert len(set(titles)) == len(titles)
    for one in sets.at_hand():
        if one.name in QUICK:
            assert one.source.files() and len(set(map(str, one.source.wanted(one.every)))) > 5
    missing = replace(sets.SETS[0], source=sets.Calls(validate.Case("none", "h200")))
    monkeypatch.setattr(sets, "SETS", (missing, sets.SETS[1]))
    assert sets.at_hand() == (sets.SETS[1],)


def test_what_a_variant_cannot_change_is_not_predicted() -> None:
    of = {one.kind: one for one in sets.SETS}
    assert set(of) == {variants.CALLS_ONLY, variants.MODELS_ONLY, sets.BENCHMARKS}
    assert all(one.takes(variants.MODEL) for one in of.values())
    only = {kind: [name for name, one in variants.VARIANTS.items() if not of[kind].takes(one)] for kind in of}
    assert "no-gaps" in only[variants.CALLS_ONLY] and "never-cold" in only[variants.MODELS_ONLY]
    assert not only[sets.BENCHMARKS]


def test_constants_are_replaced_on_both_gpus() -> None:
    """Whoever was recorded elsewhere is predicted with the constants of a variant on either GPU."""
    source = next(one.source for one in sets.SETS if one.name == "h100" and one.recorded_on == "h200")
    assert isinstance(source, sets.Calls)
    dataset = source._dataset({"block_jitter": 0.0})
    assert dataset.gpu.model.block_jitter == dataset.recordings.gpu.model.block_jitter == 0.0
    assert (dataset.gpu.name, dataset.recordings.gpu.name) == ("h100-sxm", "h200")


def test_sets_of_programs_leave_out_only_time_slices_and_programs_in_turn() -> None:
    kept = {("h200", False): 180, ("h100", False): 156, ("h200", True): 100}
    for (gpu, restart), settings in kept.items():
        source = sets.RestartingPrograms(gpu) if restart else sets.PairsOfPrograms(gpu)
        assert len(source.wanted(1)) == settings
    rows = [*from_csv(advise.Row, advise.HERE / "result.csv")]
    left_out = [row for row in rows if row.mechanism in (advise.IN_TURN, "time slices")]
    assert len(rows) - len(left_out) == 180 + 156
    assert len(from_csv(latency_targets.Row, latency_targets.STUDY.folder / "result.csv")) == 2 * 100


def test_the_sample_of_programs_has_every_kind_of_setting() -> None:
    """The stride has no factor in common with the number of settings of a pair."""
    splits = {f"{sms}+{132 - sms} SMs" for sms in (16, 32, 48, 64, 80, 96, 112)}
    for one in sets.SETS:
        if isinstance(one.source, sets.PairsOfPrograms):
            assert {run.setting for run in one.source.wanted(one.every)} > splits | {"equal priority", "a first"}


def test_programs_are_scored_as_their_studies_do() -> None:
    """After a change of the model: run the scripts of both studies."""
    settings = {"streams": "b first", "green": "48+84 SMs"}
    pair = advise.Pair("h200", "copies", 4, "decode32", 4)
    found = _errors_of(sets.PairsOfPrograms("h200"), pair, settings)
    rows = {
        row.setting: row
        for row in from_csv(advise.Row, advise.HERE / "result.csv")
        if (row.gpu, row.pair) == (pair.gpu, pair.name)
    }
    for kind, setting in settings.items():
        assert found[f"makespan_{kind}"] == pytest.approx([rows[setting].error_percent], abs=0.01)
        assert sorted(found[f"end_{kind}"]) == pytest.approx(sorted(rows[setting].end_errors_percent), abs=0.01)

    found = _errors_of(sets.RestartingPrograms("h200"), replace(pair, passes_a=1, passes_b=1), settings)
    errors: dict[str, list[float]] = {}
    for row in from_csv(latency_targets.Row, latency_targets.STUDY.folder / "result.csv"):
        if row.pair == f"{pair.a} + {pair.b}":
            errors.setdefault(row.setting, []).append(row.error_percent)
    for kind, setting in settings.items():
        assert found[f"slowdown_{kind}"] == pytest.approx(errors[setting], abs=0.01)


def _errors_of(source: sets.PairsOfPrograms, pair: advise.Pair, settings: dict[str, str]) -> dict[str, list[float]]:
    """Errors in percent, by experiment, of a pair in some settings."""
    wanted = [one for one in source.wanted(1) if one.pair == pair and one.setting in settings.values()]
    found: dict[str, list[float]] = {}
    for row in source.scored(wanted, {}):
        found.setdefault(row.experiment, []).append(100.0 * (row.predicted_ms / row.measured_ms - 1.0))
    return found


def test_constants_are_replaced_in_pairs_of_programs() -> None:
    """Also those that were used to fit the recordings."""
    session = sets._session("h100-sxm", (("block_jitter", 0.0),))
    assert session.recorded_on is session.gpu and session.gpu.model.block_jitter == 0.0


def test_parts_hold_every_condition_once() -> None:
    wanted = [Condition("sm_curve", f"op{i}|8", ((f"op{i}",),), sms=(8,)) for i in range(7)]
    parts = run.by_op(wanted, 3)
    assert sorted(c.key for part in parts for c in part) == sorted(c.key for c in wanted)


def test_errors_by_what_binds() -> None:
    work = {kind: Calls(10.0, frozenset({kind}), kind) for kind in ("tensor", "dram")}
    points = [("green", work["tensor"], error) for error in (1.0, -3.0)] + [("streams", work["dram"], 2.0)]
    found = run.resource_lines(points)
    assert [(one["experiment"], one["bound_by"], one["points"]) for one in found] == [
        ("green", "tensor", 2),
        ("streams", "dram", 1),
    ]
    assert (found[0]["mape_percent"], found[0]["bias_percent"]) == (2.0, -1.0)
    assert found[0]["p95_percent"] == pytest.approx(2.9) and found[1]["p95_percent"] == 2.0


def test_the_variant_without_ramps_still_loses_code(monkeypatch: pytest.MonkeyPatch) -> None:
    stalls = WarpStalls(selected=0.0, not_selected=0.0, long_scoreboard=0.0, no_instruction=1.0, wait=3.0)
    launch = KernelLaunch(
        name="k", grid=(264, 1, 1), block=(256, 1, 1), registers_per_thread=32, duration_us=20.0, mix=Mix(stalls=stalls)
    )
    gpu = load_gpu("h200")
    monkeypatch.setattr(fit, "_before_work_us", fit._before_work_us)  # undone at the end
    known = fit.anchored(launch, gpu)
    patches.no_ramp()
    found = fit.anchored(launch, gpu)
    assert known.ramp_work > 0.0 == found.ramp_work
    assert known.wait.code == found.wait.code == pytest.approx(0.25)


def test_datasets_that_are_not_at_hand_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = ("h200", "h200")
    monkeypatch.setattr(variants, "FRAMEWORKS", {"h200": validate.Case(str(tmp_path / "none"), "h200")})
    assert variants.cases_of(*pair) == list(variants.QUOTED[pair])
    monkeypatch.setattr(variants, "FRAMEWORKS", {"h200": validate.Case(str(tmp_path), "h200")})
    assert variants.cases_of(*pair)[-1].folder == str(tmp_path)
    assert [Path(case.folder).parent.name for case in variants.models_of("h100-sxm")] == ["h100-sxm"]


def test_names_of_datasets() -> None:
    folders = (variants.DATA, variants.DATA / "small", variants.TRANSFORMER, variants.TRANSFORMER / "models")
    assert [run.name_of(str(one)) for one in folders] == ["data", "small", "transformer", "transformer models"]
    unseen = (run.UNSEEN_CALLS, *(one.case for one in run.UNSEEN_PROGRAMS))
    programs = [f"unseen_programs, {which} set" for which in ("first", "second", "third", "fourth")]
    assert [run.name_of(case.folder) for case in unseen] == ["unseen_kernels", *programs]
    assert all(Path(case.folder).is_dir() for case in unseen)


def test_intervals_of_paired_differences() -> None:
    """Nothing differs from itself; a difference of every row is sure; one of few ops out of many is not."""

    def rows(errors: dict[str, float]) -> list[Scored]:
        return [Scored("sm_curve", f"{op}|{sms}", 1.0 + e, 1.0, 1.0) for op, e in errors.items() for sms in (8, 16)]

    known = rows({f"op{i}": 0.01 * (i % 3) for i in range(30)})
    assert intervals.interval(intervals.error_differences(known, known)) == (0.0, 0.0)
    worse = rows({f"op{i}": 0.01 * (i % 3) + 0.01 + 0.001 * i for i in range(30)})
    low, high = intervals.interval(intervals.error_differences(worse, known))
    assert 1.0 < low < 2.45 < high < 4.0  # percentage points, about a mean of 2.45
    one_off = rows({f"op{i}": 0.5 if i == 7 else 0.01 * (i % 3) for i in range(30)})
    differences = intervals.error_differences(one_off, known)
    few = dict(list(differences.items())[6:8])
    assert intervals.interval(few) is None  # of two ops nothing can be said
    low, high = intervals.interval(differences)
    assert low == 0.0 < high and len(differences) == 30
    assert intervals.interval(differences) == (low, high)


def test_intervals_of_regret() -> None:
    def rows(predicted: tuple[float, float]) -> list[Scored]:
        return [
            Scored("green", f"a|1|b|{pair}|{sms}|x", ms, float(sms), 1.0)
            for pair in range(4)
            for sms, ms in zip((1, 2), predicted, strict=True)
        ]

    found = intervals.regret_differences(rows((2.0, 1.0)), rows((1.0, 2.0)))
    assert list(found.values()) == [[100.0]] * 4
    assert intervals.interval(found) == (100.0, 100.0)


def _line(mape: str, low: str = "", high: str = "") -> dict[str, str]:
    regret = {"regret_percent": "", "regret_low_points": "", "regret_high_points": ""}
    return {"mape_percent": mape, "low_points": low, "high_points": high, **regret}


def test_differences_that_may_be_none_are_marked() -> None:
    model = {"green": _line("4", "0", "0")}
    cells = {
        ("4", "0", "0"): "·",
        ("4.2", "-0.1", "0.5"): "≈ 4.20 (-0.10 to +0.50)",
        ("4.2", "0.1", "0.3"): "4.20 (+0.10 to +0.30)",
        ("5", "0.8", "1.3"): "**5.00** (+0.80 to +1.30)",
        ("5", "", ""): "**5.00**",
    }
    for line, cell in cells.items():
        assert tables._beside({"green": _line(*line)}, model, "green") == cell
    assert tables._beside(model, model, "green") == "4.00"
    assert tables._beside({}, model, "green") == ""


def test_variants_that_cost_next_to_nothing_are_listed() -> None:
    by = {
        "model": {"green": _line("4"), "streams": _line("3")},
        "idle": {"green": _line("4.05", "-0.1", "0.2"), "streams": _line("2", "-2", "-1")},
        "perhaps": {"green": _line("4.05", "-0.1", "0.2"), "streams": _line("3.2", "-0.1", "0.5")},
        "sure": {"green": _line("4.05", "-0.1", "0.2"), "streams": _line("3.2", "0.1", "0.5")},
        "one row": {"green": _line("4", "0", "0"), "streams": _line("3.2")},
    }
    idle, unsure = tables.idle_sentences(by)
    assert idle.startswith("On these samples no column") and idle.endswith("or more without one of these: `idle`.")
    assert unsure == "Without one of these some are, but none for sure: `perhaps`, `one row`."
    assert "none" in tables.idle_sentences({"model": by["model"]})[0]


def test_tables_of_another_model_say_so() -> None:
    now = variants.present_model()
    assert tables.age_of("--ablation", [{"model": now}, {"model": now}]) == []
    (text,) = tables.age_of("--ablation", [{"model": "0123"}])
    assert "`0123`" in text and "run.py --ablation" in text
    (text,) = tables.age_of("--ablation", [{"variant": "of a table without the column"}])
    assert "before tables named" in text


def test_scaling_points_are_scored_on_every_set_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each set the same rows without points and with them; the page has them all, and says of which model."""

    def everything(case: validate.Case) -> list[Scored]:
        sms, off = ([8], 1.1) if case.scaling else ([8, *variants.SCALING], 1.3)
        return [Scored("sm_curve", f"{Path(case.folder).name}|{n}", off, 1.0, 1.0) for n in sms]

    (tmp_path / "torch").mkdir()
    cases = [validate.Case(str(tmp_path / name), "h200") for name in ("torch", "not at hand")]
    monkeypatch.setattr(variants, "FRAMEWORKS", dict(enumerate(cases)))
    monkeypatch.setattr(run, "everything", everything)
    monkeypatch.setattr(run, "loaded", lambda case: case)
    monkeypatch.setattr(run, "measurements", lambda dataset: {})
    for module in (run, tables):
        monkeypatch.setattr(module, "HERE", tmp_path)
    run.scaling()
    assert tables.scaling_table().splitlines()[2:] == [
        "| data | part of the SMs | 1 | 30.00 | 10.00 |",
        "| torch | part of the SMs | 1 | 30.00 | 10.00 |",
    ]
    monkeypatch.setattr(tables, "present_model", lambda: "another")
    assert "run.py --scaling" in tables.scaling_table()


def test_lines_of_the_ablation() -> None:
    """Lines of each experiment of each set, of each set and of each experiment; what is in two sets counts in both."""
    rows, own = {}, {}
    for of, error in zip(sets.SETS[:2], (0.1, 0.4), strict=True):
        green = [
            Scored("green", f"a|1|b|{pair}|{sms}|{132 - sms}", (1.0 + error) * (1.0 + sms), 1.0 + sms, 1.0)
            for pair in range(3)
            for sms in (8, 16)
        ]
        curve = [Scored("sm_curve", f"op{i}|8", 1.0 + error, 1.0, 1.0) for i in range(2)]
        rows[of] = [*green, *curve]
        own[of] = [Scored(row.experiment, row.key, row.measured_ms, row.measured_ms, 1.0) for row in rows[of]]
    found = ablation.lines_of(variants.DESIGNS[0], "design", rows, own)
    lines = {(line["set"], line["experiment"]): line for line in found}
    one, other = (of.title for of in rows)
    assert set(lines) == {
        *((of, experiment) for of in (one, other, tables.EVERY) for experiment in ("green", "sm_curve")),
        *((of, tables.EVERY) for of in (one, other)),
    }
    assert lines[one, "green"]["kind"] == "design" and lines[one, "green"]["model"] == variants.present_model()
    assert lines[one, "green"]["low_points"] == pytest.approx(10.0) == lines[one, "green"]["high_points"]
    assert (lines[one, "green"]["regret_low_points"], lines[one, "green"]["regret_high_points"]) == (0.0, 0.0)
    assert lines[one, tables.EVERY]["points"] == 8 and lines[one, tables.EVERY]["regret_percent"] is None
    together = lines[tables.EVERY, "green"]
    assert together["points"] == 12 and together["mape_percent"] == pytest.approx(25.0)
    assert together["low_points"] == pytest.approx(25.0)  # a pair is drawn with its rows in both sets
    assert lines[tables.EVERY, "sm_curve"]["low_points"] is None  # two ops are too few


def test_every_kind_of_measurement_is_scored() -> None:
    """Also those that `gpusim validate` does not have."""
    kinds = ("matrix_streams", "makespan_green", "slowdown_green", "streams")
    rows = [Scored(kind, f"a|1|b|1|{n}|x", 1.1, 1.0, 1.0) for kind in kinds for n in range(2)]
    found = ablation.scores(rows, rows)
    assert {kind: (one.points, one.regret_percent) for kind, one in found.items()} == dict.fromkeys(kinds, (2, None))
    assert all(one.mape_percent == pytest.approx(10.0) for one in found.values())
    assert set(kinds) <= set(tables.SHORT)


def test_what_is_drawn_together() -> None:
    keys = {
        ("sm_curve", "op|8"): "op",
        ("sm_curve", "x|4|y|5|32|100|b"): "y",
        ("isolated", "x|4|y|5|a"): "x",
        ("matrix_same", "fma1/1|fma4/4|first"): "fma1/1",
        ("green", "x|4|y|5|32|100"): "x|4|y|5",
        ("modules_streams", "3a|fastest"): "3a",
        ("end_green", "x|4|y|5|SM split|32+100 SMs|b"): "x|4|y|5",
    }
    for (experiment, key), drawn in keys.items():
        assert intervals.drawn_as(Scored(experiment, key, 1.0, 1.0, 1.0)) == drawn


def test_a_trial_is_known_by_all_that_can_change_it() -> None:
    of = next(one for one in sets.SETS if one.name == "small")
    wanted = of.source.wanted(of.every)
    trials = [
        ablation.Trial("model", (ablation.Sample(of, wanted),)),
        ablation.Trial("no-sharing", (ablation.Sample(of, wanted),)),
        ablation.Trial("model", (ablation.Sample(of, wanted[:1]),)),
        ablation.Trial("model", (ablation.Sample(of, wanted),) * 2),
    ]
    assert len({ablation.identity(trial) for trial in trials}) == len(trials)
    assert ablation.identity(trials[0]) == ablation.identity(ablation.Trial("model", (ablation.Sample(of, wanted),)))


@pytest.fixture
def few() -> tuple[Condition, ...]:
    """Two predictions that take no time."""
    wanted = validate.conditions(variants.OWN.load())
    return tuple([condition for condition in wanted if condition.experiment == "green"][:2])


@pytest.mark.release
def test_variants_are_predicted_apart_and_kept(
    few: tuple[Condition, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one variant patches is gone for the next; a second run, and one that was cut off, predict nothing twice."""
    monkeypatch.setattr(variants, "CACHE", tmp_path / "cache")
    tasks = [variants.Task(name, variants.OWN, few) for name in ("no-sharing", "model", "no-launch-latency")]
    found = variants.predictions("few", [*tasks, tasks[0]])
    assert found[1] == variants.scored(variants.OWN.load(), few)
    assert found[0] == found[3] and len({tuple(rows) for rows in found}) == 3

    journal = tmp_path / "cache" / "few.part.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:2]))  # the third was under way
    computed = []

    def one(task: object) -> list[object]:
        computed.append(task)
        return []

    monkeypatch.setattr(variants, "answer", one)
    monkeypatch.setattr(variants, "local", lambda jobs, tasks_per_process: (lambda: ThreadPoolExecutor(1), 1))
    again = variants.predictions("few", tasks)
    assert len(computed) == 1 and sum(rows in found for rows in again) == 2


COMMON = "resnet50/2a.expand/fwd/IMPLICIT_GEMM/FMA|1|resnet50/3a.shortcut/fwd/IMPLICIT_GEMM/FMA|3"  # in quota.csv
ON_STREAMS = "googlenet/4e.3x3_reduce/bwd_filter/ALGO_1/TF32|17|googlenet/4e.3x3_reduce/fwd/IMPLICIT_GEMM/FMA|7"
WHERE = {  # what a variant changes, where not `COMMON`: all kernels of that have none of it
    **dict.fromkeys(("no-carveouts", "no-clock", "no-turns"), ("streams", ON_STREAMS)),
    "enqueue-order": ("streams", ON_STREAMS),
    **dict.fromkeys(
        ("no-head-of-line", "carveouts-as-set"),
        ("streams", "googlenet/4c.3x3_reduce/fwd/IMPLICIT_GEMM/FMA|9|googlenet/4c.3x3/fwd/WINOGRAD_NONFUSED/FMA|8"),
    ),
    **dict.fromkeys(
        ("no-tiles", "no-late-last", "tiles-uncounted"),
        ("sm_curve", "resnet50/4a.3x3/fwd/IMPLICIT_PRECOMP_GEMM/TF32|128"),
    ),
    **dict.fromkeys(("no-start-limits", "any-queue"), ("sm_curve", "googlenet/4e.pool_proj/bwd_data/ALGO_0/FMA|8")),
    "no-clusters": ("sm_curve", "googlenet/4e.3x3/bwd_data/ALGO_1/TF32|120"),
    **dict.fromkeys(
        ("even-schedulers", "no-age"), ("sm_curve", "googlenet/5a.pool_proj/fwd/IMPLICIT_PRECOMP_GEMM/FMA|96")
    ),
    "no-l2-reads": ("sm_curve", "resnet50/5a.reduce/fwd/IMPLICIT_PRECOMP_GEMM/TF32|8"),
    "no-power-limit": ("sm_curve", "googlenet/4e.3x3/fwd/IMPLICIT_PRECOMP_GEMM/TF32|8"),
    "no-read-queues": ("sm_curve", "googlenet/4e.5x5/fwd/GEMM/FMA|8"),
    "no-handing-on": (
        "streams",
        "googlenet/5b.pool_proj/fwd/IMPLICIT_GEMM/FMA|20|googlenet/5b.3x3/fwd/WINOGRAD_NONFUSED/FMA|12",
    ),
    **dict.fromkeys(
        ("no-waits-beside", "no-service-limit"),
        ("streams", "googlenet/4e.5x5/bwd_data/ALGO_0/FMA|7|googlenet/3a.5x5_reduce/bwd_filter/ALGO_1/FMA|3"),
    ),
    "no-unequal-blocks": ("residency_curve", "googlenet/3a.3x3_reduce/bwd_filter/ALGO_3/FMA|8"),
    "no-l2-atomics": ("quota", "googlenet/4c.3x3/fwd/IMPLICIT_GEMM/FMA|1|googlenet/4e.3x3/bwd_filter/ALGO_0/FMA|12"),
    "no-reading-ahead": ("sm_curve", "googlenet/3b.5x5_reduce/fwd/IMPLICIT_PRECOMP_GEMM/FMA|8"),
    "no-left-writes": ("sm_curve", "googlenet/conv2.1x1/fwd/IMPLICIT_PRECOMP_GEMM/TF32|8"),
    "no-block-ends": ("sm_curve", "googlenet/4b.5x5/fwd/WINOGRAD_NONFUSED/FMA|8"),
    "all-waits-queued": ("residency_curve", "googlenet/3b.5x5_reduce/fwd/IMPLICIT_PRECOMP_GEMM/FMA|4"),
    "few-warps-hide": ("modules_streams", "4c|fastest"),
    "never-cold": ("modules_serial", "3a|implicit"),
    "no-lost-contents": (
        "green",
        "googlenet/4e.pool_proj/bwd_filter/ALGO_0/FMA|6|googlenet/4e.5x5_reduce/bwd_data/ALGO_0/FMA|10|80|52",
    ),
    "no-hidden-waits": (
        "quota",
        "googlenet/4e.3x3_reduce/fwd/IMPLICIT_GEMM/FMA|6|li2016/Conv4/fwd/IMPLICIT_PRECOMP_GEMM/FMA|8",
    ),
    **dict.fromkeys(
        ("no-fullest-beside", "no-priority-hold"),
        (
            "quota",
            "googlenet/3a.1x1/bwd_filter/ALGO_0/FMA|4|resnet50/4a.shortcut/fwd/IMPLICIT_GEMM/FMA|2",
        ),
    ),
}
TOGETHER = ("transformer models, h100-sxm", "transformer_prefill|4|transformer_decode|4")
ELSEWHERE = {  # what other sets show, and no row of data/: the set and what of it
    "no-operands": ("resource_matrix, h200", "mma_int8/4|fma1/1|same"),
    "no-other-pipes": ("resource_matrix, h200", "half1/4|fp64_1/1|same"),
    "no-uncounted-pipe": ("resource_matrix, h200", "barrier/8|barrier/8|same"),
    "no-asked-carveouts": ("resource_matrix, h200", "fma1/8|fma1/4|same"),
    "no-totals": ("resource_matrix, h200", "shared_8way/4|l1_16k/4|same"),
    "no-l1-sets": ("resource_matrix, h200", "l1_64k/4|l1_64k/4|same"),
    "counted-clusters": ("small, h200", "googlenet16/3a.5x5/fwd/IMPLICIT_PRECOMP_GEMM/TF32|8"),
    "one-library-stream": ("small, h200", "googlenet16/3a.5x5/fwd/FFT_TILING/FMA|8"),
    "no-code-on-sms": TOGETHER,
    "no-lost-code": TOGETHER,
    "all-code-lost": ("models, h200", "convnext_tiny|4|generate|12|32|100"),
    "launches-keep-code": TOGETHER,
    "sms-keep-code": TOGETHER,
    "no-block-delay": TOGETHER,
    "active-as-counted": TOGETHER,
    "no-gaps": TOGETHER,
    "no-dram-queue": ("models, h200", "convnext_tiny|4|generate|12|32|100"),
    "never-late": ("models, h200", "convnext_tiny|4|generate|12|32|100"),
    "barriers-not-queued": ("unseen kernels, BF16, h200", "attention/16x16x1of3072x128|32"),
    "no-graphs": TOGETHER,
    "touched-as-told": ("frameworks, h200", "gpt1+gpt1|base"),
    "always-in-step": ("frameworks, h200", "gpt1+gpt1|base"),
    "dram-felt-early": ("models, h200", "convnext_tiny|4|generate|12|32|100"),
    "always-late-last": ("unseen kernels, BF16, h200", "attention/4x24x1024x64|120"),
    "no-differing-sms": ("unseen kernels, BF16, h200", "gemm/1024x8192x1024|120"),
    "no-last-blocks": ("unseen programs, third set, h200", "radiance_field_fp16|7|super_resolution_bf16|4|32|100|b"),
    "no-reading-once": ("unseen programs, third set, h200", "kalman_filters_fp64|8|radiance_field_fp16|4|32|100|a"),
    "first-blocks-as-in-streams": ("models, h200", "mobilenet_v3_large|4|prefill|11|32|100|a"),
    "no-launch-waits": ("models, h200", "mobilenet_v3_large|4|prefill|11|32|100"),
    "one-load-under-way": ("unseen programs, third set, h200", "radiance_field_fp16|7|super_resolution_bf16|4|64|68|a"),
    "no-start-bound": ("unseen programs, third set, h200", "ising_int8|4|molecular_dynamics_fp32|9|80|52|a"),
    "no-sm-starts": ("models, h200", "prefill|4|prefill|4|32|100|a"),
    "no-intake": ("frameworks, h200", "lm/head/t32/bf16/gemm|24"),
    "no-age-limit": ("unseen programs, second set, h200", "selective_scan_bf16|4|conformer_fp16|4|32|100|a"),
    "no-borrowing": ("models, h200", "mobilenet_v3_large|4|prefill|11|32|100|a"),
}
EVERY_PATCH = """
import json, os, sys
from experiments.h200_validation import variants
from gpusim.lab import validate

where, unlike = json.load(sys.stdin), 1e-6
dataset = variants.OWN.load()
wanted = {(one.experiment, one.key): one for one in validate.conditions(dataset)}
known, failed = {}, []
for variant in variants.VARIANTS.values():
    if variant.name in where["elsewhere"]:
        continue
    one = wanted[tuple(where.get(variant.name, where[""]))]
    if one.key not in known:
        known[one.key] = None
        reader, writer = os.pipe()  # the model's own prediction, in a process of its own: the next ones start as clean
        if os.fork() == 0:
            os.write(writer, json.dumps([row.predicted_ms for row in variants.scored(dataset, (one,))]).encode())
            os._exit(0)
        os.wait()
        known[one.key] = json.loads(os.read(reader, 10_000))
    child = os.fork()  # what a variant puts in place of the model's own stays there
    if child == 0:
        rows = variants.answer(variants.Task(variant.name, variants.OWN, (one,)))
        off = max(abs(row[2] / ms - 1.0) for row, ms in zip(rows, known[one.key], strict=True))
        if (off > unlike) == (variant is variants.MODEL):
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(variant.name)
sys.exit(", ".join(failed) or None)
"""


@pytest.mark.release
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be copied here")
def test_every_variant_takes_the_same_arguments_and_changes_a_prediction() -> None:
    assert set(WHERE) < set(variants.VARIANTS)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", EVERY_PATCH],
        input=json.dumps({**WHERE, "": ("quota", COMMON), "elsewhere": list(ELSEWHERE)}),
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.release
@pytest.mark.parametrize("variant", ELSEWHERE)
def test_other_sets_show_what_no_row_of_the_main_one_does(
    variant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    title, named = ELSEWHERE[variant]
    of = next(one for one in sets.SETS if one.title == title)
    if of not in sets.at_hand():
        pytest.skip(f"{title} is not at hand")
    by_name = {"|".join(one) if isinstance(one, tuple) else one.key: one for one in of.source.wanted(1)}
    monkeypatch.setattr(variants, "CACHE", tmp_path / "cache")
    trials = [ablation.Trial(name, (ablation.Sample(of, (by_name[named],)),)) for name in ("model", variant)]
    ((known,), (changed,)) = variants.kept("few", trials, ablation.identity, ablation.answer)
    off = [abs(row[2] / other[2] - 1.0) for row, other in zip(changed, known, strict=True)]
    assert max(off) > 1e-6


@pytest.mark.release
def test_another_order_of_streams_leaves_them_their_sms(
    few: tuple[Condition, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In green contexts the order of streams changes no more than when the second one starts."""
    monkeypatch.setattr(variants, "CACHE", tmp_path / "cache")
    tasks = [variants.Task(name, variants.OWN, few) for name in ("enqueue-order", "model")]
    apart_ms = validate.MARKS * load_gpu("h200").model.event_overhead_us / 1e3
    for one, mean in zip(*variants.predictions("order", tasks), strict=True):
        assert one.predicted_ms == pytest.approx(mean.predicted_ms, abs=apart_ms)


def test_variants_patch_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an ablation ends at the first of them, after minutes."""
    patched: list[str] = []

    def put(owner: object, name: str, _: object) -> None:
        assert hasattr(owner, name), name
        patched.append(name)

    for module in (patches, mixing_patches):
        monkeypatch.setattr(module, "put", put)
    for variant in variants.VARIANTS.values():
        if variant.patch is not None:
            variant.patch()
    assert len(patched) > 20


def test_a_task_is_known_by_all_that_can_change_it(few: tuple[Condition, ...]) -> None:
    tasks = [
        variants.Task("model", variants.OWN, few),
        variants.Task("no-sharing", variants.OWN, few),
        variants.Task("model", variants.OWN, few[:1]),
        variants.Task("model", variants.OWN, few, {"block_jitter": 0.0}),
        variants.Task("model", replace(variants.OWN, scaling=variants.SCALING), few),
        *(variants.Task("model", case, few) for cases in variants.QUOTED.values() for case in cases[-1:]),
    ]
    assert len({variants.identity(task) for task in tasks}) == len(tasks)
    assert variants.identity(tasks[0]) == variants.identity(variants.Task("model", variants.OWN, few))


def test_a_changed_source_is_another_task(few: tuple[Condition, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    task = variants.Task("model", variants.OWN, few)
    before = variants.identity(task)
    for place, name in ((fingerprint, "sources"), (fingerprint, "files")):
        variants._sources.cache_clear()
        with monkeypatch.context() as patched:
            patched.setattr(place, name, lambda *arguments: "other")
            assert variants.identity(task) != before
    variants._sources.cache_clear()
    assert variants.identity(task) == before


def test_fits_choose_the_least_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinate search finds the least of a sum of distances, and predicts no constants twice."""
    best = {name: grid[-1] for name, grid in crossval.CONSTANTS.items()}
    asked: list[dict[str, float]] = []

    def predictions(name: str, tasks: list[Any]) -> list[float]:
        asked.extend(dict(task.constants) for task in tasks)
        return [sum(abs(task.constants[key] - best[key]) for key in best) for task in tasks]

    monkeypatch.setattr(crossval, "predictions", predictions)
    monkeypatch.setattr(crossval, "mean_error", lambda rows: rows)
    assert crossval.fit("others") == best
    assert len({tuple(one.items()) for one in asked}) == len(asked)


def test_networks_do_not_mix() -> None:
    part_of = crossval.part_of
    assert part_of(Condition("streams", "", (("googlenet/a",), ("googlenet/b",)))) == "googlenet"
    assert part_of(Condition("streams", "", (("resnet50/a",), ("li2016/b",)))) == "others"
    assert part_of(Condition("streams", "", (("googlenet/a",), ("li2016/b",)))) == "mixed"
