"""Profiles of Nsight Compute: the CSV of its raw page, and .ncu-rep through NVIDIA's ncu-report."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.common.errors import InputError, one_line, quote
from gpusim.hardware.gpu import GPU
from gpusim.io import source
from gpusim.io.ncu import DURATION, Counters, clocked, mix_from_counters, trimmed
from gpusim.io.timeline import Activity, LaunchedKernel, Product, StreamKey, Timeline
from gpusim.io.values import finite, three, whole
from gpusim.trace.kernels import Mix

REPORT_MAGIC = b"NVR\x00"
A_RAW_PAGE = "a CSV of ncu --csv --page raw"
A_PROFILE = f"a whole .ncu-rep, or {A_RAW_PAGE}"
SINGLE_KERNELS = "single kernels: ncu --graph-profiling node, --replay-mode kernel or application"

_NOT_METRICS = {"ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Kernel Time", "Context", "Stream",
                "Block Size", "Grid Size", "Device", "CC", "Section Name"}  # fmt: skip
LONG_FORM = frozenset(("Metric Name", "Metric Unit", "Metric Value"))  # columns of one metric on each line
_OTHER_PAGES = {"Metric Name": "the details page", "Rule Name": "the details page", "Address": "the source page"}
_NANOSECONDS = {"s": 1e9, "second": 1e9, "ms": 1e6, "msecond": 1e6, "us": 1e3, "usecond": 1e3}
_PREFIXED = re.compile(r"([KMGTP])(?:i?[bB](?:yte)?|inst|cycle|sector|warp|block|thread|request)s?$")
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_AXES = ("x", "y", "z")
_POINT = re.compile(r"[-+]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_COMMA = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}([.\s'’]\d{3})+)(,\d+)?(e[-+]?\d+)?", re.IGNORECASE)
_CAST = re.compile(r"\((?:bool|(?:(?:un)?signed )?(?:char|short|int|long|long long))\)(?=-?\d)")  # (int)3 of a template


@dataclass(frozen=True, slots=True)
class Profiled:
    """A launch that Nsight Compute profiled: what it ran, and its counters in base units (ns, bytes, %)."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    device: int
    stream: StreamKey
    counters: Counters

    @property
    def duration_us(self) -> float | None:
        """Its time alone; None where it was not counted."""
        nanoseconds = finite(self.counters.get(DURATION))
        return None if nanoseconds is None else nanoseconds / 1000

    @property
    def product(self) -> Product:
        """Name and SM count of the GPU, from the attributes among the counters."""
        sms = self.counters.get("device__attribute_multiprocessor_count", self.counters.get("launch__sm_count"))
        return Product(self.counters.get("device__attribute_display_name"), whole(sms))

    def mix(self, path: Path, gpu: GPU, sms: int | None = None, recorded_us: float = 0.0) -> Mix | None:
        """Demand of its blocks.

        Args:
            path: the profile, for errors.
            gpu: that it ran on.
            sms: those of its process; None: all.
            recorded_us: what a recording without Nsight Compute took, which tells the SM clock; 0: unknown.
        """
        try:
            mix = mix_from_counters(self.counters, gpu.sm_count)
            if mix is not None and sms is not None:
                mix = over_fewer_sms(mix, gpu.sm_count / sms)
            return clocked(mix, self.counters, recorded_us) if mix is not None and recorded_us > 0.0 else mix
        except InputError as fault:
            raise fault.at(path, quote(self.name), f"{fault.place} {fault.problem}") from None
        except (ValueError, OverflowError) as error:
            raise InputError(path, quote(self.name), f"has a counter that is no number ({error})", A_RAW_PAGE) from None


def over_fewer_sms(mix: Mix, all_over_own: float) -> Mix:
    """Counters over the SMs of a process: Nsight Compute counts all, idle ones, too."""
    mean, most = mix.active_cycles_avg, mix.active_cycles_max
    if mean is None:
        return mix
    mean = min(mean * all_over_own, most or mean * all_over_own)
    return mix.model_copy(update={"active_cycles_min": None, "active_cycles_avg": trimmed(mean)})


def read(path: Path) -> list[Profiled]:
    """All launches of a report or of a CSV, in the order in which they ran."""
    profiled = list(_report(path) if source.head(path).startswith(REPORT_MAGIC) else _table(path))
    if not profiled:
        raise InputError(path, "", "holds no kernels", A_PROFILE)
    return profiled


