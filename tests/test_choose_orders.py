"""Start orders of a plan, the order of launch, and the error of plans that a search chose."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from test_choose import A_OR_B, choosing, replayed
from tiny import kernel, stream, tiny, trace

from experiments.chosen_errors import Point, error_without, errors_of
from gpusim.choose import search
from gpusim.choose.bound import Bounds
from gpusim.choose.chosen import ONE_IN_TEN, ChosenError, chosen_error, steps_taken
from gpusim.choose.judge import MOST_ORDERS, ORDERS, Judge, gain_percent, started
from gpusim.choose.plan import Plan, as_steps, launch_order
from gpusim.choose.report import as_json, print_selection
from gpusim.choose.search import select, work_of
from gpusim.session import Session

GPU = tiny()


def test_a_plan_is_judged_by_the_mean_over_start_orders_and_printed_in_the_best() -> None:
    """`long` takes 30 us on all SMs, `short` 10 us; `last` waits for `short`: it starts at 10 or at 40 us."""
    made = trace(stream("a", kernel("long", 4, 30.0)), stream("b", kernel("short", 4, 10.0), kernel("last", 1, 30.0)))
    session = Session(GPU)
    work = work_of(made, GPU)
    plan = Plan((("long",), ("short", "last")), {})
    any_order, host = (Judge(work, Bounds(work, session), None, 9, order).replayed(plan) for order in ORDERS)
    assert host.starts_us == (host.makespan_us,) == (replayed(work, plan, session),)
    assert len(any_order.starts_us) == 2
    assert any_order.expected_us == pytest.approx(sum(any_order.starts_us) / 2)
    assert any_order.plan.lanes == (("short", "last"), ("long",))
    assert any_order.makespan_us == min(any_order.starts_us) < max(any_order.starts_us) == host.makespan_us
    assert replayed(work, any_order.plan, session) == any_order.makespan_us


def test_start_orders_put_each_stream_first_once() -> None:
    plan = Plan((("b",), ("a",), ("c",)), {})
    assert [one.lanes for one in started(plan, "any")] == [
        (("a",), ("b",), ("c",)),
        (("b",), ("c",), ("a",)),
        (("c",), ("a",), ("b",)),
    ]
    assert list(started(plan, "host")) == [plan]
    many = Plan(tuple((f"o{n}",) for n in range(9)), {})
    assert len(list(started(many, "any"))) == MOST_ORDERS
    split = replace(plan, policy="inter-sm:sms=1+1+2", sms=(1, 1, 2))
    assert list(started(split, "any")) == [split]


def test_the_printed_order_is_the_order_of_launch() -> None:
    """Launching the streams in the order in which the plan names them gives the replay of the plan."""
    made = trace(*(stream(f"s{n}", kernel(f"k{n}", 1, 5.0), kernel(f"l{n}", 1, 5.0)) for n in range(3)))
    work = work_of(made, GPU)
    plan = Plan((("k2", "l2"), ("k0", "l0"), ("k1", "l1")), {})
    assert launch_order(work, plan) == ["k2", "k0", "k1", "l2", "l0", "l1"]
    waiting = replace(plan, waits=(("k2", "l0"),))
    assert launch_order(work, waiting) == ["k0", "k1", "l0", "k2", "l2", "l1"]
    assert [step["operation"] for step in as_steps(work, plan)] == launch_order(work, plan)


def test_a_gain_below_the_error_of_choices_is_a_tie(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = trace(stream("x", choosing("c", A_OR_B)), stream("y", choosing("d", A_OR_B)))
    free = select(made, GPU)
    assert free.error is None and not free.tie and free.best == free.found
    assert free.plain is not None and free.gain == pytest.approx(100.0 * (19.0 / 12.0 - 1.0))
    assert free.expected_gain == pytest.approx(free.gain)
    for limit, tie in ((29.0, False), (30.0, True)):
        error = error_with(0.5, limit)
        monkeypatch.setattr(search, "chosen_error", lambda gpu, us, *kinds, error=error: error)
        chosen = select(made, GPU)
        assert chosen.tie == tie
        assert chosen.best == (chosen.plain if tie else chosen.found)
        assert chosen.expected_gain == pytest.approx(0.0 if tie else 0.5 * chosen.gain)
        told = as_json(chosen)
        assert told["verdict"] == ("tie" if tie else "gain")
        assert told["gain_over_plain_percent"] == chosen.expected_gain
        assert told["predicted_gain_of_found_percent"] == chosen.gain
        print_selection(chosen)
        said = " ".join(capsys.readouterr().out.split())
        assert "predicted to gain +58.3 % over plain streams" in said
        assert ("gain: this plan is expected to gain +29.2 %" in said) != tie
        assert f"gained 0.50 times what was predicted, and one in ten {limit:.1f} points less than that" in said
        assert ("the recommendation is plain streams" in said) == tie
    for asked, words in (
        ({"objective": "memory"}, "the plan of least memory"),
        ({"streams": "sequential"}, "were given"),
    ):
        print_selection(select(made, GPU, **asked))
        said = capsys.readouterr().out
        assert words in said and "the recommendation is" not in said


def test_a_plan_must_gain_more_over_the_algorithms_in_the_same_streams_than_choices_err(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both by B gains 25 % in the streams of the trace; in one stream of the two it gains 15.6 % more."""
    made = trace(
        stream("x", choosing("c", A_OR_B)),
        stream("y", choosing("d", A_OR_B)),
        stream("z", kernel("e", 4, 6.0), kernel("f", 1, 20.0)),
    )
    for most, name in ((15.0, "found"), (16.0, "simpler")):
        errors = {"algorithms": error_with(1.0, 24.0), "plan": error_with(1.0, most)}
        monkeypatch.setattr(search, "chosen_error", lambda gpu, us, kind, errors=errors: errors[kind])
        chosen = select(made, GPU, sharing="streams")
        assert chosen.plain is not None and chosen.simpler is not None
        assert gain_percent(chosen.plain, chosen.simpler) == pytest.approx(25.0)
        assert gain_percent(chosen.simpler, chosen.found) == pytest.approx(100.0 * (104.0 / 90.0 - 1.0))
        assert chosen.best is getattr(chosen, name) and chosen.tie == (name == "simpler")
        print_selection(chosen)
        said = " ".join(capsys.readouterr().out.split())
        assert ", +15.6 % over other algorithms in the same streams" in said
        assert ("plain streams with other algorithms, expected to gain +25.0 %" in said) == chosen.tie
    errors["algorithms"] = error_with(1.0, 26.0)
    assert select(made, GPU, sharing="streams").simpler == chosen.plain


