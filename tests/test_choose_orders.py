"""Start orders of a plan, the order of launch, and the error of plans that a search chose."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
from test_choose import A_OR_B, choosing, replayed
from tiny import kernel, stream, tiny, trace

from experiments.chosen_errors import errors_of
from gpusim.choose import search
from gpusim.choose.bound import Bounds
from gpusim.choose.chosen import ChosenError, chosen_error
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
    for most, tie, bias, words in ((50.0, False, 1.0, "1.0 points less"), (60.0, True, -1.0, "1.0 points more")):
        error = ChosenError(plans=3, bias=bias, size=2.0, most=most)
        monkeypatch.setattr(search, "chosen_error", lambda gpu, us, kind, error=error: error)
        chosen = select(made, GPU)
        assert chosen.tie == tie
        assert chosen.best == (chosen.plain if tie else chosen.found)
        assert as_json(chosen)["verdict"] == ("tie" if tie else "gain")
        print_selection(chosen)
        said = capsys.readouterr().out
        assert f"{'tie' if tie else 'gain'}: the best plan found is predicted to gain +58.3 % over plain" in said
        assert f"gained {words} than predicted on the mean, at most {most:.1f} less" in said
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
        errors = {"algorithms": ChosenError(3, 0.0, 0.0, 24.0), "plan": ChosenError(3, 0.0, 0.0, most)}
        monkeypatch.setattr(search, "chosen_error", lambda gpu, us, kind, errors=errors: errors[kind])
        chosen = select(made, GPU, sharing="streams")
        assert chosen.plain is not None and chosen.simpler is not None
        assert gain_percent(chosen.plain, chosen.simpler) == pytest.approx(25.0)
        assert gain_percent(chosen.simpler, chosen.found) == pytest.approx(100.0 * (104.0 / 90.0 - 1.0))
        assert chosen.best is getattr(chosen, name) and chosen.tie == (name == "simpler")
        print_selection(chosen)
        said = " ".join(capsys.readouterr().out.split())
        assert ", +15.6 % over other algorithms in the same streams" in said
        assert ("plain streams with other algorithms, +25.0 %" in said) == chosen.tie
    errors["algorithms"] = ChosenError(3, 0.0, 0.0, 26.0)
    assert select(made, GPU, sharing="streams").simpler == chosen.plain


def test_the_error_of_chosen_plans_is_of_what_they_gained_less() -> None:
    found = errors_of([(10.0, 8.0, 5.0), (20.0, 4.0, 5.0), (50.0, 3.0, 3.0)])
    assert found["short"] == {"plans": 2, "bias": 1.0, "size": pytest.approx(sqrt(5.0), abs=0.01), "most": 3.0}
    assert found["long"] == {"plans": 1, "bias": 0.0, "size": 0.0, "most": 0.0}
    assert chosen_error("h200", 20.0) != chosen_error("h200", 40.0)
    assert chosen_error("no such GPU", 20.0) is None
    assert chosen_error("h200", 20.0, "algorithms") == chosen_error("h200", 20.0, "plan")
    assert chosen_error("h100-sxm", 20.0, "algorithms") != chosen_error("h100-sxm", 20.0, "plan")
    assert chosen_error("h200", 20.0, "order") is None
