"""A timeline of GPU activity, as profilers export it.

A reader of a format returns a `Timeline`: kernels, copies and memsets with their stream and times, and the host calls
that order them. `gpusim.io.conversion` makes a trace of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from gpusim.common.tables import counted, grouped
from gpusim.io.values import Direction, copy_direction, count, three
from gpusim.io.values import whole as whole
from gpusim.trace.kernels import Mix, Work

HostMemory = Literal["pinned", "pageable"]

CLOCK_US = 1.0  # recorded times are that exact: older profilers write whole microseconds


class StreamKey(NamedTuple):
    """Identity of a stream of a GPU; parts that a format lacks are empty."""

    number: str
    process: str = ""
    context: str = ""
    green_context: str = ""


@dataclass(frozen=True, slots=True)
class LaunchedKernel:
    """A kernel as launched; shared memory in bytes a block. A format that knows only the sum gives it as dynamic."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers_per_thread: int
    static_shared_memory_bytes: int
    dynamic_shared_memory_bytes: int
    mix: Mix | None = None
    work: Work | None = None  # of its operator
    meets: str = ""  # of a kernel that exchanges data: communicator, sequence number, peers, as far as recorded

    @staticmethod
    def of(
        name: str, grid: object, block: object, registers: object, static: object, dynamic: object, meets: str = ""
    ) -> LaunchedKernel | None:
        """A kernel from values as a profile writes them, for `three` and `count`; None where one is unusable."""
        shape, threads = three(grid), three(block)
        each, fixed, more = count(registers), count(static), count(dynamic)
        if shape is None or threads is None or each is None or fixed is None or more is None:
            return None
        return LaunchedKernel(name, shape, threads, each, fixed, more, meets=meets)


@dataclass(frozen=True, slots=True)
class CopyRun:
    """A memory copy, or a memset."""

    direction: Direction  # of the copy; or a memset
    bytes: int  # copied or set
    memory: HostMemory | None = None  # the kind of host memory; None where the profile does not say

    @property
    def what(self) -> str:
        """What profilers call it for short."""
        return "memset" if self.direction == "memset" else "memcpy"

    @staticmethod
    def of(name: str, is_memset: bool, size: object, ends: str = "") -> CopyRun | None:
        """A copy or a memset, from its name and its size for `count`; None for an unusable size or no copy of a GPU's.

        ``ends`` has the kinds of memory that it copies from and to, where the profile has them beside the name.
        """
        size_bytes = count(size)
        direction: Direction | None = "memset" if is_memset else copy_direction(name)
        if size_bytes is None or direction is None:
            return None
        if is_memset:
            return CopyRun("memset", size_bytes)
        text = f"{name} {ends}".lower()
        memory: HostMemory | None = "pageable" if "pageable" in text else "pinned" if "pinned" in text else None
        return CopyRun(direction, size_bytes, memory)


