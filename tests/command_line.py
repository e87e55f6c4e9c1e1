"""What tests of the command line share: traces that they make, and JSON that it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gpusim import cli
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

REPOSITORY = Path(__file__).resolve().parent.parent
TABLE_1 = str(REPOSITORY / "traces" / "spaa20_table1.json")
INCEPTION = str(REPOSITORY / "traces" / "inception_3a.json.gz")

Capture = pytest.CaptureFixture[str]


def run_json(capsys: Capture, *argv: str) -> object:
    assert cli.main(argv) == 0
    return json.loads(capsys.readouterr().out)


def as_rows(content: object) -> list[dict[str, object]]:
    assert isinstance(content, dict)
    return list(content["results"])


def saved(tmp_path: Path, *streams: Stream, device: str = "h200") -> str:
    path = tmp_path / "trace.json"
    Trace(version=1, name="made", device=device, streams=streams).save(path)
    return str(path)


def unstyled(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def kernel(id: str, blocks: int = 264, duration_us: float = 50.0, **other: object) -> Kernel:
    launch = {"name": "void ns::gemm<float, 3>(int)", "grid": (blocks, 1, 1), "block": (256, 1, 1)}
    launch |= {"registers_per_thread": 64, "duration_us": duration_us} | other
    return Kernel(id=id, kind="kernel", kernel=KernelLaunch(**launch))
