"""From graphs to streams, by hand and against brute force; the schedules that IOS published."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples

from experiments.ios_ranking.schedules import load_schedule
from gpusim import load_gpu, load_trace
from gpusim.choose import streams
from gpusim.choose.search import in_streams
from gpusim.choose.streams import (
    Stage,
    as_lanes,
    greedy_stages,
    groups,
    ios_stages,
    nimble,
    of_units,
    opara,
    sequential,
    stage_waits,
    units,
)
from gpusim.common.errors import InputError
from gpusim.session import Session
from gpusim.trace.graph import Graph, ordered

TRACES = Path(__file__).resolve().parent.parent / "traces"

# An inception module: three branches, two of them with a reduction, that end in a concatenation.
MODULE = ordered({"a": (), "r3": (), "c3": ("r3",), "r5": (), "c5": ("r5",), "cat": ("a", "c3", "c5")})


def test_sequential_is_one_stream_in_a_running_order() -> None:
    (lane,) = sequential(MODULE)
    assert all(lane.index(other) < lane.index(id) for id in lane for other in MODULE.before[id])


def test_nimble_gives_a_stream_a_branch() -> None:
    assert sorted(nimble(MODULE)) == [("a", "cat"), ("r3", "c3"), ("r5", "c5")]


def test_chains_that_never_overlap_share_a_stream_of_nimble() -> None:
    """Two forks one after the other: four operations of which two at most run at once need two streams."""
    forks = ordered({"a": (), "b": (), "c": ("a", "b"), "d": ("c",), "e": ("c",)})
    assert len(nimble(forks)) == 2


@st.composite
def graphs(draw: st.DrawFn, most: int = 6) -> Graph:
    count = draw(st.integers(1, most))
    waits = [draw(st.sets(st.integers(0, n - 1), max_size=2)) if n else set() for n in range(count)]
    return ordered({f"o{n}": tuple(f"o{m}" for m in sorted(waits[n])) for n in range(count)})


@given(graphs(8))
def test_nimble_keeps_all_concurrency_and_can_run(graph: Graph) -> None:
    lanes = nimble(graph)
    assert sorted(id for lane in lanes for id in lane) == sorted(graph.ids)
    graph.with_order(lanes)
    for lane in lanes:
        for earlier, later in combinations(lane, 2):
            assert graph.waits_for(later, earlier)  # a stream adds no wait


def test_opara_goes_on_in_the_first_stream_that_is_free_and_alternates() -> None:
    graph = ordered({"m1": (), "m2": (), "c1": (), "c2": (), "next": ("m2", "c1")})
    memory = {"m1": True, "m2": True, "c1": False, "c2": False, "next": False}
    demand = {"m1": 2.0, "m2": 1.0, "c1": 3.0, "c2": 4.0, "next": 0.0}
    # memory first, the least demand: m2; then computing: c1; then memory: m1; then computing: next (ready by now)
    assert opara(graph, memory, demand) == (("m2", "next"), ("c1",), ("m1",), ("c2",))


def test_groups_are_what_waits_for_one_another() -> None:
    assert groups(MODULE, frozenset({"a", "r3", "c3", "c5"})) == (("a",), ("r3", "c3"), ("c5",))


def test_units_take_what_follows_alone() -> None:
    graph = ordered({"conv": (), "bias": ("conv",), "relu": ("bias",), "x": ("relu",), "y": ("relu",)})
    chains = units(graph, ["bias", "relu", "x", "y"])
    assert chains == {"conv": ("conv", "bias", "relu"), "x": ("x",), "y": ("y",)}
    assert dict(of_units(graph, chains).before) == {"conv": (), "x": ("conv",), "y": ("conv",)}


def test_greedy_takes_all_that_is_ready() -> None:
    assert greedy_stages(MODULE) == ((("a",), ("r3",), ("r5",)), (("c3",), ("c5",)), (("cat",),))


def latency_us(stage: Stage) -> float:
    """Groups side by side take the longest, and two or more cost something together."""
    return max(sum(3 + len(id) * 7 % 5 for id in group) for group in stage) + 4 * (len(stage) - 1) ** 2


def every_schedule(graph: Graph, left: frozenset[str]) -> Iterator[tuple[Stage, ...]]:
    """All ways to take ending after ending off a graph."""
    if not left:
        yield ()
    for count in range(1, len(left) + 1):
        for some in combinations([id for id in graph.ids if id in left], count):
            ending = frozenset(some)
            if all(not (left - ending) & {later} for id in ending for later in graph.after[id]):
                stage = groups(graph, ending)
                if len(stage) <= 2 and max(map(len, stage)) <= 2:
                    yield from ((*before, stage) for before in every_schedule(graph, left - ending))


@examples(30)
@given(graphs(5))
def test_ios_equals_brute_force(graph: Graph) -> None:
    with patch.object(streams, "MOST_GROUPS", 2), patch.object(streams, "MOST_IN_GROUP", 2):
        found = ios_stages(graph, latency_us)
    best = min(sum(map(latency_us, stages)) for stages in every_schedule(graph, frozenset(graph.ids)))
    assert sum(map(latency_us, found)) == best
    assert sorted(id for stage in found for group in stage for id in group) == sorted(graph.ids)


def test_stages_wait_for_one_another() -> None:
    stages = greedy_stages(MODULE)
    lanes = as_lanes(stages)
    assert lanes == (("a", "c3", "cat"), ("r3", "c5"), ("r5",))
    waits = stage_waits(stages)
    assert ("c3", "a") in waits and ("c5", "r3") in waits and ("cat", "c5") in waits


@pytest.mark.release
@pytest.mark.parametrize("module", ["inception_3a", "inception_4a", "inception_5a"])
def test_the_ranking_of_ios_on_a_recorded_module(module: str) -> None:
    """As in its paper: one stream is slowest, greedy stages are better, its own are best, or within 1 %.

    They are chosen by the time of each stage alone, and in a replay a stage starts beside the last kernels before it.

    In 5a one stream and greedy stages tie: a stage waits for a convolution that takes as long as the others together.
    """
    gpu, made = load_gpu("h200"), load_trace(TRACES / f"{module}.json.gz")
    session = Session(gpu)
    us = {way: in_streams(made, session, way).makespan_us for way in ("sequential", "greedy", "ios")}
    slowest = us["sequential"] * (1.03 if module == "inception_5a" else 0.9)
    assert us["ios"] <= 1.01 * us["greedy"] and us["greedy"] < slowest


# ---- published schedules


def test_the_published_schedules_run_every_operator_once(shared: Path) -> None:
    folder = shared / "third_party" / "ios"
    if not folder.is_dir():
        pytest.skip("needs ../shared/third_party/ios")
    for path in sorted(folder.glob("*.json.gz")):
        schedule = load_schedule(path)
        assert schedule.network == "inception_v3_dp_parallel_merge"
        assert sum(len(op.hint_name.split()) for op in schedule.operators.values()) == 119  # merged ones counted apart
        assert len(schedule.graph.blocks()) >= 13
        graph = schedule.graph.with_order(schedule.lanes)
        assert len(graph.ids) == len(schedule.operators)
    small, large = load_schedule(folder / "1.json.gz"), load_schedule(folder / "128.json.gz")
    assert len(small.operators) < len(large.operators)  # at batch 1 more convolutions are merged


def conv(name: str, reads: str) -> dict[str, object]:
    return {
        "type": "conv", "name": name, "hint_name": name, "inputs": [[[reads, 0, 3]]], "out_channels": 4,
        "kernel": [3, 3], "stride": [1, 1], "padding": [1, 1], "output_shape": [4, 8, 8],
    }  # fmt: skip


def schedule_file(folder: Path, stages: list[list[list[str]]]) -> Path:
    start = {"type": "placeholder", "name": "in", "hint_name": "in", "output_shape": [3, 8, 8]}
    block = {
        "enter_name": "in", "enter_node": start, "inner_nodes": [conv("a", "in"), conv("b", "in")],
        "exit_node": conv("c", "a"), "stages": stages,
    }  # fmt: skip
    path = folder / "s.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"name": "made", "blocks": [block]}).encode()))
    return path


def test_a_schedule_by_hand(tmp_path: Path) -> None:
    schedule = load_schedule(schedule_file(tmp_path, [[["a"], ["b"]], [["c"]]]))
    assert schedule.stages == ((("a",), ("b",)), (("c",),))
    assert schedule.lanes == (("a", "c"), ("b",))


@pytest.mark.parametrize(
    ("stages", "fault"),
    [
        ([[["c"]], [["a"], ["b"]]], "stage 0: runs c before a; expected what it reads first"),
        ([[["a"], ["b"]]], "stages: leave out c; expected every operator once"),
        ([[["a"], ["b"]], [["a"]], [["c"]]], "stage 1: runs a, which ran before; expected every operator once"),
        ([[["x"]]], "stage 0: runs x, which is no operator; expected every operator once"),
    ],
)
def test_a_wrong_schedule_is_one_line(stages: list[list[list[str]]], fault: str, tmp_path: Path) -> None:
    path = schedule_file(tmp_path, stages)
    with pytest.raises(InputError) as caught:
        load_schedule(path)
    assert str(caught.value) == f"{path}: {fault}"
