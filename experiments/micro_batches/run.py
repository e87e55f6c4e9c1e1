"""What micro-batches gain in an inception module on an H200: `python experiments/micro_batches/run.py [--out DIR]`.

Recorded (record.py, data/): every algorithm of each convolution at batch 128 and at micro-batches of 8 to 64, and whole
batches done in micro-batches. Here the recorded parts are added up and compared with those, the best divisions of each
convolution within a workspace limit are worked out, and the plans of plans.txt, which `gpusim select` made with and
without them and an H200 ran (measured.csv.gz), are predicted by the model as it is. It writes README.md, the tables and
makespans.png beside itself (or to DIR).

    python experiments/micro_batches/run.py --plans     # search again: plans.txt and calls.txt
    python experiments/micro_batches/run.py --measure   # measured.csv.gz: needs an NVIDIA GPU, nvcc and cuDNN
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import fsum
from pathlib import Path
from statistics import fmean, median

import gpusim
from experiments.markdown import table
from experiments.plans import call_in, makespans_us, measure
from experiments.rows import lines
from experiments.study import TRACES, Run, Study
from gpusim.choose.micro_batches import BatchPart, Divided, Division, front, in_a_row
from gpusim.choose.plan import Plan, PlannedWork, memory_bytes, planned_trace
from gpusim.choose.search import select, work_of
from gpusim.lab.validate import released_together_us
from gpusim.results.style import COLOURS, GREY, MARKERS, legend_below, new_figure, save_figure
from gpusim.trace.format import Trace
from gpusim.trace.operations import Convolution

HERE = Path(__file__).resolve().parent
DATA = HERE / "data"
MEASURED, CALLS, PLANS = HERE / "measured.csv.gz", HERE / "calls.txt", HERE / "plans.txt"
RUNS = 3  # of the program that measures
MODULES = ("inception_3a", "inception_4a")
MIB = 2**20
LIMITS_MIB = (0, 8, 64, 512)
BATCH = 128
SERIAL, WR, STREAMS, DIVIDED = "serial-whole", "serial-divided", "streams-whole", "streams-divided"
EITHER, FP32 = "FMA or TF32", "FMA"
MATHS = {EITHER: ("/FMA", "/TF32"), FP32: ("/FMA",)}
WAYS = {SERIAL: "one stream", WR: "one stream, divided", STREAMS: "streams", DIVIDED: "streams, divided"}
GPU = gpusim.load_gpu("h200")


@dataclass(frozen=True)
class Chain:
    """A batch in micro-batches, timed on the GPU beside the sum of its recorded parts.

    Attributes:
        name: layer/direction/parts.
        parts: how many.
        measured_us: after a read of 512 MiB.
        again_us: after itself.
        sum_us: of the parts, each back to back with itself.
        cold_us: of the parts, each with what it takes longer where L2 holds nothing of its tensors.
    """

    name: str
    parts: int
    measured_us: float
    again_us: float
    sum_us: float
    cold_us: float


@dataclass(frozen=True)
class Best:
    """The fastest way to do a convolution within a limit of workspace, by recorded times.

    Attributes:
        layer: the convolution.
        direction: fwd or bwd_filter.
        maths: what algorithms may compute in.
        limit_mib: of the workspace.
        whole: algorithm for the whole batch.
        whole_us: its time.
        division: µ-cuDNN's; the same where dividing does not pay.
        division_us: its time.
        measured_us: of the division, timed as a whole; 0: not timed.
    """

    layer: str
    direction: str
    maths: str
    limit_mib: int
    whole: str
    whole_us: float
    division: str
    division_us: float
    measured_us: float

    @property
    def gain(self) -> float:
        """Whole batch over division."""
        return self.whole_us / self.division_us


@dataclass(frozen=True)
class Planned:
    """A module's plan, predicted and measured as the recorder measures: released by a flag, from event to event.

    Attributes:
        module: the module.
        limit_mib: of workspaces that may be live at once.
        way: one of `WAYS`.
        memory_bytes: of its workspaces that may be live at once.
        predicted_us: by the model as it is.
        measured_us: on an H200.
        algorithms: of each convolution.
    """

    module: str
    limit_mib: int
    way: str
    memory_bytes: int
    predicted_us: float
    measured_us: float
    algorithms: str


# ---- recorded times --------------------------------------------------------------------------------------------------


def recorded() -> dict[str, dict[str, str]]:
    """The timed calls that cuDNN supports, by op."""
    return {row["op"]: row for row in lines(DATA / "convolutions.csv.gz") if row["supported"] == "True"}


def back_to_back_us(call: Mapping[str, str]) -> float:
    """Time of a call among its like."""
    return 500.0 * (float(call["ms_stream_run1"]) + float(call["ms_stream_run2"]))


def after_others_us(call: Mapping[str, str]) -> float:
    """Time of a call among others, which left nothing of its tensors in L2."""
    return back_to_back_us(call) + max(0.0, 1000.0 * (float(call["ms_cold"]) - float(call["ms_warm"])))


def chains(calls: Mapping[str, Mapping[str, str]]) -> list[Chain]:
    """Every batch that was timed in micro-batches."""
    timed = {row["name"]: row for row in lines(DATA / "chains.csv")}
    found = []
    for line in (DATA / "chains.txt").read_text(encoding="utf-8").splitlines():
        name, *ops = line.split()
        found.append(
            Chain(
                name,
                len(ops),
                1000.0 * float(timed[name]["ms_cold"]),
                1000.0 * float(timed[name]["ms_warm"]),
                fsum(back_to_back_us(calls[op]) for op in ops),
                fsum(after_others_us(calls[op]) for op in ops),
            )
        )
    return found


def best_divisions(calls: Mapping[str, Mapping[str, str]], timed: Sequence[Chain]) -> list[Best]:
    """µ-cuDNN's workspace reuse: each convolution by itself, within each limit."""
    measured = {chain.name: chain.measured_us for chain in timed}
    parts: dict[tuple[str, str], list[BatchPart]] = {}
    for call in calls.values():
        whole = int(call["batch"]) == BATCH
        us, name = back_to_back_us(call) if whole else after_others_us(call), f"{call['algorithm']}/{call['math']}"
        part = BatchPart(int(call["batch"]), name, us, int(call["workspace_bytes"]))
        parts.setdefault((call["layer"], call["direction"]), []).append(part)
    found = []
    for ((layer, direction), known), maths, limit in product(parts.items(), MATHS, LIMITS_MIB):
        able = [part for part in known if part.workspace_bytes <= limit * MIB and part.algorithm.endswith(MATHS[maths])]
        whole, division = front(BATCH, [part for part in able if part.batch == BATCH])[-1], front(BATCH, able)[-1]
        chain_us = measured.get(f"{layer}/{direction}/{division.name}", 0.0)
        times = _named(whole), whole.us, _named(division), division.us, chain_us
        found.append(Best(layer, direction, maths, limit, *times))
    return found


