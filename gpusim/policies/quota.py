"""Static splits of every SM: how many blocks of each kernel it may hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpusim.common.numbers import whole_number
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import BY_NAME, Grant, Partition, Policy, View, parameter
from gpusim.policies.spatial import Split, streams_now
from gpusim.policies.tools.mixes import Fits, Resources, residents_of, unshared
from gpusim.policies.tools.notes import fallbacks, splits
from gpusim.policies.tools.programs import Divides
from gpusim.policies.tools.values import known_stream, plus_separated, wrong


def even_blocks(room: Resources, needs: Sequence[Resources], fit: Fits) -> list[int] | None:
    """Return blocks of each kernel on an SM by equal shares: those that fit its 1/K of every resource.

    Where that is none for any of them but one block of each fits together: one of each and what fits an equal share of
    the rest, or just one of each where that many are not resident at once. None: not even one of each fits.
    """
    ones = [1] * len(needs)
    if not fit(ones):
        return None
    taken = [sum(each[r] for each in needs) for r in range(len(room))]
    rest = (room[0] - taken[0], room[1] - taken[1], room[2] - taken[2], room[3] - taken[3])
    shares = _within(room, needs, len(needs))
    with_rest = [1 + more for more in _within(rest, needs, len(needs))]
    return next((counts for counts in (shares, with_rest) if all(counts) and fit(counts)), ones)


def _within(room: Resources, needs: Sequence[Resources], shares: int) -> list[int]:
    return [min(whole // (shares * mine) for whole, mine in zip(room, each, strict=True) if mine) for each in needs]


@dataclass
class Even(Policy):
    """Every kernel that is there gets an equal share of every SM."""

    name = "even"
    summary = (
        "every kernel an equal share of every SM's registers, shared memory, warps and block slots; where a block "
        "exceeds its share, one of each and the rest shared; where these do not fit, SM split (the static baseline of "
        "the intra-SM papers, as in Xu et al., ISCA'16)"
    )
    family = "intra-sm"
    validated_as = ("quota", "green")
    _split: Split = field(default_factory=Split, init=False, repr=False)
    _fell_back: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _unequal: Counter[str] = field(default_factory=Counter, init=False, repr=False)
    _decisions: int = field(default=0, init=False, repr=False)

    def partition(self, view: View) -> Partition:
        """Share every SM equally among the kernels; a stream that is alone gets everything."""
        if len(streams_now(view)) < 2:
            return unshared(view)
        self._decisions += 1
        room, needs = view.gpu.limits.capacity, [kernel.footprint.need for kernel in view.kernels]
        counts = even_blocks(room, needs, residents_of(view.gpu, view.kernels))
        if counts is None:
            self._fell_back["one block of each kernel does not fit on an SM"] += 1
            return self._split.evenly(view)
        if counts != _within(room, needs, len(needs)):
            self._unequal["unequal shares: an equal share does not hold a block of each kernel"] += 1
        return Partition(
            tuple(Grant(k.id, blocks_per_sm=count, queue=k.id) for k, count in zip(view.kernels, counts, strict=True))
        )

    def notes(self) -> tuple[str, ...]:
        """How often SMs were split instead, or shares were not equal."""
        return (*splits(self._fell_back, self._decisions), *fallbacks(self._unequal), *self._split.notes())


@dataclass
class Quota(Divides):
    """A limit on the resident blocks of each stream on every SM."""

    name = "quota"
    summary = "at most so many blocks of each stream's kernels on every SM, as given: any intra-SM split by hand"
    family = "intra-sm"
    validated_as = ("quota", "green")
    blocks: str | None = parameter(
        None, "most blocks of each stream on an SM, as A:2+B:3; a stream not named has no limit", of_streams=BY_NAME
    )
    release: bool = parameter(False, "a stream may fill the GPU while no other has work")
    _most: Mapping[str, int] = field(default_factory=dict, init=False, repr=False)
    _fell_back: Counter[str] = field(default_factory=Counter, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.blocks is not None:
            self._most = _quotas(self.blocks)

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Check that the trace has the streams that are named."""
        for stream in self._most:
            known_stream(self.name, "blocks", stream, streams)

    def partition(self, view: View) -> Partition:
        """Every stream places blocks within its quota, in a line of its own; room goes to the higher priority."""
        if self.release and len(streams_now(view)) < 2:
            return unshared(view)
        limited = [kernel for kernel in view.kernels if kernel.stream in self._most]
        counts = [min(self._most[kernel.stream], kernel.blocks_per_sm) for kernel in limited]
        if limited and not residents_of(view.gpu, limited)(counts):
            self._fell_back["an SM does not hold the quotas together: the first come has its own"] += 1
        line = sorted(view.kernels, key=lambda kernel: -kernel.priority)
        return Partition(tuple(Grant(k.id, blocks_per_sm=self._most.get(k.stream), queue=k.stream_index) for k in line))

    def notes(self) -> tuple[str, ...]:
        """How often the quotas of the kernels there did not fit together on an SM."""
        return fallbacks(self._fell_back)


def _quotas(text: str) -> dict[str, int]:
    def one(part: str) -> tuple[str, int]:
        stream, colon, blocks = part.rpartition(":")
        if not colon or not stream or whole_number(blocks) < 1:
            raise ValueError
        return stream, int(blocks)

    read = plus_separated(Quota.name, "blocks", text, one, "STREAM:N with N at least 1")
    found = dict(read)
    if len(found) != len(read):
        raise wrong(Quota.name, f"blocks={text} names a stream twice", "each stream once")
    return found
