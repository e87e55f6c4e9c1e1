"""Policies of the hardware itself: one kernel after another, and plain CUDA streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import islice

from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import BY_NAME, Grant, KernelView, Partition, Policy, View, parameter
from gpusim.policies.tools.values import known_stream

whole_gpu = lru_cache(4096)(Grant)  # by kernel: one that is given again is the same object, and is not checked again


@dataclass
class Serial(Policy):
    """All kernels one after the other, as if all were in one stream: requests and passes in the order of their release.

    Copies and work on the host run beside, as the trace has them.
    """

    name = "serial"
    summary = "one kernel at a time, stream after stream: what frameworks do by default"
    validated_as = ("modules_serial",)
    single_stream = True

    def partition(self, view: View) -> Partition:
        """Grant all SMs to kernels that have started, else to the first ready kernel of the first stream with one."""
        started = [kernel for kernel in view.kernels if kernel.started]
        chosen = started or sorted(view.kernels, key=_released)[:1]
        if not chosen:
            return Partition(())
        same_stream = [k for k in view.kernels if k.stream == chosen[0].stream]
        return Partition(tuple([whole_gpu(kernel.id) for kernel in same_stream]))


def _released(kernel: KernelView) -> tuple[float, int, int]:
    return kernel.queued[0], kernel.stream_index, kernel.id


@dataclass
class Leftover(Policy):
    """Plain CUDA streams: the head of the line places all its blocks, then the next kernel uses what is left over.

    One line for all (the execution-engine queue of Amert et al. [V]): kernels enter it when they are ready, higher
    priority first, and leave it when their last block is placed; while the first has blocks waiting nobody else
    places any, anywhere.

    Streams reach the line over channels (Bakita and Anderson, RTAS'24 [V]): stream s uses channel s mod C, and a
    channel is first in, first out in the order in which the host queued its kernels. A stream that shares a channel
    so waits until all that was queued before it on the other stream has been placed, though nothing depends on it.
    The host is one thread that queues stream after stream as far as dependencies allow, each request when it is
    released. Streams that a library opens itself are taken to have channels of their own [D].
    """

    name = "leftover"
    summary = (
        "plain CUDA streams: kernels place blocks strictly in order of arrival, higher priority first, most room "
        "first; streams that share a channel wait for one another (Amert et al., RTSS'17; Gilman et al.; Bakita and "
        "Anderson, RTAS'24)"
    )
    validated_as = ("streams", "modules_streams")
    first: str | None = parameter(None, "stream that goes before its equals at one instant", of_streams=BY_NAME)
    channels: int = parameter(8, "channels that streams share in turn; 0: one each", least=0)
    _share_channels: bool = field(default=False, init=False, repr=False)
    _entered: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _entries: int = field(default=0, init=False, repr=False)
    _line: list[int] = field(default_factory=list, init=False, repr=False)

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Check that the trace has the stream that is to go first; as many channels as streams are no limit."""
        if self.first is not None:
            known_stream(self.name, "first", self.first, streams)
        self._share_channels = 0 < self.channels < len(streams)

    def partition(self, view: View) -> Partition:
        """Grants in dispatch order: by priority, then by arrival; of kernels that arrive together ``first`` leads."""
        if not self._share_channels:
            return Partition(tuple([whole_gpu(kernel.id) for kernel in sorted(view.kernels, key=self._place)]))
        return Partition(tuple([whole_gpu(kernel) for kernel in self._through_channels(view)]))

    def _place(self, kernel: KernelView) -> tuple[int, float, bool, int]:
        return (-kernel.priority, kernel.ready_us, kernel.stream != self.first, kernel.id)

    def _through_channels(self, view: View) -> list[int]:
        """The line, followed by the kernels that enter it one after the other as those before them are placed."""
        near, reachable = self._reachable(view)
        order = {kernel: place for place, kernel in enumerate(self._line)}
        channels = self._channels(near, reachable)
        free = [kernel for kernel in reachable if kernel.internal]
        free += [kernel for channel in channels.values() for kernel in channel.freed()]
        for kernel in sorted(free, key=lambda k: (order.get(k.id, len(order)), self._place(k))):
            if kernel.id not in self._entered:
                self._entered[kernel.id] = self._entries
                self._entries += 1
        self._entered = {k.id: self._entered[k.id] for k in view.kernels if k.id in self._entered}
        queue = [(-kernel.priority, self._entered[kernel.id], kernel) for kernel in free]
        heapify(queue)
        places = self._entries
        self._line = []
        while queue:
            _, _, following = heappop(queue)
            self._line.append(following.id)
            if not following.internal:
                for kernel in channels[following.stream_index % self.channels].freed(following.id):
                    heappush(queue, (-kernel.priority, places, kernel))
                    places += 1
        return self._line

    def _reachable(self, view: View) -> tuple[list[KernelView], list[KernelView]]:
        """The kernels that may be reachable, for which nothing behind them counts; of these those that surely are.

        A kernel is not reachable behind one of its channel that is not ready.
        """
        firsts = self._firsts(view.unready())
        channels, latest = self.channels, [first[2] for first in firsts]  # behind that, everybody is
        near = [k for k in view.kernels if k.internal or k.queued <= latest[k.stream_index % channels]]
        return near, [k for k in near if k.internal or not _behind(k, firsts[k.stream_index % channels])]

    def _firsts(self, unready: Mapping[int, tuple[float, int]]) -> list[_Firsts]:
        """For each channel the first of the kernels that are not ready, and the first of another stream."""
        found: list[list[tuple[tuple[float, int], int]]] = [[] for _ in range(self.channels)]
        missing = 2 * self.channels
        for stream in sorted(unready, key=unready.__getitem__):
            heads = found[stream % self.channels]
            if len(heads) < 2:  # each stream has one
                heads.append((unready[stream], stream))
                missing -= 1
                if not missing:
                    break
        return [_first_of_two(heads) for heads in found]

    def _channels(self, kernels: Sequence[KernelView], reachable: Sequence[KernelView]) -> dict[int, _Channel]:
        behind: dict[int, list[KernelView]] = {}
        for kernel in reachable:
            if not kernel.internal:
                behind.setdefault(kernel.stream_index % self.channels, []).append(kernel)
        last = {channel: max(kernel.queued for kernel in found) for channel, found in behind.items()}
        ahead: dict[int, list[tuple[tuple[float, int], int, int]]] = {channel: [] for channel in behind}
        for kernel in kernels:
            channel = kernel.stream_index % self.channels
            if channel in last and kernel.waiting and not kernel.internal and kernel.queued < last[channel]:
                ahead[channel].append((kernel.queued, kernel.stream_index, kernel.id))
        return {channel: _Channel(ahead[channel], found) for channel, found in behind.items()}


_Firsts = tuple[tuple[float, int], int, tuple[float, int]]  # first, its stream, and the first of any other stream
_NEVER = (float("inf"), 0)


class _Channel:
    """Kernels of one channel: those to place, as (when queued, stream, id), and later ones that may overtake them."""

    def __init__(self, ahead: list[tuple[tuple[float, int], int, int]], behind: list[KernelView]) -> None:
        self._ahead = sorted(ahead)
        self._behind = sorted(behind, key=lambda kernel: kernel.queued)
        self._placed: set[int] = set()
        self._begin = 0

    def freed(self, placed: int | None = None) -> list[KernelView]:
        """The kernels, in order of becoming ready, that nothing is ahead of any more once one more is placed."""
        if placed is not None:
            self._placed.add(placed)
        while self._begin < len(self._ahead) and self._ahead[self._begin][2] in self._placed:
            self._begin += 1
        left = islice(self._ahead, self._begin, None)
        first = _first_of_two((queued, stream) for queued, stream, kernel in left if kernel not in self._placed)
        free: list[KernelView] = []
        blocked: list[KernelView] = []
        for at, kernel in enumerate(self._behind):
            if first[2] < kernel.queued:
                blocked += self._behind[at:]
                break
            (blocked if _behind(kernel, first) else free).append(kernel)
        if free:
            self._behind = blocked
        return sorted(free, key=lambda kernel: kernel.id)


def _first_of_two(ascending: Iterable[tuple[tuple[float, int], int]]) -> _Firsts:
    """Of queued kernels with their streams the first, its stream, and the first of another stream."""
    found = iter(ascending)
    first, owner = next(found, (_NEVER, -1))
    return first, owner, next((queued for queued, stream in found if stream != owner), _NEVER)


def _behind(kernel: KernelView, firsts: _Firsts) -> bool:
    """Whether a kernel was queued after the first of another stream."""
    first, owner, other = firsts
    return (first if owner != kernel.stream_index else other) < kernel.queued
