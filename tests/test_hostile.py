"""Input that is small and hostile: one clear line, bounded memory, nothing that a terminal or a spreadsheet obeys."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.image
import pandas as pd
import pytest
from executors import Here
from hypothesis import given
from hypothesis import strategies as st

import gpusim
from gpusim import cli, replay
from gpusim.common.cores import in_order
from gpusim.common.errors import InputError
from gpusim.common.files import FREE_EXPANSION_BYTES, MAX_EXPANSION, atomic_write, decompressed, read_bytes
from gpusim.common.spreadsheet import csv_line, original
from gpusim.common.tables import Column, json_text, print_line, print_table
from gpusim.hardware.gpu import load_gpu, load_shipped_gpu
from gpusim.lab.dataset import Dataset
from gpusim.policies.registry import policy_from
from gpusim.results.plots import gantt, occupancy
from gpusim.results.style import save_figure
from gpusim.sweeps import run as sweep_run
from gpusim.sweeps.experiment import MAX_COMBINATIONS, load_experiment
from gpusim.sweeps.run import points, sweep
from gpusim.sweeps.table import read_rows
from gpusim.trace.file import load_trace, parse_trace

ROOT = Path(__file__).resolve().parent.parent
H200_TOML = (ROOT / "gpus" / "h200.toml").read_text()
TABLE_1 = ROOT / "traces" / "spaa20_table1.json"
ESCAPE = "\x1b]0;owned\x07\x9b31m\u202e"

Capture = pytest.CaptureFixture[str]

posix = pytest.mark.skipif(os.name != "posix", reason="pipes, devices and limits of POSIX")


def operation(id: str, **change: Any) -> dict[str, Any]:
    launch = {"name": "k", "grid": [100, 1, 1], "block": [128, 1, 1], "registers_per_thread": 32, "duration_us": 8.0}
    return {"id": id, "kind": "kernel", "kernel": launch | change}


def document(*streams: dict[str, Any], name: str = "t", device: str = "h200") -> dict[str, Any]:
    return {"version": 1, "name": name, "device": device, "streams": list(streams)}


def one(operation: dict[str, Any], **stream: Any) -> bytes:
    return json.dumps(document({"name": "s", "operations": [operation], **stream})).encode()


def problem(read: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        read()
    line = str(caught.value)
    assert line.isprintable() and len(line) < 600
    return line


# ---- what is no regular file is refused at once


def readers(path: Path) -> dict[str, Callable[[], object]]:
    experiment = path.with_name("experiment.toml")
    experiment.write_text(f'traces = ["{TABLE_1}"]\npolicies = ["serial"]\ngpus = ["{path}"]\n')
    return {
        "trace": lambda: load_trace(path),
        "GPU": lambda: load_gpu(path),
        "experiment": lambda: load_experiment(path),
        "an experiment's GPU": lambda: load_experiment(experiment),
        "policy": lambda: policy_from(f"{path}:Policy"),
        "dataset": lambda: Dataset(path, load_gpu("h200")),
        "table": lambda: read_rows(path),
    }


@posix
@pytest.mark.parametrize("reader", list(readers(Path("/tmp/x"))) if os.name == "posix" else [])
@pytest.mark.parametrize("what", ["pipe", "device", "folder"])
def test_what_is_no_file_is_one_line_and_is_not_waited_for(tmp_path: Path, what: str, reader: str) -> None:
    path = tmp_path / "input.py"
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert problem(readers(path)[reader])


@posix
def test_a_pipe_is_said_to_be_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    line = problem(lambda: read_bytes(tmp_path / "pipe"))
    assert line.endswith("pipe: is no regular file; expected a regular file that can be read")


def test_a_file_beyond_its_limit_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "large.toml"
    path.write_bytes(b"#" * (2**18 + 1))
    assert problem(lambda: load_gpu(path)) == f"{path}: is too large; expected at most 262,144 bytes"
    assert problem(lambda: load_experiment(path)) == f"{path}: is too large; expected at most 262,144 bytes"
    assert read_bytes(path, 2**18 + 1) == path.read_bytes()


def test_a_key_of_a_hundred_thousand_parts_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "dotted.toml"
    path.write_text("a = 1\n" + ".".join("a" * 100_000) + " = 1")
    assert problem(lambda: load_gpu(path)) == f"{path}: line 2: has more than 256 dots; expected shorter lines"


# ---- gzip


def test_several_members_are_read_as_one() -> None:
    assert decompressed(gzip.compress(b"a") + gzip.compress(b"") + gzip.compress(b"b"), None) == b"ab"


def test_what_unfolds_to_too_much_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(b" " * (3 * FREE_EXPANSION_BYTES))
    most = FREE_EXPANSION_BYTES + MAX_EXPANSION * len(bomb)
    assert most < 3 * FREE_EXPANSION_BYTES
    line = f"bomb.gz: is too large once decompressed from {len(bomb):,} bytes; expected at most {most:,} bytes"
    assert problem(lambda: decompressed(bomb, "bomb.gz")) == line
    two = gzip.compress(b"x" * 6) * 2
    monkeypatch.setattr("gpusim.common.files.MAX_BYTES", 11)
    assert problem(lambda: decompressed(two, "a.gz")).endswith("expected at most 11 bytes")
    monkeypatch.setattr("gpusim.common.files.MAX_BYTES", 12)
    assert decompressed(two, "a.gz") == b"x" * 12


HEAD = b'{"version":1,"name":"t","device":"h200","streams":['
BOMBS: dict[str, Callable[[], bytes]] = {  # made where they are used: together they take 500 MB
    "wrong streams": lambda: HEAD + b"{}," * 10**7 + b"{}]}",
    "nested lists": lambda: HEAD + b"[]," * 5 * 10**6 + b"[]]}",
    "long wrong streams": lambda: HEAD + b'{"name":"aaaaaaaaaa"},' * 600_000 + b"{}]}",
    "wrong operations": lambda: (
        HEAD + b'{"name":"s","operations":[' + b'{"kind":"kernel","id":0},' * 600_000 + b"{}]}]}"
    ),
    "zeros": lambda: b"\0" * 2**28,
    "keys": lambda: b'{"version":1,' + b",".join(b'"k%d":1' % n for n in range(600_000)) + b"}",
    "a long name": lambda: b'{"version":1,"name":"' + b"a" * 10**7 + b'"}',
    "wrong waits": lambda: (
        HEAD + b'{"name":"s","operations":[{"id":"a","kind":"host","depends_on":[' + b"1," * 10**6 + b"1]}]}]}"
    ),
}


@pytest.mark.release
@posix
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_hostile_trace_takes_no_memory(tmp_path: Path, bomb: str) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(BOMBS[bomb](), 1))
    program = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))\n"
        "from gpusim.cli import main\nsys.exit(main(['replay', sys.argv[1]]))"
    )
    ran = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert ran.stderr.count("\n") == 1 and ran.stderr.startswith(f"{path}: ")


def test_a_trace_of_a_hundred_thousand_equal_kernels_is_no_bomb() -> None:
    kernel = json.dumps(operation("@"), separators=(",", ":"))
    ops = ",".join(kernel.replace("@", f"op{n}") for n in range(100_000))
    text = HEAD + b'{"name":"s","operations":[' + ops.encode() + b"]}]}"
    assert decompressed(gzip.compress(text, 9), None) == text
    assert text.count(b"{") + text.count(b"[") < len(text) / 16


# ---- limits of numbers


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (one(operation("a", duration_us=5e-324)), "duration_us: is 5e-324; expected a number of at least 0.001 (us)"),
        (
            one(operation("a", grid=[10**9, 1, 1])),
            "kernel.duration_us: is 8 for 1000000000 thread blocks; expected at most 20000 blocks in each us",
        ),
        (
            one(operation("a"), arrivals={"kind": "poisson", "rate_per_s": 5e-324, "count": 3, "seed": 0}),
            "arrivals.rate_per_s: is 5e-324; expected a number of at least 0.001 (1/s)",
        ),
        (
            json.dumps(document(*({"name": f"s{n}", "operations": []} for n in range(4097)))).encode(),
            "streams: is a list of 4097; expected at most 4096 of them",
        ),
        (
            json.dumps(
                document(
                    {
                        "name": "s",
                        "operations": [operation(f"o{n}") for n in range(11)],
                        "arrivals": {"kind": "loop", "count": 10**6},
                    }
                )
            ).encode(),
            "streams: launch 11000000 kernels, all requests counted; expected at most 10000000",
        ),
    ],
)
def test_numbers_that_no_trace_has(data: bytes, line: str) -> None:
    assert problem(lambda: parse_trace(data)).endswith(line)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "sm_count = { value = 132",
            "sm_count = { value = 100000",
            "sm_count.value: is 100000; expected a number of at most",
        ),
        ("dram_bandwidth_gb_per_s = { value = 4800", "dram_bandwidth_gb_per_s = { value = 5e-324", "is 5e-324"),
    ],
)
def test_numbers_that_no_gpu_has(tmp_path: Path, old: str, new: str, line: str) -> None:
    assert old in H200_TOML
    path = tmp_path / "gpu.toml"
    path.write_text(H200_TOML.replace(old, new))
    assert line in problem(lambda: load_gpu(path))


@pytest.mark.parametrize("value", [0.0, 5e-324, 1e-12])
def test_demands_of_next_to_nothing_replay(value: float) -> None:
    keys = ("issue_cycles", "l1_cycles", "warp_instructions", "l2_bytes", "dram_read_bytes", "achieved_warps_per_sm")
    stalls = dict.fromkeys(("long_scoreboard", "barrier", "selected"), value)
    for mix in (*({key: value} for key in keys), dict.fromkeys(keys, value) | {"stalls": stalls}):
        beside = operation("b", mix={"issue_cycles": 1000.0, "dram_read_bytes": 1e5})
        streams = ({"name": "s", "operations": [operation("a", mix=mix)]}, {"name": "r", "operations": [beside]})
        trace = parse_trace(json.dumps(document(*streams)).encode())
        for policy in ("leftover", "even"):
            assert 0.0 < replay(trace, load_gpu("h200"), policy).makespan_us < 100.0


def test_experiments_without_end_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "many.toml"
    values = list(range(1000))
    text = f'traces = ["{TABLE_1}"]\npolicies = ["serial"]\n[parameters]\n'
    path.write_text(text + f"sm_count = {values}\nregisters_per_sm = {values}\n")
    line = f"{path}: parameters[0]: makes 1000000 combinations; expected at most {MAX_COMBINATIONS}"
    assert problem(lambda: load_experiment(path)) == line
    monkeypatch.setattr(sweep_run, "MAX_POINTS", 10)
    path.write_text(f'traces = ["{TABLE_1}"]\npolicies = ["serial"]\nseeds = {values}\n')
    assert (
        problem(lambda: points(load_experiment(path)))
        == f"{path}: has more than 10 points; expected several experiments"
    )


# ---- names


def test_a_traces_device_is_never_a_path(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "trace.json"
    for device in ("/dev/zero", str(ROOT / "gpus" / "h200.toml"), "gpu.toml"):
        path.write_text(json.dumps(document({"name": "s", "operations": [operation("a")]}, device=device)))
        assert "which does not ship" in problem(lambda device=device: load_shipped_gpu(device))  # type: ignore[misc]
        assert cli.main(["replay", str(path)]) == 2
        assert "device: is " in capsys.readouterr().err
        (tmp_path / "e.toml").write_text('traces = ["trace.json"]\npolicies = ["serial"]\n')
        (point,) = points(load_experiment(tmp_path / "e.toml"))
        assert "which does not ship" in point.error


@pytest.mark.parametrize("name", ["a[1]", "a*", "[!x]", "{a}", "?"])
def test_an_experiment_in_a_folder_named_like_a_pattern(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    (folder / "traces").mkdir(parents=True)
    (folder / "traces" / "t.json").write_bytes(TABLE_1.read_bytes())
    (folder / "e.toml").write_text('traces = ["traces/*.json", "../*/traces/t.json"]\npolicies = ["serial"]\n')
    (source,) = load_experiment(folder / "e.toml").sources
    assert source.label == "t" and source.path.samefile(folder / "traces" / "t.json")


def test_names_with_mathematics_are_drawn_as_they_are(tmp_path: Path) -> None:
    name = "$\\frac{$"
    streams = ({"name": "s", "operations": [operation("a", name=name)]}, {"name": "r", "operations": [operation("b")]})
    result = replay(parse_trace(json.dumps(document(*streams, name=name)).encode()), load_gpu("h200"), "leftover")
    for n, draw in enumerate((gantt, occupancy)):
        save_figure(draw(result), tmp_path / f"{n}.png")
        assert matplotlib.image.imread(tmp_path / f"{n}.png").shape[2] == 4


POLICY = f"""
from gpusim.policies.hardware import Leftover


