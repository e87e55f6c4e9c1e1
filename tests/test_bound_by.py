"""What bound a kernel: a result says of a kernel that ran alone what policies were told before it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny import fitted, shipped_traces

from gpusim import load_gpu, load_trace
from gpusim.policies.hardware import Serial
from gpusim.policies.interface import Partition, View
from gpusim.studies.rules import replay_rule as replay
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch
from gpusim.trace.operations import Kernel, Stream

TRACES = Path(__file__).resolve().parent.parent / "traces"


@dataclass
class Told(Serial):
    """Serial, which remembers what it was told of each kernel."""

    bound_by: dict[int, str] = field(default_factory=dict)

    def partition(self, view: View) -> Partition:
        self.bound_by |= {kernel.id: kernel.bound_by for kernel in view.kernels}
        return super().partition(view)


@pytest.mark.parametrize("path", shipped_traces(TRACES), ids=lambda path: path.name.split(".")[0])
def test_a_kernel_alone_is_bound_by_what_policies_are_told(path: Path) -> None:
    recorded = load_trace(path)
    gpu = load_gpu(recorded.device)
    launches: dict[KernelLaunch, None] = {
        launch.model_copy(update={"stream": "main"}): None for op in recorded.operations() for launch in op.launches()
    }
    operations = tuple(Kernel(id=f"k{i}", kind="kernel", kernel=launch) for i, launch in enumerate(launches))
    alone = Trace(version=1, name="alone", device=recorded.device, streams=(Stream(name="a", operations=operations),))
    policy = Told()
    result = replay(alone, gpu, policy, kernels=fitted(recorded.device))
    assert [run.bound_by for run in result.kernel_runs] == [policy.bound_by[i] for i in range(len(launches))]
