"""What bound a kernel: a result says of a kernel that ran alone what policies were told before it ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tiny import copy, launch, played, run_of, session_on, shipped_traces, stream, tiny

from gpusim import load_trace
from gpusim.policies.hardware import Serial
from gpusim.policies.interface import Partition, View
from gpusim.trace.format import Trace
from gpusim.trace.kernels import KernelLaunch, Mix, WarpStalls
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
    launches: dict[KernelLaunch, None] = {
        launch.model_copy(update={"stream": "main"}): None for op in recorded.operations() for launch in op.launches()
    }
    operations = tuple(Kernel(id=f"k{i}", kind="kernel", kernel=launch) for i, launch in enumerate(launches))
    alone = Trace(version=1, name="alone", device=recorded.device, streams=(Stream(name="a", operations=operations),))
    policy = Told()
    result = session_on(recorded.device).replay(alone, policy)
    assert [run.bound_by for run in result.kernel_runs] == [policy.bound_by[i] for i in range(len(launches))]


def on_fma(id: str, blocks: int, us: float, busy: float, waits: float) -> Kernel:
    """One that keeps the FMA pipes busy, and of whose 11 stalls an instruction some wait for no other warp."""
    cycles = us * tiny().boost_clock_mhz
    each = 4.0 / 0.05 / 11.0  # 4 warps a scheduler that issue in a twentieth of the slots: all their time has a reason
    nothing = ("alu_cycles", "tensor_cycles", "lsu_cycles", "l1_cycles", "dram_read_bytes", "dram_write_bytes")
    mix = Mix(
        issue_cycles=0.05 * cycles * 4 / blocks,
        fma_cycles=busy * cycles * 4 / blocks,
        active_cycles_avg=cycles,
        active_cycles_max=cycles,
        achieved_warps_per_sm=16.0,
        stalls=WarpStalls(selected=each, wait=each * waits, math_pipe_throttle=each * (10.0 - waits)),
        **dict.fromkeys((*nothing, "l2_bytes", "l2_read_bytes", "l2_write_bytes", "l2_busy_us"), 0.0),
    )
    made = launch(blocks, us, threads=512).model_copy(update={"mix": mix, "registers_per_thread": 32})
    return Kernel(id=id, kind="kernel", kernel=made)


@pytest.mark.parametrize(
    ("comes_us", "takes_us", "bound"),
    [
        (None, 0.0, "latency"),
        (0.0, 20.0, "latency"),
        (0.0, 40.0, "fma"),
        (10.0, 100.0, "latency"),  # it is the older one then, and goes first
        (40.0, 100.0, "latency"),
    ],
)
def test_what_binds_a_kernel_is_booked_by_the_mix_that_ran(comes_us: float | None, takes_us: float, bound: str) -> None:
    """Alone it is latency, beside an older one the FMA pipes: it counts which was longer."""
    streams = [stream("a", on_fma("a", 4, 50.0, 0.3, 9.0))]
    if comes_us is not None:
        before = (copy("before", comes_us),) if comes_us else ()
        streams.insert(0, stream("b", *before, on_fma("b", 8, takes_us, 0.8, 1.0)))
    assert run_of(played("leftover", *streams), "a").bound_by == bound
