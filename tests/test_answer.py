"""The answer's own evidence: room on an SM by hand, and that its page is what its script says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tiny import launch, tiny

import gpusim
from experiments.answer import evidence, run
from experiments.study import TRACES
from gpusim.calibrate.fit import anchored
from gpusim.model.occupancy import Footprint

GPU = tiny()  # 4 SMs


@pytest.mark.parametrize(("blocks", "share"), [(4, 1.0), (3, 0.75), (1, 0.25), (9, 1.0)])
def test_room_is_weighted_by_sms(blocks: int, share: float) -> None:
    """A kernel of which one block fills an SM's registers leaves no room where it has one, and all room elsewhere."""
    whole = Footprint(warps=4, registers=GPU.limits.capacity[0], shared_memory_bytes=1024)
    model = replace(anchored(launch(blocks, 10.0), GPU), footprint=whole, blocks_per_sm=1)
    assert evidence.no_room(GPU, model, model) == (pytest.approx(share), "registers")


def test_half_of_the_registers_leave_room_for_one() -> None:
    half = Footprint(warps=4, registers=GPU.limits.capacity[0] // 2, shared_memory_bytes=1024)
    model = replace(anchored(launch(6, 10.0), GPU), footprint=half, blocks_per_sm=2)
    assert evidence.no_room(GPU, model, model) == (pytest.approx(0.5), "registers")  # two SMs hold two, two hold one


def test_the_parts_of_the_saved_time_add_up() -> None:
    found = gpusim.compare(TRACES / "inception_3a.json.gz", "h200", ["leftover"]).table
    speedup = float(found.set_index("policy").speedup["leftover"])  # the trace has the fastest algorithms selected
    parts = evidence.saved("inception_3a")
    assert sum(parts.values()) == pytest.approx(100.0 * (1.0 - 1.0 / speedup))
    assert parts["gaps"] > parts["sharing"] > 0.0


@pytest.mark.release
def test_the_page_is_what_the_script_says(tmp_path: Path) -> None:
    assert run.main(["--out", str(tmp_path / "answer.md")]) == 0
    assert (tmp_path / "answer.md").read_text() == run.DOCUMENT.read_text()
