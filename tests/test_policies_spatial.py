"""SM splits: the counts of each rule by hand and by brute force, which SMs they are, and what they do to replays."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import traces
from tiny import convolution, host, kernel, launch, played, run_of, spans, stream, times, tiny
from views import kernel as kernel_view
from views import view_of

from gpusim import InputError, load_gpu
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Partition, View
from gpusim.policies.registry import policy_from
from gpusim.policies.spatial import (
    InterSM,
    best_sum_counts,
    even_counts,
    fewest_units,
    layout,
    proportional_counts,
    rounds_counts,
    smart_even_counts,
    waves,
)
from gpusim.session import Session
from gpusim.trace.format import Trace

H200 = load_gpu("h200")
SESSION = Session(H200, H200)

# ---- how many SMs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("units", "streams", "counts"),
    [(132, 2, [66, 66]), (132, 5, [27, 27, 26, 26, 26]), (15, 2, [8, 7]), (3, 3, [1, 1, 1])],
)
def test_even(units: int, streams: int, counts: list[int]) -> None:
    assert even_counts(units, streams) == counts


@pytest.mark.parametrize(
    ("units", "useful", "counts"),
    [
        (10, [1, 20, 20], [1, 5, 4]),  # what the first cannot fill goes to the others
        (12, [2, 3, 100], [2, 3, 7]),
        (12, [5, 2, 100], [5, 2, 5]),  # the second's surplus is enough for the first to be full
        (12, [1, 2, 3], [3, 4, 5]),  # all are full: the rest is spread
        (12, [50, 50], [6, 6]),
    ],
)
def test_smart_even(units: int, useful: list[int], counts: list[int]) -> None:
    assert smart_even_counts(units, useful) == counts


@given(st.lists(st.integers(1, 200), min_size=1, max_size=8), st.integers(8, 132))
def test_smart_even_leaves_nobody_hungry_while_another_has_too_much(useful: list[int], units: int) -> None:
    counts = smart_even_counts(units, useful)
    assert sum(counts) == units and min(counts) >= 1
    if sum(useful) >= units:
        assert all(count <= most for count, most in zip(counts, useful, strict=True))
    else:
        assert all(count >= most for count, most in zip(counts, useful, strict=True))


@pytest.mark.parametrize(
    ("units", "work", "counts"),
    [
        (4, [[(8, 1)], [(2, 1)]], [3, 1]),  # 3 waves; two would take 4 + 1 SMs
        (4, [[(4, 1), (4, 1)], [(2, 1)]], [3, 1]),  # 4 waves take 2 + 1; the fourth SM goes to the first
        (132, [[(264, 2)], [(132, 1)]], [66, 66]),  # 2 waves each
        (10, [[(1, 1)], [(1, 1)]], [5, 5]),
    ],
)
def test_rounds(units: int, work: list[list[tuple[int, int]]], counts: list[int]) -> None:
    assert rounds_counts(units, work) == counts


Work = list[list[tuple[int, int]]]
WORK: st.SearchStrategy[Work] = st.lists(
    st.lists(st.tuples(st.integers(1, 500), st.integers(1, 16)), min_size=1, max_size=3), min_size=1, max_size=3
)


@given(WORK, st.integers(3, 12))
def test_rounds_reach_the_fewest_waves_there_are(work: Work, units: int) -> None:
    counts = rounds_counts(units, work)
    assert sum(counts) == units and min(counts) >= 1
    every = [c for c in product(range(1, units + 1), repeat=len(work)) if sum(c) <= units]
    best = min(max(waves(n, each) for n, each in zip(c, work, strict=True)) for c in every)
    assert max(waves(n, each) for n, each in zip(counts, work, strict=True)) == best


@given(st.integers(1, 60), st.lists(st.tuples(st.integers(1, 500), st.integers(1, 16)), min_size=1, max_size=3))
def test_fewest_units_is_the_least_that_suffices(most: int, kernels: list[tuple[int, int]]) -> None:
    found = fewest_units(most, kernels, 40)
    assert found == next((n for n in range(1, 41) if waves(n, kernels) <= most), 41)


@given(st.integers(1, 4), st.integers(4, 12), st.randoms(use_true_random=False))
def test_the_best_sum_is_the_best_over_all_splits(streams: int, units: int, random: Any) -> None:
    progress = [[random.random() for _ in range(units)] for _ in range(streams)]
    counts = best_sum_counts(units, progress)

    def total(split: Sequence[int]) -> float:
        return sum(values[n - 1] for values, n in zip(progress, split, strict=True))

    assert sum(counts) == units and min(counts) >= 1
    every = [split for split in product(range(1, units + 1), repeat=streams) if sum(split) == units]
    assert total(counts) == pytest.approx(max(total(split) for split in every), rel=1e-12)


@pytest.mark.parametrize(
    ("units", "weights", "counts"),
    [(10, [1, 1], [5, 5]), (4, [1, 1, 100], [1, 1, 2]), (132, [64, 68], [64, 68]), (7, [3, 3], [4, 3])],
)
def test_proportional(units: int, weights: list[int], counts: list[int]) -> None:
    assert proportional_counts(units, weights) == counts


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=8), st.integers(8, 132))
def test_proportional_hands_out_all(weights: list[int], units: int) -> None:
    counts = proportional_counts(units, weights)
    assert sum(counts) == units and min(counts) >= 1


# ---- which SMs ------------------------------------------------------------------------------------------------------


def test_the_first_layout_is_contiguous() -> None:
    assert layout({0: 3, 1: 2, 4: 1}, {}, 8) == {0: (0, 1, 2), 1: (3, 4), 4: (5,)}


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1, max_size=6))
def test_as_few_sms_as_can_be_change_hands(steps: list[list[int]]) -> None:
    held: dict[int, tuple[int, ...]] = {}
    for counts in steps:
        wanted = {tenant: count for tenant, count in enumerate(counts) if count}
        laid = layout(wanted, held, 20)
        assert {tenant: len(mine) for tenant, mine in laid.items()} == wanted
        owned = [sm for mine in laid.values() for sm in mine]
        assert len(owned) == len(set(owned))
        for tenant, mine in laid.items():
            before = held.get(tenant, ())
            assert len(set(mine) & set(before)) >= min(len(before), len(mine))
        held = laid


class Watched(InterSM):
    """An SM split that checks every decision it makes."""

    def partition(self, view: View) -> Partition:
        partition = super().partition(view)
        owned: dict[int, frozenset[int]] = {}
        index = {kernel.id: kernel.stream_index for kernel in view.kernels}
        for grant in partition.grants:
            assert grant.sms is not None
            assert owned.setdefault(index[grant.kernel], grant.sms) == grant.sms
        union: set[int] = set().union(*owned.values())
        assert len(union) == sum(len(mine) for mine in owned.values())  # disjoint
        if self._fixed is None:
            assert union == set(range(view.gpu.sm_count))  # and all of them
        return partition


@settings(max_examples=25)
@given(
    trace=traces(max_streams=8),
    rule=st.sampled_from(["even", "smart-even", "rounds", "profile"]),
    granularity=st.sampled_from([1, 2, 8, 50]),
)
def test_partitions_are_disjoint_and_cover_the_gpu(trace: Trace, rule: str, granularity: int) -> None:
    policy = Watched(rule=rule, granularity=granularity)
    result = SESSION.replay(trace, policy)
    assert len(result.operation_runs) == sum(len(s.operations) for s in trace.streams)


# ---- replays by hand: 4 SMs, one block of 1024 threads each, launch latency 1 us -------------------------------------


def test_an_even_split_halves_the_gpu() -> None:
    result = played("inter-sm", stream("a", kernel("a", 4, 11.0)), stream("b", kernel("b", 4, 11.0)))
    assert times(result) == {"a": (0.0, 21.0), "b": (0.0, 21.0)}
    assert {sm for sm, *_ in spans(result, "a")} == {0, 1}
    assert {sm for sm, *_ in spans(result, "b")} == {2, 3}


def test_shares_are_made_anew_when_a_stream_leaves() -> None:
    streams = (stream("a", kernel("a", 2, 11.0)), stream("b", kernel("b", 8, 21.0)))
    # b: 2 blocks at 1, all four SMs from 11: 4 blocks to 21, 2 to 31
    assert times(played("inter-sm", *streams))["b"] == (0.0, 31.0)
    assert times(played("inter-sm:dynamic=false", *streams))["b"] == (0.0, 41.0)
    assert times(played("inter-sm:sms=2+2", *streams))["b"] == (0.0, 41.0)
    assert times(played("inter-sm:sms=2+2,dynamic=true", *streams))["b"] == (0.0, 31.0)


def test_an_explicit_split_is_kept() -> None:
    result = played("inter-sm:sms=3+1", stream("a", kernel("a", 6, 21.0)), stream("b", kernel("b", 4, 11.0)))
    assert times(result) == {"a": (0.0, 21.0), "b": (0.0, 41.0)}
    assert {sm for sm, *_ in spans(result, "a")} == {0, 1, 2}


def test_an_sm_that_changes_hands_drains_first() -> None:
    """Blocks of 256 threads would fit beside one another; b still waits for the blocks of a on its SMs."""
    streams = (
        stream("a", kernel("a", 4, 101.0, threads=256)),
        stream("b", host("wait", 30.0), kernel("b", 2, 11.0, threads=256)),
    )
    assert run_of(played("inter-sm", *streams), "b").start_us == pytest.approx(101.0)
    assert run_of(played("leftover", *streams), "b").start_us == 31.0


def test_a_stream_beyond_the_sms_waits() -> None:
    streams = [stream(name, kernel(name, 1, 11.0)) for name in "abc"]
    result = played("inter-sm", *streams, gpu=tiny(2))
    assert times(result) == {"a": (0.0, 11.0), "b": (0.0, 11.0), "c": (0.0, 22.0)}


def test_smart_even_gives_a_small_kernel_what_it_fills() -> None:
    streams = (stream("a", kernel("a", 1, 11.0)), stream("b", kernel("b", 5, 11.0)))
    smart = played("inter-sm:rule=smart-even", *streams, gpu=tiny(8))  # 2 + 6
    assert times(smart) == {"a": (0.0, 11.0), "b": (0.0, 11.0)}
    assert times(played("inter-sm", *streams, gpu=tiny(8)))["b"] == (0.0, 21.0)


def test_rounds_gives_most_sms_to_most_blocks() -> None:
    streams = (stream("a", kernel("a", 8, 21.0)), stream("b", kernel("b", 2, 11.0)))
    result = played("inter-sm:rule=rounds", *streams)  # 3 + 1: three waves of a, two of b
    assert times(result) == {"a": (0.0, 31.0), "b": (0.0, 21.0)}


def test_profile_gives_an_sm_where_it_adds_most() -> None:
    """A block alone gains nothing by a second SM; 12 blocks go from 6 waves to 4 with a third."""
    streams = (stream("a", kernel("a", 1, 11.0)), stream("b", kernel("b", 12, 31.0)))
    result = played("inter-sm:rule=profile", *streams)
    assert {sm for sm, *_ in spans(result, "a")} == {0}
    assert times(result)["a"] == (0.0, 11.0)
    # b: 3 blocks from 1, 4 from 11 (a has gone), 4 from 21, 1 from 31
    assert times(result)["b"] == (0.0, 41.0)


def test_a_stream_keeps_its_sms_for_kernels_of_its_library() -> None:
    streams = (
        stream("a", convolution("a", [launch(1, 11.0), launch(4, 11.0, "internal0")])),
        stream("b", kernel("b", 8, 21.0)),
    )
    held = played("inter-sm", *streams)
    assert {sm for sm, *_ in spans(held, "a", 1)} == {0, 1}
    loose = played("green-context:sms=8+8", *streams, gpu=tiny(16))
    assert {sm for sm, *_ in spans(loose, "a", 0)} <= set(range(8))


# ---- bad parameters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "inter-sm:rule=fair",
        "inter-sm:granularity=0",
        "inter-sm:granularity=5",
        "inter-sm:sms=2",
        "inter-sm:sms=2+1+1",
        "inter-sm:sms=2+3",
        "inter-sm:sms=0+4",
        "inter-sm:sms=-1+4",
        "inter-sm:sms=two+2",
        "inter-sm:sms=2+2,rule=rounds",
        "inter-sm:rule=rounds,dynamic=false",
        "inter-sm:sms=" + "9" * 50 + "+1",
        "inter-sm:sms=٣+1",
    ],
)
def test_a_wrong_split_is_one_line(text: str) -> None:
    with pytest.raises(InputError) as raised:
        played(text, stream("a", kernel("a", 1, 11.0)), stream("b", kernel("b", 1, 11.0)))
    assert str(raised.value).startswith("policy inter-sm: ") and "; expected " in str(raised.value)


def test_a_fixed_split_needs_an_sm_for_every_stream() -> None:
    with pytest.raises(InputError, match="2 shares for 3 streams"):
        played("inter-sm:dynamic=false", *[stream(n, kernel(n, 1, 11.0)) for n in "abc"], gpu=tiny(2))


@given(st.text(max_size=12))
def test_any_text_is_a_split_or_an_input_error(text: str) -> None:
    gpu: GPU = tiny()
    try:
        policy_from(f"inter-sm:sms={text}").prepare(gpu, ["a", "b"])
    except InputError as error:
        assert "\n" not in str(error)


def test_a_split_that_stays_grants_the_same_objects() -> None:
    """They are checked and compared once only."""
    policy, view = policy_from("inter-sm"), view_of(kernel_view(0), kernel_view(1), kernel_view(2))
    before, after = policy.partition(view).grants, policy.partition(view).grants
    assert len(before) == 3 and all(one is other for one, other in zip(before, after, strict=True))
