"""An error is quoted where its like was measured, and nowhere else."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import tiny

from gpusim import GPU, Trace, load_gpu, load_trace, replay
from gpusim.results import error_band as module
from gpusim.results.error_band import (
    STALE,
    Calls,
    bands,
    error_band,
    experiment_of,
    kind_of,
    measured_errors,
    model_identity,
    streams_at_once,
    streams_on_an_sm,
)
from gpusim.results.result import Result
from gpusim.trace.kernels import KernelLaunch

TRACES = Path(__file__).resolve().parent.parent / "traces"
CALL_US = 100.0


@cache
def h200() -> GPU:
    return load_gpu("h200")


@cache
def fp32() -> KernelLaunch:
    """A recorded GEMM on the FP32 pipes, as if it took 100 us."""
    trace = load_trace(TRACES / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz")
    launch = max(trace.streams[0].operations[0].launches(), key=lambda one: one.duration_us)
    return launch.model_copy(update={"duration_us": CALL_US})


def twins(count: int, *launches: KernelLaunch, device: str = "h200") -> Trace:
    """So many streams of one convolution each."""
    made = launches or (fp32(),)
    streams = [tiny.stream(chr(97 + i), tiny.convolution(f"op{i}", made)) for i in range(count)]
    return tiny.trace(*streams, device=device)


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """Every experiment with calls of 50 to 200 us; TF32 everywhere but mixed on an SM. Returned: what is written."""
    path = tmp_path / "validated.json"
    experiments = ("modules_serial", "streams", "modules_streams", "green", "quota", "sm_curve")
    errors = {name: float(i) for i, name in enumerate(experiments, 1)}
    band = {"from_us": 50, "to_us": 200, "tf32": False, "points": 10}
    content = {
        "model": model_identity(h200()),
        "bands": [{"experiment": name, "mape_percent": error, **band} for name, error in errors.items()],
        "kinds": {
            "in streams": ["FFT", "FP32", "TF32"],
            "on a part of the SMs": ["FP32", "TF32"],
            "mixed on an SM": ["FP32"],
        },
    }
    path.write_text(json.dumps({"h200": {"h200": content}}))
    monkeypatch.setattr(module, "VALIDATED", path)
    return content


def said(trace: Trace, policy: str, gpu: GPU | None = None) -> str:
    """The experiment whose error is quoted, or why none is."""
    gpu = gpu or h200()
    found = error_band(replay(trace, gpu, policy), trace, gpu)
    return found.reason if found.band is None else found.band["experiment"]


# ---- how it shared


@pytest.mark.parametrize(
    ("streams", "policy", "expected"),
    [
        (2, "serial", "modules_serial"),
        (1, "leftover", "modules_serial"),
        (2, "leftover", "streams"),
        (2, "leftover:first=b", "streams"),
        (4, "leftover", "modules_streams"),
        (2, "inter-sm", "green"),
        (2, "green-context:sms=64+68", "green"),
        (4, "even", "green"),
        (2, "quota:blocks=a:1+b:1", "quota"),
        (1, "inter-sm:sms=40", "sm_curve"),
        (2, "mps", "not validated: several queues without quotas"),
        (2, "mps:percent=70", "not validated: SM sets that overlap"),
        (2, "mig", "not validated: memory slices"),
        (2, "smk", "not validated: shares of throughput"),
        (2, "time-slicing", "measured, and not predicted: gpusim policies has what"),
        (1, "time-slicing", "modules_serial"),
        (1, "quota:blocks=a:1", "not validated: quotas of one kernel alone"),
    ],
)
def test_the_experiment_is_what_the_replay_did(
    streams: int, policy: str, expected: str, measured: dict[str, object]
) -> None:
    assert said(twins(streams), policy) == expected


def test_more_at_once_than_was_measured(measured: dict[str, object]) -> None:
    room = {"grid": (132, 1, 1), "registers_per_thread": 32, "static_shared_memory_bytes": 0}
    small = fp32().model_copy(update={**room, "dynamic_shared_memory_bytes": 0})
    assert said(twins(4, small), "leftover") == "modules_streams"
    assert said(twins(7, small), "leftover") == "not validated: 7 streams at once"
    assert said(twins(3, small), "quota:blocks=a:1+b:1+c:1") == "not validated: 3 streams mixed on an SM"


def test_even_of_four_streams_that_split_the_sms_is_a_split() -> None:
    trace = load_trace(TRACES / "inception_4b.json.gz")
    result = replay(trace, h200(), "even")
    assert (streams_at_once(result), streams_on_an_sm(result)) == (4, 1)
    assert experiment_of(result) == ("green", "")


def _by_hand(*spans: tuple[str, int, float, float]) -> Result:
    """A result with a kernel for each (stream, SM, start, end)."""
    base = replay(twins(2), h200(), "serial")
    runs = tuple(
        replace(base.kernel_runs[0], stream=stream, start_us=start, end_us=end) for stream, _, start, end in spans
    )
    columns = [(i, ([sm], [1], [start], [end])) for i, (_, sm, start, end) in enumerate(spans)]
    return replace(base, kernel_runs=runs, placements=type(base.placements)(columns))


@pytest.mark.parametrize(
    ("spans", "at_once", "on_an_sm"),
    [
        ((("a", 0, 0.0, 10.0), ("b", 0, 8.0, 12.0), ("b", 1, 0.0, 8.0)), 2, 2),  # mixed for 2 us of 20
        ((("a", 0, 0.0, 10.0), ("b", 0, 10.0, 12.0)), 1, 1),  # one after the other
        ((("a", 0, 0.0, 10.0), ("b", 1, 0.0, 10.0)), 2, 1),  # on SMs of their own
        ((("a", 0, 0.0, 10.0), ("a", 0, 5.0, 10.0)), 1, 1),  # two kernels of one stream
        ((("a", 0, 0.0, 1000.0), ("b", 0, 999.0, 2000.0)), 2, 1),  # mixed for 1 us of 2000: an SM that changes hands
        ((("a", 0, 0.0, 1000.0), ("b", 0, 979.0, 2000.0)), 2, 2),
    ],
)
def test_who_met_by_hand(spans: tuple[tuple[str, int, float, float], ...], at_once: int, on_an_sm: int) -> None:
    result = _by_hand(*spans)
    assert (streams_at_once(result), streams_on_an_sm(result)) == (at_once, on_an_sm)


# ---- what ran


def test_kernels_without_counters_were_never_measured(measured: dict[str, object]) -> None:
    bare = fp32().model_copy(update={"mix": None})
    assert said(twins(2, bare), "leftover") == "not validated: kernels without counters"
    assert fp32().mix is not None
    for field in ("issue_cycles", "dram_read_bytes", "stalls", "achieved_warps_per_sm"):
        part = fp32().model_copy(update={"mix": fp32().mix.model_copy(update={field: None})})
        assert said(twins(2, fp32(), part), "serial") == "not validated: kernels without counters"


def test_recorded_or_replayed_elsewhere(measured: dict[str, object]) -> None:
    assert said(twins(2, device="a100-40"), "serial") == "not validated: recorded on a100-40"
    assert said(twins(2), "serial", load_gpu("h100-sxm")) == "not validated: nothing measured on h100-sxm"
    changed = replace(h200(), sm_count=100)
    assert said(twins(2, device="h200"), "serial", changed) == "not validated: not h200 as it ships"


def test_copies_and_host_work_were_never_measured(measured: dict[str, object]) -> None:
    trace = tiny.trace(tiny.stream("a", tiny.convolution("op", (fp32(),)), tiny.copy("c", 5.0)), device="h200")
    assert said(trace, "serial") == "not validated: operations of kind copy"


def test_kinds_of_kernels(measured: dict[str, object]) -> None:
    """Of kernels mixed on an SM only FP32 was measured; FFT not on a part of the SMs (here)."""
    fft = fp32().model_copy(update={"name": "void fft2d_r2c_32x32<float>(float2 *)"})
    assert fp32().mix is not None and fp32().mix.active_cycles_avg is not None
    cycles = 0.5 * fp32().mix.active_cycles_avg * h200().sm_count / fp32().blocks
    tf32 = fp32().model_copy(update={"mix": fp32().mix.model_copy(update={"tensor_cycles": cycles})})
    assert [kind_of(one, 132) for one in (fp32(), fft, tf32)] == ["FP32", "FFT", "TF32"]
    quota = "quota:blocks=a:1+b:1"
    assert said(twins(2, tf32), "leftover") == "streams"
    assert said(twins(2, tf32), "inter-sm") == "green"
    assert said(twins(2, tf32), quota) == "not validated: TF32 mixed on an SM"
    assert said(twins(2, fft), quota) == "not validated: FFT mixed on an SM"
    assert said(twins(2, fft, tf32), quota) == "not validated: FFT and TF32 mixed on an SM"
    assert said(twins(2, fft), "inter-sm") == "not validated: FFT on a part of the SMs"


def test_calls_outside_what_was_measured(measured: dict[str, object]) -> None:
    for us, expected in ((49.0, "calls this short"), (50.0, "streams"), (200.0, "streams"), (201.0, "calls this long")):
        trace = twins(2, fp32().model_copy(update={"duration_us": us}))
        assert said(trace, "leftover").removeprefix("not validated: ") == expected


def test_another_model_was_not_validated(measured: dict[str, object]) -> None:
    measured["model"] = "another"
    module.VALIDATED.write_text(json.dumps({"h200": {"h200": measured}}))
    assert said(twins(2), "leftover") == STALE
    assert said(twins(2), "mig") == "not validated: memory slices"


# ---- two GPUs


def test_an_error_belongs_to_a_pair_of_gpus(measured: dict[str, object]) -> None:
    """Measured from h200 to h100-sxm: the other way round, each by itself and any other GPU have none."""
    h100 = load_gpu("h100-sxm")
    moved = {**measured, "model": model_identity(h100, h200())}
    module.VALIDATED.write_text(json.dumps({"h100-sxm": {"h200": moved}}))
    assert said(twins(2), "leftover", h100) == "streams"
    assert said(twins(2), "leftover") == "not validated: nothing measured on h200"
    assert said(twins(2, device="h100-sxm"), "leftover", h100) == "not validated: recorded on h100-sxm"
    assert said(twins(2, device="a100-40"), "leftover", h100) == "not validated: recorded on a100-40"
    assert said(twins(2), "leftover", load_gpu("h100-pcie")) == "not validated: nothing measured on h100-pcie"
    for changed in (replace(h200(), l2_bytes=h200().l2_bytes // 2), replace(h200(), name="mine")):
        found = error_band(replay(twins(2), h100, "leftover", recorded_on=changed), twins(2), h100, changed)
        assert found.reason == f"not validated: recorded on {changed.name}"


def test_the_model_of_a_pair_is_of_both_gpus(measured: dict[str, object]) -> None:
    """An error that was found with other constants of either GPU, or for the GPU by itself, is none of the pair's."""
    h100 = load_gpu("h100-sxm")
    other = replace(h200(), l2_bytes=1)
    identities = [model_identity(*pair) for pair in ((h100, h200()), (h100, other), (h100,), (h200(), h100))]
    assert len(set(identities)) == 4 and model_identity(h100, h100) == model_identity(h100)
    for identity in identities[1:]:
        module.VALIDATED.write_text(json.dumps({"h100-sxm": {"h200": {**measured, "model": identity}}}))
        assert said(twins(2), "leftover", h100) == STALE


