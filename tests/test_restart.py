"""Streams that restart: hand-computed passes, closed forms, and what is refused."""

from __future__ import annotations

import json
import pickle
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from tiny import convolution, copy, host, kernel, launch, stream, tiny, trace

from gpusim import InputError, Trace, cli, load_gpu, load_trace, replay
from gpusim.common import progress
from gpusim.engine.replay import Starved
from gpusim.policies.interface import Grant, Partition, Policy, View
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.operations import Kernel, LoopArrivals, Stream, TimesArrivals

ROOT = Path(__file__).resolve().parent.parent
MODULE = ROOT / "traces" / "inception_3a.json.gz"


def restarted(policy: str | Policy, *streams: Stream, sms: int = 4) -> Result:
    return replay(trace(*streams), tiny(sms), policy, restart=True)


# ---- what a pass under way counts for


def test_a_pass_counts_by_the_blocks_it_has_done() -> None:
    """Four SMs, one block each; a kernel starts 1 us after it is ready.

    a: 8 blocks of 10 us, at 1 and 11, ends at 21. b: 2 blocks, 21 to 31, the end. a again: ready at 21, its blocks
    at 22 on the two SMs left; at 31 two of eight have done 9 of 10 us: 1.8 / 8 = 0.225. Alone 21 and 11 us.
    """
    found = restarted("leftover", stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    assert found.makespan_us == 31.0
    assert found.passes == pytest.approx({"a": 1.225, "b": 1.0})
    progress = {"a": 1.225 * 21 / 31, "b": 11 / 31}
    assert found.metrics["progress[a]"] == pytest.approx(progress["a"])
    assert found.metrics["stp"] == pytest.approx(progress["a"] + progress["b"])
    assert found.metrics["antt"] == pytest.approx((1 / progress["a"] + 1 / progress["b"]) / 2)
    assert found.metrics["fairness"] == pytest.approx(progress["b"] / progress["a"])


def test_a_pass_under_way_may_count_for_more_than_its_time() -> None:
    """a: four blocks of five by 11 us, the fifth by 21; b, on the host alone, ends at 32, a's fourth block of pass two.

    Nothing slows either; a has done 1.8 passes in the time of 1.52.
    """
    found = restarted("leftover", stream("a", kernel("a", 5, 21.0)), stream("b", host("b", 32.0)))
    assert found.makespan_us == 32.0
    assert found.passes == pytest.approx({"a": 1.8, "b": 1.0})
    assert found.metrics["progress[a]"] == pytest.approx(1.8 * 21 / 32)


def test_programs_may_restart_until_each_has_ended_twice() -> None:
    """On SMs of their own a takes 11 us a pass and b 6; at 22 b has ended three times and done 3 of 5 us of a block."""
    streams = stream("a", kernel("a", 2, 11.0)), stream("b", kernel("b", 2, 6.0))
    session = Session(tiny())
    once, twice = (session.replay(trace(*streams), "inter-sm:sms=2+2", restart=n) for n in (True, 2))
    assert (once.makespan_us, twice.makespan_us) == (11.0, 22.0)
    assert once.passes == pytest.approx({"a": 1.0, "b": 1.8})
    assert twice.passes == pytest.approx({"a": 2.0, "b": 3.6})
    assert [run.end_us for run in twice.stream_runs] == [11.0, 6.0]


def test_only_a_session_counts_how_often_programs_end() -> None:
    """A comparison restarts them once: a number there would be taken for True."""
    made = trace(stream("a", kernel("a", 2, 11.0)), stream("b", kernel("b", 2, 6.0)))
    for call in (
        lambda: Session(tiny()).compare(made, ["leftover"], restart=2),  # type: ignore[arg-type]
        lambda: replay(made, tiny(), "leftover", restart=2),  # type: ignore[arg-type]
    ):
        with pytest.raises(InputError, match=r"^restart: is 2; expected True or False$"):
            call()


def test_two_kernels_that_fill_the_gpu_gain_only_at_the_tail() -> None:
    """41 blocks on four SMs: ten waves and one block, then the other on three SMs, at 101.

    The second is placed at 201 with its last two blocks, and the first, which has waited since 112, gets two SMs for
    10 us: 2 / 41 of a pass. By the time since its release, 99 of at least 109 us, it would be nearly one.
    """
    found = restarted("leftover", *(stream(name, kernel(name, 41, 111.0)) for name in "ab"))
    assert found.makespan_us == 211.0
    assert found.passes == pytest.approx({"a": 1 + 2 / 41, "b": 1.0})
    assert found.metrics["stp"] == pytest.approx((2 + 2 / 41) * 111 / 211)


def test_two_recorded_kernels_that_fill_the_gpu() -> None:
    operation = load_trace(ROOT / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz").streams[0].operations[0]
    streams = (Stream(name=n, operations=(Kernel(id=n, kind="kernel", kernel=operation.launches()[0]),)) for n in "ab")
    made = Trace(version=1, name="made", device="h200", streams=tuple(streams))
    found = replay(made, load_gpu("h200"), "leftover", restart=True).metrics
    assert 1.0 <= found["stp"] <= 1.05


def test_kernels_of_a_pass_weigh_what_they_take_alone() -> None:
    """A pass of b is kernels of 5 and 15 us; at 30, 10 us into the second pass, 4 of 14 us of the last are done."""
    found = restarted(
        "leftover", stream("b", kernel("b0", 1, 5.0), kernel("b1", 4, 15.0)), stream("c", host("c", 30.0))
    )
    assert found.makespan_us == 30.0
    assert found.passes == pytest.approx({"b": 1 + (5 + 15 * 4 / 14) / 20, "c": 1.0})


def test_copies_and_host_work_count_by_time_and_waiting_for_an_engine_does_not() -> None:
    """One copy engine: a has it until 10, b until 16; a's second copy waits until then. c ends at 18, its host work.

    a has then copied 2 of 10 us for the second time; b, whose pass is a copy of 6 and 4 on the host, has done 2 of 4
    on the host in its first pass, and ends the workload at 20.
    """
    found = restarted(
        "leftover",
        stream("a", copy("a", 10.0)),
        stream("b", copy("b0", 6.0), host("b1", 4.0)),
        stream("c", host("c", 18.0)),
    )
    assert found.makespan_us == 20.0
    assert found.passes == pytest.approx({"a": 1.4, "b": 1.0, "c": 1 + 2 / 18})


def test_a_copy_that_is_over_counts_in_the_pass_under_way() -> None:
    """a: copy of 4 and host work of 6; at 17 it is 3 us into the host work of its second pass: 7 of 10 us."""
    found = restarted("leftover", stream("a", copy("a0", 4.0), host("a1", 6.0)), stream("b", host("b", 17.0)))
    assert found.passes == pytest.approx({"a": 1.7, "b": 1.0})


def test_kernels_on_streams_of_a_library_weigh_what_they_take_alone() -> None:
    """5 us, then 5 and 9 beside each other; at 24, 10 us into the second pass, the last has run 4 of its 8 us."""
    fft = convolution("fft", [launch(1, 5.0), launch(1, 5.0, "internal0"), launch(1, 9.0, "internal1")])
    found = restarted("leftover", stream("a", fft), stream("b", host("b", 24.0)))
    assert found.stream_runs[0].end_us == 14.0
    assert found.passes == pytest.approx({"a": 1 + (5 + 5 + 9 * 4 / 8) / 19, "b": 1.0})


# ---- closed forms


@pytest.mark.parametrize("lengths", [(21.0,), (21.0, 11.0), (41.0, 11.0, 5.0), (5.0, 5.0, 5.0, 5.0)])
def test_taking_turns_has_stp_1(lengths: tuple[float, ...]) -> None:
    """Each stream runs once while all together take the sum: progress of solo / sum each, which adds up to 1."""
    streams = [stream(f"s{n}", kernel(f"k{n}", 4, us), kernel(f"l{n}", 2, us)) for n, us in enumerate(lengths)]
    found = restarted("serial", *streams)
    assert found.makespan_us == pytest.approx(2 * sum(lengths))
    assert found.passes == pytest.approx(dict.fromkeys((s.name for s in streams), 1.0))
    assert found.metrics["stp"] == pytest.approx(1.0)
    assert found.metrics["fairness"] == pytest.approx(min(lengths) / max(lengths))
    assert found.metrics["antt"] == pytest.approx(sum(sum(lengths) / us for us in lengths) / len(lengths))


def test_requests_take_turns_in_the_order_of_their_release() -> None:
    """Kernels of 11 us. The second request of a comes at 20, behind both kernels of b's only request."""
    requests = TimesArrivals(times_us=(0.0, 20.0))
    first = stream("a", kernel("a", 4, 11.0)).model_copy(update={"arrivals": requests})
    of = trace(first, stream("b", kernel("b", 4, 11.0), kernel("c", 4, 11.0)))
    ends = sorted((run.end_us, run.operation) for run in replay(of, tiny(4), "serial").kernel_runs)
    assert ends == [(11.0, "a"), (22.0, "b"), (33.0, "c"), (44.0, "a")]


def test_a_recorded_module_taking_turns_has_stp_1() -> None:
    assert replay(load_trace(MODULE), load_gpu("h200"), "serial", restart=True).metrics["stp"] == pytest.approx(1.0)


@examples(20)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(2, 40)), min_size=1, max_size=3))
def test_bounds_whatever_the_kernels(kernels: list[tuple[int, int]]) -> None:
    """Blocks that fill an SM each: nobody is faster than alone, and each stream has ended once."""
    streams = [stream(f"s{n}", kernel(f"k{n}", blocks, float(us))) for n, (blocks, us) in enumerate(kernels)]
    for policy in ("serial", "leftover", "inter-sm", "even"):
        found = restarted(policy, *streams)
        assert found.passes is not None and min(found.passes.values()) >= 1.0 - 1e-12
        stp, antt = found.metrics["stp"], found.metrics["antt"]
        assert stp <= len(streams) * (1 + 1e-9) and antt >= 1.0 - 1e-9
        assert stp * antt >= len(streams) * (1 - 1e-9)
        assert 0.0 < found.metrics["fairness"] <= 1.0
        assert max(run.end_us for run in found.stream_runs) == pytest.approx(found.makespan_us)


