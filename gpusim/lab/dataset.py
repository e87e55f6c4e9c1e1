"""A folder of measurements: cuDNN calls with their kernels' counters, and their times in other conditions.

`convolutions.csv` (or .gz) and `kernels.csv.gz` describe the calls; `sm_curve.csv`, `residency_curve.csv`, `pairs.csv`,
`quota.csv` and `modules.csv` are outcomes; any may be missing. experiments/h200_validation is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from pathlib import Path

from gpusim.common.errors import InputError, quote
from gpusim.common.spreadsheet import count_in, number_in, recorded_rows
from gpusim.hardware.gpu import GPU
from gpusim.io.ncu import DURATION, REQUIRED, TOTALS, clocked, launch_from_counters
from gpusim.model.launchable import launch_occupancy
from gpusim.trace.fields import LEAST_DURATION_US, MAX_DURATION_US, MAX_TRAFFIC_BYTES
from gpusim.trace.kernels import KernelLaunch

SEQUENCE = 10  # calls back to back behind a ms_stream
Row = Mapping[str, str]

CONVOLUTION_COLUMNS = ("op", "ms_stream_run1", "ms_stream_run2", "supported", "gpu_bound")
KERNEL_COLUMNS = ("op", "index_in_op", "stream", "launch__waves_per_multiprocessor", *REQUIRED)
OUTCOMES = {  # file: columns of the condition, columns of the outcome (ms)
    "sm_curve.csv": (("op", "sms"), ("ms",)),
    "residency_curve.csv": (("op", "blocks_per_sm", "reserved_smem_bytes"), ("ms",)),
    "pairs.csv": (("a", "na", "b", "nb", "mode", "sms_a", "sms_b"), ("ms_makespan",)),
    "quota.csv": (("a", "kA", "b", "kB", "ms_release"), ("ms_a", "ms_b")),
    "modules.csv": (("module", "selection", "branch", "ops", "mode"), ("ms_makespan",)),
}
MODES = {"pairs.csv": ("alone", "streams", "streams_b_first", "green"), "modules.csv": ("serial", "streams")}
# The least that a column of whole numbers may hold.
COUNTS = {"sms": 1, "blocks_per_sm": 1, "reserved_smem_bytes": -1, "na": 1, "nb": 1, "sms_a": 1, "sms_b": 1,
          "kA": 1, "kB": 1, "branch": 0}  # fmt: skip
OPS = ("op", "a", "b")  # columns that name one op
NOT_KEYS = ("ops", "ms_release")  # columns of a condition that do not tell two rows apart
DRAM_PERCENT = "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"  # a column that may be missing
DRAM_BYTES = (TOTALS["dram_read_bytes"], TOTALS["dram_write_bytes"])
TELLING_PERCENT = 1.0  # of DRAM's peak from which on bytes tell it: within 2 % on an H200 and an H100
PEAK_TOLERANCE = 0.05
LEAST_MS, MOST_MS = LEAST_DURATION_US / 1e3, MAX_DURATION_US / 1e3


@dataclass(frozen=True)
class Op:
    """A recorded convolution call."""

    name: str  # network/layer/direction/algorithm/math
    ms: float  # of one of many calls back to back
    gpu_bound: bool  # whether the GPU, and not the host, bounds it
    kernels: tuple[KernelLaunch, ...]  # in launch order
    workspace_bytes: int | None  # of its workspace; None where the file does not say
    touched_bytes: int | None  # of its tensors and workspace; None where the file does not say
    warm_us: float  # one call after calls of itself, from event to event; without such a column as back to back
    cold_us: float | None  # one call with nothing in L2, from event to event; None where the file does not say
    # what a call takes on other numbers of SMs, where a prediction may use it
    scaling_ms: Mapping[int, float] = field(default_factory=dict)


def back_to_back_us(ms_stream: float, gpu: GPU) -> float:
    """Return the time of one call in a timed sequence of equal calls, in µs, without the cost of the event marks."""
    return ms_stream * 1e3 - gpu.model.event_overhead_us / SEQUENCE


class Recordings:
    """The calls of a folder with their kernels, read and checked: all that a prediction may use.

    ``scaling``: numbers of SMs at which predictions may use the times of sm_curve.csv.
    """

    def __init__(self, folder: str | Path, gpu: GPU, scaling: Sequence[int] = ()) -> None:
        self.folder = Path(folder)
        self.gpu = gpu
        self.scaling = tuple(scaling)
        self._calls_file, self._kernels_file = self.folder / "convolutions.csv", self.folder / "kernels.csv.gz"
        self.calls = self._read_calls()  # rows of convolutions.csv by op
        kernels = self._read_kernels()
        points = self._read_scaling() if scaling else {}
        self._ops = {name: self._build(name, rows, points.get(name, {})) for name, rows in kernels.items()}

    def op(self, name: str) -> Op:
        """One recorded call, which must have been timed and profiled."""
        if name in self._ops:
            return self._ops[name]
        if self.supported(name):
            raise self._without_kernels(name)
        raise InputError(self._calls_file, name, "is not supported by cuDNN, so it has no times", "a supported op")

    def _without_kernels(self, name: str) -> InputError:
        expected = "a row for each kernel of a call that is predicted"
        return InputError(self._kernels_file, name, "has no kernels", expected)

    def change_kernels(self, change: Callable[[str, tuple[KernelLaunch, ...]], tuple[KernelLaunch, ...]]) -> None:
        """Replace the kernels of every op, given its name and those that were recorded."""
        self._ops = {name: replace(op, kernels=change(name, op.kernels)) for name, op in self._ops.items()}

    def supported(self, name: str) -> bool:
        """Whether cuDNN has the call at all: else it has neither times nor kernels."""
        return self.calls[name]["supported"] == "True"

    def profiled(self, name: str) -> bool:
        """Whether its kernels were recorded."""
        return name in self._ops

    def gpu_bound(self, name: str) -> bool:
        """Whether the GPU, and not the host, bounds the call: accuracy is scored on these only."""
        return self.calls[name]["gpu_bound"] == "True"

    def _build(self, name: str, rows: Sequence[Row], scaling_ms: Mapping[int, float]) -> Op:
        kernels = []
        for i, row in enumerate(rows):
            try:
                kernels.append(launch_from_counters(row, self.gpu.sm_count, row["stream"]))
            except (ValueError, KeyError, ArithmeticError) as error:
                place, problem = f"{name} kernel {i}", f"has a value that cannot be: {_why(error)}"
                raise InputError(self._kernels_file, place, problem, "Nsight Compute counters in base units") from error
        self._check_waves(name, rows[0], kernels[0])
        for row in rows:
            self._check_bandwidth(name, row)
        call = self.calls[name]
        ms = (self._ms(call, "ms_stream_run1") + self._ms(call, "ms_stream_run2")) / 2.0
        warm_us, cold_us = ms * 1e3, None
        if "ms_warm" in call and "ms_cold" in call:
            warm_us, cold_us = self._ms(call, "ms_warm") * 1e3, self._ms(call, "ms_cold") * 1e3
        kernels = self._clocked(kernels, rows, ms * 1e3)
        tensors, workspace = (self._bytes(call, column) for column in ("tensor_bytes", "workspace_bytes"))
        touched = None if tensors is None or workspace is None else tensors + workspace
        return Op(name, ms, self.gpu_bound(name), tuple(kernels), workspace, touched, warm_us, cold_us, scaling_ms)

    @staticmethod
    def _clocked(kernels: Sequence[KernelLaunch], rows: Sequence[Row], call_us: float) -> list[KernelLaunch]:
        """The kernels with the SM clock that a call had, whose time was recorded without Nsight Compute."""
        factor = call_us / fsum(kernel.duration_us for kernel in kernels)
        return [
            kernel.model_copy(update={"mix": clocked(kernel.mix, row, factor * kernel.duration_us)})
            if kernel.mix is not None and kernel.stream == "main"
            else kernel
            for kernel, row in zip(kernels, rows, strict=True)
        ]

    def _ms(self, call: Row, column: str) -> float:
        return time_in(call, column, self._calls_file, call["op"])

    def _bytes(self, call: Row, column: str) -> int | None:
        if column not in call:
            return None
        return int(number_in(call, column, self._calls_file, call["op"], 0.0, MAX_TRAFFIC_BYTES))

    def _read_calls(self) -> dict[str, Row]:
        path = self._calls_file
        calls: dict[str, Row] = {}
        for place, row in self._rows(path.name, CONVOLUTION_COLUMNS):
            op = row["op"]
            if not op or op.split() != [op] or "|" in op:
                raise InputError(path, place, f"has {quote(op)} as op", "a name without blanks and |")
            if op in calls:
                raise InputError(path, place, f"gives {op} again", "each op once")
            for column in ("supported", "gpu_bound"):
                if row[column] not in ("True", "False"):
                    raise InputError(path, op, f"{column} is {row[column] or 'empty'}", "True or False")
            calls[op] = row
        return calls

    def _read_kernels(self) -> dict[str, list[Row]]:
        """Rows of the kernels of each supported op, in launch order."""
        path = self._kernels_file
        found: dict[str, dict[int, Row]] = {}
        for place, row in self._rows(path.name, KERNEL_COLUMNS):
            op = self._known(row["op"], path, place)
            index = count_in(row, "index_in_op", 0, path, place)
            if index in found.setdefault(op, {}):
                raise InputError(path, place, f"gives kernel {index} of {op} again", "each kernel once")
            found[op][index] = row
        for op in self.calls:
            missing = set(range(max(found.get(op, {0: 0})) + 1)) - set(found.get(op, ()))
            if op in found and self.supported(op) and missing:
                raise InputError(path, op, f"lacks kernel {min(missing)}", "a row for each kernel, counted from 0")
            if op not in found and self.gpu_bound(op):
                raise self._without_kernels(op)
        return {op: [rows[i] for i in sorted(rows)] for op, rows in found.items() if self.supported(op)}

    def _known(self, op: str, path: Path, place: str) -> str:
        if op not in self.calls:
            raise InputError(path, place, f"{op or 'an empty op'} is unknown", "an op of convolutions.csv")
        return op

    def _check_waves(self, op: str, row: Row, launch: KernelLaunch) -> None:
        """The waves that the profiler counted are grid / (SMs x resident blocks): they tell the GPU."""
        waves = number_in(row, "launch__waves_per_multiprocessor", self._kernels_file, op)
        resident = launch_occupancy(launch, self.gpu).blocks_per_sm
        expected = launch.blocks / (self.gpu.sm_count * max(1, resident))
        if resident == 0 or abs(expected - waves) > 0.02 + 0.02 * waves:
            raise self._other_gpu(op, f"{waves:g} waves per SM, {self.gpu.name} gives {expected:.2f}")

    def _check_bandwidth(self, op: str, row: Row) -> None:
        """Bytes over the share of DRAM's peak that they were: that tells GPUs with the same SMs apart."""
        path = self._kernels_file
        if DRAM_PERCENT not in row:
            return
        percent, ns = (number_in(row, column, path, op) for column in (DRAM_PERCENT, DURATION))
        if percent < TELLING_PERCENT or ns <= 0.0:
            return
        peak = sum(number_in(row, column, path, op) for column in DRAM_BYTES) / ns / percent * 100.0
        known = self.gpu.dram_bandwidth_gb_per_s
        if abs(peak / known - 1.0) > PEAK_TOLERANCE:
            raise self._other_gpu(op, f"a DRAM peak of {peak:.0f} GB/s, {self.gpu.name} has {known:g}")

    def _other_gpu(self, op: str, found: str) -> InputError:
        problem, expected = f"was recorded with {found}", "the GPU that the dataset was recorded on"
        return InputError(self._kernels_file, op, problem, expected)

    def _read_scaling(self) -> dict[str, dict[int, float]]:
        """Times (ms) of each op at the numbers of SMs that predictions may use."""
        path = self.folder / "sm_curve.csv"
        whole = [sms for sms in self.scaling if sms >= self.gpu.sm_count]
        if whole:
            problem = f"{whole[0]} SMs are no part of {self.gpu.name}"
            raise InputError(path, "sms", problem, "scaling points on fewer SMs")
        points: dict[str, dict[int, float]] = {}
        for place, row in self._rows(path.name, ("op", "sms", "ms")):
            sms = count_in(row, "sms", 1, path, place)
            if sms in self.scaling and self.supported(self._known(row["op"], path, place)):
                points.setdefault(row["op"], {})[sms] = time_in(row, "ms", path, f"{row['op']}|{sms}")
        missing = [sms for sms in self.scaling if not any(sms in found for found in points.values())]
        if missing:
            raise InputError(path, "sms", f"has no row of {missing[0]} SMs", "scaling points that are in the file")
        return points

    def _rows(self, name: str, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
        path = self.folder / name
        zipped = path.with_name(f"{name}.gz")
        found = zipped if not path.is_file() and zipped.is_file() else path
        return recorded_rows(found, columns, "a dataset as in experiments/h200_validation")


class Dataset(Recordings):
    """A folder of recordings and outcomes, read and checked.

    ``recordings`` are of the same ops on another GPU, from which they are to be predicted; None: its own. Rows of
    sm_curve.csv at ``scaling`` numbers of SMs are no outcomes then; where ``recordings`` are given, at theirs.
    """

    def __init__(
        self, folder: str | Path, gpu: GPU, recordings: Recordings | None = None, scaling: Sequence[int] = ()
    ) -> None:
        super().__init__(folder, gpu, scaling)
        self.recordings: Recordings = recordings or self
        self.outcomes = {name: self._read_outcome(name) for name in OUTCOMES if (self.folder / name).is_file()}
        if not self.outcomes:
            raise InputError(self.folder, "folder", "holds no outcome file", f"one of {', '.join(OUTCOMES)}")

    @property
    def elsewhere(self) -> bool:
        """Whether it is predicted from recordings of another folder."""
        return self.recordings is not self

    def scored(self, name: str) -> bool:
        """Whether predictions of an op are scored: the GPU bounds it here and where it was recorded."""
        known = name in self.recordings.calls
        return known and self.gpu_bound(name) and self.recordings.gpu_bound(name)

    def _read_outcome(self, name: str) -> list[Row]:
        path = self.folder / name
        condition, outcome = OUTCOMES[name]
        seen: dict[tuple[str, ...], str] = {}
        rows = []
        for place, row in self._rows(name, (*condition, *outcome)):
            ops = row["ops"].split() or [""] if "ops" in condition else [row[c] for c in OPS if c in condition]
            for op in ops:
                self._known(op, path, place)
                self._recorded(op, path, place)
            for column in (column for column in condition if column in COUNTS):
                count_in(row, column, COUNTS[column], path, place)
            if "mode" in condition and row["mode"] not in MODES[name]:
                problem = f"mode is {row['mode'] or 'empty'}"
                raise InputError(path, place, problem, f"one of {', '.join(MODES[name])}")
            key = tuple(row[column] for column in condition if column not in NOT_KEYS)
            if key in seen:
                raise InputError(path, place, f"measures the same as {seen[key]}: {'|'.join(key)}", "each once")
            seen[key] = place
            if all(self.supported(op) for op in ops):
                for column in row:
                    if column.startswith("ms"):
                        time_in(row, column, path, "|".join(key))
                self._check_room(row, path, "|".join(key))
            if name != "sm_curve.csv" or int(row["sms"]) not in self.scaling:
                rows.append(row)
        return rows

    def _recorded(self, op: str, path: Path, place: str) -> None:
        if op not in self.recordings.calls:
            problem = f"measures {op}, which {self.recordings.folder} does not record"
            raise InputError(path, place, problem, "recordings of the ops of the outcomes")
        if self.supported(op) and self.recordings.supported(op):
            self.recordings.op(op)  # refuses one without kernels

    def _check_room(self, row: Row, path: Path, place: str) -> None:
        """Refuse more resident blocks per SM, or more SMs, than the GPU allows."""
        for of, column in (("a", "kA"), ("b", "kB"), ("op", "blocks_per_sm")):
            if column in row and row.get("reserved_smem_bytes") != "-1":  # of nothing reserved it says one more
                most = launch_occupancy(self._ops[row[of]].kernels[0], self.gpu).blocks_per_sm
                if int(row[column]) > most:
                    raise InputError(path, place, f"{column} is {row[column]}", f"at most {most}, what fits on an SM")
        for column in ("sms_a", "sms_b"):
            if column in row and int(row[column]) > self.gpu.sm_count:
                raise InputError(path, place, f"{column} is {row[column]}", f"at most {self.gpu.sm_count}")


def time_in(row: Row, column: str, path: Path, place: str) -> float:
    """A field of a row as a time in ms that a kernel can take."""
    return number_in(row, column, path, place, LEAST_MS, MOST_MS)


def _why(error: BaseException) -> str:
    """One line of an error; of a trace's field the field and what was wrong with it."""
    if isinstance(error, InputError):
        return f"{error.place} {error.problem}"
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
