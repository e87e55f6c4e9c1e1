"""The host: release times of requests, and the order in which their kernels are queued on their streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from gpusim.trace.format import Trace
from gpusim.trace.operations import Stream


def release_times(stream: Stream) -> list[float | None]:
    """When each request of a stream is released (us); None: when the one before it has ended.

    A stream without arrivals is one request at 0; a loop releases each pass when the last has ended; Poisson
    arrivals have exponential gaps drawn from Python's own generator with the stream's seed.
    """
    arrivals = stream.arrivals
    if arrivals is None:
        return [0.0]
    if arrivals.kind == "times":
        return list(arrivals.times_us)
    if arrivals.kind == "loop":
        return [0.0] + [None] * (arrivals.count - 1)
    random = Random(arrivals.seed)
    times: list[float | None] = []
    now = 0.0
    for _ in range(arrivals.count):
        now += random.expovariate(arrivals.rate_per_s) * 1e6
        times.append(now)
    return times


@dataclass(slots=True)
class HostQueue:
    """Queue of the host for one stream."""

    first: dict[str, int]  # for each operation that launches kernels, the place of its first launch in the host's order
    order: list[int]  # places of the launches on the stream itself (not on streams of a library), ascending
    releases: list[float | None]  # when each request is released, None: when the one before has ended
    request: int = 0  # the one under way
    handed: int = 0  # launches of it that became ready
    # when the next launch is queued that is not ready yet; None: not before a request ends, or never
    next: tuple[float, int] | None = None

    def begin(self, request: int, release: float) -> None:
        """A request is under way."""
        self.request, self.handed = request, 0
        if request == len(self.releases):  # of a stream that restarts
            self.releases.append(None)
        self.releases[request] = release
        self.look_ahead()

    def hand_over(self, operation: str, at: int, internal: bool) -> tuple[float, int]:
        """Count a launch as ready; return its enqueue time and index."""
        if not internal:
            self.handed += 1
            self.look_ahead()
        return (self.releases[self.request] or 0.0, self.first[operation] + at)

    def look_ahead(self) -> None:
        """Find the next operation to launch."""
        request, handed = self.request, self.handed
        if handed == len(self.order):
            request, handed = request + 1, 0
        release = self.releases[request] if request < len(self.releases) and self.order else None
        self.next = None if release is None else (release, self.order[handed])


def host_queues(trace: Trace) -> list[HostQueue]:
    """How one host thread queues a trace: stream after stream, each as far as it waits only for what is queued."""
    queues = [HostQueue({}, [], release_times(stream)) for stream in trace.streams]
    left = [list(reversed(stream.operations)) for stream in trace.streams]
    queued: set[str] = set()
    place = 0
    while any(left):
        for queue, operations in zip(queues, left, strict=True):
            while operations and queued.issuperset(operations[-1].depends_on):
                op = operations.pop()
                queued.add(op.id)
                queue.first[op.id] = place
                for launch in op.launches():
                    if launch.stream == "main":
                        queue.order.append(place)
                    place += 1
    for queue in queues:
        queue.look_ahead()
    return queues


def unready(queues: Sequence[HostQueue], now: float) -> dict[int, tuple[float, int]]:
    """By stream: the enqueue time and index of its next launch, if that is enqueued and not yet ready."""
    return {index: first for index, queue in enumerate(queues) if (first := queue.next) is not None and first[0] <= now}
