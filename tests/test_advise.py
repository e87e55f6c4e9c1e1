"""Advice: which settings there are, what each gives by hand, which is recommended, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import product
from math import inf
from pathlib import Path
from typing import Any

import pytest
from advised import advised, by_mechanism, two
from test_code import kernel as coded
from test_import_kineto import kernel as kineto_kernel
from test_import_kineto import write
from tiny import kernel, stream, tiny

import gpusim
import gpusim.choose.advise as advise_module
from gpusim import InputError, Kernel, Program, Stream, Trace, cli, load_gpu
from gpusim.choose import serving
from gpusim.choose.advice_page import as_json, print_advice, slowdowns
from gpusim.choose.advise import Advice, advise
from gpusim.choose.explain import costs_us
from gpusim.choose.settings import Setting, divisions, granted, settings, settings_by, splits_between
from gpusim.choose.settings import _mig as mig_setting
from gpusim.choose.targets import Target, target_of
from gpusim.policies.limits import mig_profiles
from gpusim.policies.time_slicing import SLICE_US, SWITCH_US
from gpusim.results.error_band import ErrorBand, HowWrong
from gpusim.session import Session
from gpusim.trace.operations import Copy, TimesArrivals

# ---- settings


def test_an_h200_has_every_split_that_its_driver_makes() -> None:
    splits = [one.parts for one in settings(load_gpu("h200"), ["a", "b"]) if one.mechanism == "SM split"]
    assert splits == [(n, 132 - n) for n in range(8, 125, 8)]


@pytest.mark.parametrize("least", [1, 2, 4])
@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("parts", [1, 2, 3])
def test_divisions_are_all_that_there_are(parts: int, least: int, step: int) -> None:
    every = ((*counts, 13 - sum(counts)) for counts in product(range(0, 14, step), repeat=parts - 1))
    assert list(divisions(13, parts, least, step)) == [one for one in every if min(one) >= least]


def test_splits_of_three_programs_are_coarser_and_fill_the_gpu() -> None:
    splits = [one.parts for one in settings(load_gpu("h200"), ["a", "b", "c"]) if one.mechanism == "SM split"]
    assert 0 < len(splits) <= 120 and {sum(parts) for parts in splits} == {132}
    assert all(part % 8 == 0 for parts in splits for part in parts[:-1])


def test_splits_between_leave_the_rest_to_another_program() -> None:
    h200 = load_gpu("h200")
    (split,) = (one for one in settings(h200, ["a", "b"]) if one.parts == (64, 68))
    more, fewer = splits_between(h200, ["a", "b"], split)
    assert (more.parts, fewer.parts) == ((68, 64), (60, 72))
    assert more.policy == "green-context:by=program,sms=68+64"
    assert more.paste[0].endswith("nbGroups 1 and minCount 64 for b; the remaining 68 for a")
    assert more.paste[1].endswith("create(num_sms=64) for b")
    assert "a as prefill" in more.paste[3] and "[[68, 64, 0]]" in more.paste[3]
    (least,) = (one for one in settings(h200, ["a", "b"]) if one.parts == (8, 124))
    assert [one.parts for one in splits_between(h200, ["a", "b"], least)] == [(12, 120)], "4 SMs are no group"
    a100 = load_gpu("a100-80")
    (half,) = (one for one in settings(a100, ["a", "b"]) if one.parts == (54, 54))
    assert splits_between(a100, ["a", "b"], half) == [], "nothing is left"


def test_splits_near_the_best_are_compared_too() -> None:
    """A program with four times the blocks of the other wants four fifths of the SMs."""
    h200 = load_gpu("h200")
    programs = [
        Program(name=name, streams=[stream(name, kernel(f"k{name}", blocks, us))])
        for name, blocks, us in (("a", 4224, 400.0), ("b", 1056, 100.0))
    ]
    advice = advise([Trace(name="two", device="h200", programs=programs)], h200, settings=["SM split"])
    parts = {one.setting.parts for one in advice.choices if one.setting.parts}
    assert {(a, b) for a, b in parts if a % 8} <= {(a, 132 - a) for a in (100, 108, 116)}
    assert len([a for a, _ in parts if a % 8]) == 2
    ordered = [one for one in advice.choices if one.setting.parts and not one.setting.parts[0] % 8]
    (best, *_) = ordered
    assert all(abs(a - best.setting.parts[0]) == 4 for a, _ in parts if a % 8)


def test_instances_are_the_largest_that_fit_together() -> None:
    slices = {one.setting for one in settings(load_gpu("h200"), ["a", "b"]) if one.mechanism == "MIG"}
    assert {"3g+4g", "4g+3g"} <= slices and "1g+1g" not in slices and "7g+1g" not in slices


def test_a_gpu_without_green_contexts_or_mig_has_neither() -> None:
    mechanisms = {one.mechanism for one in settings(load_gpu("k40c"), ["a", "b"])}
    assert mechanisms == {"in turn", "streams", "priority", "time slices"}, "nor has MPS limits before Volta"
    assert granted(load_gpu("k40c")) == {}


@pytest.mark.parametrize(
    ("gpu", "least", "multiple"),  # cuDevSmResourceSplitByCount, by compute capability
    [
        ("p100", 1, 1),
        ("v100", 2, 2),
        ("t4", 2, 2),
        ("a100-80", 4, 2),
        ("rtx4090", 4, 2),
        ("h100-sxm", 8, 8),
        ("b200", 8, 8),
    ],
)
def test_splits_are_those_that_a_gpu_grants(gpu: str, least: int, multiple: int) -> None:
    found = load_gpu(gpu)
    splits = [one.parts for one in settings(found, ["a", "b"]) if one.mechanism == "SM split"]
    assert splits and min(min(parts) for parts in splits) >= least
    assert all(a % multiple == 0 and a + b == found.sm_count for a, b in splits)
    assert granted(found)["green contexts"].startswith(f"{least} SMs or more")


@pytest.mark.parametrize(
    ("gpu", "slices", "ids"),
    [
        ("h200", "3g+4g", "5,9"),  # 4g first: it can only start at the first slice
        ("h100-pcie", "4g+2g", "5,14"),
        ("a100-80", "1g+4g", "5,19"),
        ("b200", "3g+3g", "9,9"),
        ("a30", "2g+2g", "5,5"),  # quarters have ids of their own
        ("rtxpro6000", "1g+2g", "5,14"),
    ],
)
def test_instances_are_created_by_the_ids_of_the_gpu(gpu: str, slices: str, ids: str) -> None:
    """Profile ids as nvidia-smi mig -lgip lists them."""
    paste = mig_setting(("a", "b"), tuple(slices.split("+")), mig_profiles(load_gpu(gpu))).paste
    assert f"nvidia-smi mig -cgi {ids} -C" in paste[0]
    first, second = slices.split("+")
    assert paste[1:] == (
        f"CUDA_VISIBLE_DEVICES=MIG-… of the {first} instance (nvidia-smi -L) for a",
        f"CUDA_VISIBLE_DEVICES=MIG-… of the {second} instance (nvidia-smi -L) for b",
    )


def test_what_is_pasted_names_each_program_and_its_part() -> None:
    (split,) = [one for one in settings(load_gpu("h200"), ["pre", "dec"]) if one.parts == (96, 36)]
    assert "torch.cuda.green_contexts.GreenContext.create(num_sms=96) for pre" in split.paste
    assert "nbGroups 1 and minCount 96 for pre; the remaining 36 for dec" in split.paste[0]
    for line, prefill, sms in zip(split.paste[-2:], ("pre", "dec"), ("96, 36", "36, 96"), strict=True):
        mapping = f"in FILE: {{sm_group_num: 3, manual_divisions: [[{sms}, 0]]}}"  # of YAML
        assert line.endswith(f"{prefill} as prefill; {mapping}")
    mps = next(one for one in settings(load_gpu("h200"), ["pre", "dec"]) if one.setting == "70+30 %")
    assert mps.paste == (
        "nvidia-cuda-mps-control -d, then start each program in an environment of its own:",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=70 for pre",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30 for dec",
    )


# ---- what they give


def test_two_halves_run_at_once() -> None:
    advice = advised(two())
    found = by_mechanism(advice)
    alone = found["streams"][0].makespan_us
    assert found["in turn"][0].makespan_us == pytest.approx(2 * alone)
    assert alone == pytest.approx(10.0)
    assert found["streams"][0].stp == pytest.approx(2.0)
    assert found["streams"][0].slowdown == pytest.approx({"a": 1.0, "b": 1.0})
    assert found["in turn"][0].stp == pytest.approx(1.0)
    assert advice.best.setting.mechanism == "streams"


def test_of_ties_the_one_that_asks_least_is_best() -> None:
    """Kernels that each fill the GPU gain nothing by sharing it: do not share it."""
    advice = advised(two(first_blocks=400, second_blocks=400, first_us=1000.0, second_us=1000.0))
    assert advice.best.setting.mechanism == "in turn"
    assert advice.ties(advice.best)


def test_a_tie_in_which_in_turn_slows_a_short_program_is_shared(capsys: pytest.CaptureFixture[str]) -> None:
    """Kernels each fill the GPU: one waits for the 100 of another program in turn, and for one of them in streams."""
    programs = [
        Program(name=name, streams=[stream(name, *(kernel(f"k{name}{n}", 4, 10.0) for n in range(count)))])
        for name, count in (("a", 1), ("b", 100))
    ]
    advice = advised(Trace(name="two", device="tiny", programs=programs), settings=["streams"])
    in_turn, streams = (by_mechanism(advice)[name][0] for name in ("in turn", "streams"))
    assert advice.ties(in_turn) and advice.best is streams
    assert in_turn.slowdown == pytest.approx({"a": 101.0, "b": 1.01})
    assert max(streams.slowdown.values()) < 3.0
    print_advice(advice)
    assert "in turn (one after the other) is within 3 % of it: a tie, and it slows the programs more, on average" in (
        capsys.readouterr().out
    )


def test_the_first_choice_is_the_least_makespan() -> None:
    advice = advised(two(first_blocks=3, second_blocks=4))
    assert [*advice.choices] == sorted(advice.choices, key=lambda one: one.makespan_us)


def test_a_program_that_would_restart_very_often_runs_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = two(first_us=10.0, second_us=100.0)
    restarted = advised(trace)
    monkeypatch.setattr(advise_module, "MOST_RESTARTED", 10)  # 10 passes of a and one of b are 11 kernels
    once = advised(trace)
    assert restarted.unequal == "" != once.unequal
    streams = by_mechanism(once)["streams"][0]
    assert (streams.stp, streams.slowdown) == (None, pytest.approx({"a": 1.0, "b": 1.0}))
    assert [one.makespan_us for one in once.choices] == [one.makespan_us for one in restarted.choices]
    assert advised(trace, objective="stp").best.stp == by_mechanism(restarted)["streams"][0].stp
    assert advised(trace, targets=["a=x1.5"]).best.stp is not None
    print_advice(once)
    assert "Note: b takes as long as 10 passes of a: slowdowns are of one pass;" in capsys.readouterr().out
    assert as_json(once)["unequal"] == "b takes as long as 10 passes of a"


def test_programs_of_many_kernels_end_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both start at 0, and a's blocks go first: its first pass meets less of b than its second."""
    trace = two(first_blocks=3, second_blocks=3)
    slowed = by_mechanism(advised(trace))["streams"][0].slowdown
    monkeypatch.setattr(serving, "MOST_TWICE", 1)
    assert by_mechanism(advised(trace))["streams"][0].slowdown != slowed
    monkeypatch.setattr(serving, "ROUNDS", 1)
    once = by_mechanism(advised(trace))["streams"][0].slowdown
    monkeypatch.setattr(serving, "MOST_TWICE", 1_000)
    assert by_mechanism(advised(trace))["streams"][0].slowdown == once


