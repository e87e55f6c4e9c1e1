"""Pictures of studies: what is drawn where, in which words, and what of it is told apart without colour."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from matplotlib.axes import Axes
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure

from gpusim import cli, load_gpu, load_trace
from gpusim.commands import plot
from gpusim.common.errors import InputError
from gpusim.hardware.what_if import what_if
from gpusim.lab import charts, curves
from gpusim.lab.charts import IN_PROPORTION, MEASURED, PREDICTED
from gpusim.lab.curves import Curve, SplitCurve
from gpusim.lab.dataset import Dataset
from gpusim.lab.kernel_mix import ARITHMETIC, MEMORY, PIPES, REST, STALLS, KernelMix, kernel_mixes
from gpusim.lab.names import DIRECTIONS
from gpusim.results import plots
from gpusim.results.comparison import Comparison
from gpusim.results.error_band import ErrorBand, HowWrong
from gpusim.results.plots import ERROR_KNOWN, ERROR_UNKNOWN
from gpusim.results.style import save_figure
from gpusim.session import compare
from gpusim.trace.edit import select

ROOT = Path(__file__).resolve().parent.parent
PAIR = ROOT / "traces" / "pair_3a_3x3_precomp_5x5_fft_tiling.json.gz"
MODULE = ROOT / "traces" / "inception_4a.json.gz"
PAPER = ROOT / "traces" / "spaa20_table1.json"
DATA = ROOT / "experiments" / "h200_validation" / "data" / "small"
Capture = pytest.CaptureFixture[str]

KNOWN = HowWrong(ErrorBand("green", 10.0), "")
SPLIT = SplitCurve(
    "made on g",
    {2: 400.0, 4: 200.0, 6: 300.0},
    {4: 200.0},
    how_wrong=KNOWN,
    streams=("a", "b"),
    sm_count=8,
    undivided_us={"one after the other": 350.0, "together, SMs not divided": 250.0},
    measured_undivided_us={"one after the other": 351.0},
)
RESIDENCY = Curve("op on g", {1: 150.0, 2: 110.0, 4: 100.0}, {1: 320.0, 2: 220.0, 4: 200.0})


def labels(axes: Axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def line(axes: Axes, label: str) -> tuple[list[float], list[float]]:
    (found,) = [line for line in axes.lines if line.get_label() == label]
    return [float(x) for x in found.get_xdata()], [float(y) for y in found.get_ydata()]  # type: ignore[union-attr]


# ---- policies


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    trace = load_trace(str(MODULE))
    return compare(trace, load_gpu("h200"), ["serial", "leftover", "inter-sm:sms=64+20+28+20"])


def with_errors(comparison: Comparison, *errors: HowWrong) -> Comparison:
    entries = tuple(replace(e, how_wrong=h) for e, h in zip(comparison.entries, errors, strict=True))
    return replace(comparison, entries=entries)


def bars_of(comparison: Comparison) -> list[plots.PolicyBar]:
    return [
        plots.PolicyBar(e.result.policy, e.result.makespan_us, f"{e.speedup_vs_serial:.3f}x", e.how_wrong)
        for e in comparison.entries
    ]


def test_a_bar_a_policy_with_its_error_where_that_was_measured(comparison: Comparison) -> None:
    never = HowWrong(None, "not validated: here")
    made = with_errors(comparison, KNOWN, never, KNOWN)
    axes = Figure().subplots()
    plots.makespans(bars_of(made), axes)
    bars = [bar for c in axes.containers if isinstance(c, BarContainer) for bar in c]
    times = [entry.result.makespan_us for entry in made.entries]
    assert [bar.get_width() for bar in bars] == times
    assert [bar.get_hatch() for bar in bars] == [None, "////", None]
    errors = [c for c in axes.containers if isinstance(c, ErrorbarContainer)]
    ends = [c.lines[2][0].get_segments()[0][:, 0].tolist() for c in errors]
    wanted = [pytest.approx([0.9 * time, 1.1 * time]) for time in (times[0], times[2])]
    assert ends == wanted
    said = [text.get_text() for text in axes.texts]
    assert said == [f"{entry.speedup_vs_serial:.3f}x" for entry in made.entries]
    assert axes.get_xlabel() == "Makespan (µs)"
    assert {text.get_text() for text in axes.get_yticklabels()} == {"serial", "leftover", "inter-sm,…4+20+28+20"}


def test_the_legend_says_once_what_a_bar_means(comparison: Comparison) -> None:
    never = HowWrong(None, "not validated: here")
    figure = with_errors(comparison, KNOWN, never, never).plot()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [ERROR_KNOWN, ERROR_UNKNOWN]


# ---- curves


def test_a_split_is_drawn_over_the_sms_of_both() -> None:
    axes = Figure().subplots()
    charts.makespan_over_split(SPLIT, axes)
    assert line(axes, PREDICTED) == ([2.0, 4.0, 6.0], [400.0, 200.0, 300.0])
    assert line(axes, MEASURED) == ([4.0], [200.0])
    assert line(axes, "predicted best: 4 + 4 SMs") == ([4.0], [200.0])
    across = {label: line(axes, label)[1][0] for label in labels(axes) if "predicted" in label and "," in label}
    assert across == {"one after the other, predicted": 350.0, "together, SMs not divided, predicted": 250.0}
    assert line(axes, "one after the other, measured")[1][0] == 351.0
    assert "±10.0 %, model error" in labels(axes)
    (above,) = axes.child_axes
    assert (axes.get_xlabel(), above.get_xlabel()) == ("SMs of a", "SMs of b")
    assert axes.get_ylabel() == "Makespan (µs, log)"


def test_a_measured_point_is_open_so_that_one_below_it_shows() -> None:
    axes = Figure().subplots()
    charts.makespan_over_split(SPLIT, axes)
    (measured,) = [line for line in axes.lines if line.get_label() == MEASURED]
    (predicted,) = [line for line in axes.lines if line.get_label() == PREDICTED]
    assert measured.get_markerfacecolor() == "none"
    assert measured.get_markersize() > predicted.get_markersize()
    assert measured.get_marker() != predicted.get_marker()


def test_a_curve_without_a_measured_error_says_why() -> None:
    why = replace(SPLIT, measured_us={}, how_wrong=HowWrong(None, "not validated: here"))
    figure = charts.split(why)
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "model error: not validated: here"
    assert not any(label.startswith("±") for label in labels(figure.axes[0]))


def test_residency_is_over_the_most_blocks_each_for_itself() -> None:
    axes = Figure().subplots()
    charts.time_over_residency(RESIDENCY, axes)
    assert line(axes, PREDICTED) == ([1.0, 2.0, 4.0], [1.5, 1.1, 1.0])
    assert line(axes, MEASURED) == ([1.0, 2.0, 4.0], [1.6, 1.1, 1.0])
    assert line(axes, IN_PROPORTION) == ([1.0, 2.0, 4.0], [4.0, 2.0, 1.0])
    assert axes.get_ylim()[1] == pytest.approx(1.25 * 1.6)
    assert axes.get_ylabel() == "Time relative to 4 blocks\n(100.0 µs predicted)"


# ---- kernels


MIXES = [
    KernelMix("k", 2, 20_000.0, dict.fromkeys(STALLS, 100.0 / len(STALLS)), {"ALU": 70.0, "L1": 10.0}),
    KernelMix("paper", 1, 30.0, {MEMORY: 20.0, REST: 80.0}, {ARITHMETIC: 55.0}),
    KernelMix("bare", 1, 3.0, {}, {}),
]


def test_stalls_add_up_and_differ_in_hatch() -> None:
    axes = Figure().subplots()
    charts.stall_reasons(MIXES, axes)
    bars = [bar for c in axes.containers if isinstance(c, BarContainer) for bar in c]
    by_row: dict[int, float] = {}
    assert bars.pop().get_linestyle() == ":"  # of what has no counters
    for bar in bars:
        row = round(bar.get_y() + bar.get_height() / 2)
        assert bar.get_x() == pytest.approx(by_row.get(row, 0.0))
        by_row[row] = bar.get_x() + bar.get_width()
    assert by_row == {0: pytest.approx(100.0), 1: pytest.approx(100.0)}
    containers = [c for c in axes.containers if isinstance(c, BarContainer)][:-1]
    assert len({c[0].get_hatch() for c in containers}) == len(containers) == len(STALLS) + 1
    assert labels(axes) == [*STALLS, REST, charts.NO_COUNTERS]
    assert next(label.get_text() for label in axes.get_yticklabels()) == "k\n20.0 ms, 2 launches"


def test_pipes_are_a_table_of_what_is_known() -> None:
    axes = Figure().subplots()
    charts.pipes_busy(MIXES, axes)
    assert [label.get_text() for label in axes.get_xticklabels()] == ["ALU", "L1", ARITHMETIC]
    rows = [text.get_text() for text in axes.texts]
    assert rows == ["70", "10", "?", "?", "?", "55", "?", "?", "?"]


def test_the_mix_of_a_recording() -> None:
    """The pair's first kernel by hand: warps waiting per issue, as recorded, over their sum; the pipes' counters."""
    trace, h200 = load_trace(str(PAIR)), load_gpu("h200")
    first = kernel_mixes(trace, h200)[0]
    launch = next(trace.operations()).launches()[0]
    assert launch.mix is not None and launch.mix.stalls is not None and launch.mix.fma_cycles is not None
    reasons = {name: value or 0.0 for name, value in launch.mix.stalls.model_dump().items()}
    assert sorted(name for names in STALLS.values() for name in names) == sorted(reasons)
    assert first.stalls["issued"] == pytest.approx(100 * reasons["selected"] / sum(reasons.values()))
    assert sum(first.stalls.values()) == pytest.approx(100.0)
    assert first.busy.keys() == PIPES.keys()
    active = launch.mix.active_cycles_avg or 0.0
    assert first.busy["FMA"] == pytest.approx(100 * launch.mix.fma_cycles * launch.blocks / (132 * active))


def test_the_mix_of_a_papers_table() -> None:
    mixes = kernel_mixes(load_trace(str(PAPER)), load_gpu("k40c"))
    assert [mix.busy for mix in mixes] == [{ARITHMETIC: 70.0}, {ARITHMETIC: 20.0}]
    assert [mix.stalls[MEMORY] for mix in mixes] == [0.47, 16.5]


# ---- what the curves are of


def test_the_split_of_a_trace_tries_every_tpc() -> None:
    small = what_if(load_gpu("h200"), {"sm_count": 12})
    curve = curves.split_of_trace(load_trace(str(PAIR)), small)
    assert list(curve.predicted_us) == [2, 4, 6, 8, 10]
    assert list(curve.undivided_us) == ["one after the other", "together, SMs not divided"]
    assert curve.how_wrong is not None and curve.how_wrong.band is None  # not the GPU as it ships


def test_more_streams_than_two_are_refused() -> None:
    with pytest.raises(InputError, match=r"streams: leaves 4 streams: .*; expected two streams"):
        curves.split_of_trace(load_trace(str(MODULE)), load_gpu("h200"))


def test_the_residency_of_an_operation_of_which_one_block_fits(tmp_path: Path) -> None:
    module = str(PAIR.with_name("inception_3a.json.gz"))
    out = tmp_path / "r.svg"
    assert cli.main(["plot", "residency", module, "--operation", "3a.3x3_reduce", "-o", str(out)]) == 0
    assert out.is_file()


def test_stalls_are_of_the_gpu_that_counted_them() -> None:
    trace = load_trace(PAIR)
    (counted, *_), (replayed, *_) = (kernel_mixes(trace, gpu) for gpu in (load_gpu("h200"), load_gpu("t4")))
    assert counted != replayed
    args = cli.build_parser("plot").parse_args(["plot", "stalls", str(PAIR), "--gpu", "t4", "-o", "x.svg"])
    with patch("gpusim.lab.charts.stalls") as drawn:
        plot._stalls(args)
    assert drawn.call_args.args[1][0] == counted


def test_the_residency_of_an_operation_ends_with_all_that_fit() -> None:
    trace, h200 = load_trace(str(PAIR)), load_gpu("h200")
    curve = curves.residency_of_trace(trace, h200, "3a.3x3")
    assert list(curve.predicted_us) == [1, 2]
    alone = compare(select(trace, operations=["3a.3x3"]), h200, ["serial"]).entries[0].result.makespan_us
    assert curve.predicted_us[2] == pytest.approx(alone) and curve.predicted_us[1] > alone


def test_processes_give_the_split_curve_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(load_gpu("h200"), sm_count=8)
    one = curves.split_of_trace(load_trace(str(PAIR)), small)
    monkeypatch.setattr("gpusim.session.MANY_KERNELS", 1)
    assert curves.split_of_trace(load_trace(str(PAIR)), small) == one


def test_curves_of_a_dataset_stand_beside_what_was_measured() -> None:
    dataset = Dataset(DATA, load_gpu("h200"))
    row = next(row for row in dataset.outcomes["residency_curve.csv"] if dataset.gpu_bound(row["op"]))
    curve = curves.residency_of_dataset(dataset, [row["op"]])
    assert curve.measured_us[int(row["blocks_per_sm"])] == 1e3 * float(row["ms"])
    assert curve.predicted_us.keys() == curve.measured_us.keys()
    pairs = [row for row in dataset.outcomes["pairs.csv"] if row["mode"] == "green"]
    row = next(row for row in pairs if dataset.gpu_bound(row["a"]) and dataset.gpu_bound(row["b"]))
    divided = curves.split_of_dataset(dataset, [row["a"], row["b"]])
    assert divided.measured_us[int(row["sms_a"])] == 1e3 * float(row["ms_makespan"])
    assert divided.measured_us.keys() <= divided.predicted_us.keys()
    layer, direction = row["a"].split("/")[1:3]
    assert divided.streams[0].startswith(f"{layer} {DIRECTIONS[direction]}, ")
    assert set(divided.measured_undivided_us) == {"one after the other", "together, SMs not divided"}


# ---- the command


KINDS: dict[str, list[str]] = {
    "gantt": [str(PAIR)],
    "occupancy": [str(PAIR), "--policy", "even"],
    "usage": [str(PAIR)],
    "policies": [str(PAIR), "--policy", "serial", "--policy", "leftover"],
    "stalls": [str(PAIR)],
    "residency": [str(PAIR), "--operation", "3a.3x3"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_drawn(kind: str, tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["plot", kind, *KINDS[kind], "-o", str(tmp_path / "a.svg")]) == 0
    assert (tmp_path / "a.svg").read_bytes().startswith(b"<?xml")
    assert capsys.readouterr().out.splitlines()[0].startswith(f"{tmp_path / 'a.svg'}: ")


@pytest.mark.parametrize(
    "kind", [one if one == "policies" else pytest.param(one, marks=pytest.mark.release) for one in KINDS]
)
def test_a_kind_is_drawn_the_same_again(kind: str, tmp_path: Path, capsys: Capture) -> None:
    for name in ("a.svg", "b.svg"):
        assert cli.main(["plot", kind, *KINDS[kind], "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert capsys.readouterr().out.splitlines()[1].startswith(f"{tmp_path / 'b.svg'}: ")


def test_a_split_is_drawn_the_same_again(tmp_path: Path) -> None:
    """In the other formats, tests/test_plots.py draws."""
    for name in ("a.svg", "b.svg"):
        save_figure(charts.split(SPLIT), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gant", str(PAIR)], "KIND: is 'gant'; expected one of gantt, "),
        (["gant", str(PAIR)], "did you mean gantt?"),
        (["stalls", str(PAIR), "--policy", "even"], "--policy: is of no use for stalls"),
        (["gantt", str(PAIR), "--operation", "a"], "--operation: is of no use for gantt"),
        (["gantt", str(PAIR), "--policy", "even", "--policy", "smk"], "--policy: 2 are given; expected one"),
        (["gantt", str(PAIR), "--policy", "evn"], "did you mean even?"),
        (["gantt", str(PAIR), "--stream", "7x7"], "--stream"),
        (["gantt", "no.json"], "no.json"),
        (["split", str(PAIR), "--operation", "a"], "--operation: is of no use for the split of a trace"),
        (["residency", str(PAIR)], "--operation: missing; expected one of 3a.3x3, 3a.5x5"),
        (["residency", str(PAIR), "--operation", "3a.33"], "did you mean 3a.3x3?"),
        (["residency", str(DATA)], "--operation: missing; expected one whose blocks were limited"),
        (["split", str(DATA), "--operation", "a"], "--operation: is a; expected two that were measured together"),
        (["split", str(DATA), "--stream", "a"], "--stream: is of no use for measurements"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(arguments: list[str], said: str, tmp_path: Path, capsys: Capture) -> None:
    assert cli.main(["plot", *arguments, "-o", str(tmp_path / "p.png")]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"), [("p.gif", "cannot be drawn to"), ("no/p.png", "cannot be written (No such file or directory)")]
)
def test_where_it_cannot_be_drawn_is_told_before_anything_is_read(
    name: str, said: str, tmp_path: Path, capsys: Capture
) -> None:
    assert cli.main(["plot", "gantt", "no.json", "-o", str(tmp_path / name)]) == 2
    assert said in capsys.readouterr().err


def test_help_lists_every_kind_with_what_it_shows(capsys: Capture) -> None:
    from gpusim.commands.plot import KINDS as kinds

    with pytest.raises(SystemExit):
        cli.main(["plot", "--help"])
    text = capsys.readouterr().out
    for name, kind in kinds.items():
        assert f"  {name}" in text and kind.summary in text
