"""Streams and plans for whole networks: `python experiments/networks_choice/run.py [--out DIR] [--jobs N]`.

Forward passes and training iterations as they were recorded on an H200, with all layers: one stream, the streams of the
graph, the best SM split, mixes, and what `gpusim select` finds. It writes README.md, result.csv and gains.png beside
itself (or to DIR). A run that was cut off goes on where it was (*.part.jsonl).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import report

import gpusim
from gpusim.choose.report import plan_trace
from gpusim.choose.search import select
from gpusim.commands.arguments import study_options
from gpusim.common import fingerprint
from gpusim.common.files import write_text
from gpusim.common.rows import from_csv, to_csv
from gpusim.results.error_band import VALIDATED, error_band
from gpusim.sweep.resume import resumed
from gpusim.sweep.workers import local
from gpusim.trace.operations import Convolution

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent.parent / "traces"
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


@dataclass(frozen=True)
class Row:
    """A network under one way to run it.

    Attributes:
        network: name of the trace.
        way: a baseline of `gpusim select`, or `report.PLAN`: the best that was found.
        makespan_us: of its replay.
        memory_mib: workspaces that may be live at once.
        policy: how streams share the GPU.
        streams: how many.
        operations, convolutions: of the network.
        alternatives: algorithms beside the recorded ones, of all convolutions.
        bound_us: no plan is faster.
        replays: of the search.
        error: of the model where its like was measured, percent; 0: never.
        why: there is none.
    """

    network: str
    way: str
    makespan_us: float
    memory_mib: float
    policy: str
    streams: int
    operations: int
    convolutions: int
    alternatives: int
    bound_us: float
    replays: int
    error: float
    why: str


def answer(network: str) -> list[Any]:
    """Rows of a network as plain data."""
    trace, gpu = gpusim.load_trace(TRACES / f"{network}.json.gz"), gpusim.load_gpu("h200")
    found = select(trace, gpu)
    operations = list(trace.operations())
    convolutions = [op for op in operations if isinstance(op, Convolution)]
    counts = len(operations), len(convolutions), sum(len(op.alternatives) for op in convolutions)
    rows = []
    for way, one in (*found.baselines, (report.PLAN, found.best)):
        planned = plan_trace(found, one)
        band, why = error_band(found.session.replay(planned, one.plan.policy), planned, gpu)
        rows.append(
            Row(
                network,
                way,
                one.makespan_us,
                one.memory_bytes / MIB,
                one.plan.policy.partition(":")[0],
                len(one.plan.lanes),
                *counts,
                found.bound.us,
                found.replays,
                band["mape_percent"] if band else 0.0,
                why,
            )
        )
    return [list(astuple(row)) for row in rows]


def identity(network: str) -> str:
    """A hash of everything that the rows of a network come from."""
    model = fingerprint.sources("gpusim.choose.report", "gpusim.policies")
    ours = fingerprint.files([Path(__file__), VALIDATED, TRACES / f"{network}.json.gz"])
    return fingerprint.data([model, gpusim.load_gpu("h200"), ours])


def write_page(out: Path) -> None:
    """README.md and the picture from result.csv."""
    rows = from_csv(Row, out / "result.csv")
    write_text(out / "README.md", report.readme(rows))
    report.draw(rows, out / "gains.png")


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches what is missing and writes everything."""
    options = study_options(__doc__, HERE, arguments)
    out, journal = options.out, options.out / "result.part.jsonl"
    wanted = {identity(network): network for network in NETWORKS}
    found = resumed(journal, wanted, answer, *local(options.jobs), doing="searching")
    write_text(out / "result.csv", to_csv(Row, [Row(*row) for rows in found.values() for row in rows]))
    write_page(out)
    journal.unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
