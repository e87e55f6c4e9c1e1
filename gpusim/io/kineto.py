"""PyTorch's profiler (Kineto): Chrome JSON, old schema (`Kernel`, "external id") and new (`kernel`, "External id")."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from sys import intern
from typing import Any

from gpusim.common.errors import InputError, one_line
from gpusim.common.tables import counted
from gpusim.io import chrome, source
from gpusim.io.operators import Operator, operator_of, work_of
from gpusim.io.part import STEP
from gpusim.io.timeline import CopyRun, HostSync, LaunchedKernel, Product, Range, Span, StreamKey, Timeline, Wait
from gpusim.io.values import copy_direction, finite, whole

_GPU_WORK = {"kernel", "gpu_memcpy", "memcpy", "gpu_memset", "memset"}
_CALLS = {"cuda_runtime", "cuda_driver", "runtime"}
_OPS = {"cpu_op", "operator"}
_RANGES = {"user_annotation", "python_annotation"}
_UNKNOWN = (-1, 2**32 - 1)  # a stream or an event record that Kineto does not know
_UNUSABLE = "without a usable grid, size, time, stream or GPU"


def read(path: Path) -> Timeline:
    """A profile of PyTorch."""
    reader = _Reader(path)
    for name, value in chrome.members(path):
        if name == chrome.EVENTS:
            reader.event(value)
        elif name in ("deviceProperties", "computeProperties"):  # the second until 2021
            reader.properties(value)
        elif name == "distributedInfo" and isinstance(value, dict):
            reader.found.rank = whole(value.get("rank"))
    return reader.timeline()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.found = Timeline()
        self.ops: dict[int, str] = {}  # External id: name
        self.operators: dict[int, Operator] = {}  # that tell the sizes of their inputs, by External id
        self.spans: list[Span] = []  # of operators
        self.externals: dict[int, int] = {}  # number of the activity: External id
        self.unusable = 0
        self.calls_to_wait = 0  # cudaStreamWaitEvent
        self.hip = 0
        self.streams: dict[tuple[int, str], StreamKey] = {}  # that worked, by GPU and number
        self.syncs: list[dict[str, Any]] = []  # arguments of waits, as newer versions record them
        self.printable = cache(one_line)  # names recur

    def properties(self, value: Any) -> None:
        for entry in value if isinstance(value, list) else ():
            if isinstance(entry, dict) and (index := whole(entry.get("id"))) is not None:
                refuse_amd(self.path, entry)
                sms = entry.get("numSms", entry.get("multiProcessorCount"))
                told = sms, *(entry.get(name) for name in ("totalGlobalMem", "computeMajor", "computeMinor"))
                self.found.products[index] = Product.of(str(entry.get("name", "")), *told)

    def event(self, event: Any) -> None:
        if not isinstance(event, dict) or event.get("ph") != "X":
            return
        category = str(event.get("cat", "")).lower()
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if category in _GPU_WORK:
            self._work(event, category, args)
        elif category in _CALLS:
            self._call(event, args)
        elif category in _OPS:
            if STEP.fullmatch(str(event.get("name", ""))):  # old profiles have no category for annotations
                self._range(event)
            external = _external(args)
            self._span(event, external)
            if external is not None:
                self.ops[external] = intern(str(event.get("name", "")))
                if "Input Dims" in args:
                    self.operators[external] = operator_of(self.ops[external], args)
        elif category in _RANGES:
            self._range(event)
        elif category == "cuda_sync":
            self.syncs.append(args)

    def _range(self, event: dict[str, Any]) -> None:
        if (times := _start_and_end(event)) is not None:
            self.found.ranges.append(Range(one_line(str(event.get("name", ""))), *times))

    def _span(self, event: dict[str, Any], external: int | None) -> None:
        if (times := _start_and_end(event)) is not None:
            number = len(self.spans) if external is None else external
            label = f"{intern(str(event.get('name', '')))}/{number}"
            self.spans.append(Span(*times, str(event.get("tid", "")), label))

    def _work(self, event: dict[str, Any], category: str, args: dict[str, Any]) -> None:
        is_kernel = category == "kernel"
        name = str(args.get("kernel" if is_kernel else "copy") or event.get("name", ""))
        if "memcpy" in category and copy_direction(name) is None:
            return  # from host to host
        start, duration = finite(event.get("ts")), finite(event.get("dur"))
        device = whole(args.get("device"))
        device = whole(event.get("pid")) if device is None else device
        number = _stream(event, args)
        work = self._kernel(name, args) if is_kernel else CopyRun.of(name, "memset" in category, args.get("bytes"))
        if start is None or duration is None or duration < 0 or device is None or number is None or work is None:
            self.unusable += 1
            return
        order = whole(args.get("correlation"))
        key = StreamKey(number, context=str(args.get("context", "")))
        key = self.streams.setdefault((device, key.number), key)
        external = _external(args)
        if external is not None and external != order:
            self.externals[len(self.found.activities)] = external
        label = f"graph{graph}" if (graph := whole(args.get("graph id"))) else ""
        self.found.add(device, key, start, duration, work, order, label)

    def _kernel(self, name: str, args: dict[str, Any]) -> LaunchedKernel | None:
        shape = args.get("grid"), args.get("block"), args.get("registers per thread")
        return LaunchedKernel.of(self.printable(name), *shape, 0, args.get("shared memory"), _meets(args))

    def _call(self, event: dict[str, Any], args: dict[str, Any]) -> None:
        name = str(event.get("name", ""))
        order = whole(args.get("correlation"))
        self.hip += name.startswith("hip")
        if order is None:
            return
        thread = str(event.get("tid", ""))
        if "Launch" in name or "Memcpy" in name or "Memset" in name:
            self.found.threads["", order] = thread
            if (start := finite(event.get("ts"))) is not None:
                self.found.launched_us["", order] = start
        elif name in ("cudaDeviceSynchronize", "cuCtxSynchronize"):
            self.found.syncs.append(HostSync(thread, order, None, order))
        else:
            self.calls_to_wait += "StreamWaitEvent" in name
            if "Synchronize" in name:
                self.found.threads["", order] = thread

    def _waits(self) -> None:
        """Waits as newer versions record them, at the end: a sync may come before the first work of its stream."""
        found, unknown = self.found, 0
        for args in self.syncs:
            kind, order, device = args.get("cuda_sync_kind"), whole(args.get("correlation")), whole(args.get("device"))
            if order is None or device is None:
                continue
            waiting, source = whole(args.get("stream")), whole(args.get("wait_on_stream"))
            thread = found.threads.get(("", order), "")
            if kind == "Stream Wait Event":
                if waiting is None or source is None or source in _UNKNOWN:
                    unknown += 1
                    continue
                keys = self._key(device, waiting), self._key(device, source)
                found.waits.append(Wait(keys[0], order, keys[1], _recorded(args, order)))
            elif kind == "Stream Sync" and waiting is not None and waiting not in _UNKNOWN:
                found.syncs.append(HostSync(thread, order, self._key(device, waiting), order))
            elif kind == "Event Sync" and source is not None and source not in _UNKNOWN:
                found.syncs.append(HostSync(thread, order, self._key(device, source), _recorded(args, order)))
        found.tells_waits = bool(self.syncs) and (bool(found.waits) or not unknown)

    def _key(self, device: int, number: int) -> StreamKey:
        return self.streams.get((device, str(number)), StreamKey(str(number)))

    def timeline(self) -> Timeline:
        found = self.found
        if self.hip:
            raise source.of_amd(self.path)
        if not any(isinstance(activity.work, LaunchedKernel) for activity in found.activities):
            unusable = f" ({self.unusable} GPU events {_UNUSABLE})" if self.unusable else ""
            problem = f"holds no kernels{unusable}"
            raise InputError(self.path, "", problem, "a PyTorch profile with ProfilerActivity.CUDA on an NVIDIA GPU")
        self._waits()
        self._name_operations()
        found.leave_out(self.unusable, "GPU event", _UNUSABLE)
        if self.calls_to_wait and not found.tells_waits:
            found.remarks.append(
                f"{counted(self.calls_to_wait, 'call')} made a stream wait; what for is not in the profile "
                "(PyTorch records it with enable_cuda_sync_events)."
            )
        return found

    def _name_operations(self) -> None:
        """Label launches with the operator that the host was in: its name and External id; else by the nesting."""
        activities = self.found.activities
        for n, external in self.externals.items():
            op = self.ops.get(external)
            if op is not None:
                activities[n] = replace(activities[n], label=f"{op}/{external}")
        self.found.label_by_nesting(self.spans)
        self._give_work()

    def _give_work(self) -> None:
        """The longest kernel of each operator gets the operator's work and traffic [D]."""
        activities = self.found.activities
        longest: dict[int, tuple[float, int, LaunchedKernel]] = {}
        for n, external in self.externals.items():
            run, us = activities[n].work, activities[n].duration_us
            known = longest.get(external)
            if external in self.operators and isinstance(run, LaunchedKernel) and (known is None or us > known[0]):
                longest[external] = us, n, run
        for external, (_, n, run) in longest.items():
            work = work_of(self.operators[external])
            activities[n] = replace(activities[n], work=replace(run, work=work))


