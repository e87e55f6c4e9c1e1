"""Dividing batches: the dynamic programming against all divisions, and what the search makes of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from test_choose import Choice, choosing
from tiny import launch, stream, tiny, trace

from gpusim import cli, load_gpu, load_trace, replay
from gpusim.choose.micro_batches import MOST_DIVISIONS, BatchPart, Division, divided_convolutions, front
from gpusim.choose.report import as_json, plan_trace
from gpusim.choose.search import UNDIVIDED, Selection, select
from gpusim.session import Session
from gpusim.trace import edit
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, MicroBatch

TRACES = Path(__file__).resolve().parent.parent / "traces"
GPU = tiny()
MIB = 2**20


def dividing(id: str, whole: Sequence[Choice], parts: dict[int, Sequence[Choice]], *depends_on: str) -> Convolution:
    """A convolution of 4 images with algorithms for all of them and for fewer."""
    op = choosing(id, whole, *depends_on)
    sizes = tuple(
        MicroBatch(
            batch=batch,
            algorithms=tuple(
                ConvolutionAlgorithm(algorithm=name, workspace_bytes=size, kernels=(launch(blocks, us),))
                for name, blocks, us, size in choices
            ),
        )
        for batch, choices in parts.items()
    )
    return op.model_copy(update={"shape": op.shape.model_copy(update={"batch": 4}), "micro_batches": sizes})


def chosen(selection: Selection) -> dict[str, str]:
    return dict(selection.best.plan.algorithms)


# ---- the dynamic programming


def test_equal_parts_take_as_often_as_long() -> None:
    """With time 2 + n for n images and workspace n, 8 images take 10, 12, 16 and 24 as workspace halves."""
    parts = [BatchPart(n, "A", 2.0 + n, n) for n in (1, 2, 4, 8)]
    found = front(8, parts)
    assert [(one.workspace_bytes, one.us, one.name) for one in found] == [
        (1, 24.0, "8x1:A"),
        (2, 16.0, "4x2:A"),
        (4, 12.0, "2x4:A"),
        (8, 10.0, "1x8:A"),
    ]


def test_a_division_may_mix_sizes_and_algorithms() -> None:
    """7 images: 4 by B and 3 by A; the largest part is the first."""
    (found,) = front(7, [BatchPart(3, "A", 3.0, 5), BatchPart(4, "B", 4.0, 5), BatchPart(1, "A", 2.0, 5)])
    assert (found.name, found.us) == ("1x4:B-1x3:A", 7.0)
    assert [(count, part.batch) for count, part in found.counted] == [(1, 4), (1, 3)]


def test_parts_that_do_not_make_the_batch_give_nothing() -> None:
    assert front(7, [BatchPart(2, "A", 1.0, 0), BatchPart(4, "A", 1.0, 0)]) == []


def every_division(batch: int, parts: Sequence[BatchPart]) -> Iterator[Division]:
    """All of them, by exhaustion."""

    def grow(chosen: tuple[BatchPart, ...], left: int, able: Sequence[BatchPart]) -> Iterator[Division]:
        if left == 0:
            yield Division(chosen)
        for n, part in enumerate(able):
            if part.batch <= left:
                yield from grow((*chosen, part), left - part.batch, able[n:])

    yield from grow((), batch, parts)


some_parts = st.lists(
    st.builds(BatchPart, st.integers(1, 6), st.sampled_from("AB"), st.integers(1, 9).map(float), st.integers(0, 4)),
    max_size=6,
)


@given(st.integers(1, 8), some_parts)
def test_the_front_is_that_of_all_divisions(batch: int, parts: list[BatchPart]) -> None:
    found = front(batch, parts)
    every = [(one.workspace_bytes, one.us) for one in every_division(batch, parts)]
    best = {
        (size, us) for size, us in every if not any(s <= size and u <= us and (s, u) != (size, us) for s, u in every)
    }
    assert [(one.workspace_bytes, one.us) for one in found] == sorted(best)
    for one in found:
        assert sum(part.batch for part in one.parts) == batch and set(one.parts) <= set(parts)


# ---- divisions as algorithms

WHOLE: tuple[Choice, ...] = (("slow", 4, 30.0, 0), ("fast", 4, 10.0, 100))
HALVES: tuple[Choice, ...] = (("slow", 4, 16.0, 0), ("fast", 4, 6.0, 50))


def test_a_division_launches_its_parts_and_reuses_their_workspace() -> None:
    made = trace(stream("x", dividing("c", WHOLE, {2: HALVES})))
    (found,) = divided_convolutions(made, Session(GPU))["c"]
    assert found.algorithm.algorithm == "2x2:fast" and found.algorithm.workspace_bytes == 50
    assert [kernel.duration_us for kernel in found.algorithm.kernels] == [6.0, 6.0]


def test_a_part_is_as_much_longer_as_it_took_cold() -> None:
    """Recorded warm at 6 us, and 2 us longer cold: each part finds its images cold."""
    op = dividing("c", WHOLE, {2: HALVES[1:]})
    timed = {"warm_us": 7.0, "cold_us": 9.0, "touched_bytes": 1050}
    (half,) = op.micro_batches or ()
    half = half.model_copy(update={"algorithms": tuple(one.model_copy(update=timed) for one in half.algorithms)})
    whole = op.selected.model_copy(update={"touched_bytes": 2000})
    made = trace(stream("x", op.model_copy(update={"selected": whole, "micro_batches": (half,)})))
    (found,) = divided_convolutions(made, Session(GPU))["c"]
    assert [kernel.duration_us for kernel in found.algorithm.kernels] == pytest.approx([8.0, 8.0])
    assert (found.algorithm.warm_us, found.algorithm.cold_us) == (18.0, 18.0)
    assert found.algorithm.touched_bytes == 2050  # the tensors of the whole batch, and one workspace


def test_at_most_so_many_divisions() -> None:
    parts = [(f"a{n}", 4, 40.0 - n, n) for n in range(3 * MOST_DIVISIONS)]
    made = trace(stream("x", dividing("c", (("slow", 4, 900.0, 0),), {2: parts})))
    found = divided_convolutions(made, Session(GPU))["c"]
    sizes = [one.algorithm.workspace_bytes for one in found]
    assert len(sizes) == MOST_DIVISIONS and sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (0, 3 * MOST_DIVISIONS - 1)


def test_what_fits_no_sm_is_no_part() -> None:
    op = dividing("c", (("slow", 4, 30.0, 0),), {2: HALVES})
    (halves,) = op.micro_batches or ()
    big = launch(4, 1.0).model_copy(update={"dynamic_shared_memory_bytes": 2**20})
    too_big = ConvolutionAlgorithm(algorithm="big", workspace_bytes=0, kernels=(big,))
    halves = halves.model_copy(update={"algorithms": (*halves.algorithms, too_big)})
    made = trace(stream("x", op.model_copy(update={"micro_batches": (halves,)})))
    assert [one.algorithm.algorithm for one in divided_convolutions(made, Session(GPU))["c"]] == ["2x2:fast"]


# ---- the search


@pytest.mark.parametrize(
    ("limit", "algorithm", "us"), [(None, "fast", 10.0), (60, "2x2:fast", 12.0), (9, "slow", 30.0)]
)
def test_dividing_wins_where_the_whole_batch_needs_too_much(limit: int | None, algorithm: str, us: float) -> None:
    selection = select(trace(stream("x", dividing("c", WHOLE, {2: HALVES}))), GPU, memory_bytes=limit)
    assert chosen(selection) == {"c": algorithm}
    assert selection.best.makespan_us == pytest.approx(us)
    assert selection.bound.us <= selection.best.makespan_us * (1.0 + 1e-9)
    undivided = dict(selection.baselines)[UNDIVIDED]
    assert undivided.makespan_us == pytest.approx(10.0 if limit is None else 30.0)


def test_two_that_run_at_once_hold_two_workspaces() -> None:
    """Each half of the GPU: 50 bytes for each, so 100 let both divide, and 99 one after the other."""
    whole, halves = (("slow", 2, 30.0, 0),), {2: (("fast", 2, 6.0, 50),)}
    made = trace(stream("x", dividing("c", whole, halves)), stream("y", dividing("d", whole, halves)))
    free, tight = select(made, GPU, memory_bytes=100), select(made, GPU, memory_bytes=99)
    assert (free.best.makespan_us, free.best.memory_bytes) == (pytest.approx(12.0), 100)
    assert (tight.best.makespan_us, tight.best.memory_bytes) == (pytest.approx(24.0), 50)


def test_a_limit_that_only_parts_keep() -> None:
    made = trace(stream("x", dividing("c", (("fast", 4, 10.0, 100),), {2: (("fast", 4, 6.0, 50),)})))
    selection = select(made, GPU, memory_bytes=60)
    assert chosen(selection) == {"c": "2x2:fast"}
    assert selection.undivided is None and UNDIVIDED not in dict(selection.baselines)


def test_a_plan_says_and_replays_its_parts(tmp_path: Path) -> None:
    made = trace(stream("x", dividing("c", WHOLE, {2: HALVES})))
    selection = select(made, GPU, memory_bytes=60)
    content = as_json(selection)
    (step,) = content["plan"]["operations"]
    assert step["micro_batches"] == [{"count": 2, "batch": 2, "algorithm": "fast"}]
    assert {step["micro_batches"] is None for one in content["frontier"] for step in one["plan"]["operations"]} == {
        True,
        False,
    }
    plan_trace(selection).save(tmp_path / "plan.json")
    again = load_trace(tmp_path / "plan.json")
    assert [op.launches() for op in again.operations()] == [(launch(4, 6.0),) * 2]
    assert replay(again, gpu=GPU).makespan_us == pytest.approx(selection.best.makespan_us)
    assert select(again, GPU, memory_bytes=60).best.makespan_us == pytest.approx(selection.best.makespan_us)


choices = st.tuples(st.integers(1, 4), st.integers(3, 20).map(float), st.integers(0, 3))


@examples(15)
@given(st.lists(st.tuples(choices, choices), min_size=1, max_size=3), st.integers(3, 6), st.booleans())
def test_never_worse_than_without(works: list[tuple[Choice, Choice]], limit: int, objective: bool) -> None:
    """Under the same limit and the same replays, whatever parts take."""
    streams = [
        stream(f"s{n}", dividing(f"c{n}", (("A", *whole),), {2: (("A", *half),)}))  # type: ignore[arg-type]
        for n, (whole, half) in enumerate(works)
    ]
    whole = [one.model_copy(update={"operations": tuple(undivided(one.operations))}) for one in streams]
    found = select(trace(*streams), GPU, memory_bytes=limit)
    without = select(trace(*whole), GPU, memory_bytes=limit)
    assert found.best.makespan_us <= without.best.makespan_us
    assert found.best.memory_bytes <= limit


def undivided(operations: Sequence[object]) -> Iterator[Convolution]:
    for op in operations:
        assert isinstance(op, Convolution)
        yield op.model_copy(update={"micro_batches": None})


@pytest.mark.parametrize("streams", ["sequential", "branches", "ios"])
def test_never_worse_in_streams_that_are_given(streams: str) -> None:
    made = trace(stream("x", dividing("c", WHOLE, {2: HALVES})), stream("y", dividing("d", WHOLE, {2: HALVES})))
    found = select(made, GPU, memory_bytes=60, streams=streams)
    assert found.undivided is not None and found.best.makespan_us < found.undivided.best.makespan_us
    assert "2x2:fast" in chosen(found).values()


# ---- as recorded


def test_the_3x3_of_inception_3a_in_64_mib(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """TF32 needs 86 MiB for 128 images, 19 MiB for 64: twice 64 is faster than FP32 in one."""
    whole = load_trace(TRACES / "micro_batches_3a.json.gz")
    edit.select(whole, operations=["3a.3x3"]).save(tmp_path / "one.json.gz")
    command = ["select", str(tmp_path / "one.json.gz"), "--memory", "64MiB", "--sharing", "streams"]
    assert cli.main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    (step,) = content["plan"]["operations"]
    assert step["micro_batches"] == [{"count": 2, "batch": 64, "algorithm": "IMPLICIT_PRECOMP_GEMM/TF32"}]
    (undivided,) = [one for one in content["baselines"] if one["name"] == UNDIVIDED]
    assert undivided["makespan_us"] / content["makespan_us"] > 2.5
    assert cli.main(command) == 0
    said = capsys.readouterr().out
    assert ", 3 divisions of the batch among them" in said and UNDIVIDED in said


def test_recorded_parts_follow_one_another() -> None:
    gpu = load_gpu("h200")
    trace = load_trace(TRACES / "micro_batches_4a.json.gz")
    for op in trace.operations():
        assert isinstance(op, Convolution) and op.micro_batches is not None
        assert [one.batch for one in op.micro_batches] == [8, 16, 32, 64]
    one = edit.select(trace, operations=["4a.1x1"])
    found = divided_convolutions(one, Session(gpu))["4a.1x1"]
    times, sizes = [one.division.us for one in found], [one.division.workspace_bytes for one in found]
    assert times == sorted(times, reverse=True) and sizes == sorted(sizes)
