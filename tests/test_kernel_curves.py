"""SM curves of single kernels: what a timeline tells, by hand."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest
from tiny import launch

from experiments.kernel_curves import run as study
from experiments.rows import from_csv
from gpusim import load_gpu
from gpusim.lab.dataset import Op, Recordings

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "kernel_curves"


def test_a_prediction_is_what_the_model_gives_now() -> None:
    gpu = load_gpu("h200")
    points = [point for point in from_csv(study.Point, study.MEASURED) if point.dataset == "small"][
        : 20 * len(study.SMS)
    ]
    known = {(row.op, row.kernel): row for row in from_csv(study.Curve, STUDY / "result.csv") if row.dataset == "small"}
    found = list(study.curves(points, gpu))
    assert len(found) > 5
    for row in found:
        assert row.error_percent == pytest.approx(known[row.op, row.kernel].error_percent, rel=1e-5)


def test_a_timeline_tells_each_kernel_on_each_number_of_sms() -> None:
    """Two calls of two kernels; on every number of SMs each ran three times, and the middle duration counts."""
    kernels = (launch(4, 10.0), launch(9, 5.0))
    ops = [Op(name, 0.1, True, kernels, None, None, 0.1, None) for name in ("first", "second")]
    contexts = [3 * n + 1 for n in range(len(study.SMS))]  # the first is of all SMs
    lines, now = [], 0

    def ran(context: int, blocks: int, threads: int, ns: int, name: str = "k") -> None:
        nonlocal now
        lines.append(f"{now}\t{now + ns}\t{context}\t{blocks}\t{threads}\t{name}")
        now += 1_000_000

    for op in ops:
        ran(contexts[0], 1024, 256, 7, study.FILLS)
        ran(contexts[0], 1024, 256, 7, study.FILLS)
        for n, context in enumerate((*contexts[1:], contexts[0])):
            for more_ns in (500, 0, 9_000):
                blocks = 5 if op.name == "second" and n == 2 else 4  # not the recorded kernel
                ran(context, blocks, 1024, 20_000 + 1_000 * n + more_ns)
                ran(context, 9, 1024, 3_000 + more_ns)
    found = list(study.points_of("small", ops, reversed(lines)))
    first = [(sms, 20.5 + n) for n, sms in enumerate(study.SMS)]
    assert [(point.sms, point.us) for point in found if point.op == "first" and point.kernel == 0] == first
    assert {point.us for point in found if point.kernel == 1} == {3.5}
    left = [point.sms for point in found if point.op == "second" and point.kernel == 0]
    assert left == [sms for sms in study.SMS if sms != study.SMS[2]]


def test_kernels_of_one_template_are_a_family() -> None:
    assert study.family("void cutlass::Kernel2<cutlass_80_simt_sgemm>(T1::Params)") == "Kernel2"
    assert study.family("sm90_xmma_fprop_nhwc_tilesize64x64x32_execute_kernel__5x") == "sm90_xmma_fprop_nhwc"


def test_the_gap_is_what_calls_of_one_kernel_take_more_back_to_back() -> None:
    """Of calls under 50 us, where clocks that differ by parts of a thousand do not matter."""
    gpu = load_gpu("h200")
    recordings = {dataset: Recordings(path, gpu) for dataset, path in study.DATASETS.items()}
    gaps_us = [
        1e3 * recorded.ms - point.us
        for point in from_csv(study.Point, study.MEASURED)
        if point.sms == gpu.sm_count and point.us < 50.0
        for recorded in [recordings[point.dataset].op(point.op)]
        if len(recorded.kernels) == 1
    ]
    assert len(gaps_us) > 50
    assert median(gaps_us) == pytest.approx(study.GAP_US, abs=0.1)
