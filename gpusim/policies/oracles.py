"""Oracles: the best static division of SMs or blocks, found by replaying many.

With two streams every division is replayed (SM splits in steps of a TPC, block quotas one by one); with more the
search starts from a few and moves a part from one stream to another, in steps that halve, as long as that is better,
so that what it finds is good but may not be best; the result's notes say which it was. Best is the least makespan of
streams that run once, or (``objective=stp``) the largest STP of streams that restart. Every division is tried in two
ways: held for the whole replay, and with the part of a stream that has nothing on the GPU left to the others. A
policy that decides anew for every kernel is not static and may beat the oracle.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations, product
from math import inf
from typing import ClassVar

from gpusim.common.progress import watcher
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Partition, Policy, View, parameter
from gpusim.policies.spatial import even_counts, proportional_counts
from gpusim.policies.tools.values import wrong

Counts = tuple[int, ...]


@dataclass(frozen=True)
class _Space:
    """The divisions to try: all of them for few streams, else some starting points and their neighbours."""

    starts: Sequence[Counts]  # all of them, or where the search starts
    moves: Callable[[Counts, int], Iterator[Counts]] | None = None  # to neighbours at a distance; None: no search
    widest: int = 0  # the largest distance

    def search(self, score: Callable[[Sequence[Counts]], Sequence[float]]) -> None:
        """Score divisions until all are done, nothing gets better or ``score`` leaves some out, at its limit."""
        found = score(self.starts)
        if self.moves is None or not found or len(found) < len(self.starts):
            return
        best, least = _first_least(self.starts, found)
        step = self.widest
        while step >= 1:
            moved = list(self.moves(best, step))
            found = score(moved)
            if len(found) < len(moved):
                return
            better, less = _first_least([best, *moved], [least, *found])
            if better == best:
                step //= 2
            best, least = better, less


def _first_least(every: Sequence[Counts], scores: Sequence[float]) -> tuple[Counts, float]:
    least = min(scores)
    return every[scores.index(least)], least


@dataclass
class Oracle(Policy):
    """A search over divisions of one kind. It is no rule: a replay cannot run it, a search by replays can."""

    # policies of this kind that are static too; the search tries them as well, so that none beats it
    named: ClassVar[tuple[str, ...]] = ()
    objective: str = parameter(
        "makespan",
        "makespan (shortest, streams run once) or stp (largest, streams restart)",
        one_of=("makespan", "stp"),
    )
    replays: int = parameter(
        300, "most divisions to replay for three streams or more; for two, all are replayed", least=1
    )

    def search(
        self,
        gpu: GPU,
        isolated_us: Mapping[str, float],
        most_blocks: Sequence[int],
        score: Callable[[Sequence[str]], Iterable[float]],
    ) -> tuple[str, str]:
        """The best division of a GPU, as a policy, and a note on how it was found.

        ``isolated_us`` has the makespan of each stream alone on the whole GPU, in the order of the trace;
        ``most_blocks`` of each stream the most blocks of one of its kernels that an SM holds. ``score`` replays
        policies and tells how good each is by the objective: the lower, the better.
        """
        names, scores = tuple(isolated_us), dict[str, float]()
        space = self.space(gpu, tuple(isolated_us.values()), most_blocks)
        most = self.replays if len(names) > 2 else inf
        complete = space.moves is None
        watch, expected = watcher(), len(self.named) + 2 * len(space.starts) if complete else self.replays

        def score_new(texts: Iterable[str]) -> None:
            new = list(dict.fromkeys(text for text in texts if text not in scores))
            for text, found in zip(new, score(new), strict=True):
                scores[text] = found
                if watch is not None:
                    watch(min(1.0, len(scores) / expected))

        def divided(every: Sequence[Counts], adapts: bool) -> list[float]:
            texts, planned = list[str](), set(scores)
            for counts in every:
                if len(planned) >= most:
                    break
                texts.append(self.division(names, counts, adapts))
                planned.add(texts[-1])
            score_new(texts)
            return [scores[text] for text in texts]

        score_new(self.named)
        for adapts in (True, False):
            space.search(partial(divided, adapts=adapts))
        best = min(scores, key=lambda text: scores[text])  # of equals the first tried
        how = "all divisions" if complete else "a local search"
        return best, f"best of {len(scores)} replays ({how}) by {self.objective}: {best}"

    @abstractmethod
    def space(self, gpu: GPU, isolated_us: Sequence[float], most_blocks: Sequence[int]) -> _Space:
        """The divisions to try; arguments as for `search`."""

    @abstractmethod
    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """The policy that divides the GPU so; ``adapts``: a stream that is gone leaves its part to the others."""

    def prepare(self, gpu: GPU, streams: Sequence[str]) -> None:
        """Refuse: one replay is no search."""
        raise wrong(self.name, "is a search by many replays", "gpusim.replay, which does it")

    def partition(self, view: View) -> Partition:
        """Never called: `prepare` refuses."""
        return Partition(())


@dataclass
class OracleInterSM(Oracle):
    """The best split of the SMs."""

    name = "oracle-inter-sm"
    validated_as = ("green", "sm_curve")
    summary = (
        "the best static SM split, by replaying every one for two streams and by local search for more: the bound "
        "that SM-split policies are measured by"
    )
    family = "inter-sm"
    named = ("inter-sm",)
    step: int | None = parameter(None, "SMs by which splits differ; default: a TPC", least=1)

    def space(self, gpu: GPU, isolated_us: Sequence[float], most_blocks: Sequence[int]) -> _Space:
        """SM splits in steps; what makes no whole step goes to the last stream."""
        streams = len(isolated_us)
        step = min(self.step or gpu.sms_per_tpc, gpu.sm_count)
        units = gpu.sm_count // step
        rest = gpu.sm_count - units * step

        def in_sms(counts: Sequence[int]) -> Counts:
            return (*(step * count for count in counts[:-1]), step * counts[-1] + rest)

        if streams > units:
            return _Space(())
        if streams <= 2:
            return _Space([in_sms((n, units - n)) for n in range(1, units)] if streams == 2 else [in_sms((units,))])

        def moves(counts: Counts, width: int) -> Iterator[Counts]:
            for giver, taker in permutations(range(streams), 2):
                if counts[giver] > width * step:
                    moved = list(counts)
                    moved[giver] -= width * step
                    moved[taker] += width * step
                    yield tuple(moved)

        weights = [max(1, round(1000 * us)) for us in isolated_us]
        starts = [in_sms(even_counts(units, streams)), in_sms(proportional_counts(units, weights))]
        return _Space(starts, moves, max(1, units // (2 * streams)))

    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """An explicit SM split."""
        return f"inter-sm:sms={'+'.join(map(str, counts))}" + (",dynamic=true" if adapts else "")


@dataclass
class OracleIntraSM(Oracle):
    """The best block quota."""

    name = "oracle-intra-sm"
    validated_as = ("quota", "green")
    summary = (
        "the best static block quota of each stream on every SM, by replaying every one for two streams and by local "
        "search for more: the bound that intra-SM policies are measured by"
    )
    family = "intra-sm"
    named = ("even",)

    def space(self, gpu: GPU, isolated_us: Sequence[float], most_blocks: Sequence[int]) -> _Space:
        """Blocks of each stream on an SM, from 1 to the most that any of its kernels can have."""
        streams = len(most_blocks)
        if streams <= 2:
            return _Space(list(product(*(range(1, most + 1) for most in most_blocks))))

        def moves(counts: Counts, width: int) -> Iterator[Counts]:
            for i, j, sign in product(range(streams), range(streams), (1, -1)):
                moved = list(counts)
                moved[i] += sign * width
                if i != j:
                    moved[j] -= sign * width
                if all(1 <= count <= most for count, most in zip(moved, most_blocks, strict=True)):
                    yield tuple(moved)

        starts = [tuple(most_blocks), tuple(max(1, most // streams) for most in most_blocks), (1,) * streams]
        return _Space(starts, moves, max(1, max(most_blocks) // 2))

    def division(self, streams: Sequence[str], counts: Sequence[int], adapts: bool) -> str:
        """An explicit quota."""
        quotas = "+".join(f"{stream}:{count}" for stream, count in zip(streams, counts, strict=True))
        return f"quota:blocks={quotas}" + (",release=true" if adapts else "")
