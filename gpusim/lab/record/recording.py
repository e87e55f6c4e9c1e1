"""A recording of cuDNN calls: a folder in the layout of `gpusim.lab.dataset`, written call by call.

`convolutions.csv` has one row per call, `kernels.csv.gz` one row per kernel. A call that is timed is a line of
`timings.csv` at once, until `convolutions.csv` is written with it. Existing rows are not recorded again.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError
from gpusim.common.files import make_folder, read_bytes, read_text, write_table, write_text
from gpusim.common.spreadsheet import records, table_rows
from gpusim.common.tables import grouped
from gpusim.lab.record.calls import Call
from gpusim.lab.record.counters import COUNTERS, counted_rows
from gpusim.training.networks.steps import CallWork

Row = Mapping[str, str]

WORK_COLUMNS = (
    "op", "network", "layer", "direction", "batch", "in_channels", "in_size", "out_channels", "filter_size", "padding",
    "stride", "algorithm", "math",
)  # fmt: skip
TIME_COLUMNS = (
    "workspace_bytes", "tensor_bytes", "flop", "ms_single_run1", "ms_stream_run1", "ms_single_run2", "ms_stream_run2",
    "ms_warm", "ms_cold", "supported",
)  # fmt: skip
WIDTH_COLUMNS = ("in_width", "filter_width", "padding_width")  # in_size, filter_size and padding are of the height
KERNEL_COLUMNS = ("op", "index_in_op", "stream", "Kernel Name", "Grid Size", "Block Size", *COUNTERS)
TIMING_COLUMNS = (*WORK_COLUMNS, *TIME_COLUMNS, "why", *WIDTH_COLUMNS)
CALL_COLUMNS = (*WORK_COLUMNS, *TIME_COLUMNS, "internal_streams", "kernel_ms", "gpu_bound", "why", *WIDTH_COLUMNS)

GPU_BOUND_MS = 0.008
GPU_BOUND_RATIO = (0.8, 1.3)  # of the time of one of many calls to that of its kernels


class Recording:
    """A folder of recorded calls; made when something is written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._journal = folder / "timings.csv"
        self._timings = {row["op"]: row for row in (*_rows(folder / "convolutions.csv"), *_whole_lines(self._journal))}
        self._kernels = grouped(_rows(folder / "kernels.csv"), lambda row: row["op"])

    def describe(self, about: Mapping[str, Any]) -> None:
        """Check that the folder is a recording of the given subject; write the description of a new one."""
        path = self.folder / "recording.json"
        if not os.path.isfile(path):
            make_folder(self.folder)
            write_text(path, json.dumps(about, indent=2) + "\n")
            return
        known = self.about()
        for name, value in about.items():
            if known.get(name) != value:
                expected = f"{value}, or another --out"
                raise InputError(path, name, f"this is a recording of {known.get(name)}", expected)

    def about(self) -> dict[str, Any]:
        """The description that `describe` wrote."""
        path = self.folder / "recording.json"
        text, known = read_text(path), None
        with suppress(ValueError):
            known = json.loads(text)
        if not isinstance(known, dict):
            raise InputError(path, "", "is no description of a recording", "what gpusim record wrote")
        return known

    # ---- times

    def untimed(self, calls: Iterable[Call]) -> list[Call]:
        """The calls that are not timed yet."""
        return [call for call in calls if call.op not in self._timings]

    def add_timing(self, call: Call, measured: Row) -> None:
        """Append the output of the program for a call."""
        row = work_fields(call.work) | dict(measured)
        row |= {"network": call.network, "layer": call.layer, "algorithm": call.algorithm, "math": call.math}
        text, known = records(TIMING_COLUMNS, [row]), self._journal.exists()
        with self._journal.open("a", newline="", encoding="utf-8") as file:
            file.write(text.partition("\n")[2] if known else text)
        self._timings[call.op] = row

    def ranked(self, calls: Iterable[Call]) -> list[list[Call]]:
        """The supported calls of each work, the fastest first: by the time with cold caches, as in a network."""
        supported = (call for call in calls if self._timings.get(call.op, {}).get("supported") == "True")
        works = grouped(supported, lambda call: call.work).values()
        return [sorted(found, key=lambda call: float(self._timings[call.op]["ms_cold"])) for found in works]

    def timing(self, call: Call) -> Row:
        """The times of a call."""
        return self._timings[call.op]

    # ---- kernels

    def unprofiled(self, calls: Iterable[Call]) -> list[Call]:
        """The calls whose kernels have no counters yet."""
        return [call for call in calls if call.op not in self._kernels]

    def add_kernels(self, rows: Iterable[Row]) -> None:
        """Add the kernels of calls, and write the table of all."""
        for row in rows:
            self._kernels.setdefault(row["op"], []).append(row)
        every = (row for rows in self._kernels.values() for row in rows)
        write_table(self.folder / "kernels.csv.gz", records(KERNEL_COLUMNS, every))

    def kernels(self, call: Call) -> Sequence[Row]:
        """The kernels of a call in launch order; none where it is not profiled."""
        return self._kernels.get(call.op, ())

    # ---- the dataset

    @property
    def has_journal(self) -> bool:
        """Whether calls are timed that convolutions.csv does not have."""
        return self._journal.exists()

    def write_calls(self) -> None:
        """Write convolutions.csv."""
        rows = ({**row, **of_kernels(row, self._kernels.get(op, []))} for op, row in self._timings.items())
        write_text(self.folder / "convolutions.csv", records(CALL_COLUMNS, rows))
        self._journal.unlink(missing_ok=True)


