"""Plans to try on the GPU, as `gpusim record`'s program takes them: `calls.txt` and `plans.txt`.

A line of `plans.txt` is a module, the name of a plan, SMs of its streams (or `all`), and for each operation in the
order of launch its stream, its call and the steps on other streams that it waits for, as
gpusim/lab/record/convolutions/outcomes.cuh says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import gpusim
from experiments.plans import call_in
from experiments.study import TRACES
from gpusim.choose.judge import Candidate
from gpusim.choose.plan import Plan, PlannedWork
from gpusim.choose.search import Selection, select
from gpusim.lab.record.calls import Call
from gpusim.trace.operations import Convolution

HERE = Path(__file__).resolve().parent
MODULES = tuple(
    f"inception_{module}{batch}" for module in ("3a", "3b", "4a", "4e", "5a", "5b") for batch in ("", "_b16")
)
BEST = 8  # of the plans that the search replayed, the first by predicted makespan
OTHERS = 6  # of the rest, evenly through those no worse than WORST times the best
WORST = 1.5


@dataclass(frozen=True)
class Tried:
    """A plan that runs on the GPU.

    Attributes:
        module: name of the trace.
        name: of the plan.
        plan: what.
    """

    module: str
    name: str
    plan: Plan


def selection_of(module: str) -> Selection:
    """The search that a module's plans come from: plain streams and the SM splits that the GPU makes."""
    trace = gpusim.load_trace(TRACES / f"{module}.json.gz")
    return select(trace, gpusim.load_gpu("h200"), sharing="hardware")


def candidates(selection: Selection) -> dict[str, Candidate]:
    """Named baselines, the best plans of the search, and some of the others."""
    found = {name.replace(", ", "-").replace(" ", "-"): one for name, one in selection.baselines if on_gpu(one.plan)}
    known = {one.plan.key for one in found.values()}
    seen = [one for one in selection.seen if on_gpu(one.plan) and one.plan.key not in known]
    seen = [one for one in seen if one.makespan_us <= WORST * selection.best.makespan_us]
    rest = seen[BEST:]
    chosen = [*seen[:BEST], *(rest[len(rest) * n // OTHERS] for n in range(OTHERS if len(rest) >= OTHERS else 0))]
    return found | {f"found-{n}": one for n, one in enumerate(chosen, 1)}


def on_gpu(plan: Plan) -> bool:
    """Whether a GPU can be told to run a plan: plain streams, or SMs of its own for each."""
    return plan.policy == "leftover" or plan.policy.startswith("green-context")


# ---- as the program reads them ---------------------------------------------------------------------------------------


def call_of(module: str, work: PlannedWork, id: str, plan: Plan) -> Call:
    """The call of a planned convolution."""
    operation = work.operations[id]
    assert isinstance(operation, Convolution)
    return call_in(module, operation, plan.algorithms[id])


def plan_line(module: str, name: str, work: PlannedWork, plan: Plan) -> str:
    """A plan as a condition of the program."""
    graph = work.planned(plan).reduced()
    stream_of = {id: n for n, lane in enumerate(plan.lanes) for id in lane}
    step_of = {id: n for n, id in enumerate(graph.ids)}
    words = [module, name, "+".join(map(str, plan.sms)) or "all"]
    for id in graph.ids:
        after = [str(step_of[o]) for o in graph.before[id] if stream_of[o] != stream_of[id]]
        words += [str(stream_of[id]), call_of(module, work, id, plan).op, ",".join(after) or "-"]
    return " ".join(words)


def write(folder: Path, modules: Sequence[str] = MODULES) -> None:
    """Search each module and write the plans to try."""
    calls: dict[str, None] = {}
    lines = []
    for module in modules:
        selection = selection_of(module)
        work = selection.work
        for name, one in candidates(selection).items():
            lines.append(plan_line(module, name, work, one.plan))
            for id in one.plan.algorithms:
                calls[call_of(module, work, id, one.plan).line] = None
        print(f"{module}: {len(lines)} plans so far", flush=True)
    (folder / "calls.txt").write_text("".join(f"{line}\n" for line in calls))
    (folder / "plans.txt").write_text("".join(f"{line}\n" for line in lines))


def read(path: Path) -> Iterator[Tried]:
    """Plans of a file."""
    for line in path.read_text().splitlines():
        module, name, sms, *words = line.split()
        steps = [words[i : i + 3] for i in range(0, len(words), 3)]
        ids = [op.split("/")[1] for _, op, _ in steps]
        lanes: Mapping[int, list[str]] = {n: [] for n in range(1 + max(int(stream) for stream, _, _ in steps))}
        for (stream, _, _), id in zip(steps, ids, strict=True):
            lanes[int(stream)].append(id)
        algorithms = {id: "/".join(op.split("/")[3:]) for (_, op, _), id in zip(steps, ids, strict=True)}
        counts = () if sms == "all" else tuple(map(int, sms.split("+")))
        policy = f"green-context:sms={sms}" if counts else "leftover"
        waits = tuple(
            (id, ids[int(other)])
            for (_, _, after), id in zip(steps, ids, strict=True)
            for other in ("" if after == "-" else after).split(",")
            if other
        )
        yield Tried(module, name, Plan(tuple(map(tuple, lanes.values())), algorithms, policy, counts, waits))


if __name__ == "__main__":
    write(HERE)
