"""Is it where blocks go that the model gets wrong when small kernels share a GPU, or what they do to one another there?

`python experiments/placement/run.py [--out DIR]`

placement.cu ran pairs of streams of kernels that hold registers, shared memory and threads as those of cuDNN calls of
batch 16 do, for as long, and do nothing (`cases.csv`, `measured.csv.gz`). This replays them with gpusim, where nothing
is left to predict but which block starts where and when, and predicts the recorded pairs themselves with the model as
it is. It writes README.md, result.csv, pairs.csv and errors.png beside itself (or to DIR).

    python experiments/placement/run.py --cases     # make cases.csv again, from ../h200_validation/data/small
    python experiments/placement/run.py --measure   # on a machine with an NVIDIA GPU and nvcc: measured.csv.gz
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import correlation, fmean, median

from matplotlib.axes import Axes

from experiments.markdown import table
from experiments.placement.waiting import (
    CASES,
    GPU,
    HERE,
    MEASURED,
    NAMES,
    RECORDED,
    Alone,
    Case,
    Launch,
    Started,
    cases_of,
    first_stream,
    later_us,
    launch_id,
    measured_alone,
    measured_makespan_us,
    plain_pairs,
    read_cases,
    read_launches,
    runs_together,
    trace_of,
)
from experiments.rows import to_csv
from experiments.study import Run as ScriptRun
from experiments.study import Study
from gpusim.common.files import write_table, write_text
from gpusim.lab import validate
from gpusim.lab.dataset import Dataset
from gpusim.lab.record.toolchain import build, run
from gpusim.policies.hardware import Leftover
from gpusim.results.result import Result
from gpusim.results.style import COLOURS, LINES, legend_below, new_figure, save_figure
from gpusim.session import Session

LEAST_CAPABILITY = 7.0  # for streams that wait for a flag
SEEN_US = 5.0  # later than this no first block starts but for want of room: when its stream was there is not seen
PARTS_US, PARTS_SMS = 2.0, 16  # by which a launch is off at least where a replay parts from a run
SETTLED_PERCENT = 1.0
WAITED_US = 2.5  # from the end of the kernel before: more than a launch takes
WAVE_US = 1.0  # from its first block's start to its last one's: more in a kernel of several waves
NEARBY_US = 0.1  # of launch latency, less and more
NEARBY_JITTER = (0.002, 0.005, 0.01)  # of the blocks
WORST = 5


@dataclass(frozen=True)
class Run:
    """A run of both streams, measured and predicted.

    Attributes:
        pair: number of the pair.
        run: number of the run.
        first: stream whose first block started first: a or b.
        later_us: how much later the other is taken to be there.
        measured_us: makespan, from the first block to the end of the last.
        predicted_us: the same.
        least_us: the least of it and of nearby predictions.
        most_us: the most.
        parts_at: the first launch, by its measured start, that starts or ends more than `PARTS_US` apart, or whose
            blocks are on at least `PARTS_SMS` SMs more or fewer; - where none is.
        parts_measured_us: its measured start.
        parts_predicted_us: its predicted start.
        parts_measured_sms: SMs that got blocks of it.
        parts_predicted_sms: the same, predicted.
    """

    pair: int
    run: int
    first: str
    later_us: float
    measured_us: float
    predicted_us: float
    least_us: float
    most_us: float
    parts_at: str
    parts_measured_us: float
    parts_predicted_us: float
    parts_measured_sms: int
    parts_predicted_sms: int

    @property
    def error_percent(self) -> float:
        """Of the predicted makespan."""
        return 100.0 * (self.predicted_us / self.measured_us - 1.0)


@dataclass(frozen=True)
class Pair:
    """A pair of cuDNN calls, and kernels that only wait in their place.

    Attributes:
        pair: its number.
        a: the call of stream a.
        a_calls: how many.
        b: the call of stream b.
        b_calls: how many.
        measured_us: makespan of the kernels that only wait: the median of the runs.
        either_us: predicted for them: the mean over both orders of the streams.
        recorded_us: makespan of the cuDNN calls, as recorded.
        model_us: predicted for them by the model as it is.
    """

    pair: int
    a: str
    a_calls: int
    b: str
    b_calls: int
    measured_us: float
    either_us: float
    recorded_us: float
    model_us: float

    @property
    def name(self) -> str:
        """In short."""
        return f"{self.a_calls} {_short(self.a)} + {self.b_calls} {_short(self.b)}"

    @property
    def either_percent(self) -> float:
        """Error of the kernels that only wait, whichever stream is first."""
        return 100.0 * (self.either_us / self.measured_us - 1.0)

    @property
    def model_percent(self) -> float:
        """Error of the model, of the cuDNN calls."""
        return 100.0 * (self.model_us / self.recorded_us - 1.0)


def _short(op: str) -> str:
    _, layer, _, algorithm, maths = op.split("/")
    return f"{layer} {algorithm.removeprefix('IMPLICIT_')}/{maths}"


# ---- measuring -------------------------------------------------------------------------------------------------------


def measure() -> None:
    """Run all pairs on this machine's GPU."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "placement"
        build(HERE / "placement.cu", program, LEAST_CAPABILITY, "cuda")
        log = run([str(program), str(CASES)], "the program of kernels that only wait")
    write_table(MEASURED, log)


