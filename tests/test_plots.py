"""Pictures: the same bytes again, and what the picture of the SMs is made of."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from tiny import used

from gpusim.common.errors import InputError
from gpusim.results import plots
from gpusim.results.plots import (
    TIME_STEPS,
    gantt,
    occupancy,
    sm_image,
    sms_over_time,
    stream_colour,
    streams_over_time,
    usage,
    use_of_sms,
    use_over_time,
    warps_held,
)
from gpusim.results.result import Result
from gpusim.results.runs import KernelRun, OperationRun, Placement, StreamRun
from gpusim.results.style import FORMATS, Style, in_words, save_figure, styled


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
        usage=used(5.0, (((0.5,) * 7, (1.0,) * 7),) * sms),
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


def test_copies_are_hatched_and_no_operation_is_named() -> None:
    copied = replace(TWO, operation_runs=(*TWO.operation_runs, OperationRun("a", "up", 0, "copy", 5.0, 9.0)))
    axes = Figure().subplots()
    streams_over_time(copied, axes)
    hatched = [bars for bars in axes.collections if bars.get_hatch()]
    assert [path.vertices[:, 0].max() for bars in hatched for path in bars.get_paths()] == [9.0]
    assert axes.get_legend_handles_labels()[1] == ["running", "ready, waiting", "idle SM", "copy or host work"]
    assert not axes.texts


@pytest.mark.parametrize("draw", [gantt, occupancy, usage])
@pytest.mark.parametrize("chosen", [Style(), Style(7.0), Style(7.0, "screen", title=False)])
def test_text_has_the_size_of_the_style_whatever_the_width(draw: Callable[[Result], Figure], chosen: Style) -> None:
    with styled(chosen):
        figure = draw(TWO)
    figure.set_layout_engine("none")  # it takes long, and moves texts only
    figure.draw_without_rendering()
    assert figure.get_figwidth() == chosen.width
    shown = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text() and text.get_visible()]
    assert {text.get_fontsize() for text in shown} == {chosen.points}
    titles = [text for text in shown if text.get_text().startswith("made on g")]
    assert len(titles) == chosen.title


def test_text_stays_text(tmp_path: Path) -> None:
    save_figure(gantt(TWO), tmp_path / "p.svg")
    assert "Time (µs)</text>" in (tmp_path / "p.svg").read_text()
    save_figure(gantt(TWO), tmp_path / "p.pdf")
    assert b"/Type42" in (tmp_path / "p.pdf").read_bytes() or b"/CIDFontType2" in (tmp_path / "p.pdf").read_bytes()


EACH = pytest.mark.parametrize("draw", [gantt, occupancy, usage])
STARTS = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.release
@EACH
@pytest.mark.parametrize("ending", list(FORMATS))
def test_the_same_bytes_whatever_the_users_settings(
    draw: Callable[[Result], Figure], ending: str, tmp_path: Path
) -> None:
    save_figure(draw(TWO), tmp_path / f"one.{ending}")
    with matplotlib.rc_context({"font.size": 20.0, "savefig.dpi": 30, "axes.facecolor": "red", "svg.hashsalt": "x"}):
        save_figure(draw(TWO), tmp_path / f"two.{ending.upper()}")
    content = (tmp_path / f"one.{ending}").read_bytes()
    assert content == (tmp_path / f"two.{ending.upper()}").read_bytes()
    assert content.startswith(STARTS[ending])
    for what in (b"tEXt", b"Date", b"dc:date", b"Matplotlib v", matplotlib.__version__.encode() + b", https"):
        assert what not in content  # no software, no date


@pytest.mark.release
def test_the_same_bytes_from_another_process(tmp_path: Path) -> None:
    """Ids of an SVG's parts are hashes: neither they nor the order of a set may depend on the process."""
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "from test_plots import TWO, gantt, occupancy, save_figure, usage\n"
        f"for draw in (gantt, occupancy, usage): save_figure(draw(TWO), {str(tmp_path)!r} + f'/{{draw.__name__}}.svg')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    for draw in (gantt, occupancy, usage):
        save_figure(draw(TWO), tmp_path / "here.svg")
        assert (tmp_path / "here.svg").read_bytes() == (tmp_path / f"{draw.__name__}.svg").read_bytes()


