"""What each SM held over time: noted when asked for, and nothing else changes by it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from strategies import traces
from tiny import kernel, stream, tiny, trace

import gpusim
from gpusim.common.errors import InputError
from gpusim.results.result import Result
from gpusim.results.runs import USES, Held
from gpusim.trace.format import Trace

MODULE = Path(__file__).parents[1] / "traces" / "inception_3a.json.gz"


def held(of: Trace, policy: str = "serial", sms: int = 2) -> tuple[Held, ...]:
    residents = gpusim.replay(of, tiny(sms), policy, keep=["residents"]).residents
    assert residents is not None
    return tuple(tuple((round(at, 6), mix) for at, mix in one) for one in residents)


def test_by_hand() -> None:
    """A block fills an SM; 3 of 4 us on two SMs, then 1 of 5 us, each a microsecond after it became ready."""
    of = trace(stream("one", kernel("a", 3, 9.0), kernel("b", 1, 6.0)))
    assert held(of) == (
        ((1.0, ((0, 1),)), (9.0, ()), (10.0, ((1, 1),)), (15.0, ())),
        ((1.0, ((0, 1),)), (5.0, ())),
    )


def test_two_kernels_on_one_sm() -> None:
    of = trace(
        stream("one", kernel("a", 2, 9.0, threads=256)),
        stream("two", kernel("b", 1, 9.0, threads=256)),
    )
    (only,) = held(of, "leftover", sms=1)
    assert only[0] == (1.0, ((0, 2), (1, 1)))
    assert only[-1][1] == ()


def test_a_slot_that_changes_hands_is_the_launch_that_has_it() -> None:
    """More launches than the GPU takes at once, one after the other on one SM."""
    of = trace(stream("one", *(kernel(f"k{i}", 1, 2.0) for i in range(200))))
    (only,) = held(of, sms=1)
    assert [mix for _, mix in only if mix] == [((i, 1),) for i in range(200)]


def require_sound(result: Result, block_slots: int) -> None:
    """It is where the placements are, begins and ends with nothing, and adds up to the block slots in use."""
    assert result.residents is not None
    spans = {(p.sm, p.run): (p.start_us, p.end_us) for p in result.placements}
    seen: dict[tuple[int, int], tuple[float, float]] = {}
    block_us = 0.0
    for sm, changes in enumerate(result.residents):
        for (at, mix), (until, _) in pairwise(changes):
            assert until > at
            for run, blocks in mix:
                first = seen.get((sm, run), (at, until))[0]
                seen[sm, run] = (first, until)
                block_us += blocks * (until - at)
        assert not changes or changes[-1][1] == ()
    assert seen == spans
    used = result.usage.totals()[USES.index("block_slots")] * result.usage.bin_us * block_slots
    assert block_us == pytest.approx(used, rel=1e-6)


@pytest.mark.parametrize("policy", ["serial", "leftover", "inter-sm", "smk", "warped-slicer"])
def test_of_a_module_and_nothing_else_changes(policy: str) -> None:
    of, gpu = gpusim.load_trace(MODULE), gpusim.load_gpu("h200")
    result = gpusim.replay(of, gpu, policy, keep=["residents"])
    require_sound(result, gpu.limits.max_blocks_per_sm)
    assert replace(result, residents=None) == gpusim.replay(of, gpu, policy)


@settings(max_examples=15, deadline=None)
@given(traces())
def test_of_any_trace(of: Trace) -> None:
    gpu = gpusim.load_gpu(of.device)
    try:
        result = gpusim.replay(of, gpu, "leftover", keep=["residents"])
    except InputError:
        return
    require_sound(result, gpu.limits.max_blocks_per_sm)
