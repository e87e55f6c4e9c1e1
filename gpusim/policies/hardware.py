"""What the hardware does by itself: one kernel after another, and plain CUDA streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusim.gpu import GPU
from gpusim.policies.base import Grant, KernelView, Partition, Policy, View
from gpusim.policies.values import known_stream, wrong


@dataclass
class Serial(Policy):
    """All streams one after the other, as if all were in one stream; streams that restart take turns, pass by pass."""

    name = "serial"
    summary = "one kernel at a time, stream after stream: what frameworks do by default"

    def partition(self, view: View) -> Partition:
        """Run what has started, else the first ready kernel of the first stream that can go on."""
        started = [kernel for kernel in view.kernels if kernel.started]
        chosen = started or sorted(view.kernels, key=lambda kernel: (kernel.turn, kernel.stream_index, kernel.id))[:1]
        if not chosen:
            return Partition(())
        same_stream = [k for k in view.kernels if k.stream == chosen[0].stream]
        return Partition(tuple(Grant(kernel.id) for kernel in same_stream))


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
    first: str | None = field(default=None, metadata={"help": "stream that goes before its equals at one instant"})
    channels: int = field(default=8, metadata={"help": "channels that streams share in turn; 0: one each"})
    _share_channels: bool = field(default=False, init=False, repr=False)
    _entered: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _line: list[int] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check what needs no trace."""
        if self.channels < 0:
            raise wrong(self.name, f"channels={self.channels} is below 0", "0 or more")

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Check that the trace has the stream that is to go first; as many channels as streams are no limit."""
        if self.first is not None:
            known_stream(self.name, "first", self.first, streams)
        self._share_channels = 0 < self.channels < len(streams)

    def partition(self, view: View) -> Partition:
        """The line: by priority, then by when kernels got there; ``first`` goes before those that came with it."""
        if not self._share_channels:
            return Partition(tuple(Grant(kernel.id) for kernel in sorted(view.kernels, key=self._place)))
        return Partition(tuple(Grant(kernel) for kernel in self._through_channels(view)))

    def _place(self, kernel: KernelView) -> tuple[int, float, bool, int]:
        return (-kernel.priority, kernel.ready_us, kernel.stream != self.first, kernel.id)

    def _through_channels(self, view: View) -> list[int]:
        """The line, followed by the kernels that enter it one after the other as those before them are placed."""
        held_up = dict(view.unready())
        ahead = {kernel.id: self._ahead(kernel, view.kernels) for kernel in view.kernels}
        reachable = [kernel for kernel in view.kernels if not self._held_up(kernel, held_up)]
        known = [kernel for kernel in self._line if kernel in ahead]
        order = {kernel: place for place, kernel in enumerate(known)}
        free = [kernel for kernel in reachable if not ahead[kernel.id]]
        for kernel in sorted(free, key=lambda k: (order.get(k.id, len(order)), self._place(k))):
            self._entered.setdefault(kernel.id, len(self._entered))
        entered, places = dict(self._entered), len(self._entered)
        self._line = []
        while free:
            following = min(free, key=lambda k: (-k.priority, entered[k.id]))
            free.remove(following)
            self._line.append(following.id)
            for kernel in reachable:
                if following.id in ahead[kernel.id]:
                    ahead[kernel.id].remove(following.id)
                    if not ahead[kernel.id]:
                        entered[kernel.id] = places
                        places += 1
                        free.append(kernel)
        return self._line

    def _ahead(self, kernel: KernelView, kernels: Sequence[KernelView]) -> set[int]:
        """Ready kernels that the channel of this one has to place before it."""
        return {
            other.id
            for other in kernels
            if other.waiting and self._same_channel(kernel, other.stream_index, other.queued) and not other.internal
        }

    def _held_up(self, kernel: KernelView, unready: Mapping[int, tuple[float, int]]) -> bool:
        """Whether the channel holds a kernel before this one that is not ready."""
        return any(self._same_channel(kernel, stream, queued) for stream, queued in unready.items())

    def _same_channel(self, kernel: KernelView, stream: int, queued: tuple[float, int]) -> bool:
        """Whether a kernel has to pass the channel behind one of another stream that was queued at ``queued``."""
        return (
            not kernel.internal
            and stream != kernel.stream_index
            and stream % self.channels == kernel.stream_index % self.channels
            and queued < kernel.queued
        )