def test_the_same_whichever_stream_comes_first() -> None:
    streams = [stream("a", kernel("a", 12, 31.0)), stream("b", kernel("b", 3, 9.0))]
    one, other = restarted("inter-sm", *streams), restarted("inter-sm", *streams[::-1])
    assert one.passes == pytest.approx(other.passes) and one.makespan_us == other.makespan_us


def test_a_stream_alone_is_as_fast_as_alone() -> None:
    found = restarted("even", stream("a", kernel("a", 8, 21.0)))
    assert (found.makespan_us, found.passes) == (21.0, {"a": 1.0})
    assert [found.metrics[name] for name in ("stp", "antt", "fairness")] == [1.0, 1.0, 1.0]


def test_streams_that_share_a_channel_restart() -> None:
    """Nine streams and eight channels: the host queues a pass when the one before has ended."""
    streams = [stream(f"s{n}", kernel(f"k{n}", 1, 5.0 + n)) for n in range(9)]
    found = restarted("leftover", *streams)
    assert found.passes is not None and all(count >= 1.0 for count in found.passes.values())


# ---- the result


def test_what_a_result_of_streams_that_restart_holds() -> None:
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    found = restarted("inter-sm", *streams)  # b on two SMs ends at 11, 22, 33; a ends at 41, the end
    assert [(run.stream, run.end_us, run.solo_us) for run in found.stream_runs] == [
        ("a", 41.0, 21.0),
        ("b", 11.0, 11.0),
    ]
    assert [(run.operation, run.request, run.end_us) for run in found.kernel_runs] == [
        ("a", 0, 41.0),
        ("b", 0, 11.0),
        ("b", 1, 22.0),
        ("b", 2, 33.0),
    ]
    assert found.passes == pytest.approx({"a": 1.0, "b": 3.7})
    assert sum(placed.blocks for placed in found.placements) == sum(run.blocks for run in found.kernel_runs)
    assert not any(name.startswith(("latency", "slowdown", "speedup")) for name in found.metrics)


