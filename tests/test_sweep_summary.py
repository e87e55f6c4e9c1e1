"""Sweeps: what a table shows, as text, as JSON and as a picture."""

from __future__ import annotations

import csv
import json
import math
import re
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from sweeping import TABLE_1, Capture, small, swept, written

from gpusim import cli
from gpusim.common.errors import InputError
from gpusim.hardware.what_if import QUANTITIES
from gpusim.results.metrics import undominated
from gpusim.sweeps import compute, picture, summary
from gpusim.sweeps.experiment import load_experiment

pytestmark = pytest.mark.usefixtures("sweeps_here")


# ---- what it shows


def test_undominated_pairs_by_hand() -> None:
    assert undominated([(-1.0, -1.0), (-2.0, -0.5), (-1.5, -0.5), (-2.0, -0.5), (-0.5, -1.0)]) == [
        True,
        True,
        False,
        True,
        False,
    ]


@pytest.mark.parametrize("restart", [False, True])
def test_summaries_by_hand(tmp_path: Path, restart: bool) -> None:
    done = swept(small(tmp_path, f"restart = {str(restart).lower()}\nseeds = [0, 1]\n"))
    with (tmp_path / "experiment.csv").open() as file:
        rows = list(csv.DictReader(file))
    for one in summary.policy_summaries(done):
        of = [row for row in rows if (row["gpu"], row["policy"]) == (one.gpu, one.policy)]
        speedups = [float(row["speedup_vs_serial"]) for row in of]
        assert one.points == len(of) == 2
        assert one.speedup == pytest.approx((speedups[0] * speedups[1]) ** 0.5)
        assert one.largest_slowdown == pytest.approx(sum(float(row["largest_slowdown"]) for row in of) / 2)
        assert one.stp == (pytest.approx(sum(float(row["stp"]) for row in of) / 2) if restart else None)
        assert one.fairness == (pytest.approx(sum(float(row["fairness"]) for row in of) / 2) if restart else None)
    assert sum(one.best for one in summary.policy_summaries(done)) == 2, "one workload on each of two GPUs"
    for gpu in done.experiment.gpus:
        ranked = [one.stp if restart else one.speedup for one in summary.policy_summaries(done) if one.gpu == gpu]
        assert len(ranked) == 2 and ranked == sorted(ranked, reverse=True)


def row_of(policy: str, trace: str, speedup: float, error: float | None = None, seed: int = 0) -> summary.SweptRow:
    labels = {"policy": policy, "trace": trace, "gpu": "h200", "seed": seed}
    known = {} if error is None else {compute.ERROR: error}
    return summary.SweptRow(labels, {"speedup_vs_serial": speedup, **known}, "")


def test_intervals_are_paired_by_workload() -> None:
    """A policy that is 5 % behind the best on every workload is so for certain, however much workloads differ."""
    best = [row_of("a", trace, speedup) for trace, speedup in (("x", 1.1), ("y", 1.5), ("z", 2.0))]
    other = [row_of("b", str(row.labels["trace"]), row.figures["speedup_vs_serial"] / 1.05) for row in best]
    lead, half = summary.behind(other, best[::-1], False)
    assert lead == pytest.approx(math.log(1.05)) and half == pytest.approx(0.0, abs=1e-9)
    interval = summary.speedup_interval(best)
    assert interval is not None and interval[0] < 1.1 and interval[1] > 2.0
    assert summary.speedup_interval(best[:2]) is None
    for freedom, quantile in ((4, 2.776), (10, 2.228), (100, 1.984)):  # of tables
        assert summary.student_t(freedom) == pytest.approx(quantile, abs=0.01)


def test_seeds_are_no_workloads() -> None:
    """More seeds of the same two workloads give no interval, and of three not a narrower one."""
    several = {
        trace: [row_of("a", trace, speedup, seed=n) for n in range(5)]
        for trace, speedup in zip("xyz", (1.1, 1.5, 2.0), strict=True)
    }
    assert summary.speedup_interval([*several["x"], *several["y"]]) is None
    once = [of[0] for of in several.values()]
    assert summary.speedup_interval([row for of in several.values() for row in of]) == pytest.approx(
        summary.speedup_interval(once)
    )


def test_policies_are_compared_over_seeds_that_both_have() -> None:
    """b is better with the only seed that a has, too; and a seed without any speed is a loss."""
    a, b = [row_of("a", "x", 1.5)], [row_of("b", "x", 1.6), row_of("b", "x", 1.0, seed=1)]
    assert summary._wins([*a, *b], False) == ["b"]
    assert summary.behind(b, a, False)[0] == pytest.approx(math.log(1.5 / 1.6))
    still = [row_of("c", "x", 9.0), row_of("c", "x", 0.0, seed=1)]
    assert summary._wins([*b, *still], False) == ["b"]
    assert summary._wins([row_of(name, "x", 0.0) for name in "ab"], False) == ["a", "b"]


