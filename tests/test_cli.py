"""The command line: its help, its errors, its arguments and its tables."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import INCEPTION, REPOSITORY, TABLE_1, Capture, kernel, saved

from gpusim import cli
from gpusim.commands import arguments
from gpusim.commands import replay as replay_command
from gpusim.common.errors import InputError
from gpusim.common.tables import Column, number, print_table, short_name, shortened
from gpusim.trace.operations import Stream

HEAVY = ("logging", "matplotlib", "multiprocessing", "numpy", "pandas", "pydantic", "pyarrow", "simpy")


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
