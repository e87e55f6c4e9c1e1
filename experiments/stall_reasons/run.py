"""Why warps wait with all blocks on an SM and with one: `python experiments/stall_reasons/run.py [--out DIR]`.

Nsight Compute counted the stall reasons of convolutions on an H200 with room for all their blocks on an SM and for a
few, while a sleeping warp held the rest of the shared memory (`measured.csv.gz`). What of a reason goes as others leave
was waiting for their turns; what stays is latency. The model reads both off one recording with all blocks
(docs/model.md, section 4). It writes README.md, result.csv and reasons.png beside itself (or to DIR).

    python experiments/stall_reasons/run.py --measure   # measured.csv.gz: needs an NVIDIA GPU, nvcc, cuDNN and ncu
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from pathlib import Path
from statistics import fmean

import gpusim
from experiments.markdown import table
from experiments.rows import lines
from experiments.study import RECORDED, Run, Study
from gpusim.common.files import MAX_BYTES, read_text, write_table
from gpusim.common.spreadsheet import csv_text
from gpusim.io.ncu import STALL_COUNTER, STALLS
from gpusim.lab.dataset import Recordings
from gpusim.lab.record.counters import counted_rows
from gpusim.lab.record.program import BuiltProgram
from gpusim.lab.record.toolchain import NCU, require_ncu, run
from gpusim.model.contention import FEWEST_TURNS, hidden_cycles
from gpusim.results.style import COLOURS, GREY, legend_below, new_figure, save_figure

HERE = Path(__file__).resolve().parent
MEASURED, CALLS, CONDITIONS = HERE / "measured.csv.gz", HERE / "calls.txt", HERE / "conditions.txt"
METRICS = {reason: STALL_COUNTER.format(part) for reason, part in STALLS.items()}
SHOWN = ("long_scoreboard", "short_scoreboard", "barrier")
ALL, ONE = -1, 1  # blocks that an SM had room for; -1: nothing was held


@dataclass(frozen=True, slots=True)
class Waits:
    """What a warp of one kernel waits for one reason, cycles per issued instruction.

    Attributes:
        op: the call.
        reason: as in a trace.
        competing_all, competing_one: warps on a scheduler with all blocks and with one block on an SM, at least 1.
        all_cycles, one_cycles: counted with all blocks and with one.
        hidden_cycles: of long scoreboard what the model adds to latency, for turns hid it; else 0.
    """

    op: str
    reason: str
    competing_all: float
    competing_one: float
    all_cycles: float
    one_cycles: float
    hidden_cycles: float


# ---- measured --------------------------------------------------------------------------------------------------------


def measure() -> None:
    """Profile all calls on this machine's GPU."""
    require_ncu()
    with tempfile.TemporaryDirectory() as folder:
        program, log = BuiltProgram(Path(folder)), Path(folder) / "ncu.csv"
        what = ("--replay-mode", "app-range", "--metrics", ",".join(METRICS.values()), "--log-file", str(log))
        printed = run([*NCU, *what, str(program.path), "counted", str(CALLS), str(CONDITIONS)], "Nsight Compute")
        ranges = counted_rows(read_text(log, MAX_BYTES))
    passes = [line.split(",") for line in printed.splitlines() if line.count(",") == 1]
    last = passes[-len(ranges) :]
    rows = [
        [op, int(blocks), *(f"{float(row[metric].replace(',', '')):.6f}" for metric in METRICS.values())]
        for (op, blocks), row in zip(last, ranges, strict=True)
    ]
    write_table(MEASURED, "".join(csv_text(["op", "blocks_per_sm", *STALLS], rows)))


def counted() -> dict[str, dict[int, dict[str, float]]]:
    """Counted cycles by call, room for blocks, and reason."""
    found: dict[str, dict[int, dict[str, float]]] = {}
    for row in lines(MEASURED):
        cycles = {reason: float(row[reason]) for reason in STALLS}
        found.setdefault(row["op"], {})[int(row["blocks_per_sm"])] = cycles
    return found