def test_a_result_of_streams_that_run_once_has_speedup_and_slowdowns_instead() -> None:
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    once = replay(trace(*streams), tiny(), "leftover")
    assert once.passes is None and once.makespan_us == 31.0
    assert once.metrics["speedup"] == 32.0 / 31.0
    assert (once.metrics["slowdown[a]"], once.metrics["slowdown[b]"]) == (1.0, 31.0 / 11.0)
    assert list(once.streams["slowdown"]) == [1.0, 31.0 / 11.0]
    assert not {"stp", "antt", "fairness", "progress[a]"} & set(once.metrics)
    again: Result = pickle.loads(pickle.dumps(once))
    assert again == once and again.metrics == once.metrics


# ---- what cannot restart


def test_streams_that_depend_on_one_another_are_one_program() -> None:
    """What waits for what is in tests/test_programs_replayed.py; here that nobody is refused."""
    streams = (stream("a", kernel("a", 1, 5.0)), stream("b", kernel("b", 1, 5.0), kernel("c", 1, 5.0, "a")))
    for policy in ("leftover", "oracle-inter-sm", "oracle-inter-sm:objective=stp"):
        assert restarted(policy, *streams).passes == {"a": 1.0}
    inside = stream("b", kernel("b", 1, 5.0), kernel("c", 1, 5.0, "b"))
    assert set(restarted("leftover", streams[0], inside).passes or ()) == {"a", "b"}


