"""How much two programs slow one another, from fitted kernels and without a replay: for schedulers that ask often.

A program is taken as its longest kernel of each kind (what binds it), each for the share of the program's time that
its kind takes. Every kernel of one program meets every kernel of the other for the product of their shares. Two kernels
that meet have the paces and loads that the replay's own formulas give in a steady state. They wait for code that they
have lost to the other program, and for its launches, on the mean. The order of kernels, tails and waits are left
out [D].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil, fsum
from os import PathLike
from statistics import fmean
from typing import NamedTuple

from gpusim.choose.code_returns import Code, Return, code_of, few, returns_of
from gpusim.choose.settings import Setting
from gpusim.common.errors import InputError, quote
from gpusim.common.tables import counted, grouped
from gpusim.engine.domains import QUEUE_HALVINGS, STAYS_BUSY
from gpusim.hardware.gpu import GPU, gpu_of, load_shipped_gpu
from gpusim.model.contention import mix_times
from gpusim.model.kernel import KernelModel, mix_rates
from gpusim.model.memory import MemoryWait, dram_queue, launch_wait_us, memory_slowdown, wait_slowdown
from gpusim.model.occupancy import fits
from gpusim.policies.limits import GreenContext, Mig, Mps
from gpusim.session import AnyGPU, AnyTrace, Session
from gpusim.trace.file import trace_of
from gpusim.trace.format import Trace
from gpusim.trace.operations import Kernel

MOST_KEPT = 4096  # programs and pairs that are remembered
ROUNDS = 2  # of the slowdowns, on which the traffic since a kernel came last depends [D]
WAYS = "streams, in turn, an SM split such as 64+68, MPS (60+40 %), or MIG (3g+4g)"
_SAME = {
    "leftover": "streams",
    "serial": "in turn",
    "equal priority": "streams",
    "one after the other": "in turn",
    "streams (equal priority)": "streams",
    "in turn (one after the other)": "in turn",
}


class _Parts(NamedTuple):
    """SMs of each of two programs, where each has its own."""

    sms: tuple[int, int]
    memory: tuple[float, float] | None = None  # of each, its share of L2 and DRAM, 0 to 1; None: they share both

    def swapped(self) -> _Parts:
        """The other program first."""
        return _Parts(self.sms[::-1], self.memory and self.memory[::-1])


IN_TURN = _Parts((0, 0))  # no part at all: one after the other


class Slowdown(NamedTuple):
    """Time of each program beside the other over its time alone on the whole GPU; both keep running."""

    a: float
    b: float


@dataclass(frozen=True)
class _Part:
    """A kernel that stands for some of a program's time."""

    model: KernelModel
    share: float  # of the program's time, 0 to 1
    frequency: float  # of the program's kernels, 0 to 1
    mean_us: float  # what a kernel of its kind takes alone
    left_us: float  # mean of what is left of a kernel of its kind at a random instant of one
    launching: float  # share of its time in which no block runs
    own_dram: float  # share of the rest in which it keeps DRAM busy alone
    wait: MemoryWait  # of the kernel; for code as of all kernels of its kind
    instruction_share: float  # share of its waits for code that is for instructions
    returns: tuple[Return, ...]  # of the kernels that wait for code


@dataclass(frozen=True)
class _Known:
    """A program as it meets others."""

    trace: Trace  # kept, as its id is what it is known by
    parts: tuple[_Part, ...]
    code: Code
    alone_us: float
    running: float  # share of that in which kernels run, and not copies or the host


