"""What CONTRIBUTING.md tells a stranger to do, done: each change is made in a copy of the package, then used."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpusim import Session, load_trace
from gpusim.model.memory import MemoryLoad, memory_slowdown

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MIXED = ROOT / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"


def changed(name: str, folder: Path) -> Path:
    """A copy of the package and its GPUs with a change of CONTRIBUTING.md made in it."""
    for part in ("gpusim", "gpus"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    block = re.search(rf"<!-- change: {name} -->\n```diff\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    for part in block[1].split("--- ")[1:]:
        file, *hunks = re.split(r"\n@@\n", part)
        path = folder / file.strip()
        text = path.read_text(encoding="utf-8")
        for hunk in hunks:
            lines = hunk.splitlines()
            before = "\n".join(line[1:] for line in lines if line[:1] != "+")
            after = "\n".join(line[1:] for line in lines if line[:1] != "-")
            assert text.count(before) == 1, f"CONTRIBUTING.md's change {name} does not fit {file}: {before!r}"
            text = text.replace(before, after)
        path.write_text(text, encoding="utf-8")
    return folder


def python(package: Path, *arguments: str, status: int = 0) -> str:
    """What Python prints with that copy of the package; of an error, its line."""
    done = subprocess.run([sys.executable, *arguments], cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done.stdout if status == 0 else done.stderr


def test_the_rooms_are_those_of_the_package_in_the_order_of_imports() -> None:
    listed = re.findall(r"^\| `(\w+)(?:/|\.py)` \|", TEXT, re.M)
    from test_house import ROOMS

    assert listed == list(ROOMS)


def test_files_that_it_names_exist() -> None:
    named = {
        *re.findall(r"\]\(([^)#]+)\)", TEXT),
        *re.findall(r"`((?:gpusim|gpus|tests|experiments|docs)/[\w/.]+)`", TEXT),
    }
    assert {path for path in named if not (ROOT / path).exists()} == set()
    scripts = re.findall(r"^python (\S+)", TEXT, re.M)
    assert len(scripts) >= 4 and all((ROOT / script).exists() for script in scripts)


# ---- an operation


def operation(id: str, kind: str = "reading") -> dict[str, object]:
    return {"id": id, "kind": kind, "bytes": 1024, "duration_us": 20.0}


def hand_typed(path: Path, *operations: dict[str, object]) -> Path:
    """A trace with a stream for each operation."""
    streams = [{"name": f"s{i}", "operations": [one]} for i, one in enumerate(operations)]
    path.write_text(json.dumps({"version": 1, "name": "made", "device": "h200", "streams": streams}), encoding="utf-8")
    return path


USE = """
import sys, gpusim
from gpusim.results.error_band import error_band
from gpusim.results.plots import gantt
from gpusim.results.style import save_figure
gpu, trace = gpusim.load_gpu("h200"), gpusim.load_trace(sys.argv[1])
result = gpusim.replay(trace, gpu, policy="leftover")
for row in result.operations.itertuples():
    print(row.stream, row.operation, row.kind, float(row.start_us), float(row.end_us))
