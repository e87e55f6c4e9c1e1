"""Latency-critical inference beside best-effort work: REEF's dynamic kernel padding and Orion's launch rule.

A stream with a priority above 0 is latency critical, one with priority 0 best effort. Both rules were read in the
authors' code [V]; what they need and a trace cannot tell is stated at each policy [D].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusim.common.tables import counted
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Eviction, Grant, KernelView, Partition, Policy, View, parameter
from gpusim.policies.spatial import streams_now
from gpusim.policies.tools.mixes import unshared
from gpusim.policies.tools.notes import Uncounted

NONE_CRITICAL = "no kernel beside others had a priority above 0: all were best effort"
COMPUTE, MEMORY, UNKNOWN = "compute", "memory", "unknown"
CLASS_OF = {"issue": COMPUTE, "alu": COMPUTE, "fma": COMPUTE, "tensor": COMPUTE, "l2": MEMORY, "dram": MEMORY}


def critical(view: View) -> list[KernelView]:
    """Ready and running kernels of latency-critical streams, the highest priority first, then in order of arrival."""
    return sorted((k for k in view.kernels if k.priority > 0), key=lambda k: (-k.priority, k.id))


def best_effort(view: View) -> list[KernelView]:
    """Ready and running kernels of best-effort streams, in order of arrival."""
    return [kernel for kernel in view.kernels if kernel.priority == 0]


# ---- Orion -----------------------------------------------------------------------------------------------------------


def kernel_class(kernel: KernelView) -> str:
    """Whether a kernel is bound by arithmetic, by memory, or neither is known.

    Orion decides by arithmetic intensity, which a trace does not hold: here by what binds the kernel alone [D].
    """
    return CLASS_OF.get(kernel.bound_by, UNKNOWN)


def sms_wanted(kernel: KernelView) -> int:
    """SMs that a kernel fills: its blocks over how many fit one SM (Orion's helper over-counts these) [V]."""
    return -(-kernel.blocks // kernel.blocks_per_sm)


@dataclass
class Orion(Policy):
    """Best-effort kernels are launched only where they should not disturb a latency-critical one.

    A latency-critical kernel is launched at once, on a stream of higher priority. A best-effort kernel is launched if
    no latency-critical kernel is ready or running; or if it needs fewer SMs by itself than a threshold, and no
    latency-critical kernel is of its class. Each kernel is tested by itself, as in the paper [M]: what other
    best-effort kernels still hold does not count. A launched kernel stays. Best-effort streams
    alternate. The update phase of a training job is left out, because a trace does not mark it.
    """

    name = "orion"
    summary = (
        "best-effort kernels (priority 0) start beside latency-critical ones (priority above 0) only if small enough "
        "and bound by something else (Strati et al., EuroSys'24)"
    )
    sms: int | None = parameter(
        None, "SMs of which a best-effort kernel beside a critical one must need fewer; default all", least=0
    )
    duration_us: float | None = parameter(
        None,
        "isolated time of best-effort work, us, after which none is launched until all of it has ended; default no "
        "limit (the authors advise 2.5 % of a request's latency [M])",
        above=0,
    )
    _launched_us: float = field(default=0.0, init=False, repr=False)
    _last: int = field(default=-1, init=False, repr=False)
    _met_critical: bool = field(default=False, init=False, repr=False)
    _held_back: set[int] = field(default_factory=set, init=False, repr=False)  # best-effort kernels, by critical ones
    _beside: bool = field(default=False, init=False, repr=False)
    _uncounted: Uncounted = field(default_factory=Uncounted, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Let latency-critical kernels start, and those best-effort kernels that may; one stream alone as it comes."""
        if len(streams_now(view)) < 2:
            return unshared(view)
        urgent, others = critical(view), best_effort(view)
        self._met_critical |= bool(urgent)
        running = [kernel for kernel in others if kernel.started]
        if not running:
            self._launched_us = 0.0
        waiting = [kernel for kernel in others if not kernel.started]  # from the stream after the one served last
        for kernel in sorted(waiting, key=lambda k: (k.stream_index <= self._last, k.stream_index, k.id)):
            if self._may_start(view, kernel, urgent):
                running.append(kernel)
                self._launched_us += kernel.solo_us
                self._last = kernel.stream_index
                self._beside |= bool(urgent)
            elif urgent:
                self._held_back.add(kernel.id)
        running.sort(key=lambda kernel: kernel.id)
        return Partition(tuple(Grant(kernel.id) for kernel in [*urgent, *running]))

    def notes(self) -> tuple[str, ...]:
        """Whether there was nothing to protect, nothing was let in, or counters were missing."""
        if not self._met_critical:
            return (NONE_CRITICAL,)
        waited = counted(len(self._held_back), "best-effort kernel")
        alone = bool(self._held_back) and not self._beside
        return (
            *((f"{waited} waited for latency-critical ones, none ran beside",) if alone else ()),
            *self._uncounted.notes("whether two are bound by the same was not asked of these, only their size"),
        )

    def _may_start(self, view: View, kernel: KernelView, urgent: Sequence[KernelView]) -> bool:
        if self.duration_us is not None and self._launched_us > self.duration_us:
            return False
        if not urgent:
            return True
        most = view.gpu.sm_count if self.sms is None else self.sms
        self._uncounted.ask([kernel, *urgent])
        mine = kernel_class(kernel)
        disturbs = mine != UNKNOWN and any(kernel_class(other) == mine for other in urgent)
        return sms_wanted(kernel) < most and not disturbs


# ---- REEF ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Padding:
    """A best-effort kernel beside a latency-critical one."""

    kernel: int  # its id
    blocks_per_sm: int  # of it on each SM that the other leaves
    waves: int  # how many times they are filled before the other ends
    wave_us: float  # time of one


def critical_sms(blocks: int, sms: int) -> tuple[int, int]:
    """Layers of blocks that a kernel stacks on the SMs, and the SMs that it fills with that many [V]."""
    layers = -(-blocks // sms)
    return layers, -(-blocks // layers)


def occupancy_together(first: KernelView, second: KernelView, gpu: GPU) -> int:
    """Blocks on an SM of a kernel that holds the larger of what two kernels hold, of each resource [V]."""
    largest = map(max, first.footprint.need, second.footprint.need)
    return min(total // used for used, total in zip(largest, gpu.limits.capacity, strict=True) if used > 0)


def padding(view: View, urgent: KernelView, others: Sequence[KernelView]) -> Padding | None:
    """The first best-effort kernel that fits beside a latency-critical one without lengthening it, and how [V].

    Times are the model's, of each isolated kernel; REEF profiles them before.
    """
    layers, sms = critical_sms(urgent.blocks, view.gpu.sm_count)
    if sms == view.gpu.sm_count:
        return None
    needed = min(layers, urgent.blocks_per_sm)
    for other in others:
        together = occupancy_together(urgent, other, view.gpu)
        if together < needed or not other.waiting:
            continue
        for blocks in range(min(together, other.blocks_per_sm), 0, -1):
            wave_us = blocks / view.solo_rate(other.id, blocks)
            if wave_us <= urgent.solo_us:
                return Padding(other.id, blocks, int(urgent.solo_us / wave_us), wave_us)
    return None


@dataclass
class Reef(Policy):
    """Latency-critical kernels have the GPU; best-effort blocks pad the SMs that they leave.

    Without a latency-critical kernel best-effort kernels run as on plain streams. When one comes, their resident
    blocks are killed and start again later (blocks that ended stay done, where REEF repeats the whole kernel [D]).
    It gets as few SMs as hold its blocks in the same number of layers; on the others the best-effort kernel that
    `padding` finds runs as many waves as end before it does. The next kernel of the same request does not wait for
    the padding's last blocks, as it would in REEF, where both are one kernel [D].
    """

    name = "reef"
    summary = (
        "latency-critical kernels (priority above 0) kill best-effort blocks and have the GPU; best-effort blocks pad "
        "the SMs left where they end in time (Han et al., OSDI'22)"
    )
    _padded: int = field(default=-1, init=False, repr=False)
    _padding: Padding | None = field(default=None, init=False, repr=False)
    _stop_us: float = field(default=0.0, init=False, repr=False)
    _met_critical: bool = field(default=False, init=False, repr=False)
    _beside: int = field(default=0, init=False, repr=False)
    _unpadded: int = field(default=0, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Run the latency-critical kernels and their padding, or best-effort kernels alone."""
        urgent, others = critical(view), best_effort(view)
        if not urgent:
            self._padded = -1
            return unshared(view)
        self._met_critical = True
        if not others:
            return Partition(tuple(Grant(kernel.id) for kernel in urgent))
        head = urgent[0]
        evictions: tuple[Eviction, ...] = ()
        if head.id != self._padded:
            evictions = killed(view, others) if self._padded < 0 else ()
            self._padded = head.id
            self._padding = padding(view, head, others)
            self._beside += 1
            self._unpadded += self._padding is None
            if self._padding is not None:
                start = max(view.now_us, head.ready_us + head.latency_us)
                self._stop_us = start + (self._padding.waves - 0.5) * self._padding.wave_us
        wake_us = self._stop_us if self._padding is not None and self._stop_us > view.now_us else None
        return Partition(self._shared(view, urgent, others), evictions, wake_us)

    def notes(self) -> tuple[str, ...]:
        """Whether there was nothing to protect, and how often nothing could be put beside it."""
        if not self._met_critical:
            return (NONE_CRITICAL,)
        met = counted(self._beside, "latency-critical kernel")
        unpadded = f"no best-effort kernel fitted beside {self._unpadded} of {met} that came while some were ready"
        return (unpadded,) if self._unpadded else ()

    def _shared(self, view: View, urgent: Sequence[KernelView], others: Sequence[KernelView]) -> tuple[Grant, ...]:
        chosen = self._padding
        if chosen is None or not any(kernel.id == chosen.kernel for kernel in others):
            return tuple(Grant(kernel.id) for kernel in urgent)
        sms = view.gpu.sm_count
        layers, filled = critical_sms(urgent[0].blocks, sms)
        grants = [Grant(urgent[0].id, layers, frozenset(range(filled))), *(Grant(kernel.id) for kernel in urgent[1:])]
        if view.now_us < self._stop_us - 1e-9:
            grants.append(Grant(chosen.kernel, chosen.blocks_per_sm, frozenset(range(filled, sms)), queue=1))
        return tuple(grants)


def killed(view: View, kernels: Sequence[KernelView]) -> tuple[Eviction, ...]:
    """All resident blocks of some kernels, to be run again from their start."""
    return tuple(
        Eviction(kernel.id, sm, blocks, 0.0, restart=True)
        for kernel in kernels
        for sm, blocks in enumerate(view.residents(kernel.id))
        if blocks
    )
