"""Sweeps: what makes a point another one, so that it is computed again."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path

import pytest
from sweeping import ROOT, TABLE_1, small, swept, written

from gpusim import load_gpu, load_trace
from gpusim.common import fingerprint
from gpusim.results.error_band import VALIDATED
from gpusim.sweeps import compute, run
from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import points

# ---- who a point is


def identities(path: Path) -> list[str]:
    return [point.identity for point in points(load_experiment(path))]


def test_identity_is_that_of_the_content_and_not_of_the_file(tmp_path: Path) -> None:
    trace = load_trace(TABLE_1)
    trace.save(tmp_path / "a.json")
    trace.save(tmp_path / "b.json.gz")
    (tmp_path / "c.json").write_text(json.dumps(json.loads((tmp_path / "a.json").read_text())))
    found = [
        identities(written(tmp_path, f'traces = ["{name}"]\npolicies = ["serial"]\n'))
        for name in ("a.json", "b.json.gz", "c.json")
    ]
    assert found[0] == found[1] == found[2]


def test_identity_changes_with_whatever_changes_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = load_trace(TABLE_1)
    trace.save(tmp_path / "t.json")
    faster = json.loads((tmp_path / "t.json").read_text())
    faster["streams"][0]["operations"][0]["selected"]["kernels"][0]["duration_us"] += 1.0
    (tmp_path / "faster.json").write_text(json.dumps(faster))
    (tmp_path / "mine.toml").write_text((ROOT / "gpus" / "k40c.toml").read_text())

    def identity(trace: str = "t", policy: str = "leftover", more: str = "") -> str:
        text = f'traces = ["{trace}.json"]\npolicies = ["{policy}"]\n{more}'
        (found,) = identities(written(tmp_path, text))
        return found

    base = identity()
    others = [
        identity("faster"),
        identity(policy="leftover:first=5x5"),
        identity(policy="even"),
        identity(more="seeds = [1]"),
        identity(more='gpus = ["h200"]'),
        identity(more='gpus = ["mine.toml"]'),
        identity(more="[parameters]\nsm_count = 16"),
        identity(more='workload = "stream-pairs"'),
        identity(more="restart = true"),
    ]
    assert identity() == base
    assert len({base, *others}) == len(others) + 1
    assert identity(more="[parameters]\nsm_count = 15") == base
    monkeypatch.setattr(run, "model_version", lambda: "another")
    assert identity() not in {base, *others}


def test_identity_covers_the_gpu_that_a_trace_was_recorded_on(tmp_path: Path) -> None:
    """What a recording fits to depends on the GPU it was made on, wherever it is replayed."""
    load_trace(TABLE_1).model_copy(update={"device": "mine"}).save(tmp_path / "t.json")
    path = written(
        tmp_path, 'traces = ["t.json"]\ngpus = ["mine.toml"]\npolicies = ["serial"]\n[parameters]\nsm_count = 30\n'
    )
    k40c = (ROOT / "gpus" / "k40c.toml").read_text()
    found = []
    for sms, tflops in ((15, "5.04"), (10, "3.36")):
        text = k40c.replace("sm_count = { value = 15", f"sm_count = {{ value = {sms}").replace("5.04", tflops)
        (tmp_path / "mine.toml").write_text(text)
        (point,) = points(load_experiment(path))
        assert point.task is not None and point.task.device.sm_count == sms
        found.append(point)
    assert found[0].task.gpu == found[1].task.gpu, "replayed on the same"
    assert compute.compute(found[0].task).figures != compute.compute(found[1].task).figures
    assert found[0].identity != found[1].identity


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("model", "another"),
        ("trace", compute.Packed(b"", "another")),
        ("kind", "operation-pairs"),
        ("names", ("a", "b")),
        ("device", load_gpu("a100-40")),
        ("gpu", load_gpu("a100-40")),
        ("source", "another"),
        ("restart", True),
        ("seed", 1),
    ],
)
def test_identity_is_another_for_each_part_of_a_task(tmp_path: Path, field: str, other: object) -> None:
    (point, *_) = points(load_experiment(small(tmp_path)))
    assert point.task is not None
    changed = replace(point.task, **{field: other})
    assert run.identity(changed, "leftover") != run.identity(point.task, "leftover") == point.identity
    assert run.identity(point.task, "leftover:first=a") != point.identity


def test_identity_names_every_part_of_a_task_but_where_its_code_is() -> None:
    """A part that is added to a task has to be added to the test above, too."""
    parts = {field.name for field in fields(compute.Task)}
    assert parts == {
        "model", "trace", "kind", "restart", "names", "device", "gpu", "policy", "source", "seed",
    }  # fmt: skip


def test_the_models_sources_are_those_that_a_point_is_computed_with() -> None:
    sources = fingerprint.sources("gpusim.sweeps.compute", "gpusim.policies")
    assert compute.model_version() == fingerprint.data([sources, fingerprint.files([VALIDATED])])


def test_identity_of_a_users_policy_is_that_of_its_file(tmp_path: Path) -> None:
    policy = "from gpusim.policies.hardware import Leftover\n\n\nclass Mine(Leftover):\n    summary = 'mine'\n"
    path = written(tmp_path, f'traces = ["{TABLE_1}"]\npolicies = ["mine.py:Mine"]\n')
    found = []
    for text in (policy, policy + "    channels: int = 4\n", policy):
        (tmp_path / "mine.py").write_text(text)
        found += identities(path)
    assert found[0] == found[2] != found[1]
    assert swept(path).outcomes[0].error == ""


def test_a_worker_with_other_sources_says_so(tmp_path: Path) -> None:
    (point, *_) = points(load_experiment(small(tmp_path)))
    assert point.task is not None
    other = compute.compute(replace(point.task, model="another"))
    assert other.error == "the worker has other sources of gpusim; expected the same on all machines"