def test_the_front_has_nothing_that_another_beats() -> None:
    advice = advised(two(first_blocks=3, second_blocks=4))
    front = [one.slowdown for one in advice.pareto]
    for one in front:
        assert not any(all(other[name] < one[name] for name in one) for other in front)


def test_time_slices_take_longer_than_programs_in_turn() -> None:
    """Both have the whole GPU one after the other, and switches take time."""
    (in_turn,), (slices,) = (by_mechanism(advised(two()))[name] for name in ("in turn", "time slices"))
    assert slices.makespan_us > in_turn.makespan_us and slices.how_wrong.band is None


def test_programs_on_time_slices_get_the_gpu_equally_often() -> None:
    """Passes are shorter than slices: a replay that ends with the first pass of each would see one slice of one."""
    (slices,) = by_mechanism(advised(two(first_us=100.0, second_us=250.0)))["time slices"]
    share = SLICE_US / (2.0 * (SLICE_US + SWITCH_US))
    assert slices.slowdown == pytest.approx({"a": 1.0 / share, "b": 1.0 / share}, rel=0.1)
    (longer,) = by_mechanism(advised(two(first_us=6000.0, second_us=6000.0)))["time slices"]
    assert longer.slowdown["a"] == pytest.approx(longer.slowdown["b"], rel=0.05), "passes under way count, too"


