"""Plans on a GPU, measured: the recorder's program runs them as its `convolutions/outcomes.cuh` says of `plans`."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import gpusim
from experiments.rows import lines
from experiments.study import TRACES
from gpusim.common.files import write_table
from gpusim.common.spreadsheet import csv_text
from gpusim.lab.record.calls import Call
from gpusim.lab.record.program import BuiltProgram
from gpusim.trace.operations import Convolution, ConvolutionAlgorithm
from gpusim.training.networks.steps import CONVOLUTION, CallWork


def call_in(module: str, convolution: Convolution, algorithm: str, batch: int = 0) -> Call:
    """The call of a convolution in a trace.

    Args:
        module: what the network of the call is named.
        convolution: with its shape.
        algorithm: and arithmetic, as IMPLICIT_PRECOMP_GEMM/TF32.
        batch: images, where they are fewer than the shape's; else 0.
    """
    shape = convolution.shape
    work = CallWork(
        CONVOLUTION,
        convolution.direction,
        batch or shape.batch,
        shape.in_channels,
        shape.in_height,
        shape.in_width,
        shape.out_channels,
        (shape.filter_height, shape.filter_width),
        (shape.padding, shape.padding if shape.padding_width is None else shape.padding_width),
        shape.stride,
    )
    return Call(module, convolution.id, work, *algorithm.split("/"))


def recorded(calls: Path) -> dict[str, tuple[Convolution, ConvolutionAlgorithm]]:
    """The convolution and the recorded algorithm of each call in a list.

    Args:
        calls: the list, a line each, which starts with MODULE/OPERATION/DIRECTION/ALGORITHM.
    """
    names = [line.split()[0] for line in calls.read_text(encoding="utf-8").splitlines()]
    convolutions = {
        (module, op.id): op
        for module in dict.fromkeys(name.split("/")[0] for name in names)
        for op in gpusim.load_trace(TRACES / f"{module}.json.gz").operations()
        if isinstance(op, Convolution)
    }
    found = {}
    for name in names:
        module, id, _, algorithm = name.split("/", 3)
        op = convolutions[module, id]
        found[name] = op, next(one for one in (op.selected, *op.alternatives) if one.algorithm == algorithm)
    return found


def measure(path: Path, calls: Path, plans: Path, runs: int) -> None:
    """Run plans (a line each, as are their calls) on this machine's GPU; write the printed table with the median times.

    Where a race has two outcomes, one run of the program has either for all its repeats: hence several ``runs``.

    Raises:
        InputError: the program fails, or the table (`.csv.gz`) cannot be written.
    """
    with tempfile.TemporaryDirectory() as folder:
        program = BuiltProgram(Path(folder))
        printed = [list(program.printed("plans", calls, plans)) for _ in range(runs)]
    write_table(path, "".join(medians(printed)))


def medians(runs: Iterable[Iterable[str]]) -> Iterable[str]:
    """Lines of a table that was printed again and again, with the median of each time."""
    titles, *lines = zip(*map(csv.reader, runs), strict=True)
    return csv_text(titles[0], ([_median(*cells) for cells in zip(titles[0], *rows, strict=True)] for rows in lines))


def _median(title: str, *cells: str) -> str:
    """The median of a column of times; of another, which is the same in all runs, the first."""
    return f"{median(map(float, cells)):.6f}" if title.startswith("ms_") else cells[0]


def makespans_us(path: Path) -> dict[tuple[str, str], list[float]]:
    """Measured makespans by the names of the trace and of the plan: one for each turn of CUDA's streams, us.

    Raises:
        InputError: the table cannot be read.
    """
    turns: dict[tuple[str, str], dict[str, float]] = {}
    for row in lines(path):
        turns.setdefault((row["name"], row["plan"]), {})[row["turn"]] = float(row["ms_makespan"]) * 1e3
    return {key: list(found.values()) for key, found in turns.items()}


def condensed(table: Iterable[str]) -> Iterable[str]:
    """Lines of such a table with only the makespan of each turn of a plan, which is that of all its steps."""
    titles, *rows = csv.reader(table)
    kept = [titles.index(name) for name in ("name", "plan", "turn", "ms_makespan")]
    found = dict.fromkeys(tuple(row[at] for at in kept) for row in rows)
    return csv_text([titles[at] for at in kept], found)
