"""What the hardware does by itself: one kernel after another, and plain CUDA streams."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.policies.base import Grant, KernelView, Partition, Policy, View


@dataclass
class Serial(Policy):
    """All streams one after the other, as if all were in one stream."""

    name = "serial"
    summary = "one kernel at a time, stream after stream: what frameworks do by default"

    def partition(self, view: View) -> Partition:
        """Run what has started, else the first ready kernel of the first stream that can go on."""
        started = [kernel for kernel in view.kernels if kernel.started]
        chosen = started or sorted(view.kernels, key=lambda kernel: (kernel.stream_index, kernel.id))[:1]
        if not chosen:
            return Partition(())
        same_stream = [k for k in view.kernels if k.stream == chosen[0].stream]
        return Partition(tuple(Grant(kernel.id) for kernel in same_stream))


@dataclass
class Leftover(Policy):
    """Plain CUDA streams: the head of the line places all its blocks, then the next kernel uses what is left over."""

    name = "leftover"
    summary = (
        "plain CUDA streams: kernels place blocks strictly in order of arrival, higher priority first, most room "
        "first (Amert et al., RTSS'17; Gilman et al.)"
    )
    first: str | None = None

    def partition(self, view: View) -> Partition:
        """One line for all, by priority and then arrival; ``first`` names a stream that goes before its equals."""

        def place(kernel: KernelView) -> tuple[int, float, bool, int]:
            return (-kernel.priority, kernel.ready_us, kernel.stream != self.first, kernel.id)

        return Partition(tuple(Grant(kernel.id) for kernel in sorted(view.kernels, key=place)))