# ---- targets


def test_targets_are_read_as_factors_and_times() -> None:
    assert target_of("decode=x1.2") == Target("decode", slowdown=1.2)
    assert target_of("decode=5ms") == Target("decode", latency_us=5000.0)
    assert str(target_of("a=b=250us")) == "a=b=250us"


@pytest.mark.parametrize("text", ["decode", "decode=1.2", "decode=x", "=x2", "decode=x0", "decode=5m"])
def test_anything_else_is_no_target(text: str) -> None:
    with pytest.raises(InputError, match=r"expected PROGRAM=x1\.2 or PROGRAM=5ms"):
        target_of(text)


def test_a_target_leaves_out_what_misses_it() -> None:
    trace = two(first_blocks=8, second_blocks=8, first_us=40.0, second_us=40.0)
    free, held = advised(trace, objective="stp"), advised(trace, targets=["a=x1.5"])
    assert held.objective == "throughput"
    assert held.best.slowdown["a"] <= 1.5
    assert [held.meets(one) for one in held.choices] != [True] * len(held.choices)
    assert held.best.stp is not None and free.choices[0].stp is not None
    assert held.best.stp <= free.choices[0].stp


def test_with_a_target_the_others_do_most() -> None:
    """The throughput is that of the program without a target, not the STP, which also counts the one that has it."""
    advice = advised(two(first_blocks=8, second_blocks=8, first_us=40.0, second_us=40.0), targets=["a=x3"])
    assert advice.objective == "throughput" and advice.free == ("b",)
    held = [one for one in advice.choices if advice.meets(one)]
    assert held[0].slowdown["b"] == min(one.slowdown["b"] for one in held)
    assert held[0].throughput == pytest.approx(1.0 / held[0].slowdown["b"])
    both = advised(two(), targets=["a=x3", "b=x3"]).choices[0]
    assert both.throughput == both.stp