def timeline(path: Path, profiled: Iterable[Profiled], gpu: GPU | None, sms: int | None = None) -> Timeline:
    """Return profiled launches as a timeline. Nsight Compute serialises them, so only their order is known.

    Without the GPU that they were recorded on there are no mixes yet. A launch without a duration is refused. ``sms``:
    those of the process; None: all.
    """
    found = Timeline(one_at_a_time=True)
    clock_us = 0.0
    for order, launch in enumerate(profiled):
        found.products.setdefault(launch.device, launch.product)
        duration_us = launch.duration_us
        if duration_us is None:
            raise InputError(path, quote(launch.name), f"lacks {DURATION}", "ncu with that metric, as in --set full")
        mix = launch.mix(path, gpu, sms) if gpu is not None else None
        found.activities.append(Activity(launch.device, launch.stream, clock_us, duration_us, _run(launch, mix), order))
        clock_us += duration_us
    found.remarks.append("Nsight Compute ran one kernel at a time.")
    return found


def _run(launch: Profiled, mix: Mix | None) -> LaunchedKernel:
    names = ("registers_per_thread", "shared_mem_per_block_static", "shared_mem_per_block_dynamic")
    registers, static, dynamic = (whole(launch.counters.get(f"launch__{name}")) or 0 for name in names)
    return LaunchedKernel(launch.name, launch.grid, launch.block, registers, static, dynamic, mix)


# ---- CSV


Line = tuple[int, list[str], list[str], list[str]]  # number of the line; columns, their units, the cells


def _table(path: Path) -> Iterator[Profiled]:
    comma = _writes_decimal_comma(_rows(path))
    for row in _rows(path):
        yield _launch(path, *row, comma)


def _writes_decimal_comma(rows: Iterable[Line]) -> bool:
    """Whether ncu wrote a decimal comma, 1.234,5 for 1,234.5: the first number that only one way can read decides."""
    for _, header, _, cells in rows:
        metrics = (cell.strip() for name, cell in zip(header, cells, strict=True) if name not in _NOT_METRICS)
        for cell in metrics:
            with_comma = _COMMA.fullmatch(cell) is not None
            if with_comma != (_POINT.fullmatch(cell) is not None):
                return with_comma
    return False


def _rows(path: Path) -> Iterator[Line]:
    """The launches of a CSV, each with the header and the units that belong to it, whichever page the CSV is of."""
    long: dict[tuple[str, ...], tuple[int, dict[str, str], dict[str, tuple[str, str]]]] = {}
    for number, header, units, cells in _lines(path):
        if LONG_FORM.issubset(header):
            plain = dict(zip(header, cells, strict=True))
            launch = tuple(plain.get(name, "") for name in ("Process ID", "ID"))
            kept = {name: cell for name, cell in plain.items() if name not in LONG_FORM}
            _, _, metrics = long.setdefault(launch, (number, kept, {}))
            if "__" in plain["Metric Name"]:  # else a title of the details page, and no metric
                metrics[plain["Metric Name"]] = plain["Metric Value"], plain["Metric Unit"]
        else:
            yield number, header, units, cells
    if long and not any(metrics for _, _, metrics in long.values()):
        raise InputError(path, "", "is the details page of Nsight Compute", f"{A_RAW_PAGE}, or of ncu --csv --metrics")
    for number, kept, metrics in long.values():
        header, units = [*kept, *metrics], [""] * len(kept) + [unit for _, unit in metrics.values()]
        yield number, header, units, [*kept.values(), *(value for value, _ in metrics.values())]


def _lines(path: Path) -> Iterator[Line]:
    """The rows of a CSV, each with the header and the units that stand before it."""
    header: list[str] = []
    units: list[str] = []
    for number, line in enumerate(source.lines(path), 1):
        if line.startswith("==") or not line.strip():
            continue  # what ncu prints beside the table
        if not header and not line.lstrip().startswith(('"ID"', "ID,")):
            continue  # what the program printed
        cells = source.cells(path, number, line, A_RAW_PAGE)
        if len(cells) != len(header) and line.endswith('"'):
            plain = line[1:-1].split('","')  # ncu does not double the quotes in the name of a process
            cells = plain if len(plain) == len(header) else cells
        if cells[0] == "ID":
            header, units = cells, []
            is_long = LONG_FORM.issubset(header)
            page = None if is_long else next((page for name, page in _OTHER_PAGES.items() if name in header), None)
            if page is not None or "Kernel Name" not in header:
                problem = "lacks Kernel Name" if page is None else f"is {page} of Nsight Compute"
                raise InputError(path, f"line {number}", problem, A_RAW_PAGE)
        elif len(cells) != len(header):
            if whole(cells[0]) is not None or not cells[0]:
                raise InputError(path, f"line {number}", f"has {len(cells)} of {len(header)} fields", "a whole file")
        elif not cells[0]:
            units = cells
        elif whole(cells[0]) is not None:
            yield number, header, units or [""] * len(header), cells
    if not header:
        raise InputError(path, "", "has no header with ID and Kernel Name", A_RAW_PAGE)


