"""Sweeps that are killed, interrupted, short of room, short of workers: one clear line, and nothing lost that was done.

All of these end as the table that an undisturbed run gives, byte for byte, once they are run again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from executors import Here

from gpusim import cli
from gpusim.sweeps import workers
from gpusim.sweeps.experiment import load_experiment
from gpusim.sweeps.run import sweep
from gpusim.sweeps.table import read_rows
from gpusim.sweeps.workers import DIED, local

ROOT = Path(__file__).resolve().parent.parent
TABLE_1 = ROOT / "traces" / "spaa20_table1.json"
POINTS = 12
PATIENCE_S = 600.0  # until a test that hangs is given up; nothing is measured

posix = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")

POLICIES = """
import os, signal, time
from dataclasses import dataclass, field
from pathlib import Path

from gpusim.policies.hardware import Leftover


HERE = Path(__file__).parent


def held(n):
    try:
        return n >= int((HERE / "held").read_text())
    except FileNotFoundError:
        return False


@dataclass
class Slow(Leftover):
    summary = "begins when it may: see `hold`"
    name = "slow"
    n: int = field(default=0, metadata={"help": "tells points apart"})

    def prepare(self, gpu, streams):
        while held(self.n):
            (HERE / f"waiting{self.n}").touch()
            time.sleep(0.01)
        super().prepare(gpu, streams)


@dataclass
class Deadly(Slow):
    summary = "kills its worker, at every try or, where there is a file for it, at the first"
    name = "deadly"

    def prepare(self, gpu, streams):
        once = os.environ.get("DEADLY_ONCE")
        if once is None or not Path(once).exists():
            if once is not None:
                Path(once).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        super().prepare(gpu, streams)
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    """Points of which `hold` can hold some."""
    (tmp_path / "policies.py").write_text(POLICIES)
    return write_points(tmp_path / "slow.toml", POINTS)


def write_points(path: Path, points: int) -> Path:
    numbers = ", ".join(str(n) for n in range(points))
    path.write_text(f'traces = ["{TABLE_1}"]\npolicies = [{{ name = "policies.py:Slow", n = [{numbers}] }}]\n')
    return path


@pytest.fixture
def undisturbed(experiment: Path, tmp_path: Path) -> bytes:
    out = tmp_path / "undisturbed.csv"
    sweep(load_experiment(experiment), out, Here, 1)
    return out.read_bytes()


def hold(experiment: Path, n: int) -> None:
    """From now on points wait, all but the first n."""
    held = experiment.with_name("held.tmp")
    held.write_text(str(n))
    held.rename(experiment.with_name("held"))


def let_go(experiment: Path) -> None:
    experiment.with_name("held").unlink()


def waiting(experiment: Path) -> int:
    return len(list(experiment.parent.glob("waiting*")))


def started(experiment: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpusim", "sweep", str(experiment), "--jobs", "2", *arguments]
    if "--cluster" in arguments:
        command.remove("--jobs")
        command.remove("2")
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # what runs the tests may ignore it
    )


def listed(experiment: Path) -> str:
    """What is told before anything runs."""
    return f"gpusim sweep: runs the policies in {experiment.with_name('policies.py')}\n"


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


def rows_in(out: Path) -> int:
    return max(0, len(out.read_text().splitlines()) - 1) if out.exists() else 0


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(child) for child in children.read_text().split()] if children.exists() else []


