"""What caches lose of the code of kernels, by hand."""

from __future__ import annotations

import pytest

import gpusim
from gpusim.calibrate.fit import anchored
from gpusim.engine.code import CachedCode
from gpusim.hardware.gpu import load_gpu
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import CODE_LATENCY
from gpusim.session import Session
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
from gpusim.trace.operations import Kernel, Stream

H200 = load_gpu("h200")
KEPT_BYTES = H200.model.l2_kept_share * H200.l2_bytes


def kernel(name: str, kept: float = 0.0, waits_for_code: float = 0.0, constants: float = 0.0) -> KernelLaunch:
    """A kernel of one block that moves so many times what L2 keeps, and waits for its code for a share of its time.

    ``constants``: the part of that share which is for constants.
    """
    mix = Mix(
        issue_cycles=10.0, alu_cycles=0.0, fma_cycles=0.0, tensor_cycles=0.0, lsu_cycles=0.0, l1_cycles=0.0,
        dram_read_bytes=kept * KEPT_BYTES, dram_write_bytes=0.0, achieved_warps_per_sm=4.0,
        active_cycles_min=1e5, active_cycles_avg=1e5, active_cycles_max=1e5,
        stalls=WarpStalls(
            no_instruction=waits_for_code - constants, imc_miss=constants, wait=1.0 - waits_for_code
        ),
    )  # fmt: skip
    return KernelLaunch(
        name=name, grid=(1, 1, 1), block=(128, 1, 1), registers_per_thread=32, duration_us=100.0, mix=mix
    )


def model(name: str, kept: float = 0.0) -> KernelModel:
    stream = Stream(name="one", operations=(Kernel(id="one", kernel=kernel(name, kept)),))
    trace = gpusim.Trace(name="one", device="h200", streams=(stream,))
    return Session("h200").kernels(trace).model(stream.operations[0].launches()[0], "one")


def test_code_is_lost_to_other_code_and_to_data() -> None:
    cached, own, other = CachedCode(H200, False, [{"own"}, {"other"}]), model("own"), model("other", kept=1.5)
    assert cached.lost_by(own, 0) == 0.0  # the first time
    assert cached.lost_by(other, 1) == 0.0
    assert cached.lost_by(own, 0) == pytest.approx(0.5)
    assert cached.lost_by(own, 0) == 0.0  # nothing came since


def test_code_stays_beside_the_same_code_and_where_no_data_move() -> None:
    cached = CachedCode(H200, False, [{"own", "large"}, {"own", "large", "small"}])
    own, large, small = model("own"), model("large", kept=3.0), model("small")
    for one in (own, large, own):  # all of one program
        assert cached.lost_by(one, 0) == 0.0
    for one in (own, large, own):  # another program with the same code
        assert cached.lost_by(one, 1) == 0.0
    assert cached.lost_by(own, 0) == 0.0
    cached.lost_by(small, 1)
    assert cached.lost_by(own, 0) == 0.0  # other code, but L2 still holds it


def test_on_sms_of_its_own_only_other_kernels_of_its_program_replace_code_there() -> None:
    cached = CachedCode(H200, True, [{"own", "next"}, {"other"}])
    own, next_one, other = model("own"), model("next"), model("other", kept=3.0)
    assert cached.lost_by(own, 0) == cached.lost_by(other, 1) == 0.0
    assert cached.lost_by(own, 0) == 0.0  # no other kernel ran on its SMs
    assert cached.lost_by(next_one, 0) == cached.lost_by(other, 1) == 0.0
    assert cached.lost_by(own, 0) == 1.0


def test_on_sms_of_its_own_a_program_has_a_copy_of_the_code() -> None:
    names = {"own", "next"}
    for apart, lost in ((True, 1.0), (False, 0.0)):
        cached = CachedCode(H200, apart, [names, names])
        for program in (0, 1):
            for one in (model("own", kept=1.5), model("next", kept=1.5)):
                assert cached.lost_by(one, program) == 0.0  # the first time
        assert cached.lost_by(model("own"), 0) == lost


def test_on_sms_of_its_own_a_program_keeps_constants() -> None:
    """A quarter of its waits for code is for constants, which the caches of its SMs keep."""
    own = anchored(kernel("own", waits_for_code=0.4, constants=0.1), H200)
    assert (own.wait.code, own.instruction_share) == (pytest.approx(0.4), pytest.approx(0.75))
    for apart, lost in ((True, 0.75), (False, 1.0)):
        cached = CachedCode(H200, apart, [{"own", "next"}, {"other"}])
        for _ in range(2):
            gone = cached.lost_by(own, 0)
            cached.lost_by(model("next"), 0)
            cached.lost_by(model("other", kept=3.0), 1)
        assert gone == pytest.approx(lost)
    assert model("own").instruction_share == 1.0, "no stall reason tells"


def test_a_kernel_waits_for_code_that_is_gone() -> None:
    """Half of its time waits for code; the second time that takes as much longer as lost code does."""
    own = kernel("own", waits_for_code=0.5)
    streams = [
        Stream(name="a", operations=(Kernel(id="1", kernel=own), Kernel(id="3", kernel=own, depends_on=("2",)))),
        Stream(name="b", operations=(Kernel(id="2", kernel=kernel("other", kept=3.0), depends_on=("1",)),)),
    ]
    both = [gpusim.Program(name=stream.name, streams=(stream.name,)) for stream in streams]
    one = [gpusim.Program(name="a", streams=("a", "b"))]
    took = []
    for programs in (both, one):
        trace = gpusim.Trace(version=2, name="two", device="h200", streams=streams, programs=programs)
        runs = {run.operation: run.end_us - run.start_us for run in gpusim.replay(trace, "h200").kernel_runs}
        took.append(runs["3"] / runs["1"])
    assert took[1] == pytest.approx(1.0)
    assert took[0] == pytest.approx(1.0 + 0.5 * (CODE_LATENCY - 1.0), rel=0.05)


@pytest.mark.parametrize(
    ("instructions", "waits"),  # of a block of four warps, and its share of the time, half of which waits for code
    [(None, 0.125), (4 * 2048.0, 0.125), (4 * 2049.0, 0.5)],
)
def test_sms_keep_short_code_after_the_first_of_four_waves(instructions: float | None, waits: float) -> None:
    short = kernel("own", waits_for_code=0.5)
    assert short.mix is not None
    mix = short.mix.model_copy(update={"warp_instructions": instructions})
    assert anchored(short.model_copy(update={"mix": mix}), H200).wait.code == pytest.approx(0.5)  # one block
    waves = short.model_copy(update={"mix": mix, "grid": (4 * 16 * H200.sm_count, 1, 1)})
    assert anchored(waves, H200).wait.code == pytest.approx(waits)
