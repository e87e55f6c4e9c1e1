"""Algorithms that complement one another: the two of the paper's table, and the rule by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpusim import cli, load_gpu, load_trace
from gpusim.calibrate.fit import anchored
from gpusim.choose.pairs import complementary, computes, pairs
from gpusim.choose.profile import complements, contended, profile
from gpusim.trace.kernels import KernelLaunch, Mix

TRACES = Path(__file__).resolve().parent.parent / "traces"
K40C = load_gpu("k40c")
Capture = pytest.CaptureFixture[str]


def launch(registers: int, shared: int, alu: float, stalls: float, threads: int = 256) -> KernelLaunch:
    """A kernel that is busy and waits for memory as a paper's table tells, in percent."""
    return KernelLaunch(
        name=f"r{registers}s{shared}",
        grid=(600, 1, 1),
        block=(threads, 1, 1),
        registers_per_thread=registers,
        dynamic_shared_memory_bytes=shared,
        duration_us=100.0,
        mix=Mix(alu_utilisation_percent=alu, memory_stall_percent=stalls),
    )


def is_case(a: KernelLaunch, b: KernelLaunch) -> bool:
    one, other = anchored(a, K40C, "a"), anchored(b, K40C, "b")
    assert complementary(one, other, K40C) == complementary(other, one, K40C)
    return complementary(one, other, K40C)


COMPUTES = launch(96, 2048, 70.0, 1.0)  # 100 % of the registers, little shared memory
WAITS = launch(16, 12000, 20.0, 15.0)  # most of the shared memory, few registers


def test_one_computes_and_holds_registers_the_other_waits_and_holds_shared_memory() -> None:
    assert is_case(COMPUTES, WAITS)


@pytest.mark.parametrize(
    ("why", "other"),
    [
        ("both hold registers", launch(96, 2048, 20.0, 15.0)),
        ("both compute", launch(16, 12000, 60.0, 15.0)),
        ("it waits less for memory", launch(16, 12000, 20.0, 0.5)),
    ],
)
def test_what_is_no_case(why: str, other: KernelLaunch) -> None:
    assert not is_case(COMPUTES, other), why


def test_blocks_that_do_not_fit_together_are_no_case() -> None:
    large = launch(96, 2048, 70.0, 1.0, threads=640)  # 61,440 registers
    waits = launch(32, 12000, 20.0, 15.0)  # 8,192 more are over the 65,536 of an SM
    assert not is_case(large, waits)


def test_the_two_of_table_1_are_a_case() -> None:
    """PRECOMP_GEMM of the 3x3 beside FFT_TILING of the 5x5: 92 against 38 % of the registers, 39 against 75 % of shared
    memory, ALUs busy 70 and 20 %, memory stalls 0.47 and 16.5 %."""
    found = pairs(load_trace(TRACES / "spaa20_table1.json"), K40C)
    assert (found.independent, len(found.cases)) == (1, 1)
    (case,) = found.cases
    assert [side.algorithm for side in case.sides] == ["IMPLICIT_PRECOMP_GEMM/FMA", "FFT_TILING/FMA"]
    assert [side.holds[0] for side in case.sides] == ["registers", "shared memory"]
    assert case.gaining == 1 and case.gain > 1.0
    assert case.together_us < case.serial_us


def test_what_two_profiles_complement_and_contend_for() -> None:
    one, other = (profile([anchored(launch, K40C, "a")], K40C) for launch in (COMPUTES, WAITS))
    assert computes(one) == pytest.approx(0.7, abs=0.1)
    assert "issue" in complements(one, other)
    assert contended(one, one) == ["issue"]


def test_json_of_the_command(capsys: Capture) -> None:
    assert cli.main(["pairs", str(TRACES / "spaa20_table1.json"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content) == [
        "version",
        "trace",
        "gpu",
        "independent_pairs",
        "complementary_pairs",
        "complementary_combinations",
        "gaining_combinations",
        "gaining_pairs",
        "faster_than_serial_fastest",
        "faster_than_streams_fastest",
        "pairs",
    ]
    (pair,) = content["pairs"]
    assert [side["operation"] for side in pair["sides"]] == ["3a.3x3", "3a.5x5"]


def test_the_table_of_the_command(capsys: Capture) -> None:
    assert cli.main(["pairs", str(TRACES / "spaa20_table1.json")]) == 0
    out = capsys.readouterr().out
    assert "1 of 1 pairs of independent convolutions" in out and "rule: " in out


def test_a_trace_that_is_none_is_one_line(capsys: Capture, tmp_path: Path) -> None:
    assert cli.main(["pairs", str(tmp_path / "none.json")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
