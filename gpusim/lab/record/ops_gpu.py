"""The GPU as the recorder of PyTorch callables uses it, and rows from its times; no PyTorch in here."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median_high
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from gpusim.common.errors import InputError
from gpusim.lab.record.ops_file import Call, Make, Ops, raised
from gpusim.lab.record.recording import Row

T = TypeVar("T")

STEP_SMS = 8  # green contexts come in such steps on today's GPUs
OF_SMS = 132  # what numbers of SMs in the recorders are parts of
PAIR_COLUMNS = ("a", "na", "b", "nb", "mode", "sms_a", "sms_b", "ms_a", "ms_b", "ms_makespan")


class OutOfMemory(Exception):
    """An op does not fit into the memory of the GPU."""


class Synchronises(Exception):
    """A callable waits for the GPU, so it cannot be queued behind a flag."""


class Queue(Protocol):
    """A stream."""

    @property
    def sms(self) -> int:
        """SMs that its kernels may use."""


Side = tuple[Sequence[Call], Queue]


class Gpu(Protocol):
    """Interface of a GPU to the recorder; `gpusim.lab.record.torch_gpu` implements it with PyTorch."""

    name: str
    sm_count: int

    def queue(self) -> Queue:
        """A stream on all SMs."""

    def split(self, sms: int) -> tuple[Queue, Queue]:
        """Streams on disjoint SMs: at least so many, and what is left."""

    def kernels(self, call: Call) -> int:
        """How many kernels a call runs; raises `Synchronises`."""

    def ends_ms(self, sides: Sequence[Side], cold: bool = False) -> list[float]:
        """When each stream ended, from the release of all: the calls of each run once; cold: with nothing in L2."""

    def graph(self, call: Call, queue: Queue) -> Call:
        """A CUDA graph of a call."""

    def profile(self, call: Call, queue: Queue, passes: int, path: Path, shapes: bool = False) -> None:
        """Write PyTorch's profile of some passes of a call; shapes: with the sizes and types of operators' inputs."""

    def counters(self, ops: Ops, names: Sequence[str]) -> list[Row]:
        """Rows of kernels.csv.gz of some ops, by Nsight Compute; none where it is not there."""

    def model_counters(self, ops: Ops, name: str) -> str:
        """Nsight Compute's CSV of one pass of a model; empty where it is not there."""


def made(ops: Ops, kind: str, name: str) -> Call:
    """Return the result of a file's function.

    Args:
        ops: the file.
        kind: OPS or MODELS.
        name: which.

    Raises:
        InputError: it raises, does not fit into memory or gives nothing that can be called.
    """
    makers: Mapping[str, Make] = ops.ops if kind == "OPS" else ops.models
    call = guarded(ops.path, f"{kind}[{name!r}]", makers[name])
    if not callable(call):
        place = f"{kind}[{name!r}]"
        raise InputError(ops.path, place, f"returns {type(call).__name__}", "a callable without arguments")
    return call


def guarded(path: Path, place: str, run: Callable[[], Call]) -> Call:
    """The result of a user's code, what it raises as one line."""
    try:
        return run()
    except InputError:
        raise
    except OutOfMemory:
        problem = "does not fit into the GPU's memory beside what is before it in the file"
        raise InputError(path, place, problem, "smaller inputs, fewer ops a file, or a GPU with more memory") from None
    except Synchronises as error:
        problem = f"waits for the GPU ({error})"
        expected = "a callable that only launches work: no item(), cpu(), synchronize()"
        raise InputError(path, place, problem, expected) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise raised(path, place, error, "a callable that runs") from None


def parts_of(sm_count: int, parts: Sequence[int]) -> list[int]:
    """Numbers of SMs that are such parts of a GPU as `parts` are of 132, in steps of green contexts, each once."""
    wanted = [max(1, round(part * sm_count / OF_SMS / STEP_SMS)) * STEP_SMS for part in parts]
    return [sms for sms in dict.fromkeys(wanted) if sms < sm_count]


def together_ms(gpu: Gpu, sides: Sequence[Side], repeats: int) -> list[float]:
    """When each of some streams ended, from the release of all; medians of several runs."""
    runs = [gpu.ends_ms(sides) for _ in range(repeats)]
    return [median_high(run[i] for run in runs) for i in range(len(sides))]


def pair_row(
    pair: tuple[str, int, str, int], mode: str, sms: tuple[int, int], ends_ms: Sequence[float], makespan_ms: float
) -> dict[str, object]:
    """A row of pairs.csv."""
    a, na, b, nb = pair
    condition = {"a": a, "na": na, "b": b, "nb": nb, "mode": mode, "sms_a": sms[0], "sms_b": sms[1]}
    times = {"ms_a": ends_ms[0], "ms_b": ends_ms[1], "ms_makespan": makespan_ms}
    return condition | {column: f"{ms:.6f}" for column, ms in times.items()}


def write_profile(gpu: Gpu, call: Call, queue: Queue, passes: int, path: Path, shapes: bool = False) -> int:
    """Write PyTorch's profile of some passes, compressed; return how many kernels it holds."""
    with TemporaryDirectory(dir=path.parent) as scratch:
        plain, zipped = Path(scratch) / "profile.json", Path(scratch) / "profile.json.gz"
        gpu.profile(call, queue, passes, plain, shapes)
        events = json.loads(plain.read_text(encoding="utf-8"))["traceEvents"]
        with plain.open("rb") as file, gzip.GzipFile(zipped, "wb", mtime=0) as out:
            shutil.copyfileobj(file, out)
        zipped.replace(path)
    return sum(1 for event in events if event.get("cat") == "kernel")
