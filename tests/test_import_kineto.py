"""Importing PyTorch's profiles: both schemas, copies, events, odd JSON, bad input, real files."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from profiles import refused

import gpusim
from gpusim.cli import main
from gpusim.hardware.gpu import load_gpu
from gpusim.io import chrome
from gpusim.io.importing import import_profile
from gpusim.trace.file import load_trace
from gpusim.trace.operations import Copy, Kernel

V100 = {"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 17 * 10**9, "numSms": 80, "warpSize": 32}


def gpu_event(category: str, name: str, ts: float, dur: float, stream: int = 7, **args: Any) -> dict[str, Any]:
    return {
        "ph": "X", "cat": category, "name": name, "pid": 0, "tid": f"stream {stream}", "ts": ts, "dur": dur,
        "args": {"device": 0, "context": 1, "stream": stream, **args},
    }  # fmt: skip


def kernel(name: str, ts: float, dur: float = 10, stream: int = 7, order: int = 1, **args: Any) -> dict[str, Any]:
    shape = {"grid": [160, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 1024}
    category = args.pop("category", "kernel")
    return gpu_event(category, name, ts, dur, stream, **{"correlation": order, **shape, **args})


def call(name: str, order: int, ts: float = 0, thread: int = 1) -> dict[str, Any]:
    return {
        "ph": "X", "cat": "cuda_runtime", "name": name, "pid": 1, "tid": thread, "ts": ts, "dur": 1,
        "args": {"correlation": order},
    }  # fmt: skip


def write(path: Path, events: list[Any], **members: Any) -> Path:
    content = {"schemaVersion": 1, "deviceProperties": [V100], "traceEvents": events, **members}
    path.write_text(json.dumps(content))
    return path


def test_kernel_keeps_launch_and_duration(tmp_path: Path) -> None:
    trace = import_profile(write(tmp_path / "a.json", [kernel("gemm", 5.0, 12.345)])).trace
    assert (trace.device, [stream.name for stream in trace.streams]) == ("v100", ["stream7"])
    launch = next(trace.operations()).launches()[0]
    assert (launch.name, launch.grid, launch.block) == ("gemm", (160, 1, 1), (256, 1, 1))
    assert (launch.registers_per_thread, launch.shared_memory_per_block_bytes) == (32, 1024)
    assert launch.duration_us == 12.345
    assert launch.estimated


def test_old_schema_groups_launches_by_operator(tmp_path: Path) -> None:
    operator = {
        "ph": "X", "cat": "Operator", "name": "aten::cudnn convolution", "pid": 1, "tid": "1", "ts": 0, "dur": 9,
        "args": {"External id": 12},
    }  # fmt: skip
    events = [operator] + [kernel("k", 10 * n, 5, order=n, category="Kernel", **{"external id": 12}) for n in (1, 2)]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    assert [operation.id for operation in trace.operations()] == [
        "aten::cudnn_convolution/12/0",
        "aten::cudnn_convolution/12/1",
    ]


def test_a_launch_without_an_operator_is_named_after_the_innermost_on_its_thread(tmp_path: Path) -> None:
    def operator(name: str, start_us: float, duration_us: float, thread: int, external: int) -> dict[str, Any]:
        return {
            "ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": thread, "ts": start_us, "dur": duration_us,
            "args": {"External id": external},
        }  # fmt: skip

    events = [
        operator("aten::linear", 0, 50, 1, 901),
        operator("aten::addmm", 10, 20, 1, 902),
        operator("aten::other", 0, 99, 2, 903),
        *(call("cudaLaunchKernel", n, ts) for n, ts in ((1, 5), (2, 15), (3, 40), (4, 60))),
        *(kernel("k", 100 * n, order=n, **{"External id": n}) for n in (1, 2, 3, 4)),
    ]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    assert [operation.id for operation in trace.operations()] == [
        "aten::linear/901/0", "aten::addmm/902/0", "aten::linear/901/1", "kernel/0"
    ]  # fmt: skip


def test_external_id_that_is_the_correlation_names_no_operator(tmp_path: Path) -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::other", "ts": 0, "dur": 1, "args": {"External id": 3}}
    events = [operator, kernel("k", 1, order=3, **{"External id": 3})]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    assert [operation.id for operation in trace.operations()] == ["kernel/0"]


def test_copies_and_memsets(tmp_path: Path) -> None:
    events = [
        gpu_event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 0, 3, bytes=64, correlation=1),
        gpu_event("Memcpy", "Memcpy DtoH (Device -> Pinned)", 4, 3, bytes=65, correlation=2),
        gpu_event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 8, 3, bytes=66, correlation=3),
        gpu_event("gpu_memcpy", "Memcpy PtoP (Device -> Device)", 12, 3, bytes=67, correlation=4),
        gpu_event("gpu_memset", "Memset (Device)", 16, 0, bytes=68, correlation=5),
        gpu_event("gpu_memcpy", "Memcpy HtoH (Pageable -> Pageable)", 20, 3, bytes=69, correlation=6),
        kernel("k", 30, order=7),
    ]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    copies = [operation for operation in trace.operations() if isinstance(operation, Copy)]
    directions = ("h2d", "d2h", "d2d", "p2p", "memset")
    assert [(copy.direction, copy.bytes) for copy in copies] == list(zip(directions, range(64, 69), strict=True))
    assert [copy.memory for copy in copies[:2]] == ["pageable", "pinned"]
    assert copies[-1].id == "memset/0"


def wait_event(order: int, waiting: int, source: int, record: int) -> dict[str, Any]:
    return gpu_event(
        "cuda_sync", "Stream Wait Event", 0, 0, waiting, cuda_sync_kind="Stream Wait Event", correlation=order,
        wait_on_stream=source, wait_on_cuda_event_record_corr_id=record,
    )  # fmt: skip


def depends(path: Path, **how: Any) -> dict[str, tuple[str, ...]]:
    trace = import_profile(path, **how).trace
    return {op.launches()[0].name: op.depends_on for op in trace.operations() if isinstance(op, Kernel)}


def test_event_makes_the_next_launch_wait_for_the_last_before_the_record(tmp_path: Path) -> None:
    events = [
        kernel("before", 0, 10, 7, order=1),
        kernel("recorded", 10, 10, 7, order=2),
        kernel("later", 20, 10, 7, order=9),  # launched after the record: nobody waits for it
        kernel("free", 0, 5, 20, order=3),
        wait_event(5, waiting=20, source=7, record=4),
        kernel("waits", 20, 10, 20, order=6),
        kernel("after", 30, 10, 20, order=7),  # its stream's order says it
    ]
    found = depends(write(tmp_path / "a.json", events))
    assert found == {"before": (), "recorded": (), "later": (), "free": (), "waits": ("kernel/2",), "after": ()}


def test_wait_that_the_times_contradict_is_left_out_and_said(tmp_path: Path) -> None:
    events = [
        kernel("long", 0, 100, 7, order=1),
        wait_event(5, waiting=20, source=7, record=4),
        kernel("beside", 50, 10, 20, order=6),
    ]
    path = write(tmp_path / "a.json", events)
    assert depends(path)["beside"] == ()
    assert any(
        "Waits between streams that contradict the recorded times: 1, left out" in line
        for line in import_profile(path).remarks
    )


def test_host_that_waits_for_the_device_orders_what_its_thread_launches_after(tmp_path: Path) -> None:
    events = [
        *(call("cudaLaunchKernel", order, thread=thread) for order, thread in ((1, 1), (4, 1), (5, 2))),
        call("cudaDeviceSynchronize", 3, thread=1),
        kernel("first", 0, 10, 7, order=1),
        kernel("second", 20, 10, 20, order=4),
        kernel("of another thread", 20, 10, 21, order=5),
    ]
    path = write(tmp_path / "a.json", events)
    assert depends(path, order="recorded") == {"first": (), "second": ("kernel/0",), "of another thread": ()}
    assert not any(depends(path, order="none").values())
    assert depends(path)["of another thread"] == ("kernel/0",)  # inferred: that had ended


def test_order_is_inferred_where_waits_are_not_recorded(tmp_path: Path) -> None:
    """Backward on one stream, its all-reduce on another, then the next step."""
    events = [
        call("cudaStreamWaitEvent", 3),
        kernel("backward", 0, 10, 7, order=1),
        kernel("more of it", 10, 30, 7, order=2),
        kernel("ncclDevKernel_AllReduce_Sum_f32", 12, 38, 20, order=4),
        kernel("next step", 50, 10, 7, order=5),
    ]
    path = write(tmp_path / "a.json", events)
    imported = import_profile(path)
    found = {op.launches()[0].name: op.depends_on for op in imported.trace.operations()}
    assert imported.trace.order == "inferred"
    assert found == {
        "backward": (),
        "more of it": (),
        "ncclDevKernel_AllReduce_Sum_f32": ("kernel/0",),
        "next step": ("kernel/2",),
    }
    assert "order is inferred" in imported.trace.notes
    independent = import_profile(path, order="recorded").trace
    assert (independent.order, any(op.depends_on for op in independent.operations())) == ("independent", False)
    assert "taken as independent" in independent.notes
    one_stream = write(tmp_path / "b.json", [kernel("a", 0), kernel("b", 10, order=2)])
    assert import_profile(one_stream).trace.order is None


def test_order_is_inferred_where_no_wait_tells_its_source(tmp_path: Path) -> None:
    events = [kernel("a", 0, 10, 7, order=1), wait_event(2, 8, -1, -1), kernel("b", 20, 10, 8, order=3)]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    assert (trace.order, [op.depends_on for op in trace.operations()]) == ("inferred", [(), ("kernel/0",)])


def test_nothing_is_inferred_where_waits_are_recorded(tmp_path: Path) -> None:
    events = [kernel("a", 0, 10, 7, order=1), wait_of_host(2, 7, 1), kernel("b", 20, 10, 8, order=3)]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    assert (trace.order, [op.depends_on for op in trace.operations()]) == (None, [(), ()])


def test_name_of_a_stream_is_the_same_when_a_sync_comes_first(tmp_path: Path) -> None:
    work = [kernel("a", 0, 10, 7, order=2), kernel("b", 20, 10, 20, order=4)]
    names = []
    for events in ([wait_event(1, 7, 20, 0), *work], [*work, wait_event(1, 7, 20, 0)]):
        trace = import_profile(write(tmp_path / "a.json", events)).trace
        names.append([stream.name for stream in trace.streams])
    assert names == [["stream7", "stream20"]] * 2


def test_gpus_as_versions_until_2021_list_them(tmp_path: Path) -> None:
    old = {"id": 0, "name": "Tesla V100-DGXS-32GB", "totalGlobalMem": 34 * 10**9, "multiProcessorCount": 80}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"schemaVersion": 1, "computeProperties": [old], "traceEvents": [kernel("k", 0)]}))
    assert import_profile(path).trace.device == "v100"
    assert "has 56 SMs; the profile names" in refused(path, gpu=load_gpu("p100"))


def test_gpu_of_the_recording_stays_beside_the_one_that_it_is_taken_as(tmp_path: Path) -> None:
    titan = {"id": 0, "name": "NVIDIA TITAN Xp"}
    path = write(tmp_path / "a.json", [kernel("k", 0)], deviceProperties=[titan])
    imported = import_profile(path, gpu=load_gpu("p100"))
    assert (imported.trace.device, imported.trace.stands_for) == ("p100", "NVIDIA TITAN Xp")
    assert "Recorded on 'NVIDIA TITAN Xp', taken as p100" in imported.trace.notes
    assert "which is another GPU" in imported.trace.notes
    result = gpusim.replay(imported.trace, load_gpu("p100"))
    assert "recorded on NVIDIA TITAN Xp, taken as recorded on p100: not validated" in result.notes
    same = write(tmp_path / "b.json", [kernel("k", 0)])
    trace = import_profile(same, gpu=load_gpu("v100")).trace
    assert (trace.stands_for, "Recorded on 'Tesla V100-SXM2-16GB', taken as v100" in trace.notes) == (None, True)


def test_kernel_that_exceeds_the_gpu_is_refused(tmp_path: Path) -> None:
    wide = kernel("wide", 0, block=[1024, 1, 1], **{"registers per thread": 128})
    line = refused(write(tmp_path / "a.json", [kernel("k", 0), wide]))
    assert "kernel/1 ('wide'): a block asks for more registers than v100 has; expected the GPU that it ran on" in line
    large = kernel("large", 0, **{"shared memory": 150_000})
    assert "more shared memory than v100" in refused(write(tmp_path / "b.json", [large]))


def test_kernels_of_communication_keep_their_duration_on_another_gpu(tmp_path: Path) -> None:
    events = [kernel("gemm", 0, 100), kernel("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", 200, 100, order=2)]
    trace = import_profile(write(tmp_path / "a.json", events)).trace
    result = gpusim.replay(trace, load_gpu("h100-sxm"))
    gemm, reduce = (run.solo_us for run in result.kernel_runs)
    assert gemm < 90.0
    assert reduce == pytest.approx(100.0, rel=0.01)
    assert "1 of 2 kernels exchange data with other GPUs: recorded durations kept" in result.notes
    assert "2 of 2 kernels have no counters: estimated on h100-sxm" in result.notes
    assert not any("estimated" in note for note in gpusim.replay(trace, load_gpu("v100")).notes)


def wait_of_host(order: int, source: int, record: int) -> dict[str, Any]:
    return gpu_event(
        "cuda_sync", "Event Sync", 0, 0, -1, cuda_sync_kind="Event Sync", correlation=order,
        wait_on_stream=source, wait_on_cuda_event_record_corr_id=record,
    )  # fmt: skip


@pytest.mark.parametrize(("record", "waited"), [(2, "kernel/0"), (-1, "kernel/1")])
def test_host_that_waits_for_an_event_waits_for_what_came_before_its_record(
    tmp_path: Path, record: int, waited: str
) -> None:
    """Where the record is not known, it is taken as just before the wait."""
    events = [
        *(call("cudaLaunchKernel", order) for order in (1, 3, 5)),
        call("cudaEventSynchronize", 4),
        wait_of_host(4, source=7, record=record),
        kernel("recorded", 0, 10, 7, order=1),
        kernel("later", 10, 5, 7, order=3),
        kernel("waits", 20, 10, 8, order=5),
    ]
    path = write(tmp_path / "a.json", events)
    assert depends(path) == {"recorded": (), "later": (), "waits": (waited,)}
    assert [op.host_waits for op in import_profile(path).trace.operations()] == [None, None, True]


def test_a_stream_that_waits_on_the_gpu_is_told_from_one_that_the_host_keeps_back(tmp_path: Path) -> None:
    work = [kernel("a", 0, 10, 7, order=1), kernel("b", 20, 10, 8, order=4)]
    on_gpu = write(tmp_path / "a.json", [*work, wait_event(3, 8, 7, 2)])
    inferred = write(tmp_path / "b.json", work)
    for path, by_host in ((on_gpu, None), (inferred, True)):
        waiting = list(import_profile(path).trace.operations())[1]
        assert (waiting.depends_on, waiting.host_waits) == (("kernel/0",), by_host)


def test_zero_duration_and_kernels_side_by_side_are_said(tmp_path: Path) -> None:
    events = [kernel("none", 0, 0), kernel("a", 10, 50, 7, order=2), kernel("b", 20, 50, 8, order=3)]
    imported = import_profile(write(tmp_path / "a.json", events))
    assert next(imported.trace.operations()).launches()[0].duration_us == 0.5
    assert "Kernels recorded with 0 us: 1, taken as" in imported.trace.notes
    assert "Kernels that ran beside kernels of other streams: 2;" in imported.trace.notes


def test_several_gpus_make_a_clear_choice(tmp_path: Path) -> None:
    other = kernel("on 1", 0)
    other["args"]["device"] = 1
    path = write(tmp_path / "a.json", [kernel("on 0", 0), other], deviceProperties=[V100, {**V100, "id": 1}])
    imported = import_profile(path)
    assert [op.launches()[0].name for op in imported.trace.operations()] == ["on 0"]
    assert "GPU 0: 1 kernel, GPU 1: 1 kernel" in imported.remarks[0]
    chosen = import_profile(path, device=1).trace
    assert [op.launches()[0].name for op in chosen.operations()] == ["on 1"]
    assert " device: GPU 2 ran no kernels; expected one of 0, 1" in refused(path, device=2)


@pytest.mark.parametrize("text", ["N/A", "inf", "-nan", "NaN", "Infinity"])
def test_bare_words_where_a_number_should_be(tmp_path: Path, text: str) -> None:
    path = write(tmp_path / "a.json", [kernel("k", 0, bandwidth="@")])
    path.write_text(path.read_text().replace('"@"', text))
    assert next(import_profile(path).trace.operations()).launches()[0].name == "k"


@pytest.mark.parametrize("size", [2**20, 1, 7])
def test_paths_of_windows_in_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Kineto wrote them as they are: C:\\Users and D:\\users hold no escapes of JSON."""
    monkeypatch.setattr("gpusim.io.source.CHUNK_BYTES", size)
    path = write(tmp_path / "a.json", [kernel("k @", 0, module="#")], traceName="@")
    path.write_text(path.read_text().replace("@", r"C:\Users\me\x.json").replace("#", r"D:\users"))
    members = dict(chrome.members(path))
    assert members["traceName"] == r"C:\Users\me\x.json"
    assert members[chrome.EVENTS]["args"]["module"] == r"D:\users"
    assert next(import_profile(path).trace.operations()).launches()[0].name == r"k C:\Users\me\x.json"