def test_a_pair_that_was_measured_is_not_called_unvalidated(measured: dict[str, object]) -> None:
    module.VALIDATED.write_text(json.dumps({"h100-sxm": {"h200": measured}}))
    notes = {gpu: replay(twins(2), load_gpu(gpu), "serial").notes for gpu in ("h100-sxm", "h100-pcie")}
    assert notes["h100-sxm"] == ("recorded on h200, replayed on h100-sxm",)
    assert notes["h100-pcie"] == ("recorded on h200, replayed on h100-pcie: not validated",)


def test_errors_of_a_policy_name_the_pair(measured: dict[str, object]) -> None:
    moved = {**measured, "model": model_identity(load_gpu("h100-sxm"), h200())}
    module.VALIDATED.write_text(json.dumps({"h200": {"h200": measured}, "h100-sxm": {"h200": moved}}))
    assert measured_errors("streams") == {"h200": (2.0, 2.0), "h100-sxm from h200": (2.0, 2.0)}


# ---- what is written


def test_bands_by_hand() -> None:
    """Ten points of 60 us with errors 1 to 10: mean 5.5; nine of 30 us are too few; TF32 was in ten long ones."""
    points = [("streams", Calls(60.0, frozenset({"FP32"})), float(i)) for i in range(1, 11)]
    points += [("streams", Calls(30.0, frozenset({"FP32"})), 1.0)] * 9
    points += [("streams", Calls(200.5, frozenset({"TF32"})), 2.0)] * 10 + [
        ("streams", Calls(150.0, frozenset()), 4.0)
    ] * 10
    found = bands(points)
    long = {"experiment": "streams", "from_us": 100.0, "to_us": 201}
    assert found["bands"] == [
        {"experiment": "streams", "from_us": 50.0, "to_us": 100.0, "tf32": False, "points": 10, "mape_percent": 5.5},
        {**long, "tf32": False, "points": 20, "mape_percent": 3.0},
        {**long, "tf32": True, "points": 10, "mape_percent": 2.0},
    ]
    assert found["kinds"]["in streams"] == ["FP32", "TF32"] and found["kinds"]["mixed on an SM"] == []


