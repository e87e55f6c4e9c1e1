"""Oracles: nothing static is better, and how far others are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import examples, traces
from tiny import kernel, played, stream, tiny
from tiny import trace as by_hand

from gpusim import InputError, load_gpu, load_trace
from gpusim import replay as replay_any
from gpusim.common.progress import estimated
from gpusim.policies.oracles import OracleInterSM
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.independent import waits_across_streams

TRACES = Path(__file__).resolve().parent.parent / "traces"
H200 = load_gpu("h200")
SMALL = replace(H200, name="small", sm_count=8)  # 4 TPCs: three splits of two streams
SESSION = Session(SMALL, H200)


def distance(result: Result, best: Result, objective: str = "makespan") -> float:
    """How far a replay is from its oracle's: 0.1: a tenth longer, or a tenth less STP; below 0: better."""
    if objective == "stp":
        return best.metrics["stp"] / result.metrics["stp"] - 1.0
    return result.makespan_us / best.makespan_us - 1.0 if best.makespan_us > 0.0 else 0.0


def test_the_best_split_by_hand() -> None:
    """8 blocks of 10 us beside 2: on 4 SMs 3 + 1 take 31 and 21 us, all other splits longer."""
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    best = played("oracle-inter-sm", *streams)
    assert best.makespan_us == 31.0
    assert best.policy == "oracle-inter-sm"
    assert best.notes == (
        "best of 7 replays (all divisions) by makespan: inter-sm",  # 2 + 2 takes as long: b leaves at 11
    )
    held = {f"{n}+{4 - n}": played(f"inter-sm:sms={n}+{4 - n}", *streams).makespan_us for n in (1, 2, 3)}
    assert held == {"1+3": 81.0, "2+2": 41.0, "3+1": 31.0}


def test_the_best_quota_by_hand() -> None:
    """Blocks of 256 threads, four on an SM: of 16 quotas, each twice, and even."""
    streams = (stream("a", kernel("a", 64, 41.0, threads=256)), stream("b", kernel("b", 16, 11.0, threads=256)))
    best = played("oracle-intra-sm", *streams)
    assert best.notes[0].startswith("best of 33 replays (all divisions) by makespan: ")
    for a in range(1, 5):
        for b in range(1, 5):
            assert played(f"quota:blocks=a:{a}+b:{b}", *streams).makespan_us >= best.makespan_us


def test_the_only_division_is_tried() -> None:
    """One block of each fits on an SM: 4 + 4 blocks of 20 us side by side, where a split of the SMs takes two waves."""
    streams = (stream("a", kernel("a", 4, 21.0, threads=1024)), stream("b", kernel("b", 4, 21.0, threads=1024)))
    found = played("oracle-intra-sm", *streams)
    assert found.notes[-1].startswith("best of 3 replays (all divisions) by makespan: ")
    assert found.makespan_us <= played("quota:blocks=a:1+b:1", *streams).makespan_us


SPLITS = ["inter-sm", "inter-sm:dynamic=false", "inter-sm:granularity=4"] + [
    f"inter-sm:sms={n}+{8 - n}{dynamic}" for n in (2, 4, 6) for dynamic in ("", ",dynamic=true")
]


@examples(8)
@given(trace=traces(max_streams=2, max_operations=4), objective=st.sampled_from(["makespan", "stp"]))
def test_no_static_split_beats_the_oracle(trace: Trace, objective: str) -> None:
    solo = SESSION.isolated_us(trace)
    restart = objective == "stp"
    if restart:
        assume(not waits_across_streams(trace) and all(s.arrivals is None and solo[s.name] for s in trace.streams))
    oracle = f"oracle-inter-sm:objective={objective}"
    best = SESSION.replay(trace, oracle, restart=restart)
    for text in SPLITS if len(trace.streams) == 2 else SPLITS[:1]:
        result = SESSION.replay(trace, text, restart=restart)
        assert distance(result, best, objective) >= -1e-12


@examples(6)
@given(trace=traces(max_streams=2, max_operations=3), data=st.data())
def test_no_static_quota_beats_the_oracle(trace: Trace, data: st.DataObject) -> None:
    best = SESSION.replay(trace, "oracle-intra-sm")
    names = [s.name for s in trace.streams]
    for _ in range(5):
        quotas = "+".join(f"{name}:{data.draw(st.integers(1, 32))}" for name in names)
        release = data.draw(st.sampled_from(["", ",release=true"]))
        result = SESSION.replay(trace, f"quota:blocks={quotas}{release}")
        assert distance(result, best) >= -1e-12
    assert distance(SESSION.replay(trace, "even"), best) >= -1e-12