def _meets(args: dict[str, Any]) -> str:
    """What tells a collective of PyTorch apart: its group, its number in that and, of a send or receive, both ends."""
    if "Process Group Name" not in args and "Seq" not in args:
        return ""
    peers = [whole(args.get(name)) for name in ("Src Rank", "Dst Rank")]
    known = {peer for peer in peers if peer is not None and peer >= 0}
    ends = sorted(known | {whole(args.get("Rank")) or 0}) if known else ""
    return (
        " ".join(str(args.get(name, "")) for name in ("Process Group Name", "Process Group Ranks", "Seq")) + f" {ends}"
    )


def _start_and_end(event: dict[str, Any]) -> tuple[float, float] | None:
    start, duration = finite(event.get("ts")), finite(event.get("dur"))
    return None if start is None or duration is None else (start, start + duration)


def _stream(event: dict[str, Any], args: dict[str, Any]) -> str | None:
    """The number of the stream, as text; None where the event tells none."""
    given = args["stream"] if "stream" in args else event.get("tid")
    if isinstance(given, str):
        return given.removeprefix("stream ").strip() or None
    number = whole(given)
    return None if number is None else str(number)


def _recorded(args: dict[str, Any], order: int) -> int:
    """The order of the record of an event that is waited for; that of the wait where the profile does not know it."""
    record = whole(args.get("wait_on_cuda_event_record_corr_id"))
    return order if record is None or record in _UNKNOWN else record


def _external(args: dict[str, Any]) -> int | None:
    return whole(args.get("External id", args.get("external id")))


def refuse_amd(path: Path, properties: dict[str, Any]) -> None:
    """Refuse a GPU that its properties say is AMD's."""
    name = str(properties.get("name", ""))
    if any(maker in name.upper() for maker in ("AMD", "RADEON", "INSTINCT")) or properties.get("warpSize") == 64:
        raise source.of_amd(path, name)