def test_streams_with_arrivals_or_without_work_cannot_restart() -> None:
    loop = stream("a", kernel("a", 1, 5.0), arrivals=LoopArrivals(kind="loop", count=2))
    with pytest.raises(InputError, match=r"^streams\[0\].arrivals: is given"):
        restarted("leftover", loop)
    with pytest.raises(InputError, match=r"^streams\[1\]: takes 0 us in isolation"):
        restarted("leftover", stream("a", kernel("a", 1, 5.0)), stream("b"))
    with pytest.raises(InputError, match=r"^streams\[1\]: takes 1e-06 us in isolation; expected over a 1,000,000th"):
        restarted("leftover", stream("a", host("a", 5.0)), stream("b", host("b", 1e-6)))


class OnlyA(Policy):
    """Runs nobody but one stream."""

    name = "only-a"
    summary = "b waits"

    def partition(self, view: View) -> Partition:
        return Partition(tuple(Grant(kernel.id) for kernel in view.kernels if kernel.stream == "a"))


def test_a_stream_that_starves_is_told() -> None:
    streams = (stream("a", kernel("a", 4, 5.0)), stream("b", kernel("b", 4, 5.0)))
    with pytest.raises(Starved, match=r"^policy .*: streams b did not end once in 80 us while the others restart"):
        restarted(OnlyA(), *streams)


def test_a_stream_with_one_sm_of_many_does_not_starve() -> None:
    """a has one SM of 64: 1 us of launch latency, then its blocks of 4 us one after another."""
    gpu = tiny(sm_count=64)
    streams = (stream("a", kernel("a", 64, 5.0)), stream("b", kernel("b", 64, 5.0)))
    result = replay(trace(*streams), gpu, "inter-sm:sms=1+63", restart=True)
    assert result.makespan_us == pytest.approx(1.0 + 64 * 4.0)


# ---- on the command line


