"""The command line: shapes of its JSON, its tables, its errors, and what it writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpusim import cli, report, validate
from gpusim.commands import arguments
from gpusim.commands import replay as replay_command
from gpusim.errors import InputError
from gpusim.gpu import gpu_names, load_gpu
from gpusim.tables import Column, number, plain_table, shortened
from gpusim.trace import Host, Kernel, KernelLaunch, LoopArrivals, Stream, Trace, load_trace

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE_1 = str(REPOSITORY / "traces" / "spaa20_table1.json")
HEAVY = ("matplotlib", "numpy", "pandas", "pydantic", "rich", "simpy")

Capture = pytest.CaptureFixture[str]


def run_json(capsys: Capture, *argv: str) -> object:
    assert cli.main(argv) == 0
    return json.loads(capsys.readouterr().out)


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


def test_help_lists_every_command(capsys: Capture) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(f"\n    {command.name}" in text for command in cli.COMMANDS)


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
    assert list(content) == ["trace", "gpu", "results"]
    assert (content["trace"], content["gpu"]) == ("spaa20_table1", "k40c")
    keys = ["policy", "makespan_us", "speedup_vs_serial", "stp", "antt", "fairness", "error_band", "streams"]
    keys.append("slowdowns")
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
    assert lines[0] == "spaa20_table1 on k40c (NVIDIA Tesla K40c): 2 streams, 2 operations, 2 kernels"
    assert lines[2].split() == ["policy", "makespan", "us", "speedup", "how", "wrong"]
    assert lines[4].startswith("leftover") and lines[5].startswith("serial")
    assert lines[5].split()[2] == "1.000x"
    assert lines[5].endswith("never validated")
    assert "Start and end of each stream, us, and its slowdown" in lines
    assert "What waiting and sharing cost each kernel under leftover, us" in lines
    assert not any(line != line.rstrip() for line in lines)


def test_replay_table_on_a_terminal(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["replay", TABLE_1, "--policy", "serial", "--policy", "leftover"]) == 0
    captured = capsys.readouterr()
    assert "─" in captured.out and "leftover" in captured.out
    assert "replaying under leftover (2 of 2)" in captured.err
    assert captured.err.endswith("\r\x1b[K")


@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_tables_fit_the_terminal(width: int, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    assert cli.main(["replay", TABLE_1]) == 0
    lines = unstyled(capsys.readouterr().out).splitlines()
    assert max(len(line) for line in lines[1:]) <= width
    titles = [line for line in lines if line.startswith("stream ")]
    assert (len(titles) == 1) == (width >= 200)
    assert "warped-slicer" in " ".join(titles)
    assert cli.main(["gpus"]) == 0
    assert max(len(line) for line in unstyled(capsys.readouterr().out).splitlines()) <= width


def test_only_the_gpu_that_ships_was_validated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A what-if of a GPU, under whatever name, was not; nor was a trace of another GPU."""
    monkeypatch.setattr(validate, "error_band", lambda gpu, policy, trace: {"of": (gpu, policy, trace.device)})
    trace, gpu = load_trace(TABLE_1), load_gpu("k40c")
    assert report.error_band(gpu, "even", trace) == {"of": ("k40c", "even", "k40c")}
    assert report.error_band(replace(gpu, sm_count=30), "even", trace) is None
    assert report.error_band(replace(gpu, name="mine"), "even", trace) is None
    assert report.error_band(load_gpu("k80"), "even", trace) is None


def test_replay_says_how_wrong_it_may_be(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "error_band", lambda *_: {"experiment": "streams", "mape_percent": 2.34})
    assert cli.main(["replay", TABLE_1, "--policy", "serial"]) == 0
    assert "±2.3 % (streams on k40c)" in capsys.readouterr().out


def test_trace_of_another_gpu_was_never_validated(capsys: Capture) -> None:
    assert cli.main(["replay", TABLE_1, "--gpu", "k80", "--policy", "serial"]) == 0
    text = capsys.readouterr().out
    assert "note: recorded on k40c, replayed on k80" in text
    assert "never validated" in text


