"""`gpusim trace`: parts keep their order, merged traces do not collide, what is wrong is said in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import test_import_kineto
import test_import_ncu
import test_import_nsys
import test_import_nvprof
from profiles import written

import gpusim
from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.io import nsys
from gpusim.trace.edit import merge, select
from gpusim.trace.file import load_trace
from gpusim.trace.format import Trace
from gpusim.trace.kernels import ALL_COUNTERS
from gpusim.trace.operations import Collective, Convolution, Stream

REPOSITORY = Path(__file__).resolve().parent.parent
INCEPTION = REPOSITORY / "traces" / "inception_3a.json.gz"


def trace_of(device: str = "h200", **streams: dict[str, tuple[str, ...]]) -> Trace:
    """A trace of streams; each is its operations' ids with what they depend on."""
    launch = {"name": "k", "grid": (1, 1, 1), "block": (32, 1, 1), "registers_per_thread": 8, "duration_us": 1.0}
    content: dict[str, Any] = {
        "version": 1,
        "name": "t",
        "device": device,
        "streams": tuple(
            {
                "name": name,
                "operations": tuple(
                    {"id": id, "kind": "kernel", "depends_on": waits, "kernel": launch}
                    for id, waits in operations.items()
                ),
            }
            for name, operations in streams.items()
        ),
    }
    return Trace.model_validate(content)


def waits(trace: Trace) -> dict[str, tuple[str, ...]]:
    return {operation.id: operation.depends_on for operation in trace.operations()}


def test_what_is_left_out_still_orders_the_rest() -> None:
    trace = trace_of(a={"a1": (), "a2": ()}, b={"b1": ("a2",), "b2": ()}, c={"c1": ("b2",)})
    assert waits(select(trace, streams=["a", "c"])) == {"a1": (), "a2": (), "c1": ("a2",)}
    assert waits(select(trace, operations=["a1", "c*"])) == {"a1": (), "c1": ("a1",)}
    assert waits(select(trace)) == waits(trace)


def test_select_names_what_matches_nothing() -> None:
    trace = trace_of(a={"a1": ()}, b={"b1": ()})
    with pytest.raises(InputError, match="streams: 'x' matches nothing; expected a name or pattern among a, b"):
        select(trace, streams=["x"])
    many = trace_of(**{f"s{n}": {f"o{n}": ()} for n in range(10)})
    with pytest.raises(InputError, match="a name or pattern among s0, s1, s2, s3, s4, s5, s6, s7 and 2 more"):
        select(many, streams=["x"])
    with pytest.raises(InputError, match="algorithms: 'FFT' matches nothing"):
        select(trace, algorithms=["FFT"])
    with pytest.raises(InputError, match="none of these is on these streams"):
        select(trace, streams=["a"], operations=["b1"])


def test_selected_algorithm_changes_places_with_the_one_before() -> None:
    trace = load_trace(INCEPTION)
    chosen = select(trace, algorithms=["IMPLICIT_GEMM/FMA"])
    for old, new in zip(trace.operations(), chosen.operations(), strict=True):
        assert isinstance(old, Convolution)
        assert isinstance(new, Convolution)
        assert new.algorithm == "IMPLICIT_GEMM/FMA"
        before = {a.algorithm for a in (old.selected, *old.alternatives)}
        assert {a.algorithm for a in (new.selected, *new.alternatives)} == before


def test_merged_traces_keep_names_apart_only_where_they_collide() -> None:
    first, second = trace_of(a={"a1": (), "a2": ()}), trace_of(b={"b1": ()})
    assert [stream.name for stream in merge([first, second], ["x", "y"], "both").streams] == ["a", "b"]
    twice = merge([first, trace_of(a={"a1": (), "b1": ("a1",)})], ["x", "x"], "twice")
    assert [stream.name for stream in twice.streams] == ["x.1/a", "x.2/a"]
    assert waits(twice) == {"x.1/a1": (), "x.1/a2": (), "x.2/a1": (), "x.2/b1": ("x.2/a1",)}


