"""A kernel launch on the device, from when it is ready to its end."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.model.kernel import KernelModel
from gpusim.policies.interface import KernelView
from gpusim.results.runs import Spans


@dataclass(slots=True)
class Launch:
    """A kernel launch from when it is ready to its end.

    Attributes:
        id: in order of becoming ready.
        model: what is replayed.
        stream, stream_index, priority: of its operation.
        operation, request, index: as in `gpusim.results.runs.KernelRun`.
        queued: when the host queued it, as in `gpusim.policies.interface.KernelView`.
        ready_us, start_us, dispatched_us, end_us: as in `gpusim.results.runs.KernelRun`; the middle two at its end.
        slot: where the SMs know it; None before its launch latency has passed.
        admitted: the policy has let it start.
        bound_by: resource that bound it most of the time; at its end.
        spans: where its blocks ran; at its end, where that is kept.
        spans_shared: the times of these are from its start, not that of the replay.
        pass_number: as in `gpusim.policies.interface.KernelView`.
        of_call: it is of a library's call, of which the trace says what it takes after others (`gpusim.model.context`).
        code_lost: share of its code that the caches have lost, known when its launch latency has passed.
        view: what policies saw of it last.
    """

    id: int
    model: KernelModel
    stream: str
    stream_index: int
    priority: int
    queued: tuple[float, int]
    ready_us: float
    operation: str
    start_us: float = -1.0
    dispatched_us: float = -1.0
    end_us: float = -1.0
    slot: int | None = None
    admitted: bool = False
    bound_by: str = "latency"
    spans: Spans | None = None
    spans_shared: bool = False
    pass_number: int = 0
    request: int = 0
    index: int = 0
    of_call: bool = False
    code_lost: float = 0.0
    view: KernelView | None = None

    @property
    def internal(self) -> bool:
        """Whether it runs on a stream that a library opened itself."""
        return self.model.stream != "main"
