"""Import five whole models that others recorded: `python experiments/advise/recording/imported.py FOLDER`.

FOLDER holds NAME.kineto.json.gz, two passes of a model on an H200, and NAME.ncu.csv.gz, its counters. The first pass
becomes `programs/h200_NAME.json.gz`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gpusim
from experiments.advise.run import BY_OTHERS, PROGRAMS
from gpusim.lab.whole_models import PASSES


def import_model(folder: Path, model: str) -> gpusim.Trace:
    """One pass of a model, from its profile and counters."""
    profile, counters = folder / f"{model}.kineto.json.gz", folder / f"{model}.ncu.csv.gz"
    trace = gpusim.import_profile(profile, gpu="h200", counters=counters).trace
    (stream,) = trace.streams
    once = stream.operations[: len(stream.operations) // PASSES]
    launches = [launch for operation in once for launch in operation.launches()]
    counted = sum(not launch.estimated for launch in launches)
    notes = (
        f"A pass of {model}, recorded on an H200 in a CUDA graph: PyTorch's profiler, "
        f"counters of Nsight Compute for {counted} of {len(launches)} kernels."
    )
    only = stream.model_copy(update={"name": model, "operations": once})
    return trace.model_copy(update={"name": model, "notes": notes, "streams": (only,), "programs": ()})


if __name__ == "__main__":
    for name in BY_OTHERS:
        import_model(Path(sys.argv[1]), name).save(PROGRAMS / f"h200_{name}.json.gz")
