"""A folder of measurements: cuDNN calls with their kernels' counters, and what a GPU did with them in other conditions.

`convolutions.csv` (or .gz) and `kernels.csv.gz` describe the calls; `sm_curve.csv`, `residency_curve.csv`, `pairs.csv`,
`quota.csv` and `modules.csv`, of which any may be missing, are outcomes. experiments/h200_validation is one.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpusim.errors import InputError, from_pydantic
from gpusim.files import decompressed, read_bytes, utf8
from gpusim.gpu import GPU
from gpusim.io.ncu import REQUIRED, launch_from_counters
from gpusim.occupancy import occupancy
from gpusim.trace import KernelLaunch

Row = Mapping[str, str]

MAX_TEXT_BYTES = 2**27  # of one CSV file: 100 times the largest of experiments/h200_validation

CONVOLUTION_COLUMNS = ("op", "ms_stream_run1", "ms_stream_run2", "supported", "gpu_bound")
KERNEL_COLUMNS = ("op", "stream", "launch__waves_per_multiprocessor", "launch__block_size", *REQUIRED)
OUTCOMES = {  # file: columns of the condition, columns of the outcome
    "sm_curve.csv": (("op", "sms"), ("ms",)),
    "residency_curve.csv": (("op", "blocks_per_sm", "reserved_smem_bytes"), ("ms",)),
    "pairs.csv": (("a", "na", "b", "nb", "mode", "sms_a", "sms_b"), ("ms_makespan",)),
    "quota.csv": (("a", "kA", "b", "kB", "ms_release"), ("ms_a", "ms_b")),
    "modules.csv": (("module", "selection", "branch", "ops", "mode"), ("ms_makespan",)),
}


@dataclass(frozen=True)
class Op:
    """A recorded convolution call.

    Attributes:
        name: network/layer/direction/algorithm/math.
        ms: of one of many calls back to back.
        gpu_bound: whether the GPU, and not the host, bounds it.
        kernels: in launch order.
    """

    name: str
    ms: float
    gpu_bound: bool
    kernels: tuple[KernelLaunch, ...]


class Dataset:
    """A folder of recordings, read and checked.

    Raises:
        InputError: a missing file or column, an op that is not in convolutions.csv, NaN where a supported op needs a
            number, kernels recorded on another GPU than ``gpu``.
    """

    def __init__(self, folder: str | Path, gpu: GPU) -> None:
        self.folder = Path(folder)
        self.gpu = gpu
        self._calls = self._read_calls()
        self._kernels = self._read_kernels()
        self._ops: dict[str, Op] = {}
        self.outcomes = {name: self._read_outcome(name) for name in OUTCOMES if (self.folder / name).is_file()}
        if not self.outcomes:
            raise InputError(self.folder, "folder", "holds no outcome file", f"one of {', '.join(OUTCOMES)}")

    def op(self, name: str) -> Op:
        """One recorded call.

        Raises:
            InputError: cuDNN does not support it, so it has no times and kernels.
        """
        known = self._ops.get(name)
        if known is None:
            known = self._ops[name] = self._build(name)
        return known

    def gpu_bound(self, name: str) -> bool:
        """Whether the GPU, and not the host, bounds the call: accuracy is scored on these only."""
        return self._calls[name]["gpu_bound"] == "True"

    def _build(self, name: str) -> Op:
        call = self._calls[name]
        path = self.folder / "convolutions.csv"
        if call["supported"] != "True":
            raise InputError(path, name, "is not supported by cuDNN, so it has no times", "a supported op")
        rows = self._kernels.get(name)
        if not rows:
            raise InputError(self.folder / "kernels.csv.gz", name, "has no kernels", "at least one row")
        times = [number_in(call, column, path, name) for column in ("ms_stream_run1", "ms_stream_run2")]
        kernels = []
        for i, row in enumerate(rows):
            try:
                kernels.append(launch_from_counters(row, self.gpu.sm_count, row["stream"]))
            except (ValueError, KeyError, ArithmeticError) as error:
                raise InputError(
                    self.folder / "kernels.csv.gz",
                    f"{name} kernel {i}",
                    f"has a value that cannot be: {_why(error)}",
                    "Nsight Compute counters in base units",
                ) from error
        return Op(name, sum(times) / len(times), call["gpu_bound"] == "True", tuple(kernels))

    def _read_calls(self) -> dict[str, Row]:
        return {row["op"]: row for row in self._rows("convolutions.csv", CONVOLUTION_COLUMNS)}

    def _read_kernels(self) -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {}
        for row in self._rows("kernels.csv.gz", KERNEL_COLUMNS):
            if row["op"] not in self._calls:
                raise InputError(self.folder / "kernels.csv.gz", row["op"], "is unknown", "an op of convolutions.csv")
            rows.setdefault(row["op"], []).append(row)
        for op, kernels in rows.items():
            self._check_gpu(op, kernels[0])
        return rows

    def _check_gpu(self, op: str, row: Row) -> None:
        """The waves that the profiler counted are grid / (SMs x resident blocks): they tell the GPU."""
        path = self.folder / "kernels.csv.gz"
        waves = number_in(row, "launch__waves_per_multiprocessor", path, op)
        fit = occupancy(
            self.gpu,
            threads_per_block=int(number_in(row, "launch__block_size", path, op)),
            registers_per_thread=int(number_in(row, "launch__registers_per_thread", path, op)),
            shared_memory_per_block=int(number_in(row, "launch__shared_mem_per_block_static", path, op))
            + int(number_in(row, "launch__shared_mem_per_block_dynamic", path, op)),
        )
        grid = number_in(row, "launch__grid_size", path, op)
        expected = grid / (self.gpu.sm_count * max(1, fit.blocks_per_sm))
        if fit.blocks_per_sm == 0 or abs(expected - waves) > 0.02 + 0.02 * waves:
            raise InputError(
                path,
                op,
                f"was recorded with {waves:g} waves per SM, {self.gpu.name} gives {expected:.2f}",
                "the GPU that the dataset was recorded on",
            )

    def _read_outcome(self, name: str) -> list[Row]:
        condition, outcome = OUTCOMES[name]
        rows = list(self._rows(name, (*condition, *outcome)))
        for row in rows:
            for column in ("op", "a", "b", "ops"):
                for op in row[column].split() if column in row else ():
                    if op not in self._calls:
                        raise InputError(self.folder / name, op, "is unknown", "an op of convolutions.csv")
        return rows

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[Row]:
        path = self.folder / name
        zipped = path.with_name(f"{name}.gz")
        if not path.is_file() and zipped.is_file():
            path = zipped
        if not path.is_file():
            raise InputError(path, "file", "is missing", "a dataset as in experiments/h200_validation")
        try:
            reader = csv.DictReader(io.StringIO(_text(path), newline=""))
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(path, "header", f"lacks {', '.join(missing)}", f"columns {', '.join(columns)}")
            for row in reader:
                if None in row.values() or None in row:
                    raise InputError(path, f"line {reader.line_num}", "has too few or too many fields", "a full row")
                yield row
        except csv.Error as error:
            raise InputError(path, "file", f"cannot be read: {_first_line(error)}", "a CSV file") from error


def number_in(row: Row, column: str, path: Path, place: str) -> float:
    """A field of a row as a finite number.

    Raises:
        InputError: it is none.
    """
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(path, place, f"{column} is {row[column] or 'empty'}", "a number")
    return value


def _text(path: Path) -> str:
    data = read_bytes(path, MAX_TEXT_BYTES)
    return utf8(decompressed(data, path, MAX_TEXT_BYTES) if path.suffix == ".gz" else data, path)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _why(error: BaseException) -> str:
    """One line of an error; of pydantic's the field and what was wrong with it."""
    from pydantic import ValidationError

    if isinstance(error, ValidationError):
        first = from_pydantic(None, error)
        return f"{first.place} {first.problem}"
    return _first_line(error)
