"""Every partitioning policy on pairs of kernels: `python experiments/policy_study/run.py [--out DIR] [--jobs N]`.

All pairs of eleven kernels recorded on an H200 and of four from the seed's table of a K40c, each under every policy,
as the papers run them: jobs that restart until the longest has ended (STP, ANTT, fairness), and jobs that run once
(makespan). And latency-critical requests beside a best-effort job. It writes README.md, result.csv, inference.csv and
stp.png beside itself (or to DIR).

A run that was cut off goes on where it was: rows wait in result.part.csv, under a fingerprint of the sources that they
come from.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import report
from workloads import (
    KERNELS,
    LOADS,
    REQUESTS,
    Pair,
    alone,
    class_of,
    gpu_of,
    inference,
    models,
    pairs,
)

import gpusim
from gpusim.engine.replay import Kernels, solo_makespans
from gpusim.files import atomic_write
from gpusim.gpu import GPU
from gpusim.metrics import latencies_us, percentile
from gpusim.trace import LoopArrivals, Trace
from gpusim.workload import Shares, restarting, shares

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PART = "result.part.csv"
SLOWDOWNS = (3.0, 8.0, 24.0)  # over a job alone, that a restarting workload is long enough for: the first that is

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
    ),
}
POLICIES["k40c"] = tuple(name for name in POLICIES["h200"] if name not in ("green-context", "mig"))
INFERENCE = (
    "serial",
    "leftover",
    "inter-sm",
    "even",
    "smk",
    "warped-slicer",
    "orion",
    "reef",
)


@dataclass(frozen=True)
class Row:
    """One pair under one policy.

    Attributes:
        gpu, pair: where and what.
        kind: such as ``compute + memory``.
        policy: as on the command line.
        stp, antt, fairness: while both jobs restart until each has ended once; 0 for an oracle, which is for run-once.
        first, second: normalised progress of the two meanwhile.
        restarted: both had work all the time.
        speedup: of both jobs run once, over one after the other.
        note: for an oracle, what it found.
    """

    gpu: str
    pair: str
    kind: str
    policy: str
    stp: float
    antt: float
    fairness: float
    first: float
    second: float
    restarted: int
    speedup: float
    note: str


@dataclass(frozen=True)
class Latency:
    """Latency-critical requests beside a best-effort job under one policy.

    Attributes:
        load: of the requests alone.
        policy: as on the command line; ``alone``: without the job.
        p50_us, p95_us, p99_us: latency of the requests.
        job: progress of the job until the last request ended, normalised: 1 is as if it had the GPU to itself.
    """

    load: float
    policy: str
    p50_us: float
    p95_us: float
    p99_us: float
    job: float


# ---- replays ---------------------------------------------------------------------------------------------------------


def rows_of(pair: Pair) -> list[Row]:
    """A pair under every policy and oracle."""
    gpu, kernels, trace = gpu_of(pair.gpu), models(pair.gpu), pair.trace
    solo = solo_makespans(trace, gpu, kernels)
    serial_us = sum(solo.values())
    kind = class_of(pair)
    rows = []
    for policy in POLICIES[pair.gpu]:
        once = gpusim.replay(trace, gpu, policy, kernels=kernels, solo=solo)
        found = restarted_shares(trace, policy, gpu, kernels, solo)
        first, second = found.progress.values()
        share = (found.stp, found.antt, found.fairness, first, second, int(found.restarted))
        rows.append(Row(pair.gpu, pair.name, kind, policy, *share, serial_us / once.makespan_us, ""))
    for policy in ORACLES[pair.gpu]:
        best = gpusim.replay(trace, gpu, policy, kernels=kernels, solo=solo)
        note = best.notes[-1].rpartition(": ")[2]
        rows.append(Row(pair.gpu, pair.name, kind, policy, 0, 0, 0, 0, 0, 1, serial_us / best.makespan_us, note))
    return rows


def restarted_shares(trace: Trace, policy: str, gpu: GPU, kernels: Kernels, solo: Mapping[str, float]) -> Shares:
    """Both jobs restarting, long enough that neither runs out of passes before each has ended once."""
    for slowdown in SLOWDOWNS:
        loops = restarting(trace, solo, slowdown)
        passes = {s.name: s.arrivals.count for s in loops.streams if isinstance(s.arrivals, LoopArrivals)}
        alone_us = {name: count * solo[name] for name, count in passes.items()}
        found = shares(gpusim.replay(loops, gpu, policy, kernels=kernels, solo=alone_us))
        if found.restarted:
            break
    return found


def latencies(load: float) -> list[Latency]:
    """Requests at one load under every policy."""
    gpu, kernels = gpu_of("h200"), models("h200")
    quiet = solo_makespans(alone(inference(load, 1.0, 1.0).streams), gpu, kernels)
    only = inference(load, quiet["request"], quiet["job"], job=False)
    both = inference(load, quiet["request"], quiet["job"])
    rows = []
    for policy in ("alone", *INFERENCE):
        trace = only if policy == "alone" else both
        solo = {stream.name: 1.0 for stream in trace.streams}
        result = gpusim.replay(trace, gpu, "serial" if policy == "alone" else policy, kernels=kernels, solo=solo)
        spans = [(r.start_us, r.end_us) for r in result.request_runs if r.stream == "job"]
        until = max(r.end_us for r in result.request_runs if r.stream == "request")
        done = sum(min(1.0, max(0.0, (until - start) / (end - start))) for start, end in spans)
        waits = latencies_us(result)["request"]
        percentiles = [percentile(waits, percent) for percent in (50, 95, 99)]
        rows.append(Latency(load, policy, *percentiles, done * quiet["job"] / until))
    return rows


# ---- rows on disk ----------------------------------------------------------------------------------------------------


def fingerprint() -> str:
    """A hash of everything that the rows come from."""
    files = [*sorted((ROOT / "gpusim").rglob("*.py")), *sorted((ROOT / "gpus").glob("*.toml"))]
    files += [*sorted({kernel.trace for kernel in KERNELS}), HERE / "workloads.py", HERE / "run.py"]
    digest = hashlib.sha256()
    for file in files:
        path = Path(file) if isinstance(file, Path) else ROOT / "traces" / file
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def table_csv(kind: type[Row] | type[Latency], rows: Iterable[Row | Latency]) -> str:
    """Rows as CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.name for column in fields(kind)])
    for row in rows:
        writer.writerow([f"{value:.5g}" if isinstance(value, float) else value for value in astuple(row)])
    return text.getvalue()


