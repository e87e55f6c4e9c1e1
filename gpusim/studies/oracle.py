"""Oracles: the best static division of SMs or blocks, found by replaying many.

With two streams every division is replayed (SM splits in steps of a TPC, block quotas one by one); with more the
search starts from a few and moves a part from one stream to another, in steps that halve, as long as that is better,
so that what it finds is good but may not be best; the result's notes say which it was. Best is the least makespan of
streams that run once, or (``objective=stp``) the largest STP of streams that restart. Every division is tried in two
ways: held for the whole replay, and with the part of a stream that has nothing on the GPU left to the others. A
policy that decides anew for every kernel is not static and may beat the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

from gpusim.calibrate.kernels import Kernels, recording_gpu
from gpusim.calibrate.solo import solo_makespans
from gpusim.common.errors import InputError
from gpusim.engine.replay import Starved
from gpusim.engine.several_gpus import parts
from gpusim.hardware.gpu import GPU
from gpusim.policies.interface import Policy
from gpusim.policies.oracles import Oracle, OracleInterSM
from gpusim.policies.registry import policies, policy_from
from gpusim.policies.spatial import even_counts, proportional_counts
from gpusim.results.metrics import normalised_progress, sharing
from gpusim.results.result import Result
from gpusim.studies.rules import makespan_us, replay_rule
from gpusim.studies.workload import require_independent
from gpusim.trace.format import Trace

Counts = tuple[int, ...]


def oracle_of(policy: Policy | type[Policy]) -> str | None:
    """Name of the oracle for a policy; None where the policy divides neither SMs nor blocks."""
    name = f"oracle-{policy.family}"
    return name if name in policies() else None


def distance(result: Result, best: Result, objective: str = "makespan") -> float:
    """How far a replay is from its oracle's, 0: as good; 0.1: a tenth longer (or a tenth less STP); below 0: better.

    Args:
        result: of any policy.
        best: of an oracle on the same trace and GPU.
        objective: ``makespan`` or ``stp``, what the oracle was asked for; STP is of replays with ``restart``.
    """
    if objective == "stp":
        return _stp(best) / _stp(result) - 1.0
    return result.makespan_us / best.makespan_us - 1.0 if best.makespan_us > 0.0 else 0.0


def search(
    trace: Trace,
    gpu: GPU,
    oracle: str | Policy,
    *,
    kernels: Kernels | None = None,
    solo: Mapping[str, float] | None = None,
    restart: bool = False,
    residents: bool = False,
    recorded_on: GPU | None = None,
) -> Result:
    """Replay a trace under the best division that an oracle finds.

    Args:
        trace: what was recorded.
        gpu: where to replay it.
        oracle: ``oracle-inter-sm`` or ``oracle-intra-sm`` with parameters, or the object.
        kernels: as for `gpusim.engine.replay.replay`.
        solo: as for `gpusim.engine.replay.replay`.
        restart: give the replay of streams that restart; which division is best depends on the objective alone.
        residents: as for `gpusim.replay`.
        recorded_on: as for `gpusim.replay`.

    Returns:
        The replay under the best division, which it names. Its policy is the oracle; a note says how many divisions
        were replayed.

    Raises:
        InputError: as `gpusim.engine.replay.replay`; with ``objective=stp``, streams that cannot restart.
    """
    asked = policy_from(oracle) if isinstance(oracle, str) else oracle
    assert isinstance(asked, Oracle)
    kernels = kernels if kernels is not None else Kernels(recorded_on or recording_gpu(trace, gpu), gpu)
    solo = solo if solo is not None else solo_makespans(trace, gpu, kernels)
    if asked.objective == "stp":
        require_independent(trace, solo)
    found: dict[int, str] = {}
    notes: list[str] = []
    for part in parts(trace, gpu):
        if len(part.gpus) > 1:
            waiting = f"GPUs {', '.join(map(str, part.gpus))} wait for one another"
            raise InputError(None, f"policy {asked.name}", waiting, "GPUs that do not: each is divided by itself")
        (at,) = part.gpus
        found[at], note = _best_division(part.trace, gpu, asked, kernels, solo, recorded_on)
        notes.append(note)
    several = len(found) > 1
    if several:
        notes = [f"GPU {at}: {note}" for at, note in zip(found, notes, strict=True)]
    result = replay_rule(
        trace,
        gpu,
        {at: policy_from(text) for at, text in found.items()},
        kernels=kernels,
        solo=solo,
        restart=restart,
        residents=residents,
        recorded_on=recorded_on,
    )
    name = oracle if isinstance(oracle, str) else asked.name
    division = "; ".join(f"GPU {at}: {text}" if several else text for at, text in found.items())
    return replace(result, policy=name, notes=(*result.notes, *notes), division=division)


def _best_division(
    trace: Trace, gpu: GPU, oracle: Oracle, kernels: Kernels, solo: Mapping[str, float], recorded_on: GPU | None
) -> tuple[str, str]:
    """The best division of one GPU, as a policy, and a note on how it was found."""
    tried = _Tried(trace, gpu, oracle, kernels, solo, recorded_on)
    for name in oracle.named:
        tried.score(name)
    space = _splits(trace, gpu, oracle, solo) if isinstance(oracle, OracleInterSM) else _quotas(trace, kernels)
    for adapts in (True, False):
        space.search(partial(tried.division, adapts=adapts), tried.limit_reached)
    text = tried.best()
    how = "all divisions" if space.complete else "a local search"
    return text, f"best of {len(tried.scores)} replays ({how}) by {oracle.objective}: {text}"


class _Tried:
    """Replays divisions and keeps their scores; lower is better."""

    def __init__(
        self,
        trace: Trace,
        gpu: GPU,
        oracle: Oracle,
        kernels: Kernels,
        solo: Mapping[str, float],
        recorded_on: GPU | None,
    ) -> None:
        self.trace = trace
        self.gpu = gpu
        self.oracle = oracle
        self.kernels = kernels
        self.solo = solo
        self.recorded_on = recorded_on
        self.names = [stream.name for stream in trace.streams]
        self.scores: dict[str, float] = {}
        self.limited = len(self.names) > 2

    def division(self, counts: Counts, adapts: bool) -> float:
        return self.score(self.oracle.division(self.names, counts, adapts))

    def score(self, text: str) -> float:
        known = self.scores.get(text)
        if known is None:
            known = self.scores[text] = self._score(text)
        return known

    def _score(self, text: str) -> float:
        if self.oracle.objective == "makespan":
            return makespan_us(self.trace, self.gpu, policy_from(text), self.kernels)
        try:
            result = replay_rule(
                self.trace,
                self.gpu,
                text,
                kernels=self.kernels,
                solo=self.solo,
                restart=True,
                recorded_on=self.recorded_on,
            )
            return -_stp(result)
        except Starved:
            return 0.0

    def limit_reached(self) -> bool:
        return self.limited and len(self.scores) >= self.oracle.replays

    def best(self) -> str:
        """The text with the lowest score, of equals the first tried."""
        return min(self.scores, key=lambda text: self.scores[text])


class _Space:
    """The divisions to try: all of them for few streams, else some starting points and their neighbours."""

    def __init__(
        self,
        every: Iterable[Counts] | None,
        starts: Sequence[Counts],
        moves: Callable[[Counts, int], Iterator[Counts]],
        widest: int,
    ) -> None:
        self.complete = every is not None
        self._every = list(every) if every is not None else list(starts)
        self._moves = moves
        self._widest = widest

    def search(self, score: Callable[[Counts], float], full: Callable[[], bool]) -> None:
        """Score divisions until all are done, nothing gets better or the limit is reached."""
        best: Counts | None = None
        for counts in self._every:
            if full():
                return
            found = score(counts)
            if best is None or found < score(best):
                best = counts
        step = self._widest
        while best is not None and not self.complete and step >= 1:
            better = best
            for counts in self._moves(best, step):
                if full():
                    return
                if score(counts) < score(better):
                    better = counts
            if better == best:
                step //= 2
            best = better


def _splits(trace: Trace, gpu: GPU, oracle: OracleInterSM, solo: Mapping[str, float]) -> _Space:
    """SM splits in steps; what makes no whole step goes to the last stream."""
    streams = len(trace.streams)
    step = min(oracle.step or gpu.sms_per_tpc, gpu.sm_count)
    units = gpu.sm_count // step
    rest = gpu.sm_count - units * step

    def in_sms(counts: Sequence[int]) -> Counts:
        return (*(step * count for count in counts[:-1]), step * counts[-1] + rest)

    if streams > units:
        return _Space((), (), _nowhere, 0)
    if streams <= 2:
        every = [in_sms((n, units - n)) for n in range(1, units)] if streams == 2 else [in_sms((units,))]
        return _Space(every, (), _nowhere, 0)

    def moves(counts: Counts, width: int) -> Iterator[Counts]:
        for giver, taker in product(range(streams), repeat=2):
            if giver != taker and counts[giver] > width * step:
                moved = list(counts)
                moved[giver] -= width * step
                moved[taker] += width * step
                yield tuple(moved)

    weights = [max(1, round(1000 * solo[stream.name])) for stream in trace.streams]
    starts = [in_sms(even_counts(units, streams)), in_sms(proportional_counts(units, weights))]
    return _Space(None, starts, moves, max(1, units // (2 * streams)))


def _quotas(trace: Trace, kernels: Kernels) -> _Space:
    """Blocks of each stream on an SM, from 1 to the most that any of its kernels can have."""
    most = [
        max(
            (kernels.model(launch, op.id).blocks_per_sm for op in stream.operations for launch in op.launches()),
            default=1,
        )
        for stream in trace.streams
    ]
    streams = len(most)
    if streams <= 2:
        return _Space(product(*(range(1, top + 1) for top in most)), (), _nowhere, 0)

    def moves(counts: Counts, width: int) -> Iterator[Counts]:
        changes = [(i, j, sign) for i, j in product(range(streams), repeat=2) for sign in (1, -1)]
        for i, j, sign in changes:
            moved = list(counts)
            moved[i] += sign * width
            if i != j:
                moved[j] -= sign * width
            if all(1 <= count <= top for count, top in zip(moved, most, strict=True)):
                yield tuple(moved)

    starts = [tuple(most), tuple(max(1, top // streams) for top in most), (1,) * streams]
    return _Space(None, starts, moves, max(1, max(most) // 2))


def _nowhere(_counts: Counts, _width: int) -> Iterator[Counts]:
    yield from ()


def _stp(result: Result) -> float:
    return sharing(normalised_progress(result))["stp"]