# ---- predicting ------------------------------------------------------------------------------------------------------


class Replays:
    """Replays of kernels that only wait.

    Args:
        cases: the kernels of each pair.
        alone: as measured alone.
        latency_us: of a launch more than the model's.
        jitter: of the blocks.
    """

    def __init__(
        self,
        cases: Mapping[int, Sequence[Case]],
        alone: Mapping[tuple[int, int, int], Alone],
        latency_us: float = 0.0,
        jitter: float = 0.0,
    ) -> None:
        self._cases, self._alone = cases, alone
        launch_us = GPU.model.launch_latency_us + latency_us
        constants = {
            "launch_latency_us": launch_us,
            "graph_latency_us": launch_us,  # kernels were launched one by one
            "stream_turn_us": 0.0,  # streams created in a row take no turns where there are two
            "kernel_gap_us": 0.0,  # times of kernels alone count from the end of the one before, gaps included
            "block_jitter": jitter,
        }
        self._gpu = replace(GPU, model=GPU.model.model_copy(update=constants))
        self._session = Session(self._gpu, self._gpu)

    def result(self, pair: int, started: Started) -> Result:
        """A replay."""
        return self._session.replay(trace_of(self._cases[pair], self._alone, started), keep=["placements"])

    def makespan_us(self, pair: int, started: Started) -> float:
        """From the first block to the end of the last."""
        trace = trace_of(self._cases[pair], self._alone, started)
        return self._session.makespan_us(trace, Leftover()) - self.first_block_us

    @property
    def first_block_us(self) -> float:
        """When the first block of a replay starts."""
        return self._gpu.model.launch_latency_us


def starts(runs: Mapping[tuple[int, int], Sequence[Launch]]) -> dict[tuple[int, int], Started]:
    """How each run began; the median of the others where the second stream found no room and so was not seen."""
    late = {name: later_us(launches) for name, launches in runs.items()}
    usual_us = median(us for us in late.values() if us <= SEEN_US)
    return {
        name: Started(first_stream(launches), late[name] if late[name] <= SEEN_US else usual_us)
        for name, launches in runs.items()
    }


def all_runs(
    replays: Replays,
    nearby: Sequence[Replays],
    runs: Mapping[tuple[int, int], Sequence[Launch]],
    began: Mapping[tuple[int, int], Started],
) -> list[Run]:
    """Every run of both streams, predicted."""
    found = []
    for (pair, number), launches in runs.items():
        started = began[pair, number]
        result = replays.result(pair, started)
        predicted_us = result.makespan_us - replays.first_block_us
        around = [predicted_us, *(other.makespan_us(pair, started) for other in nearby)]
        found.append(
            Run(
                pair,
                number,
                NAMES[started.first],
                started.later_us,
                measured_makespan_us(launches),
                predicted_us,
                min(around),
                max(around),
                *parting(launches, result, replays.first_block_us),
            )
        )
    return found


def parting(launches: Sequence[Launch], result: Result, first_block_us: float) -> tuple[str, float, float, int, int]:
    """Where a replay parts from a run: the last five columns of `Run`."""
    sms: dict[int, set[int]] = {}
    for placement in result.placements:
        sms.setdefault(placement.run, set()).add(placement.sm)
    replayed = {kernel.operation: (row, kernel) for row, kernel in enumerate(result.kernel_runs)}
    for launch in sorted(launches, key=lambda launch: launch.start_us):
        name = launch_id(launch.stream, launch.call, launch.kernel)
        row, kernel = replayed[name]
        start_us, end_us = kernel.start_us - first_block_us, kernel.end_us - first_block_us
        late = max(abs(start_us - launch.start_us), abs(end_us - launch.end_us)) > PARTS_US
        if late or abs(launch.sms - len(sms[row])) >= PARTS_SMS:
            return name, launch.start_us, start_us, launch.sms, len(sms[row])
    return "-", 0.0, 0.0, 0, 0


