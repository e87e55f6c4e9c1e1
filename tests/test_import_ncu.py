"""Importing Nsight Compute: units, missing metrics, other pages, reports, and counters joined to a timeline."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import REPOSITORY
from profiles import refused, written
from test_import_kineto import kernel as kineto_kernel
from test_import_kineto import write as write_kineto

from gpusim.common.errors import InputError
from gpusim.hardware.gpu import load_gpu
from gpusim.io import ncu
from gpusim.io.importing import detect, import_profile
from gpusim.io.ncu_profile import in_base_units
from gpusim.trace.kernels import Mix, WarpStalls

LEADING = {
    "ID": "0", "Process ID": "12", "Process Name": "python", "Host Name": "here", "Kernel Name": "gemm",
    "Context": "1", "Stream": "7", "Block Size": "(256, 1, 1)", "Grid Size": "(264, 1, 1)", "Device": "0", "CC": "9.0",
}  # fmt: skip
METRICS = {  # name: unit, value
    "gpu__time_duration.sum": ("ns", "20,000"),
    "launch__registers_per_thread": ("register/thread", "64"),
    "launch__shared_mem_per_block_static": ("byte/block", "1,024"),
    "launch__shared_mem_per_block_dynamic": ("byte/block", "0"),
    "launch__shared_mem_config_size": ("byte", "102,400"),
    "sm__cycles_active.avg": ("cycle", "30,000"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": ("%", "50.00"),
    "dram__bytes_read.sum": ("byte", "2,640,000"),
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "25"),
}
Metrics = Mapping[str, tuple[str, str]]


def raw_page(rows: Sequence[Mapping[str, str]], metrics: Metrics = METRICS, preamble: str = "") -> str:
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow([*LEADING, *metrics])
    writer.writerow([*("" for _ in LEADING), *(unit for unit, _ in metrics.values())])
    for n, row in enumerate(rows):
        leading = {**LEADING, "ID": str(n), **{key: value for key, value in row.items() if key in LEADING}}
        writer.writerow([*leading.values(), *(row.get(name, value) for name, (_, value) in metrics.items())])
    return preamble + text.getvalue()


def imported_mix(path: Path) -> Mix:
    mix = next(import_profile(path, gpu=load_gpu("h200")).trace.operations()).launches()[0].mix
    assert mix is not None
    return mix


def test_demand_per_block_with_preamble_units_row_and_thousands(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", raw_page([{}], preamble="==PROF== Connected to process 12\nepoch 1, loss 2\n"))
    assert detect(path) == "ncu"
    imported = import_profile(path, gpu=load_gpu("h200"))
    launch = next(imported.trace.operations()).launches()[0]
    assert (launch.name, launch.grid, launch.block, launch.duration_us) == ("gemm", (264, 1, 1), (256, 1, 1), 20.0)
    assert (launch.registers_per_thread, launch.static_shared_memory_bytes) == (64, 1024)
    assert not launch.estimated
    assert launch.mix == Mix(
        issue_cycles=0.5 * 30_000 * 132 / 264,
        dram_read_bytes=10_000.0,
        active_cycles_avg=30_000.0,
        l2_busy_us=ncu.trimmed(0.25 * 20 / 264),
        shared_memory_config_bytes=102_400,
    )


@pytest.mark.parametrize(
    ("name", "unit", "value"),
    [
        ("gpu__time_duration.sum", "us", "20"),
        ("gpu__time_duration.sum", "usecond", "20.00"),
        ("gpu__time_duration.sum", "ms", "0.02"),
        ("gpu__time_duration.sum", "msecond", "0.02"),
        ("gpu__time_duration.sum", "second", "0.00002"),
        ("dram__bytes_read.sum", "Kbyte", "2,640.00"),
        ("dram__bytes_read.sum", "Mbyte", "2.64"),
        ("launch__shared_mem_per_block_static", "Kbyte/block", "1.024"),
        ("launch__shared_mem_config_size", "Kbyte", "102.40"),
        ("sm__cycles_active.avg", "Kcycle", "30"),
    ],
)
def test_scaled_units_mean_the_same(tmp_path: Path, name: str, unit: str, value: str) -> None:
    base = import_profile(written(tmp_path / "a.csv", raw_page([{}])), gpu=load_gpu("h200")).trace.streams
    scaled = written(tmp_path / "b.csv", raw_page([{}], {**METRICS, name: (unit, value)}))
    assert import_profile(scaled, gpu=load_gpu("h200")).trace.streams == base


GERMAN = str.maketrans(",.", ".,")
FRENCH = str.maketrans(",.", "\u202f,")


@pytest.mark.parametrize("language", [GERMAN, FRENCH])
def test_numbers_as_other_languages_write_them(tmp_path: Path, language: dict[int, int]) -> None:
    """20.000 alone could be twenty: the percentage behind it tells."""
    base = import_profile(written(tmp_path / "a.csv", raw_page([{}])), gpu=load_gpu("h200")).trace.streams
    translated = {name: (unit, value.translate(language)) for name, (unit, value) in METRICS.items()}
    assert translated["gpu__time_duration.sum"][1] != METRICS["gpu__time_duration.sum"][1]
    path = written(tmp_path / "b.csv", raw_page([{}], translated))
    assert import_profile(path, gpu=load_gpu("h200")).trace.streams == base


def test_numbers_of_three_decimals_and_of_thousands_need_one_that_tells(tmp_path: Path) -> None:
    rows = [{"gpu__time_duration.sum": "12,345"}, {"gpu__time_duration.sum": "12.345"}]
    only = {"gpu__time_duration.sum": ("ns", "1"), "gpu__dram_throughput.avg": ("%", "0.123")}
    path = written(tmp_path / "a.csv", raw_page(rows, only))
    found = [op.launches()[0].duration_us for op in import_profile(path, gpu=load_gpu("h200")).trace.operations()]
    assert found == [12.345, 0.012]


def test_values_that_are_none(tmp_path: Path) -> None:
    assert [in_base_units(cell, "%") for cell in ("", "n/a", "nan", "-inf")] == [None] * 4
    mix = imported_mix(written(tmp_path / "a.csv", raw_page([{"dram__bytes_read.sum": "n/a"}])))
    assert mix.dram_read_bytes is None
    assert mix.issue_cycles is not None


def test_metrics_that_are_missing_leave_their_part_out(tmp_path: Path) -> None:
    only = {name: METRICS[name] for name in ("gpu__time_duration.sum", "dram__bytes_read.sum")}
    mix = imported_mix(written(tmp_path / "a.csv", raw_page([{}], only)))
    assert mix == Mix(dram_read_bytes=10_000.0)
    none = {"gpu__time_duration.sum": ("ns", "5")}
    path = written(tmp_path / "b.csv", raw_page([{}], none))
    assert next(import_profile(path, gpu=load_gpu("h200")).trace.operations()).launches()[0].estimated


def test_stalls_need_those_that_tell(tmp_path: Path) -> None:
    counter = ncu.STALL_COUNTER.format
    telling = {counter(name): ("inst", "1.5") for name in ncu.TELLING_STALLS}
    mix = imported_mix(written(tmp_path / "a.csv", raw_page([{}], {**METRICS, **telling})))
    assert mix.stalls == WarpStalls(selected=1.5, not_selected=1.5, long_scoreboard=1.5)
    barrier = {counter("barrier"): ("inst", "1.5")}
    assert imported_mix(written(tmp_path / "b.csv", raw_page([{}], {**METRICS, **barrier}))).stalls is None


def test_old_versions_count_dimensions_as_metrics(tmp_path: Path) -> None:
    text = (
        "ID,Kernel Name,launch__grid_size,launch__block_size,gpu__time_duration.sum\n,,,,nsecond\n0,old,264,256,900\n"
    )
    launch = next(
        import_profile(written(tmp_path / "a.csv", text), gpu=load_gpu("h200")).trace.operations()
    ).launches()[0]
    assert (launch.grid, launch.block, launch.duration_us) == ((264, 1, 1), (256, 1, 1), 0.9)


def test_gpu_that_the_profile_names(tmp_path: Path) -> None:
    named = {**METRICS, "device__attribute_display_name": ("", "NVIDIA H200")}
    assert import_profile(written(tmp_path / "a.csv", raw_page([{}], named))).trace.device == "h200"
    assert " gpu: the profile names no GPU" in refused(written(tmp_path / "b.csv", raw_page([{}])))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            '"ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"\n'
            '"0","k","GPU Speed Of Light Throughput","DRAM Frequency","Ghz","3.2"\n',
            "is the details page",
        ),
        ('"Kernel Name","Invocations","Metric Name","Minimum","Maximum","Average"\n', "expected a CSV of ncu"),
        ('"ID","Function Name","Demangled Name","Duration [msecond]"\n', "lacks Kernel Name"),
        (raw_page([]), "holds no kernels"),
        (raw_page([{}, {}])[:-30], "fields"),
        ("==PROF== Connected\n==ERROR== ERR_NVGPUCTRPERM\n", "no header"),
        (raw_page([{"gpu__time_duration.sum": ""}]), "lacks gpu__time_duration.sum"),
        (raw_page([{"Grid Size": "(many)"}]), "no grid"),
        (raw_page([{"dram__bytes_read.sum": "lots"}]), "no number"),
        (raw_page([{"launch__registers_per_thread": "999"}]), "999"),
    ],
)
def test_what_cannot_be_imported_is_refused_in_one_line(tmp_path: Path, text: str, what: str) -> None:
    assert what in refused(written(tmp_path / "a.csv", text), gpu=load_gpu("h200"))


# ---- reports


class FakeMetric:
    def __init__(self, unit: str, value: Any) -> None:
        self._unit, self._value = unit, value

    def unit(self) -> str:
        return self._unit

    def value(self) -> Any:
        return self._value


KERNEL, GRAPH = 0, 3
FUNCTION, DEMANGLED = 0, 1


class FakeGraph:
    """A CUDA graph that was profiled as one."""

    def name(self) -> str:
        return "graph"

    def workload_type(self) -> int:
        return GRAPH


class FakeAction:
    """What ncu_report gives of a launch: its name, and metrics by name."""

    def __init__(self, **changed: Any) -> None:
        given = {name: FakeMetric(unit, float(value.replace(",", ""))) for name, (unit, value) in METRICS.items()}
        dims = {"launch__grid_dim_x": 264, "launch__block_dim_x": 256}
        ones = {f"launch__{what}_dim_{axis}": 1 for what in ("grid", "block") for axis in "yz"}
        self.metrics = given | {name: FakeMetric("", value) for name, value in (dims | ones | changed).items()}

    def name(self, base: int = FUNCTION) -> str:
        return "void gemm<(int)3, (char)34>(float *)" if base == DEMANGLED else "gemm"

    def workload_type(self) -> int:
        return KERNEL

    def metric_names(self) -> list[str]:
        return list(self.metrics)

    def metric_by_name(self, name: str) -> FakeMetric:
        return self.metrics[name]


def fake_library(actions: Sequence[FakeAction | FakeGraph]) -> SimpleNamespace:
    one_range = SimpleNamespace(num_actions=lambda: len(actions), action_by_idx=lambda i: actions[i])
    report = SimpleNamespace(num_ranges=lambda: 1, range_by_idx=lambda i: one_range)
    kinds = SimpleNamespace(WorkloadType_KERNEL=KERNEL, NameBase_DEMANGLED=DEMANGLED)
    return SimpleNamespace(load_report=lambda path: report, IAction=kinds)


REAL = Path(__file__).parent / "record" / "hard_names"  # of hard_names.cu, under ncu 2025.3.1 on an H200


def test_a_real_report_gives_what_its_csv_gives() -> None:
    """A CSV has six decimals; the name of the process has quotes in it that ncu does not double."""
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    traces = [import_profile(REAL.with_suffix(ending)).trace for ending in (".ncu-rep.gz", ".csv.gz")]
    report, table = ([(s.name, [one.launches() for one in s.operations]) for s in trace.streams] for trace in traces)
    assert traces[0].device == traces[1].device == "h200"
    assert [name for name, _ in report] == [name for name, _ in table] == ["stream13", "stream14", "stream7"]
    for (_, ones), (_, others) in zip(report, table, strict=True):
        for (one,), (other,) in zip(ones, others, strict=True):
            assert_as_printed(one.model_dump(), other.model_dump())


def test_a_real_report_is_read_beside_other_libraries_in_cpp() -> None:
    """NVIDIA's library before 2026.2 ends the process where pandas was imported before it."""
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    report = str(REAL.with_suffix(".ncu-rep.gz"))
    program = f"import pandas\nfrom gpusim.io.importing import import_profile\nimport_profile({report!r})"
    assert subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, check=False).returncode == 0


