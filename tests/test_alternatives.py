"""Convolutions that an older GPU cannot run as selected: which alternative could, and running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim import cli, load_gpu, load_trace
from gpusim.choose.alternatives import fitting, require_fit
from gpusim.common.errors import InputError
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm, ConvolutionShape, Stream

INCEPTION = Path(__file__).parents[1] / "traces" / "inception_3a.json.gz"
T4, H200 = load_gpu("t4"), load_gpu("h200")
LARGE = 200_000  # bytes of shared memory a block: more than a T4 has, less than an H200
SHAPE = {"batch": 1, "in_channels": 1, "in_height": 8, "in_width": 8, "out_channels": 1, "filter_height": 3}
SHAPE |= {"filter_width": 3, "padding": 1, "stride": 1}


def algorithm(name: str, *kernels: tuple[float, int]) -> ConvolutionAlgorithm:
    """An algorithm of kernels of a duration (us) and shared memory (bytes) each."""
    launches = [
        KernelLaunch(
            name="k",
            grid=(8, 1, 1),
            block=(64, 1, 1),
            registers_per_thread=32,
            dynamic_shared_memory_bytes=shared,
            duration_us=duration_us,
        )
        for duration_us, shared in kernels
    ]
    return ConvolutionAlgorithm(algorithm=name, kernels=tuple(launches))


def traced(selected: ConvolutionAlgorithm, *alternatives: ConvolutionAlgorithm) -> Trace:
    convolution = Convolution(
        id="c",
        kind="convolution",
        shape=ConvolutionShape(**SHAPE),
        direction="fwd",
        selected=selected,
        alternatives=alternatives,
    )
    streams = (Stream(name="s", operations=(convolution,)),)
    return Trace(version=1, name="made", device="h200", streams=streams)


SELECTED = algorithm("LARGE", (10.0, LARGE))
OTHERS = (
    algorithm("PARTLY", (5.0, 0), (5.0, LARGE)),  # its second kernel does not fit either
    algorithm("SLOW", (90.0, 0)),
    algorithm("FAST", (30.0, 0), (30.0, 1024)),
)


def test_the_fastest_alternative_of_which_every_kernel_fits() -> None:
    trace, note = fitting(traced(SELECTED, *OTHERS), T4)
    (convolution,) = trace.operations()
    assert isinstance(convolution, Convolution)
    assert convolution.algorithm == "FAST"
    assert [other.algorithm for other in convolution.alternatives] == ["LARGE", "PARTLY", "SLOW"]
    assert note == "by another algorithm than selected, which fits no SM of t4: c by FAST"


def test_what_fits_stays_as_selected() -> None:
    trace = traced(SELECTED, *OTHERS)
    assert fitting(trace, H200) == (trace, "")
    require_fit(trace, H200)


def test_the_refusal_names_the_alternative() -> None:
    with pytest.raises(InputError) as caught:
        require_fit(traced(SELECTED, *OTHERS), T4)
    assert str(caught.value) == (
        "streams[0].operations[0] (c by LARGE): a block asks for more shared memory than t4 has; expected a kernel "
        "that this GPU can launch: FAST could, --alternatives fitting takes it"
    )


def test_without_an_alternative_that_fits_the_replay_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = traced(SELECTED, OTHERS[0])
    require_fit(trace, T4)  # has nothing to tell
    assert fitting(trace, T4) == (trace, "")
    trace.save(tmp_path / "t.json")
    assert cli.main(["replay", str(tmp_path / "t.json"), "--gpu=t4", "--alternatives=fitting"]) == 2
    assert "asks for more shared memory than t4 has" in capsys.readouterr().err


def test_a_recorded_module_on_a_k40c(capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["replay", str(INCEPTION), "--gpu=k40c", "--policy=serial"]
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    place = "streams[0].operations[0] (3a.1x1 by IMPLICIT_PRECOMP_GEMM/TF32)"
    assert err.startswith(f"{INCEPTION}: {place}: ") and err.count("\n") == 1
    assert "IMPLICIT_PRECOMP_GEMM/FMA could, --alternatives fitting takes it" in err
    assert cli.main([*argv, "--alternatives", "fitting"]) == 0
    assert "note: by another algorithm than selected, which fits no SM of k40c: 3a.1x1 by" in capsys.readouterr().out
    trace, _ = fitting(load_trace(INCEPTION), load_gpu("k40c"))
    require_fit(trace, load_gpu("k40c"))
