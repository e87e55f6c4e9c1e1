"""Static splits of every SM, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import convolution, kernel, launch, played, run_of, spans, stream, times
from views import H200, view_of, within
from views import kernel as seen

from gpusim import InputError
from gpusim.model.occupancy import Footprint
from gpusim.policies.quota import Even, even_blocks
from gpusim.policies.tools.mixes import Resources, residents_of

ROOM: Resources = (64, 100, 64, 32)  # registers, shared memory, warps, slots


@pytest.mark.parametrize(
    ("needs", "counts"),
    [
        ([(8, 0, 4, 1), (4, 0, 4, 1)], [4, 8]),  # half: 32, 50, 32, 16
        ([(8, 0, 4, 1), (4, 20, 4, 1)], [4, 2]),  # shared memory binds the second
        ([(8, 0, 4, 1)] * 4, [2, 2, 2, 2]),
        ([(40, 0, 8, 1), (8, 0, 8, 1)], [1, 2]),  # 40 > 32: one of each, and 8 of the 16 left to each
        ([(40, 0, 8, 1), (16, 0, 8, 1)], [1, 1]),
        ([(40, 0, 8, 1), (40, 0, 8, 1)], None),
        ([(0, 0, 64, 1), (0, 0, 1, 1)], None),
    ],
)
def test_equal_shares(needs: list[Resources], counts: list[int] | None) -> None:
    assert even_blocks(ROOM, needs, within(ROOM, needs)) == counts


NEEDS = st.tuples(st.integers(0, 70), st.integers(0, 110), st.integers(1, 70), st.just(1))


@given(st.lists(NEEDS, min_size=1, max_size=6))
def test_equal_shares_always_fit(needs: list[Resources]) -> None:
    counts = even_blocks(ROOM, needs, within(ROOM, needs))
    if counts is None:
        assert not within(ROOM, needs)([1] * len(needs))
    else:
        assert min(counts) >= 1 and within(ROOM, needs)(counts)


def test_blocks_fit_where_the_registers_of_each_scheduler_hold_them() -> None:
    """Warps of 7680 registers, two on a scheduler, leave 1024 there, and 4096 of the SM: none holds a warp of 2048."""
    big = Footprint(warps=8, registers=8 * 7680, shared_memory_bytes=1024)
    small = Footprint(warps=1, registers=2048, shared_memory_bytes=1024)
    view = view_of(seen(0, footprint=big, blocks_per_sm=1), seen(1, footprint=small, blocks_per_sm=32))
    fit = residents_of(H200, view.kernels)
    assert within(H200.limits.capacity, [one.footprint.need for one in view.kernels])([1, 1])
    assert fit([1, 0]) and fit([0, 8]) and not fit([1, 1])
    assert {grant.blocks_per_sm for grant in Even().partition(view).grants} == {None}  # the SMs are split


# Replays on 4 SMs; a block of 256 threads takes a quarter of an SM's registers, one of 1024 all of them.


def test_even_gives_each_half_of_every_sm() -> None:
    streams = (stream("a", kernel("a", 8, 11.0, threads=256)), stream("b", kernel("b", 8, 11.0, threads=256)))
    result = played("even", *streams)
    for name in "ab":
        assert [(sm, blocks) for sm, blocks, *_ in spans(result, name)] == [(sm, 2) for sm in range(4)]
        assert run_of(result, name).start_us == 1.0


def test_even_splits_the_sms_where_blocks_do_not_fit() -> None:
    streams = (stream("a", kernel("a", 4, 11.0)), stream("b", kernel("b", 4, 11.0)))
    assert (
        times(played("even", *streams)) == times(played("inter-sm", *streams)) == {"a": (0.0, 21.0), "b": (0.0, 21.0)}
    )


def test_even_leaves_a_stream_alone_the_gpu() -> None:
    alone = stream("a", convolution("a", [launch(4, 11.0), launch(16, 11.0, "internal0", threads=256)]))
    assert times(played("even", alone)) == times(played("serial", alone))


def test_a_quota_is_kept() -> None:
    streams = (stream("a", kernel("a", 32, 11.0, threads=256)), stream("b", kernel("b", 16, 11.0, threads=256)))
    result = played("quota:blocks=a:1+b:2", *streams)
    threads = [[bin_[2] for bin_ in sm] for sm in result.usage.shares]
    assert max(max(bins) for bins in threads) <= 3 * 8 / 64 + 1e-9
    assert run_of(result, "a").start_us == run_of(result, "b").start_us == 1.0


def test_release_lets_a_stream_that_is_alone_fill_the_gpu() -> None:
    streams = (stream("a", kernel("a", 4, 11.0, threads=256)), stream("b", kernel("b", 64, 41.0, threads=256)))
    held = times(played("quota:blocks=a:1+b:1", *streams))["b"][1]
    assert times(played("quota:blocks=a:1+b:1,release=true", *streams))["b"][1] < held


def test_a_stream_without_a_quota_has_no_limit() -> None:
    alone = stream("a", kernel("a", 32, 21.0, threads=256))
    assert times(played("quota", alone)) == times(played("serial", alone))


def test_stream_names_may_hold_dots_and_slashes() -> None:
    streams = (stream("net/a.1-x", kernel("a", 4, 11.0, threads=256)), stream("b_2", kernel("b", 4, 11.0, threads=256)))
    assert run_of(played("quota:blocks=net/a.1-x:1+b_2:3", *streams), "b").start_us == 1.0


@pytest.mark.parametrize(
    "blocks", ["a", "a:", "a:0", "a:-1", "a:x", ":3", "c:1", "a:1+a:2", "a:1++b:2", "a:1.5", "a:²"]
)
def test_quotas_that_cannot_be(blocks: str) -> None:
    with pytest.raises(InputError, match=r"^policy quota: .*; expected "):
        played(f"quota:blocks={blocks}", stream("a", kernel("a", 1, 11.0)), stream("b", kernel("b", 1, 11.0)))