def test_a_setting_that_misses_a_target_is_no_tie() -> None:
    advice = advised(two(first_blocks=3, second_blocks=4), targets=["b=x1.5"], objective="stp")
    missed = [one for one in advice.choices if not advice.meets(one)]
    assert missed and not any(advice.ties(one) for one in missed) and advice.ties(advice.best)


def test_a_target_that_nothing_keeps_names_the_closest() -> None:
    with pytest.raises(InputError, match=r"no setting keeps a=x1e-06; expected a=x1 or more, as") as caught:
        advised(two(), targets=[Target("a", slowdown=1e-6)])
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"no setting keeps a=x1e-06 and b=x50; expected a=x1 or more, as"):
        advised(two(), targets=[Target("a", slowdown=1e-6), Target("b", slowdown=50.0)])


@pytest.mark.parametrize("targets", [["a=x1.001", "b=x1.001"], ["a=7us", "b=x1.001"]])
def test_the_targets_that_are_expected_instead_can_be_kept(targets: list[str]) -> None:
    trace = two(first_blocks=7, second_blocks=4, first_us=10.0 / 3.0)
    with pytest.raises(InputError) as caught:
        advised(trace, targets=targets)
    expected = re.findall(r"[ab]=[x\d.us]+", str(caught.value).partition("expected")[2])
    assert expected and advised(trace, targets=[*{one[0]: one for one in [*targets, *expected]}.values()]).best


def test_requests_are_held_to_the_95th_percentile() -> None:
    arrivals = TimesArrivals(times_us=[20.0 * i for i in range(20)])
    advice = advised(two(arrivals=arrivals), targets=["a=10.5us"])
    assert advice.best.latency_us["a"] == pytest.approx(10.0)
    assert advice.best.stp is None


def test_requests_that_come_too_fast_are_refused() -> None:
    arrivals = TimesArrivals(times_us=[5.0 * i for i in range(20)])
    with pytest.raises(InputError, match=r"come every 5 µs and take 10 µs in isolation.*expected an interval above"):
        advised(two(arrivals=arrivals))


# ---- the interface


def test_one_trace_needs_no_list() -> None:
    one = Trace(name="one", device="tiny", streams=[stream("a", kernel("ka", 2, 10.0))])
    with pytest.raises(InputError, match="'one' is one program; expected two or more to share a GPU"):
        advise(one, Session(tiny()))  # type: ignore[arg-type]


