"""Every partitioning policy on pairs of kernels: `python experiments/policy_study/run.py [--out DIR] [--jobs N]`.

All pairs of eleven kernels recorded on an H200 and of four from the seed's table of a K40c, each under every policy,
as the papers run them: jobs that restart until the longest has ended (STP, ANTT, fairness), and jobs that run once
(makespan). The branches of recorded network modules, once. And latency-critical requests beside a best-effort job. It
writes README.md, result.csv, modules.csv, inference.csv and stp.png beside itself (or to DIR).

It takes some minutes of CPU time. A run that was interrupted continues where it stopped: rows are kept in *.part.jsonl,
each under a hash of everything that can change it.
"""

from __future__ import annotations

from dataclasses import astuple
from math import fsum
from pathlib import Path
from typing import Any

from experiments.policy_study import report
from experiments.policy_study.report import Latency, Module, Row
from experiments.policy_study.workloads import (
    KERNELS,
    LOADS,
    MODULES,
    TRACES,
    Pair,
    alone,
    class_of,
    inference,
    pairs,
    session_on,
)
from experiments.study import Run, Study
from gpusim.results.metrics import largest_slowdown, latencies_us, normalised_progress, percentile, sharing
from gpusim.results.result import Result
from gpusim.trace.file import load_trace

HERE = Path(__file__).resolve().parent

ORACLES = {
    "h200": ("oracle-inter-sm:step=6", "oracle-intra-sm"),
    "k40c": ("oracle-inter-sm", "oracle-intra-sm"),
}
POLICIES = {
    "h200": (
        "leftover",
        "mps:percent=50",
        "green-context",
        "mig",
        "inter-sm",
        "inter-sm:rule=smart-even",
        "inter-sm:rule=rounds",
        "inter-sm:rule=profile",
        "cd-search",
        "even",
        "smk:mode=p",
        "smk",
        "smk:preempt=drain",
        "smk:mitigation=qbmi",
        "smk:mitigation=dmil",
        "warped-slicer",
        "warped-slicer:objective=stp",
        "warped-slicer:curve=profiled",
        "warped-slicer:mitigation=qbmi",
        "warped-slicer:mitigation=dmil",
        "maestro",
        "time-slicing",
        "right-size",
        "tpc-stealing",
        "interference-aware",
    ),
}
POLICIES["k40c"] = tuple(name for name in POLICIES["h200"] if name not in ("green-context", "mig"))
IN_MODULES = (
    "leftover",
    "inter-sm",
    "inter-sm:rule=profile",
    "cd-search",
    "even",
    "smk:mode=p",
    "smk",
    "warped-slicer",
    "warped-slicer:loss=1",
    "warped-slicer:curve=profiled",
    "warped-slicer:mitigation=dmil",
    "maestro",
    "right-size",
    "tpc-stealing",
    "interference-aware",
)
INFERENCE = (
    *("serial", "time-slicing", "time-slicing:preempt=true", "leftover", "inter-sm", "latency-target", "tpc-stealing"),
    *("even", "smk", "warped-slicer", "orion", "reef"),
)


# ---- replays ---------------------------------------------------------------------------------------------------------


def rows_of(pair: Pair) -> list[Row]:
    """A pair under every policy and oracle."""
    session, trace = session_on(pair.gpu), pair.trace
    serial_us = fsum(session.isolated_us(trace).values())
    kind = class_of(pair)
    rows = []
    for policy in POLICIES[pair.gpu]:
        once = session.replay(trace, policy)
        progress = normalised_progress(session.replay(trace, policy, restart=True))
        share = (*sharing(progress).values(), *progress.values())
        rows.append(Row(pair.gpu, pair.name, kind, policy, *share, serial_us / once.makespan_us, ""))
    for policy in ORACLES[pair.gpu]:
        best = session.replay(trace, policy)
        rows.append(Row(pair.gpu, pair.name, kind, policy, 0, 0, 0, 0, 0, serial_us / best.makespan_us, best.division))
    return rows


def module_rows(file: str) -> list[Module]:
    """A module under every policy and oracle."""
    session, trace = session_on("h200"), load_trace(TRACES / file)
    serial_us = session.serial_us(trace)
    rows = []
    for policy in (*IN_MODULES, *ORACLES["h200"]):
        result = session.replay(trace, policy)
        speedup = serial_us / result.makespan_us
        rows.append(Module(trace.name, policy, speedup, largest_slowdown(result), result.division))
    return rows


def latencies(load: float) -> list[Latency]:
    """Requests at one load under every policy."""
    session = session_on("h200")
    quiet = session.isolated_us(alone(inference(load, 1.0, 1.0).streams))
    only = inference(load, quiet["request"], quiet["job"], job=False)
    both = inference(load, quiet["request"], quiet["job"])
    rows = []
    for policy in ("alone", *INFERENCE):
        trace = only if policy == "alone" else both
        result = session.replay(trace, "serial" if policy == "alone" else policy, keep=())
        until = max(r.end_us for r in result.request_runs if r.stream == "request")
        waits = latencies_us(result)["request"]
        percentiles = [percentile(waits, percent) for percent in (50, 95, 99)]
        rows.append(Latency(load, policy, *percentiles, passes(result, "job", until) * quiet["job"] / until))
    return rows


def passes(result: Result, stream: str, until_us: float) -> float:
    """How often a stream of kernels that loops had run by a time, each kernel by the time it takes alone.

    A kernel that was under way counts by time: the replay did not end then, so that nothing tells of its blocks.
    """
    runs = [run for run in result.kernel_runs if run.stream == stream]
    done = fsum(
        run.solo_us * min(1.0, max(0.0, (until_us - run.start_us) / (run.end_us - run.start_us))) for run in runs
    )
    return done / fsum(run.solo_us for run in runs if run.request == 0) if runs else 0.0


# ---- the study -------------------------------------------------------------------------------------------------------


def pair_answer(pair: Pair) -> list[list[Any]]:
    """`rows_of` as plain data."""
    return [list(astuple(row)) for row in rows_of(pair)]


def module_answer(file: str) -> list[list[Any]]:
    """`module_rows` as plain data."""
    return [list(astuple(row)) for row in module_rows(file)]


def latency_answer(load: float) -> list[list[Any]]:
    """`latencies` as plain data."""
    return [list(astuple(row)) for row in latencies(load)]


def rows(run: Run) -> dict[str, list[Any]]:
    """Every pair, every module and every load, under every policy."""
    traces = sorted({kernel.trace for kernel in KERNELS} | set(MODULES))
    files = [HERE / "run.py", HERE / "workloads.py", *(TRACES / name for name in traces)]
    found = {}
    for name, kind, items, answer in (
        ("result", Row, [pair for gpu in POLICIES for pair in pairs(gpu)], pair_answer),
        ("modules", Module, MODULES, module_answer),
        ("inference", Latency, LOADS, latency_answer),
    ):
        answers = run.answers(name, items, answer, files, POLICIES)
        found[f"{name}.csv"] = [kind(*row) for rows in answers.values() for row in rows]
    return found


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Row, "modules.csv": Module, "inference.csv": Latency},
    rows,
    report.page,
    {"stp.png": report.draw},
    parallel=True,
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
