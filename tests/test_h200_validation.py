"""The study's documents say what its tables say, and its sampling and search do what they claim."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from experiments.h200_validation import crossval, patches, run, tables, variants
from gpusim.common import fingerprint
from gpusim.hardware.gpu import load_gpu
from gpusim.lab import validate
from gpusim.lab.validate import Condition
from gpusim.results.error_band import COMMAND, VALIDATED, Calls, model_identity


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
    stride = run.STRIDES["sm_curve"]
    kept = {condition.key.split("|")[0] for condition in run.sample(wanted)}
    assert kept == {f"op{i}" for i in range(0, 13, stride)}
    assert len(run.sample(wanted)) == 2 * len(kept)


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


EVERY_PATCH = """
import os
from experiments.h200_validation import variants
from gpusim.lab import validate

dataset = variants.OWN.load()
one = next(condition for condition in validate.conditions(dataset) if condition.experiment == "sm_curve")
for variant in variants.VARIANTS.values():
    child = os.fork()  # what a variant puts in place of the model's own stays there
    if child == 0:
        if variant.patch is not None:
            variant.patch()
        variants.scored(dataset, (one,))
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        print(variant.name)
        os._exit(1)
"""


@pytest.mark.release
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes cannot be copied here")
def test_what_every_variant_puts_in_place_takes_the_same_arguments() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", EVERY_PATCH], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


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

    monkeypatch.setattr(patches, "put", put)
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
        variants.Task("model", variants.SCALING, few),
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