class Escaping(Leftover):
    name = {ESCAPE!r}
    summary = {ESCAPE!r}
"""


def test_what_a_terminal_would_obey_is_never_printed(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / f"{ESCAPE.replace('/', '')}.py"
    path.write_text(POLICY)
    out = tmp_path / "out"
    policy = f"{path}:Escaping"
    for more in ([], ["--json"], ["--out", str(out)], ["--policy", f"leftover:{ESCAPE}=1"]):
        cli.main(["replay", str(TABLE_1), "--policy", policy, *more])
        printed, told = capsys.readouterr()
        assert (printed + told).replace("\n", "").isprintable()
    assert json.loads((out / "results.json").read_text())["results"][0]["policy"] == policy
    print_line(ESCAPE)
    assert capsys.readouterr().out.rstrip("\n").isprintable()


@given(st.lists(st.text(), min_size=1))
def test_tables_and_json_are_printable(texts: list[str]) -> None:
    with redirect_stdout(io.StringIO()) as printed:
        print_table([Column(text) for text in texts], [texts], texts[0])
    lines = printed.getvalue().removesuffix("\n").split("\n")
    assert len(lines) == 3 + bool(texts[0]) and all(line.isprintable() for line in lines)
    text = json_text(texts)
    assert text.replace("\n", "").isprintable()
    assert json.loads(text) == texts


@given(st.lists(st.text() | st.sampled_from(["=1", "'=1", "''", "+", "-1", "@a", "\t="]), min_size=1))
def test_a_text_in_csv_is_no_formula_and_comes_back(texts: list[str]) -> None:
    (cells,) = csv.reader(io.StringIO(csv_line(texts), newline=""))
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for cell in cells)
    assert [original(cell) for cell in cells] == texts
    assert csv_line([-1.5, 2, None]) == "-1.5,2,\n"


@pytest.mark.usefixtures("no_pictures")
def test_names_that_begin_like_formulas_reach_csv_harmlessly(tmp_path: Path) -> None:
    streams = (
        {"name": "-s", "operations": [operation("-a", name="=HYPERLINK(1)"), operation("b", name="plain")]},
        {"name": "r", "operations": [operation("c", name="'quoted"), operation("d", name="@x")]},
    )
    path = tmp_path / "=1.json"
    path.write_text(json.dumps(document(*streams)))
    assert cli.main(["replay", str(path), "--policy", "leftover", "--out", str(tmp_path / "out")]) == 0
    frame = pd.read_csv(tmp_path / "out" / "leftover" / "kernels.csv")
    assert sorted(frame["kernel"]) == ["''quoted", "'=HYPERLINK(1)", "'@x", "plain"]
    assert frame["start_us"].dtype == float
    (tmp_path / "e.toml").write_text('traces = ["=1.json"]\npolicies = ["leftover"]\n')
    table = tmp_path / "e.csv"
    for computed in (1, 0):
        assert sweep(load_experiment(tmp_path / "e.toml"), table, Here, 1).computed == computed
    assert table.read_text().splitlines()[1].startswith("'=1,")
    assert read_rows(table)[0]["trace"] == "=1"


def test_the_occupancy_that_can_be_called_pickles() -> None:
    assert pickle.loads(pickle.dumps(gpusim.occupancy)) is gpusim.occupancy


def test_nobody_waits_for_tasks_whose_answers_are_not_wanted() -> None:
    """The first task ends at once, the second after a day."""
    script = "import time; from gpusim.common.cores import in_order; "
    script += "found = in_order(time.sleep, [0, 86400], 2); next(found); found.close(); print('ended')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=300, check=True)
    assert done.stdout == b"ended\n"


def _write_and_wait(folder: Path, which: int) -> None:
    if which == 0:
        while not list(folder.iterdir()):  # until the other one writes
            time.sleep(0.01)
        return
    with atomic_write(folder / "out.json") as file:
        file.write("half")
        file.flush()
        time.sleep(86400)


def test_nothing_half_written_stays_of_tasks_that_are_ended(tmp_path: Path) -> None:
    found = in_order(partial(_write_and_wait, tmp_path), [0, 1], 2)
    next(found)
    found.close()
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="workers that are copies of their parent")
def test_workers_end_with_a_parent_that_is_killed() -> None:
    """Whoever reads the output would wait for workers that wait for a parent."""
    script = "import time; from functools import partial; from operator import mul; "
    script += "from gpusim.common.cores import in_order; print('begun', flush=True); "
    script += "[time.sleep(60) for one in in_order(partial(mul, 2), range(9), 2)]"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        time.sleep(1.0)  # until workers are there
        process.kill()
        assert process.communicate(timeout=20) == (b"", None)