def test_the_error_of_several_points_is_known_where_that_of_each_is() -> None:
    assert summary.model_error([row_of("a", "x", 1.0, 2.0), row_of("a", "y", 1.0, 4.0)]) == 3.0
    assert summary.model_error([row_of("a", "x", 1.0, 2.0), row_of("a", "y", 1.0)]) is None


def test_a_sweep_shows_parameters_errors_and_speedups_against_quantities(tmp_path: Path, capsys: Capture) -> None:
    path = written(
        tmp_path,
        f'traces = ["{TABLE_1}"]\npolicies = ["leftover", "warped-slicer:objective=stp"]\n'
        "[parameters]\nsm_count = ['x2', 'x1']\n",
    )
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == [
        *("gpu", "sm_count", "policy", "objective", "points", "speedup", "slowdown", "behind", "best"),
        *("fastest", "model", "error", "Pareto-optimal"),
    ]
    assert {line[1] for line in lines[2:6]} == {"15", "30"} and all("validated" in line for line in lines[2:6])
    assert lines[6][:2] == ["not", "validated:"]
    assert [line[3] for line in lines[2:6] if line[2] == "warped-slicer"] == ["stp"] * 2
    (title,) = (at for at, line in enumerate(lines) if line[:4] == ["Speedup", "over", "serial", "against"])
    assert [line[:2] for line in lines[title + 3 :]] == [["k40c", "15"], ["k40c", "30"]]


def test_streams_that_restart_are_ranked_by_stp() -> None:
    """Serial is slower run once, and does most work at once of streams that restart."""
    of = [
        summary.SweptRow({"policy": policy}, {"speedup_vs_serial": speedup, "stp": stp}, "")
        for policy, speedup, stp in (("serial", 1.0, 1.3), ("leftover", 1.5, 1.2))
    ]
    for restart, best in ((False, "leftover"), (True, "serial")):
        assert [row.labels["policy"] for row in summary.best_of(of, restart)] == [best]


def test_each_workload_shows_what_it_is_ranked_by(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path, "restart = true\nseeds = [0, 1]\n")
    assert cli.main(["sweep", str(path), "--jobs", "1"]) == 0
    printed = capsys.readouterr().out
    assert "most STP" in printed and "fastest" not in printed
    assert re.search(r"Each workload\n.*policy with most STP +STP", printed)


def test_json_for_programs(tmp_path: Path, capsys: Capture) -> None:
    path = small(tmp_path)
    assert cli.main(["sweep", str(path), "--jobs", "1", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (content["points"], content["computed"], content["failed"]) == (4, 4, 0)
    assert content["table"] == str(path.with_suffix(".csv"))
    assert {row["policy"] for row in content["policies"]} == {"leftover", "even"}


@pytest.mark.release
@pytest.mark.parametrize(
    "more", ["", "restart = true\n", "[parameters]\nsm_count = ['x1', 'x2']\ndram_bandwidth_gb_per_s = ['x1', 'x2']\n"]
)
def test_the_same_sweep_draws_the_same_picture(tmp_path: Path, more: str) -> None:
    path = small(tmp_path, more)
    for name in ("a.png", "b.png"):
        assert cli.main(["sweep", str(path), "--jobs", "1", "--plot", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> list[Axes]:
    """The axes of the picture of a small sweep."""
    axes: list[Axes] = []
    monkeypatch.setattr(picture, "save_figure", lambda figure, path: axes.extend(figure.axes))
    picture.draw(swept(small(tmp_path, more)), tmp_path / "p.png")
    return axes


def test_a_picture_names_quantities_and_policies_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes = drawn(
        tmp_path, monkeypatch, "[parameters]\nsm_count = ['x1', 'x2']\ndram_bandwidth_gb_per_s = ['x1', 'x2']\n"
    )
    assert [axis.get_title(loc="left") for axis in axes] == ["SMs", "DRAM bandwidth"]
    assert set(picture.QUANTITIES) == set(QUANTITIES)


def test_who_gains_and_who_pays_has_a_row_for_each_policy() -> None:
    figures = [("a", 1.25, 1.5), ("a", 1.35, 1.5), ("b", 1.0, 2.0)]
    several = [
        summary.SweptRow({"policy": policy, "trace": str(n)}, {"speedup_vs_serial": gain, "largest_slowdown": fate}, "")
        for n, (policy, gain, fate) in enumerate(figures)
    ]
    axes = Figure().subplots()
    picture._draw_merits(axes, several, "speedup_vs_serial", {"a": True, "b": False})
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    means = {
        line.get_label(): list(line.get_xdata()) for line in axes.lines if str(line.get_label()).startswith("mean")
    }
    assert means == {"mean, Pareto-optimal": [pytest.approx(1.3)], "mean, dominated": [1.0]}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("no/p.png", "p.png: cannot be written (No such file or directory); expected a file in a folder that may be"),
        ("p.gif", "p.gif: picture: cannot be drawn to; expected a file that ends in .png, .svg, .pdf"),
    ],
)
def test_a_picture_that_cannot_be_written_is_one_line(name: str, said: str, tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["sweep", str(small(tmp_path)), "--jobs", "1", "--plot", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_errors_name_the_experiment(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_experiment(tmp_path / "none.toml")
