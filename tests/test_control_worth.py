"""What control is worth: plans and their file agree, choices and their statistics by hand."""

from __future__ import annotations

from dataclasses import replace
from math import comb, nan, sqrt
from pathlib import Path

import pytest

from experiments.advise.run import Row as Advised
from experiments.chosen_errors import Evidence, Point
from experiments.control_worth import fresh, kernels, plans, programs
from experiments.control_worth.expected import WAYS
from experiments.control_worth.fresh_report import Fresh, cases, page
from experiments.control_worth.plans import HERE, NOTHING, known, line_of, read, session_on
from experiments.control_worth.report import (
    WORSE,
    Row,
    choices,
    chosen,
    holm,
    interval,
    most_frequent,
    recommended,
    sign_flip,
    significant,
)
from experiments.control_worth.run import GPU, OTHER_GPU, STUDY, evidence, evidence_of
from experiments.hardware_check import run as hardware_check
from experiments.plans import condensed, makespans_us
from experiments.rows import from_csv
from gpusim.trace.operations import Convolution


def row(level: str, plan: str, predicted: float, measured: float, workload: str = "inception_3a") -> Row:
    """A plan with its gains."""
    return Row(workload, level, plan, "all", 1.0, 1.0, 1.0, 1.0, predicted, measured, 10.0)


def test_the_plan_predicted_best_is_chosen_and_plain_streams_where_none_gains() -> None:
    rows = [row("masks", "best", 2.0, -1.0), row("masks", "even", 1.0, 3.0), row("masks", "best", -1.0, 5.0, "other")]
    first, second = choices(rows, "masks")
    assert (first.predicted, first.measured, first.best) == (2.0, -1.0, 3.0)
    assert first.regret == pytest.approx(100.0 * (103.0 / 99.0 - 1.0))
    assert (second.predicted, second.measured, second.best) == (0.0, 0.0, 5.0)


def known_of(*points: tuple[str, float, float]) -> Evidence:
    """Plans for some workloads with their predicted and measured gains, as evidence of each kind."""
    made = [Point(workload, 10.0, predicted, measured) for workload, predicted, measured in points]
    return {"plan": made, "algorithms": made}


def test_a_plan_is_recommended_by_how_others_turned_out() -> None:
    """Others gained half of 10 % each, 2 points off: a standard deviation of 2.8, of which one in ten exceeds 3.6."""
    rows = [row("all", "select", 9.0, 6.0, "inception_3a"), row("all", "select", 7.0, 1.0, "inception_3b")]
    others = known_of(("a", 10.0, 3.0), ("b", 10.0, 7.0), ("inception_3a", 9.0, -90.0))
    first, second = recommended(rows, others)
    assert first.error is not None and first.error.limit == pytest.approx(1.2816 * sqrt(8.0), abs=0.01)
    assert (first.taken, first.gains, first.words) == (rows[0], (9.0, 6.0), "the plan")
    assert first.expected == pytest.approx(4.5)
    assert second.taken is None and second.words == "plain streams (tie)" and second.expected == 0.0
    algorithms = row("algorithms", "best", 8.0, 3.0, "inception_3a")
    assert recommended([*rows, algorithms], others)[0].taken == algorithms


def test_regret_is_over_plans_that_can_be_printed_and_over_all() -> None:
    rows = [row("all", "select", 1.0, 2.0), row("algorithms", "best", -1.0, 5.0), row("priorities", "best", 9.0, 8.0)]
    (one,) = recommended([*rows, row("host", "best", 1.0, 20.0)], known_of(("a", 1.0, 1.0)))
    assert one.taken == rows[0]
    assert one.regret == pytest.approx(100.0 * (1.05 / 1.02 - 1.0))
    assert one.regret_of_all == pytest.approx(100.0 * (1.08 / 1.02 - 1.0))


def test_a_plan_that_is_predicted_to_lose_is_no_choice() -> None:
    rows = [row("all", "select", -2.0, -9.0), row("masks", "best", 3.0, 1.0), row("masks", "best", 5.0, 5.0, "pair")]
    assert chosen(rows, "all") == {"inception_3a": rows[1]}
    assert chosen(rows[:1], "all") == {}


def test_holm_multiplies_the_least_by_most() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


def test_a_mean_far_from_zero_is_seldom_by_chance() -> None:
    assert sign_flip([1.0] * 12) < 0.01
    assert sign_flip([1.0, -1.0, 2.0, -2.0]) == pytest.approx(1.0)
    low, high = interval([1.0, 2.0, 3.0, 4.0])
    assert 1.0 <= low < 2.5 < high <= 4.0