def test_comma_behind_the_last_member(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [kernel("k", 0)])
    path.write_text(path.read_text()[:-1] + ",\n}")
    assert next(import_profile(path).trace.operations()).launches()[0].name == "k"


def test_names_become_harmless_text(tmp_path: Path) -> None:
    names = ["a\x1b[31mred", "<script>alert(1)</script>", "=cmd()", "half \ud800 surrogate", "line\nbreak"]
    path = write(tmp_path / "a.json", [kernel(name, 10 * n, order=n) for n, name in enumerate(names)])
    found = [op.launches()[0].name for op in import_profile(path).trace.operations()]
    assert found == ["a\ufffd[31mred", "<script>alert(1)</script>", "=cmd()", "half \ufffd surrogate", "line break"]


def test_control_characters_in_texts_and_a_list_of_events(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("[" + json.dumps(kernel("tab@", 0)).replace("@", "\t") + ",\n]")
    trace = import_profile(path, "kineto", gpu=load_gpu("v100")).trace
    assert next(trace.operations()).launches()[0].name == "tab"


def test_events_cross_the_borders_of_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.json", [kernel(f"kernel {n}", n, 1, order=n) for n in range(40)], tail=12345)
    whole = list(chrome.members(path))
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr("gpusim.io.source.CHUNK_BYTES", size)
        assert list(chrome.members(path)) == whole


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 0.999])
@pytest.mark.parametrize("packed", [False, True])
def test_half_written_file_is_refused(tmp_path: Path, share: float, packed: bool) -> None:
    text = write(tmp_path / "a.json", [kernel(f"kernel {n}", n, order=n) for n in range(9)]).read_text()
    cut = text[: int(len(text) * share)].encode()
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(cut) if packed else cut)
    line = refused(path, format="kineto")
    assert "ends in the middle of the JSON" in line
    assert "\n" not in line