def all_pairs(replays: Replays, runs: Sequence[Run]) -> list[Pair]:
    """Every pair, whichever stream is first, beside the cuDNN calls that it stands for."""
    dataset = Dataset(RECORDED, GPU)
    case = validate.Case(str(RECORDED), GPU.name)
    scored = {row.key: row for row in validate.score(case, ("streams",), jobs=1)}
    usual_us = median(one.later_us for one in runs)
    found = []
    for number, condition in enumerate(plain_pairs(dataset)):
        ((a,), (b,)), (a_calls, b_calls) = condition.ops, condition.calls
        either = [replays.makespan_us(number, Started(first, usual_us)) for first in range(len(NAMES))]
        measured_us = median(one.measured_us for one in runs if one.pair == number)
        real = scored[condition.key]
        times = measured_us, fmean(either), 1e3 * real.measured_ms, 1e3 * real.predicted_ms
        found.append(Pair(number, a, a_calls, b, b_calls, *times))
    return found


# ---- the page --------------------------------------------------------------------------------------------------------


def size(errors: Iterable[float]) -> float:
    """Mean of what they are off."""
    return fmean(abs(error) for error in errors)


def of_pair(runs: Sequence[Run], value: Callable[[Sequence[Run]], float]) -> dict[int, float]:
    """Something of all runs of each pair."""
    by_pair: dict[int, list[Run]] = {}
    for one in runs:
        by_pair.setdefault(one.pair, []).append(one)
    return {pair: value(found) for pair, found in by_pair.items()}


def pair_size(runs: Sequence[Run]) -> float:
    """What the predictions of a pair's runs are off on the mean, percent."""
    return size(one.error_percent for one in runs)


def unsettled(runs: Sequence[Run]) -> float:
    """By how much nearby predictions of a run differ, percent; of the run where they differ most."""
    return max(100.0 * (one.most_us / one.least_us - 1.0) for one in runs)


def own_spread(runs: Sequence[Run]) -> float:
    """By how much runs that began with the same stream differ on the GPU, percent."""
    times = [[one.measured_us for one in runs if one.first == name] for name in NAMES]
    return max(100.0 * (max(some) / min(some) - 1.0) for some in times if some)


def summary_table(runs: Sequence[Run], pairs: Sequence[Pair]) -> str:
    """Errors of the kernels that only wait and of the calls they stand for."""
    rows = [
        ["kernels that only wait, each run", f"{len(runs)} runs", *_errors([one.error_percent for one in runs])],
        ["the same, mean over both orders", f"{len(pairs)} pairs", *_errors([one.either_percent for one in pairs])],
        ["the recorded cuDNN calls", f"{len(pairs)} pairs", *_errors([one.model_percent for one in pairs])],
    ]
    return table(["", "", "mean error", "median", "largest", "bias"], rows)


def _errors(errors: Sequence[float]) -> list[str]:
    sizes = [abs(error) for error in errors]
    return [*(f"{value:.1f} %" for value in (fmean(sizes), median(sizes), max(sizes))), f"{fmean(errors):+.1f} %"]


def page(runs: Sequence[Run], pairs: Sequence[Pair]) -> dict[str, object]:
    """What the page says."""
    launches = runs_together(read_launches())
    off, loose, own = (of_pair(runs, value) for value in (pair_size, unsettled, own_spread))
    firm = [pair for pair in off if loose[pair] < SETTLED_PERCENT]
    others = [pair for pair in off if pair not in firm]
    worst = sorted(pairs, key=lambda one: -abs(one.model_percent))[: 2 * WORST]
    late = [(pair, us) for (pair, _), run in launches.items() for us in after_last_blocks(run)]
    slack = SETTLED_PERCENT / 100.0
    *some, most = (f"{100.0 * jitter:g}" for jitter in NEARBY_JITTER)
    return {
        "runs": len({one.run for one in runs}),
        "pairs": len(pairs),
        "summary": summary_table(runs, pairs),
        "settled": SETTLED_PERCENT,
        "near": sum(error < SETTLED_PERCENT for error in off.values()),
        "worst": len(worst),
        "recorded": size(one.model_percent for one in worst),
        "waiting": fmean(off[one.pair] for one in worst),
        "together": correlation([off[one.pair] for one in pairs], [abs(one.model_percent) for one in pairs]),
        "nearby_us": NEARBY_US,
        "jitters": f"{', '.join(some)} or {most}",
        "loose": len(others),
        "loosest": max(loose.values()),
        "loose_off": fmean(off[pair] for pair in others),
        "firm": len(firm),
        "firm_off": fmean(off[pair] for pair in firm),
        "all_runs": len(runs),
        "near_runs": sum(abs(one.error_percent) < SETTLED_PERCENT for one in runs),
        "between": sum(one.least_us * (1 - slack) < one.measured_us < one.most_us * (1 + slack) for one in runs),
        "repeatable": sum(spread < SETTLED_PERCENT for spread in own.values()),
        "apart": max(own.values()),
        "most_off": WORST,
        "worst_table": worst_table(runs, pairs),
        "parts_us": PARTS_US,
        "parts_sms": PARTS_SMS,
        "late_us": median(us for _, us in late),
        "late": len(late),
        "late_pairs": len({pair for pair, _ in late}),
    }


