"""Ranks: streams that meet in collectives, and what the host takes for copies and allocations."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import host, played, stream, times, tiny, trace

from gpusim import Program, Trace, load_gpu, replay
from gpusim.common.errors import InputError
from gpusim.hardware.host_costs import CostTable, HostCosts
from gpusim.trace.operations import Collective, Copy, Host, LoopArrivals

ROOT = Path(__file__).parents[1]


def meet(id: str, name: str, duration_us: float, *depends_on: str, ranks: int = 2) -> Collective:
    return Collective(
        id=id, kind="collective", name=name, what="all_reduce", ranks=ranks, bytes=8, duration_us=duration_us,
        depends_on=depends_on,
    )  # fmt: skip


def on(gpu: int, name: str, *operations: Any) -> Any:
    return stream(name, *operations).model_copy(update={"gpu": gpu})


# ---- collectives


def test_ranks_begin_a_collective_when_the_last_is_there() -> None:
    result = played(
        "leftover",
        stream("a", host("a1", 5.0), meet("a2", "r", 3.0), host("a3", 1.0)),
        stream("b", host("b1", 9.0), meet("b2", "r", 4.0)),
    )
    assert times(result) == {"a1": (0, 5), "b1": (0, 9), "a2": (5, 12), "b2": (9, 13), "a3": (12, 13)}


@pytest.mark.parametrize(
    ("streams", "said"),
    [
        ((stream("a", meet("x", "r", 1.0)), stream("b", host("h", 1.0))), r"operations\[0\].ranks: 2, but 1"),
        ((stream("a", meet("x", "r", 1.0), meet("y", "r", 1.0)),), "'r' is twice in one stream"),
        (
            (
                stream("a", meet("x", "r", 1.0), arrivals=LoopArrivals(kind="loop", count=2)),
                stream("b", meet("y", "r", 1.0)),
            ),
            "is in a stream with arrivals",
        ),
        (
            (
                stream("a", meet("a1", "r", 1.0), meet("a2", "s", 1.0)),
                stream("b", meet("b1", "s", 1.0), meet("b2", "r", 1.0)),
            ),
            "dependency cycle: a1 waits for b1 waits for a1",
        ),
    ],
)  # fmt: skip
def test_ranks_that_cannot_all_come_are_refused(streams: Any, said: str) -> None:
    """A rank that is missing, twice, a request, or collectives in two orders, at which MPI would wait for ever."""
    with pytest.raises(Exception, match=said):
        trace(*streams)


def test_programs_that_meet_are_none_that_restart() -> None:
    streams = (stream("a", meet("x", "r", 1.0)), stream("b", meet("y", "r", 1.0)))
    assert replay(trace(*streams), tiny(), "leftover", restart=True).passes == {"a": 1.0}  # both are one program
    apart = [Program(name=name, streams=[name]) for name in "ab"]
    with pytest.raises(InputError, match=r"^streams\[0\].operations\[0\]: waits for another program"):
        replay(Trace(name="two", device="tiny", streams=streams, programs=apart), tiny(), "leftover", restart=True)


# ---- what the host takes


TABLE = CostTable(bytes=(100, 200, 400), us=(1.0, 3.0, 4.0), source="made up")


@pytest.mark.parametrize(("size", "us"), [(0, 1.0), (100, 1.0), (150, 2.0), (300, 3.5), (400, 4.0), (1000, 7.0)])
def test_times_between_sizes_are_on_a_line(size: int, us: float) -> None:
    assert TABLE.us_of(size) == pytest.approx(us)


@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=9, unique=True), st.data())
def test_measured_sizes_have_their_measured_times(sizes: list[int], data: st.DataObject) -> None:
    times_us = data.draw(st.lists(st.floats(0, 1e6), min_size=len(sizes), max_size=len(sizes)))
    table = CostTable(bytes=tuple(sorted(sizes)), us=tuple(times_us), source="made up")
    for size, us in zip(sorted(sizes), times_us, strict=True):
        assert table.us_of(size) == pytest.approx(us, rel=1e-6, abs=1e-6)


def test_bytes_without_a_duration_take_what_the_gpu_says() -> None:
    gpu = changed(tiny(), host=HostCosts(h2d_pageable=TABLE, allocation=TABLE))
    result = played(
        "leftover",
        stream(
            "a",
            Host(id="m", kind="host", what="allocation", bytes=150),
            Copy(id="c", kind="copy", direction="h2d", memory="pageable", bytes=300),
        ),
        gpu=gpu,
    )
    assert times(result) == {"m": (0, 2), "c": (2, 5.5)}


def test_what_no_one_measured_is_told_in_one_line() -> None:
    made = trace(stream("a", Copy(id="c", kind="copy", direction="h2d", bytes=300)))
    with pytest.raises(InputError) as caught:
        replay(made, load_gpu("k40c"), "leftover", recorded_on=load_gpu("k40c"))
    assert str(caught.value) == (
        "operation c: gives no duration_us, nor does k40c say what it takes; expected a duration, or a GPU whose file "
        "gives host.h2d_pinned (`gpusim record host`)"
    )


def test_other_host_work_needs_a_duration() -> None:
    with pytest.raises(Exception, match="other host work without duration_us"):
        Host(id="h", kind="host", what="other")


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"bytes": [1, 2], "us": [1.0], "source": "x"}, "has 1 times"),
        ({"bytes": [2, 1], "us": [1.0, 1.0], "source": "x"}, "do not ascend"),
        ({"bytes": [1], "us": [-1.0], "source": "x"}, "-1"),
    ],
)
def test_wrong_tables_are_refused(tmp_path: Path, table: dict[str, Any], said: str) -> None:
    text = (ROOT / "gpus" / "k40c.toml").read_text(encoding="utf-8")
    path = tmp_path / "mine.toml"
    path.write_text(text + f"\n[host]\nfree = {{ bytes = {table['bytes']}, us = {table['us']}, source = 'x' }}\n")
    with pytest.raises(InputError, match=said):
        load_gpu(path)