def alive(process: int) -> bool:
    stat = Path(f"/proc/{process}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def finish(experiment: Path) -> tuple[int, bytes]:
    """Runs it to its end, in this process; how many points were left, and the table."""
    swept = sweep(load_experiment(experiment), None, Here, 1)
    return swept.computed, swept.table.read_bytes()


@posix
@pytest.mark.parametrize("after", [0, pytest.param(1, marks=pytest.mark.release), 5])
def test_killed_at_any_moment_it_loses_what_was_under_way(experiment: Path, undisturbed: bytes, after: int) -> None:
    out = experiment.with_suffix(".csv")
    hold(experiment, after)
    process = started(experiment)
    wait_for(lambda: out.exists() and rows_in(out) == after and waiting(experiment) == 2)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    done = len(read_rows(out))
    assert done == after
    wait_for(lambda: not any(alive(worker) for worker in workers))  # nobody goes on computing for nobody
    let_go(experiment)
    assert finish(experiment) == (POINTS - done, undisturbed)


@pytest.mark.release
@posix
@pytest.mark.parametrize(
    ("sent", "to_all"),
    [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)],
    ids=["Ctrl-C as a terminal sends it", "Ctrl-C to the command alone", "SIGTERM"],
)
def test_ctrl_c_is_one_line_and_goes_on_later(
    experiment: Path, undisturbed: bytes, sent: signal.Signals, to_all: bool
) -> None:
    out = experiment.with_suffix(".csv")
    hold(experiment, 2)
    process = started(experiment)
    wait_for(lambda: rows_in(out) == 2 and waiting(experiment) == 2)
    if to_all:
        os.killpg(process.pid, sent)
    else:
        process.send_signal(sent)
    printed, told = process.communicate(timeout=PATIENCE_S)
    let_go(experiment)  # only now: it did not wait for what was under way
    assert process.returncode == 130
    assert printed == ""
    assert told == listed(experiment) + (
        f"gpusim sweep: interrupted; what is done is kept in {out}, run it again to go on\n"
    )
    assert len(read_rows(out)) == 2
    assert finish(experiment)[1] == undisturbed


@posix
def test_a_full_disk_is_one_line_and_keeps_what_is_done(experiment: Path, undisturbed: bytes) -> None:
    out = experiment.with_suffix(".csv")
    room = len(undisturbed) // 2
    limited = (
        "import resource, signal, sys; from gpusim.cli import main; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); "
        f"sys.exit(main(['sweep', {str(experiment)!r}, '--jobs', '1']))"
    )
    process = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=PATIENCE_S)
    assert process.returncode == 2
    assert process.stderr == listed(experiment) + (
        f"{out}: cannot be written (File too large); expected room for it; "
        "what is done is kept, run it again to go on\n"
    )
    done = len(read_rows(out))
    assert 0 < done < POINTS
    assert finish(experiment) == (POINTS - done, undisturbed)


def test_a_table_that_cannot_be_begun_is_one_line(experiment: Path) -> None:
    process = started(experiment, "--out", str(experiment.with_name("nowhere") / "table.csv"))
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2 and told.removeprefix(listed(experiment)).count("\n") == 1
    assert "table.csv: cannot be written (No such file or directory); expected " in told


@pytest.mark.release
@pytest.mark.parametrize("wrong", ["{", '{"version": 1}', ""])
def test_an_unreadable_trace_in_the_middle_is_rows_with_its_error(tmp_path: Path, wrong: str) -> None:
    for name in ("a", "c"):
        (tmp_path / f"{name}.json").write_bytes(TABLE_1.read_bytes())
    (tmp_path / "b.json").write_text(wrong)
    path = tmp_path / "three.toml"
    path.write_text('traces = ["?.json"]\npolicies = ["serial", "leftover"]\nseeds = [0, 1]\n')
    process = started(path)
    printed, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "serial" in printed
    assert "gpusim sweep: 4 of 12 points failed; the first, b serial 0: b: " in told
    rows = read_rows(tmp_path / "three.csv")
    assert [row["trace"] for row in rows] == ["a"] * 4 + ["b"] * 4 + ["c"] * 4
    assert [bool(row["error"]) for row in rows] == [False] * 4 + [True] * 4 + [False] * 4
    (tmp_path / "b.json").write_bytes(TABLE_1.read_bytes())
    process = started(path)
    process.communicate(timeout=PATIENCE_S)
    rows = read_rows(tmp_path / "three.csv")
    assert not any(row["error"] for row in rows)
    assert [row["makespan_us"] for row in rows[4:8]] == [row["makespan_us"] for row in rows[:4]]


