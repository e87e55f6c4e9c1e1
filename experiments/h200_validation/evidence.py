"""Tables of docs/model.md and of evidence.md: values of constants, and cells of the resource matrix."""

from __future__ import annotations

from statistics import median

from experiments.h200_validation.variants import GPU_NAME, ROOT
from experiments.markdown import table
from experiments.rows import lines
from gpusim.hardware.gpu import ModelConstants, load_gpu
from gpusim.lab.resource_matrix import PLACEMENTS

LATENCY = "sleep/8"  # a kernel that only waits
MATRIX_GPU = "h100-sxm"  # whose cells are shown
CELLS = (  # term, kernel, other kernel, SMs, whether the kernel's blocks are the older ones
    ("competing warps", "fma1/1", "fma1/1", "same", "second"),
    ("competing warps", "fma1/8", "fma1/8", "same", "second"),
    ("an uncounted pipe", "imad4/4", "imad4/4", "same", "second"),
    ("older first, issue slots", "fma4/4", "dram_copy4/4", "same", "first"),
    ("older first, issue slots", "dram_copy4/4", "fma4/4", "same", "second"),
    ("older first, a pipe", "fp64_4/4", "fp64_4/4", "same", "first"),
    ("older first, a pipe", "fp64_4/4", "fp64_4/4", "same", "second"),
    ("bursts", "fma1/1", "fma4/1", "same", "first"),
    ("bursts", "fma4/1", "fma1/1", "same", "second"),
    ("operands", "mma_fp16/4", "alu4/4", "same", "first"),
    ("operands", "alu4/4", "mma_fp16/4", "same", "second"),
    ("L1 path", "shared_2way/4", "shared_8way/4", "same", "first"),
    ("L1 path", "shared_8way/4", "shared_2way/4", "same", "second"),
    ("slowdown by DRAM", "dram_copy4/4", "dram_copy4/4", "disjoint", "first"),
    ("slowdown by L2", "l2_16m/4", "l2_16m/4", "disjoint", "first"),
    ("atomics", "atom/4", "atom/4", "disjoint", "first"),
    ("hits in L2", "chase_l2/8", "l2_4m/4", "disjoint", "first"),
    ("reads beside others", "chase_dram/8", "dram_read4/8", "disjoint", "first"),
    ("clock", "fma4/4", "mma_fp16/4", "disjoint", "first"),
)


def values_table() -> str:
    """The value of each constant on the H200."""
    model = load_gpu(GPU_NAME).model
    rows = [f"|`{name}`|{getattr(model, name):g}|" for name in ModelConstants.model_fields]
    return "\n".join(("|constant|value|", "|---|---|", *rows))


def cells_table() -> str:
    """Slowdown of a kernel beside another, measured and predicted, for each of `CELLS`."""
    cells = {
        (line["kernel"], line["beside"], line["placement"], line["order"]): line
        for line in lines(ROOT / "experiments" / "resource_matrix" / "result.csv.gz")
        if line["gpu"] == MATRIX_GPU
    }
    rows = []
    for term, kernel, beside, sms, order in CELLS:
        cell = cells[kernel, beside, sms, order]
        older = "older" if order == "first" else "younger"
        numbers = (float(cell["measured"]), float(cell["predicted"]), 1.0 / float(cell["while_both"]))
        shown = (f"{number:.2f}" for number in numbers)
        rows.append((term, f"`{kernel}`, the {older}", f"`{beside}`", PLACEMENTS[sms], *shown))
    beside = [line for line in cells.values() if line["kernel"] == LATENCY and line["placement"] == "same"]
    numbers = [median(float(line[column]) for line in beside) for column in ("measured", "predicted", "while_both")]
    shown = (f"{number:.2f}" for number in (*numbers[:2], 1.0 / numbers[2]))
    rows.append(("latency", f"`{LATENCY}`", "every other, median", PLACEMENTS["same"], *shown))
    titles = ("term", "kernel", "beside", "on", "slowdown, measured", "predicted", "progress while both run, measured")
    return table(titles, rows)