def test_cut_gzip_is_refused(tmp_path: Path) -> None:
    data = gzip.compress(json.dumps([kernel(f"kernel {n * n}", n) for n in range(99)]).encode())
    path = tmp_path / "a.json.gz"
    path.write_bytes(data[: len(data) // 2])
    assert "gzip data is cut short; expected a complete gzip file" in refused(path)


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{}", "holds no kernels"),
        (b'{"traceEvents": []}', "holds no kernels"),
        (b'{"traceEvents": [{"ph": "X"} {"ph": "X"}]}', "has '{'"),
        (b'{"traceEvents": [{"ph": X, "and": 1, "so": "on and on"}]}', "is not JSON"),
        (b'{"traceEvents": []} {}', "goes on after the end"),
        (b'{"traceEvents": [{"ts": 1,}]}', "is not JSON"),
        (b'{"traceEvents": [], "peak": (1)}', "is not JSON"),
        (b"[" * 100_000, "nested"),
        (b"<html><body>Not found</body></html>", "is HTML"),
        (b"PK\x03\x04rest", "ZIP"),
        (b"\x1f\x8b\x08\x00 broken", "cannot be read"),
        (b"\x00\x01\x02\xff", "unrecognised profile format"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    line = refused(path)
    assert what in line
    assert line.isprintable()


def test_amd_is_refused(tmp_path: Path) -> None:
    amd = {"id": 0, "name": "AMD Instinct MI250X", "numSms": 110, "warpSize": 64}
    assert "AMD GPU" in refused(write(tmp_path / "a.json", [kernel("k", 0)], deviceProperties=[amd]))
    assert "AMD GPU" in refused(write(tmp_path / "b.json", [kernel("k", 0), call("hipLaunchKernel", 1)]))


@pytest.mark.parametrize(
    ("content", "what", "instead"),
    [
        ({"rocprofiler-sdk-tool": [{}]}, "AMD GPU (rocprofv3)", "NVIDIA"),
        (
            {"schema": "1.0.1", "pid": 1, "start_ts": 2, "nodes": [{"name": "aten::add"}]},
            "is an execution trace of PyTorch (Chakra)",
            "export_chrome_trace",
        ),
        (
            [{"children": [], "frame": {"name": "ROOT"}, "metrics": {"time (ns)": 0}}, {"CUDA": {}}],
            "Triton's Proton",
            "nsys or ncu",
        ),
    ],
)
def test_files_without_launches_are_refused_with_what_would_do(
    tmp_path: Path, content: Any, what: str, instead: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    line = refused(path)
    assert what in line
    assert instead in line


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.json"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    assert "is not a regular file" in refused(path)


def test_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.io.source.TRUSTED_BYTES", 2**20)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * 2**24))
    assert "unpacks to more than 250 times its size" in refused(path)


def test_kernel_that_no_trace_can_hold_is_named(tmp_path: Path) -> None:
    line = refused(write(tmp_path / "a.json", [kernel("wide", 0, block=[1024, 2, 1])]))
    assert "kernel/0 ('wide')" in line
    assert "2048 threads" in line


def test_kernels_without_a_time_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [kernel("k", 0, dur="soon")])
    assert "holds no kernels (1 GPU events without a usable grid, size, time, stream or GPU)" in refused(path)


def without_stream(event: dict[str, Any]) -> dict[str, Any]:
    del event["args"]["stream"]
    return {**event, "tid": None}


@pytest.mark.parametrize(
    "bad",
    [
        kernel("bad", 10, dur=-1),
        kernel("bad", 10, stream=None),
        without_stream(kernel("bad", 10)),
        kernel("bad", 10, grid="[-4,5,6]"),
        kernel("bad", 10, **{"registers per thread": "abc"}),
        kernel("bad", 10, **{"shared memory": -1}),
        gpu_event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 10, -3, bytes=64),
        gpu_event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 10, 3, bytes="1_6"),
        gpu_event("gpu_memset", "Memset (Device)", 10, "soon", bytes=64),
        gpu_event("gpu_memset", "Memset (Device)", 10, 3, None, bytes=64),
    ],
)
def test_every_gpu_event_that_cannot_be_used_is_left_out_and_counted(tmp_path: Path, bad: dict[str, Any]) -> None:
    from_host_to_host = gpu_event("gpu_memcpy", "Memcpy HtoH (Pageable -> Pageable)", 5, -1)
    imported = import_profile(write(tmp_path / "a.json", [kernel("good", 0), from_host_to_host, bad]))
    assert [op.launches()[0].name for op in imported.trace.operations()] == ["good"]
    assert "Left out: 1 GPU event without a usable grid, size, time, stream or GPU." in imported.remarks


def test_stream_may_be_told_by_the_row_alone(tmp_path: Path) -> None:
    event = kernel("k", 0, stream=20)
    del event["args"]["stream"]
    assert import_profile(write(tmp_path / "a.json", [event])).trace.streams[0].name == "stream20"


def test_gpu_that_is_not_known(tmp_path: Path) -> None:
    unknown = {**V100, "name": "NVIDIA B300", "numSms": 160}
    path = write(tmp_path / "a.json", [kernel("k", 0)], deviceProperties=[unknown])
    assert " gpu: the profile names 'NVIDIA B300' with 160 SMs" in refused(path)
    assert "h200 has 132 SMs" in refused(path, gpu=load_gpu("h200"))


def test_command_writes_the_trace_or_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "good.json", [kernel("k", 0)])
    out = tmp_path / "out.json"
    assert main(["import", str(good), "-o", str(out)]) == 0
    assert "1 kernel, 1 operation, 1 stream, recorded on v100" in capsys.readouterr().out
    assert load_trace(out).device == "v100"
    out.unlink()
    good.write_text(good.read_text()[:-3])
    assert main(["import", "kineto", str(good), "-o", str(out)]) == 2
    assert "ends in the middle" in capsys.readouterr().err
    assert not out.exists()


def test_same_profile_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", [kernel(f"k{n % 3}", n, 1, stream=n % 4, order=n) for n in range(40)])
    written = []
    for name in ("x.json", "y.json"):
        import_profile(path).trace.save(tmp_path / name)
        written.append((tmp_path / name).read_bytes())
    assert written[0] == written[1]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("watched", [True, False])
def test_progress_only_where_somebody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool) -> None:
    screen = Terminal() if watched else io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr("gpusim.common.progress.SHOWN_EVERY_S", 0.0)
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.json", [kernel("k", 0)])
    assert main(["import", "a.json", "-o", "b.json"]) == 0
    assert ("importing a.json: 100%" in screen.getvalue()) == watched
    assert screen.getvalue().endswith("\r\x1b[K") == watched


def test_gpu_that_is_not_listed_is_like_those_that_are(tmp_path: Path) -> None:
    event = kernel("k", 0)
    event["args"]["device"] = 3
    assert import_profile(write(tmp_path / "a.json", [event])).trace.device == "v100"


def test_the_profile_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "a.json", [kernel("k", 0)])
    before = path.read_bytes()
    assert main(["import", str(path), "-o", str(path)]) == 2
    assert "is read as well as written" in capsys.readouterr().err
    assert path.read_bytes() == before
