"""Programs with requests: latencies, targets, and what the others do meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from advised import advised, by_mechanism, two
from tiny import kernel, stream, tiny

import gpusim.choose.advise as advise_module
from gpusim import InputError, Program, Trace, cli, load_gpu
from gpusim.choose import serving
from gpusim.choose.advice_page import print_advice
from gpusim.choose.advise import OBJECTIVES, Objective
from gpusim.choose.serving import _half_width as half_width
from gpusim.choose.settings import Setting, settings
from gpusim.commands.arguments import REQUESTS, arrivals
from gpusim.results.error_band import ErrorBand, HowWrong
from gpusim.session import Session
from gpusim.trace.edit import with_settings_of
from gpusim.trace.operations import LoopArrivals, PoissonArrivals, TimesArrivals


def test_the_first_requests_are_left_out_and_percentiles_given() -> None:
    """Twenty requests, of which the first two meet one another; both belong to the warm-up."""
    times = [0.0, 0.0, *(100.0 * i for i in range(1, 19))]
    (streams,) = by_mechanism(advised(two(arrivals=TimesArrivals(times_us=times))))["streams"]
    assert streams.percentiles_us["a"] == pytest.approx({50: 10.0, 95: 10.0, 99: 10.0})
    assert streams.slowdown["a"] == pytest.approx(1.0) and streams.antt == pytest.approx(1.0)
    assert streams.interval_us == {}, "nothing random"


def test_random_arrivals_have_a_confidence_interval() -> None:
    arrivals = PoissonArrivals(rate_per_s=20_000.0, count=25, seed=0)
    ways = [one for one in settings(tiny(), ["a", "b"]) if one.mechanism in ("in turn", "streams")]
    advice = advised(two(4, 4, arrivals=arrivals), ways=ways)
    assert advice.objective == "antt"
    for one in advice.choices:
        assert one.interval_us["a"] > 0.0
        assert one.latency_us["a"] == one.percentiles_us["a"][95]
    assert advice == advised(two(4, 4, arrivals=arrivals), ways=ways), "the seeds are the same"


def test_arrivals_of_other_seeds_are_worked_out_once_for_all_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Trace] = []
    monkeypatch.setattr(advise_module, "other_seeds", lambda trace: made.append(trace) or iter([trace, trace]))
    ways = [Setting("streams", f"way {n}", "leftover") for n in range(3)]
    advice = advised(two(arrivals=PoissonArrivals(rate_per_s=20_000.0, count=5, seed=0)), ways=ways)
    assert len(advice.choices) == 3 and len(made) == 3, "as estimated, and as the two extremes of uncounted kernels"
    assert advice.best.interval_us == {"a": 0.0}, "all three seeds are one here"


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("of", [{}, {"arrivals": TimesArrivals(times_us=[0.0, 30.0])}])
def test_the_cost_of_a_setting_is_that_of_its_choice(objective: Objective, of: dict[str, Any]) -> None:
    trace, session = two(first_blocks=3, second_blocks=4, second_us=25.0, **of), Session(tiny())
    shared = advise_module._Shared(trace, session, advise_module.isolated_us(trace, session), ("a",))
    for way in settings(session.gpu, ["a", "b"]):
        cost = advise_module._cost(objective, {"compute-bound": shared}, ("compute-bound", way))
        assert cost == advise_module._choice(shared, way).cost(objective), way


def test_half_of_an_interval_is_students() -> None:
    """Of 1, 2 and 3: deviation 1, 4.303 over the root of 3."""
    assert half_width([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5)


def test_targets_are_said_to_be_held_or_missed(capsys: pytest.CaptureFixture[str]) -> None:
    times = [20.0 * i for i in range(20)]
    print_advice(advised(two(arrivals=TimesArrivals(times_us=times)), targets=["a=12us"]))
    said = capsys.readouterr().out
    assert "a: p50 10.0 µs, p95 10.0 µs, p99 10.0 µs" in said and "target a=12us: held, at 83 % of it" in said
    assert "b: no arrivals, so it restarts until the last request arrives" in said and "b: p50" not in said
    assert "Best first by throughput of b\n" in said and "STP" not in said


def test_a_target_within_the_model_error_is_said_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    """10 us are 83 % of 12 us: a model that is 20 % off may be wrong there, and one that is 10 % off is not."""
    advice = advised(two(arrivals=TimesArrivals(times_us=[20.0 * i for i in range(20)])), targets=["a=12us"])
    for percent, doubted in ((20.0, True), (10.0, False)):
        band = HowWrong(ErrorBand("streams", percent), "", "on h200")
        print_advice(replace(advice, best=replace(advice.best, how_wrong=band)))
        words = (
            "held, at 83 % of it, closer than the error of makespans (±20.0 %): measure it, or set a stricter target"
        )
        assert (words in capsys.readouterr().out) == doubted


def test_a_program_without_arrivals_restarts_until_the_last_request_arrives() -> None:
    """Both fit on the GPU together: b is not slowed in streams. In turn it waits for half of each 20 us."""
    advice = advised(two(arrivals=TimesArrivals(times_us=[20.0 * i for i in range(20)])), targets=["a=x3"])
    by = by_mechanism(advice)
    (streams,), (in_turn,) = by["streams"], by["in turn"]
    assert advice.objective == "throughput" and advice.free == ("b",)
    assert (streams.throughput, streams.slowdown["b"]) == pytest.approx((1.0, 1.0))
    assert in_turn.throughput == pytest.approx(0.5, abs=0.05)
    assert streams.makespan_us == pytest.approx(390.0), "of the requests"


def test_a_closed_loop_beside_a_program_that_runs_once() -> None:
    """Both fit on the GPU together: neither is slowed in streams, and there are no percentiles."""
    (streams,) = by_mechanism(advised(two(arrivals=LoopArrivals(count=5))))["streams"]
    assert streams.slowdown == pytest.approx({"a": 1.0, "b": 1.0}) and streams.percentiles_us == {}


def test_a_setting_that_serves_all_requests_comes_before_one_whose_queue_grows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    advice = advised(two(arrivals=TimesArrivals(times_us=[40.0 * i for i in range(20)])), targets=["b=x9"])
    assert advice.objective == "throughput"
    first, *others = advice.choices
    grown = replace(first, growth={"a": 2.0}, throughput=2.0)
    again = advise_module._advice(advice.trace, advice.gpu, "throughput", advice.targets, [grown, *others], "")
    assert grown.counted("throughput") < again.best.counted("throughput")
    assert again.best.serves and again.choices.index(grown) > again.choices.index(again.best)
    assert not again.ties(grown)
    print_advice(again)
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "queue grows" in line)
    assert first.setting.setting in line
    grown_all = [replace(one, growth={"a": 2.0}) for one in advice.choices]
    assert not advise_module._advice(advice.trace, advice.gpu, "throughput", (), grown_all, "").best.serves


LOOPS = 400  # passes of b, longer than a time slice


def beside_loop(times_us: Sequence[float]) -> Trace:
    """Requests of a beside b, which loops; each takes 10 us alone."""
    trace = two(4, 4, arrivals=TimesArrivals(times_us=times_us))
    return with_settings_of(trace, {"b": {"arrivals": LoopArrivals(count=LOOPS)}}, "arrivals")


@pytest.mark.parametrize("policy", ["leftover", "serial", "inter-sm:by=program,sms=2+2", "time-slicing", "mps"])
@pytest.mark.parametrize("times_us", [[0.0, 115.0, 230.0], [50.0, 100.0], [0.0, 1.0, 2.0], [7.0, 1_000.0]])
def test_passes_between_requests_are_counted_as_those_that_were_replayed(
    policy: str, times_us: Sequence[float]
) -> None:
    """The first two passes of b that a does not disturb are replayed, and later ones take as long."""
    trace, session = beside_loop(times_us), Session(tiny())
    whole, counted = (session.replay(trace, policy, only_disturbed=only) for only in (False, True))
    assert counted.request_runs == whole.request_runs and counted.makespan_us == whole.makespan_us
    assert len(counted.kernel_runs) < len(whole.kernel_runs) == LOOPS + len(times_us)


def test_loops_beside_one_another_and_programs_of_several_streams_are_replayed_in_full() -> None:
    """So are programs that restart."""
    session, loops = Session(tiny()), {"arrivals": LoopArrivals(count=20)}
    both = with_settings_of(two(), {"a": loops, "b": loops}, "arrivals")
    streams = [stream(name, kernel(f"k{name}", 2, 10.0)) for name in ("b1", "b2")]
    programs = [
        Program(name="a", streams=[stream("a", kernel("ka", 4, 10.0))], arrivals=TimesArrivals(times_us=[300.0])),
        Program(name="b", streams=streams, arrivals=LoopArrivals(count=20)),
    ]
    several = Trace(name="several", device="tiny", programs=programs)
    for trace, kernels in ((both, 40), (several, 41)):
        assert len(session.replay(trace, only_disturbed=True).kernel_runs) == kernels
    restarted = [session.replay(two(), restart=4, only_disturbed=only).passes for only in (False, True)]
    assert restarted[0] == restarted[1]


@pytest.mark.parametrize(
    ("streams", "loops", "expected"),
    [
        (1, False, 2 * 2),  # of each request and its pass; counted in between
        (2, False, 2 * 1001),  # kernels of 1,001 passes
        (1, True, 1001),
    ],
)
def test_only_passes_of_one_program_of_one_stream_are_expected_to_be_counted(
    streams: int, loops: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two requests of 5 us, 10 ms apart, beside a program of 10 us: each meets 2 x 5/10 + 1 of its passes."""
    of_b = [stream(f"b{n}", kernel(f"k{n}", 2, 10.0)) for n in range(streams)]
    programs = [
        Program(
            name="a", streams=[stream("a", kernel("ka", 4, 5.0))], arrivals=TimesArrivals(times_us=[0.0, 10_000.0])
        ),
        Program(name="b", streams=of_b),
        *[Program(name="c", streams=[stream("c", kernel("kc", 2, 10.0))], arrivals=LoopArrivals(count=9))] * loops,
    ]
    trace = Trace(name="three", device="tiny", programs=programs)
    alone_us = {"a": 5.0, "b": 10.0, "c": 10.0}
    for most, restarts in ((expected, True), (expected - 1, False)):
        monkeypatch.setattr(serving, "MOST_BESIDE", most)
        assert (serving.restarting(trace, alone_us) is not trace) == restarts


