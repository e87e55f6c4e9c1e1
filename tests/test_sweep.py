"""Sweeps: what an experiment asks for, who its points are, and the table they end up in."""

from __future__ import annotations

import csv
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest
from executors import Here
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import gpusim
from gpusim import cli, load_gpu, load_trace
from gpusim import replay as replayed
from gpusim.common import fingerprint
from gpusim.common.errors import InputError
from gpusim.common.spreadsheet import original
from gpusim.hardware.what_if import QUANTITIES, what_if
from gpusim.results.error_band import VALIDATED
from gpusim.results.metrics import undominated
from gpusim.sweeps import compute, picture, run, summary, workers
from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import Swept, label_names, points, sweep
from gpusim.sweeps.table import read_rows
from gpusim.sweeps.workers import local
from gpusim.trace.format import Trace
from gpusim.trace.operations import Host, Stream

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT / "traces"
PAIR = TRACES / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
TABLE_1 = TRACES / "spaa20_table1.json"

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command computes in this process; tests/test_sweep_robustness.py starts processes."""
    monkeypatch.setattr(workers, "local", lambda jobs: (Here, 1))


def written(folder: Path, text: str, name: str = "experiment.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def small(folder: Path, more: str = "", policies: str = '"leftover", "even"') -> Path:
    return written(folder, f'traces = ["{PAIR}", "{TABLE_1}"]\npolicies = [{policies}]\n{more}')


def swept(path: Path, out: Path | None = None) -> Swept:
    return sweep(load_experiment(path), out or path.with_suffix(".csv"), Here, 1)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


# ---- what an experiment asks for


def test_a_path_is_enough_from_python(tmp_path: Path) -> None:
    path = small(tmp_path)
    swept = gpusim.sweep(path, executors=Here)
    assert swept.table == path.with_suffix(".csv")
    assert repr(swept) == f"Swept(table={str(swept.table)!r}, points={len(swept.points)}, failed=0)"
    assert list(swept.frame["policy"]) == [point.labels[-2] for point in swept.points]
    again = gpusim.sweep(str(path), executors=Here)
    assert again.computed == 0 and again.frame.equals(swept.frame)


def test_the_points_are_the_product_in_order(tmp_path: Path) -> None:
    more = "seeds = [0, 7]\n[parameters]\nsm_count = ['x1', 30]\n"
    experiment = load_experiment(small(tmp_path, more))
    assert label_names(experiment) == ("trace", "pair", "gpu", "sm_count", "policy", "seed")
    assert [point.labels for point in points(experiment)] == [
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 132, "leftover", 0),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 132, "leftover", 7),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 132, "even", 0),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 132, "even", 7),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 30, "leftover", 0),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 30, "leftover", 7),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 30, "even", 0),
        (PAIR.name.removesuffix(".json.gz"), "", "h200", 30, "even", 7),
        ("spaa20_table1", "", "k40c", 15, "leftover", 0),
        ("spaa20_table1", "", "k40c", 15, "leftover", 7),
        ("spaa20_table1", "", "k40c", 15, "even", 0),
        ("spaa20_table1", "", "k40c", 15, "even", 7),
        ("spaa20_table1", "", "k40c", 30, "leftover", 0),
        ("spaa20_table1", "", "k40c", 30, "leftover", 7),
        ("spaa20_table1", "", "k40c", 30, "even", 0),
        ("spaa20_table1", "", "k40c", 30, "even", 7),
    ]


def test_patterns_gpus_tables_of_policies_and_pairs(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    for name in ("b.json", "a.json"):
        load_trace(PAIR).save(tmp_path / "traces" / name)
    (tmp_path / "mine.toml").write_text((ROOT / "gpus" / "v100.toml").read_text())
    path = written(
        tmp_path,
        """
        traces = ["traces/*.json"]
        workload = "stream-pairs"
        gpus = ["h200", "mine.toml"]
        policies = ["serial", { name = "inter-sm", sms = ["20+60", "40+40"], dynamic = false }]
        """,
    )
    experiment = load_experiment(path)
    assert [source.label for source in experiment.sources] == ["a", "b"]
    assert [gpu.name for gpu in experiment.gpus] == ["h200", "mine"]
    assert [policy.label for policy in experiment.policies] == [
        "serial",
        "inter-sm:sms=20+60,dynamic=false",
        "inter-sm:sms=40+40,dynamic=false",
    ]
    assert {point.labels[1] for point in points(experiment)} == {"3x3+5x5"}
    assert len(points(experiment)) == 2 * 2 * 3


def test_tables_of_parameters_follow_one_another_and_a_gpu_counts_once(tmp_path: Path) -> None:
    more = '[[parameters]]\nsm_count = ["x1", "x2"]\n[[parameters]]\nregisters_per_sm = ["x1", "x2"]\n'
    path = written(tmp_path, f'traces = ["{TABLE_1}"]\npolicies = ["serial"]\n{more}')
    assert [point.labels[3:5] for point in points(load_experiment(path))] == [(15, 65536), (30, 65536), (15, 131072)]


def test_a_trace_and_a_link_to_it_are_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(Path(TABLE_1).read_bytes())
    (tmp_path / "b.json").symlink_to(tmp_path / "a.json")
    experiment = load_experiment(written(tmp_path, 'traces = ["*.json"]\npolicies = ["serial"]\n'))
    assert [source.path.name for source in experiment.sources] == ["a.json"]


def test_traces_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        load_trace(TABLE_1).save(tmp_path / folder / "t.json")
    experiment = load_experiment(written(tmp_path, 'traces = ["*/t.json"]\npolicies = ["serial"]\n'))
    assert [source.label for source in experiment.sources] == ["one/t.json", "two/t.json"]
    done = swept(experiment.path)
    assert done.computed == 1, "the same point, whatever it is called"
    assert len({outcome.figures for outcome in done.outcomes}) == 1 and len(done.points) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("traces = [", "is not TOML: "),
        ('policies = ["serial"]', "traces: missing; expected this key"),
        ('traces = []\npolicies = ["serial"]', "traces: is a list of 0; expected "),
        ('traces = ["no*.json"]\npolicies = ["serial"]', "traces[0]: 'no*.json' matches no file; expected traces, "),
        ('traces = ["{t}"]\npolicies = ["serial", "sreial"]', "policies[1]: sreial: no such policy; expected one of "),
        (
            'traces = ["{t}"]\npolicies = ["inter-sm:smz=1"]',
            "policies[0]: inter-sm: has no parameter 'smz'; expected one of ",
        ),
        (
            'traces = ["{t}"]\npolicies = [{{ sms = "1+1" }}]',
            "policies[0].name: missing; expected the name of a policy",
        ),
        ('traces = ["{t}"]\npolicies = ["serial"]\ngpus = ["h2000"]', "gpus[0]: 'h2000' is no GPU; expected one of "),
        ('traces = ["{t}"]\npolicies = ["serial"]\nseeds = [-1]', "seeds[0]: is -1; expected "),
        (
            'traces = ["{t}"]\npolicies = ["serial"]\nseed = [1]',
            "seed: unknown key; expected one of traces, ",
        ),
        ('traces = ["{t}"]\npolicies = ["serial"]\nworkload = "all"', "workload: is 'all'; expected 'trace', "),
        ('traces = "{t}"\npolicies = ["serial"]', "traces: is "),
        (
            'traces = ["{t}"]\npolicies = ["leftover:first=5\\nx"]',
            "policies[0]: is 'leftover:first=5\\nx'; expected text that can be printed on a line",
        ),
        ('traces = ["."]\npolicies = ["serial"]', "traces[0]: '.' matches no file; expected traces, "),
        ('traces = ["{t}"]\npolicies = [1]', "policies[0]: is 1; expected a text or a table"),
        (
            'traces = ["{t}"]\npolicies = [{{ name = "quota", blocks = [] }}]',
            "policies[0].blocks: is []; expected a value, ",
        ),
        (
            'traces = ["{t}"]\npolicies = [{{ name = ["a", "b"] }}]',
            "policies[0].name: is not one text; expected the name ",
        ),
        ('traces = ["{t}"]\npolicies = ["serial"]\nparameters = [1]', "parameters[0]: is 1; expected a table"),
        (
            'traces = ["{t}"]\npolicies = ["serial"]\n[parameters]\nsm_count = nan',
            "parameters[0].sm_count: is nan; expected a number",
        ),
        (
            'traces = ["{t}"]\npolicies = ["serial"]\n[parameters]\nsm_count = {{ a = 1 }}',
            "parameters[0].sm_count: is {'a': 1}; expected a value, or a list of some",
        ),
        (
            'traces = ["{t}"]\npolicies = ["serial"]\n[parameters]\nl2_bytes = 1',
            "parameters[0].l2_bytes: cannot be changed; expected one of sm_count, ",
        ),
        (
            'traces = ["{t}"]\npolicies = ["serial"]\n[parameters]\nsm_count = "half"',
            "parameters[0].sm_count: is 'half'; expected a number, xFACTOR such as x0.5, or the name of a GPU",
        ),
        (
            'traces = ["{t}"]\npolicies = ["serial"]\n[parameters]\nsm_count = true',
            "parameters[0].sm_count: is True; expected a number",
        ),
    ],
)
def test_an_experiment_that_is_wrong_is_one_line(tmp_path: Path, capsys: Capture, text: str, expected: str) -> None:
    path = written(tmp_path, text.format(t=TABLE_1) if "{t}" in text else text)
    assert cli.main(["sweep", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{path}: {expected}")
    assert not path.with_suffix(".csv").exists()


def test_a_trace_without_pairs_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    trace = load_trace(TABLE_1)
    trace.model_copy(update={"streams": trace.streams[:1]}).save(tmp_path / "one.json")
    path = written(tmp_path, 'traces = ["one.json"]\nworkload = "stream-pairs"\npolicies = ["serial"]\n')
    assert cli.main(["sweep", str(path)]) == 2
    assert "workload: no trace has stream-pairs; expected traces that have some" in capsys.readouterr().err


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


# ---- the table


@pytest.mark.parametrize("restart", [False, True])
def test_figures_are_those_of_a_replay(tmp_path: Path, restart: bool) -> None:
    path = small(tmp_path, f"restart = {str(restart).lower()}\nseeds = [3]\n[parameters]\nsm_count = 30\n")
    swept(path)
    rows = read_rows(tmp_path / "experiment.csv")
    assert [row["trace"] for row in rows] == [PAIR.name.removesuffix(".json.gz")] * 2 + ["spaa20_table1"] * 2
    for row in rows:
        file = PAIR if row["gpu"] == "h200" else TABLE_1
        gpu = what_if(load_gpu(row["gpu"]), {"sm_count": 30})
        result = replayed(load_trace(file), gpu, row["policy"], seed=3)
        serial = replayed(load_trace(file), gpu, "serial", seed=3)
        assert float(row["makespan_us"]) == result.makespan_us
        assert float(row["speedup_vs_serial"]) == serial.makespan_us / result.makespan_us
        assert float(row["largest_slowdown"]) == max(run.slowdown for run in result.stream_runs)
        again = replayed(load_trace(file), gpu, row["policy"], seed=3, restart=True)
        for name in ("stp", "antt", "fairness"):
            assert row[name] == (str(again.metrics[name]) if restart else "")
        used = result.metrics["utilisation[dram]"]
        assert row["utilisation_dram"] == ("" if used is None else str(used))
        assert (used is None) == (file == TABLE_1)  # of which no bytes are known


def test_an_oracle_says_what_it_found(tmp_path: Path) -> None:
    path = written(tmp_path, f'traces = ["{TABLE_1}"]\npolicies = ["oracle-inter-sm:step=5"]\n')
    (outcome,) = swept(path).outcomes
    again = replayed(load_trace(TABLE_1), load_gpu("k40c"), outcome.division)
    assert outcome.division.startswith("inter-sm:sms=") and outcome.figures[0] == again.makespan_us


def test_processes_threads_and_this_process_give_the_same_bytes(tmp_path: Path) -> None:
    path = small(tmp_path, "seeds = [0, 1]\n", '"serial", "leftover", "even", "inter-sm"')
    tables = []
    for n, (executors, width) in enumerate([(Here, 1), local(2), (lambda: ThreadPoolExecutor(2), 16)]):
        out = tmp_path / f"{n}.csv"
        sweep(load_experiment(path), out, executors, width)
        tables.append(out.read_bytes())
    assert tables[0] == tables[1] == tables[2]


def test_what_the_table_holds_is_not_computed_again(tmp_path: Path) -> None:
    path = small(tmp_path)
    first = swept(path)
    whole = path.with_suffix(".csv").read_bytes()
    assert (first.computed, swept(path).computed) == (4, 0)
    assert path.with_suffix(".csv").read_bytes() == whole
    small(tmp_path, policies='"leftover", "inter-sm", "even"')
    more = swept(path)
    assert (more.computed, more.dropped) == (2, 0)
    fresh = tmp_path / "fresh.csv"
    swept(path, fresh)
    assert fresh.read_bytes() == path.with_suffix(".csv").read_bytes()
    small(tmp_path)
    less = swept(path)
    assert (less.computed, less.dropped) == (0, 2)
    assert path.with_suffix(".csv").read_bytes() == whole


@pytest.mark.parametrize("kept", [0, 1, 2, 3])
def test_any_rows_in_any_order_and_one_cut_off_end_as_the_same_table(tmp_path: Path, kept: int) -> None:
    path = small(tmp_path)
    out = path.with_suffix(".csv")
    swept(path)
    whole = out.read_bytes()
    head, *rows = lines(out)
    rows = rows[::-1]
    out.write_text("\n".join([head, *rows[:kept], rows[kept][:-1]]))  # without its last character and newline
    assert swept(path).computed == 4 - kept
    assert out.read_bytes() == whole


def test_a_failed_point_is_a_row_and_is_tried_again(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, policies='"inter-sm:sms=100+32", "serial"')
    out = path.with_suffix(".csv")
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    told = capsys.readouterr()
    assert "1 of 4 points failed; the first, spaa20_table1 k40c inter-sm:sms=100+32 0: " in told.err
    rows = read_rows(out)
    assert [bool(row["error"]) for row in rows] == [False, False, True, False]
    assert rows[2]["makespan_us"] == "" and "at most the 15 of k40c" in rows[2]["error"]
    whole = out.read_bytes()
    assert swept(path).computed == 1
    assert out.read_bytes() == whole


def test_a_defect_of_a_policy_costs_its_points(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from gpusim.policies.hardware import Leftover\n\n\nclass Bad(Leftover):\n"
        "    def prepare(self, gpu, streams):\n        raise ZeroDivisionError('two\\nlines')\n"
    )
    path = small(tmp_path, policies='"bad.py:Bad", "serial"')
    done = swept(path)
    told = "policy leftover: prepare raised ZeroDivisionError: two lines (bad.py, line 6)"
    assert [outcome.error.partition(";")[0] for outcome in done.outcomes] == [told, ""] * 2
    assert swept(path).computed == 2


def test_a_file_that_is_no_table_stays_as_it_is(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    for name, content in (("a.csv", "a,b\n1,2\n"), ("b.csv", "\n"), ("c.parquet", "no parquet")):
        out = written(tmp_path, content, name)
        assert cli.main(["sweep", str(path), "--out", str(out)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{out}: ") and "expected such a table, or a name that is free" in line
        assert out.read_text() == content


def test_a_table_that_somebody_edited_is_one_line(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    swept(path)
    out = path.with_suffix(".csv")
    text = out.read_text().replace(lines(out)[2].split(",")[5], "much", 1)
    out.write_text(text)
    assert cli.main(["sweep", str(path)]) == 2
    assert f"{out}: line 3: is no row of a sweep; expected a table that nobody edited" in capsys.readouterr().err
    assert out.read_text() == text


@pytest.mark.parametrize("name", ["table.txt", "table"])
def test_another_kind_of_table_is_one_line(tmp_path: Path, capsys: Capture, name: str) -> None:
    assert cli.main(["sweep", str(small(tmp_path)), "--out", str(tmp_path / name)]) == 2
    assert "--out: is no kind of table; expected FILE.csv or FILE.parquet" in capsys.readouterr().err


def test_parquet_holds_what_csv_holds(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = small(tmp_path, policies='"leftover", "inter-sm:sms=100+32"')
    swept(path)
    out = tmp_path / "table.parquet"
    assert swept(path, out).computed == 4
    whole = out.read_bytes()
    assert swept(path, out).computed == 1  # what failed
    assert out.read_bytes() == whole
    assert [file.name for file in tmp_path.glob("table.parquet*")] == ["table.parquet"]
    wide, plain = pd.read_parquet(out), pd.read_csv(path.with_suffix(".csv"), dtype=str)
    assert list(wide.columns) == list(plain.columns)
    for column in compute.FIGURES:
        assert wide[column].dtype == "float64" and wide[column].equals(plain[column].astype("float64"))
    assert list(wide["error"].fillna("")) == [original(text) for text in plain["error"].fillna("")]


def test_traces_of_a_users_gpu(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text((ROOT / "gpus" / "k40c.toml").read_text())
    load_trace(TABLE_1).model_copy(update={"device": "mine"}).save(tmp_path / "t.json")
    path = written(
        tmp_path,
        'traces = ["t.json"]\ngpus = ["h200", "mine.toml"]\npolicies = ["serial"]\n'
        '[parameters]\nsm_count = ["x1", 30]\n',
    )
    done = swept(path)
    assert [point.labels[2:4] for point in done.points] == [("h200", 132), ("h200", 30), ("mine", 15), ("mine", 30)]
    assert [bool(outcome.error) for outcome in done.outcomes] == [True, True, False, False]
    assert done.outcomes[0].error.startswith("t: device: is 'mine'; expected one of a10, ")
    task = done.points[3].task
    assert task is not None and task.device == load_gpu(tmp_path / "mine.toml"), "recorded on 15 SMs, replayed on 30"


def test_workloads_that_take_no_time(tmp_path: Path, capsys: Capture) -> None:
    operation = Host(id="x", kind="host", what="other", duration_us=0.0)
    streams = (Stream(name="a", operations=(operation,)), Stream(name="b", operations=()))
    Trace(version=1, name="nothing", device="h200", streams=streams).save(tmp_path / "nothing.json")
    path = written(tmp_path, 'traces = ["nothing.json"]\npolicies = ["serial", "even"]\n')
    assert cli.main(["sweep", str(path), "--jobs", "1", "--plot", str(tmp_path / "p.png")]) == 0
    assert capsys.readouterr().out.splitlines()[2].split()[3:5] == ["1.000x", "1.00x"]


def test_a_policy_that_exits_or_cannot_even_be_told_costs_its_points(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import sys\nfrom gpusim.policies.hardware import Leftover\n\n\nclass Silent(Exception):\n"
        "    def __str__(self):\n        raise TypeError\n\n\nclass Exits(Leftover):\n"
        "    def prepare(self, gpu, streams):\n        sys.exit(0)\n\n\nclass Hides(Leftover):\n"
        "    def prepare(self, gpu, streams):\n        raise Silent\n\n\nclass Shouts(Leftover):\n"
        "    def prepare(self, gpu, streams):\n        raise ValueError('\\ud800' + 'a' * 200_000)\n"
    )
    path = small(tmp_path, policies='"odd.py:Exits", "odd.py:Hides", "odd.py:Shouts", "serial"')
    errors = [outcome.error for outcome in swept(path).outcomes[:4]]
    assert errors[:2] == [
        "policy leftover: prepare raised SystemExit: 0 (odd.py, line 12)",
        "policy leftover: prepare raised Silent (odd.py, line 17)",
    ]
    assert len(errors[2]) < compute.MOST_CHARACTERS and errors[2].startswith(
        "policy leftover: prepare raised ValueError: \N{REPLACEMENT CHARACTER}aaa"
    )
    assert errors[3] == ""
    assert swept(path).computed == 6, "all but serial, and the table can be read"


def test_a_policys_file_that_changes_meanwhile_is_an_error(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text("from gpusim.policies.hardware import Leftover\n\n\nclass Mine(Leftover):\n    pass\n")
    experiment = load_experiment(small(tmp_path, policies='"mine.py:Mine"'))
    mine.write_text(mine.read_text().replace("pass", "name = 'mine'"))
    done = sweep(experiment, tmp_path / "out.csv", Here, 1)
    assert all("is not what it was when the sweep began" in outcome.error for outcome in done.outcomes)


def test_another_experiments_table_stays_as_it_is(tmp_path: Path, capsys: Capture) -> None:
    swept(small(tmp_path))
    out = tmp_path / "experiment.csv"
    whole = out.read_bytes()
    other = written(tmp_path, f'traces = ["{TABLE_1}"]\npolicies = ["smk"]\n', "other.toml")
    assert cli.main(["sweep", str(other), "--out", str(out)]) == 2
    assert f"{out}: holds 4 rows, none of them of {other}; expected the table of this experiment, or " in (
        capsys.readouterr().err
    )
    assert out.read_bytes() == whole


def test_rows_of_an_older_model_are_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small(tmp_path)
    with monkeypatch.context() as patch:
        for module in (compute, run):
            patch.setattr(module, "model_version", lambda: "older")
        swept(path)
    older = path.with_suffix(".csv").read_bytes()
    again = swept(path)
    assert (again.computed, again.dropped) == (4, 4)
    assert path.with_suffix(".csv").read_bytes() != older
    assert swept(path).computed == 0


def test_a_row_cut_inside_a_character(tmp_path: Path) -> None:
    load_trace(TABLE_1).save(tmp_path / "日本.json")
    path = written(tmp_path, 'traces = ["日本.json"]\npolicies = ["serial", "even"]\n')
    swept(path)
    out = path.with_suffix(".csv")
    whole = out.read_bytes()
    out.write_bytes(whole[: whole.rindex("日".encode()) + 1])
    assert swept(path).computed == 1
    assert out.read_bytes() == whole


def test_what_ifs_that_a_gpu_cannot_have_are_rows(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "bad.json").write_text("{")
    path = written(
        tmp_path,
        f'traces = ["{PAIR}", "bad.json"]\npolicies = ["serial"]\n[parameters]\nsm_count = ["x0.5", 33]\n',
    )
    done = swept(path, tmp_path / "t.parquet")
    assert [point.labels[3] for point in done.points] == [66, 33, "", ""]
    assert "sm_count: 33 SMs do not make whole TPCs; expected a multiple of sms_per_tpc, 2" in done.outcomes[1].error
    assert list(pd.read_parquet(tmp_path / "t.parquet")["sm_count"].fillna(0)) == [66, 33, 0, 0]


def test_values_of_a_gpu_that_change_nothing_are_told(tmp_path: Path, capsys: Capture) -> None:
    """The registers bind both kernels: with twice the shared memory nothing is another, with half the SMs all is."""
    varied = '[parameters]\nshared_memory_per_sm_bytes = ["x1", "x2"]\nsm_count = ["x1", "x0.5"]\n'
    path = written(tmp_path, f'traces = ["{PAIR}"]\npolicies = ["serial", "leftover"]\n{varied}')
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "same makespans" in line]
    assert told == ["gpusim sweep: shared_memory_per_sm_bytes 233,472 and 466,944 give the same makespans on h200"]


def test_a_profile_among_the_traces_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text('{"traceEvents": []}')
    done = swept(written(tmp_path, 'traces = ["profile.json"]\npolicies = ["serial"]\n'))
    assert "is a profile (kineto), not a trace; expected a trace, which `gpusim import" in done.outcomes[0].error


def test_a_sweep_of_which_nothing_comes_fails(tmp_path: Path) -> None:
    path = written(tmp_path, f'traces = ["{TABLE_1}"]\npolicies = ["inter-sm:sms=100+32"]\n')
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 2
    assert len(read_rows(path.with_suffix(".csv"))) == 1


def test_gpus_of_one_name_are_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "k40c.toml").write_text((ROOT / "gpus" / "p100.toml").read_text())
    path = small(tmp_path, 'gpus = ["k40c", "k40c.toml"]')
    assert cli.main(["sweep", str(path)]) == 2
    assert "gpus: has two GPUs called 'k40c'; expected a name of its own for each" in capsys.readouterr().err


# ---- what it shows


def test_undominated_pairs_by_hand() -> None:
    assert undominated([(-1.0, -1.0), (-2.0, -0.5), (-1.5, -0.5), (-2.0, -0.5), (-0.5, -1.0)]) == [
        True,
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("restart", [False, True])
def test_summaries_by_hand(tmp_path: Path, restart: bool) -> None:
    done = swept(small(tmp_path, f"restart = {str(restart).lower()}\nseeds = [0, 1]\n"))
    with (tmp_path / "experiment.csv").open() as file:
        rows = list(csv.DictReader(file))
    for one in summary.policy_summaries(done):
        of = [row for row in rows if (row["gpu"], row["policy"]) == (one.gpu, one.policy)]
        speedups = [float(row["speedup_vs_serial"]) for row in of]
        assert one.points == len(of) == 2
        assert one.speedup == pytest.approx((speedups[0] * speedups[1]) ** 0.5)
        assert one.largest_slowdown == pytest.approx(sum(float(row["largest_slowdown"]) for row in of) / 2)
        assert one.stp == (pytest.approx(sum(float(row["stp"]) for row in of) / 2) if restart else None)
        assert one.fairness == (pytest.approx(sum(float(row["fairness"]) for row in of) / 2) if restart else None)
    assert sum(one.best for one in summary.policy_summaries(done)) == 4
    for gpu in done.experiment.gpus:
        ranked = [one.stp if restart else one.speedup for one in summary.policy_summaries(done) if one.gpu == gpu]
        assert len(ranked) == 2 and ranked == sorted(ranked, reverse=True)


def row_of(policy: str, trace: str, speedup: float, error: float | None = None) -> summary.SweptRow:
    labels = {"policy": policy, "trace": trace, "gpu": "h200", "seed": 0}
    known = {} if error is None else {compute.ERROR: error}
    return summary.SweptRow(labels, {"speedup_vs_serial": speedup, **known}, "")


def test_intervals_are_paired_by_workload() -> None:
    """A policy that is 5 % behind the best on every workload is so for certain, however much workloads differ."""
    best = [row_of("a", trace, speedup) for trace, speedup in (("x", 1.1), ("y", 1.5), ("z", 2.0))]
    other = [row_of("b", str(row.labels["trace"]), row.figures["speedup_vs_serial"] / 1.05) for row in best]
    lead, half = summary.behind(other, best[::-1], False)
    assert lead == pytest.approx(math.log(1.05)) and half == pytest.approx(0.0, abs=1e-9)
    interval = summary.speedup_interval(best)
    assert interval is not None and interval[0] < 1.1 and interval[1] > 2.0
    assert summary.speedup_interval(best[:2]) is None
    for freedom, quantile in ((4, 2.776), (10, 2.228), (100, 1.984)):  # of tables
        assert summary.student_t(freedom) == pytest.approx(quantile, abs=0.01)


def test_the_error_of_several_points_is_known_where_that_of_each_is() -> None:
    assert summary.model_error([row_of("a", "x", 1.0, 2.0), row_of("a", "y", 1.0, 4.0)]) == 3.0
    assert summary.model_error([row_of("a", "x", 1.0, 2.0), row_of("a", "y", 1.0)]) is None


def test_a_sweep_shows_parameters_errors_and_speedups_against_quantities(tmp_path: Path, capsys: Capture) -> None:
    path = written(
        tmp_path,
        f'traces = ["{TABLE_1}"]\npolicies = ["leftover", "warped-slicer:objective=stp"]\n'
        "[parameters]\nsm_count = ['x2', 'x1']\n",
    )
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [
        *("gpu", "sm_count", "policy", "objective", "points", "speedup", "slowdown", "behind", "best"),
        *("fastest", "model", "error", "Pareto-optimal"),
    ]
    assert {line[1] for line in lines[2:6]} == {"15", "30"} and all("validated" in line for line in lines[2:6])
    assert lines[6][:2] == ["not", "validated:"]
    assert [line[3] for line in lines[2:6] if line[2] == "warped-slicer"] == ["stp"] * 2
    (title,) = (at for at, line in enumerate(lines) if line[:4] == ["Speedup", "over", "serial", "against"])
    assert [line[:2] for line in lines[title + 3 :]] == [["k40c", "15"], ["k40c", "30"]]


def test_streams_that_restart_are_ranked_by_stp() -> None:
    """Serial is slower run once, and does most work at once of streams that restart."""
    of = [
        summary.SweptRow({"policy": policy}, {"speedup_vs_serial": speedup, "stp": stp}, "")
        for policy, speedup, stp in (("serial", 1.0, 1.3), ("leftover", 1.5, 1.2))
    ]
    for restart, best in ((False, "leftover"), (True, "serial")):
        assert [row.labels["policy"] for row in summary.best_of(of, restart)] == [best]


def test_each_workload_shows_what_it_is_ranked_by(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, "restart = true\nseeds = [0, 1]\n")
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "most STP" in printed and "fastest" not in printed
    assert re.search(r"Each workload\n.*policy with most STP +STP", printed)


def test_json_for_programs(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    assert cli.main(["sweep", str(path), "--jobs", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["points"], content["computed"], content["failed"]) == (4, 4, 0)
    assert content["table"] == str(path.with_suffix(".csv"))
    assert {row["policy"] for row in content["policies"]} == {"leftover", "even"}


@pytest.mark.release
@pytest.mark.parametrize(
    "more", ["", "restart = true\n", "[parameters]\nsm_count = ['x1', 'x2']\ndram_bandwidth_gb_per_s = ['x1', 'x2']\n"]
)
def test_the_same_sweep_draws_the_same_picture(tmp_path: Path, more: str) -> None:
    path = small(tmp_path, more)
    for name in ("a.png", "b.png"):
        assert cli.main(["sweep", str(path), "--jobs", "1", "--plot", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> list[Axes]:
    """The axes of the picture of a small sweep."""
    axes: list[Axes] = []
    monkeypatch.setattr(picture, "save_figure", lambda figure, path: axes.extend(figure.axes))
    picture.draw(swept(small(tmp_path, more)), tmp_path / "p.png")
    return axes


def test_a_picture_names_quantities_and_policies_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn(
        tmp_path, monkeypatch, "[parameters]\nsm_count = ['x1', 'x2']\ndram_bandwidth_gb_per_s = ['x1', 'x2']\n"
    )
    assert [axis.get_title(loc="left") for axis in axes] == ["SMs", "DRAM bandwidth"]
    assert set(picture.QUANTITIES) == set(QUANTITIES)


def test_who_gains_and_who_pays_has_a_row_for_each_policy() -> None:
    figures = [("a", 1.25, 1.5), ("a", 1.35, 1.5), ("b", 1.0, 2.0)]
    several = [
        summary.SweptRow({"policy": policy, "trace": str(n)}, {"speedup_vs_serial": gain, "largest_slowdown": fate}, "")
        for n, (policy, gain, fate) in enumerate(figures)
    ]
    axes = Figure().subplots()
    picture._draw_merits(axes, several, "speedup_vs_serial", {"a": True, "b": False})
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    means = {
        line.get_label(): list(line.get_xdata()) for line in axes.lines if str(line.get_label()).startswith("mean")
    }
    assert means == {"mean, Pareto-optimal": [pytest.approx(1.3)], "mean, dominated": [1.0]}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/p.png", "p.png: cannot be written (No such file or directory); expected a file in a folder that may be"),
        ("p.gif", "p.gif: picture: cannot be drawn to; expected a file that ends in .png, .svg, .pdf"),
    ],
)
def test_a_picture_that_cannot_be_written_is_one_line(name: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["sweep", str(small(tmp_path)), "--jobs", "1", "--plot", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_experiments_have_points(path: Path) -> None:
    assert all(point.task is not None for point in points(load_experiment(path)))


def test_errors_name_the_experiment(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_experiment(tmp_path / "none.toml")
