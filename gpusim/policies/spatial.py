"""Spatial multitasking: an SM split between streams.

Adriaens, Compton, Kim, Schulte, "The case for GPGPU spatial multitasking", HPCA'12 [A]; its heuristics are implemented
from their description as recalled [M] and completed where it leaves a choice [D]. Partitions are made anew whenever a
kernel arrives or ends; a block is never moved: an SM that changes hands first runs its blocks to their end.

How many SMs each stream gets is arithmetic on small lists of integers; which SMs they are is `layout`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from math import fsum
from operator import attrgetter

from gpusim.common.numbers import whole_number
from gpusim.common.tables import counted, grouped
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import IN_ORDER, Grant, KernelView, Partition, View, parameter
from gpusim.policies.tools.notes import not_used
from gpusim.policies.tools.programs import Divides
from gpusim.policies.tools.values import called, for_each, plus_separated, require_one_each, wrong

_grant = lru_cache(4096)(Grant)  # one that is given again is the same object, and is not checked again
RULES = ("even", "smart-even", "rounds", "profile")


# ---- how many SMs ----------------------------------------------------------------------------------------------------


def even_counts(units: int, streams: int) -> list[int]:
    """The same for each; the first ``units mod streams`` get one more."""
    return [units // streams + (i < units % streams) for i in range(streams)]


def smart_even_counts(units: int, useful: Sequence[int]) -> list[int]:
    """Divide evenly, but give no stream more than it can fill while another can use it.

    Units beyond those that all can fill are spread evenly [D]: fewer blocks on an SM run faster.
    """
    counts = [0] * len(useful)
    hungry = list(range(len(useful)))
    while hungry:
        share = even_counts(units - sum(counts), len(hungry))
        full = [i for i, most in zip(hungry, share, strict=True) if useful[i] <= most]
        for i, most in zip(hungry, share, strict=True):
            if not full or i in full:
                counts[i] = min(most, useful[i])
        hungry = [i for i in hungry if i not in full] if full else []
    rest = even_counts(units - sum(counts), len(useful))
    return [count + more for count, more in zip(counts, rest, strict=True)]


def rounds_counts(units: int, work: Sequence[Sequence[tuple[int, int]]]) -> list[int]:
    """Minimise the maximum wave count over streams (minimax), with no more units per stream than that needs.

    ``work``: for each stream its kernels: blocks, and how many of them one unit holds (both at least 1). Units that no
    stream needs for that number of waves are spread evenly [D].
    """

    def suffices(most_waves: int) -> bool:
        return sum(fewest_units(most_waves, kernels, units) for kernels in work) <= units

    fewest_waves = 1 + bisect_left(range(1, max(waves(1, kernels) for kernels in work)), True, key=suffices)
    counts = [min(fewest_units(fewest_waves, kernels, units), units) for kernels in work]
    rest = even_counts(units - sum(counts), len(counts))
    return [count + more for count, more in zip(counts, rest, strict=True)]


def waves(units: int, kernels: Sequence[tuple[int, int]]) -> int:
    """Waves that kernels of (blocks, blocks a unit holds) take one after the other on some units."""
    return sum(-(-blocks // (units * held)) for blocks, held in kernels)


def fewest_units(most_waves: int, kernels: Sequence[tuple[int, int]], units: int) -> int:
    """Fewest units on which kernels take no more than some waves; ``units + 1`` where even ``units`` take more."""
    return 1 + bisect_left(range(1, units + 1), True, key=lambda count: waves(count, kernels) <= most_waves)


def best_sum_counts(units: int, progress: Sequence[Sequence[float]]) -> list[int]:
    """Maximise the sum of progress over all splits, by dynamic programming.

    ``progress``: of each stream with 1, 2, … units. Of equal sums it is the split that gives the last streams most.
    """
    streams = len(progress)
    most = units - streams + 1
    best = list(progress[0][:most])  # best[n]: sum with n + 1 units shared among the streams so far
    choices: list[list[int]] = []
    for later in range(1, streams):
        values = progress[later]
        grown, chosen = [], []
        for total in range(len(best)):
            options = [best[total - n] + values[n] for n in range(total + 1)]
            value = max(options)
            grown.append(value)
            chosen.append(len(options) - 1 - options[::-1].index(value) + 1)
        best = grown
        choices.append(chosen)
    counts: list[int] = []
    left = len(best) - 1
    for chosen in reversed(choices):
        counts.append(chosen[left])
        left -= chosen[left] - 1
    return [left + 1, *reversed(counts)]


def proportional_counts(units: int, weights: Sequence[int]) -> list[int]:
    """In proportion to weights, at least 1 each, by largest remainder (Hamilton); equal remainders: first come."""
    total = sum(weights)
    spare = units - len(weights)
    counts = [1 + spare * weight // total for weight in weights]
    by_rest = sorted(range(len(weights)), key=lambda i: (-(spare * weights[i] % total), i))
    for i in by_rest[: units - sum(counts)]:
        counts[i] += 1
    return counts


# ---- which SMs -------------------------------------------------------------------------------------------------------


def layout(counts: Mapping[int, int], before: Mapping[int, Sequence[int]], sms: int) -> dict[int, tuple[int, ...]]:
    """Return which SMs each tenant gets; tenants choose in the order of ``counts``.

    Everyone keeps what it had as far as its new count goes, lowest numbers first, and takes what it needs more from the
    free SMs, lowest first: whole TPCs where counts allow (SMs of a TPC have neighbouring numbers), and as few SMs as
    can be change hands.
    """
    kept = {tenant: sorted(before.get(tenant, ()))[:count] for tenant, count in counts.items()}
    taken = {sm for mine in kept.values() for sm in mine}
    free = iter([sm for sm in range(sms) if sm not in taken])
    return {
        tenant: tuple(sorted([*kept[tenant], *(next(free) for _ in range(count - len(kept[tenant])))]))
        for tenant, count in counts.items()
    }


@dataclass
class Split:
    """The SMs of each stream, from one decision to the next, for any policy with an SM split."""

    held: dict[int, tuple[int, ...]] = field(default_factory=dict)  # SMs of each stream that has any
    most_unseated: int = 0  # streams that had none, because there were fewer than streams, at most at once

    def notes(self) -> tuple[str, ...]:
        """Whether streams waited because there were too many of them."""
        if not self.most_unseated:
            return ()
        return (f"more streams than SMs to hand out: up to {counted(self.most_unseated, 'stream')} waited for another",)

    def evenly(self, view: View) -> Partition:
        """Every stream with kernels gets an equal share of the SMs; others' blocks there first run to their end."""
        return self.share(view, lambda streams: even_counts(view.gpu.sm_count, len(streams)))

    def share(
        self, view: View, count: Callable[[list[list[KernelView]]], list[int]], granularity: int = 1
    ) -> Partition:
        """Give each stream that has kernels SMs of its own, as many as ``count`` works out from their kernels.

        ``count`` gives units of ``granularity`` SMs; the SMs left over, fewer than a unit, go to the last stream. Where
        there are more streams than units, those that hold SMs keep them, then earlier ones come first; the others wait.
        """
        sms = view.gpu.sm_count
        present = streams_now(view)
        seated = sorted(present, key=lambda i: (i not in self.held, present[i][0].id))
        seated = sorted(seated[: sms // granularity])
        self.most_unseated = max(self.most_unseated, len(present) - len(seated))
        counts = [units * granularity for units in count([present[i] for i in seated])]
        counts[-1] += sms - sum(counts)
        wanted = dict(zip(seated, counts, strict=True))
        if wanted != {stream: len(mine) for stream, mine in self.held.items()}:
            self.held = layout(wanted, self.held, sms)
        return confined(view, {i: frozenset(mine) for i, mine in self.held.items()}, drain=True)


def streams_now(view: View) -> dict[int, list[KernelView]]:
    """Ready and running kernels by the position of their stream in the trace, ascending; each stream's by their id."""
    return grouped(sorted(view.kernels, key=attrgetter("stream_index", "id")), attrgetter("stream_index"))


def in_a_row(counts: Sequence[int]) -> list[frozenset[int]]:
    """Parts of so many numbers, one after the other from 0."""
    return [frozenset(range(end - count, end)) for end, count in zip(accumulate(counts), counts, strict=True)]


def confined(
    view: View,
    sms: Mapping[int, frozenset[int]],
    *,
    drain: bool = False,
    internal: bool = True,
    by_priority: bool = False,
) -> Partition:
    """Confine the kernels of each stream to some SMs, where they queue in a line of their own.

    ``sms`` is by position of the stream in the trace; streams that are not in it wait. ``drain``: let an SM run out of
    other streams' blocks first. ``internal``: also confine kernels on streams that a library opened itself.
    ``by_priority``: where SMs are those of several streams, the higher priority takes room first, not who came first.
    """
    line = sorted(view.kernels, key=lambda k: -k.priority) if by_priority else view.kernels
    return Partition(
        tuple(
            _grant(
                kernel.id,
                sms=sms[kernel.stream_index] if internal or not kernel.internal else None,
                queue=kernel.stream_index,
                tenant=kernel.stream_index if drain else None,
            )
            for kernel in line
            if kernel.stream_index in sms
        )
    )


# ---- what a kernel makes of SMs --------------------------------------------------------------------------------------


def left(kernel: KernelView) -> int:
    """Blocks of a kernel that have not ended."""
    return max(1, kernel.waiting + kernel.resident)


def useful_sms(kernels: Sequence[KernelView]) -> int:
    """SMs that the kernels of a stream fill with all their blocks that have not ended."""
    return sum(-(-left(kernel) // kernel.blocks_per_sm) for kernel in kernels)


def time_on(view: View, kernel: KernelView, sms: int) -> float:
    """Return the time of a kernel's remaining blocks in isolation on some SMs, us: full waves and the remainder.

    What remains is spread over all the SMs; the other SMs are idle. An estimate: it knows no launch latency and lets
    all blocks of a wave end together.
    """
    held = kernel.blocks_per_sm
    full, rest = divmod(left(kernel), sms * held)
    time = full * held / view.solo_rate(kernel.id, held, sms) if full else 0.0
    if rest:
        spread = -(-rest // sms)
        time += spread / view.solo_rate(kernel.id, spread, sms)
    return time


# ---- the policies ----------------------------------------------------------------------------------------------------


@dataclass
class InterSM(Divides):
    """Every stream that has kernels gets SMs of its own, library-internal streams included."""

    name = "inter-sm"
    summary = (
        "SM split: every stream has SMs of its own, shared evenly, by a heuristic or as given "
        "(Adriaens et al., HPCA'12)"
    )
    family = "inter-sm"
    validated_as = ("green", "sm_curve")
    rule: str = parameter(
        "even",
        "even; smart-even (no more than a stream can fill); rounds (fewest waves of the stream with most); profile "
        "(largest predicted STP)",
        one_of=RULES,
    )
    sms: str | None = parameter(None, "SMs of each stream in the order of the trace, as 64+68", of_streams=IN_ORDER)
    dynamic: bool | None = parameter(
        None,
        "share anew among the streams present whenever kernels come and go, in proportion where sms is given; default: "
        "only where it is not",
    )
    granularity: int = parameter(1, "SMs that are handed out together, for a rule", least=1)
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _fixed: dict[int, frozenset[int]] | None = field(default=None, init=False, repr=False)
    _weights: list[int] = field(default_factory=list, init=False, repr=False)
    _sm_count: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sms is not None and self.rule != "even":
            raise wrong(self.name, "has both sms and rule", "one of them")
        if self.dynamic is False and self.rule != "even":
            raise wrong(self.name, f"rule={self.rule} decides by the kernels present", "dynamic=true")

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Check shares and granularity against the GPU and the trace's streams; lay out a fixed split."""
        if self.granularity > gpu.sm_count:
            raise wrong(
                self.name, f"granularity={self.granularity} is more than {gpu.name} has", f"at most {gpu.sm_count}"
            )
        if self.sms is not None:
            self._weights = sm_counts(self.name, self.sms, gpu, streams)
        if not (self.sms is None if self.dynamic is None else self.dynamic):
            self._fixed, self._sm_count = self._layout(gpu, streams), gpu.sm_count

    def shows_sms(self) -> bool:
        """A split that is fixed does, as green contexts would; one that moves is the hardware's own affair [D]."""
        return self._fixed is not None

    def partition(self, view: View) -> Partition:
        """Share the SMs among the streams present, or keep to the split that is fixed."""
        if self._fixed is not None:
            return confined(view, self._fixed)
        return self._split.share(view, lambda streams: self._counts(view, streams), self.granularity)

    def notes(self) -> tuple[str, ...]:
        """Whether a fixed split leaves SMs out, and whether streams waited for SMs of their own."""
        unused = self._sm_count - sum(map(len, (self._fixed or {}).values()))
        return (*not_used(unused, self._sm_count), *self._split.notes())

    def _layout(self, gpu: GPU, streams: Sequence[str]) -> dict[int, frozenset[int]]:
        counts = self._weights
        if not counts:
            units = gpu.sm_count // self.granularity
            if len(streams) > units:
                raise wrong(self.name, f"has {for_each('share', units, streams)}", "dynamic=true: some wait")
            counts = [count * self.granularity for count in even_counts(units, len(streams))]
            counts[-1] += gpu.sm_count - sum(counts)
        laid = layout(dict(enumerate(counts)), {}, gpu.sm_count)
        return {stream: frozenset(mine) for stream, mine in laid.items()}

    def _counts(self, view: View, streams: list[list[KernelView]]) -> list[int]:
        units = view.gpu.sm_count // self.granularity
        if self._weights:
            return proportional_counts(units, [self._weights[kernels[0].stream_index] for kernels in streams])
        if self.rule == "smart-even":
            return smart_even_counts(units, [-(-useful_sms(kernels) // self.granularity) for kernels in streams])
        if self.rule == "rounds":
            held = [[(left(k), k.blocks_per_sm * self.granularity) for k in kernels] for kernels in streams]
            return rounds_counts(units, held)
        if self.rule == "profile" and len(streams) > 1:
            most = units - len(streams) + 1
            return best_sum_counts(units, [self._progress(view, kernels, most) for kernels in streams])
        return even_counts(units, len(streams))

    def _progress(self, view: View, kernels: Sequence[KernelView], most: int) -> list[float]:
        """Normalised progress of a stream's kernels on 1, 2, … units of SMs, by their predicted time alone on them."""
        times = [
            fsum(time_on(view, kernel, units * self.granularity) for kernel in kernels) for units in range(1, most + 1)
        ]
        whole = fsum(time_on(view, kernel, view.gpu.sm_count) for kernel in kernels)
        return [whole / time for time in times]


def sm_counts(policy: str, text: str, gpu: GPU, streams: Sequence[str], by: bool = True) -> list[int]:
    """SMs of each stream from text such as ``64+68``; ``by`` is as for `require_one_each`."""
    counts = plus_separated(policy, "sms", text, whole_number, "a number of SMs")
    require_one_each(policy, f"sms={text}", "share", counts, streams, by)
    if min(counts) < 1:
        raise wrong(policy, f"sms={text} leaves a {called(streams)} no SM", "at least 1 each")
    if sum(counts) > gpu.sm_count:
        raise wrong(policy, f"sms={text} is {sum(counts)} SMs in all", f"at most the {gpu.sm_count} of {gpu.name}")
    return counts
