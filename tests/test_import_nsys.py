"""Importing Nsight Systems' SQLite: columns that come and go, streams, graphs, several GPUs, bad input."""

from __future__ import annotations

import gzip
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from profiles import refused

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import load_gpu
from gpusim.io import nsys
from gpusim.io.importing import Imported, detect, import_profile
from gpusim.trace.operations import Copy

PROCESS = 5 << 24
H200 = {"id": 0, "name": "NVIDIA H200", "smCount": 132, "totalMemory": 141 * 10**9}


def kernel(start: int, end: int, order: int, **changed: Any) -> dict[str, Any]:
    return {
        "start": start, "end": end, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": order,
        "globalPid": PROCESS, "demangledName": 1, "shortName": 2, "registersPerThread": 40,
        "gridX": 4, "gridY": 3, "gridZ": 2, "blockX": 64, "blockY": 2, "blockZ": 1,
        "staticSharedMemory": 512, "dynamicSharedMemory": 256,
    } | changed  # fmt: skip


Tables = Mapping[str, Sequence[Mapping[str, Any]]]
STRINGS = [{"id": 1, "value": "void gemm<float>(int)"}, {"id": 2, "value": "gemm"}]


def write(path: Path, tables: Tables) -> Path:
    connection = sqlite3.connect(path)
    for table, rows in tables.items():
        columns = list(rows[0] if rows else kernel(0, 1, 1))
        connection.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        marks = ", ".join("?" for _ in columns)
        connection.executemany(f"INSERT INTO {table} VALUES ({marks})", [tuple(row.values()) for row in rows])
    connection.commit()
    connection.close()
    return path


def imported(tmp_path: Path, tables: Tables, **how: Any) -> Imported:
    return import_profile(write(tmp_path / "a.sqlite", {"StringIds": STRINGS, nsys.GPUS: [H200], **tables}), **how)


def test_kernel_keeps_launch_and_duration(tmp_path: Path) -> None:
    trace = imported(tmp_path, {nsys.KERNELS: [kernel(1000, 13_345, 1)]}).trace
    launch = next(trace.operations()).launches()[0]
    assert (trace.device, trace.streams[0].name) == ("h200", "stream7")
    assert (launch.name, launch.grid, launch.block) == ("void gemm<float>(int)", (4, 3, 2), (64, 2, 1))
    assert (launch.static_shared_memory_bytes, launch.dynamic_shared_memory_bytes) == (512, 256)
    assert (launch.registers_per_thread, launch.duration_us) == (40, 12.345)


