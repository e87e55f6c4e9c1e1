"""Traces as the JSON documents of their files, to change and to break."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from strategies import examples

from gpusim.common.errors import InputError
from gpusim.trace.file import parse_trace

REPOSITORY = Path(__file__).parent.parent
QUICK = examples(60, suppress_health_check=list(HealthCheck))
FIRST = "streams[0].operations[0]"


def kernel(**changes: Any) -> dict[str, Any]:
    return {
        "name": "gemm",
        "grid": [100, 2, 1],
        "block": [128, 1, 1],
        "registers_per_thread": 64,
        "duration_us": 12.5,
    } | changes


def operation(id: str, *depends_on: str, **changes: Any) -> dict[str, Any]:
    return {"kind": "kernel", "id": id, "depends_on": list(depends_on), "kernel": kernel()} | changes


def convolution(**changes: Any) -> dict[str, Any]:
    shape = dict.fromkeys(("batch", "in_channels", "out_channels", "filter_height", "filter_width"), 3)
    shape |= {"in_height": 8, "in_width": 8, "padding": 1, "stride": 1}
    selected = {"algorithm": "GEMM/FMA", "workspace_bytes": 0, "kernels": [kernel()]}
    return {
        "kind": "convolution",
        "id": "conv",
        "shape": shape,
        "direction": "fwd",
        "selected": selected,
    } | changes


def part(batch: int, **changes: Any) -> dict[str, Any]:
    return {"batch": batch, "algorithms": [{"algorithm": "A", "workspace_bytes": 0, "kernels": [kernel()]} | changes]}


def stream(name: str, *operations: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"name": name, "operations": list(operations)} | changes


def document(*streams: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "t",
        "device": "h200",
        "streams": list(streams) or [stream("s", operation("a"))],
    } | changes


def problem(content: Any) -> str:
    """The line that a trace with this content is refused with."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(InputError) as caught:
        parse_trace(data, "t.json")
    line = str(caught.value)
    assert "\n" not in line and line.startswith("t.json: ") and "; expected " in line
    return line.removeprefix("t.json: ")
