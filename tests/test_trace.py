"""The trace format: what it holds, how it is read and written, and its schema."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from documents import FIRST, QUICK, REPOSITORY, convolution, document, kernel, operation, part, problem, stream
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from pydantic import ValidationError
from strategies import examples, kernels, traces

from gpusim.common.errors import InputError
from gpusim.trace.file import load_trace, parse_trace
from gpusim.trace.format import Trace, trace_schema
from gpusim.trace.kernels import KernelLaunch, Mix, launch_waits
from gpusim.trace.operations import ConvolutionShape


def test_a_kernel_knows_its_totals() -> None:
    trace = parse_trace(json.dumps(document()).encode())
    (found,) = trace.operations()
    (launch,) = found.launches()
    assert (launch.blocks, launch.threads_per_block, launch.stream, launch.mix) == (200, 128, "main", None)
    launch = launch.model_copy(update={"static_shared_memory_bytes": 100, "dynamic_shared_memory_bytes": 2000})
    assert launch.shared_memory_per_block_bytes == 2100


def test_a_convolution_launches_the_selected_algorithm() -> None:
    other = {"algorithm": "FFT/FMA", "kernels": [kernel(name="fft"), kernel(name="ifft")]}
    trace = parse_trace(json.dumps(document(stream("s", convolution(alternatives=[other])))).encode())
    (found,) = trace.operations()
    assert found.kind == "convolution" and found.algorithm == "GEMM/FMA"
    assert [launch.name for launch in found.launches()] == ["gemm"]
    assert found.alternatives[0].workspace_bytes is None


def test_micro_batches_are_kept_as_they_are(tmp_path: Path) -> None:
    content = document(stream("s", convolution(micro_batches=[part(1), part(2)])))
    trace = parse_trace(json.dumps(content).encode())
    (found,) = trace.operations()
    assert found.kind == "convolution" and [launch.name for launch in found.launches()] == ["gemm"]
    assert [one.batch for one in found.micro_batches or ()] == [1, 2]
    trace.save(tmp_path / "t.json")
    assert load_trace(tmp_path / "t.json") == trace


def test_a_batch_in_too_many_parts_is_refused() -> None:
    shape = convolution()["shape"] | {"batch": 5000}
    assert problem(document(stream("s", convolution(shape=shape, micro_batches=[part(1)])))) == (
        f"{FIRST}.micro_batches: 1 images divide a batch of 5000 into as many as 5000 parts; expected at most 1024"
    )


def test_copies_and_host_work_launch_nothing() -> None:
    copying = {"kind": "copy", "id": "c", "direction": "h2d", "bytes": 10, "duration_us": 0}
    host = {"kind": "host", "id": "h", "what": "allocation", "duration_us": 3}
    trace = parse_trace(json.dumps(document(stream("s", copying, host))).encode())
    assert [found.launches() for found in trace.operations()] == [(), ()]


def test_the_flop_of_a_convolution() -> None:
    shape = ConvolutionShape(
        batch=128,
        in_channels=3,
        in_height=224,
        in_width=224,
        out_channels=64,
        filter_height=7,
        filter_width=7,
        padding=3,
        stride=2,
    )
    assert (shape.out_height, shape.out_width) == (112, 112)
    assert shape.flop == 30211571712  # as recorded for googlenet/conv1.7x7


@pytest.mark.parametrize(
    ("streams", "waits"),
    [
        ("m", [()]),
        ("mmm", [(), (0,), (1,)]),
        ("m000", [(), (0,), (1,), (2,)]),  # FFT_TILING
        ("mm0mm", [(), (0,), (1,), (2,), (3,)]),  # FFT
        ("m000111", [(), (0,), (1,), (2,), (0,), (4,), (5,)]),
        ("m01m", [(), (0,), (0,), (1, 2)]),
        ("m010m1", [(), (0,), (0,), (1,), (2, 3), (4,)]),
        ("01m", [(), (), (0, 1)]),
    ],
)
def test_the_order_of_kernels_inside_an_operation(streams: str, waits: list[tuple[int, ...]]) -> None:
    launches = [
        KernelLaunch.model_validate_json(json.dumps(kernel(stream="main" if name == "m" else f"internal{name}")))
        for name in streams
    ]
    assert launch_waits(launches) == tuple(waits)


@given(st.lists(st.sampled_from(["main", "internal0", "internal1", "internal2"]).flatmap(kernels), max_size=8))
@QUICK
def test_the_order_inside_an_operation_holds_every_rule(launches: list[KernelLaunch]) -> None:
    direct = launch_waits(launches)
    reach: list[set[int]] = []
    for index, waits in enumerate(direct):
        assert all(w < index for w in waits) and list(waits) == sorted(set(waits))
        reach.append(set(waits).union(*(reach[w] for w in waits)))
        for earlier in range(index):
            same = launches[earlier].stream == launches[index].stream
            ordered = same or "main" in (launches[earlier].stream, launches[index].stream)
            between = any(launches[n].stream == "main" for n in range(earlier + 1, index))
            assert (earlier in reach[index]) == (ordered or between)


# ---- reading and writing


@given(traces(with_arrivals=True))
@examples(25, suppress_health_check=list(HealthCheck))
def test_a_saved_trace_loads_the_same(tmp_path_factory: pytest.TempPathFactory, trace: Trace) -> None:
    folder = tmp_path_factory.mktemp("traces")
    for name in ("t.json", "t.json.gz"):
        trace.save(folder / name)
        first = (folder / name).read_bytes()
        loaded = load_trace(folder / name)
        assert loaded == trace
        loaded.save(str(folder / name))
        assert (folder / name).read_bytes() == first


def test_gzip_is_known_by_its_ending_in_any_case(tmp_path: Path) -> None:
    trace = parse_trace(json.dumps(document(stream("s", operation("a")))).encode())
    trace.save(tmp_path / "T.JSON.GZ")
    assert gzip.decompress((tmp_path / "T.JSON.GZ").read_bytes()).startswith(b"{")


def test_saved_json_is_laid_out_to_be_read(tmp_path: Path) -> None:
    trace = parse_trace(json.dumps(document(stream("s", operation("a"), operation("b")))).encode())
    trace.save(tmp_path / "t.json")
    text = (tmp_path / "t.json").read_text()
    assert max(map(len, text.splitlines())) <= 110
    assert '"grid": [100, 2, 1],' in text


def test_equal_kernels_of_a_file_are_one_object() -> None:
    operations = [operation("a"), operation("b"), operation("c", kernel=kernel(name="other"))]
    trace = parse_trace(json.dumps(document(stream("s", *operations))).encode())
    a, b, c = (launch for found in trace.operations() for launch in found.launches())
    assert a is b and a is not c and c.name == "other"


def test_parts_that_begin_alike_are_told_apart() -> None:
    """Calls whose first kernels are equal, whose last differ, and of which one is shorter than what is compared."""
    ends = [(1.0, 2.0), (1.0, 3.0), (1.0,), (1.0, 2.0), (1.0, 3.0), (1.0,)]
    calls = [
        convolution(id=f"o{n}", selected={"algorithm": "A", "kernels": [kernel(duration_us=us) for us in durations]})
        for n, durations in enumerate(ends)
    ]
    for indent in (None, 1):
        trace = parse_trace(json.dumps(document(stream("s", *calls)), indent=indent).encode())
        found = [found.launches() for found in trace.operations()]
        assert [tuple(launch.duration_us for launch in launches) for launches in found] == ends
        assert len({id(launches[0]) for launches in found}) == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"id"', '"\\u0069d"'),
        ('"kernel": {', '"\\u006bernel": {'),
        ('"operations": [', '"priority": 0, "operations" :\n[ '),
        ('"streams": [', '"streams": [{"name": "none", "operations": [ ]}, '),
    ],
)
def test_other_ways_of_writing_the_same(old: str, new: str) -> None:
    text = json.dumps(document(stream("s", operation("a"), operation("b"))))
    plain, other = parse_trace(text.encode()), parse_trace(text.replace(old, new).encode())
    assert other.streams[-1] == plain.streams[0]


@pytest.mark.parametrize("end", [",", "]", "}", "{}", " 1"])
def test_what_follows_a_trace_is_refused(end: str) -> None:
    assert problem((json.dumps(document()) + end).encode()).startswith("line 1 column ")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ('"kernel": {"name": "last"', '"shape": {"name": "last"', ".kernel"),
        ('"duration_us": 7.5', '"duration_us": NaN', ".kernel.duration_us"),
        ('"duration_us": 7.5', '"duration_us": 7.5, "duration_us": 7.5', ".kernel"),
        ('"name": "last"', '"name": "last", "mix": {"stalls": {"wait": -1}}', ".kernel.mix.stalls.wait"),
    ],
)
def test_a_fault_in_the_last_of_many_is_told_with_its_place(old: str, new: str, place: str) -> None:
    last = kernel(name="last", duration_us=7.5)
    operations = [*(operation(f"o{n}") for n in range(20)), operation("z", kernel=last)]
    text = json.dumps(document(stream("s", *operations)))
    assert old in text
    assert problem(text.replace(old, new).encode()).startswith(f"streams[0].operations[20]{place}: ")


PEAK = """
import sys
from pathlib import Path
from gpusim.trace.file import load_trace
peak_kib = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
before = peak_kib()
load_trace(sys.argv[1])
print(peak_kib() - before)
"""


@pytest.mark.release
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_long_trace_takes_little_more_memory_than_its_text(tmp_path: Path) -> None:
    mix = dict.fromkeys((name for name in Mix.model_fields if name not in ("stalls", "cluster", "estimated")), 5.5)
    operations = [operation(f"o{n}", kernel=kernel(mix=mix | {"shared_memory_config_bytes": 5})) for n in range(25_000)]
    path = tmp_path / "long.json"
    path.write_text(json.dumps(document(stream("s", *operations))))
    found = subprocess.run([sys.executable, "-c", PEAK, path], capture_output=True, text=True, check=True)
    assert int(found.stdout) * 1024 < 3.5 * path.stat().st_size  # its bytes and its text together are twice that


@pytest.mark.parametrize("place", ["kernel", "mix", "scaling", "grid", "name"])
def test_an_operation_inside_an_operation_is_refused(place: str) -> None:
    inner = operation("b") if place == "kernel" else kernel(**{place: operation("b")})
    line = problem(document(stream("s", operation("a", kernel=inner))))
    assert line.startswith(FIRST + ".kernel.")


def test_the_mark_before_a_text_of_windows_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"\xef\xbb\xbf" + (REPOSITORY / "traces" / "spaa20_table1.json").read_bytes())
    assert load_trace(path) == load_trace(REPOSITORY / "traces" / "spaa20_table1.json")


def test_gzip_is_recognised_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(json.dumps(document()).encode()))
    assert load_trace(path).name == "t"


def test_saving_where_there_is_no_folder_is_refused(tmp_path: Path) -> None:
    trace = parse_trace(json.dumps(document()).encode())
    with pytest.raises(InputError, match="cannot be written"):
        trace.save(tmp_path / "missing" / "t.json")


def test_a_trace_is_immutable() -> None:
    trace = parse_trace(json.dumps(document()).encode())
    with pytest.raises(ValidationError):
        trace.name = "other"  # type: ignore[misc]


# ---- schema, speed


def is_number(entry: dict[str, Any]) -> bool:
    return any(kind in json.dumps(entry) for kind in ('"integer"', '"number"'))


def undescribed(schema: dict[str, Any]) -> list[str]:
    models = {"Trace": schema, **schema["$defs"]}
    return [
        f"{name}.{field}"
        for name, model in models.items()
        for field, entry in model["properties"].items()
        if "description" not in entry
        or (is_number(entry) and "unit" not in entry and field not in ("version", "priority", "seed"))
    ]


def test_every_field_has_a_description_and_every_number_a_unit() -> None:
    schema = trace_schema()
    assert undescribed(schema) == []
    assert schema["additionalProperties"] is False
    assert schema["$defs"]["Mix"]["properties"]["issue_cycles"]["unit"] == "SM cycles/block"


def test_the_module_is_light() -> None:
    code = "import gpusim.trace.format, sys; print(sorted({'numpy', 'pandas', 'simpy'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPOSITORY)
    assert ran.stdout.strip() == "[]"