def _named(division: Division) -> str:
    return division.name if len(division.parts) > 1 else division.parts[0].algorithm


# ---- plans -----------------------------------------------------------------------------------------------------------


def trace_of(module: str) -> Trace:
    """A module's trace."""
    return gpusim.load_trace(TRACES / f"micro_batches_{module.removeprefix('inception_')}.json.gz")


def searched(module: str, limit_mib: int, session: gpusim.Session) -> dict[str, tuple[PlannedWork, Plan]]:
    """The four plans of a module within a limit, in plain streams."""
    limit = limit_mib * MIB
    divided = select(trace_of(module), session, memory_bytes=limit, sharing="streams")
    whole = divided.undivided
    assert whole is not None
    return {
        SERIAL: (whole.work, dict(whole.baselines)["serial, fastest"].plan),
        WR: (divided.work, dict(divided.baselines)["serial, fastest"].plan),
        STREAMS: (whole.work, whole.found.plan),
        DIVIDED: (divided.work, divided.found.plan),
    }


def write_plans() -> None:
    """Search, and write the plans as the recorder's `plans` takes them: a step for each part, with its own tensors."""
    calls: dict[str, None] = {}
    found = []
    for module in MODULES:
        session = gpusim.Session(GPU, GPU)
        for limit in LIMITS_MIB:
            for way, (work, plan) in searched(module, limit, session).items():
                graph = work.planned(plan).reduced()
                stream_of = {id: n for n, lane in enumerate(plan.lanes) for id in lane}
                words, last, steps = [module, f"{limit}-{way}", "all"], dict[str, int](), 0
                for id in graph.ids:
                    after = [str(last[other]) for other in graph.before[id] if stream_of[other] != stream_of[id]]
                    operation = work.operations[id]
                    assert isinstance(operation, Convolution)
                    for batch, algorithm in _parts(work, id, plan.algorithms[id]):
                        call = call_in(f"{module}_b{batch}", operation, algorithm, batch)
                        calls[call.line] = None
                        words += [str(stream_of[id]), call.op, ",".join(after) or "-"]
                        after, last[id], steps = [], steps, steps + 1
                found.append(" ".join(words))
    CALLS.write_text("".join(f"{line}\n" for line in calls), encoding="utf-8")
    PLANS.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")


