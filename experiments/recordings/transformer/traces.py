"""Make the shipped traces of a transformer: `python experiments/recordings/transformer/traces.py [--out traces]`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from gpusim.lab.validate import Case
from gpusim.lab.whole_models import PASSES, ModelPredictor

HERE = Path(__file__).resolve().parent
GPU = "h100-sxm"
MODELS = {
    "transformer_prefill": "Prefill of a prompt of 512 tokens.",
    "transformer_decode": "One token of each of 32 sequences, 512 tokens so far.",
}
NOTES = """{what} A transformer of 8 layers, width 1024, 16 heads, a gated feed-forward part of 4096; BF16, random
weights. Recorded with gpusim record (experiments/recordings/transformer/ops.py) on one NVIDIA H100 80GB HBM3.
Durations: PyTorch's profiler, one replay of a CUDA graph. Counters: Nsight Compute, one kernel at a time, caches not
flushed. Left out: embedding, the vocabulary's projection, sampling, host time, and gaps between kernels."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the traces."""
    parser = argparse.ArgumentParser(description="Make the shipped traces of a transformer")
    parser.add_argument("--out", type=Path, default=HERE.parents[2] / "traces", help="folder to write to")
    out: Path = parser.parse_args(arguments).out
    predictor = ModelPredictor(Case(str(HERE / GPU / "models"), GPU))
    for name, what in MODELS.items():
        trace = predictor.profiled(name)
        streams = [
            one.model_copy(update={"operations": one.operations[: len(one.operations) // PASSES]})
            for one in trace.streams
        ]
        changes = {"name": name, "streams": tuple(streams), "notes": NOTES.format(what=what)}
        trace.model_copy(update=changes).save(out / f"{name}.json.gz")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
