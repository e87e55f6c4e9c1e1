"""How long a policy takes to decide on a partition: under 10 ms for two kernels, under 100 ms for eight.

pytest -m benchmark tests/benchmarks/test_deciding.py -s
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import pytest

from gpusim import load_gpu, load_trace
from gpusim.hardware.gpu import GPU
from gpusim.policies.hardware import Leftover
from gpusim.policies.interface import Partition, View
from gpusim.policies.oracles import Oracle
from gpusim.policies.registry import policies, policy_from
from gpusim.session import Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Stream

H200 = load_gpu("h200")
SESSION = Session(H200)
GOOGLENET = load_trace(Path(__file__).resolve().parents[2] / "traces" / "googlenet_forward.json.gz")
RULES = [name for name, policy in policies().items() if not issubclass(policy, Oracle)]
LIMIT_MS = {2: 10.0, 8: 100.0}
REPEATS = 5
VARIANTS = [
    "inter-sm:rule=smart-even",
    "inter-sm:rule=rounds",
    "inter-sm:rule=profile",
    "warped-slicer:objective=stp,loss=1",
    "warped-slicer:mitigation=dmil,loss=1",
    "warped-slicer:curve=profiled",
    "smk:mitigation=dmil",
]


class Timed(Leftover):
    """Runs as left-over; when all streams have kernels, lets another policy decide a few times and takes the time."""

    def __init__(self, text: str, streams: int) -> None:
        super().__init__()
        self.text = text
        self.streams = streams
        self.took_ms: list[float] = []

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        self.names = streams
        super().prepare(gpu, streams)

    def partition(self, view: View) -> Partition:
        if len(view.kernels) == self.streams and not self.took_ms:
            for _ in range(REPEATS):
                policy = policy_from(self.text)
                policy.prepare(view.gpu, self.names)
                start = perf_counter()
                policy.partition(view)
                self.took_ms.append(1e3 * (perf_counter() - start))
        return super().partition(view)


def one_convolution_each(streams: int) -> Trace:
    """So many streams, each with one convolution of GoogLeNet, no two of one layer."""
    found = [op for stream in GOOGLENET.streams for op in stream.operations if op.launches()]
    chosen = [found[7 * i % len(found)].model_copy(update={"id": f"op{i}", "depends_on": ()}) for i in range(streams)]
    return GOOGLENET.model_copy(
        update={"streams": tuple(Stream(name=f"s{i}", operations=(op,)) for i, op in enumerate(chosen))}
    )


@pytest.mark.parametrize("kernels", sorted(LIMIT_MS))
@pytest.mark.parametrize("text", [*RULES, *VARIANTS])
def test_deciding_is_quick(text: str, kernels: int) -> None:
    trace = one_convolution_each(kernels)
    timed = Timed(text, kernels)
    SESSION.replay(trace, timed, keep=["placements"])
    took = max(timed.took_ms)  # the first: what is predicted of a mix is worked out once
    print(f"{text:28} {kernels} kernels: {took:7.3f} ms")
    assert took < LIMIT_MS[kernels]
