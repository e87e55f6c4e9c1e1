"""Measures the host's costs of GPU services: builds and runs `host.cu`, and writes the section of a GPU file."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import make_folder, write_text
from gpusim.common.tables import counted
from gpusim.lab.record.toolchain import build, run

LEAST_CAPABILITY = 6.0  # for stream-ordered pools
SERVICES = (  # of section [host] of a GPU file; the program's other lines say what waits for what
    "allocation", "free", "pool_allocation", "pool_free", "launch", "h2d_pinned", "d2h_pinned", "h2d_pageable",
    "d2h_pageable", "d2d",
)  # fmt: skip


def record_host(folder: Path) -> Iterator[str]:
    """Measure; write ``host.csv`` (call, bytes, us) and ``host.toml``, the section for a GPU file."""
    with tempfile.TemporaryDirectory() as scratch:
        program = Path(scratch) / "host"
        build(Path(__file__).with_suffix(".cu"), program, LEAST_CAPABILITY)
        printed = run([str(program)], "the recorder")
    tables = times_of(printed.splitlines())
    make_folder(folder)
    for name, content in (("host.csv", printed), ("host.toml", section(tables, "gpusim record host"))):
        write_text(folder / name, content)
        yield f"{folder / name}: {counted(sum(map(len, tables.values())), 'measured time')}"


def times_of(lines: Iterable[str]) -> dict[str, dict[int, float]]:
    """For each call its times (us) by size (bytes), out of the program's lines."""
    tables: dict[str, dict[int, float]] = {}
    try:
        for row in csv.DictReader(lines):
            tables.setdefault(row["call"], {})[int(row["bytes"])] = float(row["us"])
    except (KeyError, TypeError, ValueError):
        raise InputError(None, "the recorder", "printed something else", "call,bytes,us") from None
    return tables


def section(tables: dict[str, dict[int, float]], source: str) -> str:
    """Section ``host`` of a GPU file."""
    lines = ["[host]"]
    for service in SERVICES:
        if service in tables:
            sizes = sorted(tables[service])
            times = ", ".join(f"{tables[service][size]:.4g}" for size in sizes)
            lines.append(f'{service} = {{ bytes = {sizes}, us = [{times}], source = "{source}" }}')
    return "\n".join(lines) + "\n"
