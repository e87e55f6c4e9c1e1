"""How do processes share a GPU without MPS: when each has an H200, what a switch takes, and how well it is predicted.

`python experiments/time_slices/run.py [--out DIR]`

turns.csv.gz has when each of some processes ran, programs.csv whole programs in two processes. This replays the same
under the policy `time-slicing`, and compares. It writes README.md, result.csv, requests.csv, whole_programs.csv and
turns.png beside itself (or to DIR).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from math import fsum, inf
from pathlib import Path
from statistics import fmean, linear_regression, median
from typing import Any

import gpusim
from experiments.advise.run import PROGRAMS, Pair, repeated, session_of, together
from experiments.markdown import error_cells, table
from experiments.rows import lines
from experiments.study import Run, Study
from gpusim import Program, Stream, TimesArrivals, Trace
from gpusim.common.tables import grouped
from gpusim.hardware.gpu import load_gpu
from gpusim.model.occupancy import footprint
from gpusim.policies import time_slicing
from gpusim.policies.interface import Partition, View
from gpusim.policies.smk import held_bytes
from gpusim.policies.time_slicing import RESTORE_US, RESTORED_BYTES_PER_US, SLICE_US, TimeSlicing
from gpusim.results.metrics import percentile
from gpusim.results.result import Result
from gpusim.results.style import COLOURS, PAGE, Style, legend_below, new_figure, save_figure, styled
from gpusim.trace.edit import with_settings_of
from gpusim.trace.new import uncounted_kernel

HERE = Path(__file__).resolve().parent
TURNS, PROGRAM_TIMES = HERE / "turns.csv.gz", HERE / "programs.csv"
GPU, POLICY = "h200", "time-slicing:by=program"
SMS, WORK_US = 132, 60_000.0
FIRST_US = 300.0  # one program starts so long before the other
SETTLED_US = 3.0 * SLICE_US  # after the start of both processes
REGISTERS = {0: 20, 32: 48, 96: 116}  # of a thread, by how many it holds beside what it needs: what nvcc 12 and 13 say
HELD = re.compile(
    r"(?P<blocks>\d+) blocks?; (?P<threads>\d+) threads; (?P<kib>\d+) KiB; (?P<registers>\d+) registers x2"
)
REQUESTS = re.compile(r"(?P<size>\d+) (?P<unit>us|ms) every (?P<every>[\d.]+) ms beside long")
DRAWN, DRAWN_MS = "3 ms every 10 ms beside long", 30.0
LONG, SHORT = "long", "request"


@dataclass(frozen=True)
class Turn:
    """A time in which one process had the GPU, us."""

    process: int
    from_us: float
    to_us: float


@dataclass(frozen=True)
class Row:
    """Processes that always have work.

    Attributes:
        case: what they run.
        context_bytes: registers and shared memory that an SM holds.
        predicted_turn_us, measured_turn_us: time in which block 0 of a process runs, measured the median.
        measured_switch_us: median time between two turns; blocks are saved and restored in it.
        predicted_us, measured_us: median time from the start of a turn to that of the next.
    """

    case: str
    context_bytes: int
    predicted_turn_us: float
    measured_turn_us: float
    measured_switch_us: float
    predicted_us: float
    measured_us: float

    @property
    def error_percent(self) -> float:
        """Of the time from turn to turn."""
        return 100.0 * (self.predicted_us / self.measured_us - 1.0)


@dataclass(frozen=True)
class Request:
    """Requests that one process launches while another always has work: mean and 95th percentile of latencies, us."""

    case: str
    predicted_mean_us: float
    measured_mean_us: float
    predicted_p95_us: float
    measured_p95_us: float


@dataclass(frozen=True)
class PairRow:
    """Whole programs in two processes; one is released 0.3 ms before the other.

    Attributes:
        pair: both programs and their passes, a and b.
        first: a or b.
        isolated_us: sum of both, measured in turn.
        predicted_a_us, measured_a_us, predicted_b_us, measured_b_us: from the start of the first until each has ended.
        predicted_isolated_us: sum of both, predicted.
    """

    pair: str
    first: str
    predicted_isolated_us: float
    isolated_us: float
    predicted_a_us: float
    measured_a_us: float
    predicted_b_us: float
    measured_b_us: float

    @property
    def error_percent(self) -> float:
        """Of the makespan."""
        return 100.0 * (self.predicted_us / self.measured_us - 1.0)

    @property
    def ends_us(self) -> tuple[float, float]:
        """When each program had ended, measured."""
        return self.measured_a_us, self.measured_b_us

    @property
    def end_errors_percent(self) -> tuple[float, float]:
        """Of the end of each program."""
        ratios = self.predicted_a_us / self.measured_a_us, self.predicted_b_us / self.measured_b_us
        return 100.0 * (ratios[0] - 1.0), 100.0 * (ratios[1] - 1.0)

    @property
    def predicted_us(self) -> float:
        """Makespan."""
        return max(self.predicted_a_us, self.predicted_b_us)

    @property
    def measured_us(self) -> float:
        """Makespan."""
        return max(self.measured_a_us, self.measured_b_us)


# ---- what was measured


@cache
def recorded() -> dict[str, list[Mapping[str, str]]]:
    """The lines of each case."""
    return grouped(lines(TURNS), lambda line: line["case"])


def turns(case: str) -> list[Turn]:
    """The turns of a case in the order of time."""
    found = [
        Turn(int(line["process"]), float(line["from_us"]), float(line["to_us"]))
        for line in recorded()[case]
        if line["what"] == "turn"
    ]
    return sorted(found, key=lambda one: one.from_us)


def requests(case: str) -> list[tuple[float, float]]:
    """When the host launched each request of the second process and when it had ended, us."""
    of = [line for line in recorded()[case] if line["what"] == "request" and line["process"] == "1"]
    return [(float(line["from_us"]), float(line["to_us"])) for line in of]


def switches_us(case: str) -> list[float]:
    """Times between the turns of a case."""
    return [after.from_us - before.to_us for before, after in pairwise(turns(case)) if before.process != after.process]


# ---- predicting


def program(name: str, blocks: int, threads: int, registers: int, shared_bytes: int, us: float) -> Stream:
    """A process of one kernel."""
    return Stream(name=name, operations=[uncounted_kernel(name, name, blocks, threads, registers, shared_bytes, us)])


def in_processes(streams: Sequence[Stream]) -> Trace:
    """A process for each stream."""
    programs = [Program(name=one.name, streams=[one.name]) for one in streams]
    return Trace(name="processes", device=GPU, streams=streams, programs=programs)


class Logged(TimeSlicing):
    """Time slices that remember who got the GPU when."""

    def __init__(self) -> None:
        super().__init__(by="program")
        self.turns: list[Turn] = []

    def partition(self, view: View) -> Partition:
        """Decide as always."""
        before = self._holder
        answer = super().partition(view)
        if self._holder is not None and self._holder != before:
            self.turns[-1:] = [replace(one, to_us=view.now_us) for one in self.turns[-1:]]
            self.turns.append(Turn(self._holder, self._from_us, inf))
        return answer


def replayed(trace: Trace) -> tuple[Result, list[Turn]]:
    """The trace under time slices, and who had the GPU when."""
    policy = Logged()
    result = session_of(GPU).replay(trace, policy)
    return result, [replace(one, to_us=min(one.to_us, result.makespan_us)) for one in policy.turns]


def _between_us(found: Sequence[Turn]) -> float:
    """Median time from the start of a turn to that of the next, while all processes have work."""
    count = len({one.process for one in found})
    return median(after.from_us - before.from_us for before, after in pairwise(found[count:-count]))


def endless_row(case: str) -> Row:
    """A case in which all processes have work all the time."""
    blocks, threads, kib, held = 1, 32, 0, 0
    if match := HELD.fullmatch(case):
        blocks, threads, kib, held = (int(match[name]) for name in ("blocks", "threads", "kib", "registers"))
    size = (threads, REGISTERS[held], kib * 1024)
    streams = [program(f"p{n}", blocks * SMS, *size, WORK_US) for n in range(int(case[-1]))]
    _, predicted = replayed(in_processes(streams))
    measured = turns(case)
    context_bytes = blocks * held_bytes(footprint(load_gpu(GPU), *size))
    return Row(
        case,
        context_bytes,
        SLICE_US - RESTORE_US - context_bytes / RESTORED_BYTES_PER_US,
        median(one.to_us - one.from_us for one in measured[2:-2]),
        median(switches_us(case)),
        _between_us(predicted),
        _between_us(measured),
    )


def _beside_long(case: str) -> tuple[Result, list[Turn]]:
    """A case of requests, launched when they were."""
    match = REQUESTS.fullmatch(case)
    assert match is not None
    us = float(match["size"]) * {"us": 1.0, "ms": 1e3}[match["unit"]]
    trace = in_processes([program(LONG, SMS, 32, 20, 0, WORK_US), program(SHORT, SMS, 32, 20, 0, us)])
    arrivals = {SHORT: {"arrivals": TimesArrivals(times_us=tuple(at for at, _ in requests(case)))}}
    return replayed(with_settings_of(trace, arrivals, "programs"))


def never_waits(case: str) -> bool:
    """Whether every request had ended when the next was due: the host launches none before."""
    match = REQUESTS.fullmatch(case)
    return match is not None and all(end - at < float(match["every"]) * 1e3 for at, end in requests(case))


def beside_long(case: str) -> Request:
    """Latencies of the requests of such a case after `SETTLED_US`: which process ran first is not known here."""
    result, _ = _beside_long(case)
    measured = sorted(end - at for at, end in requests(case) if at > SETTLED_US)
    runs = [run for run in result.request_runs if run.stream == SHORT and run.release_us > SETTLED_US]
    predicted = sorted(run.end_us - run.release_us for run in runs)
    return Request(case, fmean(predicted), fmean(measured), percentile(predicted, 95), percentile(measured, 95))


def whole_programs() -> list[PairRow]:
    """Every pair of whole programs, each first once."""
    by_pair = grouped(lines(PROGRAM_TIMES), _pair)
    return [_pair_row(pair, of[0], line) for pair, of in by_pair.items() for line in of[1:]]


def _pair(line: Mapping[str, str]) -> Pair:
    return Pair(GPU, line["a"], int(line["passes_a"]), line["b"], int(line["passes_b"]))


@cache
def isolated_us(pair: Pair) -> float:
    """Predicted time of both programs of a pair, one after the other."""
    programs = [
        repeated(gpusim.load_trace(PROGRAMS / f"{GPU}_{name}.json.gz"), passes)
        for name, passes in ((pair.a, pair.passes_a), (pair.b, pair.passes_b))
    ]
    return fsum(session_of(GPU).replay(one, "leftover", keep=()).makespan_us for one in programs)


def _pair_row(pair: Pair, alone: Mapping[str, str], line: Mapping[str, str]) -> PairRow:
    """A pair of which the program in a line was first; ``alone`` has both in turn."""
    late = {"a": "b", "b": "a"}[line["first"]]
    arrival = {late: {"arrivals": TimesArrivals(times_us=(FIRST_US,))}}
    result = session_of(GPU).replay(with_settings_of(together(pair), arrival, "programs"), POLICY, keep=())
    ends = {run.program: run.end_us for run in result.program_runs}
    return PairRow(
        pair.name,
        line["first"],
        isolated_us(pair),
        float(alone["makespan_us"]),
        ends["a"],
        float(line["a_us"]),
        ends["b"],
        float(line["b_us"]),
    )


def rows(run: Run) -> dict[str, list[Any]]:
    """Every table."""
    names = [f"long x{count}" for count in (2, 3, 4)] + [case for case in recorded() if HELD.fullmatch(case)]
    return {
        "result.csv": [endless_row(name) for name in names],
        "requests.csv": [beside_long(case) for case in recorded() if never_waits(case)],
        "whole_programs.csv": whole_programs(),
    }


# ---- the page


def program_table(found: Iterable[PairRow]) -> str:
    """Every pair of whole programs."""
    cells = [
        (
            one.pair,
            one.first,
            f"{one.measured_us:,.0f}",
            f"{one.error_percent:+.1f} %",
            *(f"{error:+.1f} %" for error in one.end_errors_percent),
            f"{one.measured_us - one.isolated_us:,.0f}",
            f"{one.predicted_us - one.predicted_isolated_us:,.0f}",
        )
        for one in found
    ]
    titles = ("programs, a + b", "first", "makespan µs", "error", "end of a: error", "end of b: error",
              "µs beyond the isolated times: measured", "predicted")  # fmt: skip
    return table(titles, cells)


def held_table(found: Iterable[Row]) -> str:
    """Processes that always have work."""
    cells = [
        (row.case.removesuffix(" x2"), f"{row.context_bytes / 1024:,.0f}", f"{row.measured_turn_us:,.0f}",
         f"{row.predicted_turn_us:,.0f}", f"{row.measured_switch_us:,.0f}", f"{row.measured_us:,.0f}",
         f"{row.predicted_us:,.0f}", f"{row.error_percent:+.1f} %")
        for row in found
    ]  # fmt: skip
    titles = ("blocks of both processes on an SM", "KiB held", "turn µs: measured", "predicted", "switch µs: measured",
              "turn to turn µs: measured", "predicted", "error")  # fmt: skip
    return table(titles, cells)


def constants(endless: Sequence[Row]) -> dict[str, float]:
    """What the turns say of each constant of the policy, by its name.

    Saving and restoring: a line through the cases whose threads hold most registers, as those of library kernels do.
    """
    idle = [us for case in recorded() if case.startswith("rounds") for us in switches_us(case)]
    held = [row for row in endless if row.case.endswith(f"{max(REGISTERS)} registers x2")]
    sizes = [row.context_bytes for row in held]
    saving = linear_regression(sizes, [row.measured_us - SLICE_US - median(idle) for row in held])
    restoring = linear_regression(sizes, [SLICE_US - row.measured_turn_us for row in held])
    return {
        "SLICE_US": max(one.to_us - one.from_us for one in turns("long x2")),
        "SWITCH_US": median(idle),
        "STOP_US": saving.intercept,
        "SAVED_BYTES_PER_US": 1.0 / saving.slope,
        "RESTORE_US": restoring.intercept,
        "RESTORED_BYTES_PER_US": 1.0 / restoring.slope,
    }


def constant_table(endless: Sequence[Row]) -> str:
    """The constants of the policy, and what the turns say."""
    cells = [
        (f"`{name}`", f"{getattr(time_slicing, name):,.1f}", f"{value:,.1f}")
        for name, value in constants(endless).items()
    ]
    return table(("constant of the policy", "value", "from the turns"), cells)


def request_table(found: Iterable[Request]) -> str:
    """Requests beside a process that always has work."""
    cells = [
        (row.case.removesuffix(" beside long"), f"{row.measured_mean_us:,.0f}", f"{row.predicted_mean_us:,.0f}",
         f"{row.measured_p95_us:,.0f}", f"{row.predicted_p95_us:,.0f}")
        for row in found
    ]  # fmt: skip
    return table(("requests", "mean µs: measured", "predicted", "95th percentile µs: measured", "predicted"), cells)


def page(endless: Sequence[Row], served: Sequence[Request], pairs: Sequence[PairRow]) -> dict[str, object]:
    """What the page says."""
    makespans = error_cells([one.error_percent for one in pairs])
    first = [error for one in pairs for error, us in zip(one.end_errors_percent, one.ends_us, strict=True)
             if us < one.measured_us]  # fmt: skip
    isolated = error_cells([100.0 * (one.predicted_isolated_us / one.isolated_us - 1.0) for one in pairs])
    held = [row for row in endless if HELD.fullmatch(row.case)]
    longest = max(held, key=lambda row: row.measured_switch_us)
    same_us = fmean(row.measured_us for row in held)
    often = "50 us every 1 ms{} beside long"
    alone, queued = "{} beside long", "{} of 64 KiB and 50 us queued beside long"
    return {
        "pairs": len({one.pair for one in pairs}),
        "makespan_error": makespans[0],
        "makespan_bias": makespans[1],
        "first_error": error_cells(first)[0],
        "first_most": max(map(abs, first)),
        "isolated_bias": isolated[1],
        "beyond": 100.0 * (fsum(one.measured_us for one in pairs) / fsum(one.isolated_us for one in pairs) - 1.0),
        "predicted_beyond": 100.0
        * (fsum(one.predicted_us for one in pairs) / fsum(one.predicted_isolated_us for one in pairs) - 1.0),
        "slice": SLICE_US / 1e3,
        "first_turn": turns("long x2")[0].to_us / 1e3,
        "idle": constants(endless)["SWITCH_US"],
        "stopped": min(row.measured_switch_us for row in held),
        "longest": longest.measured_switch_us,
        "longest_case": longest.case.removesuffix(" x2"),
        "held_error": error_cells([row.error_percent for row in held])[0],
        "same": same_us,
        "same_error": fmean(100.0 * abs(same_us / row.measured_us - 1.0) for row in held),
        "four": median(_latencies_us("rounds of 50 us x4")),
        "prompt": median(_latencies_us("500 us every 5 ms beside long")),
        "often": max(_latencies_us(often.format(""))),
        "high": max(_latencies_us(often.format(" with priority"))),
        "copy": median(_latencies_us(alone.format("copies to the GPU of 64 KiB"))),
        "small_copy": median(_latencies_us(alone.format("copies to the GPU of 4 KiB"))),
        "copy_turns": sum(one.process == 1 for one in turns(queued.format("copies to the GPU"))),
        "set_turns": sum(one.process == 1 for one in turns(queued.format("sets"))),
        "programs": program_table(pairs),
        "requests": request_table(served),
        "constants": constant_table(endless),
        "held": held_table(held),
    }


def _latencies_us(case: str) -> list[float]:
    """Of the requests of the second process."""
    return [end - at for at, end in requests(case)]


def draw(endless: Sequence[Row], served: Sequence[Request], pairs: Sequence[PairRow], path: Path) -> None:
    """When two processes had the GPU, measured and predicted."""
    with styled(Style(PAGE)), new_figure(1.7) as figure:
        axes = figure.subplots()
        for height, found in ((1, turns(DRAWN)), (0, _beside_long(DRAWN)[1])):
            for process, name in enumerate(("process that always has work", "requests of 3 ms")):
                mine = [one for one in found if one.process == process]
                spans = [(one.from_us / 1e3, (one.to_us - one.from_us) / 1e3) for one in mine]
                axes.broken_barh(spans, (height - 0.35, 0.7), color=COLOURS[process], label=name if height else None)
        axes.set(xlim=(0.0, DRAWN_MS), xlabel="Time (ms)")
        axes.set_yticks([1, 0], ["measured", "predicted"])
        legend_below(figure, axes)
        save_figure(figure, path)


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Row, "requests.csv": Request, "whole_programs.csv": PairRow},
    rows,
    page,
    {"turns.png": draw},
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