def slowdown(
    a: AnyTrace | Sequence[AnyTrace],
    b: AnyTrace | Sequence[AnyTrace],
    setting: str | Setting | Sequence[str | Setting] = "streams",
    *,
    gpu: AnyGPU | None = None,
) -> Slowdown | list[Slowdown]:
    """Estimate how much two programs that keep running slow each other.

    Most pairs of whole models are within a quarter of a replay. In streams, a program of short kernels beside one of
    long kernels slows down less than this says.

    The first call with a program fits its kernels. Later calls with the same trace object reuse the fit; a path is read
    again.

    Args:
        a: a program: a trace or the path of its file; or a list of them, the first of each pair.
        b: the other program; or a list as long as ``a``.
        setting: how they share the GPU: ``streams``, ``in turn``, an SM split ``64+68`` (SMs of a, then of b), ``MPS
            (60+40 %)``, ``MIG (3g+4g)``, a policy (``leftover``, ``serial``, ``inter-sm:sms=64+68``) or a `Setting` of
            `gpusim.advise` without priorities and time slices; or one for each pair.
        gpu: the GPU, one for all pairs: a `GPU`, its name or the path of its file; None: the GPU of the recording.

    Returns:
        Two factors, 1 or more; for lists, a list of such pairs.

    Raises:
        InputError: lists of different lengths, programs recorded on different GPUs, an unknown setting, or a split that
            the GPU does not allow.
    """
    one_pair = isinstance(a, str | PathLike | Trace) and isinstance(b, str | PathLike | Trace)
    firsts, others = ([a], [b]) if one_pair else (a, b)
    for one in (a, b):
        if not isinstance(one, str | PathLike | Trace | list | tuple):
            expected = "a trace, the path of its file, or a list of them"
            raise InputError(None, "slowdown", f"is given {quote(one)}", expected)
    if not (isinstance(firsts, list | tuple) and isinstance(others, list | tuple) and len(firsts) == len(others)):
        raise InputError(None, "slowdown", "a and b are not as many", "a program each, or lists of as many")
    ways = [setting] * len(firsts) if isinstance(setting, str | Setting) else setting
    if not (isinstance(ways, list | tuple) and all(isinstance(way, str | Setting) for way in ways)):
        raise InputError(None, "setting", f"is {quote(str(setting))}", WAYS)
    if len(ways) != len(firsts):
        problem = f"{len(ways)} settings for {counted(len(firsts), 'pair')}"
        raise InputError(None, "slowdown", problem, "one setting, or one for each pair")
    found = [_slowdown(*pair, gpu) for pair in zip(firsts, others, ways, strict=True)]
    return found[0] if one_pair else found


def _slowdown(a: AnyTrace, b: AnyTrace, setting: str | Setting, gpu: AnyGPU | None) -> Slowdown:
    first, second = trace_of(a), trace_of(b)
    if first.device != second.device:
        problem = f"programs recorded on {first.device} and on {second.device}"
        raise InputError(None, "slowdown", problem, "programs recorded on one GPU")
    session = _on(first.device) if gpu is None else _session(gpu_of(gpu))
    one, other = _program(session, first), _program(session, second)
    parts = _parts(setting, session.gpu)
    if parts == IN_TURN:
        both = one.alone_us + other.alone_us
        return Slowdown(both / one.alone_us, both / other.alone_us)
    found = Slowdown(1.0, 1.0)
    for _ in range(ROUNDS):
        found = _together(session.gpu, one, other, parts, found)
    return found


def _together(gpu: GPU, one: _Known, other: _Known, parts: _Parts | None, paces: Slowdown) -> Slowdown:
    """Both programs on the SMs, their code lost as at some slowdowns of them."""
    pace = paces.a / paces.b
    of_a = _over(gpu, one, other, pace, parts)
    of_b = _over(gpu, other, one, 1.0 / pace, parts and parts.swapped())
    if parts is None:  # who copies meanwhile slows nobody
        return Slowdown(*(1.0 + one.running * other.running * (factor - 1.0) for factor in (of_a, of_b)))
    return Slowdown(1.0 + one.running * (of_a - 1.0), 1.0 + other.running * (of_b - 1.0))


def _over(gpu: GPU, own: _Known, other: _Known, pace: float, parts: _Parts | None) -> float:
    """The slowdown of the program of some kernels beside another.

    Kernels that share the SMs meet in proportion to their times. Of kernels that do not fit together each waits for the
    other, because a GPU places all blocks of the kernel that came first; it is launched meanwhile. A program whose
    kernels follow one another alternates with the other program: each of its kernels waits for one. A kernel that comes
    after a copy comes at a random instant, and waits for the rest of the kernel that runs then.
    """
    whole, apart = 0.0, parts is not None
    others = own.code.beside(other.code, pace, apart)
    shares = [its.share for its in other.parts]
    wait_us = 0.0
    if parts is None or parts.memory is None:
        its_sms = parts.sms[1] if parts else gpu.sm_count
        wait_us = other.running * fmean([_launch_wait_us(_alone(its.model, its_sms)) for its in other.parts], shares)
    for part in own.parts:
        shared_sms, from_l2 = (0.0, part.instruction_share) if apart else (other.code.sms_share, 1.0)
        gone = own.code.mean_lost(part.returns, others, from_l2, shared_sms)
        beside = [_of_kernels(gpu, part.model, its.model, parts) for its in other.parts]
        alone = wait_slowdown(0.0, 0.0, part.own_dram, part.wait, gone)
        shared = [alone if one is None else one[0].slowdown(part.wait, gone) for one in beside]
        alternating, random = [], []
        for one, its in zip(beside, other.parts, strict=True):
            running = (1.0 - its.launching) / part.mean_us
            alternating.append(0.0 if one is not None else max(0.0, its.mean_us * running - part.launching))
            random.append(0.0 if one is not None else its.left_us * running)
        weights = [
            its.share if one is not None else its.frequency for one, its in zip(beside, other.parts, strict=True)
        ]
        launching = part.launching + wait_us / part.mean_us if part.model.in_graph else part.launching
        factor = own.running * fmean(shared, weights) + (1.0 - own.running) * fmean(shared, shares)
        factor += others.graph_launches * gpu.model.block_delay_us * part.wait.share
        turn = own.running * fmean(alternating, weights) + (1.0 - own.running) * fmean(random, shares)
        whole += part.share * (launching + (1.0 - part.launching) * factor + turn)
    return max(1.0, whole)