@dataclass(frozen=True, slots=True)
class Activity:
    """One thing that a GPU did."""

    device: int  # index of the GPU
    stream: StreamKey  # its stream
    start_us: float  # when it started, on any clock
    duration_us: float  # how long it took
    work: LaunchedKernel | CopyRun  # what it was
    order: int  # grows with the launches of a process (the correlation id, where there is one)
    label: str = ""  # what the host called it for, the beginning of the operation's id; may be empty

    @property
    def end_us(self) -> float:
        """When it ended."""
        return self.start_us + self.duration_us


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream that waits for an event of another: what was launched on `source` before `recorded`."""

    stream: StreamKey
    order: int
    source: StreamKey
    recorded: int


@dataclass(frozen=True, slots=True)
class HostSync:
    """A host thread that waits for a stream, or for all (None), before it launches on."""

    thread: str  # that waits
    order: int  # of the call
    stream: StreamKey | None  # whose work is waited for
    recorded: int  # what was launched before it is waited for: the record of an event, else the call's own order


@dataclass(frozen=True, slots=True)
class Range:
    """A named part of a program's time, on the host: an NVTX range, an annotation, a step of PyTorch's profiler."""

    name: str
    start_us: float  # on the clock of the activities
    end_us: float


@dataclass(frozen=True, slots=True)
class Product:
    """Description of a GPU in a profile; None where it does not."""

    name: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    compute_capability: str | None = None

    @staticmethod
    def of(name: str | None, sms: object, memory: object, major: object, minor: object) -> Product:
        """A GPU from what a profile writes of it: SMs, bytes of memory, and the parts of its compute capability."""
        parts = whole(major), whole(minor)
        return Product(name, whole(sms), whole(memory), None if None in parts else f"{parts[0]}.{parts[1]}")


class Span(NamedTuple):
    """An operator on the host."""

    start_us: float
    end_us: float
    thread: str  # on which it ran
    label: str  # its name, and what tells its calls apart


@dataclass(slots=True)
class Timeline:
    """A profile as read."""

    activities: list[Activity] = field(default_factory=list)  # in any order
    waits: list[Wait] = field(default_factory=list)  # of streams for events
    syncs: list[HostSync] = field(default_factory=list)  # of host threads
    # the host thread of each launch, by process and order
    threads: dict[tuple[str, int], str] = field(default_factory=dict)
    # when the host launched, us on the clock of the activities, by process and order
    launched_us: dict[tuple[str, int], float] = field(default_factory=dict)
    ranges: list[Range] = field(default_factory=list)  # in any order
    products: dict[int, Product] = field(default_factory=dict)  # the GPUs, by index
    remarks: list[str] = field(default_factory=list)  # what a reader left out or took for granted, a sentence each
    rank: int | None = None  # of the process among those of a job
    tells_waits: bool = False  # the profile records the waits of streams, so that a wait it does not hold was none
    # the profiler ran one kernel at a time, so that its times tell nothing of the program's order
    one_at_a_time: bool = False

    def add(
        self, device: int, stream: StreamKey, start_us: float, duration_us: float, work: LaunchedKernel | CopyRun,
        order: int | None, label: str = "",
    ) -> None:  # fmt: skip
        """Add an activity; one without an order of its own comes after those before it."""
        order = len(self.activities) if order is None else order
        self.activities.append(Activity(device, stream, start_us, duration_us, work, order, label))

    def leave_out(self, count: int, what: str, which: str) -> None:
        """Remark that the reader left out some things, if any: ``what`` one is, and ``which`` they are."""
        if count:
            self.remarks.append(f"Left out: {counted(count, what)} {which}.")

    def kernels_by_device(self) -> dict[int, int]:
        """How many kernels each GPU ran, by index."""
        return dict(sorted(Counter(a.device for a in self.activities if isinstance(a.work, LaunchedKernel)).items()))

    def on(self, device: int) -> Timeline:
        """Work of one GPU, in the order of its start."""
        chosen = [a for a in self.activities if a.device == device]
        chosen.sort(key=lambda activity: (activity.start_us, activity.order))
        return replace(self, activities=chosen)

    def label_by_nesting(self, spans: Iterable[Span]) -> None:
        """Label the activities that have no label yet, where a host call that launched them is within a span.

        The innermost span that was running on the same thread counts. Spans of a thread are nested in one another.
        """
        launches: dict[str, list[tuple[float, int]]] = {}
        for n, activity in enumerate(self.activities):
            call = activity.stream.process, activity.order
            if not activity.label and call in self.threads and call in self.launched_us:
                launches.setdefault(self.threads[call], []).append((self.launched_us[call], n))
        by_thread = grouped((span for span in spans if span.thread in launches), lambda span: span.thread)
        for thread, of in by_thread.items():
            ordered = sorted(of, key=lambda span: (span.start_us, -span.end_us))
            begun, open_spans = 0, list[Span]()
            for at_us, n in sorted(launches[thread]):
                while begun < len(ordered) and ordered[begun].start_us <= at_us:
                    while open_spans and open_spans[-1].end_us <= ordered[begun].start_us:
                        open_spans.pop()
                    open_spans.append(ordered[begun])
                    begun += 1
                while open_spans and open_spans[-1].end_us < at_us:
                    open_spans.pop()
                if open_spans:
                    self.activities[n] = replace(self.activities[n], label=open_spans[-1].label)