def test_the_error_of_chosen_plans_is_the_share_that_they_gained() -> None:
    """4 and 6 of 10 and 10 are a share of 0.5, 1 off each; a plan without a predicted gain was not chosen."""
    found = errors_of([Point("a", 10.0, 10.0, 4.0), Point("b", 20.0, 10.0, 6.0), Point("c", 50.0, 3.0, -3.0),
                       Point("d", 20.0, 0.0, 9.0)])  # fmt: skip
    assert found["short"] == {"plans": 2, "share": 0.5, "size": pytest.approx(sqrt(2.0), abs=0.01)}
    assert found["long"] == {"plans": 1, "share": 0.0, "size": 3.0}
    left = error_without(
        "a", 10.0, [Point("a", 10.0, 10.0, 4.0), Point("b", 20.0, 10.0, 6.0), Point("c", 50.0, 3.0, 3.0)]
    )
    assert left == ChosenError(1, 0.6, 0.0) and error_without("c", 50.0, [Point("c", 50.0, 3.0, 3.0)]) is None


def test_a_step_is_taken_from_the_last_step_that_was() -> None:
    """20 % over 12 % are 7.1 %: of this half is 3.6 %, and must exceed what one choice in ten falls short of."""
    sure, unsure = error_with(0.5, 3.0), error_with(0.5, 4.0)
    assert steps_taken([(12.0, sure), (20.0, sure)]) == [0, 1, 2]
    assert steps_taken([(12.0, sure), (20.0, unsure)]) == [0, 1]
    assert steps_taken([(7.0, unsure), (20.0, unsure)]) == [0, 2]
    assert steps_taken([(0.0, sure), (0.0, None)]) == [0, 2]


def error_with(share: float, limit: float) -> ChosenError:
    """The error of choices that gained a share, of which one in ten fell short by a limit."""
    return ChosenError(3, share, limit / ONE_IN_TEN)


def test_errors_of_choices_are_no_reason_to_stay_with_one_stream(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """c and d need 200 bytes side by side. With 199 one stream is the plain way, but e may run beside them."""
    monkeypatch.setattr(search, "chosen_error", lambda *_: error_with(0.0, 30.0))
    alone = (("A", 2, 10.0, 100),)
    made = trace(
        stream("x", choosing("c", alone)), stream("y", choosing("d", alone)), stream("z", kernel("e", 2, 10.0))
    )
    limited = select(made, GPU, memory_bytes=199)
    assert limited.plain is not None and len(limited.plain.plan.lanes) == 1
    assert limited.error is None and limited.best is limited.found
    print_selection(limited)
    said = " ".join(capsys.readouterr().out.split())
    assert "chosen plans were measured against plain streams, which need more memory" in said


def test_a_plan_that_loses_more_than_such_choices_err_is_slower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two kernels of half the SMs take 10 us side by side and 20 one after the other."""
    monkeypatch.setattr(search, "chosen_error", lambda *_: error_with(0.0, 30.0))
    made = trace(stream("x", kernel("c", 2, 10.0)), stream("y", kernel("d", 2, 10.0)))
    given = select(made, GPU, streams="sequential")
    assert given.slower and given.expected_gain == given.gain < -40.0
    assert as_json(given)["verdict"] == "slower"
    print_selection(given)
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "slower: this plan, whose streams were given, is expected to lose 50.0 % of the speed of plain streams" in said
    )
    assert not select(made, GPU).slower
    monkeypatch.setattr(search, "chosen_error", lambda *_: None)
    assert as_json(select(made, GPU, streams="sequential"))["verdict"] == "unmeasured"


def test_errors_of_choices_are_known_for_two_gpus() -> None:
    assert chosen_error("h200", 20.0, "plan") != chosen_error("h200", 40.0, "plan")
    assert chosen_error("no such GPU", 20.0, "plan") is None
    for gpu in ("h200", "h100-sxm"):
        found = {chosen_error(gpu, us, kind) for us in (20.0, 40.0) for kind in ("algorithms", "plan")}
        assert None not in found and len(found) == 4
    assert chosen_error("h200", 20.0, "order") is None
    assert chosen_error("h200", 20.0, "order", "plan") == chosen_error("h200", 20.0, "plan"), "what was measured there"
    known = chosen_error("h200", 20.0, "plan")
    assert known is not None and known.expected(-5.0) == -5.0, "a loss is no optimism"