@pytest.mark.release
@posix
def test_a_point_that_kills_its_workers_is_a_row_and_no_other_is_lost(experiment: Path) -> None:
    path = experiment.with_name("deadly.toml")
    text = experiment.read_text().replace('", n = [0, 1, 2', '", n = [0, 2')
    path.write_text(text.replace("policies = [", 'policies = [{ name = "policies.py:Deadly", n = [1, 3] }, '))
    process = started(path)
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, told
    rows = read_rows(path.with_suffix(".csv"))
    assert [row["error"] for row in rows] == [DIED] * 2 + [""] * (POINTS - 1)
    assert f"2 of {POINTS + 1} points failed; the first, spaa20_table1 k40c policies.py:Deadly:n=1 0: {DIED}" in told


@pytest.mark.release
@posix
def test_a_worker_that_dies_once_costs_nothing(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEADLY_ONCE", str(tmp_path / "died"))
    path = experiment.with_name("once.toml")
    path.write_text(experiment.read_text().replace(":Slow", ":Deadly"))
    done = sweep(load_experiment(path), tmp_path / "once.csv", *local(2))
    assert (tmp_path / "died").exists()
    assert not done.failures
    sweep(load_experiment(path), tmp_path / "again.csv", Here, 1)
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "once.csv").read_bytes()


@pytest.mark.release
def test_a_script_needs_no_guard(experiment: Path, tmp_path: Path) -> None:
    """Each of its points in a process of its own."""
    write_points(experiment, 3)
    script = tmp_path / "unguarded.py"
    script.write_text(
        "from gpusim.sweeps import run, workers\nfrom gpusim.sweeps.experiment import load_experiment\n"
        f"print(len(run.sweep(load_experiment({str(experiment)!r}), 'table.csv', *workers.local(2, 1)).frame))\n"
    )
    process = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert process.stderr == "" and process.returncode == 0
    assert process.stdout == f"{rows_in(tmp_path / 'table.csv')}\n"


@pytest.mark.release
@posix
def test_two_sweeps_do_not_write_one_table(experiment: Path, undisturbed: bytes) -> None:
    out = experiment.with_suffix(".csv")
    hold(experiment, 1)
    first = started(experiment)
    wait_for(lambda: rows_in(out) == 1)
    second = started(experiment)
    _, told = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 2
    assert told == listed(experiment) + f"{out}: is being written by another sweep; expected one at a time\n"
    let_go(experiment)
    first.communicate(timeout=PATIENCE_S)
    assert first.returncode == 0 and out.read_bytes() == undisturbed
    assert sorted(path.name for path in out.parent.glob("*slow*")) == ["slow.csv", "slow.toml"]
    assert not list(out.parent.glob(".slow*"))


