"""Models beside a kernel that moves memory: matching of kernels, the neighbour, and what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.neighbours import run as study
from experiments.rows import from_csv
from gpusim import import_profile, load_gpu
from gpusim.model.contention import fetch_stall_share
from gpusim.session import Session

STUDY = Path(__file__).resolve().parent.parent / "experiments" / "neighbours"


def test_kernels_are_matched_by_name_in_order() -> None:
    """One that the other recording lacks is left out, and so is one of another name between two."""
    one = [("a", 1.0), ("b", 2.0), ("c", 3.0), ("a", 4.0)]
    other = [("a", 1.0), ("x", 5.0), ("c", 2.0), ("a", 2.0)]
    assert list(study.matched(one, other)) == [(0, 0), (2, 2), (3, 3)]


@pytest.mark.parametrize("name", study.NEIGHBOURS)
def test_the_neighbour_moves_what_it_is_said_to(name: str) -> None:
    """On the recording GPU alone it takes its recorded time, and moves bytes at its pace."""
    trace = study.neighbour(study.NEIGHBOURS[name])
    result = Session("h200", "h200").replay(trace, "leftover")
    assert result.makespan_us == pytest.approx(study.LONG_US, rel=1e-6)
    mix = next(trace.operations()).launches()[0].mix
    assert mix is not None and mix.dram_read_bytes is not None
    assert mix.dram_read_bytes * study.BLOCKS / study.LONG_US == pytest.approx(study.NEIGHBOURS[name][0])


def test_slowdowns_are_predicted() -> None:
    """Whole passes within 5 % on the mean, where no slowdown at all would be more than twice as far off."""
    rows = from_csv(study.Slowed, STUDY / "result.csv")
    assert {(row.model, row.neighbour) for row in rows} == {
        (model, name) for model in study.measured() for name in study.NEIGHBOURS
    }
    errors = [abs(row.predicted / row.measured - 1.0) for row in rows]
    nothing = [abs(1.0 / row.measured - 1.0) for row in rows]
    assert sum(errors) / len(errors) < 0.05 and sum(nothing) > 2.5 * sum(errors)
    assert load_gpu(study.GPU).sm_count == study.MODEL_SMS + study.OTHER_SMS


def test_models_in_streams_are_predicted() -> None:
    """Pairs on an H100, from profiles of an H200, within 7 % on the mean."""
    pairs = from_csv(study.Streamed, STUDY / "in_streams.csv")
    assert len(pairs) == 9
    assert sum(abs(pair.error_percent) for pair in pairs) / len(pairs) < 7.0


def test_the_limits_of_the_model_quote_models_in_streams() -> None:
    errors = [pair.error_percent for pair in from_csv(study.Streamed, STUDY / "in_streams.csv")]
    said = f"{-sum(errors) / len(errors):.1f} % too short on the mean, {-min(errors):.1f} % at most"
    assert said in (STUDY.parent / "h200_validation" / "evidence.md").read_text(encoding="utf-8")


@pytest.mark.skipif(not study.PROFILES.is_dir(), reason="needs the profiles of the models")
def test_the_page_says_for_how_long_the_convolution_waits_for_code() -> None:
    """The first depthwise convolution of each pass of ConvNeXt."""
    name = study.PROFILES / "convnext_tiny"
    trace = import_profile(f"{name}.kineto.json.gz", counters=f"{name}.ncu.csv.gz").trace
    launches = [launch for operation in trace.operations() for launch in operation.launches()]
    first = next(launch for launch in launches if launch.name == "conv2d_c1_k1_nhwc_specialized")
    assert f"Of its time, {100 * fetch_stall_share(first.mix):.0f} % waits for code" in (STUDY / "page.md").read_text()
