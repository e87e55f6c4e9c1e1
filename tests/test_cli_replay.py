"""`gpusim replay`: its JSON, its tables, what it says of errors, and the folder that it writes."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import re
import sys
from pathlib import Path

import pytest
from command_line import INCEPTION, REPOSITORY, TABLE_1, Capture, as_rows, kernel, run_json, saved, unstyled

from gpusim import cli, session
from gpusim.commands.replay_folder import folder_names
from gpusim.common import tables
from gpusim.common.tables import Column, number
from gpusim.hardware.gpu import load_gpu
from gpusim.hardware.what_if import what_if
from gpusim.results.error_band import ErrorBand, HowWrong, error_band
from gpusim.results.runs import KernelRun
from gpusim.session import replay
from gpusim.trace.file import load_trace
from gpusim.trace.operations import Host, LoopArrivals, Stream

# ---- replay


def test_replay_json(capsys: Capture) -> None:
    content = run_json(capsys, "replay", TABLE_1, "--policy", "leftover", "--policy", "serial", "--json")
    assert isinstance(content, dict)
    assert list(content) == ["version", "trace", "gpu", "recorded_on", "seed", "bound_us", "results"]
    assert (content["version"], content["trace"], content["gpu"]) == (1, "spaa20_table1", "k40c")
    assert (content["recorded_on"], content["seed"]) == ("k40c", 0)
    keys = ["policy", "makespan_us", "speedup_vs_serial", "gain_us", "stp", "antt", "fairness"]
    keys += ["error_band", "error_band_reason", "streams", "programs", "slowdowns", "utilisation", "notes", "kernels"]
    assert all(list(row) == keys for row in content["results"])
    spans = [row["makespan_us"] for row in content["results"]]
    assert spans == sorted(spans)
    serial = next(row for row in content["results"] if row["policy"] == "serial")
    assert serial["speedup_vs_serial"] == 1.0
    for row in content["results"]:
        assert row["speedup_vs_serial"] == serial["makespan_us"] / row["makespan_us"]
        assert row["error_band"] is None or set(row["error_band"]) == {"experiment", "mape_percent"}
        assert list(row["streams"]) == list(row["slowdowns"]) == ["3x3", "5x5"]
        assert (row["stp"], row["antt"], row["fairness"]) == (None, None, None)  # without --restart
        assert [run["operation"] for run in row["kernels"]] == ["3a.3x3", "3a.5x5"]
        assert list(row["kernels"][0]) == list(KernelRun._fields)
        assert max(run["end_us"] for run in row["kernels"]) == row["makespan_us"]
        assert 0.0 < row["utilisation"]["registers"] <= 1.0 and row["utilisation"]["dram"] is None  # not counted
        assert row["notes"] == []
        assert max(span["end_us"] for span in row["streams"].values()) == row["makespan_us"]


def test_speedup_is_against_serial_even_when_it_was_not_asked_for(capsys: Capture) -> None:
    both = run_json(capsys, "replay", TABLE_1, "--policy", "leftover", "--policy", "serial", "--json")
    alone = run_json(capsys, "replay", TABLE_1, "--policy", "leftover", "--json")
    assert isinstance(both, dict) and isinstance(alone, dict)
    assert alone["results"] == [row for row in both["results"] if row["policy"] == "leftover"]


def test_replay_runs_the_five_default_policies(capsys: Capture) -> None:
    content = run_json(capsys, "replay", TABLE_1, "--json")
    assert isinstance(content, dict)
    assert {row["policy"] for row in content["results"]} == {"serial", "leftover", "inter-sm", "even", "warped-slicer"}


def test_replay_table(capsys: Capture) -> None:
    assert cli.main(["replay", TABLE_1, "--policy", "serial", "--policy", "leftover"]) == 0
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert captured.err == ""  # no progress where nobody watches
    assert lines[:2] == ["spaa20_table1 on k40c (NVIDIA Tesla K40c)", "2 streams, 2 operations, 2 kernels"]
    assert lines[3].split() == ["policy", "makespan", "µs", "speedup", "behind", "model", "error"]
    assert lines[5].split()[:4:3] == ["leftover", "best"] and lines[6].split()[::2] == [
        "serial",
        "1.000x",
        "%",
        "validated",
    ]
    assert lines[8].startswith("Plain streams (leftover) save 55.0 µs of 7,922.4: ")
    assert "note: not validated: nothing measured on k40c" in lines
    assert not any(line.startswith(("Start and end", "What waiting", "Makespan saved")) for line in lines)
    assert lines[-1].startswith("--details ") or lines[-2].startswith("--details ")
    assert not any(line != line.rstrip() or len(line) > 80 for line in lines)


def test_replay_prints_the_tables_that_are_asked_for(capsys: Capture) -> None:
    asked = ["replay", TABLE_1, "--policy", "serial", "--policy", "leftover", "--details"]
    titles = {
        "saved": "Makespan saved over serial, and where, µs",
        "streams": "Start and end of each stream, µs, and its slowdown",
        "kernels": "What waiting and sharing cost kernels under leftover, µs",
    }
    for name, title in titles.items():
        assert cli.main([*asked, name]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [other for other in titles.values() if other in lines] == [title]
    assert cli.main([*asked, "all"]) == 0
    assert set(titles.values()) <= set(capsys.readouterr().out.splitlines())
    assert cli.main([*asked, "gains,streams"]) == 0
    assert {titles["saved"], titles["streams"]} <= set(capsys.readouterr().out.splitlines())


def test_replay_of_one_stream_says_that_nothing_is_shared(tmp_path: Path, capsys: Capture) -> None:
    one = str(tmp_path / "one.json")
    assert cli.main(["trace", "select", str(INCEPTION), "--stream", "3x3", "-o", one]) == 0
    capsys.readouterr()
    assert cli.main(["replay", one]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "One stream: there is nothing to share the GPU with." in lines
    assert lines[-2].startswith("gpusim advise THIS OTHER: ")
    assert not [line for line in lines if "waiting" in line or line.startswith(("Start and end", "note: one stream"))]
    title = lines.index("Kernels by time under serial")
    rows = lines[title + 3 : -3]
    assert [line.split()[1] for line in rows] == ["1", "1", "1", "2"]  # launches of one name together
    assert [line.split()[0] for line in rows[2:]] == ["nhwcToNchwKernel", "nchwToNhwcKernel"]
    isolated_us = sum(run.solo_us for run in replay(one, "h200", "serial").kernel_runs)
    assert sum(float(line.split()[2]) for line in rows) == pytest.approx(isolated_us, abs=0.2), "as `explain` has it"


def test_replay_says_where_a_gain_comes_from(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("replay", TABLE_1, "--policy", "leftover", "--policy", "serial")
    leftover, serial = as_rows(run_json(capsys, *asked, "--json"))
    gain, lost = leftover["gain_us"], serial["gain_us"]
    assert isinstance(gain, dict) and isinstance(lost, dict)
    assert list(gain) == ["gaps", "tails", "waiting", "sharing", "rate"]
    assert sum(gain.values()) == pytest.approx(serial["makespan_us"] - leftover["makespan_us"])  # type: ignore[operator]
    assert set(lost.values()) == {0.0}
    assert cli.main([*asked, "--details=saved"]) == 0
    lines = capsys.readouterr().out.splitlines()
    title = lines.index("Makespan saved over serial, and where, µs")
    assert lines[title + 1].split() == ["policy", "saved", *gain]
    assert lines[title + 3].split() == ["leftover", *(number(us) for us in (sum(gain.values()), *gain.values()))]
    assert lines[title + 4] == ""  # nothing about serial
    monkeypatch.setattr(session, "MOST_PLACED", 0)
    assert [row["gain_us"] for row in as_rows(run_json(capsys, *asked, "--json"))] == [None, None]
    assert cli.main([*asked, "--details=saved"]) == 0
    assert "Makespan saved" not in capsys.readouterr().out


@pytest.mark.usefixtures("no_pictures")
def test_replay_table_on_a_terminal(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["replay", TABLE_1, "--policy", "serial", "--policy", "leftover"]) == 0
    captured = capsys.readouterr()
    assert "─" in captured.out and "leftover" in captured.out
    steps = [step for step in captured.err.split("\r\x1b[K") if step]
    fitting = "fitting kernels to their recording"
    assert steps[:3] == [tables.shortened(f"reading {TABLE_1}", 119), fitting, "replaying under serial (1 of 2)"]
    assert "replaying under leftover (2 of 2)" in steps
    assert captured.err.endswith("\r\x1b[K")
    assert cli.main(["replay", TABLE_1, "--policy", "serial", "--out", str(tmp_path / "out")]) == 0
    assert "\r\x1b[Kdrawing serial\r\x1b[K" in capsys.readouterr().err


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_tables_fit_the_terminal(width: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["replay", TABLE_1, "--details", "all"]) == 0
    lines = unstyled(capsys.readouterr().out).splitlines()
    assert max(len(line) for line in lines[1:]) <= width
    titles = [line for line in lines if line.startswith("stream ")]
    assert (len(titles) == 1) == (width >= 200)
    assert "warped-slicer" in " ".join(titles)
    kernels = next(line for line in reversed(lines) if line.startswith("3a.3x3")).split()
    assert kernels[2:7] == ["1.7", "7,725.8", "7,391.4", "0.0", "334.4"]  # numbers stay whole
    assert cli.main(["gpus"]) == 0
    lines = unstyled(capsys.readouterr().out).splitlines()
    assert max(map(len, lines)) <= width
    assert {"1,695", "31.2", "600", "6.0", "24"} <= set(next(line for line in lines if line.startswith("a10 ")).split())


NUMBER = re.compile(r"\d{1,3}(,\d{3})*(\.\d+)?x?")


@pytest.mark.parametrize(
    "argv",
    [
        ["replay", INCEPTION],
        ["replay", INCEPTION, "--restart", "--policy=inter-sm:sms=20+70+28+14", "--policy=leftover:first=pool_proj"],
        ["replay", INCEPTION, TABLE_1.replace("spaa20_table1.json", "inception_5a.json.gz"), "--policy=leftover"],
        ["replay", INCEPTION, "--gpu=h100-pcie", "--seed=3", "--policy=even"],
        ["replay", INCEPTION, "--details=all", "--policy=quota:blocks=1x1:1+3x3:1+5x5:1+pool_proj:1", "--policy=smk"],
        ["trace", "show", INCEPTION],
        ["trace", "show", TABLE_1],
        ["trace", "check", INCEPTION],
        ["occupancy", "--gpu=k40c", "--threads=512", "--registers=0", "--shared-memory=99999"],
        ["gpus"],
        ["policies"],
        ["policies", "warped-slicer"],
    ],
    ids=lambda argv: " ".join(Path(word).name for word in argv),
)
def test_80_columns_are_enough(argv: list[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(argv) == 0
    plain = capsys.readouterr().out
    assert argv[0] != "replay" or max(map(len, plain.splitlines())) <= 80
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert cli.main(argv) == 0
    drawn = unstyled(capsys.readouterr().out)
    assert max(len(line) for line in drawn.splitlines()) <= 80
    numbers = {word for word in plain.split() if NUMBER.fullmatch(word)}
    assert numbers <= set(drawn.split())  # each whole


def test_a_narrow_table_narrows_titles_then_texts_and_never_numbers() -> None:
    columns = [Column("name", narrow="break"), Column("time alone", right=True), Column("kernel", narrow="cut")]
    rows = [["a" * 20, "1,234.5", "b" * 20]]
    assert tables._widths(columns, rows, 60) == [20, 10, 20]
    assert tables._widths(columns, rows, 48) == [20, 8, 20]
    assert tables._widths(columns, rows, 31) == [12, 7, 12]
    assert tables._widths(columns, rows, 10) == [7, 7, 7]
    assert tables._broken("inter-sm:sms=20+70+28+14", 10) == "inter-sm:\nsms=20+70+\n28+14"
    assert tables._broken("not validated: h100-pcie", 18) == "not validated:\nh100-pcie"
    assert tables._broken("isolated", 5) == "isolated" and tables._broken("isolated", 5, True) == "isola\nted"


def test_replay_says_how_wrong_it_may_be(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    band = HowWrong(ErrorBand("streams", 2.34), "", "on k40c")
    monkeypatch.setattr(session, "error_band", lambda *_: band)
    assert cli.main(["replay", TABLE_1, "--policy", "serial"]) == 0
    assert "±2.3 % (two calls in streams, k40c)" in capsys.readouterr().out
    (row,) = as_rows(run_json(capsys, "replay", TABLE_1, "--policy", "serial", "--json"))
    assert row["error_band"] == {"experiment": "streams", "mape_percent": 2.34} and row["error_band_reason"] is None


def test_replay_says_why_nobody_knows(capsys: Capture) -> None:
    (row,) = as_rows(run_json(capsys, "replay", TABLE_1, "--policy", "serial", "--json"))
    assert row["error_band"] is None
    assert row["error_band_reason"] == "not validated: nothing measured on k40c"


@pytest.mark.usefixtures("no_pictures")
def test_what_was_not_counted_is_unknown(tmp_path: Path, capsys: Capture) -> None:
    """The paper's table has no counters: nothing says what binds a kernel, nor that DRAM is idle."""
    argv = ["replay", TABLE_1, "--policy", "leftover", "--details=kernels", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    table = capsys.readouterr().out.rpartition("bound by")[2]
    assert [line.split()[-1] for line in table.splitlines()[2:4]] == ["unknown", "unknown"]
    metrics = json.loads((tmp_path / "out" / "results.json").read_text())["results"][0]["metrics"]
    assert metrics["utilisation[dram]"] is None and metrics["utilisation[issue_slots]"] is None
    assert metrics["utilisation[registers]"] > 0.0
    with (tmp_path / "out" / "leftover" / "usage.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            assert line["dram"] == line["issue_slots"] == "" and line["registers"] != ""
    with (tmp_path / "out" / "leftover" / "kernels.csv").open(newline="") as file:
        assert {line["bound_by"] for line in csv.DictReader(file)} == {"unknown"}


def test_trace_of_another_gpu_was_never_validated(capsys: Capture) -> None:
    assert cli.main(["replay", TABLE_1, "--gpu", "k80", "--policy", "serial"]) == 0
    text = capsys.readouterr().out
    assert "note: recorded on k40c, replayed on k80" in text
    assert "not validated" in text


def test_replay_shows_latencies_of_streams_with_arrivals(tmp_path: Path, capsys: Capture) -> None:
    looped = Stream(name="loop", operations=(kernel("a"),), arrivals=LoopArrivals(kind="loop", count=3))
    path = saved(tmp_path, looped, Stream(name="once", operations=(kernel("b"),)))
    assert cli.main(["replay", path, "--policy", "serial"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Latency of requests, µs: p50 / p95 / p99; the first 10 % left out")
    assert lines[at + 3].split()[0] == "loop"
    assert lines[at + 4] == ""


def test_targets_of_programs_are_held_or_missed(tmp_path: Path, capsys: Capture) -> None:
    """Alone each kernel takes 10 us; one after the other the second ends after 20."""
    path = saved(tmp_path, *(Stream(name=name, operations=(kernel(name, 1, 10.0),)) for name in ("a", "b")))
    argv = ["replay", path, "--policy", "serial", "--slo", "a=x1.5", "--slo", "b=15us"]
    assert cli.main(argv) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    at = lines.index("Targets, and what is reached")
    assert lines[at + 3 : at + 5] == ["a=x1.5 held, 1.00x", "b=15us missed, 20.0 µs"]
    content = run_json(capsys, *argv, "--json")
    assert isinstance(content, dict)
    held = [(one["target"], one["policy"], one["held"], one["slowdown"]) for one in content["targets"]]
    assert held == [("a=x1.5", "serial", True, pytest.approx(1.0)), ("b=15us", "serial", False, pytest.approx(2.0))]


def test_targets_of_requests_are_of_their_95th_percentile(tmp_path: Path, capsys: Capture) -> None:
    """Of 100 requests of 10 us the first waits behind b, which takes 200 us, and the next 18 behind one another.

    The first ten are left out.
    """
    path = saved(
        tmp_path, *(Stream(name=name, operations=(kernel(name, 1, us),)) for name, us in (("b", 200.0), ("a", 10.0)))
    )
    argv = ["replay", path, "--policy", "serial", "--arrivals", "a=every:20", "--slo", "a=80us", "--slo", "a=60us"]
    content = run_json(capsys, *argv, "--json")
    assert isinstance(content, dict)
    latencies = sorted([max(10.0, 210.0 - 10.0 * n) for n in range(10, 100)])
    assert [one["held"] for one in content["targets"]] == [True, False]
    assert content["targets"][0]["latency_us"] == pytest.approx(latencies[85], rel=0.08)
    (found,) = content["results"][0]["latency_percentiles_us"].values()
    assert found == {f"p{n}": pytest.approx(latencies[at], rel=0.08) for n, at in ((50, 44), (95, 85), (99, 89))}


def test_random_arrivals_have_a_confidence_interval(tmp_path: Path, capsys: Capture) -> None:
    """Of requests at fixed times it would be 0, and is left out."""
    path = saved(tmp_path, *(Stream(name=name, operations=(kernel(name, 1, 10.0),)) for name in ("a", "b")))
    argv = ["replay", path, "--policy", "leftover", "--policy", "serial", "--arrivals", "b=every:50"]
    content = run_json(capsys, *argv, "--json")
    assert isinstance(content, dict) and "latency_interval_us" not in content["results"][0]
    argv += ["--arrivals", "a=poisson:40000"]
    content = run_json(capsys, *argv, "--json")
    assert isinstance(content, dict)
    for result in content["results"]:
        assert list(result["latency_interval_us"]) == ["a"] and result["latency_interval_us"]["a"] > 0.0
    assert cli.main(argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "±: 95 % confidence of the mean p95 of 3 seeds" in said


def test_programs_that_together_ask_too_much_are_told_by_policy(tmp_path: Path, capsys: Capture) -> None:
    """Each takes 10 us every 15: alone each is served. One after the other both are not."""
    path = saved(tmp_path, *(Stream(name=name, operations=(kernel(name, 1, 10.0),)) for name in ("a", "b")))
    argv = ["replay", path, "--policy", "leftover", "--policy", "serial"]
    argv += [word for name in "ab" for word in ("--arrivals", f"{name}=every:15")]
    assert cli.main(argv) == 0
    notes = [line for line in " ".join(capsys.readouterr().out.split()).split("note: ") if "the queue grows" in line]
    assert [line.split(":")[:2] for line in notes] == [["serial", " a"], ["serial", " b"]]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--slo", "c=x2"], "--slo: names program 'c'; expected one of a, b"),
        (["--slo", "a=2"], "--slo: is 'a=2'; expected PROGRAM=x1.2 or PROGRAM=5ms"),
        (
            ["--slo", "a=x2", "--arrivals", "a=every:9"],
            "--slo: is a slowdown, and a has arrivals; expected a time such as",
        ),
        (["--slo", "a=x2", "--restart"], "--slo: is of one pass or of requests; expected no --restart"),
    ],
)
def test_targets_that_no_replay_can_have_are_refused(
    more: list[str], said: str, tmp_path: Path, capsys: Capture
) -> None:
    path = saved(tmp_path, *(Stream(name=name, operations=(kernel(name, 1, 10.0),)) for name in ("a", "b")))
    assert cli.main(["replay", path, *more]) == 2
    assert said in capsys.readouterr().err


def test_replay_without_kernels(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path, Stream(name="s", operations=(Host(id="h", kind="host", what="other", duration_us=0.0),)))
    content = run_json(capsys, "replay", path, "--policy", "leftover", "--json", "--out", str(tmp_path / "out"))
    assert isinstance(content, dict)
    assert content["results"][0]["makespan_us"] == 0.0
    assert content["results"][0]["speedup_vs_serial"] == 1.0


def test_many_streams_kernels_and_policies_are_cut_and_said_so(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path, *(Stream(name=f"s{i}", operations=(kernel(f"op{i}", 8, 5.0),)) for i in range(20)))
    policies = [f"--policy=leftover:first=s{i}" for i in range(8)]
    assert cli.main(["replay", path, "--details=all", *policies]) == 0
    text = capsys.readouterr().out
    assert "… and 2 more policies: all of them, for every policy, with --out DIR" in text
    assert "… and 4 more streams: all of them, for every policy, with --out DIR" in text


def test_policy_of_the_users_own(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine.py").write_text(
        "from gpusim.policies.interface import Grant, Partition, Policy\n"
        "class Mine(Policy):\n"
        "    name = 'mine'\n"
        "    summary = 'all at once'\n"
        "    def partition(self, view):\n"
        "        return Partition(tuple(Grant(kernel.id, queue=kernel.id) for kernel in view.kernels))\n"
    )
    policy = f"{tmp_path}/mine.py:Mine"
    content = run_json(capsys, "replay", TABLE_1, "--policy", policy, "--json")
    assert isinstance(content, dict)
    assert [row["policy"] for row in content["results"]] == [policy]


def test_trace_of_the_users_own_gpu(tmp_path: Path, capsys: Capture) -> None:
    own = tmp_path / "mine.toml"
    own.write_bytes((REPOSITORY / "gpus" / "h200.toml").read_bytes())
    path = saved(tmp_path, Stream(name="s", operations=(kernel("a"),)), device="mine")
    assert cli.main(["replay", path, "--policy", "serial"]) == 2
    assert "device: is 'mine', which does not ship" in capsys.readouterr().err
    content = run_json(capsys, "replay", path, "--policy", "serial", "--gpu", str(own), "--json")
    assert isinstance(content, dict)
    assert content["gpu"] == "mine"
    assert content["results"][0]["makespan_us"] == pytest.approx(50.0)
    assert content["results"][0]["error_band"] is None


def test_recorded_on_a_gpu_that_does_not_ship(tmp_path: Path, capsys: Capture) -> None:
    own = tmp_path / "mine.toml"
    own.write_bytes((REPOSITORY / "gpus" / "h200.toml").read_bytes())
    path = saved(tmp_path, Stream(name="s", operations=(kernel("a"),)), device="NVIDIA Something")
    argv = ("replay", path, "--policy", "serial", "--policy", "oracle-inter-sm", "--recorded-on", str(own), "--json")
    content = run_json(capsys, *argv)
    assert isinstance(content, dict)
    assert (content["gpu"], content["recorded_on"]) == ("mine", "mine")
    taken = "taken as recorded on mine; the trace says NVIDIA Something"
    for row in content["results"]:
        assert row["makespan_us"] == pytest.approx(50.0)  # the recorded time: fitted on that GPU
        assert taken in row["notes"]
    content = run_json(capsys, *argv, "--gpu", "h100-pcie", "--restart")
    assert isinstance(content, dict)
    assert (content["gpu"], content["recorded_on"]) == ("h100-pcie", "mine")
    for row in content["results"]:
        assert row["notes"][:2] == [taken, "recorded on mine, replayed on h100-pcie: not validated"]
        assert row["error_band"] is None


def test_recorded_on_another_version_of_a_gpu_is_never_validated() -> None:
    trace = load_trace(REPOSITORY / "traces" / "inception_3a.json.gz")
    h200 = load_gpu("h200")
    other = dataclasses.replace(h200, boost_clock_mhz=1000.0)
    result = replay(trace, h200, "serial", recorded_on=other)
    assert error_band(result, trace, h200, other).text == "not validated: recorded on h200"
    assert error_band(result, trace, h200, h200) == error_band(result, trace, h200)


def test_a_changed_gpu(tmp_path: Path, capsys: Capture) -> None:
    """`--what-if` is `gpusim.what_if`; a GPU of one's own stays that of the recording; the page says the command."""
    change = ["--what-if", "sm_count=x2", "--what-if", "dram_bandwidth_gb_per_s=288.5"]
    assert cli.main(["replay", TABLE_1, "--policy", "leftover", "--json", *change]) == 0
    found = json.loads(capsys.readouterr().out)
    gpu = what_if("k40c", {"sm_count": "x2", "dram_bandwidth_gb_per_s": 288.5})
    assert (found["gpu"], found["recorded_on"]) == (gpu.name, "k40c")
    assert found["results"][0]["makespan_us"] == replay(TABLE_1, gpu, "leftover").makespan_us

    (tmp_path / "mine.toml").write_text((REPOSITORY / "gpus" / "k40c.toml").read_text())
    own = load_trace(TABLE_1).model_copy(update={"device": "mine"})
    own.save(tmp_path / "own.json")
    argv = ["replay", str(tmp_path / "own.json"), "--gpu", str(tmp_path / "mine.toml"), *change]
    assert cli.main([*argv, "--policy", "leftover", "--json"]) == 0
    mine = json.loads(capsys.readouterr().out)
    assert mine["results"][0]["makespan_us"] == found["results"][0]["makespan_us"]

    assert cli.main(["report", TABLE_1, "--policy", "leftover", *change, "-o", str(tmp_path / "page.html")]) == 0
    assert "--what-if sm_count=x2" in (tmp_path / "page.html").read_text(encoding="utf-8")
    pictures = []
    for n, more in enumerate(([], change)):
        assert cli.main(["plot", "policies", TABLE_1, *more, "-o", str(tmp_path / f"{n}.svg")]) == 0
        pictures.append((tmp_path / f"{n}.svg").read_bytes())
    assert pictures[0] != pictures[1]


def test_seed(capsys: Capture) -> None:
    argv = ("replay", str(REPOSITORY / "traces" / "inception_3a.json.gz"), "--policy", "leftover", "--json")
    plain, zero, one, again = (run_json(capsys, *argv, *more) for more in ([], ["--seed=0"], *[["--seed=1"]] * 2))
    assert isinstance(one, dict) and one["seed"] == 1
    assert plain == zero and one == again
    assert as_rows(one)[0]["makespan_us"] != as_rows(plain)[0]["makespan_us"]
    assert cli.main([*argv[:-1], "--seed=1"]) == 0
    assert "note: seed 1: the jitter of blocks is another than fitted to the recording" in capsys.readouterr().out


def test_two_traces_side_by_side(tmp_path: Path, capsys: Capture) -> None:
    """Two single kernels of 50 us that each fill the GPU: one after the other under serial; names told apart."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    paths = [saved(tmp_path / name, Stream(name="s", operations=(kernel("a"),))) for name in ("one", "two")]
    content = run_json(capsys, "replay", *paths, "--policy", "serial", "--policy", "leftover", "--json")
    assert isinstance(content, dict)
    assert content["trace"] == "trace+trace"
    for row in content["results"]:
        assert list(row["streams"]) == ["trace.1/s", "trace.2/s"]
        assert {run["ready_us"] for run in row["kernels"]} == {0.0} or row["policy"] == "serial"
    serial = next(row for row in content["results"] if row["policy"] == "serial")
    assert serial["makespan_us"] == pytest.approx(100.0)


# ---- --out


def out_of(root: Path, *policies: str) -> dict[str, bytes]:
    """What a replay under these policies writes, by path."""
    argv = ["replay", TABLE_1, *(f"--policy={policy}" for policy in policies), "--out", str(root)]
    assert cli.main(argv) == 0
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


FILES = ["gantt.png", "kernels.csv", "streams.csv", "usage.csv", "usage.png"]


def test_out_writes_the_same_bytes_again(tmp_path: Path) -> None:
    one, two = (out_of(tmp_path / name, "leftover") for name in ("one", "two"))
    assert one == two
    assert one["leftover/gantt.png"] != one["leftover/usage.png"] and all(one.values())
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


@pytest.mark.usefixtures("no_pictures")
def test_out_has_a_folder_for_each_policy_and_the_same_tables_again(tmp_path: Path) -> None:
    one, two = (out_of(tmp_path / name, "leftover", "serial") for name in ("one", "two"))
    inside = [f"{policy}/{file}" for policy in ("leftover", "serial") for file in FILES]
    assert sorted(one) == sorted(["report.json", "results.json", *inside])
    assert one == two


@pytest.mark.usefixtures("no_pictures")
def test_out_holds_everything(tmp_path: Path, capsys: Capture) -> None:
    argv = ("replay", TABLE_1, "--policy", "leftover", "--json", "--out", str(tmp_path / "out"))
    printed = run_json(capsys, *argv)
    assert isinstance(printed, dict)
    written = json.loads((tmp_path / "out" / "results.json").read_text())
    row = written["results"][0]
    assert row["folder"] == "leftover"
    assert row["metrics"]["speedup"] == row["speedup_vs_serial"]
    assert "stp" not in row["metrics"]
    streams = (tmp_path / "out" / "leftover" / "streams.csv").read_text().splitlines()
    assert streams[0].endswith(",solo_us,slowdown")
    slowdowns = {line.split(",")[0]: float(line.split(",")[-1]) for line in streams[1:]}
    assert slowdowns == row["slowdowns"]
    assert 0.0 < row["metrics"]["utilisation[registers]"] <= 1.0
    del row["folder"], row["metrics"]
    row["kernels"] = printed["results"][0]["kernels"]  # as a table of their own
    assert written == printed
    kernels = (tmp_path / "out" / "leftover" / "kernels.csv").read_text().splitlines()
    assert kernels[0].startswith("stream,operation,request,kernel,") and len(kernels) == 3
    usage = (tmp_path / "out" / "leftover" / "usage.csv").read_text().splitlines()
    assert usage[0] == "sm,start_us,end_us,registers,shared_memory,threads,block_slots,issue_slots,dram,l2"
    rows = [line.split(",") for line in usage[1:]]
    assert len(rows) % 16 == 0 and {row[0] for row in rows} == {"device", *map(str, range(15))}
    assert all(0.0 <= float(share) <= 1.0 + 1e-6 for row in rows for share in row[3:7])


@pytest.mark.parametrize("policies", [["leftover", "nonsense"], ["leftover:first"]])
def test_nothing_is_written_on_error(policies: list[str], tmp_path: Path, capsys: Capture) -> None:
    argv = [f"--policy={policy}" for policy in policies]
    assert cli.main(["replay", TABLE_1, *argv, "--out", str(tmp_path / "out")]) == 2
    assert os.listdir(tmp_path) == []


def test_folder_names_differ() -> None:
    assert folder_names(["inter-sm:sms=64+68", "my/p.py:Mine", "my/p_py:Mine", "my/p_py_Mine"]) == [
        "inter-sm_sms=64+68",
        "my_p.py_Mine",
        "my_p_py_Mine",
        "my_p_py_Mine~2",
    ]