def work_fields(work: CallWork) -> dict[str, str]:
    """The columns that describe a work."""
    numbers = {
        "batch": work.batch,
        "in_channels": work.channels,
        "in_size": work.height,
        "out_channels": work.out_channels,
        "filter_size": work.kernel[0],
        "padding": work.padding[0],
        "stride": work.stride,
        "in_width": work.width,
        "filter_width": work.kernel[1],
        "padding_width": work.padding[1],
    }
    return {"direction": work.direction} | {name: str(number) for name, number in numbers.items()}


def of_kernels(times: Mapping[str, str], kernels: Sequence[Row]) -> dict[str, str]:
    """Return the columns of convolutions.csv that follow from the rows of a call or op in kernels.csv.gz."""
    if not kernels:
        return {"internal_streams": "False", "kernel_ms": "", "gpu_bound": "False"}
    kernel_ms = sum(float(kernel["gpu__time_duration.sum"]) for kernel in kernels) / 1e6
    least, most = GPU_BOUND_RATIO
    bound = kernel_ms >= GPU_BOUND_MS and least <= float(times["ms_stream_run1"]) / kernel_ms <= most
    internal = any(kernel["stream"] != "main" for kernel in kernels)
    return {"internal_streams": str(internal), "kernel_ms": f"{kernel_ms:.6g}", "gpu_bound": str(bound)}


def kernel_rows(log: str, streams: Mapping[str, str]) -> list[Row]:
    """The launches in Nsight Compute's CSV (raw page, base units), as rows of kernels.csv.gz.

    ``streams``: the op that ran on each stream of ours, by the stream's number; a launch on another stream is of the op
    before it, on a stream that cuDNN opened.
    """
    rows: list[Row] = []
    op, internal, index = "", dict[str, str](), 0
    for launch in counted_rows(log):
        stream = launch["Stream"]
        if streams.get(stream, op) != op:
            op, internal, index = streams[stream], {}, 0
        if not op:
            raise InputError(None, "Nsight Compute's CSV", "begins with a launch of no call", "one of a call's stream")
        name = "main" if stream in streams else internal.setdefault(stream, f"internal{len(internal)}")
        row = {"op": op, "index_in_op": str(index), "stream": name}
        row |= {column: launch[column] for column in ("Kernel Name", "Grid Size", "Block Size")}
        row |= {counter: (launch.get(counter) or "").replace(",", "") for counter in COUNTERS}
        rows.append(row)
        index += 1
    if not rows:
        raise InputError(None, "Nsight Compute's CSV", "has no launches", "one for each kernel")
    return rows


# ---- files


def _whole_lines(path: Path) -> Iterator[Row]:
    """The rows of a CSV that may end in a partial line, which is removed from the file."""
    if not os.path.isfile(path):
        return
    data = read_bytes(path)
    end = data.rfind(b"\n") + 1
    if end < len(data):
        with path.open("r+b") as file:
            file.truncate(end)
    yield from csv.DictReader(io.StringIO(data[:end].decode("utf-8", "replace"), newline=""))


def _rows(path: Path) -> Iterator[Row]:
    """The rows of a CSV, plain or with .gz after its name; none where it is not there."""
    found = path if os.path.isfile(path) else path.with_name(f"{path.name}.gz")
    if not os.path.isfile(found):
        return
    with table_rows(found) as rows:
        if "op" not in (rows.fieldnames or ()):
            raise InputError(found, "header", "lacks op", "what gpusim record wrote")
        yield from rows