def _parts(setting: str | Setting, gpu: GPU) -> _Parts | None:
    """The SMs of each program, or None where both may use all."""
    text = setting.policy if isinstance(setting, Setting) else setting
    if isinstance(setting, Setting) and setting.priorities:
        raise InputError(None, "setting", f"is {quote(str(setting))}; priorities are not estimated", WAYS)
    slices = re.search(r"(?:^mig:.*slices=|^MIG \()([0-9]g(?:2m)?\+[0-9]g(?:2m)?)\)?(?:,|$)", text)
    if slices is not None:
        return _instances(slices[1], gpu)
    limits = re.search(r"(?:^mps:.*percent=|MPS \()([0-9]+)\+([0-9]+)(?: %\))?(?:,|$)", text)
    if limits is not None:  # of two that add up to more than 100 % the second has the rest
        first, second = map(len, Mps(percent=f"{limits[1]}+{limits[2]}").parts(gpu, ("a", "b")))
        text = f"{first}+{min(gpu.sm_count - first, second)}"
    name = _SAME.get(text, text)
    if name in ("streams", "in turn"):
        return None if name == "streams" else IN_TURN
    found = re.search(r"(?:^|sms=|SM split \(?)([0-9]+)\+([0-9]+)(?: SMs)?\)?(?:,|$)", text)
    if found is None:
        raise InputError(None, "setting", f"is {quote(text)}", WAYS)
    sms = int(found[1]), int(found[2])
    if min(sms) < 1 or sum(sms) > gpu.sm_count:
        raise InputError(None, "setting", f"is {quote(text)}", f"1 or more SMs each, at most {gpu.sm_count} together")
    if limits is None and not text.startswith("inter-sm:"):
        GreenContext(sms=f"{sms[0]}+{sms[1]}").parts(gpu, ("a", "b"))  # refuses what the driver does not grant
    return _Parts(sms)


def _instances(slices: str, gpu: GPU) -> _Parts:
    """What two MIG instances have."""
    policy = Mig(slices=slices)
    policy.prepare(gpu, ("a", "b"))
    (sms_a, memory_a), (sms_b, memory_b) = policy.instances()
    return _Parts((sms_a, sms_b), (memory_a, memory_b))


# ---- programs


@cache
def _on(device: str) -> Session:
    return _session(load_shipped_gpu(device))


@cache
def _session(gpu: GPU) -> Session:
    return Session(gpu, cache=True)


_PROGRAMS: dict[tuple[int, int], _Known] = {}  # by the ids of session and trace, which are kept
_PAIRS: dict[tuple[object, object, _Parts | None], tuple[_Beside, _Beside] | None] = {}


def _program(session: Session, trace: Trace) -> _Known:
    """Return a program as it meets others, from the cache if it came before."""
    key = id(session), id(trace)
    known = _PROGRAMS.get(key)
    if known is None:
        if len(_PROGRAMS) >= MOST_KEPT:
            _PROGRAMS.clear()
        known = _PROGRAMS[key] = _known(session, trace)
    return known


def _known(session: Session, trace: Trace) -> _Known:
    kernels, gpu = session.kernels(trace), session.gpu
    played = kernels.worked_out(trace)
    launched = [
        (kernels.model(launch, op.id), isinstance(op, Kernel)) for op in played.operations() for launch in op.launches()
    ]
    if not launched:
        raise InputError(None, "program", f"{quote(trace.name)} has no kernels", "a program that runs kernels")
    models = [model for model, _ in launched]
    alone_us = session.replay(trace, "leftover", keep=()).makespan_us
    returns = returns_of(models, gpu, alone_us)
    runs = [_Run(model, *how, loses) for (model, loses), how in zip(launched, returns, strict=True)]
    whole_us = fsum(model.solo_us for model in models)
    parts = tuple(_part(of, whole_us, len(runs)) for of in grouped(runs, lambda run: _kind(run.model)).values())
    return _Known(trace, parts, code_of(models, gpu, alone_us), alone_us, min(1.0, whole_us / alone_us))


