"""Choosing plans: graphs and streams by hand, memory as a property, the search against brute force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import examples
from tiny import convolution, copy, kernel, launch, stream, tiny, trace

from gpusim import cli, load_gpu, load_trace
from gpusim.choose import search
from gpusim.choose.bound import Bounds
from gpusim.choose.judge import Judge
from gpusim.choose.least import Least
from gpusim.choose.moves import MIXES, SHARING, all_algorithms, all_lanes, shared, splits, with_split
from gpusim.choose.plan import Plan, PlannedWork, memory_bytes, most_live, planned_trace, tensor_bytes
from gpusim.choose.report import as_json, plan_trace
from gpusim.choose.search import Selection, select, work_of
from gpusim.common.errors import InputError
from gpusim.session import Session
from gpusim.trace import edit
from gpusim.trace.format import Trace
from gpusim.trace.graph import Graph, graph_of, ordered
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, ConvolutionShape

TRACES = Path(__file__).resolve().parent.parent / "traces"
GPU = tiny()
Capture = pytest.CaptureFixture[str]
Choice = tuple[str, int, float, int]  # algorithm, blocks, duration us, workspace bytes


def choosing(id: str, choices: Sequence[Choice], *depends_on: str) -> Convolution:
    """A convolution with algorithms of one kernel each, the first selected."""
    first, *others = [
        ConvolutionAlgorithm(algorithm=name, workspace_bytes=size, kernels=(launch(blocks, us),))
        for name, blocks, us, size in choices
    ]
    made = convolution(id, first.kernels, *depends_on)
    return made.model_copy(update={"selected": first, "alternatives": tuple(others)})


# A has the GPU of 4 SMs to itself and is fast; B takes half of it, for longer.
A_OR_B: tuple[Choice, ...] = (("A", 4, 10.0, 100), ("B", 2, 12.0, 0))


# ---- graphs


DIAMOND = {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c", "a"), "e": ("d",)}


def test_blocks_of_a_diamond() -> None:
    graph = ordered(DIAMOND)
    assert graph.blocks() == [("a",), ("b", "c"), ("d",), ("e",)]
    assert graph.reduced().before["d"] == ("b", "c")
    assert graph.independent("b", "c") and not graph.independent("a", "e")


def test_a_graph_without_a_common_point_is_one_block() -> None:
    graph = ordered({"a": (), "b": (), "c": ("a",), "d": ("b",)})
    assert graph.blocks() == [("a", "b", "c", "d")]


def test_a_cycle_is_one_clear_line() -> None:
    with pytest.raises(InputError, match=r"^graph: a cycle: .*a waits for .*; expected operations that can run"):
        ordered({"a": ("b",), "b": ("a",)})
    with pytest.raises(InputError, match=r"^a: waits for x; expected an operation of the graph"):
        ordered({"a": ("x",)})


def test_streams_are_waits() -> None:
    x, y = stream("x", kernel("a", 1, 5.0), kernel("b", 1, 5.0)), stream("y", kernel("c", 1, 5.0, "a"))
    assert dict(graph_of(trace(x, y)).before) == {"a": (), "b": ("a",), "c": ("a",)}


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> Graph:
    """A graph whose operations wait for some of those before them."""
    count = draw(st.integers(1, most))
    waits = [draw(st.sets(st.integers(0, n - 1), max_size=2)) if n else set() for n in range(count)]
    return ordered({f"o{n}": tuple(f"o{m}" for m in sorted(waits[n])) for n in range(count)})


@given(graphs(), st.lists(st.integers(0, 5), min_size=7, max_size=7))
def test_most_live_is_the_heaviest_set_that_may_run_at_once(graph: Graph, weights: list[int]) -> None:
    sizes = {id: size for id, size in zip(graph.ids, weights, strict=False) if size}
    heaviest = max(
        sum(sizes[id] for id in some)
        for count in range(len(sizes) + 1)
        for some in combinations(sizes, count)
        if all(graph.independent(a, b) for a, b in combinations(some, 2))
    )
    found, live = most_live(graph, sizes)
    assert found == heaviest == sum(sizes[id] for id in live)
    assert all(graph.independent(a, b) for a, b in combinations(live, 2))


@given(graphs())
def test_blocks_run_one_after_the_other(graph: Graph) -> None:
    blocks = graph.blocks()
    assert sorted(id for block in blocks for id in block) == sorted(graph.ids)
    for earlier, later in combinations(blocks, 2):
        assert all(graph.waits_for(b, a) for a in earlier for b in later)


# ---- choosing by hand


def test_two_slower_algorithms_side_by_side_beat_two_faster_ones() -> None:
    """Alone A is faster, but takes all SMs: two of it take 20 us. Two Bs run beside one another, 12 us."""
    selection = select(trace(stream("x", choosing("c", A_OR_B)), stream("y", choosing("d", A_OR_B))), GPU)
    assert selection.complete
    assert selection.best.makespan_us == pytest.approx(12.0)
    assert dict(selection.best.plan.algorithms) == {"c": "B", "d": "B"}
    assert selection.best.memory_bytes == 0
    assert dict(selection.baselines)["serial, fastest"].makespan_us == pytest.approx(20.0)


def test_workspaces_that_live_together_count_together() -> None:
    """Both by A may run at once in two streams: 200 bytes; in one stream the second takes the memory of the first."""
    alone = (("A", 2, 10.0, 100),)
    made = trace(stream("x", choosing("c", alone)), stream("y", choosing("d", alone)))
    free = select(made, GPU)
    assert (free.best.makespan_us, free.best.memory_bytes) == (pytest.approx(10.0), 200)
    tight = select(made, GPU, memory_bytes=np.int64(199))
    assert (tight.best.makespan_us, tight.best.memory_bytes) == (pytest.approx(20.0), 100)
    assert type(tight.limit_bytes) is int, "as JSON needs it"
    assert [one.memory_bytes for one in free.frontier] == [100, 200]
    frugal = select(made, GPU, objective="memory")  # 20 us is no 5 % more than 10
    assert frugal.best.memory_bytes == 200


def test_a_limit_that_no_plan_meets_says_the_least() -> None:
    made = trace(stream("x", choosing("c", (("A", 2, 10.0, 4096), ("B", 2, 12.0, 1024)))))
    with pytest.raises(InputError) as caught:
        select(made, GPU, memory_bytes=1000)
    assert str(caught.value) == (
        "memory_bytes: 1,000 bytes of workspace are too few for any plan; expected at least 1,024, for c by B"
    )


def test_an_unknown_workspace_under_a_limit_is_refused() -> None:
    op = convolution("c", [launch(2, 10.0)])
    assert select(trace(stream("x", op)), GPU).best.makespan_us == pytest.approx(10.0)
    with pytest.raises(InputError, match=r"^streams\[0\]\.operations\[0\] \(c\): no workspace is known; expected"):
        select(trace(stream("x", op)), GPU, memory_bytes=1000)


def test_streams_of_several_priorities_are_refused() -> None:
    first, urgent = stream("x", kernel("k", 1, 5.0)), stream("y", kernel("l", 1, 5.0))
    made = trace(first, urgent.model_copy(update={"priority": 2}))
    with pytest.raises(InputError, match=r"^streams\[1\]\.priority: is 2, that of the first 0; expected one priority"):
        select(made, GPU)


def test_streams_of_requests_are_refused() -> None:
    arrivals = {"kind": "loop", "count": 2}
    made = Trace.model_validate(
        {**trace(stream("x", kernel("k", 1, 5.0))).model_dump(), "streams": [
            {**stream("x", kernel("k", 1, 5.0)).model_dump(), "arrivals": arrivals}
        ]},
        strict=False,
    )  # fmt: skip
    second = trace(stream("x", kernel("k", 1, 5.0)), stream("y", kernel("l", 1, 5.0)).model_copy(update={"gpu": 1}))
    with pytest.raises(InputError, match=r"^streams\[1\]\.gpu: is 1; expected streams of one GPU, 0"):
        select(second, GPU)
    with pytest.raises(InputError, match=r"^streams\[0\]\.arrivals: is given; expected streams that run once"):
        select(made, GPU)


def test_splits_cover_all_sms_in_steps_of_the_granularity() -> None:
    assert sorted(splits(GPU, 2)) == []  # 4 SMs make no two green contexts of 8
    k40c = load_gpu("k40c")  # has no green contexts: SM by SM
    assert len(list(splits(k40c, 2))) == 14
    assert len(list(splits(load_gpu("h200"), 2))) == 15  # 16 eights


def test_no_stream_with_a_kernel_in_clusters_gets_only_sms_that_hold_none() -> None:
    h200 = load_gpu("h200")
    work = work_of(load_trace(TRACES / "inception_5b_b16.json.gz"), h200)
    judge = Judge(work, Bounds(work, Session(h200)), None, most=1)
    lanes = (("5b.1x1",), ("5b.3x3_reduce", "5b.3x3"), ("5b.5x5_reduce", "5b.5x5"), ("5b.pool_proj",))
    plan = Plan(lanes, {id: "IMPLICIT_PRECOMP_GEMM/TF32" for lane in lanes for id in lane})
    assert judge.allows(plan)
    assert judge.allows(with_split(h200, plan, (2, 9, 3, 2)))  # 16 + 72 + 24 + 20 SMs: of the last, 8 hold clusters
    assert not judge.allows(with_split(h200, plan, (2, 9, 4, 1)))  # 16 + 72 + 32 + 12: the H200 refused it
    others = replace(plan, algorithms={**plan.algorithms, "5b.pool_proj": "IMPLICIT_GEMM/FMA"})
    assert judge.allows(with_split(h200, others, (2, 9, 4, 1)))


# ---- memory by hand


def test_tensors_are_filters_outputs_and_inputs_from_outside_each_counted_once() -> None:
    """`c` and `e` read the same 210 numbers; `d` reads what `c` writes. Four bytes a number."""
    shape = ConvolutionShape(
        batch=2, in_channels=3, in_height=5, in_width=7, out_channels=11, filter_height=3, filter_width=2, padding=0,
        padding_width=1, stride=1,
    )  # fmt: skip
    one_by_one = {"filter_height": 1, "filter_width": 1, "padding_width": 0}
    after = {"in_channels": 11, "in_height": 3, "in_width": 8, "out_channels": 4, **one_by_one}
    shapes = {"c": {}, "d": after, "e": {"out_channels": 2, **one_by_one}}
    c, d, e = (
        convolution(id, [launch(2, 10.0)]).model_copy(update={"shape": shape.model_copy(update=changed)})
        for id, changed in shapes.items()
    )
    filters = 11 * 3 * 3 * 2 + 4 * 11 + 2 * 3
    outputs = 2 * 11 * 3 * 8 + 2 * 4 * 3 * 8 + 2 * 2 * 5 * 7
    work = work_of(trace(stream("x", c, d), stream("y", e)), GPU)
    assert tensor_bytes(work) == 4 * (filters + outputs + 2 * 3 * 5 * 7)
    assert tensor_bytes(work_of(trace(stream("x", kernel("k", 1, 5.0))), GPU)) is None


def test_a_call_alone_takes_its_kernels_one_after_the_other() -> None:
    op = convolution("c", [launch(4, 10.0, stream) for stream in ("main", "internal0", "internal1")])
    work = work_of(trace(stream("x", op, copy("h", 7.0, "c"))), GPU)
    bounds = Bounds(work, Session(GPU))
    assert bounds.alone_us("c", "FFT") == pytest.approx(30.0)
    assert (bounds.alone_us("h"), bounds.least("h")) == (7.0, Least(7.0, (0.0, 0.0, 0.0)))


# ---- the search


@st.composite
def problems(draw: st.DrawFn, most: int = 3) -> Trace:
    """A few convolutions of one or two algorithms, some waiting for others."""
    count = draw(st.integers(2, most))
    ops = []
    for n in range(count):
        choices = [
            (name, draw(st.integers(1, 6)), float(draw(st.integers(3, 15))), draw(st.sampled_from([0, 10, 30])))
            for name in ("A", "B")[: draw(st.integers(1, 2))]
        ]
        waits = [f"c{m}" for m in range(n) if draw(st.booleans())]
        ops.append(choosing(f"c{n}", [(choices[0][0], *choices[0][1:3], 0), *choices[1:]], *waits))
    return trace(*(stream(f"s{n}", op) for n, op in enumerate(ops)))


def every_plan(work: PlannedWork, sharing: str) -> list[Plan]:
    return [
        plan
        for lanes in all_lanes(work.graph)
        for algorithms in all_algorithms(work)
        for plan in shared(GPU, Plan(lanes, algorithms), sharing)
    ]


def replayed(work: PlannedWork, plan: Plan, session: Session) -> float:
    return session.makespan_us(planned_trace(work, plan), plan.policy)


@examples(25)
@given(problems(), st.sampled_from([None, 0, 20, 30]))
def test_the_search_equals_brute_force(made: Trace, limit: int | None) -> None:
    session = Session(GPU)
    selection = select(made, session, memory_bytes=limit, sharing="streams")
    work = work_of(made, GPU, limit)
    plans = [plan for plan in every_plan(work, "streams") if limit is None or memory_bytes(work, plan) <= limit]
    best = min(replayed(work, plan, session) for plan in plans)
    assert selection.complete
    assert selection.best.makespan_us == pytest.approx(best, rel=1e-8)


def test_blocks_that_follow_one_another_are_searched_together_where_plans_are_few() -> None:
    """The stream in which an operation goes on that waits for two others is a choice, too."""
    recorded, gpu = load_trace(TRACES / "inception_3a_b16.json.gz"), load_gpu("h200")
    known = {
        op.id: op.model_copy(update={"alternatives": ()}) for op in recorded.operations() if isinstance(op, Convolution)
    }
    last = known["3a.3x3_reduce"].model_copy(update={"depends_on": ("3a.1x1", "3a.5x5")})
    streams = tuple(stream(op.id, op) for op in (known["3a.1x1"], known["3a.5x5"], last))
    made = recorded.model_copy(update={"streams": streams})
    session = Session(gpu)
    work = work_of(made, gpu)
    every = (planned_trace(work, plan) for plan in every_plan(work, "streams"))
    selection = select(made, session, sharing="streams")
    assert selection.complete
    assert selection.found.makespan_us == min(session.makespan_us(one, "leftover") for one in every)


def test_a_network_joined_from_its_blocks_is_not_called_complete() -> None:
    chain = [choosing(f"c{n}", A_OR_B, *([f"c{n - 1}"] if n else [])) for n in range(6)]
    assert not select(trace(*(stream(op.id, op) for op in chain)), GPU, sharing="streams").complete


def live_at_once(selection: Selection) -> int:
    """The most workspace of operations that ran at once in the replay of a plan."""
    result = selection.session.replay(plan_trace(selection), selection.best.plan.policy)
    sizes = {
        id: selection.work.algorithms[id][name].workspace_bytes or 0
        for id, name in selection.best.plan.algorithms.items()
    }
    runs = [run for run in result.operation_runs if run.operation in sizes]
    return max(sum(sizes[run.operation] for run in runs if run.start_us <= one.start_us < run.end_us) for one in runs)


@examples(20)
@given(problems(most=5), st.sampled_from([0, 10, 30, 60]))
def test_memory_holds_at_every_moment_and_no_baseline_is_better(made: Trace, limit: int) -> None:
    selection = select(made, GPU, memory_bytes=limit, sharing="streams")
    assert live_at_once(selection) <= selection.best.memory_bytes <= limit
    assert all(one.memory_bytes <= limit for _, one in selection.baselines)
    assert selection.best.makespan_us <= min(one.makespan_us for _, one in selection.baselines)
    assert selection.bound.us <= selection.best.makespan_us * (1.0 + 1e-9)
    assert selection.gap >= -1e-9
    memory = [one.memory_bytes for one in selection.frontier]
    times = [one.makespan_us for one in selection.frontier]
    assert memory == sorted(memory) and times == sorted(times, reverse=True)


def test_the_same_twice() -> None:
    made = load_trace(TRACES / "spaa20_table1.json")
    gpu = load_gpu("k40c")
    assert as_json(select(made, gpu)) == as_json(select(made, gpu))


# ---- recorded traces


@pytest.fixture(scope="module", params=[3, pytest.param(4, marks=pytest.mark.release)])
def module(request: pytest.FixtureRequest) -> Selection:
    """The last convolutions of a block of ResNet-50, which has four, with all their algorithms."""
    recorded = load_trace(TRACES / "resnet50_3a.json.gz")
    last = [op.id for op in recorded.operations()][-request.param :]
    made = edit.select(recorded, operations=last)
    return select(made, load_gpu("h200"), memory_bytes=64 * 2**20)


def test_a_recorded_module_is_no_worse_than_any_policy(module: Selection) -> None:
    best = module.found
    assert best.memory_bytes <= 64 * 2**20 and live_at_once(module) <= module.best.memory_bytes
    names = [name for name, _ in module.baselines]
    assert {"serial, fastest", "streams, fastest", "best SM split, fastest"} <= set(names)
    assert best.makespan_us <= module.baselines[0][1].makespan_us
    assert module.bound.us <= best.makespan_us


def test_the_plan_of_a_module_replays_from_its_file(module: Selection, tmp_path: Path) -> None:
    path = tmp_path / "plan.json.gz"
    plan_trace(module).save(path)
    result = module.session.replay(load_trace(path), module.best.plan.policy)
    assert result.makespan_us == pytest.approx(module.best.makespan_us, rel=1e-12)


def test_the_own_streams_are_the_trace_itself(module: Selection) -> None:
    """As a plan the streams of a trace take what the trace takes, to the bit."""
    made = module.work.trace
    lanes = tuple(tuple(op.id for op in one.operations) for one in made.streams)
    work = work_of(made, module.gpu)
    plan = Plan(lanes, {op.id: op.algorithm for op in made.operations() if isinstance(op, Convolution)})
    for policy in ("leftover", *MIXES):
        us = module.session.makespan_us(made, policy)
        planned = planned_trace(work, replace(plan, policy=policy))
        assert module.session.makespan_us(planned, policy) == us


def test_every_operation_of_a_plan_has_its_place(module: Selection) -> None:
    plan = as_json(module)["plan"]
    assert [set(step) for step in plan["operations"]] == [
        {"operation", "algorithm", "workspace_bytes", "micro_batches", "stream", "place", "sms", "waits_for"}
    ] * sum(1 for _ in module.work.trace.operations())
    by_stream = {one["name"]: one["operations"] for one in plan["streams"]}
    for step in plan["operations"]:
        assert by_stream[step["stream"]][step["place"]] == step["operation"]


# ---- the command


def test_json_of_the_command(capsys: Capture, tmp_path: Path) -> None:
    table_1 = str(TRACES / "spaa20_table1.json")
    written = ["-o", str(tmp_path / "plan.json"), "--plot", str(tmp_path / "p.svg")]
    assert cli.main(["select", table_1, "--json", *written]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {"makespan_us", "memory_bytes", "plan", "bound_us"} <= set(content)
    assert content["bound_us"] <= content["makespan_us"]
    assert (tmp_path / "p.svg").read_text().startswith("<?xml")
    policy = content["plan"]["policy"]
    assert cli.main(["replay", str(tmp_path / "plan.json"), "--policy", policy, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["makespan_us"] == content["makespan_us"]
    assert cli.main(["replay", table_1, "--json"]) == 0
    assert content["makespan_us"] <= min(one["makespan_us"] for one in json.loads(capsys.readouterr().out)["results"])


def test_the_table_of_the_command(capsys: Capture) -> None:
    assert cli.main(["select", str(TRACES / "spaa20_table1.json")]) == 0
    out = capsys.readouterr().out
    for title in ("The plan, in the order of launch", "Beside the baselines", "Memory against time", "bound "):
        assert title in out


def test_a_workspace_that_the_trace_lacks_is_no_zero(capsys: Capture) -> None:
    table_1 = str(TRACES / "spaa20_table1.json")
    assert cli.main(["select", table_1]) == 0
    out = capsys.readouterr().out
    assert "memory unknown: the trace lacks the workspace of 2 algorithms of the plan (no limit)" in out
    assert cli.main(["select", table_1, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert {one["memory_bytes"] for one in (content, *content["baselines"], *content["frontier"])} == {None}
    assert cli.main(["select", table_1, "--objective", "memory"]) == 2
    assert "streams[0].operations[0] (3a.3x3): no workspace is known; expected" in capsys.readouterr().err


def test_the_least_memory_is_of_algorithms_whose_workspace_is_known() -> None:
    unknown = ConvolutionAlgorithm(algorithm="U", kernels=(launch(4, 10.0),))
    made = choosing("c", [("A", 4, 10.0, 100)])
    made = made.model_copy(update={"alternatives": (unknown,)})
    assert select(trace(stream("x", made)), GPU, objective="memory").best.plan.algorithms == {"c": "A"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--memory", "-1MiB"],
        ["--memory=-1"],
        ["--memory", "lots"],
        ["--memory", "128"],
        ["--memory", "1e99"],
        ["--memory", "nan"],
        ["--memory", "999999GiB"],
        ["--plot", "p.txt"],
        ["--gpu", "nothing"],
        ["--streams", "nobody's"],
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], capsys: Capture) -> None:
    try:
        status: object = cli.main(["select", str(TRACES / "spaa20_table1.json"), *arguments])
    except SystemExit as end:
        status = end.code
    err = capsys.readouterr().err
    assert status == 2 and err.count("\n") == 1 and "Traceback" not in err, err


def test_a_file_in_no_folder_is_refused_before_the_search(capsys: Capture, tmp_path: Path) -> None:
    out, plot = str(tmp_path / "plan.json"), str(tmp_path / "none" / "p.svg")
    assert cli.main(["select", str(TRACES / "spaa20_table1.json"), "-o", out, "--plot", plot]) == 2
    assert "p.svg: cannot be written (No such file or directory)" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.release
def test_with_more_ways_to_share_no_plan_is_worse() -> None:
    made = load_trace(TRACES / "inception_4a_b16.json.gz")
    found = [select(made, load_gpu("h200"), sharing=kind) for kind in SHARING]
    times = [one.found.expected_us for one in found]  # a smaller gain may be no reason to recommend it
    assert times == sorted(times, reverse=True)
    assert all(one.bound.us <= one.found.makespan_us for one in found)
    assert all(one.found.expected_us <= one.baselines[0][1].expected_us for one in found)
    plain, splits, every = ({one.plan.key for one in selection.seen} for selection in found)
    assert len(plain) < len(splits) < len(every)
    assert found[0].best.plan.key in splits  # only what is replayed to fill the frontier, at last, may differ
    assert found[1].best.plan.key in every


def test_a_limit_below_the_least_on_the_command_line(capsys: Capture, tmp_path: Path) -> None:
    made = trace(stream("x", choosing("c", (("A", 2, 10.0, 4096),))), device="h200")
    made.save(tmp_path / "t.json")
    assert cli.main(["select", str(tmp_path / "t.json"), "--memory", "1KiB", "-o", str(tmp_path / "o.json")]) == 2
    assert capsys.readouterr().err == (
        "--memory: 1,024 bytes of workspace are too few for any plan; expected at least 4,096, for c by A\n"
    )
    assert not (tmp_path / "o.json").exists()


def test_a_cycle_in_a_file_is_one_line(capsys: Capture, tmp_path: Path) -> None:
    made = trace(stream("x", kernel("a", 1, 5.0)), stream("y", kernel("b", 1, 5.0, "a")), device="h200")
    content = made.model_dump(mode="json", exclude_none=True)
    content["streams"][0]["operations"][0]["depends_on"] = ["b"]
    (tmp_path / "t.json").write_text(json.dumps(content))
    assert cli.main(["select", str(tmp_path / "t.json")]) == 2
    err = capsys.readouterr().err
    assert "dependency cycle: " in err and err.count("\n") == 1


def test_streams_by_name_are_kept() -> None:
    made = trace(*(stream(f"s{n}", choosing(f"c{n}", A_OR_B)) for n in range(3)))
    ways = {"sequential": (1, 30.0), "branches": (3, 21.0), "nimble": (3, 21.0), "opara": (3, 21.0), "ios": (3, 21.0)}
    for name, (streams, us) in ways.items():  # B and B side by side, then A: its launch latency passes meanwhile
        selection = select(made, GPU, streams=name, sharing="streams")
        assert len(selection.best.plan.lanes) == streams, name
        assert selection.best.makespan_us == pytest.approx(us), name


def test_a_plan_that_takes_no_time(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "copy.json"
    trace(stream("a", copy("c", 0.0)), device="h200").save(path)
    assert cli.main(["select", str(path), "--no-cache"]) == 0
    assert "1.000x over serial by the same algorithms, 1.000x over serial by the fastest" in capsys.readouterr().out


@pytest.mark.release
def test_select_and_replay_have_one_baseline(tmp_path: Path, capsys: Capture) -> None:
    """What `gpusim select` prints as over serial is what `gpusim replay` prints of the plan that it writes."""
    plan = tmp_path / "plan.json"
    source = TRACES / "resnet50_3a.json.gz"
    assert cli.main(["select", str(source), "--sharing", "streams", "--json", "-o", str(plan)]) == 0
    selected = json.loads(capsys.readouterr().out)
    policy = selected["plan"]["policy"]
    assert cli.main(["replay", str(plan), "--policy", policy, "--policy", "serial", "--json"]) == 0
    replayed = {entry["policy"]: entry for entry in json.loads(capsys.readouterr().out)["results"]}
    for name in ("makespan_us", "speedup_vs_serial"):
        assert replayed[policy][name] == pytest.approx(selected[name], rel=1e-9)
    assert cli.main(["select", str(source), "--sharing", "streams"]) == 0
    said = f"{selected['speedup_vs_serial']:.3f}x over serial by the same algorithms, "
    assert said in capsys.readouterr().out


def test_complete_is_said_only_where_no_plan_is_better() -> None:
    """Few plans, yet more to replay than the search may: with leave for all of them it is complete, and no worse."""
    wide: tuple[Choice, ...] = (("A", 3, 10.0, 100), ("B", 5, 12.0, 0))
    made = trace(*(stream(f"s{n}", choosing(f"c{n}", wide)) for n in range(3)))
    everything = select(made, GPU, sharing="streams")
    assert everything.complete
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "REPLAYS", 12)
        few = select(made, GPU, sharing="streams")
    assert not few.complete
    assert few.best.makespan_us >= everything.best.makespan_us
