"""A part of a profile: a step, a range, a window; what is not there is answered with what is."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from profiles import refused
from test_import_kineto import call, kernel, write
from test_import_nsys import imported as nsys_imported
from test_import_nsys import kernel as nsys_kernel

from gpusim import Trace, cli, import_profile
from gpusim.commands.part import time_us
from gpusim.io import nsys
from gpusim.io.part import Part

H200 = [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]


def annotation(name: str, ts: float, dur: float) -> dict[str, object]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": 1, "args": {}}


def profile(path: Path) -> Path:
    """Two steps of two kernels, which the GPU runs after the host has gone on; the second step's launches are known."""
    events = [
        annotation("ProfilerStep#3", 0, 10),
        annotation("ProfilerStep#4", 10, 10),
        annotation("forward", 0, 5),
        annotation("forward", 10, 5),
        *(call("cudaLaunchKernel", order, at) for order, at in ((1, 2), (2, 7), (3, 12), (4, 17))),
        *(kernel(f"k{order}", 100 * order, 50, order=order) for order in (1, 2, 3, 4)),
    ]
    return write(path, events, deviceProperties=H200)


def names(trace: Trace) -> list[str]:
    return [launch.name for op in trace.operations() for launch in op.launches()]


@pytest.mark.parametrize(
    ("part", "found"),
    [
        (Part(step=3), ["k1", "k2"]),
        (Part(step=4), ["k3", "k4"]),
        (Part(range="forward"), ["k1"]),
        (Part(range="forward@2"), ["k3"]),
        (Part(step=4, range="forward@2"), ["k3"]),
        (Part(from_us=100.0), ["k2", "k3", "k4"]),
        (Part(from_us=100.0, to_us=300.0), ["k2", "k3"]),
        (Part(), ["k1", "k2", "k3", "k4"]),
    ],
)
def test_a_part_is_what_was_launched_then(tmp_path: Path, part: Part, found: list[str]) -> None:
    assert names(import_profile(profile(tmp_path / "p.json"), part=part).trace) == found


def test_steps_of_profiles_without_annotations_are_operators(tmp_path: Path) -> None:
    """As PyTorch before 1.11 writes them."""
    steps = [annotation(f"ProfilerStep#{n}", 10 * n, 10) | {"cat": "Operator"} for n in (3, 4)]
    launches = [call("cudaLaunchKernel", order, at) for order, at in ((1, 32), (2, 42))]
    kernels = [kernel(f"k{order}", 100 * order, 50, order=order) for order in (1, 2)]
    path = write(tmp_path / "p.json", [*steps, *launches, *kernels], deviceProperties=H200)
    assert names(import_profile(path, part=Part(step=4)).trace) == ["k2"]


def test_the_notes_say_which_part(tmp_path: Path) -> None:
    notes = import_profile(profile(tmp_path / "p.json"), part=Part(range="forward")).trace.notes
    assert "Only range forward, the first of 2 of that name (--range forward@2 is the next): 3 of 4" in notes


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (Part(step=7), " step: 7 is not in the profile; expected one of the steps 3, 4"),
        (Part(range="foward"), " range: 'foward' is not in the profile; expected one of forward (2), ProfilerStep#3, "
                               "ProfilerStep#4; did you mean forward?"),
        (Part(range="forward@3"), "'forward@3' is not there; expected forward@1 to forward@2"),
        (Part(from_us=5000.0), "has no GPU activity in the time from 5000 us on; expected a part in which the "
                               "GPU worked; the profile is 350 us long"),
        (Part(from_us=5.0, to_us=5.0), " to_us: is 5 us; expected more than 5 us, where the part begins"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_answered_with_what_is(tmp_path: Path, part: Part, said: str) -> None:
    assert said in refused(profile(tmp_path / "p.json"), part=part)


def test_ranges_of_nsys_are_those_of_nvtx(tmp_path: Path) -> None:
    calls = [
        {"start": start, "end": start + 10, "globalTid": (5 << 24) + 9, "correlationId": order, "nameId": 1}
        for order, start in ((1, 1000), (2, 6000))
    ]
    ranges = [
        {"start": 0, "end": 5000, "text": "encode", "textId": None, "globalTid": 1},
        {"start": 5000, "end": 9000, "text": None, "textId": 2, "globalTid": 1},
        {"start": 5000, "end": None, "text": "mark", "textId": None, "globalTid": 1},
    ]
    tables = {nsys.KERNELS: [nsys_kernel(20_000, 21_000, 1), nsys_kernel(30_000, 32_000, 2)], nsys.CALLS: calls,
              nsys.NVTX: ranges}  # fmt: skip
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = nsys_imported(tmp_path / "a", tables, part=Part(range="encode")).trace
    second = nsys_imported(tmp_path / "b", tables, part=Part(range="gemm")).trace
    durations = [[launch.duration_us for op in t.operations() for launch in op.launches()] for t in (first, second)]
    assert durations == [[1.0], [2.0]]


def test_launches_of_nsys_are_named_after_the_range_around_their_call(tmp_path: Path) -> None:
    thread = (5 << 24) + 9
    calls = [
        {"start": start, "end": start + 10, "globalTid": thread, "correlationId": order, "nameId": 1}
        for order, start in ((1, 1000), (2, 6000))
    ]
    ranges = [
        {"start": 0, "end": 5000, "text": "aten::mm, seq = 7, op_id = 12", "textId": None, "globalTid": thread},
        {"start": 5000, "end": 9000, "text": "elsewhere", "textId": None, "globalTid": thread + 1},
    ]
    tables = {nsys.KERNELS: [nsys_kernel(20_000, 21_000, 1), nsys_kernel(30_000, 32_000, 2)], nsys.CALLS: calls,
              nsys.NVTX: ranges}  # fmt: skip
    assert [op.id for op in nsys_imported(tmp_path, tables).trace.operations()] == ["aten::mm/0/0", "kernel/0"]


def test_a_profile_without_ranges_says_how_to_have_them(tmp_path: Path) -> None:
    path = write(tmp_path / "p.json", [kernel("k", 0)], deviceProperties=H200)
    assert "expected a profile with ranges: NVTX under nsys --trace=cuda,nvtx" in refused(path, part=Part(range="a"))
    assert "torch.profiler.profile whose step() is called" in refused(path, part=Part(step=1))


@pytest.mark.parametrize(("text", "us"), [("12ms", 12e3), ("1.5s", 1.5e6), ("300us", 300.0), ("7", 7.0)])
def test_times_have_units(text: str, us: float) -> None:
    assert time_us(text) == pytest.approx(us)


@pytest.mark.parametrize("text", ["", "ms", "3x", "-1ms", "1e3us"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected a time from the profile's first GPU activity, as 12ms"):
        time_us(text)


def test_the_command_takes_a_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = profile(tmp_path / "p.json"), tmp_path / "t.json"
    assert cli.main(["import", str(path), "-o", str(out), "--step", "4"]) == 0
    assert "Only step 4: 2 of 4 GPU activities are left out." in capsys.readouterr().out
    assert cli.main(["import", str(path), "-o", str(out), "--from", "100us", "--to", "0.3ms"]) == 0
    assert cli.main(["import", str(path), "-o", str(out), "--range", "nothing"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{path}: --range: 'nothing' is not in the profile; expected ") and said.count("\n") == 1