def _parts(work: PlannedWork, id: str, algorithm: str) -> list[tuple[int, str]]:
    division = work.divisions.get(id, {}).get(algorithm)
    return [(BATCH, algorithm)] if division is None else [(part.batch, part.algorithm) for part in division.parts]


def read_plans() -> Iterator[tuple[str, str, PlannedWork, Plan]]:
    """The plans of plans.txt: module, name, what can be chosen, and the plan."""
    for line in PLANS.read_text(encoding="utf-8").splitlines():
        module, name, _, *words = line.split()
        trace = trace_of(module)
        convolutions = {op.id: op for op in trace.operations() if isinstance(op, Convolution)}
        lanes: dict[int, dict[str, None]] = {}
        parts: dict[str, list[BatchPart]] = {}
        waits, doers = list[tuple[str, str]](), list[str]()
        for stream, op, after in zip(words[::3], words[1::3], words[2::3], strict=True):
            sized, id, _, algorithm = op.split("/", 3)
            lanes.setdefault(int(stream), {})[id] = None
            parts.setdefault(id, []).append(_part(convolutions[id], int(sized.split("_b")[1]), algorithm))
            waits += [(id, doers[int(other)]) for other in after.split(",") if other != "-"]
            doers.append(id)
        divisions = {id: Division(tuple(found)) for id, found in parts.items()}
        divided = {
            id: [Divided(in_a_row(convolutions[id], one), one)] for id, one in divisions.items() if len(one.parts) > 1
        }
        algorithms = {id: _named(one) for id, one in divisions.items()}
        ordered = tuple(tuple(lanes[n]) for n in sorted(lanes))
        yield module, name, work_of(trace, GPU, None, divided), Plan(ordered, algorithms, waits=tuple(waits))


def _part(convolution: Convolution, batch: int, algorithm: str) -> BatchPart:
    known = {fewer.batch: fewer.algorithms for fewer in convolution.micro_batches or ()}
    known[convolution.shape.batch] = (convolution.selected, *convolution.alternatives)
    (size,) = [one.workspace_bytes or 0 for one in known[batch] if one.algorithm == algorithm]
    return BatchPart(batch, algorithm, 0.0, size)


def planned() -> list[Planned]:
    """Every plan of plans.txt, predicted and measured."""
    measured = makespans_us(MEASURED)
    session = gpusim.Session(GPU, GPU)
    found = []
    for module, name, work, plan in read_plans():
        predicted_us = released_together_us(planned_trace(work, plan), session)
        limit, way = name.split("-", 1)
        algorithms = " ".join(f"{id}={algorithm}" for id, algorithm in plan.algorithms.items())
        size, us = memory_bytes(work, plan), fmean(measured[module, name])
        found.append(Planned(module, int(limit), way, size, predicted_us, us, algorithms))
    return found


# ---- the page --------------------------------------------------------------------------------------------------------


def page(plans: Sequence[Planned], best: Sequence[Best], timed: Sequence[Chain]) -> dict[str, object]:
    """What the page says."""
    by = {(one.module, one.limit_mib, one.way): one.measured_us for one in plans}
    most = [by[module, 64, DIVIDED] / by[module, LIMITS_MIB[-1], STREAMS] for module in MODULES]
    return {
        "plans": plan_table(plans),
        "off": _errors(plans),
        "shares": " and ".join(f"{share:.2f}" for share in most),
        "most_mib": LIMITS_MIB[-1],
        "best": best_table(best, 64),
        "gains": gains_table(best),
        "chains": chain_table(timed),
    }


def chain_table(found: Sequence[Chain]) -> str:
    """Errors of the two sums, by the number of parts and direction."""
    groups: dict[tuple[str, str], list[Chain]] = {}
    for chain in found:
        direction = "gradient of the filter" if "/bwd_filter/" in chain.name else "forward"
        kind = "mixed: 64, 32, 16, 16" if chain.name.endswith("/mixed") else f"{chain.parts} x {BATCH // chain.parts}"
        groups.setdefault((direction, kind), []).append(chain)
    rows = []
    for (direction, kind), group in groups.items():
        errors = [
            [100.0 * (us / chain.measured_us - 1.0) for chain, us in zip(group, sums, strict=True)]
            for sums in ([one.sum_us for one in group], [one.cold_us for one in group])
        ]
        rows.append([direction, kind, str(len(group)), *(f"{_mean(one):+.1f} %" for one in errors), _size(errors[1])])
    return table(["", "parts", "timed", "sum, warm", "sum, cold", "of sizes"], rows)


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values)


def _size(errors: Sequence[float]) -> str:
    return f"{_mean([abs(error) for error in errors]):.1f} %"


