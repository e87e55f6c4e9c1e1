"""What caches lose of the code of kernels, by hand."""

from __future__ import annotations

import pytest

import gpusim
from gpusim.calibrate.fit import anchored
from gpusim.engine.code import CachedCode
from gpusim.hardware.gpu import load_gpu
from gpusim.model.kernel import KernelModel
from gpusim.model.memory import CODE_LATENCY, LOST_ON_SMS, LOST_TO_LAUNCH
from gpusim.session import Session
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
from gpusim.trace.operations import Kernel, Stream

H200 = load_gpu("h200")
ON_ONE_SM = LOST_TO_LAUNCH + LOST_ON_SMS / H200.sm_count  # what a launch of one block of another program takes
KEPT_BYTES = H200.model.l2_kept_share * H200.l2_bytes


def kernel(
    name: str, kept: float = 0.0, waits_for_code: float = 0.0, constants: float = 0.0, blocks: int = 1
) -> KernelLaunch:
    """A kernel that moves so many times what L2 keeps, and waits for its code for a share of its time.

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
        name=name, grid=(blocks, 1, 1), block=(128, 1, 1), registers_per_thread=32, duration_us=100.0, mix=mix
    )


def model(name: str, kept: float = 0.0, blocks: int = 1) -> KernelModel:
    stream = Stream(name="one", operations=(Kernel(id="one", kernel=kernel(name, kept, blocks=blocks)),))
    trace = gpusim.Trace(name="one", device="h200", streams=(stream,))
    return Session("h200").kernels(trace).model(stream.operations[0].launches()[0], "one")


def cached(*names: set[str], apart: bool = False, in_turn: bool = False) -> CachedCode:
    return CachedCode(H200, apart, in_turn, names)


def test_code_is_lost_to_data_of_others_and_to_their_launches() -> None:
    code, own, other = cached({"own"}, {"other"}), model("own"), model("other", kept=1.5)
    assert code.lost_by(own, 0) == 0.0  # the first time
    assert code.lost_by(other, 1) == 0.0
    assert code.lost_by(own, 0) == pytest.approx(0.5 + 0.5 * ON_ONE_SM)
    assert code.lost_by(own, 0) == 0.0  # nothing came since
    code.lost_by(model("other"), 1)
    assert code.lost_by(own, 0) == pytest.approx(ON_ONE_SM)
    code.lost_by(model("other", blocks=33), 1)  # on a quarter of the SMs
    assert code.lost_by(own, 0) == pytest.approx(LOST_TO_LAUNCH + 0.25 * LOST_ON_SMS)


def test_a_new_kernel_loses_code_to_launches_too() -> None:
    code = cached({"own", "next"}, {"other"})
    for name, program in (("own", 0), ("other", 1)):
        assert code.lost_by(model(name), program) == 0.0  # the first of its program
    assert code.lost_by(model("next"), 0) == pytest.approx(ON_ONE_SM)


def test_in_turn_no_launch_of_another_stream_comes_between() -> None:
    code = cached({"own"}, {"other"}, in_turn=True)
    for name, program in (("own", 0), ("other", 1)):
        code.lost_by(model(name), program)
    assert code.lost_by(model("own"), 0) == pytest.approx(LOST_ON_SMS / H200.sm_count)


def test_what_the_own_program_moves_takes_no_code_beyond_the_recording() -> None:
    """Others move half of what L2 keeps: nothing if it has room, all if half of the code was left, nothing if none."""
    for moved, lost in ((0.5, LOST_TO_LAUNCH), (1.5, 1.0), (3.0, LOST_TO_LAUNCH)):
        code = cached({"own", "large"}, {"other"}, apart=True)
        for name, kept, program in (("own", 0.0, 0), ("large", moved, 0), ("other", 0.5, 1)):
            code.lost_by(model(name, kept), program)
        assert code.lost_by(model("own"), 0) == pytest.approx(lost)


def test_programs_in_streams_share_code() -> None:
    code = cached({"own", "large"}, {"own", "large", "small"})
    own, large, small = model("own"), model("large", kept=3.0), model("small")
    for one in (own, large, own):  # all of one program
        assert code.lost_by(one, 0) == 0.0
    for one in (own, large, own):  # another program with the same code
        assert code.lost_by(one, 1) == 0.0
    assert code.lost_by(own, 0) == 0.0
    code.lost_by(small, 1)
    assert code.lost_by(own, 0) == pytest.approx(ON_ONE_SM)  # other code, but L2 still holds it


def test_on_sms_of_its_own_a_program_has_a_copy_of_the_code() -> None:
    names = {"own", "next"}
    for apart, lost in ((True, 1.0), (False, 0.0)):
        code = cached(names, names, apart=apart)
        code.lost_by(model("own"), 0)
        for one in (model("own", kept=1.5), model("next", kept=1.5)):
            assert code.lost_by(one, 1) == 0.0  # the first time
        assert code.lost_by(model("own"), 0) == lost


def test_on_sms_of_its_own_a_program_keeps_constants() -> None:
    """A quarter of its waits for code is for constants, which L2 is not asked for."""
    own = anchored(kernel("own", waits_for_code=0.4, constants=0.1), H200)
    assert (own.wait.code, own.instruction_share) == (pytest.approx(0.4), pytest.approx(0.75))
    for apart, lost in ((True, 0.75 + 0.25 * LOST_TO_LAUNCH), (False, 1.0)):
        code = cached({"own", "next"}, {"other"}, apart=apart)
        for _ in range(2):
            gone = code.lost_by(own, 0)
            code.lost_by(model("next"), 0)
            code.lost_by(model("other", kept=3.0), 1)
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
        took.append((runs["1"], runs["3"]))
    (first, lost), (same, kept) = took
    assert first == same
    assert lost / kept == pytest.approx(1.0 + 0.5 * (CODE_LATENCY - 1.0), rel=0.05)


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