class _Run(NamedTuple):
    """A kernel of a pass, with the DRAM traffic and the time since its last run, as in `Return`."""

    model: KernelModel
    moved: float
    us: float
    loses: bool  # calls of libraries lose no code, as in a replay

    @property
    def code_us(self) -> float:
        """Time that it waits for code, as recorded."""
        return self.model.wait.code * self.model.solo_us


def _part(runs: Sequence[_Run], whole_us: float, kernels: int) -> _Part:
    """Kernels of a kind as one."""
    longest = max((run.model for run in runs), key=lambda model: model.solo_us)
    us = fsum(run.model.solo_us for run in runs)
    code_us = fsum(run.code_us for run in runs)
    waiting = [run for run in runs if run.loses and run.code_us > 0.0]
    returns = [Return(run.code_us / code_us, run.moved, run.us) for run in waiting]
    return _Part(
        longest,
        us / whole_us,
        len(runs) / kernels,
        us / len(runs),
        fsum(run.model.solo_us**2 for run in runs) / us / 2.0,
        min(1.0, fsum(run.model.latency_us for run in runs) / us),
        min(1.0, longest.blocks * longest.dram_share_us / max(1e-9, longest.solo_us - longest.latency_us)),
        longest.wait._replace(code=code_us / us),
        fsum(run.code_us * run.model.instruction_share for run in runs) / code_us if code_us > 0.0 else 1.0,
        few(returns),
    )


def _kind(model: KernelModel) -> str:
    """Resource that bounds an isolated kernel (DRAM, L2 or an SM), and whether the kernel fills the GPU."""
    load = model.full_load
    binds = "dram" if load.dram >= max(load.l2, 0.5) else "l2" if load.l2 >= 0.5 else "sm"
    return f"{binds} {model.blocks >= model.sm_count}"


# ---- kernels


class _Beside(NamedTuple):
    """A kernel beside another in a steady state."""

    shared: float  # its time at the load of both, over its time alone on the whole GPU
    own: float  # the same at its own load
    dram: float  # share of the time in which the other keeps DRAM busy
    l2: float
    own_dram: float
    queue: float = 0.0  # as of `dram_queue`

    def slowdown(self, wait: MemoryWait, code_lost: float = 0.0) -> float:
        """Factor on its time alone."""
        waiting = wait_slowdown(self.dram, self.l2, self.own_dram, wait, code_lost, queue=self.queue)
        return max(1.0, self.shared, self.own * waiting)


def _of_kernels(gpu: GPU, p: KernelModel, q: KernelModel, parts: _Parts | None) -> tuple[_Beside, _Beside] | None:
    """Two kernels that co-run; None: they are time-shared."""
    key = p.identity, q.identity, parts
    if key not in _PAIRS:
        if len(_PAIRS) >= 16 * MOST_KEPT:
            _PAIRS.clear()
        if parts is None:
            found = _mixed(gpu, p, q)
        elif parts.memory is None:  # with SMs of their own they have fewer, and both load L2 and DRAM
            found = _both(_alone(p, parts.sms[0]), _alone(q, parts.sms[1]))
        else:
            each = zip((p, q), parts.sms, parts.memory, strict=True)
            one, other = (_apart(_alone(*its)) for its in each)
            found = one, other
        _PAIRS[key] = found
        _PAIRS[q.identity, p.identity, parts and parts.swapped()] = found and found[::-1]
    return _PAIRS[key]


@dataclass(frozen=True)
class _SteadyPace:
    """How fast a kernel is in a steady state."""

    model: KernelModel
    per_wave: float  # time of a block, L2 and DRAM idle; 1 as recorded
    waves: float  # of blocks, at least 1
    work: float  # blocks at once over the time of one
    memory: float = 1.0  # share of L2 and DRAM that is there for it, 0 to 1

    @property
    def under_way(self) -> float:
        """Time that DRAM needs for what its blocks have under way, as far as it binds them (`MemoryWait`)."""
        return min(1.0, self.dram) * self.work * self.per_wave * self.model.wait.under_way / self.memory

    @property
    def dram(self) -> float:
        """Load of DRAM."""
        return self.model.load.dram * self.work / self.memory

    @property
    def l2(self) -> float:
        """Load of L2."""
        return self.model.load.l2 * self.work / self.memory

    def time(self, dram: float, l2: float) -> float:
        """Time of its blocks at the total load."""
        return self.per_wave * self.waves * memory_slowdown(dram, l2, self.model.own_load)

    def served(self, dram: float, l2: float) -> tuple[float, float]:
        """Share of the time in which it keeps DRAM and L2 busy, each 0 to 1, at the total load."""
        rate = self.work / self.model.unit_us / memory_slowdown(dram, l2, self.model.own_load) / max(1.0, dram, l2)
        rate /= self.memory
        return min(1.0, rate * self.model.dram_share_us), min(1.0, rate * self.model.l2_share_us)


