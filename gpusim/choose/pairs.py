"""Independent convolutions and algorithms of them that complement one another, as Table 1 of SPAA'20 shows for two.

The rule follows the paper's description of its table [D]. The longest kernel of each algorithm counts. Two algorithms
complement one another if

* each occupies less than the other of the resource that the other occupies most. The resources are registers, shared
  memory, warps and block slots of an SM, with all blocks resident that fit.
* one block of each fits an SM together;
* one computes, and the other waits for memory. The busier of the issue slots and arithmetic pipes is busy for more than
  half of the time for one, and for no more than half for the other. The stalls of the other wait more for memory.

The paper does not say what it counted as one of its 27 cases; here a case is a pair of convolutions with at least one
such pair of algorithms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations, product
from typing import Any

from gpusim.choose.bound import Bounds
from gpusim.choose.judge import Judge, is_less
from gpusim.choose.moves import MIXES, fastest
from gpusim.choose.plan import STREAMS, Plan
from gpusim.choose.profile import BUSY, STATIC, Profile, profile
from gpusim.choose.search import work_of
from gpusim.common.progress import Step, no_step, require_step
from gpusim.hardware.gpu import GPU
from gpusim.model.kernel import KernelModel
from gpusim.model.occupancy import fits as fit_together
from gpusim.session import AnyGPU, AnyTrace, Session, opened

JSON_VERSION = 1  # of what `as_json` gives
ARITHMETIC = ("issue", "alu", "fma", "tensor")
UNLIMITED = 10**9  # replays


@dataclass(frozen=True)
class Side:
    """One of two convolutions in a case."""

    operation: str  # its id
    algorithm: str  # its algorithm
    kernel: str  # the longest kernel of the algorithm
    holds: tuple[str, float]  # resource of an SM that this kernel occupies most, and its share: 0 to 1
    computes: float  # share of time for which the busier of its issue slots and arithmetic pipes is busy: 0 to 1
    memory_stalls: float  # share of its warps' stalls that wait for memory
    alone_us: float  # time of the whole algorithm alone


@dataclass(frozen=True)
class ConvolutionPair:
    """Two independent convolutions with algorithms that complement one another; of several the best together."""

    sides: tuple[Side, Side]  # the two
    combinations: int  # how many pairs of their algorithms complement one another
    gaining: int  # how many of these are faster together than one after the other by the same algorithms
    policy: str  # under which they run best together
    together_us: float  # their makespan then
    serial_us: float  # one after the other by the same algorithms
    serial_fastest_us: float  # one after the other, each by its fastest algorithm
    streams_fastest_us: float  # in two plain streams, each by its fastest algorithm

    @property
    def gain(self) -> float:
        """Over one after the other by the same algorithms: 1.1 is a tenth faster."""
        return self.serial_us / self.together_us

    @property
    def gain_over_fastest(self) -> float:
        """Over one after the other, each by its fastest algorithm."""
        return self.serial_fastest_us / self.together_us


@dataclass(frozen=True)
class Pairs:
    """The complementary pairs of a trace."""

    trace: str  # its name
    gpu: str  # its name
    independent: int  # pairs of convolutions of which neither waits for the other
    # those of them with algorithms that complement one another; first that which gains most over the fastest algorithms
    cases: tuple[ConvolutionPair, ...]

    def __repr__(self) -> str:
        counts = f"independent={self.independent}, cases={len(self.cases)}"
        return f"Pairs(trace={self.trace!r}, gpu={self.gpu!r}, {counts})"


def complementary(a: KernelModel, b: KernelModel, gpu: GPU) -> bool:
    """Whether two kernels complement one another by the rule above."""
    mine, its = profile([a], gpu), profile([b], gpu)
    most, others = _most_held(mine), _most_held(its)
    static = mine.used[most] > its.used[most] and its.used[others] > mine.used[others]
    busy, idle = (mine, its) if computes(mine) > computes(its) else (its, mine)
    dynamic = computes(busy) > BUSY >= computes(idle) and idle.memory_stalls > busy.memory_stalls
    return static and dynamic and fit_together(gpu, [(a.footprint, 1), (b.footprint, 1)])


def _most_held(one: Profile) -> str:
    return max(STATIC, key=lambda name: one.used[name])


def computes(one: Profile) -> float:
    """Share of time for which the busier of issue slots and arithmetic pipes is busy: 0 to 1."""
    return max(one.used[name] for name in ARITHMETIC)


def pairs(
    trace: AnyTrace,
    gpu: AnyGPU | Session | None = None,
    *,
    recorded_on: AnyGPU | None = None,
    step: Step = no_step,
) -> Pairs:
    """Return the pairs of independent convolutions of a trace whose algorithms complement each other.

    Args:
        trace: a trace whose convolutions list alternatives, or the path of its file.
        gpu: the GPU: a `GPU`, its name or the path of its file, or a `Session`; None: the GPU of the recording.
        recorded_on: the GPU of the recording, if the trace names one that does not ship.
        step: called with the name of each step before it starts.

    Raises:
        InputError: a convolution without an algorithm that runs on the GPU, or streams of requests.
    """
    require_step(step)
    trace, session = opened(trace, gpu, recorded_on)
    work = work_of(trace, session.gpu)
    bounds = Bounds(work, session)
    step("fitting kernels to their recording")
    bounds.of_any(work)
    independent = [pair for pair in combinations(work.algorithms, 2) if work.graph.independent(*pair)]
    cases = []
    for n, (a, b) in enumerate(independent, 1):
        step(f"replaying pair {n} of {len(independent)}")
        found = [
            {a: mine, b: its}
            for mine, its in product(work.algorithms[a], work.algorithms[b])
            if complementary(longest(bounds.models(a, mine)), longest(bounds.models(b, its)), session.gpu)
        ]
        if found:
            judge = Judge(work.part([a, b]), bounds, None, UNLIMITED)
            cases.append(_case(judge, (a, b), found))
    cases.sort(key=lambda case: -case.gain_over_fastest)
    return Pairs(trace.name, session.gpu.name, len(independent), tuple(cases))


def longest(models: Sequence[KernelModel]) -> KernelModel:
    """The longest kernel of an algorithm."""
    return max(models, key=lambda model: model.solo_us)


def _case(judge: Judge, ids: tuple[str, str], found: Sequence[dict[str, str]]) -> ConvolutionPair:
    """Replay each pair of algorithms concurrently and in sequence."""
    a, b = ids
    fast = fastest(judge.work, judge.bounds)
    ranked = []
    for algorithms in found:
        together = [judge.replayed(plan) for plan in _side_by_side(a, b, algorithms)]
        serial = judge.replayed(Plan(((a, b),), algorithms))
        ranked.append((min(together, key=lambda one: one.makespan_us), serial))
    best, serial = min(ranked, key=lambda one: one[0].makespan_us)
    chosen = best.plan.algorithms
    return ConvolutionPair(
        (_side(judge, a, chosen[a]), _side(judge, b, chosen[b])),
        len(found),
        sum(1 for one, other in ranked if is_less(one.makespan_us, other.makespan_us)),
        best.plan.policy,
        best.makespan_us,
        serial.makespan_us,
        judge.replayed(Plan(((a, b),), fast)).makespan_us,
        min(judge.replayed(Plan(lanes, fast)).makespan_us for lanes in (((a,), (b,)), ((b,), (a,)))),
    )


def _side_by_side(a: str, b: str, algorithms: dict[str, str]) -> Iterator[Plan]:
    """The concurrent plans: two plain streams in both launch orders, and the block mixes."""
    plan = Plan(((a,), (b,)), algorithms, STREAMS)
    yield plan
    yield replace(plan, lanes=((b,), (a,)))
    yield from (replace(plan, policy=policy) for policy in MIXES)


def _side(judge: Judge, id: str, algorithm: str) -> Side:
    model = longest(judge.bounds.models(id, algorithm))
    known = profile([model], judge.gpu)
    most = _most_held(known)
    return Side(
        id,
        algorithm,
        model.name,
        (most, known.used[most]),
        computes(known),
        known.memory_stalls,
        judge.bounds.alone_us(id, algorithm),
    )


def as_json(found: Pairs) -> dict[str, Any]:
    """The cases as `gpusim pairs --json` prints them."""
    cases = found.cases
    return {
        "version": JSON_VERSION,
        "trace": found.trace,
        "gpu": found.gpu,
        "independent_pairs": found.independent,
        "complementary_pairs": len(cases),
        "complementary_combinations": sum(case.combinations for case in cases),
        "gaining_combinations": sum(case.gaining for case in cases),
        "gaining_pairs": sum(case.gaining > 0 for case in cases),
        "faster_than_serial_fastest": sum(1 for case in cases if is_less(case.together_us, case.serial_fastest_us)),
        "faster_than_streams_fastest": sum(1 for case in cases if is_less(case.together_us, case.streams_fastest_us)),
        "pairs": [{**asdict(case), "gain": case.gain, "gain_over_fastest": case.gain_over_fastest} for case in cases],
    }