def test_too_many_kernels_do_not_restart_beside_arrivals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MOST_BESIDE", 18)  # 19 passes of b until the last request of a arrives
    trace = two(arrivals=TimesArrivals(times_us=[20.0 * i for i in range(10)]))
    advice = advised(trace, targets=["a=x3"])
    assert advice.objective == "antt" and advice.best.throughput is None
    with pytest.raises(InputError, match="throughput is for programs that restart"):
        advised(trace, objective="throughput")


@pytest.mark.parametrize(("bound", "limits"), [("dram", True), ("latency", False)])
def test_a_resource_that_both_need_most_limits_the_gain_and_waiting_does_not(
    bound: str, limits: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    advice = advised(two())
    best = replace(advice.best, bound_us={"a": {bound: 5.0}, "b": {bound: 3.0, "l2": 1.0}})
    print_advice(replace(advice, best=best))
    assert ("both need DRAM most" in capsys.readouterr().out) == limits


def test_each_marker_of_the_table_is_explained_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    print_advice(advised(two()))
    table, legend = capsys.readouterr().out.split("\nmodel error: ")
    assert all(marker in table for marker in ("?", "pareto", "recommended"))
    assert "  ?: not validated, because of: nothing measured on tiny" in legend
    assert "; pareto: no other" in legend


def test_profile_ids_of_mig_are_to_be_compared() -> None:
    found = [one.paste[0] for one in settings(load_gpu("h200"), ["a", "b"]) if one.mechanism == "MIG"]
    assert found and all("-C  # compare the ids with nvidia-smi mig -lgip" in line for line in found)


@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("0\n5\n7.5\n", (0.0, 5.0, 7.5)),
        ("time_ms\n0\n1.5\n", (0.0, 1500.0)),
        ("id,time_s\na,0\nb,0.25\n", (0.0, 250_000.0)),
    ],
)
def test_arrivals_of_a_file(text: str, times: tuple[float, ...], tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    assert arrivals(str(tmp_path / "t.csv")).requests.times_us == pytest.approx(times)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no times"),
        ("0\nsoon\n", "line 2: is 'soon'; expected a time, us"),
        ("0\n\nsoon\n", "line 3: is 'soon'"),
        ("5\n3\n", "line 2: is 3, before 5; expected times from 0 that ascend"),
        ("-1\n", "line 1: is -1, before 0"),
        ("time_ms\n", "has 0 requests"),
        ("0,5000,10000\n", "line 1: has 3 values; expected one time on each line, us, or a first line with time_us"),
        ("1,5000\n2,9000\n", "line 1: has 2 values"),
        ("time_us,time_ms\n1,2\n", "line 1: has time_us and time_ms; expected one column of times"),
        ("1e300\n", "is 1e\\+300; expected a number of at most"),
    ],
)
def test_a_file_of_other_things_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        arrivals(str(tmp_path / "t.csv"))
    assert str(caught.value).startswith(f"{tmp_path / 't.csv'}: ")


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["advise", "a.json", "b.json", "--arrivals", "a=nowhere.csv"])
    err = capsys.readouterr().err
    assert "nowhere.csv: cannot be read" in err and "invalid" not in err and err.count("\n") == 1


def test_arrivals_every_so_often() -> None:
    seconds = [arrivals(text).requests for text in ("every:5ms", "every:300", "every:2us")]
    assert [one.times_us[1] for one in seconds if isinstance(one, TimesArrivals)] == [5000.0, 300.0, 2.0]
    assert arrivals("poisson:12").requests == PoissonArrivals(rate_per_s=12.0, count=REQUESTS, seed=0)
