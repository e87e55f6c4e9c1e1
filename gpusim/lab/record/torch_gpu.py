"""A GPU through PyTorch.

The driver's functions that PyTorch lacks (green contexts, a flag that streams wait for) are in release.cu, which nvcc
builds here. Run as a program it runs ops or a model once under Nsight Compute: ``torch_gpu.py OPS.py KIND LIST NAME…``.
"""

from __future__ import annotations

import csv
import ctypes
import json
import shutil
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from gpusim.common.errors import InputError
from gpusim.lab.record.counters import COUNTERS
from gpusim.lab.record.ops_file import OpCall, Ops, OutOfMemory, Synchronises, made, read_ops, without_torch
from gpusim.lab.record.recording import Row, kernel_rows
from gpusim.lab.record.toolchain import FROM_START, build, under_ncu

LEAST_CAPABILITY = 9.0  # green contexts of which every part is a multiple of 8 SMs; older GPUs are untried
WARM_UPS = 3
WAITING = ("synchronize", "Stream.synchronize", "Event.synchronize")  # of torch.cuda, which its own check passes over


@dataclass(frozen=True)
class Queue:
    """A stream, for PyTorch and for the driver."""

    stream: Any
    pointer: int
    sms: int  # that its kernels may use


Side = tuple[Sequence[OpCall], Queue]


class Gpu:
    """The first GPU of this machine."""

    def __init__(self) -> None:
        self._torch = torch = _torch()
        if not torch.cuda.is_available():
            raise InputError(None, "GPU", "PyTorch finds none", "an NVIDIA GPU, its driver, and PyTorch with CUDA")
        self.name: str = torch.cuda.get_device_name(0)
        self.sm_count: int = torch.cuda.get_device_properties(0).multi_processor_count
        self._library = _library()
        torch.zeros(1, device="cuda")
        self._call("prepare")
        self._splits: dict[int, tuple[Queue, Queue]] = {}

    def queue(self) -> Queue:
        """A stream on all SMs."""
        pointer = ctypes.c_void_p()
        self._call("open_stream", ctypes.byref(pointer))
        return self._queue(pointer.value, self.sm_count)

    def split(self, sms: int) -> tuple[Queue, Queue]:
        """Streams of two green contexts, made once for each number of SMs: a GPU holds only some dozens."""
        if sms not in self._splits:
            pointers, counts = (ctypes.c_void_p * 2)(), (ctypes.c_uint * 2)()
            self._call("split", ctypes.c_uint(sms), pointers, counts)
            first, second = (self._queue(pointers[i], counts[i]) for i in range(2))
            self._splits[sms] = first, second
        return self._splits[sms]

    def kernels(self, call: OpCall) -> int:
        """How many kernels a call runs, after two calls that may still set things up; raises `Synchronises`."""
        torch = self._torch
        kinds = torch.profiler.ProfilerActivity
        with self._errors(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that what looks for waits is new, and that profilers forget
            for _ in range(2):
                call()
            torch.cuda.synchronize()
            with self._refusing_waits():
                call()
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profiler:
                call()
                torch.cuda.synchronize()
        on_gpu = [event.name for event in profiler.events() if event.device_type == torch.autograd.DeviceType.CUDA]
        return sum(not name.startswith(("Memcpy", "Memset")) for name in on_gpu)

    def ends_ms(self, sides: Sequence[Side], cold: bool = False) -> list[float]:
        """When each stream ended, from the release of all: the calls of each run once; cold: with nothing in L2."""
        torch = self._torch
        marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in sides]
        with self._errors():
            self._run_once(sides)
            self._call("arm")
            try:
                for (calls, queue), (start, end) in zip(sides, marks, strict=True):
                    self._call("hold", ctypes.c_void_p(queue.pointer))
                    if cold:
                        self._call("flush", ctypes.c_void_p(queue.pointer))
                    start.record(queue.stream)
                    with torch.cuda.stream(queue.stream):
                        for call in calls:
                            call()
                    end.record(queue.stream)
            finally:
                self._call("release")
            torch.cuda.synchronize()
        first = marks[0][0]
        released = min([0.0, *(first.elapsed_time(start) for start, _ in marks[1:])])
        return [first.elapsed_time(end) - released for _, end in marks]

    def graph(self, call: OpCall, queue: Queue) -> OpCall:
        """A CUDA graph of a call, which is warm."""
        torch, on = self._torch, queue.stream
        with self._errors():
            with torch.cuda.stream(on):
                for _ in range(WARM_UPS):
                    call()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=on):
                call()
            torch.cuda.synchronize()
        replay: OpCall = graph.replay
        return replay

    def profile(
        self, call: OpCall, queue: Queue, passes: int, path: Path, shapes: bool = False
    ) -> list[dict[str, Any]]:
        """Write PyTorch's profile of some passes; shapes: with the sizes and types of operators' inputs. Its events."""
        torch = self._torch
        kinds = torch.profiler.ProfilerActivity
        with self._errors(), torch.cuda.stream(queue.stream):
            for _ in range(WARM_UPS):
                call()
            torch.cuda.synchronize()
            with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA], record_shapes=shapes) as profiler:
                for _ in range(passes):
                    call()
                torch.cuda.synchronize()
        profiler.export_chrome_trace(str(path))
        events: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        return events

    def counters(self, ops: Ops, names: Sequence[str]) -> list[Row]:
        """Rows of kernels.csv.gz of some ops, by Nsight Compute; none where it is not there."""
        log, streams = _under_ncu(ops, "OPS", names)
        return kernel_rows(log, streams) if log else []

    def model_counters(self, ops: Ops, name: str) -> str:
        """Nsight Compute's CSV of one pass; empty where it is not there."""
        return _under_ncu(ops, "MODELS", [name])[0]

    def _queue(self, pointer: int | None, sms: int) -> Queue:
        return Queue(self._torch.cuda.ExternalStream(pointer), pointer or 0, sms)

    def _call(self, name: str, *arguments: Any) -> None:
        said = getattr(self._library, name)(*arguments)
        if said:
            raise InputError(None, "CUDA", f"{name} failed ({said.decode()})", "a driver of CUDA 12.4 or later")

    def _run_once(self, sides: Sequence[Side]) -> None:
        """Each different call, so that none sets anything up behind the flag."""
        for calls, queue in sides:
            with self._torch.cuda.stream(queue.stream):
                for call in dict.fromkeys(calls):
                    call()
        for _, queue in sides:
            queue.stream.synchronize()  # that of the device passes over graphs in green contexts

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._torch.OutOfMemoryError as error:
            raise OutOfMemory from error

    @contextmanager
    def _refusing_waits(self) -> Iterator[None]:
        """Raise `Synchronises` where the host waits for the GPU."""
        cuda = self._torch.cuda
        mode = cuda.get_sync_debug_mode()

        def refuse(*_: Any, **__: Any) -> None:
            raise Synchronises("synchronize()")

        with ExitStack() as stack:
            for name in WAITING:
                stack.enter_context(mock.patch(f"torch.cuda.{name}", refuse))
            cuda.set_sync_debug_mode("error")
            try:
                yield
            except RuntimeError as error:
                if "synchronizing CUDA operation" in str(error):
                    raise Synchronises("a copy to the host, such as item() or cpu()") from None
                raise
            finally:
                cuda.set_sync_debug_mode(mode)