def test_an_old_version_without_names_of_processes_green_contexts_or_gpus(tmp_path: Path) -> None:
    needed = ("start", "end", "deviceId", "streamId", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
    row = {key: value for key, value in kernel(0, 1000, 1).items() if key in needed}
    path = write(tmp_path / "a.sqlite", {nsys.KERNELS: [row]})
    assert " gpu: the profile names no GPU" in refused(path)
    trace = import_profile(path, gpu=load_gpu("h100-sxm")).trace
    assert trace.device == "h100-sxm"
    assert next(trace.operations()).launches()[0].registers_per_thread == 0


def test_gpu_is_that_which_the_process_saw_under_the_number(tmp_path: Path) -> None:
    """Two processes, each with one GPU of CUDA_VISIBLE_DEVICES, both call theirs 0."""
    t4 = {"id": 0, "name": "Tesla T4", "smCount": 40, "totalMemory": 16 * 10**9}
    rows = [kernel(0, 1000, 1), kernel(500, 2500, 1, globalPid=6 << 24)]
    tables = {
        nsys.KERNELS: rows,
        nsys.GPUS: [t4, {**H200, "id": 1}, {**H200, "id": 2}],
        nsys.VISIBLE_GPUS: [{"gpuId": 1, "cudaId": 0, "pid": 5}, {"gpuId": 2, "cudaId": 0, "pid": 6}],
    }
    found = imported(tmp_path, tables)
    assert found.trace.device == "h200"
    assert [op.launches()[0].duration_us for op in found.trace.operations()] == [1.0]
    assert "GPU 1: 1 kernel, GPU 2: 1 kernel" in found.remarks[0]
    chosen = import_profile(tmp_path / "a.sqlite", device=2).trace
    assert [op.launches()[0].duration_us for op in chosen.operations()] == [2.0]


def test_gpus_as_versions_until_2021_list_them(tmp_path: Path) -> None:
    old = {"deviceId": 1, "name": "A100-SXM4-40GB", "numMultiprocessors": 108}
    tables = {nsys.KERNELS: [kernel(0, 10, 1, deviceId=1)], "StringIds": STRINGS, nsys.OLD_GPUS: [old]}
    assert import_profile(write(tmp_path / "a.sqlite", tables)).trace.device == "a100-40"


def test_what_a_version_does_not_know_of_gpus_and_names(tmp_path: Path) -> None:
    nameless = {key: value for key, value in kernel(0, 10, 1).items() if not key.endswith("Name")}
    trace = imported(tmp_path, {nsys.KERNELS: [nameless], nsys.GPUS: [{**H200, "smCount": 0}]}).trace
    assert trace.device == "h200"
    assert next(trace.operations()).launches()[0].name == "unnamed"


def test_copies_and_memsets(tmp_path: Path) -> None:
    copy = {"start": 0, "end": 10, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "bytes": 64}
    kinds = {1: "h2d", 2: "d2h", 8: "d2d", 10: "p2p", 99: "d2d"}
    tables = {
        nsys.KERNELS: [kernel(5000, 6000, 9, globalPid=None)],
        nsys.COPIES: [{**copy, "start": n * 20, "end": n * 20 + 5, "copyKind": n} for n in (*kinds, 9)],
        nsys.MEMSETS: [copy],
    }
    trace = imported(tmp_path, tables).trace
    found = {op.id: op.direction for op in trace.operations() if isinstance(op, Copy)}
    assert sorted(found.values()) == sorted([*kinds.values(), "memset"])
    assert found["memset/0"] == "memset"


def test_host_memory_of_copies_and_migrations_of_unified_memory(tmp_path: Path) -> None:
    copy = {"start": 0, "end": 10, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "bytes": 64}
    kinds = [(1, 0, 2), (1, 1, 2), (2, 2, 0), (2, 2, 7), (11, 0, 4), (12, 4, 0)]
    tables = {
        nsys.KERNELS: [kernel(5000, 6000, 9, globalPid=None)],
        nsys.COPIES: [
            {**copy, "start": n * 20, "end": n * 20 + 5, "copyKind": kind, "srcKind": source, "dstKind": target}
            for n, (kind, source, target) in enumerate(kinds)
        ],
    }
    found = imported(tmp_path, tables)
    copies = [(op.direction, op.memory) for op in found.trace.operations() if isinstance(op, Copy)]
    assert copies == [("h2d", "pageable"), ("h2d", "pinned"), ("d2h", "pageable"), ("d2h", "pinned")]
    assert any(line.startswith("Left out: 2 migrations of unified memory") for line in found.remarks)
    assert "Copies of an unknown kind of host memory: 1, taken as pinned." in found.remarks


def test_streams_of_green_contexts_and_processes_have_names_of_their_own(tmp_path: Path) -> None:
    rows = [
        kernel(0, 10, 1, greenContextId=0),
        kernel(0, 10, 2, greenContextId=3),
        kernel(0, 10, 1, greenContextId=0, globalPid=6 << 24),
    ]
    names = [stream.name for stream in imported(tmp_path, {nsys.KERNELS: rows}).trace.streams]
    assert names == [f"process{PROCESS}/stream7", f"process{6 << 24}/stream7", f"process{PROCESS}/green3/stream7"]


def test_kernels_of_graphs_say_so(tmp_path: Path) -> None:
    rows = [kernel(0, 10, 1, graphId=4, graphNodeId=1), kernel(10, 20, 1, graphId=4, graphNodeId=2)]
    found = imported(tmp_path, {nsys.KERNELS: rows, nsys.GRAPHS: [{"start": 0, "end": 1}]})
    assert [op.id for op in found.trace.operations()] == ["graph4/0", "graph4/1"]
    assert any("2 kernels of CUDA graphs" in line for line in found.remarks)
    assert any("Left out: 1 run of CUDA graphs that were recorded whole" in line for line in found.remarks)


def sync(order: int, kind: int, **changed: Any) -> dict[str, Any]:
    return {
        "streamId": 20, "contextId": 1, "globalPid": PROCESS, "correlationId": order, "syncType": kind, "eventSyncId": 8
    } | changed  # fmt: skip


def test_event_makes_the_next_launch_wait_for_the_last_before_the_record(tmp_path: Path) -> None:
    record = {"globalPid": PROCESS, "eventSyncId": 8, "contextId": 1, "streamId": 7, "correlationId": 3}
    rows = [kernel(0, 9000, 1), kernel(9000, 20_000, 4), kernel(10_000, 12_000, 6, streamId=20)]
    tables = {nsys.KERNELS: rows, nsys.EVENTS: [record], nsys.SYNCS: [sync(5, 2)]}
    assert [op.depends_on for op in imported(tmp_path, tables).trace.operations()] == [(), (), ("kernel/0",)]


def test_waits_without_a_recorded_event_are_counted(tmp_path: Path) -> None:
    rows = [kernel(0, 9000, 1), kernel(10_000, 12_000, 6, streamId=20)]
    found = imported(tmp_path, {nsys.KERNELS: rows, nsys.SYNCS: [sync(5, 2)]})
    assert any("No event was recorded for 1 wait of streams" in line for line in found.remarks)
    assert (found.trace.order, [op.depends_on for op in found.trace.operations()]) == ("inferred", [(), ("kernel/0",)])
    as_recorded = import_profile(tmp_path / "a.sqlite", order="recorded").trace
    assert [op.depends_on for op in as_recorded.operations()] == [(), ()]


def test_nothing_is_inferred_between_processes(tmp_path: Path) -> None:
    rows = [kernel(0, 9000, 1), kernel(10_000, 12_000, 6, globalPid=6 << 24)]
    trace = imported(tmp_path, {nsys.KERNELS: rows}).trace
    assert (trace.order, [op.depends_on for op in trace.operations()]) == (None, [(), ()])


def test_host_that_waits_for_a_stream_orders_its_next_launches(tmp_path: Path) -> None:
    rows = [kernel(0, 9000, 1), kernel(10_000, 12_000, 6, streamId=20)]
    calls = [{"globalTid": PROCESS | 77, "correlationId": order} for order in (1, 3, 6)]
    tables = {nsys.KERNELS: rows, nsys.SYNCS: [sync(3, 3, streamId=7)], nsys.CALLS: calls}
    assert [op.depends_on for op in imported(tmp_path, tables).trace.operations()] == [(), ("kernel/0",)]


def test_host_that_waits_for_an_event_waits_for_what_came_before_its_record(tmp_path: Path) -> None:
    record = {"globalPid": PROCESS, "eventSyncId": 8, "contextId": 1, "streamId": 7, "correlationId": 2}
    rows = [kernel(0, 9000, 1), kernel(9000, 9500, 3), kernel(10_000, 12_000, 5, streamId=20)]
    calls = [{"globalTid": PROCESS | 77, "correlationId": order} for order in (1, 2, 3, 4, 5)]
    tables = {nsys.KERNELS: rows, nsys.EVENTS: [record], nsys.SYNCS: [sync(4, 1, streamId=0)], nsys.CALLS: calls}
    assert [op.depends_on for op in imported(tmp_path, tables).trace.operations()] == [(), (), ("kernel/0",)]


def test_work_that_ends_before_it_starts_is_left_out_and_counted(tmp_path: Path) -> None:
    memset = {"start": 20, "end": 10, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 1, "bytes": 64}
    tables = {nsys.KERNELS: [kernel(0, 1000, 1), kernel(3000, 2000, 2)], nsys.MEMSETS: [memset]}
    found = imported(tmp_path, tables)
    assert [op.id for op in found.trace.operations()] == ["kernel/0"]
    assert "Left out: 2 rows of kernels, copies or memsets with the end before the start." in found.remarks


def test_host_of_one_process_does_not_wait_for_another(tmp_path: Path) -> None:
    rows = [kernel(0, 9000, 1, globalPid=6 << 24), kernel(10_000, 12_000, 6, streamId=20)]
    calls = [{"globalTid": PROCESS | 77, "correlationId": order} for order in (3, 6)]
    tables = {nsys.KERNELS: rows, nsys.SYNCS: [sync(3, 4)], nsys.CALLS: calls}
    assert [op.depends_on for op in imported(tmp_path, tables).trace.operations()] == [(), ()]
    tables[nsys.KERNELS] = [kernel(0, 9000, 1), rows[1]]
    (tmp_path / "a.sqlite").unlink()
    assert [op.depends_on for op in imported(tmp_path, tables).trace.operations()] == [(), ("kernel/0",)]


def test_a_database_of_nvprof_has_its_kernels_in_another_table(tmp_path: Path) -> None:
    """The table of kernels is empty where kernels might run at once, as in most files of the Visual Profiler."""
    named = {"demangledName": None, "shortName": None, "globalPid": None, "name": 1}
    rows = [kernel(0, 9000, 1, **named), kernel(9500, 12_000, 2, streamId=20, **named)]
    moved = {"start": 13_000, "end": 14_000, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 3}
    tables = {
        nsys.KERNELS: [],
        nsys.CONCURRENT_KERNELS: rows,
        nsys.COPIES: [moved | {"bytes": 64, "copyKind": 1, "srcKind": 1, "dstKind": 3}],
        nsys.NVPROF_STRINGS: [{"_id_": 1, "value": "gemm"}, {"_id_": 2, "value": "Tesla V100-SXM2-16GB"}],
        nsys.NVPROF_GPUS: [{"id": 0, "name": 2, "numMultiprocessors": 80, "globalMemorySize": 16 * 10**9}],
    }
    path = write(tmp_path / "a.nvvp", tables)
    assert detect(path) == "nsys"
    trace = import_profile(path).trace
    assert (trace.device, trace.order, [stream.name for stream in trace.streams]) == (
        "v100", "inferred", ["stream7", "stream20"],
    )  # fmt: skip
    first, copied, second = trace.operations()
    assert isinstance(copied, Copy) and (copied.direction, copied.memory) == ("h2d", "pageable")
    assert [one.launches()[0].name for one in (first, second)] == ["gemm", "gemm"]
    assert (first.launches()[0].registers_per_thread, first.launches()[0].duration_us) == (40, 9.0)


def test_gzip_is_unpacked_first(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.sqlite", {nsys.KERNELS: [kernel(0, 10, 1)], "StringIds": STRINGS, nsys.GPUS: [H200]})
    packed = tmp_path / "a.sqlite.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert detect(packed) == "nsys"
    assert import_profile(packed).trace.streams == import_profile(plain).trace.streams


@pytest.mark.parametrize(
    ("tables", "what"),
    [
        ({"rocpd_api": [{"id": 1}]}, "AMD GPU"),
        ({nsys.CONCURRENT_KERNELS: [{"id": 1}]}, "lacks start"),
        ({nsys.CONCURRENT_KERNELS: [], nsys.KERNELS: []}, "holds no kernels"),
        ({nsys.CALLS: [{"correlationId": 1}]}, "holds 1 CUDA calls and no kernels"),
        ({nsys.CALLS: [{"correlationId": 1}], nsys.KERNELS: []}, "nsys status --environment"),
        ({nsys.KERNELS: []}, "holds no kernels"),
        ({nsys.GRAPHS: [{"start": 1}]}, "--cuda-graph-trace=node"),
        ({"StringIds": STRINGS}, "has no table"),
        ({nsys.KERNELS: [{"start": 1, "end": 2}]}, "lacks deviceId"),
        (
            {nsys.KERNELS: [kernel(0, 10, 1, gridX="many")], nsys.GPUS: [H200]},
            "has 'many' where a whole number should be",
        ),
        (
            {nsys.KERNELS: [kernel(0, 10, 1, gridX=None)], nsys.GPUS: [H200]},
            "has nothing where a whole number should be",
        ),
        ({nsys.KERNELS: [kernel(0, 10, 1, gridX=1.9)], nsys.GPUS: [H200]}, "has '1.9' where a whole number should be"),
        ({nsys.KERNELS: [kernel(0, 10, 1, gridX="1_6")], nsys.GPUS: [H200]}, "has '1_6' where"),
        ({nsys.KERNELS: [kernel(20, 10, 1)], nsys.GPUS: [H200]}, "holds no kernels beside 1 row of kernels"),
        ({nsys.KERNELS: [kernel(0, 10, 1, gridX=0)], nsys.GPUS: [H200]}, "grid[0]"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(tmp_path: Path, tables: Tables, what: str) -> None:
    assert what in refused(write(tmp_path / "a.sqlite", tables))


def test_half_a_database_is_refused(tmp_path: Path) -> None:
    rows = [kernel(n, n + 1, n) for n in range(2000)]
    path = write(tmp_path / "a.sqlite", {nsys.KERNELS: rows, "StringIds": STRINGS, nsys.GPUS: [H200]})
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "cannot be read" in refused(path)


def test_profile_of_two_gpus(shared: Path) -> None:
    path = shared / "traces" / "nsys_2gpu_training.sqlite.gz"
    if not path.is_file():
        pytest.skip("needs ../shared/traces/nsys_2gpu_training.sqlite.gz")
    assert refused(path).startswith(f"{path}: gpu: the profile names no GPU; expected")
    with pytest.raises(InputError, match="device: GPU 7 ran no kernels; expected one of 0, 1") as caught:
        import_profile(path, gpu=load_gpu("h100-sxm"), device=7)
    assert caught.value.path == path
    counts = []
    for device in (0, 1):
        trace = import_profile(path, gpu=load_gpu("h100-sxm"), device=device).trace
        counts.append(sum(len(operation.launches()) for operation in trace.operations()))
    assert counts == [1993, 2017]


@pytest.mark.skipif(os.name != "posix", reason="a program that a shell runs")
@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo; exit 3", "nsys export failed (3)"),
        ('printf "" > "$5"', "has no table CUPTI"),
    ],
)
def test_faults_of_an_export_name_the_report(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nsys").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "nsys").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    report = tmp_path / "a.nsys-rep"
    report.write_bytes(b"NVR")
    line = refused(report)
    assert line.startswith(f"{report}: ") and said in line


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        import_profile(tmp_path / "none.sqlite", format="nsys")
