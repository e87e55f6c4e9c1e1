"""The command line: shapes of its JSON, its tables, its errors, and what it writes."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpusim import cli, session
from gpusim.commands import arguments
from gpusim.commands import replay as replay_command
from gpusim.commands.replay_folder import folder_names
from gpusim.common import tables
from gpusim.common.errors import InputError
from gpusim.common.tables import Column, number, print_table, short_name, shortened
from gpusim.hardware.gpu import gpu_names, load_gpu
from gpusim.hardware.what_if import what_if
from gpusim.lab import bench
from gpusim.policies.registry import policies, policy_from
from gpusim.results.error_band import HowWrong, error_band, experiment_of
from gpusim.results.runs import KernelRun
from gpusim.session import replay
from gpusim.trace.edit import select
from gpusim.trace.file import load_trace
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Host, Kernel, LoopArrivals, Stream

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE_1 = str(REPOSITORY / "traces" / "spaa20_table1.json")
HEAVY = ("logging", "matplotlib", "multiprocessing", "numpy", "pandas", "pydantic", "pyarrow", "simpy")

Capture = pytest.CaptureFixture[str]


def run_json(capsys: Capture, *argv: str) -> object:
    assert cli.main(argv) == 0
    return json.loads(capsys.readouterr().out)


def as_rows(content: object) -> list[dict[str, object]]:
    assert isinstance(content, dict)
    return list(content["results"])


def saved(tmp_path: Path, *streams: Stream, device: str = "h200") -> str:
    path = tmp_path / "trace.json"
    Trace(version=1, name="made", device=device, streams=streams).save(path)
    return str(path)


def unstyled(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def kernel(id: str, blocks: int = 264, duration_us: float = 50.0, **other: object) -> Kernel:
    launch = {"name": "void ns::gemm<float, 3>(int)", "grid": (blocks, 1, 1), "block": (256, 1, 1)}
    launch |= {"registers_per_thread": 64, "duration_us": duration_us} | other
    return Kernel(id=id, kind="kernel", kernel=KernelLaunch(**launch))


# ---- help


@pytest.mark.parametrize("argv", [["--help"], ["replay", "--help"], ["occupancy", "--help"], ["record", "--help"]])
def test_help_imports_nothing_heavy(argv: list[str]) -> None:
    program = (
        "import sys\nfrom gpusim.cli import main\n"
        f"try:\n    main({argv!r})\nexcept SystemExit as end:\n    assert end.code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("usage: gpusim")
    assert done.stderr.strip() == "[]"


def test_a_replay_of_streams_imports_only_what_reads_and_replays_a_trace() -> None:
    trace = str(REPOSITORY / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz")
    program = (
        "import sys\nfrom gpusim.cli import main\n"
        f"assert main(['replay', {trace!r}, '--policy', 'leftover']) == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "['numpy', 'pydantic', 'simpy']"


def test_help_lists_every_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n    {command.name}" in text for command in cli.COMMANDS)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_example_is_understood(command: cli.Command) -> None:
    assert cli.build_parser(command.name).parse_args([command.name, *command.example.split()]).command == command.name


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(command: cli.Command, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([command.name, "--help"])
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: gpusim {command.name}")


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


INCEPTION = str(REPOSITORY / "traces" / "inception_3a.json.gz")
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
    band = HowWrong({"experiment": "streams", "mape_percent": 2.34}, "", "on k40c")
    monkeypatch.setattr(session, "error_band", lambda *_: band)
    assert cli.main(["replay", TABLE_1, "--policy", "serial"]) == 0
    assert "±2.3 % (two calls in streams, k40c)" in capsys.readouterr().out
    (row,) = as_rows(run_json(capsys, "replay", TABLE_1, "--policy", "serial", "--json"))
    assert row["error_band"] == {"experiment": "streams", "mape_percent": 2.34} and row["error_band_reason"] is None


def test_replay_says_why_nobody_knows(capsys: Capture) -> None:
    (row,) = as_rows(run_json(capsys, "replay", TABLE_1, "--policy", "serial", "--json"))
    assert row["error_band"] is None
    assert row["error_band_reason"] == "not validated: nothing measured on k40c"


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
    at = lines.index("Latency of requests, µs: p50 / p95 / p99")
    assert lines[at + 3].split()[0] == "loop"
    assert lines[at + 4] == ""


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


def test_out_writes_the_same_bytes_again(tmp_path: Path, capsys: Capture) -> None:
    for name in ("one", "two"):
        argv = ["replay", TABLE_1, "--policy", "leftover", "--policy", "serial", "--out", str(tmp_path / name)]
        assert cli.main(argv) == 0
    files = ["gantt.png", "kernels.csv", "streams.csv", "usage.csv", "usage.png"]
    inside = [f"{policy}/{file}" for policy in ("leftover", "serial") for file in files]
    wanted = sorted(["report.json", "results.json", *inside])
    for name in ("one", "two"):
        root = tmp_path / name
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()) == wanted
    for file in wanted:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


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


# ---- the other commands


def test_occupancy_json(capsys: Capture) -> None:
    argv = ("occupancy", "--gpu", "h200", "--threads", "256", "--registers", "80", "--shared-memory", "8602", "--json")
    assert run_json(capsys, *argv) == {
        "blocks_per_sm": 3,
        "limiter": "registers",
        "limits": {"warps": 8, "registers": 3, "shared_memory": 24, "blocks": 32},
    }


def test_occupancy_takes_sizes_and_no_shared_memory(capsys: Capture) -> None:
    argv = ("occupancy", "--gpu", "h200", "--threads", "256", "--registers", "80", "--json")
    none = run_json(capsys, *argv)
    assert none == run_json(capsys, *argv, "--shared-memory", "0")
    sized = run_json(capsys, *argv, "--shared-memory", "8KiB")
    assert sized == run_json(capsys, *argv, "--shared-memory", "8192") != none


def test_occupancy_table(capsys: Capture) -> None:
    argv = ["occupancy", "--gpu", "k40c", "--threads", "512", "--registers", "0", "--shared-memory", "0"]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "k40c: 4 blocks per SM, limited by warps"
    assert lines[4].split() == ["registers", "no", "limit"]
    assert cli.main([*argv[:-1], "99999"]) == 0
    assert capsys.readouterr().out.startswith("k40c: 0 blocks per SM: a block asks for more shared memory than")


def test_gpus(capsys: Capture) -> None:
    content = run_json(capsys, "gpus", "--json")
    assert isinstance(content, list)
    assert [gpu["name"] for gpu in content] == list(gpu_names())
    h200 = next(gpu for gpu in content if gpu["name"] == "h200")
    assert (h200["compute_capability"], h200["sm_count"]) == ("9.0", 132)
    assert h200["limits"]["max_warps_per_sm"] == 64
    assert cli.main(["gpus"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 + len(content)


def test_one_gpu_in_full(capsys: Capture) -> None:
    every = run_json(capsys, "gpus", "--json")
    assert isinstance(every, list)
    assert run_json(capsys, "gpus", "k40c", "--json") == next(gpu for gpu in every if gpu["name"] == "k40c")
    assert cli.main(["gpus", "k40c"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "k40c: NVIDIA Tesla K40c"
    shown = {line.split()[0]: line.split()[1:] for line in lines[3:]}
    assert shown["sm_count"] == ["15"]
    assert shown["limits.max_threads_per_block"] == ["1,024"]
    assert shown["tensor_fp16_tflops"] == ["not", "known"]
    assert shown["model.switch_us"] == ["0.5", "no"]
    assert cli.main(["gpus", "a30"]) == 0
    *_, green, mps, mig = capsys.readouterr().out.splitlines()
    assert green == "green contexts: 4 SMs or more, in steps of 2; the last has the rest"
    assert mps.startswith("MPS: ") and mig.startswith("MIG: 1g: 14 SMs, 2/8 of L2 and DRAM, id 14; 2g: 28 SMs")


def test_bench_prints_each_row_as_it_comes(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []

    def measure(names: list[str], step: object) -> Iterator[bench.Measurement]:
        assert names == ["grid", "trace", "chain"]  # the quick ones first
        for name in names:
            yield bench.Measurement(name, "x1", 1, 2, 3000, 0.1, 0.01, 50.0)
            said.append(capsys.readouterr().out.count("\n"))

    monkeypatch.setattr(bench, "measure", measure)
    assert cli.main(["bench", "--only", "chain", "--only", "trace", "--only", "grid"]) == 0
    assert said == [3, 1, 1]


def test_bench_says_on_a_terminal_what_it_measures() -> None:
    steps: list[str] = []
    first = next(bench.measure(["grid"], steps.append))
    assert (first.group, first.case, first.kernels) == ("grid", "x1", 1)
    assert steps == ["measuring grid, case 1 of 4", ""]


def test_policies(capsys: Capture) -> None:
    content = run_json(capsys, "policies", "--json")
    assert isinstance(content, list)
    assert all(list(policy) == ["name", "summary", "validated_as", "parameters"] for policy in content)
    leftover = next(policy for policy in content if policy["name"] == "leftover")
    assert leftover["parameters"][0]["name"] == "first"
    assert cli.main(["policies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == {policy["name"] for policy in content}
    assert "Others" not in lines and max(map(len, lines)) <= 80


def test_one_policy_in_full(capsys: Capture) -> None:
    assert cli.main(["policies", "warped-slicer"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "warped-slicer" and "    source: Xu et al., ISCA'16" in lines
    assert any(line.startswith("        objective (text, default maxmin): ") for line in lines)
    assert any(line.startswith("    model error as two kernels on one SM: ") for line in lines)
    assert lines[-1] == "    example: gpusim replay TRACE --policy warped-slicer:objective=maxmin"
    assert cli.main(["policies", "reef"]) == 0
    text = capsys.readouterr().out
    assert "parameters: none" in text and "not validated: no experiment shared a GPU as it does" in text
    assert cli.main(["policies", "reef:any=1"]) == 0, "as it is given to replay"
    assert capsys.readouterr().out == text
    assert cli.main(["policies", "time-slicing"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "measured, and the model failed: four processes on an H200 took 5.3 ms" in text and "never" not in text
    assert cli.main(["policies", "warped-slice"]) == 2
    assert "no such policy" in capsys.readouterr().err


VALIDATED = {name: policy.validated_as for name, policy in policies().items() if policy.validated_as}


def test_every_policy_in_full(capsys: Capture) -> None:
    for plain in policies_json(capsys):
        whole = run_json(capsys, "policies", str(plain["name"]), "--json")
        assert isinstance(whole, dict)
        assert {**{key: whole[key] for key in plain}, "validated_as": list(whole["validated_as"])} == plain
        policy = str(whole["example"]).removeprefix("gpusim replay TRACE --policy ")
        assert policy_from(policy).name == plain["name"] and policy[-1] not in ":,"
    assert set(VALIDATED) <= {str(policy["name"]) for policy in policies_json(capsys)}


@pytest.mark.parametrize("policy", sorted(VALIDATED))
def test_a_policy_gets_no_error_but_of_what_it_was_validated_as(policy: str) -> None:
    given = {"quota": ":blocks=3x3:2+5x5:2", "green-context": ":sms=64+68", "mps": ":percent=50"}
    given |= {"oracle-inter-sm": ":step=44", "oracle-intra-sm": ":replays=5", "tpc-mask": ":masks=0xff+0xff00"}
    whole = load_trace(REPOSITORY / "traces" / "inception_3a.json.gz")
    pair = select(whole, ["3x3", "5x5"])
    experiment, _ = experiment_of(replay(pair, load_gpu("h200"), policy + given.get(policy, "")))
    assert experiment in ("", *VALIDATED[policy])


def policies_json(capsys: Capture) -> list[dict[str, object]]:
    content = run_json(capsys, "policies", "--json")
    assert isinstance(content, list)
    return content


@pytest.mark.parametrize("what", ["trace", "gpu"])
def test_schema(what: str, capsys: Capture) -> None:
    content = run_json(capsys, "schema", what)
    assert isinstance(content, dict)
    assert content["type"] == "object" and "version" in content["properties"]


# ---- errors


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([], "gpusim: the following arguments are required: COMMAND"),
        (["fly"], "gpusim: argument COMMAND: invalid choice: 'fly'; expected one of replay, report, "),
        (["replay"], "gpusim replay: the following arguments are required: TRACE"),
        (["replay", "a", "b"], "a: cannot be read (No such file or directory)"),
        (
            ["replay", TABLE_1, "traces/inception_3a.json.gz"],
            f"{TABLE_1} + traces/inception_3a.json.gz: device: traces of h200, k40c; expected traces recorded on one",
        ),
        (
            ["replay", TABLE_1, "--what-if", "sm_count"],
            "gpusim replay: argument --what-if: is 'sm_count'; expected KEY=",
        ),
        (
            ["replay", TABLE_1, "--what-if", "sms=4"],
            "--what-if: sms: cannot be changed; expected one of sm",
        ),
        (
            ["replay", TABLE_1, "--what-if", "sm_count=4", "--what-if", "sm_count=x2"],
            "--what-if: changes sm_count twice; expected each number once",
        ),
        (["import", "nsys", "-o", "a.json"], "FORMAT: nsys is given without a file; expected [FORMAT] FILE"),
        (["import", "nsys", "a", "ncu", "b", "-o", "a.json"], "FORMAT: ncu is given after a file; expected one format"),
        (["replay", TABLE_1, "--recorded-on", "k40"], "--recorded-on: unknown GPU 'k40'; expected one of"),
        (
            ["replay", TABLE_1, "--seed=-1"],
            "gpusim replay: argument --seed: is '-1'; expected a whole number from 0 to 2147483647",
        ),
        (["replay", ""], "gpusim replay: argument TRACE: is empty; expected a value (see `gpusim replay --help`)"),
        (["replay", TABLE_1, "--gpu="], "gpusim replay: argument --gpu: is empty; expected a value"),
        (["trace", "show", ""], "gpusim trace show: argument TRACE: is empty; expected a value"),
        (["gpus", "h200", "b"], "gpusim gpus: unrecognized arguments: b (see `gpusim gpus --help`)"),
        (["gpus", "h2000"], "NAME: unknown GPU 'h2000'; expected one of"),
        (
            ["replay", TABLE_1, "--polcy", "even"],
            "gpusim replay: unrecognized arguments: --polcy even; did you mean --po",
        ),
        (["trace", "check", TABLE_1, "--xx"], "gpusim trace check: unrecognized arguments: --xx (see"),
        (["--bogus", "gpus"], "gpusim: unrecognized arguments: --bogus"),
        (["replay", "no-such-file.json"], "no-such-file.json: cannot be read (No such file or directory)"),
        (["replay", TABLE_1, "--gpu", "h2000"], "--gpu: unknown GPU 'h2000'; expected one of"),
        (["replay", TABLE_1, "--gpu", "no/such.toml"], "no/such.toml: cannot be read"),
        (["replay", TABLE_1, "--policy", "nonsense"], "policy nonsense: no such policy; expected one of"),
        (["replay", TABLE_1, "--policy", "leftover:fist=5x5"], "policy leftover: has no parameter 'fist'"),
        (
            ["replay", TABLE_1, "--policy", "inter-sm:sms=64,68"],
            "policy inter-sm: has 'sms=64,68'; expected 'sms=64+68'",
        ),
        (["replay", TABLE_1, "--policy", "no_such_file.py:Mine"], "no_such_file.py: policy: no such file"),
        (["replay", TABLE_1, "--out", "tests"], "tests: exists and is not empty"),
        (["occupancy", "--gpu", "h200"], "gpusim occupancy: the following arguments are required: --threads"),
        (
            ["occupancy", "--gpu=h200", "--threads=-1", "--registers=8", "--shared-memory=0"],
            "gpusim occupancy: argument --threads: is '-1'; expected a whole number of at least 1",
        ),
        (
            ["occupancy", "--gpu=h200", "--threads=32", "--registers=nan", "--shared-memory=0"],
            "gpusim occupancy: argument --registers: is 'nan'; expected a whole number of at least 0",
        ),
        (
            ["schema", "trce"],
            "gpusim schema: argument what: invalid choice: 'trce'; expected one of trace, gpu; did you mean trace?",
        ),
        (["record"], "WHAT: missing; expected OPS.py, a network, shapes, microbench, host, or -- and a program"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(
    argv: list[str], line: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(REPOSITORY)
    try:
        status = cli.main(argv)
    except SystemExit as end:
        status = end.code  # type: ignore[assignment]
    captured = capsys.readouterr()
    assert status == 2
    assert captured.out == ""
    assert captured.err.startswith(line)
    assert captured.err.count("\n") == 1 and captured.err.endswith("\n")


def test_block_that_fits_no_sm_names_the_file_and_the_place(tmp_path: Path, capsys: Capture) -> None:
    path = saved(tmp_path, Stream(name="s", operations=(kernel("big", dynamic_shared_memory_bytes=200_000),)))
    assert cli.main(["replay", path, "--gpu", "t4"]) == 2
    line = capsys.readouterr().err
    assert line.startswith(f"{path}: streams[0].operations[0] (big): a block asks for more")


def test_ctrl_c_is_quiet(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(replay_command, "run", interrupted)
    assert cli.main(["replay", TABLE_1]) == 130
    assert capsys.readouterr() == ("", "")


def test_defects_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(replay_command, "run", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["replay", TABLE_1])


@pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX pipe")
def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "gpusim", "schema", "trace"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_disk_is_one_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "gpusim", "gpus"]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "standard output: cannot be written (No space left on device); expected room for it\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("argv", [["replay", "none.json"], ["replay"], ["trace", "check", "none.json"]])
def test_bad_input_exits_with_2_where_it_cannot_be_told(argv: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "gpusim", *argv]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=full, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_terminal_without_the_characters() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "gpusim", "replay", TABLE_1, "--policy", "leftover"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("spaa20_table1 on k40c")


# ---- arguments and tables


def test_a_small_amount_of_memory_needs_its_unit() -> None:
    with pytest.raises(Exception, match="is '128' without a unit; expected 128MiB, or 128B for bytes"):
        arguments.memory_size("128")
    sizes = {"128B": 128, "128MiB": 2**27, "0": 0, "134217728": 2**27}
    assert {text: arguments.memory_size(text) for text in sizes} == sizes


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "-inf", "x", ""])
def test_positive_refuses(text: str) -> None:
    with pytest.raises(Exception, match="expected a number above 0"):
        arguments.positive(text)


def test_positive_and_whole_read_numbers() -> None:
    assert arguments.positive("2.5") == 2.5
    assert arguments.whole(0)("0") == 0


def test_tables_align(capsys: Capture) -> None:
    print_table([Column("name"), Column("us", right=True)], [("a", "1.0"), ("long", "1,000.0")], "Title")
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["Title", "name       us", "----  -------", "a         1.0", "long  1,000.0"]


def test_numbers_and_short_texts() -> None:
    assert [number(-0.04), number(-0.06), number(1234.56), number(0.5, 3)] == ["0.0", "-0.1", "1,234.6", "0.500"]
    assert shortened("abcdefghij", 5) == "ab…ij"
    assert shortened("abc", 5) == "abc"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void cutlass::Kernel2<cutlass_80_gemm_nn_align4>(T1::Params)", "cutlass_80_gemm_nn_align4"),
        ("void engines::nchwToNhwcKernel<float, float, 0>(engines::params_t<T3>, const T1 *)", "nchwToNhwcKernel"),
        ("void (anonymous namespace)::elementwise(int)", "elementwise"),
        ("implicit_convolve_sgemm", "implicit_convolve_sgemm"),
        ("Kernel2", "Kernel2"),
        ("<unnamed>(int)", "<unnamed>(int)"),
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert short_name(name) == short


def test_errors_name_the_option_for_a_gpu() -> None:
    with pytest.raises(InputError, match=r"^--gpu: unknown GPU") as caught:
        arguments.gpu_from("b100")
    made = ", or a file, which `gpusim gpus new --from-profile FILE` makes; the nearest is b200"
    assert str(caught.value).endswith(made)


def test_outputs_are_no_inputs(tmp_path: Path, capsys: Capture) -> None:
    """Every command that reads one file and writes another refuses to write over what it reads."""
    path = tmp_path / "t.json"
    path.write_bytes(gzip.decompress(Path(INCEPTION).read_bytes()))
    before, name = path.read_bytes(), str(path)
    for words in (
        ["replay", name, "--policy", "serial", "--timeline", name],
        ["report", name, "--policy", "serial", "-o", name],
        ["select", name, "-o", name],
    ):
        assert cli.main(words) == 2
        assert "is read as well as written" in capsys.readouterr().err
    assert path.read_bytes() == before
    assert cli.main(["replay", name, "--timeline", str(tmp_path / "none" / "t.json")]) == 2


def test_rows_do_not_replace_the_measurements(capsys: Capture) -> None:
    measured = REPOSITORY / "experiments" / "h200_validation" / "data"
    before = (measured / "quota.csv").read_bytes()
    assert cli.main(["validate", str(measured), "--rows", str(measured / "quota.csv")]) == 2
    assert "quota.csv: is read as well as written" in capsys.readouterr().err
    assert (measured / "quota.csv").read_bytes() == before


def test_two_outputs_under_one_name_are_refused_before_either_is_written(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "folder").mkdir()
    experiment = tmp_path / "e.toml"
    experiment.write_text(f'traces = ["{TABLE_1}"]\npolicies = ["serial"]\n')
    for words, said in (
        (["replay", TABLE_1, "--timeline", "{0}/x.json", "--out", "{0}/x.json"], "x.json: is written twice"),
        (["replay", TABLE_1, "--timeline", "{0}/folder/x.json", "--out", "{0}/folder"], "x.json: is in "),
        (["sweep", str(experiment), "--plot", "{0}/x.png", "--out", "{0}/x.png"], "x.png: is written twice"),
    ):
        assert cli.main([word.format(tmp_path) for word in words]) == 2
        assert said in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["e.toml", "folder"] and not os.listdir(tmp_path / "folder")


@pytest.mark.skipif(os.name != "posix", reason="devices of POSIX")
def test_a_message_is_kept_out_of_what_goes_to_standard_output() -> None:
    words = [sys.executable, "-m", "gpusim", "trace", "convert", TABLE_1, "-o", "/dev/stdout"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=REPOSITORY)
    assert json.loads(done.stdout)["name"] and done.stderr.startswith("/dev/stdout: ") and done.returncode == 0


def test_a_picture_names_the_file_whose_kernels_do_not_fit(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "t.json"
    content = json.loads(gzip.decompress(Path(INCEPTION).read_bytes()))
    path.write_text(json.dumps(content | {"device": "mygpu"}))
    assert cli.main(["plot", "gantt", str(path), "-o", str(tmp_path / "p.png")]) == 2
    assert str(path) in capsys.readouterr().err


def test_the_list_of_policies_marks_shadows(capsys: Capture) -> None:
    """They take only an idea from a paper: docs/policies.md says the same of each."""
    assert cli.main(["policies"]) == 0
    said = capsys.readouterr().out
    marked = {line.split()[0] for line in said.splitlines() if line.startswith("  ") and line.split()[1] == "*"}
    page = (Path(__file__).parents[1] / "docs" / "policies.md").read_text(encoding="utf-8")
    sections = {part.split("`")[1]: part for part in page.split("\n### ")[1:] if "`" in part}
    assert marked == {name for name, part in sections.items() if "This is a **shadow**" in part}
    assert "\n* a shadow: " in said and "…" not in said
