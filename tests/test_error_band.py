"""An error is quoted where its like was measured, and nowhere else."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import tiny

from experiments.h200_validation.bands import bands
from gpusim import GPU, Trace, load_gpu, load_trace, replay
from gpusim.results import error_band as module
from gpusim.results.error_band import (
    STALE,
    Calls,
    calls_of,
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
from gpusim.trace.operations import Kernel

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
    """Every experiment with calls of 50 to 200 us; no tensor cores mixed on an SM. Returned: what is written."""
    path = tmp_path / "validated.json"
    experiments = ("modules_serial", "streams", "modules_streams", "green", "quota", "sm_curve")
    errors = {name: float(i) for i, name in enumerate(experiments, 1)}
    band = {"from_us": 50, "to_us": 200, "bound": None, "points": 10}
    content = {
        "model": model_identity(h200()),
        "bands": [{"experiment": name, "mape_percent": error, **band} for name, error in errors.items()],
        "kinds": {
            "in streams": ["dram", "issue", "latency", "tensor"],
            "on a part of the SMs": ["issue", "tensor"],
            "mixed on an SM": ["issue"],
        },
    }
    path.write_text(json.dumps({"h200": {"h200": content}}))
    monkeypatch.setattr(module, "VALIDATED", path)
    return content


def said(trace: Trace, policy: str, gpu: GPU | None = None) -> str:
    """The experiment whose error is quoted, or why none is."""
    gpu = gpu or h200()
    found = error_band(replay(trace, gpu, policy), trace, gpu)
    return found.reason if found.band is None else found.band.experiment


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
        (2, "mps", "not validated: processes without limits on their SMs"),
        (2, "mps:percent=70", "not validated: SM sets that overlap"),
        (2, "mig", "not validated: memory slices"),
        (2, "smk", "not validated: shares of throughput"),
        (2, "time-slicing", "not validated: time slices"),
        (1, "time-slicing", "modules_serial"),
        (1, "quota:blocks=a:1", "not validated: fewer blocks per SM of one kernel"),
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
    trace = load_trace(TRACES / "inception_5a.json.gz")
    result = replay(trace, h200(), "even")
    assert (streams_at_once(result), streams_on_an_sm(result)) == (4, 1)
    assert experiment_of(result) == ("green", "")


def _by_hand(*spans: tuple[str, int, float, float]) -> Result:
    """A result with a kernel for each (stream, SM, start, end)."""
    base = replay(twins(2), h200(), "serial")
    first = base.kernel_runs[0]
    runs = tuple(first._replace(stream=stream, start_us=start, end_us=end) for stream, _, start, end in spans)
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


def busy(**counters: float) -> KernelLaunch:
    """The GEMM, as if one resource had been busy for such a part of its time, and all others hardly."""
    launch = fp32()
    assert launch.mix is not None and launch.mix.active_cycles_avg is not None
    cycles, us = launch.mix.active_cycles_avg * 132 / launch.blocks, CALL_US / launch.blocks
    wanted = dict.fromkeys(
        ("issue_cycles", "alu_cycles", "fma_cycles", "tensor_cycles", "lsu_cycles", "l1_cycles"), 0.0
    )
    wanted |= {"l2_busy_us": 0.0, "dram_read_bytes": 0.0, "dram_write_bytes": 0.0}
    for name, share in counters.items():
        whole = (
            cycles if name.endswith("cycles") else us * (h200().dram_bandwidth_gb_per_s * 1e3 if "dram" in name else 1)
        )
        wanted[name] = share * whole
    return launch.model_copy(update={"mix": launch.mix.model_copy(update=wanted)})


@pytest.mark.parametrize(
    ("counters", "kind"),
    [
        ({"issue_cycles": 0.6}, "issue"),
        ({"fma_cycles": 0.7, "issue_cycles": 0.6}, "issue"),
        ({"tensor_cycles": 0.8, "issue_cycles": 0.6}, "tensor"),
        ({"l1_cycles": 0.9, "tensor_cycles": 0.8}, "l1"),
        ({"l2_busy_us": 0.7}, "l2"),
        ({"dram_read_bytes": 0.3, "dram_write_bytes": 0.25}, "dram"),
        ({"tensor_cycles": 0.49, "dram_read_bytes": 0.45}, "latency"),
    ],
)
def test_kinds_of_kernels(counters: dict[str, float], kind: str) -> None:
    assert kind_of(busy(**counters), h200()) == kind
    assert kind_of(fp32().model_copy(update={"mix": None}), h200()) == "unknown"


def test_kernels_bound_by_what_was_not_measured(measured: dict[str, object]) -> None:
    """Of kernels mixed on an SM only those bound by issue slots were measured, on a part of the SMs none by DRAM."""
    tensor, dram, quota = busy(tensor_cycles=0.8), busy(dram_read_bytes=0.9), "quota:blocks=a:1+b:1"
    assert said(twins(2, tensor), "leftover") == "streams"
    assert said(twins(2, tensor), "inter-sm") == "green"
    assert said(twins(2, tensor), quota) == "not validated: kernels bound by tensor mixed on an SM"
    both = "not validated: kernels bound by dram and tensor mixed on an SM"
    assert said(twins(2, dram, tensor), quota) == both
    assert said(twins(2, dram), "inter-sm") == "not validated: kernels bound by dram on a part of the SMs"


def programs(count: int, launch: KernelLaunch, kernels: int = 40) -> Trace:
    """So many streams of many kernels each."""
    streams = []
    for name in "abcd"[:count]:
        ops = [Kernel(id=f"{name}{n}", kind="kernel", kernel=launch) for n in range(kernels)]
        streams.append(tiny.stream(name, *ops))
    return tiny.trace(*streams, device="h200")


def test_whole_programs_have_errors_of_their_own(measured: dict[str, object]) -> None:
    launch = busy(tensor_cycles=0.8)
    assert said(programs(2, launch, kernels=39), "leftover") == "streams"
    assert said(programs(2, launch), "leftover") == "not validated: whole programs in streams"
    assert isinstance(measured["bands"], list)
    names = ("programs_serial", "programs_streams", "programs_sm_curve", "programs_green")
    measured["bands"] += [{**measured["bands"][0], "experiment": name} for name in names]
    module.VALIDATED.write_text(json.dumps({"h200": {"h200": measured}}))
    policies = ("serial", "leftover", "inter-sm")
    assert [said(programs(2, launch), policy) for policy in policies] == [
        "programs_serial",
        "programs_streams",
        "programs_green",
    ]
    assert said(programs(1, launch), "inter-sm:sms=40") == "programs_sm_curve"
    bare = launch.model_copy(update={"mix": None})
    assert said(programs(2, bare), "leftover") == "not validated: programs without counters"
    streams = (programs(2, launch).streams[0], programs(2, bare).streams[1])
    one_counted = programs(2, launch).model_copy(update={"streams": streams})
    assert said(one_counted, "leftover") == "not validated: programs without counters"


def test_calls_outside_what_was_measured(measured: dict[str, object]) -> None:
    for us, expected in (
        (49.0, "calls shorter than any measured"),
        (50.0, "streams"),
        (200.0, "streams"),
        (201.0, "calls longer than any measured"),
    ):
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
    """Ten points of 60 us with errors 1 to 10: mean 5.5; nine of 30 us are too few; ten long ones are tensor's."""

    def work(us: float, *kinds: str) -> Calls:
        return Calls(us, frozenset(kinds), kinds[0])

    points = [("streams", work(60.0, "issue"), float(i)) for i in range(1, 11)]
    points += [("streams", work(30.0, "issue"), 1.0)] * 9
    points += [("streams", work(200.5, "tensor", "issue"), 2.0)] * 10 + [("streams", work(150.0, "l2"), 4.0)] * 9
    found = bands(points)
    short = {"experiment": "streams", "from_us": 50.0, "to_us": 100.0, "points": 10, "mape_percent": 5.5}
    long = {"experiment": "streams", "from_us": 100.0, "to_us": 201}
    assert found["bands"] == [
        {**short, "bound": None},
        {**short, "bound": "issue"},
        {**long, "bound": None, "points": 19, "mape_percent": round((20 + 36) / 19, 2)},
        {**long, "bound": "tensor", "points": 10, "mape_percent": 2.0},
    ]
    assert found["kinds"]["in streams"] == ["issue", "tensor"] and found["kinds"]["mixed on an SM"] == []