@pytest.mark.parametrize("name", ["picture.gif", "picture", "png"])
def test_a_format_that_there_is_not(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a file that ends in \.png, \.svg, \.pdf"):
        save_figure(gantt(TWO), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_each_part_draws_on_an_axes_of_the_users() -> None:
    figure = Figure()
    streams, sms, use, of_sms = figure.subplots(4)
    streams_over_time(TWO, streams)
    sms_over_time(TWO, sms)
    use_over_time(TWO, "dram", use)
    use_of_sms(TWO, "dram", of_sms)
    assert [label.get_text() for label in streams.get_yticklabels()] == ["a", "b"]
    assert [axes.get_xlabel() for axes in (streams, sms, use, of_sms)] == ["Time (µs)"] * 4
    assert use.get_title(loc="left") == "DRAM bandwidth" or use.get_title() == "DRAM bandwidth"
    assert figure.axes[-1].get_ylabel() == "% of even"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("leftover", "leftover"),
        ("inter-sm:sms=64+68", "inter-sm, sms 64+68"),
        ("maestro:epoch_us=50,eps=0.1", "maestro, epoch 50 µs, eps 0.1"),
        ("mine.py:Mine", "mine.py:Mine"),
        ("mine.py:Mine:least_sms=2", "mine.py:Mine, least sms 2"),
        ("quota:blocks=a:2+b:3", "quota, blocks a:2+b:3"),
    ],
)
def test_a_title_has_no_options_in_it(policy: str, words: str) -> None:
    assert in_words(policy) == words
    assert gantt(replace(TWO, policy=policy)).get_suptitle() == f"made on g under {words}"


def test_few_streams_can_be_told_apart_in_grey() -> None:
    def grey(colour: str) -> float:
        return 255 * sum(weight * part for weight, part in zip((0.299, 0.587, 0.114), to_rgb(colour), strict=True))

    greys = sorted(grey(colour) for colour in (*plots.COLOURS[:5], plots.IDLE))
    assert min(after - before for before, after in pairwise(greys)) > 20.0


@EACH
def test_a_result_without_anything_is_drawn(draw: Callable[[Result], Figure], tmp_path: Path) -> None:
    save_figure(draw(made([], [], sms=0, makespan_us=0.0)), tmp_path / "empty.png")
    assert (tmp_path / "empty.png").stat().st_size > 0


def test_many_streams_are_drawn(tmp_path: Path) -> None:
    runs = [run(f"stream-with-a-long-name-{i}", i / 10, i / 10 + 1) for i in range(64)]
    many = made(runs, [Placement(i, i % 2, 1, i / 10, i / 10 + 1) for i in range(64)])
    save_figure(gantt(many), tmp_path / "many.png")
    assert len({stream_colour(i, 64) for i in range(64)}) == 64


def test_colours_of_few_streams_are_the_fixed_ones() -> None:
    assert [stream_colour(i, 10) for i in range(10)] == list(plots.COLOURS)


def test_a_use_that_nobody_counted_is_not_drawn_as_none() -> None:
    drawn = usage(replace(TWO, usage=replace(TWO.usage, unknown=frozenset({"dram"}))))
    said = {axes.get_title(loc="left"): axes.get_title(loc="right") for axes in drawn.axes}
    assert said.pop("DRAM bandwidth") == "unknown" and set(said.values()) == {"mean 75 %"}


def test_warps_are_a_streams_where_it_is_alone_on_an_sm_and_else_nobodys() -> None:
    """SM 0: a to 2.5, both to 5.0, b to 7.5, then idle; half of its warps in the first bin, all in the second."""
    held = warps_held(TWO)
    assert held.shape == (3, 2, 2)
    assert held[:, 0, :].tolist() == [[25.0, 0.0], [0.0, 100.0], [25.0, 0.0]]
    assert held.sum(axis=0).tolist() == [[50.0, 100.0], [50.0, 100.0]]


def test_occupancy_is_stacked_by_stream_over_time_and_by_sm() -> None:
    figure = occupancy(TWO)
    over_time, of_sms = figure.axes
    patches = {patch.get_label(): patch for patch in over_time.patches}
    assert list(patches) == ["a", "b", "several streams on an SM"]
    assert len({patch.get_hatch() for patch in patches.values()}) == 3
    tops = [patch.get_data().values.tolist() for patch in over_time.patches]
    assert tops == [[12.5, 0.0], [37.5, 100.0], [50.0, 100.0]]
    assert [patch.get_data().values.tolist() for patch in of_sms.patches][-1] == [75.0, 75.0]
    assert (over_time.get_xlabel(), of_sms.get_xlabel()) == ("Time (µs)", "SM")
    assert figure.get_supylabel() == "Warps held (%)"