print(result.makespan_us, sorted(result.operations.operation), error_band(result, trace, gpu).reason)
save_figure(gantt(result), sys.argv[2])
"""


@pytest.mark.release
def test_a_kind_of_operation_is_one_class(tmp_path: Path) -> None:
    """Two readings of 20 us at once: the disk serves one after the other; both are in rows and picture."""
    package = changed("reading", tmp_path / "copy")
    trace = hand_typed(tmp_path / "two.json", operation("images"), operation("labels"))
    picture = tmp_path / "gantt.png"
    rows = python(package, "-c", USE, str(trace), str(picture)).splitlines()
    assert rows == [
        "s0 images reading 0.0 20.0",
        "s1 labels reading 0.0 40.0",
        "40.0 ['images', 'labels'] not validated: operations of kind reading",
    ]
    assert picture.stat().st_size > 0


@pytest.mark.release
def test_a_new_kind_is_in_the_schema_and_in_errors(tmp_path: Path) -> None:
    package = changed("reading", tmp_path / "copy")
    schema = json.loads(python(package, "-m", "gpusim", "schema", "trace"))
    assert "Reading" in schema["$defs"]
    wrong = hand_typed(tmp_path / "wrong.json", operation("x", "broadcast"))
    line = python(package, "-m", "gpusim", "replay", str(wrong), status=2)
    assert "one of kernel, convolution, copy, host, collective, reading" in line
    lacking = hand_typed(tmp_path / "lacking.json", {"id": "x", "kind": "reading", "bytes": 1})
    line = python(package, "-m", "gpusim", "replay", str(lacking), status=2)
    assert "streams[0].operations[0].duration_us: missing; expected recorded duration, alone (us)" in line


# ---- a term of the contention model

COMPARE = """
import sys, gpusim
from dataclasses import replace
trace = gpusim.load_trace(sys.argv[1])
h200 = gpusim.load_gpu("h200")
for l1_bytes in (None, 2.0**30, 4096.0):
    constant = {} if l1_bytes is None else {"l1_bytes_per_sm": l1_bytes}
    gpu = replace(h200, model=h200.model.model_copy(update=constant))
    for policy in ("serial", "even"):
        print(gpusim.replay(trace, gpu, policy=policy).makespan_us.hex())
"""
MEMORY = """
import sys, gpusim
from gpusim.engine import compiled, core
from gpusim.model.memory import MemoryLoad, memory_slowdown
print(int(compiled.is_plain(core)), memory_slowdown(2.0, 0.0, MemoryLoad(1.0, 0.0)))
session, trace = gpusim.Session("h200"), gpusim.load_trace(sys.argv[1])
for policy in ("serial", "inter-sm"):
    print(session.makespan_us(trace, policy))
"""
AS_IT_IS = """
import sys, gpusim
for policy in ("serial", "even"):
    print(gpusim.replay(gpusim.load_trace(sys.argv[1]), gpusim.load_gpu("h200"), policy=policy).makespan_us.hex())
"""


@pytest.mark.release
def test_a_term_of_l1_capacity_is_a_change_of_the_model_and_of_one_field(tmp_path: Path) -> None:
    """Kernels alone keep their times to the bit; mixed on an SM they are slowed where their data do not fit."""
    package = changed("l1", tmp_path)
    printed = python(package, "-c", COMPARE, str(MIXED)).split()
    serial, even, serial_roomy, even_roomy, serial_tight, even_tight = map(float.fromhex, printed)
    as_it_is = [float.fromhex(text) for text in python(ROOT, "-c", AS_IT_IS, str(MIXED)).split()]
    assert serial == serial_roomy == serial_tight == as_it_is[0]
    assert even_roomy == as_it_is[1]
    assert even >= even_roomy and even_tight > even_roomy


def test_a_change_of_the_memory_term_is_one_function(tmp_path: Path) -> None:
    """Kernels alone keep their times, and others do not. No compiled core of other sources runs."""
    package = changed("rows", tmp_path)
    plain, slowdown, serial, shared = map(float, python(package, "-c", MEMORY, str(MIXED)).split())
    session, trace = Session("h200"), load_trace(MIXED)
    slowdown_now = memory_slowdown(2.0, 0.0, MemoryLoad(1.0, 0.0))
    serial_now, shared_now = (session.makespan_us(trace, policy) for policy in ("serial", "inter-sm"))
    assert plain
    assert (slowdown, slowdown_now) == (pytest.approx(3.5**0.5), pytest.approx(3.0**0.5))
    assert serial == pytest.approx(serial_now, rel=1e-9)
    assert shared != pytest.approx(shared_now, rel=1e-9)


@pytest.mark.parametrize("where", ["gpusim/model/contention.py", "gpusim/hardware/gpu.py"])
def test_the_term_touches_the_model_and_the_gpu_only(where: str) -> None:
    block = re.search(r"<!-- change: l1 -->\n```diff\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    assert where in re.findall(r"^--- (\S+)", block[1], re.M)
    assert len(re.findall(r"^--- ", block[1], re.M)) == 2
