"""Calls of cuDNN to record: work with an algorithm and its arithmetic, in the words of `convolutions/calls.cuh`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpusim.training.networks.steps import CONVOLUTION, CallWork, Step

MATHS = ("FMA", "TF32")
ALGORITHMS = {  # of cuDNN's legacy API, by direction
    "fwd": (
        "IMPLICIT_GEMM",
        "IMPLICIT_PRECOMP_GEMM",
        "GEMM",
        "DIRECT",
        "FFT",
        "FFT_TILING",
        "WINOGRAD",
        "WINOGRAD_NONFUSED",
    ),
    "bwd_data": ("ALGO_0", "ALGO_1", "FFT", "FFT_TILING", "WINOGRAD", "WINOGRAD_NONFUSED"),
    "bwd_filter": ("ALGO_0", "ALGO_1", "FFT", "ALGO_3", "WINOGRAD", "WINOGRAD_NONFUSED", "FFT_TILING"),
}


@dataclass(frozen=True, slots=True)
class Call:
    """A call."""

    network: str  # the network in which the work occurs first
    layer: str  # its layer there
    work: CallWork  # what it computes
    algorithm: str  # of a convolution one of `ALGORITHMS`, else the kind of the work
    math: str  # FMA or TF32; layers between convolutions have FMA only

    @property
    def op(self) -> str:
        """Its name: network/layer/direction/algorithm/math."""
        return f"{self.network}/{self.layer}/{self.work.direction}/{self.algorithm}/{self.math}"

    @property
    def line(self) -> str:
        """As the program reads it."""
        work = self.work
        numbers = (work.batch, work.channels, work.height, work.width, work.out_channels, *work.kernel, *work.padding)
        return " ".join(map(str, (self.op, work.direction, *numbers, work.stride, self.algorithm, self.math)))


def calls_of(network: str, steps: Iterable[Step], maths: Sequence[str] = MATHS) -> list[Call]:
    """The calls to record for some steps: equal work once, named after the first step that has it."""
    layers: dict[CallWork, str] = {}
    for step in steps:
        layers.setdefault(step.work, step.layer)
    calls = []
    for work, layer in layers.items():
        if work.kind == CONVOLUTION:
            calls += [Call(network, layer, work, name, math) for name in ALGORITHMS[work.direction] for math in maths]
        else:
            calls.append(Call(network, layer, work, work.kind, "FMA"))
    return calls