@pytest.mark.parametrize("oracle", ["oracle-inter-sm", "oracle-intra-sm"])
def test_three_streams_are_searched_from_the_even_split(oracle: str) -> None:
    trace = load_trace(TRACES / "inception_5a.json.gz")
    session = Session(H200)
    best = session.replay(trace, f"{oracle}:replays=25")
    assert best.notes[-1].startswith("best of 25 replays (a local search) by makespan: ")
    even = "inter-sm" if oracle == "oracle-inter-sm" else "even"
    assert distance(session.replay(trace, even), best) >= 0.0


def test_a_search_ends_where_no_move_is_better() -> None:
    streams = [stream(name, kernel(name, 4, 11.0)) for name in "abc"]
    best = played("oracle-inter-sm", *streams, gpu=tiny(6))
    assert best.makespan_us == 21.0 and "(a local search)" in best.notes[0]


def test_the_step_of_a_split_is_a_tpc_unless_asked() -> None:
    streams = (stream("a", kernel("a", 8, 11.0)), stream("b", kernel("b", 8, 11.0)))
    gpu = replace(tiny(8), sms_per_tpc=2)
    assert played("oracle-inter-sm", *streams, gpu=gpu).notes[0].startswith("best of 7 ")
    assert played("oracle-inter-sm:step=1", *streams, gpu=gpu).notes[0].startswith("best of 15 ")
    assert played("oracle-inter-sm:step=5", *streams, gpu=gpu).notes[0].startswith("best of 1 ")


def test_more_streams_than_steps_leave_the_even_split() -> None:
    streams = [stream(name, kernel(name, 1, 11.0)) for name in "abc"]
    assert played("oracle-inter-sm", *streams, gpu=tiny(2)).notes[-1].endswith(": inter-sm")


def test_distance() -> None:
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    best, worse = played("oracle-inter-sm", *streams), played("inter-sm:sms=1+3", *streams)
    assert distance(best, best) == 0.0
    assert distance(worse, best) == pytest.approx(81.0 / 31.0 - 1.0)
    made, oracle = by_hand(*streams), "oracle-inter-sm:objective=stp"
    best, worse = (replay_any(made, tiny(), policy, restart=True) for policy in (oracle, "inter-sm:sms=1+3"))
    assert distance(worse, best, "stp") == pytest.approx(best.metrics["stp"] / worse.metrics["stp"] - 1.0)


def test_the_largest_stp_is_of_streams_that_restart() -> None:
    """Of all splits that of 2 + 2: a runs at half its pace, b, which has two blocks, at its own."""
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    made = by_hand(*streams)
    best = replay_any(made, tiny(), "oracle-inter-sm:objective=stp", restart=True)
    splits = [f"inter-sm:sms={n}+{4 - n}" for n in (1, 2, 3)]
    stp = {split: replay_any(made, tiny(), split, restart=True).metrics["stp"] for split in splits}
    assert max(stp, key=lambda split: stp[split]) == "inter-sm:sms=2+2"
    assert best.metrics["stp"] == max(stp.values())
    assert best.notes[0].startswith("best of 7 replays (all divisions) by stp: ")
    once = replay_any(made, tiny(), "oracle-inter-sm:objective=stp")
    assert once.division == best.division and once.passes is None


def test_a_single_replay_is_no_search() -> None:
    trace, gpu = by_hand(stream("a", kernel("a", 1, 11.0))), tiny()
    with pytest.raises(InputError, match=r"^policy oracle-inter-sm: is a search"):
        OracleInterSM().prepare(gpu, ["a"])
    assert replay_any(trace, gpu, OracleInterSM()).makespan_us == 11.0


@pytest.mark.parametrize("text", ["oracle-inter-sm:objective=x", "oracle-inter-sm:step=0", "oracle-intra-sm:replays=0"])
def test_wrong_parameters_are_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^policy oracle-.*; expected "):
        played(text, stream("a", kernel("a", 1, 11.0)))


@pytest.mark.parametrize("oracle", ["oracle-inter-sm", "oracle-inter-sm:objective=stp", "oracle-intra-sm:replays=20"])
def test_all_cores_find_what_one_finds(oracle: str, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [stream(name, kernel(name, blocks, 11.0)) for name, blocks in (("a", 9), ("b", 3), ("c", 5))]
    made = by_hand(*streams[: 2 if "inter" in oracle else 3])
    one = Session(tiny(6)).replay(made, oracle)
    monkeypatch.setattr("gpusim.session.MANY_KERNELS", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert Session(tiny(6)).replay(made, oracle) == one


def test_a_search_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.common.progress.SHOWN_EVERY_S", 0.0)
    told: list[str] = []
    with estimated(told.append, "searching"):
        played("oracle-inter-sm", stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    shares = [int(text.split()[1].rstrip("%,")) for text in told[1:]]
    assert shares[:7] == [round(100 * n / 7) for n in range(1, 8)], "once for each of seven replays"