def test_replay_restart(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["replay", str(MODULE), "--policy", "serial", "--policy", "leftover", "--policy", "inter-sm"]
    assert cli.main([*argv, "--restart", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["results"]
    assert cli.main([*argv, "--json"]) == 0
    once = {row["policy"]: row for row in json.loads(capsys.readouterr().out)["results"]}
    assert [row["stp"] for row in rows] == sorted((row["stp"] for row in rows), reverse=True)
    for row in rows:
        found = replay(load_trace(MODULE), load_gpu("h200"), row["policy"], restart=True).metrics
        sharing = {name: row[name] for name in ("stp", "antt", "fairness")}
        assert sharing == {name: found[name] for name in sharing}
        assert once[row["policy"]] == row | dict.fromkeys(sharing)  # all else is of streams that run once
    assert cli.main([*argv, "--restart"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split() == ["policy", "makespan", "µs", "speedup", "STP", "ANTT", "fairness", "model", "error"]
    assert any(line.startswith("Plain streams (leftover) have the highest STP, 1.") for line in lines)
    assert next(line for line in lines if line.startswith("serial")).split()[3] == "1.000"


def test_a_network_is_one_program_that_restarts(capsys: pytest.CaptureFixture[str]) -> None:
    network = str(ROOT / "traces" / "googlenet_forward.json.gz")
    assert cli.main(["replay", network, "--policy", "leftover", "--restart", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["results"]
    assert [row[name] for name in ("stp", "antt", "fairness")] == pytest.approx([1.0, 1.0, 1.0])


def test_dependent_streams_get_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dependent.json"
    made = trace(stream("a", kernel("a", 1, 5.0)), stream("b", kernel("b", 1, 5.0, "a")), device="h200")
    path.write_text(made.model_dump_json(exclude_none=True))
    assert cli.main(["replay", str(path), "--policy", "leftover"]) == 0
    note = "note: streams wait for each other, and their slowdowns include these waits"
    assert note in " ".join(capsys.readouterr().out.splitlines())


@pytest.mark.usefixtures("no_pictures")
def test_a_policy_under_which_a_stream_starves_has_no_stp(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs b when a is done, which is never where a restarts."""
    (tmp_path / "first.py").write_text(
        "from gpusim.policies.interface import Grant, Partition, Policy\n\n\n"
        "class First(Policy):\n    name = 'first'\n    summary = 'a first'\n\n"
        "    def partition(self, view):\n"
        "        line = [k for k in view.kernels if k.stream == view.streams[0]]\n"
        "        return Partition(tuple(Grant(k.id) for k in line))\n"
    )
    path = tmp_path / "two.json"
    made = trace(stream("a", kernel("a", 1, 9.0)), stream("b", kernel("b", 1, 9.0)), device="h200")
    path.write_text(made.model_dump_json(exclude_none=True))
    policy = f"{tmp_path / 'first.py'}:First"
    argv = ["replay", str(path), "--policy", policy, "--policy", "leftover", "--restart"]
    assert cli.main([*argv, "--json", "--out", str(tmp_path / "out")]) == 0
    best, starved = json.loads(capsys.readouterr().out)["results"]
    assert best["policy"] == "leftover" and best["stp"] > 1.0
    assert starved["policy"] == policy and starved["makespan_us"] > 0.0
    assert (starved["stp"], starved["antt"], starved["fairness"]) == (None, None, None)
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert rows[1]["notes"][0].startswith("no STP: streams b did not end once in ")
    passes = (tmp_path / "out" / rows[0]["folder"] / "restart.csv").read_text().splitlines()
    assert passes[0] == "program,until_us,passes,normalised_progress" and len(passes) == 3
    assert not (tmp_path / "out" / rows[1]["folder"] / "restart.csv").exists()


def test_the_time_left_is_estimated_while_streams_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three operations are to end once; a clock that goes on by 10 s whenever it is asked."""
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=partial(next, count(0.0, 10.0))))
    of = trace(stream("a", kernel("a", 8, 21.0), kernel("b", 8, 21.0)), stream("b", kernel("c", 2, 11.0)))
    told: list[str] = []
    with progress.estimated(told.append, "replaying"):
        replay(of, tiny(4), "serial", restart=True)
    assert told == [
        "replaying",
        "replaying: 33%, about 20 s left",
        "replaying: 67%, about 10 s left",
        "replaying: 100%, about 0 s left",
    ]
    assert progress.watcher() is None