# ---- a real scheduler and real workers on loopback


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def scheduler(folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A scheduler that answers: its address and its process."""
    file = folder / "scheduler.json"
    free_port = ("--host", "127.0.0.1", "--port", "0")
    with running("scheduler", *free_port, "--scheduler-file", str(file), "--no-dashboard") as process:
        wait_for(lambda: file.exists() and file.read_text().endswith("}"))
        yield json.loads(file.read_text())["address"], process


@contextmanager
def cluster(folder: Path, nanny: str = "--no-nanny") -> Iterator[tuple[str, list[subprocess.Popen[str]]]]:
    """A scheduler and two workers that it knows: its address, and the processes in this order."""
    from distributed import Client

    with scheduler(folder) as (address, process):
        worker = ("worker", address, "--nthreads", "1", nanny, "--no-dashboard")
        with running(*worker) as first, running(*worker) as second:
            with Client(address, timeout=PATIENCE_S, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=PATIENCE_S)
            yield address, [process, first, second]


def swept_while_one_is_killed(experiment: Path, rows: int, which: int) -> tuple[str, int, str]:
    """Runs it on a cluster of which a process, as `cluster` counts, is killed once the table has so many rows.

    Returns the cluster's address, the exit status, and what was told.
    """
    out = experiment.with_suffix(".csv")
    hold(experiment, rows)
    with cluster(experiment.parent) as (address, processes):
        process = started(experiment, "--cluster", address)
        wait_for(lambda: rows_in(out) == rows and waiting(experiment) == 2)
        processes[which].kill()
        processes[which].wait()
        let_go(experiment)
        _, told = process.communicate(timeout=PATIENCE_S)
    return address, process.returncode, told


@pytest.mark.release
@posix
def test_a_cluster_gives_the_same_table_though_a_worker_is_killed(experiment: Path, undisturbed: bytes) -> None:
    pytest.importorskip("distributed")
    out = experiment.with_suffix(".csv")
    _, _, told = swept_while_one_is_killed(experiment, rows=3, which=1)
    assert told == listed(experiment) + f"gpusim sweep: {POINTS} points, {POINTS} of them computed now, are in {out}\n"
    assert out.read_bytes() == undisturbed


@pytest.mark.release
@posix
def test_a_point_that_kills_every_worker_of_a_cluster_is_a_row(
    experiment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed")
    path = experiment.with_name("deadly.toml")
    path.write_text(experiment.read_text().replace("policies = [", 'policies = ["policies.py:Deadly", '))
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")  # dask believes the first death
    with cluster(experiment.parent, "--nanny") as (address, _):
        process = started(path, "--cluster", address)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    rows = read_rows(path.with_suffix(".csv"))
    assert [row["error"] for row in rows] == [DIED] + [""] * POINTS
    assert f"1 of {POINTS + 1} points failed; the first, spaa20_table1 k40c policies.py:Deadly 0: {DIED}" in told


@pytest.mark.release
@posix
def test_a_cluster_that_loses_all_workers_is_one_line(
    experiment: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "WORKERS_S", 5)
    out = experiment.with_suffix(".csv")
    hold(experiment, 2)
    with cluster(experiment.parent) as (address, (_, *both)):

        def kill_them() -> None:
            wait_for(lambda: rows_in(out) == 2 and waiting(experiment) == 2)
            for worker in both:
                worker.kill()

        killer = threading.Thread(target=kill_them)
        killer.start()
        assert cli.main(["sweep", str(experiment), "--cluster", address]) == 2
        killer.join()
    assert capsys.readouterr().err == listed(experiment) + (
        f"--cluster: {address} has no workers; expected one within 5 s\n"
    )
    let_go(experiment)
    assert finish(experiment)[1] == undisturbed


@pytest.mark.release
@posix
def test_a_scheduler_that_goes_is_one_line(experiment: Path, undisturbed: bytes) -> None:
    pytest.importorskip("distributed")
    address, status, told = swept_while_one_is_killed(experiment, rows=2, which=0)
    assert status == 2
    assert told == listed(experiment) + (
        f"--cluster: {address} is gone; expected a scheduler that stays; what is done is kept, run it again to go on\n"
    )
    assert finish(experiment)[1] == undisturbed


@pytest.mark.release
def test_a_cluster_without_workers_is_one_line(
    experiment: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "CONNECT_S", 2)
    address = "tcp://127.0.0.1:1"  # where nobody listens
    assert cli.main(["sweep", str(experiment), "--cluster", address]) == 2
    assert f"--cluster: {address} does not answer (OSError); expected the address " in capsys.readouterr().err
    monkeypatch.undo()
    monkeypatch.setattr(workers, "WORKERS_S", 2)
    with scheduler(experiment.parent) as (address, _):
        assert cli.main(["sweep", str(experiment), "--cluster", address]) == 2
    assert capsys.readouterr().err == listed(experiment) + (
        f"--cluster: {address} has no workers; expected one within 2 s\n"
    )


def test_an_address_that_is_none_is_one_line(experiment: Path) -> None:
    pytest.importorskip("distributed")
    process = started(experiment, "--cluster", "nowhere")
    _, told = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2
    assert (
        told
        == listed(experiment)
        + "--cluster: 'nowhere' is no address; expected the address of a dask scheduler, such as tcp://HOST:8786\n"
    )
