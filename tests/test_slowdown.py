"""What programs do to one another, without a replay: closed forms, and near what a replay gives."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tiny import kernel, stream, tiny

import gpusim
from gpusim import InputError, Session, Trace, slowdown
from gpusim.results.metrics import normalised_progress
from gpusim.trace.edit import merge

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
    assert slowdown(a, b, "1+3", gpu=tiny()) == pytest.approx((4.0, 4.0 / 3.0), rel=0.02)
    assert slowdown(b, a, "inter-sm:sms=3+1", gpu=tiny()) == pytest.approx((4.0 / 3.0, 4.0), rel=0.02)


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
    together = slowdown([a, a, b], [b, c, c], ["streams", "streams", "2+2"], gpu=tiny())
    assert together == [slowdown(a, b, gpu=tiny()), slowdown(a, c, gpu=tiny()), slowdown(b, c, "2+2", gpu=tiny())]


@pytest.mark.parametrize(
    ("b", "setting", "said"),
    [
        ([], "streams", "a and b are not as many"),
        (None, "sideways", "is 'sideways'; expected streams, in turn, or an SM split such as 64[+]68"),
        (None, "3+2", "is '3[+]2'; expected 1 or more SMs each, at most 4 together"),
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
