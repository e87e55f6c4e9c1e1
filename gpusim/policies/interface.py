"""The interface between the engine and a policy.

The engine asks a policy whenever a kernel becomes ready or ends, and at a time that the policy asked for. It shows a
read-only `View` and gets back a `Partition`: the kernels that may run, their SMs, their blocks per SM, and their order
of placement. A policy never moves a block. A new policy is one subclass of `Policy`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import ge, gt, le, lt
from typing import Any, ClassVar, NamedTuple, Protocol

from gpusim.common.errors import InputError, expected_one_of
from gpusim.hardware.gpu import GPU
from gpusim.model.occupancy import Footprint

Domains = list[tuple[frozenset[int], float]] | None  # as `Policy.memory_domains` gives them
OF_STREAMS = "of streams"  # key of a parameter's metadata: how its value, joined by +, is of a trace's streams
IN_ORDER, BY_NAME = "in order", "by name"  # the values of that key: 64+68; first, or A:2+B:3


class KernelView(NamedTuple):
    """A kernel launch that is ready or running, as a policy sees it.

    Attributes:
        id: number of the launch, in order of becoming ready.
        stream: name of its stream.
        stream_index: position of that stream in the trace.
        internal: whether a library launched it on a stream of its own, outside the partition of the caller's stream.
        priority: of its stream, from 0 = lowest.
        ready_us: when it became ready.
        waiting: blocks not yet placed.
        resident: blocks resident on all SMs.
        started: whether a grant has let it start. Its first block starts after its launch latency.
        name: kernel name.
        blocks: thread blocks of the launch.
        footprint: resources of an SM that one resident block holds.
        blocks_per_sm: most resident blocks of this kernel alone on an SM (its occupancy).
        solo_us: isolated time on the whole GPU.
        bound_by: resource that bounds it in isolation; ``unknown`` without the counters.
        dram_load: share of the sustained DRAM bandwidth that it demands in isolation.
        l2_load: share of the sustained L2 bandwidth that it demands in isolation.
        issue_us: time of all issue slots of an SM that one block takes.
        memory_us: time of the L1 and shared-memory data path of an SM that one block takes.
        dram_us: time of the device's sustained DRAM bandwidth that one block takes.
        l2_us: time of the device's sustained L2 bandwidth that one block takes.
        memory_stall_share: share of its warps' stalls that wait for memory, 0 to 1.
        latency_us: launch latency, from the first grant to its first block.
        queued: when the host queued it: the release (us) of its request, and its place in the order in which one
            host thread queues all launches of the trace, stream after stream as far as dependencies allow.
        operation: id of the operation that launched it, as in `OperationView`.
    """

    id: int
    stream: str
    stream_index: int
    internal: bool
    priority: int
    ready_us: float
    waiting: int
    resident: int
    started: bool
    name: str
    blocks: int
    footprint: Footprint
    blocks_per_sm: int
    solo_us: float
    bound_by: str
    dram_load: float
    l2_load: float = 0.0
    issue_us: float = 0.0
    memory_us: float = 0.0
    dram_us: float = 0.0
    l2_us: float = 0.0
    memory_stall_share: float = 0.0
    latency_us: float = 0.0
    queued: tuple[float, int] = (0.0, 0)
    operation: str = ""

    @property
    def counted(self) -> bool:
        """Whether its demand comes from counters."""
        return self.bound_by != "unknown"

    def later(self, waiting: int, resident: int, started: bool) -> KernelView:
        """Return the same launch at a later time, with its new progress."""
        later = (*self[:_HOW_FAR], waiting, resident, started, *self[_HOW_FAR + 3 :])
        return tuple.__new__(KernelView, later)


_HOW_FAR = KernelView._fields.index("waiting")  # `later` replaces three fields by position: `_replace` takes longer
assert KernelView._fields[_HOW_FAR : _HOW_FAR + 3] == ("waiting", "resident", "started")


@dataclass(frozen=True, slots=True)
class OperationView:
    """An operation that has not ended, for policies that know the whole program."""

    id: str  # of the trace
    stream_index: int  # position of its stream in the trace
    # remaining work: the sum of its kernels' isolated times less the share that is done; of a copy or host work
    # the remaining time
    left_us: float
    # ids of those operations that have not ended and must end first: the one before it in its stream, and what it
    # depends on
    waits_for: tuple[str, ...]
    release_us: float  # when the pass of its stream that it belongs to was released: the arrival of its request


class PassView(NamedTuple):
    """The pass that a stream runs now, as a policy sees it."""

    release_us: float  # when it was released: the arrival of its request
    alone_us: float  # work of the whole pass: the sum of its kernels' isolated times, its copies and its host work
    left_us: float  # remaining work


class MixRates(Protocol):
    """See ``View.mix_rates``."""

    def __call__(self, residents: Sequence[tuple[int, int]], sms: int | None = None) -> Sequence[float]:
        """Progress of each kernel on an SM, blocks/us."""


class SoloRate(Protocol):
    """See ``View.solo_rate``."""

    def __call__(self, kernel: int, blocks_per_sm: int, sms: int | None = None) -> float:
        """Progress of an SM, blocks/us."""


class View(NamedTuple):
    """The device as a policy sees it.

    Attributes:
        now_us: time.
        gpu: the GPU.
        kernels: all that are ready or running, in order of becoming ready.
        streams: names of the streams that still have work, in the order of the trace; a stream whose next kernel
            is not ready yet (a copy, a dependency) is among them.
        residents: for a kernel id, its resident blocks on each SM.
        solo_rate: for a kernel id and n, the progress of an SM that holds n of its blocks and nothing else while
            all SMs do the same, in blocks/us; n from 1 to its ``blocks_per_sm``. A third argument is the number of
            SMs that do the same while the others are idle.
        mix_rates: for ((kernel id, n), …), the progress of each kernel on an SM that holds this mix while all SMs
            do the same, in blocks/us. A second argument is as the third of ``solo_rate``.
        blocks_done: for a kernel id, blocks that ended; those of a persistent kernel all end with it.
        progress: for a kernel id, the work done on each SM so far, in blocks. Running blocks count in part, as in a
            performance counter of the SM.
        unready: gives, for a stream's position in the trace, when the host queued the next kernel of that stream
            that is not ready yet, as ``KernelView.queued``; a stream with nothing more in its queue is left out.
        operations: gives the remaining operations of the streams' current passes, stream by stream in the order of the
            trace, each in launch order. Requests that wait for the one before them are not included. Its time grows
            with their number.
        passes: gives, for a stream's position in the trace, its pass under way: the sums of ``operations`` without
            their cost.
    """

    now_us: float
    gpu: GPU
    kernels: tuple[KernelView, ...]
    streams: tuple[str, ...]
    residents: Callable[[int], Sequence[int]]
    solo_rate: SoloRate
    mix_rates: MixRates
    blocks_done: Callable[[int], int]
    progress: Callable[[int], Sequence[float]]
    unready: Callable[[], Mapping[int, tuple[float, int]]] = dict
    operations: Callable[[], Sequence[OperationView]] = tuple
    passes: Callable[[], Mapping[int, PassView]] = dict


@dataclass(frozen=True, slots=True)
class Grant:
    """Resources that a policy grants one kernel.

    Attributes:
        kernel: its id.
        blocks_per_sm: most resident blocks of it on one SM; None: as many as fit.
        sms: the SMs it may use; None: all.
        queue: number (0 or more): kernels of one queue place blocks strictly one after the other (head of line);
            different queues do not delay each other.
        issue_share: most of an SM's issue slots that it may take, over 0, at most 1; None: no limit.
        l1_share: most of an SM's L1 and shared-memory data path that it may take, as above.
        dram_share: most of the DRAM bandwidth of its memory domain that it may take, as above.
        per_sm: most resident blocks on each SM, with one number per SM; overrides ``blocks_per_sm`` and ``sms``.
        tenant: number (0 or more): its blocks start only on SMs whose residents all have the same tenant, so an
            SM that changes its tenant drains first; None: no restriction.
        quota: progress of its blocks on an SM per round, in blocks. They then wait until all kernels there with a
            quota have spent theirs. Rounds are short, so only the ratios of quotas count. None: no quota.
    """

    kernel: int
    blocks_per_sm: int | None = None
    sms: frozenset[int] | None = None
    queue: int = 0
    issue_share: float | None = None
    l1_share: float | None = None
    dram_share: float | None = None
    per_sm: tuple[int, ...] | None = None
    tenant: int | None = None
    quota: float | None = None


@dataclass(frozen=True, slots=True)
class Eviction:
    """Blocks to evict from an SM. Each waits again, with its remaining work or from its start.

    Attributes:
        kernel: id of the kernel.
        sm: index of the SM.
        blocks: most blocks to take, youngest first.
        cost_us: additional work of each block when it resumes, such as restoring its context.
        restart: whether the work done is lost; of a persistent kernel, that of the current piece of work.
    """

    kernel: int
    sm: int
    blocks: int
    cost_us: float
    restart: bool = False


@dataclass(frozen=True, slots=True)
class Partition:
    """A policy's decision; it holds until the next one.

    `gpusim.policies.checks` checks it before it takes effect: types, kernels of the view that are granted once, SMs of
    the GPU, and a time in the future.

    Attributes:
        grants: kernels that may run, in the order in which they may place blocks. A kernel that is left out and
            has not started waits; one that is left out and has started places no more blocks.
        evictions: blocks to take off SMs now.
        wake_us: call the policy again at this time even if nothing happens; None: no need.
    """

    grants: tuple[Grant, ...]
    evictions: tuple[Eviction, ...] = ()
    wake_us: float | None = None


def parameter(
    default: Any,
    help: str,
    *,
    one_of: Sequence[str] = (),
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
    of_streams: str = "",
    kw_only: bool = False,
) -> Any:
    """A parameter of a policy: a field of its dataclass.

    Args:
        default: its value where none is given.
        help: its meaning, in a phrase.
        one_of: the texts that it can be; None is never refused.
        least: limit of a number, itself allowed; None is never refused.
        above: limit of a number, not allowed itself.
        most: as ``least``, from above.
        below: as ``above``, from above.
        of_streams: `IN_ORDER` or `BY_NAME`, where it holds a value for each stream.
        kw_only: it is given by its name only.
    """
    limits = (
        (ge, least, "{:g} or more"),
        (gt, above, "above {:g}"),
        (le, most, "at most {:g}"),
        (lt, below, "below {:g}"),
    )
    about: dict[str, Any] = {"help": help, "one_of": one_of, "limits": [one for one in limits if one[1] is not None]}
    return field(default=default, kw_only=kw_only, metadata=about | ({OF_STREAMS: of_streams} if of_streams else {}))


@dataclass
class Policy(ABC):
    """A way to share the GPU. Subclasses are dataclasses: their fields are the parameters, with defaults.

    One object serves one replay: it may remember what it did.

    Class attributes:
        name: its name on the command line.
        summary: one sentence, with the citation.
        family: the kind of division: ``inter-sm``, ``intra-sm`` or empty; ``oracle-FAMILY`` is the best static division
            of that kind.
        validated_as: experiments (`gpusim.results.error_band.SHARING`) that measured this way of sharing on a GPU;
            empty: none, although a replay may still match a measured case.
        sharing_limit: the one of `gpusim.results.runs.LIMITS` that applies whenever several streams share the GPU;
            empty: none.
        single_stream: the device has one stream at a time; those of the trace that wait for it cost it nothing.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    family: ClassVar[str] = ""
    validated_as: ClassVar[tuple[str, ...]] = ()
    sharing_limit: ClassVar[str] = ""
    single_stream: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Check each parameter against what `parameter` says of it."""
        for one in fields(self):
            value, known, limits = getattr(self, one.name), one.metadata.get("one_of"), one.metadata.get("limits", ())
            place, text = f"policy {self.name}", f"{one.name}={value}"
            if known and value is not None and value not in known:
                raise InputError(None, place, f"{text} is unknown", expected_one_of(known, value))
            if value is not None and not all(holds(value, limit) for holds, limit, _ in limits):
                expected = ", ".join(expected.format(limit) for _, limit, expected in limits)
                raise InputError(None, place, f"{text} is out of range", expected)

    @abstractmethod
    def partition(self, view: View) -> Partition:
        """Return the partition that holds until the next call."""

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:  # noqa: B027 (most have nothing to check)
        """Check the parameters; called once before the replay, with the names of the trace's streams.

        Raises:
            InputError: a parameter that this GPU or these streams cannot have.
        """

    def notes(self) -> tuple[str, ...]:
        """Return notes on the replay, such as departures from the rule; called once after the replay.

        Each a line of text without a full stop; they are among the result's notes.
        """
        return ()

    def shows_sms(self) -> bool:
        """Whether a program sees only the SMs that it is given, as in a green context.

        If so, its kernels wait half as long for launches of other streams (`gpusim.model.front_end`). Kernels of other
        programs then do not replace its code in the caches of its SMs (`gpusim.engine.code`).
        """
        return False

    def memory_domains(self, gpu: GPU, streams: Sequence[str]) -> Domains:
        """Sets of SMs with slices of L2 and DRAM of their own, each with its share of the device's L2 and DRAM.

        Every SM is in one of them. None: all SMs share all of it.
        """
        return None


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a policy, for help and for reading it from text."""

    name: str
    kind: str
    default: str
    description: str = field(default="")
