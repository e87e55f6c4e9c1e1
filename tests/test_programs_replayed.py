"""Programs replayed: hand-computed restarts and requests of several streams, and what the commands say of programs."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tiny import Operation, host, kernel, stream, times, tiny

import gpusim
from gpusim import Collective, InputError, Program, Trace, cli, load_trace, replay
from gpusim.results.error_band import experiment_of
from gpusim.results.metrics import latencies_us, metrics
from gpusim.results.result import Result
from gpusim.trace.operations import LoopArrivals, TimesArrivals

ROOT = Path(__file__).resolve().parent.parent
MODULE = str(ROOT / "traces" / "inception_4a.json.gz")


def programs(settings: dict[str, Any] | None = None, **of: tuple[Operation | Collective, ...]) -> Trace:
    """Programs of streams with one operation each; settings of the first."""
    made = [
        Program(name=name, streams=[stream(op.id, op) for op in ops], **((settings or {}) if at == 0 else {}))
        for at, (name, ops) in enumerate(of.items())
    ]
    return Trace(name="by hand", device="tiny", programs=made)


def restarted(of: Trace, policy: str = "leftover") -> Result:
    return replay(of, tiny(), policy, restart=True)


def runs(result: Result, operation: str) -> list[tuple[float, float]]:
    return [(run.start_us, run.end_us) for run in result.operation_runs if run.operation == operation]


# ---- programs that restart


def test_a_program_restarts_when_all_its_streams_have_ended() -> None:
    """a: 3 us, then 4 us on another stream: 7 us a pass, though its first stream is done after 3.

    b: 8 and, behind that, 9 us on another stream. At 17 it has ended once, and a is 3 of 7 us into its third pass.
    """
    found = restarted(programs(a=(host("a1", 3.0), host("a2", 4.0, "a1")), b=(host("b1", 8.0), host("b2", 9.0, "b1"))))
    assert runs(found, "a1") == [(0.0, 3.0), (7.0, 10.0), (14.0, 17.0)]
    assert runs(found, "a2") == [(3.0, 7.0), (10.0, 14.0)]
    assert found.makespan_us == 17.0
    assert found.passes == pytest.approx({"a": 2 + 3 / 7, "b": 1.0})
    assert [(run.program, run.end_us, run.solo_us) for run in found.program_runs] == [
        ("a", 7.0, 7.0),
        ("b", 17.0, 17.0),
    ]
    assert found.metrics["stp"] == pytest.approx(2.0)


def test_kernels_of_two_programs_that_restart() -> None:
    """Four SMs, one block each, 10 us a block, 1 us before the first; in each program the second operation waits.

    a's first kernel has two SMs from 1 to 11. b's has the others, from 11 all, and from 21 to 31 two for the rest. a's
    second, in line behind it, has the two that are left then. From 31 b works on the host to 43, the end; a's second
    pass has its first kernel from 32 to 42 and is half done. Alone they take 22 and 33 us.
    """
    of = programs(
        a=(kernel("a1", 2, 11.0), kernel("a2", 2, 11.0, "a1")), b=(kernel("b1", 8, 21.0), host("b2", 12.0, "b1"))
    )
    found = restarted(of)
    assert runs(found, "a1") == [(0.0, 11.0), (31.0, 42.0)]
    assert (runs(found, "a2"), runs(found, "b1"), runs(found, "b2")) == ([(11.0, 31.0)], [(0.0, 31.0)], [(31.0, 43.0)])
    assert (found.makespan_us, found.passes) == (43.0, pytest.approx({"a": 1.5, "b": 1.0}))
    assert [run.solo_us for run in found.program_runs] == [22.0, 33.0]
    assert found.metrics["stp"] == pytest.approx((1.5 * 22 + 33) / 43)
    assert found.metrics["fairness"] == pytest.approx(1.0)


def test_streams_of_a_program_take_less_together_than_one_after_the_other() -> None:
    """Two streams of 11 us on two SMs each take 11 us together: a program in turns makes no use of that."""
    of = programs(a=(kernel("a1", 2, 11.0), kernel("a2", 2, 11.0)), b=(kernel("b1", 2, 11.0),))
    assert [run.solo_us for run in restarted(of).program_runs] == [11.0, 11.0]
    assert restarted(of, "serial").metrics["stp"] == pytest.approx(2 * 11 / 33)


def test_ranks_of_a_program_meet_in_each_of_its_passes() -> None:
    """Ranks of 1 and 3 us meet at 3 for 2 us: 5 us a pass; b takes 12."""

    def meeting(id: str) -> Collective:
        return Collective(id=id, name="sum", what="all_reduce", ranks=2, bytes=8, duration_us=2.0)

    streams = [stream("r0", host("h0", 1.0), meeting("m0")), stream("r1", host("h1", 3.0), meeting("m1"))]
    both = [Program(name="a", streams=streams), Program(name="b", streams=[stream("b", host("b", 12.0))])]
    found = restarted(Trace(name="ranks", device="tiny", programs=both))
    assert runs(found, "m0") == [(1.0, 5.0), (6.0, 10.0)]
    assert runs(found, "m1") == [(3.0, 5.0), (8.0, 10.0)]
    assert found.passes == pytest.approx({"a": 2 + (1 + 2) / 8, "b": 1.0})


def test_dependencies_inside_a_program_of_version_1_are_no_reason_to_refuse() -> None:
    one = Trace(
        name="one",
        device="tiny",
        streams=[stream("a", host("a1", 3.0)), stream("b", host("b1", 4.0, "a1")), stream("c", host("c1", 9.0))],
    )
    found = restarted(one)
    assert one.version == 1 and found.passes == pytest.approx({"a": 1 + 2 / 7, "c": 1.0})


def test_programs_on_two_gpus_restart_together() -> None:
    """a has a stream on each GPU: both restart when the later of them has ended, at 5."""
    streams = [stream("a0", host("a0", 3.0)), stream("a1", host("a1", 5.0)).model_copy(update={"gpu": 1})]
    both = [Program(name="a", streams=streams), Program(name="b", streams=[stream("b", host("b", 12.0))])]
    found = restarted(Trace(name="two", device="tiny", programs=both))
    assert runs(found, "a0") == [(0.0, 3.0), (5.0, 8.0)]
    assert found.passes == pytest.approx({"a": 2 + 4 / 8, "b": 1.0})


def test_programs_that_wait_for_one_another_or_have_arrivals_cannot_restart() -> None:
    waiting = programs(a=(host("a1", 3.0),), b=(host("b1", 4.0), host("b2", 4.0, "a1")))
    with pytest.raises(InputError, match=r"^streams\[2\].operations\[0\].depends_on: waits for another program; expec"):
        restarted(waiting)
    assert [run.solo_us for run in replay(waiting, tiny()).program_runs] == [3.0, 4.0]
    served = programs({"arrivals": LoopArrivals(count=2)}, a=(host("a1", 3.0), host("a2", 4.0)), b=(host("b1", 9.0),))
    with pytest.raises(InputError, match=r"^streams\[0\].arrivals: is given; expected none, for a program that restar"):
        restarted(served)


# ---- requests


def test_a_request_is_of_all_streams_of_a_program() -> None:
    """A request takes 3 and then 4 us. The second arrives at 4 and waits until 7, the third finds nobody before it."""
    arrivals = TimesArrivals(times_us=(0.0, 4.0, 30.0))
    found = replay(
        programs({"arrivals": arrivals}, a=(host("a1", 3.0), host("a2", 4.0, "a1")), b=(host("b1", 50.0),)), tiny()
    )
    assert runs(found, "a1") == [(0.0, 3.0), (7.0, 10.0), (30.0, 33.0)]
    assert runs(found, "a2") == [(3.0, 7.0), (10.0, 14.0), (33.0, 37.0)]
    assert latencies_us(found) == {"a": [7.0, 7.0, 10.0]}
    assert found.metrics["latency_p99_us[a]"] == 10.0
    assert [(run.program, run.slowdown) for run in found.program_runs] == [("a", 1.0), ("b", 1.0)]


def test_programs_without_arrivals_run_as_their_streams_do() -> None:
    """What a program is changes nothing of a replay that runs once, bit for bit."""
    module = load_trace(ROOT / "traces" / "inception_3a.json.gz")
    names = [one.name for one in module.streams]
    joined = Trace(
        name=module.name, device=module.device, streams=module.streams, programs=[Program(name="all", streams=names)]
    )
    for policy in ("leftover", "inter-sm", "even"):
        one, other = replay(module, policy=policy), replay(joined, policy=policy)
        assert (one.kernel_runs, one.stream_runs) == (other.kernel_runs, other.stream_runs)
        assert len(other.program_runs) == 1 and not other.has_programs and not one.has_programs


def test_a_latency_target_is_of_a_program() -> None:
    of = programs({"priority": 1}, a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0, "a1")), b=(kernel("b1", 12, 31.0),))
    found = replay(of, tiny(), "latency-target:by=program,slowdown=2")
    assert max(end for name, (_, end) in times(found).items() if name != "b1") <= 2 * 22.0
    assert not any("missed" in note for note in found.notes)


# ---- the result


def test_a_result_has_a_row_for_each_program() -> None:
    found = replay(programs({"priority": 2}, a=(host("a1", 3.0), host("a2", 4.0, "a1")), b=(host("b1", 9.0),)), tiny())
    assert list(found.programs.index) == ["a", "b"]
    assert list(found.programs["streams"]) == [("a1", "a2"), ("b1",)]
    assert list(found.programs["end_us"]) == [7.0, 9.0] and list(found.programs["priority"]) == [2, 0]
    assert (metrics(found)["program_slowdown[a]"], metrics(found)["slowdown[a2]"]) == (1.0, 7.0 / 4.0)


def saved(path: Path, of: Trace) -> str:
    of.model_copy(update={"device": "h200"}).save(path)
    return str(path)


def replayed(argv: list[str], capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert cli.main(["replay", *argv, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["results"]
    return rows


def test_two_modules_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    merged = str(tmp_path / "both.json.gz")
    assert cli.main(["trace", "merge", MODULE, str(ROOT / "traces" / "inception_3a.json.gz"), "-o", merged]) == 0
    capsys.readouterr()
    argv = ["--policy", "leftover", "--policy", "inter-sm:by=program", "--restart"]
    rows = replayed([merged, *argv], capsys)
    for row in rows:
        assert list(row["programs"]) == ["inception_4a", "inception_3a"]
        assert all(one["slowdown"] >= 1.0 - 1e-9 for one in row["programs"].values())
        assert 0.0 < row["stp"] <= 2.0 and row["antt"] >= 1.0 and 0.0 < row["fairness"] <= 1.0
        assert row["programs"]["inception_3a"].keys() == {"start_us", "end_us", "slowdown", "streams"}
    found = gpusim.replay(merged, policy="leftover", restart=True)
    assert found.passes is not None and set(found.passes) == {"inception_4a", "inception_3a"}
    assert {row["policy"]: row["stp"] for row in rows}["leftover"] == found.metrics["stp"]


@pytest.mark.usefixtures("no_pictures")
def test_tables_show_programs_where_they_say_more_than_streams(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(
        tmp_path / "two.json", programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(host("b1", 9.0),))
    )
    argv = ["replay", path, "--policy", "leftover", "--restart", "--details=programs", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "2 programs, 3 streams" in lines[1]
    assert "Start and end of each program, µs, and its slowdown" in lines
    rows = (tmp_path / "out" / "leftover" / "programs.csv").read_text().splitlines()
    assert rows[0] == "program,priority,release_us,start_us,end_us,solo_us,slowdown" and len(rows) == 3
    assert [row.split(",")[0] for row in (tmp_path / "out" / "leftover" / "restart.csv").read_text().splitlines()] == [
        "program",
        "a",
        "b",
    ]
    assert cli.main(["replay", str(ROOT / "traces" / "inception_3a.json.gz"), "--policy", "leftover"]) == 0
    assert "each program" not in capsys.readouterr().out


def test_timeline_and_page_name_programs(tmp_path: Path) -> None:
    two = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(host("b1", 9.0),))
    path, timeline, page = saved(tmp_path / "two.json", two), tmp_path / "two.pt.json", tmp_path / "two.html"
    assert cli.main(["replay", path, "--policy", "leftover", "--timeline", str(timeline)]) == 0
    events = json.loads(timeline.read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"a: a1", "a: a2", "b: b1"} <= tracks
    assert cli.main(["report", path, "--policy", "leftover", "-o", str(page)]) == 0
    assert '"streams":["a: a1","a: a2","b: b1"],"programs":["a","b"]' in page.read_text()


def test_streams_that_share_a_part_were_not_measured() -> None:
    """a's kernels leave room for each other on its 60 SMs, and both have a block on each of them."""
    a = (kernel("a1", 60, 110.0, threads=256), kernel("a2", 60, 110.0, threads=256))
    of = programs(a=a, b=(kernel("b1", 400, 110.0),))
    found = replay(of.model_copy(update={"device": "h200"}), "h200", "inter-sm:by=program,sms=60+72")
    assert experiment_of(found) == ("", "several streams of a program on the same SMs")
    apart = programs(a=(kernel("a1", 400, 110.0),), b=(kernel("b1", 400, 110.0),))
    found = replay(apart.model_copy(update={"device": "h200"}), "h200", "inter-sm:by=program,sms=60+72")
    assert experiment_of(found) == ("green", "")


