"""What programs do to one another, without a replay: closed forms, and near what a replay gives."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_code import H200
from test_code import kernel as coded
from test_code import model as coded_model
from tiny import kernel, stream, tiny

import gpusim
from gpusim import InputError, KernelLaunch, Session, Stream, Trace, slowdown
from gpusim.choose.code_returns import MOST_RETURNS, Return, few, returns_of
from gpusim.choose.interference import _Beside, _queue
from gpusim.choose.settings import settings
from gpusim.model.memory import CODE_LATENCY, LOST_ON_SMS, LOST_TO_LAUNCH, MemoryWait
from gpusim.results.metrics import normalised_progress
from gpusim.trace.edit import merge
from gpusim.trace.operations import Kernel

PROGRAMS = Path(__file__).resolve().parent.parent / "experiments" / "advise" / "programs"


def program(name: str, blocks: int, us: float, **more: object) -> Trace:
    return Trace(name=name, device="tiny", streams=[stream(name, kernel(f"k_{name}", blocks, us, **more))])


def test_two_halves_do_not_slow_one_another() -> None:
    assert slowdown(program("a", 2, 10.0), program("b", 2, 10.0), gpu=tiny()) == pytest.approx((1.0, 1.0))


def test_kernels_that_fill_the_gpu_take_turns() -> None:
    a, b = program("a", 400, 1000.0), program("b", 400, 3000.0)
    found = slowdown(a, b, gpu=tiny())
    assert found.a == pytest.approx(4.0, rel=0.02) and found.b == pytest.approx(4.0 / 3.0, rel=0.02)
    assert slowdown(a, b, "in turn", gpu=tiny()) == pytest.approx((4.0, 4.0 / 3.0), rel=0.02)


def test_a_split_gives_each_its_share() -> None:
    a, b = program("a", 400, 1000.0), program("b", 400, 1000.0)
    assert slowdown(a, b, "inter-sm:sms=1+3", gpu=tiny()) == pytest.approx((4.0, 4.0 / 3.0), rel=0.02)
    assert slowdown(b, a, "inter-sm:sms=3+1", gpu=tiny()) == pytest.approx((4.0 / 3.0, 4.0), rel=0.02)


def test_a_setting_may_be_named_as_it_is_printed() -> None:
    a, b = (Trace(name=name, device="h200", streams=[stream(name, kernel(name, 4000, 100.0))]) for name in "ab")
    splits = [one for one in settings(H200, ["a", "b"]) if one.mechanism == "SM split"]
    assert str(splits[7]) == "SM split (64+68 SMs)"
    assert slowdown(a, b, splits[7]) == slowdown(a, b, str(splits[7])) == slowdown(a, b, "64+68")
    assert slowdown(a, b, "68+64") == pytest.approx(slowdown(b, a, "64+68")[::-1])


def test_mig_instances_give_each_its_sms() -> None:
    """60 and 64 of the 132 SMs of an H200, for kernels that do nothing in memory."""
    a, b = (Trace(name=name, device="h200", streams=[stream(name, kernel(name, 33_000, 900.0))]) for name in "ab")
    assert slowdown(a, b, "MIG (3g+4g)") == pytest.approx((132 / 60, 132 / 64), rel=0.02)
    assert slowdown(a, b, "MIG (1g2m+4g)") == pytest.approx((132 / 26, 132 / 64), rel=0.02)
    (way,) = (one for one in settings(H200, ["a", "b"]) if one.setting == "3g+4g")
    assert slowdown(a, b, way) == slowdown(a, b, str(way)) == pytest.approx(slowdown(b, a, "MIG (4g+3g)")[::-1])


@pytest.mark.parametrize("slices", ["3g+4g", "2g+4g"])
def test_mig_instances_of_whole_models_are_near_a_replay(slices: str) -> None:
    a, b = (gpusim.load_trace(PROGRAMS / f"h200_{name}.json.gz") for name in ("resnet50", "decode32"))
    replayed = Session("h200").replay(merge([a, b]), f"mig:by=program,slices={slices}", restart=True, keep=())
    progress = normalised_progress(replayed)
    assert slowdown(a, b, f"MIG ({slices})") == pytest.approx([1.0 / one for one in progress.values()], rel=0.1)


def test_limits_of_mps_are_a_split() -> None:
    a, b = program("a", 400, 1000.0), program("b", 400, 1000.0)
    split = slowdown(a, b, "inter-sm:sms=2+2", gpu=tiny())
    assert (
        split
        == slowdown(a, b, "mps:by=program,percent=50+50", gpu=tiny())
        == slowdown(a, b, "MPS (50+50 %)", gpu=tiny())
    )
    for one in settings(tiny(), ["a", "b"]):
        if one.mechanism == "MPS":
            assert slowdown(a, b, one, gpu=tiny()) == slowdown(a, b, str(one), gpu=tiny())
        if one.mechanism in ("streams", "in turn"):
            assert slowdown(a, b, one, gpu=tiny()) == slowdown(a, b, str(one), gpu=tiny())
        if one.mechanism == "priority":
            with pytest.raises(InputError, match="priorities are not estimated"):
                slowdown(a, b, one, gpu=tiny())


def test_programs_wait_for_the_code_that_the_other_replaced() -> None:
    """Half of their time waits for code; the other moves what L2 keeps, or nothing, or has the same code."""
    waiting = (coded("one", waits_for_code=0.5), coded("two", waits_for_code=0.5))
    moving, still, same = (coded("other", kept=3.0),), (coded("other"),), (coded("one"), coded("two", kept=3.0))

    def made(name: str, kernels: tuple[KernelLaunch, ...]) -> Trace:
        operations = [Kernel(id=f"{name}{i}", kernel=one) for i, one in enumerate(kernels)]
        return Trace(name=name, device="h200", streams=[Stream(name=name, operations=operations)])

    a = made("a", waiting)
    all_of_it = 0.5 * (CODE_LATENCY - 1.0)
    for setting, to_launches in (("streams", LOST_TO_LAUNCH + LOST_ON_SMS / 132), ("64+68", LOST_TO_LAUNCH)):
        lost = slowdown(a, made("b", moving), setting).a
        kept = slowdown(a, made("c", still), setting).a
        assert lost > kept + all_of_it * (1.0 - to_launches) * 0.9
        shared = slowdown(a, made("d", same), setting).a
        if setting == "streams":
            assert shared == pytest.approx(kept - all_of_it * to_launches, rel=0.1)
        else:  # where each has a copy of its code
            assert shared > kept + all_of_it * (1.0 - to_launches) * 0.9


def test_returns_are_those_of_the_pass_before() -> None:
    """Three kernels of 100 us, the first twice: what DRAM moved between, in what L2 keeps."""
    one, two = coded_model("one", kept=1.0), coded_model("two", kept=0.5)
    found = returns_of([one, one, two], H200, 300.0)
    assert found == [
        (pytest.approx(0.5, rel=0.02), pytest.approx(200.0)),  # after the second and `two` of the pass before
        (pytest.approx(0.0), pytest.approx(100.0)),
        (pytest.approx(2.0, rel=0.02), pytest.approx(300.0)),
    ]
    many = few([Return(0.01, float(i), float(i)) for i in range(100)])
    assert len(many) == MOST_RETURNS and sum(one.share for one in many) == pytest.approx(1.0)
    assert sum(one.share * one.us for one in many) == pytest.approx(49.5)


def test_lists_give_what_each_pair_gives() -> None:
    a, b, c = (
        program(name, blocks, 100.0)
        for name, blocks in (
            (
                "a",
                2,
            ),
            ("b", 40),
            ("c", 400),
        )
    )
    together = slowdown([a, a, b], [b, c, c], ["streams", "streams", "inter-sm:sms=2+2"], gpu=tiny())
    assert together == [
        slowdown(a, b, gpu=tiny()),
        slowdown(a, c, gpu=tiny()),
        slowdown(b, c, "inter-sm:sms=2+2", gpu=tiny()),
    ]


@pytest.mark.parametrize(
    ("b", "setting", "said"),
    [
        ([], "streams", "a and b are not as many"),
        (None, "sideways", "is 'sideways'; expected streams, in turn, an SM split such as 64[+]68, MPS .*, or MIG"),
        (None, "3+2", "is '3[+]2'; expected 1 or more SMs each, at most 4 together"),
        (None, "1+3", "sms=1[+]3 cannot be granted on tiny; expected at least 8 SMs"),
        (None, "MPS (160+40 %)", "percent=160[+]40 is out of range; expected more than 0 and at most 100 each"),
        (None, "MIG (3g+4g)", "tiny has no MIG profiles"),
        (None, None, "is 'None'; expected streams, in turn"),
        (None, 3, "is '3'; expected streams, in turn"),
        (None, [3], "expected streams, in turn"),
        (None, ["streams", "streams"], "2 settings for 1 pair"),
    ],
)
def test_what_is_no_pair_or_setting_is_refused(b: object, setting: object, said: str) -> None:
    a = program("a", 2, 10.0)
    with pytest.raises(InputError, match=said):
        slowdown(a, a if b is None else b, setting, gpu=tiny())  # type: ignore[arg-type]


def test_reads_wait_while_a_full_dram_stays_full() -> None:
    """As of the core: both move half of what DRAM serves, and the second waits until DRAM serves 0.98 of it."""
    streams = SimpleNamespace(under_way=6.0, model=SimpleNamespace(wait=MemoryWait()))
    reader = SimpleNamespace(under_way=0.0, model=SimpleNamespace(wait=MemoryWait(share=1.0, serial=1.0, misses=1.0)))
    half = _Beside(shared=1.0, own=1.0, dram=0.5, l2=0.0, own_dram=0.5)
    queue = _queue([half, half], [streams, reader])  # type: ignore[list-item]
    without, found = (half._replace(queue=of).slowdown(reader.model.wait) for of in (0.0, queue))
    most = 0.5 / (0.98 * (0.5 + 0.5 / without) - 0.5)
    assert (without + most) / 2.0 < found <= most
    alone = half._replace(own_dram=1.0), half._replace(dram=1.0, own_dram=0.0)
    assert _queue(alone, [streams, reader]) == pytest.approx(4.0), "a reader that moves little may wait for all"  # type: ignore[list-item]
    assert _queue([half, half], [reader, reader]) == 0.0  # type: ignore[list-item]


@pytest.mark.parametrize(("setting", "policy"), [("streams", "leftover"), ("64+68", "inter-sm:by=program,sms=64+68")])
def test_whole_models_are_near_their_replay(setting: str, policy: str) -> None:
    """Within a quarter, where a replay keeps both running; and quickly once kernels are fitted."""
    traces = {name: gpusim.load_trace(PROGRAMS / f"h100_{name}.json.gz") for name in ("prefill1", "decode32", "copies")}
    session = Session("h100-sxm")
    for a, b in (("prefill1", "decode32"), ("copies", "prefill1")):
        trace = merge([traces[a], traces[b]], ["a", "b"], "both")
        progress = normalised_progress(session.replay(trace, policy, restart=True, keep=()))
        found = slowdown(traces[a], traces[b], setting)
        assert found == pytest.approx([1.0 / share for share in progress.values()], rel=0.25)
    pairs = [(one, other) for one in traces.values() for other in traces.values()] * 10
    begin = time.perf_counter()
    slowdown([one for one, _ in pairs], [other for _, other in pairs], setting)
    assert time.perf_counter() - begin < 0.01 * len(pairs), "a pair is to take under 1 ms; machines differ"