def with_collective(name: str) -> Trace:
    """Two streams that meet."""

    def meeting(id: str) -> Collective:
        return Collective(id=id, kind="collective", name=name, what="all_reduce", ranks=2, bytes=8, duration_us=1.0)

    streams = tuple(Stream(name=f"s{n}", operations=(meeting(f"m{n}"),)) for n in range(2))
    return Trace(version=1, name="t", device="h200", streams=streams)


def test_collectives_of_merged_traces_stay_apart() -> None:
    merged = merge([with_collective("ar"), with_collective("ar")], ["x", "y"], "both")
    assert [op.name for op in merged.operations() if isinstance(op, Collective)] == ["x/ar", "x/ar", "y/ar", "y/ar"]


def test_prefixes_of_merged_traces_differ() -> None:
    one = trace_of(a={"a1": ()})
    names = [stream.name for stream in merge([one, one, one], ["one", "one", "one.1"], "all").streams]
    assert len(set(names)) == 3 and names[2] == "one.1/a"


def test_a_part_that_is_no_trace_is_one_line() -> None:
    with pytest.raises(InputError, match=r"streams\[0\].operations\[0\].ranks: "):
        select(with_collective("ar"), ["s0"])
    long = trace_of(a={"i" * 200: ()})
    with pytest.raises(InputError, match=r"streams\[0\].operations\[0\].id: .*at most 200 characters"):
        merge([long, long], ["x", "y"], "both")


def test_traces_of_several_gpus_do_not_merge() -> None:
    with pytest.raises(InputError, match="device: traces of h200, v100; expected traces recorded on one GPU"):
        merge([trace_of(a={"a1": ()}), trace_of("v100", b={"b1": ()})], ["x", "y"], "both")


def test_traces_are_merged_in_python(tmp_path: Path) -> None:
    """By path or object, each a program of the name of its file or its own; wrong use is one line."""
    prefill, decode = (
        gpusim.load_trace(Path(__file__).parents[1] / "traces" / f"transformer_{name}.json.gz")
        for name in ("prefill", "decode")
    )
    prefill.save(tmp_path / "p.json")
    both = gpusim.merge([str(tmp_path / "p.json"), decode])
    assert [program.name for program in both.programs] == ["p", "transformer_decode"]
    assert both.name == "p+transformer_decode"
    for traces, names, said in (
        (prefill, (), "a list of traces"),
        ([], (), "a list of traces"),
        ([prefill], "ab", "2 for 1"),
    ):
        with pytest.raises(InputError, match=said):
            gpusim.merge(traces, names)  # type: ignore[arg-type]