# ---- settings from the command line


def test_priorities_and_arrivals_of_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Requests of 7 us that arrive every 10 us end after 7; at 20,000 requests a second they wait for one another."""
    path = saved(tmp_path / "two.json", programs(a=(host("a1", 3.0), host("a2", 4.0, "a1")), b=(host("b1", 9.0),)))
    (row,) = replayed([path, "--policy", "leftover", "--arrivals", "a=every:10"], capsys)
    assert row["programs"]["a"]["end_us"] == pytest.approx(997.0)
    (row,) = replayed([path, "--policy", "leftover", "--arrivals", "a=poisson:20000"], capsys)
    assert row["programs"]["a"]["end_us"] > 997.0 and row["programs"]["b"]["end_us"] == 9.0
    assert cli.main(["replay", path, "--policy", "leftover", "--arrivals", "a=every:10"]) == 0
    assert "Latency of requests, µs: p50 / p95 / p99" in capsys.readouterr().out
    several = ["--policy", "leftover", "--policy", "serial", "--arrivals", "a=every:10"]
    assert cli.main(["replay", path, *several]) == 0
    assert "All have the same 95th percentile of latency for a; " in capsys.readouterr().out
    long = saved(tmp_path / "long.json", programs(a=(kernel("a1", 1, 5.0),), b=(kernel("b1", 1, 900.0),)))
    assert cli.main(["replay", long, *several]) == 0
    assert "Plain streams (leftover) have the lowest 95th percentile of latency for" in capsys.readouterr().out
    urgent = saved(
        tmp_path / "urgent.json",
        programs(a=(kernel("a1", 4000, 400.0),), b=(kernel("b1", 4000, 400.0), kernel("b2", 4000, 400.0))),
    )
    (usual,) = replayed([urgent, "--policy", "leftover"], capsys)
    (other,) = replayed([urgent, "--policy", "leftover", "--priority", "b=1"], capsys)
    assert other["programs"]["b"]["end_us"] < usual["programs"]["b"]["end_us"]
    assert usual["programs"]["a"]["end_us"] < other["programs"]["a"]["end_us"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--priority", "c=1"], "--priority: names program 'c'; expected one of a, b"),
        (["--arrivals", "c=every:5"], "--arrivals: names program 'c'; expected one of a, b"),
        (["--priority", "a"], "argument --priority: is 'a'; expected PROGRAM=a whole number from 0 to 1000"),
        (["--priority", "a=-1"], "argument --priority: is 'a=-1'; expected PROGRAM=a whole number from 0 to 1000"),
        (
            ["--arrivals", "a=often"],
            "argument --arrivals: is 'a=often'; expected PROGRAM=every:TIME (in us, or such as",
        ),
        (
            ["--arrivals", "a=every:0"],
            "argument --arrivals: is 'a=every:0'; expected PROGRAM=every:TIME (in us, or such as 5ms), poisson:PER_S",
        ),
        (
            ["--arrivals", "a=poisson:1e12"],
            "argument --arrivals: rate_per_s: is 1000000000000.0; expected a number of at most 1000000000 (1/s)",
        ),
        (["--priority", "a=1", "--priority", "a=2"], "--priority: names a program twice; expected each program once"),
        (["--arrivals", "a=every:5", "--restart"], "--arrivals: is given with --restart; expected one of them"),
        (["--policy", "quota:by=program,blocks=c:1"], "policy quota: blocks names program 'c'; expected one of a, b"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(
    options: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path / "two.json", programs(a=(host("a1", 3.0), host("a2", 4.0)), b=(host("b1", 9.0),)))
    with pytest.raises(SystemExit) if expected.startswith("argument") else nullcontext():
        assert cli.main(["replay", path, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert expected in captured.err
