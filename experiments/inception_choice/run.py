"""What there is to gain in an inception module, by lever: `python experiments/inception_choice/run.py [--out DIR]`.

For nine modules of GoogLeNet at batch 128 and seven at batch 16 on an H200, and the nine on a K40c, the search of
`gpusim select` under limits of workspace memory. Of the plans that it replayed the best of each kind: one stream, a
stream a branch, an SM split, a mix on every SM, other algorithms, other streams and order. It writes README.md,
result.csv and gains.png beside itself (or to DIR). A run that was cut off goes on where it was (*.part.jsonl).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import gpusim
from experiments.inception_choice import report
from experiments.inception_choice.report import GROUPS, LIMITS, NO_LIMIT, Row
from experiments.study import TRACES, Run, Study
from gpusim.choose.judge import Candidate
from gpusim.choose.plan import STREAMS
from gpusim.choose.report import plan_trace
from gpusim.choose.search import Selection, own_lanes, select
from gpusim.results.error_band import VALIDATED, error_band
from gpusim.trace.operations import Convolution

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
    own = sorted(own_lanes(found.work))
    like = [one for one in seen if _runs(one, own) and one.plan.algorithms == streams.plan.algorithms]
    hardware = _least(seen, lambda one: one.plan.policy == STREAMS or _is(one, SPLITS[:1] if gpu_splits(found) else ()))
    assert hardware is not None
    fast = streams.plan.algorithms
    errors = [how_wrong(found, one) for one in (serial, streams, hardware, found.found)]
    return Row(
        task.gpu,
        task.batch,
        task.module,
        task.limit,
        serial.expected_us,
        streams.expected_us,
        _us(_least(like, lambda one: _is(one, SPLITS))),
        _us(_least(like, lambda one: _is(one, MIXES))),
        hardware.expected_us,
        found.found.expected_us,
        _us(_least(seen, lambda one: _runs(one, own))),
        found.bound.us,
        found.found.memory_bytes / MIB,
        "one stream" if len(found.found.plan.lanes) == 1 else found.found.plan.policy,
        sum(name != fast[id] for id, name in found.found.plan.algorithms.items()),
        *(error for error, _ in errors),
        errors[-1][1],
    )


def gpu_splits(found: Selection) -> bool:
    """Whether the GPU can be told to split its SMs."""
    return float(found.gpu.compute_capability) >= 6.0


def how_wrong(found: Selection, one: Candidate) -> tuple[float, str]:
    """The error of the model on the like of a plan (percent), or 0 and why there is none."""
    trace = plan_trace(found, one)
    error = error_band(found.session.replay(trace, one.plan.policy), trace, found.gpu)
    return error.percent or 0.0, error.reason


def _runs(one: Candidate, lanes: Sequence[Sequence[str]]) -> bool:
    return sorted(one.plan.lanes) == lanes


def _is(one: Candidate, policies: Sequence[str]) -> bool:
    return len(one.plan.lanes) > 1 and one.plan.policy.partition(":")[0] in policies


def _least(seen: Iterable[Candidate], wanted: Callable[[Candidate], bool]) -> Candidate | None:
    return min((one for one in seen if wanted(one)), key=lambda one: one.expected_us, default=None)


def _us(one: Candidate | None) -> float:
    return 0.0 if one is None else one.expected_us


def rows(run: Run) -> dict[str, list[Row]]:
    """A row for each task."""
    wanted = dict.fromkeys(map(searched, tasks()))
    files = [Path(__file__), VALIDATED, *sorted({task.trace for task in wanted})]
    found = run.answers("result", wanted, answer, files, ("h200", "k40c"))
    each = ((task, Row(*found[searched(task)])) for task in tasks())
    return {"result.csv": [replace(row, limit=task.limit) for task, row in each]}


STUDY = Study(__file__, __doc__, {"result.csv": Row}, rows, report.page, {"gains.png": report.draw}, parallel=True)

if __name__ == "__main__":
    raise SystemExit(STUDY.main())
