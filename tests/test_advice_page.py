"""Advice as JSON: what a script can read instead of the text."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tiny import kernel, stream, tiny

from gpusim import Program, Trace
from gpusim.choose.advice_page import as_json, print_advice
from gpusim.choose.advise import Advice, advise
from gpusim.choose.settings import Setting
from gpusim.session import Session

STREAMS = Setting("streams", "equal priority", "leftover")
IN_TURN = Setting("in turn", "one after the other", "serial")


def advised(*ways: Setting) -> Advice:
    """Two programs whose kernel has a block on each of two SMs of four: together they take half the time."""
    programs = [Program(name=name, streams=[stream(name, kernel(f"k{name}", 2, 10.0))]) for name in "ab"]
    return advise([Trace(name="two", device="tiny", programs=programs)], Session(tiny()), jobs=1, ways=ways)


def test_json_has_the_error_that_would_change_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    advice = advised(STREAMS, IN_TURN)
    best, competitor = advice.best, advice.competitor
    assert best.setting == STREAMS and competitor is not None
    worse = as_json(advice)["competitor_worse_percent"]
    assert worse == 100 * (competitor.makespan_us - best.makespan_us) / best.makespan_us > 50
    print_advice(advice)
    assert f"closest: in turn (one after the other), {worse:.1f} % worse; an error" in capsys.readouterr().out


def test_the_error_is_of_the_objective() -> None:
    """The largest STP is best: a competitor with half of it is 50 % worse."""
    advice = advised(STREAMS, IN_TURN)
    best, other = (replace(one, stp=stp) for one, stp in zip(advice.choices, (2.0, 1.0), strict=True))
    advice = replace(advice, objective="stp", best=best, choices=(best, other))
    assert as_json(advice)["competitor_worse_percent"] == 50.0


def test_without_a_competitor_or_a_value_no_error_would() -> None:
    assert as_json(advised(STREAMS))["competitor_worse_percent"] is None
    advice = advised(STREAMS, IN_TURN)
    best, other = (replace(one, stp=stp) for one, stp in zip(advice.choices, (2.0, None), strict=True))
    unknown = replace(advice, objective="stp", best=best, choices=(best, other))
    assert as_json(unknown)["competitor_worse_percent"] is None
