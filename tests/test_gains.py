"""Where a gain comes from: each part alone, by hand, and that the parts add up to what was saved."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples, traces
from tiny import host, kernel, stream, tiny, trace, used

from gpusim import load_gpu, replay
from gpusim.hardware.gpu import GPU
from gpusim.results.gains import PARTS, gain_us, sm_time
from gpusim.results.intervals import Times, common, union
from gpusim.results.result import Result
from gpusim.results.runs import KernelRun, Placements
from gpusim.trace.format import Trace
from gpusim.trace.operations import Stream

H200 = load_gpu("h200")
NOTHING = dict.fromkeys(PARTS, 0.0)
Held = tuple[str, int, float, float]  # stream, SM, from when until when


def gained(policy: str, *streams: Stream, gpu: GPU) -> dict[str, float]:
    """The parts that are not 0, to a picosecond."""
    made = trace(*streams)
    found = gain_us(sm_time(replay(made, gpu, "serial")), sm_time(replay(made, gpu, policy)))
    assert found is not None and list(found) == list(PARTS)
    return {part: round(us, 6) for part, us in found.items() if abs(us) > 1e-6}


def made(makespan_us: float, sms: int, *held: Held, dispatched: dict[str, float] | None = None) -> Result:
    """A result of one kernel a stream, each with the blocks that are given."""
    names = sorted({name for name, *_ in held})
    rows = {name: [(sm, start, end) for other, sm, start, end in held if other == name] for name in names}
    runs = []
    for name in names:
        start, end = min(start for _, start, _ in rows[name]), max(end for *_, end in rows[name])
        last = (dispatched or {}).get(name, start)
        runs.append(KernelRun(name, name, 0, "k", 0, 1, 0.0, start, last, end, 1.0, "issue", 0.0, 0.0))
    spans = [
        (at, ([sm for sm, *_ in rows[n]], [1] * len(rows[n]), [s for _, s, _ in rows[n]], [e for *_, e in rows[n]]))
        for at, n in enumerate(names)
    ]
    usage = used(makespan_us, (((0.0,) * 7,),) * sms)
    return Result("t", "g", "p", makespan_us, tuple(runs), (), (), (), Placements(spans), usage)  # type: ignore[arg-type]


# ---- each part alone ------------------------------------------------------------------------------------------------


def test_only_a_launch_gap_is_hidden() -> None:
    """Both fill all four SMs for 10 us; the second launch's 1 us passes while the first kernel runs."""
    streams = (stream("a", kernel("a", 4, 11.0)), stream("b", kernel("b", 4, 11.0)))
    assert gained("leftover", *streams, gpu=tiny()) == {"gaps": 1.0}


def test_only_tails_are_filled() -> None:
    """Each kernel needs two of four SMs for 10 us: serial leaves half the GPU idle for 20 us."""
    streams = (stream("a", kernel("a", 2, 10.0)), stream("b", kernel("b", 2, 10.0)))
    assert gained("leftover", *streams, gpu=tiny(latency_us=0.0)) == {"tails": 10.0}


def test_only_waiting_is_lost() -> None:
    """Serial: a 10 us on two SMs, b 20 us on four. Split in halves b takes 40 us, of which until 30 it has blocks to
    place, while a's two SMs stand idle from 10 on: 20 us of half the GPU."""
    streams = (stream("a", kernel("a", 2, 10.0)), stream("b", kernel("b", 8, 20.0)))
    assert gained("inter-sm:sms=2+2", *streams, gpu=tiny(latency_us=0.0)) == {"waiting": -10.0}


def test_only_sharing_an_sm_gains() -> None:
    """One SM, two kernels of a block each: what they save is the latency that each hides of the other."""
    gpu = tiny(1, latency_us=0.0)
    streams = (stream("a", kernel("a", 1, 10.0, threads=512)), stream("b", kernel("b", 1, 10.0, threads=512)))
    together = replay(trace(*streams), gpu, "leftover").makespan_us
    assert 10.0 < together < 20.0
    assert gained("leftover", *streams, gpu=gpu) == {"sharing": round(20.0 - together, 6)}


def test_only_contention_on_an_sm_loses() -> None:
    """Together they hold the one SM for 25 us, where one after the other took 20."""
    serial = made(20.0, 1, ("a", 0, 0.0, 10.0), ("b", 0, 10.0, 20.0))
    shared = made(25.0, 1, ("a", 0, 0.0, 25.0), ("b", 0, 0.0, 24.0))
    assert gain_us(sm_time(serial), sm_time(shared)) == NOTHING | {"sharing": -5.0}


def test_only_contention_between_sms_loses() -> None:
    """Side by side on SMs of their own both take 14 us, not 10: what tails gained is more than what DRAM took."""
    serial = made(20.0, 2, ("a", 0, 0.0, 10.0), ("b", 1, 10.0, 20.0))
    beside = made(14.0, 2, ("a", 0, 0.0, 14.0), ("b", 1, 0.0, 14.0))
    assert gain_us(sm_time(serial), sm_time(beside)) == NOTHING | {"tails": 10.0, "rate": -4.0}