def _torch() -> Any:
    try:
        return import_module("torch")
    except ImportError:
        raise without_torch() from None


def _library() -> Any:
    with TemporaryDirectory() as scratch:
        built = Path(scratch) / "release.so"
        build(Path(__file__).with_name("release.cu"), built, LEAST_CAPABILITY, "cuda", shared=True)
        library = ctypes.CDLL(str(built))
    for name in ("prepare", "open_stream", "split", "hold", "arm", "release", "flush"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


# ---- under Nsight Compute


def _under_ncu(ops: Ops, kind: str, names: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Nsight Compute's CSV of one run of some ops or a model, and the op of each stream; empty without ncu."""
    if shutil.which("ncu") is None:
        return "", {}
    with TemporaryDirectory() as scratch:
        listed = Path(scratch) / "streams.csv"
        program = [sys.executable, "-m", __name__, str(ops.path), kind, str(listed), *names]
        log = under_ncu(program, Path(scratch) / "ncu.csv", COUNTERS, *FROM_START)
        with listed.open(newline="", encoding="utf-8") as file:
            return log, dict(csv.reader(file))


def main(arguments: Sequence[str]) -> None:
    """Run each named op or model once, each on a stream of its own, with the profiler on; write streams and names."""
    path, kind, listed, *names = arguments
    torch, ops, keep = _torch(), read_ops(Path(path)), []
    runtime = torch.cuda.cudart()
    torch.zeros(1, device="cuda")
    with Path(listed).open("w", newline="", encoding="utf-8") as file:
        for name in names:
            call, (stream, number) = made(ops, kind, name), _new_stream(torch)
            keep += [call, stream]
            with torch.cuda.stream(stream):
                for _ in range(2):
                    call()
                torch.cuda.synchronize()
                runtime.cudaProfilerStart()
                call()
                torch.cuda.synchronize()
                runtime.cudaProfilerStop()
            csv.writer(file).writerow([number, name])


def _new_stream(torch: Any) -> tuple[Any, int]:
    """A stream of its own, not of PyTorch's small pool, and its number as profilers print it."""
    driver, pointer, number = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_ulonglong()
    non_blocking = 1
    failed = driver.cuStreamCreate(ctypes.byref(pointer), non_blocking)
    if failed or driver.cuStreamGetId(pointer, ctypes.byref(number)):
        raise InputError(None, "CUDA", "makes no stream", "a driver of CUDA 12 or later")
    return torch.cuda.ExternalStream(pointer.value), number.value


if __name__ == "__main__":
    main(sys.argv[1:])
