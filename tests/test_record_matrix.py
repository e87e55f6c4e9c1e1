"""The resource matrix: what is run, and its tables, with a made-up compiler, GPU and Nsight Compute."""

from __future__ import annotations

import csv
import gzip
import re
from pathlib import Path

import pytest

from gpusim.cli import main
from gpusim.common.errors import InputError
from gpusim.lab.record import matrix
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.toolchain import build

RECORD = ("record", "microbench", "--matrix", "--out")
SOURCE = Path(matrix.__file__).with_suffix(".cu").read_text()
QUERIED = """
Device NVIDIA H100
---------- -------
Metric Name Metric Type
sm__pipe_fp64_cycles_active Counter cycle  # of cycles
sm__inst_executed_pipe_xu Counter
sm__inst_executed_pipe_tensor_op_hmma Counter
sm__inst_executed_pipe_fma_type_fp16 Counter
smsp__average_warps_issue_stalled_gmma_per_issue_active Ratio
smsp__average_warps_issue_stalled_gmma_not_issued_per_issue_active Ratio
unknown Counter
"""
EXTRA = [
    "sm__pipe_fp64_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
    "smsp__average_warps_issue_stalled_gmma_per_issue_active.ratio",
]

# The program: as many turns as its plan says, or 7; a pair of the first kernel with itself.
PROGRAM = """
plan = [line.split() for line in open(sys.argv[1])]
if sys.argv[3:] == ["profile"]:
    assert all(int(line[2]) == 7 for line in plan), plan
    sys.exit()
folder = pathlib.Path(sys.argv[2])
(folder / "device.csv").write_text("name,value\\ndevice,NVIDIA H100\\n")
rows = [f"{kernel}/{warps},{warps},7\\n" for kernel, warps, _, _ in plan]
(folder / "kernels.csv").write_text("kernel,warps_per_scheduler,turns\\n" + "".join(rows))
(folder / "isolated.csv").write_text("kernel,us\\n")
(folder / "pairs.csv").write_text("first,second\\nfma1/1,fma1/1\\n")
print("pairs: 1 s, 0 of them left out", file=sys.stderr)
"""
NCU = """
if "--query-metrics" in sys.argv:
    print({queried!r})
    sys.exit()
log, metrics = (sys.argv[sys.argv.index(name) + 1] for name in ("--log-file", "--metrics"))
begin = sys.argv.index("-f") + 1
subprocess.run(sys.argv[begin:], check=True)
names = ["ID", "Kernel Name", "Grid Size", "Block Size", *metrics.split(",")]
with open(log, "w", newline="") as file:
    out = csv.writer(file, quoting=csv.QUOTE_ALL)
    out.writerow(names)
    out.writerow([""] * len(names))
    for i, _ in enumerate(open(sys.argv[begin + 1])):
        out.writerow([i, "load(Args)", "(132, 1, 1)", "(128, 1, 1)", *["1,234"] * (len(names) - 4)])
"""


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/usr/bin/env python3\nimport csv, pathlib, shutil, subprocess, sys\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of tools on PATH: nvcc, which makes a program that writes small tables, nvidia-smi and ncu."""
    folder = tmp_path / "tools"
    folder.mkdir()
    _script(folder / "program", PROGRAM)
    copy = f"""
pathlib.Path(sys.argv[0] + ".said").write_text(" ".join(sys.argv))
shutil.copy({str(folder / "program")!r}, sys.argv[sys.argv.index("-o") + 1])"""
    _script(folder / "nvcc", copy)
    _script(folder / "nvidia-smi", "print('9.0')")
    _script(folder / "ncu", NCU.format(queried=QUERIED))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as file:
        return list(csv.DictReader(file))


def test_every_kernel_of_the_plan_is_in_the_program() -> None:
    known = re.findall(r'^    \{"(\w+)", ', SOURCE, re.MULTILINE)
    assert sorted(known) == sorted(matrix.RESOURCES)
    assert len(set(known)) == len(known)


def test_the_plan_has_each_cell_once_and_pairs_fit_an_sm() -> None:
    lines = matrix.plan("9.0", {"fma1/4": 12})
    cells = [tuple(line.split()[:2]) for line in lines]
    assert len(set(cells)) == len(cells)
    assert "fma1 4 12 1" in lines and "fma1 16 0 0" in lines
    assert all(warps <= 8 for cell in matrix.CELLS for warps in cell.paired)
    assert not any(line.startswith("wgmma") for line in matrix.plan("8.0"))


def test_the_matrix_is_recorded_with_its_counters(
    tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["record", "microbench", "--matrix", "--counters", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    assert "pairs: 1 s, 0 of them left out" in said
    assert [row["first"] for row in _rows(out / "pairs.csv.gz")] == ["fma1/1"]
    counted = _rows(out / "counters.csv.gz")
    assert [row["kernel"] for row in counted] == [row["kernel"] for row in _rows(out / "kernels.csv.gz")]
    more = [counter for counter in EXTRA if counter not in COUNTERS]
    assert list(counted[0]) == ["kernel", "Kernel Name", "Grid Size", "Block Size", *COUNTERS, *more]
    assert counted[0][more[0]] == "1234"
    assert f"{len(COUNTERS) + len(more)} counters of {len(counted)} kernels" in said


@pytest.mark.parametrize(
    "refused",
    ['if "--query-metrics" in sys.argv: sys.exit(9)', 'if any("pipe_fp64" in word for word in sys.argv): sys.exit(9)'],
)
def test_where_ncu_has_no_more_counters_those_of_a_recording_are_counted(
    tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: str
) -> None:
    _script(tools / "ncu", refused + NCU.format(queried=QUERIED))
    assert main([*RECORD, str(tmp_path / "out"), "--counters"]) == 0
    assert list(_rows(tmp_path / "out" / "counters.csv.gz")[0])[4:] == list(COUNTERS)
    assert capsys.readouterr().err.count("only the counters of a recording") == 1


def test_what_is_missing_is_one_clear_line(
    tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["record", "microbench", "--matrix", "--raw", "x", "--out", "y"]) == 2
    assert "--raw: is not for --matrix" in capsys.readouterr().err
    (tools / "ncu").unlink()
    assert main([*RECORD, str(tmp_path / "out"), "--counters"]) == 2
    assert capsys.readouterr().err.startswith("ncu: not found on PATH")
    _script(tools / "program", "sys.exit(3)")
    assert main([*RECORD, str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith("GPU: no usable NVIDIA GPU")


@pytest.mark.parametrize(("capability", "chip"), [("9.0", "90a"), ("8.6", "86")])
def test_programs_are_built_for_the_gpu_at_hand(tools: Path, tmp_path: Path, capability: str, chip: str) -> None:
    _script(tools / "nvidia-smi", f"print('{capability}')")
    build(tmp_path / "a.cu", tmp_path / "a", 8.0, "cuda")
    assert f"-gencode=arch=compute_{chip},code=sm_{chip} " in (tools / "nvcc.said").read_text()
    with pytest.raises(InputError, match="GPU: compute capability"):
        build(tmp_path / "a.cu", tmp_path / "a", 9.5)
