"""Streams and plans for whole networks: `python experiments/networks_choice/run.py [--out DIR] [--jobs N]`.

Forward passes and training iterations as they were recorded on an H200, with all layers: one stream, the streams of the
graph, the best SM split, mixes, and what `gpusim select` finds. It writes README.md, result.csv and gains.png beside
itself (or to DIR). A run that was cut off goes on where it was (*.part.jsonl).
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import gpusim
from experiments.networks_choice import report
from experiments.networks_choice.report import Row
from experiments.study import TRACES, Run, Study
from gpusim.choose.report import plan_trace
from gpusim.choose.search import select
from gpusim.results.error_band import VALIDATED, error_band
from gpusim.trace.operations import Convolution

MIB = 2**20
NETWORKS = (
    "googlenet_b128_training",
    "resnet50_b64_training",
    "googlenet_forward",
    "googlenet_b16_forward",
    "resnet50_b16_forward",
    "googlenet_b1_forward",
    "resnet50_b1_forward",
)


def answer(network: str) -> list[Any]:
    """Rows of a network as plain data."""
    trace, gpu = gpusim.load_trace(TRACES / f"{network}.json.gz"), gpusim.load_gpu("h200")
    found = select(trace, gpu)
    operations = list(trace.operations())
    convolutions = [op for op in operations if isinstance(op, Convolution)]
    counts = len(operations), len(convolutions), sum(len(op.alternatives) for op in convolutions)
    rows = []
    for way, one in (*found.baselines, (report.PLAN, found.found)):
        planned = plan_trace(found, one)
        error = error_band(found.session.replay(planned, one.plan.policy), planned, gpu)
        rows.append(
            Row(
                network,
                way,
                one.expected_us,
                one.memory_bytes / MIB,
                one.plan.policy.partition(":")[0],
                len(one.plan.lanes),
                *counts,
                found.bound.us,
                found.replays,
                error.percent or 0.0,
                error.reason,
            )
        )
    return [list(astuple(row)) for row in rows]


def rows(run: Run) -> dict[str, list[Row]]:
    """The rows of every network."""
    files = [Path(__file__), VALIDATED, *(TRACES / f"{network}.json.gz" for network in NETWORKS)]
    found = run.answers("result", NETWORKS, answer, files, ("h200",))
    return {"result.csv": [Row(*row) for rows in found.values() for row in rows]}


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, report.page, {"gains.png": report.draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
