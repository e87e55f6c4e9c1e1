"""Write the cluster sizes of clusters.csv into the traces of the H100.

`python experiments/advise/recording/clusters.py`

Nsight Compute was not asked for `launch__cluster_dim_x`, `_y` and `_z` when it profiled the programs. It read these
three later, from `programs.py ncu` on another H100. A profiled kernel that clusters.csv does not name has no clusters.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import gpusim
from gpusim.trace.edit import with_operations
from gpusim.trace.operations import Kernel, Operation

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parent / "programs"


def main() -> None:
    """Rewrite the traces."""
    with (HERE / "clusters.csv").open(encoding="utf-8", newline="") as file:
        sizes = {(row["program"], row["kernel"], row["grid"]): row["cluster"] for row in csv.DictReader(file)}
    for path in sorted(PROGRAMS.glob("h100_*.json.gz")):
        program = path.name.removeprefix("h100_").removesuffix(".json.gz")

        def told(operation: Operation, program: str = program) -> Operation:
            if not isinstance(operation, Kernel) or operation.kernel.mix is None:
                return operation
            launch, mix = operation.kernel, operation.kernel.mix
            name = re.split("[<(]", launch.name)[0]
            size = sizes.get((program, name, "x".join(map(str, launch.grid))), "1x1x1")
            told_mix = mix.model_copy(update={"cluster": tuple(map(int, size.split("x")))})
            return operation.model_copy(update={"kernel": launch.model_copy(update={"mix": told_mix})})

        with_operations(gpusim.load_trace(path), told).save(path)


if __name__ == "__main__":
    main()
