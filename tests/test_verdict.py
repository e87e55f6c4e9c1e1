"""The verdict of a comparison: who is fastest, ties within the model's error, and the bound on what can be saved."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gpusim
from gpusim.choose.bound import bound_of_trace
from gpusim.commands.replay_tables import print_comparison
from gpusim.results.comparison import Comparison
from gpusim.results.error_band import ErrorBand, HowWrong
from gpusim.results.verdict import behind, doubts, explained, tied, verdict
from gpusim.session import Session

TRACE = "sample:inception_3a"
UNKNOWN = HowWrong(None, "not validated: here")


def known(percent: float) -> HowWrong:
    return HowWrong(ErrorBand("streams", percent), "", "on h200")


def compared(errors: dict[str, HowWrong], spans: dict[str, float] | None = None) -> Comparison:
    """Some policies with the errors, and where they are given the makespans, of a test."""
    found = gpusim.compare(TRACE, policies=list(errors))
    serial_us = next(entry.result.makespan_us * entry.speedup_vs_serial for entry in found.entries)
    entries = []
    for entry in found.entries:
        us = (spans or {}).get(entry.result.policy, entry.result.makespan_us)
        result = replace(entry.result, makespan_us=us)
        how_wrong = errors[entry.result.policy]
        entries.append(replace(entry, result=result, how_wrong=how_wrong, speedup_vs_serial=serial_us / us))
    return replace(found, entries=tuple(sorted(entries, key=lambda entry: entry.merit)))


def test_a_difference_within_both_errors_is_a_tie() -> None:
    for error, tie in ((4.5, True), (2.5, False)):  # 270.6 and 284.4 µs: 5.1 %; both errors together 6.4 and 3.5 %
        found = compared({"leftover": known(error), "even": known(error)})
        best, other = found.entries
        assert tied(best, other) is tie and tied(other, best) is tie
        assert behind(best, best) == "best" and behind(other, best) == ("tie" if tie else "+5.1 %")
        assert verdict(found).endswith("a tie." if tie else "the lead over `even` is more than the model's error.")


def test_no_difference_is_printed_as_nothing() -> None:
    unknown = HowWrong(None, "not validated")
    for us, said in ((200.09, "tie"), (200.11, "+0.1 %")):  # 0.045 and 0.055 %
        found = compared({"leftover": unknown, "even": unknown}, {"leftover": 200.0, "even": us})
        assert behind(found["even"], found["leftover"]) == said


def test_what_is_not_validated_is_said() -> None:
    one = compared({"leftover": known(1.0), "even": UNKNOWN})
    assert verdict(one).endswith("more than the model's error (`even` is not validated).")
    neither = compared({"leftover": UNKNOWN, "even": UNKNOWN})
    assert verdict(neither).endswith("real is unknown: neither is validated.")
    assert doubts(one) == ["even: not validated: here"] and doubts(neither) == ["not validated: here"]


def test_the_parts_named_add_up_to_what_is_saved() -> None:
    found = compared({"leftover": known(1.0), "serial": known(1.0)})
    assert verdict(found).startswith(
        "Plain streams (leftover) save 38.1 µs of 308.7: 20.1 launch gaps, 18.3 tails, 1.3 SM sharing, "
        "-1.5 kernel rates; "
    )


def test_a_gain_within_the_error_is_said_to_be() -> None:
    found = compared({"leftover": known(14.0), "inter-sm": UNKNOWN})  # 38.1 of 308.7 µs is 12.3 %
    assert verdict(found).startswith("Plain streams (leftover) save 38.1 µs of 308.7, less than the model's error; ")


def test_where_serial_wins_the_kernels_say_what_sharing_would_cost(capsys: pytest.CaptureFixture[str]) -> None:
    found = compared({"leftover": known(1.0), "serial": known(1.0)}, {"leftover": 400.0})
    assert found.entries[0].result.policy == "serial" and explained(found).result.policy == "leftover"
    assert verdict(found).startswith("Serial is fastest: plain streams (leftover) would cost 91.3 µs")
    print_comparison(found, ["kernels"])
    assert "What waiting and sharing would cost kernels under leftover, µs" in capsys.readouterr().out


def test_no_replay_beats_the_bound() -> None:
    trace, policies = (
        gpusim.load_trace(TRACE),
        ["serial", "leftover", "even", "inter-sm", "smk", "oracle-inter-sm:step=44"],
    )
    session = Session("h200")
    bound = bound_of_trace(trace, session)
    assert bound is not None
    found = replace(session.compare(trace, policies), bound_us=bound.us, bound_by=bound.by)
    assert 0.5 * found.entries[0].result.makespan_us < bound.us <= found.entries[0].result.makespan_us
    saved = next(e for e in found.entries if e.result.policy == "serial").result.makespan_us - bound.us
    assert f"no policy can save more than {saved:.1f} µs (limit: {bound.by})." in verdict(found)