def test_what_takes_most_of_the_time_tells_the_band(measured: dict[str, object]) -> None:
    tensor, issue = busy(tensor_cycles=0.8), busy(issue_cycles=0.8)
    longer = tensor.model_copy(update={"duration_us": 2 * CALL_US})
    assert calls_of([((longer, issue), 1)], h200()) == Calls(3 * CALL_US, frozenset({"tensor", "issue"}), "tensor")
    assert calls_of([((tensor,), 1), ((issue,), 3)], h200()) == Calls(CALL_US, frozenset({"tensor", "issue"}), "issue")
    assert isinstance(measured["bands"], list)
    measured["bands"].append({**measured["bands"][1], "bound": "tensor", "mape_percent": 9.0})
    module.VALIDATED.write_text(json.dumps({"h200": {"h200": measured}}))
    for launch, expected in ((issue, 2.0), (tensor, 9.0)):
        trace = twins(2, launch)
        assert error_band(replay(trace, h200(), "leftover"), trace, h200()).band == module.ErrorBand(
            "streams", expected
        )
    assert measured_errors("streams") == {"h200": (2.0, 2.0)}


def test_what_changes_the_model() -> None:
    gpu = h200()
    other = replace(gpu, model=gpu.model.model_copy(update={"launch_latency_us": 4.5}))
    assert model_identity(gpu) == model_identity(load_gpu("h200")) != model_identity(other)


BESIDE_THE_MODEL = {  # imported by its sources, but for data, errors, words and what validation does not do
    "gpusim.policies.tools.notes",  # of a policy, after a replay
    *(
        "gpusim.common.cores",
        "gpusim.common.errors",
        "gpusim.common.files",
        "gpusim.common.fingerprint",
        "gpusim.common.kept",
        "gpusim.common.numbers",
    ),
    *("gpusim.common.progress", "gpusim.common.spreadsheet", "gpusim.common.strict", "gpusim.common.tables"),
    "gpusim.hardware.host_costs",
    *("gpusim.policies.checks", "gpusim.policies.registry", "gpusim.policies.tools.values", "gpusim.trace.independent"),
    *("gpusim.policies.tools.programs", "gpusim.trace.programs", "gpusim.trace.edit", "gpusim.io.importing"),
    *("gpusim.results.comparison", "gpusim.results.error_band", "gpusim.results.gains", "gpusim.results.metrics"),
    *("gpusim.results.result", "gpusim.results.runs", "gpusim.policies.oracles", "gpusim.trace.file"),
    *("gpusim.trace.fields", "gpusim.trace.format", "gpusim.io.timeline"),
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