def test_one_program_is_refused() -> None:
    with pytest.raises(InputError, match="is one program; expected two or more"):
        advise([Trace(name="one", device="tiny", streams=[stream("a", kernel("ka", 2, 10.0))])], Session(tiny()))


def test_programs_of_different_gpus_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name, device in (("pre", "h200"), ("dec", "h100-sxm")):
        Trace(name=name, device=device, streams=[stream("main", kernel(f"k_{name}", 60, 50.0))]).save(
            tmp_path / f"{name}.json"
        )
        files.append(str(tmp_path / f"{name}.json"))
    assert cli.main(["advise", *files]) == 2
    err = capsys.readouterr().err
    assert "traces of h100-sxm, h200; expected traces recorded on one GPU" in err and err.count("\n") == 1


def test_a_target_of_no_program_names_those_there_are() -> None:
    with pytest.raises(InputError, match=r"^targets: names program 'c'; expected one of a, b$"):
        advised(two(), targets=["c=x2"])


def test_processes_give_what_one_process_gives() -> None:
    trace = two(first_blocks=3, second_blocks=4)
    one, several = advised(trace), advise([trace], Session(tiny()), jobs=2)
    assert one.choices == several.choices and one.best == several.best


def test_the_table_and_the_picture_have_every_choice() -> None:
    advice = advised(two(first_blocks=3, second_blocks=4))
    assert len(advice.table) == len(advice.choices)
    assert list(advice.table["slowdown[a]"]) == [one.slowdown["a"] for one in advice.choices]
    figure = slowdowns(advice)
    marks = [line for line in figure.axes[0].lines if line.get_marker() not in ("None", "")]
    (best,) = [line for line in marks if str(line.get_label()).startswith("recommended: ")]
    assert best.get_xdata()[0] == advice.best.slowdown["a"]  # type: ignore[index]
    marks.remove(best)
    drawn = sum(len(line.get_xdata()) for line in marks)  # type: ignore[arg-type]
    assert drawn == len([one for one in advice.choices if max(one.slowdown.values()) < inf])


