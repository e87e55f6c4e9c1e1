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
from gpusim.io.xprof import messages
from gpusim.trace.operations import Copy, Kernel

DETAILS = "regs:32 static_shared:1024 dynamic_shared:2048 grid:8,4,1 block:256,1,1 occ_pct:100"
COPY = "kind_src:pageable kind_dst:device size:4096 dest:0 async:1"
NAMES = ("kernel_details", "memcpy_details", "correlation_id", "name", "step_num", DETAILS, "core_count",
         "compute_cap_major", "compute_cap_minor", "device_vendor", "memory_size", "jit(f)/dot")  # fmt: skip
EVENTS = ("gemm", "MemcpyH2D", "cuLaunchKernel", "train", "$profiler.py:1 start")


MESSAGES = messages()


def stat(name: str, kind: str, value: int | str) -> Any:
    given = value.encode() if isinstance(value, str) else value
    return MESSAGES["Stat"](metadata_id=number(name), **{kind: given})


def number(name: str) -> int:
    return NAMES.index(name) + 1


def event(name: str, start_us: int, duration_us: int, *stats: Any) -> Any:
    times = {"offset_ps": start_us * 10**6, "duration_ps": duration_us * 10**6}
    return MESSAGES["Event"](metadata_id=EVENTS.index(name) + 1, **times, stats=stats)


def line(name: str, *events: Any) -> Any:
    return MESSAGES["Line"](name=name.encode(), timestamp_ns=1000, events=events)


def plane(name: str, *lines: Any, stats: tuple[Any, ...] = ()) -> bytes:
    named = {
        known: [{"value": {"id": n, "name": text.encode()}} for n, text in enumerate(texts, 1)]
        for known, texts in (("event_metadata", EVENTS), ("stat_metadata", NAMES))
    }
    only = MESSAGES["Plane"](name=name.encode(), lines=lines, stats=stats, **named)
    whole: bytes = MESSAGES["Space"](planes=[only]).SerializeToString()
    return whole


def gpu(vendor: str = "Nvidia", details: str | None = None) -> bytes:
    known = ("reference", number(DETAILS)) if details is None else ("text", details)
    kernel = stat("kernel_details", *known)
    numbers = {"core_count": 132, "compute_cap_major": 9, "compute_cap_minor": 0, "memory_size": 10**11}
    told = (stat("device_vendor", "text", vendor), *(stat(name, "uint64", value) for name, value in numbers.items()))
    operator = stat("name", "reference", number("jit(f)/dot"))
    compute = line(
        "Stream #13(Compute)",
        event("gemm", 10, 5, kernel, operator, stat("correlation_id", "int64", 1)),
        event("gemm", 20, 5, kernel, stat("correlation_id", "int64", 3)),
    )
    copies = line("Stream #14(MemcpyH2D)", event("MemcpyH2D", 1, 8, stat("memcpy_details", "text", COPY)))
    modules = line("XLA Modules", event("gemm", 10, 15))
    return plane("/device:GPU:0", compute, copies, modules, stats=told)


HOST = plane(
    "/host:CPU",
    line(
        "python",
        event("cuLaunchKernel", 2, 1, stat("correlation_id", "int64", 1)),
        event("train", 15, 5, stat("step_num", "int64", 3)),
        event("cuLaunchKernel", 16, 1, stat("correlation_id", "int64", 3)),
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
    assert "Left out: 1 event of streams without a grid or a size." in found.remarks
    binary = tmp_path / "host.xplane.pb"
    binary.write_bytes(HOST + gpu())
    assert found.trace.streams == import_profile(binary, gpu="h200").trace.streams
