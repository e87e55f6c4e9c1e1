"""Records whole models as CUDA graphs: profiles, counters, and how long they take side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from gpusim.common.errors import InputError
from gpusim.common.files import make_folder, write_table, write_text
from gpusim.common.progress import tracked
from gpusim.common.spreadsheet import records
from gpusim.common.tables import counted
from gpusim.lab.record.ops_file import Call, Ops, guarded, made, raised
from gpusim.lab.record.ops_gpu import MOST_LAUNCHES, PAIR_COLUMNS, pair_row, parts_of, together_ms, write_profile
from gpusim.lab.record.outcomes import thinned
from gpusim.lab.record.torch_gpu import Gpu, Queue, Side

PASSES = 2  # in a profile, as `gpusim.lab.whole_models` expects
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

    def measure(self, outcomes: bool) -> Iterator[str]:
        """Profile every model; ``outcomes``: also time every pair of them; yield a line of progress for each step."""
        make_folder(self.folder)
        queue, calls, kernels = self.gpu.queue(), dict[str, Call](), dict[str, int]()
        for name in tracked(self.ops.models, len(self.ops.models), "profiling"):
            calls[name] = made(self.ops, "MODELS", name)
            graph = captured(self.ops, self.gpu, name, calls[name], queue)
            launches = write_profile(self.gpu, graph, queue, PASSES, self.folder / f"{name}{PROFILE}") // PASSES
            kernels[name] = launches
            if launches == 0:
                expected = "a callable that runs kernels on the GPU"
                raise InputError(self.ops.path, f"MODELS[{name!r}]", "runs no kernel", expected)
            write_profile(self.gpu, calls[name], queue, 1, self.folder / f"{name}{OPERATORS}", shapes=True)
            yield f"{self.folder / name}: {counted(launches, 'kernel')} in a pass"
        if outcomes:
            rows = list(_pairs(self.ops, self.gpu, calls, kernels, queue))
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


def captured(ops: Ops, gpu: Gpu, name: str, call: Call, queue: Queue) -> Call:
    """A model as a CUDA graph on a stream."""
    place = f"MODELS[{name!r}]"

    def capture() -> Call:
        try:
            return gpu.graph(call, queue)
        except RuntimeError as error:
            expected = "a model that CUDA can capture in a graph: it neither waits for the GPU nor reads from it"
            raise raised(ops.path, place, error, expected) from None

    return guarded(ops.path, place, capture)


def _pairs(
    ops: Ops, gpu: Gpu, calls: Mapping[str, Call], kernels: Mapping[str, int], queue: Queue
) -> Iterator[dict[str, object]]:
    """Rows of pairs.csv: each by itself, in streams, on disjoint SMs, and each on its SMs by itself."""
    other = gpu.queue()
    splits = [gpu.split(sms) for sms in parts_of(gpu.sm_count, PARTS)]
    wanted = thinned(ops.model_pairs)
    for a, b in tracked(wanted, len(wanted), "pairs of models"):
        first, second = (captured(ops, gpu, name, calls[name], on) for name, on in ((a, queue), (b, other)))
        graphs = (a, first, queue), (b, second, other)
        each = [_pass_ms(gpu, graph, kernels[name], on) for name, graph, on in graphs]
        na, nb = passes_of(each, (kernels[a], kernels[b]))
        sides: list[Side] = [([first] * na, queue), ([second] * nb, other)]
        alone = [_ms(gpu, side) for side in sides]
        yield pair_row((a, b), "alone", sides, alone, sum(alone))
        yield pair_row((a, b), "streams", sides, together_ms(gpu, sides, REPEATS))
        for mine, theirs in splits:
            one, two = (captured(ops, gpu, name, calls[name], on) for name, on in ((a, mine), (b, theirs)))
            divided: list[Side] = [([one] * na, mine), ([two] * nb, theirs)]
            yield pair_row((a, b), "green", divided, together_ms(gpu, divided, REPEATS))
            yield pair_row((a, b), "alone_green", divided, [_ms(gpu, side) for side in divided], 0.0)


def _ms(gpu: Gpu, side: Side) -> float:
    return together_ms(gpu, [side], REPEATS)[0]


def _pass_ms(gpu: Gpu, graph: Call, kernels: int, queue: Queue) -> float:
    passes = _at_most(LONGER_PASSES, kernels)
    return _ms(gpu, ([graph] * passes, queue)) / passes


def _at_most(passes: int, kernels: int) -> int:
    """So many passes of a model, or as many as fit behind a flag, and one at least."""
    return max(1, min(passes, MOST_LAUNCHES // kernels))


def passes_of(pass_ms: Sequence[float], kernels: Sequence[int]) -> tuple[int, int]:
    """Passes of two models with which both last about as long, from the time and the kernels of a pass of each."""
    longer = max((0, 1), key=lambda i: pass_ms[i])
    few = _at_most(LONGER_PASSES, kernels[longer])
    many = _at_most(min(MOST_PASSES, round(few * pass_ms[longer] / pass_ms[1 - longer])), kernels[1 - longer])
    return (few, many) if longer == 0 else (many, few)
