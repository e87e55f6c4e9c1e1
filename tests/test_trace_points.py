"""Scaling points out of a second profile: which kernels get one, and which profiles are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny

import gpusim
from gpusim import InputError, Trace
from gpusim.cli import main
from gpusim.trace.kernels import ScalingPoint


def program(*kernels: tuple[int, float], sms: int | None = None, streams: int = 1, name: str = "whole") -> Trace:
    """A profile's trace: in each stream kernels of so many blocks and such durations, and a copy between them."""

    def stream(number: int) -> gpusim.Stream:
        made = [tiny.kernel(f"s{number}k{i}", blocks, us) for i, (blocks, us) in enumerate(kernels)]
        on = [op.model_copy(update={"kernel": op.kernel.model_copy(update={"recorded_sms": sms})}) for op in made]
        return tiny.stream(f"s{number}", on[0], tiny.copy(f"s{number}copy", 1.0), *on[1:])

    found = tiny.trace(*map(stream, range(streams)), device="h200")
    return found.model_copy(update={"name": name})


def points_of(trace: Trace) -> list[tuple[ScalingPoint, ...] | None]:
    return [launch.scaling for launch in trace.launches()]


def test_every_kernel_gets_the_time_that_it_took_on_a_part_of_the_sms() -> None:
    whole = program((132, 10.0), (264, 20.0), streams=2)
    found = gpusim.with_points(whole, [program((132, 30.0), (264, 70.0), sms=32, streams=2)])
    assert points_of(found) == [(ScalingPoint(sms=32, duration_us=us),) for us in (30.0, 70.0)] * 2
    assert [op.id for op in found.operations()] == [op.id for op in whole.operations()]
    again = gpusim.with_points(found, [program((132, 15.0), (264, 40.0), sms=72, streams=2)])
    assert again == gpusim.with_points(
        whole, [program((132, us), (264, more), sms=sms, streams=2) for sms, us, more in ((32, 30, 70), (72, 15, 40))]
    )
    assert points_of(again)[0] == (ScalingPoint(sms=32, duration_us=30.0), ScalingPoint(sms=72, duration_us=15.0))


def test_a_kernel_that_was_another_one_gets_no_point() -> None:
    found = gpusim.with_points(program((132, 10.0), (264, 20.0)), [program((132, 30.0), (64, 70.0), sms=32)])
    assert points_of(found) == [(ScalingPoint(sms=32, duration_us=30.0),), None]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([program((132, 10.0), name="part")], "recorded_sms: part was recorded on all SMs; expected the profile of a"),
        (
            [program((132, 1.0), (1, 1.0), sms=32, name="part")],
            "stream s0: has 1 kernel, in part 2; expected",
        ),
        ([program((132, 1.0), sms=32, streams=2, name="part")], "streams: are 1, those of part 2; expected"),
        ([program((132, 1.0), sms=32)] * 2, "scaling: gives 32 SMs twice; expected each number of SMs once"),
        ([program((132, 1.0), sms=sms) for sms in (16, 32, 72)], "scaling: "),
        ([], r"parts: is \[\]; expected a list of traces"),
        (program((132, 1.0), sms=32), "parts: is "),
    ],
)
def test_what_is_no_other_profile_of_the_program_is_refused(parts: list[Trace], said: str) -> None:
    with pytest.raises(InputError, match=said):
        gpusim.with_points(program((132, 10.0)), parts)


def test_a_part_of_two_processes_is_refused() -> None:
    mixed = program((132, 1.0), sms=32, name="part")
    stream = program((132, 1.0), sms=16).streams[0]
    other = stream.model_copy(update={"name": "t", "operations": (tiny.kernel("t", 132, 1.0),)})
    both = mixed.model_copy(update={"streams": (*mixed.streams, other)})
    with pytest.raises(InputError, match="recorded_sms: part was recorded on 32 SMs and others; expected the profile"):
        gpusim.with_points(program((132, 10.0), streams=2), [both])


def test_a_trace_of_convolutions_is_refused() -> None:
    with pytest.raises(InputError, match=r"3a\.1x1: is a convolution of inception_3a; expected kernels"):
        gpusim.with_points("sample:inception_3a", [program((132, 1.0), sms=32, streams=4)])


def test_the_command_writes_the_trace_and_counts_the_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, part, out = (tmp_path / f"{name}.json" for name in ("whole", "part", "out"))
    program((132, 10.0), (264, 20.0)).save(whole)
    program((132, 30.0), (64, 70.0), sms=32).save(part)
    assert main(["trace", "points", str(whole), str(part), "-o", str(out)]) == 0
    assert capsys.readouterr().out == f"{out}: 1 of 2 kernels with times on a part of the SMs\n"
    assert gpusim.load_trace(out) == gpusim.with_points(whole, [part])
    assert main(["trace", "points", str(whole), str(whole), "-o", str(out)]) == 2
    assert "recorded_sms: whole was recorded on all SMs" in capsys.readouterr().err
    assert gpusim.load_trace(out) == gpusim.with_points(whole, [part])