def test_a_level_that_chance_explains_ties_with_plain_streams() -> None:
    names = [f"m{n}" for n in range(12)]
    sure = [row("algorithms", "best", 2.0, 3.0, name) for name in names]
    chance = [row("order", "best", 2.0, (-1.0) ** n, name) for n, name in enumerate(names)]
    rest = [row(level, "best", 2.0, 0.0, "m0") for level in ("priorities", "masks", "all")]
    said = significant([*sure, *chance, *rest])
    assert said.startswith("Only the mean of algorithms (p 0.0") and "the other levels tie" in said
    assert significant([*chance, *rest, row("algorithms", "best", 2.0, 0.0)]).endswith(
        "all levels tie with plain streams."
    )


def test_a_rate_that_none_of_sixteen_cases_show() -> None:
    assert most_frequent(0, 16) == pytest.approx(1.0 - 0.05 ** (1.0 / 16.0))
    assert sum(comb(10, n) * 0.507**n * 0.493 ** (10 - n) for n in range(3)) == pytest.approx(0.05, abs=0.002)
    assert most_frequent(2, 10) == pytest.approx(0.507, abs=0.001)


def test_plans_for_pairs_of_kernels_are_compared_with_both_orders_of_plain_streams() -> None:
    """`bilinear` beside three softmaxes, by hand from the recorded files and from two replays."""
    _, _, found = STUDY.read()
    assert len(found) == 39 * (2 + 8) and len({row.workload for row in found}) == 39
    pair = "bilinear/16x128x48to96", "softmax/16384x1024/gradient"
    wanted = "1 x {} + 3 x {}".format(*pair)
    mine = {row.plan: row for row in found if row.workload == wanted}
    recorded = [row for row in kernels.recorded() if (row["a"], row["b"]) == pair]
    times = {(row["mode"], row["sms_a"]): float(row["ms_makespan"]) for row in recorded}
    plain_ms = (times["streams", "132"] + times["streams_b_first", "132"]) / 2
    urgent_ms = (times["b_urgent", "132"] + times["b_urgent_b_first", "132"]) / 2
    assert mine["b_urgent"].measured_us == pytest.approx(1e3 * urgent_ms)
    assert mine["b_urgent"].measured_gain == pytest.approx(100.0 * (plain_ms / urgent_ms - 1.0), rel=1e-4)
    assert mine["48+84"].measured_us == pytest.approx(1e3 * times["green", "48"])
    made = {row.plan: row for row in kernels.of_pair(*pair)}
    assert {plan: row.predicted_us for plan, row in mine.items()} == {
        plan: pytest.approx(row.predicted_us, rel=1e-5) for plan, row in made.items()
    }


def test_what_is_recommended_measures_no_worse_than_plain_streams() -> None:
    """Within a percent, as the page says, for every module measured."""
    rows, again, _ = STUDY.read()
    found = recommended(rows, evidence_of(GPU, rows, again))
    assert len(found) == 16
    assert all(one.gains[1] >= WORSE for one in found)


@pytest.mark.parametrize("workload", ["inception_5a_b16", "inception_3a_b16+inception_5b_b16", "googlenet_b1_forward"])
def test_a_plan_in_the_file_is_the_plan(workload: str, tmp_path: Path) -> None:
    """Read back, a plan waits for what it did, in the same streams, by the same algorithms."""
    session = session_on("h200")
    work, _ = known(workload, session)
    mine = [trial for trial in read(HERE / "plans_h200.txt", session) if trial.workload == workload]
    assert mine[0].name == NOTHING and {trial.level for trial in mine} >= {"priorities", "order", "masks", "host"}
    for trial in mine:
        line, calls = line_of(trial, work)
        path = tmp_path / "plans.txt"
        path.write_text(f"{line}\n")
        (again,) = read(path, session)
        assert (again.plan.lanes, again.plan.algorithms) == (trial.plan.lanes, trial.plan.algorithms)
        assert len(calls) * 3 + 3 == len(line.split())


def test_two_programs_have_a_stream_each() -> None:
    trace = plans.trace_of("inception_3a_b16+inception_5b_b16")
    assert [len(stream.operations) for stream in trace.streams] == [6, 6]


