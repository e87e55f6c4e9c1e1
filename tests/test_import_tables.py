"""Tables of nsys stats, ncu's long form, and reports through an installed nsys."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from profiles import refused, written
from test_import_nsys import H200, STRINGS, kernel, write

from gpusim import cli, import_profile, load_gpu
from gpusim.io import nsys
from gpusim.trace.operations import Copy, Kernel

HEADER = (
    "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),"
    "Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name"
)
KERNEL = '5000,12345,11,4,3,2,64,2,1,40,0.001,0.032,,,,,NVIDIA H200 (0),1,,7,"void gemm<float, int>(int)"'
COPY = "1000,2000,10,,,,,,,,,,4.194,2097.0,Pinned,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy Host-to-Device]"
LONG = '"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name",' \
       '"Metric Name","Metric Unit","Metric Value"\n'  # fmt: skip


def long_form(*rows: tuple[int, str, str, str]) -> str:
    """Lines of ncu --csv --metrics …."""
    kernel = '"1","gemm","1","7","(64, 2, 1)","(4, 3, 2)","0","9.0","Command line profiler metrics"'
    return LONG + "".join(f'"{id}",{kernel},"{name}","{unit}","{value}"\n' for id, name, unit, value in rows)


def test_a_table_of_gpu_work_is_a_timeline(tmp_path: Path) -> None:
    text = f"Generating SQLite file a.sqlite\n\n{HEADER}\n{COPY}\n{KERNEL}\n"
    found = import_profile(written(tmp_path / "a.csv", text))
    copy, gemm = found.trace.operations()
    assert (found.format, found.trace.device, found.trace.streams[0].name) == ("nsys", "h200", "stream7")
    assert isinstance(copy, Copy) and isinstance(gemm, Kernel)
    assert (copy.direction, copy.memory, copy.bytes, copy.duration_us) == ("h2d", "pinned", 4_194_000, 2.0)
    launch = gemm.kernel
    assert (launch.name, launch.grid, launch.block) == ("void gemm<float, int>(int)", (4, 3, 2), (64, 2, 1))
    assert (launch.registers_per_thread, launch.duration_us) == (40, 12.345)
    assert (launch.static_shared_memory_bytes, launch.dynamic_shared_memory_bytes) == (1000, 32_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{HEADER}\n{KERNEL[:30]}\n", "of 21 fields; expected a whole file"),
        (f"{HEADER}\n{KERNEL.replace('5000', 'soon')}\n", "line 2: has 'soon' in 'ns'"),
        (f"{HEADER}\n{KERNEL.replace(',4,3,2,', ',,,,')}\n", "has no grid or block"),
        (f"{HEADER.replace('Name', 'What')}\n{KERNEL}\n", "lacks Name"),
        (
            "Time (%),Total Time (ns),Instances\n1,2,3\n",
            "is a table of nsys stats with no single launches; expected nsys stats --report",
        ),
    ],
)
def test_what_is_no_such_table_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in refused(written(tmp_path / "a.csv", text))


def test_ncus_long_form_is_a_launch_for_each_id(tmp_path: Path) -> None:
    text = long_form(
        (0, "gpu__time_duration.sum", "us", "12.5"),
        (0, "launch__registers_per_thread", "register/thread", "40"),
        (1, "gpu__time_duration.sum", "ns", "7,000"),
        (1, "launch__registers_per_thread", "register/thread", "40"),
    )
    found = import_profile(written(tmp_path / "a.csv", text), gpu=load_gpu("h200"))
    launches = [launch for op in found.trace.operations() for launch in op.launches()]
    assert [(one.name, one.grid, one.registers_per_thread, one.duration_us) for one in launches] == [
        ("gemm", (4, 3, 2), 40, 12.5),
        ("gemm", (4, 3, 2), 40, 7.0),
    ]


def fake_nsys(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    program = folder / "nsys"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize("ending", [".nsys-rep", ".qdrep"])
def test_a_report_goes_through_an_installed_nsys(ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = write(tmp_path / "made.db", {"StringIds": STRINGS, nsys.GPUS: [H200], nsys.KERNELS: [kernel(0, 5000, 1)]})
    fake_nsys(tmp_path, monkeypatch, f'test "$1 $2 $3" = "export --type sqlite" && cp {made} "$5"')
    found = import_profile(written(tmp_path / f"mine{ending}", "NSYS"))
    assert (found.trace.name, found.format, found.trace.device) == ("mine", "nsys", "h200")


def test_a_report_that_nsys_cannot_export_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = written(tmp_path / "mine.nsys-rep", "NSYS")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is a report in its tool's own form, and no nsys is installed" in refused(report)
    fake_nsys(tmp_path, monkeypatch, "echo the report is cut short >&2; exit 1")
    assert "nsys export failed (the report is cut short)" in refused(report)
    assert "is not there" in refused(tmp_path / "other.nsys-rep")


def test_trace_show_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            [
                "import",
                str(written(tmp_path / "a.csv", f"{HEADER}\n{COPY}\n{KERNEL}\n")),
                "-o",
                str(tmp_path / "t.json"),
            ]
        )
        == 0
    )
    capsys.readouterr()
    assert cli.main(["trace", "show", str(tmp_path / "t.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["device"], found["gpu"]) == ("h200", "h200")
    assert found["streams"] == [
        {"name": "stream7", "operations": 2, "waits": 0, "launches": 1, "kernels_us": 12.345, "estimated": 1}
    ]
    (gemm,) = found["kernels"]
    assert (gemm["name"], gemm["blocks_per_sm"], gemm["limiter"]) == ("void gemm<float, int>(int)", 6, "shared_memory")


def test_sqlite_of_nsys_is_still_that(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    sqlite3.connect(path).execute("CREATE TABLE a (b)").connection.commit()
    assert "has no table" in refused(path)
