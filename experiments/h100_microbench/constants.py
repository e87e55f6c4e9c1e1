"""An H100 beside an H200: `python experiments/h100_microbench/constants.py`.

Writes the table of README.md from the constants.json of both GPUs, and the section [model] of gpus/h100-sxm.toml. A
constant of the model that a microbenchmark measures on both GPUs is the H200's times the ratio of the two
measurements; the others are properties of an SM, which both have alike, or of the driver, and are carried over.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from experiments.study import Run, Study
from gpusim.common.files import write_text

HERE = Path(__file__).resolve().parent
H200 = HERE.parent / "h200_microbench"
GPUS = HERE.parent.parent / "gpus"
MEASURED_AS = {  # constant of the model: what of it the microbenchmarks measure
    "dram_sustained_gb_per_s": "dram_read_gb_per_s",
    "l2_read_gb_per_s": "l2_read_gb_per_s",
    "l2_atomic_gb_per_s": "l2_red_gb_per_s",
    "block_starts_per_us": "block_launch_per_us",
}
MEASURED_HERE = {  # constant that no microbenchmark of this folder gives: the H100's value, and where it was measured
    "tensor_clock_share": (0.9091, "experiments/h100_microbench, clock.csv: 1800 of 1980 MHz, as on the H200"),
    "graph_latency_us": (
        0.9,
        "experiments/neighbours: from the end of a kernel to the first block of the next, in a CUDA graph",
    ),
}
SECTION = re.compile(r"\n\[model\]\n.*\Z", re.DOTALL)


def rows(run: Run) -> dict[str, list[object]]:
    """No table: the GPU's file."""
    write_text(GPUS / "h100-sxm.toml", gpu_file())
    return {}


def measured(folder: Path) -> dict[str, dict[str, Any]]:
    """The constants that the microbenchmarks of a folder give, each with value, unit and meaning."""
    constants: dict[str, dict[str, Any]] = json.loads((folder / "constants.json").read_text(encoding="utf-8"))[
        "constants"
    ]
    return constants


def ratio(name: str) -> float:
    """What the H100 measures over what the H200 does."""
    return float(measured(HERE)[name]["value"]) / float(measured(H200)[name]["value"])


def page() -> dict[str, object]:
    """What the page says."""
    cells = ["| constant | unit | H200 | H100 | ratio | |", "| --- | --- | --: | --: | --: | --- |"]
    there = measured(H200)
    for name, one in measured(HERE).items():
        known, here = there[name]["value"], one["value"]
        cells.append(f"| `{name}` | {one['unit']} | {known:g} | {here:g} | {here / known:.3f} | {one['meaning']} |")
    return {"constants": "\n".join(cells)}


def gpu_file() -> str:
    """The H100's GPU file with its constants as they are now."""
    model = tomllib.loads((GPUS / "h200.toml").read_text(encoding="utf-8"))["model"]
    lines = [_line(name, entry["value"]) for name, entry in model.items()]
    text = (GPUS / "h100-sxm.toml").read_text(encoding="utf-8")
    return SECTION.sub("", text).rstrip("\n") + "\n\n[model]\n" + "\n".join(lines) + "\n"


def _line(name: str, value: float) -> str:
    if name in MEASURED_HERE:
        own, source = MEASURED_HERE[name]
        return f'{name} = {{ value = {own:g}, source = "{source}" }}'
    if name not in MEASURED_AS:
        return f'{name} = {{ value = {value:g}, source = "carried over from the H200", verified = false }}'
    by = ratio(MEASURED_AS[name])
    source = f"the H200's x {by:.3f}: {MEASURED_AS[name]} of experiments/h100_microbench over h200_microbench's"
    return f'{name} = {{ value = {value * by:.0f}, source = "{source}" }}'


STUDY = Study(__file__, __doc__, {}, rows, page)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
