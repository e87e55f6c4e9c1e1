"""What somebody who tries a command for the first time gets wrong, and what is printed for it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_import_kineto import kernel as kineto_kernel
from test_import_kineto import write as write_kineto
from tiny import kernel, stream

import gpusim
from gpusim import InputError, cli
from gpusim.trace.format import Trace

MODULE = "traces/inception_3a.json.gz"
AMD = {"id": 0, "name": "", "warpSize": 64, "computeMajor": 9, "computeMinor": 4, "numSms": 304}


def one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a refused command."""
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


def programs(*streams: int, device: str = "h200") -> list[Trace]:
    """Traces of so many streams each."""
    return [
        Trace(
            name=f"p{n}",
            device=device,
            streams=[stream(f"s{at}", kernel(f"k{n}_{at}", 60, 50.0)) for at in range(count)],
        )
        for n, count in enumerate(streams)
    ]


@pytest.mark.parametrize(
    "argv", [["trace", "new"], ["trace", "convert", MODULE], ["select", MODULE], ["import", MODULE], ["report", MODULE]]
)
def test_a_file_is_not_written_under_another_ending(
    argv: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "x.txt"
    said = one_line([*argv, "-o", str(out)], capsys)
    ending = ".html or .htm" if argv[0] == "report" else ".json or .json.gz"
    assert said == f"{out}: cannot be written to; expected a file that ends in {ending}\n"
    assert not out.exists()


def test_a_network_that_is_not_known_has_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line(["parallel", "nope", "--ranks", "4"], capsys).startswith(
        "NETWORK: unknown network 'nope'; expected"
    )


def test_no_gpu_is_made_of_amds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_kineto(tmp_path / "p.json", [kineto_kernel("k", 0)], deviceProperties=[AMD])
    said = one_line(["gpus", "new", "--from-profile", str(path), "-o", str(tmp_path / "g.toml")], capsys)
    assert said == f"{path}: is a profile of an AMD GPU; expected a profile of an NVIDIA GPU\n"


def test_a_trace_without_convolutions_has_no_pairs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    programs(2)[0].save(path)
    assert cli.main(["pairs", str(path), "--no-cache"]) == 0
    assert capsys.readouterr().out == "p0 on h200: no two convolutions that are independent, so there are no pairs\n"


def test_three_programs_are_not_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for trace in programs(1, 1, 1):
        trace.save(tmp_path / f"{trace.name}.json")
        files.append(str(tmp_path / f"{trace.name}.json"))
    assert cli.main(["advise", *files, "--jobs", "1", "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("p0, p1 and p2 on h200: run all in streams")
    assert "both" not in out


def test_what_a_kernel_contends_for_has_its_title(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", MODULE, "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert "issue slots" in out and "L2" in out
    assert "l1 " not in out and "l2 " not in out


def test_a_part_and_counters_are_of_their_types(tmp_path: Path) -> None:
    path = write_kineto(tmp_path / "p.json", [kineto_kernel("k", 0)])
    with pytest.raises(InputError, match="counters: is 5; expected the path"):
        gpusim.import_profile(path, gpu="v100", counters=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="part: is 5; expected"):
        gpusim.import_profile(path, gpu="v100", part=5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "argv",
    [
        ["replay"], ["report", "-o", "o.html"], ["plot", "split", "-o", "o.png"], ["import", "-o", "o.json"],
        ["advise"], ["validate"], ["score", "--template", "o.csv", "--data"], ["trace", "show"],
    ],
)  # fmt: skip
def test_a_name_that_no_file_can_have_is_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert one_line([*argv, "a" * 5000], capsys).startswith("aaaa")


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gpusim.what_if("h200", {5: 1}), "^5: cannot be changed"),  # type: ignore[dict-item]
        (lambda: gpusim.sweep(5), "experiment: is 5; expected the path of a file"),  # type: ignore[arg-type]
        (lambda: gpusim.advise(programs(1, 1), targets=5), "targets: is 5; expected a list"),  # type: ignore[arg-type]
        (lambda: gpusim.advise(programs(1, 1), targets=[5]), "targets: is .5.; expected a list"),  # type: ignore[list-item]
        (lambda: gpusim.advise(programs(1, 1), ways=5), "ways: is 5; expected a list"),  # type: ignore[arg-type]
        (lambda: gpusim.advise(programs(1, 1), jobs=0), "jobs: is 0; expected a number of processes"),
        (lambda: gpusim.select(MODULE, streams=5), "streams: is 5; expected a name, or for each stream a list of ids"),  # type: ignore[arg-type]
        (lambda: gpusim.advise(5), "programs: is 5; expected a list"),  # type: ignore[arg-type]
        (lambda: gpusim.sweep("experiments/sensitivity.toml", out=5), "out: is 5; expected the path"),  # type: ignore[arg-type]
        (lambda: gpusim.advise(programs(1, 1), targets="p0=x2"), "targets: is 'p0=x2'; expected a list"),
        (lambda: gpusim.sweep("experiments/sensitivity.toml", executors=5), "executors: is 5; expected a function"),  # type: ignore[arg-type]
        (lambda: gpusim.sweep("experiments/sensitivity.toml", begun=5), "begun: is 5; expected a function"),  # type: ignore[arg-type]
        (lambda: gpusim.sweep("experiments/sensitivity.toml", width=0), "width: is 0; expected a number of points"),
        (lambda: gpusim.select(MODULE, streams={"a": 1}), "streams: is {'a': 1}; expected a name"),  # type: ignore[arg-type]
        (lambda: gpusim.select(MODULE, streams=[3]), "streams: holds 3; expected for each stream a list"),  # type: ignore[arg-type]
        (lambda: gpusim.select(MODULE, order=np.array([1, 2])), "order: is array"),  # type: ignore[arg-type]
        (lambda: gpusim.advise(programs(1, 1), objective=[]), "objective: is"),  # type: ignore[arg-type]
        (lambda: gpusim.import_profile("p", format=np.array([1, 2])), "format: is array"),  # type: ignore[arg-type]
        (lambda: gpusim.slowdown(MODULE, 5), "slowdown: is given 5; expected a trace"),  # type: ignore[call-overload]
        (
            lambda: gpusim.slowdown(programs(1)[0], programs(1, device="k40c")[0]),
            "programs recorded on h200 and on k40c; expected programs recorded on one GPU",
        ),
    ],
)
def test_an_object_of_another_type_is_one_line(call: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        call()


def test_plain_streams_are_several(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["replay", MODULE, "--policy", "leftover", "--arrivals", "1x1=every:5ms"]
    assert cli.main(argv) == 0
    assert "Plain streams (leftover) save nothing over serial." in capsys.readouterr().out


def test_times_of_a_plan_have_one_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    programs(2)[0].save(path)
    assert cli.main(["select", str(path), "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert "µs" in out and " us" not in out


def test_a_queue_that_grows_is_said_to(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["replay", MODULE, "--policy", "leftover", "--arrivals", "1x1=every:5"]
    assert cli.main(argv) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "note: requests of 1x1 come every 5 µs and take" in said and "the queue grows" in said
    assert cli.main([*argv[:-1], "1x1=every:5ms"]) == 0
    assert "queue" not in capsys.readouterr().out


def test_one_stream_is_not_divided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = one_line(["plot", "split", MODULE, "--stream", "3x3", "-o", str(tmp_path / "s.png")], capsys)
    assert said == "--stream: leaves 1 stream: 3x3; expected two streams\n"


def test_a_cluster_that_is_not_known_has_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    said = one_line(["parallel", "resnet50", "--ranks", "4", "--cluster", "nope"], capsys)
    assert said.startswith("--cluster: unknown cluster 'nope'; expected one of ")


def test_a_plan_says_what_binds_its_kernels_by_title(capsys: pytest.CaptureFixture[str]) -> None:
    small = "traces/resnet50_3a.json.gz"
    assert cli.main(["select", small, "--streams", "branches", "--sharing", "streams", "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert "issue slots" in out and " l1 " not in out


def test_one_pair_is_no_pairs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pairs", "traces/spaa20_table1.json", "--no-cache"]) == 0
    out = capsys.readouterr().out
    assert "in 1 combination\n" in out and "side by side: 1 pair (1 combination) faster than" in out


def test_a_trace_is_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    programs(1)[0].save(path)
    assert one_line(["gpus", str(path)], capsys) == f"{path}: is JSON; expected a GPU file in TOML\n"


def test_bounds_of_a_number_are_in_our_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "e.toml"
    path.write_text(f'traces = ["{Path(MODULE).resolve()}"]\npolicies = ["serial"]\nseeds = [-1]\n')
    assert one_line(["sweep", str(path)], capsys) == f"{path}: seeds[0]: is -1; expected a number of at least 0\n"


def test_a_policy_of_an_experiment_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "e.toml"
    path.write_text(f'traces = ["{Path(MODULE).resolve()}"]\npolicies = ["nope"]\n')
    assert one_line(["sweep", str(path)], capsys).startswith(f"{path}: policies[0]: nope: no such policy; expected")


@pytest.mark.release
@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C of a terminal goes to a group of processes")
def test_ctrl_c_ends_a_benchmark_silently() -> None:
    command = [sys.executable, "-m", "gpusim", "bench"]  # grid is the first of its groups, and minutes are left then
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job in the background may ignore it
    )
    assert process.stdout is not None
    while not process.stdout.readline().startswith("grid"):
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGINT)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == cli.INTERRUPTED


CTRL_C = """
import os, signal, threading
from gpusim.common.cores import _ctrl_c_later
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background may ignore it
threading.Thread(target=threading.Event().wait, daemon=True).start()
try:
    with _ctrl_c_later():
        os.kill(os.getpid(), signal.SIGINT)
        sum(range(1_000_000))
        print("submitted")
    while True:  # a wait would go on: the signal may come to the other thread, and late
        pass
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.skipif(os.name != "posix", reason="only there is Ctrl-C deferred")
def test_ctrl_c_waits_until_a_task_is_submitted_whatever_thread_gets_it() -> None:
    """A process that was half started when its parent was interrupted would print an error."""
    assert subprocess.run([sys.executable, "-c", CTRL_C], capture_output=True, text=True).stdout.split() == [
        "submitted",
        "interrupted",
    ]


HERE = [command for command in cli.COMMANDS if command.name not in ("import", "record", "sweep", "validate")]
ACTIONS = ("new", "show", "select", "merge", "convert", "check")


@pytest.mark.release
@pytest.mark.parametrize("command", HERE, ids=lambda command: command.name)
def test_an_example_runs_in_an_empty_folder(
    command: cli.Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([command.name, *command.example.split()]) == 0


@pytest.mark.parametrize("action", ACTIONS)
def test_an_example_of_trace_runs_in_an_empty_folder(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["trace", action, "--help"])
    (example,) = re.findall(r"Example: gpusim (.+)", " ".join(capsys.readouterr().out.split()))
    monkeypatch.chdir(tmp_path)
    assert cli.main(example.split()) == 0


@pytest.mark.skipif(os.name != "posix", reason="needs a shell of POSIX")
def test_closed_streams_and_pipes_are_no_defect(tmp_path: Path) -> None:
    def status(command: str) -> tuple[int, str, str]:
        python = f"{sys.executable} -m gpusim"
        done = subprocess.run(["sh", "-c", command.format(python)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    assert status(f"{{}} trace show {MODULE} >&-") == (0, "", "")
    assert status("{} trace show nope.json 2>&-") == (2, "", "")
    assert status(f"{{}} trace convert {MODULE} -o /dev/stdout | head -c 1") == (0, "{", "")