def test_convert_and_back_is_the_same(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.json", tmp_path / "b.json.gz"
    assert main(["trace", "convert", str(INCEPTION), "-o", str(plain)]) == 0
    assert main(["trace", "convert", str(plain), "-o", str(packed)]) == 0
    assert load_trace(packed) == load_trace(INCEPTION)


@pytest.mark.parametrize("action", ["select", "merge", "convert"])
def test_the_trace_that_is_read_is_not_overwritten(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    trace_of(a={"a1": ()}).save(path)
    before = path.read_bytes()
    assert main(["trace", action, str(path), "-o", f"{tmp_path}/./a.json"]) == 2
    told = "a.json: is read as well as written; expected another file to write to\n"
    assert capsys.readouterr().err == f"{tmp_path}/./{told}"
    assert path.read_bytes() == before


def test_check_says_of_each_whether_it_is_sound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text("{}")
    assert main(["trace", "check", str(INCEPTION), str(bad)]) == 2
    output = capsys.readouterr()
    assert output.out == f"{INCEPTION}: sound, 4 streams, 6 operations, 12 kernels\n"
    assert output.err.count("\n") == 1
    assert main(["trace", "check", str(INCEPTION)]) == 0


def test_check_says_where_the_gpu_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.json"
    path.write_text(
        (REPOSITORY / "traces" / "spaa20_table1.json").read_text().replace('"device": "k40c"', '"device": "gtx1"')
    )
    assert main(["trace", "check", str(path)]) == 0
    unknown = "gtx1 does not ship: whether its SMs hold a block was not checked"
    assert capsys.readouterr().out == f"{path}: sound, 2 streams, 2 operations, 2 kernels; {unknown}\n"


@pytest.mark.parametrize(
    ("device", "meant"),
    [("K40c", "k40c"), ("Tesla K40c", "k40c"), ("NVIDIA H200", "h200"), ("RTX_3090", "rtx3090")],
)
def test_check_knows_a_gpu_by_its_other_names(
    device: str, meant: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.json"
    trace_of(device, a={"a1": ()}).save(path)
    assert main(["trace", "check", str(path)]) == 2
    told = f"{path}: device: is {device!r}; expected {meant}, its name in `gpusim gpus`\n"
    assert capsys.readouterr() == ("", told)


def faults_told(content: dict[str, Any], path: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The places and problems that `gpusim trace check` tells of a trace."""
    path.write_text(json.dumps(content))
    assert main(["trace", "check", str(path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    return [line.removeprefix(f"{path}: ").split("; expected")[0] for line in output.err.splitlines()]


def test_check_tells_every_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    sound = trace_of(a={"a1": (), "a2": ()}, b={"b1": ("a1",), "b2": ("a2",)})
    content = sound.model_dump(mode="json", exclude_none=True)
    content["device"] = 5
    content["streams"][0]["priority"] = -1
    content["streams"][0]["operations"][1]["kernel"]["grid"] = [0, 1, 1]
    del content["streams"][1]["operations"][0]["kernel"]["duration_us"]
    content["streams"][1]["operations"][1]["kind"] = "kernal"
    first = load_error(content, path)
    told = faults_told(content, path, capsys)
    assert told == [
        "device: is 5",
        "streams[0].priority: is -1",
        "streams[0].operations[1].kernel.grid[0]: is 0",
        "streams[1].operations[0].kernel.duration_us: missing",
        "streams[1].operations[1].kind: is 'kernal'",
    ]
    assert first in told
    content = sound.model_dump(mode="json", exclude_none=True)
    content["streams"][0]["operations"][1]["depends_on"] = ["x", "y"]
    assert faults_told(content, path, capsys) == [
        "streams[0].operations[1].depends_on[0]: unknown operation 'x'",
        "streams[0].operations[1].depends_on[1]: unknown operation 'y'",
    ]
    content["streams"][0]["operations"][1]["depends_on"] = [f"x{n}" for n in range(30)]
    assert len(faults_told(content, path, capsys)) == 21
    assert faults_told({"version": 1}, path, capsys)[0].endswith(": missing")
    assert faults_told({"version": 3, "streams": [1]}, path, capsys) == ["version: is 3"]
    assert faults_told({"version": 1, "streams": [1]}, path, capsys)[-1] == "streams[0]: is 1"


def load_error(content: dict[str, Any], path: Path) -> str:
    """The place and problem with which reading it stops."""
    path.write_text(json.dumps(content))
    with pytest.raises(InputError) as caught:
        load_trace(path)
    return f"{caught.value.place}: {caught.value.problem}"


def test_check_finds_kernels_that_cannot_have_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(a={"a1": ()})
    path = tmp_path / "a.json"
    trace.save(path)
    path.write_text(path.read_text().replace('"duration_us"', '"static_shared_memory_bytes": 300000, "duration_us"'))
    assert "static_shared_memory_bytes" in path.read_text()
    path.write_text(path.read_text().replace('"static_shared_memory_bytes": 0,', ""))
    assert main(["trace", "check", str(path)]) == 2
    assert "streams[0].operations[0]: a block asks for more shared memory than h200 has" in capsys.readouterr().err


def test_show_says_what_is_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.json"
    trace_of(a={"a1": ()}).save(path)
    assert main(["trace", "show", str(path)]) == 0
    output = capsys.readouterr().out
    assert "unknown" in output
    assert "estimated" in output
    assert "32, blocks" in output
    assert main(["trace", "show", str(INCEPTION)]) == 0
    assert "counted" in capsys.readouterr().out


def show_of(launches: list[dict[str, Any]], path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What `gpusim trace show` prints of a trace of some kernels in one stream."""
    content = trace_of(a={f"a{n}": () for n in range(len(launches))}).model_dump(mode="json", exclude_none=True)
    for operation, launch in zip(content["streams"][0]["operations"], launches, strict=True):
        operation["kernel"] |= launch
    path.write_text(json.dumps(content))
    assert main(["trace", "show", str(path)]) == 0
    return capsys.readouterr().out


def test_show_never_prints_what_is_unknown_as_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "show", str(REPOSITORY / "traces" / "spaa20_table1.json")]) == 0
    output = capsys.readouterr().out
    assert output.count("unknown") == 2 and output.count("estimated") == 3  # a column's title and two kernels
    assert "counted" not in output
    written = {"mix": {"dram_write_bytes": 3e6}}
    output = show_of([written, {}], tmp_path / "a.json", capsys)
    assert "> 3.0" in output
    others = [name for name in ALL_COUNTERS if name != "dram_write_bytes"]
    assert f"partly, without {', '.join(others)} (1 of 2 launches); 1 of 2 estimated" in output.replace("\n", " ")
    counters = {name: 1.0 for name in ALL_COUNTERS if name != "stalls"}
    stalls = {"selected": 1.0, "not_selected": 1.0, "long_scoreboard": 1.0}
    whole = {"mix": {**counters, "stalls": stalls}}
    borrowed = {"mix": {**whole["mix"], "estimated": True}}
    assert "counted; 1 of 3 estimated" in show_of([whole, borrowed, whole], tmp_path / "a.json", capsys)
    output = show_of([{"name": "x", **written}, {"name": "y"}], tmp_path / "a.json", capsys)
    assert f"partly, without {', '.join(others)}\n" in output


def test_show_says_that_registers_are_unknown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = show_of([{"registers_per_thread": 0, "block": [256, 1, 1]}], tmp_path / "a.json", capsys)
    assert "at most 8, registers unknown" in output


def test_names_in_show_do_not_look_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"{'a' * 50}{middle}{'b' * 50}" for middle in "xy"]
    output = show_of([{"name": name} for name in [*names, "c" * 500]], tmp_path / "a.json", capsys)
    shown = [line.split()[0] for line in output.splitlines()[-3:]]
    assert len(set(shown)) == 3
    assert max(map(len, shown)) <= 101


def test_a_profile_is_told_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nsys_tables = {nsys.KERNELS: [test_import_nsys.kernel(0, 9, 1)]}
    profiles = {
        "ncu": written(tmp_path / "a.csv", test_import_ncu.raw_page([{}])),
        "kineto": test_import_kineto.write(tmp_path / "a.json", [test_import_kineto.kernel("k", 0)]),
        "nsys": test_import_nsys.write(tmp_path / "a.sqlite", nsys_tables),
        "nvprof": written(tmp_path / "b.csv", test_import_nvprof.UNITS_ROW),
    }
    for kind, path in profiles.items():
        expected = f"expected a trace, which `gpusim import {path} -o TRACE.json.gz` makes of it"
        for command in (["replay"], ["select"], ["trace", "show"], ["trace", "check"]):
            assert main([*command, str(path)]) == 2
            assert capsys.readouterr().err == f"{path}: is a profile ({kind}), not a trace; {expected}\n"
    for text in ("{}", '{"name": "t", "streams": []}', "some text"):
        assert main(["replay", str(written(tmp_path / "c.json", text))]) == 2
        assert "profile (" not in capsys.readouterr().err


def test_select_writes_what_replays(tmp_path: Path) -> None:
    out = tmp_path / "a.json"
    assert main(["trace", "select", str(INCEPTION), "--stream", "1x1", "--stream", "pool*", "-o", str(out)]) == 0
    assert [stream.name for stream in load_trace(out).streams] == ["1x1", "pool_proj"]
    assert main(["replay", str(out), "--policy", "serial"]) == 0


# ---- new


TABLE = """kernel,blocks,threads_per_block,registers_per_thread,duration_us,stream,shared_memory_bytes
gemm,528,256,128,120.5,a,32768
norm,66,1024,32,8,a,
copy,1056,128,32,80,b,0
"""


def test_a_new_trace_replays_as_it_is(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "new.json"
    assert main(["trace", "new", "-o", str(path)]) == 0
    assert "2 streams, 2 operations, 2 kernels" in capsys.readouterr().out
    assert main(["trace", "check", str(path)]) == 0
    assert main(["replay", str(path), "--policy", "serial"]) == 0


def test_a_table_makes_a_kernel_of_each_row(tmp_path: Path) -> None:
    table, path = tmp_path / "table.csv", tmp_path / "made.json.gz"
    table.write_text(TABLE)
    assert main(["trace", "new", "--from", str(table), "--gpu", "k40c", "-o", str(path)]) == 0
    trace = load_trace(path)
    assert (trace.name, trace.device) == ("table", "k40c")
    found = {s.name: [op.launches()[0] for op in s.operations] for s in trace.streams}
    assert [(one.name, one.blocks, one.duration_us) for one in found["a"]] == [("gemm", 528, 120.5), ("norm", 66, 8.0)]
    assert [one.dynamic_shared_memory_bytes for one in (*found["a"], *found["b"])] == [32768, 0, 0]


def test_a_kernel_that_no_sm_holds_is_not_written(tmp_path: Path, capsys: Any) -> None:
    table, path = tmp_path / "table.csv", tmp_path / "made.json"
    table.write_text(TABLE.replace("norm,66,1024,32", "norm,66,1024,255"))
    assert main(["trace", "new", "--from", str(table), "-o", str(path)]) == 2
    assert "a block asks for more registers than h200 has" in capsys.readouterr().err
    assert not path.exists()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("blocks,", "grid,", "line 1: has no column blocks; expected the columns kernel, blocks"),
        ("stream,", "streem,", "line 1: has a column 'streem'; expected one of kernel, blocks"),
        ("528", "5e2", "line 2: blocks is '5e2'; expected a whole number"),
        ("120.5", "-1", "line 2: duration_us is -1.0; expected a number of at least 0.001 (us)"),
        ("120.5", "", "line 2: has no duration_us; expected a value in each of kernel"),
        ("norm,66,1024", "norm,66,2048", "line 3: threads_per_block is 2048; expected a number of at most 1024"),
        ("528", "0", "line 2: blocks is 0; expected a number of at least 1"),
        ("120.5", "120.5,7,8", "line 2: has more values than there are columns; expected 7 values"),
        ("stream", "kernel", "line 1: has the column kernel twice; expected each column once"),
        (TABLE, TABLE.replace(",", ";"), "line 1: has no column kernel; expected the columns kernel, blocks"),
        ("80,b", "80,b b", "line 4: stream is 'b b'; expected letters, digits"),
        (TABLE.partition("\n")[2], "", "has no rows; expected one for each kernel"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_one_line(tmp_path: Path, capsys: Any, old: str, new: str, said: str) -> None:
    table, path = tmp_path / "table.csv", tmp_path / "made.json"
    assert old in TABLE
    table.write_text(TABLE.replace(old, new, 1))
    assert main(["trace", "new", "--from", str(table), "-o", str(path)]) == 2
    line = capsys.readouterr().err
    assert said in line and line.count("\n") == 1 and str(table) in line
    assert not path.exists()


def test_a_new_trace_does_not_overwrite_its_table(tmp_path: Path, capsys: Any) -> None:
    table = tmp_path / "table.json"
    table.write_text(TABLE)
    assert main(["trace", "new", "--from", str(table), "-o", str(table)]) == 2
    assert table.read_text() == TABLE and "table.json" in capsys.readouterr().err
