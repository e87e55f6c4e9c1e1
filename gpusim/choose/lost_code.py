"""How long kernels of a replay waited for code that the caches had lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpusim.model.kernel import KernelModel
from gpusim.model.memory import wait_slowdown
from gpusim.results.runs import KernelRun
from gpusim.session import CachedCode, Session
from gpusim.trace.format import Trace
from gpusim.trace.operations import Kernel


def waited_for_code_us(
    trace: Trace,
    session: Session,
    runs: Sequence[KernelRun],
    beside: Sequence[Mapping[int, float]],
    apart: bool = False,
) -> list[float]:
    """Return how much longer each kernel took because its code had to come again, us, at most what sharing added.

    The replay keeps no record of lost code. This function follows the kernels in the order in which they came, as the
    engine does. It compares the wait of each with and without its lost code, beside the same traffic of others.

    ``runs`` are sorted by their start; ``beside`` tells of each the others that ran while it did, by index, and for how
    long (us). ``apart``: programs had SMs of their own.
    """
    if len(trace.programs) < 2 or any(stream.gpu for stream in trace.streams):
        return [0.0] * len(runs)
    kernels, launches = session.kernels(trace), {op.id: op.launches() for op in trace.operations()}
    models = [kernels.model(launches[run.operation][run.index], run.operation) for run in runs]
    lost = _lost(trace, session, runs, models, apart)
    busy_us = [(one.blocks * one.dram_share_us, one.blocks * one.l2_share_us) for one in models]

    def served(by: int, during: int, us: float) -> tuple[float, float]:
        """Share of one kernel's time in which another keeps DRAM and L2 busy."""
        scale = us / (_span_us(runs[by]) * _span_us(runs[during]))
        return busy_us[by][0] * scale, busy_us[by][1] * scale

    found = []
    for at, (run, model, gone) in enumerate(zip(runs, models, lost, strict=True)):
        if gone * model.wait.code <= 0.0 or run.sharing_us <= 0.0:
            found.append(0.0)
            continue
        others = [served(by, at, us) for by, us in beside[at].items()]
        dram, l2 = (min(1.0, sum(one[which] for one in others)) for which in (0, 1))
        own = min(1.0 - dram, busy_us[at][0] / _span_us(run))
        kept, again = (wait_slowdown(dram, l2, own, model.wait, share) for share in (0.0, gone))
        found.append(min(run.sharing_us, _span_us(run) * (1.0 - kept / again)))
    return found


def _span_us(run: KernelRun) -> float:
    return run.end_us - run.start_us


def _lost(
    trace: Trace, session: Session, runs: Sequence[KernelRun], models: Sequence[KernelModel], apart: bool
) -> list[float]:
    """Share of its code that each kernel had lost; calls of libraries have none, as in the engine."""
    program_of = {stream: at for at, one in enumerate(trace.programs) for stream in one.streams}
    names: list[set[str]] = [set() for _ in trace.programs]
    for run in runs:
        names[program_of[run.stream]].add(run.kernel)
    calls = {op.id for op in trace.operations() if not isinstance(op, Kernel)}
    cached = CachedCode(session.gpu, apart, names)
    lost = [0.0] * len(runs)
    for at in sorted(range(len(runs)), key=lambda i: runs[i].ready_us + models[i].latency_us):
        gone = cached.lost_by(models[at], program_of[runs[at].stream])
        lost[at] = 0.0 if runs[at].operation in calls else gone
    return lost