def test_every_plan_was_measured() -> None:
    measured = makespans_us(HERE / "measured_h100-sxm.csv.gz")
    assert {(one.workload, one.name) for one in read(HERE / "plans_h100-sxm.txt", session_on("h100-sxm"))} == set(
        measured
    )


def test_a_condensed_table_has_a_line_for_each_turn() -> None:
    table = ["name,plan,turn,step,op,stream,sms,ms_end,ms_makespan"]
    table += [f"m,p,{turn},{step},o,0,132,0.1,0.{turn + 2}" for turn in (0, 1) for step in (0, 1)]
    assert "".join(condensed(table)).splitlines() == ["name,plan,turn,ms_makespan", "m,p,0,0.2", "m,p,1,0.3"]


@pytest.mark.parametrize(
    "workload",
    [
        "inception_4a_b16",
        pytest.param("inception_5b", marks=pytest.mark.release),
        pytest.param("inception_4c+inception_5a", marks=pytest.mark.release),
    ],
)
def test_no_plan_of_a_recorded_workload_beats_its_bound(workload: str) -> None:
    session = session_on("h200")
    work, bounds = known(workload, session)
    mine = [trial for trial in read(HERE / "plans_h200.txt", session) if trial.workload == workload]
    least_us = [min(plans.starts_us(trial, session)) for trial in mine]
    assert bounds.of_any(work).us <= min(least_us) * (1.0 + 1e-9)
    for trial, us in zip(mine, least_us, strict=True):
        assert bounds.of_plan(work, trial.plan) <= us * (1.0 + 1e-9)


# ---- the fresh tests


def again(level: str, recommended: int, gains: tuple[float, float], told: float = nan, test: str = "fresh") -> Fresh:
    """A plan of a fresh test with its predicted and measured gain, and the expected one with a limit of 1 point."""
    where, us, told_of_it = (test, fresh.GPUS[test], "resnet50_2a"), (1.0, 1.0, 1.0, 1.0, nan), (9.0, told, 1.0)
    return Fresh(*where, level, recommended, "all", *us, *gains, nan, 0.1, 4.0, *told_of_it)


def test_a_recommendation_is_compared_with_what_was_turned_down() -> None:
    plans = [again("nothing", 0, (0.0, 0.0)), again("algorithms", 1, (5.0, 2.0)), again("all", 0, (9.0, 4.0))]
    (case,) = cases(plans, "fresh")
    assert (case.recommended, case.best_inside, case.best_predicted, case.best) == (
        plans[1],
        plans[1],
        plans[2],
        plans[2],
    )
    numbers = page(plans, ["fresh"])
    assert numbers["fresh_regret"] == pytest.approx(100.0 * (104.0 / 102.0 - 1.0))
    assert (numbers["fresh_left"], numbers["fresh_left_worse"], numbers["fresh_left_better"]) == (1, 0, 1)
    assert numbers["fresh_more_bias"] == 3.0


def test_a_promise_is_the_gain_expected_before_the_measurement() -> None:
    plans = [
        replace(again("nothing", 0, (0.0, 0.0), test="second"), told_gain=nan),
        again("algorithms", 1, (5.0, 2.0), 2.5, "second"),
        again("all", 0, (7.0, 1.0), 3.0, "second"),
    ]
    numbers = page(plans, ["second"])
    assert (numbers["second_told"], numbers["second_told_expected"]) == (9.0, 2.5)
    assert (numbers["second_told_bias"], numbers["second_told_predicted_bias"]) == (0.5, 7.0)
    assert (numbers["second_told_short"], numbers["second_told_short_taken"]) == (1, 0)
    assert numbers["second_told_met"] == "met"


@pytest.mark.parametrize("test", fresh.TESTS)
def test_what_was_recommended_measures_no_worse_on_another_machine(test: str) -> None:
    """Within a percent, as the page says; plain streams are each module's zero."""
    _, rows, _ = STUDY.read()
    found = cases(rows, test)
    assert [case.workload for case in found] == list(fresh.WORKLOADS[test])
    assert all(case.plain.measured_gain == 0.0 for case in found)
    assert all(case.recommended.measured_gain >= WORSE for case in found)


@pytest.mark.parametrize("test", fresh.TESTS)
def test_every_plan_of_a_fresh_test_was_measured_in_every_round(test: str) -> None:
    measured = fresh.measured_us(test)
    trials = list(read(fresh.plans_of(test), session_on(fresh.GPUS[test])))
    assert {(one.workload, one.name) for one in trials} == set(measured)
    turns = {(one.workload, one.name): 1 if one.plan.sms else len(one.plan.lanes) for one in trials}
    for key, rounds in measured.items():
        assert [len(one) for one in rounds] == [turns[key]] * fresh.ROUNDS


