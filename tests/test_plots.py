"""Pictures: the same bytes again, and what the picture of the SMs is made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from gpusim.results import plots
from gpusim.results.plots import TIME_STEPS, gantt, occupancy, operation_labels, sm_image, stream_colour
from gpusim.results.result import Result
from gpusim.results.runs import KernelRun, OperationRun, Placement, StreamRun, Usage


def run(stream: str, start_us: float, end_us: float, operation: str = "") -> KernelRun:
    return KernelRun(stream, operation or stream, 0, "k", 0, 1, 0.0, start_us, start_us, end_us, 1.0, "issue", 0.0, 0.0)


def made(runs: list[KernelRun], placements: list[Placement], sms: int = 2, makespan_us: float = 10.0) -> Result:
    streams = list(dict.fromkeys(run.stream for run in runs))
    return Result(
        trace="made",
        gpu="g",
        policy="p",
        makespan_us=makespan_us,
        kernel_runs=tuple(runs),
        operation_runs=tuple(OperationRun(r.stream, r.operation, 0, "kernel", 0.0, r.end_us) for r in runs),
        request_runs=(),
        stream_runs=tuple(StreamRun(stream, 0, 0.0, 0.0, makespan_us, makespan_us) for stream in streams),
        placements=tuple(placements),
        usage=Usage(5.0, (((0.5,) * 6, (1.0,) * 6),) * sms),
    )


TWO = made(
    [run("a", 0.0, 5.0), run("b", 2.5, 10.0)],
    [Placement(0, 0, 3, 0.0, 5.0), Placement(1, 0, 2, 2.5, 7.5), Placement(1, 1, 2, 2.5, 10.0)],
)


def test_streams_share_the_row_of_an_sm_they_share() -> None:
    """SM 0: a, then a over b, then b, then idle; SM 1: idle, then b. Two streams at once at most: two lanes."""
    quarter = TIME_STEPS // 4
    wanted = [[0, 0, 1, -1], [0, 1, 1, -1], [-1, 1, 1, 1], [-1, 1, 1, 1]]
    assert np.array_equal(sm_image(TWO, 2), np.repeat(np.array(wanted), quarter, axis=1))


def test_one_stream_at_a_time_needs_one_lane() -> None:
    alone = made([run("a", 0.0, 10.0)], [Placement(0, 1, 1, 0.0, 10.0)])
    image = sm_image(alone, 2)
    assert image.shape == (2, TIME_STEPS)
    assert (image[0] == -1).all() and (image[1] == 0).all()


def test_three_streams_get_equal_parts() -> None:
    runs = [run(name, 0.0, 10.0) for name in "abc"]
    image = sm_image(made(runs, [Placement(i, 0, 1, 0.0, 10.0) for i in range(3)], sms=1), 1)
    assert image[:, 0].tolist() == [0, 1, 2]


def test_a_kernel_too_short_to_see_still_shows() -> None:
    image = sm_image(made([run("a", 3.0, 3.0001)], [Placement(0, 0, 1, 3.0, 3.0001)]), 2)
    assert (image[0] == 0).sum() == 1


def test_nothing_ran() -> None:
    assert (sm_image(made([], []), 2) == -1).all()


def test_an_operation_is_named_in_its_longest_kernel_where_it_fits() -> None:
    runs = [run("a", 0.0, 1.0, "op"), run("a", 1.0, 9.0, "op"), run("b", 9.0, 9.1, "brief")]
    labels = operation_labels(made(runs, []))
    assert [(label.stream, label.text, label.middle_us) for label in labels] == [("a", "op", 5.0)]


def test_an_operation_without_kernels_is_named_in_its_bar() -> None:
    copied = replace(TWO, operation_runs=(*TWO.operation_runs, OperationRun("a", "up", 0, "copy", 5.0, 9.0)))
    labels = [(label.text, label.middle_us, label.in_kernel) for label in operation_labels(copied)]
    assert labels == [("a", 2.5, True), ("b", 6.25, True), ("up", 7.0, False)]


@pytest.mark.parametrize("draw", [gantt, occupancy], ids=["gantt", "occupancy"])
def test_the_same_bytes_whatever_the_users_settings(draw: object, tmp_path: Path) -> None:
    assert callable(draw)
    draw(TWO, tmp_path / "one.png")
    with matplotlib.rc_context({"font.size": 20.0, "savefig.dpi": 30, "axes.facecolor": "red"}):
        draw(TWO, tmp_path / "two.png")
    content = (tmp_path / "one.png").read_bytes()
    assert content == (tmp_path / "two.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert b"tEXt" not in content  # no software, no date


@pytest.mark.parametrize("draw", [gantt, occupancy], ids=["gantt", "occupancy"])
def test_a_result_without_anything_is_drawn(draw: object, tmp_path: Path) -> None:
    assert callable(draw)
    draw(made([], [], sms=0, makespan_us=0.0), tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0


def test_many_streams_are_drawn(tmp_path: Path) -> None:
    runs = [run(f"stream-with-a-long-name-{i}", i / 10, i / 10 + 1) for i in range(64)]
    gantt(made(runs, [Placement(i, i % 2, 1, i / 10, i / 10 + 1) for i in range(64)]), tmp_path / "many.png")
    assert len({stream_colour(i, 64) for i in range(64)}) == 64


def test_colours_of_few_streams_are_the_fixed_ones() -> None:
    assert [stream_colour(i, 10) for i in range(10)] == list(plots.COLOURS)


def test_a_use_that_nobody_counted_is_not_drawn_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path: drawn.append(figure))
    plots.occupancy(replace(TWO, usage=replace(TWO.usage, unknown=frozenset({"dram"}))), tmp_path / "unused.png")
    panels = {
        axes.get_ylabel().split("\n")[0]: axes for axes in drawn[0].axes if "% of the device" in axes.get_ylabel()
    }
    said = {name: " ".join(text.get_text() for text in axes.texts) for name, axes in panels.items()}
    assert said.pop("DRAM bandwidth").startswith("unknown") and set(said.values()) == {""}
    assert panels["DRAM bandwidth"].get_title(loc="right") == ""
    assert panels["registers"].get_title(loc="right") == "mean 75 %"