def waits(of: Mapping[str, Mapping[int, Mapping[str, float]]]) -> Iterable[Waits]:
    """Every reason of every call."""
    gpu = gpusim.load_gpu("h200")
    recordings = Recordings(RECORDED, gpu)
    for op, by_room in of.items():
        (launch,) = recordings.op(op).kernels
        assert launch.mix is not None and launch.mix.achieved_warps_per_sm is not None
        warps = -(-launch.threads_per_block // gpu.limits.warp_size)
        competing = [max(1.0, n / gpu.limits.sub_partitions) for n in (launch.mix.achieved_warps_per_sm, warps)]
        hidden = hidden_cycles(launch.mix, launch.shared_memory_per_block_bytes / warps)
        for reason in STALLS:
            counted_cycles = by_room[ALL][reason], by_room[ONE][reason]
            yield Waits(op, reason, *competing, *counted_cycles, hidden if reason == "long_scoreboard" else 0.0)


# ---- the page --------------------------------------------------------------------------------------------------------


def waiting_share(rows: Iterable[Waits]) -> float:
    """Of what warps waited with all blocks, the share that others' turns were, as the model counts it.

    The part that goes over the part of the competing warps that go, weighted by what was waited; 1 where as much goes
    as of the warps, below 0 where more is waited alone. Only of kernels of which others go.
    """
    seen = [row for row in rows if row.competing_all > FEWEST_TURNS * row.competing_one and row.all_cycles > 0.0]
    gone = [(row.all_cycles - row.one_cycles) / (1.0 - row.competing_one / row.competing_all) for row in seen]
    return fsum(gone) / fsum(row.all_cycles for row in seen)


def page(rows: Sequence[Waits]) -> dict[str, object]:
    """What the page says."""
    by_reason = {reason: [row for row in rows if row.reason == reason] for reason in STALLS}
    cells = [
        (
            reason.replace("_", " "),
            f"{fmean(row.all_cycles for row in mine):.2f}",
            f"{fmean(row.one_cycles for row in mine):.2f}",
            f"{waiting_share(mine):.2f}",
        )
        for reason, mine in by_reason.items()
    ]
    loads = by_reason["long_scoreboard"]
    return {
        "calls": len(loads),
        "reasons": table(("reason", "all blocks", "one block", "share that waited for other warps"), cells),
        "both": waiting_share(by_reason["barrier"] + by_reason["short_scoreboard"]),
        "share": gpusim.load_gpu("h200").model.waiting_turn_share,
        "grows": fmean(row.one_cycles - row.all_cycles for row in loads),
        "added": fmean(row.hidden_cycles for row in loads),
    }


def draw(rows: Sequence[Waits], path: Path) -> None:
    """Of each kernel what it waits alone over what it waits beside others, for three reasons."""
    with new_figure(2.9) as figure:
        axes = figure.subplots()
        for reason, colour, marker in zip(
            ("long_scoreboard", "short_scoreboard", "barrier"), COLOURS, "o^s", strict=False
        ):
            mine = [row for row in rows if row.reason == reason]
            label = reason.replace("_", " ")
            axes.plot(
                [r.all_cycles for r in mine],
                [r.one_cycles for r in mine],
                marker,
                color=colour,
                markersize=3,
                label=label,
            )
        axes.axline((0.0, 0.0), slope=1.0, color=GREY, linewidth=0.8, label="equal")
        axes.set_xlabel("Cycles per instruction, all blocks per SM")
        axes.set_ylabel("Cycles per instruction,\none block per SM")
        legend_below(figure, axes, 2)
        save_figure(figure, path)


def rows(run: Run) -> dict[str, Iterable[Waits]]:
    """What was counted, beside what the model makes of it."""
    return {"result.csv": waits(counted())}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Waits},
    rows,
    page,
    {"reasons.png": draw},
    {"measure": (measure, "profile the calls on this machine: measured.csv.gz")},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