def test_kernels_that_share_and_kernels_that_do_not_are_told_apart() -> None:
    """a and b share SM 0, c has SM 1 to itself: of the mean over two SMs the pair saves 4 and c loses 1."""
    serial = made(30.0, 2, ("a", 0, 0.0, 10.0), ("b", 0, 10.0, 20.0), ("c", 1, 20.0, 30.0))
    shared = made(12.0, 2, ("a", 0, 0.0, 12.0), ("b", 0, 0.0, 12.0), ("c", 1, 0.0, 12.0))
    assert gain_us(sm_time(serial), sm_time(shared)) == NOTHING | {"tails": 15.0, "sharing": 4.0, "rate": -1.0}


def test_an_idle_sm_waits_only_while_a_kernel_that_started_has_blocks_to_place() -> None:
    found = sm_time(made(10.0, 2, ("a", 0, 2.0, 10.0), dispatched={"a": 8.0}))
    assert found is not None
    assert (found.gaps_us, found.waiting_us, found.tails_us, found.busy_us) == (2.0, 3.0, 1.0, 4.0)


# ---- adding up ------------------------------------------------------------------------------------------------------


def test_serial_gains_nothing_over_itself() -> None:
    streams = (stream("a", kernel("a", 6, 21.0), host("h", 3.0)), stream("b", kernel("b", 9, 31.0)))
    assert gained("serial", *streams, gpu=tiny()) == {}


POLICIES = ("leftover", "inter-sm", "inter-sm:dynamic=false", "even", "warped-slicer", "smk", "reef", "maestro")


@examples(40)
@given(made=traces(max_streams=4, max_operations=6, with_arrivals=True), policy=st.sampled_from(POLICIES))
def test_parts_add_up_to_what_was_saved(made: Trace, policy: str) -> None:
    serial, result = replay(made, H200, "serial"), replay(made, H200, policy)
    parts = gain_us(sm_time(serial), sm_time(result))
    assert parts is not None
    saved = serial.makespan_us - result.makespan_us
    assert math.fsum(parts.values()) == pytest.approx(saved, rel=1e-9, abs=1e-9 * serial.makespan_us)


@examples(40)
@given(made=traces(max_streams=4, max_operations=6), policy=st.sampled_from(("serial", *POLICIES)))
def test_no_state_takes_less_than_no_time(made: Trace, policy: str) -> None:
    result = replay(made, H200, policy)
    found = sm_time(result)
    assert found is not None
    assert min(found.gaps_us, found.tails_us, found.waiting_us, found.busy_us) >= -1e-9 * (result.makespan_us + 1.0)


def test_without_placements_it_is_not_known() -> None:
    made, gpu = trace(stream("a", kernel("a", 4, 11.0))), tiny()
    bare = sm_time(replay(made, gpu, keep=()))
    assert bare is None
    assert gain_us(sm_time(replay(made, gpu)), bare) is None


def test_a_trace_without_kernels_is_all_gaps() -> None:
    found = sm_time(replay(trace(stream("a", host("h", 5.0))), tiny()))
    assert found is not None
    assert (found.gaps_us, found.tails_us, found.waiting_us, found.busy_us) == (5.0, 0.0, 0.0, 0.0)


PIECES = st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(0, 11), st.integers(0, 4)).map(
    lambda piece: (piece[0], piece[1], float(piece[2]), float(piece[2] + piece[3]))
)


@examples(300)
@given(
    held=st.lists(PIECES, min_size=1, max_size=8),
    placing=st.fixed_dictionaries(dict.fromkeys("abcd", st.integers(0, 5))),
)
def test_the_states_of_all_sms_unit_by_unit(held: list[Held], placing: dict[str, int]) -> None:
    """What each SM does in each unit of time, and who shares, by looking."""
    begin = {name: min(start for other, _, start, _ in held if other == name) for name, *_ in held}
    dispatched = {name: start + placing[name] for name, start in begin.items()}
    found = sm_time(made(16.0, 3, *held, dispatched=dispatched))
    assert found is not None
    states = {"gaps": 0, "tails": 0, "waiting": 0, "busy": 0}
    sharing = set()
    for at in range(16):
        on = [{name for name, other, start, end in held if other == sm and start <= at < end} for sm in range(3)]
        some = any(at in range(int(begin[name]), int(dispatched[name])) for name in begin)
        idle = "gaps" if not any(on) else "waiting" if some else "tails"
        for names in on:
            states["busy" if names else idle] += 1
            sharing |= names if len(names) > 1 else set()
    thirds = [found.gaps_us, found.tails_us, found.waiting_us, found.busy_us]
    assert [3 * us for us in thirds] == pytest.approx(list(states.values()))
    assert {stream for stream, *_ in found.sharing} == sharing
    some_launches = frozenset((name, name, 0, 0) for name in "ab")
    busy = {(sm, at) for name, sm, start, end in held if name in "ab" for at in range(int(start), int(end))}
    assert 3 * found.busy_with_us(some_launches) == pytest.approx(len(busy))


# ---- intervals ------------------------------------------------------------------------------------------------------


def test_what_intervals_cover() -> None:
    def intervals(*pairs: tuple[float, float]) -> Times:
        return np.array(pairs).T

    covered = union(intervals((3.0, 4.0), (0.0, 2.0), (1.0, 2.5), (2.5, 2.75), (5.0, 5.0)))
    assert covered.T.tolist() == [[0.0, 2.75], [3.0, 4.0]]
    found = common(intervals((0.0, 3.0), (4.0, 6.0)), intervals((1.0, 2.0), (2.5, 5.0)))
    assert found.T.tolist() == [[1.0, 2.0], [2.5, 3.0], [4.0, 5.0]]
