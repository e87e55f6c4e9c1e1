"""Timelines that others read: Holistic Trace Analysis, where it is installed (`pip install 'gpusim[hta]'`)."""

from __future__ import annotations

from pathlib import Path

import pytest

import gpusim
from gpusim.io.viewer import save_timeline
from tests.tiny import copy, kernel, stream, tiny, trace


@pytest.mark.filterwarnings("ignore")  # of its own use of pandas
def test_holistic_trace_analysis_reads_a_replay(tmp_path: Path) -> None:
    analysis = pytest.importorskip("hta.trace_analysis").TraceAnalysis
    reduce = kernel("reduce", 1, 200.0)
    launch = reduce.kernel.model_copy(update={"name": "ncclKernel_AllReduce_RING_LL_Sum_float"})
    of = trace(
        stream("one", copy("in", 100.0), kernel("a", 2, 400.0, "in"), kernel("b", 2, 300.0)),
        stream("two", reduce.model_copy(update={"kernel": launch, "depends_on": ("b",)})),
    )
    result = gpusim.replay(of, tiny(2), "serial")
    path = tmp_path / "t.json"
    save_timeline(path, of, result)
    found = analysis(trace_files={0: str(path)}, trace_dir="")
    types, kernels = found.get_gpu_kernel_breakdown(visualize=False, num_kernels=5)
    recorded = result.kernels.set_index("kernel")
    took = recorded["end_us"] - recorded["start_us"]
    shown = types.set_index("kernel_type")["sum"]
    assert shown["MEMORY"] == pytest.approx(100.0, abs=2.0)
    assert shown["COMMUNICATION"] == pytest.approx(took[launch.name], abs=2.0)
    names = dict(zip(kernels["name"], kernels["kernel_type"], strict=True))
    assert names["Memcpy HtoD (Pinned -> Device)"] == "MEMORY"
    assert names["ncclKernel_AllReduce_RING_LL_Sum_float"] == "COMMUNICATION"
    breakdown = found.get_temporal_breakdown(visualize=False)
    assert breakdown["kernel_time(us)"][0] == pytest.approx(result.makespan_us, abs=5.0)