def read_rows(text: str) -> list[Row]:
    """What `table_csv` wrote."""
    kinds = {column.name: column.type for column in fields(Row)}
    convert = {"float": float, "int": int, "str": str}
    return [
        Row(**{name: convert[str(kinds[name])](value) for name, value in row.items()})
        for row in csv.DictReader(io.StringIO(text))
    ]


def study(folder: Path, workers: int) -> list[Row]:
    """All rows of pairs, those of an earlier run of the same sources taken over."""
    part, key = folder / PART, fingerprint()
    done: dict[tuple[str, str], list[Row]] = {}
    if part.is_file():
        head, _, text = part.read_text().partition("\n")
        for row in read_rows(text) if head == key else []:
            done.setdefault((row.gpu, row.pair), []).append(row)
    wanted = [pair for gpu in POLICIES for pair in pairs(gpu)]
    missing = [pair for pair in wanted if (pair.gpu, pair.name) not in done]
    with ProcessPoolExecutor(workers) as pool:
        for n, (pair, rows) in enumerate(zip(missing, pool.map(rows_of, missing), strict=True), 1):
            done[pair.gpu, pair.name] = read_rows(table_csv(Row, rows))
            kept = [row for found in done.values() for row in found]
            with atomic_write(part, "w") as file:
                file.write(f"{key}\n{table_csv(Row, kept)}")
            print(f"{n} of {len(missing)}: {pair.gpu}, {pair.name}", flush=True)
    return [row for pair in wanted for row in done[pair.gpu, pair.name]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what is missing and write everything."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split(":")[0])
    parser.add_argument("--out", type=Path, default=HERE, help="folder to write to")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = study(options.out, options.jobs)
    waits = [row for load in LOADS for row in latencies(load)]
    with atomic_write(options.out / "result.csv", "w") as file:
        file.write(table_csv(Row, rows))
    with atomic_write(options.out / "inference.csv", "w") as file:
        file.write(table_csv(Latency, waits))
    report.draw(rows, options.out / "stp.png")
    with atomic_write(options.out / "README.md", "w") as file:
        file.write(report.readme(rows, waits, REQUESTS))
    (options.out / PART).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