def best_table(found: Sequence[Best], limit_mib: int) -> str:
    """Each forward convolution within a limit."""
    rows = [
        [
            one.layer,
            one.whole,
            f"{one.whole_us:.1f}",
            one.division,
            f"{one.division_us:.1f}",
            f"{one.measured_us:.1f}" if one.measured_us else "",
            f"{one.gain:.2f}x",
        ]
        for one in found
        if (one.limit_mib, one.direction, one.maths) == (limit_mib, "fwd", EITHER)
    ]
    return table(["", "whole batch", "µs", "divided", "µs", "measured", "gain"], rows)


def gains_table(found: Sequence[Best]) -> str:
    """The gains under every limit."""
    rows = []
    for maths, limit in product(MATHS, LIMITS_MIB):
        mine = [one for one in found if (one.direction, one.maths, one.limit_mib) == ("fwd", maths, limit)]
        gains, most = [one.gain for one in mine], max(mine, key=lambda one: one.gain)
        what = f"{most.layer}, {most.division}" if most.gain > 1.0 else ""
        rows.append([maths, f"{limit} MiB", *(f"{gain:.2f}x" for gain in (median(gains), most.gain)), what])
    return table(["", "limit", "median gain", "largest", "of"], rows)


def plan_table(found: Sequence[Planned]) -> str:
    """Measured and predicted makespans."""
    by = {(one.module, one.limit_mib, one.way): one for one in found}
    rows = []
    for module in MODULES:
        for limit in LIMITS_MIB:
            ways = [by[module, limit, way] for way in WAYS]
            whole, divided = by[module, limit, STREAMS], by[module, limit, DIVIDED]
            cells = [f"{one.measured_us:,.0f} ({one.predicted_us:,.0f})" for one in ways]
            gain = f"{whole.measured_us / divided.measured_us:.2f}x ({whole.predicted_us / divided.predicted_us:.2f}x)"
            rows.append([module.removeprefix("inception_"), f"{limit} MiB", *cells, gain])
    return table(["", "limit", *WAYS.values(), "dividing gains, in streams"], rows)


def _errors(found: Sequence[Planned]) -> str:
    """How far off predictions are, by what is predicted."""
    errors: dict[str, list[float]] = {}
    for one in found:
        label = "parts" if ":" in one.algorithms else "whole batches"
        streams = "one stream" if one.way in (SERIAL, WR) else "several"
        error = 100.0 * (one.predicted_us / one.measured_us - 1.0)
        errors.setdefault(f"{label} in {streams}", []).append(error)
    return "; ".join(f"{label} {_size(some)} (bias {_mean(some):+.1f} %)" for label, some in errors.items())


def draw(found: Sequence[Planned], _best: Sequence[Best], _timed: Sequence[Chain], path: Path) -> None:
    """Measured makespans, and predicted ones, against the limit."""
    by = {(one.module, one.limit_mib, one.way): one for one in found}
    with new_figure(2.7) as figure:
        panels = figure.subplots(1, len(MODULES))
        for module, axes in zip(MODULES, panels, strict=True):
            for way, colour, marker in zip(WAYS, COLOURS, MARKERS, strict=False):
                mine = [by[module, limit, way] for limit in LIMITS_MIB]
                axes.plot([one.measured_us for one in mine], f"{marker}-", color=colour, label=WAYS[way])
                axes.plot([one.predicted_us for one in mine], "--", color=colour, alpha=0.6)
            axes.plot([], [], "--", color=GREY, label="predicted")
            axes.set_xticks(range(len(LIMITS_MIB)), [str(limit) for limit in LIMITS_MIB])
            axes.set_ylim(bottom=0.0)
            axes.set_xlabel("Workspace limit (MiB)")
            axes.set_title(module)
        panels[0].set_ylabel("Makespan (µs)")
        legend_below(figure, panels[0])
        save_figure(figure, path)


def run_plans() -> None:
    """Run the plans on this machine's GPU."""
    measure(MEASURED, CALLS, PLANS, RUNS)


def rows(run: Run) -> dict[str, list[Planned] | list[Best] | list[Chain]]:
    """Plans, divisions and sums."""
    calls = recorded()
    timed = chains(calls)
    return {"result.csv": planned(), "divisions.csv": best_divisions(calls, timed), "sums.csv": timed}


STUDY = Study(
    __file__,
    __doc__,
    {"result.csv": Planned, "divisions.csv": Best, "sums.csv": Chain},
    rows,
    page,
    {"makespans.png": draw},
    {
        "plans": (write_plans, "search again, and write plans.txt and calls.txt"),
        "measure": (run_plans, "run the plans on this machine's GPU: measured.csv.gz"),
    },
)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
