"""Importing nvprof's GPU trace in CSV, in both styles of units, and its profiles in Chrome's form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from profiles import refused, written

from gpusim.hardware.gpu import load_gpu
from gpusim.io.importing import detect, import_profile
from gpusim.trace.operations import Copy

HEADER = (
    '"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",'
    '"Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Name","Correlation_ID"'
)
GPU = '"Tesla V100-SXM2-16GB (0)","1","7"'
UNITS_ROW = f"""==12== NVPROF is profiling process 12, command: ./a
hello from the program
==12== Profiling application: ./a
==12== Profiling result:
{HEADER}
ms,us,,,,,,,,KB,B,MB,GB/s,,,,,,,
0.5,2.5,,,,,,,,,,1.5,3.0,"Pageable","Device",{GPU},"[CUDA memcpy HtoD]",1
0.9,1.568000,,,,,,,,,,1.0,0.6,"Device",,{GPU},"[CUDA memset]",2
1.0,12.250000,80,2,1,256,1,1,40,8.500000,512,,,,,{GPU},"void gemm<float, int=2>(float*) [123]",3
"""
UNITS_BEHIND = f"""{HEADER}
500.0us,2.5us,,,,,,,,,,1.5MB,3GB/s,"Pageable","Device",{GPU},"[CUDA memcpy HtoD]",1
900us,1.568us,,,,,,,,,,1MB,1GB/s,"Device",,{GPU},"[CUDA memset]",2
1.0ms,12.25us,80,2,1,256,1,1,40,8.5KB,512B,,,,,{GPU},"void gemm<float, int=2>(float*) [123]",3
"""


@pytest.mark.parametrize("text", [UNITS_ROW, UNITS_BEHIND, UNITS_ROW.replace("\n", "\r\n"), "\ufeff" + UNITS_ROW])
def test_units_in_a_row_or_behind_each_number(tmp_path: Path, text: str) -> None:
    path = written(tmp_path / "a.csv", text)
    assert detect(path) == "nvprof"
    trace = import_profile(path).trace
    assert (trace.device, [stream.name for stream in trace.streams]) == ("v100", ["stream7"])
    copy, memset, kernel = trace.operations()
    assert isinstance(copy, Copy)
    assert isinstance(memset, Copy)
    assert (copy.direction, copy.bytes, copy.duration_us, copy.memory) == ("h2d", 3 * 2**19, 2.5, "pageable")
    assert (memset.direction, memset.bytes) == ("memset", 2**20)
    launch = kernel.launches()[0]
    assert (launch.name, launch.grid, launch.block) == ("void gemm<float, int=2>(float*)", (80, 2, 1), (256, 1, 1))
    assert (launch.static_shared_memory_bytes, launch.dynamic_shared_memory_bytes) == (8704, 512)
    assert (launch.registers_per_thread, launch.duration_us) == (40, 12.25)


def test_order_between_streams_is_inferred(tmp_path: Path) -> None:
    later = UNITS_ROW.replace("12.250000", "12.25").splitlines()[-1].replace('"7"', '"8"').replace("1.0,", "2.0,", 1)
    path = written(tmp_path / "a.csv", f"{UNITS_ROW}{later}\n")
    trace = import_profile(path).trace
    assert (trace.order, list(trace.operations())[-1].depends_on) == ("inferred", ("kernel/0",))
    assert import_profile(path, order="none").trace.order == "independent"


def test_rows_of_unified_memory_markers_and_calls_are_left_out(tmp_path: Path) -> None:
    others = {
        "[Unified Memory Memcpy HtoD]": "8",
        "[Unified Memory CPU page faults]": "",
        "[Marker] a": "",
        "cuInit": "2",
    }
    rows = "".join(f"0.7,{duration}{',' * 17}{name},\n" for name, duration in others.items())
    imported = import_profile(written(tmp_path / "a.csv", UNITS_ROW + rows))
    assert len(list(imported.trace.operations())) == 3
    assert any(line.startswith("Left out: 4 rows of no kernel, copy or memset") for line in imported.remarks)


def test_utf16_as_powershell_writes_it(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(UNITS_ROW.encode("utf-16"))
    assert len(list(import_profile(path).trace.operations())) == 3


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (UNITS_ROW[:-40], "of 20 fields"),
        (UNITS_ROW + UNITS_ROW.replace("==12==", "==13=="), "begins another process; expected one process per file"),
        (UNITS_ROW.replace("12.250000", "soon"), "has 'soon'"),
        (UNITS_ROW.replace("12.250000", "-1"), "has '-1'"),
        (UNITS_ROW.replace("1,1,40,", "1,1,abc,"), "line 9: has 'abc' registers"),
        (UNITS_ROW.replace("1,1,40,", "1,1,1_6,"), "has '1_6' registers"),
        (UNITS_ROW.replace("1,1,40,", "1,1,-40,"), "has '-40' registers"),
        (UNITS_ROW.replace("ms,us,", "ms,fortnights,"), "fortnights"),
        ('"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n', "has no header"),
        ("Time(%),Time,Calls,Avg,Min,Max,Name\n47.79%,5.1ms,45,1us,1us,1us,k\n", "has no header"),
        ("Start (ns),Duration (ns),CorrId,GrdX,Name\n1,2,3,4,k\n", "a table of nsys stats"),
        ("Processing [a.sqlite]...\nTime (%),Total Time (ns),Instances,Name\n100,5,1,k\n", "a table of nsys stats"),
        ('"Start","Duration","Name","Correlation_ID"\nus,us,,\n0,1,"cuInit",1\n', "lacks Grid X"),
        (HEADER + "\n", "holds no kernels"),
        ('"Index","KernelName","gpu-id","queue-id"\n0,"k",1,1\n', "AMD GPU"),
        ('"Kind","Agent_Id","Queue_Id","Kernel_Name"\n0,1,1,"k"\n', "AMD GPU"),
        ('"Name","Calls","TotalDurationNs","AverageNs"\n"k",1,2,2\n', "rocprofv3"),
        ('"Domain","Function","Process_Id"\n"HIP_API","hipFree",1\n', "rocprofv3"),
        ("a,b,c\n1,2,3\n", "unrecognised profile format"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    assert what in refused(written(tmp_path / "a.csv", text), gpu=load_gpu("v100"))


def event(pid: str, tid: str, name: str = "pool(float*)", ts: int = 10**18, **args: str) -> dict[str, Any]:
    return {"name": name, "ph": "X", "cat": "cuda", "ts": ts, "pid": pid, "tid": tid, "dur": 8000, "args": args}


def test_chrome_form_lists_a_kernel_in_several_rows(tmp_path: Path) -> None:
    args = {
        "Grid": "[100,1,1]", "Block": "[16,16,1]", "RegistersPerThread": "26", "StaticSharedMemory": "640",
        "DynamicSharedMemory": "0", "StreamID": "14",
    }  # fmt: skip
    rows = [("Compute", "pool(float*)"), ("Streams", "Stream 14"), ("[0:1] Tesla V100-SXM2-16GB", "Compute")]
    call = event("[6] Process", "Thread 1: Runtime API", "cudaLaunchKernel")
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"traceEvents": [call, *(event(pid, tid, **args) for pid, tid in rows)]}))
    assert detect(path) == "nvprof"
    trace = import_profile(path).trace
    (operation,) = trace.operations()
    launch = operation.launches()[0]
    assert (trace.device, trace.streams[0].name) == ("v100", "stream14")
    assert (launch.grid, launch.block, launch.duration_us) == ((100, 1, 1), (16, 16, 1), 8.0)
    assert (launch.registers_per_thread, launch.shared_memory_per_block_bytes) == (26, 640)


def test_chrome_form_in_microseconds(tmp_path: Path) -> None:
    kernel = event("[0:1] Overview", "Kernels", ts=10**15, grid="[[ 4, 1, 1 ]]", block="[[ 32, 1, 1 ]]", stream="7")
    path = tmp_path / "a.json"
    path.write_text(json.dumps([kernel]))
    launch = next(import_profile(path, gpu=load_gpu("v100")).trace.operations()).launches()[0]
    assert (launch.grid, launch.duration_us) == ((4, 1, 1), 8000.0)


def test_chrome_form_without_streams_registers_and_names_of_gpus(tmp_path: Path) -> None:
    args = {"Grid size": "[ 4, 2, 1 ]", "Block size": "[ 32, 1, 1 ]"}
    kernels = [
        event(f"[0:1] {row}", "Compute", ts=10**18 + n, **args) for n in (0, 9000) for row in ("Overview", "Compute")
    ]
    copy = event("[0:1] Overview", "MemCpy (HtoD)", "Memcpy HtoD [async]", Size="12.3KB")
    path = tmp_path / "a.json"
    path.write_text(json.dumps([copy, *kernels]))
    assert "the profile names no GPU" in refused(path)
    imported = import_profile(path, gpu=load_gpu("v100"))
    assert [(op.launches()[0].grid, op.launches()[0].duration_us) for op in imported.trace.operations()] == [
        ((4, 2, 1), 8.0)
    ] * 2
    assert "Kernels name no stream: they are taken as of one." in imported.remarks
    assert any(line.startswith("Left out: 1 row of copies or kernels without") for line in imported.remarks)


def test_empty_cell_of_registers_is_0(tmp_path: Path) -> None:
    trace = import_profile(written(tmp_path / "a.csv", UNITS_ROW.replace("1,1,40,", "1,1,,"))).trace
    assert list(trace.operations())[-1].launches()[0].registers_per_thread == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"RegistersPerThread": "abc"},
        {"RegistersPerThread": "1_6"},
        {"DynamicSharedMemory": "-1"},
        {"StaticSharedMemory": "much"},
        {"StreamID": None},
        {"Grid": "[-4,1,1]"},
    ],
)
def test_chrome_form_with_numbers_that_are_none(tmp_path: Path, bad: dict[str, Any]) -> None:
    args: dict[str, Any] = {"Grid": "[4,1,1]", "Block": "[32,1,1]", "StreamID": "7"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps([event("a", "b", **args), event("a", "b", "bad", **{**args, **bad})]))
    imported = import_profile(path, gpu=load_gpu("v100"))
    assert [op.launches()[0].name for op in imported.trace.operations()] == ["pool(float*)"]
    assert "Left out: 1 row of copies or kernels without a usable stream, grid, size or time." in imported.remarks


def test_fused_kernels_of_hfuse(shared: Path) -> None:
    path = shared / "traces" / "nvprof_hfuse_ml_v100.json.gz"
    if not path.is_file():
        pytest.skip("needs ../shared/traces/nvprof_hfuse_ml_v100.json.gz")
    trace = import_profile(path).trace
    launches = [launch for operation in trace.operations() for launch in operation.launches()]
    assert (trace.device, len(launches)) == ("v100", 445)
    assert max(launch.duration_us for launch in launches) < 1e5


def test_rows_of_a_gpu_tell_which_it_was(tmp_path: Path) -> None:
    args = {"Grid": "[4,1,1]", "Block": "[32,1,1]", "StreamID": "7"}
    events = [event("Compute", "pool(float*)", **args), event("[1:1] Tesla V100-SXM2-16GB", "Compute", **args)]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(events))
    assert "device: GPU 0 ran no kernels; expected one of 1" in refused(path, device=0)
    assert import_profile(path, device=1).trace.device == "v100"


def test_profile_of_pytorch_is_not_read_as_nvprofs(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{**event("0", "7", **{"grid": "[1,1,1]"}), "cat": "Kernel"}]))
    assert "is a profile of PyTorch" in refused(path, format="nvprof", gpu=load_gpu("v100"))
