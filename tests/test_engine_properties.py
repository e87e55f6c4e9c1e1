"""Replays of random traces: limits, conservation, determinism, and what must hold of a kernel alone."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from cores import is_compiled, plain_core
from hypothesis import assume, example, given
from hypothesis import strategies as st
from strategies import examples, kernels, traces
from tiny import session_on

from gpusim import load_gpu, load_trace
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.kernels import Kernels
from gpusim.calibrate.transfer import transferred
from gpusim.engine import sm_array
from gpusim.engine.alone import IdleSMs, alone_under
from gpusim.engine.sm_array import run_alone
from gpusim.hardware.gpu import GPU
from gpusim.model.contention import age_shares
from gpusim.model.context import in_context
from gpusim.model.kernel import KernelModel
from gpusim.policies.interface import Grant
from gpusim.policies.registry import policies
from gpusim.results.result import Result
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix
from gpusim.trace.operations import Convolution, Kernel, Stream

H200 = load_gpu("h200")
TRACES = Path(__file__).resolve().parent.parent / "traces"

# Policies that give a kernel which is alone in its trace the whole GPU.
WHOLE_GPU = sorted({"serial", "leftover", "even", "inter-sm", "warped-slicer", "smk"} & set(policies()))
POLICIES = st.sampled_from([name for name in WHOLE_GPU])


def alone(launch: KernelLaunch) -> Trace:
    operation = Kernel(id="k", kind="kernel", kernel=launch)
    return Trace(version=1, name="alone", device="h200", streams=(Stream(name="a", operations=(operation,)),))


def launches_of(trace: Trace) -> dict[tuple[str, int], KernelLaunch]:
    return {(op.id, i): launch for op in trace.operations() for i, launch in enumerate(op.launches())}


FALLS_BY_A_FIFTIETH = KernelLaunch(  # its load, as blocks end one by one: rounding would tell when slowdowns change
    name="gemm",
    grid=(108, 3, 2),
    block=(1, 1, 1),
    registers_per_thread=1,
    duration_us=1.0,
    mix=Mix(dram_write_bytes=4431.02, alu_utilisation_percent=54.523),
)


# ---- one kernel alone -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", WHOLE_GPU)
@examples(50)
@example(launch=FALLS_BY_A_FIFTIETH)
@given(launch=kernels())
def test_a_kernel_alone_takes_its_recorded_time(policy: str, launch: KernelLaunch) -> None:
    result = SESSION.replay(alone(launch), policy)
    assert result.makespan_us == pytest.approx(launch.duration_us, rel=1e-6)
    assert result.kernel_runs[0].sharing_us == pytest.approx(0.0, abs=1e-6 * launch.duration_us)


def faster(gpu: GPU, **changes: float) -> GPU:
    """A GPU with other numbers: a value of the GPU itself, or a constant of its model."""
    own = {key: value for key, value in changes.items() if hasattr(gpu, key)}
    model = {key: value for key, value in changes.items() if key not in own}
    return replace(gpu, name="other", model=gpu.model.model_copy(update=model), **own)


@examples(400)
@given(launch=kernels(), factor=st.sampled_from([1.1, 2.0, 8.0]))
def test_more_bandwidth_never_slows_a_kernel_alone(launch: KernelLaunch, factor: float) -> None:
    peak, sustained = H200.dram_bandwidth_gb_per_s, H200.model.dram_sustained_gb_per_s
    gpu = faster(H200, dram_bandwidth_gb_per_s=peak * factor, dram_sustained_gb_per_s=sustained * factor)
    model = anchored(launch, H200)
    assert transferred(model, launch, H200, gpu, "").solo_us <= model.solo_us * (1 + 1e-9)


@examples(400)
@given(launch=kernels(), factor=st.sampled_from([1.1, 2.0]))
def test_a_faster_clock_never_slows_a_kernel_alone(launch: KernelLaunch, factor: float) -> None:
    model = anchored(launch, H200)
    gpu = faster(H200, boost_clock_mhz=H200.boost_clock_mhz * factor)
    assert transferred(model, launch, H200, gpu, "").solo_us <= model.solo_us * (1 + 1e-2)


@examples(300)
@given(launch=kernels(), sms=st.sampled_from([133, 144, 264]))
def test_more_sms_hardly_ever_slow_a_kernel_alone(launch: KernelLaunch, sms: int) -> None:
    """Where memory binds, more SMs run its last wave at fewer blocks an SM, and a tail may fall otherwise.

    Of kernels that last as long as a launch, on twice the SMs ten times as long: the ramp counts as work that memory
    slows, the more so the more blocks begin at once, and shorter kernels are little else. Where all blocks become
    resident at once, the fullest scheduler of an SM sets their pace.
    """
    least = H200.model.launch_latency_us
    assume(launch.duration_us >= least * (10.0 if sms == 264 else 1.0))
    model = anchored(launch, H200)
    more = transferred(model, launch, H200, faster(H200, sm_count=sms), "")
    assert more.solo_us <= model.solo_us * 1.15


@examples(200)
@given(launch=kernels())
def test_a_gpu_of_the_same_numbers_changes_nothing(launch: KernelLaunch) -> None:
    model = anchored(launch, H200)
    assert transferred(model, launch, H200, replace(H200, name="twin"), "").solo_us == pytest.approx(
        model.solo_us, rel=1e-6
    )


@examples(200)
@given(launch=kernels(), share=st.floats(0.0, 1.0))
def test_fewer_blocks_on_an_sm_save_less_than_the_life_of_one(launch: KernelLaunch, share: float) -> None:
    """Their ramp lasts as long and they progress no faster together; a tail alone may fall better.

    Where old blocks go first the youngest lives longer, and waits longer for its ramp.
    """
    model = anchored(launch, H200)
    assume(model.most_resident > 1)
    assume(launch.blocks / H200.model.block_starts_per_us < launch.duration_us - model.latency_us)
    fewer = 1 + int(share * (model.most_resident - 2))
    whole, limited = (alone_under(Grant(0, blocks_per_sm=most), model, IdleSMs(H200)).us for most in (None, fewer))
    slowest = age_shares(model.most_resident, model.age_preference)[-1]
    ramp = model.ramp_work if slowest < 1.0 else 0.0
    assert limited > whole - model.demand.block_us * (1.0 + ramp) / slowest


class Stepping(plain_core().SMArray):  # type: ignore[misc, name-defined]  # a module that is loaded by path
    """The core, stepping through every block."""

    def skip(self, until: float) -> None:
        self.stable = 0


@examples(40)
@given(
    blocks=st.integers(500, 1600),
    warps=st.sampled_from([16, 32]),
    bytes_per_us=st.sampled_from([0.0, 0.3, 0.9]),
    alu=st.sampled_from([10.0, 50.0, 95.0]),
)
def test_jumping_over_waves_moves_the_end_of_a_kernel_alone_by_less_than_a_hundredth(
    blocks: int, warps: int, bytes_per_us: float, alu: float
) -> None:
    gpu = replace(H200, sm_count=4)
    read = bytes_per_us * gpu.model.dram_sustained_gb_per_s * 1e3 * 1000.0 / blocks
    mix = Mix(alu_utilisation_percent=alu, dram_read_bytes=read)
    launch = KernelLaunch(
        name="k", grid=(blocks, 1, 1), block=(32 * warps, 1, 1), registers_per_thread=32, duration_us=1000.0, mix=mix
    )
    model = anchored(launch, gpu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sm_array, "SMArray", Stepping)
        stepped = run_alone(model, gpu)
    assert run_alone(model, gpu).makespan_us == pytest.approx(stepped.makespan_us, rel=0.01)


@examples(200)
@given(launch=kernels(), times=st.sampled_from([1.0, 10.0, 1000.0]))
def test_a_kernel_moves_no_more_bytes_than_memory_does_but_for_jitter(launch: KernelLaunch, times: float) -> None:
    """Whatever its counters say; all of its blocks may have less to do than the mean one, whose bytes count."""
    mix = launch.mix or Mix(dram_read_bytes=1e5, l2_read_bytes=1e5)
    more = {
        "dram_read_bytes": times * (mix.dram_read_bytes or 1e3),
        "l2_read_bytes": times * (mix.l2_read_bytes or 1e3),
    }
    model = anchored(launch.model_copy(update={"mix": mix.model_copy(update=more)}), H200)
    work = model.blocks * (1.0 - model.jitter * 3.0**0.5)
    whole = (model.solo_us - model.latency_us) * (1.0 + 1e-6)
    assert model.dram_share_us * work <= whole
    assert model.l2_share_us * work <= whole


# ---- any trace ------------------------------------------------------------------------------------------------------


def check(trace: Trace, result: Result) -> None:
    """What holds of every replay."""
    launches = launches_of(in_context(trace, H200))
    requests = {s.name: sum(r.stream == s.name for r in result.request_runs) for s in trace.streams}
    stream_of = {op.id: s.name for s in trace.streams for op in s.operations}
    expected = sum(requests[stream_of[op]] for op, _ in launches)
    assert len(result.kernel_runs) == expected
    placed = dict.fromkeys(range(len(result.kernel_runs)), 0)
    for placement in result.placements:
        run = result.kernel_runs[placement.run]
        placed[placement.run] += placement.blocks
        assert placement.blocks > 0 and 0 <= placement.sm < H200.sm_count
        assert run.start_us <= placement.start_us <= placement.end_us <= run.end_us
    for i, run in enumerate(result.kernel_runs):
        model = anchored_model(launches[(run.operation, run.index)])
        assert run.blocks == launches[(run.operation, run.index)].blocks
        assert placed[i] == model.blocks
        assert run.ready_us + model.latency_us <= run.start_us * (1 + 1e-12)
        assert run.start_us <= run.dispatched_us <= run.end_us
        assert run.end_us <= result.makespan_us * (1 + 1e-12)
    for sm in result.usage.shares:
        for bin_ in sm:
            assert all(0.0 <= share <= 1.0 + 1e-9 for share in bin_[:4])
    for stream, run in zip(trace.streams, result.stream_runs, strict=True):
        assert run.stream == stream.name
        assert run.end_us >= run.start_us >= run.release_us >= 0.0 or not stream.operations
        asked = sorted((r for r in result.request_runs if r.stream == run.stream), key=lambda r: r.request)
        assert all(r.start_us >= r.release_us for r in asked if stream.operations)
        assert all(first.end_us <= then.start_us for first, then in pairwise(asked) if stream.operations)
    ends = {(r.operation, r.request): r for r in result.operation_runs}
    for op in trace.operations():
        for other in op.depends_on:
            assert ends[(op.id, 0)].start_us >= ends[(other, 0)].end_us


SESSION = Session(H200, H200)
MODELS = Kernels(H200, H200)


def anchored_model(launch: KernelLaunch) -> KernelModel:
    return MODELS.model(launch, "")


@examples(150, everyday=25)
@given(trace=traces(), policy=POLICIES)
def test_random_traces_keep_to_the_rules(trace: Trace, policy: str) -> None:
    check(trace, SESSION.replay(trace, policy))


@examples(100, everyday=15)
@given(trace=traces(max_streams=4, max_operations=6, with_arrivals=True), policy=POLICIES)
def test_random_traces_with_arrivals_keep_to_the_rules(trace: Trace, policy: str) -> None:
    check(trace, SESSION.replay(trace, policy))


@examples(60)
@given(trace=traces(max_streams=4))
def test_serial_takes_no_less_than_its_kernels_alone(trace: Trace) -> None:
    result = SESSION.replay(trace, "serial")
    on_main = [run for run in result.kernel_runs if launches_of(trace)[(run.operation, run.index)].stream == "main"]
    assert result.makespan_us >= sum(run.solo_us for run in on_main) * (1 - 1e-6)


@examples(100)
@given(trace=traces(max_streams=1, max_operations=5))
def test_one_stream_is_as_long_as_alone(trace: Trace) -> None:
    result = SESSION.replay(trace, "leftover")
    assert result.makespan_us == pytest.approx(sum(SESSION.isolated_us(trace).values()), rel=1e-9)


# ---- the same again -------------------------------------------------------------------------------------------------


@examples(40)
@given(trace=traces(max_streams=4, max_operations=6), policy=POLICIES)
def test_the_same_replay_twice_is_the_same(trace: Trace, policy: str) -> None:
    assert Session(H200).replay(trace, policy) == Session(H200).replay(trace, policy)


@examples(25)
@given(trace=traces(), policy=POLICIES)
def test_what_was_worked_out_before_changes_nothing(trace: Trace, policy: str) -> None:
    session = Session(H200)
    first = session.replay(trace, "serial")
    second = session.replay(trace, policy)
    assert first == Session(H200).replay(trace, "serial")
    assert second == Session(H200).replay(trace, policy)


@pytest.mark.release
@pytest.mark.skipif(not is_compiled(), reason="the core is not compiled here")
@examples(8)
@given(trace=traces(max_streams=4, max_operations=4, max_blocks_x=300), policy=POLICIES)
def test_replays_on_the_plain_core_agree_to_the_bit(trace: Trace, policy: str) -> None:
    compiled = Session(H200).replay(trace, policy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sm_array, "SMArray", plain_core().SMArray)
        plain = Session(H200).replay(trace, policy)
    assert compiled == plain


PRINT = """
import hashlib, sys
from gpusim import load_gpu, load_trace, replay
trace, gpu = load_trace(sys.argv[1]), load_gpu("h200")
for policy in sys.argv[2:]:
    result = replay(trace, gpu, policy)
    content = {**vars(result), "limits": sorted(result.limits)}
    print(policy, hashlib.sha256(repr(content).encode()).hexdigest())