def test_tf32_is_told_apart(measured: dict[str, object]) -> None:
    assert isinstance(measured["bands"], list)
    measured["bands"].append({**measured["bands"][1], "tf32": True, "mape_percent": 9.0})
    module.VALIDATED.write_text(json.dumps({"h200": {"h200": measured}}))
    assert fp32().mix is not None
    tf32 = fp32().model_copy(update={"mix": fp32().mix.model_copy(update={"tensor_cycles": 1e9})})
    for launch, expected in ((fp32(), 2.0), (tf32, 9.0)):
        trace = twins(2, launch)
        assert error_band(replay(trace, h200(), "leftover"), trace, h200()).band == {
            "experiment": "streams",
            "mape_percent": expected,
        }


def test_what_changes_the_model() -> None:
    gpu = h200()
    other = replace(gpu, model=gpu.model.model_copy(update={"launch_latency_us": 4.5}))
    assert model_identity(gpu) == model_identity(load_gpu("h200")) != model_identity(other)


BESIDE_THE_MODEL = {  # imported by its sources, but for data, errors, words and what validation does not do
    "gpusim.policies.tools.notes",  # of a policy, after a replay
    *("gpusim.common.errors", "gpusim.common.files", "gpusim.common.fingerprint", "gpusim.common.numbers"),
    *("gpusim.common.progress", "gpusim.common.spreadsheet", "gpusim.common.tables", "gpusim.hardware.host_costs"),
    *("gpusim.policies.checks", "gpusim.policies.registry", "gpusim.policies.tools.values", "gpusim.trace.independent"),
    *("gpusim.policies.tools.programs", "gpusim.trace.programs"),
    *("gpusim.results.comparison", "gpusim.results.error_band", "gpusim.results.gains", "gpusim.results.metrics"),
    *("gpusim.results.result", "gpusim.results.runs", "gpusim.policies.oracles", "gpusim.trace.file"),
    *("gpusim.trace.faults", "gpusim.trace.fields", "gpusim.trace.format"),
}


def test_whatever_the_model_imports_is_part_of_its_identity() -> None:
    folder = Path(module.__file__).parent.parent.parent

    def is_file(name: str) -> bool:
        return (folder / name.replace(".", "/")).with_suffix(".py").is_file()

    def files(name: str) -> list[Path]:
        path = folder / name.replace(".", "/")
        return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]

    imports = [
        (node.module, alias.name)
        for name in module.SOURCES
        for file in files(name)
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("gpusim")
        for alias in node.names
    ]
    found = {f"{package}.{name}" if is_file(f"{package}.{name}") else package for package, name in imports}
    unknown = {name for name in found if not any(f"{name}.".startswith(f"{known}.") for known in module.SOURCES)}
    assert unknown <= BESIDE_THE_MODEL