def test_the_command_prints_what_to_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name in ("pre", "dec"):
        made = Trace(name=name, device="h200", streams=[stream("main", kernel(f"k_{name}", 60, 50.0))])
        made.save(tmp_path / f"{name}.json")
        files.append(str(tmp_path / f"{name}.json"))
    assert cli.main(["advise", *files, "--json", "--jobs", "1", "--no-cache"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["best"]["mechanism"] == "streams"
    assert {"mechanism", "setting", "makespan_us", "stp", "slowdown", "model_error", "meets_slo"} <= set(
        found["choices"][0]
    )
    assert cli.main(["advise", *files, "--jobs", "1", "--no-cache", "--plot", str(tmp_path / "p.svg")]) == 0
    assert "pre and dec on h200: run both in streams of equal priority" in capsys.readouterr().out
    assert (tmp_path / "p.svg").stat().st_size > 1000
    assert cli.main(["advise", files[0]]) == 2
    assert "a trace or a profile for each of two programs or more" in capsys.readouterr().err


def test_a_profile_that_names_no_gpu_takes_that_of_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--gpu` is the GPU of the replay, so the line that asks for the other names `--recorded-on`."""
    events = [kineto_kernel("k", 0, 50)]
    files = [str(write(tmp_path / f"{name}.json", events, deviceProperties=[])) for name in ("pre", "dec")]
    command = ["advise", *files, "--gpu", "h200", "--json", "--jobs", "1", "--no-cache"]
    assert cli.main(command) == 2
    assert capsys.readouterr().err.startswith(f"{files[0]}: --recorded-on: the profile names no GPU; expected the GPU")
    assert cli.main([*command, "--recorded-on", "h100-sxm"]) == 0
    assert json.loads(capsys.readouterr().out)["gpu"] == "h200"


def test_profiles_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the import decided goes to stderr; a file that is neither is refused as before."""
    files = [str(write(tmp_path / f"{name}.json", [kineto_kernel(f"k_{name}", 0, 50)])) for name in ("pre", "dec")]
    assert cli.main(["advise", *files, "--gpu", "h200", "--json", "--jobs", "1", "--no-cache"]) == 0
    printed = capsys.readouterr()
    assert set(json.loads(printed.out)["best"]["slowdown"]) == {"pre", "dec"}
    assert "Kernels without counters" in printed.err
    (tmp_path / "other.json").write_text("{}")
    assert cli.main(["advise", files[0], str(tmp_path / "other.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1  # nothing of the import of the other
    (tmp_path / "chakra.json").write_text('{"schema": "1.0", "nodes": [], "start_ts": 1}')
    capsys.readouterr()
    for command in ("advise", "replay", "explain"):
        assert cli.main([command, str(tmp_path / "chakra.json")]) == 2
        assert "is an execution trace of PyTorch (Chakra)" in capsys.readouterr().err


def test_advise_is_public() -> None:
    assert gpusim.advise is advise


def test_in_turn_is_whole_passes_even_where_copies_could_run_beside() -> None:
    copies = stream("b", Copy(id="in", direction="h2d", bytes=10**6, duration_us=40.0), kernel("kb", 2, 10.0))
    programs = [Program(name="a", streams=[stream("a", kernel("ka", 2, 10.0))]), Program(name="b", streams=[copies])]
    advice = advised(Trace(name="two", device="tiny", programs=programs), settings=["streams"])
    (turn,) = by_mechanism(advice)["in turn"]
    assert turn.makespan_us == pytest.approx(60.0)
    assert turn.stp == pytest.approx(1.0)
    assert turn.slowdown == pytest.approx({"a": 6.0, "b": 1.2})


def test_in_turn_requests_run_whole_passes_in_the_order_of_their_release() -> None:
    """a takes 20 us: its two kernels of half the SMs run beside one another. b takes 10, twice after a, once alone."""
    both = [stream("a0", kernel("k0", 2, 20.0)), stream("a1", kernel("k1", 2, 20.0))]
    times_us = {"a": (0.0, 100.0), "b": (5.0, 50.0, 110.0)}
    programs = [
        Program(name=name, streams=streams, arrivals=TimesArrivals(times_us=times_us[name]))
        for name, streams in (("a", both), ("b", [stream("b", kernel("kb", 4, 10.0))]))
    ]
    advice = advised(Trace(name="two", device="tiny", programs=programs), settings=["streams"])
    (turn,) = by_mechanism(advice)["in turn"]
    assert turn.percentiles_us["a"] == pytest.approx({50: 20.0, 95: 20.0, 99: 20.0})
    assert turn.percentiles_us["b"][99] == pytest.approx(25.0), "15 us until a has ended, then its own 10"
    assert turn.slowdown == pytest.approx({"a": 1.0, "b": (25.0 + 10.0 + 20.0) / 30.0})
    assert turn.makespan_us == pytest.approx(130.0)


def test_programs_that_together_ask_more_than_the_gpu_serves_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Each takes 10 us of the whole GPU, every 12 us: each alone is served, both are not."""
    ways = [one for one in settings(tiny(), ["a", "b"]) if one.mechanism == "streams"]

    def asked(interval_us: float) -> str:
        arrivals = TimesArrivals(times_us=tuple(interval_us * i for i in range(60)))
        programs = [
            Program(name=name, streams=[stream(name, kernel(f"k{name}", 4, 10.0))], arrivals=arrivals) for name in "ab"
        ]
        print_advice(advised(Trace(name="two", device="tiny", programs=programs), ways=ways))
        return capsys.readouterr().out

    grows = (
        "times as long as its first: in this way the programs together ask more than the GPU serves, the queue grows"
    )
    assert grows in asked(12.0)
    assert "queue grows" not in asked(40.0)


def test_what_the_best_setting_adds_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Both kernels fill the GPU, so that one waits for room; on half of the SMs each takes twice as long."""
    trace, ways = two(4, 4), {one.mechanism: one for one in settings(tiny(), ["a", "b"]) if one.parts in ((), (2, 2))}
    advice = advised(trace, ways=[ways["streams"]])
    waiting = {name: sum(causes.values()) for name, causes in advice.cost_us.items()}
    assert advice.cost_us["a"] == {} and advice.cost_us["b"] == pytest.approx({"no room": 10.0}, rel=0.1)
    print_advice(advice)
    said = capsys.readouterr().out
    assert f"b: this setting adds {waiting['b']:.1f} µs to its kernels: no room 100 %" in said and "a: this" not in said
    assert as_json(advice)["cost_us"] == advice.cost_us
    assert advised(trace, ways=[ways["in turn"]]).cost_us == {}
    halves = costs_us(trace, Session(tiny()), Setting("SM split", "2+2 SMs", "inter-sm:by=program,sms=2+2"))
    assert [sum(causes.values()) for causes in halves.values()] == pytest.approx([10.0, 10.0], rel=0.2)


def test_lost_code_is_counted_where_a_setting_loses_it() -> None:
    """In streams, and in a split where other kernels of the program run between; not where each has its own L2."""
    first, second = (
        Kernel(id=f"a{i}", kernel=coded(name, waits_for_code=0.5)) for i, name in enumerate(("one", "two"))
    )
    again = first.model_copy(update={"id": "a2"})
    other = Kernel(id="b0", kernel=coded("other", kept=3.0), depends_on=("a0",))
    streams = [Stream(name="a", operations=(first, second, again)), Stream(name="b", operations=(other,))]
    programs = [Program(name=name, streams=(name,)) for name in ("a", "b")]
    trace = Trace(version=2, name="two", device="h200", streams=streams, programs=programs)
    lost = {
        one.mechanism: costs_us(trace, Session("h200"), one)["a"].get("lost code", 0.0)
        for one in settings(load_gpu("h200"), ["a", "b"])
        if one.mechanism in ("streams", "MIG") or one.parts == (64, 68)
    }
    assert lost["MIG"] == 0.0 and min(lost["streams"], lost["SM split"]) > 100.0


def test_a_program_of_copies_has_priority_in_a_tie(capsys: pytest.CaptureFixture[str]) -> None:
    """Copies take most of its pass. With more kernels, with arrivals or where both copy, the simplest setting wins."""

    def best(copied: int, other: int = 0, **of: Any) -> Advice:
        programs = []
        for name, size in (("a", copied), ("b", other)):
            copies = [Copy(id=f"c{name}", direction="h2d", bytes=size, duration_us=float(size))] * bool(size)
            programs.append(Program(name=name, streams=[stream(name, *copies, kernel(f"k{name}", 2, 10.0))], **of))
        ways = [one for one in settings(tiny(), ["a", "b"]) if one.mechanism in ("streams", "priority")]
        return advised(Trace(name="two", device="tiny", programs=programs), ways=ways)

    advice = best(30)
    assert (advice.first, str(advice.best.setting)) == ("a", "priority (a first)")
    print_advice(advice)
    assert (
        "streams (equal priority) is within 3 % of it: a tie, and the few kernels of a should not wait for others"
        in (capsys.readouterr().out)
    )
    for others in (best(5), best(30, 30), best(30, arrivals=TimesArrivals(times_us=(0.0, 1000.0)))):
        assert (others.first, others.best.setting.mechanism) == ("", "streams")


def test_settings_that_are_given_are_all_that_is_compared() -> None:
    ways = [one for one in settings(tiny(), ["a", "b"]) if one.mechanism in ("in turn", "streams")]
    assert {one.setting.mechanism for one in advised(two(), ways=ways).choices} == {"in turn", "streams"}
    with pytest.raises(InputError, match="ways: names no setting"):
        advised(two(), ways=[])


def test_only_the_chosen_kinds_of_settings_are_replayed_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On halves of 16 SMs a takes 20 us in one wave and b 19 in two. That is 30 in turn, and 20 in streams."""
    trace, steps, replayed = two(8, 16, 20.0, 10.0), list[str](), set[str]()
    every = advise([trace], Session(tiny(16)), jobs=1)
    assert {"streams", "SM split"} < set(by_mechanism(every)) and every.best.setting.mechanism == "streams"
    replay = Session.replay

    def watched(session: Session, trace: Any, policy: Any, **how: Any) -> Any:
        replayed.add(str(policy).partition(":")[0])
        return replay(session, trace, policy, **how)

    monkeypatch.setattr(Session, "replay", watched)
    advice = advise([trace], Session(tiny(16)), jobs=1, settings=["MPS"], step=steps.append)
    assert replayed == {"serial", "mps"}
    assert (str(advice.best.setting), advice.best.makespan_us) == ("MPS (50+50 %)", pytest.approx(20.0))
    assert advice.best.makespan_us == min(one.makespan_us for one in advice.choices)
    assert by_mechanism(advice)["in turn"][0].makespan_us == pytest.approx(30.0)
    assert set(by_mechanism(advice)) == set(advice.table["mechanism"]) == {"in turn", "MPS"}
    assert {one["mechanism"] for one in as_json(advice)["choices"]} == {"in turn", "MPS"}
    counts = [one for one in steps if one.endswith("settings replayed")]
    assert len(advice.choices) == 10 and counts[9] == "10 of 10 settings replayed"
    assert set(counts[10:]) == {f"{n} of 20 settings replayed" for n in range(1, 21)}, (
        "the two extremes without counters"
    )
    shown = [str(line.get_label()) for line in slowdowns(advice).axes[0].lines]
    assert shown == ["in turn", "MPS", "Pareto front", "recommended: MPS, 50+50 %"]
    print_advice(advice)
    said = capsys.readouterr().out
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50 for a" in said
    assert not any(other in said for other in ("streams", "priority", "SM split", "green", "time slices"))


def test_names_of_kinds_are_read_as_the_shell_likes_them() -> None:
    found = settings_by(load_gpu("h200"), ["a", "b"], ["sm-split", " Time Slices"])
    assert list(dict.fromkeys(one.mechanism for one in found)) == ["in turn", "SM split", "time slices"]
    assert {one.mechanism for one in settings_by(load_gpu("h200"), ["a", "b"], ["in turn"])} == {"in turn"}


@pytest.mark.parametrize(
    ("gpu", "text", "said"),
    [
        ("h200", "mps,MPS", "names MPS twice; expected each once"),
        ("h200", "mps,", "has an empty name; expected one of in turn, streams, priority, SM split, MPS, MIG, "),
        ("h200", "mpx", "names 'mpx'; expected one of in turn, .*; did you mean MPS?"),
        (
            "k40c",
            "mig",
            "names MIG, and k40c has none for 2 programs; expected one of in turn, streams, ",
        ),
    ],
)
def test_a_kind_of_settings_that_there_is_not_is_refused(
    gpu: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / f"{name}.json") for name in "ab"]
    for file in files:
        Trace(name="one", device=gpu, streams=[stream("main", kernel("k", 2, 10.0))]).save(file)
    assert cli.main(["advise", *files, "--settings", text]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and re.match(f"--settings: {said}", err)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"settings": []}, r"settings: is \[\]; expected a list such as"),
        ({"settings": "mps"}, "settings: is 'mps'; expected a list such as"),
        ({"settings": ["mps"], "ways": []}, "settings: is given with ways; expected one of them"),
    ],
)
def test_kinds_of_settings_are_a_list_of_names(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"^{said}"):
        advised(two(), **how)


@pytest.mark.parametrize(("percent", "chosen"), [(5, "streams"), (15, "MPS")])
def test_a_setting_that_nobody_measured_must_be_far_better(percent: int, chosen: str) -> None:
    """It counts 10 % worse than predicted where another one was measured, and as predicted where none was."""
    advice = advised(two())
    (streams,) = by_mechanism(advice)["streams"]
    mps = replace(by_mechanism(advice)["MPS"][0], makespan_us=streams.makespan_us * (1.0 - percent / 100.0))
    for measured in (HowWrong(ErrorBand("streams", 3.0), ""), HowWrong(None, "nobody")):
        choices = [replace(streams, how_wrong=measured), replace(mps, how_wrong=HowWrong(None, "nobody"))]
        found = advise_module._advice(advice.trace, advice.gpu, "makespan", (), choices, "")
        assert found.best.setting.mechanism == (chosen if measured.band else "MPS")
        assert [one.doubted for one in found.choices if one.setting.mechanism == "MPS"] == [bool(measured.band)]


def test_kernels_that_nobody_measured_are_no_doubt_about_a_setting() -> None:
    """They are the same in every setting, though some kinds of sharing were measured with such kernels."""
    advice = advised(two())
    (streams,) = by_mechanism(advice)["streams"]
    split = replace(by_mechanism(advice)["MPS"][0], makespan_us=streams.makespan_us * 1.05)
    band = HowWrong(ErrorBand("green", 3.0), "")
    uncounted = HowWrong(None, "not validated: kernels without counters in streams", of_kernels=True)
    choices = [replace(streams, how_wrong=uncounted), replace(split, how_wrong=band)]
    found = advise_module._advice(advice.trace, advice.gpu, "makespan", (), choices, "")
    assert found.best.setting.mechanism == "streams" and not any(one.doubted for one in found.choices)


def test_errors_of_the_command_name_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where Python calls an argument ``targets``."""
    two().model_copy(update={"device": "h200"}).save(tmp_path / "t.json")
    assert cli.main(["advise", str(tmp_path / "t.json"), "--slo", "c=x2", "--no-cache"]) == 2
    assert capsys.readouterr().err == "--slo: names program 'c'; expected one of a, b\n"