"""


@pytest.mark.release
def test_another_process_and_hash_seed_give_the_same_bytes() -> None:
    path = TRACES / "inception_3a.json.gz"
    trace = load_trace(path)
    results = [Session(H200).replay(trace, name) for name in WHOLE_GPU]
    contents = [{**vars(result), "limits": sorted(result.limits)} for result in results]
    here = [hashlib.sha256(repr(content).encode()).hexdigest() for content in contents]
    for seed in ("0", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PRINT, str(path), *WHOLE_GPU]
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        assert [line.split()[1] for line in found.splitlines()] == here


@pytest.mark.release
@pytest.mark.parametrize("path", sorted(TRACES.glob("*.json*")), ids=lambda path: path.name.split(".")[0])
def test_shipped_traces_replay(path: Path) -> None:
    trace = load_trace(path)
    for policy in ("serial", "leftover"):
        result = session_on(trace.device).replay(trace, policy)
        assert result.makespan_us > 0.0
    assert any(isinstance(op, Convolution | Kernel) for op in trace.operations())


def test_a_seed_changes_co_runs_and_nothing_else() -> None:
    trace = load_trace(TRACES / "inception_3a.json.gz")
    session = Session(H200)
    first = session.replay(trace, "leftover")
    assert Session(H200, seed=0).replay(trace, "leftover") == first
    other = session.seeded(1).replay(trace, "leftover")
    assert other.makespan_us != first.makespan_us
    assert other.makespan_us == pytest.approx(first.makespan_us, rel=0.05)
    assert [run.solo_us for run in other.stream_runs] == [run.solo_us for run in first.stream_runs]
    assert other == Session(H200, seed=1).replay(trace, "leftover")
