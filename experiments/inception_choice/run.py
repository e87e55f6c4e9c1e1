"""What there is to gain in an inception module, by lever: `python experiments/inception_choice/run.py [--out DIR]`.

For nine modules of GoogLeNet at batch 128 and seven at batch 16 on an H200, and the nine on a K40c, the search of
`gpusim select` under limits of workspace memory. Of the plans that it replayed the best of each kind: one stream, a
stream a branch, an SM split, a mix on every SM, other algorithms, other streams and order. It writes README.md,
result.csv and gains.png beside itself (or to DIR). A run that was cut off goes on where it was (*.part.jsonl).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

import report
from report import GROUPS, LEVERS, LIMITS, NO_LIMIT

import gpusim
from gpusim.choose.judge import Candidate
from gpusim.choose.plan import STREAMS
from gpusim.choose.report import plan_trace
from gpusim.choose.search import Selection, own_lanes, select
from gpusim.commands.arguments import study_options
from gpusim.common import fingerprint
from gpusim.common.files import write_text
from gpusim.common.rows import from_csv, to_csv
from gpusim.results.error_band import VALIDATED, error_band
from gpusim.sweep.resume import resumed
from gpusim.sweep.workers import local
from gpusim.trace.operations import Convolution

HERE = Path(__file__).resolve().parent
TRACES = HERE.parent.parent / "traces"
MIB = 2**20
MODULES = {
    128: ("3a", "3b", "4a", "4b", "4c", "4d", "4e", "5a", "5b"),
    16: ("3a", "3b", "4a", "4c", "4e", "5a", "5b"),
}
SPLITS, MIXES = ("green-context", "inter-sm"), ("even", "warped-slicer")


@dataclass(frozen=True)
class Task:
    """A module on a GPU within a limit."""

    gpu: str
    batch: int
    module: str
    limit: str

    @property
    def trace(self) -> Path:
        """The recording."""
        return TRACES / f"inception_{self.module}{'' if self.batch == 128 else f'_b{self.batch}'}.json.gz"


@dataclass(frozen=True)
class Row:
    """What was found for a module on a GPU within a limit; times are of the replays.

    Attributes:
        gpu, batch, module: which.
        limit: of workspaces that may be live at once, MiB; `NO_LIMIT`.
        serial_us: one stream, each convolution by its fastest algorithm within the limit.
        streams_us: a stream a branch, likewise.
        split_us: the same streams and algorithms, the best SM split; 0: none.
        mix_us: the same, the best mix of blocks on every SM.
        hardware_us: the best plan of all in plain streams or an SM split that the GPU makes.
        plan_us: the best plan of all.
        other_us: the best with the trace's own streams and any algorithms.
        bound_us: no plan is faster.
        memory_mib: workspace of the best plan.
        policy: how it shares the GPU.
        changed: convolutions that it runs by another than the fastest algorithm.
        error_serial, error_streams, error_hardware, error_plan: of the model where its like was measured, percent;
            0: never.
        why: it has none for the best plan.
    """

    gpu: str
    batch: int
    module: str
    limit: str
    serial_us: float
    streams_us: float
    split_us: float
    mix_us: float
    hardware_us: float
    plan_us: float
    other_us: float
    bound_us: float
    memory_mib: float
    policy: str
    changed: int
    error_serial: float
    error_streams: float
    error_hardware: float
    error_plan: float
    why: str

    def us(self, way: str) -> float:
        """Time by one of `report.WAYS` or serial."""
        return float(getattr(self, f"{way}_us"))

    def gain(self, way: str, over: str = "serial") -> float:
        """How many times as fast."""
        return self.us(over) / self.us(way) if self.us(way) > 0.0 else 0.0

    def steps(self) -> dict[str, float]:
        """What each lever adds to those before it: how many times as fast."""
        kinds = (self.serial_us, self.streams_us, self.split_us, self.mix_us, self.other_us, self.plan_us)
        best, gains = kinds[0], []
        for us in kinds[1:]:
            now = min(best, us) if us > 0.0 else best
            gains.append(best / now)
            best = now
        return dict(zip(LEVERS, gains, strict=True))


# ---- the search ------------------------------------------------------------------------------------------------------


def tasks() -> list[Task]:
    """All of them; on a K40c, for which nothing was recorded, without limits only."""
    return [
        Task(gpu, batch, module, limit)
        for gpu, batch in GROUPS
        for module in MODULES[batch]
        for limit in (LIMITS if gpu == "h200" else (NO_LIMIT,))
    ]


def needed_bytes(task: Task) -> int:
    """What the workspaces of all convolutions take at most."""
    convolutions = [op for op in gpusim.load_trace(task.trace).operations() if isinstance(op, Convolution)]
    return sum(max(one.workspace_bytes or 0 for one in (op.selected, *op.alternatives)) for op in convolutions)


def searched(task: Task) -> Task:
    """The task whose answer is the same: a limit that no plan exceeds is none."""
    if task.limit != NO_LIMIT and needed_bytes(task) <= int(task.limit) * MIB:
        return Task(task.gpu, task.batch, task.module, NO_LIMIT)
    return task


def answer(task: Task) -> list[Any]:
    """A row as plain data."""
    trace, gpu = gpusim.load_trace(task.trace), gpusim.load_gpu(task.gpu)
    limit = None if task.limit == NO_LIMIT else int(task.limit) * MIB
    return list(astuple(row_of(task, select(trace, gpu, memory_bytes=limit))))


def row_of(task: Task, found: Selection) -> Row:
    """The best of each kind of all plans that a search replayed."""
    named = dict(found.baselines)
    serial, streams = named["serial, fastest"], named["streams, fastest"]
    seen = [one for one in found.seen if found.limit_bytes is None or one.memory_bytes <= found.limit_bytes]
    own = own_lanes(found.work.trace, found.work)
    like = [one for one in seen if (one.plan.lanes, one.plan.algorithms) == (own, streams.plan.algorithms)]
    hardware = _least(seen, lambda one: one.plan.policy == STREAMS or _is(one, SPLITS[:1] if gpu_splits(found) else ()))
    assert hardware is not None
    fast = streams.plan.algorithms
    errors = [how_wrong(found, one) for one in (serial, streams, hardware, found.best)]
    return Row(
        task.gpu,
        task.batch,
        task.module,
        task.limit,
        serial.makespan_us,
        streams.makespan_us,
        _us(_least(like, lambda one: _is(one, SPLITS))),
        _us(_least(like, lambda one: _is(one, MIXES))),
        hardware.makespan_us,
        found.best.makespan_us,
        _us(_least(seen, lambda one: one.plan.lanes == own)),
        found.bound.us,
        found.best.memory_bytes / MIB,
        "one stream" if len(found.best.plan.lanes) == 1 else found.best.plan.policy,
        sum(name != fast[id] for id, name in found.best.plan.algorithms.items()),
        *(error for error, _ in errors),
        errors[-1][1],
    )


def gpu_splits(found: Selection) -> bool:
    """Whether the GPU can be told to split its SMs."""
    return float(found.gpu.compute_capability) >= 6.0


def how_wrong(found: Selection, one: Candidate) -> tuple[float, str]:
    """The error of the model on the like of a plan (percent), or 0 and why there is none."""
    trace = plan_trace(found, one)
    band, reason = error_band(found.session.replay(trace, one.plan.policy), trace, found.gpu)
    return (band["mape_percent"], "") if band else (0.0, reason)


def _is(one: Candidate, policies: Sequence[str]) -> bool:
    return len(one.plan.lanes) > 1 and one.plan.policy.partition(":")[0] in policies


def _least(seen: Iterable[Candidate], wanted: Callable[[Candidate], bool]) -> Candidate | None:
    return min((one for one in seen if wanted(one)), key=lambda one: one.makespan_us, default=None)


def _us(one: Candidate | None) -> float:
    return 0.0 if one is None else one.makespan_us


def identity(task: Task) -> str:
    """A hash of everything that a row comes from."""
    ours = fingerprint.files([Path(__file__), task.trace, VALIDATED])
    gpus = [gpusim.load_gpu(name) for name in dict.fromkeys((task.gpu, "h200"))]
    model = fingerprint.sources("gpusim.choose.report", "gpusim.policies")
    return fingerprint.data([model, *gpus, ours, str(task)])


def all_rows(out: Path, jobs: int) -> list[Row]:
    """A row a task, those that an interrupted run left in its journal taken over."""
    wanted = {identity(task): task for task in map(searched, tasks())}
    found = resumed(out / "result.part.jsonl", wanted, answer, *local(jobs), doing="searching")
    rows = {task: Row(*found[key]) for key, task in wanted.items()}
    each = ((task, rows[searched(task)]) for task in tasks())
    return [Row(*(getattr(task, f.name, getattr(row, f.name)) for f in fields(Row))) for task, row in each]


def main(arguments: Sequence[str] | None = None) -> int:
    """Searches what is missing and writes everything."""
    options = study_options(__doc__, HERE, arguments)
    rows = all_rows(options.out, options.jobs)
    write_text(options.out / "result.csv", to_csv(Row, rows))
    write_page(options.out)
    (options.out / "result.part.jsonl").unlink()
    return 0


def write_page(out: Path) -> None:
    """README.md and the picture from result.csv."""
    rows = from_csv(Row, out / "result.csv")
    write_text(out / "README.md", report.readme(rows))
    report.draw(rows, out / "gains.png")


if __name__ == "__main__":
    raise SystemExit(main())
