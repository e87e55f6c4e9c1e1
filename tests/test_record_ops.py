"""`gpusim record OPS.py` with a GPU that is made up: what it measures, what it writes, and every way it can fail."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dataset_sample as sample
import pytest

from gpusim import cli
from gpusim.common.errors import InputError
from gpusim.lab.record import torch_gpu
from gpusim.lab.record.ops import queue_lengths, record_ops
from gpusim.lab.record.ops_file import OpCall, Ops, OutOfMemory, Synchronises, read_ops
from gpusim.lab.record.ops_gpu import parts_of
from gpusim.lab.record.ops_models import passes_of

OPS = """
def make(us):
    def op():
        return ("kernel", us)
    return lambda: op

OPS = {"net/one/b1/bf16/gemm": make(40.0), "net/two/b1/bf16/gemm": make(80.0)}
SEQUENCES = {"both": [["net/one/b1/bf16/gemm", "net/two/b1/bf16/gemm"], ["net/two/b1/bf16/gemm"]]}
MODELS = {"small": make(100.0), "large": make(250.0)}
MODEL_PAIRS = [("small", "large")]
"""
RECORDED = sample.STAIRCASE  # whose counters the made-up kernels have


@dataclass
class FakeQueue:
    sms: int


@dataclass
class FakeGpu:
    """Calls give the time that their kernel takes on all SMs; on fewer they take longer in proportion."""

    has_ncu: bool = True
    name: str = "made up"
    sm_count: int = 132
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def queue(self) -> FakeQueue:
        return FakeQueue(self.sm_count)

    def split(self, sms: int) -> tuple[FakeQueue, FakeQueue]:
        return FakeQueue(sms), FakeQueue(self.sm_count - sms)

    def kernels(self, call: OpCall) -> int:
        return len([part for part in [call()] if part])

    def ends_ms(self, sides: Sequence[tuple[Sequence[OpCall], FakeQueue]], cold: bool = False) -> list[float]:
        shared = len([queue for _, queue in sides if queue.sms == self.sm_count])
        return [
            sum(call()[1] for call in calls) / 1e3 * self.sm_count / queue.sms * max(1, shared) * (1.1 if cold else 1.0)
            for calls, queue in sides
        ]

    def graph(self, call: OpCall, queue: FakeQueue) -> OpCall:
        return call

    def profile(self, call: OpCall, queue: FakeQueue, passes: int, path: Path, shapes: bool = False) -> list[Any]:
        us = (call() or (0, 1.0))[1]  # all ops together return nothing
        grid = {"grid": [132, 1, 1], "block": [256, 1, 1], "registers per thread": 32, "shared memory": 0}
        about = {"device": 0, "stream": 7, **grid}
        events = [
            {"ph": "X", "cat": "kernel", "name": "k", "ts": n * us, "dur": us, "args": {**about, "correlation": n}}
            for n in range(passes)
        ]
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return events

    def counters(self, ops: Ops, names: Sequence[str]) -> list[dict[str, str]]:
        self.asked.append(tuple(names))
        if not self.has_ncu:
            return []
        (row,) = [row for row in sample.read(sample.RECORDED / "kernels.csv.gz") if row["op"] == RECORDED]
        rows = []
        for name in names:
            ns = 1e3 * ops.ops[name]()()[1]
            scaled = {column: str(float(row[column]) * ns / float(row["gpu__time_duration.sum"]))
                      for column in row if column.startswith("sm__cycles_active")}  # fmt: skip
            dram = {column: "0" for column in row if column.startswith(("dram__bytes", "gpu__dram"))}
            rows.append({**row, **scaled, **dram, "op": name, "gpu__time_duration.sum": str(ns)})
        return rows

    def model_counters(self, ops: Ops, name: str) -> str:
        return ""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ops.py"
    path.write_text(OPS)
    return path


def _record(file: Path, gpu: FakeGpu | None = None, outcomes: bool = True) -> list[str]:
    return list(record_ops(file, file.parent / "out", outcomes, lambda: gpu or FakeGpu()))


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as text:
        return list(csv.DictReader(text))


# ---- what it writes


def test_times_of_each_op(file: Path) -> None:
    said = _record(file, outcomes=False)
    out = file.parent / "out"
    assert f"{out}: 2 ops timed, 2 kernels profiled" in said
    one, two = _rows(out / "convolutions.csv")
    assert (one["op"], two["op"]) == ("net/one/b1/bf16/gemm", "net/two/b1/bf16/gemm")
    assert one["ms_stream_run1"] == one["ms_single_run2"] == one["ms_warm"] == "0.040000"
    assert one["ms_cold"] == "0.044000" and two["ms_warm"] == "0.080000"
    assert {one[column] for column in ("supported", "gpu_bound")} == {"True"} and one["internal_streams"] == "False"
    assert not (out / "pairs.csv").exists() and not (out / "models" / "pairs.csv").exists()


def test_outcomes(file: Path) -> None:
    _record(file)
    out = file.parent / "out"
    curve = [row for row in _rows(out / "sm_curve.csv") if row["op"].startswith("net/one")]
    assert [row["sms"] for row in curve][:3] == ["8", "16", "24"] and curve[-1] == {
        "op": "net/one/b1/bf16/gemm", "sms": "132", "ms": "0.040000",
    }  # fmt: skip
    assert curve[0]["ms"] == "0.660000"
    pairs = _rows(out / "pairs.csv")
    assert [(row["a"].split("/")[1], row["b"].split("/")[1]) for row in pairs if row["mode"] == "alone"] == [
        ("one", "one"),
        ("one", "two"),
        ("two", "two"),
    ]
    mixed = [row for row in pairs if row["a"] != row["b"]]
    assert {(row["na"], row["nb"]) for row in mixed} == {("2", "1")}
    alone, streams = mixed[:2]
    assert (alone["ms_a"], alone["ms_b"], alone["ms_makespan"]) == ("0.080000", "0.080000", "0.160000")
    assert (streams["mode"], streams["ms_makespan"]) == ("streams", "0.160000")
    green = next(row for row in mixed if row["mode"] == "green" and row["sms_a"] == "64")
    assert float(green["ms_a"]) == pytest.approx(0.08 * 132 / 64, abs=1e-6)
    assert float(green["ms_makespan"]) == max(float(green["ms_a"]), float(green["ms_b"]))
    serial = [row for row in _rows(out / "modules.csv") if row["mode"] == "serial"]
    assert [(row["branch"], row["ms_end"], row["ms_makespan"]) for row in serial] == [
        ("0", "0.120000", "0.200000"),
        ("1", "0.200000", "0.200000"),
    ]


def test_models(file: Path) -> None:
    said = _record(file)
    models = file.parent / "out" / "models"
    assert {f"{models / 'small'}: 1 kernel in a pass", f"{models / 'small'}: without counters"} <= set(said)
    rows = _rows(models / "pairs.csv")
    assert [row["mode"] for row in rows[:4]] == ["alone", "streams", "green", "alone_green"]
    assert {(row["na"], row["nb"]) for row in rows} == {("10", "4")}
    assert float(rows[0]["ms_makespan"]) == pytest.approx(2.0)
    with gzip.open(models / "small.kineto.json.gz", "rt") as text:
        assert len(json.load(text)["traceEvents"]) == 2


def test_validate_scores_both(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _record(file)
    for folder, experiments in (
        ("out", ["sm_curve", "streams", "streams_b_first", "green", "modules_serial", "modules_streams"]),
        ("out/models", ["isolated", "sm_curve", "streams", "green"]),
    ):
        assert cli.main(["validate", str(file.parent / folder), "--json"]) == 0
        said = json.loads(capsys.readouterr().out)
        assert [one["experiment"] for one in said["experiments"]] == experiments


def test_counters_come_after_everything_that_is_timed(file: Path) -> None:
    steps: list[str] = []

    class Noting(FakeGpu):
        def ends_ms(self, sides: Sequence[tuple[Sequence[OpCall], FakeQueue]], cold: bool = False) -> list[float]:
            steps.append("timed")
            return super().ends_ms(sides, cold)

        def counters(self, ops: Ops, names: Sequence[str]) -> list[dict[str, str]]:
            steps.append("counted")
            return super().counters(ops, names)

        def model_counters(self, ops: Ops, name: str) -> str:
            steps.append("counted")
            return super().model_counters(ops, name)

    _record(file, Noting())
    timed = steps.count("timed")
    assert timed > 0 and steps == ["timed"] * timed + ["counted"] * 3  # the ops together, and each of two models


def test_without_ncu(file: Path) -> None:
    said = _record(file, FakeGpu(has_ncu=False), outcomes=False)
    assert any(line.startswith("ncu not found on PATH: no counters") for line in said)
    assert not (file.parent / "out" / "kernels.csv.gz").exists()


@pytest.mark.parametrize(
    ("a_ms", "b_ms", "expected"),
    [(1.0, 1.0, (1, 1)), (0.1, 0.3, (3, 1)), (0.3, 0.1, (1, 3)), (0.001, 1.0, (12, 1)), (0.01, 0.02, (8, 4))],
)
def test_queues_last_about_as_long(a_ms: float, b_ms: float, expected: tuple[int, int]) -> None:
    assert queue_lengths(a_ms, b_ms) == expected


@pytest.mark.parametrize(
    ("pass_ms", "kernels", "expected"),
    [
        ((1.0, 2.5), (9, 9), (10, 4)),
        ((2.5, 1.0), (9, 9), (4, 10)),
        ((1.0, 1.0), (9, 9), (4, 4)),
        ((1.0, 99.0), (9, 9), (64, 4)),
        ((1.0, 4.0), (155, 9), (6, 4)),  # a GPU's queue holds some 1,000 launches
        ((1.0, 4.0), (9, 400), (8, 2)),
        ((1.0, 4.0), (2000, 9), (1, 4)),
    ],
)
def test_passes_last_about_as_long_and_fit_behind_a_flag(
    pass_ms: tuple[float, float], kernels: tuple[int, int], expected: tuple[int, int]
) -> None:
    assert passes_of(pass_ms, kernels) == expected


def test_parts_of_other_gpus() -> None:
    assert parts_of(132, (8, 64, 128)) == [8, 64, 128]
    assert parts_of(114, (8, 64, 128)) == [8, 56, 112]
    assert parts_of(16, (8, 64, 128)) == [8]


# ---- what can be wrong


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1 / 0", "ops.py: line 1: raises ZeroDivisionError: division by zero; expected a file that runs"),
        ("def f(:\n", "ops.py: line 1: raises SyntaxError"),
        ("import sys\nsys.exit(3)", "ops.py: line 2: raises SystemExit: 3"),
        ("import nothing_of_the_kind", "ops.py: line 1: raises ModuleNotFoundError"),
        ("x = 1", "ops.py: names nothing to record; expected a dict OPS or MODELS"),
        ("OPS = [1]", "ops.py: OPS: is 'list'; expected a dict"),
        ("OPS = {'a b': print}", "ops.py: OPS: has the name 'a b'"),
        ("OPS = {1: print}", "ops.py: OPS: has the name 1"),
        ("MODELS = {'a/b': print}", "ops.py: MODELS: has the name 'a/b'"),
        ("OPS = {'a': 1}", "ops.py: OPS['a']: is no function; expected a function that makes an op"),
        ("OPS = {'a': print}\nPAIRS = [('a', 'c')]", "ops.py: PAIRS[0]: names 'c'; expected one of a"),
        ("OPS = {'a': print}\nPAIRS = 3", "ops.py: PAIRS: is 'int'"),
        ("OPS = {'a': print}\nPAIRS = ['aa']", "ops.py: PAIRS[0]: is 'aa'; expected two names"),
        ("OPS = {'a': print}\nSEQUENCES = {'s': []}", "ops.py: SEQUENCES['s']: is []"),
        ("OPS = {'a': print}\nSEQUENCES = {'s': [['b']]}", "ops.py: SEQUENCES['s']: names 'b'"),
        ("OPS = {'a': print}\nSEQUENCES = {'s s': [['a']]}", "ops.py: SEQUENCES['s s']: is no name"),
        ("OPS = {'a': lambda: 1}", "ops.py: OPS['a']: returns int; expected a callable without arguments"),
        ("OPS = {'a': lambda: [].pop}", "ops.py: OPS['a']: raises IndexError: pop from empty list"),
        ("def make():\n    raise KeyError('q')\nOPS = {'a': make}", "ops.py: OPS['a'], line 2: raises KeyError: 'q'"),
        ("OPS = {'a': lambda: lambda: None}", "ops.py: OPS['a']: runs no kernel; expected a callable that runs"),
        ("MODELS = {'a': lambda: 1}", "ops.py: MODELS['a']: returns int"),
    ],
)
def test_files_that_are_wrong(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        _record(file)
    line = str(caught.value).removeprefix(f"{file.parent}/")
    assert line.startswith(says) and "\n" not in line


def test_a_file_that_is_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none.py: file: is missing"):
        read_ops(tmp_path / "none.py")


class _Fails(FakeGpu):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def kernels(self, call: OpCall) -> int:
        raise self.error

    def graph(self, call: OpCall, queue: FakeQueue) -> OpCall:
        raise self.error


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OutOfMemory(), "does not fit into the GPU's memory"),
        (Synchronises("item()"), "waits for the GPU (item()); expected a callable that only launches work"),
        (RuntimeError("bad\nthings"), "raises RuntimeError: bad"),
    ],
)
@pytest.mark.parametrize("kind", ["OPS", "MODELS"])
def test_callables_that_fail_on_the_gpu(file: Path, kind: str, error: BaseException, says: str) -> None:
    file.write_text(f"{kind} = {{'a': lambda: lambda: None}}")
    with pytest.raises(InputError) as caught:
        _record(file, _Fails(error))
    assert f"{kind}['a']: {says}" in str(caught.value) and "\n" not in str(caught.value)


def test_more_kernels_than_fit_behind_a_flag(file: Path) -> None:
    class Many(FakeGpu):
        def kernels(self, call: OpCall) -> int:
            return 500

    with pytest.raises(InputError, match=r"runs 500 kernels; expected at most 80; name it in MODELS"):
        _record(file, Many())


def test_a_model_without_kernels(file: Path) -> None:
    class Empty(FakeGpu):
        def profile(self, call: OpCall, queue: FakeQueue, passes: int, path: Path, shapes: bool = False) -> list[Any]:
            path.write_text(json.dumps({"traceEvents": []}))
            return []

    file.write_text("MODELS = {'a': lambda: lambda: None}")
    with pytest.raises(InputError, match=r"MODELS\['a'\]: runs no kernel"):
        _record(file, Empty())


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], None]]:
    yield lambda module: monkeypatch.setattr(torch_gpu, "import_module", module)


def test_without_pytorch(file: Path, without: Callable[[Any], None], capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    without(missing)
    assert cli.main(["record", str(file), "--out", str(file.parent / "out")]) == 2
    assert capsys.readouterr().err == (
        "PyTorch: is not installed; expected pip install torch, a version for this machine's CUDA\n"
    )
    assert not (file.parent / "out").exists()


def test_a_file_that_needs_pytorch(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    file.write_text("import torch\nOPS = {}")
    with pytest.raises(InputError, match="PyTorch: is not installed"):
        read_ops(file)


def test_without_a_gpu(file: Path, without: Callable[[Any], None], capsys: pytest.CaptureFixture[str]) -> None:
    class Torch:
        class cuda:
            is_available = staticmethod(lambda: False)

    without(lambda name: Torch)
    assert cli.main(["record", str(file), "--out", str(file.parent / "out")]) == 2
    assert "GPU: PyTorch finds none" in capsys.readouterr().err


class _Stream:
    """A stream whose work is under way until somebody waits for it."""

    def __init__(self) -> None:
        self.under_way = 0

    def synchronize(self) -> None:
        self.under_way = 0


class _GreenTorch:
    """PyTorch whose wait for the device passes over graphs of green contexts, as on an H100 and an H200."""

    class OutOfMemoryError(Exception):
        pass

    def __init__(self) -> None:
        self.cuda = self
        self.now: list[_Stream] = []

    @contextmanager
    def stream(self, stream: _Stream) -> Iterator[None]:
        self.now.append(stream)
        yield
        self.now.pop()

    def synchronize(self) -> None:
        pass

    def Event(self, enable_timing: bool) -> Any:
        return SimpleNamespace(record=lambda stream: None, elapsed_time=lambda end: 1.0)


def test_warm_up_has_ended_before_the_clock_starts() -> None:
    torch, streams = _GreenTorch(), [_Stream(), _Stream()]
    at_the_start: list[int] = []

    def call() -> None:
        torch.now[-1].under_way += 1

    def arm() -> None:
        at_the_start.extend(stream.under_way for stream in streams)

    def nothing(*_: object) -> None:
        pass

    gpu: Any = torch_gpu.Gpu.__new__(torch_gpu.Gpu)
    gpu._torch, gpu._library = torch, SimpleNamespace(arm=arm, hold=nothing, release=nothing)
    gpu.ends_ms([([call] * 3, torch_gpu.Queue(stream, 0, 66)) for stream in streams])
    assert at_the_start == [0, 0] and [stream.under_way for stream in streams] == [3, 3]
