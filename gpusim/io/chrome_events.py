"""Tracks as a JSON trace of Chrome's, which chrome://tracing, ui.perfetto.dev and others open.

A track is a thread. A slice is a complete event (``X``), a dependency a flow from within the slice that ends it (``s``)
to the beginning of the one that waited (``f``). Times are in microseconds, to a nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from gpusim.io.tracks import Process, Slice, Track

Event = dict[str, Any]
DEPENDENCY = {"name": "waits for", "cat": "dependency"}


def encoded(processes: Sequence[Process]) -> Iterator[bytes]:
    """The parts of the file, in order."""
    yield b'{"displayTimeUnit":"ns","traceEvents":[\n'
    between = b""
    for event in chain.from_iterable(_events(pid, process) for pid, process in enumerate(processes, 1)):
        yield between + json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii")
        between = b",\n"
    yield b"\n]}\n"


def _events(pid: int, process: Process) -> Iterator[Event]:
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": process.name}}
    yield {"ph": "M", "pid": pid, "name": "process_sort_index", "args": {"sort_index": pid}}
    for tid, track in enumerate((*process.streams, *process.sms), 1):
        for what, value in (("name", track.name), ("sort_index", tid)):
            yield {"ph": "M", "pid": pid, "tid": tid, "name": f"thread_{what}", "args": {what: value}}
        yield from _slices({"pid": pid, "tid": tid}, track)
    for counter in process.counters:
        for at, percent in counter.values:
            yield {"ph": "C", "pid": pid, "name": counter.name, "ts": at / 1e3, "args": {"%": percent}}


def _slices(place: Event, track: Track) -> Iterator[Event]:
    for part in track.slices:
        time = {"ts": part.start_ns / 1e3, "dur": (part.end_ns - part.start_ns) / 1e3}
        yield {"ph": "X", **place, "name": part.name, **time, "args": part.details}
        yield from _flows(place, part)


def _flows(place: Event, part: Slice) -> Iterator[Event]:
    for number in part.leads_to:
        yield {"ph": "s", **place, **DEPENDENCY, "id": number, "ts": part.start_ns / 1e3}
    for number in part.follows:
        yield {"ph": "f", "bp": "e", **place, **DEPENDENCY, "id": number, "ts": part.start_ns / 1e3}
