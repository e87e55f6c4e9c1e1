"""PyTorch profiles that others recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.hardware.gpu import load_gpu
from gpusim.io import chrome
from gpusim.io.importing import detect, import_profile
from gpusim.model.occupancy import occupancy
from gpusim.trace.operations import Copy

V100 = {"id": 0, "name": "Tesla V100-SXM2-16GB", "totalGlobalMem": 17 * 10**9, "numSms": 80, "warpSize": 32}


def real(shared: Path, name: str) -> Path:
    path = shared / "traces" / name
    if not path.is_file():
        pytest.skip(f"needs ../shared/traces/{name}")
    return path


def test_resnet50_is_imported_whole(shared: Path) -> None:
    path = real(shared, "kineto_resnet50_train_v100_nw0.pt.trace.json.gz")
    assert detect(path) == "kineto"
    trace = import_profile(path).trace
    assert trace.device == "v100"
    assert sum(len(operation.launches()) for operation in trace.operations()) == 8772
    assert sum(isinstance(operation, Copy) for operation in trace.operations()) == 324


def test_theoretical_occupancy_is_that_of_the_profile(shared: Path) -> None:
    """Kineto's "est. achieved occupancy %" is theoretical and capped by the grid."""
    path = real(shared, "kineto_resnet50_train_v100_nw0.pt.trace.json.gz")
    gpu = load_gpu("v100")
    checked = 0
    for member, event in chrome.members(path):
        if member != chrome.EVENTS or event.get("cat") != "Kernel" or event["args"]["shared memory"] > 48 * 1024:
            continue
        args = event["args"]
        threads, blocks = (args[key][0] * args[key][1] * args[key][2] for key in ("block", "grid"))
        fit = occupancy(
            gpu,
            threads_per_block=threads,
            registers_per_thread=args["registers per thread"],
            shared_memory_per_block=args["shared memory"],
        )
        resident = min(fit.blocks_per_sm, blocks / gpu.sm_count)
        percent = 100 * resident * threads / gpu.limits.max_threads_per_sm
        assert abs(percent - args["est. achieved occupancy %"]) <= 1.0, event["name"]
        checked += 1
    assert checked > 8000


def test_alexnet_streams_wait_by_events(shared: Path) -> None:
    trace = import_profile(real(shared, "kineto_alexnet_infer_a100.json.gz")).trace
    assert trace.device == "a100-40"
    assert [stream.name for stream in trace.streams] == ["stream7", "stream20"]
    home = {op.id: stream.name for stream in trace.streams for op in stream.operations}
    waits = [(home[op.id], home[other]) for op in trace.operations() for other in op.depends_on]
    assert set(waits) == {("stream7", "stream20"), ("stream20", "stream7")}
