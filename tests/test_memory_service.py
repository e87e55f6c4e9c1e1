"""Nobody moves more than DRAM and L2 sustain: whatever runs together, on whatever GPU, under whatever policy."""

from __future__ import annotations

from dataclasses import replace
from math import fsum, sqrt
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import examples
from tiny import launch, played, run_of, stream, tiny

from gpusim import load_gpu, load_trace
from gpusim.calibrate.fit import anchored
from gpusim.calibrate.scaling import confined_us
from gpusim.calibrate.transfer import transferred
from gpusim.hardware.what_if import what_if
from gpusim.results.result import Result
from gpusim.results.runs import USES
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
from gpusim.trace.operations import Kernel, Stream

TRACES = Path(__file__).resolve().parent.parent / "traces"
RECORDED = load_gpu("h200")
H200 = replace(RECORDED, model=RECORDED.model.model_copy(update={"block_jitter": 0.0}))  # a block's bytes are its own
GPUS = {
    "as recorded": H200,
    **{f"{factor} SMs": what_if(H200, {"sm_count": factor}) for factor in ("x0.5", "x2", "x4")},
    "half the DRAM": what_if(H200, {"dram_bandwidth_gb_per_s": "x0.5"}),
    "four times the warps": what_if(H200, {"max_warps_per_sm": "x4", "registers_per_sm": "x4"}),
}
POLICIES = ["serial", "leftover", "even", "inter-sm", "smk"]
TOLERANCE = 1e-6


@pytest.mark.parametrize(
    ("stalls", "working_us"),
    [(None, 9.0), (WarpStalls(no_instruction=0.2, long_scoreboard=0.8), 7.0)],
    ids=["launch", "launch and instructions"],
)
def test_memory_is_busy_while_blocks_work(stalls: WarpStalls | None, working_us: float) -> None:
    """Of 10 us the launch takes 1, in which no block runs, and a fifth is waited for instructions.

    DRAM was busy for 0.45 of the rest, so without queues 0.45 / sqrt(1 - 0.45^2) of it would be asked for.
    """
    gpu = tiny(4)
    moved = 0.45 * working_us * gpu.model.dram_sustained_gb_per_s * 1e3 / 4
    one = launch(4, 10.0).model_copy(update={"mix": Mix(dram_read_bytes=moved, stalls=stalls)})
    assert anchored(one, gpu).own_load.dram == pytest.approx(0.45 / sqrt(1.0 - 0.45**2))


def sharing_reads(read: float, cluster: tuple[int, int, int] | None = (2, 1, 1)) -> KernelLaunch:
    """A launch of 4 blocks that work for 9 us, for 0.9 of which L2 is busy; its SMs get ``read`` times as much."""
    served = 0.9 * 9.0 * H200.model.l2_read_gb_per_s * 1e3 / 4
    mix = Mix(l1_read_bytes=read * served, l2_read_bytes=served, cluster=cluster)
    return launch(4, 10.0).model_copy(update={"mix": mix})


@pytest.mark.parametrize(
    ("read", "cluster", "more"),
    [
        (2.0, (2, 1, 1), sqrt(2.0)),
        (2.0, (1, 1, 1), sqrt(2.0)),
        (3.0, (4, 1, 1), 1.5),
        (1.2, (2, 1, 1), 1.0),
        (2.0, None, 1.0),
    ],
)
def test_l2_serves_more_out_of_step(read: float, cluster: tuple[int, int, int] | None, more: float) -> None:
    """Clusters of k leave 1/sqrt(k) of what SMs get, at most 1/sqrt(2); nothing is known without the counter."""
    model = anchored(sharing_reads(read, cluster), tiny(4))
    assert model.starting(4) is model
    assert model.starting(3).l2_share_us == pytest.approx(more * model.l2_share_us)


def test_blocks_that_follow_others_are_out_of_step() -> None:
    """L2 serves the second of two launches twice: 2 x 8.1 us, and not 9. One that finds the SMs idle takes 9."""
    first = Kernel(id="first", kind="kernel", kernel=launch(4, 10.0))
    shared = Kernel(id="shared", kind="kernel", kernel=sharing_reads(2.0 * sqrt(2.0)))
    beside = played("leftover", stream("a", first), stream("b", shared), gpu=tiny(4))
    after = played("leftover", stream("a", first, shared), gpu=tiny(4))
    assert run_of(beside, "shared").end_us == pytest.approx(10.0 + 16.2, rel=1e-3)
    assert run_of(after, "shared").end_us == pytest.approx(20.0)


