"""Why warps wait with all blocks on an SM and with one: `python experiments/stall_reasons/run.py [--out DIR]`.

Nsight Compute counted the stall reasons of convolutions on an H200 with room for all their blocks on an SM and for a
few, while a sleeping warp held the rest of the shared memory (`measured.csv.gz`). What of a reason goes as others leave
was waiting for their turns; what stays is latency. The model reads both off one recording with all blocks
(docs/model.md, 2). It writes README.md, result.csv and reasons.png beside itself (or to DIR).

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
from gpusim.commands.arguments import measuring_options
from gpusim.common.files import MAX_BYTES, read_text, write_table, write_text
from gpusim.common.markdown import page, table, wrapped
from gpusim.common.rows import from_csv, to_csv
from gpusim.common.spreadsheet import csv_text, table_rows
from gpusim.io.ncu import STALL_COUNTER, STALLS
from gpusim.lab.dataset import Recordings
from gpusim.lab.record.counters import counted_rows
from gpusim.lab.record.program import Program
from gpusim.lab.record.toolchain import NCU, require_ncu, run
from gpusim.model.contention import FEWEST_TURNS, hidden_cycles
from gpusim.results.plots import COLOURS, new_figure, save_figure

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "h200_validation" / "data"
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
        program, log = Program(Path(folder)), Path(folder) / "ncu.csv"
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
    with table_rows(MEASURED) as rows:
        for row in rows:
            cycles = {reason: float(row[reason]) for reason in STALLS}
            found.setdefault(row["op"], {})[int(row["blocks_per_sm"])] = cycles
    return found


def waits(of: Mapping[str, Mapping[int, Mapping[str, float]]]) -> Iterable[Waits]:
    """Every reason of every call."""
    gpu = gpusim.load_gpu("h200")
    recordings = Recordings(DATA, gpu)
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


def readme(rows: Sequence[Waits]) -> str:
    """The page."""
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
    both = waiting_share(by_reason["barrier"] + by_reason["short_scoreboard"])
    loads = by_reason["long_scoreboard"]
    share = gpusim.load_gpu("h200").model.waiting_turn_share
    return page(
        [
            "# Why warps wait, with all blocks on an SM and with one",
            "Generated by `python experiments/stall_reasons/run.py`; do not edit. Every kernel: `result.csv`.",
            wrapped(
                f"Nsight Compute counted the stall reasons of {len(loads)} convolutions of one kernel each on an H200, "
                "with all the blocks that fit on an SM and with one, where a sleeping warp held the rest of the shared "
                "memory (`measured.csv.gz`; backward filters are not among them: profiled so, they hang). Mean cycles "
                "per issued instruction; and the share of a reason that was waiting for other warps' turns: what goes "
                "of it over what goes of the competing warps, 1 where as much goes, below 0 where more is waited alone."
            ),
            table(("reason", "all blocks", "one block", "share that was turns"), cells),
            wrapped(
                f"Barriers and short scoreboard together: {both:.2f}. The model has {share:g} (`waiting_turn_share`), "
                "fitted to times. Long scoreboard grows: with all blocks warps wait for their turns while their loads "
                "are under way, and alone they wait for the loads. It grows by "
                f"{fmean(row.one_cycles - row.all_cycles for row in loads):.2f} cycles on the mean, where the model, "
                f"which looks at DRAM alone, adds {fmean(row.hidden_cycles for row in loads):.2f} to the latency. With "
                "one block a kernel has L1 at its smallest, and little of what its other blocks would have loaded."
            ),
            "![Cycles by reason with all blocks and with one](reasons.png)",
        ]
    )


def draw(rows: Sequence[Waits], path: Path) -> None:
    """Of each kernel what it waits alone over what it waits beside others, for three reasons."""
    with new_figure(6.4, 4.4) as figure:
        axes = figure.subplots()
        for reason, colour, marker in zip(
            ("long_scoreboard", "short_scoreboard", "barrier"), COLOURS, "o^s", strict=False
        ):
            mine = [row for row in rows if row.reason == reason]
            label = reason.replace("_", " ")
            axes.plot([r.all_cycles for r in mine], [r.one_cycles for r in mine], marker, color=colour, label=label)
        axes.axline((0.0, 0.0), slope=1.0, color="#888888", linewidth=0.8)
        axes.set_xlabel("cycles per instruction, all blocks on an SM")
        axes.set_ylabel("one block on an SM")
        axes.legend(frameon=False)
        save_figure(figure, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, or write the page."""
    options = measuring_options(__doc__, HERE, "profile the calls on this machine: measured.csv.gz", arguments)
    if options.measure:
        measure()
        return
    write_text(options.out / "result.csv", to_csv(Waits, waits(counted())))
    write_page(options.out)


def write_page(folder: Path) -> None:
    """README.md and the picture from the table in a folder."""
    rows = from_csv(Waits, folder / "result.csv")
    write_text(folder / "README.md", readme(rows))
    draw(rows, folder / "reasons.png")


if __name__ == "__main__":
    main()