def _launch(path: Path, number: int, header: list[str], units: list[str], cells: list[str], comma: bool) -> Profiled:
    plain = dict(zip(header, cells, strict=True))
    if comma:  # in numbers, becomes a point
        numbers = (_COMMA.fullmatch(cell.strip()) for cell in cells)
        cells = [
            re.sub(r"[.\s'’]", "", cell).replace(",", ".") if number else cell
            for cell, number in zip(cells, numbers, strict=True)
        ]
    counters = {
        name: value
        for name, unit, cell in zip(header, units, cells, strict=True)
        if name not in _NOT_METRICS and (value := in_base_units(cell, unit)) is not None
    }
    stream = StreamKey(plain.get("Stream", "0"), plain.get("Process ID", ""), plain.get("Context", ""))
    device = whole(plain.get("Device", "0")) or 0
    is_range = plain["Kernel Name"] == "range" and plain.get("Stream") == "n/a"
    if is_range or "launch__graph_contains_device_launch" in counters:
        raise _no_kernel(path, f"line {number}", plain["Kernel Name"])
    dimensions = plain.get("Grid Size"), plain.get("Block Size")
    return _profiled(path, f"line {number}", plain["Kernel Name"], dimensions, device, stream, counters)


def _no_kernel(path: Path, place: str, name: str) -> InputError:
    return InputError(path, place, f"is a {quote(name)} profiled as a whole", SINGLE_KERNELS)


def _profiled(
    path: Path,
    place: str,
    name: str,
    dimensions: tuple[Any, Any],
    device: int,
    stream: StreamKey,
    counters: dict[str, str],
) -> Profiled:
    grid, block = (
        three(given)
        or three([counters.get(f"launch__{what}_dim_{axis}") for axis in _AXES])
        or three([counters.get(f"launch__{what}_size"), "1", "1"])  # all that old versions count
        for what, given in zip(("grid", "block"), dimensions, strict=True)
    )
    if grid is None or block is None:
        raise InputError(path, place, "has no grid or block size", A_PROFILE)
    counters["launch__grid_size"] = str(grid[0] * grid[1] * grid[2])
    return Profiled(_CAST.sub("", one_line(name)).strip() or "unnamed", grid, block, device, stream, counters)


def in_base_units(cell: str, unit: str) -> str | None:
    """A metric's value as text in ns, bytes, % or its own unit; text as it is; None for an empty or n/a cell."""
    cell = cell.strip()
    if not cell or cell.lower() in ("n/a", "nan", "inf", "-nan", "-inf", "(!) n/a"):
        return None
    value = finite(cell.replace(",", ""))
    if value is None:
        return cell
    value *= _scale(unit.strip().split("/")[0])
    return str(int(value)) if value == int(value) else repr(value)


def _scale(unit: str) -> float:
    if unit in _NANOSECONDS:
        return _NANOSECONDS[unit]
    match = _PREFIXED.match(unit)
    return _PREFIXES[match[1]] if match else 1.0


# ---- report


def _report(path: Path) -> Iterator[Profiled]:
    try:
        import ncu_report
    except ImportError:
        expected = "pip install 'gpusim[ncu]', or the CSV of ncu --import FILE --csv --page raw"
        raise InputError(path, "", "needs the package ncu-report to be read", expected) from None
    try:
        with source.unpacked(path) as plain:
            report = ncu_report.load_report(str(plain))
            ranges = [report.range_by_idx(i) for i in range(report.num_ranges())]
            actions = [part.action_by_idx(i) for part in ranges for i in range(part.num_actions())]
            kinds = ncu_report.IAction
            for n, action in enumerate(actions):
                if action.workload_type() != kinds.WorkloadType_KERNEL:
                    raise _no_kernel(path, f"action {n}", action.name())
            found = [(action.name(kinds.NameBase_DEMANGLED), _metrics(action)) for action in actions]
    except InputError:
        raise
    except Exception as error:  # of NVIDIA's library, which names none
        problem = f"cannot be read ({one_line(str(error))[:200]})"
        raise InputError(path, "", problem, "a report of ncu --export") from None
    for n, (name, counters) in enumerate(found):
        stream = StreamKey(counters.get("launch__stream_id", "0"), context=counters.get("launch__context_id", ""))
        device = whole(counters.get("launch__device_id", counters.get("device__attribute_device_index"))) or 0
        yield _profiled(path, f"action {n}", str(name), (None, None), device, stream, counters)


def _metrics(action: Any) -> dict[str, str]:
    metrics = ((name, action.metric_by_name(name)) for name in action.metric_names())
    values = (
        (name, in_base_units(str(metric.value()), str(metric.unit() or ""))) for name, metric in metrics if metric
    )
    return {name: value for name, value in values if value is not None}