@pytest.mark.parametrize("test", ["second", "third"])
def test_the_answers_are_those_of_the_plans(test: str) -> None:
    answers = from_csv(fresh.Answer, fresh.answers_of(test))
    trials = [one for one in read(fresh.plans_of(test), session_on(fresh.GPUS[test])) if one.name != NOTHING]
    assert [(one.workload, one.level) for one in answers] == [(one.workload, one.level) for one in trials]
    assert [one.recommended for one in answers] == [one.name.endswith(fresh.RECOMMENDED) for one in trials]


def test_a_micro_batch_is_a_batch_of_its_own() -> None:
    whole, part = plans.trace_of("inception_3a"), plans.trace_of("inception_3a_b32")
    assert [op.id for op in part.operations()] == [op.id for op in whole.operations()]
    for op in part.operations():
        assert isinstance(op, Convolution) and op.shape is not None and op.shape.batch == 32 and not op.micro_batches


def test_both_convolutions_of_a_fire_module_wait_for_its_squeeze() -> None:
    first, second = plans.trace_of("squeezenet_fire4").streams
    assert [op.id for op in first.operations] == ["fire4.squeeze", "fire4.expand1x1"]
    assert [(op.id, op.depends_on) for op in second.operations] == [("fire4.expand3x3", ("fire4.squeeze",))]


def test_the_share_shrinks_a_large_gain_and_leaves_no_gain_at_zero() -> None:
    others = [(10.0, 5.0), (2.0, 1.0)]
    assert WAYS["as predicted"](20.0, others) == 20.0
    assert WAYS["less the mean shortfall"](1.0, others) == -2.0
    assert WAYS["a share of it"](20.0, others) == 10.0 and WAYS["a share of it"](0.0, others) == 0.0


def test_an_error_belongs_to_the_gpu_that_showed_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # for each it fits all kernels
    monkeypatch.setattr(hardware_check, "operation_us", lambda module: float(len(module)))
    here, there = again("algorithms", 1, (5.0, 2.0)), again("algorithms", 1, (7.0, 1.0), test="third")
    found = evidence([row("algorithms", "best", 2.0, 1.0)], [here, there])
    assert [one.measured for one in found[GPU]["algorithms"]] == [1.0, 2.0]
    assert [one.measured for one in found[OTHER_GPU]["algorithms"]] == [1.0]
    assert all(one.operation_us == len(one.workload) for one in found[OTHER_GPU]["plan"])
    assert not found[GPU]["plan"] and {one.workload for one in found[OTHER_GPU]["plan"]} > {"inception_3a"}


def test_plans_take_turns_within_their_workload() -> None:
    assert fresh.rotated(["a 1", "a 2", "b 1"], 1) == ["a 2", "a 1", "b 1"]


def test_an_equal_plan_is_found_whatever_the_order_of_its_streams() -> None:
    trials = list(read(HERE / "plans_h100-sxm.txt", session_on("h100-sxm")))
    first = next(one for one in trials if one.name == NOTHING)
    turned = replace(first, plan=replace(first.plan, lanes=first.plan.lanes[::-1]))
    assert fresh.identity(turned) == fresh.identity(first)
    assert len({fresh.identity(one) for one in trials if one.workload == first.workload}) > 5


def test_a_setting_of_two_programs_gains_over_plain_streams() -> None:
    def row(mechanism: str, setting: str, predicted_us: float, measured_us: float, pair: str = "a + b") -> Advised:
        return Advised("h100", pair, mechanism, setting, predicted_us, measured_us, "", nan, nan, nan, nan)

    measured = [
        row("in turn", "one after the other", 150.0, 160.0),
        row("streams", "equal priority", 100.0, 110.0),
        row("priority", "a first", 80.0, 100.0),
        row("SM split", "64+68 SMs", 125.0, 88.0),
        row("MPS", "50+50 %", 100.0, 100.0, "processes"),
    ]
    found = {one.level: one for one in programs.rows(measured)}
    assert {one.workload for one in found.values()} == {"h100: a + b"}
    assert found["priorities"].predicted_gain == pytest.approx(25.0)
    assert found["priorities"].measured_gain == pytest.approx(10.0)
    assert found["masks"].predicted_gain == pytest.approx(-20.0)
    assert found["masks"].measured_gain == pytest.approx(25.0)