def worst_table(runs: Sequence[Run], pairs: Sequence[Pair]) -> str:
    """The pairs that are most off."""
    off, own = of_pair(runs, pair_size), of_pair(runs, own_spread)
    rows = []
    for pair in sorted(pairs, key=lambda one: -off[one.pair])[:WORST]:
        one = max((one for one in runs if one.pair == pair.pair), key=lambda one: abs(one.error_percent))
        parts = f"{one.parts_measured_us:.1f} ({one.parts_predicted_us:.1f}) µs"
        rows.append(
            [
                pair.name,
                f"{off[pair.pair]:.1f} %",
                f"{one.measured_us:.0f} ({one.predicted_us:.0f})",
                f"{one.least_us:.0f} to {one.most_us:.0f}",
                f"{own[pair.pair]:.1f} %",
                f"{one.parts_at}: {parts}, {one.parts_measured_sms} ({one.parts_predicted_sms})",
            ]
        )
    titles = ["pair", "off", "makespan, µs", "nearby", "on the GPU", "parts at: start, SMs"]
    return table(titles, rows)


def after_last_blocks(launches: Sequence[Launch]) -> Iterator[float]:
    """How long after another stream's last block of a kernel of several waves the kernel started that waited for it."""
    ended_us: dict[int, float] = {}
    for launch in launches:
        waited = launch.start_us - ended_us.get(launch.stream, launch.start_us) > WAITED_US
        ended_us[launch.stream] = launch.end_us
        placed = [
            one.last_us for one in launches if one.stream != launch.stream and one.last_us - one.start_us > WAVE_US
        ]
        late = [launch.start_us - us for us in placed if us <= launch.start_us]
        if waited and late and min(late) < WAVE_US:
            yield min(late)


def draw(runs: Sequence[Run], pairs: Sequence[Pair], path: Path) -> None:
    """Share of the pairs within an error."""
    with new_figure(2.5) as figure:
        axes = figure.subplots()
        _step(axes, list(of_pair(runs, pair_size).values()), 0, "kernels that only wait, mean of the runs")
        _step(axes, [abs(one.model_percent) for one in pairs], 1, "recorded cuDNN calls")
        axes.set_xlim(left=0.0)
        axes.set_ylim(0.0, 102.0)
        axes.set_xlabel("Error of the makespan (%)")
        axes.set_ylabel("Pairs within that error (%)")
        legend_below(figure, axes, 1)
        save_figure(figure, path)


def _step(axes: Axes, errors: Sequence[float], place: int, label: str) -> None:
    shares = [100.0 * (n + 1) / len(errors) for n in range(len(errors))]
    style = {"color": COLOURS[2 * place], "linestyle": LINES[place]}
    axes.step([0.0, *sorted(errors)], [0.0, *shares], where="post", label=label, **style)


def make_cases() -> None:
    """Make cases.csv, from the recorded pairs."""
    write_text(CASES, to_csv(Case, cases_of(Dataset(RECORDED, GPU))))


def rows(_: ScriptRun) -> dict[str, list[Run] | list[Pair]]:
    """Every run and every pair, with their predictions."""
    launches, cases = read_launches(), read_cases()
    runs, alone = runs_together(launches), measured_alone(launches)
    replays = Replays(cases, alone)
    nearby = [Replays(cases, alone, latency_us=us) for us in (-NEARBY_US, NEARBY_US)]
    nearby += [Replays(cases, alone, jitter=jitter) for jitter in NEARBY_JITTER]
    found = all_runs(replays, nearby, runs, starts(runs))
    return {"result.csv": found, "pairs.csv": all_pairs(replays, found)}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Run, "pairs.csv": Pair},
    rows,
    page,
    {"errors.png": draw},
    {
        "cases": (make_cases, "make cases.csv again, from the recorded pairs"),
        "measure": (measure, "run the cases on this machine's GPU: measured.csv.gz"),
    },
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
