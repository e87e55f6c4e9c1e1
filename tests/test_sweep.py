"""Sweeps: what an experiment asks for, and the table that its points end up in."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from executors import Here
from sweeping import PAIR, ROOT, TABLE_1, Capture, lines, small, swept, written

import gpusim
from gpusim import cli, load_gpu, load_trace
from gpusim import replay as replayed
from gpusim.common.spreadsheet import original
from gpusim.hardware.what_if import what_if
from gpusim.sweeps import compute, run
from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import label_names, points, sweep
from gpusim.sweeps.table import read_rows
from gpusim.sweeps.workers import local
from gpusim.trace.format import Trace
from gpusim.trace.operations import Host, Stream

pytestmark = pytest.mark.usefixtures("sweeps_here")


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


@pytest.mark.parametrize("path", sorted((ROOT / "experiments").glob("*.toml")), ids=lambda path: path.stem)
def test_shipped_experiments_have_points(path: Path) -> None:
    assert all(point.task is not None for point in points(load_experiment(path)))