def _alone(model: KernelModel, sms: int, memory: float = 1.0) -> _SteadyPace:
    """A kernel that has some SMs to itself, and a share of L2 and DRAM."""
    used = min(sms, model.blocks)
    held = min(model.blocks_per_sm, ceil(model.blocks / used))
    time = mix_times([(model.demand, held)])[0]
    resident = min(used * held, model.blocks)
    return _SteadyPace(model, time, model.blocks / resident, resident / time, memory)


def _launch_wait_us(pace: _SteadyPace) -> float:
    """Delay of launches of another program's CUDA graph by the memory traffic of a kernel, us."""
    dram, l2 = pace.served(pace.dram, pace.l2)
    return launch_wait_us(dram, l2, dram_queue(dram, pace.under_way))


def _mixed(gpu: GPU, p: KernelModel, q: KernelModel) -> tuple[_Beside, _Beside] | None:
    """Both on all SMs, small kernels on SMs of their own first; None where not all that are resident alone fit."""
    most = [min(model.blocks_per_sm, ceil(model.blocks / gpu.sm_count)) for model in (p, q)]
    shares = [min(1.0, model.blocks / gpu.sm_count) for model in (p, q)]
    both = max(0.0, fsum(shares) - 1.0)
    if both > 0.0 and not fits(gpu, [(p.footprint, most[0]), (q.footprint, most[1])]):
        return None
    rates, _, _ = mix_rates([(p, most[0]), (q, most[1])])
    paces = []
    for model, rate, share in zip((p, q), rates, shares, strict=True):
        alone = _alone(model, gpu.sm_count)
        mixed = both / share
        time = (1.0 - mixed) * alone.per_wave + mixed / (rate * model.unit_us)
        paces.append(_SteadyPace(model, time, alone.waves, alone.work * alone.per_wave / time))
    return _both(*paces)


def _alone_time(model: KernelModel) -> float:
    """Time of the blocks of a kernel that has the whole GPU, as `_SteadyPace.time`."""
    alone = _alone(model, model.sm_count)
    return alone.time(alone.dram, alone.l2)


def _apart(pace: _SteadyPace) -> _Beside:
    """A kernel that shares neither SMs nor memory with the other program."""
    over = pace.time(pace.dram, pace.l2) / _alone_time(pace.model)
    return _Beside(over, over, 0.0, 0.0, pace.served(pace.dram, pace.l2)[0])


def _both(p: _SteadyPace, q: _SteadyPace) -> tuple[_Beside, _Beside]:
    """Each beside the other."""
    dram, l2 = p.dram + q.dram, p.l2 + q.l2
    served = [pace.served(dram, l2) for pace in (p, q)]
    found = []
    for pace, own, others in zip((p, q), served, served[::-1], strict=True):
        alone_time = _alone_time(pace.model)
        shared, apart = pace.time(dram, l2) / alone_time, pace.time(pace.dram, pace.l2) / alone_time
        found.append(_Beside(shared, apart, *others, own[0]))
    queue = _queue(found, (p, q))
    return found[0]._replace(queue=queue), found[1]._replace(queue=queue)


def _queue(beside: Sequence[_Beside], paces: Sequence[_SteadyPace]) -> float:
    """Queue of a full DRAM for the reads of two kernels (`dram_queue`), by the rule of `gpusim.engine.domains`."""

    def served(queue: float) -> float:
        """Share of the time in which DRAM is busy while reads wait so long."""
        slowed = [one._replace(queue=queue).slowdown(pace.model.wait) for one, pace in zip(beside, paces, strict=True)]
        return fsum(one.own_dram * max(1.0, one.shared) / slow for one, slow in zip(beside, slowed, strict=True))

    busy = min(1.0, fsum(one.own_dram for one in beside))
    low, high = 0.0, dram_queue(busy, fsum(pace.under_way for pace in paces))
    least = STAYS_BUSY * served(0.0)
    if served(high) >= least:
        return high
    for _ in range(QUEUE_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (low, middle) if served(middle) < least else (middle, high)
    return low
