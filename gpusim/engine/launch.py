"""A kernel launch on the device, from when it is ready to its end."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.model.kernel import KernelModel
from gpusim.policies.interface import KernelView
from gpusim.results.runs import Spans


@dataclass(slots=True)
class Launch:
    """A kernel launch from when it is ready to its end."""

    id: int  # in order of becoming ready
    model: KernelModel  # what is replayed
    stream: str  # of its operation
    stream_index: int  # its position
    priority: int  # of the stream
    queued: tuple[float, int]  # when the host queued it, as in `gpusim.policies.interface.KernelView`
    ready_us: float  # as in `gpusim.results.runs.KernelRun`
    operation: str  # id of its operation
    start_us: float = -1.0  # as in `gpusim.results.runs.KernelRun`; known at its end
    dispatched_us: float = -1.0  # likewise
    end_us: float = -1.0  # likewise
    slot: int | None = None  # where the SMs know it; None before its launch latency has passed
    admitted: bool = False  # the policy has let it start
    bound_by: str = "latency"  # resource that bound it most of the time; at its end
    spans: Spans | None = None  # where its blocks ran; at its end, where that is kept
    spans_shared: bool = False  # the times of these are from its start, not that of the replay
    request: int = 0  # as in `gpusim.results.runs.KernelRun`
    index: int = 0  # likewise
    # it is of a library's call, of which the trace says what it takes after others (`gpusim.model.context`)
    of_call: bool = False
    code_lost: float = 0.0  # share of its code that the caches have lost, known when its launch latency has passed
    view: KernelView | None = None  # what policies saw of it last

    @property
    def internal(self) -> bool:
        """Whether it runs on a stream that a library opened itself."""
        return self.model.stream != "main"