def test_a_real_report_that_ends_early(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report", reason="ncu-report is not installed")
    report = tmp_path / "a.ncu-rep"
    whole = gzip.decompress(REAL.with_suffix(".ncu-rep.gz").read_bytes())
    for size in (4, 20, len(whole) // 2, len(whole) - 1):
        report.write_bytes(whole[:size])
        assert "expected a whole .ncu-rep" in refused(report)


def assert_as_printed(counted: Mapping[str, Any], printed: Mapping[str, Any]) -> None:
    for name, value in counted.items():
        if isinstance(value, Mapping):
            assert_as_printed(value, printed[name])
        elif isinstance(value, float):
            assert printed[name] == pytest.approx(value, rel=1e-5, abs=1e-6), name
        else:
            assert printed[name] == value, name


def test_real_names() -> None:
    names = [op.launches()[0].name for op in import_profile(REAL.with_suffix(".csv.gz")).trace.operations()]
    assert set(names) == {
        *(f"void <unnamed>::scale<{what}>(T1 *, int)" for what in ("float, 1", "float, 2", "float, 3", "double, 2")),
        "void packed<Pack<int, Pack<const char *, float [3]>, void (*)(int, float)>, 34>(float *)",
        "void apply<main::[lambda(float) (instance 1)]>(T1, float *)",
        "plain_c",
        "void map<&twice>(float *)",
        "shared_sum(float *)",
    }


def test_quotes_in_the_name_of_a_process_that_ncu_does_not_double(tmp_path: Path) -> None:
    text = raw_page([{"Process Name": "NAME"}, {"Process Name": "NAME", "Kernel Name": "second"}])
    path = written(tmp_path / "a.csv", text.replace("NAME", 'my "net", ü'))
    operations = import_profile(path, gpu=load_gpu("h200")).trace.operations()
    assert [operation.launches()[0].name for operation in operations] == ["gemm", "second"]
    assert "line 4: has " in refused(written(path, path.read_text()[:-6]))


def test_what_is_profiled_as_a_whole_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = METRICS | {"launch__graph_contains_device_launch": ("", "0")}
    table = written(tmp_path / "graph.csv", raw_page([{"Kernel Name": "graph"}], graph))
    assert "line 3: is a 'graph' profiled as a whole; expected single kernels: ncu --graph" in refused(table)
    written(table, raw_page([{"Kernel Name": "range", "Stream": "n/a"}]))
    assert "line 3: is a 'range' profiled as a whole" in refused(table)
    named_so = written(tmp_path / "kernel.csv", raw_page([{"Kernel Name": "range"}, {"Kernel Name": "graph"}]))
    assert len(list(import_profile(named_so, gpu=load_gpu("h200")).trace.operations())) == 2
    monkeypatch.setitem(sys.modules, "ncu_report", fake_library([FakeAction(), FakeGraph()]))
    report = tmp_path / "a.ncu-rep"
    report.write_bytes(b"NVR\x00")
    assert "action 1: is a 'graph' profiled as a whole; expected single kernels" in refused(report)


def test_sectors_of_l2_where_its_bytes_are_not_counted(tmp_path: Path) -> None:
    """As of `ncu --set full`; where both are counted they agree."""
    sectors = METRICS | {"lts__t_sectors.sum": ("sector", "2,640")}
    assert imported_mix(written(tmp_path / "a.csv", raw_page([{}], sectors))).l2_bytes == 32 * 2640 / 264
    both = sectors | {"lts__t_bytes.sum": ("byte", "264,000")}
    assert imported_mix(written(tmp_path / "b.csv", raw_page([{}], both))).l2_bytes == 1000


def test_report_gives_what_its_csv_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", fake_library([FakeAction()]))
    report = tmp_path / "a.ncu-rep"
    report.write_bytes(b"NVR\x00")
    table = written(tmp_path / "a.csv", raw_page([{"Kernel Name": "void gemm<3, 34>(float *)"}]))
    launches = [
        next(import_profile(path, gpu=load_gpu("h200")).trace.operations()).launches() for path in (report, table)
    ]
    assert launches[0] == launches[1]


def test_report_without_the_library_or_whole_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "a.ncu-rep"
    report.write_bytes(b"NVR\x00 half")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    assert "pip install 'gpusim[ncu]'" in refused(report)

    def fail(path: str) -> None:
        raise RuntimeError("no report\nat all")

    monkeypatch.setitem(sys.modules, "ncu_report", SimpleNamespace(load_report=fail))
    assert "cannot be read (no report at all)" in refused(report)
    monkeypatch.setitem(sys.modules, "ncu_report", fake_library([]))
    assert "holds no kernels" in refused(report)


# ---- counters of one profile, timeline of another


def timeline(tmp_path: Path, names: Sequence[str], duration: float = 10) -> Path:
    h200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132, "totalGlobalMem": 141 * 10**9}
    events = [kineto_kernel(name, 100 * n, duration, order=n, grid=[264, 1, 1]) for n, name in enumerate(names)]
    return write_kineto(tmp_path / "timeline.json", events, deviceProperties=[h200])


def joined(tmp_path: Path, names: Sequence[str], rows: Sequence[Mapping[str, str]]) -> tuple[list[float | None], str]:
    counters = written(tmp_path / "counters.csv", raw_page(rows))
    imported = import_profile(timeline(tmp_path, names), counters=counters)
    launches = [operation.launches()[0] for operation in imported.trace.operations()]
    line = next(line for line in imported.remarks if "got counters" in line)
    return [launch.mix.dram_read_bytes if launch.mix else None for launch in launches], line


def read(count: int) -> str:
    return str(264 * count)


def test_counters_join_by_name_grid_and_order(tmp_path: Path) -> None:
    rows = [
        {"Kernel Name": "b", "dram__bytes_read.sum": read(1)},
        {"Kernel Name": "a", "dram__bytes_read.sum": read(2)},
        {"Kernel Name": "b", "dram__bytes_read.sum": read(3)},
        {"Kernel Name": "b", "Grid Size": "(9, 1, 1)", "dram__bytes_read.sum": read(4)},
    ]
    found, line = joined(tmp_path, ["a", "b", "b", "c"], rows)
    assert found == [2.0, 1.0, 3.0, None]
    assert line == ("3 of 4 kernels got counters from counters.csv; 1 got none, 1 of 4 profiled launches match none.")


def test_counters_of_a_gpu_with_other_sms_are_refused(tmp_path: Path) -> None:
    metrics = {**METRICS, "device__attribute_multiprocessor_count": ("", "108")}
    counters = written(tmp_path / "counters.csv", raw_page([{"Kernel Name": "a"}], metrics))
    with pytest.raises(InputError, match=r"is of a GPU with 108 SMs .*; expected counters of h200, which has 132"):
        import_profile(timeline(tmp_path, ["a"]), counters=counters)


def test_counters_of_one_iteration_serve_all(tmp_path: Path) -> None:
    rows = [{"Kernel Name": "a", "dram__bytes_read.sum": read(n)} for n in (1, 2)]
    assert joined(tmp_path, ["a"] * 6, rows)[0] == [1.0, 2.0] * 3
    found, line = joined(tmp_path, ["a"] * 5, rows)
    assert line.startswith("2 of 5 kernels got counters")
    assert found == [1.0, 2.0, 2.0, 2.0, 2.0]  # equal times: those of the nearest in order


def test_counters_join_where_nsight_compute_leaves_out_a_bracket(tmp_path: Path) -> None:
    timeline = [
        "void at::native::map<4, at::native::(anonymous namespace)::Less<float>, char*>(int)",
        "void at::native::map<4, at::native::Add<float>, char*>(int)",
        "void at::native::map<at::native::(anonymous namespace)::where(long)::{lambda()#1}>(int)",
    ]
    counted = ["map<4, unnamed>::Less<float>, char *>(int)", "map<4, Add<float>, char *>(int)",
               "map<unnamed>::where(long)::[lambda() (instance 1)]>(int)"]  # fmt: skip
    rows = [{"Kernel Name": f"void {name}", "dram__bytes_read.sum": read(n)} for n, name in enumerate(counted, 1)]
    assert joined(tmp_path, timeline, rows)[0] == [1.0, 2.0, 3.0]


def test_counters_join_by_short_name_where_one_tool_gives_no_more(tmp_path: Path) -> None:
    long = "void at::native::(anonymous namespace)::pool<float, at::Op<2> >(float const*, int)"
    assert joined(tmp_path, [long], [{"Kernel Name": "pool", "dram__bytes_read.sum": read(5)}])[0] == [5.0]


def test_time_of_l2_follows_the_timeline(tmp_path: Path) -> None:
    counters = written(tmp_path / "counters.csv", raw_page([{"Kernel Name": "a"}]))  # 20 us
    trace = import_profile(timeline(tmp_path, ["a"], duration=10), counters=counters).trace
    launch = next(trace.operations()).launches()[0]
    assert launch.mix is not None
    assert launch.mix.l2_busy_us == pytest.approx(0.25 * 10 / 264, rel=1e-6)


CLOCKED: Metrics = {**METRICS, "sm__cycles_elapsed.max": ("cycle", "16000")}


def test_the_clock_is_that_of_the_timeline(tmp_path: Path) -> None:
    """16,000 cycles in 10 us. Alone, the profile of Nsight Compute tells none: it may have locked the clock."""
    counters = written(tmp_path / "counters.csv", raw_page([{"Kernel Name": "a"}], CLOCKED))
    trace = import_profile(timeline(tmp_path, ["a"], duration=10), counters=counters).trace
    launch = next(trace.operations()).launches()[0]
    assert launch.mix is not None and launch.mix.clock_mhz == 1600.0
    assert imported_mix(counters).clock_mhz is None


def test_cycles_that_are_no_number_are_refused(tmp_path: Path) -> None:
    counters = written(
        tmp_path / "counters.csv", raw_page([{"Kernel Name": "a", "sm__cycles_elapsed.max": "many"}], CLOCKED)
    )
    said = refused(timeline(tmp_path, ["a"]), counters=counters)
    assert "counters.csv" in said and "has a counter that is no number" in said


BARE: Metrics = {name: METRICS[name] for name in ("gpu__time_duration.sum", "launch__registers_per_thread")}


def test_launches_without_counters_of_the_model_are_not_counted(tmp_path: Path) -> None:
    """The second launch was profiled with its duration alone: its other cells are empty."""
    rows = [{"Kernel Name": "a"}, {"Kernel Name": "b", **dict.fromkeys(METRICS.keys() - BARE.keys(), "")}]
    assert joined(tmp_path, ["a", "b", "b"], rows)[1].startswith(
        "1 of 3 kernels got counters from counters.csv; 2 got none"
    )


def test_counters_without_any_of_the_model_are_refused(tmp_path: Path) -> None:
    counters = written(tmp_path / "counters.csv", raw_page([{"Kernel Name": "a"}], BARE))
    assert "has no counters of this timeline's kernels" in refused(timeline(tmp_path, ["a"]), counters=counters)


def test_counters_of_another_program_are_refused(tmp_path: Path) -> None:
    counters = written(tmp_path / "counters.csv", raw_page([{"Kernel Name": "other"}]))
    assert "no launch of this timeline" in refused(timeline(tmp_path, ["a"]), counters=counters)
    path = tmp_path / "counters.json"
    path.write_text(json.dumps({"traceEvents": []}))
    assert "is no profile of Nsight Compute" in refused(timeline(tmp_path, ["a"]), counters=path)
