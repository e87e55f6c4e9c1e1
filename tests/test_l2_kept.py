"""What L2 keeps: a prediction is what the model gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.l2_kept import run as study
from experiments.plans import recorded
from experiments.rows import from_csv
from gpusim import load_gpu

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "l2_kept"
MOST_POINTS = 5.0  # that predicted shares may be off on the mean


def test_predictions_are_what_the_model_gives_now() -> None:
    known = from_csv(study.Lost, STUDY / "result.csv")
    for row, found in zip(known, study.lost(study.times_us(), load_gpu("h200")), strict=True):
        assert (row.others, row.mib) == (found.others, found.mib)
        assert row.measured_share == pytest.approx(found.measured_share, abs=1e-5)
        assert row.predicted_share == pytest.approx(found.predicted_share, abs=1e-5)


def test_what_is_lost_is_predicted() -> None:
    rows = from_csv(study.Lost, STUDY / "result.csv")
    points = [100.0 * abs(row.measured_share - row.predicted_share) for row in rows]
    assert sum(points) / len(points) < MOST_POINTS


def test_half_is_lost_where_half_as_much_again_is_touched_as_l2_keeps() -> None:
    gpu = load_gpu("h200")
    kept = gpu.model.l2_kept_share * gpu.l2_bytes
    convolution, algorithm = recorded(study.CALLS)["inception_3b_b16/3b.1x1/fwd/IMPLICIT_PRECOMP_GEMM/TF32"]
    own = algorithm.touched_bytes - algorithm.workspace_bytes
    shares = [study.predicted_share(convolution, algorithm, int(n * kept - own), gpu) for n in (1.0, 1.5, 2.0, 3.0)]
    assert shares == pytest.approx([0.0, 0.5, 1.0, 1.0], abs=1e-6)
