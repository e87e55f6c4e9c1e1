"""Programs: the trace format's second version, traces side by side, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tiny import Operation, kernel, spans, stream, times, tiny, trace

import gpusim
from gpusim import InputError, Program, Trace, cli, load_trace
from gpusim.sweeps.workload import workload
from gpusim.trace.edit import merge, select
from gpusim.trace.file import parse_trace
from gpusim.trace.kernels import Mix, WarpStalls
from gpusim.trace.operations import Kernel, LoopArrivals, PoissonArrivals

ROOT = Path(__file__).resolve().parent.parent


def two_programs(**of_first: Any) -> Trace:
    """Program a: a2 waits for a1, on another stream. Program b: one stream."""
    first = [stream("a1", kernel("a1", 4, 5.0)), stream("a2", kernel("a2", 4, 5.0, "a1"))]
    second = [stream("b1", kernel("b1", 4, 5.0))]
    programs = [Program(name="a", streams=first, **of_first), Program(name="b", streams=second)]
    return Trace(name="two", device="h200", programs=programs)


def programs(**of: tuple[Operation, ...]) -> Trace:
    """Programs of streams with one operation each."""
    made = [Program(name=name, streams=[stream(op.id, op) for op in ops]) for name, ops in of.items()]
    return Trace(name="by hand", device="tiny", programs=made)


def waiting(id: str, blocks: int, duration_us: float) -> Kernel:
    """A kernel whose blocks only wait, so that others on their SMs take nothing from them; eight warps a block."""
    plain = kernel(id, blocks, duration_us, threads=256)
    mix = Mix(issue_cycles=1.0, active_cycles_avg=1e6, active_cycles_max=1e6, stalls=WarpStalls(wait=1.0))
    return plain.model_copy(update={"kernel": plain.kernel.model_copy(update={"mix": mix})})


def members(of: Trace) -> dict[str, tuple[str, ...]]:
    return {program.name: program.streams for program in of.programs}


def content(**changes: Any) -> dict[str, Any]:
    return {**json.loads(two_programs().model_dump_json(exclude_none=True)), **changes}


def problem(of: dict[str, Any]) -> str:
    """What reading a file says, the same letter by letter as a Python object would."""
    with pytest.raises(InputError) as caught:
        parse_trace(json.dumps(of).encode())
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- the format


def test_a_trace_is_made_of_programs_or_of_streams() -> None:
    made = two_programs()
    assert (made.version, [one.name for one in made.streams]) == (2, ["a1", "a2", "b1"])
    assert members(made) == {"a": ("a1", "a2"), "b": ("b1",)}
    named = Trace(
        name="two", device="h200", streams=made.streams, programs=[Program(name="a", streams=["a1", "a2"])]
    )  # b1 is in no program
    assert members(named) == {"a": ("a1", "a2"), "b1": ("b1",)}
    assert Trace(name="two", device="h200", streams=made.streams).version == 1


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    made = two_programs(priority=3, arrivals=PoissonArrivals(rate_per_s=10.0, count=4, seed=1))
    for name in ("two.json", "two.json.gz"):
        made.save(tmp_path / name)
        assert load_trace(tmp_path / name) == made
    assert pickle.loads(pickle.dumps(made)) == made
    written = json.loads((tmp_path / "two.json").read_text())
    assert written["version"] == 2
    assert written["programs"][0] == {
        "name": "a",
        "streams": ["a1", "a2"],
        "priority": 3,
        "arrivals": {"kind": "poisson", "rate_per_s": 10.0, "count": 4, "seed": 1},
    }
    assert all("priority" not in one and "arrivals" not in one for one in written["streams"])


def test_a_program_gives_its_streams_their_priority_and_arrivals() -> None:
    loop = LoopArrivals(count=2)
    made = two_programs(priority=3, arrivals=loop)
    assert [one.priority for one in made.streams] == [3, 3, 0]
    assert [one.arrivals for one in made.streams] == [loop, loop, None]
    assert [one.priority for one in made.programs] == [3, 0]


def test_version_1_says_nothing_of_programs_and_dependencies_do() -> None:
    """a and c wait for one another; b does not."""
    one = trace(
        stream("a", kernel("a", 4, 5.0), kernel("a2", 4, 5.0, "c")),
        stream("b", kernel("b", 4, 5.0)),
        stream("c", kernel("c", 4, 5.0, "a")),
    )
    assert (one.version, members(one)) == (1, {"a": ("a", "c"), "b": ("b",)})
    assert "programs" not in json.loads(one.model_dump_json())
    assert parse_trace(one.model_dump_json(exclude_none=True).encode()) == one


def test_every_stream_of_a_recorded_module_is_a_program_and_a_network_is_one() -> None:
    module = load_trace(ROOT / "traces" / "inception_3a.json.gz")
    assert members(module) == {one.name: (one.name,) for one in module.streams}
    network = load_trace(ROOT / "traces" / "googlenet_forward.json.gz")
    assert members(network) == {network.streams[0].name: tuple(one.name for one in network.streams)}


def test_a_copy_with_other_streams_keeps_the_programs_that_are_left() -> None:
    made = two_programs()
    assert members(made.model_copy(update={"streams": made.streams[1:]})) == {"a": ("a2",), "b": ("b1",)}
    loop = made.streams[2].model_copy(update={"arrivals": LoopArrivals(count=2)})
    assert made.model_copy(update={"streams": (*made.streams[:2], loop)}).programs[1].arrivals == loop.arrivals
    one = trace(*made.streams)
    alone = one.streams[1].operations[0].model_copy(update={"depends_on": ()})
    apart = one.model_copy(update={"streams": (one.streams[0], stream("a2", alone), one.streams[2])})
    assert len(one.programs) == 2 and len(apart.programs) == 3


def test_the_schema_has_programs() -> None:
    schema = gpusim.trace.format.trace_schema()
    assert schema["properties"]["version"]["enum"] == [1, 2]
    assert {"version", "streams"} <= set(schema["required"]) and "programs" not in schema["required"]
    assert set(schema["$defs"]["Program"]["properties"]) == {"name", "streams", "priority", "arrivals"}


# ---- what is refused


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"programs": [{"name": "a", "streams": ["a1", "a3"]}]},
            "programs[0].streams[1]: names stream 'a3'; expected one of a1, a2, b1",
        ),
        (
            {"programs": [{"name": "a", "streams": ["a1"]}, {"name": "a", "streams": ["a2"]}]},
            "programs[1].name: 'a' is also the name of programs[0]; expected unique program names",
        ),
        (
            {"programs": [{"name": "b1", "streams": ["a1", "a2"]}]},
            "programs[0].name: 'b1' is also the name of a stream in no program, which is one by itself; "
            "expected unique program names",
        ),
        (
            {"programs": [{"name": "a", "streams": ["a1"]}, {"name": "b", "streams": ["a1"]}]},
            "programs[1].streams[0]: 'a1' is also in programs[0]; expected each stream once",
        ),
        ({"programs": [{"name": "a", "streams": []}]}, "programs[0].streams: is a list of 0; expected at least 1"),
        ({"programs": [{"name": "a b", "streams": ["a1"]}]}, "programs[0].name: is 'a b'; expected letters, digits"),
        ({"programs": [{"streams": ["a1"]}]}, "programs[0].name: missing; expected unique in the trace"),
        ({"programs": {"a": ["a1"]}}, "programs: is an object; expected a list"),
        ({"programs": [["a1"]]}, "programs[0]: is a list of 1; expected an object"),
        ({"programs": [{"name": "a", "streams": [{"name": "a1"}]}]}, "programs[0].streams[0]: is an object; expected"),
        ({"version": 3}, "version: is 3; expected 1 or 2, the versions of the trace format that this gpusim reads"),
        ({"version": 1}, "programs: is given in version 1; expected version 2 of the format"),
        ({"programs": [{"name": "a", "streams": ["a1"], "priority": -1}]}, "programs[0].priority: is -1; expected"),
        (
            {"programs": [{"name": "a", "streams": ["a1"], "arrivals": {"kind": "loop", "count": 2}}]},
            "streams[1].operations[0].depends_on[0]: crosses streams, and stream 'a1' has arrivals",
        ),
    ],
)
def test_a_trace_whose_programs_are_wrong_is_one_line(
    changes: dict[str, Any], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert problem(content(**changes)).startswith(expected)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(content(**changes)))
    for argv in (["replay", str(path)], ["trace", "check", str(path)]):
        assert cli.main(argv) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.splitlines()[0].startswith(f"{path}: {expected}")


def test_a_stream_does_not_contradict_its_program() -> None:
    other = content()
    other["streams"][0]["priority"] = 2
    other["programs"][0]["priority"] = 1
    assert problem(other).startswith("streams[0].priority: is 2; expected 1, the priority of programs[0]")
    other = content()
    other["streams"][0]["arrivals"] = {"kind": "loop", "count": 2}
    assert problem(other).startswith("streams[0].arrivals: is given, and program 'a' has no arrivals; expected")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"programs": 3}, "programs: is 3; expected a list"),
        ({"programs": [3]}, "programs[0]: is 3; expected an object"),
        ({"programs": [stream("a", kernel("a", 1, 5.0))]}, "programs[0]: is "),
        ({"streams": [Program(name="a", streams=["a"])]}, "streams[0]: is "),
    ],
)
def test_an_object_of_a_wrong_type_is_one_line(given: dict[str, Any], expected: str) -> None:
    streams = [stream("a", kernel("a", 1, 5.0))]
    with pytest.raises(InputError) as caught:
        Trace(**{"name": "t", "device": "h200", "streams": streams, **given})
    assert str(caught.value).startswith(expected) and "\n" not in str(caught.value)
    for wrong in (3, "a", [3], [None]):
        with pytest.raises(InputError, match=r"^streams"):
            Program(name="a", streams=wrong)
    with pytest.raises(InputError, match=r"^programs\[0\].streams\[0\]: names stream 'x'"):
        Trace(name="t", device="h200", streams=streams, programs=[Program(name="p", streams=["x"])])


# ---- side by side, and parts


def test_each_of_several_traces_is_a_program_of_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = trace(stream("s0", kernel("k0", 4, 5.0)), stream("s1", kernel("k1", 4, 5.0)), device="h200")
    one.save(tmp_path / "left.json")
    one.save(tmp_path / "right.json")
    merged = tmp_path / "both.json"
    assert (
        cli.main(["trace", "merge", *(str(tmp_path / f"{n}.json") for n in ("left", "right")), "-o", str(merged)]) == 0
    )
    both = load_trace(merged)
    assert members(both) == {"left": ("left/s0", "left/s1"), "right": ("right/s0", "right/s1")}
    capsys.readouterr()
    assert cli.main(["trace", "show", str(merged)]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["left", "2", "2", "10.0", "0", "1"] in lines
    assert members(merge([both, one], ["both", "left"], "all")) == {
        "both/left": ("left/s0", "left/s1"),
        "right": ("right/s0", "right/s1"),
        "left/left": ("s0", "s1"),
    }


def test_streams_with_arrivals_stay_programs_of_their_own() -> None:
    served = trace(stream("s", kernel("k", 4, 5.0), arrivals=LoopArrivals(count=2)), stream("t", kernel("l", 4, 5.0)))
    other = trace(stream("u", kernel("m", 4, 5.0)))
    assert members(merge([served, other], ["x", "y"], "all")) == {"s": ("s",), "t": ("t",), "y": ("u",)}


def test_a_table_may_name_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, out = tmp_path / "kernels.csv", tmp_path / "made.json"
    head = "kernel,blocks,threads_per_block,registers_per_thread,duration_us,stream,program\n"
    table.write_text(head + "k,1,32,32,5,s0,a\nk,1,32,32,5,s1,a\nk,1,32,32,5,s0,a\nk,1,32,32,5,s2,\n")
    assert cli.main(["trace", "new", "--from", str(table), "-o", str(out)]) == 0
    assert members(load_trace(out)) == {"a": ("s0", "s1"), "s2": ("s2",)}
    table.write_text(head + "k,1,32,32,5,,a\nk,1,32,32,5,,b\nk,1,32,32,5,,\n")
    assert cli.main(["trace", "new", "--from", str(table), "-o", str(out)]) == 0
    assert members(load_trace(out)) == {"a": ("a",), "b": ("b",), "main": ("main",)}
    capsys.readouterr()
    for rows, expected in (
        ("k,1,32,32,5,s0,a\nk,1,32,32,5,s0,b\n", "line 3: puts stream 's0' into program 'b'; expected 'a', as before"),
        ("k,1,32,32,5,s0,a b\n", "program: is 'a b'; expected letters, digits"),
        ("k,1,32,32,5,s0,s1\nk,1,32,32,5,s1,\n", "program: 's1' is also the name of a stream in no program"),
    ):
        table.write_text(head + rows)
        assert cli.main(["trace", "new", "--from", str(table), "-o", str(out)]) == 2
        assert capsys.readouterr().err.startswith(f"{table}: {expected}")


def test_a_program_can_be_selected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert members(select(two_programs(priority=2), programs=["a"])) == {"a": ("a1", "a2")}
    path, out = tmp_path / "two.json", tmp_path / "b.json"
    two_programs().save(path)
    assert cli.main(["trace", "select", str(path), "--program", "b", "-o", str(out)]) == 0
    assert members(load_trace(out)) == {"b": ("b1",)}
    capsys.readouterr()
    assert cli.main(["trace", "select", str(path), "--program", "c", "-o", str(out)]) == 2
    assert "--program: 'c' matches nothing; expected a name or pattern among a, b" in capsys.readouterr().err


def test_two_streams_of_a_program_are_programs_where_a_sweep_pairs_them() -> None:
    one = programs(a=(kernel("a1", 4, 5.0), kernel("a2", 4, 5.0)), b=(kernel("b1", 4, 5.0),))
    pair = workload(one, "stream-pairs", ("a1", "a2"))
    assert members(pair) == {"a1": ("a1",), "a2": ("a2",)}
    assert members(workload(one, "operation-pairs", ("a1", "a2"))) == members(pair)
    assert members(workload(one, "trace", ())) == members(one)


# ---- a split between programs


def test_streams_of_a_program_share_its_part_of_a_split() -> None:
    """Four SMs, one block each, 10 us a block, 1 us before the first. Each program has two SMs.

    a: 4 blocks on two SMs at 1 and 11; the second stream's line is behind them, at 21 and 31. b: at 1 and 11.
    """
    made = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(kernel("b1", 4, 11.0),))
    for policy in ("inter-sm:by=program,sms=2+2", "inter-sm:by=program,dynamic=false", "mps:by=program,percent=50"):
        found = gpusim.replay(made, tiny(), policy)
        assert times(found) == {"a1": (0.0, 21.0), "a2": (0.0, 41.0), "b1": (0.0, 21.0)}, policy
        assert {sm for sm, *_ in [*spans(found, "a1"), *spans(found, "a2")]} == {0, 1}
    moved = gpusim.replay(made, tiny(), "inter-sm:by=program")  # at 21 b has ended, and a has the whole GPU
    assert times(moved) == {"a1": (0.0, 21.0), "a2": (0.0, 31.0), "b1": (0.0, 21.0)}
    with pytest.raises(InputError, match=r"^policy inter-sm: sms=2\+2 has 2 shares for 3 streams; expected one each"):
        gpusim.replay(made, tiny(), "inter-sm:sms=2+2")


def test_other_policies_divide_by_program_in_the_same_way() -> None:
    """Green contexts of eight SMs: two for two programs, where three streams would make the third wait."""
    made = programs(a=(kernel("a1", 8, 11.0), kernel("a2", 8, 11.0)), b=(kernel("b1", 8, 11.0),))
    contexts = gpusim.replay(made, tiny(16), "green-context:by=program")
    assert times(contexts) == {"a1": (0.0, 11.0), "a2": (0.0, 21.0), "b1": (0.0, 11.0)} and not contexts.notes
    assert any("2 parts for 3 streams" in note for note in gpusim.replay(made, tiny(16), "green-context").notes)
    narrow = programs(a=(waiting("a1", 8, 11.0), waiting("a2", 8, 11.0)), b=(waiting("b1", 8, 11.0),))
    ends = {name: end for name, (_, end) in times(gpusim.replay(narrow, tiny(), "quota:by=program,blocks=a:1")).items()}
    assert ends["a1"] == pytest.approx(ends["b1"] + 10.0)  # b holds two blocks on each SM at once, a1 one after another
    other = times(gpusim.replay(narrow, tiny(), "quota:by=program,blocks=b:1"))  # a has all four places until 11
    assert [other[name][1] for name in ("a1", "b1")] == pytest.approx([11.0, 31.0])
    slices = gpusim.replay(made, tiny(16), "time-slicing:by=program")
    assert max(run.end_us for run in slices.kernel_runs if run.operation != "b1") < slices.makespan_us


@pytest.mark.parametrize(("policy", "sms"), [("mps:percent=25+75", 4), ("mig:slices=3g+4g", 132), ("time-slicing", 4)])
def test_each_program_is_a_process_where_there_are_several(policy: str, sms: int) -> None:
    """Policies of processes divide by program. In a trace of one program each stream counts as a process."""
    several, gpu = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(kernel("b1", 4, 11.0),)), tiny(sms)
    joined = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)))
    by = policy + ("," if ":" in policy else ":") + "by="
    for made, default in ((several, "program"), (joined, "stream")):
        assert times(gpusim.replay(made, gpu, policy)) == times(gpusim.replay(made, gpu, by + default))
        assert times(gpusim.replay(made, tiny(), "inter-sm")) == times(
            gpusim.replay(made, tiny(), "inter-sm:by=stream")
        )


def test_percentages_are_of_programs_by_hand() -> None:
    """As halves above: a has two kernels of four blocks, one behind the other on two SMs, and b has the other two."""
    made = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(kernel("b1", 4, 11.0),))
    found = times(gpusim.replay(made, tiny(), "mps:percent=50+50"))
    assert found == {"a1": (0.0, 21.0), "a2": (0.0, 41.0), "b1": (0.0, 21.0)}


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("quota:by=program,blocks=c:1", "policy quota: blocks names program 'c'; expected one of a, b"),
        (
            "inter-sm:by=program,sms=a:8+b:8",
            "policy inter-sm: sms has 'a:8'; expected a number of SMs, one for each stream or program, joined by +",
        ),
        ("inter-sm:by=program,sms=1+1+2", "policy inter-sm: sms=1+1+2 has 3 shares for 2 programs; expected one each"),
        (
            "mps:percent=10+20+30",
            "policy mps: percent has 3 values for 2 programs; expected one each: a, b; or by=stream and one",
        ),
        (
            "mps:by=stream,percent=10+20",
            "policy mps: percent has 2 values for 3 streams; expected one each: a1, a2, b1; or by=program and one",
        ),
        (
            "green-context:sms=8+8",
            "policy green-context: sms=8+8 has 2 shares for 3 streams; expected one each: a1, a2, b1; or by=program",
        ),
        ("inter-sm:by=kernel", "policy inter-sm: by=kernel is unknown; expected one of stream, program"),
    ],
)
def test_a_split_for_a_program_that_is_not_there_is_one_line(policy: str, expected: str) -> None:
    made = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(kernel("b1", 4, 11.0),))
    with pytest.raises(InputError) as caught:
        gpusim.replay(made, tiny(16), policy)
    assert str(caught.value).startswith(expected)


def test_a_policy_that_cannot_divide_by_program_does_not_say_that_it_can() -> None:
    made = programs(a=(kernel("a1", 4, 11.0), kernel("a2", 4, 11.0)), b=(kernel("b1", 4, 11.0),))
    with pytest.raises(InputError, match=r"tpc-stealing: sms=2\+2 has 2 shares for 3 streams; .* a1, a2, b1$"):
        gpusim.replay(made, tiny(), "tpc-stealing:sms=2+2")


def test_programs_on_two_gpus_have_their_parts_on_each() -> None:
    """Each GPU has a stream of both programs; one has the parts in the order of the programs."""
    streams = [
        stream(name, kernel(name, 4, 11.0)).model_copy(update={"gpu": gpu})
        for name, gpu in (("a0", 0), ("b0", 0), ("a1", 1), ("b1", 1))
    ]
    both = [Program(name=name, streams=[f"{name}0", f"{name}1"]) for name in "ab"]
    found = gpusim.replay(
        Trace(name="two", device="h200", streams=streams, programs=both), tiny(), "inter-sm:by=program,sms=1+3"
    )
    assert [len({sm for sm, *_ in spans(found, name)}) for name in ("a0", "b0", "a1", "b1")] == [1, 3, 1, 3]
