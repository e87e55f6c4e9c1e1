"""Profiles of JAX and TensorFlow: .xplane.pb, and the JSON that XProf makes of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gpusim.common.errors import InputError
from gpusim.io.importing import detect, import_profile
from gpusim.io.part import Part
from gpusim.io.wire import field, fields
from gpusim.trace.operations import Copy, Kernel

DETAILS = "regs:32 static_shared:1024 dynamic_shared:2048 grid:8,4,1 block:256,1,1 occ_pct:100"
COPY = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"
NAMES = ("kernel_details", "memcpy_details", "correlation_id", "name", "step_num", DETAILS, "core_count",
         "compute_cap_major", "compute_cap_minor", "device_vendor", "memory_size", "jit(f)/dot")  # fmt: skip
EVENTS = ("gemm", "MemcpyH2D", "cuLaunchKernel", "train", "$profiler.py:1 start")


def number(name: str) -> int:
    return NAMES.index(name) + 1


def stat(name: str, kind: int, value: int | str) -> bytes:
    return field(1, number(name)) + field(kind, value)


def event(name: str, start_us: int, duration_us: int, *stats: bytes) -> bytes:
    times = field(2, start_us * 10**6) + field(3, duration_us * 10**6)
    return field(1, EVENTS.index(name) + 1) + times + b"".join(field(4, one) for one in stats)


def line(name: str, *events: bytes) -> bytes:
    return field(1, 7) + field(2, name) + field(3, 1000) + b"".join(field(4, one) for one in events)


def plane(name: str, *lines: bytes, stats: tuple[bytes, ...] = ()) -> bytes:
    known = b"".join(
        field(of, field(1, n) + field(2, field(1, n) + field(2, text)))
        for of, texts in ((4, EVENTS), (5, NAMES))
        for n, text in enumerate(texts, 1)
    )
    parts = b"".join(field(3, one) for one in lines), b"".join(field(6, one) for one in stats)
    return field(1, field(2, name) + parts[0] + known + parts[1])


def gpu(vendor: str = "Nvidia", details: str | None = None) -> bytes:
    kernel = stat("kernel_details", 7, number(DETAILS)) if details is None else stat("kernel_details", 5, details)
    told = (stat("core_count", 3, 132), stat("compute_cap_major", 3, 9), stat("compute_cap_minor", 3, 0),
            stat("device_vendor", 5, vendor), stat("memory_size", 3, 10**11))  # fmt: skip
    operator = stat("name", 7, number("jit(f)/dot"))
    compute = line(
        "Stream #13(Compute)",
        event("gemm", 10, 5, kernel, operator, stat("correlation_id", 4, 1)),
        event("gemm", 20, 5, kernel, stat("correlation_id", 4, 3)),
    )
    copies = line("Stream #14(MemcpyH2D)", event("MemcpyH2D", 1, 8, stat("memcpy_details", 5, COPY)))
    modules = line("XLA Modules", event("gemm", 10, 15))
    return plane("/device:GPU:0", compute, copies, modules, stats=told)


HOST = plane(
    "/host:CPU",
    line(
        "python",
        event("cuLaunchKernel", 2, 1, stat("correlation_id", 4, 1)),
        event("train", 15, 5, stat("step_num", 4, 3)),
        event("cuLaunchKernel", 16, 1, stat("correlation_id", 4, 3)),
        event("$profiler.py:1 start", 0, 9),
    ),
)


def test_an_xplane_becomes_kernels_and_copies(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(HOST + gpu())
    assert detect(path) == "xprof"
    trace = import_profile(path, gpu="h200").trace
    assert (trace.name, trace.order) == ("host", "inferred")
    assert [stream.name for stream in trace.streams] == ["stream14", "stream13"]
    copy, first, second = trace.operations()
    assert isinstance(copy, Copy)
    assert (copy.direction, copy.bytes, copy.memory, copy.duration_us) == ("h2d", 4096, "pageable", 8.0)
    assert isinstance(first, Kernel)
    launch = first.kernel
    assert (launch.name, launch.grid, launch.block) == ("gemm", (8, 4, 1), (256, 1, 1))
    assert (launch.registers_per_thread, launch.duration_us) == (32, 5.0)
    assert (launch.static_shared_memory_bytes, launch.dynamic_shared_memory_bytes) == (1024, 2048)
    assert first.id == "jit_f_/dot/1/0"
    assert first.depends_on == (copy.id,)
    assert second.id == "kernel/0"


def test_steps_of_jax_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(gzip.compress(HOST + gpu()))
    (only,) = import_profile(path, gpu="h200", part=Part(step=3)).trace.operations()
    assert only.launches()[0].name == "gemm"
    (same,) = import_profile(path, gpu="h200", part=Part(range="train")).trace.operations()
    assert same == only
    with pytest.raises(InputError, match="one of the steps 3"):
        import_profile(path, gpu="h200", part=Part(step=4))
    with pytest.raises(InputError, match=r"one of train, ProfilerStep#3"):
        import_profile(path, gpu="h200", part=Part(range="other"))


def test_a_gpu_without_a_name_is_one_of_as_many_sms(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(gpu())
    with pytest.raises(InputError, match=r"no GPU, but one with 132 SMs.*: gh200, h100-sxm, h200, h800, or its file"):
        import_profile(path)
    with pytest.raises(InputError, match="a100-40 has 108 SMs"):
        import_profile(path, gpu="a100-40")


@pytest.mark.parametrize("content", [gpu("AMD"), gpu(details=" grid:1,1,1 block:2,1,1 private_mem:0 group_mem:0")])
def test_amd_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is a profile of an AMD GPU; expected a profile of an NVIDIA GPU"):
        import_profile(path, gpu="h200")


def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    whole = HOST + gpu()
    path = tmp_path / "a.xplane.pb"
    for size in range(60, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(InputError) as told:
            import_profile(path, gpu="h200")
        assert "\n" not in str(told.value)


def test_no_gpu_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(HOST)
    with pytest.raises(InputError, match="holds no kernels"):
        import_profile(path, gpu="h200")


def row(pid: int, tid: int, title: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "name": title, "ts": ts, "dur": dur, "args": args}


def test_the_json_of_jax_is_read_as_the_xplane(tmp_path: Path) -> None:
    names = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "/device:GPU:0"}},
        {"ph": "M", "pid": 1, "tid": 13, "name": "thread_name", "args": {"name": "Stream #13(Compute)"}},
        {"ph": "M", "pid": 1, "tid": 14, "name": "thread_name", "args": {"name": "Stream #14(MemcpyH2D)"}},
        {"ph": "M", "pid": 1, "tid": 15, "name": "thread_name", "args": {"name": "XLA Modules"}},
        {"ph": "M", "pid": 701, "name": "process_name", "args": {"name": "/host:CPU"}},
    ]
    events = [
        row(1, 14, "MemcpyH2D", 1, 8, memcpy_details=COPY),
        row(1, 13, "gemm", 10, 5, kernel_details=DETAILS, name="jit(f)/dot", correlation_id="1"),
        row(1, 13, "gemm", 20, 5, kernel_details=DETAILS, correlation_id="3"),
        row(1, 13, "odd", 30, 5),
        row(1, 15, "jit_f", 10, 15),
        row(701, 1, "cuLaunchKernel", 2, 1, correlation_id="1"),
    ]
    path = tmp_path / "host.trace.json.gz"
    content = {"displayTimeUnit": "ns", "metadata": {"highres-ticks": True}, "traceEvents": [*names, *events]}
    path.write_bytes(gzip.compress(json.dumps(content).encode()))
    assert detect(path) == "xprof"
    found = import_profile(path, gpu="h200")
    assert "1 events of streams without a grid or a size are left out." in found.remarks
    binary = tmp_path / "host.xplane.pb"
    binary.write_bytes(HOST + gpu())
    assert found.trace.streams == import_profile(binary, gpu="h200").trace.streams


def test_messages_of_protobuf_are_read_as_written() -> None:
    message = field(1, 300) + field(2, 1.5) + field(15, "text") + field(16, b"")
    read = list(fields(message))
    assert [number for number, _ in read] == [1, 2, 15, 16]
    assert (read[0][1], read[2][1], read[3][1]) == (300, b"text", b"")
    for broken in (b"\x08", b"\x12\x05ab", b"\x0b", b"\x80" * 11):
        with pytest.raises(ValueError, match="protobuf"):
            list(fields(broken))
