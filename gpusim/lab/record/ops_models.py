"""Records whole models as CUDA graphs: profiles, counters, and how long they take side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import make_folder, write_table, write_text
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import records
from gpusim.common.tables import counted
from gpusim.lab.record.ops_file import OpCall, Ops, guarded, made, raised
from gpusim.lab.record.ops_gpu import MOST_LAUNCHES, PAIR_COLUMNS, pair_row, parts_of, together_ms, write_profile
from gpusim.lab.record.outcomes import thinned
from gpusim.lab.record.torch_gpu import Gpu, Queue, Side
from gpusim.lab.whole_models import PASSES

PROFILE = ".kineto.json.gz"
OPERATORS = ".operators.json.gz"  # one pass that is no graph, with the sizes of operators' inputs
LONGER_PASSES = 4  # of the longer model of a pair
MOST_PASSES = 64  # of the shorter
PARTS = (32, 48, 64, 80, 96)  # of 132 SMs
REPEATS = 7


class Models:
    """Profiles, outcomes and counters of whole models."""

    def __init__(self, ops: Ops, gpu: Gpu, folder: Path) -> None:
        self.ops, self.gpu, self.folder = ops, gpu, folder
        self.queue = gpu.queue()
        self.calls: dict[str, OpCall] = {}
        self.kernels: dict[str, int] = {}  # of a pass

    def measure(self, outcomes: bool) -> Iterator[str]:
        """Profile every model; ``outcomes``: also time every pair of them; yield a line of progress for each step."""
        make_folder(self.folder)
        for name in tracked(self.ops.models, len(self.ops.models), "profiling"):
            self.calls[name] = call = made(self.ops, "MODELS", name)
            graph = self._captured(name, self.queue)
            launches = write_profile(self.gpu, graph, self.queue, PASSES, self.folder / f"{name}{PROFILE}") // PASSES
            self.kernels[name] = launches
            if launches == 0:
                expected = "a callable that runs kernels on the GPU"
                raise InputError(self.ops.path, f"MODELS[{name!r}]", "runs no kernel", expected)
            write_profile(self.gpu, call, self.queue, 1, self.folder / f"{name}{OPERATORS}", shapes=True)
            yield f"{self.folder / name}: {counted(launches, 'kernel')} in a pass"
        if outcomes:
            rows = list(self._pairs())
            write_text(self.folder / "pairs.csv", records(PAIR_COLUMNS, rows))
            pairs = counted(len(self.ops.model_pairs), "pair")
            yield f"{self.folder / 'pairs.csv'}: {counted(len(rows), 'row')} of {pairs}"

    def count(self) -> Iterator[str]:
        """Count the kernels of every model under Nsight Compute; yield a line of progress for each."""
        for name in tracked(self.ops.models, len(self.ops.models), "counting"):
            log = self.gpu.model_counters(self.ops, name)
            if log:
                write_table(self.folder / f"{name}.ncu.csv.gz", log)
            yield f"{self.folder / name}: {'with' if log else 'without'} counters"

    def _captured(self, name: str, queue: Queue) -> OpCall:
        """A model as a CUDA graph on a stream."""
        place = f"MODELS[{name!r}]"

        def capture() -> OpCall:
            try:
                return self.gpu.graph(self.calls[name], queue)
            except RuntimeError as error:
                expected = "a model that CUDA can capture in a graph: it neither waits for the GPU nor reads from it"
                raise raised(self.ops.path, place, error, expected) from None

        return guarded(self.ops.path, place, capture)

    def _pairs(self) -> Iterator[dict[str, object]]:
        """Rows of pairs.csv: each by itself, in streams, on disjoint SMs, and each on its SMs by itself."""
        other = self.gpu.queue()
        splits = [self.gpu.split(sms) for sms in parts_of(self.gpu.sm_count, PARTS)]
        wanted = thinned(self.ops.model_pairs)
        for a, b in tracked(wanted, len(wanted), "pairs of models"):
            first, second = self._captured(a, self.queue), self._captured(b, other)
            each = self._pass_ms(a, first, self.queue), self._pass_ms(b, second, other)
            na, nb = passes_of(each, (self.kernels[a], self.kernels[b]))
            sides: list[Side] = [([first] * na, self.queue), ([second] * nb, other)]
            alone = [self._ms(side) for side in sides]
            yield pair_row((a, b), "alone", sides, alone, sum(alone))
            yield pair_row((a, b), "streams", sides, together_ms(self.gpu, sides, REPEATS))
            for mine, theirs in splits:
                one, two = self._captured(a, mine), self._captured(b, theirs)
                divided: list[Side] = [([one] * na, mine), ([two] * nb, theirs)]
                yield pair_row((a, b), "green", divided, together_ms(self.gpu, divided, REPEATS))
                yield pair_row((a, b), "alone_green", divided, [self._ms(side) for side in divided], 0.0)

    def _ms(self, side: Side) -> float:
        return together_ms(self.gpu, [side], REPEATS)[0]

    def _pass_ms(self, name: str, graph: OpCall, queue: Queue) -> float:
        passes = _at_most(LONGER_PASSES, self.kernels[name])
        return self._ms(([graph] * passes, queue)) / passes


def _at_most(passes: int, kernels: int) -> int:
    """So many passes of a model, or as many as fit behind a flag, and one at least."""
    return max(1, min(passes, MOST_LAUNCHES // kernels))


def passes_of(pass_ms: Sequence[float], kernels: Sequence[int]) -> tuple[int, int]:
    """Passes of two models with which both last about as long, from the time and the kernels of a pass of each."""
    longer = max((0, 1), key=lambda i: pass_ms[i])
    few = _at_most(LONGER_PASSES, kernels[longer])
    many = _at_most(min(MOST_PASSES, round(few * pass_ms[longer] / pass_ms[1 - longer])), kernels[1 - longer])
    return (few, many) if longer == 0 else (many, few)
