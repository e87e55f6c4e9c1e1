"""How kernels mix on an SM: the rules against a simulation of one scheduler, and what they promise."""

from __future__ import annotations

from functools import cache
from itertools import product
from statistics import fmean

import pytest
from cores import is_compiled
from hypothesis import given
from hypothesis import strategies as st

from gpusim.engine import core as used_core
from gpusim.model import contention
from gpusim.model.mixing import Use, blocked_slots, burst_length, progress
from tests.scheduler_oracle import Class, OracleKernel, issued, use_of

CHAIN = (Class(1.0, 4),)  # each instruction waits for the one before
PARALLEL = (Class(0.95, 1), Class(0.05, 4))  # a warp that can issue in nearly every cycle
COPY = (Class(0.8, 6, 1), Class(0.2, 400, 1))
HALF_RATE = (Class(1.0, 4, 1, 2),)
QUARTER_RATE = (Class(0.5, 4, 2, 4), Class(0.5, 4))
KERNELS = (
    OracleKernel(1, CHAIN),
    OracleKernel(4, CHAIN),
    OracleKernel(1, PARALLEL),
    OracleKernel(4, PARALLEL),
    OracleKernel(8, COPY),
    OracleKernel(4, HALF_RATE),
    OracleKernel(4, QUARTER_RATE),
)
MOST_OFF = 0.12  # of its own speed, that the rules are off on the mean over all pairs

shares = st.floats(0.01, 1.0)
uses = st.builds(
    Use,
    issue=shares,
    pipes=st.tuples(shares, st.just(0.0) | shares),
    operands=st.just(0.0) | st.floats(0.0, 0.5),
    path=st.floats(0.0, 1.0),
    visit=st.floats(0.5, 32.0),
    cycles=st.floats(1.0, 500.0),
    burst=st.floats(1.0, 30.0),
    together=st.floats(0.0, 1.0),
    warps=st.integers(1, 16),
    slowest_counts=st.booleans(),
)


@cache
def issued_alone(kernel: OracleKernel) -> int:
    return issued([kernel])[0]


def oracle_progress(older: OracleKernel, younger: OracleKernel) -> list[float]:
    both = issued([older, younger])
    return [got / issued_alone(kernel) for got, kernel in zip(both, (older, younger), strict=True)]


def test_the_rules_follow_a_scheduler_simulated_warp_by_warp() -> None:
    off, used = [], {kernel: use_of(kernel) for kernel in KERNELS}
    for older, younger in product(KERNELS, repeat=2):
        predicted = progress([used[older], used[younger]])
        off += [abs(a - b) for a, b in zip(predicted, oracle_progress(older, younger), strict=True)]
    assert fmean(off) < MOST_OFF


@pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here")
@given(st.lists(uses, min_size=1, max_size=5))
def test_compiled_kernels_mix_as_plain_ones_to_the_bit(mix: list[Use]) -> None:
    assert contention.progress is used_core.progress is not progress
    assert used_core.progress(mix) == progress(mix)


def test_an_older_kernel_that_fills_the_slots_starves_a_copy() -> None:
    older, younger = progress([use_of(KERNELS[3]), use_of(KERNELS[4])])
    assert oracle_progress(KERNELS[3], KERNELS[4])[1] < 0.05
    assert older > 0.9
    assert younger < 0.4


def test_a_warp_that_can_go_on_issuing_goes_on_though_another_is_older() -> None:
    chain, parallel = progress([use_of(KERNELS[0]), use_of(KERNELS[2])])
    assert oracle_progress(KERNELS[0], KERNELS[2]) == pytest.approx([chain, parallel], abs=0.1)
    assert chain < 0.3


def test_warps_that_hardly_stall_keep_the_scheduler_among_them() -> None:
    copy = Use(issue=0.1, pipes=(), cycles=86.0, burst=1.1, warps=8.0)
    one, two, busier = (
        Use(issue=u, pipes=(), cycles=w, burst=30.0, warps=w) for u, w in ((0.8, 1), (0.8, 2), (0.9, 2))
    )
    assert progress([copy, one])[0] > 0.75
    assert progress([copy, two])[0] < 0.25
    assert progress([busier, two])[0] > 0.5  # of their own kind they are no worse than others


def test_kernels_that_saturate_nothing_together_do_not_slow_one_another() -> None:
    """One warp that waits for memory is not waiting for the scheduler."""
    assert progress([Use(0.05, (0.0,), cycles=100.0), Use(0.05, (0.0,), cycles=100.0)]) == pytest.approx(
        [1.0, 1.0], abs=0.01
    )


def test_the_younger_gets_the_pipe_that_the_older_leaves() -> None:
    assert progress([Use(0.1, (0.75,)), Use(0.1, (1.0,))]) == pytest.approx([1.0, 0.25], abs=0.01)


def test_a_request_of_the_data_path_waits_for_half_of_the_one_in_service() -> None:
    """Where the other kernel's requests take longer, the wait is longer."""
    alike = progress([Use(0.1, (), path=0.2), Use(0.1, (), path=0.2)])
    longer = progress([Use(0.1, (), path=0.2, visit=1.0), Use(0.1, (), path=0.2, visit=3.0)])
    assert longer[0] < alike[0] < 1.0
    assert longer[1] > alike[1]


def test_an_overloaded_data_path_slows_all_alike() -> None:
    assert progress([Use(0.1, (), path=1.0), Use(0.1, (), path=1.0)]) == pytest.approx([0.5, 0.5], abs=0.03)


def test_tensor_instructions_block_the_issue_slots_while_they_read_operands() -> None:
    mma = Use(0.3, (0.0,), operands=blocked_slots(0.3, 0.9), cycles=10.0)
    assert mma.operands == pytest.approx(0.6)
    tensor, other = progress([mma, Use(0.5, (0.0,), cycles=5.0)])
    assert tensor < 0.8
    assert other < 0.9


def test_bursts_are_as_long_as_stalls_are_rare() -> None:
    assert [burst_length(wait) for wait in (0.0, 6.0, 1.5, 0.01)] == [1.0, 1.0, 2.0, 30.0]


@given(use=uses)
def test_a_kernel_alone_progresses_as_it_does(use: Use) -> None:
    assert progress([use]) == [1.0]


@given(mix=st.lists(uses, min_size=2, max_size=4))
def test_no_resource_is_busier_than_it_can_be(mix: list[Use]) -> None:
    got = progress(mix)
    assert all(0.0 < one <= 1.0 for one in got)
    for column in zip(*[(use.issue, *use.pipes, use.path) for use in mix], strict=True):
        assert sum(use * one for use, one in zip(column, got, strict=True)) <= 1.0 + 1e-9