def test_blocks_on_fewer_sms_are_out_of_step() -> None:
    """On 3 SMs the first 3 of 4 blocks take 3/4 of 16.2 us, in which L2 serves no more than it can."""
    one = replace(anchored(sharing_reads(2.0 * sqrt(2.0), (1, 1, 1)), tiny(4)), sm_count=3)
    in_step_us = confined_us(replace(one, l2_apart_us=0.0), 3, tiny(4))
    assert in_step_us - 1.0 < 2 * 0.75 * 9.0 < 0.75 * 16.2 + 0.25 * 9.0 < confined_us(one, 3, tiny(4)) - 1.0


@st.composite
def streaming_kernels(draw: st.DrawFn) -> KernelLaunch:
    """Kernels that live on DRAM and L2, with any number of warps on the SMs."""
    blocks, duration_us = draw(st.integers(1, 3000)), draw(st.integers(5, 300))
    us_per_block = duration_us / blocks
    sustained = H200.model.dram_sustained_gb_per_s * 1e3
    share = st.sampled_from([0.0, 0.05, 0.3, 0.5, 0.7, 0.9])
    return KernelLaunch(
        name="stream",
        grid=(blocks, 1, 1),
        block=(draw(st.sampled_from([32, 128, 256, 1024])), 1, 1),
        registers_per_thread=draw(st.sampled_from([16, 32, 64])),
        duration_us=float(duration_us),
        mix=Mix(
            alu_utilisation_percent=draw(st.sampled_from([1.0, 10.0, 50.0])),
            dram_read_bytes=draw(share) * us_per_block * sustained,
            l2_busy_us=draw(share) * us_per_block,
        ),
    )


def side_by_side(launches: list[KernelLaunch]) -> Trace:
    streams = tuple(
        Stream(name=f"s{i}", operations=(Kernel(id=f"k{i}", kind="kernel", kernel=launch),))
        for i, launch in enumerate(launches)
    )
    return Trace(version=1, name="side by side", device="h200", streams=streams)


def moved_at_most_what_there_is(result: Result) -> bool:
    """In every bin of the history: the DRAM column is a share of an SM's equal part of all that is sustained."""
    dram, sms = USES.index("dram"), len(result.usage.shares)
    bins = range(len(result.usage.shares[0]))
    return all(fsum(result.usage.shares[sm][b][dram] for sm in range(sms)) <= sms * (1.0 + TOLERANCE) for b in bins)


@examples(60)
@given(
    launches=st.lists(streaming_kernels(), min_size=1, max_size=6),
    gpu=st.sampled_from(sorted(GPUS)),
    policy=st.sampled_from(POLICIES),
)
def test_no_mix_on_any_gpu_moves_more_than_is_sustained(launches: list[KernelLaunch], gpu: str, policy: str) -> None:
    session = Session(GPUS[gpu], H200)
    of = side_by_side(launches)
    result = session.replay(of, policy)
    models = [session.kernels(of).model(launch, "") for launch in launches]
    assert fsum(m.blocks * m.dram_share_us for m in models) <= result.makespan_us * (1.0 + TOLERANCE)
    assert fsum(m.blocks * m.l2_share_us for m in models) <= result.makespan_us * (1.0 + TOLERANCE)
    assert moved_at_most_what_there_is(result)


@pytest.mark.parametrize("gpu", ["as recorded", "x2 SMs", "x4 SMs", "half the DRAM"])
def test_a_recorded_module_moves_no_more_bytes_than_dram_sustains(gpu: str) -> None:
    trace = load_trace(TRACES / "inception_3a.json.gz")
    result = Session(GPUS[gpu], H200).replay(trace, "leftover")
    mixes = [(launch.blocks, launch.mix) for op in trace.operations() for launch in op.launches()]
    moved = fsum(n * ((mix.dram_read_bytes or 0.0) + (mix.dram_write_bytes or 0.0)) for n, mix in mixes if mix)
    sustained = GPUS[gpu].model.dram_sustained_gb_per_s * 1e3
    assert moved <= sustained * result.makespan_us
    assert moved_at_most_what_there_is(result)


@given(launch=streaming_kernels(), gpu=st.sampled_from(sorted(GPUS)))
def test_the_load_of_a_kernel_alone_follows_the_sms(launch: KernelLaunch, gpu: str) -> None:
    """It is no less than its resident blocks ask for, however many SMs there are.

    Not so in one wave: on an SM with a block fewer each may go faster, as the fullest scheduler sets their pace.
    """
    model = anchored(launch, H200)
    if GPUS[gpu] is not H200:
        model = transferred(model, launch, H200, GPUS[gpu], "")
    assume(not model.demand.one_wave)
    assert model.own_load.dram >= model.load.dram * model.full_pace * (1.0 - 1e-12)
    assert model.own_load.l2 >= model.load.l2 * model.full_pace * (1.0 - 1e-12)
