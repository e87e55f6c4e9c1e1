"""Records PyTorch callables and whole models: `gpusim record OPS.py --out DIR [--outcomes]`.

Ops become a folder as `gpusim.lab.dataset` reads it. `convolutions.csv` has the times of each call, `kernels.csv.gz`
its kernels with Nsight Compute's counters, `operators.json.gz` a PyTorch profile of one call with the sizes of inputs.
With ``--outcomes`` there are also `sm_curve.csv`, `pairs.csv` and `modules.csv`. Models
become `DIR/models` as `gpusim.lab.whole_models` reads it. `gpusim validate` scores both. Everything that is timed is
queued behind a flag before the clock starts, so that no time of the host is in it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import make_folder, write_table, write_text
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import records
from gpusim.common.tables import counted
from gpusim.lab.record.ops_file import OpCall, Ops, guarded, made, read_ops
from gpusim.lab.record.ops_gpu import PAIR_COLUMNS, pair_row, parts_of, together_ms, write_profile
from gpusim.lab.record.ops_models import Models
from gpusim.lab.record.outcomes import thinned
from gpusim.lab.record.recording import KERNEL_COLUMNS, of_kernels
from gpusim.lab.record.torch_gpu import Gpu, Queue, Side

BACK_TO_BACK = 10  # calls behind ms_stream
CURVE_CALLS = 3  # calls behind a row of sm_curve.csv
MOST_IN_QUEUE = 12  # calls of an op in a pair
MOST_KERNELS = 80  # of one call: `MOST_IN_QUEUE` of them are less than `gpusim.lab.record.ops_gpu.MOST_LAUNCHES`
LEAST_QUEUE_MS = 0.06  # that a queue of a pair lasts, where so many calls do
CURVE_PARTS = (8, 16, 24, 32, 48, 64, 72, 80, 96, 104, 112, 120, 128)  # of 132 SMs
SPLIT_PARTS = (16, 32, 48, 64, 72, 80, 96, 112)

CALL_COLUMNS = ("op", "ms_single_run1", "ms_stream_run1", "ms_single_run2", "ms_stream_run2", "ms_warm", "ms_cold",
                "supported", "internal_streams", "kernel_ms", "gpu_bound")  # fmt: skip
CURVE_COLUMNS = ("op", "sms", "ms")
MODULE_COLUMNS = ("module", "selection", "branch", "ops", "mode", "ms_end", "ms_makespan")


def record_ops(path: Path, folder: Path, outcomes: bool, open_gpu: Callable[[], Gpu]) -> Iterator[str]:
    """Record the content of a file; yield a line of progress for each step.

    ``outcomes``: also measure what `gpusim validate` scores. ``open_gpu`` gives the GPU.
    """
    ops = read_ops(path)
    gpu = open_gpu()
    make_folder(folder)
    about = {"what": path.name, "device": {"name": gpu.name, "sms": gpu.sm_count}}
    write_text(folder / "recording.json", json.dumps(about, indent=2) + "\n")
    calls, models = _Calls(ops, gpu, folder), Models(ops, gpu, folder / "models")
    if ops.ops:
        yield from calls.measure(outcomes)
    if ops.models:
        yield from models.measure(outcomes)
    # Last: for some time after Nsight Compute, the gap between the kernels of a graph is 0.36 us shorter ([V] H100).
    if ops.ops:
        yield from calls.count()
    if ops.models:
        yield from models.count()


# ---- ops -------------------------------------------------------------------------------------------------------------


class _Calls:
    """Times, counters and outcomes of ops."""

    def __init__(self, ops: Ops, gpu: Gpu, folder: Path) -> None:
        self.ops, self.gpu, self.folder = ops, gpu, folder
        self.queue = gpu.queue()
        self.made: dict[str, OpCall] = {}
        self.times: dict[str, dict[str, str]] = {}

    def measure(self, outcomes: bool) -> Iterator[str]:
        """Time all ops; yield a line of progress for each table of outcomes."""
        for name in tracked(self.ops.ops, len(self.ops.ops), "checking"):
            self._check(name)
        self.times = {name: self._times(name) for name in tracked(self.made, len(self.made), "timing")}
        write_profile(self.gpu, self._all, self.queue, 1, self.folder / "operators.json.gz", shapes=True)
        if outcomes:
            yield from self._outcomes()

    def count(self) -> Iterator[str]:
        """Count all ops under Nsight Compute; yield what was recorded of them."""
        profiled = self.gpu.counters(self.ops, list(self.made))
        rows = {name: [row for row in profiled if row["op"] == name] for name in self.made}
        if profiled:
            write_table(self.folder / "kernels.csv.gz", records(KERNEL_COLUMNS, profiled))
        calls = [{"op": name, **times, **of_kernels(times, rows[name])} for name, times in self.times.items()]
        write_text(self.folder / "convolutions.csv", records(CALL_COLUMNS, calls))
        yield f"{self.folder}: {counted(len(calls), 'op')} timed, {counted(len(profiled), 'kernel')} profiled"
        if not profiled:
            yield "ncu not found on PATH: no counters, so that gpusim validate cannot score the ops; models it can"

    def _all(self) -> None:
        for call in self.made.values():
            call()

    def _check(self, name: str) -> None:
        call, place = made(self.ops, "OPS", name), f"OPS[{name!r}]"
        count = guarded(self.ops.path, place, lambda: self.gpu.kernels(call))
        if count == 0:
            raise InputError(self.ops.path, place, "runs no kernel", "a callable that runs kernels on the GPU")
        if count > MOST_KERNELS:
            expected = f"at most {MOST_KERNELS}; name it in MODELS, which are recorded as CUDA graphs"
            raise InputError(self.ops.path, place, f"runs {count} kernels", expected)
        self.made[name] = call

    def _ms(self, name: str, calls: int, repeats: int, queue: Queue | None = None, cold: bool = False) -> float:
        """Time of one of some calls back to back, the median of several runs."""
        side = ([self.made[name]] * calls, queue or self.queue)
        return together_ms(self.gpu, [side], repeats, cold)[0] / calls

    def _times(self, name: str) -> dict[str, str]:
        found = {}
        for run in (1, 2):
            found[f"ms_single_run{run}"] = self._ms(name, 1, 15)
            found[f"ms_stream_run{run}"] = self._ms(name, BACK_TO_BACK, 5)
        found["ms_warm"], found["ms_cold"] = self._ms(name, 1, 9), self._ms(name, 1, 9, cold=True)
        return {column: f"{ms:.6f}" for column, ms in found.items()} | {"supported": "True"}

    def _outcomes(self) -> Iterator[str]:
        for name, columns, rows in (
            ("sm_curve.csv", CURVE_COLUMNS, self._curve()),
            ("pairs.csv", PAIR_COLUMNS, self._pairs()),
            ("modules.csv", MODULE_COLUMNS, self._sequences()),
        ):
            found = list(rows)
            if found:
                write_text(self.folder / name, records(columns, found))
                yield f"{self.folder / name}: {counted(len(found), 'row')}"

    def _curve(self) -> Iterator[dict[str, object]]:
        queues = [self.gpu.split(sms)[0] for sms in parts_of(self.gpu.sm_count, CURVE_PARTS)]
        for name in tracked(self.made, len(self.made), "SM curves"):
            for queue in (*queues, self.queue):
                whole = queue is self.queue
                ms = self._ms(name, CURVE_CALLS, 5 if whole else 3, queue)
                yield {"op": name, "sms": self.gpu.sm_count if whole else queue.sms, "ms": f"{ms:.6f}"}

    def _pairs(self) -> Iterator[dict[str, object]]:
        other = self.gpu.queue()
        splits = [self.gpu.split(sms) for sms in parts_of(self.gpu.sm_count, SPLIT_PARTS)]
        wanted = thinned(self.ops.pairs)
        for a, b in tracked(wanted, len(wanted), "pairs"):
            na, nb = queue_lengths(self._ms(a, CURVE_CALLS, 5), self._ms(b, CURVE_CALLS, 5))
            first, second = [self.made[a]] * na, [self.made[b]] * nb
            sides: list[Side] = [(first, self.queue), (second, other)]
            alone = [self._ms(name, n, 9) * n for name, n in ((a, na), (b, nb))]
            yield pair_row((a, b), "alone", sides, alone, sum(alone))
            yield pair_row((a, b), "streams", sides, together_ms(self.gpu, sides, 9))
            yield pair_row((a, b), "streams_b_first", sides, together_ms(self.gpu, sides[::-1], 9)[::-1])
            for mine, theirs in splits:
                divided = [(first, mine), (second, theirs)]
                yield pair_row((a, b), "green", divided, together_ms(self.gpu, divided, 7))

    def _sequences(self) -> Iterator[dict[str, object]]:
        for module, streams in tracked(self.ops.sequences.items(), len(self.ops.sequences), "sequences"):
            calls = [[self.made[op] for op in ops] for ops in streams]
            queues = [self.queue, *(self.gpu.queue() for _ in calls[1:])]
            ends = together_ms(self.gpu, list(zip(calls, queues, strict=True)), 9)
            joined = [[call for one in calls[: n + 1] for call in one] for n in range(len(calls))]
            so_far = [together_ms(self.gpu, [(one, self.queue)], 7)[0] for one in joined]
            for mode, ms in (("serial", so_far), ("streams", ends)):
                for branch, ops in enumerate(streams):
                    yield {
                        "module": module,
                        "selection": "base",
                        "branch": branch,
                        "ops": " ".join(ops),
                        "mode": mode,
                        "ms_end": f"{ms[branch]:.6f}",
                        "ms_makespan": f"{max(ms):.6f}",
                    }


def queue_lengths(a_ms: float, b_ms: float) -> tuple[int, int]:
    """Calls of two ops with which their queues last about as long, and long enough; at most `MOST_IN_QUEUE`."""
    ratio = max(1, min(MOST_IN_QUEUE, round(max(a_ms, b_ms) / min(a_ms, b_ms))))
    na, nb = (ratio, 1) if a_ms < b_ms else (1, ratio)
    lasts = max(na * a_ms, nb * b_ms)
    times = 1 if lasts >= LEAST_QUEUE_MS else min(MOST_IN_QUEUE // max(na, nb), int(LEAST_QUEUE_MS / lasts) + 1)
    return na * max(1, times), nb * max(1, times)