def test_replay_shows_latencies_of_streams_with_arrivals(tmp_path: Path, capsys: Capture) -> None:
    looped = Stream(name="loop", operations=(kernel("a"),), arrivals=LoopArrivals(kind="loop", count=3))
    path = saved(tmp_path, looped, Stream(name="once", operations=(kernel("b"),)))
    assert cli.main(["replay", path, "--policy", "serial"]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("Latency of requests, us: p50 / p95 / p99")
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
    assert cli.main(["replay", path, *policies]) == 0
    text = capsys.readouterr().out
    assert "… and 2 more policies: all of them, for every policy, with --out DIR" in text
    assert "… and 4 more streams: all of them, for every policy, with --out DIR" in text
    assert "… and 8 more kernels: all of them, for every policy, with --out DIR" in text


def test_policy_of_the_users_own(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "mine.py").write_text(
        "from gpusim.policies.base import Grant, Partition, Policy\n"
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


# ---- --out


def test_out_writes_the_same_bytes_again(tmp_path: Path, capsys: Capture) -> None:
    for name in ("one", "two"):
        argv = ["replay", TABLE_1, "--policy", "leftover", "--policy", "serial", "--out", str(tmp_path / name)]
        assert cli.main(argv) == 0
    files = ["gantt.png", "kernels.csv", "occupancy.png", "streams.csv", "usage.csv"]
    wanted = sorted(["results.json", *(f"{policy}/{file}" for policy in ("leftover", "serial") for file in files)])
    for name in ("one", "two"):
        root = tmp_path / name
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()) == wanted
    for file in wanted:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    assert sorted(os.listdir(tmp_path)) == ["one", "two"]


def test_out_holds_everything(tmp_path: Path, capsys: Capture) -> None:
    argv = ("replay", TABLE_1, "--policy", "leftover", "--json", "--out", str(tmp_path / "out"))
    printed = run_json(capsys, *argv)
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
    del row["folder"], row["notes"], row["metrics"]
    assert written == printed
    kernels = (tmp_path / "out" / "leftover" / "kernels.csv").read_text().splitlines()
    assert kernels[0].startswith("stream,operation,request,kernel,") and len(kernels) == 3
    usage = (tmp_path / "out" / "leftover" / "usage.csv").read_text().splitlines()
    assert usage[0] == "sm,start_us,end_us,registers,shared_memory,threads,block_slots,issue_slots,dram"
    rows = [line.split(",") for line in usage[1:]]
    assert len(rows) % 16 == 0 and {row[0] for row in rows} == {"device", *map(str, range(15))}
    assert all(0.0 <= float(share) <= 1.0 + 1e-6 for row in rows for share in row[3:8])


@pytest.mark.parametrize("policies", [["leftover", "nonsense"], ["leftover:first"]])
def test_nothing_is_written_on_error(policies: list[str], tmp_path: Path, capsys: Capture) -> None:
    argv = [f"--policy={policy}" for policy in policies]
    assert cli.main(["replay", TABLE_1, *argv, "--out", str(tmp_path / "out")]) == 2
    assert os.listdir(tmp_path) == []


def test_folder_names_differ() -> None:
    assert report.folder_names(["inter-sm:sms=64+68", "my/p.py:Mine", "my/p_py:Mine", "my/p_py_Mine"]) == [
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


def test_policies(capsys: Capture) -> None:
    content = run_json(capsys, "policies", "--json")
    assert isinstance(content, list)
    assert all(list(policy) == ["name", "summary", "parameters"] for policy in content)
    leftover = next(policy for policy in content if policy["name"] == "leftover")
    assert leftover["parameters"][0]["name"] == "first"
    assert cli.main(["policies"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == [policy["name"] for policy in content]


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
        (["fly"], "gpusim: argument COMMAND: invalid choice: 'fly'"),
        (["replay"], "gpusim replay: the following arguments are required: TRACE"),
        (["replay", "a", "b"], "gpusim: unrecognized arguments: b"),
        (["replay", "no-such-file.json"], "no-such-file.json: cannot be read (No such file or directory)"),
        (["replay", TABLE_1, "--gpu", "h2000"], "--gpu: unknown GPU 'h2000'; expected one of"),
        (["replay", TABLE_1, "--gpu", "no/such.toml"], "no/such.toml: cannot be read"),
        (["replay", TABLE_1, "--policy", "nonsense"], "--policy nonsense: no such policy; expected one of"),
        (["replay", TABLE_1, "--policy", "leftover:fist=5x5"], "--policy leftover: has no parameter 'fist'"),
        (["replay", TABLE_1, "--policy", "no_such_file.py:Mine"], "no_such_file.py: --policy: no such file"),
        (["replay", TABLE_1, "--out", "gpusim"], "gpusim: exists and is not empty"),
        (["occupancy", "--gpu", "h200"], "gpusim occupancy: the following arguments are required: --threads"),
        (
            ["occupancy", "--gpu=h200", "--threads=-1", "--registers=8", "--shared-memory=0"],
            "gpusim occupancy: argument --threads: is '-1'; expected a whole number of at least 1",
        ),
        (
            ["occupancy", "--gpu=h200", "--threads=32", "--registers=nan", "--shared-memory=0"],
            "gpusim occupancy: argument --registers: is 'nan'; expected a whole number of at least 0",
        ),
        (["schema", "policy"], "gpusim schema: argument what: invalid choice: 'policy'"),
        (["record"], "WHAT: missing; expected a network, shapes, microbench, or -- and a program"),
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
    assert line.startswith(f"{path}: streams[0].operations[0] (big): a block of it fits no SM of t4")


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


def test_terminal_without_the_characters() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "gpusim", "replay", TABLE_1, "--policy", "leftover"]
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("spaa20_table1 on k40c")


# ---- arguments and tables


@pytest.mark.parametrize("text", ["-1", "0", "nan", "inf", "-inf", "x", ""])
def test_positive_refuses(text: str) -> None:
    with pytest.raises(Exception, match="expected a number above 0"):
        arguments.positive(text)


def test_positive_and_whole_read_numbers() -> None:
    assert arguments.positive("2.5") == 2.5
    assert arguments.whole(0)("0") == 0


def test_plain_table_aligns() -> None:
    table = plain_table([Column("name"), Column("us", right=True)], [("a", "1.0"), ("long", "1,000.0")], "Title")
    assert table.splitlines() == ["Title", "name       us", "----  -------", "a         1.0", "long  1,000.0"]


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
    ],
)
def test_short_names(name: str, short: str) -> None:
    assert report.short_name(name) == short


def test_errors_name_the_option_for_a_gpu() -> None:
    with pytest.raises(InputError, match=r"^--gpu: unknown GPU"):
        arguments.gpu_from("nope")
